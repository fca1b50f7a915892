/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: what is in a packet: its headers, its checksums, and its TCP
 * segments.
 *
 * Functions of an mbuf and nothing else, for both directions; what a packet's
 * marks mean is pv_net_offload.c's.  Headers may span any number of mbufs, and
 * nothing in them is used before it was checked against the packet's length.
 *
 * Segmentation (pv_net_gso_split).  Each segment gets a copy of the headers in
 * an mbuf of its own, and shares the payload.  Headers differ in lengths, IPv4
 * identification, TCP sequence number and flags; their checksums are changed by
 * the difference (RFC 1624), so that a wrong one stays wrong, and partial ones
 * stay partial.
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

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

MALLOC_DEFINE(M_PVNET, "pv_net", "paravirtual network cards");

#define	PV_NET_MIN_TYPE		0x600	/* IEEE 802.3, 3.2.6:
					 * less is a length */
#define	PV_NET_TYPE_9100	0x9100	/* a tag in front of others,
					 * before IEEE 802.1ad */
#define	PV_NET_MPLS_LEN		4
#define	PV_NET_MPLS_BOTTOM	0x01	/* in a label's third byte */
#define	PV_NET_PPP_IP		0x0021	/* RFC 1332 */
#define	PV_NET_PPP_IPV6		0x0057	/* RFC 5072 */

/* RFC 2516, 4: in front of a packet of PPP. */
struct pv_net_pppoe {
	uint8_t		vertype, code;
	uint16_t	session, length;
} __packed;
#define	PV_NET_PPPOE_LEN	sizeof(struct pv_net_pppoe)

/*
 * Room before the headers of a segment: for a protocol's own, and to align IP's
 * as it was.
 */
#define	PV_NET_GSO_LEAD	(32 + ETHER_ALIGN)

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
	/*
	 * A transport header in a fragment does not describe what is behind it.
	 */
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

	if (!pv_net_peek(m, h->ph_l3, sizeof(ip6), &ip6))
		return (PV_NET_BAD_SHORT);
	h->ph_end = off + ntohs(ip6.ip6_plen);
	if ((ip6.ip6_vfc & IPV6_VERSION_MASK) != IPV6_VERSION ||
	    h->ph_end > m->m_pkthdr.len)
		return (PV_NET_BAD_HEADERS);
	h->ph_ip6 = true;
	h->ph_proto = ip6.ip6_nxt;
	/*
	 * Each has eight bytes at least, so that the packet's length ends this.
	 */
	while (h->ph_proto == IPPROTO_HOPOPTS ||
	    h->ph_proto == IPPROTO_ROUTING || h->ph_proto == IPPROTO_DSTOPTS) {
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

/*
 * IP's header by its version, for what is behind a header that does not name
 * it.
 */
static enum pv_net_bad
pv_net_parse_ip(const struct mbuf *m, struct pv_net_headers *h)
{
	uint8_t vhl;

	if (!pv_net_peek(m, h->ph_l3, sizeof(vhl), &vhl))
		return (PV_NET_BAD_SHORT);
	switch (vhl >> 4) {
	case IPVERSION:
		return (pv_net_parse_ip4(m, h));
	case IPV6_VERSION >> 4:
		return (pv_net_parse_ip6(m, h));
	default:
		return (PV_NET_FINE);
	}
}

/* Labels of MPLS, down to the bottom of the stack (RFC 3032, 2.1). */
static enum pv_net_bad
pv_net_parse_mpls(const struct mbuf *m, struct pv_net_headers *h)
{
	uint8_t label[PV_NET_MPLS_LEN];

	h->ph_opaque = true;
	do {
		if (!pv_net_peek(m, h->ph_l3, sizeof(label), label))
			return (PV_NET_BAD_SHORT);
		h->ph_l3 += sizeof(label);
	} while ((label[2] & PV_NET_MPLS_BOTTOM) == 0);
	return (pv_net_parse_ip(m, h));
}

/*
 * A session of PPPoE (RFC 2516, 4): its length counts the two bytes of PPP's
 * protocol, too.
 */
static enum pv_net_bad
pv_net_parse_pppoe(const struct mbuf *m, struct pv_net_headers *h)
{
	uint8_t hdr[PV_NET_PPPOE_LEN + sizeof(uint16_t)];
	u_int len, proto;

	h->ph_opaque = true;
	if (!pv_net_peek(m, h->ph_l3, sizeof(hdr), hdr))
		return (PV_NET_BAD_SHORT);
	len = hdr[4] << 8 | hdr[5];
	proto = hdr[6] << 8 | hdr[7];
	h->ph_length = h->ph_l3 + offsetof(struct pv_net_pppoe, length);
	h->ph_end = h->ph_l3 + PV_NET_PPPOE_LEN + len;
	if (len < sizeof(uint16_t) || h->ph_end > (u_int)m->m_pkthdr.len)
		return (PV_NET_BAD_HEADERS);
	h->ph_l3 += sizeof(hdr);
	if (proto != PV_NET_PPP_IP && proto != PV_NET_PPP_IPV6)
		return (PV_NET_FINE);
	return (pv_net_parse_ip(m, h));
}

/* IEEE 802.3: the field is the length of what follows. */
static enum pv_net_bad
pv_net_parse_llc(const struct mbuf *m, struct pv_net_headers *h, u_int len)
{
	/* RFC 1042. */
	static const uint8_t snap[] = { 0xaa, 0xaa, 0x03, 0, 0, 0 };
	uint8_t hdr[sizeof(snap) + sizeof(uint16_t)];

	h->ph_opaque = true;
	h->ph_length = h->ph_l3 - sizeof(uint16_t);
	h->ph_end = h->ph_l3 + len;
	if (h->ph_end > (u_int)m->m_pkthdr.len)
		return (PV_NET_BAD_HEADERS);
	if (!pv_net_peek(m, h->ph_l3, sizeof(hdr), hdr) ||
	    memcmp(hdr, snap, sizeof(snap)) != 0)
		return (PV_NET_FINE);
	h->ph_l3 += sizeof(hdr);
	return (pv_net_parse_ip(m, h));
}

/* The headers behind an Ethernet type, which is in front of ph_l3. */
static enum pv_net_bad
pv_net_parse_type(const struct mbuf *m, struct pv_net_headers *h, u_int type)
{
	switch (type) {
	case ETHERTYPE_IP:
		return (pv_net_parse_ip4(m, h));
	case ETHERTYPE_IPV6:
		return (pv_net_parse_ip6(m, h));
	case ETHERTYPE_MPLS:
	case ETHERTYPE_MPLS_MCAST:
		return (pv_net_parse_mpls(m, h));
	case ETHERTYPE_PPPOE:
		return (pv_net_parse_pppoe(m, h));
	default:
		return (type < PV_NET_MIN_TYPE ? pv_net_parse_llc(m, h, type) :
		    PV_NET_FINE);
	}
}

static bool
pv_net_is_tag(u_int type)
{
	return (type == ETHERTYPE_VLAN || type == ETHERTYPE_QINQ ||
	    type == PV_NET_TYPE_9100);
}

/*
 * Find the headers of a frame, past any number of tags, and of what else may
 * stand in front of IP.  What has no IP header, and a fragment, is fine too,
 * with ph_l4 0.
 */
enum pv_net_bad
pv_net_parse(const struct mbuf *m, struct pv_net_headers *h)
{
	u_int off = offsetof(struct ether_header, ether_type);
	enum pv_net_bad bad;
	uint16_t type;

	memset(h, 0, sizeof(*h));
	h->ph_end = m->m_pkthdr.len;
	for (;;) {
		if (!pv_net_peek(m, off, sizeof(type), &type))
			return (PV_NET_BAD_SHORT);
		off += sizeof(type);
		if (!pv_net_is_tag(ntohs(type)))
			break;
		h->ph_tags++;
		/* Others look for headers behind a VLAN's tag only. */
		h->ph_opaque |= type != htons(ETHERTYPE_VLAN);
		off += sizeof(uint16_t);
	}
	h->ph_l3 = off;
	bad = pv_net_parse_type(m, h, ntohs(type));
	/* What makes no sense does not say where the packet ends either. */
	if (bad != PV_NET_FINE)
		h->ph_end = m->m_pkthdr.len;
	return (bad);
}

/*
 * The length of a TCP or UDP header, which with what it claims to be ends
 * before the packet does.
 */
enum pv_net_bad
pv_net_l4_len(const struct mbuf *m, const struct pv_net_headers *h, u_int *len)
{
	struct tcphdr th;
	struct udphdr uh;

	if (h->ph_proto == IPPROTO_TCP) {
		if (!pv_net_peek(m, h->ph_l4, sizeof(th), &th))
			return (PV_NET_BAD_SHORT);
		*len = th.th_off << 2;
		return (*len < sizeof(th) || h->ph_l4 + *len > h->ph_end ?
		    PV_NET_BAD_HEADERS : PV_NET_FINE);
	}
	if (!pv_net_peek(m, h->ph_l4, sizeof(uh), &uh))
		return (PV_NET_BAD_SHORT);
	*len = sizeof(uh);
	return (ntohs(uh.uh_ulen) < sizeof(uh) || h->ph_l4 +
	    ntohs(uh.uh_ulen) > h->ph_end ? PV_NET_BAD_HEADERS : PV_NET_FINE);
}

#if defined(INET) || defined(INET6)
static uint16_t
pv_net_cksum_chain(struct mbuf *m, u_int start, u_int end)
{
	return (in_cksum_skip(m, end, start));
}
#else
/*
 * A kernel without IP has no in_cksum(9), but may bridge packets whose checksum
 * is partial.
 */
static uint16_t
pv_net_cksum_chain(struct mbuf *m, u_int start, u_int end)
{
	uint64_t sum = 0;
	uint8_t byte;
	u_int at;

	for (at = start; at < end; at++) {
		m_copydata(m, at, 1, &byte);
		sum += (at - start) % 2 == 0 ? byte << 8 : byte;
	}
	while (sum > 0xffff)
		sum = (sum >> 16) + (sum & 0xffff);
	return (htons(~sum & 0xffff));
}
#endif

/* Add 64 bits to a ones' complement sum. */
static inline uint64_t
pv_net_add64(uint64_t sum, const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	sum += word;
	return (sum + (sum < word));
}

/*
 * The Internet checksum of one piece of memory.  The order of bytes does not
 * matter, so that words of any length will do (RFC 1071, 2): for a short packet
 * in_cksum(9) takes three times as long.
 */
static uint16_t
pv_net_cksum_piece(const uint8_t *at, u_int len)
{
	uint8_t last[sizeof(uint64_t)] = { 0 };
	uint64_t sum = 0;

	for (; len >= 4 * sizeof(sum);
	    at += 4 * sizeof(sum), len -= 4 * sizeof(sum)) {
		sum = pv_net_add64(sum, at);
		sum = pv_net_add64(sum, at + sizeof(sum));
		sum = pv_net_add64(sum, at + 2 * sizeof(sum));
		sum = pv_net_add64(sum, at + 3 * sizeof(sum));
	}
	for (; len >= sizeof(sum); at += sizeof(sum), len -= sizeof(sum))
		sum = pv_net_add64(sum, at);
	if (len > 0) {
		memcpy(last, at, len);
		sum = pv_net_add64(sum, last);
	}
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (~sum & 0xffff);
}

/*
 * The Internet checksum (RFC 1071) from `start' to `end', which is not the
 * frame's if it was padded to Ethernet's minimum.
 */
static uint16_t
pv_net_cksum(struct mbuf *m, u_int start, u_int end)
{
	if (m->m_len >= (int)end && (m->m_flags & M_EXTPG) == 0)
		return (pv_net_cksum_piece(mtod(m, const uint8_t *) + start,
		    end - start));
	return (pv_net_cksum_chain(m, start, end));
}

/*
 * The checksum from `start' to `end', for a field `offset' bytes behind it.  In
 * UDP, zero means that there is none, so that ones are sent (RFC 768);
 * elsewhere ones would be a sum that no sender makes (RFC 1624, section 3), and
 * captures would show it as an error.
 */
uint16_t
pv_net_finished_sum(struct mbuf *m, u_int start, u_int offset, u_int end)
{
	uint16_t sum = pv_net_cksum(m, start, end);

	return (sum == 0 && offset == offsetof(struct udphdr, uh_sum) ? 0xffff :
	    sum);
}

/* Store that checksum, in memory that is not shared. */
void
pv_net_store_sum(struct mbuf *m, u_int start, u_int offset, u_int end)
{
	uint16_t sum = pv_net_finished_sum(m, start, offset, end);
	u_int at = start + offset;

	if (__predict_true(at + sizeof(sum) <= (u_int)m->m_len))
		memcpy(m->m_data + at, &sum, sizeof(sum));
	else
		m_copyback(m, at, sizeof(sum), (c_caddr_t)&sum);
}

/*
 * Where a packet that begins so ends, behind `start' and the field: where its
 * headers say, or where the frame does if they say nothing.
 */
u_int
pv_net_sum_end(const struct mbuf *m, u_int field)
{
	struct pv_net_headers h;

	(void)pv_net_parse(m, &h);
	return (h.ph_end >= field + sizeof(uint16_t) ? h.ph_end :
	    (u_int)m->m_pkthdr.len);
}

/*
 * The sum that a partial checksum's field would have, of a packet whose
 * checksum is right (RFC 1071): the complement of everything from `start'.
 */
uint16_t
pv_net_pseudo_sum(struct mbuf *m, u_int start)
{
	return (pv_net_cksum(m, start, m->m_pkthdr.len));
}

/* A sum, not complemented, in which `old' was and `new' is. */
static uint16_t
pv_net_gso_resum(uint16_t sum, uint16_t old, uint16_t new)
{
	uint32_t whole = sum + (~old & 0xffff) + new;

	whole = (whole >> 16) + (whole & 0xffff);
	return (whole + (whole >> 16));
}

static void
pv_net_gso_ip4(struct ip *at, u_int index, u_int cut)
{
	struct ip ip;
	uint16_t id, len, sum;

	memcpy(&ip, at, sizeof(ip));
	len = htons(ntohs(ip.ip_len) - cut);
	id = htons(ntohs(ip.ip_id) + index);
	sum = pv_net_gso_resum(~ip.ip_sum & 0xffff, ip.ip_len, len);
	ip.ip_sum = ~pv_net_gso_resum(sum, ip.ip_id, id) & 0xffff;
	ip.ip_len = len;
	ip.ip_id = id;
	memcpy(at, &ip, sizeof(ip));
}

static void
pv_net_gso_ip6(struct ip6_hdr *at, u_int cut)
{
	struct ip6_hdr ip6;

	memcpy(&ip6, at, sizeof(ip6));
	ip6.ip6_plen = htons(ntohs(ip6.ip6_plen) - cut);
	memcpy(at, &ip6, sizeof(ip6));
}

/* The length in a header that stands in front of IP's. */
static void
pv_net_gso_length(void *at, u_int cut)
{
	uint16_t len;

	memcpy(&len, at, sizeof(len));
	len = htons(ntohs(len) - cut);
	memcpy(at, &len, sizeof(len));
}

/*
 * CWR is for the first segment (RFC 3168, 6.1.2), FIN and PSH are for the last.
 */
static void
pv_net_gso_tcp(struct tcphdr *at, u_int off, bool last, uint16_t old,
    uint16_t new)
{
	struct tcphdr th;

	memcpy(&th, at, sizeof(th));
	th.th_seq = htonl(ntohl(th.th_seq) + off);
	if (off > 0)
		th.th_flags &= ~TH_CWR;
	if (!last)
		th.th_flags &= ~(TH_FIN | TH_PUSH);
	th.th_sum = pv_net_gso_resum(th.th_sum, old, new);
	memcpy(at, &th, sizeof(th));
}

static void
pv_net_gso_udp(struct udphdr *at, u_int cut, uint16_t old, uint16_t new)
{
	struct udphdr uh;

	memcpy(&uh, at, sizeof(uh));
	uh.uh_ulen = htons(ntohs(uh.uh_ulen) - cut);
	uh.uh_sum = pv_net_gso_resum(uh.uh_sum, old, new);
	memcpy(at, &uh, sizeof(uh));
}

/*
 * An mbuf with a copy of a packet's marks and first bytes: NULL if there is no
 * memory for it.
 */
struct mbuf *
pv_net_copy_headers(const struct mbuf *m, u_int hdrlen)
{
	u_int room = PV_NET_GSO_LEAD + hdrlen;
	struct mbuf *seg;

	if (room > MJUM16BYTES)
		return (NULL);
	seg = room <= MHLEN ? m_gethdr(M_NOWAIT, MT_DATA) : m_getjcl(M_NOWAIT,
	    MT_DATA, M_PKTHDR, room <= MCLBYTES ? MCLBYTES : MJUM16BYTES);
	if (seg == NULL)
		return (NULL);
	if (m_dup_pkthdr(seg, m, M_NOWAIT) == 0) {
		m_freem(seg);
		return (NULL);
	}
	seg->m_data += PV_NET_GSO_LEAD;
	seg->m_len = hdrlen;
	seg->m_nextpkt = NULL;
	m_copydata(m, 0, hdrlen, mtod(seg, caddr_t));
	return (seg);
}

struct mbuf *
pv_net_copy_front(struct mbuf *m, u_int len)
{
	struct mbuf *copy;

	copy = pv_net_copy_headers(m, len);
	if (copy == NULL || m->m_pkthdr.len == (int)len)
		return (copy);
	copy->m_next = m_copym(m, len, M_COPYALL, M_NOWAIT);
	if (copy->m_next == NULL) {
		m_freem(copy);
		return (NULL);
	}
	return (copy);
}

/* The segment whose payload of `len' bytes is at `off' of the whole one. */
static struct mbuf *
pv_net_gso_segment(struct mbuf *m, const struct pv_net_headers *h, u_int hdrlen,
    u_int off, u_int len, u_int index)
{
	u_int cut = m->m_pkthdr.len - hdrlen - len;
	uint16_t old = htons(m->m_pkthdr.len - h->ph_l4),
	    new = htons(hdrlen + len - h->ph_l4);
	bool last = m->m_pkthdr.len == hdrlen + off + len;
	struct mbuf *data, *seg;
	char *p;

	seg = pv_net_copy_headers(m, hdrlen);
	if (seg == NULL)
		return (NULL);
	data = m_copym(m, hdrlen + off, len, M_NOWAIT);
	if (data == NULL) {
		m_freem(seg);
		return (NULL);
	}
	seg->m_next = data;
	seg->m_pkthdr.len = hdrlen + len;
	p = mtod(seg, char *);
	if (h->ph_length != 0)
		pv_net_gso_length(p + h->ph_length, cut);
	if (h->ph_ip6)
		pv_net_gso_ip6((void *)(p + h->ph_l3), cut);
	else
		pv_net_gso_ip4((void *)(p + h->ph_l3), index, cut);
	if (h->ph_proto == IPPROTO_TCP)
		pv_net_gso_tcp((void *)(p + h->ph_l4), off, last, old, new);
	else
		pv_net_gso_udp((void *)(p + h->ph_l4), cut, old, new);
	return (seg);
}

/*
 * Split a packet of TCP, or of UDP, whose checksum is partial and whose headers
 * have `hdrlen' bytes, into segments of `size' bytes of payload.  Returns them
 * as a list, each with a partial checksum and marked so, or NULL if there is no
 * memory.  The packet itself is freed.
 */
struct mbuf *
pv_net_gso_split(struct mbuf *m, const struct pv_net_headers *h, u_int hdrlen,
    u_int size)
{
	struct mbuf *list = NULL, *seg, **tail = &list;
	u_int index, left, len, off;

	left = m->m_pkthdr.len - hdrlen;
	for (index = 0, off = 0; left > 0; index++, off += len, left -= len) {
		len = MIN(left, size);
		seg = pv_net_gso_segment(m, h, hdrlen, off, len, index);
		if (seg == NULL)
			break;
		pv_net_mark_partial(seg, h->ph_ip6,
		    pv_net_sum_offset(h->ph_proto));
		seg->m_pkthdr.tso_segsz = 0;
		*tail = seg;
		tail = &seg->m_nextpkt;
	}
	m_freem(m);
	if (left == 0)
		return (list);
	while ((seg = list) != NULL) {
		list = seg->m_nextpkt;
		m_freem(seg);
	}
	return (NULL);
}
