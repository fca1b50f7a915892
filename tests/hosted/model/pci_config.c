/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A modern virtio device on PCI: pci_config.h.
 */

#include "host/host.h"
#include "kpi/kpi.h"
#include "pci_config.h"

struct pci_model pci;

/* pci(4)'s methods, of the parent. */
static uint32_t
model_read_config(device_t bus __unused, device_t child __unused, int reg, int width)
{
	uint32_t v = 0;

	CHECK(reg >= 0 && reg + width <= (int)sizeof(pci.config), "%d bytes at %d", width, reg);
	memcpy(&v, pci.config + reg, width);
	return (v);
}

static int
model_find(uint8_t where, int capability, int *capreg)
{
	int n;

	for (n = 0; where >= 0x40 && where < 0xfc && n < 48; n++, where = pci.config[where + 1]) {
		if (pci.config[where] == capability) {
			*capreg = where;
			return (0);
		}
	}
	return (ENOENT);
}

static int
model_find_cap(device_t bus __unused, device_t child __unused, int capability, int *capreg)
{

	return (model_find(pci.config[PCIR_CAP_PTR], capability, capreg));
}

static int
model_find_next_cap(device_t bus __unused, device_t child __unused, int capability, int start,
    int *capreg)
{

	return (model_find(pci.config[start + 1], capability, capreg));
}

static device_method_t model_methods[] = {
	DEVMETHOD(pci_read_config,	model_read_config),
	DEVMETHOD(pci_find_cap,		model_find_cap),
	DEVMETHOD(pci_find_next_cap,	model_find_next_cap),
	DEVMETHOD_END
};

static struct kobj_class model_class = { .name = "pci", .methods = model_methods };

/* What virtio_pci.c and the kernel would be. */
struct resource *
vtpci_map_bar(struct vtpci_softc *sc __unused, int bar)
{

	return (bar == BAR && !pci.no_bar ? &pci.res : NULL);
}

rman_res_t
rman_get_size(const struct resource *r)
{

	CHECK(r == &pci.res, "another resource");
	return (BAR_SIZE);
}

int
pci_add_cap(uint8_t type, uint8_t bar, uint32_t off, uint32_t len, uint8_t cap_len)
{
	uint8_t *c = pci.config + pci.next;
	int at = pci.next;

	pci.config[pci.last] = pci.next;
	pci.last = pci.next + 1;
	c[0] = PCIY_VENDOR;
	c[1] = 0;
	c[VIRTIO_PCI_CAP_LEN] = cap_len;
	c[VIRTIO_PCI_CAP_TYPE] = type;
	c[VIRTIO_PCI_CAP_BAR] = bar;
	memcpy(c + VIRTIO_PCI_CAP_OFFSET, &off, 4);
	memcpy(c + VIRTIO_PCI_CAP_LENGTH, &len, 4);
	pci.next += 20;
	return (at);
}

void
pci_set_multiplier(int cap, uint32_t multiplier)
{

	memcpy(pci.config + cap + VIRTIO_PCI_CAP_MULTIPLIER, &multiplier, 4);
}

void
pci_set_bar_2(int off, uint16_t v)
{

	memcpy(pci.bar + off, &v, 2);
}

void
pci_begin(void)
{

	memset(&pci, 0, sizeof(pci));
	pci.bus = kpi_device_create(NULL, &model_class, NULL, "pci0");
	pci.dev = kpi_device_create(pci.bus, &model_class, &pci.sc, "vtpci0");
	pci.next = 0x40;
	pci.last = PCIR_CAP_PTR;
	pci.bar = host_alloc(BAR_SIZE, 4096);
	memset(pci.bar, 0, BAR_SIZE);
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_NUMQ, 2);
	pci.res.r_bustag = X86_BUS_SPACE_MEM;
	pci.res.r_bushandle = (bus_space_handle_t)pci.bar;
	pci.sc.vtp_bus.vb_dev = pci.dev;
}

void
pci_end(void)
{

	vtpci_modern_detach(&pci.sc);
	host_free(pci.bar);
	kpi_device_destroy(pci.dev);
	kpi_device_destroy(pci.bus);
	CHECK(kpi_mallocs == 0 && kpi_devices == 0, "leak");
}

void
pci_add_all_but(uint8_t type)
{

	if (type != VIRTIO_PCI_CAP_COMMON_CFG)
		(void)pci_add_cap(VIRTIO_PCI_CAP_COMMON_CFG, BAR, COMMON_OFF, 0x38, 16);
	if (type != VIRTIO_PCI_CAP_ISR_CFG)
		(void)pci_add_cap(VIRTIO_PCI_CAP_ISR_CFG, BAR, ISR_OFF, 1, 16);
	if (type != VIRTIO_PCI_CAP_DEVICE_CFG)
		(void)pci_add_cap(VIRTIO_PCI_CAP_DEVICE_CFG, BAR, DEVICE_OFF, 0x3c, 16);
	if (type != VIRTIO_PCI_CAP_NOTIFY_CFG)
		pci_set_multiplier(pci_add_cap(VIRTIO_PCI_CAP_NOTIFY_CFG, BAR, NOTIFY_OFF, 0x1000,
		    20), 4);
}
