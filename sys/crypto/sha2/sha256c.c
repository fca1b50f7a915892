/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * SHA-256, as FIPS 180-4 defines it (section numbers below are the standard's).
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>

#include <crypto/sha2/sha256.h>

/* 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t sha256_k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t
rotr(uint32_t x, int n)
{
	return (x >> n | x << (32 - n));
}

/* 6.2.2: the message schedule, 64 rounds, and the sum with the state before. */
static void
sha256_block(uint32_t state[8], const uint8_t *block)
{
	uint32_t w[64], v[8], s0, s1, t1, t2;
	int t;

	for (t = 0; t < 16; t++)
		w[t] = be32dec(block + 4 * t);
	for (; t < 64; t++) {
		s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
		s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
		w[t] = s1 + w[t - 7] + s0 + w[t - 16];
	}
	memcpy(v, state, sizeof(v));
	for (t = 0; t < 64; t++) {
		s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
		t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha256_k[t] + w[t];
		s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
		t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
		memmove(v + 1, v, 7 * sizeof(v[0]));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (t = 0; t < 8; t++)
		state[t] += v[t];
}

void
SHA256_Init(SHA256_CTX *ctx)
{
	/* 5.3.3: of the square roots of the first eight primes. */
	static const uint32_t h0[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19
	};

	memcpy(ctx->state, h0, sizeof(h0));
	ctx->count = 0;
}

void
SHA256_Update(SHA256_CTX *ctx, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t have, n;

	have = ctx->count % SHA256_BLOCK_LENGTH;
	ctx->count += len;
	if (have != 0) {
		n = MIN(len, SHA256_BLOCK_LENGTH - have);
		memcpy(ctx->buf + have, p, n);
		p += n;
		len -= n;
		if (have + n < SHA256_BLOCK_LENGTH)
			return;
		sha256_block(ctx->state, ctx->buf);
	}
	for (; len >= SHA256_BLOCK_LENGTH; p += SHA256_BLOCK_LENGTH, len -= SHA256_BLOCK_LENGTH)
		sha256_block(ctx->state, p);
	memcpy(ctx->buf, p, len);
}

void
SHA256_Final(unsigned char digest[SHA256_DIGEST_LENGTH], SHA256_CTX *ctx)
{
	static const uint8_t pad[SHA256_BLOCK_LENGTH] = { 0x80 };
	uint8_t bits[8];
	size_t have;
	int i;

	/* 5.1.1: a one bit, zeros up to 8 bytes before a block's end, the length in bits. */
	be64enc(bits, ctx->count * 8);
	have = ctx->count % SHA256_BLOCK_LENGTH;
	SHA256_Update(ctx, pad, have < 56 ? 56 - have : 120 - have);
	SHA256_Update(ctx, bits, sizeof(bits));
	for (i = 0; i < 8; i++)
		be32enc(digest + 4 * i, ctx->state[i]);
	explicit_bzero(ctx, sizeof(*ctx));
}
