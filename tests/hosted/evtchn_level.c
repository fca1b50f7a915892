/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Event channels by two levels of bits, with Xen's half of them, on two CPUs; and virtual interrupts
 * and suspensions, which are the same by either interface.
 *
 * Xen does here what the interface says and no more: it looks at a port's mask when an event comes, or
 * when it unmasks the port itself, and calls a vCPU up only when the bit of a word becomes set.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/smp.h>
#include <sys/sysctl.h>

#include <machine/cpufunc.h>

#include <dev/xen/xen_evtchn.h>
#include <dev/xen/xen_hypercall.h>
#include <dev/xen/xen_tunable.h>
#include <dev/xen/xen_var.h>

#include "host/host.h"
#include "kpi/intr.h"
#include "kpi/kpi.h"

#define	NPORTS		EVTCHN_2L_NR_CHANNELS
#define	REMOTE		1

MALLOC_DEFINE(M_XEN, "xen", "");

struct xen_cpu xen_cpus[MAXCPU];
struct shared_info *xen_shared;
volatile u_int xen_life;
bool xen_pinned;

/* Xen. */

static struct shared_info shared;
static struct vcpu_info infos[2];
static struct {
	bool	open;
	u_int	vcpu;
	int	virq;		/* -1: none */
} ports[NPORTS + 1];
static evtchn_port_t next_port = 1;
static int nopen, npages, nunmasked, nsent, bind_error;

static bool
test_and_set(xen_ulong_t *words, u_int bit)
{
	bool was = (words[bit / 64] >> bit % 64 & 1) != 0;

	words[bit / 64] |= 1UL << bit % 64;
	return (was);
}

static bool
is_set(const xen_ulong_t *words, u_int bit)
{

	return ((words[bit / 64] >> bit % 64 & 1) != 0);
}

static void
call_up(evtchn_port_t port)
{
	struct vcpu_info *info = &infos[ports[port].vcpu];

	if (!test_and_set(&info->evtchn_pending_sel, port / 64))
		info->evtchn_upcall_pending = 1;
}

static void
send(evtchn_port_t port)
{

	if (!test_and_set(shared.evtchn_pending, port) && !is_set(shared.evtchn_mask, port))
		call_up(port);
}

static void
unmask(evtchn_port_t port)
{

	if (!is_set(shared.evtchn_mask, port))
		return;
	shared.evtchn_mask[port / 64] &= ~(1UL << port % 64);
	if (is_set(shared.evtchn_pending, port))
		call_up(port);
}

static evtchn_port_t
open_port(int virq, u_int vcpu)
{
	evtchn_port_t port = next_port++;

	CHECK(port <= NPORTS && !ports[port].open, "port %u is open", port);
	ports[port].open = true;
	ports[port].virq = virq;
	ports[port].vcpu = vcpu;
	nopen++;
	return (port);
}

static int
bind_virq(struct evtchn_bind_virq *arg)
{
	u_int i;

	if (bind_error != 0)
		return (bind_error);
	for (i = 0; i < NPORTS; i++)
		if (ports[i].open && ports[i].virq == (int)arg->virq && ports[i].vcpu == arg->vcpu)
			return (EEXIST);
	arg->port = open_port(arg->virq, arg->vcpu);
	return (0);
}

int
xen_event_channel_op(u_int cmd, void *arg)
{
	evtchn_port_t port = ((struct evtchn_close *)arg)->port;

	switch (cmd) {
	case EVTCHNOP_init_control:
		return (ENOSYS);
	case EVTCHNOP_alloc_unbound:
		CHECK(((struct evtchn_alloc_unbound *)arg)->remote_dom == REMOTE, "another domain");
		((struct evtchn_alloc_unbound *)arg)->port = open_port(-1, 0);
		return (0);
	case EVTCHNOP_bind_virq:
		return (bind_virq(arg));
	case EVTCHNOP_send:
		CHECK(ports[port].open, "port %u is closed", port);
		nsent++;
		return (0);
	case EVTCHNOP_unmask:
		CHECK(kpi_intr_off, "unmasked while it may be freed");
		CHECK(is_set(shared.evtchn_pending, port), "port %u has no event", port);
		CHECK(is_set(shared.evtchn_mask, port), "it would do nothing for port %u", port);
		nunmasked++;
		unmask(port);
		return (0);
	case EVTCHNOP_bind_vcpu:
		CHECK(is_set(shared.evtchn_mask, port), "port %u is moved, not masked", port);
		ports[port].vcpu = ((struct evtchn_bind_vcpu *)arg)->vcpu;
		return (bind_error);
	case EVTCHNOP_close:
		CHECK(ports[port].open, "port %u is closed twice", port);
		CHECK(port >= NPORTS || is_set(shared.evtchn_mask, port),
		    "port %u is closed, not masked", port);
		ports[port].open = false;
		nopen--;
		return (0);
	default:
		CHECK(false, "EVTCHNOP %u", cmd);
		return (ENOSYS);
	}
}

void *
xen_page_alloc(void)
{
	void *page = host_alloc(PAGE_SIZE, PAGE_SIZE);

	memset(page, 0, PAGE_SIZE);
	npages++;
	return (page);
}

void
xen_page_free(void *page)
{

	npages--;
	host_free(page);
}

/* What the upcall does on a CPU, if Xen calls it up.  Returns false if it does not. */
static bool
upcall(u_int cpu)
{

	if (infos[xen_cpus[cpu].xc_vcpu].evtchn_upcall_pending == 0)
		return (false);
	xen_evtchn_upcall(cpu, NULL);
	CHECK(infos[xen_cpus[cpu].xc_vcpu].evtchn_upcall_pending == 0, "not looked at");
	return (true);
}

/* A driver: what came, in its order, by the first letter of its name. */

static char came[64];

static void
handle(void *arg)
{
	size_t n = strlen(came);

	came[n] = *(const char *)arg;
}

static int
handle_at_once(void *arg)
{

	handle(arg);
	return (FILTER_HANDLED);
}

#define	CAME(text) do {							\
	CHECK(strcmp(came, (text)) == 0, "came: %s", came);		\
	memset(came, 0, sizeof(came));					\
} while (0)

static struct sysctl_ctx_list ctx;
static struct sysctl_oid tree;

static void
nothing(void)
{
}

static void
begin(int fifo)
{
	u_int i;

	xen_tunables[XEN_EVTCHN_FIFO].pt_value = fifo;
	xen_shared = &shared;
	mp_maxid = 1;
	CPU_SET(1, &all_cpus);
	/* CPUs and vCPUs are numbered differently. */
	for (i = 0; i < 2; i++) {
		xen_cpus[i].xc_vcpu = 1 - i;
		xen_cpus[i].xc_info = &infos[1 - i];
	}
	kpi_intr_wake = nothing;
	kpi_quiet = true;
	/* It has called up already, when there was nobody to look; and a port that it had is bound. */
	infos[1].evtchn_upcall_pending = 1;
	memset(came, 0, sizeof(came));
	bootverbose = 1;
	CHECK(xen_evtchn_init(kpi_device()) == 0, "no event channels");
	bootverbose = 0;
	CHECK(infos[1].evtchn_upcall_pending == 0, "nobody has looked");
	CHECK(strcmp(kpi_line, "2-level event channels, 4096\n") == 0, "%s", kpi_line);
	CHECK(npages == 0, "%d pages are left", npages);
	(void)sysctl_ctx_init(&ctx);
	xen_evtchn_sysctl(&ctx, &tree);
}

static void
end(void)
{

	xen_evtchn_fini(kpi_device());
	CHECK(nopen == 0, "%d ports are open", nopen);
	CHECK(kpi_mallocs == 0, "%d pieces of memory are left", kpi_mallocs);
}

static struct xen_evtchn *
channel(const char *name, int cpu, bool thread)
{
	struct xen_evtchn_params params = { .xep_name = name, .xep_cpu = cpu,
	    .xep_filter = thread ? NULL : handle_at_once, .xep_handler = thread ? handle : NULL,
	    .xep_arg = __DECONST(char *, name) };
	struct xen_evtchn *ec;
	int error;

	error = xen_evtchn_alloc(REMOTE, &params, &ec);
	CHECK(error == 0, "%s: error %d", name, error);
	CHECK(!is_set(shared.evtchn_mask, xen_evtchn_port(ec)), "%s is masked", name);
	return (ec);
}

static void
listed(const char *text)
{
	char report[512];
	size_t len = sizeof(report);

	CHECK(kpi_sysctl("evtchn.channels", report, &len, NULL, 0) == 0, "no report");
	CHECK(strcmp(report, text) == 0, "%s", report);
}

/* By the tunable, or of a Xen that has no other; all ports are masked, and all CPUs have events. */
static void
interface_is_chosen(const void *arg __unused)
{
	char name[16];
	size_t len = sizeof(name);
	evtchn_port_t port;
	int fifo;

	for (fifo = 0; fifo < 2; fifo++) {
		memset(&shared, 0, sizeof(shared));
		begin(fifo);
		for (port = 0; port < NPORTS; port++)
			CHECK(is_set(shared.evtchn_mask, port), "port %u is not masked", port);
		CHECK(kpi_sysctl("evtchn.interface", name, &len, NULL, 0) == 0 &&
		    strcmp(name, "2-level") == 0, "%s", name);
		CHECK(!xen_cpus[0].xc_no_queues && !xen_cpus[1].xc_no_queues && !xen_pinned, "queues");
		end();
	}
}

/* Of any word, each once, in the order of their ports. */
static void
events_of_all_words(const void *arg __unused)
{
	static const evtchn_port_t at[] = { 1, 63, 64, 127, 128, 1000, 4032, 4095 };
	static const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
	struct xen_evtchn *ec[nitems(at)], *none;
	struct xen_evtchn_params params = { .xep_name = "x", .xep_cpu = -1, .xep_handler = handle };
	u_int i;

	begin(0);
	for (i = 0; i < nitems(at); i++) {
		next_port = at[i];
		ec[i] = channel(names[i], -1, false);
		CHECK(xen_evtchn_port(ec[i]) == at[i], "port %u", xen_evtchn_port(ec[i]));
	}
	CHECK(!upcall(1), "nothing came");
	for (i = nitems(at); i-- > 0;)
		send(at[i]);
	CHECK(upcall(1), "not called up");
	CAME("abcdefgh");
	for (i = 0; i < nitems(at); i++) {
		CHECK(!is_set(shared.evtchn_pending, at[i]), "port %u is pending", at[i]);
		send(at[i]);
		CHECK(upcall(1), "not called up");
	}
	CAME("abcdefgh");
	CHECK(!upcall(0) && !upcall(1) && nunmasked == 0, "more");
	/* No port is above these. */
	next_port = NPORTS;
	CHECK(xen_evtchn_alloc(REMOTE, &params, &none) == ENOSPC && nopen == nitems(at), "port 4096");
	CHECK(xen_evtchn_adopt(NPORTS, &params, &none) == ENXIO, "port 4096");
	CHECK(xen_evtchn_adopt(4095, &params, &none) == EBUSY, "another's");
	for (i = 0; i < nitems(at); i++)
		xen_evtchn_free(ec[i]);
	/* What comes for nobody is the last of that port. */
	for (i = 0; i < 2; i++) {
		unmask(500);
		send(500);
		CHECK(upcall(1) && is_set(shared.evtchn_mask, 500), "not masked");
		CHECK(kpi_sysctl_value("evtchn.strays") == i + 1, "strays");
	}
	CAME("");
	end();
}

/* What comes while the thread is there is sent again by Xen, and only then. */
static void
event_while_masked(const void *arg __unused)
{
	struct xen_evtchn *ec;
	evtchn_port_t port;
	int before = nunmasked;

	next_port = 70;
	begin(0);
	ec = channel("t", -1, true);
	port = xen_evtchn_port(ec);
	send(port);
	CHECK(upcall(1) && is_set(shared.evtchn_mask, port), "not masked");
	CHECK(kpi_intr_run() == 1 && !is_set(shared.evtchn_mask, port), "masked");
	CHECK(nunmasked == before && !upcall(1), "for nothing");
	CAME("t");
	send(port);
	CHECK(upcall(1), "not called up");
	send(port);
	CHECK(!upcall(1), "called up while it is masked");
	CHECK(kpi_intr_run() == 1 && nunmasked == before + 1, "not sent again");
	CHECK(upcall(1) && kpi_intr_run() == 1, "it is lost");
	CAME("tt");
	/* One that is freed stays masked, whatever comes. */
	send(port);
	CHECK(upcall(1), "not called up");
	send(port);
	xen_evtchn_free(ec);
	CHECK(is_set(shared.evtchn_mask, port) && kpi_intr_run() == 0, "not masked");
	CHECK(nunmasked == before + 1, "unmasked");
	end();
}

/* Two CPUs share a word: each takes its own. */
static void
cpus_share_a_word(const void *arg __unused)
{
	struct xen_evtchn *first, *second;

	next_port = 10;
	begin(0);
	first = channel("1", 1, false);
	second = channel("0", 0, false);
	listed("\nport 10 alloc cpu 1 received 0 sent 0 1\nport 11 alloc cpu 0 received 0 sent 0 0");
	send(10);
	send(11);
	CHECK(upcall(0), "not called up");
	CAME("0");
	CHECK(is_set(shared.evtchn_pending, 10), "another's was taken");
	CHECK(upcall(1), "not called up");
	CAME("1");
	/* Masked ones are left, whoever has set the word's bit. */
	send(11);
	shared.evtchn_mask[0] |= 1UL << 11;
	CHECK(upcall(0) && is_set(shared.evtchn_pending, 11), "it is masked");
	CAME("");
	unmask(11);
	CHECK(upcall(0), "not called up");
	CAME("0");
	bind_error = EINVAL;
	CHECK(xen_evtchn_alloc(REMOTE, &(struct xen_evtchn_params){ .xep_name = "x", .xep_cpu = 0,
	    .xep_handler = handle }, &(struct xen_evtchn *){ NULL }) == EINVAL && nopen == 2, "moved");
	bind_error = 0;
	xen_evtchn_free(first);
	xen_evtchn_free(second);
	end();
}

static struct xen_evtchn *
virq(u_int number, int cpu, const char *name, int expected)
{
	struct xen_evtchn_params params = { .xep_name = name, .xep_cpu = cpu,
	    .xep_filter = handle_at_once, .xep_arg = __DECONST(char *, name) };
	struct xen_evtchn *ec = NULL;
	int error;

	error = xen_evtchn_bind_virq(number, &params, &ec);
	CHECK(error == expected, "%s: error %d", name, error);
	return (ec);
}

/* Those of a CPU stay with it, and come back after a suspension; the domain's are anywhere. */
static void
virtual_interrupts(const void *arg __unused)
{
	struct xen_evtchn *ec[5], *adopted, *old;
	struct xen_evtchn_params params = { .xep_name = "s", .xep_cpu = -1, .xep_handler = handle,
	    .xep_arg = __DECONST(char *, "s") };
	evtchn_port_t port;

	next_port = 20;
	CHECK(virq(VIRQ_TIMER, 0, "t", ENXIO) == NULL, "before there is an interface");
	begin(0);
	ec[0] = virq(VIRQ_TIMER, 0, "0", 0);
	ec[1] = virq(VIRQ_TIMER, 1, "1", 0);
	CHECK(virq(VIRQ_TIMER, 1, "x", EEXIST) == NULL, "twice");
	CHECK(virq(VIRQ_TIMER, 2, "x", EINVAL) == NULL, "a CPU that is not there");
	ec[2] = virq(VIRQ_CONSOLE, 0, "c", 0);
	ec[3] = virq(VIRQ_DEBUG, -1, "d", 0);
	CHECK(xen_evtchn_adopt(100, &params, &adopted) == 0, "not adopted");
	old = channel("o", -1, false);
	CHECK(ports[20].vcpu == 1 && ports[21].vcpu == 0 && ports[22].vcpu == 1 && ports[23].vcpu == 0,
	    "vCPUs");
	listed("\nport 20 virq cpu 0 received 0 sent 0 0\nport 21 virq cpu 1 received 0 sent 0 1"
	    "\nport 22 virq cpu 0 received 0 sent 0 c\nport 23 virq cpu 1 received 0 sent 0 d"
	    "\nport 100 adopt cpu 1 received 0 sent 0 s\nport 24 alloc cpu 1 received 0 sent 0 o");
	send(20);
	send(21);
	CHECK(upcall(0) && upcall(1), "not called up");
	CAME("01");
	/* A new domain: no port is open, and none is masked. */
	xen_evtchn_suspend();
	memset(ports, 0, sizeof(ports));
	memset(&shared, 0, sizeof(shared));
	nopen = 0;
	next_port = 3;
	xen_life++;
	CHECK(xen_evtchn_resume() == 0 && nopen == 3, "%d ports", nopen);
	for (port = 0; port < NPORTS; port++)
		CHECK(is_set(shared.evtchn_mask, port), "port %u is not masked", port);
	/* On each CPU: of its own, and the test's is the first. */
	xen_evtchn_resume_self();
	CHECK(!is_set(shared.evtchn_mask, 3) && is_set(shared.evtchn_mask, 4), "not its own");
	PCPU_SET(cpuid, 1);
	xen_evtchn_resume_self();
	PCPU_SET(cpuid, 0);
	CHECK(!is_set(shared.evtchn_mask, 4) && !is_set(shared.evtchn_mask, 5), "not its own");
	xen_evtchn_go_on();
	listed("\nport 3 virq cpu 0 received 1 sent 0 0\nport 4 virq cpu 1 received 1 sent 0 1"
	    "\nport 5 virq cpu 1 received 0 sent 0 d");
	CHECK(kpi_sysctl_value("evtchn.in_use") == 3, "in use");
	send(3);
	send(4);
	CHECK(upcall(0) && upcall(1), "not called up");
	CAME("01");
	/* The others are dead: nothing is sent, or closed. */
	xen_evtchn_notify(old);
	CHECK(nsent == 0, "sent by a dead channel");
	xen_evtchn_notify(ec[0]);
	CHECK(nsent == 1, "not sent");
	xen_evtchn_free(old);
	xen_evtchn_free(adopted);
	xen_evtchn_free(ec[2]);
	CHECK(nopen == 3, "closed");
	/* What Xen does not bind again, and what has no place. */
	xen_evtchn_suspend();
	memset(ports, 0, sizeof(ports));
	nopen = 0;
	next_port = NPORTS - 1;
	xen_life++;
	CHECK(xen_evtchn_resume() == ENOSPC, "a port that has no place");
	xen_evtchn_go_on();
	ports[NPORTS - 1].open = false;
	nopen = 0;
}

/* Xen does not bind one again. */
static void
virtual_interrupt_is_lost(const void *arg __unused)
{

	begin(0);
	(void)virq(VIRQ_TIMER, 0, "0", 0);
	xen_evtchn_suspend();
	bind_error = ENOSYS;
	xen_life++;
	CHECK(xen_evtchn_resume() == ENOSYS, "bound");
}

static const struct hosted_test tests[] = {
	{ "interface_is_chosen", "With all ports masked", interface_is_chosen, NULL },
	{ "events_of_all_words", "Each once", events_of_all_words, NULL },
	{ "event_while_masked", "Is sent again", event_while_masked, NULL },
	{ "cpus_share_a_word", "And each takes its own", cpus_share_a_word, NULL },
	{ "virtual_interrupts", "Of a CPU come back after a suspension", virtual_interrupts, NULL },
	{ "virtual_interrupt_is_lost", "By a suspension", virtual_interrupt_is_lost, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
