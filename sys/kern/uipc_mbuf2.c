/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Packet tags (mbuf_tags(9)) and m_pulldown.
 *
 * A tag is a block of memory that travels with a packet, found by who wrote it (cookie) and
 * what it means (type).
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>

static MALLOC_DEFINE(M_PACKET_TAGS, MBUF_TAG_MEM_NAME, "packet-attached information");

void
m_tag_free_default(struct m_tag *t)
{
	free(t, M_PACKET_TAGS);
}

struct m_tag *
m_tag_alloc(uint32_t cookie, uint16_t type, int len, int wait)
{
	struct m_tag *t;

	if (len < 0)
		return (NULL);
	t = malloc(sizeof(*t) + len, M_PACKET_TAGS, wait);
	if (t == NULL)
		return (NULL);
	m_tag_setup(t, cookie, type, len);
	t->m_tag_free = m_tag_free_default;
	return (t);
}

void
m_tag_delete(struct mbuf *m, struct m_tag *t)
{
	m_tag_unlink(m, t);
	m_tag_free(t);
}

/* Delete the tag t and those after it, all of them when t is NULL. */
void
m_tag_delete_chain(struct mbuf *m, struct m_tag *t)
{
	struct m_tag *next;

	if (t == NULL)
		t = m_tag_first(m);
	for (; t != NULL; t = next) {
		next = m_tag_next(m, t);
		m_tag_delete(m, t);
	}
}

void
m_tag_delete_nonpersistent(struct mbuf *m)
{
	struct m_tag *t, *next;

	SLIST_FOREACH_SAFE(t, &m->m_pkthdr.tags, m_tag_link, next) {
		if ((t->m_tag_id & MTAG_PERSISTENT) == 0)
			m_tag_delete(m, t);
	}
}

/* The first tag of the kind after `start', or of all when that is NULL. */
struct m_tag *
m_tag_locate(struct mbuf *m, uint32_t cookie, uint16_t type, struct m_tag *start)
{
	struct m_tag *t;

	t = start == NULL ? m_tag_first(m) : m_tag_next(m, start);
	while (t != NULL && (t->m_tag_cookie != cookie || t->m_tag_id != type))
		t = m_tag_next(m, t);
	return (t);
}

struct m_tag *
m_tag_copy(struct m_tag *t, int how)
{
	struct m_tag *copy;

	copy = m_tag_alloc(t->m_tag_cookie, t->m_tag_id, t->m_tag_len, how);
	if (copy != NULL) {
		bcopy(t + 1, copy + 1, t->m_tag_len);
		copy->m_tag_free = t->m_tag_free;
	}
	return (copy);
}

/* Give `to' copies of the tags of `from' in the same order; 0 when there was no memory. */
int
m_tag_copy_chain(struct mbuf *to, const struct mbuf *from, int how)
{
	struct m_tag *copy, *last = NULL, *t;

	m_tag_delete_chain(to, NULL);
	SLIST_FOREACH(t, &from->m_pkthdr.tags, m_tag_link) {
		copy = m_tag_copy(t, how);
		if (copy == NULL) {
			m_tag_delete_chain(to, NULL);
			return (0);
		}
		if (last == NULL)
			SLIST_INSERT_HEAD(&to->m_pkthdr.tags, copy, m_tag_link);
		else
			SLIST_INSERT_AFTER(last, copy, m_tag_link);
		last = copy;
	}
	return (1);
}

/*
 * Make `len' bytes from offset `off' contiguous and writable, without moving what is before
 * them.  Returns the mbuf that holds them, with their offset in it in *offp; when offp is
 * NULL they start that mbuf. On failure the chain is freed and NULL returned.
 */
struct mbuf *
m_pulldown(struct mbuf *m, int off, int len, int *offp)
{
	struct mbuf *n, *tail;
	int at;

	n = m_getptr(m, off, &at);
	if (n == NULL || m_length(m, NULL) < off + len) {
		m_freem(m);
		return (NULL);
	}
	if (at + len <= n->m_len && M_WRITABLE(n) && (offp != NULL || at == 0)) {
		if (offp != NULL)
			*offp = at;
		return (n);
	}
	/*
	 * Cut the chain before the bytes, pull them together in a new mbuf, and join the two
	 * again.
	 */
	tail = m_split(m, off, M_NOWAIT);
	if (tail != NULL)
		tail = m_pullup(tail, len);
	if (tail == NULL) {
		m_freem(m);
		return (NULL);
	}
	if ((m->m_flags & M_PKTHDR) != 0) {
		m->m_pkthdr.len += tail->m_pkthdr.len;
		m_demote_pkthdr(tail);
	}
	m_last(m)->m_next = tail;
	if (offp != NULL)
		*offp = 0;
	return (tail);
}
