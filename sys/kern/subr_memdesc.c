/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * memdesc(9): one description for every kind of memory that I/O goes to, and copies to and from
 * it.
 *
 * Gaps.  No CAM control blocks, no external mbufs over a description.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bio.h>
#include <sys/bus.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/memdesc.h>
#include <sys/proc.h>
#include <sys/uio.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>

#include <machine/bus.h>

struct memdesc
memdesc_bio(struct bio *bio)
{
	if ((bio->bio_flags & BIO_VLIST) != 0)
		return (memdesc_vlist((struct bus_dma_segment *)bio->bio_data, bio->bio_ma_n));
	if ((bio->bio_flags & BIO_UNMAPPED) != 0)
		return (memdesc_vmpages(bio->bio_ma, bio->bio_bcount, bio->bio_ma_offset));
	return (memdesc_vaddr(bio->bio_data, bio->bio_bcount));
}

/*
 * The run of memory at the offset: its address, and by way of *lenp how far it reaches.
 */
static char *
memdesc_run(const struct memdesc *mem, size_t off, size_t *lenp)
{
	const struct bus_dma_segment *seg;
	const struct iovec *iov;
	const struct mbuf *m;

	switch (mem->md_type) {
	case MEMDESC_VADDR:
		*lenp = mem->md_len - off;
		return ((char *)mem->u.md_vaddr + off);
	case MEMDESC_PADDR:
		*lenp = mem->md_len - off;
		return ((char *)PHYS_TO_DMAP(mem->u.md_paddr + off));
	case MEMDESC_VLIST:
	case MEMDESC_PLIST:
		for (seg = mem->u.md_list; off >= seg->ds_len; seg++)
			off -= seg->ds_len;
		*lenp = seg->ds_len - off;
		return ((char *)(mem->md_type == MEMDESC_VLIST ? seg->ds_addr :
		    PHYS_TO_DMAP(seg->ds_addr)) + off);
	case MEMDESC_UIO:
		for (iov = mem->u.md_uio->uio_iov; off >= iov->iov_len; iov++)
			off -= iov->iov_len;
		*lenp = iov->iov_len - off;
		return ((char *)iov->iov_base + off);
	case MEMDESC_MBUF:
		for (m = mem->u.md_mbuf; off >= m->m_len; m = m->m_next)
			off -= m->m_len;
		*lenp = m->m_len - off;
		return (mtod(m, char *) + off);
	case MEMDESC_VMPAGES:
		off += mem->md_offset;
		*lenp = PAGE_SIZE - (off & PAGE_MASK);
		return ((char *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(mem->u.md_ma[atop(off)])) +
		    (off & PAGE_MASK));
	default:
		panic("%s: memory of type %u", __func__, mem->md_type);
	}
}

void
memdesc_copyback(struct memdesc *mem, int off, int size, const void *src)
{
	const char *from = src;
	char *to;
	size_t len;

	for (; size > 0; size -= len, off += len, from += len) {
		to = memdesc_run(mem, off, &len);
		len = MIN(len, size);
		memcpy(to, from, len);
	}
}

void
memdesc_copydata(struct memdesc *mem, int off, int size, void *dst)
{
	const char *from;
	char *to = dst;
	size_t len;

	for (; size > 0; size -= len, off += len, to += len) {
		from = memdesc_run(mem, off, &len);
		len = MIN(len, size);
		memcpy(to, from, len);
	}
}
