/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: xn(4)'s messages, both ways.
 *
 * Received ones are whatever the back end writes, one after the other in the ring; a frame's data lies
 * in its page, the frame ends, and has no metadata that was not negotiated.  Responses to sent packets
 * are counted, each once.  And requests are made of any packet that pv_net may send: each segment is
 * in one message, extra info has no id, the size is the packet's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/netfront/netfront_var.h>

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"

static struct xn_softc sc;
static struct xn_packet packets[1];
static bool command;
static u_int refilters;

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

/* A message, in memory that ends where it does. */
static struct pvq_done
fuzz_message(struct fuzz_input *in, size_t size)
{
	void *copy = host_alloc(size, 8);

	fuzz_fill(in, copy, size);
	return (struct pvq_done){ .pd_cookie = copy, .pd_result = (uintptr_t)copy };
}

/* One buffer after the other; those of a frame are few. */
static void
fuzz_receive(struct fuzz_input *in, u_int *bufs, bool *bad)
{
	struct pvq_done done = fuzz_message(in, sizeof(struct netif_rx_response));
	struct pv_net_rxhdr hdr = { .prh_hdr = NULL, .prh_room = PAGE_SIZE };
	const struct pv_net_offload *o = &hdr.prh_offload;

	xn_decap(&sc, 0, &done, &hdr, 1);
	host_free(done.pd_cookie);
	if (hdr.prh_error == PV_NET_RX_OK && !*bad) {
		CHECK(hdr.prh_skip + hdr.prh_len <= PAGE_SIZE, "%u bytes at %u", hdr.prh_len,
		    hdr.prh_skip);
		CHECK(++*bufs <= XN_RX_BUFS + 1, "%u buffers", *bufs);
		CHECK(o->po_gso_type == PV_NET_GSO_NONE || (o->po_gso_size != 0 &&
		    (sc.xn_offloads & (o->po_gso_type == PV_NET_GSO_TCP4 ? PV_NET_LRO4 :
		    PV_NET_LRO6)) != 0), "type %u of %u bytes", o->po_gso_type, o->po_gso_size);
	} else
		*bad = true;
	if (!hdr.prh_more) {
		*bufs = 0;
		*bad = false;
	}
}

static void
fuzz_sent(struct fuzz_input *in)
{
	struct xn_stats *st = &sc.xn_queues[0].xq_stats;
	struct pvq_done done = fuzz_message(in, sizeof(struct netif_tx_response));
	const struct netif_tx_response *rsp = done.pd_cookie;
	uint64_t before = st->tx_dropped + st->tx_error + st->tx_status + st->groups_refused, after;
	bool good = rsp->status == NETIF_RSP_OKAY || (rsp->status == NETIF_RSP_NULL && !command);

	xn_sent(&sc, 0, &done, 1);
	after = st->tx_dropped + st->tx_error + st->tx_status + st->groups_refused;
	CHECK(after - before == !good, "status %d counted %lu times", rsp->status, after - before);
	host_free(done.pd_cookie);
}

static void
fuzz_send(struct fuzz_input *in)
{
	struct pvq_chain pc = { .pc_nread = 1 + fuzz_byte(in) % XN_TX_SEGS };
	bus_dma_segment_t segs[XN_TX_SEGS];
	struct pv_net_txhdr hdr = { .pth_chain = &pc };
	struct netif_tx_request *req = packets[0].xnp_reqs;
	u_int i, left, total = 0, sum = 0;

	for (i = 0; i < pc.pc_nread; i++) {
		left = XEN_NETIF_MAX_TX_SIZE - total - (pc.pc_nread - i);
		segs[i].ds_len = 1 + fuzz_word(in) % MIN(PAGE_SIZE, left + 1);
		segs[i].ds_addr = ((bus_addr_t)fuzz_word(in) << PAGE_SHIFT) +
		    fuzz_word(in) % (PAGE_SIZE - segs[i].ds_len + 1);
		total += segs[i].ds_len;
	}
	pc.pc_segs = segs;
	hdr.pth_offload.po_flags = fuzz_byte(in);
	hdr.pth_offload.po_gso_type = pc.pc_nread < XN_TX_SLOTS ? fuzz_byte(in) % 3 : PV_NET_GSO_NONE;
	hdr.pth_offload.po_gso_size = fuzz_word(in);
	xn_prepare(&sc, 0, 0, &hdr);
	xn_encap(&sc, 0, &hdr, 1);
	CHECK(req->size == total, "%u bytes of %u", req->size, total);
	for (i = 0; i < packets[0].xnp_msgs.gm_n; i++) {
		if ((packets[0].xnp_msgs.gm_noid & 1 << i) != 0)
			continue;
		CHECK(req[i].offset + (i == 0 ? 1 : req[i].size) <= PAGE_SIZE, "message %u", i);
		CHECK(((req[i].flags & NETTXF_more_data) != 0) == (i + 1 < packets[0].xnp_msgs.gm_n &&
		    pc.pc_nread > 1), "message %u: flags 0x%x", i, req[i].flags);
		sum += i == 0 ? segs[0].ds_len : req[i].size;
	}
	CHECK(sum == total, "%u bytes of %u", sum, total);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size }, again;
	uint8_t op, options = fuzz_byte(&in);
	u_int bufs = 0, n;
	bool bad = false;

	memset(&sc, 0, sizeof(sc));
	command = (options & 4) != 0;
	sc.xn_offloads = ((options & 1) != 0 ? PV_NET_LRO4 : 0) |
	    ((options & 2) != 0 ? PV_NET_LRO6 : 0);
	sc.xn_queues[0].xq_softc = &sc;
	sc.xn_queues[0].xq_packets = packets;
	while (in.fi_left > 0) {
		op = fuzz_byte(&in);
		switch (op % 4) {
		case 0:
			fuzz_sent(&in);
			break;
		case 1:
			fuzz_send(&in);
			break;
		default:
			/* One message, or the same again and again. */
			again = in;
			for (n = op < 0xc0 ? 1 : 1 + op % 32; n > 0; n--) {
				in = again;
				fuzz_receive(&in, &bufs, &bad);
			}
		}
	}
	return (0);
}
