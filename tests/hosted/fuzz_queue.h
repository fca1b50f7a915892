/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The driver's half of the fuzz targets: a program of operations from the fuzzer's input, and what has
 * to hold whatever the device does.
 */

#ifndef _FUZZ_QUEUE_H_
#define	_FUZZ_QUEUE_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

#include "host/host.h"
#include "kpi/kpi.h"

#define	FUZZ_MAX_SIZE	8
#define	FUZZ_SEGS	4
#define	FUZZ_CHAINS	256

struct fuzz {
	const uint8_t	*data;
	size_t		 left;
	struct pvq	*q;
	uint8_t		*ring;		/* all that is shared, but for indirect tables */
	size_t		 driver;	/* offsets in it, of the driver's and the device's part */
	size_t		 device;
	size_t		 size;		/* bytes */
	uintptr_t	 next;		/* number of the next chain */
	uintptr_t	 committed;	/* chains before this number are committed */
	uint32_t	 room[FUZZ_CHAINS]; /* bytes that may be written */
	bool		 inflight[FUZZ_CHAINS];
	uint32_t	 used;		/* where the device is, counted on */
};

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
fuzz_notify(void *arg __unused, uint16_t index __unused, uint16_t next __unused)
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
	struct pvq_done done[FUZZ_MAX_SIZE];
	uintptr_t n;
	int got, i;

	got = pvq_get(fz->q, done, 1 + fuzz_byte(fz) % FUZZ_MAX_SIZE);
	for (i = 0; i < got; i++) {
		n = (uintptr_t)done[i].pd_cookie;
		CHECK(n < FUZZ_CHAINS && fz->inflight[n], "cookie %lu is not in flight", n);
		CHECK(virtqueue_done_len(&done[i]) <= fz->room[n], "%u bytes of %u",
		    virtqueue_done_len(&done[i]), fz->room[n]);
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
	CHECK(pvq_reinit(fz->q) == 0 && pvq_room(fz->q) == fz->q->q_size, "reinit");
	fz->next = fz->committed;
	fz->used = 0;
}

/* Where the queue's memory is. */
static void
fuzz_find(struct fuzz *fz, size_t size)
{
	struct virtqueue_addrs addrs;

	virtqueue_addrs(fz->q, &addrs);
	fz->ring = (uint8_t *)(uintptr_t)addrs.vqa_desc;
	fz->driver = addrs.vqa_driver - addrs.vqa_desc;
	fz->device = addrs.vqa_device - addrs.vqa_desc;
	fz->size = size;
}

static void
fuzz_poke(struct fuzz *fz)
{
	uint16_t off = fuzz_word(fz), v = fuzz_word(fz);

	memcpy(fz->ring + off % (fz->size - 1), &v, 2);
}

/* One operation: of the driver, a store at random, or the device's own two. */
static void
fuzz_step(struct fuzz *fz, void (*poke)(struct fuzz *), void (*complete)(struct fuzz *))
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
		poke(fz);
		break;
	case 11:
		complete(fz);
		break;
	}
}

static void
fuzz_run(struct fuzz *fz, void (*poke)(struct fuzz *), void (*complete)(struct fuzz *))
{

	while (fz->left > 0)
		fuzz_step(fz, poke, complete);
	fuzz_drain(fz);
	pvq_free(fz->q);
	CHECK(kpi_mallocs == 0 && kpi_dma_maps == 0 && kpi_dma_tags == 0, "leak");
}

#endif /* !_FUZZ_QUEUE_H_ */
