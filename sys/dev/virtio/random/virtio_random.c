/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * virtio_random: the entropy device (VirtIO 1.3, 5.4), a source of random(4).
 *
 * The device has one queue.  It fills the buffers that it is given with random
 * bytes, as many as it has and at least one (5.4.6), and has neither features
 * nor a configuration.
 *
 * random(4) reads its sources some times a second, a few bytes at a time, in a
 * section in which no thread may sleep.  There is one buffer.  The device has
 * it, for as long as it takes, or random(4) reads what the device wrote:
 *
 *	            vtrnd_put()
 *	+-----------------------------> the device's ----+
 *	|                                                | its answer is found
 *	+--- all was read <--- vtrnd_left > 0 <----------+ by vtrnd_read()
 *
 * Trust.  The used length is checked by the ring; an answer without a byte is a
 * violation.  The buffer is cleared before the device gets it: what the device
 * did not write is 0, and never what it wrote before.  A device that does not
 * answer costs nothing, and may have its reasons (QEMU's max-bytes).  One that
 * breaks its queue, or requires it (DEVICE_NEEDS_RESET), is reset; meanwhile
 * random(4) has its other sources.
 *
 * Locking.  vtrnd_mtx: vtrnd_live, the putting and the getting side of its
 * queue, and its buffer.  What resets a device is not called twice at a time
 * (virtio.h).
 *
 * Gaps.  random(4)'s function for a source has no argument: one device is used.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/random.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>

#include <dev/random/randomdev.h>

#include <dev/pv/pv_dma.h>
#include <dev/pv/queue/pvq.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtqueue.h>

#define	VTRND_SIZE	256	/* bytes requested at once */

struct vtrnd_softc {
	device_t	 vtrn_dev;
	struct pvq	*vtrn_queue;
	struct pv_dma	 vtrn_dma;	/* the buffer */
	u_int		 vtrn_left;	/* bytes at its beginning
					 * that were not read */
	uint64_t	 vtrn_bytes;
	struct sysctl_ctx_list vtrn_sysctl;
};

static struct mtx vtrnd_mtx;
MTX_SYSINIT(vtrnd, &vtrnd_mtx, "vtrnd", MTX_DEF);
static struct vtrnd_softc *vtrnd_live;	/* that random(4) reads;
					 * NULL: none now */
static volatile u_int vtrnd_taken;	/* there is a device */

static const struct virtio_feature vtrnd_features[] = { { 0, NULL, 0, NULL } };

/* Give the buffer, all of which was read, to the device. */
static void
vtrnd_put(struct vtrnd_softc *sc)
{
	bus_dma_segment_t seg = { sc->vtrn_dma.pdm_addr, VTRND_SIZE };
	struct pvq_chain pc = { .pc_segs = &seg, .pc_nwrite = 1,
	    .pc_cookie = sc };

	explicit_bzero(sc->vtrn_dma.pdm_mem, VTRND_SIZE);
	pv_dma_sync(&sc->vtrn_dma, BUS_DMASYNC_PREREAD);
	(void)pvq_submit(sc->vtrn_queue, &pc);
}

/*
 * Up to len bytes of what the device has written, from the end; 0, if it is
 * broken.
 */
static u_int
vtrnd_take(struct vtrnd_softc *sc, void *buf, u_int len)
{
	struct pvq_done done;

	if (pvq_get(sc->vtrn_queue, &done, 1) != 0) {
		pv_dma_sync(&sc->vtrn_dma, BUS_DMASYNC_POSTREAD);
		sc->vtrn_left = virtqueue_done_len(&done);
		if (sc->vtrn_left == 0)
			pvq_break(sc->vtrn_queue, PVQ_FAULT_OWNER, 0);
	}
	if (pvq_broken(sc->vtrn_queue)) {
		vtrnd_live = NULL;
		virtio_request_reset(sc->vtrn_dev);
	}
	len = MIN(len, sc->vtrn_left);
	sc->vtrn_left -= len;
	sc->vtrn_bytes += len;
	memcpy(buf, (char *)sc->vtrn_dma.pdm_mem + sc->vtrn_left, len);
	if (len > 0 && sc->vtrn_left == 0)
		vtrnd_put(sc);
	return (len);
}

static u_int
vtrnd_read(void *buf, u_int len)
{

	mtx_lock(&vtrnd_mtx);
	len = vtrnd_live != NULL ? vtrnd_take(vtrnd_live, buf, len) : 0;
	mtx_unlock(&vtrnd_mtx);
	return (len);
}

static struct random_source vtrnd_source = {
	.rs_ident = "VirtIO entropy device", .rs_source = RANDOM_PURE_VIRTIO,
	    .rs_read = vtrnd_read,
};

/* Let random(4) read a device that is set up, or, with NULL, none. */
static void
vtrnd_use(struct vtrnd_softc *sc)
{

	mtx_lock(&vtrnd_mtx);
	vtrnd_live = sc;
	if (sc != NULL) {
		sc->vtrn_left = 0;
		vtrnd_put(sc);
		virtio_start(sc->vtrn_dev);
	}
	mtx_unlock(&vtrnd_mtx);
}

/* Reset the device and take its buffer back. */
static int
vtrnd_stop(struct vtrnd_softc *sc)
{
	int error;

	vtrnd_use(NULL);
	error = virtio_quiesce(sc->vtrn_dev);
	if (sc->vtrn_queue != NULL)
		(void)pvq_drain(sc->vtrn_queue);
	return (error);
}

/*
 * Undo attach, wherever it failed.  A device that was not reset keeps its
 * buffer.
 */
static void
vtrnd_free(struct vtrnd_softc *sc)
{

	if (vtrnd_stop(sc) == 0)
		pv_dma_free(&sc->vtrn_dma);
	else
		device_printf(sc->vtrn_dev,
		    "the device did not release its memory: leaking it\n");
	virtio_free_queues(sc->vtrn_dev);
	atomic_store_rel_int(&vtrnd_taken, 0);
}

static int
vtrnd_attach(device_t dev)
{
	struct vtrnd_softc *sc = device_get_softc(dev);
	struct virtio_queue_spec spec = { .vqs_flags = VIRTQUEUE_STRICT_LENGTHS,
	    .vqs_spec = { .pqs_name = "requestq", .pqs_max_segs = 1,
	    .pqs_cpu = -1, .pqs_pvq = &sc->vtrn_queue } };
	struct sysctl_oid_list *top =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(dev));
	uint64_t features;
	int error;

	if (atomic_cmpset_int(&vtrnd_taken, 0, 1) == 0) {
		virtio_refuse(dev, "another entropy device is in use");
		return (EBUSY);
	}
	sc->vtrn_dev = dev;
	error = virtio_negotiate(dev, vtrnd_features, &features);
	if (error == 0)
		error = pv_dma_alloc(&sc->vtrn_dma, bus_get_dma_tag(dev),
		    VTRND_SIZE, PAGE_SIZE);
	if (error == 0)
		error = virtio_alloc_queues(dev, &spec, 1, INTR_TYPE_MISC);
	if (error != 0) {
		vtrnd_free(sc);
		return (error);
	}
	sysctl_ctx_init(&sc->vtrn_sysctl);
	SYSCTL_ADD_U64(&sc->vtrn_sysctl, top, OID_AUTO, "bytes", CTLFLAG_RD,
	    &sc->vtrn_bytes, 0, "Bytes given to random(4)");
	pvq_sysctl(sc->vtrn_queue, &sc->vtrn_sysctl, top);
	vtrnd_use(sc);
	random_source_register(&vtrnd_source);
	return (0);
}

static int
vtrnd_detach(device_t dev)
{
	struct vtrnd_softc *sc = device_get_softc(dev);
	int error;

	error = virtio_leave(dev);
	if (error != 0)
		return (error);
	random_source_deregister(&vtrnd_source);
	sysctl_ctx_free(&sc->vtrn_sysctl);
	vtrnd_free(sc);
	return (0);
}

static int
vtrnd_config_changed(device_t dev)
{
	struct vtrnd_softc *sc = device_get_softc(dev);

	if (virtio_needs_reset(dev) && vtrnd_stop(sc) == 0 &&
	    virtio_restart(dev) == 0)
		vtrnd_use(sc);
	return (0);
}

static device_method_t vtrnd_methods[] = {
	DEVMETHOD(device_probe,		virtio_probe),
	DEVMETHOD(device_attach,	vtrnd_attach),
	DEVMETHOD(device_detach,	vtrnd_detach),

	DEVMETHOD(virtio_config_changed, vtrnd_config_changed),

	DEVMETHOD_END
};

static driver_t vtrnd_driver = { "vtrnd", vtrnd_methods,
    sizeof(struct vtrnd_softc) };

VIRTIO_DRIVER_MODULE(virtio_random, vtrnd_driver, VIRTIO_ID_ENTROPY,
    "VirtIO entropy device");
VIRTIO_DRIVER_DEPENDS(virtio_random);
