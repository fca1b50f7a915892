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

#include <vm/vm.h>
#include <vm/pmap.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenstore_var.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/peer.h"

#if __has_feature(thread_sanitizer)
#define	RACE_ROUNDS	(host_soaking() ? 5000 : 300)
#else
#define	RACE_ROUNDS	(host_soaking() ? 100000 : 4000)
#endif
#define	RACE_DAWDLE	32

volatile int ticks;
int hz = 100;
sbintime_t tick_sbt = SBT_1S / 100;

static struct xenstore_domain_interface intf;
static struct host_bell intr, daemon_event, awake;
static driver_intr_t *handler;
static int lock, over;
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
	    "request %lu: requests %u to %u, responses %u to %u", who, requests, intf.req_cons,
	    intf.req_prod, intf.rsp_cons, intf.rsp_prod);
}

void
__mtx_lock_flags(volatile uintptr_t *m __unused, int opts __unused, const char *file __unused,
    int line __unused)
{

	while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE) != 0)
		host_yield();
}

void
__mtx_unlock_flags(volatile uintptr_t *m __unused, int opts __unused, const char *file __unused,
    int line __unused)
{

	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

void
mtx_sysinit(const void *arg __unused)
{
}

void
_mtx_destroy(volatile uintptr_t *m __unused)
{
}

void
wakeup(const void *chan __unused)
{

	host_bell_ring(&awake);
}

int
_sleep(const void *chan __unused, struct lock_object *lo __unused, int pri __unused,
    const char *wmesg __unused, sbintime_t sbt __unused, sbintime_t pr __unused, int flags __unused)
{

	__mtx_unlock_flags(NULL, 0, NULL, 0);
	asleep(&awake, "the requester");
	__mtx_lock_flags(NULL, 0, NULL, 0);
	return (0);
}

int
xen_get_param(uint32_t index __unused, uint64_t *value)
{

	*value = 1;
	return (0);
}

void *
pmap_mapdev_attr(vm_paddr_t pa __unused, vm_size_t size __unused, int attr __unused)
{

	return (&intf);
}

void
pmap_unmapdev(void *va __unused, vm_size_t size __unused)
{
}

int
xen_evtchn_adopt(evtchn_port_t port __unused, const struct xen_evtchn_params *params,
    struct xen_evtchn **ecp)
{

	handler = params->xep_handler;
	*ecp = (struct xen_evtchn *)&handler;
	return (0);
}

void
xen_evtchn_free(struct xen_evtchn *ec __unused)
{
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

	cons = intf.req_cons;
	prod = __atomic_load_n(&intf.req_prod, __ATOMIC_ACQUIRE);
	len = MIN(len, prod - cons);
	for (i = 0; i < len; i++)
		to[i] = intf.req[MASK_XENSTORE_IDX(cons + i)];
	if (len == 0)
		return (0);
	__atomic_store_n(&intf.req_cons, cons + (uint32_t)len, __ATOMIC_RELEASE);
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
	uint32_t cons = __atomic_load_n(&intf.rsp_cons, __ATOMIC_SEQ_CST);

	return (XENSTORE_RING_SIZE - (intf.rsp_prod - cons));
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
		prod = intf.rsp_prod;
		for (len -= n; n > 0; n--)
			intf.rsp[MASK_XENSTORE_IDX(prod++)] = *from++;
		__atomic_store_n(&intf.rsp_prod, prod, __ATOMIC_SEQ_CST);
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
		handler(NULL);
	}
}

/* Most requests are short; some fill the ring, and some are longer than that. */
static void
requester_body(void *arg __unused)
{
	static char body[XENSTORE_PAYLOAD_MAX];
	struct xenstore_piece piece = { .xp_data = body };
	uint32_t seed = 1;
	const char *reply;
	size_t i, len;
	int error;

	for (requests = 0; requests < RACE_ROUNDS; requests++) {
		piece.xp_len = peer_random(&seed) % (peer_random(&seed) % 4 != 0 ? 60 : sizeof(body));
		for (i = 0; i < piece.xp_len; i++)
			body[i] = requests + i;
		error = xenstore_ring_talk(XS_WRITE, 0, &piece, 1, &reply, &len);
		CHECK(error == 0 && len == piece.xp_len && memcmp(reply, body, len) == 0,
		    "request %lu: error %d, %zu of %zu bytes", requests, error, len, piece.xp_len);
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
