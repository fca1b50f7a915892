/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A virtio transport and the device behind it, for tests of virtio.c and virtio_intr.c.
 *
 * It is strict about the order of things (VirtIO 1.3, 3.1.1), and can be made to misbehave.
 */

#ifndef _TRANSPORT_H_
#define	_TRANSPORT_H_

#include <sys/rman.h>

#include <dev/virtio/virtio_bus.h>

#define	TR_QUEUES	12
#define	TR_VECTORS	8
#define	TR_CONFIG	32	/* bytes of the configuration, unless a test has another */
#define	TR_CONFIG_MAX	128

struct transport {
	struct virtio_bus tr_bus;	/* first */
	device_t	 tr_dev;
	device_t	 tr_child;
	/* What the device is like. */
	uint64_t	 tr_offered;
	uint16_t	 tr_sizes[TR_QUEUES];
	uint8_t		 tr_config[TR_CONFIG_MAX];
	u_int		 tr_config_size;
	int		 tr_nvectors;		/* that can be allocated */
	bool		 tr_no_wired;
	int		 tr_refuse_vector;	/* setting this one fails; -2: none */
	bool		 tr_refuse_features;
	bool		 tr_refuse_queue;
	int		 tr_reset_error;
	int		 tr_restless;		/* so many reads of the configuration change it */
	void		(*tr_at_driver_ok)(struct transport *);
	/* Unless they are NULL: the device has a queue, is notified, or was configured. */
	void		(*tr_at_setup)(struct transport *, u_int queue, struct pvq *);
	void		(*tr_at_notify)(struct transport *, u_int queue);
	void		(*tr_at_write)(struct transport *, u_int off);
	/* What happened to it. */
	uint8_t		 tr_status;
	uint8_t		 tr_status_seen;	/* every bit since the last reset */
	uint64_t	 tr_accepted;
	uint32_t	 tr_generation;
	bool		 tr_enabled[TR_QUEUES];
	bool		 tr_queue_was_reset[TR_QUEUES];
	int		 tr_queue_reset_error;
	int		 tr_queue_vector[TR_QUEUES];
	int		 tr_config_vector;
	u_int		 tr_notified[TR_QUEUES];
	uint8_t		 tr_isr;
	struct resource	 tr_irqs[TR_VECTORS + 1]; /* the last one is wired */
	int		 tr_irqs_out;
	int		 tr_resets;
	int		 tr_config_reads;
	int		 tr_changes;		/* calls of VIRTIO_CONFIG_CHANGED */
	struct peer	*tr_peers[TR_QUEUES];	/* transport_set_peer()'s */
};

/* A device with two queues of 8, and everything that a good one has. */
void	transport_open(struct transport *tr, bool modern);

/* The same, with this driver of its child, which has not been attached yet. */
void	transport_open_for(struct transport *tr, bool modern, kobj_class_t driver, void *softc);

/* From now on this is the other end of a queue; the one before is freed. */
void	transport_set_peer(struct transport *tr, u_int queue, struct peer *pe);

/* Check that the driver left nothing behind.  Frees what transport_set_peer() was given. */
void	transport_close(struct transport *tr);

#endif /* !_TRANSPORT_H_ */
