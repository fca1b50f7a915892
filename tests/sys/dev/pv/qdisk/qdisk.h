/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of qdisk share (see qdisk.c).
 */

#ifndef _QDISK_H_
#define	_QDISK_H_

#include <dev/pv/blk/pv_blk.h>

#include <geom/geom_disk.h>

#define	QD_QUEUES	4
#define	QD_SLOTS	32		/* of a queue */
#define	QD_SEGS		8		/* of data in a request */
#define	QD_LOG		256
#define	QD_BIOS		64
#define	QD_SECTOR	512
#define	QD_IDENT	20

/* A queue whose peer is the case that runs. */
struct qd_queue {
	struct pvq	qq_pvq;
	struct pv_blk_req *qq_held[QD_SLOTS]; /* put and not answered, in order */
	u_int		qq_nheld;
	/* Of those that are held, with what each has been put, until one is answered. */
	bus_dma_segment_t qq_segs[QD_SLOTS][QD_SEGS];
	struct pv_blk_req *qq_done[QD_SLOTS]; /* answered and not collected */
	u_int		qq_ndone;
	bool		qq_eager;	/* all is answered as soon as it is put */
	u_int		qq_after;	/* an interrupt is requested after so many */
	u_int		qq_kicks;	/* notifications */
};

/* A request that was put, in the order over all queues. */
struct qd_entry {
	u_int		qe_queue;
	enum pv_blk_cmd	qe_cmd;
	u_int		qe_sector;
	u_int		qe_sectors;
	u_int		qe_ranges;	/* of a delete */
};

struct qd_softc {
	device_t	qd_dev;
	struct pv_blk	qd_blk;
	struct qd_queue	qd_queues[QD_QUEUES];
	struct pvq	*qd_pvqs[QD_QUEUES];
	struct mtx	qd_mtx;		/* of the log and of bios' ends */
	struct qd_entry	qd_log[QD_LOG];
	u_int		qd_nlog;
	struct bio	qd_bios[QD_BIOS];
	int		qd_ends[QD_BIOS]; /* -1: not yet; errno */
	u_int		qd_nends;	/* bios that ended */
	u_int		qd_resubmit;	/* until so many have, each is submitted again */
	u_int		qd_resubmitters; /* but for those from this one on */
	u_int		qd_stops;
	bool		qd_stop_waits;	/* bo_stop waits for a task of taskqueue_thread */
	volatile u_int	qd_task_ran;	/* it ran meanwhile */
	struct task	qd_task;
	u_int		qd_queue_stops;
	int		qd_stop_queue_error; /* what bo_stop_queue and bo_restart_queue return */
	int		qd_restart_queue_error;
	bool		qd_one_timeout;	/* no time-outs after a stop, until the case requests one */
	bool		qd_await_detach; /* bo_stop_queue lasts until the disk is detached */
	int		qd_stop_error;	/* what bo_stop and bo_restart return */
	int		qd_restart_error;
	u_int		qd_flags;	/* more of bp_flags */
	bool		qd_no_queue_reset; /* and one less */
	u_int		qd_delete_ranges; /* of a request */
	u_int		qd_delete_align; /* sectors of a unit, and the first one's; 0: none */
	u_int		qd_delete_first;
	const char	*qd_ident;	/* QD_IDENT bytes of identification; NULL: none */
	int		qd_fail;	/* this command fails with EIO; -1: none */
	bool		qd_one_range;	/* deletes of several ranges fail */
	bool		qd_no_fit;	/* requests never fit into a queue */
	size_t		qd_phys_seg;	/* bytes of physical memory in a segment; 0: by bus_dma(9) */
	bool		qd_linger;	/* the thread that delivers a bio's end lingers there */
	volatile u_int	qd_lingering;
	volatile u_int	qd_released;	/* it need not any more */
	bool		qd_break;	/* the queue is broken when the disk attaches */
	volatile u_int	qd_detached;	/* pv_blk_detach() has returned */
	u_int		qd_reset_restarts; /* so many restarts request a reset */
	u_int		qd_failures;
};

struct qd_case {
	const char	*qc_name;
	void		(*qc_func)(struct qd_softc *);
};

/* Each ends with a NULL name. */
extern const struct qd_case qd_cases[];
extern const struct qd_case qd_batch_cases[];
extern const struct qd_case qd_disk_cases[];
extern const struct qd_case qd_reset_cases[];

/* Shorthand for qd_submit(). */
#define	W(sc, i, cpu)	qd_submit((sc), (i), (cpu), BIO_WRITE, (i), 1, 0)
#define	DEL(sc, i, n)	qd_submit((sc), (i), 0, BIO_DELETE, (i), (n), 0)
#define	FLUSH(sc, i, cpu) qd_submit((sc), (i), (cpu), BIO_FLUSH, 0, 0, BIO_ORDERED)
#define	PLAIN_FLUSH(sc, i, cpu) qd_submit((sc), (i), (cpu), BIO_FLUSH, 0, 0, 0)

/* A check; one that fails is printed, and the case goes on. */
#define	QD_TRUE(sc, cond) do {						\
	if (!(cond)) {							\
		printf("qdisk: %s, line %d: not so: %s\n", __func__, __LINE__, #cond); \
		(sc)->qd_failures++;					\
	}								\
} while (0)
#define	QD_EQ(sc, got, want) do {					\
	intmax_t qd_got = (got), qd_want = (want);			\
									\
	if (qd_got != qd_want) {					\
		printf("qdisk: %s, line %d: %s is %jd, not %jd\n", __func__, __LINE__, #got, \
		    qd_got, qd_want);					\
		(sc)->qd_failures++;					\
	}								\
} while (0)

/* Creates the disk, and destroys it: n queues with nreqs requests each, and so many sectors. */
void	qd_begin(struct qd_softc *sc, u_int n, u_int nreqs, u_int sectors);
void	qd_end(struct qd_softc *sc);

/* Submits bio i from a CPU: cmd, sectors from sector on, flags such as BIO_ORDERED. */
void	qd_submit(struct qd_softc *sc, u_int i, u_int cpu, int cmd, u_int sector, u_int sectors,
	    int flags);

/* How the bios of a case end. */
void	qd_done(struct bio *bp);

/* The CPU that stands for i where there are fewer. */
u_int	qd_cpu(u_int i);

/* Bios 0 to n - 1 ended like this. */
void	qd_all_ended(struct qd_softc *sc, u_int n, int how);

/* The device answers the oldest request of a queue, or all, until it has no more. */
void	qd_answer(struct qd_softc *sc, u_int queue);
void	qd_answer_all(struct qd_softc *sc);

/* The oldest request, of which there has to be one, without an interrupt. */
void	qd_answer_silently(struct qd_softc *sc, u_int queue);

/* All that the device has of a queue, by one interrupt. */
void	qd_answer_all_at_once(struct qd_softc *sc, u_int queue);

/* How many requests the device has. */
u_int	qd_held(struct qd_softc *sc);

/* Log entry i is this. */
void	qd_logged(struct qd_softc *sc, u_int i, u_int queue, enum pv_blk_cmd cmd, u_int sector);

/*
 * Waits until the device was stopped so often in all, the reset has finished, and as many requests as
 * held were put (once more): the queues run after the reset's end.
 */
/* The device has to be reset. */
void	qd_need_reset(struct qd_softc *sc);
void	qd_wait_for_resets(struct qd_softc *sc, u_int stops, u_int held);

/* As many queues were stopped alone, that has finished, and as many requests as held were put. */
void	qd_wait_for_queue_resets(struct qd_softc *sc, u_int stops, u_int held);

/* Waits until so many bios have ended: they are given back after the end of a reset. */
void	qd_wait_for_ends(struct qd_softc *sc, u_int n);

/* What a protocol does around a suspend, see pv_blk.h: other queues, or as many as there were. */
void	qd_freeze_and_requeue(struct qd_softc *sc);
void	qd_thaw(struct qd_softc *sc, u_int n);

#endif /* !_QDISK_H_ */
