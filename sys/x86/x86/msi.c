/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Message-signalled interrupts: IRQ numbers, vectors and messages for MSI and MSI-X.
 *
 * A message is a store of a vector number to an address that names a processor (SDM 3A, 11.11).
 * The IRQs from first_msi_irq on belong to this file; a source is made when a number is first
 * used and stays, free (msi_dev is NULL) or in use.  MSI gives a device several messages that
 * differ in the low bits of the vector, so their vectors are consecutive and aligned and all go
 * to one processor; the first of such a group stands for it.  MSI-X messages are independent.
 *
 * Locking.  msi_lock (mutex) protects which IRQs are in use.  Vectors change under
 * intr_machdep.c's lock.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/smp.h>

#include <machine/intr_machdep.h>

#include <x86/apicreg.h>
#include <x86/apicvar.h>
#include <x86/x86/apic_tree.h>

/* Message address and data (SDM 3A, 11.11.1 and 11.11.2): physical destination, fixed, edge. */
#define	MSI_ADDRESS(apic_id)	(MSI_INTEL_ADDR_BASE | ((uint64_t)(apic_id) & 0xff) << 12)
#define	MSI_DATA(vector)	(vector)

#define	MSI_GROUP_MAX	32

struct msi_source {
	struct intsrc	msi_intsrc;		/* first: an intsrc is cast to it */
	device_t	msi_dev;		/* NULL: free */
	struct msi_source *msi_first;		/* MSI: the first of the group */
	u_int		msi_irq;
	u_int		msi_vector;
	u_int		msi_dest;		/* APIC ID that msi_vector belongs to */
	struct apic_stale msi_stale;
	u_int		msi_count;		/* of the first: messages in the group */
	u_int		msi_enabled;		/* of the first: with a handler */
	bool		msi_msix;
};

static struct mtx msi_lock;
MTX_SYSINIT(msi, &msi_lock, "msi", MTX_DEF);

static void
msi_enable_source(struct intsrc *isrc __unused)
{
}

static void
msi_disable_source(struct intsrc *isrc __unused, int eoi)
{
	if (eoi == PIC_EOI)
		lapic_eoi();
}

static void
msi_eoi_source(struct intsrc *isrc __unused)
{
	lapic_eoi();
}

static void
msi_enable_intr(struct intsrc *isrc)
{
	struct msi_source *msi = (struct msi_source *)isrc;

	msi->msi_first->msi_enabled++;
	isrc->is_cpu = apic_cpuid(msi->msi_dest);
}

static void
msi_disable_intr(struct intsrc *isrc)
{
	struct msi_source *msi = (struct msi_source *)isrc;

	msi->msi_first->msi_enabled--;
}

static int
msi_vector(struct intsrc *isrc)
{
	return (((struct msi_source *)isrc)->msi_irq);
}

static int
msi_source_pending(struct intsrc *isrc __unused)
{
	return (0);
}

static int
msi_config_intr(struct intsrc *isrc __unused, enum intr_trigger trig __unused,
    enum intr_polarity pol __unused)
{
	return (ENODEV);
}

static struct msi_source *
msi_lookup(u_int irq)
{
	if (irq < first_msi_irq || irq >= first_msi_irq + num_msi_irqs)
		return (NULL);
	return ((struct msi_source *)intr_lookup_source(irq));
}

/*
 * Deliver to another processor: get vectors there, have the bus write the new message into the
 * device (BUS_REMAP_INTR), and only then retire the old vectors.  A group moves with its first
 * member only.
 */
static int
msi_assign_cpu(struct intsrc *isrc, u_int apic_id)
{
	struct msi_source *msi = (struct msi_source *)isrc, *m;
	u_int irqs[MSI_GROUP_MAX], old_vector = msi->msi_vector, old_dest = msi->msi_dest;
	u_int i, n = msi->msi_msix ? 1 : msi->msi_count, vector;
	int error;

	if (msi->msi_first != msi)
		return (EINVAL);
	if (old_dest == apic_id)
		return (0);
	for (i = 0; i < n; i++)
		irqs[i] = msi->msi_irq + i;
	vector = apic_alloc_vectors(apic_id, irqs, n, n);
	if (vector == 0)
		return (ENOSPC);
	for (i = 0; i < n; i++) {
		m = msi_lookup(irqs[i]);
		m->msi_vector = vector + i;
		m->msi_dest = apic_id;
		m->msi_intsrc.is_cpu = apic_cpuid(apic_id);
	}
	error = BUS_REMAP_INTR(device_get_parent(msi->msi_dev), msi->msi_dev, msi->msi_irq);
	for (i = 0; i < n; i++) {
		m = msi_lookup(irqs[i]);
		if (error != 0) {
			m->msi_vector = old_vector + i;
			m->msi_dest = old_dest;
			m->msi_intsrc.is_cpu = apic_cpuid(old_dest);
			apic_free_vector(apic_id, vector + i, irqs[i]);
		} else
			apic_retire_vector(&m->msi_stale, old_dest, old_vector + i, irqs[i]);
	}
	return (error);
}

static struct pic msi_pic = {
	.pic_enable_source = msi_enable_source,
	.pic_disable_source = msi_disable_source,
	.pic_eoi_source = msi_eoi_source,
	.pic_enable_intr = msi_enable_intr,
	.pic_disable_intr = msi_disable_intr,
	.pic_vector = msi_vector,
	.pic_source_pending = msi_source_pending,
	.pic_config_intr = msi_config_intr,
	.pic_assign_cpu = msi_assign_cpu,
};

void
msi_init(void)
{
	intr_register_pic(&msi_pic);
}

/* Make the source of an IRQ that was never used. */
static int
msi_create_source(u_int irq)
{
	struct msi_source *msi;
	int error;

	msi = malloc(sizeof(*msi), M_DEVBUF, M_WAITOK | M_ZERO);
	msi->msi_intsrc.is_pic = &msi_pic;
	msi->msi_irq = irq;
	error = intr_register_source(&msi->msi_intsrc);
	if (error != 0)
		free(msi, M_DEVBUF);
	return (error);
}

static bool
msi_is_free(u_int irq)
{
	struct msi_source *msi = msi_lookup(irq);

	return (msi == NULL || (msi->msi_dev == NULL && msi->msi_intsrc.is_handlers == 0));
}

/* The first of count consecutive free IRQs; 0 when there are none. */
static u_int
msi_find_irqs(u_int count)
{
	u_int irq, n = 0;

	for (irq = first_msi_irq; irq < first_msi_irq + num_msi_irqs; irq++) {
		n = msi_is_free(irq) ? n + 1 : 0;
		if (n == count)
			return (irq - count + 1);
	}
	return (0);
}

/*
 * Claim count consecutive IRQs with vectors for dev.  Sleeps.  ENXIO: no IRQs left.  ENOSPC: no
 * vectors.
 */
static int
msi_claim(device_t dev, u_int count, bool msix, int *irqs)
{
	u_int numbers[MSI_GROUP_MAX], apic_id, first, i, vector;
	struct msi_source *msi;
	int error;

	/*
	 * Sources can't be made with the lock held: make them, then look whether they are still
	 * free.
	 */
	for (;;) {
		mtx_lock(&msi_lock);
		first = msi_find_irqs(count);
		for (i = 0; first != 0 && i < count && msi_lookup(first + i) != NULL; i++)
			;
		if (first == 0 || i == count)
			break;
		mtx_unlock(&msi_lock);
		error = msi_create_source(first + i);
		if (error != 0 && error != EEXIST)
			return (error);
	}
	for (i = 0; i < count; i++)
		numbers[i] = first + i;
	apic_id = intr_next_cpu(0);
	vector = first == 0 ? 0 : apic_alloc_vectors(apic_id, numbers, count, count);
	for (i = 0; vector != 0 && i < count; i++) {
		msi = msi_lookup(numbers[i]);
		msi->msi_dev = dev;
		msi->msi_first = msi_lookup(first);
		msi->msi_vector = vector + i;
		msi->msi_dest = apic_id;
		msi->msi_count = count;
		msi->msi_enabled = 0;
		msi->msi_msix = msix;
		irqs[i] = numbers[i];
	}
	mtx_unlock(&msi_lock);
	return (first == 0 ? ENXIO : vector == 0 ? ENOSPC : 0);
}

/* Give up a source; msi_lock is held and no handler is left. */
static void
msi_unclaim(struct msi_source *msi)
{
	mtx_assert(&msi_lock, MA_OWNED);
	apic_free_vector(msi->msi_dest, msi->msi_vector, msi->msi_irq);
	apic_retire_vector(&msi->msi_stale, 0, 0, msi->msi_irq);
	msi->msi_dev = NULL;
	msi->msi_first = NULL;
	msi->msi_vector = 0;
}

/*
 * Allocate count (a power of two) MSI messages for dev; maxcount is what the device could use.
 * The IRQs go to irqs[].  EINVAL, ENXIO, ENOSPC.
 */
int
msi_alloc(device_t dev, int count, int maxcount __unused, int *irqs)
{
	if (count < 1 || count > MSI_GROUP_MAX || !powerof2(count))
		return (EINVAL);
	return (msi_claim(dev, count, false, irqs));
}

/* Release a whole group.  EINVAL: it is none.  EBUSY: a handler is left.  ENOENT. */
int
msi_release(int *irqs, int count)
{
	struct msi_source *first;
	int error = 0, i;

	mtx_lock(&msi_lock);
	first = msi_lookup(irqs[0]);
	if (first == NULL || first->msi_dev == NULL)
		error = ENOENT;
	else if (first->msi_msix || first->msi_first != first || first->msi_count != (u_int)count)
		error = EINVAL;
	else if (first->msi_enabled > 0)
		error = EBUSY;
	for (i = 0; error == 0 && i < count; i++)
		msi_unclaim(msi_lookup(first->msi_irq + i));
	mtx_unlock(&msi_lock);
	return (error);
}

int
msix_alloc(device_t dev, int *irq)
{
	return (msi_claim(dev, 1, true, irq));
}

int
msix_release(int irq)
{
	struct msi_source *msi;
	int error = 0;

	mtx_lock(&msi_lock);
	msi = msi_lookup(irq);
	if (msi == NULL || msi->msi_dev == NULL)
		error = ENOENT;
	else if (!msi->msi_msix)
		error = EINVAL;
	else if (msi->msi_enabled > 0)
		error = EBUSY;
	else
		msi_unclaim(msi);
	mtx_unlock(&msi_lock);
	return (error);
}

/* The message that raises irq, for the device's registers.  ENOENT: it is not allocated. */
int
msi_map(int irq, uint64_t *addr, uint32_t *data)
{
	struct msi_source *msi;
	int error = 0;

	mtx_lock(&msi_lock);
	msi = msi_lookup(irq);
	if (msi == NULL || msi->msi_dev == NULL)
		error = ENOENT;
	else {
		*addr = MSI_ADDRESS(msi->msi_dest);
		*data = MSI_DATA(msi->msi_vector);
	}
	mtx_unlock(&msi_lock);
	return (error);
}
