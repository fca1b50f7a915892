/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The states of a front end (xenbus_state.c), one step after the other.
 *
 * A test is the back end, the toolstack and the clock: xenstore is a few nodes, the front end's
 * task runs when it is due (settle(), seconds()), and the driver writes down what it is called for:
 * S setup, L live, s stop, q stop by request, R release, X lost, and (name) for a change.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/kobj.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>

#include <dev/xen/xen_front.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/xenstore_nodes.h"

#define	NODE	"device/vif/0"
#define	BACK	"/local/domain/0/backend/vif/1/0"
#define	OTHER	"/local/domain/0/backend/vif/1/1"
#define	LOG(text) do {							\
	CHECK(strcmp(fe.log, (text)) == 0, "the driver was called for: %s", fe.log); \
	fe.log[0] = '\0';						\
} while (0)
#define	WROTE(text) do {						\
	CHECK(strcmp(xsn_wrote, (text)) == 0, "states were written: %s", xsn_wrote); \
	CHECK(xsn_wrote[0] == '\0' || xsn_wrote[strlen(xsn_wrote) - 1] == '0' + fe.told, \
	    "the core was told of %d last", fe.told);			\
	xsn_wrote[0] = '\0';						\
} while (0)

volatile int ticks;
int hz = 100;
sbintime_t tick_sbt = SBT_1S / 100;

/* What device_t points to. */
struct _device {
	KOBJ_FIELDS;
};

struct timed {
	struct timeout_task *task;
	bool	now, armed;
	int	due;
};

static struct {
	struct xenbus_child xb;
	struct _device dev;
	struct kobj_ops ops;
	struct timeout_task scan;
	struct timed timed[3];
	/* The driver. */
	char	log[256];
	int	setup_error, live_error, stop_error;
	enum xenbus_state next;
	bool	unread;
	u_int	queues;
	int	told;	/* of its states, the core, last */
} fe;

/* Objects: each call looks for its method. */
static kobj_method_t no_method;

int
kobj_error_method(void)
{

	return (ENXIO);
}

kobj_method_t *
kobj_lookup_method(kobj_class_t cls, kobj_method_t **cep __unused, kobjop_desc_t desc)
{
	kobj_method_t *m;

	for (m = cls->methods; m->desc != NULL; m++)
		if (m->desc == desc)
			return (m);
	return (&desc->deflt);
}

void *
device_get_ivars(device_t dev)
{

	CHECK(dev == &fe.dev, "another device");
	return (&fe.xb);
}

/* Tasks. */

static struct timed *
timed_of(struct timeout_task *task)
{
	u_int i;

	for (i = 0; fe.timed[i].task != task; i++)
		CHECK(i < nitems(fe.timed), "another task");
	return (&fe.timed[i]);
}

int
taskqueue_enqueue_timeout(struct taskqueue *queue, struct timeout_task *task, int delay)
{
	struct timed *td = timed_of(task);

	CHECK(queue == (struct taskqueue *)&fe && delay >= 0, "in %d ticks", delay);
	if (delay == 0)
		td->now = true;
	else {
		td->armed = true;
		td->due = ticks + delay;
	}
	return (0);
}

int
taskqueue_cancel_timeout(struct taskqueue *queue __unused, struct timeout_task *task,
    u_int *pending __unused)
{
	struct timed *td = timed_of(task);

	td->now = td->armed = false;
	return (0);
}

void
taskqueue_drain_timeout(struct taskqueue *queue __unused, struct timeout_task *task __unused)
{
}

/* Whatever is due, and what follows it at once. */
static void
settle(void)
{
	u_int i, n = 0;
	bool any;

	do {
		any = false;
		for (i = 0; i < 2; i++) {
			struct timed *td = &fe.timed[i];

			if (!td->now && !(td->armed && td->due - ticks <= 0))
				continue;
			td->armed = td->armed && td->due - ticks > 0;
			td->now = false;
			any = true;
			CHECK(++n < 100, "it never rests");
			if (i == 0)
				xenbus_child_task(&fe.xb, 1);
			else
				xenbus_lose_task(&fe.xb, 1);
		}
	} while (any);
}

static void
pass(int n)
{

	while (n-- > 0) {
		ticks++;
		settle();
	}
}

static void
seconds(int n)
{

	pass(n * hz);
}

/* xenstore: its nodes are model/xenstore_nodes.c. */

int
xenstore_watch_add(struct xenstore_watch *w, const char *dir, const char *name __unused)
{

	CHECK(w->xw_token == 0, "watched twice");
	w->xw_path = __DECONST(char *, strcmp(dir, BACK) == 0 ? BACK : OTHER);
	w->xw_token = 7;
	return (0);
}

void
xenstore_watch_remove(struct xenstore_watch *w)
{

	w->xw_token = 0;
}

void
xen_front_told(const char *name, enum xenbus_state state)
{

	CHECK(strcmp(name, NODE) == 0 && state == fe.xb.xb_state, "%s: %u", name, state);
	/* After xenstore. */
	CHECK(strtoul(xsn_node(NODE, "state", false), NULL, 10) == state, "%u is not written", state);
	fe.told = state;
}

/* Something in the back end's directory changes, and the watch says so. */
static void
changes(const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s%s%s", BACK, name[0] != '\0' ? "/" : "", name);
	if (fe.xb.xb_watch.xw_token != 0)
		fe.xb.xb_watch.xw_changed(&fe.xb.xb_watch, path);
	settle();
}

/* The back end goes to a state; Unknown: its directory is gone. */
static void
back_is(enum xenbus_state state)
{

	if (state == XenbusStateUnknown)
		xsn_clear(BACK, "state");
	else
		xsn_set(BACK, "state", "%d", state);
	changes("state");
}

static void
online(bool is)
{

	xsn_set(BACK, "online", "%d", is);
	changes("online");
}

/* The driver. */

static void
said(const char *what)
{

	strlcat(fe.log, what, sizeof(fe.log));
}

/* It reads something, which may have no answer: an earlier one is none of this. */
static void
fe_reads(void)
{

	CHECK(!fe.xb.xb_unread, "what was not read before");
	fe.xb.xb_unread = fe.unread;
}

static int
fe_setup(device_t dev, enum xenbus_state *next)
{

	CHECK(*next == XenbusStateInitialised && !fe.xb.xb_setup, "set up twice");
	said("S");
	if (fe.queues != 0)
		CHECK(xenbus_queues(dev, fe.queues) == fe.queues, "fewer queues");
	if (fe.next != 0)
		*next = fe.next;
	fe_reads();
	return (fe.setup_error);
}

static int
fe_live(device_t dev __unused)
{

	said("L");
	fe_reads();
	return (fe.live_error);
}

static int
fe_stop(device_t dev __unused, bool gone)
{

	said(gone ? "s" : "q");
	return (fe.stop_error);
}

static void
fe_release(device_t dev __unused)
{

	said("R");
}

static void
fe_lost(device_t dev __unused)
{

	said("X");
}

static void
fe_changed(device_t dev __unused, const char *name)
{

	said("(");
	said(name);
	said(")");
	fe_reads();
}

static device_method_t methods[] = {
	DEVMETHOD(xenfront_setup, fe_setup),
	DEVMETHOD(xenfront_live, fe_live),
	DEVMETHOD(xenfront_stop, fe_stop),
	DEVMETHOD(xenfront_release, fe_release),
	DEVMETHOD(xenfront_lost, fe_lost),
	DEVMETHOD(xenfront_otherend_changed, fe_changed),
	DEVMETHOD_END
};

static struct kobj_class fe_class = {
	.name = "front",
	.methods = methods,
};

/* A front end whose back end is in a state, and whose driver has just attached. */
static void
begin(enum xenbus_state state)
{
	u_int i;

	memset(&fe, 0, sizeof(fe));
	xenbus_delayed = xenbus_putoffs = xenbus_retries = 0;
	xsn_begin();
	kpi_quiet = true;
	ticks = 1000;
	fe.ops.cls = &fe_class;
	for (i = 0; i < nitems(fe.ops.cache); i++)
		fe.ops.cache[i] = &no_method;
	fe.dev.ops = &fe.ops;
	fe.xb.xb_dev = fe.xb.xb_bus = &fe.dev;
	fe.xb.xb_type = __DECONST(char *, "vif");
	fe.xb.xb_node = __DECONST(char *, NODE);
	fe.xb.xb_queue = fe.scan.q = (struct taskqueue *)&fe;
	fe.xb.xb_scan_task = &fe.scan;
	fe.timed[0].task = &fe.xb.xb_task;
	fe.timed[1].task = &fe.xb.xb_lose_task;
	fe.timed[2].task = &fe.scan;
	sx_init(&fe.xb.xb_sx, "front end");
	mtx_init(&fe.xb.xb_mtx, "front end", NULL, MTX_DEF);
	xsn_set(NODE, "backend-id", "0");
	xsn_set(NODE, "backend", BACK);
	xsn_set(NODE, "state", "1");
	xsn_set(BACK, "online", "1");
	xsn_set(BACK, "state", "%d", state);
	xenbus_begin(&fe.xb);
	settle();
}

static void
connect(void)
{

	back_is(XenbusStateInitWait);
	back_is(XenbusStateConnected);
	CHECK(fe.xb.xb_phase == XB_LIVE, "phase %u", fe.xb.xb_phase);
	fe.log[0] = xsn_wrote[0] = '\0';
}

/* One that is connected, and has been for a while. */
static void
begin_live(void)
{

	begin(XenbusStateInitialising);
	connect();
	seconds(2);
}

static void
end(void)
{

	kpi_pause = settle;
	back_is(XenbusStateClosed);
	xenbus_leave(&fe.dev);
	kpi_pause = NULL;
	CHECK(fe.xb.xb_phase == XB_IDLE && !fe.xb.xb_setup, "phase %u", fe.xb.xb_phase);
	xenbus_forget(&fe.xb);
	CHECK(fe.xb.xb_more_queues == 0, "%u queues are kept", fe.xb.xb_more_queues);
	settle();
	CHECK(!fe.timed[0].armed && !fe.timed[1].armed && fe.xb.xb_watch.xw_token == 0, "left over");
	sx_destroy(&fe.xb.xb_sx);
	mtx_destroy(&fe.xb.xb_mtx);
	CHECK(kpi_mutexes == 0, "a mutex is held");
}

static void
connects_step_by_step(const void *arg __unused)
{

	begin(XenbusStateInitialising);
	WROTE("1");
	LOG("");
	back_is(XenbusStateInitWait);
	WROTE("3");
	LOG("S");
	/* What is seen twice is nothing new. */
	back_is(XenbusStateInitWait);
	back_is(XenbusStateInitialised);
	WROTE("");
	LOG("");
	back_is(XenbusStateConnected);
	WROTE("4");
	LOG("L");
	back_is(XenbusStateReconfiguring);
	back_is(XenbusStateReconfigured);
	back_is(XenbusStateConnected);
	WROTE("");
	LOG("");
	CHECK(fe.xb.xb_connects == 1 && fe.xb.xb_phase == XB_LIVE, "not live");
	end();
	/* A back end that goes anywhere else is left, whatever the driver says to that. */
	begin(XenbusStateInitWait);
	LOG("S");
	fe.stop_error = EBUSY;
	back_is(XenbusStateClosing);
	LOG("s");
	WROTE("1356");
	CHECK(strstr(kpi_line, "went to Closing instead of Connected") != NULL, "%s", kpi_line);
	fe.stop_error = 0;
	end();
	/* A protocol in which the front end is connected first. */
	begin(XenbusStateInitWait);
	fe.next = XenbusStateConnected;
	settle();
	end();
	begin(XenbusStateInitialising);
	fe.next = XenbusStateConnected;
	back_is(XenbusStateInitWait);
	WROTE("14");
	back_is(XenbusStateConnected);
	WROTE("");
	LOG("SL");
	end();
}

/* It has to see us closed before we begin again. */
static void
earlier_connection_is_ended(const void *arg __unused)
{
	static const enum xenbus_state states[] = { XenbusStateConnected, XenbusStateInitialised,
	    XenbusStateReconfiguring, XenbusStateReconfigured };
	u_int i;

	for (i = 0; i < nitems(states); i++) {
		begin(states[i]);
		WROTE("156");
		LOG("");
		seconds(1);
		back_is(XenbusStateClosed);
		seconds(1);
		WROTE("1");
		back_is(XenbusStateInitWait);
		WROTE("3");
		LOG("S");
		end();
	}
}

/* Rings are freed when the back end has let go of them, or has had the time for that. */
static void
rings_are_kept_until_the_back_end_has_closed(const void *arg __unused)
{
	static const struct {
		enum xenbus_state state;
		int	secs;
	} table[] = { { XenbusStateClosed, 0 }, { XenbusStateInitialising, 0 },
	    { XenbusStateInitWait, 2 }, { XenbusStateClosing, 5 }, { XenbusStateConnected, 5 },
	    { XenbusStateInitialised, 5 } };
	u_int i;
	int lines;

	for (i = 0; i < nitems(table); i++) {
		begin_live();
		xenbus_reset(&fe.dev);
		settle();
		WROTE("56");
		LOG("s");
		lines = kpi_lines;
		back_is(table[i].state);
		if (table[i].secs != 0) {
			pass(table[i].secs * hz - 1);
			LOG("");
			pass(1);
		}
		CHECK(strncmp(fe.log, "R", 1) == 0, "state %u: %s", table[i].state, fe.log);
		CHECK((kpi_lines != lines) == (table[i].secs == 5), "state %u: %s", table[i].state,
		    kpi_line);
		fe.log[0] = '\0';
		/* One that goes on as before has not closed, and nothing begins. */
		if (table[i].state == XenbusStateConnected || table[i].state == XenbusStateClosing) {
			seconds(10);
			WROTE("");
		}
		end();
	}
	/* One that has disappeared has nothing any more. */
	begin_live();
	xenbus_reset(&fe.dev);
	settle();
	LOG("s");
	back_is(XenbusStateUnknown);
	LOG("R");
	end();
}

/* A back end that closes by itself has failed; one that the toolstack ends asks. */
static void
closing_is_a_failure_or_a_request(const void *arg __unused)
{
	int lines;

	begin_live();
	back_is(XenbusStateClosing);
	WROTE("56");
	LOG("s");
	back_is(XenbusStateClosed);
	LOG("R");
	seconds(1);
	WROTE("1");
	back_is(XenbusStateInitWait);
	back_is(XenbusStateConnected);
	LOG("SL");
	CHECK(fe.xb.xb_connects == 2, "not connected again");
	xsn_wrote[0] = '\0';
	seconds(2);
	/* In use: asked again after five seconds, or when the driver says so. */
	fe.stop_error = EBUSY;
	online(false);
	back_is(XenbusStateClosing);
	LOG("q");
	CHECK(fe.xb.xb_phase == XB_LIVE && strstr(kpi_line, "the device is in use") != NULL, "%s",
	    kpi_line);
	lines = kpi_lines;
	WROTE("");
	changes("state");
	LOG("");
	pass(5 * hz - 1);
	LOG("");
	pass(1);
	LOG("q");
	xenbus_recheck(&fe.dev);
	settle();
	LOG("q");
	CHECK(kpi_lines == lines, "said again: %s", kpi_line);
	fe.stop_error = 0;
	xenbus_recheck(&fe.dev);
	settle();
	LOG("q");
	WROTE("56");
	back_is(XenbusStateClosed);
	LOG("R");
	/* It stays, and is given up five seconds later. */
	pass(5 * hz - 1);
	LOG("");
	pass(1);
	LOG("X");
	WROTE("");
	end();
	/* Without a word of the toolstack, it is to end. */
	begin_live();
	xsn_clear(BACK, "online");
	back_is(XenbusStateClosing);
	LOG("q");
	end();
	/* It is not, if its directories go. */
	begin_live();
	online(false);
	back_is(XenbusStateClosing);
	back_is(XenbusStateClosed);
	LOG("qR");
	end();
}

/* A state that is missing for less than two seconds is no reason to close. */
static void
back_end_that_disappears(const void *arg __unused)
{

	begin_live();
	back_is(XenbusStateUnknown);
	seconds(1);
	back_is(XenbusStateConnected);
	CHECK(strstr(kpi_line, "is there again") != NULL, "%s", kpi_line);
	seconds(10);
	LOG("");
	/* What is to be done meanwhile is done when it is there. */
	back_is(XenbusStateUnknown);
	xenbus_change(fe.xb.xb_dev);
	settle();
	LOG("");
	seconds(1);
	back_is(XenbusStateConnected);
	LOG("()");
	seconds(10);
	LOG("");
	back_is(XenbusStateUnknown);
	pass(2 * hz - 1);
	LOG("");
	seconds(1);
	LOG("sR");
	WROTE("56");
	/* Another one comes. */
	back_is(XenbusStateInitWait);
	seconds(1);
	back_is(XenbusStateConnected);
	LOG("SL");
	end();
}

/* An error that may pass is tried again after 1, 2, 4 ... 32 seconds; both ends are said. */
static void
passing_errors_are_tried_again(const void *arg __unused)
{
	static const int errors[] = { ENOMEM, ENOSPC, EAGAIN, EBUSY, ETIMEDOUT };
	int i, lines, wait;
	u_int e;

	for (e = 0; e < nitems(errors); e++) {
		begin(XenbusStateInitialising);
		fe.setup_error = errors[e];
		lines = kpi_lines;
		back_is(XenbusStateInitWait);
		LOG("S");
		for (i = 0; i < 8; i++) {
			wait = MIN(1 << i, 32) * hz;
			/* Whatever else happens meanwhile. */
			changes("state");
			pass(wait - 1);
			LOG("");
			pass(1);
			LOG("S");
		}
		CHECK(kpi_lines == lines + 1, "%d lines", kpi_lines - lines);
		fe.setup_error = 0;
		seconds(32);
		LOG("S");
		WROTE("13");
		back_is(XenbusStateConnected);
		LOG("L");
		CHECK(kpi_lines == lines + 2 && strstr(kpi_line, "is set up after 10 attempts") != NULL,
		    "%d lines: %s", kpi_lines - lines, kpi_line);
		CHECK(xenbus_retries == 9 && xenbus_putoffs == 0 && fe.xb.xb_tries == 0,
		    "%lu retries, %lu steps put off", xenbus_retries, xenbus_putoffs);
		end();
	}
	/* What was not read is an error of this kind; what was made is undone. */
	begin(XenbusStateInitialising);
	fe.unread = true;
	back_is(XenbusStateInitWait);
	LOG("SsR");
	fe.unread = false;
	seconds(1);
	LOG("S");
	/* So it is with what is read later: the rings are made again. */
	fe.live_error = ENOMEM;
	back_is(XenbusStateConnected);
	LOG("Ls");
	WROTE("1356");
	back_is(XenbusStateClosed);
	LOG("R");
	/* It was the second attempt: it does not begin before two seconds have passed. */
	pass(2 * hz - 1);
	WROTE("");
	pass(1);
	WROTE("1");
	fe.live_error = 0;
	fe.unread = true;
	back_is(XenbusStateInitWait);
	LOG("SsR");
	fe.unread = false;
	seconds(4);
	LOG("S");
	back_is(XenbusStateConnected);
	CHECK(fe.xb.xb_phase == XB_LIVE, "phase %u: %s", fe.xb.xb_phase, fe.log);
	end();
}

/* An error that comes of a value without an answer is one that may pass, whichever it is. */
static void
errors_without_all_values_are_tried_again(const void *arg __unused)
{

	begin(XenbusStateInitialising);
	fe.setup_error = EOPNOTSUPP;
	fe.unread = true;
	back_is(XenbusStateInitWait);
	LOG("S");
	fe.setup_error = 0;
	fe.unread = false;
	seconds(1);
	LOG("S");
	WROTE("13");
	fe.live_error = EINVAL;
	fe.unread = true;
	back_is(XenbusStateConnected);
	LOG("Ls");
	WROTE("56");
	back_is(XenbusStateClosed);
	LOG("R");
	fe.live_error = 0;
	fe.unread = false;
	seconds(2);
	WROTE("1");
	back_is(XenbusStateInitWait);
	back_is(XenbusStateConnected);
	LOG("SL");
	end();
}

/* Another error closes the device, until its back end has begun anew. */
static void
failure_waits_for_another_back_end(const void *arg __unused)
{

	begin(XenbusStateInitialising);
	fe.setup_error = EINVAL;
	back_is(XenbusStateInitWait);
	LOG("S");
	WROTE("156");
	CHECK(strcmp(xsn_node("error", NODE "/error", false), "22 can't be set up") == 0, "%s",
	    xsn_node("error", NODE "/error", false));
	seconds(20);
	changes("state");
	LOG("");
	CHECK(strstr(kpi_line, "can't be set up (error 22); closing") != NULL, "%s", kpi_line);
	back_is(XenbusStateClosed);
	seconds(20);
	LOG("");
	WROTE("");
	fe.setup_error = 0;
	back_is(XenbusStateInitWait);
	back_is(XenbusStateConnected);
	LOG("SL");
	/* With users, these get errors. */
	xsn_wrote[0] = '\0';
	seconds(2);
	fe.live_error = EINVAL;
	xenbus_reset(&fe.dev);
	settle();
	back_is(XenbusStateClosed);
	seconds(1);
	back_is(XenbusStateInitWait);
	back_is(XenbusStateConnected);
	LOG("sRSLsX");
	WROTE("5613" "56");
	end();
}

/* Without an answer nothing is known: the step is taken a second later. */
static void
no_answer_is_no_state(const void *arg __unused)
{
	int lines;

	begin_live();
	xsn_no_answer = ETIMEDOUT;
	changes("state");
	seconds(3);
	xsn_no_answer = 0;
	/* Nothing else is asked of the driver for that. */
	seconds(3);
	LOG("");
	xsn_no_answer = ETIMEDOUT;
	back_is(XenbusStateClosing);
	seconds(10);
	LOG("");
	xsn_no_answer = 0;
	seconds(1);
	LOG("s");
	WROTE("56");
	/* While it closes, only its deadline counts. */
	xsn_no_answer = ETIMEDOUT;
	seconds(4);
	LOG("");
	seconds(1);
	LOG("R");
	xsn_no_answer = 0;
	end();
	/* A state that could not be written is written then. */
	begin(XenbusStateInitialising);
	WROTE("1");
	xsn_no_writing = EAGAIN;
	back_is(XenbusStateInitWait);
	LOG("S");
	WROTE("");
	CHECK(strstr(kpi_line, "state Initialised could not be written (error 35): trying again\n") !=
	    NULL, "%s", kpi_line);
	lines = kpi_lines;
	seconds(3);
	CHECK(kpi_lines == lines, "said again: %s", kpi_line);
	xsn_no_writing = 0;
	seconds(1);
	WROTE("3");
	seconds(3);
	WROTE("");
	end();
}

/* Changes are passed to a driver that is live: a few at once, and then one in a second. */
static void
changes_are_passed_on(const void *arg __unused)
{
	char name[XENBUS_NAMELEN + 1];
	int i;

	begin(XenbusStateInitialising);
	changes("mtu");
	LOG("");
	connect();
	seconds(60);
	changes("mtu");
	LOG("(mtu)");
	changes("");
	LOG("()");
	/* No name is as long as that. */
	memset(name, 'n', sizeof(name));
	name[XENBUS_NAMELEN] = '\0';
	changes(name);
	LOG("");
	name[XENBUS_NAMELEN - 1] = '\0';
	changes(name);
	CHECK(strlen(fe.log) == 2 + XENBUS_NAMELEN - 1, "%s", fe.log);
	fe.log[0] = '\0';
	changes("state");
	changes("online");
	LOG("");
	/* What could not be read is passed again. */
	fe.unread = true;
	changes("mtu");
	LOG("(mtu)");
	fe.unread = false;
	seconds(1);
	LOG("()");
	/* Steps without any are not counted. */
	seconds(60);
	for (i = 0; i < 20; i++) {
		xenbus_recheck(fe.xb.xb_dev);
		settle();
	}
	for (i = 0; i < 30; i++)
		changes("mtu");
	CHECK(strlen(fe.log) == 16 * 5 && xenbus_delayed > 0, "%s", fe.log);
	fe.log[0] = '\0';
	seconds(1);
	LOG("(mtu)");
	seconds(5);
	LOG("");
	end();
}

/* Another device of this number: nothing of the first one's is for it. */
static void
device_that_is_replaced(const void *arg __unused)
{

	begin_live();
	xsn_set(NODE, "state", "1");
	xenbus_reset(&fe.dev);
	settle();
	CHECK(fe.xb.xb_replaced && fe.timed[2].now, "the bus is not told");
	WROTE("");
	CHECK(strncmp(fe.log, "sX", 2) == 0 && strcmp(xsn_node(NODE, "state", false), "1") == 0, "%s",
	    fe.log);
	end();
}

/* A suspension took the back end away; it comes, or has failed after a minute. */
static void
suspended_without_a_back_end(const void *arg __unused)
{
	int round;

	for (round = 0; round < 2; round++) {
		begin_live();
		xenbus_hold();
		xsn_set(BACK, "state", "%d", XenbusStateInitialising);
		xsn_set(NODE, "state", "1");
		xenbus_begin_again(&fe.xb);
		xenbus_go_on();
		settle();
		LOG("sR");
		WROTE("1");
		pass(60 * hz - 1);
		LOG("");
		if (round == 0) {
			back_is(XenbusStateInitWait);
			back_is(XenbusStateConnected);
			LOG("SL");
			seconds(2);
			LOG("");
		} else {
			pass(1);
			LOG("X");
			back_is(XenbusStateInitWait);
			back_is(XenbusStateConnected);
			LOG("SL");
			CHECK(!fe.xb.xb_lost && !fe.xb.xb_missing, "lost");
		}
		end();
	}
}

/* Each look at the back end may be without an answer: none is taken for the last one's, or for no. */
static void
each_answer_may_be_missing(const void *arg __unused)
{

	/* It is not known whether the toolstack ends the device. */
	begin_live();
	xsn_set(BACK, "state", "%d", XenbusStateClosing);
	xsn_unanswered = 2;
	changes("state");
	LOG("");
	WROTE("");
	CHECK(fe.xb.xb_phase == XB_LIVE && xenbus_putoffs == 1, "phase %u, %lu put off",
	    fe.xb.xb_phase, xenbus_putoffs);
	pass(hz - 1);
	LOG("");
	pass(1);
	LOG("s");
	end();
	/* That the driver was to be asked is kept. */
	begin_live();
	fe.stop_error = EBUSY;
	online(false);
	back_is(XenbusStateClosing);
	LOG("q");
	xsn_unanswered = 2;
	xenbus_recheck(&fe.dev);
	settle();
	LOG("");
	seconds(1);
	LOG("q");
	xsn_unanswered = 1;
	xenbus_recheck(&fe.dev);
	settle();
	LOG("");
	seconds(1);
	LOG("q");
	fe.stop_error = 0;
	end();
	/* A reset needs no answer, and is not done again when there is one. */
	begin_live();
	xsn_unanswered = 5;
	xenbus_reset(&fe.dev);
	settle();
	LOG("s");
	WROTE("56");
	seconds(2);
	LOG("");
	end();
	/* It was Closed, and has its time to unmap the rings all the same. */
	begin_live();
	xsn_unanswered = 6;
	back_is(XenbusStateClosed);
	LOG("s");
	WROTE("56");
	pass(5 * hz - 1);
	LOG("");
	pass(1);
	LOG("R");
	end();
}

/* Which back end it is, is found in time: none is looked for in the place of one without an answer. */
static void
back_end_is_looked_for_again(const void *arg __unused)
{

	begin_live();
	back_is(XenbusStateUnknown);
	seconds(2);
	LOG("sR");
	CHECK(fe.xb.xb_phase == XB_CLOSED, "phase %u", fe.xb.xb_phase);
	xsn_set(OTHER, "state", "%d", XenbusStateInitWait);
	xsn_set(OTHER, "online", "1");
	xsn_set(NODE, "backend", OTHER);
	xenbus_kick(&fe.xb, 0);
	settle();
	CHECK(fe.xb.xb_watch.xw_token != 0 && strcmp(fe.xb.xb_path, OTHER) == 0, "it is %s",
	    fe.xb.xb_path);
	LOG("S");
	xsn_set(OTHER, "state", "%d", XenbusStateClosed);
	end();
	/* Without an answer, the one that is known is kept. */
	begin_live();
	back_is(XenbusStateUnknown);
	seconds(2);
	LOG("sR");
	xsn_unread = "backend";
	changes("state");
	CHECK(fe.xb.xb_watch.xw_token != 0 && strcmp(fe.xb.xb_path, BACK) == 0 && xenbus_putoffs == 1,
	    "it is \"%s\", %lu put off", fe.xb.xb_path, xenbus_putoffs);
	xsn_unread = NULL;
	/* That is asked a second later; and it is not where it may be. */
	xsn_set(NODE, "backend", "/elsewhere");
	pass(hz - 1);
	CHECK(fe.xb.xb_watch.xw_token != 0, "asked at once");
	pass(1);
	CHECK(fe.xb.xb_watch.xw_token == 0 && fe.xb.xb_path[0] == '\0', "it is \"%s\"",
	    fe.xb.xb_path);
	end();
}

/* Queues are taken by setup(), and given back when it fails, or at the end. */
static void
queues_are_those_of_the_last_setup(const void *arg __unused)
{

	begin(XenbusStateInitialising);
	fe.queues = 4;
	fe.setup_error = ENOMEM;
	back_is(XenbusStateInitWait);
	LOG("S");
	CHECK(fe.xb.xb_more_queues == 0, "%u queues", fe.xb.xb_more_queues);
	fe.setup_error = 0;
	seconds(1);
	back_is(XenbusStateConnected);
	LOG("SL");
	CHECK(fe.xb.xb_more_queues == 3, "%u queues", fe.xb.xb_more_queues);
	back_is(XenbusStateClosed);
	LOG("sR");
	CHECK(fe.xb.xb_more_queues == 0, "%u queues", fe.xb.xb_more_queues);
	end();
	/* One that is not to be found is not begun with. */
	begin_live();
	back_is(XenbusStateConnected);
	xsn_clear(NODE, "backend");
	xenbus_reset(&fe.dev);
	back_is(XenbusStateInitialising);
	LOG("sR");
	WROTE("56");
	CHECK(fe.xb.xb_phase == XB_CLOSED && fe.xb.xb_path[0] == '\0', "phase %u", fe.xb.xb_phase);
	/* Nor does a driver that was never begun with keep any. */
	CHECK(xenbus_queues(&fe.dev, 4) == 4, "fewer queues");
	end();
}

/* A driver that asked is told once that its device is in use; Connected is a new beginning. */
static void
refusal_ends_when_the_back_end_goes_on(const void *arg __unused)
{
	int i, lines;

	begin_live();
	fe.stop_error = EBUSY;
	online(false);
	for (i = 0; i < 2; i++) {
		lines = kpi_lines;
		back_is(XenbusStateClosing);
		LOG("q");
		CHECK(kpi_lines == lines + 1, "%d lines", kpi_lines - lines);
		back_is(XenbusStateConnected);
		LOG("");
	}
	/* That no longer counts when another back end has begun. */
	back_is(XenbusStateClosing);
	LOG("q");
	online(true);
	xenbus_reset(&fe.dev);
	back_is(XenbusStateClosed);
	LOG("sR");
	seconds(1);
	back_is(XenbusStateInitWait);
	back_is(XenbusStateConnected);
	online(false);
	LOG("SL");
	lines = kpi_lines;
	back_is(XenbusStateClosing);
	LOG("q");
	CHECK(kpi_lines == lines + 1, "%d lines", kpi_lines - lines);
	fe.stop_error = 0;
	end();
}

/* Users hear of it once that there is no back end, and why; a driver that leaves has nothing left. */
static void
lost_is_said_once(const void *arg __unused)
{
	int lines;

	/* The toolstack has detached it, and a suspension follows. */
	begin_live();
	online(false);
	back_is(XenbusStateClosing);
	back_is(XenbusStateClosed);
	lines = kpi_lines;
	seconds(5);
	LOG("qRX");
	CHECK(kpi_lines == lines + 1 && strstr(kpi_line, "detached by the toolstack") != NULL, "%s",
	    kpi_line);
	changes("state");
	seconds(20);
	LOG("");
	end();
	CHECK(!fe.xb.xb_lost && !fe.xb.xb_ended && !fe.xb.xb_missing && !fe.xb.xb_untold &&
	    fe.xb.xb_tries == 0, "left over");
	/* None has come after a suspension; then another device has its place. */
	begin_live();
	xsn_set(BACK, "state", "%d", XenbusStateInitialising);
	xsn_set(NODE, "state", "1");
	xenbus_hold();
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	lines = kpi_lines;
	seconds(60);
	LOG("sRX");
	CHECK(kpi_lines == lines + 1 && strstr(kpi_line, "(waiting, it is Initialising)") != NULL, "%s",
	    kpi_line);
	back_is(XenbusStateInitWait);
	LOG("S");
	xsn_set(NODE, "state", "1");
	xenbus_reset(&fe.dev);
	settle();
	CHECK(fe.xb.xb_replaced, "not replaced");
	seconds(20);
	LOG("sR");
	end();
	CHECK(!fe.xb.xb_missing, "left over");
	/* One that was replaced is lost once, too. */
	begin_live();
	xsn_set(BACK, "state", "%d", XenbusStateInitialising);
	xenbus_hold();
	xsn_set(NODE, "state", "1");
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	settle();
	back_is(XenbusStateInitWait);
	xsn_set(NODE, "state", "1");
	xenbus_reset(&fe.dev);
	settle();
	seconds(100);
	LOG("sRSsXR");
	end();
	/* One that never had a back end has no users. */
	begin(XenbusStateInitialising);
	online(false);
	back_is(XenbusStateClosed);
	seconds(20);
	WROTE("156");
	LOG("");
	xenbus_hold();
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	CHECK(!fe.xb.xb_missing, "missed");
	seconds(100);
	LOG("");
	end();
}

/* A suspension finds a front end in any phase, and begins anew. */
static void
suspended_in_any_phase(const void *arg __unused)
{
	int *wait = &xen_tunables[XEN_RESUME_WAIT].pt_value, before = *wait, secs;

	/* Nothing that failed before is waited for. */
	begin(XenbusStateInitialising);
	fe.setup_error = ENOMEM;
	back_is(XenbusStateInitWait);
	seconds(1);
	LOG("SS");
	fe.setup_error = 0;
	xsn_wrote[0] = '\0';
	xenbus_hold();
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	settle();
	LOG("S");
	WROTE("13");
	CHECK(fe.xb.xb_tries == 0, "%u tries", fe.xb.xb_tries);
	end();
	/* A driver that was stopped is not stopped once more. */
	begin_live();
	xenbus_reset(&fe.dev);
	settle();
	LOG("s");
	xsn_set(BACK, "state", "%d", XenbusStateInitialising);
	xenbus_hold();
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	settle();
	LOG("R");
	WROTE("561");
	end();
	/* One that is not attached stays so. */
	begin_live();
	xsn_set(BACK, "state", "%d", XenbusStateClosed);
	xenbus_leave(&fe.dev);
	LOG("qR");
	WROTE("56");
	xenbus_hold();
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	LOG("");
	WROTE("");
	end();
	/* It has a second, if that is the tunable's, or ever so long. */
	for (secs = 1; secs >= 0; secs--) {
		*wait = secs;
		begin_live();
		xsn_set(BACK, "state", "%d", XenbusStateInitialising);
		xenbus_hold();
		xenbus_begin_again(&fe.xb);
		xenbus_go_on();
		pass(hz - 1);
		LOG("sR");
		pass(1);
		LOG(secs != 0 ? "X" : "");
		seconds(100);
		LOG("");
		end();
	}
	*wait = before;
	/* There is no back end then. */
	begin_live();
	xsn_clear(NODE, "backend");
	xenbus_hold();
	xenbus_begin_again(&fe.xb);
	xenbus_go_on();
	settle();
	LOG("sR");
	WROTE("");
	CHECK(fe.xb.xb_phase == XB_CLOSED, "phase %u", fe.xb.xb_phase);
	end();
}

static int slept;

/* While who leaves sleeps. */
static void
tick_passes(void)
{

	slept += MAX(hz / 50, 1);
	ticks += MAX(hz / 50, 1);
}

/* A driver that leaves waits for its back end, which has its time, and asks it first. */
static void
leaves_when_the_back_end_has_closed(const void *arg __unused)
{
	int began;

	begin_live();
	back_is(XenbusStateClosed);
	LOG("sR");
	end();
	/* It never answers. */
	begin_live();
	began = ticks;
	fe.stop_error = EBUSY;
	slept = kpi_paused = 0;
	kpi_pause = tick_passes;
	xenbus_leave(&fe.dev);
	kpi_pause = NULL;
	LOG("qsR");
	WROTE("56");
	CHECK(ticks - began == 5 * hz && kpi_paused == slept * tick_sbt, "%d ticks", ticks - began);
	CHECK(fe.xb.xb_phase == XB_IDLE, "phase %u", fe.xb.xb_phase);
	/* Some have slow clocks; and it is not asked again while it is away. */
	begin_live();
	xsn_clear(BACK, "state");
	hz = 50;
	slept = kpi_paused = 0;
	kpi_pause = tick_passes;
	xenbus_leave(&fe.dev);
	LOG("sR");
	CHECK(slept == 0, "waits for one that is not there");
	hz = 100;
	begin_live();
	hz = 50;
	xenbus_leave(&fe.dev);
	kpi_pause = NULL;
	LOG("qR");
	CHECK(slept == 5 * hz && kpi_paused == slept * tick_sbt, "%d ticks", slept);
	hz = 100;
}

/* A front end begins at most once a second, however fast its back end is. */
static void
begins_once_a_second(const void *arg __unused)
{
	int i;

	begin(XenbusStateConnected);
	WROTE("156");
	for (i = 0; i < 10; i++) {
		back_is(XenbusStateClosed);
		back_is(XenbusStateInitialising);
	}
	WROTE("");
	pass(hz - 1);
	WROTE("");
	pass(1);
	WROTE("1");
	end();
}

static const struct hosted_test tests[] = {
	{ "connects_step_by_step", "And each step is taken once", connects_step_by_step, NULL },
	{ "earlier_connection_is_ended", "Before another begins", earlier_connection_is_ended, NULL },
	{ "rings_are_kept_until_the_back_end_has_closed", "Or for as long as it may take",
	    rings_are_kept_until_the_back_end_has_closed, NULL },
	{ "closing_is_a_failure_or_a_request", "By what the toolstack says",
	    closing_is_a_failure_or_a_request, NULL },
	{ "back_end_that_disappears", "For a moment, or for good", back_end_that_disappears, NULL },
	{ "passing_errors_are_tried_again", "Later and later", passing_errors_are_tried_again, NULL },
	{ "errors_without_all_values_are_tried_again", "Whichever they are",
	    errors_without_all_values_are_tried_again, NULL },
	{ "failure_waits_for_another_back_end", "And users get errors",
	    failure_waits_for_another_back_end, NULL },
	{ "no_answer_is_no_state", "It is asked for again", no_answer_is_no_state, NULL },
	{ "changes_are_passed_on", "A few at once", changes_are_passed_on, NULL },
	{ "device_that_is_replaced", "By another of its number", device_that_is_replaced, NULL },
	{ "suspended_without_a_back_end", "It is waited for", suspended_without_a_back_end, NULL },
	{ "leaves_when_the_back_end_has_closed", "Or has had its time",
	    leaves_when_the_back_end_has_closed, NULL },
	{ "begins_once_a_second", "At most", begins_once_a_second, NULL },
	{ "each_answer_may_be_missing", "And none is made up", each_answer_may_be_missing, NULL },
	{ "back_end_is_looked_for_again", "When its state is missing",
	    back_end_is_looked_for_again, NULL },
	{ "queues_are_those_of_the_last_setup", "And go back", queues_are_those_of_the_last_setup,
	    NULL },
	{ "refusal_ends_when_the_back_end_goes_on", "And is said again then",
	    refusal_ends_when_the_back_end_goes_on, NULL },
	{ "lost_is_said_once", "And why", lost_is_said_once, NULL },
	{ "suspended_in_any_phase", "It begins anew", suspended_in_any_phase, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
