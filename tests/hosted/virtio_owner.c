/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A kernel with virtio devices, and the suite as modules (virtio_owner.h).
 */

#include "virtio_owner.h"

#include <sys/kernel.h>
#include <sys/linker_set.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/random.h>
#include <sys/rman.h>
#include <sys/sx.h>

#include <dev/random/randomdev.h>
#include <dev/virtio/virtio_ring.h>

#include <kern/bus_tree.h>

#include "kpi/sched.h"

struct transport {
	struct virtio_bus tr_bus;	/* first */
	struct card	*tr_card;
	struct resource	 tr_irqs[2];
};

struct card cards[CARDS];
struct owner_driver owner_driver;
struct random_source *owner_source;
int owner_root_holds, owner_root_held;
int owner_leaked;
char owner_line[256];
int owner_lines;
static int intrs;
static device_t bus;

/* What the kernel would be. */

struct root_hold_token *
root_mount_hold(const char *who)
{

	CHECK(strcmp(who, "virtio") == 0, "%s", who);
	owner_root_holds++;
	owner_root_held++;
	return ((struct root_hold_token *)&owner_root_holds);
}

void
root_mount_rel(struct root_hold_token *h)
{

	owner_root_holds -= h != NULL;
	CHECK(owner_root_holds >= 0, "released twice");
}

void
random_source_register(struct random_source *rs)
{

	CHECK(owner_source == NULL, "two sources");
	owner_source = rs;
}

void
random_source_deregister(struct random_source *rs)
{

	CHECK(owner_source == rs, "another source");
	owner_source = NULL;
}

int
bus_setup_intr(device_t dev __unused, struct resource *r, int flags, driver_filter_t filter __unused,
    driver_intr_t handler __unused, void *arg __unused, void **cookiep)
{

	CHECK(r != NULL && (flags & INTR_MPSAFE) != 0, "flags 0x%x", flags);
	intrs++;
	*cookiep = r;
	return (0);
}

int
bus_teardown_intr(device_t dev __unused, struct resource *r, void *cookie)
{

	CHECK(r == cookie, "another interrupt");
	intrs--;
	return (0);
}

int
bus_bind_intr(device_t dev __unused, struct resource *r __unused, int cpu __unused)
{

	return (0);
}

int
bus_describe_intr(device_t dev __unused, struct resource *r __unused, void *cookie __unused,
    const char *fmt __unused, ...)
{

	return (0);
}

/* The bus, and its devices. */

static void
vbus_identify(driver_t *driver, device_t parent)
{

	if (device_find_child(parent, driver->name, 0) == NULL)
		(void)BUS_ADD_CHILD(parent, 0, driver->name, 0);
}

static int
vbus_probe(device_t dev __unused)
{

	return (0);
}

static int
vbus_attach(device_t dev)
{
	u_int i;

	for (i = 0; i < CARDS; i++) {
		cards[i].ca_dev = device_add_child(dev, NULL, DEVICE_UNIT_ANY);
		device_set_ivars(cards[i].ca_dev, &cards[i]);
	}
	bus_attach_children(dev);
	return (0);
}

static int
vbus_child_location(device_t dev __unused, device_t child, struct sbuf *sb __unused)
{

	CHECK(device_get_ivars(child) != NULL, "not a device of the bus");
	return (0);
}

static device_method_t vbus_methods[] = {
	DEVMETHOD(device_identify, vbus_identify),
	DEVMETHOD(device_probe, vbus_probe),
	DEVMETHOD(device_attach, vbus_attach),
	DEVMETHOD(bus_driver_added, bus_generic_driver_added),
	DEVMETHOD(bus_child_location, vbus_child_location),
	DEVMETHOD_END
};

static driver_t vbus_driver = { "vbus", vbus_methods, 0 };
DRIVER_MODULE(vbus, root, vbus_driver, NULL, NULL);

/* The kernel's own driver, for each device. */

static int
stock_probe(device_t dev)
{

	device_set_desc(dev, "the kernel's own");
	return (BUS_PROBE_DEFAULT);
}

static int
stock_attach(device_t dev)
{
	const struct card *card = device_get_ivars(dev);

	if (card->ca_stock_has_child) {
		(void)device_add_child(dev, "disk", 0);
		bus_attach_children(dev);
	}
	return (0);
}

static int
stock_detach(device_t dev)
{
	const struct card *card = device_get_ivars(dev);

	return (card->ca_stock_busy != 0 ? card->ca_stock_busy : device_delete_children(dev));
}

static device_method_t stock_methods[] = {
	DEVMETHOD(device_probe, stock_probe),
	DEVMETHOD(device_attach, stock_attach),
	DEVMETHOD(device_detach, stock_detach),
	DEVMETHOD_END
};

static driver_t stock_driver = { "stock", stock_methods, 0 };
DRIVER_MODULE(stock, vbus, stock_driver, NULL, NULL);

static int
disk_attach(device_t dev __unused)
{

	return (0);
}

static device_method_t disk_methods[] = {
	DEVMETHOD(device_probe, vbus_probe),
	DEVMETHOD(device_attach, disk_attach),
	DEVMETHOD(device_detach, disk_attach),
	DEVMETHOD_END
};

static driver_t disk_driver = { "disk", disk_methods, 0 };
DRIVER_MODULE(disk, stock, disk_driver, NULL, NULL);

/* The transport: each device has one queue of 8, and two vectors. */

static struct card *
card_of(device_t dev)
{

	return (((struct transport *)device_get_softc(dev))->tr_card);
}

static void
tr_no_peer(struct card *card)
{

	host_free(card->ca_peer);
	card->ca_peer = NULL;
}

static int
tr_reset(device_t dev)
{
	struct card *card = card_of(dev);

	card->ca_resets++;
	if (card->ca_reset_error != 0)
		return (card->ca_reset_error);
	tr_no_peer(card);
	kpi_dma_arrives();
	card->ca_status = 0;
	return (0);
}

static uint8_t
tr_get_status(device_t dev)
{

	return (card_of(dev)->ca_status);
}

static void
tr_set_status(device_t dev, uint8_t status)
{

	card_of(dev)->ca_status = status;
}

static uint64_t
tr_get_features(device_t dev __unused)
{

	return (VIRTIO_F_VERSION_1 | VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX);
}

static void
tr_set_features(device_t dev __unused, uint64_t features)
{

	CHECK((features & VIRTIO_F_VERSION_1) != 0, "features 0x%lx", features);
}

static uint16_t
tr_queue_size(device_t dev, uint16_t index)
{

	return (index == 0 && !card_of(dev)->ca_no_queue ? 8 : 0);
}

static int
tr_queue_setup(device_t dev, uint16_t index __unused, struct pvq *q)
{

	tr_no_peer(card_of(dev));
	card_of(dev)->ca_peer = split_peer(&split_impls[4], q);
	return (0);
}

static int
tr_alloc_vectors(device_t dev, int n, struct resource **irqs)
{
	struct transport *tr = device_get_softc(dev);
	int i;

	if (n > (int)nitems(tr->tr_irqs))
		return (ENXIO);
	for (i = 0; i < n; i++)
		irqs[i] = &tr->tr_irqs[i];
	return (0);
}

static void
tr_free_vectors(device_t dev __unused, int n, struct resource **irqs)
{

	CHECK(n > 0 && irqs[0] != NULL, "%d vectors", n);
}

static int
tr_set_vector(device_t dev __unused, int index __unused, int vector)
{

	CHECK(vector < 2, "vector %d", vector);
	return (0);
}

static void
tr_notify(void *arg, uint16_t index __unused, uint16_t next __unused)
{
	struct transport *tr = arg;

	if (tr->tr_bus.vb_live)
		tr->tr_card->ca_kicks++;
}

static uint32_t
tr_type(device_t dev)
{

	return (((struct card *)device_get_ivars(dev))->ca_type);
}

static void
tr_name(device_t dev, char *name, size_t size)
{

	strlcpy(name, ((struct card *)device_get_ivars(dev))->ca_name, size);
}

static struct virtio_transport transport;

static int
tr_probe(device_t dev)
{
	uint32_t type = tr_type(dev);

	return (type == 0 ? ENXIO : virtio_bus_probe(&transport, dev, type));
}

static int
tr_attach(device_t dev)
{
	struct transport *tr = device_get_softc(dev);
	struct virtio_bus *vb = &tr->tr_bus;
	int error;

	tr->tr_card = device_get_ivars(dev);
	vb->vb_dev = dev;
	vb->vb_type = tr->tr_card->ca_type;
	vb->vb_modern = true;
	vb->vb_ring_align = VRING_USED_ALIGN;
	vb->vb_dmat = kpi_dma_tag;
	vb->vb_notify = tr_notify;
	vb->vb_notify_arg = tr;
	error = virtio_bus_attach(vb);
	tr->tr_card->ca_child = vb->vb_child;
	while (tr->tr_card->ca_slow)
		(void)pause("slow", 1);
	return (error);
}

static int
tr_detach(device_t dev)
{

	return (virtio_bus_detach(device_get_softc(dev)));
}

static device_method_t tr_methods[] = {
	DEVMETHOD(device_probe,		tr_probe),
	DEVMETHOD(device_attach,	tr_attach),
	DEVMETHOD(device_detach,	tr_detach),

	DEVMETHOD(virtio_bus_reset,	tr_reset),
	DEVMETHOD(virtio_bus_get_status, tr_get_status),
	DEVMETHOD(virtio_bus_set_status, tr_set_status),
	DEVMETHOD(virtio_bus_get_features, tr_get_features),
	DEVMETHOD(virtio_bus_set_features, tr_set_features),
	DEVMETHOD(virtio_bus_queue_size, tr_queue_size),
	DEVMETHOD(virtio_bus_queue_setup, tr_queue_setup),
	DEVMETHOD(virtio_bus_alloc_vectors, tr_alloc_vectors),
	DEVMETHOD(virtio_bus_free_vectors, tr_free_vectors),
	DEVMETHOD(virtio_bus_set_vector, tr_set_vector),
	DEVMETHOD_END
};

DEFINE_CLASS_1(vtpci, vtpci_driver, tr_methods, sizeof(struct transport), virtio_bus_driver);

static struct virtio_transport transport = {
	.vt_module = { .dmd_busname = "vbus", .dmd_driver = &vtpci_driver,
	    .dmd_pass = BUS_PASS_DEFAULT },
	.vt_kind = "PCI",
	.vt_type = tr_type,
	.vt_name = tr_name,
};
VIRTIO_TRANSPORT_MODULE(vtpci, vbus, transport);

/* A driver of the suite. */

static int
blk_attach(device_t dev)
{

	owner_driver.od_attaches++;
	while (owner_driver.od_waits)
		(void)pause("attach", 1);
	if (owner_driver.od_attach_error != 0 && owner_driver.od_why != NULL)
		virtio_refuse(dev, "%s", owner_driver.od_why);
	return (owner_driver.od_attach_error);
}

static int
blk_detach(device_t dev)
{

	return (owner_driver.od_detach_error != 0 ? owner_driver.od_detach_error : virtio_leave(dev));
}

static device_method_t blk_methods[] = {
	DEVMETHOD(device_probe,		virtio_probe),
	DEVMETHOD(device_attach,	blk_attach),
	DEVMETHOD(device_detach,	blk_detach),
	DEVMETHOD_END
};

static driver_t blk_driver = { "vtblk", blk_methods, 0 };
VIRTIO_DRIVER_MODULE(virtio_blk, blk_driver, VIRTIO_ID_BLOCK, "VirtIO disk");

/* What a test does. */

static void
said(const char *line)
{

	if (strstr(line, ": <") != NULL || strncmp(line, " on ", 4) == 0 ||
	    strstr(line, ": detached\n") != NULL || strncmp(line, "device_attach: ", 15) == 0)
		return;
	owner_lines++;
	strlcpy(owner_line, line, sizeof(owner_line));
}

void
owner_load(const char *module)
{

	CHECK(kpi_module_event(module, MOD_LOAD) == 0, "%s", module);
	kpi_settle();
}

void
owner_unload(const char *module)
{
	int error = kpi_module_event(module, MOD_UNLOAD);

	CHECK(error == 0, "%s: error %d", module, error);
	kpi_settle();
}

void
owner_load_all(void)
{

	owner_load("pv_virtio");
	owner_load("vbus/vtpci");
	owner_load("virtio/virtio_random");
	owner_load("virtio/virtio_blk");
}

void
owner_boot(void)
{
	static const struct card all[CARDS] = {
		{ .ca_name = "pci0:0:3:0", .ca_type = VIRTIO_ID_ENTROPY },
		{ .ca_name = "pci0:0:4:0", .ca_type = VIRTIO_ID_BLOCK },
		{ .ca_name = "pci0:0:5:0", .ca_type = VIRTIO_ID_CONSOLE },
		{ .ca_name = "pci0:0:6:0", .ca_type = 0 },
	};

	kpi_quiet = true;
	kpi_said = said;
	memcpy(cards, all, sizeof(cards));
	kpi_sysinits();
	owner_load("rootbus");
	owner_load("vbus/stock");
	owner_load("stock/disk");
	owner_load("root/vbus");
	root_bus_configure();
	bus = devclass_get_device(devclass_find("vbus"), 0);
	CHECK(bus != NULL && device_is_attached(bus), "no bus");
}

const char *
owner_of(const struct card *card)
{
	static char who[64];
	device_t *children;
	int i, n;

	if (!device_is_attached(card->ca_dev))
		return ("none");
	strlcpy(who, device_get_name(card->ca_dev), sizeof(who));
	if (device_get_children(card->ca_dev, &children, &n) == 0) {
		for (i = 0; i < n; i++)
			if (device_is_attached(children[i]))
				snprintf(who, sizeof(who), "%s on %s",
				    device_get_name(children[i]),
				    device_get_name(card->ca_dev));
		free(children, M_TEMP);
	}
	return (who);
}

int
owner_set_driver(const struct card *card, const char *driver)
{
	int error = kpi_set_driver(card->ca_dev, driver);

	kpi_settle();
	return (error);
}

void
owner_end(void)
{
	static const char *const modules[] = { "virtio/virtio_blk", "virtio/virtio_random",
	    "vbus/vtpci", "pv_virtio" };
	u_int i;
	int error;

	for (i = 0; i < nitems(modules); i++) {
		error = kpi_module_event(modules[i], MOD_UNLOAD);
		CHECK(error == 0, "%s does not go: error %d", modules[i], error);
	}
	for (i = 0; i < CARDS; i++) {
		CHECK(strstr(owner_of(&cards[i]), "stock") != NULL, "card %u: %s", i,
		    owner_of(&cards[i]));
		tr_no_peer(&cards[i]);
	}
	CHECK(owner_root_holds == 0 && intrs == 0 && owner_source == NULL, "%d holds, %d interrupts",
	    owner_root_holds, intrs);
	CHECK(kpi_mallocs_of_type == 0, "%d refusals are left", kpi_mallocs_of_type);
	CHECK(kpi_callouts == 0, "%d callouts are left", kpi_callouts);
	CHECK(kpi_dma_maps == owner_leaked && kpi_dma_tags == owner_leaked, "%d maps, %d tags",
	    kpi_dma_maps, kpi_dma_tags);
	CHECK(kpi_kthreads_left() == 1, "%d threads, and not only the kernel's", kpi_kthreads_left());
}

SET_DECLARE(sysinit_set, struct sysinit);

/* What is kept of refusals is counted. */
static struct malloc_type *
refusals(void)
{
	struct malloc_type *type;
	struct sysinit **si;

	SET_FOREACH(si, sysinit_set) {
		type = __DECONST(void *, (*si)->udata);
		if ((*si)->func == (sysinit_cfunc_t)malloc_init &&
		    strcmp(type->ks_shortdesc, "virtio_refused") == 0)
			return (type);
	}
	CHECK(false, "no such type of memory");
	return (NULL);
}

static void
threads_of(const void *body)
{

	kpi_type = refusals();
	owner_boot();
	((void (*)(void))(uintptr_t)body)();
	owner_end();
}

void
owner_run(const void *body)
{

	kpi_threads(threads_of, body);
}
