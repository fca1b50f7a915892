/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Modern virtio over PCI (VirtIO 1.3, 4.1.4): register windows anywhere in the
 * BARs, that vendor capabilities point to.
 *
 * A capability's values are the device's, and are checked.  One with a reserved
 * BAR, or of an unknown type, is skipped, as 4.1.4.1 requires; of each type the
 * first that is left counts.  That one must be inside its BAR and be long
 * enough, or the device is not driven.
 *
 * Locking.  None: queue_select and the feature selectors are used by one thread
 * at a time (see virtio.h).  Notification and ISR have registers of their own,
 * and need no selector.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/rman.h>

#include <machine/bus.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/pci/virtio_pci.h>

/* Capabilities that there is room for, at 4 bytes each behind the header. */
#define	VTPCI_CAPS_MAX	((PCI_REGMAX + 1 - 0x40) / 4)

static MALLOC_DEFINE(M_VTPCI, "virtio_pci", "virtio_pci modern device");

/* One of the windows that we look for. */
struct vtpci_want {
	uint8_t		 type;
	const char	*name;
	size_t		 region;	/* offset in the softc */
	uint32_t	 min_len;
	uint32_t	 align;
	bool		 optional;
};

static const struct vtpci_want vtpci_wants[] = {
	{ VIRTIO_PCI_CAP_COMMON_CFG, "common configuration",
	    offsetof(struct vtpci_softc, vtp_common), VIRTIO_PCI_COMMON_SIZE, 4,
	    false },
	{ VIRTIO_PCI_CAP_NOTIFY_CFG, "notification",
	    offsetof(struct vtpci_softc, vtp_notify), sizeof(uint16_t), 2,
	    false },
	{ VIRTIO_PCI_CAP_ISR_CFG, "interrupt status",
	    offsetof(struct vtpci_softc, vtp_isr), sizeof(uint8_t), 1, false },
	/* Some types of device have no configuration of their own. */
	{ VIRTIO_PCI_CAP_DEVICE_CFG, "device configuration",
	    offsetof(struct vtpci_softc, vtp_device), 0, 4, true },
};

static inline uint8_t
vtpci_common_1(struct vtpci_softc *sc, bus_size_t reg)
{

	return (bus_read_1(sc->vtp_common.vr_res, sc->vtp_common.vr_off + reg));
}

static inline uint16_t
vtpci_common_2(struct vtpci_softc *sc, bus_size_t reg)
{

	return (bus_read_2(sc->vtp_common.vr_res, sc->vtp_common.vr_off + reg));
}

static inline uint32_t
vtpci_common_4(struct vtpci_softc *sc, bus_size_t reg)
{

	return (bus_read_4(sc->vtp_common.vr_res, sc->vtp_common.vr_off + reg));
}

static inline void
vtpci_set_common_1(struct vtpci_softc *sc, bus_size_t reg, uint8_t v)
{

	bus_write_1(sc->vtp_common.vr_res, sc->vtp_common.vr_off + reg, v);
}

static inline void
vtpci_set_common_2(struct vtpci_softc *sc, bus_size_t reg, uint16_t v)
{

	bus_write_2(sc->vtp_common.vr_res, sc->vtp_common.vr_off + reg, v);
}

static inline void
vtpci_set_common_4(struct vtpci_softc *sc, bus_size_t reg, uint32_t v)
{

	bus_write_4(sc->vtp_common.vr_res, sc->vtp_common.vr_off + reg, v);
}

/* The 64-bit registers are written as two of 32, low half first (4.1.3.1). */
static void
vtpci_set_common_8(struct vtpci_softc *sc, bus_size_t reg, uint64_t v)
{

	vtpci_set_common_4(sc, reg, (uint32_t)v);
	vtpci_set_common_4(sc, reg + 4, v >> 32);
}

static uint8_t
vtpci_modern_get_status(struct vtpci_softc *sc)
{

	return (vtpci_common_1(sc, VIRTIO_PCI_COMMON_STATUS));
}

static void
vtpci_modern_set_status(struct vtpci_softc *sc, uint8_t status)
{

	vtpci_set_common_1(sc, VIRTIO_PCI_COMMON_STATUS, status);
}

static uint64_t
vtpci_modern_get_features(struct vtpci_softc *sc)
{
	uint64_t features;

	vtpci_set_common_4(sc, VIRTIO_PCI_COMMON_DFSELECT, 1);
	features = (uint64_t)vtpci_common_4(sc, VIRTIO_PCI_COMMON_DF) << 32;
	vtpci_set_common_4(sc, VIRTIO_PCI_COMMON_DFSELECT, 0);
	features |= vtpci_common_4(sc, VIRTIO_PCI_COMMON_DF);
	/*
	 * A window that ends before the register, of a device older than 1.3,
	 * has none.
	 */
	if (sc->vtp_common.vr_len < VIRTIO_PCI_COMMON_Q_NDATA +
	    sizeof(uint16_t))
		features &= ~VIRTIO_F_NOTIF_CONFIG_DATA;
	if (sc->vtp_common.vr_len < VIRTIO_PCI_COMMON_Q_RESET +
	    sizeof(uint16_t))
		features &= ~VIRTIO_F_RING_RESET;
	return (features);
}

static void
vtpci_modern_set_features(struct vtpci_softc *sc, uint64_t features)
{

	vtpci_set_common_4(sc, VIRTIO_PCI_COMMON_GFSELECT, 0);
	vtpci_set_common_4(sc, VIRTIO_PCI_COMMON_GF, (uint32_t)features);
	vtpci_set_common_4(sc, VIRTIO_PCI_COMMON_GFSELECT, 1);
	vtpci_set_common_4(sc, VIRTIO_PCI_COMMON_GF, features >> 32);
}

static void
vtpci_modern_config(struct vtpci_softc *sc, struct vtpci_region *vr)
{

	*vr = sc->vtp_device;
}

static uint32_t
vtpci_modern_generation(struct vtpci_softc *sc)
{

	return (vtpci_common_1(sc, VIRTIO_PCI_COMMON_CFGGENERATION));
}

/*
 * How many queues there are, which may depend on the negotiated features:
 * QEMU's network card shows further pairs only with MQ.
 */
static void
vtpci_count_queues(struct vtpci_softc *sc)
{
	uint16_t n;

	n = vtpci_common_2(sc, VIRTIO_PCI_COMMON_NUMQ);
	if (n <= sc->vtp_nqueues)
		return;
	free(sc->vtp_doorbells, M_VTPCI);
	sc->vtp_doorbells = malloc(n * sizeof(*sc->vtp_doorbells), M_VTPCI,
	    M_WAITOK | M_ZERO);
	sc->vtp_nqueues = n;
}

/* While queues are allocated, none has been set up yet. */
static uint16_t
vtpci_modern_queue_size(struct vtpci_softc *sc, uint16_t index)
{

	if (index >= sc->vtp_nqueues)
		vtpci_count_queues(sc);
	if (index >= sc->vtp_nqueues)
		return (0);
	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_SELECT, index);
	return (vtpci_common_2(sc, VIRTIO_PCI_COMMON_Q_SIZE));
}

/*
 * Where to write, and what, to notify a queue, which is selected (4.1.4.4,
 * 4.1.5.2)?
 */
static int
vtpci_find_doorbell(struct vtpci_softc *sc, uint16_t index)
{
	struct vtpci_doorbell *vd = &sc->vtp_doorbells[index];
	uint64_t features = sc->vtp_bus.vb_features, off;

	vd->vdb_data = (features & VIRTIO_F_NOTIFICATION_DATA) != 0;
	off = (uint64_t)vtpci_common_2(sc,
	    VIRTIO_PCI_COMMON_Q_NOFF) * sc->vtp_multiplier;
	if (off + (vd->vdb_data ? sizeof(uint32_t) :
	    sizeof(uint16_t)) > sc->vtp_notify.vr_len || (vd->vdb_data &&
	    (sc->vtp_notify.vr_off + off) % sizeof(uint32_t) != 0)) {
		device_printf(sc->vtp_bus.vb_dev,
		    "queue %u: notification at %ju is not aligned, or "
		    "outside of its window of %ju bytes\n", index,
		    (uintmax_t)off, (uintmax_t)sc->vtp_notify.vr_len);
		return (ENXIO);
	}
	vd->vdb_off = sc->vtp_notify.vr_off + off;
	vd->vdb_value = (features & VIRTIO_F_NOTIF_CONFIG_DATA) != 0 ?
	    vtpci_common_2(sc, VIRTIO_PCI_COMMON_Q_NDATA) : index;
	return (0);
}

static int
vtpci_modern_queue_setup(struct vtpci_softc *sc, uint16_t index, struct pvq *q)
{
	struct virtqueue_addrs addrs;
	int error;

	KASSERT(index < sc->vtp_nqueues, ("%s: queue %u", __func__, index));
	virtqueue_addrs(q, &addrs);
	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_SELECT, index);
	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_SIZE, q->q_size);
	if (vtpci_common_2(sc, VIRTIO_PCI_COMMON_Q_SIZE) != q->q_size)
		return (ENXIO);
	error = vtpci_find_doorbell(sc, index);
	if (error != 0)
		return (error);
	vtpci_set_common_8(sc, VIRTIO_PCI_COMMON_Q_DESC, addrs.vqa_desc);
	vtpci_set_common_8(sc, VIRTIO_PCI_COMMON_Q_DRIVER, addrs.vqa_driver);
	vtpci_set_common_8(sc, VIRTIO_PCI_COMMON_Q_DEVICE, addrs.vqa_device);
	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_ENABLE, 1);
	return (vtpci_common_2(sc, VIRTIO_PCI_COMMON_Q_ENABLE) == 1 ? 0 :
	    ENXIO);
}

static void
vtpci_modern_queue_reset(struct vtpci_softc *sc, uint16_t index)
{

	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_SELECT, index);
	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_RESET, 1);
}

/*
 * A queue that is still enabled was not reset, whatever its register has
 * (4.1.4.3.1).
 */
static bool
vtpci_modern_queue_is_reset(struct vtpci_softc *sc, uint16_t index)
{

	vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_SELECT, index);
	return (vtpci_common_2(sc, VIRTIO_PCI_COMMON_Q_RESET) == 0 &&
	    vtpci_common_2(sc, VIRTIO_PCI_COMMON_Q_ENABLE) == 0);
}

static uint16_t
vtpci_modern_set_vector(struct vtpci_softc *sc, int index, uint16_t vector)
{
	bus_size_t reg = VIRTIO_PCI_COMMON_MSIX;

	if (index != VIRTIO_BUS_CONFIG) {
		vtpci_set_common_2(sc, VIRTIO_PCI_COMMON_Q_SELECT, index);
		reg = VIRTIO_PCI_COMMON_Q_MSIX;
	}
	vtpci_set_common_2(sc, reg, vector);
	return (vtpci_common_2(sc, reg));
}

static uint8_t
vtpci_modern_isr(struct vtpci_softc *sc)
{

	return (bus_read_1(sc->vtp_isr.vr_res, sc->vtp_isr.vr_off));
}

static void
vtpci_modern_notify(void *arg, uint16_t index, uint16_t next)
{
	struct vtpci_softc *sc = arg;
	const struct vtpci_doorbell *vd = &sc->vtp_doorbells[index];

	if (!sc->vtp_bus.vb_live)
		return;
	if (__predict_false(vd->vdb_data))
		bus_write_4(sc->vtp_notify.vr_res, vd->vdb_off,
		    vd->vdb_value | (uint32_t)next << 16);
	else
		bus_write_2(sc->vtp_notify.vr_res, vd->vdb_off, vd->vdb_value);
}

static const struct vtpci_ops vtpci_modern_ops = {
	.vo_get_status = vtpci_modern_get_status,
	.vo_set_status = vtpci_modern_set_status,
	.vo_get_features = vtpci_modern_get_features,
	.vo_set_features = vtpci_modern_set_features,
	.vo_config = vtpci_modern_config,
	.vo_generation = vtpci_modern_generation,
	.vo_queue_size = vtpci_modern_queue_size,
	.vo_queue_setup = vtpci_modern_queue_setup,
	.vo_queue_reset = vtpci_modern_queue_reset,
	.vo_queue_is_reset = vtpci_modern_queue_is_reset,
	.vo_set_vector = vtpci_modern_set_vector,
	.vo_isr = vtpci_modern_isr,
	.vo_notify = vtpci_modern_notify,
};

/*
 * The first capability of a type whose BAR is not reserved.  A device may have
 * made the list circular, and then there is always a next one: no more are
 * looked at than there is room for.
 */
static int
vtpci_find_cap(device_t dev, uint8_t type, int *capp)
{
	int cap, error, n;

	error = pci_find_cap(dev, PCIY_VENDOR, &cap);
	for (n = 0; error == 0 && n < VTPCI_CAPS_MAX; n++) {
		if (pci_read_config(dev, cap + VIRTIO_PCI_CAP_TYPE,
		    1) == type && pci_read_config(dev, cap + VIRTIO_PCI_CAP_BAR,
		    1) < VTPCI_NBARS) {
			*capp = cap;
			return (0);
		}
		error = pci_find_next_cap(dev, PCIY_VENDOR, cap, &cap);
	}
	return (ENOENT);
}

/* Map the window that a capability describes. */
static int
vtpci_map_window(struct vtpci_softc *sc, const struct vtpci_want *want, int cap)
{
	struct vtpci_region *vr =
	    (struct vtpci_region *)((char *)sc + want->region);
	device_t dev = sc->vtp_bus.vb_dev;
	uint32_t len, off;
	uint64_t size;
	int bar;

	if (pci_read_config(dev, cap + VIRTIO_PCI_CAP_LEN,
	    1) < VIRTIO_PCI_CAP_SIZE) {
		device_printf(dev, "%s: capability too short\n", want->name);
		return (ENXIO);
	}
	bar = pci_read_config(dev, cap + VIRTIO_PCI_CAP_BAR, 1);
	off = pci_read_config(dev, cap + VIRTIO_PCI_CAP_OFFSET, 4);
	len = pci_read_config(dev, cap + VIRTIO_PCI_CAP_LENGTH, 4);
	vr->vr_res = vtpci_map_bar(sc, bar);
	if (vr->vr_res == NULL) {
		device_printf(dev, "%s: BAR %d can't be mapped\n", want->name,
		    bar);
		return (ENXIO);
	}
	size = rman_get_size(vr->vr_res);
	if (len < want->min_len || (uint64_t)off + len > size ||
	    off % want->align != 0) {
		device_printf(dev,
		    "%s: %u bytes at %u do not fit BAR %d of %ju bytes, or are "
		    "fewer than %u, or not aligned to %u\n", want->name, len,
		    off, bar, (uintmax_t)size, want->min_len, want->align);
		vr->vr_res = NULL;
		return (ENXIO);
	}
	vr->vr_off = off;
	vr->vr_len = len;
	return (0);
}

/*
 * The notification window's capability is longer: how far is it from one
 * doorbell to the next?
 */
static int
vtpci_read_multiplier(struct vtpci_softc *sc, int cap)
{
	device_t dev = sc->vtp_bus.vb_dev;
	uint32_t multiplier;

	if (pci_read_config(dev, cap + VIRTIO_PCI_CAP_LEN,
	    1) < VIRTIO_PCI_CAP_NOTIFY_SIZE) {
		device_printf(dev,
		    "notification: capability without a multiplier\n");
		return (ENXIO);
	}
	multiplier = pci_read_config(dev, cap + VIRTIO_PCI_CAP_MULTIPLIER, 4);
	/* 0: one doorbell for all; else an even power of two (4.1.4.4.1). */
	if (multiplier == 1 || (multiplier != 0 && !powerof2(multiplier))) {
		device_printf(dev,
		    "notification: multiplier %u is not an even power of two\n",
		    multiplier);
		return (ENXIO);
	}
	sc->vtp_multiplier = multiplier;
	return (0);
}

static int
vtpci_map_windows(struct vtpci_softc *sc)
{
	const struct vtpci_want *want;
	int cap, error;

	for (want = vtpci_wants; want < vtpci_wants + nitems(vtpci_wants);
	    want++) {
		error = vtpci_find_cap(sc->vtp_bus.vb_dev, want->type, &cap);
		if (error != 0) {
			if (want->optional)
				continue;
			return (ENOENT);
		}
		error = vtpci_map_window(sc, want, cap);
		if (error == 0 && want->type == VIRTIO_PCI_CAP_NOTIFY_CFG)
			error = vtpci_read_multiplier(sc, cap);
		if (error != 0)
			return (error);
	}
	return (0);
}

int
vtpci_modern_attach(struct vtpci_softc *sc)
{
	int error;

	error = vtpci_map_windows(sc);
	if (error != 0)
		return (error);
	vtpci_count_queues(sc);
	if (sc->vtp_nqueues == 0) {
		device_printf(sc->vtp_bus.vb_dev, "device has no queues\n");
		return (ENXIO);
	}
	sc->vtp_ops = &vtpci_modern_ops;
	sc->vtp_bus.vb_modern = true;
	sc->vtp_bus.vb_dmat = bus_get_dma_tag(sc->vtp_bus.vb_dev);
	sc->vtp_bus.vb_ring_align = VRING_USED_ALIGN;
	return (0);
}

void
vtpci_modern_detach(struct vtpci_softc *sc)
{

	free(sc->vtp_doorbells, M_VTPCI);
	sc->vtp_doorbells = NULL;
}
