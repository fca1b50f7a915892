/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What takes a fast path ends as it does in the general way: each frame as it is, and with each byte of
 * its headers changed in turn.
 */

#include "pv_net_test.h"

/* A packet, and what became of it. */
struct outcome {
	bool			fast;	/* it took the fast path */
	enum pv_net_bad		bad;
	u_int			flags, data;
	size_t			len;
	u_char			bytes[FRAME_MAX];
	struct pv_net_offload	o;	/* sent */
};

static void
receive(struct outcome *to, bool fast, const u_char *buf, size_t len, const struct frame_at *at)
{
	static const size_t pieces[] = { 100, 0 };
	struct pv_net_offload in = { .po_flags = NEEDS, .po_csum_start = at->at_l4,
	    .po_csum_offset = at->at_sum - at->at_l4 };
	struct mbuf *m = kpi_mbuf_chain(buf, len, pieces);

	rx_queue.prq_pn = &pn;
	pv_net_stack_find(&pn);
	pv_net_rx_set_flags(&rx_queue);
	to->bad = PV_NET_FINE;
	to->fast = fast && pv_net_rx_fast_sum(&rx_queue, m, in.po_csum_start, in.po_csum_offset);
	if (!to->fast)
		to->bad = pv_net_rx_offload(&rx_queue, &m, &in);
	to->flags = m->m_pkthdr.csum_flags;
	to->data = m->m_pkthdr.csum_data;
	to->len = flat(m, to->bytes);
	m_freem(m);
}

static void
send(struct outcome *to, bool fast, const u_char *buf, size_t len, const struct frame *f,
    const struct frame_at *at)
{
	static const size_t pieces[] = { 100, 0 };
	struct mbuf *m = kpi_mbuf_chain(buf, len, pieces);

	m->m_pkthdr.csum_flags = sum_mark(f);
	m->m_pkthdr.csum_data = at->at_sum - at->at_l4;
	pv_net_fast_path = fast;
	to->fast = pv_net_tx_plain_l4(&pn, m) != 0;
	to->bad = pv_net_tx_offload(&pn, m, &to->o);
	to->len = flat(m, to->bytes);
	m_freem(m);
}

static void
compare(const char *what, size_t at, const struct outcome *one, const struct outcome *other)
{

	CHECK(one->bad == other->bad, "%s, byte %zu: %d and %d", what, at, one->bad, other->bad);
	CHECK(one->flags == other->flags && one->data == other->data,
	    "%s, byte %zu: 0x%x, %u and 0x%x, %u", what, at, one->flags, one->data, other->flags,
	    other->data);
	CHECK(one->len == other->len && memcmp(one->bytes, other->bytes, one->len) == 0,
	    "%s, byte %zu: other bytes", what, at);
	CHECK(memcmp(&one->o, &other->o, sizeof(one->o)) == 0, "%s, byte %zu: sent in another way",
	    what, at);
}

static void
both_ways(const struct good *g, const u_char *buf, size_t len, const struct frame_at *at, size_t byte,
    bool *fast)
{
	static struct outcome one, other;

	receive(&one, true, buf, len, at);
	*fast = one.fast;
	pv_net_fast_path = 0;
	receive(&other, false, buf, len, at);
	pv_net_fast_path = 1;
	compare(g->name, byte, &one, &other);
	send(&one, true, buf, len, &g->f, at);
	CHECK(byte != 0 || one.fast == *fast, "%s: fast in one direction", g->name);
	send(&other, false, buf, len, &g->f, at);
	pv_net_fast_path = 1;
	compare(g->name, byte, &one, &other);
	memset(&one, 0, sizeof(one));
	memset(&other, 0, sizeof(other));
}

/* All that TCP and UDP are without tags, options and extension headers takes it. */
static bool
takes_it(const struct frame *f)
{

	return (f->f_tags == 0 && f->f_ipopts == 0 && f->f_exts == 0);
}

void
fast_path_is_the_same(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], bad[FRAME_MAX];
	size_t byte, g, i, len;
	struct frame_at at;
	bool fast;

	/* Partial; finished for a listener; and as a router has it. */
	for (i = 0; i < 3; i++) {
		begin(RX_ALL | TX_ALL);
		bpf = i == 1 ? &listeners : bpf;
		V_ipforwarding = V_ip6_forwarding = i == 2;
		for (g = 0; g < NGOOD; g++) {
			len = frame_make(&good[g].f, FRAME_PARTIAL, buf, &at);
			memcpy(buf, lladdr, ETHER_ADDR_LEN);
			both_ways(&good[g], buf, len, &at, 0, &fast);
			CHECK(fast == takes_it(&good[g].f), "%s: %d", good[g].name, fast);
			for (byte = 1; byte < at.at_data; byte++) {
				memcpy(bad, buf, len);
				bad[byte] ^= 1 << (byte + i) % 8;
				both_ways(&good[g], bad, len, &at, byte, &fast);
				bad[byte] = i == 0 ? 0 : i == 1 ? 0xff : bad[byte] + 1;
				both_ways(&good[g], bad, len, &at, byte, &fast);
			}
		}
		end();
	}
}
