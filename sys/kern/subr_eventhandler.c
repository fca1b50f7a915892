/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * EVENTHANDLER(9): lists of functions to call when something happens.
 *
 * Lists are created when they are first named, in a registration or an invocation, and are
 * never freed.  The macro that invokes walks a list with its lock dropped around each call; so
 * an entry that is deregistered while el_runcount is not 0 is only marked dead, and removed by the
 * last walker (eventhandler_prune_list).
 *
 * Locking.  eventhandler_mtx protects the list of lists; el_lock protects one list, and may be taken
 * while eventhandler_mtx is held, not the other way round.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>

static MALLOC_DEFINE(M_EVENTHANDLER, "eventhandler", "event handler lists and entries");

static struct mtx eventhandler_mtx;
MTX_SYSINIT(eventhandler, &eventhandler_mtx, "eventhandler", MTX_DEF);
static TAILQ_HEAD(, eventhandler_list) eventhandler_lists =
    TAILQ_HEAD_INITIALIZER(eventhandler_lists);

static struct eventhandler_list *
eventhandler_lookup(const char *name)
{
	struct eventhandler_list *list;

	mtx_assert(&eventhandler_mtx, MA_OWNED);
	TAILQ_FOREACH(list, &eventhandler_lists, el_link) {
		if (strcmp(list->el_name, name) == 0)
			return (list);
	}
	return (NULL);
}

struct eventhandler_list *
eventhandler_create_list(const char *name)
{
	struct eventhandler_list *list, *fresh;
	size_t size = strlen(name) + 1;

	fresh = malloc(sizeof(*fresh) + size, M_EVENTHANDLER, M_WAITOK | M_ZERO);
	fresh->el_name = (char *)(fresh + 1);
	memcpy(fresh->el_name, name, size);
	TAILQ_INIT(&fresh->el_entries);
	mtx_init(&fresh->el_lock, fresh->el_name, "eventhandler list", MTX_DEF);
	mtx_lock(&eventhandler_mtx);
	list = eventhandler_lookup(name);
	if (list == NULL) {
		TAILQ_INSERT_TAIL(&eventhandler_lists, fresh, el_link);
		list = fresh;
	}
	mtx_unlock(&eventhandler_mtx);
	if (list != fresh) {
		mtx_destroy(&fresh->el_lock);
		free(fresh, M_EVENTHANDLER);
	}
	return (list);
}

/* Returns the list locked, or NULL if it never had a handler. */
struct eventhandler_list *
eventhandler_find_list(const char *name)
{
	struct eventhandler_list *list;

	mtx_lock(&eventhandler_mtx);
	list = eventhandler_lookup(name);
	if (list != NULL)
		mtx_lock(&list->el_lock);
	mtx_unlock(&eventhandler_mtx);
	return (list);
}

/* The part of an entry behind the common one is a function pointer, whatever its type. */
struct eventhandler_entry_generic {
	struct eventhandler_entry	 ee;
	void				*func;
};

/* An entry's place: behind all that have a lower or the same number. */
static void
eventhandler_insert(struct eventhandler_list *list, struct eventhandler_entry *entry)
{
	struct eventhandler_entry *other;

	EHL_LOCK_ASSERT(list, MA_OWNED);
	TAILQ_FOREACH(other, &list->el_entries, ee_link) {
		if (other->ee_priority != EHE_DEAD_PRIORITY &&
		    entry->ee_priority < other->ee_priority) {
			TAILQ_INSERT_BEFORE(other, entry, ee_link);
			return;
		}
	}
	TAILQ_INSERT_TAIL(&list->el_entries, entry, ee_link);
}

eventhandler_tag
eventhandler_register(struct eventhandler_list *list, const char *name, void *func, void *arg,
    int priority)
{
	struct eventhandler_entry_generic *eg;

	KASSERT(priority != EHE_DEAD_PRIORITY, ("eventhandler: priority %d is taken", priority));
	if (list == NULL)
		list = eventhandler_create_list(name);
	eg = malloc(sizeof(*eg), M_EVENTHANDLER, M_WAITOK | M_ZERO);
	eg->func = func;
	eg->ee.ee_arg = arg;
	eg->ee.ee_priority = priority;
	EHL_LOCK(list);
	eventhandler_insert(list, &eg->ee);
	EHL_UNLOCK(list);
	return (&eg->ee);
}

/* Is the entry, or any without a tag, still to be removed? */
static bool
eventhandler_dying(struct eventhandler_list *list, eventhandler_tag tag)
{
	struct eventhandler_entry *entry;

	TAILQ_FOREACH(entry, &list->el_entries, ee_link) {
		if (entry->ee_priority == EHE_DEAD_PRIORITY && (tag == NULL || entry == tag))
			return (true);
	}
	return (false);
}

/*
 * The list is locked on entry, and unlocked on return.  This waits for the entry to be removed, not
 * for a moment without walkers: by the time that the waiting thread runs again there may be another
 * walker, which has no entry to remove and no thread to wake.
 */
static void
eventhandler_remove(struct eventhandler_list *list, eventhandler_tag tag, bool wait)
{
	struct eventhandler_entry *entry, *next;

	EHL_LOCK_ASSERT(list, MA_OWNED);
	TAILQ_FOREACH_SAFE(entry, &list->el_entries, ee_link, next) {
		if (tag == NULL || entry == tag)
			entry->ee_priority = EHE_DEAD_PRIORITY;
	}
	if (list->el_runcount == 0)
		eventhandler_prune_list(list);
	else {
		while (wait && eventhandler_dying(list, tag))
			mtx_sleep(list, &list->el_lock, 0, "evhrm", 0);
	}
	EHL_UNLOCK(list);
}

/* No tag: all entries of the list. */
void
eventhandler_deregister(struct eventhandler_list *list, eventhandler_tag tag)
{

	eventhandler_remove(list, tag, true);
}

void
eventhandler_deregister_nowait(struct eventhandler_list *list, eventhandler_tag tag)
{

	eventhandler_remove(list, tag, false);
}

void
eventhandler_prune_list(struct eventhandler_list *list)
{
	struct eventhandler_entry *entry, *next;
	bool pruned = false;

	EHL_LOCK_ASSERT(list, MA_OWNED);
	TAILQ_FOREACH_SAFE(entry, &list->el_entries, ee_link, next) {
		if (entry->ee_priority == EHE_DEAD_PRIORITY) {
			TAILQ_REMOVE(&list->el_entries, entry, ee_link);
			free(entry, M_EVENTHANDLER);
			pruned = true;
		}
	}
	if (pruned)
		wakeup(list);
}
