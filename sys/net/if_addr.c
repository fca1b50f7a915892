/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Addresses of interfaces: reference-counted ifaddrs, the link-level address, and the
 * multicast groups that an interface listens to.
 *
 * A group of a protocol (AF_INET, AF_INET6) is two entries of the interface's list: its own,
 * and one for the Ethernet address that it maps to (ifma_llifma), which other groups may
 * share.  The driver looks at the AF_LINK entries only (if_foreach_llmaddr), and is notified
 * of a change by SIOCADDMULTI and SIOCDELMULTI.
 *
 * Locking.  if_addr_lock of the interface covers both lists; readers may also be in the
 * network epoch, and what leaves a list is freed after it.  The driver is called without the
 * lock.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/refcount.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_subr_tree.h>
#include <net/if_tree.h>

MALLOC_DEFINE(M_IFADDR, "ifaddr", "interface addresses");
MALLOC_DEFINE(M_IFMADDR, "ether_multi", "multicast groups of interfaces");

struct ifaddr *
ifa_alloc(size_t size, int flags)
{
	struct ifaddr *ifa;

	KASSERT(size >= sizeof(*ifa), ("%s: size %zu", __func__, size));
	ifa = malloc(size, M_IFADDR, M_ZERO | flags);
	if (ifa == NULL)
		return (NULL);
	ifa->ifa_opackets = counter_u64_alloc(flags);
	ifa->ifa_ipackets = counter_u64_alloc(flags);
	ifa->ifa_obytes = counter_u64_alloc(flags);
	ifa->ifa_ibytes = counter_u64_alloc(flags);
	if (ifa->ifa_opackets == NULL || ifa->ifa_ipackets == NULL || ifa->ifa_obytes == NULL ||
	    ifa->ifa_ibytes == NULL) {
		counter_u64_free(ifa->ifa_opackets);
		counter_u64_free(ifa->ifa_ipackets);
		counter_u64_free(ifa->ifa_obytes);
		counter_u64_free(ifa->ifa_ibytes);
		free(ifa, M_IFADDR);
		return (NULL);
	}
	refcount_init(&ifa->ifa_refcnt, 1);
	return (ifa);
}

static void
ifa_destroy(epoch_context_t ctx)
{
	struct ifaddr *ifa = __containerof(ctx, struct ifaddr, ifa_epoch_ctx);

	if (ifa->ifa_ifp != NULL)
		if_rele(ifa->ifa_ifp);
	counter_u64_free(ifa->ifa_opackets);
	counter_u64_free(ifa->ifa_ipackets);
	counter_u64_free(ifa->ifa_obytes);
	counter_u64_free(ifa->ifa_ibytes);
	free(ifa, M_IFADDR);
}

/*
 * Drop a reference; the address holds a reference on its interface (taken when ifa_ifp was set)
 * until it is freed.
 */
void
ifa_free(struct ifaddr *ifa)
{
	if (refcount_release(&ifa->ifa_refcnt))
		NET_EPOCH_CALL(ifa_destroy, &ifa->ifa_epoch_ctx);
}

void
ifa_ref(struct ifaddr *ifa)
{
	refcount_acquire(&ifa->ifa_refcnt);
}

int
ifa_try_ref(struct ifaddr *ifa)
{
	return (refcount_acquire_if_not_zero(&ifa->ifa_refcnt));
}

/* Fill in a link-level address of the interface, without the address itself. */
struct sockaddr_dl *
link_init_sdl(struct ifnet *ifp, struct sockaddr *paddr, u_char type)
{
	struct sockaddr_dl *sdl = (struct sockaddr_dl *)paddr;

	bzero(sdl, sizeof(*sdl));
	sdl->sdl_len = sizeof(*sdl);
	sdl->sdl_family = AF_LINK;
	sdl->sdl_index = ifp->if_index;
	sdl->sdl_type = type;
	return (sdl);
}

struct sockaddr_dl *
link_alloc_sdl(size_t size, int flags)
{
	return (malloc(size, M_TEMP, flags));
}

void
link_free_sdl(struct sockaddr *sa)
{
	free(sa, M_TEMP);
}

struct ifaddr *
if_link_addr_alloc(struct ifnet *ifp)
{
	struct sockaddr_dl *sdl;
	struct ifaddr *ifa;
	size_t namelen;

	namelen = strlen(ifp->if_xname);
	ifa = ifa_alloc(sizeof(*ifa) + sizeof(*sdl), M_WAITOK);
	sdl = link_init_sdl(ifp, (struct sockaddr *)(ifa + 1), ifp->if_type);
	KASSERT(namelen + ifp->if_addrlen <= sizeof(sdl->sdl_data),
	    ("%s: name and address of %s do not fit", __func__, ifp->if_xname));
	bcopy(ifp->if_xname, sdl->sdl_data, namelen);
	sdl->sdl_nlen = namelen;
	sdl->sdl_alen = ifp->if_addrlen;
	if_ref(ifp);
	ifa->ifa_ifp = ifp;
	ifa->ifa_addr = (struct sockaddr *)sdl;
	return (ifa);
}

u_int
if_foreach_addr_type(if_t ifp, int type, if_addr_cb_t cb, void *arg)
{
	struct epoch_tracker et;
	struct ifaddr *ifa;
	u_int count = 0;

	NET_EPOCH_ENTER(et);
	if (type == AF_INET || type == AF_INET6)
		count = inet_foreach_ifaddr(ifp, type, cb, arg);
	CK_STAILQ_FOREACH(ifa, &ifp->if_addrhead, ifa_link) {
		if (ifa->ifa_addr->sa_family == type)
			count += cb(arg, ifa, count);
	}
	NET_EPOCH_EXIT(et);
	return (count);
}

u_int
if_foreach_lladdr(if_t ifp, iflladdr_cb_t cb, void *arg)
{
	struct epoch_tracker et;
	struct ifaddr *ifa;
	u_int count = 0;

	NET_EPOCH_ENTER(et);
	CK_STAILQ_FOREACH(ifa, &ifp->if_addrhead, ifa_link) {
		if (ifa->ifa_addr->sa_family == AF_LINK)
			count += cb(arg, (struct sockaddr_dl *)ifa->ifa_addr, count);
	}
	NET_EPOCH_EXIT(et);
	return (count);
}

u_int
if_foreach_llmaddr(if_t ifp, iflladdr_cb_t cb, void *arg)
{
	struct epoch_tracker et;
	struct ifmultiaddr *ifma;
	u_int count = 0;

	NET_EPOCH_ENTER(et);
	CK_STAILQ_FOREACH(ifma, &ifp->if_multiaddrs, ifma_link) {
		if (ifma->ifma_addr->sa_family == AF_LINK)
			count += cb(arg, (struct sockaddr_dl *)ifma->ifma_addr, count);
	}
	NET_EPOCH_EXIT(et);
	return (count);
}

static u_int
if_count_one(void *arg __unused, struct sockaddr_dl *sdl __unused, u_int count __unused)
{
	return (1);
}

u_int
if_lladdr_count(if_t ifp)
{
	return (if_foreach_lladdr(ifp, if_count_one, NULL));
}

u_int
if_llmaddr_count(if_t ifp)
{
	return (if_foreach_llmaddr(ifp, if_count_one, NULL));
}

bool
if_maddr_empty(if_t ifp)
{
	return (CK_STAILQ_EMPTY(&ifp->if_multiaddrs));
}

/*
 * Change the Ethernet address.  An interface that is up is taken down and up again, so that the
 * driver reads the new one.
 */
int
if_setlladdr(if_t ifp, const u_char *lladdr, int len)
{
	struct sockaddr_dl *sdl;
	struct ifreq ifr;
	int flags;

	if (ifp->if_addr == NULL)
		return (EINVAL);
	sdl = (struct sockaddr_dl *)ifp->if_addr->ifa_addr;
	if (len != sdl->sdl_alen)
		return (EINVAL);
	if (ifp->if_type != IFT_ETHER && ifp->if_type != IFT_L2VLAN)
		return (ENODEV);
	bcopy(lladdr, LLADDR(sdl), len);
	if ((ifp->if_flags & IFF_UP) != 0 && ifp->if_ioctl != NULL) {
		flags = ifp->if_flags;
		bzero(&ifr, sizeof(ifr));
		ifp->if_flags &= ~IFF_UP;
		ifr.ifr_flags = ifp->if_flags & 0xffff;
		ifr.ifr_flagshigh = ifp->if_flags >> 16;
		(void)ifp->if_ioctl(ifp, SIOCSIFFLAGS, (caddr_t)&ifr);
		ifp->if_flags |= flags & IFF_UP;
		ifr.ifr_flags = ifp->if_flags & 0xffff;
		(void)ifp->if_ioctl(ifp, SIOCSIFFLAGS, (caddr_t)&ifr);
	}
	EVENTHANDLER_INVOKE(iflladdr_event, ifp);
	return (0);
}

static bool
sa_equal(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct sockaddr_dl *da, *db;

	if (a->sa_family != b->sa_family)
		return (false);
	if (a->sa_family != AF_LINK)
		return (a->sa_len == b->sa_len && bcmp(a, b, a->sa_len) == 0);
	/* Two link-level addresses are the same if the addresses in them are. */
	da = (const struct sockaddr_dl *)a;
	db = (const struct sockaddr_dl *)b;
	return (da->sdl_alen == db->sdl_alen && bcmp(LLADDR(da), LLADDR(db), da->sdl_alen) == 0);
}

struct ifmultiaddr *
if_findmulti(if_t ifp, const struct sockaddr *sa)
{
	struct ifmultiaddr *ifma;

	IF_ADDR_LOCK_ASSERT(ifp);
	CK_STAILQ_FOREACH(ifma, &ifp->if_multiaddrs, ifma_link) {
		if (sa_equal(sa, ifma->ifma_addr))
			break;
	}
	return (ifma);
}

static struct ifmultiaddr *
if_allocmulti(struct ifnet *ifp, const struct sockaddr *sa, const struct sockaddr *llsa,
    int mflags)
{
	struct ifmultiaddr *ifma;
	size_t room;

	room = sa->sa_len + (llsa != NULL ? llsa->sa_len : 0);
	ifma = malloc(sizeof(*ifma) + roundup2(room, sizeof(long)) + sizeof(long), M_IFMADDR,
	    mflags | M_ZERO);
	if (ifma == NULL)
		return (NULL);
	ifma->ifma_addr = (struct sockaddr *)(ifma + 1);
	bcopy(sa, ifma->ifma_addr, sa->sa_len);
	if (llsa != NULL) {
		ifma->ifma_lladdr = (struct sockaddr *)((char *)(ifma + 1) +
		    roundup2(sa->sa_len, sizeof(long)));
		bcopy(llsa, ifma->ifma_lladdr, llsa->sa_len);
	}
	ifma->ifma_ifp = ifp;
	ifma->ifma_refcount = 1;
	return (ifma);
}

static void
if_destroymulti(epoch_context_t ctx)
{
	free(__containerof(ctx, struct ifmultiaddr, ifma_epoch_ctx), M_IFMADDR);
}

void
if_freemulti(struct ifmultiaddr *ifma)
{
	KASSERT(ifma->ifma_refcount == 0, ("%s: %u references", __func__, ifma->ifma_refcount));
	NET_EPOCH_CALL(if_destroymulti, &ifma->ifma_epoch_ctx);
}

static void
if_tell_multi(struct ifnet *ifp, u_long cmd)
{
	if (ifp->if_ioctl != NULL)
		(void)ifp->if_ioctl(ifp, cmd, NULL);
}

void
if_multi_task(void *arg, int pending __unused)
{
	if_tell_multi(arg, SIOCADDMULTI);
}

/* The driver may have to wait for its device: if the caller can't sleep, a task notifies it. */
static void
if_multi_changed(struct ifnet *ifp, u_long cmd)
{
	if (THREAD_CAN_SLEEP())
		if_tell_multi(ifp, cmd);
	else
		taskqueue_enqueue(taskqueue_swi, &ifp->if_addmultitask);
}

/*
 * Join a group.  Never sleeps waiting for memory.  Returns 0, ENOMEM, or why the address is
 * no group of this kind of interface.
 */
int
if_addmulti(if_t ifp, struct sockaddr *sa, struct ifmultiaddr **retifma)
{
	struct ifmultiaddr *ifma, *ll_ifma;
	struct sockaddr_dl sdl;
	struct sockaddr *llsa = NULL;
	int error;

	IF_ADDR_WLOCK(ifp);
	ifma = if_findmulti(ifp, sa);
	if (ifma != NULL) {
		ifma->ifma_refcount++;
		goto out;
	}
	if (ifp->if_resolvemulti != NULL) {
		llsa = (struct sockaddr *)&sdl;
		error = ifp->if_resolvemulti(ifp, &llsa, sa);
		if (error != 0)
			goto fail;
	}
	error = ENOMEM;
	ifma = if_allocmulti(ifp, sa, llsa, M_NOWAIT);
	if (ifma == NULL)
		goto fail;
	if (llsa != NULL) {
		ll_ifma = if_findmulti(ifp, llsa);
		if (ll_ifma != NULL)
			ll_ifma->ifma_refcount++;
		else {
			ll_ifma = if_allocmulti(ifp, llsa, NULL, M_NOWAIT);
			if (ll_ifma == NULL) {
				free(ifma, M_IFMADDR);
				goto fail;
			}
			CK_STAILQ_INSERT_HEAD(&ifp->if_multiaddrs, ll_ifma, ifma_link);
		}
		ifma->ifma_llifma = ll_ifma;
	}
	CK_STAILQ_INSERT_HEAD(&ifp->if_multiaddrs, ifma, ifma_link);
	IF_ADDR_WUNLOCK(ifp);
	if (retifma != NULL)
		*retifma = ifma;
	if_multi_changed(ifp, SIOCADDMULTI);
	return (0);
out:
	IF_ADDR_WUNLOCK(ifp);
	if (retifma != NULL)
		*retifma = ifma;
	return (0);
fail:
	IF_ADDR_WUNLOCK(ifp);
	return (error);
}

/* Drop a reference on a group with the lock held: true if the group was removed. */
static bool
if_delmulti_locked(struct ifnet *ifp, struct ifmultiaddr *ifma)
{
	IF_ADDR_WLOCK_ASSERT(ifp);
	if (--ifma->ifma_refcount > 0)
		return (false);
	CK_STAILQ_REMOVE(&ifp->if_multiaddrs, ifma, ifmultiaddr, ifma_link);
	if (ifma->ifma_llifma != NULL)
		if_delmulti_locked(ifp, ifma->ifma_llifma);
	if_freemulti(ifma);
	return (true);
}

int
if_delmulti(if_t ifp, struct sockaddr *sa)
{
	struct ifmultiaddr *ifma;
	bool gone = false;

	IF_ADDR_WLOCK(ifp);
	ifma = if_findmulti(ifp, sa);
	if (ifma != NULL)
		gone = if_delmulti_locked(ifp, ifma);
	IF_ADDR_WUNLOCK(ifp);
	if (gone)
		if_multi_changed(ifp, SIOCDELMULTI);
	return (ifma == NULL ? ENOENT : 0);
}

void
if_delmulti_ifma(struct ifmultiaddr *ifma)
{
	if_delmulti_ifma_flags(ifma, 0);
}

void
if_delmulti_ifma_flags(struct ifmultiaddr *ifma, int flags __unused)
{
	struct ifnet *ifp = ifma->ifma_ifp;
	bool gone;

	IF_ADDR_WLOCK(ifp);
	gone = if_delmulti_locked(ifp, ifma);
	IF_ADDR_WUNLOCK(ifp);
	if (gone)
		if_multi_changed(ifp, SIOCDELMULTI);
}

void
if_delallmulti(if_t ifp)
{
	struct ifmultiaddr *ifma, *next;

	IF_ADDR_WLOCK(ifp);
	/* Groups of protocols first: they hold references on those of the link. */
	CK_STAILQ_FOREACH_SAFE(ifma, &ifp->if_multiaddrs, ifma_link, next) {
		if (ifma->ifma_llifma == NULL)
			continue;
		ifma->ifma_llifma->ifma_refcount--;
		ifma->ifma_llifma = NULL;
	}
	while ((ifma = CK_STAILQ_FIRST(&ifp->if_multiaddrs)) != NULL) {
		CK_STAILQ_REMOVE_HEAD(&ifp->if_multiaddrs, ifma_link);
		ifma->ifma_refcount = 0;
		if_freemulti(ifma);
	}
	IF_ADDR_WUNLOCK(ifp);
}

/* Remove all addresses that the protocols have not, except for the link-level one. */
void
if_purgeaddrs(if_t ifp)
{
	struct ifaddr *ifa, *next;

	IF_ADDR_WLOCK(ifp);
	CK_STAILQ_FOREACH_SAFE(ifa, &ifp->if_addrhead, ifa_link, next) {
		if (ifa->ifa_addr->sa_family == AF_LINK)
			continue;
		CK_STAILQ_REMOVE(&ifp->if_addrhead, ifa, ifaddr, ifa_link);
		ifa_free(ifa);
	}
	IF_ADDR_WUNLOCK(ifp);
}

void
if_addrs_free(struct ifnet *ifp)
{
	struct ifaddr *ifa = ifp->if_addr;

	if_purgeaddrs(ifp);
	if (!CK_STAILQ_EMPTY(&ifp->if_multiaddrs)) {
		if_delallmulti(ifp);
		if_multi_changed(ifp, SIOCDELMULTI);
	}
	IF_ADDR_WLOCK(ifp);
	CK_STAILQ_REMOVE(&ifp->if_addrhead, ifa, ifaddr, ifa_link);
	IF_ADDR_WUNLOCK(ifp);
	ifp->if_addr = NULL;
	ifa_free(ifa);
}
