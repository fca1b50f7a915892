/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * PCI configuration space through the ports CF8 and CFC (PCI 3.0, 3.2.2.3.2: mechanism 1).
 *
 * Locking.  An access is two port accesses that belong together: pcicfg_lock, a spin lock.
 *
 * Gaps.  Mechanism 1 reaches 256 bytes a function, on domain 0.  The extended space of PCI
 * Express isn't reachable.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <dev/pci/pcireg.h>
#include <machine/cpufunc.h>
#include <machine/pci_cfgreg.h>

int cfgmech = CFGMECH_NONE;

static struct mtx pcicfg_lock;
MTX_SYSINIT(pcicfg_lock, &pcicfg_lock, "pcicfg", MTX_SPIN);

static bool
pcicfg_valid(int domain, int bus, int slot, int func, int reg, int bytes)
{
	return (cfgmech == CFGMECH_1 && domain == 0 && bus >= 0 && bus <= PCI_BUSMAX &&
	    slot >= 0 && slot <= PCI_SLOTMAX && func >= 0 && func <= PCI_FUNCMAX &&
	    reg >= 0 && reg <= PCI_REGMAX && (bytes == 1 || bytes == 2 || bytes == 4) &&
	    (reg & (bytes - 1)) == 0);
}

/* Select the register; returns the port that its bytes appear at. */
static u_int
pcicfg_select(int bus, int slot, int func, int reg)
{
	mtx_assert(&pcicfg_lock, MA_OWNED);
	outl(CONF1_ADDR_PORT, CONF1_ENABLE | (bus << 16) | (slot << 11) | (func << 8) |
	    (reg & ~3));
	return (CONF1_DATA_PORT + (reg & 3));
}

u_int32_t
pci_cfgregread(int domain, int bus, int slot, int func, int reg, int bytes)
{
	u_int32_t value = 0xffffffff;
	u_int port;

	/* A read that no device answers gives ones. */
	if (!pcicfg_valid(domain, bus, slot, func, reg, bytes))
		return (value >> (8 * (4 - MIN(bytes, 4))));
	mtx_lock_spin(&pcicfg_lock);
	port = pcicfg_select(bus, slot, func, reg);
	switch (bytes) {
	case 1:
		value = inb(port);
		break;
	case 2:
		value = inw(port);
		break;
	case 4:
		value = inl(port);
		break;
	}
	mtx_unlock_spin(&pcicfg_lock);
	return (value);
}

void
pci_cfgregwrite(int domain, int bus, int slot, int func, int reg, u_int32_t data, int bytes)
{
	u_int port;

	if (!pcicfg_valid(domain, bus, slot, func, reg, bytes))
		return;
	mtx_lock_spin(&pcicfg_lock);
	port = pcicfg_select(bus, slot, func, reg);
	switch (bytes) {
	case 1:
		outb(port, data);
		break;
	case 2:
		outw(port, data);
		break;
	case 4:
		outl(port, data);
		break;
	}
	mtx_unlock_spin(&pcicfg_lock);
}

/*
 * Is there a PCI host bridge?  Its address register keeps what is written; the machines without one
 * (microvm, Xen PVH) have nothing at that port.  Returns nonzero if there is.
 */
int
pci_cfgregopen(void)
{
	uint32_t saved;

	if (cfgmech != CFGMECH_NONE)
		return (1);
	saved = inl(CONF1_ADDR_PORT);
	outl(CONF1_ADDR_PORT, CONF1_ENABLE_CHK);
	if (inl(CONF1_ADDR_PORT) != CONF1_ENABLE_CHK) {
		outl(CONF1_ADDR_PORT, saved);
		return (0);
	}
	outl(CONF1_ADDR_PORT, saved);
	cfgmech = CFGMECH_1;
	for (int slot = 0; slot <= PCI_SLOTMAX; slot++)
		if (pci_cfgregread(0, 0, slot, 0, PCIR_VENDOR, 2) != 0xffff)
			return (1);
	cfgmech = CFGMECH_NONE;
	return (0);
}
