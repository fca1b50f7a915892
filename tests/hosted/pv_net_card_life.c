/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net on rings: how a card, and each of its queues, is stopped and started.
 */

#include "pv_net_card.h"

#include <sys/priority.h>
#include <sys/proc.h>
#include <sys/smp.h>

#define	SAID(text)	CHECK(strcmp(card.ca_log, (text)) == 0, "the device was told: %s", card.ca_log)

/* Each pair sends and receives. */
static void
works(u_int pairs)
{
	struct peer *pe;
	u_int i;

	for (i = 0; i < pairs; i++) {
		pe = card_peer(i, true);
		(void)pe->pe_ops->po_listen(pe);
		pe->pe_kicks = 0;
		CHECK(card_send(i, 40 + i, 300) == 0, "pair %u", i);
		CHECK(pe->pe_kicks == 1, "pair %u does not notify", i);
		card_complete(i, card_takes(i, 40 + i, 300));
		CHECK(card_receive(i, 80 + i, 1000, 1), "pair %u has no buffers", i);
		CHECK(card_peer(i, false)->pe_ops->po_interrupts(card_peer(i, false)),
		    "pair %u has no interrupt", i);
		card_intr(i, false);
		card_up(80 + i, 1000);
		CHECK(pvq_inflight(CARD_RXQ(i)->prq_pvq) == CARD_RXQ(i)->prq_max_bufs,
		    "pair %u: buffers", i);
	}
}

/* The nth call that can fail does, and those that follow it.  Does the card attach?  It works then. */
static bool
attaches_with_less(int nth, int more, bool phys)
{
	bool attached;

	kpi_quiet = true;
	card_new(2);
	card.ca_params.pnp_phys = phys;
	card.ca_params.pnp_soft_lro = true;
	card.ca_size = 4;
	card.ca_fail_after = nth;
	kpi_fail_more = more;
	attached = card_attach() == 0;
	if (kpi_fail_after == 0 && attached) {
		/* Buffers are posted when there is memory. */
		kpi_pass(SBT_1S);
		card_settle();
		works(2);
		CHECK(CARD_RXQ(0)->prq_max_bufs >= 1 && CARD_TXQ(0)->ptq_max_bufs >= 1, "no buffers");
	}
	kpi_quiet = false;
	return (attached);
}

/*
 * The first, the second ... of all that can fail does, and nothing is left of the card.  A buffer of
 * each queue is enough.
 */
void
life_attach_without_memory(const void *arg __unused)
{
	int failed = 0, n = 0;
	bool over;

	do {
		failed += !attaches_with_less(++n, 0, false);
		over = kpi_fail_after != 0;
		kpi_fail_after = kpi_fail_more = 0;
		card_end();
	} while (!over);
	CHECK(n > 10, "only %d calls failed", n);
	CHECK(failed == 4, "%d of %d failed", failed, n);
}

/* Memory for headers: for four, two, one packet of a queue, and none. */
void
life_attach_with_few_buffers(const void *arg __unused)
{
	static const struct { int nth, more; u_int tx, rx; const char *said; } tests[] = {
		{ 1, 0, 2, 4, "only 2 of 4 buffers for txq0: no memory for more\n" },
		{ 1, 1, 1, 4, "only 1 of 4 buffers for txq0: no memory for more\n" },
		{ 1, 2, 0, 0, NULL },
	};
	int lines;
	u_int i;

	for (i = 0; i < nitems(tests); i++) {
		lines = kpi_lines;
		CHECK(attaches_with_less(tests[i].nth, tests[i].more, true) == (tests[i].tx != 0),
		    "%u: attached, or not", i);
		CHECK(CARD_TXQ(0)->ptq_max_bufs == tests[i].tx &&
		    CARD_RXQ(0)->prq_max_bufs == tests[i].rx,
		    "%u: %u, %u buffers", i, CARD_TXQ(0)->ptq_max_bufs, CARD_RXQ(0)->prq_max_bufs);
		CHECK(kpi_lines == lines + (tests[i].said != NULL) && (tests[i].said == NULL ||
		    strcmp(kpi_line, tests[i].said) == 0), "%u: %d lines, %s", i, kpi_lines - lines,
		    kpi_line);
		kpi_fail_after = kpi_fail_more = 0;
		card_end();
	}
}

/* A device of which no card can be made is refused, with its reason. */
void
life_impossible_parameters(const void *arg __unused)
{
	static const struct {
		int	pairs;
		u_int	segs, mtu, max, seg;
		const char *why;
	} table[] = {
		{ 1, 4, 1500, 1500, MCLBYTES, NULL }, { 1, 4, 46, 60, MCLBYTES, NULL },
		{ 0, 4, 1500, 1500, MCLBYTES, "no queue pairs" },
		{ 1, 3, 1500, 1500, MCLBYTES, "too few segments" },
		{ 1, 4, 1501, 1500, MCLBYTES, "an invalid MTU" },
		{ 1, 4, 40, ETHERMIN - 1, MCLBYTES, "an invalid MTU" },
		{ 1, 4, 1500, 1500, MCLBYTES - 1, "smaller than a cluster" },
	};
	struct pv_net *pn;
	size_t i;
	int error;

	kpi_quiet = true;
	for (i = 0; i < nitems(table); i++) {
		card_new(1);
		card.ca_params.pnp_npairs = table[i].pairs;
		card.ca_params.pnp_tx_segs = table[i].segs;
		card.ca_params.pnp_mtu = table[i].mtu;
		card.ca_params.pnp_max_mtu = table[i].max;
		card.ca_params.pnp_seg_max = table[i].seg;
		card.ca_dev = kpi_device_create(NULL, NULL, NULL, "card0");
		error = pv_net_alloc(card.ca_dev, &card.ca_ops, &card, &card.ca_params, &pn);
		CHECK(error == (table[i].why != NULL ? ENXIO : 0), "%zu: error %d", i, error);
		CHECK(table[i].why == NULL || (pn == NULL && strstr(kpi_line, table[i].why) != NULL),
		    "%zu: %s", i, kpi_line);
		pv_net_free(pn);
		kpi_device_destroy(card.ca_dev);
		CHECK(kpi_mallocs == 0 && kpi_locks == 0, "%zu: %d, %d left", i, kpi_mallocs,
		    kpi_locks);
	}
}

/* An interface that is down has a device that is live, and is not used. */
void
life_down_at_first(const void *arg __unused)
{

	card_new(1);
	eth.if_flags = 0;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	CHECK(!pv_dev_is_live(&card.ca_pn->pn_pvdev) && card_send(0, 1, 100) == ENETDOWN, "it is used");
	CHECK(pvq_inflight(CARD_RXQ(0)->prq_pvq) == 0, "it has buffers");
	card_end();
}

/* Down, up, suspended and resumed: all pairs work as before, and what was in flight is freed. */
void
life_stopped_and_started(const void *arg __unused)
{
	struct pv_dev *pvd;
	u_int i;
	int items;

	card_begin(2);
	pvd = pv_net_dev(card.ca_pn);
	items = kpi_items;
	CHECK(pv_net_thaw(card.ca_pn) == 0, "what is not suspended can't be resumed");
	SAID("");
	works(2);
	for (i = 0; i < CARD_SIZE + 3; i++)
		CHECK(card_send(1, i, 200) == 0, "not sent");
	card_forget();
	pv_dev_lock(pvd);
	pv_dev_down(pvd);
	pv_dev_unlock(pvd);
	SAID("stop start ");
	CHECK(kpi_items == 0 && card.ca_drv_flags == 0, "%d mbufs and clusters while it is down, 0x%x",
	    kpi_items, card.ca_drv_flags);
	CHECK(card_send(0, 1, 100) == ENETDOWN && kpi_items == 0, "sent while it is down");
	card_forget();
	pv_dev_lock(pvd);
	CHECK(pv_dev_up(pvd) == 0, "it does not come up");
	pv_dev_unlock(pvd);
	SAID("pairs=2 ");
	CHECK(card.ca_drv_flags == IFF_DRV_RUNNING, "0x%x", card.ca_drv_flags);
	card_settle();
	works(2);
	/* So many pairs as were set meanwhile are used when it is up. */
	for (i = 1; i <= 2; i++) {
		pv_dev_lock(pvd);
		pv_dev_down(pvd);
		pv_dev_unlock(pvd);
		card_forget();
		CHECK(card_use(i) == 0 && card.ca_pn->pn_pairs == i, "%u pairs", card.ca_pn->pn_pairs);
		SAID("");
		pv_dev_lock(pvd);
		CHECK(pv_dev_up(pvd) == 0, "it does not come up");
		pv_dev_unlock(pvd);
		SAID(i == 1 ? "pairs=1 " : "pairs=2 ");
		card_settle();
		works(i);
	}
	card_forget();
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0, "it is not suspended");
	SAID("stop ");
	CHECK(kpi_items == 0 && kpi_callouts == 0 && kpi_sysctls == 0, "%d are left, %d callouts",
	    kpi_items, kpi_callouts);
	CHECK(pv_net_thaw(card.ca_pn) == 0, "it is not resumed");
	SAID("stop start pairs=2 ");
	card_settle();
	works(2);
	kpi_pass(SBT_1S);
	card_settle();
	CHECK(kpi_items == items, "%d more mbufs and clusters", kpi_items - items);
	/* A device that does not use so many pairs is used with one. */
	card.ca_pairs_error = EIO;
	kpi_quiet = true;
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && pv_net_thaw(card.ca_pn) == 0,
	    "it is not resumed");
	CHECK(card.ca_pn->pn_pairs == 1 && strncmp(kpi_line,
	    "the device does not use 2 pairs of queues (error 5): ", 53) == 0, "%u pairs: %s",
	    card.ca_pn->pn_pairs, kpi_line);
	works(1);
	card_end();
}

/*
 * Of a pair that is given up what was sent is collected first, by who gives it up; the device does
 * without its queues, which have no buffers.  Then it is used again.
 */
void
life_pair_is_given_up(const void *arg __unused)
{
	int items, queue;

	card_begin(2);
	items = kpi_items;
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	card_complete(1, card_takes(1, 1, 100));
	for (queue = 0; queue < 2; queue++)
		pv_dev_need_reset(pv_net_dev(card.ca_pn), pv_net_number(1, queue == 1), ETIMEDOUT);
	CHECK(card_use(1) == 0, "it is not given up");
	/* Nor is it reset after that, whoever has asked for it. */
	card_settle();
	SAID("pairs=1 stop2 stop3 ");
	CHECK(kpi_items == items / 2, "%d mbufs and clusters of %d", kpi_items, items);
	CHECK(CARD_TXQ(1)->ptq_parked && pvq_inflight(CARD_RXQ(1)->prq_pvq) == 0, "not parked");
	/* Twice is as once, and what is sent by its flow goes by the other. */
	card_forget();
	CHECK(card_use(1) == 0, "not given up");
	SAID("");
	CHECK(card_send(1, 2, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 2, 100));
	works(1);
	/* Nobody watches it. */
	card_seconds(20);
	SAID("");
	/* A queue that does not start costs the device a reset. */
	card.ca_restart_queue_error = EIO;
	CHECK(card_use(2) == 0, "not used");
	card.ca_restart_queue_error = 0;
	card_settle();
	SAID("start2 pairs=2 stop start pairs=2 ");
	works(2);
	CHECK(card_use(1) == 0, "not given up");
	card_forget();
	CHECK(card_use(2) == 0, "not used again");
	SAID("start2 start3 pairs=2 ");
	card_settle();
	works(2);
	/* A start of the device starts all of them, and parks none. */
	CHECK(card_use(1) == 0 && pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 &&
	    pv_net_thaw(card.ca_pn) == 0, "not resumed");
	CHECK(!CARD_TXQ(1)->ptq_parked, "parked");
	card_settle();
	card_forget();
	CHECK(card_use(1) == 0, "not as before");
	SAID("");
	CHECK(card_use(2) == 0, "not used again");
	card_settle();
	works(2);
	card_end();
}

static u_int pauses;

/* The device sends, while who gives up the pair waits. */
static void
device_sends(void)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
	pauses++;
	if (pauses == 3)
		card_sends(1, CARD_SIZE);
}

/* What has no place in its ring yet is sent by a pair that stays; what has one is waited for. */
void
life_what_waits_moves(const void *arg __unused)
{
	u_int i;

	card_begin(2);
	for (i = 0; i < CARD_SIZE + 5; i++)
		CHECK(card_send(1, i, 100) == 0, "not sent");
	pauses = 0;
	kpi_pause = device_sends;
	CHECK(card_use(1) == 0, "it is not given up");
	kpi_pause = NULL;
	CHECK(pauses == 3, "%u pauses", pauses);
	CHECK(CARD_TXQ(1)->ptq_stats.moved == 5, "%lu moved",
	    (u_long)CARD_TXQ(1)->ptq_stats.moved);
	SAID("pairs=1 stop2 stop3 ");
	card_settle();
	for (; i > CARD_SIZE; i--)
		card_complete(0, card_takes(0, 2 * CARD_SIZE + 5 - i, 100));
	CHECK(card_idle(0), "more");
	/* A sender that chose the queue before leaves its packet there, which is moved as well. */
	mtx_lock(&CARD_TXQ(1)->ptq_mtx);
	CARD_TXQ(1)->ptq_list = card_packet(60, 100);
	mtx_unlock(&CARD_TXQ(1)->ptq_mtx);
	taskqueue_enqueue(CARD_TXQ(1)->ptq_tq, &CARD_TXQ(1)->ptq_task);
	card_settle();
	card_complete(0, card_takes(0, 60, 100));
	card_end();
}

static int (*restarts_queue)(void *softc, int pair, bool tx);

/* A sender leaves a packet at the last moment, as its queue is being started again. */
static int
queue_restarts_late(void *softc, int pair, bool tx)
{

	CHECK(card_send(1, 50, 100) == 0, "not sent");
	return (restarts_queue(softc, pair, tx));
}

/* It goes on by itself: no other packet has to come. */
void
life_what_comes_during_a_reset_is_sent(const void *arg __unused)
{

	card_new(2);
	restarts_queue = card.ca_ops.pno_restart_queue;
	card.ca_ops.pno_restart_queue = queue_restarts_late;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	card_forget();
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	pv_dev_need_reset(pv_net_dev(card.ca_pn), 3, EIO);
	card_settle();
	SAID("stop3 start3 ");
	card_complete(1, card_takes(1, 50, 100));
	CHECK(card_idle(1), "more");
	works(2);
	card_end();
}

/* What does not complete keeps its pair, or costs its queue or the device a reset. */
void
life_pair_that_does_not_end(const void *arg __unused)
{

	/* After a second the queue is reset, and the pair given up. */
	card_begin(2);
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	kpi_paused = 0;
	CHECK(card_use(1) == 0, "it is not given up");
	CHECK(kpi_paused == 100 * tick_sbt, "%jd", (intmax_t)kpi_paused);
	SAID("stop3 start3 pairs=1 stop2 stop3 ");
	card_settle();
	SAID("stop3 start3 pairs=1 stop2 stop3 ");
	card_end();
	/* It can't be: there are as many pairs as before. */
	card_new(2);
	card.ca_ops.pno_stop_queue = NULL;
	card.ca_ops.pno_restart_queue = NULL;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	card_forget();
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	CHECK(card_use(1) == EBUSY && card.ca_pn->pn_pairs == 2, "given up");
	SAID("");
	card_complete(1, card_takes(1, 1, 100));
	card_settle();
	works(2);
	/* Nothing is parked, and its buffers stay. */
	CHECK(card_use(1) == 0 && !CARD_TXQ(1)->ptq_parked, "not given up");
	SAID("pairs=1 ");
	CHECK(card_receive(1, 3, 1000, 1), "no buffers");
	card_intr(1, false);
	card_up(3, 1000);
	CHECK(card_use(2) == 0, "not used again");
	works(2);
	card_end();
	/* It fails: the device is reset. */
	card_begin(2);
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	card.ca_stop_queue_error = EIO;
	CHECK(card_use(1) == EBUSY, "given up");
	card_settle();
	SAID("stop3 stop start pairs=2 ");
	works(2);
	/* The first of its queues fails: the other one is left to that reset. */
	card_forget();
	CHECK(card_use(1) == 0, "not given up");
	SAID("pairs=1 stop2 ");
	card.ca_stop_queue_error = 0;
	card_settle();
	SAID("pairs=1 stop2 stop start pairs=1 ");
	works(1);
	card_end();
}

/* One pair after the other, of more; and where the device has no number of them. */
static int (*restart_queue)(void *softc, int pair, bool tx);

/* A queue to receive does not start, the other one would. */
static int
card_restarts_tx_only(void *softc, int pair, bool tx)
{

	return (tx ? restart_queue(softc, pair, tx) : ETIMEDOUT);
}

void
life_more_pairs_are_given_up(const void *arg __unused)
{

	card_begin(3);
	works(3);
	CHECK(card_use(2) == 0, "not given up");
	SAID("pairs=2 stop4 stop5 ");
	works(2);
	card_forget();
	CHECK(card_use(1) == 0, "not given up");
	SAID("pairs=1 stop2 stop3 ");
	works(1);
	card_forget();
	CHECK(card_use(3) == 0, "not used again");
	SAID("start2 start3 start4 start5 pairs=3 ");
	card_settle();
	works(3);
	/* A pair of which one queue does not start: the device is reset. */
	CHECK(card_use(1) == 0, "not given up");
	card_forget();
	restart_queue = card.ca_ops.pno_restart_queue;
	card.ca_ops.pno_restart_queue = card_restarts_tx_only;
	kpi_quiet = true;
	CHECK(card_use(3) == 0, "not used again");
	SAID("pairs=3 ");
	card_settle();
	kpi_quiet = false;
	SAID("pairs=3 stop start pairs=3 ");
	works(3);
	card_end();
	card_new(2);
	card.ca_ops.pno_set_pairs = NULL;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	card_forget();
	CHECK(card_use(1) == 0 && card.ca_pn->pn_pairs == 1, "not given up");
	SAID("stop2 stop3 ");
	card_end();
}

static int (*restarts)(void *softc), (*card_stop_op)(void *softc);

/* There is memory for all pairs now. */
static int
card_restarts_with_all_pairs(void *softc)
{
	int error = restarts(softc);

	return (error != 0 ? error : pv_net_set_pairs(card.ca_pn, 2));
}

/* Pairs that come later are as those that were there at first. */
void
life_pairs_come_later(const void *arg __unused)
{
	u_int i;

	card_new(2);
	card.ca_at_first = 1;
	card.ca_params.pnp_soft_lro = true;
	restarts = card.ca_ops.pno_restart;
	card.ca_ops.pno_restart = card_restarts_with_all_pairs;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	CHECK(card.ca_pn->pn_pairs == 1 && CARD_RXQ(0)->prq_lro_ready, "%u pairs",
	    card.ca_pn->pn_pairs);
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && pv_net_thaw(card.ca_pn) == 0,
	    "not resumed");
	card_settle();
	CHECK(card.ca_pn->pn_pairs == 2, "%u pairs", card.ca_pn->pn_pairs);
	for (i = 0; i < 2; i++)
		CHECK(CARD_RXQ(i)->prq_lro_ready && CARD_RXQ(i)->prq_lro.ifp == &eth,
		    "pair %u merges nothing", i);
	works(2);
	card_end();
}

/* Another back end has fewer pairs: of the others there are no queues any more. */
void
life_fewer_pairs_after_a_restart(const void *arg __unused)
{
	struct pv_net_params params;
	struct pv_dev *pvd;
	struct pvq_spec queue;
	u_int i;

	kpi_quiet = true;
	card_new(2);
	card.ca_renegotiates = true;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	pvd = pv_net_dev(card.ca_pn);
	works(2);
	CHECK(pv_dev_freeze(pvd) == 0, "not suspended");
	params = card.ca_params;
	pv_net_renegotiate(card.ca_pn, &params);
	CHECK(card.ca_vlancaps == 1 && card.ca_caps == 1 && card.ca_mtu == 0, "the MTU is %d",
	    card.ca_mtu);
	params.pnp_npairs = 1;
	params.pnp_max_mtu = 1400;
	params.pnp_max_frame = 1414;
	params.pnp_offloads = PV_NET_RXCSUM | PV_NET_TXCSUM;
	pv_net_renegotiate(card.ca_pn, &params);
	CHECK(card.ca_vlancaps == 2 && card.ca_caps == 2 && card.ca_mtu == 1400 && card.ca_mtus == 1,
	    "the MTU is %d", card.ca_mtu);
	CHECK(strstr(kpi_line, "the MTU of 1500 is more than the back end takes now") != NULL, "%s",
	    kpi_line);
	CHECK(card.ca_pn->pn_params.pnp_offloads == params.pnp_offloads &&
	    card.ca_pn->pn_offloads_asked == PV_NET_RXCSUM, "offloads 0x%x",
	    card.ca_pn->pn_offloads_asked);
	for (i = 2; i < 4; i++) {
		pv_net_queue(card.ca_pn, pv_net_pair(i), pv_net_is_tx(i), &queue);
		card.ca_impl->im_destroy(card.ca_peers[i]);
		card.ca_peers[i] = NULL;
		*queue.pqs_pvq = NULL;
		pv_dev_adopt(pvd, i, NULL);
	}
	CHECK(pv_net_thaw(card.ca_pn) == 0, "not resumed");
	card_settle();
	works(1);
	(void)card_send(0, 1, 1415);
	CHECK(CARD_TXQ(0)->ptq_stats.too_long == 1 && card_idle(0), "a frame that is too long for it");
	/* What was in flight is taken back of the pair that there is. */
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	CHECK(pv_dev_freeze(pvd) == 0 && kpi_items == 0, "%d mbufs and clusters", kpi_items);
	CHECK(pv_net_thaw(card.ca_pn) == 0, "not resumed");
	card_settle();
	works(1);
	card_end();
}

/* What the device gives while it is stopped. */
static int
card_stops_busy(void *softc)
{
	CHECK(card_receive(0, 1, 500, 1), "no buffer");
	CHECK(!card_peer(0, false)->pe_ops->po_interrupts(card_peer(0, false)),
	    "an interrupt of a queue that is stopped");
	return (card_stop_op(softc));
}

/* A queue that is stopped wants no interrupt, and who is in it is waited for. */
void
life_stopped_without_interrupts(const void *arg __unused)
{
	card_new(1);
	card_stop_op = card.ca_ops.pno_stop;
	card.ca_ops.pno_stop = card_stops_busy;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	works(1);
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0, "not suspended");
	CHECK(card.ca_nup == 1, "it went up");
	card.ca_ops.pno_stop = card_stop_op;
	CHECK(pv_net_thaw(card.ca_pn) == 0, "not resumed");
	card_settle();
	works(1);
	card_end();
}

static u_int offloads, requests;
static int refused;

static int
set_offloads(void *softc __unused, u_int wanted)
{

	offloads = wanted;
	requests++;
	return (refused);
}

/* When the kernel begins to forward, or ends, other offloads are of use; nothing else requests any. */
void
life_offloads_are_requested_again(const void *arg __unused)
{
	u_int before;

	card_new(1);
	card.ca_ops.pno_set_offloads = set_offloads;
	requests = 0;
	CHECK(card_attach() == 0, "it does not attach");
	card_seconds(2);
	before = pv_net_rx_wanted(card.ca_pn);
	/* It begins with those that were negotiated. */
	CHECK(before == RX_ALL, "0x%x are of use, of 0x%x", before, RX_ALL);
	card_seconds(3);
	CHECK(requests == 0, "%u requests", requests);
	V_ipforwarding = V_ip6_forwarding = 1;
	CHECK(pv_net_rx_wanted(card.ca_pn) != before, "the same are of use");
	card_seconds(3);
	CHECK(requests == 1 && offloads == pv_net_rx_wanted(card.ca_pn), "%u requests, 0x%x",
	    requests, offloads);
	V_ipforwarding = V_ip6_forwarding = 0;
	card_seconds(3);
	CHECK(requests == 2 && offloads == before, "%u requests, 0x%x", requests, offloads);
	/* What is refused is counted, and not requested over and over. */
	CHECK(card.ca_pn->pn_offload_errors == 0, "errors");
	refused = EIO;
	V_ipforwarding = V_ip6_forwarding = 1;
	card_seconds(3);
	CHECK(requests == 3 && card.ca_pn->pn_offload_errors == 1, "%u requests", requests);
	refused = 0;
	V_ipforwarding = V_ip6_forwarding = 0;
	card_end();
}

static int
resize(bool tx, u_int size)
{
	struct pv_dev *pvd = pv_net_dev(card.ca_pn);
	int error;

	card_forget();
	pv_dev_lock(pvd);
	error = pv_net_resize(card.ca_pn, tx, size);
	pv_dev_unlock(pvd);
	card_settle();
	return (error);
}

static int (*restarts_any)(void *softc);

/* A device that starts with rings of the size that it came with, and with no other. */
static int
restarts_as_it_came(void *softc)
{

	if (strstr(card.ca_log, "size1=16 size3=16 ") == NULL) {
		strlcat(card.ca_log, "refused ", sizeof(card.ca_log));
		return (EINVAL);
	}
	return (restarts_any(softc));
}

/* One queue after the other has a ring of another size, but for those that the device does without. */
void
life_rings_are_resized(const void *arg __unused)
{

	card_begin(2);
	CHECK(resize(false, CARD_SIZE) == 0, "the same size");
	SAID("");
	CHECK(resize(false, 8) == 0, "not resized");
	SAID("size0=8 size2=8 stop0 start0 stop2 start2 ");
	works(2);
	CHECK(resize(true, 8) == 0, "not resized");
	SAID("size1=8 size3=8 stop1 start1 stop3 start3 ");
	works(2);
	CHECK(card_use(1) == 0, "not given up");
	CHECK(resize(false, 4) == 0, "not resized");
	SAID("size0=4 size2=4 stop0 start0 ");
	CHECK(resize(true, 4) == 0, "not resized");
	SAID("size1=4 size3=4 stop1 start1 ");
	works(1);
	CHECK(card_use(2) == 0, "not used again");
	card_settle();
	works(2);
	/* A size that the device does not take is no size of any ring. */
	card.ca_size_error = EINVAL;
	CHECK(resize(true, 2) == EINVAL, "resized");
	SAID("size1=2 size1=16 ");
	card.ca_stop_queue_error = EOPNOTSUPP;
	CHECK(resize(true, 2) == EINVAL, "resized with a restart");
	card.ca_stop_queue_error = 0;
	card.ca_size_error = 0;
	/* Nor does a device have one that is suspended. */
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && resize(true, 2) == ENXIO, "suspended");
	SAID("");
	CHECK(pv_net_thaw(card.ca_pn) == 0, "not resumed");
	card_settle();
	/* Where a queue can't be stopped alone, the device is. */
	card.ca_stop_queue_error = EOPNOTSUPP;
	CHECK(resize(true, 2) == 0, "not resized");
	SAID("size1=2 size3=2 stop1 stop start pairs=2 ");
	card.ca_stop_queue_error = 0;
	works(2);
	card_end();
	/* Sizes with which it does not start are those of before again. */
	card_new(2);
	restarts_any = card.ca_ops.pno_restart;
	card.ca_ops.pno_restart = restarts_as_it_came;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	card.ca_stop_queue_error = EOPNOTSUPP;
	CHECK(resize(true, 8) == EINVAL, "resized");
	SAID("size1=8 size3=8 stop1 stop refused size1=16 size3=16 start pairs=2 ");
	card.ca_stop_queue_error = 0;
	works(2);
	card_end();
}

/* What the device does not send costs the queue a reset, and the device one if that is of no use. */
void
life_watchdog(const void *arg __unused)
{
	int items;

	card_begin(2);
	items = kpi_items;
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	card_seconds(4);
	SAID("");
	kpi_quiet = true;
	card_seconds(1);
	SAID("stop3 start3 ");
	kpi_quiet = false;
	CHECK(kpi_items == items && card.ca_pn->pn_watchdogs == 1, "not freed");
	/* Nothing has completed since then. */
	card_forget();
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	card_seconds(7);
	SAID("stop start pairs=2 ");
	works(2);
	/* As long as something completes, nothing is reset. */
	card_forget();
	CHECK(card_send(1, 1, 100) == 0, "not sent");
	for (items = 2; items < 12; items++) {
		CHECK(card_send(1, items, 100) == 0, "not sent");
		card_seconds(4);
		card_complete(1, card_takes(1, items - 1, 100));
		card_seconds(1);
	}
	SAID("");
	card_end();
	/* Completions that may take any time are none of it. */
	card_new(1);
	card.ca_params.pnp_may_rest = true;
	CHECK(card_attach() == 0, "it does not attach");
	card_forget();
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	card_seconds(60);
	SAID("");
	card_end();
}

static void
count_pauses(void)
{

	if (++pauses == 4)
		card_sends(0, 1);
}

/* What was sent is waited for before its queue has another ring, and nothing else is. */
void
life_queues_settle_first(const void *arg __unused)
{

	card_begin(1);
	kpi_pause = count_pauses;
	pauses = 4;
	CHECK(resize(true, 8) == 0 && pauses == 4, "%u pauses for nothing", pauses - 4);
	pauses = 0;
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	CHECK(resize(true, 4) == 0 && pauses == 4, "%u pauses", pauses);
	kpi_pause = NULL;
	SAID("size1=4 stop1 start1 ");
	works(1);
	/* For a second. */
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	kpi_paused = 0;
	CHECK(resize(true, 8) == 0 && kpi_paused == 100 * tick_sbt, "%jd", (intmax_t)kpi_paused);
	SAID("size1=8 stop1 start1 ");
	works(1);
	card_end();
}

static void
device_sends_if_notified(void)
{

	if (card_peer(1, true)->pe_kicks > 0 && pauses++ == 0)
		card_sends(1, 1);
}

/* What an interrupt thread left the notification for is not waited for without one. */
void
life_left_over_notification(const void *arg __unused)
{

	card_begin(2);
	card_thread.td_base_pri = PI_NET;
	card_peer(1, true)->pe_kicks = pauses = 0;
	CHECK(card_send(1, 1, 100) == 0 && card_peer(1, true)->pe_kicks == 0, "not left over");
	kpi_pause = device_sends_if_notified;
	CHECK(card_use(1) == 0 && pauses == 1, "not given up");
	SAID("pairs=1 stop2 stop3 ");
	kpi_pause = NULL;
	card_end();
	/* Nor before the queue has another ring. */
	card_begin(2);
	card_thread.td_base_pri = PI_NET;
	card_peer(1, true)->pe_kicks = pauses = 0;
	CHECK(card_send(1, 1, 100) == 0 && card_peer(1, true)->pe_kicks == 0, "not left over");
	kpi_pause = device_sends_if_notified;
	CHECK(resize(true, 8) == 0 && pauses == 1, "not sent");
	kpi_pause = NULL;
	card_end();
	/* The reset of the other queue leaves it where it is. */
	card_begin(1);
	card_thread.td_base_pri = PI_NET;
	card_peer(0, true)->pe_kicks = 0;
	pv_dev_need_reset(pv_net_dev(card.ca_pn), pv_net_number(0, false), EIO);
	CHECK(card_send(0, 1, 100) == 0 && card_peer(0, true)->pe_kicks == 0, "not left over");
	card_settle();
	SAID("stop0 start0 ");
	CHECK(card_peer(0, true)->pe_kicks == 1, "%u notifications", card_peer(0, true)->pe_kicks);
	card_complete(0, card_takes(0, 1, 100));
	card_end();
	/* A reset leaves none: the next packet's is its own. */
	card_begin(1);
	card_thread.td_base_pri = PI_NET;
	CHECK(card_send(0, 1, 100) == 0, "not left over");
	pv_dev_lock(pv_net_dev(card.ca_pn));
	(void)pv_dev_restart(pv_net_dev(card.ca_pn));
	pv_dev_unlock(pv_net_dev(card.ca_pn));
	card_settle();
	card_peer(0, true)->pe_kicks = 0;
	CHECK(card_send(0, 2, 100) == 0, "not sent");
	card_settle();
	CHECK(card_peer(0, true)->pe_kicks == 1, "%u notifications", card_peer(0, true)->pe_kicks);
	card_end();
}

/* Each pair's tasks have a thread of their own, on its CPU; with one pair, on any. */
void
life_threads_of_pairs(const void *arg __unused)
{
	struct pvq_spec queue;
	int i, tx;

	mp_maxid = CARD_PAIRS - 1;
	for (i = 0; i < CARD_PAIRS; i++)
		CPU_SET(i, &all_cpus);
	card_begin(CARD_PAIRS);
	for (i = 0; i < CARD_PAIRS; i++) {
		for (tx = 0; tx < 2; tx++) {
			memset(&queue, 0xa5, sizeof(queue));
			pv_net_queue(card.ca_pn, i, tx, &queue);
			CHECK(queue.pqs_cpu == i, "interrupts of pair %d: CPU %d", i, queue.pqs_cpu);
		}
		CHECK(kpi_taskqueue_cpu(card.ca_pn->pn_tqs[i]) == i, "pair %d", i);
		CHECK(i == 0 || card.ca_pn->pn_tqs[i] != card.ca_pn->pn_tqs[i - 1], "shared");
		/* They run in the order in which they were queued. */
		CHECK(CARD_RXQ(i)->prq_task.ta_priority == CARD_TXQ(i)->ptq_task.ta_priority,
		    "pair %d: another priority", i);
	}
	card_end();
	card_begin(1);
	CHECK(kpi_taskqueue_cpu(card.ca_pn->pn_tqs[0]) == -1, "one pair");
	pv_net_queue(card.ca_pn, 0, false, &queue);
	CHECK(queue.pqs_cpu == -1, "CPU %d", queue.pqs_cpu);
	card_end();
	/* A pair that no CPU uses. */
	mp_maxid = 0;
	CPU_SETOF(0, &all_cpus);
	card_begin(CARD_PAIRS);
	CHECK(kpi_taskqueue_cpu(card.ca_pn->pn_tqs[1]) == -1, "more pairs than CPUs");
	card_end();
}

/* An address that is not the device's own is set after each start, and only then. */
void
life_address_is_set_again(const void *arg __unused)
{
	struct pv_dev *pvd;
	u_int i;

	kpi_quiet = true;
	card_begin(1);
	pvd = pv_net_dev(card.ca_pn);
	CHECK(pv_dev_freeze(pvd) == 0 && pv_net_thaw(card.ca_pn) == 0, "not resumed");
	SAID("stop start pairs=1 ");
	lladdr[5] ^= 1;
	for (i = 0; i < 3; i++) {
		card_forget();
		CHECK(pv_dev_freeze(pvd) == 0 && pv_net_thaw(card.ca_pn) == 0, "not resumed");
		SAID("stop start address pairs=1 ");
		CHECK(memcmp(card.ca_pn->pn_lladdr, lladdr, ETHER_ADDR_LEN) == 0, "another address");
		works(1);
	}
	/* One that the device does not take is said. */
	card.ca_lladdr_error = EIO;
	CHECK(pv_dev_freeze(pvd) == 0 && pv_net_thaw(card.ca_pn) == 0, "not resumed");
	CHECK(strstr(kpi_line, "did not take the address") != NULL &&
	    memcmp(card.ca_pn->pn_lladdr, lladdr, ETHER_ADDR_LEN) != 0, "%s", kpi_line);
	works(1);
	lladdr[5] ^= 1;
	card_end();
}

/* What bus_dma(9) is told of the memory: the device's limits, and no others. */
void
life_limits_of_memory(const void *arg __unused)
{
	static const struct {
		bool	merge;
		u_int	segs, seg_max, boundary;
		u_int	rx_size, rx_segs;
	} table[] = {
		{ true, 8, 1 << 20, 0, MJUM16BYTES, PV_NET_RX_SEGS },
		{ true, 20, MCLBYTES, 65536, MJUM16BYTES, PV_NET_RX_SEGS },
		{ false, 9, PAGE_SIZE, 4096, PV_NET_RX_WHOLE_MBUFS * MJUMPAGESIZE,
		    PV_NET_RX_WHOLE_SEGS - 1 },
	};
	struct kpi_dma_limits rx, tx;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		card_new(1);
		card.ca_size = 32;
		card.ca_params.pnp_phys = false;
		card.ca_params.pnp_merge = table[i].merge;
		card.ca_params.pnp_tx_segs = table[i].segs;
		card.ca_params.pnp_seg_max = table[i].seg_max;
		card.ca_params.pnp_boundary = table[i].boundary;
		CHECK(card_attach() == 0, "it does not attach");
		kpi_dma_limits(CARD_RXQ(0)->prq_tag, &rx);
		kpi_dma_limits(CARD_TXQ(0)->ptq_tag, &tx);
		CHECK(rx.kdl_alignment == 1 && tx.kdl_alignment == 1, "%zu: alignments", i);
		CHECK(rx.kdl_boundary == table[i].boundary && tx.kdl_boundary == table[i].boundary &&
		    rx.kdl_seg_size == table[i].seg_max && tx.kdl_seg_size == table[i].seg_max,
		    "%zu: segments", i);
		CHECK(rx.kdl_size == table[i].rx_size && rx.kdl_nsegs == table[i].rx_segs,
		    "%zu: %lu bytes, %u segments are received", i, rx.kdl_size, rx.kdl_nsegs);
		CHECK(tx.kdl_size == PV_NET_MAX_FRAME + CARD_HDR && tx.kdl_nsegs == table[i].segs,
		    "%zu: %lu bytes, %u segments are sent", i, tx.kdl_size, tx.kdl_nsegs);
		card_end();
	}
}

static int pairs_fail_after, pairs_error;

/* The device has three pairs from now on; the nth call that can fail does. */
static int
restarts_with_three(void *softc)
{
	int error = restarts(softc), i, maps = kpi_dma_maps, tags = kpi_dma_tags;

	kpi_fail_after = pairs_fail_after;
	pairs_error = pv_net_set_pairs(card.ca_pn, 3);
	pairs_fail_after = kpi_fail_after;
	kpi_fail_after = 0;
	if (pairs_error != 0)
		CHECK(pairs_error == ENOMEM && card.ca_pn->pn_params.pnp_npairs == 1 &&
		    card.ca_pn->pn_pairs == 1 && !CARD_RXQ(2)->prq_lro_ready, "error %d", pairs_error);
	/* One that has no memory has no buffers either. */
	for (i = 1; i < 3; i++)
		CHECK(CARD_TXQ(i)->ptq_ring != NULL || (CARD_TXQ(i)->ptq_max_bufs == 0 &&
		    CARD_TXQ(i)->ptq_nbufs == 0 && CARD_TXQ(i)->ptq_nfree == 0 &&
		    CARD_RXQ(i)->prq_max_bufs == 0 && CARD_RXQ(i)->prq_nbufs == 0 &&
		    CARD_RXQ(i)->prq_nfree == 0), "pair %d", i);
	if (pairs_error != 0 && CARD_TXQ(1)->ptq_ring == NULL)
		CHECK(kpi_dma_maps == maps && kpi_dma_tags == tags, "%d maps are left",
		    kpi_dma_maps - maps);
	return (error);
}

/* Pairs for which there is no memory leave those that there are as they were. */
void
life_more_pairs_without_memory(const void *arg __unused)
{
	bool over;
	int n;

	kpi_quiet = true;
	for (n = 1, over = false; !over; n++) {
		card_new(3);
		card.ca_at_first = 1;
		card.ca_params.pnp_phys = false;
		card.ca_params.pnp_soft_lro = true;
		restarts = card.ca_ops.pno_restart;
		CHECK(card_attach() == 0, "it does not attach");
		card_settle();
		pairs_fail_after = n;
		card.ca_ops.pno_restart = restarts_with_three;
		CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && pv_net_thaw(card.ca_pn) == 0,
		    "not resumed");
		over = pairs_fail_after != 0;
		card_settle();
		works(over ? 3 : 1);
		card_end();
	}
	CHECK(n > 3 && pairs_error == 0, "%d, error %d", n, pairs_error);
}

/* What a device that was started again has lost, the address first, on which the filter depends. */
void
life_settings_in_order(const void *arg __unused)
{
	struct pv_net *net;
	struct pv_dev *pvd;

	card_new(1);
	card.ca_ops.pno_set_offloads = set_offloads;
	CHECK(card_attach() == 0, "it does not attach");
	CHECK(strcmp(card.ca_settings, "fvc") == 0, "%s", card.ca_settings);
	card_settle();
	net = card.ca_pn;
	pvd = pv_net_dev(net);
	net->pn_vlan_failed = true;
	net->pn_vlans_set[0] = net->pn_vlans_set[nitems(net->pn_vlans_set) - 1] = 1;
	lladdr[5] ^= 1;
	card_forget();
	requests = 0;
	eth.if_capenable &= ~IFCAP_LRO;
	CHECK(pv_dev_freeze(pvd) == 0 && card.ca_settings[0] == '\0' && pv_net_thaw(net) == 0,
	    "not resumed");
	CHECK(strcmp(card.ca_settings, "afvc") == 0 && requests == 1 && offloads == PV_NET_RXCSUM,
	    "%s, %u requests, 0x%x", card.ca_settings, requests, offloads);
	CHECK(!net->pn_vlan_failed && net->pn_vlans_set[0] == 0 &&
	    net->pn_vlans_set[nitems(net->pn_vlans_set) - 1] == 0, "tags of a device that was started");
	/* After a start it has all that were negotiated. */
	eth.if_capenable |= IFCAP_LRO;
	CHECK(pv_dev_freeze(pvd) == 0 && pv_net_thaw(net) == 0 && requests == 1, "%u requests",
	    requests);
	card_settle();
	works(1);
	lladdr[5] ^= 1;
	card_end();
}

/* What is looked at each second: a link that flaps, and whether the kernel forwards. */
void
life_each_second(const void *arg __unused)
{
	int lines;

	kpi_quiet = true;
	card_begin(1);
	/* Whoever resumes it has it announce its addresses, as the machine may be another. */
	CHECK(card.ca_link_tasks == 0 && card.ca_looks == 1, "%u", card.ca_link_tasks);
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && card.ca_looks == 1 &&
	    pv_net_thaw(card.ca_pn) == 0 && card.ca_looks == 2, "not resumed, %u looks",
	    card.ca_looks);
	card_settle();
	CHECK(card.ca_link_tasks == 1, "%u", card.ca_link_tasks);
	card.ca_pn->pn_link_changes = PV_NET_LINK_CHANGES;
	card_seconds(2);
	CHECK(card.ca_link_tasks == 1 && card.ca_pn->pn_link_changes == 0, "%u", card.ca_link_tasks);
	card.ca_pn->pn_link_changes = PV_NET_LINK_CHANGES + 1;
	card_seconds(2);
	CHECK(card.ca_link_tasks == 2 && card.ca_pn->pn_link_changes == 0, "%u", card.ca_link_tasks);
	/* A start tells the stack what the link is like. */
	card.ca_no_link = true;
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && pv_net_thaw(card.ca_pn) == 0 &&
	    card.ca_links == 2, "%u links", card.ca_links);
	card.ca_no_link = false;
	lines = kpi_lines;
	pv_net_lro_forward = 1;
	card_seconds(2);
	CHECK(kpi_lines == lines, "nobody forwards: %s", kpi_line);
	V_ipforwarding = 1;
	card_seconds(3);
	CHECK(kpi_lines == lines + 1 && strncmp(kpi_line, "GSO packets are not split for forwarding",
	    40) == 0, "%d lines, %s", kpi_lines - lines, kpi_line);
	V_ipforwarding = 0;
	card_seconds(1);
	V_ip6_forwarding = 1;
	card_seconds(3);
	CHECK(kpi_lines == lines + 2, "%d lines", kpi_lines - lines);
	pv_net_lro_forward = 0;
	card_seconds(1);
	CHECK(kpi_lines == lines + 2, "%d lines", kpi_lines - lines);
	V_ip6_forwarding = 0;
	/* A protocol that can't say whether there is more is not asked. */
	pv_dev_lock(pv_net_dev(card.ca_pn));
	pv_dev_set_short(pv_net_dev(card.ca_pn), PV_DEV_QUEUES, 1, 2);
	pv_dev_unlock(pv_net_dev(card.ca_pn));
	card_forget();
	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && pv_net_thaw(card.ca_pn) == 0,
	    "not resumed");
	card_seconds(2);
	SAID("stop start pairs=1 ");
	card_end();
}

/* What a device has that does not stop is not freed: it may still read it, and write to it. */
void
life_device_that_does_not_stop(const void *arg __unused)
{
	struct pv_dev *pvd;
	int items, mallocs;
	u_int i;

	kpi_quiet = true;
	card_begin(2);
	pvd = pv_net_dev(card.ca_pn);
	CHECK(card_send(0, 1, 300) == 0 && card_send(1, 2, 300) == 0, "not sent");
	items = kpi_items;
	card.ca_stop_error = ETIMEDOUT;
	(void)pv_dev_freeze(pvd);
	CHECK(!pv_dev_is_live(pvd) && card_send(0, 3, 100) == ENETDOWN, "it is used");
	CHECK(pv_net_thaw(card.ca_pn) != 0, "it is used again");
	/* Whatever it does now. */
	CHECK(card_receive(0, 4, 500, 1) && card_receive(1, 5, 500, 1), "no buffers");
	card_complete(1, card_takes(1, 2, 300));
	card_intr(0, false);
	card_intr(1, true);
	CHECK(card.ca_nup == 0 && kpi_items == items, "%d mbufs and clusters of %d", kpi_items, items);
	for (i = 0; i < 2; i++)
		CHECK(pvq_inflight(CARD_RXQ(i)->prq_pvq) == 0 &&
		    pvq_inflight(CARD_TXQ(i)->ptq_pvq) == 0, "the ring has it");
	mallocs = kpi_mallocs;
	pv_net_detach(card.ca_pn);
	CHECK(kpi_callouts == 0 && kpi_run_tasks() == 0 && kpi_mutexes == 0, "it goes on");
	CHECK(kpi_items == items && mallocs - kpi_mallocs < 4, "%d mbufs and clusters of %d", kpi_items,
	    items);
	for (i = 0; i < 4; i++)
		card.ca_impl->im_destroy(card.ca_peers[i]);
	pv_net_free(card.ca_pn);
	CHECK(kpi_items == items && kpi_locks == 0, "%d mbufs and clusters of %d", kpi_items, items);
	kpi_device_destroy(card.ca_dev);
}
