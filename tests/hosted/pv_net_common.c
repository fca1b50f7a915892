/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tests of pv_net's offload metadata share.
 */

#include "pv_net_test.h"

VNET_DEFINE(int, ipforwarding);
VNET_DEFINE(int, ip6_forwarding);
struct _pfil_head filters, no_filters;
VNET_DEFINE(pfil_head_t, inet_pfil_head) = (pfil_head_t)&no_filters;
VNET_DEFINE(pfil_head_t, inet6_pfil_head) = (pfil_head_t)&no_filters;
VNET_DEFINE(pfil_head_t, link_pfil_head) = (pfil_head_t)&filters;
struct pv_net pn;
struct ifnet eth;
struct pv_net_rxq rx_queue;
struct bpf_if_ext listeners, *bpf;
u_char lladdr[ETHER_ADDR_LEN];
static struct bpf_if_ext nobody;
static int lros;		/* that tcp_lro_free(9) has not freed */
static char listener[64];

int
if_getcapenable(const if_t ifp __unused)
{

	return (eth.if_capenable);
}

int
if_getflags(const if_t ifp __unused)
{

	return (eth.if_flags);
}

int
if_getmtu(const if_t ifp __unused)
{

	return (eth.if_mtu);
}

char *
if_getlladdr(const if_t ifp __unused)
{

	return ((char *)lladdr);
}

struct bpf_if *
if_getbpf(if_t ifp __unused)
{

	return ((struct bpf_if *)bpf);
}

struct vnet *
if_getvnet(const if_t ifp __unused)
{

	return (NULL);
}

void
begin(u_int offloads)
{

	kpi_mbuf_init();
	memset(&pn, 0, sizeof(pn));
	pn.pn_params.pnp_offloads = offloads;
	pn.pn_ifp = &eth;
	eth.if_capenable = CAPS;
	bpf = &nobody;
	memcpy(lladdr, "\x02\x00\x00\x00\x00\x55", sizeof(lladdr));
	listeners.bif_dlist.clh_first = (void *)listener;
	filters.head_nhooksin = 0;
	eth.if_l2com = NULL;
	eth.if_type = IFT_ETHER;
	eth.if_flags = 0;
	eth.if_mtu = ETHERMTU;
	V_ipforwarding = V_ip6_forwarding = pv_net_lro_forward = 0;
}

void
end(void)
{

	CHECK(kpi_items == 0, "%d mbufs and clusters are left", kpi_items);
	CHECK(lros == 0, "%d queues still merge", lros);
}

/* The bytes of a packet. */
size_t
flat(const struct mbuf *m, u_char *to)
{

	m_copydata(m, 0, m->m_pkthdr.len, to);
	return (m->m_pkthdr.len);
}

u_int
free_all(struct mbuf *m)
{
	struct mbuf *next;
	u_int n;

	for (n = 0; m != NULL; m = next, n++) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		m_freem(m);
	}
	return (n);
}

/* The marks of a packet of this kind that the stack sends. */
u_int
sum_mark(const struct frame *f)
{

	if (f->f_proto == IPPROTO_TCP)
		return (f->f_ip == 6 ? CSUM_IP6_TCP : CSUM_IP_TCP);
	return (f->f_ip == 6 ? CSUM_IP6_UDP : CSUM_IP_UDP);
}

const struct good good[NGOOD] = {
	{ "TCP", { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 1000 } },
	{ "UDP", { .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 1001 } },
	{ "UDP without data", { .f_ip = 4, .f_proto = IPPROTO_UDP } },
	{ "TCP without data", { .f_ip = 4, .f_proto = IPPROTO_TCP } },
	{ "long extension headers", { .f_ip = 6, .f_exts = 2, .f_extsize = 104,
	    .f_proto = IPPROTO_UDP, .f_payload = 9 } },
	{ "TCP with options", { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_tcpopts = 40,
	    .f_payload = 3 } },
	{ "IPv4 options", { .f_ip = 4, .f_ipopts = 40, .f_proto = IPPROTO_TCP,
	    .f_payload = 999 } },
	{ "VLAN", { .f_tags = 1, .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 77 } },
	{ "TCP6", { .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 1000 } },
	{ "UDP6", { .f_ip = 6, .f_proto = IPPROTO_UDP, .f_payload = 1 } },
	{ "extension headers", { .f_ip = 6, .f_exts = 8, .f_proto = IPPROTO_TCP,
	    .f_tcpopts = 12, .f_payload = 55 } },
	{ "VLAN and IPv6", { .f_tags = 1, .f_ip = 6, .f_exts = 1, .f_proto = IPPROTO_UDP,
	    .f_payload = 1400 } },
};

const struct gso gsos[NGSOS] = {
	{ "TCP", { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 10000, .f_flags = 0x18 },
	    TCP4, NEEDS, 1448 },
	{ "options", { .f_tags = 1, .f_ip = 4, .f_ipopts = 8, .f_proto = IPPROTO_TCP,
	    .f_tcpopts = 12, .f_payload = 60000, .f_flags = 0x19 }, TCP4, NEEDS, 1000 },
	{ "ECN", { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 5000, .f_flags = 0x98 },
	    TCP4, NEEDS | ECN, 1448 },
	{ "TCP6", { .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 9999, .f_flags = 0x10 },
	    TCP6, NEEDS, 1428 },
	{ "extensions", { .f_tags = 1, .f_ip = 6, .f_exts = 3, .f_proto = IPPROTO_TCP,
	    .f_payload = 3001, .f_flags = 0x11 }, TCP6, NEEDS, 1000 },
	{ "headers of a cluster", { .f_ip = 6, .f_exts = 8, .f_extsize = 24,
	    .f_proto = IPPROTO_TCP, .f_tcpopts = 40, .f_payload = 3001 }, TCP6, NEEDS, 1000 },
	{ "headers of more", { .f_ip = 6, .f_exts = 8, .f_extsize = 400,
	    .f_proto = IPPROTO_TCP, .f_payload = 3001 }, TCP6, NEEDS, 1000 },
	{ "segments of a byte", { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 3,
	    .f_flags = 0x98 }, TCP4, NEEDS | ECN, 1 },
	{ "verified", { .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 4001 }, TCP6, VALID,
	    1428 },
	{ "found", { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 4001 }, TCP4, FIND, 500 },
};

/* Segments: each is valid, and together they have the contents of the GSO packet. */
void
check_segments(const struct gso *g, struct mbuf *list, const u_char *whole,
    const struct frame_at *at, bool done)
{
	static u_char buf[FRAME_MAX];
	struct frame f = g->f;
	struct mbuf *m;
	u_int n = 0, off = 0;
	size_t len;

	for (m = list; m != NULL; m = m->m_nextpkt, n++) {
		len = flat(m, buf);
		if (!done) {
			CHECK(!KEEPS || (m->m_pkthdr.csum_flags == sum_mark(&f) &&
			    m->m_pkthdr.csum_data == at->at_sum - at->at_l4), "%s: 0x%x, %u",
			    g->name, m->m_pkthdr.csum_flags, m->m_pkthdr.csum_data);
			CHECK(frame_is_partial(&f, buf, len), "%s: segment %u", g->name, n);
		} else
			CHECK(frame_sum_ok(&f, buf, len) && (m->m_pkthdr.csum_flags == 0 ||
			    m->m_pkthdr.csum_flags == (CSUM_DATA_VALID | CSUM_PSEUDO_HDR)),
			    "%s: segment %u, 0x%x", g->name, n, m->m_pkthdr.csum_flags);
		CHECK(m->m_pkthdr.tso_segsz == 0, "%s: %u", g->name, m->m_pkthdr.tso_segsz);
		/* The header that a protocol puts before it has room. */
		CHECK(M_LEADINGSPACE(m) >= 32, "%s: %td bytes of room", g->name, M_LEADINGSPACE(m));
		CHECK(frame_segment_ok(&f, whole, at, buf, len, n, off, g->size),
		    "%s: segment %u of %zu bytes", g->name, n, len);
		off += len - at->at_data;
	}
	CHECK(off == f.f_payload && n == howmany(f.f_payload, g->size), "%s: %u bytes in %u",
	    g->name, off, n);
	(void)free_all(list);
}

struct mbuf *
to_send(const struct gso *g, u_char *buf, struct frame_at *at)
{
	static const size_t pieces[] = { 14, 20, 100, 2000, 0 };
	struct mbuf *m;
	size_t len;

	len = frame_make(&g->f, FRAME_PARTIAL, buf, at);
	m = kpi_mbuf_chain(buf, len, pieces);
	m->m_pkthdr.csum_flags = sum_mark(&g->f);
	if (g->size != 0 && g->f.f_proto == IPPROTO_TCP)
		m->m_pkthdr.csum_flags |= g->f.f_ip == 6 ? CSUM_IP6_TSO : CSUM_IP_TSO;
	m->m_pkthdr.csum_data = at->at_sum - at->at_l4;
	m->m_pkthdr.tso_segsz = g->size;
	return (m);
}

int
tcp_lro_init_args(struct lro_ctrl *lc, if_t ifp, unsigned entries __unused, unsigned mbufs __unused)
{

	CHECK(lc->ifp == NULL && ifp != NULL, "initialised twice, or of no interface");
	lc->ifp = ifp;
	lros++;
	return (0);
}

void
tcp_lro_free(struct lro_ctrl *lc)
{

	CHECK(lc->ifp != NULL, "freed before it was initialised, or twice");
	lc->ifp = NULL;
	lros--;
}
