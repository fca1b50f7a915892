/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: a grant ring whose back end writes what the fuzzer says, where the fuzzer says.
 *
 * The input is a program of operations of the front end and of the back end, which answers what it
 * finds in the ring, or writes anything anywhere. A cookie comes out only if it is in flight, and once;
 * what does not come out is there to be drained.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/xen/grant_ring.h>

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"
#include "model/grant_peer.h"

#define	FUZZ_SIZE	8
#define	FUZZ_SEGS	3
#define	FUZZ_CHAINS	12
#define	FUZZ_STEPS	200

struct fuzz_chain {
	struct pvq_chain pc;
	bus_dma_segment_t segs[FUZZ_SEGS];
	bool		 staged;
	bool		 inflight;
};

struct fuzz {
	struct fuzz_input in;
	const struct impl *im;
	struct peer	*pe;
	struct pvq	*q;
	uint8_t		*ring;
	struct fuzz_chain chains[FUZZ_CHAINS];
};

static uint8_t fuzz_memory[PAGE_SIZE] __aligned(PAGE_SIZE);

static void
fuzz_kicked(struct peer *pe __unused)
{
}

static void
fuzz_open(struct fuzz *fz, const struct impl *im)
{
	struct fuzz_chain *fc;
	int i, j, n;

	fz->im = im;
	CHECK(im->im_create(im, FUZZ_SIZE, FUZZ_SEGS, &fz->pe) == 0, "create");
	fz->q = fz->pe->pe_pvq;
	fz->pe->pe_kick = fuzz_kicked;
	/* Behind the header of 64 bytes. */
	fz->ring = grant_peer_last_id(fz->pe);
	fz->ring = (uint8_t *)trunc_page((uintptr_t)fz->ring);
	for (i = 0; i < FUZZ_CHAINS; i++) {
		fc = &fz->chains[i];
		n = 1 + i % FUZZ_SEGS;
		for (j = 0; j < n; j++)
			fc->segs[j] = (bus_dma_segment_t){ (uintptr_t)fuzz_memory + j * 64, 50 };
		fc->pc = (struct pvq_chain){ .pc_segs = fc->segs, .pc_nread = i % 2 == 0 ? n : 0,
		    .pc_nwrite = i % 2 == 0 ? 0 : n, .pc_cookie = fc };
		im->im_chain(fz->pe, &fc->pc);
		im_share(im, fz->pe, &fc->pc);
	}
}

static void
fuzz_put(struct fuzz *fz)
{
	struct fuzz_chain *fc = &fz->chains[fuzz_byte(&fz->in) % FUZZ_CHAINS];
	int slots;

	if (fc->staged || fc->inflight)
		return;
	slots = pvq_prepare(fz->q, &fc->pc);
	if (slots == 0 || pvq_reserve(fz->q, slots) != 0)
		return;
	pvq_put(fz->q, &fc->pc, 1);
	fc->staged = true;
}

static void
fuzz_commit(struct fuzz *fz, bool keep)
{
	struct fuzz_chain *fc;

	for (fc = fz->chains; fc < fz->chains + FUZZ_CHAINS; fc++) {
		fc->inflight |= keep && fc->staged;
		fc->staged = false;
	}
	if (keep)
		pvq_commit(fz->q);
	else
		pvq_abort(fz->q);
}

static void
fuzz_done(struct fuzz *fz, void *cookie)
{
	struct fuzz_chain *fc = cookie;

	CHECK(fc >= fz->chains && fc < fz->chains + FUZZ_CHAINS && fc->inflight, "%p is not in flight",
	    cookie);
	fc->inflight = false;
}

static void
fuzz_get(struct fuzz *fz)
{
	struct pvq_done done[FUZZ_SIZE];
	int got, i;

	got = pvq_get(fz->q, done, 1 + fuzz_byte(&fz->in) % FUZZ_SIZE);
	for (i = 0; i < got; i++) {
		(void)fz->im->im_reported(&done[i]);
		fuzz_done(fz, done[i].pd_cookie);
	}
}

/* Answer with an id: as the tests' back end does where it may, else as none would. */
static void
fuzz_respond(struct fuzz *fz)
{
	uint8_t id = fuzz_byte(&fz->in);

	if (id == 0xff)
		grant_peer_respond_null(fz->pe);
	else
		grant_peer_respond(fz->pe, id % 64 < 32 ? id % FUZZ_SIZE : id, fuzz_byte(&fz->in));
	fz->pe->pe_ops->po_publish(fz->pe);
}

static void
fuzz_poke(struct fuzz *fz)
{
	uint16_t off = fuzz_word(&fz->in), v = fuzz_word(&fz->in);

	/* A quarter of them into the indices. */
	off = off % 4 == 0 ? off / 4 % 16 : off % (PAGE_SIZE - 1);
	memcpy(fz->ring + off, &v, 2);
}

static void
fuzz_step(struct fuzz *fz)
{

	switch (fuzz_byte(&fz->in) % 10) {
	case 0:
	case 1:
		fuzz_put(fz);
		break;
	case 2:
		fuzz_commit(fz, true);
		break;
	case 3:
		fuzz_commit(fz, false);
		break;
	case 4:
		fuzz_commit(fz, true);
		(void)pvq_kick(fz->q);
		break;
	case 5:
		fuzz_get(fz);
		break;
	case 6:
		(void)pvq_intr_enable(fz->q, fuzz_byte(&fz->in));
		break;
	case 7:
		pvq_intr_disable(fz->q);
		break;
	case 8:
		fuzz_respond(fz);
		break;
	case 9:
		fuzz_poke(fz);
		break;
	}
}

static void
fuzz_close(struct fuzz *fz)
{
	struct fuzz_chain *fc;
	void *cookie;

	fuzz_commit(fz, false);
	while ((cookie = pvq_drain(fz->q)) != NULL)
		fuzz_done(fz, cookie);
	for (fc = fz->chains; fc < fz->chains + FUZZ_CHAINS; fc++) {
		CHECK(!fc->inflight, "chain %td is lost", fc - fz->chains);
		CHECK(im_unshare(fz->im, fz->pe, fc->segs, fc->pc.pc_nread + fc->pc.pc_nwrite) == 0,
		    "held");
		host_free(fc->pc.pc_arg);
	}
	fz->im->im_destroy(fz->pe);
	CHECK(kpi_mallocs == 0, "leak");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz fz = { .in = { data, size } };
	const struct impl *im;
	int i, n = 0;

	kpi_quiet = true;
	for (im = grant_impls; im->im_name != NULL; im++)
		n++;
	fuzz_open(&fz, &grant_impls[fuzz_byte(&fz.in) % n]);
	for (i = 0; i < FUZZ_STEPS && fz.in.fi_left > 0; i++)
		fuzz_step(&fz);
	fuzz_close(&fz);
	return (0);
}
