/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Memory that a model device shares with the driver.  Little-endian, as the machines are that tests run
 * on.
 *
 * get and put are for words that both sides may use at the same time: indices, flags, events.  peek is
 * for what one side has handed to the other, by such a word: ThreadSanitizer checks that it has
 * (pvq_race.c).
 */

#ifndef _RING_MEMORY_H_
#define	_RING_MEMORY_H_

#include <sys/types.h>

#define	DESC_BYTES	16
#define	DESC_NEXT	1
#define	DESC_WRITE	2
#define	DESC_INDIRECT	4

static inline uint16_t
get16(const uint8_t *p)
{

	return (*(const volatile uint16_t *)p);
}

static inline uint32_t
get32(const uint8_t *p)
{

	return (*(const volatile uint32_t *)p);
}

static inline uint64_t
get64(const uint8_t *p)
{

	return (*(const volatile uint64_t *)p);
}

static inline uint16_t
peek16(const uint8_t *p)
{

	return (*(const uint16_t *)p);
}

static inline uint32_t
peek32(const uint8_t *p)
{

	return (*(const uint32_t *)p);
}

static inline uint64_t
peek64(const uint8_t *p)
{

	return (*(const uint64_t *)p);
}

static inline void
put16(uint8_t *p, uint16_t v)
{

	*(volatile uint16_t *)p = v;
}

static inline void
put32(uint8_t *p, uint32_t v)
{

	*(volatile uint32_t *)p = v;
}

#endif /* !_RING_MEMORY_H_ */
