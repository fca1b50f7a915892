/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pci(9) as a driver sees it.
 *
 * Names, numbers and meaning are those of FreeBSD's header of this name, which
 * a build on FreeBSD uses instead of this one; what the bus keeps about a
 * function is private to sys/dev/pci (pci_private.h).
 */

#ifndef _PCIVAR_H_
#define	_PCIVAR_H_

#include <sys/queue.h>
#include <sys/_eventhandler.h>

#include <dev/pci/pcireg.h>

#include "pci_if.h"

typedef uint64_t	pci_addr_t;

struct pci_devinfo;

/* Instance variables of a PCI function. */
enum pci_device_ivars {
	PCI_IVAR_SUBVENDOR,
	PCI_IVAR_SUBDEVICE,
	PCI_IVAR_VENDOR,
	PCI_IVAR_DEVICE,
	PCI_IVAR_DEVID,
	PCI_IVAR_CLASS,
	PCI_IVAR_SUBCLASS,
	PCI_IVAR_PROGIF,
	PCI_IVAR_REVID,
	PCI_IVAR_INTPIN,
	PCI_IVAR_IRQ,
	PCI_IVAR_DOMAIN,
	PCI_IVAR_BUS,
	PCI_IVAR_SLOT,
	PCI_IVAR_FUNCTION,
	PCI_IVAR_ETHADDR,
	PCI_IVAR_CMDREG,
	PCI_IVAR_CACHELNSZ,
	PCI_IVAR_MINGNT,
	PCI_IVAR_MAXLAT,
	PCI_IVAR_LATTIMER
};

#define	PCI_ACCESSOR(var, ivar, type)					\
	__BUS_ACCESSOR(pci, var, PCI, ivar, type)

PCI_ACCESSOR(subvendor,		SUBVENDOR,	uint16_t)
PCI_ACCESSOR(subdevice,		SUBDEVICE,	uint16_t)
PCI_ACCESSOR(vendor,		VENDOR,		uint16_t)
PCI_ACCESSOR(device,		DEVICE,		uint16_t)
PCI_ACCESSOR(devid,		DEVID,		uint32_t)
PCI_ACCESSOR(class,		CLASS,		uint8_t)
PCI_ACCESSOR(subclass,		SUBCLASS,	uint8_t)
PCI_ACCESSOR(progif,		PROGIF,		uint8_t)
PCI_ACCESSOR(revid,		REVID,		uint8_t)
PCI_ACCESSOR(intpin,		INTPIN,		uint8_t)
PCI_ACCESSOR(irq,		IRQ,		uint8_t)
PCI_ACCESSOR(domain,		DOMAIN,		uint32_t)
PCI_ACCESSOR(bus,		BUS,		uint8_t)
PCI_ACCESSOR(slot,		SLOT,		uint8_t)
PCI_ACCESSOR(function,		FUNCTION,	uint8_t)
PCI_ACCESSOR(ether,		ETHADDR,	uint8_t *)
PCI_ACCESSOR(cmdreg,		CMDREG,		uint8_t)
PCI_ACCESSOR(cachelnsz,		CACHELNSZ,	uint8_t)
PCI_ACCESSOR(mingnt,		MINGNT,		uint8_t)
PCI_ACCESSOR(maxlat,		MAXLAT,		uint8_t)
PCI_ACCESSOR(lattimer,		LATTIMER,	uint8_t)

#undef PCI_ACCESSOR

/* An Interrupt Line of 255 means "not connected" (PCI 3.0, 6.2.4). */
#define	PCI_INVALID_IRQ		255
#define	PCI_INTERRUPT_VALID(x)	((x) != PCI_INVALID_IRQ)

#define	PCI_POWERSTATE_D0	0
#define	PCI_POWERSTATE_D1	1
#define	PCI_POWERSTATE_D2	2
#define	PCI_POWERSTATE_D3	3
#define	PCI_POWERSTATE_D3_HOT	PCI_POWERSTATE_D3
#define	PCI_POWERSTATE_D3_COLD	4
#define	PCI_POWERSTATE_UNKNOWN	-1

/*
 * Calls of a driver about its own function `dev`: each goes to the bus that
 * `dev` sits on.  The manual page pci(9) describes them.
 */
#define	PCI_CALL(method, dev, ...)					\
	method(device_get_parent(dev), (dev), ##__VA_ARGS__)

static __inline uint32_t
pci_read_config(device_t dev, int reg, int width)
{
	return (PCI_CALL(PCI_READ_CONFIG, dev, reg, width));
}

static __inline void
pci_write_config(device_t dev, int reg, uint32_t val, int width)
{
	PCI_CALL(PCI_WRITE_CONFIG, dev, reg, val, width);
}

static __inline int
pci_enable_busmaster(device_t dev)
{
	return (PCI_CALL(PCI_ENABLE_BUSMASTER, dev));
}

static __inline int
pci_disable_busmaster(device_t dev)
{
	return (PCI_CALL(PCI_DISABLE_BUSMASTER, dev));
}

static __inline int
pci_enable_io(device_t dev, int space)
{
	return (PCI_CALL(PCI_ENABLE_IO, dev, space));
}

static __inline int
pci_disable_io(device_t dev, int space)
{
	return (PCI_CALL(PCI_DISABLE_IO, dev, space));
}

static __inline int
pci_get_vpd_ident(device_t dev, const char **identptr)
{
	return (PCI_CALL(PCI_GET_VPD_IDENT, dev, identptr));
}

static __inline int
pci_get_vpd_readonly(device_t dev, const char *kw, const char **vptr)
{
	return (PCI_CALL(PCI_GET_VPD_READONLY, dev, kw, vptr));
}

static __inline int
pci_get_powerstate(device_t dev)
{
	return (PCI_CALL(PCI_GET_POWERSTATE, dev));
}

static __inline int
pci_set_powerstate(device_t dev, int state)
{
	return (PCI_CALL(PCI_SET_POWERSTATE, dev, state));
}

static __inline int
pci_find_cap(device_t dev, int capability, int *capreg)
{
	return (PCI_CALL(PCI_FIND_CAP, dev, capability, capreg));
}

static __inline int
pci_find_next_cap(device_t dev, int capability, int start, int *capreg)
{
	return (PCI_CALL(PCI_FIND_NEXT_CAP, dev, capability, start, capreg));
}

static __inline int
pci_find_extcap(device_t dev, int capability, int *capreg)
{
	return (PCI_CALL(PCI_FIND_EXTCAP, dev, capability, capreg));
}

static __inline int
pci_find_next_extcap(device_t dev, int capability, int start, int *capreg)
{
	return (PCI_CALL(PCI_FIND_NEXT_EXTCAP, dev, capability, start, capreg));
}

static __inline int
pci_find_htcap(device_t dev, int capability, int *capreg)
{
	return (PCI_CALL(PCI_FIND_HTCAP, dev, capability, capreg));
}

static __inline int
pci_alloc_msi(device_t dev, int *count)
{
	return (PCI_CALL(PCI_ALLOC_MSI, dev, count));
}

static __inline int
pci_alloc_msix(device_t dev, int *count)
{
	return (PCI_CALL(PCI_ALLOC_MSIX, dev, count));
}

static __inline int
pci_remap_msix(device_t dev, int count, const u_int *vectors)
{
	return (PCI_CALL(PCI_REMAP_MSIX, dev, count, vectors));
}

static __inline int
pci_release_msi(device_t dev)
{
	return (PCI_CALL(PCI_RELEASE_MSI, dev));
}

static __inline int
pci_msi_count(device_t dev)
{
	return (PCI_CALL(PCI_MSI_COUNT, dev));
}

static __inline int
pci_msix_count(device_t dev)
{
	return (PCI_CALL(PCI_MSIX_COUNT, dev));
}

static __inline int
pci_msix_pba_bar(device_t dev)
{
	return (PCI_CALL(PCI_MSIX_PBA_BAR, dev));
}

static __inline int
pci_msix_table_bar(device_t dev)
{
	return (PCI_CALL(PCI_MSIX_TABLE_BAR, dev));
}

static __inline int
pci_get_id(device_t dev, enum pci_id_type type, uintptr_t *id)
{
	return (PCI_CALL(PCI_GET_ID, dev, type, id));
}

/* The requester ID: bus, slot and function in sixteen bits. */
static __inline uint16_t
pci_get_rid(device_t dev)
{
	uintptr_t rid;

	if (pci_get_id(dev, PCI_ID_RID, &rid) != 0)
		return (0);
	return (rid);
}

#undef PCI_CALL

/* Finding functions. NULL when there is none. */
device_t pci_find_bsf(uint8_t bus, uint8_t slot, uint8_t func);
device_t pci_find_dbsf(uint32_t domain, uint8_t bus, uint8_t slot,
    uint8_t func);
device_t pci_find_device(uint16_t vendor, uint16_t device);
device_t pci_find_class(uint8_t class, uint8_t subclass);
device_t pci_find_pcie_root_port(device_t dev);

/* State, resets and PCI Express. */
int	pci_pending_msix(device_t dev, u_int index);
void	pci_save_state(device_t dev);
void	pci_restore_state(device_t dev);
int	pci_get_max_read_req(device_t dev);
int	pci_set_max_read_req(device_t dev, int size);
uint32_t pcie_read_config(device_t dev, int reg, int width);
void	pcie_write_config(device_t dev, int reg, uint32_t value, int width);
uint32_t pcie_adjust_config(device_t dev, int reg, uint32_t mask,
    uint32_t value, int width);
bool	pcie_flr(device_t dev, u_int max_delay, bool force);
int	pcie_get_max_completion_timeout(device_t dev);
bool	pcie_wait_for_pending_transactions(device_t dev, u_int max_delay);

/*
 * A table of the functions that a driver knows, for pci_match_device() and
 * PCI_PNP_INFO().
 */
struct pci_device_table {
	uint16_t
		match_flag_vendor:1,
		match_flag_device:1,
		match_flag_subvendor:1,
		match_flag_subdevice:1,
		match_flag_class:1,
		match_flag_subclass:1,
		match_flag_revid:1,
		match_flag_unused:9;
	uint16_t	vendor;
	uint16_t	device;
	uint16_t	subvendor;
	uint16_t	subdevice;
	uint16_t	class_id;
	uint16_t	subclass;
	uint16_t	revid;
	uint16_t	unused;
	uintptr_t	driver_data;
	char		*descr;
};

#define	PCI_DEV(v, d)							\
	.match_flag_vendor = 1, .vendor = (v),				\
	.match_flag_device = 1, .device = (d)
#define	PCI_SUBDEV(sv, sd)						\
	.match_flag_subvendor = 1, .subvendor = (sv),			\
	.match_flag_subdevice = 1, .subdevice = (sd)
#define	PCI_CLASS(x)							\
	.match_flag_class = 1, .class_id = (x)
#define	PCI_SUBCLASS(x)							\
	.match_flag_subclass = 1, .subclass = (x)
#define	PCI_REVID(x)							\
	.match_flag_revid = 1, .revid = (x)
#define	PCI_DESCR(x)							\
	.descr = (x)

#define	PCI_PNP_STR							\
	"M16:mask;U16:vendor;U16:device;U16:subvendor;U16:subdevice;"	\
	"U16:class;U16:subclass;U16:revid;"
#define	PCI_PNP_INFO(table)						\
	MODULE_PNP_INFO(PCI_PNP_STR, pci, table, table,			\
	    sizeof(table) / sizeof((table)[0]))

const struct pci_device_table *pci_match_device(device_t child,
    const struct pci_device_table *id, size_t nelt);
#define	PCI_MATCH(dev, table)						\
	pci_match_device((dev), (table), sizeof(table) / sizeof((table)[0]))

/*
 * Called with each function that appears or goes; it is not attached at that
 * moment.
 */
typedef void (*pci_event_fn)(void *arg, device_t dev);
EVENTHANDLER_DECLARE(pci_add_device, pci_event_fn);
EVENTHANDLER_DECLARE(pci_delete_device, pci_event_fn);

#endif /* !_PCIVAR_H_ */
