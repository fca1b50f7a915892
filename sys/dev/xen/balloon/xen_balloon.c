/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xen_balloon: the memory of a domain follows the target of its toolstack.
 *
 * The toolstack writes how much memory the domain is to have to memory/target
 * in xenstore, in kB, and how much it may ever have to memory/static-max
 * (docs/misc/xenstore-paths of Xen).  The domain was booted with a memory map
 * of static-max; the difference of the two belongs into the balloon.  That is
 * so from the start where target is less ("maxmem" over "memory" in xl's
 * configuration): Xen populates pages when they are touched then (PoD), and has
 * only as many as target says, so the driver should be loaded early.
 *
 * The kernel manages the memory of the map that it was booted with, and no
 * more: where the toolstack raises target beyond that (xl mem-max), the domain
 * stays at what it has, which is reported once.
 *
 * Pages go by XENMEM_decrease_reservation, which takes the memory from behind a
 * guest-physical address, and are repopulated by XENMEM_populate_physmap, which
 * puts other memory there, up to BATCH_EXTENTS in a hypercall.  Both may do a
 * part only; Xen may have no memory left, which is retried as pv_balloon does.
 * Pages are zeroed before that.
 *
 * Blocks of 2 MB are repopulated as one extent where Xen has such memory: that
 * is one entry of the tables that translate the guest's addresses, instead of
 * 512, and later accesses are cheaper by as much. They go page by page: if Xen
 * stopped within an extent, it would not report where.
 *
 * Trust.  What is in memory/target is a decimal number or it is ignored,
 * counted, and reported once until there is a valid one.  An absurd static-max
 * is harmless: what counts is the memory map.
 *
 * Locking.  xbn_mtx for the target, which sysctls read; all else is the
 * worker's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/sysctl.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/vm_dumpset.h>


#include <dev/pv/pv_tunable.h>
#include <dev/pv/balloon/pv_balloon.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>
#include <xen/memory.h>

#define	CONTROL_DIR	"control"
#define	BALLOON_KEY	"feature-balloon"
#define	MEMORY_DIR	"memory"
#define	BATCH_EXTENTS	512
#define	KB_A_PAGE	(PAGE_SIZE / 1024)
#define	BLOCK_LOG2	21
#define	MAP_SLACK_KB	(20 * 1024)	/* of static-max,
					 * for firmware, is in no map */
#define	READ_RETRY	hz

struct xenballoon_softc {
	device_t	xbn_dev;
	struct pv_balloon xbn_balloon;
	struct xenstore_watch xbn_watch;
	struct sysctl_ctx_list xbn_sysctl;
	struct mtx	xbn_mtx;
	uint64_t	xbn_static_max;	/* kB, at attach */
	uint64_t	xbn_target;	/* kB, under xbn_mtx */
	uint64_t	xbn_have;	/* kB that there are pages for, in the
					 * balloon or not */
	uint64_t	xbn_bad_targets;
	uint64_t	xbn_blocks;	/* that were repopulated
					 * as one extent */
	u_int		xbn_changed;	/* atomic: the target is to be read */
	int		xbn_unread;	/* why it could not be */
	bool		xbn_full;	/* it was said that the target
					 * is out of reach */
	bool		xbn_complained;	/* about a target */
	u_int		xbn_announced;	/* the control key,
					 * in this xen_life and one */
	bool		xbn_leaving;	/* a thread detaches it */
	xen_pfn_t	xbn_frames[BATCH_EXTENTS];
};

static struct pv_tunable xenballoon_tunables[] = {
	PV_TUNABLE("scrub", 1, 0, 1, 0, "Zero pages before Xen gets them"),
};
PV_TUNABLES(xenballoon_tunables, hw, "xenballoon", xenballoon_tunables,
    "Xen's memory balloon");

/* Give or take pages.  *done is set to how many, from the front, Xen did. */
static int
xenballoon_move(struct xenballoon_softc *sc, u_int cmd, vm_page_t *pages,
    u_int n, u_int *done)
{
	u_int i;

	for (i = 0; i < n; i++)
		sc->xbn_frames[i] = atop(VM_PAGE_TO_PHYS(pages[i]));
	return (xen_memory_reservation(cmd, 0, sc->xbn_frames, n, done));
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

	(void)xen_memory_reservation(XENMEM_populate_physmap,
	    BLOCK_LOG2 - PAGE_SHIFT, &frame, 1, &done);
	sc->xbn_blocks += done;
	return (done != 0);
}

static int
xenballoon_inflate(struct pv_balloon *pb, vm_page_t *pages, u_int n,
    u_int *done)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc,
	    xbn_balloon);

	return (xenballoon_move(sc, XENMEM_decrease_reservation, pages, n,
	    done));
}

static int
xenballoon_deflate(struct pv_balloon *pb, vm_page_t *pages, u_int n,
    u_int *done)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc,
	    xbn_balloon);

	if (xenballoon_is_block(pages, n) &&
	    xenballoon_take_block(sc, pages[0])) {
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

	mtx_lock(&sc->xbn_mtx);
	kb = sc->xbn_have - MIN(sc->xbn_have, sc->xbn_target);
	mtx_unlock(&sc->xbn_mtx);
	pv_balloon_set_target(&sc->xbn_balloon, kb / KB_A_PAGE);
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

/* Read what the domain may have at most, and what of that is a screen's. */
static int
xenballoon_read_max(uint64_t *kb, uint64_t *screen)
{
	uint64_t value;
	int error;

	*screen = 0;
	error = xenballoon_read("static-max", &value);
	if (error == 0 && value / KB_A_PAGE > LONG_MAX / PAGE_SIZE)
		error = EINVAL;
	if (error != 0)
		return (error);
	*kb = value;
	error = xenballoon_read("videoram", &value);
	if (error == 0)
		*screen = MIN(value, *kb);
	return (xenstore_is_missing(error) || error == EINVAL ? 0 : error);
}

/*
 * Read the target.  What xenstore does not answer stays as it is, and is read
 * again.
 */
static void
xenballoon_reread(struct xenballoon_softc *sc)
{
	uint64_t kb;
	int error;

	error = xenballoon_read("target", &kb);
	sc->xbn_unread = xenstore_is_missing(error) ||
	    error == EINVAL ? 0 : error;
	if (sc->xbn_unread != 0)
		return;
	if (error != 0) {
		sc->xbn_bad_targets++;
		if (!sc->xbn_complained)
			device_printf(sc->xbn_dev,
			    "memory/target is not a number of kB (error %d): "
			    "ignored\n", error);
		sc->xbn_complained = true;
		return;
	}
	sc->xbn_complained = false;
	mtx_lock(&sc->xbn_mtx);
	sc->xbn_target = kb;
	mtx_unlock(&sc->xbn_mtx);
	xenballoon_retarget(sc);
	if (kb > sc->xbn_have + MAP_SLACK_KB && !sc->xbn_full) {
		sc->xbn_full = true;
		device_printf(sc->xbn_dev,
		    "the domain is to have %ju MB: it stays at %ju MB until it "
		    "is started with a larger maxmem\n", (uintmax_t)kb / 1024,
		    (uintmax_t)sc->xbn_have / 1024);
	}
}

/*
 * XenServer's and XCP-ng's toolstacks change the target of a domain that says
 * that it has a balloon, and of no other.  A suspension ends in a domain that
 * has not said so.  Who does not permit the key does not read it either.
 */
static void
xenballoon_announce(struct xenballoon_softc *sc)
{
	u_int life = atomic_load_int(&xen_life);

	if (sc->xbn_announced == life + 1)
		return;
	if (xenstore_write(NULL, CONTROL_DIR, BALLOON_KEY, "1") != ETIMEDOUT)
		sc->xbn_announced = life + 1;
}

static int
xenballoon_poll(struct pv_balloon *pb)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc,
	    xbn_balloon);

	xenballoon_announce(sc);
	if (atomic_readandclear_int(&sc->xbn_changed) != 0 ||
	    sc->xbn_unread != 0)
		xenballoon_reread(sc);
	return (0);
}

static int
xenballoon_idle(struct pv_balloon *pb)
{
	struct xenballoon_softc *sc = __containerof(pb, struct xenballoon_softc,
	    xbn_balloon);

	return (sc->xbn_unread != 0 ? READ_RETRY : 0);
}

static const struct pv_balloon_ops xenballoon_ops = {
	.pbo_inflate = xenballoon_inflate,
	.pbo_deflate = xenballoon_deflate,
	.pbo_poll = xenballoon_poll,
	.pbo_idle = xenballoon_idle,
};

/*
 * How much of static-max the kernel has addresses for.  What it booted with was
 * all of it but the screen's, which no target has either; but static-max may be
 * another one since.
 */
static uint64_t
xenballoon_map(uint64_t static_max, uint64_t screen)
{
	uint64_t kb = 0, most = static_max - screen;
	u_int i;

	for (i = 0; dump_avail[i + 1] != 0; i += 2)
		kb += (dump_avail[i + 1] - dump_avail[i]) / 1024;
	return (most - MIN(most, kb) <= MAP_SLACK_KB ? most : kb);
}

static void
xenballoon_watch(struct xenstore_watch *w, const char *path __unused)
{
	struct xenballoon_softc *sc = w->xw_arg;

	atomic_store_rel_int(&sc->xbn_changed, 1);
	pv_balloon_wake(&sc->xbn_balloon);
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
	struct sysctl_ctx_list *ctx = &sc->xbn_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->xbn_dev));

	sysctl_ctx_init(ctx);
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "static_max", CTLFLAG_RD, &sc->xbn_static_max, 0,
	    "Memory that the domain might have when the driver attached, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "memory", CTLFLAG_RD, &sc->xbn_have,
	    0, "Memory that there are pages for, in the balloon or not, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "memory_target", CTLFLAG_RD,
	    &sc->xbn_target, 0, "Memory that the domain is to have, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "bad_targets", CTLFLAG_RD,
	    &sc->xbn_bad_targets, 0, "Targets that were not a number");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "blocks", CTLFLAG_RD, &sc->xbn_blocks, 0,
	    "Times that 2 MB were repopulated as one extent");
}

static int
xenballoon_attach(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);
	const struct pv_balloon_params params = {
		.pbp_batch = BATCH_EXTENTS,
		.pbp_blocks = true,
		.pbp_scrub = xenballoon_tunables[0].pt_value != 0,
	};
	uint64_t screen;
	int error;

	sc->xbn_dev = dev;
	error = xenballoon_read_max(&sc->xbn_static_max, &screen);
	if (error != 0) {
		device_printf(dev,
		    "memory/static-max can't be read (error %d)\n", error);
		return (error);
	}
	sc->xbn_have = sc->xbn_target = xenballoon_map(sc->xbn_static_max,
	    screen);
	error = pv_balloon_init(&sc->xbn_balloon, dev, &xenballoon_ops,
	    &params);
	if (error != 0)
		return (error);
	mtx_init(&sc->xbn_mtx, device_get_nameunit(dev), "xenballoon", MTX_DEF);
	xenballoon_sysctl(sc);
	pv_dev_start(&sc->xbn_balloon.pb_pvdev, true);
	sc->xbn_watch.xw_changed = xenballoon_watch;
	sc->xbn_watch.xw_arg = sc;
	error = xenstore_watch_add(&sc->xbn_watch, MEMORY_DIR, "target");
	if (error != 0) {
		device_printf(dev,
		    "memory/target can't be watched (error %d)\n", error);
		pv_dev_leave(&sc->xbn_balloon.pb_pvdev);
		sysctl_ctx_free(&sc->xbn_sysctl);
		pv_balloon_fini(&sc->xbn_balloon, false);
		mtx_destroy(&sc->xbn_mtx);
	}
	return (error);
}

/*
 * There is nothing behind the addresses of pages that Xen does not repopulate
 * (xl mem-set also lowers what the domain may have at most): with such pages
 * the driver has to stay.
 */
static int
xenballoon_detach(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);
	int error;

	/* newbus does not know that another thread is here, and sleeps. */
	if (sc->xbn_leaving)
		return (EBUSY);
	sc->xbn_leaving = true;
	error = pv_balloon_empty(&sc->xbn_balloon);
	if (error != 0) {
		device_printf(dev,
		    "%lu pages can't be taken back (error %d): not unloaded; raise "
		    "the limits by xl mem-max and mem-set\n",
		    sc->xbn_balloon.pb_npages, error);
		(void)pv_dev_thaw(&sc->xbn_balloon.pb_pvdev);
		sc->xbn_leaving = false;
		return (EBUSY);
	}
	(void)xenstore_remove(NULL, CONTROL_DIR, BALLOON_KEY);
	xenstore_watch_remove(&sc->xbn_watch);
	sysctl_ctx_free(&sc->xbn_sysctl);
	pv_dev_leave(&sc->xbn_balloon.pb_pvdev);
	pv_balloon_fini(&sc->xbn_balloon, false);
	mtx_destroy(&sc->xbn_mtx);
	return (0);
}

/* Ballooned pages are not saved: the domain does not have them. */
static int
xenballoon_suspend(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);

	if (sc->xbn_leaving)
		return (EBUSY);
	return (pv_dev_freeze(&sc->xbn_balloon.pb_pvdev));
}

static int
xenballoon_resume(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);

	return (pv_dev_thaw(&sc->xbn_balloon.pb_pvdev));
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
