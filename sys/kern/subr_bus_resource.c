/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Resources of devices: the functions for drivers, and the lists that a bus keeps for its children.
 *
 * A driver's call (bus_alloc_resource() and the like) goes to the device's parent.  A bus that
 * keeps a struct resource_list for each child answers from it, and gets the real resource from its
 * own parent on behalf of the child; so a request is passed up to the owner of the address space
 * (nexus).
 *
 * A list entry is reserved when the bus allocated the resource before any driver did: a PCI BAR
 * decodes addresses whether or not there is a driver.
 *
 * Locking.  A device's list is accessed by its bus, with the topology lock, and by its driver,
 * from attach and detach, which hold that lock too.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/errno.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sbuf.h>
#include <sys/stdarg.h>
#include <vm/vm.h>
#include <machine/bus.h>

#include <kern/bus_tree.h>

void
resource_init_map_request_impl(struct resource_map_request *args, size_t sz)
{
	bzero(args, sz);
	args->size = sz;
	args->memattr = VM_MEMATTR_DEVICE;
}

int
resource_validate_map_request(struct resource *r, struct resource_map_request *in,
    struct resource_map_request *out, rman_res_t *startp, rman_res_t *lengthp)
{
	rman_res_t length, start;

	/* A caller built with another version of the structure has only the members of that. */
	if (in != NULL)
		bcopy(in, out, imin(in->size, out->size));
	start = rman_get_start(r) + out->offset;
	length = out->length != 0 ? out->length : rman_get_size(r) - out->offset;
	if (out->offset > rman_get_size(r) || length > rman_get_size(r) - out->offset)
		return (EINVAL);
	*startp = start;
	*lengthp = length;
	return (0);
}

void
resource_list_init(struct resource_list *rl)
{
	STAILQ_INIT(rl);
}

void
resource_list_free(struct resource_list *rl)
{
	struct resource_list_entry *rle;

	while ((rle = STAILQ_FIRST(rl)) != NULL) {
		KASSERT(rle->res == NULL, ("%s: an allocated resource", __func__));
		STAILQ_REMOVE_HEAD(rl, link);
		free(rle, M_BUS);
	}
}

struct resource_list_entry *
resource_list_find(struct resource_list *rl, int type, int rid)
{
	struct resource_list_entry *rle;

	STAILQ_FOREACH(rle, rl, link)
		if (rle->type == type && rle->rid == rid)
			return (rle);
	return (NULL);
}

struct resource_list_entry *
resource_list_add(struct resource_list *rl, int type, int rid, rman_res_t start, rman_res_t end,
    rman_res_t count)
{
	struct resource_list_entry *rle = resource_list_find(rl, type, rid);

	if (rle == NULL) {
		rle = malloc(sizeof(*rle), M_BUS, M_WAITOK | M_ZERO);
		rle->type = type;
		rle->rid = rid;
		STAILQ_INSERT_TAIL(rl, rle, link);
	}
	KASSERT(rle->res == NULL, ("%s: the resource is in use", __func__));
	rle->start = start;
	rle->end = end;
	rle->count = count;
	return (rle);
}

int
resource_list_add_next(struct resource_list *rl, int type, rman_res_t start, rman_res_t end,
    rman_res_t count)
{
	int rid = 0;

	while (resource_list_find(rl, type, rid) != NULL)
		rid++;
	resource_list_add(rl, type, rid, start, end, count);
	return (rid);
}

int
resource_list_busy(struct resource_list *rl, int type, int rid)
{
	struct resource_list_entry *rle = resource_list_find(rl, type, rid);

	if (rle == NULL || rle->res == NULL)
		return (0);
	return ((rle->flags & (RLE_RESERVED | RLE_ALLOCATED)) != RLE_RESERVED);
}

int
resource_list_reserved(struct resource_list *rl, int type, int rid)
{
	struct resource_list_entry *rle = resource_list_find(rl, type, rid);

	return (rle != NULL && (rle->flags & RLE_RESERVED) != 0);
}

void
resource_list_delete(struct resource_list *rl, int type, int rid)
{
	struct resource_list_entry *rle = resource_list_find(rl, type, rid);

	if (rle == NULL)
		return;
	KASSERT(rle->res == NULL, ("%s: the resource is in use", __func__));
	STAILQ_REMOVE(rl, rle, resource_list_entry, link);
	free(rle, M_BUS);
}

/* Get the real resource of an entry from the bus's parent. */
static struct resource *
resource_list_fetch(struct resource_list_entry *rle, device_t bus, device_t child, int *rid,
    rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	if (RMAN_IS_DEFAULT_RANGE(start, end)) {
		start = rle->start;
		count = ulmax(count, rle->count);
		end = ulmax(rle->end, start + count - 1);
	}
	rle->res = BUS_ALLOC_RESOURCE(device_get_parent(bus), child, rle->type, rid, start, end,
	    count, flags);
	if (rle->res != NULL) {
		rle->start = rman_get_start(rle->res);
		rle->end = rman_get_end(rle->res);
		rle->count = rman_get_size(rle->res);
	}
	return (rle->res);
}

struct resource *
resource_list_alloc(struct resource_list *rl, device_t bus, device_t child, int type, int *rid,
    rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct resource_list_entry *rle;

	if (device_get_parent(child) != bus)
		return (BUS_ALLOC_RESOURCE(device_get_parent(bus), child, type, rid, start, end,
		    count, flags));
	rle = resource_list_find(rl, type, *rid);
	if (rle == NULL)
		return (NULL);
	if (rle->res == NULL)
		return (resource_list_fetch(rle, bus, child, rid, start, end, count, flags));
	if ((rle->flags & (RLE_RESERVED | RLE_ALLOCATED)) != RLE_RESERVED) {
		device_printf(bus, "resource %#x of type %d of %s is busy\n", *rid, type,
		    device_get_nameunit(child));
		return (NULL);
	}
	if ((flags & RF_ACTIVE) != 0 && bus_activate_resource(child, rle->res) != 0)
		return (NULL);
	rle->flags |= RLE_ALLOCATED;
	return (rle->res);
}

struct resource *
resource_list_reserve(struct resource_list *rl, device_t bus, device_t child, int type, int *rid,
    rman_res_t start, rman_res_t end, rman_res_t count, u_int flags)
{
	struct resource_list_entry *rle;
	struct resource *r;

	KASSERT(device_get_parent(child) == bus, ("%s: not a child of the bus", __func__));
	KASSERT((flags & RF_ACTIVE) == 0, ("%s: a reserved resource can't be active", __func__));
	r = resource_list_alloc(rl, bus, child, type, rid, start, end, count, flags);
	if (r != NULL) {
		rle = resource_list_find(rl, type, *rid);
		rle->flags |= RLE_RESERVED;
	}
	return (r);
}

int
resource_list_release(struct resource_list *rl, device_t bus, device_t child,
    struct resource *res)
{
	struct resource_list_entry *rle;
	int error;

	if (device_get_parent(child) != bus)
		return (BUS_RELEASE_RESOURCE(device_get_parent(bus), child, res));
	rle = resource_list_find(rl, rman_get_type(res), rman_get_rid(res));
	if (rle == NULL || rle->res == NULL)
		panic("%s: resource %#x of type %d is not allocated", __func__, rman_get_rid(res),
		    rman_get_type(res));
	if ((rle->flags & RLE_RESERVED) != 0) {
		if ((rle->flags & RLE_ALLOCATED) == 0)
			return (EINVAL);
		if ((rman_get_flags(res) & RF_ACTIVE) != 0) {
			error = bus_deactivate_resource(child, res);
			if (error != 0)
				return (error);
		}
		rle->flags &= ~RLE_ALLOCATED;
		return (0);
	}
	error = BUS_RELEASE_RESOURCE(device_get_parent(bus), child, res);
	if (error == 0)
		rle->res = NULL;
	return (error);
}

/* After a detach: release the resources that the child's driver did not. */
int
resource_list_release_active(struct resource_list *rl, device_t bus, device_t child, int type)
{
	struct resource_list_entry *rle;
	int error, retval = 0;

	STAILQ_FOREACH(rle, rl, link) {
		if (rle->type != type || rle->res == NULL ||
		    (rle->flags & (RLE_RESERVED | RLE_ALLOCATED)) == RLE_RESERVED)
			continue;
		error = resource_list_release(rl, bus, child, rle->res);
		if (error != 0)
			device_printf(bus, "can't release resource %#x of %s: error %d\n", rle->rid,
			    device_get_nameunit(child), error);
		retval = EBUSY;
	}
	return (retval);
}

int
resource_list_unreserve(struct resource_list *rl, device_t bus, device_t child, int type, int rid)
{
	struct resource_list_entry *rle = resource_list_find(rl, type, rid);

	if (device_get_parent(child) != bus || rle == NULL || (rle->flags & RLE_RESERVED) == 0)
		return (EINVAL);
	if ((rle->flags & RLE_ALLOCATED) != 0)
		return (EBUSY);
	rle->flags &= ~RLE_RESERVED;
	return (resource_list_release(rl, bus, child, rle->res));
}

void
resource_list_purge(struct resource_list *rl)
{
	struct resource_list_entry *rle;

	STAILQ_FOREACH(rle, rl, link) {
		if (rle->res != NULL) {
			bus_release_resource(rman_get_device(rle->res), rle->res);
			rle->res = NULL;
		}
	}
	resource_list_free(rl);
}

/* Print ` NAME START[-END][,...]` for the list's entries of a type; the characters written. */
int
resource_list_print_type(struct resource_list *rl, const char *name, int type, const char *format)
{
	struct resource_list_entry *rle;
	struct sbuf *sb;
	char buf[128];
	int n = 0, retval;

	sb = sbuf_new(NULL, buf, sizeof(buf), SBUF_FIXEDLEN);
	STAILQ_FOREACH(rle, rl, link) {
		if (rle->type != type)
			continue;
		if (n++ == 0)
			sbuf_printf(sb, " %s ", name);
		else
			sbuf_putc(sb, ',');
		/* The format is the caller's: "%#jx" or "%jd". */
		sbuf_printf(sb, strcmp(format, "%jd") == 0 ? "%jd" : "%#jx", (intmax_t)rle->start);
		if (rle->count > 1) {
			sbuf_putc(sb, '-');
			sbuf_printf(sb, strcmp(format, "%jd") == 0 ? "%jd" : "%#jx",
			    (intmax_t)(rle->start + rle->count - 1));
		}
	}
	(void)sbuf_finish(sb);
	retval = printf("%s", buf);
	sbuf_delete(sb);
	return (retval);
}

struct resource *
bus_alloc_resource(device_t dev, int type, int *rid, rman_res_t start, rman_res_t end,
    rman_res_t count, u_int flags)
{
	if (dev->parent == NULL)
		return (NULL);
	return (BUS_ALLOC_RESOURCE(dev->parent, dev, type, rid, start, end, count, flags));
}

int
bus_alloc_resources(device_t dev, struct resource_spec *rs, struct resource **res)
{
	int i;

	for (i = 0; rs[i].type != -1; i++)
		res[i] = NULL;
	for (i = 0; rs[i].type != -1; i++) {
		res[i] = bus_alloc_resource_any(dev, rs[i].type, &rs[i].rid, rs[i].flags);
		if (res[i] == NULL && (rs[i].flags & RF_OPTIONAL) == 0) {
			bus_release_resources(dev, rs, res);
			return (ENXIO);
		}
	}
	return (0);
}

void
bus_release_resources(device_t dev, const struct resource_spec *rs, struct resource **res)
{
	for (int i = 0; rs[i].type != -1; i++) {
		if (res[i] != NULL) {
			(bus_release_resource)(dev, res[i]);
			res[i] = NULL;
		}
	}
}

/*
 * The names below are also macros that choose between the present interface and the older one by
 * the number of arguments; the parentheses keep the macro out.
 */
int
(bus_release_resource)(device_t dev, struct resource *r)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_RELEASE_RESOURCE(dev->parent, dev, r));
}

int
(bus_adjust_resource)(device_t dev, struct resource *r, rman_res_t start, rman_res_t end)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_ADJUST_RESOURCE(dev->parent, dev, r, start, end));
}

int
(bus_activate_resource)(device_t dev, struct resource *r)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_ACTIVATE_RESOURCE(dev->parent, dev, r));
}

int
(bus_deactivate_resource)(device_t dev, struct resource *r)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_DEACTIVATE_RESOURCE(dev->parent, dev, r));
}

int
(bus_map_resource)(device_t dev, struct resource *r, struct resource_map_request *args,
    struct resource_map *map)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_MAP_RESOURCE(dev->parent, dev, r, args, map));
}

int
(bus_unmap_resource)(device_t dev, struct resource *r, struct resource_map *map)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_UNMAP_RESOURCE(dev->parent, dev, r, map));
}

int
bus_release_resource_old(device_t dev, int type, int rid, struct resource *r)
{
	KASSERT(rman_get_type(r) == type && rman_get_rid(r) == rid,
	    ("%s: %s gave type %d, id %#x for a resource of type %d, id %#x", __func__,
	    device_get_nameunit(dev), type, rid, rman_get_type(r), rman_get_rid(r)));
	return (bus_release_resource(dev, r));
}

int
bus_adjust_resource_old(device_t dev, int type, struct resource *r, rman_res_t start,
    rman_res_t end)
{
	return (bus_adjust_resource(dev, r, start, end));
}

int
bus_activate_resource_old(device_t dev, int type, int rid, struct resource *r)
{
	return (bus_activate_resource(dev, r));
}

int
bus_deactivate_resource_old(device_t dev, int type, int rid, struct resource *r)
{
	return (bus_deactivate_resource(dev, r));
}

int
bus_map_resource_old(device_t dev, int type, struct resource *r,
    struct resource_map_request *args, struct resource_map *map)
{
	return (bus_map_resource(dev, r, args, map));
}

int
bus_unmap_resource_old(device_t dev, int type, struct resource *r, struct resource_map *map)
{
	return (bus_unmap_resource(dev, r, map));
}

int
bus_free_resource(device_t dev, int type, struct resource *r)
{
	if (r == NULL)
		return (0);
	return (bus_release_resource(dev, r));
}

int
bus_translate_resource(device_t dev, int type, rman_res_t start, rman_res_t *newstart)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_TRANSLATE_RESOURCE(dev->parent, type, start, newstart));
}

int
bus_set_resource(device_t dev, int type, int rid, rman_res_t start, rman_res_t count)
{
	return (BUS_SET_RESOURCE(device_get_parent(dev), dev, type, rid, start, count));
}

int
bus_get_resource(device_t dev, int type, int rid, rman_res_t *startp, rman_res_t *countp)
{
	return (BUS_GET_RESOURCE(device_get_parent(dev), dev, type, rid, startp, countp));
}

rman_res_t
bus_get_resource_start(device_t dev, int type, int rid)
{
	rman_res_t start;

	return (bus_get_resource(dev, type, rid, &start, NULL) == 0 ? start : 0);
}

rman_res_t
bus_get_resource_count(device_t dev, int type, int rid)
{
	rman_res_t count;

	return (bus_get_resource(dev, type, rid, NULL, &count) == 0 ? count : 0);
}

void
bus_delete_resource(device_t dev, int type, int rid)
{
	BUS_DELETE_RESOURCE(device_get_parent(dev), dev, type, rid);
}

int
bus_setup_intr(device_t dev, struct resource *r, int flags, driver_filter_t filter,
    driver_intr_t handler, void *arg, void **cookiep)
{
	int error;

	if (dev->parent == NULL)
		return (EINVAL);
	*cookiep = NULL;
	error = BUS_SETUP_INTR(dev->parent, dev, r, flags, filter, handler, arg, cookiep);
	if (error == 0 && handler != NULL && (flags & INTR_MPSAFE) == 0)
		device_printf(dev, "[GIANT-LOCKED]\n");
	return (error);
}

int
bus_teardown_intr(device_t dev, struct resource *r, void *cookie)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_TEARDOWN_INTR(dev->parent, dev, r, cookie));
}

int
bus_suspend_intr(device_t dev, struct resource *r)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_SUSPEND_INTR(dev->parent, dev, r));
}

int
bus_resume_intr(device_t dev, struct resource *r)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_RESUME_INTR(dev->parent, dev, r));
}

int
bus_bind_intr(device_t dev, struct resource *r, int cpu)
{
	if (dev->parent == NULL)
		return (EINVAL);
	return (BUS_BIND_INTR(dev->parent, dev, r, cpu));
}

int
bus_describe_intr(device_t dev, struct resource *irq, void *cookie, const char *fmt, ...)
{
	char descr[MAXCOMLEN + 1];
	va_list ap;

	if (dev->parent == NULL)
		return (EINVAL);
	va_start(ap, fmt);
	vsnprintf(descr, sizeof(descr), fmt, ap);
	va_end(ap);
	return (BUS_DESCRIBE_INTR(dev->parent, dev, irq, cookie, descr));
}

bus_dma_tag_t
bus_get_dma_tag(device_t dev)
{
	device_t parent = device_get_parent(dev);

	return (parent == NULL ? NULL : BUS_GET_DMA_TAG(parent, dev));
}

bus_space_tag_t
bus_get_bus_tag(device_t dev)
{
	device_t parent = device_get_parent(dev);

	return (parent == NULL ? (bus_space_tag_t)0 : BUS_GET_BUS_TAG(parent, dev));
}

int
bus_get_cpus(device_t dev, enum cpu_sets op, size_t setsize, struct _cpuset *cpuset)
{
	device_t parent = device_get_parent(dev);

	return (parent == NULL ? EINVAL : BUS_GET_CPUS(parent, dev, op, setsize, cpuset));
}

int
bus_get_domain(device_t dev, int *domain)
{
	return (BUS_GET_DOMAIN(device_get_parent(dev), dev, domain));
}

int
bus_child_present(device_t child)
{
	return (BUS_CHILD_PRESENT(device_get_parent(child), child));
}

int
bus_child_pnpinfo(device_t child, struct sbuf *sb)
{
	device_t parent = device_get_parent(child);

	return (parent == NULL ? 0 : BUS_CHILD_PNPINFO(parent, child, sb));
}

int
bus_child_location(device_t child, struct sbuf *sb)
{
	device_t parent = device_get_parent(child);

	return (parent == NULL ? 0 : BUS_CHILD_LOCATION(parent, child, sb));
}
