/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4): the network front end of Xen (xen/io/netif.h).
 *
 * This file negotiates with the back end, and connects to one back end after
 * the other.  Rings and shared pages are netfront_ring.c's, packets in them
 * netfront_packet.c's, and everything that FreeBSD sees of the card is
 * pv_net's.
 *
 *	xenbus       xn                             pv_net
 *	------       --                             ------
 *	setup   ->   reads what is offered, makes   alloc, or renegotiate
 *	             the rings
 *	live    ->   the back end is connected      attach, or thaw
 *	             ... packets ...
 *	stop    ->   no more                        freeze: link down, queues
 *	                                            empty
 *	release ->   frees the rings
 *	setup   ->   and so on, with the next one
 *	detach  ->                                  detach, free
 *
 * The interface appears with the first back end, and stays until detach:
 * without a back end it has no link, and what is sent is refused.  Linux's back
 * end reads what was published when the state becomes Connected, so that setup
 * goes there at once.
 *
 * Offloads.  Each end publishes what it accepts (feature-gso-tcpv4 ...), in
 * keys of the same names.  The back end finds checksums by the headers of IPv4
 * and IPv6 alone, so that those of frames with a VLAN tag are finished here.
 *
 * Locking.  xenbus calls its methods one at a time.  xn_connected and
 * xn_carrier are written by them, and read by pv_net without a lock:
 * pv_net_link_change() is called afterwards.
 *
 * Pairs of queues.  As many as there are CPUs, if the back end has them; pv_net
 * spreads what is sent over them, and the back end what is received.  An
 * interface can have as many as the first back end had; with a later one it
 * uses as many of them as that has.  Where grants, event channels or xenstore's
 * nodes are short, there are fewer, and the card connects again when there are
 * more.
 *
 * MTU.  The toolstack's key of that name is watched: a new value replaces what
 * the administrator has set.
 *
 * Gaps.  No control ring: its keys are never written, and the back end chooses
 * the queue of what is received.  XDP headroom is not used.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/module.h>
#include <sys/sysctl.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/pv_cpu.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/pv_tunable.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xenbus.h>
#include <dev/xen/xenstore.h>
#include <dev/xen/netfront/netfront_var.h>

/* A frame's bytes that are not its packet's. */
#define	XN_OVERHEAD	(ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN)

enum {
	XN_CSUM_DISABLE = PV_NET_NTUNABLES,
	XN_TSO_DISABLE,
	XN_LRO_DISABLE,
	XN_RX_GSO_DISABLE,
	XN_SPLIT_DISABLE,
	XN_NUM_QUEUES,
};

static struct pv_tunable xn_tunables[] = {
	PV_NET_TUNABLES,
	[XN_CSUM_DISABLE] = PV_TUNABLE("csum_disable", 0, 0, 1, 0,
	    "Use neither checksum nor segmentation offload"),
	[XN_TSO_DISABLE] = PV_TUNABLE("tso_disable", 0, 0, 1, 0,
	    "Do not leave segmentation of TCP to the back end"),
	[XN_LRO_DISABLE] = PV_TUNABLE("lro_disable", 0, 0, 1, 0,
	    "Do not receive GSO packets, and do not merge TCP segments"),
	[XN_RX_GSO_DISABLE] = PV_TUNABLE("rx_gso_disable", 0, 0, 1, 0,
	    "Do not receive GSO packets"),
	[XN_SPLIT_DISABLE] = PV_TUNABLE("split_disable", 0, 0, 1, 0,
	    "Use one event channel for both directions"),
	[XN_NUM_QUEUES] = PV_TUNABLE("num_queues", 0, 0, XN_MAX_PAIRS, 0,
	    "Pairs of queues at most (0: one for each CPU)"),
};
PV_TUNABLES(xn_tunables, hw, "xn", xn_tunables, "Xen network cards");

static int
xn_tunable(u_int which)
{
	return (xn_tunables[which].pt_value);
}

static const struct xn_counter {
	const char	*name;
	size_t		 offset;
	const char	*what;
} xn_counters[] = {
#define	XN_COUNTER(field, what)						\
	{ #field, offsetof(struct xn_stats, field), what }
	XN_COUNTER(rx_status,
	    "Received buffers that the back end marked as failed"),
	XN_COUNTER(rx_range, "Received buffers with data beyond their page"),
	XN_COUNTER(rx_bufs, "Received frames of too many buffers"),
	XN_COUNTER(rx_prefix, "Received frames with the obsolete GSO prefix"),
	XN_COUNTER(rx_extra,
	    "Received frames with extra info that was not negotiated"),
	XN_COUNTER(tx_error, "Packets that the back end refused"),
	XN_COUNTER(tx_dropped, "Packets that the back end dropped"),
	XN_COUNTER(groups_refused,
	    "Multicast groups that the back end refused"),
	XN_COUNTER(tx_status, "Packets answered with an invalid status"),
#undef XN_COUNTER
};

/* An Ethernet address as the toolstack writes it: "00:16:3e:01:02:03". */
static int
xn_parse_lladdr(const char *text, uint8_t *lladdr)
{
	u_int digit, i;
	char c;

	for (i = 0; i < 3 * ETHER_ADDR_LEN; i++) {
		c = text[i];
		if (i % 3 == 2) {
			if (c != (i == 3 * ETHER_ADDR_LEN - 1 ? '\0' : ':'))
				return (EINVAL);
			continue;
		}
		if (c >= '0' && c <= '9')
			digit = c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			digit = (c | 0x20) - 'a' + 10;
		else
			return (EINVAL);
		lladdr[i / 3] = i % 3 == 0 ? digit << 4 : lladdr[i / 3] | digit;
	}
	return (0);
}

static int
xn_read_lladdr(struct xn_softc *sc, uint8_t *lladdr)
{
	char text[3 * ETHER_ADDR_LEN];
	int error;

	error = xenbus_read_string(sc->xn_dev, XENBUS_FRONT,
	    "mac", text, sizeof(text));
	if (error == 0)
		error = xn_parse_lladdr(text, lladdr);
	if (error != 0) {
		device_printf(sc->xn_dev,
		    "no Ethernet address in \"mac\" of %s (error %d): set "
		    "mac= of the vif\n", xenbus_get_node(sc->xn_dev), error);
		return (error);
	}
	if (ETHER_IS_ZERO(lladdr) || ETHER_IS_MULTICAST(lladdr)) {
		device_printf(sc->xn_dev,
		    "the Ethernet address %6D is %s: not used; set another "
		    "mac= of the vif\n", lladdr,
		    ":", ETHER_IS_ZERO(lladdr) ? "all zero" : "multicast");
		return (EINVAL);
	}
	return (0);
}

/* What both ends can do, less what the administrator has disabled. */
static u_int
xn_read_offloads(device_t dev, bool sg)
{
	u_int offloads = PV_NET_UNTAGGED | PV_NET_TSO_ECN;
	bool csum4, csum6;

	if (xn_tunable(XN_CSUM_DISABLE) != 0)
		return (0);
	csum4 = !xenbus_feature(dev, "feature-no-csum-offload");
	csum6 = xenbus_feature(dev, "feature-ipv6-csum-offload");
	offloads |= PV_NET_RXCSUM;
	if (csum4)
		offloads |= PV_NET_TXCSUM;
	if (csum6)
		offloads |= PV_NET_TXCSUM6;
	if (xn_tunable(XN_LRO_DISABLE) == 0 &&
	    xn_tunable(XN_RX_GSO_DISABLE) == 0)
		offloads |= PV_NET_LRO4 | PV_NET_LRO6;
	if (xn_tunable(XN_TSO_DISABLE) != 0 || !sg)
		return (offloads);
	/*
	 * PV_NET_TSO_ECN: CWR needs no mark, the back end looks at the header
	 * itself.
	 */
	if (csum4 && xenbus_feature(dev, "feature-gso-tcpv4"))
		offloads |= PV_NET_TSO4;
	if (csum6 && xenbus_feature(dev, "feature-gso-tcpv6"))
		offloads |= PV_NET_TSO6;
	return (offloads);
}

/* How many pairs of queues both ends can have. */
static int
xn_read_pairs(struct xn_softc *sc)
{
	int offered;

	offered = xenbus_read_option(sc->xn_dev, XENBUS_BACK,
	    "multi-queue-max-queues", XN_MAX_PAIRS, 1);
	return (pv_queue_count(offered, sc->xn_attached ? sc->xn_max_pairs :
	    xn_tunable(XN_NUM_QUEUES)));
}

/* For how many of them there is enough. */
static int
xn_afford_pairs(struct xn_softc *sc, int wanted)
{
	/*
	 * More than one is to be faster, and must not take from others what
	 * they can't do without.
	 */
	while (wanted > 1 && !xen_gnttab_is_ample(wanted * XN_PAIR_REFS))
		wanted--;
	return (xenbus_queues(sc->xn_dev, wanted));
}

/*
 * The toolstack's MTU; no key, and an invalid one, is the default.  Returns 0,
 * or an error: unknown.
 */
static int
xn_read_mtu(struct xn_softc *sc, u_int *mtu)
{
	uint64_t value;
	int error;

	error = xenbus_read_setting(sc->xn_dev, XENBUS_FRONT,
	    "mtu", ETHERMIN, UINT_MAX, ETHERMTU, &value);
	if (error == 0)
		*mtu = value;
	return (error);
}

static int
xn_negotiate(struct xn_softc *sc, struct pv_net_params *params)
{
	device_t dev = sc->xn_dev;
	uint64_t copies;
	u_int mtu;
	int error;
	bool sg;

	error = xenbus_read_setting(dev, XENBUS_BACK,
	    "feature-rx-copy", 0, UINT64_MAX, 0, &copies);
	if (error != 0)
		return (error);
	if (copies == 0) {
		device_printf(dev,
		    "the back end does not copy received packets (no "
		    "feature-rx-copy): it is not used\n");
		return (EOPNOTSUPP);
	}
	memset(params, 0, sizeof(*params));
	xn_filter_setup(sc);
	sc->xn_split = xn_tunable(XN_SPLIT_DISABLE) == 0 &&
	    xenbus_feature(dev, "feature-split-event-channels");
	/* Without scatter/gather a packet is one request, of one page. */
	sg = xenbus_feature(dev, "feature-sg");
	params->pnp_max_frame = sg ? XEN_NETIF_MAX_TX_SIZE : PAGE_SIZE;
	params->pnp_max_mtu = sc->xn_max_mtu = params->pnp_max_frame -
	    XN_OVERHEAD;
	error = xn_read_mtu(sc, &mtu);
	if (error != 0)
		return (error);
	params->pnp_mtu = MIN(mtu, sc->xn_max_mtu);
	/* An attached interface keeps its own, until the key changes. */
	if (!sc->xn_attached)
		sc->xn_mtu = mtu;
	params->pnp_npairs = xn_read_pairs(sc);
	params->pnp_merge = true;
	params->pnp_tx_segs = XN_TX_SEGS;
	params->pnp_seg_max = PAGE_SIZE;
	params->pnp_offloads = sc->xn_offloads = xn_read_offloads(dev, sg);
	/*
	 * Segments are what a back end sends of packets that came from a wire.
	 */
	params->pnp_soft_lro = xn_tunable(XN_LRO_DISABLE) == 0 &&
	    (sc->xn_offloads & PV_NET_RXCSUM) != 0;
	params->pnp_link_reports = true;
	/* The back end's own interface may be down, or its domain be paused. */
	params->pnp_may_rest = true;
	params->pnp_tunables = xn_tunables;
	return (xn_read_lladdr(sc, params->pnp_lladdr));
}

/*
 * Back ends deliver what their bridge sends to this port, whatever our address
 * is.
 */
static int
xn_set_lladdr(void *softc __unused, const uint8_t *lladdr __unused)
{
	return (0);
}

static void
xn_reset(void *softc)
{
	struct xn_softc *sc = softc;

	xenbus_reset(sc->xn_dev);
}

static bool
xn_link_up(void *softc)
{
	struct xn_softc *sc = softc;

	return (sc->xn_connected && sc->xn_carrier);
}

static const struct pv_net_message_ops xn_message_ops = {
	.pmo_prepare = xn_prepare,
	.pmo_sent = xn_sent,
};

static const struct pv_net_ops xn_ops = {
	.pno_message = &xn_message_ops,
	.pno_encap = xn_encap,
	.pno_decap = xn_decap,
	/*
	 * No pno_stop: what the back end has are copies, in pages that it may
	 * see, and the rings are freed by xenbus's release method.
	 */
	.pno_reset = xn_reset,
	.pno_has_more = xn_has_more,
	.pno_set_filter = xn_set_filter,
	.pno_set_lladdr = xn_set_lladdr,
	.pno_link_up = xn_link_up,
};

/*
 * Without the key, or a number in it, there is a link; without an answer, what
 * there was.
 */
static void
xn_read_carrier(struct xn_softc *sc)
{
	uint64_t carrier;

	if (xenbus_read_setting(sc->xn_dev, XENBUS_BACK,
	    "carrier", 0, UINT64_MAX, 1, &carrier) == 0)
		sc->xn_carrier = carrier != 0;
}

/* Remove what was published for another back end. */
static int
xn_unpublish(device_t dev, struct xenstore_tx *tx)
{
	static const char *const names[] = {
		"tx-ring-ref", "rx-ring-ref", "event-channel",
		"event-channel-tx", "event-channel-rx", "multi-queue-num-queues"
	};
	char name[16];
	int error = 0;
	u_int i;

	for (i = 0; i < nitems(names) && error == 0; i++)
		error = xenbus_remove(dev, tx, names[i]);
	for (i = 0; i < XN_MAX_PAIRS && error == 0; i++) {
		snprintf(name, sizeof(name), "queue-%u", i);
		error = xenbus_remove(dev, tx, name);
	}
	return (error);
}

static int
xn_publish_number(device_t dev, struct xenstore_tx *tx, const char *where,
    const char *what, uint64_t value)
{
	char name[48];

	snprintf(name, sizeof(name), "%s%s", where, what);
	return (xenbus_write_number(dev, tx, name, value));
}

/* A pair of queues: in a folder of its own, unless it is the only one. */
static int
xn_publish_queue(device_t dev, struct xenstore_tx *tx,
    const struct xn_queue *xq)
{
	const struct xn_softc *sc = xq->xq_softc;
	evtchn_port_t tx_port = xen_evtchn_port(xq->xq_tx.xr_channel);
	grant_ref_t tx_ref, rx_ref;
	char where[16] = "";
	int error;

	if (sc->xn_npairs > 1)
		snprintf(where, sizeof(where), "queue-%d/", xq->xq_id);
	(void)grant_ring_refs(*xq->xq_tx.xr_spec.pqs_pvq, &tx_ref);
	(void)grant_ring_refs(*xq->xq_rx.xr_spec.pqs_pvq, &rx_ref);
	error = xn_publish_number(dev, tx, where, "tx-ring-ref", tx_ref);
	if (error == 0)
		error = xn_publish_number(dev, tx, where,
		    "rx-ring-ref", rx_ref);
	if (error != 0)
		return (error);
	if (!sc->xn_split)
		return (xn_publish_number(dev, tx, where,
		    "event-channel", tx_port));
	error = xn_publish_number(dev, tx, where, "event-channel-tx", tx_port);
	if (error == 0)
		error = xn_publish_number(dev, tx, where, "event-channel-rx",
		    xen_evtchn_port(xq->xq_rx.xr_channel));
	return (error);
}

/* What this end accepts. */
static int
xn_publish_features(device_t dev, struct xenstore_tx *tx,
    const struct xn_softc *sc)
{
	const struct {
		const char	*name;
		bool		 value;
	} keys[] = {
		{ "request-rx-copy", true },
		{ "feature-rx-notify", true },
		{ "request-multicast-control", false },
		{ "feature-sg", true },
		{ "feature-no-csum-offload",
		    (sc->xn_offloads & PV_NET_RXCSUM) == 0 },
		{ "feature-ipv6-csum-offload",
		    (sc->xn_offloads & PV_NET_RXCSUM) != 0 },
		{ "feature-gso-tcpv4", (sc->xn_offloads & PV_NET_LRO4) != 0 },
		{ "feature-gso-tcpv6", (sc->xn_offloads & PV_NET_LRO6) != 0 },
	};
	int error = 0;
	size_t i;

	for (i = 0; i < nitems(keys) && error == 0; i++)
		error = xenbus_write_number(dev, tx, keys[i].name,
		    keys[i].value);
	return (error);
}

static int
xn_publish(device_t dev, struct xenstore_tx *tx, void *arg)
{
	struct xn_softc *sc = arg;
	int error, i;

	error = xn_unpublish(dev, tx);
	if (error == 0 && sc->xn_npairs > 1)
		error = xenbus_write_number(dev, tx, "multi-queue-num-queues",
		    sc->xn_npairs);
	for (i = 0; i < sc->xn_npairs && error == 0; i++)
		error = xn_publish_queue(dev, tx, &sc->xn_queues[i]);
	if (error == 0)
		error = xn_publish_features(dev, tx, sc);
	return (error);
}

/*
 * Make the rings for the back end, with half as many pairs if there is not
 * enough for all.
 */
static int
xn_make_pairs(struct xn_softc *sc, struct pv_net_params *params)
{
	int error = 0, wanted = params->pnp_npairs;

	if (!sc->xn_attached) {
		/* There may be one whose set-up failed. */
		pv_net_free(sc->xn_pn);
		error = pv_net_alloc(sc->xn_dev, &xn_ops, sc, params,
		    &sc->xn_pn);
	}
	if (error != 0)
		return (error);
	params->pnp_npairs = xn_afford_pairs(sc, wanted);
	for (;;) {
		pv_net_renegotiate(sc->xn_pn, params);
		sc->xn_npairs = params->pnp_npairs;
		error = xn_rings_create(sc);
		if ((error != ENOSPC && error != ENOMEM) || sc->xn_npairs == 1)
			break;
		params->pnp_npairs /= 2;
	}
	if (error != 0) {
		xenbus_warn(sc->xn_dev, error,
		    "no rings for the back end (error %d)", error);
		return (error);
	}
	pv_dev_set_short(pv_net_dev(sc->xn_pn), PV_DEV_QUEUES, sc->xn_npairs,
	    wanted);
	/* As an interface can have later. */
	if (!sc->xn_attached)
		sc->xn_max_pairs = wanted;
	return (0);
}

static int
xn_setup(device_t dev, enum xenbus_state *next)
{
	struct xn_softc *sc = device_get_softc(dev);
	struct pv_net_params params;
	int error;

	error = xn_negotiate(sc, &params);
	if (error == 0)
		error = xn_make_pairs(sc, &params);
	if (error != 0)
		return (error);
	error = xenbus_publish(dev, xn_publish, sc);
	if (error != 0) {
		xn_rings_free(sc);
		return (error);
	}
	*next = XenbusStateConnected;
	return (0);
}

static void
xn_sysctl_queue(struct xn_softc *sc, struct xn_queue *xq)
{
	struct sysctl_ctx_list *ctx = &sc->xn_sysctl;
	const struct xn_counter *c;
	struct sysctl_oid *node;
	char name[8];

	snprintf(name, sizeof(name), "q%d", xq->xq_id);
	node = SYSCTL_ADD_NODE(ctx,
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->xn_dev)), OID_AUTO, name,
	    CTLFLAG_RD | CTLFLAG_MPSAFE, 0, "Errors of a pair of queues");
	for (c = xn_counters; c < xn_counters + nitems(xn_counters); c++)
		SYSCTL_ADD_U64(ctx, SYSCTL_CHILDREN(node), OID_AUTO, c->name,
		    CTLFLAG_RD, (uint64_t *)((char *)&xq->xq_stats + c->offset),
		    0, c->what);
}

static void
xn_sysctl(struct xn_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->xn_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->xn_dev));
	int i;

	for (i = 0; i < sc->xn_max_pairs; i++)
		xn_sysctl_queue(sc, &sc->xn_queues[i]);
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "connects", CTLFLAG_RD,
	    &sc->xn_connects, 0, "Connections to a back end");
	SYSCTL_ADD_BOOL(ctx, top, OID_AUTO,
	    "group_filter", CTLFLAG_RD, &sc->xn_mcast_on, 0,
	    "The back end filters by our multicast groups");
	SYSCTL_ADD_UINT(ctx, top, OID_AUTO, "groups", CTLFLAG_RD,
	    &sc->xn_ngroups, 0, "Multicast groups in the back end's list");
}

/* Has the key another value than before? */
static void
xn_update_mtu(struct xn_softc *sc)
{
	u_int mtu;
	int error;

	if (xn_read_mtu(sc, &mtu) != 0 || mtu == sc->xn_mtu)
		return;
	sc->xn_mtu = mtu;
	mtu = MIN(mtu, sc->xn_max_mtu);
	error = pv_net_set_mtu(sc->xn_pn, mtu);
	if (error != 0)
		device_printf(sc->xn_dev,
		    "the MTU of %u that the toolstack requests can't be set "
		    "(error %d)\n", mtu, error);
}

static void
xn_mtu_changed(struct xenstore_watch *w, const char *path __unused)
{
	struct xn_softc *sc = w->xw_arg;

	xenbus_change(sc->xn_dev);
}

/* The first back end: an interface for it. */
static int
xn_appear(struct xn_softc *sc)
{
	int error;

	/* Programs may look for them when the interface appears. */
	xn_sysctl(sc);
	error = pv_net_attach(sc->xn_pn);
	if (error != 0) {
		pv_net_detach(sc->xn_pn);
		(void)sysctl_ctx_free(&sc->xn_sysctl);
		sysctl_ctx_init(&sc->xn_sysctl);
		return (error);
	}
	sc->xn_attached = true;
	sc->xn_mtu_watch.xw_changed = xn_mtu_changed;
	sc->xn_mtu_watch.xw_arg = sc;
	error = xenstore_watch_add(&sc->xn_mtu_watch,
	    xenbus_get_node(sc->xn_dev), "mtu");
	if (error != 0)
		device_printf(sc->xn_dev,
		    "no watch (error %d): the MTU stays as it is when the "
		    "toolstack changes it\n", error);
	return (0);
}

static int
xn_live(device_t dev)
{
	struct xn_softc *sc = device_get_softc(dev);

	sc->xn_connects++;
	xn_read_carrier(sc);
	sc->xn_connected = true;
	return (sc->xn_attached ? pv_net_thaw(sc->xn_pn) : xn_appear(sc));
}

/* Packets can be lost, so it does not matter what is in flight. */
static int
xn_stop_backend(device_t dev, bool gone __unused)
{
	struct xn_softc *sc = device_get_softc(dev);

	sc->xn_connected = false;
	if (sc->xn_attached) {
		(void)pv_dev_freeze(pv_net_dev(sc->xn_pn));
		pv_net_link_change(sc->xn_pn);
	}
	return (0);
}

static void
xn_release(device_t dev)
{
	xn_rings_free(device_get_softc(dev));
}

static void
xn_otherend_changed(device_t dev, const char *node)
{
	struct xn_softc *sc = device_get_softc(dev);

	if (!sc->xn_attached)
		return;
	if (node[0] == '\0' || strcmp(node, "carrier") == 0) {
		xn_read_carrier(sc);
		pv_net_link_change(sc->xn_pn);
	}
	/* "": also for xn_mtu_changed(). */
	if (node[0] == '\0')
		xn_update_mtu(sc);
	/* Also for xn_set_filter(). */
	if (node[0] == '\0' && sc->xn_mcast_unknown)
		pv_net_refilter(sc->xn_pn);
}

static int
xn_probe(device_t dev)
{
	if (strcmp(xenbus_get_type(dev), "vif") != 0)
		return (ENXIO);
	device_set_desc(dev, "Xen network front end");
	return (BUS_PROBE_DEFAULT);
}

static int
xn_attach(device_t dev)
{
	struct xn_softc *sc = device_get_softc(dev);
	int i;

	sc->xn_dev = dev;
	for (i = 0; i < XN_MAX_PAIRS; i++) {
		sc->xn_queues[i].xq_softc = sc;
		sc->xn_queues[i].xq_id = i;
	}
	sysctl_ctx_init(&sc->xn_sysctl);
	return (0);
}

static int
xn_detach(device_t dev)
{
	struct xn_softc *sc = device_get_softc(dev);

	/* Calls stop and release. */
	xenbus_leave(dev);
	/* A device's own context goes after its softc. */
	(void)sysctl_ctx_free(&sc->xn_sysctl);
	xenstore_watch_remove(&sc->xn_mtu_watch);
	if (sc->xn_attached)
		pv_net_detach(sc->xn_pn);
	sc->xn_attached = false;
	pv_net_free(sc->xn_pn);
	sc->xn_pn = NULL;
	return (0);
}

static device_method_t xn_methods[] = {
	DEVMETHOD(device_probe, xn_probe),
	DEVMETHOD(device_attach, xn_attach),
	DEVMETHOD(device_detach, xn_detach),

	DEVMETHOD(xenfront_setup, xn_setup),
	DEVMETHOD(xenfront_live, xn_live),
	DEVMETHOD(xenfront_stop, xn_stop_backend),
	DEVMETHOD(xenfront_release, xn_release),
	DEVMETHOD(xenfront_otherend_changed, xn_otherend_changed),

	DEVMETHOD_END
};

static driver_t xn_driver = {
	"xn",
	xn_methods,
	sizeof(struct xn_softc)
};

XENBUS_DRIVER_MODULE(xn, xn_driver, NULL, NULL);
XENBUS_PNP_INFO(xn, "vif");
MODULE_VERSION(xn, 1);
MODULE_DEPEND(xn, pv, 1, 1, 1);
MODULE_DEPEND(xn, pv_net, 1, 1, 1);
MODULE_DEPEND(xn, xen, 1, 1, 1);
