/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * GSO packets and segments for our own TCP: what they are marked with, and in which order they go up.
 * tcp_lro(9) is a list here that is handed up when it is flushed.
 */

#include "pv_net_test.h"

#define	MAX_UP	16

static struct mbuf *held[MAX_UP];
static u_int nheld, nup, nflushes;
static bool refuses;	/* tcp_lro(9) takes none */
static u_int up[MAX_UP];	/* the numbers of packets, as they went up */
static u_int up_flags, up_data;	/* csum_flags and csum_data of the last one */

/* The last byte of a packet is its number. */
static void
take(struct mbuf *m)
{
	u_char number;

	m_copydata(m, m->m_pkthdr.len - 1, 1, &number);
	CHECK(nup < MAX_UP, "too many packets");
	up_flags = m->m_pkthdr.csum_flags;
	up_data = m->m_pkthdr.csum_data;
	up[nup++] = number;
	m_freem(m);
}

void
if_input(if_t ifp __unused, struct mbuf *list)
{
	struct mbuf *m;

	while ((m = list) != NULL) {
		list = m->m_nextpkt;
		m->m_nextpkt = NULL;
		take(m);
	}
}

int
tcp_lro_rx(struct lro_ctrl *lc __unused, struct mbuf *m, uint32_t csum __unused)
{

	CHECK(m->m_pkthdr.csum_flags == (CSUM_DATA_VALID | CSUM_PSEUDO_HDR) &&
	    m->m_pkthdr.csum_data == 0xffff, "0x%x", m->m_pkthdr.csum_flags);
	if (refuses)
		return (TCP_LRO_CANNOT);
	held[nheld++] = m;
	return (0);
}

void
tcp_lro_flush_all(struct lro_ctrl *lc __unused)
{
	u_int i;

	nflushes++;
	for (i = 0; i < nheld; i++)
		take(held[i]);
	nheld = 0;
}

/* What our own TCP gets says how many segments it is, what may leave again how long they are. */
void
rx_gso_packet_has_its_segments(const void *arg __unused)
{
	static const struct {
		const char	*name;
		bool		 ours, forwards, segments, split;
		u_int		 payload, value;
	} table[] = {
		{ "ours", true, false, true, false, 3000, 3 },
		{ "one byte more", true, false, true, false, 3001, 4 },
		{ "another host's", false, false, false, !KEEPS, 3000, 1000 },
		{ "a router's", true, true, !KEEPS, false, 3000, KEEPS ? 1000 : 3 },
	};
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = FIND, .po_gso_type = TCP4, .po_gso_size = 1000 };
	struct frame f = F4;
	struct mbuf *m;
	size_t i, len;

	for (i = 0; i < nitems(table); i++) {
		begin(RX_ALL);
		V_ipforwarding = pv_net_lro_forward = table[i].forwards;
		f.f_payload = table[i].payload;
		len = frame_make(&f, FRAME_PARTIAL, buf, NULL);
		if (table[i].ours)
			memcpy(buf, lladdr, ETHER_ADDR_LEN);
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE &&
		    (m->m_nextpkt != NULL) == table[i].split, "%s", table[i].name);
		if (table[i].split) {
			(void)free_all(m);
			end();
			continue;
		}
		CHECK(m->m_pkthdr.lro_nsegs == table[i].value, "%s: %u", table[i].name,
		    m->m_pkthdr.lro_nsegs);
		CHECK(((m->m_pkthdr.csum_flags & CSUM_TSO) == 0) == table[i].segments, "%s: 0x%x",
		    table[i].name, m->m_pkthdr.csum_flags);
		m_freem(m);
		end();
	}
}

/* A packet for us: its number, its source port, and how it is marked. */
struct arrival {
	u_int	a_number;
	u_int	a_port;
	u_int	a_ip;
	u_int	a_proto;
	u_int	a_flags;	/* csum_flags */
	u_int	a_nsegs;
};

static struct mbuf *
arrive(const struct arrival *a)
{
	static u_char buf[FRAME_MAX];
	struct frame f = { .f_ip = a->a_ip, .f_proto = a->a_proto, .f_payload = 100 };
	struct frame_at at;
	struct mbuf *m;
	size_t len;

	len = frame_make(&f, FRAME_DONE, buf, &at);
	memcpy(buf, lladdr, ETHER_ADDR_LEN);
	buf[at.at_l4] = 0;
	buf[at.at_l4 + 1] = a->a_port;
	buf[len - 1] = a->a_number;
	m = kpi_mbuf_chain(buf, len, NULL);
	m->m_pkthdr.csum_flags = a->a_flags;
	m->m_pkthdr.csum_data = (a->a_flags & CSUM_DATA_VALID) != 0 ? 0xffff : 16;
	m->m_pkthdr.lro_nsegs = a->a_nsegs;
	return (m);
}

static void
begin_lro(struct pv_net_rxq *rxq)
{
	begin(RX_ALL);
	pn.pn_params.pnp_soft_lro = true;
	memset(rxq, 0, sizeof(*rxq));
	rxq->prq_pn = &pn;
	rxq->prq_merges = true;
	nup = nheld = nflushes = 0;
	pv_net_lro_init(rxq);
}

/* Acknowledgments, and what is not TCP, are not offered to tcp_lro(9). */
void
rx_only_data_is_merged(const void *arg __unused)
{
	static const struct {
		u_int	proto, payload, held;
	} table[] = { { IPPROTO_TCP, 1, 2 }, { IPPROTO_TCP, 0, 0 }, { IPPROTO_UDP, 1, 0 } };
	static u_char buf[FRAME_MAX];
	static struct pv_net_rxq rxq;
	struct mbuf *list, **tail;
	struct frame f = F4;
	size_t i, len;
	int n;

	for (i = 0; i < 2 * nitems(table); i++) {
		begin_lro(&rxq);
		f.f_ip = i % 2 == 0 ? 4 : 6;
		f.f_proto = table[i / 2].proto;
		f.f_payload = table[i / 2].payload;
		for (tail = &list, n = 0; n < 2; n++, tail = &(*tail)->m_nextpkt) {
			len = frame_make(&f, FRAME_DONE, buf, NULL);
			memcpy(buf, lladdr, ETHER_ADDR_LEN);
			*tail = kpi_mbuf_chain(buf, len, NULL);
			(*tail)->m_pkthdr.csum_flags = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
			(*tail)->m_pkthdr.csum_data = 0xffff;
		}
		pv_net_lro_input(&rxq, list);
		CHECK(nheld == table[i / 2].held && nheld + nup == 2, "%zu: %u are held", i, nheld);
		pv_net_lro_flush(&rxq);
		CHECK(nup == 2, "%zu: %u came", i, nup);
		/* Nor is what looks like it, in a protocol that is not IP. */
		for (tail = &list, n = 0; n < 2; n++, tail = &(*tail)->m_nextpkt) {
			buf[12] = 0x88;
			buf[13] = 0xb5;
			buf[ETHER_HDR_LEN + 6] = buf[ETHER_HDR_LEN + 9] = IPPROTO_TCP;
			*tail = kpi_mbuf_chain(buf, len, NULL);
			(*tail)->m_pkthdr.csum_flags = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
			(*tail)->m_pkthdr.csum_data = 0xffff;
		}
		nup = 0;
		pv_net_lro_input(&rxq, list);
		CHECK(nheld == 0 && nup == 2, "%zu: %u are held", i, nheld);
		/* Of a batch of which that is known, none is offered. */
		rxq.prq_merges = false;
		list = kpi_mbuf_chain(buf, len, NULL);
		list->m_nextpkt = kpi_mbuf_chain(buf, len, NULL);
		nup = 0;
		pv_net_lro_input(&rxq, list);
		CHECK(nheld == 0 && nup == 2, "%zu: %u are held, %u came", i, nheld, nup);
		pv_net_lro_free(&rxq);
		end();
	}
}

void
rx_nothing_overtakes_its_flow(const void *arg __unused)
{
	static const u_int good = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	const struct arrival packets[] = {
		{ 0, 10, 4, IPPROTO_TCP, good, 0 },
		{ 1, 11, 6, IPPROTO_TCP, good, 0 },
		/* No packet of these flows is held. */
		{ 2, 12, 4, IPPROTO_TCP, good, 3 },
		{ 3, 10, 4, IPPROTO_UDP, CSUM_IP_UDP, 0 },
		/* Of these there is. */
		{ 4, 10, 4, IPPROTO_TCP, good, 3 },
		{ 5, 10, 4, IPPROTO_TCP, good, 0 },
		{ 6, 11, 6, IPPROTO_TCP, good, 0 },
		{ 7, 11, 6, IPPROTO_TCP, 0, 0 },
		{ 8, 10, 4, IPPROTO_TCP, good, 0 },
	};
	static const u_int order[] = { 2, 3, 0, 1, 4, 5, 6, 7, 8 };
	struct mbuf *list = NULL, **tail = &list;
	static struct pv_net_rxq rxq;
	size_t i;

	begin_lro(&rxq);
	for (i = 0; i < nitems(packets); i++) {
		*tail = arrive(&packets[i]);
		tail = &(*tail)->m_nextpkt;
	}
	pv_net_lro_input(&rxq, list);
	CHECK(nheld == 1 && rxq.prq_held != 0, "%u packets are held", nheld);
	pv_net_lro_flush(&rxq);
	CHECK(rxq.prq_held == 0, "what went up is held");
	CHECK(nup == nitems(order) && nflushes == 3, "%u packets, %u flushes", nup, nflushes);
	for (i = 0; i < nitems(order); i++)
		CHECK(up[i] == order[i], "packet %u in place of %u", up[i], order[i]);
	/* What is refused goes up, and is not waited for. */
	nup = nflushes = 0;
	refuses = true;
	list = arrive(&packets[0]);
	list->m_nextpkt = arrive(&packets[1]);
	pv_net_lro_input(&rxq, list);
	CHECK(nup == 2 && nflushes == 0 && rxq.prq_held == 0, "%u packets", nup);
	/* As it came: another protocol's listener may know more marks. */
	list = arrive(&(const struct arrival){ 0, 10, 4, IPPROTO_TCP, CSUM_IP_TCP, 0 });
	list->m_nextpkt = arrive(&(const struct arrival){ 1, 10, 4, IPPROTO_TCP, CSUM_IP_TCP, 0 });
	nup = 0;
	pv_net_lro_input(&rxq, list);
	CHECK(nup == 2 && up_flags == CSUM_IP_TCP && up_data == 16, "0x%x, %u", up_flags, up_data);
	refuses = false;
	/* What comes alone is not held. */
	nup = 0;
	pv_net_rx_input(&rxq, arrive(&packets[0]));
	CHECK(nup == 1 && rxq.prq_held == 0, "%u packets", nup);
	/* That is so of each flow. */
	for (i = 0; i < 256; i++) {
		nup = nflushes = 0;
		list = arrive(&(const struct arrival){ 0, i, 4, IPPROTO_TCP, good, 0 });
		list->m_nextpkt = arrive(&(const struct arrival){ 1, i, 4, IPPROTO_TCP, good, 3 });
		pv_net_lro_input(&rxq, list);
		CHECK(nup == 2 && nflushes == 1 && up[0] == 0 && up[1] == 1, "port %zu: overtaken", i);
	}
	/* Switched off, nothing is held, and what was held goes first. */
	nup = 0;
	list = arrive(&packets[0]);
	list->m_nextpkt = arrive(&packets[3]);
	pv_net_lro_input(&rxq, list);
	CHECK(nup == 1 && up[0] == 3 && rxq.prq_held != 0, "%u packets", nup);
	nup = 0;
	eth.if_capenable &= ~IFCAP_LRO;
	pv_net_lro_input(&rxq, arrive(&packets[1]));
	CHECK(nup == 2 && up[0] == 0 && up[1] == 1, "%u packets", nup);
	pv_net_lro_free(&rxq);
	end();
}

/*
 * Of a packet that goes around tcp_lro(9), its ports say whether its flow is held, if they are in the
 * first piece; all that is held goes before one whose ports are not.  No byte behind a piece is read.
 */
void
rx_ports_that_are_not_in_sight(const void *arg __unused)
{
	static const struct frame frames[] = {
		{ .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 100 },
		{ .f_ip = 4, .f_ipopts = 8, .f_proto = IPPROTO_TCP, .f_payload = 100 },
		{ .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 100 },
		{ .f_tags = 1, .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 100 },
		{ .f_tags = 1, .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 100 },
	};
	static const u_int good = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	static const struct arrival held_one = { 0, 10, 4, IPPROTO_TCP, good, 0 };
	static u_char buf[FRAME_MAX];
	static struct pv_net_rxq rxq;
	struct frame_at at;
	struct mbuf *list;
	size_t pieces[2] = { 0, 0 }, len;
	u_int i;

	for (i = 0; i < nitems(frames); i++) {
		len = frame_make(&frames[i], FRAME_DONE, buf, &at);
		buf[at.at_l4] = 0;
		buf[at.at_l4 + 1] = 11;
		for (pieces[0] = ETHER_HDR_LEN; pieces[0] < at.at_l4 + 8; pieces[0]++) {
			begin_lro(&rxq);
			list = arrive(&held_one);
			list->m_nextpkt = arrive(&held_one);
			pv_net_lro_input(&rxq, list);
			CHECK(nheld == 2, "%u are held", nheld);
			pv_net_lro_input(&rxq, kpi_mbuf_chain(buf, len, pieces));
			CHECK((nflushes == 1) == (pieces[0] < at.at_l4 + 4),
			    "frame %u, %zu bytes: %u flushes", i, pieces[0], nflushes);
			pv_net_lro_flush(&rxq);
			CHECK(nup == 3, "%u came", nup);
			pv_net_lro_free(&rxq);
			end();
		}
	}
}
