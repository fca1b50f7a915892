/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: counters as sysctls, below dev.NAME.UNIT: one table for each kind of
 * queue, each counter with what it counts.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_var.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

PV_TUNABLES(pv_net_tunables, hw, "pv_net", pv_net_tunables,
    "Paravirtual network cards");

struct pv_net_counter {
	const char	*name;
	size_t		 offset;
	const char	*what;
};

#define	RX(field, what)	{ #field, offsetof(struct pv_net_rxstats, field), what }
#define	TX(field, what)	{ #field, offsetof(struct pv_net_txstats, field), what }

/* bad_offload by cause. */
#define	CAUSE(type, cause, name, what)					\
	{ name, offsetof(type, bad[cause]), "Of bad_offload: " what }
#define	BAD(type)							\
	CAUSE(type, PV_NET_BAD_SHORT, "bad_short",			\
	    "ends inside of its headers"),				\
	CAUSE(type, PV_NET_BAD_HEADERS, "bad_headers",			\
	    "headers of invalid lengths"),				\
	CAUSE(type, PV_NET_BAD_CSUM, "bad_csum",			\
	    "a checksum at an invalid place"),				\
	CAUSE(type, PV_NET_BAD_GSO_TYPE, "bad_gso_type",		\
	    "segmentation that was not negotiated"),			\
	CAUSE(type, PV_NET_BAD_GSO_SIZE, "bad_gso_size",		\
	    "segments of an invalid size")

static const struct pv_net_counter pv_net_rx_counters[] = {
	RX(packets, "Frames received"),
	RX(bytes, "Bytes received"),
	RX(mcasts, "Multicast and broadcast frames received"),
	RX(csum_valid, "Frames whose checksum was verified by the device"),
	RX(csum_partial, "Frames whose checksum is still to be finished"),
	RX(csum_unasked, "Of csum_partial: though this was not negotiated"),
	RX(gso_unasked,
	    "GSO packets split or passed on, though they were not negotiated"),
	RX(lro, "GSO packets: several segments of TCP in one"),
	RX(split, "GSO packets that were split: all those of UDP, and others"),
	RX(hashed, "Frames received with the hash of their flow"),
	RX(copied,
	    "Short frames copied, so that their buffer was posted again"),
	RX(merged, "Frames that span several buffers"),
	RX(bufs, "Buffers allocated, of the size that the MTU requires"),
	RX(bufs_page,
	    "Buffers of a page allocated for large frames: there were none of 16 KB"),
	RX(bufs_16k, "Buffers of 16 KB allocated for large frames"),
	RX(nombuf, "Times a receive buffer could not be allocated"),
	RX(unfit,
	    "Receive buffers not used: more segments than the ring takes"),
	RX(recycled,
	    "Frames dropped because their buffer had to be posted again"),
	RX(short_buf, "Buffers dropped: shorter than a header"),
	RX(bad_header, "Buffers dropped: an invalid header"),
	RX(bad_offload,
	    "Frames dropped: offload metadata that does not match the frame"),
	BAD(struct pv_net_rxstats),
	RX(runts, "Frames dropped: shorter than an Ethernet header"),
	RX(too_long, "Frames dropped: longer than any packet"),
	RX(lost_intrs,
	    "Times the watchdog found completions without an interrupt"),
	RX(deferred,
	    "Times the budget was used up, and the task took the rest"),
};

static const struct pv_net_counter pv_net_tx_counters[] = {
	TX(packets, "Frames sent"),
	TX(bytes, "Bytes sent"),
	TX(mcasts, "Multicast and broadcast frames sent"),
	TX(csum, "Frames whose checksum was left to the device"),
	TX(tso, "Packets of TCP whose segmentation was left to the device"),
	TX(soft_csum, "Frames whose checksum was finished in software"),
	TX(soft_tso, "Packets of TCP segmented in software"),
	TX(unmapped, "Unmapped mbufs sent (M_EXTPG)"),
	TX(collapsed,
	    "Packets of too many segments, some of which were joined"),
	TX(defragged, "Packets of too many segments, copied as a whole"),
	TX(waits, "Times packets had to wait for room in the queue"),
	TX(queue_drops, "Packets dropped: too many were queued"),
	TX(moved,
	    "Packets moved to another queue, this one being no longer in use"),
	TX(bad_offload,
	    "Packets dropped: offload marks that do not match the packet"),
	BAD(struct pv_net_txstats),
	TX(too_long, "Packets dropped: longer than any frame can be"),
	TX(nomem,
	    "Packets dropped: no memory for them, or the queue is broken"),
	TX(held_kicks,
	    "Notifications left to the end of an interrupt thread's pass"),
	TX(timer_reclaims,
	    "Times the timer expired, and completions were collected"),
};

#undef RX
#undef TX
#undef BAD
#undef CAUSE

/*
 * Sums of counters under the names that FreeBSD's own driver has for them
 * (pnp_freebsd_names), for the scripts that read these: of a queue, or of all
 * queues of the interface.
 */
struct pv_net_sum {
	const char	*name;
	bool		 tx, all;
	u_int		 n;
	size_t		 offsets[5];
	const char	*what;
};

#define	R(field)	offsetof(struct pv_net_rxstats, field)
#define	T(field)	offsetof(struct pv_net_txstats, field)

static const struct pv_net_sum pv_net_sums[] = {
	{ "ipackets", false, false, 1, { R(packets) }, "The counter packets" },
	{ "ibytes", false, false, 1, { R(bytes) }, "The counter bytes" },
	{ "iqdrops", false, false, 1, { R(recycled) }, "The counter recycled" },
	{ "ierrors", false, false, 5, { R(short_buf), R(bad_header),
	    R(bad_offload), R(runts), R(too_long) },
	    "short_buf, bad_header, bad_offload, runts and too_long" },
	{ "csum", false, false, 2, { R(csum_valid), R(csum_partial) },
	    "csum_valid and csum_partial" },
	{ "csum_failed", false, false, 1, { R(bad_offload) },
	    "The counter bad_offload" },
	{ "host_lro", false, false, 1, { R(lro) }, "The counter lro" },
	{ "rescheduled", false, false, 1, { R(deferred) },
	    "The counter deferred" },
	{ "opackets", true, false, 1, { T(packets) }, "The counter packets" },
	{ "obytes", true, false, 1, { T(bytes) }, "The counter bytes" },
	{ "omcasts", true, false, 1, { T(mcasts) }, "The counter mcasts" },
	{ "mbuf_alloc_failed", false, true, 1, { R(nombuf) },
	    "nombuf of all queues" },
	{ "rx_csum_offloaded", false, true, 2, { R(csum_valid),
	    R(csum_partial) }, "csum_valid and csum_partial of all queues" },
	{ "rx_csum_failed", false, true, 1, { R(bad_offload) },
	    "bad_offload of all queues" },
	{ "rx_frame_too_large", false, true, 1, { R(too_long) },
	    "too_long of all queues" },
	{ "rx_task_rescheduled", false, true, 1, { R(deferred) },
	    "deferred of all queues" },
	{ "tx_csum_offloaded", true, true, 1, { T(csum) },
	    "csum of all queues" },
	{ "tx_tso_offloaded", true, true, 1, { T(tso) }, "tso of all queues" },
	{ "tx_defragged", true, true, 2, { T(collapsed), T(defragged) },
	    "collapsed and defragged of all queues" },
};

#undef R
#undef T

static uint64_t
pv_net_sum(const struct pv_net_sum *sum, const void *stats)
{
	uint64_t value = 0;
	u_int i;

	for (i = 0; i < sum->n; i++)
		value +=
		    *(const uint64_t *)(const void *)((const uint8_t *)stats +
		    sum->offsets[i]);
	return (value);
}

/*
 * arg1: the interface, or the counters of a queue; arg2: the number of the sum.
 */
static int
pv_net_sysctl_sum(SYSCTL_HANDLER_ARGS)
{
	const struct pv_net_sum *sum = &pv_net_sums[arg2];
	struct pv_net *pn = arg1;
	uint64_t value = 0;
	int i;

	if (!sum->all)
		value = pv_net_sum(sum, arg1);
	for (i = 0; sum->all && i < pn->pn_max_pairs; i++)
		value += pv_net_sum(sum,
		    sum->tx ? (const void *)&pn->pn_txqs[i].ptq_stats :
		    (const void *)&pn->pn_rxqs[i].prq_stats);
	return (sysctl_handle_64(oidp, &value, 0, req));
}

static void
pv_net_sysctl_sums(struct pv_net *pn, struct sysctl_ctx_list *ctx,
    struct sysctl_oid_list *list, void *of, bool tx, bool all)
{
	size_t i;

	for (i = 0; pn->pn_params.pnp_freebsd_names && i < nitems(pv_net_sums);
	    i++) {
		if (pv_net_sums[i].all == all &&
		    (all || pv_net_sums[i].tx == tx))
			SYSCTL_ADD_PROC(ctx, list, OID_AUTO,
			    pv_net_sums[i].name,
			    CTLTYPE_U64 | CTLFLAG_RD | CTLFLAG_MPSAFE, of, i,
			    pv_net_sysctl_sum, "QU", pv_net_sums[i].what);
	}
}

static struct sysctl_oid_list *
pv_net_sysctl_queue(struct pv_net *pn, const char *name, const char *what,
    uint8_t *stats, const struct pv_net_counter *counters, size_t n)
{
	struct sysctl_ctx_list *ctx = &pn->pn_queue_sysctl;
	struct sysctl_oid_list *list;
	struct sysctl_oid *node;
	size_t i;

	node = SYSCTL_ADD_NODE(ctx,
	    SYSCTL_CHILDREN(device_get_sysctl_tree(pn->pn_dev)), OID_AUTO, name,
	    CTLFLAG_RD | CTLFLAG_MPSAFE, 0, what);
	list = SYSCTL_CHILDREN(node);
	for (i = 0; i < n; i++)
		SYSCTL_ADD_U64(ctx, list, OID_AUTO, counters[i].name,
		    CTLFLAG_RD,
		    (uint64_t *)(void *)(stats + counters[i].offset), 0,
		    counters[i].what);
	return (list);
}

/*
 * Counters of the queues, for as long as they exist: they may be other ones
 * after pv_net_thaw().
 */
void
pv_net_sysctl_queues(struct pv_net *pn)
{
	struct sysctl_oid_list *list;
	struct pv_net_rxq *rxq;
	struct pv_net_txq *txq;
	int i;

	for (i = 0; i < pn->pn_params.pnp_npairs; i++) {
		rxq = &pn->pn_rxqs[i];
		list = pv_net_sysctl_queue(pn, rxq->prq_name, "Receive queue",
		    (uint8_t *)&rxq->prq_stats, pv_net_rx_counters,
		    nitems(pv_net_rx_counters));
		if (!pn->pn_staged)
			SYSCTL_ADD_UINT(&pn->pn_queue_sysctl, list, OID_AUTO,
			    "large", CTLFLAG_RD, &rxq->prq_large, 0,
			    "Small frames until buffers are of the usual size again (0: they are)");
		pv_net_sysctl_sums(pn, &pn->pn_queue_sysctl, list,
		    &rxq->prq_stats, false, false);
		pvq_sysctl(rxq->prq_pvq, &pn->pn_queue_sysctl, list);
		if (rxq->prq_lro_ready) {
			SYSCTL_ADD_U64(&pn->pn_queue_sysctl, list, OID_AUTO,
			    "lro_queued", CTLFLAG_RD, &rxq->prq_lro.lro_queued,
			    0, "TCP segments passed to tcp_lro(9)");
			SYSCTL_ADD_U64(&pn->pn_queue_sysctl, list, OID_AUTO,
			    "lro_flushed",
			    CTLFLAG_RD, &rxq->prq_lro.lro_flushed, 0,
			    "Packets that they were merged into");
		}
		txq = &pn->pn_txqs[i];
		list = pv_net_sysctl_queue(pn, txq->ptq_name, "Transmit queue",
		    (uint8_t *)&txq->ptq_stats, pv_net_tx_counters,
		    nitems(pv_net_tx_counters));
		pv_net_sysctl_sums(pn, &pn->pn_queue_sysctl, list,
		    &txq->ptq_stats, true, false);
		pvq_sysctl(txq->ptq_pvq, &pn->pn_queue_sysctl, list);
	}
}

static int
pv_net_sysctl_pairs(SYSCTL_HANDLER_ARGS)
{
	struct pv_net *pn = arg1;
	int error, n = pn->pn_pairs;

	error = pv_sysctl_int(oidp, req, &n, 1, pn->pn_params.pnp_npairs);
	if (error != 0 || req->newptr == NULL)
		return (error);
	pv_dev_lock(&pn->pn_pvdev);
	if (n > pn->pn_params.pnp_npairs)
		error = EINVAL;
	else
		error = pv_dev_state(&pn->pn_pvdev) == PV_DEV_GONE ? ENXIO :
		    pv_net_use_pairs(pn, n);
	/* All pairs means all those of a later back end, too. */
	if (error == 0)
		pn->pn_chosen = n == pn->pn_params.pnp_npairs ?
		    pn->pn_max_pairs : n;
	pv_dev_unlock(&pn->pn_pvdev);
	return (error);
}

/* arg2: 1 for transmit queues. */
static int
pv_net_sysctl_size(SYSCTL_HANDLER_ARGS)
{
	struct pv_net *pn = arg1;
	u_int size = pv_net_ring_size(pn, arg2 != 0);
	int error;

	error = sysctl_handle_int(oidp, &size, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	pv_dev_lock(&pn->pn_pvdev);
	error = pv_net_resize(pn, arg2 != 0, size);
	pv_dev_unlock(&pn->pn_pvdev);
	return (error);
}

void
pv_net_sysctl_attach(struct pv_net *pn)
{
	struct sysctl_ctx_list *ctx = &pn->pn_sysctl;
	struct sysctl_oid_list *top;

	pv_net_sysctl_queues(pn);
	top = SYSCTL_CHILDREN(device_get_sysctl_tree(pn->pn_dev));
	pv_dev_sysctl(&pn->pn_pvdev, ctx, top);
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "watchdogs", CTLFLAG_RD, &pn->pn_watchdogs, 0,
	    "Times the watchdog found packets that never completed");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "filter_errors", CTLFLAG_RD, &pn->pn_filter_errors, 0,
	    "Times the device refused a receive filter");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "offload_errors", CTLFLAG_RD, &pn->pn_offload_errors, 0,
	    "Times the device refused a change of its offloads");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO,
	    "rx_offloads", CTLFLAG_RD, &pn->pn_offloads_asked, 0,
	    "Receive offloads requested of the device: a mask");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "vlan_errors", CTLFLAG_RD,
	    &pn->pn_vlan_errors, 0, "Times the device refused a VLAN tag");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "announcements", CTLFLAG_RD, &pn->pn_announcements, 0,
	    "Times our addresses were announced at the device's request");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO,
	    "queue_pairs", CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE, pn, 0,
	    pv_net_sysctl_pairs, "IU", "Pairs of queues in use");
	if (pn->pn_ops->pno_set_size != NULL) {
		SYSCTL_ADD_PROC(ctx, top, OID_AUTO,
		    "rx_queue_size", CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE,
		    pn, 0, pv_net_sysctl_size, "IU",
		    "Slots in the ring of each receive queue");
		SYSCTL_ADD_PROC(ctx, top, OID_AUTO,
		    "tx_queue_size", CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE,
		    pn, 1, pv_net_sysctl_size, "IU",
		    "Slots in the ring of each transmit queue");
	}
	SYSCTL_ADD_INT(ctx, top, OID_AUTO,
	    "max_queue_pairs", CTLFLAG_RD, &pn->pn_params.pnp_npairs, 0,
	    "Pairs of queues that the device has");
	pv_tunable_add(ctx, top,
	    "rx_budget", &pn->pn_params.pnp_tunables[PV_NET_RX_PROCESS_LIMIT],
	    &pn->pn_rx_budget);
	pv_net_sysctl_sums(pn, ctx, top, pn, false, true);
	if (pn->pn_params.pnp_freebsd_names) {
		SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "act_vq_pairs", CTLFLAG_RD,
		    __DEVOLATILE(u_int *, &pn->pn_pairs), 0, "As queue_pairs");
		SYSCTL_ADD_UINT(ctx, top, OID_AUTO,
		    "req_vq_pairs", CTLFLAG_RD, &pn->pn_chosen, 0,
		    "Pairs of queues to use, if there are as many");
		SYSCTL_ADD_INT(ctx, top, OID_AUTO, "max_vq_pairs", CTLFLAG_RD,
		    &pn->pn_params.pnp_npairs, 0, "As max_queue_pairs");
	}
	pv_tunable_add(ctx, top, NULL,
	    &pn->pn_params.pnp_tunables[PV_NET_TX_KICK], &pn->pn_tx_kick);
}
