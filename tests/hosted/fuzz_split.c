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

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/pvq.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

#include "host/host.h"
#include "kpi/kpi.h"

#define	FUZZ_SIZE	8
#define	FUZZ_SEGS	4
#define	FUZZ_CHAINS	256

struct fuzz {
	const uint8_t	*data;
	size_t		 left;
	struct pvq	*q;
	uint8_t		*ring;		/* all that is shared, but for indirect tables */
	size_t		 avail;		/* offsets in it */
	size_t		 used;
	size_t		 size;
	uintptr_t	 next;		/* number of the next chain */
	uintptr_t	 committed;	/* chains before this number are committed */
	uint32_t	 room[FUZZ_CHAINS]; /* bytes that may be written */
	bool		 inflight[FUZZ_CHAINS];
	uint16_t	 used_idx;
};

int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t
fuzz_byte(struct fuzz *fz)
{

	if (fz->left == 0)
		return (0);
	fz->left--;
	return (*fz->data++);
}

static uint16_t
fuzz_word(struct fuzz *fz)
{
	uint16_t low = fuzz_byte(fz);

	return (low | fuzz_byte(fz) << 8);
}

static void
fuzz_notify(void *arg __unused, uint16_t index __unused)
{
}

static void
fuzz_put(struct fuzz *fz)
{
	bus_dma_segment_t segs[FUZZ_SEGS];
	uint8_t shape = fuzz_byte(fz);
	struct pvq_chain pc = {
		.pc_segs = segs,
		.pc_nread = shape % 3,
		.pc_nwrite = shape / 3 % 3,
		.pc_cookie = (void *)fz->next,
	};
	int i, slots;

	if (fz->next >= FUZZ_CHAINS)
		return;
	fz->room[fz->next] = 0;
	for (i = 0; i < pc.pc_nread + pc.pc_nwrite; i++) {
		segs[i].ds_addr = 0x1000 * fz->next;
		segs[i].ds_len = 100 + i;
		if (i >= pc.pc_nread)
			fz->room[fz->next] += 100 + i;
	}
	slots = pvq_prepare(fz->q, &pc);
	if (slots == 0 || pvq_reserve(fz->q, slots) != 0)
		return;
	pvq_put(fz->q, &pc, 1);
	fz->next++;
}

static void
fuzz_commit(struct fuzz *fz)
{

	for (; fz->committed < fz->next; fz->committed++)
		fz->inflight[fz->committed] = true;
	pvq_commit(fz->q);
}

static void
fuzz_get(struct fuzz *fz)
{
	struct pvq_done done[FUZZ_SIZE];
	uintptr_t n;
	int got, i;

	got = pvq_get(fz->q, done, 1 + fuzz_byte(fz) % FUZZ_SIZE);
	for (i = 0; i < got; i++) {
		n = (uintptr_t)done[i].pd_cookie;
		CHECK(n < FUZZ_CHAINS && fz->inflight[n], "cookie %lu is not in flight", n);
		CHECK(done[i].pd_len <= fz->room[n], "%u bytes of %u", done[i].pd_len,
		    fz->room[n]);
		fz->inflight[n] = false;
	}
}

static void
fuzz_drain(struct fuzz *fz)
{
	uintptr_t last, n;

	last = 0;
	while ((n = (uintptr_t)pvq_drain(fz->q)) != 0) {
		CHECK(n > last && n < FUZZ_CHAINS && fz->inflight[n], "drained %lu after %lu", n,
		    last);
		fz->inflight[n] = false;
		last = n;
	}
	for (n = 0; n < FUZZ_CHAINS; n++)
		CHECK(!fz->inflight[n], "chain %lu is lost", n);
	CHECK(pvq_reinit(fz->q) == 0 && pvq_room(fz->q) == FUZZ_SIZE, "reinit");
	fz->next = fz->committed;
	fz->used_idx = 0;
}

/* Complete what the available ring names at a place: true as long as nobody scribbled. */
static void
fuzz_complete(struct fuzz *fz)
{
	uint8_t place = fuzz_byte(fz), len = fuzz_byte(fz);
	uint8_t *elem = fz->ring + fz->used + 4 + 8 * (fz->used_idx % FUZZ_SIZE);
	uint32_t v;

	v = *(uint16_t *)(fz->ring + fz->avail + 4 + 2 * (place % FUZZ_SIZE));
	memcpy(elem, &v, 4);
	v = len;
	memcpy(elem + 4, &v, 4);
	fz->used_idx++;
	memcpy(fz->ring + fz->used + 2, &fz->used_idx, 2);
}

static void
fuzz_poke(struct fuzz *fz)
{
	uint16_t off = fuzz_word(fz), v = fuzz_word(fz);

	memcpy(fz->ring + off % (fz->size - 1), &v, 2);
}

/* The used ring is where it hurts. */
static void
fuzz_poke_used(struct fuzz *fz)
{
	uint8_t off = fuzz_byte(fz);
	uint16_t v = fuzz_word(fz);

	memcpy(fz->ring + fz->used + off % (fz->size - fz->used - 1), &v, 2);
}

static void
fuzz_step(struct fuzz *fz)
{

	switch (fuzz_byte(fz) % 12) {
	case 0:
	case 1:
		fuzz_put(fz);
		break;
	case 2:
		fuzz_commit(fz);
		break;
	case 3:
		pvq_abort(fz->q);
		fz->next = fz->committed;
		break;
	case 4:
		fuzz_commit(fz);
		(void)pvq_kick(fz->q);
		break;
	case 5:
		fuzz_get(fz);
		break;
	case 6:
		(void)pvq_intr_enable(fz->q, fuzz_byte(fz));
		break;
	case 7:
		pvq_intr_disable(fz->q);
		break;
	case 8:
		fuzz_drain(fz);
		break;
	case 9:
		fuzz_poke(fz);
		break;
	case 10:
		fuzz_poke_used(fz);
		break;
	case 11:
		fuzz_complete(fz);
		break;
	}
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
		    ((options & 4) != 0 ? VIRTIO_F_VERSION_1 : 0),
		.vqp_size = FUZZ_SIZE,
		.vqp_max_segs = FUZZ_SEGS,
		.vqp_align = VRING_USED_ALIGN,
		.vqp_notify = fuzz_notify,
	};
	struct virtqueue_addrs addrs;

	kpi_quiet = true;
	CHECK(virtqueue_split_create(&params, &fz.q) == 0, "create");
	virtqueue_split_addrs(fz.q, &addrs);
	fz.ring = (uint8_t *)(uintptr_t)addrs.vqa_desc;
	fz.avail = addrs.vqa_driver - addrs.vqa_desc;
	fz.used = addrs.vqa_device - addrs.vqa_desc;
	fz.size = vring_size(FUZZ_SIZE, VRING_USED_ALIGN);
	while (fz.left > 0)
		fuzz_step(&fz);
	fuzz_drain(&fz);
	pvq_free(fz.q);
	CHECK(kpi_mallocs == 0 && kpi_dma_maps == 0 && kpi_dma_tags == 0, "leak");
	return (0);
}
