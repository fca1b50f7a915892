/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtnet(4): the virtio network device (VirtIO 1.3, 5.1).
 *
 * This file is the protocol: configuration, queues, and the header that stands
 * before each packet.  Packets and the interface are pv_net's;
 * if_vtnet_features.c has the features, and if_vtnet_ctrl.c the control queue.
 *
 * Header.  10 bytes, or 12 with num_buffers (VERSION_1, or MRG_RXBUF), or 20
 * with the hash of the packet's flow (HASH_REPORT).  A legacy device without
 * ANY_LAYOUT requires a descriptor of its own for it (2.7.4.3, 5.1.6.1); all
 * others take header and frame from one.
 *
 *	MRG_RXBUF      a received frame spans num_buffers buffers; only the
 *		       first has a header
 *	otherwise      a buffer holds the longest frame; GSO packets are
 *		       received if the ring has room for some such buffers
 *		       (vtnet_small_rings())
 *
 * Trust.  A received header is copied once and checked: its values here, and
 * against the frame by pv_net.  num_buffers is from 1 to the size of the ring.
 *
 * Locking.  pno_decap and pno_encap run under their queue's lock, and vtr_left
 * belongs to that of the receive queue.  Everything else is called under
 * pv_net's configuration lock, or while attaching and detaching.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/module.h>
#include <sys/random.h>
#include <sys/sysctl.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/pv_log.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtqueue.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

/*
 * A packet of 64 KB is 17 pages; twice that, for segments that cross a page,
 * and the header.
 */
#define	VTNET_TX_SEGS		36

/*
 * Bigger rings only hold memory; in smaller ones a frame of 64 KB may not fit.
 */
#define	VTNET_MAX_RING		1024
#define	VTNET_MIN_RING		64

/*
 * The longest frame that one buffer holds, when frames can't span buffers, and
 * there is no GSO.
 */
#define	VTNET_MAX_MTU_UNMERGED	9216
#define	VTNET_MAX_MTU		65535

/* The device's address, or a random one if it has none. */
static int
vtnet_read_lladdr(struct vtnet_softc *sc, uint8_t *lladdr)
{
	int error;

	if (!vtnet_has(sc, VIRTIO_NET_F_MAC)) {
		arc4rand(lladdr, ETHER_ADDR_LEN, 0);
		lladdr[0] = (lladdr[0] & ~0x01) | 0x02;
		return (0);
	}
	error = virtio_read_config(sc->vtn_dev,
	    offsetof(struct virtio_net_config, mac), lladdr, ETHER_ADDR_LEN);
	if (error == 0 &&
	    (ETHER_IS_ZERO(lladdr) || ETHER_IS_MULTICAST(lladdr))) {
		device_printf(sc->vtn_dev,
		    "the device's Ethernet address %6D is %s: not "
		    "attached; give the device another one\n", lladdr,
		    ":", ETHER_IS_ZERO(lladdr) ? "all zero" : "multicast");
		error = EINVAL;
	}
	return (error);
}

static u_int
vtnet_offloads(const struct vtnet_softc *sc)
{
	static const struct {
		uint64_t	feature;
		u_int		offload;
	} map[] = {
		{ VIRTIO_NET_F_CSUM, PV_NET_TXCSUM | PV_NET_TXCSUM6 },
		{ VIRTIO_NET_F_GUEST_CSUM, PV_NET_RXCSUM },
		{ VIRTIO_NET_F_GUEST_TSO4, PV_NET_LRO4 },
		{ VIRTIO_NET_F_GUEST_TSO6, PV_NET_LRO6 },
		{ VIRTIO_NET_F_GUEST_ECN, PV_NET_LRO_ECN },
		{ VIRTIO_NET_F_GUEST_USO4, PV_NET_RX_USO },
		{ VIRTIO_NET_F_HOST_TSO4, PV_NET_TSO4 },
		{ VIRTIO_NET_F_HOST_TSO6, PV_NET_TSO6 },
		{ VIRTIO_NET_F_HOST_ECN, PV_NET_TSO_ECN },
	};
	u_int offloads = 0;
	size_t i;

	for (i = 0; i < nitems(map); i++) {
		if (vtnet_has(sc, map[i].feature))
			offloads |= map[i].offload;
	}
	return (offloads);
}

static int
vtnet_read_params(struct vtnet_softc *sc, struct pv_net_params *params)
{
	uint16_t mtu;
	int error;

	memset(params, 0, sizeof(*params));
	error = vtnet_read_lladdr(sc, params->pnp_lladdr);
	if (error == 0)
		error = vtnet_read_mtu(sc, &mtu);
	if (error == 0)
		error = vtnet_mq_read(sc);
	if (error != 0)
		return (error);
	params->pnp_npairs = sc->vtn_npairs;
	params->pnp_soft_lro = vtnet_soft_lro(sc);
	params->pnp_vlan_filter = vtnet_has(sc, VIRTIO_NET_F_CTRL_VLAN);
	params->pnp_promisc = vtnet_has(sc, VIRTIO_NET_F_CTRL_RX);
	params->pnp_hdrlen = sc->vtn_hdrlen;
	params->pnp_hdr_apart = !sc->vtn_modern &&
	    !vtnet_has(sc, VIRTIO_F_ANY_LAYOUT);
	params->pnp_merge = vtnet_has(sc, VIRTIO_NET_F_MRG_RXBUF);
	params->pnp_offloads = vtnet_offloads(sc);
	params->pnp_max_mtu = params->pnp_merge ||
	    (params->pnp_offloads & PV_NET_RX_GSO) != 0 ? VTNET_MAX_MTU :
	    VTNET_MAX_MTU_UNMERGED;
	if (mtu != 0)
		params->pnp_max_mtu = MIN(params->pnp_max_mtu, mtu);
	params->pnp_mtu = vtnet_tunable(sc, VTNET_DEVICE_MTU) != 0 && mtu != 0 ?
	    params->pnp_max_mtu : MIN(params->pnp_max_mtu, ETHERMTU);
	params->pnp_tx_segs = VTNET_TX_SEGS;
	params->pnp_seg_max = BUS_SPACE_MAXSIZE_32BIT;
	params->pnp_phys = !virtio_has(sc->vtn_dev, VIRTIO_F_ACCESS_PLATFORM);
	params->pnp_link_reports = vtnet_has(sc, VIRTIO_NET_F_STATUS);
	params->pnp_queue_reset = virtio_resets_busy_queues(sc->vtn_dev,
	    vtnet_tunable(sc, VTNET_QUEUE_RESET));
	params->pnp_freebsd_names = true;
	params->pnp_tunables = vtnet_tunables;
	return (0);
}

static void
vtnet_encap(void *softc, int pair __unused, struct pv_net_txhdr *hdrs, int n)
{
	static const uint8_t gso_types[] = {
		[PV_NET_GSO_NONE] = VIRTIO_NET_HDR_GSO_NONE,
		[PV_NET_GSO_TCP4] = VIRTIO_NET_HDR_GSO_TCPV4,
		[PV_NET_GSO_TCP6] = VIRTIO_NET_HDR_GSO_TCPV6,
	};
	struct vtnet_softc *sc = softc;
	const struct pv_net_offload *o;
	struct virtio_net_hdr hdr;
	int i;

	for (i = 0; i < n; i++) {
		o = &hdrs[i].pth_offload;
		memset(&hdr, 0, sizeof(hdr));
		if ((o->po_flags & PV_NET_NEEDS_CSUM) != 0) {
			hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
			hdr.csum_start = vtnet_16(sc, o->po_csum_start);
			hdr.csum_offset = vtnet_16(sc, o->po_csum_offset);
		}
		if (o->po_gso_type != PV_NET_GSO_NONE) {
			hdr.gso_type = gso_types[o->po_gso_type];
			if ((o->po_flags & PV_NET_GSO_ECN) != 0)
				hdr.gso_type |= VIRTIO_NET_HDR_GSO_ECN;
			hdr.hdr_len = vtnet_16(sc, o->po_hdr_len);
			hdr.gso_size = vtnet_16(sc, o->po_gso_size);
		}
		/*
		 * num_buffers, and what comes behind, is 0 in what we send
		 * (5.1.6.2.1).
		 */
		if (sc->vtn_hdrlen > VIRTIO_NET_HDR_LEN)
			memset(hdrs[i].pth_hdr, 0, VIRTIO_NET_HDR_LEN_HASH);
		memcpy(hdrs[i].pth_hdr, &hdr,
		    sc->vtn_hdrlen == VIRTIO_NET_HDR_LEN_LEGACY ?
		    VIRTIO_NET_HDR_LEN_LEGACY : VIRTIO_NET_HDR_LEN);
	}
}

/* The header of one packet without GSO. */
static void
vtnet_encap_plain(void *softc, void *to, u_int start, u_int offset)
{
	struct vtnet_softc *sc = softc;
	struct virtio_net_hdr hdr = { .flags = 0 };

	if (start != 0) {
		hdr.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
		hdr.csum_start = vtnet_16(sc, start);
		hdr.csum_offset = vtnet_16(sc, offset);
	}
	if (__predict_true(sc->vtn_hdrlen == VIRTIO_NET_HDR_LEN))
		memcpy(to, &hdr, VIRTIO_NET_HDR_LEN);
	else {
		memset(to, 0, sc->vtn_hdrlen);
		memcpy(to, &hdr, VIRTIO_NET_HDR_LEN_LEGACY);
	}
}

/* The kind of a GSO packet. */
static uint16_t
vtnet_decap_gso(uint8_t type)
{
	switch (type) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return (PV_NET_GSO_NONE);
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN:
		return (PV_NET_GSO_TCP4);
	case VIRTIO_NET_HDR_GSO_TCPV6:
	case VIRTIO_NET_HDR_GSO_TCPV6 | VIRTIO_NET_HDR_GSO_ECN:
		return (PV_NET_GSO_TCP6);
	case VIRTIO_NET_HDR_GSO_UDP_L4:
		return (PV_NET_GSO_UDP);
	case VIRTIO_NET_HDR_GSO_UDP:
		return (PV_NET_GSO_FRAGMENTS);
	default:
		return (PV_NET_GSO_OTHER);
	}
}

static void
vtnet_decap_offload(const struct vtnet_softc *sc,
    const struct virtio_net_hdr *hdr, struct pv_net_offload *o)
{
	/* Other bits are to be ignored (5.1.6.4.2). */
	if ((hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0)
		o->po_flags |= PV_NET_NEEDS_CSUM;
	if ((hdr->flags & VIRTIO_NET_HDR_F_DATA_VALID) != 0)
		o->po_flags |= PV_NET_DATA_VALID;
	if ((hdr->gso_type & VIRTIO_NET_HDR_GSO_ECN) != 0)
		o->po_flags |= PV_NET_GSO_ECN;
	o->po_csum_start = vtnet_16(sc, hdr->csum_start);
	o->po_csum_offset = vtnet_16(sc, hdr->csum_offset);
	o->po_gso_type = vtnet_decap_gso(hdr->gso_type);
	o->po_gso_size = vtnet_16(sc, hdr->gso_size);
}

/* The hash of the flow, and its type. */
static void
vtnet_decap_hash(const struct virtio_net_hdr_hash *hdr,
    struct pv_net_rxhdr *out)
{
	static const uint8_t types[] = {
		[VIRTIO_NET_HASH_REPORT_NONE] = M_HASHTYPE_NONE,
		[VIRTIO_NET_HASH_REPORT_IPv4] = M_HASHTYPE_RSS_IPV4,
		[VIRTIO_NET_HASH_REPORT_TCPv4] = M_HASHTYPE_RSS_TCP_IPV4,
		[VIRTIO_NET_HASH_REPORT_UDPv4] = M_HASHTYPE_RSS_UDP_IPV4,
		[VIRTIO_NET_HASH_REPORT_IPv6] = M_HASHTYPE_RSS_IPV6,
		[VIRTIO_NET_HASH_REPORT_TCPv6] = M_HASHTYPE_RSS_TCP_IPV6,
		[VIRTIO_NET_HASH_REPORT_UDPv6] = M_HASHTYPE_RSS_UDP_IPV6,
	};
	uint16_t report = le16toh(hdr->hash_report);

	/* A type that was not requested counts as none. */
	out->prh_hash_type = report < nitems(types) ? types[report] :
	    M_HASHTYPE_NONE;
	out->prh_hash = le32toh(hdr->hash_value);
}

/*
 * The first buffer of a frame, of which the device states that it wrote `len'
 * bytes.
 */
static void
vtnet_decap_first(struct vtnet_softc *sc, struct vtnet_rxq *rxq, uint32_t len,
    struct pv_net_rxhdr *out)
{
	struct virtio_net_hdr_hash hdr;
	uint16_t buffers = 1;

	if (len < sc->vtn_hdrlen) {
		out->prh_error = PV_NET_RX_SHORT;
		return;
	}
	/* Once: the device may still write to it. */
	if (sc->vtn_hdrlen == VIRTIO_NET_HDR_LEN)
		memcpy(&hdr, out->prh_hdr, VIRTIO_NET_HDR_LEN);
	else {
		memset(&hdr, 0, sizeof(hdr));
		memcpy(&hdr, out->prh_hdr, sc->vtn_hdrlen);
	}
	if (vtnet_has(sc, VIRTIO_NET_F_MRG_RXBUF))
		buffers = vtnet_16(sc, hdr.hdr.num_buffers);
	if (buffers == 0 || buffers > rxq->vtr_pvq->q_size) {
		out->prh_error = PV_NET_RX_BADHDR;
		return;
	}
	rxq->vtr_left = buffers - 1;
	out->prh_skip = sc->vtn_hdrlen;
	out->prh_len = len - sc->vtn_hdrlen;
	vtnet_decap_offload(sc, &hdr.hdr, &out->prh_offload);
	if (vtnet_has(sc, VIRTIO_NET_F_HASH_REPORT))
		vtnet_decap_hash(&hdr, out);
	if (rxq->vtr_left > 0)
		rxq->vtr_first = *out;
}

/*
 * Another buffer of the frame: the metadata in the first one is passed with the
 * last.
 */
static void
vtnet_decap_next(struct vtnet_rxq *rxq, uint32_t len, struct pv_net_rxhdr *out)
{
	const struct pv_net_rxhdr *first = &rxq->vtr_first;

	out->prh_len = len;
	if (--rxq->vtr_left == 0) {
		out->prh_offload = first->prh_offload;
		out->prh_hash = first->prh_hash;
		out->prh_hash_type = first->prh_hash_type;
	}
}

static void
vtnet_decap(void *softc, int pair, const struct pvq_done *done,
    struct pv_net_rxhdr *hdrs, int n)
{
	struct vtnet_softc *sc = softc;
	struct vtnet_rxq *rxq = &sc->vtn_rxqs[pair];
	uint32_t len;
	int i;

	for (i = 0; i < n; i++) {
		len = virtqueue_done_len(&done[i]);
		if (rxq->vtr_left == 0)
			vtnet_decap_first(sc, rxq, len, &hdrs[i]);
		else
			vtnet_decap_next(rxq, len, &hdrs[i]);
		hdrs[i].prh_more = rxq->vtr_left > 0;
	}
}

/*
 * What most buffers have: a frame as a whole, without GSO and without a hash.
 */
CTASSERT(VIRTIO_NET_HDR_F_NEEDS_CSUM == PV_NET_NEEDS_CSUM);
CTASSERT(VIRTIO_NET_HDR_F_DATA_VALID == PV_NET_DATA_VALID);

static struct pv_net_plain
vtnet_decap_plain(void *softc, int pair, const struct pvq_done *done,
    const void *from)
{
	struct vtnet_softc *sc = softc;
	struct pv_net_plain none = { .ppl_len = 0 };
	uint32_t len = virtqueue_done_len(done);
	struct virtio_net_hdr hdr;

	if (sc->vtn_hdrlen != VIRTIO_NET_HDR_LEN ||
	    sc->vtn_rxqs[pair].vtr_left != 0 ||
	    len - VIRTIO_NET_HDR_LEN > UINT16_MAX - VIRTIO_NET_HDR_LEN)
		return (none);
	/* Once: the device may still write to it. */
	memcpy(&hdr, from, sizeof(hdr));
	if (hdr.gso_type != VIRTIO_NET_HDR_GSO_NONE ||
	    vtnet_16(sc, hdr.num_buffers) != 1)
		return (none);
	return ((struct pv_net_plain){ .ppl_len = len - VIRTIO_NET_HDR_LEN,
	    .ppl_flags = hdr.flags & (PV_NET_NEEDS_CSUM | PV_NET_DATA_VALID),
	    .ppl_csum_start = vtnet_16(sc, hdr.csum_start),
	    .ppl_csum_offset = vtnet_16(sc, hdr.csum_offset) });
}

static int
vtnet_stop(void *softc)
{
	struct vtnet_softc *sc = softc;
	int error;

	error = virtio_quiesce(sc->vtn_dev);
	vtnet_ctrl_drain(sc, error == 0);
	return (error);
}

/*
 * Use all pairs that have queues now, if there is memory for their buffers as
 * well.
 */
static void
vtnet_use_more(struct vtnet_softc *sc)
{
	struct pvq_spec queue;
	int i;

	if (!pv_dev_is_short(pv_net_dev(sc->vtn_pn), PV_DEV_QUEUES))
		return;
	for (i = 0; i < sc->vtn_wanted; i++) {
		pv_net_queue(sc->vtn_pn, i, false, &queue);
		sc->vtn_rxqs[i].vtr_pvq = *queue.pqs_pvq;
		if (*queue.pqs_pvq == NULL)
			return;
	}
	if (pv_net_set_pairs(sc->vtn_pn, sc->vtn_wanted) != 0)
		return;
	sc->vtn_npairs = sc->vtn_wanted;
	pv_dev_set_short(pv_net_dev(sc->vtn_pn), PV_DEV_QUEUES, sc->vtn_npairs,
	    sc->vtn_wanted);
}

static int
vtnet_restart(void *softc)
{
	struct vtnet_softc *sc = softc;
	int error, i;

	error = virtio_restart(sc->vtn_dev);
	if (error != 0)
		return (error);
	vtnet_use_more(sc);
	for (i = 0; i < sc->vtn_npairs; i++)
		sc->vtn_rxqs[i].vtr_left = 0;
	virtio_start(sc->vtn_dev);
	return (0);
}

/* Queues are numbered by pairs, the receiving one first (5.1.2). */
static u_int
vtnet_queue_index(int pair, bool tx)
{
	return (2 * pair + (tx ? VIRTIO_NET_Q_TX : VIRTIO_NET_Q_RX));
}

static int
vtnet_stop_queue(void *softc, int pair, bool tx)
{
	struct vtnet_softc *sc = softc;

	return (virtio_stop_queue(sc->vtn_dev, vtnet_queue_index(pair, tx)));
}

static int
vtnet_restart_queue(void *softc, int pair, bool tx)
{
	struct vtnet_softc *sc = softc;
	u_int index = vtnet_queue_index(pair, tx);
	int error;

	if (!tx)
		sc->vtn_rxqs[pair].vtr_left = 0;
	error = virtio_restart_queue(sc->vtn_dev, index);
	if (error == 0)
		vtnet_coal_restore_queue(sc, index);
	return (error);
}

static int
vtnet_set_size(void *softc, int pair, bool tx, u_int size)
{
	struct vtnet_softc *sc = softc;

	if (size < VTNET_MIN_RING)
		return (EINVAL);
	return (virtio_set_queue_size(sc->vtn_dev, vtnet_queue_index(pair, tx),
	    size));
}

static uint16_t
vtnet_status(struct vtnet_softc *sc)
{
	uint16_t status;

	if (virtio_read_config(sc->vtn_dev, offsetof(struct virtio_net_config,
	    status), &status, sizeof(status)) != 0)
		return (0);
	return (status);
}

/* Without STATUS there always is a link (5.1.4.2). */
static bool
vtnet_link_up(void *softc)
{
	struct vtnet_softc *sc = softc;

	return (!vtnet_has(sc, VIRTIO_NET_F_STATUS) ||
	    (vtnet_status(sc) & VIRTIO_NET_S_LINK_UP) != 0);
}

/* A value that is out of range means that it is not known (5.1.4.2). */
static uint32_t
vtnet_link_speed(void *softc, bool *full)
{
	struct vtnet_softc *sc = softc;
	uint32_t mbps;
	uint8_t duplex;

	if (!vtnet_has(sc, VIRTIO_NET_F_SPEED_DUPLEX) ||
	    virtio_read_config(sc->vtn_dev, offsetof(struct virtio_net_config,
	    speed), &mbps, sizeof(mbps)) != 0 || virtio_read_config(sc->vtn_dev,
	    offsetof(struct virtio_net_config, duplex), &duplex,
	    sizeof(duplex)) != 0 || mbps > INT32_MAX)
		return (0);
	*full = duplex != VIRTIO_NET_DUPLEX_HALF;
	return (mbps);
}

static void
vtnet_spec_queue(struct vtnet_softc *sc, struct virtio_queue_spec *spec,
    int pair, bool tx)
{
	pv_net_queue(sc->vtn_pn, pair, tx, &spec->vqs_spec);
	spec->vqs_max_size = VTNET_MAX_RING;
	/* The used length is that of the received frame. */
	spec->vqs_flags = tx ? 0 : VIRTQUEUE_STRICT_LENGTHS;
}

/*
 * Is there memory for the queues of all pairs now?  They are there then, for
 * the next restart.
 */
static bool
vtnet_has_more(void *softc)
{
	struct vtnet_softc *sc = softc;
	struct virtio_queue_spec *specs;
	int error, i, n = 2 * sc->vtn_wanted;

	specs = malloc(n * sizeof(*specs), M_VTNET, M_WAITOK | M_ZERO);
	for (i = 0; i < n; i++)
		vtnet_spec_queue(sc, &specs[i], i / 2,
		    i % 2 == VIRTIO_NET_Q_TX);
	error = virtio_spare_queues(sc->vtn_dev, specs, n);
	free(specs, M_VTNET);
	/* The device has no such queues. */
	if (error == ENXIO)
		pv_dev_set_short(pv_net_dev(sc->vtn_pn), PV_DEV_QUEUES,
		    sc->vtn_npairs, sc->vtn_npairs);
	return (error == 0);
}

static const struct pv_net_ops vtnet_ops = {
	.pno_encap = vtnet_encap,
	.pno_decap = vtnet_decap,
	.pno_encap_plain = vtnet_encap_plain,
	.pno_decap_plain = vtnet_decap_plain,
	.pno_stop = vtnet_stop,
	.pno_restart = vtnet_restart,
	.pno_has_more = vtnet_has_more,
	.pno_stop_queue = vtnet_stop_queue,
	.pno_restart_queue = vtnet_restart_queue,
	.pno_set_size = vtnet_set_size,
	.pno_set_filter = vtnet_set_filter,
	.pno_set_lladdr = vtnet_set_lladdr,
	.pno_set_offloads = vtnet_set_offloads,
	.pno_set_pairs = vtnet_set_pairs,
	.pno_set_coalescing = vtnet_set_coalescing,
	.pno_set_vlan = vtnet_set_vlan,
	.pno_link_speed = vtnet_link_speed,
	.pno_link_up = vtnet_link_up,
};

static void
vtnet_tell_pairs(struct vtnet_softc *sc)
{
	struct pv_dev *pvd = pv_net_dev(sc->vtn_pn);

	if (sc->vtn_npairs == sc->vtn_wanted)
		return;
	pv_dev_lock(pvd);
	(void)pv_net_set_pairs(sc->vtn_pn, sc->vtn_npairs);
	pv_dev_set_short(pvd, PV_DEV_QUEUES, sc->vtn_npairs, sc->vtn_wanted);
	pv_dev_unlock(pvd);
}

/*
 * The control queue is the last of all that the device has; those of pairs not
 * used are left out.  Without it there is one pair (5.1.3.1).
 */
static int
vtnet_alloc_queues(struct vtnet_softc *sc)
{
	struct virtio_queue_spec *specs;
	struct pvq_spec *ctrl, queue;
	int error, i, n = 2 * sc->vtn_max_pairs;

	specs = malloc((n + 1) * sizeof(*specs), M_VTNET, M_WAITOK | M_ZERO);
	for (i = 0; i < 2 * sc->vtn_npairs; i++)
		vtnet_spec_queue(sc, &specs[i], i / 2,
		    i % 2 == VIRTIO_NET_Q_TX);
	if (vtnet_has(sc, VIRTIO_NET_F_CTRL_VQ)) {
		ctrl = &specs[n++].vqs_spec;
		strlcpy(ctrl->pqs_name, "ctrlq", sizeof(ctrl->pqs_name));
		ctrl->pqs_max_segs = VTNET_CTRL_SEGS;
		ctrl->pqs_cpu = -1;
		ctrl->pqs_pvq = &sc->vtn_ctrl.vtc_pvq;
	}
	for (;;) {
		error = virtio_alloc_queues(sc->vtn_dev, specs, n,
		    INTR_TYPE_NET);
		if (error != ENOMEM || sc->vtn_npairs == 1)
			break;
		/* With fewer pairs, if there is no memory for all. */
		i = 2 * sc->vtn_npairs;
		sc->vtn_npairs /= 2;
		while (--i >= 2 * sc->vtn_npairs)
			specs[i].vqs_spec.pqs_pvq = NULL;
	}
	free(specs, M_VTNET);
	if (error != 0)
		return (error);
	vtnet_tell_pairs(sc);
	vtnet_ctrl_check(sc);
	sc->vtn_rxqs = malloc(sc->vtn_wanted * sizeof(*sc->vtn_rxqs), M_VTNET,
	    M_WAITOK | M_ZERO);
	for (i = 0; i < sc->vtn_npairs; i++) {
		pv_net_queue(sc->vtn_pn, i, false, &queue);
		sc->vtn_rxqs[i].vtr_pvq = *queue.pqs_pvq;
	}
	return (0);
}

static void
vtnet_sysctl(struct vtnet_softc *sc)
{
	struct sysctl_ctx_list *ctx = &sc->vtn_sysctl;
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->vtn_dev));

	SYSCTL_ADD_U64(ctx, top, OID_AUTO,
	    "config_changes", CTLFLAG_RD, &sc->vtn_config_changes, 0,
	    "Times the configuration was looked at for a change");
	SYSCTL_ADD_U64(ctx, top, OID_AUTO, "needs_resets", CTLFLAG_RD,
	    &sc->vtn_needs_resets, 0, "Times the device requested a reset");
	vtnet_ctrl_sysctl(sc);
	vtnet_coal_attach(sc);
}

/* Undo the steps of attach, from any level. */
static void
vtnet_teardown(struct vtnet_softc *sc)
{
	switch (sc->vtn_level) {
	case VTNET_ATTACHED:
		vtnet_coal_free(sc);
		pv_net_detach(sc->vtn_pn);
		/* FALLTHROUGH */
	case VTNET_LIVE:
		(void)vtnet_stop(sc);
		/* FALLTHROUGH */
	case VTNET_QUEUES:
		/*
		 * Waits for vtnet_config_change(), which may be about to send a
		 * command.
		 */
		virtio_free_queues(sc->vtn_dev);
		free(sc->vtn_rxqs, M_VTNET);
		sc->vtn_rxqs = NULL;
		/* FALLTHROUGH */
	case VTNET_CTRL:
		vtnet_ctrl_free(sc);
		/* FALLTHROUGH */
	case VTNET_ALLOCATED:
		pv_net_free(sc->vtn_pn);
		sc->vtn_pn = NULL;
		/* FALLTHROUGH */
	case VTNET_NONE:
		sc->vtn_level = VTNET_NONE;
	}
}

static int
vtnet_attach_steps(struct vtnet_softc *sc)
{
	struct pv_net_params params;
	int error;

	error = vtnet_negotiate(sc);
	if (error == 0)
		error = vtnet_read_params(sc, &params);
	if (error != 0)
		return (error);
	error = pv_net_alloc(sc->vtn_dev, &vtnet_ops, sc, &params, &sc->vtn_pn);
	if (error != 0)
		return (error);
	sc->vtn_level = VTNET_ALLOCATED;
	error = vtnet_ctrl_alloc(sc);
	sc->vtn_level = VTNET_CTRL;
	if (error != 0)
		return (error);
	error = vtnet_alloc_queues(sc);
	if (error != 0)
		return (error);
	sc->vtn_level = VTNET_QUEUES;
	virtio_start(sc->vtn_dev);
	sc->vtn_level = VTNET_LIVE;
	/* Programs may look for them when the interface appears. */
	vtnet_sysctl(sc);
	error = pv_net_attach(sc->vtn_pn);
	sc->vtn_level = VTNET_ATTACHED;
	return (error);
}

static int
vtnet_attach(device_t dev)
{
	struct vtnet_softc *sc = device_get_softc(dev);
	int error;

	sc->vtn_dev = dev;
	sysctl_ctx_init(&sc->vtn_sysctl);
	error = vtnet_attach_steps(sc);
	if (error != 0) {
		(void)sysctl_ctx_free(&sc->vtn_sysctl);
		vtnet_teardown(sc);
	}
	return (error);
}

static int
vtnet_detach(device_t dev)
{
	struct vtnet_softc *sc = device_get_softc(dev);
	int error;

	error = virtio_leave(dev);
	if (error != 0)
		return (error);
	/* A device's own context goes after its softc. */
	(void)sysctl_ctx_free(&sc->vtn_sysctl);
	vtnet_teardown(sc);
	return (0);
}

static int
vtnet_suspend(device_t dev)
{
	struct vtnet_softc *sc = device_get_softc(dev);

	return (pv_dev_freeze(pv_net_dev(sc->vtn_pn)));
}

static int
vtnet_resume(device_t dev)
{
	struct vtnet_softc *sc = device_get_softc(dev);

	return (pv_net_thaw(sc->vtn_pn));
}

/* The machine goes down: the device must not write to its memory afterwards. */
static int
vtnet_shutdown(device_t dev)
{
	return (vtnet_suspend(dev));
}

static int
vtnet_config_change(device_t dev)
{
	struct vtnet_softc *sc = device_get_softc(dev);

	sc->vtn_config_changes++;
	if (vtnet_has(sc, VIRTIO_NET_F_GUEST_ANNOUNCE) &&
	    (vtnet_status(sc) & VIRTIO_NET_S_ANNOUNCE) != 0 &&
	    pv_net_announce(sc->vtn_pn))
		vtnet_announced(sc);
	if (virtio_needs_reset(dev)) {
		if (PV_LOGS(++sc->vtn_needs_resets))
			device_printf(dev, "the device requests a reset\n");
		pv_dev_need_reset(pv_net_dev(sc->vtn_pn), PV_DEV_ALL,
		    ETIMEDOUT);
	}
	pv_net_link_change(sc->vtn_pn);
	return (0);
}

static device_method_t vtnet_methods[] = {
	DEVMETHOD(device_probe, virtio_probe),
	DEVMETHOD(device_attach, vtnet_attach),
	DEVMETHOD(device_detach, vtnet_detach),
	DEVMETHOD(device_suspend, vtnet_suspend),
	DEVMETHOD(device_resume, vtnet_resume),
	DEVMETHOD(device_shutdown, vtnet_shutdown),

	DEVMETHOD(virtio_config_changed, vtnet_config_change),

	DEVMETHOD_END
};

static driver_t vtnet_driver = {
	"vtnet",
	vtnet_methods,
	sizeof(struct vtnet_softc)
};

VIRTIO_DRIVER_MODULE(vtnet, vtnet_driver, VIRTIO_ID_NETWORK,
    "VirtIO network device");
VIRTIO_DRIVER_DEPENDS(vtnet);
MODULE_DEPEND(pv_vtnet, pv_net, 1, 1, 1);
