/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Capabilities of modern virtio devices on PCI, as a device would make them up that means harm: the
 * driver must find the good ones among others, and refuse those that point outside of the device.
 */

#include <dev/virtio/virtqueue.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/pci_config.h"

static void
good_device_attaches(const void *arg __unused)
{
	struct vtpci_region vr;

	pci_begin();
	pci_add_all_but(0);
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "refused");
	CHECK(pci.sc.vtp_bus.vb_modern && pci.sc.vtp_nqueues == 2 && pci.sc.vtp_multiplier == 4,
	    "%u queues", pci.sc.vtp_nqueues);
	CHECK(pci.sc.vtp_bus.vb_dmat == kpi_dma_tag && pci.sc.vtp_bus.vb_ring_align == VRING_USED_ALIGN,
	    "where rings may be");
	pci.sc.vtp_ops->vo_config(&pci.sc, &vr);
	CHECK(vr.vr_off == DEVICE_OFF && vr.vr_len == 0x3c, "configuration at %lu", vr.vr_off);
	pci_end();
}

static void
each_window_is_needed(const void *arg __unused)
{
	static const uint8_t types[] = { VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_NOTIFY_CFG,
	    VIRTIO_PCI_CAP_ISR_CFG };
	struct vtpci_region vr;
	u_int i;

	for (i = 0; i < nitems(types); i++) {
		pci_begin();
		pci_add_all_but(types[i]);
		CHECK(vtpci_modern_attach(&pci.sc) == ENOENT, "without type %u", types[i]);
		pci_end();
	}
	pci_begin();
	pci_add_all_but(VIRTIO_PCI_CAP_DEVICE_CFG);
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "without a configuration of its own");
	pci.sc.vtp_ops->vo_config(&pci.sc, &vr);
	CHECK(vr.vr_len == 0, "%lu bytes", vr.vr_len);
	pci_end();
}

static void
others_are_passed_over(const void *arg __unused)
{

	pci_begin();
	/* Unknown types, reserved BARs (4.1.4.1), and a second one that does not count. */
	(void)pci_add_cap(200, BAR, 0, 4, 16);
	(void)pci_add_cap(VIRTIO_PCI_CAP_COMMON_CFG, 6, 0, 0x38, 16);
	(void)pci_add_cap(VIRTIO_PCI_CAP_COMMON_CFG, 255, 0, 0x38, 16);
	pci_add_all_but(0);
	(void)pci_add_cap(VIRTIO_PCI_CAP_COMMON_CFG, BAR, 0xffffff00, 0x38, 16);
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "refused");
	CHECK(pci.sc.vtp_common.vr_off == COMMON_OFF, "at %lu", pci.sc.vtp_common.vr_off);
	pci_end();
}

/* pci(4) always finds a next capability, and never one of the type that is looked for. */
static void
circular_list_ends(const void *arg __unused)
{

	pci_begin();
	pci_add_all_but(VIRTIO_PCI_CAP_ISR_CFG);
	pci.config[pci.last] = pci.config[PCIR_CAP_PTR];
	CHECK(vtpci_modern_attach(&pci.sc) == ENOENT, "attached");
	pci_end();
	/* The one that closes the circle is the one that is looked for. */
	pci_begin();
	pci_add_all_but(0);
	pci.config[pci.last] = pci.config[PCIR_CAP_PTR];
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "refused");
	pci_end();
}

/* A device with one capability of a type as given is refused. */
static void
refused(uint8_t type, uint8_t bar, uint32_t off, uint32_t len, uint8_t cap_len)
{

	pci_begin();
	pci_set_multiplier(pci_add_cap(type, bar, off, len, cap_len), 4);
	pci_add_all_but(type);
	kpi_lines = 0;
	CHECK(vtpci_modern_attach(&pci.sc) == ENXIO, "type %u, BAR %u, %u bytes at %u, length %u",
	    type, bar, len, off, cap_len);
	CHECK(kpi_lines == 1, "%d lines", kpi_lines);
	pci_end();
}

static void
windows_lie_inside_their_bar(const void *arg __unused)
{
	uint8_t type;

	for (type = VIRTIO_PCI_CAP_COMMON_CFG; type <= VIRTIO_PCI_CAP_DEVICE_CFG; type++) {
		refused(type, BAR, BAR_SIZE, 0x38, 20);
		refused(type, BAR, BAR_SIZE - 0x34, 0x38, 20);
		refused(type, BAR, 0, BAR_SIZE + 4, 20);
		refused(type, BAR, 0xfffffffc, 0x38, 20);
		refused(type, BAR, 4, 0xffffffff, 20);
		refused(type, BAR, 0, 0x38, 15);
		refused(type, 2, 0, 0x38, 20);
	}
	refused(VIRTIO_PCI_CAP_COMMON_CFG, BAR, 0, VIRTIO_PCI_COMMON_SIZE - 1, 16);
	refused(VIRTIO_PCI_CAP_COMMON_CFG, BAR, 2, 0x38, 16);
	refused(VIRTIO_PCI_CAP_DEVICE_CFG, BAR, 1, 0x38, 16);
	refused(VIRTIO_PCI_CAP_NOTIFY_CFG, BAR, 1, 0x38, 20);
	refused(VIRTIO_PCI_CAP_NOTIFY_CFG, BAR, 0, 1, 20);
	refused(VIRTIO_PCI_CAP_NOTIFY_CFG, BAR, 0, 4, 16);
	refused(VIRTIO_PCI_CAP_ISR_CFG, BAR, 0, 0, 16);
}

static void
multiplier_is_an_even_power_of_two(const void *arg __unused)
{
	static const uint32_t bad[] = { 1, 3, 6, 12, 0xffffffff };
	static const uint32_t good[] = { 0, 2, 4, 4096, 0x80000000 };
	u_int i;

	for (i = 0; i < nitems(bad) + nitems(good); i++) {
		pci_begin();
		pci_add_all_but(VIRTIO_PCI_CAP_NOTIFY_CFG);
		pci_set_multiplier(pci_add_cap(VIRTIO_PCI_CAP_NOTIFY_CFG, BAR, NOTIFY_OFF, 0x1000, 20),
		    i < nitems(bad) ? bad[i] : good[i - nitems(bad)]);
		CHECK(vtpci_modern_attach(&pci.sc) == (i < nitems(bad) ? ENXIO : 0), "case %u", i);
		pci_end();
	}
}

static void
device_has_queues(const void *arg __unused)
{

	pci_begin();
	pci_add_all_but(0);
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_NUMQ, 0);
	CHECK(vtpci_modern_attach(&pci.sc) == ENXIO, "no queues");
	pci_end();
}

static void
no_notify(void *arg __unused, uint16_t index __unused, uint16_t next __unused)
{
}

/* A device has shown more queues when features were negotiated, and no fewer. */
static void
queues_that_come_with_features(const void *arg __unused)
{
	struct virtqueue_params params = {
		.vqp_dev = pci.dev, .vqp_name = "q", .vqp_dmat = kpi_dma_tag, .vqp_size = 8,
		.vqp_features = VIRTIO_F_VERSION_1, .vqp_max_segs = 1,
		.vqp_align = VRING_USED_ALIGN, .vqp_notify = no_notify,
	};
	struct pvq *q;

	pci_begin();
	pci_add_all_but(0);
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "refused");
	CHECK(virtqueue_create(&params, &q) == 0, "create");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_SIZE, 8);
	CHECK(pci.sc.vtp_ops->vo_queue_size(&pci.sc, 5) == 0, "queue 5 of 2");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_NUMQ, 6);
	CHECK(pci.sc.vtp_ops->vo_queue_size(&pci.sc, 5) == 8, "queue 5 of 6");
	CHECK(pci.sc.vtp_ops->vo_queue_size(&pci.sc, 6) == 0, "queue 6 of 6");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_NOFF, 3);
	CHECK(pci.sc.vtp_ops->vo_queue_setup(&pci.sc, 5, q) == 0, "set up");
	pci.sc.vtp_bus.vb_live = true;
	pci.sc.vtp_ops->vo_notify(&pci.sc, 5, 0);
	CHECK(pci.bar[NOTIFY_OFF + 3 * 4] == 5, "not notified");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_NUMQ, 2);
	CHECK(pci.sc.vtp_ops->vo_queue_size(&pci.sc, 6) == 0 && pci.sc.vtp_nqueues == 6, "%u queues",
	    pci.sc.vtp_nqueues);
	pvq_free(q);
	pci_end();
}

static void
doorbells_lie_in_their_window(const void *arg __unused)
{
	struct virtqueue_params params = {
		.vqp_dev = pci.dev, .vqp_name = "q", .vqp_dmat = kpi_dma_tag, .vqp_size = 8,
		.vqp_features = VIRTIO_F_VERSION_1, .vqp_max_segs = 1,
		.vqp_align = VRING_USED_ALIGN, .vqp_notify = no_notify,
	};
	struct virtqueue_addrs addrs;
	struct pvq *q;
	uint64_t v;

	pci_begin();
	pci_add_all_but(0);
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "refused");
	CHECK(virtqueue_create(&params, &q) == 0, "create");
	virtqueue_addrs(q, &addrs);
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_SIZE, 8);
	CHECK(pci.sc.vtp_ops->vo_queue_size(&pci.sc, 1) == 8, "queue 1 of 2");
	CHECK(pci.sc.vtp_ops->vo_queue_size(&pci.sc, 2) == 0, "queue 2 of 2");

	/* Multiplier 4, 4 KiB: 1,023 is the last place. */
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_NOFF, 1023);
	CHECK(pci.sc.vtp_ops->vo_queue_setup(&pci.sc, 1, q) == 0, "last place");
	memcpy(&v, pci.bar + COMMON_OFF + VIRTIO_PCI_COMMON_Q_DEVICE, 8);
	CHECK(v == addrs.vqa_device, "address 0x%lx", v);
	pci.sc.vtp_bus.vb_live = true;
	pci.sc.vtp_ops->vo_notify(&pci.sc, 1, 5);
	memcpy(&v, pci.bar + NOTIFY_OFF + 1023 * 4, 4);
	CHECK((uint32_t)v == 1, "notified with 0x%x", (uint32_t)v);

	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_NOFF, 1024);
	CHECK(pci.sc.vtp_ops->vo_queue_setup(&pci.sc, 1, q) == ENXIO, "first place outside");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_NOFF, 0xffff);
	CHECK(pci.sc.vtp_ops->vo_queue_setup(&pci.sc, 1, q) == ENXIO, "far outside");

	/* With NOTIFICATION_DATA, 32 bits, which have to fit, too: 1,023 is just so. */
	pci.sc.vtp_bus.vb_features = VIRTIO_F_NOTIFICATION_DATA;
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_NOFF, 1023);
	CHECK(pci.sc.vtp_ops->vo_queue_setup(&pci.sc, 1, q) == 0, "last place");
	pci.sc.vtp_ops->vo_notify(&pci.sc, 1, 0x8005);
	memcpy(&v, pci.bar + NOTIFY_OFF + 1023 * 4, 4);
	CHECK((uint32_t)v == 0x80050001, "notified with 0x%lx", v);
	pci.sc.vtp_bus.vb_features |= VIRTIO_F_NOTIF_CONFIG_DATA;
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_NDATA, 0x1234);
	CHECK(pci.sc.vtp_ops->vo_queue_setup(&pci.sc, 1, q) == 0, "with the device's own number");
	pci.sc.vtp_ops->vo_notify(&pci.sc, 1, 7);
	memcpy(&v, pci.bar + NOTIFY_OFF + 1023 * 4, 4);
	CHECK((uint32_t)v == 0x00071234, "notified with 0x%lx", v);
	pvq_free(q);
	pci_end();
}

/*
 * The rules of the common configuration (4.1.4.3), checked at each access: an R is read, a W written,
 * each in its width.  A queue's registers are those of the queue selected, of which one is enabled at
 * most.
 */
static const struct {
	int		 reg, size;
	const char	*access;
	bool		 of_queue;	/* not while the queue is enabled (4.1.4.3.2) */
} registers[] = {
	{ VIRTIO_PCI_COMMON_DFSELECT, 4, "W", false },
	{ VIRTIO_PCI_COMMON_DF, 4, "R", false },
	{ VIRTIO_PCI_COMMON_GFSELECT, 4, "W", false },
	{ VIRTIO_PCI_COMMON_GF, 4, "W", false },
	{ VIRTIO_PCI_COMMON_MSIX, 2, "RW", false },
	{ VIRTIO_PCI_COMMON_NUMQ, 2, "R", false },
	{ VIRTIO_PCI_COMMON_STATUS, 1, "RW", false },
	{ VIRTIO_PCI_COMMON_CFGGENERATION, 1, "R", false },
	{ VIRTIO_PCI_COMMON_Q_SELECT, 2, "W", false },
	{ VIRTIO_PCI_COMMON_Q_SIZE, 2, "RW", true },
	{ VIRTIO_PCI_COMMON_Q_MSIX, 2, "RW", false },
	{ VIRTIO_PCI_COMMON_Q_ENABLE, 2, "RW", false },
	{ VIRTIO_PCI_COMMON_Q_NOFF, 2, "R", false },
	{ VIRTIO_PCI_COMMON_Q_DESC, 4, "W", true },
	{ VIRTIO_PCI_COMMON_Q_DESC + 4, 4, "W", true },
	{ VIRTIO_PCI_COMMON_Q_DRIVER, 4, "W", true },
	{ VIRTIO_PCI_COMMON_Q_DRIVER + 4, 4, "W", true },
	{ VIRTIO_PCI_COMMON_Q_DEVICE, 4, "W", true },
	{ VIRTIO_PCI_COMMON_Q_DEVICE + 4, 4, "W", true },
	{ VIRTIO_PCI_COMMON_Q_NDATA, 2, "R", false },
	{ VIRTIO_PCI_COMMON_Q_RESET, 2, "RW", false },
};

static uint16_t
common_2(int reg)
{
	uint16_t v;

	memcpy(&v, pci.bar + COMMON_OFF + reg, 2);
	return (v);
}

static uint64_t
common_8(int reg)
{
	uint64_t v;

	memcpy(&v, pci.bar + COMMON_OFF + reg, 8);
	return (v);
}

static uint32_t accepted[2];
static int accesses, stored = -1;	/* the register whose store comes with the next access */
static int refuses;			/* the register in which a store is not kept */

/* What was stored before is there now. */
static void
store_is_done(void)
{
	uint32_t half, v;

	if (stored == VIRTIO_PCI_COMMON_GF) {
		memcpy(&half, pci.bar + COMMON_OFF + VIRTIO_PCI_COMMON_GFSELECT, 4);
		memcpy(&v, pci.bar + COMMON_OFF + stored, 4);
		CHECK(half < 2, "half %u", half);
		accepted[half] = v;
	} else if (stored != -1 && stored == refuses)
		pci_set_bar_2(COMMON_OFF + stored, 7);
	stored = -1;
}

static void
access_at(uintptr_t addr, int size, bool store)
{
	uintptr_t first = (uintptr_t)pci.bar + COMMON_OFF;
	int reg = addr - first;
	uint32_t v;
	size_t i;

	store_is_done();
	if (addr < first || addr - first >= ISR_OFF)
		return;
	accesses++;
	for (i = 0; i < nitems(registers) && registers[i].reg != reg; i++)
		continue;
	CHECK(i < nitems(registers) && registers[i].size == size, "%d bytes at %d", size, reg);
	CHECK(strchr(registers[i].access, store ? 'W' : 'R') != NULL, "register %d is %s", reg,
	    registers[i].access);
	CHECK(!store || !registers[i].of_queue || common_2(VIRTIO_PCI_COMMON_Q_ENABLE) == 0,
	    "register %d of a queue that is enabled", reg);
	if (!store && reg == VIRTIO_PCI_COMMON_DF) {
		memcpy(&v, pci.bar + COMMON_OFF + VIRTIO_PCI_COMMON_DFSELECT, 4);
		CHECK(v < 2, "half %u", v);
		v = v == 0 ? 0x1111 : UINT32_MAX;
		memcpy(pci.bar + COMMON_OFF + reg, &v, 4);
	}
	if (store)
		stored = reg;
}

/* A device whose common configuration has so many bytes. */
static void
begin_with_common(uint32_t len)
{

	pci_begin();
	(void)pci_add_cap(VIRTIO_PCI_CAP_COMMON_CFG, BAR, COMMON_OFF, len, 16);
	pci_add_all_but(VIRTIO_PCI_CAP_COMMON_CFG);
	refuses = stored = -1;
	CHECK(vtpci_modern_attach(&pci.sc) == 0, "refused");
}

/* Both halves; what a register belongs to, only where that is in the window. */
static void
features_are_two_halves(const void *arg __unused)
{
	static const struct {
		uint32_t len;
		uint64_t without;
	} table[] = {
		{ VIRTIO_PCI_COMMON_SIZE, VIRTIO_F_NOTIF_CONFIG_DATA | VIRTIO_F_RING_RESET },
		{ VIRTIO_PCI_COMMON_Q_NDATA + 1, VIRTIO_F_NOTIF_CONFIG_DATA | VIRTIO_F_RING_RESET },
		{ VIRTIO_PCI_COMMON_Q_NDATA + 2, VIRTIO_F_RING_RESET },
		{ VIRTIO_PCI_COMMON_Q_RESET + 1, VIRTIO_F_RING_RESET },
		{ VIRTIO_PCI_COMMON_Q_RESET + 2, 0 },
	};
	uint64_t got;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		begin_with_common(table[i].len);
		kpi_access_at = access_at;
		got = pci.sc.vtp_ops->vo_get_features(&pci.sc);
		pci.sc.vtp_ops->vo_set_features(&pci.sc, 0x4444000033330007);
		store_is_done();
		kpi_access_at = NULL;
		CHECK(got == (0xffffffff00001111 & ~table[i].without), "%u bytes: 0x%lx", table[i].len,
		    got);
		CHECK(accepted[0] == 0x33330007 && accepted[1] == 0x44440000, "0x%x, 0x%x", accepted[0],
		    accepted[1]);
		pci_end();
	}
}

/* A queue has what it is set up with, and a device that does not take it is not driven. */
static void
registers_are_used_as_described(const void *arg __unused)
{
	struct virtqueue_params params = {
		.vqp_dev = pci.dev, .vqp_name = "q", .vqp_dmat = kpi_dma_tag, .vqp_size = 8,
		.vqp_features = VIRTIO_F_VERSION_1, .vqp_max_segs = 1,
		.vqp_align = VRING_USED_ALIGN, .vqp_notify = no_notify,
	};
	const struct vtpci_ops *ops;
	struct virtqueue_addrs addrs;
	struct pvq *q;

	begin_with_common(VIRTIO_PCI_COMMON_Q_RESET + 2);
	ops = pci.sc.vtp_ops;
	CHECK(virtqueue_create(&params, &q) == 0, "create");
	virtqueue_addrs(q, &addrs);
	accesses = 0;
	kpi_access_at = access_at;
	ops->vo_set_status(&pci.sc, 0x85);
	CHECK(pci.bar[COMMON_OFF + VIRTIO_PCI_COMMON_STATUS] == 0x85 &&
	    ops->vo_get_status(&pci.sc) == 0x85, "status");
	pci.bar[COMMON_OFF + VIRTIO_PCI_COMMON_CFGGENERATION] = 0x81;
	CHECK(ops->vo_generation(&pci.sc) == 0x81, "generation");
	pci.bar[ISR_OFF] = 0x82;
	CHECK(ops->vo_isr(&pci.sc) == 0x82, "interrupt status");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_SIZE, 256);
	CHECK(ops->vo_queue_size(&pci.sc, 1) == 256 && common_2(VIRTIO_PCI_COMMON_Q_SELECT) == 1,
	    "size");
	CHECK(ops->vo_queue_setup(&pci.sc, 0, q) == 0, "refused");
	CHECK(common_2(VIRTIO_PCI_COMMON_Q_SELECT) == 0 && common_2(VIRTIO_PCI_COMMON_Q_SIZE) == 8 &&
	    common_2(VIRTIO_PCI_COMMON_Q_ENABLE) == 1, "registers");
	CHECK(common_8(VIRTIO_PCI_COMMON_Q_DESC) == addrs.vqa_desc &&
	    common_8(VIRTIO_PCI_COMMON_Q_DRIVER) == addrs.vqa_driver &&
	    common_8(VIRTIO_PCI_COMMON_Q_DEVICE) == addrs.vqa_device, "addresses");
	CHECK(ops->vo_set_vector(&pci.sc, 1, 5) == 5 && common_2(VIRTIO_PCI_COMMON_Q_SELECT) == 1 &&
	    common_2(VIRTIO_PCI_COMMON_Q_MSIX) == 5 && common_2(VIRTIO_PCI_COMMON_MSIX) == 0,
	    "a queue's vector");
	CHECK(ops->vo_set_vector(&pci.sc, VIRTIO_BUS_CONFIG, 6) == 6 &&
	    common_2(VIRTIO_PCI_COMMON_Q_MSIX) == 5 && common_2(VIRTIO_PCI_COMMON_MSIX) == 6,
	    "the configuration's");
	refuses = VIRTIO_PCI_COMMON_MSIX;
	CHECK(ops->vo_set_vector(&pci.sc, VIRTIO_BUS_CONFIG, 6) == 7, "another vector");
	/* Of a reset the device has both registers 0. */
	ops->vo_queue_reset(&pci.sc, 0);
	store_is_done();
	CHECK(common_2(VIRTIO_PCI_COMMON_Q_SELECT) == 0 && common_2(VIRTIO_PCI_COMMON_Q_RESET) == 1,
	    "reset");
	CHECK(!ops->vo_queue_is_reset(&pci.sc, 1) && common_2(VIRTIO_PCI_COMMON_Q_SELECT) == 1,
	    "neither");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_RESET, 0);
	CHECK(!ops->vo_queue_is_reset(&pci.sc, 0), "it is enabled");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_RESET, 1);
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_ENABLE, 0);
	CHECK(!ops->vo_queue_is_reset(&pci.sc, 0), "it is not over");
	pci_set_bar_2(COMMON_OFF + VIRTIO_PCI_COMMON_Q_RESET, 0);
	CHECK(ops->vo_queue_is_reset(&pci.sc, 0), "it is over");
	refuses = VIRTIO_PCI_COMMON_Q_SIZE;
	CHECK(ops->vo_queue_setup(&pci.sc, 0, q) == ENXIO &&
	    common_2(VIRTIO_PCI_COMMON_Q_ENABLE) == 0, "another size");
	refuses = VIRTIO_PCI_COMMON_Q_ENABLE;
	CHECK(ops->vo_queue_setup(&pci.sc, 0, q) == ENXIO, "not enabled");
	kpi_access_at = NULL;
	CHECK(accesses > 40, "%d accesses were seen", accesses);
	/* What is not live is not notified. */
	pci.sc.vtp_ops->vo_notify(&pci.sc, 1, 5);
	CHECK(pci.bar[NOTIFY_OFF] == 0, "notified");
	pvq_free(q);
	pci_end();
}

static void
device_that_has_gone(const void *arg __unused)
{

	pci_begin();
	pci_add_all_but(0);
	memset(pci.config + 0x40, 0xff, sizeof(pci.config) - 0x40);
	CHECK(vtpci_modern_attach(&pci.sc) != 0, "attached");
	pci_end();
}

static const struct hosted_test tests[] = {
	{ "good_device_attaches", "The layout of QEMU's", good_device_attaches, NULL },
	{ "each_window_is_needed", "But the device's own configuration", each_window_is_needed,
	    NULL },
	{ "others_are_passed_over", "Unknown types, reserved BARs, second ones",
	    others_are_passed_over, NULL },
	{ "circular_list_ends", "Also for a type that is not in it", circular_list_ends, NULL },
	{ "windows_lie_inside_their_bar", "Offset, length, alignment, overflow",
	    windows_lie_inside_their_bar, NULL },
	{ "multiplier_is_an_even_power_of_two", "Or 0", multiplier_is_an_even_power_of_two, NULL },
	{ "device_has_queues", "At least one", device_has_queues, NULL },
	{ "queues_that_come_with_features", "As of QEMU's network card",
	    queues_that_come_with_features, NULL },
	{ "doorbells_lie_in_their_window", "At any offset that the device gives",
	    doorbells_lie_in_their_window, NULL },
	{ "features_are_two_halves", "Without those that have no register", features_are_two_halves,
	    NULL },
	{ "registers_are_used_as_described", "Direction, width, order",
	    registers_are_used_as_described, NULL },
	{ "device_that_has_gone", "Everything reads as ones", device_that_has_gone, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
