/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xbd and a model of its back end, for the files of xbd_drive_test.
 */

#ifndef _XBD_H_
#define	_XBD_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>

#include <geom/geom_disk.h>

#include <dev/xen/blkfront/blkfront_var.h>

#include "host/host.h"
#include "kpi/disk.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "model/disk_user.h"
#include "model/event_channels.h"
#include "model/front_end.h"
#include "model/grant_table.h"
#include "model/xenstore_nodes.h"

#define	KB		1024
#define	BACK_DOM	3
#define	HANDLE		51712
#define	FRONT		"device/vbd/51712"
#define	BACK		"/local/domain/3/backend/vbd/1/51712"
#define	MOST_CHANNELS	(PV_BLK_QUEUES_MAX + 1)
#define	MAX_SEGS	256
/* References that a disk has at first: of 11 pages, of 4 spare ones, and of the ring. */
#define	FIRST_REFS	(XBD_POLLED_SIZE / PAGE_SIZE + XBD_CHUNK_PAGES + 1)

/* A request as the back end sees it. */
struct wire {
	blkif_request_t	req;		/* its slot */
	uint8_t		op;		/* of an indirect one, that which it names */
	u_int		nsegs;
	struct blkif_request_segment segs[MAX_SEGS];
};

struct back {
	u_int		nrings;		/* 0: it is not connected */
	u_int		npages;		/* of each ring */
	struct {
		blkif_back_ring_t ring;
		grant_ref_t	refs[1 << GRANT_RING_MAX_ORDER];
		struct xen_evtchn *channel;
		evtchn_port_t	port;
		bool		event;		/* for us */
	} rings[PV_BLK_QUEUES_MAX];
	/* How it answers: this status, and of another operation if that is not -1. */
	bool		answers;
	int16_t		status;
	int		op;
	bool		says_indirect;	/* its answers to indirect requests say so */
	/* It keeps pages mapped. */
	bool		keeps;
	void		*kept[8192];
	u_int		nmapped;
	struct wire	last;
	u_int		nserved, longest;
};

struct front {
	struct xbd_softc sc;
	bool		is_set_up;
	u_int		rechecks;
};

extern struct back be;
extern struct front fr;

/* What the front end has published; NULL: it has not.  Of a number, it has. */
const char *published(const char *name);
u_int	number(const char *name);
/* A number of the back end's. */
void	offer(const char *name, uint64_t value);

/* The back end looks for what was published, and maps it. */
void	be_connects(void);
/* The next request of a ring; false: there is none. */
bool	be_takes(u_int i, struct wire *w);
uint64_t be_sector(const struct wire *w);
/* Do it, and answer; or only the latter. */
void	be_answers(u_int i, const struct wire *w, int16_t status);
void	be_responds(u_int i, uint64_t id, uint8_t op, int16_t status);
/* The event of a ring, if it is due. */
bool	be_event(u_int i);
/* All that is due, until nothing is. */
void	settle(void);

/* A device of a back end that offers a disk and nothing else; the same, connected; and its end. */
void	device_new(void);
void	device_begin(void);
void	device_end(void);
/* setup(), and release() after the back end has let go. */
int	set_up(void);
void	released(void);
/* The back end is gone; there is another one; both. */
void	disconnect(void);
int	fr_connect(void);
void	connect_ok(void);
void	reconnect(void);

/* The tunable of the ring's pages; all of them are as before. */
void	tune_ring_order(int order);
void	tunables_as_before(void);

/* xbd_life.c */
void	life_changes(const void *arg);
void	life_another_back_end(const void *arg);
void	life_another_disk(const void *arg);
void	life_closing(const void *arg);
void	life_lost(const void *arg);
void	life_suspended(const void *arg);
void	life_early_events(const void *arg);
void	life_detach_waits(const void *arg);
void	life_set_up_fails(const void *arg);
void	life_published_twice(const void *arg);
void	life_fewer_queues(const void *arg);
void	life_short_of_grants(const void *arg);
void	life_dump(const void *arg);

#endif /* !_XBD_H_ */
