/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * vmem(9): allocation of ranges of numbers, addresses above all.
 *
 * An arena is a set of spans.  Each is divided without gap into tags, one for each range that is
 * allocated and each that is free.  Tags are on three lists:
 *
 *	all tags, by address	to find the neighbours that a freed range merges with;
 *	free tags, by size	one list for each power of two, to find a fit;
 *	allocated tags, hashed	to find the tag of the address to be freed.
 *
 * An allocation splits a free tag into up to three and so needs up to two new ones.  They are
 * allocated from UMA before the arena's lock is taken, and those not needed are freed after it was
 * released.  The zone's slabs are single pages in the direct map: kernel address space, which is
 * itself allocated from an arena, is not needed to allocate a tag.
 *
 * Locking.  One mutex an arena; nothing else is locked under it.
 *
 * Gaps.  No imports from another arena, no quantum cache, no limit, no reclaim function.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/queue.h>
#include <sys/vmem.h>

#include <vm/uma.h>

#define	VMEM_ORDERS	64
#define	VMEM_HASH	256
#define	VMEM_FIT	(M_BESTFIT | M_FIRSTFIT | M_NEXTFIT)

struct vmem_tag {
	TAILQ_ENTRY(vmem_tag)	vt_seg;		/* by address */
	LIST_ENTRY(vmem_tag)	vt_link;	/* free list, or hash chain of the allocated */
	vmem_addr_t		vt_start;
	vmem_size_t		vt_size;
	bool			vt_free;
	bool			vt_first;	/* begins a span: never merged with the one before */
};

LIST_HEAD(vmem_taglist, vmem_tag);

struct vmem {
	struct mtx		vm_lock;
	const char		*vm_name;
	vmem_size_t		vm_quantum;
	vmem_size_t		vm_total;
	vmem_size_t		vm_inuse;
	int			vm_waiters;
	TAILQ_HEAD(vmem_taghead, vmem_tag) vm_seg;
	struct vmem_taglist	vm_free[VMEM_ORDERS];
	struct vmem_taglist	vm_hash[VMEM_HASH];
};

/* The constraints of an allocation, all in bytes. */
struct vmem_want {
	vmem_size_t	size;
	vmem_size_t	align;
	vmem_size_t	phase;
	vmem_size_t	nocross;
	vmem_addr_t	minaddr;
	vmem_addr_t	maxaddr;	/* the last address that may be used */
};

static uma_zone_t vmem_tag_zone;
static MALLOC_DEFINE(M_VMEM, "vmem", "vmem arenas");

/* The first arena is created before malloc can be used. */
static struct vmem kernel_arena_store;
struct vmem *kernel_arena = &kernel_arena_store;

void
vmem_startup(void)
{
	vmem_tag_zone = uma_zcreate("vmem btag", sizeof(struct vmem_tag), NULL, NULL, NULL,
	    NULL, UMA_ALIGN_PTR, UMA_ZONE_VM);
}

static struct vmem_taglist *
vmem_freelist(vmem_t *vm, vmem_size_t size)
{
	return (&vm->vm_free[flsl(size) - 1]);
}

static struct vmem_taglist *
vmem_hashlist(vmem_t *vm, vmem_addr_t addr)
{
	vmem_addr_t unit = addr / vm->vm_quantum;

	return (&vm->vm_hash[(unit ^ unit >> 8 ^ unit >> 16) % VMEM_HASH]);
}

static void
vmem_tag_set_free(vmem_t *vm, struct vmem_tag *vt)
{
	vt->vt_free = true;
	LIST_INSERT_HEAD(vmem_freelist(vm, vt->vt_size), vt, vt_link);
}

static void
vmem_tag_set_busy(vmem_t *vm, struct vmem_tag *vt)
{
	vt->vt_free = false;
	LIST_INSERT_HEAD(vmem_hashlist(vm, vt->vt_start), vt, vt_link);
}

/*
 * Where in the free tag the request fits: its address by way of *addrp.
 */
static bool
vmem_fit(const struct vmem_tag *vt, const struct vmem_want *w, vmem_addr_t *addrp)
{
	vmem_addr_t start, end, first;

	first = MAX(vt->vt_start, w->minaddr);
	end = MIN(vt->vt_start + (vt->vt_size - 1), w->maxaddr);
	if (first > end)
		return (false);
	start = roundup2(first - w->phase, w->align) + w->phase;
	if (w->nocross != 0 && ((start ^ (start + w->size - 1)) & -w->nocross) != 0)
		start = roundup2(roundup2(start, w->nocross) - w->phase, w->align) + w->phase;
	if (start < first || start > end || end - start < w->size - 1)
		return (false);
	if (w->nocross != 0 && ((start ^ (start + w->size - 1)) & -w->nocross) != 0)
		return (false);
	*addrp = start;
	return (true);
}

/*
 * The free tag to cut from.  First fit takes the first that will do, best fit the smallest of
 * those in the first list that has one.
 */
static struct vmem_tag *
vmem_find(vmem_t *vm, const struct vmem_want *w, int flags, vmem_addr_t *addrp)
{
	struct vmem_tag *vt, *best;
	vmem_addr_t addr;
	int order;

	best = NULL;
	for (order = flsl(w->size) - 1; order < VMEM_ORDERS && best == NULL; order++) {
		LIST_FOREACH(vt, &vm->vm_free[order], vt_link) {
			if (best != NULL && vt->vt_size >= best->vt_size)
				continue;
			if (!vmem_fit(vt, w, &addr))
				continue;
			best = vt;
			*addrp = addr;
			if ((flags & M_BESTFIT) == 0)
				break;
		}
	}
	return (best);
}

/*
 * Cut vt in two at addr; the upper part becomes the tag upper, on no list of its own yet.
 */
static void
vmem_split(vmem_t *vm, struct vmem_tag *vt, struct vmem_tag *upper, vmem_addr_t addr)
{
	upper->vt_start = addr;
	upper->vt_size = vt->vt_size - (addr - vt->vt_start);
	upper->vt_first = false;
	vt->vt_size = addr - vt->vt_start;
	TAILQ_INSERT_AFTER(&vm->vm_seg, vt, upper, vt_seg);
}

/*
 * Allocate once, without sleeping.  spare has two tags; those that are used are set to NULL.
 */
static int
vmem_try(vmem_t *vm, const struct vmem_want *w, int flags, struct vmem_tag *spare[2],
    vmem_addr_t *addrp)
{
	struct vmem_tag *vt;
	vmem_addr_t addr;

	mtx_assert(&vm->vm_lock, MA_OWNED);
	vt = vmem_find(vm, w, flags, &addr);
	if (vt == NULL)
		return (ENOMEM);
	LIST_REMOVE(vt, vt_link);
	if (addr != vt->vt_start) {
		vmem_split(vm, vt, spare[0], addr);
		vmem_tag_set_free(vm, vt);
		vt = spare[0];
		spare[0] = NULL;
	}
	if (vt->vt_size != w->size) {
		vmem_split(vm, vt, spare[1], addr + w->size);
		vmem_tag_set_free(vm, spare[1]);
		spare[1] = NULL;
	}
	vmem_tag_set_busy(vm, vt);
	vm->vm_inuse += vt->vt_size;
	*addrp = addr;
	return (0);
}

static void
vmem_tags_release(struct vmem_tag *spare[2])
{
	int i;

	for (i = 0; i < 2; i++)
		if (spare[i] != NULL)
			uma_zfree(vmem_tag_zone, spare[i]);
}

static int
vmem_tags_get(struct vmem_tag *spare[2], int flags)
{
	flags &= M_WAITOK | M_NOWAIT | M_USE_RESERVE;
	spare[0] = uma_zalloc(vmem_tag_zone, flags);
	spare[1] = uma_zalloc(vmem_tag_zone, flags);
	if (spare[0] != NULL && spare[1] != NULL)
		return (0);
	vmem_tags_release(spare);
	return (ENOMEM);
}

int
vmem_xalloc(vmem_t *vm, vmem_size_t size, vmem_size_t align, vmem_size_t phase,
    vmem_size_t nocross, vmem_addr_t minaddr, vmem_addr_t maxaddr, int flags,
    vmem_addr_t *addrp)
{
	struct vmem_want w;
	struct vmem_tag *spare[2];
	int error;

	KASSERT(size > 0, ("%s: size 0 from %s", __func__, vm->vm_name));
	KASSERT((flags & (M_WAITOK | M_NOWAIT)) == M_WAITOK ||
	    (flags & (M_WAITOK | M_NOWAIT)) == M_NOWAIT, ("%s: flags %#x", __func__, flags));
	KASSERT(powerof2(align) && powerof2(nocross) && (align == 0 || phase < align),
	    ("%s: align %#lx phase %#lx nocross %#lx", __func__, align, phase, nocross));

	w.size = vmem_roundup_size(vm, size);
	w.align = MAX(align, vm->vm_quantum);
	w.phase = phase;
	w.nocross = nocross;
	w.minaddr = minaddr;
	w.maxaddr = maxaddr;
	error = vmem_tags_get(spare, flags);
	if (error != 0)
		return (error);
	mtx_lock(&vm->vm_lock);
	while ((error = vmem_try(vm, &w, flags, spare, addrp)) != 0 &&
	    (flags & M_WAITOK) != 0) {
		vm->vm_waiters++;
		msleep(vm, &vm->vm_lock, PVM, "vmem", 0);
		vm->vm_waiters--;
	}
	mtx_unlock(&vm->vm_lock);
	vmem_tags_release(spare);
	return (error);
}

int
vmem_alloc(vmem_t *vm, vmem_size_t size, int flags, vmem_addr_t *addrp)
{
	KASSERT((flags & VMEM_FIT) != 0, ("%s: no strategy in flags %#x", __func__, flags));
	return (vmem_xalloc(vm, size, 0, 0, 0, VMEM_ADDR_MIN, VMEM_ADDR_MAX, flags, addrp));
}

/*
 * Merge a tag with the one after it, whose structure is returned for release.
 */
static struct vmem_tag *
vmem_merge(vmem_t *vm, struct vmem_tag *vt, struct vmem_tag *next)
{
	TAILQ_REMOVE(&vm->vm_seg, next, vt_seg);
	vt->vt_size += next->vt_size;
	return (next);
}

void
vmem_xfree(vmem_t *vm, vmem_addr_t addr, vmem_size_t size)
{
	struct vmem_tag *vt, *prev, *next, *unused[2] = { NULL, NULL };

	KASSERT(size > 0, ("%s: size 0 to %s", __func__, vm->vm_name));
	mtx_lock(&vm->vm_lock);
	LIST_FOREACH(vt, vmem_hashlist(vm, addr), vt_link)
		if (vt->vt_start == addr)
			break;
	if (vt == NULL || vt->vt_size != vmem_roundup_size(vm, size))
		panic("%s: %s: %#lx, %#lx is not an allocation", __func__, vm->vm_name, addr, size);
	LIST_REMOVE(vt, vt_link);
	vm->vm_inuse -= vt->vt_size;
	next = TAILQ_NEXT(vt, vt_seg);
	if (next != NULL && next->vt_free && !next->vt_first) {
		LIST_REMOVE(next, vt_link);
		unused[0] = vmem_merge(vm, vt, next);
	}
	prev = TAILQ_PREV(vt, vmem_taghead, vt_seg);
	if (prev != NULL && prev->vt_free && !vt->vt_first) {
		LIST_REMOVE(prev, vt_link);
		unused[1] = vmem_merge(vm, prev, vt);
		vt = prev;
	}
	vmem_tag_set_free(vm, vt);
	if (vm->vm_waiters != 0)
		wakeup(vm);
	mtx_unlock(&vm->vm_lock);
	vmem_tags_release(unused);
}

void
vmem_free(vmem_t *vm, vmem_addr_t addr, vmem_size_t size)
{
	vmem_xfree(vm, addr, size);
}

int
vmem_add(vmem_t *vm, vmem_addr_t addr, vmem_size_t size, int flags)
{
	struct vmem_tag *vt, *after;

	vt = uma_zalloc(vmem_tag_zone, flags & (M_WAITOK | M_NOWAIT));
	if (vt == NULL)
		return (ENOMEM);
	vt->vt_start = addr;
	vt->vt_size = size;
	vt->vt_first = true;
	mtx_lock(&vm->vm_lock);
	TAILQ_FOREACH(after, &vm->vm_seg, vt_seg)
		if (after->vt_start > addr)
			break;
	if (after != NULL)
		TAILQ_INSERT_BEFORE(after, vt, vt_seg);
	else
		TAILQ_INSERT_TAIL(&vm->vm_seg, vt, vt_seg);
	vm->vm_total += size;
	vmem_tag_set_free(vm, vt);
	if (vm->vm_waiters != 0)
		wakeup(vm);
	mtx_unlock(&vm->vm_lock);
	return (0);
}

vmem_t *
vmem_init(vmem_t *vm, const char *name, vmem_addr_t base, vmem_size_t size,
    vmem_size_t quantum, vmem_size_t qcache_max, int flags)
{
	int i;

	KASSERT(quantum > 0 && powerof2(quantum), ("%s: quantum %#lx", __func__, quantum));
	memset(vm, 0, sizeof(*vm));
	mtx_init(&vm->vm_lock, name, "vmem", MTX_DEF);
	vm->vm_name = name;
	vm->vm_quantum = quantum;
	TAILQ_INIT(&vm->vm_seg);
	for (i = 0; i < VMEM_ORDERS; i++)
		LIST_INIT(&vm->vm_free[i]);
	for (i = 0; i < VMEM_HASH; i++)
		LIST_INIT(&vm->vm_hash[i]);
	if (size != 0 && vmem_add(vm, base, size, flags) != 0) {
		mtx_destroy(&vm->vm_lock);
		return (NULL);
	}
	return (vm);
}

vmem_t *
vmem_create(const char *name, vmem_addr_t base, vmem_size_t size, vmem_size_t quantum,
    vmem_size_t qcache_max, int flags)
{
	vmem_t *vm;

	vm = malloc(sizeof(*vm), M_VMEM, flags & (M_WAITOK | M_NOWAIT));
	if (vm == NULL)
		return (NULL);
	if (vmem_init(vm, name, base, size, quantum, qcache_max, flags) == NULL) {
		free(vm, M_VMEM);
		return (NULL);
	}
	return (vm);
}

void
vmem_destroy(vmem_t *vm)
{
	struct vmem_tag *vt;

	if (vm->vm_inuse != 0)
		panic("%s: %s: %#lx still allocated", __func__, vm->vm_name, vm->vm_inuse);
	while ((vt = TAILQ_FIRST(&vm->vm_seg)) != NULL) {
		TAILQ_REMOVE(&vm->vm_seg, vt, vt_seg);
		uma_zfree(vmem_tag_zone, vt);
	}
	mtx_destroy(&vm->vm_lock);
	free(vm, M_VMEM);
}

vmem_size_t
vmem_roundup_size(vmem_t *vm, vmem_size_t size)
{
	return (roundup2(size, vm->vm_quantum));
}

vmem_size_t
vmem_size(vmem_t *vm, int typemask)
{
	struct vmem_tag *vt;
	vmem_size_t size;

	mtx_lock(&vm->vm_lock);
	size = 0;
	switch (typemask) {
	case VMEM_ALLOC:
		size = vm->vm_inuse;
		break;
	case VMEM_FREE:
		size = vm->vm_total - vm->vm_inuse;
		break;
	case VMEM_ALLOC | VMEM_FREE:
		size = vm->vm_total;
		break;
	case VMEM_MAXFREE:
		TAILQ_FOREACH(vt, &vm->vm_seg, vt_seg)
			if (vt->vt_free && vt->vt_size > size)
				size = vt->vt_size;
		break;
	default:
		panic("%s: typemask %#x", __func__, typemask);
	}
	mtx_unlock(&vm->vm_lock);
	return (size);
}
