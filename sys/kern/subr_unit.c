/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * unr(9): numbers out of a range, the lowest free one first.
 *
 * The allocated numbers are a list of runs, in order, with a gap between any two.  Allocating the
 * lowest free number extends the first run, or makes one in front of it.
 *
 * Locking.  The caller's mutex, or unit_lock if it has none.  The functions that may sleep for
 * memory do so before they take it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/_unrhdr.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>

struct unr {
	TAILQ_ENTRY(unr) list;
	u_int		first;
	u_int		last;
};

struct unr_iter {
	struct unrhdr	*ui_hdr;
	struct unr	*ui_run;
	u_int		ui_next;
};

static MALLOC_DEFINE(M_UNIT, "Unitno", "Unit number allocation");
static struct mtx unit_lock;
MTX_SYSINIT(unit, &unit_lock, "unit# allocation", MTX_DEF);

static void
unr_lock(struct unrhdr *uh)
{
	if (uh->mtx != NULL)
		mtx_lock(uh->mtx);
}

static void
unr_unlock(struct unrhdr *uh)
{
	if (uh->mtx != NULL)
		mtx_unlock(uh->mtx);
}

/* mutex NULL: ours; UNR_NO_MTX: the caller serialises without one. */
void
init_unrhdr(struct unrhdr *uh, int low, int high, struct mtx *mutex)
{
	KASSERT(low >= 0 && low <= high, ("%s(%d, %d)", __func__, low, high));
	memset(uh, 0, sizeof(*uh));
	TAILQ_INIT(&uh->head);
	TAILQ_INIT(&uh->ppfree);
	uh->low = low;
	uh->high = high;
	uh->mtx = mutex == UNR_NO_MTX ? NULL : mutex != NULL ? mutex : &unit_lock;
}

struct unrhdr *
new_unrhdr(int low, int high, struct mtx *mutex)
{
	struct unrhdr *uh;

	uh = malloc(sizeof(*uh), M_UNIT, M_WAITOK | M_ZERO);
	init_unrhdr(uh, low, high, mutex);
	return (uh);
}

void
clear_unrhdr(struct unrhdr *uh)
{
	struct unr *run;

	while ((run = TAILQ_FIRST(&uh->head)) != NULL) {
		TAILQ_REMOVE(&uh->head, run, list);
		free(run, M_UNIT);
	}
	uh->busy = uh->alloc = 0;
}

void
delete_unrhdr(struct unrhdr *uh)
{
	KASSERT(uh->busy == 0, ("%s: %u numbers are taken", __func__, uh->busy));
	clear_unrhdr(uh);
	free(uh, M_UNIT);
}

/* Nothing is kept in reserve. */
void
clean_unrhdr(struct unrhdr *uh __unused)
{
}

void
clean_unrhdrl(struct unrhdr *uh __unused)
{
}

/* Joins run with the one behind it if there is no gap any more. */
static void
unr_join(struct unrhdr *uh, struct unr *run)
{
	struct unr *next = TAILQ_NEXT(run, list);

	if (next == NULL || run->last + 1 != next->first)
		return;
	run->last = next->last;
	TAILQ_REMOVE(&uh->head, next, list);
	free(next, M_UNIT);
}

/*
 * Takes item.  spare is memory for a run, and is set to NULL when it was used; it may be NULL if no
 * run need be made.  -1: it is taken, or there is no memory.
 */
static int
unr_take(struct unrhdr *uh, u_int item, struct unr **spare)
{
	struct unr *run, *prev = NULL;

	if (item < uh->low || item > uh->high)
		return (-1);
	TAILQ_FOREACH(run, &uh->head, list) {
		if (item <= run->last)
			break;
		prev = run;
	}
	if (run != NULL && item >= run->first)
		return (-1);
	if (prev != NULL && prev->last + 1 == item) {
		prev->last = item;
		unr_join(uh, prev);
	} else if (run != NULL && item + 1 == run->first)
		run->first = item;
	else {
		if (*spare == NULL)
			return (-1);
		run = *spare;
		*spare = NULL;
		run->first = run->last = item;
		if (prev == NULL)
			TAILQ_INSERT_HEAD(&uh->head, run, list);
		else
			TAILQ_INSERT_AFTER(&uh->head, prev, run, list);
	}
	uh->busy++;
	return (item);
}

static u_int
unr_lowest(const struct unrhdr *uh)
{
	const struct unr *run = TAILQ_FIRST(&uh->head);

	return (run == NULL || run->first > uh->low ? uh->low : run->last + 1);
}

/* The lowest free number, or -1.  The lock is held: no sleeping for memory. */
int
alloc_unrl(struct unrhdr *uh)
{
	struct unr *spare;
	int item;

	spare = malloc(sizeof(*spare), M_UNIT, M_NOWAIT);
	item = unr_take(uh, unr_lowest(uh), &spare);
	free(spare, M_UNIT);
	return (item);
}

int
alloc_unr(struct unrhdr *uh)
{
	struct unr *spare;
	int item;

	spare = malloc(sizeof(*spare), M_UNIT, M_WAITOK);
	unr_lock(uh);
	item = unr_take(uh, unr_lowest(uh), &spare);
	unr_unlock(uh);
	free(spare, M_UNIT);
	return (item);
}

int
alloc_unr_specific(struct unrhdr *uh, u_int item)
{
	struct unr *spare;
	int got;

	spare = malloc(sizeof(*spare), M_UNIT, M_WAITOK);
	unr_lock(uh);
	got = unr_take(uh, item, &spare);
	unr_unlock(uh);
	free(spare, M_UNIT);
	return (got);
}

void
free_unr(struct unrhdr *uh, u_int item)
{
	struct unr *run, *spare;

	spare = malloc(sizeof(*spare), M_UNIT, M_WAITOK);
	unr_lock(uh);
	TAILQ_FOREACH(run, &uh->head, list)
		if (item <= run->last)
			break;
	if (run == NULL || item < run->first)
		panic("%s: %u is not taken", __func__, item);
	uh->busy--;
	if (run->first == run->last) {
		TAILQ_REMOVE(&uh->head, run, list);
		free(run, M_UNIT);
	} else if (item == run->first)
		run->first++;
	else if (item == run->last)
		run->last--;
	else {
		spare->first = item + 1;
		spare->last = run->last;
		run->last = item - 1;
		TAILQ_INSERT_AFTER(&uh->head, run, spare, list);
		spare = NULL;
	}
	unr_unlock(uh);
	free(spare, M_UNIT);
}

/* Walks the numbers that are taken; the caller keeps them from changing. */
void *
create_iter_unr(struct unrhdr *uh)
{
	struct unr_iter *ui;

	ui = malloc(sizeof(*ui), M_UNIT, M_WAITOK);
	ui->ui_hdr = uh;
	ui->ui_run = TAILQ_FIRST(&uh->head);
	ui->ui_next = ui->ui_run != NULL ? ui->ui_run->first : 0;
	return (ui);
}

int
next_iter_unr(void *handle)
{
	struct unr_iter *ui = handle;

	if (ui->ui_run == NULL)
		return (-1);
	if (ui->ui_next > ui->ui_run->last) {
		ui->ui_run = TAILQ_NEXT(ui->ui_run, list);
		if (ui->ui_run == NULL)
			return (-1);
		ui->ui_next = ui->ui_run->first;
	}
	return (ui->ui_next++);
}

void
free_iter_unr(void *handle)
{
	free(handle, M_UNIT);
}
