/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net on rings: packets that are sent another way than most are: those without an address, those
 * that bpf(4) listens to or altq(4) decides about, those for which something is done in software, and
 * commands among them.
 */

#include "pv_net_card.h"

/* The device takes the next packet, whichever it is, and has sent it: its bytes, how many. */
static u_int
device_sends(int pair, u_char *to)
{
	static u_char got[FRAME_MAX + CARD_HDR];
	struct peer *pe = card_peer(pair, true);
	struct peer_chain pr;
	u_int len;

	if (!pe->pe_ops->po_fetch(pe, &pr))
		return (0);
	len = card_read(&pr, got) - card.ca_params.pnp_hdrlen;
	memcpy(to, got + card.ca_params.pnp_hdrlen, len);
	card_complete(pair, pr.pr_id);
	return (len);
}

/*
 * ---- Pages ----------------------------------------------------------------
 */

/* Three pages, with a header before them and a trailer behind. */
#define	EPG_HDR		5
#define	EPG_1ST		100
#define	EPG_LAST	300
#define	EPG_TRAIL	7
#define	EPG_ROOM	(PAGE_SIZE - EPG_1ST)
#define	EPG_ALL		(EPG_HDR + EPG_ROOM + PAGE_SIZE + EPG_LAST + EPG_TRAIL)
#define	EPG_FRONT	40	/* bytes of the packet in an mbuf of their own */

static u_char *epg_pages;	/* each second one is none of them */

static struct mbuf *
epg_mbuf(u_int at, u_int len)
{
	struct mbuf *m = m_get(M_WAITOK, MT_DATA);
	u_int i;

	m->m_flags |= M_EXTPG;
	m->m_epg_npgs = 3;
	m->m_epg_1st_off = EPG_1ST;
	m->m_epg_last_len = EPG_LAST;
	m->m_epg_hdrlen = EPG_HDR;
	m->m_epg_trllen = EPG_TRAIL;
	for (i = 0; i < 3; i++)
		m->m_epg_pa[i] = (uintptr_t)epg_pages + 2 * i * PAGE_SIZE;
	m->m_data = (caddr_t)(uintptr_t)at;
	m->m_len = len;
	return (m);
}

/* Where a byte is. */
static u_char *
epg_byte(struct mbuf *m, u_int at)
{

	if (at < EPG_HDR)
		return ((u_char *)&m->m_epg_hdr[at]);
	at -= EPG_HDR;
	if (at < EPG_ROOM)
		return (&epg_pages[EPG_1ST + at]);
	at -= EPG_ROOM;
	if (at < PAGE_SIZE)
		return (&epg_pages[2 * PAGE_SIZE + at]);
	at -= PAGE_SIZE;
	if (at < EPG_LAST)
		return (&epg_pages[4 * PAGE_SIZE + at]);
	return ((u_char *)&m->m_epg_trail[at - EPG_LAST]);
}

/* Each part of it, from any byte to any other, is a segment for each place that it is in. */
void
tx_pages_without_an_address(const void *arg __unused)
{
	static const struct {
		u_int	at, len;
		int	segs;
	} table[] = {
		{ 0, EPG_ALL, 5 }, { 1, EPG_ALL - 2, 5 }, { 0, 3, 1 }, { 0, EPG_HDR, 1 },
		{ 2, EPG_HDR - 2, 1 }, { 2, EPG_HDR - 1, 2 }, { EPG_HDR, 1, 1 },
		{ EPG_HDR, EPG_ROOM, 1 }, { EPG_HDR, EPG_ROOM + 1, 2 },
		{ EPG_HDR + 7, EPG_ROOM - 7, 1 }, { EPG_HDR + EPG_ROOM - 1, 2, 2 },
		{ EPG_HDR + EPG_ROOM, PAGE_SIZE, 1 }, { EPG_HDR + EPG_ROOM + 9, PAGE_SIZE, 2 },
		{ EPG_HDR + EPG_ROOM + PAGE_SIZE, EPG_LAST, 1 },
		{ EPG_HDR + EPG_ROOM + PAGE_SIZE + 1, EPG_LAST, 2 },
		{ EPG_ALL - EPG_TRAIL - 1, 2, 2 }, { EPG_ALL - EPG_TRAIL, EPG_TRAIL, 1 },
		{ EPG_ALL - 1, 1, 1 },
	};
	static u_char want[FRAME_MAX];
	struct mbuf *m, *pages;
	uint32_t id;
	u_int i, n;

	epg_pages = host_alloc(6 * PAGE_SIZE, PAGE_SIZE);
	card_begin(1);
	for (n = 0; n < nitems(table); n++) {
		m = card_packet(n, EPG_FRONT);
		pages = epg_mbuf(table[n].at, table[n].len);
		memset(epg_pages, 0x5a, 6 * PAGE_SIZE);
		card_fill(want, n, EPG_FRONT + table[n].len);
		for (i = 0; i < table[n].len; i++)
			*epg_byte(pages, table[n].at + i) = want[EPG_FRONT + i];
		m->m_next = pages;
		m->m_pkthdr.len += table[n].len;
		CHECK(card_transmit(0, m) == 0, "packet %u", n);
		id = card_takes(0, n, EPG_FRONT + table[n].len);
		CHECK(card.ca_nsegs == 2 + table[n].segs, "packet %u: %d segments", n, card.ca_nsegs);
		/* This kernel frees no others. */
		pages->m_flags &= ~M_EXTPG;
		card_complete(0, id);
	}
	CHECK(CARD_TXQ(0)->ptq_stats.unmapped == n && CARD_TXQ(0)->ptq_stats.packets == n &&
	    card.ca_plain == 0, "the counters");
	card_end();
	host_free(epg_pages);
}

/*
 * ---- Listeners ------------------------------------------------------------
 */

/* A listener has the frame alone, with the sum that it will have; the device has it as it was. */
void
tx_listeners(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], done[FRAME_MAX], got[FRAME_MAX];
	struct frame_at at;
	struct mbuf *m;
	u_int room, taps = 0;
	size_t g, len;

	card_new(1);
	bpf = &listeners;
	CHECK(card_attach() == 0, "it does not attach");
	for (g = 0; g < NGOOD; g++) {
		/* With the header in front of it, and elsewhere. */
		for (room = 0; room < 2; room++) {
			len = frame_make(&good[g].f, FRAME_DONE, done, &at);
			(void)frame_make(&good[g].f, FRAME_PARTIAL, buf, &at);
			m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
			m->m_data += room == 0 ? 0 : CARD_HDR;
			memcpy(mtod(m, void *), buf, len);
			m->m_len = m->m_pkthdr.len = len;
			m->m_pkthdr.csum_flags = sum_mark(&good[g].f);
			m->m_pkthdr.csum_data = at.at_sum - at.at_l4;
			m->m_flags |= g == 3 ? M_MCAST : g == 4 ? M_BCAST : 0;
			CHECK(card_transmit(0, m) == 0, "%s: not sent", good[g].name);
			CHECK(card.ca_taps == ++taps && card.ca_tapped == len &&
			    memcmp(card_tapped, done, len) == 0, "%s: %u bytes, %u times",
			    good[g].name, card.ca_tapped, card.ca_taps);
			CHECK(card.ca_tap_marks == 0, "%s: 0x%x is to be done", good[g].name,
			    card.ca_tap_marks);
			CHECK(device_sends(0, got) == len && memcmp(got, buf, len) == 0,
			    "%s: another is sent", good[g].name);
		}
	}
	CHECK(CARD_TXQ(0)->ptq_stats.mcasts == 4, "multicast");
	/* What has no sum. */
	CHECK(card_send(0, 1, 333) == 0 && card.ca_taps == ++taps && card.ca_tapped == 333, "not seen");
	card_fill(done, 1, 333);
	CHECK(memcmp(card_tapped, done, 333) == 0, "another is seen");
	card_complete(0, card_takes(0, 1, 333));
	/* Without memory for the sum it is sent, and not seen. */
	len = frame_make(&good[0].f, FRAME_PARTIAL, buf, &at);
	m = kpi_mbuf_chain(buf, len, NULL);
	m->m_pkthdr.csum_flags = sum_mark(&good[0].f);
	m->m_pkthdr.csum_data = at.at_sum - at.at_l4;
	kpi_no_memory = true;
	CHECK(card_transmit(0, m) == 0, "not sent");
	kpi_no_memory = false;
	CHECK(device_sends(0, got) == len && memcmp(got, buf, len) == 0 && card.ca_taps == taps,
	    "%u were seen of %u", card.ca_taps, taps);
	card_end();
}

/*
 * ---- In software ----------------------------------------------------------
 */

/* A device that computes no sums, and splits nothing, is given what is done. */
void
tx_in_software(const void *arg __unused)
{
	static u_char buf[FRAME_MAX], got[FRAME_MAX];
	const struct pv_net_txstats *stats;
	uint64_t packets = 0, bytes = 0, tsos = 0;
	const struct gso *g;
	struct frame_at at;
	struct mbuf *m;
	u_int i, n, off;
	size_t len;

	card_new(1);
	card.ca_params.pnp_offloads = 0;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	stats = &CARD_TXQ(0)->ptq_stats;
	for (i = 0; i < NGOOD; i++) {
		len = frame_make(&good[i].f, FRAME_PARTIAL, buf, &at);
		m = kpi_mbuf_chain(buf, len, NULL);
		m->m_pkthdr.csum_flags = sum_mark(&good[i].f);
		m->m_pkthdr.csum_data = at.at_sum - at.at_l4;
		CHECK(card_transmit(0, m) == 0, "%s: not sent", good[i].name);
		(void)frame_make(&good[i].f, FRAME_DONE, buf, &at);
		CHECK(device_sends(0, got) == len && memcmp(got, buf, len) == 0, "%s: other bytes",
		    good[i].name);
		CHECK(stats->soft_csum == i + 1 && stats->csum == 0, "%s: counters", good[i].name);
		card_intr(0, true);
		bytes += len;
	}
	packets = i;
	for (g = gsos; g < gsos + nitems(gsos); g++) {
		m = to_send(g, buf, &at);
		CHECK(card_transmit(0, m) == 0, "%s: not sent", g->name);
		CHECK(stats->soft_tso == ++tsos, "%s: not split", g->name);
		/* More than the ring has room for. */
		for (n = off = 0; (len = device_sends(0, got)) > 0; n++) {
			CHECK(frame_sum_ok(&g->f, got, len) && frame_segment_ok(&g->f, buf, &at, got,
			    len, n, off, g->size), "%s: segment %u of %zu bytes", g->name, n, len);
			off += len - at.at_data;
			bytes += len;
			card_intr(0, true);
		}
		CHECK(off == g->f.f_payload && n == howmany(g->f.f_payload, g->size), "%s: %u in %u",
		    g->name, off, n);
		packets += n;
	}
	CHECK(stats->packets == packets && stats->bytes == bytes && stats->tso == 0 &&
	    stats->nomem == 0, "%ju packets, %ju bytes", (uintmax_t)stats->packets,
	    (uintmax_t)stats->bytes);
	/* Without memory nothing is sent of it. */
	for (i = 0; i < 2; i++) {
		len = frame_make(&gsos[0].f, FRAME_PARTIAL, buf, &at);
		m = i == 0 ? to_send(&gsos[0], buf, &at) : kpi_mbuf_chain(buf, len, NULL);
		if (i == 1) {
			m->m_pkthdr.csum_flags = sum_mark(&gsos[0].f);
			m->m_pkthdr.csum_data = 16;
			m->m_flags |= M_RDONLY;
		}
		kpi_no_memory = true;
		CHECK(card_transmit(0, m) == 0, "returned");
		kpi_no_memory = false;
		CHECK(card_idle(0) && stats->nomem == i + 1 && stats->soft_tso == tsos &&
		    stats->soft_csum == packets, "%u: %ju dropped, %ju split, %ju summed", i,
		    (uintmax_t)stats->nomem, (uintmax_t)stats->soft_tso, (uintmax_t)stats->soft_csum);
	}
	card_end();
}

/* What is invalid has its counter, and is dropped alone; so is what its tag has no memory for. */
void
tx_invalid(const void *arg __unused)
{
	const struct pv_net_txstats *stats;
	struct mbuf *m;
	int items;

	card_begin(1);
	stats = &CARD_TXQ(0)->ptq_stats;
	items = kpi_items;
	m = card_packet(1, 300);
	m->m_pkthdr.csum_flags = CSUM_IP_TCP;
	m->m_pkthdr.csum_data = 16;
	CHECK(card_transmit(0, m) == 0 && stats->bad_offload == 1 &&
	    stats->bad[PV_NET_BAD_CSUM] == 1, "no IP");
	m = card_packet(1, 10);
	m->m_pkthdr.csum_flags = CSUM_IP_TCP;
	CHECK(card_transmit(0, m) == 0 && stats->bad_offload == 2 &&
	    stats->bad[PV_NET_BAD_SHORT] == 1, "no header");
	m = card_packet(1, 300);
	m->m_flags |= M_VLANTAG;
	card.ca_no_tags = true;
	CHECK(card_transmit(0, m) == 0 && stats->nomem == 1, "without its tag");
	card.ca_no_tags = false;
	CHECK(card_idle(0) && stats->packets == 0 && kpi_items == items, "sent, or kept");
	CHECK(card_send(0, 2, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 2, 100));
	CHECK(stats->bad_offload == 2 && stats->nomem == 1 && stats->packets == 1, "the counters");
	card_end();
}

/*
 * ---- altq(4) --------------------------------------------------------------
 */

/* Everything goes by the first pair, in the order that altq(4) gives, and it is the owner meanwhile. */
void
tx_shaped(const void *arg __unused)
{
	struct mbuf *m;
	u_int i, n;

	card_new(2);
	card.ca_altq = true;
	mtx_init(&eth.if_snd.ifq_mtx, "card0", "if send queue", MTX_DEF);
	eth.if_snd.ifq_maxlen = 40;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	for (i = 0; i < 3; i++) {
		CHECK(card_send(1, i, 100 + i) == 0, "packet %u", i);
		CHECK(CARD_TXQ(0)->ptq_unkicked == 0, "not notified");
		card_complete(0, card_takes(0, i, 100 + i));
	}
	CHECK(card_idle(1), "by another pair");
	/* More than the ring has room for, and than altq(4) takes: the ring, one that waits, and 40. */
	card_intr(0, true);
	for (n = 0; card_send(0, n, 60) == 0; n++)
		CHECK(n < 100, "it takes everything");
	CHECK(n == CARD_SIZE + 1 + 40, "%u were sent", n);
	CHECK(CARD_TXQ(0)->ptq_stats.queue_drops == 0, "dropped by the driver");
	for (i = 0; i < n; i++) {
		card_complete(0, card_takes(0, i, 60));
		if (card_peer(0, true)->pe_ops->po_interrupts(card_peer(0, true)))
			card_intr(0, true);
	}
	CHECK(card_idle(0), "more");
	/* Who does not get the lock has the task send. */
	mtx_lock(&CARD_TXQ(0)->ptq_mtx);
	CHECK(card_send(1, 70, 100) == 0, "not sent");
	mtx_unlock(&CARD_TXQ(0)->ptq_mtx);
	CHECK(card_idle(0), "sent without the lock");
	card_settle();
	card_complete(0, card_takes(0, 70, 100));
	/* When it is disabled, each pair sends what is its own again. */
	card.ca_altq = false;
	CHECK(card_send(1, 71, 100) == 0, "not sent");
	card_complete(1, card_takes(1, 71, 100));
	/* A device that is down takes nothing from altq(4). */
	card.ca_altq = true;
	pv_dev_lock(pv_net_dev(card.ca_pn));
	pv_dev_down(pv_net_dev(card.ca_pn));
	pv_dev_unlock(pv_net_dev(card.ca_pn));
	m = card_packet(72, 100);
	IF_ENQUEUE(&eth.if_snd, m);
	pv_net_start(&eth);
	card_settle();
	CHECK(eth.if_snd.ifq_len == 1, "%d wait", eth.if_snd.ifq_len);
	m_freem(if_dequeue(&eth));
	mtx_destroy(&eth.if_snd.ifq_mtx);
	card_end();
}

/*
 * ---- Commands -------------------------------------------------------------
 */

static u_int ncommands, npackets;	/* that have completed */
static u_int prepared;		/* packets of this batch */
static struct pvq_ops ops;
static const struct pvq_ops *ops_before;
static int command, no_command;
static void (*encap)(void *, int, struct pv_net_txhdr *, int);

static void
message_prepare(void *softc, int pair, u_int n, struct pv_net_txhdr *hdr)
{

	CHECK(softc == &card && pair == 0, "another queue");
	CHECK(n == prepared++ && n < PV_NET_BATCH, "packet %u of a batch of %u", n, prepared);
	CHECK(hdr->pth_chain->pc_nread > 0 && hdr->pth_hdr != NULL, "before it has its segments");
}

static void
message_encap(void *softc, int pair, struct pv_net_txhdr *hdrs, int n)
{

	CHECK((u_int)n == prepared, "%d packets of %u", n, prepared);
	prepared = 0;
	encap(softc, pair, hdrs, n);
}

static void
message_sent(void *softc, int pair, const struct pvq_done *done, int n)
{
	int i;

	CHECK(softc == &card && pair == 0 && n > 0, "another queue");
	mtx_assert(&CARD_TXQ(0)->ptq_mtx, MA_OWNED);
	for (i = 0; i < n; i++) {
		ncommands += pv_net_is_command(&done[i]);
		npackets += !pv_net_is_command(&done[i]);
	}
}

static const struct pv_net_message_ops messages = {
	.pmo_prepare = message_prepare,
	.pmo_sent = message_sent,
};

/* A ring that has a form for some commands. */
static int
command_prepare(const struct pvq *q, const struct pvq_chain *pc)
{

	if (pc->pc_nread > 0)
		return (ops_before->qo_prepare(q, pc));
	CHECK(pc->pc_nwrite == 0, "a command that is received");
	return (pc->pc_arg == &command);
}

static void
command_put(struct pvq *q, const struct pvq_chain *pc, int n)
{
	bus_dma_segment_t seg = { .ds_addr = (uintptr_t)&command, .ds_len = sizeof(command) };
	struct pvq_chain chain = *pc;

	CHECK(n == 1 && pc->pc_nread == 0 && pc->pc_arg == &command && pc->pc_cookie != NULL,
	    "no command");
	chain.pc_segs = &seg;
	chain.pc_nread = 1;
	ops_before->qo_put(q, &chain, 1);
}

/* The device has done what it is commanded. */
static void
device_obeys(void)
{
	struct peer *pe = card_peer(0, true);
	struct peer_chain pr;

	CHECK(pe->pe_ops->po_fetch(pe, &pr) && pr.pr_nread == 1 &&
	    pr.pr_segs[0].addr == (uintptr_t)&command, "no command");
	card_complete(0, pr.pr_id);
}

/* The ring takes commands from now on. */
static void
commands_begin(void)
{
	struct pvq *q = card_peer(0, true)->pe_pvq;

	ops_before = q->q_ops;
	ops = *ops_before;
	ops.qo_prepare = command_prepare;
	ops.qo_put = command_put;
	q->q_ops = &ops;
}

/* With fewer buffers than the ring has places, for want of memory, a command waits for a buffer. */
static void
command_without_a_buffer(void)
{

	kpi_quiet = true;
	card_new(1);
	card.ca_size = 4;
	card.ca_fail_after = 1;
	CHECK(card_attach() == 0, "it does not attach");
	kpi_fail_after = 0;
	card_settle();
	CHECK(CARD_TXQ(0)->ptq_nbufs == 2, "%u buffers", CARD_TXQ(0)->ptq_nbufs);
	commands_begin();
	CHECK(card_send(0, 1, 100) == 0 && card_send(0, 2, 100) == 0, "not sent");
	CHECK(pv_net_command(card.ca_pn, 0, &command) == ENOSPC, "a buffer that there is not");
	card_complete(0, card_takes(0, 1, 100));
	CHECK(pv_net_command(card.ca_pn, 0, &command) == 0, "there is one");
	card_complete(0, card_takes(0, 2, 100));
	device_obeys();
	card_end();
}

/* Commands are among the packets, and the device is notified of each. */
void
tx_commands(const void *arg __unused)
{
	struct pv_net_txq *txq;
	struct peer *pe;
	struct pvq *q;
	u_int i;

	card_new(1);
	card.ca_ops.pno_message = &messages;
	encap = card.ca_ops.pno_encap;
	card.ca_ops.pno_encap = message_encap;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	txq = CARD_TXQ(0);
	pe = card_peer(0, true);
	q = pe->pe_pvq;
	commands_begin();
	ncommands = npackets = prepared = 0;
	(void)pe->pe_ops->po_listen(pe);
	pe->pe_kicks = 0;
	CHECK(pv_net_command(card.ca_pn, 0, &no_command) == EINVAL && pe->pe_kicks == 0 && card_idle(0),
	    "a command that there is not");
	CHECK(pv_net_command(card.ca_pn, 0, &command) == 0 && pe->pe_kicks == 1 &&
	    txq->ptq_unkicked == 0, "%u notifications", pe->pe_kicks);
	CHECK(card_send(0, 1, 100) == 0, "not sent");
	device_obeys();
	card_complete(0, card_takes(0, 1, 100));
	card_intr(0, true);
	CHECK(ncommands == 1 && npackets == 1 && txq->ptq_nfree == txq->ptq_nbufs, "%u, %u", ncommands,
	    npackets);
	CHECK(txq->ptq_stats.packets == 1 && txq->ptq_stats.bytes == 100, "the counters");
	/* Where there is no room, and where there is some that nobody has collected. */
	for (i = 0; i < CARD_SIZE + 3; i++)
		CHECK(card_send(0, i, 100) == 0, "packet %u", i);
	pe->pe_kicks = 0;
	CHECK(pv_net_command(card.ca_pn, 0, &command) == ENOSPC && pe->pe_kicks == 0, "no room");
	card_complete(0, card_takes(0, 0, 100));
	CHECK(pv_net_command(card.ca_pn, 0, &command) == 0, "there is room");
	for (i = 1; i < CARD_SIZE; i++)
		card_complete(0, card_takes(0, i, 100));
	device_obeys();
	card_intr(0, true);
	CHECK(ncommands == 2 && npackets == 1 + CARD_SIZE, "%u, %u", ncommands, npackets);
	for (; i < CARD_SIZE + 3; i++)
		card_complete(0, card_takes(0, i, 100));
	/* One that a device had which was reset is nobody's. */
	CHECK(pv_net_command(card.ca_pn, 0, &command) == 0, "there is room");
	q->q_ops = ops_before;
	pv_dev_need_reset(pv_net_dev(card.ca_pn), pv_net_number(0, true), EIO);
	kpi_quiet = true;
	card_settle();
	CHECK(ncommands == 2 && txq->ptq_nfree == txq->ptq_nbufs, "%u of %u are free", txq->ptq_nfree,
	    txq->ptq_nbufs);
	CHECK(card_send(0, 9, 100) == 0, "not sent");
	card_complete(0, card_takes(0, 9, 100));
	card_end();
	command_without_a_buffer();
}
