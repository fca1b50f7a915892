/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The module linker: files of code, their dependencies and their life cycle.
 *
 * File 1 is the kernel itself.  Each further file is a .ko that kldload(8) or another file's
 * MODULE_DEPEND(9) requires.  A file's linker set modmetadata_set describes it:
 *
 *	MDT_VERSION	names that it provides, with a version each
 *	MDT_DEPEND	names that it needs, with a range of versions
 *	MDT_MODULE	event handlers (kern_module.c)
 *
 * Loading a file: read and place it (link_elf_obj.c), load its dependencies, resolve its symbols,
 * register its modules and sysctls, run its SYSINITs; those load its modules.  Unloading does the
 * reverse, after every module agreed.  An error at any point undoes the steps before it, and is
 * reported on the console.
 *
 * Reference counts.  `refs` counts the user (once, if `userrefs` is 1) and the files that need this
 * one.  A file that was loaded only as a dependency is unloaded with the last file that needs it.
 *
 * Locking.  kld_sx is held exclusively throughout loading and unloading.
 *
 * Gaps.  There is no linker.hints: the module NAME is looked for in /boot/kernel/NAME.ko only.
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
#include <sys/proc.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <fs/memfs_tree.h>
#include <kern/kobj_tree.h>
#include <kern/linker_tree.h>

struct sx kld_sx;
SX_SYSINIT(kld_sx, &kld_sx, "kernel linker");

linker_file_list_t linker_files = TAILQ_HEAD_INITIALIZER(linker_files);
linker_file_t linker_kernel_file;

/* Every module depends on the kernel, whose version is that of the interface. */
MODULE_VERSION(kernel, __FreeBSD_version);

SET_DECLARE(modmetadata_set, struct mod_metadata);

/* The image as it is in memory: linked from KERNBASE + 2 MB up, its symbol table last. */
#define	KERNLOAD_VA	(KERNBASE + 0x200000UL)
extern char ksyms_end[];

/* A name that some file provides. */
struct modlist {
	TAILQ_ENTRY(modlist)	link;
	linker_file_t		container;
	const char		*name;
	int			version;
};
static TAILQ_HEAD(, modlist) modlist = TAILQ_HEAD_INITIALIZER(modlist);

/*
 * The chain of files that are being loaded: a file that depends on itself, directly or not, would
 * recurse for ever.
 */
struct linker_chain {
	const char			*name;
	const struct linker_chain	*parent;
	u_int				depth;
};
#define	LINKER_MAXDEPTH	16

/* Both recurse: a file is loaded with its dependencies, and releases them when it is unloaded. */
static int linker_load_by_name(const char *name, const struct linker_chain *parent,
    linker_file_t *lfp);
static int linker_release(linker_file_t lf);

static bool
modlist_in_range(const struct modlist *m, const struct mod_depend *ver)
{
	return (ver == NULL ||
	    (m->version >= ver->md_ver_minimum && m->version <= ver->md_ver_maximum));
}

/* The provider of `name`, in the preferred version if there is one, else in any of the range. */
static struct modlist *
modlist_find(const char *name, const struct mod_depend *ver)
{
	struct modlist *best = NULL, *m;

	TAILQ_FOREACH(m, &modlist, link) {
		if (strcmp(m->name, name) != 0 || !modlist_in_range(m, ver))
			continue;
		if (best == NULL || (ver != NULL && m->version == ver->md_ver_preferred))
			best = m;
	}
	return (best);
}

static void
modlist_add(linker_file_t lf, const char *name, int version)
{
	struct modlist *m;

	m = malloc(sizeof(*m), M_LINKER, M_WAITOK);
	m->container = lf;
	m->name = name;
	m->version = version;
	TAILQ_INSERT_TAIL(&modlist, m, link);
}

static void
modlist_remove(linker_file_t lf)
{
	struct modlist *m, *next;

	TAILQ_FOREACH_SAFE(m, &modlist, link, next) {
		if (m->container != lf)
			continue;
		TAILQ_REMOVE(&modlist, m, link);
		free(m, M_LINKER);
	}
}

/* The metadata of a file, as an array. */
static u_int
linker_metadata(linker_file_t lf, struct mod_metadata ***mdp)
{
	void **start, **stop;

	if (lf == linker_kernel_file) {
		*mdp = SET_BEGIN(modmetadata_set);
		return (SET_COUNT(modmetadata_set));
	}
	if (!link_elf_obj_lookup_set(lf, "modmetadata_set", &start, &stop))
		return (0);
	*mdp = (struct mod_metadata **)start;
	return (stop - start);
}

/* Whether a string is in the file, including its end. */
static bool
linker_good_string(linker_file_t lf, const char *str)
{
	do {
		if (!link_elf_obj_contains(lf, str, 1))
			return (false);
	} while (*str++ != '\0');
	return (true);
}

static bool
linker_good_metadata(linker_file_t lf, const struct mod_metadata *md)
{
	static const size_t sizes[] = {
		[MDT_DEPEND] = sizeof(struct mod_depend),
		[MDT_MODULE] = sizeof(moduledata_t),
		[MDT_VERSION] = sizeof(struct mod_version),
		[MDT_PNP_INFO] = sizeof(struct mod_pnp_match_info),
	};

	return (link_elf_obj_contains(lf, md, sizeof(*md)) &&
	    md->md_version == MDT_STRUCT_VERSION && md->md_type > 0 &&
	    md->md_type < (int)nitems(sizes) &&
	    link_elf_obj_contains(lf, md->md_data, sizes[md->md_type]) &&
	    linker_good_string(lf, md->md_cval));
}

/* Check the pointers that the linker is going to follow: a damaged file's may be invalid. */
static int
linker_check_sets(linker_file_t lf)
{
	static const struct {
		const char	*name;
		size_t		size;	/* of what each member points to */
	} sets[] = {
		{ "sysctl_set", sizeof(struct sysctl_oid) },
		{ "sysinit_set", sizeof(struct sysinit) },
		{ "sysuninit_set", sizeof(struct sysinit) },
		{ "modmetadata_set", sizeof(struct mod_metadata) },
	};
	void **member, **start, **stop;

	for (u_int i = 0; i < nitems(sets); i++) {
		if (!link_elf_obj_lookup_set(lf, sets[i].name, &start, &stop))
			continue;
		for (member = start; member < stop; member++) {
			if (link_elf_obj_contains(lf, *member, sets[i].size) &&
			    (strcmp(sets[i].name, "modmetadata_set") != 0 ||
			    linker_good_metadata(lf, *member)))
				continue;
			printf("kldload: %s: linker set %s is damaged\n", lf->filename,
			    sets[i].name);
			return (ENOEXEC);
		}
	}
	return (0);
}

/* Does the file itself provide `name`?  Then no other file has to. */
static bool
linker_provides(linker_file_t lf, const char *name)
{
	struct mod_metadata **md;
	u_int n;

	n = linker_metadata(lf, &md);
	for (u_int i = 0; i < n; i++)
		if (md[i]->md_type == MDT_VERSION && strcmp(md[i]->md_cval, name) == 0)
			return (true);
	return (false);
}

/* No two files may provide the same name. */
static int
linker_check_provided(linker_file_t lf)
{
	struct mod_metadata **md;
	struct modlist *m;
	u_int n;

	n = linker_metadata(lf, &md);
	for (u_int i = 0; i < n; i++) {
		if (md[i]->md_type != MDT_VERSION)
			continue;
		m = modlist_find(md[i]->md_cval, NULL);
		if (m != NULL) {
			printf("kldload: %s: module %s is already in %s\n", lf->filename,
			    md[i]->md_cval, m->container->filename);
			return (EEXIST);
		}
	}
	return (0);
}

static void
linker_register_versions(linker_file_t lf)
{
	struct mod_metadata **md;
	u_int n;

	n = linker_metadata(lf, &md);
	for (u_int i = 0; i < n; i++)
		if (md[i]->md_type == MDT_VERSION)
			modlist_add(lf, md[i]->md_cval,
			    ((const struct mod_version *)md[i]->md_data)->mv_version);
}

static void
linker_add_dependency(linker_file_t lf, linker_file_t dep)
{
	linker_file_t *deps;

	if (dep == lf)
		return;
	for (int i = 0; i < lf->ndeps; i++)
		if (lf->deps[i] == dep)
			return;
	deps = malloc((lf->ndeps + 1) * sizeof(*deps), M_LINKER, M_WAITOK);
	if (lf->ndeps > 0)
		memcpy(deps, lf->deps, lf->ndeps * sizeof(*deps));
	free(lf->deps, M_LINKER);
	deps[lf->ndeps++] = dep;
	lf->deps = deps;
	dep->refs++;
}

/* Report why `m`, the only provider of what `lf` needs (NULL: there is none), does not match. */
static void
linker_print_unmet(linker_file_t lf, const char *name, const struct mod_depend *ver,
    const struct modlist *m)
{
	if (m != NULL)
		printf("kldload: %s: depends on %s version %d to %d, but %s has version %d\n",
		    lf->filename, name, ver->md_ver_minimum, ver->md_ver_maximum,
		    m->container->filename, m->version);
	else
		printf("kldload: %s: depends on %s, which %s.ko does not provide\n", lf->filename,
		    name, name);
}

/* Find or load one thing that `lf` needs. */
static int
linker_need(linker_file_t lf, const char *name, const struct mod_depend *ver,
    const struct linker_chain *chain)
{
	linker_file_t dep = NULL;
	struct modlist *m;
	int error;

	if (modlist_find(name, NULL) == NULL) {
		error = linker_load_by_name(name, chain, &dep);
		if (error != 0 && error != EEXIST) {
			printf("kldload: %s: depends on %s, which can't be loaded%s\n",
			    lf->filename, name, error == ENOENT ?
			    ": there is no such file in " LINKER_DIR : "");
			return (error);
		}
	}
	m = modlist_find(name, ver);
	if (m == NULL) {
		linker_print_unmet(lf, name, ver, modlist_find(name, NULL));
		if (dep != NULL)
			(void)linker_release(dep);
		return (ENOEXEC);
	}
	linker_add_dependency(lf, m->container);
	return (0);
}

static int
linker_load_needed(linker_file_t lf, const struct linker_chain *chain)
{
	struct mod_metadata **md;
	u_int n;
	int error;

	linker_add_dependency(lf, linker_kernel_file);
	n = linker_metadata(lf, &md);
	for (u_int i = 0; i < n; i++) {
		if (md[i]->md_type != MDT_DEPEND || linker_provides(lf, md[i]->md_cval))
			continue;
		error = linker_need(lf, md[i]->md_cval, md[i]->md_data, chain);
		if (error != 0)
			return (error == ENOENT ? ENOEXEC : error);
	}
	return (0);
}

static int
linker_register_modules(linker_file_t lf)
{
	struct mod_metadata **md;
	u_int n;
	int error;

	n = linker_metadata(lf, &md);
	for (u_int i = 0; i < n; i++) {
		if (md[i]->md_type != MDT_MODULE)
			continue;
		error = module_register(md[i]->md_data, lf);
		if (error != 0)
			return (error);
	}
	return (0);
}

/* Forget modules that never got their MOD_LOAD. */
static void
linker_unregister_modules(linker_file_t lf)
{
	module_t mod;

	MOD_XLOCK;
	while ((mod = module_first(lf)) != NULL)
		module_release(mod);
	MOD_XUNLOCK;
}

static void
linker_sysctls(linker_file_t lf, bool add)
{
	void **oid, **start, **stop;

	if (!link_elf_obj_lookup_set(lf, "sysctl_set", &start, &stop))
		return;
	sysctl_wlock();
	for (oid = start; oid < stop; oid++) {
		if (add)
			sysctl_register_oid(*oid);
		else
			sysctl_unregister_oid(*oid);
	}
	sysctl_wunlock();
}

/* Is `a` due before `b`? */
static bool
sysinit_before(const struct sysinit *a, const struct sysinit *b)
{
	if (a->subsystem != b->subsystem)
		return (a->subsystem < b->subsystem);
	return (a->order < b->order);
}

/*
 * Run the file's SYSINITs in their order, or its SYSUNINITs in the reverse order.  The sort is
 * stable.
 */
static void
linker_run_sysinits(linker_file_t lf, bool uninit)
{
	struct sysinit **set, *si;
	void **start, **stop;
	size_t i, j, n;

	if (!link_elf_obj_lookup_set(lf, uninit ? "sysuninit_set" : "sysinit_set", &start, &stop))
		return;
	set = (struct sysinit **)start;
	if (linker_preloading && !uninit) {
		sysinit_add(set, (struct sysinit **)stop);
		return;
	}
	n = stop - start;
	for (i = 1; i < n; i++) {
		si = set[i];
		for (j = i; j > 0 && (uninit ? sysinit_before(set[j - 1], si) :
		    sysinit_before(si, set[j - 1])); j--)
			set[j] = set[j - 1];
		set[j] = si;
	}
	for (i = 0; i < n; i++)
		if (set[i]->subsystem != SI_SUB_DUMMY)
			set[i]->func(set[i]->udata);
}

static void
linker_insert(linker_file_t lf)
{
	linker_file_t f;
	int id = 1;

	/* The lowest free number, as in kldload(2). */
	TAILQ_FOREACH(f, &linker_files, link) {
		if (f->id != id)
			break;
		id++;
	}
	lf->id = id;
	if (f != NULL)
		TAILQ_INSERT_BEFORE(f, lf, link);
	else
		TAILQ_INSERT_TAIL(&linker_files, lf, link);
}

/* Drop the references on the file's dependencies, the last first. */
static void
linker_release_needed(linker_file_t lf)
{
	for (int i = lf->ndeps - 1; i >= 0; i--)
		/* A busy one is not unloaded.  It stays loaded, although no file needs it. */
		if ((lf->deps[i]->refs == 1 && module_quiesce_file(lf->deps[i], false) != 0) ||
		    linker_release(lf->deps[i]) != 0)
			lf->deps[i]->refs--;
	lf->ndeps = 0;
}

/* Free everything of a file that no longer runs. */
static void
linker_destroy(linker_file_t lf)
{
	uintptr_t start = (uintptr_t)lf->address;

	modlist_remove(lf);
	if (lf->id != 0)
		TAILQ_REMOVE(&linker_files, lf, link);
	linker_release_needed(lf);
	kobj_forget(start, start + lf->size);
	link_elf_obj_free(lf);
}

/* Stop a file that runs.  An error leaves it as it was. */
static int
linker_stop(linker_file_t lf)
{
	int error;

	error = module_unload_file(lf);
	if (error != 0)
		return (error);
	linker_sysctls(lf, false);
	linker_run_sysinits(lf, true);
	return (0);
}

/* Drop one reference; without any left the file is unloaded.  An error leaves it as it was. */
static int
linker_release(linker_file_t lf)
{
	int error;

	sx_assert(&kld_sx, SA_XLOCKED);
	if (lf->refs > 1 || lf == linker_kernel_file) {
		lf->refs--;
		return (0);
	}
	error = linker_stop(lf);
	if (error != 0)
		return (error);
	linker_destroy(lf);
	return (0);
}

/* Start a linked file.  ENOEXEC if it has modules and none of them would load. */
static int
linker_start(linker_file_t lf)
{
	bool any;
	int error;

	error = linker_register_modules(lf);
	if (error != 0) {
		linker_unregister_modules(lf);
		return (error);
	}
	any = !TAILQ_EMPTY(&lf->modules);
	linker_sysctls(lf, true);
	linker_run_sysinits(lf, false);
	lf->flags |= LINKER_FILE_LINKED;
	if (any && TAILQ_EMPTY(&lf->modules)) {
		printf("kldload: %s: no module of it could be started\n", lf->filename);
		(void)linker_stop(lf);
		return (ENOEXEC);
	}
	return (0);
}

/* Link and start an image, which is taken over. */
static int
linker_load_image(const char *filename, const char *path, void *image, size_t size,
    const struct linker_chain *chain, linker_file_t *lfp)
{
	linker_file_t lf;
	int error;

	error = link_elf_obj_load(filename, path, image, size, &lf);
	if (error != 0)
		return (error);
	error = linker_check_sets(lf);
	if (error == 0)
		error = linker_check_provided(lf);
	if (error == 0)
		error = linker_load_needed(lf, chain);
	if (error == 0)
		error = link_elf_obj_resolve(lf);
	if (error == 0) {
		linker_register_versions(lf);
		linker_insert(lf);
		error = linker_start(lf);
	}
	if (error != 0) {
		linker_destroy(lf);
		return (error);
	}
	*lfp = lf;
	return (0);
}

/* Copy a whole file to memory: a command may write to the file while it is linked. */
static int
linker_read(const char *path, void **imagep, size_t *sizep)
{
	struct memfs_file *f;
	size_t size;
	int error;

	error = memfs_open(path, &f);
	if (error != 0)
		return (error);
	size = memfs_size(f);
	*imagep = malloc(MAX(size, 1), M_LINKER, M_WAITOK);
	error = memfs_read(f, 0, *imagep, &size);
	memfs_close(f);
	if (error != 0)
		free(*imagep, M_LINKER);
	*sizep = size;
	return (error);
}

static const char *
linker_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return (slash == NULL ? path : slash + 1);
}

linker_file_t
linker_find_file_by_name(const char *name)
{
	const char *base = linker_basename(name);
	size_t len = strlen(base);
	linker_file_t lf;

	sx_assert(&kld_sx, SA_LOCKED);
	TAILQ_FOREACH(lf, &linker_files, link) {
		if (strcmp(lf->filename, base) == 0)
			return (lf);
		if (strncmp(lf->filename, base, len) == 0 && strcmp(lf->filename + len, ".ko") == 0)
			return (lf);
	}
	return (NULL);
}

linker_file_t
linker_find_file_by_id(int id)
{
	linker_file_t lf;

	sx_assert(&kld_sx, SA_LOCKED);
	TAILQ_FOREACH(lf, &linker_files, link)
		if (lf->id == id)
			return (lf);
	return (NULL);
}

/* The path that a module's name, or a path, stands for; to be freed. */
static char *
linker_make_path(const char *name)
{
	size_t len = strlen(name);
	char *path;

	if (strchr(name, '/') != NULL)
		path = strdup(name, M_LINKER);
	else
		(void)asprintf(&path, M_LINKER, LINKER_DIR "/%s%s", name,
		    len > 3 && strcmp(name + len - 3, ".ko") == 0 ? "" : ".ko");
	return (path);
}

static int
linker_load_path(const char *path, const struct linker_chain *chain, linker_file_t *lfp)
{
	void *image;
	size_t size;
	int error;

	error = linker_read(path, &image, &size);
	if (error != 0)
		return (error);
	return (linker_load_image(linker_basename(path), path, image, size, chain, lfp));
}

static int
linker_load_by_name(const char *name, const struct linker_chain *parent, linker_file_t *lfp)
{
	struct linker_chain chain = { name, parent, parent != NULL ? parent->depth + 1 : 0 };
	const struct linker_chain *p;
	char *path;
	int error;

	sx_assert(&kld_sx, SA_XLOCKED);
	for (p = parent; p != NULL; p = p->parent) {
		if (strcmp(p->name, name) != 0 && p->depth < LINKER_MAXDEPTH)
			continue;
		printf("kldload: %s: needs itself, or too many others\n", name);
		return (ENOEXEC);
	}
	if (linker_find_file_by_name(name) != NULL)
		return (EEXIST);
	path = linker_make_path(name);
	error = linker_load_path(path, &chain, lfp);
	free(path, M_LINKER);
	return (error);
}

int
linker_kldload(const char *name, int *idp)
{
	linker_file_t lf;
	int error;

	sx_xlock(&kld_sx);
	if (strchr(name, '/') == NULL && modlist_find(name, NULL) != NULL)
		error = EEXIST;
	else
		error = linker_load_by_name(name, NULL, &lf);
	if (error == 0) {
		lf->refs++;
		lf->userrefs++;
		*idp = lf->id;
	}
	sx_xunlock(&kld_sx);
	return (error);
}

void
linker_preloaded(void)
{
	linker_file_t lf;

	sx_xlock(&kld_sx);
	TAILQ_FOREACH(lf, &linker_files, link) {
		if (lf->userrefs != 0)
			continue;
		lf->refs++;
		lf->userrefs++;
	}
	sx_xunlock(&kld_sx);
}

/* Name the files that need `lf`. */
static void
linker_print_users(linker_file_t lf)
{
	linker_file_t f;

	TAILQ_FOREACH(f, &linker_files, link)
		for (int i = 0; i < f->ndeps; i++)
			if (f->deps[i] == lf)
				printf("kldunload: %s is needed by %s\n", lf->filename,
				    f->filename);
}

int
linker_kldunload(int fileid, int flags)
{
	linker_file_t lf;
	int error = 0;

	sx_xlock(&kld_sx);
	lf = linker_find_file_by_id(fileid);
	if (lf == NULL)
		error = ENOENT;
	else if (lf == linker_kernel_file)
		error = EBUSY;
	else if (lf->refs > lf->userrefs) {
		linker_print_users(lf);
		error = EBUSY;
	} else if (flags != LINKER_UNLOAD_FORCE)
		error = module_quiesce_file(lf, true);
	if (error == 0)
		error = linker_release(lf);
	sx_xunlock(&kld_sx);
	return (error);
}

int
linker_release_module(const char *modname, struct mod_depend *verinfo, linker_file_t lf)
{
	struct modlist *m;
	int error;

	sx_xlock(&kld_sx);
	if (lf == NULL) {
		m = modlist_find(modname, verinfo);
		KASSERT(m != NULL, ("%s: no module %s", __func__, modname));
		lf = m->container;
	} else
		KASSERT(modname == NULL && verinfo == NULL, ("%s: both name and file", __func__));
	error = linker_release(lf);
	sx_xunlock(&kld_sx);
	return (error);
}

/* Register the kernel as file 1, with all modules that were compiled in. */
static void
linker_init_kernel(void *arg __unused)
{
	linker_file_t lf;

	lf = malloc(sizeof(*lf), M_LINKER, M_WAITOK | M_ZERO);
	TAILQ_INIT(&lf->modules);
	STAILQ_INIT(&lf->common);
	lf->refs = 1;
	lf->userrefs = 1;
	lf->flags = LINKER_FILE_LINKED;
	lf->filename = strdup("kernel", M_LINKER);
	lf->pathname = strdup(LINKER_DIR "/kernel", M_LINKER);
	lf->address = (caddr_t)KERNLOAD_VA;
	lf->size = (uintptr_t)ksyms_end - KERNLOAD_VA;
	linker_kernel_file = lf;
	sx_xlock(&kld_sx);
	linker_insert(lf);
	linker_register_versions(lf);
	sx_xunlock(&kld_sx);
	if (linker_register_modules(lf) != 0)
		panic("%s: two modules of one name in the kernel", __func__);
}
SYSINIT(linker_kernel, SI_SUB_KLD, SI_ORDER_SECOND, linker_init_kernel, NULL);
