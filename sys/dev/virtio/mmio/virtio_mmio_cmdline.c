/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Virtio devices that the kernel's command line names, as QEMU's microvm and
 * Firecracker append them:
 *
 *	virtio_mmio.device=SIZE@ADDRESS:IRQ[:ID]
 *
 * SIZE may end in K, M or G; numbers are as in C.  The kernel environment has
 * the second device under virtio_mmio.device_1, and so on.  A device becomes a
 * child of nexus, once; it stays when the module is unloaded, as a child of a
 * bus that can't be searched anew.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/libkern.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/virtio/mmio/virtio_mmio.h>

#define	VTMMIO_VARIABLE		"virtio_mmio.device"
#define	VTMMIO_UNITS		0x10000	/* more than any ID
					 * that means something */

struct vtmmio_place {
	u_long	size;
	u_long	address;
	u_long	irq;
	int	unit;		/* -1: any */
};

/*
 * A number, and what follows it: sep, or the end of the string if that is 0.
 * NULL: something else.
 */
static const char *
vtmmio_number(const char *text, char sep, u_long *value)
{
	char *end;

	*value = strtoul(text, &end, 0);
	if (end == text || *text == '-')
		return (NULL);
	if (sep == '@') {
		switch (*end) {
		case 'G': case 'g':
			*value <<= 10;
			/* FALLTHROUGH */
		case 'M': case 'm':
			*value <<= 10;
			/* FALLTHROUGH */
		case 'K': case 'k':
			*value <<= 10;
			end++;
			break;
		}
	}
	if (*end != sep)
		return (NULL);
	return (sep == '\0' ? end : end + 1);
}

static bool
vtmmio_parse(const char *text, struct vtmmio_place *place)
{
	const char *at, *id;
	u_long unit;

	place->unit = -1;
	at = vtmmio_number(text, '@', &place->size);
	if (at != NULL)
		at = vtmmio_number(at, ':', &place->address);
	if (at == NULL || place->size < VIRTIO_MMIO_CONFIG ||
	    place->address > ULONG_MAX - place->size)
		return (false);
	id = vtmmio_number(at, ':', &place->irq);
	if (id == NULL)
		return (vtmmio_number(at, '\0', &place->irq) != NULL);
	if (vtmmio_number(id, '\0', &unit) == NULL || unit >= VTMMIO_UNITS)
		return (false);
	place->unit = unit;
	return (true);
}

/* Is this device there, from an earlier load of the module? */
static bool
vtmmio_is_known(device_t parent, u_long address)
{
	device_t *children;
	bool known = false;
	int i, n;

	if (device_get_children(parent, &children, &n) != 0)
		return (false);
	for (i = 0; i < n; i++) {
		if (strcmp(device_get_name(children[i]) != NULL ?
		    device_get_name(children[i]) : "",
		    vtmmio_driver.name) == 0 &&
		    bus_get_resource_start(children[i], SYS_RES_MEMORY,
		    0) == address)
			known = true;
	}
	free(children, M_TEMP);
	return (known);
}

static void
vtmmio_add(device_t parent, const char *name, const char *text)
{
	struct vtmmio_place place;
	device_t child;
	int error;

	if (!vtmmio_parse(text, &place)) {
		printf(
		    "%s=%s: expected SIZE@ADDRESS:IRQ[:ID], of %u bytes or more\n",
		    name, text, VIRTIO_MMIO_CONFIG);
		return;
	}
	if (vtmmio_is_known(parent, place.address))
		return;
	child = BUS_ADD_CHILD(parent, 0, vtmmio_driver.name, place.unit);
	if (child == NULL) {
		printf("%s=%s: no device of this number can be added\n", name,
		    text);
		return;
	}
	error = bus_set_resource(child, SYS_RES_MEMORY, 0, place.address,
	    place.size);
	if (error == 0)
		error = bus_set_resource(child, SYS_RES_IRQ, 0, place.irq, 1);
	if (error != 0) {
		printf("%s=%s: error %d\n", name, text, error);
		(void)device_delete_child(parent, child);
	}
}

static void
vtmmio_cmdline_identify(driver_t *driver __unused, device_t parent)
{
	char name[sizeof(VTMMIO_VARIABLE) + 8];
	char *text;
	int i = 0;

	snprintf(name, sizeof(name), "%s", VTMMIO_VARIABLE);
	while ((text = kern_getenv(name)) != NULL) {
		vtmmio_add(parent, name, text);
		freeenv(text);
		snprintf(name, sizeof(name), "%s_%d", VTMMIO_VARIABLE, ++i);
	}
}

static struct virtio_transport vtmmio_cmdline_transport;

static uint32_t
vtmmio_cmdline_type(device_t dev)
{

	if (device_get_name(dev) == NULL ||
	    strcmp(device_get_name(dev), vtmmio_driver.name) != 0)
		return (0);
	return (vtmmio_type(dev));
}

static int
vtmmio_cmdline_probe(device_t dev)
{

	return (vtmmio_probe(&vtmmio_cmdline_transport, dev));
}

static device_method_t vtmmio_cmdline_methods[] = {
	DEVMETHOD(device_identify,	vtmmio_cmdline_identify),
	DEVMETHOD(device_probe,		vtmmio_cmdline_probe),

	DEVMETHOD_END
};

DEFINE_CLASS_1(vtmmio, vtmmio_cmdline_driver, vtmmio_cmdline_methods,
    sizeof(struct vtmmio_softc), vtmmio_driver);
static struct virtio_transport vtmmio_cmdline_transport =
    VTMMIO_TRANSPORT("nexus", vtmmio_cmdline_driver, vtmmio_cmdline_type, true);

VIRTIO_TRANSPORT_MODULE(vtmmio, nexus, vtmmio_cmdline_transport);
