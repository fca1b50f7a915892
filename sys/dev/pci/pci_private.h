/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the PCI bus keeps about a function, and what its files (pci.c opens with
 * the theory) share.
 */

#ifndef _DEV_PCI_PCI_PRIVATE_H_
#define	_DEV_PCI_PCI_PRIVATE_H_

#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/queue.h>

#include <dev/pci/pcivar.h>

MALLOC_DECLARE(M_PCI);

#define	PCI_NBARS	6

struct pci_bar {
	int		reg;		/* offset in configuration space:
					 * the resource's id */
	int		type;		/* SYS_RES_MEMORY or SYS_RES_IOPORT */
	bool		mem64;
	bool		prefetch;
	uint64_t	base;		/* 0: no address yet */
	uint64_t	size;		/* a power of two */
};

struct pci_msi {
	int		cap;		/* where the capability is; 0: none */
	uint16_t	ctrl;
	u_int		max;	/* messages that the function can send */
	u_int		alloc;		/* allocated, resource ids 1 to alloc */
	u_int		handlers;
	uint64_t	addr;		/* what was written; 0: nothing yet */
	uint16_t	data;
};

struct pci_msix_vector {
	int		irq;
	u_int		handlers;
	uint64_t	addr;
	uint32_t	data;
};

struct pci_msix {
	int		cap;
	uint16_t	ctrl;
	u_int		max;
	u_int		alloc;		/* vectors[0] is resource id 1 */
	int		table_bar;	/* resource id of the BAR */
	uint32_t	table_offset;
	int		pba_bar;
	uint32_t	pba_offset;
	struct resource	*table_res;	/* valid while messages are allocated */
	struct resource	*pba_res;
	struct pci_msix_vector *vectors;
};

struct pci_devinfo {
	STAILQ_ENTRY(pci_devinfo) link;
	device_t	dev;
	struct resource_list resources;

	uint32_t	domain;
	uint8_t		bus;
	uint8_t		slot;
	uint8_t		func;

	uint16_t	vendor;
	uint16_t	device;
	uint16_t	subvendor;
	uint16_t	subdevice;
	uint8_t		baseclass;
	uint8_t		subclass;
	uint8_t		progif;
	uint8_t		revid;
	uint8_t		hdrtype;
	uint8_t		intpin;
	uint8_t		intline;
	uint16_t	cmdreg;	/* as last written; suspend restores it */
	uint8_t		cachelnsz;
	uint8_t		lattimer;

	u_int		nbars;
	struct pci_bar	bars[PCI_NBARS];
	struct pci_msi	msi;
	struct pci_msix	msix;
	int		pcie;		/* where the PCI Express
					 * capability is; 0: none */
	int		pcie_type;	/* PCIEM_TYPE_* */
	int		pm;		/* power management capability */
};

STAILQ_HEAD(pci_devlist, pci_devinfo);

/* Every function known, in the order found.  The topology lock protects it. */
extern struct pci_devlist pci_devq;

/* Configuration space of the function that `di` describes. */
uint32_t pci_cfg_read(device_t bus, const struct pci_devinfo *di, int reg,
    int width);
void	pci_cfg_write(device_t bus, const struct pci_devinfo *di, int reg,
    uint32_t val, int width);

/*
 * pci_enum.c: read a function's header; find its BARs; claim their addresses,
 * or choose some.
 */
struct pci_devinfo *pci_read_function(device_t bus, int domain, int b, int s,
    int f);
void	pci_read_bars(device_t bus, struct pci_devinfo *di);
void	pci_claim_bars(device_t bus, device_t child);
void	pci_unclaim_bars(device_t bus, device_t child);
void	pci_write_bars(device_t bus, struct pci_devinfo *di);

/* pci_cap.c */
void	pci_read_caps(device_t bus, struct pci_devinfo *di);
pci_find_cap_t pci_find_cap_method;
pci_find_next_cap_t pci_find_next_cap_method;
pci_find_extcap_t pci_find_extcap_method;

/* pci_msi.c */
pci_alloc_msi_t pci_alloc_msi_method;
pci_alloc_msix_t pci_alloc_msix_method;
pci_release_msi_t pci_release_msi_method;
pci_msi_count_t pci_msi_count_method;
pci_msix_count_t pci_msix_count_method;
pci_msix_pba_bar_t pci_msix_pba_bar_method;
pci_msix_table_bar_t pci_msix_table_bar_method;
pci_enable_msi_t pci_enable_msi_method;
pci_enable_msix_t pci_enable_msix_method;
pci_disable_msi_t pci_disable_msi_method;
bus_setup_intr_t pci_setup_intr;
bus_teardown_intr_t pci_teardown_intr;
bus_remap_intr_t pci_remap_intr;
void	pci_restore_msi(device_t child);

/* Set or clear bits of the command register. */
void	pci_change_command(device_t bus, struct pci_devinfo *di, uint16_t clear,
    uint16_t set);

#endif /* !_DEV_PCI_PCI_PRIVATE_H_ */
