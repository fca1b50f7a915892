/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_net on the model of a transport: what it makes of a device's features and configuration, its
 * commands as they are on the wire, and headers both ways.  The card above it is the least that the
 * driver calls: what it does with packets is pv_net_card_test's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/pcpu.h>
#include <sys/proc.h>

#include <dev/virtio/network/if_vtnet.c>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "model/net_card.h"
#include "model/peer.h"
#include "model/transport.h"

#define	F(name)		VIRTIO_NET_F_ ## name
#define	GUEST_GSO	(F(GUEST_TSO4) | F(GUEST_TSO6) | F(GUEST_ECN) | F(GUEST_USO4) | F(GUEST_USO6))
#define	HOST_GSO	(F(HOST_TSO4) | F(HOST_TSO6) | F(HOST_ECN))
#define	CTRL		F(CTRL_VQ)
#define	PAIRS		3
#define	MOST_PAIRS	4	/* of any test here */
#define	SAID(text)	CHECK(strcmp(dv.said, (text)) == 0, "commands: %s", dv.said)

int mp_ncpus = PAIRS;

static struct device {
	struct transport tr;
	struct vtnet_softc sc;
	struct virtio_net_config *config;
	u_int		 ctrl;		/* its number */
	/* The commands: class, number, and the bytes of their data. */
	char		 said[512];
	uint8_t		 data[4096];
	uint8_t		 table[4096];	/* of the filter's last one */
	size_t		 len;
	uint8_t		 answer;
	int		 refused;	/* class << 8 | command that is refused; -1: none */
	bool		 silent;
	bool		 mute;		/* completes commands, but writes no answer */
	uint32_t	 used;		/* bytes that it says it wrote; 0: one */
} dv;

static struct thread thread;

void
arc4rand(void *to, u_int len, int reseed __unused)
{

	memset(to, 0xff, len);
}

/* The device. */

static void
dv_find(struct transport *tr __unused, u_int queue, struct pvq *q)
{

	transport_set_peer(&dv.tr, queue, split_peer(&split_impls[dv.tr.tr_bus.vb_modern ? 4 : 8], q));
}

/* A command: two bytes of header, data in a segment of its own, and a byte for the answer. */
static void
dv_notified(struct transport *tr __unused, u_int queue)
{
	struct peer *pe = dv.tr.tr_peers[queue];
	struct peer_chain pr;
	const uint8_t *hdr;
	size_t at;
	int ack;

	while (queue == dv.ctrl && !dv.silent && pe->pe_ops->po_fetch(pe, &pr)) {
		CHECK(pr.pr_segs[0].len == 2 && pr.pr_nread <= 2 && pr.pr_nwrite == 1,
		    "%d, %d segments", pr.pr_nread, pr.pr_nwrite);
		ack = pr.pr_nread;
		hdr = (const void *)(uintptr_t)pr.pr_segs[0].addr;
		dv.len = pr.pr_nread == 2 ? pr.pr_segs[1].len : 0;
		memcpy(dv.data, (const void *)(uintptr_t)pr.pr_segs[1].addr, dv.len);
		if (hdr[0] == VIRTIO_NET_CTRL_MAC && hdr[1] == VIRTIO_NET_CTRL_MAC_TABLE_SET)
			memcpy(dv.table, dv.data, dv.len);
		at = strlen(dv.said);
		snprintf(dv.said + at, sizeof(dv.said) - at, "%u/%u:%zu%s", hdr[0], hdr[1], dv.len,
		    dv.len != 1 ? " " : dv.data[0] == 1 ? "=1 " : "=0 ");
		if (!dv.mute)
			*(uint8_t *)(uintptr_t)pr.pr_segs[ack].addr = dv.refused ==
			    (hdr[0] << 8 | hdr[1]) ? VIRTIO_NET_ERR : dv.answer;
		pe->pe_ops->po_complete(pe, pr.pr_id, dv.used != 0 ? dv.used : 1);
		pe->pe_ops->po_publish(pe);
	}
	(void)pe->pe_ops->po_listen(pe);
}

static void
quiet(void)
{

	dv.said[0] = '\0';
}

static void
device_new(bool modern, uint64_t features)
{
	static const struct virtio_net_config config = {
		.mac = { 2, 3, 4, 5, 6, 7 },
		.status = VIRTIO_NET_S_LINK_UP,
		.max_virtqueue_pairs = PAIRS,
		.mtu = 2000,
		.speed = 25000,
		.duplex = VIRTIO_NET_DUPLEX_FULL,
		.rss_max_key_size = VIRTIO_NET_RSS_KEY,
		.rss_max_indirection_table_length = VIRTIO_NET_RSS_TABLE,
		.supported_hash_types = 0x3f,
	};
	u_int i;

	memset(&dv, 0, sizeof(dv));
	PCPU_SET(curthread, &thread);
	PCPU_SET(cpuid, 0);
	mp_ncpus = PAIRS;
	kpi_bounced = (features & VIRTIO_F_ACCESS_PLATFORM) != 0;
	transport_open_for(&dv.tr, modern, (kobj_class_t)&vtnet_driver, &dv.sc);
	dv.config = (void *)dv.tr.tr_config;
	dv.tr.tr_config_size = sizeof(config);
	*dv.config = config;
	dv.tr.tr_offered |= features;
	dv.ctrl = (features & (F(MQ) | F(RSS))) != 0 ? 2 * PAIRS : 2;
	dv.refused = -1;
	net_card_setting = "coal.rx_usecs";
	for (i = 0; i < TR_QUEUES; i++)
		dv.tr.tr_sizes[i] = 128;
	dv.tr.tr_at_setup = dv_find;
	dv.tr.tr_at_notify = dv_notified;
}

static void
device_begin(bool modern, uint64_t features)
{
	int error;

	device_new(modern, features);
	error = vtnet_attach(dv.tr.tr_child);
	CHECK(error == 0, "it does not attach: error %d", error);
	quiet();
}

static void
device_close(void)
{

	CHECK(net == NULL && kpi_run_tasks() == 0, "a card or a task is left");
	CHECK(dv.sc.vtn_level == VTNET_NONE && dv.sc.vtn_pn == NULL && dv.sc.vtn_rxqs == NULL &&
	    dv.sc.vtn_coals == NULL && dv.sc.vtn_ctrl.vtc_mem == NULL, "what was freed is still known");
	transport_close(&dv.tr);
	CHECK(kpi_locks == 0, "%d locks", kpi_locks);
}

static void
device_end(void)
{

	CHECK(vtnet_detach(dv.tr.tr_child) == 0, "it does not detach");
	device_close();
}

/* What is of no use without another feature, or by a setting, is not negotiated. */
static void
features(const void *arg __unused)
{
	static const struct {
		bool	 modern;
		uint64_t offered, accepted;
		u_int	 tunable;
	} table[] = {
		{ true, GUEST_GSO | HOST_GSO, 0, 0 },
		{ true, F(GUEST_CSUM) | F(GUEST_ECN), F(GUEST_CSUM), 0 },
		{ true, F(GUEST_CSUM) | F(GUEST_TSO6) | F(GUEST_ECN) | F(MRG_RXBUF),
		    F(GUEST_CSUM) | F(GUEST_TSO6) | F(GUEST_ECN) | F(MRG_RXBUF), 0 },
		{ true, F(GUEST_CSUM) | F(GUEST_USO4) | F(MRG_RXBUF), F(GUEST_CSUM) | F(MRG_RXBUF), 0 },
		{ true, F(CSUM) | F(HOST_ECN) | F(GUEST_HDRLEN), F(CSUM), 0 },
		{ true, F(CSUM) | HOST_GSO, F(CSUM) | HOST_GSO, 0 },
		{ true, F(CTRL_RX) | F(CTRL_RX_EXTRA) | F(CTRL_VLAN) | F(CTRL_MAC_ADDR) | F(MQ) |
		    F(RSS) | F(HASH_REPORT) | F(NOTF_COAL) | F(VQ_NOTF_COAL) | F(GUEST_ANNOUNCE) |
		    F(STATUS) | F(CTRL_GUEST_OFFLOADS), F(STATUS), 0 },
		{ true, CTRL | F(CTRL_RX_EXTRA) | F(GUEST_ANNOUNCE), CTRL, 0 },
		{ true, CTRL | F(GUEST_ANNOUNCE) | F(STATUS) | F(CTRL_RX) | F(CTRL_RX_EXTRA),
		    CTRL | F(GUEST_ANNOUNCE) | F(STATUS) | F(CTRL_RX) | F(CTRL_RX_EXTRA), 0 },
		{ true, F(CSUM) | F(GUEST_CSUM) | HOST_GSO | GUEST_GSO | F(MRG_RXBUF), F(MRG_RXBUF),
		    VTNET_CSUM_DISABLE },
		{ true, F(CSUM) | HOST_GSO | F(MAC), F(CSUM) | F(MAC), VTNET_TSO_DISABLE },
		{ true, F(GUEST_CSUM) | GUEST_GSO | F(MRG_RXBUF), F(GUEST_CSUM) | F(MRG_RXBUF),
		    VTNET_LRO_DISABLE },
		{ true, CTRL | F(MQ) | F(RSS), CTRL, VTNET_MQ_DISABLE },
		{ false, F(CSUM) | F(MAC) | F(MRG_RXBUF), F(CSUM) | F(MAC) | F(MRG_RXBUF), 0 },
	};
	const uint64_t ring = VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX | VIRTIO_F_VERSION_1;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		device_new(table[i].modern, table[i].offered);
		dv.ctrl = (table[i].accepted & (F(MQ) | F(RSS))) != 0 ? 2 * PAIRS : 2;
		if (table[i].tunable != 0)
			vtnet_tunables[table[i].tunable].pt_value = 1;
		CHECK(vtnet_attach(dv.tr.tr_child) == 0, "%zu: not attached", i);
		if (table[i].tunable != 0)
			vtnet_tunables[table[i].tunable].pt_value = 0;
		CHECK((dv.tr.tr_accepted & ~ring) == table[i].accepted, "%zu: 0x%jx", i,
		    (uintmax_t)(dv.tr.tr_accepted & ~ring));
		device_end();
	}
	/* By name, for all of them. */
	strlcpy(vtnet_tunables[VTNET_DISABLE_FEATURES].pt_text, "csum, mac nonsense", 32);
	vtnet_tunables[VTNET_DISABLE_FEATURES].pt_reported = 0;
	kpi_quiet = true;
	device_begin(true, F(CSUM) | HOST_GSO | F(MAC) | F(STATUS));
	CHECK((dv.tr.tr_accepted & ~ring) == F(STATUS), "0x%jx", (uintmax_t)dv.tr.tr_accepted);
	CHECK(strstr(kpi_line, "unknown features, which are ignored: nonsense") != NULL, "%s",
	    kpi_line);
	device_end();
	kpi_line[0] = '\0';
	device_begin(true, F(CSUM));
	CHECK(kpi_line[0] == '\0', "said again");
	device_end();
	vtnet_tunables[VTNET_DISABLE_FEATURES].pt_text[0] = '\0';
}

/* Each by its name, with those that are of no use without it (5.1.3.1). */
static void
features_by_name(const void *arg __unused)
{
	const uint64_t ctrl = CTRL | F(CTRL_GUEST_OFFLOADS) | F(CTRL_RX) | F(CTRL_MAC_ADDR) |
	    F(CTRL_VLAN) | F(CTRL_RX_EXTRA) | F(GUEST_ANNOUNCE) | F(MQ) | F(VQ_NOTF_COAL) |
	    F(NOTF_COAL) | F(HASH_REPORT) | F(RSS);
	const uint64_t all = ctrl | F(CSUM) | F(GUEST_CSUM) | F(MTU) | F(MAC) | GUEST_GSO | HOST_GSO |
	    F(MRG_RXBUF) | F(STATUS) | F(SPEED_DUPLEX) | F(GUEST_HDRLEN) | VIRTIO_F_RING_RESET;
	const struct {
		const char *names;
		uint64_t without;
	} table[] = {
		{ "", 0 },
		{ "CSUM", F(CSUM) | HOST_GSO | F(GUEST_HDRLEN) },
		{ "GUEST_CSUM", F(GUEST_CSUM) | GUEST_GSO },
		{ "CTRL_GUEST_OFFLOADS", F(CTRL_GUEST_OFFLOADS) },
		{ "MTU", F(MTU) }, { "MAC", F(MAC) },
		{ "GUEST_TSO4", F(GUEST_TSO4) }, { "GUEST_TSO6", F(GUEST_TSO6) },
		{ "GUEST_TSO4 GUEST_TSO6", F(GUEST_TSO4) | F(GUEST_TSO6) | F(GUEST_ECN) },
		{ "GUEST_ECN", F(GUEST_ECN) },
		{ "GUEST_USO4", F(GUEST_USO4) | F(GUEST_USO6) },
		{ "guest_uso6", F(GUEST_USO4) | F(GUEST_USO6) },
		{ "HOST_TSO4", F(HOST_TSO4) }, { "HOST_TSO6", F(HOST_TSO6) },
		{ "HOST_TSO4,HOST_TSO6", HOST_GSO | F(GUEST_HDRLEN) },
		{ "HOST_ECN", F(HOST_ECN) }, { "MRG_RXBUF", F(MRG_RXBUF) },
		{ "STATUS", F(STATUS) | F(GUEST_ANNOUNCE) },
		{ "CTRL_VQ", ctrl }, { "CTRL_RX", F(CTRL_RX) | F(CTRL_RX_EXTRA) },
		{ "CTRL_MAC_ADDR", F(CTRL_MAC_ADDR) }, { "CTRL_VLAN", F(CTRL_VLAN) },
		{ "CTRL_RX_EXTRA", F(CTRL_RX_EXTRA) }, { "GUEST_ANNOUNCE", F(GUEST_ANNOUNCE) },
		{ "MQ", F(MQ) }, { "MQ, rss", F(MQ) | F(RSS) },
		{ "VQ_NOTF_COAL", F(VQ_NOTF_COAL) }, { "NOTF_COAL", F(NOTF_COAL) },
		{ "HASH_REPORT", F(HASH_REPORT) }, { "RSS", F(RSS) },
		{ "SPEED_DUPLEX", F(SPEED_DUPLEX) }, { "GUEST_HDRLEN", F(GUEST_HDRLEN) },
		{ "RING_RESET", VIRTIO_F_RING_RESET },
	};
	/* Words that name none, of which as many are said as a line has room for. */
	static const struct {
		const char *names, *said;
	} unknown[] = {
		{ " ,,  ", NULL }, { "MTU,", NULL }, { "MT", "MT" }, { "MTUU, foo", "MTUU foo" },
		{ "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
		    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
		    "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff g "
		    "h i", "ffffff" },
	};
	const uint64_t ring = VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX | VIRTIO_F_VERSION_1;
	size_t i;
	int lines;

	kpi_quiet = true;
	kpi_tunable = "hw.vtnet.3.disable_features";
	for (i = 0; i < nitems(table); i++) {
		kpi_tunable_value = table[i].names;
		device_new(true, all);
		dv.ctrl = (all & ~table[i].without & (F(MQ) | F(RSS))) != 0 ? 2 * PAIRS : 2;
		lines = kpi_lines;
		CHECK(vtnet_attach(dv.tr.tr_child) == 0 && kpi_lines == lines, "%s: not attached",
		    table[i].names);
		CHECK((dv.tr.tr_accepted & ~ring) == (all & ~table[i].without), "%s: 0x%jx",
		    table[i].names, (uintmax_t)dv.tr.tr_accepted);
		device_end();
	}
	kpi_tunable_value = "any_layout";
	device_begin(false, F(MAC) | VIRTIO_F_ANY_LAYOUT);
	CHECK((dv.tr.tr_accepted & VIRTIO_F_ANY_LAYOUT) == 0 && card.pn_params.pnp_hdr_apart, "0x%jx",
	    (uintmax_t)dv.tr.tr_accepted);
	device_end();
	for (i = 0; i < nitems(unknown); i++) {
		kpi_tunable_value = unknown[i].names;
		device_new(true, F(MTU));
		lines = kpi_lines;
		CHECK(vtnet_attach(dv.tr.tr_child) == 0, "not attached");
		CHECK(kpi_lines == lines + (unknown[i].said != NULL), "%zu: %d lines", i,
		    kpi_lines - lines);
		CHECK(unknown[i].said == NULL || (strncmp(kpi_line, "hw.vtnet.3.disable_features names "
		    "unknown features, which are ignored: ", 71) == 0 && strncmp(kpi_line + 71,
		    unknown[i].said, strlen(unknown[i].said)) == 0), "%zu: %s", i, kpi_line);
		CHECK(((dv.tr.tr_accepted & F(MTU)) != 0) == (i != 1), "%zu: 0x%jx", i,
		    (uintmax_t)dv.tr.tr_accepted);
		device_end();
	}
	kpi_tunable = NULL;
}

/* Each offload is that of its own feature. */
static void
offloads(const void *arg __unused)
{
	static const struct {
		uint64_t features;
		u_int	offloads;
	} each[] = {
		{ F(CSUM), PV_NET_TXCSUM | PV_NET_TXCSUM6 },
		{ F(GUEST_CSUM), PV_NET_RXCSUM },
		{ F(GUEST_CSUM) | F(GUEST_TSO4), PV_NET_RXCSUM | PV_NET_LRO4 },
		{ F(GUEST_CSUM) | F(GUEST_TSO6), PV_NET_RXCSUM | PV_NET_LRO6 },
		{ F(GUEST_CSUM) | F(GUEST_TSO4) | F(GUEST_ECN),
		    PV_NET_RXCSUM | PV_NET_LRO4 | PV_NET_LRO_ECN },
		{ F(CSUM) | F(HOST_TSO4), PV_NET_TXCSUM | PV_NET_TXCSUM6 | PV_NET_TSO4 },
		{ F(CSUM) | F(HOST_TSO6), PV_NET_TXCSUM | PV_NET_TXCSUM6 | PV_NET_TSO6 },
		{ F(CSUM) | F(HOST_TSO4) | F(HOST_ECN),
		    PV_NET_TXCSUM | PV_NET_TXCSUM6 | PV_NET_TSO4 | PV_NET_TSO_ECN },
		{ F(MAC) | F(MTU) | F(STATUS) | F(SPEED_DUPLEX) | F(MRG_RXBUF) | CTRL | F(MQ), 0 },
	};
	size_t i;

	for (i = 0; i < nitems(each); i++) {
		device_begin(true, each[i].features);
		CHECK(card.pn_params.pnp_offloads == each[i].offloads, "features 0x%jx: 0x%x",
		    (uintmax_t)each[i].features, card.pn_params.pnp_offloads);
		device_end();
	}
}

/* What the card is, by what the device offers. */
static void
parameters(const void *arg __unused)
{
	/* A GSO packet is of 17 pages, and its header; without tables eight are to have room. */
	static const struct {
		bool	indirect, room;
		uint16_t places;
	} sizes[] = { { true, false, 35 }, { true, true, 36 }, { false, false, 8 * 18 - 1 },
	    { false, true, 8 * 18 } };
	const struct pv_net_params *p = &card.pn_params;
	size_t i;

	device_begin(true, 0);
	CHECK(p->pnp_lladdr[0] == 0xfe && p->pnp_lladdr[5] == 0xff, "a random address");
	CHECK(p->pnp_npairs == 1 && p->pnp_hdrlen == 12 && !p->pnp_hdr_apart && !p->pnp_merge &&
	    p->pnp_offloads == 0 && p->pnp_mtu == 1500 && p->pnp_max_mtu == 9216 &&
	    !p->pnp_soft_lro && !p->pnp_vlan_filter && !p->pnp_promisc && !p->pnp_link_reports &&
	    p->pnp_phys && p->pnp_queue_reset && p->pnp_tx_segs == 36 && p->pnp_seg_max ==
	    BUS_SPACE_MAXSIZE_32BIT && p->pnp_freebsd_names && p->pnp_tunables == vtnet_tunables &&
	    p->pnp_boundary == 0 && p->pnp_max_frame == 0 && !p->pnp_may_rest, "parameters");
	CHECK(card.pn_ops->pno_link_up(&dv.sc) && card.pn_ops->pno_link_speed(&dv.sc,
	    &(bool){ true }) == 0, "a link");
	device_end();
	device_begin(true, F(MAC) | F(CSUM) | F(GUEST_CSUM) | HOST_GSO | GUEST_GSO | F(MRG_RXBUF) |
	    F(MTU) | F(STATUS) | F(SPEED_DUPLEX) | CTRL | F(CTRL_RX) | F(CTRL_VLAN) | F(MQ) |
	    VIRTIO_F_ACCESS_PLATFORM);
	CHECK(memcmp(p->pnp_lladdr, dv.config->mac, 6) == 0 && p->pnp_npairs == PAIRS &&
	    p->pnp_merge && p->pnp_mtu == 2000 && p->pnp_max_mtu == 2000 && p->pnp_soft_lro &&
	    p->pnp_vlan_filter && p->pnp_promisc && p->pnp_link_reports && !p->pnp_phys,
	    "parameters");
	CHECK(p->pnp_offloads == (PV_NET_TXCSUM | PV_NET_TXCSUM6 | PV_NET_RXCSUM | PV_NET_TSO4 |
	    PV_NET_TSO6 | PV_NET_TSO_ECN | PV_NET_RX_GSO), "0x%x", p->pnp_offloads);
	{
		bool full = false;

		CHECK(card.pn_ops->pno_link_speed(&dv.sc, &full) == 25000 && full, "speed");
		dv.config->duplex = VIRTIO_NET_DUPLEX_HALF;
		CHECK(card.pn_ops->pno_link_speed(&dv.sc, &full) == 25000 && !full, "speed");
		dv.config->speed = INT32_MAX;
		CHECK(card.pn_ops->pno_link_speed(&dv.sc, &full) == INT32_MAX, "speed");
		dv.config->speed = (uint32_t)INT32_MAX + 1;
		CHECK(card.pn_ops->pno_link_speed(&dv.sc, &full) == 0, "speed");
		dv.config->speed = UINT32_MAX;
		CHECK(card.pn_ops->pno_link_speed(&dv.sc, &full) == 0, "speed");
		dv.config->status = 0;
		CHECK(!card.pn_ops->pno_link_up(&dv.sc), "a link");
	}
	device_end();
	vtnet_tunables[VTNET_DEVICE_MTU].pt_value = 0;
	device_begin(true, F(MTU) | F(GUEST_CSUM) | F(GUEST_TSO4));
	CHECK(p->pnp_mtu == 1500 && p->pnp_max_mtu == 2000, "%u, %u", p->pnp_mtu, p->pnp_max_mtu);
	device_end();
	vtnet_tunables[VTNET_DEVICE_MTU].pt_value = 1;
	/* Without a limit of the device's it is that of a frame. */
	for (i = 0; i < 2; i++) {
		device_begin(true, i == 0 ? F(MRG_RXBUF) : F(GUEST_CSUM) | F(GUEST_TSO6));
		CHECK(p->pnp_mtu == 1500 && p->pnp_max_mtu == 65535, "%u, %u", p->pnp_mtu,
		    p->pnp_max_mtu);
		CHECK(p->pnp_soft_lro == (i == 1), "%zu: merged, or not", i);
		device_end();
	}
	vtnet_tunables[VTNET_LRO_DISABLE].pt_value = 1;
	device_begin(true, F(GUEST_CSUM));
	CHECK(!p->pnp_soft_lro, "merged");
	device_end();
	vtnet_tunables[VTNET_LRO_DISABLE].pt_value = 0;
	vtnet_tunables[VTNET_QUEUE_RESET].pt_value = 0;
	device_begin(true, VIRTIO_F_RING_RESET);
	CHECK(!p->pnp_queue_reset, "a queue that is stuck is reset alone");
	device_end();
	vtnet_tunables[VTNET_QUEUE_RESET].pt_value = -1;
	/* Legacy headers. */
	device_begin(false, F(MAC));
	CHECK(p->pnp_hdrlen == 10 && p->pnp_hdr_apart, "%u bytes", p->pnp_hdrlen);
	device_end();
	device_begin(false, F(MAC) | F(MRG_RXBUF) | VIRTIO_F_ANY_LAYOUT);
	CHECK(p->pnp_hdrlen == 12 && !p->pnp_hdr_apart, "%u bytes", p->pnp_hdrlen);
	device_end();
	device_begin(true, CTRL | F(HASH_REPORT));
	CHECK(p->pnp_hdrlen == 20, "%u bytes", p->pnp_hdrlen);
	device_end();
	/* Rings in which a GSO packet has no room. */
	device_new(true, F(GUEST_CSUM) | GUEST_GSO);
	dv.tr.tr_sizes[0] = 32;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && (dv.tr.tr_accepted & GUEST_GSO) == 0, "0x%jx",
	    (uintmax_t)dv.tr.tr_accepted);
	device_end();
	device_new(true, F(GUEST_CSUM) | GUEST_GSO);
	dv.tr.tr_sizes[0] = 64;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && (dv.tr.tr_accepted & GUEST_GSO) == GUEST_GSO,
	    "0x%jx", (uintmax_t)dv.tr.tr_accepted);
	device_end();
	/* Where buffers are merged, rings of any size have room. */
	device_new(true, F(GUEST_CSUM) | GUEST_GSO | F(MRG_RXBUF));
	dv.tr.tr_sizes[0] = 32;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && (dv.tr.tr_accepted & GUEST_GSO) == GUEST_GSO,
	    "0x%jx", (uintmax_t)dv.tr.tr_accepted);
	device_end();
	/* A packed ring has any size. */
	for (i = 0; i < nitems(sizes); i++) {
		device_new(true, F(GUEST_CSUM) | GUEST_GSO | VIRTIO_F_RING_PACKED);
		dv.tr.tr_at_setup = NULL;
		dv.tr.tr_sizes[0] = sizes[i].places;
		if (!sizes[i].indirect)
			dv.tr.tr_offered &= ~VIRTIO_F_INDIRECT_DESC;
		CHECK(vtnet_attach(dv.tr.tr_child) == 0 && ((dv.tr.tr_accepted & GUEST_GSO) != 0) ==
		    sizes[i].room, "%u places: 0x%jx", sizes[i].places,
		    (uintmax_t)dv.tr.tr_accepted);
		device_end();
	}
	/* Rings of pairs that are not used, and that of commands, may be short. */
	device_new(true, F(GUEST_CSUM) | GUEST_GSO | CTRL);
	dv.tr.tr_sizes[2] = 8;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && (dv.tr.tr_accepted & GUEST_GSO) == GUEST_GSO,
	    "0x%jx", (uintmax_t)dv.tr.tr_accepted);
	device_end();
}

/* Values that can't be: the device is used without what they are about, or not at all. */
static void
invalid_values(const void *arg __unused)
{
	static const uint8_t zero[6], group[6] = { 1, 2, 3, 4, 5, 6 };
	int i, lines;

	kpi_quiet = true;
	for (i = 0; i < 2; i++) {
		device_new(true, F(MAC));
		memcpy(dv.config->mac, i == 0 ? zero : group, 6);
		CHECK(vtnet_attach(dv.tr.tr_child) == EINVAL, "%d: attached", i);
		CHECK(strstr(kpi_line, ": not attached; give the device another one") != NULL, "%s",
		    kpi_line);
		device_close();
	}
	/* A configuration that ends before what its features say. */
	device_new(true, F(MTU));
	dv.tr.tr_config_size = offsetof(struct virtio_net_config, mtu);
	CHECK(vtnet_attach(dv.tr.tr_child) != 0, "attached");
	device_close();
	/* A device that takes no queue. */
	device_new(true, F(MAC));
	dv.tr.tr_refuse_queue = true;
	CHECK(vtnet_attach(dv.tr.tr_child) == ENXIO, "attached");
	CHECK((dv.tr.tr_status_seen & VIRTIO_STATUS_DRIVER_OK) == 0, "it was started");
	device_close();
	/* A table that is too short for RSS, of which nothing else was offered. */
	device_new(true, CTRL | F(RSS));
	dv.ctrl = 2;
	dv.config->rss_max_indirection_table_length = VIRTIO_NET_RSS_TABLE - 1;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && (dv.tr.tr_accepted & F(RSS)) == 0 &&
	    card.pn_params.pnp_npairs == 1, "%d pairs", card.pn_params.pnp_npairs);
	device_end();
	for (i = 0; i < 7; i++) {
		device_new(true, CTRL | F(MQ) | F(RSS) | F(HASH_REPORT) | F(MTU));
		dv.ctrl = 2;
		switch (i) {
		case 0:
			dv.config->max_virtqueue_pairs = 0;
			break;
		case 1:
			dv.config->max_virtqueue_pairs = 0x8001;
			break;
		case 2:
			dv.config->rss_max_key_size = VIRTIO_NET_RSS_KEY - 1;
			break;
		case 3:
			dv.config->supported_hash_types = 0x40;
			break;
		case 4:
			dv.config->rss_max_indirection_table_length = VIRTIO_NET_RSS_TABLE - 1;
			break;
		case 5:
			dv.config->mtu = 67;
			break;
		case 6:
			dv.config->mtu = 68;
			break;
		}
		if (i >= 2)
			dv.ctrl = 2 * PAIRS;
		lines = kpi_lines;
		CHECK(vtnet_attach(dv.tr.tr_child) == 0, "%d: not attached", i);
		CHECK(kpi_lines == lines + (i < 6) && (i == 6 || strstr(kpi_line, i == 5 ?
		    "MTU of 67 is invalid" : "invalid numbers of queues or hashes: the device is used "
		    "without (features 0x") != NULL), "%d: %d lines, %s", i, kpi_lines - lines,
		    kpi_line);
		CHECK(((dv.tr.tr_accepted & F(MQ)) != 0) == (i >= 2), "%d: MQ", i);
		CHECK(((dv.tr.tr_accepted & F(RSS)) != 0) == (i >= 5), "%d: RSS", i);
		CHECK(((dv.tr.tr_accepted & F(HASH_REPORT)) != 0) == (i < 2 || i >= 4), "%d: hash", i);
		CHECK(((dv.tr.tr_accepted & F(MTU)) != 0) == (i != 5), "%d: MTU", i);
		CHECK(card.pn_params.pnp_npairs == (i >= 2 ? PAIRS : 1), "%d: %d pairs", i,
		    card.pn_params.pnp_npairs);
		device_end();
	}
}

/* What was read already may be another value when it is read again. */
static void
values_change(const void *arg __unused)
{
	device_begin(true, CTRL | F(MQ));
	dv.config->max_virtqueue_pairs = 0x8001;
	CHECK(vtnet_mq_read(&dv.sc) == EINVAL && dv.sc.vtn_npairs == PAIRS, "%d pairs",
	    dv.sc.vtn_npairs);
	dv.tr.tr_config_size = offsetof(struct virtio_net_config, max_virtqueue_pairs);
	CHECK(vtnet_mq_read(&dv.sc) != 0 && dv.sc.vtn_npairs == PAIRS && dv.sc.vtn_max_pairs == PAIRS,
	    "%d pairs", dv.sc.vtn_npairs);
	dv.tr.tr_config_size = sizeof(*dv.config);
	dv.config->max_virtqueue_pairs = 0x8000;
	CHECK(vtnet_mq_read(&dv.sc) == 0 && dv.sc.vtn_npairs == PAIRS &&
	    dv.sc.vtn_max_pairs == 0x8000, "%d pairs", dv.sc.vtn_max_pairs);
	dv.config->max_virtqueue_pairs = 0;
	CHECK(vtnet_mq_read(&dv.sc) == 0 && dv.sc.vtn_npairs == 1 && dv.sc.vtn_max_pairs == 1,
	    "%d pairs", dv.sc.vtn_npairs);
	dv.config->max_virtqueue_pairs = PAIRS;
	CHECK(vtnet_mq_read(&dv.sc) == 0, "not read");
	device_end();
}

/* Each setting as a command. */
static void
commands(const void *arg __unused)
{
	static const uint8_t addr[6] = { 2, 0, 0, 1, 2, 3 };
	static const uint8_t hosts[3][6] = { { 2, 1 }, { 2, 2 }, { 2, 3 } };
	static uint8_t many[129][6];
	struct pv_net_filter filter = { .pf_nhosts = 2, .pf_hosts = hosts, .pf_ngroups = 1,
	    .pf_groups = &hosts[2] };
	const struct pv_net_ops *ops;
	uint32_t n;
	u_int i;
	int lines;

	kpi_quiet = true;
	device_begin(true, CTRL | F(CTRL_RX) | F(CTRL_RX_EXTRA) | F(CTRL_VLAN) | F(CTRL_MAC_ADDR) |
	    F(GUEST_CSUM) | GUEST_GSO | F(MRG_RXBUF) | F(CTRL_GUEST_OFFLOADS) | F(MQ) |
	    VIRTIO_F_ACCESS_PLATFORM);
	ops = card.pn_ops;
	lines = kpi_lines;
	CHECK(ops->pno_set_lladdr(&dv.sc, addr) == 0 && memcmp(dv.data, addr, 6) == 0, "address");
	CHECK(ops->pno_set_vlan(&dv.sc, 0x123, true) == 0 && memcmp(dv.data, "\x23\x01", 2) == 0,
	    "tag");
	CHECK(ops->pno_set_vlan(&dv.sc, 0x124, false) == 0, "tag");
	CHECK(ops->pno_set_pairs(&dv.sc, 2) == 0 && memcmp(dv.data, "\2\0", 2) == 0, "pairs");
	SAID("1/1:6 2/0:2 2/1:2 4/0:2 ");
	/* The queue of commands is polled, after a start as well; a frame is as long as is said. */
	CHECK(!dv.tr.tr_peers[dv.ctrl]->pe_ops->po_interrupts(dv.tr.tr_peers[dv.ctrl]), "interrupt");
	CHECK(vtnet_suspend(dv.tr.tr_child) == 0 && vtnet_resume(dv.tr.tr_child) == 0, "resumed");
	CHECK(ops->pno_set_vlan(&dv.sc, 0x124, false) == 0, "tag");
	CHECK(!dv.tr.tr_peers[dv.ctrl]->pe_ops->po_interrupts(dv.tr.tr_peers[dv.ctrl]), "interrupt");
	CHECK(virtqueue_strict_lengths(card.pn_pvqs[0]) && !virtqueue_strict_lengths(card.pn_pvqs[1]),
	    "lengths");
	quiet();
	CHECK(ops->pno_set_offloads(&dv.sc, PV_NET_RXCSUM | PV_NET_LRO6 | PV_NET_RX_USO) == 0 &&
	    *(uint64_t *)dv.data == (F(GUEST_CSUM) | F(GUEST_TSO6) | F(GUEST_USO4) | F(GUEST_USO6)),
	    "0x%jx", (uintmax_t)*(uint64_t *)dv.data);
	CHECK(ops->pno_set_offloads(&dv.sc, PV_NET_LRO4 | PV_NET_LRO_ECN) == 0 &&
	    *(uint64_t *)dv.data == (F(GUEST_TSO4) | F(GUEST_ECN)), "0x%jx",
	    (uintmax_t)*(uint64_t *)dv.data);
	SAID("5/0:8 5/0:8 ");
	/* The filter's table first, then what is received besides. */
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0 && kpi_lines == lines, "filter");
	SAID("1/0:26 0/1:1=0 0/2:1=0 0/3:1=0 0/0:1=0 ");
	CHECK(memcmp(dv.table, "\2\0\0\0\2\1\0\0\0\0\2\2\0\0\0\0\1\0\0\0\2\3\0\0\0\0", 26) ==
	    0, "the table");
	filter = (struct pv_net_filter){ .pf_promisc = true, .pf_allmulti = true, .pf_allhosts = true };
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0, "filter");
	SAID("1/0:8 0/1:1=1 0/2:1=1 0/3:1=0 0/0:1=1 ");
	filter = (struct pv_net_filter){ .pf_ngroups = 128, .pf_groups = (void *)many, .pf_nhosts = 128,
	    .pf_hosts = (void *)many };
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0 && kpi_sysctl_value("filter_overflows") == 0,
	    "filter");
	SAID("1/0:1544 0/1:1=0 0/2:1=0 0/3:1=0 0/0:1=0 ");
	memcpy(&n, dv.table, 4);
	CHECK(n == 128 && memcmp(dv.table + 4 + 128 * 6, &n, 4) == 0, "%u addresses", n);
	filter.pf_ngroups = filter.pf_nhosts = 129;
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0 && kpi_sysctl_value("filter_overflows") == 2,
	    "filter");
	SAID("1/0:8 0/1:1=1 0/2:1=1 0/3:1=0 0/0:1=0 ");
	filter = (struct pv_net_filter){ .pf_nhosts = 1, .pf_hosts = hosts };
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0, "filter");
	SAID("1/0:14 0/1:1=0 0/2:1=0 0/3:1=1 0/0:1=0 ");
	/* What is refused is replaced by more. */
	dv.refused = 1 << 8;
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0, "filter");
	SAID("1/0:14 0/1:1=1 0/2:1=1 0/3:1=0 0/0:1=0 ");
	dv.refused = 1;
	filter.pf_allmulti = true;
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0, "filter");
	SAID("1/0:14 0/1:1=1 0/2:1=0 0/3:1=0 0/0:1=1 ");
	CHECK(strstr(kpi_line, "refused to change its receive filter") != NULL, "%s", kpi_line);
	dv.refused = 2;
	filter = (struct pv_net_filter){ .pf_allhosts = true };
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == 0, "filter");
	SAID("1/0:8 0/1:1=0 0/2:1=1 0/3:1=1 0/0:1=1 ");
	dv.refused = 0;
	quiet();
	CHECK(ops->pno_set_filter(&dv.sc, &filter) == EIO, "filter");
	SAID("1/0:8 0/1:1=0 0/2:1=1 0/3:1=1 0/0:1=0 ");
	CHECK(kpi_sysctl_value("ctrl_errors") == 4 && kpi_sysctl_value("ctrl_timeouts") == 0, "%ju",
	    (uintmax_t)kpi_sysctl_value("ctrl_errors"));
	dv.refused = -1;
	net_card_setting = "coal.rx_usecs";
	/* No answer is none of those that there were. */
	CHECK(ops->pno_set_vlan(&dv.sc, 1, true) == 0, "tag");
	dv.mute = true;
	CHECK(ops->pno_set_vlan(&dv.sc, 1, true) == EIO, "tag");
	dv.mute = false;
	/* The byte counts, whatever length is said: the odd one is counted. */
	CHECK(kpi_sysctl_value("ctrl_lengths") == 0, "lengths");
	dv.used = 2;
	CHECK(ops->pno_set_vlan(&dv.sc, 1, true) == 0 && kpi_sysctl_value("ctrl_lengths") == 1, "%ju",
	    (uintmax_t)kpi_sysctl_value("ctrl_lengths"));
	dv.used = 0;
	CHECK(ops->pno_set_vlan(&dv.sc, 1, true) == 0 && kpi_sysctl_value("ctrl_lengths") == 1, "%ju",
	    (uintmax_t)kpi_sysctl_value("ctrl_lengths"));
	i = kpi_sysctl_value("ctrl_commands");
	CHECK(ops->pno_set_vlan(&dv.sc, 1, true) == 0 && kpi_sysctl_value("ctrl_commands") == i + 1,
	    "counted");
	device_end();
	/* Without EXTRA all hosts are had by promiscuous mode; without CTRL_RX there is no filter. */
	device_begin(true, CTRL | F(CTRL_RX));
	CHECK(card.pn_ops->pno_set_filter(&dv.sc, &filter) == 0, "filter");
	SAID("1/0:8 0/1:1=0 0/0:1=1 ");
	CHECK(card.pn_ops->pno_set_lladdr(&dv.sc, addr) == EOPNOTSUPP, "address");
	CHECK(card.pn_ops->pno_set_offloads(&dv.sc, 0) == 0, "offloads");
	SAID("1/0:8 0/1:1=0 0/0:1=1 ");
	device_end();
	device_begin(true, CTRL);
	CHECK(card.pn_ops->pno_set_filter(&dv.sc, &filter) == 0 && card.pn_ops->pno_set_pairs(&dv.sc,
	    1) == 0, "filter");
	SAID("");
	device_end();
	device_begin(false, F(MAC));
	CHECK(card.pn_ops->pno_set_lladdr(&dv.sc, addr) == 0 && memcmp(dv.config->mac, addr, 6) == 0,
	    "a legacy device has it in its configuration");
	device_end();
}

/* Hashes and their table. */
static void
hashes(const void *arg __unused)
{
	u_int i;

	device_begin(true, CTRL | F(RSS));
	CHECK(card.pn_ops->pno_set_pairs(&dv.sc, 2) == 0, "pairs");
	SAID("4/1:307 ");
	CHECK(*(uint32_t *)dv.data == 0x3f && *(uint16_t *)(dv.data + 4) == 127 &&
	    *(uint16_t *)(dv.data + 6) == 0, "head");
	for (i = 0; i < 128; i++)
		CHECK(*(uint16_t *)(dv.data + 8 + 2 * i) == i % 2, "entry %u", i);
	CHECK(*(uint16_t *)(dv.data + 264) == 2 && dv.data[266] == 40, "queues, key");
	for (i = 0; i < 40; i += 2)
		CHECK(dv.data[267 + i] == 0x6d && dv.data[268 + i] == 0x5a, "key, byte %u", i);
	device_end();
	device_new(true, CTRL | F(MQ) | F(HASH_REPORT));
	dv.config->supported_hash_types = 0xff05;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0, "not attached");
	quiet();
	CHECK(card.pn_ops->pno_set_pairs(&dv.sc, 3) == 0, "pairs");
	SAID("4/0:2 4/2:53 ");
	CHECK(*(uint32_t *)dv.data == 5 && dv.data[12] == 40 && dv.data[13] == 0x6d, "hashes");
	dv.refused = 4 << 8;
	quiet();
	CHECK(card.pn_ops->pno_set_pairs(&dv.sc, 3) == EIO, "pairs");
	SAID("4/0:2 ");
	device_end();
}

static u_int naps;
static u_int answers_after;	/* so many */

/* A millisecond in which the device may answer. */
static void
nap(void)
{

	kpi_pass(SBT_1MS);
	if (++naps == answers_after) {
		dv.silent = false;
		dv_notified(&dv.tr, dv.ctrl);
	}
}

/* An answer is waited for in a loop at first, and then sleeping, for three seconds. */
static void
patience(const void *arg __unused)
{
	static const u_int after[] = { 1, 100, 2998, 0 };
	size_t i;

	kpi_quiet = true;
	kpi_pause = nap;
	for (i = 0; i < nitems(after); i++) {
		device_begin(true, CTRL | F(CTRL_VLAN) | VIRTIO_F_ACCESS_PLATFORM);
		dv.silent = true;
		naps = 0;
		answers_after = after[i];
		kpi_delayed = 0;
		CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) == (after[i] == 0 ? ETIMEDOUT : 0),
		    "%u: answered, or not", after[i]);
		CHECK(kpi_delayed == 1000, "%ju microseconds", (uintmax_t)kpi_delayed);
		if (after[i] != 0)
			CHECK(naps == after[i], "%u naps", naps);
		else
			CHECK(naps >= 3000 && naps <= 3002, "%u naps", naps);
		CHECK(kpi_sysctl_value("ctrl_timeouts") == (after[i] == 0) &&
		    kpi_sysctl_value("ctrl_commands") == 1 && kpi_sysctl_value("ctrl_errors") == 0,
		    "counters");
		(void)kpi_run_tasks();
		dv.silent = false;
		CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) == 0, "not answered");
		device_end();
	}
	kpi_pause = NULL;
}

/* A device that does not answer is reset, and then used without commands if that does not help. */
static void
silence(const void *arg __unused)
{
	int resets;

	kpi_quiet = true;
	device_begin(true, CTRL | F(CTRL_VLAN));
	kpi_delayed = 0;
	dv.silent = true;
	kpi_pause = NULL;
	kpi_pass(0);
	CHECK(pvq_inflight(dv.sc.vtn_ctrl.vtc_pvq) == 0, "a command");
	dv.sc.vtn_ctrl.vtc_pvq->q_fault = PVQ_FAULT_OWNER;
	CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) != 0, "answered");
	CHECK(kpi_sysctl_value("ctrl_timeouts") == 1 && strstr(kpi_line,
	    "does not answer control command 2/0: it will be reset") != NULL, "%s", kpi_line);
	CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) == ENXIO &&
	    kpi_sysctl_value("ctrl_timeouts") == 1, "asked again");
	resets = dv.tr.tr_resets;
	(void)kpi_run_tasks();
	CHECK(dv.tr.tr_resets == resets + 2, "%d resets", dv.tr.tr_resets - resets);
	dv.sc.vtn_ctrl.vtc_pvq->q_fault = PVQ_FAULT_OWNER;
	CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) != 0, "answered");
	CHECK(strstr(kpi_line, "going on without") != NULL && kpi_run_tasks() == 0, "%s", kpi_line);
	/* With the next start it is asked again. */
	dv.silent = false;
	CHECK(vtnet_suspend(dv.tr.tr_child) == 0 && vtnet_resume(dv.tr.tr_child) == 0, "resumed");
	CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) == 0, "not answered");
	device_end();
	/* A ring that is too short for a command. */
	device_new(true, CTRL | F(CTRL_VLAN));
	dv.tr.tr_sizes[2] = 2;
	dv.tr.tr_offered &= ~VIRTIO_F_INDIRECT_DESC;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && strcmp(kpi_line, "the control queue holds 2 "
	    "descriptors, and a command is 3: going on without\n") == 0, "not attached: %s", kpi_line);
	CHECK(card.pn_ops->pno_set_vlan(&dv.sc, 5, true) == ENXIO &&
	    kpi_sysctl_value("ctrl_commands") == 0, "asked");
	device_end();
}

/* Headers of what is sent. */
static void
headers_sent(const void *arg __unused)
{
	static const struct {
		struct pv_net_offload o;
		const char *bytes;
	} table[] = {
		{ { 0, PV_NET_GSO_NONE, 0, 0, 0, 0 }, "\0\0\0\0\0\0\0\0\0\0\0\0" },
		{ { PV_NET_NEEDS_CSUM, PV_NET_GSO_NONE, 0, 0, 34, 6 },
		    "\1\0\0\0\0\0\x22\0\6\0\0\0" },
		{ { PV_NET_NEEDS_CSUM, PV_NET_GSO_TCP4, 1448, 66, 34, 16 },
		    "\1\1\x42\0\xa8\5\x22\0\x10\0\0\0" },
		{ { PV_NET_NEEDS_CSUM | PV_NET_GSO_ECN, PV_NET_GSO_TCP6, 1000, 74, 54, 16 },
		    "\1\x84\x4a\0\xe8\3\x36\0\x10\0\0\0" },
	};
	static const struct {
		bool	 modern;
		uint64_t features;
		u_int	 len;
	} kinds[] = { { true, 0, 12 }, { false, 0, 10 }, { true, CTRL | F(HASH_REPORT), 20 } };
	struct pv_net_txhdr hdrs[nitems(table)];
	u_char bytes[nitems(table)][24];
	size_t i, k;
	u_int b;

	for (k = 0; k < nitems(kinds); k++) {
		device_begin(kinds[k].modern, kinds[k].features);
		memset(bytes, 0xa5, sizeof(bytes));
		/* Each after one that has more in it. */
		for (i = 0; i < nitems(table); i++)
			hdrs[nitems(table) - 1 - i] = (struct pv_net_txhdr){ .pth_hdr = bytes[i],
			    .pth_offload = table[i].o };
		card.pn_ops->pno_encap(&dv.sc, 0, hdrs, nitems(table));
		for (i = 0; i < nitems(table); i++) {
			for (b = 0; b < 24; b++)
				CHECK(bytes[i][b] == (b >= kinds[k].len ? 0xa5 : b < 12 ?
				    (u_char)table[i].bytes[b] : 0), "%zu: header %zu, byte %u: 0x%x",
				    k, i, b, bytes[i][b]);
		}
		for (i = 0; i < 2; i++) {
			memset(bytes[0], 0xa5, 24);
			card.pn_ops->pno_encap_plain(&dv.sc, bytes[0], table[i].o.po_csum_start,
			    table[i].o.po_csum_offset);
			for (b = 0; b < 24; b++)
				CHECK(bytes[0][b] == (b >= kinds[k].len ? 0xa5 : b < 12 ?
				    (u_char)table[i].bytes[b] : 0), "%zu: plain %zu, byte %u", k, i, b);
		}
		device_end();
	}
}

/* What is received: one buffer, or several. */
static struct pv_net_rxhdr
received_by(int pair, const void *hdr, u_int len)
{
	struct pv_net_rxhdr out = { .prh_hdr = hdr, .prh_room = 2048 };
	struct pvq_done done = { .pd_result = len };

	card.pn_ops->pno_decap(&dv.sc, pair, &done, &out, 1);
	return (out);
}

static struct pv_net_rxhdr
received(const void *hdr, u_int len)
{

	return (received_by(0, hdr, len));
}

static void
headers_received(const void *arg __unused)
{
	static const struct {
		uint8_t	type;
		u_int	is, flags;
	} types[] = {
		{ 0, PV_NET_GSO_NONE, 0 }, { 1, PV_NET_GSO_TCP4, 0 },
		{ 0x81, PV_NET_GSO_TCP4, PV_NET_GSO_ECN }, { 4, PV_NET_GSO_TCP6, 0 },
		{ 0x84, PV_NET_GSO_TCP6, PV_NET_GSO_ECN }, { 5, PV_NET_GSO_UDP, 0 },
		{ 3, PV_NET_GSO_FRAGMENTS, 0 }, { 2, PV_NET_GSO_OTHER, 0 },
		{ 0x80, PV_NET_GSO_OTHER, PV_NET_GSO_ECN }, { 0x83, PV_NET_GSO_OTHER, PV_NET_GSO_ECN },
	};
	static const u_int marks[] = { 0, PV_NET_NEEDS_CSUM, PV_NET_DATA_VALID,
	    PV_NET_NEEDS_CSUM | PV_NET_DATA_VALID };
	static const u_int reports[] = { M_HASHTYPE_NONE, M_HASHTYPE_RSS_IPV4, M_HASHTYPE_RSS_TCP_IPV4,
	    M_HASHTYPE_RSS_UDP_IPV4, M_HASHTYPE_RSS_IPV6, M_HASHTYPE_RSS_TCP_IPV6,
	    M_HASHTYPE_RSS_UDP_IPV6, M_HASHTYPE_NONE, M_HASHTYPE_NONE, M_HASHTYPE_NONE };
	struct virtio_net_hdr_hash hdr;
	struct pv_net_rxhdr out;
	struct pv_net_plain plain;
	struct pvq_done done;
	size_t i;

	device_begin(true, F(MRG_RXBUF) | VIRTIO_F_RING_RESET);
	for (i = 0; i < nitems(types); i++) {
		memset(&hdr, 0, sizeof(hdr));
		hdr.hdr = (struct virtio_net_hdr){ .flags = 7, .gso_type = types[i].type,
		    .gso_size = 1400, .csum_start = 40, .csum_offset = 16, .num_buffers = 1 };
		out = received(&hdr, 1012);
		CHECK(out.prh_error == PV_NET_RX_OK && out.prh_skip == 12 && out.prh_len == 1000 &&
		    !out.prh_more && out.prh_hash_type == 0, "type %u", types[i].type);
		CHECK(out.prh_offload.po_gso_type == types[i].is && out.prh_offload.po_flags ==
		    (PV_NET_NEEDS_CSUM | PV_NET_DATA_VALID | types[i].flags) &&
		    out.prh_offload.po_gso_size == 1400 && out.prh_offload.po_csum_start == 40 &&
		    out.prh_offload.po_csum_offset == 16, "type %u: %u, 0x%x", types[i].type,
		    out.prh_offload.po_gso_type, out.prh_offload.po_flags);
		done = (struct pvq_done){ .pd_result = 1012 };
		plain = card.pn_ops->pno_decap_plain(&dv.sc, 0, &done, &hdr);
		CHECK(plain.ppl_len == (types[i].type == 0 ? 1000 : 0) && (plain.ppl_len == 0 ||
		    (plain.ppl_flags == (PV_NET_NEEDS_CSUM | PV_NET_DATA_VALID) &&
		    plain.ppl_csum_start == 40 && plain.ppl_csum_offset == 16)), "type %u",
		    types[i].type);
	}
	for (i = 0; i < 8; i++) {
		hdr.hdr = (struct virtio_net_hdr){ .flags = i, .num_buffers = 1 };
		out = received(&hdr, 1012);
		plain = card.pn_ops->pno_decap_plain(&dv.sc, 0, &done, &hdr);
		CHECK(out.prh_offload.po_flags == marks[i % 4] && plain.ppl_flags == marks[i % 4],
		    "flags %zu: 0x%x, or 0x%x", i, out.prh_offload.po_flags, plain.ppl_flags);
	}
	/* A frame of three buffers: its metadata is the first one's. */
	hdr.hdr = (struct virtio_net_hdr){ .flags = 1, .gso_type = 1, .gso_size = 1448,
	    .num_buffers = 3 };
	out = received(&hdr, 2000);
	CHECK(out.prh_more && out.prh_len == 1988, "the first");
	done = (struct pvq_done){ .pd_result = 100 };
	hdr.hdr.gso_type = 0;
	hdr.hdr.num_buffers = 1;
	CHECK(card.pn_ops->pno_decap_plain(&dv.sc, 0, &done, &hdr).ppl_len == 0, "in the middle");
	out = received(&hdr, 2000);
	CHECK(out.prh_more && out.prh_skip == 0 && out.prh_len == 2000, "the second");
	out = received(&hdr, 7);
	CHECK(!out.prh_more && out.prh_skip == 0 && out.prh_len == 7 &&
	    out.prh_offload.po_gso_type == PV_NET_GSO_TCP4 && out.prh_offload.po_flags ==
	    PV_NET_NEEDS_CSUM && out.prh_offload.po_gso_size == 1448, "the last");
	/* Of two. */
	hdr.hdr.gso_type = 4;
	hdr.hdr.num_buffers = 2;
	CHECK(received(&hdr, 2000).prh_more, "the first of two");
	hdr.hdr.gso_type = 0;
	out = received(&hdr, 7);
	CHECK(!out.prh_more && out.prh_offload.po_gso_type == PV_NET_GSO_TCP6, "the second of two");
	/* What can't be. */
	hdr.hdr.num_buffers = 0;
	CHECK(received(&hdr, 100).prh_error == PV_NET_RX_BADHDR, "no buffers");
	hdr.hdr.num_buffers = 129;
	CHECK(received(&hdr, 100).prh_error == PV_NET_RX_BADHDR, "more than the ring");
	hdr.hdr.num_buffers = 1;
	CHECK(received(&hdr, 11).prh_error == PV_NET_RX_SHORT && received(&hdr, 0).prh_error ==
	    PV_NET_RX_SHORT, "short");
	CHECK(received(&hdr, 12).prh_error == PV_NET_RX_OK, "without data");
	for (i = 0; i < 2; i++) {
		done = (struct pvq_done){ .pd_result = i == 0 ? 11 : 65536 };
		CHECK(card.pn_ops->pno_decap_plain(&dv.sc, 0, &done, &hdr).ppl_len == 0, "length");
		done = (struct pvq_done){ .pd_result = i == 0 ? 13 : 65535 };
		CHECK(card.pn_ops->pno_decap_plain(&dv.sc, 0, &done, &hdr).ppl_len ==
		    done.pd_result - 12, "length");
	}
	hdr.hdr.num_buffers = 128;
	CHECK(received(&hdr, 100).prh_more, "the whole ring");
	/* It is forgotten with a start. */
	CHECK(vtnet_suspend(dv.tr.tr_child) == 0 && vtnet_resume(dv.tr.tr_child) == 0, "resumed");
	hdr.hdr.num_buffers = 1;
	out = received(&hdr, 100);
	CHECK(!out.prh_more && out.prh_skip == 12, "it goes on");
	/* Of the queue alone, too. */
	hdr.hdr.num_buffers = 3;
	CHECK(received(&hdr, 100).prh_more, "three buffers");
	CHECK(card.pn_ops->pno_stop_queue(&dv.sc, 0, false) == 0, "stopped");
	card_reclaim(&card, 0, 0);
	CHECK(card.pn_ops->pno_restart_queue(&dv.sc, 0, false) == 0, "started");
	hdr.hdr.num_buffers = 1;
	out = received(&hdr, 100);
	CHECK(!out.prh_more && out.prh_skip == 12, "it goes on");
	device_end();
	device_begin(true, CTRL | F(HASH_REPORT));
	for (i = 0; i < nitems(reports); i++) {
		memset(&hdr, 0, sizeof(hdr));
		hdr.hash_report = i;
		hdr.hash_value = 0x12345678;
		out = received(&hdr, 120);
		CHECK(out.prh_skip == 20 && out.prh_len == 100 && out.prh_hash_type == reports[i] &&
		    out.prh_hash == 0x12345678, "report %zu", i);
	}
	/* The hash of several buffers is the first one's, and comes with the last. */
	device_end();
	device_begin(true, CTRL | F(HASH_REPORT) | F(MRG_RXBUF));
	memset(&hdr, 0, sizeof(hdr));
	hdr.hdr.num_buffers = 2;
	hdr.hash_report = 2;
	hdr.hash_value = 0x87654321;
	CHECK(received(&hdr, 120).prh_more, "the first");
	memset(&hdr, 0, sizeof(hdr));
	out = received(&hdr, 120);
	CHECK(!out.prh_more && out.prh_hash_type == M_HASHTYPE_RSS_TCP_IPV4 &&
	    out.prh_hash == 0x87654321, "the last: %u, 0x%x", out.prh_hash_type, out.prh_hash);
	hdr.hdr.num_buffers = 1;
	hdr.hash_report = 0xffff;
	CHECK(received(&hdr, 120).prh_hash_type == 0, "a type that there is not");
	CHECK(card.pn_ops->pno_decap_plain(&dv.sc, 0, &(struct pvq_done){ .pd_result = 100 },
	    &hdr).ppl_len == 0, "another header");
	device_end();
	device_begin(false, F(MAC));
	out = received(&hdr, 110);
	CHECK(out.prh_error == PV_NET_RX_OK && out.prh_skip == 10 && out.prh_len == 100, "legacy");
	device_end();
}

/* Coalescing: of a kind of queue, of one, and after a reset of the device or of a queue. */
static void
coalescing(const void *arg __unused)
{
	struct virtio_net_ctrl_coal_vq *vq = (void *)dv.data;
	struct virtio_net_ctrl_coal *all = (void *)dv.data;
	uint8_t byte = 1;
	int i;

	kpi_quiet = true;
	device_begin(true, 0);
	CHECK(kpi_sysctl_set("coal.rx_usecs", 1) == ENOENT && dv.sc.vtn_coals == NULL,
	    "without the feature");
	device_end();
	/* Of all queues of a kind, or of single ones. */
	for (i = 0; i < 2; i++) {
		device_begin(true, CTRL | (i == 0 ? F(NOTF_COAL) : F(VQ_NOTF_COAL)));
		CHECK(kpi_sysctl_set("coal.rx_usecs", 1) == (i == 0 ? 0 : ENOENT) &&
		    kpi_sysctl_set("coal.rxq0_usecs", 1) == (i == 0 ? ENOENT : 0), "%d", i);
		SAID(i == 0 ? "6/1:8 " : "6/2:12 ");
		device_end();
	}
	device_begin(true, CTRL | F(NOTF_COAL) | F(VQ_NOTF_COAL) | F(MQ) | VIRTIO_F_RING_RESET);
	CHECK(kpi_sysctl_set("coal.rx_usecs", 50) == 0, "rx");
	SAID("6/1:8 ");
	CHECK(all->max_usecs == 50 && all->max_packets == 0, "%u, %u", all->max_usecs,
	    all->max_packets);
	CHECK(kpi_sysctl_set("coal.tx_packets", 8) == 0 && all->max_usecs == 0 &&
	    all->max_packets == 8, "tx");
	SAID("6/1:8 6/0:8 ");
	CHECK(kpi_sysctl_value("coal.rxq1_usecs") == 50 && kpi_sysctl_value("coal.txq2_packets") == 8 &&
	    kpi_sysctl_value("coal.txq0_usecs") == 0 && kpi_sysctl_value("coal.rxq2_packets") == 0,
	    "each has the kind's");
	quiet();
	CHECK(kpi_sysctl_set("coal.rxq1_packets", 3) == 0, "a queue");
	SAID("6/2:12 ");
	CHECK(vq->vq_index == 2 && vq->coal.max_packets == 3 && vq->coal.max_usecs == 50, "%u: %u, %u",
	    vq->vq_index, vq->coal.max_packets, vq->coal.max_usecs);
	CHECK(kpi_sysctl_value("coal.rx_packets") == 0, "of all");
	dv.answer = VIRTIO_NET_ERR;
	CHECK(kpi_sysctl_set("coal.tx_usecs", 7) == EIO && kpi_sysctl_value("coal.tx_usecs") == 0,
	    "refused");
	dv.answer = VIRTIO_NET_OK;
	CHECK(kpi_sysctl("coal.tx_usecs", NULL, NULL, &byte, sizeof(byte)) == EINVAL, "a byte");
	/* The device has lost them. */
	quiet();
	card.pn_ops->pno_set_coalescing(&dv.sc);
	SAID("6/1:8 6/0:8 6/2:12 ");
	quiet();
	CHECK(card.pn_ops->pno_stop_queue(&dv.sc, 1, false) == 0 &&
	    card.pn_ops->pno_restart_queue(&dv.sc, 1, false) == 0, "a queue");
	SAID("6/2:12 ");
	quiet();
	CHECK(card.pn_ops->pno_stop_queue(&dv.sc, 1, true) == 0 &&
	    card.pn_ops->pno_restart_queue(&dv.sc, 1, true) == 0, "a queue");
	SAID("");
	CHECK(pv_dev_freeze(&card.pn_pvdev) == 0 && kpi_sysctl_set("coal.rx_usecs", 1) != 0, "frozen");
	CHECK(vtnet_resume(dv.tr.tr_child) == 0, "resumed");
	device_end();
}

/* What changes: the link, a request to announce, and one for a reset. */
static void
changes(const void *arg __unused)
{
	int i, lines, resets;

	kpi_quiet = true;
	device_begin(true, CTRL | F(STATUS) | F(GUEST_ANNOUNCE));
	CHECK(vtnet_config_change(dv.tr.tr_child) == 0 && card.pn_links == 1 &&
	    card.pn_announced == 0, "a link");
	dv.config->status |= VIRTIO_NET_S_ANNOUNCE;
	CHECK(vtnet_config_change(dv.tr.tr_child) == 0 && card.pn_announced == 1 &&
	    card.pn_links == 2, "announced");
	SAID("3/0:0 ");
	CHECK(kpi_sysctl_value("config_changes") == 2 && kpi_sysctl_value("needs_resets") == 0 &&
	    kpi_sysctl_value("ctrl_errors") == 0, "counters");
	/* Not while nothing can be announced. */
	card.pn_there = false;
	quiet();
	CHECK(vtnet_config_change(dv.tr.tr_child) == 0, "error");
	SAID("");
	dv.config->status = VIRTIO_NET_S_LINK_UP;
	resets = dv.tr.tr_resets;
	dv.tr.tr_status |= VIRTIO_STATUS_NEEDS_RESET;
	CHECK(vtnet_config_change(dv.tr.tr_child) == 0 && kpi_sysctl_value("needs_resets") == 1,
	    "error");
	(void)kpi_run_tasks();
	CHECK(dv.tr.tr_resets > resets && (dv.tr.tr_status & VIRTIO_STATUS_DRIVER_OK) != 0, "no reset");
	/* However often, it is said ten times; so are resets. */
	for (i = 2; i <= 13; i++) {
		lines = kpi_lines;
		dv.tr.tr_status |= VIRTIO_STATUS_NEEDS_RESET;
		CHECK(vtnet_config_change(dv.tr.tr_child) == 0, "error");
		CHECK(kpi_lines - lines == (i <= 10) && (i > 10 || strcmp(kpi_line,
		    "the device requests a reset\n") == 0), "%d: %s", i, kpi_line);
		kpi_pass(100 * SBT_1S);
		(void)kpi_run_tasks();
		CHECK((dv.tr.tr_status & VIRTIO_STATUS_DRIVER_OK) != 0, "%d: no reset", i);
	}
	CHECK(kpi_sysctl_value("needs_resets") == 13, "counted");
	/* The machine goes down. */
	CHECK(vtnet_shutdown(dv.tr.tr_child) == 0 && dv.tr.tr_status == 0, "it goes on");
	/* What was announced meanwhile is nothing to it any more. */
	quiet();
	vtnet_announced(&dv.sc);
	SAID("");
	CHECK(vtnet_resume(dv.tr.tr_child) == 0, "resumed");
	device_end();
}

/* Sizes of rings, and pairs that there are. */
static void
queues(const void *arg __unused)
{
	static const struct {
		uint16_t has;
		int	 cpus, wanted, used;
	} table[] = { { 3, 3, 0, 3 }, { 3, 2, 0, 2 }, { 2, 3, 0, 2 }, { 3, 3, 1, 1 }, { 3, 1, 3, 3 } };
	static uint8_t byte;
	bus_dma_segment_t seg = { .ds_addr = (uintptr_t)&byte, .ds_len = 1 };
	struct pvq_chain chain = { .pc_segs = &seg, .pc_nwrite = 1, .pc_cookie = &chain };
	struct peer_chain pr;
	struct pvq_done done;
	struct peer *pe;
	struct pvq *q;
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		device_new(true, CTRL | F(MQ));
		dv.config->max_virtqueue_pairs = table[i].has;
		dv.ctrl = 2 * table[i].has;
		mp_ncpus = table[i].cpus;
		vtnet_tunables[VTNET_MQ_MAX_PAIRS].pt_value = table[i].wanted;
		CHECK(vtnet_attach(dv.tr.tr_child) == 0, "%zu: not attached", i);
		vtnet_tunables[VTNET_MQ_MAX_PAIRS].pt_value = 0;
		CHECK(card.pn_params.pnp_npairs == table[i].used && card.pn_pairs == table[i].used,
		    "%zu: %d pairs", i, card.pn_pairs);
		CHECK(strcmp(card.pn_pvqs[0]->q_name, "rxq0") == 0 &&
		    strcmp(card.pn_pvqs[1]->q_name, "txq0") == 0, "names");
		CHECK(card.pn_ops->pno_set_pairs(&dv.sc, table[i].used) == 0, "%zu: pairs", i);
		device_end();
	}
	device_new(true, 0);
	dv.tr.tr_sizes[0] = 2048;
	CHECK(vtnet_attach(dv.tr.tr_child) == 0 && card.pn_pvqs[0]->q_size == 1024, "%u places",
	    card.pn_pvqs[0]->q_size);
	CHECK(card.pn_ops->pno_set_size(&dv.sc, 0, false, 63) == EINVAL &&
	    card.pn_ops->pno_set_size(&dv.sc, 0, false, 64) == 0 &&
	    card.pn_ops->pno_set_size(&dv.sc, 0, true, 128) == 0, "sizes");
	CHECK(vtnet_suspend(dv.tr.tr_child) == 0 && vtnet_resume(dv.tr.tr_child) == 0, "resumed");
	CHECK(card.pn_pvqs[0]->q_size == 64 && card.pn_pvqs[1]->q_size == 128, "%u, %u",
	    card.pn_pvqs[0]->q_size, card.pn_pvqs[1]->q_size);
	/* The places of events are those of the new size. */
	q = card.pn_pvqs[0];
	pe = dv.tr.tr_peers[0];
	for (i = 0; i < 150; i++) {
		CHECK(!pvq_intr_enable(q, 1), "%zu: something waits", i);
		CHECK(pvq_submit(q, &chain) == 0 && pe->pe_ops->po_fetch(pe, &pr), "%zu: nothing", i);
		pe->pe_ops->po_complete(pe, pr.pr_id, 1);
		pe->pe_ops->po_publish(pe);
		CHECK(pe->pe_ops->po_interrupts(pe), "%zu: no interrupt", i);
		CHECK(pvq_get(q, &done, 1) == 1 && done.pd_cookie == &chain, "%zu: not completed", i);
	}
	device_end();
}

/* Whatever fails while it attaches, nothing is left of it. */
static void
attach_fails(const void *arg __unused)
{
	const struct virtio_net_hdr hdr = { .num_buffers = 128 };
	int error, i, n = 0;

	kpi_quiet = true;
	/* However few queues it would take. */
	for (i = 1; i < 60; i++) {
		device_new(true, CTRL | F(MQ) | F(MRG_RXBUF) | VIRTIO_F_ACCESS_PLATFORM);
		kpi_fail_after = i;
		kpi_fail_more = 100;
		error = vtnet_attach(dv.tr.tr_child);
		kpi_fail_after = kpi_fail_more = 0;
		if (error == 0)
			CHECK(vtnet_detach(dv.tr.tr_child) == 0, "it does not detach");
		device_close();
	}
	do {
		device_new(true, CTRL | F(MQ) | F(MRG_RXBUF) | VIRTIO_F_ACCESS_PLATFORM);
		kpi_fail_after = ++n;
		error = vtnet_attach(dv.tr.tr_child);
		if (error == 0 && kpi_fail_after != 0)
			n = 0;
		kpi_fail_after = 0;
		if (error != 0) {
			device_close();
			continue;
		}
		CHECK(card.pn_pairs == PAIRS || dv.sc.vtn_npairs == 1, "%d pairs", card.pn_pairs);
		/* Those that had no memory come with a restart. */
		if (card.pn_pairs < PAIRS) {
			kpi_no_memory = true;
			CHECK(!card.pn_ops->pno_has_more(&dv.sc), "without memory");
			kpi_no_memory = false;
			CHECK(card.pn_ops->pno_has_more(&dv.sc), "no memory");
			CHECK(vtnet_suspend(dv.tr.tr_child) == 0 && vtnet_resume(dv.tr.tr_child) == 0,
			    "resumed");
			CHECK(card.pn_pairs == PAIRS && dv.sc.vtn_npairs == PAIRS, "%d pairs",
			    card.pn_pairs);
			for (i = 0; i < 2 * PAIRS; i++)
				CHECK(dv.tr.tr_peers[i]->pe_pvq == card.pn_pvqs[i] &&
				    card.pn_pvqs[i]->q_name[0] == "rt"[i % 2], "queue %d is %s", i,
				    card.pn_pvqs[i]->q_name);
			/* A frame may have as many buffers as its own ring. */
			for (i = 0; i < PAIRS; i++)
				CHECK(received_by(i, &hdr, 100).prh_more, "pair %d", i);
		}
		device_end();
	} while (n > 0);
}

/* There is memory for less pairs: there are no queues of the others. */
static void
fewer_pairs_without_memory(const void *arg __unused)
{
	u_int seen[MOST_PAIRS + 1] = { 0 };
	int error, i, n = 0;

	kpi_quiet = true;
	do {
		device_new(true, CTRL | F(MQ));
		dv.config->max_virtqueue_pairs = mp_ncpus = MOST_PAIRS;
		dv.ctrl = 2 * MOST_PAIRS;
		kpi_fail_after = ++n;
		kpi_fail_more = 1;
		error = vtnet_attach(dv.tr.tr_child);
		if (kpi_fail_more != 0)
			n = 0;
		kpi_fail_after = kpi_fail_more = 0;
		if (error != 0) {
			device_close();
			continue;
		}
		seen[dv.sc.vtn_npairs]++;
		CHECK(card.pn_pairs == dv.sc.vtn_npairs, "%d pairs of %d", card.pn_pairs,
		    dv.sc.vtn_npairs);
		for (i = 0; i < 2 * MOST_PAIRS; i++)
			CHECK((card.pn_pvqs[i] != NULL) == (i < 2 * card.pn_pairs) &&
			    dv.tr.tr_enabled[i] == (i < 2 * card.pn_pairs), "%d pairs: queue %d",
			    card.pn_pairs, i);
		device_end();
	} while (n > 0);
	CHECK(seen[1] > 0 && seen[MOST_PAIRS] > 0, "one pair: %u times", seen[1]);
}

static const struct hosted_test tests[] = {
	{ "features", "that are of use", features, NULL },
	{ "features_by_name", "and what is of no use then", features_by_name, NULL },
	{ "parameters", "of a card", parameters, NULL },
	{ "offloads", "of each feature", offloads, NULL },
	{ "invalid_values", "of the configuration", invalid_values, NULL },
	{ "values_change", "of the configuration", values_change, NULL },
	{ "commands", "on the wire", commands, NULL },
	{ "hashes", "and their table", hashes, NULL },
	{ "silence", "of the control queue", silence, NULL },
	{ "patience", "with the control queue", patience, NULL },
	{ "headers_sent", "as the specification has them", headers_sent, NULL },
	{ "headers_received", "and what can't be", headers_received, NULL },
	{ "coalescing", "by the device", coalescing, NULL },
	{ "changes", "of the configuration", changes, NULL },
	{ "queues", "in pairs", queues, NULL },
	{ "fewer_pairs_without_memory", "and no queues of others", fewer_pairs_without_memory, NULL },
	{ "attach_fails", "and leaves nothing", attach_fails, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
