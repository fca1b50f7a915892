/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Network interfaces (ifnet(9)): their life, their list, and how they are found.
 *
 *	if_alloc   -> allocated: an index and a reference; no lookup finds it
 *	if_attach  -> in the list, with a link-level address; drivers' methods may be called
 *	if_detach  -> out of the list; returns when no method is being called by the stack any more
 *	if_free    -> the index is free; the memory goes with the last reference, after the epoch
 *
 * The accessors are in if_access.c, addresses in if_addr.c, up, down and link state in
 * if_link.c, ioctls in if_ioctl.c.
 *
 * Locking.  ifnet_sxlock serialises changes of the list.  Readers walk it in the network
 * epoch (net_epoch_preempt) or hold ifnet_sxlock.  ifindex_lock covers the table of indices
 * and the count of ioctls under way.  No driver is called with ifindex_lock held.
 *
 * Gaps.  No virtual network stacks, no interface groups, no cloning, no renaming.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/refcount.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/syslog.h>
#include <sys/taskqueue.h>
#include <sys/time.h>
#include <machine/stdarg.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_subr_tree.h>

#define	IFINDEX_MAX	256	/* interfaces that can exist at one time */

static MALLOC_DEFINE(M_IFNET, "ifnet", "network interfaces");

SYSCTL_NODE(_net, PF_LINK, link, CTLFLAG_RW | CTLFLAG_MPSAFE, 0, "Network interfaces");

epoch_t net_epoch_preempt;

VNET_DEFINE(struct ifnethead, ifnet) = CK_STAILQ_HEAD_INITIALIZER(VNET_NAME(ifnet));
VNET_DEFINE(if_t, loif);
struct sx ifnet_sxlock;
SX_SYSINIT_FLAGS(ifnet_sx, &ifnet_sxlock, "ifnet_sx", SX_RECURSE);

/* Index 0 is no interface. */
static struct ifindex_entry {
	struct ifnet	*ife_ifnet;
	uint16_t	 ife_gencnt;	/* counts the interfaces that had this index */
} ifindex_table[IFINDEX_MAX + 1];
static struct mtx ifindex_lock;
MTX_SYSINIT(ifindex, &ifindex_lock, "ifindex", MTX_DEF);

static void
if_epoch_alloc(void *dummy __unused)
{
	net_epoch_preempt = epoch_alloc("Net preemptible", EPOCH_PREEMPT);
}
SYSINIT(ifepochalloc, SI_SUB_EPOCH, SI_ORDER_ANY, if_epoch_alloc, NULL);

static bool
ifindex_assign(struct ifnet *ifp)
{
	u_short index;

	mtx_lock(&ifindex_lock);
	for (index = 1; index <= IFINDEX_MAX; index++) {
		if (ifindex_table[index].ife_ifnet != NULL)
			continue;
		ifp->if_index = index;
		ifp->if_idxgen = ++ifindex_table[index].ife_gencnt;
		atomic_store_rel_ptr((volatile uintptr_t *)&ifindex_table[index].ife_ifnet,
		    (uintptr_t)ifp);
		break;
	}
	mtx_unlock(&ifindex_lock);
	return (index <= IFINDEX_MAX);
}

if_t
ifnet_byindex(u_int index)
{
	NET_EPOCH_ASSERT();
	if (index > IFINDEX_MAX)
		return (NULL);
	return ((if_t)atomic_load_acq_ptr((volatile uintptr_t *)&ifindex_table[index].ife_ifnet));
}

if_t
ifnet_byindex_ref(u_int index)
{
	if_t ifp;

	ifp = ifnet_byindex(index);
	return (ifp != NULL && if_try_ref(ifp) ? ifp : NULL);
}

if_t
ifnet_byindexgen(uint16_t index, uint16_t gen)
{
	if_t ifp;

	ifp = ifnet_byindex(index);
	return (ifp != NULL && ifp->if_idxgen == gen ? ifp : NULL);
}

void
m_rcvif_serialize(struct mbuf *m)
{
	uint16_t index = 0, gen = 0;

	M_ASSERTPKTHDR(m);
	if (m->m_pkthdr.rcvif != NULL) {
		index = m->m_pkthdr.rcvif->if_index;
		gen = m->m_pkthdr.rcvif->if_idxgen;
	}
	m->m_pkthdr.rcvidx = index;
	m->m_pkthdr.rcvgen = gen;
}

struct ifnet *
m_rcvif_restore(struct mbuf *m)
{
	M_ASSERTPKTHDR(m);
	m->m_pkthdr.rcvif = ifnet_byindexgen(m->m_pkthdr.rcvidx, m->m_pkthdr.rcvgen);
	return (m->m_pkthdr.rcvif);
}

if_t
if_alloc(u_char type)
{
	struct ifnet *ifp;
	int i;

	ifp = malloc(sizeof(*ifp), M_IFNET, M_WAITOK | M_ZERO);
	if (!ifindex_assign(ifp)) {
		free(ifp, M_IFNET);
		return (NULL);
	}
	ifp->if_type = ifp->if_alloctype = type;
	ifp->if_numa_domain = IF_NODOM;
	ifp->if_vnet = curvnet;
	refcount_init(&ifp->if_refcount, 1);
	IF_ADDR_LOCK_INIT(ifp);
	IF_AFDATA_LOCK_INIT(ifp);
	TASK_INIT(&ifp->if_linktask, 0, if_link_task, ifp);
	TASK_INIT(&ifp->if_addmultitask, 0, if_multi_task, ifp);
	CK_STAILQ_INIT(&ifp->if_addrhead);
	CK_STAILQ_INIT(&ifp->if_multiaddrs);
	CK_STAILQ_INIT(&ifp->if_groups);
	ifq_init(&ifp->if_snd, ifp);
	for (i = 0; i < IFCOUNTERS; i++)
		ifp->if_counters[i] = counter_u64_alloc(M_WAITOK);
	ifp->if_get_counter = if_get_counter_default;
	ifp->if_pcp = IFNET_PCP_NONE;
	bpf_attach_none(ifp);
	return (ifp);
}

if_t
if_alloc_dev(u_char type, device_t dev __unused)
{
	return (if_alloc(type));
}

static void
if_destroy(epoch_context_t ctx)
{
	struct ifnet *ifp = __containerof(ctx, struct ifnet, if_epoch_ctx);
	int i;

	KASSERT(CK_STAILQ_EMPTY(&ifp->if_addrhead), ("%s: %s has addresses", __func__,
	    ifp->if_xname));
	for (i = 0; i < IFCOUNTERS; i++)
		counter_u64_free(ifp->if_counters[i]);
	ifq_delete(&ifp->if_snd);
	IF_AFDATA_DESTROY(ifp);
	IF_ADDR_LOCK_DESTROY(ifp);
	if_freedescr(ifp->if_description);
	free(ifp->if_hw_addr, M_IFNET);
	free(ifp, M_IFNET);
}

void
if_free(if_t ifp)
{
	mtx_lock(&ifindex_lock);
	KASSERT(ifindex_table[ifp->if_index].ife_ifnet == ifp,
	    ("%s: %s is not at its index", __func__, ifp->if_xname));
	ifindex_table[ifp->if_index].ife_ifnet = NULL;
	mtx_unlock(&ifindex_lock);
	ifp->if_flags |= IFF_DYING;
	if (refcount_release(&ifp->if_refcount))
		NET_EPOCH_CALL(if_destroy, &ifp->if_epoch_ctx);
}

void
if_ref(if_t ifp)
{
	u_int old __diagused;

	old = refcount_acquire(&ifp->if_refcount);
	KASSERT(old > 0, ("%s: %s has no references", __func__, ifp->if_xname));
}

bool
if_try_ref(if_t ifp)
{
	return (refcount_acquire_if_not_zero(&ifp->if_refcount));
}

void
if_rele(if_t ifp)
{
	if (refcount_release(&ifp->if_refcount))
		NET_EPOCH_CALL(if_destroy, &ifp->if_epoch_ctx);
}

void
if_initname(if_t ifp, const char *name, int unit)
{
	ifp->if_dname = name;
	ifp->if_dunit = unit;
	if (unit == IF_DUNIT_NONE)
		strlcpy(ifp->if_xname, name, sizeof(ifp->if_xname));
	else
		snprintf(ifp->if_xname, sizeof(ifp->if_xname), "%s%d", name, unit);
}

/* A driver that has no queue of its own gets the interface's, and if_start. */
static int
if_transmit_default(if_t ifp, struct mbuf *m)
{
	int error;

	IFQ_HANDOFF(ifp, m, error);
	return (error);
}

static void
if_input_none(if_t ifp __unused, struct mbuf *m)
{
	struct mbuf *next;

	/* As if_input proper: one packet, or a list of them. */
	for (; m != NULL; m = next) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		m_freem(m);
	}
}

static int
if_output_none(if_t ifp __unused, struct mbuf *m, const struct sockaddr *dst __unused,
    struct route *ro __unused)
{
	m_freem(m);
	return (EAFNOSUPPORT);
}

/* The biggest TSO burst: an IP packet, less what Ethernet and a VLAN tag put before it. */
static void
if_default_tso_limits(struct ifnet *ifp)
{
	if (ifp->if_hw_tsomax != 0 || ifp->if_hw_tsomaxsegcount != 0 ||
	    ifp->if_hw_tsomaxsegsize != 0)
		return;
	ifp->if_hw_tsomax = 65535 - (ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN);
	ifp->if_hw_tsomaxsegcount = 35;
	ifp->if_hw_tsomaxsegsize = MCLBYTES;
}

void
if_attach(if_t ifp)
{
	struct ifaddr *ifa;

	KASSERT(ifp->if_xname[0] != '\0', ("%s: interface without a name", __func__));
	CURVNET_ASSERT_SET();
	ifp->if_vnet = ifp->if_home_vnet = curvnet;
	if (ifp->if_transmit == NULL) {
		ifp->if_transmit = if_transmit_default;
		ifp->if_qflush = if_qflush;
	}
	KASSERT(ifp->if_qflush != NULL, ("%s: %s has if_transmit and no if_qflush", __func__,
	    ifp->if_xname));
	if (ifp->if_input == NULL)
		ifp->if_input = if_input_none;
	if (ifp->if_output == NULL)
		ifp->if_output = if_output_none;
	getmicrotime(&ifp->if_lastchange);
	ifp->if_epoch = time_uptime;
	if_default_tso_limits(ifp);

	ifa = if_link_addr_alloc(ifp);
	ifp->if_addr = ifa;
	ifp->if_hw_addr = malloc(MAX(ifp->if_addrlen, 1), M_IFNET, M_WAITOK | M_ZERO);
	CK_STAILQ_INSERT_HEAD(&ifp->if_addrhead, ifa, ifa_link);

	IFNET_WLOCK();
	CK_STAILQ_INSERT_TAIL(&V_ifnet, ifp, if_link);
	IFNET_WUNLOCK();
	EVENTHANDLER_INVOKE(ifnet_arrival_event, ifp);
	getmicrotime(&ifp->if_lastchange);
}

/*
 * The stack makes no new calls when this returns.  The driver has to wait for those that had begun,
 * as in FreeBSD: an ioctl in a thread that may sleep, others in the epoch.
 */
static void
if_detach_vnet(struct ifnet *ifp)
{
	struct ifnet *iter;

	IFNET_WLOCK();
	CK_STAILQ_FOREACH(iter, &V_ifnet, if_link) {
		if (iter == ifp)
			break;
	}
	if (iter != NULL)
		CK_STAILQ_REMOVE(&V_ifnet, ifp, ifnet, if_link);
	IFNET_WUNLOCK();
	if (iter == NULL)
		return;

	/*
	 * FreeBSD waits here and not again: a thread that finds the interface by a route meanwhile may
	 * have one of its functions, and call it when this has returned.
	 */
	NET_EPOCH_WAIT();
	NET_EPOCH_DRAIN_CALLBACKS();
	taskqueue_drain(taskqueue_swi, &ifp->if_linktask);
	taskqueue_drain(taskqueue_swi, &ifp->if_addmultitask);
	ifp->if_flags |= IFF_DYING;
	if_down(ifp);
	/* The protocols remove their addresses and free packets that wait for resolution. */
	EVENTHANDLER_INVOKE(ifnet_departure_event, ifp);
	/* The driver is still notified of filter changes, and may run when its address is freed. */
	if_addrs_free(ifp);
	if_dead(ifp);
}

/* Called by the driver. */
void
if_detach(if_t ifp)
{
	CURVNET_SET_QUIET(if_getvnet(ifp));
	if_detach_vnet(ifp);
	CURVNET_RESTORE();
}

static int
if_ioctl_dead(if_t ifp __unused, u_long cmd __unused, caddr_t data __unused)
{
	return (ENXIO);
}

static void
if_nothing(if_t ifp __unused)
{
}

static void
if_init_dead(void *softc __unused)
{
}

static int
if_transmit_dead(if_t ifp __unused, struct mbuf *m)
{
	m_freem(m);
	return (ENXIO);
}

/* The driver is being removed: holders of a reference must not be able to call its methods. */
void
if_dead(if_t ifp)
{
	ifp->if_output = if_output_none;
	ifp->if_input = if_input_none;
	ifp->if_start = if_nothing;
	ifp->if_ioctl = if_ioctl_dead;
	ifp->if_init = if_init_dead;
	ifp->if_qflush = if_nothing;
	ifp->if_transmit = if_transmit_dead;
	ifp->if_get_counter = if_get_counter_default;
}

if_t
ifunit(const char *name)
{
	struct ifnet *ifp;

	CK_STAILQ_FOREACH(ifp, &V_ifnet, if_link) {
		if (strncmp(name, ifp->if_xname, IFNAMSIZ) == 0 &&
		    (ifp->if_flags & IFF_DYING) == 0)
			break;
	}
	return (ifp);
}

if_t
ifunit_ref(const char *name)
{
	struct epoch_tracker et;
	struct ifnet *ifp;

	NET_EPOCH_ENTER(et);
	ifp = ifunit(name);
	if (ifp != NULL && !if_try_ref(ifp))
		ifp = NULL;
	NET_EPOCH_EXIT(et);
	return (ifp);
}

int
if_foreach(if_foreach_cb_t cb, void *arg)
{
	struct ifnet *ifp;
	int error = 0;

	NET_EPOCH_ASSERT();
	CK_STAILQ_FOREACH(ifp, &V_ifnet, if_link) {
		error = cb(ifp, arg);
		if (error != 0)
			break;
	}
	return (error);
}

/*
 * Like if_foreach(), with a callback that may sleep, for the interfaces that `match' says yes to.
 */
int
if_foreach_sleep(if_foreach_match_t match, void *match_arg, if_foreach_cb_t cb, void *arg)
{
	struct ifnet *ifp;
	int error = 0;

	IFNET_RLOCK();
	CK_STAILQ_FOREACH(ifp, &V_ifnet, if_link) {
		if (!match(ifp, match_arg))
			continue;
		error = cb(ifp, arg);
		if (error != 0)
			break;
	}
	IFNET_RUNLOCK();
	return (error);
}

if_t
if_iter_start(struct if_iter *iter)
{
	bzero(iter, sizeof(*iter));
	NET_EPOCH_ASSERT();
	iter->context[0] = CK_STAILQ_FIRST(&V_ifnet);
	return (iter->context[0]);
}

if_t
if_iter_next(struct if_iter *iter)
{
	struct ifnet *ifp = iter->context[0];

	if (ifp != NULL)
		iter->context[0] = CK_STAILQ_NEXT(ifp, if_link);
	return (iter->context[0]);
}

void
if_iter_finish(struct if_iter *iter)
{
	iter->context[0] = NULL;
}

int
if_printf(if_t ifp, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return (printf("%s: %s", ifp->if_xname, text));
}

int
if_log(if_t ifp, int priority, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log(priority, "%s: %s", ifp->if_xname, text);
	return (0);
}
