/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The part of the virtio bus that is the same for every transport, with a device that does
 * everything that QEMU's never do.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/transport.h"

#define	F_ONE		(1ULL << 0)
#define	F_TWO		(1ULL << 1)
#define	F_THREE		(1ULL << 2)
#define	F_HIGH		(1ULL << 50)

static const struct virtio_feature table[] = {
	{ F_ONE, "ONE", 0 },
	{ F_TWO, "TWO", VIRTIO_FEATURE_OFF },
	{ F_THREE, "THREE", VIRTIO_FEATURE_REQUIRED },
	{ F_HIGH, "HIGH", 0 },
	{ 0, NULL, 0 }
};

static const struct virtio_feature less[] = {
	{ F_THREE, "THREE", VIRTIO_FEATURE_REQUIRED },
	{ 0, NULL, 0 }
};

#define	RING	(VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX)

/* A driver's softc. */
static struct driver {
	struct pvq	*q[TR_QUEUES];
	int		 intrs[TR_QUEUES];
} driver;

static void
driver_intr0(void *arg __unused)
{

	driver.intrs[0]++;
}

static void
driver_intr1(void *arg __unused)
{

	driver.intrs[1]++;
}

static struct virtio_queue_spec specs[] = {
	{ .vqs_spec = { "one", "q1", 4, -1, driver_intr0, NULL, &driver.q[0] } },
	{ .vqs_spec = { "two", "q2", 4, 0, driver_intr1, NULL, &driver.q[1] } },
	{ .vqs_spec = { "polled", "", 2, -1, NULL, NULL, &driver.q[2] } },
};

static void
opened(struct transport *tr, bool modern)
{

	memset(&driver, 0, sizeof(driver));
	transport_open(tr, modern);
	tr->tr_offered |= F_ONE | F_THREE;
}

static uint64_t
negotiated(struct transport *tr)
{
	uint64_t got;
	int error;

	error = virtio_negotiate(tr->tr_child, table, &got);
	CHECK(error == 0, "error %d", error);
	CHECK(got == tr->tr_accepted && got == virtio_features(tr->tr_child), "0x%lx", got);
	return (got);
}

static void
set_up(struct transport *tr, bool modern, int queues)
{
	int error;

	opened(tr, modern);
	(void)negotiated(tr);
	error = virtio_alloc_queues(tr->tr_child, specs, queues, INTR_TYPE_BIO);
	CHECK(error == 0, "error %d", error);
}

static void
tear_down(struct transport *tr)
{
	int error, i, lines = kpi_lines;

	error = virtio_quiesce(tr->tr_child);
	CHECK(kpi_lines == lines + (error != 0), "error %d: %s", error, kpi_line);
	for (i = 0; i < TR_QUEUES; i++) {
		while (driver.q[i] != NULL && pvq_drain(driver.q[i]) != NULL)
			continue;
	}
	virtio_free_queues(tr->tr_child);
	for (i = 0; i < TR_QUEUES; i++)
		CHECK(driver.q[i] == NULL, "queue %d is still there", i);
	transport_close(tr);
}

static void
post(struct pvq *q)
{
	bus_dma_segment_t seg = { 0x1000, 16 };
	struct pvq_chain pc = { .pc_segs = &seg, .pc_nread = 1, .pc_cookie = q };

	CHECK(pvq_reserve(q, 1) == 0, "no room");
	pvq_put(q, &pc, 1);
	pvq_commit(q);
}

static void
takes_what_both_know(const void *arg __unused)
{
	struct transport tr;
	uint64_t got;

	opened(&tr, true);
	tr.tr_offered |= F_TWO | F_HIGH | (1ULL << 20) | VIRTIO_F_RING_PACKED |
	    VIRTIO_F_ACCESS_PLATFORM | VIRTIO_F_IN_ORDER;
	got = negotiated(&tr);
	CHECK(got == (F_ONE | F_THREE | F_HIGH | RING | VIRTIO_F_VERSION_1 |
	    VIRTIO_F_ACCESS_PLATFORM | VIRTIO_F_RING_PACKED | VIRTIO_F_IN_ORDER), "0x%lx", got);
	CHECK(virtio_has(tr.tr_child, F_ONE | F_HIGH) && !virtio_has(tr.tr_child, F_ONE | F_TWO),
	    "virtio_has");
	CHECK(tr.tr_status == (VIRTIO_STATUS_ACK | VIRTIO_STATUS_DRIVER |
	    VIRTIO_STATUS_FEATURES_OK), "status 0x%x", tr.tr_status);
	CHECK(strcmp(tr.tr_bus.vb_features_str, "ONE THREE HIGH INDIRECT_DESC EVENT_IDX "
	    "VERSION_1 ACCESS_PLATFORM RING_PACKED IN_ORDER") == 0, "%s", tr.tr_bus.vb_features_str);
	transport_close(&tr);
}

static void
may_be_repeated_with_less(const void *arg __unused)
{
	struct transport tr;
	uint64_t got;

	opened(&tr, true);
	(void)negotiated(&tr);
	CHECK(virtio_negotiate(tr.tr_child, less, &got) == 0, "again");
	CHECK(got == (F_THREE | RING | VIRTIO_F_VERSION_1) && tr.tr_accepted == got, "0x%lx", got);
	transport_close(&tr);
}

static void
features_choose_the_ring(const void *arg __unused)
{
	struct transport tr;
	int packed;

	for (packed = 0; packed <= 1; packed++) {
		opened(&tr, true);
		tr.tr_offered |= packed ? VIRTIO_F_RING_PACKED : 0;
		(void)negotiated(&tr);
		/* A size that only a packed ring can have. */
		tr.tr_sizes[1] = packed ? 12 : 8;
		CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
		CHECK(strcmp(driver.q[0]->q_ops->qo_name, packed ? "packed" : "split") == 0, "%s",
		    driver.q[0]->q_ops->qo_name);
		CHECK(driver.q[1]->q_size == tr.tr_sizes[1], "%u", driver.q[1]->q_size);
		tear_down(&tr);
	}
}

static void
legacy_has_32_bits(const void *arg __unused)
{
	struct transport tr;
	uint64_t got;

	opened(&tr, false);
	tr.tr_offered |= F_HIGH | VIRTIO_F_VERSION_1;
	got = negotiated(&tr);
	CHECK(got == (F_ONE | F_THREE | RING), "0x%lx", got);
	CHECK((tr.tr_status_seen & VIRTIO_STATUS_FEATURES_OK) == 0, "status 0x%x",
	    tr.tr_status_seen);
	transport_close(&tr);
}

static void
refusals_differ(const void *arg __unused)
{
	struct transport tr;
	uint64_t got;

	opened(&tr, true);
	tr.tr_offered &= ~F_THREE;
	kpi_lines = 0;
	CHECK(virtio_negotiate(tr.tr_child, table, &got) == ENOTSUP, "required");
	CHECK((tr.tr_status & VIRTIO_STATUS_FAILED) != 0 && kpi_lines == 1, "FAILED is not set");
	transport_close(&tr);

	opened(&tr, true);
	tr.tr_offered &= ~VIRTIO_F_VERSION_1;
	CHECK(virtio_negotiate(tr.tr_child, table, &got) == ENOTSUP, "VERSION_1");
	transport_close(&tr);

	opened(&tr, true);
	tr.tr_refuse_features = true;
	CHECK(virtio_negotiate(tr.tr_child, table, &got) == ENODEV, "FEATURES_OK");
	CHECK((tr.tr_status & VIRTIO_STATUS_FAILED) != 0, "FAILED is not set");
	tr.tr_refuse_features = false;
	(void)negotiated(&tr);
	transport_close(&tr);

	opened(&tr, true);
	tr.tr_reset_error = ETIMEDOUT;
	CHECK(virtio_negotiate(tr.tr_child, table, &got) == ENODEV, "reset");
	tr.tr_reset_error = ENXIO;
	CHECK(virtio_negotiate(tr.tr_child, table, &got) == ENODEV, "gone");
	tr.tr_reset_error = 0;
	transport_close(&tr);
}

static void
configuration_is_read_by_fields(const void *arg __unused)
{
	struct transport tr;
	uint8_t bytes[6];
	uint64_t v64;
	uint32_t v32;
	uint16_t v16;
	uint8_t v8;

	opened(&tr, true);
	CHECK(virtio_read_config(tr.tr_child, 3, &v8, 1) == 0 && v8 == 4, "%u", v8);
	CHECK(virtio_read_config(tr.tr_child, 4, &v16, 2) == 0 && v16 == 0x0605, "0x%x", v16);
	CHECK(virtio_read_config(tr.tr_child, 8, &v32, 4) == 0 && v32 == 0x0c0b0a09, "0x%x", v32);
	CHECK(tr.tr_config_reads == 3, "%d accesses for three fields", tr.tr_config_reads);
	CHECK(virtio_read_config(tr.tr_child, 8, &v64, 8) == 0 &&
	    v64 == 0x100f0e0d0c0b0a09ULL, "0x%lx", v64);
	CHECK(virtio_read_config(tr.tr_child, 1, bytes, 6) == 0 && bytes[0] == 2 && bytes[5] == 7,
	    "bytes");
	CHECK(virtio_read_config(tr.tr_child, 28, &v64, 8) == ENXIO, "across the end");
	CHECK(virtio_read_config(tr.tr_child, 32, &v8, 1) == ENXIO, "at the end");
	CHECK(virtio_read_config(tr.tr_child, ~(bus_size_t)0, &v32, 4) == ENXIO, "overflow");
	v32 = 0x11223344;
	CHECK(virtio_write_config(tr.tr_child, 12, &v32, 4) == 0 && tr.tr_config[12] == 0x44 &&
	    tr.tr_config[15] == 0x11, "write");
	CHECK(virtio_write_config(tr.tr_child, 30, &v32, 4) == ENXIO, "write across the end");
	v16 = 0x5566;
	CHECK(virtio_write_config(tr.tr_child, 14, &v16, 2) == 0 && tr.tr_config[13] == 0x33 &&
	    tr.tr_config[14] == 0x66 && tr.tr_config[15] == 0x55 && tr.tr_config[16] == 17,
	    "two bytes");
	v8 = 0x77;
	CHECK(virtio_write_config(tr.tr_child, 13, &v8, 1) == 0 && tr.tr_config[12] == 0x44 &&
	    tr.tr_config[13] == 0x77 && tr.tr_config[14] == 0x66, "one byte");
	v64 = 0x8877665544332211;
	CHECK(virtio_write_config(tr.tr_child, 16, &v64, 8) == 0 && tr.tr_config[15] == 0x55 &&
	    memcmp(tr.tr_config + 16, &v64, 8) == 0 && tr.tr_config[24] == 25, "eight bytes");
	v8 = 0x99;
	CHECK(virtio_write_config(tr.tr_child, 31, &v8, 1) == 0 && tr.tr_config[31] == 0x99,
	    "the last byte");
	transport_close(&tr);
}

/* On a big-endian CPU the halves of a field of 8 bytes change places, and nothing else does. */
static void
halves_by_byte_order(const void *arg __unused)
{
	size_t i;

	for (i = 0; i < 8; i++)
		CHECK(virtio_config_at(i, 8, false) == i && virtio_config_at(i, 6, true) == i,
		    "%zu moved", i);
	CHECK(virtio_config_at(0, 8, true) == 4 && virtio_config_at(4, 8, true) == 0, "halves");
	CHECK(virtio_config_at(0, 4, true) == 0 && virtio_config_at(0, 2, true) == 0, "one access");
}

static void
child_is_found_by_its_last_name(const void *arg __unused)
{
	struct transport tr;
	const char *name;

	opened(&tr, true);
	name = device_get_nameunit(tr.tr_bus.vb_child);
	CHECK(kpi_lookup(name) == NULL, "found before its driver left");
	virtio_bus_child_detached(tr.tr_dev, tr.tr_bus.vb_child);
	kpi_device_state(tr.tr_bus.vb_child, DS_NOTPRESENT);
	CHECK(kpi_lookup(name) == tr.tr_bus.vb_child, "not found");
	CHECK(kpi_lookup("nobody0") == NULL, "found by another name");
	transport_close(&tr);
	CHECK(kpi_lookup(name) == NULL, "found though it is gone");
}

static void
configuration_is_consistent(const void *arg)
{
	bool modern = arg != NULL;
	struct transport tr;
	uint8_t bytes[8];
	int i, restless;

	for (restless = 1; restless < 40; restless++) {
		opened(&tr, modern);
		tr.tr_restless = restless;
		CHECK(virtio_read_config(tr.tr_child, 8, bytes, 8) == 0, "error");
		for (i = 1; i < 8; i++)
			CHECK(bytes[i] == bytes[0], "bytes %u and %u", bytes[0], bytes[i]);
		transport_close(&tr);
	}
	opened(&tr, modern);
	tr.tr_restless = 1000000;
	kpi_quiet = true;
	kpi_lines = 0;
	CHECK(virtio_read_config(tr.tr_child, 8, bytes, 8) == EBUSY, "never still");
	/* However often, it is said ten times. */
	for (i = 1; i < 13; i++) {
		CHECK(kpi_lines == MIN(i, 10), "%d lines of %d", kpi_lines, i);
		CHECK(virtio_read_config(tr.tr_child, 8, bytes, 8) == EBUSY, "never still");
	}
	CHECK(strcmp(kpi_line, "configuration at 8 changed at each attempt to read it\n") == 0, "%s",
	    kpi_line);
	transport_close(&tr);
}

static void
absurd_queues_are_refused(const void *arg __unused)
{
	static const uint16_t sizes[] = { 0, 3, 12, 65535 };
	struct transport tr;
	u_int i;

	for (i = 0; i < nitems(sizes); i++) {
		opened(&tr, true);
		(void)negotiated(&tr);
		tr.tr_sizes[1] = sizes[i];
		kpi_lines = 0;
		CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == ENXIO, "%u",
		    sizes[i]);
		CHECK(kpi_lines == 1, "%d lines", kpi_lines);
		transport_close(&tr);
	}
	opened(&tr, true);
	(void)negotiated(&tr);
	tr.tr_refuse_queue = true;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == ENXIO, "refused");
	transport_close(&tr);
}

static void
size_has_a_bound(const void *arg)
{
	bool modern = arg != NULL;
	struct transport tr;

	opened(&tr, modern);
	(void)negotiated(&tr);
	tr.tr_sizes[0] = 1024;
	specs[0].vqs_max_size = 100;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
	specs[0].vqs_max_size = 0;
	/* The next power of two below; a legacy device's size is its own. */
	CHECK(driver.q[0]->q_size == (modern ? 64 : 1024), "%u", driver.q[0]->q_size);
	tear_down(&tr);
}

static void
queues_may_be_left_out(const void *arg __unused)
{
	struct virtio_queue_spec some[3];
	struct transport tr;

	opened(&tr, true);
	(void)negotiated(&tr);
	memcpy(some, specs, sizeof(some));
	some[1].vqs_spec.pqs_pvq = NULL;
	tr.tr_sizes[2] = 4;
	CHECK(virtio_alloc_queues(tr.tr_child, some, 3, INTR_TYPE_BIO) == 0, "error");
	CHECK(tr.tr_enabled[0] && !tr.tr_enabled[1] && tr.tr_enabled[2], "enabled");
	CHECK(tr.tr_queue_vector[0] == 1 && tr.tr_queue_vector[2] == -1, "vectors");
	virtio_start(tr.tr_child);
	tear_down(&tr);
}

static void
shortage_leaves_nothing(const void *arg __unused)
{
	struct transport tr;
	int error, n;

	error = ENOMEM;
	for (n = 1; error != 0; n++) {
		opened(&tr, true);
		(void)negotiated(&tr);
		kpi_fail_after = n;
		error = virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO);
		kpi_fail_after = 0;
		if (error == 0)
			tear_down(&tr);
		else
			transport_close(&tr);
		CHECK(n < 1000, "never works");
	}
	CHECK(n > 3, "there was no shortage");
}

/* With n messages, and one that the device refuses: which way is taken? */
static void
way_case(int n, int refuse, int setup_fails, bool wired, int config, int first, int second)
{
	struct transport tr;

	opened(&tr, true);
	(void)negotiated(&tr);
	tr.tr_nvectors = n;
	tr.tr_refuse_vector = refuse;
	kpi_setup_fails = setup_fails;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
	kpi_setup_fails = 0;
	CHECK(tr.tr_bus.vb_wired == wired, "%d messages: wired %d", n, tr.tr_bus.vb_wired);
	CHECK(tr.tr_config_vector == config && tr.tr_queue_vector[0] == first &&
	    tr.tr_queue_vector[1] == second, "%d messages: vectors %d, %d, %d", n,
	    tr.tr_config_vector, tr.tr_queue_vector[0], tr.tr_queue_vector[1]);
	CHECK(wired || first == config || strcmp(kpi_described(&tr.tr_irqs[first]),
	    first == second ? "all" : "q1") == 0, "%d messages: not described", n);
	tear_down(&tr);
}

static void
ways_of_interrupts(const void *arg __unused)
{
	static const struct virtio_queue_spec silent = { .vqs_spec = { .pqs_name = "q1",
	    .pqs_max_segs = 2, .pqs_cpu = -1, .pqs_pvq = &driver.q[0] } };
	struct transport tr;

	way_case(8, -2, 0, false, 0, 1, 2);
	way_case(3, -2, 0, false, 0, 1, 2);
	way_case(2, -2, 0, false, 0, 1, 1);
	way_case(1, -2, 0, false, 0, 0, 0);
	way_case(0, -2, 0, true, -1, -1, -1);
	/* The device has no room for the last vector, for the second, for any. */
	way_case(8, 2, 0, false, 0, 1, 1);
	way_case(8, 1, 0, false, 0, 0, 0);
	way_case(8, 0, 0, true, -1, -1, -1);
	/* A handler can't be set up. */
	way_case(8, -2, 3, false, 0, 1, 1);

	/* Queues that have no handlers need no vector, in any way. */
	opened(&tr, true);
	(void)negotiated(&tr);
	kpi_setup_fails = 1;
	CHECK(virtio_alloc_queues(tr.tr_child, &silent, 1, INTR_TYPE_BIO) == 0, "error");
	kpi_setup_fails = 0;
	CHECK(tr.tr_bus.vb_nirqs == 1 && kpi_intrs == 1 && tr.tr_config_vector == 0 &&
	    tr.tr_queue_vector[0] == -1, "%d vectors, of the queue %d", tr.tr_bus.vb_nirqs,
	    tr.tr_queue_vector[0]);
	tear_down(&tr);

	/* Memory that has no addresses is none. */
	opened(&tr, true);
	(void)negotiated(&tr);
	kpi_load_error = EINVAL;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == ENOMEM, "error");
	kpi_load_error = 0;
	kpi_tag_error = ENOMEM;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == ENOMEM, "error");
	kpi_tag_error = 0;
	transport_close(&tr);

	opened(&tr, true);
	(void)negotiated(&tr);
	tr.tr_nvectors = 0;
	tr.tr_no_wired = true;
	kpi_lines = 0;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == ENXIO && kpi_lines == 1 &&
	    strcmp(kpi_line, "no interrupt can be allocated (error 6)\n") == 0, "%d lines: %s",
	    kpi_lines, kpi_line);
	transport_close(&tr);
}

static void
messages_reach_their_handler(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, true, 2);
	CHECK(kpi_bound_to(&tr.tr_irqs[0]) == -1 && kpi_bound_to(&tr.tr_irqs[1]) == -1 &&
	    kpi_bound_to(&tr.tr_irqs[2]) == 0, "on CPU %d, not 0", kpi_bound_to(&tr.tr_irqs[2]));
	(void)kpi_interrupt(&tr.tr_irqs[1]);
	(void)kpi_interrupt(&tr.tr_irqs[0]);
	CHECK(driver.intrs[0] == 0 && kpi_run_tasks() == 0, "interrupt before start");
	virtio_start(tr.tr_child);
	CHECK(kpi_interrupt(&tr.tr_irqs[1]) && kpi_interrupt(&tr.tr_irqs[2]) &&
	    kpi_interrupt(&tr.tr_irqs[2]), "not wanted");
	CHECK(driver.intrs[0] == 1 && driver.intrs[1] == 2, "%d, %d", driver.intrs[0],
	    driver.intrs[1]);
	CHECK(driver.q[1]->q_stats.qs_intrs == 2, "statistics");
	CHECK(kpi_interrupt(&tr.tr_irqs[0]) && tr.tr_changes == 0, "in the handler");
	CHECK(kpi_delay == 0, "it waits");
	CHECK(kpi_run_tasks() == 1 && tr.tr_changes == 1, "no change of configuration");
	/* One that the driver was not told of before the device was stopped. */
	CHECK(kpi_interrupt(&tr.tr_irqs[0]) && virtio_quiesce(tr.tr_child) == 0, "not stopped");
	CHECK(kpi_run_tasks() == 1 && tr.tr_changes == 1, "told of a device that is stopped");
	tear_down(&tr);
}

/* Whatever way is taken, with so many messages. */
static void
way_delivers(int n)
{
	struct transport tr;
	struct resource *conf, *irqs[2];
	int i, changes;

	opened(&tr, true);
	(void)negotiated(&tr);
	tr.tr_nvectors = n;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
	conf = &tr.tr_irqs[n > 0 ? tr.tr_config_vector : TR_VECTORS];
	for (i = 0; i < 2; i++) {
		irqs[i] = &tr.tr_irqs[n > 0 ? tr.tr_queue_vector[i] : TR_VECTORS];
		tr.tr_isr = VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG;
		CHECK(kpi_interrupt(irqs[i]), "%d messages: no handler of queue %d", n, i);
	}
	CHECK(driver.intrs[0] == 0 && driver.intrs[1] == 0 && kpi_run_tasks() == 0,
	    "%d messages: interrupt before start", n);
	virtio_start(tr.tr_child);
	for (i = 0; i < 2; i++) {
		memset(driver.intrs, 0, sizeof(driver.intrs));
		changes = tr.tr_changes;
		tr.tr_isr = VIRTIO_ISR_QUEUE;
		CHECK(kpi_interrupt(irqs[i]) && driver.intrs[i] == 1 &&
		    driver.intrs[1 - i] == (n > 2 ? 0 : 1), "%d messages, queue %d: %d, %d", n, i,
		    driver.intrs[0], driver.intrs[1]);
		/* One message for everything may be for the configuration as well. */
		CHECK(kpi_run_tasks() == (n == 1) && tr.tr_changes - changes == (n == 1),
		    "%d messages, queue %d: the configuration", n, i);
	}
	changes = tr.tr_changes;
	tr.tr_isr = VIRTIO_ISR_CONFIG;
	CHECK(kpi_interrupt(conf) && kpi_run_tasks() == 1 && tr.tr_changes == changes + 1,
	    "%d messages: no change of configuration", n);
	CHECK(virtio_quiesce(tr.tr_child) == 0, "error");
	memset(driver.intrs, 0, sizeof(driver.intrs));
	tr.tr_isr = VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG;
	(void)kpi_interrupt(irqs[0]);
	CHECK(driver.intrs[0] == 0 && kpi_run_tasks() == 0, "%d messages: stopped", n);
	tear_down(&tr);
}

static void
each_way_delivers(const void *arg __unused)
{

	way_delivers(TR_VECTORS);
	way_delivers(2);
	way_delivers(1);
	way_delivers(0);
}

static void
wired_interrupt_has_a_cause(const void *arg __unused)
{
	struct transport tr;
	struct resource *irq = &tr.tr_irqs[TR_VECTORS];

	opened(&tr, true);
	(void)negotiated(&tr);
	tr.tr_nvectors = 0;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
	virtio_start(tr.tr_child);
	CHECK(!kpi_interrupt(irq), "another device's interrupt is claimed");
	tr.tr_isr = 0xff;
	CHECK(!kpi_interrupt(irq) && driver.intrs[0] == 0, "a device that was removed");
	tr.tr_isr = VIRTIO_ISR_QUEUE;
	CHECK(kpi_interrupt(irq) && driver.intrs[0] == 1 && driver.intrs[1] == 1, "queues");
	CHECK(kpi_run_tasks() == 0, "queues only");
	tr.tr_isr = VIRTIO_ISR_CONFIG;
	CHECK(kpi_interrupt(irq) && driver.intrs[0] == 1 && kpi_run_tasks() == 1, "configuration");
	tr.tr_isr = VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG;
	CHECK(kpi_interrupt(irq) && driver.intrs[0] == 2 && kpi_run_tasks() == 1, "both");
	tr.tr_isr = 0;
	tear_down(&tr);
}

/* The thread that handles it removes the handler; the driver finds that the device is of no use. */
static void
dead_line_loses_its_handler(const void *arg __unused)
{
	struct transport tr;
	struct resource *irq = &tr.tr_irqs[TR_VECTORS];
	int i;

	for (i = 0; i < 2; i++) {
		opened(&tr, true);
		tr.tr_bus.vb_own_line = true;
		(void)negotiated(&tr);
		tr.tr_nvectors = 0;
		CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
		virtio_start(tr.tr_child);
		CHECK(kpi_intrs == 1, "%d handlers", kpi_intrs);
		tr.tr_isr = VIRTIO_ISR_CONFIG | VIRTIO_ISR_DEAD;
		CHECK(kpi_interrupt(irq) && driver.intrs[0] == 0, "no interrupt");
		tr.tr_reset_error = EIO;
		/* The second time the queues are freed before the thread has run. */
		if (i == 0) {
			CHECK(kpi_run_tasks() == 2 && kpi_intrs == 0, "%d handlers", kpi_intrs);
			CHECK(tr.tr_changes == 1, "no configuration change");
			CHECK(virtio_quiesce(tr.tr_child) == 0, "its memory is ours");
			CHECK(virtio_restart(tr.tr_child) == ENODEV, "in use again");
		}
		tear_down(&tr);
	}
}

/* A reset takes the cause back, but not the interrupt that is on its way. */
static void
interrupt_before_a_reset_is_no_stray(const void *arg __unused)
{
	struct transport tr;
	struct resource *irq = &tr.tr_irqs[TR_VECTORS];

	opened(&tr, true);
	(void)negotiated(&tr);
	tr.tr_nvectors = 0;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
	virtio_start(tr.tr_child);
	CHECK(virtio_quiesce(tr.tr_child) == 0, "error");
	CHECK(virtio_restart(tr.tr_child) == 0, "error");
	CHECK(kpi_interrupt(irq), "the device's own");
	CHECK(!kpi_interrupt(irq) && driver.intrs[0] == 0, "there is one only");
	tear_down(&tr);
}

/* Whoever attaches or detaches may sleep, and a suspend come. */
static void
suspend_keeps_out_of_attach_and_detach(const void *arg __unused)
{
	struct transport tr;
	device_t dev;

	opened(&tr, true);
	dev = tr.tr_bus.vb_dev;
	kpi_device_state(tr.tr_child, DS_ALIVE);
	CHECK(virtio_bus_suspend_child(dev, tr.tr_child) == 0 &&
	    !device_is_suspended(tr.tr_child), "without a driver");
	CHECK(virtio_bus_resume_child(dev, tr.tr_child) == 0, "without a driver");
	kpi_device_state(tr.tr_child, DS_ATTACHING);
	CHECK(virtio_bus_suspend_child(dev, tr.tr_child) == EBUSY, "attaches");
	kpi_device_state(tr.tr_child, DS_ATTACHED);
	kpi_suspend_error = EIO;
	CHECK(virtio_bus_suspend_child(dev, tr.tr_child) == EIO &&
	    !device_is_suspended(tr.tr_child) && !tr.tr_bus.vb_asleep, "its driver can't");
	kpi_suspend_error = 0;
	CHECK(virtio_bus_suspend_child(dev, tr.tr_child) == 0 &&
	    device_is_suspended(tr.tr_child), "attached");
	CHECK(virtio_bus_resume_child(dev, tr.tr_child) == 0 &&
	    !device_is_suspended(tr.tr_child), "suspended");
	CHECK(virtio_leave(tr.tr_child) == 0, "detaches");
	CHECK(virtio_leave(tr.tr_child) == EBUSY, "detaches twice at once");
	CHECK(virtio_bus_suspend_child(dev, tr.tr_child) == EBUSY, "detaches");
	virtio_bus_child_detached(dev, tr.tr_child);
	CHECK(virtio_bus_suspend_child(dev, tr.tr_child) == 0, "another driver");
	tear_down(&tr);
}

static void
at_driver_ok(struct transport *tr)
{

	CHECK(kpi_interrupt(&tr->tr_irqs[1]), "not wanted");
}

static void
interrupt_at_driver_ok_is_heard(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, true, 2);
	tr.tr_at_driver_ok = at_driver_ok;
	virtio_start(tr.tr_child);
	CHECK(driver.intrs[0] == 1, "lost");
	tear_down(&tr);
}

static void
kick_before_start_is_made_up_for(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, true, 2);
	post(driver.q[0]);
	(void)pvq_kick(driver.q[0]);
	CHECK(tr.tr_notified[0] == 0, "too early");
	virtio_start(tr.tr_child);
	CHECK(tr.tr_notified[0] == 1 && tr.tr_notified[1] == 0, "%u, %u", tr.tr_notified[0],
	    tr.tr_notified[1]);
	tear_down(&tr);
}

static void
restart_brings_all_back(const void *arg)
{
	struct transport tr;
	struct pvq *q;

	set_up(&tr, arg != NULL, 2);
	q = driver.q[0];
	virtio_start(tr.tr_child);
	post(q);
	pvq_break(q, PVQ_FAULT_ID, 1);
	CHECK(virtio_quiesce(tr.tr_child) == 0 && tr.tr_status == 0, "stop");
	(void)kpi_interrupt(&tr.tr_irqs[1]);
	CHECK(driver.intrs[0] == 0, "interrupt while stopped");
	CHECK(virtio_restart(tr.tr_child) == EBUSY, "with a chain in flight");
	CHECK(pvq_drain(q) == q, "drain");
	CHECK(virtio_restart(tr.tr_child) == 0, "restart");
	CHECK(driver.q[0] == q && !pvq_broken(q), "another queue, or broken");
	CHECK(tr.tr_enabled[0] && tr.tr_enabled[1] && tr.tr_queue_vector[1] == 2 &&
	    tr.tr_config_vector == 0, "not set up");
	CHECK(tr.tr_accepted == virtio_features(tr.tr_child), "other features");
	virtio_start(tr.tr_child);
	post(q);
	CHECK(pvq_kick(q) && tr.tr_notified[0] == 1, "kick");
	CHECK(virtio_quiesce(tr.tr_child) == 0, "stop");
	CHECK(pvq_drain(q) == q, "drain");
	tr.tr_offered &= ~F_ONE;
	CHECK(virtio_restart(tr.tr_child) == ENODEV, "the device offers less");
	tear_down(&tr);
}

/* Not while the machine is dumping, which must not sleep: for no interrupt either. */
static void
spare_queue_is_used_from_the_next_start_on(const void *arg __unused)
{
	struct virtio_queue_spec first[2] = { specs[0], specs[1] };
	struct transport tr;
	struct pvq *q;

	opened(&tr, true);
	(void)negotiated(&tr);
	first[1].vqs_spec.pqs_pvq = NULL;
	CHECK(virtio_alloc_queues(tr.tr_child, first, 2, INTR_TYPE_BIO) == 0, "error");
	virtio_start(tr.tr_child);
	q = driver.q[0];
	CHECK(q != NULL && driver.q[1] == NULL && !tr.tr_enabled[1], "both");
	CHECK(virtio_spare_queues(tr.tr_child, specs, 2) == 0 &&
	    virtio_spare_queues(tr.tr_child, specs, 2) == 0, "no memory");
	CHECK(driver.q[1] == NULL && !tr.tr_enabled[1], "before a start");
	panicstr = "a test";
	CHECK(virtio_quiesce(tr.tr_child) == 0 && virtio_restart(tr.tr_child) == 0, "restart");
	CHECK(driver.q[1] == NULL && tr.tr_enabled[0] && !tr.tr_enabled[1], "in a dump");
	virtio_intr_free(&tr.tr_bus);
	CHECK(virtio_quiesce(tr.tr_child) == 0 && virtio_restart(tr.tr_child) == 0, "restart");
	CHECK(kpi_intrs == 0 && tr.tr_enabled[0], "%d handlers in a dump", kpi_intrs);
	panicstr = NULL;
	CHECK(virtio_quiesce(tr.tr_child) == 0 && virtio_restart(tr.tr_child) == 0, "restart");
	CHECK(driver.q[0] == q && driver.q[1] != NULL && tr.tr_enabled[1], "not used");
	CHECK(tr.tr_queue_vector[0] == 1 && tr.tr_queue_vector[1] == 2, "vectors");
	virtio_start(tr.tr_child);
	(void)kpi_interrupt(&tr.tr_irqs[2]);
	CHECK(driver.intrs[1] == 1, "no interrupt");
	tear_down(&tr);
}

/* A queue of 8 places with chains of up to 4 segments. */
static void
size_changes_with_a_restart(const void *arg)
{
	struct transport tr;
	bool packed = arg != NULL;
	int i;

	opened(&tr, true);
	if (packed)
		tr.tr_offered |= VIRTIO_F_RING_PACKED;
	(void)negotiated(&tr);
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 2, INTR_TYPE_BIO) == 0, "error");
	virtio_start(tr.tr_child);
	CHECK(virtio_set_queue_size(tr.tr_child, 0, 3) == EINVAL, "less than a chain");
	CHECK(virtio_set_queue_size(tr.tr_child, 0, 16) == EINVAL, "more than there is memory for");
	CHECK(virtio_set_queue_size(tr.tr_child, 0, 5) == (packed ? 0 : EINVAL), "any number");
	CHECK(virtio_set_queue_size(tr.tr_child, 0, 4) == 0, "refused");
	CHECK(driver.q[0]->q_size == 8, "too early");
	post(driver.q[0]);
	CHECK(virtio_quiesce(tr.tr_child) == 0, "stop");
	while (pvq_drain(driver.q[0]) != NULL)
		continue;
	CHECK(virtio_restart(tr.tr_child) == 0, "restart");
	CHECK(driver.q[0]->q_size == 4 && driver.q[1]->q_size == 8, "%u and %u places",
	    driver.q[0]->q_size, driver.q[1]->q_size);
	virtio_start(tr.tr_child);
	for (i = 0; i < 4; i++)
		post(driver.q[0]);
	CHECK(pvq_room(driver.q[0]) == 0, "room for %d more", pvq_room(driver.q[0]));
	tear_down(&tr);
}

static void
legacy_size_is_the_devices(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, false, 2);
	CHECK(virtio_set_queue_size(tr.tr_child, 0, 4) == EOPNOTSUPP, "changed");
	tear_down(&tr);
}

static void
lost_device_keeps_its_rings(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, true, 2);
	virtio_start(tr.tr_child);
	tr.tr_reset_error = ETIMEDOUT;
	CHECK(virtio_quiesce(tr.tr_child) == ETIMEDOUT, "stop");
	virtio_free_queues(tr.tr_child);
	CHECK(driver.q[0] == NULL && kpi_dma_maps > 0, "the rings were freed");
	CHECK(kpi_intrs == 0 && tr.tr_irqs_out == 0, "interrupts were not");
}

static void
gone_device_is_freed(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, true, 2);
	virtio_start(tr.tr_child);
	tr.tr_reset_error = ENXIO;
	tr.tr_status = 0xff;
	CHECK(!virtio_needs_reset(tr.tr_child), "a device that was removed requests nothing");
	CHECK(virtio_quiesce(tr.tr_child) == 0, "stop");
	tear_down(&tr);
}

/* Before its driver is asked.  What passes is reported by who tries it again. */
static void
first_reset_fails(const void *arg __unused)
{
	struct virtio_bus *vb;
	struct transport tr;

	opened(&tr, true);
	vb = &tr.tr_bus;
	virtio_bus_child_detached(tr.tr_dev, tr.tr_child);
	CHECK(virtio_bus_detach(vb) == 0, "detach");
	vb->vb_detaching = false;
	tr.tr_reset_error = ENXIO;
	kpi_lines = 0;
	CHECK(virtio_bus_attach(vb) == ENXIO && kpi_lines == 1 &&
	    strstr(kpi_line, "was removed") != NULL, "%d lines: %s", kpi_lines, kpi_line);
	tr.tr_reset_error = ETIMEDOUT;
	CHECK(virtio_bus_attach(vb) == ETIMEDOUT && kpi_lines == 1 &&
	    strcmp(vb->vb_why, "device does not answer a reset") == 0, "%s", vb->vb_why);
	tr.tr_reset_error = 0;
	CHECK(virtio_bus_attach(vb) == 0, "attach");
	tr.tr_child = vb->vb_child;
	transport_close(&tr);
}

static void
device_asks_for_a_reset(const void *arg __unused)
{
	struct transport tr;

	set_up(&tr, true, 2);
	virtio_start(tr.tr_child);
	CHECK(!virtio_needs_reset(tr.tr_child), "not yet");
	tr.tr_status |= VIRTIO_STATUS_NEEDS_RESET;
	CHECK(virtio_needs_reset(tr.tr_child), "unheard");
	tear_down(&tr);
	/* Before DRIVER_OK: the bit is not written back. */
	set_up(&tr, true, 2);
	tr.tr_status |= VIRTIO_STATUS_NEEDS_RESET;
	virtio_start(tr.tr_child);
	CHECK((tr.tr_status_seen & VIRTIO_STATUS_DRIVER_OK) != 0, "not started");
	CHECK(virtio_needs_reset(tr.tr_child), "unheard");
	tear_down(&tr);
}

/* One whose queue reset does not end is reset as a whole from then on. */
static void
queue_reset_that_does_not_end(const void *arg __unused)
{
	struct transport tr;

	kpi_quiet = true;
	opened(&tr, true);
	tr.tr_offered |= VIRTIO_F_RING_RESET;
	{
		static const struct virtio_feature resets[] = {
			{ F_THREE, "THREE", VIRTIO_FEATURE_REQUIRED },
			{ VIRTIO_F_RING_RESET, "RING_RESET", 0 },
			{ 0, NULL, 0 }
		};
		uint64_t got;

		CHECK(virtio_negotiate(tr.tr_child, resets, &got) == 0, "negotiated");
	}
	tr.tr_sizes[2] = 4;
	CHECK(virtio_alloc_queues(tr.tr_child, specs, 3, INTR_TYPE_BIO) == 0, "queues");
	virtio_start(tr.tr_child);
	/* One without interrupts has no vector then either. */
	CHECK(virtio_stop_queue(tr.tr_child, 2) == 0 && virtio_restart_queue(tr.tr_child, 2) == 0 &&
	    tr.tr_queue_vector[2] == -1, "vector %d", tr.tr_queue_vector[2]);
	CHECK(virtio_stop_queue(tr.tr_child, 1) == 0 && virtio_restart_queue(tr.tr_child, 1) == 0,
	    "not reset");
	tr.tr_queue_reset_error = EIO;
	kpi_lines = 0;
	CHECK(virtio_stop_queue(tr.tr_child, 1) == EIO && kpi_lines == 0, "an error");
	tr.tr_queue_reset_error = 0;
	CHECK(virtio_stop_queue(tr.tr_child, 1) == 0 && virtio_restart_queue(tr.tr_child, 1) == 0,
	    "not reset");
	tr.tr_queue_reset_error = ETIMEDOUT;
	CHECK(virtio_stop_queue(tr.tr_child, 0) == ETIMEDOUT && kpi_lines == 1, "%d lines", kpi_lines);
	tr.tr_queue_reset_error = 0;
	CHECK(virtio_stop_queue(tr.tr_child, 1) == EOPNOTSUPP, "tried again");
	tear_down(&tr);
}

static int polls, polls_until;

static int
poll_counted(device_t dev, u_int arg)
{

	CHECK(dev == kpi_device() && arg == 7, "of another one");
	return (++polls == polls_until ? ENXIO : EAGAIN);
}

/* A hundred times after ten microseconds, and a thousand times after a millisecond. */
static void
reset_is_waited_for(const void *arg __unused)
{
	int error;

	for (polls_until = 1; polls_until <= 1101; polls_until += polls_until < 99 ? 98 : 1) {
		polls = 0;
		kpi_delayed = 0;
		kpi_paused = 0;
		error = virtio_bus_wait(kpi_device(), poll_counted, 7);
		CHECK(error == (polls_until <= 1100 ? ENXIO : ETIMEDOUT) &&
		    polls == MIN(polls_until, 1100), "error %d at poll %d of %d", error, polls,
		    polls_until);
		CHECK(kpi_delayed == 10 * (uint64_t)MIN(100, polls_until - 1) &&
		    kpi_paused == MAX(0, polls_until - 101) * SBT_1MS, "%ju us, and %jd", kpi_delayed,
		    kpi_paused);
	}
}

static const struct hosted_test tests[] = {
	{ "takes_what_both_know", "Offered, known and not switched off", takes_what_both_know,
	    NULL },
	{ "may_be_repeated_with_less", "Negotiation starts with a reset",
	    may_be_repeated_with_less, NULL },
	{ "legacy_has_32_bits", "And no FEATURES_OK", legacy_has_32_bits, NULL },
	{ "refusals_differ", "Each has its errno and a line in the log",
	    refusals_differ, NULL },
	{ "configuration_is_read_by_fields", "One access for a field, nothing past the end",
	    configuration_is_read_by_fields, NULL },
	{ "configuration_is_consistent_modern", "By its generation", configuration_is_consistent,
	    tests },
	{ "configuration_is_consistent_legacy", "By reading twice", configuration_is_consistent,
	    NULL },
	{ "halves_by_byte_order", "Fields of 8 bytes", halves_by_byte_order, NULL },
	{ "child_is_found_by_its_last_name", "As devctl attach needs it",
	    child_is_found_by_its_last_name, NULL },
	{ "absurd_queues_are_refused", "No queue, or a size that is none",
	    absurd_queues_are_refused, NULL },
	{ "features_choose_the_ring", "RING_PACKED is a packed one, of any size",
	    features_choose_the_ring, NULL },
	{ "size_has_a_bound_modern", "The driver's bound is kept", size_has_a_bound, tests },
	{ "size_has_a_bound_legacy", "The device's size is kept", size_has_a_bound, NULL },
	{ "queues_may_be_left_out", "And a queue may be polled", queues_may_be_left_out, NULL },
	{ "shortage_leaves_nothing", "Any allocation may fail", shortage_leaves_nothing, NULL },
	{ "ways_of_interrupts", "Fewer messages, refused vectors, failed handlers",
	    ways_of_interrupts, NULL },
	{ "each_way_delivers", "Queues and configuration, with fewer messages", each_way_delivers,
	    NULL },
	{ "messages_reach_their_handler", "While the device is live",
	    messages_reach_their_handler, NULL },
	{ "wired_interrupt_has_a_cause", "Queue, configuration, both, or another device",
	    wired_interrupt_has_a_cause, NULL },
	{ "dead_line_loses_its_handler", "Once, by the thread or with the queues",
	    dead_line_loses_its_handler, NULL },
	{ "interrupt_before_a_reset_is_no_stray", "A line that is masked stays so",
	    interrupt_before_a_reset_is_no_stray, NULL },
	{ "suspend_keeps_out_of_attach_and_detach", "Refused meanwhile",
	    suspend_keeps_out_of_attach_and_detach, NULL },
	{ "interrupt_at_driver_ok_is_heard", "A device may interrupt at once",
	    interrupt_at_driver_ok_is_heard, NULL },
	{ "kick_before_start_is_made_up_for", "But not sent before DRIVER_OK",
	    kick_before_start_is_made_up_for, NULL },
	{ "restart_brings_all_back_modern", "Features, queues, vectors", restart_brings_all_back,
	    tests },
	{ "restart_brings_all_back_legacy", "Features, queues, vectors", restart_brings_all_back,
	    NULL },
	{ "spare_queue_is_used_from_the_next_start_on", "With its interrupt; not in a dump",
	    spare_queue_is_used_from_the_next_start_on, NULL },
	{ "size_changes_with_a_restart_split", "To a power of two", size_changes_with_a_restart,
	    NULL },
	{ "size_changes_with_a_restart_packed", "To any number", size_changes_with_a_restart,
	    tests },
	{ "legacy_size_is_the_devices", "And stays", legacy_size_is_the_devices, NULL },
	{ "lost_device_keeps_its_rings", "It may still write to them",
	    lost_device_keeps_its_rings, NULL },
	{ "gone_device_is_freed", "It can't write any more", gone_device_is_freed, NULL },
	{ "first_reset_fails", "with a line, or is tried again", first_reset_fails, NULL },
	{ "queue_reset_that_does_not_end", "Is the last one", queue_reset_that_does_not_end, NULL },
	{ "reset_is_waited_for", "For a second", reset_is_waited_for, NULL },
	{ "device_asks_for_a_reset", "NEEDS_RESET", device_asks_for_a_reset, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	kpi_bounced = true;
	return (tests);
}
