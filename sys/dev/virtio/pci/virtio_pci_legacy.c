/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Legacy virtio over PCI (VirtIO 1.3, 4.1.4.10): one header in I/O BAR 0, and a
 * transitional device's older interface.
 *
 * What is different: 32 feature bits and no FEATURES_OK; a queue's size is
 * fixed by the device; its memory is contiguous, on a 4 KiB boundary below
 * 2^44, given by page number; writing the page number enables it, and only 0 or
 * a reset takes it back; the device's own configuration moves by 4 bytes while
 * MSI-X is enabled; it has no generation, and the guest's byte order.
 *
 * Locking.  As in virtio_pci_modern.c.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/pci/virtio_pci.h>

/* The last byte that a page number of 32 bits reaches. */
#define	VTPCI_LEGACY_MAXADDR						\
	((1ULL << (32 + VIRTIO_PCI_LEGACY_PFN_SHIFT)) - 1)

static inline struct resource *
vtpci_header(struct vtpci_softc *sc)
{

	return (sc->vtp_bars[0]);
}

/*
 * Is MSI-X enabled?  What counts is what the device sees, so it is read from
 * there.
 */
static bool
vtpci_msix_enabled(struct vtpci_softc *sc)
{
	device_t dev = sc->vtp_bus.vb_dev;
	int cap;

	if (!sc->vtp_msix || pci_find_cap(dev, PCIY_MSIX, &cap) != 0)
		return (false);
	return ((pci_read_config(dev, cap + PCIR_MSIX_CTRL,
	    2) & PCIM_MSIXCTRL_MSIX_ENABLE) != 0);
}

static uint8_t
vtpci_legacy_get_status(struct vtpci_softc *sc)
{

	return (bus_read_1(vtpci_header(sc), VIRTIO_PCI_LEGACY_STATUS));
}

static void
vtpci_legacy_set_status(struct vtpci_softc *sc, uint8_t status)
{

	bus_write_1(vtpci_header(sc), VIRTIO_PCI_LEGACY_STATUS, status);
}

static uint64_t
vtpci_legacy_get_features(struct vtpci_softc *sc)
{

	return (bus_read_4(vtpci_header(sc), VIRTIO_PCI_LEGACY_DF));
}

static void
vtpci_legacy_set_features(struct vtpci_softc *sc, uint64_t features)
{

	bus_write_4(vtpci_header(sc), VIRTIO_PCI_LEGACY_GF, (uint32_t)features);
}

static void
vtpci_legacy_config(struct vtpci_softc *sc, struct vtpci_region *vr)
{

	vr->vr_res = vtpci_header(sc);
	vr->vr_off = vtpci_msix_enabled(sc) ? VIRTIO_PCI_LEGACY_CONFIG_MSIX :
	    VIRTIO_PCI_LEGACY_CONFIG;
	vr->vr_len = rman_get_size(vr->vr_res) - vr->vr_off;
}

static uint32_t
vtpci_legacy_generation(struct vtpci_softc *sc __unused)
{

	return (0);
}

static uint16_t
vtpci_legacy_queue_size(struct vtpci_softc *sc, uint16_t index)
{

	bus_write_2(vtpci_header(sc), VIRTIO_PCI_LEGACY_Q_SELECT, index);
	return (bus_read_2(vtpci_header(sc), VIRTIO_PCI_LEGACY_Q_SIZE));
}

static int
vtpci_legacy_queue_setup(struct vtpci_softc *sc, uint16_t index, struct pvq *q)
{
	struct virtqueue_addrs addrs;
	uint32_t pfn;

	virtqueue_addrs(q, &addrs);
	pfn = addrs.vqa_desc >> VIRTIO_PCI_LEGACY_PFN_SHIFT;
	/* The size is fixed by the device, and may differ after a reset. */
	if (vtpci_legacy_queue_size(sc, index) != q->q_size)
		return (ENXIO);
	bus_write_4(vtpci_header(sc), VIRTIO_PCI_LEGACY_Q_PFN, pfn);
	return (bus_read_4(vtpci_header(sc), VIRTIO_PCI_LEGACY_Q_PFN) == pfn ?
	    0 : ENXIO);
}

static uint16_t
vtpci_legacy_set_vector(struct vtpci_softc *sc, int index, uint16_t vector)
{
	bus_size_t reg = VIRTIO_PCI_LEGACY_MSIX_CONFIG;

	if (!vtpci_msix_enabled(sc))
		return (VIRTIO_PCI_NO_VECTOR);
	if (index != VIRTIO_BUS_CONFIG) {
		bus_write_2(vtpci_header(sc), VIRTIO_PCI_LEGACY_Q_SELECT,
		    index);
		reg = VIRTIO_PCI_LEGACY_MSIX_QUEUE;
	}
	bus_write_2(vtpci_header(sc), reg, vector);
	return (bus_read_2(vtpci_header(sc), reg));
}

static uint8_t
vtpci_legacy_isr(struct vtpci_softc *sc)
{

	return (bus_read_1(vtpci_header(sc), VIRTIO_PCI_LEGACY_ISR));
}

static void
vtpci_legacy_notify(void *arg, uint16_t index, uint16_t next __unused)
{
	struct vtpci_softc *sc = arg;

	if (sc->vtp_bus.vb_live)
		bus_write_2(vtpci_header(sc), VIRTIO_PCI_LEGACY_Q_NOTIFY,
		    index);
}

static const struct vtpci_ops vtpci_legacy_ops = {
	.vo_get_status = vtpci_legacy_get_status,
	.vo_set_status = vtpci_legacy_set_status,
	.vo_get_features = vtpci_legacy_get_features,
	.vo_set_features = vtpci_legacy_set_features,
	.vo_config = vtpci_legacy_config,
	.vo_generation = vtpci_legacy_generation,
	.vo_queue_size = vtpci_legacy_queue_size,
	.vo_queue_setup = vtpci_legacy_queue_setup,
	.vo_set_vector = vtpci_legacy_set_vector,
	.vo_isr = vtpci_legacy_isr,
	.vo_notify = vtpci_legacy_notify,
};

int
vtpci_legacy_attach(struct vtpci_softc *sc)
{
	device_t dev = sc->vtp_bus.vb_dev;
	int error;

	if (pci_get_device(dev) >= VIRTIO_PCI_DEVICE_MODERN ||
	    vtpci_map_bar(sc, 0) == NULL ||
	    sc->vtp_bar_types[0] != SYS_RES_IOPORT)
		return (ENXIO);
	if (rman_get_size(vtpci_header(sc)) < VIRTIO_PCI_LEGACY_CONFIG_MSIX) {
		device_printf(dev, "I/O BAR 0 of %ju bytes is too short\n",
		    (uintmax_t)rman_get_size(vtpci_header(sc)));
		return (ENXIO);
	}
	error = bus_dma_tag_create(bus_get_dma_tag(dev), 1, 0,
	    VTPCI_LEGACY_MAXADDR, BUS_SPACE_MAXADDR, NULL, NULL,
	    BUS_SPACE_MAXSIZE, BUS_SPACE_UNRESTRICTED, BUS_SPACE_MAXSIZE, 0,
	    NULL, NULL, &sc->vtp_ring_dmat);
	if (error != 0)
		return (error);
	sc->vtp_bus.vb_dmat = sc->vtp_ring_dmat;
	sc->vtp_ops = &vtpci_legacy_ops;
	sc->vtp_bus.vb_modern = false;
	sc->vtp_bus.vb_fixed_size = true;
	sc->vtp_bus.vb_ring_align = VRING_LEGACY_ALIGN;
	return (0);
}

void
vtpci_legacy_detach(struct vtpci_softc *sc)
{

	if (sc->vtp_ring_dmat != NULL)
		(void)bus_dma_tag_destroy(sc->vtp_ring_dmat);
	sc->vtp_ring_dmat = NULL;
}
