/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xenstore: the tree of strings that domains share (docs/misc/xenstore.txt of
 * Xen).
 *
 * Paths are relative to this domain's directory, /local/domain/N, unless they
 * begin with a slash.  A node is given as a directory and a name below it,
 * which may be NULL or "".
 *
 * All of these sleep until xenstore answered, for as long as xenstore_timeout
 * allows; no mutex may be held.  Errors: ENOENT, EACCES, EINVAL, ENOSPC and so
 * on, as xenstore answers; ETIMEDOUT if it does not answer; EIO if its answer
 * is invalid; ENAMETOOLONG; ENXIO if there is no xenstore.
 */

#ifndef _DEV_XEN_XENSTORE_H_
#define	_DEV_XEN_XENSTORE_H_

#include <sys/types.h>
#include <sys/errno.h>
#include <sys/queue.h>

#include <dev/xen/xen_var.h>

struct xenstore_tx;

/*
 * Is there no such node, or none that this domain may read?  Other errors leave
 * that unknown.
 */
static inline bool
xenstore_is_missing(int error)
{

	return (error == ENOENT || error == EACCES);
}

/*
 * Read a node's value.
 *
 * tx     transaction, or NULL
 * value  set to memory to be freed by xenstore_free(), with a NUL behind the
 *        value
 * len    set to the value's length, without that NUL; may be NULL
 */
int	xenstore_read(struct xenstore_tx *tx, const char *dir, const char *name,
    char **value,
	    size_t *len);

/* Write a string, without its NUL.  Nodes on the way to it are made. */
int	xenstore_write(struct xenstore_tx *tx, const char *dir,
    const char *name, const char *value);
int	xenstore_printf(struct xenstore_tx *tx, const char *dir,
    const char *name, const char *fmt,
	    ...) __printflike(4, 5);

/* Remove a node and all below it.  That there is none is no error. */
int	xenstore_remove(struct xenstore_tx *tx, const char *dir,
    const char *name);

/*
 * The names of a node's children, of however many pages.
 *
 * names  set to an array that ends with NULL; one piece of memory, to be freed
 *        by xenstore_free()
 * count  set to how many there are; may be NULL
 */
int	xenstore_list(struct xenstore_tx *tx, const char *dir, const char *name,
    char ***names,
	    u_int *count);

/* Free what the above returned.  NULL is fine. */
void	xenstore_free(void *memory);

/*
 * Does a node exist?  One that may not be read does not.  Returns 0, or the
 * error of a request without an answer.
 */
int	xenstore_exists(struct xenstore_tx *tx, const char *dir,
    const char *name, bool *exists);

/*
 * Run fn in a transaction, and again after a conflict (EAGAIN), a bounded
 * number of times.
 *
 * fn  returns 0 to commit; anything else rolls back, and is returned
 */
int	xenstore_transaction(int (*fn)(struct xenstore_tx *tx, void *arg),
    void *arg);

/*
 * A watch: called for every change of a node and below it, and once when it is
 * set.
 */
struct xenstore_watch {
	LIST_ENTRY(xenstore_watch) xw_link;
	char		*xw_path;	/* as given to xenstore_watch(),
					 * which copies it */
	uint32_t	 xw_token;
	u_int		 xw_flags;	/* private */
	/*
	 * path has changed.  Called in xenstore's thread for watches, one call
	 * at a time; it may call everything above, but not
	 * xenstore_watch_remove() on its own watch.
	 */
	void		(*xw_changed)(struct xenstore_watch *,
	    const char *path);
	void		*xw_arg;
};

/*
 * Set a watch.  xw_changed and xw_arg are filled in; the structure is the
 * caller's until xenstore_watch_remove().  If xenstore does not answer in time,
 * or refuses the watch because of a quota, the watch is set when it does not
 * any more, and 0 is returned.
 */
int	xenstore_watch_add(struct xenstore_watch *w, const char *dir,
    const char *name);

/*
 * Remove it.  No call is running or to come when this returns.  One that was
 * never set is fine.
 */
void	xenstore_watch_remove(struct xenstore_watch *w);

/*
 * For suspend: finish what is in progress and let nothing begin; then go on: in
 * a new domain with the ring that the toolstack gives, after setting all
 * watches again, and with transactions that were begun before failing (EAGAIN:
 * they are tried again); or, if it was cancelled, as before.  May sleep.
 */
void	xenstore_suspend(void);
int	xenstore_resume(bool cancelled);

#endif /* !_DEV_XEN_XENSTORE_H_ */
