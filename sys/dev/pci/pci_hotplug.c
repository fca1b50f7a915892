/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Hot-plug slots of PCI Express ports (PCI Express 4.0, 6.7 and 7.5.3.9 to
 * 7.5.3.11).
 *
 * The slot of a port has one device.  Its status bits say that something was
 * plugged in or that the attention button was pressed, which is how a request
 * to take the device out arrives (QEMU: device_del).  The port interrupts; a
 * task then looks and acts, with the topology lock:
 *
 *	present, not in use	power on, wait, rescan the bus behind
 *	gone, in use		delete what was on the bus
 *	button, in use		detach it; if its driver agrees, power off: the
 *				host may take it
 *	button, not in use	power on, as if it had been plugged in
 *
 * A button that comes with a change of presence belongs to what was plugged in:
 * the task may have seen that already, when the event arrives.
 *
 * The interrupt handler acknowledges exactly the events that it read, until
 * there are none: a message comes with the first event only, and none for one
 * that joins others (6.7.3.4).  Then the task looks at the slot.
 *
 * The specification asks for five seconds of a blinking light, in which a
 * second press undoes the first: that is for people's fingers; here the one who
 * presses is a program, and it waits for the result.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/taskqueue.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pci_private.h>
#include <dev/pci/pcib_softc_tree.h>

#define	SLOT_LOOKS	16	/* in one interrupt, should a slot never be
				 * content */
#define	SLOT_EVENTS	(PCIEM_SLOT_STA_ABP | PCIEM_SLOT_STA_PFD |	\
			 PCIEM_SLOT_STA_MRLSC | PCIEM_SLOT_STA_PDC |	\
			 PCIEM_SLOT_STA_CC | PCIEM_SLOT_STA_DLLSC)

static void
slot_control(struct pcib_softc *sc, uint16_t mask, uint16_t value)
{
	(void)pcie_adjust_config(sc->dev, PCIER_SLOT_CTL, mask, value, 2);
}

/* The status; the events in it are acknowledged. */
static uint16_t
slot_status(struct pcib_softc *sc)
{
	uint16_t status = pcie_read_config(sc->dev, PCIER_SLOT_STA, 2);

	if (status == 0xffff)
		return (0);
	pcie_write_config(sc->dev, PCIER_SLOT_STA, status & SLOT_EVENTS, 2);
	return (status);
}

/*
 * Power and its light: both exist only if the capabilities say so, and are
 * ignored otherwise.
 */
static void
slot_power(struct pcib_softc *sc, bool on)
{
	slot_control(sc, PCIEM_SLOT_CTL_PCC | PCIEM_SLOT_CTL_PIC,
	    on ? PCIEM_SLOT_CTL_PC_ON | PCIEM_SLOT_CTL_PI_ON :
	    PCIEM_SLOT_CTL_PC_OFF | PCIEM_SLOT_CTL_PI_OFF);
}

static bool
slot_is_powered(struct pcib_softc *sc)
{
	return ((sc->slot_cap & PCIEM_SLOT_CAP_PCP) == 0 ||
	    (pcie_read_config(sc->dev, PCIER_SLOT_CTL,
	    2) & PCIEM_SLOT_CTL_PCC) == PCIEM_SLOT_CTL_PC_ON);
}

static void
slot_insert(struct pcib_softc *sc)
{
	if (!slot_is_powered(sc)) {
		slot_power(sc, true);
		/*
		 * PCI Express 4.0, 6.6.1: 100 ms from power to the first
		 * configuration access.
		 */
		pause_sbt("pciehp", 100 * SBT_1MS, 0, C_HARDCLOCK);
	}
	sc->attached = true;
	if (device_is_attached(sc->child))
		(void)BUS_RESCAN(sc->child);
	else
		(void)device_probe_and_attach(sc->child);
}

/*
 * The device was removed, or its removal was requested.  False if its driver
 * refuses.  The bus is detached with it: drivers that listen know then that all
 * functions go.
 */
static bool
slot_remove(struct pcib_softc *sc, bool gone)
{
	int error;

	error = device_detach(sc->child);
	if (error != 0 && !gone) {
		device_printf(sc->dev,
		    "the device in its slot is in use: error %d\n", error);
		return (false);
	}
	sc->attached = false;
	if (slot_is_powered(sc))
		slot_power(sc, false);
	return (true);
}

static void
slot_task(void *arg, int pending __unused)
{
	struct pcib_softc *sc = arg;
	u_int events;
	bool present;

	bus_topo_lock();
	events = atomic_readandclear_int(&sc->events);
	present = (pcie_read_config(sc->dev, PCIER_SLOT_STA,
	    2) & PCIEM_SLOT_STA_PDS) != 0;
	if (!present && sc->attached)
		(void)slot_remove(sc, true);
	else if (present && !sc->attached)
		slot_insert(sc);
	else if (present && (events & (PCIEM_SLOT_STA_ABP |
	    PCIEM_SLOT_STA_PDC)) == PCIEM_SLOT_STA_ABP)
		(void)slot_remove(sc, false);
	bus_topo_unlock();
}

static void
slot_intr(void *arg)
{
	struct pcib_softc *sc = arg;
	u_int i, now, events = 0;

	/*
	 * Acknowledged here, for the pin stays asserted until then; and the pin
	 * may be another's.
	 */
	for (i = 0;
	    i < SLOT_LOOKS && (now = slot_status(sc) & SLOT_EVENTS) != 0; i++)
		events |= now;
	if (events == 0)
		return;
	atomic_set_int(&sc->events, events);
	taskqueue_enqueue(taskqueue_thread, &sc->task);
}

/*
 * One message by MSI-X or MSI if the port can send any, else the pin; returns
 * the resource's id.
 */
static int
slot_choose_irq(struct pcib_softc *sc)
{
	int count = 1, rid = pci_msix_table_bar(sc->dev);

	if (pci_msix_count(sc->dev) > 0 && rid == pci_msix_pba_bar(sc->dev)) {
		sc->msix_res = bus_alloc_resource_any(sc->dev, SYS_RES_MEMORY,
		    &rid, RF_ACTIVE);
		if (sc->msix_res != NULL &&
		    pci_alloc_msix(sc->dev, &count) == 0)
			return (1);
	}
	if (pci_msi_count(sc->dev) > 0 && pci_alloc_msi(sc->dev, &count) == 0)
		return (1);
	return (0);
}

static int
slot_alloc_irq(struct pcib_softc *sc)
{
	int rid = slot_choose_irq(sc);

	sc->irq = bus_alloc_resource_any(sc->dev, SYS_RES_IRQ, &rid,
	    RF_ACTIVE | (rid == 0 ? RF_SHAREABLE : 0));
	return (sc->irq == NULL ? ENXIO : 0);
}

void
pcib_hotplug_init(struct pcib_softc *sc)
{
	struct pci_devinfo *di = device_get_ivars(sc->dev);

	if (di->pcie == 0)
		return;
	sc->is_port = di->pcie_type == PCIEM_TYPE_ROOT_PORT ||
	    di->pcie_type == PCIEM_TYPE_DOWNSTREAM_PORT;
	if (!sc->is_port ||
	    (pcie_read_config(sc->dev, PCIER_FLAGS, 2) & PCIEM_FLAGS_SLOT) == 0)
		return;
	sc->slot_cap = pcie_read_config(sc->dev, PCIER_SLOT_CAP, 4);
	sc->hotplug = (sc->slot_cap & PCIEM_SLOT_CAP_HPC) != 0;
	if (!sc->hotplug)
		return;
	TASK_INIT(&sc->task, 0, slot_task, sc);
	/*
	 * What is in the slot at boot is found by the first scan of the bus, if
	 * it has power.
	 */
	sc->attached = (slot_status(sc) & PCIEM_SLOT_STA_PDS) != 0;
	if (sc->attached && !slot_is_powered(sc)) {
		slot_power(sc, true);
		DELAY(100000);
	}
}

void
pcib_hotplug_start(struct pcib_softc *sc)
{
	int error;

	if (!sc->hotplug)
		return;
	error = slot_alloc_irq(sc);
	if (error == 0)
		error = bus_setup_intr(sc->dev, sc->irq, INTR_TYPE_MISC |
		    INTR_MPSAFE, NULL, slot_intr, sc, &sc->cookie);
	if (error != 0) {
		device_printf(sc->dev,
		    "no interrupt for its slot: `devctl rescan %s' after a "
		    "change\n", device_get_nameunit(sc->child));
		return;
	}
	slot_control(sc,
	    PCIEM_SLOT_CTL_ABPE | PCIEM_SLOT_CTL_PDCE | PCIEM_SLOT_CTL_HPIE,
	    PCIEM_SLOT_CTL_ABPE | PCIEM_SLOT_CTL_PDCE | PCIEM_SLOT_CTL_HPIE);
}

void
pcib_hotplug_stop(struct pcib_softc *sc)
{
	if (!sc->hotplug)
		return;
	slot_control(sc,
	    PCIEM_SLOT_CTL_ABPE | PCIEM_SLOT_CTL_PDCE | PCIEM_SLOT_CTL_HPIE, 0);
	if (sc->cookie != NULL)
		bus_teardown_intr(sc->dev, sc->irq, sc->cookie);
	sc->cookie = NULL;
	if (sc->irq != NULL)
		bus_release_resource(sc->dev, sc->irq);
	sc->irq = NULL;
	(void)pci_release_msi(sc->dev);
	if (sc->msix_res != NULL)
		bus_release_resource(sc->dev, sc->msix_res);
	sc->msix_res = NULL;
	taskqueue_drain(taskqueue_thread, &sc->task);
}

void
pcib_hotplug_suspend(struct pcib_softc *sc)
{
	if (sc->hotplug)
		sc->slot_ctl = pcie_read_config(sc->dev, PCIER_SLOT_CTL, 2);
}

/*
 * Also: look what has happened in the slot meanwhile.  Power that goes off is
 * the sign that a device may be taken, so that it stays as it is for one that
 * was plugged in meanwhile.
 */
void
pcib_hotplug_resume(struct pcib_softc *sc)
{
	uint16_t mask = 0xffff;

	if (!sc->hotplug)
		return;
	if (!sc->attached && (slot_status(sc) & PCIEM_SLOT_STA_PDS) != 0)
		mask &= ~(PCIEM_SLOT_CTL_PCC | PCIEM_SLOT_CTL_PIC);
	slot_control(sc, mask, sc->slot_ctl);
	(void)slot_status(sc);
	taskqueue_enqueue(taskqueue_thread, &sc->task);
}

int
pcib_hotplug_child_present(device_t dev, device_t child)
{
	struct pcib_softc *sc = device_get_softc(dev);

	if (!bus_child_present(dev))
		return (0);
	if (!sc->hotplug)
		return (-1);
	return ((pcie_read_config(dev, PCIER_SLOT_STA,
	    2) & PCIEM_SLOT_STA_PDS) != 0 ? -1 : 0);
}
