/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * pciconf(8), the list of PCI functions: -l, with BARs (-b), capabilities (-c) and class names
 * (-v).
 *
 * Gaps.  The names of vendors and devices need a database that isn't here.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/module.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pci/pcireg.h>
#include <dev/pci/pci_private.h>
#include <kern/console_tree.h>

/* Subclass -1 names the class itself. */
static const struct {
	int		class;
	int		subclass;
	const char	*name;
} pci_class_names[] = {
	{ PCIC_STORAGE, -1, "mass storage" },
	{ PCIC_STORAGE, PCIS_STORAGE_SCSI, "SCSI" },
	{ PCIC_STORAGE, PCIS_STORAGE_IDE, "ATA" },
	{ PCIC_STORAGE, PCIS_STORAGE_SATA, "SATA" },
	{ PCIC_STORAGE, PCIS_STORAGE_NVM, "NVM" },
	{ PCIC_NETWORK, -1, "network" },
	{ PCIC_NETWORK, PCIS_NETWORK_ETHERNET, "ethernet" },
	{ PCIC_DISPLAY, -1, "display" },
	{ PCIC_DISPLAY, PCIS_DISPLAY_VGA, "VGA" },
	{ PCIC_MULTIMEDIA, -1, "multimedia" },
	{ PCIC_MEMORY, -1, "memory" },
	{ PCIC_MEMORY, PCIS_MEMORY_RAM, "RAM" },
	{ PCIC_BRIDGE, -1, "bridge" },
	{ PCIC_BRIDGE, PCIS_BRIDGE_HOST, "HOST-PCI" },
	{ PCIC_BRIDGE, PCIS_BRIDGE_ISA, "PCI-ISA" },
	{ PCIC_BRIDGE, PCIS_BRIDGE_PCI, "PCI-PCI" },
	{ PCIC_SIMPLECOMM, -1, "simple comms" },
	{ PCIC_BASEPERIPH, -1, "base peripheral" },
	{ PCIC_SERIALBUS, -1, "serial bus" },
	{ PCIC_SERIALBUS, PCIS_SERIALBUS_USB, "USB" },
	{ PCIC_SERIALBUS, PCIS_SERIALBUS_SMBUS, "SMBus" },
};

static const char *
pci_class_name(int class, int subclass)
{
	for (u_int i = 0; i < nitems(pci_class_names); i++)
		if (pci_class_names[i].class == class && pci_class_names[i].subclass == subclass)
			return (pci_class_names[i].name);
	return (NULL);
}

static void
pciconf_print_names(const struct pci_devinfo *di)
{
	const char *name = pci_class_name(di->baseclass, -1);

	if (name == NULL)
		return;
	printf("    class      = %s\n", name);
	name = pci_class_name(di->baseclass, di->subclass);
	if (name != NULL)
		printf("    subclass   = %s\n", name);
}

static void
pciconf_print_bars(const struct pci_devinfo *di)
{
	uint16_t command = pci_read_config(di->dev, PCIR_COMMAND, 2);
	const struct pci_bar *bar;
	bool io;

	for (u_int i = 0; i < di->nbars; i++) {
		bar = &di->bars[i];
		io = bar->type == SYS_RES_IOPORT;
		printf("    bar   [%02x] = type %s, range %d, base %#jx, size %ju, %s\n", bar->reg,
		    io ? "I/O Port" : bar->prefetch ? "Prefetchable Memory" : "Memory",
		    bar->mem64 ? 64 : 32, (uintmax_t)bar->base, (uintmax_t)bar->size,
		    (command & (io ? PCIM_CMD_PORTEN : PCIM_CMD_MEMEN)) != 0 ? "enabled" :
		    "disabled");
	}
}

static void
pciconf_print_msi(const struct pci_devinfo *di, int cap)
{
	uint16_t ctrl = pci_read_config(di->dev, cap + PCIR_MSI_CTRL, 2);
	int max = PCI_MSI_MSGNUM(ctrl);

	printf("MSI supports %d message%s%s%s", max, max == 1 ? "" : "s",
	    (ctrl & PCIM_MSICTRL_64BIT) != 0 ? ", 64 bit" : "",
	    (ctrl & PCIM_MSICTRL_VECTOR) != 0 ? ", vector masks" : "");
	if ((ctrl & PCIM_MSICTRL_MSI_ENABLE) != 0)
		printf(" enabled with %d message%s", 1 << ((ctrl & PCIM_MSICTRL_MME_MASK) >> 4),
		    (ctrl & PCIM_MSICTRL_MME_MASK) == 0 ? "" : "s");
}

static void
pciconf_print_msix(const struct pci_devinfo *di, int cap)
{
	const struct pci_msix *msix = &di->msix;
	uint16_t ctrl = pci_read_config(di->dev, cap + PCIR_MSIX_CTRL, 2);

	printf("MSI-X supports %u message%s%s\n", msix->max, msix->max == 1 ? "" : "s",
	    (ctrl & PCIM_MSIXCTRL_MSIX_ENABLE) != 0 ? ", enabled" : "");
	printf("                 Table in map 0x%x[0x%x], PBA in map 0x%x[0x%x]",
	    msix->table_bar, msix->table_offset, msix->pba_bar, msix->pba_offset);
}

static void
pciconf_print_pcie(const struct pci_devinfo *di, int cap)
{
	uint16_t flags = pci_read_config(di->dev, cap + PCIER_FLAGS, 2);
	const char *type;

	switch (flags & PCIEM_FLAGS_TYPE) {
	case PCIEM_TYPE_ENDPOINT:
		type = "endpoint";
		break;
	case PCIEM_TYPE_ROOT_PORT:
		type = "root port";
		break;
	case PCIEM_TYPE_UPSTREAM_PORT:
		type = "upstream port";
		break;
	case PCIEM_TYPE_DOWNSTREAM_PORT:
		type = "downstream port";
		break;
	case PCIEM_TYPE_ROOT_INT_EP:
		type = "root endpoint";
		break;
	default:
		type = "type unknown";
		break;
	}
	printf("PCI-Express %d %s", flags & PCIEM_FLAGS_VERSION, type);
	if ((flags & PCIEM_FLAGS_SLOT) != 0)
		printf(" slot");
}

static void
pciconf_print_cap(const struct pci_devinfo *di, int cap)
{
	int id = pci_read_config(di->dev, cap + PCICAP_ID, 1);

	printf("    cap %02x[%02x] = ", id, cap);
	switch (id) {
	case PCIY_PMG:
		printf("powerspec %d", pci_read_config(di->dev, cap + PCIR_POWER_CAP, 2) & 7);
		printf("  current D%d", pci_get_powerstate(di->dev));
		break;
	case PCIY_MSI:
		pciconf_print_msi(di, cap);
		break;
	case PCIY_MSIX:
		pciconf_print_msix(di, cap);
		break;
	case PCIY_EXPRESS:
		pciconf_print_pcie(di, cap);
		break;
	case PCIY_VENDOR:
		printf("vendor (length %d)",
		    pci_read_config(di->dev, cap + PCIR_VENDOR_LENGTH, 1));
		if (di->vendor == 0x1af4)
			printf(" VirtIO %d", pci_read_config(di->dev, cap + PCIR_VENDOR_DATA, 1));
		break;
	case PCIY_SUBVENDOR:
		printf("PCI Bridge subvendor=0x%04x subdevice=0x%04x",
		    pci_read_config(di->dev, cap + PCIR_SUBVENDCAP_ID, 2),
		    pci_read_config(di->dev, cap + PCIR_SUBVENDCAP_ID + 2, 2));
		break;
	default:
		printf("unknown");
		break;
	}
	printf("\n");
}

static void
pciconf_print_caps(const struct pci_devinfo *di)
{
	int cap;

	if ((pci_read_config(di->dev, PCIR_STATUS, 2) & PCIM_STATUS_CAPPRESENT) == 0)
		return;
	cap = pci_read_config(di->dev, PCIR_CAP_PTR, 1) & ~3;
	/* No more than there is room for: the list may be a loop. */
	for (int i = 0; i < 48 && cap >= 0x40; i++) {
		pciconf_print_cap(di, cap);
		cap = pci_read_config(di->dev, cap + PCICAP_NEXTPTR, 1) & ~3;
	}
}

static void
pciconf_print_function(const struct pci_devinfo *di, int none)
{
	if (device_get_name(di->dev) != NULL && device_is_attached(di->dev))
		printf("%s", device_get_nameunit(di->dev));
	else
		printf("none%d", none);
	printf("@pci%u:%d:%d:%d:\tclass=0x%02x%02x%02x rev=0x%02x hdr=0x%02x vendor=0x%04x "
	    "device=0x%04x subvendor=0x%04x subdevice=0x%04x\n", di->domain, di->bus, di->slot,
	    di->func, di->baseclass, di->subclass, di->progif, di->revid,
	    di->hdrtype & PCIM_HDRTYPE, di->vendor, di->device, di->subvendor, di->subdevice);
}

static int
cmd_pciconf(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool bars = false, caps = false, list = false, names = false;
	struct pci_devinfo *di;
	int c, none = 0;

	while ((c = cmd_getopt(&g, argc, argv, "bclv")) != -1) {
		switch (c) {
		case 'b':
			bars = true;
			break;
		case 'c':
			caps = true;
			break;
		case 'l':
			list = true;
			break;
		case 'v':
			names = true;
			break;
		default:
			return (cmd_usage("pciconf"));
		}
	}
	if (!list || g.optind != argc)
		return (cmd_usage("pciconf"));
	bus_topo_lock();
	STAILQ_FOREACH(di, &pci_devq, link) {
		if (cmd_interrupted())
			break;
		pciconf_print_function(di, none);
		if (!device_is_attached(di->dev))
			none++;
		if (names)
			pciconf_print_names(di);
		if (bars)
			pciconf_print_bars(di);
		if (caps)
			pciconf_print_caps(di);
	}
	bus_topo_unlock();
	return (0);
}
CONSOLE_CMD(pciconf, cmd_pciconf, "list PCI functions",
    "pciconf -l [-bcv]");
