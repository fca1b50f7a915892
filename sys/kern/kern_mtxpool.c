/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * mtx_pool(9): mutexes shared by many small objects, found by an object's address.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/hash.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>

static MALLOC_DEFINE(M_MTXPOOL, "mtx_pool", "mutex pool");

struct mtx_pool {
	int		mp_size;	/* A power of two. */
	volatile u_int	mp_next;	/* Of mtx_pool_alloc(). */
	struct mtx	mp_mtx[];
};

struct mtx_pool *mtxpool_sleep;

struct mtx_pool *
mtx_pool_create(const char *name, int size, int opts)
{
	struct mtx_pool *pool;
	int i;

	KASSERT(size > 0 && powerof2(size), ("%s: size %d is not a power of two", name, size));
	pool = malloc(sizeof(*pool) + size * sizeof(struct mtx), M_MTXPOOL, M_WAITOK | M_ZERO);
	pool->mp_size = size;
	for (i = 0; i < size; i++)
		mtx_init(&pool->mp_mtx[i], name, NULL, opts | MTX_NEW);
	return (pool);
}

void
mtx_pool_destroy(struct mtx_pool **poolp)
{
	struct mtx_pool *pool = *poolp;
	int i;

	*poolp = NULL;
	for (i = 0; i < pool->mp_size; i++)
		mtx_destroy(&pool->mp_mtx[i]);
	free(pool, M_MTXPOOL);
}

struct mtx *
mtx_pool_find(struct mtx_pool *pool, void *ptr)
{
	uint32_t h = hash32_buf(&ptr, sizeof(ptr), HASHINIT);

	return (&pool->mp_mtx[h & (pool->mp_size - 1)]);
}

struct mtx *
mtx_pool_alloc(struct mtx_pool *pool)
{
	return (&pool->mp_mtx[atomic_fetchadd_int(&pool->mp_next, 1) & (pool->mp_size - 1)]);
}

static void
mtx_pool_setup(void *arg __unused)
{
	mtxpool_sleep = mtx_pool_create("sleep mtxpool", 128, MTX_DEF);
}
SYSINIT(mtxpool, SI_SUB_MTX_POOL_DYNAMIC, SI_ORDER_FIRST, mtx_pool_setup, NULL);
