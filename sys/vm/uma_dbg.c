/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * UMA's checks: writes to free memory and past an item, second frees, and memory shortage on
 * demand.
 *
 * A free item is filled with a pattern; before it is allocated again every word of it is checked.
 * Items of malloc(9) keep the malloc type of the last user in their last word, so that the message
 * can name a suspect.  Behind an item, as long as the size that the zone was created with, is a
 * word that is checked whenever the item is allocated or freed.
 *
 * debug.uma.fail_zone and debug.uma.fail_every make every Nth allocation that may not sleep
 * fail in the zone of that name, for tests of what a driver does then.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>
#include <vm/uma.h>
#include <vm/uma_dbg.h>
#include <vm/uma_tree.h>

#define	TRASH_WORD	0xdeadc0dedeadc0deUL
#define	REDZONE_WORD	0x5a5a5a5a5a5a5a5aUL

static SYSCTL_NODE(_debug, OID_AUTO, uma, CTLFLAG_RW | CTLFLAG_MPSAFE, 0,
    "Checks of the zone allocator");

bool uma_trash = true;
SYSCTL_BOOL(_debug_uma, OID_AUTO, trash, CTLFLAG_RDTUN, &uma_trash, 0,
    "Fill free items with a pattern and check it (kernels with INVARIANTS)");

static char uma_fail_zone[32];
static u_int uma_fail_every;
static u_int uma_fail_count;

/*
 * The item without the bytes behind its last whole word, which are not looked at.
 */
static void
trash_fill(void *mem, size_t size)
{
	uint64_t *p = mem, *end = p + size / sizeof(*p);

	/* Every item passes here twice. */
#pragma clang loop unroll_count(8)
	for (; p < end; p++)
		*p = TRASH_WORD;
}

static const uint64_t *
trash_check(const void *mem, size_t size)
{
	const uint64_t *p = mem, *end = p + size / sizeof(*p);

	for (; p < end - 3; p += 4)
		if ((p[0] & p[1] & p[2] & p[3]) != TRASH_WORD ||
		    (p[0] | p[1] | p[2] | p[3]) != TRASH_WORD)
			break;
	for (; p < end; p++)
		if (__predict_false(*p != TRASH_WORD))
			return (p);
	return (NULL);
}

int
trash_ctor(void *mem, int size, void *arg, int flags)
{
	const uint64_t *p = trash_check(mem, size);

	if (p != NULL)
		panic("uma: free item %p (%d bytes) was written to: %#lx at %p", mem, size, *p, p);
	return (0);
}

void
trash_dtor(void *mem, int size, void *arg)
{
	trash_fill(mem, size);
}

int
trash_init(void *mem, int size, int flags)
{
	trash_fill(mem, size);
	return (0);
}

void
trash_fini(void *mem, int size)
{
	(void)trash_ctor(mem, size, NULL, 0);
}

/*
 * The last word of a free item of malloc(9) is the type that had it last.
 */
static struct malloc_type **
mtrash_owner(void *mem, int size)
{
	return ((struct malloc_type **)((char *)mem + size) - 1);
}

int
mtrash_ctor(void *mem, int size, void *arg, int flags)
{
	struct malloc_type *type = *mtrash_owner(mem, size);
	const uint64_t *p = trash_check(mem, size - sizeof(type));

	if (p != NULL)
		panic("malloc: free memory %p (%d bytes) was written to: %#lx at %p, last "
		    "used for %s", mem, size, *p, p,
		    type == NULL ? "nothing" : type->ks_shortdesc);
	return (0);
}

void
mtrash_dtor(void *mem, int size, void *arg)
{
	trash_fill(mem, size - sizeof(struct malloc_type *));
	*mtrash_owner(mem, size) = arg;
}

int
mtrash_init(void *mem, int size, int flags)
{
	mtrash_dtor(mem, size, NULL);
	return (0);
}

void
mtrash_fini(void *mem, int size)
{
	(void)mtrash_ctor(mem, size, NULL, 0);
}

#ifdef INVARIANTS
/* Lay the red zone of an item of a new slab. */
void
uma_dbg_init(const struct uma_keg *keg, void *item)
{

	if ((keg->uk_flags & UZF_REDZONE) != 0)
		le64enc((uint8_t *)item + keg->uk_size, REDZONE_WORD);
}

static void
uma_dbg_redzone(const struct uma_zone *zone, void *item)
{
	uint64_t word;

	if ((zone->uz_flags & UZF_REDZONE) == 0)
		return;
	word = le64dec((uint8_t *)item + zone->uz_size);
	if (__predict_false(word != REDZONE_WORD))
		panic("redzone: %p (%s, %u bytes) was written to behind its end: %#lx", item,
		    zone->uz_name, zone->uz_size, word);
}

static u_long *
uma_dbg_word(struct uma_zone *zone, void *item, int *bitp)
{
	struct uma_slab *slab;
	int index;

	if ((zone->uz_flags & UZF_LIVEBITS) == 0)
		return (NULL);
	slab = keg_item_slab(zone->uz_keg, item, &index);
	*bitp = index % 64;
	return (&slab->us_live[index / 64]);
}

void
uma_dbg_alloc(struct uma_zone *zone, void *item)
{
	u_long *word;
	int bit;

	word = uma_dbg_word(zone, item, &bit);
	if (word != NULL && atomic_testandset_long(word, bit))
		panic("uma: item %p of zone %s allocated twice", item, zone->uz_name);
	uma_dbg_redzone(zone, item);
}

void
uma_dbg_in_use(struct uma_zone *zone, void *item)
{
	u_long *word;
	int bit;

	word = uma_dbg_word(zone, item, &bit);
	if (word != NULL && (atomic_load_long(word) & 1ul << bit) == 0)
		panic("uma: item %p of zone %s freed twice", item, zone->uz_name);
}

void
uma_dbg_free(struct uma_zone *zone, void *item)
{
	u_long *word;
	int bit;

	word = uma_dbg_word(zone, item, &bit);
	if (word != NULL && !atomic_testandclear_long(word, bit))
		panic("uma: item %p of zone %s freed twice", item, zone->uz_name);
	uma_dbg_redzone(zone, item);
}

/*
 * An item of zone that stays allocated while what it is attached to is free, as a packet's cluster:
 * it is checked as free items are, from uma_dbg_keep() to uma_dbg_reuse().
 */
void
uma_dbg_keep(struct uma_zone *zone, void *item)
{

	uma_dbg_in_use(zone, item);
	uma_dbg_redzone(zone, item);
	if ((zone->uz_flags & UZF_TRASH) != 0)
		trash_dtor(item, zone->uz_size, NULL);
}

void
uma_dbg_reuse(struct uma_zone *zone, void *item)
{

	uma_dbg_redzone(zone, item);
	if ((zone->uz_flags & UZF_TRASH) != 0)
		(void)trash_ctor(item, zone->uz_size, NULL, 0);
}
#endif

/*
 * Whether this allocation is the one in N that fails.
 */
bool
uma_fault_hit(struct uma_zone *zone)
{
	u_int every = atomic_load_int(&uma_fail_every);

	return (every != 0 && atomic_fetchadd_int(&uma_fail_count, 1) % every == every - 1);
}

/*
 * Mark the zone if it is the one that fails.
 */
void
uma_fault_mark(struct uma_zone *zone)
{
	if (uma_fail_zone[0] != '\0' && strcmp(zone->uz_name, uma_fail_zone) == 0)
		atomic_set_32(&zone->uz_flags, UZF_FAULT);
	else if ((zone->uz_flags & UZF_FAULT) != 0)
		atomic_clear_32(&zone->uz_flags, UZF_FAULT);
}

static int
sysctl_uma_fail_zone(SYSCTL_HANDLER_ARGS)
{
	char name[sizeof(uma_fail_zone)];
	struct uma_zone *zone;
	int error;

	strlcpy(name, uma_fail_zone, sizeof(name));
	error = sysctl_handle_string(oidp, name, sizeof(name), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	sx_xlock(&uma_zones_lock);
	strlcpy(uma_fail_zone, name, sizeof(uma_fail_zone));
	atomic_store_int(&uma_fail_count, 0);
	TAILQ_FOREACH(zone, &uma_zones, uz_link)
		uma_fault_mark(zone);
	sx_xunlock(&uma_zones_lock);
	return (0);
}
SYSCTL_PROC(_debug_uma, OID_AUTO, fail_zone, CTLTYPE_STRING | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL,
    0, sysctl_uma_fail_zone, "A", "Zone whose M_NOWAIT allocations fail at times (empty: none)");
SYSCTL_UINT(_debug_uma, OID_AUTO, fail_every, CTLFLAG_RWTUN, &uma_fail_every, 0,
    "Every Nth M_NOWAIT allocation of that zone fails (0: none does)");
