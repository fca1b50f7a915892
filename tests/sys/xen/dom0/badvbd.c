/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The ring of a malicious block back end (xen/io/blkif.h), in a process of dom0.
 *
 *	badvbd DOMAIN RING-REF PORT VIOLATION
 *
 * It maps the ring that a front end has published, prints that it is ready, waits for a request,
 * commits the violation (the table at the end; "honest" is none), and unmaps the ring.  "serve" is no
 * violation either: it answers up to the first request that is neither a read nor a write, and prints
 * that request's operation and flags.  Statically linked, as dom0 has no usable C library.
 */

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <err.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdbool.h>
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
#include <xen/io/blkif.h>
#include <xen/sys/gntdev.h>
#include <xen/sys/evtchn.h>

#include "storm.h"

#define	PAGE	4096
#define	MASK	(__CONST_RING_SIZE(blkif, PAGE) - 1)

static struct blkif_sring *ring;
static struct blkif_request asked;	/* the first request, as it came */
static RING_IDX done;
static int evtchn;
static unsigned port;
static bool serving;

static struct blkif_sring *
map(unsigned domain, grant_ref_t ref)
{
	struct ioctl_gntdev_map_grant_ref arg = {
		.count = 1, .refs = { { .domid = domain, .ref = ref } }
	};
	int fd = open("/dev/xen/gntdev", O_RDWR | O_CLOEXEC);
	void *p;

	if (fd < 0 || ioctl(fd, IOCTL_GNTDEV_MAP_GRANT_REF, &arg) != 0)
		err(1, "grant %u", ref);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, arg.index);
	if (p == MAP_FAILED)
		err(1, "ring");
	return (p);
}

static void
answer(uint64_t id, unsigned operation, int status)
{
	struct blkif_response *rsp = &ring->ring[done++ & MASK].rsp;

	rsp->id = id;
	rsp->operation = operation;
	rsp->status = status;
}

static void
honest(void)
{
	answer(asked.id, asked.operation, BLKIF_RSP_OKAY);
}

/* Publish what was answered. */
static void
push(void)
{

	xen_wmb();
	ring->rsp_prod = done;
	ring->req_event = done + 1;
	xen_mb();
	send_event(evtchn, port);
}

/* An answer, and then only events. */
static void
storm(void)
{

	honest();
	push();
	storm_until_calm(evtchn, port, port);
}

static void
id_huge(void)
{
	answer(UINT64_MAX, asked.operation, BLKIF_RSP_OKAY);
}

static void
id_idle(void)
{
	answer(asked.id ^ 1, asked.operation, BLKIF_RSP_OKAY);
}

static void
id_twice(void)
{
	honest();
	honest();
}

static void
status_unknown(void)
{
	answer(asked.id, asked.operation, 77);
}

static void
another_operation(void)
{
	answer(asked.id, BLKIF_OP_DISCARD, BLKIF_RSP_OKAY);
}

static void
index_ahead(void)
{
	done += 1000;
}

static void
index_back(void)
{
	done -= 1;
}

static void
serve(void)
{
	honest();
	serving = asked.operation == BLKIF_OP_READ || asked.operation == BLKIF_OP_WRITE;
	if (!serving)
		printf("asked for operation %u, flags %u\n", asked.operation, asked.nr_segments);
}

static const struct {
	const char	*name;
	void		(*tell)(void);
} violations[] = {
	{ "honest", honest },
	{ "serve", serve },
	{ "storm", storm },
	{ "id_huge", id_huge },
	{ "id_idle", id_idle },
	{ "id_twice", id_twice },
	{ "status_unknown", status_unknown },
	{ "another_operation", another_operation },
	{ "index_ahead", index_ahead },
	{ "index_back", index_back },
};

int
main(int argc, char **argv)
{
	struct ioctl_evtchn_bind_interdomain bind;
	size_t i, violation = sizeof(violations) / sizeof(violations[0]);

	for (i = 0; argc == 5 && i < sizeof(violations) / sizeof(violations[0]); i++)
		if (strcmp(violations[i].name, argv[4]) == 0)
			violation = i;
	if (violation == sizeof(violations) / sizeof(violations[0]))
		errx(2, "usage: badvbd domain ring-ref port violation");
	ring = map(atoi(argv[1]), atoi(argv[2]));
	bind.remote_domain = atoi(argv[1]);
	bind.remote_port = atoi(argv[3]);
	evtchn = open("/dev/xen/evtchn", O_RDWR | O_CLOEXEC);
	port = ioctl(evtchn, IOCTL_EVTCHN_BIND_INTERDOMAIN, &bind);
	if ((int)port < 0)
		err(1, "event channel");
	done = ring->rsp_prod;
	printf("ready\n");
	fflush(stdout);
	do {
		for (i = 0; *(volatile RING_IDX *)&ring->req_prod == done; i++) {
			if (i == 3000)
				errx(1, "the front end asks for nothing");
			usleep(10000);
		}
		xen_rmb();
		asked = ring->ring[done & MASK].req;
		violations[violation].tell();
		push();
	} while (serving);
	usleep(200000);
	return (0);
}
