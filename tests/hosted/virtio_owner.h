/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A kernel with virtio devices on a bus, a driver of its own for each of them, and the suite's bus,
 * transport and drivers as modules: virtio_owner.c has it, and
 * virtio_owner_test.c the cases.
 *
 * Newbus and taskqueue(9) are the tree kernel's, and their threads are real (kpi/threads.c).
 */

#ifndef _VIRTIO_OWNER_H_
#define	_VIRTIO_OWNER_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/virtio/virtio_bus.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/threads.h"
#include "model/peer.h"

#define	CARDS	4

/* A device, as the bus has it. */
struct card {
	const char	*ca_name;
	uint32_t	 ca_type;
	device_t	 ca_dev;
	device_t	 ca_child;	/* of the transport's device */
	/* What it does. */
	int		 ca_reset_error;
	bool		 ca_no_queue;
	bool		 ca_slow;	/* its attach does not return until this is false */
	bool		 ca_stock_has_child;	/* the kernel's driver, that is */
	int		 ca_stock_busy;		/* what that says to a detachment */
	/* What happened to it. */
	uint8_t		 ca_status;
	u_int		 ca_resets;
	u_int		 ca_kicks;
	struct peer	*ca_peer;		/* of its queue, while it is set up */
};
extern struct card cards[CARDS];

/* A driver of the suite, "vtblk", and what its methods return and saw. */
extern struct owner_driver {
	int		 od_attach_error;
	const char	*od_why;		/* virtio_refuse(); NULL: it gives no reason */
	int		 od_detach_error;
	int		 od_attaches;
	bool		 od_waits;		/* attach sleeps until that is false */
} owner_driver;

/* Of the root file system: now, and how many there were. */
extern int owner_root_holds, owner_root_held;

/* Maps of memory that a device keeps. */
extern int owner_leaked;

/* What was said, but for newbus's own lines; and how many lines. */
extern char owner_line[256];
extern int owner_lines;

/* What random(4) reads; NULL: nothing. */
struct random_source;
extern struct random_source *owner_source;

/* A kernel that has booted, without the suite. */
void	owner_boot(void);
/* Load a module, or unload it: "virtio/virtio_random"; it does as it is told, at once. */
void	owner_load(const char *module);
void	owner_unload(const char *module);
/* All of the suite. */
void	owner_load_all(void);
/* Whose a device is: "stock", "vtrnd on vtpci", "vtpci", "none". */
const char *owner_of(const struct card *card);
/* As devctl(8) does it. */
int	owner_set_driver(const struct card *card, const char *driver);
/* All modules go, and nothing is left. */
void	owner_end(void);

/* A body of a test, as a thread. */
void	owner_run(const void *body);

/* virtio_owner_random.c */
void	random_is_read_once(void);
void	random_of_a_broken_device(void);
void	random_of_one_device(void);
void	random_without_memory(void);
void	random_device_keeps_its_buffer(void);

#define	OWNS(i, who)							\
	CHECK(strcmp(owner_of(&cards[i]), (who)) == 0, "card %d: %s", (i), owner_of(&cards[i]))
#define	TEST(name, descr)	{ #name, descr, owner_run, (const void *)name }

#endif /* !_VIRTIO_OWNER_H_ */
