/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A network back end (netback.h).
 */

#include "model/netback.h"

#include "host/host.h"
#include "model/grant_table.h"
#include "model/xenstore_nodes.h"

/* Of xen/io/ring.h. */
#define	xen_mb()	mb()
#define	xen_wmb()	wmb()

#define	SLOTS		256	/* of a ring of one page: (4096 - 64) / 12, or / 8, rounded down */

struct back back;
struct taken taken;

void
offer(const char *name, const char *value)
{

	xsn_set(BACK, name, "%s", value);
}

void
tool(const char *name, const char *value)
{

	xsn_set(NODE, name, "%s", value);
}

bool
published(const char *where, const char *name)
{
	char full[48];

	snprintf(full, sizeof(full), "%s%s", where, name);
	return (xsn_exists(NODE, full));
}

u_int
number(const char *dir, const char *where, const char *name)
{
	const char *value;
	char full[48], *end;
	u_int n;

	snprintf(full, sizeof(full), "%s%s", where, name);
	value = xsn_node(dir, full, false);
	CHECK(value != NULL && value[0] >= '0' && value[0] <= '9', "%s: %s", full,
	    value == NULL ? "none" : value);
	n = strtoul(value, &end, 10);
	CHECK(*end == '\0', "%s: %s", full, value);
	return (n);
}

bool
offers(const char *name)
{

	return (xsn_exists(BACK, name) && number(BACK, "", name) != 0);
}

static void *
back_maps(grant_ref_t ref)
{

	return ((void *)(uintptr_t)gnt_map(ref, BACK_DOMID, true));
}

static void
back_connect_queue(struct back_queue *bq, const char *where)
{
	netif_tx_sring_t *tx;
	netif_rx_sring_t *rx;

	bq->tx_ref = number(NODE, where, "tx-ring-ref");
	bq->rx_ref = number(NODE, where, "rx-ring-ref");
	if (published(where, "event-channel-tx") || published(where, "event-channel-rx")) {
		CHECK(offers("feature-split-event-channels") && !published(where, "event-channel"),
		    "%schannels", where);
		bq->tx_channel = channels_bound(number(NODE, where, "event-channel-tx"), BACK_DOMID);
		bq->rx_channel = channels_bound(number(NODE, where, "event-channel-rx"), BACK_DOMID);
		CHECK(bq->tx_channel != bq->rx_channel, "%sone channel", where);
	} else
		bq->tx_channel = bq->rx_channel =
		    channels_bound(number(NODE, where, "event-channel"), BACK_DOMID);
	CHECK(bq->tx_ref != bq->rx_ref, "%sone page", where);
	tx = back_maps(bq->tx_ref);
	rx = back_maps(bq->rx_ref);
	BACK_RING_INIT(&bq->tx, tx, PAGE_SIZE);
	BACK_RING_INIT(&bq->rx, rx, PAGE_SIZE);
	CHECK(RING_SIZE(&bq->tx) == SLOTS && RING_SIZE(&bq->rx) == SLOTS, "%u slots",
	    RING_SIZE(&bq->tx));
}

void
back_connect(void)
{
	static const char *const single[] = { "tx-ring-ref", "rx-ring-ref", "event-channel",
	    "event-channel-tx", "event-channel-rx" };
	char where[16];
	u_int i, j;

	memset(&back, 0, sizeof(back));
	back.n = published("", "multi-queue-num-queues") ?
	    number(NODE, "", "multi-queue-num-queues") : 1;
	CHECK(back.n > 0 && (!published("", "multi-queue-num-queues") ||
	    (offers("multi-queue-max-queues") &&
	    back.n <= number(BACK, "", "multi-queue-max-queues"))), "%u queues", back.n);
	/* No front end has keys of a control ring without one. */
	CHECK(!published("", "ctrl-ring-ref") && !published("", "event-channel-ctrl"), "control ring");
	CHECK(number(NODE, "", "request-rx-copy") == 1 && number(NODE, "", "feature-rx-notify") == 1,
	    "not what this back end can do");
	/* The list is empty, so that nothing would be forwarded. */
	CHECK(number(NODE, "", "request-multicast-control") == 0, "filtered");
	for (i = 0; i < nitems(single) && back.n > 1; i++)
		CHECK(!published("", single[i]), "%s of %u queues", single[i], back.n);
	for (i = 0; i < NETBACK_QUEUES; i++) {
		snprintf(where, sizeof(where), "queue-%u", i);
		CHECK(published(where, "") == (back.n > 1 && i < back.n), "%s of %u", where, back.n);
	}
	for (i = 0; i < back.n; i++) {
		snprintf(where, sizeof(where), "queue-%u/", i);
		back_connect_queue(&back.queues[i], back.n == 1 ? "" : where);
		for (j = 0; j < i; j++)
			CHECK(back.queues[i].tx_channel != back.queues[j].tx_channel &&
			    back.queues[i].rx_channel != back.queues[j].rx_channel &&
			    back.queues[i].tx_ref != back.queues[j].tx_ref, "queues %u, %u", i, j);
	}
	back.connected = true;
}

void
back_disconnect(void)
{
	u_int i;

	for (i = 0; i < back.n && back.connected; i++) {
		gnt_unmap(back.queues[i].tx_ref);
		gnt_unmap(back.queues[i].rx_ref);
	}
	back.connected = false;
}

bool
back_takes(u_int queue)
{
	netif_tx_back_ring_t *r = &back.queues[queue].tx;
	struct netif_tx_request req;
	u_int i, len, rest = 0;
	bool more;

	memset(&taken, 0, sizeof(taken));
	RING_FINAL_CHECK_FOR_REQUESTS(r, more);
	if (!more)
		return (false);
	do {
		CHECK(RING_HAS_UNCONSUMED_REQUESTS(r) && taken.n < nitems(taken.reqs), "half a packet");
		RING_COPY_REQUEST(r, r->req_cons, &req);
		r->req_cons++;
		taken.reqs[taken.n++] = req;
		if (taken.n == 1 && (req.flags & NETTXF_extra_info) != 0) {
			memcpy(&taken.extra, RING_GET_REQUEST(r, r->req_cons), sizeof(taken.extra));
			r->req_cons++;
			CHECK(taken.extra.flags == 0, "more extra info");
		}
		if (taken.n > 1)
			rest += req.size;
	} while ((req.flags & NETTXF_more_data) != 0);
	CHECK(taken.reqs[0].size >= rest, "%u bytes of %u", rest, taken.reqs[0].size);
	for (i = 0; i < taken.n; i++) {
		len = i == 0 ? taken.reqs[0].size - rest : taken.reqs[i].size;
		CHECK(taken.reqs[i].offset + len <= PAGE_SIZE, "%u bytes at %u", len,
		    taken.reqs[i].offset);
		if (len == 0)
			continue;
		memcpy(taken.bytes + taken.len, (u_char *)back_maps(taken.reqs[i].gref) +
		    taken.reqs[i].offset, len);
		gnt_unmap(taken.reqs[i].gref);
		taken.len += len;
	}
	return (true);
}

void
back_answers(u_int queue, int status)
{
	netif_tx_back_ring_t *r = &back.queues[queue].tx;
	u_int i;
	bool notify;

	for (i = 0; i < taken.n; i++) {
		*RING_GET_RESPONSE(r, r->rsp_prod_pvt) = (struct netif_tx_response){
		    .id = taken.reqs[i].id, .status = status };
		r->rsp_prod_pvt++;
		if (i > 0 || taken.extra.type == 0)
			continue;
		RING_GET_RESPONSE(r, r->rsp_prod_pvt)->status = NETIF_RSP_NULL;
		r->rsp_prod_pvt++;
	}
	RING_PUSH_RESPONSES_AND_CHECK_NOTIFY(r, notify);
	if (notify)
		channels_event(back.queues[queue].tx_channel);
}

/* The next buffer that was posted is used for this response. */
static void
back_responds(u_int queue, const void *rsp, size_t len)
{
	netif_rx_back_ring_t *r = &back.queues[queue].rx;
	bool notify;

	memcpy(RING_GET_RESPONSE(r, r->rsp_prod_pvt), rsp, len);
	r->rsp_prod_pvt++;
	r->req_cons++;
	RING_PUSH_RESPONSES_AND_CHECK_NOTIFY(r, notify);
	if (notify)
		channels_event(back.queues[queue].rx_channel);
}

void
back_gives(u_int queue, u_int flags, u_int offset, int status, u_char fill)
{
	netif_rx_back_ring_t *r = &back.queues[queue].rx;
	struct netif_rx_response rsp = { .flags = flags, .offset = offset, .status = status };
	struct netif_rx_request req;
	bool more;

	RING_FINAL_CHECK_FOR_REQUESTS(r, more);
	CHECK(more, "no buffer");
	RING_COPY_REQUEST(r, r->req_cons, &req);
	if (status > 0)
		memset((u_char *)back_maps(req.gref) + offset, fill, status);
	if (status > 0)
		gnt_unmap(req.gref);
	rsp.id = req.id;
	back_responds(queue, &rsp, sizeof(rsp));
}

void
back_gives_extra(u_int queue, const struct netif_extra_info *extra)
{

	back_responds(queue, extra, sizeof(*extra));
}

void
back_serves(void)
{
	uint8_t *group = taken.extra.u.mcast.addr;
	u_int i;

	while (!back.silent && back_takes(0)) {
		back.commands++;
		CHECK(taken.n == 1 && taken.len == 0 && (taken.extra.type ==
		    XEN_NETIF_EXTRA_TYPE_MCAST_ADD || taken.extra.type ==
		    XEN_NETIF_EXTRA_TYPE_MCAST_DEL), "type %u", taken.extra.type);
		if (back.refuses != 0) {
			back_answers(0, back.refuses);
			continue;
		}
		for (i = 0; i < back.ngroups && memcmp(back.groups[i], group, 6) != 0; i++)
			continue;
		CHECK((i < back.ngroups) == (taken.extra.type == XEN_NETIF_EXTRA_TYPE_MCAST_DEL),
		    "group %u of %u", i, back.ngroups);
		memcpy(back.groups[i], i == back.ngroups ? group : back.groups[back.ngroups - 1], 6);
		back.ngroups += taken.extra.type == XEN_NETIF_EXTRA_TYPE_MCAST_ADD ? 1 : -1;
		CHECK(back.ngroups <= NETBACK_GROUPS, "%u groups", back.ngroups);
		back_answers(0, NETIF_RSP_OKAY);
	}
}
