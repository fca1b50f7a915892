/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: xenstore's ring, requests and values.
 *
 * xenstored, which answers while a requester sleeps, sends any bytes in any pieces, and writes any
 * indices; or answers well, with any value.  Whatever it says, a request ends: with an error, or with a
 * value that is a number in its bounds or a string that fits.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>

#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>
#include <dev/xen/xenstore_var.h>

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"
#include "model/xenstore_page.h"

#define	FUZZ_MIN	10
#define	FUZZ_MAX	1000
#define	FUZZ_PAYLOAD	48	/* bytes that are the input's */

MALLOC_DEFINE(M_XEN, "xen", "");

static struct xenbus_child child;
static struct fuzz_input in;
static struct xsd_sockmsg request;
static u_int sleeps;
static bool broken;	/* an index is invalid: there is nothing to be had from this ring any more */
/* What is being sent. */
static char out[sizeof(struct xsd_sockmsg) + XENSTORE_PAYLOAD_MAX + 16];
static size_t out_len, out_at;

void
wakeup(const void *chan __unused)
{
}

void *
device_get_ivars(device_t dev __unused)
{

	return (&child);
}

/* Take what was requested, as far as it has come: its header. */
static void
fuzz_take(void)
{
	char *to = (char *)&request;
	uint32_t n = xs_page.req_prod - xs_page.req_cons;
	size_t i;

	if (n >= sizeof(request) && n <= XENSTORE_RING_SIZE) {
		for (i = 0; i < sizeof(request); i++)
			to[i] = xs_page.req[MASK_XENSTORE_IDX(xs_page.req_cons + i)];
	}
	xs_page.req_cons = xs_page.req_prod;
}

/* The next message: to the request or not, of a type that fits or not, with any payload. */
static void
fuzz_message(void)
{
	struct xsd_sockmsg *head = (struct xsd_sockmsg *)out;
	uint8_t kind = fuzz_byte(&in), len = fuzz_byte(&in);

	head->type = kind % 4 == 0 ? fuzz_byte(&in) % 24 : kind % 4 == 1 ? XS_ERROR : request.type;
	head->req_id = (kind & 0x10) != 0 ? fuzz_byte(&in) : request.req_id;
	head->tx_id = 0;
	head->len = len;
	/* Long ones, and some that are too long. */
	if ((kind & 0x20) != 0)
		head->len = len % 4 == 0 ? XENSTORE_PAYLOAD_MAX - 2 + len / 4 % 8 :
		    fuzz_word(&in) % XENSTORE_PAYLOAD_MAX;
	/* The input is not for that: what comes after this message is of more interest. */
	memset(out + sizeof(*head), '7', sizeof(out) - sizeof(*head));
	fuzz_fill(&in, out + sizeof(*head), MIN(head->len, FUZZ_PAYLOAD));
	if ((kind & 0x40) != 0 && head->type == XS_WATCH_EVENT)
		memcpy(out + sizeof(*head), "/a\0t", 5);
	out_len = sizeof(*head) + MIN(head->len, XENSTORE_PAYLOAD_MAX + 8);
	out_at = 0;
}

static void
fuzz_send(size_t n)
{

	for (; n > 0 && out_at < out_len &&
	    xs_page.rsp_prod - xs_page.rsp_cons < XENSTORE_RING_SIZE; n--)
		xs_page.rsp[MASK_XENSTORE_IDX(xs_page.rsp_prod++)] = out[out_at++];
}

/* What xenstored does while the requester sleeps; when the input ends, so does its patience. */
int
_sleep(const void *chan __unused, struct lock_object *lock, int pri __unused,
    const char *wmesg __unused, sbintime_t sbt __unused, sbintime_t pr __unused, int flags __unused)
{
	struct mtx *m = __containerof(lock, struct mtx, lock_object);
	uint8_t what = fuzz_byte(&in);

	CHECK(++sleeps < 20000, "sleeps for ever");
	fuzz_take();
	if (in.fi_left == 0 || what == 0xff)
		ticks += 1000 * hz;
	else if (what >= 0xfc)
		xs_page.rsp_prod += fuzz_word(&in);
	else if (what >= 0xf8)
		xs_page.req_cons += fuzz_word(&in);
	else {
		if (out_at == out_len)
			fuzz_message();
		fuzz_send(what % 2 == 0 ? XENSTORE_RING_SIZE : what);
	}
	broken |= xs_page.rsp_prod - xs_page.rsp_cons > XENSTORE_RING_SIZE;
	mtx_unlock(m);
	xs_intr(NULL);
	mtx_lock(m);
	return (0);
}

void
xen_evtchn_notify(struct xen_evtchn *ec __unused)
{
}

static void
fuzz_event(const char *path, const char *token)
{

	/* Both are terminated, inside of what came. */
	CHECK(strlen(path) + strlen(token) < XENSTORE_PAYLOAD_MAX, "%s, %s", path, token);
}

static void
fuzz_again(void)
{
}

static void
fuzz_number(void)
{
	device_t dev = kpi_device();
	uint64_t value = UINT64_MAX;
	int error;

	error = xenbus_read_number(dev, XENBUS_BACK, "n", FUZZ_MIN, FUZZ_MAX, &value);
	CHECK(error != 0 ? value == UINT64_MAX : value >= FUZZ_MIN && value <= FUZZ_MAX && !broken,
	    "error %d, %ju", error, (uintmax_t)value);
	value = 77;
	error = xenbus_read_setting(dev, XENBUS_BACK, "s", 1, 5, 3, &value);
	CHECK(error != 0 ? value == 77 : value >= 1 && value <= 5, "error %d, %ju", error,
	    (uintmax_t)value);
	CHECK(xenbus_read_option(dev, XENBUS_BACK, "o", 9, 4) <= 9, "an option");
	value = 5;
	error = xenbus_peek("/d", "p", 50, &value);
	CHECK(value <= 50 && (error == 0 || value == 5), "error %d, %ju", error, (uintmax_t)value);
}

static void
fuzz_string(void)
{
	char *buf = host_alloc(16, 1), path[64];
	char **names;
	u_int n;
	int error;

	error = xenbus_read_string(kpi_device(), XENBUS_BACK, "s", buf, 16);
	CHECK(strnlen(buf, 16) < 16, "error %d, not terminated", error);
	host_free(buf);
	child.xb_otherend = 0;
	if (xenbus_find_otherend(&child, path, sizeof(path)) == 0)
		CHECK(strncmp(path, "/local/domain/", 14) == 0 && child.xb_otherend <
		    DOMID_FIRST_RESERVED, "%s, %u", path, child.xb_otherend);
	if (xenstore_list(NULL, "/d", "l", &names, &n) == 0) {
		for (; n > 0; n--)
			CHECK(strlen(names[n - 1]) < XENSTORE_PAYLOAD_MAX, "a name");
		xenstore_free(names);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct xenstore_watcher watcher = { fuzz_event, fuzz_again };
	static char dir[] = "/d";

	in = (struct fuzz_input){ data, size };
	kpi_quiet = true;
	memset(&xs_page, 0, sizeof(xs_page));
	xs_page.req_prod = xs_page.req_cons = fuzz_byte(&in) - 128;
	xs_page.rsp_prod = xs_page.rsp_cons = fuzz_byte(&in) - 128;
	memset(&child, 0, sizeof(child));
	child.xb_dev = kpi_device();
	child.xb_node = dir;
	strlcpy(child.xb_path, dir, sizeof(child.xb_path));
	mtx_init(&child.xb_mtx, "child", NULL, MTX_DEF);
	sleeps = 0;
	broken = false;
	ticks = 0;
	out_len = out_at = 0;
	xenstore_set_watcher(&watcher);
	/* It reads our own number, too. */
	(void)xenstore_init(kpi_device());
	while (in.fi_left > 0) {
		if (fuzz_byte(&in) % 2 == 0)
			fuzz_number();
		else
			fuzz_string();
	}
	xenstore_fini(kpi_device());
	mtx_destroy(&child.xb_mtx);
	CHECK(kpi_mallocs == 0, "leak: %d", kpi_mallocs);
	return (0);
}
