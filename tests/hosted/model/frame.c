/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Frames, made and judged byte by byte: RFC 791, 768, 793, 8200, 1071, IEEE 802.1Q.
 */

#include <sys/param.h>
#include <sys/systm.h>

#include "frame.h"

static void
put16(u_char *p, u_int v)
{

	p[0] = v >> 8;
	p[1] = v;
}

static u_int
get16(const u_char *p)
{

	return (p[0] << 8 | p[1]);
}

static uint32_t
get32(const u_char *p)
{

	return ((uint32_t)get16(p) << 16 | get16(p + 2));
}

uint64_t
frame_add(uint64_t sum, const u_char *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		sum += i % 2 == 0 ? p[i] << 8 : p[i];
	return (sum);
}

uint16_t
frame_fold(uint64_t sum)
{

	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return (sum);
}

static u_int
ext_size(const struct frame *f)
{

	return (f->f_extsize != 0 ? f->f_extsize : 8);
}

static u_int
ip_len(const struct frame *f)
{

	return (f->f_ip == 4 ? 20 + f->f_ipopts : 40 + ext_size(f) * f->f_exts);
}

static u_int
l4_len(const struct frame *f)
{

	switch (f->f_proto) {
	case 6:
		return (20 + f->f_tcpopts);
	case 17:
		return (8);
	default:
		return (0);
	}
}

/* The sum of the pseudo header of a packet whose transport header and data have `len' bytes. */
static uint64_t
pseudo(const struct frame *f, const u_char *l3, u_int len)
{

	if (f->f_ip == 4)
		return (frame_add(len + f->f_proto, l3 + 12, 8));
	return (frame_add(len + f->f_proto, l3 + 8, 32));
}

static u_char *
make_ip(const struct frame *f, u_char *p, u_int len)
{
	u_int i;

	if (f->f_ip == 4) {
		p[0] = 0x40 | ip_len(f) / 4;
		put16(p + 2, ip_len(f) + len);
		put16(p + 4, 0xfffd);
		p[6] = 0x40;
		p[8] = 64;
		p[9] = f->f_proto;
		memcpy(p + 12, "\xc0\xa8\x01\x02\xc0\xa8\x63\xfe", 8);
		memset(p + 20, 1, f->f_ipopts);
		put16(p + 10, ~frame_fold(frame_add(0, p, ip_len(f))));
		return (p + ip_len(f));
	}
	p[0] = 0x60;
	put16(p + 4, ext_size(f) * f->f_exts + len);
	p[6] = f->f_exts > 0 ? 0 : f->f_proto;
	p[7] = 64;
	for (i = 0; i < 32; i++)
		p[8 + i] = 0xfd - 3 * i;
	p += 40;
	/* Hop by hop, then destination options, with padding (RFC 8200, 4.2). */
	for (i = 0; i < f->f_exts; i++, p += ext_size(f)) {
		p[0] = i + 1 == f->f_exts ? f->f_proto : 60;
		p[1] = ext_size(f) / 8 - 1;
		if (ext_size(f) == 8) {
			p[2] = 1;
			p[3] = 4;
		}
	}
	return (p);
}

size_t
frame_make(const struct frame *f, enum frame_sum sum, u_char *to, struct frame_at *at)
{
	struct frame_at where;
	u_int i, len = l4_len(f) + f->f_payload;
	u_char *p = to;
	size_t end;

	where.at_l3 = 14 + 4 * f->f_tags;
	where.at_l4 = where.at_l3 + ip_len(f);
	where.at_sum = where.at_l4 + (f->f_proto == 6 ? 16 : 6);
	where.at_data = where.at_l4 + l4_len(f);
	end = where.at_data + f->f_payload;
	memset(to, 0, where.at_data);
	memcpy(p, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02", 12);
	for (p += 12, i = 0; i < f->f_tags; i++, p += 4) {
		put16(p, i == 0 ? 0x8100 : 0x88a8);
		put16(p + 2, 100 + i);
	}
	put16(p, f->f_ip == 4 ? 0x0800 : 0x86dd);
	p = make_ip(f, p + 2, len);
	put16(p, 0x1234);
	put16(p + 2, 0x5678);
	if (f->f_proto == 6) {
		memcpy(p + 4, "\xff\xff\xf0\x00\x00\x00\x11\x11", 8);
		p[12] = (5 + f->f_tcpopts / 4) << 4;
		p[13] = f->f_flags;
		put16(p + 14, 0x2000);
		memset(p + 20, 1, f->f_tcpopts);
	} else if (f->f_proto == 17)
		put16(p + 4, len);
	for (i = 0; i < f->f_payload; i++)
		to[where.at_data + i] = i * 7 + (i >> 8);
	if (l4_len(f) > 0) {
		put16(to + where.at_sum, frame_fold(pseudo(f, to + where.at_l3, len)));
		if (sum == FRAME_DONE)
			put16(to + where.at_sum,
			    ~frame_fold(frame_add(0, to + where.at_l4, len)));
	}
	if (at != NULL)
		*at = where;
	return (end);
}

bool
frame_sum_ok(const struct frame *f, const u_char *frame, size_t len)
{
	u_int l3 = 14 + 4 * f->f_tags, l4 = l3 + ip_len(f);
	const u_char *sum = frame + l4 + (f->f_proto == 6 ? 16 : 6);

	/* Of UDP, zero means none. */
	return (get16(sum) != 0 &&
	    frame_fold(frame_add(pseudo(f, frame + l3, len - l4), frame + l4, len - l4)) == 0xffff);
}

bool
frame_is_partial(const struct frame *f, const u_char *frame, size_t len)
{
	u_int l3 = 14 + 4 * f->f_tags, l4 = l3 + ip_len(f);
	u_int sum = get16(frame + l4 + (f->f_proto == 6 ? 16 : 6));

	return (sum == frame_fold(pseudo(f, frame + l3, len - l4)) && len > l4);
}

bool
frame_segment_ok(const struct frame *f, const u_char *whole, const struct frame_at *at,
    const u_char *seg, size_t len, u_int index, u_int off, u_int size)
{
	bool last = off + size >= f->f_payload;
	u_int data = last ? f->f_payload - off : size, flags = f->f_flags;
	const u_char *l3 = seg + at->at_l3, *l4 = seg + at->at_l4;

	if (len != at->at_data + data || memcmp(seg, whole, at->at_l3) != 0 ||
	    memcmp(seg + at->at_data, whole + at->at_data + off, data) != 0)
		return (false);
	if (f->f_ip == 4 && (get16(l3 + 2) != len - at->at_l3 ||
	    get16(l3 + 4) != ((0xfffd + index) & 0xffff) ||
	    frame_fold(frame_add(0, l3, ip_len(f))) != 0xffff))
		return (false);
	if (f->f_ip == 6 && get16(l3 + 4) != len - at->at_l3 - 40)
		return (false);
	if (f->f_proto == 17)
		return (get16(l4 + 4) == len - at->at_l4);
	/* CWR in the first (0x80), FIN and PSH (0x09) in the last. */
	flags &= index == 0 ? ~0u : ~0x80u;
	flags &= last ? ~0u : ~0x09u;
	return (l4[13] == flags && get32(l4 + 4) == 0xfffff000 + off);
}
