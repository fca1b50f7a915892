/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a PCI bus does for its functions: the methods behind the calls of
 * pci(9).
 */

#include <sys/bus.h>
#include <dev/pci/pcivar.h>

INTERFACE pci;

HEADER {
struct nvlist;
struct pci_devinfo;

/* The forms in which pci_get_id(9) gives the identity of a function. */
enum pci_id_type {
	PCI_ID_RID,
	PCI_ID_MSI,
	PCI_ID_OFW_IOMMU,
};

/* Features that a bridge must agree to before the bus turns them on. */
enum pci_feature {
	PCI_FEATURE_HP,
	PCI_FEATURE_AER,
};
};

CODE {
static int
pci_default_msi_count(device_t dev, device_t child)
{
	return (0);
}

static int
pci_default_msix_bar(device_t dev, device_t child)
{
	return (-1);
}

static void
pci_default_child_added(device_t dev, device_t child)
{
}
};

METHOD u_int32_t read_config {
	device_t dev;
	device_t child;
	int reg;
	int width;
};

METHOD void write_config {
	device_t dev;
	device_t child;
	int reg;
	u_int32_t val;
	int width;
};

METHOD int get_powerstate {
	device_t dev;
	device_t child;
};

METHOD int set_powerstate {
	device_t dev;
	device_t child;
	int state;
};

METHOD int get_vpd_ident {
	device_t dev;
	device_t child;
	const char **identptr;
};

METHOD int get_vpd_readonly {
	device_t dev;
	device_t child;
	const char *kw;
	const char **vptr;
};

METHOD int enable_busmaster {
	device_t dev;
	device_t child;
};

METHOD int disable_busmaster {
	device_t dev;
	device_t child;
};

METHOD int enable_io {
	device_t dev;
	device_t child;
	int space;
};

METHOD int disable_io {
	device_t dev;
	device_t child;
	int space;
};

METHOD int assign_interrupt {
	device_t dev;
	device_t child;
};

METHOD int find_cap {
	device_t dev;
	device_t child;
	int capability;
	int *capreg;
};

METHOD int find_next_cap {
	device_t dev;
	device_t child;
	int capability;
	int start;
	int *capreg;
};

METHOD int find_extcap {
	device_t dev;
	device_t child;
	int capability;
	int *capreg;
};

METHOD int find_next_extcap {
	device_t dev;
	device_t child;
	int capability;
	int start;
	int *capreg;
};

METHOD int find_htcap {
	device_t dev;
	device_t child;
	int capability;
	int *capreg;
};

METHOD int find_next_htcap {
	device_t dev;
	device_t child;
	int capability;
	int start;
	int *capreg;
};

METHOD int alloc_msi {
	device_t dev;
	device_t child;
	int *count;
};

METHOD int alloc_msix {
	device_t dev;
	device_t child;
	int *count;
};

METHOD void enable_msi {
	device_t dev;
	device_t child;
	uint64_t address;
	uint16_t data;
};

METHOD void enable_msix {
	device_t dev;
	device_t child;
	u_int index;
	uint64_t address;
	uint32_t data;
};

METHOD void disable_msi {
	device_t dev;
	device_t child;
};

METHOD int remap_msix {
	device_t dev;
	device_t child;
	int count;
	const u_int *vectors;
};

METHOD int release_msi {
	device_t dev;
	device_t child;
};

METHOD int msi_count {
	device_t dev;
	device_t child;
} DEFAULT pci_default_msi_count;

METHOD int msix_count {
	device_t dev;
	device_t child;
} DEFAULT pci_default_msi_count;

METHOD int msix_pba_bar {
	device_t dev;
	device_t child;
} DEFAULT pci_default_msix_bar;

METHOD int msix_table_bar {
	device_t dev;
	device_t child;
} DEFAULT pci_default_msix_bar;

METHOD int get_id {
	device_t dev;
	device_t child;
	enum pci_id_type type;
	uintptr_t *id;
};

METHOD struct pci_devinfo * alloc_devinfo {
	device_t dev;
};

METHOD void child_added {
	device_t dev;
	device_t child;
} DEFAULT pci_default_child_added;

METHOD int iov_attach {
	device_t dev;
	device_t child;
	struct nvlist *pf_schema;
	struct nvlist *vf_schema;
	const char *name;
};

METHOD int iov_detach {
	device_t dev;
	device_t child;
};

METHOD device_t create_iov_child {
	device_t bus;
	device_t pf;
	uint16_t rid;
	uint16_t vid;
	uint16_t did;
};
