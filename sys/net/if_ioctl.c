/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * ioctl(2) requests on interfaces, from inside of the kernel: there are no user processes, so
 * all addresses are the kernel's.  Requests common to all interfaces are handled here; media,
 * capabilities and others that concern the hardware are passed to the driver.
 *
 * Locking.  The driver's method is called with no lock, and may be called while it detaches.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/mbuf.h>
#include <sys/proc.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/syslog.h>
#include <net/if.h>
#include <net/if_dl.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <net/if_subr_tree.h>
#include <net/if_tree.h>

static int
if_driver_ioctl(struct ifnet *ifp, u_long cmd, caddr_t data)
{
	if (ifp->if_ioctl == NULL)
		return (EOPNOTSUPP);
	return (ifp->if_ioctl(ifp, cmd, data));
}

/* A mode of the user's, which is not counted: it ends with its flag, unless others use it. */
static void
if_set_user_mode(struct ifnet *ifp, int flags, int user, int mode, const int *count)
{
	if (((flags ^ ifp->if_flags) & user) == 0)
		return;
	IF_ADDR_WLOCK(ifp);
	if ((flags & user) != 0)
		ifp->if_flags |= mode;
	else if (*count == 0)
		ifp->if_flags &= ~mode;
	IF_ADDR_WUNLOCK(ifp);
	if (mode == IFF_PROMISC)
		if_log(ifp, LOG_INFO, "permanently promiscuous mode %s\n",
		    (flags & user) != 0 ? "enabled" : "disabled");
}

static int
if_set_flags(struct ifnet *ifp, struct ifreq *ifr)
{
	int flags;

	flags = (ifr->ifr_flags & 0xffff) | (ifr->ifr_flagshigh << 16);
	flags &= ~IFF_CANTCHANGE;
	if ((flags & IFF_UP) == 0 && (ifp->if_flags & IFF_UP) != 0)
		if_down(ifp);
	if_set_user_mode(ifp, flags, IFF_PPROMISC, IFF_PROMISC, &ifp->if_pcount);
	if_set_user_mode(ifp, flags, IFF_PALLMULTI, IFF_ALLMULTI, &ifp->if_amcount);
	ifp->if_flags = (ifp->if_flags & IFF_CANTCHANGE) | flags;
	return (if_driver_ioctl(ifp, SIOCSIFFLAGS, (caddr_t)ifr));
}

static int
if_set_mtu(struct ifnet *ifp, struct ifreq *ifr)
{
	int error, old = ifp->if_mtu;

	if (ifr->ifr_mtu < IF_MINMTU || ifr->ifr_mtu > IF_MAXMTU)
		return (EINVAL);
	error = if_driver_ioctl(ifp, SIOCSIFMTU, (caddr_t)ifr);
	if (error == 0 && ifp->if_mtu != old)
		if_notifymtu(ifp);
	return (error);
}

static int
if_set_caps(struct ifnet *ifp, struct ifreq *ifr)
{
	if ((ifr->ifr_reqcap & ~ifp->if_capabilities) != 0)
		return (EINVAL);
	return (if_driver_ioctl(ifp, SIOCSIFCAP, (caddr_t)ifr));
}

static void
if_get_data(struct ifnet *ifp, struct ifreq *ifr)
{
	struct if_data data;

	if_data_copy(ifp, &data);
	bcopy(&data, ifr_data_get_ptr(ifr), sizeof(data));
}

int
ifhwioctl(u_long cmd, if_t ifp, caddr_t data, struct thread *td __unused)
{
	struct ifreq *ifr = (struct ifreq *)data;

	switch (cmd) {
	case SIOCGIFINDEX:
		ifr->ifr_index = ifp->if_index;
		return (0);
	case SIOCGIFFLAGS:
		ifr->ifr_flags = (ifp->if_flags | ifp->if_drv_flags) & 0xffff;
		ifr->ifr_flagshigh = (ifp->if_flags | ifp->if_drv_flags) >> 16;
		return (0);
	case SIOCSIFFLAGS:
		return (if_set_flags(ifp, ifr));
	case SIOCGIFCAP:
		ifr->ifr_reqcap = ifp->if_capabilities;
		ifr->ifr_curcap = ifp->if_capenable;
		return (0);
	case SIOCSIFCAP:
		return (if_set_caps(ifp, ifr));
	case SIOCGIFMETRIC:
		ifr->ifr_metric = ifp->if_metric;
		return (0);
	case SIOCGIFMTU:
		ifr->ifr_mtu = ifp->if_mtu;
		return (0);
	case SIOCSIFMTU:
		return (if_set_mtu(ifp, ifr));
	case SIOCGIFDATA:
		if_get_data(ifp, ifr);
		return (0);
	case SIOCSIFLLADDR:
		return (if_setlladdr(ifp, ifr->ifr_addr.sa_data, ifr->ifr_addr.sa_len));
	default:
		return (if_driver_ioctl(ifp, cmd, data));
	}
}

int
if_ioctl_kernel(if_t ifp, u_long cmd, caddr_t data)
{
	bool wasup;
	int error;

	wasup = (ifp->if_flags & IFF_UP) != 0;
	error = ifhwioctl(cmd, ifp, data, curthread);
	/* The driver is up before the protocols send their first packets. */
	if (error == 0 && !wasup && (ifp->if_flags & IFF_UP) != 0)
		if_up(ifp);
	return (error);
}
