/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The host bridge: PCI bus 0 and the functions that the processor reaches through it.
 *
 * Addresses.  A host bridge passes on every address that isn't memory, so any free one would do;
 * but a PC's firmware keeps PCI to a hole below 4 GB, and so does a request here that doesn't say
 * where: from the end of low memory, or 2 GB if that is higher, to the I/O APIC at FEC00000.  The
 * region of PCI Express configuration space in that hole, as the ACPI table MCFG gives it, is
 * left out.
 *
 * Interrupts.  The Interrupt Line register, as the firmware left it, is the number of the I/O
 * APIC's input.  The tables that say otherwise (_PRT) need an ACPI interpreter; on QEMU's
 * machines the line of the old interrupt controller is connected to the I/O APIC's input of the
 * same number as well.  A function that was plugged in later has nothing in that register; then
 * the chip set's router tells (hostb_routers), and the register is filled in.
 *
 * Processors.  What is written to configuration space may move the registers of a function, or take
 * them away.  QEMU 7.2, emulating a processor a thread, dies if another processor accesses a
 * register of whatever device just then: the place that it has in its cache is one in the map of
 * before.  So all others wait meanwhile, where that is possible.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/proc.h>
#include <sys/rman.h>
#include <sys/sched.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/vm_phys.h>
#include <vm/vm_dumpset.h>

#include <machine/bus.h>
#include <machine/intr_machdep.h>
#include <machine/pci_cfgreg.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>
#include <dev/pci/pcib_private.h>
#include <x86/legacyvar.h>
#include <x86/x86/acpi_tables_tree.h>

#include "pcib_if.h"

#define	HOSTB_IO_START		0x1000
#define	HOSTB_MEM_START		0x80000000UL
#define	HOSTB_MEM_END		0xfebfffffUL

/* An entry of the MCFG table (PCI Firmware 3.0, 4.1.2), after 8 reserved bytes. */
struct mcfg_entry {
	uint64_t	base;
	uint16_t	domain;
	uint8_t		bus_start;
	uint8_t		bus_end;
	uint32_t	reserved;
} __packed;

static struct resource *hostb_mcfg_res;

int
legacy_pcib_maxslots(device_t dev)
{
	return (PCI_SLOTMAX);
}

uint32_t
legacy_pcib_read_config(device_t dev, u_int bus, u_int slot, u_int func, u_int reg, int bytes)
{
	return (pci_cfgregread(0, bus, slot, func, reg, bytes));
}

struct hostb_write {
	u_int		cpu;
	u_int		bus, slot, func, reg;
	uint32_t	data;
	int		bytes;
};

/* May this write move registers?  Of a bridge, what is behind the header may switch a slot off. */
static bool
hostb_may_move(const struct hostb_write *w)
{
	if (w->reg == PCIR_COMMAND)
		return (true);
	if (w->reg < PCIR_BAR(0))
		return (false);
	if (w->reg < PCIR_CIS)
		return ((pci_cfgregread(0, w->bus, w->slot, w->func, PCIR_COMMAND, 2) &
		    PCIM_CMD_MEMEN) != 0);
	return ((pci_cfgregread(0, w->bus, w->slot, w->func, PCIR_HDRTYPE, 1) & PCIM_HDRTYPE) ==
	    PCIM_HDRTYPE_BRIDGE);
}

static void
hostb_write(void *arg)
{
	const struct hostb_write *w = arg;

	if (curcpu == w->cpu)
		pci_cfgregwrite(0, w->bus, w->slot, w->func, w->reg, w->data, w->bytes);
}

void
legacy_pcib_write_config(device_t dev, u_int bus, u_int slot, u_int func, u_int reg,
    uint32_t data, int bytes)
{
	struct hostb_write w = {
		.bus = bus, .slot = slot, .func = func, .reg = reg, .data = data, .bytes = bytes
	};

	/* Who holds a spin lock changes the messages of interrupts, not addresses. */
	if (!smp_started || mp_ncpus == 1 || curthread->td_critnest != 0 || !hostb_may_move(&w)) {
		pci_cfgregwrite(0, bus, slot, func, reg, data, bytes);
		return;
	}
	sched_pin();
	w.cpu = curcpu;
	smp_rendezvous(NULL, hostb_write, NULL, &w);
	sched_unpin();
}

/* 0 is the timer's, so the firmware's way to say nothing. */
static bool
hostb_irq_valid(int irq)
{
	return (irq > 0 && irq < PCI_INVALID_IRQ && intr_lookup_source(irq) != NULL);
}

/*
 * The routers that the PC's two chip sets have in their ISA bridge.  Slot and pin choose one of
 * four links; a register for each link holds the interrupt that it raises, or has bit 7 set.
 */
static const struct {
	uint32_t	id;		/* device and vendor */
	int		slot;		/* of the ISA bridge, function 0 */
	int		reg;		/* of link 0 */
	int		last;		/* highest slot that is wired like this */
	int		offset;		/* link = (slot + pin + offset) % 4, pin 0 to 3 */
} hostb_routers[] = {
	{ 0x70008086, 1, 0x60, PCI_SLOTMAX, 3 },	/* PIIX3: PIRQRC[A:D] */
	{ 0x29188086, 31, 0x68, 24, 0 },		/* ICH9: PIRQ[E:H]_ROUT */
};

/*
 * What of the chip sets' functions without a driver is to be as it was after a suspend: the routers
 * above, and where the registers of power management are.
 */
static const struct {
	uint32_t	id;		/* device and vendor */
	int		slot, func;
	int		reg;
	int		count;		/* of 4-byte words */
} hostb_saved_regs[] = {
	{ 0x70008086, 1, 0, 0x60, 1 },	/* PIIX3: PIRQRC[A:D] */
	{ 0x71138086, 1, 3, 0x40, 1 },	/* PIIX4: PMBA */
	{ 0x71138086, 1, 3, 0x80, 1 },	/* PMREGMISC */
	{ 0x29188086, 31, 0, 0x40, 2 },	/* ICH9: PMBASE, ACPI_CNTL */
	{ 0x29188086, 31, 0, 0x60, 3 },	/* PIRQ[A:D]_ROUT, SIRQ_CNTL, PIRQ[E:H]_ROUT */
};

#define	HOSTB_WORDS	3

static uint32_t hostb_saved[nitems(hostb_saved_regs)][HOSTB_WORDS];

static void
hostb_save_regs(bool restore)
{
	u_int i;
	int n, reg, slot, func;

	for (i = 0; i < nitems(hostb_saved_regs); i++) {
		slot = hostb_saved_regs[i].slot;
		func = hostb_saved_regs[i].func;
		if (pci_cfgregread(0, 0, slot, func, PCIR_DEVVENDOR, 4) != hostb_saved_regs[i].id)
			continue;
		for (n = 0; n < hostb_saved_regs[i].count; n++) {
			reg = hostb_saved_regs[i].reg + 4 * n;
			if (restore)
				pci_cfgregwrite(0, 0, slot, func, reg, hostb_saved[i][n], 4);
			else
				hostb_saved[i][n] = pci_cfgregread(0, 0, slot, func, reg, 4);
		}
	}
}

static int
hostb_ask_router(int slot, int pin)
{
	int irq;

	for (u_int i = 0; i < nitems(hostb_routers); i++) {
		if (pci_cfgregread(0, 0, hostb_routers[i].slot, 0, PCIR_DEVVENDOR, 4) !=
		    hostb_routers[i].id || slot > hostb_routers[i].last)
			continue;
		irq = pci_cfgregread(0, 0, hostb_routers[i].slot, 0, hostb_routers[i].reg +
		    (slot + pin - 1 + hostb_routers[i].offset) % 4, 1);
		return ((irq & 0x80) != 0 ? PCI_INVALID_IRQ : irq);
	}
	return (PCI_INVALID_IRQ);
}

static int
legacy_pcib_route_interrupt(device_t pcib, device_t dev, int pin)
{
	/* A bridge passes on pins that aren't its own. */
	bool own = pin == pci_get_intpin(dev);
	int irq = pci_read_config(dev, PCIR_INTLINE, 1);

	if (own && hostb_irq_valid(irq))
		return (irq);
	irq = hostb_ask_router(pci_get_slot(dev), pin);
	if (!hostb_irq_valid(irq))
		return (PCI_INVALID_IRQ);
	if (own)
		pci_write_config(dev, PCIR_INTLINE, irq, 1);
	return (irq);
}

int
legacy_pcib_alloc_msi(device_t pcib, device_t dev, int count, int maxcount, int *irqs)
{
	return (msi_alloc(dev, count, maxcount, irqs));
}

static int
legacy_pcib_release_msi(device_t pcib, device_t dev, int count, int *irqs)
{
	return (msi_release(irqs, count));
}

int
legacy_pcib_alloc_msix(device_t pcib, device_t dev, int *irq)
{
	return (msix_alloc(dev, irq));
}

static int
legacy_pcib_release_msix(device_t pcib, device_t dev, int irq)
{
	return (msix_release(irq));
}

int
legacy_pcib_map_msi(device_t pcib, device_t dev, int irq, uint64_t *addr, uint32_t *data)
{
	return (msi_map(irq, addr, data));
}

/* Keep devices off the memory-mapped configuration space. */
static void
legacy_pcib_reserve_mcfg(device_t dev)
{
	const struct acpi_table *table = acpi_find("MCFG");
	const struct mcfg_entry *entry;
	rman_res_t count, start;
	int rid = 0;

	if (table == NULL || table->length < sizeof(*table) + 8 + sizeof(*entry) ||
	    hostb_mcfg_res != NULL)
		return;
	entry = (const struct mcfg_entry *)((const char *)table + sizeof(*table) + 8);
	/* A megabyte for each bus. */
	start = entry->base + ((rman_res_t)entry->bus_start << 20);
	count = (rman_res_t)(entry->bus_end - entry->bus_start + 1) << 20;
	hostb_mcfg_res = BUS_ALLOC_RESOURCE(device_get_parent(dev), dev, SYS_RES_MEMORY, &rid,
	    start, start + count - 1, count, 0);
}

static void
legacy_pcib_identify(driver_t *driver, device_t parent)
{
	device_t child;

	if (device_find_child(parent, "pcib", 0) != NULL || pci_cfgregopen() == 0)
		return;
	child = BUS_ADD_CHILD(parent, 100, "pcib", 0);
	if (child != NULL)
		legacy_set_pcibus(child, 0);
}

static int
legacy_pcib_probe(device_t dev)
{
	device_set_desc(dev, "Host to PCI bridge");
	return (BUS_PROBE_SPECIFIC);
}

static int
legacy_pcib_attach(device_t dev)
{
	legacy_pcib_reserve_mcfg(dev);
	if (device_add_child(dev, "pci", DEVICE_UNIT_ANY) == NULL)
		return (ENXIO);
	bus_attach_children(dev);
	return (0);
}

static int
legacy_pcib_suspend(device_t dev)
{
	int error;

	error = bus_generic_suspend(dev);
	if (error == 0)
		hostb_save_regs(false);
	return (error);
}

static int
legacy_pcib_resume(device_t dev)
{
	hostb_save_regs(true);
	return (bus_generic_resume(dev));
}

int
legacy_pcib_read_ivar(device_t dev, device_t child, int which, uintptr_t *result)
{
	switch (which) {
	case PCIB_IVAR_DOMAIN:
		*result = 0;
		return (0);
	case PCIB_IVAR_BUS:
		*result = legacy_get_pcibus(dev);
		return (0);
	default:
		return (ENOENT);
	}
}

int
legacy_pcib_write_ivar(device_t dev, device_t child, int which, uintptr_t value)
{
	return (which == PCIB_IVAR_DOMAIN || which == PCIB_IVAR_BUS ? EINVAL : ENOENT);
}

/* Where to look for a place for a device that doesn't mind where. */
rman_res_t
hostb_alloc_start(int type, rman_res_t start, rman_res_t end, rman_res_t count)
{
	rman_res_t low = HOSTB_MEM_START;

	/* A request for one exact range, however large, was said with a start or an end. */
	if (!RMAN_IS_DEFAULT_RANGE(start, end))
		return (start);
	if (type == SYS_RES_IOPORT)
		return (HOSTB_IO_START);
	if (type != SYS_RES_MEMORY)
		return (start);
	for (u_int i = 0; dump_avail[i + 1] != 0; i += 2)
		if (dump_avail[i + 1] <= HOSTB_MEM_END && dump_avail[i + 1] > low)
			low = dump_avail[i + 1];
	return (low);
}

struct resource *
legacy_pcib_alloc_resource(device_t dev, device_t child, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags)
{
	bool anywhere = RMAN_IS_DEFAULT_RANGE(start, end);

	start = hostb_alloc_start(type, start, end, count);
	if (anywhere && type == SYS_RES_MEMORY)
		end = HOSTB_MEM_END;
	return (bus_generic_alloc_resource(dev, child, type, rid, start, end, count, flags));
}

static device_method_t legacy_pcib_methods[] = {
	DEVMETHOD(device_identify,	legacy_pcib_identify),
	DEVMETHOD(device_probe,		legacy_pcib_probe),
	DEVMETHOD(device_attach,	legacy_pcib_attach),
	DEVMETHOD(device_shutdown,	bus_generic_shutdown),
	DEVMETHOD(device_suspend,	legacy_pcib_suspend),
	DEVMETHOD(device_resume,	legacy_pcib_resume),

	DEVMETHOD(bus_read_ivar,	legacy_pcib_read_ivar),
	DEVMETHOD(bus_write_ivar,	legacy_pcib_write_ivar),
	DEVMETHOD(bus_alloc_resource,	legacy_pcib_alloc_resource),
	DEVMETHOD(bus_adjust_resource,	bus_generic_adjust_resource),
	DEVMETHOD(bus_release_resource,	bus_generic_release_resource),
	DEVMETHOD(bus_activate_resource, bus_generic_activate_resource),
	DEVMETHOD(bus_deactivate_resource, bus_generic_deactivate_resource),
	DEVMETHOD(bus_setup_intr,	bus_generic_setup_intr),
	DEVMETHOD(bus_teardown_intr,	bus_generic_teardown_intr),

	DEVMETHOD(pcib_maxslots,	legacy_pcib_maxslots),
	DEVMETHOD(pcib_read_config,	legacy_pcib_read_config),
	DEVMETHOD(pcib_write_config,	legacy_pcib_write_config),
	DEVMETHOD(pcib_route_interrupt,	legacy_pcib_route_interrupt),
	DEVMETHOD(pcib_alloc_msi,	legacy_pcib_alloc_msi),
	DEVMETHOD(pcib_release_msi,	legacy_pcib_release_msi),
	DEVMETHOD(pcib_alloc_msix,	legacy_pcib_alloc_msix),
	DEVMETHOD(pcib_release_msix,	legacy_pcib_release_msix),
	DEVMETHOD(pcib_map_msi,		legacy_pcib_map_msi),
	DEVMETHOD(pcib_get_id,		pcib_get_id_default),

	DEVMETHOD_END
};

static driver_t legacy_pcib_driver = {
	"pcib",
	legacy_pcib_methods,
	1,
};

EARLY_DRIVER_MODULE(pcib, legacy, legacy_pcib_driver, NULL, NULL, BUS_PASS_BUS);
