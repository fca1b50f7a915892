/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * nexus: the machine as a bus.
 *
 * It owns what all devices share: I/O ports, physical addresses, interrupts.  Any request for
 * those ends here, from however deep in the tree it came; so does setting up an interrupt, and
 * finding the page tables' place for a device's registers.
 *
 * Interrupts become known one by one: those of the I/O APICs at boot, message signalled ones when
 * they are first allocated.  The region grows with them.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/cpuset.h>
#include <sys/errno.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/proc.h>
#include <sys/rman.h>
#include <sys/smp.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_page.h>
#include <vm/vm_phys.h>
#include <vm/vm_dumpset.h>
#include <vm/pmap.h>

#include <machine/bus.h>
#include <machine/intr_machdep.h>
#include <machine/md_var.h>
#include <machine/nexusvar.h>
#include <machine/resource.h>

#include <x86/legacyvar.h>

static MALLOC_DEFINE(M_NEXUSDEV, "nexusdev", "Nexus device");

struct rman irq_rman, drq_rman, port_rman, mem_rman;

static void
nexus_init_region(struct rman *rm, const char *descr, rman_res_t start, rman_res_t end)
{
	rm->rm_type = RMAN_ARRAY;
	rm->rm_descr = descr;
	rm->rm_start = start;
	rm->rm_end = end;
	if (rman_init(rm) != 0)
		panic("%s: %s", __func__, descr);
}

static void
nexus_manage(struct rman *rm, rman_res_t start, rman_res_t end)
{
	if (rman_manage_region(rm, start, end) != 0)
		panic("%s: %s %#jx-%#jx", __func__, rm->rm_descr, (uintmax_t)start,
		    (uintmax_t)end);
}

/*
 * Devices may have any physical address but that of memory.
 */
static void
nexus_init_memory(void)
{
	rman_res_t next = 0, top = ((rman_res_t)1 << cpu_maxphyaddr) - 1;

	for (u_int i = 0; dump_avail[i + 1] != 0; i += 2) {
		if (dump_avail[i] > next)
			nexus_manage(&mem_rman, next, dump_avail[i] - 1);
		next = dump_avail[i + 1];
	}
	if (next < top)
		nexus_manage(&mem_rman, next, top);
}

void
nexus_init_resources(void)
{
	nexus_init_region(&irq_rman, "Interrupt request lines", 0, UINT_MAX);
	for (u_int irq = 0; irq < num_io_irqs; irq++)
		if (intr_lookup_source(irq) != NULL)
			nexus_manage(&irq_rman, irq, irq);
	nexus_init_region(&drq_rman, "DMA request lines", 0, 7);
	nexus_manage(&drq_rman, 0, 7);
	nexus_init_region(&port_rman, "I/O ports", 0, 0xffff);
	nexus_manage(&port_rman, 0, 0xffff);
	nexus_init_region(&mem_rman, "I/O memory addresses", 0, RM_MAX_END);
	nexus_init_memory();
}

/*
 * Message signalled interrupts are added when first allocated; that they are known already is no
 * fault.
 */
void
nexus_add_irq(u_long irq)
{
	int error;

	error = rman_manage_region(&irq_rman, irq, irq);
	if (error != 0 && error != EBUSY)
		panic("%s: interrupt %lu: error %d", __func__, irq, error);
}

static int
nexus_probe(device_t dev)
{
	device_quiet(dev);
	return (BUS_PROBE_GENERIC);
}

static int
nexus_attach(device_t dev)
{
	bus_identify_children(dev);
	bus_attach_children(dev);
	return (0);
}

static device_t
nexus_add_child(device_t bus, u_int order, const char *name, int unit)
{
	struct nexus_device *ndev;
	device_t child;

	child = device_add_child_ordered(bus, order, name, unit);
	if (child == NULL)
		return (NULL);
	ndev = malloc(sizeof(*ndev), M_NEXUSDEV, M_WAITOK | M_ZERO);
	resource_list_init(&ndev->nx_resources);
	device_set_ivars(child, ndev);
	return (child);
}

static void
nexus_child_deleted(device_t bus, device_t child)
{
	struct nexus_device *ndev = device_get_ivars(child);

	resource_list_free(&ndev->nx_resources);
	free(ndev, M_NEXUSDEV);
}

static struct resource_list *
nexus_get_resource_list(device_t dev, device_t child)
{
	struct nexus_device *ndev = device_get_ivars(child);

	return (ndev == NULL ? NULL : &ndev->nx_resources);
}

static int
nexus_print_child(device_t bus, device_t child)
{
	struct resource_list *rl = nexus_get_resource_list(bus, child);
	int n;

	n = bus_print_child_header(bus, child);
	if (rl != NULL) {
		n += resource_list_print_type(rl, "port", SYS_RES_IOPORT, "%#jx");
		n += resource_list_print_type(rl, "iomem", SYS_RES_MEMORY, "%#jx");
		n += resource_list_print_type(rl, "irq", SYS_RES_IRQ, "%jd");
	}
	n += printf("\n");
	return (n);
}

static struct rman *
nexus_get_rman(device_t bus, int type, u_int flags)
{
	switch (type) {
	case SYS_RES_IRQ:
		return (&irq_rman);
	case SYS_RES_DRQ:
		return (&drq_rman);
	case SYS_RES_IOPORT:
		return (&port_rman);
	case SYS_RES_MEMORY:
		return (&mem_rman);
	default:
		return (NULL);
	}
}

static struct resource *
nexus_alloc_resource(device_t bus, device_t child, int type, int *rid, rman_res_t start,
    rman_res_t end, rman_res_t count, u_int flags)
{
	struct resource_list_entry *rle;

	/* "Whatever I was given": only a child of ours can have been given something here. */
	if (RMAN_IS_DEFAULT_RANGE(start, end) && count == 1 && device_get_parent(child) == bus) {
		rle = resource_list_find(nexus_get_resource_list(bus, child), type, *rid);
		if (rle == NULL)
			return (NULL);
		start = rle->start;
		end = rle->end;
		count = rle->count;
	}
	if (type == SYS_RES_IRQ && start == end && intr_lookup_source(start) != NULL)
		nexus_add_irq(start);
	return (bus_generic_rman_alloc_resource(bus, child, type, rid, start, end, count, flags));
}

static int
nexus_map_resource(device_t bus, device_t child, struct resource *r,
    struct resource_map_request *argsp, struct resource_map *map)
{
	struct resource_map_request args;
	rman_res_t length, start;
	int error;

	if ((rman_get_flags(r) & RF_ACTIVE) == 0)
		return (ENXIO);
	resource_init_map_request(&args);
	error = resource_validate_map_request(r, argsp, &args, &start, &length);
	if (error != 0)
		return (error);
	map->r_size = length;
	switch (rman_get_type(r)) {
	case SYS_RES_IOPORT:
		map->r_bustag = X86_BUS_SPACE_IO;
		map->r_bushandle = start;
		map->r_vaddr = NULL;
		return (0);
	case SYS_RES_MEMORY:
		map->r_vaddr = pmap_mapdev_attr(start, length, args.memattr);
		if (map->r_vaddr == NULL)
			return (ENOMEM);
		map->r_bustag = X86_BUS_SPACE_MEM;
		map->r_bushandle = (bus_space_handle_t)map->r_vaddr;
		return (0);
	default:
		return (EINVAL);
	}
}

static int
nexus_unmap_resource(device_t bus, device_t child, struct resource *r, struct resource_map *map)
{
	if (rman_get_type(r) == SYS_RES_MEMORY)
		pmap_unmapdev(map->r_vaddr, map->r_size);
	return (0);
}

static int
nexus_setup_intr(device_t bus, device_t child, struct resource *irq, int flags,
    driver_filter_t filter, driver_intr_t handler, void *arg, void **cookiep)
{
	struct intsrc *isrc;
	int error;

	isrc = intr_lookup_source(rman_get_start(irq));
	if (isrc == NULL)
		return (EINVAL);
	if ((rman_get_flags(irq) & RF_SHAREABLE) == 0)
		flags |= INTR_EXCL;
	error = rman_activate_resource(irq);
	if (error == 0)
		error = intr_add_handler(isrc, device_get_nameunit(child), filter, handler, arg,
		    flags, cookiep, 0);
	if (error == 0)
		rman_set_irq_cookie(irq, *cookiep);
	return (error);
}

static int
nexus_teardown_intr(device_t bus, device_t child, struct resource *irq, void *cookie)
{
	int error;

	error = intr_remove_handler(cookie);
	if (error == 0)
		rman_set_irq_cookie(irq, NULL);
	return (error);
}

static int
nexus_bind_intr(device_t bus, device_t child, struct resource *irq, int cpu)
{
	struct intsrc *isrc = intr_lookup_source(rman_get_start(irq));

	return (isrc == NULL ? EINVAL : intr_event_bind(isrc->is_event, cpu));
}

static int
nexus_config_intr(device_t bus, int irq, enum intr_trigger trig, enum intr_polarity pol)
{
	struct intsrc *isrc = intr_lookup_source(irq);

	return (isrc == NULL ? EINVAL : intr_config_intr(isrc, trig, pol));
}

static int
nexus_describe_intr(device_t bus, device_t child, struct resource *irq, void *cookie,
    const char *descr)
{
	struct intsrc *isrc = intr_lookup_source(rman_get_start(irq));

	return (isrc == NULL ? EINVAL : intr_describe(isrc, cookie, descr));
}

static int
nexus_get_cpus(device_t bus, device_t child, enum cpu_sets op, size_t setsize,
    struct _cpuset *cpuset)
{
	if (setsize != sizeof(cpuset_t))
		return (EINVAL);
	switch (op) {
#ifdef SMP
	case INTR_CPUS:
		*cpuset = intr_cpus;
		return (0);
#endif
	case LOCAL_CPUS:
		*cpuset = all_cpus;
		return (0);
	default:
		return (EINVAL);
	}
}

static device_method_t nexus_methods[] = {
	DEVMETHOD(device_probe,		nexus_probe),
	DEVMETHOD(device_attach,	nexus_attach),
	DEVMETHOD(device_detach,	bus_generic_detach),
	DEVMETHOD(device_shutdown,	bus_generic_shutdown),
	DEVMETHOD(device_suspend,	bus_generic_suspend),
	DEVMETHOD(device_resume,	bus_generic_resume),

	DEVMETHOD(bus_print_child,	nexus_print_child),
	DEVMETHOD(bus_add_child,	nexus_add_child),
	DEVMETHOD(bus_child_deleted,	nexus_child_deleted),
	DEVMETHOD(bus_driver_added,	bus_generic_driver_added),
	DEVMETHOD(bus_new_pass,		bus_generic_new_pass),
	DEVMETHOD(bus_get_resource_list, nexus_get_resource_list),
	DEVMETHOD(bus_get_rman,		nexus_get_rman),
	DEVMETHOD(bus_set_resource,	bus_generic_rl_set_resource),
	DEVMETHOD(bus_get_resource,	bus_generic_rl_get_resource),
	DEVMETHOD(bus_delete_resource,	bus_generic_rl_delete_resource),
	DEVMETHOD(bus_alloc_resource,	nexus_alloc_resource),
	DEVMETHOD(bus_adjust_resource,	bus_generic_rman_adjust_resource),
	DEVMETHOD(bus_release_resource,	bus_generic_rman_release_resource),
	DEVMETHOD(bus_activate_resource, bus_generic_rman_activate_resource),
	DEVMETHOD(bus_deactivate_resource, bus_generic_rman_deactivate_resource),
	DEVMETHOD(bus_map_resource,	nexus_map_resource),
	DEVMETHOD(bus_unmap_resource,	nexus_unmap_resource),
	DEVMETHOD(bus_setup_intr,	nexus_setup_intr),
	DEVMETHOD(bus_teardown_intr,	nexus_teardown_intr),
	DEVMETHOD(bus_bind_intr,	nexus_bind_intr),
	DEVMETHOD(bus_config_intr,	nexus_config_intr),
	DEVMETHOD(bus_describe_intr,	nexus_describe_intr),
	DEVMETHOD(bus_get_cpus,		nexus_get_cpus),

	DEVMETHOD_END
};

DEFINE_CLASS_0(nexus, nexus_driver, nexus_methods, 1);
EARLY_DRIVER_MODULE(nexus, root, nexus_driver, NULL, NULL, BUS_PASS_BUS);

/* Build the tree of devices, now that interrupts are set up. */
static void
nexus_configure(void *arg __unused)
{
	nexus_init_resources();
	bus_topo_lock();
	if (device_add_child(root_bus, "nexus", 0) == NULL)
		panic("%s: no nexus", __func__);
	bus_topo_unlock();
	root_bus_configure();
}
SYSINIT(nexus_configure, SI_SUB_CONFIGURE, SI_ORDER_THIRD, nexus_configure, NULL);
