/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xen_balloon: the memory of a domain follows the target of its toolstack.
 *
 * The toolstack writes how much memory the domain is to have to memory/target in xenstore, in kB, and
 * how much it may ever have to memory/static-max (docs/misc/xenstore-paths of Xen).  The domain was
 * booted with a memory map of static-max; the difference of the two belongs into the balloon.  That is
 * so from the start where target is less ("maxmem" over "memory" in xl's configuration): Xen populates
 * pages when they are touched then (PoD), and has only as many as target says, so the driver should be
 * loaded early.
 *
 * Growing.  Up to the end of the memory map it is taking such pages out of the balloon.  The toolstack
 * may raise static-max while the domain runs (xl mem-max): then there are too few addresses.  A range
 * of them, above all memory, where the nexus has nothing else, is announced to the kernel
 * (pv_memory.h).  One that manages it hands its pages over, and they go into the balloon, where
 * nothing is behind them, like those of a map that is larger than the target.  From then on there is
 * no difference.  A range is longer than what is needed now, as kernels take a limited number of them.
 * It stays when the driver is unloaded: then it is a part of the kernel's dump_avail[], where the
 * driver finds out how much memory there are addresses for.
 *
 * Pages go by XENMEM_decrease_reservation, which takes the memory from behind a guest-physical
 * address, and are repopulated by XENMEM_populate_physmap, which puts other memory there, up to
 * BATCH_EXTENTS in a hypercall.  Both may do a part only; Xen may have no memory left, which
 * is retried as pv_balloon does.  Pages are zeroed before that.
 *
 * Blocks of 2 MB are repopulated as one extent where Xen has such memory: that is one entry of the
 * tables that translate the guest's addresses, instead of 512, and later accesses are cheaper by as
 * much. They go page by page: if Xen stopped within an extent, it would not report where.
 *
 * Trust.  What is in memory/target is a decimal number or it is ignored, counted, and reported once
 * until there is a valid one.  Nothing is done beyond static-max, and an absurd static-max is
 * harmless: addresses are claimed only as the target requires them.
 *
 * Locking.  xb_mtx for the numbers that a target comes from, which sysctls read; all else is the
 * worker's.
 *
 * Gaps: FreeBSD's kernel has no handler of pv_memory_add, so that a domain can't grow beyond its
 * memory map there.  That is reported once, and the balloon is used as far as it goes.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/rman.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/vm_dumpset.h>

#include <machine/md_var.h>
#include <machine/resource.h>

#include <dev/pv/pv_tunable.h>
#include <dev/pv/balloon/pv_balloon.h>
#include <dev/pv/pv_memory.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>
#include <xen/memory.h>

#define	CONTROL_DIR	"control"
#define	BALLOON_KEY	"feature-balloon"
#define	MEMORY_DIR	"memory"
#define	BATCH_EXTENTS	512
#define	KB_A_PAGE	(PAGE_SIZE / 1024)
#define	BLOCK_KB	2048		/* ranges begin and end at multiples of it */
#define	BLOCK_LOG2	21
#define	MAP_SLACK_KB	(20 * 1024)	/* of static-max, for firmware and a screen, is in no map */
#define	GROW_MIN_KB	(16 * 1024)	/* the shortest range, */
#define	GROW_PARTS	8		/* and what part of all that is missing it is at least */
#define	GROW_FREE	10ull		/* it is at most so many times the free memory */
#define	GROW_RID	16		/* of the parent: other ones than its own */
#define	GROW_RETRY	(5 * hz)
#define	READ_RETRY	hz

struct xenballoon_softc {
	device_t	xb_dev;
	struct pv_balloon xb_balloon;
	struct xenstore_watch xb_watch;
	struct sysctl_ctx_list xb_sysctl;
	struct mtx	xb_mtx;
	uint64_t	xb_static_max;	/* kB; this and the next two under xb_mtx */
	uint64_t	xb_target;	/* kB */
	uint64_t	xb_have;	/* kB that there are pages for, in the balloon or not */
	uint64_t	xb_added;	/* kB of them that came after the boot */
	uint64_t	xb_bad_targets;
	uint64_t	xb_blocks;	/* that were repopulated as one extent */
	u_int		xb_ranges;
	u_int		xb_changed;	/* atomic: the target is to be read */
	int		xb_unread;	/* why it could not be */
	bool		xb_stuck;	/* there can't be more pages */
	bool		xb_complained;	/* about a target */
	u_int		xb_announced;	/* the control key, in this xen_life and one */
	bool		xb_leaving;	/* a thread detaches it */
	xen_pfn_t	xb_frames[BATCH_EXTENTS];
};

static struct pv_tunable xenballoon_tunables[] = {
	PV_TUNABLE("scrub", 1, 0, 1, 0, "Zero pages before Xen gets them"),
};
PV_TUNABLES(xenballoon_tunables, hw, "xenballoon", xenballoon_tunables, "Xen's memory balloon");

/* Give or take pages.  *done is set to how many, from the front, Xen did. */
static int
xenballoon_move(struct xenballoon_softc *sc, u_int cmd, vm_page_t *pages, u_int n, u_int *done)
{
	u_int i;

	for (i = 0; i < n; i++)
		sc->xb_frames[i] = atop(VM_PAGE_TO_PHYS(pages[i]));
	return (xen_memory_reservation(cmd, 0, sc->xb_frames, n, done));
}

/* Are these pages a whole block? */
static bool
xenballoon_is_block(vm_page_t *pages, u_int n)
{
	vm_paddr_t pa = VM_PAGE_TO_PHYS(pages[0]);
	u_int i;

	if (n != PV_BALLOON_BLOCK || (pa & ((1 << BLOCK_LOG2) - 1)) != 0)
		return (false);
	for (i = 1; i < n; i++) {
		if (VM_PAGE_TO_PHYS(pages[i]) != pa + ptoa(i))
			return (false);
	}
	return (true);
}

/* Take back a block at once.  Returns whether Xen had one. */
static bool
xenballoon_take_block(struct xenballoon_softc *sc, vm_page_t first)
{
	xen_pfn_t frame = atop(VM_PAGE_TO_PHYS(first));
	u_int done;

	(void)xen_memory_reservation(XENMEM_populate_physmap, BLOCK_LOG2 - PAGE_SHIFT, &frame, 1,
	    &done);
	sc->xb_blocks += done;
	return (done != 0);
}

static int
xenballoon_inflate(struct pv_balloon *pb, vm_page_t *pages, u_int n, u_int *done)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc, xb_balloon);

	return (xenballoon_move(sc, XENMEM_decrease_reservation, pages, n, done));
}

static int
xenballoon_deflate(struct pv_balloon *pb, vm_page_t *pages, u_int n, u_int *done)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc, xb_balloon);

	if (xenballoon_is_block(pages, n) && xenballoon_take_block(sc, pages[0])) {
		*done = n;
		return (0);
	}
	return (xenballoon_move(sc, XENMEM_populate_physmap, pages, n, done));
}

/* The target, as the number of pages that are too many. */
static void
xenballoon_retarget(struct xenballoon_softc *sc)
{
	uint64_t kb;

	mtx_lock(&sc->xb_mtx);
	kb = sc->xb_have - MIN(sc->xb_have, sc->xb_target);
	mtx_unlock(&sc->xb_mtx);
	pv_balloon_set_target(&sc->xb_balloon, kb / KB_A_PAGE);
}

/*
 * How many kB of addresses are to be added now.  None before there is memory behind those that there
 * are, and no more than the guest can afford: a page takes some 100 bytes to manage.
 */
static uint64_t
xenballoon_wanted(struct xenballoon_softc *sc)
{
	uint64_t least, missing, room;

	mtx_lock(&sc->xb_mtx);
	missing = sc->xb_target - MIN(sc->xb_target, sc->xb_have);
	room = sc->xb_static_max - MIN(sc->xb_static_max, sc->xb_have);
	mtx_unlock(&sc->xb_mtx);
	if (missing == 0 || sc->xb_stuck || sc->xb_balloon.pb_npages != 0)
		return (0);
	least = MAX(GROW_MIN_KB, room / GROW_PARTS);
	room = ummin(room, GROW_FREE * vm_free_count() * KB_A_PAGE);
	return (rounddown2(MIN(roundup2(MAX(missing, least), BLOCK_KB), room), BLOCK_KB));
}

/* Have the kernel manage so many kB more of addresses, with nothing behind them. */
static int
xenballoon_add(struct xenballoon_softc *sc, uint64_t kb)
{
	device_t parent = device_get_parent(sc->xb_dev);
	struct pv_memory pm = { .pm_error = EOPNOTSUPP };
	rman_res_t start = MAX((rman_res_t)1 << 32, ptoa((rman_res_t)Maxmem));
	struct resource *res;
	int rid = GROW_RID + sc->xb_ranges;

	res = bus_alloc_resource(parent, SYS_RES_MEMORY, &rid, start, ~(rman_res_t)0, kb * 1024,
	    RF_ALIGNMENT_LOG2(BLOCK_LOG2));
	if (res == NULL)
		return (ENOSPC);
	pm.pm_start = rman_get_start(res);
	pm.pm_end = pm.pm_start + kb * 1024;
	EVENTHANDLER_INVOKE(pv_memory_add, &pm);
	if (pm.pm_error != 0) {
		(void)bus_release_resource(parent, SYS_RES_MEMORY, rid, res);
		return (pm.pm_error);
	}
	sc->xb_ranges++;
	pv_balloon_adopt(&sc->xb_balloon, pm.pm_first, kb / KB_A_PAGE);
	mtx_lock(&sc->xb_mtx);
	sc->xb_have += kb;
	sc->xb_added += kb;
	mtx_unlock(&sc->xb_mtx);
	xenballoon_retarget(sc);
	device_printf(sc->xb_dev, "%ju MB of memory were added at %#jx\n", (uintmax_t)kb / 1024,
	    (uintmax_t)pm.pm_start);
	return (0);
}

/* Read a number of kB below memory/.  EINVAL if it is none. */
static int
xenballoon_read(const char *name, uint64_t *kb)
{
	uint64_t value = 0;
	char *text;
	const char *c;
	size_t len;
	int error;

	error = xenstore_read(NULL, MEMORY_DIR, name, &text, &len);
	if (error != 0)
		return (error);
	if (len == 0 || len > 18)
		error = EINVAL;
	for (c = text; error == 0 && c < text + len; c++) {
		if (*c < '0' || *c > '9')
			error = EINVAL;
		else
			value = value * 10 + (*c - '0');
	}
	xenstore_free(text);
	if (error == 0)
		*kb = value;
	return (error);
}

/* The same for static-max, as far as it is one. */
static int
xenballoon_read_max(uint64_t *kb)
{
	uint64_t value;
	int error;

	error = xenballoon_read("static-max", &value);
	if (error == 0 && value / KB_A_PAGE > LONG_MAX / PAGE_SIZE)
		error = EINVAL;
	if (error == 0)
		*kb = value;
	return (error);
}

/*
 * Read the target and what limits it.  What xenstore does not answer stays as it is, and is
 * read again.
 */
static void
xenballoon_reread(struct xenballoon_softc *sc)
{
	uint64_t kb, max = sc->xb_static_max;
	int error;

	error = xenballoon_read("target", &kb);
	if (error == 0 || xenstore_is_missing(error) || error == EINVAL) {
		sc->xb_unread = xenballoon_read_max(&max);
		if (xenstore_is_missing(sc->xb_unread) || sc->xb_unread == EINVAL)
			sc->xb_unread = 0;
	} else
		sc->xb_unread = error;
	if (sc->xb_unread != 0)
		return;
	if (error != 0) {
		sc->xb_bad_targets++;
		if (!sc->xb_complained)
			device_printf(sc->xb_dev, "memory/target is not a number of kB (error %d): "
			    "ignored\n", error);
		sc->xb_complained = true;
		return;
	}
	sc->xb_complained = false;
	mtx_lock(&sc->xb_mtx);
	sc->xb_static_max = max;
	sc->xb_target = kb;
	mtx_unlock(&sc->xb_mtx);
	xenballoon_retarget(sc);
}

/*
 * XenServer's and XCP-ng's toolstacks change the target of a domain that says that it has a
 * balloon, and of no other.  A suspension ends in a domain that has not said so.  Who does not
 * permit the key does not read it either.
 */
static void
xenballoon_announce(struct xenballoon_softc *sc)
{
	u_int life = atomic_load_int(&xen_life);

	if (sc->xb_announced == life + 1)
		return;
	if (xenstore_write(NULL, CONTROL_DIR, BALLOON_KEY, "1") != ETIMEDOUT)
		sc->xb_announced = life + 1;
}

/* Before each step: are there pages enough?  That there are not must not keep the others waiting. */
static int
xenballoon_poll(struct pv_balloon *pb)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc, xb_balloon);
	uint64_t kb;
	int error;

	xenballoon_announce(sc);
	if (atomic_readandclear_int(&sc->xb_changed) != 0 || sc->xb_unread != 0)
		xenballoon_reread(sc);
	kb = xenballoon_wanted(sc);
	if (kb == 0)
		return (0);
	/* Less may still be possible. */
	while ((error = xenballoon_add(sc, kb)) != 0 && error != EOPNOTSUPP && kb > GROW_MIN_KB)
		kb = rounddown2(kb / 2, BLOCK_KB);
	if (error != 0 && error != ENOMEM) {
		sc->xb_stuck = true;
		device_printf(sc->xb_dev, "the kernel can't add %ju MB of memory to its own (error "
		    "%d): the domain stays at %ju MB\n", (uintmax_t)kb / 1024, error,
		    (uintmax_t)sc->xb_have / 1024);
	}
	return (0);
}

static int
xenballoon_idle(struct pv_balloon *pb)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc, xb_balloon);

	if (sc->xb_unread != 0)
		return (READ_RETRY);
	return (xenballoon_wanted(sc) == 0 ? 0 : GROW_RETRY);
}

static const struct pv_balloon_ops xenballoon_ops = {
	.bo_inflate = xenballoon_inflate,
	.bo_deflate = xenballoon_deflate,
	.bo_poll = xenballoon_poll,
	.bo_idle = xenballoon_idle,
};

/*
 * How much of static-max the kernel has addresses for.  What it booted with was all of it, but
 * static-max may be another one since.
 */
static uint64_t
xenballoon_map(uint64_t static_max)
{
	uint64_t kb = 0;
	u_int i;

	for (i = 0; dump_avail[i + 1] != 0; i += 2)
		kb += (dump_avail[i + 1] - dump_avail[i]) / 1024;
	return (static_max - MIN(static_max, kb) <= MAP_SLACK_KB ? static_max : kb);
}

static void
xenballoon_watch(struct xenstore_watch *w, const char *path __unused)
{
	struct xenballoon_softc *sc = w->xw_arg;

	atomic_store_rel_int(&sc->xb_changed, 1);
	pv_balloon_wake(&sc->xb_balloon);
}

static void
xenballoon_identify(driver_t *driver __unused, device_t parent)
{
	if (device_find_child(parent, "xenballoon", -1) == NULL)
		(void)device_add_child(parent, "xenballoon", 0);
}

static int
xenballoon_probe(device_t dev)
{
	device_set_desc(dev, "Xen memory balloon");
	return (BUS_PROBE_NOWILDCARD);
}

static void
xenballoon_sysctl(struct xenballoon_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->xb_sysctl;
	struct sysctl_oid_list *top = SYSCTL_CHILDREN(device_get_sysctl_tree(sc->xb_dev));

	sysctl_ctx_init(ctx);
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "static_max", CTLFLAG_RD, &sc->xb_static_max, 0,
	    "Memory that the domain may have, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "memory", CTLFLAG_RD, &sc->xb_have, 0,
	    "Memory that there are pages for, in the balloon or not, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "added", CTLFLAG_RD, &sc->xb_added, 0,
	    "Memory that was added to the kernel's, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "memory_target", CTLFLAG_RD, &sc->xb_target, 0,
	    "Memory that the domain is to have, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "bad_targets", CTLFLAG_RD, &sc->xb_bad_targets, 0,
	    "Targets that were not a number");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "blocks", CTLFLAG_RD, &sc->xb_blocks, 0,
	    "Times that 2 MB were repopulated as one extent");
}

static int
xenballoon_attach(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);
	const struct pv_balloon_params params = {
		.bp_batch = BATCH_EXTENTS,
		.bp_blocks = true,
		.bp_scrub = xenballoon_tunables[0].pt_value != 0,
	};
	int error;

	sc->xb_dev = dev;
	error = xenballoon_read_max(&sc->xb_static_max);
	if (error != 0) {
		device_printf(dev, "memory/static-max can't be read (error %d)\n", error);
		return (error);
	}
	sc->xb_have = sc->xb_target = xenballoon_map(sc->xb_static_max);
	error = pv_balloon_init(&sc->xb_balloon, dev, &xenballoon_ops, &params);
	if (error != 0)
		return (error);
	mtx_init(&sc->xb_mtx, device_get_nameunit(dev), "xenballoon", MTX_DEF);
	xenballoon_sysctl(sc);
	pv_balloon_start(&sc->xb_balloon);
	sc->xb_watch.xw_changed = xenballoon_watch;
	sc->xb_watch.xw_arg = sc;
	error = xenstore_watch_add(&sc->xb_watch, MEMORY_DIR, "target");
	if (error != 0) {
		device_printf(dev, "memory/target can't be watched (error %d)\n", error);
		pv_balloon_leave(&sc->xb_balloon);
		sysctl_ctx_free(&sc->xb_sysctl);
		pv_balloon_fini(&sc->xb_balloon, false);
		mtx_destroy(&sc->xb_mtx);
	}
	return (error);
}

/*
 * There is nothing behind the addresses of pages that Xen does not repopulate (xl mem-set also lowers
 * what the domain may have at most): with such pages the driver has to stay.
 */
static int
xenballoon_detach(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);
	int error;

	/* newbus does not know that another thread is here, and sleeps. */
	if (sc->xb_leaving)
		return (EBUSY);
	sc->xb_leaving = true;
	error = pv_balloon_empty(&sc->xb_balloon);
	if (error != 0) {
		device_printf(dev, "%lu pages can't be taken back (error %d): not unloaded; raise "
		    "the limits by xl mem-max and mem-set\n", sc->xb_balloon.pb_npages, error);
		(void)pv_balloon_thaw(&sc->xb_balloon);
		sc->xb_leaving = false;
		return (EBUSY);
	}
	(void)xenstore_remove(NULL, CONTROL_DIR, BALLOON_KEY);
	xenstore_watch_remove(&sc->xb_watch);
	sysctl_ctx_free(&sc->xb_sysctl);
	pv_balloon_leave(&sc->xb_balloon);
	pv_balloon_fini(&sc->xb_balloon, false);
	mtx_destroy(&sc->xb_mtx);
	return (0);
}

/* Ballooned pages are not saved: the domain does not have them. */
static int
xenballoon_suspend(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);

	if (sc->xb_leaving)
		return (EBUSY);
	return (pv_balloon_freeze(&sc->xb_balloon));
}

static int
xenballoon_resume(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);

	return (pv_balloon_thaw(&sc->xb_balloon));
}

static device_method_t xenballoon_methods[] = {
	DEVMETHOD(device_identify,	xenballoon_identify),
	DEVMETHOD(device_probe,		xenballoon_probe),
	DEVMETHOD(device_attach,	xenballoon_attach),
	DEVMETHOD(device_detach,	xenballoon_detach),
	DEVMETHOD(device_suspend,	xenballoon_suspend),
	DEVMETHOD(device_resume,	xenballoon_resume),

	DEVMETHOD_END
};

static driver_t xenballoon_driver = {
	"xenballoon",
	xenballoon_methods,
	sizeof(struct xenballoon_softc)
};

DRIVER_MODULE(xen_balloon, xen, xenballoon_driver, NULL, NULL);
MODULE_VERSION(xen_balloon, 1);
MODULE_DEPEND(xen_balloon, xen, 1, 1, 1);
MODULE_DEPEND(xen_balloon, pv, 1, 1, 1);
MODULE_DEPEND(xen_balloon, pv_balloon, 1, 1, 1);
