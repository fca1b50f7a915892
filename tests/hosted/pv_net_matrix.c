/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net's offload metadata: whatever stands in front of a partial checksum, the frame arrives, and its
 * sum is finished unless it can be marked.  Tags x encapsulations x transport x whether there is
 * padding, each compared with a finished frame, byte by byte.
 */

#include "pv_net_test.h"

/* What stands between the tags and the packet, with the Ethernet type in its place. */
static const struct wrap {
	const char	*name;
	u_int		 type;		/* 0: that of the packet */
	bool		 found;		/* the sum is found without its place */
	size_t		 len;
	u_int		 length4;	/* where the outer IPv4 has its length; 0: none */
	u_int		 length, less;	/* another length, and what it does not count; 0: none */
	bool		 v4, v6;	/* with these packets */
	u_char		 bytes[64];
} wraps[] = {
	{ "nothing", 0, true, 0, .v4 = true, .v6 = true },
	{ "PPPoE, IPv4", 0x8864, true, 8, .length = 4, .less = 6, .v4 = true,
	    .bytes = { 0x11, 0, 0, 7, 0, 0, 0, 0x21 } },
	{ "PPPoE, IPv6", 0x8864, true, 8, .length = 4, .less = 6, .v6 = true,
	    .bytes = { 0x11, 0, 0, 7, 0, 0, 0, 0x57 } },
	{ "MPLS", 0x8847, true, 8, .v4 = true, .v6 = true,
	    .bytes = { 0, 1, 0x10, 64, 0, 2, 0x11, 64 } },
	{ "GRE", 0x0800, false, 24, .length4 = 2, .v4 = true, .v6 = true, .bytes = { 0x45, 0, 0,
	    0, 0, 1, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 8, 0 } },
	{ "4in4", 0x0800, false, 20, .length4 = 2, .v4 = true, .bytes = { 0x45, 0, 0, 0, 0, 1, 0,
	    0, 64, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 } },
	{ "6in4", 0x0800, false, 20, .length4 = 2, .v6 = true, .bytes = { 0x45, 0, 0, 0, 0, 1, 0,
	    0, 64, 41, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2 } },
	{ "VXLAN", 0x0800, false, 50, .length4 = 2, .length = 24, .less = 20, .v4 = true,
	    .bytes = { 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30,
	    0x39, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 3, 2, 0, 0, 0,
	    0, 4, 8, 0 } },
	{ "Geneve", 0x0800, false, 50, .length4 = 2, .length = 24, .less = 20, .v6 = true,
	    .bytes = { 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30,
	    0x39, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 1, 0, 2, 0, 0, 0, 0, 3, 2, 0,
	    0, 0, 0, 4, 0x86, 0xdd } },
	{ "not known", 0x88b5, false, 12, .v4 = true, .v6 = true,
	    .bytes = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 } },
};

static const struct frame packets[] = {
	{ .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 333 },
	{ .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 44 },
	{ .f_ip = 6, .f_proto = IPPROTO_TCP, .f_tcpopts = 12, .f_payload = 1 },
	{ .f_ip = 6, .f_proto = IPPROTO_UDP, .f_payload = 1201 },
	{ .f_ip = 6, .f_exts = 12, .f_proto = IPPROTO_TCP, .f_payload = 90 },
	{ .f_ip = 6, .f_exts = 200, .f_proto = IPPROTO_UDP, .f_payload = 90 },
};

#define	NTAGS	85	/* each combination of up to three of four types */

static const u_int tag_types[] = { 0x8100, 0x88a8, 0x9100, 0x8100 };

static void
put(u_char *p, u_int value)
{
	p[0] = value >> 8;
	p[1] = value;
}

/* A frame of the matrix; returns its length, and where its sum starts and is. */
static size_t
compose(const struct frame *f, const struct wrap *w, u_int tags, u_int pad, enum frame_sum sum,
    u_char *to, u_int *start, u_int *field)
{
	static u_char inner[FRAME_MAX];
	struct frame_at at;
	size_t len = frame_make(f, sum, inner, &at) - 14, here;
	u_char *p = to + 12, *wrap;
	u_int i;

	memcpy(to, inner, 12);
	memcpy(to, lladdr, ETHER_ADDR_LEN);
	for (; tags != 0; tags = (tags - 1) / 4, p += 4) {
		put(p, tag_types[(tags - 1) % 4]);
		put(p + 2, 100 + tags);
	}
	put(p, w->type != 0 ? w->type : f->f_ip == 4 ? 0x0800u : 0x86ddu);
	wrap = p += 2;
	memcpy(wrap, w->bytes, w->len);
	if (w->len == 24 && w->length4 != 0)
		put(wrap + 22, f->f_ip == 4 ? 0x0800 : 0x86dd);
	if (w->length4 != 0)
		put(wrap + w->length4, w->len + len);
	if (w->length != 0)
		put(wrap + w->length, w->len + len - w->less);
	if (w->length4 != 0)
		put(wrap + 10, ~frame_fold(frame_add(0, wrap, 20)));
	p += w->len;
	memcpy(p, inner + 14, len);
	here = p - to;
	*start = here + at.at_l4 - 14;
	*field = here + at.at_sum - 14;
	for (i = 0; i < pad; i++)
		p[len + i] = 0xa5 + i;
	return (here + len + pad);
}

static void
arrives(const struct frame *f, const struct wrap *w, u_int tags, u_int pad, bool find)
{
	static u_char before[FRAME_MAX], expect[FRAME_MAX], after[FRAME_MAX];
	static const size_t pieces[] = { 17, 40, 3, 0 };
	struct pv_net_offload in = { .po_flags = find ? FIND : NEEDS };
	u_int field, start;
	struct mbuf *m;
	bool marked;
	size_t len;

	(void)compose(f, w, tags, pad, FRAME_DONE, expect, &start, &field);
	len = compose(f, w, tags, pad, FRAME_PARTIAL, before, &start, &field);
	in.po_csum_start = start;
	in.po_csum_offset = field - start;
	m = kpi_mbuf_chain(before, len, tags % 2 == 0 ? pieces : NULL);
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE, "%s, tags %u, pad %u: dropped", w->name,
	    tags, pad);
	marked = (m->m_pkthdr.csum_flags & sum_mark(f)) != 0 ||
	    (!KEEPS && w->len == 0 && tags == 0 && pad == 0 &&
	    (rx_queue.prq_flags & (PV_NET_RXF_KEEP4 | PV_NET_RXF_KEEP6)) != 0);
	CHECK(!marked || (w->len == 0 && tags <= 4 && pad == 0), "%s, tags %u, pad %u: marked",
	    w->name, tags, pad);
	CHECK(flat(m, after) == len && memcmp(after, marked ? before : expect, len) == 0,
	    "%s, tags %u, pad %u, IPv%u: not finished", w->name, tags, pad, f->f_ip);
	m_freem(m);
}

void
rx_whatever_stands_before_a_sum(const void *arg __unused)
{
	static const u_int offloads[] = { RX_ALL, RX_ALL | PV_NET_UNTAGGED, 0 };
	const struct frame *f;
	const struct wrap *w;
	u_int i, pad, tags;

	for (i = 0; i < nitems(offloads); i++) {
		begin(offloads[i]);
		if (offloads[i] == 0)
			eth.if_capenable = 0;
		for (w = wraps; w < wraps + nitems(wraps); w++) {
			for (f = packets; f < packets + nitems(packets); f++) {
				if (!(f->f_ip == 4 ? w->v4 : w->v6))
					continue;
				for (tags = 0; tags < NTAGS; tags++) {
					arrives(f, w, tags, 0, false);
					if (w->found)
						arrives(f, w, tags, 0, true);
				}
				/* What is behind the packet does not count. */
				if (strcmp(w->name, "not known") != 0) {
					for (pad = 1; pad < 20; pad += 3)
						arrives(f, w, pad % 5, pad, false);
				}
			}
		}
		end();
	}
}

/* The sum of a packet with padding is not left to a device, which would count that. */
void
tx_padding_does_not_count(const void *arg __unused)
{
	static u_char before[FRAME_MAX], expect[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload out;
	const struct frame *f;
	u_int field, start;
	struct mbuf *m;
	size_t len;

	begin(TX_ALL);
	for (f = packets; f < packets + nitems(packets); f++) {
		(void)compose(f, wraps, 0, 7, FRAME_DONE, expect, &start, &field);
		len = compose(f, wraps, 0, 7, FRAME_PARTIAL, before, &start, &field);
		m = kpi_mbuf_chain(before, len, NULL);
		m->m_pkthdr.csum_flags = sum_mark(f);
		m->m_pkthdr.csum_data = field - start;
		CHECK(pv_net_tx_offload(&pn, m, &out) == PV_NET_FINE &&
		    out.po_flags == PV_NET_FINISH_CSUM, "0x%x", out.po_flags);
		m = pv_net_tx_soften(m, &out);
		CHECK(flat(m, after) == len && memcmp(after, expect, len) == 0, "IPv%u", f->f_ip);
		m_freem(m);
	}
	end();
}

/* A GSO packet that was not negotiated, or is behind what the stack does not know, is split. */
void
rx_gso_that_was_not_negotiated_is_split(const void *arg __unused)
{
	static const struct {
		const char	*name;
		struct frame	 f;
		u_int		 offloads, flags, type;
	} table[] = {
		{ "nothing negotiated", F4, 0, NEEDS, TCP4 },
		{ "not TCP4", F4, RX_ALL & ~PV_NET_LRO4, NEEDS, TCP4 },
		{ "not TCP6", F6, RX_ALL & ~PV_NET_LRO6, NEEDS, TCP6 },
		{ "not ECN", F4, RX_ALL & ~PV_NET_LRO_ECN, NEEDS | ECN, TCP4 },
		{ "a tag", { .f_tags = 1, .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 3000 },
		    RX_ALL | PV_NET_UNTAGGED, NEEDS, TCP4 },
		{ "two tags", { .f_tags = 2, .f_ip = 6, .f_proto = IPPROTO_TCP,
		    .f_payload = 3000 }, RX_ALL, NEEDS, TCP6 },
	};
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	struct frame_at at;
	struct mbuf *m;
	struct gso g;
	size_t i, len;

	for (i = 0; i < nitems(table); i++) {
		begin(table[i].offloads);
		if (i == 0)
			eth.if_capenable = 0;
		g = (struct gso){ table[i].name, table[i].f, table[i].type, table[i].flags, 1000 };
		len = frame_make(&g.f, FRAME_PARTIAL, buf, &at);
		in = (struct pv_net_offload){ .po_flags = g.flags, .po_gso_type = g.type,
		    .po_gso_size = g.size, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_nextpkt != NULL, "%s",
		    g.name);
		CHECK(pv_net_rx_gso_unasked(&pn, m, &in) == (i != 5), "%s: counted", g.name);
		check_segments(&g, m, buf, &at, !KEEPS || i == 0 || i == 5);
		end();
	}
	/* Of a device that negotiated for packets without tags, those with some are more. */
	for (i = 0; i < 2; i++) {
		begin(RX_ALL | PV_NET_UNTAGGED);
		g = (struct gso){ "tags", { .f_tags = i, .f_ip = 4, .f_proto = IPPROTO_TCP,
		    .f_payload = 3000 }, TCP4, NEEDS, 1000 };
		len = frame_make(&g.f, FRAME_PARTIAL, buf, &at);
		in = (struct pv_net_offload){ .po_flags = g.flags, .po_gso_type = g.type,
		    .po_gso_size = g.size, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(pv_net_rx_gso_unasked(&pn, m, &in) == (i == 1), "%zu tags: counted", i);
		/* Nor is it said of what can't be parsed. */
		m->m_len = m->m_pkthdr.len = ETHER_HDR_LEN + i * ETHER_VLAN_ENCAP_LEN + 4;
		CHECK(!pv_net_rx_gso_unasked(&pn, m, &in), "%zu tags: counted, without a header", i);
		m_freem(m);
		end();
	}
}

/* Several datagrams of UDP in one: the stack has no mark for them, so that they are split. */
void
rx_datagrams_in_one_are_split(const void *arg __unused)
{
	static const struct gso table[] = {
		{ "IPv4", U4, UDP, NEEDS, 1000 },
		{ "IPv6", U6, UDP, NEEDS, 1001 },
		{ "verified", U4, UDP, VALID, 7 },
		{ "found", U6, UDP, FIND, 2999 },
		{ "a tag", { .f_tags = 1, .f_ip = 4, .f_ipopts = 8, .f_proto = IPPROTO_UDP,
		    .f_payload = 60000 }, UDP, NEEDS, 1472 },
		{ "tags and extensions", { .f_tags = 3, .f_ip = 6, .f_exts = 9,
		    .f_proto = IPPROTO_UDP, .f_payload = 3000 }, UDP, NEEDS, 1472 },
	};
	static u_char buf[FRAME_MAX];
	struct pv_net_offload in;
	const struct gso *g;
	struct frame_at at;
	bool asked, done;
	struct mbuf *m;
	size_t len;
	u_int i;

	for (i = 0; i < 2 * nitems(table); i++) {
		g = &table[i / 2];
		asked = i % 2 == 1;
		begin(asked ? RX_ALL | PV_NET_RX_USO : RX_ALL);
		len = frame_make(&g->f, (g->flags & VALID) != 0 ? FRAME_DONE : FRAME_PARTIAL, buf,
		    &at);
		in = (struct pv_net_offload){ .po_flags = g->flags, .po_gso_type = g->type,
		    .po_gso_size = g->size, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_nextpkt != NULL, "%s",
		    g->name);
		CHECK(pv_net_rx_gso_unasked(&pn, m, &in) == !asked, "%s: counted", g->name);
		done = !KEEPS || g->f.f_tags > 1;
		check_segments(g, m, buf, &at, done);
		end();
	}
	/* One datagram alone is no more than that. */
	begin(RX_ALL | PV_NET_RX_USO);
	len = frame_make(&table[0].f, FRAME_PARTIAL, buf, &at);
	in = (struct pv_net_offload){ .po_flags = NEEDS, .po_gso_type = UDP, .po_gso_size = 3000,
	    .po_csum_start = at.at_l4, .po_csum_offset = 6 };
	m = kpi_mbuf_chain(buf, len, NULL);
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_nextpkt == NULL &&
	    m->m_pkthdr.tso_segsz == 0, "one");
	m_freem(m);
	end();
}

/* One datagram of more than a frame, for its receiver to be fragmented on the way. */
void
rx_datagram_to_be_fragmented(const void *arg __unused)
{
	static const struct frame table[] = { U4, U6 };
	static u_char buf[FRAME_MAX], after[FRAME_MAX];
	struct pv_net_offload in = { .po_flags = NEEDS, .po_gso_type = PV_NET_GSO_FRAGMENTS,
	    .po_gso_size = 1480, .po_csum_offset = 6 };
	struct frame_at at;
	struct mbuf *m;
	size_t len;
	u_int i;

	for (i = 0; i < nitems(table); i++) {
		begin(RX_ALL);
		eth.if_capenable = 0;
		len = frame_make(&table[i], FRAME_PARTIAL, buf, &at);
		memcpy(buf, lladdr, ETHER_ADDR_LEN);
		in.po_csum_start = at.at_l4;
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE && m->m_nextpkt == NULL &&
		    flat(m, after) == len && frame_sum_ok(&table[i], after, len), "%u: ours", i);
		CHECK(pv_net_rx_gso_unasked(&pn, m, &in), "%u: counted", i);
		m_freem(m);
		buf[5]++;
		m = kpi_mbuf_chain(buf, len, NULL);
		CHECK(rx_offload(&pn, &m, &in) == PV_NET_BAD_GSO_TYPE, "%u: another's", i);
		m_freem(m);
		end();
	}
}
