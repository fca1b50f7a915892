/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Random numbers: ChaCha20 (RFC 8439, 2.3) in counter mode, keyed by what the machine offers.
 *
 * The key comes from RDRAND where the CPU has it, from the time-stamp counter, and from the sources
 * that are registered (random_harvestq.c).  Under QEMU's TCG without RDRAND or a source it is
 * guessable: this kernel keeps no secrets, it needs numbers that differ.  After each request the key
 * is replaced by fresh output, so that earlier output can't be computed from the state.
 *
 * Locking.  random_mtx (a spin lock) protects the key and the counter.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/libkern.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/random.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/specialreg.h>

#define	KEY_WORDS	8
#define	BLOCK_WORDS	16

static struct mtx random_mtx;
MTX_SYSINIT(random, &random_mtx, "random", MTX_SPIN);

static uint32_t random_key[KEY_WORDS];
static uint64_t random_counter;
int arc4rand_iniseed_state;

static inline uint32_t
rotate(uint32_t v, int by)
{

	return (v << by | v >> (32 - by));
}

static void
quarter_round(uint32_t *x, int a, int b, int c, int d)
{

	x[a] += x[b];
	x[d] = rotate(x[d] ^ x[a], 16);
	x[c] += x[d];
	x[b] = rotate(x[b] ^ x[c], 12);
	x[a] += x[b];
	x[d] = rotate(x[d] ^ x[a], 8);
	x[c] += x[d];
	x[b] = rotate(x[b] ^ x[c], 7);
}

/* One block of key stream (RFC 8439, 2.3), with a counter of 64 bits and no nonce. */
static void
random_block(uint32_t out[BLOCK_WORDS])
{
	uint32_t in[BLOCK_WORDS] = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 };
	int i;

	for (i = 0; i < KEY_WORDS; i++)
		in[4 + i] = random_key[i];
	in[12] = random_counter;
	in[13] = random_counter >> 32;
	random_counter++;
	memcpy(out, in, sizeof(in));
	for (i = 0; i < 10; i++) {
		quarter_round(out, 0, 4, 8, 12);
		quarter_round(out, 1, 5, 9, 13);
		quarter_round(out, 2, 6, 10, 14);
		quarter_round(out, 3, 7, 11, 15);
		quarter_round(out, 0, 5, 10, 15);
		quarter_round(out, 1, 6, 11, 12);
		quarter_round(out, 2, 7, 8, 13);
		quarter_round(out, 3, 4, 9, 14);
	}
	for (i = 0; i < BLOCK_WORDS; i++)
		out[i] += in[i];
}

static bool
rdrand(uint64_t *value)
{
	bool ok;

	if ((cpu_feature2 & CPUID2_RDRAND) == 0)
		return (false);
	__asm __volatile("rdrand %0" : "=r" (*value), "=@ccc" (ok));
	return (ok);
}

static void
random_seed(void)
{
	uint64_t value;

	for (int i = 0; i < KEY_WORDS; i += 2) {
		if (!rdrand(&value))
			value = rdtsc() * 0x9e3779b97f4a7c15ULL;
		random_key[i] ^= value;
		random_key[i + 1] ^= value >> 32;
	}
	random_counter = rdtsc();
	arc4rand_iniseed_state = 1;
}

/* Stir bytes of a source into the key. */
void
random_harvest_direct_(const void *entropy, u_int size,
    enum random_entropy_source origin __unused)
{
	uint32_t block[BLOCK_WORDS];
	const u_char *p = entropy;

	mtx_lock_spin(&random_mtx);
	for (u_int i = 0; i < size; i++)
		((u_char *)random_key)[i % sizeof(random_key)] ^= p[i];
	random_block(block);
	memcpy(random_key, block, sizeof(random_key));
	mtx_unlock_spin(&random_mtx);
	explicit_bzero(block, sizeof(block));
}

void
arc4rand(void *buf, u_int len, int reseed)
{
	uint32_t block[BLOCK_WORDS];
	u_char *p = buf;
	u_int n;

	mtx_lock_spin(&random_mtx);
	if (reseed != 0 || arc4rand_iniseed_state == 0)
		random_seed();
	while (len > 0) {
		random_block(block);
		n = MIN(len, sizeof(block));
		memcpy(p, block, n);
		p += n;
		len -= n;
	}
	random_block(block);
	memcpy(random_key, block, sizeof(random_key));
	mtx_unlock_spin(&random_mtx);
	explicit_bzero(block, sizeof(block));
}

void
arc4random_buf(void *buf, size_t len)
{

	arc4rand(buf, len, 0);
}

uint32_t
arc4random(void)
{
	uint32_t value;

	arc4rand(&value, sizeof(value), 0);
	return (value);
}

/* Without bias: values at the top that would wrap unevenly are drawn again. */
uint32_t
arc4random_uniform(uint32_t bound)
{
	uint32_t least, value;

	if (bound < 2)
		return (0);
	least = -bound % bound;
	do {
		value = arc4random();
	} while (value < least);
	return (value % bound);
}

void
read_random(void *buf, u_int len)
{

	arc4rand(buf, len, 0);
}
