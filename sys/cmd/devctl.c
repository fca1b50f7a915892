/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * devctl(8): attach, detach, suspend and delete devices, and set their drivers.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/malloc.h>

#include <machine/bus.h>

#include <kern/bus_tree.h>
#include <kern/console_tree.h>

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

/* As in FreeBSD, a driver of the name is looked for first, and asked last. */
static int
devctl_set_driver(device_t dev, bool force, const char *name)
{
	devclass_t dc = device_get_devclass(dev), bus;
	driver_t **drivers;
	bool found = false;
	int error, n;

	if (dc != NULL && strcmp(devclass_get_name(dc), name) == 0)
		return (0);
	if (device_get_parent(dev) == NULL)
		return (EINVAL);
	for (bus = device_get_devclass(device_get_parent(dev)); bus != NULL && !found;
	    bus = devclass_get_parent(bus)) {
		if (devclass_get_drivers(bus, &drivers, &n) != 0)
			return (ENOMEM);
		for (int i = 0; i < n; i++)
			found |= strcmp(drivers[i]->name, name) == 0;
		free(drivers, M_TEMP);
	}
	if (!found)
		return (ENOENT);
	if (device_is_attached(dev)) {
		error = force ? device_detach(dev) : EBUSY;
		if (error != 0)
			return (error);
	}
	if (device_get_devclass(dev) != NULL)
		(void)device_set_devclass(dev, NULL);
	error = device_set_devclass_fixed(dev, name);
	return (error != 0 ? error : device_probe_and_attach(dev));
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

/* devctl set driver [-f] device driver; the arguments from "driver" on. */
static int
cmd_devctl_set(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	bool force = false;
	device_t dev;
	int c, error;

	if (argc < 1 || strcmp(argv[0], "driver") != 0)
		return (cmd_usage("devctl"));
	while ((c = cmd_getopt(&g, argc, argv, "f")) != -1) {
		if (c != 'f')
			return (cmd_usage("devctl"));
		force = true;
	}
	if (g.optind != argc - 2)
		return (cmd_usage("devctl"));
	bus_topo_lock();
	dev = devctl_find(argv[g.optind]);
	error = dev != NULL ? devctl_set_driver(dev, force, argv[g.optind + 1]) : ENOENT;
	bus_topo_unlock();
	if (error != 0)
		return (cmd_err("devctl", error, "Failed to set %s driver to %s", argv[g.optind],
		    argv[g.optind + 1]));
	return (0);
}

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
	if (strcmp(argv[1], "set") == 0)
		return (cmd_devctl_set(argc - 2, argv + 2));
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
CONSOLE_CMD(devctl, cmd_devctl, "attach, detach, suspend or delete a device",
    "devctl attach|detach [-f]|disable [-f]|enable|suspend|resume|rescan|delete [-f] device\n"
    "       devctl set driver [-f] device driver");
