/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A card of pv_net whose device is a test (pv_net_card.h).
 */

#include "pv_net_card.h"

#include <sys/pcpu.h>
#include <sys/proc.h>

struct card card;
bool card_has_fast;
bool card_is_legacy;
bool card_is_staged;
struct thread card_thread;
u_char card_tapped[FRAME_MAX];

/* The interface. */

void *
if_getsoftc(if_t ifp)
{

	CHECK(ifp == &eth, "another interface");
	return (card.ca_pn);
}

bool
if_altq_is_enabled(if_t ifp __unused)
{

	return (card.ca_altq);
}

struct mbuf *
if_dequeue(if_t ifp)
{
	struct mbuf *m;

	CHECK(card.ca_pn->pn_shaped, "nobody has queued a packet for altq(4)");
	IF_DEQUEUE(&ifp->if_snd, m);
	return (m);
}

void
if_qflush(if_t ifp __unused)
{
}

int
if_setdrvflagbits(if_t ifp, int set, int clear)
{

	CHECK(ifp == &eth, "another interface");
	card.ca_drv_flags = (card.ca_drv_flags & ~clear) | set;
	return (0);
}

void
if_link_state_change(if_t ifp __unused, int state)
{

	CHECK(state == (card.ca_no_link ? LINK_STATE_DOWN : LINK_STATE_UP), "another state, %d", state);
	card.ca_links += state == LINK_STATE_UP;
}

void
if_free(if_t ifp __unused)
{
}

void
if_notifymtu(if_t ifp)
{

	CHECK(ifp == &eth && card.ca_mtu != 0, "another interface");
	card.ca_mtus++;
}

void
if_vlancap(if_t ifp)
{

	CHECK(ifp == &eth, "another interface, or none");
	card.ca_vlancaps++;
}

void
ether_bpf_mtap_if(if_t ifp, struct mbuf *m)
{

	CHECK(ifp == &eth && m->m_pkthdr.len == (int)m_length(m, NULL), "%d bytes", m->m_pkthdr.len);
	card.ca_tapped = flat(m, card_tapped);
	card.ca_tap_marks = m->m_pkthdr.csum_flags;
	card.ca_taps++;
}

struct mbuf *
ether_vlanencap_proto(struct mbuf *m, uint16_t tag __unused, uint16_t proto __unused)
{

	if (card.ca_no_tags) {
		m_freem(m);
		return (NULL);
	}
	card.ca_tags++;
	return (m);
}

void
if_input(if_t ifp __unused, struct mbuf *list)
{
	struct mbuf *m;

	CHECK(kpi_mutexes == 0, "a lock is held upwards");
	*card.ca_up_tail = list;
	for (m = list; m != NULL; m = m->m_nextpkt) {
		CHECK((m->m_flags & M_PKTHDR) != 0 && m->m_pkthdr.rcvif == &eth, "no packet");
		CHECK(m->m_len >= ETHER_HDR_LEN && m->m_pkthdr.len == (int)m_length(m, NULL),
		    "%d bytes, %d of them in front", m->m_pkthdr.len, m->m_len);
		CHECK((M_HASHTYPE_GET(m) != M_HASHTYPE_NONE) == (card.ca_pn->pn_params.pnp_npairs > 1),
		    "its flow");
		card.ca_up_bytes += m->m_pkthdr.len;
		card.ca_up_mcasts += ETHER_IS_MULTICAST(mtod(m, const u_char *));
		card.ca_nup++;
		card.ca_up_tail = &m->m_nextpkt;
	}
	if (card.ca_input != NULL)
		card.ca_input();
}

static struct mbuf *card_merged, **card_merged_tail = &card_merged;

int
tcp_lro_rx(struct lro_ctrl *lc __unused, struct mbuf *m, uint32_t csum __unused)
{

	if (!card.ca_merges)
		return (ENOENT);
	*card_merged_tail = m;
	card_merged_tail = &m->m_nextpkt;
	return (0);
}

void
tcp_lro_flush_all(struct lro_ctrl *lc __unused)
{
	struct mbuf *list = card_merged;

	card_merged = NULL;
	card_merged_tail = &card_merged;
	if (list != NULL)
		if_input(&eth, list);
}

/* What pv_net has above and beside that: no settings, no programs, no pages. */

static void
card_link_task(void *arg, int pending __unused)
{
	struct pv_net *net = arg;

	CHECK(net == card.ca_pn, "another card");
	net->pn_moved = false;
	card.ca_link_tasks++;
}

static void
card_set(char letter)
{
	size_t n = strlen(card.ca_settings);

	if (n + 1 < sizeof(card.ca_settings))
		card.ca_settings[n] = letter;
}

int
pv_net_if_create(struct pv_net *net)
{

	net->pn_ifp = &eth;
	eth.if_softc = net;
	TASK_INIT(&net->pn_link_task, 0, card_link_task, net);
	pv_net_rx_layout(net);
	return (0);
}

void
pv_net_if_show(struct pv_net *net)
{

	pv_net_stack_find(net);
}

void
pv_net_if_destroy(struct pv_net *net __unused)
{
}

void
pv_net_if_capabilities(struct pv_net *net)
{

	pv_dev_assert(&net->pn_pvdev);
	card.ca_caps++;
}

int
pv_net_set_mtu(struct pv_net *net __unused, int mtu)
{

	card.ca_mtu = mtu;
	return (0);
}

void
pv_net_link_change(struct pv_net *net)
{

	CHECK(net == card.ca_pn, "another card");
	card.ca_looks++;
}

void
pv_net_announce_addresses(struct pv_net *net __unused)
{
}

/* One stands for those of a pair. */
void
pv_net_sysctl_queues(struct pv_net *net)
{
	int i;

	CHECK(kpi_sysctls == 0, "queues have them twice");
	for (i = 0; i < net->pn_params.pnp_npairs; i++)
		(void)SYSCTL_ADD_NODE(&net->pn_queue_sysctl, NULL, OID_AUTO, "queues", CTLFLAG_RD, 0,
		    "Both queues");
}

void
pv_net_sysctl_attach(struct pv_net *net)
{

	pv_net_sysctl_queues(net);
}

void
pv_net_filter_init(struct pv_net *net __unused)
{
}

int
pv_net_set_filter(struct pv_net *net)
{

	pv_dev_assert(&net->pn_pvdev);
	card_set('f');
	return (0);
}

void
pv_net_vlan_sync(void *arg)
{
	struct pv_net *net = arg;

	pv_dev_assert(&net->pn_pvdev);
	card_set('v');
}

/* The device. */

struct peer *
card_peer(int pair, bool tx)
{

	return (card.ca_peers[pv_net_number(pair, tx)]);
}

static void
card_said(const char *fmt, u_int n)
{
	size_t at = strlen(card.ca_log);

	snprintf(card.ca_log + at, sizeof(card.ca_log) - at, fmt, n);
}

void
card_forget(void)
{

	card.ca_log[0] = '\0';
	memset(card.ca_settings, 0, sizeof(card.ca_settings));
}

/* The device is about to stop a queue: nobody uses it, and nobody will. */
static void
card_check_stopped(int pair, bool tx)
{
	struct pv_net_rxq *rxq = CARD_RXQ(pair);
	struct pv_net_txq *txq = CARD_TXQ(pair);

	if (tx)
		CHECK(txq->ptq_stopped && !callout_pending(&txq->ptq_timer) &&
		    !kpi_task_is_queued(&txq->ptq_task), "transmit queue %d is in use", pair);
	else
		CHECK(rxq->prq_stopped && rxq->prq_busy == NULL && !callout_pending(&rxq->prq_refill) &&
		    !kpi_task_is_queued(&rxq->prq_task), "receive queue %d is in use", pair);
}

static int
card_stop(void *softc)
{
	u_int i;


	CHECK(softc == &card && card.ca_started, "stopped twice");
	pv_dev_assert(&card.ca_pn->pn_pvdev);
	for (i = 0; i < CARD_QUEUES && card.ca_peers[i] != NULL; i++)
		card_check_stopped(pv_net_pair(i), pv_net_is_tx(i));
	card_said("stop ", 0);
	if (card.ca_stop_error != 0)
		return (card.ca_stop_error);
	kpi_dma_arrives();
	card.ca_started = false;
	memset(card.ca_runs, 0, sizeof(card.ca_runs));
	return (0);
}

static void
card_start_queue(u_int queue)
{
	struct peer *pe = card.ca_peers[queue];

	CHECK(!card.ca_runs[queue], "queue %u is started twice", queue);
	CHECK(pvq_reinit(pe->pe_pvq) == 0, "queue %u is not empty", queue);
	card.ca_impl->im_reset(pe);
	card.ca_runs[queue] = true;
}

static int
card_restart(void *softc __unused)
{
	u_int i;

	CHECK(!card.ca_started, "started twice");
	card_said("start ", 0);
	if (card.ca_restart_error != 0)
		return (card.ca_restart_error);
	for (i = 0; i < CARD_QUEUES && card.ca_peers[i] != NULL; i++)
		card_start_queue(i);
	card.ca_pairs = 1;
	card.ca_started = true;
	memset(card.ca_left, 0, sizeof(card.ca_left));
	return (0);
}

static int
card_stop_queue(void *softc __unused, int pair, bool tx)
{
	u_int queue = pv_net_number(pair, tx);

	card_said("stop%u ", queue);
	CHECK(card.ca_started && card.ca_runs[queue], "queue %u is stopped twice", queue);
	card_check_stopped(pair, tx);
	kpi_dma_arrives();
	if (card.ca_stop_queue_error == 0)
		card.ca_runs[queue] = false;
	return (card.ca_stop_queue_error);
}

static int
card_restart_queue(void *softc __unused, int pair, bool tx)
{
	u_int queue = pv_net_number(pair, tx);

	card_said("start%u ", queue);
	if (card.ca_restart_queue_error == 0)
		card_start_queue(queue);
	return (card.ca_restart_queue_error);
}

static int
card_set_size(void *softc __unused, int pair, bool tx, u_int size)
{

	card_said("size%u=", pv_net_number(pair, tx));
	card_said("%u ", size);
	return (card.ca_size_error);
}

static int
card_set_pairs(void *softc __unused, int n)
{

	card_said("pairs=%u ", n);
	if (card.ca_pairs_error == 0)
		card.ca_pairs = n;
	return (card.ca_pairs_error);
}

static bool
card_link_up(void *softc __unused)
{

	return (!card.ca_no_link);
}

static void
card_set_coalescing(void *softc __unused)
{

	pv_dev_assert(&card.ca_pn->pn_pvdev);
	card_set('c');
}

static int
card_set_lladdr(void *softc __unused, const uint8_t *addr)
{

	CHECK(memcmp(addr, lladdr, ETHER_ADDR_LEN) == 0, "another address");
	card_said("address ", 0);
	card_set('a');
	return (card.ca_lladdr_error);
}

static void
card_encap(void *softc __unused, int pair, struct pv_net_txhdr *hdrs, int n)
{
	int i;

	mtx_assert(&card.ca_pn->pn_txqs[pair].ptq_mtx, MA_OWNED);
	for (i = 0; i < n; i++) {
		card.ca_sent = hdrs[i].pth_offload;
		if (card.ca_params.pnp_hdrlen != 0)
			memcpy(hdrs[i].pth_hdr, &hdrs[i].pth_offload, CARD_HDR);
	}
}

static void
card_decap(void *softc __unused, int pair, const struct pvq_done *done, struct pv_net_rxhdr *hdrs,
    int n)
{
	u_int *left = &card.ca_left[pair];
	uint32_t len;
	int i;

	mtx_assert(&card.ca_pn->pn_rxqs[pair].prq_mtx, MA_OWNED);
	card.ca_general += n;
	for (i = 0; i < n; i++) {
		len = card.ca_impl->im_reported(&done[i]);
		if (*left == 0) {
			memcpy(&hdrs[i].prh_offload, hdrs[i].prh_hdr, CARD_HDR);
			*left = hdrs[i].prh_offload.po_hdr_len;
			hdrs[i].prh_skip = CARD_HDR;
			len -= CARD_HDR;
		}
		hdrs[i].prh_len = len;
		hdrs[i].prh_more = --*left > 0;
		if (len == 1)
			hdrs[i].prh_error = PV_NET_RX_BADHDR;
	}
}

static void
card_encap_plain(void *softc __unused, void *hdr, u_int start, u_int offset)
{
	struct pv_net_offload o = { .po_flags = start != 0 ? PV_NET_NEEDS_CSUM : 0,
	    .po_csum_start = start, .po_csum_offset = start != 0 ? offset : 0 };

	card.ca_plain++;
	memcpy(hdr, &o, CARD_HDR);
}

/* Only what is a frame in one buffer, and no error of this device. */
static struct pv_net_plain
card_decap_plain(void *softc __unused, int pair, const struct pvq_done *done, const void *hdr)
{
	uint32_t len = card.ca_impl->im_reported(done);
	struct pv_net_offload o;

	mtx_assert(&card.ca_pn->pn_rxqs[pair].prq_mtx, MA_OWNED);
	memcpy(&o, hdr, CARD_HDR);
	if (card.ca_left[pair] != 0 || o.po_hdr_len != 1 || o.po_gso_type != PV_NET_GSO_NONE ||
	    len <= CARD_HDR + 1 || len > UINT16_MAX)
		return ((struct pv_net_plain){ .ppl_len = 0 });
	card.ca_plain += len >= CARD_HDR + ETHER_HDR_LEN;
	return ((struct pv_net_plain){ .ppl_len = len - CARD_HDR, .ppl_flags = o.po_flags,
	    .ppl_csum_start = o.po_csum_start, .ppl_csum_offset = o.po_csum_offset });
}

static const struct pv_net_ops card_net_ops = {
	.pno_encap = card_encap,
	.pno_decap = card_decap,
	.pno_stop = card_stop,
	.pno_restart = card_restart,
	.pno_stop_queue = card_stop_queue,
	.pno_restart_queue = card_restart_queue,
	.pno_set_size = card_set_size,
	.pno_set_lladdr = card_set_lladdr,
	.pno_set_coalescing = card_set_coalescing,
	.pno_set_pairs = card_set_pairs,
	.pno_link_up = card_link_up,
};

static const struct pv_tunable card_tunables[] = { PV_NET_TUNABLES };

void
card_new(int pairs)
{

	begin(0);
	kpi_alone = "pv_net ";	/* pv_net.c */
	memset(&card, 0, sizeof(card));
	PCPU_SET(curthread, &card_thread);
	card_thread.td_base_pri = PUSER;
	eth.if_flags = IFF_UP;
	card.ca_ops = card_net_ops;
	if (card_has_fast) {
		card.ca_ops.pno_encap_plain = card_encap_plain;
		card.ca_ops.pno_decap_plain = card_decap_plain;
	}
	card.ca_impl = &split_impls[4];	/* with indirect tables and event indices */
	card.ca_size = CARD_SIZE;
	card.ca_up_tail = &card.ca_up;
	card.ca_params = (struct pv_net_params){
		.pnp_npairs = pairs,
		.pnp_hdrlen = CARD_HDR,
		.pnp_merge = true,
		.pnp_mtu = ETHERMTU,
		.pnp_max_mtu = 65535,
		.pnp_tx_segs = 8,
		.pnp_seg_max = 1 << 20,
		.pnp_phys = true,
		.pnp_offloads = TX_ALL | RX_ALL,
		.pnp_link_reports = true,
		.pnp_queue_reset = true,
		.pnp_tunables = card_tunables,
	};
	memcpy(card.ca_params.pnp_lladdr, lladdr, ETHER_ADDR_LEN);
	card.ca_params.pnp_hdr_apart = card_is_legacy;
	if (card_is_staged) {
		card.ca_params.pnp_hdrlen = 0;
		card.ca_params.pnp_seg_max = PAGE_SIZE;
	}
}

static void (*card_posts)(struct pvq *, const struct pvq_chain *, int);
static bool (*card_kicks)(struct pvq *);
static int (*card_gets)(struct pvq *, struct pvq_done *, int);

/* Who uses a queue has its lock; which one is it? */
static u_int
card_queue_of(const struct pvq *q)
{
	u_int queue;

	for (queue = 0; card.ca_peers[queue]->pe_pvq != q; queue++)
		continue;
	mtx_assert(pv_net_is_tx(queue) ? &CARD_TXQ(pv_net_pair(queue))->ptq_mtx :
	    &CARD_RXQ(pv_net_pair(queue))->prq_mtx, MA_OWNED);
	return (queue);
}

static bool
card_kick(struct pvq *q)
{

	(void)card_queue_of(q);
	return (card_kicks(q));
}

static int
card_get(struct pvq *q, struct pvq_done *done, int n)
{

	(void)card_queue_of(q);
	return (card_gets(q, done, n));
}

/* At least one chain; a page is posted with what its owner is to know it by. */
static void
card_post(struct pvq *q, const struct pvq_chain *pc, int n)
{
	const struct pv_net_page *page;
	u_int queue = card_queue_of(q);
	int i;

	CHECK(n > 0 && (u_int)n <= q->q_size, "%d chains", n);
	CHECK(card.ca_runs[queue], "queue %u does not run", queue);
	for (i = 0; i < n && card_is_staged && !pv_net_is_tx(queue); i++) {
		page = pc[i].pc_arg;
		CHECK(page != NULL && pc[i].pc_segs[0].ds_addr == page->npg_addr, "another page");
	}
	card_posts(q, pc, n);
}

/* See what a queue's owner does. */
static void
card_watch_posts(struct pvq *q)
{
	static struct pvq_ops ops;

	CHECK(q->q_ops->qo_post != NULL && q->q_ops != &ops, "%s", q->q_ops->qo_name);
	card_posts = q->q_ops->qo_post;
	ops = *q->q_ops;
	ops.qo_post = card_post;
	card_kicks = ops.qo_kick;
	ops.qo_kick = card_kick;
	card_gets = ops.qo_get;
	ops.qo_get = card_get;
	q->q_ops = &ops;
}

/* The pages of a queue, one behind the other. */
static void
card_stage(u_int queue)
{
	u_char *memory = host_alloc(card.ca_size * PAGE_SIZE, PAGE_SIZE);
	struct pv_net_page *pages;
	u_int i;

	pages = host_alloc(card.ca_size * sizeof(*pages), sizeof(void *));
	for (i = 0; i < card.ca_size; i++) {
		pages[i].npg_mem = memory + i * PAGE_SIZE;
		pages[i].npg_addr = (uintptr_t)pages[i].npg_mem;
		pages[i].npg_arg = &pages[i];
	}
	card.ca_memory[queue] = memory;
	card.ca_pages[queue] = pages;
	pv_net_stage_queue(card.ca_pn, pv_net_pair(queue), pv_net_is_tx(queue), pages);
}

int
card_attach(void)
{
	struct pvq_spec queue;
	u_int i, n = 2 * card.ca_params.pnp_npairs;
	int error;

	card.ca_dev = kpi_device_create(NULL, NULL, NULL, "card0");
	error = pv_net_alloc(card.ca_dev, &card.ca_ops, &card, &card.ca_params, &card.ca_pn);
	CHECK(error == 0, "no card: error %d", error);
	for (i = 0; i < n; i++) {
		pv_net_queue(card.ca_pn, pv_net_pair(i), pv_net_is_tx(i), &queue);
		error = card.ca_impl->im_create(card.ca_impl, card.ca_size, queue.pqs_max_segs,
		    &card.ca_peers[i]);
		CHECK(error == 0, "queue %u: error %d", i, error);
		*queue.pqs_pvq = card.ca_peers[i]->pe_pvq;
		card_watch_posts(*queue.pqs_pvq);
		card.ca_runs[i] = true;
		if (card_is_staged)
			card_stage(i);
	}
	card.ca_started = true;
	card.ca_pairs = 1;
	/* There is no interface that would know of it. */
	if (card.ca_renegotiates)
		pv_net_renegotiate(card.ca_pn, &card.ca_params);
	CHECK(card.ca_mtu == 0 && card.ca_vlancaps == 0, "it has an interface");
	if (card.ca_at_first != 0) {
		pv_dev_lock(pv_net_dev(card.ca_pn));
		CHECK(pv_net_set_pairs(card.ca_pn, card.ca_at_first) == 0, "other pairs");
		pv_dev_unlock(pv_net_dev(card.ca_pn));
	}
	kpi_fail_after = card.ca_fail_after;
	return (pv_net_attach(card.ca_pn));
}

void
card_begin(int pairs)
{
	int lines;

	lines = kpi_lines;
	card_new(pairs);
	CHECK(card_attach() == 0 && kpi_lines == lines, "it does not attach");
	card_settle();
	CHECK(card.ca_links == 1 && pv_dev_is_live(&card.ca_pn->pn_pvdev) &&
	    card.ca_drv_flags == IFF_DRV_RUNNING, "it is not up");
	card_forget();
}

/* The counters say what came up. */
static void
card_check_counters(void)
{
	const struct pv_net_rxstats *stats;
	uint64_t packets = 0, bytes = 0, mcasts = 0;
	int i;

	for (i = 0; i < card.ca_pn->pn_max_pairs; i++) {
		stats = &CARD_RXQ(i)->prq_stats;
		packets += stats->packets;
		bytes += stats->bytes;
		mcasts += stats->mcasts;
	}
	CHECK(packets == card.ca_nup && bytes == card.ca_up_bytes && mcasts == card.ca_up_mcasts,
	    "%ju packets, %ju bytes, %ju of groups, of %u", (uintmax_t)packets, (uintmax_t)bytes,
	    (uintmax_t)mcasts, card.ca_nup);
}

/* It has what it had before it was attached. */
static void
card_check_detached(void)
{
	const struct pv_net_rxq *rxq;
	const struct pv_net_txq *txq;
	int i;

	for (i = 0; i < card.ca_pn->pn_max_pairs; i++) {
		rxq = CARD_RXQ(i);
		txq = CARD_TXQ(i);
		CHECK(!rxq->prq_lro_ready && rxq->prq_bufs == NULL && txq->ptq_bufs == NULL &&
		    txq->ptq_ring == NULL, "pair %d knows memory that was freed", i);
	}
	CHECK(kpi_callouts == 0 && kpi_sysctls == 0, "%d callouts are pending, %d sysctls",
	    kpi_callouts, kpi_sysctls);
}

void
card_end(void)
{
	struct pv_dev *pvd = &card.ca_pn->pn_pvdev;
	u_int i;

	card_check_counters();
	CHECK(kpi_sysctls == (card.ca_pn->pn_ifp != NULL && pv_dev_state(pvd) != PV_DEV_FROZEN ?
	    card.ca_pn->pn_params.pnp_npairs : 0), "%d pairs have sysctls", kpi_sysctls);
	pv_net_detach(card.ca_pn);
	card_check_detached();
	CHECK(kpi_run_tasks() == 0 && kpi_mutexes == 0, "a task or a lock is left");
	for (i = 0; i < CARD_QUEUES && card.ca_peers[i] != NULL; i++)
		card.ca_impl->im_destroy(card.ca_peers[i]);
	pv_net_free(card.ca_pn);
	for (i = 0; i < CARD_QUEUES; i++) {
		host_free(card.ca_pages[i]);
		host_free(card.ca_memory[i]);
	}
	kpi_device_destroy(card.ca_dev);
	(void)free_all(card.ca_up);
	end();
	CHECK(kpi_mallocs == 0 && kpi_dma_tags == 0 && kpi_dma_maps == 0 && kpi_locks == 0,
	    "left: %d, %d, %d, %d", kpi_mallocs, kpi_dma_tags, kpi_dma_maps, kpi_locks);
}

/* What crosses the rings. */

void
card_fill(u_char *to, u_int number, u_int len)
{
	u_int i;

	memset(to, 0, MIN(len, ETHER_HDR_LEN));
	for (i = ETHER_HDR_LEN; i < len; i++)
		to[i] = number * 31 + i * 7;
}

struct mbuf *
card_packet(u_int number, u_int len)
{
	static u_char bytes[FRAME_MAX];

	CHECK(len <= sizeof(bytes), "%u bytes", len);
	card_fill(bytes, number, len);
	return (kpi_mbuf_chain(bytes, len, NULL));
}

int
card_transmit(int pair, struct mbuf *m)
{

	m->m_pkthdr.flowid = pair;
	M_HASHTYPE_SET(m, M_HASHTYPE_OPAQUE);
	return (pv_net_transmit(&eth, m));
}

int
card_send(int pair, u_int number, u_int len)
{

	return (card_transmit(pair, card_packet(number, len)));
}

bool
card_idle(int pair)
{
	struct peer *pe = card_peer(pair, true);
	struct peer_chain pr;

	return (!pe->pe_ops->po_fetch(pe, &pr));
}

/* What a chain has, both ways, is what the device said that it takes. */
static void
card_check_segs(const struct peer_chain *pr, u_int max)
{
	const struct pv_net_params *params = &card.ca_params;
	int i, n = pr->pr_nread + pr->pr_nwrite;

	CHECK(n > 0 && (u_int)n <= max, "%d segments, of %u", n, max);
	CHECK(!params->pnp_hdr_apart || pr->pr_segs[0].len == CARD_HDR, "a header of %u bytes",
	    pr->pr_segs[0].len);
	for (i = 0; i < n; i++)
		CHECK(pr->pr_segs[i].len > 0 && pr->pr_segs[i].len <= params->pnp_seg_max,
		    "a segment of %u bytes", pr->pr_segs[i].len);
}

/* A buffer that is free has no packet, and no segments: that is how a command's is known. */
static void
card_check_free(const struct pv_net_txq *txq)
{
	u_int i;

	for (i = 0; i < txq->ptq_nfree; i++)
		CHECK(txq->ptq_free[i]->ptb_mbuf == NULL && txq->ptq_free[i]->ptb_nsegs == 0,
		    "%s: buffer %u of %u", txq->ptq_name, i, txq->ptq_nfree);
}

u_int
card_read(const struct peer_chain *pr, u_char *to)
{
	u_int len = 0;
	int i;

	CHECK(pr->pr_nwrite == 0, "%d segments are to be written", pr->pr_nwrite);
	card_check_segs(pr, card.ca_params.pnp_tx_segs);
	for (i = 0; i < card.ca_pn->pn_max_pairs; i++)
		card_check_free(CARD_TXQ(i));
	for (i = 0; i < pr->pr_nread; i++) {
		memcpy(to + len, (const void *)(uintptr_t)pr->pr_segs[i].addr, pr->pr_segs[i].len);
		len += pr->pr_segs[i].len;
	}
	return (len);
}

uint32_t
card_takes(int pair, u_int number, u_int len)
{
	static u_char got[FRAME_MAX + CARD_HDR], want[FRAME_MAX];
	struct peer *pe = card_peer(pair, true);
	struct peer_chain pr;

	CHECK(card.ca_runs[pv_net_number(pair, true)], "queue of pair %d is not in use", pair);
	CHECK(pe->pe_ops->po_fetch(pe, &pr), "packet %u is not there", number);
	card.ca_nsegs = pr.pr_nread;
	CHECK(card_read(&pr, got) == len + card.ca_params.pnp_hdrlen, "packet %u: length", number);
	card_fill(want, number, len);
	CHECK(memcmp(got + card.ca_params.pnp_hdrlen, want, len) == 0, "packet %u is another", number);
	return (pr.pr_id);
}

void
card_complete(int pair, uint32_t id)
{
	struct peer *pe = card_peer(pair, true);

	pe->pe_ops->po_complete(pe, id, 0);
	pe->pe_ops->po_publish(pe);
}

void
card_sends(int pair, u_int n)
{
	struct peer *pe = card_peer(pair, true);
	struct peer_chain pr;

	while (n-- > 0) {
		CHECK(pe->pe_ops->po_fetch(pe, &pr), "%u packets are missing", n + 1);
		card_complete(pair, pr.pr_id);
	}
}

/* A buffer of this length is one of those that there are. */
static bool
card_is_buffer(uint64_t len)
{
	const struct pv_net *net = card.ca_pn;

	if (card_is_staged)
		return (len == PAGE_SIZE);
	if (net->pn_rx_mbufs > 1)
		return (len == PV_NET_MAX_FRAME + CARD_HDR);
	len += net->pn_rx_pad;
	return (len == net->pn_rx_cluster || (card.ca_params.pnp_merge && (len == MCLBYTES ||
	    len == MJUMPAGESIZE || len == MJUM16BYTES)));
}

/* Write into a buffer; returns how much. */
static u_int
card_write(const struct peer_chain *pr, const u_char *from, u_int len)
{
	u_int done = 0, n;
	int i;

	CHECK(pr->pr_nread == 0, "%d segments are to be read", pr->pr_nread);
	card_check_segs(pr, card.ca_pn->pn_rx_segs + card.ca_params.pnp_hdr_apart);
	CHECK(card_is_buffer(pr->pr_wlen), "a buffer of %lu bytes", (u_long)pr->pr_wlen);
	for (i = 0; i < pr->pr_nwrite && done < len; i++) {
		n = MIN(pr->pr_segs[i].len, len - done);
		memcpy((void *)(uintptr_t)pr->pr_segs[i].addr, from + done, n);
		done += n;
	}
	return (done);
}

void
card_intr(int pair, bool tx)
{

	if (tx)
		pv_net_tx_intr(&card.ca_pn->pn_txqs[pair]);
	else
		pv_net_rx_intr(&card.ca_pn->pn_rxqs[pair]);
}

static bool
card_give(int pair, u_char *bytes, u_int total, u_int parts)
{
	struct peer *pe = card_peer(pair, false);
	struct peer_chain pr;
	u_int at = 0, n;

	CHECK(card.ca_runs[pv_net_number(pair, false)], "queue of pair %d is not in use", pair);
	for (; parts > 0; parts--) {
		if (!pe->pe_ops->po_fetch(pe, &pr))
			return (false);
		card.ca_room = pr.pr_wlen;
		/* The header is in one piece. */
		n = MAX((total - at) / parts, at == 0 ? CARD_HDR : 0);
		CHECK(card_write(&pr, bytes + at, n) == n, "%u bytes are too many for a buffer", n);
		at += n;
		pe->pe_ops->po_complete(pe, pr.pr_id, n);
		if (card.ca_slow) {
			pe->pe_ops->po_publish(pe);
			card_intr(pair, false);
		}
	}
	pe->pe_ops->po_publish(pe);
	return (true);
}

static u_char card_bytes[FRAME_MAX + CARD_HDR];

bool
card_receive(int pair, u_int number, u_int len, u_int parts)
{
	struct pv_net_offload offload = { .po_hdr_len = parts };

	memcpy(card_bytes, &offload, CARD_HDR);
	card_fill(card_bytes + CARD_HDR, number, len);
	return (card_give(pair, card_bytes, len + CARD_HDR, parts));
}

bool
card_receive_bytes(int pair, const u_char *frame, u_int len, const struct pv_net_offload *offload)
{
	struct pv_net_offload o = *offload;

	o.po_hdr_len = 1;
	memcpy(card_bytes, &o, CARD_HDR);
	memcpy(card_bytes + CARD_HDR, frame, len);
	return (card_give(pair, card_bytes, len + CARD_HDR, 1));
}

void
card_up(u_int number, u_int len)
{
	static u_char got[FRAME_MAX], want[FRAME_MAX];
	struct mbuf *m = card.ca_up, *rest;

	CHECK(m != NULL, "packet %u did not come up", number);
	CHECK((m->m_flags & M_PKTHDR) != 0 && m->m_pkthdr.rcvif == &eth, "no packet");
	for (rest = m->m_next; rest != NULL; rest = rest->m_next)
		CHECK((rest->m_flags & M_PKTHDR) == 0, "a packet within one");
	card.ca_up = m->m_nextpkt;
	if (card.ca_up == NULL)
		card.ca_up_tail = &card.ca_up;
	m->m_nextpkt = NULL;
	CHECK(m->m_pkthdr.len == (int)len, "packet %u: %d bytes", number, m->m_pkthdr.len);
	(void)flat(m, got);
	card_fill(want, number, len);
	CHECK(memcmp(got, want, len) == 0, "packet %u is another", number);
	m_freem(m);
}

void
card_settle(void)
{

	while (kpi_run_tasks() > 0)
		continue;
}

void
card_seconds(u_int n)
{

	while (n-- > 0) {
		kpi_pass(SBT_1S);
		card_settle();
	}
}

int
card_use(u_int pairs)
{
	struct pv_dev *pvd = pv_net_dev(card.ca_pn);
	int error;

	pv_dev_lock(pvd);
	error = pv_net_use_pairs(card.ca_pn, pairs);
	pv_dev_unlock(pvd);
	return (error);
}
