/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: vtnet(4)'s receive side, from the used length and the header that a device wrote to
 * the packets that go up.
 *
 * Each buffer is memory that ends where the device's bytes end.  What the header says of a frame is
 * judged by pv_net; a packet that is accepted has its marks inside of it, and its segments are no
 * longer than the frame was.
 */

#include "pv_net_test.h"

#include <dev/virtio/network/if_vtnet.c>

#include "fuzz_input.h"

#define	FUZZ_FRAME	2048
#define	FUZZ_BUFS	8

static struct vtnet_softc sc;

/* A packet that goes up: what it is marked with lies in it. */
static void
fuzz_check_packet(struct mbuf *m, u_int len)
{
	u_int n = 0;
	struct mbuf *p;

	for (p = m; p != NULL; p = p->m_next)
		n += p->m_len;
	CHECK(n == m->m_pkthdr.len && n <= len, "%u bytes, %d in the header, %u came", n,
	    m->m_pkthdr.len, len);
	/* A sum that is left to be finished is one of a header and data that are there. */
	if ((m->m_pkthdr.csum_flags & (CSUM_IP_TCP | CSUM_IP_UDP | CSUM_IP6_TCP | CSUM_IP6_UDP)) != 0 &&
	    (m->m_pkthdr.csum_flags & CSUM_DATA_VALID) == 0)
		CHECK(m->m_pkthdr.csum_data + 2 <= n, "a sum at %u of %u bytes",
		    m->m_pkthdr.csum_data, n);
}

static u_int
fuzz_up(struct mbuf *m, u_int len)
{
	struct mbuf *next;
	u_int n;

	for (n = 0; m != NULL; m = next, n++) {
		next = m->m_nextpkt;
		m->m_nextpkt = NULL;
		fuzz_check_packet(m, len);
		m_freem(m);
	}
	return (n);
}

/* Let the header say where the sum of this frame is, as a good device does. */
static void
fuzz_place(uint8_t *buf, u_int len)
{
	struct virtio_net_hdr hdr;
	struct pv_net_headers h;
	struct mbuf *m;

	if (len < sc.vtn_hdrlen + ETHER_HDR_LEN)
		return;
	m = kpi_mbuf_chain(buf + sc.vtn_hdrlen, len - sc.vtn_hdrlen, NULL);
	if (pv_net_parse(m, &h) == PV_NET_FINE) {
		memcpy(&hdr, buf, VIRTIO_NET_HDR_LEN);
		hdr.flags |= VIRTIO_NET_HDR_F_NEEDS_CSUM;
		hdr.csum_start = h.ph_l4;
		hdr.csum_offset = h.ph_proto == IPPROTO_UDP ? 6 : 16;
		if (hdr.gso_type != 0)
			hdr.gso_type = h.ph_proto == IPPROTO_UDP ? VIRTIO_NET_HDR_GSO_UDP_L4 :
			    h.ph_ip6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
		memcpy(buf, &hdr, VIRTIO_NET_HDR_LEN);
	}
	m_freem(m);
}

/* A frame of the buffers that the device says, one after the other.  False: it was dropped. */
static bool
fuzz_frame(struct fuzz_input *in, u_char *frame, u_int *len, struct pv_net_offload *o)
{
	struct virtqueue_used { uint32_t len; } used;
	struct pv_net_plain plain;
	struct pv_net_rxhdr hdr;
	struct pvq_done done;
	uint8_t *buf;
	bool ok = true, place = fuzz_byte(in) % 2 != 0;
	int i = 0;

	*len = 0;
	do {
		used.len = fuzz_byte(in);
		if (used.len >= 0xf0)
			used.len = fuzz_word(in) % 1024;
		buf = host_alloc(MAX(used.len, 1), 1);
		fuzz_fill(in, buf, used.len);
		if (i == 0 && place)
			fuzz_place(buf, used.len);
		memset(&hdr, 0, sizeof(hdr));
		hdr.prh_hdr = buf;
		hdr.prh_room = used.len;
		done = (struct pvq_done){ .pd_cookie = buf, .pd_result = used.len };
		plain = vtnet_decap_plain(&sc, 0, &done, buf);
		vtnet_decap(&sc, 0, &done, &hdr, 1);
		CHECK(plain.ppl_len == 0 || (hdr.prh_error == PV_NET_RX_OK && !hdr.prh_more &&
		    hdr.prh_len == plain.ppl_len && hdr.prh_offload.po_gso_type == NONE &&
		    hdr.prh_offload.po_flags == plain.ppl_flags &&
		    hdr.prh_offload.po_csum_start == plain.ppl_csum_start &&
		    hdr.prh_offload.po_csum_offset == plain.ppl_csum_offset),
		    "a plain header of %u bytes is another one", plain.ppl_len);
		if (hdr.prh_error == PV_NET_RX_OK) {
			CHECK(hdr.prh_skip + hdr.prh_len <= used.len, "%u bytes at %u of %u",
			    hdr.prh_len, hdr.prh_skip, used.len);
			if (*len + hdr.prh_len <= FUZZ_FRAME)
				memcpy(frame + *len, buf + hdr.prh_skip, hdr.prh_len);
			else
				ok = false;
			*len += hdr.prh_len;
			*o = hdr.prh_offload;
		} else
			ok = false;
		host_free(buf);
	} while (hdr.prh_more && ++i < 2 * FUZZ_BUFS);
	CHECK(!hdr.prh_more, "a frame of more than %d buffers", i);
	return (ok);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t pieces[][4] = { { 0 }, { 14, 20, 20, 0 }, { 1, 33, 100, 0 }, { 60, 7, 0 } };
	static u_char frame[FUZZ_FRAME];
	struct fuzz_input in = { data, size };
	struct pv_net_offload o;
	struct pvq q = { .q_size = FUZZ_BUFS };
	struct mbuf *m;
	uint8_t options, way;
	u_int len;

	options = fuzz_byte(&in);
	way = fuzz_byte(&in);
	begin((options & 1) != 0 ? RX_ALL : (options & 2) != 0 ? PV_NET_RXCSUM : 0);
	memset(&sc, 0, sizeof(sc));
	sc.vtn_modern = true;
	sc.vtn_features = VIRTIO_F_VERSION_1 | ((options & 4) != 0 ? VIRTIO_NET_F_MRG_RXBUF : 0) |
	    ((options & 8) != 0 ? VIRTIO_NET_F_HASH_REPORT : 0);
	sc.vtn_hdrlen = (options & 8) != 0 ? VIRTIO_NET_HDR_LEN_HASH : VIRTIO_NET_HDR_LEN;
	sc.vtn_rxqs = host_alloc(sizeof(*sc.vtn_rxqs), 8);
	memset(sc.vtn_rxqs, 0, sizeof(*sc.vtn_rxqs));
	sc.vtn_rxqs[0].vtr_pvq = &q;
	/* Who else may take what comes. */
	eth.if_capenable = (way & 1) != 0 ? 0 : CAPS;
	bpf = (way & 2) != 0 ? &listeners : bpf;
	eth.if_flags = (way & 4) != 0 ? IFF_PROMISC : 0;
	filters.head_nhooksin = (way & 8) != 0;
	V_ipforwarding = V_ip6_forwarding = (way & 16) != 0;
	pv_net_lro_forward = (way & 32) != 0;
	pv_net_fast_path = (options & 16) == 0;
	while (in.fi_left > 0) {
		if (!fuzz_frame(&in, frame, &len, &o) || len < ETHER_HDR_LEN)
			continue;
		m = kpi_mbuf_chain(frame, len, pieces[way >> 6]);
		if (rx_offload(&pn, &m, &o) == PV_NET_FINE)
			(void)fuzz_up(m, len);
		else
			(void)free_all(m);
	}
	host_free(sc.vtn_rxqs);
	end();
	return (0);
}
