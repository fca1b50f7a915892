/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net's offload metadata, most of it of what is received: frames of every kind, their headers cut
 * into mbufs at every place, and all invalid values about them.
 *
 * Compiled twice, for FreeBSD 15, whose stack takes partial checksums, and for 14, whose does not.
 */

#include "pv_net_test.h"

/* A good frame, received in pieces of these lengths. */
static void
receive_good(size_t n, const size_t *pieces, u_int flags)
{
	static u_char before[FRAME_MAX], after[FRAME_MAX];
	const struct frame *f = &good[n].f;
	struct frame_at at;
	struct pv_net_offload in = { .po_flags = flags }, out;
	enum pv_net_bad bad;
	struct mbuf *m;
	size_t len;

	len = frame_make(f, FRAME_PARTIAL, before, &at);
	in.po_csum_start = at.at_l4;
	in.po_csum_offset = at.at_sum - at.at_l4;
	m = kpi_mbuf_chain(before, len, pieces);
	bad = rx_offload(&pn, &m, &in);
	CHECK(bad == PV_NET_FINE && m->m_nextpkt == NULL, "%s: %d", good[n].name, bad);
	CHECK(flat(m, after) == len, "%s: length", good[n].name);
	if (KEEPS) {
		CHECK(memcmp(before, after, len) == 0, "%s: was changed", good[n].name);
		CHECK(m->m_pkthdr.csum_flags == sum_mark(f) &&
		    m->m_pkthdr.csum_data == in.po_csum_offset, "%s: marks 0x%x, data %u",
		    good[n].name, m->m_pkthdr.csum_flags, m->m_pkthdr.csum_data);
		/* Out by another interface, as it came. */
		bad = pv_net_tx_offload(&pn, m, &out);
		in.po_flags = NEEDS;
		CHECK(bad == PV_NET_FINE && memcmp(&in, &out, sizeof(in)) == 0,
		    "%s: %d, flags 0x%x, start %u, offset %u", good[n].name, bad, out.po_flags,
		    out.po_csum_start, out.po_csum_offset);
	} else {
		CHECK(frame_sum_ok(f, after, len), "%s: not finished", good[n].name);
		CHECK(m->m_pkthdr.csum_flags == (CSUM_DATA_VALID | CSUM_PSEUDO_HDR) &&
		    m->m_pkthdr.csum_data == 0xffff, "%s: marks 0x%x", good[n].name,
		    m->m_pkthdr.csum_flags);
	}
	m_freem(m);
}

static void
rx_needs_csum_stays_partial_when_forwarded(const void *arg)
{
	u_int flags = *(const u_int *)arg;
	size_t cut, n, pieces[4], single[200];

	begin(RX_ALL | TX_ALL);
	for (n = 0; n < nitems(single); n++)
		single[n] = n < nitems(single) - 1;
	for (n = 0; n < nitems(good); n++) {
		receive_good(n, NULL, flags);
		receive_good(n, single, flags);
		for (cut = 1; cut < 140; cut++) {
			pieces[0] = cut;
			pieces[1] = 0;
			receive_good(n, pieces, flags);
			pieces[1] = 3;
			pieces[2] = 7;
			pieces[3] = 0;
			receive_good(n, pieces, flags);
		}
	}
	end();
}

/* It is finished where necessary, and marked as valid if that is enabled. */
static void
finished(u_int caps, bool listens, u_int expect)
{
	static u_char buf[FRAME_MAX];
	static const size_t pieces[] = { 20, 11, 30, 0 };
	struct pv_net_offload in;
	struct frame_at at;
	struct mbuf *m;
	size_t len, n;

	begin(RX_ALL);
	eth.if_capenable = caps;
	if (listens)
		bpf = &listeners;
	for (n = 0; n < nitems(good); n++) {
		len = frame_make(&good[n].f, FRAME_PARTIAL, buf, &at);
		in = (struct pv_net_offload){ .po_flags = NEEDS | VALID, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		m = kpi_mbuf_chain(buf, len, pieces);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE, "%s", good[n].name);
		CHECK(flat(m, buf) == len && frame_sum_ok(&good[n].f, buf, len), "%s: not finished",
		    good[n].name);
		CHECK(m->m_pkthdr.csum_flags == expect, "%s: 0x%x", good[n].name,
		    m->m_pkthdr.csum_flags);
		m_freem(m);
	}
	end();
}

static void
rx_listeners_see_finished_sums(const void *arg __unused)
{

	finished(CAPS, true, CSUM_DATA_VALID | CSUM_PSEUDO_HDR);
}

static void
rx_without_rxcsum_is_finished_and_unmarked(const void *arg __unused)
{

	finished(0, false, 0);
	finished(IFCAP_LRO, true, 0);
}

static void
rx_data_valid_is_not_partial(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = VALID };
	struct mbuf *m;
	size_t len, n;

	begin(RX_ALL);
	for (n = 0; n < nitems(good); n++) {
		len = frame_make(&good[n].f, FRAME_DONE, buf, NULL);
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE, "%s", good[n].name);
		CHECK(m->m_pkthdr.csum_flags == (CSUM_DATA_VALID | CSUM_PSEUDO_HDR) &&
		    m->m_pkthdr.csum_data == 0xffff, "%s: 0x%x", good[n].name,
		    m->m_pkthdr.csum_flags);
		CHECK(flat(m, after) == len && memcmp(buf, after, len) == 0, "%s", good[n].name);
		m->m_pkthdr.csum_flags = 0;
		eth.if_capenable = 0;
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE &&
		    m->m_pkthdr.csum_flags == 0, "off");
		eth.if_capenable = CAPS;
		m_freem(m);
	}
	end();
}

/* A sum that is none of TCP's or UDP's header: of a tunnel's inside, or of a fragment. */
static void
rx_other_sums_are_finished(const void *arg __unused)
{
	static const struct frame tunnel = { .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 400 };
	static const struct frame other = { .f_ip = 4, .f_proto = 47, .f_payload = 400 };
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = NEEDS, .po_csum_offset = 16 };
	const struct frame *f;
	struct frame_at at;
	uint64_t before;
	struct mbuf *m;
	size_t len;
	int i;

	begin(RX_ALL);
	for (i = 0; i < 3; i++) {
		f = i == 0 ? &tunnel : &other;
		len = frame_make(f, FRAME_DONE, buf, &at);
		if (i == 2) {	/* no IP at all */
			buf[12] = 0x88;
			buf[13] = 0x64;
		}
		in.po_csum_start = at.at_l4 + 50;
		before = frame_add(0, buf + in.po_csum_start + in.po_csum_offset, 2);
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE &&
		    m->m_pkthdr.csum_flags == 0, "%d", i);
		(void)flat(m, buf);
		CHECK(frame_fold(frame_add(before, buf + in.po_csum_start,
		    len - in.po_csum_start)) == 0xffff, "%d: not finished", i);
		m_freem(m);
	}
	end();
}

/* In UDP zero would mean that there is none; in TCP ones would be what no sender makes. */
static void
sum_of_zero_is_ones_in_udp_only(const void *arg __unused)
{
	static const struct frame each[] = {
		{ .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 2 },
		{ .f_ip = 6, .f_proto = IPPROTO_UDP, .f_payload = 2 },
		{ .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 2 },
		{ .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 2 },
	};
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = FIND };
	u_int i, ones, rest;
	struct frame_at at;
	struct mbuf *m;
	size_t len;

	begin(RX_ALL);
	eth.if_capenable = 0;
	for (i = 0; i < nitems(each); i++) {
		len = frame_make(&each[i], FRAME_PARTIAL, buf, &at);
		buf[at.at_data] = buf[at.at_data + 1] = 0;
		rest = frame_fold(frame_add(0, buf + at.at_l4, len - at.at_l4)) ^ 0xffff;
		buf[at.at_data] = rest >> 8;
		buf[at.at_data + 1] = rest;
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE, "refused");
		(void)flat(m, buf);
		ones = each[i].f_proto == IPPROTO_UDP ? 0xff : 0;
		CHECK(buf[at.at_sum] == ones && buf[at.at_sum + 1] == ones, "%u: %02x%02x", i,
		    buf[at.at_sum], buf[at.at_sum + 1]);
		m_freem(m);
	}
	end();
}

/* Where a GSO packet is sent to, if not to our own address, and a byte of it that is changed. */
static const u_char *gso_to;
static u_int gso_at, gso_value;

static struct mbuf *
gso_receive(const struct gso *g, u_char *buf, struct frame_at *at, struct pv_net_offload *in)
{
	static const size_t pieces[] = { 33, 11, 2000, 4096, 4096, 0 };
	enum pv_net_bad bad;
	struct mbuf *m;
	size_t len;

	len = frame_make(&g->f, (g->flags & VALID) != 0 ? FRAME_DONE : FRAME_PARTIAL, buf, at);
	*in = (struct pv_net_offload){ .po_flags = g->flags, .po_gso_type = g->type,
	    .po_gso_size = g->size, .po_csum_start = at->at_l4,
	    .po_csum_offset = at->at_sum - at->at_l4 };
	if (gso_to != NULL)
		memcpy(buf, gso_to, ETHER_ADDR_LEN);
	if (gso_at != 0)
		buf[gso_at] = gso_value;
	m = kpi_mbuf_chain(buf, len, pieces);
	bad = rx_offload(&pn, &m, in);
	CHECK(bad == PV_NET_FINE, "%s: %d", g->name, bad);
	return (m);
}

/* What left its sender in one goes on in one. */
static void
rx_big_frame_leaves_as_tso(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], after[FRAME_MAX], partial[FRAME_MAX];
	struct pv_net_offload in, out;
	struct frame_at at;
	const struct gso *g;
	struct mbuf *m;
	size_t len;

	begin(RX_ALL | TX_ALL);
	/* Where it can't be marked, it stays whole only if lro_forward is set. */
	pv_net_lro_forward = !KEEPS;
	for (g = gsos; g < gsos + nitems(gsos); g++) {
		m = gso_receive(g, buf, &at, &in);
		CHECK(m->m_nextpkt == NULL && m->m_pkthdr.tso_segsz == (KEEPS ? g->size :
		    howmany(g->f.f_payload, g->size)), "%s", g->name);
		len = flat(m, after);
		if (!KEEPS) {
			CHECK((m->m_pkthdr.csum_flags & CSUM_TSO) == 0 &&
			    frame_sum_ok(&g->f, after, len), "%s", g->name);
			m_freem(m);
			continue;
		}
		CHECK(m->m_pkthdr.csum_flags == (sum_mark(&g->f) |
		    (g->f.f_ip == 6 ? CSUM_IP6_TSO : CSUM_IP_TSO)), "%s: 0x%x", g->name,
		    m->m_pkthdr.csum_flags);
		frame_make(&g->f, FRAME_PARTIAL, partial, NULL);
		CHECK(memcmp(after, partial, len) == 0, "%s: was changed", g->name);
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE, "%s: is not sent", g->name);
		CHECK(out.po_flags == (NEEDS | (g->flags & ECN)) && out.po_gso_type == g->type &&
		    out.po_gso_size == g->size && out.po_csum_start == at.at_l4 &&
		    out.po_hdr_len == at.at_data, "%s: sent in another way", g->name);
		m_freem(m);
	}
	end();
}

static void
rx_split_where_big_will_not_do(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct frame_at at;
	const struct gso *g;
	struct mbuf *m;
	int i;

	for (i = 0; i < 3; i++) {
		begin(RX_ALL);
		for (g = gsos; g < gsos + nitems(gsos); g++) {
			eth.if_capenable = i == 0 ? CAPS & ~IFCAP_LRO : i == 2 ? 0 : CAPS;
			if (i == 1)
				V_ipforwarding = V_ip6_forwarding = 1;
			m = gso_receive(g, buf, &at, &in);
			check_segments(g, m, buf, &at, !KEEPS || i == 2);
		}
		end();
	}
	begin(RX_ALL);
	V_ipforwarding = V_ip6_forwarding = pv_net_lro_forward = 1;
	m = gso_receive(&gsos[0], buf, &at, &in);
	CHECK(m->m_nextpkt == NULL, "split, though the kernel forwards big ones");
	m_freem(m);
	end();
}

static void
rx_big_frame_seen_by_a_listener(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload in, out;
	struct frame_at at;
	struct mbuf *m;
	const struct gso *g;
	size_t len;

	begin(RX_ALL | TX_ALL);
	/* Where it can't be marked, it stays whole only if lro_forward is set. */
	pv_net_lro_forward = !KEEPS;
	bpf = &listeners;
	for (g = gsos; g < gsos + nitems(gsos); g++) {
		if ((g->flags & VALID) != 0)
			continue;
		m = gso_receive(g, buf, &at, &in);
		len = flat(m, after);
		CHECK(frame_sum_ok(&g->f, after, len), "%s: not finished", g->name);
		if (KEEPS) {
			CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
			    out.po_gso_type == g->type && (out.po_flags & PV_NET_UNFINISH) != 0,
			    "%s: not sent", g->name);
			m = pv_net_tx_soften(m, &out);
			len = flat(m, after);
			CHECK(memcmp(after, buf, len) == 0 &&
			    out.po_flags == (NEEDS | (g->flags & ECN)), "%s: not partial again",
			    g->name);
			CHECK((m->m_pkthdr.csum_flags & sum_mark(&g->f)) != 0, "%s: 0x%x", g->name,
			    m->m_pkthdr.csum_flags);
		}
		m_freem(m);
	}
	end();
}

static const struct invalid {
	const char	*name;
	enum pv_net_bad	 bad;
	struct frame	 f;
	u_int		 offloads, flags, type, size;
	int		 start, offset;	/* added to the right ones */
	u_int		 at, value;	/* a byte of the frame, or two, not what they were */
	size_t		 cut;		/* the frame ends here */
} invalid[] = {
	/* too short */
	{ "in the Ethernet type", PV_NET_BAD_SHORT, F4, RX_ALL, NEEDS, .cut = 13 },
	{ "behind Ethernet's header", PV_NET_BAD_SHORT, F4, RX_ALL, NEEDS, .cut = 14 },
	{ "in IP's header", PV_NET_BAD_SHORT, F4, RX_ALL, NEEDS, .cut = 33 },
	{ "in IPv6's header", PV_NET_BAD_SHORT, F6, RX_ALL, NEEDS, .cut = 53 },
	{ "in TCP's header", PV_NET_BAD_SHORT, F4, RX_ALL, NEEDS, .cut = 50, .at = 16,
	    .value = 0x000024 },
	{ "big, in IP's header", PV_NET_BAD_SHORT, F4, RX_ALL, NEEDS, TCP4, 1000, .cut = 30 },
	{ "in the tag", PV_NET_BAD_SHORT, { .f_tags = 1, .f_ip = 4, .f_proto = IPPROTO_TCP },
	    RX_ALL, NEEDS, .cut = 16 },
	{ "in an extension header", PV_NET_BAD_HEADERS, { .f_ip = 6, .f_exts = 1,
	    .f_proto = IPPROTO_TCP }, RX_ALL, NEEDS, .cut = 55 },
	{ "in TCP's header's last byte", PV_NET_FINE, { .f_ip = 4, .f_proto = IPPROTO_TCP,
	    .f_payload = 8 }, RX_ALL, NEEDS, .cut = 53, .at = 17, .value = 39 },
	{ "in UDP's header's last byte", PV_NET_BAD_SHORT, { .f_ip = 4, .f_proto = IPPROTO_UDP,
	    .f_payload = 8 }, RX_ALL, NEEDS, .cut = 41, .at = 17, .value = 27 },
	{ "an extension header of a byte", PV_NET_BAD_SHORT, { .f_ip = 6, .f_exts = 1,
	    .f_proto = IPPROTO_TCP }, RX_ALL, NEEDS, .cut = 55, .at = 19, .value = 1 },
	{ "an extension header, and no more", PV_NET_BAD_SHORT, { .f_ip = 6, .f_exts = 1,
	    .f_proto = IPPROTO_TCP }, RX_ALL, NEEDS, .cut = 62, .at = 19, .value = 8 },
	/* lengths of headers */
	{ "IP version", PV_NET_FINE, F4, RX_ALL, NEEDS, .at = 14, .value = 0x55 },
	{ "IPv6 version", PV_NET_FINE, F6, RX_ALL, NEEDS, .at = 14, .value = 0x40 },
	{ "IP header of 16", PV_NET_FINE, F4, RX_ALL, NEEDS, .at = 14, .value = 0x44 },
	{ "IP header over the packet", PV_NET_FINE, { .f_ip = 4, .f_proto = IPPROTO_UDP },
	    RX_ALL, NEEDS, .at = 14, .value = 0x4f },
	{ "IP length over the frame", PV_NET_FINE, F4, RX_ALL, NEEDS, .at = 16,
	    .value = 0xff },
	{ "IPv6 length over the frame", PV_NET_FINE, F6, RX_ALL, NEEDS, .at = 18,
	    .value = 0xff },
	{ "TCP header of 16", PV_NET_FINE, F4, RX_ALL, NEEDS, .at = 46, .value = 0x40 },
	{ "TCP header over the packet", PV_NET_FINE, { .f_ip = 4,
	    .f_proto = IPPROTO_TCP, .f_payload = 8 }, RX_ALL, NEEDS, .at = 46, .value = 0xf0 },
	{ "UDP length of 0", PV_NET_FINE, { .f_ip = 4, .f_proto = IPPROTO_UDP,
	    .f_payload = 8 }, RX_ALL, NEEDS, .at = 39, .value = 0 },
	{ "UDP length of 7", PV_NET_FINE, { .f_ip = 4, .f_proto = IPPROTO_UDP,
	    .f_payload = 8 }, RX_ALL, NEEDS, .at = 39, .value = 7 },
	{ "UDP length over the packet", PV_NET_FINE, U4, RX_ALL, NEEDS, .at = 38,
	    .value = 0xff },
	{ "big, TCP header over it", PV_NET_BAD_HEADERS, { .f_ip = 4, .f_proto = IPPROTO_TCP,
	    .f_payload = 8 }, RX_ALL, NEEDS, TCP4, 1, .at = 46, .value = 0xf0 },
	{ "big, IP length short of it", PV_NET_BAD_HEADERS, F4, RX_ALL, NEEDS, TCP4, 1000,
	    .at = 17, .value = 0 },
	{ "big, in PPPoE's header", PV_NET_BAD_SHORT, F4, RX_ALL, NEEDS, TCP4, 1000, .cut = 18,
	    .at = 12, .value = 0x8864 },
	{ "big, PPPoE's length of 0", PV_NET_BAD_HEADERS, F4, RX_ALL, NEEDS, TCP4, 1000, .at = 12,
	    .value = 0x8864 },
	{ "big, IP version", PV_NET_BAD_HEADERS, F4, RX_ALL, NEEDS, TCP4, 1000, .at = 14,
	    .value = 0x55 },
	{ "big, IP header of 16", PV_NET_BAD_HEADERS, F4, RX_ALL, NEEDS, TCP4, 1000, .at = 14,
	    .value = 0x44 },
	{ "big, IPv6 version", PV_NET_BAD_HEADERS, F6, RX_ALL, NEEDS, TCP6, 1000, .at = 14,
	    .value = 0x40 },
	{ "big, without data", PV_NET_BAD_HEADERS, { .f_ip = 4, .f_proto = IPPROTO_TCP }, RX_ALL,
	    NEEDS, TCP4, 1000 },
	/* extension headers */
	{ "9 extension headers", PV_NET_FINE, { .f_ip = 6, .f_exts = 9,
	    .f_proto = IPPROTO_TCP }, RX_ALL, NEEDS },
	{ "extension header over the packet", PV_NET_FINE, { .f_ip = 6, .f_exts = 1,
	    .f_proto = IPPROTO_TCP, .f_payload = 100 }, RX_ALL, NEEDS, .at = 55, .value = 0xff },
	{ "a routing header", PV_NET_FINE, { .f_ip = 6, .f_exts = 2, .f_proto = IPPROTO_TCP },
	    RX_ALL, FIND, .at = 54, .value = IPPROTO_ROUTING },
	/* tags */
	{ "VLAN in VLAN", PV_NET_FINE, { .f_tags = 2, .f_ip = 4, .f_proto = IPPROTO_TCP },
	    RX_ALL, NEEDS },
	{ "tags without end", PV_NET_FINE, { .f_tags = 300, .f_ip = 4,
	    .f_proto = IPPROTO_TCP }, RX_ALL, NEEDS },
	/* places of the sum */
	{ "start behind the end", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .start = 3100 },
	{ "start at 65535", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .start = 65535 - 34 },
	{ "field behind the end", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .offset = 4000 },
	{ "field across the end", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .offset = 3003 },
	{ "offset of 65535", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .offset = 65535 - 16 },
	{ "start in Ethernet's header", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .start = -34 },
	{ "start in IP's header", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, .start = -10 },
	{ "start in IPv6's header", PV_NET_BAD_CSUM, F6, RX_ALL, NEEDS, .start = -10 },
	{ "start at the transport header, of another field", PV_NET_FINE, F4, RX_ALL, NEEDS,
	    .offset = 2 },
	{ "field at the end", PV_NET_FINE, F4, RX_ALL, NEEDS, .offset = 3002 },
	{ "no IP, start in its header's place", PV_NET_FINE, F4, RX_ALL, NEEDS, .start = -1,
	    .at = 12, .value = 0x88 },
	{ "no IP, start behind it", PV_NET_FINE, F4, RX_ALL, NEEDS, .at = 12, .value = 0x88 },
	{ "to be found in the last fragment", PV_NET_BAD_CSUM, F4, RX_ALL, FIND, .at = 21,
	    .value = 1 },
	{ "to be found in a fragment of IPv6", PV_NET_BAD_CSUM, F6, RX_ALL, FIND, .at = 20,
	    .value = IPPROTO_FRAGMENT },
	{ "to be found, where none is", PV_NET_BAD_CSUM, { .f_ip = 4, .f_proto = 47,
	    .f_payload = 100 }, RX_ALL, FIND },
	{ "to be found in a fragment", PV_NET_BAD_CSUM, F4, RX_ALL, FIND, .at = 20,
	    .value = 0x20 },
	{ "not negotiated", PV_NET_FINE, F4, 0, NEEDS },
	{ "good, which was not asked for", PV_NET_FINE, F4, 0, VALID },
	{ "big, neither partial nor good", PV_NET_BAD_CSUM, F4, RX_ALL, 0, TCP4, 1000 },
	{ "big, of another header", PV_NET_BAD_CSUM, F4, RX_ALL, NEEDS, TCP4, 1000,
	    .start = 20 },
	/* kinds */
	{ "a kind that there is not", PV_NET_BAD_GSO_TYPE, F4, RX_ALL, NEEDS, PV_NET_GSO_OTHER,
	    1000 },
	{ "one with a congestion mark", PV_NET_BAD_GSO_TYPE, F4, RX_ALL | TX_ALL, NEEDS | ECN,
	    PV_NET_GSO_OTHER, 1000 },
	{ "one where all is negotiated", PV_NET_BAD_GSO_TYPE, F4, RX_ALL | TX_ALL, NEEDS,
	    PV_NET_GSO_OTHER, 1000 },
	{ "UDP of TCP", PV_NET_BAD_GSO_TYPE, F4, RX_ALL, NEEDS, UDP, 1000 },
	{ "UDP with a congestion mark", PV_NET_BAD_GSO_TYPE, U6, RX_ALL, NEEDS | ECN, UDP, 1000 },
	{ "UDP in segments of 0", PV_NET_BAD_GSO_SIZE, U6, RX_ALL, NEEDS, UDP, 0 },
	{ "fragments of TCP", PV_NET_BAD_GSO_TYPE, F4, RX_ALL, NEEDS, PV_NET_GSO_FRAGMENTS, 1000 },
	{ "kind 65535", PV_NET_BAD_GSO_TYPE, F4, RX_ALL, NEEDS, 0xffff, 1000 },
	{ "ECN not negotiated, nor used", PV_NET_FINE, F4, RX_ALL & ~PV_NET_LRO_ECN, NEEDS, TCP4,
	    1000 },
	{ "TCP4 of an IPv6 packet", PV_NET_BAD_GSO_TYPE, F6, RX_ALL, NEEDS, TCP4, 1000 },
	{ "TCP6 of a datagram", PV_NET_BAD_GSO_TYPE, U6, RX_ALL, NEEDS, TCP6, 1000 },
	{ "a fragment where all is negotiated", PV_NET_BAD_GSO_TYPE, F4, RX_ALL | TX_ALL, NEEDS,
	    TCP4, 1000, .at = 20, .value = 0x20 },
	{ "TCP6 of an IPv4 packet", PV_NET_BAD_GSO_TYPE, F4, RX_ALL, NEEDS, TCP6, 1000 },
	{ "TCP4 of a datagram", PV_NET_BAD_GSO_TYPE, U4, RX_ALL, NEEDS, TCP4, 1000 },
	{ "a fragment", PV_NET_BAD_GSO_TYPE, F4, RX_ALL, NEEDS, TCP4, 1000, .at = 20,
	    .value = 0x20 },
	/* sizes */
	{ "segments of 0", PV_NET_BAD_GSO_SIZE, F4, RX_ALL, NEEDS, TCP4, 0 },
	{ "segments of as much as can be", PV_NET_FINE, F4, RX_ALL, NEEDS, TCP4, 65495 },
	{ "segments of a byte more", PV_NET_BAD_GSO_SIZE, F4, RX_ALL, NEEDS, TCP4, 65496 },
	{ "segments of 65535", PV_NET_BAD_GSO_SIZE, F4, RX_ALL, NEEDS, TCP4, 65535 },
	{ "IPv6 segments of 65535", PV_NET_BAD_GSO_SIZE, F6, RX_ALL, NEEDS, TCP6, 65535 },
};

static void
rx_invalid_values_have_their_names(const void *arg __unused)
{
	static const size_t apart[] = { 1, 1, 12, 1, 1, 18, 1, 1, 18, 40, 0 };
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct frame_at at;
	const struct invalid *l;
	enum pv_net_bad bad;
	struct mbuf *m, *was;
	size_t len;
	int i;

	for (l = invalid; l < invalid + nitems(invalid); l++) {
		begin(l->offloads);
		for (i = 0; i < 2; i++) {
			len = frame_make(&l->f, FRAME_PARTIAL, buf, &at);
			memcpy(buf, lladdr, ETHER_ADDR_LEN);
			if (l->at != 0)
				buf[l->at] = l->value;
			if (l->value > 0xff) {
				buf[l->at] = l->value >> 8;
				buf[l->at + 1] = l->value;
			}
			if (l->at == 16 && l->value == 0x24)
				buf[16] = 0, buf[17] = l->value;
			if (l->cut != 0)
				len = l->cut;
			in = (struct pv_net_offload){ .po_flags = l->flags, .po_gso_type = l->type,
			    .po_gso_size = l->size, .po_csum_start = at.at_l4 + l->start,
			    .po_csum_offset = at.at_sum - at.at_l4 + l->offset };
			was = m = kpi_mbuf_chain(buf, len, i == 0 ? NULL : apart);
			bad = rx_offload(&pn, &m, &in);
			CHECK(bad == l->bad && m == was, "%s: %d, not %d", l->name, bad, l->bad);
			m_freem(m);
		}
		end();
	}
}

/* Every length that a frame can be cut to, and every byte of its headers changed. */
static void
rx_no_value_reaches_beyond_the_frame(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], bad[FRAME_MAX];
	struct pv_net_offload in;
	struct frame_at at;
	struct mbuf *m;
	size_t cut, g, len;

	begin(RX_ALL);
	for (g = 0; g < nitems(gsos); g++) {
		len = frame_make(&gsos[g].f, FRAME_PARTIAL, buf, &at);
		in = (struct pv_net_offload){ .po_flags = gsos[g].flags,
		    .po_gso_type = gsos[g].type, .po_gso_size = 700, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		for (cut = 1; cut < at.at_data + 2; cut++) {
			m = kpi_mbuf_chain(buf, cut, NULL);
			if (rx_offload(&pn, &m, &in) == PV_NET_FINE)
				host_fail(__FILE__, __LINE__, "cut", "%s at %zu", gsos[g].name, cut);
			m_freem(m);
		}
		for (cut = 12; cut < at.at_data; cut++) {
			memcpy(bad, buf, len);
			bad[cut] = cut & 1 ? 0xff : 0;
			m = kpi_mbuf_chain(bad, len, NULL);
			(void)rx_offload(&pn, &m, &in);
			(void)free_all(m);
			in.po_gso_type = NONE;
			m = kpi_mbuf_chain(bad, len, NULL);
			(void)rx_offload(&pn, &m, &in);
			(void)free_all(m);
			in.po_gso_type = gsos[g].type;
		}
	}
	end();
}

static const u_int needs = NEEDS, both = NEEDS | VALID, find = FIND;

/* Each case is of both ways that a packet may take. */
struct case_of {
	void		(*co_body)(const void *arg);
	const void	*co_arg;
};

static void
either_way(const void *arg)
{
	const struct case_of *co = arg;
	int fast;

	for (fast = 0; fast <= 1; fast++) {
		pv_net_fast_path = fast;
		co->co_body(co->co_arg);
	}
}

static const struct hosted_test tests[] = {
#define	BOTH(name, arg)		either_way, &(const struct case_of){ name, arg }
#define	T(name, arg, descr)	{ #name, descr, BOTH(name, arg) }
	{ "rx_needs_csum_stays_partial_when_forwarded", "by its place",
	    BOTH(rx_needs_csum_stays_partial_when_forwarded, &needs) },
	{ "rx_needs_csum_outweighs_data_valid", "both are said",
	    BOTH(rx_needs_csum_stays_partial_when_forwarded, &both) },
	{ "rx_needs_csum_is_found", "its place is not said",
	    BOTH(rx_needs_csum_stays_partial_when_forwarded, &find) },
	T(rx_listeners_see_finished_sums, NULL, "bpf(4)"),
	T(rx_without_rxcsum_is_finished_and_unmarked, NULL, "ifconfig -rxcsum"),
	T(rx_data_valid_is_not_partial, NULL, "verified by the device"),
	T(rx_other_sums_are_finished, NULL, "tunnels, and what has no marks"),
	T(sum_of_zero_is_ones_in_udp_only, NULL, "RFC 768, RFC 1624"),
	T(rx_big_frame_leaves_as_tso, NULL, "received in one, sent in one"),
	T(rx_split_where_big_will_not_do, NULL, "datagrams, LRO off, routers"),
	T(rx_big_frame_seen_by_a_listener, NULL, "finished, and partial again"),
	T(rx_invalid_values_have_their_names, NULL, "the table of invalid values"),
	T(rx_no_value_reaches_beyond_the_frame, NULL, "cut everywhere, changed everywhere"),
	T(tx_without_offloads, NULL, "finished and split in software"),
	T(tx_ecn_not_negotiated_is_split, NULL, "CWR is for the first segment"),
	T(tx_tags_inside_of_tags_are_sent, NULL, "vlan(4) over vlan(4)"),
	T(tx_invalid_marks_have_their_names, NULL, "marks that do not fit"),
	T(tx_each_offload_by_itself, NULL, "negotiated and not"),
	T(tx_one_finished_segment_is_left_alone, NULL, "of TCP"),
	T(tx_without_marks_is_left_alone, NULL, "and a segment size alone is no mark"),
	T(tx_what_others_have_is_not_written, NULL, "shared from anywhere on"),
	T(tx_data_without_an_address_is_not_read, NULL, "pages without an address"),
	T(tx_assistance_by_capability, NULL, "ifconfig txcsum, tso"),
	T(rx_each_version_by_itself, NULL, "ifconfig -rxcsum, -rxcsum6"),
	T(rx_each_version_is_forwarded_by_itself, NULL, "a router of one of them"),
	T(rx_what_ends_here_is_not_finished, NULL, "partial checksums, not forwarded"),
	T(rx_whatever_stands_before_a_sum, NULL, "tags, tunnels, extension headers, padding"),
	T(rx_frames_of_a_library, NULL, "scapy's, wherever they go"),
	T(rx_gso_that_was_not_negotiated_is_split, NULL, "TCP, tags, congestion marks"),
	T(rx_datagrams_in_one_are_split, NULL, "UDP"),
	T(rx_datagram_to_be_fragmented, NULL, "for us, and for others"),
	T(tx_padding_does_not_count, NULL, "beyond the IP packet"),
	T(rx_each_queue_looks_for_itself, NULL, "while another is at work"),
	T(rx_largest_gso_packets, NULL, "one and no more"),
	T(rx_gso_packet_has_its_segments, NULL, "for our own TCP"),
	T(rx_nothing_overtakes_its_flow, NULL, "beside tcp_lro(9)"),
	T(rx_ports_that_are_not_in_sight, NULL, "of a packet beside tcp_lro(9)"),
	T(rx_only_data_is_merged, NULL, "Acknowledgments and datagrams are not"),
	T(rx_headers_that_are_too_long_to_split, NULL, "16 KB of them"),
	T(rx_requests_what_is_of_use, NULL, "by what is enabled and forwarded"),
	T(fast_path_is_the_same, NULL, "as the general way, whatever a byte is"),
	T(tx_what_is_behind_the_headers_is_not_copied, NULL, "though others have it"),
	T(sum_ends_with_the_frame_where_headers_make_no_sense, NULL, "and not beyond it"),
	T(headers_behind_llc_are_those_of_snap, NULL, "each byte of them"),
	T(headers_have_the_memory_that_they_need, NULL, "and room before"),
	T(no_memory_loses_the_packet_and_nothing_else, NULL, "each allocation fails once"),
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
