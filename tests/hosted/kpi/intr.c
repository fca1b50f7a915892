/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * intr_event(9), and what else event channels use: sx(9), callout(9), counters.
 *
 * A handler is due from the time that its event was delivered until it runs, and that is all that the
 * interrupting CPU and the interrupt thread share.  Neither lends the other any order: a driver has
 * its own.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/interrupt.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/sysctl.h>

#include <machine/intr_machdep.h>
#include <machine/stdarg.h>

#include "host/host.h"
#include "intr.h"
#include "kpi.h"

#if !__has_feature(thread_sanitizer)
/* The compiler's, besides those of loads and stores, for which no sanitizer is there. */
void	__sanitizer_cov_trace_pc_guard(uint32_t *guard);
void	__sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop);

void
__sanitizer_cov_trace_pc_guard(uint32_t *guard __unused)
{
}

void
__sanitizer_cov_trace_pc_guard_init(uint32_t *start __unused, uint32_t *stop __unused)
{
}
#endif

#define	INTR_MAX	16
#define	INTR_TEXT	1024

struct kpi_event {
	void		*ke_source;
	void		(*ke_pre)(void *);
	void		(*ke_post)(void *);
	driver_filter_t	*ke_filter;
	driver_intr_t	*ke_handler;
	void		*ke_arg;
	int		 ke_due;
};

void (*kpi_intr_wake)(void);
_Thread_local register_t kpi_intr_off;
int kpi_intr_bound, kpi_intr_cpu, kpi_intr_fails;
const char *kpi_intr_counted;
u_long kpi_intr_count;
volatile int ticks;
int hz = 100;
sbintime_t tick_sbt = SBT_1S / 100;
u_int mp_maxid;
cpuset_t all_cpus = CPUSET_T_INITIALIZER(1);
u_long *intrcnt;
char *intrnames;
size_t sintrcnt, sintrnames;

static struct kpi_event intr_events[INTR_MAX];
static int intr_nevents;

int
intr_event_create(struct intr_event **event, void *source, int flags __unused, u_int irq __unused,
    void (*pre_ithread)(void *), void (*post_ithread)(void *), void (*post_filter)(void *) __unused,
    int (*assign_cpu)(void *, int) __unused, const char *fmt __unused, ...)
{
	struct kpi_event *ke = &intr_events[intr_nevents];

	CHECK(intr_nevents < INTR_MAX, "too many");
	if (kpi_intr_fails == 1)
		return (ENOMEM);
	intr_nevents++;
	ke->ke_source = source;
	ke->ke_pre = pre_ithread;
	ke->ke_post = post_ithread;
	*event = (struct intr_event *)ke;
	return (0);
}

int
intr_event_add_handler(struct intr_event *ie, const char *name __unused, driver_filter_t filter,
    driver_intr_t handler, void *arg, u_char pri __unused, enum intr_type flags __unused,
    void **cookiep)
{
	struct kpi_event *ke = (struct kpi_event *)ie;

	if (kpi_intr_fails == 2)
		return (ENOMEM);
	ke->ke_filter = filter;
	ke->ke_handler = handler;
	ke->ke_arg = arg;
	*cookiep = ke;
	return (0);
}

int
intr_event_bind_ithread(struct intr_event *ie __unused, int cpu)
{

	kpi_intr_bound++;
	kpi_intr_cpu = cpu;
	return (0);
}

int
intr_event_remove_handler(void *cookie)
{
	struct kpi_event *ke = cookie;

	CHECK(ke->ke_arg != NULL, "there is none");
	/* Its thread is waited for, which may be about to unmask it. */
	if (__atomic_exchange_n(&ke->ke_due, 0, __ATOMIC_ACQUIRE) != 0)
		ke->ke_post(ke->ke_source);
	ke->ke_filter = NULL;
	ke->ke_handler = NULL;
	ke->ke_arg = NULL;
	return (0);
}

int
intr_event_destroy(struct intr_event *ie)
{
	struct kpi_event *ke = (struct kpi_event *)ie;

	CHECK(ke->ke_arg == NULL, "it has a handler");
	return (0);
}

u_char
intr_priority(enum intr_type flags __unused)
{

	return (0);
}

int
intr_event_handle(struct intr_event *ie, struct trapframe *frame __unused)
{
	struct kpi_event *ke = (struct kpi_event *)ie;

	if (ke->ke_filter != NULL) {
		(void)ke->ke_filter(ke->ke_arg);
		return (0);
	}
	ke->ke_pre(ke->ke_source);
	__atomic_store_n(&ke->ke_due, 1, __ATOMIC_RELEASE);
	kpi_intr_wake();
	return (0);
}

int
kpi_intr_run(void)
{
	struct kpi_event *ke;
	int n = 0;

	for (ke = intr_events; ke < intr_events + intr_nevents; ke++) {
		if (__atomic_exchange_n(&ke->ke_due, 0, __ATOMIC_ACQUIRE) == 0)
			continue;
		ke->ke_handler(ke->ke_arg);
		ke->ke_post(ke->ke_source);
		n++;
	}
	return (n);
}

void
intrcnt_add(const char *name, u_long **count)
{

	CHECK(kpi_intr_counted != NULL && strcmp(name, kpi_intr_counted) == 0, "\"%s\"", name);
	*count = &kpi_intr_count;
}

void
smp_no_rendezvous_barrier(void *arg __unused)
{
}

void
smp_rendezvous(void (*setup)(void *) __unused, void (*action)(void *),
    void (*teardown)(void *) __unused, void *arg)
{

	action(arg);
}

/* One at a time. */
static struct {
	struct callout	*kc_callout;
	callout_func_t	*kc_func;
	void		*kc_arg;
	sbintime_t	 kc_in;
} intr_callout;

void
callout_init(struct callout *c __unused, int mpsafe)
{

	CHECK(mpsafe != 0, "with Giant");
}

int
callout_reset_sbt_on(struct callout *c, sbintime_t sbt, sbintime_t pr __unused, callout_func_t *func,
    void *arg, int cpu __unused, int flags __unused)
{

	CHECK(intr_callout.kc_callout == NULL && sbt > 0, "another one");
	intr_callout.kc_callout = c;
	intr_callout.kc_func = func;
	intr_callout.kc_arg = arg;
	intr_callout.kc_in = sbt;
	return (0);
}

int
_callout_stop_safe(struct callout *c, int flags)
{

	CHECK((flags & CS_DRAIN) != 0, "its thread is not waited for");
	if (intr_callout.kc_callout == c)
		intr_callout.kc_callout = NULL;
	return (0);
}

void
kpi_intr_tick(void)
{

	ticks++;
	intr_callout.kc_in -= tick_sbt;
	if (intr_callout.kc_callout == NULL || intr_callout.kc_in > 0)
		return;
	intr_callout.kc_callout = NULL;
	intr_callout.kc_func(intr_callout.kc_arg);
}

/* The driver's only one; here no two threads take it at the same time. */
static bool intr_locked;

void
sx_sysinit(const void *arg __unused)
{
}

void
sx_destroy(struct sx *sx __unused)
{
}

int
_sx_xlock(struct sx *sx __unused, int opts __unused, const char *file __unused, int line __unused)
{

	CHECK(!intr_locked, "locked twice");
	intr_locked = true;
	return (0);
}

void
_sx_xunlock(struct sx *sx __unused, const char *file __unused, int line __unused)
{

	CHECK(intr_locked, "not locked");
	intr_locked = false;
}

int
_sx_slock(struct sx *sx, int opts, const char *file, int line)
{

	return (_sx_xlock(sx, opts, file, line));
}

void
_sx_sunlock(struct sx *sx, const char *file, int line)
{

	_sx_xunlock(sx, file, line);
}

void
_sx_assert(const struct sx *sx __unused, int what __unused, const char *file __unused,
    int line __unused)
{

	CHECK(intr_locked, "not locked");
}

/* The text of a sysctl: one at a time. */
static struct sbuf intr_sbuf;
static char intr_text[INTR_TEXT];

int
sysctl_wire_old_buffer(struct sysctl_req *req __unused, size_t len __unused)
{

	return (0);
}

struct sbuf *
sbuf_new_for_sysctl(struct sbuf *s __unused, char *buf __unused, int length __unused,
    struct sysctl_req *req)
{

	CHECK(intr_sbuf.s_drain_arg == NULL, "not deleted");
	intr_sbuf.s_drain_arg = req;
	intr_sbuf.s_len = 0;
	intr_text[0] = '\0';
	return (&intr_sbuf);
}

int
sbuf_printf(struct sbuf *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	s->s_len += vsnprintf(intr_text + s->s_len, sizeof(intr_text) - s->s_len, fmt, ap);
	va_end(ap);
	CHECK(s->s_len < INTR_TEXT, "too long");
	return (0);
}

int
sbuf_finish(struct sbuf *s)
{
	struct sysctl_req *req = s->s_drain_arg;

	return (req->oldfunc(req, intr_text, s->s_len + 1));
}

void
sbuf_delete(struct sbuf *s)
{

	s->s_drain_arg = NULL;
}
