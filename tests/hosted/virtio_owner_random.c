/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_random, whose device and random(4) are the test.
 */

#include "virtio_owner.h"

#include <sys/kernel.h>
#include <sys/errno.h>
#include <sys/module.h>
#include <sys/random.h>

#include <dev/random/randomdev.h>

#define	SIZE	256

static struct card *const card = &cards[0];

static void
begin(void)
{

	kpi_bounced = true;
	owner_load_all();
	OWNS(0, "vtrnd on vtpci");
	CHECK(owner_source != NULL && owner_source->rs_source == RANDOM_PURE_VIRTIO, "no source");
}

/* The device has a buffer of zeros, and writes so many bytes to it. */
static void
writes(u_int n, u_char first)
{
	struct peer *pe = card->ca_peer;
	struct peer_chain pr;
	u_char *buf;
	u_int i;

	CHECK(card->ca_kicks == 1, "%u notifications", card->ca_kicks);
	card->ca_kicks = 0;
	CHECK(pe->pe_ops->po_fetch(pe, &pr), "it has no buffer");
	CHECK(pr.pr_nread == 0 && pr.pr_nwrite == 1 && pr.pr_segs[0].len == SIZE, "%d, %d segments",
	    pr.pr_nread, pr.pr_nwrite);
	buf = (u_char *)(uintptr_t)pr.pr_segs[0].addr;
	for (i = 0; i < SIZE; i++)
		CHECK(buf[i] == 0, "byte %u was left there", i);
	for (i = 0; i < MIN(n, SIZE); i++)
		buf[i] = first + i;
	pe->pe_ops->po_complete(pe, pr.pr_id, n);
	pe->pe_ops->po_publish(pe);
	CHECK(!pe->pe_ops->po_interrupts(pe), "an interrupt was requested");
	CHECK(!pe->pe_ops->po_listen(pe), "it has two buffers");
}

/* random(4) reads; none of the bytes was read before. */
static void
reads(u_int len, u_int expected)
{
	static bool seen[256];
	u_char buf[SIZE + 1];
	u_int i, n;

	memset(buf, 0, sizeof(buf));
	n = owner_source->rs_read(buf, len);
	CHECK(n == expected, "%u bytes, not %u", n, expected);
	for (i = 0; i < n; i++) {
		CHECK(buf[i] != 0 && !seen[buf[i]], "byte %u: %u", i, buf[i]);
		seen[buf[i]] = true;
	}
	for (; i < sizeof(buf); i++)
		CHECK(buf[i] == 0, "byte %u is more than what was read", i);
}

/* As many as there are, each once; what is empty is given to the device again. */
void
random_is_read_once(void)
{
	struct random_source *source;
	uint64_t bytes;
	char buf[8];

	begin();
	source = owner_source;
	reads(8, 0);
	writes(20, 1);
	reads(8, 8);
	CHECK(card->ca_kicks == 0, "given back too early");
	reads(8, 8);
	reads(8, 4);
	reads(8, 0);
	writes(1, 21);
	reads(1, 1);
	writes(100, 22);
	reads(100, 100);
	reads(8, 0);
	bytes = kpi_sysctl_value("bytes");
	CHECK(bytes == 121, "%ju bytes", (uintmax_t)bytes);
	CHECK(card->ca_kicks == 1, "%u notifications", card->ca_kicks);
	/* Its driver goes and comes, and begins anew. */
	owner_unload("virtio/virtio_random");
	CHECK(owner_source == NULL && card->ca_status == VIRTIO_STATUS_ACK, "status 0x%x",
	    card->ca_status);
	/* random(4) may have it still. */
	CHECK(source->rs_read(buf, sizeof(buf)) == 0, "of no device");
	card->ca_kicks = 0;
	owner_load("virtio/virtio_random");
	reads(8, 0);
	writes(4, 122);
	reads(3, 3);
	CHECK(kpi_sysctl_value("bytes") == 3, "bytes");
}

/* An answer without a byte, one that is too long, and a device that asks for it: a reset. */
void
random_of_a_broken_device(void)
{
	struct random_source *source;
	u_int resets;

	begin();
	writes(0, 0);
	resets = card->ca_resets;
	reads(8, 0);
	reads(8, 0);
	CHECK(card->ca_resets == resets && card->ca_kicks == 0, "reset where nothing may sleep");
	kpi_sleep(hz + 2);
	CHECK(card->ca_resets > resets, "not reset");
	writes(2, 1);
	reads(8, 2);
	resets = card->ca_resets;
	kpi_sleep(3 * hz);
	CHECK(card->ca_resets == resets, "reset once more");
	writes(SIZE + 1, 3);
	reads(8, 0);
	kpi_sleep(hz + 2);
	writes(2, 3);
	reads(8, 2);
	/* The device says that it needs one. */
	card->ca_kicks = 0;
	source = owner_source;
	card->ca_status |= VIRTIO_STATUS_NEEDS_RESET;
	(void)VIRTIO_CONFIG_CHANGED(card->ca_child);
	CHECK(owner_source == source && (card->ca_status & VIRTIO_STATUS_NEEDS_RESET) == 0,
	    "not reset");
	writes(3, 5);
	reads(8, 3);
	/* One that is not reset has no more; others of random(4)'s sources have. */
	card->ca_kicks = 0;
	card->ca_status |= VIRTIO_STATUS_NEEDS_RESET;
	card->ca_reset_error = ENXIO;
	(void)VIRTIO_CONFIG_CHANGED(card->ca_child);
	card->ca_reset_error = 0;
	reads(8, 0);
	CHECK(card->ca_kicks == 0, "in use");
	/* Nothing is done if nothing is wrong. */
	card->ca_status &= ~VIRTIO_STATUS_NEEDS_RESET;
	resets = card->ca_resets;
	(void)VIRTIO_CONFIG_CHANGED(card->ca_child);
	CHECK(card->ca_resets == resets, "reset");
}

/* A second device is left to the kernel, until the driver is loaded without the first. */
void
random_of_one_device(void)
{

	cards[2].ca_type = VIRTIO_ID_ENTROPY;
	begin();
	kpi_sleep(2);
	OWNS(2, "stock");
	CHECK(strstr(owner_line, "vtpci1: another entropy device is in use") != NULL, "%s", owner_line);
	writes(1, 1);
	reads(8, 1);
	card->ca_type = 0;
	owner_unload("virtio/virtio_random");
	owner_load("virtio/virtio_random");
	OWNS(2, "vtrnd on vtpci");
}

void
random_without_memory(void)
{
	int i, tags;

	owner_load("pv_virtio");
	owner_load("vbus/vtpci");
	tags = kpi_dma_tags;
	card->ca_no_queue = true;
	for (i = 0; i < 2; i++) {
		owner_load("virtio/virtio_random");
		kpi_sleep(2);
		OWNS(0, "stock");
		CHECK(kpi_dma_tags == tags && owner_source == NULL, "%d tags", kpi_dma_tags - tags);
		owner_unload("virtio/virtio_random");
	}
	card->ca_no_queue = false;
	owner_load("virtio/virtio_random");
	OWNS(0, "vtrnd on vtpci");
	owner_load("virtio/virtio_blk");
}

/* What it may still write to is nobody else's. */
void
random_device_keeps_its_buffer(void)
{
	int maps;

	begin();
	maps = kpi_dma_maps;
	card->ca_reset_error = ETIMEDOUT;
	owner_lines = 0;
	owner_unload("virtio/virtio_random");
	CHECK(strstr(owner_line, "the device did not release its memory: leaking it") != NULL, "%s",
	    owner_line);
	CHECK(kpi_dma_maps == maps && owner_source == NULL, "%d maps", kpi_dma_maps);
	card->ca_reset_error = 0;
	owner_leaked = maps;
	owner_load("virtio/virtio_random");
	OWNS(0, "vtrnd on vtpci");
}
