/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Methods that most buses share: bus_generic_*(), for a driver's method table.
 *
 * A request about resources or interrupts that the bus does not handle is passed up to its parent,
 * on behalf of the same child.  A request that reaches the root unanswered is refused.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sbuf.h>
#include <sys/smp.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>

void
bus_attach_children(device_t dev)
{
	device_t child;

	TAILQ_FOREACH(child, &dev->children, link)
		(void)device_probe_and_attach(child);
}

void
bus_identify_children(device_t dev)
{
	struct driverlink *dl;

	TAILQ_FOREACH(dl, &dev->devclass->drivers, link)
		if (dl->pass <= bus_current_pass)
			DEVICE_IDENTIFY(dl->driver, dev);
}

int
bus_detach_children(device_t dev)
{
	device_t child;
	int error;

	/* From the last to the first, so that a child may rely on those before it to the end. */
	TAILQ_FOREACH_REVERSE(child, &dev->children, device_list, link) {
		error = device_detach(child);
		if (error != 0)
			return (error);
	}
	return (0);
}

int
bus_generic_probe(device_t dev)
{
	bus_identify_children(dev);
	return (0);
}

int
bus_generic_attach(device_t dev)
{
	bus_attach_children(dev);
	return (0);
}

int
bus_generic_detach(device_t dev)
{
	int error;

	error = bus_detach_children(dev);
	if (error != 0)
		return (error);
	return (device_delete_children(dev));
}

int
bus_generic_shutdown(device_t dev)
{
	device_t child;

	TAILQ_FOREACH_REVERSE(child, &dev->children, device_list, link)
		(void)device_shutdown(child);
	return (0);
}

int
bus_generic_suspend_child(device_t dev, device_t child)
{
	int error;

	error = DEVICE_SUSPEND(child);
	if (error == 0)
		child->flags |= DF_SUSPENDED;
	return (error);
}

int
bus_generic_resume_child(device_t dev, device_t child)
{
	int error;

	error = DEVICE_RESUME(child);
	/* This can't be undone: a device that failed to resume isn't suspended either. */
	child->flags &= ~DF_SUSPENDED;
	return (error);
}

int
bus_generic_suspend(device_t dev)
{
	device_t child;
	int error;

	TAILQ_FOREACH_REVERSE(child, &dev->children, device_list, link) {
		error = BUS_SUSPEND_CHILD(dev, child);
		if (error != 0) {
			/* Those after it in the list are already suspended. */
			for (child = TAILQ_NEXT(child, link); child != NULL;
			    child = TAILQ_NEXT(child, link))
				(void)BUS_RESUME_CHILD(dev, child);
			return (error);
		}
	}
	return (0);
}

int
bus_generic_resume(device_t dev)
{
	device_t child;

	TAILQ_FOREACH(child, &dev->children, link)
		(void)BUS_RESUME_CHILD(dev, child);
	return (0);
}

void
bus_generic_driver_added(device_t dev, driver_t *driver)
{
	device_t child;

	DEVICE_IDENTIFY(driver, dev);
	TAILQ_FOREACH(child, &dev->children, link)
		if (child->state == DS_NOTPRESENT)
			(void)device_probe_and_attach(child);
}

void
bus_generic_new_pass(device_t dev)
{
	struct driverlink *dl;
	device_t child;

	TAILQ_FOREACH(dl, &dev->devclass->drivers, link)
		if (dl->pass == bus_current_pass)
			DEVICE_IDENTIFY(dl->driver, dev);
	TAILQ_FOREACH(child, &dev->children, link) {
		if (child->state >= DS_ATTACHED)
			BUS_NEW_PASS(child);
		else if (child->state == DS_NOTPRESENT)
			(void)device_probe_and_attach(child);
	}
}

device_t
bus_generic_add_child(device_t dev, u_int order, const char *name, int unit)
{
	return (device_add_child_ordered(dev, order, name, unit));
}

int
bus_print_child_header(device_t dev, device_t child)
{
	if (device_get_desc(child) != NULL)
		return (device_printf(child, "<%s>", device_get_desc(child)));
	return (printf("%s", device_get_nameunit(child)));
}

int
bus_print_child_footer(device_t dev, device_t child)
{
	return (printf(" on %s\n", device_get_nameunit(dev)));
}

/* No NUMA: there is never a domain to print. */
int
bus_print_child_domain(device_t dev, device_t child)
{
	return (0);
}

int
bus_generic_print_child(device_t dev, device_t child)
{
	int n;

	n = bus_print_child_header(dev, child);
	n += bus_print_child_domain(dev, child);
	n += bus_print_child_footer(dev, child);
	return (n);
}

int
bus_generic_read_ivar(device_t dev, device_t child, int which, uintptr_t *result)
{
	return (ENOENT);
}

int
bus_generic_write_ivar(device_t dev, device_t child, int which, uintptr_t value)
{
	return (ENOENT);
}

int
bus_generic_child_location(device_t dev, device_t child, struct sbuf *sb)
{
	return (0);
}

int
bus_generic_child_pnpinfo(device_t dev, device_t child, struct sbuf *sb)
{
	return (0);
}

int
bus_generic_child_present(device_t dev, device_t child)
{
	return (dev->parent == NULL ? -1 : BUS_CHILD_PRESENT(dev->parent, dev));
}

int
bus_null_rescan(device_t dev)
{
	return (ENODEV);
}

/* Requests that are passed up the tree. */

struct resource *
bus_generic_alloc_resource(device_t dev, device_t child, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags)
{
	if (dev->parent == NULL)
		return (NULL);
	return (BUS_ALLOC_RESOURCE(dev->parent, child, type, rid, start, end, count, flags));
}

int
bus_generic_adjust_resource(device_t dev, device_t child, struct resource *r, rman_res_t start,
    rman_res_t end)
{
	return (dev->parent == NULL ? EINVAL :
	    BUS_ADJUST_RESOURCE(dev->parent, child, r, start, end));
}

int
bus_generic_translate_resource(device_t dev, int type, rman_res_t start, rman_res_t *newstart)
{
	if (dev->parent != NULL)
		return (BUS_TRANSLATE_RESOURCE(dev->parent, type, start, newstart));
	*newstart = start;
	return (0);
}

int
bus_generic_release_resource(device_t dev, device_t child, struct resource *r)
{
	return (dev->parent == NULL ? EINVAL : BUS_RELEASE_RESOURCE(dev->parent, child, r));
}

int
bus_generic_activate_resource(device_t dev, device_t child, struct resource *r)
{
	return (dev->parent == NULL ? EINVAL : BUS_ACTIVATE_RESOURCE(dev->parent, child, r));
}

int
bus_generic_deactivate_resource(device_t dev, device_t child, struct resource *r)
{
	return (dev->parent == NULL ? EINVAL : BUS_DEACTIVATE_RESOURCE(dev->parent, child, r));
}

int
bus_generic_map_resource(device_t dev, device_t child, struct resource *r,
    struct resource_map_request *args, struct resource_map *map)
{
	return (dev->parent == NULL ? EINVAL : BUS_MAP_RESOURCE(dev->parent, child, r, args, map));
}

int
bus_generic_unmap_resource(device_t dev, device_t child, struct resource *r,
    struct resource_map *map)
{
	return (dev->parent == NULL ? EINVAL : BUS_UNMAP_RESOURCE(dev->parent, child, r, map));
}

int
bus_generic_setup_intr(device_t dev, device_t child, struct resource *irq, int flags,
    driver_filter_t *filter, driver_intr_t *intr, void *arg, void **cookiep)
{
	return (dev->parent == NULL ? EINVAL :
	    BUS_SETUP_INTR(dev->parent, child, irq, flags, filter, intr, arg, cookiep));
}

int
bus_generic_teardown_intr(device_t dev, device_t child, struct resource *irq, void *cookie)
{
	return (dev->parent == NULL ? EINVAL :
	    BUS_TEARDOWN_INTR(dev->parent, child, irq, cookie));
}

int
bus_generic_suspend_intr(device_t dev, device_t child, struct resource *irq)
{
	return (dev->parent == NULL ? EINVAL : BUS_SUSPEND_INTR(dev->parent, child, irq));
}

int
bus_generic_resume_intr(device_t dev, device_t child, struct resource *irq)
{
	return (dev->parent == NULL ? EINVAL : BUS_RESUME_INTR(dev->parent, child, irq));
}

int
bus_generic_bind_intr(device_t dev, device_t child, struct resource *irq, int cpu)
{
	return (dev->parent == NULL ? EINVAL : BUS_BIND_INTR(dev->parent, child, irq, cpu));
}

int
bus_generic_config_intr(device_t dev, int irq, enum intr_trigger trig, enum intr_polarity pol)
{
	return (dev->parent == NULL ? EINVAL : BUS_CONFIG_INTR(dev->parent, irq, trig, pol));
}

int
bus_generic_describe_intr(device_t dev, device_t child, struct resource *irq, void *cookie,
    const char *descr)
{
	return (dev->parent == NULL ? EINVAL :
	    BUS_DESCRIBE_INTR(dev->parent, child, irq, cookie, descr));
}

int
bus_generic_get_cpus(device_t dev, device_t child, enum cpu_sets op, size_t setsize,
    struct _cpuset *cpuset)
{
	return (dev->parent == NULL ? EINVAL :
	    BUS_GET_CPUS(dev->parent, child, op, setsize, cpuset));
}

bus_dma_tag_t
bus_generic_get_dma_tag(device_t dev, device_t child)
{
	return (dev->parent == NULL ? NULL : BUS_GET_DMA_TAG(dev->parent, child));
}

bus_space_tag_t
bus_generic_get_bus_tag(device_t dev, device_t child)
{
	return (dev->parent == NULL ? (bus_space_tag_t)0 : BUS_GET_BUS_TAG(dev->parent, child));
}

int
bus_generic_get_domain(device_t dev, device_t child, int *domain)
{
	return (dev->parent == NULL ? ENOENT : BUS_GET_DOMAIN(dev->parent, dev, domain));
}

ssize_t
bus_generic_get_property(device_t dev, device_t child, const char *propname, void *propvalue,
    size_t size, device_property_type_t type)
{
	return (dev->parent == NULL ? -1 :
	    BUS_GET_PROPERTY(dev->parent, child, propname, propvalue, size, type));
}

/* Only FreeBSD's own locator: the names from the root down, with slashes. */
int
bus_generic_get_device_path(device_t bus, device_t child, const char *locator, struct sbuf *sb)
{
	int error = 0;

	if (strcmp(locator, BUS_LOCATOR_FREEBSD) != 0)
		return (EINVAL);
	if (device_get_parent(bus) != NULL)
		error = BUS_GET_DEVICE_PATH(device_get_parent(bus), bus, locator, sb);
	if (error == 0)
		sbuf_printf(sb, "/%s", device_get_nameunit(child) != NULL ?
		    device_get_nameunit(child) : "unknown");
	return (error);
}

int
bus_helper_reset_prepare(device_t dev, int flags)
{
	device_t child, done;
	int error;

	TAILQ_FOREACH_REVERSE(child, &dev->children, device_list, link) {
		if (child->state < DS_ATTACHED)
			continue;
		if ((flags & DEVF_RESET_DETACH) != 0)
			error = device_detach(child);
		else
			error = BUS_SUSPEND_CHILD(dev, child);
		if (error == 0)
			continue;
		for (done = TAILQ_NEXT(child, link); done != NULL; done = TAILQ_NEXT(done, link)) {
			if ((flags & DEVF_RESET_DETACH) != 0)
				(void)device_probe_and_attach(done);
			else if (done->state >= DS_ATTACHED)
				(void)BUS_RESUME_CHILD(dev, done);
		}
		return (error);
	}
	return (0);
}

int
bus_helper_reset_post(device_t dev, int flags)
{
	device_t child;
	int error, retval = 0;

	TAILQ_FOREACH(child, &dev->children, link) {
		error = BUS_RESET_POST(dev, child);
		if (error == 0 && (flags & DEVF_RESET_DETACH) != 0)
			error = device_probe_and_attach(child);
		else if (error == 0 && device_is_suspended(child))
			error = BUS_RESUME_CHILD(dev, child);
		if (error != 0 && retval == 0)
			retval = error;
	}
	return (retval);
}
