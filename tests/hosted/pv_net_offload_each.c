/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net's offloads, each for itself: that one which was not negotiated, or is disabled, is missed,
 * and that it is missed by nothing else.
 */

#include "pv_net_test.h"

#define	TCP_4	{ .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 3000 }
#define	TCP_6	{ .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 3000 }
#define	TCP_4T	{ .f_tags = 1, .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 3000 }
#define	UDP_4	{ .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 3000 }

/* What is done about a packet that is sent, by what was negotiated. */
void
tx_each_offload_by_itself(const void *arg __unused)
{
	static const struct {
		const char	*name;
		struct gso	 g;
		u_int		 offloads, flags, type;
	} table[] = {
		{ "csum", { "", TCP_4 }, PV_NET_TXCSUM, NEEDS, NONE },
		{ "csum of IPv6", { "", TCP_4 }, PV_NET_TXCSUM6, PV_NET_FINISH_CSUM, NONE },
		{ "csum6", { "", TCP_6 }, PV_NET_TXCSUM6, NEEDS, NONE },
		{ "csum6 of IPv4", { "", TCP_6 }, PV_NET_TXCSUM, PV_NET_FINISH_CSUM, NONE },
		{ "untagged", { "", TCP_4 }, PV_NET_TXCSUM | PV_NET_UNTAGGED, NEEDS, NONE },
		{ "tagged", { "", TCP_4T }, PV_NET_TXCSUM, NEEDS, NONE },
		{ "tagged, not taken", { "", TCP_4T }, PV_NET_TXCSUM | PV_NET_UNTAGGED,
		    PV_NET_FINISH_CSUM, NONE },
		{ "tso4", { "", TCP_4, .size = 1000 }, PV_NET_TXCSUM | PV_NET_TSO4, NEEDS, TCP4 },
		{ "tso4 of IPv6", { "", TCP_4, .size = 1000 }, PV_NET_TXCSUM | PV_NET_TXCSUM6 |
		    PV_NET_TSO6, NEEDS | PV_NET_SPLIT, NONE },
		{ "tso4 without csum", { "", TCP_4, .size = 1000 }, PV_NET_TXCSUM6 | PV_NET_TSO4,
		    PV_NET_FINISH_CSUM | PV_NET_SPLIT, NONE },
		{ "tso6", { "", TCP_6, .size = 1000 }, PV_NET_TXCSUM6 | PV_NET_TSO6, NEEDS, TCP6 },
		{ "tso6 of IPv4", { "", TCP_6, .size = 1000 }, PV_NET_TXCSUM | PV_NET_TXCSUM6 |
		    PV_NET_TSO4, NEEDS | PV_NET_SPLIT, NONE },
		{ "tso6 without csum", { "", TCP_6, .size = 1000 }, PV_NET_TXCSUM | PV_NET_TSO6,
		    PV_NET_FINISH_CSUM | PV_NET_SPLIT, NONE },
		{ "tso, tagged, not taken", { "", TCP_4T, .size = 1000 }, TX_ALL | PV_NET_UNTAGGED,
		    PV_NET_FINISH_CSUM | PV_NET_SPLIT, NONE },
		/* What is no longer than a segment is no GSO packet. */
		{ "one segment", { "", TCP_4, .size = 3000 }, TX_ALL, NEEDS, NONE },
		{ "two segments", { "", TCP_4, .size = 2999 }, TX_ALL, NEEDS, TCP4 },
	};
	static u_char buf[FRAME_MAX];
	struct pv_net_offload out;
	struct frame_at at;
	struct mbuf *m;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		begin(table[i].offloads);
		m = to_send(&table[i].g, buf, &at);
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
		    out.po_flags == table[i].flags && out.po_gso_type == table[i].type,
		    "%s: flags 0x%x, type %u", table[i].name, out.po_flags, out.po_gso_type);
		m_freem(m);
		end();
	}
}

/* A packet of one segment whose sum is finished, as a listener has seen it, has nothing left to do. */
void
tx_one_finished_segment_is_left_alone(const void *arg __unused)
{
	static const struct gso tcp = { "TCP", TCP_4, .size = 3000 };
	static const struct pv_net_offload nothing;
	static u_char buf[FRAME_MAX];
	struct pv_net_offload out;
	struct frame_at at;
	struct mbuf *m;
	u_int offloads;

	for (offloads = 0; offloads <= TX_ALL; offloads += TX_ALL) {
		begin(offloads);
		m = to_send(&tcp, buf, &at);
		m->m_pkthdr.csum_flags = CSUM_IP_TSO;
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
		    memcmp(&out, &nothing, sizeof(out)) == 0, "0x%x", out.po_flags);
		m_freem(m);
		end();
	}
}

/* Nothing is looked at of what has no marks, and a segment's size without one says nothing. */
void
tx_without_marks_is_left_alone(const void *arg __unused)
{
	static const struct gso each[] = { { "UDP", UDP_4 }, { "TCP", TCP_4 } };
	static const struct pv_net_offload nothing;
	static u_char buf[FRAME_MAX];
	struct pv_net_offload out;
	struct mbuf *m = NULL;
	struct frame_at at;
	size_t i;

	begin(TX_ALL);
	for (i = 0; i < nitems(each); i++) {
		m_freem(m);
		m = to_send(&each[i], buf, &at);
		/* As tcp_lro(9) leaves it: so many segments. */
		m->m_pkthdr.tso_segsz = 2;
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE && out.po_flags == NEEDS &&
		    out.po_gso_type == NONE, "%s: taken for a GSO packet", each[i].name);
	}
	m->m_pkthdr.csum_flags = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	memset(mtod(m, void *), 0xff, 14);
	CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
	    memcmp(&out, &nothing, sizeof(out)) == 0, "0x%x", out.po_flags);
	m_freem(m);
	end();
}

/* What others have of a packet, from wherever, stays as it is when its sum is stored. */
void
tx_what_others_have_is_not_written(const void *arg __unused)
{
	static const struct gso tcp = { "TCP", TCP_4 };
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload out;
	struct mbuf *m, *other;
	struct frame_at at;
	size_t len, pieces[4] = { 14 };
	u_int cut;

	begin(0);
	len = frame_make(&tcp.f, FRAME_PARTIAL, buf, &at);
	for (cut = at.at_sum - 1; cut <= at.at_sum + 2; cut++) {
		pieces[1] = cut - 14;
		pieces[2] = 100;
		m = kpi_mbuf_chain(buf, len, pieces);
		m->m_pkthdr.csum_flags = CSUM_IP_TCP;
		m->m_pkthdr.csum_data = 16;
		other = m_copym(m, cut, M_COPYALL, M_WAITOK);
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE, "%u", cut);
		m = pv_net_tx_soften(m, &out);
		m_copydata(other, 0, len - cut, after);
		CHECK(memcmp(after, buf + cut, len - cut) == 0, "changed behind %u", cut);
		CHECK(flat(m, after) == len && frame_sum_ok(&tcp.f, after, len), "%u", cut);
		m_freem(m);
		/* And if there is no memory for a copy, it is lost. */
		m = kpi_mbuf_chain(buf, len, pieces);
		m->m_pkthdr.csum_flags = CSUM_IP_TCP;
		m->m_pkthdr.csum_data = 16;
		m_freem(other);
		other = m_copypacket(m, M_WAITOK);
		(void)pv_net_tx_offload(&pn, m, &out);
		kpi_fail_after = 1;
		CHECK(pv_net_tx_soften(m, &out) == NULL, "%u: written", cut);
		kpi_fail_after = 0;
		m_freem(other);
	}
	end();
}

/*
 * The headers of a packet that is split are the driver's own, and the data behind them may be pages
 * without an address (M_EXTPG): here, an address that can't be read.
 */
void
tx_data_without_an_address_is_not_read(const void *arg __unused)
{
	static const struct gso tcp = { "TCP", { .f_ip = 4, .f_proto = IPPROTO_TCP,
	    .f_payload = 2000 }, TCP4, NEEDS, 1000 };
	static u_char buf[FRAME_MAX];
	struct pv_net_offload out;
	struct mbuf *m, *other;
	struct frame_at at;
	size_t len, pieces[3] = { 0 };

	begin(0);
	len = frame_make(&tcp.f, FRAME_PARTIAL, buf, &at);
	pieces[0] = at.at_data;
	m = kpi_mbuf_chain(buf, len, pieces);
	m->m_pkthdr.csum_flags = CSUM_IP_TCP | CSUM_IP_TSO;
	m->m_pkthdr.csum_data = 16;
	m->m_pkthdr.tso_segsz = tcp.size;
	other = m_copym(m, 0, at.at_data, M_WAITOK);
	m->m_next->m_flags |= M_RDONLY;
	m->m_next->m_data = (caddr_t)(uintptr_t)16;
	CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
	    (out.po_flags & PV_NET_SPLIT) != 0, "0x%x", out.po_flags);
	m = pv_net_tx_soften(m, &out);
	CHECK(m != NULL && m->m_nextpkt != NULL &&
	    m->m_nextpkt->m_next->m_data == (caddr_t)(uintptr_t)(16 + 1000), "not split");
	(void)free_all(m);
	m_freem(other);
	end();
}

/* What one queue judges its batch by is not changed by another's look. */
void
rx_each_queue_looks_for_itself(const void *arg __unused)
{
	static const struct frame f = { .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 100 };
	static struct pv_net_rxq one = { .prq_pn = &pn }, other = { .prq_pn = &pn };
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = NEEDS };
	struct frame_at at;
	struct mbuf *m;
	size_t len;

	begin(RX_ALL);
	len = frame_make(&f, FRAME_PARTIAL, buf, &at);
	memcpy(buf, lladdr, ETHER_ADDR_LEN);
	in.po_csum_start = at.at_l4;
	in.po_csum_offset = at.at_sum - at.at_l4;
	bpf = &listeners;
	pv_net_stack_find(&pn);
	pv_net_rx_set_flags(&one);
	begin(RX_ALL);
	pv_net_stack_find(&pn);
	pv_net_rx_set_flags(&other);
	m = kpi_mbuf_chain(buf, len, NULL);
	CHECK(pv_net_rx_offload(&one, &m, &in) == PV_NET_FINE && flat(m, after) == len &&
	    frame_sum_ok(&f, after, len), "not finished");
	m_freem(m);
	m = kpi_mbuf_chain(buf, len, NULL);
	CHECK(pv_net_rx_offload(&other, &m, &in) == PV_NET_FINE && flat(m, after) == len &&
	    frame_is_partial(&f, after, len), "finished");
	m_freem(m);
	end();
}

/* What the stack may ask for. */
void
tx_assistance_by_capability(const void *arg __unused)
{
	static const struct {
		int	caps;
		u_int	assist;
	} table[] = {
		{ 0, 0 },
		{ IFCAP_TXCSUM, CSUM_IP_TCP | CSUM_IP_UDP },
		{ IFCAP_TXCSUM_IPV6, CSUM_IP6_TCP | CSUM_IP6_UDP },
		{ IFCAP_TSO4, CSUM_IP_TSO },
		{ IFCAP_TSO6, CSUM_IP6_TSO },
		{ IFCAP_RXCSUM | IFCAP_RXCSUM_IPV6 | IFCAP_LRO | IFCAP_VLAN_HWTAGGING, 0 },
	};
	size_t i;

	begin(TX_ALL);
	for (i = 0; i < nitems(table); i++)
		CHECK(pv_net_hwassist(&pn, table[i].caps) == table[i].assist, "0x%x: 0x%x",
		    table[i].caps, pv_net_hwassist(&pn, table[i].caps));
	end();
}

/* rxcsum and rxcsum6 are about their version only, of partial sums and of verified ones. */
void
rx_each_version_by_itself(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct frame_at at;
	struct mbuf *m;
	u_int expect;
	size_t len, n;
	bool on;
	int i;

	begin(RX_ALL);
	for (n = 0; n < NGOOD; n++) {
		for (i = 0; i < 4; i++) {
			eth.if_capenable = CAPS & ~(i % 2 == 0 ? IFCAP_RXCSUM : IFCAP_RXCSUM_IPV6);
			on = (good[n].f.f_ip == 6) == (i % 2 == 0);
			len = frame_make(&good[n].f, i < 2 ? FRAME_PARTIAL : FRAME_DONE, buf, &at);
			in = (struct pv_net_offload){ .po_flags = i < 2 ? FIND : VALID };
			m = kpi_mbuf_chain(buf, len, NULL);
			CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE, "%s", good[n].name);
			expect = i < 2 && KEEPS ? sum_mark(&good[n].f) :
			    (u_int)(CSUM_DATA_VALID | CSUM_PSEUDO_HDR);
			CHECK(m->m_pkthdr.csum_flags == (on ? expect : 0), "%s, %d: 0x%x",
			    good[n].name, i, m->m_pkthdr.csum_flags);
			m_freem(m);
		}
	}
	/* What can't be parsed is for the stack to judge, unmarked. */
	buf[14] = 0;
	m = kpi_mbuf_chain(buf, 60, NULL);
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_pkthdr.csum_flags == 0,
	    "0x%x", m->m_pkthdr.csum_flags);
	/* Where both are trusted it makes no difference what it is. */
	eth.if_capenable = CAPS;
	in.po_flags = VALID;
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE &&
	    m->m_pkthdr.csum_flags == (CSUM_DATA_VALID | CSUM_PSEUDO_HDR), "0x%x",
	    m->m_pkthdr.csum_flags);
	m->m_pkthdr.csum_flags = 0;
	/* And of what nothing is said, nothing. */
	in.po_flags = ECN;
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_pkthdr.csum_flags == 0,
	    "0x%x", m->m_pkthdr.csum_flags);
	m_freem(m);
	end();
}

/* A GSO packet of the version that is not forwarded stays whole. */
void
rx_each_version_is_forwarded_by_itself(const void *arg __unused)
{
	static const struct frame frames[] = { TCP_4, TCP_6 };
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct mbuf *m;
	size_t len;
	int i, n;

	for (i = 0; i < 2; i++) {
		begin(RX_ALL);
		V_ipforwarding = i == 0;
		V_ip6_forwarding = i == 1;
		for (n = 0; n < 2; n++) {
			len = frame_make(&frames[n], FRAME_PARTIAL, buf, NULL);
			memcpy(buf, lladdr, ETHER_ADDR_LEN);
			in = (struct pv_net_offload){ .po_flags = FIND,
			    .po_gso_type = n == 0 ? TCP4 : TCP6, .po_gso_size = 1000 };
			m = kpi_mbuf_chain(buf, len, NULL);
			CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE &&
			    (m->m_nextpkt != NULL) == (i == n), "%d, %d", i, n);
			(void)free_all(m);
		}
		end();
	}
}

/*
 * A stack without marks for partial checksums of received packets takes them for valid, and so is given
 * them partial where the packet has no way on: finished they would cost a pass over each.
 */
void
rx_what_ends_here_is_not_finished(const void *arg __unused)
{
	static const struct {
		const char	*name;
		bool		 partial;
		bool		 others, forwards, filtered, linked, bonded, listens, promisc;
		u_int		 caps, tags;
	} table[] = {
		{ "ours", true },
		{ "another host's", .others = true },
		{ "a router's", .forwards = true },
		{ "a filter's", .filtered = true },
		{ "netgraph's", .linked = true },
		{ "lagg's", .bonded = true },
		{ "a listener's", .listens = true },
		{ "netmap's", .caps = IFCAP_NETMAP },
		{ "a bridge's, or its span port's", .promisc = true },
		{ "a VLAN's", .tags = 1 },
	};
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = FIND };
	struct mbuf *m;
	struct frame f;
	size_t i, len;
	int v6;

	for (i = 0; !KEEPS && i < 2 * nitems(table); i++) {
		v6 = i % 2;
		begin(RX_ALL);
		eth.if_capenable |= table[i / 2].caps;
		V_ipforwarding = !v6 && table[i / 2].forwards;
		V_ip6_forwarding = v6 && table[i / 2].forwards;
		filters.head_nhooksin = table[i / 2].filtered;
		eth.if_l2com = table[i / 2].linked ? &eth.if_l2com : NULL;
		eth.if_type = table[i / 2].bonded ? IFT_IEEE8023ADLAG : IFT_ETHER;
		eth.if_flags = table[i / 2].promisc ? IFF_PROMISC : 0;
		if (table[i / 2].listens)
			bpf = &listeners;
		f = v6 ? (struct frame)F6 : (struct frame)U4;
		f.f_tags = table[i / 2].tags;
		len = frame_make(&f, FRAME_PARTIAL, buf, NULL);
		if (!table[i / 2].others)
			memcpy(buf, lladdr, ETHER_ADDR_LEN);
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && flat(m, after) == len &&
		    m->m_pkthdr.csum_flags == (CSUM_DATA_VALID | CSUM_PSEUDO_HDR) &&
		    m->m_pkthdr.csum_data == 0xffff, "%s", table[i / 2].name);
		CHECK(frame_sum_ok(&f, after, len) == !table[i / 2].partial, "%s",
		    table[i / 2].name);
		m_freem(m);
		end();
	}
}

/* GSO packets at the limits of length. */
void
rx_largest_gso_packets(const void *arg __unused)
{
	static const struct {
		struct gso	 g;
		u_int		 segsz;
	} table[] = {
		{ { "one segment", TCP_4, TCP4, FIND, 3000 }, 0 },
		{ { "two segments", TCP_4, TCP4, FIND, 2999 }, 2999 },
	};
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct mbuf *m;
	size_t i, len;

	begin(RX_ALL);
	for (i = 0; i < nitems(table) && KEEPS; i++) {
		len = frame_make(&table[i].g.f, FRAME_PARTIAL, buf, NULL);
		in = (struct pv_net_offload){ .po_flags = table[i].g.flags,
		    .po_gso_type = table[i].g.type, .po_gso_size = table[i].g.size };
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_nextpkt == NULL &&
		    (m->m_pkthdr.csum_flags & sum_mark(&table[i].g.f)) != 0 &&
		    m->m_pkthdr.tso_segsz == table[i].segsz &&
		    (m->m_pkthdr.csum_flags & CSUM_TSO) == (table[i].segsz == 2999 ? CSUM_IP_TSO : 0),
		    "%s: 0x%x, %u", table[i].g.name, m->m_pkthdr.csum_flags,
		    m->m_pkthdr.tso_segsz);
		(void)free_all(m);
	}
	end();
}

/* Headers for which there is no room, in a packet that has to be split. */
void
rx_headers_that_are_too_long_to_split(const void *arg __unused)
{
	static const struct frame f = { .f_ip = 6, .f_exts = 8, .f_extsize = 2048,
	    .f_proto = IPPROTO_TCP, .f_payload = 3000 };
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = FIND, .po_gso_type = TCP6, .po_gso_size = 1000 };
	struct mbuf *m;

	begin(RX_ALL);
	eth.if_capenable &= ~IFCAP_LRO;
	m = kpi_mbuf_chain(buf, frame_make(&f, FRAME_PARTIAL, buf, NULL), NULL);
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_NO_MEMORY && m == NULL, "split");
	end();
}

/* What is requested of the device, by what is enabled, what is forwarded and what was negotiated. */
void
rx_requests_what_is_of_use(const void *arg __unused)
{
	static const struct {
		const char	*name;
		u_int		 negotiated;
		int		 caps;
		bool		 forwards4, forwards6, can;
		u_int		 expect;
	} table[] = {
		{ "all", RX_ALL, CAPS, .expect = RX_ALL },
		{ "not what is sent", RX_ALL | TX_ALL, CAPS, .expect = RX_ALL },
		{ "datagrams", RX_ALL | PV_NET_RX_USO, CAPS, .expect = RX_ALL | PV_NET_RX_USO },
		{ "datagrams, -rxcsum6", RX_ALL | PV_NET_RX_USO, CAPS & ~IFCAP_RXCSUM_IPV6,
		    .expect = PV_NET_RXCSUM | PV_NET_LRO4 | PV_NET_LRO_ECN },
		{ "datagrams, -lro", RX_ALL | PV_NET_RX_USO, CAPS & ~IFCAP_LRO,
		    .expect = PV_NET_RXCSUM },
		{ "not more than negotiated", PV_NET_RXCSUM | PV_NET_LRO6, CAPS,
		    .expect = PV_NET_RXCSUM | PV_NET_LRO6 },
		{ "-lro", RX_ALL, CAPS & ~IFCAP_LRO, .expect = PV_NET_RXCSUM },
		{ "-rxcsum", RX_ALL, CAPS & ~IFCAP_RXCSUM, .expect = PV_NET_RXCSUM | PV_NET_LRO6 |
		    PV_NET_LRO_ECN },
		{ "-rxcsum6", RX_ALL, CAPS & ~IFCAP_RXCSUM_IPV6, .expect = PV_NET_RXCSUM |
		    PV_NET_LRO4 | PV_NET_LRO_ECN },
		{ "-rxcsum -rxcsum6", RX_ALL, IFCAP_LRO, .expect = 0 },
		{ "a router of IPv4", RX_ALL, CAPS, .forwards4 = true, .expect = PV_NET_RXCSUM |
		    PV_NET_LRO6 | PV_NET_LRO_ECN },
		{ "a router of IPv6", RX_ALL, CAPS, .forwards6 = true, .expect = PV_NET_RXCSUM |
		    PV_NET_LRO4 | PV_NET_LRO_ECN },
		{ "a router of both", RX_ALL, CAPS, .forwards4 = true, .forwards6 = true,
		    .expect = PV_NET_RXCSUM },
		{ "a router of big ones", RX_ALL, CAPS, .forwards4 = true, .forwards6 = true,
		    .can = true, .expect = RX_ALL },
	};
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		begin(table[i].negotiated);
		eth.if_capenable = table[i].caps;
		V_ipforwarding = table[i].forwards4;
		V_ip6_forwarding = table[i].forwards6;
		pv_net_lro_forward = table[i].can;
		CHECK(pv_net_rx_wanted(&pn) == table[i].expect, "%s: 0x%x", table[i].name,
		    pv_net_rx_wanted(&pn));
		end();
	}
}
