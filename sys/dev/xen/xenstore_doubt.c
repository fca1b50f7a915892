/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Requests of xenstore whose result is unknown, whichever file talks to it:
 * xenstore_ring.c, or core/core_store.c by FreeBSD's own Xen core.
 *
 * A request that has timed out may be handled later, and its answer comes late.
 * A transaction that is begun by such an answer has no owner: it is kept here
 * to be ended, or xenstore would soon allow no more of them.
 *
 * Locking.  xd_mtx (mutex): all that follows, but for counters.  Callers may
 * hold their own mutex.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <dev/xen/xenstore_var.h>

#define	DOUBT_ORPHANS	16	/* xenstore's default is 10
				 * transactions of a domain */
#define	DOUBT_SAID	10

static struct {
	struct mtx	 xd_mtx;
	bool		 xd_doubt;
	u_int		 xd_norphans;
	uint32_t	 xd_orphans[DOUBT_ORPHANS];
} xd;

MTX_SYSINIT(xenstore_doubt, &xd.xd_mtx, "xenstore doubt", MTX_DEF);

uint64_t xenstore_requests, xenstore_events, xenstore_late, xenstore_failed;

void
xenstore_doubt_init(void)
{

	mtx_lock(&xd.xd_mtx);
	xd.xd_doubt = false;
	xd.xd_norphans = 0;
	mtx_unlock(&xd.xd_mtx);
}

void
xenstore_raise_doubt(void)
{

	mtx_lock(&xd.xd_mtx);
	xd.xd_doubt = true;
	mtx_unlock(&xd.xd_mtx);
}

bool
xenstore_doubt(void)
{
	bool doubt;

	mtx_lock(&xd.xd_mtx);
	doubt = xd.xd_doubt;
	xd.xd_doubt = false;
	mtx_unlock(&xd.xd_mtx);
	return (doubt);
}

bool
xenstore_fail(void)
{

	xenstore_raise_doubt();
	return (xenstore_failed++ < DOUBT_SAID);
}

void
xenstore_abandon(uint32_t id)
{

	mtx_lock(&xd.xd_mtx);
	if (xd.xd_norphans < DOUBT_ORPHANS)
		xd.xd_orphans[xd.xd_norphans++] = id;
	mtx_unlock(&xd.xd_mtx);
}

uint32_t
xenstore_orphan(void)
{
	uint32_t id;

	mtx_lock(&xd.xd_mtx);
	id = xd.xd_norphans > 0 ? xd.xd_orphans[--xd.xd_norphans] : 0;
	mtx_unlock(&xd.xd_mtx);
	return (id);
}

void
xenstore_late_answer(uint32_t type, const char *body)
{
	u_long id;

	xenstore_late++;
	if (type != XS_TRANSACTION_START)
		return;
	id = strtoul(body, NULL, 10);
	if (id > 0 && id <= UINT32_MAX)
		xenstore_abandon(id);
}

int
xenstore_errno(const char *name)
{
	u_int i;

	for (i = 0; i < nitems(xsd_errors); i++) {
		if (strcmp(name, xsd_errors[i].errstring) == 0)
			return (xsd_errors[i].errnum);
	}
	return (EINVAL);
}
