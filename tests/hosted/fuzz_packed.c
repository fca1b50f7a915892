/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: a packed virtqueue whose device writes what the fuzzer says, where the fuzzer says.
 *
 * The input is a program of operations, one byte each with the bytes that it takes: the driver's
 * (put, commit, abort, kick, get ...), and the device's, which can store anything anywhere in the
 * memory that it shares, or use what it finds in the ring.
 *
 * Besides what ASan and UBSan see: a cookie comes out only if it is in flight, once, and with a length
 * that fits; and what does not come out is there to be drained, in order.
 */

#include "fuzz_queue.h"

#define	FUZZ_SIZE	7

int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Use the descriptor at a place: one that is available unless the fuzzer wrote over it.  The flags are
 * of the turn that the device is in, or of another.
 */
static void
fuzz_complete(struct fuzz *fz)
{
	uint8_t what = fuzz_byte(fz), len = fuzz_byte(fz);
	uint8_t *from = fz->ring + 16 * (what % FUZZ_SIZE);
	uint8_t *to = fz->ring + 16 * (fz->used % FUZZ_SIZE);
	bool wrap = (fz->used / FUZZ_SIZE % 2 == 0) != (what >= 0xf0);
	uint32_t v = len;

	memcpy(to + 8, &v, 4);
	memcpy(to + 12, from + 12, 2);
	v = wrap ? 0x8080 : 0;
	memcpy(to + 14, &v, 2);
	fz->used += 1 + (what >> 4) % 3;
}

/* Ids and flags are where it hurts, and event suppression. */
static void
fuzz_poke_flags(struct fuzz *fz)
{
	uint8_t off = fuzz_byte(fz);
	uint16_t v = fuzz_word(fz);

	if (off % 4 == 3)
		memcpy(fz->ring + fz->device + off / 4 % 3, &v, 2);
	else
		memcpy(fz->ring + off / 4 % FUZZ_SIZE * 16 + 8 + off % 4 * 2, &v, 2);
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
		    ((options & 4) != 0 ? VIRTIO_F_IN_ORDER : 0) |
		    VIRTIO_F_VERSION_1 | VIRTIO_F_RING_PACKED,
		.vqp_size = FUZZ_SIZE,
		.vqp_max_segs = FUZZ_SEGS,
		.vqp_align = VRING_USED_ALIGN,
		.vqp_notify = fuzz_notify,
	};

	kpi_quiet = true;
	CHECK(virtqueue_create(&params, &fz.q) == 0, "create");
	fuzz_find(&fz, vring_packed_size(FUZZ_SIZE));
	fuzz_run(&fz, fuzz_poke_flags, fuzz_complete);
	return (0);
}
