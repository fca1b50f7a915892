/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A disk of pv_blk whose device is a test: split virtqueues with the model of a device as their peer,
 * and the bytes of the disk in memory.
 *
 * All of pv_blk is the driver's own, and so is its life.  Nothing runs by itself: a test is the device,
 * the interrupt, GEOM, the taskqueue (kpi_run_tasks()) and the clock (kpi_pass()).
 *
 * A request is a header (struct drive_msg, but for its last byte), data, and a byte of status.
 */

#ifndef _PV_BLK_DRIVE_H_
#define	_PV_BLK_DRIVE_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>

#include <geom/geom_disk.h>

#include <dev/pv/blk/pv_blk.h>

#include "host/host.h"
#include "kpi/disk.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "model/peer.h"

#define	DRIVE_QUEUES	3
#define	DRIVE_SIZE	64	/* of each ring, unless the test has another */
#define	DRIVE_REQS	64	/* requests of each queue, likewise */
#define	DRIVE_SECTOR	512
#define	DRIVE_SECTORS	4096
#define	DRIVE_RANGES	8

struct drive_msg {
	uint32_t	dm_cmd;
	uint32_t	dm_nranges;
	struct {
		uint64_t offset;
		uint64_t length;
	} dm_ranges[DRIVE_RANGES];
	uint64_t	dm_data;	/* where a copy is that the peer sees; 0: in segments */
	uint8_t		dm_status;	/* an errno value; 0xee: a protocol violation */
};
#define	DRIVE_VIOLATION	0xee

/* What the device has taken from a queue. */
struct drive_req {
	u_int		 dq_queue;
	struct drive_msg dq_msg;
	struct peer_chain dq_chain;
};

struct drive {
	device_t	 dr_parent, dr_dev;
	struct pv_blk	 dr_blk;
	struct pv_blk_ops dr_ops;
	struct pv_blk_params dr_params;
	const struct impl *dr_impl;
	u_int		 dr_size, dr_nqueues;	/* at first */
	struct peer	*dr_peers[DRIVE_QUEUES];
	struct pvq	*dr_pvqs[DRIVE_QUEUES];
	bool		 dr_runs[DRIVE_QUEUES];	/* the device uses the queue */
	bool		 dr_started;
	u_int		 dr_ntaken, dr_nstarts;	/* requests; starts of a queue after its first */
	int		 dr_fail_after;	/* kpi_fail_after of pv_blk_init() */
	bool		 dr_answers;	/* at each notification, all of the queue */
	u_char		 dr_bytes[DRIVE_SECTORS * DRIVE_SECTOR];
	uint8_t		 dr_status;	/* of what it answers by itself */
	bool		 dr_bad_id;	/* it answers what it was not asked */
	const char	*dr_ident;	/* 8 bytes, or none; NULL: some are no letters */
	/* What the device was told, and what it says to that. */
	char		 dr_log[256];
	int		 dr_stop_error, dr_restart_error, dr_stop_queue_error, dr_restart_queue_error;
	/* With drive_peer_ops: a copy of each request's data, of so many bytes at most. */
	char		*dr_copies[DRIVE_QUEUES * DRIVE_REQS + 1];
	size_t		 dr_room;
	uint64_t	 dr_waited;	/* before the first one was taken: of DELAY(9), in us */
	int		 dr_load_error;	/* instead of a copy */
	u_int		 dr_reconnects;
	/* Bios that have ended, in that order. */
	struct bio	*dr_done[1024];
	u_int		 dr_ndone, dr_nbios;
	void		(*dr_ended)(struct bio *);
};

extern struct drive drive;

/* Of a device that is another domain. */
extern const struct pv_blk_peer_ops drive_peer_ops;

#define	DRIVE_BQ(i)	(&drive.dr_blk.blk_queues[i])
#define	DRIVE_STATS(i)	(&drive.dr_blk.blk_queues[i].bq_stats)

/* Make a drive of up to so many queues, not attached yet: a test may change dr_params, dr_ops ... */
void	drive_new(u_int queues);
/* Allocate its queues and attach it; returns what pv_blk_init() or pv_blk_attach() said. */
int	drive_attach(void);
/* The same, of a drive that is live then. */
void	drive_begin(u_int queues);
/* Detach it, and nothing is left. */
void	drive_end(void);
/* Without detaching it: it is not attached. */
void	drive_forget(void);
/* Forget what was written down until now. */
void	drive_quiet(void);

/* A bio of so many bytes from a sector on, whose data is not mapped if pages is set. */
struct bio *drive_bio(int cmd, u_int sector, size_t len, bool pages);
/* Submit it, or a new one of mapped memory; returns it. */
struct bio *drive_submit(struct bio *bp);
struct bio *drive_io(int cmd, u_int sector, size_t len);
/* Has it ended? */
bool	drive_is_done(const struct bio *bp);
/* It has, with this error; its data is right then.  It is freed. */
void	drive_ended(struct bio *bp, int error);

/* The device takes the next request of a queue; false: there is none. */
bool	drive_takes(u_int queue, struct drive_req *dq);
/* The same; it has to be that one. */
void	drive_expect(u_int queue, struct drive_req *dq, enum pv_blk_cmd cmd, u_int sector, size_t len);
/* It does what is requested, unless status is not 0, and completes it. */
void	drive_answer(struct drive_req *dq, uint8_t status);
/* The same; and its interrupt comes, which finds it. */
void	drive_complete(struct drive_req *dq, uint8_t status);
/* All that there is in a queue; returns how many. */
u_int	drive_work(u_int queue);
/* The interrupt of a queue, if one was requested for what was completed; false: none was. */
bool	drive_intr(u_int queue);
/* A queue begins anew, and is empty. */
void	drive_start_queue(u_int queue);
/* Everything that can happen, does. */
void	drive_settle(void);
/* So many seconds pass. */
void	drive_seconds(u_int n);
u_int	drive_kicks(u_int queue);

/* pv_blk_drive_delete.c */
void	deletes_and_units(const void *arg);
void	deletes_of_large_units(const void *arg);
void	deletes_are_gathered(const void *arg);
void	deletes_of_nothing(const void *arg);

/* pv_blk_drive_life.c */
void	life_attach_without_memory(const void *arg);
void	life_attach_with_few_messages(const void *arg);
void	life_attach_with_few_maps(const void *arg);
void	life_dump_while_it_gets_more(const void *arg);
void	life_attach_with_a_small_bounce_buffer(const void *arg);
void	life_ident(const void *arg);
void	life_no_answer_at_attach(const void *arg);
void	life_reset_with_requests_in_flight(const void *arg);
void	life_reset_of_a_queue(const void *arg);
void	life_reset_again_and_again(const void *arg);
void	life_violation_resets_the_queue(const void *arg);
void	life_suspended_and_resumed(const void *arg);
void	life_suspended_with_a_broken_queue(const void *arg);
void	life_lost_and_found(const void *arg);
void	life_leaked(const void *arg);
void	life_detached_under_load(const void *arg);
void	life_detached_with_its_bus(const void *arg);
void	life_detached_in_order(const void *arg);
void	life_late_requests(const void *arg);
void	life_dump(const void *arg);
void	life_dump_and_flush(const void *arg);
void	life_dump_of_a_device_that_fails(const void *arg);
void	life_dump_through_a_peer(const void *arg);
void	life_other_queues(const void *arg);
void	life_resized(const void *arg);
void	life_query(const void *arg);
void	life_reconnected(const void *arg);
void	life_held(const void *arg);
void	life_ends_with_its_peer(const void *arg);
void	life_no_dump_while_frozen(const void *arg);
void	life_write_through(const void *arg);

#endif /* !_PV_BLK_DRIVE_H_ */
