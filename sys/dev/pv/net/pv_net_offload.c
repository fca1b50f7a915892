/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: offload metadata.  One function a direction between struct
 * pv_net_offload, which every protocol can express, and the marks of an mbuf
 * (pv_net.h has the table of both).
 *
 *	sent        pv_net_tx_offload(): the stack's marks become struct
 *		    pv_net_offload.  Where the transport header starts is read
 *		    from the packet.
 *	received    pv_net_rx_offload(): what the device states becomes marks.
 *
 * Sent.  What the stack requests and the device can't do is done here
 * (pv_net_tx_soften): PV_NET_FINISH_CSUM for a checksum, PV_NET_SPLIT for
 * segmentation.  That is no error: a capability may be changed while packets
 * are in flight, and what is forwarded is as it was received.
 *
 * Received.
 *
 *	DATA_VALID   the checksum in the packet was verified
 *	NEEDS_CSUM   the packet never was on a wire: the field holds the pseudo
 *		     header's sum only
 *	GSO          the packet stands for several segments, as a sender left
 *		     them
 *
 * A partial checksum stays partial, but for these cases, in which it is
 * finished in software: the protocol is one that has no marks, bpf(4) has a
 * listener, or receive checksum offload is disabled.  Each costs a pass over
 * the packet.  FreeBSD 14's TCP and UDP take a partial checksum that is marked
 * valid, and nothing else does: there, what might leave this host again is
 * finished as well (pv_net_rx_ends_here).  What this depends on, and is the
 * same for all packets, is looked up once for a batch: prq_flags.  Where in the
 * kernel it is found (pn_stack) is known since the interface came to its vnet.
 *
 * csum_start and csum_offset decide.  What is in front of the sum is looked at
 * only for whether the sum may stay partial: a packet whose headers are not
 * understood has it finished, as has one of a device that was not to leave any
 * to us, and a GSO packet of TCP that was not negotiated is split.
 *
 * LRO.  Segments for our own address that arrive as separate packets are
 * merged, unless this kernel forwards packets.  tcp_lro(9) holds them until the
 * queue is empty or the budget used up.  A packet that does not go through it
 * must not overtake what it holds of the same flow: a GSO packet of the device,
 * or a segment without a verified checksum.  prq_held has a bit for each of 64
 * groups of flows, and such a packet has everything flushed before it if its
 * bit is set.  (tcp_lro(9) flushes itself what a packet that it refuses would
 * overtake.)
 *
 * Trust.  What the device states is checked against the packet's length before
 * any of it is used, and against the headers where these are changed.  An
 * invalid value has a name (enum pv_net_bad), and the packet is dropped.  A
 * packet without offload metadata is not checked: the stack validates it.
 *
 * Locking.  What is sent, under the queue's lock.  What is received, in the
 * network epoch: metadata under the queue's lock, and LRO without it, by the
 * thread that set prq_busy.
 */

#include "opt_inet.h"
#include "opt_inet6.h"

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/if_private.h>	/* what is looked at for each batch,
				 * without a call each */
#include <net/pfil.h>
#include <net/vnet.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip_var.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <netinet6/ip6_var.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

/* Tags that FreeBSD, and other drivers, look behind: one, that of a VLAN. */
#define	PV_NET_KNOWN_TAGS	1

#define	PV_NET_LRO_GROUPS	64	/* bits of prq_held */

/*
 * Does the stack know a mark for a partial checksum of a packet that came from
 * elsewhere?
 */
#if __FreeBSD_version >= 1500000
#define	PV_NET_MARKS_PARTIAL	true
#else
#define	PV_NET_MARKS_PARTIAL	false
#endif

/*
 * Can this kernel forward packets that stand for several?  FreeBSD's own does
 * not.
 */
struct pv_tunable pv_net_tunables[] = {
	PV_TUNABLE("lro_forward", 0, 0, 1, PVT_RW,
	    "This kernel can forward GSO packets: do not split them"),
	PV_TUNABLE("fast_path", 1, 0, 1, PVT_RW,
	    "Debugging: 0: no packet takes a fast path"),
};

/* Were these offloads negotiated, for such a packet? */
static bool
pv_net_negotiated(const struct pv_net *pn, const struct pv_net_headers *h,
    u_int what)
{
	u_int can = pn->pn_params.pnp_offloads;

	return ((can & what) == what && !((h->ph_tags > 0 || h->ph_opaque) &&
	    (can & PV_NET_UNTAGGED) != 0));
}

/*
 * Make the first `len' bytes of a packet writable.  The others are not looked
 * at: they may be pages without an address (M_EXTPG).  NULL: no memory, and it
 * is freed.
 */
static struct mbuf *
pv_net_tx_writable(struct mbuf *m, u_int len)
{
	struct mbuf *copy, *n;
	u_int seen = 0;

	for (n = m; n != NULL && seen < len; n = n->m_next) {
		if (!M_WRITABLE(n)) {
			copy = pv_net_copy_front(m, len);
			m_freem(m);
			return (copy);
		}
		seen += n->m_len;
	}
	return (m);
}

static enum pv_net_bad
pv_net_tx_tso(const struct pv_net *pn, const struct mbuf *m,
    const struct pv_net_headers *h, u_int hdrlen, struct pv_net_offload *out)
{
	u_int need = h->ph_ip6 ? PV_NET_TXCSUM6 | PV_NET_TSO6 :
	    PV_NET_TXCSUM | PV_NET_TSO4;
	uint8_t flags;

	if (h->ph_proto != IPPROTO_TCP)
		return (PV_NET_BAD_GSO_TYPE);
	if (m->m_pkthdr.tso_segsz == 0 ||
	    hdrlen - h->ph_l3 + m->m_pkthdr.tso_segsz > IP_MAXPACKET)
		return (PV_NET_BAD_GSO_SIZE);
	/*
	 * One segment: there is nothing to segment, nor to sum up if that was
	 * done already.
	 */
	if (m->m_pkthdr.len - hdrlen <= m->m_pkthdr.tso_segsz) {
		if ((m->m_pkthdr.csum_flags &
		    (PV_NET_CSUM4 | PV_NET_CSUM6)) == 0)
			memset(out, 0, sizeof(*out));
		return (PV_NET_FINE);
	}
	if (!pv_net_peek(m, h->ph_l4 + offsetof(struct tcphdr, th_flags),
	    sizeof(flags), &flags))
		return (PV_NET_BAD_SHORT);
	if ((flags & TH_CWR) != 0) {
		need |= PV_NET_TSO_ECN;
		out->po_flags |= PV_NET_GSO_ECN;
	}
	/*
	 * What was received while bpf(4) had a listener has a finished sum:
	 * pv_net_rx_stays().
	 */
	if ((m->m_pkthdr.csum_flags & (PV_NET_CSUM4 | PV_NET_CSUM6)) == 0)
		out->po_flags |= PV_NET_UNFINISH;
	if (!pv_net_negotiated(pn, h, need)) {
		out->po_flags |= PV_NET_SPLIT;
		return (PV_NET_FINE);
	}
	out->po_hdr_len = hdrlen;
	out->po_gso_size = m->m_pkthdr.tso_segsz;
	out->po_gso_type = h->ph_ip6 ? PV_NET_GSO_TCP6 : PV_NET_GSO_TCP4;
	return (PV_NET_FINE);
}

/*
 * The same as pv_net_tx_offload(), for what most packets are.  False: it is
 * something else.
 */
static inline bool
pv_net_tx_plain(const struct pv_net *pn, const struct mbuf *m,
    struct pv_net_offload *out)
{
	u_int l4 = pv_net_fast_path ? pv_net_tx_plain_l4(pn, m) : 0;

	if (l4 == 0)
		return (false);
	out->po_flags = PV_NET_NEEDS_CSUM;
	out->po_csum_start = l4;
	out->po_csum_offset = m->m_pkthdr.csum_data;
	return (true);
}

/* pv_net_tx_offload() for any packet. */
static __noinline enum pv_net_bad
pv_net_tx_any(const struct pv_net *pn, const struct mbuf *m,
    struct pv_net_offload *out)
{
	bool tso = (m->m_pkthdr.csum_flags & CSUM_TSO) != 0;
	struct pv_net_headers h;
	enum pv_net_bad bad;
	u_int len;

	bad = pv_net_parse(m, &h);
	if (bad != PV_NET_FINE)
		return (bad);
	if (h.ph_l4 == 0 || pv_net_sum_offset(h.ph_proto) == 0 ||
	    (!tso && m->m_pkthdr.csum_data != pv_net_sum_offset(h.ph_proto)))
		return (PV_NET_BAD_CSUM);
	bad = pv_net_l4_len(m, &h, &len);
	if (bad != PV_NET_FINE)
		return (bad);
	/* A device would count padding. */
	out->po_flags = h.ph_end == (u_int)m->m_pkthdr.len &&
	    pv_net_negotiated(pn, &h, h.ph_ip6 ? PV_NET_TXCSUM6 :
	    PV_NET_TXCSUM) ? PV_NET_NEEDS_CSUM : PV_NET_FINISH_CSUM;
	out->po_csum_start = h.ph_l4;
	out->po_csum_offset = pv_net_sum_offset(h.ph_proto);
	return (tso ? pv_net_tx_tso(pn, m, &h, h.ph_l4 + len, out) :
	    PV_NET_FINE);
}

/*
 * What is to be done about a packet that is sent.  Not fine if its marks and
 * its contents don't agree: the packet is to be dropped.
 */
enum pv_net_bad
pv_net_tx_offload(const struct pv_net *pn, const struct mbuf *m,
    struct pv_net_offload *out)
{
	memset(out, 0, sizeof(*out));
	if ((m->m_pkthdr.csum_flags & PV_NET_WORK) == 0 ||
	    pv_net_tx_plain(pn, m, out))
		return (PV_NET_FINE);
	return (pv_net_tx_any(pn, m, out));
}

/*
 * Do what pv_net_tx_offload() left to pv_net itself.  Returns the packet, with
 * marks that say what is left; a list of packets that it was split into; or
 * NULL if there is no memory, and it is freed.
 */
struct mbuf *
pv_net_tx_soften(struct mbuf *m, struct pv_net_offload *o)
{
	u_int at = o->po_csum_start + o->po_csum_offset, len;
	struct pv_net_headers h;
	uint16_t pseudo;

	m = pv_net_tx_writable(m, at + sizeof(pseudo));
	if (m == NULL)
		return (NULL);
	if ((o->po_flags & PV_NET_UNFINISH) != 0) {
		pseudo = pv_net_pseudo_sum(m, o->po_csum_start);
		m_copyback(m, at, sizeof(pseudo), (c_caddr_t)&pseudo);
		m->m_pkthdr.csum_flags |=
		    (m->m_pkthdr.csum_flags & CSUM_IP6_TSO) != 0 ?
		    CSUM_IP6_TCP : CSUM_IP_TCP;
	}
	if ((o->po_flags & PV_NET_SPLIT) != 0) {
		if (pv_net_parse(m, &h) == PV_NET_FINE &&
		    pv_net_l4_len(m, &h, &len) == PV_NET_FINE)
			return (pv_net_gso_split(m, &h, h.ph_l4 + len,
			    m->m_pkthdr.tso_segsz));
		m_freem(m);
		return (NULL);
	}
	if ((o->po_flags & PV_NET_FINISH_CSUM) != 0) {
		pv_net_store_sum(m, o->po_csum_start, o->po_csum_offset,
		    pv_net_sum_end(m, at));
		m->m_pkthdr.csum_flags &= ~PV_NET_WORK;
	}
	o->po_flags &= ~(PV_NET_UNFINISH | PV_NET_FINISH_CSUM);
	return (m);
}

/* What the stack may request with these capabilities enabled. */
u_int
pv_net_hwassist(const struct pv_net *pn, int capenable)
{
	u_int assist = 0;

	if ((capenable & IFCAP_TXCSUM) != 0)
		assist |= PV_NET_CSUM4;
	if ((capenable & IFCAP_TXCSUM_IPV6) != 0)
		assist |= PV_NET_CSUM6;
	if ((capenable & IFCAP_TSO4) != 0)
		assist |= CSUM_IP_TSO;
	if ((capenable & IFCAP_TSO6) != 0)
		assist |= CSUM_IP6_TSO;
	return (assist);
}

/* Has bpf(4) a listener, which sees finished checksums? */
static bool
pv_net_listening(const struct pv_net *pn)
{
	return (bpf_peers_present(pn->pn_stack.pns_bpf));
}

/*
 * Which partial checksums, of `keep', need not be finished, as packets for our
 * own address reach the stack only, and it does not forward them?  Filters,
 * netgraph(4), netmap(4) and lagg(4) may send them anywhere, and so may whoever
 * made the interface promiscuous: a bridge, its span ports, and what is behind
 * these (epair(4), tap(4), vxlan(4)).  In the interface's vnet.
 */
static u_int
pv_net_rx_ends_here(const struct pv_net *pn, int enable, u_int flags,
    u_int keep)
{
	const struct pv_net_stack *stack = &pn->pn_stack;
	if_t ifp = pn->pn_ifp;

	if ((enable & IFCAP_NETMAP) != 0 || ifp->if_l2com != NULL ||
	    (ifp->if_flags & IFF_PROMISC) != 0 ||
	    ifp->if_type != IFT_ETHER || PFIL_HOOKED_IN(*stack->pns_filters))
		return (0);
#ifdef INET
	if ((flags & PV_NET_RXF_FORWARD4) != 0 ||
	    PFIL_HOOKED_IN(*stack->pns_filters4))
		keep &= ~PV_NET_RXF_KEEP4;
#endif
#ifdef INET6
	if ((flags & PV_NET_RXF_FORWARD6) != 0 ||
	    PFIL_HOOKED_IN(*stack->pns_filters6))
		keep &= ~PV_NET_RXF_KEEP6;
#endif
	return (keep);
}

/* Look up what is the same for all packets of the next batch. */
void
pv_net_rx_set_flags(struct pv_net_rxq *rxq)
{
	const struct pv_net *pn = rxq->prq_pn;
	int enable = pn->pn_ifp->if_capenable;
	u_int flags = enable & PV_NET_RXF_TRUST, keep = flags << 1;

	if (pv_net_listening(pn))
		keep = 0;
#ifdef INET
	if (*pn->pn_stack.pns_forward4 != 0)
		flags |= PV_NET_RXF_FORWARD4;
#endif
#ifdef INET6
	if (*pn->pn_stack.pns_forward6 != 0)
		flags |= PV_NET_RXF_FORWARD6;
#endif
	if (!PV_NET_MARKS_PARTIAL && keep != 0)
		keep = pv_net_rx_ends_here(pn, enable, flags, keep);
	rxq->prq_flags = flags | keep;
}

void
pv_net_stack_find(struct pv_net *pn)
{
	struct pv_net_stack *stack = &pn->pn_stack;

	stack->pns_bpf = if_getbpf(pn->pn_ifp);
	stack->pns_lladdr = (const uint8_t *)if_getlladdr(pn->pn_ifp);
	CURVNET_SET(if_getvnet(pn->pn_ifp));
	if (!PV_NET_MARKS_PARTIAL)
		stack->pns_filters = &V_link_pfil_head;
#ifdef INET
	stack->pns_forward4 = &V_ipforwarding;
	if (!PV_NET_MARKS_PARTIAL)
		stack->pns_filters4 = &V_inet_pfil_head;
#endif
#ifdef INET6
	stack->pns_forward6 = &V_ip6_forwarding;
	if (!PV_NET_MARKS_PARTIAL)
		stack->pns_filters6 = &V_inet6_pfil_head;
#endif
	CURVNET_RESTORE();
}

/* Is it for our own address? */
static inline bool
pv_net_rx_ours(const struct pv_net *pn, const struct mbuf *m)
{
	uint8_t to[ETHER_ADDR_LEN];

	return (pv_net_peek(m, 0, sizeof(to), to) &&
	    pv_net_same_lladdr(to, pn->pn_stack.pns_lladdr));
}

/* Is receive checksum offload enabled for such a packet? */
static bool
pv_net_rx_trusts(const struct pv_net_rxq *rxq, bool ip6)
{
	return ((rxq->prq_flags & (ip6 ? PV_NET_RXF_TRUST6 :
	    PV_NET_RXF_TRUST4)) != 0);
}

/*
 * Does whoever sends such a packet on find its sum, and would it count nothing
 * but the packet?
 */
static bool
pv_net_rx_known(const struct mbuf *m, const struct pv_net_headers *h)
{
	return (h->ph_tags <= PV_NET_KNOWN_TAGS && !h->ph_opaque &&
	    h->ph_end == (u_int)m->m_pkthdr.len);
}

/*
 * May the partial checksum of such a packet, as everyone knows them, stay
 * partial?  Then it is marked.  The packet has a VLAN tag if `tagged', and
 * Ethernet's header in one piece if `whole'.
 */
static __always_inline bool
pv_net_rx_stays(const struct pv_net_rxq *rxq, struct mbuf *m, bool ip6,
    bool tagged, bool whole, u_int sum)
{
	if ((rxq->prq_flags & (ip6 ? PV_NET_RXF_KEEP6 : PV_NET_RXF_KEEP4)) == 0)
		return (false);
	if (PV_NET_MARKS_PARTIAL)
		pv_net_mark_partial(m, ip6, sum);
	/* A tag's interface may be bridged, or another jail's. */
	else if (!tagged && (whole ? pv_net_same_lladdr(mtod(m, const void *),
	    rxq->prq_pn->pn_stack.pns_lladdr) : pv_net_rx_ours(rxq->prq_pn, m)))
		pv_net_mark_valid(m);
	else
		return (false);
	return (true);
}

/* Finish a checksum of TCP or UDP.  Returns true. */
static __noinline bool
pv_net_rx_finish_sum(const struct pv_net_rxq *rxq, struct mbuf *m, bool ip6,
    u_int l4, u_int sum, u_int end)
{
	m->m_pkthdr.csum_flags = 0;
	pv_net_store_sum(m, l4, sum, end);
	if (pv_net_rx_trusts(rxq, ip6))
		pv_net_mark_valid(m);
	return (true);
}

/* A partial checksum of TCP or UDP: left as it is and marked, or finished. */
static void
pv_net_rx_partial_sum(const struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_headers *h)
{
	u_int sum = pv_net_sum_offset(h->ph_proto);

	if (!pv_net_rx_known(m, h) ||
	    !pv_net_rx_stays(rxq, m, h->ph_ip6, h->ph_tags != 0, false, sum))
		(void)pv_net_rx_finish_sum(rxq, m, h->ph_ip6, h->ph_l4, sum,
		    h->ph_end);
}

/* A packet of this kind, if it is one. */
static __always_inline bool
pv_net_rx_plain_sum(const struct pv_net_rxq *rxq, struct mbuf *m,
    const u_int l4, const u_int sum)
{
	const bool ip6 = l4 == PV_NET_L4_IP6;

	/* In one piece: so is Ethernet's header. */
	if (!pv_net_is_plain(m, l4, sum))
		return (false);
	return (pv_net_rx_stays(rxq, m, ip6, false, true, sum) ||
	    pv_net_rx_finish_sum(rxq, m, ip6, l4, sum, m->m_pkthdr.len));
}

bool
pv_net_rx_fast_sum(const struct pv_net_rxq *rxq, struct mbuf *m, u_int l4,
    u_int sum)
{
	if (l4 == PV_NET_L4_IP4 && sum == PV_NET_SUM_TCP)
		return (pv_net_rx_plain_sum(rxq, m, PV_NET_L4_IP4,
		    PV_NET_SUM_TCP));
	if (l4 == PV_NET_L4_IP4 && sum == PV_NET_SUM_UDP)
		return (pv_net_rx_plain_sum(rxq, m, PV_NET_L4_IP4,
		    PV_NET_SUM_UDP));
	if (l4 == PV_NET_L4_IP6 && sum == PV_NET_SUM_TCP)
		return (pv_net_rx_plain_sum(rxq, m, PV_NET_L4_IP6,
		    PV_NET_SUM_TCP));
	if (l4 == PV_NET_L4_IP6 && sum == PV_NET_SUM_UDP)
		return (pv_net_rx_plain_sum(rxq, m, PV_NET_L4_IP6,
		    PV_NET_SUM_UDP));
	return (false);
}

/*
 * Is the checksum that is to be finished that of the TCP or UDP header?  It is
 * not necessarily, in a tunnel.
 */
static bool
pv_net_rx_is_transport(const struct pv_net_headers *h,
    const struct pv_net_offload *in)
{
	u_int offset = pv_net_sum_offset(h->ph_proto);

	if (h->ph_l4 == 0 || offset == 0)
		return (false);
	return ((in->po_flags & PV_NET_FIND_CSUM) != 0 ||
	    (in->po_csum_start == h->ph_l4 && in->po_csum_offset == offset));
}

/*
 * Finish a sum where the device states it to be, whatever stands in front of
 * it.  Not fine if there is no such place behind Ethernet's header, and the one
 * of IP if that is known.
 */
static enum pv_net_bad
pv_net_rx_place(struct mbuf *m, const struct pv_net_headers *h,
    const struct pv_net_offload *in)
{
	u_int start = in->po_csum_start, field = start + in->po_csum_offset,
	    end = h->ph_end;

	if ((in->po_flags & PV_NET_FIND_CSUM) != 0 || start < MAX(h->ph_l4,
	    ETHER_HDR_LEN) || field + sizeof(uint16_t) > (u_int)m->m_pkthdr.len)
		return (PV_NET_BAD_CSUM);
	if (field + sizeof(uint16_t) > end)
		end = m->m_pkthdr.len;
	pv_net_store_sum(m, start, in->po_csum_offset, end);
	return (PV_NET_FINE);
}

bool
pv_net_finish_frame(uint8_t *frame, u_int len, const struct pv_net_offload *in)
{
	struct pv_net_headers h;
	struct mbuf m;

	if ((in->po_flags & PV_NET_NEEDS_CSUM) == 0)
		return (true);
	/* Of an mbuf, headers and sums are found by these members. */
	m.m_next = NULL;
	m.m_flags = M_PKTHDR;
	m.m_data = (caddr_t)frame;
	m.m_len = m.m_pkthdr.len = len;
	(void)pv_net_parse(&m, &h);
	return (pv_net_rx_place(&m, &h, in) == PV_NET_FINE);
}

/*
 * The same for what most are; the place of a sum that is to be found may be any
 * of these.
 */
static inline bool
pv_net_rx_fast_partial(const struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_offload *in)
{
	if ((in->po_flags & PV_NET_FIND_CSUM) == 0)
		return (pv_net_rx_fast_sum(rxq, m, in->po_csum_start,
		    in->po_csum_offset));
	return (pv_net_rx_fast_sum(rxq, m, PV_NET_L4_IP4, PV_NET_SUM_TCP) ||
	    pv_net_rx_fast_sum(rxq, m, PV_NET_L4_IP4, PV_NET_SUM_UDP));
}

static enum pv_net_bad
pv_net_rx_partial(const struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_offload *in)
{
	struct pv_net_headers h;
	enum pv_net_bad bad, place;
	u_int len;

	if (pv_net_fast_path && pv_net_rx_fast_partial(rxq, m, in))
		return (PV_NET_FINE);
	bad = pv_net_parse(m, &h);
	if (bad == PV_NET_FINE && pv_net_rx_is_transport(&h, in)) {
		bad = pv_net_l4_len(m, &h, &len);
		if (bad == PV_NET_FINE) {
			pv_net_rx_partial_sum(rxq, m, &h);
			return (PV_NET_FINE);
		}
	}
	/*
	 * Where there is no place, what is wrong with the headers is the
	 * reason.
	 */
	place = pv_net_rx_place(m, &h, in);
	return (place != PV_NET_FINE && bad != PV_NET_FINE ? bad : place);
}

/*
 * A datagram that its sender left to be fragmented: for us, it is what the
 * fragments would become; whoever else it is for can't take it in one frame.
 */
static enum pv_net_bad
pv_net_rx_fragments(const struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_offload *in)
{
	const struct pv_net *pn = rxq->prq_pn;
	struct pv_net_headers h;

	if (pv_net_parse(m, &h) != PV_NET_FINE || h.ph_l4 == 0 ||
	    h.ph_proto != IPPROTO_UDP ||
	    (in->po_flags & PV_NET_NEEDS_CSUM) == 0 ||
	    !pv_net_rx_is_transport(&h, in) || !pv_net_rx_ours(pn, m))
		return (PV_NET_BAD_GSO_TYPE);
	return (pv_net_rx_partial(rxq, m, in));
}

/* Does this kernel forward packets of this version? */
static bool
pv_net_forwards(const struct pv_net *pn, bool ip6)
{
	bool forwards = false;

	CURVNET_SET(if_getvnet(pn->pn_ifp));
#ifdef INET
	if (!ip6)
		forwards = V_ipforwarding != 0;
#endif
#ifdef INET6
	if (ip6)
		forwards = V_ip6_forwarding != 0;
#endif
	CURVNET_RESTORE();
	return (forwards);
}

/* Does the kernel forward such packets, but not when they are big? */
static bool
pv_net_rx_routed(const struct pv_net *pn, bool ip6)
{
	return (!pv_net_lro_forward && pv_net_forwards(pn, ip6));
}

bool
pv_net_forwards_big(const struct pv_net *pn)
{
	return (pv_net_lro_forward &&
	    (pv_net_forwards(pn, false) || pv_net_forwards(pn, true)));
}

/*
 * Which of the receive offloads that were negotiated are of use now.  GSO
 * packets of a protocol that would only be split are not.
 */
u_int
pv_net_rx_wanted(const struct pv_net *pn)
{
	int enable = if_getcapenable(pn->pn_ifp);
	u_int want = PV_NET_RX_OFFLOADS;

	/* A program sees nothing but the frame. */
	if (pn->pn_netmap)
		return (0);
	if ((enable & IFCAP_LRO) == 0)
		want &= ~PV_NET_RX_GSO;
	if ((enable & IFCAP_RXCSUM) == 0 || pv_net_rx_routed(pn, false))
		want &= ~PV_NET_LRO4;
	if ((enable & IFCAP_RXCSUM_IPV6) == 0 || pv_net_rx_routed(pn, true))
		want &= ~PV_NET_LRO6;
	if ((want & (PV_NET_LRO4 | PV_NET_LRO6)) == 0)
		want &= ~PV_NET_LRO_ECN;
	if ((enable & (IFCAP_RXCSUM | IFCAP_RXCSUM_IPV6)) != (IFCAP_RXCSUM |
	    IFCAP_RXCSUM_IPV6))
		want &= ~PV_NET_RX_USO;
	if ((enable & (IFCAP_RXCSUM | IFCAP_RXCSUM_IPV6)) == 0)
		want &= ~PV_NET_RXCSUM;
	return (want & pn->pn_params.pnp_offloads);
}

/*
 * Which offloads have to be negotiated for such a GSO packet: PV_NET_LRO4 ...
 */
static u_int
pv_net_rx_gso_needs(const struct pv_net_offload *in)
{
	u_int needs;

	if (in->po_gso_type == PV_NET_GSO_UDP)
		return (PV_NET_RX_USO);
	needs = in->po_gso_type == PV_NET_GSO_TCP4 ? PV_NET_LRO4 : PV_NET_LRO6;
	if ((in->po_flags & PV_NET_GSO_ECN) != 0)
		needs |= PV_NET_LRO_ECN;
	return (needs);
}

/* Are these the headers of such a GSO packet? */
static bool
pv_net_rx_gso_fits(const struct pv_net_headers *h,
    const struct pv_net_offload *in)
{
	if (h->ph_l4 == 0)
		return (false);
	switch (in->po_gso_type) {
	case PV_NET_GSO_TCP4:
		return (h->ph_proto == IPPROTO_TCP && !h->ph_ip6);
	case PV_NET_GSO_TCP6:
		return (h->ph_proto == IPPROTO_TCP && h->ph_ip6);
	case PV_NET_GSO_UDP:
		return (h->ph_proto == IPPROTO_UDP &&
		    (in->po_flags & PV_NET_GSO_ECN) == 0);
	default:
		return (false);
	}
}

/*
 * Make the checksum of a GSO packet partial.  VirtIO 1.3, 5.1.6.4.1: it arrives
 * with a checksum to be finished.  Others may have verified it (Xen's netback).
 */
static enum pv_net_bad
pv_net_rx_gso_csum(struct mbuf *m, const struct pv_net_headers *h,
    const struct pv_net_offload *in)
{
	uint16_t pseudo;

	if ((in->po_flags & PV_NET_NEEDS_CSUM) != 0)
		return (pv_net_rx_is_transport(h, in) ? PV_NET_FINE :
		    PV_NET_BAD_CSUM);
	if ((in->po_flags & PV_NET_DATA_VALID) == 0)
		return (PV_NET_BAD_CSUM);
	pseudo = pv_net_pseudo_sum(m, h->ph_l4);
	m_copyback(m, h->ph_l4 + pv_net_sum_offset(h->ph_proto), sizeof(pseudo),
	    (c_caddr_t)&pseudo);
	return (PV_NET_FINE);
}

/*
 * Check the metadata of a GSO packet.  Valid: `*hdrlen' is the length of its
 * headers, and `*whole' says whether it may stay in one: not if that was not
 * negotiated, nor behind what the stack does not know, nor if it is of UDP, for
 * which the stack has no marks.
 */
static enum pv_net_bad
pv_net_rx_check_gso(const struct pv_net *pn, struct mbuf *m,
    const struct pv_net_offload *in, struct pv_net_headers *h, u_int *hdrlen,
    bool *whole)
{
	enum pv_net_bad bad;
	u_int len, needs;

	bad = pv_net_parse(m, h);
	if (bad != PV_NET_FINE)
		return (bad);
	if (!pv_net_rx_gso_fits(h, in))
		return (PV_NET_BAD_GSO_TYPE);
	needs = pv_net_rx_gso_needs(in);
	*whole = h->ph_proto == IPPROTO_TCP &&
	    pv_net_negotiated(pn, h, needs) && pv_net_rx_known(m, h);
	bad = pv_net_l4_len(m, h, &len);
	if (bad != PV_NET_FINE)
		return (bad);
	*hdrlen = h->ph_l4 + len;
	/*
	 * The headers have the length of the whole packet, and there is some
	 * payload.
	 */
	if (h->ph_end != m->m_pkthdr.len || *hdrlen == h->ph_end)
		return (PV_NET_BAD_HEADERS);
	if (in->po_gso_size == 0 ||
	    *hdrlen - h->ph_l3 + in->po_gso_size > IP_MAXPACKET)
		return (PV_NET_BAD_GSO_SIZE);
	return (pv_net_rx_gso_csum(m, h, in));
}

/* Does this kernel forward such packets, as it was looked up for this batch? */
static inline bool
pv_net_rx_forwarded(const struct pv_net_rxq *rxq, bool ip6)
{
	return ((rxq->prq_flags & (ip6 ? PV_NET_RXF_FORWARD6 :
	    PV_NET_RXF_FORWARD4)) != 0);
}

/*
 * Mark a GSO packet of TCP that stays whole.  For our own TCP it has the number
 * of its segments (lro_nsegs); for another interface that may send it, their
 * length, in the same field, and the mark for segmentation.  In a kernel that
 * forwards such packets (lro_forward) it is not known yet which of the two this
 * one is.
 */
static void
pv_net_rx_mark_gso(const struct pv_net_rxq *rxq, struct mbuf *m,
    const struct pv_net_headers *h, u_int hdrlen, u_int size)
{
	const struct pv_net *pn = rxq->prq_pn;
	bool ours;

	ours = !pv_net_rx_forwarded(rxq, h->ph_ip6) && pv_net_rx_ours(pn, m);
	if (ours || !PV_NET_MARKS_PARTIAL) {
		m->m_pkthdr.lro_nsegs = MIN(howmany(m->m_pkthdr.len - hdrlen,
		    size), UINT16_MAX);
		return;
	}
	m->m_pkthdr.tso_segsz = size;
	m->m_pkthdr.csum_flags |= h->ph_ip6 ? CSUM_IP6_TSO : CSUM_IP_TSO;
}

/*
 * Does a GSO packet stay whole?  Not if it is forwarded; nor if it is for
 * another host, and can't be marked for the interface that a bridge sends it
 * by.
 */
static bool
pv_net_rx_big(const struct pv_net_rxq *rxq, const struct mbuf *m,
    const struct pv_net_headers *h)
{
	const struct pv_net *pn = rxq->prq_pn;

	if ((if_getcapenable(pn->pn_ifp) & IFCAP_LRO) == 0)
		return (false);
	if (pv_net_lro_forward)
		return (true);
	return (!pv_net_rx_forwarded(rxq, h->ph_ip6) &&
	    (PV_NET_MARKS_PARTIAL || pv_net_rx_ours(pn, m)));
}

static enum pv_net_bad
pv_net_rx_gso(const struct pv_net_rxq *rxq, struct mbuf **mp,
    const struct pv_net_offload *in)
{
	const struct pv_net *pn = rxq->prq_pn;
	struct pv_net_headers h;
	struct mbuf *m = *mp;
	enum pv_net_bad bad;
	u_int hdrlen;
	bool big;

	bad = pv_net_rx_check_gso(pn, m, in, &h, &hdrlen, &big);
	if (bad != PV_NET_FINE)
		return (bad);
	big = big && pv_net_rx_big(rxq, m, &h);
	if (m->m_pkthdr.len - hdrlen <= in->po_gso_size)
		pv_net_rx_partial_sum(rxq, m, &h);
	else if (big) {
		pv_net_rx_partial_sum(rxq, m, &h);
		pv_net_rx_mark_gso(rxq, m, &h, hdrlen, in->po_gso_size);
	} else {
		*mp = pv_net_gso_split(m, &h, hdrlen, in->po_gso_size);
		if (*mp == NULL)
			return (PV_NET_NO_MEMORY);
		for (m = *mp; m != NULL; m = m->m_nextpkt) {
			h.ph_end = m->m_pkthdr.len;
			pv_net_rx_partial_sum(rxq, m, &h);
		}
	}
	return (PV_NET_FINE);
}

/*
 * Is receive checksum offload enabled for a packet that was verified?  Its
 * version of IP is looked at only if that makes a difference.
 */
static bool
pv_net_rx_trusts_valid(const struct pv_net_rxq *rxq, const struct mbuf *m)
{
	u_int trust = rxq->prq_flags & PV_NET_RXF_TRUST;
	struct pv_net_headers h;

	if (trust == 0 || trust == PV_NET_RXF_TRUST)
		return (trust != 0);
	return (pv_net_parse(m, &h) == PV_NET_FINE &&
	    pv_net_rx_trusts(rxq, h.ph_ip6));
}

/*
 * Is m a GSO packet, or the first of its segments, that was not negotiated?
 * The headers are parsed only where tags make a difference.
 */
bool
pv_net_rx_gso_unasked(const struct pv_net *pn, const struct mbuf *m,
    const struct pv_net_offload *in)
{
	u_int can = pn->pn_params.pnp_offloads, needs = pv_net_rx_gso_needs(in);
	struct pv_net_headers h;

	if (in->po_gso_type == PV_NET_GSO_FRAGMENTS || (can & needs) != needs)
		return (true);
	return ((can & PV_NET_UNTAGGED) != 0 &&
	    pv_net_parse(m, &h) == PV_NET_FINE &&
	    !pv_net_negotiated(pn, &h, needs));
}

/*
 * Mark a received packet with the device's metadata.  *mp may become a list of
 * packets.  Not fine if that is invalid: the packet is to be dropped.  After
 * PV_NET_NO_MEMORY it has been.
 */
enum pv_net_bad
pv_net_rx_offload(const struct pv_net_rxq *rxq, struct mbuf **mp,
    const struct pv_net_offload *in)
{
	const struct pv_net *pn = rxq->prq_pn;

	if (__predict_true(in->po_flags == 0 &&
	    in->po_gso_type == PV_NET_GSO_NONE))
		return (PV_NET_FINE);
	if (in->po_gso_type == PV_NET_GSO_FRAGMENTS)
		return (pv_net_rx_fragments(rxq, *mp, in));
	if (in->po_gso_type != PV_NET_GSO_NONE)
		return (pv_net_rx_gso(rxq, mp, in));
	if ((in->po_flags & PV_NET_NEEDS_CSUM) != 0)
		return (pv_net_rx_partial(rxq, *mp, in));
	if ((in->po_flags & PV_NET_DATA_VALID) != 0 &&
	    (pn->pn_params.pnp_offloads & PV_NET_RXCSUM) != 0 &&
	    pv_net_rx_trusts_valid(rxq, *mp))
		pv_net_mark_valid(*mp);
	return (PV_NET_FINE);
}

/* The type of a packet, past a tag, and where its network header begins. */
static inline uint16_t
pv_net_lro_type(const struct mbuf *m, int *at)
{
	const struct ether_vlan_header *evl = mtod(m,
	    const struct ether_vlan_header *);

	*at = ETHER_HDR_LEN;
	if (evl->evl_encap_proto != htons(ETHERTYPE_VLAN) ||
	    m->m_len < (int)sizeof(*evl))
		return (evl->evl_encap_proto);
	*at = sizeof(*evl);
	return (evl->evl_proto);
}

/*
 * The group of flows that a packet belongs to, as a bit; all bits if its ports
 * can't be seen here, or may not be there.
 */
static uint64_t
pv_net_lro_group(const struct mbuf *m)
{
	const uint8_t *data = mtod(m, const uint8_t *);
	uint16_t type;
	int at;

	type = pv_net_lro_type(m, &at);
	if (type == htons(ETHERTYPE_IP) && m->m_len > at)
		at += (data[at] & 0xf) << 2;
	else if (type == htons(ETHERTYPE_IPV6))
		at += sizeof(struct ip6_hdr);
	else
		return (UINT64_MAX);
	if (m->m_len < at + 4)
		return (UINT64_MAX);
	/*
	 * The low bytes of the two ports, of which one at least differs from
	 * flow to flow.
	 */
	return (1ULL << ((data[at + 1] ^ data[at + 3]) % PV_NET_LRO_GROUPS));
}

#if defined(INET) || defined(INET6)
/*
 * Is it TCP, with data, and all its headers in one piece?  Extension headers
 * are not looked past.  Acknowledgments are not merged: there are fewer of them
 * than segments, and TCP has more use for them one by one.
 */
static bool
pv_net_lro_has_data(const struct mbuf *m)
{
	const uint8_t *data = mtod(m, const uint8_t *);
	const struct ip6_hdr *ip6;
	const struct ip *ip;
	uint16_t type;
	int at, len;

	type = pv_net_lro_type(m, &at);
	if (type == htons(ETHERTYPE_IP) && m->m_len >= at + (int)sizeof(*ip)) {
		ip = (const struct ip *)(data + at);
		if (ip->ip_p != IPPROTO_TCP)
			return (false);
		len = ntohs(ip->ip_len) - (ip->ip_hl << 2);
		at += ip->ip_hl << 2;
	} else if (type == htons(ETHERTYPE_IPV6) &&
	    m->m_len >= at + (int)sizeof(*ip6)) {
		ip6 = (const struct ip6_hdr *)(data + at);
		if (ip6->ip6_nxt != IPPROTO_TCP)
			return (false);
		len = ntohs(ip6->ip6_plen);
		at += sizeof(*ip6);
	} else
		return (false);
	return (m->m_len >= at + (int)sizeof(struct tcphdr) &&
	    len > ((const struct tcphdr *)(data + at))->th_off << 2);
}
#endif

/* Can it be TCP?  tcp_lro(9) holds nothing else. */
static bool
pv_net_lro_may_be_tcp(const struct mbuf *m)
{
	u_int udp = CSUM_IP_UDP | CSUM_IP6_UDP;

	return ((m->m_pkthdr.csum_flags & udp) == 0);
}

#if defined(INET) || defined(INET6)
/*
 * May this be merged with others of its connection?  It has to be for our own
 * address, not for a host behind a bridge or a route.
 */
static bool
pv_net_lro_mergeable(const struct pv_net_rxq *rxq, const struct mbuf *m)
{
	const struct ether_header *eh = mtod(m, const struct ether_header *);
	u_int good = CSUM_DATA_VALID | CSUM_IP_TCP | CSUM_IP6_TCP;

	return ((m->m_pkthdr.csum_flags & good) != 0 &&
	    m->m_pkthdr.lro_nsegs == 0 && (rxq->prq_flags &
	    (PV_NET_RXF_FORWARD4 | PV_NET_RXF_FORWARD6)) == 0 &&
	    pv_net_lro_has_data(m) && pv_net_same_lladdr(eh->ether_dhost,
	    if_getlladdr(rxq->prq_pn->pn_ifp)));
}

/*
 * When there is an interface.  Without memory for it, packets are not merged.
 */
void
pv_net_lro_init(struct pv_net_rxq *rxq)
{
	struct pv_net *pn = rxq->prq_pn;

	rxq->prq_lro_ready = pn->pn_params.pnp_soft_lro &&
	    tcp_lro_init_args(&rxq->prq_lro, pn->pn_ifp, TCP_LRO_ENTRIES,
	    0) == 0;
}

void
pv_net_lro_free(struct pv_net_rxq *rxq)
{
	if (rxq->prq_lro_ready)
		tcp_lro_free(&rxq->prq_lro);
	rxq->prq_lro_ready = false;
}

/* Hand up what is held. */
void
pv_net_lro_flush(struct pv_net_rxq *rxq)
{
	if (rxq->prq_held == 0)
		return;
	rxq->prq_held = 0;
	CURVNET_SET(if_getvnet(rxq->prq_pn->pn_ifp));
	tcp_lro_flush_all(&rxq->prq_lro);
	CURVNET_RESTORE();
}

/* Give a packet to tcp_lro(9): false if it is not merged. */
static bool
pv_net_lro_merge(struct pv_net_rxq *rxq, struct mbuf *m)
{
	u_int flags = m->m_pkthdr.csum_flags, data = m->m_pkthdr.csum_data;
	uint64_t group;

	if (!pv_net_lro_mergeable(rxq, m))
		return (false);
	group = pv_net_lro_group(m);
	/*
	 * Partial is as good as verified for our own TCP, and the only mark
	 * known there.
	 */
	m->m_pkthdr.csum_flags = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	m->m_pkthdr.csum_data = 0xffff;
	if (tcp_lro_rx(&rxq->prq_lro, m, 0) == 0) {
		rxq->prq_held |= group;
		return (true);
	}
	m->m_pkthdr.csum_flags = flags;
	m->m_pkthdr.csum_data = data;
	return (false);
}
#else
void
pv_net_lro_init(struct pv_net_rxq *rxq __unused)
{
}

void
pv_net_lro_free(struct pv_net_rxq *rxq __unused)
{
}

void
pv_net_lro_flush(struct pv_net_rxq *rxq __unused)
{
}

static bool
pv_net_lro_merge(struct pv_net_rxq *rxq __unused, struct mbuf *m __unused)
{
	return (false);
}
#endif

/* Hand packets up the stack, or to tcp_lro(9). */
void
pv_net_lro_input(struct pv_net_rxq *rxq, struct mbuf *list)
{
	struct pv_net *pn = rxq->prq_pn;
	struct mbuf *m;

	/* UDP is not merged. */
	if (!rxq->prq_lro_ready || (!rxq->prq_merges && rxq->prq_held == 0) ||
	    (if_getcapenable(pn->pn_ifp) & IFCAP_LRO) == 0) {
		/* It may just have been disabled. */
		pv_net_lro_flush(rxq);
		if_input(pn->pn_ifp, list);
		return;
	}
	while ((m = list) != NULL) {
		list = m->m_nextpkt;
		m->m_nextpkt = NULL;
		if (pv_net_lro_merge(rxq, m))
			continue;
		if (rxq->prq_held != 0 && pv_net_lro_may_be_tcp(m) &&
		    (rxq->prq_held & pv_net_lro_group(m)) != 0)
			pv_net_lro_flush(rxq);
		if_input(pn->pn_ifp, m);
	}
}
