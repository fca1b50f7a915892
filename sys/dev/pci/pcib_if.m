/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a PCI bridge, the host's included, does for the bus behind it.
 */

#include <sys/bus.h>
#include <dev/pci/pcivar.h>
#include <dev/pci/pcib_private.h>

INTERFACE pcib;

HEADER {
#include "pci_if.h"
};

CODE {
/* A conventional bus has 32 slots (PCI 3.0, 3.2.2.3.4). */
static int
pcib_default_maxslots(device_t dev)
{
	return (PCI_SLOTMAX);
}

static int
pcib_default_ari_enabled(device_t pcib)
{
	return (0);
}
};

/* The highest slot number on the bus behind the bridge. */
METHOD int maxslots {
	device_t dev;
} DEFAULT pcib_default_maxslots;

METHOD u_int32_t read_config {
	device_t dev;
	u_int bus;
	u_int slot;
	u_int func;
	u_int reg;
	int width;
};

METHOD void write_config {
	device_t dev;
	u_int bus;
	u_int slot;
	u_int func;
	u_int reg;
	u_int32_t value;
	int width;
};

/* The interrupt that pin 1..4 of `dev` raises, or PCI_INVALID_IRQ. */
METHOD int route_interrupt {
	device_t pcib;
	device_t dev;
	int pin;
};

METHOD int alloc_msi {
	device_t pcib;
	device_t dev;
	int count;
	int maxcount;
	int *irqs;
};

METHOD int release_msi {
	device_t pcib;
	device_t dev;
	int count;
	int *irqs;
};

METHOD int alloc_msix {
	device_t pcib;
	device_t dev;
	int *irq;
};

METHOD int release_msix {
	device_t pcib;
	device_t dev;
	int irq;
};

/* The address and data that a message for `irq` is made of. */
METHOD int map_msi {
	device_t pcib;
	device_t dev;
	int irq;
	uint64_t *addr;
	uint32_t *data;
};

METHOD int power_for_sleep {
	device_t pcib;
	device_t dev;
	int *pstate;
};

METHOD int get_id {
	device_t pcib;
	device_t dev;
	enum pci_id_type type;
	uintptr_t *id;
};

METHOD int try_enable_ari {
	device_t pcib;
	device_t dev;
};

METHOD int ari_enabled {
	device_t pcib;
} DEFAULT pcib_default_ari_enabled;

METHOD void decode_rid {
	device_t pcib;
	uint16_t rid;
	int *bus;
	int *slot;
	int *func;
};

METHOD int request_feature {
	device_t pcib;
	device_t dev;
	enum pci_feature feature;
};
