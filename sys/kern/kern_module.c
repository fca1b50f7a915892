/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * module(9): the event handlers of code that was compiled in or loaded.
 *
 * A linker file (kern_linker.c) has any number of modules, each a name and a handler.  They are
 * registered when the file is linked, and get MOD_LOAD by a SYSINIT of theirs; unloading sends
 * MOD_QUIESCE to all of them, then MOD_UNLOAD.  If one refuses at that point, those already
 * unloaded are loaded again, so that a file has either all of its modules or none.
 *
 * Locking.  modules_sx protects the lists and reference counts.  Handlers run with Giant, without
 * modules_sx, and with the linker's lock: one module is loaded or unloaded at a time.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/reboot.h>
#include <sys/sx.h>

#include <kern/linker_tree.h>

static MALLOC_DEFINE(M_MODULE, "module", "Module data structures");

struct module {
	TAILQ_ENTRY(module)	link;		/* all modules */
	TAILQ_ENTRY(module)	flink;		/* modules of one file, in the order they loaded */
	struct linker_file	*file;
	int			refs;
	int			id;
	const char		*name;
	modeventhand_t		handler;
	void			*arg;
	modspecific_t		data;
};

struct sx modules_sx;
SX_SYSINIT(modules_sx, &modules_sx, "module subsystem");

static TAILQ_HEAD(module_list, module) modules = TAILQ_HEAD_INITIALIZER(modules);
static int module_last_id;

static int
module_event(module_t mod, modeventtype_t what)
{
	int error;

	mtx_lock(&Giant);
	error = mod->handler(mod, what, mod->arg);
	mtx_unlock(&Giant);
	return (error);
}

static int
module_default_handler(module_t mod, int what, void *arg)
{
	switch (what) {
	case MOD_LOAD:
		return (0);
	case MOD_UNLOAD:
		/* A module without an event handler has nothing to undo. */
		return (EBUSY);
	default:
		return (EOPNOTSUPP);
	}
}

module_t
module_lookupbyname(const char *name)
{
	module_t mod;

	MOD_LOCK_ASSERT;
	TAILQ_FOREACH(mod, &modules, link)
		if (strcmp(mod->name, name) == 0)
			return (mod);
	return (NULL);
}

module_t
module_lookupbyid(int id)
{
	module_t mod;

	MOD_LOCK_ASSERT;
	TAILQ_FOREACH(mod, &modules, link)
		if (mod->id == id)
			return (mod);
	return (NULL);
}

int
module_register(const moduledata_t *data, linker_file_t file)
{
	module_t mod;

	mod = malloc(sizeof(*mod), M_MODULE, M_WAITOK | M_ZERO);
	mod->refs = 1;
	mod->name = data->name;
	mod->handler = data->evhand != NULL ? data->evhand : module_default_handler;
	mod->arg = data->priv;
	mod->file = file;
	MOD_XLOCK;
	if (module_lookupbyname(data->name) != NULL) {
		MOD_XUNLOCK;
		printf("module_register: module %s already present\n", data->name);
		free(mod, M_MODULE);
		return (EEXIST);
	}
	mod->id = ++module_last_id;
	TAILQ_INSERT_TAIL(&modules, mod, link);
	if (file != NULL)
		TAILQ_INSERT_TAIL(&file->modules, mod, flink);
	MOD_XUNLOCK;
	return (0);
}

void
module_reference(module_t mod)
{
	MOD_XLOCK_ASSERT;
	mod->refs++;
}

void
module_release(module_t mod)
{
	MOD_XLOCK_ASSERT;
	KASSERT(mod->refs > 0, ("%s: module %s", __func__, mod->name));
	if (--mod->refs > 0)
		return;
	TAILQ_REMOVE(&modules, mod, link);
	if (mod->file != NULL)
		TAILQ_REMOVE(&mod->file->modules, mod, flink);
	free(mod, M_MODULE);
}

/* The SYSINIT of each DECLARE_MODULE(9). */
void
module_register_init(const void *arg)
{
	const moduledata_t *data = arg;
	module_t mod;
	int error;

	MOD_SLOCK;
	mod = module_lookupbyname(data->name);
	MOD_SUNLOCK;
	if (mod == NULL)
		panic("%s: module %s is not registered", __func__, data->name);
	error = module_event(mod, MOD_LOAD);
	if (error != 0)
		(void)module_event(mod, MOD_UNLOAD);
	MOD_XLOCK;
	if (error != 0) {
		printf("module_register_init: MOD_LOAD (%s, %p, %p) error %d\n", data->name,
		    (void *)(uintptr_t)data->evhand, data->priv, error);
		module_release(mod);
	} else if (mod->file != NULL) {
		TAILQ_REMOVE(&mod->file->modules, mod, flink);
		TAILQ_INSERT_TAIL(&mod->file->modules, mod, flink);
	}
	MOD_XUNLOCK;
}

int
module_quiesce(module_t mod)
{
	int error;

	error = module_event(mod, MOD_QUIESCE);
	return (error == EOPNOTSUPP || error == EINVAL ? 0 : error);
}

int
module_unload(module_t mod)
{
	return (module_event(mod, MOD_UNLOAD));
}

int
module_quiesce_file(linker_file_t lf, bool tell)
{
	module_t mod;
	int error;

	TAILQ_FOREACH(mod, &lf->modules, flink) {
		error = module_quiesce(mod);
		if (error != 0 && tell)
			printf("kldunload: module %s of %s is busy: error %d\n", mod->name,
			    lf->filename, error);
		if (error != 0)
			return (error);
	}
	return (0);
}

int
module_unload_file(linker_file_t lf)
{
	module_t mod;
	int error;

	/* The last loaded is unloaded first. */
	TAILQ_FOREACH_REVERSE(mod, &lf->modules, module_list, flink) {
		error = module_unload(mod);
		if (error == 0)
			continue;
		printf("kldunload: module %s of %s refuses to go: error %d\n", mod->name,
		    lf->filename, error);
		while ((mod = TAILQ_NEXT(mod, flink)) != NULL)
			if (module_event(mod, MOD_LOAD) != 0)
				printf("kldunload: module %s does not come back\n", mod->name);
		return (error);
	}
	MOD_XLOCK;
	while ((mod = TAILQ_FIRST(&lf->modules)) != NULL)
		module_release(mod);
	MOD_XUNLOCK;
	return (0);
}

int
module_getid(module_t mod)
{
	MOD_LOCK_ASSERT;
	return (mod->id);
}

module_t
module_getfnext(module_t mod)
{
	MOD_LOCK_ASSERT;
	return (TAILQ_NEXT(mod, flink));
}

module_t
module_first(linker_file_t lf)
{
	MOD_LOCK_ASSERT;
	return (TAILQ_FIRST(&lf->modules));
}

const char *
module_getname(module_t mod)
{
	MOD_LOCK_ASSERT;
	return (mod->name);
}

int
module_getrefs(module_t mod)
{
	MOD_LOCK_ASSERT;
	return (mod->refs);
}

void
module_setspecific(module_t mod, modspecific_t *data)
{
	MOD_XLOCK_ASSERT;
	mod->data = *data;
}

void
module_getspecific(module_t mod, modspecific_t *data)
{
	MOD_LOCK_ASSERT;
	*data = mod->data;
}

linker_file_t
module_file(module_t mod)
{
	return (mod->file);
}

static void
module_shutdown(void *arg __unused, int howto)
{
	module_t mod;

	if ((howto & RB_NOSYNC) != 0)
		return;
	/* Drivers before the buses that they sit on. */
	TAILQ_FOREACH_REVERSE(mod, &modules, module_list, link)
		(void)module_event(mod, MOD_SHUTDOWN);
}

static void
module_init(void *arg __unused)
{
	EVENTHANDLER_REGISTER(shutdown_final, module_shutdown, NULL, SHUTDOWN_PRI_DEFAULT);
}
SYSINIT(module, SI_SUB_KLD, SI_ORDER_FIRST, module_init, NULL);
