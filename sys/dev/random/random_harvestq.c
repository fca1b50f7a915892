/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Sources of random(4): a thread of the tree kernel reads each ten times a
 * second, and stirs what it gives into the numbers of arc4random(9).
 *
 * Locking.  random_sx: the list's changes and its sysctl.  Readers of the list
 * are in an epoch section.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/ck.h>
#include <sys/epoch.h>
#include <sys/kthread.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/sbuf.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <dev/random/randomdev.h>

#define	HARVEST_BYTES	8	/* that a source is asked for at once,
				 * as in FreeBSD */
#define	HARVEST_READS	4	/* each time */

struct harvested {
	struct random_source *h_source;
	CK_LIST_ENTRY(harvested) h_link;
};

static MALLOC_DEFINE(M_ENTROPY, "entropy", "sources of random(4)");

static struct sx random_sx;
SX_SYSINIT(random_sources, &random_sx, "sources of random(4)");
static epoch_t random_epoch;
static CK_LIST_HEAD(,
    harvested) random_sources = CK_LIST_HEAD_INITIALIZER(random_sources);
u_int hc_source_mask;

static void
random_epoch_alloc(void *arg __unused)
{

	random_epoch = epoch_alloc("Random source", EPOCH_PREEMPT);
}
SYSINIT(random_epoch, SI_SUB_EPOCH, SI_ORDER_ANY, random_epoch_alloc, NULL);

void
random_source_register(struct random_source *rs)
{
	struct harvested *h;

	h = malloc(sizeof(*h), M_ENTROPY, M_WAITOK | M_ZERO);
	h->h_source = rs;
	printf("random: registering fast source %s\n", rs->rs_ident);
	sx_xlock(&random_sx);
	CK_LIST_INSERT_HEAD(&random_sources, h, h_link);
	hc_source_mask |= 1u << rs->rs_source;
	sx_xunlock(&random_sx);
}

void
random_source_deregister(struct random_source *rs)
{
	struct harvested *h;

	sx_xlock(&random_sx);
	CK_LIST_FOREACH(h, &random_sources, h_link) {
		if (h->h_source == rs) {
			CK_LIST_REMOVE(h, h_link);
			break;
		}
	}
	hc_source_mask &= ~(1u << rs->rs_source);
	sx_xunlock(&random_sx);
	KASSERT(h != NULL,
	    ("%s: %s is not registered", __func__, rs->rs_ident));
	epoch_wait_preempt(random_epoch);
	free(h, M_ENTROPY);
}

static void
random_feed(void)
{
	uint8_t bytes[HARVEST_BYTES];
	struct epoch_tracker et;
	struct harvested *h;
	u_int i, n;

	epoch_enter_preempt(random_epoch, &et);
	CK_LIST_FOREACH(h, &random_sources, h_link) {
		for (i = 0; i < HARVEST_READS; i++) {
			n = h->h_source->rs_read(bytes, sizeof(bytes));
			KASSERT(n <= sizeof(bytes), ("%s: %s gave %u bytes",
			    __func__, h->h_source->rs_ident, n));
			if (n > 0)
				random_harvest_direct(bytes, n,
				    h->h_source->rs_source);
		}
	}
	epoch_exit_preempt(random_epoch, &et);
	explicit_bzero(bytes, sizeof(bytes));
}

static void
random_kthread(void)
{

	for (;;) {
		random_feed();
		pause("-", hz / 10);
	}
}

static struct proc *random_proc;
static const struct kproc_desc random_kproc = { "rand_harvestq", random_kthread,
    &random_proc };
SYSINIT(random_kthread, SI_SUB_KICK_SCHEDULER, SI_ORDER_ANY, kproc_start,
    &random_kproc);

static int
random_sources_sysctl(SYSCTL_HANDLER_ARGS)
{
	struct harvested *h;
	struct sbuf sb;
	int error, n = 0;

	sbuf_new_for_sysctl(&sb, NULL, 64, req);
	sx_slock(&random_sx);
	CK_LIST_FOREACH(h, &random_sources, h_link)
		sbuf_printf(&sb, "%s'%s'", n++ == 0 ? "" : ",",
		    h->h_source->rs_ident);
	sx_sunlock(&random_sx);
	error = sbuf_finish(&sb);
	sbuf_delete(&sb);
	return (error);
}
static SYSCTL_NODE(_kern, OID_AUTO, random, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "random(4)");
SYSCTL_PROC(_kern_random, OID_AUTO, random_sources,
    CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, 0,
    random_sources_sysctl, "A", "Fast sources that are registered");
