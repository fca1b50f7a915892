/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The loopback interface lo0, and if_simloop() by which other interfaces hand a packet back
 * to this host.
 *
 * A packet goes to a queue and a task takes it to its protocol, so that the sender's locks
 * and stack are not those of the receiver.
 *
 * Locking.  loop_lock covers the queue.  Protocols are called without it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/epoch.h>
#include <sys/lock.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/taskqueue.h>
#include <net/bpf.h>
#include <net/dlt.h>
#include <net/if.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/if_private.h>

#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet6/ip6_var.h>
#include <netinet/inet_tree.h>

#define	LOMTU		16384
#define	LOOP_QUEUE_MAX	256	/* packets */

struct loop_packet {
	struct mbuf	*lp_mbuf;
	int		 lp_af;
};

static struct mtx loop_lock;
MTX_SYSINIT(loop, &loop_lock, "loopback", MTX_DEF);
static struct mbufq loop_queue = {
	.mq_head = STAILQ_HEAD_INITIALIZER(loop_queue.mq_head), .mq_maxlen = LOOP_QUEUE_MAX
};

static void
loop_deliver(struct mbuf *m)
{
	switch (m->m_pkthdr.PH_loc.eight[0]) {
	case AF_INET:
		ip_input(m);
		break;
	case AF_INET6:
		ip6_input(m);
		break;
	default:
		m_freem(m);
		break;
	}
}

static void
loop_task(void *arg __unused, int pending __unused)
{
	struct mbuf *m, *next;

	mtx_lock(&loop_lock);
	m = mbufq_flush(&loop_queue);
	mtx_unlock(&loop_lock);
	for (; m != NULL; m = next) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		CURVNET_SET(m->m_pkthdr.rcvif->if_vnet);
		loop_deliver(m);
		CURVNET_RESTORE();
	}
}
static struct task loop_intr = TASK_INITIALIZER(0, loop_task, NULL);

/*
 * Hand a packet to this host's protocol `af' as if ifp had received it; its first hlen bytes
 * are cut.
 */
int
if_simloop(if_t ifp, struct mbuf *m, int af, int hlen)
{
	int error;

	M_ASSERTPKTHDR(m);
	m_tag_delete_nonpersistent(m);
	m->m_pkthdr.rcvif = ifp;
	m_adj(m, hlen);
	if_inc_counter(ifp, IFCOUNTER_IPACKETS, 1);
	if_inc_counter(ifp, IFCOUNTER_IBYTES, m->m_pkthdr.len);
	m->m_pkthdr.PH_loc.eight[0] = af;
	mtx_lock(&loop_lock);
	error = mbufq_enqueue(&loop_queue, m);
	mtx_unlock(&loop_lock);
	if (error != 0) {
		if_inc_counter(ifp, IFCOUNTER_IQDROPS, 1);
		m_freem(m);
		return (error);
	}
	loop_intr.ta_flags |= TASK_NETWORK;
	taskqueue_enqueue(taskqueue_swi, &loop_intr);
	return (0);
}

static int
loop_output(if_t ifp, struct mbuf *m, const struct sockaddr *dst, struct route *ro __unused)
{
	if_inc_counter(ifp, IFCOUNTER_OPACKETS, 1);
	if_inc_counter(ifp, IFCOUNTER_OBYTES, m->m_pkthdr.len);
	/* A packet with a partial checksum never leaves memory, so its checksum counts as valid. */
	if ((m->m_pkthdr.csum_flags & (CSUM_DELAY_DATA | CSUM_DELAY_DATA_IPV6)) != 0) {
		m->m_pkthdr.csum_flags = CSUM_DATA_VALID | CSUM_PSEUDO_HDR | CSUM_IP_CHECKED |
		    CSUM_IP_VALID;
		m->m_pkthdr.csum_data = 0xffff;
	} else
		m->m_pkthdr.csum_flags = 0;
	return (if_simloop(ifp, m, dst->sa_family, 0));
}

static int
loop_transmit(if_t ifp, struct mbuf *m)
{
	if_inc_counter(ifp, IFCOUNTER_OERRORS, 1);
	m_freem(m);
	return (EOPNOTSUPP);
}

static void
loop_qflush(if_t ifp __unused)
{
}

static int
loop_ioctl(if_t ifp, u_long cmd, caddr_t data)
{
	struct ifreq *ifr = (struct ifreq *)data;

	switch (cmd) {
	case SIOCSIFFLAGS:
		if_setdrvflagbits(ifp, (if_getflags(ifp) & IFF_UP) != 0 ? IFF_DRV_RUNNING : 0,
		    (if_getflags(ifp) & IFF_UP) != 0 ? 0 : IFF_DRV_RUNNING);
		return (0);
	case SIOCSIFMTU:
		if_setmtu(ifp, ifr->ifr_mtu);
		return (0);
	case SIOCADDMULTI:
	case SIOCDELMULTI:
		return (0);
	default:
		return (EINVAL);
	}
}

static void
loop_init(void *dummy __unused)
{
	if_t ifp;

	ifp = if_alloc(IFT_LOOP);
	if_initname(ifp, "lo", 0);
	if_setmtu(ifp, LOMTU);
	if_setflags(ifp, IFF_LOOPBACK | IFF_MULTICAST);
	if_setioctlfn(ifp, loop_ioctl);
	if_setoutputfn(ifp, loop_output);
	if_settransmitfn(ifp, loop_transmit);
	if_setqflushfn(ifp, loop_qflush);
	if_attach(ifp);
	bpfattach(ifp, DLT_NULL, sizeof(uint32_t));
	V_loif = ifp;
}
SYSINIT(loop, SI_SUB_PROTO_IF, SI_ORDER_SECOND, loop_init, NULL);
