/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_balloon: the traditional memory balloon of VirtIO 1.3, 5.5.
 *
 * The protocol half of a balloon; targets, pages and retries are pv_balloon's,
 * in whose worker everything here runs but for attach, detach and the handlers
 * of interrupts, which only wake it.
 *
 *	inflateq	an array of page numbers, 4 KB each, that the host gets
 *	deflateq	the same, of those that the guest takes back
 *	statsq		one buffer of statistics, which the device keeps until
 *			it requests new ones
 *	free_page_vq, reporting_vq	free memory (virtio_balloon_free.c)
 *
 * Requests and the memory that the device sees are virtio_balloon_queue.c's, at
 * the bottom.
 *
 * An array holds VTB_BATCH_PFNS numbers.  Pages are given when the device
 * returned their array.  They are used again as soon as their array is on its
 * way, so that a guest that is short of memory does not have to wait for its
 * host, or, with MUST_TELL_HOST, when it was returned (5.5.6.1).  Nothing is
 * given while such an array is on its way: the device may work on its queues in
 * any order.
 *
 * Trust.  The device answers with lengths and ids only, which the queue checks.
 * One that does not answer for hw.vtballoon.timeout seconds, or that breaks a
 * queue, or that requires it (DEVICE_NEEDS_RESET), is reset: the pages that it
 * has stay in the balloon.  Giving it a page twice is harmless.  Pages that
 * were in a request without an answer are not used until the reset is
 * confirmed, and never if it is not.
 *
 * Locking.  vtbn_mtx only for sleeping and waking.
 *
 * Gaps: PFNs are guest-physical addresses also behind an IOMMU, as the
 * specification has it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/lock.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>

#include <dev/virtio/balloon/virtio_balloon_var.h>

#define	PFNS_A_PAGE	(PAGE_SIZE >> VIRTIO_BALLOON_PFN_SHIFT)

static const struct virtio_feature vtballoon_features[] = {
	{ VIRTIO_BALLOON_F_MUST_TELL_HOST,	"MUST_TELL_HOST",	0 },
	{ VIRTIO_BALLOON_F_STATS_VQ,		"STATS_VQ",		0 },
	{ VIRTIO_BALLOON_F_DEFLATE_ON_OOM,	"DEFLATE_ON_OOM",	0 },
	{ VIRTIO_BALLOON_F_FREE_PAGE_HINT,	"FREE_PAGE_HINT",	0 },
	{ VIRTIO_BALLOON_F_PAGE_POISON,		"PAGE_POISON",		0 },
	{ VIRTIO_BALLOON_F_REPORTING,		"REPORTING",		0 },
	{ 0, NULL, 0 }
};

static struct vtballoon_softc *
vtballoon_of(struct pv_balloon *pb)
{
	return (__containerof(pb, struct vtballoon_softc, vtbn_balloon));
}

/* Put an array of the pages' numbers into q.  One of the arrays is free. */
static int
vtballoon_tell(struct vtballoon_softc *sc, struct pvq *q, vm_page_t *pages,
    u_int n)
{
	uint32_t pfn, *pfns;
	u_int i, j, k = 0;
	int error, free;

	error = pvq_reserve(q, 1);
	if (error != 0)
		return (error);
	free = ffs(~sc->vtbn_busy) - 1;
	KASSERT(free < VTB_ARRAYS,
	    ("%s: arrays %#x are busy", __func__, sc->vtbn_busy));
	sc->vtbn_busy |= 1u << free;
	pfns = sc->vtbn_shared->pfns[free];
	for (i = 0; i < n; i++) {
		pfn = VM_PAGE_TO_PHYS(pages[i]) >> VIRTIO_BALLOON_PFN_SHIFT;
		for (j = 0; j < PFNS_A_PAGE; j++)
			pfns[k++] = virtio_32(sc->vtbn_modern, pfn + j);
	}
	vtballoon_put(sc, q, pfns, k * sizeof(*pfns));
	return (0);
}

static void
vtballoon_report(struct pv_balloon *pb, u_long pages)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);
	uint32_t actual = pages * PFNS_A_PAGE;

	(void)virtio_write_config(sc->vtbn_dev,
	    offsetof(struct virtio_balloon_config, actual), &actual,
	    sizeof(actual));
}

/* 5.5.6.7: the value is written before the device is live. */
static void
vtballoon_write_poison(struct vtballoon_softc *sc)
{
	uint32_t value =
	    (uint32_t)vtballoon_tunables[VTBALLOON_POISON].pt_value;

	if ((sc->vtbn_features & VIRTIO_BALLOON_F_PAGE_POISON) != 0)
		(void)virtio_write_config(sc->vtbn_dev,
		    offsetof(struct virtio_balloon_config, poison_val), &value,
		    sizeof(value));
}

/*
 * Statistics, those that this system has.  It does not count processes that it
 * killed, nor allocations that waited, and whoever allocates neither scans nor
 * reclaims: that is the page daemon's.
 */
static size_t
vtballoon_collect(struct vtballoon_softc *sc)
{
	const struct {
		uint16_t	tag;
		uint64_t	val;
	} stats[VTB_STATS] = {
		{ VIRTIO_BALLOON_S_SWAP_IN, ptoa(VM_CNT_FETCH(v_swappgsin)) },
		{ VIRTIO_BALLOON_S_SWAP_OUT, ptoa(VM_CNT_FETCH(v_swappgsout)) },
		{ VIRTIO_BALLOON_S_MAJFLT, VM_CNT_FETCH(v_io_faults) },
		{ VIRTIO_BALLOON_S_MINFLT,
		    VM_CNT_FETCH(v_vm_faults) - VM_CNT_FETCH(v_io_faults) },
		{ VIRTIO_BALLOON_S_MEMFREE, ptoa((uint64_t)vm_free_count()) },
		{ VIRTIO_BALLOON_S_MEMTOT, ptoa((uint64_t)vm_cnt.v_page_count -
		    sc->vtbn_balloon.pb_npages) },
		{ VIRTIO_BALLOON_S_AVAIL,
		    ptoa((uint64_t)vm_free_count() + vm_inactive_count()) },
		{ VIRTIO_BALLOON_S_CACHES,
		    ptoa((uint64_t)vm_inactive_count()) },
		{ VIRTIO_BALLOON_S_ASYNC_SCAN, ptoa(VM_CNT_FETCH(v_pdpages)) },
		{ VIRTIO_BALLOON_S_ASYNC_RECLAIM, ptoa(VM_CNT_FETCH(v_dfree)) },
	};
	struct virtio_balloon_stat *st = sc->vtbn_shared->stats;
	u_int i;

	for (i = 0; i < VTB_STATS; i++) {
		st[i].tag = virtio_16(sc->vtbn_modern, stats[i].tag);
		st[i].val = virtio_64(sc->vtbn_modern, stats[i].val);
	}
	return (sizeof(sc->vtbn_shared->stats));
}

/* Put the first buffer (5.5.6.3); the device returns it to request another. */
static void
vtballoon_put_stats(struct vtballoon_softc *sc)
{
	struct pvq *q = sc->vtbn_queue[VTBQ_STATS];

	if (q == NULL || pvq_reserve(q, 1) != 0)
		return;
	vtballoon_put(sc, q, sc->vtbn_shared->stats, vtballoon_collect(sc));
}

static void
vtballoon_poll_stats(struct vtballoon_softc *sc)
{
	struct pvq *q = sc->vtbn_queue[VTBQ_STATS];
	struct pvq_done done;

	if (q == NULL)
		return;
	do {
		while (pvq_get(q, &done, 1) != 0) {
			sc->vtbn_stats_asked++;
			vtballoon_put_stats(sc);
		}
	} while (!pvq_broken(q) && pvq_intr_enable(q, 1));
}

static void
vtballoon_read_target(struct vtballoon_softc *sc)
{
	uint32_t pages;

	if (virtio_read_config(sc->vtbn_dev,
	    offsetof(struct virtio_balloon_config, num_pages), &pages,
	    sizeof(pages)) == 0)
		pv_balloon_set_target(&sc->vtbn_balloon, pages / PFNS_A_PAGE);
}

static int
vtballoon_stop(struct pv_balloon *pb)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);
	int error, i;

	error = virtio_quiesce(sc->vtbn_dev);
	vtballoon_free_stop(sc, error != 0);
	for (i = 0; i < VTBQ_COUNT; i++) {
		while (sc->vtbn_queue[i] != NULL &&
		    pvq_drain(sc->vtbn_queue[i]) != NULL)
			;
	}
	sc->vtbn_busy = 0;
	return (error);
}

static int
vtballoon_restart(struct pv_balloon *pb)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);
	int error;

	error = virtio_restart(sc->vtbn_dev);
	if (error != 0)
		return (error);
	vtballoon_write_poison(sc);
	virtio_start(sc->vtbn_dev);
	return (0);
}

static void
vtballoon_apply(struct pv_balloon *pb)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);

	vtballoon_put_stats(sc);
	vtballoon_report(pb, pb->pb_npages);
	vtballoon_read_target(sc);
}

/*
 * The device may have read an array that it did not return, and discard its
 * pages later: without an answer they are not used before it is stopped.
 */
static int
vtballoon_inflate(struct pv_balloon *pb, vm_page_t *pages, u_int n, u_int *done)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);
	struct pvq *q = sc->vtbn_queue[VTBQ_INFLATE];
	int error;

	*done = 0;
	error = vtballoon_wait(sc, sc->vtbn_queue[VTBQ_DEFLATE], 0);
	if (error == 0)
		error = vtballoon_tell(sc, q, pages, n);
	if (error != 0)
		return (error);
	if (vtballoon_wait(sc, q, 0) != 0)
		return (EINPROGRESS);
	*done = n;
	return (0);
}

static int
vtballoon_deflate(struct pv_balloon *pb, vm_page_t *pages, u_int n, u_int *done)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);
	struct pvq *q = sc->vtbn_queue[VTBQ_DEFLATE];
	int error;

	error = vtballoon_wait(sc, q, VTB_ARRAYS - 1);
	if (error == 0)
		error = vtballoon_tell(sc, q, pages, n);
	if (error == 0 &&
	    (sc->vtbn_features & VIRTIO_BALLOON_F_MUST_TELL_HOST) != 0)
		error = vtballoon_wait(sc, q, 0);
	*done = error == 0 ? n : 0;
	return (error);
}

static int
vtballoon_poll(struct pv_balloon *pb)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);

	vtballoon_poll_stats(sc);
	return (vtballoon_free_poll(sc));
}

static int
vtballoon_idle(struct pv_balloon *pb)
{
	struct vtballoon_softc *sc = vtballoon_of(pb);

	return (vtballoon_is_bad(sc) ? 0 : vtballoon_free_idle(sc));
}

static const struct pv_balloon_ops vtballoon_ops = {
	.pbo_inflate = vtballoon_inflate,
	.pbo_deflate = vtballoon_deflate,
	.pbo_report = vtballoon_report,
	.pbo_poll = vtballoon_poll,
	.pbo_idle = vtballoon_idle,
	.pbo_stop = vtballoon_stop,
	.pbo_restart = vtballoon_restart,
	.pbo_apply = vtballoon_apply,
};

/* Queues of which the worker waits for an answer. */
static void
vtballoon_intr(void *arg)
{
	struct vtballoon_softc *sc = arg;

	mtx_lock(&sc->vtbn_mtx);
	wakeup(sc);
	mtx_unlock(&sc->vtbn_mtx);
}

/* The others: there may be something to do. */
static void
vtballoon_wake_intr(void *arg)
{
	struct vtballoon_softc *sc = arg;

	pv_balloon_wake(&sc->vtbn_balloon);
}

/*
 * A queue is there with its feature, and has the next number.  (5.5.2 numbers
 * them from 0 to 4; all hypervisors leave no gaps, and have those of features
 * that they offer, which we all accept.)
 */
static int
vtballoon_alloc_queues(struct vtballoon_softc *sc)
{
	static const struct {
		const char	*name, *descr;
		uint64_t	 feature;
		uint16_t	 segs;
	} queues[VTBQ_COUNT] = {
		[VTBQ_INFLATE] = { "inflateq", "inflate", 0, 1 },
		[VTBQ_DEFLATE] = { "deflateq", "deflate", 0, 1 },
		[VTBQ_STATS] = { "statsq", "stats", VIRTIO_BALLOON_F_STATS_VQ,
		    1 },
		[VTBQ_HINT] = { "free_page_vq",
		    "hint", VIRTIO_BALLOON_F_FREE_PAGE_HINT, 1 },
		[VTBQ_REPORT] = { "reporting_vq",
		    "report", VIRTIO_BALLOON_F_REPORTING, VTB_REPORT_MAX },
	};
	struct virtio_queue_spec specs[VTBQ_COUNT];
	struct pvq_spec *spec;
	bool iommu = virtio_has(sc->vtbn_dev, VIRTIO_F_ACCESS_PLATFORM);
	int error, i, n = 0;

	bzero(specs, sizeof(specs));
	for (i = 0; i < VTBQ_COUNT; i++) {
		if ((sc->vtbn_features &
		    queues[i].feature) != queues[i].feature)
			continue;
		spec = &specs[n++].vqs_spec;
		strlcpy(spec->pqs_name, queues[i].name, sizeof(spec->pqs_name));
		strlcpy(spec->pqs_descr, queues[i].descr,
		    sizeof(spec->pqs_descr));
		spec->pqs_max_segs = queues[i].segs;
		spec->pqs_cpu = -1;
		spec->pqs_intr = i == VTBQ_STATS || i == VTBQ_HINT ?
		    vtballoon_wake_intr : vtballoon_intr;
		spec->pqs_arg = sc;
		if (!iommu || (i != VTBQ_HINT && i != VTBQ_REPORT))
			spec->pqs_pvq = &sc->vtbn_queue[i];
	}
	error = virtio_alloc_queues(sc->vtbn_dev, specs, n, INTR_TYPE_MISC);
	for (i = 0; i < VTBQ_COUNT && error == 0; i++)
		pv_dev_adopt(&sc->vtbn_balloon.pb_pvdev, i, sc->vtbn_queue[i]);
	return (error);
}

static void
vtballoon_sysctl(struct vtballoon_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->vtbn_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->vtbn_dev));
	struct sysctl_oid *node;
	int i;

	sysctl_ctx_init(ctx);
	pv_dev_sysctl(&sc->vtbn_balloon.pb_pvdev, ctx, top);
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "stats_asked", CTLFLAG_RD, &sc->vtbn_stats_asked, 0,
	    "Times that the host requested statistics");
	/* The names of FreeBSD's own driver. */
	SYSCTL_ADD_ULONG(ctx, top, OID_AUTO, "desired", CTLFLAG_RD,
	    &sc->vtbn_balloon.pb_target, "As target");
	SYSCTL_ADD_ULONG(ctx, top, OID_AUTO, "current", CTLFLAG_RD,
	    &sc->vtbn_balloon.pb_npages, "As pages");
	vtballoon_free_sysctl(sc, top);
	for (i = 0; i < VTBQ_COUNT; i++) {
		if (sc->vtbn_queue[i] == NULL)
			continue;
		node = SYSCTL_ADD_NODE(ctx, top, OID_AUTO,
		    sc->vtbn_queue[i]->q_name, CTLFLAG_RD | CTLFLAG_MPSAFE,
		    NULL, "Statistics of the queue");
		pvq_sysctl(sc->vtbn_queue[i], ctx, SYSCTL_CHILDREN(node));
	}
}

static int
vtballoon_init(struct vtballoon_softc *sc)
{
	struct pv_balloon_params params = {
		.pbp_batch = VTB_BATCH_PFNS / PFNS_A_PAGE,
		.pbp_nqueues = VTBQ_COUNT,
		.pbp_oom =
		    (sc->vtbn_features & VIRTIO_BALLOON_F_DEFLATE_ON_OOM) != 0,
	};
	int error;

	if ((sc->vtbn_features & VIRTIO_BALLOON_F_PAGE_POISON) != 0)
		params.pbp_poison =
		    (uint32_t)vtballoon_tunables[VTBALLOON_POISON].pt_value;
	error = vtballoon_free_init(sc);
	if (error != 0)
		return (error);
	error = pv_balloon_init(&sc->vtbn_balloon, sc->vtbn_dev, &vtballoon_ops,
	    &params);
	sc->vtbn_initialised = error == 0;
	return (error);
}

/*
 * Undoes attach from wherever it got to.  The host provides every page that is
 * touched once the device has been reset, so what it did not give back in order
 * is taken; one that did not confirm the reset keeps it.
 */
static void
vtballoon_teardown(struct vtballoon_softc *sc)
{
	struct pv_balloon *pb = &sc->vtbn_balloon;
	bool leaked = false;

	if (sc->vtbn_attached) {
		sc->vtbn_attached = false;
		(void)pv_balloon_empty(pb);
		sysctl_ctx_free(&sc->vtbn_sysctl);
	}
	if (sc->vtbn_initialised) {
		sc->vtbn_initialised = false;
		pv_dev_leave(&pb->pb_pvdev);
		leaked = pb->pb_pvdev.pvd_leaked;
		virtio_free_queues(sc->vtbn_dev);
		pv_balloon_fini(pb, !leaked);
	}
	vtballoon_free_fini(sc);
	vtballoon_free_shared(sc, leaked);
	mtx_destroy(&sc->vtbn_mtx);
}

/* Without a value to fill pages with, PAGE_POISON is not negotiated. */
static int
vtballoon_negotiate(struct vtballoon_softc *sc)
{
	struct virtio_feature table[nitems(vtballoon_features)];
	struct virtio_feature *vf;

	memcpy(table, vtballoon_features, sizeof(table));
	for (vf = table; vf->vf_mask != 0; vf++) {
		if (vf->vf_mask == VIRTIO_BALLOON_F_PAGE_POISON &&
		    vtballoon_tunables[VTBALLOON_POISON].pt_value == 0)
			vf->vf_flags |= VIRTIO_FEATURE_OFF;
	}
	return (virtio_negotiate(sc->vtbn_dev, table, &sc->vtbn_features));
}

static int
vtballoon_attach(device_t dev)
{
	struct vtballoon_softc *sc = device_get_softc(dev);
	int error;

	sc->vtbn_dev = dev;
	sc->vtbn_modern = virtio_get_modern(dev) != 0;
	mtx_init(&sc->vtbn_mtx, device_get_nameunit(dev), "vtballoon", MTX_DEF);
	error = vtballoon_negotiate(sc);
	if (error == 0)
		error = vtballoon_init(sc);
	if (error == 0)
		error = vtballoon_alloc_shared(sc);
	if (error == 0)
		error = vtballoon_alloc_queues(sc);
	if (error != 0) {
		vtballoon_teardown(sc);
		return (error);
	}
	vtballoon_sysctl(sc);
	vtballoon_write_poison(sc);
	virtio_start(dev);
	sc->vtbn_attached = true;
	pv_dev_start(&sc->vtbn_balloon.pb_pvdev, true);
	return (0);
}

static int
vtballoon_detach(device_t dev)
{
	int error;

	error = virtio_leave(dev);
	if (error != 0)
		return (error);
	vtballoon_teardown(device_get_softc(dev));
	return (0);
}

static int
vtballoon_suspend(device_t dev)
{
	struct vtballoon_softc *sc = device_get_softc(dev);

	return (pv_dev_freeze(&sc->vtbn_balloon.pb_pvdev));
}

static int
vtballoon_resume(device_t dev)
{
	struct vtballoon_softc *sc = device_get_softc(dev);

	return (pv_dev_thaw(&sc->vtbn_balloon.pb_pvdev));
}

static int
vtballoon_config_change(device_t dev)
{
	struct vtballoon_softc *sc = device_get_softc(dev);

	if (virtio_needs_reset(dev)) {
		pv_dev_need_reset(&sc->vtbn_balloon.pb_pvdev, PV_DEV_ALL,
		    ETIMEDOUT);
		/* Nobody waits for it any more. */
		vtballoon_intr(sc);
		return (0);
	}
	vtballoon_read_target(sc);
	pv_balloon_wake(&sc->vtbn_balloon);
	return (0);
}

static device_method_t vtballoon_methods[] = {
	DEVMETHOD(device_probe,		virtio_probe),
	DEVMETHOD(device_attach,	vtballoon_attach),
	DEVMETHOD(device_detach,	vtballoon_detach),
	DEVMETHOD(device_suspend,	vtballoon_suspend),
	DEVMETHOD(device_resume,	vtballoon_resume),

	DEVMETHOD(virtio_config_changed,	vtballoon_config_change),

	DEVMETHOD_END
};

static driver_t vtballoon_driver = {
	"vtballoon",
	vtballoon_methods,
	sizeof(struct vtballoon_softc)
};

VIRTIO_DRIVER_MODULE(virtio_balloon, vtballoon_driver, VIRTIO_ID_BALLOON,
    "VirtIO memory balloon");
VIRTIO_DRIVER_DEPENDS(virtio_balloon);
MODULE_DEPEND(pv_virtio_balloon, pv_balloon, 1, 1, 1);
