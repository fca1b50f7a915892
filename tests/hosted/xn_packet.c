/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4)'s messages, both ways: those of good packets against xen/io/netif.h, and those of a hostile
 * back end.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/netfront/netfront_var.h>

#include "host/host.h"

#define	MORE	NETRXF_more_data
#define	EXTRA	NETRXF_extra_info

void	rings_of_a_failed_set_up(const void *arg);	/* xn_ring.c */

static struct xn_softc sc;
static char page[PAGE_SIZE];
static bool command;	/* what was answered is one */
static u_int refilters;

/* In place of pv_net's. */
bool
pv_net_is_command(const struct pvq_done *done __unused)
{

	return (command);
}

void
pv_net_refilter(struct pv_net *pn __unused)
{

	refilters++;
}

static void
begin(void)
{

	memset(&sc, 0, sizeof(sc));
	command = false;
	refilters = 0;
	sc.xn_offloads = PV_NET_LRO4 | PV_NET_LRO6;
	sc.xn_queues[0].xq_softc = &sc;
}

/* One message of the back end, in memory that ends where it does. */
static struct pv_net_rxhdr
take(const void *msg)
{
	struct pv_net_rxhdr hdr = { .prh_hdr = page, .prh_room = PAGE_SIZE };
	struct pvq_done done = { .pd_cookie = page };
	void *copy = host_alloc(sizeof(struct netif_rx_response), 8);

	memcpy(copy, msg, sizeof(struct netif_rx_response));
	done.pd_result = (uintptr_t)copy;
	xn_decap(&sc, 0, &done, &hdr, 1);
	host_free(copy);
	CHECK(hdr.prh_error != PV_NET_RX_OK || hdr.prh_skip + hdr.prh_len <= hdr.prh_room,
	    "%u bytes at %u", hdr.prh_len, hdr.prh_skip);
	return (hdr);
}

static struct pv_net_rxhdr
data(u_int offset, u_int flags, int status)
{
	struct netif_rx_response rsp = {
		.id = 0xdead, .offset = offset, .flags = flags, .status = status
	};

	return (take(&rsp));
}

static struct pv_net_rxhdr
gso(u_int type, u_int flags, u_int kind, u_int size)
{
	struct netif_extra_info extra = { .type = type, .flags = flags };

	extra.u.gso.type = kind;
	extra.u.gso.size = size;
	return (take(&extra));
}

/* After whatever came, a good frame is one. */
static void
in_step(void)
{
	struct pv_net_rxhdr h = data(2, 0, 60);

	CHECK(h.prh_error == PV_NET_RX_OK && !h.prh_more && h.prh_skip == 2 &&
	    h.prh_len == 60, "out of step: error %d, %u bytes", h.prh_error, h.prh_len);
}

static void
plain_frame(const void *arg __unused)
{

	begin();
	in_step();
	CHECK(data(0, 0, PAGE_SIZE).prh_len == PAGE_SIZE, "a whole page");
	CHECK(data(PAGE_SIZE - 1, 0, 1).prh_len == 1, "the last byte");
	in_step();
}

static void
checksum_marks(const void *arg __unused)
{

	begin();
	CHECK(data(0, 0, 60).prh_offload.po_flags == 0, "none");
	CHECK(data(0, NETRXF_data_validated, 60).prh_offload.po_flags == PV_NET_DATA_VALID,
	    "validated");
	CHECK(data(0, NETRXF_csum_blank | NETRXF_data_validated, 60).prh_offload.po_flags ==
	    (PV_NET_NEEDS_CSUM | PV_NET_FIND_CSUM), "blank is not verified");
}

static void
frame_of_buffers(const void *arg __unused)
{

	begin();
	CHECK(data(0, MORE, 4096).prh_more, "first");
	CHECK(data(0, MORE, 4096).prh_more, "second");
	CHECK(!data(0, 0, 10).prh_more, "last");
	in_step();
}

static void
big_frame(const void *arg __unused)
{
	struct pv_net_rxhdr h;

	begin();
	CHECK(data(0, EXTRA | MORE | NETRXF_csum_blank, 4096).prh_more, "first");
	h = gso(XEN_NETIF_EXTRA_TYPE_GSO, 0, XEN_NETIF_GSO_TYPE_TCPV6, 1440);
	CHECK(h.prh_more && h.prh_len == 0, "more");
	CHECK(h.prh_offload.po_gso_type == PV_NET_GSO_TCP6 && h.prh_offload.po_gso_size == 1440 &&
	    (h.prh_offload.po_flags & PV_NET_NEEDS_CSUM) != 0, "offload");
	CHECK(!data(0, 0, 1000).prh_more, "last");
	in_step();

	CHECK(data(0, EXTRA, 4000).prh_more, "of one buffer");
	h = gso(XEN_NETIF_EXTRA_TYPE_GSO, 0, XEN_NETIF_GSO_TYPE_TCPV4, 1448);
	CHECK(h.prh_len == 0 && !h.prh_more && h.prh_offload.po_gso_type == PV_NET_GSO_TCP4, "last");
	in_step();
}

static void
data_outside_of_the_page(const void *arg __unused)
{
	static const struct {
		u_int	offset;
		int	status;
	} bad[] = {
		{ 1, PAGE_SIZE }, { PAGE_SIZE, 1 }, { 0xffff, 0 }, { 0xffff, 0x7fff },
		{ 0, 0x7fff }, { PAGE_SIZE + 1, 0 },
	};
	size_t i;

	begin();
	for (i = 0; i < nitems(bad); i++) {
		CHECK(data(bad[i].offset, 0, bad[i].status).prh_error == PV_NET_RX_BADHDR,
		    "%d bytes at %u", bad[i].status, bad[i].offset);
		CHECK(sc.xn_queues[0].xq_stats.rx_range == i + 1, "not counted");
		in_step();
	}
	CHECK(data(0, MORE, 100).prh_error == PV_NET_RX_OK, "first");
	CHECK(data(4000, MORE, 100).prh_error == PV_NET_RX_BADHDR, "second");
	CHECK(data(4000, 0, 100).prh_error == PV_NET_RX_OK, "a frame is reported once");
	in_step();
}

static void
failed_buffers(const void *arg __unused)
{

	begin();
	CHECK(data(0, 0, NETIF_RSP_ERROR).prh_error == PV_NET_RX_BADHDR, "error");
	CHECK(data(0, 0, NETIF_RSP_DROPPED).prh_error == PV_NET_RX_BADHDR, "dropped");
	CHECK(data(0, 0, INT16_MIN).prh_error == PV_NET_RX_BADHDR, "least");
	CHECK(sc.xn_queues[0].xq_stats.rx_status == 3, "not counted");
	CHECK(data(0, MORE, NETIF_RSP_ERROR).prh_more, "the rest still belongs to it");
	CHECK(!data(0, 0, 100).prh_more, "last");
	in_step();
}

static void
extra_info_that_cannot_be(const void *arg __unused)
{
	static const struct {
		u_int	type, kind, size, offloads;
	} bad[] = {
		{ XEN_NETIF_EXTRA_TYPE_NONE, XEN_NETIF_GSO_TYPE_TCPV4, 1448, PV_NET_LRO4 },
		{ XEN_NETIF_EXTRA_TYPE_HASH, XEN_NETIF_GSO_TYPE_TCPV4, 1448, PV_NET_LRO4 },
		{ XEN_NETIF_EXTRA_TYPE_MAX, XEN_NETIF_GSO_TYPE_TCPV4, 1448, PV_NET_LRO4 },
		{ 255, XEN_NETIF_GSO_TYPE_TCPV4, 1448, PV_NET_LRO4 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_GSO_TYPE_NONE, 1448, PV_NET_LRO4 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, 3, 1448, PV_NET_LRO4 | PV_NET_LRO6 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, 3, 1448, ~0u },
		{ XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_GSO_TYPE_TCPV4, 0, PV_NET_LRO4 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_GSO_TYPE_TCPV4, 1448, PV_NET_LRO6 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_GSO_TYPE_TCPV6, 1448, PV_NET_LRO4 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_GSO_TYPE_TCPV6, 1448, 0 },
	};
	size_t i;

	begin();
	for (i = 0; i < nitems(bad); i++) {
		sc.xn_offloads = bad[i].offloads;
		CHECK(data(0, EXTRA | MORE, 100).prh_more, "first");
		CHECK(gso(bad[i].type, 0, bad[i].kind, bad[i].size).prh_error == PV_NET_RX_BADHDR,
		    "number %zu taken", i);
		CHECK(sc.xn_queues[0].xq_stats.rx_extra == i + 1, "not counted");
		CHECK(!data(0, 0, 100).prh_more, "last");
		in_step();
	}
}

static void
extra_info_without_end(const void *arg __unused)
{
	int bad = 0, first = 0, i;

	begin();
	CHECK(data(0, EXTRA, 100).prh_more, "first");
	for (i = 0; i < 1000; i++) {
		bad += gso(XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_EXTRA_FLAG_MORE,
		    XEN_NETIF_GSO_TYPE_TCPV4, 1448).prh_error != PV_NET_RX_OK;
		first += bad == 0;
	}
	CHECK(bad == 1 && first == 1 && sc.xn_queues[0].xq_stats.rx_extra == 1,
	    "%d faults, the first at %d", bad, first);
	CHECK(!gso(0, 0, 0, 0).prh_more, "last");
	in_step();
}

static void
frame_without_end(const void *arg __unused)
{
	int bytes = 0, i;

	begin();
	for (i = 0; i < 1000; i++)
		bytes += data(0, MORE, 1).prh_len;
	CHECK(bytes == XN_RX_BUFS && sc.xn_queues[0].xq_stats.rx_bufs == 1, "%d bytes", bytes);
	CHECK(!data(0, 0, 1).prh_more, "last");
	in_step();
}

static void
old_prefix(const void *arg __unused)
{

	begin();
	CHECK(data(0, NETRXF_gso_prefix | MORE, 0).prh_error == PV_NET_RX_BADHDR, "taken");
	CHECK(sc.xn_queues[0].xq_stats.rx_prefix == 1, "not counted");
	CHECK(!data(0, 0, 100).prh_more, "last");
	in_step();
}

/* Encode a packet of so many pages, the last of `last' bytes. */
static struct netif_tx_request *
send(u_int pages, u_int last, const struct pv_net_offload *o, struct pvq_chain *pc)
{
	static bus_dma_segment_t segs[XN_TX_SEGS];
	static struct xn_packet packets[PV_NET_BATCH];
	struct pv_net_txhdr hdr = { .pth_offload = *o, .pth_chain = pc };
	struct grant_msgs *gm;
	u_int i;

	for (i = 0; i < pages; i++) {
		/* A page that is not full may have its data anywhere. */
		segs[i].ds_addr = ((bus_addr_t)(1000 + i) << PAGE_SHIFT) +
		    (i + 1 < pages || last == PAGE_SIZE ? 0 : PAGE_SIZE - last);
		segs[i].ds_len = i + 1 < pages ? PAGE_SIZE : last;
	}
	memset(pc, 0, sizeof(*pc));
	pc->pc_segs = segs;
	pc->pc_nread = pages;
	sc.xn_queues[0].xq_packets = packets;
	xn_prepare(&sc, 0, 3, &hdr);
	gm = pc->pc_arg;
	CHECK(gm == &packets[3].xnp_msgs && gm->gm_msgs == packets[3].xnp_reqs &&
	    gm->gm_n == pages + (o->po_gso_type != PV_NET_GSO_NONE), "%u slots", gm->gm_n);
	/* Exactly what it is to be, that ASan sees a step beyond. */
	gm->gm_msgs = host_alloc(gm->gm_n * sizeof(struct netif_tx_request), 8);
	xn_encap(&sc, 0, &hdr, 1);
	return (gm->gm_msgs);
}

static uint32_t
noid(const struct pvq_chain *pc)
{
	return (((const struct grant_msgs *)pc->pc_arg)->gm_noid);
}

static void
requests_of_packets(const void *arg __unused)
{
	struct pv_net_offload o = { 0 };
	struct netif_tx_request *reqs;
	struct pvq_chain pc;

	begin();
	reqs = send(1, 60, &o, &pc);
	CHECK(reqs->gref == 1000 && reqs->offset == PAGE_SIZE - 60 && reqs->size == 60 &&
	    reqs->flags == 0 && noid(&pc) == 0, "plain");
	host_free(reqs);

	o.po_flags = PV_NET_NEEDS_CSUM;
	reqs = send(3, 100, &o, &pc);
	CHECK(reqs[0].size == 2 * PAGE_SIZE + 100, "the first has the size of all");
	CHECK(reqs[0].flags == (NETTXF_csum_blank | NETTXF_data_validated | NETTXF_more_data),
	    "flags %#x", reqs[0].flags);
	CHECK(reqs[1].gref == 1001 && reqs[1].size == PAGE_SIZE &&
	    reqs[1].flags == NETTXF_more_data && reqs[1].offset == 0, "second");
	CHECK(reqs[2].gref == 1002 && reqs[2].size == 100 && reqs[2].flags == 0, "last");
	host_free(reqs);
}

static void
requests_of_a_big_packet(const void *arg __unused)
{
	struct pv_net_offload o = {
		.po_flags = PV_NET_NEEDS_CSUM, .po_gso_type = PV_NET_GSO_TCP6,
		.po_gso_size = 1440,
	};
	struct netif_extra_info *extra;
	struct netif_tx_request *reqs;
	struct pvq_chain pc;

	begin();
	reqs = send(XN_TX_SEGS, PAGE_SIZE - 1, &o, &pc);
	CHECK(reqs[0].size == XEN_NETIF_MAX_TX_SIZE, "size %u", reqs[0].size);
	CHECK((reqs[0].flags & NETTXF_extra_info) != 0 && noid(&pc) == 2, "extra info");
	CHECK(((struct grant_msgs *)pc.pc_arg)->gm_n <= XN_TX_SLOTS, "slots");
	extra = (struct netif_extra_info *)&reqs[1];
	CHECK(extra->type == XEN_NETIF_EXTRA_TYPE_GSO && extra->flags == 0 &&
	    extra->u.gso.type == XEN_NETIF_GSO_TYPE_TCPV6 && extra->u.gso.size == 1440 &&
	    extra->u.gso.features == 0, "GSO");
	CHECK(reqs[2].gref == 1001 && reqs[XN_TX_SEGS].size == PAGE_SIZE - 1 &&
	    reqs[XN_TX_SEGS].flags == 0, "last");
	host_free(reqs);

	o.po_gso_type = PV_NET_GSO_TCP4;
	reqs = send(2, 100, &o, &pc);
	extra = (struct netif_extra_info *)&reqs[1];
	CHECK(extra->u.gso.type == XEN_NETIF_GSO_TYPE_TCPV4, "type %u", extra->u.gso.type);
	host_free(reqs);
}

static void
answers_are_counted(const void *arg __unused)
{
	static const int statuses[] = {
		NETIF_RSP_OKAY, NETIF_RSP_NULL, NETIF_RSP_ERROR, NETIF_RSP_DROPPED, 2, -3, -32768
	};
	struct netif_tx_response rsp = { 0 };
	struct pvq_done done = { .pd_cookie = page, .pd_result = (uintptr_t)&rsp };
	const struct xn_stats *stats = &sc.xn_queues[0].xq_stats;
	size_t i;

	begin();
	for (i = 0; i < nitems(statuses); i++) {
		rsp.status = statuses[i];
		xn_sent(&sc, 0, &done, 1);
	}
	CHECK(stats->tx_error == 1 && stats->tx_dropped == 1 && stats->tx_status == 3,
	    "%ju, %ju, %ju", stats->tx_error, stats->tx_dropped, stats->tx_status);
}

/* A group that the back end does not take is no packet that it refused. */
static void
refused_groups(const void *arg __unused)
{
	struct netif_tx_response rsp = { 0 };
	struct pvq_done done = { .pd_cookie = page, .pd_result = (uintptr_t)&rsp };
	const struct xn_stats *stats = &sc.xn_queues[0].xq_stats;

	begin();
	command = true;
	xn_sent(&sc, 0, &done, 1);
	CHECK(refilters == 0 && !sc.xn_mcast_refused, "taken");
	rsp.status = NETIF_RSP_ERROR;
	xn_sent(&sc, 0, &done, 1);
	CHECK(refilters == 1 && sc.xn_mcast_refused && stats->groups_refused == 1 &&
	    stats->tx_error == 0, "%ju refused, %ju errors", stats->groups_refused,
	    stats->tx_error);
}

static const struct hosted_test tests[] = {
	{ "plain_frame", "One buffer", plain_frame, NULL },
	{ "checksum_marks", "Blank and validated are different things", checksum_marks, NULL },
	{ "frame_of_buffers", "Several", frame_of_buffers, NULL },
	{ "big_frame", "With extra info, of one buffer and of several", big_frame, NULL },
	{ "data_outside_of_the_page", "Offset and status", data_outside_of_the_page, NULL },
	{ "failed_buffers", "A negative status", failed_buffers, NULL },
	{ "extra_info_that_cannot_be", "Or was not negotiated", extra_info_that_cannot_be, NULL },
	{ "extra_info_without_end", "Each says that another one follows", extra_info_without_end,
	    NULL },
	{ "frame_without_end", "Each buffer says that another one follows", frame_without_end,
	    NULL },
	{ "old_prefix", "Never asked for", old_prefix, NULL },
	{ "requests_of_packets", "As netif.h has them", requests_of_packets, NULL },
	{ "requests_of_a_big_packet", "With extra info, and the longest there is",
	    requests_of_a_big_packet, NULL },
	{ "answers_are_counted", "Per cause", answers_are_counted, NULL },
	{ "refused_groups", "The answer to a command", refused_groups, NULL },
	{ "rings_of_a_failed_set_up", "Nothing of an earlier one is touched",
	    rings_of_a_failed_set_up, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
