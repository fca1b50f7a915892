/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Registers of virtio over MMIO (VirtIO 1.3, 4.2.2 and, for version 1, 4.2.4),
 * and what the files of vtmmio share.
 */

#ifndef _DEV_VIRTIO_MMIO_VIRTIO_MMIO_H_
#define	_DEV_VIRTIO_MMIO_VIRTIO_MMIO_H_

#include <dev/virtio/virtio_bus.h>

/* All of 32 bits, in little-endian order. */
#define	VIRTIO_MMIO_MAGIC_VALUE		0x000
#define	VIRTIO_MMIO_VERSION		0x004
#define	VIRTIO_MMIO_DEVICE_ID		0x008
#define	VIRTIO_MMIO_VENDOR_ID		0x00c
#define	VIRTIO_MMIO_DEVICE_FEATURES	0x010
#define	VIRTIO_MMIO_DEVICE_FEATURES_SEL	0x014
#define	VIRTIO_MMIO_DRIVER_FEATURES	0x020
#define	VIRTIO_MMIO_DRIVER_FEATURES_SEL	0x024
#define	VIRTIO_MMIO_GUEST_PAGE_SIZE	0x028	/* version 1 */
#define	VIRTIO_MMIO_QUEUE_SEL		0x030
#define	VIRTIO_MMIO_QUEUE_NUM_MAX	0x034
#define	VIRTIO_MMIO_QUEUE_NUM		0x038
#define	VIRTIO_MMIO_QUEUE_ALIGN		0x03c	/* version 1 */
#define	VIRTIO_MMIO_QUEUE_PFN		0x040	/* version 1 */
#define	VIRTIO_MMIO_QUEUE_READY		0x044
#define	VIRTIO_MMIO_QUEUE_NOTIFY	0x050
#define	VIRTIO_MMIO_INTERRUPT_STATUS	0x060
#define	VIRTIO_MMIO_INTERRUPT_ACK	0x064
#define	VIRTIO_MMIO_STATUS		0x070
#define	VIRTIO_MMIO_QUEUE_DESC_LOW	0x080
#define	VIRTIO_MMIO_QUEUE_DESC_HIGH	0x084
#define	VIRTIO_MMIO_QUEUE_AVAIL_LOW	0x090	/* the driver area */
#define	VIRTIO_MMIO_QUEUE_AVAIL_HIGH	0x094
#define	VIRTIO_MMIO_QUEUE_USED_LOW	0x0a0	/* the device area */
#define	VIRTIO_MMIO_QUEUE_USED_HIGH	0x0a4
#define	VIRTIO_MMIO_QUEUE_RESET		0x0c0	/* with RING_RESET */
#define	VIRTIO_MMIO_CONFIG_GENERATION	0x0fc
#define	VIRTIO_MMIO_CONFIG		0x100

#define	VIRTIO_MMIO_MAGIC		0x74726976	/* "virt" */
#define	VIRTIO_MMIO_VENDOR_QEMU		0x554d4551	/* "QEMU" */
#define	VIRTIO_MMIO_LEGACY		1	/* versions */
#define	VIRTIO_MMIO_MODERN		2

struct vtmmio_softc {
	struct virtio_bus vm_bus;	/* first */
	struct resource	*vm_regs;
	uint32_t	 vm_version;
	bus_dma_tag_t	 vm_ring_dmat;	/* version 1: what a page
					 * number of 32 bits reaches */
	volatile u_int	 vm_stuck;	/* causes of interrupts
					 * that could not be acknowledged */
	volatile bool	 vm_storming;	/* reset for that, and none
					 * was acknowledged since */
	volatile bool	 vm_dead;	/* the reset did not help */
	volatile bool	 vm_broken;	/* it asks for a reset,
					 * as its interrupt is stuck */
	uint64_t	 vm_storms;
};

/*
 * The driver, for each bus that its devices are found on (SYS_RES_MEMORY and
 * SYS_RES_IRQ, rid 0).
 */
DECLARE_CLASS(vtmmio_driver);

/*
 * Is there a device behind the registers, and is it ours?  What a bus's probe
 * ends with.
 *
 * Returns what virtio_bus_probe() does; ENXIO if there is none, quietly for one
 * that is absent by the specification (device id 0), else with a message.  May
 * sleep.
 */
int	vtmmio_probe(struct virtio_transport *vt, device_t dev);

/* vt_type and vt_name of a struct virtio_transport. */
uint32_t vtmmio_type(device_t dev);
void	vtmmio_name(device_t dev, char *name, size_t size);

#define	VTMMIO_TRANSPORT(bus, driver, type, adds) {			\
	.vt_module = {							\
		.dmd_busname = bus,					\
		.dmd_driver = &driver,					\
		.dmd_pass = BUS_PASS_DEFAULT,				\
	},								\
	.vt_kind = "MMIO",						\
	.vt_type = type,						\
	.vt_name = vtmmio_name,						\
	.vt_adds = adds,						\
}

#endif /* !_DEV_VIRTIO_MMIO_VIRTIO_MMIO_H_ */
