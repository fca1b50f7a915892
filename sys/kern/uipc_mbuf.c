/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The shape of mbuf chains (mbuf(9)): headers of packets, lengths, joining, cutting, pulling
 * together, and the check that a chain is well formed.  What copies data is in
 * uipc_mbuf_copy.c.
 *
 * Locking.  None: a chain belongs to whoever holds it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/sysctl.h>

u_int max_linkhdr = 16;
u_int max_protohdr = 60;
u_int max_hdr = 76;

SYSCTL_UINT(_kern_ipc, OID_AUTO, max_linkhdr, CTLFLAG_RD, &max_linkhdr, 0,
    "Bytes reserved for a link layer's header");
SYSCTL_UINT(_kern_ipc, OID_AUTO, max_protohdr, CTLFLAG_RD, &max_protohdr, 0,
    "Bytes reserved for protocol headers");
SYSCTL_UINT(_kern_ipc, OID_AUTO, max_hdr, CTLFLAG_RD, &max_hdr, 0,
    "Bytes reserved for all headers of a packet");

void
max_linkhdr_grow(u_int new)
{
	if (new > max_linkhdr) {
		max_linkhdr = new;
		max_hdr = max_linkhdr + max_protohdr;
	}
}

void
max_protohdr_grow(u_int new)
{
	if (new > max_protohdr) {
		max_protohdr = new;
		max_hdr = max_linkhdr + max_protohdr;
	}
}

u_int
m_length(struct mbuf *m, struct mbuf **last)
{
	u_int len = 0;

	if (last != NULL)
		*last = NULL;
	for (; m != NULL; m = m->m_next) {
		len += m->m_len;
		if (last != NULL)
			*last = m;
	}
	return (len);
}

u_int
m_fixhdr(struct mbuf *m)
{
	M_ASSERTPKTHDR(m);
	m->m_pkthdr.len = m_length(m, NULL);
	return (m->m_pkthdr.len);
}

/* The mbuf and the offset in it of byte `loc'; the end of the chain is a valid place too. */
struct mbuf *
m_getptr(struct mbuf *m, int loc, int *off)
{
	if (loc < 0)
		return (NULL);
	for (; m != NULL; m = m->m_next) {
		if (loc < m->m_len || (loc == m->m_len && m->m_next == NULL)) {
			*off = loc;
			return (m);
		}
		loc -= m->m_len;
	}
	return (NULL);
}

void
m_demote_pkthdr(struct mbuf *m)
{
	M_ASSERTPKTHDR(m);
	M_ASSERT_NO_SND_TAG(m);
	m_tag_delete_chain(m, NULL);
	m->m_flags &= ~M_PKTHDR;
	bzero(&m->m_pkthdr, sizeof(m->m_pkthdr));
}

/*
 * Turn each mbuf of the chain, the first one only when `all' is set, into a plain part of a
 * packet.
 */
void
m_demote(struct mbuf *m0, int all, int flags)
{
	struct mbuf *m;

	flags |= M_DEMOTEFLAGS;
	for (m = all ? m0 : m0->m_next; m != NULL; m = m->m_next) {
		KASSERT(m->m_nextpkt == NULL, ("%s: mbuf %p of chain %p has a m_nextpkt",
		    __func__, m, m0));
		if ((m->m_flags & M_PKTHDR) != 0)
			m_demote_pkthdr(m);
		m->m_flags &= flags;
	}
}

/*
 * Move the packet header, tags and all, from one mbuf to another whose contents are in an
 * external buffer, or not there yet.
 */
void
m_move_pkthdr(struct mbuf *to, struct mbuf *from)
{
	if ((to->m_flags & M_PKTHDR) != 0)
		m_tag_delete_chain(to, NULL);
	to->m_flags = (from->m_flags & M_COPYFLAGS) |
	    (to->m_flags & (M_EXT | M_EXTPG | M_RDONLY | M_NOFREE));
	if ((to->m_flags & (M_EXT | M_EXTPG)) == 0)
		to->m_data = to->m_pktdat;
	to->m_pkthdr = from->m_pkthdr;
	SLIST_INIT(&from->m_pkthdr.tags);
	if ((from->m_pkthdr.csum_flags & CSUM_SND_TAG) != 0) {
		from->m_pkthdr.csum_flags &= ~CSUM_SND_TAG;
		from->m_pkthdr.snd_tag = NULL;
	}
	from->m_flags &= ~M_PKTHDR;
}

/*
 * Copy a packet header with its tags.  Returns 0 when there is no memory for the tags: `to'
 * has no packet header then.
 */
int
m_dup_pkthdr(struct mbuf *to, const struct mbuf *from, int how)
{
	if ((to->m_flags & M_PKTHDR) != 0)
		m_tag_delete_chain(to, NULL);
	to->m_flags = (from->m_flags & M_COPYFLAGS & ~M_RDONLY) |
	    (to->m_flags & (M_EXT | M_EXTPG | M_RDONLY | M_NOFREE));
	if ((to->m_flags & (M_EXT | M_EXTPG)) == 0)
		to->m_data = to->m_pktdat;
	to->m_pkthdr = from->m_pkthdr;
	if ((from->m_pkthdr.csum_flags & CSUM_SND_TAG) != 0)
		m_snd_tag_ref(from->m_pkthdr.snd_tag);
	SLIST_INIT(&to->m_pkthdr.tags);
	return (m_tag_copy_chain(to, from, how));
}

/*
 * Put a new mbuf with `len' bytes of room in front of the chain; the packet header moves to
 * it, its length is the caller's to adjust.  On failure the chain is freed.
 */
struct mbuf *
m_prepend(struct mbuf *m, int len, int how)
{
	struct mbuf *n;

	n = (m->m_flags & M_PKTHDR) != 0 ? m_gethdr(how, m->m_type) : m_get(how, m->m_type);
	if (n == NULL) {
		m_freem(m);
		return (NULL);
	}
	if ((m->m_flags & M_PKTHDR) != 0)
		m_move_pkthdr(n, m);
	KASSERT(len <= M_SIZE(n), ("%s: %d bytes do not fit into an mbuf", __func__, len));
	n->m_next = m;
	m_align(n, len);
	n->m_len = len;
	return (n);
}

/*
 * Join two chains that are not packets of their own, or whose packet headers the caller
 * adjusts.
 */
void
m_cat(struct mbuf *m, struct mbuf *n)
{
	m = m_last(m);
	while (n != NULL) {
		if (!M_WRITABLE(m) || (n->m_flags & M_EXTPG) != 0 || n->m_len > MLEN / 2 ||
		    M_TRAILINGSPACE(m) < n->m_len) {
			m->m_next = n;
			return;
		}
		bcopy(mtod(n, caddr_t), mtod(m, caddr_t) + m->m_len, n->m_len);
		m->m_len += n->m_len;
		n = m_free(n);
	}
}

/* Join two packets; the second one's header is dropped. */
void
m_catpkt(struct mbuf *m, struct mbuf *n)
{
	M_ASSERTPKTHDR(m);
	M_ASSERTPKTHDR(n);
	m->m_pkthdr.len += n->m_pkthdr.len;
	m_demote(n, 1, 0);
	m_cat(m, n);
}

static void
m_adj_head(struct mbuf *m, int len)
{
	struct mbuf *first = m;
	int cut, done = 0;

	for (; m != NULL && done < len; m = m->m_next) {
		cut = MIN(m->m_len, len - done);
		m->m_data += cut;
		m->m_len -= cut;
		done += cut;
	}
	if ((first->m_flags & M_PKTHDR) != 0)
		first->m_pkthdr.len -= done;
}

static void
m_adj_tail(struct mbuf *m, int len)
{
	struct mbuf *first = m;
	int keep, total;

	total = m_length(m, NULL);
	keep = MAX(total - len, 0);
	if ((first->m_flags & M_PKTHDR) != 0)
		first->m_pkthdr.len -= total - keep;
	for (; m != NULL; m = m->m_next) {
		m->m_len = MIN(m->m_len, keep);
		keep -= m->m_len;
	}
}

/* Cut `req_len' bytes from the front, or -req_len from the end.  No mbuf is freed. */
void
m_adj(struct mbuf *m, int req_len)
{
	if (m == NULL)
		return;
	if (req_len >= 0)
		m_adj_head(m, req_len);
	else
		m_adj_tail(m, -req_len);
}

/* Cut an outer header; its checksum results are replaced by those of the inner one. */
void
m_adj_decap(struct mbuf *m, int len)
{
	uint32_t flags = 0;

	m_adj(m, len);
	if ((m->m_flags & M_PKTHDR) == 0)
		return;
	if ((m->m_pkthdr.csum_flags & CSUM_INNER_L3_CALC) != 0)
		flags |= CSUM_L3_CALC;
	if ((m->m_pkthdr.csum_flags & CSUM_INNER_L3_VALID) != 0)
		flags |= CSUM_L3_VALID;
	if ((m->m_pkthdr.csum_flags & CSUM_INNER_L4_CALC) != 0)
		flags |= CSUM_L4_CALC;
	if ((m->m_pkthdr.csum_flags & CSUM_INNER_L4_VALID) != 0)
		flags |= CSUM_L4_VALID;
	m->m_pkthdr.csum_flags = flags;
}

/*
 * Take bytes from the front of the chain m, freeing what becomes empty, until `len' bytes
 * more are behind n. Returns what is left of the chain; *left is how many bytes were missing.
 */
static struct mbuf *
m_take(struct mbuf *n, struct mbuf *m, int len, int *left)
{
	int count;

	while (len > 0 && m != NULL) {
		count = MIN(len, m->m_len);
		bcopy(mtod(m, caddr_t), mtod(n, caddr_t) + n->m_len, count);
		n->m_len += count;
		m->m_data += count;
		m->m_len -= count;
		len -= count;
		if (m->m_len == 0)
			m = m_free(m);
	}
	*left = len;
	return (m);
}

/*
 * Make the first `len' bytes contiguous, `dstoff' bytes into a new mbuf.  On failure the
 * chain is freed.
 */
struct mbuf *
m_copyup(struct mbuf *m, int len, int dstoff)
{
	struct mbuf *n;
	int left;

	n = NULL;
	if (len >= 0 && len <= MHLEN - dstoff)
		n = m_get(M_NOWAIT, m->m_type);
	if (n == NULL) {
		m_freem(m);
		return (NULL);
	}
	if ((m->m_flags & M_PKTHDR) != 0)
		m_move_pkthdr(n, m);
	n->m_data += dstoff;
	n->m_next = m_take(n, m, len, &left);
	if (left > 0) {
		m_freem(n);
		return (NULL);
	}
	return (n);
}

/*
 * Make the first `len' bytes, of at most MHLEN, contiguous.  On failure, which includes a
 * chain that is shorter, it is freed.
 */
struct mbuf *
m_pullup(struct mbuf *m, int len)
{
	int left;

	if (m->m_len >= len)
		return (m);
	/* The rest may fit behind what is in the first mbuf; else all of it goes to a new one. */
	if (m->m_next != NULL && (m->m_flags & M_EXT) == 0 && M_WRITABLE(m) &&
	    M_TRAILINGSPACE(m) >= len - m->m_len) {
		m->m_next = m_take(m, m->m_next, len - m->m_len, &left);
		if (left > 0) {
			m_freem(m);
			return (NULL);
		}
		return (m);
	}
	return (m_copyup(m, len, 0));
}

/*
 * Cut a chain in two at `len0'.  Returns the second part, with a packet header of its own if
 * the first has one; NULL when there is no memory or the chain is shorter, and the chain is
 * then as it was.
 */
struct mbuf *
m_split(struct mbuf *m0, int len0, int wait)
{
	struct mbuf *m, *n;
	int remain, total;

	total = m_length(m0, NULL);
	for (m = m0, remain = len0; m != NULL && remain > m->m_len; m = m->m_next)
		remain -= m->m_len;
	if (m == NULL)
		return (NULL);

	n = (m0->m_flags & M_PKTHDR) != 0 ? m_gethdr(wait, m0->m_type) : m_get(wait, m->m_type);
	if (n == NULL)
		return (NULL);
	/*
	 * What follows the cut in the same mbuf: shared when it is external, copied when it
	 * is small.
	 */
	if ((m->m_flags & M_EXT) != 0 && remain < m->m_len) {
		n->m_data = m->m_data + remain;
		mb_dupcl(n, m);
	} else if (m->m_len - remain <= M_SIZE(n)) {
		m_align(n, m->m_len - remain);
		bcopy(mtod(m, caddr_t) + remain, mtod(n, caddr_t), m->m_len - remain);
	} else {
		/*
		 * Only an mbuf with no packet header holds more than the new one: use one
		 * like it.
		 */
		n->m_next = m_get(wait, m->m_type);
		if (n->m_next == NULL) {
			m_free(n);
			return (NULL);
		}
		bcopy(mtod(m, caddr_t) + remain, mtod(n->m_next, caddr_t), m->m_len - remain);
		n->m_next->m_len = m->m_len - remain;
	}
	if (n->m_next == NULL) {
		n->m_len = m->m_len - remain;
		n->m_next = m->m_next;
	} else
		n->m_next->m_next = m->m_next;
	m->m_len = remain;
	m->m_next = NULL;
	if ((m0->m_flags & M_PKTHDR) != 0) {
		n->m_pkthdr.rcvif = m0->m_pkthdr.rcvif;
		n->m_pkthdr.len = total - len0;
		m0->m_pkthdr.len = len0;
	}
	return (n);
}

static const char *
m_fault(const struct mbuf *m0, const struct mbuf *m)
{
	const char *start, *end;

	start = M_START(m);
	end = start + M_SIZE(m);
	if (m->m_len < 0 || m->m_data < start || m->m_data + m->m_len > end)
		return ("data outside of the buffer");
	if (m != m0 && m->m_nextpkt != NULL)
		return ("m_nextpkt inside of a chain");
	if (m != m0 && (m->m_flags & M_PKTHDR) != 0)
		return ("packet header inside of a chain");
	return (NULL);
}

/*
 * Check that a chain is well formed: 1 if it is.  Prints what is wrong unless `quiet' is set.
 */
int
m_sanity(struct mbuf *m0, int quiet)
{
	const char *fault = NULL;
	struct mbuf *m;
	int len = 0;

	for (m = m0; m != NULL && fault == NULL; m = m->m_next) {
		fault = m_fault(m0, m);
		len += m->m_len;
	}
	if (fault == NULL && (m0->m_flags & M_PKTHDR) != 0 && m0->m_pkthdr.len != len)
		fault = "m_pkthdr.len is not the length of the chain";
	if (fault != NULL && !quiet)
		printf("mbuf chain %p: %s\n", m0, fault);
	return (fault == NULL);
}
