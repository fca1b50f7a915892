/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Offload metadata of what is sent: the stack's marks become struct pv_net_offload, which every
 * protocol can express.  Here also: where the headers of a packet are, for both directions.
 *
 * The stack marks what is left to do (CSUM_IP_TCP ... and csum_data, the offset of the checksum in
 * the transport header; CSUM_IP_TSO ... and tso_segsz).  Where the transport header starts is read
 * from the packet itself, whose headers may lie in any number of mbufs.
 *
 * Asked for more than the other side does, pv_net does it itself: PV_NET_FINISH_CSUM for a
 * checksum, PV_NET_SPLIT for segmentation.  That is no fault of anybody: a flag may be changed while
 * packets are under way, and what is forwarded is as it was received.
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
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <machine/bus.h>
#include <machine/in_cksum.h>

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

#define	PV_NET_CSUM4	(CSUM_IP_TCP | CSUM_IP_UDP)
#define	PV_NET_CSUM6	(CSUM_IP6_TCP | CSUM_IP6_UDP)
#define	PV_NET_WORK	(PV_NET_CSUM4 | PV_NET_CSUM6 | CSUM_TSO)

/* More extension headers than this and the packet is taken for an attack (RFC 8504, 5.3). */
#define	PV_NET_MAX_EXTS	8

/* Tags of a frame that the stack sends: one of its own, one that vlan(4) over vlan(4) adds. */
#define	PV_NET_TX_TAGS	2

static enum pv_net_bad
pv_net_parse_ip4(const struct mbuf *m, struct pv_net_headers *h)
{
	struct ip ip;
	u_int hlen, len;

	if (!pv_net_peek(m, h->ph_l3, sizeof(ip), &ip))
		return (PV_NET_BAD_SHORT);
	hlen = ip.ip_hl << 2;
	len = ntohs(ip.ip_len);
	h->ph_end = h->ph_l3 + len;
	if (ip.ip_v != IPVERSION || hlen < sizeof(ip) || hlen > len ||
	    h->ph_end > m->m_pkthdr.len)
		return (PV_NET_BAD_HEADERS);
	h->ph_proto = ip.ip_p;
	/* A transport header in a fragment says nothing about what is behind it. */
	if ((ntohs(ip.ip_off) & (IP_OFFMASK | IP_MF)) == 0)
		h->ph_l4 = h->ph_l3 + hlen;
	return (PV_NET_FINE);
}

static enum pv_net_bad
pv_net_parse_ip6(const struct mbuf *m, struct pv_net_headers *h)
{
	struct ip6_hdr ip6;
	struct ip6_ext ext;
	u_int off = h->ph_l3 + sizeof(ip6);
	int i;

	if (!pv_net_peek(m, h->ph_l3, sizeof(ip6), &ip6))
		return (PV_NET_BAD_SHORT);
	h->ph_end = off + ntohs(ip6.ip6_plen);
	if ((ip6.ip6_vfc & IPV6_VERSION_MASK) != IPV6_VERSION || h->ph_end > m->m_pkthdr.len)
		return (PV_NET_BAD_HEADERS);
	h->ph_ip6 = true;
	h->ph_proto = ip6.ip6_nxt;
	for (i = 0; h->ph_proto == IPPROTO_HOPOPTS || h->ph_proto == IPPROTO_ROUTING ||
	    h->ph_proto == IPPROTO_DSTOPTS; i++) {
		if (i == PV_NET_MAX_EXTS)
			return (PV_NET_BAD_EXTS);
		if (!pv_net_peek(m, off, sizeof(ext), &ext))
			return (PV_NET_BAD_SHORT);
		h->ph_proto = ext.ip6e_nxt;
		off += (ext.ip6e_len + 1) << 3;
		if (off > h->ph_end)
			return (PV_NET_BAD_HEADERS);
	}
	if (h->ph_proto != IPPROTO_FRAGMENT)
		h->ph_l4 = off;
	return (PV_NET_FINE);
}

/* The headers of what most frames are: IPv4 without tags or options, not a fragment, in one piece. */
static bool
pv_net_parse_plain(const struct mbuf *m, struct pv_net_headers *h)
{
	struct {
		struct ether_header	eh;
		struct ip		ip;
	} __packed all;

	if (m->m_len < (int)sizeof(all))
		return (false);
	memcpy(&all, m->m_data, sizeof(all));
	h->ph_end = ETHER_HDR_LEN + ntohs(all.ip.ip_len);
	if (all.eh.ether_type != htons(ETHERTYPE_IP) || all.ip.ip_v != IPVERSION ||
	    all.ip.ip_hl != sizeof(all.ip) >> 2 || h->ph_end < sizeof(all) ||
	    h->ph_end > m->m_pkthdr.len || (all.ip.ip_off & htons(IP_OFFMASK | IP_MF)) != 0)
		return (false);
	h->ph_ip6 = false;
	h->ph_tags = 0;
	h->ph_proto = all.ip.ip_p;
	h->ph_l3 = ETHER_HDR_LEN;
	h->ph_l4 = sizeof(all);
	return (true);
}

/*
 * Find the headers of a frame, past up to `tags' VLAN tags.  Fine, with ph_l4 0, is also what has no
 * IP header, or a fragment.
 */
enum pv_net_bad
pv_net_parse(const struct mbuf *m, int tags, struct pv_net_headers *h)
{
	u_int off = offsetof(struct ether_header, ether_type);
	uint16_t type;

	if (__predict_true(pv_net_parse_plain(m, h)))
		return (PV_NET_FINE);
	memset(h, 0, sizeof(*h));
	for (;;) {
		if (!pv_net_peek(m, off, sizeof(type), &type))
			return (PV_NET_BAD_SHORT);
		off += sizeof(type);
		h->ph_l3 = off;
		switch (ntohs(type)) {
		case ETHERTYPE_IP:
			return (pv_net_parse_ip4(m, h));
		case ETHERTYPE_IPV6:
			return (pv_net_parse_ip6(m, h));
		case ETHERTYPE_VLAN:
		case ETHERTYPE_QINQ:
			if (h->ph_tags++ == tags)
				return (PV_NET_BAD_VLAN);
			off += sizeof(uint16_t);
			break;
		default:
			return (PV_NET_FINE);
		}
	}
}

/* Where in its header a transport protocol has its checksum; 0: we know of none. */
u_int
pv_net_sum_offset(uint8_t proto)
{
	switch (proto) {
	case IPPROTO_TCP:
		return (offsetof(struct tcphdr, th_sum));
	case IPPROTO_UDP:
		return (offsetof(struct udphdr, uh_sum));
	default:
		return (0);
	}
}

/* The length of a TCP or UDP header, which with what it claims to be ends before the packet does. */
enum pv_net_bad
pv_net_l4_len(const struct mbuf *m, const struct pv_net_headers *h, u_int *len)
{
	struct tcphdr th;
	struct udphdr uh;

	if (h->ph_proto == IPPROTO_TCP) {
		if (!pv_net_peek(m, h->ph_l4, sizeof(th), &th))
			return (PV_NET_BAD_SHORT);
		*len = th.th_off << 2;
		return (*len < sizeof(th) || h->ph_l4 + *len > h->ph_end ? PV_NET_BAD_HEADERS :
		    PV_NET_FINE);
	}
	if (!pv_net_peek(m, h->ph_l4, sizeof(uh), &uh))
		return (PV_NET_BAD_SHORT);
	*len = sizeof(uh);
	return (ntohs(uh.uh_ulen) < sizeof(uh) || h->ph_l4 + ntohs(uh.uh_ulen) > h->ph_end ?
	    PV_NET_BAD_HEADERS : PV_NET_FINE);
}

/* The Internet checksum (RFC 1071) of everything from `start'. */
#if defined(INET) || defined(INET6)
static uint16_t
pv_net_cksum(struct mbuf *m, u_int start)
{
	return (in_cksum_skip(m, m->m_pkthdr.len, start));
}
#else
/* A kernel without IP has no in_cksum(9), but may bridge packets whose checksum is partial. */
static uint16_t
pv_net_cksum(struct mbuf *m, u_int start)
{
	uint64_t sum = 0;
	uint8_t byte;
	u_int at;

	for (at = start; at < (u_int)m->m_pkthdr.len; at++) {
		m_copydata(m, at, 1, &byte);
		sum += (at - start) % 2 == 0 ? byte << 8 : byte;
	}
	while (sum > 0xffff)
		sum = (sum >> 16) + (sum & 0xffff);
	return (htons(~sum & 0xffff));
}
#endif

/*
 * The checksum of everything from `start', for a field `offset' bytes behind it.  In UDP, zero means
 * that there is none, so that ones are sent (RFC 768); elsewhere ones would be a sum that no sender
 * makes (RFC 1624, section 3), and captures would show it as an error.
 */
uint16_t
pv_net_finished_sum(struct mbuf *m, u_int start, u_int offset)
{
	uint16_t sum = pv_net_cksum(m, start);

	return (sum == 0 && offset == offsetof(struct udphdr, uh_sum) ? 0xffff : sum);
}

/* Store that checksum, in memory that is nobody else's. */
void
pv_net_store_sum(struct mbuf *m, u_int start, u_int offset)
{
	uint16_t sum = pv_net_finished_sum(m, start, offset);
	u_int at = start + offset;

	if (__predict_true(at + sizeof(sum) <= (u_int)m->m_len))
		memcpy(m->m_data + at, &sum, sizeof(sum));
	else
		m_copyback(m, at, sizeof(sum), (c_caddr_t)&sum);
}

/*
 * The sum that a partial checksum's field would have, of a packet whose checksum is right: what all
 * from `start' lacks to sum up to nothing (RFC 1071).
 */
uint16_t
pv_net_pseudo_sum(struct mbuf *m, u_int start)
{
	return (pv_net_cksum(m, start));
}

/* Is this for such a packet what was agreed on? */
bool
pv_net_agreed(const struct pv_net *pn, const struct pv_net_headers *h, u_int what)
{
	u_int can = pn->pn_params.pnp_offloads;

	return ((can & what) == what && !(h->ph_tags > 0 && (can & PV_NET_UNTAGGED) != 0));
}

/* See that the first `len' bytes of a packet are nobody else's.  NULL: no memory, and it is freed. */
static struct mbuf *
pv_net_tx_writable(struct mbuf *m, u_int len)
{
	struct mbuf *n;
	u_int seen = 0;

	for (n = m; n != NULL && seen < len; n = n->m_next) {
		if (!M_WRITABLE(n))
			return (m_unshare(m, M_NOWAIT));
		seen += n->m_len;
	}
	return (m);
}

static enum pv_net_bad
pv_net_tx_tso(const struct pv_net *pn, const struct mbuf *m, const struct pv_net_headers *h,
    u_int hdrlen, struct pv_net_offload *out)
{
	u_int need = h->ph_ip6 ? PV_NET_TXCSUM6 | PV_NET_TSO6 : PV_NET_TXCSUM | PV_NET_TSO4;
	uint8_t flags;

	if (h->ph_proto != IPPROTO_TCP)
		return (PV_NET_BAD_GSO_TYPE);
	if (m->m_pkthdr.tso_segsz == 0 ||
	    hdrlen - h->ph_l3 + m->m_pkthdr.tso_segsz > IP_MAXPACKET)
		return (PV_NET_BAD_GSO_SIZE);
	/* One segment: there is nothing to segment. */
	if (m->m_pkthdr.len - hdrlen <= m->m_pkthdr.tso_segsz)
		return (PV_NET_FINE);
	if (!pv_net_peek(m, h->ph_l4 + offsetof(struct tcphdr, th_flags), sizeof(flags), &flags))
		return (PV_NET_BAD_SHORT);
	if ((flags & TH_CWR) != 0) {
		need |= PV_NET_TSO_ECN;
		out->po_flags |= PV_NET_GSO_ECN;
	}
	/* What was received while somebody listened has a finished sum: see pv_net_offload_rx.c. */
	if ((m->m_pkthdr.csum_flags & (PV_NET_CSUM4 | PV_NET_CSUM6)) == 0)
		out->po_flags |= PV_NET_UNFINISH;
	if (!pv_net_agreed(pn, h, need)) {
		out->po_flags |= PV_NET_SPLIT;
		return (PV_NET_FINE);
	}
	out->po_hdr_len = hdrlen;
	out->po_gso_size = m->m_pkthdr.tso_segsz;
	out->po_gso_type = h->ph_ip6 ? PV_NET_GSO_TCP6 : PV_NET_GSO_TCP4;
	return (PV_NET_FINE);
}

/* The same as pv_net_tx_offload(), for what most packets are.  False: it is something else. */
static inline bool
pv_net_tx_plain(const struct pv_net *pn, const struct mbuf *m, struct pv_net_offload *out)
{
	u_int marks, offset;

	if ((pn->pn_params.pnp_offloads & PV_NET_TXCSUM) == 0)
		return (false);
	offset = pv_net_plain_sum(m);
	marks = offset == offsetof(struct udphdr, uh_sum) ? CSUM_IP_UDP : CSUM_IP_TCP;
	if (offset == 0 || m->m_pkthdr.csum_data != offset ||
	    (m->m_pkthdr.csum_flags & PV_NET_WORK) != marks)
		return (false);
	out->po_flags = PV_NET_NEEDS_CSUM;
	out->po_csum_start = PV_NET_PLAIN_L4;
	out->po_csum_offset = offset;
	return (true);
}

/* The same for any packet. */
static __noinline enum pv_net_bad
pv_net_tx_any(const struct pv_net *pn, const struct mbuf *m, struct pv_net_offload *out)
{
	bool tso = (m->m_pkthdr.csum_flags & CSUM_TSO) != 0;
	struct pv_net_headers h;
	enum pv_net_bad bad;
	u_int len;

	bad = pv_net_parse(m, PV_NET_TX_TAGS, &h);
	if (bad != PV_NET_FINE)
		return (bad);
	if (h.ph_l4 == 0 || pv_net_sum_offset(h.ph_proto) == 0 ||
	    (!tso && m->m_pkthdr.csum_data != pv_net_sum_offset(h.ph_proto)))
		return (PV_NET_BAD_CSUM);
	bad = pv_net_l4_len(m, &h, &len);
	if (bad != PV_NET_FINE)
		return (bad);
	out->po_flags = pv_net_agreed(pn, &h, h.ph_ip6 ? PV_NET_TXCSUM6 : PV_NET_TXCSUM) ?
	    PV_NET_NEEDS_CSUM : PV_NET_FINISH_CSUM;
	out->po_csum_start = h.ph_l4;
	out->po_csum_offset = pv_net_sum_offset(h.ph_proto);
	return (tso ? pv_net_tx_tso(pn, m, &h, h.ph_l4 + len, out) : PV_NET_FINE);
}

/*
 * What is to be done about a packet that is sent.  Not fine if its marks and its contents don't
 * agree: the packet is to be dropped.
 */
enum pv_net_bad
pv_net_tx_offload(const struct pv_net *pn, const struct mbuf *m, struct pv_net_offload *out)
{
	memset(out, 0, sizeof(*out));
	if ((m->m_pkthdr.csum_flags & PV_NET_WORK) == 0 || pv_net_tx_plain(pn, m, out))
		return (PV_NET_FINE);
	return (pv_net_tx_any(pn, m, out));
}

/*
 * Do with a packet what pv_net_tx_offload() said that pv_net does itself.  Returns the packet, with
 * marks that say what is left; a list of packets that it was split into; or NULL if there is no
 * memory, and it is freed.
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
		m->m_pkthdr.csum_flags |= (m->m_pkthdr.csum_flags & CSUM_IP6_TSO) != 0 ?
		    CSUM_IP6_TCP : CSUM_IP_TCP;
	}
	if ((o->po_flags & PV_NET_SPLIT) != 0) {
		if (pv_net_parse(m, PV_NET_TX_TAGS, &h) == PV_NET_FINE &&
		    pv_net_l4_len(m, &h, &len) == PV_NET_FINE)
			return (pv_net_gso_split(m, &h, h.ph_l4 + len, m->m_pkthdr.tso_segsz));
		m_freem(m);
		return (NULL);
	}
	if ((o->po_flags & PV_NET_FINISH_CSUM) != 0) {
		pv_net_store_sum(m, o->po_csum_start, o->po_csum_offset);
		m->m_pkthdr.csum_flags &= ~PV_NET_WORK;
	}
	o->po_flags &= ~(PV_NET_UNFINISH | PV_NET_FINISH_CSUM);
	return (m);
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
