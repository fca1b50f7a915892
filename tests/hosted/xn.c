/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4), and a back end that is written by xen/io/netif.h alone: it connects to what was published,
 * and to nothing else.  Rings, and what is read of xenstore, are the suite's own; grants, channels and
 * nodes are models that are as strict, and the card above is the least that the driver calls.  How
 * xenbus goes from state to state is xenbus_state_test's: here a test calls the methods, in the order
 * that xenbus.h has.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/xen/netfront/netfront.c>

#include "host/host.h"
#include "kpi/kpi.h"
#include "model/event_channels.h"
#include "model/front_end.h"
#include "model/grant_table.h"
#include "model/net_card.h"
#include "model/netback.h"
#include "model/xenstore_nodes.h"

#define	REFS		8000	/* of a grant table */
#define	SLOTS		256	/* of a ring of one page: (4096 - 64) / 12, or / 8, rounded down */
#define	PAIR_REFS	(2 * (1 + SLOTS))	/* the rings, and a page for each of their slots */
#define	MAC		"00:16:3e:01:02:03"
#define	MAX_FRAME	65535
#define	OVERHEAD	18	/* Ethernet header and VLAN tag */

MALLOC_DEFINE(M_XEN, "xen", "");

int mp_ncpus;

/* The driver, and what it called. */
static struct {
	struct xn_softc *sc;
	bool	set_up;
	u_int	changes, pauses;
	int	watch_error;
} dv;

/* What takes the place of a packet. */
static char a_packet;

/* xenbus. */

void
xenbus_change(device_t dev)
{

	CHECK(dev == front.dev, "another device");
	dv.changes++;
}

int
xenstore_watch_add(struct xenstore_watch *w, const char *dir, const char *name)
{

	CHECK(w->xw_token == 0 && w->xw_changed != NULL && strcmp(dir, NODE) == 0 &&
	    strcmp(name, "mtu") == 0, "watch of %s/%s", dir, name);
	if (dv.watch_error == 0)
		w->xw_token = 7;
	return (dv.watch_error);
}

void
xenstore_watch_remove(struct xenstore_watch *w)
{

	w->xw_token = 0;
}

/* The driver's methods, as xenbus calls them. */

static int
setup(void)
{
	enum xenbus_state next = XenbusStateInitialised;
	int error;

	CHECK(!dv.set_up, "set up twice");
	front.xb.xb_unread = false;
	error = XENFRONT_SETUP(front.dev, &next);
	dv.set_up = error == 0;
	/* Linux's back end connects to a front end that is Connected. */
	CHECK(error != 0 || next == XenbusStateConnected, "state %u", next);
	return (error);
}

static void
stop(bool gone)
{

	CHECK(XENFRONT_STOP(front.dev, gone) == 0, "it does not stop");
	CHECK(net == NULL || !card.pn_there || pv_dev_state(&card.pn_pvdev) == PV_DEV_FROZEN,
	    "it is used");
}

/* What was shared is not any more. */
static void
release(void)
{

	back_disconnect();
	XENFRONT_RELEASE(front.dev);
	dv.set_up = false;
	CHECK(gnt_in_use() == 0 && channels_open() == 0, "%u grants, %u channels", gnt_in_use(),
	    channels_open());
}

void
xenbus_leave(device_t dev)
{

	CHECK(dev == front.dev, "another device");
	if (!dv.set_up)
		return;
	stop(false);
	release();
}

static void
connect(void)
{
	int error;

	error = setup();
	CHECK(error == 0 && !front.xb.xb_unread, "error %d: %s", error, kpi_line);
	back_connect();
	error = XENFRONT_LIVE(front.dev);
	CHECK(error == 0 && net == &card && pv_dev_is_live(&card.pn_pvdev), "error %d", error);
}

static void
disconnect(void)
{

	stop(true);
	release();
}

static void
begin(void)
{

	memset(&dv, 0, sizeof(dv));
	memset(&back, 0, sizeof(back));
	xsn_begin();
	channels_begin();
	kpi_quiet = true;
	kpi_line[0] = '\0';
	net_card_setting = NULL;
	net_card_binds = false;
	mp_ncpus = 1;
	gnt_limit = REFS;
	dv.sc = host_alloc(sizeof(*dv.sc), sizeof(void *));
	memset(dv.sc, 0, sizeof(*dv.sc));
	front_begin(&xn_driver, dv.sc, "xn0", "vif", NODE, BACK_DOMID, BACK);
	tool("mac", MAC);
	offer("feature-rx-copy", "1");
	CHECK(xn_attach(front.dev) == 0, "it does not attach");
}

/* With so many CPUs, and a back end that has a pair for each. */
static void
begin_pairs(const char *n)
{

	begin();
	mp_ncpus = strtoul(n, NULL, 10);
	offer("multi-queue-max-queues", n);
}

static void
end(void)
{

	CHECK(xn_detach(front.dev) == 0, "it does not detach");
	CHECK(net == NULL && gnt_in_use() == 0 && channels_open() == 0 &&
	    dv.sc->xn_mtu_watch.xw_token == 0, "it is not gone");
	CHECK(kpi_sysctl_set("connects", 1) == ENOENT, "sysctls are left");
	front_end();
	host_free(dv.sc);
	CHECK(kpi_mallocs == 0 && kpi_locks == 0 && kpi_devices == 0 && kpi_taskqueues == 0 &&
	    xsn_out == 0, "%d pieces of memory, %d locks, %d values", kpi_mallocs, kpi_locks,
	    xsn_out);
}

/* Packets. */

/* The card sends n pieces of so many bytes. */
static void
sends(int pair, const struct pv_net_offload *o, u_int n, u_int len)
{
	const struct pv_net_page *pages = card.pn_pages[2 * pair + 1];
	struct pvq *q = card.pn_pvqs[2 * pair + 1];
	bus_dma_segment_t segs[XN_TX_SEGS];
	struct pvq_chain chain = { .pc_segs = segs, .pc_nread = n, .pc_cookie = &a_packet };
	struct pv_net_txhdr hdr = { .pth_chain = &chain, .pth_offload = *o };
	u_int i;
	int slots;

	for (i = 0; i < n; i++) {
		/* The last pages, which are as good as the first. */
		segs[i].ds_addr = pages[SLOTS - 1 - i].npg_addr + i;
		segs[i].ds_len = len;
		memset((u_char *)pages[SLOTS - 1 - i].npg_mem + i, 'a' + i, len);
	}
	card.pn_ops->pno_message->pmo_prepare(card.pn_softc, pair, 0, &hdr);
	slots = pvq_prepare(q, &chain);
	CHECK(slots == (int)n + (o->po_gso_type != PV_NET_GSO_NONE), "%d slots", slots);
	CHECK(pvq_reserve(q, slots) == 0, "no room");
	card.pn_ops->pno_encap(card.pn_softc, pair, &hdr, 1);
	pvq_put(q, &chain, 1);
	pvq_commit(q);
	(void)pvq_kick(q);
}

/* A page of the card's is posted to receive into. */
static void
posts(int pair, u_int n)
{
	const struct pv_net_page *page = &card.pn_pages[2 * pair][n];
	bus_dma_segment_t seg = { .ds_addr = page->npg_addr, .ds_len = PAGE_SIZE };
	struct pvq_chain chain = { .pc_segs = &seg, .pc_nwrite = 1, .pc_arg = page->npg_arg,
	    .pc_cookie = __DECONST(void *, page) };

	CHECK(pvq_submit(card.pn_pvqs[2 * pair], &chain) == 0, "page %u is not posted", n);
}

/* What has come into that page. */
static struct pv_net_rxhdr
receives(int pair, u_int n)
{
	const struct pv_net_page *page = &card.pn_pages[2 * pair][n];
	struct pv_net_rxhdr hdr = { .prh_hdr = page->npg_mem, .prh_room = PAGE_SIZE };
	struct pvq_done done;

	CHECK(pvq_get(card.pn_pvqs[2 * pair], &done, 1) == 1 && done.pd_cookie == page, "page %u", n);
	card.pn_ops->pno_decap(card.pn_softc, pair, &done, &hdr, 1);
	return (hdr);
}

/* One packet goes through a pair each way, with the events that belong to it. */
static void
traffic(int pair)
{
	static const struct pv_net_offload none;
	struct back_queue *bq = &back.queues[pair];
	const u_char *mem = card.pn_pages[2 * pair][SLOTS - 1].npg_mem;
	struct pvq *tx = card.pn_pvqs[2 * pair + 1], *rx = card.pn_pvqs[2 * pair];
	bool split = bq->tx_channel != bq->rx_channel;
	struct pv_net_rxhdr hdr;
	u_int intrs[2], notified, worked, i;

	CHECK(!pvq_intr_enable(tx, 1) && !pvq_intr_enable(rx, 1), "something waits");
	memcpy(intrs, &card.pn_intrs[2 * pair], sizeof(intrs));
	notified = bq->tx_channel->ec_notified;
	worked = bq->tx_channel->ec_worked;
	sends(pair, &none, 2, 1000);
	CHECK(bq->tx_channel->ec_notified == notified + 1, "pair %d: not notified", pair);
	CHECK(back_takes(pair) && taken.len == 2000 && taken.bytes[0] == 'a' &&
	    taken.bytes[1999] == 'b', "pair %d: %u bytes", pair, taken.len);
	back_answers(pair, NETIF_RSP_OKAY);
	CHECK(card.pn_intrs[2 * pair + 1] == intrs[1] + 1 &&
	    card.pn_intrs[2 * pair] == intrs[0] + !split && tx->q_stats.qs_intrs >= 1,
	    "pair %d: interrupts", pair);
	card_sent(&card, pair);
	CHECK(bq->tx_channel->ec_worked > worked && pvq_inflight(tx) == 0, "pair %d", pair);
	/* And the other way. */
	intrs[0] = card.pn_intrs[2 * pair];
	notified = bq->rx_channel->ec_notified;
	worked = bq->rx_channel->ec_worked;
	posts(pair, SLOTS - 1);
	CHECK(bq->rx_channel->ec_notified == notified + 1, "pair %d: not notified", pair);
	back_gives(pair, 0, 100, 1500, 'r');
	CHECK(card.pn_intrs[2 * pair] == intrs[0] + 1 && rx->q_stats.qs_intrs >= 1,
	    "pair %d: no interrupt", pair);
	hdr = receives(pair, SLOTS - 1);
	CHECK(bq->rx_channel->ec_worked > worked, "pair %d: an event without work", pair);
	CHECK(hdr.prh_error == PV_NET_RX_OK && !hdr.prh_more && hdr.prh_skip == 100 &&
	    hdr.prh_len == 1500, "%u bytes at %u", hdr.prh_len, hdr.prh_skip);
	for (i = 0; i < 1500; i++)
		CHECK(mem[100 + i] == 'r', "byte %u", i);
}

/* It works, and what is shared is what there is room for. */
static void
works(u_int pairs)
{
	u_int i;

	CHECK(back.n == pairs && card.pn_pairs == (int)pairs, "%u of %u pairs", back.n, pairs);
	CHECK(gnt_in_use() == pairs * PAIR_REFS, "%u references", gnt_in_use());
	for (i = 0; i < pairs; i++)
		traffic(i);
}

static void
probes_network_cards(const void *arg __unused)
{

	begin();
	CHECK(xn_probe(front.dev) <= 0 && front.desc[0] != '\0', "no card");
	front.type = "vbd";
	CHECK(xn_probe(front.dev) > 0, "a disk");
	front.type = "vifx";
	CHECK(xn_probe(front.dev) > 0, "another type");
	end();
}

/* Rings and channels of one pair and of several, whatever was published before. */
static void
publishes_queues(const void *arg __unused)
{
	static const struct {
		const char *max, *split;
		int	cpus;
		u_int	pairs;
	} table[] = { { "8", "1", 4, 4 }, { NULL, NULL, 1, 1 }, { "3", "0", 4, 3 }, { "1", "1", 4, 1 },
	    { "2", "1", 8, 2 }, { "0", NULL, 4, 1 }, { "x", "1", 4, 1 }, { "4", NULL, 2, 2 },
	    { "9999999", "1", 16, 8 } };
	static const char *const left[] = { "tx-ring-ref", "rx-ring-ref", "event-channel",
	    "event-channel-tx", "event-channel-rx", "multi-queue-num-queues", "queue-0/tx-ring-ref",
	    "queue-1/event-channel", "queue-1/event-channel-rx", "queue-7/rx-ring-ref" };
	char name[16];
	u_int i, j;

	for (i = 0; i < nitems(table); i++) {
		begin();
		/* Of a driver that was here before. */
		for (j = 0; j < nitems(left); j++)
			tool(left[j], "5");
		mp_ncpus = table[i].cpus;
		net_card_binds = true;
		if (table[i].max != NULL)
			offer("multi-queue-max-queues", table[i].max);
		if (table[i].split != NULL)
			offer("feature-split-event-channels", table[i].split);
		/* A conflict changes nothing but the number of attempts. */
		xsn_conflicts = i % 3 == 1;
		connect();
		works(table[i].pairs);
		for (j = 0; j < table[i].pairs; j++) {
			struct back_queue *bq = &back.queues[j];
			bool split = bq->tx_channel != bq->rx_channel;

			CHECK(split == (table[i].split != NULL && table[i].split[0] == '1'),
			    "%u: channels", i);
			snprintf(name, sizeof(name), "xn0:%s%u", split ? "tx" : "q", j);
			CHECK(strcmp(bq->tx_channel->ec_name, name) == 0, "%s",
			    bq->tx_channel->ec_name);
			snprintf(name, sizeof(name), "xn0:%s%u", split ? "rx" : "q", j);
			CHECK(strcmp(bq->rx_channel->ec_name, name) == 0, "%s",
			    bq->rx_channel->ec_name);
			CHECK(bq->tx_channel->ec_params.xep_type == INTR_TYPE_NET &&
			    bq->rx_channel->ec_params.xep_brake &&
			    bq->tx_channel->ec_params.xep_cpu == (int)j &&
			    bq->rx_channel->ec_params.xep_cpu == (int)j, "%u: channel", j);
			snprintf(name, sizeof(name), "q%u.tx_error", j);
			CHECK(kpi_sysctl_value(name) == 0, "%s", name);
		}
		snprintf(name, sizeof(name), "q%u.tx_error", j);
		CHECK(kpi_sysctl_set(name, 1) == ENOENT, "%s", name);
		CHECK(card.pn_params.pnp_npairs == (int)table[i].pairs &&
		    kpi_sysctl_value("connects") == 1 && strstr(kpi_line, "only") == NULL, "%u: %s", i,
		    kpi_line);
		disconnect();
		end();
	}
}

/* A tunable each: pairs, and an event channel for both directions. */
static void
tunables_restrict(const void *arg __unused)
{
	static const struct {
		int	wanted, cpus;
		u_int	pairs;
	} table[] = { { 0, 3, 3 }, { 2, 3, 2 }, { 8, 3, 6 }, { 1, 8, 1 } };
	u_int i;

	for (i = 0; i < nitems(table); i++) {
		begin();
		offer("multi-queue-max-queues", "6");
		offer("feature-split-event-channels", "1");
		mp_ncpus = table[i].cpus;
		xn_tunables[XN_NUM_QUEUES].pt_value = table[i].wanted;
		xn_tunables[XN_SPLIT_DISABLE].pt_value = 1;
		connect();
		works(table[i].pairs);
		CHECK(back.queues[0].tx_channel == back.queues[0].rx_channel, "two channels");
		end();
		xn_tunables[XN_NUM_QUEUES].pt_value = xn_tunables[XN_SPLIT_DISABLE].pt_value = 0;
	}
	for (i = XN_CSUM_DISABLE; i < nitems(xn_tunables); i++) {
		const struct pv_tunable *pt = &xn_tunables[i];

		CHECK(pt->pt_default == 0 && pt->pt_min == 0 && pt->pt_max ==
		    (i == XN_NUM_QUEUES ? 8 : 1), "%s", pt->pt_name);
	}
}

/* The address is the toolstack's, and one that a card can have. */
static void
parses_the_address(const void *arg __unused)
{
	static const char none[] = "no Ethernet address";
	static const struct {
		const char *text;
		uint8_t	address[6];
		const char *says;
	} table[] = { { MAC, { 0, 0x16, 0x3e, 1, 2, 3 }, NULL },
	    { "aA:bB:cC:dD:eE:fF", { 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff }, NULL },
	    { "02:34:56:78:90:19", { 2, 0x34, 0x56, 0x78, 0x90, 0x19 }, NULL },
	    { "fe:ff:ff:ff:ff:ff", { 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff }, NULL },
	    { "", { 0 }, none }, { "00:16:3e:01:02:0", { 0 }, none }, { "00:16:3e:01:02", { 0 }, none },
	    { "00:16:3e:01:02:", { 0 }, none }, { "00:16:3e:01:02:033", { 0 }, none },
	    { "00:16:3e:01:02:03:", { 0 }, none }, { "00-16-3e-01-02-03", { 0 }, none },
	    { "0:016:3e:01:02:03", { 0 }, none }, { "00:16:3g:01:02:03", { 0 }, none },
	    { "00:16:/e:01:02:03", { 0 }, none }, { "00:16:3::01:02:03", { 0 }, none },
	    { "00:16:3`:01:02:03", { 0 }, none }, { "00:16:3@:01:02:03", { 0 }, none },
	    { "00:16:3e:01:02: 3", { 0 }, none },
	    { "00:00:00:00:00:00", { 0 }, "not used" }, { "01:16:3e:01:02:03", { 0 }, "not used" },
	    { "ff:ff:ff:ff:ff:ff", { 0 }, "not used" } };
	u_int i;

	for (i = 0; i < nitems(table); i++) {
		begin();
		tool("mac", table[i].text);
		if (table[i].says == NULL) {
			connect();
			CHECK(memcmp(card.pn_params.pnp_lladdr, table[i].address, 6) == 0, "%s",
			    table[i].text);
		} else {
			CHECK(setup() != 0 && !published("", "tx-ring-ref") && net == NULL, "%s",
			    table[i].text);
			CHECK(strstr(kpi_line, table[i].says) != NULL &&
			    strstr(kpi_line, "mac=") != NULL, "%s: %s", table[i].text, kpi_line);
		}
		end();
	}
	begin();
	xsn_clear(NODE, "mac");
	CHECK(setup() == ENOENT, "no address");
	/* Without an answer the error is one that may pass. */
	tool("mac", MAC);
	xsn_unread = "mac";
	CHECK(setup() == ETIMEDOUT && front.xb.xb_unread, "not read");
	xsn_unread = NULL;
	connect();
	/* Another back end's address is not looked at by who has an interface. */
	CHECK(card.pn_ops->pno_set_lladdr(card.pn_softc, (const uint8_t *)"\2\3\4\5\6\7") == 0,
	    "its bridge takes any address");
	end();
}

/* A back end that can't be used is refused, and nothing is made for it. */
static void
refuses_a_back_end_without_copies(const void *arg __unused)
{
	static const char *const values[] = { NULL, "0", "x" };
	int lines;
	u_int i;

	for (i = 0; i < nitems(values); i++) {
		begin();
		xsn_clear(BACK, "feature-rx-copy");
		if (values[i] != NULL)
			offer("feature-rx-copy", values[i]);
		lines = kpi_lines;
		CHECK(setup() == EOPNOTSUPP && net == NULL && gnt_in_use() == 0 &&
		    strstr(kpi_line, "feature-rx-copy") != NULL, "%u: %s", i, kpi_line);
		/* Of these, only "x" is no value. */
		CHECK(kpi_lines - lines == (i == 2 ? 2 : 1), "%u: %d lines", i, kpi_lines - lines);
		CHECK(!published("", "request-rx-copy"), "%u: published", i);
		end();
	}
	/* One that is not known is not refused. */
	begin();
	xsn_unread = "feature-rx-copy";
	CHECK(setup() == ETIMEDOUT && front.xb.xb_unread && kpi_line[0] == '\0', "%s", kpi_line);
	xsn_unread = NULL;
	connect();
	end();
}

#define	TX4	PV_NET_TXCSUM
#define	TX6	PV_NET_TXCSUM6
#define	RX	PV_NET_RXCSUM
#define	LRO	(PV_NET_LRO4 | PV_NET_LRO6)
#define	TSO4	PV_NET_TSO4
#define	TSO6	PV_NET_TSO6

/* Each direction's offloads are what its receiver says it accepts. */
static void
negotiates_offloads(const void *arg __unused)
{
	static const struct {
		bool	sg, no4, csum6, gso4, gso6;
		u_int	tunable;
		u_int	offloads;
	} table[] = {
		{ true, false, true, true, true, 0, TX4 | TX6 | RX | LRO | TSO4 | TSO6 },
		{ false, false, true, true, true, 0, TX4 | TX6 | RX | LRO },
		{ true, true, true, true, true, 0, TX6 | RX | LRO | TSO6 },
		{ true, false, false, true, true, 0, TX4 | RX | LRO | TSO4 },
		{ true, false, true, false, true, 0, TX4 | TX6 | RX | LRO | TSO6 },
		{ true, false, true, true, false, 0, TX4 | TX6 | RX | LRO | TSO4 },
		{ false, false, false, false, false, 0, TX4 | RX | LRO },
		{ true, true, false, true, true, 0, RX | LRO },
		{ true, false, true, true, true, XN_CSUM_DISABLE, 0 },
		{ true, false, true, true, true, XN_TSO_DISABLE, TX4 | TX6 | RX | LRO },
		{ true, false, true, true, true, XN_LRO_DISABLE, TX4 | TX6 | RX | TSO4 | TSO6 },
		{ true, false, true, true, true, XN_RX_GSO_DISABLE, TX4 | TX6 | RX | TSO4 | TSO6 },
	};
	const struct pv_net_params *p = &card.pn_params;
	u_int i, t, is;

	for (i = 0; i < nitems(table); i++) {
		begin();
		offer("feature-sg", table[i].sg ? "1" : "0");
		offer("feature-no-csum-offload", table[i].no4 ? "1" : "0");
		offer("feature-ipv6-csum-offload", table[i].csum6 ? "1" : "0");
		offer("feature-gso-tcpv4", table[i].gso4 ? "1" : "0");
		offer("feature-gso-tcpv6", table[i].gso6 ? "1" : "0");
		t = table[i].tunable;
		if (t != 0)
			xn_tunables[t].pt_value = 1;
		connect();
		if (t != 0)
			xn_tunables[t].pt_value = 0;
		is = p->pnp_offloads;
		/* The back end finds checksums itself, behind an Ethernet header only. */
		CHECK(t == XN_CSUM_DISABLE ? is == 0 : (is & ~(PV_NET_UNTAGGED | PV_NET_TSO_ECN)) ==
		    table[i].offloads && (is & PV_NET_UNTAGGED) != 0, "%u: 0x%x", i, is);
		CHECK((is & (TSO4 | TSO6)) == 0 || (is & PV_NET_TSO_ECN) != 0, "%u: 0x%x", i, is);
		CHECK(p->pnp_soft_lro == (t != XN_CSUM_DISABLE && t != XN_LRO_DISABLE), "%u: LRO", i);
		/* What we accept. */
		CHECK(number(NODE, "", "feature-sg") == 1 &&
		    number(NODE, "", "feature-no-csum-offload") == (t == XN_CSUM_DISABLE) &&
		    number(NODE, "", "feature-ipv6-csum-offload") == (t != XN_CSUM_DISABLE), "%u", i);
		CHECK(number(NODE, "", "feature-gso-tcpv4") == ((is & PV_NET_LRO4) != 0) &&
		    number(NODE, "", "feature-gso-tcpv6") == ((is & PV_NET_LRO6) != 0), "%u", i);
		/* A packet is at most what its first request can say, or a page. */
		CHECK(p->pnp_max_frame == (table[i].sg ? MAX_FRAME : PAGE_SIZE) && p->pnp_max_mtu ==
		    p->pnp_max_frame - OVERHEAD && p->pnp_mtu == 1500, "%u: %u bytes", i,
		    p->pnp_max_frame);
		CHECK(p->pnp_merge && p->pnp_hdrlen == 0 && p->pnp_tx_segs == 16 && p->pnp_seg_max ==
		    PAGE_SIZE && p->pnp_link_reports && p->pnp_may_rest && !p->pnp_phys &&
		    !p->pnp_vlan_filter && !p->pnp_promisc && !p->pnp_queue_reset &&
		    !p->pnp_freebsd_names && p->pnp_tunables == xn_tunables && p->pnp_boundary == 0,
		    "%u: parameters", i);
		disconnect();
		end();
	}
	/* Of one that offers nothing, the defaults are netif.h's. */
	begin();
	connect();
	CHECK((p->pnp_offloads & (TX4 | TX6 | TSO4 | TSO6)) == TX4 && p->pnp_max_frame == PAGE_SIZE,
	    "0x%x", p->pnp_offloads);
	end();
}

/* A GSO packet of the most segments, with checksums, as the back end finds it. */
static void
sends_a_gso_packet(const void *arg __unused)
{
	static const struct pv_net_offload tcp6 = { .po_flags = PV_NET_NEEDS_CSUM,
	    .po_gso_type = PV_NET_GSO_TCP6, .po_gso_size = 1440 };
	static const int statuses[] = { NETIF_RSP_OKAY, NETIF_RSP_ERROR, NETIF_RSP_DROPPED, 77 };
	u_int i;

	begin();
	offer("feature-sg", "1");
	connect();
	for (i = 0; i < nitems(statuses); i++) {
		sends(0, &tcp6, 16, 4000);
		CHECK(back_takes(0) && taken.n == 16 && taken.len == 64000 && (taken.reqs[0].flags &
		    (NETTXF_csum_blank | NETTXF_data_validated)) == (NETTXF_csum_blank |
		    NETTXF_data_validated), "%u requests, %u bytes", taken.n, taken.len);
		CHECK(taken.extra.type == XEN_NETIF_EXTRA_TYPE_GSO && taken.extra.u.gso.size == 1440 &&
		    taken.extra.u.gso.type == XEN_NETIF_GSO_TYPE_TCPV6, "type %u", taken.extra.type);
		CHECK(taken.bytes[0] == 'a' && taken.bytes[63999] == 'p', "another's bytes");
		back_answers(0, statuses[i]);
		card_sent(&card, 0);
		CHECK(pvq_inflight(card.pn_pvqs[1]) == 0 && !pvq_broken(card.pn_pvqs[1]), "status %d",
		    statuses[i]);
	}
	CHECK(kpi_sysctl_value("q0.tx_error") == 1 && kpi_sysctl_value("q0.tx_dropped") == 1 &&
	    kpi_sysctl_value("q0.tx_status") == 1 && card.pn_refilters == 0, "counters");
	disconnect();
	end();
}

/* Extra info, which has no id, in the place of a buffer; half a frame is no other back end's. */
static void
receives_a_gso_frame(const void *arg __unused)
{
	struct netif_extra_info extra = { .type = XEN_NETIF_EXTRA_TYPE_GSO };
	struct pv_net_rxhdr hdr;
	u_int i;

	extra.u.gso.size = 1448;
	extra.u.gso.type = XEN_NETIF_GSO_TYPE_TCPV4;
	begin();
	connect();
	for (i = 0; i < 2; i++) {
		posts(0, 0);
		posts(0, 1);
		posts(0, 2);
		back_gives(0, NETRXF_extra_info | NETRXF_more_data, 0, PAGE_SIZE, 'f');
		back_gives_extra(0, &extra);
		back_gives(0, 0, 0, 900, 'g');
		CHECK(receives(0, 0).prh_more && receives(0, 1).prh_more, "the first and the second");
		hdr = receives(0, 2);
		CHECK(!hdr.prh_more && hdr.prh_error == PV_NET_RX_OK && hdr.prh_len == 900 &&
		    hdr.prh_offload.po_gso_type == PV_NET_GSO_TCP4 &&
		    hdr.prh_offload.po_gso_size == 1448, "type %u", hdr.prh_offload.po_gso_type);
		posts(0, 3);
		back_gives(0, NETRXF_extra_info, 0, 100, 'f');
		CHECK(receives(0, 3).prh_more && pvq_inflight(card.pn_pvqs[0]) == 0, "half a frame");
		disconnect();
		connect();
		works(1);
	}
	/* As many as the ring has. */
	for (i = 0; i < SLOTS; i++)
		posts(0, i);
	for (i = 0; i < SLOTS; i++) {
		back_gives(0, 0, i, i, 'f');
		hdr = receives(0, i);
		CHECK(hdr.prh_skip == i && hdr.prh_len == i, "page %u", i);
	}
	disconnect();
	end();
}

/* Each counter of each pair is a sysctl of its name. */
static void
counters_are_sysctls(const void *arg __unused)
{
	char name[32];
	u_int i, j;

	begin_pairs("2");
	connect();
	for (j = 0; j < 2; j++)
		dv.sc->xn_queues[j].xq_stats = (struct xn_stats){ .rx_status = 10 + j,
		    .rx_range = 20 + j, .rx_bufs = 30 + j, .rx_prefix = 40 + j,
		    .rx_extra = 50 + j, .tx_error = 60 + j, .tx_dropped = 70 + j, .tx_status = 80 + j,
		    .groups_refused = 90 + j };
	for (j = 0; j < 2; j++) {
		static const char *const names[] = { "rx_status", "rx_range", "rx_bufs", "rx_prefix",
		    "rx_extra", "tx_error", "tx_dropped", "tx_status", "groups_refused" };

		for (i = 0; i < nitems(names); i++) {
			snprintf(name, sizeof(name), "q%u.%s", j, names[i]);
			CHECK(kpi_sysctl_value(name) == 10 * (i + 1) + j, "%s", name);
		}
	}
	disconnect();
	connect();
	CHECK(kpi_sysctl_value("connects") == 2 && kpi_sysctl_value("q1.rx_status") == 11, "counted");
	end();
}

static void
changed(const char *name)
{

	front.xb.xb_unread = false;
	XENFRONT_OTHEREND_CHANGED(front.dev, name);
}

/* The back end's link: one is there if the key is not, or is no number; and none without a back end. */
static void
reports_the_link(const void *arg __unused)
{
	static const struct {
		const char *value;
		bool	up;
	} table[] = { { NULL, true }, { "1", true }, { "0", false }, { "2", true }, { "x", true },
	    { "0", false } };
	u_int i;
	int links;

	begin();
	/* No interface is told of it. */
	changed("carrier");
	changed("");
	connect();
	for (i = 0; i < nitems(table); i++) {
		if (table[i].value != NULL)
			offer("carrier", table[i].value);
		links = card.pn_links;
		changed(i % 2 == 0 ? "carrier" : "");
		CHECK(card.pn_link_up == table[i].up && card.pn_links == links + 1, "%u", i);
	}
	/* Something else, and no answer. */
	offer("carrier", "1");
	changed("carriers");
	changed("feature-sg");
	CHECK(!card.pn_link_up && card.pn_links == links + 1, "another key");
	xsn_unread = "carrier";
	changed("carrier");
	CHECK(!card.pn_link_up && front.xb.xb_unread, "there is no answer");
	xsn_unread = NULL;
	changed("");
	CHECK(card.pn_link_up, "a link");
	xsn_unread = "carrier";
	changed("");
	CHECK(card.pn_link_up && front.xb.xb_unread, "there is no answer");
	xsn_unread = NULL;
	links = card.pn_links;
	stop(false);
	CHECK(!card.pn_link_up && card.pn_links > links, "no back end");
	release();
	offer("carrier", "0");
	connect();
	CHECK(!card.pn_link_up, "another back end's");
	/* Not live yet. */
	disconnect();
	offer("carrier", "1");
	CHECK(setup() == 0 && !card.pn_ops->pno_link_up(dv.sc), "it is not connected yet");
	back_connect();
	CHECK(XENFRONT_LIVE(front.dev) == 0 && card.pn_link_up, "a link");
	end();
}

/* The toolstack's MTU, at first and when it changes. */
static void
follows_the_mtu(const void *arg __unused)
{
	static const struct {
		const char *value;
		bool	sg;
		u_int	mtu;
	} table[] = { { NULL, true, 1500 }, { "1400", false, 1400 }, { "9000", true, 9000 },
	    { "9000", false, 4078 }, { "4078", false, 4078 }, { "4079", false, 4078 },
	    { "65517", true, 65517 }, { "65518", true, 65517 }, { "4294967295", true, 65517 },
	    { "4294967296", true, 1500 }, { "46", true, 46 }, { "45", true, 1500 }, { "0", true, 1500 },
	    { "", true, 1500 }, { "1500x", true, 1500 } };
	u_int i;

	for (i = 0; i < nitems(table); i++) {
		begin();
		offer("feature-sg", table[i].sg ? "1" : "0");
		if (table[i].value != NULL)
			tool("mtu", table[i].value);
		connect();
		CHECK(card.pn_params.pnp_mtu == table[i].mtu, "%u: %u", i, card.pn_params.pnp_mtu);
		/* It is the same. */
		changed("");
		CHECK(card.pn_mtu == 0, "%u: set again to %d", i, card.pn_mtu);
		/* With an interface. */
		tool("mtu", "1450");
		changed("");
		CHECK(card.pn_mtu == 1450, "%u: %d", i, card.pn_mtu);
		tool("mtu", table[i].value != NULL ? table[i].value : "1500");
		changed("");
		CHECK(card.pn_mtu == (int)table[i].mtu, "%u: %d", i, card.pn_mtu);
		end();
	}
	begin();
	offer("feature-sg", "1");
	xsn_unread = "mtu";
	CHECK(setup() == ETIMEDOUT && front.xb.xb_unread && net == NULL, "no answer");
	xsn_unread = NULL;
	CHECK(dv.sc->xn_mtu_watch.xw_token == 0, "watched before there is an interface");
	connect();
	CHECK(dv.sc->xn_mtu_watch.xw_token != 0, "not watched");
	tool("mtu", "9000");
	dv.sc->xn_mtu_watch.xw_changed(&dv.sc->xn_mtu_watch, NODE "/mtu");
	CHECK(dv.changes == 1 && card.pn_mtu == 0, "in the thread of watches");
	changed("mtu");
	CHECK(card.pn_mtu == 0, "a key of the back end");
	xsn_unread = "mtu";
	changed("");
	CHECK(card.pn_mtu == 0 && front.xb.xb_unread, "no answer");
	xsn_unread = NULL;
	card.pn_mtu_error = ENOMEM;
	changed("");
	CHECK(card.pn_mtu == 0 && strstr(kpi_line, "the MTU of 9000") != NULL, "%s", kpi_line);
	card.pn_mtu_error = 0;
	xsn_clear(NODE, "mtu");
	changed("");
	CHECK(card.pn_mtu == 1500, "%d", card.pn_mtu);
	/* An interface keeps its own with another back end, until the key changes. */
	disconnect();
	tool("mtu", "3000");
	offer("feature-sg", "0");
	connect();
	CHECK(card.pn_mtu == 1500 && card.pn_params.pnp_max_mtu == 4078, "%d", card.pn_mtu);
	changed("");
	CHECK(card.pn_mtu == 3000, "%d", card.pn_mtu);
	tool("mtu", "9000");
	changed("");
	CHECK(card.pn_mtu == 4078, "%d", card.pn_mtu);
	end();
	/* Without a watch it goes on, and says so. */
	begin();
	dv.watch_error = ENOSPC;
	connect();
	CHECK(strstr(kpi_line, "no watch (error 28)") != NULL, "%s", kpi_line);
	works(1);
	end();
}

/* Where there is too little for all pairs there are fewer; the others come when there is more. */
static void
uses_fewer_pairs_without_resources(const void *arg __unused)
{
	static const struct {
		u_int	refs, ports;
		u_int	pairs;
	} table[] = {
		/* An eighth of all references is left to others, but to the first pair. */
		{ 8 * PAIR_REFS * 8 / 7 + 8, 64, 8 }, { 8 * PAIR_REFS * 8 / 7 - 8, 64, 7 },
		{ 2 * PAIR_REFS * 8 / 7 + 8, 64, 2 }, { 2 * PAIR_REFS * 8 / 7 - 8, 64, 1 },
		{ PAIR_REFS, 64, 1 }, { REFS, 15, 4 }, { REFS, 8, 4 }, { REFS, 7, 2 },
		{ REFS, 3, 1 }, { REFS, 2, 1 } };
	u_int i, more;
	char text[40];

	for (i = 0; i < nitems(table); i++) {
		begin_pairs("8");
		offer("feature-split-event-channels", "1");
		gnt_limit = table[i].refs;
		channels_most = table[i].ports;
		connect();
		works(table[i].pairs);
		snprintf(text, sizeof(text), "only %u of 8 pairs of queues", table[i].pairs);
		CHECK((strstr(kpi_line, text) != NULL) == (table[i].pairs < 8), "%s", kpi_line);
		CHECK(card.pn_most == 8 && kpi_sysctl_value("q7.tx_error") == 0, "the interface has 8");
		more = table[i].pairs < 8;
		/* Looking for more leaves nothing behind. */
		channels_most = 2 * table[i].pairs + 1;
		gnt_limit = REFS;
		(void)kpi_run_tasks();
		CHECK(front.resets == 0 && channels_open() == 2 * table[i].pairs, "%u channels",
		    channels_open());
		/* Enough for one, but no queue that xenbus gives: 60 of all front ends. */
		channels_most = 64;
		(void)xenbus_queues(kpi_device(), 61);
		CHECK(!xenbus_has_queues(), "a queue is left");
		(void)kpi_run_tasks();
		CHECK(front.resets == 0, "no queue");
		xenbus_return_queues(&front.other);
		gnt_limit = gnt_in_use() + PAIR_REFS;
		(void)kpi_run_tasks();
		CHECK(front.resets == 0, "the last references");
		gnt_limit = REFS;
		(void)kpi_run_tasks();
		CHECK(front.resets == more && channels_open() == 2 * table[i].pairs, "%u resets",
		    front.resets);
		disconnect();
		connect();
		works(8);
		CHECK(more == 0 || strstr(kpi_line, "all 8 pairs of queues") != NULL, "%s", kpi_line);
		end();
	}
	/* There were more: those that are not made now have been freed. */
	begin_pairs("4");
	connect();
	works(4);
	disconnect();
	channels_most = 2;
	connect();
	works(2);
	disconnect();
	gnt_limit = PAIR_REFS;
	connect();
	works(1);
	end();
	/* Xenbus gives fewer. */
	begin_pairs("8");
	CHECK(xenbus_queues(kpi_device(), 59) == 59, "queues");
	connect();
	works(3);
	end();
	/* There is not enough for one, or Xen refuses. */
	for (i = 0; i < 2; i++) {
		begin_pairs("8");
		channels_most = 0;
		channels_error = i == 0 ? ENOSPC : EINVAL;
		CHECK(setup() == channels_error && gnt_in_use() == 0 && kpi_lines > 0 &&
		    strstr(kpi_line, "no rings for the back end") != NULL, "%s", kpi_line);
		CHECK(channels_asked == (i == 0 ? 4 : 1), "%u attempts", channels_asked);
		CHECK(!published("", "request-rx-copy") && !published("", "multi-queue-num-queues"),
		    "published");
		channels_most = 64;
		connect();
		works(8);
		end();
	}
}

/* An event may come before its ring is there. */
static void
events_before_the_ring(const void *arg __unused)
{
	u_int i;

	for (i = 0; i < 2; i++) {
		begin();
		offer("feature-split-event-channels", i == 0 ? "0" : "1");
		channels_eager = true;
		connect();
		CHECK(card.pn_intrs[0] == 1 && card.pn_intrs[1] == 1, "%u, %u", card.pn_intrs[0],
		    card.pn_intrs[1]);
		works(1);
		disconnect();
		connect();
		works(1);
		end();
	}
}

/* Another back end has other features and fewer pairs, and sees nothing of what the first one had. */
static void
reconnects_to_one_that_has_less(const void *arg __unused)
{
	static const char *const taken_away[] = { "feature-sg", "feature-gso-tcpv4",
	    "feature-gso-tcpv6", "feature-ipv6-csum-offload", "feature-split-event-channels",
	    "multi-queue-max-queues" };
	const struct pv_net_params *p = &card.pn_params;
	struct pv_net *first;
	u_int i, round;

	begin();
	mp_ncpus = 4;
	for (i = 0; i < 5; i++)
		offer(taken_away[i], "1");
	offer("multi-queue-max-queues", "4");
	connect();
	first = net;
	works(4);
	CHECK((p->pnp_offloads & TSO6) != 0, "0x%x", p->pnp_offloads);
	for (round = 0; round < 2; round++) {
		disconnect();
		CHECK(pv_dev_state(&card.pn_pvdev) == PV_DEV_FROZEN && !card.pn_ops->pno_link_up(dv.sc),
		    "it goes on");
		for (i = 0; i < nitems(taken_away); i++)
			xsn_clear(BACK, taken_away[i]);
		offer("feature-no-csum-offload", "1");
		connect();
		works(1);
		CHECK(net == first && (p->pnp_offloads & (TX4 | TX6 | TSO4 | TSO6)) == 0 &&
		    p->pnp_max_frame == PAGE_SIZE && p->pnp_max_mtu == PAGE_SIZE - OVERHEAD, "0x%x",
		    p->pnp_offloads);
		/* That is no want of anything. */
		CHECK(kpi_run_tasks() == 0 && strstr(kpi_line, "only") == NULL, "%s", kpi_line);
		disconnect();
		for (i = 0; i < 5; i++)
			offer(taken_away[i], "1");
		xsn_clear(BACK, "feature-no-csum-offload");
		offer("multi-queue-max-queues", round == 0 ? "2" : "8");
		/* As many as the interface was made for, whatever there is now. */
		mp_ncpus = 8;
		connect();
		works(round == 0 ? 2 : 4);
		CHECK((p->pnp_offloads & (TX4 | TX6 | TSO4 | TSO6)) == (TX4 | TX6 | TSO4 | TSO6) &&
		    p->pnp_max_frame == MAX_FRAME, "0x%x", p->pnp_offloads);
	}
	CHECK(kpi_sysctl_value("connects") == 5, "connects");
	/* What is broken is connected again. */
	pv_dev_need_reset(&card.pn_pvdev, PV_DEV_ALL, EIO);
	(void)kpi_run_tasks();
	CHECK(front.resets == 1, "%u resets", front.resets);
	end();
	/* One that can do less than the first, which had less than there are CPUs. */
	begin();
	mp_ncpus = 4;
	offer("multi-queue-max-queues", "2");
	connect();
	disconnect();
	offer("multi-queue-max-queues", "4");
	connect();
	works(2);
	end();
}

/* The first set-up of a card that never got an interface is forgotten by the next one. */
static void
sets_up_again_before_there_is_an_interface(const void *arg __unused)
{
	u_int i;

	begin_pairs("4");
	offer("feature-split-event-channels", "1");
	for (i = 0; i < 3; i++) {
		CHECK(setup() == 0, "error");
		back_connect();
		CHECK(card.pn_pairs == 4 - (int)i && back.n == 4 - i, "%d pairs", card.pn_pairs);
		changed("");
		stop(true);
		release();
		offer("multi-queue-max-queues", i == 0 ? "3" : "2");
	}
	CHECK(kpi_sysctl_set("connects", 1) == ENOENT, "there is no interface");
	/* An interface that can't be made, and then can. */
	CHECK(setup() == 0, "error");
	back_connect();
	card.pn_attach_error = ENOMEM;
	CHECK(XENFRONT_LIVE(front.dev) == ENOMEM, "attached");
	CHECK(kpi_sysctl_set("connects", 1) == ENOENT && dv.sc->xn_mtu_watch.xw_token == 0,
	    "it stays attached");
	stop(true);
	release();
	connect();
	works(2);
	CHECK(kpi_sysctl_value("q1.rx_range") == 0 && kpi_sysctl_set("q2.rx_range", 1) == ENOENT,
	    "sysctls of another");
	end();
}

/* In each state. */
static void
detaches(const void *arg __unused)
{
	int state;

	for (state = 0; state < 5; state++) {
		begin();
		if (state == 1)
			CHECK(setup() == 0, "error");
		if (state >= 2)
			connect();
		if (state >= 3)
			disconnect();
		if (state == 4)
			connect();
		end();
	}
}

/* Whatever fails, nothing of it is left, and it works later. */
static void
attempt(void)
{
	int error = setup();

	if (error == 0 && !front.xb.xb_unread) {
		back_connect();
		error = XENFRONT_LIVE(front.dev);
	} else if (error == 0)
		error = ETIMEDOUT;
	kpi_fail_after = kpi_fail_more = gnt_fail_after = xsn_unanswered = 0;
	CHECK(error == 0 || pv_dev_may_pass(error), "error %d", error);
	if (dv.set_up)
		disconnect();
	CHECK(gnt_in_use() == 0 && channels_open() == 0, "%u grants, %u channels", gnt_in_use(),
	    channels_open());
	connect();
	works(1);
}

static void
errors_leave_nothing(const void *arg __unused)
{
	bool done;
	u_int i;
	int error;

	/* A set-up takes 5 times memory by itself, and then a page for each of 512 slots. */
	for (i = 1; i < 600; i += i < 10 || (i > 500 && i < 520) ? 1 : 37) {
		begin();
		kpi_fail_after = i;
		attempt();
		disconnect();
		kpi_fail_after = i;
		attempt();
		end();
		begin();
		gnt_fail_after = i;
		attempt();
		end();
	}
	/* Either channel of a pair. */
	for (i = 1; i <= 2; i++) {
		begin();
		offer("feature-split-event-channels", "1");
		channels_fail_after = i;
		CHECK(setup() == ENOSPC && channels_open() == 0 && gnt_in_use() == 0, "channel %u", i);
		end();
	}
	/* What can't be written is not published without it. */
	for (i = 1, done = false; !done; i++) {
		begin();
		mp_ncpus = 1 + i % 2;
		offer("multi-queue-max-queues", "4");
		offer("feature-split-event-channels", "1");
		xsn_fail_after = i;
		error = setup();
		done = xsn_fail_after != 0;
		CHECK(error == (done ? 0 : ENOSPC) && (done || gnt_in_use() == 0), "%u: error %d", i,
		    error);
		CHECK(done == published("", "request-rx-copy"), "%u: published", i);
		xsn_fail_after = 0;
		CHECK(i > 25 || !done, "%u requests", i);
		end();
	}
	for (i = 1, done = false; !done; i++) {
		begin();
		xsn_unanswered = i;
		attempt();
		disconnect();
		xsn_unanswered = i + 1000;
		attempt();
		disconnect();
		xsn_unanswered = i;
		(void)setup();
		done = xsn_unanswered != 0;
		xsn_unanswered = 0;
		if (dv.set_up)
			disconnect();
		CHECK(i > 20 || !done, "%u requests", i);
		end();
	}
}

/* Multicast. */

static void
group_of(uint8_t *group, u_int i)
{

	const uint8_t is[] = { 1, 0, 0x5e, 1, i >> 8, i };

	memcpy(group, is, sizeof(is));
}

/* These groups are wanted; pv_net's lock is held, as by its owner. */
static int
filter(u_int from, u_int n, bool allmulti, bool promisc)
{
	static uint8_t groups[200][ETHER_ADDR_LEN];
	struct pv_net_filter f = { .pf_promisc = promisc, .pf_allmulti = allmulti, .pf_ngroups = n,
	    .pf_groups = (const uint8_t (*)[ETHER_ADDR_LEN])groups };
	u_int i;
	int error;

	for (i = 0; i < n; i++)
		group_of(groups[i], from + i);
	back.commands = 0;
	pv_dev_lock(&card.pn_pvdev);
	error = card.pn_ops->pno_set_filter(card.pn_softc, &f);
	pv_dev_unlock(&card.pn_pvdev);
	back_serves();
	card_sent(&card, 0);
	return (error);
}

static bool
filters(void)
{

	return (number(NODE, "", "request-multicast-control") != 0);
}

/* Exactly these are forwarded; with n = 0 and `all', all. */
static void
forwards(u_int from, u_int n)
{
	uint8_t group[ETHER_ADDR_LEN];
	u_int i, j;

	CHECK(filters() && back.ngroups == n && kpi_sysctl_value("groups") == n &&
	    kpi_sysctl_value("group_filter") == 1, "%u groups", back.ngroups);
	for (i = 0; i < n; i++) {
		group_of(group, from + i);
		for (j = 0; j < n && memcmp(back.groups[j], group, 6) != 0; j++)
			continue;
		CHECK(j < n, "group %u", from + i);
	}
}

static void
begin_filter(void)
{

	begin();
	offer("feature-multicast-control", "1");
	offer("feature-dynamic-multicast-control", "1");
	connect();
}

static void
filters_multicast_groups(const void *arg __unused)
{

	begin_filter();
	CHECK(!filters() && kpi_sysctl_value("group_filter") == 0, "at first all are forwarded");
	CHECK(filter(1, 3, false, false) == 0 && back.commands == 3, "%u commands", back.commands);
	forwards(1, 3);
	/* Only what changes is a command, or written. */
	xsn_no_writing = ETIMEDOUT;
	CHECK(filter(1, 3, false, false) == 0, "written again");
	xsn_no_writing = 0;
	CHECK(filter(1, 3, false, false) == 0 && back.commands == 0, "%u commands", back.commands);
	CHECK(filter(2, 4, false, false) == 0 && back.commands == 3, "%u commands", back.commands);
	forwards(2, 4);
	CHECK(filter(10, 2, false, false) == 0 && back.commands == 6, "%u commands", back.commands);
	forwards(10, 2);
	CHECK(filter(0, 0, false, false) == 0 && back.commands == 2, "%u commands", back.commands);
	forwards(0, 0);
	CHECK(filter(1, 64, false, false) == 0, "as many as the list has");
	forwards(1, 64);
	/* More than the list has, all-multicast, promiscuous: the list stays as it is. */
	CHECK(filter(1, 65, false, false) == 0 && back.commands == 0 && !filters(), "65 groups");
	CHECK(kpi_sysctl_value("group_filter") == 0 && kpi_sysctl_value("groups") == 64, "sysctls");
	CHECK(filter(1, 64, false, false) == 0 && back.commands == 0, "%u commands", back.commands);
	forwards(1, 64);
	CHECK(filter(7, 2, true, false) == 0 && back.commands == 0 && !filters(), "all-multicast");
	CHECK(filter(7, 2, false, false) == 0 && back.commands == 62, "%u commands", back.commands);
	forwards(7, 2);
	CHECK(filter(7, 2, false, true) == 0 && back.commands == 0 && !filters(), "promiscuous");
	CHECK(dv.changes == 0 && card.pn_refilters == 0, "asked for again");
	/* Another back end has an empty list. */
	disconnect();
	connect();
	CHECK(!filters() && kpi_sysctl_value("group_filter") == 0 && kpi_sysctl_value("groups") == 0,
	    "the other one's");
	CHECK(filter(7, 2, false, false) == 0 && back.commands == 2, "%u commands", back.commands);
	forwards(7, 2);
	/* It is not asked for without need. */
	changed("");
	CHECK(card.pn_refilters == 0, "refiltered");
	end();
}

/* A back end that has no list, or samples the key once, is asked for nothing. */
static void
leaves_multicast_alone_without_the_features(const void *arg __unused)
{
	u_int i;

	for (i = 0; i < 3; i++) {
		begin();
		offer("feature-multicast-control", i == 1 ? "1" : "0");
		offer("feature-dynamic-multicast-control", i == 2 ? "1" : "0");
		connect();
		CHECK(filter(1, 3, false, false) == 0 && back.commands == 0 && !filters(), "%u", i);
		CHECK(filter(1, 3, true, false) == 0 && !filters(), "%u", i);
		end();
	}
}

/* A group that is refused is received with all others. */
static void
refused_group_is_received_with_all(const void *arg __unused)
{
	static const int statuses[] = { NETIF_RSP_ERROR, NETIF_RSP_DROPPED, 99 };
	u_int i;

	for (i = 0; i < nitems(statuses); i++) {
		begin_filter();
		CHECK(filter(1, 2, false, false) == 0, "error");
		forwards(1, 2);
		back.refuses = statuses[i];
		CHECK(filter(1, 3, false, false) == 0 && back.commands == 1 && card.pn_refilters == 1,
		    "not asked for again");
		CHECK(kpi_sysctl_value("q0.groups_refused") == 1 &&
		    kpi_sysctl_value("q0.tx_error") == 0 && kpi_sysctl_value("q0.tx_status") == 0,
		    "not counted");
		back.refuses = 0;
		CHECK(filter(1, 3, false, false) == 0 && back.commands == 0 && !filters(), "filtered");
		CHECK(filter(1, 1, false, false) == 0 && back.commands == 0 && !filters(), "filtered");
		/* A packet that is refused is none. */
		disconnect();
		connect();
		CHECK(filter(1, 3, false, false) == 0, "error");
		forwards(1, 3);
		end();
	}
}

static void
pauses(void)
{

	dv.pauses++;
	if (dv.pauses == 5) {
		back.silent = false;
		back_serves();
	}
}

/* Commands wait for room in the ring, for a fifth of a second each. */
static void
commands_wait_for_room(const void *arg __unused)
{

	begin_filter();
	hz = 10000;
	back.silent = true;
	kpi_pause = pauses;
	/* Two slots each: 64 and 64 are all that there is. */
	CHECK(filter(1, 64, false, false) == 0 && dv.pauses == 0, "error");
	CHECK(filter(101, 32, false, false) == 0 && dv.pauses == 5, "%u pauses", dv.pauses);
	forwards(101, 32);
	/* It is never served: all are forwarded. */
	back.silent = true;
	dv.pauses = 10;
	kpi_paused = 0;
	CHECK(filter(1, 64, false, false) == 0 && dv.pauses == 10, "%u pauses", dv.pauses);
	CHECK(filter(101, 64, false, false) == ENOSPC && dv.pauses == 10 + 19 && !filters(),
	    "%u pauses", dv.pauses);
	CHECK(kpi_paused == 19 * 100 * tick_sbt, "not for a 100th of a second each");
	hz = 100;
	back.silent = false;
	back_serves();
	card_sent(&card, 0);
	CHECK(filter(101, 64, false, false) == 0, "error");
	forwards(101, 64);
	kpi_pause = NULL;
	end();
}

/* Whether a switch arrived is not known: it is made again. */
static void
switch_without_an_answer_is_made_again(const void *arg __unused)
{

	begin_filter();
	xsn_no_writing = ETIMEDOUT;
	CHECK(filter(1, 2, false, false) == ETIMEDOUT && dv.changes == 1, "no error");
	CHECK(kpi_sysctl_value("group_filter") == 0, "switched");
	/* It may be written yet. */
	tool("request-multicast-control", "1");
	CHECK(card.pn_refilters == 0, "refiltered at once");
	changed("carrier");
	CHECK(card.pn_refilters == 0, "refiltered for a link");
	changed("");
	CHECK(card.pn_refilters == 1, "not refiltered");
	CHECK(filter(1, 2, true, false) == ETIMEDOUT && dv.changes == 2, "no error");
	xsn_no_writing = 0;
	CHECK(filter(1, 2, true, false) == 0 && !filters() && dv.changes == 2, "it is on");
	changed("");
	CHECK(card.pn_refilters == 1, "refiltered again");
	CHECK(filter(1, 2, false, false) == 0 && back.commands == 0, "%u commands", back.commands);
	forwards(1, 2);
	/* A new back end is as it is. */
	xsn_no_writing = ETIMEDOUT;
	CHECK(filter(1, 2, true, false) == ETIMEDOUT, "no error");
	xsn_no_writing = 0;
	disconnect();
	connect();
	changed("");
	CHECK(card.pn_refilters == 1 && !filters(), "refiltered again");
	end();
}

/* Responses that can't be break a queue, or are counted; the card is connected again and works. */
static void
hostile_back_end(const void *arg __unused)
{
	static const struct pv_net_offload none;
	u_int i;

	for (i = 0; i < 3; i++) {
		begin();
		connect();
		sends(0, &none, 1, 100);
		CHECK(back_takes(0), "nothing");
		/* An id of nothing, more than was asked for, and the same twice. */
		taken.reqs[0].id ^= i == 0 ? 0x40 : 0;
		back.queues[0].tx.rsp_prod_pvt += i == 1 ? 5 : 0;
		back_answers(0, NETIF_RSP_OKAY);
		card_sent(&card, 0);
		if (i == 2)
			back_answers(0, NETIF_RSP_OKAY);
		card_sent(&card, 0);
		CHECK(pvq_broken(card.pn_pvqs[1]), "%u: not noticed", i);
		(void)kpi_run_tasks();
		CHECK(front.resets == 1, "%u: %u resets", i, front.resets);
		disconnect();
		connect();
		works(1);
		end();
	}
}

static const struct hosted_test tests[] = {
	{ "probes_network_cards", "And nothing else", probes_network_cards, NULL },
	{ "publishes_queues", "As netif.h has them", publishes_queues, NULL },
	{ "tunables_restrict", "What is used", tunables_restrict, NULL },
	{ "parses_the_address", "Of the toolstack", parses_the_address, NULL },
	{ "refuses_a_back_end_without_copies", "And makes nothing for it",
	    refuses_a_back_end_without_copies, NULL },
	{ "negotiates_offloads", "Both ways", negotiates_offloads, NULL },
	{ "sends_a_gso_packet", "With its extra info", sends_a_gso_packet, NULL },
	{ "receives_a_gso_frame", "With its extra info", receives_a_gso_frame, NULL },
	{ "counters_are_sysctls", "Of each pair", counters_are_sysctls, NULL },
	{ "reports_the_link", "Of the back end", reports_the_link, NULL },
	{ "follows_the_mtu", "Of the toolstack", follows_the_mtu, NULL },
	{ "uses_fewer_pairs_without_resources", "And more later", uses_fewer_pairs_without_resources,
	    NULL },
	{ "events_before_the_ring", "Are taken", events_before_the_ring, NULL },
	{ "reconnects_to_one_that_has_less", "And to one that has more",
	    reconnects_to_one_that_has_less, NULL },
	{ "sets_up_again_before_there_is_an_interface", "For another back end",
	    sets_up_again_before_there_is_an_interface, NULL },
	{ "detaches", "In each state", detaches, NULL },
	{ "errors_leave_nothing", "And it works later", errors_leave_nothing, NULL },
	{ "filters_multicast_groups", "By a list of the back end's", filters_multicast_groups, NULL },
	{ "leaves_multicast_alone_without_the_features", "All are received",
	    leaves_multicast_alone_without_the_features, NULL },
	{ "refused_group_is_received_with_all", "Until another back end comes",
	    refused_group_is_received_with_all, NULL },
	{ "commands_wait_for_room", "But not for ever", commands_wait_for_room, NULL },
	{ "switch_without_an_answer_is_made_again", "When there may be one",
	    switch_without_an_answer_is_made_again, NULL },
	{ "hostile_back_end", "Is connected to again", hostile_back_end, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
