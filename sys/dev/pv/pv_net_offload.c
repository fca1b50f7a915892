/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Offload metadata: one function for each direction, between the marks of an mbuf's packet
 * header and struct pv_net_offload, which every protocol can express.
 *
 * Sending.  The stack marks what is left to do (CSUM_IP_TCP ... and csum_data, the offset of
 * the checksum in the transport header; CSUM_IP_TSO ... and tso_segsz).  Where the transport
 * header starts is read from the packet itself.
 *
 * Receiving.  Two things that are not the same:
 *   DATA_VALID   somebody verified the checksum that is in the packet.
 *   NEEDS_CSUM   the packet never was on a wire: the field holds the pseudo header's sum
 *                only.  It is marked as the sender's stack would have marked it, so that the
 *                local protocols take it and another interface sends it on with the sum
 *                finished by hardware or by software (FreeBSD 15's meaning of these flags on
 *                input).  FreeBSD 14 knows no such mark: there it counts as verified.
 *
 * Trust.  What the other side says about a received packet is checked against the packet's
 * length before any of it is used.
 */

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
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <machine/bus.h>
#include <machine/in_cksum.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

#define	PV_NET_CSUM4	(CSUM_IP_TCP | CSUM_IP_UDP)
#define	PV_NET_CSUM6	(CSUM_IP6_TCP | CSUM_IP6_UDP)
#define	PV_NET_WORK	(PV_NET_CSUM4 | PV_NET_CSUM6 | CSUM_TSO)

/*
 * Offsets of the checksum in the transport header, by which a receiver tells the protocols
 * apart.
 */
#define	PV_NET_TCP_SUM	16
#define	PV_NET_UDP_SUM	6

/* More extension headers than this and the packet is taken for an attack (RFC 8504, 5.3). */
#define	PV_NET_MAX_EXTS	8

/* Where the headers of a packet are. */
struct pv_net_headers {
	bool	ph_ip6;
	bool	ph_tagged;	/* with a VLAN tag */
	uint8_t	ph_proto;	/* of the transport header */
	u_int	ph_l4;		/* its offset */
};

/* Copy part of a packet's headers out: false if the packet ends before. */
static bool
pv_net_peek(const struct mbuf *m, u_int off, u_int len, void *to)
{
	if (off + len > m->m_pkthdr.len)
		return (false);
	if (off + len <= m->m_len)
		memcpy(to, m->m_data + off, len);
	else
		m_copydata(m, off, len, to);
	return (true);
}

static bool
pv_net_parse_ip4(const struct mbuf *m, u_int off, struct pv_net_headers *h)
{
	struct ip ip;

	if (!pv_net_peek(m, off, sizeof(ip), &ip) || ip.ip_v != IPVERSION ||
	    ip.ip_hl < sizeof(ip) >> 2)
		return (false);
	/* A fragment behind the first has no transport header. */
	if ((ntohs(ip.ip_off) & IP_OFFMASK) != 0)
		return (false);
	h->ph_ip6 = false;
	h->ph_proto = ip.ip_p;
	h->ph_l4 = off + (ip.ip_hl << 2);
	return (h->ph_l4 < m->m_pkthdr.len);
}

static bool
pv_net_parse_ip6(const struct mbuf *m, u_int off, struct pv_net_headers *h)
{
	struct ip6_hdr ip6;
	struct ip6_ext ext;
	int i;

	if (!pv_net_peek(m, off, sizeof(ip6), &ip6) ||
	    (ip6.ip6_vfc & IPV6_VERSION_MASK) != IPV6_VERSION)
		return (false);
	h->ph_ip6 = true;
	h->ph_proto = ip6.ip6_nxt;
	off += sizeof(ip6);
	for (i = 0; i < PV_NET_MAX_EXTS; i++) {
		switch (h->ph_proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
			if (!pv_net_peek(m, off, sizeof(ext), &ext))
				return (false);
			h->ph_proto = ext.ip6e_nxt;
			off += (ext.ip6e_len + 1) << 3;
			break;
		default:
			h->ph_l4 = off;
			return (off < m->m_pkthdr.len);
		}
	}
	return (false);
}

/* Find the transport header, past up to two VLAN tags. */
static bool
pv_net_parse(const struct mbuf *m, struct pv_net_headers *h)
{
	uint16_t type;
	u_int off = offsetof(struct ether_header, ether_type);
	int tags;

	for (tags = 0; pv_net_peek(m, off, sizeof(type), &type); tags++) {
		off += sizeof(type);
		h->ph_tagged = tags > 0;
		switch (ntohs(type)) {
		case ETHERTYPE_IP:
			return (pv_net_parse_ip4(m, off, h));
		case ETHERTYPE_IPV6:
			return (pv_net_parse_ip6(m, off, h));
		case ETHERTYPE_VLAN:
		case ETHERTYPE_QINQ:
			if (tags == 2)
				return (false);
			off += sizeof(uint16_t);
			break;
		default:
			return (false);
		}
	}
	return (false);
}

/* Is the other side to do this for such a packet? */
static bool
pv_net_agreed(const struct pv_net *pn, const struct pv_net_headers *h, u_int what)
{
	u_int can = pn->pn_params.pnp_offloads;

	return ((can & what) != 0 && !(h->ph_tagged && (can & PV_NET_UNTAGGED) != 0));
}

static int
pv_net_tx_tso(const struct pv_net *pn, const struct mbuf *m, const struct pv_net_headers *h,
    struct pv_net_offload *out)
{
	u_int can = h->ph_ip6 ? PV_NET_TSO6 : PV_NET_TSO4;
	struct tcphdr th;

	if (h->ph_proto != IPPROTO_TCP || !pv_net_agreed(pn, h, can) ||
	    !pv_net_peek(m, h->ph_l4, sizeof(th), &th) || th.th_off < sizeof(th) >> 2)
		return (EINVAL);
	out->po_hdr_len = h->ph_l4 + (th.th_off << 2);
	out->po_gso_size = m->m_pkthdr.tso_segsz;
	out->po_gso_type = h->ph_ip6 ? PV_NET_GSO_TCP6 : PV_NET_GSO_TCP4;
	if (out->po_gso_size == 0 || out->po_hdr_len >= m->m_pkthdr.len)
		return (EINVAL);
	if ((th.th_flags & TH_CWR) != 0) {
		if ((pn->pn_params.pnp_offloads & PV_NET_TSO_ECN) == 0)
			return (EINVAL);
		out->po_flags |= PV_NET_GSO_ECN;
	}
	return (0);
}

/*
 * What is to be done about a packet that is sent.  EINVAL if its marks and its contents don't
 * agree, or ask for what the other side can't do.
 */
int
pv_net_tx_offload(const struct pv_net *pn, const struct mbuf *m, struct pv_net_offload *out)
{
	struct pv_net_headers h;

	memset(out, 0, sizeof(*out));
	if (__predict_true((m->m_pkthdr.csum_flags & PV_NET_WORK) == 0))
		return (0);
	if (!pv_net_parse(m, &h))
		return (EINVAL);
	if (pv_net_agreed(pn, &h, h.ph_ip6 ? PV_NET_TXCSUM6 : PV_NET_TXCSUM))
		out->po_flags = PV_NET_NEEDS_CSUM;
	else if (pn->pn_params.pnp_staged && (m->m_pkthdr.csum_flags & CSUM_TSO) == 0)
		out->po_flags = PV_NET_FINISH_CSUM;
	else
		return (EINVAL);
	out->po_csum_start = h.ph_l4;
	out->po_csum_offset = (m->m_pkthdr.csum_flags & CSUM_TSO) != 0 ? PV_NET_TCP_SUM :
	    m->m_pkthdr.csum_data;
	if (h.ph_l4 + out->po_csum_offset + sizeof(uint16_t) > m->m_pkthdr.len)
		return (EINVAL);
	if ((m->m_pkthdr.csum_flags & CSUM_TSO) != 0)
		return (pv_net_tx_tso(pn, m, &h, out));
	return (0);
}

/* The marks of a received packet whose transport checksum is good as far as we are told. */
static void
pv_net_mark_valid(struct mbuf *m)
{
	m->m_pkthdr.csum_flags |= CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	m->m_pkthdr.csum_data = 0xffff;
}

static void
pv_net_mark_partial(struct mbuf *m, bool ip6, u_int csum_offset)
{
#if __FreeBSD_version >= 1500000
	if (csum_offset == PV_NET_TCP_SUM)
		m->m_pkthdr.csum_flags |= ip6 ? CSUM_IP6_TCP : CSUM_IP_TCP;
	else
		m->m_pkthdr.csum_flags |= ip6 ? CSUM_IP6_UDP : CSUM_IP_UDP;
	m->m_pkthdr.csum_data = csum_offset;
#else
	pv_net_mark_valid(m);
#endif
}

/* Finish a partial checksum of a protocol that has no marks. */
static void
pv_net_finish_csum(struct mbuf *m, const struct pv_net_offload *in)
{
	uint16_t sum;

	sum = in_cksum_skip(m, m->m_pkthdr.len, in->po_csum_start);
	m_copyback(m, in->po_csum_start + in->po_csum_offset, sizeof(sum), (c_caddr_t)&sum);
}

/*
 * A partial checksum, that of the TCP or UDP header to be found behind Ethernet's and IP's.  What
 * has none can't be partial.
 */
static int
pv_net_rx_find(struct mbuf *m, const struct pv_net_headers *h)
{
	u_int offset;

	if (h->ph_proto == IPPROTO_TCP)
		offset = PV_NET_TCP_SUM;
	else if (h->ph_proto == IPPROTO_UDP)
		offset = PV_NET_UDP_SUM;
	else
		return (EINVAL);
	if (h->ph_l4 + offset + sizeof(uint16_t) > m->m_pkthdr.len)
		return (EINVAL);
	pv_net_mark_partial(m, h->ph_ip6, offset);
	return (0);
}

static int
pv_net_rx_partial(struct mbuf *m, const struct pv_net_offload *in)
{
	struct pv_net_headers h;

	if ((in->po_flags & PV_NET_FIND_CSUM) != 0)
		return (pv_net_parse(m, &h) ? pv_net_rx_find(m, &h) : EINVAL);

	/*
	 * 32-bit sums of 16-bit values: no overflow.  The field lies behind an Ethernet and
	 * an IP header.
	 */
	if (in->po_csum_start < ETHER_HDR_LEN + sizeof(struct ip) ||
	    (u_int)in->po_csum_start + in->po_csum_offset + sizeof(uint16_t) > m->m_pkthdr.len)
		return (EINVAL);
	if (pv_net_parse(m, &h) && h.ph_l4 == in->po_csum_start &&
	    ((h.ph_proto == IPPROTO_TCP && in->po_csum_offset == PV_NET_TCP_SUM) ||
	    (h.ph_proto == IPPROTO_UDP && in->po_csum_offset == PV_NET_UDP_SUM)))
		pv_net_mark_partial(m, h.ph_ip6, in->po_csum_offset);
	else
		pv_net_finish_csum(m, in);
	return (0);
}

/*
 * Several segments of TCP in one, as their sender left them: marked as such a packet is marked
 * when it is sent, so that it leaves by another interface as it came.
 */
static int
pv_net_rx_lro(const struct pv_net *pn, struct mbuf *m, const struct pv_net_offload *in)
{
	bool ip6 = in->po_gso_type == PV_NET_GSO_TCP6;
	struct pv_net_headers h;
	struct tcphdr th;

	if (in->po_gso_type != PV_NET_GSO_TCP4 && !ip6)
		return (EINVAL);
	if (in->po_gso_size == 0 || !pv_net_parse(m, &h) || h.ph_proto != IPPROTO_TCP ||
	    h.ph_ip6 != ip6 || !pv_net_agreed(pn, &h, ip6 ? PV_NET_LRO6 : PV_NET_LRO4) ||
	    !pv_net_peek(m, h.ph_l4, sizeof(th), &th) || th.th_off < sizeof(th) >> 2 ||
	    h.ph_l4 + (th.th_off << 2) >= m->m_pkthdr.len)
		return (EINVAL);
	m->m_pkthdr.tso_segsz = in->po_gso_size;
#if __FreeBSD_version >= 1500000
	if ((in->po_flags & PV_NET_NEEDS_CSUM) != 0)
		m->m_pkthdr.csum_flags |= ip6 ? CSUM_IP6_TSO : CSUM_IP_TSO;
#endif
	return (0);
}

/*
 * Mark a received packet with what the other side says about it.  EINVAL if that can't be
 * true: the packet is to be dropped.
 */
int
pv_net_rx_offload(const struct pv_net *pn, struct mbuf *m, const struct pv_net_offload *in)
{
	bool agreed = (pn->pn_params.pnp_offloads & PV_NET_RXCSUM) != 0;

	if (__predict_true(in->po_flags == 0 && in->po_gso_type == PV_NET_GSO_NONE))
		return (0);
	if (in->po_gso_type != PV_NET_GSO_NONE && (!agreed || pv_net_rx_lro(pn, m, in) != 0))
		return (EINVAL);
	if ((in->po_flags & PV_NET_NEEDS_CSUM) != 0)
		return (agreed ? pv_net_rx_partial(m, in) : EINVAL);
	if (agreed && (in->po_flags & PV_NET_DATA_VALID) != 0 &&
	    (if_getcapenable(pn->pn_ifp) & (IFCAP_RXCSUM | IFCAP_RXCSUM_IPV6)) != 0)
		pv_net_mark_valid(m);
	return (0);
}

/* What the stack may ask for with these capabilities enabled. */
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
