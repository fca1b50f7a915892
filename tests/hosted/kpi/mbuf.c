/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tree kernel's mbufs (sys/kern/kern_mbuf.c and its neighbours) are made from: zones whose
 * items are memory that ASan watches, each for itself.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/linker_set.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <net/if.h>
#include <net/if_var.h>
#include <vm/uma.h>

#include "../host/host.h"
#include "kpi.h"
#include "mbuf.h"

struct uma_zone {
	size_t		 size;
	uma_ctor	 ctor;
	uma_dtor	 dtor;
	uma_init	 init;
	uma_fini	 fini;
	struct uma_zone	*primary;
};

int kpi_items;
long physmem = 1 << 16;
struct sysctl_oid sysctl___kern_ipc;

static struct uma_zone kpi_zones[8];
static int kpi_nzones;

SET_DECLARE(sysinit_set, struct sysinit);

uma_zone_t
uma_zcreate(const char *name __unused, size_t size, uma_ctor ctor, uma_dtor dtor, uma_init init,
    uma_fini fini, int align __unused, uint32_t flags __unused)
{
	struct uma_zone *zone = &kpi_zones[kpi_nzones++];

	CHECK(kpi_nzones <= (int)nitems(kpi_zones), "too many zones");
	*zone = (struct uma_zone){ size, ctor, dtor, init, fini, NULL };
	return (zone);
}

uma_zone_t
uma_zsecond_create(const char *name, uma_ctor ctor, uma_dtor dtor, uma_init init, uma_fini fini,
    uma_zone_t primary)
{
	uma_zone_t zone = uma_zcreate(name, primary->size, ctor, dtor, init, fini, 0, 0);

	zone->primary = primary;
	return (zone);
}

void *
uma_zalloc_arg(uma_zone_t zone, void *arg, int flags)
{
	void *item;

	if ((flags & M_NOWAIT) != 0 && kpi_fail_now())
		return (NULL);
	item = host_alloc(zone->size, MSIZE);
	kpi_items++;
	memset(item, 0xa5, zone->size);
	if ((zone->init == NULL || zone->init(item, zone->size, flags) == 0) &&
	    (zone->ctor == NULL || zone->ctor(item, zone->size, arg, flags) == 0))
		return (item);
	kpi_items--;
	host_free(item);
	return (NULL);
}

void
uma_zfree_arg(uma_zone_t zone, void *item, void *arg)
{

	if (zone->dtor != NULL)
		zone->dtor(item, zone->size, arg);
	if (zone->fini != NULL)
		zone->fini(item, zone->size);
	kpi_items--;
	host_free(item);
}

/* ASan's own: memory that is poisoned may not be touched. */
void	__asan_poison_memory_region(const volatile void *addr, size_t size);
void	__asan_unpoison_memory_region(const volatile void *addr, size_t size);

/* Of vm/uma_tree.h, whose zones are others than these. */
void	uma_dbg_keep(uma_zone_t zone, void *item);
void	uma_dbg_reuse(uma_zone_t zone, void *item);

/*
 * A packet's cluster while the packet is free: what the tree kernel finds changed afterwards, ASan
 * reports at once.
 */
void
uma_dbg_keep(uma_zone_t zone, void *item)
{

	__asan_poison_memory_region(item, zone->size);
}

void
uma_dbg_reuse(uma_zone_t zone, void *item)
{

	__asan_unpoison_memory_region(item, zone->size);
}

int
uma_zone_set_max(uma_zone_t zone __unused, int max)
{

	return (max);
}

/* Of each zone; 0: none. */
int kpi_zone_max;

int
uma_zone_get_max(uma_zone_t zone __unused)
{

	return (kpi_zone_max);
}

int
uma_zone_get_cur(uma_zone_t zone __unused)
{

	return (0);
}

int
getenv_int(const char *name __unused, int *value __unused)
{

	return (0);
}

int
if_snd_tag_alloc(if_t ifp __unused, union if_snd_tag_alloc_params *params __unused,
    struct m_snd_tag **mstp __unused)
{

	return (EOPNOTSUPP);
}

void
if_ref(if_t ifp __unused)
{
}

void
if_rele(if_t ifp __unused)
{
}

/* SYSINIT(9) casts what it is given. */
__attribute__((__no_sanitize__("function")))
void
kpi_mbuf_init(void)
{
	struct sysinit **si;

	if (kpi_nzones != 0)
		return;
	SET_FOREACH(si, sysinit_set) {
		if ((*si)->subsystem == SI_SUB_MBUF)
			(*si)->func((*si)->udata);
	}
	CHECK(kpi_nzones > 0, "no zones");
}

static void
kpi_mbuf_free_buf(struct mbuf *m)
{

	host_free(m->m_ext.ext_buf);
}

/* An mbuf whose buffer ends where its data does. */
static struct mbuf *
kpi_mbuf_exact(const void *data, size_t len, int flags)
{
	struct mbuf *m = m_get2(0, M_WAITOK, MT_DATA, flags);
	char *buf = host_alloc(MAX(len, 1), 1);

	memcpy(buf, data, len);
	m_extadd(m, buf, MAX(len, 1), kpi_mbuf_free_buf, NULL, NULL, 0, EXT_NET_DRV);
	m->m_len = len;
	return (m);
}

struct mbuf *
kpi_mbuf_chain(const void *data, size_t len, const size_t *pieces)
{
	struct mbuf *first = NULL, *m, **tail = &first;
	size_t at = 0, n;

	do {
		n = len - at;
		if (pieces != NULL && *pieces != 0) {
			n = MIN(n, *pieces);
			pieces++;
		}
		m = kpi_mbuf_exact((const char *)data + at, n, at == 0 ? M_PKTHDR : 0);
		*tail = m;
		tail = &m->m_next;
		at += n;
	} while (at < len);
	first->m_pkthdr.len = len;
	return (first);
}
