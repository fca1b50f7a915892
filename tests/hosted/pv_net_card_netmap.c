/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net's queues as rings of netmap(4), which is this file, and the program that has them as well.
 *
 * Each buffer has one owner, the program or the device; a slot has a buffer of its own whatever is
 * exchanged; and a ring is consistent after each sync.
 *
 * netmap(4) frees its rings, and the interface, when the queues are stopped.  An interrupt handler that
 * found a queue active calls netmap(4) without that queue's lock, and may be preempted just before, for
 * as long as a whole detachment takes.  So it does both in one section of the network epoch, and who
 * stops the queues waits for such sections: from the moment when no queue is active any more.
 */

#include "pv_net_card.h"

#include <sys/epoch.h>
#include <net/netmap.h>
#include <dev/netmap/netmap_kern.h>

#define	QUEUES		4	/* of two pairs */
#define	MAX_SLOTS	64
#define	BUF		2048
#define	ALL		((1u << QUEUES) - 1)
#define	BIT(pair, tx)	(1u << pv_net_number(pair, tx))

static u_char buffers[1 + QUEUES * MAX_SLOTS][BUF];	/* 0 is no buffer */
static bool lent[1 + QUEUES * MAX_SLOTS];	/* the device has it */
static struct netmap_adapter adapter;
static struct netmap_kring krings[QUEUES];
static u_int pending;		/* queues that a program opens or closes, a bit each */
static u_int opened;		/* queues that netmap has, and whose rings are there */
static bool native;		/* the flags of a port that has some */
static u_int nslots;		/* of a ring */
static u_int irqs;		/* calls of netmap */
static u_int irqs_of[QUEUES];
static u_int depth;		/* sections of the network epoch */
static bool blocked;		/* a thread waits for their ends */
static bool refused;		/* netmap has no memory for a port */
static u_int reinits;		/* how often the program was found to be wrong */
static void (*preempted)(void);	/* runs in place of a handler that is about to call netmap */

struct netmap_adapter *
card_netmap_adapter(if_t ifp)
{

	adapter.ifp = ifp;
	return (&adapter);
}

void *
card_netmap_buf(struct netmap_slot *slot, uint64_t *paddr)
{
	u_int i = slot->buf_idx < nitems(buffers) ? slot->buf_idx : 0;

	if (paddr != NULL)
		*paddr = (uintptr_t)buffers[i];
	return (buffers[i]);
}

void *
card_netmap_no_buf(void)
{

	return (buffers[0]);
}

struct netmap_kring *
netmap_kring_on(struct netmap_adapter *na __unused, u_int q, enum txrx t)
{

	return ((opened & BIT(q, t == NR_TX)) != 0 ? &krings[pv_net_number(q, t == NR_TX)] : NULL);
}

void
nm_set_native_flags(struct netmap_adapter *na)
{

	CHECK(na == &adapter, "another port");
	native = true;
}

void
nm_clear_native_flags(struct netmap_adapter *na)
{

	CHECK(na == &adapter && native, "another port");
	native = opened != 0;
}

bool
nm_native_on(struct netmap_adapter *na)
{

	CHECK(na == &adapter, "another port");
	return (native);
}

void
netmap_krings_mode_commit(struct netmap_adapter *na, int on)
{
	u_int i;

	CHECK(na == &adapter, "another port");
	CHECK(native, "rings of a port that is not netmap's");
	CHECK(!pv_dev_is_live(pv_net_dev(card.ca_pn)), "the queues are used");
	pv_dev_assert(pv_net_dev(card.ca_pn));
	for (i = 0; i < QUEUES; i++)
		CHECK(pvq_inflight(card.ca_peers[i]->pe_pvq) == 0, "queue %u has buffers", i);
	opened = on ? opened | pending : opened & ~pending;
}

int
netmap_attach(struct netmap_adapter *na)
{

	u_int pairs = card.ca_pn->pn_params.pnp_npairs;

	CHECK(na->num_rx_rings == pairs && na->num_tx_rings == pairs, "%u and %u rings of %u pairs",
	    na->num_rx_rings, na->num_tx_rings, pairs);
	CHECK(na->num_rx_desc == nslots && na->num_tx_desc == nslots, "rings of %u and %u slots",
	    na->num_rx_desc, na->num_tx_desc);
	CHECK(na->rx_buf_maxsize == PV_NET_MAX_FRAME && na->na_flags == NAF_BDG_MAYSLEEP &&
	    na->ifp == &eth, "buffers of %u bytes", na->rx_buf_maxsize);
	if (refused)
		return (ENOMEM);
	adapter = *na;
	return (0);
}

void
netmap_detach(if_t ifp)
{

	CHECK(ifp == adapter.ifp && opened == 0, "a port with rings is gone");
	CHECK(CARD_RXQ(0)->prq_netmap != NULL, "netmap may still sync");
	memset(&adapter, 0, sizeof(adapter));
}

/* The program begins where the ring is. */
int
netmap_ring_reinit(struct netmap_kring *kring)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
	reinits++;
	kring->rhead = kring->nr_hwcur;
	return (1);
}

int
netmap_rx_irq(if_t ifp, u_int q, u_int *work)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
	/* The thread that starts the queues is the one that would stop them. */
	if (preempted != NULL) {
		CHECK(depth == 1, "netmap is called outside of the network epoch");
		preempted();
	}
	CHECK(q < CARD_PAIRS && ifp == card.ca_pn->pn_ifp && (opened & BIT(q, work == NULL)) != 0,
	    "netmap's rings are freed");
	irqs++;
	irqs_of[pv_net_number(q, work == NULL)]++;
	if (work != NULL)
		*work = 0;
	return (0);
}

void
_epoch_enter_preempt(epoch_t epoch __unused, epoch_tracker_t et __unused EPOCH_FILE_LINE)
{

	depth++;
}

void
_epoch_exit_preempt(epoch_t epoch __unused, epoch_tracker_t et __unused EPOCH_FILE_LINE)
{

	CHECK(depth > 0, "no section");
	depth--;
}

static void
interrupts(void)
{
	u_int i;

	for (i = 0; i < CARD_QUEUES && card.ca_peers[i] != NULL; i++)
		card_intr(pv_net_pair(i), pv_net_is_tx(i));
}

/* Who waits here with a handler in a section does so until that has left it. */
static void
waits_for_sections(void)
{
	u_int before = irqs;

	blocked |= depth > 0;
	interrupts();
	CHECK(irqs == before, "a queue is active while the wait for its handlers begins");
}

static void
card_up_or_down(bool up)
{
	struct pv_dev *pvd = pv_net_dev(card.ca_pn);

	pv_dev_lock(pvd);
	if (up)
		(void)pv_dev_up(pvd);
	else
		pv_dev_down(pvd);
	pv_dev_unlock(pvd);
}

/* Another thread detaches the card: netmap's rings are there for as long as it waits. */
static void
detaches(void)
{

	preempted = NULL;
	card_up_or_down(false);
	if (!blocked)
		opened = 0;
}

/* A program opens or closes these queues. */
static int
netmap_opens(u_int queues, bool on)
{
	int error;

	pending = queues;
	error = adapter.nm_register(&adapter, on);
	CHECK(card.ca_pn->pn_netmap == (opened != 0) && native == (opened != 0) && kpi_mutexes == 0,
	    "is the port netmap's?");
	return (error);
}

/* New rings; each slot has a buffer of its own. */
static void
rings_begin(u_int queues)
{
	static union {
		struct netmap_ring ring;
		char		 memory[sizeof(struct netmap_ring) +
				    MAX_SLOTS * sizeof(struct netmap_slot)];
	} rings[QUEUES];
	u_int i, slot;

	for (i = 0; i < QUEUES; i++) {
		if ((queues & 1u << i) == 0)
			continue;
		memset(&rings[i], 0, sizeof(rings[i]));
		krings[i] = (struct netmap_kring){ .na = &adapter, .ring = &rings[i].ring,
		    .ring_id = pv_net_pair(i) };
		for (slot = 0; slot < nslots; slot++)
			rings[i].ring.slot[slot].buf_idx = 1 + i * MAX_SLOTS + slot;
	}
}

static void (*decap)(void *, int, const struct pvq_done *, struct pv_net_rxhdr *, int);
static u_int lies;		/* the header that the device's driver read says so */

/* What the device's driver is given of a buffer; and it may find it to be anything. */
static void
netmap_decap(void *softc, int pair, const struct pvq_done *done, struct pv_net_rxhdr *hdrs, int n)
{
	int i;

	CHECK(n > 0 && n <= PV_NET_BATCH, "%d buffers", n);
	for (i = 0; i < n; i++) {
		CHECK(hdrs[i].prh_skip == 0 && hdrs[i].prh_len == 0 && !hdrs[i].prh_more &&
		    hdrs[i].prh_error == PV_NET_RX_OK, "a header that was written");
		CHECK((opened & BIT(pair, false)) == 0 || hdrs[i].prh_room == CARD_HDR + BUF,
		    "a buffer of %u bytes", hdrs[i].prh_room);
	}
	decap(softc, pair, done, hdrs, n);
	if (lies == 1)
		hdrs[0].prh_len = BUF + 1;
	if (lies == 2)
		hdrs[0].prh_error = PV_NET_RX_SHORT;
	lies = 0;
}

static int (*stop)(void *softc);

/* The device has no buffer any more. */
static int
netmap_stop(void *softc)
{
	int error = stop(softc);

	if (error == 0)
		memset(lent, 0, sizeof(lent));
	return (error);
}

/* A card with two pairs, or with fewer at first, whose queues have so many slots each. */
static void
netmap_new(const struct impl *impl, u_int size, u_int slots, int at_first)
{

	card_new(2);
	card.ca_at_first = at_first;
	card.ca_impl = impl;
	card.ca_size = size;
	stop = card.ca_ops.pno_stop;
	card.ca_ops.pno_stop = netmap_stop;
	decap = card.ca_ops.pno_decap;
	card.ca_ops.pno_decap = netmap_decap;
	CHECK(card_attach() == 0, "it does not attach");
	card_settle();
	card_forget();
	nslots = slots;
	irqs = reinits = opened = depth = 0;
	blocked = native = refused = false;
	rings_begin(ALL);
	pv_net_netmap_attach(card.ca_pn);
	memset(irqs_of, 0, sizeof(irqs_of));
}

/* netmap gets some queues of it. */
static void
netmap_begin(const struct impl *impl, u_int size, u_int slots, u_int queues)
{

	netmap_new(impl, size, slots, 2);
	CHECK(adapter.ifp == card.ca_pn->pn_ifp, "no port");
	kpi_epoch_waits = waits_for_sections;
	CHECK(netmap_opens(queues, true) == 0 && opened == queues, "a program gets no rings");
}

static void
netmap_end(void)
{

	/* The device gives back what it has, before netmap frees it. */
	if (opened != 0)
		card_up_or_down(false);
	opened = 0;
	kpi_epoch_waits = NULL;
	if (adapter.ifp != NULL)
		pv_net_netmap_detach(card.ca_pn);
	CHECK(CARD_RXQ(0)->prq_netmap == NULL && CARD_TXQ(1)->ptq_netmap == NULL && depth == 0,
	    "what slots are sent and received with is left");
	card_end();
}

#define	INDIRECT	(&split_impls[4])	/* with event indices */
#define	FLAT		(&split_impls[3])

/* What the program or a sync must not change: which buffers a ring has, and where it may stand. */
static void
ring_check(const struct netmap_kring *kring)
{
	u_int first = 1 + (kring - krings) * MAX_SLOTS, i, buf;
	bool seen[MAX_SLOTS] = { false };

	CHECK(kring->nr_hwcur < nslots && kring->nr_hwtail < nslots, "a ring at %u and %u",
	    kring->nr_hwcur, kring->nr_hwtail);
	for (i = 0; i < nslots; i++) {
		buf = kring->ring->slot[i].buf_idx - first;
		CHECK(buf < nslots && !seen[buf], "slot %u has another's buffer", i);
		seen[buf] = true;
	}
}

/* ioctl(2). */
static int
syncs(int pair, bool tx)
{
	struct netmap_kring *kring = &krings[pv_net_number(pair, tx)];
	int error;

	error = tx ? adapter.nm_txsync(kring, 0) : adapter.nm_rxsync(kring, 0);
	CHECK(kpi_mutexes == 0, "a lock is left");
	ring_check(kring);
	return (error);
}

/* The device wants to be notified of what comes. */
static u_int
listens(int pair, bool tx)
{
	struct peer *pe = card_peer(pair, tx);

	CHECK(!pe->pe_ops->po_listen(pe), "there is more");
	return (pe->pe_kicks);
}

static bool
interrupted(int pair, bool tx)
{
	struct peer *pe = card_peer(pair, tx);

	return (pe->pe_ops->po_interrupts(pe));
}

/*
 * ---- Sending --------------------------------------------------------------
 */

/* The program has so many slots to send with. */
static u_int
room(int pair)
{
	struct netmap_kring *kring = &krings[pv_net_number(pair, true)];

	return ((kring->nr_hwtail + nslots - kring->rhead) % nslots);
}

/* The program fills its next slot. */
static struct netmap_slot *
program_writes(int pair, u_int number, u_int len)
{
	struct netmap_kring *kring = &krings[pv_net_number(pair, true)];
	struct netmap_slot *slot = &kring->ring->slot[kring->rhead];

	CHECK(room(pair) > 0, "no slot for packet %u", number);
	CHECK(!lent[slot->buf_idx], "the device has the buffer of slot %u", kring->rhead);
	card_fill(buffers[slot->buf_idx], number, len);
	slot->len = len;
	slot->flags = NS_REPORT | NS_BUF_CHANGED | NS_NO_LEARN;
	kring->rhead = nm_next(kring->rhead, nslots - 1);
	return (slot);
}

static u_int
buffer_of(uint64_t addr)
{
	u_int i;

	i = (addr - (uintptr_t)buffers) / BUF;
	CHECK(i > 0 && i < nitems(buffers) && addr == (uintptr_t)buffers[i], "no buffer");
	return (i);
}

/* The device takes the next packet, which is that one. */
static uint32_t
device_takes(int pair, u_int number, u_int len)
{
	static const u_char zeros[CARD_HDR];
	struct peer *pe = card_peer(pair, true);
	static u_char want[BUF];
	struct peer_chain pr;
	u_int buf;

	CHECK(pe->pe_ops->po_fetch(pe, &pr), "packet %u is not there", number);
	CHECK(pr.pr_nread == 2 && pr.pr_nwrite == 0 && pr.pr_segs[0].len == CARD_HDR &&
	    pr.pr_segs[1].len == len, "packet %u: %d segments", number, pr.pr_nread);
	CHECK(memcmp((void *)(uintptr_t)pr.pr_segs[0].addr, zeros, CARD_HDR) == 0, "its header");
	buf = buffer_of(pr.pr_segs[1].addr);
	CHECK(!lent[buf], "the device has it twice");
	lent[buf] = true;
	card_fill(want, number, len);
	CHECK(memcmp(buffers[buf], want, len) == 0, "packet %u is another", number);
	return (pr.pr_id);
}

/* The device has sent what is in the buffer of a slot. */
static void
device_sent(int pair, uint32_t id, u_int slot)
{

	lent[krings[pv_net_number(pair, true)].ring->slot[slot].buf_idx] = false;
	card_complete(pair, id);
}

static bool
always_more(struct pvq *q __unused, unsigned int after __unused)
{

	return (true);
}

/* A queue that says to have completions, and has none, is not waited for. */
static void
syncs_of_a_liar(int pair, bool tx)
{
	struct pvq *q = card_peer(pair, tx)->pe_pvq;
	const struct pvq_ops *before = q->q_ops;
	struct pvq_ops ops = *before;

	ops.qo_intr_enable = always_more;
	q->q_ops = &ops;
	CHECK(syncs(pair, tx) == 0, "not synced");
	q->q_ops = before;
}

static void
sends(const struct impl *impl, u_int size, u_int slots)
{
	struct netmap_kring *kring;
	struct netmap_slot *slot;
	uint32_t ids[MAX_SLOTS];
	struct pv_net_txq *txq;
	u_int i, pair, kicks, number;
	uint64_t bytes;

	netmap_begin(impl, size, slots, ALL);
	for (pair = 0; pair < 2; pair++) {
		kring = &krings[pv_net_number(pair, true)];
		txq = CARD_TXQ(pair);
		CHECK(irqs_of[pv_net_number(pair, true)] == 1 && room(pair) == slots - 1,
		    "%u slots to begin with", room(pair));
		/* Nothing. */
		kicks = listens(pair, true);
		CHECK(syncs(pair, true) == 0 && card_idle(pair) &&
		    card_peer(pair, true)->pe_kicks == kicks, "nothing is sent");
		/* A ring that is full, of frames of all lengths. */
		bytes = 0;
		for (i = 0; i < slots - 1; i++) {
			bytes += i == 0 ? 1 : BUF - i;
			(void)program_writes(pair, i, i == 0 ? 1 : BUF - i);
		}
		CHECK(syncs(pair, true) == 0 && kring->nr_hwcur == kring->rhead && room(pair) == 0,
		    "%u slots of a full ring", room(pair));
		CHECK(card_peer(pair, true)->pe_kicks == kicks + 1, "not notified");
		CHECK(txq->ptq_stats.packets == slots - 1 && txq->ptq_stats.bytes == bytes,
		    "the counters");
		for (i = 0; i < slots - 1; i++) {
			CHECK(kring->ring->slot[i].flags == NS_NO_LEARN, "flags 0x%x",
			    kring->ring->slot[i].flags);
			ids[i] = device_takes(pair, i, i == 0 ? 1 : BUF - i);
		}
		CHECK(card_idle(pair), "one more");
		/* An interrupt for half of them; all but the first one are done. */
		(void)interrupted(pair, true);
		for (i = 1; i < slots - 1; i++) {
			device_sent(pair, ids[i], i);
			CHECK(interrupted(pair, true) == (i == howmany(slots - 1, 2)),
			    "an interrupt for completion %u of %u", i, slots - 1);
		}
		card_intr(pair, true);
		CHECK(irqs_of[pv_net_number(pair, true)] == 2, "netmap was not called");
		CHECK(syncs(pair, true) == 0 && room(pair) == 0, "slots are given out of order");
		device_sent(pair, ids[0], 0);
		CHECK(syncs(pair, true) == 0 && room(pair) == slots - 1, "%u slots", room(pair));
		/* Around, a few at a time. */
		for (number = 0; number < 2 * slots; number += 2) {
			(void)program_writes(pair, number, 60);
			(void)program_writes(pair, number + 1, BUF);
			CHECK(syncs(pair, true) == 0 && room(pair) == slots - 3, "%u slots",
			    room(pair));
			i = (kring->rhead + slots - 2) % slots;
			device_sent(pair, device_takes(pair, number, 60), i);
			CHECK(syncs(pair, true) == 0 && room(pair) == slots - 2, "%u slots",
			    room(pair));
			/* Until the next sync there are no interrupts. */
			(void)interrupted(pair, true);
			card_intr(pair, true);
			device_sent(pair, device_takes(pair, number + 1, BUF), (i + 1) % slots);
			CHECK(!interrupted(pair, true), "an interrupt meanwhile");
			CHECK(syncs(pair, true) == 0 && room(pair) == slots - 1, "%u slots",
			    room(pair));
		}
		/* What is invalid is not sent, nor what is before it in the batch. */
		for (i = 0; i < 4; i++) {
			bytes = txq->ptq_stats.bytes;
			(void)program_writes(pair, 0, 60);
			slot = program_writes(pair, 1, 60);
			number = slot->buf_idx;
			if (i == 0)
				slot->len = 0;
			else if (i == 1)
				slot->len = BUF + 1;
			else
				slot->buf_idx = i == 2 ? 0 : nitems(buffers);
			reinits = 0;
			CHECK(adapter.nm_txsync(kring, 0) != 0 && reinits == 1, "it is not invalid");
			slot->buf_idx = number;
			ring_check(kring);
			CHECK(card_idle(pair) && room(pair) == slots - 1 &&
			    bytes == txq->ptq_stats.bytes, "it is sent");
		}
		(void)program_writes(pair, 7, 60);
		syncs_of_a_liar(pair, true);
		i = (kring->rhead + slots - 1) % slots;
		device_sent(pair, device_takes(pair, 7, 60), i);
		CHECK(syncs(pair, true) == 0 && room(pair) == slots - 1, "%u slots", room(pair));
	}
	netmap_end();
}

void
netmap_sends_in_order(const void *arg __unused)
{

	sends(INDIRECT, CARD_SIZE, CARD_SIZE);
	sends(FLAT, CARD_SIZE, CARD_SIZE / 2);
}

/*
 * ---- Receiving ------------------------------------------------------------
 */

/* The device takes the next buffer. */
static bool
device_fetches(int pair, struct peer_chain *pr)
{
	struct peer *pe = card_peer(pair, false);
	u_int buf;

	if (!pe->pe_ops->po_fetch(pe, pr))
		return (false);
	CHECK(pr->pr_nwrite == 2 && pr->pr_nread == 0 && pr->pr_segs[0].len == CARD_HDR &&
	    pr->pr_segs[1].len == BUF, "%d segments", pr->pr_nwrite);
	buf = buffer_of(pr->pr_segs[1].addr);
	CHECK(!lent[buf], "the device has buffer %u twice", buf);
	lent[buf] = true;
	return (true);
}

/* The device gives a frame in a buffer. */
static void
device_gives(int pair, const struct peer_chain *pr, u_int number, u_int len,
    const struct pv_net_offload *offload)
{
	struct peer *pe = card_peer(pair, false);
	struct pv_net_offload o = { .po_hdr_len = 1 };

	if (offload != NULL)
		o = *offload;
	memcpy((void *)(uintptr_t)pr->pr_segs[0].addr, &o, CARD_HDR);
	card_fill((void *)(uintptr_t)pr->pr_segs[1].addr, number, len);
	lent[buffer_of(pr->pr_segs[1].addr)] = false;
	pe->pe_ops->po_complete(pe, pr->pr_id, CARD_HDR + len);
	pe->pe_ops->po_publish(pe);
}

/* Frames that the program has not read yet. */
static u_int
unread(int pair)
{
	struct netmap_kring *kring = &krings[pv_net_number(pair, false)];

	return ((kring->nr_hwtail + nslots - kring->rhead) % nslots);
}

/* The program's next frame. */
static const u_char *
program_reads(int pair, u_int len)
{
	struct netmap_kring *kring = &krings[pv_net_number(pair, false)];
	struct netmap_slot *slot = &kring->ring->slot[kring->rhead];

	CHECK(unread(pair) > 0, "no frame");
	CHECK(slot->len == len && slot->flags == 0, "a frame of %u bytes, flags 0x%x", slot->len,
	    slot->flags);
	CHECK(!lent[slot->buf_idx], "the device has it");
	card.ca_nup++;
	card.ca_up_bytes += len;
	slot->len = 0;
	slot->flags = NS_BUF_CHANGED | NS_NO_LEARN;
	kring->rhead = nm_next(kring->rhead, nslots - 1);
	return (buffers[slot->buf_idx]);
}

static void
program_reads_frame(int pair, u_int number, u_int len)
{
	static u_char want[BUF];

	card_fill(want, number, len);
	CHECK(memcmp(program_reads(pair, len), want, len) == 0, "frame %u is another", number);
}

/* Frames come in any buffers that the device has, and are read some time later. */
static void
receives(const struct impl *impl, u_int size, u_int slots)
{
	struct peer_chain held[MAX_SLOTS];
	struct netmap_kring *kring;
	u_int i, n, pair, kicks, given, got, queue;
	uint32_t random = 1;

	netmap_begin(impl, size, slots, ALL);
	for (pair = 0; pair < 2; pair++) {
		queue = pv_net_number(pair, false);
		kring = &krings[queue];
		for (n = 0; n < slots - 1; n++) {
			CHECK(device_fetches(pair, &held[n]), "%u buffers", n);
			CHECK(held[n].pr_segs[1].addr ==
			    (uintptr_t)buffers[kring->ring->slot[n].buf_idx], "another slot's");
		}
		CHECK(!device_fetches(pair, &held[n]), "the slot that stays unused");
		/* An interrupt for the first one, and then none until the next sync. */
		kring->nr_kflags = ~0u;
		(void)interrupted(pair, false);
		n = slots - 2;
		device_gives(pair, &held[n], 0, ETHER_HDR_LEN, NULL);
		CHECK(interrupted(pair, false), "no interrupt");
		card_intr(pair, false);
		CHECK(irqs_of[queue] == 1, "netmap was not called");
		device_gives(pair, &held[--n], 1, BUF, NULL);
		CHECK(!interrupted(pair, false), "an interrupt meanwhile");
		CHECK(syncs(pair, false) == 0 && unread(pair) == 2 &&
		    kring->nr_kflags == ~(uint32_t)NKR_PENDINTR, "%u frames", unread(pair));
		program_reads_frame(pair, 0, ETHER_HDR_LEN);
		program_reads_frame(pair, 1, BUF);
		/* That sync has requested the next one. */
		(void)interrupted(pair, false);
		device_gives(pair, &held[--n], 2, 62, NULL);
		CHECK(interrupted(pair, false), "no interrupt after a sync");
		kicks = listens(pair, false);
		for (given = 3, got = 2; got < 20 * slots; ) {
			/* The device does so with as many as it likes. */
			for (i = peer_random(&random) % slots; i > 0 && n > 0; i--) {
				struct peer_chain *pr = &held[peer_random(&random) % n];

				device_gives(pair, pr, given, 60 + given % 1500, NULL);
				*pr = held[--n];
				given++;
			}
			CHECK(syncs(pair, false) == 0 && unread(pair) == given - got,
			    "%u frames of %u", unread(pair), given - got);
			CHECK(kring->nr_hwcur == kring->rhead, "slots are not released");
			for (i = peer_random(&random) % slots; i > 0 && unread(pair) > 0; i--) {
				program_reads_frame(pair, got, 60 + got % 1500);
				got++;
			}
			while (device_fetches(pair, &held[n]))
				n++;
			CHECK(n + given - got <= slots - 1, "%u slots are with the device", n);
		}
		CHECK(card_peer(pair, false)->pe_kicks > kicks, "not notified of buffers");
		CHECK(syncs(pair, false) == 0 && unread(pair) == given - got, "more");
		while (device_fetches(pair, &held[n]))
			n++;
		while (unread(pair) > 0) {
			program_reads_frame(pair, got, 60 + got % 1500);
			got++;
		}
		kicks = listens(pair, false);
		CHECK(syncs(pair, false) == 0, "not synced");
		while (device_fetches(pair, &held[n]))
			n++;
		CHECK(n == slots - 1, "%u buffers of %u", n, slots - 1);
		/* A batch at a time, and what is left. */
		for (i = 0; i < n; i++)
			device_gives(pair, &held[i], i, 100, NULL);
		(void)listens(pair, false);
		CHECK(syncs(pair, false) == 0 && unread(pair) == n, "%u frames of %u", unread(pair), n);
		for (i = 0; i < n; i++)
			program_reads_frame(pair, i, 100);
		kicks = listens(pair, false);
		CHECK(syncs(pair, false) == 0 && card_peer(pair, false)->pe_kicks > kicks,
		    "not notified of a batch");
		for (i = 0; i < n; i++)
			CHECK(device_fetches(pair, &held[i]), "%u buffers of %u", i, n);
		/* A slot that is invalid, or a place where there is none. */
		for (i = 0; i < 3; i++)
			device_gives(pair, &held[i], i, 100, NULL);
		CHECK(syncs(pair, false) == 0, "not synced");
		for (i = 0; i < 3; i++)
			program_reads_frame(pair, i, 100);
		reinits = 0;
		got = kring->rhead;
		kring->rhead = nslots;
		CHECK(adapter.nm_rxsync(kring, 0) != 0 && reinits == 1, "no such slot");
		CHECK(!device_fetches(pair, &held[0]), "a slot is released");
		kring->rhead = got;
		/* The last of the slots that are released is the one before. */
		i = (got + nslots - 2) % nslots;
		queue = kring->ring->slot[i].buf_idx;
		kring->ring->slot[i].buf_idx = 0;
		CHECK(adapter.nm_rxsync(kring, 0) != 0 && reinits == 2, "it is valid");
		CHECK(kring->nr_hwcur == (got + nslots - 1) % nslots, "%u slots are released",
		    kring->nr_hwcur);
		kring->ring->slot[i].buf_idx = queue;
		CHECK(device_fetches(pair, &held[0]) && device_fetches(pair, &held[1]) &&
		    !device_fetches(pair, &held[2]), "the others are not released");
		kring->rhead = got;
		CHECK(syncs(pair, false) == 0 && device_fetches(pair, &held[2]), "not released");
		syncs_of_a_liar(pair, false);
	}
	netmap_end();
}

void
netmap_receives_in_any_order(const void *arg __unused)
{

	receives(INDIRECT, CARD_SIZE, CARD_SIZE);
	receives(FLAT, CARD_SIZE, CARD_SIZE / 2);
	receives(INDIRECT, 64, 64);
}

/* The sum of all 16-bit words, with the one that is stored among them. */
static u_int
sum_of(const u_char *at, u_int len)
{
	u_int i, sum = 0;

	for (i = 0; i < len; i++)
		sum += i % 2 == 0 ? at[i] << 8 : at[i];
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return (sum);
}

void
netmap_drops_what_is_no_frame(const void *arg __unused)
{
	static const struct pv_net_offload more = { .po_hdr_len = 2 };
	static const struct pv_net_offload gso = { .po_hdr_len = 1, .po_gso_type = PV_NET_GSO_TCP4,
	    .po_gso_size = 100 };
	static const struct pv_net_offload partial = { .po_hdr_len = 1,
	    .po_flags = PV_NET_NEEDS_CSUM, .po_csum_start = 34, .po_csum_offset = 16 };
	static const struct pv_net_offload beyond = { .po_hdr_len = 1,
	    .po_flags = PV_NET_NEEDS_CSUM, .po_csum_start = 34, .po_csum_offset = 100 };
	const struct pv_net_rxstats *stats;
	struct peer_chain pr;
	const u_char *frame;
	u_char want[100];
	u_int i, sum;

	netmap_begin(INDIRECT, CARD_SIZE, CARD_SIZE, ALL);
	stats = &CARD_RXQ(1)->prq_stats;
	for (i = 0; i < 3 * CARD_SIZE; i++) {
		CHECK(device_fetches(1, &pr), "no buffer");
		switch (i % 8) {
		case 0:
			device_gives(1, &pr, i, ETHER_HDR_LEN - 1, NULL);
			break;
		case 1:
			device_gives(1, &pr, i, 1, NULL);
			break;
		case 2:
			device_gives(1, &pr, i, 100, &more);
			CHECK(device_fetches(1, &pr), "no buffer");
			device_gives(1, &pr, i, 100, NULL);
			break;
		case 3:
			device_gives(1, &pr, i, 200, &gso);
			break;
		case 4:
			device_gives(1, &pr, i, 100, &beyond);
			break;
		case 5:
			device_gives(1, &pr, i, 100, &partial);
			break;
		default:
			lies = i % 8 - 5;
			device_gives(1, &pr, i, 100, NULL);
		}
		CHECK(syncs(1, false) == 0 && unread(1) == (i % 8 == 5), "%u frames of kind %u",
		    unread(1), i % 8);
		if (i % 8 == 5) {
			frame = program_reads(1, 100);
			card_fill(want, i, 100);
			sum = sum_of(frame + 34, 66) + (want[50] << 8 | want[51]);
			CHECK((sum & 0xffff) + (sum >> 16) == 0xffff, "its checksum");
			memcpy(want + 50, frame + 50, 2);
			CHECK(memcmp(frame, want, 100) == 0, "more than its checksum");
		}
	}
	CHECK(stats->runts == 6 && stats->bad_header == 6 && stats->too_long == 18 &&
	    stats->bad_offload == 6 && stats->csum_partial == 6 && stats->short_buf == 6,
	    "%ju runts, %ju headers, %ju long, %ju offloads, %ju partial, %ju short",
	    (uintmax_t)stats->runts, (uintmax_t)stats->bad_header, (uintmax_t)stats->too_long,
	    (uintmax_t)stats->bad_offload, (uintmax_t)stats->csum_partial,
	    (uintmax_t)stats->short_buf);
	netmap_end();
}

/*
 * ---- Starting and stopping ------------------------------------------------
 */

static bool
attaches(void)
{
	bool port;

	pv_net_netmap_attach(card.ca_pn);
	port = adapter.ifp != NULL;
	CHECK((CARD_RXQ(0)->prq_netmap != NULL) == port && (CARD_TXQ(0)->ptq_netmap != NULL) == port &&
	    (CARD_RXQ(1)->prq_netmap != NULL) == port && (CARD_TXQ(1)->ptq_netmap != NULL) == port,
	    "some queues have slots");
	if (port)
		pv_net_netmap_detach(card.ca_pn);
	return (port);
}

/* What a card has to be for its chains to be slots. */
void
netmap_attaches_where_slots_fit(const void *arg __unused)
{
	struct pv_net_params *params;
	struct nm_config_info info;
	struct pvq *q;
	u_int i;

	netmap_new(INDIRECT, CARD_SIZE, CARD_SIZE, 2);
	params = &card.ca_pn->pn_params;
	memset(&info, 0xff, sizeof(info));
	CHECK(adapter.nm_config(&adapter, &info) == 0 && info.num_tx_rings == 2 &&
	    info.num_rx_rings == 2 && info.num_tx_descs == CARD_SIZE &&
	    info.num_rx_descs == CARD_SIZE && info.rx_buf_maxsize == PV_NET_MAX_FRAME, "the port");
	pv_net_netmap_detach(card.ca_pn);
	CHECK(attaches(), "not again");
	refused = true;
	CHECK(!attaches(), "in spite of netmap");
	refused = false;
	params->pnp_phys = false;
	CHECK(!attaches(), "memory that has to be loaded");
	params->pnp_phys = true;
	card.ca_pn->pn_staged = true;
	CHECK(!attaches(), "pages of a back end");
	card.ca_pn->pn_staged = false;
	for (i = 0; i < 4; i++) {
		params->pnp_hdrlen = (const u_int [4]){ 0, 1, 32, 33 }[i];
		CHECK(attaches() == (i == 1 || i == 2), "a header of %u bytes", params->pnp_hdrlen);
	}
	params->pnp_hdrlen = CARD_HDR;
	for (i = 0; i < QUEUES; i++) {
		uint16_t segs, flat, size;

		q = card.ca_peers[i]->pe_pvq;
		segs = q->q_max_segs;
		flat = q->q_flat_segs;
		size = q->q_size;
		q->q_max_segs = 1;
		CHECK(!attaches(), "queue %u with one segment", i);
		q->q_max_segs = 2;
		CHECK(attaches(), "queue %u with two segments", i);
		q->q_max_segs = segs;
		/* Without a table, a chain of two takes two. */
		q->q_flat_segs = 1;
		q->q_size = 3;
		CHECK(!attaches(), "queue %u with one slot", i);
		q->q_flat_segs = flat;
		q->q_size = size;
		nslots = CARD_SIZE;
	}
	/* Its rings are as those of the first pair. */
	for (i = 2; i < QUEUES; i++)
		card.ca_peers[i]->pe_pvq->q_size = CARD_SIZE / 2;
	CHECK(attaches(), "pairs of two sizes");
	for (i = 2; i < QUEUES; i++)
		card.ca_peers[i]->pe_pvq->q_size = CARD_SIZE;
	pv_net_netmap_attach(card.ca_pn);
	memset(&info, 0xff, sizeof(info));
	card.ca_peers[2]->pe_pvq->q_size = card.ca_peers[3]->pe_pvq->q_size = CARD_SIZE / 2;
	CHECK(adapter.nm_config(&adapter, &info) == 0 && info.num_tx_descs == CARD_SIZE &&
	    info.num_rx_descs == CARD_SIZE, "the port");
	card.ca_peers[2]->pe_pvq->q_size = card.ca_peers[3]->pe_pvq->q_size = CARD_SIZE;
	netmap_end();
}

/* Packets have a pair, both ways. */
static void
packets_of(int pair)
{
	int error;

	error = card_send(pair, 1, 300);
	CHECK(error == 0, "error %d", error);
	card_settle();
	card_complete(pair, card_takes(pair, 1, 300));
	CHECK(card_receive(pair, 2, 500, 1), "no buffer");
	card_intr(pair, false);
	card_settle();
	card_up(2, 500);
}

/* The program has the slots of a pair, both ways. */
static void
slots_of(int pair)
{
	struct netmap_kring *kring = &krings[pv_net_number(pair, true)];
	struct peer_chain pr;
	u_int at = kring->rhead;

	(void)program_writes(pair, 1, 300);
	CHECK(syncs(pair, true) == 0, "not synced");
	device_sent(pair, device_takes(pair, 1, 300), at);
	CHECK(syncs(pair, true) == 0 && room(pair) == nslots - 1, "%u slots", room(pair));
	CHECK(device_fetches(pair, &pr), "no buffer");
	device_gives(pair, &pr, 2, 500, NULL);
	CHECK(syncs(pair, false) == 0, "not synced");
	program_reads_frame(pair, 2, 500);
	CHECK(syncs(pair, false) == 0, "not synced");
}

/* A closed ring is freed, and a new one begins with all slots. */
static void
netmap_closes(u_int queues)
{

	card_forget();
	CHECK(netmap_opens(queues, false) == 0, "not closed");
	CHECK(strcmp(card.ca_log, "stop start pairs=2 ") == 0, "\"%s\"", card.ca_log);
	rings_begin(queues);
}

void
netmap_rings_come_and_go(const void *arg __unused)
{
	struct pv_dev *pvd;
	struct peer_chain pr;
	u_int i;

	netmap_begin(INDIRECT, CARD_SIZE, CARD_SIZE, BIT(1, false) | BIT(1, true));
	pvd = pv_net_dev(card.ca_pn);
	CHECK(strcmp(card.ca_log, "stop start pairs=2 ") == 0, "\"%s\"", card.ca_log);
	CHECK(card_use(1) == EBUSY, "a program has the pair");
	pv_dev_lock(pvd);
	CHECK(pv_net_resize(card.ca_pn, true, CARD_SIZE / 2) == EBUSY, "a program has the ring");
	pv_dev_unlock(pvd);
	packets_of(0);
	slots_of(1);
	netmap_closes(opened);
	packets_of(0);
	packets_of(1);
	/* One of two ways, and then the other one as well. */
	for (i = 0; i < 2; i++) {
		CHECK(netmap_opens(BIT(0, i == 0), true) == 0, "not opened");
		packets_of(1);
		interrupts();
		CHECK(netmap_opens(BIT(0, i != 0), true) == 0, "not opened");
		slots_of(0);
		slots_of(0);
		/* What is in flight is the program's again. */
		(void)program_writes(0, 1, 100);
		CHECK(syncs(0, true) == 0 && room(0) == CARD_SIZE - 2, "not sent");
		netmap_closes(BIT(0, false));
		CHECK(room(0) == CARD_SIZE - 1 && card_idle(0), "%u slots", room(0));
		CHECK(native && card.ca_pn->pn_netmap, "there is another ring");
		netmap_closes(BIT(0, true));
		packets_of(0);
	}
	/* While the device is suspended rings go, but none comes. */
	CHECK(netmap_opens(ALL, true) == 0 && pv_dev_freeze(pvd) == 0, "not suspended");
	card_forget();
	CHECK(netmap_opens(ALL, true) == ENXIO, "it is suspended");
	CHECK(syncs(0, true) == 0 && syncs(0, false) == 0, "a program sleeps meanwhile");
	CHECK(netmap_opens(BIT(0, false) | BIT(0, true), false) == 0 && card.ca_log[0] == '\0',
	    "\"%s\"", card.ca_log);
	CHECK(pv_net_thaw(card.ca_pn) == 0, "not resumed");
	card_settle();
	packets_of(0);
	rings_begin(BIT(0, false) | BIT(0, true));
	netmap_closes(opened);
	/* An interface that is down stays so; its rings run when it is up. */
	card_up_or_down(false);
	card_forget();
	CHECK(netmap_opens(ALL, true) == 0 && card.ca_log[0] == '\0', "\"%s\"", card.ca_log);
	CHECK(syncs(1, true) == 0 && syncs(1, false) == 0, "not synced");
	card_up_or_down(true);
	slots_of(1);
	slots_of(0);
	/* The ring stands as it was. */
	CHECK(device_fetches(1, &pr), "no buffer");
	card_up_or_down(false);
	card_up_or_down(true);
	slots_of(1);
	slots_of(0);
	/* Rings of other sizes than those that netmap knows. */
	netmap_closes(opened);
	for (i = 0; i < 2 * QUEUES; i++) {
		struct pvq *q = card.ca_peers[i / 2]->pe_pvq;

		q->q_size = i % 2 == 0 ? 2 * CARD_SIZE : CARD_SIZE - 1;
		card_forget();
		CHECK(netmap_opens(ALL, true) == EBUSY && opened == 0 && card.ca_log[0] == '\0',
		    "queue %u of another size", i / 2);
		q->q_size = CARD_SIZE;
	}
	packets_of(0);
	CHECK(netmap_opens(ALL, true) == 0, "not opened");
	slots_of(0);
	slots_of(1);
	/* A start that fails. */
	card.ca_restart_error = EIO;
	kpi_quiet = true;
	CHECK(netmap_opens(ALL, false) == ENXIO && opened == 0, "no error");
	card.ca_restart_error = 0;
	netmap_end();
	kpi_quiet = false;
}

/* Of a frame whose beginning came before a stop, the rest does not come after it. */
void
netmap_half_a_frame_is_forgotten(const void *arg __unused)
{
	static const struct pv_net_offload more = { .po_hdr_len = 2 };
	struct peer_chain pr;

	netmap_begin(INDIRECT, CARD_SIZE, CARD_SIZE, ALL);
	CHECK(device_fetches(1, &pr), "no buffer");
	device_gives(1, &pr, 1, 100, &more);
	CHECK(syncs(1, false) == 0 && unread(1) == 0, "half a frame");
	card_up_or_down(false);
	card_up_or_down(true);
	slots_of(1);
	netmap_end();
}

static int (*restart)(void *softc);
static int pairs_error;

static int
restarts_with_both_pairs(void *softc)
{
	int error = restart(softc);

	pairs_error = pv_net_set_pairs(card.ca_pn, 2);
	return (error);
}

static void
device_has_both_pairs(void)
{

	CHECK(pv_dev_freeze(pv_net_dev(card.ca_pn)) == 0 && pv_net_thaw(card.ca_pn) == 0,
	    "not resumed");
	card_settle();
}

/* A pair that comes when the card is a port already has slots as the others, or does not come. */
void
netmap_pairs_come_later(const void *arg __unused)
{

	netmap_new(INDIRECT, CARD_SIZE, CARD_SIZE, 1);
	restart = card.ca_ops.pno_restart;
	card.ca_ops.pno_restart = restarts_with_both_pairs;
	card.ca_peers[2]->pe_pvq->q_max_segs = 1;
	device_has_both_pairs();
	CHECK(pairs_error == ENXIO && card.ca_pn->pn_params.pnp_npairs == 1 &&
	    CARD_RXQ(1)->prq_netmap == NULL && CARD_TXQ(1)->ptq_ring == NULL, "it does not fit");
	packets_of(0);
	card.ca_peers[2]->pe_pvq->q_max_segs = card.ca_peers[0]->pe_pvq->q_max_segs;
	device_has_both_pairs();
	CHECK(pairs_error == 0 && card.ca_pn->pn_pairs == 2, "%u pairs", card.ca_pn->pn_pairs);
	packets_of(1);
	kpi_epoch_waits = waits_for_sections;
	CHECK(netmap_opens(ALL, true) == 0, "not opened");
	slots_of(0);
	slots_of(1);
	netmap_end();
}

/* Only what has not completed is stuck, whether a program looks or not. */
void
netmap_watchdog(const void *arg __unused)
{
	u_int i;

	netmap_begin(INDIRECT, CARD_SIZE, CARD_SIZE, ALL);
	card_forget();
	for (i = 0; i < 3; i++)
		(void)program_writes(1, i, 100);
	CHECK(syncs(1, true) == 0, "not sent");
	device_sent(1, device_takes(1, 0, 100), 0);
	card_seconds(20);
	CHECK(card.ca_log[0] == '\0', "\"%s\"", card.ca_log);
	CHECK(syncs(1, true) == 0 && room(1) == CARD_SIZE - 3, "%u slots", room(1));
	irqs_of[pv_net_number(1, true)] = 0;
	kpi_quiet = true;
	card_seconds(20);
	kpi_quiet = false;
	CHECK(strcmp(card.ca_log, "stop start pairs=2 ") == 0, "\"%s\"", card.ca_log);
	/* Those are not sent again, and the program knows that it has the slots. */
	CHECK(card_idle(1) && room(1) == CARD_SIZE - 1 && irqs_of[pv_net_number(1, true)] == 1,
	    "%u slots", room(1));
	netmap_end();
}

void
netmap_detached_under_a_handler(const void *arg __unused)
{
	u_int i, before;

	/* A program has all queues, or one. */
	for (i = 0; i < 2 * QUEUES; i++) {
		netmap_begin(INDIRECT, CARD_SIZE, CARD_SIZE, i < QUEUES ? ALL : 1u << i % QUEUES);
		before = irqs;
		preempted = detaches;
		card_intr(pv_net_pair(i % QUEUES), pv_net_is_tx(i % QUEUES));
		CHECK(irqs == before + 1 && preempted == NULL, "netmap was not called");
		CHECK(depth == 0, "the handler is still in its section");
		/* The other thread goes on, and netmap frees its rings. */
		opened = 0;
		interrupts();
		CHECK(irqs == before + 1, "netmap was called later");
		netmap_end();
	}
}
