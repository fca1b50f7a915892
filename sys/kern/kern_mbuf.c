/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Allocation of mbufs and of the storage behind them (mbuf(9)).
 *
 * Every kind of buffer is a UMA zone.  An mbuf is 256 bytes; larger data are in a cluster of
 * 2, 4 (a page), 9 or 16 KB.  A cluster's constructor attaches it to the mbuf that is passed as
 * its argument.  The packet zone is a secondary zone of the mbuf zone, whose items keep a 2 KB
 * cluster attached while they are free, so that the most frequent allocation is one operation.
 *
 * Reference counts.  The count of a shared buffer is in the mbuf that it was first attached
 * to, the holder (EXT_FLAG_EMBREF).  Copies point at the count in the holder.  A holder that
 * is freed while copies are left stays allocated until the last of them is freed; dropping
 * the last reference frees the buffer and the holder.
 *
 * Locking.  None here: UMA serialises the zones, reference counts are atomic.
 *
 * Gaps.  No unmapped mbufs (M_EXTPG): nothing in this kernel makes them.  Reaching a limit
 * does not drain the packet zone's cache of clusters.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/socket.h>
#include <sys/sysctl.h>
#include <net/if.h>
#include <net/if_var.h>
#include <vm/vm.h>
#include <vm/uma.h>
#include <vm/uma_tree.h>

#include <kern/mbuf_tree.h>

CTASSERT(offsetof(struct mbuf, m_dat) == 32);
CTASSERT(sizeof(struct pkthdr) == 64);
CTASSERT(MLEN == MSIZE - 32);

uma_zone_t zone_mbuf;
uma_zone_t zone_pack;
uma_zone_t zone_clust;
uma_zone_t zone_jumbop;
uma_zone_t zone_jumbo9;
uma_zone_t zone_jumbo16;

int nmbufs;
int nmbclusters;
static int nmbjumbop;
static int nmbjumbo9;
static int nmbjumbo16;

SYSCTL_INT(_kern_ipc, OID_AUTO, nmbufs, CTLFLAG_RDTUN, &nmbufs, 0,
    "Maximum number of mbufs");
SYSCTL_INT(_kern_ipc, OID_AUTO, nmbclusters, CTLFLAG_RDTUN, &nmbclusters, 0,
    "Maximum number of 2 KB clusters");
SYSCTL_INT(_kern_ipc, OID_AUTO, nmbjumbop, CTLFLAG_RDTUN, &nmbjumbop, 0,
    "Maximum number of page-sized clusters");
SYSCTL_INT(_kern_ipc, OID_AUTO, nmbjumbo9, CTLFLAG_RDTUN, &nmbjumbo9, 0,
    "Maximum number of 9 KB clusters");
SYSCTL_INT(_kern_ipc, OID_AUTO, nmbjumbo16, CTLFLAG_RDTUN, &nmbjumbo16, 0,
    "Maximum number of 16 KB clusters");

/* Passed to a destructor that must not free the packet header's tags. */
#define	MB_DTOR_SKIP	((void *)1)

static const struct mbuf_kind {
	const char	*name;
	uma_zone_t	*zone;
	int		*limit;
	uint32_t	 size;
} mbuf_kinds[MBUF_NUMBERS] = {
	{ MBUF_MEM_NAME, &zone_mbuf, &nmbufs, MSIZE },
	{ MBUF_PACKET_MEM_NAME, &zone_pack, NULL, MSIZE },
	{ MBUF_CLUSTER_MEM_NAME, &zone_clust, &nmbclusters, MCLBYTES },
	{ MBUF_JUMBOP_MEM_NAME, &zone_jumbop, &nmbjumbop, MJUMPAGESIZE },
	{ MBUF_JUMBO9_MEM_NAME, &zone_jumbo9, &nmbjumbo9, MJUM9BYTES },
	{ MBUF_JUMBO16_MEM_NAME, &zone_jumbo16, &nmbjumbo16, MJUM16BYTES },
};

void
mbuf_get_numbers(struct mbuf_number numbers[MBUF_NUMBERS])
{
	const struct mbuf_kind *kind;
	int i;

	for (i = 0; i < MBUF_NUMBERS; i++) {
		kind = &mbuf_kinds[i];
		numbers[i].mn_name = kind->name;
		numbers[i].mn_current = uma_zone_get_cur(*kind->zone);
		numbers[i].mn_limit = kind->limit == NULL ? 0 : *kind->limit;
		numbers[i].mn_size = kind->size;
	}
}

int
m_pkthdr_init(struct mbuf *m, int how __unused)
{
	bzero(&m->m_pkthdr, sizeof(m->m_pkthdr));
	m->m_pkthdr.numa_domain = M_NODOM;
	m->m_data = m->m_pktdat;
	return (0);
}

static int
mb_ctor_mbuf(void *mem, int size __unused, void *arg, int how)
{
	const struct mb_args *args = arg;

	if (args->type == MT_NOINIT)
		return (0);
	return (m_init(mem, how, args->type, args->flags));
}

static void
mb_dtor_mbuf(void *mem, int size __unused, void *arg)
{
	struct mbuf *m = mem;

	if (arg != MB_DTOR_SKIP && (m->m_flags & M_PKTHDR) != 0 &&
	    !SLIST_EMPTY(&m->m_pkthdr.tags))
		m_tag_delete_chain(m, NULL);
}

/*
 * A cluster of any size: `arg' is the mbuf to attach it to, or NULL for the storage alone.
 */
static int
mb_ctor_clust(void *mem, int size, void *arg, int how __unused)
{
	struct mbuf *m = arg;

	if (m != NULL)
		m_cljset(m, mem, m_gettype(size));
	return (0);
}

static int
mb_zinit_pack(void *mem, int size __unused, int how)
{
	struct mbuf *m = mem;
	void *cluster;

	cluster = uma_zalloc_arg(zone_clust, NULL, how);
	if (cluster == NULL)
		return (ENOMEM);
	m->m_flags = 0;
	m_cljset(m, cluster, EXT_CLUSTER);
	m->m_ext.ext_type = EXT_PACKET;
	uma_dbg_keep(zone_clust, cluster);
	return (0);
}

static void
mb_zfini_pack(void *mem, int size __unused)
{
	struct mbuf *m = mem;

	uma_dbg_reuse(zone_clust, m->m_ext.ext_buf);
	uma_zfree(zone_clust, m->m_ext.ext_buf);
	m->m_flags = 0;
}

static int
mb_ctor_pack(void *mem, int size __unused, void *arg, int how)
{
	const struct mb_args *args = arg;
	struct mbuf *m = mem;
	int error;

	uma_dbg_reuse(zone_clust, m->m_ext.ext_buf);
	error = m_init(m, how, args->type, args->flags);
	m->m_data = m->m_ext.ext_buf;
	m->m_flags |= M_EXT;
	return (error);
}

static void
mb_dtor_pack(void *mem, int size, void *arg)
{
	struct mbuf *m = mem;

	mb_dtor_mbuf(m, size, arg);
	KASSERT(m->m_ext.ext_type == EXT_PACKET && m->m_ext.ext_size == MCLBYTES &&
	    m->m_ext.ext_free == NULL && m->m_ext.ext_flags == EXT_FLAG_EMBREF,
	    ("%s: packet %p returns with another buffer", __func__, m));
	/* The next user of the packet is the only holder of its cluster. */
	m->m_ext.ext_count = 1;
	uma_dbg_keep(zone_clust, m->m_ext.ext_buf);
}

/*
 * Half of the memory may hold network buffers; each kind has a share of it, unless a tunable
 * sets its limit.
 */
static void
mbuf_size_limits(void)
{
	quad_t bytes;

	bytes = (quad_t)physmem * PAGE_SIZE / 2;
	nmbclusters = MIN(bytes / MCLBYTES / 4, INT_MAX / 8);
	nmbjumbop = MIN(bytes / MJUMPAGESIZE / 4, INT_MAX / 8);
	nmbjumbo9 = MIN(bytes / MJUM9BYTES / 6, INT_MAX / 8);
	nmbjumbo16 = MIN(bytes / MJUM16BYTES / 6, INT_MAX / 8);
	nmbufs = MIN(bytes / MSIZE / 5, INT_MAX / 8);
	TUNABLE_INT_FETCH("kern.ipc.nmbclusters", &nmbclusters);
	TUNABLE_INT_FETCH("kern.ipc.nmbjumbop", &nmbjumbop);
	TUNABLE_INT_FETCH("kern.ipc.nmbjumbo9", &nmbjumbo9);
	TUNABLE_INT_FETCH("kern.ipc.nmbjumbo16", &nmbjumbo16);
	TUNABLE_INT_FETCH("kern.ipc.nmbufs", &nmbufs);
	if (nmbufs < nmbclusters + nmbjumbop + nmbjumbo9 + nmbjumbo16)
		nmbufs = nmbclusters + nmbjumbop + nmbjumbo9 + nmbjumbo16;
}

static uma_zone_t
mbuf_cluster_zone(const char *name, int size, int limit)
{
	uma_zone_t zone;

	zone = uma_zcreate(name, size, mb_ctor_clust, NULL, NULL, NULL, UMA_ALIGN_PTR,
	    UMA_ZONE_CONTIG);
	if (limit > 0)
		uma_zone_set_max(zone, limit);
	return (zone);
}

static void
mbuf_init(void *dummy __unused)
{
	mbuf_size_limits();
	zone_mbuf = uma_zcreate(MBUF_MEM_NAME, MSIZE, mb_ctor_mbuf, mb_dtor_mbuf, NULL, NULL,
	    MSIZE - 1, UMA_ZONE_CONTIG | UMA_ZONE_MAXBUCKET);
	if (nmbufs > 0)
		uma_zone_set_max(zone_mbuf, nmbufs);
	zone_clust = mbuf_cluster_zone(MBUF_CLUSTER_MEM_NAME, MCLBYTES, nmbclusters);
	zone_jumbop = mbuf_cluster_zone(MBUF_JUMBOP_MEM_NAME, MJUMPAGESIZE, nmbjumbop);
	zone_jumbo9 = mbuf_cluster_zone(MBUF_JUMBO9_MEM_NAME, MJUM9BYTES, nmbjumbo9);
	zone_jumbo16 = mbuf_cluster_zone(MBUF_JUMBO16_MEM_NAME, MJUM16BYTES, nmbjumbo16);
	zone_pack = uma_zsecond_create(MBUF_PACKET_MEM_NAME, mb_ctor_pack, mb_dtor_pack,
	    mb_zinit_pack, mb_zfini_pack, zone_mbuf);
}
SYSINIT(mbuf, SI_SUB_MBUF, SI_ORDER_FIRST, mbuf_init, NULL);

/*
 * Free the holder of a buffer whose last reference was dropped, and the buffer with it.
 */
static void
mb_free_holder(struct mbuf *holder)
{
	bool embedded = (holder->m_flags & M_NOFREE) != 0;

	switch (holder->m_ext.ext_type) {
	case EXT_PACKET:
		uma_zfree(zone_pack, holder);
		return;
	case EXT_CLUSTER:
		uma_zfree(zone_clust, holder->m_ext.ext_buf);
		break;
	case EXT_JUMBOP:
		uma_zfree(zone_jumbop, holder->m_ext.ext_buf);
		break;
	case EXT_JUMBO9:
		uma_zfree(zone_jumbo9, holder->m_ext.ext_buf);
		break;
	case EXT_JUMBO16:
		uma_zfree(zone_jumbo16, holder->m_ext.ext_buf);
		break;
	default:
		KASSERT(holder->m_ext.ext_free != NULL,
		    ("%s: mbuf %p of type %u has no free routine", __func__, holder,
		    holder->m_ext.ext_type));
		/*
		 * An embedded mbuf is freed with its buffer: nothing of it is read from here
		 * on.
		 */
		(*holder->m_ext.ext_free)(holder);
		break;
	}
	if (!embedded)
		uma_zfree_arg(zone_mbuf, holder, MB_DTOR_SKIP);
}

/*
 * Drop the reference that m has on its external buffer, and free m.  Called by m_free().
 */
void
mb_free_ext(struct mbuf *m)
{
	volatile u_int *count;
	struct mbuf *holder;
	bool last;

	KASSERT((m->m_flags & M_EXT) != 0, ("%s: mbuf %p has no external buffer", __func__, m));
	if ((m->m_flags & M_PKTHDR) != 0 && !SLIST_EMPTY(&m->m_pkthdr.tags))
		m_tag_delete_chain(m, NULL);

	if (m->m_ext.ext_type == EXT_EXTREF) {
		/* The count is the owner's; each mbuf carries the free routine. */
		if (atomic_fetchadd_int(m->m_ext.ext_cnt, -1) == 1)
			(*m->m_ext.ext_free)(m);
		if ((m->m_flags & M_NOFREE) == 0)
			uma_zfree_arg(zone_mbuf, m, MB_DTOR_SKIP);
		return;
	}

	if ((m->m_ext.ext_flags & EXT_FLAG_EMBREF) != 0) {
		count = &m->m_ext.ext_count;
		holder = m;
	} else {
		count = m->m_ext.ext_cnt;
		holder = __containerof(count, struct mbuf, m_ext.ext_count);
	}
	/* The holder of the only reference needs no atomic operation: no other can be added. */
	last = *count == 1 || atomic_fetchadd_int(count, -1) == 1;
	if (m != holder)
		uma_zfree_arg(zone_mbuf, m, MB_DTOR_SKIP);
	if (last)
		mb_free_holder(holder);
}

/*
 * M_EXTPG is never set in this kernel, but the inline m_free() of the header refers to this
 * function.
 */
void
mb_free_extpg(struct mbuf *m)
{
	panic("%s: mbuf %p is unmapped, and this kernel makes no such mbufs", __func__, m);
}

/*
 * Make n share the external buffer of m.
 */
void
mb_dupcl(struct mbuf *n, struct mbuf *m)
{
	volatile u_int *count;

	KASSERT((m->m_flags & M_EXT) != 0, ("%s: mbuf %p has no external buffer", __func__, m));
	KASSERT((n->m_flags & M_EXT) == 0, ("%s: mbuf %p has a buffer already", __func__, n));
	count = (m->m_ext.ext_flags & EXT_FLAG_EMBREF) != 0 ? &m->m_ext.ext_count :
	    m->m_ext.ext_cnt;
	if (m->m_ext.ext_type == EXT_EXTREF)
		n->m_ext = m->m_ext;
	else
		bcopy(&m->m_ext, &n->m_ext, m_ext_copylen);
	n->m_ext.ext_cnt = count;
	n->m_ext.ext_flags &= ~EXT_FLAG_EMBREF;
	if (*count == 1)
		*count += 1;
	else
		atomic_add_int(count, 1);
	n->m_flags |= M_EXT | (m->m_flags & M_RDONLY);
}

void
m_free_raw(struct mbuf *m)
{
	uma_zfree_arg(zone_mbuf, m, MB_DTOR_SKIP);
}

void
m_freem(struct mbuf *m)
{
	MBUF_PROBE1(m__freem, m);
	while (m != NULL)
		m = m_free(m);
}

/* Free a list of packets linked by m_nextpkt. */
void
m_freemp(struct mbuf *m)
{
	struct mbuf *next;

	MBUF_PROBE1(m__freemp, m);
	for (; m != NULL; m = next) {
		next = m->m_nextpkt;
		m_freem(m);
	}
}

int
m_clget(struct mbuf *m, int how)
{
	KASSERT((m->m_flags & M_EXT) == 0, ("%s: mbuf %p has a buffer already", __func__, m));
	(void)uma_zalloc_arg(zone_clust, m, how);
	MBUF_PROBE3(m__clget, m, how, 0);
	return ((m->m_flags & M_EXT) != 0);
}

void *
m_cljget(struct mbuf *m, int how, int size)
{
	void *cluster;

	KASSERT(m == NULL || (m->m_flags & M_EXT) == 0,
	    ("%s: mbuf %p has a buffer already", __func__, m));
	cluster = uma_zalloc_arg(m_getzone(size), m, how);
	MBUF_PROBE4(m__cljget, m, how, size, cluster);
	return (cluster);
}

struct mbuf *
m_getjcl(int how, short type, int flags, int size)
{
	struct mb_args args = { .flags = flags, .type = type };
	struct mbuf *m;

	if (size == MCLBYTES)
		return (m_getcl(how, type, flags));
	m = uma_zalloc_arg(zone_mbuf, &args, how);
	if (m == NULL)
		return (NULL);
	if (m_cljget(m, how, size) == NULL) {
		m_free_raw(m);
		return (NULL);
	}
	MBUF_PROBE5(m__getjcl, how, type, flags, size, m);
	return (m);
}

/* The smallest single mbuf that holds `size' bytes, of at most a page. */
struct mbuf *
m_get2(int size, int how, short type, int flags)
{
	if (size > MJUMPAGESIZE)
		return (NULL);
	return (m_get3(size, how, type, flags));
}

/* As m_get2(), up to 16 KB. */
struct mbuf *
m_get3(int size, int how, short type, int flags)
{
	struct mb_args args = { .flags = flags, .type = type };

	if (size <= MHLEN || (size <= MLEN && (flags & M_PKTHDR) == 0))
		return (uma_zalloc_arg(zone_mbuf, &args, how));
	if (size <= MCLBYTES)
		return (m_getcl(how, type, flags));
	if (size <= MJUMPAGESIZE)
		return (m_getjcl(how, type, flags, MJUMPAGESIZE));
	if (size <= MJUM9BYTES)
		return (m_getjcl(how, type, flags, MJUM9BYTES));
	if (size <= MJUM16BYTES)
		return (m_getjcl(how, type, flags, MJUM16BYTES));
	return (NULL);
}

/*
 * Allocate room for `len' bytes as a chain, which is appended to m, or returned when m is NULL.
 * NULL when there is no memory; m is then unchanged.
 */
struct mbuf *
m_getm2(struct mbuf *m, int len, int how, short type, int flags)
{
	struct mbuf *first = NULL, *last = NULL, *n;

	KASSERT(len >= 0, ("%s: length %d", __func__, len));
	flags &= M_PKTHDR | M_EOR;
	if (m != NULL && (flags & M_PKTHDR) != 0)
		flags &= ~M_PKTHDR;
	do {
		n = m_get2(MIN(len, len > MCLBYTES ? MJUMPAGESIZE : MCLBYTES), how, type,
		    flags & M_PKTHDR);
		if (n == NULL) {
			m_freem(first);
			return (NULL);
		}
		len -= M_SIZE(n);
		if (first == NULL)
			first = n;
		else
			last->m_next = n;
		last = n;
		flags &= ~M_PKTHDR;
	} while (len > 0);
	if ((flags & M_EOR) != 0)
		last->m_flags |= M_EOR;
	if (m == NULL)
		return (first);
	m_last(m)->m_next = first;
	return (m);
}

/*
 * Attach a buffer of the caller's; `freef' is called for it when the last reference was dropped,
 * with arg1 and arg2 in m_ext.
 */
void
m_extadd(struct mbuf *m, char *buf, u_int size, m_ext_free_t freef, void *arg1, void *arg2,
    int flags, int type)
{
	KASSERT(type != EXT_CLUSTER && type != EXT_PACKET,
	    ("%s: type %d is the allocator's own", __func__, type));
	KASSERT(freef != NULL, ("%s: no free routine", __func__));
	m->m_ext.ext_buf = buf;
	m->m_ext.ext_size = size;
	m->m_ext.ext_free = freef;
	m->m_ext.ext_arg1 = arg1;
	m->m_ext.ext_arg2 = arg2;
	m->m_ext.ext_type = type;
	m->m_ext.ext_flags = EXT_FLAG_EMBREF;
	m->m_ext.ext_count = 1;
	m->m_data = buf;
	m->m_flags |= M_EXT | flags;
}

int
m_snd_tag_alloc(struct ifnet *ifp, union if_snd_tag_alloc_params *params, struct m_snd_tag **mstp)
{
	return (if_snd_tag_alloc(ifp, params, mstp));
}

void
m_snd_tag_init(struct m_snd_tag *mst, struct ifnet *ifp, const struct if_snd_tag_sw *sw)
{
	if_ref(ifp);
	mst->ifp = ifp;
	mst->sw = sw;
	refcount_init(&mst->refcount, 1);
}

void
m_snd_tag_destroy(struct m_snd_tag *mst)
{
	struct ifnet *ifp = mst->ifp;

	mst->sw->snd_tag_free(mst);
	if_rele(ifp);
}
