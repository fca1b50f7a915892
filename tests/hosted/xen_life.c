/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Parts of the module xen on a model of Xen: the grant table of both versions (model/xen_hyper.c), the
 * requests of the administrator, and suspensions, of which it is written down what is called, and when.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/reboot.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <machine/bus.h>
#include <machine/md_var.h>
#include <machine/stdarg.h>

#include <dev/xen/xen_gnttab.h>
#include <dev/xen/xen_gnttab_var.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenbus_var.h>
#include <dev/xen/xenstore.h>

#include <kern/bus_tree.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/sched.h"
#include "kpi/threads.h"
#include "model/xen_hyper.h"
#include "model/xenstore_nodes.h"

#define	V1_PER_PAGE	512
#define	V2_PER_PAGE	256
#define	STATUS_PER_PAGE	2048
#define	SAID(text) do {							\
	CHECK(strcmp(kpi_line, (text)) == 0, "said: %s", kpi_line);	\
	kpi_line[0] = '\0';						\
} while (0)
#define	CALLED(text) do {						\
	kpi_settle();							\
	CHECK(strcmp(calls, (text)) == 0, "called: %s", calls);		\
	calls[0] = '\0';						\
} while (0)

long Maxmem = 1 << 18;
struct xen_cpu xen_cpus[MAXCPU];

static device_t dev, bus;
static struct sysctl_ctx_list ctx;
static struct sysctl_oid tree;

/* What was called, in its order. */
static char calls[1024];

static void
called(const char *what)
{

	strlcat(calls, what, sizeof(calls));
	strlcat(calls, " ", sizeof(calls));
}

/* Interrupts are off while a page is added. */

static int spinlocks;

void
spinlock_enter(void)
{

	spinlocks++;
}

void
spinlock_exit(void)
{

	CHECK(spinlocks-- == 1, "not entered");
}

/* The device that all are parts of, and its bus, on newbus's root. */

static void
begin(void)
{

	kpi_quiet = true;
	kpi_sysinits();
	(void)sysctl_ctx_init(&ctx);
	CHECK(kpi_module_event("rootbus", MOD_LOAD) == 0, "rootbus");
	bus_topo_lock();
	dev = device_add_child(root_bus, "xen", 0);
	bus = device_add_child(dev, "xenbus", 0);
	bus_topo_unlock();
	xsn_begin();
}

static void
threads_of(const void *arg)
{

	kpi_type = M_XEN;
	begin();
	((void (*)(void))(uintptr_t)arg)();
	(void)sysctl_ctx_free(&ctx);
	kpi_settle();
	CHECK(kpi_mallocs_of_type == 0, "%d pieces of memory are left", kpi_mallocs_of_type);
	CHECK(kpi_kthreads_left() == 1, "%d threads are left", kpi_kthreads_left());
	CHECK(kpi_callouts == 0, "%d callouts are left", kpi_callouts);
	CHECK(xh_spaces == 0 && xh_maps == 0, "address space is left");
	CHECK(xsn_out == 0, "%d values were not freed", xsn_out);
	CHECK(kpi_mutexes == 0 && spinlocks == 0, "a mutex is held");
}

static void
run(const void *arg)
{

	kpi_threads(threads_of, arg);
}

/* The grant table. */

static u_int per_page;

#define	grants(which)	kpi_sysctl_value("gnttab." which)

/* A table of so many pages at most, which begins with one. */
static void
table_begin(u_int version, u_int pages)
{

	xen_tunables[XEN_GNTTAB_VERSION].pt_value = version;
	xh_versions = 1U << 1 | 1U << 2;
	xh_version = 1;
	xh_max_frames = pages;
	xh_begin();
	CHECK(xen_gnttab_init(dev) == 0 && xen_gnttab_end_init(dev) == 0, "not begun: %s", kpi_line);
	xen_gnttab_table_sysctl(&ctx, xen_gnttab_sysctl(&ctx, &tree));
	CHECK(grants("version") == version && xh_version == version, "version %u", xh_version);
	CHECK(grants("pages") == 1 && grants("max_pages") == pages, "pages");
	per_page = version == 1 ? V1_PER_PAGE : V2_PER_PAGE;
}

static void
table_end(void)
{

	xen_gnttab_end_fini(dev);
	xen_gnttab_fini(dev);
	CHECK(grants("free") == 0, "references are left");
	CHECK(xh_frames() == 0 && xh_status_frames() == 0, "pages are left");
	xen_gnttab_fini(dev);
	xen_gnttab_end_fini(dev);
	(void)sysctl_ctx_free(&ctx);
}

/* The tunable's, or 2 if version 1 could not name all pages; and what Xen makes of it. */
static void
version_is_negotiated(void)
{
	static const struct {
		int	tunable;
		long	maxmem;
		u_int	versions, before;
		int	no_get;
		u_int	version, status;
	} table[] = {
		{ 0, UINT32_MAX, 6, 1, 0, 1, 0 }, { 0, UINT32_MAX + 1L, 6, 1, 0, 2, 1 },
		{ 1, UINT32_MAX + 1L, 6, 1, 0, 1, 0 }, { 2, 1, 6, 1, 0, 2, 1 },
		{ 2, 1, 2, 1, 0, 1, 0 }, { 1, 1, 4, 2, 0, 2, 1 }, { 1, 1, 0, 2, ENOSYS, 1, 0 },
	};
	char line[80];
	u_int i;

	bootverbose = 1;
	for (i = 0; i < nitems(table); i++) {
		xen_tunables[XEN_GNTTAB_VERSION].pt_value = table[i].tunable;
		Maxmem = table[i].maxmem;
		xh_versions = table[i].versions;
		xh_version = table[i].before;
		xh_no_version = table[i].no_get;
		xh_max_frames = 3;
		xh_begin();
		CHECK(xen_gnttab_init(dev) == 0, "%u: not begun", i);
		snprintf(line, sizeof(line), "xen0: grant table version %u, %u references at most\n",
		    table[i].version, 3 * (table[i].version == 1 ? V1_PER_PAGE : V2_PER_PAGE));
		SAID(line);
		CHECK(xh_frames() == 1 && xh_status_frames() == table[i].status, "%u: %u pages", i,
		    xh_frames());
		CHECK(xh_rid == 1 && xh_size == ptoa(3 + table[i].status), "rid %d", xh_rid);
		xen_gnttab_fini(dev);
		kpi_line[0] = '\0';
	}
	bootverbose = 0;
	Maxmem = 1 << 18;
}

/* Each thing that it needs. */
static void
table_that_can_not_begin(void)
{
	grant_ref_t ref;

	xen_tunables[XEN_GNTTAB_VERSION].pt_value = 1;
	xh_versions = 6;
	xh_max_frames = 4;
	xh_query_error = EPERM;
	CHECK(xen_gnttab_init(dev) == EPERM, "begun");
	SAID("xen0: no grant table (error 1)\n");
	xen_gnttab_fini(dev);
	xh_query_error = 0;
	xh_query_status = GNTST_general_error;
	CHECK(xen_gnttab_init(dev) == ENXIO, "begun");
	SAID("xen0: no grant table (error 6)\n");
	xh_query_status = GNTST_okay;
	xh_max_frames = 0;
	CHECK(xen_gnttab_init(dev) == ENXIO, "begun");
	SAID("xen0: no grant table (error 6)\n");
	xh_max_frames = 4;
	xh_no_space = true;
	CHECK(xen_gnttab_init(dev) == ENOMEM, "begun");
	SAID("xen0: no address space for 4 pages of grant table\n");
	xen_gnttab_fini(dev);
	xh_no_space = false;
	xh_no_map = true;
	CHECK(xen_gnttab_init(dev) == ENOMEM && xh_spaces == 0, "begun");
	SAID("xen0: no address space for 4 pages of grant table\n");
	xen_gnttab_fini(dev);
	xh_no_map = false;
	xh_fail_map = 1;
	CHECK(xen_gnttab_init(dev) == ENOMEM, "begun");
	SAID("xen0: can't map a page of the grant table (error 12)\n");
	CHECK(xen_gnttab_alloc(&ref, 1) == ENOSPC, "a reference");
	xen_gnttab_fini(dev);
	/* More than Xen ever allows. */
	xh_max_frames = 1025;
	CHECK(xen_gnttab_init(dev) == 0 && xh_size == ptoa(1024), "%ju bytes", (uintmax_t)xh_size);
	xen_gnttab_fini(dev);
	CHECK(xen_gnttab_alloc(&ref, 1) == ENOSPC, "a reference");
}

/* All references of a table, page by page, from the ninth. */
static void
table_grows(u_int version)
{
	static grant_ref_t refs[6 * V1_PER_PAGE];
	u_int all, i, n;

	table_begin(version, 5);
	n = 5 * per_page - 8;
	CHECK(xen_gnttab_room(&all) == n && all == n + 8, "room for %u of %u",
	    xen_gnttab_room(&all), all);
	CHECK(xen_gnttab_alloc(refs, per_page - 8) == 0 && xh_frames() == 1, "%u pages", xh_frames());
	for (i = 0; i < per_page - 8; i++)
		CHECK(refs[i] == i + 8, "reference %u is %u", i, refs[i]);
	CHECK(grants("free") == 0 && grants("in_use") == per_page - 8, "counts");
	/* A page that can't be had is asked for again. */
	xh_fail_map = 1;
	CHECK(xen_gnttab_alloc(refs + i, 1) == ENOSPC && xh_frames() == 1, "%u pages", xh_frames());
	CHECK(grants("free") == 0 && grants("in_use") == per_page - 8, "counts");
	CHECK(grants("pages") == 1, "%ju pages", (uintmax_t)grants("pages"));
	CHECK(xen_gnttab_alloc(refs + i, 1) == 0 && refs[i] == per_page && xh_frames() == 2, "%u",
	    refs[i]);
	CHECK(xen_gnttab_room(&all) == n - per_page + 7, "room");
	CHECK(xen_gnttab_alloc(refs + i + 1, 2 * per_page) == 0 && xh_frames() == 4, "%u pages",
	    xh_frames());
	CHECK(xen_gnttab_alloc(refs + i + 1 + 2 * per_page, 2 * per_page) == ENOSPC, "more than all");
	CHECK(xh_frames() == 5 && xen_gnttab_room(&all) == n - 3 * per_page + 7, "room");
	CHECK(xen_gnttab_alloc(refs + i + 1 + 2 * per_page, 2 * per_page - 1) == 0, "all");
	CHECK(xen_gnttab_room(&all) == 0 && grants("in_use") == n, "counts");
	CHECK(xen_gnttab_alloc(refs + n, 1) == ENOSPC && xh_frames() == 5, "%u pages", xh_frames());
	CHECK(xh_status_frames() == (version == 2), "%u pages of status", xh_status_frames());
	CHECK(xen_gnttab_end(refs, n) == 0 && xen_gnttab_room(&all) == n, "deferred");
	CHECK(grants("free") == n && grants("in_use") == 0, "counts");
	table_end();
}

static void
table_of_version_1_grows(void)
{

	table_grows(1);
}

static void
table_of_version_2_grows(void)
{

	table_grows(2);
}

/* A page of status is for eight of the table: both or none. */
static void
status_array_grows(void)
{
	static grant_ref_t refs[9 * V2_PER_PAGE];

	table_begin(2, 16);
	CHECK(xh_size == ptoa(16 + 2), "%ju bytes", (uintmax_t)xh_size);
	CHECK(xen_gnttab_alloc(refs, STATUS_PER_PAGE - 8) == 0, "none");
	CHECK(xh_frames() == 8 && xh_status_frames() == 1, "%u and %u pages", xh_frames(),
	    xh_status_frames());
	CHECK(xen_gnttab_alloc(refs + STATUS_PER_PAGE - 8, 1) == 0, "none");
	CHECK(xh_frames() == 9 && xh_status_frames() == 2, "%u and %u pages", xh_frames(),
	    xh_status_frames());
	CHECK(xen_gnttab_end(refs, STATUS_PER_PAGE - 7) == 0, "deferred");
	table_end();
}

static void
entries_of_version_1(void)
{
	grant_ref_t refs[3];

	table_begin(1, 2);
	CHECK(xen_gnttab_alloc(refs, 3) == 0, "none");
	CHECK(xh_v1(refs[0])->flags == 0, "it grants something");
	xen_gnttab_grant(refs[0], 5, ptoa(0x12345) + 77, false);
	CHECK(xh_v1(refs[0])->flags == GTF_permit_access && xh_v1(refs[0])->domid == 5 &&
	    xh_v1(refs[0])->frame == 0x12345, "flags 0x%x", xh_v1(refs[0])->flags);
	xen_gnttab_grant(refs[1], 6, ptoa(7), true);
	CHECK(xh_v1(refs[1])->flags == (GTF_permit_access | GTF_readonly), "flags 0x%x",
	    xh_v1(refs[1])->flags);
	xh_v1(refs[0])->flags |= GTF_reading;
	xh_v1(refs[1])->flags |= GTF_writing;
	CHECK(xen_gnttab_end(refs, 3) == 2, "not deferred");
	CHECK(xh_v1(refs[0])->flags == (GTF_permit_access | GTF_reading), "flags 0x%x",
	    xh_v1(refs[0])->flags);
	CHECK(grants("deferred") == 2 && grants("total_deferred") == 2, "counts");
	xh_v1(refs[0])->flags &= ~GTF_reading;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 1 && xh_v1(refs[0])->flags == 0, "not ended");
	xh_v1(refs[1])->flags &= ~GTF_writing;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 0 && xh_v1(refs[1])->flags == 0, "not ended");
	CHECK(grants("free") == V1_PER_PAGE - 8 && grants("in_use") == 0, "counts");
	table_end();
}

static void
entries_of_version_2(void)
{
	grant_ref_t refs[3];

	table_begin(2, 2);
	CHECK(xen_gnttab_alloc(refs, 3) == 0, "none");
	xen_gnttab_grant(refs[0], 5, ptoa(0x123456789) + 77, false);
	CHECK(xh_v2(refs[0])->hdr.flags == GTF_permit_access && xh_v2(refs[0])->hdr.domid == 5 &&
	    xh_v2(refs[0])->full_page.frame == 0x123456789, "flags 0x%x", xh_v2(refs[0])->hdr.flags);
	xen_gnttab_grant(refs[1], 6, ptoa(7), true);
	CHECK(xh_v2(refs[1])->hdr.flags == (GTF_permit_access | GTF_readonly), "flags 0x%x",
	    xh_v2(refs[1])->hdr.flags);
	*xh_status(refs[0]) = GTF_reading;
	*xh_status(refs[1]) = GTF_writing;
	CHECK(xen_gnttab_end(refs, 3) == 2, "not deferred");
	CHECK(xh_v2(refs[0])->hdr.flags == 0 && xh_v2(refs[1])->hdr.flags == 0,
	    "it may be mapped again");
	*xh_status(refs[0]) = 0;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 1, "not ended");
	*xh_status(refs[1]) = 0;
	kpi_sleep(hz + 1);
	CHECK(grants("deferred") == 0 && grants("free") == V2_PER_PAGE - 8, "not ended");
	table_end();
}

/* In a new domain the table is another, and may be smaller. */
static void
table_after_a_suspension(u_int version)
{
	static grant_ref_t refs[4 * V1_PER_PAGE];
	volatile uint16_t *dead;
	u_int all, i, set;

	table_begin(version, 4);
	CHECK(xen_gnttab_alloc(refs, 3 * per_page) == 0 && xh_frames() == 4, "%u pages", xh_frames());
	xen_gnttab_grant(refs[0], 1, ptoa(1), false);
	set = xh_version_set;
	xh_begin();
	xh_version = 1;
	CHECK(xen_gnttab_resume() == 0, "no table");
	CHECK(xh_frames() == 4 && xh_status_frames() == version - 1, "%u pages", xh_frames());
	CHECK(xh_version == version && xh_version_set == set + 1, "version %u", xh_version);
	CHECK(xh_v1(refs[0])->flags == 0, "it grants something");
	xen_gnttab_prune();
	CHECK(grants("free") == per_page - 8 && grants("in_use") == 3 * per_page, "counts");
	/* It has no room for more than at first. */
	xh_begin();
	xh_max_frames = 5;
	CHECK(xen_gnttab_resume() == 0 && xh_frames() == 4 && grants("max_pages") == 4, "no table");
	/* Two pages: what was in the others is dead, and what is given back is not given out. */
	xh_begin();
	xh_max_frames = 2;
	CHECK(xen_gnttab_resume() == 0, "no table");
	CHECK(xh_status_frames() == version - 1, "%u pages of status", xh_status_frames());
	CHECK(xh_frames() == 2 && grants("pages") == 2 && grants("max_pages") == 2, "%u pages",
	    xh_frames());
	xen_gnttab_prune();
	CHECK(grants("free") == per_page - 8, "%ju free", (uintmax_t)grants("free"));
	/* Those of the last page were the first to be given out: they grant nothing, and end. */
	if (version == 1)
		dead = (volatile uint16_t *)((grant_entry_v1_t *)xh_start + refs[0]);
	else
		dead = (volatile uint16_t *)((grant_entry_v2_t *)xh_start + refs[0]);
	xen_gnttab_grant(refs[0], 1, ptoa(1), false);
	CHECK(refs[0] >= 2 * per_page && *dead == 0, "reference %u grants something", refs[0]);
	*dead = GTF_reading;
	CHECK(xen_gnttab_end(refs, 3 * per_page) == 0, "deferred");
	CHECK(grants("free") == 2 * per_page - 8 && grants("in_use") == 0, "%ju free",
	    (uintmax_t)grants("free"));
	CHECK(xen_gnttab_room(&all) == 2 * per_page - 8 && all == 2 * per_page, "room");
	CHECK(xen_gnttab_alloc(refs, 2 * per_page - 7) == ENOSPC, "more than all");
	CHECK(xen_gnttab_alloc(refs, 2 * per_page - 8) == 0, "not all");
	for (i = 0; i < 2 * per_page - 8; i++)
		CHECK(refs[i] < 2 * per_page, "a dead one");
	CHECK(xen_gnttab_end(refs, 2 * per_page - 8) == 0, "deferred");
	CHECK(*dead == GTF_reading, "it was written to");
	/* And what is free dies. */
	xh_begin();
	xh_max_frames = 1;
	CHECK(xen_gnttab_resume() == 0 && grants("free") == 2 * per_page - 8, "no table");
	xen_gnttab_prune();
	CHECK(grants("free") == per_page - 8, "%ju free", (uintmax_t)grants("free"));
	table_end();
}

static void
table_of_version_1_after_a_suspension(void)
{

	table_after_a_suspension(1);
}

static void
table_of_version_2_after_a_suspension(void)
{

	table_after_a_suspension(2);
}

/* Each thing that a new domain may not have. */
static void
table_is_lost(void)
{
	u_int i;

	table_begin(1, 3);
	xh_begin();
	xh_fail_map = 1;
	CHECK(xen_gnttab_resume() == ENOMEM, "a table");
	/* Without the call it has version 1; the size is as it was if there is no other. */
	xh_begin();
	xh_versions = 0;
	xh_query_error = ENOSYS;
	CHECK(xen_gnttab_resume() == 0 && xh_frames() == 1 && grants("max_pages") == 3, "no table");
	xh_query_error = 0;
	table_end();
	table_begin(2, 3);
	for (i = 1; i <= 2; i++) {
		xh_begin();
		xh_fail_map = i;
		CHECK(xen_gnttab_resume() == ENOMEM, "%u: a table", i);
	}
	xh_begin();
	xh_versions = 1U << 1;
	CHECK(xen_gnttab_resume() == EINVAL, "version 1 will do");
	xh_versions = 6;
	xh_begin();
	CHECK(xen_gnttab_resume() == 0, "no table");
	table_end();
}

/* Suspensions: each part says that it is called, with the CPU that calls it. */

static int xen_error;		/* of the hypercall */
static bool xen_cancels;	/* the domain goes on as it is */
static const char *lost;	/* this part can't be had again */
static int resume_error;	/* of xenstore */
static u_int parked;		/* CPUs that are */
static void (*xen_is_called)(void);

static void
part(const char *what)
{
	char text[32];

	CHECK(parked != 0, "%s: CPUs run", what);
	snprintf(text, sizeof(text), "%u:%s", curcpu, what);
	called(text);
}

static int
part_error(const char *what)
{

	part(what);
	return (lost != NULL && strcmp(lost, what) == 0 ? ENXIO : 0);
}

int
xen_suspend(bool *cancelled)
{

	part("xen");
	CHECK(parked == 2, "%u CPUs are parked", parked);
	if (xen_is_called != NULL)
		xen_is_called();
	*cancelled = xen_cancels;
	return (xen_error);
}

void
xen_platform_resume(void)
{

	part("platform");
	CHECK(xen_life == 1, "life %u", xen_life);
}

int
xen_cpu_resume(void)
{

	return (part_error("cpu"));
}

int
xen_evtchn_resume(void)
{

	return (part_error("evtchn"));
}

int
xen_cpu_resume_self(bool first)
{

	return (part_error(first ? "self-first" : "self"));
}

int
xen_upcall_resume(void)
{

	return (part_error("upcall"));
}

void
xen_evtchn_resume_self(void)
{

	part("evtchn-self");
}

void
xen_timer_resume_self(void)
{

	part("timer-self");
}

void
xen_evtchn_suspend(void)
{

	called("evtchn-held");
}

void
xen_evtchn_go_on(void)
{

	called("evtchn-go-on");
}

void
xen_clock_resume(bool cancelled)
{

	called(cancelled ? "clock-as-before" : "clock");
}

void
xenstore_suspend(void)
{

	called("xenstore-held");
}

int
xenstore_resume(bool cancelled)
{

	called(cancelled ? "xenstore-as-before" : "xenstore");
	return (resume_error);
}

void
xenbus_suspend(device_t xenbus)
{

	CHECK(xenbus == bus, "another");
	called("held");
}

void
xenbus_resume(device_t xenbus, bool cancelled)
{

	CHECK(xenbus == bus, "another");
	called(cancelled ? "as-before" : "begin-again");
}

void
xenbus_wait_connect(device_t xenbus)
{

	CHECK(xenbus == bus, "another");
	called("connect");
}

void
xenbus_report_missing(device_t xenbus)
{

	CHECK(xenbus == bus, "another");
	called("missing");
}

/* Two CPUs: that of vCPU 0 is here first, and the other can't wait for it, as they are one thread. */
void
smp_rendezvous(void (*setup)(void *), void (*action)(void *), void (*teardown)(void *), void *arg)
{
	u_int cpu, first = xen_cpus[1].xc_vcpu == 0 ? 1 : 0;

	CHECK(teardown == NULL && setup != NULL && kpi_mutexes == 0, "a mutex is held");
	for (cpu = 0; cpu <= mp_maxid; cpu++)
		setup(arg);
	parked = 2;
	PCPU_SET(cpuid, first);
	action(arg);
	PCPU_SET(cpuid, 1 - first);
	action(arg);
	PCPU_SET(cpuid, 0);
	parked = 0;
}

static void
power(void *what)
{

	called(what);
}
EVENTHANDLER_DEFINE(power_suspend_early, power, __DECONST(char *, "power-early"), 0);
EVENTHANDLER_DEFINE(power_suspend, power, __DECONST(char *, "power-suspend"), 0);
EVENTHANDLER_DEFINE(power_resume, power, __DECONST(char *, "power-resume"), 0);

/* Who wants it. */
static bool wanted, withdrawn;

static bool
is_wanted(void)
{

	called("wanted?");
	return (wanted);
}

static bool
take(void)
{

	called("take");
	return (!withdrawn);
}

static void
suspended(bool cancelled)
{

	called(cancelled ? "done-as-before" : "done");
}

static const struct xen_suspend_ops ops = { is_wanted, take, suspended };

/* With a grant table, and vCPU 0 on the second CPU. */
static void
suspend_begin(bool with_bus)
{

	mp_maxid = 1;
	CPU_SETOF(0, &all_cpus);
	CPU_SET(1, &all_cpus);
	xen_cpus[0].xc_vcpu = 1;
	xen_cpus[1].xc_vcpu = 0;
	xen_life = 0;
	if (with_bus) {
		bus_topo_lock();
		bus->state = DS_ATTACHED;
		bus_topo_unlock();
	}
	table_begin(1, 2);
	CHECK(xen_suspend_init(dev) == 0, "not begun");
	xen_suspend_sysctl(&ctx, &tree);
	wanted = true;
}

static void
suspend_end(void)
{

	xen_suspend_fini(dev);
	xen_suspend_fini(dev);
	table_end();
	bus->state = DS_NOTPRESENT;
}

#define	HELD	"wanted? held take power-early power-suspend xenstore-held evtchn-held 1:xen "

static void
new_domain(void)
{

	xh_begin();
	xh_version = 1;
}

static void
domain_is_suspended(void)
{
	u_int set;

	suspend_begin(true);
	xen_suspend_allow();
	set = xh_version_set;
	xen_is_called = new_domain;
	xen_suspend_soon(&ops);
	CALLED(HELD "1:platform 1:cpu 1:evtchn 1:self-first 1:upcall 1:evtchn-self 1:timer-self "
	    "0:self 0:upcall 0:evtchn-self 0:timer-self evtchn-go-on clock power-resume xenstore "
	    "begin-again connect missing done ");
	SAID("xen0: the domain has been suspended, and goes on\n");
	CHECK(xen_life == 1 && xh_frames() == 1 && xh_version_set == set + 1, "no grant table");
	CHECK(kpi_sysctl_value("suspend.count") == 1 && kpi_sysctl_value("suspend.cancelled") == 0,
	    "counted");
	xen_is_called = NULL;
	suspend_end();
}

static void
suspension_is_cancelled(void)
{
	int lines;

	suspend_begin(true);
	xen_suspend_allow();
	lines = kpi_lines;
	xen_cancels = true;
	xen_suspend_soon(&ops);
	CALLED(HELD "evtchn-go-on clock-as-before power-resume xenstore-as-before as-before "
	    "done-as-before ");
	SAID("xen0: the suspension was cancelled\n");
	CHECK(kpi_lines == lines + 1, "said: %s", kpi_line_before);
	CHECK(kpi_sysctl_value("suspend.count") == 1 && kpi_sysctl_value("suspend.cancelled") == 1,
	    "counted");
	/* Xen does not do it: the same, and the next may be. */
	xen_cancels = false;
	xen_error = ENOSYS;
	xen_suspend_soon(&ops);
	CALLED(HELD "evtchn-go-on clock-as-before power-resume xenstore-as-before as-before "
	    "done-as-before ");
	CHECK(strcmp(kpi_line_before, "xen0: Xen does not suspend the domain (error 78)\n") == 0, "%s",
	    kpi_line_before);
	SAID("xen0: the suspension was cancelled\n");
	CHECK(kpi_sysctl_value("suspend.cancelled") == 2 && xen_life == 0, "counted");
	xen_error = 0;
	xen_is_called = new_domain;
	xen_suspend_soon(&ops);
	kpi_settle();
	SAID("xen0: the domain has been suspended, and goes on\n");
	CHECK(kpi_sysctl_value("suspend.count") == 3 && kpi_sysctl_value("suspend.cancelled") == 2,
	    "counted");
	xen_is_called = NULL;
	suspend_end();
}

static void
request_is_withdrawn(void)
{

	suspend_begin(true);
	/* It waits until there is something to suspend. */
	xen_suspend_soon(&ops);
	CALLED("");
	wanted = false;
	xen_suspend_allow();
	CALLED("wanted? ");
	wanted = withdrawn = true;
	xen_suspend_soon(&ops);
	CALLED("wanted? held take as-before ");
	SAID("xen0: the request to suspend was withdrawn\n");
	CHECK(kpi_sysctl_value("suspend.count") == 0, "counted");
	withdrawn = false;
	suspend_end();
	/* And goes with xen0 that does not attach. */
	suspend_begin(true);
	xen_suspend_soon(&ops);
	suspend_end();
	CALLED("");
}

/* Nothing is held of a bus that is not attached. */
static void
suspension_without_front_ends(void)
{

	suspend_begin(false);
	xen_suspend_allow();
	xen_is_called = new_domain;
	resume_error = ETIMEDOUT;
	xen_suspend_soon(&ops);
	CALLED("wanted? take power-early power-suspend xenstore-held evtchn-held 1:xen "
	    "1:platform 1:cpu 1:evtchn 1:self-first 1:upcall 1:evtchn-self 1:timer-self "
	    "0:self 0:upcall 0:evtchn-self 0:timer-self evtchn-go-on clock power-resume xenstore "
	    "done ");
	CHECK(strcmp(kpi_line_before, "xen0: xenstore does not answer after the suspension (error 60): "
	    "devices stay without back ends\n") == 0, "%s", kpi_line_before);
	resume_error = 0;
	withdrawn = true;
	xen_suspend_soon(&ops);
	CALLED("wanted? take ");
	withdrawn = false;
	xen_is_called = NULL;
	suspend_end();
	kpi_no_threads = true;
	CHECK(xen_suspend_init(dev) == ENOMEM, "begun");
	kpi_no_threads = false;
	xen_suspend_fini(dev);
}

/* A part that is not there again is the end: of the first that was lost. */
static char last_words[128];

static void
dies(const char *what, const char *words)
{

	lost = what;
	xen_life = 0;
	xen_is_called = new_domain;
	last_words[0] = '\0';
	suspend_begin(true);
	xen_suspend_allow();
	xen_suspend_soon(&ops);
	kpi_settle();
	CHECK(strcmp(last_words, words) == 0, "%s: %s", what, last_words);
}

void
panic(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(last_words, sizeof(last_words), fmt, ap);
	va_end(ap);
	CHECK(lost != NULL || xsn_node("control", "sysrq", false) != NULL, "%s", last_words);
	lost = NULL;
	parked = 0;
	called("panic");
	for (;;)
		(void)pause("panic", hz);
}

#define	DIES(name, what, words)						\
static void								\
name(void)								\
{									\
									\
	dies(what, words);						\
}
DIES(shared_info_is_lost, "cpu",
    "xen: failed to restore the shared info page after the suspension (error 6)")
DIES(channels_are_lost, "evtchn",
    "xen: failed to restore event channels after the suspension (error 6)")
DIES(memory_of_a_cpu_is_lost, "self", "xen: no upcalls for CPU 0 after the suspension (error 6)")
DIES(upcall_is_lost, "upcall", "xen: no upcalls for CPU 1 after the suspension (error 6)")

static void
no_table(void)
{

	new_domain();
	xh_fail_map = 1;
}

static void
grants_are_lost(void)
{

	suspend_begin(true);
	xen_is_called = no_table;
	lost = "grants";
	xen_suspend_allow();
	xen_suspend_soon(&ops);
	kpi_settle();
	CHECK(strcmp(last_words,
	    "xen: failed to restore the grant table after the suspension (error 12)") == 0, "%s",
	    last_words);
}

/* A panic leaves all as it is. */
static void
dying_of(const void *arg)
{

	begin();
	((void (*)(void))(uintptr_t)arg)();
}

static void
run_dying(const void *arg)
{

	kpi_threads(dying_of, arg);
}

/* Requests of the administrator. */

static struct xenstore_watch *control_watches[2];
static int watch_fails;

int
xenstore_watch_add(struct xenstore_watch *w, const char *dir, const char *name)
{
	u_int i = strcmp(name, "sysrq") == 0;

	CHECK(strcmp(dir, "control") == 0 && (i == 1 || strcmp(name, "shutdown") == 0), "%s", name);
	CHECK(control_watches[i] == NULL, "twice");
	if (watch_fails > 0 && --watch_fails == 0)
		return (EACCES);
	control_watches[i] = w;
	return (0);
}

void
xenstore_watch_remove(struct xenstore_watch *w)
{
	u_int i;

	CHECK(w->xw_changed != NULL, "no watch");
	for (i = 0; i < nitems(control_watches); i++)
		if (control_watches[i] == w)
			control_watches[i] = NULL;
}

static void
how(const char *what, int howto)
{
	char text[32];

	snprintf(text, sizeof(text), "%s-0x%x", what, howto);
	called(text);
}

void
shutdown_nice(int howto)
{

	how("shutdown", howto);
}

void
kern_reboot(int howto)
{

	how("reboot", howto);
	for (;;)
		(void)pause("reboot", hz);
}

/* xenstore's thread of watches. */
static void
fire(void *arg)
{
	struct xenstore_watch *w = control_watches[(uintptr_t)arg];

	w->xw_changed(w, "control");
}

/* The toolstack writes to control/shutdown (0), or control/sysrq. */
static void
request(u_int which, const char *value)
{

	if (value != NULL)
		xsn_set("control", which == 0 ? "shutdown" : "sysrq", "%s", value);
	kpi_line[0] = '\0';
	kpi_thread_start(fire, (void *)(uintptr_t)which);
	kpi_settle();
}

static void
requests(u_int which, const char *value, const char *calls_for, const char *said)
{

	request(which, value);
	CALLED(calls_for);
	SAID(said);
	CHECK(strcmp(xsn_node("control", which == 0 ? "shutdown" : "sysrq", false), "") == 0,
	    "%s: not acknowledged", value);
}

static void
check_announced(const char *expected)
{
	static const char *const features[] = { "feature-poweroff", "feature-reboot", "feature-halt",
	    "feature-suspend", "feature-sysrq" };
	const char *value;
	u_int i;

	for (i = 0; i < nitems(features); i++) {
		value = xsn_node("control", features[i], false);
		CHECK(value != NULL && strcmp(value, expected) == 0, "%s is %s", features[i], value);
		xsn_set("control", features[i], "0");
	}
}

static void
administrator_requests(void)
{
	static const char other[] = "xen0: the toolstack requests \"%s\", which is not supported\n";
	char line[128], word[20];

	CHECK(xen_control_init(dev) == 0, "not begun");
	check_announced("1");
	/* The first event, without a node, and one that was acknowledged. */
	request(0, NULL);
	request(1, NULL);
	CALLED("");
	SAID("");
	xsn_set("control", "shutdown", "%s", "");
	request(0, NULL);
	CALLED("");
	SAID("");
	requests(0, "poweroff", "shutdown-0x4000 ", "xen0: the toolstack requests poweroff\n");
	requests(0, "reboot", "shutdown-0x0 ", "xen0: the toolstack requests reboot\n");
	requests(0, "halt", "shutdown-0x8 ", "xen0: the toolstack requests halt\n");
	snprintf(line, sizeof(line), other, "crash");
	requests(0, "crash", "", line);
	/* Of a word that is longer, and what can't be printed of it. */
	strlcpy(word, "power\x1b\xffoff4567890", sizeof(word));
	snprintf(line, sizeof(line), other, "power??off45678");
	requests(0, word, "", line);
	snprintf(line, sizeof(line), other, "reboot?");
	requests(0, "reboot\n", "", line);
	xen_control_fini(dev);
	CHECK(control_watches[0] == NULL && control_watches[1] == NULL, "watched");
}

static void
letters(void)
{

	CHECK(xen_control_init(dev) == 0, "not begun");
	requests(1, "h", "", "\n");
	CHECK(strcmp(kpi_line_before, ", c (panic)") == 0, "%s", kpi_line_before);
	requests(1, "bo", "", "\n");
	requests(1, "b", "reboot-0x4 ", "xen0: sysrq: reboot at once\n");
	requests(1, "o", "reboot-0x4004 ", "xen0: sysrq: power off at once\n");
	requests(1, "c", "panic ", "xen0: sysrq: panic\n");
	CHECK(strcmp(last_words, "requested by the toolstack") == 0, "%s", last_words);
	xen_control_fini(dev);
}

/* What is not acknowledged is not done. */
static void
request_without_an_answer(void)
{

	CHECK(xen_control_init(dev) == 0, "not begun");
	xsn_no_writing = EACCES;
	request(0, "poweroff");
	CALLED("");
	SAID("xen0: control/shutdown can't be read and emptied (error 13)\n");
	request(1, "b");
	CALLED("");
	SAID("xen0: control/sysrq can't be read and emptied (error 13)\n");
	xsn_no_writing = 0;
	xsn_no_answer = ETIMEDOUT;
	request(0, NULL);
	CALLED("");
	SAID("xen0: control/shutdown can't be read and emptied (error 60)\n");
	xsn_no_answer = 0;
	requests(0, NULL, "shutdown-0x4000 ", "xen0: the toolstack requests poweroff\n");
	xen_control_fini(dev);
	for (int i = 1; i <= 2; i++) {
		watch_fails = i;
		CHECK(xen_control_init(dev) == EACCES, "begun");
		SAID(i == 1 ? "xen0: control/shutdown can't be watched (error 13)\n" :
		    "xen0: control/sysrq can't be watched (error 13)\n");
		xen_control_fini(dev);
		CHECK(control_watches[0] == NULL && control_watches[1] == NULL, "watched");
	}
}

/* It is acknowledged when nothing holds it up. */
static void
administrator_requests_a_suspension(void)
{

	suspend_begin(true);
	CHECK(xen_control_init(dev) == 0, "not begun");
	check_announced("1");
	xen_suspend_allow();
	xen_is_called = new_domain;
	request(0, "suspend");
	SAID("xen0: the domain has been suspended, and goes on\n");
	CHECK(strncmp(calls, "held power-early ", 17) == 0, "%s", calls);
	calls[0] = '\0';
	CHECK(strcmp(xsn_node("control", "shutdown", false), "") == 0, "not acknowledged");
	check_announced("1");
	xen_cancels = true;
	xen_is_called = NULL;
	request(0, "suspend");
	SAID("xen0: the suspension was cancelled\n");
	check_announced("0");
	calls[0] = '\0';
	/* It can't be taken: the toolstack wants something else by now, or does not answer. */
	xsn_no_writing = EACCES;
	request(0, "suspend");
	CALLED("held as-before ");
	SAID("xen0: the request to suspend was withdrawn\n");
	CHECK(strcmp(kpi_line_before,
	    "xen0: control/shutdown can't be read and emptied (error 13)\n") == 0, "%s",
	    kpi_line_before);
	xsn_no_writing = 0;
	xen_control_fini(dev);
	xen_cancels = false;
	xen_is_called = NULL;
	suspend_end();
}

#define	TEST(name, descr)	{ #name, descr, run, (const void *)name }
#define	DYING(name, descr)	{ #name, descr, run_dying, (const void *)name }

static const struct hosted_test tests[] = {
	TEST(version_is_negotiated, "With a Xen that may know one only"),
	TEST(table_that_can_not_begin, "Leaves nothing"),
	TEST(table_of_version_1_grows, "Until Xen allows no more"),
	TEST(table_of_version_2_grows, "Until Xen allows no more"),
	TEST(status_array_grows, "With the table"),
	TEST(entries_of_version_1, "As Xen reads them"),
	TEST(entries_of_version_2, "As Xen reads them"),
	TEST(table_of_version_1_after_a_suspension, "Which may be smaller"),
	TEST(table_of_version_2_after_a_suspension, "Which may be smaller"),
	TEST(table_is_lost, "By a suspension"),
	TEST(domain_is_suspended, "Part by part"),
	TEST(suspension_is_cancelled, "And all is as before"),
	TEST(request_is_withdrawn, "Before anything is suspended"),
	TEST(suspension_without_front_ends, "Has less to do"),
	DYING(shared_info_is_lost, "And nothing works"),
	DYING(channels_are_lost, "And nothing works"),
	DYING(memory_of_a_cpu_is_lost, "And nothing works"),
	DYING(upcall_is_lost, "And nothing works"),
	DYING(grants_are_lost, "And nothing works"),
	TEST(administrator_requests, "Words"),
	TEST(letters, "Of sysrq"),
	TEST(request_without_an_answer, "Is not acted on"),
	TEST(administrator_requests_a_suspension, "Which is acknowledged late"),
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
