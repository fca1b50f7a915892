/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The internet checksum (RFC 1071): the ones' complement sum of 16-bit words, over memory, mbuf
 * chains and pseudo headers.
 *
 * The sum does not depend on byte order, so it is made of 64-bit words as they lie in memory and
 * folded at the end.  A piece that starts at an odd offset of the message contributes its sum with
 * the two bytes swapped.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <machine/in_cksum.h>

/* Add with the carry brought round (RFC 1071, 2). */
static inline uint64_t
cksum_add64(uint64_t sum, uint64_t v)
{
	sum += v;
	return (sum + (sum < v));
}

/*
 * Add the len bytes at p, as if they started at an even offset, to an unfolded sum.
 */
uint64_t
inet_cksum_add(uint64_t sum, const void *p, size_t len)
{
	const uint8_t *b = p;
	uint64_t v[4], tail = 0;

	for (; len >= sizeof(v); b += sizeof(v), len -= sizeof(v)) {
		memcpy(v, b, sizeof(v));
		sum = cksum_add64(sum, v[0]);
		sum = cksum_add64(sum, v[1]);
		sum = cksum_add64(sum, v[2]);
		sum = cksum_add64(sum, v[3]);
	}
	for (; len >= sizeof(v[0]); b += sizeof(v[0]), len -= sizeof(v[0])) {
		memcpy(v, b, sizeof(v[0]));
		sum = cksum_add64(sum, v[0]);
	}
	memcpy(&tail, b, len);
	return (cksum_add64(sum, tail));
}

/* Fold a sum to 16 bits; not complemented. */
uint16_t
inet_cksum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum);
}

/* Add len bytes of a chain from off; what the chain does not have counts as zero. */
static uint64_t
cksum_add_mbuf(uint64_t sum, const struct mbuf *m, int off, int len)
{
	uint16_t part;
	int n;
	bool odd = false;

	for (; m != NULL && off >= m->m_len; m = m->m_next)
		off -= m->m_len;
	for (; m != NULL && len > 0; m = m->m_next, off = 0) {
		n = min(m->m_len - off, len);
		if (!odd)
			sum = inet_cksum_add(sum, mtod(m, const uint8_t *) + off, n);
		else {
			part = inet_cksum_fold(inet_cksum_add(0,
			    mtod(m, const uint8_t *) + off, n));
			sum = cksum_add64(sum, __bswap16(part));
		}
		odd ^= (n & 1) != 0;
		len -= n;
	}
	return (sum);
}

u_short
in_cksum_skip(struct mbuf *m, int len, int skip)
{
	return (~inet_cksum_fold(cksum_add_mbuf(0, m, skip, len - skip)) & 0xffff);
}

u_int
in_cksum_hdr(const struct ip *ip)
{
	return (~inet_cksum_fold(inet_cksum_add(0, ip, sizeof(*ip))) & 0xffff);
}

u_short
in_addword(u_short sum, u_short b)
{
	return (inet_cksum_fold((uint64_t)sum + b));
}

u_short
in_pseudo(u_int sum, u_int b, u_int c)
{
	return (inet_cksum_fold((uint64_t)sum + b + c));
}

/* The pseudo header of either IP version (RFC 793, 3.1; RFC 8200, 8.1), folded. */
uint16_t
inet_pseudo(const struct in6_addr *src, const struct in6_addr *dst, uint32_t len, uint8_t proto)
{
	uint64_t sum = (uint64_t)htonl(len) + htonl(proto);

	if (inet_is4(dst))
		return (inet_cksum_fold(sum + src->s6_addr32[3] + dst->s6_addr32[3]));
	sum = inet_cksum_add(sum, src, sizeof(*src));
	return (inet_cksum_fold(inet_cksum_add(sum, dst, sizeof(*dst))));
}

int
in6_cksum_pseudo(struct ip6_hdr *ip6, uint32_t len, uint8_t nxt, uint16_t csum)
{
	return (inet_cksum_fold((uint64_t)inet_pseudo(&ip6->ip6_src, &ip6->ip6_dst, len, nxt) +
	    csum));
}

/*
 * The checksum of len bytes at off of an IPv6 packet that starts with its header; with nxt 0
 * without the pseudo header.
 */
int
in6_cksum(struct mbuf *m, uint8_t nxt, uint32_t off, uint32_t len)
{
	struct ip6_hdr ip6;
	uint64_t sum = 0;

	if (nxt != 0) {
		m_copydata(m, 0, sizeof(ip6), (caddr_t)&ip6);
		sum = in6_cksum_pseudo(&ip6, len, nxt, 0);
	}
	return (~inet_cksum_fold(cksum_add_mbuf(sum, m, off, len)) & 0xffff);
}

/* Put a finished checksum in its place; UDP's zero is sent as all ones (RFC 768). */
static void
cksum_store(struct mbuf *m, int off, uint16_t sum, bool udp)
{
	if (udp && sum == 0)
		sum = 0xffff;
	if (off + (int)sizeof(sum) <= m->m_pkthdr.len)
		m_copyback(m, off, sizeof(sum), (c_caddr_t)&sum);
}

/*
 * Finish in software the checksum that a transport left to the interface: csum_data is the field's
 * offset in the transport header, and the field holds the pseudo header's sum.
 */
void
in_delayed_cksum_o(struct mbuf *m, uint16_t iphlen)
{
	bool udp = (m->m_pkthdr.csum_flags & CSUM_UDP) != 0;

	cksum_store(m, iphlen + m->m_pkthdr.csum_data,
	    in_cksum_skip(m, m->m_pkthdr.len, iphlen), udp);
	m->m_pkthdr.csum_flags &= ~CSUM_DELAY_DATA;
}

void
in_delayed_cksum(struct mbuf *m)
{
	in_delayed_cksum_o(m, mtod(m, struct ip *)->ip_hl << 2);
}

void
in6_delayed_cksum(struct mbuf *m, uint32_t plen, uint16_t offset)
{
	bool udp = (m->m_pkthdr.csum_flags & CSUM_UDP_IPV6) != 0;

	cksum_store(m, offset + m->m_pkthdr.csum_data, in_cksum_skip(m, offset + plen, offset),
	    udp);
	m->m_pkthdr.csum_flags &= ~CSUM_DELAY_DATA_IPV6;
}

/*
 * Check a received transport checksum.  The interface may have done it: CSUM_DATA_VALID says that
 * it summed the data into csum_data, and with CSUM_PSEUDO_HDR the pseudo header too, so that a
 * good packet gives 0xffff (mbuf(9)).
 */
bool
inet_pkt_cksum_ok(struct mbuf *m, const struct inet_pkt *p)
{
	uint64_t sum;

	/*
	 * The marks of a sender: the packet never was on a wire, and its sum is partial
	 * (sys/mbuf.h).
	 */
	if ((m->m_pkthdr.csum_flags & (CSUM_DELAY_DATA | CSUM_DELAY_DATA_IPV6)) != 0)
		return (true);
	if ((m->m_pkthdr.csum_flags & CSUM_DATA_VALID) != 0) {
		sum = m->m_pkthdr.csum_data & 0xffff;
		if ((m->m_pkthdr.csum_flags & CSUM_PSEUDO_HDR) == 0)
			sum += inet_pseudo(&p->ip_src, &p->ip_dst, p->ip_len, p->ip_proto);
		return (inet_cksum_fold(sum) == 0xffff);
	}
	sum = inet_pseudo(&p->ip_src, &p->ip_dst, p->ip_len, p->ip_proto);
	return (inet_cksum_fold(cksum_add_mbuf(sum, m, p->ip_off, p->ip_len)) == 0xffff);
}
