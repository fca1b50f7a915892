/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore's ring: messages that arrive in pieces, at any place of the ring, and while the driver
 * reads.
 *
 * xenstored is a function of the test, which runs while the requester sleeps, and between two loads or
 * stores of the driver (kpi.h).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/linker_set.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenstore_var.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/xenstore_page.h"

#define	HEAD	sizeof(struct xsd_sockmsg)
#define	TX	9

/* What the payload of a request begins with. */
static char asked[XENSTORE_PAYLOAD_MAX + 2] = "/a";

static const void *woken;
static u_int notified, fired, sleeps;

/* What xenstored does while the requester sleeps. */
static void (*xenstored)(void);

/* What it sends: messages behind each other, the first `first' bytes before the rest. */
static char stream[2 * (HEAD + XENSTORE_PAYLOAD_MAX)];
static size_t stream_len, stream_at, first;

/* A request that is longer than the ring, as xenstored has it. */
static char taken[HEAD + XENSTORE_PAYLOAD_MAX] __aligned(8);
static size_t taken_len;

/* The access of the driver before which the rest is sent; 0: none. */
static u_int at_access;

void
wakeup(const void *chan)
{

	CHECK(kpi_mutexes > 0, "a sleeper may miss it");
	woken = chan;
}

/* Nothing else than wakeup(9) and the end of its time ends a sleep. */
int
_sleep(const void *chan, struct lock_object *lock, int pri __unused,
    const char *wmesg __unused, sbintime_t sbt, sbintime_t pr __unused, int flags __unused)
{
	struct mtx *m = __containerof(lock, struct mtx, lock_object);

	CHECK(++sleeps < 10000, "sleeps for ever");
	mtx_unlock(m);
	woken = NULL;
	xenstored();
	CHECK(woken == chan || sbt != 0, "nobody wakes it");
	if (woken != chan)
		ticks += sbt / tick_sbt;
	mtx_lock(m);
	return (woken == chan ? 0 : EWOULDBLOCK);
}

void
xen_evtchn_notify(struct xen_evtchn *ec __unused)
{

	notified++;
}

static void
event(const char *path, const char *token)
{

	CHECK(strcmp(path, "/a/path") == 0 && strcmp(token, "token") == 0, "%s, %s", path, token);
	fired++;
}

/* A ring whose indices begin here. */
static void
begin(uint32_t index)
{

	memset(&xs_page, 0, sizeof(xs_page));
	xs_page.req_prod = xs_page.req_cons = xs_page.rsp_prod = xs_page.rsp_cons = index;
	notified = fired = sleeps = at_access = 0;
	stream_len = stream_at = 0;
	kpi_lines = 0;
	kpi_quiet = true;
	CHECK(xenstore_ring_init(kpi_device(), event) == 0 && kpi_lines == 0, "no ring: %s", kpi_line);
}

static void
end(void)
{

	xenstore_ring_fini();
	CHECK(!xs_is_left(), "the page or the channel is left");
}

static void
add(uint32_t type, uint32_t id, const void *body, size_t len)
{
	struct xsd_sockmsg head = { .type = type, .req_id = id, .len = len };

	memcpy(stream + stream_len, &head, sizeof(head));
	memcpy(stream + stream_len + sizeof(head), body, len);
	stream_len += sizeof(head) + len;
}

/* The number of the request, all of which is there, and which xenstored takes. */
static uint32_t
request(void)
{
	char msg[XENSTORE_RING_SIZE] __aligned(8);
	const struct xsd_sockmsg *head = (const struct xsd_sockmsg *)msg;
	uint32_t n = xs_page.req_prod - xs_page.req_cons;
	u_int i;

	CHECK(n >= HEAD && n <= sizeof(msg), "%u bytes", n);
	for (i = 0; i < n; i++)
		msg[i] = xs_page.req[MASK_XENSTORE_IDX(xs_page.req_cons + i)];
	xs_page.req_cons = xs_page.req_prod;
	CHECK(head->type == XS_READ && head->tx_id == TX && head->req_id != 0 &&
	    head->len == n - HEAD, "type %u, tx %u, %u bytes of %lu", head->type, head->tx_id,
	    head->len, n - HEAD);
	for (i = HEAD; i < n; i++)
		CHECK(msg[i] == asked[i - HEAD], "byte %lu", i - HEAD);
	return (head->req_id);
}

/* Send what comes next, up to so many bytes of the stream, as far as there is room. */
static void
send(size_t to)
{

	while (stream_at < to && xs_page.rsp_prod - xs_page.rsp_cons < XENSTORE_RING_SIZE)
		xs_page.rsp[MASK_XENSTORE_IDX(xs_page.rsp_prod++)] = stream[stream_at++];
}

static void
send_rest(void)
{

	if (at_access != 0 && --at_access == 0)
		send(stream_len);
}

static void
interrupt(void)
{

	kpi_access_hook = send_rest;
	xs_intr(NULL);
	kpi_access_hook = NULL;
}

/* The answer is "value", with an event before and behind it. */
static void
answer_in_two(void)
{
	uint32_t id = request();

	add(XS_WATCH_EVENT, 0, "/a/path\0token", 14);
	add(XS_READ, id, "value", 5);
	add(XS_WATCH_EVENT, 0, "/a/path\0token", 14);
	send(first);
	interrupt();
	send(stream_len);
	interrupt();
}

static void
answer_by_bytes(void)
{

	if (stream_len == 0)
		add(XS_READ, request(), "value", 5);
	send(stream_at + 1);
	interrupt();
}

static void
answer_of_full_length(void)
{
	static char body[XENSTORE_PAYLOAD_MAX];
	u_int i;

	if (stream_len == 0) {
		for (i = 0; i < sizeof(body); i++)
			body[i] = i * 7 + i / 256;
		add(XS_READ, request(), body, sizeof(body));
	}
	send(stream_len);
	interrupt();
}

static int
talk(const char **reply, size_t *len)
{
	const struct xenstore_piece piece = { asked, 3 };

	return (xenstore_ring_talk(XS_READ, TX, &piece, 1, reply, len));
}

static void
talk_of_value(uint32_t index)
{
	const char *reply;
	size_t len;
	int error;

	error = talk(&reply, &len);
	CHECK(error == 0 && len == 5 && strcmp(reply, "value") == 0,
	    "index %u, first %zu, error %d", index, first, error);
}

/* A request that is short, as most are, is one event for xenstore. */
static void
short_request_is_one_event(const void *arg __unused)
{
	const struct xenstore_piece pieces[] = { { asked, 1 }, { asked + 1, 0 } };
	struct xenstore_piece both[2];
	const char *reply;
	size_t len, most;
	u_int before;

	xenstored = answer_in_two;
	first = 0;
	for (most = 3; most < 300; most++)
		asked[most] = most;
	for (most = 0; most < 300; most += most >= 230 && most < 250 ? 1 : 10) {
		begin(0);
		memcpy(both, pieces, sizeof(both));
		both[1].xsp_len = most;
		before = notified;
		CHECK(xenstore_ring_talk(XS_READ, TX, both, 2, &reply, &len) == 0, "%zu bytes", most);
		CHECK((notified - before == 1) == (HEAD + 1 + most <= 256), "%zu bytes: %u events",
		    most, notified - before);
		end();
	}
}

static const uint32_t indices[] = {
	0, XENSTORE_RING_SIZE - 1, XENSTORE_RING_SIZE - HEAD, XENSTORE_RING_SIZE - HEAD - 3,
	UINT32_MAX - HEAD - 20, UINT32_MAX
};

static void
messages_in_two_pieces(const void *arg __unused)
{
	u_int i;

	xenstored = answer_in_two;
	for (i = 0; i < nitems(indices); i++) {
		for (first = 0; first <= 3 * HEAD + 33; first++) {
			begin(indices[i]);
			talk_of_value(indices[i]);
			CHECK(fired == 2, "%u events", fired);
			end();
		}
	}
}

static void
messages_byte_by_byte(const void *arg __unused)
{
	u_int i;

	xenstored = answer_by_bytes;
	for (i = 0; i < nitems(indices); i++) {
		begin(indices[i]);
		talk_of_value(indices[i]);
		CHECK(sleeps == HEAD + 5, "%u", sleeps);
		end();
	}
}

/* What was looked at has more when it is looked at again. */
static void
rest_arrives_at_any_access(const void *arg __unused)
{
	u_int access;
	bool reached;

	xenstored = answer_in_two;
	for (first = 0; first <= 3 * HEAD + 33; first++) {
		for (access = 1, reached = true; reached; access++) {
			begin(XENSTORE_RING_SIZE - HEAD);
			at_access = access;
			talk_of_value(access);
			reached = at_access == 0;
			CHECK(fired == 2, "first %zu, access %u: %u events", first, access, fired);
			end();
		}
	}
}

static void
message_longer_than_the_ring(const void *arg __unused)
{
	const char *reply;
	size_t i, len;
	u_int before;

	xenstored = answer_of_full_length;
	begin(XENSTORE_RING_SIZE - 5);
	before = notified;
	CHECK(talk(&reply, &len) == 0 && len == XENSTORE_PAYLOAD_MAX, "no answer");
	for (i = 0; i < len; i++)
		CHECK(reply[i] == (char)(i * 7 + i / 256), "byte %zu", i);
	/* The request, and each time that the ring was full. */
	CHECK(notified - before == 1 + XENSTORE_PAYLOAD_MAX / XENSTORE_RING_SIZE, "%u", notified);
	end();
}

/* Takes what there is of a request, and answers when that was all. */
static void
take_a_ring(void)
{

	while (xs_page.req_cons != xs_page.req_prod)
		taken[taken_len++ % sizeof(taken)] = xs_page.req[MASK_XENSTORE_IDX(xs_page.req_cons++)];
	if (taken_len == sizeof(taken)) {
		add(XS_WRITE, ((struct xsd_sockmsg *)taken)->req_id, "OK", 3);
		send(stream_len);
	}
	interrupt();
}

static void
request_longer_than_the_ring(const void *arg __unused)
{
	static char body[XENSTORE_PAYLOAD_MAX];
	const struct xenstore_piece piece = { body, sizeof(body) };
	const char *reply;
	size_t len;
	u_int i;

	for (i = 0; i < sizeof(body); i++)
		body[i] = i * 7 + i / 256;
	xenstored = take_a_ring;
	for (i = 0; i < nitems(indices); i++) {
		begin(indices[i]);
		taken_len = 0;
		CHECK(xenstore_ring_talk(XS_WRITE, 0, &piece, 1, &reply, &len) == 0, "index %u",
		    indices[i]);
		CHECK(taken_len == sizeof(taken) && memcmp(taken + HEAD, body, sizeof(body)) == 0,
		    "index %u: %zu bytes", indices[i], taken_len);
		end();
	}
}

/* An answer that never comes: the time of the request ends the wait, and what comes late is dropped. */
static void
answer_of_nothing(void)
{
}

static void
request_without_answer_times_out(const void *arg __unused)
{
	int *timeout = &xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value, before = *timeout;
	int began = ticks;
	const char *reply;
	size_t len;

	*timeout = 5;
	xenstored = answer_of_nothing;
	begin(0);
	CHECK(talk(&reply, &len) == ETIMEDOUT, "it has an answer");
	CHECK(ticks - began == 5 * hz, "%d ticks", ticks - began);
	*timeout = before;
	end();
}

/* What comes after its request has timed out: dropped; a transaction that it began is to be ended. */
static void
late_answers_are_told_apart(const void *arg __unused)
{
	int *timeout = &xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value, before = *timeout;
	uint64_t late = xenstore_late;
	const char *reply;
	size_t len;

	*timeout = 5;
	xenstored = answer_of_nothing;
	begin(0);
	CHECK(!xenstore_doubt(), "a doubt without a request");
	CHECK(talk(&reply, &len) == ETIMEDOUT, "it has an answer");
	CHECK(xenstore_doubt() && !xenstore_doubt(), "no doubt, or for ever");
	add(XS_READ, request(), "7", 2);
	add(XS_TRANSACTION_START, 77, "4294967295", 11);
	add(XS_TRANSACTION_START, 77, "4294967296", 11);
	add(XS_TRANSACTION_START, 77, "0", 2);
	add(XS_TRANSACTION_START, 77, "12", 2);
	send(stream_len);
	interrupt();
	CHECK(xenstore_late - late == 5, "%ju late", (uintmax_t)(xenstore_late - late));
	CHECK(xenstore_orphan() == 12 && xenstore_orphan() == UINT32_MAX &&
	    xenstore_orphan() == 0, "orphans");
	*timeout = before;
	xenstored = answer_in_two;
	stream_len = stream_at = fired = 0;
	talk_of_value(0);
	CHECK(fired == 2, "%u events", fired);
	end();
}

static uint32_t late_id;

static void
answer_of_nothing_yet(void)
{
	late_id = request();
}

/* The answer to the request before this one, and then its own. */
static void
answer_late_and_in_time(void)
{
	uint32_t id = request();

	add(XS_READ, late_id, "late", 5);
	add(XS_READ, id, "value", 5);
	send(stream_len);
	interrupt();
}

/* Each request has another number: the answer to one is none to the next. */
static void
late_answer_is_no_answer(const void *arg __unused)
{
	int *timeout = &xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value, before = *timeout;
	const char *reply;
	size_t len;

	*timeout = 5;
	xenstored = answer_of_nothing_yet;
	begin(0);
	CHECK(talk(&reply, &len) == ETIMEDOUT, "it has an answer");
	xs_page.req_cons = xs_page.req_prod;
	xenstored = answer_late_and_in_time;
	stream_len = stream_at = 0;
	talk_of_value(0);
	*timeout = before;
	end();
}

/* Of a request that is read in part only the rest can't be sent later. */
static void
take_once(void)
{

	if (taken_len++ == 0) {
		xs_page.req_cons = xs_page.req_prod;
		interrupt();
	}
}

static void
request_is_read_in_part(const void *arg __unused)
{
	static char body[XENSTORE_PAYLOAD_MAX];
	const struct xenstore_piece piece = { body, sizeof(body) };
	int *timeout = &xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value, before = *timeout;
	const char *reply;
	uint32_t prod;
	size_t len;

	*timeout = 5;
	taken_len = 0;
	xenstored = take_once;
	begin(0);
	CHECK(xenstore_ring_talk(XS_WRITE, 0, &piece, 1, &reply, &len) == EIO, "it was read");
	prod = xs_page.req_prod;
	CHECK(talk(&reply, &len) == EIO && xs_page.req_prod == prod, "a request behind a part of one");
	*timeout = before;
	end();
}

static uint32_t answer_type;
static const char *answer_text;

static void
answer_of_type(void)
{

	add(answer_type, request(), answer_text, strlen(answer_text) + 1);
	send(stream_len);
	interrupt();
}

static void
errors_are_numbers(const void *arg __unused)
{
	static const struct {
		uint32_t	 type;
		const char	*text;
		int		 error;
		bool		 doubt;
	} answers[] = {
		{ XS_ERROR, "ENOENT", ENOENT, false },
		{ XS_ERROR, "EACCES", EACCES, false },
		{ XS_ERROR, "EISCONN", EISCONN, false },
		{ XS_ERROR, "EUNHEARDOF", EINVAL, false },
		/* What became of these requests is unknown. */
		{ XS_ERROR, "EIO", ETIMEDOUT, true },
		{ XS_WRITE, "OK", ETIMEDOUT, true },
		{ XS_READ, "value", 0, false },
	};
	uint64_t failed = xenstore_failed;
	const char *reply;
	size_t len;
	u_int i;
	int error;

	xenstored = answer_of_type;
	begin(0);
	for (i = 0; i < nitems(answers); i++) {
		stream_len = stream_at = 0;
		answer_type = answers[i].type;
		answer_text = answers[i].text;
		error = talk(&reply, &len);
		CHECK(error == answers[i].error, "%s: error %d", answer_text, error);
		CHECK(xenstore_doubt() == answers[i].doubt, "%s", answer_text);
	}
	CHECK(xenstore_failed - failed == 2, "%ju", (uintmax_t)(xenstore_failed - failed));
	end();
}

static void
events_are_two_strings(const void *arg __unused)
{

	begin(0);
	add(XS_WATCH_EVENT, 0, "/a/path\0token", 13);
	add(XS_WATCH_EVENT, 0, "/a/path", 7);
	add(XS_WATCH_EVENT, 0, "/a/path", 8);
	add(XS_WATCH_EVENT, 0, "", 0);
	send(stream_len);
	interrupt();
	CHECK(fired == 0, "%u events", fired);
	add(XS_WATCH_EVENT, 0, "/a/path\0token\0more", 18);
	send(stream_len);
	interrupt();
	CHECK(fired == 1, "%u events", fired);
	end();
}

static void
answer_too_long(void)
{
	struct xsd_sockmsg head = { .type = XS_READ, .len = XENSTORE_PAYLOAD_MAX + 1 };

	head.req_id = request();
	memcpy(stream, &head, sizeof(head));
	stream_len = sizeof(head);
	send(stream_len);
	interrupt();
}

static void
answer_beyond_the_ring(void)
{

	xs_page.rsp_prod = xs_page.rsp_cons + XENSTORE_RING_SIZE + 1;
	interrupt();
}

static void
invalid_messages_end_the_ring(const void *arg __unused)
{
	static void (*const peers[])(void) = { answer_too_long, answer_beyond_the_ring };
	uint64_t requests;
	const char *reply;
	uint32_t cons, prod;
	size_t len;
	u_int i;

	for (i = 0; i < nitems(peers); i++) {
		xenstored = peers[i];
		begin(0);
		cons = xs_page.rsp_cons;
		CHECK(talk(&reply, &len) == EIO, "peer %u", i);
		CHECK(xs_page.rsp_cons - cons == (i == 0 ? HEAD : 0), "peer %u: more was read", i);
		/* Nothing more is written to it. */
		prod = xs_page.req_prod;
		requests = xenstore_requests;
		CHECK(talk(&reply, &len) == EIO && xs_page.req_prod == prod &&
		    xenstore_requests == requests, "peer %u: another request", i);
		end();
		CHECK(talk(&reply, &len) == ENXIO, "peer %u: no ring", i);
	}
}

static void
answer_after_a_new_timeout(void)
{

	if (sleeps == 1) {
		xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value = 5;
		ticks += 1000 * hz;
		interrupt();
	} else
		answer_in_two();
}

/* Of a request that waits for ever. */
static void
timeout_is_that_of_the_request(const void *arg __unused)
{
	int *timeout = &xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value, before = *timeout;

	*timeout = 0;
	first = 0;
	xenstored = answer_after_a_new_timeout;
	begin(0);
	talk_of_value(0);
	*timeout = before;
	end();
}

static void
answer_behind_others(void)
{

	CHECK(xs_page.req_prod == HEAD + 3 && notified == 1, "%u bytes, %u events", xs_page.req_prod,
	    notified);
	xs_page.req_cons = 0;
	answer_in_two();
}

/* What there is no room for is not begun. */
static void
look_at_a_full_ring(void)
{

	CHECK(xs_page.req_prod == 0 && notified == 0, "a part of it is there");
	if (sleeps < 3)
		interrupt();
	else if (sleeps == 3) {
		/* As many bytes as it has. */
		xs_page.req_cons = xs_page.req_prod + (uint32_t)HEAD + 3 - XENSTORE_RING_SIZE;
		xenstored = answer_behind_others;
		interrupt();
	}
}

static void
look_at_a_ring_that_stays_full(void)
{

	CHECK(xs_page.req_prod == 0 && notified == 0, "a part of it is there");
	xs_page.req_cons = (uint32_t)HEAD + 2 - XENSTORE_RING_SIZE;
	if (sleeps < 3)
		interrupt();
}

/* A request that fits into the ring waits for room for all of it, and has only its time for that. */
static void
request_waits_for_room(const void *arg __unused)
{
	int *timeout = &xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value, before = *timeout;
	const char *reply;
	size_t len;
	int began;

	*timeout = 5;
	first = 0;
	begin(0);
	xs_page.req_cons = -XENSTORE_RING_SIZE;
	xenstored = look_at_a_full_ring;
	talk_of_value(0);
	end();
	begin(0);
	xs_page.req_cons = -XENSTORE_RING_SIZE;
	xenstored = look_at_a_ring_that_stays_full;
	began = ticks;
	CHECK(talk(&reply, &len) == ETIMEDOUT && ticks - began == 5 * hz, "it is there");
	CHECK(notified == 0 && xs_page.req_prod == 0, "a part of it is there");
	CHECK(xenstore_doubt() && kpi_lines == 0, "%s", kpi_line);
	/* It did no harm. */
	xs_page.req_cons = 0;
	xenstored = answer_in_two;
	stream_len = stream_at = 0;
	talk_of_value(0);
	*timeout = before;
	end();
}

/* What is impossible, or would be too long, is not sent. */
static void
impossible_requests(const void *arg __unused)
{
	struct xenstore_piece piece = { asked, XENSTORE_PAYLOAD_MAX + 1 };
	uint64_t requests = xenstore_requests;
	const char *reply;
	size_t len;

	begin(0);
	CHECK(xenstore_ring_talk(XS_READ, TX, &piece, 1, &reply, &len) == E2BIG &&
	    xenstore_requests == requests && xs_page.req_prod == 0 && notified == 0, "it is sent");
	xs_page.req_cons = -XENSTORE_RING_SIZE - 1;
	CHECK(talk(&reply, &len) == EIO && xs_page.req_prod == 0 && notified == 0, "it is sent");
	CHECK(kpi_lines == 1 && strstr(kpi_line, "invalid request index (1025)") != NULL, "%s",
	    kpi_line);
	CHECK(xenstore_requests == requests + 1, "not counted");
	CHECK(talk(&reply, &len) == EIO && kpi_lines == 1, "said twice: %s", kpi_line);
	end();
}

/* What is left of an earlier ring is none of the next one's. */
static void
ring_begins_anew(const void *arg __unused)
{
	const char *reply;
	size_t len;
	u_int i;

	for (i = 0; i < 2 * HEAD; i++) {
		begin(0);
		/* A part of a message, and then an index that ends the ring. */
		add(XS_WATCH_EVENT, 0, "/a/path\0token", 14);
		send(i);
		interrupt();
		xenstored = answer_beyond_the_ring;
		CHECK(talk(&reply, &len) == EIO, "an answer");
		CHECK(kpi_lines == 1 && strstr(kpi_line, "invalid response index (1025)") != NULL, "%s",
		    kpi_line);
		end();
		/* And what was sent to who had it before. */
		memset(&xs_page, 0, sizeof(xs_page));
		xs_page.rsp_prod = 100;
		stream_len = stream_at = fired = first = 0;
		CHECK(xenstore_ring_init(kpi_device(), event) == 0, "no ring");
		xenstored = answer_in_two;
		talk_of_value(0);
		CHECK(fired == 2 && kpi_lines == 1, "%u events: %s", fired, kpi_line);
		end();
	}
}

/* Without one of the page and the channel there is neither. */
static void
toolstack_gave_no_xenstore(const void *arg __unused)
{
	static int *const missing[] = { &xs_no_page, &xs_no_port };
	static const int errors[] = { ENXIO, -1 };
	const char *reply;
	size_t len;
	u_int e, i;

	kpi_quiet = true;
	for (i = 0; i < nitems(missing); i++)
		for (e = 0; e < nitems(errors); e++) {
			kpi_lines = 0;
			*missing[i] = errors[e];
			CHECK(xenstore_ring_init(kpi_device(), event) == ENXIO && kpi_lines == 1,
			    "a ring: %s", kpi_line);
			*missing[i] = 0;
			CHECK(talk(&reply, &len) == ENXIO, "an answer");
			end();
		}
	kpi_lines = 0;
	xs_no_channel = ENOSPC;
	CHECK(xenstore_ring_init(kpi_device(), event) == ENOSPC && kpi_lines == 1 &&
	    strstr(kpi_line, "(error 28)") != NULL, "a channel: %s", kpi_line);
	xs_no_channel = 0;
	end();
}

/* The first failures are said, with what was asked; each answer and event is counted. */
static void
failures_are_said(const void *arg __unused)
{
	uint64_t events = xenstore_events, requests = xenstore_requests;
	const char *reply;
	size_t len;
	int i;

	begin(0);
	xenstored = answer_of_type;
	answer_type = XS_ERROR;
	answer_text = "EIO";
	for (i = 1; i <= 20; i++) {
		stream_len = stream_at = 0;
		CHECK(talk(&reply, &len) == ETIMEDOUT, "an answer");
		CHECK(kpi_lines == MIN(i, 10), "%d lines", kpi_lines);
	}
	CHECK(strcmp(kpi_line, "xenstore failed a request of type 2, /a: answer 16, EIO\n") == 0, "%s",
	    kpi_line);
	xenstored = answer_in_two;
	stream_len = stream_at = first = 0;
	talk_of_value(0);
	CHECK(xenstore_events == events + 2 && xenstore_requests == requests + 21,
	    "%lu events, %lu requests", xenstore_events - events, xenstore_requests - requests);
	end();
}

/* As many transactions as can be remembered, the last first. */
static void
orphans_are_ended(const void *arg __unused)
{
	uint32_t i;

	begin(0);
	for (i = 1; i <= 100; i++)
		xenstore_abandon(i);
	for (i = 16; i > 0; i--)
		CHECK(xenstore_orphan() == i, "not %u", i);
	CHECK(xenstore_orphan() == 0, "one more");
	/* They are the ring's, and so is the doubt. */
	xenstore_abandon(1);
	xenstore_raise_doubt();
	end();
	begin(0);
	CHECK(xenstore_orphan() == 0 && !xenstore_doubt(), "of another ring");
	end();
}

static const struct hosted_test tests[] = {
	{ "messages_in_two_pieces", "An answer between events, at each place of the ring",
	    messages_in_two_pieces, NULL },
	{ "messages_byte_by_byte", "An event for each byte", messages_byte_by_byte, NULL },
	{ "rest_arrives_at_any_access", "While the first piece is read",
	    rest_arrives_at_any_access, NULL },
	{ "message_longer_than_the_ring", "The longest answer", message_longer_than_the_ring,
	    NULL },
	{ "request_longer_than_the_ring", "The longest request", request_longer_than_the_ring,
	    NULL },
	{ "short_request_is_one_event", "Up to 256 bytes", short_request_is_one_event, NULL },
	{ "request_without_answer_times_out", "After the time of the tunable",
	    request_without_answer_times_out, NULL },
	{ "late_answers_are_told_apart", "And a transaction that was begun too late",
	    late_answers_are_told_apart, NULL },
	{ "late_answer_is_no_answer", "To the request after it", late_answer_is_no_answer, NULL },
	{ "request_is_read_in_part", "And the ring is dead", request_is_read_in_part, NULL },
	{ "errors_are_numbers", "Names of errors, and answers to something else", errors_are_numbers,
	    NULL },
	{ "events_are_two_strings", "Events that are not", events_are_two_strings, NULL },
	{ "invalid_messages_end_the_ring", "Length and index", invalid_messages_end_the_ring,
	    NULL },
	{ "timeout_is_that_of_the_request", "The tunable changes meanwhile",
	    timeout_is_that_of_the_request, NULL },
	{ "request_waits_for_room", "And is sent whole", request_waits_for_room, NULL },
	{ "impossible_requests", "Length and index", impossible_requests, NULL },
	{ "ring_begins_anew", "After half a message", ring_begins_anew, NULL },
	{ "toolstack_gave_no_xenstore", "Page and channel", toolstack_gave_no_xenstore, NULL },
	{ "failures_are_said", "The first ones", failures_are_said, NULL },
	{ "orphans_are_ended", "As many as there is room for", orphans_are_ended, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
