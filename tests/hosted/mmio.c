/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Registers of virtio over MMIO that are not what they should be.
 *
 * The model is a window of plain memory, behind which ASan stands guard: what is written there does
 * nothing, so that an interrupt's cause stays when it is acknowledged.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/rman.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/mmio/virtio_mmio.h>

#include "host/host.h"
#include "kpi/kpi.h"

#define	WINDOW_SIZE	0x200
#define	QUEUE_SIZE	8
#define	MANY		1000

static struct {
	device_t	 dev;
	uint8_t		*window;
	size_t		 size;
	bool		 absent;
	struct resource	 res;
	int		 mapped;
	struct vtmmio_softc sc;
} mm;

/* What the kernel would be. */
struct resource *
bus_alloc_resource(device_t dev, int type, int *rid, rman_res_t start __unused,
    rman_res_t end __unused, rman_res_t count __unused, u_int flags)
{

	CHECK(dev == mm.dev && type == SYS_RES_MEMORY && *rid == 0 && (flags & RF_ACTIVE) != 0,
	    "resource %d", type);
	if (mm.absent)
		return (NULL);
	mm.mapped++;
	return (&mm.res);
}

int
bus_release_resource_old(device_t dev __unused, int type __unused, int rid __unused,
    struct resource *r)
{

	CHECK(r == &mm.res && mm.mapped == 1, "not mapped");
	mm.mapped--;
	return (0);
}

rman_res_t
rman_get_size(const struct resource *r)
{

	CHECK(r == &mm.res, "another resource");
	return (mm.size);
}

/* No tunable names it. */
rman_res_t
rman_get_start(const struct resource *r __unused)
{

	return (0xfeb00000);
}

int
rman_get_rid(const struct resource *r __unused)
{

	return (0);
}

rman_res_t
bus_get_resource_start(device_t dev __unused, int type __unused, int rid __unused)
{

	return (0);
}

int
bus_generic_shutdown(device_t dev __unused)
{

	return (0);
}

static void
set(bus_size_t reg, uint32_t value)
{

	memcpy(mm.window + reg, &value, sizeof(value));
}

static uint32_t
get(bus_size_t reg)
{
	uint32_t value;

	memcpy(&value, mm.window + reg, sizeof(value));
	return (value);
}

/* A device of a version, mapped as attach does it. */
static void
begin(uint32_t version)
{

	memset(&mm, 0, sizeof(mm));
	mm.dev = kpi_device_create(NULL, &vtmmio_driver, &mm.sc, "vtmmio0");
	mm.size = WINDOW_SIZE;
	mm.window = host_alloc(WINDOW_SIZE, 4096);
	memset(mm.window, 0, WINDOW_SIZE);
	set(VIRTIO_MMIO_MAGIC_VALUE, VIRTIO_MMIO_MAGIC);
	set(VIRTIO_MMIO_VERSION, version);
	set(VIRTIO_MMIO_DEVICE_ID, VIRTIO_ID_BLOCK);
	set(VIRTIO_MMIO_QUEUE_NUM_MAX, QUEUE_SIZE);
	mm.res.r_bustag = X86_BUS_SPACE_MEM;
	mm.res.r_bushandle = (bus_space_handle_t)mm.window;
	mm.sc.vm_bus.vb_dev = mm.dev;
	mm.sc.vm_regs = &mm.res;
	mm.sc.vm_version = version;
	kpi_lines = 0;
}

static void
end(void)
{

	host_free(mm.window);
	kpi_device_destroy(mm.dev);
	CHECK(kpi_mallocs == 0 && kpi_devices == 0 && mm.mapped == 0, "leak");
}

/* What probe says: with a message, or without one. */
static void
probes(int expected, int lines)
{
	int result;

	mm.sc.vm_regs = NULL;
	kpi_lines = 0;
	result = vtmmio_probe(NULL, mm.dev);
	CHECK(result == expected && (int)kpi_lines == lines, "%d, %d lines", result,
	    (int)kpi_lines);
}

static void
good_device_is_found(const void *arg __unused)
{

	begin(VIRTIO_MMIO_MODERN);
	probes(BUS_PROBE_VENDOR, 0);
	CHECK(vtmmio_type(mm.dev) == VIRTIO_ID_BLOCK, "type");
	set(VIRTIO_MMIO_VERSION, VIRTIO_MMIO_LEGACY);
	probes(BUS_PROBE_VENDOR, 0);
	end();
}

static void
what_is_no_device_is_refused(const void *arg __unused)
{
	static const uint32_t magics[] = { 0, UINT32_MAX, VIRTIO_MMIO_MAGIC + 1, 0x76697274 };
	static const uint32_t versions[] = { 0, 3, 0x0200, UINT32_MAX };
	size_t i;

	begin(VIRTIO_MMIO_MODERN);
	for (i = 0; i < nitems(magics); i++) {
		set(VIRTIO_MMIO_MAGIC_VALUE, magics[i]);
		probes(ENXIO, 1);
	}
	set(VIRTIO_MMIO_MAGIC_VALUE, VIRTIO_MMIO_MAGIC);
	for (i = 0; i < nitems(versions); i++) {
		set(VIRTIO_MMIO_VERSION, versions[i]);
		probes(ENXIO, 1);
	}
	/* A place for a device, and none in it: nothing to be said. */
	set(VIRTIO_MMIO_VERSION, VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_DEVICE_ID, 0);
	probes(ENXIO, 0);
	set(VIRTIO_MMIO_DEVICE_ID, VIRTIO_ID_BLOCK);
	mm.size = VIRTIO_MMIO_CONFIG - 1;
	probes(ENXIO, 1);
	mm.absent = true;
	probes(ENXIO, 1);
	end();
}

static void
no_notify(void *arg __unused, uint16_t index __unused, uint16_t next __unused)
{
}

static struct pvq *
queue(void)
{
	struct virtqueue_params params = {
		.vqp_dev = kpi_device(), .vqp_name = "q", .vqp_dmat = kpi_dma_tag,
		.vqp_size = QUEUE_SIZE, .vqp_features = VIRTIO_F_VERSION_1, .vqp_max_segs = 1,
		.vqp_align = VRING_LEGACY_ALIGN, .vqp_notify = no_notify,
	};
	struct pvq *q;

	CHECK(virtqueue_create(&params, &q) == 0, "create");
	return (q);
}

/* A device that does not enable a queue. */
static void
takes_no_queue(uintptr_t addr, int size __unused, bool store)
{

	if (!store && (addr == (uintptr_t)mm.window + VIRTIO_MMIO_QUEUE_READY ||
	    addr == (uintptr_t)mm.window + VIRTIO_MMIO_QUEUE_PFN))
		memset((void *)addr, 0, 4);
}

static void
modern_queue_has_addresses(const void *arg __unused)
{
	struct virtqueue_addrs addrs;
	struct pvq *q;
	uint64_t v;

	begin(VIRTIO_MMIO_MODERN);
	q = queue();
	virtqueue_addrs(q, &addrs);
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 3, q) == 0, "refused");
	CHECK(get(VIRTIO_MMIO_QUEUE_SEL) == 3 && get(VIRTIO_MMIO_QUEUE_NUM) == QUEUE_SIZE &&
	    get(VIRTIO_MMIO_QUEUE_READY) == 1 && get(VIRTIO_MMIO_QUEUE_PFN) == 0, "registers");
	memcpy(&v, mm.window + VIRTIO_MMIO_QUEUE_DESC_LOW, sizeof(v));
	CHECK(v == addrs.vqa_desc, "descriptors at 0x%lx", v);
	memcpy(&v, mm.window + VIRTIO_MMIO_QUEUE_AVAIL_LOW, sizeof(v));
	CHECK(v == addrs.vqa_driver, "driver area at 0x%lx", v);
	memcpy(&v, mm.window + VIRTIO_MMIO_QUEUE_USED_LOW, sizeof(v));
	CHECK(v == addrs.vqa_device, "device area at 0x%lx", v);
	/* A device that has come to allow less. */
	set(VIRTIO_MMIO_QUEUE_NUM_MAX, QUEUE_SIZE / 2);
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 3, q) == ENXIO, "too large");
	set(VIRTIO_MMIO_QUEUE_NUM_MAX, UINT32_MAX);
	CHECK(VIRTIO_BUS_QUEUE_SIZE(mm.dev, 3) == UINT16_MAX, "size");
	set(VIRTIO_MMIO_QUEUE_NUM_MAX, QUEUE_SIZE + 1);
	CHECK(VIRTIO_BUS_QUEUE_SIZE(mm.dev, 4) == QUEUE_SIZE + 1 &&
	    get(VIRTIO_MMIO_QUEUE_SEL) == 4, "size");
	kpi_access_at = takes_no_queue;
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 3, q) == ENXIO, "not enabled");
	kpi_access_at = NULL;
	pvq_free(q);
	end();
}

static void
legacy_queue_has_a_page_number(const void *arg __unused)
{
	struct virtqueue_addrs addrs;
	struct pvq *q;

	begin(VIRTIO_MMIO_LEGACY);
	q = queue();
	virtqueue_addrs(q, &addrs);
	CHECK(VIRTIO_BUS_RESET(mm.dev) == 0, "reset");
	CHECK(get(VIRTIO_MMIO_GUEST_PAGE_SIZE) == PAGE_SIZE, "page size");
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 1, q) == 0, "refused");
	CHECK(get(VIRTIO_MMIO_QUEUE_ALIGN) == VRING_LEGACY_ALIGN &&
	    get(VIRTIO_MMIO_QUEUE_PFN) == (uint32_t)(addrs.vqa_desc >> PAGE_SHIFT) &&
	    get(VIRTIO_MMIO_QUEUE_SEL) == 1 && get(VIRTIO_MMIO_QUEUE_NUM) == QUEUE_SIZE &&
	    get(VIRTIO_MMIO_QUEUE_READY) == 0, "registers");
	kpi_access_at = takes_no_queue;
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 1, q) == ENXIO, "not enabled");
	kpi_access_at = NULL;
	pvq_free(q);
	end();
}

static void
stuck_interrupt_resets_the_device(const void *arg __unused)
{
	int i;

	begin(VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_STATUS, VIRTIO_STATUS_DRIVER_OK);
	CHECK(VIRTIO_BUS_ISR(mm.dev) == 0, "no cause");
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
	CHECK(VIRTIO_BUS_ISR(mm.dev) == VIRTIO_ISR_QUEUE &&
	    get(VIRTIO_MMIO_INTERRUPT_ACK) == VIRTIO_ISR_QUEUE, "acknowledged");
	CHECK(kpi_lines == 0 && get(VIRTIO_MMIO_STATUS) == VIRTIO_STATUS_DRIVER_OK, "too early");
	for (i = 0; i < MANY; i++)
		(void)VIRTIO_BUS_ISR(mm.dev);
	CHECK(mm.sc.vm_storms == 1 && kpi_lines == 1, "%ju storms, %d lines",
	    (uintmax_t)mm.sc.vm_storms, (int)kpi_lines);
	CHECK(get(VIRTIO_MMIO_STATUS) == VIRTIO_STATUS_RESET, "not reset");
	CHECK((VIRTIO_BUS_GET_STATUS(mm.dev) & VIRTIO_STATUS_NEEDS_RESET) != 0,
	    "the driver is not asked to begin again");
	CHECK(VIRTIO_BUS_RESET(mm.dev) == 0, "reset");
	CHECK((VIRTIO_BUS_GET_STATUS(mm.dev) & VIRTIO_STATUS_NEEDS_RESET) == 0, "begun again");
	end();
}

/* What the device does beside the driver: each cause that is acknowledged is followed by another. */
static void
next_cause(void)
{
	uint32_t ack = get(VIRTIO_MMIO_INTERRUPT_ACK);

	if (ack == 0)
		return;
	set(VIRTIO_MMIO_INTERRUPT_ACK, 0);
	set(VIRTIO_MMIO_INTERRUPT_STATUS, ack == VIRTIO_ISR_CONFIG ? VIRTIO_ISR_QUEUE : 0);
}

static void
every_cause_is_handled(const void *arg __unused)
{
	uint8_t isr;

	begin(VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_CONFIG);
	kpi_access_hook = next_cause;
	isr = VIRTIO_BUS_ISR(mm.dev);
	kpi_access_hook = NULL;
	CHECK(isr == (VIRTIO_ISR_CONFIG | VIRTIO_ISR_QUEUE), "causes 0x%x", isr);
	CHECK(get(VIRTIO_MMIO_INTERRUPT_STATUS) == 0, "one is left");
	end();
}

static uint32_t selected, written[2];
static u_int nwritten;

static void
halves(uintptr_t addr, int size __unused, bool store)
{
	bus_size_t reg = addr - (uintptr_t)mm.window;

	/* The access before this one is done now. */
	if (nwritten > 0 && nwritten % 2 == 1)
		written[selected] = get(VIRTIO_MMIO_DRIVER_FEATURES);
	nwritten += nwritten % 2;
	if (!store && reg == VIRTIO_MMIO_DEVICE_FEATURES)
		set(VIRTIO_MMIO_DEVICE_FEATURES,
		    get(VIRTIO_MMIO_DEVICE_FEATURES_SEL) == 0 ? 0x1111 : 0x22a2);
	if (store && reg == VIRTIO_MMIO_DRIVER_FEATURES) {
		selected = get(VIRTIO_MMIO_DRIVER_FEATURES_SEL);
		nwritten++;
	}
}

/* Which half it is, is selected before. */
static void
features_are_two_halves(const void *arg __unused)
{
	uint64_t got;

	begin(VIRTIO_MMIO_MODERN);
	kpi_access_at = halves;
	got = VIRTIO_BUS_GET_FEATURES(mm.dev);
	VIRTIO_BUS_SET_FEATURES(mm.dev, 0x4444000033330000 + 7);
	(void)VIRTIO_BUS_GET_FEATURES(mm.dev);
	kpi_access_at = NULL;
	CHECK(got == 0x222200001111, "0x%lx", got);
	CHECK(written[0] == 0x33330007 && written[1] == 0x44440000, "0x%x, 0x%x", written[0],
	    written[1]);
	end();
	/* A legacy device has one; what its register has for the other is not read. */
	begin(VIRTIO_MMIO_LEGACY);
	kpi_access_at = halves;
	got = VIRTIO_BUS_GET_FEATURES(mm.dev);
	kpi_access_at = NULL;
	CHECK(got == 0x1111, "0x%lx", got);
	set(VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	VIRTIO_BUS_SET_FEATURES(mm.dev, 0x4444000033330000 + 7);
	CHECK(get(VIRTIO_MMIO_DRIVER_FEATURES_SEL) == 0 &&
	    get(VIRTIO_MMIO_DRIVER_FEATURES) == 0x33330007, "0x%x",
	    get(VIRTIO_MMIO_DRIVER_FEATURES));
	end();
}

/* Each value at its place, and nothing else is written. */
static void
configuration_is_behind_the_registers(const void *arg __unused)
{
	static const int widths[] = { 1, 2, 4 };
	uint8_t before[WINDOW_SIZE];
	uint32_t mask, value;
	bus_size_t off;
	size_t i;

	begin(VIRTIO_MMIO_MODERN);
	CHECK(VIRTIO_BUS_CONFIG_SIZE(mm.dev) == WINDOW_SIZE - VIRTIO_MMIO_CONFIG, "size");
	for (i = 0; i < WINDOW_SIZE; i++)
		mm.window[i] = i * 7 + i / 256;
	for (i = 0; i < nitems(widths); i++) {
		mask = UINT32_MAX >> (32 - 8 * widths[i]);
		for (off = 0; off < WINDOW_SIZE - VIRTIO_MMIO_CONFIG; off += 60) {
			memcpy(before, mm.window, WINDOW_SIZE);
			memcpy(&value, before + VIRTIO_MMIO_CONFIG + off, 4);
			CHECK(VIRTIO_BUS_READ_CONFIG(mm.dev, off, widths[i]) == (value & mask),
			    "%d bytes at %lu", widths[i], off);
			value = 0x81828384 + off;
			memcpy(before + VIRTIO_MMIO_CONFIG + off, &value, widths[i]);
			VIRTIO_BUS_WRITE_CONFIG(mm.dev, off, value, widths[i]);
			CHECK(memcmp(before, mm.window, WINDOW_SIZE) == 0, "%d bytes at %lu", widths[i],
			    off);
		}
	}
	set(VIRTIO_MMIO_CONFIG_GENERATION, 0x12345678);
	CHECK(VIRTIO_BUS_CONFIG_GEN(mm.dev) == 0x12345678, "generation");
	mm.sc.vm_version = VIRTIO_MMIO_LEGACY;
	CHECK(VIRTIO_BUS_CONFIG_GEN(mm.dev) == 0, "a legacy device's generation");
	end();
}

/* A device that is not live is not notified; its place in the ring is told where that was agreed. */
static void
notification_is_of_its_queue(const void *arg __unused)
{

	begin(VIRTIO_MMIO_MODERN);
	/* What attach does before it looks for registers. */
	mm.sc.vm_regs = NULL;
	mm.absent = true;
	CHECK(DEVICE_ATTACH(mm.dev) == ENXIO, "attached");
	mm.sc.vm_regs = &mm.res;
	set(VIRTIO_MMIO_QUEUE_NOTIFY, 99);
	mm.sc.vm_bus.vb_notify(mm.sc.vm_bus.vb_notify_arg, 5, 0x8001);
	CHECK(get(VIRTIO_MMIO_QUEUE_NOTIFY) == 99, "not live");
	mm.sc.vm_bus.vb_live = true;
	mm.sc.vm_bus.vb_notify(mm.sc.vm_bus.vb_notify_arg, 5, 0x8001);
	CHECK(get(VIRTIO_MMIO_QUEUE_NOTIFY) == 5, "0x%x", get(VIRTIO_MMIO_QUEUE_NOTIFY));
	mm.sc.vm_bus.vb_features = VIRTIO_F_NOTIFICATION_DATA;
	mm.sc.vm_bus.vb_notify(mm.sc.vm_bus.vb_notify_arg, 5, 0x8001);
	CHECK(get(VIRTIO_MMIO_QUEUE_NOTIFY) == 0x80010005, "0x%x", get(VIRTIO_MMIO_QUEUE_NOTIFY));
	end();
}

static void
there_are_no_vectors(const void *arg __unused)
{
	struct resource *irq = NULL;

	begin(VIRTIO_MMIO_MODERN);
	CHECK(VIRTIO_BUS_ALLOC_VECTORS(mm.dev, 1, &irq) == ENXIO && irq == NULL, "a vector");
	CHECK(VIRTIO_BUS_SET_VECTOR(mm.dev, 0, -1) == 0 &&
	    VIRTIO_BUS_SET_VECTOR(mm.dev, 0, 0) == ENXIO, "set");
	end();
}

/* Which devices QEMU's are, and whose type is told: of what is here, has a driver not, and is known. */
static void
type_is_told(const void *arg __unused)
{

	begin(VIRTIO_MMIO_MODERN);
	probes(BUS_PROBE_VENDOR, 0);
	CHECK(!mm.sc.vm_bus.vb_qemu && mm.sc.vm_bus.vb_type == VIRTIO_ID_BLOCK, "QEMU's");
	set(VIRTIO_MMIO_VENDOR_ID, VIRTIO_MMIO_VENDOR_QEMU);
	probes(BUS_PROBE_VENDOR, 0);
	CHECK(mm.sc.vm_bus.vb_qemu && mm.sc.vm_bus.vb_vendor == VIRTIO_MMIO_VENDOR_QEMU, "not QEMU's");
	set(VIRTIO_MMIO_VERSION, VIRTIO_MMIO_LEGACY);
	CHECK(vtmmio_type(mm.dev) == VIRTIO_ID_BLOCK, "a legacy device");
	/* The registers without a configuration are enough. */
	mm.size = VIRTIO_MMIO_CONFIG;
	probes(BUS_PROBE_VENDOR, 0);
	CHECK(vtmmio_type(mm.dev) == VIRTIO_ID_BLOCK, "without a configuration");
	mm.size--;
	CHECK(vtmmio_type(mm.dev) == 0, "too few registers");
	mm.absent = true;
	CHECK(vtmmio_type(mm.dev) == 0, "no registers");
	kpi_device_state(mm.dev, DS_ATTACHED);
	CHECK(vtmmio_type(mm.dev) == UINT32_MAX, "one that is in use");
	kpi_device_state(mm.dev, DS_NOTPRESENT);
	end();
}

static u_int acks;

static void
counts_acks(uintptr_t addr, int size __unused, bool store)
{

	acks += store && addr == (uintptr_t)mm.window + VIRTIO_MMIO_INTERRUPT_ACK;
}

static bool acknowledged;

/* A device that can acknowledge, or can't for now. */
static void
lowers(uintptr_t addr, int size __unused, bool store)
{

	if (store && addr == (uintptr_t)mm.window + VIRTIO_MMIO_INTERRUPT_ACK)
		acknowledged = true;
	else if (acknowledged)
		set(VIRTIO_MMIO_INTERRUPT_STATUS, 0);
}

/* How many interrupts in a row, of eight causes each, are a storm, and how many more the end. */
static void
storm_is_of_so_many(const void *arg __unused)
{
	int i;

	begin(VIRTIO_MMIO_MODERN);
	/* None that was acknowledged is one of them. */
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
	kpi_access_at = lowers;
	CHECK(VIRTIO_BUS_ISR(mm.dev) == VIRTIO_ISR_QUEUE, "not acknowledged");
	kpi_access_at = NULL;
	acknowledged = false;
	set(VIRTIO_MMIO_STATUS, VIRTIO_STATUS_DRIVER_OK);
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_CONFIG | 4);
	for (i = 1; i <= 64 + 1 + 1024; i++) {
		uint8_t expected = i <= 64 + 1024 ? VIRTIO_ISR_CONFIG : VIRTIO_ISR_CONFIG |
		    VIRTIO_ISR_DEAD, isr;

		acks = 0;
		kpi_access_at = counts_acks;
		isr = VIRTIO_BUS_ISR(mm.dev);
		kpi_access_at = NULL;
		CHECK(isr == expected && acks == 8, "%d: 0x%x after %u acknowledgements", i, isr, acks);
		CHECK((int)mm.sc.vm_storms == (i > 64) + (i > 64 + 1024) &&
		    kpi_lines == (int)mm.sc.vm_storms, "%d: %ju storms", i,
		    (uintmax_t)mm.sc.vm_storms);
		CHECK((get(VIRTIO_MMIO_STATUS) == 0) == (i > 64), "%d: status", i);
		if (i == 65)
			CHECK(strstr(kpi_line, "interrupt status 0x2 ") != NULL, "%s", kpi_line);
	}
	CHECK(strstr(kpi_line, "interrupt status 0x2 ") != NULL, "%s", kpi_line);
	CHECK(VIRTIO_BUS_ISR(mm.dev) == VIRTIO_ISR_DEAD, "the handler is not to be removed");
	end();
}

/* Causes that stay are a storm when many come in a row, with none that was acknowledged in between. */
static void
seldom_stuck_is_no_storm(const void *arg __unused)
{
	u_int i;

	begin(VIRTIO_MMIO_MODERN);
	for (i = 0; i < MANY; i++) {
		set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
		CHECK(VIRTIO_BUS_ISR(mm.dev) == VIRTIO_ISR_QUEUE, "%u", i);
		acknowledged = false;
		kpi_access_at = lowers;
		CHECK(VIRTIO_BUS_ISR(mm.dev) == VIRTIO_ISR_QUEUE, "%u", i);
		kpi_access_at = NULL;
	}
	CHECK(mm.sc.vm_storms == 0, "a storm");
	/* An interrupt of another device says nothing of this one. */
	for (i = 0; i < MANY && mm.sc.vm_storms == 0; i++) {
		set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
		(void)VIRTIO_BUS_ISR(mm.dev);
		set(VIRTIO_MMIO_INTERRUPT_STATUS, 0);
		(void)VIRTIO_BUS_ISR(mm.dev);
	}
	CHECK(mm.sc.vm_storms == 1, "no storm");
	end();
}

/* Whoever sees that a device was reset may begin with it. */
static void
is_reset(uintptr_t addr, int size __unused, bool store)
{

	if (store && addr == (uintptr_t)mm.window + VIRTIO_MMIO_STATUS)
		CHECK(!mm.sc.vm_broken, "it is said to be reset before it is");
}

/* As many interrupts as a line has that nothing lowers; how often the handler was to be removed. */
static int
removals(int interrupts)
{
	int dead = 0;

	while (interrupts-- > 0)
		dead += (VIRTIO_BUS_ISR(mm.dev) & VIRTIO_ISR_DEAD) != 0;
	return (dead);
}

/* The reset does not lower the line, with the cause or without it. */
static void
line_that_a_reset_does_not_lower(const void *arg)
{
	int lines;

	begin(VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
	CHECK(removals(MANY) == 0 && mm.sc.vm_storms == 1, "%ju storms",
	    (uintmax_t)mm.sc.vm_storms);
	if (arg == NULL) {
		set(VIRTIO_MMIO_INTERRUPT_STATUS, 0);
		CHECK(VIRTIO_BUS_ISR(mm.dev) == 0, "a cause");
	}
	CHECK(removals(MANY) > 0, "for ever");
	lines = kpi_lines;
	CHECK(removals(MANY) == MANY, "the handler may be still there");
	CHECK(lines == 2 && (int)kpi_lines == 2, "%d, %d lines", lines, (int)kpi_lines);
	CHECK(VIRTIO_BUS_RESET(mm.dev) == EIO && get(VIRTIO_MMIO_STATUS) == 0, "in use again");
	CHECK((VIRTIO_BUS_GET_STATUS(mm.dev) & VIRTIO_STATUS_NEEDS_RESET) != 0,
	    "NEEDS_RESET is not reported");
	end();
}

/* The driver has begun again, and no interrupt was acknowledged since. */
static void
second_storm_is_the_last(const void *arg __unused)
{

	begin(VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
	kpi_access_at = is_reset;
	CHECK(removals(MANY) == 0, "too early");
	kpi_access_at = NULL;
	CHECK(VIRTIO_BUS_RESET(mm.dev) == 0, "reset");
	CHECK(removals(MANY) > 0 && mm.sc.vm_storms == 2 && kpi_lines == 2, "%ju storms",
	    (uintmax_t)mm.sc.vm_storms);
	CHECK(VIRTIO_BUS_RESET(mm.dev) == EIO, "in use again");
	end();
}

/* Where one is acknowledged in between, there may be any number; ten are said. */
static void
storms_are_said_ten_times(const void *arg __unused)
{
	int i;

	begin(VIRTIO_MMIO_MODERN);
	kpi_quiet = true;
	for (i = 1; i <= 12; i++) {
		set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
		CHECK(removals(MANY) == 0 && (int)mm.sc.vm_storms == i && kpi_lines == MIN(i, 10),
		    "%d: %ju storms, %d lines", i, (uintmax_t)mm.sc.vm_storms, kpi_lines);
		CHECK(VIRTIO_BUS_RESET(mm.dev) == 0, "reset");
		acknowledged = false;
		kpi_access_at = lowers;
		CHECK(VIRTIO_BUS_ISR(mm.dev) == VIRTIO_ISR_QUEUE, "%d: not acknowledged", i);
		kpi_access_at = NULL;
	}
	end();
}

/*
 * The rules of the registers (4.2.2), checked at each access: an R is read, a W written, of 32 bits.
 * A queue's registers are those of the queue selected, of which one is ready at most.
 */
static const struct {
	bus_size_t	 reg;
	const char	*access;
	bool		 of_queue;	/* not while the queue is ready (4.2.2.2) */
} registers[] = {
	{ VIRTIO_MMIO_MAGIC_VALUE, "R", false },
	{ VIRTIO_MMIO_VERSION, "R", false },
	{ VIRTIO_MMIO_DEVICE_ID, "R", false },
	{ VIRTIO_MMIO_VENDOR_ID, "R", false },
	{ VIRTIO_MMIO_DEVICE_FEATURES, "R", false },
	{ VIRTIO_MMIO_DEVICE_FEATURES_SEL, "W", false },
	{ VIRTIO_MMIO_DRIVER_FEATURES, "W", false },
	{ VIRTIO_MMIO_DRIVER_FEATURES_SEL, "W", false },
	{ VIRTIO_MMIO_QUEUE_SEL, "W", false },
	{ VIRTIO_MMIO_QUEUE_NUM_MAX, "R", false },
	{ VIRTIO_MMIO_QUEUE_NUM, "W", true },
	{ VIRTIO_MMIO_QUEUE_READY, "RW", false },
	{ VIRTIO_MMIO_QUEUE_NOTIFY, "W", false },
	{ VIRTIO_MMIO_INTERRUPT_STATUS, "R", false },
	{ VIRTIO_MMIO_INTERRUPT_ACK, "W", false },
	{ VIRTIO_MMIO_STATUS, "RW", false },
	{ VIRTIO_MMIO_QUEUE_DESC_LOW, "W", true },
	{ VIRTIO_MMIO_QUEUE_DESC_HIGH, "W", true },
	{ VIRTIO_MMIO_QUEUE_AVAIL_LOW, "W", true },
	{ VIRTIO_MMIO_QUEUE_AVAIL_HIGH, "W", true },
	{ VIRTIO_MMIO_QUEUE_USED_LOW, "W", true },
	{ VIRTIO_MMIO_QUEUE_USED_HIGH, "W", true },
	{ VIRTIO_MMIO_QUEUE_RESET, "RW", false },
	{ VIRTIO_MMIO_CONFIG_GENERATION, "R", false },
};

static struct {
	bool	selected[2];		/* the device's features, and the driver's */
	int	config[5];		/* accesses of the configuration, by width */
	int	accesses;
	int	resets;			/* looks at QueueReset until it is 0; 0: for ever */
	bool	keeps_ready;		/* and QueueReady is kept */
} bus;

/* What the device does when QueueReset is read. */
static void
queue_reset_is_read(void)
{

	CHECK(get(VIRTIO_MMIO_QUEUE_RESET) <= 1, "0x%x was written", get(VIRTIO_MMIO_QUEUE_RESET));
	if (get(VIRTIO_MMIO_QUEUE_RESET) != 0 && bus.resets > 0 && --bus.resets == 0) {
		set(VIRTIO_MMIO_QUEUE_RESET, 0);
		if (!bus.keeps_ready)
			set(VIRTIO_MMIO_QUEUE_READY, 0);
	}
}

static void
access_is_allowed(bus_size_t reg, bool store)
{
	size_t i;

	for (i = 0; i < nitems(registers) && registers[i].reg != reg; i++)
		continue;
	CHECK(i < nitems(registers), "register 0x%lx is not described", reg);
	CHECK(strchr(registers[i].access, store ? 'W' : 'R') != NULL, "register 0x%lx is %s",
	    reg, registers[i].access);
	CHECK(!registers[i].of_queue || get(VIRTIO_MMIO_QUEUE_READY) == 0,
	    "register 0x%lx of a queue that is ready", reg);
}

static void
access_at(uintptr_t addr, int size, bool store)
{
	bus_size_t reg = addr - (uintptr_t)mm.window;

	if (addr < (uintptr_t)mm.window || reg >= WINDOW_SIZE)
		return;
	bus.accesses++;
	CHECK(reg % size == 0, "%d bytes at 0x%lx", size, reg);
	if (reg >= VIRTIO_MMIO_CONFIG) {
		CHECK(size <= 4, "%d bytes at 0x%lx", size, reg);
		bus.config[size]++;
		return;
	}
	CHECK(size == 4, "%d bytes at 0x%lx", size, reg);
	access_is_allowed(reg, store);
	if (reg == VIRTIO_MMIO_DEVICE_FEATURES_SEL || reg == VIRTIO_MMIO_DRIVER_FEATURES_SEL)
		bus.selected[reg == VIRTIO_MMIO_DRIVER_FEATURES_SEL] = true;
	if (reg == VIRTIO_MMIO_DEVICE_FEATURES || reg == VIRTIO_MMIO_DRIVER_FEATURES)
		CHECK(bus.selected[reg == VIRTIO_MMIO_DRIVER_FEATURES], "no half is selected");
	if (reg == VIRTIO_MMIO_QUEUE_RESET && !store)
		queue_reset_is_read();
}

static void
watch(void)
{

	memset(&bus, 0, sizeof(bus));
	kpi_access_at = access_at;
}

static void
registers_are_used_as_described(const void *arg __unused)
{
	static const int widths[] = { 1, 2, 4, 4, 2, 1 };
	bus_size_t off = 0;
	struct pvq *q;
	size_t i;

	begin(VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_ISR_QUEUE);
	q = queue();
	watch();
	probes(BUS_PROBE_VENDOR, 0);
	mm.sc.vm_regs = &mm.res;
	CHECK(VIRTIO_BUS_RESET(mm.dev) == 0, "reset");
	VIRTIO_BUS_SET_STATUS(mm.dev, VIRTIO_STATUS_ACK);
	(void)VIRTIO_BUS_GET_FEATURES(mm.dev);
	VIRTIO_BUS_SET_FEATURES(mm.dev, VIRTIO_F_VERSION_1);
	(void)VIRTIO_BUS_CONFIG_GEN(mm.dev);
	for (i = 0; i < nitems(widths); i++) {
		off = roundup2(off, widths[i]);
		(void)VIRTIO_BUS_READ_CONFIG(mm.dev, off, widths[i]);
		VIRTIO_BUS_WRITE_CONFIG(mm.dev, off, 0, widths[i]);
		off += widths[i];
	}
	CHECK(bus.config[1] == 4 && bus.config[2] == 4 && bus.config[4] == 4,
	    "%d, %d, %d accesses", bus.config[1], bus.config[2], bus.config[4]);
	(void)VIRTIO_BUS_QUEUE_SIZE(mm.dev, 0);
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 0, q) == 0, "refused");
	VIRTIO_BUS_SET_STATUS(mm.dev, VIRTIO_STATUS_DRIVER_OK);
	(void)VIRTIO_BUS_ISR(mm.dev);
	bus.resets = 1;
	CHECK(VIRTIO_BUS_QUEUE_RESET(mm.dev, 0) == 0, "not reset");
	CHECK(VIRTIO_BUS_QUEUE_SETUP(mm.dev, 0, q) == 0, "refused");
	kpi_access_at = NULL;
	CHECK(bus.accesses > 30, "%d accesses were seen", bus.accesses);
	pvq_free(q);
	end();
}

static bus_size_t farthest;

static void
farthest_access(uintptr_t addr, int size __unused, bool store)
{

	if (addr < (uintptr_t)mm.window || addr >= (uintptr_t)mm.window + WINDOW_SIZE)
		return;
	CHECK(!store, "a store at 0x%lx", addr - (uintptr_t)mm.window);
	farthest = MAX(farthest, addr - (uintptr_t)mm.window);
}

/* What is no device is not read any further than what tells that (4.2.3.1.1). */
static void
nothing_more_is_read_of_no_device(const void *arg __unused)
{
	static const struct {
		bus_size_t	reg;
		uint32_t	value;
	} wrong[] = {
		{ VIRTIO_MMIO_MAGIC_VALUE, 0 },
		{ VIRTIO_MMIO_VERSION, 3 },
		{ VIRTIO_MMIO_DEVICE_ID, 0 },
	};
	size_t i;

	for (i = 0; i < nitems(wrong); i++) {
		begin(VIRTIO_MMIO_MODERN);
		set(wrong[i].reg, wrong[i].value);
		farthest = 0;
		kpi_access_at = farthest_access;
		probes(ENXIO, wrong[i].reg != VIRTIO_MMIO_DEVICE_ID);
		CHECK(farthest == wrong[i].reg, "probe: 0x%lx, not 0x%lx", farthest, wrong[i].reg);
		farthest = 0;
		CHECK(vtmmio_type(mm.dev) == 0, "a type");
		kpi_access_at = NULL;
		CHECK(farthest == wrong[i].reg, "type: 0x%lx, not 0x%lx", farthest, wrong[i].reg);
		end();
	}
}

/* A queue's reset is over when QueueReset is 0, and the queue not ready (4.2.2.2). */
static void
queue_reset_is_waited_for(const void *arg __unused)
{

	begin(VIRTIO_MMIO_MODERN);
	set(VIRTIO_MMIO_QUEUE_READY, 1);
	watch();
	bus.resets = 500;
	CHECK(VIRTIO_BUS_QUEUE_RESET(mm.dev, 2) == 0, "not reset");
	CHECK(bus.resets == 0 && get(VIRTIO_MMIO_QUEUE_SEL) == 2, "too early: %d", bus.resets);
	set(VIRTIO_MMIO_QUEUE_READY, 1);
	CHECK(VIRTIO_BUS_QUEUE_RESET(mm.dev, 2) == ETIMEDOUT, "QueueReset is never 0");
	bus.resets = 1;
	bus.keeps_ready = true;
	CHECK(VIRTIO_BUS_QUEUE_RESET(mm.dev, 2) == ETIMEDOUT, "the queue is still ready");
	kpi_access_at = NULL;
	end();
}

static void
reads_as_ones(uintptr_t addr __unused, int size __unused, bool store __unused)
{

	memset(mm.window, 0xff, WINDOW_SIZE);
}

static void
device_that_has_gone(const void *arg __unused)
{

	begin(VIRTIO_MMIO_MODERN);
	memset(mm.window, 0xff, WINDOW_SIZE);
	CHECK(VIRTIO_BUS_ISR(mm.dev) == UINT8_MAX, "an interrupt of its own");
	CHECK(mm.sc.vm_storms == 0, "a storm");
	kpi_access_at = reads_as_ones;
	CHECK(VIRTIO_BUS_RESET(mm.dev) == ENXIO, "it was reset");
	kpi_access_at = NULL;
	end();
}

static const struct hosted_test tests[] = {
	{ "good_device_is_found", "Both versions", good_device_is_found, NULL },
	{ "what_is_no_device_is_refused", "Magic value, version, id, size",
	    what_is_no_device_is_refused, NULL },
	{ "modern_queue_has_addresses", "And is enabled", modern_queue_has_addresses, NULL },
	{ "legacy_queue_has_a_page_number", "Which enables it", legacy_queue_has_a_page_number,
	    NULL },
	{ "stuck_interrupt_resets_the_device", "Once, with one message",
	    stuck_interrupt_resets_the_device, NULL },
	{ "line_that_a_reset_does_not_lower", "The device is given up",
	    line_that_a_reset_does_not_lower, tests },
	{ "every_cause_is_handled", "Also one that comes while another is acknowledged",
	    every_cause_is_handled, NULL },
	{ "line_without_a_cause", "After a reset", line_that_a_reset_does_not_lower, NULL },
	{ "features_are_two_halves", "Low and high", features_are_two_halves, NULL },
	{ "seldom_stuck_is_no_storm", "Unlike many in a row", seldom_stuck_is_no_storm, NULL },
	{ "second_storm_is_the_last", "As long as nothing was acknowledged",
	    second_storm_is_the_last, NULL },
	{ "storms_are_said_ten_times", "And counted", storms_are_said_ten_times, NULL },
	{ "registers_are_used_as_described", "Direction, width, order",
	    registers_are_used_as_described, NULL },
	{ "nothing_more_is_read_of_no_device", "By probe, and by who asks for the type",
	    nothing_more_is_read_of_no_device, NULL },
	{ "queue_reset_is_waited_for", "Until the device says so", queue_reset_is_waited_for, NULL },
	{ "configuration_is_behind_the_registers", "In its own width",
	    configuration_is_behind_the_registers, NULL },
	{ "notification_is_of_its_queue", "Of a device that is live", notification_is_of_its_queue,
	    NULL },
	{ "there_are_no_vectors", "And none is set", there_are_no_vectors, NULL },
	{ "type_is_told", "And whose device it is", type_is_told, NULL },
	{ "storm_is_of_so_many", "Interrupts in a row", storm_is_of_so_many, NULL },
	{ "device_that_has_gone", "Everything reads as ones", device_that_has_gone, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
