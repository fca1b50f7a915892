/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore's ring: the requester, its event channel's thread, and xenstored are threads that sleep for
 * events and wake-ups and for nothing else.  As in pvq_race.c, all are asleep when one is lost.
 *
 * xenstored answers each request with its own payload, and sends events of watches in between, as
 * many as fill the ring: it then sleeps until an event tells that there is room.  The bytes of the ring
 * are plain memory, which ThreadSanitizer checks (this driver is compiled so that it does not take
 * its volatile bytes for atomic).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenstore_var.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/peer.h"
#include "model/xenstore_page.h"

#if __has_feature(thread_sanitizer)
#define	RACE_ROUNDS	(host_soaking() ? 5000 : 300)
#else
#define	RACE_ROUNDS	(host_soaking() ? 100000 : 4000)
#endif
#define	RACE_DAWDLE	32

static struct host_bell intr, daemon_event, awake;
static int over;
static uint64_t requests, fired;
static uint32_t daemon_seed = 3;

static void
dawdle(uint32_t *seed)
{
	volatile u_int n;

	n = RACE_DAWDLE << peer_random(seed) % 4;
	for (n = peer_random(seed) % n; n > 0; n--)
		continue;
}

static void
asleep(struct host_bell *bell, const char *who)
{

	CHECK(host_bell_wait(bell), "an event or a wake-up is lost: all are asleep, %s last, in "
	    "request %lu: requests %u to %u, responses %u to %u", who, requests, xs_page.req_cons,
	    xs_page.req_prod, xs_page.rsp_cons, xs_page.rsp_prod);
}

void
wakeup(const void *chan __unused)
{

	host_bell_ring(&awake);
}

int
_sleep(const void *chan __unused, struct lock_object *lock, int pri __unused,
    const char *wmesg __unused, sbintime_t sbt __unused, sbintime_t pr __unused, int flags __unused)
{
	struct mtx *m = __containerof(lock, struct mtx, lock_object);

	mtx_unlock(m);
	asleep(&awake, "the requester");
	mtx_lock(m);
	return (0);
}

void
xen_evtchn_notify(struct xen_evtchn *ec __unused)
{

	host_bell_ring(&daemon_event);
}

/* The other direction. */
static void
daemon_notify(void)
{

	host_bell_ring(&intr);
}

static bool
daemon_over(void)
{

	return (__atomic_load_n(&over, __ATOMIC_ACQUIRE) != 0);
}

/* Bytes of a request: as many as there are, up to len. */
static size_t
daemon_take(char *to, size_t len)
{
	uint32_t cons, prod;
	size_t i;

	cons = xs_page.req_cons;
	prod = __atomic_load_n(&xs_page.req_prod, __ATOMIC_ACQUIRE);
	len = MIN(len, prod - cons);
	for (i = 0; i < len; i++)
		to[i] = xs_page.req[MASK_XENSTORE_IDX(cons + i)];
	if (len == 0)
		return (0);
	__atomic_store_n(&xs_page.req_cons, cons + (uint32_t)len, __ATOMIC_RELEASE);
	dawdle(&daemon_seed);
	daemon_notify();
	return (len);
}

/* Read all of it.  False: the test is over. */
static bool
daemon_read(void *to, size_t len)
{
	size_t at, n;

	for (at = 0; at < len; at += n) {
		n = daemon_take((char *)to + at, len - at);
		while (n == 0 && !daemon_over()) {
			asleep(&daemon_event, "xenstored");
			n = daemon_take((char *)to + at, len - at);
		}
		if (n == 0)
			return (false);
	}
	return (true);
}

static uint32_t
daemon_room(void)
{
	uint32_t cons = __atomic_load_n(&xs_page.rsp_cons, __ATOMIC_SEQ_CST);

	return (XENSTORE_RING_SIZE - (xs_page.rsp_prod - cons));
}

/* As much as there is room for, announced; and when there is none, sleep until there is. */
static void
daemon_write(const void *data, size_t len)
{
	const char *from = data;
	uint32_t n, prod;

	while (len > 0) {
		n = daemon_room();
		n = MIN(n, len);
		prod = xs_page.rsp_prod;
		for (len -= n; n > 0; n--)
			xs_page.rsp[MASK_XENSTORE_IDX(prod++)] = *from++;
		__atomic_store_n(&xs_page.rsp_prod, prod, __ATOMIC_SEQ_CST);
		daemon_notify();
		dawdle(&daemon_seed);
		while (len > 0 && daemon_room() == 0)
			asleep(&daemon_event, "xenstored");
	}
}

static void
daemon_send(uint32_t type, uint32_t id, const void *body, size_t len)
{
	struct xsd_sockmsg head = { .type = type, .req_id = id, .len = len };

	daemon_write(&head, sizeof(head));
	daemon_write(body, len);
}

static void
daemon_body(void *arg __unused)
{
	static char body[XENSTORE_PAYLOAD_MAX];
	struct xsd_sockmsg head;
	u_int n;

	while (daemon_read(&head, sizeof(head)) && daemon_read(body, head.len)) {
		n = peer_random(&daemon_seed) % (peer_random(&daemon_seed) % 4 == 0 ? 100 : 4);
		for (; n > 0; n--)
			daemon_send(XS_WATCH_EVENT, 0, "/a/path\0token", 14);
		daemon_send(head.type, head.req_id, body, head.len);
	}
}

static void
intr_body(void *arg __unused)
{
	uint32_t seed = 5;

	while (!daemon_over()) {
		asleep(&intr, "the interrupt thread");
		dawdle(&seed);
		xs_intr(NULL);
	}
}

/* Most requests are short; some fill the ring, and some are longer than that. */
static void
requester_body(void *arg __unused)
{
	static char body[XENSTORE_PAYLOAD_MAX];
	struct xenstore_piece piece = { .xsp_data = body };
	uint32_t seed = 1;
	const char *reply;
	size_t i, len;
	int error;

	for (requests = 0; requests < RACE_ROUNDS; requests++) {
		piece.xsp_len = peer_random(&seed) % (peer_random(&seed) % 4 != 0 ? 60 : sizeof(body));
		for (i = 0; i < piece.xsp_len; i++)
			body[i] = requests + i;
		error = xenstore_ring_talk(XS_WRITE, 0, &piece, 1, &reply, &len);
		CHECK(error == 0 && len == piece.xsp_len && memcmp(reply, body, len) == 0,
		    "request %lu: error %d, %zu of %zu bytes", requests, error, len, piece.xsp_len);
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	host_bell_ring(&intr);
	host_bell_ring(&daemon_event);
}

static void
event(const char *path, const char *token)
{

	CHECK(strcmp(path, "/a/path") == 0 && strcmp(token, "token") == 0, "%s, %s", path, token);
	fired++;
}

static void
race_requests(const void *arg __unused)
{
	void (*const bodies[])(void *) = { requester_body, daemon_body, intr_body };

	xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value = 0;
	CHECK(xenstore_ring_init(kpi_device(), event) == 0, "no ring");
	host_run_apart(bodies, nitems(bodies), NULL);
	xenstore_ring_fini();
	CHECK(fired > 0, "no watch fired");
}

static const struct hosted_test tests[] = {
	{ "xenstore_asleep_until_told",
	    "Requester, event thread and xenstored race each other to sleep", race_requests, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
