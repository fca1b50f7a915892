/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * bus_dma(9): segments are where the memory is, within the tag's limits; what the device reads and
 * writes there is what the driver wrote and reads, bounced or not.
 *
 * The device is simulated through the direct map.  A guest started with hw.busdma.force_bounce=1
 * goes through the same cases.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/bus.h>
#include <machine/vmparam.h>

#include "ktest.h"

#define	SEGS	64

struct limits {
	bus_size_t	align, boundary, maxsize, maxseg;
	int		nsegs;
	bus_addr_t	low;
};

struct load {
	const struct limits *l;
	bus_dma_segment_t seg[SEGS];
	int		nsegs;
	int		error;
	volatile int	calls;
};

static bus_dma_tag_t
tag_make(const struct limits *l, bus_dma_lock_t *lock, void *lockarg)
{
	bus_dma_tag_t tag;

	KT_EQ(bus_dma_tag_create(NULL, l->align, l->boundary, l->low, BUS_SPACE_MAXADDR, NULL, NULL,
	    l->maxsize, l->nsegs, l->maxseg, 0, lock, lockarg, &tag), 0);
	return (tag);
}

static void
load_done(void *arg, bus_dma_segment_t *segs, int nsegs, int error)
{
	struct load *ld = arg;

	ld->error = error;
	ld->nsegs = nsegs;
	if (error == 0)
		memcpy(ld->seg, segs, sizeof(*segs) * MIN(nsegs, SEGS));
	ld->calls++;
}

/* The segments keep the tag's limits and are len bytes long in all. */
static void
load_check(struct load *ld, size_t len)
{
	const struct limits *l = ld->l;
	size_t total = 0;
	int i;

	KT_TRUE(ld->nsegs <= l->nsegs);
	for (i = 0; i < ld->nsegs; i++) {
		const bus_dma_segment_t *s = &ld->seg[i];

		KT_TRUE(s->ds_len > 0 && s->ds_len <= l->maxseg);
		KT_TRUE(s->ds_addr + s->ds_len - 1 <= l->low);
		/* Alignment is that of the load's beginning; a long segment goes on behind it. */
		if (i == 0)
			KT_EQ(s->ds_addr % l->align, 0);
		if (l->boundary != 0)
			KT_EQ(s->ds_addr / l->boundary,
			    (s->ds_addr + s->ds_len - 1) / l->boundary);
		total += s->ds_len;
	}
	KT_EQ(total, len);
}

/* What the device sees, or does: the segments one after the other. */
static void
device_read(const struct load *ld, char *to)
{
	int i;

	for (i = 0; i < ld->nsegs; i++) {
		memcpy(to, (void *)PHYS_TO_DMAP(ld->seg[i].ds_addr), ld->seg[i].ds_len);
		to += ld->seg[i].ds_len;
	}
}

static void
device_write(const struct load *ld, const char *from)
{
	int i;

	for (i = 0; i < ld->nsegs; i++) {
		memcpy((void *)PHYS_TO_DMAP(ld->seg[i].ds_addr), from, ld->seg[i].ds_len);
		from += ld->seg[i].ds_len;
	}
}

static void
dma_transfer(bus_dma_tag_t tag, bus_dmamap_t map, const struct limits *l, char *buf, size_t len,
    uint32_t seed)
{
	struct load ld = { .l = l };
	char *copy = malloc(len, M_KTEST, M_WAITOK);

	ktest_fill(buf, len, seed);
	KT_EQ(bus_dmamap_load(tag, map, buf, len, load_done, &ld, BUS_DMA_NOWAIT), 0);
	if (!KT_EQ(ld.calls, 1) || !KT_EQ(ld.error, 0)) {
		free(copy, M_KTEST);
		return;
	}
	load_check(&ld, len);
	bus_dmamap_sync(tag, map, BUS_DMASYNC_PREWRITE);
	device_read(&ld, copy);
	KT_TRUE(ktest_filled(copy, len, seed));
	bus_dmamap_sync(tag, map, BUS_DMASYNC_POSTWRITE);
	bus_dmamap_sync(tag, map, BUS_DMASYNC_PREREAD);
	ktest_fill(copy, len, seed + 1);
	device_write(&ld, copy);
	bus_dmamap_sync(tag, map, BUS_DMASYNC_POSTREAD);
	bus_dmamap_unload(tag, map);
	KT_TRUE(ktest_filled(buf, len, seed + 1));
	free(copy, M_KTEST);
}

static const struct limits dma_limits[] = {
	{ 1, 0, 65536, 65536, 32, BUS_SPACE_MAXADDR },
	{ 1, 0, 65536, 4096, 32, BUS_SPACE_MAXADDR },
	{ 1, 0, 65536, 1000, SEGS, BUS_SPACE_MAXADDR },
	{ 1, 4096, 65536, 65536, 32, BUS_SPACE_MAXADDR },
	{ 1, 512, 20000, 65536, SEGS, BUS_SPACE_MAXADDR },
	{ 16, 0, 65536, 65536, 32, BUS_SPACE_MAXADDR },
	{ 1, 0, 65536, 65536, 32, BUS_SPACE_MAXADDR_24BIT },
	{ 512, 8192, 65536, 8192, SEGS, BUS_SPACE_MAXADDR_24BIT },
};

static void
dma_loads_buffers(void)
{
	uint32_t seed = 8;
	bus_dmamap_t map;
	bus_dma_tag_t tag;
	size_t off, len;
	char *buf;
	u_int i, k;

	buf = malloc(2 * 65536, M_KTEST, M_WAITOK);
	for (i = 0; i < nitems(dma_limits); i++) {
		const struct limits *l = &dma_limits[i];

		tag = tag_make(l, NULL, NULL);
		KT_EQ(bus_dmamap_create(tag, 0, &map), 0);
		for (k = 0; k < 25u * ktest_rounds; k++) {
			len = 1 + ktest_random(&seed) % l->maxsize;
			len = MIN(len, (size_t)(l->nsegs - 2) * MIN(l->maxseg, PAGE_SIZE) / 2);
			off = k % 4 == 0 ? 0 : ktest_random(&seed) % 65536;
			dma_transfer(tag, map, l, buf + off, len, k);
		}
		KT_EQ(bus_dma_tag_destroy(tag), EBUSY);
		KT_EQ(bus_dmamap_destroy(tag, map), 0);
		KT_EQ(bus_dma_tag_destroy(tag), 0);
	}
	free(buf, M_KTEST);
}

/* Too many segments: EFBIG, which is for the callback, and nothing is left in the map. */
static void
dma_refuses_what_does_not_fit(void)
{
	static const struct limits l = { 1, 0, 65536, 4096, 2, BUS_SPACE_MAXADDR };
	static const struct limits bad = { 3, 0, 65536, 4096, 2, BUS_SPACE_MAXADDR };
	struct load ld = { .l = &l };
	bus_dma_tag_t tag;
	bus_dmamap_t map;
	char *buf;

	KT_EQ(bus_dma_tag_create(NULL, bad.align, 0, bad.low, BUS_SPACE_MAXADDR, NULL, NULL, 1, 1, 1,
	    0, NULL, NULL, &tag), EINVAL);
	buf = malloc(65536, M_KTEST, M_WAITOK);
	tag = tag_make(&l, NULL, NULL);
	KT_EQ(bus_dmamap_create(tag, 0, &map), 0);
	KT_EQ(bus_dmamap_load(tag, map, buf, 65536, load_done, &ld, BUS_DMA_NOWAIT), 0);
	KT_EQ(ld.calls, 1);
	KT_EQ(ld.error, EFBIG);
	dma_transfer(tag, map, &l, buf, 8192, 5);
	KT_EQ(bus_dmamap_destroy(tag, map), 0);
	KT_EQ(bus_dma_tag_destroy(tag), 0);
	free(buf, M_KTEST);
}

static void
dma_loads_mbufs(void)
{
	struct load ld;
	bus_dma_tag_t tag;
	bus_dmamap_t map;
	struct mbuf *m, *n;
	char *copy;
	u_int i;
	int k;

	copy = malloc(16384, M_KTEST, M_WAITOK);
	for (i = 0; i < nitems(dma_limits); i++) {
		ld.l = &dma_limits[i];
		if (ld.l->align != 1)
			continue;
		tag = tag_make(ld.l, NULL, NULL);
		KT_EQ(bus_dmamap_create(tag, 0, &map), 0);
		m = m_gethdr(M_WAITOK, MT_DATA);
		m->m_len = 33;
		for (k = 0, n = m; k < 4; k++, n = n->m_next) {
			n->m_next = m_getjcl(M_WAITOK, MT_DATA, 0, k % 2 ? MCLBYTES : MJUMPAGESIZE);
			n->m_next->m_len = k == 2 ? 0 : 1000 + 100 * k;
		}
		m_fixhdr(m);
		for (k = 0; k < m->m_pkthdr.len; k++)
			copy[k] = k * 11;
		m_copyback(m, 0, m->m_pkthdr.len, copy);
		ld.nsegs = 0;
		KT_EQ(bus_dmamap_load_mbuf_sg(tag, map, m, ld.seg, &ld.nsegs, BUS_DMA_NOWAIT), 0);
		load_check(&ld, m->m_pkthdr.len);
		bus_dmamap_sync(tag, map, BUS_DMASYNC_PREWRITE);
		memset(copy, 0, 16384);
		device_read(&ld, copy);
		for (k = 0; k < m->m_pkthdr.len && copy[k] == (char)(k * 11); k++)
			;
		KT_EQ(k, m->m_pkthdr.len);
		bus_dmamap_sync(tag, map, BUS_DMASYNC_POSTWRITE);
		bus_dmamap_unload(tag, map);
		m_freem(m);
		KT_EQ(bus_dmamap_destroy(tag, map), 0);
		KT_EQ(bus_dma_tag_destroy(tag), 0);
	}
	free(copy, M_KTEST);
}

/* bus_dmamem_alloc(9): one segment, in the limits, zeroed, and never bounced. */
static void
dma_memory(void)
{
	static const struct limits mem[] = {
		{ 1, 0, 100, 100, 1, BUS_SPACE_MAXADDR },
		{ 64, 0, 3000, 3000, 1, BUS_SPACE_MAXADDR },
		{ 4096, 0, 65536, 65536, 1, BUS_SPACE_MAXADDR },
		{ 16384, 65536, 40000, 40000, 1, BUS_SPACE_MAXADDR_32BIT },
		{ 4096, 0, 8192, 8192, 1, BUS_SPACE_MAXADDR_24BIT },
	};
	bus_dma_tag_t tag;
	bus_dmamap_t map;
	struct load ld;
	void *p;
	u_int i, k;

	for (i = 0; i < nitems(mem); i++) {
		memset(&ld, 0, sizeof(ld));
		ld.l = &mem[i];
		tag = tag_make(&mem[i], NULL, NULL);
		KT_EQ(bus_dmamem_alloc(tag, &p, BUS_DMA_WAITOK | BUS_DMA_ZERO | BUS_DMA_COHERENT,
		    &map), 0);
		KT_EQ(bus_dmamap_load(tag, map, p, mem[i].maxsize, load_done, &ld, BUS_DMA_NOWAIT),
		    0);
		KT_EQ(ld.nsegs, 1);
		load_check(&ld, mem[i].maxsize);
		for (k = 0; k < mem[i].maxsize && ((char *)p)[k] == 0; k++)
			;
		KT_EQ(k, mem[i].maxsize);
		KT_EQ(ld.seg[0].ds_addr, vtophys(p));
		bus_dmamap_unload(tag, map);
		bus_dmamem_free(tag, p, map);
		KT_EQ(bus_dma_tag_destroy(tag), 0);
	}
}

#define	DEFERRED	40

/*
 * Maps whose loads take all pages that there are: a load that has to wait returns EINPROGRESS and
 * is called back, with the driver's lock held, when another map gives its pages back.
 */
static void
dma_defers_loads(void)
{
	static const struct limits l = {
		1, 0, 1024 * 1024, PAGE_SIZE, 300, BUS_SPACE_MAXADDR_24BIT
	};
	struct load *ld[DEFERRED];
	bus_dmamap_t map[DEFERRED];
	bus_dma_tag_t tag;
	struct mtx mtx;
	char *buf;
	int error = 0, i, n;

	mtx_init(&mtx, "ktest dma", NULL, MTX_DEF);
	tag = tag_make(&l, busdma_lock_mutex, &mtx);
	buf = malloc(1024 * 1024, M_KTEST, M_WAITOK);
	for (n = 0; n < DEFERRED && error == 0; n++) {
		ld[n] = malloc(sizeof(*ld[n]), M_KTEST, M_WAITOK | M_ZERO);
		ld[n]->l = &l;
		error = bus_dmamap_create(tag, 0, &map[n]);
		if (!KT_EQ(error, 0)) {
			free(ld[n], M_KTEST);
			break;
		}
		mtx_lock(&mtx);
		error = bus_dmamap_load(tag, map[n], buf, 1024 * 1024, load_done, ld[n], 0);
		mtx_unlock(&mtx);
	}
	KT_EQ(error, EINPROGRESS);
	pause("ktest", hz / 50);
	KT_EQ(ld[n - 1]->calls, 0);
	for (i = 0; i < n - 1; i++) {
		KT_EQ(ld[i]->calls, 1);
		bus_dmamap_unload(tag, map[i]);
		KT_WAIT(ld[n - 1]->calls == 1);
	}
	KT_EQ(ld[n - 1]->error, 0);
	KT_EQ(ld[n - 1]->nsegs, 256);
	bus_dmamap_unload(tag, map[n - 1]);
	for (i = 0; i < n; i++) {
		KT_EQ(bus_dmamap_destroy(tag, map[i]), 0);
		free(ld[i], M_KTEST);
	}
	KT_EQ(bus_dma_tag_destroy(tag), 0);
	free(buf, M_KTEST);
	mtx_destroy(&mtx);
}

struct inner {
	struct load	ld;
	bus_dma_tag_t	tag;
	bus_dmamap_t	map[2];
	char		*buf;
};

/* While a driver looks at the segments of one load, another is made: as on another CPU. */
static void
load_within(void *arg, bus_dma_segment_t *segs, int nsegs, int error)
{
	struct inner *in = arg;

	dma_transfer(in->tag, in->map[1], in->ld.l, in->buf + 32768, 32768, 7);
	load_done(&in->ld, segs, nsegs, error);
}

static void
dma_loads_at_the_same_time(void)
{
	static const struct limits l = { 1, 0, 65536, PAGE_SIZE, 32, BUS_SPACE_MAXADDR_24BIT };
	struct inner in = { .ld.l = &l };
	char *copy;
	int i;

	in.buf = malloc(65536, M_KTEST, M_WAITOK);
	copy = malloc(32768, M_KTEST, M_WAITOK);
	in.tag = tag_make(&l, NULL, NULL);
	for (i = 0; i < 2; i++)
		KT_EQ(bus_dmamap_create(in.tag, 0, &in.map[i]), 0);
	for (i = 0; i < 3; i++) {
		ktest_fill(in.buf, 32768, i);
		KT_EQ(bus_dmamap_load(in.tag, in.map[0], in.buf, 32768, load_within, &in,
		    BUS_DMA_NOWAIT), 0);
		KT_EQ(in.ld.error, 0);
		load_check(&in.ld, 32768);
		bus_dmamap_sync(in.tag, in.map[0], BUS_DMASYNC_PREWRITE);
		device_read(&in.ld, copy);
		KT_TRUE(ktest_filled(copy, 32768, i));
		bus_dmamap_sync(in.tag, in.map[0], BUS_DMASYNC_POSTWRITE);
		bus_dmamap_unload(in.tag, in.map[0]);
	}
	for (i = 0; i < 2; i++)
		KT_EQ(bus_dmamap_destroy(in.tag, in.map[i]), 0);
	KT_EQ(bus_dma_tag_destroy(in.tag), 0);
	free(copy, M_KTEST);
	free(in.buf, M_KTEST);
}

const struct ktest_case ktest_dma_cases[] = {
	{ "dma.loads_buffers", dma_loads_buffers },
	{ "dma.loads_at_the_same_time", dma_loads_at_the_same_time },
	{ "dma.loads_mbufs", dma_loads_mbufs },
	{ "dma.refuses_what_does_not_fit", dma_refuses_what_does_not_fit },
	{ "dma.memory", dma_memory },
	{ "dma.defers_loads", dma_defers_loads },
	{ NULL, NULL }
};
