/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Requests of virtio_blk on the wire: what pv_blk requests, encoded, and what
 * the device answered (theory statement, trust, locking: virtio_blk.c).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <machine/atomic.h>

#include <dev/virtio/virtqueue.h>
#include <dev/virtio/block/virtio_blk_var.h>

#define	VTBLK_STATUS_UNSET	0xff	/* not a status of the specification */

static uint32_t
vtblk_type(const struct vtblk_softc *sc, enum pv_blk_cmd cmd)
{
	static const uint32_t types[PV_BLK_NCMDS] = {
		[PV_BLK_READ] = VIRTIO_BLK_T_IN,
		[PV_BLK_WRITE] = VIRTIO_BLK_T_OUT,
		[PV_BLK_FLUSH] = VIRTIO_BLK_T_FLUSH,
		[PV_BLK_IDENT] = VIRTIO_BLK_T_GET_ID,
		[PV_BLK_QUERY] = VIRTIO_BLK_T_GET_LIFETIME,
	};

	return (cmd == PV_BLK_DELETE ? sc->vtb_delete_type : types[cmd]);
}

/* Writes the ranges that rq deletes; returns how many bytes they are. */
static size_t
vtblk_encode_ranges(const struct vtblk_softc *sc, const struct pv_blk_req *rq)
{
	struct vtblk_msg *msg = rq->rq_msg;
	struct virtio_blk_discard_write_zeroes *range = msg->ranges;
	const struct bio *bp = NULL;
	uint64_t offset = rq->rq_offset, length = rq->rq_length;

	do {
		range->sector = vtblk_64(sc, offset / VIRTIO_BLK_SECTOR_SIZE);
		range->num_sectors = vtblk_32(sc,
		    length / VIRTIO_BLK_SECTOR_SIZE);
		range->flags = vtblk_32(sc, sc->vtb_delete_flags);
		range++;
		bp = bp == NULL ? TAILQ_FIRST(&rq->rq_more) :
		    TAILQ_NEXT(bp, bio_queue);
		if (bp != NULL) {
			offset = bp->bio_offset;
			length = bp->bio_bcount;
		}
	} while (bp != NULL);
	return ((char *)range - (char *)msg->ranges);
}

void
vtblk_encode(struct pv_blk *blk, struct pv_blk_req *rq, struct pvq_chain *pc)
{
	struct vtblk_softc *sc = __containerof(blk, struct vtblk_softc,
	    vtb_blk);
	struct vtblk_msg *msg = rq->rq_msg;
	bus_dma_segment_t *seg = rq->rq_segs;
	int ndata = rq->rq_nsegs;
	uint64_t sector = (uint64_t)rq->rq_offset / VIRTIO_BLK_SECTOR_SIZE;

	/* 5.2.6.1: the sector is 0 for requests that have none. */
	msg->hdr.type = vtblk_32(sc, vtblk_type(sc, rq->rq_cmd));
	msg->hdr.reserved = 0;
	msg->hdr.sector = rq->rq_cmd == PV_BLK_READ ||
	    rq->rq_cmd == PV_BLK_WRITE ? vtblk_64(sc, sector) : 0;
	msg->status = VTBLK_STATUS_UNSET;
	seg[0].ds_addr = rq->rq_msg_paddr + offsetof(struct vtblk_msg, hdr);
	seg[0].ds_len = sizeof(msg->hdr);
	if (rq->rq_cmd == PV_BLK_DELETE) {
		seg[1].ds_addr = rq->rq_msg_paddr + offsetof(struct vtblk_msg,
		    ranges);
		seg[1].ds_len = vtblk_encode_ranges(sc, rq);
		ndata = 1;
	} else if (rq->rq_cmd == PV_BLK_QUERY) {
		/*
		 * Not known, if the device says that it answered and did not.
		 */
		bzero(&msg->lifetime, sizeof(msg->lifetime));
		seg[1].ds_addr = rq->rq_msg_paddr + offsetof(struct vtblk_msg,
		    lifetime);
		seg[1].ds_len = sizeof(msg->lifetime);
		ndata = 1;
	}
	seg[1 + ndata].ds_addr = rq->rq_msg_paddr + offsetof(struct vtblk_msg,
	    status);
	seg[1 + ndata].ds_len = sizeof(msg->status);
	pc->pc_segs = seg;
	pc->pc_nread = 1;
	pc->pc_nwrite = 1;
	if (rq->rq_cmd == PV_BLK_READ || rq->rq_cmd == PV_BLK_IDENT ||
	    rq->rq_cmd == PV_BLK_QUERY)
		pc->pc_nwrite += ndata;
	else
		pc->pc_nread += ndata;
}

static __always_inline void
vtblk_post_formed(const struct vtblk_softc *sc, struct pv_blk_req *rq,
    struct pvq *q)
{
	struct vtblk_msg *msg = rq->rq_msg;
	struct virtqueue_entry *ve = &msg->table[1];
	const bus_dma_segment_t *seg = rq->rq_segs + 1;
	const uint32_t read = rq->rq_cmd == PV_BLK_READ;
	const u_int n = rq->rq_nsegs;
	u_int i;

	msg->hdr.sector = vtblk_64(sc,
	    (uint64_t)rq->rq_offset / VIRTIO_BLK_SECTOR_SIZE);
	msg->status = VTBLK_STATUS_UNSET;
	ve->vqe_addr = vtblk_64(sc, seg->ds_addr);
	ve->vqe_len = vtblk_32(sc, seg->ds_len);
	/* Most have no more. */
	for (i = 1; __predict_false(i < n); i++) {
		ve[i].vqe_addr = vtblk_64(sc, seg[i].ds_addr);
		ve[i].vqe_len = vtblk_32(sc, seg[i].ds_len);
	}
	pv_dma_sync(&sc->vtb_blk.blk_msg_dma,
	    BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	virtqueue_post_table(q,
	    rq->rq_msg_paddr + offsetof(struct vtblk_msg, table), n + 2,
	    sizeof(msg->status) + (-read & (uint32_t)rq->rq_length), rq);
}

/*
 * First what this form has once and for all: the table, and the header but for
 * the sector.
 */
static __noinline void
vtblk_post_other(const struct vtblk_softc *sc, struct pv_blk_req *rq,
    struct pvq *q, uint32_t form)
{
	struct vtblk_msg *msg = rq->rq_msg;
	struct virtqueue_entry *last = &msg->table[1 + rq->rq_nsegs];
	const bool read = rq->rq_cmd == PV_BLK_READ;

	virtqueue_form(q, msg->table, read ? 1 : 1 + rq->rq_nsegs,
	    read ? rq->rq_nsegs + 1 : 1);
	msg->table[0].vqe_addr = vtblk_64(sc,
	    rq->rq_msg_paddr + offsetof(struct vtblk_msg, hdr));
	msg->table[0].vqe_len = vtblk_32(sc, sizeof(msg->hdr));
	last->vqe_addr = vtblk_64(sc,
	    rq->rq_msg_paddr + offsetof(struct vtblk_msg, status));
	last->vqe_len = vtblk_32(sc, sizeof(msg->status));
	msg->hdr.type = vtblk_32(sc, vtblk_type(sc, rq->rq_cmd));
	msg->hdr.reserved = 0;
	rq->rq_form = form;
	vtblk_post_formed(sc, rq, q);
}

void
vtblk_post(struct pv_blk *blk, struct pv_blk_req *rq, struct pvq *q)
{
	struct vtblk_softc *sc = __containerof(blk, struct vtblk_softc,
	    vtb_blk);
	const uint32_t form = (u_int)rq->rq_nsegs << 1 |
	    (rq->rq_cmd == PV_BLK_READ);

	if (__predict_false(rq->rq_form != form))
		vtblk_post_other(sc, rq, q, form);
	else
		vtblk_post_formed(sc, rq, q);
}

int
vtblk_status(struct pv_blk *blk, const struct pv_blk_req *rq,
    const struct pvq_done *pd, uintmax_t *seen)
{
	struct vtblk_softc *sc = __containerof(blk, struct vtblk_softc,
	    vtb_blk);
	const struct vtblk_msg *msg = rq->rq_msg;
	uint8_t status = *(const volatile uint8_t *)&msg->status;
	size_t owed = sizeof(status);

	if (rq->rq_cmd == PV_BLK_READ && status == VIRTIO_BLK_S_OK)
		owed += rq->rq_length;
	if (__predict_false(virtqueue_done_len(pd) < owed) && sc->vtb_modern) {
		if (sc->vtb_strict) {
			*seen = virtqueue_done_len(pd);
			return (-1);
		}
		atomic_add_64(&sc->vtb_short_lengths, 1);
	}
	switch (status) {
	case VIRTIO_BLK_S_OK:
		if (__predict_false(rq->rq_cmd == PV_BLK_QUERY))
			memcpy(rq->rq_bio->bio_data, &msg->lifetime,
			    sizeof(msg->lifetime));
		return (0);
	case VIRTIO_BLK_S_IOERR:
		return (EIO);
	case VIRTIO_BLK_S_UNSUPP:
		return (EOPNOTSUPP);
	default:
		*seen = status;
		return (-1);
	}
}
