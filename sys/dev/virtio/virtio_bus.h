/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The virtio bus, as a transport sees it; drivers include virtio.h.
 *
 * A transport's softc begins with a struct virtio_bus, whose first part it
 * fills in, and its methods are those of virtio_bus_if.m and, for its one
 * child, the functions below.
 */

#ifndef _DEV_VIRTIO_VIRTIO_BUS_H_
#define	_DEV_VIRTIO_VIRTIO_BUS_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/bus.h>
#include <sys/eventhandler.h>
#include <sys/queue.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <dev/pv/pv_tunable.h>
#include <dev/pv/dev/pv_tasks.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtqueue.h>

#include "virtio_bus_if.h"

/* hw.virtio (virtio_feature.c) */
enum {
	VIRTIO_INDIRECT,
	VIRTIO_EVENT_IDX,
	VIRTIO_PACKED,
	VIRTIO_STRICT_LENGTHS,
	VIRTIO_NTUNABLES
};
extern struct pv_tunable virtio_tunables[VIRTIO_NTUNABLES];

#define	VIRTIO_BUS_CONFIG	(-1)	/* set_vector: configuration changes,
					 * not a queue */

/* Cause of a wired interrupt (VirtIO 1.3, 4.1.4.5 and 4.2.2). */
#define	VIRTIO_ISR_QUEUE	0x01
#define	VIRTIO_ISR_CONFIG	0x02
/*
 * The transport's own: the line can't be silenced, so its handler is to be
 * removed, which masks it.  From now on the transport's reset fails with EIO.
 */
#define	VIRTIO_ISR_DEAD		0x40

#define	VIRTIO_FEATURE_STRLEN	384
#define	VIRTIO_WHY_LEN		96	/* a reason to leave a device alone */
#define	VIRTIO_NAME_LEN		32	/* pci0:0:3:0, mmio:0xfeb00e00 */

struct virtio_bus;

/* A queue that the driver requested. */
struct virtio_slot {
	struct virtio_bus *vs_bus;
	struct pvq	*vs_pvq;
	struct pvq	*vs_spare;	/* takes its place
					 * at the next restart */
	struct pvq_spec	 vs_spec;	/* the driver's;
					 * all 0: the queue is not used */
	int		 vs_vector;	/* -1: none */
	uint16_t	 vs_size;	/* of the ring from its next restart on;
					 * 0: as it is */
};

struct virtio_irq {
	struct resource	*vi_res;
	volatile uintptr_t vi_cookie;	/* of the handler; 0: there is none */
};

struct virtio_bus {
	/* The transport sets these before virtio_bus_attach(). */
	device_t	 vb_dev;
	uint32_t	 vb_type;	/* VIRTIO_ID_* */
	uint32_t	 vb_vendor;
	bool		 vb_qemu;	/* it says that it is QEMU's */
	bool		 vb_modern;	/* VERSION_1 */
	bool		 vb_fixed_size;	/* a queue's size can't
					 * be changed (legacy) */
	bool		 vb_own_line;	/* no other device
					 * has the wired interrupt */
	size_t		 vb_ring_align;	/* VRING_USED_ALIGN
					 * or VRING_LEGACY_ALIGN */
	bus_dma_tag_t	 vb_dmat;	/* where rings may be */
	/*
	 * Called by pvq_kick() in any context; see vqp_notify in virtqueue.h.
	 * Must do nothing while vb_live is false: before DRIVER_OK a device may
	 * not be notified (VirtIO 1.3, 3.1.1); virtio_start() makes up for it.
	 */
	void		(*vb_notify)(void *arg, uint16_t index, uint16_t next);
	void		*vb_notify_arg;

	/* The rest is virtio.c's and virtio_intr.c's. */
	/*
	 * From just before DRIVER_OK until the device is stopped its interrupts
	 * are handled: it may send one as soon as it sees the bit, and only
	 * once.
	 */
	volatile bool	 vb_awake;
	/* From just after DRIVER_OK until then it may be notified. */
	volatile bool	 vb_live;
	bool		 vb_lost;	/* it never confirmed a reset */
	bool		 vb_leaving;	/* the driver detaches */
	bool		 vb_asleep;	/* reset by the bus,
					 * until the driver does that */
	volatile bool	 vb_reset_wanted; /* virtio_request_reset() */
	bool		 vb_detaching;	/* virtio_bus_detach() was begun */
	char		 vb_why[VIRTIO_WHY_LEN]; /* that the driver
						  * gave for a refusal */
	bool		 vb_no_queue_reset; /* the device did not finish one */
	device_t	 vb_child;
	char		 vb_last_name[32]; /* that the child had before
					    * its driver left */
	eventhandler_tag vb_lookup;
	u_int		 vb_unsteady;	/* times the configuration
					 * never stood still */
	uint64_t	 vb_offered;
	uint64_t	 vb_features;
	struct virtio_slot *vb_slots;
	int		 vb_nslots;
	int		 vb_intr_type;
	struct virtio_irq *vb_irqs;
	int		 vb_nirqs;
	bool		 vb_wired;
	volatile u_int	 vb_isr;	/* causes that the filter saw */
	struct taskqueue *vb_line_tq;	/* removes the handler
					 * of vb_own_line's line */
	struct task	 vb_line_task;
	/*
	 * A reset may have taken the cause of an interrupt back that is on its
	 * way.
	 */
	volatile u_int	 vb_recalled;
	struct pv_tasks	vb_config_tasks; /* drivers may sleep
					  * for long over a change */
	struct timeout_task vb_config_task;
	/*
	 * From virtio_bus_attach() to virtio_bus_detach(); a transport may add
	 * to it.
	 */
	struct sysctl_ctx_list vb_sysctl;
	char		 vb_offered_str[VIRTIO_FEATURE_STRLEN];
	char		 vb_features_str[VIRTIO_FEATURE_STRLEN];
};

/* A transport, as it is registered for one class of buses. */
struct virtio_transport {
	struct driver_module_data vt_module;
	const char	*vt_kind;	/* "PCI"; in the device's description */
	/*
	 * The type of the device (VIRTIO_ID_*): 0 if it is no virtio device,
	 * UINT32_MAX if that can't be read as another driver has it.
	 */
	uint32_t	(*vt_type)(device_t dev);
	/*
	 * Its name, in the form that the transport's manual page has, of size
	 * bytes at most.
	 */
	void		(*vt_name)(device_t dev, char *name, size_t size);
	/*
	 * Probe and attach a device that has no driver;
	 * NULL: device_probe_and_attach(9).
	 */
	void		(*vt_offer)(device_t dev);
	bool		 vt_adds;	/* devices are added by it,
					 * with its class */
	bool		 vt_off;	/* virtio_driver.c's:
					 * by hw.pv.disable=all */
	SLIST_ENTRY(virtio_transport) vt_link;
};

/*
 * The module event handler of VIRTIO_TRANSPORT_MODULE(); arg is its struct
 * virtio_transport.
 */
int	virtio_transport_modevent(module_t mod, int what, void *arg);

#define	VIRTIO_TRANSPORT_MODULE(name, bus, transport)			\
	static moduledata_t name ## _ ## bus ## _mod = {		\
		#bus "/" #name, virtio_transport_modevent, &transport	\
	};								\
	DECLARE_MODULE(name ## _ ## bus, name ## _ ## bus ## _mod,	\
	    SI_SUB_DRIVERS, SI_ORDER_MIDDLE)

/*
 * What a transport's probe ends with, for a virtio device of a type that is
 * not 0.
 *
 * Returns BUS_PROBE_VENDOR, more than a driver that the kernel may have for
 * the device returns; ENXIO if it is left to that: no driver of the suite for
 * its type is loaded, the driver has refused it, or the tunable hw.pv.disable
 * ("all", or a list of names of devices and drivers) says so.
 */
int	virtio_bus_probe(struct virtio_transport *vt, device_t dev,
    uint32_t type);

/*
 * The driver failed to attach, or the device to be reset before, with this
 * error: the device returns to the kernel's drivers once the transport's attach
 * has returned, and is tried again later if the error may pass.
 */
void	virtio_bus_refused(struct virtio_bus *vb, int error);

/* The driver has attached: says so, and forgets it, if it failed before. */
void	virtio_bus_accepted(struct virtio_bus *vb);

/* When pv_virtio is loaded, and unloaded.  The latter may sleep. */
void	virtio_driver_init(void);
void	virtio_driver_fini(void);

/*
 * Add the child and attach its driver.  Returns the error of that, with
 * nothing left behind.  May sleep.
 */
int	virtio_bus_attach(struct virtio_bus *vb);

/*
 * Detach and delete the child.  Returns the error of the driver's detach;
 * EBUSY if this is under way already.  May sleep.
 */
int	virtio_bus_detach(struct virtio_bus *vb);

/*
 * What every transport is, beside its virtio_bus_if.m: the methods below,
 * inherited.
 */
DECLARE_CLASS(virtio_bus_driver);

/* bus_if.m methods that every transport has. */
int	virtio_bus_read_ivar(device_t dev, device_t child, int which,
    uintptr_t *result);
void	virtio_bus_child_detached(device_t dev, device_t child);
int	virtio_bus_suspend_child(device_t dev, device_t child);
int	virtio_bus_resume_child(device_t dev, device_t child);
int	virtio_bus_child_pnpinfo(device_t dev, device_t child, struct sbuf *sb);
int	virtio_bus_child_location(device_t dev, device_t child,
    struct sbuf *sb);

/*
 * Where in a field of len bytes, in the CPU's order, do the bytes belong that
 * the device has at i?  One of 8 bytes is read as two numbers, of which the
 * device has the lower half first (VirtIO 1.3, 2.5).
 *
 * big  the CPU is big-endian
 */
static inline size_t
virtio_config_at(size_t i, size_t len, bool big)
{

	return (big && len == 8 ? 4 - i : i);
}

/* Features of rings and transports that may be asked for (virtio_feature.c). */
uint64_t virtio_ring_mask(void);

/*
 * Write the names of features to str, of VIRTIO_FEATURE_STRLEN bytes; those
 * without a name as one number.
 *
 * table  the driver's
 */
void	virtio_feature_names(char *str, const struct virtio_feature *table,
    uint64_t features);

/*
 * For a transport: wait until a reset is done, without sleeping at first, for a
 * second at most.
 *
 * poll  called with dev and arg: 0: done; ENXIO: the device was removed;
 *       EAGAIN: not yet
 *
 * Returns what poll returned at last, but ETIMEDOUT for EAGAIN.  May sleep.
 */
int	virtio_bus_wait(device_t dev, int (*poll)(device_t dev, u_int arg),
    u_int arg);

/* Re-initialise a drained queue, with the size that it is to have. */
int	virtio_slot_reinit(struct virtio_slot *vs);

/* "network", "block" ...; "unknown". */
const char *virtio_type_name(uint32_t type);

/*
 * Allocate interrupts for the queues of vb_slots, set up the handlers and tie
 * the queues to them (virtio_intr.c).
 *
 * type  INTR_TYPE_*
 *
 * Returns 0, or the error of the last way that was tried.  May sleep.
 */
int	virtio_intr_alloc(struct virtio_bus *vb, int type);

/* Set the vectors again, after a reset. */
int	virtio_intr_rebind(struct virtio_bus *vb);

/*
 * Take the handlers down, wait for those that run, and free the interrupts.
 * May sleep.
 */
void	virtio_intr_free(struct virtio_bus *vb);

#endif /* !_DEV_VIRTIO_VIRTIO_BUS_H_ */
