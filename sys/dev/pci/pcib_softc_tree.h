/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The state of a PCI-to-PCI bridge: pci_pci.c, and pci_hotplug.c for its slot.
 *
 * Not FreeBSD's: FreeBSD's <dev/pci/pcib_private.h> has a softc with fields for
 * what is left out here.
 */

#ifndef _DEV_PCI_PCIB_SOFTC_TREE_H_
#define	_DEV_PCI_PCIB_SOFTC_TREE_H_

#include <sys/rman.h>
#include <sys/_task.h>
#include <dev/pci/pcireg.h>

/* I/O, memory, prefetchable memory. */
#define	PCIB_NWINDOWS	3

/*
 * From the bus numbers to the bridge control (PCI-PCI Bridge 1.2, 3.2), in
 * words of 4 bytes.
 */
#define	PCIB_NSAVED	((0x40 - PCIR_PRIBUS_1) / 4)

struct pcib_window {
	rman_res_t	base;
	rman_res_t	limit;
	struct resource	*res;		/* claimed from the bus above;
					 * NULL: no such window */
	struct rman	rman;
	char		descr[48];
};

struct pcib_softc {
	device_t	dev;
	device_t	child;		/* pciN */
	u_int		secbus;		/* number of the bus behind it */
	u_int		subbus;	/* highest number reachable through it */
	struct pcib_window windows[PCIB_NWINDOWS];
	uint32_t	saved[PCIB_NSAVED]; /* registers, while suspended */

	/* A PCI Express port with a slot (pci_hotplug.c). */
	bool		is_port;
	bool		hotplug;	/* we run the slot */
	int		pcie;	/* where its PCI Express capability is */
	uint32_t	slot_cap;
	uint16_t	slot_ctl;	/* while suspended */
	bool		attached;	/* the slot's function
					 * is in use or coming */
	struct task	task;
	u_int		events;		/* acknowledged, for the task; atomic */
	struct resource	*msix_res;
	struct resource	*irq;
	void		*cookie;
};

/*
 * Find out whether the bridge is a port with a slot; then power an occupied
 * slot up, start watching it, stop again.  All three do nothing for other
 * bridges.
 */
void	pcib_hotplug_init(struct pcib_softc *sc);
void	pcib_hotplug_start(struct pcib_softc *sc);
void	pcib_hotplug_stop(struct pcib_softc *sc);
void	pcib_hotplug_suspend(struct pcib_softc *sc);
void	pcib_hotplug_resume(struct pcib_softc *sc);
int	pcib_hotplug_child_present(device_t dev, device_t child);

#endif /* !_DEV_PCI_PCIB_SOFTC_TREE_H_ */
