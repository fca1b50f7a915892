/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Copying of mbuf chains (mbuf(9)): by reference (m_copym, m_copypacket), by value (m_dup,
 * m_unshare), to and from plain memory, and packing of a chain into fewer mbufs (m_defrag,
 * m_collapse).
 *
 * Locking.  None: a chain belongs to whoever holds it.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/limits.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>

/*
 * Copy `len' bytes from `off0', or all that follow with M_COPYALL.  External buffers are
 * shared, so that the copy is to be read only.  NULL when there is no memory.
 */
struct mbuf *
m_copym(struct mbuf *m, int off0, int len, int wait)
{
	struct mbuf *first = NULL, **tail = &first, *n;
	int off = off0, count;
	bool header;

	KASSERT(off >= 0 && len >= 0, ("%s: offset %d, length %d", __func__, off, len));
	header = off0 == 0 && (m->m_flags & M_PKTHDR) != 0;
	for (; m != NULL && off >= m->m_len && off > 0; m = m->m_next)
		off -= m->m_len;
	for (; len > 0 && m != NULL; m = m->m_next, off = 0) {
		count = MIN(len, m->m_len - off);
		n = header ? m_gethdr(wait, m->m_type) : m_get(wait, m->m_type);
		if (n == NULL)
			goto nospace;
		*tail = n;
		tail = &n->m_next;
		if (header) {
			if (!m_dup_pkthdr(n, m, wait))
				goto nospace;
			n->m_pkthdr.len = len == M_COPYALL ? m->m_pkthdr.len : len;
			header = false;
		}
		n->m_len = count;
		if ((m->m_flags & M_EXT) != 0) {
			n->m_data = m->m_data + off;
			mb_dupcl(n, m);
		} else
			bcopy(mtod(m, caddr_t) + off, mtod(n, caddr_t), count);
		if (len != M_COPYALL)
			len -= count;
	}
	KASSERT(m != NULL || len == 0 || len == M_COPYALL, ("%s: the chain is too short",
	    __func__));
	return (first);
nospace:
	m_freem(first);
	return (NULL);
}

struct mbuf *
m_copypacket(struct mbuf *m, int how)
{
	M_ASSERTPKTHDR(m);
	return (m_copym(m, 0, M_COPYALL, how));
}

void
m_copydata(const struct mbuf *m, int off, int len, caddr_t cp)
{
	int count;

	KASSERT(off >= 0 && len >= 0, ("%s: offset %d, length %d", __func__, off, len));
	for (; len > 0; m = m->m_next) {
		KASSERT(m != NULL, ("%s: the chain is too short", __func__));
		if (off >= m->m_len) {
			off -= m->m_len;
			continue;
		}
		count = MIN(m->m_len - off, len);
		bcopy(mtod(m, const char *) + off, cp, count);
		cp += count;
		len -= count;
		off = 0;
	}
}

/*
 * A writable copy of a packet, all of it.
 */
struct mbuf *
m_dup(const struct mbuf *m, int how)
{
	struct mbuf *copy, *n;
	int done, count, total;

	M_ASSERTPKTHDR(m);
	total = m->m_pkthdr.len;
	copy = m_getm2(NULL, total, how, m->m_type, M_PKTHDR);
	if (copy == NULL)
		return (NULL);
	if (!m_dup_pkthdr(copy, m, how)) {
		m_freem(copy);
		return (NULL);
	}
	for (n = copy, done = 0; done < total; n = n->m_next) {
		count = MIN(M_TRAILINGSPACE(n), total - done);
		m_copydata(m, done, count, mtod(n, caddr_t));
		n->m_len = count;
		done += count;
	}
	return (copy);
}

/*
 * Write `len' bytes at `off' into the chain, which grows (with zeroes before `off') when it
 * has to.  When there is no memory for that, what fits is written.
 */
void
m_copyback(struct mbuf *m0, int off, int len, c_caddr_t cp)
{
	struct mbuf *m;
	int count, total, grow;

	if (m0 == NULL)
		return;
	total = m_length(m0, &m);
	grow = off + len - total;
	if (grow > 0) {
		/* First behind the data of the last mbuf, then into new ones. */
		count = MIN(grow, M_TRAILINGSPACE(m));
		bzero(mtod(m, caddr_t) + m->m_len, count);
		m->m_len += count;
		total += count;
		grow -= count;
		while (grow > 0) {
			m->m_next = m_get2(MIN(grow, MJUMPAGESIZE), M_NOWAIT, m->m_type, 0);
			if (m->m_next == NULL)
				break;
			m = m->m_next;
			m->m_len = MIN(grow, M_SIZE(m));
			bzero(mtod(m, caddr_t), m->m_len);
			total += m->m_len;
			grow -= m->m_len;
		}
		if ((m0->m_flags & M_PKTHDR) != 0)
			m0->m_pkthdr.len = MAX(m0->m_pkthdr.len, total);
	}
	for (m = m0; m != NULL && len > 0; m = m->m_next) {
		if (off >= m->m_len) {
			off -= m->m_len;
			continue;
		}
		count = MIN(m->m_len - off, len);
		bcopy(cp, mtod(m, caddr_t) + off, count);
		cp += count;
		len -= count;
		off = 0;
	}
}

/* Add `len' bytes at the end: 1 if all of them found room. */
int
m_append(struct mbuf *m0, int len, c_caddr_t cp)
{
	int total;

	total = m_length(m0, NULL);
	m_copyback(m0, total, len, cp);
	return (m_length(m0, NULL) == total + len);
}

/*
 * Call `f' with each contiguous piece of the range; what it returns, if not 0, ends the walk
 * and is returned.
 */
int
m_apply(struct mbuf *m, int off, int len, int (*f)(void *, void *, u_int), void *arg)
{
	int count, error;

	KASSERT(off >= 0 && len >= 0, ("%s: offset %d, length %d", __func__, off, len));
	for (; len > 0; m = m->m_next) {
		KASSERT(m != NULL, ("%s: the chain is too short", __func__));
		if (off >= m->m_len) {
			off -= m->m_len;
			continue;
		}
		count = MIN(m->m_len - off, len);
		error = f(arg, mtod(m, caddr_t) + off, count);
		if (error != 0)
			return (error);
		len -= count;
		off = 0;
	}
	return (0);
}

/*
 * A packet from plain memory, its data starting `off' bytes into the first mbuf.
 */
struct mbuf *
m_devget(char *buf, int totlen, int off, struct ifnet *ifp, void (*copy)(char *, caddr_t, u_int))
{
	struct mbuf *m, *n;
	int count;

	if (off < 0 || off > MHLEN || totlen < 0)
		return (NULL);
	m = m_getm2(NULL, totlen + off, M_NOWAIT, MT_DATA, M_PKTHDR);
	if (m == NULL)
		return (NULL);
	m->m_pkthdr.rcvif = ifp;
	m->m_pkthdr.len = totlen;
	m->m_data += off;
	for (n = m; totlen > 0; n = n->m_next) {
		count = MIN(M_TRAILINGSPACE(n), totlen);
		if (copy != NULL)
			copy(buf, mtod(n, caddr_t), count);
		else
			bcopy(buf, mtod(n, caddr_t), count);
		n->m_len = count;
		buf += count;
		totlen -= count;
	}
	return (m);
}

/*
 * Pack a packet into as few mbufs as possible.  Returns the new chain, with the old one freed;
 * or NULL when there is no memory, with the old one unchanged.
 */
struct mbuf *
m_defrag(struct mbuf *m0, int how)
{
	struct mbuf *m, *n;
	int count, done, total;

	if ((m0->m_flags & M_PKTHDR) == 0)
		return (m0);
	total = m_fixhdr(m0);
	m = m_getm2(NULL, total, how, MT_DATA, M_PKTHDR);
	if (m == NULL)
		return (NULL);
	for (n = m, done = 0; done < total; n = n->m_next) {
		count = MIN(M_TRAILINGSPACE(n), total - done);
		m_copydata(m0, done, count, mtod(n, caddr_t));
		n->m_len = count;
		done += count;
	}
	m_move_pkthdr(m, m0);
	m_freem(m0);
	return (m);
}

static int
m_count(const struct mbuf *m)
{
	int count = 0;

	for (; m != NULL; m = m->m_next)
		count++;
	return (count);
}

/*
 * Make a chain at most `maxfrags' mbufs long with as little copying as that takes: first
 * small mbufs move in behind the data of those before them, then pairs of neighbours move to
 * a cluster.  Returns the chain, or NULL when that is not possible; the chain is then
 * complete, perhaps with fewer mbufs.
 */
struct mbuf *
m_collapse(struct mbuf *m0, int how, int maxfrags)
{
	struct mbuf *m, *n, *new;
	int frags;

	frags = m_count(m0);
	for (m = m0; frags > maxfrags && m->m_next != NULL;) {
		n = m->m_next;
		if (M_WRITABLE(m) && n->m_len <= M_TRAILINGSPACE(m)) {
			bcopy(mtod(n, caddr_t), mtod(m, caddr_t) + m->m_len, n->m_len);
			m->m_len += n->m_len;
			m->m_next = m_free(n);
			frags--;
		} else
			m = n;
	}
	/* The first mbuf stays: it holds the packet header. */
	for (m = m0; frags > maxfrags && m->m_next != NULL && m->m_next->m_next != NULL;) {
		n = m->m_next;
		if (n->m_len + n->m_next->m_len > MCLBYTES) {
			m = n;
			continue;
		}
		new = m_getcl(how, MT_DATA, 0);
		if (new == NULL)
			return (NULL);
		bcopy(mtod(n, caddr_t), mtod(new, caddr_t), n->m_len);
		bcopy(mtod(n->m_next, caddr_t), mtod(new, caddr_t) + n->m_len, n->m_next->m_len);
		new->m_len = n->m_len + n->m_next->m_len;
		new->m_next = m_free(m_free(n));
		m->m_next = new;
		frags--;
	}
	return (frags <= maxfrags ? m0 : NULL);
}

/*
 * Make every mbuf of the chain writable, copying those that are shared.  On failure the chain
 * is freed.
 */
struct mbuf *
m_unshare(struct mbuf *m0, int how)
{
	struct mbuf *copy, *m, **link;

	for (link = &m0; (m = *link) != NULL; link = &m->m_next) {
		if (M_WRITABLE(m))
			continue;
		copy = m_get3(m->m_len, how, m->m_type, m->m_flags & M_PKTHDR);
		if (copy == NULL) {
			m_freem(m0);
			return (NULL);
		}
		if ((m->m_flags & M_PKTHDR) != 0) {
			m_move_pkthdr(copy, m);
			copy->m_flags &= ~M_RDONLY;
		}
		bcopy(mtod(m, caddr_t), mtod(copy, caddr_t), m->m_len);
		copy->m_len = m->m_len;
		copy->m_nextpkt = m->m_nextpkt;
		copy->m_next = m_free(m);
		*link = copy;
		m = copy;
	}
	return (m0);
}

void
m_print(const struct mbuf *m, int maxlen)
{
	int left;

	left = maxlen < 0 ? INT_MAX : maxlen;
	for (; m != NULL; m = m->m_next) {
		printf("mbuf %p len %d flags %b: %*D\n", m, m->m_len, (int)m->m_flags,
		    M_FLAG_PRINTF, MIN(m->m_len, left), mtod(m, const u_char *), " ");
		left -= MIN(m->m_len, left);
	}
}
