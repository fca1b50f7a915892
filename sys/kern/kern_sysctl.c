/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sysctl(9): the tree of named values.
 *
 * An entry (oid) is in its parent's tree, by number.  Entries are made at compile time (linker
 * set sysctl_set; a module's by the linker) or at run time (sysctl_add_oid(9)), the latter usually
 * listed in a context so that they can be removed together.  An entry that several owners added
 * under one name is counted, and removed with the last.
 *
 * An entry with CTLFLAG_TUN takes its first value from the kernel environment, under its whole
 * name, when it is registered.
 *
 * Locking.  sysctl_lock guards the tree: shared to look something up, exclusive to change it.  A
 * handler runs without it; oid_running counts the running handlers of an entry, and removal waits
 * for them.  CTLFLAG_NEEDGIANT handlers run under Giant.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/kenv.h>
#include <sys/limits.h>
#include <sys/linker_set.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <kern/sysctl_tree.h>

static MALLOC_DEFINE(M_SYSCTL, "sysctl", "sysctl internal magic");
static MALLOC_DEFINE(M_SYSCTLOID, "sysctloid", "sysctl dynamic oids");

RB_GENERATE(sysctl_oid_list, sysctl_oid, oid_link, cmp_sysctl_oid);

struct sysctl_oid_list sysctl__children = RB_INITIALIZER(&sysctl__children);
SET_DECLARE(sysctl_set, struct sysctl_oid);

/* Usable from the start, as UMA's zones add entries early (class 2 is sx, subr_lock.c). */
static struct sx sysctl_lock = {
	.lock_object = {
		.lo_name = "sysctl lock",
		.lo_flags = LO_INITIALIZED | LO_SLEEPABLE | LO_WITNESS | (2 << LO_CLASSSHIFT),
	},
	.sx_lock = SX_LOCK_UNLOCKED,
};

void
sysctl_wlock(void)
{
	sx_xlock(&sysctl_lock);
}

void
sysctl_wunlock(void)
{
	sx_xunlock(&sysctl_lock);
}

/* Shared, unless this thread holds it exclusively already; returns whether it was taken. */
static bool
sysctl_rlock(void)
{
	if (sx_xlocked(&sysctl_lock))
		return (false);
	sx_slock(&sysctl_lock);
	return (true);
}

struct sysctl_oid *
sysctl_find_name(struct sysctl_oid_list *list, const char *name, size_t len)
{
	struct sysctl_oid *oidp;

	sx_assert(&sysctl_lock, SA_LOCKED);
	SYSCTL_FOREACH(oidp, list)
		if (strncmp(oidp->oid_name, name, len) == 0 && oidp->oid_name[len] == '\0')
			return (oidp);
	return (NULL);
}

/* The whole name of an entry. */
void
sysctl_fullname(struct sysctl_oid *oidp, char *buf, size_t size)
{
	struct sysctl_oid *parent = SYSCTL_PARENT(oidp);

	if (parent != NULL) {
		sysctl_fullname(parent, buf, size);
		strlcat(buf, ".", size);
	} else
		buf[0] = '\0';
	strlcat(buf, oidp->oid_name, size);
}

/*
 * The entry of a full name, with one handler counted so that it stays; NULL if there is none.
 */
struct sysctl_oid *
sysctl_hold(const char *name)
{
	struct sysctl_oid_list *list = &sysctl__children;
	struct sysctl_oid *oidp = NULL;
	size_t len;
	bool locked = sysctl_rlock();

	for (;;) {
		len = strchrnul(name, '.') - name;
		oidp = len == 0 ? oidp : sysctl_find_name(list, name, len);
		if (oidp == NULL || name[len] == '\0' || name[len + 1] == '\0')
			break;
		list = SYSCTL_CHILDREN(oidp);
		name += len + 1;
	}
	if (oidp != NULL && (oidp->oid_kind & CTLFLAG_DYING) != 0)
		oidp = NULL;
	if (oidp != NULL)
		atomic_add_int(&oidp->oid_running, 1);
	if (locked)
		sx_sunlock(&sysctl_lock);
	return (oidp);
}

void
sysctl_release(struct sysctl_oid *oidp)
{
	if (atomic_fetchadd_int(&oidp->oid_running, -1) == 1 &&
	    (oidp->oid_kind & CTLFLAG_DYING) != 0)
		wakeup(&oidp->oid_running);
}

/* The child of parent (NULL: the root) that follows oidp (NULL: the first), held. */
struct sysctl_oid *
sysctl_hold_next(struct sysctl_oid *parent, struct sysctl_oid *oidp)
{
	struct sysctl_oid_list *list = parent != NULL ? SYSCTL_CHILDREN(parent) :
	    &sysctl__children;
	struct sysctl_oid *next;
	bool locked = sysctl_rlock();

	next = oidp != NULL ? RB_NEXT(sysctl_oid_list, list, oidp) :
	    RB_MIN(sysctl_oid_list, list);
	while (next != NULL && (next->oid_kind & (CTLFLAG_DYING | CTLFLAG_DORMANT)) != 0)
		next = RB_NEXT(sysctl_oid_list, list, next);
	if (next != NULL)
		atomic_add_int(&next->oid_running, 1);
	if (locked)
		sx_sunlock(&sysctl_lock);
	return (next);
}

/*
 * A request from and to kernel memory.  Old data that do not fit are counted, not stored.
 */
static int
sysctl_old_kernel(struct sysctl_req *req, const void *p, size_t l)
{
	size_t fits = 0;

	if (req->oldptr != NULL && req->oldidx < req->oldlen) {
		fits = MIN(l, req->oldlen - req->oldidx);
		memcpy((char *)req->oldptr + req->oldidx, p, fits);
	}
	req->oldidx += l;
	return (req->oldptr != NULL && fits < l ? ENOMEM : 0);
}

static int
sysctl_new_kernel(struct sysctl_req *req, void *p, size_t l)
{
	if (req->newptr == NULL)
		return (0);
	if (req->newlen - req->newidx < l)
		return (EINVAL);
	memcpy(p, (const char *)req->newptr + req->newidx, l);
	req->newidx += l;
	return (0);
}

int
sysctl_wire_old_buffer(struct sysctl_req *req __unused, size_t len __unused)
{
	return (0);
}

static void
sysctl_req_init(struct sysctl_req *req, void *old, size_t oldlen, const void *new, size_t newlen)
{
	memset(req, 0, sizeof(*req));
	req->td = curthread;
	req->lock = REQ_UNWIRED;
	req->oldptr = old;
	req->oldlen = req->validlen = oldlen;
	req->newptr = new;
	req->newlen = newlen;
	req->oldfunc = sysctl_old_kernel;
	req->newfunc = sysctl_new_kernel;
}

/* Runs the handler of oidp, which the caller holds. */
static int
sysctl_run(struct sysctl_oid *oidp, struct sysctl_req *req)
{
	bool giant = (oidp->oid_kind & CTLFLAG_MPSAFE) == 0;
	int error;

	if (oidp->oid_handler == NULL)
		return ((oidp->oid_kind & CTLTYPE) == CTLTYPE_NODE ? EISDIR : EINVAL);
	if (req->newptr != NULL && (oidp->oid_kind & CTLFLAG_WR) == 0)
		return (EPERM);
	if (giant)
		mtx_lock(&Giant);
	error = oidp->oid_handler(oidp, oidp->oid_arg1, oidp->oid_arg2, req);
	if (giant)
		mtx_unlock(&Giant);
	return (error);
}

/*
 * Reads (old, *oldlenp) and writes (new, newlen) the entry, which the caller holds.  *oldlenp is
 * set to the length of the data; ENOMEM if it did not fit.
 */
int
sysctl_io(struct sysctl_oid *oidp, void *old, size_t *oldlenp, const void *new, size_t newlen)
{
	struct sysctl_req req;
	int error;

	sysctl_req_init(&req, old, oldlenp != NULL ? *oldlenp : 0, new, newlen);
	error = sysctl_run(oidp, &req);
	if (oldlenp != NULL && (error == 0 || error == ENOMEM))
		*oldlenp = error == 0 ? req.oldidx : MIN(req.oldidx, *oldlenp);
	return (error);
}

/* FreeBSD looks at the credentials of the thread, and process 0 has none before. */
static bool sysctl_credentials;

static void
sysctl_proc0(void *arg __unused)
{
	sysctl_credentials = true;
}
SYSINIT(sysctl_proc0, SI_SUB_INTRINSIC, SI_ORDER_FIRST, sysctl_proc0, NULL);

int
kernel_sysctlbyname(struct thread *td __unused, char *name, void *old, size_t *oldlenp,
    void *new, size_t newlen, size_t *retval, int flags __unused)
{
	struct sysctl_oid *oidp;
	size_t len = oldlenp != NULL ? *oldlenp : 0;
	int error;

	KASSERT(sysctl_credentials, ("%s(%s): before SI_SUB_INTRINSIC", __func__, name));
	oidp = sysctl_hold(name);
	if (oidp == NULL)
		return (ENOENT);
	error = sysctl_io(oidp, old, &len, new, newlen);
	sysctl_release(oidp);
	if (retval != NULL)
		*retval = len;
	else if (oldlenp != NULL)
		*oldlenp = len;
	return (error);
}

/*
 * Tunables: the value in the environment is written as a user would.
 */
static void
sysctl_fetch_tunable(struct sysctl_oid *oidp)
{
	struct sysctl_req req;
	char path[128], *value;
	char raw[sizeof(uint64_t)];
	size_t len;
	int error;

	sysctl_fullname(oidp, path, sizeof(path));
	value = kern_getenv(path);
	if (value == NULL)
		return;
	if ((oidp->oid_kind & CTLTYPE) == CTLTYPE_STRING) {
		sysctl_req_init(&req, NULL, 0, value, strlen(value));
		error = oidp->oid_handler(oidp, oidp->oid_arg1, oidp->oid_arg2, &req);
	} else {
		error = sysctl_parse(oidp, value, raw, &len);
		if (error == 0) {
			sysctl_req_init(&req, NULL, 0, raw, len);
			error = oidp->oid_handler(oidp, oidp->oid_arg1, oidp->oid_arg2, &req);
		}
	}
	if (error != 0)
		printf("Setting sysctl %s to '%s' failed: %d\n", path, value, error);
	freeenv(value);
}

/* Gives oidp a number that its siblings do not have; sysctl_lock is held exclusively. */
static void
sysctl_number(struct sysctl_oid *oidp)
{
	struct sysctl_oid *last;
	static int next_auto = CTL_AUTO_START;

	if (oidp->oid_number >= 0 &&
	    RB_FIND(sysctl_oid_list, oidp->oid_parent, oidp) == NULL)
		return;
	oidp->oid_number = next_auto;
	last = RB_FIND(sysctl_oid_list, oidp->oid_parent, oidp);
	if (last != NULL)
		panic("static sysctl oid too high: %s", oidp->oid_name);
	next_auto++;
}

static void
sysctl_insert(struct sysctl_oid *oidp, bool enabled)
{
	struct sysctl_oid *twin;

	sx_assert(&sysctl_lock, SA_XLOCKED);
	twin = sysctl_find_name(oidp->oid_parent, oidp->oid_name, strlen(oidp->oid_name));
	if (twin != NULL) {
		if ((twin->oid_kind & CTLTYPE) == CTLTYPE_NODE)
			twin->oid_refcnt++;
		else
			printf("can't re-use a leaf (%s)!\n", oidp->oid_name);
		return;
	}
	sysctl_number(oidp);
	if (!enabled)
		oidp->oid_kind |= CTLFLAG_DORMANT;
	oidp->oid_refcnt++;
	RB_INSERT(sysctl_oid_list, oidp->oid_parent, oidp);
	if (enabled && (oidp->oid_kind & CTLTYPE) != CTLTYPE_NODE &&
	    (oidp->oid_kind & (CTLFLAG_TUN | CTLFLAG_NOFETCH)) == CTLFLAG_TUN)
		sysctl_fetch_tunable(oidp);
}

void
sysctl_register_oid(struct sysctl_oid *oidp)
{
	sysctl_insert(oidp, true);
}

void
sysctl_register_disabled_oid(struct sysctl_oid *oidp)
{
	sysctl_insert(oidp, false);
}

void
sysctl_enable_oid(struct sysctl_oid *oidp)
{
	sx_assert(&sysctl_lock, SA_XLOCKED);
	if ((oidp->oid_kind & CTLFLAG_DORMANT) == 0)
		return;
	oidp->oid_kind &= ~CTLFLAG_DORMANT;
	if ((oidp->oid_kind & (CTLFLAG_TUN | CTLFLAG_NOFETCH)) == CTLFLAG_TUN)
		sysctl_fetch_tunable(oidp);
}

/* Removes oidp from the tree and waits until no handler of it is running. */
void
sysctl_unregister_oid(struct sysctl_oid *oidp)
{
	sx_assert(&sysctl_lock, SA_XLOCKED);
	if (RB_FIND(sysctl_oid_list, oidp->oid_parent, oidp) != oidp) {
		/* It had a twin. */
		printf("%s: failed(%d) to unregister sysctl(%s)\n", __func__,
		    oidp->oid_number < 0 ? EINVAL : ENOENT, oidp->oid_name);
		return;
	}
	RB_REMOVE(sysctl_oid_list, oidp->oid_parent, oidp);
	oidp->oid_kind |= CTLFLAG_DYING;
	while (oidp->oid_running != 0) {
		sx_xunlock(&sysctl_lock);
		tsleep(&oidp->oid_running, PWAIT, "oidrm", 1);
		sx_xlock(&sysctl_lock);
	}
}

struct sysctl_oid *
sysctl_add_oid(struct sysctl_ctx_list *clist, struct sysctl_oid_list *parent, int number,
    const char *name, int kind, void *arg1, intmax_t arg2,
    int (*handler)(SYSCTL_HANDLER_ARGS), const char *fmt, const char *descr, const char *label)
{
	struct sysctl_oid *oidp;

	if (parent == NULL)
		return (NULL);
	sysctl_wlock();
	oidp = sysctl_find_name(parent, name, strlen(name));
	if (oidp != NULL) {
		if ((oidp->oid_kind & CTLTYPE) != CTLTYPE_NODE) {
			sysctl_wunlock();
			printf("can't re-use a leaf (%s)!\n", name);
			return (NULL);
		}
		oidp->oid_refcnt++;
		if (clist != NULL)
			sysctl_ctx_entry_add(clist, oidp);
		sysctl_wunlock();
		return (oidp);
	}
	oidp = malloc(sizeof(*oidp), M_SYSCTLOID, M_WAITOK | M_ZERO);
	RB_INIT(&oidp->oid_children);
	oidp->oid_parent = parent;
	oidp->oid_number = number;
	oidp->oid_kind = CTLFLAG_DYN | kind;
	oidp->oid_arg1 = arg1;
	oidp->oid_arg2 = arg2;
	oidp->oid_name = strdup(name, M_SYSCTLOID);
	oidp->oid_handler = handler;
	oidp->oid_fmt = fmt;
	if (descr != NULL)
		oidp->oid_descr = strdup(descr, M_SYSCTLOID);
	if (label != NULL)
		oidp->oid_label = strdup(label, M_SYSCTLOID);
	if (clist != NULL)
		sysctl_ctx_entry_add(clist, oidp);
	sysctl_insert(oidp, true);
	sysctl_wunlock();
	return (oidp);
}

static void
sysctl_free(struct sysctl_oid *oidp)
{
	free(__DECONST(char *, oidp->oid_name), M_SYSCTLOID);
	free(__DECONST(char *, oidp->oid_descr), M_SYSCTLOID);
	free(__DECONST(char *, oidp->oid_label), M_SYSCTLOID);
	free(oidp, M_SYSCTLOID);
}

/* del: really; recurse: with its children.  sysctl_lock is held exclusively. */
static int
sysctl_remove_locked(struct sysctl_oid *oidp, int del, int recurse)
{
	struct sysctl_oid *child, *next;
	int error;

	if ((oidp->oid_kind & CTLFLAG_DYN) == 0) {
		printf("Warning: can't remove non-dynamic nodes (%s)!\n", oidp->oid_name);
		return (EINVAL);
	}
	if ((oidp->oid_kind & CTLTYPE) == CTLTYPE_NODE && oidp->oid_refcnt == 1) {
		RB_FOREACH_SAFE(child, sysctl_oid_list, SYSCTL_CHILDREN(oidp), next) {
			if (!recurse) {
				printf("Warning: failed attempt to remove oid %s with child %s\n",
				    oidp->oid_name, child->oid_name);
				return (ENOTEMPTY);
			}
			error = sysctl_remove_locked(child, del, recurse);
			if (error != 0)
				return (error);
		}
	}
	if (!del)
		return (0);
	if (oidp->oid_refcnt > 1) {
		oidp->oid_refcnt--;
		return (0);
	}
	oidp->oid_refcnt = 0;
	sysctl_unregister_oid(oidp);
	sysctl_free(oidp);
	return (0);
}

int
sysctl_remove_oid(struct sysctl_oid *oidp, int del, int recurse)
{
	int error;

	sysctl_wlock();
	error = sysctl_remove_locked(oidp, del, recurse);
	sysctl_wunlock();
	return (error);
}

int
sysctl_remove_name(struct sysctl_oid *parent, const char *name, int del, int recurse)
{
	struct sysctl_oid *oidp;
	int error = ENOENT;

	sysctl_wlock();
	oidp = sysctl_find_name(SYSCTL_CHILDREN(parent), name, strlen(name));
	if (oidp != NULL)
		error = sysctl_remove_locked(oidp, del, recurse);
	sysctl_wunlock();
	return (error);
}

void
sysctl_rename_oid(struct sysctl_oid *oidp, const char *name)
{
	char *new = strdup(name, M_SYSCTLOID);
	const char *old;

	sysctl_wlock();
	old = oidp->oid_name;
	oidp->oid_name = new;
	sysctl_wunlock();
	free(__DECONST(char *, old), M_SYSCTLOID);
}

/*
 * Contexts: lists of entries that one owner made.
 */
int
sysctl_ctx_init(struct sysctl_ctx_list *clist)
{
	if (clist == NULL)
		return (EINVAL);
	TAILQ_INIT(clist);
	return (0);
}

struct sysctl_ctx_entry *
sysctl_ctx_entry_add(struct sysctl_ctx_list *clist, struct sysctl_oid *oidp)
{
	struct sysctl_ctx_entry *e;

	e = malloc(sizeof(*e), M_SYSCTL, M_WAITOK);
	e->entry = oidp;
	TAILQ_INSERT_HEAD(clist, e, link);
	return (e);
}

struct sysctl_ctx_entry *
sysctl_ctx_entry_find(struct sysctl_ctx_list *clist, struct sysctl_oid *oidp)
{
	struct sysctl_ctx_entry *e;

	TAILQ_FOREACH(e, clist, link)
		if (e->entry == oidp)
			return (e);
	return (NULL);
}

int
sysctl_ctx_entry_del(struct sysctl_ctx_list *clist, struct sysctl_oid *oidp)
{
	struct sysctl_ctx_entry *e = sysctl_ctx_entry_find(clist, oidp);

	if (e == NULL)
		return (ENOENT);
	TAILQ_REMOVE(clist, e, link);
	free(e, M_SYSCTL);
	return (0);
}

/* Removes the entries, latest first; all of them, or none if one has children of others. */
int
sysctl_ctx_free(struct sysctl_ctx_list *clist)
{
	struct sysctl_ctx_entry *e;
	int error = 0;

	sysctl_wlock();
	while (error == 0 && (e = TAILQ_FIRST(clist)) != NULL) {
		error = sysctl_remove_locked(e->entry, 1, 0);
		if (error == 0) {
			TAILQ_REMOVE(clist, e, link);
			free(e, M_SYSCTL);
		}
	}
	sysctl_wunlock();
	return (error);
}

/*
 * sbuf(9) whose contents are copied out as the request's old data.
 */
static int
sysctl_sbuf_drain(void *arg, const char *data, int len)
{
	struct sysctl_req *req = arg;
	int error;

	error = SYSCTL_OUT(req, data, len);
	return (error != 0 ? -error : len);
}

struct sbuf *
sbuf_new_for_sysctl(struct sbuf *s, char *buf, int length, struct sysctl_req *req)
{
	s = sbuf_new(s, buf, length, SBUF_FIXEDLEN | SBUF_INCLUDENUL);
	if (s != NULL)
		sbuf_set_drain(s, sysctl_sbuf_drain, req);
	return (s);
}

static void
sysctl_register_all(void *arg __unused)
{
	struct sysctl_oid **oidp;

	sysctl_wlock();
	SET_FOREACH(oidp, sysctl_set)
		sysctl_register_oid(*oidp);
	sysctl_wunlock();
}
SYSINIT(sysctl, SI_SUB_KMEM + 1, SI_ORDER_SECOND, sysctl_register_all, NULL);
