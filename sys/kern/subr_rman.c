/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * rman(9): the owners of parts of a range of numbers (addresses, ports, interrupts).
 *
 * A region's list holds segments in ascending order, without overlap.  A segment is free or has an
 * owner; a free one never touches another free one.  Reserving cuts a piece out of a free segment;
 * releasing joins it with its free neighbours.
 *
 *	rm_list:  [free 0-3e7] -> [owned 3e8-3ef] -> [free 3f0-ffff]
 *	                               |
 *	                               +-- r_sharers: others that hold the same segment
 *
 * Shared segments.  The first holder of an RF_SHAREABLE segment is on rm_list, later holders are on
 * its r_sharers list.  When the first releases the segment, the next takes its place.
 *
 * Locking.  Each region has a mutex for its list; rman_lock protects the list of regions, and is
 * taken before a region's.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <machine/bus.h>

#include <kern/rman_tree.h>

static MALLOC_DEFINE(M_RMAN, "rman", "Resource manager");

struct resource_i {
	struct resource		r_r;
	TAILQ_ENTRY(resource_i)	r_link;
	LIST_ENTRY(resource_i)	r_sharelink;
	LIST_HEAD(, resource_i)	r_sharers;
	struct resource_i	*r_first;	/* for a sharer: who is on rm_list */
	rman_res_t		r_start;
	rman_res_t		r_end;
	u_int			r_flags;
	int			r_rid;
	int			r_type;
	void			*r_virtual;
	void			*r_irq_cookie;
	device_t		r_dev;
	struct rman		*r_rm;
};

struct rman_head rman_head = TAILQ_HEAD_INITIALIZER(rman_head);
static struct mtx rman_lock;
MTX_SYSINIT(rman_lock, &rman_lock, "rman head", MTX_DEF);

static struct resource_i *
rman_new_segment(struct rman *rm, rman_res_t start, rman_res_t end, int mflags)
{
	struct resource_i *s;

	s = malloc(sizeof(*s), M_RMAN, mflags | M_ZERO);
	if (s == NULL)
		return (NULL);
	s->r_r.__r_i = s;
	s->r_start = start;
	s->r_end = end;
	s->r_rm = rm;
	LIST_INIT(&s->r_sharers);
	return (s);
}

int
rman_init(struct rman *rm)
{
	if (rm->rm_type != RMAN_ARRAY)
		panic("%s: region %s has type %d", __func__, rm->rm_descr, rm->rm_type);
	if (rm->rm_start == 0 && rm->rm_end == 0)
		rm->rm_end = RM_MAX_END;
	TAILQ_INIT(&rm->rm_list);
	rm->rm_mtx = malloc(sizeof(*rm->rm_mtx), M_RMAN, M_NOWAIT | M_ZERO);
	if (rm->rm_mtx == NULL)
		return (ENOMEM);
	mtx_init(rm->rm_mtx, "rman", NULL, MTX_DEF);
	mtx_lock(&rman_lock);
	TAILQ_INSERT_TAIL(&rman_head, rm, rm_link);
	mtx_unlock(&rman_lock);
	return (0);
}

/* Join the free segment `s` with a free, adjacent one after it. */
static void
rman_join_next(struct rman *rm, struct resource_i *s)
{
	struct resource_i *t = TAILQ_NEXT(s, r_link);

	if (t == NULL || ((s->r_flags | t->r_flags) & RF_ALLOCATED) != 0 ||
	    s->r_end == RM_MAX_END || s->r_end + 1 != t->r_start)
		return;
	s->r_end = t->r_end;
	TAILQ_REMOVE(&rm->rm_list, t, r_link);
	free(t, M_RMAN);
}

static void
rman_join(struct rman *rm, struct resource_i *s)
{
	struct resource_i *prev = TAILQ_PREV(s, resource_head, r_link);

	rman_join_next(rm, s);
	if (prev != NULL)
		rman_join_next(rm, prev);
}

int
rman_manage_region(struct rman *rm, rman_res_t start, rman_res_t end)
{
	struct resource_i *new, *s;
	int error = 0;

	if (start < rm->rm_start || end > rm->rm_end || end < start)
		return (EINVAL);
	new = rman_new_segment(rm, start, end, M_NOWAIT);
	if (new == NULL)
		return (ENOMEM);
	mtx_lock(rm->rm_mtx);
	TAILQ_FOREACH(s, &rm->rm_list, r_link)
		if (s->r_end >= start)
			break;
	if (s != NULL && s->r_start <= end)
		error = EBUSY;
	else if (s != NULL)
		TAILQ_INSERT_BEFORE(s, new, r_link);
	else
		TAILQ_INSERT_TAIL(&rm->rm_list, new, r_link);
	if (error == 0)
		rman_join(rm, new);
	mtx_unlock(rm->rm_mtx);
	if (error != 0)
		free(new, M_RMAN);
	return (error);
}

int
rman_init_from_resource(struct rman *rm, struct resource *r)
{
	int error;

	error = rman_init(rm);
	if (error != 0)
		return (error);
	return (rman_manage_region(rm, r->__r_i->r_start, r->__r_i->r_end));
}

int
rman_fini(struct rman *rm)
{
	struct resource_i *s;

	mtx_lock(rm->rm_mtx);
	TAILQ_FOREACH(s, &rm->rm_list, r_link)
		if ((s->r_flags & RF_ALLOCATED) != 0)
			break;
	if (s != NULL) {
		mtx_unlock(rm->rm_mtx);
		return (EBUSY);
	}
	while ((s = TAILQ_FIRST(&rm->rm_list)) != NULL) {
		TAILQ_REMOVE(&rm->rm_list, s, r_link);
		free(s, M_RMAN);
	}
	mtx_unlock(rm->rm_mtx);
	mtx_lock(&rman_lock);
	TAILQ_REMOVE(&rman_head, rm, rm_link);
	mtx_unlock(&rman_lock);
	mtx_destroy(rm->rm_mtx);
	free(rm->rm_mtx, M_RMAN);
	rm->rm_mtx = NULL;
	return (0);
}

static int
rman_report_free(struct resource_i *s, rman_res_t *start, rman_res_t *end)
{
	if (s == NULL)
		return (ENOENT);
	*start = s->r_start;
	*end = s->r_end;
	return (0);
}

int
rman_first_free_region(struct rman *rm, rman_res_t *start, rman_res_t *end)
{
	struct resource_i *s;
	int error;

	mtx_lock(rm->rm_mtx);
	TAILQ_FOREACH(s, &rm->rm_list, r_link)
		if ((s->r_flags & RF_ALLOCATED) == 0)
			break;
	error = rman_report_free(s, start, end);
	mtx_unlock(rm->rm_mtx);
	return (error);
}

int
rman_last_free_region(struct rman *rm, rman_res_t *start, rman_res_t *end)
{
	struct resource_i *s;
	int error;

	mtx_lock(rm->rm_mtx);
	TAILQ_FOREACH_REVERSE(s, &rm->rm_list, resource_head, r_link)
		if ((s->r_flags & RF_ALLOCATED) == 0)
			break;
	error = rman_report_free(s, start, end);
	mtx_unlock(rm->rm_mtx);
	return (error);
}

/*
 * The lowest place within both [s->r_start, s->r_end] and [start, end] for `count` numbers at the
 * alignment in `flags`.
 */
static bool
rman_place(const struct resource_i *s, rman_res_t start, rman_res_t end, rman_res_t count,
    u_int flags, rman_res_t *where)
{
	rman_res_t align = (rman_res_t)1 << RF_ALIGNMENT(flags);
	rman_res_t high, low;

	low = ulmax(s->r_start, start);
	high = ulmin(s->r_end, end);
	if (low > RM_MAX_END - (align - 1))
		return (false);
	low = roundup2(low, align);
	if (low > high || high - low < count - 1)
		return (false);
	*where = low;
	return (true);
}

/*
 * Make [start, start + count - 1] of the free segment `s` a segment of its own; what is left
 * before and after stays free.
 */
static struct resource_i *
rman_cut(struct rman *rm, struct resource_i *s, rman_res_t start, rman_res_t count)
{
	struct resource_i *after = NULL, *before = NULL;
	rman_res_t end = start + count - 1;

	if (s->r_start < start) {
		before = rman_new_segment(rm, s->r_start, start - 1, M_NOWAIT);
		if (before == NULL)
			return (NULL);
	}
	if (s->r_end > end) {
		after = rman_new_segment(rm, end + 1, s->r_end, M_NOWAIT);
		if (after == NULL) {
			free(before, M_RMAN);
			return (NULL);
		}
	}
	if (before != NULL)
		TAILQ_INSERT_BEFORE(s, before, r_link);
	if (after != NULL)
		TAILQ_INSERT_AFTER(&rm->rm_list, s, after, r_link);
	s->r_start = start;
	s->r_end = end;
	return (s);
}

static struct resource_i *
rman_take_free(struct rman *rm, rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct resource_i *s;
	rman_res_t where;

	TAILQ_FOREACH(s, &rm->rm_list, r_link) {
		if ((s->r_flags & RF_ALLOCATED) != 0)
			continue;
		if (rman_place(s, start, end, count, flags, &where))
			return (rman_cut(rm, s, where, count));
	}
	return (NULL);
}

static struct resource_i *
rman_take_shared(struct rman *rm, rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct resource_i *new, *s;
	rman_res_t where;

	TAILQ_FOREACH(s, &rm->rm_list, r_link) {
		if ((s->r_flags & (RF_ALLOCATED | RF_SHAREABLE)) != (RF_ALLOCATED | RF_SHAREABLE) ||
		    s->r_end - s->r_start != count - 1 ||
		    !rman_place(s, start, end, count, flags, &where))
			continue;
		new = rman_new_segment(rm, s->r_start, s->r_end, M_NOWAIT);
		if (new == NULL)
			return (NULL);
		new->r_first = s;
		LIST_INSERT_HEAD(&s->r_sharers, new, r_sharelink);
		s->r_flags |= RF_FIRSTSHARE;
		return (new);
	}
	return (NULL);
}

struct resource *
rman_reserve_resource(struct rman *rm, rman_res_t start, rman_res_t end, rman_res_t count,
    u_int flags, device_t dev)
{
	struct resource_i *s;

	if (count == 0 || end < start || end - start < count - 1)
		return (NULL);
	mtx_lock(rm->rm_mtx);
	s = rman_take_free(rm, start, end, count, flags);
	if (s == NULL && (flags & RF_SHAREABLE) != 0)
		s = rman_take_shared(rm, start, end, count, flags);
	if (s != NULL) {
		s->r_flags = RF_ALLOCATED | (s->r_flags & RF_FIRSTSHARE) |
		    (flags & ~(RF_ACTIVE | RF_FIRSTSHARE));
		s->r_dev = dev;
	}
	mtx_unlock(rm->rm_mtx);
	return (s == NULL ? NULL : &s->r_r);
}

/* The next holder of a shared segment takes the place of the first. */
static void
rman_promote_sharer(struct rman *rm, struct resource_i *s)
{
	struct resource_i *heir, *t;

	heir = LIST_FIRST(&s->r_sharers);
	LIST_REMOVE(heir, r_sharelink);
	heir->r_first = NULL;
	while ((t = LIST_FIRST(&s->r_sharers)) != NULL) {
		LIST_REMOVE(t, r_sharelink);
		t->r_first = heir;
		LIST_INSERT_HEAD(&heir->r_sharers, t, r_sharelink);
	}
	if (!LIST_EMPTY(&heir->r_sharers))
		heir->r_flags |= RF_FIRSTSHARE;
	TAILQ_INSERT_BEFORE(s, heir, r_link);
	TAILQ_REMOVE(&rm->rm_list, s, r_link);
}

int
rman_release_resource(struct resource *r)
{
	struct resource_i *s = r->__r_i;
	struct rman *rm = s->r_rm;
	struct mtx *mtx = rm->rm_mtx;

	mtx_lock(mtx);
	KASSERT((s->r_flags & RF_ALLOCATED) != 0, ("%s: a free segment", __func__));
	if (s->r_first != NULL) {
		LIST_REMOVE(s, r_sharelink);
		if (LIST_EMPTY(&s->r_first->r_sharers))
			s->r_first->r_flags &= ~RF_FIRSTSHARE;
		free(s, M_RMAN);
	} else if (!LIST_EMPTY(&s->r_sharers)) {
		rman_promote_sharer(rm, s);
		free(s, M_RMAN);
	} else {
		s->r_flags = 0;
		s->r_dev = NULL;
		s->r_virtual = NULL;
		s->r_irq_cookie = NULL;
		s->r_rid = 0;
		s->r_r.r_bustag = 0;
		s->r_r.r_bushandle = 0;
		rman_join(rm, s);
	}
	mtx_unlock(mtx);
	return (0);
}

/* Move the border between `s` and the free segment `t` after it to `end`. */
static int
rman_move_end(struct rman *rm, struct resource_i *s, rman_res_t end)
{
	struct resource_i *t = TAILQ_NEXT(s, r_link);
	bool adjacent = t != NULL && (t->r_flags & RF_ALLOCATED) == 0 && t->r_start - 1 == s->r_end;

	if (end > s->r_end) {
		if (!adjacent || end > t->r_end)
			return (EBUSY);
		if (end == t->r_end) {
			TAILQ_REMOVE(&rm->rm_list, t, r_link);
			free(t, M_RMAN);
		} else
			t->r_start = end + 1;
	} else if (end < s->r_end) {
		if (!adjacent) {
			t = rman_new_segment(rm, end + 1, s->r_end, M_NOWAIT);
			if (t == NULL)
				return (ENOMEM);
			TAILQ_INSERT_AFTER(&rm->rm_list, s, t, r_link);
		} else
			t->r_start = end + 1;
	}
	s->r_end = end;
	return (0);
}

/* The same at the other end. */
static int
rman_move_start(struct rman *rm, struct resource_i *s, rman_res_t start)
{
	struct resource_i *t = TAILQ_PREV(s, resource_head, r_link);
	bool adjacent = t != NULL && (t->r_flags & RF_ALLOCATED) == 0 && t->r_end + 1 == s->r_start;

	if (start < s->r_start) {
		if (!adjacent || start < t->r_start)
			return (EBUSY);
		if (start == t->r_start) {
			TAILQ_REMOVE(&rm->rm_list, t, r_link);
			free(t, M_RMAN);
		} else
			t->r_end = start - 1;
	} else if (start > s->r_start) {
		if (!adjacent) {
			t = rman_new_segment(rm, s->r_start, start - 1, M_NOWAIT);
			if (t == NULL)
				return (ENOMEM);
			TAILQ_INSERT_BEFORE(s, t, r_link);
		} else
			t->r_end = start - 1;
	}
	s->r_start = start;
	return (0);
}

int
rman_adjust_resource(struct resource *r, rman_res_t start, rman_res_t end)
{
	struct resource_i *s = r->__r_i;
	struct rman *rm = s->r_rm;
	rman_res_t oldstart;
	int error;

	if (end < start || start > s->r_end || end < s->r_start)
		return (EINVAL);
	mtx_lock(rm->rm_mtx);
	if (s->r_first != NULL || !LIST_EMPTY(&s->r_sharers)) {
		mtx_unlock(rm->rm_mtx);
		return (EINVAL);
	}
	oldstart = s->r_start;
	error = rman_move_start(rm, s, start);
	if (error == 0) {
		error = rman_move_end(rm, s, end);
		if (error != 0)
			(void)rman_move_start(rm, s, oldstart);
	}
	mtx_unlock(rm->rm_mtx);
	return (error);
}

int
rman_activate_resource(struct resource *r)
{
	struct rman *rm = r->__r_i->r_rm;

	mtx_lock(rm->rm_mtx);
	r->__r_i->r_flags |= RF_ACTIVE;
	mtx_unlock(rm->rm_mtx);
	return (0);
}

int
rman_deactivate_resource(struct resource *r)
{
	struct rman *rm = r->__r_i->r_rm;

	mtx_lock(rm->rm_mtx);
	r->__r_i->r_flags &= ~RF_ACTIVE;
	mtx_unlock(rm->rm_mtx);
	return (0);
}

int
rman_is_region_manager(const struct resource *r, const struct rman *rm)
{
	return (r->__r_i->r_rm == rm);
}

uint32_t
rman_make_alignment_flags(uint32_t size)
{
	int log2 = fls(size);

	/* Round up: a size that is no power of two needs the next. */
	if (log2 > 0 && powerof2(size))
		log2--;
	return (RF_ALIGNMENT_LOG2(log2));
}

rman_res_t
rman_get_start(const struct resource *r)
{
	return (r->__r_i->r_start);
}

rman_res_t
rman_get_end(const struct resource *r)
{
	return (r->__r_i->r_end);
}

rman_res_t
rman_get_size(const struct resource *r)
{
	return (r->__r_i->r_end - r->__r_i->r_start + 1);
}

u_int
rman_get_flags(const struct resource *r)
{
	return (r->__r_i->r_flags);
}

device_t
rman_get_device(const struct resource *r)
{
	return (r->__r_i->r_dev);
}

void
rman_set_device(struct resource *r, device_t dev)
{
	r->__r_i->r_dev = dev;
}

int
rman_get_rid(const struct resource *r)
{
	return (r->__r_i->r_rid);
}

void
rman_set_rid(struct resource *r, int rid)
{
	r->__r_i->r_rid = rid;
}

int
rman_get_type(const struct resource *r)
{
	return (r->__r_i->r_type);
}

void
rman_set_type(struct resource *r, int type)
{
	r->__r_i->r_type = type;
}

void *
rman_get_virtual(const struct resource *r)
{
	return (r->__r_i->r_virtual);
}

void
rman_set_virtual(struct resource *r, void *va)
{
	r->__r_i->r_virtual = va;
}

void *
rman_get_irq_cookie(const struct resource *r)
{
	return (r->__r_i->r_irq_cookie);
}

void
rman_set_irq_cookie(struct resource *r, void *cookie)
{
	r->__r_i->r_irq_cookie = cookie;
}

bus_space_tag_t
rman_get_bustag(const struct resource *r)
{
	return (r->r_bustag);
}

void
rman_set_bustag(struct resource *r, bus_space_tag_t tag)
{
	r->r_bustag = tag;
}

bus_space_handle_t
rman_get_bushandle(const struct resource *r)
{
	return (r->r_bushandle);
}

void
rman_set_bushandle(struct resource *r, bus_space_handle_t handle)
{
	r->r_bushandle = handle;
}

void
rman_get_mapping(const struct resource *r, struct resource_map *map)
{
	map->r_bustag = r->r_bustag;
	map->r_bushandle = r->r_bushandle;
	map->r_size = rman_get_size(r);
	map->r_vaddr = rman_get_virtual(r);
}

void
rman_set_mapping(struct resource *r, struct resource_map *map)
{
	KASSERT(map->r_size == rman_get_size(r), ("%s: a mapping of another size", __func__));
	r->r_bustag = map->r_bustag;
	r->r_bushandle = map->r_bushandle;
	rman_set_virtual(r, map->r_vaddr);
}

static void
rman_fill_entry(struct rman_entry *e, const struct rman *rm, const struct resource_i *s)
{
	e->re_descr = rm->rm_descr;
	e->re_start = s->r_start;
	e->re_end = s->r_end;
	e->re_flags = s->r_flags;
	e->re_device = s->r_dev;
}

/* Fill up to `max` entries; returns how many there are. */
static int
rman_fill(struct rman_entry *list, int max)
{
	struct resource_i *s, *t;
	struct rman *rm;
	int n = 0;

	mtx_lock(&rman_lock);
	TAILQ_FOREACH(rm, &rman_head, rm_link) {
		mtx_lock(rm->rm_mtx);
		TAILQ_FOREACH(s, &rm->rm_list, r_link) {
			if ((s->r_flags & RF_ALLOCATED) == 0)
				continue;
			if (n++ < max)
				rman_fill_entry(&list[n - 1], rm, s);
			LIST_FOREACH(t, &s->r_sharers, r_sharelink)
				if (n++ < max)
					rman_fill_entry(&list[n - 1], rm, t);
		}
		mtx_unlock(rm->rm_mtx);
	}
	mtx_unlock(&rman_lock);
	return (n);
}

int
rman_snapshot(struct rman_entry **list)
{
	int max, n;

	for (max = 64;; max = n + 16) {
		*list = malloc(max * sizeof(**list), M_TEMP, M_WAITOK | M_ZERO);
		n = rman_fill(*list, max);
		if (n <= max)
			return (n);
		free(*list, M_TEMP);
	}
}
