/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xen_balloon: the memory of a domain as its toolstack wants it.
 *
 * The toolstack writes how much memory the domain shall have to memory/target in xenstore, in kB, and
 * how much it may ever have to memory/static-max (docs/misc/xenstore-paths of Xen).  The domain was
 * booted with a memory map of static-max; what lies between the two belongs into the balloon.  That
 * is so from the start where target is less ("maxmem" over "memory" in xl's configuration): Xen
 * populates pages when they are touched then (PoD), and has only as many as target says, so the
 * driver had better be loaded early.  Growing beyond the memory that the domain began with is taking
 * such pages out of the balloon.
 *
 * Pages go by XENMEM_decrease_reservation, which takes the memory from behind a guest-physical
 * address, and come back by XENMEM_populate_physmap, which puts other memory there, up to
 * BATCH_EXTENTS in a hypercall.  Both may do a part only; Xen may have no memory to give back, which
 * is tried again as pv_balloon does.  Pages are zeroed before they go.
 *
 * Trust.  What is in memory/target is a decimal number or it is ignored, counted, and reported once
 * until there is a good one.  Nothing is done beyond the memory map.
 *
 * Locking.  None: targets come in xenstore's thread for watches, one at a time; all else is the
 * worker's.
 *
 * Gaps: a static-max that is raised while the domain runs (xl mem-max) has no effect, as no system
 * that this driver runs on can add memory that was not in its map.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/module.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>

#include <dev/pv/pv_balloon.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>
#include <xen/memory.h>

#define	MEMORY_DIR	"memory"
#define	BATCH_EXTENTS	512
#define	KB_A_PAGE	(PAGE_SIZE / 1024)

struct xenballoon_softc {
	device_t	xb_dev;
	struct pv_balloon xb_balloon;
	struct xenstore_watch xb_watch;
	struct sysctl_ctx_list xb_sysctl;
	uint64_t	xb_static_max;	/* kB */
	uint64_t	xb_target;	/* kB */
	uint64_t	xb_bad_targets;
	bool		xb_complained;	/* about a target */
	xen_pfn_t	xb_frames[BATCH_EXTENTS];
};

static SYSCTL_NODE(_hw, OID_AUTO, xenballoon, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "Xen memory balloon parameters");

static bool xenballoon_scrub = true;
SYSCTL_BOOL(_hw_xenballoon, OID_AUTO, scrub, CTLFLAG_RDTUN, &xenballoon_scrub, 0,
    "Zero pages before Xen gets them");

/* Give or take pages.  *done is set to how many, from the front, Xen did. */
static int
xenballoon_move(struct xenballoon_softc *sc, u_int cmd, vm_page_t *pages, u_int n, u_int *done)
{
	u_int i;

	for (i = 0; i < n; i++)
		sc->xb_frames[i] = atop(VM_PAGE_TO_PHYS(pages[i]));
	return (xen_memory_reservation(cmd, sc->xb_frames, n, done));
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

	return (xenballoon_move(sc, XENMEM_populate_physmap, pages, n, done));
}

static const struct pv_balloon_ops xenballoon_ops = {
	.bo_inflate = xenballoon_inflate,
	.bo_deflate = xenballoon_deflate,
};

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

static void
xenballoon_changed(struct xenstore_watch *w, const char *path __unused)
{
	struct xenballoon_softc *sc = w->xw_arg;
	uint64_t kb;
	int error;

	error = xenballoon_read("target", &kb);
	if (error != 0) {
		sc->xb_bad_targets++;
		if (!sc->xb_complained)
			device_printf(sc->xb_dev, "memory/target is not a number of kB (error %d): "
			    "ignored\n", error);
		sc->xb_complained = true;
		return;
	}
	sc->xb_complained = false;
	sc->xb_target = kb;
	kb = sc->xb_static_max - MIN(sc->xb_static_max, kb);
	pv_balloon_set_target(&sc->xb_balloon, kb / KB_A_PAGE);
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
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "memory_target", CTLFLAG_RD, &sc->xb_target, 0,
	    "Memory that the domain shall have, in kB");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "bad_targets", CTLFLAG_RD, &sc->xb_bad_targets, 0,
	    "Targets that were no numbers");
}

static int
xenballoon_attach(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);
	const struct pv_balloon_params params = {
		.bp_batch = BATCH_EXTENTS,
		.bp_scrub = xenballoon_scrub,
	};
	int error;

	sc->xb_dev = dev;
	error = xenballoon_read("static-max", &sc->xb_static_max);
	if (error == 0 && sc->xb_static_max / KB_A_PAGE > LONG_MAX / PAGE_SIZE)
		error = EINVAL;
	if (error != 0) {
		device_printf(dev, "memory/static-max can't be read (error %d)\n", error);
		return (error);
	}
	error = pv_balloon_init(&sc->xb_balloon, dev, &xenballoon_ops, &params);
	if (error != 0)
		return (error);
	xenballoon_sysctl(sc);
	pv_balloon_start(&sc->xb_balloon);
	sc->xb_watch.xw_changed = xenballoon_changed;
	sc->xb_watch.xw_arg = sc;
	error = xenstore_watch_add(&sc->xb_watch, MEMORY_DIR, "target");
	if (error != 0) {
		device_printf(dev, "memory/target can't be watched (error %d)\n", error);
		pv_balloon_stop(&sc->xb_balloon);
		sysctl_ctx_free(&sc->xb_sysctl);
		pv_balloon_fini(&sc->xb_balloon, false);
	}
	return (error);
}

/*
 * There is nothing behind the addresses of pages that Xen does not give back (xl mem-set also lowers
 * what the domain may have at most): with such pages the driver has to stay.
 */
static int
xenballoon_detach(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);
	int error;

	pv_balloon_stop(&sc->xb_balloon);
	error = pv_balloon_empty(&sc->xb_balloon);
	if (error != 0) {
		device_printf(dev, "%lu pages don't come back (error %d): staying; xl mem-max, and "
		    "mem-set, give them back\n", sc->xb_balloon.pb_npages, error);
		pv_balloon_start(&sc->xb_balloon);
		return (EBUSY);
	}
	xenstore_watch_remove(&sc->xb_watch);
	sysctl_ctx_free(&sc->xb_sysctl);
	pv_balloon_fini(&sc->xb_balloon, false);
	return (0);
}

/* The balloon goes along: memory that the domain does not have is not saved. */
static int
xenballoon_suspend(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);

	pv_balloon_stop(&sc->xb_balloon);
	return (0);
}

static int
xenballoon_resume(device_t dev)
{
	struct xenballoon_softc *sc = device_get_softc(dev);

	pv_balloon_start(&sc->xb_balloon);
	return (0);
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
