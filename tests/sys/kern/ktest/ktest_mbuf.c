/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * mbuf(9): random operations on a packet, and the same on a flat buffer.
 *
 * After each operation the packet holds the bytes of the buffer, its header the right length, and
 * its mbufs pass m_sanity().  At the end all mbufs and clusters are back in their zones.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/mbuf.h>

#include <vm/uma.h>

#include "ktest.h"

#define	MODEL	16384
#define	COOKIE	0x6b746573

struct model {
	struct mbuf	*m;
	u_int		len;
	uint32_t	seed;
	const char	*op;		/* the last one, for messages */
	char		bytes[MODEL];
	char		copy[MODEL];
};

static u_int
model_random(struct model *md, u_int n)
{
	return (ktest_random(&md->seed) % n);
}

/* The packet m holds len bytes: those at bytes. */
static bool
packet_is(struct model *md, struct mbuf *m, const char *bytes, u_int len)
{
	bool ok = true;

	ok &= KT_EQ(m_length(m, NULL), len);
	if ((m->m_flags & M_PKTHDR) != 0)
		ok &= KT_EQ(m->m_pkthdr.len, len);
	ok &= KT_EQ(m_sanity(m, 0), 1);
	if (ok && len != 0) {
		m_copydata(m, 0, len, md->copy);
		ok = KT_EQ(memcmp(md->copy, bytes, len), 0);
	}
	if (!ok)
		printf("ktest: the last operation was %s\n", md->op);
	return (ok);
}

/* A packet of random mbufs; its bytes are appended to the model's. */
static struct mbuf *
packet_make(struct model *md, u_int maxlen)
{
	static const int sizes[] = { 0, MCLBYTES, MJUMPAGESIZE, MJUM9BYTES };
	struct mbuf *first = NULL, **tail = &first, *m;
	u_int n, room, mbufs = 1 + model_random(md, 6), total = 0;
	int size;

	while (mbufs-- > 0) {
		size = sizes[model_random(md, nitems(sizes))];
		if (first == NULL)
			m = size == 0 ? m_gethdr(M_WAITOK, MT_DATA) :
			    m_getjcl(M_WAITOK, MT_DATA, M_PKTHDR, size);
		else
			m = size == 0 ? m_get(M_WAITOK, MT_DATA) :
			    m_getjcl(M_WAITOK, MT_DATA, 0, size);
		room = M_SIZE(m);
		m->m_data += model_random(md, room);
		n = model_random(md, 3) == 0 ? M_TRAILINGSPACE(m) : model_random(md, 200);
		n = MIN(n, MIN((u_int)M_TRAILINGSPACE(m), maxlen - total));
		m->m_len = n;
		ktest_fill(mtod(m, void *), n, md->seed);
		memcpy(md->bytes + md->len + total, mtod(m, void *), n);
		total += n;
		*tail = m;
		tail = &m->m_next;
	}
	first->m_pkthdr.len = total;
	first->m_pkthdr.csum_flags = CSUM_TCP;
	md->len += total;
	return (first);
}

static void
op_pullup(struct model *md)
{
	u_int len = model_random(md, MIN(md->len, MHLEN) + 1);

	md->op = "m_pullup";
	md->m = m_pullup(md->m, len);
	if (KT_TRUE(md->m != NULL))
		KT_TRUE(md->m->m_len >= len);
}

static void
op_pulldown(struct model *md)
{
	u_int off, len;
	struct mbuf *n;
	int at;

	if (md->len == 0)
		return;
	md->op = "m_pulldown";
	off = model_random(md, md->len);
	len = 1 + model_random(md, MIN(md->len - off, MHLEN));
	n = m_pulldown(md->m, off, len, &at);
	if (!KT_TRUE(n != NULL)) {
		md->m = NULL;
		return;
	}
	KT_TRUE(at + len <= n->m_len);
	KT_EQ(memcmp(mtod(n, char *) + at, md->bytes + off, len), 0);
}

/* Cut in two, look at both, join again. */
static void
op_split(struct model *md)
{
	u_int at = model_random(md, md->len + 1);
	struct mbuf *n;

	md->op = "m_split";
	n = m_split(md->m, at, M_WAITOK);
	if (!KT_TRUE(n != NULL))
		return;
	packet_is(md, md->m, md->bytes, at);
	packet_is(md, n, md->bytes + at, md->len - at);
	md->op = "m_catpkt";
	m_catpkt(md->m, n);
}

/* Copy a part; write into the original if that may be; the copy is as before. */
static void
op_copym(struct model *md)
{
	u_int off, len;
	struct mbuf *n;

	if (md->len == 0)
		return;
	md->op = "m_copym";
	off = model_random(md, 2) * model_random(md, md->len);
	len = 1 + model_random(md, md->len - off);
	n = m_copym(md->m, off, len, M_WAITOK);
	packet_is(md, n, md->bytes + off, len);
	if (off == 0)
		KT_EQ(n->m_pkthdr.csum_flags, CSUM_TCP);
	if (model_random(md, 2) == 0) {
		/* The original goes first: what it shares stays for the copy. */
		m_freem(md->m);
		packet_is(md, n, md->bytes + off, len);
		if (off != 0) {
			md->m = m_gethdr(M_WAITOK, MT_DATA);
			md->m->m_pkthdr.csum_flags = CSUM_TCP;
			md->m->m_next = n;
			md->m->m_pkthdr.len = len;
			memmove(md->bytes, md->bytes + off, len);
		} else
			md->m = n;
		md->len = len;
	} else
		m_freem(n);
}

static void
op_adj(struct model *md)
{
	u_int cut = model_random(md, md->len / 4 + 2);

	md->op = "m_adj";
	if (model_random(md, 2) == 0) {
		m_adj(md->m, cut);
		cut = MIN(cut, md->len);
		memmove(md->bytes, md->bytes + cut, md->len - cut);
	} else {
		m_adj(md->m, -(int)cut);
		cut = MIN(cut, md->len);
	}
	md->len -= cut;
}

static void
op_cat(struct model *md)
{
	struct mbuf *n;

	md->op = "m_catpkt of a new packet";
	n = packet_make(md, MIN(6000, MODEL - md->len));
	m_catpkt(md->m, n);
}

static void
op_prepend(struct model *md)
{
	u_int len = model_random(md, MHLEN);

	if (md->len + len > MODEL)
		return;
	md->op = "M_PREPEND";
	M_PREPEND(md->m, len, M_WAITOK);
	if (!KT_TRUE(md->m != NULL && md->m->m_len >= len))
		return;
	memmove(md->bytes + len, md->bytes, md->len);
	memset(mtod(md->m, void *), 0x5a, len);
	memset(md->bytes, 0x5a, len);
	md->len += len;
}

static void
op_defrag(struct model *md)
{
	struct mbuf *n;

	md->op = "m_defrag";
	n = m_defrag(md->m, M_NOWAIT);
	if (!KT_TRUE(n != NULL))
		return;
	md->m = n;
	KT_EQ(n->m_pkthdr.csum_flags, CSUM_TCP);
	if (md->len <= MCLBYTES && md->len > 0)
		KT_TRUE(n->m_next == NULL);
}

static void
op_collapse(struct model *md)
{
	u_int frags = 1 + model_random(md, 10), count = 0;
	struct mbuf *n;

	md->op = "m_collapse";
	n = m_collapse(md->m, M_NOWAIT, frags);
	if (n == NULL)
		return;
	md->m = n;
	for (; n != NULL; n = n->m_next)
		count++;
	KT_TRUE(count <= frags);
}

static void
op_dup(struct model *md)
{
	struct mbuf *n;

	md->op = "m_dup";
	n = m_dup(md->m, M_WAITOK);
	if (!KT_TRUE(n != NULL))
		return;
	m_freem(md->m);
	md->m = n;
	for (; n != NULL; n = n->m_next)
		KT_TRUE(M_WRITABLE(n));
}

static void
op_unshare(struct model *md)
{
	struct mbuf *copy, *n;

	md->op = "m_unshare";
	copy = m_copypacket(md->m, M_WAITOK);
	md->m = m_unshare(md->m, M_WAITOK);
	if (!KT_TRUE(md->m != NULL))
		return;
	packet_is(md, copy, md->bytes, md->len);
	for (n = md->m; n != NULL; n = n->m_next)
		KT_TRUE(M_WRITABLE(n));
	m_freem(copy);
}

static void
op_copyback(struct model *md)
{
	u_int off, len;

	md->op = "m_copyback";
	/* Only what is not shared may be written. */
	md->m = m_unshare(md->m, M_WAITOK);
	off = model_random(md, md->len + 100);
	len = model_random(md, 3000);
	if (off + len > MODEL)
		return;
	ktest_fill(md->copy, len, md->seed);
	m_copyback(md->m, off, len, md->copy);
	if (off > md->len)
		memset(md->bytes + md->len, 0, off - md->len);
	memcpy(md->bytes + off, md->copy, len);
	/* An empty write behind the end may or may not make the packet longer; it has to agree. */
	md->len = len == 0 ? m_length(md->m, NULL) : MAX(md->len, off + len);
}

static void
op_append(struct model *md)
{
	u_int len = model_random(md, 1000);

	if (md->len + len > MODEL)
		return;
	md->op = "m_append";
	md->m = m_unshare(md->m, M_WAITOK);
	ktest_fill(md->bytes + md->len, len, md->seed);
	KT_EQ(m_append(md->m, len, md->bytes + md->len), 1);
	md->len += len;
}

static int
apply_compare(void *arg, void *data, u_int len)
{
	const char **at = arg;
	int differs = memcmp(*at, data, len) != 0;

	*at += len;
	return (differs);
}

static void
op_look(struct model *md)
{
	u_int off = model_random(md, md->len + 1), len = model_random(md, md->len - off + 1);
	const char *at = md->bytes + off;
	struct mbuf *n;
	int in;

	md->op = "m_apply, m_getptr";
	KT_EQ(m_apply(md->m, off, len, apply_compare, &at), 0);
	KT_TRUE(at == md->bytes + off + len);
	n = m_getptr(md->m, off, &in);
	if (KT_TRUE(n != NULL) && off < md->len)
		KT_EQ(mtod(n, char *)[in], md->bytes[off]);
}

static void (*const mbuf_ops[])(struct model *) = {
	op_pullup, op_pulldown, op_split, op_copym, op_adj, op_cat, op_prepend, op_defrag,
	op_collapse, op_dup, op_unshare, op_copyback, op_append, op_look,
};

static void
mbuf_worker(void *arg, int me)
{
	struct model *md;
	u_int i;

	md = malloc(sizeof(*md), M_KTEST, M_WAITOK | M_ZERO);
	md->seed = 2024 + me;
	md->op = "the first packet";
	md->m = packet_make(md, 6000);
	for (i = 0; i < 3000u * ktest_rounds; i++) {
		if (!packet_is(md, md->m, md->bytes, md->len))
			break;
		mbuf_ops[model_random(md, nitems(mbuf_ops))](md);
		if (md->m == NULL)
			break;
		/* Long packets are cut, so that the others do not outgrow the buffer. */
		if (md->len > MODEL / 2) {
			m_adj(md->m, -(int)(md->len - 3000));
			md->len = 3000;
		}
	}
	m_freem(md->m);
	free(md, M_KTEST);
}

static uma_zone_t *const mbuf_zones[] = {
	&zone_mbuf, &zone_clust, &zone_jumbop, &zone_jumbo9,
};

static void
mbuf_against_model(void)
{
	int before[nitems(mbuf_zones)];
	u_int i;

	for (i = 0; i < nitems(mbuf_zones); i++)
		before[i] = uma_zone_get_cur(*mbuf_zones[i]);
	ktest_run(3, true, mbuf_worker, NULL);
	/* Packets with a cluster are kept together in a zone of their own (zone_pack). */
	uma_zone_reclaim(zone_pack, UMA_RECLAIM_DRAIN_CPU);
	for (i = 0; i < nitems(mbuf_zones); i++)
		KT_EQ(uma_zone_get_cur(*mbuf_zones[i]), before[i]);
}

static volatile u_int ext_freed;

static void
ext_free(struct mbuf *m)
{
	KT_TRUE(m->m_ext.ext_arg1 == &ext_freed);
	KT_TRUE(ktest_filled(m->m_ext.ext_buf, m->m_ext.ext_size, 9));
	free(m->m_ext.ext_buf, M_KTEST);
	ext_freed++;
}

/* An external buffer is freed once, with the last mbuf that shares it. */
static void
mbuf_external_buffers(void)
{
	struct mbuf *m, *n, *k;
	char *buf;

	ext_freed = 0;
	buf = malloc(3000, M_KTEST, M_WAITOK);
	ktest_fill(buf, 3000, 9);
	m = m_gethdr(M_WAITOK, MT_DATA);
	m_extadd(m, buf, 3000, ext_free, __DEVOLATILE(void *, &ext_freed), NULL, 0, EXT_MOD_TYPE);
	m->m_len = m->m_pkthdr.len = 3000;
	KT_TRUE(M_WRITABLE(m));
	n = m_copym(m, 100, 500, M_WAITOK);
	KT_TRUE(!M_WRITABLE(m) && !M_WRITABLE(n));
	KT_TRUE(mtod(n, char *) == buf + 100);
	k = m_copym(n, 0, M_COPYALL, M_WAITOK);
	m_freem(m);
	KT_EQ(ext_freed, 0);
	m_freem(n);
	KT_EQ(ext_freed, 0);
	KT_TRUE(M_WRITABLE(k));
	m_freem(k);
	KT_EQ(ext_freed, 1);
}

static void
mbuf_tags(void)
{
	struct mbuf *m, *n;
	struct m_tag *t;
	int i;

	m = m_getcl(M_WAITOK, MT_DATA, M_PKTHDR);
	for (i = 0; i < 3; i++) {
		t = m_tag_alloc(COOKIE, i, sizeof(int), M_WAITOK);
		*(int *)(t + 1) = 100 + i;
		m_tag_prepend(m, t);
	}
	KT_TRUE(m_tag_locate(m, COOKIE, 3, NULL) == NULL);
	m->m_len = m->m_pkthdr.len = 10;
	n = m_dup(m, M_WAITOK);
	m_tag_delete(m, m_tag_locate(m, COOKIE, 1, NULL));
	KT_TRUE(m_tag_locate(m, COOKIE, 1, NULL) == NULL);
	KT_TRUE(m_tag_locate(m, COOKIE, 0, NULL) != NULL);
	m_freem(m);
	for (i = 0; i < 3; i++) {
		t = m_tag_locate(n, COOKIE, i, NULL);
		if (KT_TRUE(t != NULL))
			KT_EQ(*(int *)(t + 1), 100 + i);
	}
	m_freem(n);
}

const struct ktest_case ktest_mbuf_cases[] = {
	{ "mbuf.against_model", mbuf_against_model },
	{ "mbuf.external_buffers", mbuf_external_buffers },
	{ "mbuf.tags", mbuf_tags },
	{ NULL, NULL }
};
