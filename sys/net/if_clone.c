/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Interfaces that are created on request: `ifconfig NAME create'.  Each kind of them, bridge or
 * vlan, registers functions to create and to destroy one, through the interface of net/if_clone.h.
 *
 * Locking.  clone_lock covers the list and is held while an interface is made or destroyed.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/epoch.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <net/if.h>
#include <net/if_clone.h>
#include <net/if_var.h>
#include <net/if_private.h>

#define	CLONE_MAXUNIT	32767

MALLOC_DEFINE(M_CLONE, "clone", "kinds of interfaces");

struct if_clone {
	LIST_ENTRY(if_clone) ifc_link;
	char		 ifc_name[IFNAMSIZ];
	ifc_create_f	*ifc_create;
	ifc_destroy_f	*ifc_destroy;
};

static struct sx clone_lock;
SX_SYSINIT(clone, &clone_lock, "if_clone");
static LIST_HEAD(, if_clone) clone_list = LIST_HEAD_INITIALIZER(clone_list);

struct if_clone *
ifc_attach_cloner(const char *name, struct if_clone_addreq *req)
{
	struct if_clone *ifc;

	ifc = malloc(sizeof(*ifc), M_CLONE, M_WAITOK | M_ZERO);
	strlcpy(ifc->ifc_name, name, sizeof(ifc->ifc_name));
	ifc->ifc_create = req->create_f;
	ifc->ifc_destroy = req->destroy_f;
	sx_xlock(&clone_lock);
	LIST_INSERT_HEAD(&clone_list, ifc, ifc_link);
	sx_xunlock(&clone_lock);
	return (ifc);
}

/* The number at the end of a name; -1 if there is none.  EINVAL. */
int
ifc_name2unit(const char *name, int *unit)
{
	const char *p = name + strcspn(name, "0123456789");
	char *end;
	u_long n;

	*unit = -1;
	if (*p == '\0')
		return (0);
	n = strtoul(p, &end, 10);
	if (*end != '\0' || n > CLONE_MAXUNIT || (p[0] == '0' && p[1] != '\0'))
		return (EINVAL);
	*unit = n;
	return (0);
}

static struct if_clone *
clone_find(const char *name)
{
	size_t len = strcspn(name, "0123456789");
	struct if_clone *ifc;

	sx_assert(&clone_lock, SX_XLOCKED);
	LIST_FOREACH(ifc, &clone_list, ifc_link) {
		if (strlen(ifc->ifc_name) == len && strncmp(ifc->ifc_name, name, len) == 0)
			break;
	}
	return (ifc);
}

static bool
clone_name_used(const char *name)
{
	struct epoch_tracker et;
	bool used;

	NET_EPOCH_ENTER(et);
	used = ifunit(name) != NULL;
	NET_EPOCH_EXIT(et);
	return (used);
}

static int
clone_create(struct if_clone *ifc, char *name, size_t len, void *params)
{
	struct ifc_data ifd = { .params = params, .flags = IFC_F_CREATE | IFC_F_SYSSPACE };
	struct ifnet *ifp;
	int error, unit;

	error = ifc_name2unit(name, &unit);
	if (error != 0)
		return (error);
	if (unit >= 0 && clone_name_used(name))
		return (EEXIST);
	for (; unit < 0 && ifd.unit < CLONE_MAXUNIT; ifd.unit++) {
		snprintf(name, len, "%s%u", ifc->ifc_name, ifd.unit);
		if (!clone_name_used(name))
			break;
	}
	if (unit >= 0)
		ifd.unit = unit;
	return (ifc->ifc_create(ifc, name, len, &ifd, &ifp));
}

/*
 * Make an interface; a name without a number gets one, and room for it is needed.  EINVAL for a
 * kind that there is not, EEXIST, or what its kind says.  May sleep.
 */
int
if_clone_create(char *name, size_t len, caddr_t params)
{
	struct if_clone *ifc;
	int error;

	sx_xlock(&clone_lock);
	ifc = clone_find(name);
	error = ifc == NULL ? EINVAL : clone_create(ifc, name, len, params);
	sx_xunlock(&clone_lock);
	return (error);
}

/* Destroy an interface that was made so.  ENXIO, EOPNOTSUPP.  May sleep. */
int
if_clone_destroy(const char *name)
{
	struct if_clone *ifc;
	struct ifnet *ifp;
	int error;

	sx_xlock(&clone_lock);
	ifp = ifunit_ref(name);
	ifc = clone_find(name);
	if (ifp == NULL)
		error = ENXIO;
	else if (ifc == NULL)
		error = EOPNOTSUPP;
	else
		error = ifc->ifc_destroy(ifc, ifp, 0);
	sx_xunlock(&clone_lock);
	if (ifp != NULL)
		if_rele(ifp);
	return (error);
}
