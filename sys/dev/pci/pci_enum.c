/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * PCI functions: reading their headers, and their base address registers (PCI
 * 3.0, 6.2.5.1).
 *
 * A BAR answers a store of all ones with its size.  While it holds those ones
 * it would decode a wrong address, so decoding is off for that time.  Addresses
 * that the firmware gave are claimed as they are.  A BAR without one, as a
 * function has that was plugged in, gets an address out of what the bridge
 * above has free, at once: with a size that is a power of two as its alignment.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pci_private.h>

#include "pcib_if.h"

uint32_t
pci_cfg_read(device_t bus, const struct pci_devinfo *di, int reg, int width)
{
	return (PCIB_READ_CONFIG(device_get_parent(bus), di->bus, di->slot,
	    di->func, reg, width));
}

void
pci_cfg_write(device_t bus, const struct pci_devinfo *di, int reg, uint32_t val,
    int width)
{
	PCIB_WRITE_CONFIG(device_get_parent(bus), di->bus, di->slot, di->func,
	    reg, val, width);
}

void
pci_change_command(device_t bus, struct pci_devinfo *di, uint16_t clear,
    uint16_t set)
{
	uint16_t command = pci_cfg_read(bus, di, PCIR_COMMAND, 2);

	di->cmdreg = (command & ~clear) | set;
	if (di->cmdreg != command)
		pci_cfg_write(bus, di, PCIR_COMMAND, di->cmdreg, 2);
}

static void
pci_read_header(device_t bus, struct pci_devinfo *di)
{
	uint32_t class;

	di->vendor = pci_cfg_read(bus, di, PCIR_VENDOR, 2);
	di->device = pci_cfg_read(bus, di, PCIR_DEVICE, 2);
	class = pci_cfg_read(bus, di, PCIR_REVID, 4);
	di->revid = class;
	di->progif = class >> 8;
	di->subclass = class >> 16;
	di->baseclass = class >> 24;
	di->hdrtype = pci_cfg_read(bus, di, PCIR_HDRTYPE, 1);
	di->cmdreg = pci_cfg_read(bus, di, PCIR_COMMAND, 2);
	di->cachelnsz = pci_cfg_read(bus, di, PCIR_CACHELNSZ, 1);
	di->lattimer = pci_cfg_read(bus, di, PCIR_LATTIMER, 1);
	di->intpin = pci_cfg_read(bus, di, PCIR_INTPIN, 1);
	di->intline = pci_cfg_read(bus, di, PCIR_INTLINE, 1);
	if ((di->hdrtype & PCIM_HDRTYPE) == PCIM_HDRTYPE_NORMAL) {
		di->subvendor = pci_cfg_read(bus, di, PCIR_SUBVEND_0, 2);
		di->subdevice = pci_cfg_read(bus, di, PCIR_SUBDEV_0, 2);
	}
}

/* What is at this place, or NULL if nothing answers. */
struct pci_devinfo *
pci_read_function(device_t bus, int domain, int b, int s, int f)
{
	struct pci_devinfo *di;
	uint16_t vendor;

	vendor = PCIB_READ_CONFIG(device_get_parent(bus), b, s, f, PCIR_VENDOR,
	    2);
	if (vendor == 0xffff || vendor == 0)
		return (NULL);
	di = malloc(sizeof(*di), M_PCI, M_WAITOK | M_ZERO);
	di->domain = domain;
	di->bus = b;
	di->slot = s;
	di->func = f;
	resource_list_init(&di->resources);
	pci_read_header(bus, di);
	pci_read_caps(bus, di);
	pci_read_bars(bus, di);
	return (di);
}

/* Look at the BAR at `reg`; returns how many registers it takes. */
static int
pci_read_bar(device_t bus, struct pci_devinfo *di, int reg)
{
	struct pci_bar *bar = &di->bars[di->nbars];
	uint64_t mask, value;
	int n = 1;

	value = pci_cfg_read(bus, di, reg, 4);
	pci_cfg_write(bus, di, reg, 0xffffffff, 4);
	mask = pci_cfg_read(bus, di, reg, 4);
	pci_cfg_write(bus, di, reg, value, 4);
	bar->reg = reg;
	if (PCI_BAR_IO(value)) {
		bar->type = SYS_RES_IOPORT;
		bar->mem64 = bar->prefetch = false;
		bar->base = value & PCIM_BAR_IO_BASE;
		/*
		 * The upper half may be hard-wired to 0: there are 64 K ports.
		 */
		mask = (mask & PCIM_BAR_IO_BASE) | 0xffff0000;
		mask |= 0xffffffff00000000ULL;
	} else {
		bar->type = SYS_RES_MEMORY;
		bar->mem64 = (value & PCIM_BAR_MEM_TYPE) == PCIM_BAR_MEM_64;
		bar->prefetch = (value & PCIM_BAR_MEM_PREFETCH) != 0;
		if (bar->mem64) {
			n = 2;
			value |= (uint64_t)pci_cfg_read(bus, di, reg + 4,
			    4) << 32;
			pci_cfg_write(bus, di, reg + 4, 0xffffffff, 4);
			mask |= (uint64_t)pci_cfg_read(bus, di, reg + 4,
			    4) << 32;
			pci_cfg_write(bus, di, reg + 4, value >> 32, 4);
		} else if (mask != 0)
			mask |= 0xffffffff00000000ULL;
		bar->base = value & PCIM_BAR_MEM_BASE;
		mask &= PCIM_BAR_MEM_BASE;
	}
	bar->size = mask & -mask;
	/* A register that keeps none of the ones isn't there. */
	if ((uint32_t)mask != 0 || (bar->mem64 && mask != 0))
		if (bar->type != SYS_RES_IOPORT || bar->size < 0x10000)
			di->nbars++;
	return (n);
}

void
pci_read_bars(device_t bus, struct pci_devinfo *di)
{
	uint16_t command = di->cmdreg;
	int max;

	switch (di->hdrtype & PCIM_HDRTYPE) {
	case PCIM_HDRTYPE_NORMAL:
		max = PCIR_MAX_BAR_0;
		break;
	case PCIM_HDRTYPE_BRIDGE:
		max = PCIR_MAX_BAR_1;
		break;
	default:
		return;
	}
	pci_cfg_write(bus, di, PCIR_COMMAND,
	    command & ~(PCIM_CMD_MEMEN | PCIM_CMD_PORTEN), 2);
	for (int i = 0; i <= max; )
		i += pci_read_bar(bus, di, PCIR_BAR(i));
	pci_cfg_write(bus, di, PCIR_COMMAND, command, 2);
}

static void
pci_write_bar(device_t bus, const struct pci_devinfo *di,
    const struct pci_bar *bar)
{
	pci_cfg_write(bus, di, bar->reg, bar->base, 4);
	if (bar->mem64)
		pci_cfg_write(bus, di, bar->reg + 4, bar->base >> 32, 4);
}

void
pci_write_bars(device_t bus, struct pci_devinfo *di)
{
	for (u_int i = 0; i < di->nbars; i++)
		pci_write_bar(bus, di, &di->bars[i]);
}

/* Claim the address of a BAR for the function, or a new one. */
static bool
pci_claim_bar(device_t bus, device_t child, struct pci_devinfo *di,
    struct pci_bar *bar)
{
	u_int flags = bar->prefetch ? RF_PREFETCHABLE : 0;
	rman_res_t end = RM_MAX_END, start = 0;
	struct resource *r;
	int rid = bar->reg;

	if (bar->base != 0) {
		start = bar->base;
		end = bar->base + bar->size - 1;
	} else
		flags |= RF_ALIGNMENT_LOG2(flsll(bar->size) - 1);
	resource_list_add(&di->resources, bar->type, rid, start, end,
	    bar->size);
	r = resource_list_reserve(&di->resources, bus, child, bar->type, &rid,
	    start, end, bar->size, flags);
	if (r == NULL) {
		resource_list_delete(&di->resources, bar->type, bar->reg);
		return (false);
	}
	if (bar->base == 0) {
		bar->base = rman_get_start(r);
		pci_write_bar(bus, di, bar);
	}
	return (true);
}

void
pci_claim_bars(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct pci_bar *bar;

	for (u_int i = 0; i < di->nbars; i++) {
		bar = &di->bars[i];
		if (bar->base != 0 && pci_claim_bar(bus, child, di, bar))
			continue;
		/*
		 * Without an address, or with one that another device has.  It
		 * must not decode it.
		 */
		pci_change_command(bus, di, bar->type == SYS_RES_MEMORY ?
		    PCIM_CMD_MEMEN : PCIM_CMD_PORTEN, 0);
		bar->base = 0;
		if (!pci_claim_bar(bus, child, di, bar))
			printf(
			    "pci%u:%u:%u:%u: no room for BAR %#x: %#jx bytes of %s\n",
			    di->domain, di->bus, di->slot, di->func, bar->reg,
			    (uintmax_t)bar->size, bar->type == SYS_RES_MEMORY ?
			    "memory" : "I/O ports");
	}
}

void
pci_unclaim_bars(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	for (u_int i = 0; i < di->nbars; i++)
		(void)resource_list_unreserve(&di->resources, bus, child,
		    di->bars[i].type, di->bars[i].reg);
}
