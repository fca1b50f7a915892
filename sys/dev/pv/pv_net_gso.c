/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: splitting of a big packet into the TCP segments that it stands for, where neither the other
 * side nor the stack can.
 *
 * Each gets a copy of the headers in an mbuf of its own, and shares the payload.  Headers differ in
 * lengths, IPv4 identification, TCP sequence number and flags; their checksums are changed by the
 * difference (RFC 1624), so that a wrong one stays wrong, and partial ones stay partial.
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

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

/* Room before the headers: for a protocol's own, and to align IP's as it was. */
#define	PV_NET_GSO_LEAD	(32 + ETHER_ALIGN)

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

/* CWR is for the first segment (RFC 3168, 6.1.2), FIN and PSH are for the last. */
static void
pv_net_gso_tcp(struct tcphdr *at, u_int off, bool last, uint16_t old, uint16_t new)
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

/* An mbuf with a copy of a packet's marks and first bytes: NULL if there is no memory for it. */
struct mbuf *
pv_net_copy_headers(const struct mbuf *m, u_int hdrlen)
{
	u_int room = PV_NET_GSO_LEAD + hdrlen;
	struct mbuf *seg;

	if (room > MJUM16BYTES)
		return (NULL);
	seg = room <= MHLEN ? m_gethdr(M_NOWAIT, MT_DATA) :
	    m_getjcl(M_NOWAIT, MT_DATA, M_PKTHDR, room <= MCLBYTES ? MCLBYTES : MJUM16BYTES);
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

/* The segment whose payload of `len' bytes is at `off' of the whole one. */
static struct mbuf *
pv_net_gso_segment(struct mbuf *m, const struct pv_net_headers *h, u_int hdrlen, u_int off,
    u_int len, u_int index)
{
	u_int cut = m->m_pkthdr.len - hdrlen - len;
	uint16_t old = htons(m->m_pkthdr.len - h->ph_l4), new = htons(hdrlen + len - h->ph_l4);
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
	if (h->ph_ip6)
		pv_net_gso_ip6((void *)(p + h->ph_l3), cut);
	else
		pv_net_gso_ip4((void *)(p + h->ph_l3), index, cut);
	pv_net_gso_tcp((void *)(p + h->ph_l4), off, last, old, new);
	return (seg);
}

/*
 * Split a packet of TCP, whose checksum is partial and whose headers have `hdrlen' bytes, into those of
 * `size' bytes of payload.  Returns them as a list, each with a partial checksum and marked so, or
 * NULL if there is no memory.  The packet itself is freed.
 */
struct mbuf *
pv_net_gso_split(struct mbuf *m, const struct pv_net_headers *h, u_int hdrlen, u_int size)
{
	struct mbuf *list = NULL, *seg, **tail = &list;
	u_int index, left, len, off;

	left = m->m_pkthdr.len - hdrlen;
	for (index = 0, off = 0; left > 0; index++, off += len, left -= len) {
		len = MIN(left, size);
		seg = pv_net_gso_segment(m, h, hdrlen, off, len, index);
		if (seg == NULL)
			break;
		seg->m_pkthdr.csum_flags = h->ph_ip6 ? CSUM_IP6_TCP : CSUM_IP_TCP;
		seg->m_pkthdr.csum_data = offsetof(struct tcphdr, th_sum);
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
