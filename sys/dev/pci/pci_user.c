/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * pci(9) beyond the bus's methods: finding functions, saving and restoring
 * their registers, PCI Express.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>

#include <machine/bus.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pci_private.h>

device_t
pci_find_dbsf(uint32_t domain, uint8_t bus, uint8_t slot, uint8_t func)
{
	struct pci_devinfo *di;

	STAILQ_FOREACH(di, &pci_devq, link)
		if (di->domain == domain && di->bus == bus &&
		    di->slot == slot && di->func == func)
			return (di->dev);
	return (NULL);
}

device_t
pci_find_bsf(uint8_t bus, uint8_t slot, uint8_t func)
{
	return (pci_find_dbsf(0, bus, slot, func));
}

device_t
pci_find_device(uint16_t vendor, uint16_t device)
{
	struct pci_devinfo *di;

	STAILQ_FOREACH(di, &pci_devq, link)
		if (di->vendor == vendor && di->device == device)
			return (di->dev);
	return (NULL);
}

device_t
pci_find_class(uint8_t class, uint8_t subclass)
{
	struct pci_devinfo *di;

	STAILQ_FOREACH(di, &pci_devq, link)
		if (di->baseclass == class && di->subclass == subclass)
			return (di->dev);
	return (NULL);
}

/*
 * A function by where it is: pci[DOMAIN:]BUS:SLOT:FUNCTION.  Called with names
 * that are no device's (devctl(8)).
 */
static void
pci_lookup(void *arg __unused, const char *name, device_t *dev)
{
	unsigned long n[4];
	const char *p;
	char *end = NULL;
	u_int count;

	if (*dev != NULL || strncmp(name, "pci", 3) != 0)
		return;
	for (count = 0, p = name + 3; count < nitems(n); p = end + 1) {
		n[count] = strtoul(p, &end, 10);
		if (end == p || n[count] > 0xff)
			return;
		count++;
		if (*end != ':' || end[1] == '\0')
			break;
	}
	if (strcmp(end, "") != 0 && strcmp(end, ":") != 0)
		return;
	if (count == 4)
		*dev = pci_find_dbsf(n[0], n[1], n[2], n[3]);
	else if (count == 3)
		*dev = pci_find_bsf(n[0], n[1], n[2]);
}
EVENTHANDLER_DEFINE(dev_lookup, pci_lookup, NULL, EVENTHANDLER_PRI_ANY);

/* The port of the root complex that the function is below, or NULL. */
device_t
pci_find_pcie_root_port(device_t dev)
{
	devclass_t pci_class = devclass_find("pci");
	struct pci_devinfo *di;

	/* Every second step up is a bridge, the others are the buses. */
	while (device_get_parent(dev) != NULL &&
	    device_get_devclass(device_get_parent(dev)) == pci_class) {
		di = device_get_ivars(dev);
		if (di->pcie != 0 && di->pcie_type == PCIEM_TYPE_ROOT_PORT)
			return (dev);
		dev = device_get_parent(device_get_parent(dev));
	}
	return (NULL);
}

const struct pci_device_table *
pci_match_device(device_t child, const struct pci_device_table *id, size_t nelt)
{
	struct pci_devinfo *di = device_get_ivars(child);

	for (; nelt-- > 0; id++) {
		if ((!id->match_flag_vendor || id->vendor == di->vendor) &&
		    (!id->match_flag_device || id->device == di->device) &&
		    (!id->match_flag_subvendor ||
		    id->subvendor == di->subvendor) &&
		    (!id->match_flag_subdevice ||
		    id->subdevice == di->subdevice) &&
		    (!id->match_flag_class || id->class_id == di->baseclass) &&
		    (!id->match_flag_subclass ||
		    id->subclass == di->subclass) &&
		    (!id->match_flag_revid || id->revid == di->revid))
			return (id);
	}
	return (NULL);
}

/*
 * What a reset or a sleep may take from a function.  Addresses, interrupts and
 * messages are known anyway; only registers that drivers and firmware write
 * directly must be read.
 */
void
pci_save_state(device_t dev)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	di->cmdreg = pci_read_config(dev, PCIR_COMMAND, 2);
	di->cachelnsz = pci_read_config(dev, PCIR_CACHELNSZ, 1);
	di->lattimer = pci_read_config(dev, PCIR_LATTIMER, 1);
}

void
pci_restore_state(device_t dev)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	(void)pci_set_powerstate(dev, PCI_POWERSTATE_D0);
	pci_write_bars(device_get_parent(dev), di);
	pci_write_config(dev, PCIR_INTLINE, di->intline, 1);
	pci_write_config(dev, PCIR_CACHELNSZ, di->cachelnsz, 1);
	pci_write_config(dev, PCIR_LATTIMER, di->lattimer, 1);
	pci_write_config(dev, PCIR_COMMAND, di->cmdreg, 2);
	/*
	 * The MSI-X table is memory of the function: it answers from here on.
	 */
	pci_restore_msi(dev);
}

uint32_t
pcie_read_config(device_t dev, int reg, int width)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	if (di->pcie == 0)
		return (0xffffffffu >> (32 - 8 * width));
	return (pci_read_config(dev, di->pcie + reg, width));
}

void
pcie_write_config(device_t dev, int reg, uint32_t value, int width)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	if (di->pcie != 0)
		pci_write_config(dev, di->pcie + reg, value, width);
}

uint32_t
pcie_adjust_config(device_t dev, int reg, uint32_t mask, uint32_t value,
    int width)
{
	struct pci_devinfo *di = device_get_ivars(dev);
	uint32_t old;

	old = pcie_read_config(dev, reg, width);
	if (di->pcie != 0)
		pcie_write_config(dev, reg, (old & ~mask) | (value & mask),
		    width);
	return (old);
}

int
pci_get_max_read_req(device_t dev)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	if (di->pcie == 0)
		return (0);
	return (1 << (((pcie_read_config(dev, PCIER_DEVICE_CTL, 2) &
	    PCIEM_CTL_MAX_READ_REQUEST) >> 12) + 7));
}

int
pci_set_max_read_req(device_t dev, int size)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	if (di->pcie == 0)
		return (0);
	size = imin(imax(size, 128), 4096);
	size = 1 << (fls(size) - 1);
	pcie_adjust_config(dev, PCIER_DEVICE_CTL, PCIEM_CTL_MAX_READ_REQUEST,
	    (fls(size) - 8) << 12, 2);
	return (size);
}

/*
 * In microseconds: the longest that PCI Express 4.0, 2.8, lets a completion
 * take without further range.
 */
int
pcie_get_max_completion_timeout(device_t dev)
{
	return (50 * 1000);
}

/* Wait for up to max_delay microseconds; true when nothing is under way. */
bool
pcie_wait_for_pending_transactions(device_t dev, u_int max_delay)
{
	for (;;) {
		if ((pcie_read_config(dev, PCIER_DEVICE_STA,
		    2) & PCIEM_STA_TRANSACTION_PND) == 0)
			return (true);
		if (max_delay == 0)
			return (false);
		DELAY(MIN(max_delay, 1000));
		max_delay -= MIN(max_delay, 1000);
	}
}

bool
pcie_flr(device_t dev, u_int max_delay, bool force)
{
	struct pci_devinfo *di = device_get_ivars(dev);
	uint16_t command;

	if (di->pcie == 0 ||
	    (pcie_read_config(dev, PCIER_DEVICE_CAP, 4) & PCIEM_CAP_FLR) == 0)
		return (false);
	command = pci_read_config(dev, PCIR_COMMAND, 2);
	pci_write_config(dev, PCIR_COMMAND, command & ~PCIM_CMD_BUSMASTEREN, 2);
	if (!pcie_wait_for_pending_transactions(dev, max_delay) && !force) {
		pci_write_config(dev, PCIR_COMMAND, command, 2);
		return (false);
	}
	pcie_adjust_config(dev, PCIER_DEVICE_CTL, PCIEM_CTL_INITIATE_FLR,
	    PCIEM_CTL_INITIATE_FLR, 2);
	/* PCI Express 4.0, 6.6.2: a function has 100 ms to come back. */
	pause_sbt("pcieflr", 100 * SBT_1MS, 0, C_HARDCLOCK);
	return (true);
}
