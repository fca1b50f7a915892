/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The Linux half of a hosted test: memory, messages, failing.
 */

#define	_GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bell.h"
#include "host.h"

#define	HOST_ARCH_SET_GS	0x1001	/* arch_prctl(2); its header is not the C library's */
#define	HOST_PCPU_SIZE		16384	/* struct pcpu, and more */

/* host_exit.c for tests, or the fuzzer's. */
extern void host_give_up(const char *message) __attribute__((__noreturn__));

/*
 * FreeBSD's inlines find the CPU's data at %gs, or in x18: curthread at its beginning, and a word in it
 * that a full barrier touches.  Each thread gets a CPU of its own.
 */
/* What a thread has at %gs. */
static __thread struct {
	_Alignas(64) char room[HOST_PCPU_SIZE];
} pcpu;

static void
host_set_pcpu(void)
{

#ifdef __x86_64__
	if (syscall(SYS_arch_prctl, HOST_ARCH_SET_GS, &pcpu) != 0)
		abort();
#else
	__asm __volatile("mov x18, %0" : : "r" (&pcpu));
#endif
}

__attribute__((__constructor__)) static void
host_init(void)
{

	host_set_pcpu();
}

void *
host_alloc(unsigned long size, unsigned long align)
{
	void *p;

	if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
		abort();
	return (p);
}

void
host_free(void *p)
{

	free(p);
}

void
host_log(const char *fmt, va_list ap)
{

	(void)vfprintf(stderr, fmt, ap);
}

struct host_thread {
	int	self;
	_Bool	apart;
	void	(*body)(void *);
	void	*arg;
};

/*
 * A CPU for each thread, as far as they go: the system tends to run those that wake each other on
 * one, where they never do anything at the same time.
 */
static void
host_bind(int self)
{
	cpu_set_t all, one;
	int cpu, n;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	n = self % CPU_COUNT(&all);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &all) && n-- == 0)
			break;
	}
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	(void)sched_setaffinity(0, sizeof(one), &one);
}

static void *
host_start(void *arg)
{
	struct host_thread *ht = arg;

	host_set_pcpu();
	if (ht->apart)
		host_bind(ht->self);
	bell_thread(ht->self);
	ht->body(ht->arg);
	bell_end();
	return (NULL);
}

static void
host_run_threads(void (*const *bodies)(void *), int n, void *arg, _Bool apart)
{
	struct host_thread threads[BELL_THREADS];
	pthread_t ids[BELL_THREADS];
	int i;

	if (n > BELL_THREADS)
		abort();
	bell_begin(n);
	for (i = 0; i < n; i++) {
		threads[i].self = i;
		threads[i].apart = apart;
		threads[i].body = bodies[i];
		threads[i].arg = arg;
		if (pthread_create(&ids[i], NULL, host_start, &threads[i]) != 0)
			abort();
	}
	for (i = 0; i < n; i++)
		(void)pthread_join(ids[i], NULL);
}

void
host_run(void (*const *bodies)(void *), int n, void *arg)
{

	host_run_threads(bodies, n, arg, 0);
}

void
host_run_apart(void (*const *bodies)(void *), int n, void *arg)
{

	host_run_threads(bodies, n, arg, 1);
}

void *
host_self(void)
{

	return (&pcpu);
}

void
host_yield(void)
{

	(void)sched_yield();
}

_Bool
host_soaking(void)
{

	return (getenv("PVKMOD_ROUNDS") == NULL);
}

void
host_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
	char message[512];
	va_list ap;
	int n;

	n = snprintf(message, sizeof(message), "%s:%d: %s: ", file, line, cond);
	va_start(ap, fmt);
	(void)vsnprintf(message + n, sizeof(message) - n, fmt, ap);
	va_end(ap);
	host_give_up(message);
}
