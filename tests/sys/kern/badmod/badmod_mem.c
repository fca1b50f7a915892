/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory that is used beyond its end or after its time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>

#include <vm/uma.h>

#include "badmod.h"

static void
bad_overflow_byte(void)
{
	volatile char *p = malloc(100, M_BADMOD, M_WAITOK);

	p[100] = 1;
	free(__DEVOLATILE(char *, p), M_BADMOD);
}

/* 128 is the size of a zone's items. */
static void
bad_overflow_item(void)
{
	volatile char *p = malloc(128, M_BADMOD, M_WAITOK);

	p[128] = 1;
	free(__DEVOLATILE(char *, p), M_BADMOD);
}

static void
bad_overflow_page(void)
{
	volatile char *p = malloc(PAGE_SIZE, M_BADMOD, M_WAITOK);

	p[PAGE_SIZE] = 1;
	free(__DEVOLATILE(char *, p), M_BADMOD);
}

static void
bad_overflow_zone(void)
{
	uma_zone_t zone = uma_zcreate("bad zone", 100, NULL, NULL, NULL, NULL, UMA_ALIGN_PTR, 0);
	volatile char *p = uma_zalloc(zone, M_WAITOK);

	p[100] = 1;
	uma_zfree(zone, __DEVOLATILE(char *, p));
	uma_zdestroy(zone);
}

static void
bad_overflow_cluster(void)
{
	struct mbuf *m = m_getcl(M_WAITOK, MT_DATA, 0);

	m->m_ext.ext_buf[MCLBYTES] = 1;
	m_freem(m);
}

static void
bad_cluster_after_free(void)
{
	struct mbuf *m = m_getcl(M_WAITOK, MT_DATA, 0);
	volatile char *p = m->m_ext.ext_buf;
	int i;

	m_freem(m);
	p[1000] = 1;
	for (i = 0; i < 1000; i++)
		(void)m_getcl(M_WAITOK, MT_DATA, 0);
}

static void
bad_write_after_free(void)
{
	volatile char *p = malloc(100, M_BADMOD, M_WAITOK);
	int i;

	free(__DEVOLATILE(char *, p), M_BADMOD);
	p[8] = 1;
	for (i = 0; i < 10000; i++)
		(void)malloc(100, M_BADMOD, M_WAITOK);
}

struct bad_node {
	struct bad_node *volatile bn_self;
	char	bn_pad[100];
};

static void
bad_read_after_free(void)
{
	struct bad_node *n = malloc(sizeof(*n), M_BADMOD, M_WAITOK);

	n->bn_self = n;
	free(n, M_BADMOD);
	n->bn_self->bn_self = NULL;
}

static void
bad_double_free(void)
{
	char *p = malloc(100, M_BADMOD, M_WAITOK);
	char *volatile q = p;

	free(p, M_BADMOD);
	free(q, M_BADMOD);
}

static void
bad_mbuf_after_free(void)
{
	struct mbuf *m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
	struct mbuf *volatile n = m;

	m_freem(m);
	m_freem(n);
}

static volatile u_int bad_freed;

static void
bad_post_ithread(void *arg)
{
	struct bad_node *n = arg;
	int i;

	/* Whichever CPU is faster. */
	for (i = 0; i < 1000 && atomic_load_acq_int(&bad_freed) == 0; i++)
		DELAY(1000);
	n->bn_self->bn_pad[0]++;
}

static void
bad_handler(void *arg __unused)
{
}

/* A handler's removal does not wait for what its thread does after it. */
static void
bad_ithread_source(void)
{
	struct bad_node *n = malloc(sizeof(*n), M_BADMOD, M_WAITOK);
	struct intr_event *ie;
	void *cookie;

	n->bn_self = n;
	if (intr_event_create(&ie, n, 0, 0, NULL, bad_post_ithread, NULL, NULL, "badmod:") != 0)
		return;
	if (intr_event_add_handler(ie, "badmod", NULL, bad_handler, n,
	    intr_priority(INTR_TYPE_MISC), INTR_TYPE_MISC | INTR_MPSAFE, &cookie) == 0)
		intr_event_remove_handler(cookie);
	free(n, M_BADMOD);
	atomic_store_rel_int(&bad_freed, 1);
	intr_event_destroy(ie);
}

const struct bad_case bad_mem_cases[] = {
	{ "overflow_byte", bad_overflow_byte },
	{ "overflow_item", bad_overflow_item },
	{ "overflow_page", bad_overflow_page },
	{ "overflow_zone", bad_overflow_zone },
	{ "overflow_cluster", bad_overflow_cluster },
	{ "cluster_after_free", bad_cluster_after_free },
	{ "write_after_free", bad_write_after_free },
	{ "read_after_free", bad_read_after_free },
	{ "double_free", bad_double_free },
	{ "mbuf_double_free", bad_mbuf_after_free },
	{ "ithread_source", bad_ithread_source },
	{ NULL, NULL }
};
