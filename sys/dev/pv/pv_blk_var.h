/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of pv_blk share (theory statement and locking: pv_blk.h).
 */

#ifndef _DEV_PV_PV_BLK_VAR_H_
#define	_DEV_PV_PV_BLK_VAR_H_

#include <dev/pv/pv_blk.h>

/* From this many requests on, a queue is deep: notifications and interrupts are shared. */
#define	PV_BLK_DEEP		8
#define	PV_BLK_BATCH		16
#define	PV_BLK_BATCH_MAX	64
#define	PV_BLK_TICK		SBT_1MS
#define	PV_BLK_TICK_SOON	(50 * SBT_1US)
#define	PV_BLK_TIMEOUT		30	/* seconds */
#define	PV_BLK_DRAIN_SECS	10
/* A request that sees more resets than this is what breaks the device. */
#define	PV_BLK_REQUEUES_MAX	3
/* Messages in each so many seconds; the rest is counted. */
#define	PV_BLK_LOG_MAX		10
#define	PV_BLK_LOG_SECS		10
/* After this many resets, no two within the pause. */
#define	PV_BLK_RESETS_UNPACED	3
#define	PV_BLK_RESET_PAUSE	(SBT_1S / 10)
#define	PV_BLK_BOUNCE_MAX	(64 * 1024)

#define	PV_BLK_LOCK(blk)	mtx_lock(&(blk)->blk_mtx)
#define	PV_BLK_UNLOCK(blk)	mtx_unlock(&(blk)->blk_mtx)
#define	PV_BLK_ASSERT(blk)	mtx_assert(&(blk)->blk_mtx, MA_OWNED)

/* pv_blk_io.c */
extern const char *const pv_blk_cmd_names[PV_BLK_NCMDS];
void	pv_blk_strategy(struct bio *bp);
/* May a message go to the log now?  A bad disk must not fill it. */
bool	pv_blk_may_log(struct pv_blk *blk);
/* Starts what can be started; the caller kicks. */
void	pv_blk_start(struct pv_blk *blk);
/* Tells the device of what was committed, now or when the batch is full.  Returns true if it did. */
bool	pv_blk_kick(struct pv_blk *blk, bool now);
/* Ends bios on blk_finished; drops and takes the lock. */
void	pv_blk_deliver(struct pv_blk *blk);
/* Collects completions until none is left and an interrupt is armed; drops and takes the lock. */
void	pv_blk_process(struct pv_blk *blk);
/* Ends a request that is on no list; its bio goes to blk_finished with its last piece. */
void	pv_blk_end(struct pv_blk *blk, struct pv_blk_req *rq, int error);
/* Ends with error what is not in flight: ready requests, the bio being cut, the queue. */
void	pv_blk_fail_queued(struct pv_blk *blk, int error);
/* Takes what is in flight out of a queue whose device was stopped; 0 requeues it. */
void	pv_blk_drain(struct pv_blk *blk, int error);
/* Puts rq into the queue, without commit. */
int	pv_blk_put(struct pv_blk *blk, struct pv_blk_req *rq);
void	pv_blk_arm_watchdog(struct pv_blk *blk);
void	pv_blk_tick(void *arg);
void	pv_blk_watchdog(void *arg);

/* pv_blk_reset.c */
void	pv_blk_reset_task(void *arg, int pending);
void	pv_blk_reset_locked(struct pv_blk *blk, int error);

/* pv_blk_dump.c */
int	pv_blk_ident(struct pv_blk *blk, char *ident, size_t size);
int	pv_blk_dump(void *priv, void *virtual, off_t offset, size_t length);

/* pv_blk_sysctl.c */
void	pv_blk_sysctl_attach(struct pv_blk *blk);
void	pv_blk_sysctl_queue(struct pv_blk *blk);

#endif /* !_DEV_PV_PV_BLK_VAR_H_ */
