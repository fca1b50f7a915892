/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The virtio bus, as its drivers see it (VirtIO 1.3, 2 and 3).
 *
 * A transport (vtpci, vtmmio) finds a device and adds one newbus child to
 * itself; a driver probes by the device's type and attaches to that child.  The
 * transports' classes are not FreeBSD's, nor is any module named as one of
 * FreeBSD's: both may be in one kernel, each with devices of its own.  The
 * drivers' classes are FreeBSD's (vtnet, vtblk), so that units are counted
 * together.
 *
 * What a driver does, in the order of VirtIO 1.3, 3.1.1:
 *
 *	virtio_negotiate()      feature bits, from a table; may be called again
 *				with a smaller one
 *	virtio_read_config()    the device's configuration, consistent by its
 *				generation
 *	virtio_alloc_queues()   virtqueues, each a struct pvq, and their
 *				interrupts
 *	virtio_start()          DRIVER_OK: from here on the device may touch the
 *				queues
 *	...
 *	virtio_quiesce()        reset: the device uses no queue any more when it
 *				returns
 *	virtio_restart()        after virtio_quiesce(): the same features, the
 *				same queues, then virtio_start() once the driver
 *				has put what the device needs
 *	virtio_free_queues()    after virtio_quiesce()
 *
 * With RING_RESET (2.6.1), which a driver that uses it has in its table, one
 * queue is reset while the others run, by virtio_stop_queue() and
 * virtio_restart_queue().
 *
 * A driver implements the method VIRTIO_CONFIG_CHANGED (virtio_if.m), called in
 * a sleepable thread when the device changed its configuration or requires a
 * reset (DEVICE_NEEDS_RESET).  Its device_detach begins with virtio_leave(),
 * after which that method is not called any more; attach, detach, suspend and
 * resume never overlap then.  A driver without device_suspend and device_resume
 * methods needs none if it resets its device whenever virtio_needs_reset() is
 * true.
 *
 * A transport takes a device only while a driver for its type is loaded
 * (virtio_driver.c), and returns it to the kernel's own drivers if the driver's
 * attach fails, or when the driver is unloaded.
 *
 * Locking.  Functions may sleep where noted; none takes a lock of the driver's.
 * The driver calls negotiate, alloc, start, stop, restart and free one at a
 * time.
 */

#ifndef _DEV_VIRTIO_VIRTIO_H_
#define	_DEV_VIRTIO_VIRTIO_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/module.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/queue.h>

#include <dev/pv/queue/pvq.h>

#include "virtio_if.h"

/* Device types (VirtIO 1.3, 5). */
#define	VIRTIO_ID_NETWORK	1
#define	VIRTIO_ID_BLOCK		2
#define	VIRTIO_ID_CONSOLE	3
#define	VIRTIO_ID_ENTROPY	4
#define	VIRTIO_ID_BALLOON	5
#define	VIRTIO_ID_SCSI		8
#define	VIRTIO_ID_9P		9
#define	VIRTIO_ID_GPU		16
#define	VIRTIO_ID_INPUT		18
#define	VIRTIO_ID_SOCKET	19
#define	VIRTIO_ID_CRYPTO	20
#define	VIRTIO_ID_MEMORY	24
#define	VIRTIO_ID_SOUND		25
#define	VIRTIO_ID_FS		26

/* Device status (VirtIO 1.3, 2.1). */
#define	VIRTIO_STATUS_RESET		0x00
#define	VIRTIO_STATUS_ACK		0x01
#define	VIRTIO_STATUS_DRIVER		0x02
#define	VIRTIO_STATUS_DRIVER_OK		0x04
#define	VIRTIO_STATUS_FEATURES_OK	0x08
#define	VIRTIO_STATUS_NEEDS_RESET	0x40
#define	VIRTIO_STATUS_FAILED		0x80

/* Reserved feature bits (VirtIO 1.3, 6 and 6.3), masks. */
#define	VIRTIO_F_NOTIFY_ON_EMPTY	(1ULL << 24)
#define	VIRTIO_F_ANY_LAYOUT		(1ULL << 27)
#define	VIRTIO_F_INDIRECT_DESC		(1ULL << 28)
#define	VIRTIO_F_EVENT_IDX		(1ULL << 29)
#define	VIRTIO_F_VERSION_1		(1ULL << 32)
#define	VIRTIO_F_ACCESS_PLATFORM	(1ULL << 33)
#define	VIRTIO_F_RING_PACKED		(1ULL << 34)
#define	VIRTIO_F_IN_ORDER		(1ULL << 35)
#define	VIRTIO_F_ORDER_PLATFORM		(1ULL << 36)
#define	VIRTIO_F_NOTIFICATION_DATA	(1ULL << 38)
#define	VIRTIO_F_NOTIF_CONFIG_DATA	(1ULL << 39)
#define	VIRTIO_F_RING_RESET		(1ULL << 40)

/*
 * A driver's feature.  The table ends with an element whose mask is 0.
 */
struct virtio_feature {
	uint64_t	 vf_mask;	/* one bit */
	const char	*vf_name;	/* as in the specification,
					 * without the prefix */
	int		 vf_flags;
#define	VIRTIO_FEATURE_REQUIRED	0x01	/* the driver can't do without it */
#define	VIRTIO_FEATURE_OFF	0x02	/* known by name, but not accepted now
					 * (by a tunable) */
	/*
	 * Called if the device offers it, accepted or not, before FEATURES_OK;
	 * may read the configuration.  An error, which it has logged, ends the
	 * negotiation.  NULL: not needed.
	 */
	int		(*vf_check)(device_t dev);
};

/*
 * A queue that a driver requests.
 */
struct virtio_queue_spec {
	struct pvq_spec	 vqs_spec;
	/*
	 * Segments in the longest chain that goes by an indirect table;
	 * 0: pqs_max_segs.
	 */
	uint16_t	 vqs_table_segs;
	uint16_t	 vqs_max_size;	/* upper bound for the ring's size;
					 * 0: the device's */
	uint32_t	 vqs_flags;	/* VIRTQUEUE_STRICT_LENGTHS: the driver
					 * needs used lengths */
};

/*
 * A number for the device, or from it, which is its own inverse: little-endian
 * for a modern device, in the CPU's order for a legacy one (VirtIO 1.3, 2.4.3,
 * 2.7.3, 5.1.6.1).
 */
static inline uint16_t
virtio_16(bool modern, uint16_t v)
{
	return (modern ? htole16(v) : v);
}

static inline uint32_t
virtio_32(bool modern, uint32_t v)
{
	return (modern ? htole32(v) : v);
}

static inline uint64_t
virtio_64(bool modern, uint64_t v)
{
	return (modern ? htole64(v) : v);
}

/*
 * Instance variables of a child.
 */
enum virtio_ivars {
	VIRTIO_IVAR_DEVICE_TYPE = 1,	/* VIRTIO_ID_*;
					 * BUS_IVARS_PRIVATE is not used */
	VIRTIO_IVAR_VENDOR,	/* PCI subsystem vendor, or the MMIO VendorID */
	VIRTIO_IVAR_MODERN,		/* 1: VERSION_1 transport,
					 * little-endian configuration */
};

#define	VIRTIO_READ_IVAR(name, ivar)					\
static inline uintptr_t							\
virtio_get_##name(device_t dev)						\
{									\
	uintptr_t value = 0;						\
									\
	(void)BUS_READ_IVAR(device_get_parent(dev), dev, ivar, &value);	\
	return (value);							\
}

VIRTIO_READ_IVAR(device_type, VIRTIO_IVAR_DEVICE_TYPE)
VIRTIO_READ_IVAR(vendor, VIRTIO_IVAR_VENDOR)
VIRTIO_READ_IVAR(modern, VIRTIO_IVAR_MODERN)

#undef VIRTIO_READ_IVAR

/*
 * Negotiate features (VirtIO 1.3, 3.1.1 steps 1 to 6).  Resets the device
 * first, so that it can be called again, with less, after a device refused or a
 * driver found the combination useless.  The transport adds the ring's own
 * features (INDIRECT_DESC, EVENT_IDX, VERSION_1 ...).
 *
 * dev    the driver's device
 * table  what the driver knows
 * got    set to the mask that both sides now agree on
 *
 * Returns 0; ENOTSUP if a required feature is not offered (logged by name);
 * ENODEV if the device did not keep FEATURES_OK, or does not answer a reset; or
 * what a vf_check returned.  May sleep.
 */
int	virtio_negotiate(device_t dev, const struct virtio_feature *table,
    uint64_t *got);

/* The features that both sides agreed on, the ring's included. */
uint64_t virtio_features(device_t dev);

/*
 * How many places a queue would have, at most, or 0 if there is no such queue.
 * Features have been negotiated, and the queues are not allocated.
 */
u_int	virtio_queue_places(device_t dev, u_int index);

/* Is every bit of mask agreed on? */
static inline bool
virtio_has(device_t dev, uint64_t mask)
{

	return ((virtio_features(dev) & mask) == mask);
}

/*
 * Read a part of the device's configuration, consistently: repeated until the
 * generation is the same before and after (VirtIO 1.3, 2.5.1), a bounded number
 * of times.
 *
 * off  first byte
 * dst  where to; len bytes
 * len  1, 2, 4 or 8 for a field (one access of that width, 8 in two), converted
 *      to the CPU's order; anything else is read as bytes
 *
 * Returns 0; ENXIO if the device's configuration is shorter than off + len;
 * EBUSY if it never stood still.
 */
int	virtio_read_config(device_t dev, bus_size_t off, void *dst, size_t len);

/* Write a field of the device's configuration; same arguments and errors. */
int	virtio_write_config(device_t dev, bus_size_t off, const void *src,
    size_t len);

/*
 * Allocate the device's queues, numbered from 0 in the order of the array, and
 * their interrupts: a vector a queue and one for configuration changes if there
 * are enough, one shared by all queues, one for everything, or INTx.
 *
 * specs  n of them; read during the call only, but vqs_pvq's targets are
 *        written, and set to NULL again by virtio_free_queues().  An element
 *        whose vqs_pvq is NULL stands for a queue that the device has and the
 *        driver does not use.
 * n      how many
 * type   INTR_TYPE_NET, INTR_TYPE_BIO ...: INTR_MPSAFE is implied
 *
 * Returns 0; ENXIO if a queue does not exist, its size is 0, or (split) not a
 * power of two, each logged; ENOMEM; the error of bus_setup_intr(9).  May
 * sleep.
 */
int	virtio_alloc_queues(device_t dev, const struct virtio_queue_spec *specs,
    int n,
	    int type);

/*
 * Free the queues and interrupts.  The device has been stopped, the queues
 * drained; interrupt handlers will not run again when this returns.  May sleep,
 * so no lock that a handler takes may be held.
 */
void	virtio_free_queues(device_t dev);

/*
 * Set DRIVER_OK: the device is live.  pvq_kick() sends nothing before; what was
 * put until now is made known to the device here.
 */
void	virtio_start(device_t dev);

/*
 * Reset the device and wait until it has done so (VirtIO 1.3, 4.1.4.3.2).  No
 * interrupt handler is waited for.  May sleep if the device takes its time, so
 * hold no mutex.
 *
 * Returns 0, or ETIMEDOUT if the device never confirmed: its memory must then
 * be leaked, not freed; the transport cuts it off from memory by clearing bus
 * mastering.
 */
int	virtio_quiesce(device_t dev);

/*
 * The driver detaches: to be called first in its detach.  It is not suspended
 * from here on, and no VIRTIO_CONFIG_CHANGED runs when this returns, nor will
 * one.  May sleep.
 *
 * Returns 0; EBUSY if it detaches already: newbus, whose lock is dropped when a
 * detachment sleeps, does not keep a second one away.  The caller then returns
 * this error and touches nothing.
 */
int	virtio_leave(device_t dev);

/*
 * Say why the driver does not attach to this device: a line on the console,
 * which the sysctl hw.pv.devices shows from then on.  At most VIRTIO_WHY_LEN -
 * 10 bytes of it are kept.
 */
void	virtio_refuse(device_t dev, const char *fmt, ...) __printflike(2, 3);

/*
 * Bring a stopped device back to where virtio_alloc_queues() left it: same
 * features, every queue re-initialised (pvq_reinit), of the size that was set
 * last, and set up.
 *
 * Returns 0; ENODEV if the device now offers less than was agreed on; the error
 * of virtio_alloc_queues().  May sleep.
 */
int	virtio_restart(device_t dev);

/*
 * Allocate the queues that were left out of virtio_alloc_queues(), where
 * vqs_pvq was NULL: the next virtio_restart() sets them up, with an interrupt
 * for each if there are enough.  The device goes on until then, and its queues
 * keep their numbers.
 *
 * specs  of all n queues; those that there are already are not looked at
 *
 * Returns 0, also if there was nothing to allocate; ENOMEM; or ENXIO, logged,
 * if the device has no such queues: none was allocated then.  May sleep.
 */
int	virtio_spare_queues(device_t dev, const struct virtio_queue_spec *specs,
    int n);

/*
 * Is a queue to be reset alone while the device has requests of it?  RING_RESET
 * promises that (2.6.1), but QEMU, which offers it, goes on with a disk's
 * requests, and aborts for some of a card's.
 *
 * wanted  the tunable hw.DRIVER.queue_reset: 1 yes, 0 no, -1 unless the device
 *         says that it is QEMU's, by its PCI subsystem or its MMIO VendorID
 */
bool	virtio_resets_busy_queues(device_t dev, int wanted);

/*
 * Reset one queue and wait until the device has done so (VirtIO 1.3, 2.6.1).
 * The device is live; the driver has stopped using the queue.  When this
 * returns 0 the device does not access it any more, and it can be drained.
 *
 * index  of the queue in the array that virtio_alloc_queues() was given
 *
 * Returns 0; EOPNOTSUPP if RING_RESET was not agreed on, or the device failed
 * to do it before; ETIMEDOUT, logged, if it does not finish: reset the device.
 * May sleep.
 */
int	virtio_stop_queue(device_t dev, u_int index);

/*
 * A queue's ring is to have another size from the next virtio_restart_queue()
 * or virtio_restart() on.
 *
 * size  places, at most as many as it was allocated with
 *
 * Returns 0; EOPNOTSUPP if the device alone decides (legacy); EINVAL if it is
 * too large, too small for the longest chain, or (split) not a power of two.
 */
int	virtio_set_queue_size(device_t dev, u_int index, u_int size);

/*
 * Start a drained queue again: re-initialised (pvq_reinit), with the same
 * vector, and the same memory and size unless another was set.
 *
 * Returns 0, or an error, logged, if the device did not take it: reset the
 * device.  May sleep.
 */
int	virtio_restart_queue(device_t dev, u_int index);

/*
 * Does the device require a reset (DEVICE_NEEDS_RESET, VirtIO 1.3, 2.1.2)?  Or
 * was one requested by virtio_request_reset(), or the device reset while it was
 * suspended?
 */
bool	virtio_needs_reset(device_t dev);

/*
 * For a driver that finds a queue broken where it may not sleep:
 * VIRTIO_CONFIG_CHANGED is called in a second, and virtio_needs_reset() is true
 * then.  The driver does not use the queue until it has reset the device.  From
 * virtio_alloc_queues() to virtio_leave(), in any context.
 */
void	virtio_request_reset(device_t dev);

/* A driver and the type of devices (VIRTIO_ID_*) that it is for. */
struct virtio_driver {
	struct driver_module_data vdr_buses[2];	/* vtpci and vtmmio */
	uint32_t	 vdr_type;
	const char	*vdr_descr;
	const char	*vdr_name;
	SLIST_ENTRY(virtio_driver) vdr_link;
};

/*
 * The module event handler of VIRTIO_DRIVER_MODULE(); arg is its struct
 * virtio_driver.
 */
int	virtio_driver_modevent(module_t mod, int what, void *arg);

/* What devmatch(8) compares, so that devd(8) loads the module. */
struct virtio_pnp {
	uint32_t	type;
};

/* The device_probe method of a driver that VIRTIO_DRIVER_MODULE() registers. */
int	virtio_probe(device_t dev);

/*
 * Register a driver for the devices of a type (VIRTIO_ID_*), on every
 * transport.
 *
 * descr  of the device, as device_set_desc(9) takes it
 */
#define	VIRTIO_DRIVER_MODULE(name, driver, type, descr)			\
	static struct virtio_driver name ## _virtio = {			\
		.vdr_buses = {						\
			{ .dmd_busname = "vtpci",			\
			  .dmd_driver = (kobj_class_t)&driver,		\
			  .dmd_pass = BUS_PASS_DEFAULT },		\
			{ .dmd_busname = "vtmmio",			\
			  .dmd_driver = (kobj_class_t)&driver,		\
			  .dmd_pass = BUS_PASS_DEFAULT },		\
		},							\
		.vdr_type = (type),					\
		.vdr_descr = (descr),					\
	};								\
	static moduledata_t name ## _virtio_mod = {			\
		"virtio/" #name, virtio_driver_modevent, &name ## _virtio \
	};								\
	DECLARE_MODULE(name ## _virtio, name ## _virtio_mod,		\
	    SI_SUB_DRIVERS, SI_ORDER_MIDDLE);				\
	static const struct virtio_pnp name ## _pnp[] = { { type } };	\
	MODULE_PNP_INFO("U32:device_type;", vtpci, name, name ## _pnp, 1); \
	MODULE_PNP_INFO("U32:device_type;", vtmmio, name, name ## _pnp, 1)

/*
 * What its module, pv_NAME, depends on: also the buses, though it uses nothing
 * of theirs, so that one kldload(8) finds devices.
 */
#define	VIRTIO_DRIVER_DEPENDS(name)					\
	MODULE_VERSION(pv_ ## name, 1);					\
	MODULE_DEPEND(pv_ ## name, pv, 1, 1, 1);			\
	MODULE_DEPEND(pv_ ## name, pv_virtio, 1, 1, 1);			\
	MODULE_DEPEND(pv_ ## name, vtpci, 1, 1, 1);			\
	MODULE_DEPEND(pv_ ## name, vtmmio, 1, 1, 1);

#endif /* !_DEV_VIRTIO_VIRTIO_H_ */
