/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtmmio: virtio devices whose registers are in memory (VirtIO 1.3, 4.2).
 *
 * A device is a window of registers of 32 bits and one interrupt.  No bus says
 * where: the command line, ACPI or a device tree does, and has a file each
 * (virtio_mmio_cmdline.c, _acpi.c, _fdt.c), which gives the device its
 * resources; everything else is here, for both versions of the interface:
 *
 *	2 (modern)  64 feature bits, addresses of a queue's parts, a generation
 *		    of the configuration
 *	1 (legacy)  32 bits that count, a queue in one piece by its page number,
 *		    which enables it; sizes of pages and the used ring's
 *		    alignment are the driver's to say; no generation
 *
 * Interrupts.  One line for everything, whose cause is in InterruptStatus until
 * it is acknowledged.  A line may be triggered by its edge: as long as one
 * cause is set, there is no other edge.  So a cause is read and acknowledged
 * until none is left, and an interrupt may find its cause acknowledged already;
 * the line is not shared, so that such a one is no other device's.  A cause
 * that can't be acknowledged would keep a level-triggered line busy forever:
 * after VTMMIO_STUCK_MAX of them in a row the device is reset where it stands,
 * which lowers the line, and its driver is asked to begin again, as if the
 * device had set DEVICE_NEEDS_RESET.  If that did not lower it, or the same
 * comes again before an interrupt could be acknowledged, the device is given
 * up: its handler is removed, and it is left reset until it is attached again.
 *
 * Locking.  None: newbus serialises attach and detach, virtio.h says what
 * drivers serialise, and what an interrupt or pvq_kick() uses does not change
 * while they can run.
 *
 * Gaps.  Shared memory regions (4.2.2) have no user here.  A bus master can't
 * be cut off, so that a device that does not answer a reset may write to its
 * memory, which is leaked then.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/module.h>
#include <sys/rman.h>
#include <sys/sysctl.h>

#include <machine/atomic.h>
#include <machine/bus.h>
#include <machine/resource.h>

#include <dev/pv/pv_log.h>
#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/mmio/virtio_mmio.h>

/*
 * Causes that follow each other while one interrupt is handled; such interrupts
 * in a row before a reset, and those during which it may take effect.
 */
#define	VTMMIO_ISR_ROUNDS	8
#define	VTMMIO_STUCK_MAX	64
#define	VTMMIO_STUCK_RESET	1024

/* Version 1: the last byte that a page number of 32 bits reaches. */
#define	VTMMIO_LEGACY_MAXADDR	(((uint64_t)1 << (32 + PAGE_SHIFT)) - 1)

static uint32_t
vtmmio_read(struct vtmmio_softc *sc, bus_size_t reg)
{

	return (le32toh(bus_read_4(sc->vm_regs, reg)));
}

static void
vtmmio_write(struct vtmmio_softc *sc, bus_size_t reg, uint32_t value)
{

	bus_write_4(sc->vm_regs, reg, htole32(value));
}

static bool
vtmmio_modern(const struct vtmmio_softc *sc)
{

	return (sc->vm_version == VIRTIO_MMIO_MODERN);
}

/* Is a register 0 yet?  All ones: nothing is there any more. */
static int
vtmmio_poll_zero(device_t dev, u_int reg)
{
	uint32_t value;

	value = vtmmio_read(device_get_softc(dev), reg);
	if (value == UINT32_MAX)
		return (ENXIO);
	return (value == 0 ? 0 : EAGAIN);
}

static int
vtmmio_reset(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	int error;

	vtmmio_write(sc, VIRTIO_MMIO_STATUS, VIRTIO_STATUS_RESET);
	error = virtio_bus_wait(dev, vtmmio_poll_zero, VIRTIO_MMIO_STATUS);
	if (error != 0)
		return (error);
	if (sc->vm_dead)
		return (EIO);
	sc->vm_stuck = 0;
	sc->vm_broken = false;
	/* A legacy device takes a queue's page number in pages of this size. */
	if (!vtmmio_modern(sc))
		vtmmio_write(sc, VIRTIO_MMIO_GUEST_PAGE_SIZE, PAGE_SIZE);
	return (0);
}

static uint8_t
vtmmio_get_status(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	uint8_t status;

	status = vtmmio_read(sc, VIRTIO_MMIO_STATUS);
	return (sc->vm_broken ? status | VIRTIO_STATUS_NEEDS_RESET : status);
}

static void
vtmmio_set_status(device_t dev, uint8_t status)
{

	vtmmio_write(device_get_softc(dev), VIRTIO_MMIO_STATUS, status);
}

static uint64_t
vtmmio_get_features(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	uint64_t features = 0;

	if (vtmmio_modern(sc)) {
		vtmmio_write(sc, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
		features = (uint64_t)vtmmio_read(sc,
		    VIRTIO_MMIO_DEVICE_FEATURES) << 32;
	}
	vtmmio_write(sc, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
	features |= vtmmio_read(sc, VIRTIO_MMIO_DEVICE_FEATURES);
	/* There is no register for it here. */
	return (features & ~VIRTIO_F_NOTIF_CONFIG_DATA);
}

static void
vtmmio_set_features(device_t dev, uint64_t features)
{
	struct vtmmio_softc *sc = device_get_softc(dev);

	vtmmio_write(sc, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
	vtmmio_write(sc, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)features);
	if (!vtmmio_modern(sc))
		return;
	vtmmio_write(sc, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	vtmmio_write(sc, VIRTIO_MMIO_DRIVER_FEATURES, features >> 32);
}

static bus_size_t
vtmmio_config_size(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);

	return (rman_get_size(sc->vm_regs) - VIRTIO_MMIO_CONFIG);
}

static uint32_t
vtmmio_config_generation(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);

	return (vtmmio_modern(sc) ?
	    vtmmio_read(sc, VIRTIO_MMIO_CONFIG_GENERATION) : 0);
}

/* Fields of the configuration are accessed in their own width (4.2.2.2). */
static uint32_t
vtmmio_read_config(device_t dev, bus_size_t off, int width)
{
	struct vtmmio_softc *sc = device_get_softc(dev);

	KASSERT(off + width <= vtmmio_config_size(dev),
	    ("%s: %ju", __func__, (uintmax_t)off));
	off += VIRTIO_MMIO_CONFIG;
	if (width == 4)
		return (vtmmio_read(sc, off));
	if (width == 2)
		return (le16toh(bus_read_2(sc->vm_regs, off)));
	return (bus_read_1(sc->vm_regs, off));
}

static void
vtmmio_write_config(device_t dev, bus_size_t off, uint32_t value, int width)
{
	struct vtmmio_softc *sc = device_get_softc(dev);

	KASSERT(off + width <= vtmmio_config_size(dev),
	    ("%s: %ju", __func__, (uintmax_t)off));
	off += VIRTIO_MMIO_CONFIG;
	if (width == 4)
		vtmmio_write(sc, off, value);
	else if (width == 2)
		bus_write_2(sc->vm_regs, off, htole16(value));
	else
		bus_write_1(sc->vm_regs, off, value);
}

static uint16_t
vtmmio_queue_size(device_t dev, uint16_t index)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	uint32_t size;

	vtmmio_write(sc, VIRTIO_MMIO_QUEUE_SEL, index);
	size = vtmmio_read(sc, VIRTIO_MMIO_QUEUE_NUM_MAX);
	/* More than a queue can have is invalid; virtio.c reports it. */
	return (MIN(size, UINT16_MAX));
}

/* A 64-bit register: two of 32, at reg and reg + 4. */
static void
vtmmio_write_8(struct vtmmio_softc *sc, bus_size_t reg, uint64_t value)
{

	vtmmio_write(sc, reg, (uint32_t)value);
	vtmmio_write(sc, reg + 4, value >> 32);
}

static int
vtmmio_queue_setup(device_t dev, uint16_t index, struct pvq *q)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	struct virtqueue_addrs addrs;
	uint32_t enabled = 1, reg = VIRTIO_MMIO_QUEUE_READY;

	virtqueue_addrs(q, &addrs);
	if (vtmmio_queue_size(dev, index) < q->q_size)
		return (ENXIO);
	vtmmio_write(sc, VIRTIO_MMIO_QUEUE_NUM, q->q_size);
	if (vtmmio_modern(sc)) {
		vtmmio_write_8(sc, VIRTIO_MMIO_QUEUE_DESC_LOW, addrs.vqa_desc);
		vtmmio_write_8(sc, VIRTIO_MMIO_QUEUE_AVAIL_LOW,
		    addrs.vqa_driver);
		vtmmio_write_8(sc, VIRTIO_MMIO_QUEUE_USED_LOW,
		    addrs.vqa_device);
	} else {
		vtmmio_write(sc, VIRTIO_MMIO_QUEUE_ALIGN, VRING_LEGACY_ALIGN);
		reg = VIRTIO_MMIO_QUEUE_PFN;
		enabled = addrs.vqa_desc >> PAGE_SHIFT;
	}
	vtmmio_write(sc, reg, enabled);
	return (vtmmio_read(sc, reg) == enabled ? 0 : ENXIO);
}

/*
 * A queue that is still ready was not reset: there are devices that offer
 * RING_RESET by MMIO, and do not have the register (QEMU 7.2).
 */
static int
vtmmio_queue_reset(device_t dev, uint16_t index)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	int error;

	vtmmio_write(sc, VIRTIO_MMIO_QUEUE_SEL, index);
	vtmmio_write(sc, VIRTIO_MMIO_QUEUE_RESET, 1);
	error = virtio_bus_wait(dev, vtmmio_poll_zero, VIRTIO_MMIO_QUEUE_RESET);
	return (error != 0 ? error :
	    virtio_bus_wait(dev, vtmmio_poll_zero, VIRTIO_MMIO_QUEUE_READY));
}

/* There are no message interrupts (4.2.3.4). */
static int
vtmmio_alloc_vectors(device_t dev __unused, int n __unused,
    struct resource **irqs __unused)
{

	return (ENXIO);
}

static int
vtmmio_alloc_wired(device_t dev, struct resource **irq)
{
	int rid = 0;

	*irq = bus_alloc_resource_any(dev, SYS_RES_IRQ, &rid, RF_ACTIVE);
	return (*irq == NULL ? ENXIO : 0);
}

static void
vtmmio_free_vectors(device_t dev, int n, struct resource **irqs)
{
	int i;

	for (i = 0; i < n; i++) {
		if (irqs[i] != NULL)
			(void)bus_release_resource(dev, SYS_RES_IRQ,
			    rman_get_rid(irqs[i]), irqs[i]);
	}
}

static int
vtmmio_set_vector(device_t dev __unused, int index __unused, int vector)
{

	return (vector < 0 ? 0 : ENXIO);
}

/* Reset the device where it stands. */
static void
vtmmio_silence(struct vtmmio_softc *sc)
{

	vtmmio_write(sc, VIRTIO_MMIO_STATUS, VIRTIO_STATUS_RESET);
	sc->vm_broken = true;
}

/*
 * The cause of an interrupt can't be acknowledged, or there is none in spite of
 * it.
 */
static uint8_t
vtmmio_storm(struct vtmmio_softc *sc, uint32_t cause)
{
	u_int n = atomic_fetchadd_int(&sc->vm_stuck, 1);

	if (n == VTMMIO_STUCK_MAX && !sc->vm_storming) {
		sc->vm_storming = true;
		if (PV_LOGS(++sc->vm_storms))
			device_printf(sc->vm_bus.vb_dev,
			    "interrupt status 0x%x can't be "
			    "acknowledged: resetting the device\n", cause);
		vtmmio_silence(sc);
		return (VIRTIO_ISR_CONFIG);
	}
	if (n != VTMMIO_STUCK_MAX && n < VTMMIO_STUCK_MAX + VTMMIO_STUCK_RESET)
		return (cause);
	sc->vm_dead = true;
	sc->vm_storms++;
	device_printf(sc->vm_bus.vb_dev,
	    "interrupt status 0x%x can't be acknowledged, even after a "
	    "reset: the device is not used any more\n", cause);
	vtmmio_silence(sc);
	return (VIRTIO_ISR_CONFIG | VIRTIO_ISR_DEAD);
}

static uint8_t
vtmmio_isr(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	uint32_t all = 0, cause;
	int i;

	if (sc->vm_dead)
		return (VIRTIO_ISR_DEAD);
	for (i = 0; i < VTMMIO_ISR_ROUNDS; i++) {
		cause = vtmmio_read(sc, VIRTIO_MMIO_INTERRUPT_STATUS);
		if (cause == UINT32_MAX)
			return (UINT8_MAX);
		cause &= VIRTIO_ISR_QUEUE | VIRTIO_ISR_CONFIG;
		if (cause == 0 && all == 0 && sc->vm_storming)
			return (vtmmio_storm(sc, 0));
		if (cause == 0) {
			if (all != 0) {
				sc->vm_stuck = 0;
				sc->vm_storming = false;
			}
			return (all);
		}
		vtmmio_write(sc, VIRTIO_MMIO_INTERRUPT_ACK, cause);
		all |= cause;
	}
	return (vtmmio_storm(sc, all));
}

static void
vtmmio_notify(void *arg, uint16_t index, uint16_t next)
{
	struct vtmmio_softc *sc = arg;
	uint32_t data = 0;

	/* 4.2.3.3. */
	if ((sc->vm_bus.vb_features & VIRTIO_F_NOTIFICATION_DATA) != 0)
		data = (uint32_t)next << 16;
	if (sc->vm_bus.vb_live)
		vtmmio_write(sc, VIRTIO_MMIO_QUEUE_NOTIFY, index | data);
}

static int
vtmmio_map(struct vtmmio_softc *sc, device_t dev)
{
	int rid = 0;

	sc->vm_regs = bus_alloc_resource_any(dev, SYS_RES_MEMORY, &rid,
	    RF_ACTIVE);
	if (sc->vm_regs == NULL) {
		device_printf(dev, "registers can't be mapped\n");
		return (ENXIO);
	}
	if (rman_get_size(sc->vm_regs) < VIRTIO_MMIO_CONFIG) {
		device_printf(dev, "%ju bytes of registers, not %u\n",
		    (uintmax_t)rman_get_size(sc->vm_regs), VIRTIO_MMIO_CONFIG);
		return (ENXIO);
	}
	return (0);
}

static void
vtmmio_unmap(struct vtmmio_softc *sc, device_t dev)
{

	if (sc->vm_regs != NULL)
		(void)bus_release_resource(dev, SYS_RES_MEMORY, 0, sc->vm_regs);
	sc->vm_regs = NULL;
}

static bool
vtmmio_version_is_known(uint32_t version)
{

	return (version == VIRTIO_MMIO_LEGACY || version == VIRTIO_MMIO_MODERN);
}

/*
 * What is there?  ENXIO, with a message unless it is a place without a device,
 * of which no other register is read (4.2.3.1.1).
 */
static int
vtmmio_identify(struct vtmmio_softc *sc, device_t dev)
{
	struct virtio_bus *vb = &sc->vm_bus;
	uint32_t magic;

	magic = vtmmio_read(sc, VIRTIO_MMIO_MAGIC_VALUE);
	if (magic != VIRTIO_MMIO_MAGIC) {
		device_printf(dev, "no virtio device: magic value 0x%08x\n",
		    magic);
		return (ENXIO);
	}
	sc->vm_version = vtmmio_read(sc, VIRTIO_MMIO_VERSION);
	if (!vtmmio_version_is_known(sc->vm_version)) {
		device_printf(dev, "version %u of the interface is not known\n",
		    sc->vm_version);
		return (ENXIO);
	}
	vb->vb_type = vtmmio_read(sc, VIRTIO_MMIO_DEVICE_ID);
	if (vb->vb_type == 0)
		return (ENXIO);
	vb->vb_vendor = vtmmio_read(sc, VIRTIO_MMIO_VENDOR_ID);
	vb->vb_qemu = vb->vb_vendor == VIRTIO_MMIO_VENDOR_QEMU;
	return (0);
}

/* A device's name is where its registers are. */
void
vtmmio_name(device_t dev, char *name, size_t size)
{

	snprintf(name, size, "mmio:0x%jx",
	    (uintmax_t)bus_get_resource_start(dev, SYS_RES_MEMORY, 0));
}

uint32_t
vtmmio_type(device_t dev)
{
	struct resource *regs;
	uint32_t type = 0;
	int rid = 0;

	if (device_is_attached(dev))
		return (UINT32_MAX);
	regs = bus_alloc_resource_any(dev, SYS_RES_MEMORY, &rid, RF_ACTIVE);
	if (regs == NULL)
		return (0);
	if (rman_get_size(regs) >= VIRTIO_MMIO_CONFIG && bus_read_4(regs,
	    VIRTIO_MMIO_MAGIC_VALUE) == htole32(VIRTIO_MMIO_MAGIC) &&
	    vtmmio_version_is_known(le32toh(bus_read_4(regs,
	    VIRTIO_MMIO_VERSION))))
		type = le32toh(bus_read_4(regs, VIRTIO_MMIO_DEVICE_ID));
	(void)bus_release_resource(dev, SYS_RES_MEMORY, rid, regs);
	return (type);
}

int
vtmmio_probe(struct virtio_transport *vt, device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	int error;

	error = vtmmio_map(sc, dev);
	if (error == 0)
		error = vtmmio_identify(sc, dev);
	vtmmio_unmap(sc, dev);
	return (error != 0 ? error :
	    virtio_bus_probe(vt, dev, sc->vm_bus.vb_type));
}

/* Where rings may be. */
static int
vtmmio_dma_init(struct vtmmio_softc *sc, device_t dev)
{
	struct virtio_bus *vb = &sc->vm_bus;
	int error;

	vb->vb_modern = vtmmio_modern(sc);
	vb->vb_dmat = bus_get_dma_tag(dev);
	vb->vb_ring_align = VRING_USED_ALIGN;
	if (vb->vb_modern)
		return (0);
	error = bus_dma_tag_create(vb->vb_dmat, 1, 0, VTMMIO_LEGACY_MAXADDR,
	    BUS_SPACE_MAXADDR, NULL, NULL, BUS_SPACE_MAXSIZE,
	    BUS_SPACE_UNRESTRICTED, BUS_SPACE_MAXSIZE, 0, NULL, NULL,
	    &sc->vm_ring_dmat);
	vb->vb_dmat = sc->vm_ring_dmat;
	vb->vb_ring_align = VRING_LEGACY_ALIGN;
	return (error);
}

static void
vtmmio_teardown(struct vtmmio_softc *sc, device_t dev)
{

	if (sc->vm_ring_dmat != NULL)
		(void)bus_dma_tag_destroy(sc->vm_ring_dmat);
	sc->vm_ring_dmat = NULL;
	vtmmio_unmap(sc, dev);
}

static int
vtmmio_attach(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	int error;

	sc->vm_bus.vb_dev = dev;
	sc->vm_bus.vb_own_line = true;
	sc->vm_bus.vb_notify = vtmmio_notify;
	sc->vm_bus.vb_notify_arg = sc;
	sc->vm_dead = sc->vm_storming = false;
	error = vtmmio_map(sc, dev);
	if (error == 0)
		error = vtmmio_identify(sc, dev);
	if (error == 0)
		error = vtmmio_dma_init(sc, dev);
	if (error == 0)
		error = virtio_bus_attach(&sc->vm_bus);
	if (error != 0) {
		vtmmio_teardown(sc, dev);
		return (error);
	}
	SYSCTL_ADD_U64(&sc->vm_bus.vb_sysctl,
	    SYSCTL_CHILDREN(device_get_sysctl_tree(dev)), OID_AUTO,
	    "storms", CTLFLAG_RD, &sc->vm_storms, 0,
	    "Times that the device was reset because its interrupt could not be acknowledged");
	return (0);
}

static int
vtmmio_detach(device_t dev)
{
	struct vtmmio_softc *sc = device_get_softc(dev);
	int error;

	error = virtio_bus_detach(&sc->vm_bus);
	if (error != 0)
		return (error);
	(void)vtmmio_reset(dev);
	vtmmio_teardown(sc, dev);
	return (0);
}

static int
vtmmio_shutdown(device_t dev)
{

	(void)bus_generic_shutdown(dev);
	/*
	 * The kernel that runs next must not find a device that writes to
	 * memory.
	 */
	(void)vtmmio_reset(dev);
	return (0);
}

static device_method_t vtmmio_methods[] = {
	DEVMETHOD(device_attach,	vtmmio_attach),
	DEVMETHOD(device_detach,	vtmmio_detach),
	DEVMETHOD(device_shutdown,	vtmmio_shutdown),

	DEVMETHOD(virtio_bus_reset,	vtmmio_reset),
	DEVMETHOD(virtio_bus_get_status, vtmmio_get_status),
	DEVMETHOD(virtio_bus_set_status, vtmmio_set_status),
	DEVMETHOD(virtio_bus_get_features, vtmmio_get_features),
	DEVMETHOD(virtio_bus_set_features, vtmmio_set_features),
	DEVMETHOD(virtio_bus_config_size, vtmmio_config_size),
	DEVMETHOD(virtio_bus_config_gen, vtmmio_config_generation),
	DEVMETHOD(virtio_bus_read_config, vtmmio_read_config),
	DEVMETHOD(virtio_bus_write_config, vtmmio_write_config),
	DEVMETHOD(virtio_bus_queue_size, vtmmio_queue_size),
	DEVMETHOD(virtio_bus_queue_setup, vtmmio_queue_setup),
	DEVMETHOD(virtio_bus_queue_reset, vtmmio_queue_reset),
	DEVMETHOD(virtio_bus_alloc_vectors, vtmmio_alloc_vectors),
	DEVMETHOD(virtio_bus_alloc_wired, vtmmio_alloc_wired),
	DEVMETHOD(virtio_bus_free_vectors, vtmmio_free_vectors),
	DEVMETHOD(virtio_bus_set_vector, vtmmio_set_vector),
	DEVMETHOD(virtio_bus_isr,	vtmmio_isr),

	DEVMETHOD_END
};

DEFINE_CLASS_1(vtmmio, vtmmio_driver, vtmmio_methods,
    sizeof(struct vtmmio_softc), virtio_bus_driver);
MODULE_VERSION(vtmmio, 1);
MODULE_DEPEND(vtmmio, pv_virtio, 1, 1, 1);
