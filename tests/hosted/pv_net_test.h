/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the tests of pv_net's offload metadata share: frames, an interface that the test sets up, and
 * the judging of segments.
 */

#ifndef _PV_NET_TEST_H_
#define	_PV_NET_TEST_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/bus.h>
#include <sys/callout.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mbuf.h>
#include <sys/mutex.h>
#include <sys/socket.h>
#include <sys/sx.h>
#include <sys/taskqueue.h>
#include <net/bpf.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_media.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <net/if_private.h>
#include <net/pfil.h>
#include <net/vnet.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip_var.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <netinet6/ip6_var.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/net/pv_net_var.h>

#include "host/host.h"
#include "kpi/kpi.h"
#include "kpi/mbuf.h"
#include "frame.h"

#define	KEEPS	(__FreeBSD_version >= 1500000)

/* Everything negotiated, but for what a case takes away. */
#define	TX_ALL	(PV_NET_TXCSUM | PV_NET_TXCSUM6 | PV_NET_TSO4 | PV_NET_TSO6 | PV_NET_TSO_ECN)
#define	RX_ALL	(PV_NET_RXCSUM | PV_NET_LRO4 | PV_NET_LRO6 | PV_NET_LRO_ECN)
#define	CAPS	(IFCAP_RXCSUM | IFCAP_RXCSUM_IPV6 | IFCAP_LRO | IFCAP_TXCSUM | \
		    IFCAP_TXCSUM_IPV6)

#define	NEEDS	PV_NET_NEEDS_CSUM
#define	VALID	PV_NET_DATA_VALID
#define	FIND	(PV_NET_NEEDS_CSUM | PV_NET_FIND_CSUM)
#define	ECN	PV_NET_GSO_ECN
#define	NONE	PV_NET_GSO_NONE
#define	TCP4	PV_NET_GSO_TCP4
#define	TCP6	PV_NET_GSO_TCP6
#define	UDP	PV_NET_GSO_UDP

#define	F4	{ .f_ip = 4, .f_proto = IPPROTO_TCP, .f_payload = 3000 }
#define	F6	{ .f_ip = 6, .f_proto = IPPROTO_TCP, .f_payload = 3000 }
#define	U4	{ .f_ip = 4, .f_proto = IPPROTO_UDP, .f_payload = 3000 }
#define	U6	{ .f_ip = 6, .f_proto = IPPROTO_UDP, .f_payload = 3000 }

struct good {
	const char	*name;
	struct frame	 f;
};

/* A GSO packet. */
struct gso {
	const char	*name;
	struct frame	 f;
	u_int		 type, flags, size;
};

#define	NGOOD	12
#define	NGSOS	10

extern const struct good good[NGOOD];
extern const struct gso gsos[NGSOS];

/*
 * The interface: what is negotiated, what is enabled and who else may take received packets, as
 * netgraph(4) and lagg(4), listeners of bpf(4).
 */
extern struct pv_net pn;
extern struct ifnet eth;
extern struct pv_net_rxq rx_queue;
extern struct bpf_if_ext listeners, *bpf;
extern u_char lladdr[ETHER_ADDR_LEN];

/* And filters. */
extern struct _pfil_head filters;

/* As the queue does it: look what packets are to be judged by, and judge one. */
static inline enum pv_net_bad
rx_offload(struct pv_net *net, struct mbuf **mp, const struct pv_net_offload *in)
{

	rx_queue.prq_pn = net;
	pv_net_stack_find(net);
	pv_net_rx_set_flags(&rx_queue);
	return (pv_net_rx_offload(&rx_queue, mp, in));
}

/* A new interface with everything enabled; and: nothing is left. */
void	begin(u_int offloads);
void	end(void);

/* Copy a packet's bytes out; returns how many. */
size_t	flat(const struct mbuf *m, u_char *to);

/* Free a list of packets; returns how many. */
u_int	free_all(struct mbuf *m);

/* The marks of a packet of this kind that the stack sends. */
u_int	sum_mark(const struct frame *f);

/* These are the segments of g, whose frame is `whole'.  The list is freed. */
void	check_segments(const struct gso *g, struct mbuf *list, const u_char *whole,
	    const struct frame_at *at, bool done);

/* A packet to be sent. */
struct mbuf *to_send(const struct gso *g, u_char *buf, struct frame_at *at);

/* pv_net_offload_tx.c */
void	tx_without_offloads(const void *arg);
void	tx_ecn_not_negotiated_is_split(const void *arg);
void	tx_tags_inside_of_tags_are_sent(const void *arg);
void	tx_invalid_marks_have_their_names(const void *arg);
void	tx_what_is_behind_the_headers_is_not_copied(const void *arg);
void	sum_ends_with_the_frame_where_headers_make_no_sense(const void *arg);
void	headers_behind_llc_are_those_of_snap(const void *arg);
void	headers_have_the_memory_that_they_need(const void *arg);
void	no_memory_loses_the_packet_and_nothing_else(const void *arg);

/* pv_net_matrix.c */
void	rx_whatever_stands_before_a_sum(const void *arg);
void	rx_gso_that_was_not_negotiated_is_split(const void *arg);
void	rx_datagrams_in_one_are_split(const void *arg);
void	rx_datagram_to_be_fragmented(const void *arg);
void	tx_padding_does_not_count(const void *arg);

/* pv_net_fast.c */
void	fast_path_is_the_same(const void *arg);

/* pv_net_corpus.c */
void	rx_frames_of_a_library(const void *arg);

/* pv_net_offload_each.c */
void	tx_each_offload_by_itself(const void *arg);
void	tx_one_finished_segment_is_left_alone(const void *arg);
void	tx_without_marks_is_left_alone(const void *arg);
void	tx_what_others_have_is_not_written(const void *arg);
void	tx_data_without_an_address_is_not_read(const void *arg);
void	tx_assistance_by_capability(const void *arg);
void	rx_each_version_by_itself(const void *arg);
void	rx_each_version_is_forwarded_by_itself(const void *arg);
void	rx_what_ends_here_is_not_finished(const void *arg);
void	rx_each_queue_looks_for_itself(const void *arg);
void	rx_largest_gso_packets(const void *arg);
void	rx_gso_packet_has_its_segments(const void *arg);
void	rx_nothing_overtakes_its_flow(const void *arg);
void	rx_ports_that_are_not_in_sight(const void *arg);
void	rx_only_data_is_merged(const void *arg);
void	rx_headers_that_are_too_long_to_split(const void *arg);
void	rx_requests_what_is_of_use(const void *arg);

#endif /* !_PV_NET_TEST_H_ */
