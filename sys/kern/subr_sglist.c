/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * sglist(9): lists of ranges of physical memory.
 *
 * An append either adds the whole or, with EFBIG, nothing: the list is put back as it was.
 * Adjacent ranges become one segment.
 *
 * Gaps.  No user addresses, no M_EXTPG mbufs, no sglist_consume_uio().
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/proc.h>
#include <sys/sglist.h>
#include <sys/uio.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

static MALLOC_DEFINE(M_SGLIST, "sglist", "scatter/gather lists");

/* What an append changes, to undo it. */
struct sglist_mark {
	u_short	nseg;
	size_t	last_len;
};

static struct sglist_mark
sglist_mark(const struct sglist *sg)
{
	struct sglist_mark mark = { .nseg = sg->sg_nseg };

	if (sg->sg_nseg > 0)
		mark.last_len = sg->sg_segs[sg->sg_nseg - 1].ss_len;
	return (mark);
}

static void
sglist_undo(struct sglist *sg, struct sglist_mark mark)
{
	sg->sg_nseg = mark.nseg;
	if (mark.nseg > 0)
		sg->sg_segs[mark.nseg - 1].ss_len = mark.last_len;
}

struct sglist *
sglist_alloc(int nsegs, int mflags)
{
	struct sglist *sg;

	sg = malloc(sizeof(*sg) + nsegs * sizeof(struct sglist_seg), M_SGLIST, mflags);
	if (sg != NULL)
		sglist_init(sg, nsegs, (struct sglist_seg *)(sg + 1));
	return (sg);
}

void
sglist_free(struct sglist *sg)
{
	if (sg != NULL && refcount_release(&sg->sg_refs))
		free(sg, M_SGLIST);
}

int
sglist_append_phys(struct sglist *sg, vm_paddr_t pa, size_t len)
{
	struct sglist_seg *last;

	if (sg->sg_maxseg == 0)
		return (EINVAL);
	if (len == 0)
		return (0);
	if (sg->sg_nseg > 0) {
		last = &sg->sg_segs[sg->sg_nseg - 1];
		if (last->ss_paddr + last->ss_len == pa) {
			last->ss_len += len;
			return (0);
		}
	}
	if (sg->sg_nseg == sg->sg_maxseg)
		return (EFBIG);
	sg->sg_segs[sg->sg_nseg].ss_paddr = pa;
	sg->sg_segs[sg->sg_nseg].ss_len = len;
	sg->sg_nseg++;
	return (0);
}

int
sglist_append(struct sglist *sg, void *buf, size_t len)
{
	struct sglist_mark mark = sglist_mark(sg);
	vm_offset_t va = (vm_offset_t)buf;
	size_t n;
	int error;

	if (sg->sg_maxseg == 0)
		return (EINVAL);
	for (; len > 0; va += n, len -= n) {
		n = MIN(len, PAGE_SIZE - (va & PAGE_MASK));
		error = sglist_append_phys(sg, pmap_kextract(va), n);
		if (error != 0) {
			sglist_undo(sg, mark);
			return (error);
		}
	}
	return (0);
}

int
sglist_append_vmpages(struct sglist *sg, vm_page_t *m, size_t pgoff, size_t len)
{
	struct sglist_mark mark = sglist_mark(sg);
	size_t n;
	int error;

	if (sg->sg_maxseg == 0)
		return (EINVAL);
	for (; len > 0; len -= n, pgoff = 0, m++) {
		n = MIN(len, PAGE_SIZE - pgoff);
		error = sglist_append_phys(sg, VM_PAGE_TO_PHYS(*m) + pgoff, n);
		if (error != 0) {
			sglist_undo(sg, mark);
			return (error);
		}
	}
	return (0);
}

int
sglist_append_bio(struct sglist *sg, struct bio *bp)
{
	if ((bp->bio_flags & BIO_UNMAPPED) != 0)
		return (sglist_append_vmpages(sg, bp->bio_ma, bp->bio_ma_offset,
		    bp->bio_bcount));
	return (sglist_append(sg, bp->bio_data, bp->bio_bcount));
}

int
sglist_append_single_mbuf(struct sglist *sg, struct mbuf *m)
{
	KASSERT((m->m_flags & M_EXTPG) == 0, ("%s: unmapped mbuf %p", __func__, m));
	return (m->m_len > 0 ? sglist_append(sg, m->m_data, m->m_len) : 0);
}

int
sglist_append_mbuf(struct sglist *sg, struct mbuf *m0)
{
	struct sglist_mark mark = sglist_mark(sg);
	struct mbuf *m;
	int error;

	if (sg->sg_maxseg == 0)
		return (EINVAL);
	for (m = m0; m != NULL; m = m->m_next) {
		error = sglist_append_single_mbuf(sg, m);
		if (error != 0) {
			sglist_undo(sg, mark);
			return (error);
		}
	}
	return (0);
}

int
sglist_append_uio(struct sglist *sg, struct uio *uio)
{
	struct sglist_mark mark = sglist_mark(sg);
	size_t len, resid = uio->uio_resid;
	int error, i;

	KASSERT(uio->uio_segflg == UIO_SYSSPACE, ("%s: user addresses", __func__));
	for (i = 0; i < uio->uio_iovcnt && resid > 0; i++, resid -= len) {
		len = MIN(resid, uio->uio_iov[i].iov_len);
		error = sglist_append(sg, uio->uio_iov[i].iov_base, len);
		if (error != 0) {
			sglist_undo(sg, mark);
			return (error);
		}
	}
	return (0);
}

/*
 * Append length bytes of source from the offset on; EINVAL if it is shorter.
 */
int
sglist_append_sglist(struct sglist *sg, struct sglist *source, size_t offset, size_t length)
{
	struct sglist_mark mark = sglist_mark(sg);
	const struct sglist_seg *seg;
	size_t n;
	int error, i;

	if (sg->sg_maxseg == 0 || length == 0)
		return (EINVAL);
	error = 0;
	for (i = 0; i < source->sg_nseg && length > 0 && error == 0; i++) {
		seg = &source->sg_segs[i];
		if (offset >= seg->ss_len) {
			offset -= seg->ss_len;
			continue;
		}
		n = MIN(length, seg->ss_len - offset);
		error = sglist_append_phys(sg, seg->ss_paddr + offset, n);
		offset = 0;
		length -= n;
	}
	if (error == 0 && length > 0)
		error = EINVAL;
	if (error != 0)
		sglist_undo(sg, mark);
	return (error);
}

/*
 * How many segments the buffer needs.
 */
int
sglist_count(void *buf, size_t len)
{
	vm_offset_t va = (vm_offset_t)buf;
	vm_paddr_t pa, next;
	size_t n;
	int nsegs;

	nsegs = 0;
	next = 0;
	for (; len > 0; va += n, len -= n) {
		n = MIN(len, PAGE_SIZE - (va & PAGE_MASK));
		pa = pmap_kextract(va);
		if (nsegs == 0 || pa != next)
			nsegs++;
		next = pa + n;
	}
	return (nsegs);
}

int
sglist_count_vmpages(vm_page_t *m, size_t pgoff, size_t len)
{
	int i, npages, nsegs;

	if (len == 0)
		return (0);
	npages = howmany(pgoff + len, PAGE_SIZE);
	nsegs = 1;
	for (i = 1; i < npages; i++)
		if (VM_PAGE_TO_PHYS(m[i - 1]) + PAGE_SIZE != VM_PAGE_TO_PHYS(m[i]))
			nsegs++;
	return (nsegs);
}

struct sglist *
sglist_build(void *buf, size_t len, int mflags)
{
	struct sglist *sg;
	int nsegs = sglist_count(buf, len);

	if (nsegs == 0)
		return (NULL);
	sg = sglist_alloc(nsegs, mflags);
	if (sg != NULL && sglist_append(sg, buf, len) != 0) {
		sglist_free(sg);
		sg = NULL;
	}
	return (sg);
}

struct sglist *
sglist_clone(struct sglist *sg, int mflags)
{
	struct sglist *new;

	if (sg == NULL)
		return (NULL);
	new = sglist_alloc(sg->sg_maxseg, mflags);
	if (new == NULL)
		return (NULL);
	new->sg_nseg = sg->sg_nseg;
	memcpy(new->sg_segs, sg->sg_segs, sg->sg_nseg * sizeof(*sg->sg_segs));
	return (new);
}

size_t
sglist_length(struct sglist *sg)
{
	size_t len;
	int i;

	len = 0;
	for (i = 0; i < sg->sg_nseg; i++)
		len += sg->sg_segs[i].ss_len;
	return (len);
}

/*
 * Move all segments of second to the end of first.
 */
int
sglist_join(struct sglist *first, struct sglist *second)
{
	struct sglist_mark mark = sglist_mark(first);
	int error, i;

	error = 0;
	for (i = 0; i < second->sg_nseg && error == 0; i++)
		error = sglist_append_phys(first, second->sg_segs[i].ss_paddr,
		    second->sg_segs[i].ss_len);
	if (error != 0) {
		sglist_undo(first, mark);
		return (error);
	}
	sglist_reset(second);
	return (0);
}

/*
 * A new list of length bytes of the original from the offset on.
 */
int
sglist_slice(struct sglist *original, struct sglist **slice, size_t offset, size_t length,
    int mflags)
{
	struct sglist *sg;
	int error;

	if (length == 0)
		return (EINVAL);
	if (*slice == NULL) {
		sg = sglist_alloc(MAX(original->sg_nseg, 1), mflags);
		if (sg == NULL)
			return (ENOMEM);
	} else {
		sg = *slice;
		if (sg->sg_nseg != 0)
			return (EINVAL);
	}
	error = sglist_append_sglist(sg, original, offset, length);
	if (error == 0)
		*slice = sg;
	else if (*slice == NULL)
		sglist_free(sg);
	return (error);
}
