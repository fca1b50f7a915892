/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * pci: a PCI bus and the functions on it.
 *
 * The bus asks the bridge above for every place on it (bridges:
 * x86/pci/pci_bus.c for the host's, pci_pci.c for the others).  Where a
 * function answers it becomes a device with a struct pci_devinfo: what its
 * header says, and the list of its resources.
 *
 *	pci_enum.c	headers, base address registers and their addresses
 *	pci_cap.c	capabilities
 *	pci_msi.c	message signalled interrupts
 *	pci.c		the bus: functions come and go; the methods that drivers
 *			call
 *	pci_user.c	finding functions, saving and resetting them
 *	pci_hotplug.c	slots of PCI Express ports
 *
 * Resources.  Each BAR's address is claimed from the bridge as soon as the
 * function is found (the list entry is reserved); a driver's allocation then
 * hands it over, and activating it turns decoding on.  Interrupt 0 is the pin,
 * 1 and up are messages.
 *
 * When a driver lets go of a function the bus takes back what it forgot, and
 * turns off what it left on.
 *
 * Locking.  The topology lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sbuf.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pci_private.h>
#include <dev/pci/pcib_private.h>

#include "pcib_if.h"

MALLOC_DEFINE(M_PCI, "pci", "PCI functions");

struct pci_devlist pci_devq = STAILQ_HEAD_INITIALIZER(pci_devq);

static uint32_t
pci_read_config_method(device_t bus, device_t child, int reg, int width)
{
	return (pci_cfg_read(bus, device_get_ivars(child), reg, width));
}

static void
pci_write_config_method(device_t bus, device_t child, int reg, uint32_t val,
    int width)
{
	pci_cfg_write(bus, device_get_ivars(child), reg, val, width);
}

static int
pci_enable_busmaster_method(device_t bus, device_t child)
{
	pci_change_command(bus, device_get_ivars(child), 0,
	    PCIM_CMD_BUSMASTEREN);
	return (0);
}

static int
pci_disable_busmaster_method(device_t bus, device_t child)
{
	pci_change_command(bus, device_get_ivars(child), PCIM_CMD_BUSMASTEREN,
	    0);
	return (0);
}

static int
pci_space_bit(int space)
{
	switch (space) {
	case SYS_RES_IOPORT:
		return (PCIM_CMD_PORTEN);
	case SYS_RES_MEMORY:
		return (PCIM_CMD_MEMEN);
	default:
		return (0);
	}
}

static int
pci_enable_io_method(device_t bus, device_t child, int space)
{
	struct pci_devinfo *di = device_get_ivars(child);
	int bit = pci_space_bit(space);

	if (bit == 0)
		return (EINVAL);
	pci_change_command(bus, di, 0, bit);
	/* A function may not have the bit. */
	if ((pci_cfg_read(bus, di, PCIR_COMMAND, 2) & bit) != 0)
		return (0);
	device_printf(child, "failed to enable %s mapping\n",
	    space == SYS_RES_MEMORY ? "memory" : "port");
	return (ENXIO);
}

static int
pci_disable_io_method(device_t bus, device_t child, int space)
{
	int bit = pci_space_bit(space);

	if (bit == 0)
		return (EINVAL);
	pci_change_command(bus, device_get_ivars(child), bit, 0);
	return (0);
}

static int
pci_get_powerstate_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	if (di->pm == 0)
		return (PCI_POWERSTATE_D0);
	return (pci_cfg_read(bus, di, di->pm + PCIR_POWER_STATUS,
	    2) & PCIM_PSTAT_DMASK);
}

static int
pci_set_powerstate_method(device_t bus, device_t child, int state)
{
	struct pci_devinfo *di = device_get_ivars(child);
	uint16_t status;

	/* D1 and D2 are optional, and nothing emulates them. */
	if (di->pm == 0 ||
	    (state != PCI_POWERSTATE_D0 && state != PCI_POWERSTATE_D3))
		return (EOPNOTSUPP);
	if (pci_get_powerstate_method(bus, child) == state)
		return (0);
	status = pci_cfg_read(bus, di, di->pm + PCIR_POWER_STATUS, 2);
	pci_cfg_write(bus, di, di->pm + PCIR_POWER_STATUS,
	    (status & ~PCIM_PSTAT_DMASK) | state, 2);
	/* PCI Power Management 1.2, 5.6.1: 10 ms from or to D3. */
	DELAY(10000);
	return (0);
}

static int
pci_get_id_method(device_t bus, device_t child, enum pci_id_type type,
    uintptr_t *id)
{
	return (PCIB_GET_ID(device_get_parent(bus), child, type, id));
}

/*
 * The pin's interrupt becomes resource 0: level triggered, active low, shared
 * (PCI 3.0, 2.2.6).
 */
static int
pci_assign_interrupt_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);
	int irq;

	irq = PCIB_ROUTE_INTERRUPT(device_get_parent(bus), child, di->intpin);
	if (!PCI_INTERRUPT_VALID(irq))
		return (PCI_INVALID_IRQ);
	(void)BUS_CONFIG_INTR(bus, irq, INTR_TRIGGER_LEVEL, INTR_POLARITY_LOW);
	di->intline = irq;
	resource_list_add(&di->resources, SYS_RES_IRQ, 0, irq, irq, 1);
	return (irq);
}

/* Make the function at this place a device; NULL if there is none. */
static device_t
pci_add_function(device_t bus, int slot, int func)
{
	struct pci_devinfo *di;
	device_t child;

	di = pci_read_function(bus, pcib_get_domain(bus), pcib_get_bus(bus),
	    slot, func);
	if (di == NULL)
		return (NULL);
	child = device_add_child(bus, NULL, DEVICE_UNIT_ANY);
	if (child == NULL) {
		resource_list_free(&di->resources);
		free(di, M_PCI);
		return (NULL);
	}
	di->dev = child;
	device_set_ivars(child, di);
	STAILQ_INSERT_TAIL(&pci_devq, di, link);
	pci_claim_bars(bus, child);
	if (di->intpin > 0)
		(void)pci_assign_interrupt_method(bus, child);
	EVENTHANDLER_INVOKE(pci_add_device, child);
	return (child);
}

static device_t
pci_find_function(device_t bus, int slot, int func)
{
	struct pci_devinfo *di;

	STAILQ_FOREACH(di, &pci_devq, link)
		if (device_get_parent(di->dev) == bus && di->slot == slot &&
		    di->func == func)
			return (di->dev);
	return (NULL);
}

/* Is the function that `child` stands for still there, and the same? */
static int
pci_child_present(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	if (!bus_child_present(bus))
		return (0);
	return (pci_cfg_read(bus, di, PCIR_DEVVENDOR, 4) ==
	    ((uint32_t)di->device << 16 | di->vendor) ? -1 : 0);
}

/* Bring one function's device up to date. */
static void
pci_update_function(device_t bus, int slot, int func)
{
	device_t child = pci_find_function(bus, slot, func);

	if (child != NULL && !pci_child_present(bus, child)) {
		if (device_delete_child(bus, child) != 0)
			return;
		child = NULL;
	}
	if (child == NULL && device_get_state(bus) >= DS_ATTACHING) {
		child = pci_add_function(bus, slot, func);
		if (child != NULL && device_get_state(bus) == DS_ATTACHED)
			(void)device_probe_and_attach(child);
	}
}

/* Look at every place on the bus; BUS_RESCAN(9) too. */
static int
pci_rescan(device_t bus)
{
	device_t pcib = device_get_parent(bus);
	int b = pcib_get_bus(bus), maxfunc;

	for (int slot = 0; slot <= PCIB_MAXSLOTS(pcib); slot++) {
		maxfunc = 0;
		if (PCIB_READ_CONFIG(pcib, b, slot, 0, PCIR_VENDOR,
		    2) != 0xffff && (PCIB_READ_CONFIG(pcib, b, slot, 0,
		    PCIR_HDRTYPE, 1) & PCIM_MFDEV) != 0)
			maxfunc = PCI_FUNCMAX;
		/* Functions that went must be found, too. */
		for (int func = 0; func <= PCI_FUNCMAX; func++)
			if (func <= maxfunc ||
			    pci_find_function(bus, slot, func) != NULL)
				pci_update_function(bus, slot, func);
	}
	return (0);
}

static int
pci_probe(device_t dev)
{
	device_set_desc(dev, "PCI bus");
	/* Another kind of PCI bus may build on this one. */
	return (BUS_PROBE_GENERIC);
}

static int
pci_attach(device_t dev)
{
	(void)pci_rescan(dev);
	bus_attach_children(dev);
	return (0);
}

static void
pci_child_deleted(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	EVENTHANDLER_INVOKE(pci_delete_device, child);
	if (pci_child_present(bus, child))
		pci_change_command(bus, di, PCIM_CMD_MEMEN | PCIM_CMD_PORTEN |
		    PCIM_CMD_BUSMASTEREN, 0);
	pci_unclaim_bars(bus, child);
	resource_list_free(&di->resources);
	STAILQ_REMOVE(&pci_devq, di, pci_devinfo, link);
	free(di, M_PCI);
}

static void
pci_child_detached(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct resource_list *rl = &di->resources;

	if (resource_list_release_active(rl, bus, child, SYS_RES_IRQ) != 0)
		device_printf(child, "Device leaked IRQ resources\n");
	if (di->msi.alloc != 0 || di->msix.alloc != 0) {
		device_printf(child, "Device leaked %u MSI vectors\n",
		    di->msi.alloc + di->msix.alloc);
		(void)pci_release_msi_method(bus, child);
	}
	if (resource_list_release_active(rl, bus, child, SYS_RES_MEMORY) != 0)
		device_printf(child, "Device leaked memory resources\n");
	if (resource_list_release_active(rl, bus, child, SYS_RES_IOPORT) != 0)
		device_printf(child, "Device leaked I/O resources\n");
	pci_change_command(bus, di, PCIM_CMD_BUSMASTEREN, 0);
}

static void
pci_driver_added(device_t bus, driver_t *driver)
{
	device_t *list;
	int n;

	if (device_get_children(bus, &list, &n) != 0)
		return;
	DEVICE_IDENTIFY(driver, bus);
	for (int i = 0; i < n; i++)
		if (device_get_state(list[i]) == DS_NOTPRESENT)
			(void)device_probe_and_attach(list[i]);
	free(list, M_TEMP);
}

static int
pci_print_child(device_t bus, device_t child)
{
	struct resource_list *rl =
	    &((struct pci_devinfo *)device_get_ivars(child))->resources;
	int n;

	n = bus_print_child_header(bus, child);
	n += resource_list_print_type(rl, "port", SYS_RES_IOPORT, "%#jx");
	n += resource_list_print_type(rl, "mem", SYS_RES_MEMORY, "%#jx");
	n += resource_list_print_type(rl, "irq", SYS_RES_IRQ, "%jd");
	n += printf(" at device %d.%d", pci_get_slot(child),
	    pci_get_function(child));
	n += bus_print_child_domain(bus, child);
	n += bus_print_child_footer(bus, child);
	return (n);
}

static void
pci_probe_nomatch(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	if (bootverbose)
		device_printf(bus,
		    "<vendor 0x%04x, device 0x%04x> at device %d.%d "
		    "(no driver attached)\n", di->vendor, di->device, di->slot,
		    di->func);
}

static int
pci_child_location(device_t bus, device_t child, struct sbuf *sb)
{
	struct pci_devinfo *di = device_get_ivars(child);

	sbuf_printf(sb, "slot=%d function=%d dbsf=pci%u:%d:%d:%d", di->slot,
	    di->func, di->domain, di->bus, di->slot, di->func);
	return (0);
}

static int
pci_child_pnpinfo(device_t bus, device_t child, struct sbuf *sb)
{
	struct pci_devinfo *di = device_get_ivars(child);

	sbuf_printf(sb,
	    "vendor=0x%04x device=0x%04x subvendor=0x%04x subdevice=0x%04x "
	    "class=0x%02x%02x%02x", di->vendor, di->device, di->subvendor,
	    di->subdevice, di->baseclass, di->subclass, di->progif);
	return (0);
}

static int
pci_read_ivar(device_t bus, device_t child, int which, uintptr_t *result)
{
	struct pci_devinfo *di = device_get_ivars(child);
	uintptr_t values[] = {
		[PCI_IVAR_SUBVENDOR] = di->subvendor,
		[PCI_IVAR_SUBDEVICE] = di->subdevice,
		[PCI_IVAR_VENDOR] = di->vendor,
		[PCI_IVAR_DEVICE] = di->device,
		[PCI_IVAR_DEVID] = (uint32_t)di->device << 16 | di->vendor,
		[PCI_IVAR_CLASS] = di->baseclass,
		[PCI_IVAR_SUBCLASS] = di->subclass,
		[PCI_IVAR_PROGIF] = di->progif,
		[PCI_IVAR_REVID] = di->revid,
		[PCI_IVAR_INTPIN] = di->intpin,
		[PCI_IVAR_IRQ] = di->intline,
		[PCI_IVAR_DOMAIN] = di->domain,
		[PCI_IVAR_BUS] = di->bus,
		[PCI_IVAR_SLOT] = di->slot,
		[PCI_IVAR_FUNCTION] = di->func,
		[PCI_IVAR_CMDREG] = di->cmdreg,
		[PCI_IVAR_CACHELNSZ] = di->cachelnsz,
		[PCI_IVAR_LATTIMER] = di->lattimer,
	};

	if (which == PCI_IVAR_ETHADDR) {
		/*
		 * PCI knows no such thing; the accessor's user checks for this.
		 */
		*result = 0;
		return (EINVAL);
	}
	if (which < 0 || which >= (int)nitems(values))
		return (ENOENT);
	*result = values[which];
	return (0);
}

static int
pci_write_ivar(device_t bus, device_t child, int which, uintptr_t value)
{
	struct pci_devinfo *di = device_get_ivars(child);

	if (which == PCI_IVAR_INTPIN) {
		di->intpin = value;
		return (0);
	}
	return (which >= 0 && which <= PCI_IVAR_LATTIMER ? EINVAL : ENOENT);
}

static struct resource_list *
pci_get_resource_list(device_t bus, device_t child)
{
	return (&((struct pci_devinfo *)device_get_ivars(child))->resources);
}

static bool
pci_is_message(const struct pci_devinfo *di, int rid)
{
	return (rid > 0 && (u_int)rid <= MAX(di->msi.alloc, di->msix.alloc));
}

static struct resource *
pci_alloc_resource(device_t bus, device_t child, int type, int *rid,
    rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct pci_devinfo *di = device_get_ivars(child);

	if (device_get_parent(child) != bus)
		return (BUS_ALLOC_RESOURCE(device_get_parent(bus), child, type,
		    rid, start, end, count, flags));
	/* What a bridge claims is for the bus behind it: no BAR of its own. */
	if ((di->hdrtype & PCIM_HDRTYPE) == PCIM_HDRTYPE_BRIDGE &&
	    (*rid == PCIR_IOBASEL_1 || *rid == PCIR_MEMBASE_1 ||
	    *rid == PCIR_PMBASEL_1))
		return (bus_generic_alloc_resource(bus, child, type, rid, start,
		    end, count, flags));
	/* Pin or messages: not both (pci(9)). */
	if (type == SYS_RES_IRQ && *rid == 0 &&
	    (di->msi.alloc != 0 || di->msix.alloc != 0))
		return (NULL);
	if (type == SYS_RES_IRQ && *rid > 0 && !pci_is_message(di, *rid))
		return (NULL);
	return (resource_list_alloc(&di->resources, bus, child, type, rid,
	    start, end, count, flags));
}

static int
pci_release_resource(device_t bus, device_t child, struct resource *r)
{
	struct resource_list *rl;

	if (device_get_parent(child) != bus)
		return (bus_generic_release_resource(bus, child, r));
	rl = pci_get_resource_list(bus, child);
	if (resource_list_find(rl, rman_get_type(r), rman_get_rid(r)) == NULL)
		return (bus_generic_release_resource(bus, child, r));
	return (resource_list_release(rl, bus, child, r));
}

static int
pci_activate_resource(device_t bus, device_t child, struct resource *r)
{
	int error, type = rman_get_type(r);

	error = bus_generic_activate_resource(bus, child, r);
	if (error == 0 && device_get_parent(child) == bus &&
	    (type == SYS_RES_MEMORY || type == SYS_RES_IOPORT))
		error = pci_enable_io_method(bus, child, type);
	return (error);
}

static int
pci_suspend_child(device_t bus, device_t child)
{
	int error;

	error = bus_generic_suspend_child(bus, child);
	if (error == 0)
		pci_save_state(child);
	return (error);
}

static int
pci_resume_child(device_t bus, device_t child)
{
	pci_restore_state(child);
	return (bus_generic_resume_child(bus, child));
}

static device_method_t pci_methods[] = {
	DEVMETHOD(device_probe,		pci_probe),
	DEVMETHOD(device_attach,	pci_attach),
	DEVMETHOD(device_detach,	bus_generic_detach),
	DEVMETHOD(device_shutdown,	bus_generic_shutdown),
	DEVMETHOD(device_suspend,	bus_generic_suspend),
	DEVMETHOD(device_resume,	bus_generic_resume),

	DEVMETHOD(bus_print_child,	pci_print_child),
	DEVMETHOD(bus_probe_nomatch,	pci_probe_nomatch),
	DEVMETHOD(bus_read_ivar,	pci_read_ivar),
	DEVMETHOD(bus_write_ivar,	pci_write_ivar),
	DEVMETHOD(bus_driver_added,	pci_driver_added),
	DEVMETHOD(bus_child_deleted,	pci_child_deleted),
	DEVMETHOD(bus_child_detached,	pci_child_detached),
	DEVMETHOD(bus_child_present,	pci_child_present),
	DEVMETHOD(bus_child_location,	pci_child_location),
	DEVMETHOD(bus_child_pnpinfo,	pci_child_pnpinfo),
	DEVMETHOD(bus_rescan,		pci_rescan),
	DEVMETHOD(bus_suspend_child,	pci_suspend_child),
	DEVMETHOD(bus_resume_child,	pci_resume_child),
	DEVMETHOD(bus_get_resource_list, pci_get_resource_list),
	DEVMETHOD(bus_set_resource,	bus_generic_rl_set_resource),
	DEVMETHOD(bus_get_resource,	bus_generic_rl_get_resource),
	DEVMETHOD(bus_delete_resource,	bus_generic_rl_delete_resource),
	DEVMETHOD(bus_alloc_resource,	pci_alloc_resource),
	DEVMETHOD(bus_adjust_resource,	bus_generic_adjust_resource),
	DEVMETHOD(bus_release_resource,	pci_release_resource),
	DEVMETHOD(bus_activate_resource, pci_activate_resource),
	DEVMETHOD(bus_deactivate_resource, bus_generic_deactivate_resource),
	DEVMETHOD(bus_setup_intr,	pci_setup_intr),
	DEVMETHOD(bus_teardown_intr,	pci_teardown_intr),
	DEVMETHOD(bus_remap_intr,	pci_remap_intr),

	DEVMETHOD(pci_read_config,	pci_read_config_method),
	DEVMETHOD(pci_write_config,	pci_write_config_method),
	DEVMETHOD(pci_enable_busmaster,	pci_enable_busmaster_method),
	DEVMETHOD(pci_disable_busmaster, pci_disable_busmaster_method),
	DEVMETHOD(pci_enable_io,	pci_enable_io_method),
	DEVMETHOD(pci_disable_io,	pci_disable_io_method),
	DEVMETHOD(pci_get_powerstate,	pci_get_powerstate_method),
	DEVMETHOD(pci_set_powerstate,	pci_set_powerstate_method),
	DEVMETHOD(pci_assign_interrupt,	pci_assign_interrupt_method),
	DEVMETHOD(pci_find_cap,		pci_find_cap_method),
	DEVMETHOD(pci_find_next_cap,	pci_find_next_cap_method),
	DEVMETHOD(pci_find_extcap,	pci_find_extcap_method),
	DEVMETHOD(pci_alloc_msi,	pci_alloc_msi_method),
	DEVMETHOD(pci_alloc_msix,	pci_alloc_msix_method),
	DEVMETHOD(pci_enable_msi,	pci_enable_msi_method),
	DEVMETHOD(pci_enable_msix,	pci_enable_msix_method),
	DEVMETHOD(pci_disable_msi,	pci_disable_msi_method),
	DEVMETHOD(pci_release_msi,	pci_release_msi_method),
	DEVMETHOD(pci_msi_count,	pci_msi_count_method),
	DEVMETHOD(pci_msix_count,	pci_msix_count_method),
	DEVMETHOD(pci_msix_pba_bar,	pci_msix_pba_bar_method),
	DEVMETHOD(pci_msix_table_bar,	pci_msix_table_bar_method),
	DEVMETHOD(pci_get_id,		pci_get_id_method),

	DEVMETHOD_END
};

DEFINE_CLASS_0(pci, pci_driver, pci_methods, 1);
EARLY_DRIVER_MODULE(pci, pcib, pci_driver, NULL, NULL, BUS_PASS_BUS);
MODULE_VERSION(pci, 1);
