/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: a split virtqueue whose device writes what the fuzzer says, where the fuzzer says.
 *
 * The input is a program of operations, one byte each with the bytes that it takes: the driver's
 * (put, commit, abort, kick, get ...), and the device's, which can store anything anywhere in the
 * memory that it shares, or complete what it finds in the available ring.
 *
 * Besides what ASan and UBSan see: a cookie comes out only if it is in flight, once, and with a length
 * that fits; and what does not come out is there to be drained, in order.
 */

#include "fuzz_queue.h"

#define	FUZZ_SIZE	8

int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Complete the head at a place of the available ring: valid unless the fuzzer wrote over it. */
static void
fuzz_complete(struct fuzz *fz)
{
	uint8_t place = fuzz_byte(fz), len = fuzz_byte(fz);
	uint8_t *elem = fz->ring + fz->device + 4 + 8 * (fz->used % FUZZ_SIZE);
	uint32_t v;

	v = *(uint16_t *)(fz->ring + fz->driver + 4 + 2 * (place % FUZZ_SIZE));
	memcpy(elem, &v, 4);
	v = len;
	memcpy(elem + 4, &v, 4);
	fz->used++;
	memcpy(fz->ring + fz->device + 2, &fz->used, 2);
}

/* The used ring is where it hurts. */
static void
fuzz_poke_used(struct fuzz *fz)
{
	uint8_t off = fuzz_byte(fz);
	uint16_t v = fuzz_word(fz);

	memcpy(fz->ring + fz->device + off % (fz->size - fz->device - 1), &v, 2);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz fz = { .data = data, .left = size, .next = 1, .committed = 1 };
	uint8_t options = fuzz_byte(&fz);
	struct virtqueue_params params = {
		.vqp_dev = kpi_device(),
		.vqp_name = "fuzz",
		.vqp_dmat = kpi_dma_tag,
		.vqp_features = ((options & 1) != 0 ? VIRTIO_F_INDIRECT_DESC : 0) |
		    ((options & 2) != 0 ? VIRTIO_F_EVENT_IDX : 0) |
		    ((options & 8) != 0 ? VIRTIO_F_IN_ORDER : 0) |
		    ((options & 12) != 0 ? VIRTIO_F_VERSION_1 : 0),
		.vqp_size = FUZZ_SIZE,
		.vqp_max_segs = FUZZ_SEGS,
		.vqp_align = VRING_USED_ALIGN,
		.vqp_notify = fuzz_notify,
	};

	kpi_quiet = true;
	CHECK(virtqueue_create(&params, &fz.q) == 0, "create");
	fuzz_find(&fz, vring_size(FUZZ_SIZE, VRING_USED_ALIGN));
	fuzz_run(&fz, fuzz_poke_used, fuzz_complete);
	return (0);
}
