/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net's offload metadata of what is sent: marks that are right, that the device can't do, and
 * that are invalid.
 */

#include "pv_net_test.h"

/* What the device does not do is done here. */
void
tx_without_offloads(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload out;
	struct frame_at at;
	struct mbuf *m, *other;
	struct gso g;
	size_t i, len;

	begin(0);
	for (i = 0; i < nitems(good); i++) {
		g = (struct gso){ good[i].name, good[i].f };
		m = to_send(&g, buf, &at);
		/* Another mbuf shares these bytes, and keeps them. */
		other = m_copypacket(m, M_WAITOK);
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
		    out.po_flags == PV_NET_FINISH_CSUM, "%s: 0x%x", g.name, out.po_flags);
		m = pv_net_tx_soften(m, &out);
		len = flat(m, after);
		CHECK(frame_sum_ok(&g.f, after, len) && m->m_pkthdr.csum_flags == 0 &&
		    out.po_flags == 0, "%s: not finished", g.name);
		(void)flat(other, after);
		CHECK(memcmp(after, buf, len) == 0, "%s: another's were changed", g.name);
		m_freem(m);
		m_freem(other);
	}
	for (i = 0; i < nitems(gsos); i++) {
		g = gsos[i];
		m = to_send(&g, buf, &at);
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
		    (out.po_flags & PV_NET_SPLIT) != 0 && out.po_gso_type == NONE, "%s", g.name);
		check_segments(&g, pv_net_tx_soften(m, &out), buf, &at, false);
	}
	end();
}

/* A congestion mark that the device would put into each segment. */
void
tx_ecn_not_negotiated_is_split(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct pv_net_offload out;
	struct frame_at at;
	struct mbuf *m;

	begin(TX_ALL & ~PV_NET_TSO_ECN);
	m = to_send(&gsos[2], buf, &at);
	CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
	    (out.po_flags & PV_NET_SPLIT) != 0, "not split");
	check_segments(&gsos[2], pv_net_tx_soften(m, &out), buf, &at, false);
	end();
}

void
tx_tags_inside_of_tags_are_sent(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct gso g = { "two tags", { .f_tags = 2, .f_ip = 6, .f_proto = IPPROTO_UDP,
	    .f_payload = 10 } };
	struct pv_net_offload out;
	struct frame_at at;
	struct mbuf *m;

	begin(TX_ALL);
	m = to_send(&g, buf, &at);
	CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE && out.po_flags == NEEDS &&
	    out.po_csum_start == at.at_l4, "not sent");
	pn.pn_params.pnp_offloads |= PV_NET_UNTAGGED;
	CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
	    out.po_flags == PV_NET_FINISH_CSUM, "0x%x", out.po_flags);
	m_freem(m);
	end();
}

static const struct {
	const char	*name;
	enum pv_net_bad	 bad;
	struct frame	 f;
	u_int		 marks, data, size, at, value;
	size_t		 cut;
} tx_invalid[] = {
	{ "no IP", PV_NET_BAD_CSUM, F4, CSUM_IP_TCP, 16, 0, .at = 12, .value = 0x42 },
	{ "no protocol with a sum", PV_NET_BAD_CSUM, { .f_ip = 4, .f_proto = 47 }, CSUM_IP_TCP,
	    16 },
	{ "no protocol with a sum, nor a place", PV_NET_BAD_CSUM, { .f_ip = 4, .f_proto = 47 },
	    CSUM_IP_TCP, 0 },
	{ "segments of no protocol with a sum", PV_NET_BAD_CSUM, { .f_ip = 4, .f_proto = 47,
	    .f_payload = 3000 }, CSUM_IP_TCP | CSUM_IP_TSO, 16, 1000 },
	{ "another's place of the sum", PV_NET_BAD_CSUM, U4, CSUM_IP_UDP, 16 },
	{ "place of the sum at 65542", PV_NET_BAD_CSUM, U4, CSUM_IP_UDP, 65536 + 6 },
	{ "a fragment", PV_NET_BAD_CSUM, F4, CSUM_IP_TCP, 16, 0, .at = 20, .value = 0x20 },
	{ "cut in TCP's header", PV_NET_BAD_HEADERS, F4, CSUM_IP_TCP, 16, .cut = 50 },
	{ "cut in Ethernet's", PV_NET_BAD_SHORT, F4, CSUM_IP_TCP, 16, .cut = 10 },
	{ "three tags", PV_NET_FINE, { .f_tags = 3, .f_ip = 4, .f_proto = IPPROTO_TCP },
	    CSUM_IP_TCP, 16 },
	{ "9 extension headers", PV_NET_FINE, { .f_ip = 6, .f_exts = 9,
	    .f_proto = IPPROTO_TCP }, CSUM_IP6_TCP, 16 },
	{ "segments of 0", PV_NET_BAD_GSO_SIZE, F4, CSUM_IP_TCP | CSUM_IP_TSO, 16, 0 },
	{ "segments of as much as can be", PV_NET_FINE, F4, CSUM_IP_TCP | CSUM_IP_TSO, 16, 65495 },
	{ "segments of a byte more", PV_NET_BAD_GSO_SIZE, F4, CSUM_IP_TCP | CSUM_IP_TSO, 16,
	    65496 },
	{ "segments of 65535", PV_NET_BAD_GSO_SIZE, F4, CSUM_IP_TCP | CSUM_IP_TSO, 16, 65535 },
	{ "segmented datagrams", PV_NET_BAD_GSO_TYPE, U4, CSUM_IP_UDP | CSUM_IP_TSO, 6, 1000 },
	{ "IP version", PV_NET_BAD_HEADERS, F4, CSUM_IP_TCP, 16, .at = 14, .value = 0x55 },
	{ "IP header of 16", PV_NET_BAD_HEADERS, F4, CSUM_IP_TCP, 16, .at = 14, .value = 0x44 },
	{ "IP header over the packet", PV_NET_BAD_HEADERS, { .f_ip = 4, .f_proto = IPPROTO_UDP },
	    CSUM_IP_UDP, 6, .at = 14, .value = 0x4f },
	{ "IP length over the frame", PV_NET_BAD_HEADERS, F4, CSUM_IP_TCP, 16, .at = 16,
	    .value = 0xff },
	{ "IPv6 version", PV_NET_BAD_HEADERS, F6, CSUM_IP6_TCP, 16, .at = 14, .value = 0x40 },
	{ "IPv6 length over the frame", PV_NET_BAD_HEADERS, F6, CSUM_IP6_TCP, 16, .at = 18,
	    .value = 0xff },
	{ "TCP header of 16", PV_NET_BAD_HEADERS, F6, CSUM_IP6_TCP | CSUM_IP6_TSO, 16, 1000,
	    .at = 66, .value = 0x40 },
};

void
tx_invalid_marks_have_their_names(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct pv_net_offload out;
	enum pv_net_bad bad;
	struct mbuf *m;
	size_t i, len;

	begin(TX_ALL);
	for (i = 0; i < nitems(tx_invalid); i++) {
		len = frame_make(&tx_invalid[i].f, FRAME_PARTIAL, buf, NULL);
		if (tx_invalid[i].at != 0)
			buf[tx_invalid[i].at] = tx_invalid[i].value;
		m = kpi_mbuf_chain(buf, tx_invalid[i].cut != 0 ? tx_invalid[i].cut : len, NULL);
		m->m_pkthdr.csum_flags = tx_invalid[i].marks;
		m->m_pkthdr.csum_data = tx_invalid[i].data;
		m->m_pkthdr.tso_segsz = tx_invalid[i].size;
		bad = pv_net_tx_offload(&pn, m, &out);
		CHECK(bad == tx_invalid[i].bad, "%s: %d, not %d", tx_invalid[i].name, bad,
		    tx_invalid[i].bad);
		m_freem(m);
	}
	end();
}

/* A sum is stored in the headers: an mbuf that begins behind them stays, whoever else has it. */
void
tx_what_is_behind_the_headers_is_not_copied(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	size_t i, len, pieces[] = { 0, 0 };
	struct pv_net_offload out;
	struct mbuf *m, *first, *rest, *other;
	struct frame_at at;

	begin(0);
	for (i = 0; i < nitems(good); i++) {
		len = frame_make(&good[i].f, FRAME_PARTIAL, buf, &at);
		if (at.at_data + 100 > len)
			continue;
		pieces[0] = at.at_sum + sizeof(uint16_t);
		m = first = kpi_mbuf_chain(buf, len, pieces);
		rest = m->m_next;
		m->m_pkthdr.csum_flags = sum_mark(&good[i].f);
		m->m_pkthdr.csum_data = at.at_sum - at.at_l4;
		other = m_copym(m, pieces[0], M_COPYALL, M_WAITOK);
		CHECK(!M_WRITABLE(rest) && M_WRITABLE(first), "%s: nobody else has it", good[i].name);
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
		    out.po_flags == PV_NET_FINISH_CSUM, "%s: 0x%x", good[i].name, out.po_flags);
		m = pv_net_tx_soften(m, &out);
		CHECK(m == first && m->m_next == rest, "%s: copied", good[i].name);
		CHECK(flat(m, after) == len && frame_sum_ok(&good[i].f, after, len), "%s: not finished",
		    good[i].name);
		m_freem(m);
		m_freem(other);
	}
	end();
}

/* A length that is more than the frame has does not say where a sum ends: the frame does. */
void
sum_ends_with_the_frame_where_headers_make_no_sense(const void *arg __unused)
{
	static const struct {
		struct frame	 f;
		u_int		 at;
	} table[] = { { F4, 16 }, { F6, 18 }, { U4, 16 } };
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct frame_at at;
	struct mbuf *m;
	u_char *frame, was;
	size_t i, len;

	begin(0);
	for (i = 0; i < nitems(table); i++) {
		len = frame_make(&table[i].f, FRAME_PARTIAL, buf, &at);
		was = buf[table[i].at];
		buf[table[i].at] = 0xff;
		in = (struct pv_net_offload){ .po_flags = NEEDS, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(pv_net_sum_end(m, at.at_sum) == len, "%zu: %u of %zu", i,
		    pv_net_sum_end(m, at.at_sum), len);
		m_freem(m);
		/* Nothing behind it may be read. */
		frame = host_alloc(len, 1);
		memcpy(frame, buf, len);
		CHECK(pv_net_finish_frame(frame, len, &in), "%zu: not finished", i);
		frame[table[i].at] = was;
		CHECK(frame_sum_ok(&table[i].f, frame, len), "%zu: another sum", i);
		host_free(frame);
	}
	end();
}

/* IEEE 802.3 with LLC and SNAP (RFC 1042): headers are found behind exactly these bytes. */
void
headers_behind_llc_are_those_of_snap(const void *arg __unused)
{
	static const u_char snap[] = { 0xaa, 0xaa, 0x03, 0, 0, 0 };
	static const struct frame f = { .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 200 };
	static u_char buf[FRAME_MAX], frame[FRAME_MAX];
	struct pv_net_headers h;
	struct frame_at at;
	enum pv_net_bad bad;
	struct mbuf *m;
	u_int i, len;

	begin(0);
	len = frame_make(&f, FRAME_DONE, buf, &at);
	memcpy(frame, buf, 12);
	memcpy(frame + 14, snap, sizeof(snap));
	memcpy(frame + 20, buf + 12, len - 12);
	len += 8;
	frame[12] = (len - ETHER_HDR_LEN) >> 8;
	frame[13] = len - ETHER_HDR_LEN;
	for (i = 0; i <= sizeof(snap); i++) {
		/* One byte of it is another, and at last none. */
		if (i < sizeof(snap))
			frame[14 + i] ^= 1;
		m = kpi_mbuf_chain(frame, len, NULL);
		bad = pv_net_parse(m, &h);
		CHECK(bad == PV_NET_FINE && h.ph_opaque && h.ph_length == 12 && h.ph_end == len &&
		    h.ph_l3 == (i < sizeof(snap) ? 14u : 22u) && h.ph_l4 == (i < sizeof(snap) ? 0 :
		    at.at_l4 + 8), "byte %u: %d, headers at %u and %u", i, bad, h.ph_l3, h.ph_l4);
		m_freem(m);
		if (i < sizeof(snap))
			frame[14 + i] ^= 1;
	}
	/* A length of a byte more than there is makes no sense; what ends in SNAP has no headers. */
	frame[13]++;
	m = kpi_mbuf_chain(frame, len, NULL);
	CHECK(pv_net_parse(m, &h) == PV_NET_BAD_HEADERS && h.ph_end == len, "it ends at %u", h.ph_end);
	m_freem(m);
	frame[12] = 0;
	for (i = 7; i <= 8; i++) {
		frame[13] = i;
		m = kpi_mbuf_chain(frame, ETHER_HDR_LEN + i, NULL);
		bad = pv_net_parse(m, &h);
		CHECK(bad == (i == 7 ? PV_NET_FINE : PV_NET_BAD_SHORT) && h.ph_l4 == 0 && h.ph_l3 ==
		    (i == 7 ? 14u : 22u), "%u bytes: %d, headers at %u", i, bad, h.ph_l3);
		m_freem(m);
	}
	end();
}

void
no_memory_loses_the_packet_and_nothing_else(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in, out;
	struct frame_at at;
	struct mbuf *m;
	bool failed = true;
	size_t len;
	int n;

	begin(RX_ALL);
	eth.if_capenable &= ~IFCAP_LRO;
	len = frame_make(&gsos[0].f, FRAME_PARTIAL, buf, &at);
	in = (struct pv_net_offload){ .po_flags = FIND, .po_gso_type = TCP4, .po_gso_size = 1448 };
	for (n = 1; failed; n++) {
		m = kpi_mbuf_chain(buf, len, NULL);
		kpi_fail_after = n;
		failed = rx_offload(&pn, &m, &in) == PV_NET_NO_MEMORY;
		CHECK(failed == (m == NULL), "%d", n);
		kpi_fail_after = 0;
		(void)free_all(m);

		m = to_send(&gsos[0], buf, &at);
		(void)pv_net_tx_offload(&pn, m, &out);
		kpi_fail_after = n;
		(void)free_all(pv_net_tx_soften(m, &out));
		kpi_fail_after = 0;
		end();
	}
	CHECK(n > 14, "%d allocations for 7 segments", n);
}

/* A copy of headers is as large as it has to be, with 34 bytes of room before it. */
void
headers_have_the_memory_that_they_need(const void *arg __unused)
{
	static const struct {
		u_int	len, size;
	} table[] = {
		{ 54, 0 }, { MHLEN - 34, 0 }, { MHLEN - 33, MCLBYTES }, { MCLBYTES - 34, MCLBYTES },
		{ MCLBYTES - 33, MJUM16BYTES }, { MJUM16BYTES - 34, MJUM16BYTES },
		{ MJUM16BYTES - 33, 0 },
	};
	static u_char buf[FRAME_MAX], got[FRAME_MAX];
	struct mbuf *copy, *m;
	size_t i;

	begin(0);
	for (i = 0; i < sizeof(buf); i++)
		buf[i] = i * 7 + (i >> 8);
	m = kpi_mbuf_chain(buf, 20000, NULL);
	for (i = 0; i < nitems(table); i++) {
		copy = pv_net_copy_headers(m, table[i].len);
		CHECK((copy == NULL) == (table[i].len > MJUM16BYTES - 34), "%u bytes", table[i].len);
		if (copy == NULL)
			continue;
		CHECK(copy->m_len == (int)table[i].len && copy->m_nextpkt == NULL &&
		    ((copy->m_flags & M_EXT) != 0 ? copy->m_ext.ext_size : 0) == table[i].size &&
		    M_LEADINGSPACE(copy) == 34 && memcmp(copy->m_data, buf, copy->m_len) == 0,
		    "%u bytes", table[i].len);
		m_freem(copy);
		/* With the rest, which is shared. */
		copy = pv_net_copy_front(m, table[i].len);
		CHECK(copy != NULL && flat(copy, got) == 20000 && memcmp(got, buf, 20000) == 0,
		    "%u bytes", table[i].len);
		m_freem(copy);
	}
	m_freem(m);
	end();
}
