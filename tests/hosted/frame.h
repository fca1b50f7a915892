/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Frames for hosted tests, made and judged byte by byte, with nothing of the code under test.
 */

#ifndef _FRAME_H_
#define	_FRAME_H_

#define	FRAME_MAX	80000

struct frame {
	u_int	f_tags;		/* VLAN tags */
	u_int	f_ip;		/* 4 or 6 */
	u_int	f_ipopts;	/* bytes, a multiple of 4 */
	u_int	f_exts;		/* extension headers */
	u_int	f_extsize;	/* of so many bytes each, a multiple of 8; 0: 8 */
	u_int	f_proto;
	u_int	f_tcpopts;	/* bytes, a multiple of 4 */
	u_int	f_flags;	/* of TCP */
	u_int	f_payload;	/* bytes */
};

/* Where things are in it. */
struct frame_at {
	u_int	at_l3, at_l4;
	u_int	at_sum;		/* the transport header's checksum */
	u_int	at_data;
};

enum frame_sum {
	FRAME_PARTIAL,		/* the pseudo header's only */
	FRAME_DONE
};

/* Make a frame; returns its length.  `at' may be NULL. */
size_t	frame_make(const struct frame *f, enum frame_sum sum, u_char *to, struct frame_at *at);

/* The ones' complement sum of big-endian words, and its folding. */
uint64_t frame_add(uint64_t sum, const u_char *p, size_t len);
uint16_t frame_fold(uint64_t sum);

/* Is the transport checksum of a frame of this kind right?  Or that of its pseudo header only? */
bool	frame_sum_ok(const struct frame *f, const u_char *frame, size_t len);
bool	frame_is_partial(const struct frame *f, const u_char *frame, size_t len);

/*
 * Is this the segment number `index' of the big frame `whole', with the payload at `off'? Checksums
 * of transport headers apart.
 */
bool	frame_segment_ok(const struct frame *f, const u_char *whole, const struct frame_at *at,
	    const u_char *seg, size_t len, u_int index, u_int off, u_int size);

#endif /* !_FRAME_H_ */
