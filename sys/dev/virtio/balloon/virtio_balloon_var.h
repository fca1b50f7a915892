/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of virtio_balloon share.
 */

#ifndef _DEV_VIRTIO_VIRTIO_BALLOON_VAR_H_
#define	_DEV_VIRTIO_VIRTIO_BALLOON_VAR_H_

#include <sys/sysctl.h>

#include <dev/pv/pv_dma.h>
#include <dev/pv/pv_tunable.h>
#include <dev/pv/balloon/pv_balloon.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/balloon/virtio_balloon.h>

#define	VTB_BATCH_PFNS	1024
#define	VTB_ARRAYS	4
#define	VTB_STATS	10
#define	VTB_REPORT_MAX	32	/* blocks that are reported at once */

/* What the device sees of our memory, in one piece. */
struct vtballoon_shared {
	uint32_t	pfns[VTB_ARRAYS][VTB_BATCH_PFNS];
	struct virtio_balloon_stat stats[VTB_STATS];
	uint32_t	cmd_id;		/* of the hints that follow */
	uint32_t	cmd_stop;	/* always VIRTIO_BALLOON_CMD_ID_STOP:
					 * 0 */
};

enum vtballoon_queue {
	VTBQ_INFLATE,
	VTBQ_DEFLATE,
	VTBQ_STATS,
	VTBQ_HINT,
	VTBQ_REPORT,
	VTBQ_COUNT
};

/* Free memory that is reported to the host (virtio_balloon_free.c). */
struct vtballoon_free {
	/*
	 * FREE_PAGE_HINT: the blocks that the host may leave out of a
	 * migration.
	 */
	TAILQ_HEAD(, vm_page) vtf_hinted; /* those that the device gave back */
	u_int		 vtf_nhinted;	/* those that it did
					 * not give back, too */
	enum {
		VTF_RESTING, VTF_ASKED, VTF_HINTING, VTF_ENDING
	}		 vtf_state;
	uint32_t	 vtf_cmd_id;	/* the last that was seen */
	bool		 vtf_said;	/* the device gave the buffer
					 * of the number back */
	uint64_t	 vtf_hints;	/* blocks hinted */
	uint64_t	 vtf_rounds;	/* commands seen */
	/* REPORTING: a pass over all memory. */
	uint8_t		*vtf_marks;	/* a block: the pass in which it was
					 * reported, 0: never */
	u_long		 vtf_nmarks;
	u_long		 vtf_next;	/* block to look at */
	uint8_t		 vtf_pass;	/* 1 to 255 */
	int		 vtf_due;	/* ticks: not before */
	/* That the device has now. */
	vm_page_t	 vtf_blocks[VTB_REPORT_MAX];
	int		 vtf_nblocks;
	uint64_t	 vtf_reports;	/* blocks reported */
	uint64_t	 vtf_passes;	/* over all memory */
};

struct vtballoon_softc {
	device_t	vtbn_dev;
	struct pv_balloon vtbn_balloon;
	struct mtx	vtbn_mtx;
	struct pvq	*vtbn_queue[VTBQ_COUNT];
	struct vtballoon_free vtbn_free;
	uint64_t	vtbn_features;
	uint64_t	vtbn_stats_asked;
	uint32_t	vtbn_busy;	/* bit i: array i is the device's */
	bool		vtbn_modern;
	bool		vtbn_initialised; /* pv_balloon_init() was done */
	bool		vtbn_attached;	/* the balloon works */
	bool		vtbn_complained;	/* about no answer */
	struct pv_dma	vtbn_dma;
	struct vtballoon_shared *vtbn_shared;
	struct sysctl_ctx_list vtbn_sysctl;
};

/* hw.vtballoon (virtio_balloon_queue.c) */
enum {
	VTBALLOON_POISON,
	VTBALLOON_REPORT_RATE,
	VTBALLOON_TIMEOUT,
	VTBALLOON_NTUNABLES
};
extern struct pv_tunable vtballoon_tunables[VTBALLOON_NTUNABLES];

/*
 * Allocate vtbn_shared, and free it.  A device that never confirmed a reset
 * keeps it: that is logged.
 *
 * Returns 0 or ENOMEM.  May sleep.
 */
int	vtballoon_alloc_shared(struct vtballoon_softc *sc);
void	vtballoon_free_shared(struct vtballoon_softc *sc, bool leaked);

/* Does the device need a reset, so that nothing is to be waited for? */
static inline bool
vtballoon_is_bad(const struct vtballoon_softc *sc)
{
	return (pv_dev_is_needed(&sc->vtbn_balloon.pb_pvdev));
}

/*
 * Put len bytes of vtbn_shared, for which there is room in q, for the device to
 * read; and kick.
 */
void	vtballoon_put(struct vtballoon_softc *sc, struct pvq *q, void *what,
    size_t len);

/*
 * Wait until no more than left chains are in q.  May sleep.
 *
 * Returns 0; EIO if the queue is broken, or the device requires a reset;
 * ETIMEDOUT.  After an error the device is going to be reset.
 */
int	vtballoon_wait(struct vtballoon_softc *sc, struct pvq *q, int left);

/*
 * virtio_balloon_free.c, all in the worker or while it is stopped.
 *
 * init   allocate; 0 or ENOMEM
 * fini   free
 * poll   answer the device's command about hints
 * idle   report some free memory; returns ticks until there is more to do, 0:
 *        never
 * stop   the device was stopped, or, if leaked, keeps what it has
 */
int	vtballoon_free_init(struct vtballoon_softc *sc);
void	vtballoon_free_fini(struct vtballoon_softc *sc);
int	vtballoon_free_poll(struct vtballoon_softc *sc);
int	vtballoon_free_idle(struct vtballoon_softc *sc);
void	vtballoon_free_stop(struct vtballoon_softc *sc, bool leaked);
void	vtballoon_free_sysctl(struct vtballoon_softc *sc,
    struct sysctl_oid_list *top);

#endif /* !_DEV_VIRTIO_VIRTIO_BALLOON_VAR_H_ */
