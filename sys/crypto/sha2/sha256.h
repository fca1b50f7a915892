/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * SHA-256 (FIPS 180-4, 6.2).
 */
#ifndef _SHA256_H_
#define	_SHA256_H_

#include <sys/types.h>

#define	SHA256_BLOCK_LENGTH	64
#define	SHA256_DIGEST_LENGTH	32

typedef struct SHA256Context {
	uint32_t	state[8];
	uint64_t	count;		/* bytes so far */
	uint8_t		buf[SHA256_BLOCK_LENGTH];
} SHA256_CTX;

void	SHA256_Init(SHA256_CTX *ctx);
void	SHA256_Update(SHA256_CTX *ctx, const void *data, size_t len);

/* Stores the digest; the context must be initialised again before it is used again. */
void	SHA256_Final(unsigned char digest[SHA256_DIGEST_LENGTH], SHA256_CTX *ctx);

#endif /* !_SHA256_H_ */
