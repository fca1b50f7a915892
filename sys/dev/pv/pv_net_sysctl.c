/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: counters as sysctls, below dev.NAME.UNIT: one table for each kind of queue, each
 * counter with what it counts.
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

#include <dev/pv/pvq.h>
#include <dev/pv/pv_net.h>
#include <dev/pv/pv_net_var.h>

static SYSCTL_NODE(_hw, OID_AUTO, pv_net, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "Paravirtual network cards");

SYSCTL_INT(_hw_pv_net, OID_AUTO, lro_forward, CTLFLAG_RWTUN, &pv_net_lro_forward, 0,
    "This kernel can forward packets of several segments: do not split them before");

struct pv_net_counter {
	const char	*name;
	size_t		 offset;
	const char	*what;
};

#define	RX(field, what)	{ #field, offsetof(struct pv_net_rxstats, field), what }
#define	TX(field, what)	{ #field, offsetof(struct pv_net_txstats, field), what }

/* What of bad_offload was of which cause. */
#define	CAUSE(type, cause, name, what)	{ name, offsetof(type, bad[cause]), "Of bad_offload: " what }
#define	BAD(type)								\
	CAUSE(type, PV_NET_BAD_SHORT, "bad_short", "ends inside of its headers"),	\
	CAUSE(type, PV_NET_BAD_HEADERS, "bad_headers", "headers of impossible lengths"), \
	CAUSE(type, PV_NET_BAD_EXTS, "bad_exts", "IPv6 extension headers without end"), \
	CAUSE(type, PV_NET_BAD_VLAN, "bad_vlan", "a VLAN tag inside of another"),	\
	CAUSE(type, PV_NET_BAD_CSUM, "bad_csum", "a checksum where none can be"),	\
	CAUSE(type, PV_NET_BAD_GSO_TYPE, "bad_gso_type", "segmentation not agreed on"), \
	CAUSE(type, PV_NET_BAD_GSO_SIZE, "bad_gso_size", "segments of an impossible size")

static const struct pv_net_counter pv_net_rx_counters[] = {
	RX(packets, "Frames received"),
	RX(bytes, "Bytes received"),
	RX(mcasts, "Frames received that were sent to a group or to all"),
	RX(csum_valid, "Frames whose checksum was verified by the other side"),
	RX(csum_partial, "Frames whose checksum is still to be finished"),
	RX(lro, "Frames that stand for several segments of TCP"),
	RX(split, "Frames that stood for several packets and were split"),
	RX(hashed, "Frames that came with the hash of their flow"),
	RX(copied, "Short frames copied, so that their buffer was posted again"),
	RX(merged, "Frames that span several buffers"),
	RX(bufs, "Buffers allocated, of the size that the MTU asks for"),
	RX(bufs_page, "Buffers of a page allocated for large frames: there were none of 16 KB"),
	RX(bufs_16k, "Buffers of 16 KB allocated for large frames"),
	RX(nombuf, "Times a receive buffer could not be allocated"),
	RX(unfit, "Receive buffers not used: more segments than the ring takes"),
	RX(recycled, "Frames dropped because their buffer had to be posted again"),
	RX(short_buf, "Buffers dropped: shorter than a header"),
	RX(bad_header, "Buffers dropped: a header that cannot be"),
	RX(bad_offload, "Frames dropped: offload data that do not fit the frame"),
	BAD(struct pv_net_rxstats),
	RX(runts, "Frames dropped: shorter than an Ethernet header"),
	RX(too_long, "Frames dropped: longer than any packet can be"),
	RX(deferred, "Times the rest was left to the task, the budget being used up"),
};

static const struct pv_net_counter pv_net_tx_counters[] = {
	TX(packets, "Frames sent"),
	TX(bytes, "Bytes sent"),
	TX(mcasts, "Frames sent to a group or to all"),
	TX(csum, "Frames whose checksum was left to the other side"),
	TX(tso, "Packets of TCP whose segmentation was left to the other side"),
	TX(soft_csum, "Frames whose checksum the other side would not finish, so that pv did"),
	TX(soft_tso, "Packets of TCP that the other side would not segment, so that pv did"),
	TX(unmapped, "Pieces of packets that are pages without an address"),
	TX(collapsed, "Packets with too many pieces, some of which were joined"),
	TX(defragged, "Packets with too many pieces, copied as a whole"),
	TX(waits, "Times packets had to wait for room in the queue"),
	TX(queue_drops, "Packets dropped: too many waited already"),
	TX(moved, "Packets moved to another queue, this one being in use no more"),
	TX(bad_offload, "Packets dropped: offload marks that do not fit the packet"),
	BAD(struct pv_net_txstats),
	TX(too_long, "Packets dropped: longer than any packet can be"),
	TX(nomem, "Packets dropped: no memory for them, or the queue is broken"),
	TX(held_kicks, "Times a notification was left to the end of an interrupt thread's pass"),
	TX(timer_reclaims, "Times the timer had completions collected"),
};

#undef RX
#undef TX
#undef BAD
#undef CAUSE

static struct sysctl_oid_list *
pv_net_sysctl_queue(struct pv_net *pn, const char *name, const char *what, uint8_t *stats,
    const struct pv_net_counter *counters, size_t n)
{
	struct sysctl_ctx_list *ctx = &pn->pn_queue_sysctl;
	struct sysctl_oid_list *list;
	struct sysctl_oid *node;
	size_t i;

	node = SYSCTL_ADD_NODE(ctx, SYSCTL_CHILDREN(device_get_sysctl_tree(pn->pn_dev)), OID_AUTO,
	    name, CTLFLAG_RD | CTLFLAG_MPSAFE, 0, what);
	list = SYSCTL_CHILDREN(node);
	for (i = 0; i < n; i++)
		SYSCTL_ADD_U64(ctx, list, OID_AUTO, counters[i].name, CTLFLAG_RD,
		    (uint64_t *)(void *)(stats + counters[i].offset), 0, counters[i].what);
	return (list);
}

/*
 * What there is to know of the queues, for as long as they exist: they may be other ones after
 * pv_net_thaw().
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
		    (uint8_t *)&rxq->prq_stats, pv_net_rx_counters, nitems(pv_net_rx_counters));
		if (!pn->pn_params.pnp_staged)
			SYSCTL_ADD_UINT(&pn->pn_queue_sysctl, list, OID_AUTO, "large", CTLFLAG_RD,
			    &rxq->prq_large, 0,
			    "Buffers are large for so many more small frames (0: they are not)");
		pvq_sysctl(rxq->prq_pvq, &pn->pn_queue_sysctl, list);
		if (rxq->prq_lro_ready) {
			SYSCTL_ADD_U64(&pn->pn_queue_sysctl, list, OID_AUTO, "lro_queued",
			    CTLFLAG_RD, &rxq->prq_lro.lro_queued, 0,
			    "Segments of TCP that were merged here, or might have been");
			SYSCTL_ADD_U64(&pn->pn_queue_sysctl, list, OID_AUTO, "lro_flushed",
			    CTLFLAG_RD, &rxq->prq_lro.lro_flushed, 0,
			    "Packets that they came to");
		}
		txq = &pn->pn_txqs[i];
		list = pv_net_sysctl_queue(pn, txq->ptq_name, "Transmit queue",
		    (uint8_t *)&txq->ptq_stats, pv_net_tx_counters, nitems(pv_net_tx_counters));
		pvq_sysctl(txq->ptq_pvq, &pn->pn_queue_sysctl, list);
	}
}

static int
pv_net_sysctl_pairs(SYSCTL_HANDLER_ARGS)
{
	struct pv_net *pn = arg1;
	u_int n = pn->pn_pairs;
	int error;

	error = sysctl_handle_int(oidp, &n, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	sx_xlock(&pn->pn_sx);
	if (n < 1 || n > (u_int)pn->pn_params.pnp_npairs)
		error = EINVAL;
	else
		error = pn->pn_detaching ? ENXIO : pv_net_use_pairs(pn, n);
	/* All that there are means all that there will be, too. */
	if (error == 0)
		pn->pn_chosen = n == (u_int)pn->pn_params.pnp_npairs ? (u_int)pn->pn_made : n;
	sx_xunlock(&pn->pn_sx);
	return (error);
}

void
pv_net_sysctl_attach(struct pv_net *pn)
{
	struct sysctl_ctx_list *ctx = &pn->pn_sysctl;
	struct sysctl_oid_list *top;

	pv_net_sysctl_queues(pn);
	top = SYSCTL_CHILDREN(device_get_sysctl_tree(pn->pn_dev));
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "resets", CTLFLAG_RD, &pn->pn_resets, 0,
	    "Times the device was reset because it could not be trusted");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "watchdogs", CTLFLAG_RD, &pn->pn_watchdogs, 0,
	    "Times the watchdog found packets that never completed");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "filter_errors", CTLFLAG_RD, &pn->pn_filter_errors, 0,
	    "Times the device did not take a receive filter");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "offload_errors", CTLFLAG_RD, &pn->pn_offload_errors, 0,
	    "Times the device did not take a change of what it offloads");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "rx_offloads", CTLFLAG_RD, &pn->pn_offloads_asked, 0,
	    "What the device is asked to offload of what is received: a mask");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "vlan_errors", CTLFLAG_RD, &pn->pn_vlan_errors, 0,
	    "Times the device did not take a VLAN tag");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "announcements", CTLFLAG_RD, &pn->pn_announcements, 0,
	    "Times the device had our addresses announced");
	SYSCTL_ADD_PROC(ctx, top, OID_AUTO, "queue_pairs", CTLTYPE_UINT | CTLFLAG_RW |
	    CTLFLAG_MPSAFE, pn, 0, pv_net_sysctl_pairs, "IU", "Pairs of queues in use");
	SYSCTL_ADD_INT(ctx, top, OID_AUTO, "max_queue_pairs", CTLFLAG_RD,
	    &pn->pn_params.pnp_npairs, 0, "Pairs of queues that there are");
	SYSCTL_ADD_INT(ctx, top, OID_AUTO, "rx_budget", CTLFLAG_RW, &pn->pn_params.pnp_rx_budget,
	    0, "Receive buffers handled before others get the CPU");
	SYSCTL_ADD_INT(ctx, top, OID_AUTO, "tx_kick", CTLFLAG_RW, &pn->pn_params.pnp_tx_kick, 0,
	    "Packets of an interrupt thread's pass for one notification");
}
