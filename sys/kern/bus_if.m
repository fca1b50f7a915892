/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The methods that a bus offers to its children.
 *
 * `dev` is the bus, `child` the device that the request is for: not always a child of this
 * bus, for a request that a bus can't satisfy is passed up the tree unchanged.
 */

#include <sys/types.h>
#include <sys/systm.h>
#include <sys/bus.h>

INTERFACE bus;

HEADER {
struct rman;
struct sbuf;
struct _cpuset;
};

CODE {
static struct resource *
bus_default_alloc_resource(device_t dev, device_t child, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags)
{
	return (NULL);
}

static device_t
bus_default_add_child(device_t dev, u_int order, const char *name, int unit)
{
	panic("%s: %s has no bus_add_child method", __func__, device_get_nameunit(dev));
}

static int
bus_default_remap_intr(device_t bus, device_t child, u_int irq)
{
	if (device_get_parent(bus) == NULL)
		return (ENXIO);
	return (BUS_REMAP_INTR(device_get_parent(bus), bus, irq));
}

static void
bus_default_nothing(device_t dev, device_t child)
{
}

static struct rman *
bus_default_get_rman(device_t dev, int type, u_int flags)
{
	return (NULL);
}

static struct resource_list *
bus_default_get_resource_list(device_t dev, device_t child)
{
	return (NULL);
}

static int
bus_default_reset(device_t dev, device_t child)
{
	return (0);
}
};

/* BUS_PRINT_CHILD(9): the line that announces an attached child; the characters written. */
METHOD int print_child {
	device_t dev;
	device_t child;
} DEFAULT bus_generic_print_child;

/* No driver attached to the child. */
METHOD void probe_nomatch {
	device_t dev;
	device_t child;
} DEFAULT bus_default_nothing;

/* BUS_READ_IVAR(9): an attribute of the child, as numbered by the bus. */
METHOD int read_ivar {
	device_t dev;
	device_t child;
	int which;
	uintptr_t *result;
};

METHOD int write_ivar {
	device_t dev;
	device_t child;
	int which;
	uintptr_t value;
};

/* BUS_CHILD_DELETED(9): the child is about to be deleted; free its instance variables. */
METHOD void child_deleted {
	device_t dev;
	device_t child;
} DEFAULT bus_default_nothing;

/* BUS_CHILD_DETACHED(9): the child's driver was detached. */
METHOD void child_detached {
	device_t dev;
	device_t child;
} DEFAULT bus_default_nothing;

/* A driver for children of this bus was loaded. */
METHOD void driver_added {
	device_t dev;
	driver_t *driver;
};

/* BUS_ADD_CHILD(9). */
METHOD device_t add_child {
	device_t dev;
	u_int order;
	const char *name;
	int unit;
} DEFAULT bus_default_add_child;

/* BUS_RESCAN(9): find devices that were plugged in or out. */
METHOD int rescan {
	device_t dev;
} DEFAULT bus_null_rescan;

METHOD struct resource * alloc_resource {
	device_t dev;
	device_t child;
	int type;
	int *rid;
	rman_res_t start;
	rman_res_t end;
	rman_res_t count;
	u_int flags;
} DEFAULT bus_default_alloc_resource;

METHOD int activate_resource {
	device_t dev;
	device_t child;
	struct resource *r;
};

METHOD int map_resource {
	device_t dev;
	device_t child;
	struct resource *r;
	struct resource_map_request *args;
	struct resource_map *map;
} DEFAULT bus_generic_map_resource;

METHOD int unmap_resource {
	device_t dev;
	device_t child;
	struct resource *r;
	struct resource_map *map;
} DEFAULT bus_generic_unmap_resource;

METHOD int deactivate_resource {
	device_t dev;
	device_t child;
	struct resource *r;
};

METHOD int adjust_resource {
	device_t dev;
	device_t child;
	struct resource *r;
	rman_res_t start;
	rman_res_t end;
};

/* Translate an address of the child's space to the CPU's. */
METHOD int translate_resource {
	device_t dev;
	int type;
	rman_res_t start;
	rman_res_t *newstart;
} DEFAULT bus_generic_translate_resource;

METHOD int release_resource {
	device_t dev;
	device_t child;
	struct resource *r;
};

METHOD int setup_intr {
	device_t dev;
	device_t child;
	struct resource *irq;
	int flags;
	driver_filter_t *filter;
	driver_intr_t *intr;
	void *arg;
	void **cookiep;
};

METHOD int teardown_intr {
	device_t dev;
	device_t child;
	struct resource *irq;
	void *cookie;
};

METHOD int suspend_intr {
	device_t dev;
	device_t child;
	struct resource *irq;
} DEFAULT bus_generic_suspend_intr;

METHOD int resume_intr {
	device_t dev;
	device_t child;
	struct resource *irq;
} DEFAULT bus_generic_resume_intr;

/* The child's list of resources: what bus_set_resource(9) and its kin work on. */
METHOD int set_resource {
	device_t dev;
	device_t child;
	int type;
	int rid;
	rman_res_t start;
	rman_res_t count;
};

METHOD int get_resource {
	device_t dev;
	device_t child;
	int type;
	int rid;
	rman_res_t *startp;
	rman_res_t *countp;
};

METHOD void delete_resource {
	device_t dev;
	device_t child;
	int type;
	int rid;
};

METHOD struct resource_list * get_resource_list {
	device_t dev;
	device_t child;
} DEFAULT bus_default_get_resource_list;

METHOD struct rman * get_rman {
	device_t bus;
	int type;
	u_int flags;
} DEFAULT bus_default_get_rman;

/* Is the hardware of the child still there? -1 for yes, 0 for no. */
METHOD int child_present {
	device_t dev;
	device_t child;
} DEFAULT bus_generic_child_present;

METHOD int child_pnpinfo {
	device_t dev;
	device_t child;
	struct sbuf *sb;
} DEFAULT bus_generic_child_pnpinfo;

METHOD int child_location {
	device_t dev;
	device_t child;
	struct sbuf *sb;
} DEFAULT bus_generic_child_location;

METHOD int bind_intr {
	device_t dev;
	device_t child;
	struct resource *irq;
	int cpu;
} DEFAULT bus_generic_bind_intr;

METHOD int config_intr {
	device_t dev;
	int irq;
	enum intr_trigger trig;
	enum intr_polarity pol;
} DEFAULT bus_generic_config_intr;

METHOD int describe_intr {
	device_t dev;
	device_t child;
	struct resource *irq;
	void *cookie;
	const char *descr;
} DEFAULT bus_generic_describe_intr;

/* A child that is described only by hints of the kernel environment. */
METHOD void hinted_child {
	device_t dev;
	const char *dname;
	int dunit;
};

METHOD bus_dma_tag_t get_dma_tag {
	device_t dev;
	device_t child;
} DEFAULT bus_generic_get_dma_tag;

METHOD bus_space_tag_t get_bus_tag {
	device_t dev;
	device_t child;
} DEFAULT bus_generic_get_bus_tag;

/* Let the bus choose the unit number of a child. */
METHOD void hint_device_unit {
	device_t dev;
	device_t child;
	const char *name;
	int *unitp;
};

/* BUS_NEW_PASS(9). */
METHOD void new_pass {
	device_t dev;
} DEFAULT bus_generic_new_pass;

/* An interrupt of the child moved to another CPU: set its new address in the device. */
METHOD int remap_intr {
	device_t dev;
	device_t child;
	u_int irq;
} DEFAULT bus_default_remap_intr;

METHOD int suspend_child {
	device_t dev;
	device_t child;
} DEFAULT bus_generic_suspend_child;

METHOD int resume_child {
	device_t dev;
	device_t child;
} DEFAULT bus_generic_resume_child;

METHOD int get_domain {
	device_t dev;
	device_t child;
	int *domain;
} DEFAULT bus_generic_get_domain;

/* BUS_GET_CPUS(9). */
METHOD int get_cpus {
	device_t dev;
	device_t child;
	enum cpu_sets op;
	size_t setsize;
	struct _cpuset *cpuset;
} DEFAULT bus_generic_get_cpus;

METHOD int reset_prepare {
	device_t dev;
	device_t child;
} DEFAULT bus_default_reset;

METHOD int reset_post {
	device_t dev;
	device_t child;
} DEFAULT bus_default_reset;

METHOD int reset_child {
	device_t dev;
	device_t child;
	int flags;
};

METHOD ssize_t get_property {
	device_t dev;
	device_t child;
	const char *propname;
	void *propvalue;
	size_t size;
	device_property_type_t type;
} DEFAULT bus_generic_get_property;

METHOD int get_device_path {
	device_t bus;
	device_t child;
	const char *locator;
	struct sbuf *sb;
} DEFAULT bus_generic_get_device_path;
