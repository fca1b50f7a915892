/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore's ring: bytes, and the messages that they make (xen/io/xs_wire.h).
 *
 * A page holds two rings of 1,024 bytes, one a direction, with free-running
 * indices.  Messages are a header and up to 4,096 bytes, so that one may pass
 * in several pieces, each announced by an event.
 *
 * There is one request in flight, and its answer is recognised by its number
 * (req_id); an answer to a request that has timed out (ETIMEDOUT) comes late,
 * and is dropped (xenstore_doubt.c).  Between answers come events of watches,
 * which belong to no request.  Whatever comes is taken from the ring in the
 * thread of the event channel, which never sleeps, so that xenstore never finds
 * the ring full for long.
 *
 * Trust.  The indices are read once and checked, and so is the length of a
 * message.  If they are invalid, or a request could be sent in part only, it is
 * not known where the next message begins: the ring is dead, all requests
 * return EIO, until xenstore_resume() makes a new one.  A request that fits
 * into the ring is written when there is room for all of it, so that only one
 * that does not fit can be cut in two by a time-out.
 *
 * Locking.  xr_mtx (mutex): all that follows.  The payload of an answer is the
 * requester's alone from the time it is complete until xr_expect is set again.
 *
 * Gaps.  XENSTORE_SERVER_FEATURE_RECONNECTION: a dead ring is not revived.  A
 * xenstored that was killed and does not know the domain (its toolstack has to
 * introduce it) is one that does not answer.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/atomic.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenstore_var.h>
#include <xen/hvm/params.h>

static struct {
	struct mtx	 xr_mtx;
	device_t	 xr_dev;
	volatile struct xenstore_domain_interface *xr_intf;
	struct xen_evtchn *xr_evtchn;
	xenstore_event_t *xr_event;	/* a watch fired */
	bool		 xr_dead;
	/* The message that is coming in. */
	struct xsd_sockmsg xr_head;
	size_t		 xr_got;	/* bytes of it, header included */
	char		 xr_body[XENSTORE_PAYLOAD_MAX + 1];
	/* The answer that is waited for. */
	uint32_t	 xr_expect;	/* its number; 0: none */
	uint32_t	 xr_last;	/* number of the last request */
	u_int		 xr_timeout;	/* its seconds; 0: forever */
	int		 xr_deadline;	/* the end of them, in ticks */
	uint32_t	 xr_type;
	size_t		 xr_len;
	char		 xr_reply[XENSTORE_PAYLOAD_MAX + 1];
} xr;

MTX_SYSINIT(xenstore_ring, &xr.xr_mtx, "xenstore ring", MTX_DEF);

static void
ring_kill(const char *why, uintmax_t value)
{

	if (xr.xr_dead)
		return;
	xr.xr_dead = true;
	device_printf(xr.xr_dev,
	    "xenstore is lost: %s (%ju); devices stay as they are until the "
	    "domain is restarted, or saved and restored\n", why, value);
	wakeup(&xr);
}

static void
ring_copy(char *to, const volatile char *ring, uint32_t index, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		to[i] = ring[MASK_XENSTORE_IDX(index + i)];
}

/* How many bytes may be read?  Their contents are there when this returns. */
static uint32_t
ring_readable(void)
{
	uint32_t n;

	n = atomic_load_32(&xr.xr_intf->rsp_prod) -
	    atomic_load_32(&xr.xr_intf->rsp_cons);
	if (n > XENSTORE_RING_SIZE) {
		ring_kill("invalid response index", n);
		return (0);
	}
	atomic_thread_fence_acq();
	return (n);
}

/* Take up to want bytes; returns how many there were. */
static size_t
ring_take(char *to, size_t want)
{
	uint32_t cons, n;

	/*
	 * Looked at once: a second look may find more than what was compared
	 * with want.
	 */
	n = ring_readable();
	n = MIN(want, n);
	if (n == 0)
		return (0);
	cons = atomic_load_32(&xr.xr_intf->rsp_cons);
	ring_copy(to, xr.xr_intf->rsp, cons, n);
	atomic_store_rel_32(&xr.xr_intf->rsp_cons, cons + n);
	atomic_thread_fence_seq_cst();
	/* Only a ring that was full keeps xenstore waiting for us. */
	if (atomic_load_32(&xr.xr_intf->rsp_prod) - cons >= XENSTORE_RING_SIZE)
		xen_evtchn_notify(xr.xr_evtchn);
	return (n);
}

/* A watch's event is two strings: the path and the token. */
static void
ring_event(void)
{
	const char *token;
	size_t len = xr.xr_head.len;
	size_t path;

	path = strnlen(xr.xr_body, len);
	if (path == len ||
	    strnlen(xr.xr_body + path + 1, len - path - 1) == len - path - 1)
		return;
	token = xr.xr_body + path + 1;
	xenstore_events++;
	xr.xr_event(xr.xr_body, token);
}

static void
ring_answer(void)
{

	if (xr.xr_expect == 0 || xr.xr_head.req_id != xr.xr_expect) {
		xenstore_late_answer(xr.xr_head.type, xr.xr_body);
		return;
	}
	xr.xr_expect = 0;
	xr.xr_type = xr.xr_head.type;
	xr.xr_len = xr.xr_head.len;
	memcpy(xr.xr_reply, xr.xr_body, xr.xr_len + 1);
	wakeup(&xr);
}

/*
 * Take a piece of the message that is coming in.  Returns false when there is
 * nothing to take.
 */
static bool
ring_receive(void)
{
	size_t n, whole;

	if (xr.xr_got < sizeof(xr.xr_head)) {
		n = ring_take((char *)&xr.xr_head + xr.xr_got,
		    sizeof(xr.xr_head) - xr.xr_got);
		xr.xr_got += n;
		if (n == 0 || xr.xr_got < sizeof(xr.xr_head))
			return (n != 0);
		if (xr.xr_head.len > XENSTORE_PAYLOAD_MAX) {
			ring_kill("a message is too long", xr.xr_head.len);
			return (false);
		}
	}
	whole = sizeof(xr.xr_head) + xr.xr_head.len;
	n = ring_take(xr.xr_body + (xr.xr_got - sizeof(xr.xr_head)),
	    whole - xr.xr_got);
	xr.xr_got += n;
	if (xr.xr_got < whole)
		return (n != 0);
	xr.xr_body[xr.xr_head.len] = '\0';
	if (xr.xr_head.type == XS_WATCH_EVENT)
		ring_event();
	else
		ring_answer();
	xr.xr_got = 0;
	return (true);
}

static void
ring_intr(void *arg __unused)
{

	mtx_lock(&xr.xr_mtx);
	while (!xr.xr_dead && ring_receive())
		continue;
	/* There may be room for more of a request. */
	wakeup(&xr);
	mtx_unlock(&xr.xr_mtx);
}

/* Sleep until the ring has changed.  ETIMEDOUT after the request's deadline. */
static int
ring_wait(void)
{
	int left;

	if (xr.xr_dead)
		return (EIO);
	if (xr.xr_timeout == 0) {
		(void)msleep(&xr, &xr.xr_mtx, 0, "xenstr", 0);
		return (0);
	}
	left = xr.xr_deadline - ticks;
	if (left <= 0)
		return (ETIMEDOUT);
	(void)msleep(&xr, &xr.xr_mtx, 0, "xenstr", left);
	return (0);
}

/* Wait for room for so many bytes; *room is set to how many there are. */
static int
ring_wait_room(uint32_t want, uint32_t *room)
{
	uint32_t used;
	int error;

	for (;;) {
		used = atomic_load_32(&xr.xr_intf->req_prod) -
		    atomic_load_32(&xr.xr_intf->req_cons);
		if (used > XENSTORE_RING_SIZE) {
			ring_kill("invalid request index", used);
			return (EIO);
		}
		*room = XENSTORE_RING_SIZE - used;
		if (*room >= want)
			return (0);
		error = ring_wait();
		if (error != 0)
			return (error);
	}
}

static int
ring_write(const void *data, size_t len)
{
	const char *from = data;
	uint32_t prod, room;
	int error;

	while (len > 0) {
		error = ring_wait_room(1, &room);
		if (error != 0)
			return (error);
		prod = atomic_load_32(&xr.xr_intf->req_prod);
		atomic_thread_fence_seq_cst();
		for (room = MIN(room, len); room > 0; room--, len--)
			xr.xr_intf->req[MASK_XENSTORE_IDX(prod++)] = *from++;
		atomic_store_rel_32(&xr.xr_intf->req_prod, prod);
		xen_evtchn_notify(xr.xr_evtchn);
	}
	return (0);
}

/* A message goes in whole, or the ring is lost. */
static int
ring_send(const struct xsd_sockmsg *head, const struct xenstore_piece *pieces,
    u_int n)
{
	char msg[256];
	size_t len = sizeof(*head);
	uint32_t room;
	u_int i;
	int error;

	error = ring_wait_room(MIN(len + head->len, XENSTORE_RING_SIZE), &room);
	if (error != 0)
		return (error);
	/* Short ones, as most are, in one go: one event for all of it. */
	if (len + head->len <= sizeof(msg)) {
		memcpy(msg, head, len);
		for (i = 0; i < n; len += pieces[i].xsp_len, i++)
			memcpy(msg + len, pieces[i].xsp_data,
			    pieces[i].xsp_len);
		error = ring_write(msg, len);
	} else {
		error = ring_write(head, len);
		for (i = 0; i < n && error == 0; i++)
			error = ring_write(pieces[i].xsp_data,
			    pieces[i].xsp_len);
	}
	if (error == ETIMEDOUT) {
		ring_kill(
		    "a part of a request was not read within so many seconds",
		    xr.xr_timeout);
		error = EIO;
	}
	return (error);
}

/*
 * xenstore answered with an error of its own, or with an answer to another
 * request: as without an answer, the result of this one is unknown.
 */
static int
ring_failed(uint32_t type, const struct xenstore_piece *pieces, u_int n)
{

	if (xenstore_fail())
		device_printf(xr.xr_dev,
		    "xenstore failed a request of type %u, %.*s: answer %u, "
		    "%.16s\n", type, n != 0 ? (int)pieces[0].xsp_len : 0,
		    n != 0 ? (const char *)pieces[0].xsp_data : "", xr.xr_type,
		    xr.xr_reply);
	return (ETIMEDOUT);
}

int
xenstore_ring_talk(uint32_t type, uint32_t tx,
    const struct xenstore_piece *pieces, u_int n, const char **reply,
    size_t *len)
{
	struct xsd_sockmsg head = { .type = type, .tx_id = tx };
	u_int i;
	int error;

	for (i = 0; i < n; i++)
		head.len += pieces[i].xsp_len;
	if (head.len > XENSTORE_PAYLOAD_MAX)
		return (E2BIG);
	mtx_lock(&xr.xr_mtx);
	if (xr.xr_intf == NULL || xr.xr_dead) {
		mtx_unlock(&xr.xr_mtx);
		return (xr.xr_intf == NULL ? ENXIO : EIO);
	}
	xenstore_requests++;
	/* Read once: a new value is for the next request. */
	xr.xr_timeout = xen_tunable(XEN_XENSTORE_TIMEOUT);
	xr.xr_deadline = ticks + (int)xr.xr_timeout * hz;
	if (++xr.xr_last == 0)
		xr.xr_last = 1;
	head.req_id = xr.xr_expect = xr.xr_last;
	error = ring_send(&head, pieces, n);
	while (error == 0 && xr.xr_expect != 0)
		error = ring_wait();
	xr.xr_expect = 0;
	mtx_unlock(&xr.xr_mtx);
	if (error == ETIMEDOUT)
		xenstore_raise_doubt();
	if (error != 0)
		return (error);
	if (xr.xr_type == type) {
		*reply = xr.xr_reply;
		*len = xr.xr_len;
		return (0);
	}
	error = xr.xr_type == XS_ERROR ? xenstore_errno(xr.xr_reply) : EIO;
	return (error == EIO ? ring_failed(type, pieces, n) : error);
}

int
xenstore_ring_init(device_t dev, xenstore_event_t *event)
{
	struct xen_evtchn_params params = {
		.xep_name = "xenstore",
		.xep_type = INTR_TYPE_MISC,
		.xep_cpu = -1,
		.xep_handler = ring_intr,
	};
	uint64_t port, pfn;
	int error;

	xr.xr_dev = dev;
	xr.xr_event = event;
	error = xen_get_param(HVM_PARAM_STORE_PFN, &pfn);
	if (error == 0)
		error = xen_get_param(HVM_PARAM_STORE_EVTCHN, &port);
	if (error != 0 || pfn == 0 || port == 0) {
		device_printf(dev, "the toolstack gave no xenstore\n");
		return (ENXIO);
	}
	xr.xr_intf = pmap_mapdev_attr(ptoa(pfn), PAGE_SIZE,
	    VM_MEMATTR_WRITE_BACK);
	if (xr.xr_intf == NULL)
		return (ENOMEM);
	/* Responses to an earlier user of the ring are dropped. */
	atomic_store_32(&xr.xr_intf->rsp_cons,
	    atomic_load_32(&xr.xr_intf->rsp_prod));
	xr.xr_dead = false;
	xr.xr_got = 0;
	xenstore_doubt_init();
	error = xen_evtchn_adopt((evtchn_port_t)port, &params, &xr.xr_evtchn);
	if (error != 0)
		device_printf(dev, "no event channel for xenstore (error %d)\n",
		    error);
	return (error);
}

void
xenstore_ring_fini(void)
{

	xen_evtchn_free(xr.xr_evtchn);
	xr.xr_evtchn = NULL;
	if (xr.xr_intf != NULL)
		pmap_unmapdev(__DEVOLATILE(void *, xr.xr_intf), PAGE_SIZE);
	xr.xr_intf = NULL;
}
