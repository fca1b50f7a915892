/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_pci: virtio devices on the PCI bus (VirtIO 1.3, 4.1).
 *
 * One driver for both interfaces that a device can have.  A device with valid
 * modern capabilities is driven as modern (virtio_pci_modern.c), a transitional
 * one without them, or if hw.virtio.pci.force_legacy is set, as legacy
 * (virtio_pci_legacy.c).  This file has what is the same for both: probing,
 * interrupts, reset; BARs are mapped by virtio_pci_bar.c.
 *
 * Attach raises nothing that vtpci_teardown() does not lower from any point:
 * BARs, doorbells, the child.
 *
 * A device that was pulled out reads as all ones.  Every wait here is bounded,
 * and vtpci_reset() returns ENXIO if the vendor id reads so, too.
 *
 * Locking.  None: newbus serialises attach and detach, virtio.h describes what
 * drivers serialise, and what an interrupt or pvq_kick() uses does not change
 * while they can run.
 *
 * Gaps.  Shared memory windows (4.1.4.7) and the window through configuration
 * space (4.1.4.9) have no user here.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/libkern.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sysctl.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/pci/virtio_pci.h>

enum { VTPCI_DISABLE_MSIX, VTPCI_FORCE_LEGACY };

static struct pv_tunable vtpci_tunables[] = {
	[VTPCI_DISABLE_MSIX] = PV_TUNABLE("disable_msix", 0, 0, 1, 0,
	    "Use the wired interrupt, even where there is MSI-X"),
	[VTPCI_FORCE_LEGACY] = PV_TUNABLE("force_legacy", 0, 0, 1, 0,
	    "Drive transitional devices by their legacy interface"),
};
PV_TUNABLES(vtpci_tunables, hw, "virtio.pci", vtpci_tunables,
    "VirtIO devices on PCI");

/* Has the device been pulled out? */
static bool
vtpci_gone(struct vtpci_softc *sc)
{

	return (pci_read_config(sc->vtp_bus.vb_dev, PCIR_VENDOR, 2) == 0xffff);
}

static int
vtpci_poll_reset(device_t dev, u_int arg __unused)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	if (sc->vtp_ops->vo_get_status(sc) == VIRTIO_STATUS_RESET)
		return (0);
	return (vtpci_gone(sc) ? ENXIO : EAGAIN);
}

static int
vtpci_reset(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	int error;

	sc->vtp_ops->vo_set_status(sc, VIRTIO_STATUS_RESET);
	error = virtio_bus_wait(dev, vtpci_poll_reset, 0);
	if (error == 0)
		pci_enable_busmaster(dev);
	else if (error == ETIMEDOUT)
		pci_disable_busmaster(dev);
	return (error);
}

static uint8_t
vtpci_get_status(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	return (sc->vtp_ops->vo_get_status(sc));
}

static void
vtpci_set_status(device_t dev, uint8_t status)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	sc->vtp_ops->vo_set_status(sc, status);
}

static uint64_t
vtpci_get_features(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	return (sc->vtp_ops->vo_get_features(sc));
}

static void
vtpci_set_features(device_t dev, uint64_t features)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	sc->vtp_ops->vo_set_features(sc, features);
}

static bus_size_t
vtpci_config_size(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	struct vtpci_region vr;

	sc->vtp_ops->vo_config(sc, &vr);
	return (vr.vr_len);
}

static uint32_t
vtpci_config_generation(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	return (sc->vtp_ops->vo_generation(sc));
}

static uint32_t
vtpci_read_config(device_t dev, bus_size_t off, int width)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	struct vtpci_region vr;

	sc->vtp_ops->vo_config(sc, &vr);
	KASSERT(off + width <= vr.vr_len,
	    ("%s: %ju", __func__, (uintmax_t)off));
	if (width == 4)
		return (bus_read_4(vr.vr_res, vr.vr_off + off));
	if (width == 2)
		return (bus_read_2(vr.vr_res, vr.vr_off + off));
	return (bus_read_1(vr.vr_res, vr.vr_off + off));
}

static void
vtpci_write_config(device_t dev, bus_size_t off, uint32_t value, int width)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	struct vtpci_region vr;

	sc->vtp_ops->vo_config(sc, &vr);
	KASSERT(off + width <= vr.vr_len,
	    ("%s: %ju", __func__, (uintmax_t)off));
	if (width == 4)
		bus_write_4(vr.vr_res, vr.vr_off + off, value);
	else if (width == 2)
		bus_write_2(vr.vr_res, vr.vr_off + off, value);
	else
		bus_write_1(vr.vr_res, vr.vr_off + off, value);
}

static uint16_t
vtpci_queue_size(device_t dev, uint16_t index)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	return (sc->vtp_ops->vo_queue_size(sc, index));
}

static int
vtpci_queue_setup(device_t dev, uint16_t index, struct pvq *q)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	return (sc->vtp_ops->vo_queue_setup(sc, index, q));
}

static int
vtpci_poll_queue_reset(device_t dev, u_int index)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	if (sc->vtp_ops->vo_queue_is_reset(sc, index))
		return (0);
	return (vtpci_gone(sc) ? ENXIO : EAGAIN);
}

/* Only modern devices offer it. */
static int
vtpci_queue_reset(device_t dev, uint16_t index)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	sc->vtp_ops->vo_queue_reset(sc, index);
	return (virtio_bus_wait(dev, vtpci_poll_queue_reset, index));
}

static void
vtpci_free_vectors(device_t dev, int n, struct resource **irqs)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	int i;

	for (i = 0; i < n; i++) {
		if (irqs[i] != NULL)
			(void)bus_release_resource(dev, SYS_RES_IRQ,
			    rman_get_rid(irqs[i]), irqs[i]);
	}
	if (sc->vtp_msix)
		(void)pci_release_msi(dev);
	sc->vtp_msix = false;
}

static int
vtpci_alloc_vectors(device_t dev, int n, struct resource **irqs)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	int count, i, rid;

	if (vtpci_tunables[VTPCI_DISABLE_MSIX].pt_value != 0 ||
	    pci_msix_count(dev) < n || !vtpci_map_msix(sc))
		return (ENXIO);
	count = n;
	if (pci_alloc_msix(dev, &count) != 0)
		return (ENXIO);
	sc->vtp_msix = true;
	for (i = 0; i < n && count == n; i++) {
		rid = i + 1;
		irqs[i] = bus_alloc_resource_any(dev, SYS_RES_IRQ, &rid,
		    RF_ACTIVE);
		if (irqs[i] == NULL)
			break;
	}
	if (i < n) {
		vtpci_free_vectors(dev, i, irqs);
		return (ENXIO);
	}
	return (0);
}

static int
vtpci_alloc_wired(device_t dev, struct resource **irq)
{
	int rid = 0;

	*irq = bus_alloc_resource_any(dev, SYS_RES_IRQ, &rid,
	    RF_ACTIVE | RF_SHAREABLE);
	return (*irq == NULL ? ENXIO : 0);
}

static int
vtpci_set_vector(device_t dev, int index, int vector)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	uint16_t v = vector < 0 ? VIRTIO_PCI_NO_VECTOR : vector;

	/*
	 * A device that has no room for the mapping returns NO_VECTOR
	 * (4.1.5.1.2.2).
	 */
	return (sc->vtp_ops->vo_set_vector(sc, index, v) == v ? 0 : ENXIO);
}

static uint8_t
vtpci_isr(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);

	return (sc->vtp_ops->vo_isr(sc));
}

/* A device's name is that of devctl(8). */
static void
vtpci_name(device_t dev, char *name, size_t size)
{

	snprintf(name, size, "pci%u:%d:%d:%d", pci_get_domain(dev),
	    pci_get_bus(dev), pci_get_slot(dev), pci_get_function(dev));
}

static uint32_t
vtpci_type(device_t dev)
{
	uint16_t device = pci_get_device(dev);

	if (pci_get_vendor(dev) != VIRTIO_PCI_VENDOR ||
	    device < VIRTIO_PCI_DEVICE_MIN || device > VIRTIO_PCI_DEVICE_MAX)
		return (0);
	return (device < VIRTIO_PCI_DEVICE_MODERN ? pci_get_subdevice(dev) :
	    device - VIRTIO_PCI_DEVICE_MODERN);
}

/*
 * As pci(4) does for a driver that was added: a device that lost its driver may
 * have been powered down.
 */
static void
vtpci_offer(device_t dev)
{

	pci_restore_state(dev);
	(void)device_probe_and_attach(dev);
}

static struct virtio_transport vtpci_transport;

static int
vtpci_probe(device_t dev)
{
	uint32_t type = vtpci_type(dev);

	return (type == 0 ? ENXIO :
	    virtio_bus_probe(&vtpci_transport, dev, type));
}

/* Lower what attach raised, from wherever it got to. */
static void
vtpci_teardown(struct vtpci_softc *sc)
{

	vtpci_modern_detach(sc);
	vtpci_legacy_detach(sc);
	vtpci_unmap_bars(sc);
	pci_disable_busmaster(sc->vtp_bus.vb_dev);
}

/* Modern if it can be, legacy if it must be. */
static int
vtpci_choose(struct vtpci_softc *sc)
{
	device_t dev = sc->vtp_bus.vb_dev;
	int error;

	if (vtpci_tunables[VTPCI_FORCE_LEGACY].pt_value != 0 &&
	    vtpci_legacy_attach(sc) == 0)
		return (0);
	error = vtpci_modern_attach(sc);
	if (error == 0 || vtpci_legacy_attach(sc) == 0)
		return (0);
	if (error == ENOENT)
		device_printf(dev,
		    "neither modern capabilities nor a legacy I/O BAR\n");
	return (ENXIO);
}

static void
vtpci_identify(struct vtpci_softc *sc)
{
	struct virtio_bus *vb = &sc->vtp_bus;
	uint16_t device = pci_get_device(vb->vb_dev);

	vb->vb_type = vtpci_type(vb->vb_dev);
	vb->vb_vendor = pci_get_subvendor(vb->vb_dev);
	/*
	 * The subsystem is the environment's (4.1.2), that of a transitional
	 * device its type.
	 */
	vb->vb_qemu = vb->vb_vendor == VIRTIO_PCI_VENDOR &&
	    (device < VIRTIO_PCI_DEVICE_MODERN ||
	    pci_get_subdevice(vb->vb_dev) == VIRTIO_PCI_SUBDEVICE_QEMU);
	vb->vb_notify = sc->vtp_ops->vo_notify;
	vb->vb_notify_arg = sc;
}

static int
vtpci_attach(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	int error;

	sc->vtp_bus.vb_dev = dev;
	error = vtpci_choose(sc);
	if (error == 0) {
		vtpci_identify(sc);
		if (bootverbose)
			device_printf(dev, "%s device, type %u (%s)\n",
			    sc->vtp_bus.vb_modern ? "modern" : "legacy",
			    sc->vtp_bus.vb_type,
			    virtio_type_name(sc->vtp_bus.vb_type));
		error = virtio_bus_attach(&sc->vtp_bus);
	}
	if (error != 0)
		vtpci_teardown(sc);
	return (error);
}

static int
vtpci_detach(device_t dev)
{
	struct vtpci_softc *sc = device_get_softc(dev);
	int error;

	error = virtio_bus_detach(&sc->vtp_bus);
	if (error != 0)
		return (error);
	(void)vtpci_reset(dev);
	vtpci_teardown(sc);
	return (0);
}

static int
vtpci_shutdown(device_t dev)
{

	(void)bus_generic_shutdown(dev);
	/* The next kernel must not find a device that writes to its memory. */
	(void)vtpci_reset(dev);
	return (0);
}

static device_method_t vtpci_methods[] = {
	DEVMETHOD(device_probe,		vtpci_probe),
	DEVMETHOD(device_attach,	vtpci_attach),
	DEVMETHOD(device_detach,	vtpci_detach),
	DEVMETHOD(device_shutdown,	vtpci_shutdown),

	DEVMETHOD(virtio_bus_reset,	vtpci_reset),
	DEVMETHOD(virtio_bus_get_status, vtpci_get_status),
	DEVMETHOD(virtio_bus_set_status, vtpci_set_status),
	DEVMETHOD(virtio_bus_get_features, vtpci_get_features),
	DEVMETHOD(virtio_bus_set_features, vtpci_set_features),
	DEVMETHOD(virtio_bus_config_size, vtpci_config_size),
	DEVMETHOD(virtio_bus_config_gen, vtpci_config_generation),
	DEVMETHOD(virtio_bus_read_config, vtpci_read_config),
	DEVMETHOD(virtio_bus_write_config, vtpci_write_config),
	DEVMETHOD(virtio_bus_queue_size, vtpci_queue_size),
	DEVMETHOD(virtio_bus_queue_setup, vtpci_queue_setup),
	DEVMETHOD(virtio_bus_queue_reset, vtpci_queue_reset),
	DEVMETHOD(virtio_bus_alloc_vectors, vtpci_alloc_vectors),
	DEVMETHOD(virtio_bus_alloc_wired, vtpci_alloc_wired),
	DEVMETHOD(virtio_bus_free_vectors, vtpci_free_vectors),
	DEVMETHOD(virtio_bus_set_vector, vtpci_set_vector),
	DEVMETHOD(virtio_bus_isr,	vtpci_isr),

	DEVMETHOD_END
};

DEFINE_CLASS_1(vtpci, vtpci_driver, vtpci_methods, sizeof(struct vtpci_softc),
    virtio_bus_driver);

static const struct vtpci_pnp {
	uint16_t	vendor;
	uint16_t	first;
	uint16_t	last;
} vtpci_pnp[] = {
	{ VIRTIO_PCI_VENDOR, VIRTIO_PCI_DEVICE_MIN, VIRTIO_PCI_DEVICE_MAX },
};

static struct virtio_transport vtpci_transport = {
	.vt_module = {
		.dmd_busname = "pci",
		.dmd_driver = &vtpci_driver,
		.dmd_pass = BUS_PASS_DEFAULT,
	},
	.vt_kind = "PCI",
	.vt_type = vtpci_type,
	.vt_name = vtpci_name,
	.vt_offer = vtpci_offer,
};

VIRTIO_TRANSPORT_MODULE(vtpci, pci, vtpci_transport);
MODULE_PNP_INFO("U16:vendor;G16:device;L16:device;", pci, vtpci, vtpci_pnp,
    nitems(vtpci_pnp));
MODULE_VERSION(vtpci, 1);
MODULE_DEPEND(vtpci, pci, 1, 1, 1);
MODULE_DEPEND(vtpci, pv, 1, 1, 1);
MODULE_DEPEND(vtpci, pv_virtio, 1, 1, 1);
