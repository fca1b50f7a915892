/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Console commands of the module linker: kldload(8), kldunload(8), kldstat(8).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/module.h>
#include <sys/sx.h>

#include <kern/console_tree.h>
#include <kern/linker_tree.h>

/* Column widths of kldstat: an address with its 0x. */
#define	POINTER_WIDTH	18

static int
kldload_one(const char *name, bool quiet, bool skip_loaded, bool verbose)
{
	int error, id;

	error = linker_kldload(name, &id);
	if (error == 0) {
		if (verbose)
			printf("Loaded %s, id=%d\n", name, id);
		return (0);
	}
	if (error == EEXIST && skip_loaded) {
		if (verbose)
			printf("%s is already loaded\n", name);
		return (0);
	}
	if (quiet)
		return (1);
	if (error == EEXIST)
		return (cmd_err("kldload", 0, "can't load %s: module already loaded or in kernel",
		    name));
	return (cmd_err("kldload", error, "can't load %s", name));
}

static int
cmd_kldload(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool quiet = false, skip_loaded = false, verbose = false;
	int c, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "nqv")) != -1) {
		switch (c) {
		case 'n':
			skip_loaded = true;
			break;
		case 'q':
			quiet = true;
			verbose = false;
			break;
		case 'v':
			verbose = true;
			quiet = false;
			break;
		default:
			return (cmd_usage("kldload"));
		}
	}
	if (g.optind == argc)
		return (cmd_usage("kldload"));
	for (int i = g.optind; i < argc && !cmd_interrupted(); i++)
		if (kldload_one(argv[i], quiet, skip_loaded, verbose) != 0)
			status = 1;
	return (status);
}
CONSOLE_NET_CMD(kldload, cmd_kldload, "load kernel modules",
    "kldload [-nqv] file ...");

/* The number of the file that `word` names, or is; 0 with a message if there is none. */
static int
kldunload_find(const char *word, bool by_id)
{
	linker_file_t lf;
	char *end;
	int id = 0;

	if (by_id) {
		id = strtol(word, &end, 10);
		if (*word == '\0' || *end != '\0' || id <= 0) {
			cmd_err("kldunload", 0, "invalid id: %s", word);
			return (0);
		}
	}
	sx_slock(&kld_sx);
	lf = by_id ? linker_find_file_by_id(id) : linker_find_file_by_name(word);
	id = lf != NULL ? lf->id : 0;
	sx_sunlock(&kld_sx);
	if (id == 0)
		cmd_err("kldunload", ENOENT, by_id ? "can't find file with id %s" :
		    "can't find file %s", word);
	return (id);
}

static int
cmd_kldunload(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool by_id = false, verbose = false;
	int c, error, flags = LINKER_UNLOAD_NORMAL, id, status = 0;

	while ((c = cmd_getopt(&g, argc, argv, "finv")) != -1) {
		switch (c) {
		case 'f':
			flags = LINKER_UNLOAD_FORCE;
			break;
		case 'i':
			by_id = true;
			break;
		case 'n':
			by_id = false;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			return (cmd_usage("kldunload"));
		}
	}
	if (g.optind == argc)
		return (cmd_usage("kldunload"));
	for (int i = g.optind; i < argc && !cmd_interrupted(); i++) {
		id = kldunload_find(argv[i], by_id);
		if (id == 0) {
			status = 1;
			continue;
		}
		if (verbose)
			printf("Unloading %s, id=%d\n", argv[i], id);
		error = linker_kldunload(id, flags);
		if (error != 0)
			status = cmd_err("kldunload", error, "can't unload file");
	}
	return (status);
}
CONSOLE_NET_CMD(kldunload, cmd_kldunload, "unload kernel modules",
    "kldunload [-fv] [-n] name ... | [-fv] -i id ...");

struct kldstat {
	bool	verbose;
	bool	quiet;
};

static void
kldstat_print_modules(linker_file_t lf)
{
	module_t mod;

	printf("\tContains modules:\n");
	printf("\t\t Id Name\n");
	MOD_SLOCK;
	for (mod = module_first(lf); mod != NULL; mod = module_getfnext(mod))
		printf("\t\t%3d %s\n", module_getid(mod), module_getname(mod));
	MOD_SUNLOCK;
}

static void
kldstat_print_header(void)
{
	printf("Id Refs Address%*c %8s Name\n", POINTER_WIDTH - 7, ' ', "Size");
}

static void
kldstat_print_file(linker_file_t lf, const struct kldstat *ks)
{
	printf("%2d %4d %p %8jx %s", lf->id, lf->refs, lf->address, (uintmax_t)lf->size,
	    lf->filename);
	if (ks->verbose)
		printf(" (%s)", lf->pathname);
	printf("\n");
	if (ks->verbose)
		kldstat_print_modules(lf);
}

static int
kldstat_module(const char *name, const struct kldstat *ks)
{
	module_t mod;

	MOD_SLOCK;
	mod = module_lookupbyname(name);
	if (mod != NULL && !ks->quiet) {
		printf("Id  Refs Name\n");
		printf("%3d %4d %s\n", module_getid(mod), module_getrefs(mod),
		    module_getname(mod));
	}
	MOD_SUNLOCK;
	if (mod != NULL)
		return (0);
	return (ks->quiet ? 1 : cmd_err("kldstat", ENOENT, "can't find module %s", name));
}

static int
kldstat_file(const char *name, int id, const struct kldstat *ks)
{
	linker_file_t lf;

	sx_slock(&kld_sx);
	lf = name != NULL ? linker_find_file_by_name(name) : linker_find_file_by_id(id);
	if (lf != NULL && !ks->quiet) {
		kldstat_print_header();
		kldstat_print_file(lf, ks);
	}
	sx_sunlock(&kld_sx);
	if (lf != NULL)
		return (0);
	if (ks->quiet)
		return (1);
	if (name != NULL)
		return (cmd_err("kldstat", ENOENT, "can't find file %s", name));
	return (cmd_err("kldstat", ENOENT, "can't stat file id %d", id));
}

static int
kldstat_all(const struct kldstat *ks)
{
	linker_file_t lf;

	sx_slock(&kld_sx);
	if (!ks->quiet)
		kldstat_print_header();
	TAILQ_FOREACH(lf, &linker_files, link)
		if (!ks->quiet)
			kldstat_print_file(lf, ks);
	sx_sunlock(&kld_sx);
	return (0);
}

static int
cmd_kldstat(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct kldstat ks = { 0 };
	const char *file = NULL, *module = NULL;
	char *end;
	int c, id = 0;

	while ((c = cmd_getopt(&g, argc, argv, "i:m:n:qv")) != -1) {
		switch (c) {
		case 'i':
			id = strtol(g.optarg, &end, 10);
			if (*end != '\0' || id <= 0)
				return (cmd_usage("kldstat"));
			break;
		case 'm':
			module = g.optarg;
			break;
		case 'n':
			file = g.optarg;
			break;
		case 'q':
			ks.quiet = true;
			break;
		case 'v':
			ks.verbose = true;
			break;
		default:
			return (cmd_usage("kldstat"));
		}
	}
	if (g.optind != argc)
		return (cmd_usage("kldstat"));
	if (module != NULL)
		return (kldstat_module(module, &ks));
	if (file != NULL || id != 0)
		return (kldstat_file(file, id, &ks));
	return (kldstat_all(&ks));
}
CONSOLE_CMD(kldstat, cmd_kldstat, "list loaded kernel modules",
    "kldstat [-qv] [-i id] [-m modname] [-n filename]");
