/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * kobj(9): objects, classes and the dispatch of their methods.
 *
 * A method is named by a descriptor (struct kobjop_desc), which gets a number when the first
 * class that has the method is compiled.  A compiled class has an operations table: a cache from
 * the low bits of that number to the method found.  The callers in the *_if.h headers read the
 * cache and compare the descriptor; only when it differs do they call this file.
 *
 *	object --> ops --> cache[id & 255] --> { descriptor, function }
 *	             |
 *	             +---> class --> methods, base classes
 *
 * A miss looks through the class's own methods, then depth first through its base classes, and
 * ends at the descriptor's default.  Empty slots of a cache point to a method with no descriptor,
 * so that a caller needs no test for them.
 *
 * An interface may live in a module whose methods were called on an object that outlives the
 * module. Before a module's memory is freed, kobj_forget() empties every slot that points into
 * it; for that all tables are on a list.
 *
 * Locking.  kobj_lock protects the numbers of descriptors, the reference counts of classes and
 * the list of tables.  Cache slots are words that are read and written without it: each value
 * that a slot ever has is a valid method, and a caller that reads an old one finds the wrong
 * descriptor and calls this file.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/queue.h>

#include <kern/kobj_tree.h>

static MALLOC_DEFINE(M_KOBJ, "kobj", "Kernel object structures");

struct kobj_table {
	LIST_ENTRY(kobj_table) link;
	struct kobj_ops	ops;
};

static struct mtx kobj_lock;
MTX_SYSINIT(kobj_lock, &kobj_lock, "kobj", MTX_DEF);

static LIST_HEAD(, kobj_table) kobj_tables = LIST_HEAD_INITIALIZER(kobj_tables);
static unsigned int kobj_last_id;

static const struct kobj_method kobj_no_method;

int
kobj_error_method(void)
{
	return (ENXIO);
}

static void
kobj_clear_cache(kobj_ops_t ops)
{
	for (int i = 0; i < KOBJ_CACHE_SIZE; i++)
		ops->cache[i] = &kobj_no_method;
}

/* Give each method of the class a number, then make `ops` its table. */
static void
kobj_class_install(kobj_class_t cls, kobj_ops_t ops)
{
	kobj_method_t *m;

	for (m = cls->methods; m->desc != NULL; m++)
		if (m->desc->id == 0)
			m->desc->id = ++kobj_last_id;
	kobj_clear_cache(ops);
	ops->cls = cls;
	cls->ops = ops;
}

void
kobj_class_compile_static(kobj_class_t cls, kobj_ops_t ops)
{
	KASSERT(cls->ops == NULL, ("%s: class %s is compiled", __func__, cls->name));
	/* An object on such a class must never free the table: it isn't ours. */
	cls->refs++;
	kobj_class_install(cls, ops);
}

/*
 * Returns with kobj_lock held and the class compiled.  The lock is given up for the allocation,
 * so another thread may compile the class at the same time; one of the tables is then freed.
 */
static void
kobj_class_lock_compiled(kobj_class_t cls)
{
	struct kobj_table *t = NULL;

	mtx_lock(&kobj_lock);
	while (cls->ops == NULL && t == NULL) {
		mtx_unlock(&kobj_lock);
		t = malloc(sizeof(*t), M_KOBJ, M_WAITOK);
		mtx_lock(&kobj_lock);
	}
	if (cls->ops == NULL) {
		kobj_class_install(cls, &t->ops);
		LIST_INSERT_HEAD(&kobj_tables, t, link);
	} else if (t != NULL)
		free(t, M_KOBJ);
}

static void
kobj_class_free_table(kobj_class_t cls)
{
	struct kobj_table *t;

	mtx_assert(&kobj_lock, MA_OWNED);
	if (cls->ops == NULL)
		return;
	t = __containerof(cls->ops, struct kobj_table, ops);
	cls->ops = NULL;
	LIST_REMOVE(t, link);
	free(t, M_KOBJ);
}

void
kobj_class_compile(kobj_class_t cls)
{
	kobj_class_lock_compiled(cls);
	mtx_unlock(&kobj_lock);
}

void
kobj_class_free(kobj_class_t cls)
{
	mtx_lock(&kobj_lock);
	if (cls->refs == 0)
		kobj_class_free_table(cls);
	mtx_unlock(&kobj_lock);
}

void
kobj_class_hold(kobj_class_t cls)
{
	kobj_class_lock_compiled(cls);
	cls->refs++;
	mtx_unlock(&kobj_lock);
}

void
kobj_class_drop(kobj_class_t cls)
{
	mtx_lock(&kobj_lock);
	KASSERT(cls->refs > 0, ("%s: class %s has no reference", __func__, cls->name));
	if (--cls->refs == 0)
		kobj_class_free_table(cls);
	mtx_unlock(&kobj_lock);
}

static kobj_method_t *
kobj_find_in_class(kobj_class_t cls, kobjop_desc_t desc)
{
	kobj_class_t *base;
	kobj_method_t *m;

	for (m = cls->methods; m->desc != NULL; m++)
		if (m->desc == desc)
			return (m);
	if (cls->baseclasses == NULL)
		return (NULL);
	for (base = cls->baseclasses; *base != NULL; base++) {
		m = kobj_find_in_class(*base, desc);
		if (m != NULL)
			return (m);
	}
	return (NULL);
}

kobj_method_t *
kobj_lookup_method(kobj_class_t cls, kobj_method_t **cep, kobjop_desc_t desc)
{
	kobj_method_t *m;

	m = kobj_find_in_class(cls, desc);
	if (m == NULL)
		m = &desc->deflt;
	/*
	 * Without a number all unimplemented methods share slot 0, and replace each other
	 * there, which is correct, and rare.
	 */
	*cep = m;
	return (m);
}

void
kobj_init(kobj_t obj, kobj_class_t cls)
{
	kobj_class_hold(cls);
	obj->ops = cls->ops;
}

void
kobj_init_static(kobj_t obj, kobj_class_t cls)
{
	KASSERT(cls->ops != NULL, ("%s: class %s is not compiled", __func__, cls->name));
	obj->ops = cls->ops;
	cls->refs++;
}

kobj_t
kobj_create(kobj_class_t cls, struct malloc_type *mtype, int mflags)
{
	kobj_t obj;

	obj = malloc(cls->size, mtype, mflags | M_ZERO);
	if (obj != NULL)
		kobj_init(obj, cls);
	return (obj);
}

void
kobj_delete(kobj_t obj, struct malloc_type *mtype)
{
	kobj_class_t cls = obj->ops->cls;

	obj->ops = NULL;
	kobj_class_drop(cls);
	if (mtype != NULL)
		free(obj, mtype);
}

void
kobj_forget(uintptr_t start, uintptr_t end)
{
	struct kobj_table *t;
	uintptr_t m;

	mtx_lock(&kobj_lock);
	LIST_FOREACH(t, &kobj_tables, link) {
		for (int i = 0; i < KOBJ_CACHE_SIZE; i++) {
			m = (uintptr_t)t->ops.cache[i];
			if (m >= start && m < end)
				t->ops.cache[i] = &kobj_no_method;
		}
	}
	mtx_unlock(&kobj_lock);
}
