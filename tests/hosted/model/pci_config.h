/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A modern virtio device on PCI, as far as it is found: a configuration space of 256 bytes and one
 * memory BAR, which is plain memory behind which ASan stands guard.
 */

#ifndef _PCI_CONFIG_H_
#define	_PCI_CONFIG_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/pci/virtio_pci.h>

#define	BAR		4
#define	BAR_SIZE	0x4000
#define	COMMON_OFF	0x0000
#define	ISR_OFF		0x1000
#define	DEVICE_OFF	0x2000
#define	NOTIFY_OFF	0x3000

struct pci_model {
	device_t	 bus;
	device_t	 dev;
	uint8_t		 config[256];
	int		 next;		/* where the next capability goes */
	int		 last;		/* offset of the byte that points to it */
	uint8_t		*bar;
	struct resource	 res;
	bool		 no_bar;
	struct vtpci_softc sc;
};
extern struct pci_model pci;

/* A device without capabilities, with two queues; and: nothing is left of it. */
void	pci_begin(void);
void	pci_end(void);

/* Add a capability; returns where it is. */
int	pci_add_cap(uint8_t type, uint8_t bar, uint32_t off, uint32_t len, uint8_t cap_len);
void	pci_set_multiplier(int cap, uint32_t multiplier);
void	pci_set_bar_2(int off, uint16_t v);

/* All the capabilities of a good device, but for one type. */
void	pci_add_all_but(uint8_t type);

#endif /* !_PCI_CONFIG_H_ */
