/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore: values, long directories, permissions, transactions that conflict with another writer,
 * watches.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/libkern.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/priority.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/atomic.h>

#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xenstore.h>
#include <xen/hvm/params.h>
#include <xen/io/xs_wire.h>

#include "xtest.h"

#define	DIR	"data/xtest"	/* the toolstack lets a guest write to "data" */
#define	NODES	150
#define	LONG	"a-name-of-some-length-so-that-the-directory-is-long"
#define	FLOOD	80
#define	FILLS	5	/* requests of FILLER bytes: more than the ring's 1,024 */
#define	FILLER	250
#define	BEGUN	11	/* transactions: more than xenstore allows at a time */

static bool
reads(const char *name, const char *want)
{
	char *value;
	size_t len;
	bool ok;

	if (!KT_EQ(xenstore_read(NULL, DIR, name, &value, &len), 0))
		return (false);
	ok = KT_STREQ(value, want) && KT_EQ(len, strlen(want));
	xenstore_free(value);
	return (ok);
}

static void
exists(const char *name, bool want)
{
	bool there = !want;

	KT_EQ(xenstore_exists(NULL, DIR, name, &there), 0);
	KT_EQ(there, want);
}

static void
values(void)
{
	char *path, *text, *value;

	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
	KT_EQ(xenstore_remove(NULL, DIR, "nothing"), 0);
	KT_EQ(xenstore_read(NULL, DIR, "nothing", &value, NULL), ENOENT);
	exists("a", false);
	KT_EQ(xenstore_write(NULL, DIR, "a/b/c", "deep"), 0);
	reads("a/b/c", "deep");
	reads("a/b", "");
	KT_EQ(xenstore_write(NULL, DIR, "a", ""), 0);
	reads("a", "");
	exists("a/b", true);
	KT_EQ(xenstore_printf(NULL, DIR, "n", "%d %s", -7, "x"), 0);
	reads("n", "-7 x");

	text = malloc(5001, M_KTEST, M_WAITOK | M_ZERO);
	memset(text, 'v', 2000);
	KT_EQ(xenstore_write(NULL, DIR, "big", text), 0);
	reads("big", text);
	memset(text, 'v', 5000);
	KT_EQ(xenstore_write(NULL, DIR, "big", text), E2BIG);
	KT_EQ(xenstore_printf(NULL, DIR, "big", "%s", text), E2BIG);
	free(text, M_KTEST);

	path = malloc(4000, M_KTEST, M_WAITOK | M_ZERO);
	memset(path, 'p', 3500);
	KT_EQ(xenstore_write(NULL, DIR, path, "x"), ENAMETOOLONG);
	free(path, M_KTEST);
	KT_EQ(xenstore_write(NULL, DIR, "not//good", "x"), EINVAL);
	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
	exists(NULL, false);
}

static void
directories(void)
{
	char **names;
	u_int count;

	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
	KT_EQ(xenstore_write(NULL, DIR, NULL, ""), 0);
	if (KT_EQ(xenstore_list(NULL, DIR, NULL, &names, &count), 0)) {
		KT_EQ(count, 0);
		KT_TRUE(names[0] == NULL);
		xenstore_free(names);
	}
	KT_EQ(xenstore_write(NULL, DIR, "one", "x"), 0);
	KT_EQ(xenstore_write(NULL, DIR, "two/three", "x"), 0);
	if (KT_EQ(xenstore_list(NULL, "data", "xtest", &names, &count), 0)) {
		KT_EQ(count, 2);
		KT_TRUE(names[2] == NULL);
		KT_EQ(strcmp(names[0], "one") == 0 || strcmp(names[1], "one") == 0, true);
		KT_EQ(strcmp(names[0], "two") == 0 || strcmp(names[1], "two") == 0, true);
		xenstore_free(names);
	}
	KT_EQ(xenstore_list(NULL, DIR, "nothing", &names, &count), ENOENT);
	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
}

/*
 * A directory longer than a message, which a guest must not create: dom0 did.  A name holds its
 * number: "007-a-name..."
 */
static void
long_directory(void)
{
	char seen[NODES] = { 0 }, **names;
	u_int count, i;
	u_long n;

	if (!KT_EQ(xenstore_list(NULL, "data/long", NULL, &names, &count), 0))
		return;
	KT_EQ(count, NODES);
	KT_TRUE(names[count] == NULL);
	for (i = 0; i < count; i++) {
		n = strtoul(names[i], NULL, 10);
		if (KT_LESS(n, NODES)) {
			KT_STREQ(names[i] + 3, "-" LONG);
			KT_EQ(seen[n]++, 0);
		}
	}
	xenstore_free(names);
}

/* dom0's nodes can be neither read nor written by us. */
static void
permissions(void)
{
	char *value;
	bool there = true;

	KT_EQ(xenstore_read(NULL, "/local/domain/0/name", NULL, &value, NULL), EACCES);
	KT_EQ(xenstore_write(NULL, "/local/domain/0/name", NULL, "x"), EACCES);
	KT_EQ(xenstore_exists(NULL, "/local/domain/0/name", NULL, &there), 0);
	KT_TRUE(!there);
}

/* A transaction on a counter, while another writer changes it for the first `others' tries. */
struct meddled {
	u_int	tries;
	u_int	others;
	int	error;		/* to return */
};

static int
meddled_tx(struct xenstore_tx *tx, void *arg)
{
	struct meddled *m = arg;
	char *value;
	u_long n;
	int error;

	error = xenstore_read(tx, DIR, "counter", &value, NULL);
	if (error != 0)
		return (error);
	n = strtoul(value, NULL, 10);
	xenstore_free(value);
	if (m->tries++ < m->others) {
		error = xenstore_printf(NULL, DIR, "counter", "%lu", n + 100);
		if (error != 0)
			return (error);
	}
	error = xenstore_printf(tx, DIR, "counter", "%lu", n + 1);
	return (error != 0 ? error : m->error);
}

static void
transactions(void)
{
	struct meddled m = { .others = 3 };
	u_int conflicts = xtest_number("xenstore.conflicts");

	KT_EQ(xenstore_write(NULL, DIR, "counter", "0"), 0);
	KT_EQ(xenstore_transaction(meddled_tx, &m), 0);
	KT_EQ(m.tries, 4);
	KT_EQ(xtest_number("xenstore.conflicts"), conflicts + 3);
	reads("counter", "301");
	m = (struct meddled){ .error = EDOM };
	KT_EQ(xenstore_transaction(meddled_tx, &m), EDOM);
	KT_EQ(m.tries, 1);
	reads("counter", "301");
	/* It does not retry for ever. */
	m = (struct meddled){ .others = UINT_MAX };
	KT_EQ(xenstore_transaction(meddled_tx, &m), EAGAIN);
	KT_TRUE(m.tries > 10);
	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
}

static struct seen {
	volatile u_int	calls;
	volatile u_int	own;		/* for the watch's own path */
	char		last[64];
	bool		gate;
	volatile u_int	waiting;
	volatile u_int	passes;		/* of the gate */
} seen;

static void
seen_change(struct xenstore_watch *w, const char *path)
{

	if (seen.gate) {
		atomic_add_int(&seen.waiting, 1);
		gate_wait(&seen.passes);
	}
	strlcpy(seen.last, path, sizeof(seen.last));
	if (strcmp(path, w->xw_path) == 0)
		atomic_add_int(&seen.own, 1);
	atomic_add_rel_int(&seen.calls, 1);
}

/* Values of all lengths up to this one: answers begin and end at any place of the ring. */
#define	TALK_LENGTH	97

static void
talker(void *arg __unused, int me)
{
	char name[16], text[TALK_LENGTH + 1];
	u_int i, j, len;

	snprintf(name, sizeof(name), "t%d", me);
	for (i = 0; i < 25; i++) {
		len = (i * 31 + me * 7) % (TALK_LENGTH + 1);
		for (j = 0; j < len; j++)
			text[j] = 'a' + (me + i + j) % 26;
		text[len] = '\0';
		if (!KT_EQ(xenstore_write(NULL, DIR, name, text), 0) || !reads(name, text))
			return;
	}
}

/* Events of a watch come between the answers. */
static void
many_talk_at_once(void)
{
	struct xenstore_watch w = { .xw_changed = seen_change };

	memset(&seen, 0, sizeof(seen));
	if (!KT_EQ(xenstore_watch_add(&w, DIR, NULL), 0))
		return;
	ktest_run(4, true, talker, NULL);
	KT_WAIT(seen.calls > 1);
	xenstore_watch_remove(&w);
	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
}

static void
watches(void)
{
	struct xenstore_watch w = { .xw_changed = seen_change }, none = { .xw_arg = NULL };
	u_int calls;

	memset(&seen, 0, sizeof(seen));
	if (!KT_EQ(xenstore_watch_add(&w, DIR, NULL), 0))
		return;
	KT_WAIT(seen.calls == 1);
	KT_STREQ(seen.last, DIR);
	KT_EQ(xenstore_write(NULL, DIR, "x/y", "1"), 0);
	KT_WAIT(strcmp(seen.last, DIR "/x/y") == 0);
	KT_EQ(xenstore_remove(NULL, DIR, "x"), 0);
	KT_WAIT(strcmp(seen.last, DIR "/x") == 0 && seen.calls >= 3);
	KT_EQ(xenstore_write(NULL, "data", "elsewhere", "1"), 0);
	calls = seen.calls;
	KT_EQ(xenstore_remove(NULL, "data", "elsewhere"), 0);
	xenstore_watch_remove(&w);
	KT_EQ(seen.calls, calls);
	KT_EQ(xenstore_write(NULL, DIR, "x", "2"), 0);
	KT_EQ(seen.calls, calls);
	xenstore_watch_remove(&w);
	xenstore_watch_remove(&none);
	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
}

/* Changes faster than they are handled cause a bounded number of calls, and the last is not lost. */
static void
watch_in_a_flood(void)
{
	struct xenstore_watch w = { .xw_changed = seen_change };
	char name[16];
	u_int i;

	memset(&seen, 0, sizeof(seen));
	if (!KT_EQ(xenstore_watch_add(&w, DIR, NULL), 0))
		return;
	KT_WAIT(seen.calls == 1);
	seen.gate = true;
	KT_EQ(xenstore_write(NULL, DIR, "first", "1"), 0);
	KT_WAIT(seen.waiting == 1);
	for (i = 0; i < FLOOD; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		KT_EQ(xenstore_write(NULL, DIR, name, "1"), 0);
	}
	seen.own = 0;
	seen.gate = false;
	atomic_add_rel_int(&seen.passes, 1);
	KT_WAIT(seen.own >= 1);
	KT_LESS(seen.calls, FLOOD / 2);
	xenstore_watch_remove(&w);
	KT_EQ(xenstore_remove(NULL, DIR, NULL), 0);
}

const struct ktest_case xtest_store_cases[] = {
	{ "xenstore.values", values },
	{ "xenstore.directories", directories },
	{ "xenstore.permissions", permissions },
	{ "xenstore.transactions", transactions },
	{ "xenstore.many_talk_at_once", many_talk_at_once },
	{ "xenstore.watches", watches },
	{ "xenstore.watch_in_a_flood", watch_in_a_flood },
	{ NULL, NULL }
};

/* xenstored was stopped. */
static void
ends_requests(void)
{
	char *value;

	KT_EQ(xenstore_write(NULL, DIR, "late", "x"), ETIMEDOUT);
	KT_EQ(xenstore_read(NULL, DIR, "late", &value, NULL), ETIMEDOUT);
}

#define	TRIES	8

struct turns {
	volatile u_int	 tu_tries;
	volatile u_int	 tu_done;
};

/* Thread 0, which comes first wherever it can, tries again and again; thread 1 needs an answer once. */
static void
take_turn(void *arg, int me)
{
	struct turns *tu = arg;
	char *value;
	u_int before;

	while (me == 0 && tu->tu_tries < TRIES && atomic_load_acq_int(&tu->tu_done) == 0) {
		KT_EQ(xenstore_read(NULL, DIR, "late", &value, NULL), ETIMEDOUT);
		atomic_add_int(&tu->tu_tries, 1);
	}
	if (me == 0)
		return;
	KT_WAIT(atomic_load_acq_int(&tu->tu_tries) != 0);
	before = tu->tu_tries;
	KT_EQ(xenstore_read(NULL, DIR, "late", &value, NULL), ETIMEDOUT);
	KT_LESS(tu->tu_tries - before, 3);
	atomic_store_rel_int(&tu->tu_done, 1);
}

static void
takes_turns(void)
{
	struct turns tu = { 0 };
	struct ktest_thread *first;

	first = ktest_spawn(take_turn, &tu, 0, 0, PWAIT);
	take_turn(&tu, 1);
	ktest_join(first);
}

/* xenstored writes invalid data: every request from then on fails. */
static void
ring_breaks(void)
{
	volatile struct xenstore_domain_interface *intf;
	uint64_t pfn = 0;
	char *value;
	int error;

	KT_EQ(xen_get_param(HVM_PARAM_STORE_PFN, &pfn), 0);
	intf = pmap_mapdev_attr(ptoa(pfn), PAGE_SIZE, VM_MEMATTR_WRITE_BACK);
	atomic_store_32(&intf->rsp_cons, atomic_load_32(&intf->rsp_prod) + 1);
	error = xenstore_read(NULL, "domid", NULL, &value, NULL);
	KT_TRUE(error == EIO);
	KT_EQ(xenstore_write(NULL, DIR, "late", "x"), EIO);
	pmap_unmapdev(__DEVOLATILE(void *, intf), PAGE_SIZE);
}

/* More requests than the ring takes, each of which times out: none of them breaks it. */
static void
fills_the_ring(void)
{
	char name[FILLER + 1], *value;
	u_int i;

	memset(name, 'n', FILLER);
	name[FILLER] = '\0';
	for (i = 0; i < FILLS; i++)
		KT_EQ(xenstore_read(NULL, DIR, name, &value, NULL), ETIMEDOUT);
}

/* Transactions that timed out are ended later, as xenstore allows only a few at a time. */
static int
nothing_tx(struct xenstore_tx *tx __unused, void *arg __unused)
{

	return (0);
}

static void
begins_in_vain(void)
{
	u_int i;

	for (i = 0; i < BEGUN; i++)
		KT_EQ(xenstore_transaction(nothing_tx, NULL), ETIMEDOUT);
}

static void
transacts_again(void)
{
	u_int i;

	for (i = 0; i < BEGUN; i++)
		KT_EQ(xenstore_transaction(nothing_tx, NULL), 0);
}

#define	WATCHES	200	/* more than xenstored gives to a domain */

static void
many_watches(void)
{
	struct xenstore_watch *w;
	char name[16];
	u_int calls, i;

	w = malloc(WATCHES * sizeof(*w), M_KTEST, M_WAITOK | M_ZERO);
	memset(&seen, 0, sizeof(seen));
	for (i = 0; i < WATCHES; i++) {
		w[i].xw_changed = seen_change;
		snprintf(name, sizeof(name), "w%u", i);
		KT_EQ(xenstore_watch_add(&w[i], DIR, name), 0);
	}
	KT_WAIT(seen.calls > 10);
	calls = seen.calls;
	KT_LESS(calls, WATCHES);
	for (i = 0; i < WATCHES / 2; i++)
		xenstore_watch_remove(&w[i]);
	/* Those that were refused have their first event yet to come. */
	KT_WAIT(seen.calls >= WATCHES);
	for (; i < WATCHES; i++)
		xenstore_watch_remove(&w[i]);
	free(w, M_KTEST);
}

/* Those for which dom0 has to do something. */
const struct ktest_case xtest_dom0_cases[] = {
	{ "long.directory", long_directory },
	{ "timeout.ends_requests", ends_requests },
	{ "timeout.takes_turns", takes_turns },
	{ "timeout.begins_in_vain", begins_in_vain },
	{ "timeout.fills_the_ring", fills_the_ring },
	{ "again.transactions", transacts_again },
	{ "broken.ring", ring_breaks },
	{ "refused.watches", many_watches },
	{ NULL, NULL }
};
