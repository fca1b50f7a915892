/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Reporting to the host which memory is free, without lending it (VirtIO 1.3,
 * 5.5.6.6 and 5.5.6.8).
 *
 * FREE_PAGE_HINT.  Before a migration the device gives a command number in its
 * configuration.  It is repeated in a buffer, then comes a buffer for each free
 * block of 2 MB, of which the host need not send the contents, then the number
 * STOP.  The blocks are kept from being used until the device returned them and
 * its command is DONE, or the guest becomes short of memory: what is written to
 * after the hint is sent again.
 *
 * REPORTING.  Free blocks are given to the device as buffers; when it returns
 * them, the host may have discarded their contents, and they are free as
 * before.  The kernel has no list of its free blocks: each is allocated by its
 * address.  A pass goes over all memory, LOOKS_A_SECOND blocks in a second or
 * as many as a tenth of it is enough for, and reports report_rate of them.  A
 * block that was reported is marked, and not reported again while it is found
 * free each time, as far as we know; as it may have been used in between, marks
 * are forgotten after FORGET_PASSES.
 *
 * While the device has a block it is unmapped like the pages in a balloon.
 *
 * Not done behind an IOMMU, where buffers are no guest-physical addresses.
 *
 * Locking.  None: all is done in the balloon's worker.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/vm_phys.h>

#include <dev/virtio/balloon/virtio_balloon_var.h>

#define	LOOKS_A_SECOND	512
#define	FORGET_PASSES	64
#define	HINTS_A_KICK	16
#define	BLOCK_SHIFT	21
#define	BLOCK_SIZE	((vm_paddr_t)1 << BLOCK_SHIFT)

static MALLOC_DEFINE(M_VTBALLOON, "vtballoon", "virtio balloon");

/* Stage one block for the device to write to. */
static void
free_put(struct pvq *q, bus_dma_segment_t *segs, int n, void *cookie)
{
	struct pvq_chain pc = {
		.pc_segs = segs,
		.pc_nwrite = n,
		.pc_cookie = cookie,
	};

	pvq_put(q, &pc, 1);
}

/* Free what the device gave back. */
static void
hint_release(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	vm_page_t m;

	while ((m = TAILQ_FIRST(&vtf->vtf_hinted)) != NULL) {
		TAILQ_REMOVE(&vtf->vtf_hinted, m, plinks.q);
		pv_balloon_block_free(m);
		vtf->vtf_nhinted--;
	}
}

/* A buffer of the queue is ours again: the number, or a block. */
static void
hint_back(struct vtballoon_softc *sc, void *cookie)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	vm_page_t m = cookie;

	if (cookie == &sc->vtbn_shared->cmd_id)
		vtf->vtf_said = true;
	else if (cookie != &sc->vtbn_shared->cmd_stop)
		TAILQ_INSERT_HEAD(&vtf->vtf_hinted, m, plinks.q);
}

static void
hint_collect(struct vtballoon_softc *sc)
{
	struct pvq *q = sc->vtbn_queue[VTBQ_HINT];
	struct pvq_done done;

	do {
		while (pvq_get(q, &done, 1) != 0)
			hint_back(sc, done.pd_cookie);
	} while (!pvq_broken(q) &&
	    pvq_intr_enable(q, max(pvq_inflight(q) / 2, 1)));
}

static uint32_t
hint_command(struct vtballoon_softc *sc)
{
	uint32_t id;

	if (virtio_read_config(sc->vtbn_dev,
	    offsetof(struct virtio_balloon_config, free_page_hint_cmd_id), &id,
	    sizeof(id)) != 0)
		id = VIRTIO_BALLOON_CMD_ID_STOP;
	return (id);
}

/* Repeat the command's number.  The device may still have the last. */
static bool
hint_begin(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	struct pvq *q = sc->vtbn_queue[VTBQ_HINT];

	if (!vtf->vtf_said || pvq_reserve(q, 1) != 0)
		return (false);
	vtf->vtf_said = false;
	sc->vtbn_shared->cmd_id = virtio_32(sc->vtbn_modern, vtf->vtf_cmd_id);
	vtballoon_put(sc, q, &sc->vtbn_shared->cmd_id, sizeof(uint32_t));
	vtf->vtf_state = VTF_HINTING;
	return (true);
}

/* Hint some blocks.  Returns false if the queue is full. */
static bool
hint_some(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	struct pvq *q = sc->vtbn_queue[VTBQ_HINT];
	bus_dma_segment_t seg;
	vm_page_t m;
	int n;

	for (n = 0; n < HINTS_A_KICK && pvq_reserve(q, 1) == 0; n++) {
		m = pv_balloon_block(0, ~(vm_paddr_t)0);
		if (m == NULL) {
			vtf->vtf_state = VTF_ENDING;
			break;
		}
		seg.ds_addr = VM_PAGE_TO_PHYS(m);
		seg.ds_len = BLOCK_SIZE;
		free_put(q, &seg, 1, m);
	}
	vtf->vtf_nhinted += n;
	vtf->vtf_hints += n;
	pvq_commit(q);
	(void)pvq_kick(q);
	return (n > 0);
}

/* Say that there are no more. */
static bool
hint_end(struct vtballoon_softc *sc)
{
	struct pvq *q = sc->vtbn_queue[VTBQ_HINT];

	if (pvq_reserve(q, 1) != 0)
		return (false);
	vtballoon_put(sc, q, &sc->vtbn_shared->cmd_stop, sizeof(uint32_t));
	sc->vtbn_free.vtf_state = VTF_RESTING;
	return (true);
}

/* One step of answering.  Returns false if there is none to take now. */
static bool
hint_step(struct vtballoon_softc *sc)
{
	switch (sc->vtbn_free.vtf_state) {
	case VTF_ASKED:
		return (hint_begin(sc));
	case VTF_HINTING:
		return (hint_some(sc));
	case VTF_ENDING:
		return (hint_end(sc));
	default:
		return (false);
	}
}

/*
 * (QEMU shows STOP while hints come, and keeps the last buffers of a round
 * until the next; so STOP does not end a round, and no buffer is waited for.)
 */
int
vtballoon_free_poll(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	uint32_t id;

	if (sc->vtbn_queue[VTBQ_HINT] == NULL)
		return (0);
	hint_collect(sc);
	id = hint_command(sc);
	if (id == VIRTIO_BALLOON_CMD_ID_DONE) {
		if (vtf->vtf_state == VTF_HINTING)
			vtf->vtf_state = VTF_ENDING;
	} else if (id != VIRTIO_BALLOON_CMD_ID_STOP && id != vtf->vtf_cmd_id) {
		vtf->vtf_cmd_id = id;
		vtf->vtf_state = VTF_ASKED;
		vtf->vtf_rounds++;
	}
	if (vtf->vtf_nhinted > 0 &&
	    (id == VIRTIO_BALLOON_CMD_ID_DONE || pv_balloon_is_short()))
		hint_release(sc);
	while (!vtballoon_is_bad(sc) && hint_step(sc))
		hint_collect(sc);
	return (vtballoon_is_bad(sc) ? EIO : 0);
}

static void
report_release(struct vtballoon_free *vtf)
{
	while (vtf->vtf_nblocks > 0)
		pv_balloon_block_free(vtf->vtf_blocks[--vtf->vtf_nblocks]);
}

/*
 * Give the blocks to the device and wait until they are returned, or until it
 * was stopped: it may discard them as long as it did neither.
 */
static int
report(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	struct pvq *q = sc->vtbn_queue[VTBQ_REPORT];
	bus_dma_segment_t segs[VTB_REPORT_MAX];
	struct pvq_chain pc = {
		.pc_segs = segs,
		.pc_nwrite = vtf->vtf_nblocks,
		.pc_cookie = vtf->vtf_blocks
	};
	int error, i;

	for (i = 0; i < vtf->vtf_nblocks; i++) {
		segs[i].ds_addr = VM_PAGE_TO_PHYS(vtf->vtf_blocks[i]);
		segs[i].ds_len = BLOCK_SIZE;
	}
	error = pvq_submit(q, &pc);
	if (error == 0) {
		error = vtballoon_wait(sc, q, 0);
		if (error != 0)
			return (error);
		vtf->vtf_reports += vtf->vtf_nblocks;
	}
	report_release(vtf);
	return (error);
}

/* The next block, a new pass after the last. */
static u_long
report_next(struct vtballoon_free *vtf)
{
	u_long block = vtf->vtf_next++;

	if (vtf->vtf_next >= vtf->vtf_nmarks) {
		vtf->vtf_next = 0;
		vtf->vtf_passes++;
		if (++vtf->vtf_pass == 0 ||
		    vtf->vtf_pass % FORGET_PASSES == 0) {
			memset(vtf->vtf_marks, 0, vtf->vtf_nmarks);
			vtf->vtf_pass = MAX(vtf->vtf_pass, 1);
		}
	}
	return (block);
}

/*
 * Look at up to *looks blocks, until the tick end, for free ones that were not
 * reported: up to max.
 */
static int
report_collect(struct vtballoon_softc *sc, vm_page_t *blocks, int max,
    u_int *looks, int end)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	vm_paddr_t pa;
	vm_page_t m;
	u_long block;
	int n = 0;

	while (n < max && *looks > 0 && end - ticks > 0) {
		(*looks)--;
		block = report_next(vtf);
		pa = (vm_paddr_t)block << BLOCK_SHIFT;
		m = pv_balloon_block(pa, pa + BLOCK_SIZE);
		if (m == NULL)
			vtf->vtf_marks[block] = 0;
		else if (vtf->vtf_marks[block] != 0)
			pv_balloon_block_free(m);
		else {
			vtf->vtf_marks[block] = vtf->vtf_pass;
			blocks[n++] = m;
		}
	}
	return (n);
}

int
vtballoon_free_idle(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	u_int left, looks;
	int begin = ticks, error = 0, max;

	if (sc->vtbn_queue[VTBQ_REPORT] == NULL)
		return (0);
	if (vtf->vtf_due - ticks > 0)
		return (vtf->vtf_due - ticks);
	looks = MIN(LOOKS_A_SECOND, vtf->vtf_nmarks);
	left = (u_int)vtballoon_tunables[VTBALLOON_REPORT_RATE].pt_value *
	    1024 / (BLOCK_SIZE / 1024);
	max = MIN(VTB_REPORT_MAX, sc->vtbn_queue[VTBQ_REPORT]->q_max_segs);
	while (error == 0 && left > 0 && looks > 0) {
		vtf->vtf_nblocks = report_collect(sc, vtf->vtf_blocks,
		    MIN((u_int)max, left), &looks, begin + MAX(hz / 10, 1));
		if (vtf->vtf_nblocks == 0)
			break;
		left -= vtf->vtf_nblocks;
		error = report(sc);
	}
	/* One look may be slow, too: it takes a tenth of the time, not all. */
	vtf->vtf_due = begin + MAX(hz, 10 * (ticks - begin));
	return (MAX(vtf->vtf_due - ticks, 1));
}

void
vtballoon_free_stop(struct vtballoon_softc *sc, bool leaked)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	void *cookie;

	if (sc->vtbn_queue[VTBQ_HINT] != NULL) {
		/* A device that did not confirm the reset keeps what it has. */
		while ((cookie =
		    pvq_drain(sc->vtbn_queue[VTBQ_HINT])) != NULL) {
			if (!leaked)
				hint_back(sc, cookie);
		}
	}
	hint_release(sc);
	if (!leaked)
		report_release(vtf);
	vtf->vtf_cmd_id = VIRTIO_BALLOON_CMD_ID_STOP;
	vtf->vtf_state = VTF_RESTING;
}

int
vtballoon_free_init(struct vtballoon_softc *sc)
{
	struct vtballoon_free *vtf = &sc->vtbn_free;
	vm_paddr_t end = 0;
	int i;

	TAILQ_INIT(&vtf->vtf_hinted);
	vtf->vtf_said = true;
	for (i = 0; i < vm_phys_nsegs; i++)
		end = MAX(end, vm_phys_segs[i].end);
	vtf->vtf_pass = 1;
	vtf->vtf_due = ticks;
	vtf->vtf_nmarks = end >> BLOCK_SHIFT;
	vtf->vtf_marks = malloc(vtf->vtf_nmarks + 1, M_VTBALLOON,
	    M_WAITOK | M_ZERO);
	return (0);
}

void
vtballoon_free_fini(struct vtballoon_softc *sc)
{
	if (sc->vtbn_free.vtf_marks == NULL)
		return;
	free(sc->vtbn_free.vtf_marks, M_VTBALLOON);
	sc->vtbn_free.vtf_marks = NULL;
}

void
vtballoon_free_sysctl(struct vtballoon_softc *sc, struct sysctl_oid_list *top)
{
	struct sysctl_ctx_list *ctx = &sc->vtbn_sysctl;
	struct vtballoon_free *vtf = &sc->vtbn_free;

	if (sc->vtbn_queue[VTBQ_HINT] != NULL) {
		SYSCTL_ADD_U64(ctx, top, OID_AUTO,
		    "hint_rounds", CTLFLAG_RD, &vtf->vtf_rounds, 0,
		    "Times that the host requested hints before a migration");
		SYSCTL_ADD_U64(ctx, top, OID_AUTO, "hints", CTLFLAG_RD,
		    &vtf->vtf_hints, 0, "Free blocks of 2 MB that were hinted");
		SYSCTL_ADD_UINT(ctx, top, OID_AUTO,
		    "hinted", CTLFLAG_RD, &vtf->vtf_nhinted, 0,
		    "Blocks that are kept free until it is done");
	}
	if (sc->vtbn_queue[VTBQ_REPORT] != NULL) {
		SYSCTL_ADD_U64(ctx, top, OID_AUTO,
		    "reports", CTLFLAG_RD, &vtf->vtf_reports, 0,
		    "Free blocks of 2 MB that were reported");
		SYSCTL_ADD_U64(ctx, top, OID_AUTO,
		    "report_passes", CTLFLAG_RD, &vtf->vtf_passes, 0,
		    "Times that all memory was searched for free blocks");
	}
}
