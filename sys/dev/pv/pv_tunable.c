/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Loader tunables and sysctls with a range: see pv_tunable.h.
 *
 * Locking.  None: a table is changed while its module is loaded, and a value
 * by its sysctl's handler, in one store.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/limits.h>
#include <sys/proc.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_tunable.h>

/* As an integer that is wide enough for both types. */
static int64_t
pv_tunable_wide(const struct pv_tunable *pt, int value)
{
	return (pt->pt_max > INT_MAX ? (int64_t)(u_int)value : value);
}

static bool
pv_tunable_fits(const struct pv_tunable *pt, int64_t value)
{
	return (value >= pt->pt_min && value <= pt->pt_max);
}

/*
 * The value of a variable of the environment, or def if there is none.  What
 * is not valid is reported, unless quiet.  Returns whether it was not.
 */
static bool
pv_tunable_fetch(const struct pv_tunable *pt, const char *path, int *value,
    bool quiet)
{
	char *end, *text = kern_getenv(path);
	int64_t n;
	bool valid;

	if (text == NULL)
		return (false);
	n = strtoq(text, &end, 0);
	valid = end != text && *end == '\0' && pv_tunable_fits(pt, n);
	if (valid)
		*value = (int)n;
	else if (!quiet)
		printf("%s=\"%s\" is not from %jd to %jd: %jd is used\n", path,
		    text, (intmax_t)pt->pt_min, (intmax_t)pt->pt_max,
		    (intmax_t)pv_tunable_wide(pt, *value));
	freeenv(text);
	return (!valid);
}

int
pv_tunable_get(struct pv_tunable *pt, device_t dev)
{
	int unit = device_get_unit(dev), value = pt->pt_value;
	uint64_t bit = unit < 64 ? (uint64_t)1 << unit : 0;
	char path[64];

	KASSERT((pt->pt_flags & PVT_DEVICE) != 0,
	    ("%s: %s is of all devices", __func__, pt->pt_name));
	snprintf(path, sizeof(path), "hw.%s.%d.%s", device_get_name(dev), unit,
	    pt->pt_name);
	if (pv_tunable_fetch(pt, path, &value, (pt->pt_reported & bit) != 0))
		pt->pt_reported |= bit;
	return (value);
}

bool
pv_is_listed(const char *path, const char *word)
{
	char *list, *next, *one;
	bool found = false;

	list = next = kern_getenv(path);
	while (!found && (one = strsep(&next, " ,")) != NULL)
		found = strcmp(one, word) == 0;
	freeenv(list);
	return (found);
}

int
pv_sysctl_int(struct sysctl_oid *oidp, struct sysctl_req *req, int *value,
    int min, int max)
{
	int error, n = *value;

	error = sysctl_handle_int(oidp, &n, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (n < min || n > max)
		return (EINVAL);
	*value = n;
	return (0);
}

static int
pv_tunable_sysctl(SYSCTL_HANDLER_ARGS)
{
	const struct pv_tunable *pt = (const void *)(intptr_t)arg2;

	/* One that is unsigned is read-only. */
	return (pv_sysctl_int(oidp, req, arg1, (int)pt->pt_min,
	    (int)MIN(pt->pt_max, INT_MAX)));
}

void
pv_tunable_add(struct sysctl_ctx_list *ctx, struct sysctl_oid_list *list,
    const char *name, const struct pv_tunable *pt, int *value)
{
	SYSCTL_ADD_PROC(ctx, list, OID_AUTO, name != NULL ? name : pt->pt_name,
	    CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, value, (intptr_t)pt,
	    pv_tunable_sysctl, "I", pt->pt_descr);
}

/* The value for all devices, which was fetched. */
static void
pv_tunable_add_global(struct sysctl_ctx_list *ctx, struct sysctl_oid_list *list,
    struct pv_tunable *pt)
{
	u_int kind = CTLFLAG_NOFETCH | CTLFLAG_MPSAFE |
	    ((pt->pt_flags & PVT_RW) != 0 ? CTLFLAG_RWTUN : CTLFLAG_RDTUN);
	bool wide = pt->pt_max > INT_MAX;

	KASSERT(!wide || (pt->pt_flags & PVT_RW) == 0,
	    ("%s: %s can be written", __func__, pt->pt_name));
	if (pt->pt_text != NULL)
		sysctl_add_oid(ctx, list, OID_AUTO, pt->pt_name,
		    kind | CTLTYPE_STRING, pt->pt_text, pt->pt_max,
		    sysctl_handle_string, "A", pt->pt_descr, NULL);
	else
		sysctl_add_oid(ctx, list, OID_AUTO, pt->pt_name,
		    kind | (wide ? CTLTYPE_UINT : CTLTYPE_INT), &pt->pt_value,
		    (intptr_t)pt, pv_tunable_sysctl, wide ? "IU" : "I",
		    pt->pt_descr, NULL);
}

/* The list that a set's entries are in.  A static node isn't removed. */
static struct sysctl_oid_list *
pv_tunables_node(struct pv_tunables *set)
{
	struct sysctl_oid_list *list = set->pts_top;
	const char *path = set->pts_path;
	struct sysctl_oid *oid;
	char name[32];
	size_t len;

	while (*path != '\0') {
		len = strcspn(path, ".");
		strlcpy(name, path, MIN(len + 1, sizeof(name)));
		oid = SYSCTL_ADD_NODE(&set->pts_sysctl, list, OID_AUTO, name,
		    CTLFLAG_RD | CTLFLAG_MPSAFE, NULL, set->pts_descr);
		if ((oid->oid_kind & CTLFLAG_DYN) == 0)
			sysctl_ctx_entry_del(&set->pts_sysctl, oid);
		list = SYSCTL_CHILDREN(oid);
		path += len + (path[len] == '.');
	}
	return (list);
}

void
pv_tunables_load(void *arg)
{
	struct pv_tunables *set = arg;
	struct sysctl_oid_list *list;
	struct pv_tunable *pt;
	char path[64];

	sysctl_ctx_init(&set->pts_sysctl);
	list = pv_tunables_node(set);
	for (pt = set->pts_table; pt < set->pts_table + set->pts_n; pt++) {
		snprintf(path, sizeof(path), "%s.%s.%s", set->pts_top_name,
		    set->pts_path, pt->pt_name);
		if (pt->pt_text != NULL)
			getenv_string(path, pt->pt_text, pt->pt_max);
		else
			pv_tunable_fetch(pt, path, &pt->pt_value, false);
		/* Otherwise the kernel's own driver has it. */
		if (kernel_sysctlbyname(curthread, path, NULL, NULL, NULL, 0,
		    NULL, 0) == ENOENT)
			pv_tunable_add_global(&set->pts_sysctl, list, pt);
	}
}

void
pv_tunables_unload(void *arg)
{
	struct pv_tunables *set = arg;

	sysctl_ctx_free(&set->pts_sysctl);
}
