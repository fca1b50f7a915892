/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The virtio bus: the half that is the same for every transport.
 *
 * A device goes through these states (VirtIO 1.3, 2.1 and 3.1); virtio.h lists
 * the functions that a driver moves it with.
 *
 *	      negotiate           alloc_queues             start
 *	reset ---------> features ------------> queues ------------> live
 *	  ^              agreed                 set up                |
 *	  |                                       ^                   | quiesce
 *	  |                                       | restart           v
 *	  +-------------- free_queues ------------+--------------- stopped
 *
 * The transport is called through virtio_bus_if.m on the child's parent, whose
 * softc begins with a struct virtio_bus.  Interrupts are virtio_intr.c's.
 *
 * Features of the ring (packed, indirect descriptors, event indices ...) are
 * negotiated here and not by drivers, which do not depend on them;
 * virtio_feature.c has their table.
 *
 * Locking.  None.  A driver calls these functions one at a time.  Interrupt
 * handlers read vb_awake, and pvq_kick() reads vb_live, without a lock: acting
 * on the old value is harmless, because the queues and the registers are there
 * until virtio_free_queues() has waited for the handlers.
 *
 * Gaps.  Legacy devices, whose fields are in the guest's order, are not served
 * on a big-endian machine.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/eventhandler.h>
#include <sys/libkern.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/sbuf.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>

#include <machine/atomic.h>

#include <dev/pv/pv_compat.h>
#include <dev/pv/pv_log.h>
#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>

/*
 * After so many changes during a read the configuration is taken for unstable.
 */
#define	VIRTIO_CONFIG_TRIES	100
static MALLOC_DEFINE(M_VIRTIO, "virtio", "virtio bus");

MODULE_VERSION(pv_virtio, 1);
MODULE_DEPEND(pv_virtio, pv, 1, 1, 1);

static int
virtio_modevent(module_t mod __unused, int what, void *arg __unused)
{

	switch (what) {
	case MOD_LOAD:
		virtio_driver_init();
		return (0);
	case MOD_UNLOAD:
		virtio_driver_fini();
		return (0);
	case MOD_SHUTDOWN:
		return (0);
	default:
		return (EOPNOTSUPP);
	}
}

static moduledata_t virtio_module = {
	"pv_virtio",
	virtio_modevent,
	NULL
};

DECLARE_MODULE(pv_virtio, virtio_module, SI_SUB_DRIVERS, SI_ORDER_SECOND);

static inline struct virtio_bus *
virtio_bus_of(device_t child)
{

	return (device_get_softc(device_get_parent(child)));
}

/*
 * Choose from the features that the device offers.  Returns ENOTSUP, logged, if
 * one is missing.
 */
static int
virtio_choose(struct virtio_bus *vb, const struct virtio_feature *table,
    uint64_t *chosen)
{
	const struct virtio_feature *vf;
	uint64_t mask;

	mask = virtio_ring_mask();
	for (vf = table; vf->vf_mask != 0; vf++) {
		if ((vf->vf_flags & VIRTIO_FEATURE_OFF) == 0)
			mask |= vf->vf_mask;
		if ((vf->vf_flags & VIRTIO_FEATURE_REQUIRED) != 0 &&
		    (vb->vb_offered & vf->vf_mask) == 0) {
			virtio_refuse(vb->vb_child,
			    "device does not offer %s, which its driver "
			    "needs", vf->vf_name);
			return (ENOTSUP);
		}
	}
	if (vb->vb_modern && (vb->vb_offered & VIRTIO_F_VERSION_1) == 0) {
		virtio_refuse(vb->vb_child, "device does not offer VERSION_1");
		return (ENOTSUP);
	}
	*chosen = vb->vb_offered & mask;
	return (0);
}

/* May the driver use a device that offers this? */
static int
virtio_check(device_t dev, const struct virtio_bus *vb,
    const struct virtio_feature *table)
{
	const struct virtio_feature *vf;
	int error = 0;

	for (vf = table; vf->vf_mask != 0 && error == 0; vf++) {
		if (vf->vf_check != NULL && (vb->vb_offered & vf->vf_mask) != 0)
			error = vf->vf_check(dev);
	}
	return (error);
}

/* NEEDS_RESET is the device's to set (2.1), or the transport's own. */
static void
virtio_set_status(struct virtio_bus *vb, uint8_t bits)
{
	uint8_t status = VIRTIO_BUS_GET_STATUS(vb->vb_dev) &
	    ~VIRTIO_STATUS_NEEDS_RESET;

	VIRTIO_BUS_SET_STATUS(vb->vb_dev, status | bits);
}

/* Handle no interrupts, notify no more, and reset the device. */
static int
virtio_halt(struct virtio_bus *vb)
{
	int error;

	if (vb->vb_awake)
		atomic_store_int(&vb->vb_recalled, 1);
	vb->vb_awake = vb->vb_live = false;
	vb->vb_reset_wanted = false;
	error = VIRTIO_BUS_RESET(vb->vb_dev);
	vb->vb_lost = error == ETIMEDOUT;
	return (error);
}

/* Reset, ACKNOWLEDGE, DRIVER: the first steps (3.1.1, 1 to 3). */
static int
virtio_reset(struct virtio_bus *vb)
{
	bool said = vb->vb_lost;
	int error;

	error = virtio_halt(vb);
	if (error != 0) {
		/*
		 * Of one that does not answer, it is said once, however often
		 * that is tried.
		 */
		if (error != ETIMEDOUT || !said)
			device_printf(vb->vb_dev, error == ENXIO ?
			    "device was removed\n" : error == EIO ?
			    "device is not used: its interrupt can't be acknowledged\n"
			    : "device does not answer a reset\n");
		return (error == ETIMEDOUT ? ETIMEDOUT : ENODEV);
	}
	VIRTIO_BUS_SET_STATUS(vb->vb_dev, VIRTIO_STATUS_ACK);
	virtio_set_status(vb, VIRTIO_STATUS_DRIVER);
	return (0);
}

/* Write the features, check FEATURES_OK (3.1.1, 4 to 6). */
static int
virtio_agree(struct virtio_bus *vb, uint64_t features)
{

	VIRTIO_BUS_SET_FEATURES(vb->vb_dev, features);
	if (vb->vb_modern) {
		virtio_set_status(vb, VIRTIO_STATUS_FEATURES_OK);
		if ((VIRTIO_BUS_GET_STATUS(vb->vb_dev) &
		    VIRTIO_STATUS_FEATURES_OK) == 0) {
			virtio_refuse(vb->vb_child,
			    "device refused features 0x%jx",
			    (uintmax_t)features);
			virtio_set_status(vb, VIRTIO_STATUS_FAILED);
			return (ENODEV);
		}
	}
	vb->vb_features = features;
	return (0);
}

int
virtio_negotiate(device_t dev, const struct virtio_feature *table,
    uint64_t *got)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	uint64_t chosen;
	int error;

	KASSERT(vb->vb_slots == NULL, ("%s: queues are allocated", __func__));
	error = virtio_reset(vb);
	/* An attachment is not tried again. */
	if (error != 0)
		return (ENODEV);
	vb->vb_offered = VIRTIO_BUS_GET_FEATURES(vb->vb_dev);
	if (!vb->vb_modern)
		vb->vb_offered &= UINT32_MAX;
	vb->vb_no_queue_reset = false;
	virtio_feature_names(vb->vb_offered_str, table, vb->vb_offered);
	error = virtio_choose(vb, table, &chosen);
	if (error == 0)
		error = virtio_check(dev, vb, table);
	if (error == 0)
		error = virtio_agree(vb, chosen);
	else
		virtio_set_status(vb, VIRTIO_STATUS_FAILED);
	if (error != 0)
		return (error);
	virtio_feature_names(vb->vb_features_str, table, vb->vb_features);
	if (bootverbose) {
		device_printf(vb->vb_dev, "device offers %s\n",
		    vb->vb_offered_str);
		device_printf(vb->vb_dev, "in use: %s\n", vb->vb_features_str);
	}
	*got = vb->vb_features;
	return (0);
}

uint64_t
virtio_features(device_t dev)
{

	return (virtio_bus_of(dev)->vb_features);
}

u_int
virtio_queue_places(device_t dev, u_int index)
{
	struct virtio_bus *vb = virtio_bus_of(dev);

	KASSERT(vb->vb_slots == NULL, ("%s: queues are allocated", __func__));
	return (VIRTIO_BUS_QUEUE_SIZE(vb->vb_dev, index));
}

/* The width of one access to a field of len bytes. */
static int
virtio_config_width(size_t len)
{

	if (len == 2 || len == 4)
		return (len);
	return (len == 8 ? 4 : 1);
}

/* Returns true if what was read is what was in dst before. */
static bool
virtio_config_pass(struct virtio_bus *vb, bus_size_t off, char *dst, size_t len)
{
	int width = virtio_config_width(len);
	union {
		uint8_t		u8;
		uint16_t	u16;
		uint32_t	u32;
	} value;
	uint32_t v;
	size_t at, i;
	bool same;

	same = true;
	for (i = 0; i < len; i += width) {
		v = VIRTIO_BUS_READ_CONFIG(vb->vb_dev, off + i, width);
		if (width == 4)
			value.u32 = v;
		else if (width == 2)
			value.u16 = v;
		else
			value.u8 = v;
		at = virtio_config_at(i, len, BYTE_ORDER == BIG_ENDIAN);
		if (memcmp(dst + at, &value, width) != 0) {
			same = false;
			memcpy(dst + at, &value, width);
		}
	}
	return (same);
}

static bool
virtio_config_outside(struct virtio_bus *vb, bus_size_t off, size_t len)
{
	bus_size_t size = VIRTIO_BUS_CONFIG_SIZE(vb->vb_dev);

	return (len > size || off > size - len);
}

int
virtio_read_config(device_t dev, bus_size_t off, void *dst, size_t len)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	uint32_t gen;
	int tries;
	bool same;

	if (virtio_config_outside(vb, off, len))
		return (ENXIO);
	memset(dst, 0, len);
	if (len == (size_t)virtio_config_width(len)) {
		(void)virtio_config_pass(vb, off, dst, len);
		return (0);
	}
	/*
	 * A legacy device has no generation (2.5.4): two passes that read the
	 * same must do.  The first one compares with an empty buffer.
	 */
	for (tries = 0; tries < VIRTIO_CONFIG_TRIES; tries++) {
		gen = VIRTIO_BUS_CONFIG_GEN(vb->vb_dev);
		same = virtio_config_pass(vb, off, dst, len);
		if (vb->vb_modern && gen == VIRTIO_BUS_CONFIG_GEN(vb->vb_dev))
			return (0);
		if (!vb->vb_modern && same && tries > 0)
			return (0);
	}
	if (PV_LOGS(++vb->vb_unsteady))
		device_printf(vb->vb_dev,
		    "configuration at %ju changed at each attempt to read it\n",
		    (uintmax_t)off);
	return (EBUSY);
}

int
virtio_write_config(device_t dev, bus_size_t off, const void *src, size_t len)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	const char *from = src;
	int width = virtio_config_width(len);
	uint16_t v16;
	uint32_t v32;
	size_t i;

	if (virtio_config_outside(vb, off, len))
		return (ENXIO);
	for (i = 0; i < len; i += width) {
		if (width == 4)
			memcpy(&v32, from + virtio_config_at(i, len,
			    BYTE_ORDER == BIG_ENDIAN), 4);
		else if (width == 2) {
			memcpy(&v16, from + i, 2);
			v32 = v16;
		} else
			v32 = (uint8_t)from[i];
		VIRTIO_BUS_WRITE_CONFIG(vb->vb_dev, off + i, v32, width);
	}
	return (0);
}

static void
virtio_config_task(void *arg, int pending __unused)
{
	struct virtio_bus *vb = arg;

	if ((vb->vb_awake || vb->vb_reset_wanted) && !vb->vb_leaving &&
	    !vb->vb_asleep)
		(void)VIRTIO_CONFIG_CHANGED(vb->vb_child);
}

/* Wait until the task has returned, and cancel it if it was to come. */
static void
virtio_config_drain(struct virtio_bus *vb)
{

	/*
	 * Cancelled first, as a queue keeps count of a callout that was only
	 * drained.
	 */
	while (taskqueue_cancel_timeout(vb->vb_config_tasks.pt_tq,
	    &vb->vb_config_task, NULL) != 0)
		taskqueue_drain_timeout(vb->vb_config_tasks.pt_tq,
		    &vb->vb_config_task);
}

/* Choose the size of a queue.  Returns 0, logged, if no size fits. */
static uint16_t
virtio_choose_size(struct virtio_bus *vb, int index,
    const struct virtio_queue_spec *spec)
{
	uint16_t size;

	size = VIRTIO_BUS_QUEUE_SIZE(vb->vb_dev, index);
	if (size == 0) {
		device_printf(vb->vb_dev, "device has no queue %d (%s)\n",
		    index, spec->vqs_spec.pqs_name);
		return (0);
	}
	/* A packed ring is of any size (2.8.10.1). */
	if ((!powerof2(size) &&
	    (vb->vb_features & VIRTIO_F_RING_PACKED) == 0) ||
	    size > VRING_MAX_SIZE) {
		device_printf(vb->vb_dev,
		    "queue %d (%s): size %u is not a power of two up to "
		    "%u\n", index, spec->vqs_spec.pqs_name, size,
		    VRING_MAX_SIZE);
		return (0);
	}
	while (!vb->vb_fixed_size && spec->vqs_max_size != 0 &&
	    size > spec->vqs_max_size && size > 1)
		size /= 2;
	return (size);
}

/*
 * A ring for a queue.  Returns 0, or an error, with a message if it is to be
 * said.
 */
static int
virtio_alloc_ring(struct virtio_bus *vb, int index,
    const struct virtio_queue_spec *spec, bool say, struct pvq **qp)
{
	struct virtqueue_params params = {
		.vqp_dev = vb->vb_dev,
		.vqp_name = spec->vqs_spec.pqs_name,
		.vqp_dmat = vb->vb_dmat,
		.vqp_features = vb->vb_features,
		.vqp_index = index,
		.vqp_max_segs = spec->vqs_spec.pqs_max_segs,
		.vqp_table_segs = spec->vqs_table_segs,
		.vqp_flags = spec->vqs_flags |
		    (virtio_tunables[VIRTIO_STRICT_LENGTHS].pt_value != 0 ?
		    VIRTQUEUE_STRICT_LENGTHS : 0),
		.vqp_align = vb->vb_ring_align,
		.vqp_notify = vb->vb_notify,
		.vqp_notify_arg = vb->vb_notify_arg,
	};
	int error;

	params.vqp_size = virtio_choose_size(vb, index, spec);
	if (params.vqp_size == 0)
		return (ENXIO);
	error = virtqueue_create(&params, qp);
	if (error != 0 && say)
		device_printf(vb->vb_dev,
		    "queue %d (%s): no memory for %u descriptors (error "
		    "%d)\n", index, spec->vqs_spec.pqs_name, params.vqp_size,
		    error);
	return (error);
}

static int
virtio_alloc_queue(struct virtio_bus *vb, int index,
    const struct virtio_queue_spec *spec)
{
	struct virtio_slot *vs = &vb->vb_slots[index];
	int error;

	vs->vs_bus = vb;
	vs->vs_vector = -1;
	if (spec->vqs_spec.pqs_pvq == NULL)
		return (0);
	error = virtio_alloc_ring(vb, index, spec, true, &vs->vs_pvq);
	if (error != 0)
		return (error);
	vs->vs_spec = spec->vqs_spec;
	*vs->vs_spec.pqs_pvq = vs->vs_pvq;
	if (vs->vs_spec.pqs_intr == NULL)
		pvq_intr_disable(vs->vs_pvq);
	return (0);
}

int
virtio_spare_queues(device_t dev, const struct virtio_queue_spec *specs, int n)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	struct virtio_slot *vs;
	int error = 0, i;

	KASSERT(n <= vb->vb_nslots,
	    ("%s: %d queues of %d", __func__, n, vb->vb_nslots));
	for (i = 0; i < n && error == 0; i++) {
		vs = &vb->vb_slots[i];
		if (vs->vs_pvq == NULL && vs->vs_spare == NULL &&
		    specs[i].vqs_spec.pqs_pvq != NULL)
			error = virtio_alloc_ring(vb, i, &specs[i], false,
			    &vs->vs_spare);
	}
	/* All, or none takes part in the next restart. */
	for (i = 0; i < n; i++) {
		vs = &vb->vb_slots[i];
		if (vs->vs_spare == NULL)
			continue;
		if (error == 0)
			vs->vs_spec = specs[i].vqs_spec;
		else
			pvq_free(vs->vs_spare);
		if (error != 0)
			vs->vs_spare = NULL;
	}
	return (error);
}

/*
 * The queues that were allocated since the last start.  Returns true if there
 * are any.
 */
static bool
virtio_use_spares(struct virtio_bus *vb)
{
	struct virtio_slot *vs;
	bool any = false;

	for (vs = vb->vb_slots; vs < vb->vb_slots + vb->vb_nslots; vs++) {
		if (vs->vs_spare == NULL)
			continue;
		vs->vs_pvq = *vs->vs_spec.pqs_pvq = vs->vs_spare;
		vs->vs_spare = NULL;
		any = true;
	}
	return (any);
}

/* Give every queue to the device. */
static int
virtio_setup_queues(struct virtio_bus *vb)
{
	int error, i;

	for (i = 0; i < vb->vb_nslots; i++) {
		if (vb->vb_slots[i].vs_pvq == NULL)
			continue;
		error = VIRTIO_BUS_QUEUE_SETUP(vb->vb_dev, i,
		    vb->vb_slots[i].vs_pvq);
		if (error != 0) {
			device_printf(vb->vb_dev,
			    "device did not accept queue %d (%s)\n", i,
			    vb->vb_slots[i].vs_pvq->q_name);
			return (error);
		}
	}
	return (0);
}

int
virtio_alloc_queues(device_t dev, const struct virtio_queue_spec *specs, int n,
    int type)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	int error, i;

	KASSERT(vb->vb_slots == NULL, ("%s: queues are allocated", __func__));
	error = pv_tasks_init(&vb->vb_config_tasks);
	if (error != 0)
		return (error);
	vb->vb_slots = malloc(n * sizeof(*vb->vb_slots), M_VIRTIO,
	    M_WAITOK | M_ZERO);
	vb->vb_nslots = n;
	vb->vb_intr_type = type;
	TIMEOUT_TASK_INIT(vb->vb_config_tasks.pt_tq, &vb->vb_config_task, 0,
	    virtio_config_task, vb);
	for (i = 0; i < n && error == 0; i++)
		error = virtio_alloc_queue(vb, i, &specs[i]);
	if (error == 0)
		error = virtio_intr_alloc(vb, type);
	if (error == 0)
		error = virtio_setup_queues(vb);
	if (error != 0)
		virtio_free_queues(dev);
	return (error);
}

void
virtio_free_queues(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	struct virtio_slot *vs;

	if (vb->vb_slots == NULL)
		return;
	KASSERT(!vb->vb_awake, ("%s: the device is live", __func__));
	virtio_intr_free(vb);
	virtio_config_drain(vb);
	pv_tasks_free(&vb->vb_config_tasks);
	for (vs = vb->vb_slots; vs < vb->vb_slots + vb->vb_nslots; vs++) {
		pvq_free(vs->vs_spare);
		if (vs->vs_pvq == NULL)
			continue;
		/* A device that may still write to its rings keeps them. */
		if (!vb->vb_lost)
			pvq_free(vs->vs_pvq);
		*vs->vs_spec.pqs_pvq = NULL;
	}
	free(vb->vb_slots, M_VIRTIO);
	vb->vb_slots = NULL;
	vb->vb_nslots = 0;
}

void
virtio_start(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	struct pvq *q;
	int i;

	vb->vb_awake = true;
	virtio_set_status(vb, VIRTIO_STATUS_DRIVER_OK);
	vb->vb_live = true;
	/*
	 * The device could not be notified of chains that were put before now
	 * (3.1.1).  The fence pairs with the one in pvq_kick(): a concurrent
	 * kick sees that the device is live, or its chains are seen here.
	 */
	atomic_thread_fence_seq_cst();
	for (i = 0; i < vb->vb_nslots; i++) {
		q = vb->vb_slots[i].vs_pvq;
		if (q != NULL && pvq_inflight(q) > 0)
			virtqueue_notify(q);
	}
}

int
virtio_quiesce(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	int error;

	error = virtio_halt(vb);
	/*
	 * A device that was removed, or is left reset, accesses nothing any
	 * more.
	 */
	if (error == ENXIO || error == EIO)
		return (0);
	if (error != 0)
		device_printf(vb->vb_dev,
		    "device does not answer a reset: it was cut off, and "
		    "its memory is lost\n");
	return (error);
}

/*
 * Interrupts that there were before, so that it is no more than a shortage if
 * there are none now.
 */
static int
virtio_intr_again(struct virtio_bus *vb)
{
	return (virtio_intr_alloc(vb, vb->vb_intr_type) == 0 ? 0 : ENOSPC);
}

int
virtio_restart(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	struct virtio_slot *vs;
	uint64_t offered;
	bool more;
	int error;

	error = virtio_reset(vb);
	if (error != 0)
		return (error);
	offered = VIRTIO_BUS_GET_FEATURES(vb->vb_dev);
	if ((vb->vb_features & ~offered) != 0) {
		device_printf(vb->vb_dev,
		    "device no longer offers features 0x%jx\n",
		    (uintmax_t)(vb->vb_features & ~offered));
		return (ENODEV);
	}
	error = virtio_agree(vb, vb->vb_features);
	/*
	 * A dump needs neither more queues nor interrupts, for which it would
	 * have to sleep.
	 */
	more = error == 0 && panicstr == NULL && virtio_use_spares(vb);
	for (vs = vb->vb_slots; error == 0 && vs < vb->vb_slots + vb->vb_nslots;
	    vs++) {
		if (vs->vs_pvq == NULL)
			continue;
		error = virtio_slot_reinit(vs);
	}
	/* The vectors that there are may be too few. */
	if (more)
		virtio_intr_free(vb);
	if (error == 0 && vb->vb_nirqs != 0)
		error = virtio_intr_rebind(vb);
	else if (error == 0 && panicstr == NULL)
		error = virtio_intr_again(vb);
	if (error == 0)
		error = virtio_setup_queues(vb);
	return (error);
}

bool
virtio_needs_reset(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);
	uint8_t status;

	if (vb->vb_reset_wanted)
		return (true);
	status = VIRTIO_BUS_GET_STATUS(vb->vb_dev);
	/* All ones: removed, a reset is not possible. */
	return (status != 0xff && (status & VIRTIO_STATUS_NEEDS_RESET) != 0);
}

void
virtio_request_reset(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);

	vb->vb_reset_wanted = true;
	(void)taskqueue_enqueue_timeout_sbt(vb->vb_config_tasks.pt_tq,
	    &vb->vb_config_task, SBT_1S, 0, 0);
}

int
virtio_bus_read_ivar(device_t dev, device_t child __unused, int which,
    uintptr_t *result)
{
	struct virtio_bus *vb = device_get_softc(dev);

	switch (which) {
	case VIRTIO_IVAR_DEVICE_TYPE:
		*result = vb->vb_type;
		return (0);
	case VIRTIO_IVAR_VENDOR:
		*result = vb->vb_vendor;
		return (0);
	case VIRTIO_IVAR_MODERN:
		*result = vb->vb_modern;
		return (0);
	default:
		return (ENOENT);
	}
}

/*
 * The driver has left, or did not get as far as to attach: leave the device as
 * it was found.
 */
void
virtio_bus_child_detached(device_t dev, device_t child)
{
	struct virtio_bus *vb = device_get_softc(dev);

	KASSERT(vb->vb_slots == NULL,
	    ("%s: the driver left its queues behind", __func__));
	vb->vb_leaving = false;
	strlcpy(vb->vb_last_name, device_get_nameunit(child),
	    sizeof(vb->vb_last_name));
	if (virtio_halt(vb) == 0)
		VIRTIO_BUS_SET_STATUS(dev, VIRTIO_STATUS_ACK);
}

int
virtio_leave(device_t dev)
{
	struct virtio_bus *vb = virtio_bus_of(dev);

	if (vb->vb_leaving)
		return (EBUSY);
	vb->vb_leaving = true;
	if (vb->vb_slots != NULL)
		virtio_config_drain(vb);
	return (0);
}

/*
 * A driver without a device_suspend method has left its device as it was.  It
 * is reset here, and the driver finds that when it is resumed.
 */
static int
virtio_sleep(struct virtio_bus *vb)
{
	int error;

	vb->vb_asleep = true;
	virtio_config_drain(vb);
	error = virtio_halt(vb);
	if (error == ETIMEDOUT)
		vb->vb_asleep = false;
	return (error == ETIMEDOUT ? error : 0);
}

static void
virtio_wake(struct virtio_bus *vb)
{

	vb->vb_asleep = false;
	vb->vb_reset_wanted = true;
	(void)taskqueue_enqueue_timeout_sbt(vb->vb_config_tasks.pt_tq,
	    &vb->vb_config_task, 0, 0, 0);
}

/*
 * The topology lock is dropped wherever a thread sleeps, so that this may be in
 * the middle of an attach or a detach: then the driver has not all that it
 * would suspend.  The other way round, a device is busy while it is suspended,
 * and is not detached.
 */
int
virtio_bus_suspend_child(device_t dev, device_t child)
{
	struct virtio_bus *vb = device_get_softc(dev);
	int error;

	if (device_get_state(child) < DS_ATTACHING)
		return (0);
	if (!device_is_attached(child) || vb->vb_leaving) {
		device_printf(child, "can't be suspended: it is about to %s\n",
		    vb->vb_leaving ? "detach" : "attach");
		return (EBUSY);
	}
	device_busy(child);
	error = bus_generic_suspend_child(dev, child);
	if (error == 0 && vb->vb_awake)
		error = virtio_sleep(vb);
	device_unbusy(child);
	return (error);
}

int
virtio_bus_resume_child(device_t dev, device_t child)
{
	struct virtio_bus *vb = device_get_softc(dev);
	int error;

	/* One that had no driver then is the new driver's to set up. */
	if (!device_is_suspended(child))
		return (0);
	device_busy(child);
	error = bus_generic_resume_child(dev, child);
	if (error == 0 && vb->vb_asleep)
		virtio_wake(vb);
	device_unbusy(child);
	return (error);
}

int
virtio_bus_child_pnpinfo(device_t dev, device_t child __unused, struct sbuf *sb)
{
	struct virtio_bus *vb = device_get_softc(dev);

	sbuf_printf(sb, "vendor=0x%08x device_type=0x%08x", vb->vb_vendor,
	    vb->vb_type);
	return (0);
}

/*
 * A virtio device is the only one on its bus: its location is its transport's.
 */
int
virtio_bus_child_location(device_t dev, device_t child __unused,
    struct sbuf *sb)
{

	return (BUS_CHILD_LOCATION(device_get_parent(dev), dev, sb));
}

/*
 * For devctl(8): a device loses its name with its driver, and is found by the
 * one that it had last.
 */
static void
virtio_lookup(void *arg, const char *name, device_t *devp)
{
	struct virtio_bus *vb = arg;

	if (*devp == NULL && vb->vb_child != NULL &&
	    !device_is_attached(vb->vb_child) &&
	    strcmp(name, vb->vb_last_name) == 0)
		*devp = vb->vb_child;
}

/*
 * In a context of our own: newbus frees the softc, and what is read here,
 * before the device's.
 */
static void
virtio_bus_sysctl(struct virtio_bus *vb)
{
	struct sysctl_ctx_list *ctx = &vb->vb_sysctl;
	struct sysctl_oid_list *list;

	sysctl_ctx_init(ctx);
	list = SYSCTL_CHILDREN(device_get_sysctl_tree(vb->vb_dev));
	SYSCTL_ADD_STRING(ctx, list, OID_AUTO, "offered", CTLFLAG_RD,
	    vb->vb_offered_str, 0, "Features that the device offers");
	SYSCTL_ADD_STRING(ctx, list, OID_AUTO, "features", CTLFLAG_RD,
	    vb->vb_features_str, 0, "Features in use");
	SYSCTL_ADD_UINT(ctx, list, OID_AUTO,
	    "unsteady", CTLFLAG_RD, &vb->vb_unsteady, 0,
	    "Times a part of the configuration changed at each attempt to read it");
}

int
virtio_bus_detach(struct virtio_bus *vb)
{
	int error;

	if (vb->vb_detaching)
		return (EBUSY);
	vb->vb_detaching = true;
	error = device_delete_children(vb->vb_dev);
	if (error != 0) {
		vb->vb_detaching = false;
		return (error);
	}
	vb->vb_child = NULL;
	if (vb->vb_lookup != NULL)
		EVENTHANDLER_DEREGISTER(dev_lookup, vb->vb_lookup);
	vb->vb_lookup = NULL;
	(void)sysctl_ctx_free(&vb->vb_sysctl);
	return (0);
}

int
virtio_bus_attach(struct virtio_bus *vb)
{
	int error;

	error = VIRTIO_BUS_RESET(vb->vb_dev);
	if (error != 0) {
		if (error == ETIMEDOUT)
			strlcpy(vb->vb_why, "device does not answer a reset",
			    sizeof(vb->vb_why));
		else
			device_printf(vb->vb_dev, "device was removed\n");
		virtio_bus_refused(vb, error);
		return (error);
	}
	VIRTIO_BUS_SET_STATUS(vb->vb_dev, VIRTIO_STATUS_ACK);
	virtio_bus_sysctl(vb);
	vb->vb_child = device_add_child(vb->vb_dev, NULL, DEVICE_UNIT_ANY);
	if (vb->vb_child == NULL) {
		(void)sysctl_ctx_free(&vb->vb_sysctl);
		return (ENOMEM);
	}
	vb->vb_lookup = EVENTHANDLER_REGISTER(dev_lookup, virtio_lookup, vb,
	    EVENTHANDLER_PRI_ANY);
	error = device_probe_and_attach(vb->vb_child);
	if (error != 0) {
		(void)virtio_bus_detach(vb);
		virtio_bus_refused(vb, error);
	} else
		virtio_bus_accepted(vb);
	return (error);
}

static device_method_t virtio_bus_methods[] = {
	DEVMETHOD(device_suspend,	bus_generic_suspend),
	DEVMETHOD(device_resume,	bus_generic_resume),

	DEVMETHOD(bus_read_ivar,	virtio_bus_read_ivar),
	DEVMETHOD(bus_driver_added,	bus_generic_driver_added),
	DEVMETHOD(bus_child_detached,	virtio_bus_child_detached),
	DEVMETHOD(bus_child_pnpinfo,	virtio_bus_child_pnpinfo),
	DEVMETHOD(bus_child_location,	virtio_bus_child_location),
	DEVMETHOD(bus_suspend_child,	virtio_bus_suspend_child),
	DEVMETHOD(bus_resume_child,	virtio_bus_resume_child),

	DEVMETHOD_END
};

DEFINE_CLASS_0(virtio_bus, virtio_bus_driver, virtio_bus_methods,
    sizeof(struct virtio_bus));
