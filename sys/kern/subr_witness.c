/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * witness(4): which locks a thread holds, and in which order locks are taken.
 *
 * Held locks.  Each thread has a list of the sleepable and blocking locks that it holds, each CPU
 * one of its spin locks, in the order in which they were taken, with file and line.  witness_warn()
 * checks that a thread holds no lock that its next operation does not allow.
 *
 * Order.  Locks of one type, which is a name and a class, are one node of a graph.  Taking a lock
 * of type B while holding one of type A adds the edge A -> B.  w_before holds the transitive
 * closure, so that the usual question, whether all the orders are known, is one bit a held lock.
 * A lock whose type comes before that of a held one is a lock order reversal.  Giant and locks
 * that may be held while asleep have no order, as a thread that sleeps releases Giant.
 *
 * Locks that are initialised without lock_init() (sched_lock, the callout lock ...) are leaves and
 * are not watched unless they have LO_WITNESS.
 *
 * debug.witness.kdb decides whether a finding is a panic (there is no debugger here) or a message that
 * goes to debug.witness.output_channel.  The first messages are kept for debug.witness.badstacks.
 *
 * Locking.  w_lock guards additions to types, edges and kept findings.  They are only ever added, and
 * are read without it.  A list of held locks is its thread's, or its CPU's with interrupts off.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kdb.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/sysctl.h>
#include <sys/syslog.h>

#include <machine/cpu.h>
#include <machine/stdarg.h>

#include <kern/sched_tree.h>

#define	W_TYPES		1024
#define	W_EDGES		3072
#define	W_HELD		32
#define	W_HASH		256
#define	W_WORDS		(W_TYPES / 64)
#define	W_FINDINGS	16		/* that are kept, */
#define	W_FINDING	512		/* of so many bytes at most */

/* A type of lock. */
struct witness {
	char			w_name[44];	/* a copy: the lock may go */
	struct lock_class	*w_class;
	struct witness		*w_next;	/* of the same hash value */
	u_int			w_index;
};

/* An order that was seen, and where. */
struct witness_edge {
	u_short	we_first;
	u_short	we_second;
	int	we_line[2];
	char	we_file[2][24];		/* copies: the module may go */
};

struct lock_instance {
	struct lock_object	*li_lock;
	const char		*li_file;
	int			li_line;
	u_int			li_flags;
};
#define	LI_RECURSEMASK	0x0000ffff
#define	LI_EXCLUSIVE	0x00010000
#define	LI_NORELEASE	0x00020000

struct lock_list_entry {
	u_int			ll_count;
	struct lock_instance	ll_held[W_HELD];
};

static MALLOC_DEFINE(M_WITNESS, "Witness", "locks that a thread holds");

static struct witness w_types[W_TYPES];
static u_int w_ntypes;
static struct witness *w_hash[W_HASH];
static uint64_t w_before[W_TYPES][W_WORDS];	/* [a] has bit b: a is taken before b */
static struct witness_edge w_edges[W_EDGES];
static u_int w_nedges;
static char w_findings[W_FINDINGS][W_FINDING];
static volatile u_int w_nfindings;
static volatile u_int w_lock;

static struct lock_list_entry w_thread0;
static struct lock_list_entry w_spin[MAXCPU];

static SYSCTL_NODE(_debug, OID_AUTO, witness, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL,
    "Witness Locking");

static int witness_watch = 1;
SYSCTL_INT(_debug_witness, OID_AUTO, watch, CTLFLAG_RWTUN, &witness_watch, 0,
    "Check lock order and held locks (0: no)");

/* Read when sysctls are registered: one CPU runs, and holds no spin lock. */
static int witness_skipspin;
SYSCTL_INT(_debug_witness, OID_AUTO, skipspin, CTLFLAG_RDTUN, &witness_skipspin, 0,
    "Do not check spin locks");

static int witness_kdb = 1;
SYSCTL_INT(_debug_witness, OID_AUTO, kdb, CTLFLAG_RWTUN, &witness_kdb, 0,
    "Panic at a finding (0: print it)");

static int witness_trace = 1;
SYSCTL_INT(_debug_witness, OID_AUTO, trace, CTLFLAG_RWTUN, &witness_trace, 0,
    "Print a stack trace with a finding");

static enum w_channel {
	W_CHANNEL_CONSOLE,
	W_CHANNEL_LOG,
	W_CHANNEL_NONE,
} witness_channel = W_CHANNEL_CONSOLE;

static const char *const w_channels[] = {
	[W_CHANNEL_CONSOLE] = "console",
	[W_CHANNEL_LOG] = "log",
	[W_CHANNEL_NONE] = "none",
};

static int
sysctl_witness_channel(SYSCTL_HANDLER_ARGS)
{
	char name[16];
	u_int i;
	int error;

	strlcpy(name, w_channels[witness_channel], sizeof(name));
	error = sysctl_handle_string(oidp, name, sizeof(name), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	for (i = 0; i < nitems(w_channels); i++) {
		if (strcmp(name, w_channels[i]) == 0) {
			witness_channel = i;
			return (0);
		}
	}
	return (EINVAL);
}
SYSCTL_PROC(_debug_witness, OID_AUTO, output_channel, CTLTYPE_STRING | CTLFLAG_RWTUN |
    CTLFLAG_MPSAFE, NULL, 0, sysctl_witness_channel, "A",
    "Where findings that are no panic go: console, log or none");

static bool
witness_off(void)
{
	return (witness_watch <= 0 || SCHEDULER_STOPPED() || KERNEL_PANICKED());
}

static void
w_enter(void)
{
	spinlock_enter();
	while (atomic_cmpset_acq_int(&w_lock, 0, 1) == 0)
		cpu_spinwait();
}

static void
w_leave(void)
{
	atomic_store_rel_int(&w_lock, 0);
	spinlock_exit();
}

static bool
w_is_before(const struct witness *a, const struct witness *b)
{
	return ((w_before[a->w_index][b->w_index / 64] & 1ul << (b->w_index % 64)) != 0);
}

/*
 * The type of that name, which is new if need be; NULL when there are too many.  Locks of two classes
 * can't be of one type.
 */
static struct witness *
w_enroll(const char *name, struct lock_class *class)
{
	struct witness *w;
	u_int hash = 5381;
	const char *p;

	for (p = name; *p != '\0' && p < name + sizeof(w->w_name) - 1; p++)
		hash = hash * 33 + (u_char)*p;
	hash %= W_HASH;
	w_enter();
	for (w = w_hash[hash]; w != NULL; w = w->w_next)
		if (strncmp(w->w_name, name, sizeof(w->w_name) - 1) == 0)
			break;
	if (w == NULL && w_ntypes < W_TYPES) {
		w = &w_types[w_ntypes];
		strlcpy(w->w_name, name, sizeof(w->w_name));
		w->w_class = class;
		w->w_index = w_ntypes++;
		w->w_next = w_hash[hash];
		w_hash[hash] = w;
	}
	w_leave();
	if (w != NULL && w->w_class != class)
		panic("lock type %s: a %s lock, and there is a %s lock of that name", name,
		    class->lc_name, w->w_class->lc_name);
	return (w);
}

/* Called by lock_init(), and for a statically initialised lock whose order matters. */
void
witness_init(struct lock_object *lock, const char *type)
{
	if ((lock->lo_flags & LO_WITNESS) != 0)
		lock->lo_witness = w_enroll(type != NULL ? type : lock->lo_name, LOCK_CLASS(lock));
}

void
witness_destroy(struct lock_object *lock)
{
	lock->lo_witness = NULL;
}

void
witness_thread0(void)
{
	thread0.td_sleeplocks = &w_thread0;
}

void
witness_thread_alloc(struct thread *td)
{
	td->td_sleeplocks = malloc(sizeof(*td->td_sleeplocks), M_WITNESS, M_WAITOK | M_ZERO);
}

void
witness_thread_free(struct thread *td)
{
	free(td->td_sleeplocks, M_WITNESS);
	td->td_sleeplocks = NULL;
}

static const char *
w_file(const char *path)
{
	const char *slash;

	if (path == NULL)
		return ("?");
	slash = strrchr(path, '/');
	return (slash != NULL ? slash + 1 : path);
}

/* The list that lock is on when it is held; NULL if it is not watched. */
static struct lock_list_entry *
w_list(const struct lock_object *lock)
{
	if ((lock->lo_flags & LO_WITNESS) == 0)
		return (NULL);
	if ((LOCK_CLASS(lock)->lc_flags & LC_SPINLOCK) != 0)
		return (witness_skipspin != 0 ? NULL : &w_spin[curcpu]);
	return (curthread->td_sleeplocks);
}

static struct lock_instance *
w_find(struct lock_list_entry *list, const struct lock_object *lock)
{
	u_int i;

	for (i = list->ll_count; i-- > 0;)
		if (list->ll_held[i].li_lock == lock)
			return (&list->ll_held[i]);
	return (NULL);
}

static const char *
w_type_name(const struct lock_object *lock)
{
	return (lock->lo_witness != NULL ? lock->lo_witness->w_name : lock->lo_name);
}

static void
w_print_lock(struct sbuf *sb, const struct lock_instance *li)
{
	const struct lock_object *lock = li->li_lock;

	sbuf_printf(sb, "%s %s %s (%s) r = %u (%p) locked @ %s:%d\n",
	    (li->li_flags & LI_EXCLUSIVE) != 0 ? "exclusive" : "shared",
	    LOCK_CLASS(lock)->lc_name, lock->lo_name, w_type_name(lock),
	    li->li_flags & LI_RECURSEMASK, lock, w_file(li->li_file), li->li_line);
}

static void
w_keep_finding(const char *text)
{
	w_enter();
	if (w_nfindings < W_FINDINGS) {
		strlcpy(w_findings[w_nfindings], text, W_FINDING);
		atomic_store_rel_int(&w_nfindings, w_nfindings + 1);
	}
	w_leave();
}

/* A finding, of which sb has the text. */
static void
w_report(struct sbuf *sb, bool fatal)
{
	sbuf_trim(sb);
	sbuf_finish(sb);
	if (fatal || witness_kdb != 0)
		panic("%s", sbuf_data(sb));
	w_keep_finding(sbuf_data(sb));
	switch (witness_channel) {
	case W_CHANNEL_NONE:
		return;
	case W_CHANNEL_LOG:
		log(LOG_NOTICE, "%s\n", sbuf_data(sb));
		return;
	case W_CHANNEL_CONSOLE:
		printf("%s\n", sbuf_data(sb));
		break;
	}
	if (witness_trace != 0)
		kdb_backtrace();
}

/* Prints the orders that lead from a to b. */
static void
w_print_path(struct sbuf *sb, const struct witness *a, const struct witness *b)
{
	const struct witness_edge *we;
	const struct witness *next;
	u_int i, hops;

	for (hops = 0; a != b && hops < 16; hops++) {
		for (i = 0; i < w_nedges; i++) {
			we = &w_edges[i];
			next = &w_types[we->we_second];
			if (we->we_first == a->w_index && (next == b || w_is_before(next, b)))
				break;
		}
		if (i == w_nedges)
			break;
		sbuf_printf(sb, "lock order %s -> %s established at %s:%d, then %s:%d\n",
		    a->w_name, next->w_name, we->we_file[0], we->we_line[0], we->we_file[1],
		    we->we_line[1]);
		a = next;
	}
}

static void
w_report_order(const char *what, const struct lock_instance *held, struct lock_object *lock,
    const char *file, int line)
{
	char buf[1024];
	struct sbuf sb;

	sbuf_new(&sb, buf, sizeof(buf), SBUF_FIXEDLEN);
	sbuf_printf(&sb, "%s\n 1st %p %s (%s, %s) @ %s:%d\n 2nd %p %s (%s, %s) @ %s:%d\n", what,
	    held->li_lock, held->li_lock->lo_name, w_type_name(held->li_lock),
	    LOCK_CLASS(held->li_lock)->lc_name, w_file(held->li_file), held->li_line,
	    lock, lock->lo_name, w_type_name(lock), LOCK_CLASS(lock)->lc_name, w_file(file), line);
	if (lock->lo_witness != NULL && held->li_lock->lo_witness != NULL)
		w_print_path(&sb, lock->lo_witness, held->li_lock->lo_witness);
	w_report(&sb, false);
}

/* Notes that a lock of type b was taken while held, of type a, was. */
static void
w_add_edge(const struct lock_instance *held, struct witness *b, const char *file, int line)
{
	struct witness *a = held->li_lock->lo_witness;
	struct witness_edge *we;
	u_int i, j;

	w_enter();
	if (!w_is_before(a, b) && !w_is_before(b, a) && w_nedges < W_EDGES) {
		we = &w_edges[w_nedges];
		we->we_first = a->w_index;
		we->we_second = b->w_index;
		strlcpy(we->we_file[0], w_file(held->li_file), sizeof(we->we_file[0]));
		strlcpy(we->we_file[1], w_file(file), sizeof(we->we_file[1]));
		we->we_line[0] = held->li_line;
		we->we_line[1] = line;
		w_nedges++;
		for (i = 0; i < w_ntypes; i++) {
			if (i != a->w_index && !w_is_before(&w_types[i], a))
				continue;
			for (j = 0; j < W_WORDS; j++)
				w_before[i][j] |= w_before[b->w_index][j];
			w_before[i][b->w_index / 64] |= 1ul << (b->w_index % 64);
		}
	}
	w_leave();
}

/* Whether lock may be taken while held is; orders that are new are noted. */
static void
w_check_pair(const struct lock_instance *held, struct lock_object *lock, int flags,
    const char *file, int line)
{
	struct lock_object *first = held->li_lock;
	struct witness *a = first->lo_witness, *b = lock->lo_witness;
	bool giant = &Giant.lock_object == lock || &Giant.lock_object == first;

	if ((LOCK_CLASS(lock)->lc_flags & LC_SLEEPLOCK) != 0) {
		bool sleepable = (lock->lo_flags & LO_SLEEPABLE) != 0 && (flags & LOP_NOSLEEP) == 0;
		bool first_sleepable = (first->lo_flags & LO_SLEEPABLE) != 0;

		if (giant && (sleepable || first_sleepable))
			return;
		if ((sleepable && !first_sleepable) || &Giant.lock_object == lock) {
			w_report_order("lock order reversal: (sleepable after non-sleepable)",
			    held, lock, file, line);
			return;
		}
	}
	if (a == NULL || b == NULL)
		return;
	if (a == b) {
		if ((lock->lo_flags & LO_DUPOK) == 0 && (flags & LOP_DUPOK) == 0)
			w_report_order("acquiring duplicate lock of same type:", held, lock, file,
			    line);
	} else if (w_is_before(b, a))
		w_report_order("lock order reversal:", held, lock, file, line);
	else if (!w_is_before(a, b))
		w_add_edge(held, b, file, line);
}

/* A thread that holds lock, as li says, takes it again. */
static void
w_check_recursion(const struct lock_instance *li, struct lock_object *lock, int flags,
    const char *file, int line)
{
	bool was = (li->li_flags & LI_EXCLUSIVE) != 0, is = (flags & LOP_EXCLUSIVE) != 0;

	if (was != is)
		panic("%s lock of (%s) %s @ %s:%d while %s locked from %s:%d",
		    is ? "exclusive" : "shared", LOCK_CLASS(lock)->lc_name, lock->lo_name,
		    w_file(file), line, was ? "exclusively" : "share", w_file(li->li_file),
		    li->li_line);
}

static __noinline void
w_checkorder(struct lock_list_entry *list, struct lock_object *lock, int flags, const char *file,
    int line, struct lock_object *interlock)
{
	struct lock_instance *li;
	u_int i;

	if (witness_off())
		return;
	if (lock->lo_witness == NULL)
		witness_init(lock, NULL);
	li = w_find(list, lock);
	if (li != NULL) {
		w_check_recursion(li, lock, flags, file, line);
		return;
	}
	for (i = 0; i < list->ll_count; i++) {
		li = &list->ll_held[i];
		if (li->li_lock->lo_witness == NULL)
			witness_init(li->li_lock, NULL);
		if (li->li_lock != interlock)
			w_check_pair(li, lock, flags, file, line);
	}
}

/*
 * The current thread is about to wait for lock, which it does not hold unless it recurses.  A spin
 * lock's caller has disabled interrupts.
 *
 * This is called for every lock.  A known order was checked when it was new, and its reverse is not
 * known, so there is nothing more to check.
 */
void
witness_checkorder(struct lock_object *lock, int flags, const char *file, int line,
    struct lock_object *interlock)
{
	struct lock_list_entry *list = w_list(lock);
	const struct witness *a, *b = lock->lo_witness;
	u_int i;

	if (list == NULL)
		return;
	for (i = 0; i < list->ll_count; i++) {
		a = list->ll_held[i].li_lock->lo_witness;
		if (a == NULL || b == NULL || !w_is_before(a, b)) {
			w_checkorder(list, lock, flags, file, line, interlock);
			return;
		}
	}
}

static __noinline void
w_recurse(struct lock_instance *li)
{
	if (!SCHEDULER_STOPPED())
		li->li_flags++;
}

static __noinline void
w_full(const struct lock_object *lock, const char *file, int line)
{
	panic("witness: more than %d locks held when taking %s @ %s:%d", W_HELD, lock->lo_name,
	    w_file(file), line);
}

/* The current thread has taken lock. */
void
witness_lock(struct lock_object *lock, int flags, const char *file, int line)
{
	struct lock_list_entry *list = w_list(lock);
	struct lock_instance *li;

	if (list == NULL)
		return;
	li = w_find(list, lock);
	if (__predict_false(li != NULL)) {
		w_recurse(li);
		return;
	}
	if (__predict_false(list->ll_count == W_HELD)) {
		if (!SCHEDULER_STOPPED())
			w_full(lock, file, line);
		return;
	}
	li = &list->ll_held[list->ll_count++];
	li->li_lock = lock;
	li->li_file = file;
	li->li_line = line;
	li->li_flags = (flags & LOP_EXCLUSIVE) != 0 ? LI_EXCLUSIVE : 0;
}

/* lock's instance; the caller claims to hold it. */
static struct lock_instance *
w_held(struct lock_list_entry *list, struct lock_object *lock, const char *file, int line)
{
	struct lock_instance *li = w_find(list, lock);

	if (li == NULL)
		panic("lock (%s) %s not locked @ %s:%d", LOCK_CLASS(lock)->lc_name, lock->lo_name,
		    w_file(file), line);
	return (li);
}

static __noinline void
w_unlock(struct lock_list_entry *list, struct lock_object *lock, int flags, const char *file,
    int line)
{
	struct lock_instance *li;

	if (SCHEDULER_STOPPED() || KERNEL_PANICKED())
		return;
	li = w_held(list, lock, file, line);
	if (((li->li_flags & LI_EXCLUSIVE) != 0) != ((flags & LOP_EXCLUSIVE) != 0))
		panic("%s unlock of (%s) %s @ %s:%d, locked otherwise @ %s:%d",
		    (flags & LOP_EXCLUSIVE) != 0 ? "exclusive" : "shared",
		    LOCK_CLASS(lock)->lc_name, lock->lo_name, w_file(file), line,
		    w_file(li->li_file), li->li_line);
	if ((li->li_flags & LI_RECURSEMASK) != 0) {
		li->li_flags--;
		return;
	}
	if ((li->li_flags & LI_NORELEASE) != 0)
		panic("forbidden unlock of (%s) %s @ %s:%d", LOCK_CLASS(lock)->lc_name,
		    lock->lo_name, w_file(file), line);
	list->ll_count--;
	for (; li < &list->ll_held[list->ll_count]; li++)
		li[0] = li[1];
}

/* The current thread is about to release lock, mostly the last that it took. */
void
witness_unlock(struct lock_object *lock, int flags, const char *file, int line)
{
	struct lock_list_entry *list = w_list(lock);
	u_int last;

	if (list == NULL)
		return;
	last = list->ll_count - 1;
	if (__predict_true(last < W_HELD && list->ll_held[last].li_lock == lock &&
	    list->ll_held[last].li_flags == ((flags & LOP_EXCLUSIVE) != 0 ? LI_EXCLUSIVE : 0)))
		list->ll_count = last;
	else
		w_unlock(list, lock, flags, file, line);
}

void
witness_upgrade(struct lock_object *lock, int flags __unused, const char *file, int line)
{
	struct lock_list_entry *list = w_list(lock);

	if (list != NULL && !SCHEDULER_STOPPED())
		w_held(list, lock, file, line)->li_flags |= LI_EXCLUSIVE;
}

void
witness_downgrade(struct lock_object *lock, int flags __unused, const char *file, int line)
{
	struct lock_list_entry *list = w_list(lock);

	if (list != NULL && !SCHEDULER_STOPPED())
		w_held(list, lock, file, line)->li_flags &= ~LI_EXCLUSIVE;
}

int
witness_defineorder(struct lock_object *lock1 __unused, struct lock_object *lock2 __unused)
{
	return (0);
}

/* Keep where lock was taken over a sleep that releases it. */
void
witness_save(struct lock_object *lock, const char **filep, int *linep)
{
	struct lock_list_entry *list = w_list(lock);
	struct lock_instance *li = list != NULL ? w_find(list, lock) : NULL;

	*filep = li != NULL ? li->li_file : NULL;
	*linep = li != NULL ? li->li_line : 0;
}

void
witness_restore(struct lock_object *lock, const char *file, int line)
{
	struct lock_list_entry *list = w_list(lock);
	struct lock_instance *li = list != NULL ? w_find(list, lock) : NULL;

	if (li != NULL && file != NULL) {
		li->li_file = file;
		li->li_line = line;
	}
}

static bool
w_exempt(const struct lock_instance *li, int flags, const struct lock_object *lock)
{
	return (li->li_lock == lock ||
	    ((flags & WARN_GIANTOK) != 0 && li->li_lock == &Giant.lock_object) ||
	    ((flags & WARN_SLEEPOK) != 0 && (li->li_lock->lo_flags & LO_SLEEPABLE) != 0));
}

/*
 * Reports what the current thread does, when it holds locks besides lock and those that flags
 * exempts.  Returns their number.
 */
int
witness_warn(int flags, struct lock_object *lock, const char *fmt, ...)
{
	struct lock_list_entry *lists[2] = { curthread->td_sleeplocks, NULL };
	char buf[1024];
	struct sbuf sb;
	va_list ap;
	u_int i, j, n = 0;

	if (lists[0] == NULL || witness_off())
		return (0);
	/* A thread with a spin lock stays on its CPU; without one the CPU's list is not read. */
	if (curthread->td_critnest != 0)
		lists[1] = &w_spin[curcpu];
	else if (lists[0]->ll_count == 0)
		return (0);
	for (i = 0; i < nitems(lists) && lists[i] != NULL; i++)
		for (j = 0; j < lists[i]->ll_count; j++) {
			if (w_exempt(&lists[i]->ll_held[j], flags, lock))
				continue;
			if (n++ == 0) {
				sbuf_new(&sb, buf, sizeof(buf), SBUF_FIXEDLEN);
				va_start(ap, fmt);
				sbuf_vprintf(&sb, fmt, ap);
				va_end(ap);
				sbuf_printf(&sb, " with the following %slocks held:\n",
				    (flags & WARN_SLEEPOK) != 0 ? "non-sleepable " : "");
			}
			w_print_lock(&sb, &lists[i]->ll_held[j]);
		}
	if (n != 0)
		w_report(&sb, (flags & WARN_PANIC) != 0);
	return (n);
}

void
witness_thread_exit(struct thread *td)
{
	MPASS(td == curthread);
	witness_warn(WARN_PANIC, NULL, "thread %s exits", td->td_name);
}

/* Whether the current thread holds lock, also shared, which the lock itself does not record. */
int
witness_is_owned(const struct lock_object *lock)
{
	struct lock_list_entry *list = w_list(lock);

	return (list != NULL && w_find(list, lock) != NULL);
}

void
witness_assert(const struct lock_object *lock, int what, const char *file, int line)
{
	struct lock_list_entry *list = w_list(lock);
	struct lock_instance *li;

	if (list == NULL || witness_off())
		return;
	li = w_find(list, lock);
	if ((what & (LA_LOCKED | LA_SLOCKED | LA_XLOCKED)) == 0) {
		if (li != NULL)
			panic("lock (%s) %s locked @ %s:%d", LOCK_CLASS(lock)->lc_name,
			    lock->lo_name, w_file(file), line);
		return;
	}
	if (li == NULL)
		panic("lock (%s) %s not locked @ %s:%d", LOCK_CLASS(lock)->lc_name, lock->lo_name,
		    w_file(file), line);
	if ((what & LA_SLOCKED) != 0 && (li->li_flags & LI_EXCLUSIVE) != 0)
		panic("lock (%s) %s exclusively locked @ %s:%d", LOCK_CLASS(lock)->lc_name,
		    lock->lo_name, w_file(file), line);
}

static void
w_set_flag(struct lock_object *lock, u_int flag, bool on)
{
	struct lock_list_entry *list = w_list(lock);
	struct lock_instance *li = list != NULL ? w_find(list, lock) : NULL;

	if (li != NULL)
		li->li_flags = on ? li->li_flags | flag : li->li_flags & ~flag;
}

void
witness_norelease(struct lock_object *lock)
{
	w_set_flag(lock, LI_NORELEASE, true);
}

void
witness_releaseok(struct lock_object *lock)
{
	w_set_flag(lock, LI_NORELEASE, false);
}

static int
sysctl_witness_fullgraph(SYSCTL_HANDLER_ARGS)
{
	const struct witness_edge *we;
	struct sbuf sb;
	u_int i;
	int error;

	sbuf_new_for_sysctl(&sb, NULL, 4096, req);
	for (i = 0; i < w_nedges; i++) {
		we = &w_edges[i];
		sbuf_printf(&sb, "\n\"%s\",\"%s\"", w_types[we->we_first].w_name,
		    w_types[we->we_second].w_name);
	}
	error = sbuf_finish(&sb);
	sbuf_delete(&sb);
	return (error);
}
SYSCTL_PROC(_debug_witness, OID_AUTO, fullgraph, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE,
    NULL, 0, sysctl_witness_fullgraph, "A", "Orders of locks that were seen");

/* FreeBSD's has a stack for each; here it is the places where the locks were taken. */
static int
sysctl_witness_badstacks(SYSCTL_HANDLER_ARGS)
{
	u_int i, n = atomic_load_acq_int(&w_nfindings);
	struct sbuf sb;
	int error;

	sbuf_new_for_sysctl(&sb, NULL, 4096, req);
	for (i = 0; i < n; i++)
		sbuf_printf(&sb, "\n%s", w_findings[i]);
	error = sbuf_finish(&sb);
	sbuf_delete(&sb);
	return (error);
}
SYSCTL_PROC(_debug_witness, OID_AUTO, badstacks, CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE,
    NULL, 0, sysctl_witness_badstacks, "A", "The first findings that were no panic");
