/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Sources of random(4): when they are read, and what they give.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/proc.h>
#include <sys/random.h>

#include <machine/atomic.h>

#include <dev/random/randomdev.h>

#include "ktest.h"

static volatile u_int reads, inside;
static volatile bool closed;

static u_int
source_read(void *buf, u_int len)
{

	KT_TRUE(!closed);
	KT_TRUE(len > 0);
#ifdef INVARIANTS
	/* In an epoch section. */
	KT_TRUE(curthread->td_no_sleeping != 0);
#endif
	atomic_add_int(&inside, 1);
	memset(buf, 0x5a, len);
	DELAY(1000);
	atomic_subtract_int(&inside, 1);
	atomic_add_int(&reads, 1);
	return (reads % 2 == 0 ? len : 0);
}

static struct random_source source = {
	.rs_ident = "ktest",
	.rs_source = RANDOM_PURE_RNDTEST,
	.rs_read = source_read,
};

/* It is read again and again, and no more when it is deregistered, nor is it being read then. */
static void
random_source_is_read(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		reads = 0;
		closed = false;
		random_source_register(&source);
		KT_TRUE((hc_source_mask & (1u << RANDOM_PURE_RNDTEST)) != 0);
		KT_WAIT(reads >= 6);
		random_source_deregister(&source);
		KT_EQ(inside, 0);
		closed = true;
		KT_TRUE((hc_source_mask & (1u << RANDOM_PURE_RNDTEST)) == 0);
	}
	pause("ktwait", hz / 4);
}

/* Equal bytes of a source do not make the numbers equal. */
static void
random_source_is_stirred(void)
{
	uint8_t first[32], second[32];

	memset(first, 0, sizeof(first));
	random_harvest_direct_(first, sizeof(first), RANDOM_PURE_RNDTEST);
	read_random(first, sizeof(first));
	memset(second, 0, sizeof(second));
	random_harvest_direct_(second, sizeof(second), RANDOM_PURE_RNDTEST);
	read_random(second, sizeof(second));
	KT_TRUE(memcmp(first, second, sizeof(first)) != 0);
}

const struct ktest_case ktest_random_cases[] = {
	{ "random.source_is_read", random_source_is_read },
	{ "random.source_is_stirred", random_source_is_stirred },
	{ NULL, NULL }
};
