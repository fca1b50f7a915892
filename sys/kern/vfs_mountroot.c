/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Holds on the mounting of the root file system.  There is no root file system here: the console's
 * first command waits, as FreeBSD's init(8) does.
 *
 * Locking.  root_mtx: the list of holds.
 *
 * Gaps.  No root_mount_hold_token(), no root_mounted().
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/queue.h>

#include <kern/mountroot_tree.h>

static TAILQ_HEAD(, root_hold_token) root_holds = TAILQ_HEAD_INITIALIZER(root_holds);
static struct mtx root_mtx;
MTX_SYSINIT(root_holds, &root_mtx, "root holds", MTX_DEF);

struct root_hold_token *
root_mount_hold(const char *identifier)
{
	struct root_hold_token *h;

	h = malloc(sizeof(*h), M_DEVBUF, M_WAITOK | M_ZERO);
	h->who = identifier;
	mtx_lock(&root_mtx);
	TAILQ_INSERT_TAIL(&root_holds, h, list);
	mtx_unlock(&root_mtx);
	return (h);
}

void
root_mount_rel(struct root_hold_token *h)
{

	if (h == NULL)
		return;
	mtx_lock(&root_mtx);
	TAILQ_REMOVE(&root_holds, h, list);
	wakeup(&root_holds);
	mtx_unlock(&root_mtx);
	free(h, M_DEVBUF);
}

void
root_mount_wait(void)
{

	mtx_lock(&root_mtx);
	while (!TAILQ_EMPTY(&root_holds))
		(void)msleep(&root_holds, &root_mtx, PZERO, "roothold", 0);
	mtx_unlock(&root_mtx);
}
