/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * TCP's selective acknowledgements (RFC 2018): which segments behind a lost one have arrived.
 *
 * As receiver we report the contents of the queue of out-of-order segments, the range that grew
 * last first, in ACKs without data.
 *
 * As sender we keep what the peer reported as a sorted array of ranges, t_sacked.  What lies between
 * them, a hole, is lost when enough behind it has arrived, and is sent again while there is room
 * for it on the way (RFC 6675).  t_highrxt is how far that has come.
 *
 *	snd_una     lost      snd_nxt, snd_max
 *	   |........######....####........|		# arrived
 *	   hole         hole
 *
 * What the peer reported is a hint, which it may revoke: data stays in t_snd until snd_una has
 * passed it, and a time-out forgets all of it (RFC 2018, 8).
 *
 * Gaps: duplicates that the peer reports (RFC 2883) are ignored; a retransmission that is lost
 * is only found by the timer.
 */

#include <netinet/inet_stack_tree.h>
#include <netinet/inet_stat_tree.h>
#include <netinet/tcp_conn_tree.h>

#define	SACK_SEGMENTS	2	/* arrived behind a hole: more than this make it lost */
#define	SACK_LISTED	16	/* ranges looked at for a segment's options */

/* ---- The receiver ------------------------------------------------------------------------ */

/* The ranges that are queued, in order; how many. */
static u_int
sack_ranges(const struct tcp_conn *t, struct tcp_sack *r, u_int most)
{
	const struct tcp_oos *o;
	u_int n = 0;

	TAILQ_FOREACH(o, &t->t_oos, o_link) {
		if (n > 0 && SEQ_LEQ(o->o_seq, r[n - 1].sk_end)) {
			r[n - 1].sk_end = SEQ_MAX(r[n - 1].sk_end, o->o_seq + o->o_len);
			continue;
		}
		if (n == most)
			break;
		r[n].sk_start = o->o_seq;
		r[n++].sk_end = o->o_seq + o->o_len;
	}
	return (n);
}

static uint8_t *
sack_put(uint8_t *p, const struct tcp_sack *r)
{
	uint32_t edges[2] = { htonl(r->sk_start), htonl(r->sk_end) };

	memcpy(p, edges, sizeof(edges));
	return (p + sizeof(edges));
}

/*
 * Write the option that says what is queued, in at most `room' bytes; how many it took.
 */
u_int
tcpc_sack_options(const struct tcp_conn *t, uint8_t *p, u_int room)
{
	u_int fit = (room - 2 - TCPOLEN_SACKHDR) / TCPOLEN_SACK, i, last, n;
	struct tcp_sack r[SACK_LISTED];
	uint8_t *start = p, *len;

	n = sack_ranges(t, r, nitems(r));
	if (n == 0 || fit == 0)
		return (0);
	for (last = 0; last < n - 1 && SEQ_LEQ(r[last].sk_end, t->t_ooslast); last++)
		;
	*p++ = TCPOPT_NOP;
	*p++ = TCPOPT_NOP;
	*p++ = TCPOPT_SACK;
	len = p++;
	p = sack_put(p, &r[last]);
	for (i = 0, fit--; i < n && fit > 0; i++) {
		if (i != last) {
			p = sack_put(p, &r[i]);
			fit--;
		}
	}
	*len = p - start - 2;
	INSTAT_INC(tcp.tcps_sack_send_blocks);
	return (p - start);
}

/* ---- The sender -------------------------------------------------------------------------- */

void
tcpc_sack_forget(struct tcp_conn *t)
{
	t->t_nsacked = 0;
	t->t_highrxt = t->snd_una;
}

/* Add a range, which lies between snd_una and snd_max; true if any of it is new. */
static bool
sack_add(struct tcp_conn *t, struct tcp_sack new)
{
	struct tcp_sack *r = t->t_sacked;
	u_int first, last;

	for (first = 0; first < t->t_nsacked && SEQ_LT(r[first].sk_end, new.sk_start); first++)
		;
	if (first < t->t_nsacked && SEQ_LEQ(r[first].sk_start, new.sk_start) &&
	    SEQ_GEQ(r[first].sk_end, new.sk_end))
		return (false);
	/* Those from first up to last are part of it, or touch it. */
	for (last = first; last < t->t_nsacked && SEQ_LEQ(r[last].sk_start, new.sk_end); last++) {
		new.sk_start = SEQ_MIN(new.sk_start, r[last].sk_start);
		new.sk_end = SEQ_MAX(new.sk_end, r[last].sk_end);
	}
	if (last == first && t->t_nsacked == TCP_MAXSACKED) {
		INSTAT_INC(tcp.tcps_sack_sboverflow);
		return (false);
	}
	memmove(&r[first + 1], &r[last], (t->t_nsacked - last) * sizeof(*r));
	t->t_nsacked -= last - first;
	t->t_nsacked++;
	r[first] = new;
	return (true);
}

/* Forget what snd_una has passed. */
static void
sack_prune(struct tcp_conn *t)
{
	u_int n;

	for (n = 0; n < t->t_nsacked && SEQ_LEQ(t->t_sacked[n].sk_end, t->snd_una); n++)
		;
	t->t_nsacked -= n;
	memmove(t->t_sacked, t->t_sacked + n, t->t_nsacked * sizeof(t->t_sacked[0]));
	if (SEQ_LT(t->t_highrxt, t->snd_una))
		t->t_highrxt = t->snd_una;
}

/*
 * Take over what a segment says, when its acknowledgement is; true if there is news.
 */
bool
tcpc_sack_input(struct tcp_conn *t, const struct tcp_segment *s)
{
	const struct tcp_sack *r;
	bool news = false;
	u_int i;

	sack_prune(t);
	if (!t->t_sack)
		return (false);
	for (i = 0; i < s->s_nsack; i++) {
		r = &s->s_sack[i];
		INSTAT_INC(tcp.tcps_sack_rcv_blocks);
		if (SEQ_LT(r->sk_start, r->sk_end) && SEQ_GT(r->sk_start, t->snd_una) &&
		    SEQ_LEQ(r->sk_end, t->snd_max) && sack_add(t, *r))
			news = true;
	}
	return (news);
}

/* Bytes below `seq' that have arrived. */
uint32_t
tcpc_sack_below(const struct tcp_conn *t, tcp_seq seq)
{
	uint32_t sum = 0;
	u_int i;

	for (i = 0; i < t->t_nsacked && SEQ_LT(t->t_sacked[i].sk_start, seq); i++)
		sum += SEQ_MIN(t->t_sacked[i].sk_end, seq) - t->t_sacked[i].sk_start;
	return (sum);
}

/* Has enough behind snd_una arrived to say that what is there is lost (RFC 6675, 5)? */
bool
tcpc_sack_loss(const struct tcp_conn *t)
{
	return (t->t_nsacked > SACK_SEGMENTS ||
	    tcpc_sack_below(t, t->snd_max) > SACK_SEGMENTS * t->t_maxseg);
}

/* The same of the hole before range i; while a loss is repaired, the first hole always is one. */
static bool
sack_lost(const struct tcp_conn *t, u_int i)
{
	return (i == 0 || t->t_nsacked - i > SACK_SEGMENTS || tcpc_sack_below(t, t->snd_max) -
	    tcpc_sack_below(t, t->t_sacked[i].sk_start) > SACK_SEGMENTS * t->t_maxseg);
}

/* Bytes that are believed to be on the way (RFC 6675, 4). */
uint32_t
tcpc_sack_pipe(const struct tcp_conn *t)
{
	tcp_seq hole = t->snd_una, end;
	uint32_t pipe = 0;
	u_int i;

	for (i = 0; i < t->t_nsacked; i++) {
		end = t->t_sacked[i].sk_start;
		if (!sack_lost(t, i))
			pipe += end - hole;
		if (SEQ_GT(t->t_highrxt, hole))
			pipe += SEQ_MIN(t->t_highrxt, end) - hole;
		hole = t->t_sacked[i].sk_end;
	}
	return (pipe + (t->snd_max - hole));
}

/*
 * What is lost and was not yet sent again: its start and length; false if there is nothing.
 */
bool
tcpc_sack_hole(const struct tcp_conn *t, tcp_seq *seq, u_int *len)
{
	tcp_seq hole = t->snd_una, from;
	u_int i;

	for (i = 0; i < t->t_nsacked; i++) {
		from = SEQ_MAX(hole, t->t_highrxt);
		if (SEQ_LT(from, t->t_sacked[i].sk_start) && sack_lost(t, i)) {
			*seq = from;
			*len = t->t_sacked[i].sk_start - from;
			return (true);
		}
		hole = t->t_sacked[i].sk_end;
	}
	/* Duplicates reported the loss, and nothing of what arrived. */
	if (t->t_nsacked == 0 && t->t_highrxt == t->snd_una && t->snd_una != t->snd_max) {
		*seq = t->snd_una;
		*len = MIN(t->snd_max - t->snd_una, t->t_maxseg);
		return (true);
	}
	return (false);
}

/*
 * Where to go on to send from `seq': behind what has arrived.  *len is how much there is up to the
 * next that has.
 */
tcp_seq
tcpc_sack_skip(const struct tcp_conn *t, tcp_seq seq, u_int *len)
{
	u_int i;

	*len = UINT_MAX;
	for (i = 0; i < t->t_nsacked; i++) {
		if (SEQ_LT(seq, t->t_sacked[i].sk_start)) {
			*len = t->t_sacked[i].sk_start - seq;
			break;
		}
		seq = SEQ_MAX(seq, t->t_sacked[i].sk_end);
	}
	return (seq);
}
