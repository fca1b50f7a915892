/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Allocation of buf_ring(9) rings; everything else of them is inline in sys/buf_ring.h.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/buf_ring.h>

struct buf_ring *
buf_ring_alloc(int count, struct malloc_type *type, int flags, struct mtx *lock __unused)
{
	struct buf_ring *br;

	KASSERT(powerof2(count), ("%s: %d is not a power of two", __func__, count));
	br = malloc(sizeof(*br) + count * sizeof(br->br_ring[0]), type, flags | M_ZERO);
	if (br == NULL)
		return (NULL);
	br->br_prod_size = br->br_cons_size = count;
	br->br_prod_mask = br->br_cons_mask = count - 1;
	return (br);
}

void
buf_ring_free(struct buf_ring *br, struct malloc_type *type)
{
	free(br, type);
}
