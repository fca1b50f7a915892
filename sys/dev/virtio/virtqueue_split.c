/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Split virtqueues (VirtIO 1.3, 2.7), an implementation of pvq(9).
 *
 * A split virtqueue is three arrays in memory that both sides see: the descriptor table, the
 * available ring that we write, and the used ring that the device writes.
 *
 *	     we write                         the device writes
 *	  +-------------+   avail.idx   +--------------------+   used.idx
 *	  | descriptors | ------------> | reads, works, ...  | ------------> we complete
 *	  | avail ring  |               | used ring          |
 *	  +-------------+               +--------------------+
 *
 * Ownership.  A descriptor is ours while its number is in the ring of free numbers, the device's
 * from the store of avail.idx until its head appears in the used ring, then ours again.  A chain of
 * several segments takes one descriptor, which points to a table of its own (2.7.5.3), if
 * INDIRECT_DESC was agreed on; else one for each segment.
 *
 * Private state.  Whatever we need to know about a chain later is in memory that the device can't
 * reach: the cookie, the number of bytes that it may write, and the numbers of the descriptors.
 * The descriptor table is only written, never read: a device that scribbles over it fools itself.
 * The table entry is rewritten in full each time that it is used.
 *
 * Free numbers are kept in a circular array (vq_ids), and two free-running counters: the put side
 * takes at q_taken, the get side gives at q_given.  There are as many places as numbers, so the two
 * never meet over the same place, and no lock is needed between them.  What was taken and not yet
 * given back stays readable in the array: abort is one assignment, and commit finds the heads there.
 *
 * Barriers.  They order our accesses to memory that another CPU (or a device behind a coherent bus)
 * uses at the same time.
 *
 *	commit       descriptors, avail ring   release   avail.idx
 *	             pairs with the device's acquire after it read avail.idx
 *	get          used.idx   acquire   used ring, buffers
 *	             pairs with the device's release before it wrote used.idx
 *	kick         avail.idx   full   avail_event or used.flags
 *	             pairs with the device's full barrier between its write of avail_event and its
 *	             re-check of avail.idx: one of the two sees the other's write
 *	intr_enable  used_event or avail.flags   full   used.idx
 *	             the mirror image
 *
 * Trust.  used.idx, each used element, avail_event and used.flags are read once into a local.  The
 * index may not be ahead of what was committed, and an id must be the head of a chain in flight.  A
 * length is cut to what fits; one that was too long breaks a queue with PVQ_F_STRICT_LENGTHS.
 * avail_event and used.flags can be anything: they only decide whether we notify.
 *
 * Locking.  None here: see pvq.h.  The put side and the get side may run at the same time, always;
 * vd_state is what hands a chain from one to the other.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/malloc.h>

#include <machine/atomic.h>
#include <machine/bus.h>

#include <dev/pv/pvq.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>

static MALLOC_DEFINE(M_VIRTQUEUE, "virtqueue", "virtqueue state");

/* DMA memory in one piece. */
struct vq_mem {
	bus_dma_tag_t	 vm_tag;	/* NULL: the memory is somebody else's */
	bus_dmamap_t	 vm_map;
	void		*vm_vaddr;
	bus_addr_t	 vm_paddr;
};

enum vq_state {
	VQ_IDLE = 0,		/* not the head of a chain in flight */
	VQ_POSTED,		/* head of a committed chain: the device may return it */
};

/* What we know of descriptor number i, and of the chain that begins with it. */
struct vq_shadow {
	void		*vd_cookie;
	struct vring_desc *vd_table;	/* its indirect table, constant */
	bus_addr_t	 vd_table_paddr;
	uint32_t	 vd_wlen;	/* bytes that the device may write */
	uint32_t	 vd_seq;	/* q_committed at the time of the put */
	uint16_t	 vd_next;	/* the chain's next descriptor */
	uint16_t	 vd_ndesc;	/* descriptors in the chain */
	volatile uint32_t vd_state;	/* enum vq_state */
};

struct vqsplit {
	struct pvq	 vq_pvq;	/* first */
	/* Constant. */
	struct vring_desc *vq_desc;
	struct vring_avail *vq_avail;
	struct vring_used *vq_used;
	uint16_t	*vq_used_event;	/* behind the available ring; we write */
	uint16_t	*vq_avail_event; /* behind the used ring; the device writes */
	uint16_t	*vq_ids;	/* circular array of free numbers */
	struct vq_shadow *vq_shadow;
	uint16_t	 vq_mask;	/* q_size - 1 */
	uint16_t	 vq_index;
	bool		 vq_modern;	/* little-endian */
	bool		 vq_strict;	/* a length that is too long breaks the queue */
	void		(*vq_notify)(void *, uint16_t);
	void		*vq_notify_arg;
	/* Put side. */
	uint32_t	 vq_base;	/* q_taken at the last commit */
	uint16_t	 vq_avail_idx;	/* avail.idx, counted on for what is staged */
	uint32_t	 vq_staged;	/* chains staged */
	uint32_t	 vq_staged_segs;
	uint32_t	 vq_staged_ind;
	uint32_t	 vq_unkicked;	/* chains committed since the last kick */
	/* Get side. */
	uint16_t	 vq_used_idx;	/* next used element to look at */
	/* Memory. */
	struct vq_mem	 vq_ring;
	size_t		 vq_ring_size;
	struct vq_mem	 vq_slab;	/* indirect tables */
	bus_addr_t	*vq_pieces;	/* where each piece of the slab is; NULL: no tables */
	int		 vq_npieces;
	size_t		 vq_piece_size;
};

#define	VQ(q)	__containerof((q), struct vqsplit, vq_pvq)

/* The fields of a modern ring are little-endian, those of a legacy one as we have them (2.7.3). */
static inline uint16_t
vq_16(const struct vqsplit *vq, uint16_t v)
{

	return (vq->vq_modern ? htole16(v) : v);
}

static inline uint32_t
vq_32(const struct vqsplit *vq, uint32_t v)
{

	return (vq->vq_modern ? htole32(v) : v);
}

static inline uint64_t
vq_64(const struct vqsplit *vq, uint64_t v)
{

	return (vq->vq_modern ? htole64(v) : v);
}

/*
 * Where memory is not coherent by itself, BUS_DMA_COHERENT made the rings uncached, and this is a
 * barrier; with bounce pages it would be wrong to copy whole rings, and bus_dmamem_alloc(9) never
 * returns memory that needs it.
 */
static inline void
vq_sync(const struct vq_mem *vm, bus_dmasync_op_t op)
{

	if (vm->vm_map != NULL)
		bus_dmamap_sync(vm->vm_tag, vm->vm_map, op);
}

/* The used index, read once; the elements before it may be read when this returns. */
static inline uint16_t
vq_read_used_idx(const struct vqsplit *vq)
{
	uint16_t idx;

	vq_sync(&vq->vq_ring, BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	idx = vq_16(vq, atomic_load_16(&vq->vq_used->vu_idx));
	atomic_thread_fence_acq();
	return (idx);
}

static inline void
vq_fill(const struct vqsplit *vq, struct vring_desc *d, bus_addr_t addr, uint32_t len,
    uint16_t flags, uint16_t next)
{

	d->vd_addr = vq_64(vq, addr);
	d->vd_len = vq_32(vq, len);
	d->vd_flags = vq_16(vq, flags);
	d->vd_next = vq_16(vq, next);
}

static int
vqsplit_prepare(const struct pvq *q, const struct pvq_chain *pc)
{
	int n = pc->pc_nread + pc->pc_nwrite;

	if (n == 0 || n > q->q_max_segs)
		return (0);
	return ((q->q_flags & PVQ_F_INDIRECT) != 0 ? 1 : n);
}

/*
 * One descriptor for the chain, and the segments in its table (2.7.5.3.1).  Returns how many bytes the
 * device may write.
 */
static inline uint64_t
vq_put_indirect(struct vqsplit *vq, const struct pvq_chain *pc, const struct vq_shadow *vd,
    uint16_t head, int n)
{
	const bus_dma_segment_t *seg = pc->pc_segs;
	struct vring_desc *d = vd->vd_table;
	uint64_t before = 0, len = 0;
	uint16_t flags = VRING_DESC_F_NEXT;
	int i, nread = pc->pc_nread;

	for (i = 0; i < n; i++, seg++, d++) {
		if (i == nread) {
			flags |= VRING_DESC_F_WRITE;
			before = len;
		}
		len += seg->ds_len;
		vq_fill(vq, d, seg->ds_addr, seg->ds_len, flags, i + 1);
	}
	d[-1].vd_flags = vq_16(vq, nread == n ? 0 : VRING_DESC_F_WRITE);
	vq_sync(&vq->vq_slab, BUS_DMASYNC_PREWRITE);
	vq_fill(vq, &vq->vq_desc[head], vd->vd_table_paddr, n * sizeof(struct vring_desc),
	    VRING_DESC_F_INDIRECT, 0);
	vq->vq_staged_ind++;
	return (nread == n ? 0 : len - before);
}

/* A descriptor for each segment, linked by vd_next: theirs, and ours in the shadow. */
static __noinline uint64_t
vq_put_direct(struct vqsplit *vq, const struct pvq_chain *pc, uint32_t pos, int n)
{
	uint64_t wlen = 0;
	uint16_t flags, id, next;
	int i;

	id = vq->vq_ids[pos & vq->vq_mask];
	for (i = 0; i < n; i++) {
		flags = next = 0;
		if (i >= pc->pc_nread) {
			flags = VRING_DESC_F_WRITE;
			wlen += pc->pc_segs[i].ds_len;
		}
		if (i < n - 1) {
			flags |= VRING_DESC_F_NEXT;
			next = vq->vq_ids[(pos + i + 1) & vq->vq_mask];
		}
		vq_fill(vq, &vq->vq_desc[id], pc->pc_segs[i].ds_addr, pc->pc_segs[i].ds_len,
		    flags, next);
		vq->vq_shadow[id].vd_next = next;
		id = next;
	}
	return (wlen);
}

/* Put a chain. */
static inline void
vq_put_one(struct vqsplit *vq, const struct pvq_chain *pc)
{
	struct pvq *q = &vq->vq_pvq;
	const bus_dma_segment_t *seg = pc->pc_segs;
	const int n = pc->pc_nread + pc->pc_nwrite;
	const uint32_t pos = q->q_taken;
	const uint16_t head = vq->vq_ids[pos & vq->vq_mask];
	struct vq_shadow *vd = &vq->vq_shadow[head];
	uint64_t wlen;
	int ndesc = 1;

	KASSERT(n > 0 && n <= q->q_max_segs, ("%s: %d segments", __func__, n));
	KASSERT((int)(q->q_given - pos) >= vqsplit_prepare(q, pc), ("%s: no room", __func__));
	KASSERT(pc->pc_cookie != NULL, ("%s: no cookie", __func__));
	KASSERT(vd->vd_state == VQ_IDLE, ("%s: descriptor %u in use", __func__, head));

	if (n == 1) {
		wlen = pc->pc_nwrite != 0 ? seg->ds_len : 0;
		vq_fill(vq, &vq->vq_desc[head], seg->ds_addr, seg->ds_len,
		    pc->pc_nwrite != 0 ? VRING_DESC_F_WRITE : 0, 0);
	} else if (vq->vq_pieces != NULL)
		wlen = vq_put_indirect(vq, pc, vd, head, n);
	else {
		wlen = vq_put_direct(vq, pc, pos, n);
		ndesc = n;
	}
	/* A length is 32 bits; a longer chain is not allowed (2.7.5.2). */
	KASSERT(wlen <= UINT32_MAX, ("%s: %ju bytes", __func__, (uintmax_t)wlen));
	vd->vd_cookie = pc->pc_cookie;
	vd->vd_wlen = (uint32_t)wlen;
	vd->vd_seq = q->q_committed + vq->vq_staged;
	vd->vd_ndesc = ndesc;
	vq->vq_avail->va_ring[vq->vq_avail_idx++ & vq->vq_mask] = vq_16(vq, head);
	q->q_taken = pos + ndesc;
	vq->vq_staged++;
	vq->vq_staged_segs += n;
}

static void
vqsplit_put(struct pvq *q, const struct pvq_chain *pc, int n)
{

	for (; n > 0; n--, pc++)
		vq_put_one(VQ(q), pc);
}

static void
vqsplit_abort(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	q->q_taken = vq->vq_base;
	vq->vq_avail_idx -= vq->vq_staged;
	vq->vq_staged = vq->vq_staged_segs = vq->vq_staged_ind = 0;
}

static void
vqsplit_commit(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	struct vq_shadow *vd;
	uint32_t pos, ndesc;

	if (vq->vq_staged == 0)
		return;
	/*
	 * The release hands the shadow to the get side, which looks at it whenever the device
	 * names its id.  vd_ndesc is read first: after it, the chain may be gone.
	 */
	for (pos = vq->vq_base; pos != q->q_taken; pos += ndesc) {
		vd = &vq->vq_shadow[vq->vq_ids[pos & vq->vq_mask]];
		ndesc = vd->vd_ndesc;
		atomic_store_rel_32(&vd->vd_state, VQ_POSTED);
	}
	vq->vq_base = q->q_taken;
	q->q_committed += vq->vq_staged;
	vq->vq_unkicked += vq->vq_staged;
	q->q_stats.qs_chains += vq->vq_staged;
	q->q_stats.qs_segs += vq->vq_staged_segs;
	q->q_stats.qs_indirect += vq->vq_staged_ind;
	vq->vq_staged = vq->vq_staged_segs = vq->vq_staged_ind = 0;

	vq_sync(&vq->vq_ring, BUS_DMASYNC_PREWRITE);
	atomic_thread_fence_rel();
	atomic_store_16(&vq->vq_avail->va_idx, vq_16(vq, vq->vq_avail_idx));
	vq_sync(&vq->vq_ring, BUS_DMASYNC_PREWRITE);
}

/* Does the device want to hear of the chains committed since the last kick (2.7.10, 2.7.13.4)? */
static bool
vq_device_asks(struct vqsplit *vq)
{
	uint16_t event, flags;

	if ((vq->vq_pvq.q_flags & PVQ_F_EVENT) == 0) {
		flags = vq_16(vq, atomic_load_16(&vq->vq_used->vu_flags));
		return ((flags & VRING_USED_F_NO_NOTIFY) == 0);
	}
	/* A turn or more without a kick: the index alone can't tell any longer. */
	if (vq->vq_unkicked > UINT16_MAX)
		return (true);
	event = vq_16(vq, atomic_load_16(vq->vq_avail_event));
	return (vring_passed(event, vq->vq_avail_idx - (uint16_t)vq->vq_unkicked,
	    vq->vq_avail_idx));
}

static bool
vqsplit_kick(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	bool asks;

	KASSERT(vq->vq_staged == 0, ("%s: %u chains not committed", __func__, vq->vq_staged));
	if (vq->vq_unkicked == 0 || pvq_broken(q))
		return (false);
	atomic_thread_fence_seq_cst();
	vq_sync(&vq->vq_ring, BUS_DMASYNC_POSTREAD);
	asks = vq_device_asks(vq);
	vq->vq_unkicked = 0;
	if (!asks) {
		q->q_stats.qs_nokicks++;
		return (false);
	}
	q->q_stats.qs_kicks++;
	vq->vq_notify(vq->vq_notify_arg, vq->vq_index);
	return (true);
}

/* Give a chain's descriptors back.  The caller publishes q_given. */
static uint32_t
vq_release(struct vqsplit *vq, uint16_t head, uint32_t given)
{
	struct vq_shadow *vd = &vq->vq_shadow[head];
	uint16_t id, n;

	vd->vd_state = VQ_IDLE;
	for (id = head, n = vd->vd_ndesc; n > 0; n--) {
		vq->vq_ids[given++ & vq->vq_mask] = id;
		id = vq->vq_shadow[id].vd_next;
	}
	return (given);
}

/*
 * Check one used element.  Returns false, and the queue is broken, if it is invalid.
 *
 * Not only legacy devices report lengths that mean nothing (2.7.8.3): Cloud Hypervisor did until 2026,
 * of control commands and what is sent.  So a length is cut to what fits, unless the driver depends
 * on it.  Of a chain of which the device can't write anything it is of no use to anybody.
 */
static bool
vq_check(struct vqsplit *vq, uint32_t id, uint32_t *len)
{
	struct vq_shadow *vd;

	if (id >= vq->vq_pvq.q_size) {
		pvq_break(&vq->vq_pvq, PVQ_FAULT_ID, id);
		return (false);
	}
	vd = &vq->vq_shadow[id];
	if (atomic_load_acq_32(&vd->vd_state) != VQ_POSTED) {
		pvq_break(&vq->vq_pvq, PVQ_FAULT_ID, id);
		return (false);
	}
	if (*len > vd->vd_wlen) {
		if (vq->vq_strict && vd->vd_wlen > 0) {
			pvq_break(&vq->vq_pvq, PVQ_FAULT_LEN, *len);
			return (false);
		}
		vq->vq_pvq.q_stats.qs_lengths++;
		*len = vd->vd_wlen;
	}
	return (true);
}

static int
vqsplit_get(struct pvq *q, struct pvq_done *done, int max)
{
	struct vqsplit *vq = VQ(q);
	const struct vring_used_elem *ve;
	uint32_t given, id, len;
	uint16_t idx, ready;
	int n;

	if (pvq_broken(q))
		return (0);
	idx = vq_read_used_idx(vq);
	ready = idx - vq->vq_used_idx;
	if (ready == 0)
		return (0);
	if (ready > q->q_committed - q->q_completed) {
		pvq_break(q, PVQ_FAULT_INDEX, idx);
		return (0);
	}
	given = q->q_given;
	for (n = 0; n < max && n < ready; n++) {
		ve = &vq->vq_used->vu_ring[(uint16_t)(vq->vq_used_idx + n) & vq->vq_mask];
		id = vq_32(vq, atomic_load_32(&ve->ve_id));
		len = vq_32(vq, atomic_load_32(&ve->ve_len));
		if (!vq_check(vq, id, &len))
			break;
		done[n].pd_cookie = vq->vq_shadow[id].vd_cookie;
		done[n].pd_len = len;
		done[n].pd_msg = NULL;
		given = vq_release(vq, id, given);
	}
	vq->vq_used_idx += n;
	q->q_completed += n;
	q->q_stats.qs_done += n;
	/* Pairs with the acquire in pvq_room(): the numbers are in vq_ids before they count. */
	atomic_store_rel_32(&q->q_given, given);
	return (n);
}

static bool
vqsplit_intr_enable(struct pvq *q, unsigned int after)
{
	struct vqsplit *vq = VQ(q);
	unsigned int inflight;

	if (pvq_broken(q))
		return (false);
	inflight = q->q_committed - q->q_completed;
	if (after > inflight)
		after = inflight;
	if (after == 0 || (q->q_flags & PVQ_F_EVENT) == 0)
		after = 1;
	if ((q->q_flags & PVQ_F_EVENT) != 0)
		atomic_store_16(vq->vq_used_event, vq_16(vq, vq->vq_used_idx + after - 1));
	else
		atomic_store_16(&vq->vq_avail->va_flags, 0);
	vq_sync(&vq->vq_ring, BUS_DMASYNC_PREWRITE);
	atomic_thread_fence_seq_cst();
	return ((uint16_t)(vq_read_used_idx(vq) - vq->vq_used_idx) >= after);
}

static void
vqsplit_intr_disable(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	/*
	 * With event indices there is no "off", only an index as far away as can be: half a turn
	 * ahead.  One just behind would do harm: a device that published an element and has not yet
	 * looked at the event counts that index as passed.
	 */
	if ((q->q_flags & PVQ_F_EVENT) != 0)
		atomic_store_16(vq->vq_used_event, vq_16(vq, vq->vq_used_idx + 0x8000));
	else
		atomic_store_16(&vq->vq_avail->va_flags,
		    vq_16(vq, VRING_AVAIL_F_NO_INTERRUPT));
	vq_sync(&vq->vq_ring, BUS_DMASYNC_PREWRITE);
}

/*
 * The oldest chain in flight.  The search makes draining a ring quadratic, which is a millisecond
 * for 1,024 descriptors after a reset, and saves the data path a list.
 */
static void *
vqsplit_drain(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	struct vq_shadow *vd;
	uint32_t age, oldest;
	int head, i;

	vqsplit_abort(q);
	head = -1;
	oldest = 0;
	for (i = 0; i < q->q_size; i++) {
		vd = &vq->vq_shadow[i];
		if (vd->vd_state != VQ_POSTED)
			continue;
		age = q->q_committed - vd->vd_seq;
		if (head < 0 || age > oldest) {
			head = i;
			oldest = age;
		}
	}
	if (head < 0)
		return (NULL);
	q->q_given = vq_release(vq, head, q->q_given);
	q->q_completed++;
	return (vq->vq_shadow[head].vd_cookie);
}

/* Everything as it was when the queue was created, but for the statistics. */
static int
vqsplit_reinit(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);
	int i;

	vqsplit_abort(q);
	if (q->q_committed != q->q_completed)
		return (EBUSY);
	for (i = 0; i < q->q_size; i++) {
		vq->vq_ids[i] = i;
		vq->vq_shadow[i].vd_state = VQ_IDLE;
	}
	q->q_taken = q->q_committed = q->q_completed = 0;
	q->q_given = q->q_size;
	vq->vq_base = 0;
	vq->vq_avail_idx = vq->vq_used_idx = 0;
	vq->vq_unkicked = 0;
	memset(vq->vq_desc, 0, vq->vq_ring_size);
	vq_sync(&vq->vq_ring, BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	q->q_fault = PVQ_OK;
	return (0);
}

static void
vq_mem_free(struct vq_mem *vm)
{

	if (vm->vm_tag == NULL)
		return;
	if (vm->vm_paddr != 0)
		bus_dmamap_unload(vm->vm_tag, vm->vm_map);
	if (vm->vm_vaddr != NULL)
		bus_dmamem_free(vm->vm_tag, vm->vm_vaddr, vm->vm_map);
	(void)bus_dma_tag_destroy(vm->vm_tag);
	memset(vm, 0, sizeof(*vm));
}

static void
vq_mem_loaded(void *arg, bus_dma_segment_t *segs, int nsegs, int error)
{
	struct vq_mem *vm = arg;

	if (error == 0 && nsegs == 1)
		vm->vm_paddr = segs[0].ds_addr;
}

/* Memory in pieces of so many bytes; loaded() is told where they are, and sets vm_paddr. */
static int
vq_mem_alloc(struct vq_mem *vm, bus_dma_tag_t parent, size_t piece, int n, size_t align,
    bus_dmamap_callback_t *loaded, void *arg)
{
	int error;

	error = bus_dma_tag_create(parent, align, 0, BUS_SPACE_MAXADDR, BUS_SPACE_MAXADDR,
	    NULL, NULL, n * piece, n, piece, 0, NULL, NULL, &vm->vm_tag);
	if (error == 0)
		error = bus_dmamem_alloc(vm->vm_tag, &vm->vm_vaddr,
		    BUS_DMA_WAITOK | BUS_DMA_ZERO | BUS_DMA_COHERENT, &vm->vm_map);
	if (error == 0)
		error = bus_dmamap_load(vm->vm_tag, vm->vm_map, vm->vm_vaddr, n * piece, loaded,
		    arg, BUS_DMA_NOWAIT);
	if (error == 0 && vm->vm_paddr == 0)
		error = ENOMEM;
	if (error != 0)
		vq_mem_free(vm);
	return (error);
}

static void
vqsplit_free(struct pvq *q)
{
	struct vqsplit *vq = VQ(q);

	KASSERT(q->q_committed == q->q_completed, ("%s: %u chains in flight", q->q_name,
	    q->q_committed - q->q_completed));
	vq_mem_free(&vq->vq_slab);
	free(vq->vq_pieces, M_VIRTQUEUE);
	vq_mem_free(&vq->vq_ring);
	free(vq->vq_shadow, M_VIRTQUEUE);
	free(vq->vq_ids, M_VIRTQUEUE);
	free(vq, M_VIRTQUEUE);
}

/* Find where each piece of the slab is for the device. */
static void
vq_slab_loaded(void *arg, bus_dma_segment_t *segs, int nsegs, int error)
{
	struct vqsplit *vq = arg;
	size_t begin = 0, want;
	int i, piece = 0;

	for (i = 0; error == 0 && i < nsegs; i++) {
		while (piece < vq->vq_npieces) {
			want = piece * vq->vq_piece_size;
			if (want + vq->vq_piece_size > begin + segs[i].ds_len)
				break;
			vq->vq_pieces[piece++] = segs[i].ds_addr + (want - begin);
		}
		begin += segs[i].ds_len;
	}
	/* No piece may be in two segments. */
	if (piece == vq->vq_npieces)
		vq->vq_slab.vm_paddr = vq->vq_pieces[0];
}

/*
 * An indirect table for each descriptor, so that the data path never allocates, in one slab of one
 * tag.  Each table must be in one piece for the device, the slab need not: a system that has been up
 * for long may not have so much in one piece.  A piece is a page, with as many tables as go into it,
 * or the pages that one table takes.
 */
static int
vq_alloc_tables(struct vqsplit *vq, bus_dma_tag_t parent)
{
	size_t bytes = vq->vq_pvq.q_max_segs * sizeof(struct vring_desc), in_slab;
	int error, i, each, shift = 0;

	while ((bytes << (shift + 1)) <= PAGE_SIZE && (2 << shift) <= vq->vq_pvq.q_size)
		shift++;
	each = 1 << shift;
	vq->vq_npieces = vq->vq_pvq.q_size >> shift;
	vq->vq_piece_size = bytes << shift;
	if (vq->vq_npieces > 1)
		vq->vq_piece_size = roundup2(vq->vq_piece_size, PAGE_SIZE);
	vq->vq_pieces = malloc(vq->vq_npieces * sizeof(*vq->vq_pieces), M_VIRTQUEUE,
	    M_WAITOK | M_ZERO);
	error = vq_mem_alloc(&vq->vq_slab, parent, vq->vq_piece_size, vq->vq_npieces,
	    VRING_DESC_ALIGN, vq_slab_loaded, vq);
	for (i = 0; error == 0 && i < vq->vq_pvq.q_size; i++) {
		in_slab = i / each * vq->vq_piece_size + i % each * bytes;
		vq->vq_shadow[i].vd_table =
		    (struct vring_desc *)((char *)vq->vq_slab.vm_vaddr + in_slab);
		vq->vq_shadow[i].vd_table_paddr = vq->vq_pieces[i / each] + i % each * bytes;
	}
	return (error);
}

static int
vq_alloc_ring(struct vqsplit *vq, const struct virtqueue_params *params)
{
	size_t num = params->vqp_size;
	char *mem;
	int error;

	vq->vq_ring_size = vring_size(num, params->vqp_align);
	if (params->vqp_mem != NULL) {
		mem = params->vqp_mem;
		vq->vq_ring.vm_paddr = params->vqp_paddr;
	} else {
		error = vq_mem_alloc(&vq->vq_ring, params->vqp_dmat, vq->vq_ring_size, 1,
		    MAX(params->vqp_align, VRING_DESC_ALIGN), vq_mem_loaded, &vq->vq_ring);
		if (error != 0)
			return (error);
		mem = vq->vq_ring.vm_vaddr;
	}
	vq->vq_desc = (struct vring_desc *)mem;
	vq->vq_avail = (struct vring_avail *)(vq->vq_desc + num);
	vq->vq_used_event = &vq->vq_avail->va_ring[num];
	vq->vq_used = (struct vring_used *)(mem + vring_used_offset(num, params->vqp_align));
	vq->vq_avail_event = (uint16_t *)&vq->vq_used->vu_ring[num];
	return (0);
}

static const struct pvq_ops vqsplit_ops = {
	.qo_name = "split",
	.qo_prepare = vqsplit_prepare,
	.qo_put = vqsplit_put,
	.qo_abort = vqsplit_abort,
	.qo_commit = vqsplit_commit,
	.qo_kick = vqsplit_kick,
	.qo_get = vqsplit_get,
	.qo_intr_enable = vqsplit_intr_enable,
	.qo_intr_disable = vqsplit_intr_disable,
	.qo_drain = vqsplit_drain,
	.qo_reinit = vqsplit_reinit,
	.qo_free = vqsplit_free,
};

static void
vq_init_common(struct vqsplit *vq, const struct virtqueue_params *params)
{
	struct pvq *q = &vq->vq_pvq;

	q->q_ops = &vqsplit_ops;
	q->q_dev = params->vqp_dev;
	q->q_size = params->vqp_size;
	/* A chain may not be longer than the ring, not even in an indirect table (2.7.5.3.1). */
	q->q_max_segs = MIN(params->vqp_max_segs, params->vqp_size);
	vq->vq_modern = (params->vqp_features & VIRTIO_F_VERSION_1) != 0;
	/* Nobody can depend on the lengths of a legacy device. */
	if (vq->vq_modern)
		q->q_flags = params->vqp_flags & PVQ_F_STRICT_LENGTHS;
	vq->vq_strict = (q->q_flags & PVQ_F_STRICT_LENGTHS) != 0;
	if ((params->vqp_features & VIRTIO_F_EVENT_IDX) != 0)
		q->q_flags |= PVQ_F_EVENT;
	if ((params->vqp_features & VIRTIO_F_INDIRECT_DESC) != 0 && q->q_max_segs > 1)
		q->q_flags |= PVQ_F_INDIRECT;
	strlcpy(q->q_name, params->vqp_name, sizeof(q->q_name));
	vq->vq_mask = params->vqp_size - 1;
	vq->vq_index = params->vqp_index;
	vq->vq_notify = params->vqp_notify;
	vq->vq_notify_arg = params->vqp_notify_arg;
}

int
virtqueue_split_create(const struct virtqueue_params *params, struct pvq **qp)
{
	struct vqsplit *vq;
	int error;

	if (params->vqp_size == 0 || params->vqp_size > VRING_MAX_SIZE ||
	    !powerof2(params->vqp_size) || params->vqp_max_segs == 0)
		return (EINVAL);
	vq = malloc(sizeof(*vq), M_VIRTQUEUE, M_WAITOK | M_ZERO);
	vq_init_common(vq, params);
	vq->vq_ids = malloc(params->vqp_size * sizeof(*vq->vq_ids), M_VIRTQUEUE,
	    M_WAITOK | M_ZERO);
	vq->vq_shadow = malloc(params->vqp_size * sizeof(*vq->vq_shadow), M_VIRTQUEUE,
	    M_WAITOK | M_ZERO);
	error = vq_alloc_ring(vq, params);
	if (error == 0 && (vq->vq_pvq.q_flags & PVQ_F_INDIRECT) != 0)
		error = vq_alloc_tables(vq, params->vqp_dmat);
	if (error == 0)
		error = vqsplit_reinit(&vq->vq_pvq);
	if (error != 0) {
		vqsplit_free(&vq->vq_pvq);
		return (error);
	}
	*qp = &vq->vq_pvq;
	return (0);
}

void
virtqueue_split_addrs(const struct pvq *q, struct virtqueue_addrs *addrs)
{
	const struct vqsplit *vq = __containerof(q, const struct vqsplit, vq_pvq);
	bus_addr_t base = vq->vq_ring.vm_paddr;

	addrs->vqa_desc = base;
	addrs->vqa_driver = base + ((char *)vq->vq_avail - (char *)vq->vq_desc);
	addrs->vqa_device = base + ((char *)vq->vq_used - (char *)vq->vq_desc);
}
