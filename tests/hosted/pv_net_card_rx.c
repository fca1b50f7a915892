/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net on rings: receiving.
 */

#include "pv_net_card.h"

#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

/* Buffers that the device has. */
static u_int
posted(void)
{

	return (pvq_inflight(CARD_RXQ(0)->prq_pvq));
}

/* In one buffer or in several: small ones are copied, and the buffer stays where it is. */
void
rx_frames_of_each_length(const void *arg)
{
	static const struct {
		u_int	len, parts;
		bool	copied;
	} table[] = {
		{ ETHER_HDR_LEN, 1, true }, { 60, 1, true }, { MHLEN - ETHER_ALIGN, 1, true },
		{ MHLEN - ETHER_ALIGN - 32, 1, true }, { MHLEN - ETHER_ALIGN - 31, 1, true },
		{ MHLEN - ETHER_ALIGN + 1, 1, false }, { 1514, 1, false }, { 1514, 2, false },
		{ MCLBYTES - 2 - CARD_HDR, 1, false },
		{ 60, 2, false }, { 60, 5, false }, { 20, 4, false }, { 20000, 12, false },
		{ PV_NET_MAX_FRAME, 40, false }
	};
	struct pv_net_rxstats *stats;
	uint64_t copied = 0, merged = 0, bytes = 0;
	size_t i;

	card_new(1);
	card.ca_params.pnp_phys = arg == NULL;
	card.ca_size = 64;
	CHECK(card_attach() == 0, "it does not attach");
	stats = &CARD_RXQ(0)->prq_stats;
	for (i = 0; i < 3 * nitems(table); i++) {
		CHECK(posted() == 64, "%u buffers", posted());
		CHECK(card_receive(0, i, table[i % nitems(table)].len,
		    table[i % nitems(table)].parts), "no buffer");
		card_intr(0, false);
		/* What IP reads of one that is not is aligned. */
		if (table[i % nitems(table)].parts == 1)
			CHECK((mtod(card.ca_up, uintptr_t) + ETHER_HDR_LEN) % 4 == 0, "%zu: at %p", i,
			    mtod(card.ca_up, void *));
		/* One that is copied has room for what is put before it, if there is any. */
		if (table[i % nitems(table)].copied)
			CHECK(M_TRAILINGSPACE(card.ca_up) >= 0 && (M_LEADINGSPACE(card.ca_up) >= 34) ==
			    (table[i % nitems(table)].len <= MHLEN - ETHER_ALIGN - 32), "%zu: room", i);
		card_up(i, table[i % nitems(table)].len);
		bytes += table[i % nitems(table)].len;
		copied += table[i % nitems(table)].copied;
		merged += table[i % nitems(table)].parts > 1;
		CHECK(stats->packets == i + 1 && stats->bytes == bytes, "counters");
		CHECK(stats->copied == copied, "%zu: copied", i);
		CHECK(stats->merged == merged, "%zu: merged", i);
	}
	CHECK(stats->runts == 0 && stats->bad_offload == 0 && stats->mcasts == 0 && stats->split == 0,
	    "errors");
	CHECK(kpi_dma_unsynced == 0, "%d buffers were unloaded without a sync", kpi_dma_unsynced);
	card_end();
}

/* What is no frame is dropped, and what comes before and behind is not. */
void
rx_what_is_invalid_is_dropped_alone(const void *arg __unused)
{
	struct pv_net_rxstats *stats;
	u_int i;

	card_new(1);
	card.ca_size = 64;
	CHECK(card_attach() == 0, "it does not attach");
	stats = &CARD_RXQ(0)->prq_stats;
	CHECK(card_receive(0, 1, 100, 1), "no buffer");
	CHECK(card_receive(0, 2, ETHER_HDR_LEN - 1, 1), "no buffer");
	CHECK(card_receive(0, 3, 100, 1), "no buffer");
	card_intr(0, false);
	CHECK(stats->runts == 1 && stats->packets == 2, "a runt");
	card_up(1, 100);
	card_up(3, 100);
	/* Its only buffer has an invalid header. */
	CHECK(card_receive(0, 4, 1, 1) && card_receive(0, 5, 300, 3), "no buffer");
	card_intr(0, false);
	CHECK(stats->bad_header == 1, "a bad header");
	card_up(5, 300);
	/* One byte more than the longest, in several; and so much that there are more behind that. */
	for (i = 0; i < 2; i++) {
		CHECK(card_receive(0, 6, PV_NET_MAX_FRAME + (i == 0 ? 1 : 8000), 40) &&
		    card_receive(0, 7, 60, 1), "no buffer");
		card_intr(0, false);
		card_settle();
		CHECK(stats->too_long == i + 1, "too long");
		card_up(7, 60);
		CHECK(card.ca_up == NULL, "the rest of it came up");
	}
	CHECK(card.ca_up == NULL && posted() == 64, "%u buffers", posted());
	card_end();
}

/*
 * Without memory the device has a quarter of its buffers at least, and there is an interrupt for each
 * frame, which is dropped; when there is memory again, all are posted, without another frame.
 */
void
rx_without_memory_the_ring_is_never_empty(const void *arg __unused)
{
	struct pv_net_rxstats *stats;
	u_int i, size;

	card_begin(1);
	stats = &CARD_RXQ(0)->prq_stats;
	kpi_no_memory = true;
	for (i = 0; i < 3 * CARD_SIZE; i++) {
		CHECK(card_receive(0, i, 1000, 1), "no buffer for frame %u", i);
		card_intr(0, false);
		CHECK(posted() == (i < CARD_SIZE * 3 / 4 ? CARD_SIZE - i - 1 : CARD_SIZE / 4),
		    "%u buffers", posted());
	}
	CHECK(stats->packets == CARD_SIZE * 3 / 4 && stats->recycled == 3 * CARD_SIZE - stats->packets,
	    "%lu came up", (u_long)stats->packets);
	CHECK(stats->nombuf > 0, "not counted");
	for (i = 0; i < stats->packets; i++)
		card_up(i, 1000);
	/* It tries again, for as long as there is none. */
	kpi_pass(250 * SBT_1MS);
	card_settle();
	CHECK(posted() == CARD_SIZE / 4, "%u buffers", posted());
	kpi_no_memory = false;
	card_settle();
	CHECK(posted() == CARD_SIZE / 4, "without waiting");
	kpi_pass(101 * SBT_1MS);
	card_settle();
	CHECK(posted() == CARD_SIZE, "%u buffers", posted());
	CHECK(card_receive(0, 99, 1000, 1), "no buffer");
	card_intr(0, false);
	card_up(99, 1000);
	card_end();
	/* A ring of few places keeps one. */
	for (size = 2; size <= 4; size += 2) {
		card_new(1);
		card.ca_size = size;
		CHECK(card_attach() == 0, "it does not attach");
		kpi_no_memory = true;
		for (i = 0; i < 6; i++) {
			CHECK(card_receive(0, i, 1000, 1), "no buffer for frame %u", i);
			card_intr(0, false);
			CHECK(posted() == (i + 1 < size ? size - i - 1 : 1), "%u buffers", posted());
		}
		kpi_no_memory = false;
		card_end();
	}
}

/* A pass ends after so many buffers; the task goes on, and then there are interrupts again. */
void
rx_budget_ends_a_pass(const void *arg __unused)
{
	struct peer *pe;
	u_int i;

	card_begin(1);
	pe = card_peer(0, false);
	card.ca_pn->pn_rx_budget = 4;
	for (i = 0; i < 10; i++)
		CHECK(card_receive(0, i, 200, 1), "no buffer");
	(void)pe->pe_ops->po_interrupts(pe);
	card_intr(0, false);
	CHECK(card.ca_nup == 4, "%u came up", card.ca_nup);
	CHECK(card_receive(0, i, 200, 1) && !pe->pe_ops->po_interrupts(pe), "an interrupt meanwhile");
	CHECK(kpi_run_tasks() == 1 && card.ca_nup == 8, "%u came up", card.ca_nup);
	card_settle();
	CHECK(card.ca_nup == 11 && CARD_RXQ(0)->prq_stats.deferred == 2, "%u came up", card.ca_nup);
	CHECK(card_receive(0, 50, 200, 1) && pe->pe_ops->po_interrupts(pe), "no interrupt");
	/* Nor does it go on when the queue is stopped. */
	for (i = 0; i < 6; i++)
		CHECK(card_receive(0, i, 200, 1), "no buffer");
	card_intr(0, false);
	CHECK(kpi_task_is_queued(&CARD_RXQ(0)->prq_task), "nothing is left");
	card_end();
}

/*
 * After a frame that is longer than a buffer new ones are large, and small again after as many others
 * as the ring has places.
 */
void
rx_buffers_follow_the_frames(const void *arg __unused)
{
	struct pv_net_rxstats *stats;
	u_int i;

	card_begin(1);
	stats = &CARD_RXQ(0)->prq_stats;
	for (i = 0; i < 2 * CARD_SIZE; i++) {
		CHECK(card_receive(0, i, 1000, 1), "no buffer");
		CHECK(card.ca_room <= MCLBYTES, "%lu bytes", (u_long)card.ca_room);
		card_intr(0, false);
	}
	CHECK(stats->bufs_16k == 0 && stats->bufs_page == 0 && stats->bufs == 3 * CARD_SIZE,
	    "%lu small ones", (u_long)stats->bufs);
	CHECK(card_receive(0, i++, MCLBYTES, 2), "no buffer");
	card_intr(0, false);
	CHECK(stats->bufs_16k == 0, "it fits into a cluster");
	CHECK(card_receive(0, i++, MCLBYTES + 1, 2), "no buffer");
	card_intr(0, false);
	CHECK(stats->bufs_16k == 2, "%lu large ones", (u_long)stats->bufs_16k);
	/* Those that are posted are used first. */
	for (; i <= 3 * CARD_SIZE; i++) {
		CHECK(card_receive(0, i, 1000, 1), "no buffer");
		card_intr(0, false);
	}
	CHECK(card.ca_room > MCLBYTES, "%lu bytes", (u_long)card.ca_room);
	for (; i < 5 * CARD_SIZE; i++) {
		CHECK(card_receive(0, i, 1000, 1), "no buffer");
		card_intr(0, false);
	}
	CHECK(card.ca_room <= MCLBYTES, "%lu bytes", (u_long)card.ca_room);
	/* Two for the long frame, and for each of the next ones but the last. */
	CHECK(stats->bufs_16k == 2 + CARD_SIZE - 1, "%lu large ones", (u_long)stats->bufs_16k);
	CHECK(stats->packets == i && stats->copied == 0, "%lu came up", (u_long)stats->packets);
	card_end();
}

/*
 * A buffer is the smallest cluster that holds the longest frame with its tag, and of a page at most if
 * frames may span buffers; IP's header is aligned in it.
 */
void
rx_layout(const void *arg __unused)
{
	static const struct {
		bool	merge;
		u_int	hdrlen, mtu, pad, cluster;
	} table[] = {
		{ true, 12, 1500, 2, MCLBYTES }, { false, 12, 1500, 2, MCLBYTES },
		{ true, 10, 1500, 0, MCLBYTES }, { true, 20, 1500, 2, MCLBYTES },
		{ true, 12, 2048 - 32, 2, MCLBYTES }, { true, 12, 2048 - 31, 2, MJUMPAGESIZE },
		{ false, 10, 2048 - 28, 0, MCLBYTES }, { false, 10, 2048 - 27, 0, MJUMPAGESIZE },
		{ true, 12, 65000, 2, MJUMPAGESIZE },
		{ false, 12, 4096 - 32, 2, MJUMPAGESIZE }, { false, 12, 4096 - 31, 2, MJUM9BYTES },
		{ false, 12, 9216 - 32, 2, MJUM9BYTES }, { false, 12, 9216 - 31, 2, MJUM16BYTES },
	};
	struct pv_net *net;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		card_new(1);
		card.ca_params.pnp_offloads &= ~PV_NET_RX_GSO;
		card.ca_params.pnp_merge = table[i].merge;
		card.ca_params.pnp_hdrlen = table[i].hdrlen;
		eth.if_mtu = table[i].mtu;
		CHECK(card_attach() == 0, "it does not attach");
		net = card.ca_pn;
		CHECK(net->pn_rx_pad == table[i].pad && net->pn_rx_cluster == table[i].cluster,
		    "%zu: %u, %u bytes", i, net->pn_rx_pad, net->pn_rx_cluster);
		card_end();
	}
}

/* Where frames may not span buffers, each is of 64 KB, of which a frame takes what it needs. */
void
rx_whole_frames_in_chains(const void *arg)
{
	static const u_int lens[] = { 60000, 1500, 65000, 4000, 5000, PV_NET_MAX_FRAME, 400 };
	int items;
	size_t i;

	/* Of a device that sends none of these, they are no longer than others. */
	card_new(1);
	card.ca_params.pnp_merge = false;
	card.ca_params.pnp_offloads &= ~PV_NET_RX_GSO;
	CHECK(card_attach() == 0 && card_receive(0, 1, 1500, 1), "no buffer");
	CHECK(card.ca_room <= MJUMPAGESIZE, "%lu bytes", (u_long)card.ca_room);
	card_intr(0, false);
	card_up(1, 1500);
	card_end();
	card_new(1);
	card.ca_params.pnp_merge = false;
	card.ca_params.pnp_phys = arg == NULL;
	card.ca_size = 32;
	CHECK(card_attach() == 0, "it does not attach");
	items = kpi_items;
	for (i = 0; i < 4 * nitems(lens); i++) {
		CHECK(posted() == 32, "%u buffers", posted());
		CHECK(card_receive(0, i, lens[i % nitems(lens)], 1), "no buffer");
		CHECK(card.ca_room >= PV_NET_MAX_FRAME + CARD_HDR, "%lu bytes", (u_long)card.ca_room);
		card_intr(0, false);
		card_up(i, lens[i % nitems(lens)]);
		CHECK(kpi_items == items, "%d mbufs and clusters are missing", items - kpi_items);
	}
	card_end();
}

static uintptr_t looked_at;
static u_int looks;

static void
look(uintptr_t addr, int size, bool store)
{

	looks += !store && addr <= looked_at && looked_at < addr + size;
}

/*
 * The ring is looked at when frames are taken, and once more when interrupts are enabled: not in
 * between, where nothing is merged with what comes meanwhile.
 */
void
rx_looks(const void *arg __unused)
{
	struct virtqueue_addrs addrs;
	u_int n;

	/* The ring is where the device has it. */
	kpi_bounced = false;
	card_begin(1);
	virtqueue_addrs(CARD_RXQ(0)->prq_pvq, &addrs);
	looked_at = addrs.vqa_device + offsetof(struct vring_used, vu_idx);
	for (n = 1; n <= 3; n++) {
		CHECK(card_receive(0, n, 200, 1), "no buffer");
		looks = 0;
		kpi_access_at = look;
		card_intr(0, false);
		kpi_access_at = NULL;
		CHECK(looks == 2, "%u looks for a frame", looks);
		card_up(n, 200);
	}
	card_end();
}

/* What tcp_lro(9) holds goes up when the queue is empty: nothing else may come. */
void
rx_merged(const void *arg __unused)
{
	static const struct pv_net_offload o = { .po_flags = VALID };
	static u_char buf[FRAME_MAX];
	size_t len;
	u_int i;

	card_new(1);
	card.ca_params.pnp_soft_lro = true;
	card.ca_merges = true;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	len = MIN(frame_make(&(const struct frame){ .f_ip = 4, .f_proto = IPPROTO_TCP,
	    .f_payload = 1000 }, FRAME_DONE, buf, NULL), 1200);
	memcpy(buf, lladdr, ETHER_ADDR_LEN);
	for (i = 0; i < 3; i++)
		CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_nup == 3 && CARD_RXQ(0)->prq_held == 0, "%u came up", card.ca_nup);
	card_end();
}

/* As many buffers are posted as the ring has places for all their segments. */
void
rx_buffers_of_several_places(const void *arg __unused)
{
	u_int i, n;

	card_new(1);
	card.ca_impl = &split_impls[3];	/* without indirect tables */
	card.ca_params.pnp_merge = false;
	card.ca_size = 64;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	n = posted();
	CHECK(n > 0 && n < 64 && pvq_room(CARD_RXQ(0)->prq_pvq) < 64 / (int)n, "%u buffers, %d places",
	    n, pvq_room(CARD_RXQ(0)->prq_pvq));
	for (i = 0; i < 20; i++) {
		CHECK(card_receive(0, i, 20000, 1), "no buffer");
		card_intr(0, false);
		card_up(i, 20000);
		CHECK(posted() == n, "%u buffers of %u", posted(), n);
	}
	card_end();
}

/* Whatever fails while a buffer is replaced, it is there again when there is memory. */
void
rx_memory_for_a_buffer(const void *arg __unused)
{
	u_int n;

	card_new(1);
	card.ca_params.pnp_phys = false;
	CHECK(card_attach() == 0, "it does not attach");
	for (n = 1; n < 8; n++) {
		CHECK(card_receive(0, n, 1500, 1) && card_receive(0, n + 20, 1500, 1), "no buffer");
		kpi_fail_after = n;
		card_intr(0, false);
		kpi_fail_after = 0;
		card_seconds(1);
		CHECK(posted() == CARD_SIZE, "%u buffers", posted());
	}
	card_end();
}

/* A frame comes up with all its parts, or not at all: whichever of them there is no memory for. */
void
rx_memory_for_a_part(const void *arg __unused)
{
	u_int first, n, up;

	for (first = 0; first < 3; first++) {
		card_begin(1);
		kpi_no_memory = card.ca_slow = true;
		for (n = 0; n < first; n++)
			CHECK(card_receive(0, n, 1500, 1), "no buffer");
		for (n = 0; n < CARD_SIZE; n++)
			CHECK(card_receive(0, 10 + n, 4500, 3), "no buffer");
		kpi_no_memory = card.ca_slow = false;
		CHECK(CARD_RXQ(0)->prq_stats.recycled > 0, "there was memory");
		card_seconds(1);
		CHECK(posted() == CARD_SIZE, "%u buffers", posted());
		for (n = 0; n < first; n++)
			card_up(n, 1500);
		for (up = 0; card.ca_up != NULL; up++)
			card_up(10 + up, 4500);
		CHECK(card_receive(0, 9, 4500, 3), "no buffer");
		card_intr(0, false);
		card_up(9, 4500);
		card_end();
	}
}

/* A copy of a page's frame has the memory that it needs, aligned where that costs nothing. */
static void
copies_of_pages(void)
{
	static const struct {
		u_int	len, size, pad;
	} table[] = {
		{ MHLEN - ETHER_ALIGN, 0, 2 }, { MHLEN - ETHER_ALIGN + 1, MCLBYTES, 2 },
		{ MCLBYTES - ETHER_ALIGN, MCLBYTES, 2 },
		{ MCLBYTES - ETHER_ALIGN + 1, MJUMPAGESIZE, 2 },
		{ PAGE_SIZE - ETHER_ALIGN, MJUMPAGESIZE, 2 },
		{ PAGE_SIZE - ETHER_ALIGN + 1, MJUMPAGESIZE, 0 }, { PAGE_SIZE, MJUMPAGESIZE, 0 },
	};
	static u_char memory[PAGE_SIZE];
	const struct pv_net_page page = { .npg_mem = memory };
	struct mbuf *m;
	size_t i;

	for (i = 0; i < sizeof(memory); i++)
		memory[i] = i * 7;
	for (i = 0; i < nitems(table); i++) {
		m = pv_net_stage_receive(&page, &(struct pv_net_rxhdr){ .prh_len = table[i].len });
		CHECK(m != NULL && m->m_len == (int)table[i].len && m->m_pkthdr.len == m->m_len &&
		    ((m->m_flags & M_EXT) != 0 ? m->m_ext.ext_size : 0) == table[i].size &&
		    M_LEADINGSPACE(m) == (int)table[i].pad && memcmp(m->m_data, memory, m->m_len) == 0,
		    "%u bytes", table[i].len);
		m_freem(m);
	}
}

/* Frames out of pages that stay where they are, which is where the next ones go. */
void
rx_staged(const void *arg __unused)
{
	static const struct {
		u_int	len, parts;
	} table[] = {
		{ ETHER_HDR_LEN, 1 }, { 60, 1 }, { MHLEN, 1 }, { 1514, 1 }, { 3000, 1 },
		{ PAGE_SIZE - CARD_HDR, 1 }, { 20000, 12 }, { 60, 3 }
	};
	struct pv_net_rxstats *stats;
	int items;
	u_int i;

	card_begin(1);
	stats = &CARD_RXQ(0)->prq_stats;
	items = kpi_items;
	for (i = 0; i < 4 * nitems(table); i++) {
		CHECK(posted() == CARD_SIZE && kpi_items == items, "%u buffers", posted());
		CHECK(card_receive(0, i, table[i % nitems(table)].len, table[i % nitems(table)].parts),
		    "no buffer");
		CHECK(card.ca_room == PAGE_SIZE, "%lu bytes", (u_long)card.ca_room);
		card_intr(0, false);
		/* Of the memory that it needs. */
		CHECK(table[i % nitems(table)].parts > 1 || ((card.ca_up->m_flags & M_EXT) == 0) ==
		    (table[i % nitems(table)].len <= MHLEN - ETHER_ALIGN), "%zu: its memory",
		    i % nitems(table));
		card_up(i, table[i % nitems(table)].len);
	}
	CHECK(stats->packets == i && stats->nombuf == 0, "%lu came up", (u_long)stats->packets);
	copies_of_pages();
	/* Without memory a frame is dropped, and its page is posted. */
	CHECK(card_receive(0, 1, 1000, 1), "no buffer");
	kpi_no_memory = true;
	card_intr(0, false);
	kpi_no_memory = false;
	CHECK(card.ca_up == NULL && stats->nombuf == 1 && posted() == CARD_SIZE, "%u buffers",
	    posted());
	CHECK(card_receive(0, 2, 1000, 1), "no buffer");
	card_intr(0, false);
	card_up(2, 1000);
	card_end();
	/* The device goes on while the card is down: what comes then is dropped. */
	card_new(1);
	card.ca_ops.pno_stop = NULL;
	card.ca_ops.pno_restart = NULL;
	CHECK(card_attach() == 0, "it does not attach");
	pv_dev_lock(pv_net_dev(card.ca_pn));
	pv_dev_down(pv_net_dev(card.ca_pn));
	CHECK(card_receive(0, 1, 1000, 1) && card_receive(0, 2, 60, 1), "no buffer");
	CHECK(pv_dev_up(pv_net_dev(card.ca_pn)) == 0, "it does not come up");
	pv_dev_unlock(pv_net_dev(card.ca_pn));
	card_settle();
	CHECK(card.ca_nup == 0 && posted() == CARD_SIZE, "%u came up, %u buffers", card.ca_nup,
	    posted());
	CHECK(card_receive(0, 3, 1000, 1), "no buffer");
	card_intr(0, false);
	card_up(3, 1000);
	card_end();
}

/* What lies there without an interrupt is taken after seconds, and nothing else is. */
void
rx_lost_interrupt(const void *arg __unused)
{
	struct pv_net_rxstats *stats;

	card_begin(1);
	stats = &CARD_RXQ(0)->prq_stats;
	card_seconds(10);
	CHECK(stats->lost_intrs == 0, "none was lost");
	CHECK(card_receive(0, 1, 200, 1), "no buffer");
	card_seconds(1);
	CHECK(card.ca_up == NULL, "too early: the interrupt may still come");
	card_seconds(1);
	CHECK(stats->lost_intrs == 1, "%lu were lost", (u_long)stats->lost_intrs);
	card_up(1, 200);
	/* Those that come in time are none of it. */
	CHECK(card_receive(0, 2, 200, 1), "no buffer");
	kpi_pass(SBT_1S);
	card_intr(0, false);
	CHECK(card_receive(0, 3, 200, 1), "no buffer");
	kpi_pass(SBT_1S);
	card_intr(0, false);
	card_settle();
	CHECK(stats->lost_intrs == 1, "%lu were lost", (u_long)stats->lost_intrs);
	CHECK(pv_dev_is_live(&card.ca_pn->pn_pvdev) && card.ca_log[0] == '\0', "%s", card.ca_log);
	card_end();
}

static void
begin_a_frame(void)
{
	static u_char bytes[1000];
	struct pv_net_offload offload = { .po_hdr_len = 3 };
	struct peer *pe = card_peer(0, false);
	struct peer_chain pr;

	CHECK(pe->pe_ops->po_fetch(pe, &pr), "no buffer");
	memcpy(bytes, &offload, CARD_HDR);
	memcpy((void *)(uintptr_t)pr.pr_segs[0].addr, bytes, sizeof(bytes));
	pe->pe_ops->po_complete(pe, pr.pr_id, sizeof(bytes));
	pe->pe_ops->po_publish(pe);
	card_intr(0, false);
	CHECK(CARD_RXQ(0)->prq_head != NULL, "no frame has begun");
}

/* The rest of a frame does not come when the device was reset, and the next one begins anew. */
void
rx_half_a_frame_is_forgotten(const void *arg __unused)
{

	card_begin(1);
	begin_a_frame();
	pv_dev_lock(pv_net_dev(card.ca_pn));
	(void)pv_dev_restart(pv_net_dev(card.ca_pn));
	pv_dev_unlock(pv_net_dev(card.ca_pn));
	CHECK(strcmp(card.ca_log, "stop start pairs=1 ") == 0, "%s", card.ca_log);
	card_settle();
	CHECK(card_receive(0, 2, 1000, 1), "no buffer");
	card_intr(0, false);
	card_up(2, 1000);
	/* Nor does it stay when the card goes. */
	begin_a_frame();
	card_end();
}

/* What takes the fast path, and what does not: it comes up the same way. */
void
rx_fast_path(const void *arg __unused)
{
	static const struct {
		u_int	len, parts;
		bool	fast, copied;
	} table[] = {
		{ ETHER_HDR_LEN - 1, 1, false, true }, { ETHER_HDR_LEN, 1, true, true },
		{ MHLEN - ETHER_ALIGN, 1, true, true }, { MHLEN - ETHER_ALIGN + 1, 1, true, false },
		{ 1514, 1, true, false }, { MCLBYTES - 2 - CARD_HDR, 1, true, false },
		{ 60, 2, false, false },
	};
	struct pv_net_rxstats *stats;
	u_int i, fast = 0, copied = 0, before;
	uint64_t kicks;
	struct pvq *q;

	card_begin(2);
	q = CARD_RXQ(1)->prq_pvq;
	stats = &CARD_RXQ(1)->prq_stats;
	for (i = 0; i < 5 * nitems(table); i++) {
		before = stats->packets;
		kicks = q->q_stats.qs_kicks + q->q_stats.qs_nokicks;
		CHECK(card_receive(1, i, table[i % nitems(table)].len, table[i % nitems(table)].parts),
		    "no buffer");
		card_intr(1, false);
		/* The device has the buffer again, and is notified if it requested that. */
		CHECK(pvq_inflight(q) == CARD_SIZE && q->q_stats.qs_kicks + q->q_stats.qs_nokicks ==
		    kicks + 1, "%u: not posted again", i);
		fast += table[i % nitems(table)].fast;
		copied += table[i % nitems(table)].copied;
		CHECK(stats->packets == before + (i % nitems(table) != 0), "%u: %ju", i,
		    (uintmax_t)stats->packets);
		if (i % nitems(table) == 0)
			continue;
		CHECK(M_HASHTYPE_GET(card.ca_up) == M_HASHTYPE_OPAQUE &&
		    card.ca_up->m_pkthdr.flowid == 1, "no flow");
		card_up(i, table[i % nitems(table)].len);
	}
	CHECK(card.ca_plain == fast && stats->copied == copied, "%u took it, of %u", card.ca_plain,
	    fast);
	/* Without memory for another buffer nothing is lost, nor while large frames come. */
	kpi_no_memory = true;
	CHECK(card_receive(1, 1, 1000, 1), "no buffer");
	card_intr(1, false);
	kpi_no_memory = false;
	card_up(1, 1000);
	card_seconds(1);
	CHECK(card_receive(1, 2, 5000, 3) && card_receive(1, 3, 1000, 1) &&
	    card_receive(1, 4, 60, 1), "no buffer");
	card_intr(1, false);
	card_up(2, 5000);
	card_up(3, 1000);
	card_up(4, 60);
	CHECK(CARD_RXQ(1)->prq_large == CARD_SIZE - 2, "%u", CARD_RXQ(1)->prq_large);
	CHECK(pvq_inflight(q) == CARD_SIZE, "buffers");
	/* While it is switched off, none takes it. */
	pv_net_fast_path = 0;
	fast = card.ca_plain;
	CHECK(card_receive(1, 5, 300, 1), "no buffer");
	card_intr(1, false);
	card_up(5, 300);
	pv_net_fast_path = 1;
	CHECK(card.ca_plain == fast, "it took it");
	card_end();
}

/* The marks that a frame has are the same by either way. */
void
rx_fast_marks(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], got[FRAME_MAX];
	struct pv_net_rxstats *stats;
	struct pv_net_offload o;
	struct frame_at at;
	size_t g, len;
	int valid;

	card_begin(1);
	stats = &CARD_RXQ(0)->prq_stats;
	for (g = 0; g < NGOOD; g++) {
		len = frame_make(&good[g].f, FRAME_PARTIAL, buf, &at);
		memcpy(buf, lladdr, ETHER_ADDR_LEN);
		o = (struct pv_net_offload){ .po_flags = NEEDS, .po_csum_start = at.at_l4,
		    .po_csum_offset = at.at_sum - at.at_l4 };
		CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
		card_intr(0, false);
		CHECK(card.ca_nup == 2 * g + 1 && stats->csum_partial == g + 1, "%s: %u came up",
		    good[g].name, card.ca_nup);
		/* It ends here, and what is to be finished is marked as the stack marks it. */
		CHECK(card.ca_up->m_pkthdr.rcvif == card.ca_pn->pn_ifp, "another interface");
		if ((card.ca_up->m_pkthdr.csum_flags & sum_mark(&good[g].f)) == 0)
			CHECK(frame_sum_ok(&good[g].f, got, flat(card.ca_up, got)), "%s: 0x%x",
			    good[g].name, card.ca_up->m_pkthdr.csum_flags);
		else
			CHECK(card.ca_up->m_pkthdr.csum_data == o.po_csum_offset, "%s: %u",
			    good[g].name, card.ca_up->m_pkthdr.csum_data);
		(void)free_all(card.ca_up);
		card.ca_up = NULL;
		card.ca_up_tail = &card.ca_up;
		len = frame_make(&good[g].f, FRAME_DONE, buf, &at);
		memcpy(buf, lladdr, ETHER_ADDR_LEN);
		buf[0] |= g % 2;
		o = (struct pv_net_offload){ .po_flags = VALID };
		CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
		card_intr(0, false);
		valid = CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
		CHECK((card.ca_up->m_pkthdr.csum_flags & valid) == valid &&
		    stats->csum_valid == g + 1, "%s: 0x%x", good[g].name,
		    card.ca_up->m_pkthdr.csum_flags);
		CHECK(stats->mcasts == (g + 1) / 2, "multicast");
		(void)free_all(card.ca_up);
		card.ca_up = NULL;
		card.ca_up_tail = &card.ca_up;
	}
	/* The device says nothing: nor does the frame. */
	o = (struct pv_net_offload){ .po_flags = 0 };
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_up->m_pkthdr.csum_flags == 0 && stats->csum_valid == NGOOD, "0x%x",
	    card.ca_up->m_pkthdr.csum_flags);
	(void)free_all(card.ca_up);
	card.ca_up = NULL;
	card.ca_up_tail = &card.ca_up;
	CHECK(stats->bad_offload == 0 && stats->csum_unasked == 0 &&
	    card.ca_plain == (card_has_fast ? 2 * NGOOD + 1 : 0) &&
	    card.ca_general == (card_has_fast ? 0 : 2 * NGOOD + 1), "%u took it", card.ca_plain);
	/* A sum that is nowhere in the frame: it is dropped. */
	o = (struct pv_net_offload){ .po_flags = NEEDS, .po_csum_start = len, .po_csum_offset = 0 };
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_up == NULL && stats->bad_offload == 1 && stats->bad[PV_NET_BAD_CSUM] == 1 &&
	    stats->csum_partial == NGOOD, "it came up, or is not counted");
	card_end();
	/* Not negotiated: nothing is believed. */
	card_new(1);
	card.ca_params.pnp_offloads = 0;
	CHECK(card_attach() == 0, "it does not attach");
	stats = &CARD_RXQ(0)->prq_stats;
	o = (struct pv_net_offload){ .po_flags = VALID };
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_up->m_pkthdr.csum_flags == 0 && stats->csum_valid == 0, "believed");
	/* What it left to be done is done all the same. */
	len = frame_make(&good[0].f, FRAME_PARTIAL, buf, &at);
	o = (struct pv_net_offload){ .po_flags = NEEDS, .po_csum_start = at.at_l4,
	    .po_csum_offset = at.at_sum - at.at_l4 };
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_nup == 2 && stats->csum_unasked == 1 && stats->csum_partial == 1, "not counted");
	card_end();
}

/* A GSO packet is split where the kernel forwards, and comes up as it is where it ends. */
void
rx_gso_packets(const void *arg __unused)
{
	static u_char buf[FRAME_MAX];
	struct pv_net_rxstats *stats;
	const struct gso *g = &gsos[0];
	struct pv_net_offload o;
	struct frame_at at;
	u_int n;
	size_t len;

	card_new(1);
	card.ca_size = 64;
	card.ca_params.pnp_merge = false;
	CHECK(card_attach() == 0, "it does not attach");
	stats = &CARD_RXQ(0)->prq_stats;
	len = frame_make(&g->f, FRAME_PARTIAL, buf, &at);
	o = (struct pv_net_offload){ .po_flags = g->flags, .po_gso_type = g->type,
	    .po_gso_size = g->size, .po_csum_start = at.at_l4, .po_csum_offset = at.at_sum - at.at_l4 };
	n = howmany(g->f.f_payload, g->size);
	V_ipforwarding = 1;
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_nup == n && stats->split == 1 && stats->lro == 0 && stats->csum_partial == 1 &&
	    stats->gso_unasked == 0, "%u came up of %u", card.ca_nup, n);
	V_ipforwarding = 0;
	memcpy(buf, lladdr, ETHER_ADDR_LEN);
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_nup == n + 1 && stats->split == 1 && stats->lro == 1, "%u came up",
	    card.ca_nup - n);
	/* Without memory for segments it is dropped, which is no fault of its own. */
	V_ipforwarding = 1;
	buf[5] ^= 1;
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	kpi_no_memory = true;
	card_intr(0, false);
	kpi_no_memory = false;
	CHECK(card.ca_nup == n + 1 && stats->nombuf > 0 && stats->bad_offload == 0 &&
	    stats->split == 1 && CARD_RXQ(0)->prq_head == NULL, "%u came up", card.ca_nup - n - 1);
	card_seconds(1);
	CHECK(posted() == 64, "%u buffers", posted());
	card_end();
	/* Not negotiated: it is split, whomever it is for. */
	card_new(1);
	card.ca_size = 64;
	card.ca_params.pnp_offloads = PV_NET_RXCSUM;
	CHECK(card_attach() == 0, "it does not attach");
	stats = &CARD_RXQ(0)->prq_stats;
	len = frame_make(&gsos[7].f, FRAME_PARTIAL, buf, &at);
	memcpy(buf, lladdr, ETHER_ADDR_LEN);
	o.po_gso_size = gsos[7].size;
	CHECK(card_receive_bytes(0, buf, len, &o), "no buffer");
	card_intr(0, false);
	CHECK(card.ca_nup == 3 && stats->split == 1 && stats->gso_unasked == 1 &&
	    stats->csum_unasked == 0, "%u came up", card.ca_nup);
	card_end();
}

/* A ring that is too short for a buffer's pages receives nothing until buffers are smaller. */
void
rx_too_many_segments(const void *arg __unused)
{
	struct pv_net_rxstats *stats;
	int lines;

	card_new(1);
	card.ca_impl = &split_impls[3];	/* without indirect tables */
	card.ca_size = 2;
	card.ca_params.pnp_merge = false;
	card.ca_params.pnp_offloads &= ~PV_NET_RX_GSO;
	eth.if_mtu = 9000;
	kpi_scattered = true;	/* each page is a segment */
	kpi_quiet = true;
	lines = kpi_lines;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	stats = &CARD_RXQ(0)->prq_stats;
	CHECK(posted() == 0 && stats->unfit == 1 && kpi_items == 0, "%u buffers, %ju", posted(),
	    (uintmax_t)stats->unfit);
	CHECK(kpi_lines == lines + 1 && strncmp(kpi_line, "rxq0: a buffer of 9214 bytes has ",
	    33) == 0 && strstr(kpi_line, " segments, the ring takes 2: nothing is received until") !=
	    NULL, "%s", kpi_line);
	/* It is tried from time to time, and not said again. */
	kpi_pass(101 * SBT_1MS);
	card_settle();
	CHECK(stats->unfit == 2 && kpi_lines == lines + 1, "%ju", (uintmax_t)stats->unfit);
	kpi_scattered = false;
	eth.if_mtu = 1500;
	pv_net_rx_layout(card.ca_pn);
	kpi_pass(101 * SBT_1MS);
	card_settle();
	CHECK(posted() == 2 && stats->unfit == 2, "%u buffers", posted());
	CHECK(card_receive(0, 1, 1000, 1), "no buffer");
	card_intr(0, false);
	card_up(1, 1000);
	card_end();
}

/* All queues together have no more than a quarter of the kernel's pages, but a few buffers each. */
void
rx_whole_buffers_of_the_kernels_pages(const void *arg __unused)
{
	static const struct {
		int	pairs;
		u_int	size, pages, bufs;
	} table[] = {
		{ 1, 32, 0, 32 }, { 1, 64, 0, 64 }, { 1, 128, 0, 64 },
		{ 1, 128, 4 * 17 * 64 - 1, 63 }, { 1, 128, 4 * 17 * 64, 64 },
		{ 1, 128, 4 * 17 * 70, 64 }, { 2, 128, 4 * 17 * 20, 10 }, { 3, 64, 4 * 17 * 15, 5 },
		{ 1, 64, 4 * 17 * 5 - 1, 4 }, { 1, 64, 4 * 17 * 3, 4 }, { 1, 64, 4, 4 },
	};
	size_t i;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		card_new(table[i].pairs);
		card.ca_size = table[i].size;
		card.ca_params.pnp_merge = false;
		kpi_zone_max = table[i].pages;
		CHECK(card_attach() == 0, "it does not attach");
		CHECK(CARD_RXQ(0)->prq_max_bufs == table[i].bufs && posted() == table[i].bufs,
		    "%zu: %u buffers", i, CARD_RXQ(0)->prq_max_bufs);
		card_end();
	}
}

/*
 * By the fast path the device is notified of a quarter of the ring, if the other three are enough for
 * the longest frame; and when it has run out of buffers.
 */
void
rx_notified_of_many(const void *arg __unused)
{
	static const struct {
		u_int	size, each;
	} table[] = { { 16, 1 }, { 32, 1 }, { 64, 17 }, { 128, 33 } };
	struct peer *pe;
	u_int each, i, n;

	for (i = 0; i < nitems(table); i++) {
		each = card_has_fast ? table[i].each : 1;
		card_new(1);
		card.ca_impl = &split_impls[2];	/* whose device asks for each notification */
		card.ca_size = table[i].size;
		CHECK(card_attach() == 0, "it does not attach");
		pe = card_peer(0, false);
		CHECK(pe->pe_kicks == 1, "%u notifications of the first buffers", pe->pe_kicks);
		for (n = 0; n < 3 * each; n++) {
			pe->pe_kicks = 0;
			CHECK(card_receive(0, n, 100 + n, 1), "no buffer");
			card_intr(0, false);
			card_up(n, 100 + n);
			CHECK(posted() == table[i].size, "%u buffers", posted());
			CHECK(pe->pe_kicks == ((n + 1) % each == 0), "%u of %u: %u notifications", n,
			    table[i].size, pe->pe_kicks);
		}
		for (n = 0; n < table[i].size; n++)
			CHECK(card_receive(0, n, 100, 1), "no buffer");
		CHECK(!card_receive(0, n, 100, 1), "a buffer is left");
		pe->pe_kicks = 0;
		card_intr(0, false);
		for (n = 0; n < table[i].size; n++)
			card_up(n, 100);
		CHECK(pe->pe_kicks > 0, "not notified");
		card_end();
	}
}
