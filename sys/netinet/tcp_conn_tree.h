/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * TCP (RFC 9293) of the tree kernel: connections for code in the kernel.
 *
 *	tcp_usr.c	what users call: connect, listen, accept, send, receive, close
 *	tcp_subr.c	the table of connections, their birth and end, resets, ICMP errors
 *	tcp_input.c	segments in: the state machine
 *	tcp_ack.c	acknowledgements in: RTT, congestion control, what is finished with
 *	tcp_sack.c	what of the data behind a lost segment has arrived
 *	tcp_reass.c	data in: in order to the reader, out of order to a queue
 *	tcp_output.c	segments out
 *	tcp_timer.c	retransmission, persist, delayed ACK, time-wait
 *
 * Locking.  Each connection has a mutex, t_mtx, that protects all of it but its places in the
 * lists; tcp_mtx protects the table.  Order: a connection's mutex, then its listener's, then
 * tcp_mtx; the holder of a listener's may take that of a child that it has just made and that is in
 * no list yet.  Segments are sent with the connection's mutex held.
 *
 * Life.  References: one of the table while the connection is in it, one of the user until close,
 * one of whoever works on it.  A connection without references is freed by the second's timer,
 * which can wait for the callout.
 *
 * Gaps: ECN, urgent data, keepalive, SYN cookies.
 *
 * Not FreeBSD's: a connection is a struct tcpcb there, and a socket's; this TCP is the tree
 * kernel's own.
 */

#ifndef _NETINET_TCP_CONN_TREE_H_
#define	_NETINET_TCP_CONN_TREE_H_

#include <sys/callout.h>
#include <netinet/tcp.h>
#include <netinet/tcp_fsm.h>
#include <netinet/tcp_seq.h>

#define	TCP_MAXCONNS	1024
#define	TCP_SNDBUF	(1024 * 1024)
#define	TCP_SNDLOW	(TCP_SNDBUF / 3 * 2)	/* who waits for room is woken at */
#define	TCP_RCVBUF	(512 * 1024)
#define	TCP_RCVSCALE	4		/* 65535 << 4 holds TCP_RCVBUF */
#define	TCP_REASS_MAX	512		/* out-of-order segments of a connection */
#define	TCP_INITWND	10		/* segments; RFC 6928 */
#define	TCP_RTO_MIN	(SBT_1S / 5)
#define	TCP_RTO_MAX	(60 * SBT_1S)
#define	TCP_RTO_INIT	SBT_1S		/* RFC 6298, 2.1 */
#define	TCPC_DELACK	(40 * SBT_1MS)
#define	TCP_MSL2	(30 * SBT_1S)	/* twice the segment lifetime */
#define	TCP_FINWAIT2	(60 * SBT_1S)
#define	TCP_MAXREXMT	12
#define	TCP_MAXSYNREXMT	5
#define	TCP_MAXSACKED	64		/* ranges that the peer has and we remember */
#define	TCP_MINMSS	216		/* less is a mistake or an attack */

enum tcp_timer {
	TCPT_RETRANSMIT, TCPT_PERSIST, TCPT_DELACK, TCPT_2MSL, TCPT_NTIMERS
};

/* A chain of data with its end and length known. */
struct tcp_buf {
	struct mbuf	*b_head;
	struct mbuf	*b_tail;
	u_int		b_len;
};

/* From the first to behind the last. */
struct tcp_sack {
	tcp_seq		sk_start;
	tcp_seq		sk_end;
};

struct tcp_oos {
	TAILQ_ENTRY(tcp_oos) o_link;
	tcp_seq		o_seq;
	u_int		o_len;
	bool		o_fin;
	struct mbuf	*o_m;
};

struct tcp_conn {
	LIST_ENTRY(tcp_conn) t_link;
	TAILQ_ENTRY(tcp_conn) t_acceptlink;
	STAILQ_ENTRY(tcp_conn) t_deadlink;
	struct mtx	t_mtx;
	volatile u_int	t_refs;
	bool		t_intable;	/* tcp_mtx */
	int		t_state;	/* TCPS_* */
	int		t_error;	/* why it ended */
	bool		t_detached;	/* closed by its user */
	bool		t_closing;	/* a FIN is to follow the data */
	struct in6_addr	t_laddr;
	struct in6_addr	t_faddr;
	uint16_t	t_lport;	/* host order */
	uint16_t	t_fport;
	u_int		t_ifindex;	/* of a link-local peer; 0: by the routing table */

	/* A listener. */
	TAILQ_HEAD(, tcp_conn) t_acceptq;
	u_int		t_queued;	/* in t_acceptq or on the way there */
	u_int		t_backlog;
	struct tcp_conn	*t_parent;	/* a child's listener, until it is accepted; referenced */

	/* Sending (RFC 9293, 3.3.1). */
	struct tcp_buf	t_snd;		/* from snd_una on */
	tcp_seq		iss;
	tcp_seq		snd_una;
	tcp_seq		snd_nxt;
	tcp_seq		snd_max;
	tcp_seq		snd_wl1;
	tcp_seq		snd_wl2;
	uint32_t	snd_wnd;
	uint32_t	max_sndwnd;
	uint8_t		snd_scale;
	bool		t_sentfin;	/* snd_max counts the FIN */
	u_int		t_maxseg;	/* payload of a full segment */
	u_int		t_peermss;
	u_int		t_ourmss;	/* what our link takes; advertised in the SYN */
	u_int		t_tsomax;	/* 0: no TSO; else the most payload of one */
	struct mbuf	*t_sndm;	/* where in t_snd the last segment ended ... */
	u_int		t_sndmoff;	/* ... at this offset of the mbuf's first byte in t_snd */

	/* Congestion (RFC 5681, RFC 6582). */
	uint32_t	snd_cwnd;
	uint32_t	snd_ssthresh;
	uint32_t	t_cwndacked;	/* bytes acknowledged in this window */
	tcp_seq		snd_recover;
	u_int		t_dupacks;
	bool		t_recovery;

	/* Selective acknowledgements (RFC 6675). */
	struct tcp_sack	t_sacked[TCP_MAXSACKED];	/* sorted; between snd_una and snd_max */
	u_int		t_nsacked;
	tcp_seq		t_highrxt;	/* behind what this recovery has sent again */

	/* Round trip time (RFC 6298). */
	sbintime_t	t_srtt;		/* 0: none yet */
	sbintime_t	t_rttvar;
	sbintime_t	t_rto;
	sbintime_t	t_rttstart;	/* without timestamps: when t_rttseq was sent, or 0 */
	tcp_seq		t_rttseq;
	u_int		t_rexmt;	/* retransmissions in a row */

	/* Receiving. */
	struct tcp_buf	t_rcv;		/* what the reader has not taken */
	TAILQ_HEAD(, tcp_oos) t_oos;
	u_int		t_oosbytes;
	u_int		t_ooscount;
	tcp_seq		t_ooslast;	/* a byte of the segment that was queued last */
	tcp_seq		irs;
	tcp_seq		rcv_nxt;
	tcp_seq		rcv_adv;	/* edge of the window that we advertised */
	uint8_t		rcv_scale;
	bool		t_rcvfin;	/* the peer's FIN is counted in rcv_nxt */
	bool		t_acknow;
	bool		t_delack;

	/* Options in force. */
	bool		t_wscale;
	bool		t_ts;
	bool		t_sack;
	uint32_t	ts_recent;
	time_t		ts_age;
	uint32_t	t_tsoffset;
	tcp_seq		last_ack_sent;

	struct callout	t_callout;
	sbintime_t	t_timer[TCPT_NTIMERS];	/* sbinuptime() when due; 0: off */
	sbintime_t	t_armed;		/* what the callout is set to; 0: not */
};

/* A received segment, its header in host order; the mbuf holds the data only. */
struct tcp_segment {
	tcp_seq		s_seq;
	tcp_seq		s_ack;
	uint32_t	s_wnd;		/* not yet scaled */
	u_int		s_flags;	/* TH_* */
	u_int		s_len;		/* of the data */
	struct mbuf	*s_m;
	bool		s_ts;
	uint32_t	s_tsval;
	uint32_t	s_tsecr;
	u_int		s_mss;		/* 0: not there */
	int		s_wscale;	/* -1: not there */
	bool		s_sackok;
	u_int		s_nsack;
	struct tcp_sack	s_sack[TCP_MAX_SACK];
};

/* tcp_subr.c */
struct tcp_conn *tcpc_alloc(void);
void	tcpc_ref(struct tcp_conn *t);
void	tcpc_rele(struct tcp_conn *t);
int	tcpc_insert(struct tcp_conn *t);
void	tcpc_drop(struct tcp_conn *t, int error);
void	tcpc_leave_parent(struct tcp_conn *t);
int	tcpc_route(struct tcp_conn *t);
void	tcpc_set_mss(struct tcp_conn *t);
void	tcpc_reset_reply(const struct inet_pkt *p, const struct tcp_segment *s, uint16_t sport,
	    uint16_t dport);
void	tcpc_send_reset(struct tcp_conn *t);
void	tcpc_reap(void);
bool	tcpc_nth(u_int n, struct tcp_conn *out);

/* tcp_input.c, tcp_ack.c, tcp_reass.c */
void	tcpc_segment_input(struct tcp_conn *t, struct tcp_segment *s, const struct inet_pkt *p,
	    uint16_t sport, uint16_t dport);
void	tcpc_enter_timewait(struct tcp_conn *t);
void	tcpc_start(struct tcp_conn *t);
void	tcpc_established(struct tcp_conn *t);
bool	tcpc_ack_input(struct tcp_conn *t, struct tcp_segment *s);
void	tcpc_cwnd_init(struct tcp_conn *t);
void	tcpc_rto_backoff(struct tcp_conn *t);
void	tcpc_rtt_sample(struct tcp_conn *t, sbintime_t rtt);
uint32_t tcpc_ts_now(const struct tcp_conn *t);
void	tcpc_data_input(struct tcp_conn *t, struct tcp_segment *s);
void	tcpc_reass_flush(struct tcp_conn *t);
void	tcpc_buf_append(struct tcp_buf *b, struct mbuf *m, u_int len);
void	tcpc_buf_drop(struct tcp_buf *b, u_int len);
void	tcpc_buf_free(struct tcp_buf *b);
uint32_t tcpc_rcvspace(const struct tcp_conn *t);

/* tcp_sack.c */
u_int	tcpc_sack_options(const struct tcp_conn *t, uint8_t *p, u_int room);
void	tcpc_sack_forget(struct tcp_conn *t);
bool	tcpc_sack_input(struct tcp_conn *t, const struct tcp_segment *s);
bool	tcpc_sack_loss(const struct tcp_conn *t);
uint32_t tcpc_sack_below(const struct tcp_conn *t, tcp_seq seq);
uint32_t tcpc_sack_pipe(const struct tcp_conn *t);
bool	tcpc_sack_hole(const struct tcp_conn *t, tcp_seq *seq, u_int *len);
tcp_seq	tcpc_sack_skip(const struct tcp_conn *t, tcp_seq seq, u_int *len);

/* tcp_output.c, tcp_timer.c */
int	tcpc_output(struct tcp_conn *t);
void	tcpc_sack_resend(struct tcp_conn *t, bool force);
void	tcpc_timer_set(struct tcp_conn *t, enum tcp_timer which, sbintime_t delay);
void	tcpc_timer_clear(struct tcp_conn *t, enum tcp_timer which);
void	tcpc_timer_stop_all(struct tcp_conn *t);
void	tcpc_timer_input(void *arg);
void	tcpc_resend_first(struct tcp_conn *t);
void	tcpc_probe(struct tcp_conn *t);
void	tcpc_send_little(struct tcp_conn *t);

/* tcp_usr.c: for everybody. */

/*
 * Connect to a port (host order) of dst; scope is the interface index of a link-local dst, else 0.
 * ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH ..., EINTR.
 */
int	tcpc_connect(const struct in6_addr *dst, u_int scope, uint16_t port, sbintime_t timeout,
	    struct tcp_conn **tp);

/* Listen on a port, of one address or (NULL) of any.  EADDRINUSE. */
int	tcpc_listen(const struct in6_addr *laddr, uint16_t port, u_int backlog,
	    struct tcp_conn **tp);

/* The next connection of a listener.  EWOULDBLOCK, EINTR. */
int	tcpc_accept(struct tcp_conn *l, sbintime_t timeout, struct tcp_conn **tp);

/*
 * Send all of it, as long as `timeout' doesn't pass without room for more.  EWOULDBLOCK, EINTR,
 * EPIPE, ECONNRESET, ETIMEDOUT.
 */
int	tcpc_send(struct tcp_conn *t, const void *data, size_t len, sbintime_t timeout);

/*
 * Receive at least a byte and at most *lenp; *lenp 0 at the end.  With buf NULL the data are thrown
 * away.  EWOULDBLOCK, EINTR, ECONNRESET, ETIMEDOUT.
 */
int	tcpc_recv(struct tcp_conn *t, void *buf, size_t *lenp, sbintime_t timeout);

/* Say that nothing more will be sent. */
void	tcpc_shutdown(struct tcp_conn *t);

/* Give the connection back; what was sent is still delivered. */
void	tcpc_close(struct tcp_conn *t);

#endif /* !_NETINET_TCP_CONN_TREE_H_ */
