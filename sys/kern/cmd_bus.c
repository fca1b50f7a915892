/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Console commands about devices: devinfo(8), devctl(8).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sbuf.h>

#include <machine/bus.h>
#include <machine/resource.h>

#include <kern/bus_private.h>
#include <kern/console.h>
#include <kern/rman_private.h>

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
CONSOLE_CMD(devinfo, cmd_devinfo, "devinfo [-rv]");

/* A device by its name, or by a name that its bus knows: pci0:0:3:0. */
static device_t
devctl_find(const char *name)
{
	device_t dev;

	dev = device_lookup_by_name(name);
	if (dev == NULL)
		EVENTHANDLER_INVOKE(dev_lookup, name, &dev);
	return (dev);
}

static int
devctl_attach(device_t dev, bool force)
{
	if (device_is_attached(dev))
		return (EBUSY);
	if (!device_is_enabled(dev))
		return (ENXIO);
	return (device_probe_and_attach(dev));
}

static int
devctl_detach(device_t dev, bool force)
{
	int error = 0;

	if (!device_is_attached(dev))
		return (ENXIO);
	if (!force)
		error = device_quiesce(dev);
	return (error != 0 ? error : device_detach(dev));
}

static int
devctl_disable(device_t dev, bool force)
{
	int error = 0;

	if (!device_is_enabled(dev))
		return (ENXIO);
	if (device_is_attached(dev))
		error = devctl_detach(dev, force);
	if (error == 0)
		device_disable(dev);
	return (error);
}

static int
devctl_enable(device_t dev, bool force)
{
	if (device_is_enabled(dev))
		return (EBUSY);
	device_enable(dev);
	return (device_probe_and_attach(dev));
}

static int
devctl_suspend(device_t dev, bool force)
{
	if (device_is_suspended(dev))
		return (EBUSY);
	if (device_get_parent(dev) == NULL)
		return (EINVAL);
	return (BUS_SUSPEND_CHILD(device_get_parent(dev), dev));
}

static int
devctl_resume(device_t dev, bool force)
{
	if (!device_is_suspended(dev))
		return (EINVAL);
	return (BUS_RESUME_CHILD(device_get_parent(dev), dev));
}

static int
devctl_rescan(device_t dev, bool force)
{
	if (!device_is_attached(dev))
		return (ENXIO);
	return (BUS_RESCAN(dev));
}

static int
devctl_delete(device_t dev, bool force)
{
	device_t parent = device_get_parent(dev);

	if (parent == NULL)
		return (EINVAL);
	/* What is still there would be found again: only that which is gone, or by force. */
	if (!force && bus_child_present(dev) != 0)
		return (EBUSY);
	return (device_delete_child(parent, dev));
}

static const struct {
	const char	*name;
	bool		can_force;
	int		(*func)(device_t dev, bool force);
} devctl_commands[] = {
	{ "attach", false, devctl_attach },
	{ "detach", true, devctl_detach },
	{ "disable", true, devctl_disable },
	{ "enable", false, devctl_enable },
	{ "suspend", false, devctl_suspend },
	{ "resume", false, devctl_resume },
	{ "rescan", false, devctl_rescan },
	{ "delete", true, devctl_delete },
};

static int
cmd_devctl(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool force = false;
	device_t dev;
	u_int i;
	int c, error;

	if (argc < 2)
		return (cmd_usage("devctl"));
	for (i = 0; i < nitems(devctl_commands); i++)
		if (strcmp(argv[1], devctl_commands[i].name) == 0)
			break;
	if (i == nitems(devctl_commands)) {
		cmd_err("devctl", 0, "unknown command %s", argv[1]);
		return (cmd_usage("devctl"));
	}
	argc--;
	argv++;
	while ((c = cmd_getopt(&g, argc, argv, devctl_commands[i].can_force ? "f" : "")) != -1) {
		if (c != 'f')
			return (cmd_usage("devctl"));
		force = true;
	}
	if (g.optind != argc - 1)
		return (cmd_usage("devctl"));
	bus_topo_lock();
	dev = devctl_find(argv[g.optind]);
	error = dev != NULL ? devctl_commands[i].func(dev, force) : ENOENT;
	bus_topo_unlock();
	if (error != 0)
		return (cmd_err("devctl", error, "Failed to %s %s", devctl_commands[i].name,
		    argv[g.optind]));
	return (0);
}
CONSOLE_CMD(devctl, cmd_devctl,
    "devctl attach|detach [-f]|disable [-f]|enable|suspend|resume|rescan|delete [-f] device");
