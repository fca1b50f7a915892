/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: pv_net's offload parser, with any metadata of any frame.
 *
 * A frame that was received, with metadata as a back end or a device may give them, which is marked,
 * finished, split or dropped.  And a packet that is sent with whatever marks: what the device is told
 * of it lies in the packet.
 */

#include "pv_net_test.h"
#include "fuzz_input.h"

#define	FUZZ_FRAME	1024

/* Anything; or the place of a sum that there is, and the kind of packet that it is. */
static void
fuzz_metadata(struct fuzz_input *in, struct mbuf *m, struct pv_net_offload *o)
{
	struct pv_net_headers h;

	memset(o, 0, sizeof(*o));
	o->po_flags = fuzz_byte(in);
	o->po_gso_type = fuzz_byte(in) % (PV_NET_GSO_OTHER + 1);
	o->po_csum_start = fuzz_byte(in);
	o->po_csum_offset = fuzz_byte(in);
	if (o->po_csum_offset >= 0xf0)
		o->po_csum_start = fuzz_word(in);
	o->po_gso_size = fuzz_word(in);
	if (o->po_gso_size % 4 == 0 || pv_net_parse(m, &h) != PV_NET_FINE)
		return;
	o->po_gso_size >>= 8;
	o->po_csum_start = h.ph_l4;
	o->po_csum_offset = h.ph_proto == IPPROTO_UDP ? 6 : 16;
	if (o->po_gso_type != PV_NET_GSO_NONE)
		o->po_gso_type = h.ph_proto == IPPROTO_UDP ? PV_NET_GSO_UDP :
		    h.ph_ip6 ? PV_NET_GSO_TCP6 : PV_NET_GSO_TCP4;
}

static void
fuzz_receive(struct fuzz_input *in, struct mbuf *m)
{
	struct pv_net_offload o;
	struct mbuf *p;
	u_int len = m->m_pkthdr.len, n;

	fuzz_metadata(in, m, &o);
	if (rx_offload(&pn, &m, &o) != PV_NET_FINE) {
		(void)free_all(m);
		return;
	}
	for (n = 0, p = m; p != NULL; p = p->m_nextpkt, n++)
		CHECK(p->m_pkthdr.len <= (int)len && m_length(p, NULL) == (u_int)p->m_pkthdr.len,
		    "packet %u of %d bytes", n, p->m_pkthdr.len);
	CHECK(n <= len, "%u packets of %u bytes", n, len);
	(void)free_all(m);
}

static void
fuzz_send(struct fuzz_input *in, struct mbuf *m)
{
	static const int marks[] = { CSUM_IP_TCP, CSUM_IP_UDP, CSUM_IP6_TCP, CSUM_IP6_UDP,
	    CSUM_IP_TSO, CSUM_IP6_TSO, CSUM_IP, 0 };
	struct pv_net_offload o = { 0 };
	enum pv_net_bad bad;
	u_int i, set = fuzz_byte(in), len = m->m_pkthdr.len;

	for (i = 0; i < nitems(marks); i++)
		m->m_pkthdr.csum_flags |= (set & 1U << i) != 0 ? marks[i] : 0;
	m->m_pkthdr.csum_data = fuzz_byte(in);
	if (m->m_pkthdr.csum_data % 4 != 0)
		m->m_pkthdr.csum_data = m->m_pkthdr.csum_data % 2 != 0 ? 16 : 6;
	m->m_pkthdr.tso_segsz = fuzz_word(in);
	if (m->m_pkthdr.tso_segsz % 4 != 0)
		m->m_pkthdr.tso_segsz >>= 8;
	bad = pv_net_tx_offload(&pn, m, &o);
	if (bad == PV_NET_FINE && (o.po_flags & PV_NET_NEEDS_CSUM) != 0)
		CHECK(o.po_csum_start + o.po_csum_offset + 2U <= len, "a sum at %u + %u of %u bytes",
		    o.po_csum_start, o.po_csum_offset, len);
	if (bad == PV_NET_FINE && o.po_gso_type != PV_NET_GSO_NONE)
		CHECK(o.po_hdr_len < len && o.po_gso_size != 0, "%u bytes of headers of %u",
		    o.po_hdr_len, len);
	if (bad == PV_NET_FINE && (o.po_flags & PV_NET_SOFT) != 0)
		m = pv_net_tx_soften(m, &o);
	(void)free_all(m);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static u_char frame[FUZZ_FRAME];
	struct fuzz_input in = { data, size };
	size_t pieces[4] = { 0 };
	struct mbuf *m;
	uint8_t way;
	size_t len;

	way = fuzz_byte(&in);
	begin((way & 1) != 0 ? RX_ALL | TX_ALL : (way & 2) != 0 ? PV_NET_RXCSUM | PV_NET_TXCSUM : 0);
	eth.if_capenable = (way & 4) != 0 ? 0 : CAPS;
	bpf = (way & 8) != 0 ? &listeners : bpf;
	eth.if_flags = (way & 16) != 0 ? IFF_PROMISC : 0;
	V_ipforwarding = V_ip6_forwarding = (way & 32) != 0;
	pieces[0] = fuzz_byte(&in) % 128;
	pieces[1] = pieces[0] == 0 ? 0 : fuzz_byte(&in);
	len = MIN(in.fi_left > 10 ? in.fi_left - 10 : 0, sizeof(frame));
	fuzz_fill(&in, frame, len);
	if (len >= ETHER_HDR_LEN) {
		m = kpi_mbuf_chain(frame, len, pieces);
		if ((way & 64) != 0)
			fuzz_send(&in, m);
		else
			fuzz_receive(&in, m);
	}
	end();
	return (0);
}
