/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * iperf: what its TCP and its UDP share.
 *
 * A stream of a client, or a connection of a server, has a thread.  Locking: i_mtx protects what the
 * streams report; a stream's own fields belong to its thread.
 */

#ifndef _IPERF_H_
#define	_IPERF_H_

#define	IPERF_PORT	5001
#define	IPERF_LENGTH	(128 * 1024)
#define	IPERF_UDPLENGTH	1470
#define	IPERF_UDPLEAST	56	/* room for an answer */
#define	IPERF_UDPRATE	(1024 * 1024)
#define	IPERF_STREAMS	64
#define	IPERF_WAIT	(60 * SBT_1S)
#define	IPERF_SLICE	(SBT_1S / 10)

struct iperf {
	bool		i_udp;
	uint64_t	i_port;
	uint64_t	i_nstreams;
	uint64_t	i_seconds;
	uint64_t	i_bytes;	/* 0: by time */
	uint64_t	i_length;	/* of a write or datagram */
	uint64_t	i_rate;		/* of a UDP stream, bits a second */
	struct in6_addr	i_host;		/* of a client */
	volatile bool	i_stop;
	struct mtx	i_mtx;
	u_int		i_running;
	u_int		i_begun;
	uint64_t	i_total;
	int		i_error;
};

struct iperf_stream {
	struct iperf	*is_iperf;
	struct tcp_conn	*is_conn;	/* NULL: UDP */
	void		(*is_func)(void *);
	u_int		 is_id;
	uint64_t	 is_bytes;
	sbintime_t	 is_took;
	int		 is_error;
};

/* iperf.c */
void	iperf_report(const char *who, uint64_t bytes, sbintime_t took, const char *more);
void	iperf_done(struct iperf_stream *s);
bool	iperf_more(const struct iperf_stream *s, sbintime_t start);

/* iperf_udp.c */
int	iperf_udp_server(struct iperf *i);
void	iperf_udp_send(void *arg);

#endif /* !_IPERF_H_ */
