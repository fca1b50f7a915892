/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore on FreeBSD's own Xen core, for core_life_test: requests, transactions, watches, and what
 * becomes of each without an answer, with an error or with one that is wrong.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/proc.h>

#include <dev/xen/xen_tunable.h>
#include <dev/xen/xenstore.h>
#include <dev/xen/core/core.h>
#include <xen/io/xs_wire.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "kpi/threads.h"
#include "model/xenhvm_core.h"
#include "core_life.h"

/* The next request, or the nth, is refused. */
static void
refuse(const char *error, int nth)
{

	hc_refuse = error;
	hc_refuse_nth = nth;
}

static int
ask(void)
{
	char *value = NULL;
	int error;

	error = xenstore_read(NULL, "domid", NULL, &value, NULL);
	CHECK((error == 0) == (value != NULL), "error %d, and a value", error);
	if (error == 0)
		CHECK(strcmp(value, "7") == 0, "%s", value);
	xenstore_free(value);
	return (error);
}

static void
check_value(const char *dir, const char *name, const char *expected)
{
	char *value;
	size_t len;
	int error;

	error = xenstore_read(NULL, dir, name, &value, &len);
	CHECK(error == 0, "%s/%s: error %d", dir, name, error);
	CHECK(strcmp(value, expected) == 0 && len == strlen(expected), "%s: %zu bytes", value, len);
	xenstore_free(value);
}

static void
values(void)
{
	static char text[4100];
	uint64_t requests;
	bool exists;

	core_begin();
	requests = kpi_sysctl_value("xenstore.requests");
	CHECK(xenstore_write(NULL, "a", "b", "xyz") == 0, "not written");
	CHECK(strcmp(hc_get("a/b"), "xyz") == 0, "%s", hc_get("a/b"));
	check_value("a", "b", "xyz");
	check_value("a/b", NULL, "xyz");
	check_value("", "a/b", "xyz");
	check_value("a/b", "", "xyz");
	ASKED("Wa/b Ra/b Ra/b Ra/b Ra/b ");
	CHECK(kpi_sysctl_value("xenstore.requests") == requests + 5, "counted");
	CHECK(xenstore_printf(NULL, "a", "n", "%d-%s", 12, "x") == 0, "written");
	check_value("a", "n", "12-x");
	CHECK(xenstore_exists(NULL, "a", "b", &exists) == 0 && exists, "it is there");
	CHECK(xenstore_exists(NULL, "a", "c", &exists) == 0 && !exists, "it is not");
	refuse("EACCES", 1);
	CHECK(xenstore_exists(NULL, "a", "b", &exists) == 0 && !exists, "one that may not be read");
	refuse("EINVAL", 1);
	CHECK(xenstore_exists(NULL, "a", "b", &exists) == EINVAL, "unknown");
	CHECK(xenstore_remove(NULL, "a", "b") == 0 && hc_get("a/b") == NULL, "removed");
	CHECK(xenstore_remove(NULL, "a", "b") == 0, "there is none");
	refuse("EACCES", 1);
	CHECK(xenstore_remove(NULL, "a", "n") == EACCES, "it may not be");
	refuse("ENOSPC", 1);
	CHECK(xenstore_write(NULL, "a", "b", "") == ENOSPC, "no room");
	refuse("EWHATEVER", 1);
	CHECK(ask() == EINVAL, "an error of no name");
	/* Limits: of a text, of a path, of a message. */
	hc_log[0] = '\0';
	memset(text, 'p', sizeof(text) - 1);
	CHECK(xenstore_printf(NULL, "a", "t", "%.255s", text) == 0, "255 bytes");
	CHECK(strlen(hc_get("a/t")) == 255, "%zu bytes", strlen(hc_get("a/t")));
	CHECK(xenstore_printf(NULL, "a", "t", "%.256s", text) == E2BIG, "256");
	ASKED("Wa/t ");
	text[3069] = '\0';
	CHECK(xenstore_exists(NULL, text, "x", &exists) == 0 && !exists, "a path of 3072 bytes");
	text[3069] = 'p';
	text[3070] = '\0';
	CHECK(xenstore_exists(NULL, text, "x", &exists) == ENAMETOOLONG, "a path of 3073 bytes");
	text[3070] = 'p';
	hc_log[0] = '\0';
	text[4096 - 4] = '\0';
	CHECK(xenstore_write(NULL, "a", "t", text) == 0, "4096 bytes");
	ASKED("Wa/t ");
	text[4096 - 4] = 'p';
	text[4097 - 4] = '\0';
	CHECK(xenstore_write(NULL, "a", "t", text) == E2BIG, "4097 bytes");
	ASKED("");
}

static int
list(const char *dir)
{
	char **names = NULL;
	u_int count = 99;
	int error;

	error = xenstore_list(NULL, dir, NULL, &names, &count);
	CHECK((error == 0) == (names != NULL), "error %d, and names", error);
	if (error != 0)
		return (error);
	CHECK(count == 3 && strcmp(names[0], "one") == 0 && strcmp(names[1], "twelve") == 0 &&
	    strcmp(names[2], "three") == 0 && names[3] == NULL, "%u names", count);
	xenstore_free(names);
	CHECK(xenstore_list(NULL, dir, NULL, &names, NULL) == 0, "without their number");
	xenstore_free(names);
	return (0);
}

static int parts;

/* The directory changes once, or each time that it is begun with. */
static void
change_once(void)
{

	if (++parts == 2)
		hc_generation = "second";
}

static void
change_always(void)
{

	hc_generation = ++parts % 2 == 0 ? "a" : "b";
}

static void
directories(void)
{
	u_int asked;
	int i;

	core_begin();
	CHECK(list("d") == ENOENT, "there is none");
	hc_set("d/one", "1");
	hc_set("d/twelve", "12");
	hc_set("d/three", "3");
	hc_log[0] = '\0';
	CHECK(list("d") == 0, "in one");
	ASKED("Dd Dd ");
	hc_cut = 1;
	CHECK(list("d") == EIO, "a name that does not end");
	hc_cut = 0;
	refuse("EACCES", 1);
	CHECK(list("d") == EACCES, "it may not be read");
	/* In parts: the last has a NUL more. */
	hc_room = 4;
	for (hc_part = 1; hc_part < 30; hc_part++) {
		hc_log[0] = '\0';
		CHECK(list("d") == 0, "in parts");
	}
	ASKED("Dd Pd Dd Pd ");
	hc_part = 4;
	CHECK(list("d") == 0, "in parts");
	ASKED("Dd Pd Pd Pd Dd Pd Pd ");
	hc_part = 1;
	hc_parted = change_once;
	CHECK(list("d") == 0, "it changed once");
	hc_parted = change_always;
	parts = 0;
	hc_part = 1;
	CHECK(list("d") == EAGAIN && parts == 200, "%d parts", parts);
	hc_parted = NULL;
	for (i = 2; i <= 3; i++) {
		hc_part = 1;
		refuse("EACCES", i);
		CHECK(list("d") == EACCES, "part %d may not be read", i - 1);
	}
	/* What a part begins with, and ends with. */
	hc_generation = "";
	CHECK(list("d") == EIO, "no generation");
	hc_generation = "12345678901234567890123";
	CHECK(list("d") == 0, "23 bytes");
	hc_generation = "123456789012345678901234";
	CHECK(list("d") == EIO, "24 bytes");
	hc_generation = "1";
	hc_endless = true;
	asked = hc_asked;
	CHECK(list("d") == E2BIG && hc_asked == asked + 1 + 1024 * 1024 / 1000 + 1, "%u parts",
	    hc_asked - asked);
	hc_endless = false;
	hc_part = 30;
	hc_cut = 1;
	CHECK(list("d") == EIO, "nothing is left, and no end");
	hc_cut = 2;
	CHECK(list("d") == EIO, "no end");
	hc_cut = 0;
}

/* A transaction. */
static int tx_error, tx_calls, tx_again;

static int
write_both(struct xenstore_tx *tx, void *arg)
{
	int error;

	CHECK(arg == &tx_calls, "another argument");
	tx_calls++;
	error = xenstore_write(tx, "t", "a", "1");
	if (error == 0)
		error = xenstore_write(tx, "t", "b", "2");
	if (error == 0 && tx_again > 0) {
		tx_again--;
		return (EAGAIN);
	}
	return (error != 0 ? error : tx_error);
}

static int
transact(void)
{

	tx_calls = 0;
	hc_log[0] = '\0';
	return (xenstore_transaction(write_both, &tx_calls));
}

static void
transactions(void)
{
	static const char *const ids[] = { "", "x", "0", "4294967296", "1x", "-1" };
	uint64_t conflicts;
	u_int i;
	int began;

	core_begin();
	CHECK(transact() == 0 && tx_calls == 1, "not committed");
	ASKED("S Wt/a Wt/b ET ");
	CHECK(strcmp(hc_get("t/a"), "1") == 0 && strcmp(hc_get("t/b"), "2") == 0, "not written");
	hc_set("t/a", NULL);
	tx_error = ENXIO;
	CHECK(transact() == ENXIO && tx_calls == 1 && hc_get("t/a") == NULL, "not rolled back");
	ASKED("S Wt/a Wt/b EF ");
	tx_error = 0;
	refuse("ENOSPC", 3);
	CHECK(transact() == ENOSPC && tx_calls == 1, "the error is the caller's");
	ASKED("S Wt/a Wt/b EF ");
	refuse("EINVAL", 4);
	CHECK(transact() == EINVAL && tx_calls == 1, "the error of a commit");
	refuse("ENOSPC", 1);
	CHECK(transact() == ENOSPC && tx_calls == 0, "too many transactions");
	/* Another's comes between: again, and later each time. */
	conflicts = kpi_sysctl_value("xenstore.conflicts");
	hc_conflicts = 3;
	began = ticks;
	CHECK(transact() == 0 && tx_calls == 4, "%d calls", tx_calls);
	CHECK(ticks - began == 1 + 2 + 3, "%d ticks", ticks - began);
	CHECK(kpi_sysctl_value("xenstore.conflicts") == conflicts + 3, "counted");
	tx_again = 2;
	CHECK(transact() == 0 && tx_calls == 3, "%d calls", tx_calls);
	ASKED("S Wt/a Wt/b EF S Wt/a Wt/b EF S Wt/a Wt/b ET ");
	hc_conflicts = 100;
	began = ticks;
	CHECK(transact() == EAGAIN && tx_calls == 100, "%d calls", tx_calls);
	CHECK(ticks - began == 55 + 90 * 10, "%d ticks", ticks - began);
	hc_conflicts = 0;
	for (i = 0; i < nitems(ids); i++) {
		hc_id = ids[i];
		CHECK(transact() == EIO && tx_calls == 0, "\"%s\"", ids[i]);
	}
	hc_id = "4294967295";
	CHECK(transact() == ENOENT && tx_calls == 1, "the greatest number");
	hc_id = NULL;
}

/* In a new domain there is no transaction of the old one. */
static int
resume_within(struct xenstore_tx *tx, void *arg)
{

	if (tx_calls++ == 0) {
		xenstore_suspend();
		CHECK(xenstore_resume(arg == NULL) == 0, "no answer");
		hc_log[0] = '\0';
	}
	return (xenstore_write(tx, "t", "a", "1"));
}

static void
transaction_does_not_outlive_its_domain(void)
{

	core_begin();
	CHECK(xenstore_transaction(resume_within, NULL) == 0 && tx_calls == 1, "cancelled");
	ASKED("Wt/a ET ");
	tx_calls = 0;
	CHECK(xenstore_transaction(resume_within, &tx_calls) == 0 && tx_calls == 2, "not again");
	ASKED("S Wt/a ET ");
	/* xenstore ends those of a domain. */
	CHECK(hc_transactions == 1, "%d transactions", hc_transactions);
	hc_transactions = 0;
}

/* Without an answer. */

static void
requests_time_out(void)
{
	uint64_t late, timeouts;
	int began;

	core_begin();
	timeouts = kpi_sysctl_value("xenstore.timeouts");
	late = kpi_sysctl_value("xenstore.late");
	hc_silent = true;
	began = ticks;
	CHECK(ask() == ETIMEDOUT && ticks - began == 30 * hz, "%d ticks", ticks - began);
	ASKED("Rdomid ");
	began = ticks;
	CHECK(ask() == ETIMEDOUT && ticks - began == hz, "%d ticks", ticks - began);
	CHECK(xenstore_write(NULL, "a", "b", "1") == ETIMEDOUT && ticks - began == 2 * hz, "%d ticks",
	    ticks - began);
	CHECK(kpi_sysctl_value("xenstore.timeouts") == timeouts + 3, "counted");
	CHECK(xen_core_store_close() == EBUSY, "closed");
	hc_silent = false;
	kpi_sleep(2);
	/* What nobody waits for any more is not begun. */
	ASKED("");
	CHECK(hc_get("a/b") == NULL, "written");
	CHECK(kpi_sysctl_value("xenstore.late") == late + 1, "%ju late",
	    (uintmax_t)kpi_sysctl_value("xenstore.late"));
	CHECK(ask() == 0, "no answer");
	hc_silent = true;
	began = ticks;
	CHECK(ask() == ETIMEDOUT && ticks - began == 30 * hz, "%d ticks", ticks - began);
}

static void
answer_later(void *arg)
{

	(void)pause("later", (int)(uintptr_t)arg);
	hc_silent = false;
}

/* Without a limit, and just before it. */
static void
answers_are_waited_for(void)
{
	int began = ticks;

	core_begin();
	xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value = 0;
	hc_silent = true;
	kpi_thread_start(answer_later, (void *)(uintptr_t)(500 * hz));
	CHECK(ask() == 0 && ticks - began >= 500 * hz && ticks - began < 501 * hz, "%d ticks",
	    ticks - began);
	xen_tunables[XEN_XENSTORE_TIMEOUT].pt_value = 2;
	began = ticks;
	hc_silent = true;
	kpi_thread_start(answer_later, (void *)(uintptr_t)(2 * hz - 2));
	CHECK(ask() == 0 && ticks - began < 2 * hz, "%d ticks", ticks - began);
	hc_silent = true;
	began = ticks;
	CHECK(ask() == ETIMEDOUT && ticks - began == 2 * hz, "%d ticks", ticks - began);
}

static int
fall_silent(struct xenstore_tx *tx __unused, void *arg)
{

	hc_silent = true;
	return (arg == NULL ? 0 : ENXIO);
}

/* Transactions that nobody knows the end of are ended. */
static void
orphans_are_ended(void)
{

	core_begin();
	hc_log[0] = '\0';
	CHECK(xenstore_transaction(fall_silent, NULL) == ETIMEDOUT, "committed");
	hc_silent = false;
	kpi_sleep(2);
	ASKED("S ET ");
	CHECK(ask() == 0, "no answer");
	ASKED("EF Rdomid ");
	CHECK(ask() == 0, "no answer");
	ASKED("Rdomid ");
	/* It is begun when nobody waits for it. */
	hc_silent = true;
	CHECK(transact() == ETIMEDOUT && tx_calls == 0, "begun");
	hc_silent = false;
	kpi_sleep(2);
	CHECK(hc_transactions == 1, "%d transactions", hc_transactions);
	CHECK(ask() == 0, "no answer");
	ASKED("S EF Rdomid ");
	CHECK(hc_transactions == 0, "%d transactions", hc_transactions);
	/* One that can't be ended now is not forgotten, and the error is that of the caller. */
	CHECK(xenstore_transaction(fall_silent, &tx_calls) == ENXIO, "the caller's");
	hc_silent = false;
	kpi_sleep(2);
	CHECK(ask() == 0 && hc_transactions == 0, "%d transactions", hc_transactions);
}

/* The core's failure, an answer of another type, and xenstore's own error: the result is unknown. */
static void
xenstore_fails(void)
{
	uint64_t failed;
	int i, lines;

	core_begin();
	failed = kpi_sysctl_value("xenstore.failed");
	hc_failure = EIO;
	CHECK(ask() == ETIMEDOUT, "answered");
	SAID("xen0: xenstore failed a request of type 2 (error 5, answer 2): all are tried again\n");
	lines = kpi_lines;
	CHECK(ask() == ETIMEDOUT && kpi_lines == lines, "said twice: %s", kpi_line);
	hc_failure = 0;
	CHECK(ask() == 0, "no answer");
	hc_type = XS_WRITE;
	CHECK(ask() == ETIMEDOUT, "answered");
	SAID("xen0: xenstore failed a request of type 2 (error 0, answer 11): all are tried again\n");
	hc_type = 0;
	CHECK(ask() == 0, "no answer");
	refuse("EIO", 1);
	CHECK(ask() == ETIMEDOUT, "answered");
	SAID("xen0: xenstore failed a request of type 2 (error 0, answer 16): all are tried again\n");
	CHECK(kpi_sysctl_value("xenstore.failed") == failed + 4, "counted");
	/* So often it is said. */
	lines = kpi_lines;
	for (i = 0; i < 10; i++) {
		CHECK(ask() == 0, "no answer");
		refuse("EIO", 1);
		CHECK(ask() == ETIMEDOUT, "answered");
	}
	CHECK(kpi_lines == lines + 6, "%d lines", kpi_lines - lines);
	CHECK(kpi_sysctl_value("xenstore.timeouts") >= 14, "counted");
}

/* What the thread of requests is asked to do besides. */

static int done;
static struct thread *done_by;

static void
do_it(void *arg)
{

	CHECK(arg == &done, "another argument");
	done++;
	done_by = curthread;
}

static void
other_work_has_its_turn(void)
{
	int began;

	core_begin();
	CHECK(xen_core_store_call(do_it, &done) == 0 && done == 1, "not done");
	CHECK(done_by != curthread, "by this thread");
	hc_silent = true;
	CHECK(ask() == ETIMEDOUT, "answered");
	began = ticks;
	CHECK(xen_core_store_call(do_it, &done) == ETIMEDOUT && done == 1, "done");
	CHECK(ticks - began == hz, "%d ticks", ticks - began);
	hc_silent = false;
	kpi_sleep(2);
	CHECK(done == 2, "not done later");
	CHECK(xen_core_store_close() == 0 && xen_core_store_close() == 0, "not closed");
	CHECK(ask() == ETIMEDOUT, "it is closed");
	CHECK(xen_core_store_call(do_it, &done) == 0 && done == 3, "not done");
	CHECK(done_by == curthread, "not by this thread");
	xen_core_store_open();
	CHECK(ask() == 0, "closed");
}

/* Watches. */

static struct {
	char	log[512];
	bool	waits;
	int	calls;
} fired;

static void
watch_changed(struct xenstore_watch *w, const char *path)
{

	CHECK(w->xw_arg == &fired && kpi_mutexes == 0, "another");
	fired.calls++;
	strlcat(fired.log, path, sizeof(fired.log));
	strlcat(fired.log, " ", sizeof(fired.log));
	while (fired.waits)
		(void)pause("watch", 1);
}

#define	FIRED(text) do {						\
	kpi_settle();							\
	CHECK(strcmp(fired.log, (text)) == 0, "fired: %s", fired.log);	\
	fired.log[0] = '\0';						\
} while (0)
#define	WATCH	{ .xw_changed = watch_changed, .xw_arg = &fired }

/* So many paths change, one after the other. */
static void
bursts(int n)
{
	char path[32];
	int i;

	for (i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "a/b/x%d", i);
		hc_burst(path, 1);
		kpi_settle();
	}
}

static void
watches(void)
{
	struct xenstore_watch w = WATCH, other = WATCH, none = WATCH;
	uint64_t events;
	int i;

	core_begin();
	xenstore_watch_remove(&none);
	ASKED("");
	events = kpi_sysctl_value("xenstore.events");
	CHECK(xenstore_watch_add(&w, "a", "b") == 0, "not set");
	ASKED("wa/b ");
	FIRED("a/b ");
	hc_set("a/b", "1");
	FIRED("a/b ");
	hc_set("a/b/c", "1");
	hc_set("a/bc", "1");
	hc_set("a", "1");
	FIRED("a/b/c ");
	CHECK(kpi_sysctl_value("xenstore.events") == events + 3, "counted");
	CHECK(xenstore_watch_add(&other, "a/b", "c") == 0 && hc_watches == 2, "not set");
	FIRED("a/b/c ");
	hc_set("a/b/c", "2");
	FIRED("a/b/c a/b/c ");
	xenstore_watch_remove(&other);
	kpi_settle();
	ASKED("wa/b/c ua/b/c ");
	CHECK(hc_watches == 1 && other.xw_token == 0 && other.xw_path == NULL, "it is there");
	/* While one is called, others wait: each path once, and 32 of them. */
	fired.waits = true;
	hc_set("a/b", "2");
	FIRED("a/b ");
	for (i = 0; i < 3; i++) {
		hc_set("a/b", "3");
		kpi_settle();
	}
	bursts(31);
	fired.waits = false;
	fired.calls = 0;
	kpi_sleep(2);
	CHECK(fired.calls == 32 && strncmp(fired.log, "a/b a/b/x0 a/b/x1 ", 18) == 0, "%d: %s",
	    fired.calls, fired.log);
	CHECK(strcmp(fired.log + strlen(fired.log) - 8, "a/b/x30 ") == 0, "%s", fired.log);
	fired.log[0] = '\0';
	fired.waits = true;
	hc_set("a/b/c", "2");
	FIRED("a/b/c ");
	bursts(40);
	fired.waits = false;
	fired.calls = 0;
	kpi_sleep(2);
	CHECK(fired.calls == 33, "%d: %s", fired.calls, fired.log);
	CHECK(strcmp(fired.log + strlen(fired.log) - 12, "a/b/x31 a/b ") == 0, "%s", fired.log);
	fired.log[0] = '\0';
	/* Of so many the core drops some: something has changed. */
	hc_burst("a/b/c", 15);
	FIRED("a/b/c ");
	hc_burst("a/b/c", 20);
	FIRED("a/b a/b/c ");
	/* The events of one that is removed are nobody's, and one that is called is waited for. */
	CHECK(xenstore_watch_add(&other, "o", NULL) == 0, "not set");
	FIRED("o ");
	fired.waits = true;
	hc_set("a/b", "4");
	FIRED("a/b ");
	hc_set("o", "1");
	hc_set("o/1", "1");
	kpi_settle();
	xenstore_watch_remove(&other);
	kpi_thread_start(answer_later, (void *)(uintptr_t)100);
	fired.waits = false;
	kpi_sleep(2);
	FIRED("");
	hc_pathless = true;
	hc_set("a/b", "4");
	FIRED("");
	hc_pathless = false;
	xenstore_watch_remove(&w);
	hc_set("a/b", "5");
	FIRED("");
}

static void
let_go(void *arg __unused)
{

	(void)pause("watch", 3 * hz);
	fired.waits = false;
}

static void
watch_that_is_called_is_waited_for(void)
{
	struct xenstore_watch w = WATCH;
	int began;

	core_begin();
	CHECK(xenstore_watch_add(&w, "a", NULL) == 0, "not set");
	FIRED("a ");
	fired.waits = true;
	hc_set("a", "1");
	FIRED("a ");
	began = ticks;
	kpi_thread_start(let_go, NULL);
	xenstore_watch_remove(&w);
	CHECK(!fired.waits && ticks - began >= 3 * hz, "%d ticks", ticks - began);
}

/* A quota: it is set later, again and again. */
static void
watch_that_is_refused_is_set_later(void)
{
	struct xenstore_watch w = WATCH, other = WATCH;
	uint64_t refused;
	u_int asked, i, secs;
	int due, lines;

	core_begin();
	refused = kpi_sysctl_value("refused_watches");
	hc_no_watch = ENOSPC;
	CHECK(xenstore_watch_add(&w, "a", NULL) == 0, "an error");
	SAID("xen0: xenstore refuses a watch (error 28): it is set later\n");
	lines = kpi_lines;
	CHECK(kpi_sysctl_value("refused_watches") == refused + 1, "counted");
	for (i = 0, secs = 1; i < 8; i++, secs = MIN(2 * secs, 32)) {
		asked = hc_asked;
		due = hc_asked_at + secs * hz;
		kpi_sleep(due - 1 - ticks);
		CHECK(hc_asked == asked, "before %u seconds", secs);
		kpi_sleep(2);
		CHECK(hc_asked == asked + 1 && hc_asked_at == due, "after %u seconds", secs);
	}
	CHECK(kpi_sysctl_value("refused_watches") == refused + 9, "counted");
	CHECK(kpi_lines == lines, "said: %s", kpi_line);
	hc_no_watch = E2BIG;
	CHECK(xenstore_watch_add(&other, "o", NULL) == 0, "an error");
	hc_set("a", "1");
	FIRED("");
	hc_no_watch = 0;
	refused = kpi_sysctl_value("refused_watches");
	kpi_sleep(33 * hz);
	CHECK(kpi_sysctl_value("refused_watches") == refused, "counted");
	FIRED("a o ");
	SAID("xen0: xenstore has all watches again\n");
	CHECK(hc_watches == 2 && kpi_callouts == 0, "%u", hc_watches);
	xenstore_watch_remove(&w);
	xenstore_watch_remove(&other);
	kpi_sleep(1);
	/* It begins with a second again; one that was removed is not set. */
	hc_no_watch = EIO;
	CHECK(xenstore_watch_add(&w, "a", NULL) == 0, "an error");
	SAID("xen0: xenstore refuses a watch (error 35): it is set later\n");
	xenstore_watch_remove(&w);
	hc_no_watch = 0;
	asked = hc_asked;
	kpi_sleep(2 * hz);
	CHECK(hc_asked == asked && kpi_callouts == 0, "set");
	SAID("xen0: xenstore has all watches again\n");
	/* Other errors are the caller's. */
	hc_no_watch = EINVAL;
	CHECK(xenstore_watch_add(&w, "a", NULL) == EINVAL && w.xw_token == 0, "no error");
	hc_no_watch = 0;
	kpi_sleep(40 * hz);
	CHECK(hc_asked == asked + 1, "set");
	xenstore_watch_remove(&w);
}

/* One whose request has no answer, and one that is removed before there is one. */
static void
watch_without_an_answer(void)
{
	struct xenstore_watch w = WATCH, other = WATCH;

	core_begin();
	hc_silent = true;
	CHECK(xenstore_watch_add(&w, "a", NULL) == 0, "an error");
	CHECK(xenstore_watch_add(&other, "o", NULL) == 0, "an error");
	CHECK(ask() == ETIMEDOUT, "answered");
	xenstore_watch_remove(&other);
	hc_silent = false;
	kpi_sleep(2);
	FIRED("a ");
	ASKED("wa wo uo ");
	CHECK(hc_watches == 1, "%u watches", hc_watches);
	CHECK(ask() == 0, "no answer");
	hc_set("a", "1");
	FIRED("a ");
	/* The core keeps watches; what was closed has to be set again. */
	xenstore_suspend();
	CHECK(xenstore_resume(false) == 0, "no answer");
	CHECK(hc_watches == 1, "%u watches", hc_watches);
	CHECK(xen_core_store_close() == 0 && hc_watches == 0, "%u watches", hc_watches);
	xen_core_store_open();
	CHECK(ask() == 0, "no answer");
	CHECK(hc_watches == 1, "%u watches", hc_watches);
	kpi_settle();
	fired.log[0] = '\0';
	hc_set("a", "2");
	FIRED("a ");
	/* One that is refused then is set later. */
	CHECK(xen_core_store_close() == 0 && hc_watches == 0, "%u watches", hc_watches);
	xen_core_store_open();
	hc_no_watch = ENOSPC;
	CHECK(ask() == 0, "no answer");
	SAID("xen0: xenstore refuses a watch (error 28): it is set later\n");
	hc_no_watch = 0;
	kpi_sleep(hz + 2);
	FIRED("a ");
	CHECK(hc_watches == 1, "%u watches", hc_watches);
	xenstore_watch_remove(&w);
}

const struct hosted_test core_request_tests[] = {
	CORE_TEST(values, "And their limits"),
	CORE_TEST(directories, "In one, or in parts"),
	CORE_TEST(transactions, "And their ends"),
	CORE_TEST(transaction_does_not_outlive_its_domain, "But is made again"),
	CORE_TEST(requests_time_out, "And are not made then"),
	CORE_TEST(answers_are_waited_for, "As long as the tunable says"),
	CORE_TEST(orphans_are_ended, "When xenstore answers"),
	CORE_TEST(xenstore_fails, "And its answers are no answers"),
	CORE_TEST(other_work_has_its_turn, "Among the requests"),
	CORE_TEST(watches, "And their events"),
	CORE_TEST(watch_that_is_called_is_waited_for, "Before it goes"),
	CORE_TEST(watch_that_is_refused_is_set_later, "After 1, 2, 4 ... 32 seconds"),
	CORE_TEST(watch_without_an_answer, "Is set, or removed, by the next"),
};
const u_int core_nrequest_tests = nitems(core_request_tests);
