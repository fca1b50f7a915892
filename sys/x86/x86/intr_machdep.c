/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Interrupt sources: what joins an interrupt controller's pin or message to its intr_event(9).
 *
 * A source (struct intsrc) belongs to a controller (struct pic: I/O APIC pins, MSI) and is known by
 * its IRQ number: 0 to num_io_irqs - 1 are pins, num_msi_irqs more are messages.  The controllers
 * register their sources at start-up; intr_add_handler() turns a source on with its first handler.
 *
 * Locking.  intrsrc_lock (sx) serialises handlers being added and removed, and changes of
 * processor. The table of sources is written during start-up and when a message source is first
 * made, never emptied.  Controllers have locks of their own for their registers.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/pcpu.h>
#include <sys/proc.h>
#include <sys/smp.h>
#include <sys/sx.h>
#include <sys/syslog.h>

#include <machine/cpu.h>
#include <machine/intr_machdep.h>
#include <machine/smp.h>

#include <x86/apicvar.h>
#include <x86/x86/apic_tree.h>

#define	MAX_STRAY_LOG	5
#define	INTRCNT_MAX	2048
#define	INTRNAME_LEN	(MAXCOMLEN + 1)

u_int	first_msi_irq;
u_int	num_io_irqs;
u_int	num_msi_irqs = 512;

cpuset_t intr_cpus = CPUSET_T_INITIALIZER(0x1);

static struct intsrc **interrupt_sources;
static TAILQ_HEAD(, pic) pics = TAILQ_HEAD_INITIALIZER(pics);
static u_int current_cpu;
static bool assign_cpu;		/* spread interrupts: not before all processors run */

static struct sx intrsrc_lock;
SX_SYSINIT(intrsrc, &intrsrc_lock, "intrsrc");

/*
 * Counters for vmstat -i: intrnames has a name of fixed length for each of intrcnt, and none for those
 * that are free.
 */
static u_long counters[INTRCNT_MAX];
static char counter_names[INTRCNT_MAX * INTRNAME_LEN];
u_long	*intrcnt = counters;
char	*intrnames = counter_names;
size_t	sintrcnt = sizeof(counters);
size_t	sintrnames = sizeof(counter_names);
static u_int intrcnt_index;

static void
intrcnt_setname(const char *name, u_int index)
{
	snprintf(counter_names + INTRNAME_LEN * index, INTRNAME_LEN, "%-*s", INTRNAME_LEN - 1,
	    name);
}

/* A new counter: *countp is for its owner to count in. */
void
intrcnt_add(const char *name, u_long **countp)
{
	u_int index = atomic_fetchadd_int(&intrcnt_index, 1);

	KASSERT(index < INTRCNT_MAX, ("too many interrupt counters"));
	intrcnt_setname(name, index);
	*countp = &counters[index];
}

/* The counter carries the name of the handlers. */
static void
intrcnt_updatename(struct intsrc *is)
{
	intrcnt_setname(is->is_event->ie_fullname, is->is_count - counters);
}

static void
intrcnt_register(struct intsrc *is)
{
	char name[INTRNAME_LEN];

	snprintf(name, sizeof(name), "irq%u:", is->is_index);
	intrcnt_add(name, &is->is_count);
	snprintf(name, sizeof(name), "stray irq%u", is->is_index);
	intrcnt_add(name, &is->is_straycount);
}

void
intr_init_sources(void)
{
	interrupt_sources = mallocarray(num_io_irqs + num_msi_irqs, sizeof(*interrupt_sources),
	    M_DEVBUF, M_WAITOK | M_ZERO);
}

struct intsrc *
intr_lookup_source(int vector)
{
	if (interrupt_sources == NULL || vector < 0 || vector >= (int)(num_io_irqs + num_msi_irqs))
		return (NULL);
	return (interrupt_sources[vector]);
}

/* EBUSY: it is registered already. */
int
intr_register_pic(struct pic *pic)
{
	struct pic *p;

	TAILQ_FOREACH(p, &pics, pics) {
		if (p == pic)
			return (EBUSY);
	}
	TAILQ_INSERT_TAIL(&pics, pic, pics);
	if (pic->pic_register_sources != NULL)
		pic->pic_register_sources(pic);
	return (0);
}

/* The controllers have lost what they were set to. */
void
intr_resume(bool suspend_cancelled)
{
	struct pic *pic;

	atpic_reset();
	TAILQ_FOREACH(pic, &pics, pics) {
		if (pic->pic_resume != NULL)
			pic->pic_resume(pic, suspend_cancelled);
	}
}

/* Hooks of the intr_event: before and after the interrupt's thread runs, and after a filter. */
static void
intr_disable_src(void *arg)
{
	struct intsrc *isrc = arg;

	isrc->is_pic->pic_disable_source(isrc, PIC_EOI);
}

static void
intr_enable_src(void *arg)
{
	struct intsrc *isrc = arg;

	/* The round in which the last handler went ends after its removal. */
	if (isrc->is_handlers != 0)
		isrc->is_pic->pic_enable_source(isrc);
}

static void
intr_eoi_src(void *arg)
{
	struct intsrc *isrc = arg;

	isrc->is_pic->pic_eoi_source(isrc);
}

/* Deliver a source to another processor (intr_event_bind(9)). */
static int
intr_assign_cpu(void *arg, int cpu)
{
	struct intsrc *isrc = arg;
	int error = 0;

	if (!assign_cpu || cpu == NOCPU)
		return (assign_cpu ? 0 : EOPNOTSUPP);
	sx_xlock(&intrsrc_lock);
	if (isrc->is_handlers > 0)
		error = isrc->is_pic->pic_assign_cpu(isrc, cpu_apic_ids[cpu]);
	if (error == 0)
		isrc->is_cpu = cpu;
	sx_xunlock(&intrsrc_lock);
	return (error);
}

/* EEXIST: the IRQ has a source. */
int
intr_register_source(struct intsrc *isrc)
{
	u_int irq = isrc->is_pic->pic_vector(isrc);
	int error;

	KASSERT(irq < num_io_irqs + num_msi_irqs, ("IRQ %u is out of range", irq));
	if (interrupt_sources[irq] != NULL)
		return (EEXIST);
	error = intr_event_create(&isrc->is_event, isrc, 0, irq, intr_disable_src, intr_enable_src,
	    intr_eoi_src, intr_assign_cpu, "irq%u:", irq);
	if (error != 0)
		return (error);
	isrc->is_index = irq;
	isrc->is_handlers = 0;
	isrc->is_cpu = 0;
	intrcnt_register(isrc);
	atomic_store_rel_ptr((volatile uintptr_t *)&interrupt_sources[irq], (uintptr_t)isrc);
	return (0);
}

int
intr_add_handler(struct intsrc *isrc, const char *name, driver_filter_t filter,
    driver_intr_t handler, void *arg, enum intr_type flags, void **cookiep, int domain)
{
	int error;

	error = intr_event_add_handler(isrc->is_event, name, filter, handler, arg,
	    intr_priority(flags), flags, cookiep);
	if (error != 0)
		return (error);
	sx_xlock(&intrsrc_lock);
	intrcnt_updatename(isrc);
	if (isrc->is_handlers++ == 0) {
		isrc->is_domain = domain;
		isrc->is_pic->pic_enable_intr(isrc);
		isrc->is_pic->pic_enable_source(isrc);
	}
	sx_xunlock(&intrsrc_lock);
	return (0);
}

int
intr_remove_handler(void *cookie)
{
	struct intsrc *isrc = intr_handler_source(cookie);
	int error;

	error = intr_event_remove_handler(cookie);
	if (error != 0)
		return (error);
	sx_xlock(&intrsrc_lock);
	if (--isrc->is_handlers == 0) {
		isrc->is_pic->pic_disable_source(isrc, PIC_NO_EOI);
		isrc->is_pic->pic_disable_intr(isrc);
	}
	intrcnt_updatename(isrc);
	sx_xunlock(&intrsrc_lock);
	return (0);
}

int
intr_config_intr(struct intsrc *isrc, enum intr_trigger trig, enum intr_polarity pol)
{
	return (isrc->is_pic->pic_config_intr(isrc, trig, pol));
}

int
intr_describe(struct intsrc *isrc, void *ih, const char *descr)
{
	int error;

	error = intr_event_describe_handler(isrc->is_event, ih, descr);
	if (error == 0)
		intrcnt_updatename(isrc);
	return (error);
}

/* Run the handlers of a source that has interrupted; it is masked when it has no handler. */
void
intr_execute_handlers(struct intsrc *isrc, struct trapframe *frame)
{
	(*isrc->is_count)++;
	if (intr_event_handle(isrc->is_event, frame) == 0)
		return;
	isrc->is_pic->pic_disable_source(isrc, PIC_EOI);
	(*isrc->is_straycount)++;
	if (*isrc->is_straycount < MAX_STRAY_LOG)
		log(LOG_ERR, "stray irq%u\n", isrc->is_index);
	else if (*isrc->is_straycount == MAX_STRAY_LOG)
		log(LOG_CRIT, "too many stray irq %u's: not logging anymore\n", isrc->is_index);
}

void
intr_add_cpu(u_int cpu)
{
	CPU_SET(cpu, &intr_cpus);
}

/* The APIC ID of the processor that shall have the next interrupt: each in turn. */
u_int
intr_next_cpu(int domain __unused)
{
	u_int apic_id;

	if (!assign_cpu)
		return (PCPU_GET(apic_id));
	mtx_lock_spin(&icu_lock);
	apic_id = cpu_apic_ids[current_cpu];
	do {
		current_cpu = current_cpu == mp_maxid ? 0 : current_cpu + 1;
	} while (!CPU_ISSET(current_cpu, &intr_cpus));
	mtx_unlock_spin(&icu_lock);
	return (apic_id);
}

/* All processors run: spread the interrupts that are in use over them. */
static void
intr_shuffle_irqs(void *arg __unused)
{
	struct intsrc *isrc;
	u_int i, cpu;

	if (mp_ncpus == 1)
		return;
	CPU_FOREACH(cpu)
		intr_add_cpu(cpu);
	assign_cpu = true;
	for (i = 0; i < num_io_irqs + num_msi_irqs; i++) {
		isrc = interrupt_sources[i];
		if (isrc == NULL || isrc->is_handlers == 0)
			continue;
		cpu = isrc->is_event->ie_cpu;
		if (cpu == (u_int)NOCPU)
			cpu = apic_cpuid(intr_next_cpu(0));
		if (cpu != isrc->is_cpu && intr_assign_cpu(isrc, cpu) != 0)
			printf("irq%u can't move to cpu%u\n", i, cpu);
	}
}
SYSINIT(intr_shuffle_irqs, SI_SUB_SMP, SI_ORDER_SECOND, intr_shuffle_irqs, NULL);
