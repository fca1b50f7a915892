/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The frames that scapy made (corpus/make): each is received with its checksum partial, in each place
 * that a frame may go to, and has scapy's checksum when it leaves, or the marks of a partial one.
 */

#include "pv_net_test.h"

__asm__(".section .rodata, \"a\"\n"
    "corpus:\n"
    ".incbin \"corpus/frames.pcap\"\n"
    "corpus_end:\n"
    ".previous");

extern const u_char corpus[], corpus_end[];

/* A file of pcap(3), and of a packet in it, as corpus/make writes them. */
#define	CORPUS_HEADER	24

struct corpus_frame {
	uint32_t	start;		/* seconds */
	uint32_t	offset_pseudo;	/* microseconds */
	uint32_t	len, whole;
	u_char		bytes[];
} __packed;

/* Where a frame goes to. */
static const struct place {
	const char	*name;
	bool		 keeps;		/* a partial sum may be left to whoever is next */
	bool		 here;		/* it ends in this host */
	bool		 ours, bpf, nocsum, forwards, promisc, netgraph, filter, lagg, untagged;
} places[] = {
	{ "the host itself", true, true, .ours = true },
	{ "a neighbour, by a bridge", true, .promisc = true },
	{ "itself, beside a bridge or its span port", true, .ours = true, .promisc = true },
	{ "a router", true, .ours = true, .forwards = true },
	{ "a filter", true, .ours = true, .filter = true },
	{ "netgraph", true, .ours = true, .netgraph = true },
	{ "lagg", true, .ours = true, .lagg = true },
	{ "Xen", true, true, .ours = true, .untagged = true },
	{ "a listener of bpf", .ours = true, .bpf = true },
	{ "-rxcsum", .ours = true, .nocsum = true },
};

static void
go_to(const struct place *place)
{
	begin(RX_ALL | (place->untagged ? PV_NET_UNTAGGED : 0));
	if (place->nocsum)
		eth.if_capenable = 0;
	if (place->bpf)
		bpf = &listeners;
	if (place->promisc)
		eth.if_flags = IFF_PROMISC;
	if (place->netgraph)
		eth.if_l2com = &pn;
	if (place->lagg)
		eth.if_type = IFT_IEEE8023ADLAG;
	filters.head_nhooksin = place->filter;
	V_ipforwarding = V_ip6_forwarding = place->forwards;
}

static bool
is_tag(const u_char *type)
{
	u_int value = type[0] << 8 | type[1];

	return (value == 0x8100 || value == 0x88a8 || value == 0x9100);
}

/* Its number of tags; *plain: nothing but IP is behind them, and they are those of a VLAN. */
static u_int
count_tags(const struct corpus_frame *cf, bool *plain)
{
	const u_char *type = cf->bytes + 12;
	bool foreign = false;
	u_int tags = 0, header;

	for (; is_tag(type); type += 4) {
		tags++;
		foreign |= type[0] != 0x81;
	}
	header = 14 + 4 * tags;
	/* Extension headers are not in the way; another IP header is. */
	*plain = !foreign && ((memcmp(type, "\x08\0", 2) == 0 && cf->start == header + 20) ||
	    (memcmp(type, "\x86\xdd", 2) == 0 && (cf->start == header + 40 ||
	    type[2 + 6] == IPPROTO_HOPOPTS)));
	return (tags);
}

static void
arrives(const struct place *place, const struct corpus_frame *cf, u_int pad, u_int number)
{
	static const size_t pieces[] = { 15, 30, 1, 9, 0 };
	static u_char after[FRAME_MAX], expect[FRAME_MAX], partial[FRAME_MAX];
	u_int field = cf->start + (cf->offset_pseudo >> 16), i, len = cf->len + pad, tags;
	struct pv_net_offload in = { .po_flags = cf->start != 0 ? NEEDS : 0,
	    .po_csum_start = cf->start, .po_csum_offset = cf->offset_pseudo >> 16 };
	bool kept, marked, plain;
	struct mbuf *m;

	memcpy(expect, cf->bytes, cf->len);
	for (i = 0; i < pad; i++)
		expect[cf->len + i] = 0xc3 - i;
	if (place->ours)
		memcpy(expect, lladdr, ETHER_ADDR_LEN);
	memcpy(partial, expect, len);
	if (cf->start != 0) {
		partial[field] = cf->offset_pseudo >> 8;
		partial[field + 1] = cf->offset_pseudo;
	}
	m = kpi_mbuf_chain(partial, len, number % 2 == 0 ? pieces : NULL);
	CHECK(rx_offload(&pn, &m, &in) == PV_NET_FINE, "to %s: frame %u is dropped", place->name,
	    number);
	tags = count_tags(cf, &plain);
	marked = (m->m_pkthdr.csum_flags & (CSUM_IP_TCP | CSUM_IP_UDP | CSUM_IP6_TCP |
	    CSUM_IP6_UDP)) != 0;
	kept = cf->start != 0 && place->keeps && plain && pad == 0 &&
	    (KEEPS ? tags <= 1 : tags == 0 && place->here);
	CHECK(marked == (kept && KEEPS), "to %s: frame %u, flags 0x%x", place->name, number,
	    m->m_pkthdr.csum_flags);
	CHECK(!place->nocsum || m->m_pkthdr.csum_flags == 0, "frame %u: verified", number);
	CHECK(flat(m, after) == len && memcmp(after, kept ? partial : expect, len) == 0,
	    "to %s: frame %u with %u bytes of padding is not scapy's", place->name, number, pad);
	m_freem(m);
	/* A program of netmap(4) has no marks, and its frames are in one piece. */
	CHECK(pv_net_finish_frame(partial, len, &in) && memcmp(partial, expect, len) == 0,
	    "frame %u of %u bytes is not finished for netmap", number, len);
}

void
rx_frames_of_a_library(const void *arg __unused)
{
	const struct corpus_frame *cf;
	const struct place *place;
	const u_char *at;
	u_int number;

	for (place = places; place < places + nitems(places); place++) {
		go_to(place);
		number = 1;
		for (at = corpus + CORPUS_HEADER; at < corpus_end; number++) {
			cf = (const void *)at;
			arrives(place, cf, 0, number);
			arrives(place, cf, 1 + number % 17, number);
			at += sizeof(*cf) + cf->len;
		}
		CHECK(number > 1600, "%u frames", number);
		end();
	}
}
