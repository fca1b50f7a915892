/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The hosted KPI's own interface, for tests: what it counts, and where it can be hooked.
 *
 * Everything else it offers is FreeBSD's, under FreeBSD's names and behind FreeBSD's headers, as far
 * as the drivers under test use it.  Addresses for devices are virtual addresses.
 */

#ifndef _KPI_H_
#define	_KPI_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kobj.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <machine/bus.h>

/* The tag at the root, as bus_get_dma_tag(9) would return it. */
extern bus_dma_tag_t kpi_dma_tag;

/*
 * Called before each load and store of the drivers, which are compiled to tell (-fsanitize-coverage=
 * trace-loads,trace-stores); NULL: not.  That is where a test puts what another CPU does.
 */
extern void (*kpi_access_hook)(void);

/* The same, told of the address and of how many bytes are loaded or stored. */
extern void (*kpi_access_at)(uintptr_t addr, int size, bool store);

/* Called before each atomic_thread_fence_seq_cst() of these. */
extern void (*kpi_fence_hook)(void);

/* Each two neighbouring pages have changed places in physical memory. */
extern bool kpi_scattered;

/* A device has other memory than its driver, and data crosses only by bus_dmamap_sync(9). */
extern bool kpi_bounced;

/* Called when what the driver wrote to memory of both has crossed, which a device can see; or NULL. */
extern void (*kpi_dma_crossed)(void);

/* What was unloaded after a sync before the device's use, and without one after it. */
extern int kpi_dma_unsynced;

/* What a callback of bus_dmamap_load(9) is told instead of segments; 0: those. */
extern int kpi_load_error;

/* What bus_dma_tag_create(9) returns; 0: a tag. */
extern int kpi_tag_error;

/* The limits of a tag. */
struct kpi_dma_limits {
	bus_size_t	kdl_alignment, kdl_boundary;
	bus_size_t	kdl_size;	/* of all that is loaded */
	bus_size_t	kdl_seg_size;
	u_int		kdl_nsegs;
};
void	kpi_dma_limits(bus_dma_tag_t dmat, struct kpi_dma_limits *out);

/* What both have all the time crosses now: the device has stopped, and all that it wrote arrives. */
void	kpi_dma_arrives(void);

/* Things that exist now: a test that ends with other numbers than it began with leaks. */
extern int kpi_mallocs;
extern struct malloc_type *kpi_type;	/* of which memory is counted by itself */
extern int kpi_mallocs_of_type;
extern int kpi_dma_tags;
extern int kpi_dma_maps;
extern size_t kpi_dma_bytes;	/* of bus_dmamem_alloc(9) */
extern int kpi_sysctls;

/*
 * Read the sysctl "node.name" of a device into *len bytes, of which *len are used then, or write it.
 * Returns what the handler said; ENOENT, EPERM.
 */
int	kpi_sysctl(const char *path, void *old, size_t *len, void *new, size_t newlen);
/* The same of a number. */
uint64_t kpi_sysctl_value(const char *path);
int	kpi_sysctl_set(const char *path, int value);

/* Microseconds of all calls of DELAY(9). */
extern uint64_t kpi_delayed;

/* How long all calls of pause(9) were to last. */
extern sbintime_t kpi_paused;

/* Lines that device_printf(9) and printf(9) wrote, or would have, were it not quiet. */
extern int kpi_lines;
extern bool kpi_quiet;
extern char kpi_line[256];
extern char kpi_line_before[256];	/* the last but one */

/* Is called with each, if it is not NULL. */
extern void (*kpi_said)(const char *line);

/* The unit of each device. */
extern int kpi_unit;

/* The one variable of the kernel environment, and its value; NULL: there is none. */
extern const char *kpi_tunable;
extern const char *kpi_tunable_value;

/* The name of a node that the kernel has without us, and a sysctl that another driver has. */
extern const char *kpi_static_node;
extern const char *kpi_sysctl_of_others;

/* The nth malloc(9) or bus_dmamem_alloc(9) from now fails, if it may; 0: none does. */
extern int kpi_fail_after;

/* And so many that follow it. */
extern int kpi_fail_more;

/* No taskqueue(9) gets a thread. */
extern bool kpi_no_threads;

/* All of them do. */
extern bool kpi_no_memory;

/* Called where a thread would sleep in pause(9) or msleep(9), if it is not NULL. */
extern void (*kpi_pause)(void);

/* Should this allocation fail? */
bool	kpi_fail_now(void);

/* A device for messages, and for nothing else. */
device_t kpi_device(void);

/* kpi/newbus.c, for programs that are linked with it. */

/* Devices and interrupt handlers that exist now. */
extern int kpi_devices;
extern int kpi_intrs;
/* Queues of taskqueue(9). */
extern int kpi_taskqueues;
/* What a driver's method returns when it is to suspend its device. */
extern int kpi_suspend_error;

/* The nth bus_setup_intr(9) from now fails; 0: none does. */
extern int kpi_setup_fails;

/* What device_add_child(9) makes. */
extern kobj_class_t kpi_child_class;
extern void *kpi_child_softc;

device_t kpi_device_create(device_t parent, kobj_class_t cls, void *softc, const char *nameunit);
void	kpi_device_destroy(device_t dev);

/* device_detach(9) begins with a device, or has ended. */
void	kpi_detaches(device_t dev, enum evhdev_detach when);

/* What the handler of dev_lookup says to a name. */
device_t kpi_lookup(const char *name);
void	kpi_device_state(device_t dev, device_state_t state);

/* The CPU that an interrupt is bound to; -1: any. */
int	kpi_bound_to(struct resource *r);

/* The description of an interrupt, which may be none. */
const char *kpi_described(struct resource *r);

/* Raise an interrupt.  False: it has no handler. */
bool	kpi_interrupt(struct resource *r);

/* Run the tasks that are queued.  Returns how many there were. */
int	kpi_run_tasks(void);

/* Is this one queued? */
struct task;
bool	kpi_task_is_queued(const struct task *task);

/* The CPU of a queue's only thread; -1: any. */
struct taskqueue;
int	kpi_taskqueue_cpu(const struct taskqueue *queue);

/* How long the last delayed task was to be delayed. */
extern sbintime_t kpi_delay;

/*
 * kpi/locks.c, for programs that are linked with it: mutexes that are locked, locks that exist, and the
 * time.
 */
extern int kpi_mutexes;
extern int kpi_locks;
extern sbintime_t kpi_uptime;

/* Called where a thread would wait for a lock, if it is not NULL. */
extern void (*kpi_contended)(void);

/* Of mutexes whose type begins so a thread locks one at a time; NULL: of none. */
extern const char *kpi_alone;

/* Does this thread have a mutex? */
struct mtx;
bool	kpi_mutex_is_mine(const struct mtx *m);

#endif /* !_KPI_H_ */
