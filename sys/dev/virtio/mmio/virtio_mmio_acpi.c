/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtio devices that ACPI names (_HID LNRO0005), with a window of memory and
 * an interrupt as their resources.
 *
 * The name is taken from what the bus has for devmatch(8), not from
 * ACPI_ID_PROBE(): so the module needs no symbol of ACPI's, and loads into
 * kernels without it, as virtual machines without firmware have them.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/module.h>
#include <sys/sbuf.h>

#include <dev/virtio/mmio/virtio_mmio.h>

#define	VTMMIO_ACPI_HID	"LNRO0005"
#define	VTMMIO_PNPINFO	256	/* bytes of it that are looked at:
				 * the name comes first */

static const struct vtmmio_acpi_id {
	const char	*hid;
} vtmmio_acpi_ids[] = {
	{ VTMMIO_ACPI_HID },
};

static struct virtio_transport vtmmio_acpi_transport;

static bool
vtmmio_acpi_match(device_t dev)
{
	static const char name[] = "_HID=" VTMMIO_ACPI_HID " ";
	char buf[VTMMIO_PNPINFO];
	struct sbuf sb;

	(void)sbuf_new(&sb, buf, sizeof(buf), SBUF_FIXEDLEN);
	(void)bus_child_pnpinfo(dev, &sb);
	(void)sbuf_finish(&sb);
	return (strncmp(buf, name, sizeof(name) - 1) == 0);
}

static uint32_t
vtmmio_acpi_type(device_t dev)
{

	return (vtmmio_acpi_match(dev) ? vtmmio_type(dev) : 0);
}

static int
vtmmio_acpi_probe(device_t dev)
{

	return (vtmmio_acpi_match(dev) ? vtmmio_probe(&vtmmio_acpi_transport,
	    dev) : ENXIO);
}

static device_method_t vtmmio_acpi_methods[] = {
	DEVMETHOD(device_probe,		vtmmio_acpi_probe),

	DEVMETHOD_END
};

DEFINE_CLASS_1(vtmmio, vtmmio_acpi_driver, vtmmio_acpi_methods,
    sizeof(struct vtmmio_softc), vtmmio_driver);
static struct virtio_transport vtmmio_acpi_transport =
    VTMMIO_TRANSPORT("acpi", vtmmio_acpi_driver, vtmmio_acpi_type, false);

VIRTIO_TRANSPORT_MODULE(vtmmio, acpi, vtmmio_acpi_transport);
MODULE_PNP_INFO("Z:_HID;", acpi, vtmmio, vtmmio_acpi_ids,
    nitems(vtmmio_acpi_ids));
