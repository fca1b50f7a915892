/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore: requests.  xenstore.h describes what they do, xs_wire.h their
 * format; the ring that carries them is xenstore_ring.c, and watches are
 * xenstore_watch.c.
 *
 * Turns.  While xenstore does not answer, threads that try again and again
 * would leave the lock to nobody else: sx(9) gives it to who comes first, not
 * to who waits.  So it is taken in turns, and a thread that detaches a device
 * or suspends the domain waits for those before it only.
 *
 * Locking.  xenstore_lock (sx): one request at a time, and none while the
 * domain is suspended.  xenstore_turn_mtx (mutex): whose turn it is.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sbuf.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>
#include <machine/stdarg.h>

#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore_var.h>

#define	XENSTORE_TRIES		100	/* of a transaction,
					 * or of reading a long directory */
#define	XENSTORE_LIST_MAX	(1024 * 1024)	/* bytes of names */
#define	XENSTORE_VALUE_MAX	256	/* of xenstore_printf() */

struct xenstore_tx {
	uint32_t	xt_id;
	u_int		xt_life;
};

static struct sx xenstore_lock;
SX_SYSINIT(xenstore, &xenstore_lock, "xenstore");

static struct mtx xenstore_turn_mtx;
MTX_SYSINIT(xenstore_turn, &xenstore_turn_mtx, "xenstore turn", MTX_DEF);
static u_int xenstore_turns, xenstore_turn;	/* given, and whose it is */

static device_t xenstore_dev;
static char xenstore_home_path[sizeof("/local/domain/65535")];
static u_int xenstore_life;	/* suspensions so far; under xenstore_lock */
static uint64_t xenstore_conflicts, xenstore_timeouts;
static const struct xenstore_watcher *xenstore_watcher;

static void
xenstore_enter(void)
{
	u_int turn;

	mtx_lock(&xenstore_turn_mtx);
	turn = xenstore_turns++;
	while (turn != xenstore_turn)
		msleep(&xenstore_turn, &xenstore_turn_mtx, 0, "xsturn", 0);
	mtx_unlock(&xenstore_turn_mtx);
	sx_xlock(&xenstore_lock);
}

static void
xenstore_leave(void)
{

	sx_xunlock(&xenstore_lock);
	mtx_lock(&xenstore_turn_mtx);
	xenstore_turn++;
	wakeup(&xenstore_turn);
	mtx_unlock(&xenstore_turn_mtx);
}

void
xenstore_set_watcher(const struct xenstore_watcher *watcher)
{

	atomic_store_rel_ptr((volatile uintptr_t *)&xenstore_watcher,
	    (uintptr_t)watcher);
}

static void
xenstore_event(const char *path, const char *token)
{
	const struct xenstore_watcher *watcher =
	    atomic_load_ptr(&xenstore_watcher);

	if (watcher != NULL)
		watcher->xsw_event(path, token);
}

/* xenstore may not have our watches any more. */
static void
xenstore_set_watches(void)
{
	const struct xenstore_watcher *watcher =
	    atomic_load_ptr(&xenstore_watcher);

	if (watcher != NULL)
		watcher->xsw_again();
}

void
xenstore_free(void *memory)
{

	free(memory, M_XEN);
}

char *
xenstore_join(const char *dir, const char *name)
{
	size_t len;
	char *path;

	if (name == NULL)
		name = "";
	len = strlen(dir) + 1 + strlen(name) + 1;
	if (len > XENSTORE_ABS_PATH_MAX)
		return (NULL);
	path = malloc(len, M_XEN, M_WAITOK);
	snprintf(path, len, "%s%s%s", dir, dir[0] != '\0' &&
	    name[0] != '\0' ? "/" : "", name);
	return (path);
}

/* End the transactions that were begun for requests that had timed out. */
static void
xenstore_end_orphans(void)
{
	struct xenstore_piece piece = { "F", 2 };
	const char *answer;
	size_t len;
	uint32_t id;

	while ((id = xenstore_orphan()) != 0) {
		if (xenstore_ring_talk(XS_TRANSACTION_END, id, &piece, 1,
		    &answer, &len) == ETIMEDOUT)
			return;
	}
}

int
xenstore_talk(struct xenstore_tx *tx, uint32_t type,
    const struct xenstore_piece *pieces, u_int n, char **reply, size_t *len)
{
	const char *answer;
	size_t got;
	int error;

	xenstore_enter();
	/*
	 * A transaction that was begun before a suspension does not exist any
	 * more.
	 */
	if (tx != NULL && tx->xt_life != xenstore_life) {
		xenstore_leave();
		return (EAGAIN);
	}
	xenstore_end_orphans();
	error = xenstore_ring_talk(type, tx != NULL ? tx->xt_id : 0, pieces, n,
	    &answer, &got);
	if (error == 0 && reply != NULL) {
		*reply = malloc(got + 1, M_XEN, M_WAITOK);
		memcpy(*reply, answer, got);
		(*reply)[got] = '\0';
	}
	if (error == 0 && len != NULL)
		*len = got;
	if (error == ETIMEDOUT)
		xenstore_timeouts++;
	else if (xenstore_doubt())
		xenstore_set_watches();
	xenstore_leave();
	return (error);
}

/* A request about a node: its path, terminated, and up to one piece more. */
static int
xenstore_ask(struct xenstore_tx *tx, uint32_t type, const char *dir,
    const char *name, const void *more, size_t more_len, char **reply,
    size_t *len)
{
	struct xenstore_piece pieces[2];
	char *path;
	int error;

	path = xenstore_join(dir, name);
	if (path == NULL)
		return (ENAMETOOLONG);
	pieces[0] = (struct xenstore_piece){ path, strlen(path) + 1 };
	pieces[1] = (struct xenstore_piece){ more, more_len };
	error = xenstore_talk(tx, type, pieces, more == NULL ? 1 : 2, reply,
	    len);
	free(path, M_XEN);
	return (error);
}

int
xenstore_read(struct xenstore_tx *tx, const char *dir, const char *name,
    char **value, size_t *len)
{

	return (xenstore_ask(tx, XS_READ, dir, name, NULL, 0, value, len));
}

int
xenstore_write(struct xenstore_tx *tx, const char *dir, const char *name,
    const char *value)
{

	return (xenstore_ask(tx, XS_WRITE, dir, name, value, strlen(value),
	    NULL, NULL));
}

int
xenstore_printf(struct xenstore_tx *tx, const char *dir, const char *name,
    const char *fmt, ...)
{
	char value[XENSTORE_VALUE_MAX];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(value, sizeof(value), fmt, ap);
	va_end(ap);
	if (len < 0 || len >= (int)sizeof(value))
		return (E2BIG);
	return (xenstore_write(tx, dir, name, value));
}

int
xenstore_remove(struct xenstore_tx *tx, const char *dir, const char *name)
{
	int error;

	error = xenstore_ask(tx, XS_RM, dir, name, NULL, 0, NULL, NULL);
	return (error == ENOENT ? 0 : error);
}

int
xenstore_exists(struct xenstore_tx *tx, const char *dir, const char *name,
    bool *exists)
{
	int error;

	error = xenstore_ask(tx, XS_READ, dir, name, NULL, 0, NULL, NULL);
	*exists = error == 0;
	return (xenstore_is_missing(error) ? 0 : error);
}

/*
 * One part of a directory that does not fit into a message:
 * "generation\0name\0name\0", and, at its end, one NUL more.
 */
static int
xenstore_list_part(struct xenstore_tx *tx, const char *dir, const char *name,
    size_t off, char *generation, size_t gen_size, struct sbuf *sb, bool *end)
{
	char offset[20];
	char *part;
	size_t gen, len;
	int error;

	snprintf(offset, sizeof(offset), "%zu", off);
	error = xenstore_ask(tx, XS_DIRECTORY_PART, dir, name, offset,
	    strlen(offset) + 1, &part, &len);
	if (error != 0)
		return (error);
	gen = strlen(part);
	if (gen == 0 || gen >= len || gen >= gen_size)
		error = EIO;
	else if (off != 0 && strcmp(part, generation) != 0)
		error = EAGAIN;
	else {
		strlcpy(generation, part, gen_size);
		part += gen + 1;
		len -= gen + 1;
		*end = len > 0 && part[len - 1] == '\0' &&
		    (len == 1 || part[len - 2] == '\0');
		if (*end)
			len--;
		else if (len == 0 || part[len - 1] != '\0')
			error = EIO;
		(void)sbuf_bcat(sb, part, len);
		part -= gen + 1;
	}
	free(part, M_XEN);
	if (error == 0 && sbuf_len(sb) > XENSTORE_LIST_MAX)
		error = E2BIG;
	return (error);
}

/*
 * A long directory, part by part, and from its beginning if it changed
 * meanwhile.
 */
static int
xenstore_list_long(struct xenstore_tx *tx, const char *dir, const char *name,
    struct sbuf *sb)
{
	char generation[24];
	int error, tries;
	bool end;

	for (tries = 0; tries < XENSTORE_TRIES; tries++) {
		sbuf_clear(sb);
		do
			error = xenstore_list_part(tx, dir, name, sbuf_len(sb),
			    generation, sizeof(generation), sb, &end);
		while (error == 0 && !end);
		if (error != EAGAIN)
			return (error);
	}
	return (EAGAIN);
}

/*
 * Names, each terminated, become an array of pointers and the names behind it.
 */
static int
xenstore_list_split(const char *text, size_t len, char ***names, u_int *count)
{
	char **array, *copy;
	size_t i;
	u_int n;

	if (len > 0 && text[len - 1] != '\0')
		return (EIO);
	n = 0;
	for (i = 0; i < len; i++)
		n += text[i] == '\0' ? 1 : 0;
	array = malloc((n + 1) * sizeof(*array) + len, M_XEN,
	    M_WAITOK | M_ZERO);
	copy = (char *)(array + n + 1);
	memcpy(copy, text, len);
	for (i = 0; i < n; i++, copy += strlen(copy) + 1)
		array[i] = copy;
	*names = array;
	if (count != NULL)
		*count = n;
	return (0);
}

int
xenstore_list(struct xenstore_tx *tx, const char *dir, const char *name,
    char ***names, u_int *count)
{
	struct sbuf *sb;
	char *reply;
	size_t len;
	int error;

	error = xenstore_ask(tx, XS_DIRECTORY, dir, name, NULL, 0, &reply,
	    &len);
	if (error == 0) {
		error = xenstore_list_split(reply, len, names, count);
		free(reply, M_XEN);
		return (error);
	}
	if (error != E2BIG)
		return (error);
	sb = sbuf_new_auto();
	error = xenstore_list_long(tx, dir, name, sb);
	len = sbuf_len(sb);
	if (sbuf_finish(sb) != 0 && error == 0)
		error = ENOMEM;
	if (error == 0)
		error = xenstore_list_split(sbuf_data(sb), len, names, count);
	sbuf_delete(sb);
	return (error);
}

static int
xenstore_begin(struct xenstore_tx *tx)
{
	struct xenstore_piece piece = { "", 1 };
	char *end, *reply;
	u_long id;
	int error;

	/*
	 * Read before: if it changes meanwhile, this one fails with the first
	 * thing that it does.
	 */
	tx->xt_life = atomic_load_acq_int(&xenstore_life);
	error = xenstore_talk(NULL, XS_TRANSACTION_START, &piece, 1, &reply,
	    NULL);
	if (error != 0)
		return (error);
	id = strtoul(reply, &end, 10);
	if (end == reply || *end != '\0' || id == 0 || id > UINT32_MAX)
		error = EIO;
	tx->xt_id = id;
	free(reply, M_XEN);
	return (error);
}

static int
xenstore_end(struct xenstore_tx *tx, bool commit)
{
	struct xenstore_piece piece = { commit ? "T" : "F", 2 };
	int error;

	error = xenstore_talk(tx, XS_TRANSACTION_END, &piece, 1, NULL, NULL);
	/*
	 * It may not have been sent.  Ending a transaction twice is answered by
	 * ENOENT.
	 */
	if (error == ETIMEDOUT)
		xenstore_abandon(tx->xt_id);
	return (error);
}

int
xenstore_transaction(int (*fn)(struct xenstore_tx *tx, void *arg), void *arg)
{
	struct xenstore_tx tx;
	int error, tries;

	for (tries = 0; tries < XENSTORE_TRIES; tries++) {
		error = xenstore_begin(&tx);
		if (error != 0)
			return (error);
		error = fn(&tx, arg);
		if (error != 0) {
			(void)xenstore_end(&tx, false);
			/* A read may be where xenstore notices it. */
			if (error != EAGAIN)
				return (error);
		} else {
			error = xenstore_end(&tx, true);
			if (error != EAGAIN)
				return (error);
		}
		xenstore_conflicts++;
		/* Give the conflicting writer time to finish. */
		pause("xentx", MIN(tries + 1, MAX(hz / 10, 1)));
	}
	return (EAGAIN);
}

void
xenstore_suspend(void)
{

	xenstore_enter();
}

/* Which domain are we? */
static int
xenstore_find_home(void)
{
	char *domid, *end;
	u_long id;
	int error;

	error = xenstore_read(NULL, "domid", NULL, &domid, NULL);
	if (error != 0)
		return (error);
	id = strtoul(domid, &end, 10);
	if (end == domid || *end != '\0' || id > UINT16_MAX)
		error = EIO;
	else
		snprintf(xenstore_home_path, sizeof(xenstore_home_path),
		    "/local/domain/%lu", id);
	free(domid, M_XEN);
	return (error);
}

int
xenstore_resume(bool cancelled)
{
	int error = 0;

	sx_assert(&xenstore_lock, SA_XLOCKED);
	if (!cancelled) {
		atomic_add_int(&xenstore_life, 1);
		xenstore_ring_fini();
		error = xenstore_ring_init(xenstore_dev, xenstore_event);
		if (error == 0)
			xenstore_set_watches();
	}
	xenstore_leave();
	if (error == 0 && !cancelled)
		error = xenstore_find_home();
	return (error);
}

int
xenstore_init(device_t dev)
{
	int error;

	xenstore_dev = dev;
	error = xenstore_ring_init(dev, xenstore_event);
	if (error == 0)
		error = xenstore_find_home();
	if (error != 0)
		device_printf(dev, "xenstore does not answer (error %d)\n",
		    error);
	return (error);
}

void
xenstore_fini(device_t dev __unused)
{

	xenstore_ring_fini();
}

void
xenstore_sysctl(struct sysctl_ctx_list *ctx, struct sysctl_oid *parent)
{
	struct sysctl_oid *node;
	struct sysctl_oid_list *list;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(parent), OID_AUTO,
	    "xenstore", CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, "xenstore");
	list = SYSCTL_CHILDREN(node);
	SYSCTL_ADD_STRING(ctx, list, OID_AUTO, "home", CTLFLAG_RD,
	    xenstore_home_path, 0, "This domain's directory");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "requests", CTLFLAG_RD,
	    &xenstore_requests, 0, "Requests sent");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "events", CTLFLAG_RD,
	    &xenstore_events, 0, "Events of watches");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "late", CTLFLAG_RD, &xenstore_late,
	    0, "Answers to requests that had timed out");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO,
	    "failed", CTLFLAG_RD, &xenstore_failed, 0,
	    "Requests that xenstore answered with an error of its own");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO, "timeouts", CTLFLAG_RD,
	    &xenstore_timeouts, 0, "Requests that timed out");
	SYSCTL_ADD_U64(ctx, list, OID_AUTO,
	    "conflicts", CTLFLAG_RD, &xenstore_conflicts, 0,
	    "Transactions that were repeated after a conflict");
}
