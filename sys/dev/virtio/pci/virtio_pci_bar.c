/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The BARs of a virtio device: each is mapped once, when the first window in it
 * is looked for, and stays mapped until the device is detached.
 *
 * Locking.  None: BARs are mapped while attaching and while interrupts are
 * allocated.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pcivar.h>

#include <dev/virtio/pci/virtio_pci.h>

struct resource *
vtpci_map_bar(struct vtpci_softc *sc, int bar)
{
	device_t dev = sc->vtp_bus.vb_dev;
	int rid = PCIR_BAR(bar);

	if (sc->vtp_bars[bar] != NULL)
		return (sc->vtp_bars[bar]);
	sc->vtp_bar_types[bar] = PCI_BAR_IO(pci_read_config(dev, rid, 4)) ?
	    SYS_RES_IOPORT : SYS_RES_MEMORY;
	sc->vtp_bars[bar] = bus_alloc_resource_any(dev, sc->vtp_bar_types[bar],
	    &rid, RF_ACTIVE);
	return (sc->vtp_bars[bar]);
}

void
vtpci_unmap_bars(struct vtpci_softc *sc)
{
	int i;

	for (i = 0; i < VTPCI_NBARS; i++) {
		if (sc->vtp_bars[i] == NULL)
			continue;
		(void)bus_release_resource(sc->vtp_bus.vb_dev,
		    sc->vtp_bar_types[i], PCIR_BAR(i), sc->vtp_bars[i]);
		sc->vtp_bars[i] = NULL;
	}
}

bool
vtpci_map_msix(struct vtpci_softc *sc)
{
	int rids[2], i;

	rids[0] = pci_msix_table_bar(sc->vtp_bus.vb_dev);
	rids[1] = pci_msix_pba_bar(sc->vtp_bus.vb_dev);
	for (i = 0; i < 2; i++) {
		if (rids[i] < PCIR_BAR(0) ||
		    rids[i] > PCIR_BAR(VTPCI_NBARS - 1) ||
		    vtpci_map_bar(sc, PCI_RID2BAR(rids[i])) == NULL)
			return (false);
	}
	return (true);
}
