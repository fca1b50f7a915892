/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Message signalled interrupts of PCI functions: MSI (PCI 3.0, 6.8.1) and MSI-X
 * (6.8.2).
 *
 * A driver allocates messages (pci_alloc_msix(9)); each becomes an interrupt
 * resource with id 1 and up.  The address and data of a message are the
 * bridge's to say (PCIB_MAP_MSI) and are written when its first handler is set
 * up; with the last handler gone the message is masked.  A message may move to
 * another processor at any time (BUS_REMAP_INTR): then it is written anew.
 *
 * An MSI-X table entry is changed only while it is masked: a function may
 * otherwise send half of the old and half of the new message.
 *
 * With messages allocated the function's interrupt pin is off (Command
 * register, Interrupt Disable).
 *
 * Gaps.  pci_remap_msix() is refused.
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
#include <dev/pci/pci_private.h>

#include "pcib_if.h"

/* An entry of the MSI-X table. */
#define	MSIX_ENTRY_SIZE		16
#define	MSIX_ENTRY_ADDR_LOW	0
#define	MSIX_ENTRY_ADDR_HIGH	4
#define	MSIX_ENTRY_DATA		8
#define	MSIX_ENTRY_CONTROL	12

int
pci_msi_count_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	return (di->msi.cap != 0 ? di->msi.max : 0);
}

int
pci_msix_count_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	return (di->msix.cap != 0 ? di->msix.max : 0);
}

int
pci_msix_table_bar_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	return (di->msix.cap != 0 ? di->msix.table_bar : -1);
}

int
pci_msix_pba_bar_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	return (di->msix.cap != 0 ? di->msix.pba_bar : -1);
}

/* Messages can't be had while the driver uses the pin, or has some already. */
static int
pci_check_alloc(struct pci_devinfo *di, int count)
{
	struct resource_list_entry *rle;

	if (count == 0)
		return (EINVAL);
	rle = resource_list_find(&di->resources, SYS_RES_IRQ, 0);
	if ((rle != NULL && rle->res != NULL) || di->msi.alloc != 0 ||
	    di->msix.alloc != 0)
		return (ENXIO);
	return (0);
}

int
pci_alloc_msi_method(device_t bus, device_t child, int *count)
{
	struct pci_devinfo *di = device_get_ivars(child);
	int actual, error, irqs[32];

	error = pci_check_alloc(di, *count);
	if (error != 0)
		return (error);
	if (di->msi.cap == 0)
		return (ENODEV);
	if (!powerof2(*count) || *count > 32)
		return (EINVAL);
	/* Fewer are better than none. */
	for (actual = MIN(*count, (int)di->msi.max); actual > 0; actual /= 2) {
		error = PCIB_ALLOC_MSI(device_get_parent(bus), child, actual,
		    di->msi.max, irqs);
		if (error == 0)
			break;
	}
	if (actual == 0)
		return (error);
	for (int i = 0; i < actual; i++)
		resource_list_add(&di->resources, SYS_RES_IRQ, i + 1, irqs[i],
		    irqs[i], 1);
	di->msi.ctrl &= ~(PCIM_MSICTRL_MME_MASK | PCIM_MSICTRL_MSI_ENABLE);
	di->msi.ctrl |= (ffs(actual) - 1) << 4;
	pci_cfg_write(bus, di, di->msi.cap + PCIR_MSI_CTRL, di->msi.ctrl, 2);
	di->msi.alloc = actual;
	di->msi.handlers = 0;
	di->msi.addr = 0;
	*count = actual;
	return (0);
}

void
pci_enable_msi_method(device_t bus, device_t child, uint64_t address,
    uint16_t data)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct pci_msi *msi = &di->msi;

	pci_cfg_write(bus, di, msi->cap + PCIR_MSI_ADDR, address, 4);
	if ((msi->ctrl & PCIM_MSICTRL_64BIT) != 0) {
		pci_cfg_write(bus, di, msi->cap + PCIR_MSI_ADDR_HIGH,
		    address >> 32, 4);
		pci_cfg_write(bus, di, msi->cap + PCIR_MSI_DATA_64BIT, data, 2);
	} else
		pci_cfg_write(bus, di, msi->cap + PCIR_MSI_DATA, data, 2);
	msi->addr = address;
	msi->data = data;
	msi->ctrl |= PCIM_MSICTRL_MSI_ENABLE;
	pci_cfg_write(bus, di, msi->cap + PCIR_MSI_CTRL, msi->ctrl, 2);
}

void
pci_disable_msi_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);

	di->msi.ctrl &= ~PCIM_MSICTRL_MSI_ENABLE;
	pci_cfg_write(bus, di, di->msi.cap + PCIR_MSI_CTRL, di->msi.ctrl, 2);
}

/*
 * The driver's own allocation of a BAR, if it is in use and has room for `size`
 * bytes at `offset`.
 */
static struct resource *
pci_msix_bar(struct pci_devinfo *di, int rid, uint32_t offset, uint64_t size)
{
	struct resource_list_entry *rle = resource_list_find(&di->resources,
	    SYS_RES_MEMORY, rid);

	if (rle == NULL || rle->res == NULL ||
	    (rman_get_flags(rle->res) & RF_ACTIVE) == 0 ||
	    offset > rman_get_size(rle->res) ||
	    size > rman_get_size(rle->res) - offset)
		return (NULL);
	return (rle->res);
}

static void
pci_msix_mask(struct pci_devinfo *di, u_int index, bool mask)
{
	struct pci_msix *msix = &di->msix;
	bus_size_t offset = msix->table_offset + index * MSIX_ENTRY_SIZE +
	    MSIX_ENTRY_CONTROL;
	uint32_t control = bus_read_4(msix->table_res, offset);

	if (mask)
		control |= PCIM_MSIX_VCTRL_MASK;
	else
		control &= ~PCIM_MSIX_VCTRL_MASK;
	bus_write_4(msix->table_res, offset, control);
}

static void
pci_msix_write_ctrl(device_t bus, struct pci_devinfo *di, uint16_t clear,
    uint16_t set)
{
	di->msix.ctrl = (di->msix.ctrl & ~clear) | set;
	pci_cfg_write(bus, di, di->msix.cap + PCIR_MSIX_CTRL, di->msix.ctrl, 2);
}

int
pci_alloc_msix_method(device_t bus, device_t child, int *count)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct pci_msix *msix = &di->msix;
	int actual, error, irq;

	error = pci_check_alloc(di, *count);
	if (error != 0)
		return (error);
	if (msix->cap == 0)
		return (ENODEV);
	msix->table_res = pci_msix_bar(di, msix->table_bar, msix->table_offset,
	    msix->max * MSIX_ENTRY_SIZE);
	msix->pba_res = pci_msix_bar(di, msix->pba_bar, msix->pba_offset,
	    howmany(msix->max, 8));
	if (msix->table_res == NULL || msix->pba_res == NULL)
		return (ENXIO);
	msix->vectors = malloc(msix->max * sizeof(*msix->vectors), M_PCI,
	    M_WAITOK | M_ZERO);
	for (actual = 0; actual < MIN(*count, (int)msix->max); actual++) {
		error = PCIB_ALLOC_MSIX(device_get_parent(bus), child, &irq);
		if (error != 0)
			break;
		msix->vectors[actual].irq = irq;
		resource_list_add(&di->resources, SYS_RES_IRQ, actual + 1, irq,
		    irq, 1);
	}
	if (actual == 0) {
		free(msix->vectors, M_PCI);
		msix->vectors = NULL;
		return (error);
	}
	pci_msix_write_ctrl(bus, di, 0,
	    PCIM_MSIXCTRL_MSIX_ENABLE | PCIM_MSIXCTRL_FUNCTION_MASK);
	for (u_int i = 0; i < msix->max; i++)
		pci_msix_mask(di, i, true);
	pci_msix_write_ctrl(bus, di, PCIM_MSIXCTRL_FUNCTION_MASK, 0);
	pci_change_command(bus, di, 0, PCIM_CMD_INTxDIS);
	msix->alloc = actual;
	*count = actual;
	return (0);
}

void
pci_enable_msix_method(device_t bus, device_t child, u_int index,
    uint64_t address, uint32_t data)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct resource *table = di->msix.table_res;
	bus_size_t offset = di->msix.table_offset + index * MSIX_ENTRY_SIZE;

	pci_msix_mask(di, index, true);
	bus_write_4(table, offset + MSIX_ENTRY_ADDR_LOW, address);
	bus_write_4(table, offset + MSIX_ENTRY_ADDR_HIGH, address >> 32);
	bus_write_4(table, offset + MSIX_ENTRY_DATA, data);
	di->msix.vectors[index].addr = address;
	di->msix.vectors[index].data = data;
}

int
pci_pending_msix(device_t dev, u_int index)
{
	struct pci_devinfo *di = device_get_ivars(dev);

	return ((bus_read_4(di->msix.pba_res,
	    di->msix.pba_offset + index / 32 * 4) & (1u << (index % 32))) != 0);
}

/* The numbers go back; none may be in use. */
static int
pci_drop_messages(struct pci_devinfo *di, u_int count)
{
	struct resource_list_entry *rle;

	for (u_int i = 1; i <= count; i++) {
		rle = resource_list_find(&di->resources, SYS_RES_IRQ, i);
		if (rle == NULL || rle->res != NULL)
			return (EBUSY);
	}
	for (u_int i = 1; i <= count; i++)
		resource_list_delete(&di->resources, SYS_RES_IRQ, i);
	return (0);
}

static int
pci_release_msix(device_t bus, device_t child, struct pci_devinfo *di)
{
	struct pci_msix *msix = &di->msix;
	int error;

	for (u_int i = 0; i < msix->alloc; i++)
		if (msix->vectors[i].handlers != 0)
			return (EBUSY);
	error = pci_drop_messages(di, msix->alloc);
	if (error != 0)
		return (error);
	pci_msix_write_ctrl(bus, di, PCIM_MSIXCTRL_MSIX_ENABLE, 0);
	for (u_int i = 0; i < msix->alloc; i++)
		(void)PCIB_RELEASE_MSIX(device_get_parent(bus), child,
		    msix->vectors[i].irq);
	free(msix->vectors, M_PCI);
	msix->vectors = NULL;
	msix->table_res = msix->pba_res = NULL;
	msix->alloc = 0;
	return (0);
}

int
pci_release_msi_method(device_t bus, device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct resource_list_entry *rle;
	int error, irqs[32];

	if (di->msix.alloc != 0)
		return (pci_release_msix(bus, child, di));
	if (di->msi.alloc == 0)
		return (ENODEV);
	if (di->msi.handlers != 0)
		return (EBUSY);
	for (u_int i = 0; i < di->msi.alloc; i++) {
		rle = resource_list_find(&di->resources, SYS_RES_IRQ, i + 1);
		irqs[i] = rle->start;
	}
	error = pci_drop_messages(di, di->msi.alloc);
	if (error != 0)
		return (error);
	di->msi.ctrl &= ~PCIM_MSICTRL_MME_MASK;
	pci_disable_msi_method(bus, child);
	(void)PCIB_RELEASE_MSI(device_get_parent(bus), child, di->msi.alloc,
	    irqs);
	di->msi.alloc = 0;
	return (0);
}

/* The first handler of a message: give the function what to send. */
static int
pci_start_message(device_t bus, device_t child, struct pci_devinfo *di, int rid,
    int irq)
{
	struct pci_msix_vector *v;
	uint64_t addr;
	uint32_t data;
	int error;

	if (di->msix.alloc == 0 && di->msi.handlers++ != 0)
		return (0);
	if (di->msix.alloc != 0) {
		v = &di->msix.vectors[rid - 1];
		if (v->handlers++ != 0)
			return (0);
	}
	error = PCIB_MAP_MSI(device_get_parent(bus), child, irq, &addr, &data);
	if (error != 0) {
		if (di->msix.alloc != 0)
			di->msix.vectors[rid - 1].handlers--;
		else
			di->msi.handlers--;
		return (error);
	}
	if (di->msix.alloc != 0) {
		pci_enable_msix_method(bus, child, rid - 1, addr, data);
		pci_msix_mask(di, rid - 1, false);
	} else {
		/*
		 * A group of MSI messages is one: the function adds the
		 * message's number to the data.
		 */
		pci_enable_msi_method(bus, child, addr, data - (rid - 1));
		pci_change_command(bus, di, 0, PCIM_CMD_INTxDIS);
	}
	return (0);
}

static void
pci_stop_message(device_t bus, device_t child, struct pci_devinfo *di, int rid)
{
	if (di->msix.alloc != 0) {
		KASSERT(di->msix.vectors[rid - 1].handlers > 0,
		    ("%s: no handler", __func__));
		if (--di->msix.vectors[rid - 1].handlers == 0)
			pci_msix_mask(di, rid - 1, true);
	} else {
		KASSERT(di->msi.handlers > 0, ("%s: no handler", __func__));
		if (--di->msi.handlers == 0)
			pci_disable_msi_method(bus, child);
	}
}

int
pci_setup_intr(device_t bus, device_t child, struct resource *irq, int flags,
    driver_filter_t *filter, driver_intr_t *intr, void *arg, void **cookiep)
{
	struct pci_devinfo *di;
	void *cookie;
	int error, rid;

	error = bus_generic_setup_intr(bus, child, irq, flags, filter, intr,
	    arg, &cookie);
	if (error != 0)
		return (error);
	if (device_get_parent(child) == bus) {
		di = device_get_ivars(child);
		rid = rman_get_rid(irq);
		if (rid == 0)
			pci_change_command(bus, di, PCIM_CMD_INTxDIS, 0);
		else
			error = pci_start_message(bus, child, di, rid,
			    rman_get_start(irq));
		if (error != 0) {
			(void)bus_generic_teardown_intr(bus, child, irq,
			    cookie);
			return (error);
		}
	}
	*cookiep = cookie;
	return (0);
}

int
pci_teardown_intr(device_t bus, device_t child, struct resource *irq,
    void *cookie)
{
	int rid;

	if ((rman_get_flags(irq) & RF_ACTIVE) == 0)
		return (EINVAL);
	if (device_get_parent(child) == bus) {
		rid = rman_get_rid(irq);
		if (rid == 0)
			pci_change_command(bus, device_get_ivars(child), 0,
			    PCIM_CMD_INTxDIS);
		else
			pci_stop_message(bus, child, device_get_ivars(child),
			    rid);
	}
	return (bus_generic_teardown_intr(bus, child, irq, cookie));
}

int
pci_remap_intr(device_t bus, device_t child, u_int irq)
{
	struct pci_devinfo *di = device_get_ivars(child);
	struct resource_list_entry *rle;
	uint64_t addr;
	uint32_t data;
	int error;

	if (di->msi.alloc != 0) {
		rle = resource_list_find(&di->resources, SYS_RES_IRQ, 1);
		if (rle->start != irq)
			return (ENOENT);
		if (di->msi.handlers == 0)
			return (0);
		error = PCIB_MAP_MSI(device_get_parent(bus), child, irq, &addr,
		    &data);
		if (error != 0)
			return (error);
		pci_disable_msi_method(bus, child);
		pci_enable_msi_method(bus, child, addr, data);
		return (0);
	}
	for (u_int i = 0; i < di->msix.alloc; i++) {
		if (di->msix.vectors[i].irq != (int)irq)
			continue;
		if (di->msix.vectors[i].handlers == 0)
			return (0);
		error = PCIB_MAP_MSI(device_get_parent(bus), child, irq, &addr,
		    &data);
		if (error != 0)
			return (error);
		pci_enable_msix_method(bus, child, i, addr, data);
		pci_msix_mask(di, i, false);
		return (0);
	}
	return (ENOENT);
}

/* After a reset or a suspend: write everything again. */
void
pci_restore_msi(device_t child)
{
	struct pci_devinfo *di = device_get_ivars(child);
	device_t bus = device_get_parent(child);
	struct pci_msix *msix = &di->msix;

	if (di->msi.alloc != 0 && di->msi.handlers != 0)
		pci_enable_msi_method(bus, child, di->msi.addr, di->msi.data);
	if (msix->alloc == 0)
		return;
	pci_msix_write_ctrl(bus, di, 0,
	    PCIM_MSIXCTRL_MSIX_ENABLE | PCIM_MSIXCTRL_FUNCTION_MASK);
	for (u_int i = 0; i < msix->max; i++) {
		if (i < msix->alloc && msix->vectors[i].handlers != 0) {
			pci_enable_msix_method(bus, child, i,
			    msix->vectors[i].addr, msix->vectors[i].data);
			pci_msix_mask(di, i, false);
		} else
			pci_msix_mask(di, i, true);
	}
	pci_msix_write_ctrl(bus, di, PCIM_MSIXCTRL_FUNCTION_MASK, 0);
}
