/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What bridges to PCI buses share.
 */

#ifndef _DEV_PCI_PCIB_PRIVATE_H_
#define	_DEV_PCI_PCIB_PRIVATE_H_

/* Instance variables that a bridge has for the bus behind it. */
enum pcib_device_ivars {
	PCIB_IVAR_DOMAIN,
	PCIB_IVAR_BUS
};

#define	PCIB_ACCESSOR(var, ivar, type)					\
	__BUS_ACCESSOR(pcib, var, PCIB, ivar, type)

PCIB_ACCESSOR(domain,	DOMAIN,	uint32_t)
PCIB_ACCESSOR(bus,	BUS,	uint32_t)

#undef PCIB_ACCESSOR

/* The PCIB_GET_ID of an ordinary bridge (pci_pci.c): bus, slot and function. */
int	pcib_get_id_default(device_t pcib, device_t dev, enum pci_id_type type,
    uintptr_t *id);

#endif /* !_DEV_PCI_PCIB_PRIVATE_H_ */
