/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * PCI-to-PCI bridges, ports of PCI Express included (PCI-to-PCI Bridge 1.2,
 * 3.2).
 *
 * The firmware has numbered the buses and given each bridge its windows: the
 * ranges of I/O ports, memory, and prefetchable memory that it passes on.  A
 * window is claimed from the bus above when the bridge attaches, and is a
 * region of its own from then on, which the functions behind the bridge get
 * their addresses from.  Firmware leaves room in the windows of a port that
 * things can be plugged into.
 *
 *	nexus   |------- mem_rman -------------------------------|
 *	pcib1           |---- memory window ----|
 *	 function             |BAR|
 *
 * pci_hotplug.c watches ports with a slot.
 *
 * Gaps.  Windows don't grow, and buses that the firmware didn't number stay out
 * of reach.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>
#include <dev/pci/pcib_private.h>
#include <dev/pci/pcib_softc_tree.h>

#include "pcib_if.h"

int
pcib_get_id_default(device_t pcib, device_t dev, enum pci_id_type type,
    uintptr_t *id)
{
	if (type != PCI_ID_RID)
		return (ENXIO);
	*id = PCI_RID(pci_get_bus(dev), pci_get_slot(dev),
	    pci_get_function(dev));
	return (0);
}

static void
pcib_read_io_window(device_t dev, struct pcib_window *w)
{
	uint32_t base = pci_read_config(dev, PCIR_IOBASEL_1, 1);
	uint32_t limit = pci_read_config(dev, PCIR_IOLIMITL_1, 1);

	w->base = (base & 0xf0) << 8;
	w->limit = (limit & 0xf0) << 8 | 0xfff;
	if ((base & PCIM_BRIO_MASK) == PCIM_BRIO_32) {
		w->base |= pci_read_config(dev, PCIR_IOBASEH_1, 2) << 16;
		w->limit |= pci_read_config(dev, PCIR_IOLIMITH_1, 2) << 16;
	}
}

static void
pcib_read_mem_window(device_t dev, struct pcib_window *w)
{
	w->base = (pci_read_config(dev, PCIR_MEMBASE_1, 2) & 0xfff0) << 16;
	w->limit = (pci_read_config(dev, PCIR_MEMLIMIT_1, 2) & 0xfff0) << 16 |
	    0xfffff;
	w->base &= 0xffffffff;
	w->limit &= 0xffffffff;
}

static void
pcib_read_pmem_window(device_t dev, struct pcib_window *w)
{
	uint32_t base = pci_read_config(dev, PCIR_PMBASEL_1, 2);
	uint32_t limit = pci_read_config(dev, PCIR_PMLIMITL_1, 2);

	w->base = (rman_res_t)(base & 0xfff0) << 16;
	w->limit = (rman_res_t)(limit & 0xfff0) << 16 | 0xfffff;
	if ((base & PCIM_BRPM_MASK) == PCIM_BRPM_64) {
		w->base |= (rman_res_t)pci_read_config(dev, PCIR_PMBASEH_1,
		    4) << 32;
		w->limit |= (rman_res_t)pci_read_config(dev, PCIR_PMLIMITH_1,
		    4) << 32;
	}
}

static const struct {
	const char	*name;
	int		type;
	int		rid;	/* in the bridge's own configuration space */
	u_int		flags;
	void		(*read)(device_t dev, struct pcib_window *w);
} pcib_windows[PCIB_NWINDOWS] = {
	{ "I/O ports", SYS_RES_IOPORT, PCIR_IOBASEL_1, 0, pcib_read_io_window },
	{ "memory window", SYS_RES_MEMORY, PCIR_MEMBASE_1, 0,
	    pcib_read_mem_window },
	{ "prefetch window", SYS_RES_MEMORY, PCIR_PMBASEL_1, RF_PREFETCHABLE,
	    pcib_read_pmem_window },
};

/* Read a window's registers, claim its range, and make it a region. */
static void
pcib_open_window(struct pcib_softc *sc, u_int i)
{
	struct pcib_window *w = &sc->windows[i];
	int rid = pcib_windows[i].rid;

	pcib_windows[i].read(sc->dev, w);
	/*
	 * A base above the limit closes the window; so does a base of 0, which
	 * no PC uses.
	 */
	if (w->base > w->limit || w->base == 0)
		return;
	w->res = bus_alloc_resource(sc->dev, pcib_windows[i].type, &rid,
	    w->base, w->limit, w->limit - w->base + 1, pcib_windows[i].flags);
	if (w->res == NULL) {
		device_printf(sc->dev,
		    "the range of its %s, %#jx-%#jx, is taken\n",
		    pcib_windows[i].name, (uintmax_t)w->base,
		    (uintmax_t)w->limit);
		return;
	}
	snprintf(w->descr, sizeof(w->descr),
	    "%s %s", device_get_nameunit(sc->dev), pcib_windows[i].name);
	w->rman.rm_type = RMAN_ARRAY;
	w->rman.rm_descr = w->descr;
	w->rman.rm_start = w->base;
	w->rman.rm_end = w->limit;
	if (rman_init(&w->rman) != 0) {
		bus_release_resource(sc->dev, w->res);
		w->res = NULL;
		return;
	}
	if (rman_manage_region(&w->rman, w->base, w->limit) != 0)
		panic("%s: %s", __func__, w->descr);
}

static void
pcib_close_windows(struct pcib_softc *sc)
{
	struct pcib_window *w;

	for (u_int i = 0; i < PCIB_NWINDOWS; i++) {
		w = &sc->windows[i];
		if (w->res == NULL)
			continue;
		if (rman_fini(&w->rman) != 0)
			panic("%s: %s is in use", __func__, w->descr);
		bus_release_resource(sc->dev, w->res);
		w->res = NULL;
	}
}

static int
pcib_probe(device_t dev)
{
	if (pci_get_class(dev) != PCIC_BRIDGE ||
	    pci_get_subclass(dev) != PCIS_BRIDGE_PCI)
		return (ENXIO);
	device_set_desc(dev, "PCI-PCI bridge");
	return (BUS_PROBE_GENERIC);
}

static int
pcib_attach(device_t dev)
{
	struct pcib_softc *sc = device_get_softc(dev);

	sc->dev = dev;
	sc->secbus = pci_read_config(dev, PCIR_SECBUS_1, 1);
	sc->subbus = pci_read_config(dev, PCIR_SUBBUS_1, 1);
	if (sc->secbus == 0) {
		device_printf(dev,
		    "the firmware gave the bus behind it no number\n");
		return (ENXIO);
	}
	for (u_int i = 0; i < PCIB_NWINDOWS; i++)
		pcib_open_window(sc, i);
	(void)pci_enable_busmaster(dev);
	(void)pci_enable_io(dev, SYS_RES_MEMORY);
	(void)pci_enable_io(dev, SYS_RES_IOPORT);
	sc->child = device_add_child(dev, "pci", DEVICE_UNIT_ANY);
	if (sc->child == NULL) {
		pcib_close_windows(sc);
		return (ENXIO);
	}
	pcib_hotplug_init(sc);
	bus_attach_children(dev);
	pcib_hotplug_start(sc);
	return (0);
}

static int
pcib_detach(device_t dev)
{
	struct pcib_softc *sc = device_get_softc(dev);
	int error;

	error = bus_generic_detach(dev);
	if (error != 0)
		return (error);
	pcib_hotplug_stop(sc);
	pcib_close_windows(sc);
	return (0);
}

static int
pcib_suspend(device_t dev)
{
	struct pcib_softc *sc = device_get_softc(dev);
	int error;

	error = bus_generic_suspend(dev);
	if (error != 0)
		return (error);
	for (u_int i = 0; i < PCIB_NSAVED; i++)
		sc->saved[i] = pci_read_config(dev, PCIR_PRIBUS_1 + i * 4, 4);
	/*
	 * The upper half beside the I/O window is status, cleared by what is
	 * written to it.
	 */
	sc->saved[(PCIR_IOBASEL_1 - PCIR_PRIBUS_1) / 4] &= 0xffff;
	pcib_hotplug_suspend(sc);
	return (0);
}

static int
pcib_resume(device_t dev)
{
	struct pcib_softc *sc = device_get_softc(dev);

	for (u_int i = 0; i < PCIB_NSAVED; i++)
		pci_write_config(dev, PCIR_PRIBUS_1 + i * 4, sc->saved[i], 4);
	pcib_hotplug_resume(sc);
	return (bus_generic_resume(dev));
}

static int
pcib_read_ivar(device_t dev, device_t child, int which, uintptr_t *result)
{
	struct pcib_softc *sc = device_get_softc(dev);

	switch (which) {
	case PCIB_IVAR_DOMAIN:
		*result = pci_get_domain(dev);
		return (0);
	case PCIB_IVAR_BUS:
		*result = sc->secbus;
		return (0);
	default:
		return (ENOENT);
	}
}

/*
 * The window that a resource came out of, or NULL if it isn't from one of ours.
 */
static struct pcib_window *
pcib_find_window(struct pcib_softc *sc, const struct resource *r)
{
	for (u_int i = 0; i < PCIB_NWINDOWS; i++)
		if (sc->windows[i].res != NULL &&
		    rman_is_region_manager(r, &sc->windows[i].rman))
			return (&sc->windows[i]);
	return (NULL);
}

static struct resource *
pcib_alloc_resource(device_t dev, device_t child, int type, int *rid,
    rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct pcib_softc *sc = device_get_softc(dev);
	struct resource *r = NULL;

	if (type != SYS_RES_MEMORY && type != SYS_RES_IOPORT)
		return (bus_generic_alloc_resource(dev, child, type, rid, start,
		    end, count, flags));
	/*
	 * From the prefetchable window down: what may be prefetched need not
	 * be.
	 */
	for (int i = PCIB_NWINDOWS - 1; i >= 0 && r == NULL; i--) {
		if (sc->windows[i].res == NULL ||
		    pcib_windows[i].type != type ||
		    (pcib_windows[i].flags & ~flags) != 0)
			continue;
		r = rman_reserve_resource(&sc->windows[i].rman, start, end,
		    count, flags & ~RF_ACTIVE, child);
	}
	if (r == NULL)
		return (NULL);
	rman_set_rid(r, *rid);
	rman_set_type(r, type);
	if ((flags & RF_ACTIVE) != 0 && bus_activate_resource(child, r) != 0) {
		rman_release_resource(r);
		return (NULL);
	}
	return (r);
}

static int
pcib_adjust_resource(device_t dev, device_t child, struct resource *r,
    rman_res_t start, rman_res_t end)
{
	if (pcib_find_window(device_get_softc(dev), r) == NULL)
		return (bus_generic_adjust_resource(dev, child, r, start, end));
	return (rman_adjust_resource(r, start, end));
}

static int
pcib_release_resource(device_t dev, device_t child, struct resource *r)
{
	int error;

	if (pcib_find_window(device_get_softc(dev), r) == NULL)
		return (bus_generic_release_resource(dev, child, r));
	if ((rman_get_flags(r) & RF_ACTIVE) != 0) {
		error = bus_deactivate_resource(child, r);
		if (error != 0)
			return (error);
	}
	return (rman_release_resource(r));
}

static int
pcib_activate_resource(device_t dev, device_t child, struct resource *r)
{
	struct resource_map map;
	int error;

	if (pcib_find_window(device_get_softc(dev), r) == NULL)
		return (bus_generic_activate_resource(dev, child, r));
	error = rman_activate_resource(r);
	if (error != 0 || (rman_get_flags(r) & RF_UNMAPPED) != 0)
		return (error);
	error = BUS_MAP_RESOURCE(dev, child, r, NULL, &map);
	if (error != 0) {
		rman_deactivate_resource(r);
		return (error);
	}
	rman_set_mapping(r, &map);
	return (0);
}

static int
pcib_deactivate_resource(device_t dev, device_t child, struct resource *r)
{
	struct resource_map map;
	int error;

	if (pcib_find_window(device_get_softc(dev), r) == NULL)
		return (bus_generic_deactivate_resource(dev, child, r));
	error = rman_deactivate_resource(r);
	if (error != 0 || (rman_get_flags(r) & RF_UNMAPPED) != 0)
		return (error);
	rman_get_mapping(r, &map);
	return (BUS_UNMAP_RESOURCE(dev, child, r, &map));
}

/* A port of PCI Express has one slot behind it (PCI Express 4.0, 7.3.1). */
static int
pcib_port_maxslots(device_t dev)
{
	struct pcib_softc *sc = device_get_softc(dev);

	return (sc->is_port ? 0 : PCI_SLOTMAX);
}

static uint32_t
pcib_read_config(device_t dev, u_int bus, u_int slot, u_int func, u_int reg,
    int width)
{
	return (PCIB_READ_CONFIG(device_get_parent(device_get_parent(dev)), bus,
	    slot, func, reg, width));
}

static void
pcib_write_config(device_t dev, u_int bus, u_int slot, u_int func, u_int reg,
    uint32_t value, int width)
{
	PCIB_WRITE_CONFIG(device_get_parent(device_get_parent(dev)), bus, slot,
	    func, reg, value, width);
}

/*
 * What the firmware wrote into the function's register holds.  Else the pin is
 * one of the bridge's, turned by the slot number (PCI-to-PCI Bridge 1.2, 9.1),
 * and the bus above knows where that goes.
 */
static int
pcib_route_interrupt(device_t dev, device_t child, int pin)
{
	bool own = pin == pci_get_intpin(child);
	int irq = pci_read_config(child, PCIR_INTLINE, 1);

	if (own && irq > 0 && irq < PCI_INVALID_IRQ)
		return (irq);
	irq = PCIB_ROUTE_INTERRUPT(device_get_parent(device_get_parent(dev)),
	    dev, (pci_get_slot(child) + pin - 1) % 4 + 1);
	if (own && PCI_INTERRUPT_VALID(irq))
		pci_write_config(child, PCIR_INTLINE, irq, 1);
	return (irq);
}

static int
pcib_alloc_msi(device_t dev, device_t child, int count, int maxcount, int *irqs)
{
	return (PCIB_ALLOC_MSI(device_get_parent(device_get_parent(dev)), child,
	    count, maxcount, irqs));
}

static int
pcib_release_msi(device_t dev, device_t child, int count, int *irqs)
{
	return (PCIB_RELEASE_MSI(device_get_parent(device_get_parent(dev)),
	    child, count, irqs));
}

static int
pcib_alloc_msix(device_t dev, device_t child, int *irq)
{
	return (PCIB_ALLOC_MSIX(device_get_parent(device_get_parent(dev)),
	    child, irq));
}

static int
pcib_release_msix(device_t dev, device_t child, int irq)
{
	return (PCIB_RELEASE_MSIX(device_get_parent(device_get_parent(dev)),
	    child, irq));
}

static int
pcib_map_msi(device_t dev, device_t child, int irq, uint64_t *addr,
    uint32_t *data)
{
	return (PCIB_MAP_MSI(device_get_parent(device_get_parent(dev)), child,
	    irq, addr, data));
}

static device_method_t pcib_methods[] = {
	DEVMETHOD(device_probe,		pcib_probe),
	DEVMETHOD(device_attach,	pcib_attach),
	DEVMETHOD(device_detach,	pcib_detach),
	DEVMETHOD(device_shutdown,	bus_generic_shutdown),
	DEVMETHOD(device_suspend,	pcib_suspend),
	DEVMETHOD(device_resume,	pcib_resume),

	DEVMETHOD(bus_child_present,	pcib_hotplug_child_present),
	DEVMETHOD(bus_read_ivar,	pcib_read_ivar),
	DEVMETHOD(bus_alloc_resource,	pcib_alloc_resource),
	DEVMETHOD(bus_adjust_resource,	pcib_adjust_resource),
	DEVMETHOD(bus_release_resource,	pcib_release_resource),
	DEVMETHOD(bus_activate_resource, pcib_activate_resource),
	DEVMETHOD(bus_deactivate_resource, pcib_deactivate_resource),
	DEVMETHOD(bus_setup_intr,	bus_generic_setup_intr),
	DEVMETHOD(bus_teardown_intr,	bus_generic_teardown_intr),

	DEVMETHOD(pcib_maxslots,	pcib_port_maxslots),
	DEVMETHOD(pcib_read_config,	pcib_read_config),
	DEVMETHOD(pcib_write_config,	pcib_write_config),
	DEVMETHOD(pcib_route_interrupt,	pcib_route_interrupt),
	DEVMETHOD(pcib_alloc_msi,	pcib_alloc_msi),
	DEVMETHOD(pcib_release_msi,	pcib_release_msi),
	DEVMETHOD(pcib_alloc_msix,	pcib_alloc_msix),
	DEVMETHOD(pcib_release_msix,	pcib_release_msix),
	DEVMETHOD(pcib_map_msi,		pcib_map_msi),
	DEVMETHOD(pcib_get_id,		pcib_get_id_default),

	DEVMETHOD_END
};

DEFINE_CLASS_0(pcib, pcib_driver, pcib_methods, sizeof(struct pcib_softc));
EARLY_DRIVER_MODULE(pcib, pci, pcib_driver, NULL, NULL, BUS_PASS_BUS);
