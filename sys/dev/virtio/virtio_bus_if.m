#-
# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#

# What a transport (vtpci) does for the bus-independent half, virtio.c, on a
# device that is its own softc's struct virtio_bus.  Values are in the CPU's
# byte order.  None takes a lock; virtio.c calls them one at a time, but isr,
# which is called from an interrupt filter.

#include <sys/types.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <dev/virtio/virtqueue.h>

INTERFACE virtio_bus;

HEADER {
	struct pvq;
	struct resource;
};

# Reset, and wait for it, for a bounded time (VirtIO 1.3, 2.4).  ENXIO: the
# device was removed.  ETIMEDOUT: it did not confirm, and was cut off from
# memory.  EIO: it was reset, and is not to be used any more (VIRTIO_ISR_DEAD).
# May sleep.
METHOD int reset {
	device_t	dev;
};

METHOD uint8_t get_status {
	device_t	dev;
};

METHOD void set_status {
	device_t	dev;
	uint8_t		status;
};

# What the device offers; a legacy device has 32 bits of it.
METHOD uint64_t get_features {
	device_t	dev;
};

METHOD void set_features {
	device_t	dev;
	uint64_t	features;
};

# Bytes of device-specific configuration.
METHOD bus_size_t config_size {
	device_t	dev;
};

# Changes whenever the configuration does (2.5); always 0 on a legacy device.
METHOD uint32_t config_gen {
	device_t	dev;
};

# One access of 1, 2 or 4 bytes, inside config_size.
METHOD uint32_t read_config {
	device_t	dev;
	bus_size_t	off;
	int		width;
};

METHOD void write_config {
	device_t	dev;
	bus_size_t	off;
	uint32_t	value;
	int		width;
};

# The largest size that the queue may have; 0 if there is no such queue.
METHOD uint16_t queue_size {
	device_t	dev;
	uint16_t	index;
};

# Give a queue to the device and enable it.  ENXIO: the device did not take it.
METHOD int queue_setup {
	device_t	dev;
	uint16_t	index;
	struct pvq	*q;
};

# Reset one queue (2.6.1), with RING_RESET only.  ENXIO: the device was removed.
# ETIMEDOUT: the device did not finish within a bounded time; it may still use
# the queue.  May sleep.
METHOD int queue_reset {
	device_t	dev;
	uint16_t	index;
};

# Allocate exactly n message interrupts, the resources to irqs[0] to irqs[n -
# 1].  ENXIO if there are not that many: nothing is allocated then.
METHOD int alloc_vectors {
	device_t	dev;
	int		n;
	struct resource	**irqs;
};

# Allocate the wired interrupt, whose cause is read with isr.
METHOD int alloc_wired {
	device_t	dev;
	struct resource	**irq;
};

# Release what alloc_vectors or alloc_wired gave.
METHOD void free_vectors {
	device_t	dev;
	int		n;
	struct resource	**irqs;
};

# Tie a queue (index), or configuration changes (VIRTIO_BUS_CONFIG), to the nth
# vector of alloc_vectors, or to none (-1).  ENXIO if the device refused it
# (4.1.5.1.2).
METHOD int set_vector {
	device_t	dev;
	int		index;
	int		vector;
};

# Read, and by that acknowledge, the cause of a wired interrupt (4.1.4.5):
# VIRTIO_ISR_*.
METHOD uint8_t isr {
	device_t	dev;
};
