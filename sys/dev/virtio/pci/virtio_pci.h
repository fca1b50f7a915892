/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Registers of virtio over PCI (VirtIO 1.3, 4.1), and what the files of
 * virtio_pci share.
 */

#ifndef _DEV_VIRTIO_PCI_VIRTIO_PCI_H_
#define	_DEV_VIRTIO_PCI_VIRTIO_PCI_H_

#include <dev/virtio/virtio_bus.h>

/* Identity (4.1.2). */
#define	VIRTIO_PCI_VENDOR		0x1af4
#define	VIRTIO_PCI_DEVICE_MIN		0x1000	/* transitional: the type
						 * is the subsystem id */
#define	VIRTIO_PCI_DEVICE_MODERN	0x1040	/* from here on:
						 * plus the type */
#define	VIRTIO_PCI_DEVICE_MAX		0x107f
#define	VIRTIO_PCI_SUBDEVICE_QEMU	0x1100	/* of a modern
						 * device of QEMU's */

/* A vendor capability in configuration space (4.1.4). */
#define	VIRTIO_PCI_CAP_LEN		2
#define	VIRTIO_PCI_CAP_TYPE		3
#define	VIRTIO_PCI_CAP_BAR		4
#define	VIRTIO_PCI_CAP_OFFSET		8
#define	VIRTIO_PCI_CAP_LENGTH		12
#define	VIRTIO_PCI_CAP_SIZE		16
#define	VIRTIO_PCI_CAP_MULTIPLIER	16	/* of the notification
						 * capability */
#define	VIRTIO_PCI_CAP_NOTIFY_SIZE	20

#define	VIRTIO_PCI_CAP_COMMON_CFG	1
#define	VIRTIO_PCI_CAP_NOTIFY_CFG	2
#define	VIRTIO_PCI_CAP_ISR_CFG		3
#define	VIRTIO_PCI_CAP_DEVICE_CFG	4
#define	VIRTIO_PCI_CAP_PCI_CFG		5

/* The common configuration (4.1.4.3). */
#define	VIRTIO_PCI_COMMON_DFSELECT	0	/* 32 bits */
#define	VIRTIO_PCI_COMMON_DF		4	/* 32 */
#define	VIRTIO_PCI_COMMON_GFSELECT	8	/* 32 */
#define	VIRTIO_PCI_COMMON_GF		12	/* 32 */
#define	VIRTIO_PCI_COMMON_MSIX		16	/* 16 */
#define	VIRTIO_PCI_COMMON_NUMQ		18	/* 16 */
#define	VIRTIO_PCI_COMMON_STATUS	20	/* 8 */
#define	VIRTIO_PCI_COMMON_CFGGENERATION	21	/* 8 */
#define	VIRTIO_PCI_COMMON_Q_SELECT	22	/* 16 */
#define	VIRTIO_PCI_COMMON_Q_SIZE	24	/* 16 */
#define	VIRTIO_PCI_COMMON_Q_MSIX	26	/* 16 */
#define	VIRTIO_PCI_COMMON_Q_ENABLE	28	/* 16 */
#define	VIRTIO_PCI_COMMON_Q_NOFF	30	/* 16 */
#define	VIRTIO_PCI_COMMON_Q_DESC	32	/* 64, as two of 32 */
#define	VIRTIO_PCI_COMMON_Q_DRIVER	40	/* 64 */
#define	VIRTIO_PCI_COMMON_Q_DEVICE	48	/* 64 */
#define	VIRTIO_PCI_COMMON_Q_NDATA	56	/* 16, with NOTIF_CONFIG_DATA */
#define	VIRTIO_PCI_COMMON_Q_RESET	58	/* 16, with RING_RESET */
#define	VIRTIO_PCI_COMMON_SIZE		56	/* the least that a device
						 * must have */

/* The legacy header in I/O BAR 0 (4.1.4.10). */
#define	VIRTIO_PCI_LEGACY_DF		0	/* 32 */
#define	VIRTIO_PCI_LEGACY_GF		4	/* 32 */
#define	VIRTIO_PCI_LEGACY_Q_PFN		8	/* 32 */
#define	VIRTIO_PCI_LEGACY_Q_SIZE	12	/* 16 */
#define	VIRTIO_PCI_LEGACY_Q_SELECT	14	/* 16 */
#define	VIRTIO_PCI_LEGACY_Q_NOTIFY	16	/* 16 */
#define	VIRTIO_PCI_LEGACY_STATUS	18	/* 8 */
#define	VIRTIO_PCI_LEGACY_ISR		19	/* 8 */
#define	VIRTIO_PCI_LEGACY_MSIX_CONFIG	20	/* 16, and only while
						 * MSI-X is enabled */
#define	VIRTIO_PCI_LEGACY_MSIX_QUEUE	22	/* 16 */
#define	VIRTIO_PCI_LEGACY_CONFIG	20	/* 24 while MSI-X is enabled */
#define	VIRTIO_PCI_LEGACY_CONFIG_MSIX	24

#define	VIRTIO_PCI_LEGACY_PFN_SHIFT	12

#define	VIRTIO_PCI_NO_VECTOR		0xffff

#define	VTPCI_NBARS			6

struct vtpci_softc;

/* A register window: part of a BAR. */
struct vtpci_region {
	struct resource	*vr_res;	/* NULL: there is no such window */
	bus_size_t	 vr_off;
	bus_size_t	 vr_len;
};

/*
 * How modern and legacy devices differ.  Semantics are those of
 * virtio_bus_if.m.
 */
struct vtpci_ops {
	uint8_t		(*vo_get_status)(struct vtpci_softc *);
	void		(*vo_set_status)(struct vtpci_softc *, uint8_t);
	uint64_t	(*vo_get_features)(struct vtpci_softc *);
	void		(*vo_set_features)(struct vtpci_softc *, uint64_t);
	/* Where the device's own configuration is now. */
	void		(*vo_config)(struct vtpci_softc *,
	    struct vtpci_region *);
	uint32_t	(*vo_generation)(struct vtpci_softc *);
	uint16_t	(*vo_queue_size)(struct vtpci_softc *, uint16_t);
	int		(*vo_queue_setup)(struct vtpci_softc *, uint16_t,
	    struct pvq *);
	/*
	 * Begin the reset of a queue; is it done?
	 * NULL: there is no such thing.
	 */
	void		(*vo_queue_reset)(struct vtpci_softc *, uint16_t);
	bool		(*vo_queue_is_reset)(struct vtpci_softc *, uint16_t);
	/*
	 * Write a vector and read it back; index VIRTIO_BUS_CONFIG:
	 * configuration changes.
	 */
	uint16_t	(*vo_set_vector)(struct vtpci_softc *, int, uint16_t);
	uint8_t		(*vo_isr)(struct vtpci_softc *);
	void		(*vo_notify)(void *, uint16_t, uint16_t);
};

/* How a queue is notified (4.1.5.2). */
struct vtpci_doorbell {
	bus_size_t	 vdb_off;	/* in vtp_notify.vr_res */
	uint16_t	 vdb_value;	/* the queue's number, or what the
					 * device has for it */
	bool		 vdb_data;	/* with where the next
					 * descriptor goes */
};

struct vtpci_softc {
	struct virtio_bus vtp_bus;	/* first */
	const struct vtpci_ops *vtp_ops;
	struct resource	*vtp_bars[VTPCI_NBARS];
	int		 vtp_bar_types[VTPCI_NBARS];	/* SYS_RES_* */
	bool		 vtp_msix;	/* vectors are allocated */
	/* Modern. */
	struct vtpci_region vtp_common;
	struct vtpci_region vtp_notify;
	struct vtpci_region vtp_isr;
	struct vtpci_region vtp_device;
	uint32_t	 vtp_multiplier;	/* of queue_notify_off,
						 * in bytes */
	uint16_t	 vtp_nqueues;
	struct vtpci_doorbell *vtp_doorbells; /* of each queue */
	/* Legacy. */
	bus_dma_tag_t	 vtp_ring_dmat;	/* what a page number
					 * of 32 bits can reach */
};

/*
 * Map a BAR, or find it mapped.
 *
 * Returns NULL if the device has no such BAR, or it can't be mapped.  May
 * sleep.
 */
struct resource *vtpci_map_bar(struct vtpci_softc *sc, int bar);
void	vtpci_unmap_bars(struct vtpci_softc *sc);

/*
 * Map the BARs of the vector table and of the pending bits, as
 * pci_alloc_msix(9) requires.
 *
 * Returns false if they can't be mapped.  May sleep.
 */
bool	vtpci_map_msix(struct vtpci_softc *sc);

/*
 * Try a device as a modern one: find the capabilities, check them, map what
 * they point to.
 *
 * Returns 0; ENOENT if it has not got them; ENXIO, logged, if they are invalid.
 * May sleep.
 */
int	vtpci_modern_attach(struct vtpci_softc *sc);
void	vtpci_modern_detach(struct vtpci_softc *sc);

/*
 * Try a device as a legacy one.
 *
 * Returns 0; ENXIO if there is no I/O BAR 0 or it is too short; ENOMEM.  May
 * sleep.
 */
int	vtpci_legacy_attach(struct vtpci_softc *sc);
void	vtpci_legacy_detach(struct vtpci_softc *sc);

#endif /* !_DEV_VIRTIO_PCI_VIRTIO_PCI_H_ */
