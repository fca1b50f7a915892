/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * devinfo(8): the tree of devices and their resources.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/rman.h>
#include <sys/sbuf.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <kern/bus_tree.h>
#include <kern/console_tree.h>
#include <kern/rman_tree.h>

struct devinfo {
	bool		verbose;
	bool		resources;
	struct rman_entry *entries;	/* every resource of the machine */
	int		nentries;
};

/* ` KEY TEXT`, if the bus has anything to say. */
static void
devinfo_print_text(device_t dev, const char *key, int (*describe)(device_t, struct sbuf *))
{
	struct sbuf *sb = sbuf_new(NULL, NULL, 128, SBUF_AUTOEXTEND);

	(void)describe(dev, sb);
	if (sbuf_finish(sb) == 0 && sbuf_len(sb) > 0)
		printf(" %s %s", key, sbuf_data(sb));
	sbuf_delete(sb);
}

/* The resources of one device, under a heading for each region. */
static void
devinfo_print_resources(const struct devinfo *di, device_t dev, int indent)
{
	const struct rman_entry *e;
	const char *descr = NULL;

	for (int i = 0; i < di->nentries; i++) {
		e = &di->entries[i];
		if (e->re_device != dev)
			continue;
		if (descr == NULL || strcmp(descr, e->re_descr) != 0)
			printf("%*s%s:\n", indent, "", e->re_descr);
		descr = e->re_descr;
		printf("%*s%#jx", indent + 4, "", (uintmax_t)e->re_start);
		if (e->re_end != e->re_start)
			printf("-%#jx", (uintmax_t)e->re_end);
		printf("\n");
	}
}

/* A device and all below it.  Recursion, as deep as the tree. */
static void
devinfo_print(const struct devinfo *di, device_t dev, int indent)
{
	device_t child;

	if (cmd_interrupted())
		return;
	if (di->verbose || (dev->nameunit != NULL && dev->state >= DS_ATTACHED)) {
		printf("%*s%s", indent, "", dev->nameunit != NULL ? dev->nameunit : "unknown");
		if (di->verbose) {
			devinfo_print_text(dev, "pnpinfo", bus_child_pnpinfo);
			devinfo_print_text(dev, "at", bus_child_location);
			if ((dev->flags & DF_ENABLED) == 0)
				printf(" (disabled)");
			if ((dev->flags & DF_SUSPENDED) != 0)
				printf(" (suspended)");
		}
		printf("\n");
		if (di->resources)
			devinfo_print_resources(di, dev, indent + 4);
	}
	TAILQ_FOREACH(child, &dev->children, link)
		devinfo_print(di, child, indent + 2);
}

static int
cmd_devinfo(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct devinfo di = { 0 };
	device_t child;
	int c;

	while ((c = cmd_getopt(&g, argc, argv, "rv")) != -1) {
		switch (c) {
		case 'r':
			di.resources = true;
			break;
		case 'v':
			di.verbose = true;
			break;
		default:
			return (cmd_usage("devinfo"));
		}
	}
	if (g.optind != argc)
		return (cmd_usage("devinfo"));
	if (di.resources)
		di.nentries = rman_snapshot(&di.entries);
	bus_topo_lock();
	TAILQ_FOREACH(child, &root_bus->children, link)
		devinfo_print(&di, child, 0);
	bus_topo_unlock();
	free(di.entries, M_TEMP);
	return (0);
}
CONSOLE_CMD(devinfo, cmd_devinfo, "show the tree of devices",
    "devinfo [-rv]");
