/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A malicious network back end (xen/io/netif.h), in a process of dom0.
 *
 *	badvif DOMAIN TX-REF RX-REF TX-PORT RX-PORT VIOLATION ...
 *
 * It maps the rings that a front end has published, binds to its event channels, and commits the named
 * violations one after the other (the table at the end).  Statically linked, as dom0 has no usable C
 * library.
 */

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <err.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define	__XEN_TOOLS__	1	/* the headers' newest version */
#define	xen_mb()	__sync_synchronize()
#define	xen_rmb()	__sync_synchronize()
#define	xen_wmb()	__sync_synchronize()
#include <xen/xen.h>
#include <xen/grant_table.h>
#include <xen/io/ring.h>
#include <xen/io/netif.h>
#include <xen/sys/gntdev.h>
#include <xen/sys/evtchn.h>

#include "storm.h"

#define	PAGE	4096
#define	SLOTS	256
#define	RX_MASK	(__CONST_RING_SIZE(netif_rx, PAGE) - 1)
#define	TX_MASK	(__CONST_RING_SIZE(netif_tx, PAGE) - 1)
#define	FRAME	60		/* bytes of a good one */
#define	REFS	1024		/* of a domain that are looked at */

static int gntdev, evtchn;
static unsigned domain, tx_port, rx_port;
static grant_ref_t tx_ref, rx_ref;
static struct netif_tx_sring *tx;
static struct netif_rx_sring *rx;
static uint32_t tx_done, rx_done;

/* Map a page that the domain granted: NULL if it did not. */
static void *
map(grant_ref_t ref, bool writing)
{
	struct ioctl_gntdev_map_grant_ref arg = {
		.count = 1, .refs = { { .domid = domain, .ref = ref } }
	};
	struct ioctl_gntdev_unmap_grant_ref undo = { .count = 1 };
	void *p;

	if (ioctl(gntdev, IOCTL_GNTDEV_MAP_GRANT_REF, &arg) != 0)
		err(1, "map of %u", ref);
	p = mmap(NULL, PAGE, PROT_READ | (writing ? PROT_WRITE : 0), MAP_SHARED, gntdev, arg.index);
	/* The grant stays in use as long as the mapping exists. */
	undo.index = arg.index;
	ioctl(gntdev, IOCTL_GNTDEV_UNMAP_GRANT_REF, &undo);
	return (p == MAP_FAILED ? NULL : p);
}

static unsigned
bind_port(unsigned remote)
{
	struct ioctl_evtchn_bind_interdomain arg = { domain, remote };
	int port;

	port = ioctl(evtchn, IOCTL_EVTCHN_BIND_INTERDOMAIN, &arg);
	if (port < 0)
		err(1, "event channel %u", remote);
	return (port);
}

static void
notify(unsigned port)
{

	send_event(evtchn, port);
}

/* Wait until the front end has reached an index. */
static void
wait_for(volatile uint32_t *prod, uint32_t index)
{
	for (int i = 0; (int32_t)(*prod - index) <= 0; i++) {
		if (i == 2000)
			errx(1, "the front end came to %u only, not beyond %u", *prod, index);
		usleep(10000);
	}
	xen_rmb();
}

/*
 * Publish the responses, and wait until the front end has taken them all and requests the next event.
 * A front end that marked the queue broken never does.
 */
static void
rx_push(void)
{
	volatile uint32_t *event = (volatile uint32_t *)&rx->rsp_event;

	xen_wmb();
	rx->rsp_prod = rx_done;
	xen_mb();
	notify(rx_port);
	for (int i = 0; i < 500 && (int32_t)(*event - rx_done) <= 0; i++)
		usleep(1000);
}

static void
rx_answer(unsigned offset, unsigned flags, int status)
{
	struct netif_rx_response rsp = { .offset = offset, .flags = flags, .status = status };

	wait_for((volatile uint32_t *)&rx->req_prod, rx_done);
	rsp.id = rx->ring[rx_done & RX_MASK].req.id;
	rx->ring[rx_done++ & RX_MASK].rsp = rsp;
}

static void
rx_extra(unsigned type, unsigned flags, unsigned gso, unsigned size)
{
	struct netif_extra_info extra = { .type = type, .flags = flags };

	extra.u.gso.type = gso;
	extra.u.gso.size = size;
	wait_for((volatile uint32_t *)&rx->req_prod, rx_done);
	memcpy(&rx->ring[rx_done++ & RX_MASK].rsp, &extra, sizeof(rx->ring[0].rsp));
}

/* Write a frame to the next buffer, without answering. */
static void
rx_frame(void)
{
	static const uint8_t frame[FRAME] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x16, 0x3e, 0x00, 0x00, 0x99, 0x88, 0xb5
	};
	uint8_t *page;

	wait_for((volatile uint32_t *)&rx->req_prod, rx_done);
	page = map(rx->ring[rx_done & RX_MASK].req.gref, true);
	if (page == NULL)
		errx(1, "a buffer that is not granted");
	memcpy(page, frame, sizeof(frame));
	munmap(page, PAGE);
}

static void
good(void)
{
	rx_frame();
	rx_answer(0, 0, FRAME);
	rx_push();
}

static void
status(void)
{
	rx_answer(0, 0, -1);
	rx_answer(0, NETRXF_more_data, -32768);
	rx_answer(0, 0, 100);
	rx_push();
}

static void
range(void)
{
	rx_answer(4000, 0, 97);
	rx_answer(0xffff, 0, 0x7fff);
	rx_answer(0, 0, PAGE + 1);
	rx_push();
}

static void
chain(void)
{
	for (int i = 0; i < 150; i++)
		rx_answer(0, NETRXF_more_data, PAGE);
	rx_answer(0, 0, PAGE);
	rx_push();
}

static void
extras(void)
{
	rx_frame();
	rx_answer(0, NETRXF_extra_info, FRAME);
	for (int i = 0; i < 150; i++)
		rx_extra(XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_EXTRA_FLAG_MORE,
		    XEN_NETIF_GSO_TYPE_TCPV4, 1448);
	rx_extra(XEN_NETIF_EXTRA_TYPE_GSO, 0, XEN_NETIF_GSO_TYPE_TCPV4, 1448);
	rx_push();
}

static void
kinds(void)
{
	static const struct {
		unsigned type, gso, size;
	} bad[] = {
		{ 0, 0, 0 }, { XEN_NETIF_EXTRA_TYPE_MAX, 0, 0 }, { 255, 255, 65535 },
		{ XEN_NETIF_EXTRA_TYPE_MCAST_ADD, 0, 0 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, 0, 1448 }, { XEN_NETIF_EXTRA_TYPE_GSO, 77, 1448 },
		{ XEN_NETIF_EXTRA_TYPE_GSO, XEN_NETIF_GSO_TYPE_TCPV6, 0 },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		rx_frame();
		rx_answer(0, NETRXF_extra_info, FRAME);
		rx_extra(bad[i].type, 0, bad[i].gso, bad[i].size);
	}
	rx_push();
}

static void
prefix(void)
{
	rx_answer(0, NETRXF_gso_prefix, 1448);
	rx_push();
}

/* Offloads of a frame that has none of those headers. */
static void
offloads(void)
{
	rx_frame();
	rx_answer(0, NETRXF_csum_blank, FRAME);
	rx_frame();
	rx_answer(0, NETRXF_csum_blank | NETRXF_extra_info, FRAME);
	rx_extra(XEN_NETIF_EXTRA_TYPE_GSO, 0, XEN_NETIF_GSO_TYPE_TCPV4, 1448);
	rx_answer(0, NETRXF_csum_blank, 3);
	rx_push();
}

/* More answers than there were requests. */
static void
ahead(void)
{
	rx_done = rx->req_prod + 1000;
	rx_push();
}

static void
tx_push(void)
{
	xen_wmb();
	tx->rsp_prod = tx_done;
	xen_mb();
	notify(tx_port);
}

static void
tx_answer(unsigned id, int what)
{
	struct netif_tx_response rsp = { .id = id, .status = what };

	tx->ring[tx_done++ & TX_MASK].rsp = rsp;
}

/* Answer requests to send, `max' packets at most: with `what', and commands with `command'. */
static void
tx_serve(int what, int command, unsigned max)
{
	struct netif_tx_request req;
	bool extra = false;

	while (tx_done != tx->req_prod && (extra || max > 0)) {
		xen_rmb();
		req = tx->ring[tx_done & TX_MASK].req;
		if (extra) {
			extra = (((struct netif_extra_info *)&req)->flags &
			    XEN_NETIF_EXTRA_FLAG_MORE) != 0;
			tx_answer(0, NETIF_RSP_NULL);
			continue;
		}
		extra = (req.flags & NETTXF_extra_info) != 0;
		tx_answer(req.id, req.size == 0 ? command : what);
		max -= req.size != 0;
	}
	tx_push();
}

static void
serve_for(int seconds, int what, int command)
{
	for (int i = 0; i < seconds * 20; i++) {
		tx_serve(what, command, SLOTS);
		usleep(50000);
	}
}

static void
serve(void)
{
	serve_for(3, NETIF_RSP_OKAY, NETIF_RSP_OKAY);
}

static void
refuse(void)
{
	serve_for(4, NETIF_RSP_OKAY, NETIF_RSP_ERROR);
}

static void
answers(void)
{
	static const int what[] = { NETIF_RSP_ERROR, NETIF_RSP_DROPPED, -77, 32767 };

	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
		wait_for((volatile uint32_t *)&tx->req_prod, tx_done);
		tx_serve(what[i], NETIF_RSP_OKAY, 1);
	}
	tx_serve(NETIF_RSP_OKAY, NETIF_RSP_OKAY, SLOTS);
}

/* A request that was never made. */
static void
strange(void)
{
	wait_for((volatile uint32_t *)&tx->req_prod, tx_done);
	tx_answer(40000, NETIF_RSP_OKAY);
	tx_push();
	usleep(500000);
}

/* The same one twice. */
static void
twice(void)
{
	unsigned id;

	wait_for((volatile uint32_t *)&tx->req_prod, tx_done + 1);
	id = tx->ring[tx_done & TX_MASK].req.id;
	tx_answer(id, NETIF_RSP_OKAY);
	tx_answer(id, NETIF_RSP_OKAY);
	tx_push();
	usleep(500000);
}

/* Arbitrary answers, but not more than there are requests. */
static void
anything(void)
{
	/* Not NETIF_RSP_NULL: where there is no extra info that ends the connection. */
	static const int status[] = { NETIF_RSP_DROPPED, NETIF_RSP_ERROR, NETIF_RSP_OKAY, 2 };

	srand(1);
	for (int i = 0; i < 3000; i++) {
		wait_for((volatile uint32_t *)&rx->req_prod, rx_done);
		for (unsigned j = 0; j < sizeof(rx->ring[0].rsp); j++)
			((uint8_t *)&rx->ring[rx_done & RX_MASK].rsp)[j] = rand() >> 8;
		rx_done++;
		if (i % 100 == 99) {
			rx_push();
			tx_serve(status[rand() % 4], NETIF_RSP_OKAY, SLOTS);
		}
	}
	/* Whatever preceded it, this ends the packet. */
	for (int i = 0; i < 3; i++) {
		memset(&rx->ring[rx_done & RX_MASK].rsp, 0, sizeof(rx->ring[0].rsp));
		wait_for((volatile uint32_t *)&rx->req_prod, rx_done);
		rx_done++;
	}
	rx_push();
}

/* Only events, on both channels. */
static void
storm(void)
{
	storm_until_calm(evtchn, tx_port, rx_port);
}

static bool
blank(const uint8_t *p, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		if (p[i] != 0) {
			printf("byte %zu is 0x%02x\n", i, p[i]);
			return (false);
		}
	}
	return (true);
}

/*
 * Before anything was sent or received: all that the domain grants to us, but for the rings, and those
 * of the console and the xenstore (0, 1), are pages of zero.
 */
static void
pages(void)
{
	unsigned n = 0;
	uint8_t *p;

	if (tx->req_prod != 0 || rx->rsp_prod != 0)
		errx(1, "something was sent already");
	for (unsigned i = 0; i < rx->req_prod; i++)
		if (rx->ring[i & RX_MASK].req.pad != 0)
			errx(1, "request %u says more than it should", i);
	if (!blank((uint8_t *)tx, sizeof(RING_IDX) * 4, PAGE))
		errx(1, "the ring of what is sent");
	for (grant_ref_t ref = 2; ref < REFS; ref++) {
		if (ref == tx_ref || ref == rx_ref || (p = map(ref, false)) == NULL)
			continue;
		n++;
		if (!blank(p, 0, PAGE))
			errx(1, "page of grant %u", ref);
		munmap(p, PAGE);
	}
	printf("%u pages are blank\n", n);
	if (n < 2 * SLOTS)
		errx(1, "too few");
}

/* The pages of sent packets hold nothing beyond the longest packet that they had. */
static void
behind(void)
{
	static unsigned longest[REFS];
	struct netif_tx_request req;
	unsigned n = 0;
	uint8_t *p;

	for (int i = 0; i < 100 && n < 600; i++, usleep(50000)) {
		for (uint32_t at = tx_done; at != tx->req_prod; at++, n++) {
			req = tx->ring[at & TX_MASK].req;
			if ((req.flags & (NETTXF_extra_info | NETTXF_more_data)) != 0)
				errx(1, "a packet of more than one request");
			p = map(req.gref, false);
			if (p == NULL || req.gref >= REFS || req.offset != 0 || req.size > PAGE)
				errx(1, "grant %u, %u bytes at %u", req.gref, req.size, req.offset);
			if (req.size > longest[req.gref])
				longest[req.gref] = req.size;
			if (!blank(p, longest[req.gref], PAGE))
				errx(1, "behind a packet of %u bytes", req.size);
			munmap(p, PAGE);
		}
		tx_serve(NETIF_RSP_OKAY, NETIF_RSP_OKAY, SLOTS);
	}
	printf("nothing behind %u packets\n", n);
}

static const struct {
	const char	*name;
	void		(*tell)(void);
} violations[] = {
	/* Violations in receiving, after which the ring stays in use. */
	{ "good", good }, { "status", status }, { "range", range }, { "chain", chain },
	{ "extras", extras }, { "kinds", kinds }, { "prefix", prefix }, { "offloads", offloads },
	{ "anything", anything }, { "storm", storm },
	/* Violations in sending. */
	{ "serve", serve }, { "answers", answers }, { "refuse", refuse },
	/* Violations that break the ring. */
	{ "ahead", ahead }, { "strange", strange }, { "twice", twice },
	/* No violations: these print what the back end can see. */
	{ "pages", pages }, { "behind", behind },
};

int
main(int argc, char **argv)
{
	size_t j;

	if (argc < 7)
		errx(1, "usage: badvif domain tx-ref rx-ref tx-port rx-port violation ...");
	domain = atoi(argv[1]);
	tx_ref = atoi(argv[2]);
	rx_ref = atoi(argv[3]);
	gntdev = open("/dev/xen/gntdev", O_RDWR | O_CLOEXEC);
	evtchn = open("/dev/xen/evtchn", O_RDWR | O_CLOEXEC);
	if (gntdev < 0 || evtchn < 0)
		err(1, "/dev/xen");
	tx = map(tx_ref, true);
	rx = map(rx_ref, true);
	if (tx == NULL || rx == NULL)
		errx(1, "the rings are not granted");
	tx_port = bind_port(atoi(argv[4]));
	rx_port = strcmp(argv[4], argv[5]) == 0 ? tx_port : bind_port(atoi(argv[5]));
	tx_done = tx->rsp_prod;
	rx_done = rx->rsp_prod;
	tx->req_event = tx->req_prod + 1;
	printf("ready\n");
	fflush(stdout);
	for (int i = 6; i < argc; i++) {
		for (j = 0; j < sizeof(violations) / sizeof(violations[0]); j++)
			if (strcmp(argv[i], violations[j].name) == 0)
				break;
		if (j == sizeof(violations) / sizeof(violations[0]))
			errx(1, "no violation %s", argv[i]);
		violations[j].tell();
		printf("done %s\n", argv[i]);
		fflush(stdout);
	}
	return (0);
}
