/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FIFO event channels: another domain that sends, the CPU that Xen calls up, and the thread that
 * handles an event while its port is masked, are threads that sleep for each other and for nothing
 * else.  As in pvq_race.c, all of them are asleep when an event or an upcall is lost.
 *
 * Each event has a number, which the sender writes to plain memory before it sends and the handler
 * reads: under ThreadSanitizer an event that does not order the one behind the other is a race.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/interrupt.h>
#include <sys/sysctl.h>

#include <machine/cpufunc.h>
#include <machine/intr_machdep.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_var.h>

#include "host/host.h"
#include "kpi/intr.h"
#include "kpi/kpi.h"
#include "model/fifo_xen.h"
#include "model/peer.h"

#define	RACE_CHANNELS	8	/* every other one is handled in the upcall itself */
#define	RACE_BURST	20
#define	RACE_SPINS	20000
#if __has_feature(thread_sanitizer)
#define	RACE_ROUNDS	(host_soaking() ? 20000 : 1000)
#else
#define	RACE_ROUNDS	(host_soaking() ? 200000 : 10000)
#endif

static struct race_channel {
	struct xen_evtchn *rc_evtchn;
	uint64_t	 rc_sent __aligned(CACHE_LINE_SIZE);	/* numbers of events: the sender's */
	uint64_t	 rc_seen __aligned(CACHE_LINE_SIZE);	/* and the handler's */
	uint32_t	 rc_seed;
} race_channels[RACE_CHANNELS];

static struct host_bell race_cpu, race_thread, race_sender;
static uint64_t race_round;
static int race_over;

static void
race_hung(const char *who)
{
	char where[600];
	int i, n;

	fifo_xen_where(where, sizeof(where));
	n = strlen(where);
	for (i = 0; i < RACE_CHANNELS; i++)
		n += snprintf(where + n, sizeof(where) - n, ", %lu/%lu", race_channels[i].rc_seen,
		    race_channels[i].rc_sent);
	CHECK(false, "an event or an upcall is lost: all are asleep, the %s last, in round %lu: %s",
	    who, race_round, where);
}

static void
race_sleep(struct host_bell *bell, const char *who)
{

	if (!host_bell_wait(bell))
		race_hung(who);
}

/* Before an access of the driver: seldom, so that what follows at once does so as a rule. */
static void
race_access(void)
{
	volatile u_int n;
	uint64_t now = rdtsc();

	if (now % 4 != 0)
		return;
	for (n = now / 4 % (now / 256 % 16 == 0 ? 512 : 64); n > 0; n--)
		continue;
}

static void
race_upcall(void)
{

	host_bell_ring(&race_cpu);
}

static void
race_wake(void)
{

	host_bell_ring(&race_thread);
}

static bool
race_seen(struct race_channel *rc)
{

	return (__atomic_load_n(&rc->rc_seen, __ATOMIC_ACQUIRE) == rc->rc_sent);
}

/* An event: the work is done, and no event came without any. */
static void
race_handle(void *arg)
{
	struct race_channel *rc = arg;

	CHECK(rc->rc_sent - rc->rc_seen <= 1, "%lu sent, %lu seen", rc->rc_sent, rc->rc_seen);
	fifo_xen_dawdle(&rc->rc_seed);
	__atomic_store_n(&rc->rc_seen, rc->rc_sent, __ATOMIC_RELEASE);
	host_bell_ring(&race_sender);
}

static int
race_filter(void *arg)
{

	race_handle(arg);
	return (FILTER_HANDLED);
}

static void
race_cpu_body(void *arg __unused)
{

	while (!__atomic_load_n(&race_over, __ATOMIC_ACQUIRE)) {
		race_sleep(&race_cpu, "CPU");
		if (fifo_xen_calls())
			xen_evtchn_upcall(0, NULL);
	}
}

static void
race_thread_body(void *arg __unused)
{

	while (!__atomic_load_n(&race_over, __ATOMIC_ACQUIRE)) {
		race_sleep(&race_thread, "interrupt thread");
		while (kpi_intr_run() > 0)
			continue;
	}
}

/* Wait until a channel's event is handled: awake for a while, as whoever handles it mostly is. */
static void
race_await(struct race_channel *rc)
{
	int i;

	for (i = 0; i < RACE_SPINS; i++) {
		if (race_seen(rc))
			return;
	}
	while (!race_seen(rc))
		race_sleep(&race_sender, "sender");
}

/* Some events, each of a channel that waits for one, and nothing more until they are handled. */
static void
race_sender_body(void *arg __unused)
{
	struct race_channel *rc;
	uint32_t seed = 7;
	u_int i, n;

	for (race_round = 0; race_round < RACE_ROUNDS; race_round++) {
		n = 1 + peer_random(&seed) % RACE_BURST;
		for (i = 0; i < n; i++) {
			rc = &race_channels[peer_random(&seed) % RACE_CHANNELS];
			if (!race_seen(rc))
				continue;
			rc->rc_sent++;
			fifo_xen_send(xen_evtchn_port(rc->rc_evtchn));
			if (peer_random(&seed) % 4 == 0)
				fifo_xen_dawdle(&seed);
		}
		for (rc = race_channels; rc < race_channels + RACE_CHANNELS; rc++)
			race_await(rc);
	}
	__atomic_store_n(&race_over, 1, __ATOMIC_RELEASE);
	host_bell_ring(&race_cpu);
	host_bell_ring(&race_thread);
}

static void
race_open(void (*upcall)(void), void (*wake)(void))
{
	struct xen_evtchn_params params = { .xep_name = "race", .xep_cpu = -1 };
	int i;

	fifo_xen_open(upcall);
	kpi_intr_wake = wake;
	CHECK(xen_evtchn_init(kpi_device()) == 0 && !fifo_xen_calls() && kpi_lines == 0,
	    "no event channels");
	for (i = 0; i < RACE_CHANNELS; i++) {
		race_channels[i].rc_seed = i;
		params.xep_arg = &race_channels[i];
		params.xep_filter = i % 2 != 0 ? race_filter : NULL;
		params.xep_handler = i % 2 != 0 ? NULL : race_handle;
		CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &race_channels[i].rc_evtchn) == 0,
		    "channel %d", i);
	}
}

static void
race_close(void)
{
	int i;

	for (i = 0; i < RACE_CHANNELS; i++)
		xen_evtchn_free(race_channels[i].rc_evtchn);
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

static void
race_events(const void *arg __unused)
{
	/* The sender beside the two others, where there are two CPUs. */
	void (*const bodies[])(void *) = { race_cpu_body, race_sender_body, race_thread_body };

	race_open(race_upcall, race_wake);
	kpi_access_hook = race_access;
	host_run_apart(bodies, nitems(bodies), NULL);
	race_close();
}

#if !__has_feature(thread_sanitizer)
static int each_target;
static u_int each_access;

static void
each_nothing(void)
{
}

static void
each_send(int channel)
{

	if (race_seen(&race_channels[channel])) {
		race_channels[channel].rc_sent++;
		fifo_xen_send(xen_evtchn_port(race_channels[channel].rc_evtchn));
	}
}

static void
each_hook(void)
{

	if (each_access != 0 && --each_access == 0)
		each_send(each_target);
}

/* All that is due, with one more event at an access on the way.  False: there were not so many. */
static bool
each_turn(u_int set, u_int access)
{
	struct race_channel *rc;
	int i;

	for (i = 0; i < RACE_CHANNELS; i++) {
		if ((set & 1U << i) != 0)
			each_send(i);
	}
	each_access = access;
	kpi_access_hook = each_hook;
	do {
		while (fifo_xen_calls())
			xen_evtchn_upcall(0, NULL);
	} while (kpi_intr_run() > 0 || fifo_xen_calls());
	kpi_access_hook = NULL;
	for (rc = race_channels; rc < race_channels + RACE_CHANNELS; rc++) {
		if (!race_seen(rc))
			race_hung("test");
	}
	return (each_access == 0);
}

static void
strange_upcall(void)
{

	while (fifo_xen_calls())
		xen_evtchn_upcall(0, NULL);
}

/* An event of a port that has no channel is the last one of that port. */
static void
strange_port(evtchn_port_t port)
{

	fifo_xen_unmask(port);
	fifo_xen_send(port);
	CHECK(fifo_xen_calls(), "no event of port %u", port);
	strange_upcall();
	fifo_xen_send(port);
	CHECK(!fifo_xen_calls(), "port %u without a channel is not masked", port);
}

/* What Xen should not say: ports without a word or a channel, and a queue that there can't be. */
static void
strange_ports(const void *arg __unused)
{
	struct race_channel *rc = &race_channels[1];

	race_open(each_nothing, each_nothing);
	fifo_xen_claim(3, PAGE_SIZE / sizeof(uint32_t));
	strange_upcall();
	fifo_xen_claim(3, UINT32_MAX);
	strange_upcall();
	rc->rc_sent++;
	fifo_xen_claim(EVTCHN_FIFO_MAX_QUEUES, xen_evtchn_port(rc->rc_evtchn));
	strange_upcall();
	CHECK(!race_seen(rc), "queue %u has an event", EVTCHN_FIFO_MAX_QUEUES);
	fifo_xen_unmask(xen_evtchn_port(rc->rc_evtchn));
	strange_upcall();
	CHECK(race_seen(rc), "its event is lost");
	strange_port(900);
	strange_port(400);
	/* The others go on. */
	(void)each_turn(1, 0);
	race_close();
}

/* Between an event and the end of its handler its port is masked: another one waits for that. */
static void
masked_until_handled(const void *arg __unused)
{
	struct race_channel *rc = &race_channels[0];

	race_open(each_nothing, each_nothing);
	each_send(0);
	strange_upcall();
	fifo_xen_send(xen_evtchn_port(rc->rc_evtchn));
	CHECK(!fifo_xen_calls(), "called up before the first event is handled");
	CHECK(kpi_intr_run() == 1 && race_seen(rc), "not handled");
	rc->rc_sent++;
	CHECK(fifo_xen_calls(), "the second event is lost");
	strange_upcall();
	CHECK(kpi_intr_run() == 1 && race_seen(rc), "not handled");
	race_close();
}

/* A channel that is freed before its thread was there stays masked; its CPU is what it asks for. */
static void
freed_under_its_thread(const void *arg __unused)
{
	struct xen_evtchn_params params = { .xep_name = "one", .xep_cpu = 0, .xep_handler = race_handle,
	    .xep_arg = &race_channels[0] };
	struct xen_evtchn *ec;

	race_open(each_nothing, each_nothing);
	CHECK(fifo_xen_bound == 0 && kpi_intr_bound == 0, "bound to a CPU");
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == 0 && fifo_xen_bound == 1 &&
	    kpi_intr_bound == 1, "not bound to a CPU");
	fifo_xen_send(xen_evtchn_port(ec));
	strange_upcall();
	xen_evtchn_free(ec);
	CHECK(kpi_intr_run() == 0, "a handler of no channel");
	race_close();
}

/* A port whose word there is no memory for is closed. */
static void
no_memory_for_a_word(const void *arg __unused)
{
	struct xen_evtchn_params params = { .xep_name = "more", .xep_cpu = -1,
	    .xep_filter = race_filter, .xep_arg = &race_channels[0] };
	struct xen_evtchn *ec;

	race_open(each_nothing, each_nothing);
	fifo_xen_next(PAGE_SIZE / sizeof(uint32_t));
	fifo_xen_no_pages = true;
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == ENOMEM &&
	    fifo_xen_ports == RACE_CHANNELS, "%d ports", fifo_xen_ports);
	fifo_xen_no_pages = false;
	fifo_xen_next(PAGE_SIZE / sizeof(uint32_t));
	fifo_xen_no_words = true;
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == ENOMEM &&
	    fifo_xen_ports == RACE_CHANNELS, "%d ports", fifo_xen_ports);
	fifo_xen_no_words = false;
	/* So is one for which there is no handler. */
	fifo_xen_next(RACE_CHANNELS + 1);
	for (kpi_intr_fails = 1; kpi_intr_fails <= 2; kpi_intr_fails++)
		CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == ENOMEM &&
		    fifo_xen_ports == RACE_CHANNELS, "%d ports", fifo_xen_ports);
	kpi_intr_fails = 0;
	fifo_xen_next(EVTCHN_FIFO_NR_CHANNELS);
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == ENOSPC &&
	    fifo_xen_ports == RACE_CHANNELS, "%d ports", fifo_xen_ports);
	fifo_xen_next(PAGE_SIZE / sizeof(uint32_t));
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == 0, "no channel");
	xen_evtchn_free(ec);
	race_close();
}

/* Which kind of channels there is, is said to who asks for that. */
static void
channels_are_said(const void *arg __unused)
{

	bootverbose = 1;
	fifo_xen_open(each_nothing);
	CHECK(xen_evtchn_init(kpi_device()) == 0 && !fifo_xen_calls() && kpi_lines == 1 &&
	    strncmp(kpi_line, "FIFO event channels, ", 21) == 0, "%d lines: %s", kpi_lines, kpi_line);
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
	bootverbose = 0;
}

static struct sysctl_ctx_list listed_ctx;
static struct sysctl_oid listed_tree;

/* What is said of each channel. */
static void
listed(const char *text)
{
	static char report[1024];
	size_t len = sizeof(report);

	CHECK(kpi_sysctl("evtchn.channels", report, &len, NULL, 0) == 0, "no report");
	CHECK(strcmp(report, text) == 0 && len == strlen(text) + 1, "%lu bytes:%s", len, report);
}

/* Two CPUs, the second of which has this vCPU, and perhaps no queues. */
static void
listed_open(u_int vcpu, bool refused)
{
	struct xen_evtchn_params params = { .xep_name = "early", .xep_cpu = -1 };
	struct xen_evtchn *ec;

	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == ENXIO, "before there is an interface");
	xen_evtchn_upcall(0, NULL);
	fifo_xen_second_cpu(vcpu, refused);
	fifo_xen_open(each_nothing);
	kpi_intr_wake = each_nothing;
	kpi_quiet = true;
	xen_pinned = false;
	CHECK(xen_evtchn_init(kpi_device()) == 0 && !fifo_xen_calls(), "no event channels");
	CHECK(xen_pinned, "Xen has pages of a module that may go");
	CHECK(kpi_lines == refused, "%d lines: %s", kpi_lines, kpi_line);
	(void)sysctl_ctx_init(&listed_ctx);
	xen_evtchn_sysctl(&listed_ctx, &listed_tree);
}

static struct xen_evtchn *
listed_alloc(const char *name, int cpu, driver_filter_t *filter, void *arg)
{
	struct xen_evtchn_params params = { .xep_name = name, .xep_cpu = cpu, .xep_filter = filter,
	    .xep_handler = filter == NULL ? race_handle : NULL, .xep_arg = arg };
	struct xen_evtchn *ec;
	int error;

	error = xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec);
	CHECK(error == 0, "%s: error %d", name, error);
	return (ec);
}

/* Where each channel's events go, and how many there were. */
static void
channels_are_listed(const void *arg __unused)
{
	struct xen_evtchn_params params = { .xep_name = "none", .xep_cpu = 2 };
	struct xen_evtchn *ec[3];
	char name[8];
	size_t len = sizeof(name);

	listed_open(5, false);
	listed("");
	CHECK(kpi_sysctl("evtchn.interface", name, &len, NULL, 0) == 0 && strcmp(name, "FIFO") == 0,
	    "%s", name);
	ec[0] = listed_alloc("any", -1, race_filter, &race_channels[0]);
	CHECK(fifo_xen_bound == 0, "moved");
	ec[1] = listed_alloc("second", 1, NULL, &race_channels[1]);
	CHECK(fifo_xen_bound == 1 && fifo_xen_vcpu == 5 && kpi_intr_bound == 1 && kpi_intr_cpu == 1,
	    "vCPU %u, CPU %d", fifo_xen_vcpu, kpi_intr_cpu);
	/* A filter has no thread. */
	ec[2] = listed_alloc("a name of twenty-two", 0, race_filter, &race_channels[2]);
	CHECK(fifo_xen_bound == 2 && fifo_xen_vcpu == 0 && kpi_intr_bound == 1, "vCPU %u",
	    fifo_xen_vcpu);
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec[2]) == EINVAL && fifo_xen_ports == 3,
	    "a CPU that is not there");
	race_channels[0].rc_evtchn = ec[0];
	each_send(0);
	strange_upcall();
	each_send(0);
	strange_upcall();
	xen_evtchn_notify(ec[1]);
	CHECK(fifo_xen_sent == 1, "%d sent", fifo_xen_sent);
	listed("\nport 1 alloc cpu 0 received 2 sent 0 any"
	    "\nport 2 alloc cpu 1 received 0 sent 1 second"
	    "\nport 3 alloc cpu 0 received 0 sent 0 a name of twenty-tw");
	CHECK(kpi_sysctl_value("evtchn.in_use") == 3 && kpi_sysctl_value("evtchn.strays") == 0,
	    "%lu in use, %lu strays", kpi_sysctl_value("evtchn.in_use"),
	    kpi_sysctl_value("evtchn.strays"));
	xen_evtchn_free(NULL);
	xen_evtchn_free(ec[1]);
	strange_port(2);
	strange_port(40);
	CHECK(kpi_sysctl_value("evtchn.in_use") == 2 && kpi_sysctl_value("evtchn.strays") == 2,
	    "%lu in use, %lu strays", kpi_sysctl_value("evtchn.in_use"),
	    kpi_sysctl_value("evtchn.strays"));
	xen_evtchn_free(ec[0]);
	xen_evtchn_free(ec[2]);
	listed("");
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

/* Channels begin at the CPU that is vCPU 0, whichever it is. */
static void
channels_begin_at_vcpu_0(const void *arg __unused)
{
	struct xen_evtchn *ec[2];

	listed_open(0, false);
	ec[0] = listed_alloc("any", -1, NULL, &race_channels[0]);
	CHECK(fifo_xen_bound == 0, "moved");
	ec[1] = listed_alloc("first", 0, NULL, &race_channels[1]);
	CHECK(fifo_xen_bound == 1 && fifo_xen_vcpu == 1, "vCPU %u", fifo_xen_vcpu);
	listed("\nport 1 alloc cpu 1 received 0 sent 0 any"
	    "\nport 2 alloc cpu 0 received 0 sent 0 first");
	xen_evtchn_free(ec[0]);
	xen_evtchn_free(ec[1]);
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

/* A CPU without queues gets no events, though its thread is where it was to be. */
static void
cpu_without_queues(const void *arg __unused)
{
	struct xen_evtchn *ec;

	listed_open(5, true);
	CHECK(strstr(kpi_line, "CPU 1 (error 22)") != NULL, "%s", kpi_line);
	ec = listed_alloc("second", 1, NULL, &race_channels[0]);
	CHECK(fifo_xen_bound == 1 && fifo_xen_vcpu == 0 && kpi_intr_cpu == 1, "vCPU %u, CPU %d",
	    fifo_xen_vcpu, kpi_intr_cpu);
	listed("\nport 1 alloc cpu 0 received 0 sent 0 second");
	xen_evtchn_free(ec);
	xen_evtchn_upcall(1, NULL);
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

/* Events of vmstat -i: of a name that it has, of one that there is room for, and of one more. */
static void
events_are_counted_by_name(const void *arg __unused)
{
	static struct {
		char	name[MAXCOMLEN + 1];
	} names[70];
	static u_long counts[nitems(names)];
	struct race_channel *rc = &race_channels[0];
	u_int i;

	intrnames = names[0].name;
	intrcnt = counts;
	sintrnames = sizeof(names);
	sintrcnt = sizeof(counts);
	snprintf(names[0].name, sizeof(names[0].name), "%-*s", MAXCOMLEN, "cpu0:timer");
	snprintf(names[1].name, sizeof(names[1].name), "%-*s", MAXCOMLEN, "xen: one");
	for (i = 2; i < 5; i++)
		snprintf(names[i].name, sizeof(names[i].name), "%-*s", MAXCOMLEN, "irq");
	listed_open(5, false);
	for (i = 0; i < 3; i++) {
		/* 65 are free, then 64. */
		/* And a name is cut to nineteen letters. */
		kpi_intr_counted = i == 1 ? "xen: fourteen-chars" : NULL;
		if (i == 2)
			snprintf(names[5].name, sizeof(names[5].name), "%-*s", MAXCOMLEN, "irq");
		rc->rc_evtchn = listed_alloc(i == 0 ? "one" : i == 1 ? "fourteen-chars-more" : "three",
		    -1, race_filter, rc);
		each_send(0);
		strange_upcall();
		xen_evtchn_free(rc->rc_evtchn);
		CHECK(counts[0] == 0 && counts[1] == 1 && kpi_intr_count == (i > 0),
		    "%lu of one, %lu of two", counts[1], kpi_intr_count);
	}
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

/* A port that is another's, by adoption or since a suspension, is not closed. */
static void
ports_of_others_stay(const void *arg __unused)
{
	struct xen_evtchn_params params = { .xep_name = "adopted", .xep_cpu = -1,
	    .xep_filter = race_filter, .xep_arg = &race_channels[0] };
	struct xen_evtchn *ec, *more;

	listed_open(5, false);
	CHECK(xen_evtchn_adopt(0, &params, &ec) == ENXIO &&
	    xen_evtchn_adopt(EVTCHN_FIFO_NR_CHANNELS, &params, &ec) == ENXIO, "a port that is none");
	CHECK(xen_evtchn_adopt(3, &params, &ec) == 0 && xen_evtchn_port(ec) == 3, "not adopted");
	CHECK(xen_evtchn_adopt(3, &params, &more) == EBUSY, "adopted twice");
	listed("\nport 3 adopt cpu 0 received 0 sent 0 adopted");
	race_channels[0].rc_evtchn = ec;
	each_send(0);
	strange_upcall();
	CHECK(race_seen(&race_channels[0]), "not handled");
	xen_evtchn_free(ec);
	CHECK(fifo_xen_ports == 0, "closed");
	ec = listed_alloc("former", -1, race_filter, &race_channels[0]);
	CHECK(fifo_xen_ports == 1, "%d ports", fifo_xen_ports);
	atomic_add_int(&xen_life, 1);
	xen_evtchn_free(ec);
	CHECK(fifo_xen_ports == 1, "closed");
	fifo_xen_ports = 0;
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

static struct xen_evtchn *urgent[8];
static char urgent_order[8];

static int
urgent_filter(void *arg)
{
	struct xen_evtchn **ec = arg;
	size_t n = strlen(urgent_order);

	urgent_order[n] = '0' + xen_evtchn_port(*ec);
	if (ec == &urgent[3] && n == 0)
		fifo_xen_send(2);
	return (FILTER_HANDLED);
}

/* What comes with a higher priority does not wait for all that is there. */
static void
urgent_events_come_next(const void *arg __unused)
{
	u_int i;

	listed_open(5, false);
	for (i = 0; i < nitems(urgent); i++)
		urgent[i] = listed_alloc("urgent", -1, urgent_filter, &urgent[i]);
	fifo_xen_send(4);
	fifo_xen_send(8);
	strange_upcall();
	CHECK(strcmp(urgent_order, "428") == 0, "%s", urgent_order);
	fifo_xen_send(1);
	fifo_xen_send(7);
	fifo_xen_send(2);
	strange_upcall();
	CHECK(strcmp(urgent_order, "428712") == 0, "%s", urgent_order);
	fifo_xen_send(7);
	strange_upcall();
	CHECK(strcmp(urgent_order, "4287127") == 0, "%s", urgent_order);
	for (i = 0; i < nitems(urgent); i++)
		xen_evtchn_free(urgent[i]);
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

static bool storm_works;

static void
storm_handler(void *arg)
{

	if (storm_works)
		xen_evtchn_worked(*(struct xen_evtchn **)arg);
}

/* So many events, one at a time, are handled at once. */
static void
storm_of(int n)
{
	int i;

	for (i = 0; i < n; i++) {
		fifo_xen_send(1);
		CHECK(fifo_xen_calls(), "event %d waits", i);
		strange_upcall();
		CHECK(kpi_intr_run() == 1, "not handled");
	}
	CHECK(kpi_sysctl_value("evtchn.braked") == 0, "braked");
}

/* After 32 rounds without work the next event waits for a tick, until there is work, or a pause. */
static void
storm_is_braked(const void *arg __unused)
{
	struct xen_evtchn *ec;
	struct xen_evtchn_params params = { .xep_name = "storm", .xep_cpu = -1,
	    .xep_handler = storm_handler, .xep_arg = &ec, .xep_brake = true };
	int i;

	listed_open(5, false);
	ticks = 0x7ffffffa;
	CHECK(xen_evtchn_alloc(FIFO_XEN_REMOTE, &params, &ec) == 0, "no channel");
	storm_works = true;
	storm_of(50);
	storm_works = false;
	/* The round with work was the first of those that follow each other. */
	storm_of(31);
	for (i = 0; i < hz / 10 + 1; i++)
		kpi_intr_tick();
	storm_of(32);
	storm_works = true;
	storm_of(1);
	storm_works = false;
	storm_of(31);
	for (i = 0; i < hz / 10; i++)
		kpi_intr_tick();
	fifo_xen_send(1);
	for (i = 1; i <= 3; i++) {
		CHECK(fifo_xen_calls(), "it waits for more than a tick");
		strange_upcall();
		CHECK(kpi_intr_run() == 1, "not handled");
		CHECK(kpi_sysctl_value("evtchn.braked") == (uint64_t)i, "not braked");
		fifo_xen_send(1);
		CHECK(!fifo_xen_calls(), "it does not wait");
		kpi_intr_tick();
	}
	/* It is freed while it waits. */
	strange_upcall();
	CHECK(kpi_intr_run() == 1, "not handled");
	xen_evtchn_free(ec);
	kpi_intr_tick();
	xen_evtchn_fini(kpi_device());
	fifo_xen_close();
}

static void
race_at_each_access(const void *arg __unused)
{
	u_int access, set;

	race_open(each_nothing, each_nothing);
	for (each_target = 0; each_target < RACE_CHANNELS; each_target++) {
		for (set = 1; set < 1U << RACE_CHANNELS; set += 3) {
			for (access = 1; each_turn(set, access); access++)
				race_round++;
		}
	}
	race_close();
}
#endif

static const struct hosted_test tests[] = {
	{ "fifo_loses_no_event", "Sender, CPU and interrupt thread race each other to sleep",
	    race_events, NULL },
#if !__has_feature(thread_sanitizer)
	{ "fifo_strange_ports", "Without a word, and without a channel", strange_ports, NULL },
	{ "fifo_masked_until_handled", "And called up then", masked_until_handled, NULL },
	{ "fifo_freed_under_its_thread", "Closed while it is masked", freed_under_its_thread, NULL },
	{ "fifo_channels_are_said", "When the kernel boots with -v", channels_are_said, NULL },
	{ "fifo_no_memory_for_a_word", "The port is closed", no_memory_for_a_word, NULL },
	{ "fifo_channels_are_listed", "With their CPUs, and what came and went",
	    channels_are_listed, NULL },
	{ "fifo_channels_begin_at_vcpu_0", "Whichever CPU that is", channels_begin_at_vcpu_0, NULL },
	{ "fifo_cpu_without_queues", "Another one has its events", cpu_without_queues, NULL },
	{ "fifo_events_are_counted_by_name", "In vmstat -i, while there is room",
	    events_are_counted_by_name, NULL },
	{ "fifo_ports_of_others_stay", "Open, when their channel is freed", ports_of_others_stay,
	    NULL },
	{ "fifo_urgent_events_come_next", "By the priority of their queue", urgent_events_come_next,
	    NULL },
	{ "fifo_storm_is_braked", "Of events without work", storm_is_braked, NULL },
	{ "fifo_event_at_each_access", "One more event arrives between any two accesses of the driver",
	    race_at_each_access, NULL },
#endif
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
