/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Loader tunables and sysctls with a range.
 *
 * A driver has one table of its tunables: name, default, range, description.
 * When its module is loaded, each entry takes its value from the kernel
 * environment (hw.DRIVER.name) and becomes a sysctl of that name.  What is not
 * an integer of its range is reported, with the value that is used instead; a
 * write to the sysctl of such a value is refused with EINVAL.
 *
 * The sysctls are added at run time, to the node of that name.  The kernel's
 * own driver for the same devices may have made this node, statically; a
 * second static node would be left out of the tree, and what is below it with
 * it.  An entry that the other driver has stays that driver's, with the value
 * that both got from the environment.
 *
 * Gaps: if the other driver is a module, it must not be unloaded before ours,
 * as our entries are below its node.
 */

#ifndef _DEV_PV_PV_TUNABLE_H_
#define	_DEV_PV_PV_TUNABLE_H_

#include <sys/bus.h>
#include <sys/sysctl.h>

struct pv_tunable {
	const char	*pt_name;	/* the last component */
	int		 pt_value;	/* a u_int if pt_max is above INT_MAX */
	u_int		 pt_flags;
	int64_t		 pt_default;
	int64_t		 pt_min;
	int64_t		 pt_max;	/* of a text: the size of pt_text */
	const char	*pt_descr;
	char		*pt_text;	/* a text; the driver checks it */
	uint64_t	 pt_reported;	/* units whose value was reported */
};

#define	PVT_RW		0x01	/* the sysctl can be written */
#define	PVT_DEVICE	0x02	/* a device can have its own value */

#define	PV_TUNABLE(name, def, min, max, flags, descr)			\
	{ (name), (def), (flags), (def), (min), (max), (descr), NULL, 0 }
#define	PV_TUNABLE_TEXT(name, buf, flags, descr)			\
	{ (name), 0, (flags), 0, 0, sizeof(buf), (descr), (buf), 0 }

struct pv_tunables {
	struct sysctl_oid_list *pts_top;
	const char	*pts_top_name;
	const char	*pts_path;	/* of the node, below the top */
	const char	*pts_descr;	/* of the node */
	struct pv_tunable *pts_table;
	size_t		 pts_n;
	struct sysctl_ctx_list pts_sysctl;
};

/*
 * The tunables of a module: read and added when it is loaded, before its
 * drivers look for devices; removed when it is unloaded.  With a module that
 * loader(8) has loaded that is not before process 0 has credentials
 * (SI_SUB_INTRINSIC), with which sysctls are looked up.
 *
 * id     a unique name
 * top    hw or vm
 * path   the rest of the node's name, such as "vtnet" or "virtio.pci"
 * table  an array of struct pv_tunable
 * descr  of the node
 */
#define	PV_TUNABLES(id, top, path, table, descr)			\
	static struct pv_tunables id##_set = {				\
		SYSCTL_STATIC_CHILDREN(_##top), #top, (path), (descr),	\
		(table), nitems(table), { NULL, NULL }			\
	};								\
	SYSINIT(id, SI_SUB_INTRINSIC, SI_ORDER_ANY, pv_tunables_load,	\
	    &id##_set);							\
	SYSUNINIT(id, SI_SUB_INTRINSIC, SI_ORDER_ANY,			\
	    pv_tunables_unload, &id##_set)

void	pv_tunables_load(void *set);
void	pv_tunables_unload(void *set);

/*
 * The value for a device: that of hw.DRIVER.N.name in the kernel environment,
 * or else the one for all devices.  An invalid one is reported once.
 */
int	pv_tunable_get(struct pv_tunable *pt, device_t dev);

/*
 * Adds a sysctl for a device's own value, which can be written at run time.
 * The range is the tunable's.
 *
 * name  of the sysctl; NULL: as the tunable
 */
void	pv_tunable_add(struct sysctl_ctx_list *ctx,
	    struct sysctl_oid_list *list, const char *name,
	    const struct pv_tunable *pt, int *value);

/*
 * For sysctl handlers: returns *value to the reader and, if there is a new
 * value, stores that there.
 *
 * Returns 0, also if there is no new value; EINVAL if it is not from min to
 * max; or the error of a copy.  *value is unchanged then.
 */
int	pv_sysctl_int(struct sysctl_oid *oidp, struct sysctl_req *req,
	    int *value, int min, int max);

/*
 * Does a variable of the kernel environment, a list of words that blanks or
 * commas separate, have this word?  It may be as long as the environment takes.
 */
bool	pv_is_listed(const char *path, const char *word);

#endif /* !_DEV_PV_PV_TUNABLE_H_ */
