/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4)'s rings: what is left of a set-up that failed.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/kobj.h>
#include <sys/malloc.h>
#include <sys/smp.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/netfront/netfront_var.h>

#include "bus_if.h"
#include "host/host.h"
#include "kpi/kpi.h"

void	rings_of_a_failed_set_up(const void *arg);

#define	PAIRS	2
#define	SLOTS	4

MALLOC_DEFINE(M_XEN, "xen", "Xen");

/* The personality's memory, which is another one for each set-up: where it has the queues. */
static struct pvq **queues;
cpuset_t all_cpus;
u_int mp_maxid;

static int channels;	/* so many can be had */
static grant_ref_t next_ref;
static int rings;
static int staged;
static u_int pages_fail;	/* the nth allocation of pages from now fails */

static int
read_ivar(device_t bus __unused, device_t child __unused, int which __unused, uintptr_t *value)
{

	*value = 7;
	return (0);
}

struct kobjop_desc bus_read_ivar_desc;
static struct kobj_method ivar_method = { &bus_read_ivar_desc, (kobjop_t)read_ivar };
static struct kobj_ops bus_ops;
static struct kobj bus = { &bus_ops };

/* What the cache has is not looked up. */
kobj_method_t *
kobj_lookup_method(kobj_class_t class __unused, kobj_method_t **cache __unused,
    kobjop_desc_t desc __unused)
{

	return (NULL);
}

device_t
device_get_parent(device_t dev __unused)
{

	return ((device_t)&bus);
}

const char *
device_get_nameunit(device_t dev __unused)
{

	return ("xn0");
}

void
pv_net_queue(struct pv_net *pn __unused, int pair, bool tx, struct pvq_spec *out)
{

	memset(out, 0, sizeof(*out));
	out->pqs_pvq = &queues[pair * 2 + tx];
}

void
pv_net_stage_queue(struct pv_net *pn __unused, int pair __unused, bool tx __unused,
    const struct pv_net_page *pages __unused)
{

	staged++;
}

int
xen_evtchn_alloc(domid_t otherend __unused, const struct xen_evtchn_params *params __unused,
    struct xen_evtchn **channel)
{

	if (channels == 0)
		return (ENOSPC);
	channels--;
	*channel = (struct xen_evtchn *)&channels;
	return (0);
}

void
xen_evtchn_free(struct xen_evtchn *channel __unused)
{
}

void
xen_evtchn_worked(struct xen_evtchn *channel __unused)
{
}

void
xen_evtchn_notify(struct xen_evtchn *channel __unused)
{
}

u_int
xen_gnttab_room(u_int *all)
{

	*all = 0;
	return (0);
}

bool
xenbus_has_queues(void)
{

	return (false);
}

static void
ring_free(struct pvq *q)
{

	rings--;
	free(q, M_XEN);
}

static const struct pvq_ops ring_ops = { .qo_free = ring_free };

int
grant_ring_create(const struct grant_ring_params *params __unused, struct pvq **pvq)
{

	*pvq = malloc(sizeof(**pvq), M_XEN, M_WAITOK | M_ZERO);
	(*pvq)->q_ops = &ring_ops;
	(*pvq)->q_size = SLOTS;
	rings++;
	return (0);
}

int
xen_gnttab_pages_alloc(domid_t otherend __unused, u_int n, int how, struct xen_gnttab_pages **gpp)
{
	struct xen_gnttab_pages *gp;

	if (pages_fail != 0 && --pages_fail == 0)
		return (ENOSPC);
	gp = malloc(sizeof(*gp) + n * sizeof(gp->gp_refs[0]), M_XEN, how | M_ZERO);
	gp->gp_va = malloc(ptoa(n), M_XEN, how | M_ZERO);
	gp->gp_refs[0] = next_ref++;
	*gpp = gp;
	return (0);
}

void
xen_gnttab_pages_free(struct xen_gnttab_pages *gp)
{

	free(gp->gp_va, M_XEN);
	free(gp, M_XEN);
}

/* Each slot's page is posted, or sent from, by its own reference. */
static void
check_pages(const struct xn_ring *ring, bool posted)
{
	const struct xn_post *post;
	const struct pv_net_page *page;
	u_int i;

	CHECK(ring->xr_npages == SLOTS, "%u pages", ring->xr_npages);
	for (i = 0; i < ring->xr_npages; i++) {
		page = &ring->xr_pages[i];
		post = &ring->xr_posts[i];
		CHECK(page->npg_mem == ring->xr_grants[i]->gp_va, "page %u: its memory", i);
		CHECK(page->npg_addr >> PAGE_SHIFT == ring->xr_grants[i]->gp_refs[0],
		    "page %u: reference %lu", i, page->npg_addr >> PAGE_SHIFT);
		CHECK(!posted || post->xp_req.gref == ring->xr_grants[i]->gp_refs[0],
		    "page %u: posted as %u", i, post->xp_req.gref);
		CHECK(page->npg_arg == &post->xp_msgs && post->xp_msgs.gm_msgs == &post->xp_req,
		    "page %u: another's request", i);
	}
}

/* The queues of the first set-up are gone when the second one fails. */
void
rings_of_a_failed_set_up(const void *arg __unused)
{
	static struct xn_softc sc;
	int mallocs = kpi_mallocs;
	u_int i;

	for (i = 0; i < KOBJ_CACHE_SIZE; i++)
		bus_ops.cache[i] = &ivar_method;
	CPU_SET(0, &all_cpus);
	memset(&sc, 0, sizeof(sc));
	sc.xn_dev = (device_t)&bus;
	sc.xn_npairs = PAIRS;
	for (i = 0; i < PAIRS; i++) {
		sc.xn_queues[i].xq_softc = &sc;
		sc.xn_queues[i].xq_id = i;
	}
	queues = malloc(2 * PAIRS * sizeof(*queues), M_XEN, M_WAITOK | M_ZERO);
	channels = PAIRS;
	CHECK(xn_rings_create(&sc) == 0 && rings == 2 * PAIRS && staged == 2 * PAIRS,
	    "%d rings, %d staged", rings, staged);
	for (i = 0; i < PAIRS; i++) {
		check_pages(&sc.xn_queues[i].xq_tx, false);
		check_pages(&sc.xn_queues[i].xq_rx, true);
	}
	xn_rings_free(&sc);
	CHECK(rings == 0, "%d rings are left", rings);
	free(queues, M_XEN);
	queues = malloc(2 * PAIRS * sizeof(*queues), M_XEN, M_WAITOK | M_ZERO);
	/* Whichever page there is no reference for. */
	for (i = 1; i <= 4; i++) {
		channels = PAIRS;
		pages_fail = i * SLOTS / 2;
		CHECK(xn_rings_create(&sc) == ENOSPC && rings == 0, "%d rings are left", rings);
	}
	channels = 0;
	CHECK(xn_rings_create(&sc) == ENOSPC && rings == 0, "%d rings are left", rings);
	free(queues, M_XEN);
	CHECK(kpi_mallocs == mallocs, "%d allocations are left", kpi_mallocs - mallocs);
}
