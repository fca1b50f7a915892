/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net on rings, one step after the other: sending, notification and completion.  Other ways to send
 * are in pv_net_card_tx.c, what is received is in pv_net_card_rx.c, and the life of queues in
 * pv_net_card_life.c.
 */

#include "pv_net_card.h"

#include <sys/priority.h>
#include <sys/proc.h>

/* One packet each way; what is sent by one pair is sent by no other. */
static void
tx_and_rx(const void *arg __unused)
{
	struct pv_net_txq *txq;

	card_begin(2);
	txq = CARD_TXQ(1);
	CHECK(card_send(1, 5, 100) == 0, "not sent");
	CHECK(card_idle(0), "sent by the other pair");
	card_complete(1, card_takes(1, 5, 100));
	CHECK(txq->ptq_stats.packets == 1 && txq->ptq_stats.bytes == 100 && txq->ptq_stats.csum == 0 &&
	    txq->ptq_stats.tso == 0 && txq->ptq_stats.mcasts == 0, "counters");
	CHECK(card_receive(1, 7, 900, 1), "no buffer");
	card_intr(1, false);
	/* Answers are sent by the pair that it came by. */
	CHECK(M_HASHTYPE_GET(card.ca_up) == M_HASHTYPE_OPAQUE && card.ca_up->m_pkthdr.flowid == 1,
	    "flow %u", card.ca_up->m_pkthdr.flowid);
	card_up(7, 900);
	CHECK(card.ca_up == NULL, "twice");
	card_end();
}

/* What completed is freed soon, without another packet and without an interrupt. */
static void
tx_completions_are_collected_by_the_timer(const void *arg __unused)
{
	struct pv_net_txq *txq;
	int items, callouts;

	card_begin(1);
	txq = CARD_TXQ(0);
	items = kpi_items;
	callouts = kpi_callouts;
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 1, 100));
	CHECK(!card_peer(0, true)->pe_ops->po_interrupts(card_peer(0, true)), "an interrupt");
	card_settle();
	CHECK(kpi_items > items, "freed before anybody looked");
	kpi_pass(9 * SBT_1MS);
	card_settle();
	CHECK(kpi_items > items, "too early");
	kpi_pass(2 * SBT_1MS);
	card_settle();
	CHECK(kpi_items == items && txq->ptq_stats.timer_reclaims == 1, "not freed");
	CHECK(kpi_callouts == callouts, "the timer goes on");
	/* For as long as something is in flight, it looks again. */
	CHECK(card_send(0, 2, 100) == 0, "not sent");
	kpi_pass(25 * SBT_1MS);
	card_settle();
	kpi_pass(11 * SBT_1MS);
	card_settle();
	CHECK(txq->ptq_stats.timer_reclaims > 2 && kpi_callouts == callouts + 1, "no timer");
	card_end();
	/* The kernel may combine the timer with others, which delays it by a quarter at most. */
	kpi_late = true;
	card_begin(1);
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 1, 100));
	kpi_pass(12400 * SBT_1US);
	CHECK(CARD_TXQ(0)->ptq_stats.timer_reclaims == 0, "too early");
	kpi_pass(200 * SBT_1US);
	CHECK(CARD_TXQ(0)->ptq_stats.timer_reclaims == 1, "too late");
	kpi_late = false;
	card_end();
}

/*
 * A full ring: nothing is lost, the order is kept, and the device is asked for an interrupt when three
 * quarters have completed.
 */
static void
tx_full_ring(const void *arg __unused)
{
	struct peer *pe;
	struct pv_net_txq *txq;
	uint32_t ids[CARD_SIZE];
	u_int i;

	card_begin(1);
	pe = card_peer(0, true);
	txq = CARD_TXQ(0);
	for (i = 0; i < CARD_SIZE + 5; i++)
		CHECK(card_send(0, i, 100 + i) == 0, "packet %u", i);
	CHECK(txq->ptq_stats.waits > 0 && txq->ptq_stats.queue_drops == 0, "nothing waits");
	for (i = 0; i < CARD_SIZE; i++)
		ids[i] = card_takes(0, i, 100 + i);
	CHECK(card_idle(0), "more than the ring has room for");
	for (i = 0; i < CARD_SIZE; i++) {
		CHECK(!pe->pe_ops->po_interrupts(pe) || i == CARD_SIZE * 3 / 4,
		    "an interrupt after %u", i);
		card_complete(0, ids[i]);
	}
	CHECK(card_idle(0), "without an interrupt");
	pe->pe_kicks = 0;
	(void)pe->pe_ops->po_listen(pe);
	card_intr(0, true);
	CHECK(pe->pe_kicks == 1, "%u notifications", pe->pe_kicks);
	for (i = CARD_SIZE; i < CARD_SIZE + 5; i++)
		card_complete(0, card_takes(0, i, 100 + i));
	CHECK(card_idle(0) && txq->ptq_stats.packets == CARD_SIZE + 5, "more");
	card_end();
}

/* A ring that one packet fills: its completion is waited for, and nothing else. */
static void
tx_one_packet_fills_the_ring(const void *arg __unused)
{
	static const size_t three[] = { 100, 100, 0 };
	static u_char bytes[600];
	struct pv_net_txq *txq;
	struct peer *pe;
	struct mbuf *m;
	u_int i, number;

	card_new(1);
	card.ca_impl = &split_impls[3];	/* without indirect tables */
	card.ca_size = 4;
	CHECK(card_attach() == 0, "it does not attach");
	txq = CARD_TXQ(0);
	pe = card_peer(0, true);
	for (number = 0; number < 2; number++) {
		for (i = ETHER_HDR_LEN; i < sizeof(bytes); i++)
			bytes[i] = number * 31 + i * 7;
		m = kpi_mbuf_chain(bytes, sizeof(bytes), three);
		m->m_flags |= number == 1 ? M_VLANTAG : 0;
		CHECK(card_transmit(0, m) == 0, "packet %u", number);
	}
	CHECK(pvq_inflight(txq->ptq_pvq) == 1 && txq->ptq_stats.waits == 1, "%d in flight, %ju waits",
	    pvq_inflight(txq->ptq_pvq), (uintmax_t)txq->ptq_stats.waits);
	card_complete(0, card_takes(0, 0, sizeof(bytes)));
	CHECK(pe->pe_ops->po_interrupts(pe), "no interrupt is requested");
	card_intr(0, true);
	card_complete(0, card_takes(0, 1, sizeof(bytes)));
	/* It was tried twice, and has one tag. */
	CHECK(card.ca_tags == 1, "%u tags", card.ca_tags);
	card_end();
}

/* What can't be put because the queue is broken is dropped and counted; after its reset all is sent. */
static void
tx_of_a_broken_queue(const void *arg __unused)
{
	struct pv_net_txq *txq;
	int items;

	card_begin(1);
	txq = CARD_TXQ(0);
	items = kpi_items;
	kpi_quiet = true;
	pvq_break(txq->ptq_pvq, PVQ_FAULT_OWNER, 0);
	(void)card_send(0, 1, 100);
	CHECK(txq->ptq_stats.nomem == 1 && txq->ptq_stats.packets == 0 && kpi_items == items,
	    "%ju dropped, %d kept", (uintmax_t)txq->ptq_stats.nomem, kpi_items - items);
	card_settle();
	CHECK(card_send(0, 2, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 2, 100));
	CHECK(txq->ptq_stats.nomem == 1, "%ju dropped", (uintmax_t)txq->ptq_stats.nomem);
	card_end();
}

/* Senders collect what completed when a quarter is in flight, and not with each packet. */
static void
tx_senders_collect(const void *arg __unused)
{
	struct pv_net_txq *txq;
	u_int i, looked, most = 0;

	card_begin(1);
	txq = CARD_TXQ(0);
	for (i = 0; i < 100; i++) {
		CHECK(card_send(0, i, 60) == 0, "packet %u", i);
		most = MAX(most, txq->ptq_nbufs - txq->ptq_nfree);
		card_complete(0, card_takes(0, i, 60));
	}
	/* When the fourth is in the ring, those before it are collected. */
	CHECK(most == CARD_SIZE / 4 - 1, "%u were in flight", most);
	CHECK(txq->ptq_stats.waits == 0, "it was full");
	card_end();
	/* If none of them has completed, it is looked again after a quarter of those that are free. */
	card_new(1);
	card.ca_size = 64;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	txq = CARD_TXQ(0);
	looked = 64;
	for (i = 0; i < 62; i++) {
		CHECK(card_send(0, i, 60) == 0, "packet %u", i);
		if (txq->ptq_nfree <= looked - looked / 4)
			looked = txq->ptq_nfree;
		CHECK(txq->ptq_threshold == MIN(64 - 64 / 4, looked - looked / 4), "%u free, %u",
		    txq->ptq_nfree, txq->ptq_threshold);
	}
	card_sends(0, i);
	card_end();
}

/* Behind the ring is a queue; what finds no room there is dropped and freed. */
static void
tx_queue_is_full(const void *arg __unused)
{
	struct pv_net_txq *txq;
	u_int sent, dropped, i;
	int items;

	card_begin(1);
	txq = CARD_TXQ(0);
	for (sent = 0; card_send(0, sent, 60) == 0; sent++)
		CHECK(sent < 5000, "it takes everything");
	/* Those in the ring, one that found no room there, and a queue of 1024 with a free place. */
	CHECK(sent == CARD_SIZE + 1 + 1023 && txq->ptq_stats.queue_drops == 1, "%u were sent", sent);
	items = kpi_items;
	CHECK(card_send(0, 0, 60) == ENOBUFS && kpi_items == items, "not freed");
	dropped = txq->ptq_stats.queue_drops;
	CHECK(dropped == 2, "%u were dropped", dropped);
	for (i = 0; i < sent; i++) {
		if (i % 4 == 0) {
			card_intr(0, true);
			kpi_pass(20 * SBT_1MS);
			card_settle();
		}
		card_complete(0, card_takes(0, i, 60));
	}
	card_end();
}

/* Who sends at an ordinary priority notifies before the call returns. */
static void
tx_notified_at_once(const void *arg __unused)
{
	struct peer *pe;
	u_int i;

	card_begin(1);
	pe = card_peer(0, true);
	for (i = 0; i < 3; i++) {
		pe->pe_kicks = 0;
		CHECK(card_send(0, i, 100) == 0 && pe->pe_kicks == 1, "%u: %u notifications", i,
		    pe->pe_kicks);
		card_sends(0, 1);
		(void)pe->pe_ops->po_listen(pe);
	}
	CHECK(CARD_TXQ(0)->ptq_stats.held_kicks == 0, "held");
	card_end();
}

/* Another card's interrupt thread, which sends one after another, has the task notify. */
static void
tx_notified_by_the_task(const void *arg __unused)
{
	struct peer *pe;
	u_int i;

	card_begin(1);
	pe = card_peer(0, true);
	card_thread.td_base_pri = PI_NET;
	pe->pe_kicks = 0;
	for (i = 0; i < 3; i++)
		CHECK(card_send(0, i, 100) == 0, "%u", i);
	CHECK(pe->pe_kicks == 0 && CARD_TXQ(0)->ptq_stats.held_kicks == 3, "%u notifications",
	    pe->pe_kicks);
	CHECK(kpi_run_tasks() == 1 && pe->pe_kicks == 1, "%u notifications", pe->pe_kicks);
	card_sends(0, 3);
	(void)pe->pe_ops->po_listen(pe);
	CHECK(card_send(0, 3, 100) == 0 && pe->pe_kicks == 1, "not held any more");
	CHECK(kpi_run_tasks() == 1 && pe->pe_kicks == 2, "not notified of");
	/* Who has the task's priority is one of those, and who has less is not. */
	card_sends(0, 1);
	(void)pe->pe_ops->po_listen(pe);
	card_thread.td_base_pri = PV_NET_TASK_PRI;
	CHECK(card_send(0, 4, 100) == 0 && pe->pe_kicks == 2, "not held");
	CHECK(kpi_run_tasks() == 1 && pe->pe_kicks == 3, "not notified of");
	card_sends(0, 1);
	(void)pe->pe_ops->po_listen(pe);
	card_thread.td_base_pri = PV_NET_TASK_PRI + 1;
	CHECK(card_send(0, 5, 100) == 0 && pe->pe_kicks == 4 && kpi_run_tasks() == 0, "held");
	card_end();
}

/* It does not delay packets without end: after so many, or so many bytes, it notifies. */
static void
tx_notified_after_so_many(const void *arg __unused)
{
	static const struct {
		u_int	len, after;
	} table[] = { { 100, 32 }, { 60000, 3 }, { 32768, 4 }, { 32767, 5 } };
	struct peer *pe;
	size_t n;
	u_int i;

	for (n = 0; n < nitems(table); n++) {
		card_new(1);
		card.ca_size = 64;
		CHECK(card_attach() == 0, "it does not attach");
		pe = card_peer(0, true);
		card_thread.td_base_pri = PI_NET;
		pe->pe_kicks = 0;
		for (i = 1; i < table[n].after; i++)
			CHECK(card_send(0, i, table[n].len) == 0 && pe->pe_kicks == 0,
			    "%u bytes: notified after %u", table[n].len, i);
		CHECK(card_send(0, i, table[n].len) == 0 && pe->pe_kicks == 1,
		    "%u bytes: %u notifications after %u", table[n].len, pe->pe_kicks, i);
		/* And then so many again. */
		card_sends(0, table[n].after);
		(void)pe->pe_ops->po_listen(pe);
		for (i = 1; i < table[n].after; i++)
			CHECK(card_send(0, i, table[n].len) == 0 && pe->pe_kicks == 1,
			    "%u bytes: notified after %u more", table[n].len, i);
		card_settle();
		card_end();
	}
}

static void
answer(void)
{

	CHECK(card_send(0, 50 + card.ca_nup, 100) == 0, "not sent");
	CHECK(card_peer(0, true)->pe_kicks == 0, "notified within the pass");
}

/* Who receives by the same pair of queues notifies at the end of the pass, and needs no task. */
static void
tx_notified_at_the_end_of_a_pass(const void *arg __unused)
{
	struct peer *pe;
	u_int i;

	card_begin(1);
	pe = card_peer(0, true);
	card_thread.td_base_pri = PI_NET;
	card.ca_input = answer;
	pe->pe_kicks = 0;
	for (i = 0; i < 3; i++)
		CHECK(card_receive(0, i, 500, 1), "no buffer");
	card_intr(0, false);
	CHECK(pe->pe_kicks == 1, "%u notifications", pe->pe_kicks);
	CHECK(kpi_run_tasks() == 0, "a task");
	card_end();
}

/* A packet in many pieces becomes one of as many as the ring takes, and arrives whole. */
static void
tx_packets_in_many_pieces(const void *arg)
{
	static const size_t six[] = { 100, 100, 100, 100, 100, 0 };
	static const size_t pieces[] = { 1, 20, 3, 50, 7, 7, 7, 7, 100, 2, 5, 6, 20, 30, 40, 0 };
	static u_char bytes[2000];
	struct pv_net_txq *txq;
	struct mbuf *m;
	u_int i;

	card_new(1);
	card.ca_params.pnp_phys = arg == NULL;
	CHECK(card_attach() == 0, "it does not attach");
	txq = CARD_TXQ(0);
	for (i = ETHER_HDR_LEN; i < sizeof(bytes); i++)
		bytes[i] = 9 * 31 + i * 7;
	m = kpi_mbuf_chain(bytes, sizeof(bytes), pieces);
	CHECK(card_transmit(0, m) == 0, "not sent");
	card_complete(0, card_takes(0, 9, sizeof(bytes)));
	CHECK(txq->ptq_stats.collapsed == 1 && txq->ptq_stats.defragged == 0, "sent as it is");
	/* Without memory for that it is dropped, and nothing else is. */
	m = kpi_mbuf_chain(bytes, sizeof(bytes), pieces);
	kpi_no_memory = true;
	CHECK(card_transmit(0, m) == 0, "returned");
	kpi_no_memory = false;
	CHECK(txq->ptq_stats.nomem == 1 && txq->ptq_stats.packets == 1 && card_idle(0), "sent");
	CHECK(card_send(0, 4, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 4, 100));
	card_end();
	/* Nor has a short ring room for more pieces than it has places. */
	card_new(1);
	card.ca_impl = &split_impls[3];	/* without indirect tables */
	card.ca_size = 4;
	card.ca_params.pnp_phys = arg == NULL;
	CHECK(card_attach() == 0, "it does not attach");
	for (i = 0; i < 2; i++) {
		m = kpi_mbuf_chain(bytes, 600, six);
		m->m_flags |= i == 1 ? M_VLANTAG : 0;
		CHECK(card_transmit(0, m) == 0, "not sent");
	}
	/* One that waits for another has one tag. */
	card_complete(0, card_takes(0, 9, 600));
	kpi_pass(20 * SBT_1MS);
	card_settle();
	card_complete(0, card_takes(0, 9, 600));
	CHECK(card.ca_tags == 1, "%u tags", card.ca_tags);
	card_end();
}

/* A frame that no device takes is dropped and counted. */
static void
tx_too_long(const void *arg __unused)
{
	struct pv_net_txq *txq;

	card_new(1);
	card.ca_params.pnp_max_frame = 3000;
	CHECK(card_attach() == 0, "it does not attach");
	txq = CARD_TXQ(0);
	(void)card_send(0, 1, 3001);
	CHECK(txq->ptq_stats.too_long == 1 && card_idle(0), "sent");
	CHECK(card_send(0, 2, 3000) == 0, "not sent");
	card_complete(0, card_takes(0, 2, 3000));
	card_end();
	card_begin(1);
	txq = CARD_TXQ(0);
	(void)card_send(0, 1, PV_NET_MAX_FRAME + 1);
	CHECK(txq->ptq_stats.too_long == 1 && card_idle(0), "sent");
	CHECK(card_send(0, 2, PV_NET_MAX_FRAME) == 0, "not sent");
	card_complete(0, card_takes(0, 2, PV_NET_MAX_FRAME));
	card_end();
	card_new(1);
	card.ca_params.pnp_phys = false;
	CHECK(card_attach() == 0 && card_send(0, 2, PV_NET_MAX_FRAME) == 0, "not sent");
	card_complete(0, card_takes(0, 2, PV_NET_MAX_FRAME));
	card_intr(0, true);
	CHECK(kpi_dma_unsynced == 0, "unloaded without a sync");
	card_end();
}

/*
 * The header is written before the frame, if there is room for it that is not shared; a packet for
 * which the ring has none is as it was.  Here each packet takes several descriptors, and buffers are
 * left when there is no room.
 */
static void
tx_header_before_the_frame(const void *arg __unused)
{
	struct pv_net_txq *txq;
	u_char bytes[600];
	struct mbuf *m;
	u_int i, n, number;

	card_new(1);
	card.ca_impl = &split_impls[3];	/* without indirect tables */
	CHECK(card_attach() == 0, "it does not attach");
	txq = CARD_TXQ(0);
	for (n = 0; n < CARD_SIZE; n++) {
		memset(bytes, 0, sizeof(bytes));
		for (i = ETHER_HDR_LEN; i < sizeof(bytes); i++)
			bytes[i] = n * 31 + i * 7;
		/* In every other packet there is room, one byte less than enough, or none. */
		m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
		m->m_data += n % 2 == 0 ? CARD_HDR : n % 4 == 1 ? CARD_HDR - 1 : 0;
		memcpy(mtod(m, void *), bytes, 200);
		m->m_len = 200;
		m->m_next = kpi_mbuf_chain(bytes + 200, sizeof(bytes) - 200, NULL);
		m_demote_pkthdr(m->m_next);
		m->m_pkthdr.len = sizeof(bytes);
		CHECK(card_transmit(0, m) == 0, "packet %u", n);
	}
	CHECK(txq->ptq_nfree > 0 && txq->ptq_full && txq->ptq_stats.nomem == 0,
	    "the ring has room for all");
	for (number = 0; number < n; number++) {
		card_complete(0, card_takes(0, number, sizeof(bytes)));
		CHECK(card_has_fast || card.ca_nsegs == (number % 2 == 0 ? 2 : 3), "%d segments",
		    card.ca_nsegs);
		if (card_peer(0, true)->pe_ops->po_interrupts(card_peer(0, true)))
			card_intr(0, true);
	}
	card_end();
	/* Where there is exactly as much room, or a byte more or less. */
	card_begin(1);
	for (i = 0; i < 3; i++) {
		m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
		m->m_data += CARD_HDR - 1 + i;
		card_fill(mtod(m, u_char *), i, 200);
		m->m_len = m->m_pkthdr.len = 200;
		CHECK(card_transmit(0, m) == 0, "packet %u", i);
		card_complete(0, card_takes(0, i, 200));
		CHECK(card.ca_nsegs == (i == 0 ? 2 : 1), "%d segments", card.ca_nsegs);
	}
	card_end();
}

/* Without memory for a packet's map, and with nothing in flight, it is sent a little later. */
static void
tx_without_memory_for_a_map(const void *arg __unused)
{
	struct pv_net_txq *txq;

	card_new(1);
	card.ca_params.pnp_phys = false;
	CHECK(card_attach() == 0, "it does not attach");
	txq = CARD_TXQ(0);
	kpi_no_memory = true;
	(void)card_send(0, 1, 100);
	kpi_no_memory = false;
	CHECK(card_idle(0), "sent without memory");
	CHECK(txq->ptq_stats.nomem + kpi_callouts > 0, "neither dropped nor tried again");
	kpi_pass(20 * SBT_1MS);
	card_settle();
	if (txq->ptq_stats.nomem == 0)
		card_complete(0, card_takes(0, 1, 100));
	CHECK(card_send(0, 2, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 2, 100));
	card_end();
}

/* What waits is dropped when the interface's queue is flushed; what is in flight is not. */
static void
tx_flush(const void *arg __unused)
{
	u_int i;

	card_begin(1);
	for (i = 0; i < CARD_SIZE + 4; i++)
		CHECK(card_send(0, i, 100) == 0, "packet %u", i);
	pv_net_qflush(card.ca_pn->pn_ifp);
	card_sends(0, CARD_SIZE);
	card_intr(0, true);
	kpi_pass(20 * SBT_1MS);
	card_settle();
	CHECK(card_idle(0), "it was not dropped");
	CHECK(card_send(0, 70, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 70, 100));
	card_end();
}

/* However many wait, no more are put at once than there is memory for, and the order is kept. */
static void
tx_batches(const void *arg __unused)
{
	struct pv_net_txq *txq;
	struct peer *pe;
	u_int i;

	card_new(1);
	card.ca_size = 256;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	txq = CARD_TXQ(0);
	pe = card_peer(0, true);
	mtx_lock(&txq->ptq_mtx);
	for (i = 0; i < 5 * PV_NET_BATCH / 2; i++)
		CHECK(card_send(0, i, 100) == 0, "packet %u", i);
	mtx_unlock(&txq->ptq_mtx);
	pe->pe_kicks = 0;
	(void)pe->pe_ops->po_listen(pe);
	CHECK(kpi_run_tasks() == 1 && pe->pe_kicks == 1, "%u notifications", pe->pe_kicks);
	for (i = 0; i < 5 * PV_NET_BATCH / 2; i++)
		card_complete(0, card_takes(0, i, 100));
	CHECK(card_idle(0) && txq->ptq_stats.packets == i, "more");
	card_end();
}

/* Who does not get the queue's lock leaves the packet to the task, which keeps the order. */
static void
tx_lock_is_taken(const void *arg __unused)
{
	struct pv_net_txq *txq;
	u_int i;

	card_begin(1);
	txq = CARD_TXQ(0);
	mtx_lock(&txq->ptq_mtx);
	for (i = 0; i < 3; i++)
		CHECK(card_send(0, i, 100) == 0, "packet %u", i);
	mtx_unlock(&txq->ptq_mtx);
	CHECK(card_idle(0), "sent without the lock");
	card_settle();
	card_sends(0, 3);
	mtx_lock(&txq->ptq_mtx);
	for (i = 0; i < 3; i++)
		CHECK(card_send(0, i, 100) == 0, "packet %u", i);
	mtx_unlock(&txq->ptq_mtx);
	/* It does not overtake those that wait. */
	CHECK(card_send(0, 3, 100) == 0, "packet 3");
	card_settle();
	for (i = 0; i < 4; i++)
		card_complete(0, card_takes(0, i, 100));
	card_end();
}

/* The fast path of what is sent: what takes it, with which header, and where the header is. */
static void
tx_fast_path(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], got[FRAME_MAX + CARD_HDR];
	struct pv_net_offload want, *o = (void *)got;
	struct pv_net_txq *txq;
	struct peer_chain pr;
	struct frame_at at;
	struct mbuf *m;
	struct peer *pe;
	size_t g, len;
	u_int room, n = 0;
	int i;

	card_begin(1);
	txq = CARD_TXQ(0);
	pe = card_peer(0, true);
	for (g = 0; g < NGOOD; g++) {
		/* With room for the header in its own mbuf, a byte less, and more pieces. */
		for (room = 0; room < 3; room++) {
			static const size_t pieces[] = { 100, 200, 0 };

			len = frame_make(&good[g].f, FRAME_PARTIAL, buf, &at);
			m = kpi_mbuf_chain(buf, len, room == 2 ? pieces : NULL);
			if (room == 1) {
				m_freem(m);
				m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
				m->m_data += CARD_HDR - 1;
				memcpy(mtod(m, void *), buf, len);
				m->m_len = m->m_pkthdr.len = len;
			}
			m->m_pkthdr.csum_flags = sum_mark(&good[g].f);
			m->m_pkthdr.csum_data = at.at_sum - at.at_l4;
			m->m_flags |= g == 1 ? M_MCAST : 0;
			CHECK(card_transmit(0, m) == 0, "%s: not sent", good[g].name);
			CHECK(pe->pe_ops->po_fetch(pe, &pr), "%s: nothing", good[g].name);
			for (n = 0, i = 0; i < pr.pr_nread; i++) {
				memcpy(got + n, (const void *)(uintptr_t)pr.pr_segs[i].addr,
				    pr.pr_segs[i].len);
				n += pr.pr_segs[i].len;
			}
			CHECK(n == len + CARD_HDR && memcmp(got + CARD_HDR, buf, len) == 0,
			    "%s: other bytes", good[g].name);
			want = (struct pv_net_offload){ .po_flags = NEEDS, .po_csum_start = at.at_l4,
			    .po_csum_offset = at.at_sum - at.at_l4 };
			CHECK((o->po_flags & NEEDS) != 0 && o->po_csum_start == want.po_csum_start &&
			    o->po_csum_offset == want.po_csum_offset, "%s: %u, %u", good[g].name,
			    o->po_csum_start, o->po_csum_offset);
			CHECK(room != 1 || pr.pr_segs[0].len == CARD_HDR, "%s: no room for it",
			    good[g].name);
			card_complete(0, pr.pr_id);
			CHECK(txq->ptq_unkicked == 0 && txq->ptq_stats.packets == 3 * g + room + 1 &&
			    txq->ptq_stats.csum == 3 * g + room + 1, "%s: counters", good[g].name);
			kpi_pass(20 * SBT_1MS);
			card_settle();
		}
	}
	CHECK(card.ca_plain >= 3 * 6 && card.ca_plain < 3 * NGOOD, "%u took it", card.ca_plain);
	CHECK(txq->ptq_stats.mcasts == 3, "multicast");
	n = card.ca_plain;
	/* What crosses a page may be two segments. */
	m = m_getjcl(M_WAITOK, MT_DATA, M_PKTHDR, MJUM9BYTES);
	m->m_data += roundup2((uintptr_t)m->m_data, PAGE_SIZE) + PAGE_SIZE - (uintptr_t)m->m_data - 100;
	len = frame_make(&good[0].f, FRAME_DONE, buf, &at);
	len = MIN(len, 1000);
	memcpy(mtod(m, void *), buf, len);
	m->m_len = m->m_pkthdr.len = len;
	CHECK(card_transmit(0, m) == 0, "not sent");
	card_sends(0, 1);
	CHECK(card.ca_plain == n, "it is one segment");
	/* Nor does it take what has a tag that is not in the frame yet. */
	m = card_packet(1, 100);
	m->m_flags |= M_VLANTAG;
	CHECK(card_transmit(0, m) == 0, "not sent");
	card_complete(0, card_takes(0, 1, 100));
	CHECK(card.ca_plain == n, "without its tag");
	/* A listener, or a setting, and the general way is taken. */
	pv_net_fast_path = 0;
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 1, 100));
	pv_net_fast_path = 1;
	CHECK(card.ca_plain == n, "it was taken");
	CHECK(card_send(0, 1, 100) == 0 && card.ca_plain == n + 1, "not taken");
	card_complete(0, card_takes(0, 1, 100));
	card_end();
}

/*
 * What is copied is neither changed nor kept, though others have its memory too, and the copy has the
 * checksum that the device does not compute; all that needs no memory.
 */
static void
tx_staged(const void *arg)
{
	static const size_t pieces[][3] = { { 0 }, { 100, 0 }, { 14, 30, 0 } };
	static u_char buf[FRAME_MAX], done[FRAME_MAX], got[FRAME_MAX];
	struct pv_net_txq *txq;
	struct peer_chain pr;
	struct frame_at at;
	struct mbuf *m, *copy;
	struct peer *pe;
	size_t g, len, p;
	u_int n;
	int i, items;

	card_new(1);
	card.ca_params.pnp_offloads = arg != NULL ? TX_ALL : 0;
	CHECK(card_attach() == 0, "it does not attach");
	txq = CARD_TXQ(0);
	pe = card_peer(0, true);
	for (g = 0; g < NGOOD * nitems(pieces); g++) {
		p = g / NGOOD;
		len = frame_make(&good[g % NGOOD].f, FRAME_PARTIAL, buf, &at);
		(void)frame_make(&good[g % NGOOD].f, FRAME_DONE, done, &at);
		m = kpi_mbuf_chain(buf, len, pieces[p]);
		m->m_pkthdr.csum_flags = sum_mark(&good[g % NGOOD].f);
		m->m_pkthdr.csum_data = at.at_sum - at.at_l4;
		items = kpi_items;
		copy = m_copypacket(m, M_NOWAIT);
		kpi_no_memory = true;
		CHECK(card_transmit(0, copy) == 0, "%s: not sent", good[g % NGOOD].name);
		kpi_no_memory = false;
		CHECK(kpi_items == items, "%s: kept", good[g % NGOOD].name);
		CHECK(flat(m, got) == len && memcmp(got, buf, len) == 0, "%s: changed",
		    good[g % NGOOD].name);
		m_freem(m);
		CHECK(pe->pe_ops->po_fetch(pe, &pr), "%s: nothing", good[g % NGOOD].name);
		for (n = 0, i = 0; i < pr.pr_nread; n += pr.pr_segs[i++].len)
			memcpy(got + n, (const void *)(uintptr_t)pr.pr_segs[i].addr, pr.pr_segs[i].len);
		CHECK(n == len && memcmp(got, arg != NULL ? buf : done, len) == 0, "%s: other bytes",
		    good[g % NGOOD].name);
		CHECK((card.ca_sent.po_flags & NEEDS) == (arg != NULL ? NEEDS : 0), "%s: 0x%x",
		    good[g % NGOOD].name, card.ca_sent.po_flags);
		card_complete(0, pr.pr_id);
		kpi_pass(20 * SBT_1MS);
		card_settle();
	}
	CHECK(txq->ptq_stats.packets == g && txq->ptq_stats.nomem == 0 &&
	    txq->ptq_stats.bad_offload == 0, "%lu were sent", (u_long)txq->ptq_stats.packets);
	/* More pages than a packet has are no packet. */
	(void)card_send(0, 1, card.ca_params.pnp_tx_segs * PAGE_SIZE + 1);
	CHECK(txq->ptq_stats.nomem == 1 && card_idle(0), "sent");
	CHECK(card_send(0, 2, card.ca_params.pnp_tx_segs * PAGE_SIZE) == 0, "not sent");
	card_complete(0, card_takes(0, 2, card.ca_params.pnp_tx_segs * PAGE_SIZE));
	card_end();
}

/* A packet for whose pages there is no room is sent later. */
static void
tx_staged_without_room(const void *arg __unused)
{
	struct peer *pe;
	u_int number, taken = 0;

	card_new(1);
	card.ca_impl = &split_impls[3];	/* without indirect tables: a place for each page */
	CHECK(card_attach() == 0, "it does not attach");
	pe = card_peer(0, true);
	for (number = 0; number < 60; number++) {
		CHECK(card_send(0, number, 2 * PAGE_SIZE + 10) == 0, "packet %u", number);
		if (number < CARD_SIZE)
			continue;
		card_complete(0, card_takes(0, taken++, 2 * PAGE_SIZE + 10));
		if (pe->pe_ops->po_interrupts(pe))
			card_intr(0, true);
	}
	for (; taken < number; taken++) {
		kpi_pass(20 * SBT_1MS);
		card_settle();
		card_complete(0, card_takes(0, taken, 2 * PAGE_SIZE + 10));
	}
	card_end();
}

/* A test again, of a card that has the fast paths. */
struct again {
	void	(*run)(const void *);
};

static void
by_fast_path(const void *arg)
{
	const struct again *test = arg;

	card_has_fast = true;
	test->run(NULL);
}

#define	AGAIN(name, descr)						\
	{ "fast_" #name, descr, by_fast_path, &(const struct again){ name } }

/* Of one whose header is apart. */
static void
by_legacy(const void *arg)
{
	const struct again *test = arg;

	card_is_legacy = true;
	test->run(NULL);
}

#define	LEGACY(name, descr)						\
	{ "legacy_" #name, descr, by_legacy, &(const struct again){ name } }

/* And of one that copies packets. */
static void
by_copies(const void *arg)
{
	const struct again *test = arg;

	card_is_staged = true;
	test->run(NULL);
}

static void
tx_staged_partial(const void *arg __unused)
{

	tx_staged(&card);
}

#define	STAGED(name, descr)						\
	{ "staged_" #name, descr, by_copies, &(const struct again){ name } }

static const struct hosted_test tests[] = {
	{ "tx_and_rx", "a packet is sent, and one is received", tx_and_rx, NULL },
	{ "tx_completions_are_collected_by_the_timer", "without a packet or an interrupt",
	    tx_completions_are_collected_by_the_timer, NULL },
	{ "tx_full_ring", "nothing is lost, and order is kept", tx_full_ring, NULL },
	{ "tx_one_packet_fills_the_ring", "and is waited for", tx_one_packet_fills_the_ring, NULL },
	{ "tx_of_a_broken_queue", "is dropped", tx_of_a_broken_queue, NULL },
	{ "tx_senders_collect", "completions, by the dozen", tx_senders_collect, NULL },
	{ "tx_queue_is_full", "packets are dropped", tx_queue_is_full, NULL },
	{ "tx_notified_at_once", "by who sends", tx_notified_at_once, NULL },
	{ "tx_notified_by_the_task", "for an interrupt thread", tx_notified_by_the_task, NULL },
	{ "tx_notified_after_so_many", "packets, or bytes", tx_notified_after_so_many, NULL },
	{ "tx_notified_at_the_end_of_a_pass", "of who receives",
	    tx_notified_at_the_end_of_a_pass, NULL },
	{ "tx_packets_in_many_pieces", "are sent with fewer", tx_packets_in_many_pieces, NULL },
	{ "tx_packets_in_many_pieces_by_bus_dma", "the same", tx_packets_in_many_pieces, &card },
	{ "tx_too_long", "for the device, or for any", tx_too_long, NULL },
	{ "tx_header_before_the_frame", "where there is room", tx_header_before_the_frame, NULL },
	{ "tx_without_memory_for_a_map", "it is sent later", tx_without_memory_for_a_map, NULL },
	{ "tx_flush", "what waits is dropped", tx_flush, NULL },
	{ "tx_batches", "and what waits for them", tx_batches, NULL },
	{ "tx_lock_is_taken", "the task sends", tx_lock_is_taken, NULL },
	{ "tx_pages_without_an_address", "and their segments", tx_pages_without_an_address, NULL },
	{ "tx_listeners", "see what is sent", tx_listeners, NULL },
	{ "tx_in_software", "sums, and segments", tx_in_software, NULL },
	{ "tx_invalid", "marks are counted", tx_invalid, NULL },
	{ "tx_shaped", "by altq(4)", tx_shaped, NULL },
	{ "tx_commands", "among the packets", tx_commands, NULL },
	{ "rx_frames_of_each_length", "in one buffer or several", rx_frames_of_each_length, NULL },
	{ "rx_frames_of_each_length_by_bus_dma", "the same", rx_frames_of_each_length, &card },
	{ "rx_what_is_invalid_is_dropped_alone", "runts, headers, lengths",
	    rx_what_is_invalid_is_dropped_alone, NULL },
	{ "rx_without_memory_the_ring_is_never_empty", "and is full when there is memory again",
	    rx_without_memory_the_ring_is_never_empty, NULL },
	{ "rx_budget_ends_a_pass", "and the task goes on", rx_budget_ends_a_pass, NULL },
	{ "rx_buffers_follow_the_frames", "their sizes", rx_buffers_follow_the_frames, NULL },
	{ "rx_whole_frames_in_chains", "of mbufs", rx_whole_frames_in_chains, NULL },
	{ "rx_whole_frames_in_chains_by_bus_dma", "the same", rx_whole_frames_in_chains, &card },
	{ "rx_merged", "goes up with the last", rx_merged, NULL },
	{ "rx_buffers_of_several_places", "in a ring without tables", rx_buffers_of_several_places,
	    NULL },
	{ "rx_memory_for_a_buffer", "or none", rx_memory_for_a_buffer, NULL },
	{ "rx_memory_for_a_part", "of a frame", rx_memory_for_a_part, NULL },
	{ "rx_layout", "of buffers", rx_layout, NULL },
	{ "rx_marks", "as by the fast path", rx_fast_marks, NULL },
	{ "rx_gso_packets", "are split, or not", rx_gso_packets, NULL },
	{ "rx_too_many_segments", "of a buffer", rx_too_many_segments, NULL },
	{ "rx_whole_buffers_of_the_kernels_pages", "and no more",
	    rx_whole_buffers_of_the_kernels_pages, NULL },
	{ "rx_looks", "as often as necessary", rx_looks, NULL },
	{ "rx_notified_of_many", "buffers at once", rx_notified_of_many, NULL },
	{ "rx_lost_interrupt", "is noticed after seconds", rx_lost_interrupt, NULL },
	{ "rx_half_a_frame_is_forgotten", "by a reset", rx_half_a_frame_is_forgotten, NULL },
	{ "life_attach_without_memory", "leaves nothing", life_attach_without_memory, NULL },
	{ "life_attach_with_few_buffers", "and works", life_attach_with_few_buffers, NULL },
	{ "life_impossible_parameters", "are refused", life_impossible_parameters, NULL },
	{ "life_down_at_first", "and not used", life_down_at_first, NULL },
	{ "life_stopped_and_started", "with all that it had", life_stopped_and_started, NULL },
	{ "life_pair_is_given_up", "and used again", life_pair_is_given_up, NULL },
	{ "life_what_comes_during_a_reset_is_sent", "after it",
	    life_what_comes_during_a_reset_is_sent, NULL },
	{ "life_what_waits_moves", "to a pair that stays", life_what_waits_moves, NULL },
	{ "life_pair_that_does_not_end", "stays, or is reset", life_pair_that_does_not_end, NULL },
	{ "life_rings_are_resized", "but for those of a parked pair", life_rings_are_resized, NULL },
	{ "life_watchdog", "resets a queue, then the device", life_watchdog, NULL },
	{ "life_more_pairs_are_given_up", "one after the other", life_more_pairs_are_given_up, NULL },
	{ "life_pairs_come_later", "and are as the others", life_pairs_come_later, NULL },
	{ "life_fewer_pairs_after_a_restart", "of another back end", life_fewer_pairs_after_a_restart,
	    NULL },
	{ "life_stopped_without_interrupts", "of what still comes", life_stopped_without_interrupts,
	    NULL },
	{ "life_offloads_are_requested_again", "when forwarding changes",
	    life_offloads_are_requested_again, NULL },
	{ "life_queues_settle_first", "before they are resized", life_queues_settle_first, NULL },
	{ "netmap_detached_under_a_handler", "that was preempted", netmap_detached_under_a_handler,
	    NULL },
	{ "netmap_attaches_where_slots_fit", "into the rings", netmap_attaches_where_slots_fit, NULL },
	{ "netmap_sends_in_order", "as a program's ring is", netmap_sends_in_order, NULL },
	{ "netmap_receives_in_any_order", "by exchanged buffers", netmap_receives_in_any_order, NULL },
	{ "netmap_drops_what_is_no_frame", "for a program", netmap_drops_what_is_no_frame, NULL },
	{ "netmap_rings_come_and_go", "with a reset each", netmap_rings_come_and_go, NULL },
	{ "netmap_watchdog", "of what has not completed", netmap_watchdog, NULL },
	{ "netmap_half_a_frame_is_forgotten", "by a stop", netmap_half_a_frame_is_forgotten, NULL },
	{ "netmap_pairs_come_later", "with slots", netmap_pairs_come_later, NULL },
	{ "life_threads_of_pairs", "and their CPUs", life_threads_of_pairs, NULL },
	{ "life_left_over_notification", "before a queue stops", life_left_over_notification, NULL },
	{ "life_address_is_set_again", "after each start", life_address_is_set_again, NULL },
	{ "life_limits_of_memory", "are the device's", life_limits_of_memory, NULL },
	{ "life_settings_in_order", "after each start", life_settings_in_order, NULL },
	{ "life_device_that_does_not_stop", "keeps what it has", life_device_that_does_not_stop, NULL },
	{ "life_each_second", "the link, and who forwards", life_each_second, NULL },
	{ "life_more_pairs_without_memory", "leave the others", life_more_pairs_without_memory, NULL },
	AGAIN(rx_fast_path, "takes what is plain"),
	AGAIN(rx_fast_marks, "are those of the general way"),
	AGAIN(tx_fast_path, "takes what is plain"),
	AGAIN(tx_and_rx, "a packet each way"),
	AGAIN(tx_full_ring, "nothing is lost, and order is kept"),
	AGAIN(tx_senders_collect, "completions, by the dozen"),
	AGAIN(tx_notified_by_the_task, "for an interrupt thread"),
	AGAIN(tx_notified_after_so_many, "packets, or bytes"),
	AGAIN(tx_packets_in_many_pieces, "are sent with fewer"),
	AGAIN(tx_too_long, "for the device, or for any"),
	AGAIN(tx_header_before_the_frame, "where there is room"),
	AGAIN(tx_pages_without_an_address, "and their segments"),
	AGAIN(tx_listeners, "see what is sent"),
	AGAIN(tx_in_software, "sums, and segments"),
	AGAIN(tx_shaped, "by altq(4)"),
	AGAIN(rx_frames_of_each_length, "in one buffer or several"),
	AGAIN(rx_what_is_invalid_is_dropped_alone, "runts, headers, lengths"),
	AGAIN(rx_without_memory_the_ring_is_never_empty, "and is full when there is memory again"),
	AGAIN(rx_notified_of_many, "while the device has most of them"),
	AGAIN(rx_budget_ends_a_pass, "and the task goes on"),
	AGAIN(rx_buffers_follow_the_frames, "their sizes"),
	AGAIN(life_stopped_and_started, "with all that it had"),
	AGAIN(life_what_waits_moves, "to a pair that stays"),
	AGAIN(life_rings_are_resized, "and what is sent then arrives"),
	LEGACY(tx_and_rx, "a packet each way"),
	LEGACY(tx_full_ring, "nothing is lost, and order is kept"),
	LEGACY(tx_packets_in_many_pieces, "are sent with fewer"),
	LEGACY(rx_frames_of_each_length, "in one buffer or several"),
	LEGACY(rx_what_is_invalid_is_dropped_alone, "runts, headers, lengths"),
	LEGACY(rx_buffers_follow_the_frames, "their sizes"),
	LEGACY(rx_whole_frames_in_chains, "of mbufs"),
	LEGACY(life_stopped_and_started, "with all that it had"),
	STAGED(tx_staged, "with sums that are finished in the copy"),
	STAGED(tx_staged_partial, "with sums that the device finishes"),
	STAGED(tx_staged_without_room, "later"),
	STAGED(rx_staged, "each page is posted again"),
	STAGED(tx_and_rx, "a packet each way"),
	STAGED(tx_full_ring, "nothing is lost, and order is kept"),
	STAGED(tx_senders_collect, "completions, by the dozen"),
	STAGED(tx_queue_is_full, "packets are dropped"),
	STAGED(rx_budget_ends_a_pass, "and the task goes on"),
	STAGED(life_stopped_and_started, "with all that it had"),
	STAGED(life_what_waits_moves, "to a pair that stays"),
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	kpi_bounced = true;
	return (tests);
}
