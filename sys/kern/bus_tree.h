/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The internals of newbus that its files share (subr_bus.c opens with the theory).
 *
 * Not FreeBSD's: FreeBSD has these structures within subr_bus.c, which is several files here.
 */

#ifndef _KERN_BUS_TREE_H_
#define	_KERN_BUS_TREE_H_

#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/queue.h>
#include <sys/sysctl.h>

MALLOC_DECLARE(M_BUS);

/* A driver, registered with a bus. */
struct driverlink {
	TAILQ_ENTRY(driverlink)	link;
	driver_t		*driver;
	int			pass;
};
TAILQ_HEAD(driverlink_list, driverlink);

struct devclass {
	TAILQ_ENTRY(devclass)	link;
	devclass_t		parent;		/* where to look for further drivers */
	struct driverlink_list	drivers;	/* for children of devices of this class */
	char			*name;
	device_t		*devices;	/* by unit number */
	int			maxunit;	/* size of devices[] */
	struct sysctl_ctx_list	sysctl_ctx;
	struct sysctl_oid	*sysctl_tree;	/* dev.NAME */
};
TAILQ_HEAD(devclass_list, devclass);

struct device_prop {
	LIST_ENTRY(device_prop)	link;
	const char		*name;
	void			*val;
	device_prop_dtr_t	dtr;
	void			*dtr_ctx;
};

TAILQ_HEAD(device_list, _device);

struct _device {
	KOBJ_FIELDS;

	TAILQ_ENTRY(_device)	link;		/* siblings, in order */
	TAILQ_ENTRY(_device)	all;		/* all devices */
	device_t		parent;
	struct device_list	children;

	driver_t		*driver;
	devclass_t		devclass;
	int			unit;
	char			*nameunit;
	char			*desc;		/* DF_DESCMALLOCED says whether it is ours */
	u_int			order;		/* among siblings */
	u_int			busy;		/* device_busy(9); counts in all parents too */
	device_state_t		state;
	uint32_t		devflags;	/* device_set_flags(9) */
	u_int			flags;		/* DF_* */
	void			*ivars;
	void			*softc;
	LIST_HEAD(, device_prop) props;
	struct sysctl_ctx_list	sysctl_ctx;
	struct sysctl_oid	*sysctl_tree;	/* dev.NAME.UNIT */
};

extern struct device_list bus_data_devices;
extern struct devclass_list devclasses;
extern int bus_current_pass;

/* subr_devclass.c */
devclass_t devclass_find_internal(const char *name, const char *parentname, bool create);
struct driverlink *devclass_find_driverlink(devclass_t busclass, driver_t *driver);
int	devclass_add_device(devclass_t dc, device_t dev);
void	devclass_delete_device(devclass_t dc, device_t dev);

/* subr_device.c */
device_t device_create(device_t parent, const char *name, int unit);
void	device_clear_desc(device_t dev);

/* subr_bus_props.c */
void	device_destroy_props(device_t dev);

/* subr_bus_sysctl.c */
void	devclass_sysctl_init(devclass_t dc);
void	device_sysctl_init(device_t dev);
void	device_sysctl_fini(device_t dev);

/*
 * The machine's bus_dma: the array of segments for one load with a callback, NULL without memory,
 * and back when the callback has returned.
 */
bus_dma_segment_t *busdma_segs_take(bus_dma_tag_t dmat);
void	busdma_segs_give(bus_dma_tag_t dmat, bus_dma_segment_t *segs);

#endif /* !_KERN_BUS_TREE_H_ */
