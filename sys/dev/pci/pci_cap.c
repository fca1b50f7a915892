/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Capabilities of PCI functions (PCI 3.0, 6.7), and what the bus itself needs
 * of them.
 *
 * The list is in configuration space, where a broken function may make it a
 * loop: nothing is followed for longer than there is room for capabilities.
 *
 * Gaps.  Extended capabilities start at offset 100, which configuration
 * mechanism 1 can't reach.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>

#include <machine/bus.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pci_private.h>

/* Each takes 4 bytes at least, and the first can begin at 40. */
#define	PCI_MAX_CAPS	((PCI_REGMAX + 1 - 0x40) / 4)

/* From the pointer at `ptr`, the first capability of this kind. */
static int
pci_follow_caps(device_t bus, const struct pci_devinfo *di, int ptr,
    int capability, int *capreg)
{
	int cap;

	cap = pci_cfg_read(bus, di, ptr, 1) & ~3;
	for (int i = 0; i < PCI_MAX_CAPS && cap >= 0x40; i++) {
		if ((int)pci_cfg_read(bus, di, cap + PCICAP_ID,
		    1) == capability) {
			if (capreg != NULL)
				*capreg = cap;
			return (0);
		}
		cap = pci_cfg_read(bus, di, cap + PCICAP_NEXTPTR, 1) & ~3;
	}
	return (ENOENT);
}

static int
pci_first_cap(device_t bus, const struct pci_devinfo *di, int capability,
    int *capreg)
{
	int type = di->hdrtype & PCIM_HDRTYPE;

	if ((pci_cfg_read(bus, di, PCIR_STATUS,
	    2) & PCIM_STATUS_CAPPRESENT) == 0)
		return (ENOENT);
	if (type != PCIM_HDRTYPE_NORMAL && type != PCIM_HDRTYPE_BRIDGE)
		return (ENOENT);
	return (pci_follow_caps(bus, di, PCIR_CAP_PTR, capability, capreg));
}

int
pci_find_cap_method(device_t bus, device_t child, int capability, int *capreg)
{
	return (pci_first_cap(bus, device_get_ivars(child), capability,
	    capreg));
}

int
pci_find_next_cap_method(device_t bus, device_t child, int capability,
    int start, int *capreg)
{
	return (pci_follow_caps(bus, device_get_ivars(child),
	    start + PCICAP_NEXTPTR, capability, capreg));
}

int
pci_find_extcap_method(device_t bus, device_t child, int capability,
    int *capreg)
{
	return (ENOENT);
}

static void
pci_read_msi_cap(device_t bus, struct pci_devinfo *di, int cap)
{
	di->msi.cap = cap;
	di->msi.ctrl = pci_cfg_read(bus, di, cap + PCIR_MSI_CTRL, 2);
	di->msi.max = PCI_MSI_MSGNUM(di->msi.ctrl);
}

static void
pci_read_msix_cap(device_t bus, struct pci_devinfo *di, int cap)
{
	uint32_t location;

	di->msix.cap = cap;
	di->msix.ctrl = pci_cfg_read(bus, di, cap + PCIR_MSIX_CTRL, 2);
	di->msix.max = PCI_MSIX_MSGNUM(di->msix.ctrl);
	location = pci_cfg_read(bus, di, cap + PCIR_MSIX_TABLE, 4);
	di->msix.table_bar = PCIR_BAR(location & PCIM_MSIX_BIR_MASK);
	di->msix.table_offset = location & ~PCIM_MSIX_BIR_MASK;
	location = pci_cfg_read(bus, di, cap + PCIR_MSIX_PBA, 4);
	di->msix.pba_bar = PCIR_BAR(location & PCIM_MSIX_BIR_MASK);
	di->msix.pba_offset = location & ~PCIM_MSIX_BIR_MASK;
}

void
pci_read_caps(device_t bus, struct pci_devinfo *di)
{
	int cap;

	if (pci_first_cap(bus, di, PCIY_MSI, &cap) == 0)
		pci_read_msi_cap(bus, di, cap);
	if (pci_first_cap(bus, di, PCIY_MSIX, &cap) == 0)
		pci_read_msix_cap(bus, di, cap);
	if (pci_first_cap(bus, di, PCIY_PMG, &cap) == 0)
		di->pm = cap;
	if (pci_first_cap(bus, di, PCIY_EXPRESS, &cap) == 0) {
		di->pcie = cap;
		di->pcie_type = pci_cfg_read(bus, di, cap + PCIER_FLAGS,
		    2) & PCIEM_FLAGS_TYPE;
	}
}
