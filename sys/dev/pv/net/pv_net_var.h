/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The inside of pv_net: structures that its files share.  Protocols see
 * pv_net.h only.
 */

#ifndef _DEV_PV_PV_NET_VAR_H_
#define	_DEV_PV_PV_NET_VAR_H_

#include <sys/eventhandler.h>
#include <sys/sysctl.h>
#include <sys/taskqueue.h>
#include <net/ethernet.h>
#include <net/pfil.h>
#include <netinet/in.h>
#include <netinet/in_systm.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/tcp_lro.h>
#include <netinet/udp.h>

#include <dev/pv/pv_dma.h>
#include <dev/pv/dev/pv_dev.h>

#define	PV_NET_TASK_PRI		PRI_MAX_ITHD	/* of a pair's thread:
						 * see pv_net_tx.c */
#define	PV_NET_RX_SEGS		6	/* of a receive buffer:
					 * 16 KB, scattered */
#define	PV_NET_LINK_CHANGES	4	/* in a second; later ones are handled
					 * by the tick */
#define	PV_NET_STAGED_SEGS	128	/* mbufs of a packet that is copied */
#define	PV_NET_FLOWS		128	/* kinds of flows that are
					 * steered to a pair each */
#define	PV_NET_VLANS		4096	/* VLAN tags */
#define	PV_NET_WATCHDOG		5	/* seconds without a completion, and the
					 * device is reset */
#define	PV_NET_HOSTS		256	/* unicast addresses beside
					 * the interface's own */

#define	PV_NET_MAX_FRAME	(65535 + ETHER_HDR_LEN + ETHER_VLAN_ENCAP_LEN)

/*
 * Why the metadata of a packet is invalid: by the device about one that was
 * received, by the stack about one to be sent.  Each has a counter.
 */
enum pv_net_bad {
	PV_NET_FINE,
	PV_NET_BAD_SHORT,	/* ends inside of its headers */
	PV_NET_BAD_HEADERS,	/* invalid lengths or versions */
	PV_NET_BAD_CSUM,	/* a checksum at an invalid place */
	PV_NET_BAD_GSO_TYPE,	/* not negotiated, or not this packet's */
	PV_NET_BAD_GSO_SIZE,	/* segments of no length,
				 * or longer than IP's packets are */
	PV_NET_NBAD,
	PV_NET_NO_MEMORY = PV_NET_NBAD	/* a valid packet, but it is lost */
};

/* Where the headers of a packet are, from the first byte of Ethernet's. */
struct pv_net_headers {
	bool	ph_ip6;
	bool	ph_opaque;	/* something else than VLAN tags
				 * stands in front of IP's */
	uint8_t	ph_proto;	/* of the transport header */
	u_int	ph_tags;	/* VLAN tags, and others of that form */
	u_int	ph_length;	/* a length in what is in front;
				 * 0: there is none */
	u_int	ph_l3;		/* IP's header */
	u_int	ph_l4;	/* transport header; 0: none that is known here */
	u_int	ph_end;		/* end of the packet, as its headers have it:
				 * padding may follow */
};

/* Copy part of a packet's headers out: false if the packet ends before. */
static inline bool
pv_net_peek(const struct mbuf *m, u_int off, u_int len, void *to)
{
	if (off + len > (u_int)m->m_pkthdr.len)
		return (false);
	if (off + len <= (u_int)m->m_len)
		memcpy(to, m->m_data + off, len);
	else
		m_copydata(m, off, len, to);
	return (true);
}

#define	PV_NET_L4_IP4	(ETHER_HDR_LEN + sizeof(struct ip))
#define	PV_NET_L4_IP6	(ETHER_HDR_LEN + sizeof(struct ip6_hdr))
#define	PV_NET_SUM_TCP	offsetof(struct tcphdr, th_sum)
#define	PV_NET_SUM_UDP	offsetof(struct udphdr, uh_sum)
#define	PV_NET_TH_OFF	12	/* th_off's byte: a bit field has no offset */

/*
 * Where in its header a transport protocol has its checksum; 0: it has none
 * that is known here.
 */
static inline u_int
pv_net_sum_offset(uint8_t proto)
{
	return (proto == IPPROTO_TCP ? PV_NET_SUM_TCP : proto == IPPROTO_UDP ?
	    PV_NET_SUM_UDP : 0);
}

/*
 * Is a packet, whose transport header is at l4 and has its checksum at sum,
 * what most are: TCP or UDP over IPv4 or IPv6, without tags, options of IP,
 * fragments or padding, all headers in the first mbuf, and their lengths within
 * the packet?  Both are constants, so that each of the four kinds has code of
 * its own.
 */
static __always_inline bool
pv_net_is_plain(const struct mbuf *m, const u_int l4, const u_int sum)
{
	const uint8_t *at = (const void *)m->m_data;
	u_int hdrlen = sum == PV_NET_SUM_UDP ? sizeof(struct udphdr) :
	    sizeof(struct tcphdr);
	u_int proto = sum == PV_NET_SUM_UDP ? IPPROTO_UDP : IPPROTO_TCP, room;
	uint32_t type, off;
	uint16_t len;

	if ((u_int)m->m_len < l4 + hdrlen)
		return (false);
	room = m->m_pkthdr.len - l4;
	/*
	 * The type and the version, with the length of IPv4's header; fragments
	 * and the protocol.
	 */
	if (l4 == PV_NET_L4_IP4) {
		memcpy(&type, at + offsetof(struct ether_header, ether_type),
		    sizeof(type));
		memcpy(&off, at + ETHER_HDR_LEN + offsetof(struct ip, ip_off),
		    sizeof(off));
		memcpy(&len, at + ETHER_HDR_LEN + offsetof(struct ip, ip_len),
		    sizeof(len));
		if ((type & htonl(0xffffff00)) != htonl(ETHERTYPE_IP << 16 |
		    0x4500) || (off &
		    htonl((IP_OFFMASK | IP_MF) << 16 | 0xff)) != htonl(proto) ||
		    ntohs(len) != room + sizeof(struct ip))
			return (false);
	} else {
		memcpy(&type, at + offsetof(struct ether_header, ether_type),
		    sizeof(type));
		memcpy(&len, at + ETHER_HDR_LEN + offsetof(struct ip6_hdr,
		    ip6_plen), sizeof(len));
		if ((type & htonl(0xfffff000)) != htonl(ETHERTYPE_IPV6 << 16 |
		    0x6000) || at[ETHER_HDR_LEN + offsetof(struct ip6_hdr,
		    ip6_nxt)] != proto || ntohs(len) != room)
			return (false);
	}
	if (sum == PV_NET_SUM_UDP) {
		memcpy(&len, at + l4 + offsetof(struct udphdr, uh_ulen),
		    sizeof(len));
		return (ntohs(len) >= hdrlen && ntohs(len) <= room);
	}
	len = (at[l4 + PV_NET_TH_OFF] >> 4) << 2;
	return (len >= hdrlen && len <= room);
}

/*
 * Are these two Ethernet addresses the same?  In fewer instructions than
 * memcmp() takes.
 */
static inline bool
pv_net_same_lladdr(const void *one, const void *other)
{
	uint32_t a, b;
	uint16_t c, d;

	memcpy(&a, one, sizeof(a));
	memcpy(&b, other, sizeof(b));
	memcpy(&c, (const char *)one + sizeof(a), sizeof(c));
	memcpy(&d, (const char *)other + sizeof(b), sizeof(d));
	return (((a ^ b) | (c ^ d)) == 0);
}

/*
 * What is the same for a batch of received packets (prq_flags, set by
 * pv_net_rx_set_flags()).
 */
#define	PV_NET_RXF_TRUST4	IFCAP_RXCSUM	/* receive checksum offload is
						 * enabled for IPv4 */
#define	PV_NET_RXF_TRUST6	IFCAP_RXCSUM_IPV6
#define	PV_NET_RXF_TRUST	(PV_NET_RXF_TRUST4 | PV_NET_RXF_TRUST6)
/* Partial ones may stay partial. */
#define	PV_NET_RXF_KEEP4	(PV_NET_RXF_TRUST4 << 1)
#define	PV_NET_RXF_KEEP6	(PV_NET_RXF_TRUST6 << 1)
#define	PV_NET_RXF_FORWARD4	0x10	/* the kernel forwards IPv4 */
#define	PV_NET_RXF_FORWARD6	0x20
CTASSERT(((PV_NET_RXF_TRUST | PV_NET_RXF_TRUST << 1) &
    (PV_NET_RXF_FORWARD4 | PV_NET_RXF_FORWARD6)) == 0);

/*
 * Counters.  Each is a 64-bit field, written under the queue's lock, with a
 * sysctl by the same name.
 */
struct pv_net_rxstats {
	uint64_t	packets, bytes, mcasts;
	uint64_t	csum_valid, csum_partial;
	uint64_t	csum_unasked, gso_unasked;
	uint64_t	lro, split, hashed;
	uint64_t	copied, merged;
	uint64_t	nombuf, recycled, unfit;
	uint64_t	bufs, bufs_page, bufs_16k;
	uint64_t	short_buf, bad_header, bad_offload, runts, too_long;
	uint64_t	deferred;
	uint64_t	lost_intrs;
	uint64_t	bad[PV_NET_NBAD];	/* bad_offload by cause */
};

struct pv_net_txstats {
	uint64_t	packets, bytes, mcasts;
	uint64_t	csum, tso, soft_csum, soft_tso, unmapped;
	uint64_t	collapsed, defragged;
	uint64_t	waits, queue_drops, moved;
	uint64_t	bad_offload, too_long, nomem;
	uint64_t	held_kicks, timer_reclaims;
	uint64_t	bad[PV_NET_NBAD];	/* bad_offload by cause */
};

struct pv_net_rxbuf {
	struct mbuf		*prb_mbuf;	/* if it is not loaded: the last
						 * of a chain, or none */
	const struct pv_net_page *prb_page; /* staged: instead of an mbuf */
	bus_dmamap_t		 prb_map;
	u_int			 prb_nsegs;	/* 0: not loaded */
	bus_dma_segment_t	 prb_segs[];	/* pn_rx_segs, and one
						 * for the header */
};

/*
 * Queues of different CPUs share no cache line: an element of pn_rxqs or
 * pn_txqs begins one.
 */
struct pv_net_rxq {
	struct mtx		 prq_mtx;
	struct pvq		*prq_pvq;
	struct pv_net		*prq_pn;
	int			 prq_id;
	bool			 prq_stopped;
	struct thread		*prq_busy;	/* the thread
						 * that is taking packets */
	bool			 prq_starved;	/* the last buffer
						 * could not be allocated */
	bool			 prq_discard;	/* the rest of the frame
						 * is dropped */
	bool			 prq_fast;	/* there is a fast path:
						 * pv_net_rx_fast() */
	bool			 prq_merges;	/* of this batch, some may be
						 * merged by tcp_lro(9) */
	u_int			 prq_flags;	/* PV_NET_RXF_KEEP4 ... */
	struct mbuf		*prq_head;	/* frame that goes
						 * on in the next buffer */
	struct mbuf		*prq_tail;
	struct taskqueue	*prq_tq;
	bus_dma_tag_t		 prq_tag;
	u_int			 prq_max_bufs;	/* buffers that there
						 * is memory for */
	u_int			 prq_nbufs;	/* those in use: one for each
						 * place of the ring */
	u_int			 prq_nfree;
	u_int			 prq_unkicked;	/* posted since the device was
						 * notified, if it asked */
	u_int			 prq_kick;	/* so many of them may wait */
	char			*prq_bufs;	/* pv_net_rx_buf() */
	const struct pv_net_page *prq_pages;
	struct pv_net_rxbuf	**prq_free;	/* stack of those not posted */
	struct callout		 prq_refill;
	struct task		 prq_task;
	struct lro_ctrl		 prq_lro;
	bool			 prq_lro_ready;
	uint64_t		 prq_held;	/* groups of flows that
						 * tcp_lro(9) may hold */
	u_int			 prq_large;	/* after so many small frames
						 * buffers are small again */
	/* The batch that is being worked on, too large for the stack. */
	struct pvq_chain	 prq_chains[PV_NET_BATCH];
	struct pvq_done		 prq_done[PV_NET_BATCH];
	struct pv_net_rxhdr	 prq_hdrs[PV_NET_BATCH];
	uint64_t		 prq_wd_done;	/* watchdog:
						 * as of a transmit queue */
	int			 prq_wd_ticks;	/* seconds in which something
						 * should have completed */
	struct pv_net_rxstats	 prq_stats;
	struct pv_net_netmap	*prq_netmap;	/* pv_net_netmap.c's;
						 * NULL: no port */
	char			 prq_name[16];
} __aligned(CACHE_LINE_SIZE);

struct pv_net_txbuf {
	struct mbuf		*ptb_mbuf;
	bus_dmamap_t		 ptb_map;
	void			*ptb_hdr;	/* header apart from the mbuf */
	bus_addr_t		 ptb_hdr_addr;
	u_int			 ptb_nsegs;	/* 0: a command, no packet */
	bus_dma_segment_t	*ptb_segs;	/* pnp_tx_segs of them */
};

struct pv_net_txq {
	struct mtx		 ptq_mtx;
	struct pvq		*ptq_pvq;
	struct pv_net		*ptq_pn;
	int			 ptq_id;
	bool			 ptq_stopped;
	bool			 ptq_fast;	/* there is a fast path:
						 * pv_net_tx_fast() */
	u_int			 ptq_fast_segs;	/* so many segments are a chain
						 * of one place */
	bool			 ptq_full;	/* a packet found no room, and
						 * none completed since */
	bool			 ptq_deferred;	/* the task is queued,
						 * to notify */
	u_int			 ptq_unkicked;	/* committed since
						 * the last kick */
	uint64_t		 ptq_kicked_bytes; /* ptq_stats.bytes
						    * at the last kick */
	struct buf_ring		*ptq_ring;
	struct taskqueue	*ptq_tq;
	struct mbuf		*ptq_list;	/* before the ring's: a packet,
						 * or its segments */
	bus_dma_tag_t		 ptq_tag;
	struct pv_dma		 ptq_hdrs;
	u_int			 ptq_max_bufs;	/* as prq_max_bufs */
	u_int			 ptq_nbufs;
	u_int			 ptq_nfree;
	u_int			 ptq_threshold;	/* so few free buffers:
						 * collect completions */
	struct pv_net_txbuf	*ptq_bufs;
	struct pv_net_txbuf	**ptq_free;	/* stack */
	bus_dma_segment_t	*ptq_segs;	/* of all buffers */
	const struct pv_net_page *ptq_pages;
	struct pv_net_stage_tx	*ptq_stage;	/* pv_net_stage.c's */
	struct callout		 ptq_timer;
	struct task		 ptq_task;	/* runs the queue:
						 * pv_net_tx.c */
	uint64_t		 ptq_wd_done;	/* watchdog: completions
						 * when it last looked */
	int			 ptq_wd_ticks;	/* seconds without one */
	bool			 ptq_parked;	/* the device does without
						 * this pair's queues */
	struct pv_net_txstats	 ptq_stats;
	struct pv_net_netmap	*ptq_netmap;	/* pv_net_netmap.c's;
						 * NULL: no port */
	/* The batch that is being built. */
	u_int			 ptq_n;
	u_int			 ptq_slots;
	struct pvq_chain	 ptq_chains[PV_NET_BATCH];
	struct pv_net_txhdr	 ptq_txhdrs[PV_NET_BATCH];
	/* Completions being collected. */
	struct pvq_done		 ptq_done[PV_NET_BATCH];
	char			 ptq_name[16];
} __aligned(CACHE_LINE_SIZE);

enum pv_net_level {	/* how far attach came; detach goes back from there */
	PV_NET_ALLOCATED, PV_NET_QUEUES, PV_NET_INTERFACE
};

/* Other sizes of rings, from the next restart on. */
struct pv_net_resize {
	bool	pnr_tx;
	u_int	pnr_before;
	int	pnr_error;	/* why they have those of before */
};

/*
 * Where the values are that pv_net_rx_set_flags() reads, in the interface and
 * in its vnet: the latter are found anew when the interface has moved.
 */
struct pv_net_stack {
	struct bpf_if		*pns_bpf;
	const uint8_t		*pns_lladdr;
	const volatile int	*pns_forward4;
	const volatile int	*pns_forward6;
	const pfil_head_t	*pns_filters;
	const pfil_head_t	*pns_filters4;
	const pfil_head_t	*pns_filters6;
};

struct pv_net {
	device_t		 pn_dev;
	const struct pv_net_ops	*pn_ops;
	void			*pn_softc;
	struct pv_net_params	 pn_params;
	int			 pn_rx_budget;	/* buffers taken before other
						 * threads get the CPU */
	int			 pn_tx_kick;	/* packets of a pass
						 * for one notification */
	enum pv_net_level	 pn_level;
	if_t			 pn_ifp;
	struct ifmedia		 pn_media;
	struct pv_dev		 pn_pvdev;	/* its life, and the lock
						 * of its configuration */
	struct pv_dev_ops	 pn_dev_ops;
	struct pv_net_resize	*pn_resize;	/* under way */
	bool			 pn_moved;	/* its addresses are announced
						 * when it is used */
	bool			 pn_shaped;	/* ALTQ has been in use:
						 * if_snd has packets */
	bool			 pn_staged;	/* packets are copied:
						 * pv_net_stage.c */
	bool			 pn_netmap;	/* netmap(4) has queues */
	bool			 pn_forwards_big; /* as pv_net_forwards_big()
						   * said last */
	bool			 pn_closed;	/* no ioctl enters any more */
	u_int			 pn_ioctls;	/* in flight */
	int			 pn_if_flags;	/* flags that the filter
						 * was set for */
	/* That the device has. */
	uint8_t			 pn_lladdr[ETHER_ADDR_LEN];
	u_int			 pn_rx_mbufs;	/* mbufs of a receive buffer */
	u_int			 pn_rx_segs;	/* and its segments at most */
	u_int			 pn_rx_cluster;	/* bytes of each */
	u_int			 pn_rx_pad;	/* before the header, to align
						 * what IP reads */
	int			 pn_max_pairs;	/* pairs at most */
	u_int			 pn_chosen;	/* pairs to use of those
						 * that there are */
	volatile u_int		 pn_pairs;	/* pairs of queues in use,
						 * of pnp_npairs */
	struct pv_net_rxq	*pn_rxqs;
	struct pv_net_txq	*pn_txqs;
	struct taskqueue	**pn_tqs;	/* packets, of each pair */
	eventhandler_tag	 pn_vlan_tags[3];
	eventhandler_tag	 pn_stack_tag;
	/* That vlan(4) uses. */
	uint32_t		 pn_vlans[PV_NET_VLANS / 32];
	/* That the device accepts. */
	uint32_t		 pn_vlans_set[PV_NET_VLANS / 32];
	bool			 pn_vlan_failed; /* the device refused one */
	struct task		 pn_filter_task;
	struct callout		 pn_tick;
	struct task		 pn_link_task;
	struct task		 pn_offload_task;
	struct pv_net_stack	 pn_stack;
	u_int			 pn_offloads_asked; /* requested of the device,
						     * for what is received */
	volatile u_int		 pn_link_changes; /* in this second */
	struct sysctl_ctx_list	 pn_sysctl;
	/* Of queues, which may be exchanged. */
	struct sysctl_ctx_list	 pn_queue_sysctl;
	uint64_t		 pn_watchdogs;
	uint64_t		 pn_filter_errors;
	uint64_t		 pn_offload_errors;
	uint64_t		 pn_vlan_errors;
	uint64_t		 pn_announcements;
};

#define	PV_NET_CSUM4	(CSUM_IP_TCP | CSUM_IP_UDP)
#define	PV_NET_CSUM6	(CSUM_IP6_TCP | CSUM_IP6_UDP)
#define	PV_NET_WORK	(PV_NET_CSUM4 | PV_NET_CSUM6 | CSUM_TSO)

/*
 * l4, if it is such a packet whose checksum is at sum, and the device can
 * finish that; or 0.
 */
static __always_inline u_int
pv_net_tx_plain_at(const struct pv_net *pn, const struct mbuf *m, u_int can,
    const u_int l4, const u_int sum)
{
	return ((pn->pn_params.pnp_offloads & can) != 0 &&
	    (u_int)m->m_pkthdr.csum_data == sum &&
	    pv_net_is_plain(m, l4, sum) ? l4 : 0);
}

/*
 * Where the transport header is of such a packet, if its checksum, and nothing
 * else, is to be finished when it is sent, and the device can do that; 0 if it
 * is something else.
 */
static __always_inline __unused u_int
pv_net_tx_plain_l4(const struct pv_net *pn, const struct mbuf *m)
{
	switch (m->m_pkthdr.csum_flags & PV_NET_WORK) {
	case CSUM_IP_TCP:
		return (pv_net_tx_plain_at(pn, m, PV_NET_TXCSUM, PV_NET_L4_IP4,
		    PV_NET_SUM_TCP));
	case CSUM_IP_UDP:
		return (pv_net_tx_plain_at(pn, m, PV_NET_TXCSUM, PV_NET_L4_IP4,
		    PV_NET_SUM_UDP));
	case CSUM_IP6_TCP:
		return (pv_net_tx_plain_at(pn, m, PV_NET_TXCSUM6, PV_NET_L4_IP6,
		    PV_NET_SUM_TCP));
	case CSUM_IP6_UDP:
		return (pv_net_tx_plain_at(pn, m, PV_NET_TXCSUM6, PV_NET_L4_IP6,
		    PV_NET_SUM_UDP));
	default:
		return (0);
	}
}

/* Mark a packet whose checksum is partial. */
static inline void
pv_net_mark_partial(struct mbuf *m, bool ip6, u_int sum)
{
	if (sum == PV_NET_SUM_TCP)
		m->m_pkthdr.csum_flags = ip6 ? CSUM_IP6_TCP : CSUM_IP_TCP;
	else
		m->m_pkthdr.csum_flags = ip6 ? CSUM_IP6_UDP : CSUM_IP_UDP;
	m->m_pkthdr.csum_data = sum;
}

/* The marks of a received packet whose transport checksum was verified. */
static inline void
pv_net_mark_valid(struct mbuf *m)
{
	m->m_pkthdr.csum_flags |= CSUM_DATA_VALID | CSUM_PSEUDO_HDR;
	m->m_pkthdr.csum_data = 0xffff;
}

/*
 * The files from here on are a stack, lowest first: each calls what stands
 * above, and is called back by tables of operations, tasks and callouts only.
 */

/* pv_net_packet.c: headers, checksums and segments */
MALLOC_DECLARE(M_PVNET);
enum pv_net_bad pv_net_parse(const struct mbuf *m, struct pv_net_headers *h);
enum pv_net_bad pv_net_l4_len(const struct mbuf *m,
    const struct pv_net_headers *h, u_int *len);
uint16_t pv_net_finished_sum(struct mbuf *m, u_int start, u_int offset,
    u_int end);
uint16_t pv_net_pseudo_sum(struct mbuf *m, u_int start);
void	pv_net_store_sum(struct mbuf *m, u_int start, u_int offset, u_int end);
u_int	pv_net_sum_end(const struct mbuf *m, u_int field);
struct mbuf *pv_net_copy_headers(const struct mbuf *m, u_int len);
/*
 * A copy of the first len bytes, followed by the rest of the packet, which is
 * shared.
 */
struct mbuf *pv_net_copy_front(struct mbuf *m, u_int len);
struct mbuf *pv_net_gso_split(struct mbuf *m, const struct pv_net_headers *h,
    u_int hdrlen,
	    u_int size);

/* pv_net_offload.c: marks of an mbuf and struct pv_net_offload; LRO */
extern struct pv_tunable pv_net_tunables[2];
#define	pv_net_lro_forward	pv_net_tunables[0].pt_value
#define	pv_net_fast_path	pv_net_tunables[1].pt_value
enum pv_net_bad pv_net_tx_offload(const struct pv_net *pn, const struct mbuf *m,
	    struct pv_net_offload *out);
struct mbuf *pv_net_tx_soften(struct mbuf *m, struct pv_net_offload *o);
u_int	pv_net_hwassist(const struct pv_net *pn, int capenable);
/* Find pn_stack, when the interface is in a vnet, or in another one. */
void	pv_net_stack_find(struct pv_net *pn);
void	pv_net_rx_set_flags(struct pv_net_rxq *rxq);
/* Is lro_forward set in a kernel that forwards packets? */
bool	pv_net_forwards_big(const struct pv_net *pn);
u_int	pv_net_rx_wanted(const struct pv_net *pn);
/*
 * Finish the checksum of a frame that is in one piece: false if its place is
 * invalid.
 */
bool	pv_net_finish_frame(uint8_t *frame, u_int len,
    const struct pv_net_offload *in);
/*
 * The fast path of pv_net_rx_offload(), for a partial checksum of a frame as
 * most are.  False: it is something else, and as it was.
 */
bool	pv_net_rx_fast_sum(const struct pv_net_rxq *rxq, struct mbuf *m,
    u_int l4, u_int sum);
bool	pv_net_rx_gso_unasked(const struct pv_net *pn, const struct mbuf *m,
	    const struct pv_net_offload *in);
enum pv_net_bad pv_net_rx_offload(const struct pv_net_rxq *rxq,
    struct mbuf **mp,
	    const struct pv_net_offload *in);
/* Received packets to the stack, by tcp_lro(9) or not. */
void	pv_net_lro_init(struct pv_net_rxq *rxq);
void	pv_net_lro_free(struct pv_net_rxq *rxq);
void	pv_net_lro_flush(struct pv_net_rxq *rxq);
void	pv_net_lro_input(struct pv_net_rxq *rxq, struct mbuf *list);

/* The same: one that comes alone has nothing to be merged with. */
static inline void
pv_net_rx_input(struct pv_net_rxq *rxq, struct mbuf *list)
{
	if (list->m_nextpkt == NULL && rxq->prq_held == 0)
		if_input(rxq->prq_pn->pn_ifp, list);
	else
		pv_net_lro_input(rxq, list);
}

/* pv_net_stage.c: packets that are copied */
void	pv_net_stage_free(struct pv_net *pn);
/* Take the pages of pv_net_stage_queue() into use.  The queues are empty. */
void	pv_net_stage_start(struct pv_net *pn);
/*
 * Copy a packet to pages, finish its sum if that is to be done, and make them
 * the segments of its buffer; the queue's lock is held.  Returns 0; ENOSPC if
 * there are not enough pages now; EFBIG if there never are; EINVAL if its
 * checksum is not where it should be.
 */
int	pv_net_stage_send(struct pv_net_txq *txq, struct pv_net_txbuf *buf,
    const struct mbuf *m,
	    struct pv_net_offload *offload);
/* A staged packet was sent, or will not be: take its pages back. */
void	pv_net_stage_sent(struct pv_net_txq *txq, struct pv_net_txbuf *buf);
/*
 * Copy what was received into a page to an mbuf: NULL if there is no memory for
 * it.
 */
struct mbuf *pv_net_stage_receive(const struct pv_net_page *page,
    const struct pv_net_rxhdr *hdr);

/* pv_net_netmap.c: the interface as a port of netmap(4), and its queues */
void	pv_net_netmap_attach(struct pv_net *pn);
/* The interface is stopped, and ioctls still come. */
void	pv_net_netmap_detach(struct pv_net *pn);
/* Allocate what a pair that comes later needs; nothing if there is no port. */
int	pv_net_netmap_add_pair(struct pv_net *pn, int pair);
/*
 * Start a queue if it is netmap's; false: it is packets'.  pv_dev's lock is
 * held.
 */
bool	pv_net_netmap_rx_start(struct pv_net_rxq *rxq);
bool	pv_net_netmap_tx_start(struct pv_net_txq *txq);
/* An interrupt of a queue that is stopped for packets. */
void	pv_net_netmap_rx_intr(struct pv_net_rxq *rxq);
void	pv_net_netmap_tx_intr(struct pv_net_txq *txq);
/* Has nothing completed that a program has sent?  The queue's lock is held. */
bool	pv_net_netmap_stands(struct pv_net_txq *txq);
/*
 * No program uses the pair when this returns, nor, after the network epoch, a
 * handler if it is true.
 */
bool	pv_net_netmap_stop(struct pv_net_rxq *rxq, struct pv_net_txq *txq);
/* Take back the slots that a stopped device had. */
void	pv_net_netmap_drain(struct pv_net_rxq *rxq, struct pv_net_txq *txq);

/* pv_net_tx.c: sending, notification, completion */
/*
 * So many of size buffers were made for a queue: ENOMEM if that is none, and a
 * line if not all.
 */
int	pv_net_tell_made(const struct pv_net *pn, const char *queue, u_int made,
    u_int size);
int	pv_net_tx_alloc(struct pv_net_txq *txq);
void	pv_net_tx_free(struct pv_net_txq *txq);
/*
 * Make a packet without a tag or offload, which no listener of bpf(4) sees and
 * nothing counts, the next chain of the batch.  Returns 0; ENOSPC if the ring
 * has no room; another error if it can't be sent at all: after an error the
 * packet is the caller's to free.
 */
int	pv_net_tx_add_plain(struct pv_net_txq *txq, struct mbuf **mp);
/* Show the batch to the device, without a notification yet. */
void	pv_net_tx_commit(struct pv_net_txq *txq);
/* Collect completions, and free their packets. */
void	pv_net_tx_reclaim(struct pv_net_txq *txq);
void	pv_net_tx_init(struct pv_net_txq *txq);
void	pv_net_tx_intr(void *txq);
/*
 * True when nothing is left in a queue that is not in use any more: its packets
 * move to another.
 */
bool	pv_net_tx_retired(struct pv_net_txq *txq);
/* When this returns no thread uses the queue, and none will. */
void	pv_net_tx_stop(struct pv_net_txq *txq);
/* Free the packets of a stopped device, and those that wait. */
void	pv_net_tx_drain(struct pv_net_txq *txq);
/* Free the packets of a stopped device; what waits goes on waiting. */
void	pv_net_tx_drain_sent(struct pv_net_txq *txq);
/* Start the queue, and have the task send what waits. */
void	pv_net_tx_resume(struct pv_net_txq *txq);
/* True when all that a stopped queue had in flight has completed. */
bool	pv_net_tx_is_idle(struct pv_net_txq *txq);
/* Drop the packets that wait. */
void	pv_net_tx_flush(struct pv_net_txq *txq);
/*
 * Called once a second: true if packets are in flight and for too long none has
 * completed, so that the queue has to be reset.
 */
bool	pv_net_tx_watch(struct pv_net_txq *txq);
int	pv_net_transmit(if_t ifp, struct mbuf *m);
/*
 * ALTQ releases more of its packets: queue them now, or have the task do it
 * soon.
 */
void	pv_net_start(if_t ifp);
void	pv_net_qflush(if_t ifp);

/* pv_net_rx.c: a receive queue */
/* Choose the receive buffers for the interface's MTU. */
void	pv_net_rx_init(struct pv_net *pn);
void	pv_net_rx_layout(struct pv_net *pn);
void	pv_net_rx_intr(void *rxq);
int	pv_net_rx_alloc(struct pv_net_rxq *rxq);
void	pv_net_rx_free(struct pv_net_rxq *rxq);
void	pv_net_rx_start(struct pv_net_rxq *rxq);
void	pv_net_rx_stop(struct pv_net_rxq *rxq);
void	pv_net_rx_drain(struct pv_net_rxq *rxq);
/*
 * Called once a second: have taken what no interrupt has come for, and break a
 * queue that stands still.
 */
void	pv_net_rx_watch(struct pv_net_rxq *rxq);

/*
 * pv_net_filter.c: the receive filter: addresses, multicast groups and VLAN
 * tags
 */
void	pv_net_filter_init(struct pv_net *pn);
/* Configure the device to receive what the interface is to. */
int	pv_net_set_filter(struct pv_net *pn);
/* Set and clear the VLAN tags that have changed. */
void	pv_net_vlan_sync(void *pn);
/* Set all of it again. */
void	pv_net_filter_again(struct pv_net *pn);
/* Call a function with the interfaces of vlan(4), within the network epoch. */
void	pv_net_foreach_vlan(const struct pv_net *pn,
    void (*func)(void *arg, if_t ifp), void *arg);
void	pv_net_vlan_attach(struct pv_net *pn);
void	pv_net_vlan_detach(struct pv_net *pn);

/*
 * pv_net_run.c: pairs of queues, and what pv_dev(9) has done to them; the
 * watchdog
 */
/* Returns 0, or ENOMEM, and pv_net_pairs_free() frees what there is. */
int	pv_net_pairs_alloc(struct pv_net *pn);
void	pv_net_pairs_free(struct pv_net *pn);
int	pv_net_pair_cpu(const struct pv_net *pn, int pair);
int	pv_net_use_pairs(struct pv_net *pn, u_int n);
void	pv_net_change_pairs(struct pv_net *pn, int n);
/*
 * Give the pairs that have queues for the first time what pairs have.  Returns
 * 0, or ENOMEM or the error of bus_dma(9), and those that had nothing before
 * have nothing.
 */
int	pv_net_fill_pairs(struct pv_net *pn);
/* Returns 0, or ENOMEM, with nothing to free. */
int	pv_net_run_init(struct pv_net *pn);
/* Start the tick. */
void	pv_net_run_start(struct pv_net *pn);
/* Request of the device those receive offloads that are of use now. */
void	pv_net_ask_offloads(void *pn);
/*
 * Give all receive queues, or transmit queues, rings of so many places.
 * pv_dev's lock is held.
 *
 * Returns 0; ENXIO if the device is suspended, dead or going; EBUSY if
 * netmap(4) has queues; the error of pno_set_size; or an error of the device,
 * whose rings then have the sizes of before.
 */
int	pv_net_resize(struct pv_net *pn, bool tx, u_int size);

/* pv_net_sysctl.c: counters and settings */
void	pv_net_sysctl_attach(struct pv_net *pn);
void	pv_net_sysctl_queues(struct pv_net *pn);

/* pv_net_debugnet.c: packets after a panic */
void	pv_net_debugnet_attach(struct pv_net *pn);
/* The interface's MTU has changed.  May sleep; pv_dev's lock is not held. */
void	pv_net_debugnet_mtu(struct pv_net *pn);

/* pv_net_if.c: the interface */
/* Announce the addresses of the interface and of those of vlan(4) on it. */
void	pv_net_announce_addresses(struct pv_net *pn);
int	pv_net_if_create(struct pv_net *pn);
/* Let programs see it. */
void	pv_net_if_show(struct pv_net *pn);
/* After this nothing calls the interface, but tasks may still run. */
void	pv_net_if_destroy(struct pv_net *pn);
void	pv_net_if_capabilities(struct pv_net *pn);

/* pv_dev's number of a queue. */
static inline u_int
pv_net_number(int pair, bool tx)
{
	return (2 * pair + tx);
}

static inline int
pv_net_pair(u_int queue)
{
	return (queue / 2);
}

static inline bool
pv_net_is_tx(u_int queue)
{
	return (queue % 2 != 0);
}

/* Places in the rings of one kind. */
static inline u_int
pv_net_ring_size(const struct pv_net *pn, bool tx)
{
	return (tx ? pn->pn_txqs[0].ptq_pvq->q_size :
	    pn->pn_rxqs[0].prq_pvq->q_size);
}

/*
 * Did the device leave something to be done that was not negotiated?  It is
 * done all the same.
 */
static inline bool
pv_net_rx_unasked(const struct pv_net *pn, u_int flags)
{
	return ((pn->pn_params.pnp_offloads & PV_NET_RXCSUM) == 0 &&
	    (flags & PV_NET_NEEDS_CSUM) != 0);
}

/* The bytes of n buffers of a receive queue, and the n-th of them. */
static inline size_t
pv_net_rx_bufs_size(const struct pv_net_rxq *rxq, u_int n)
{
	return (n * (sizeof(struct pv_net_rxbuf) +
	    (rxq->prq_pn->pn_rx_segs + 1) * sizeof(bus_dma_segment_t)));
}

static inline struct pv_net_rxbuf *
pv_net_rx_buf(const struct pv_net_rxq *rxq, u_int n)
{
	return ((void *)(rxq->prq_bufs + pv_net_rx_bufs_size(rxq, n)));
}

/* Is the memory of packets loaded by bus_dma(9)? */
static inline bool
pv_net_needs_dma(const struct pv_net *pn)
{
	return (!pn->pn_params.pnp_phys && !pn->pn_staged);
}

/* Notify the device of what it was shown since the last time. */
static inline void
pv_net_tx_kick(struct pv_net_txq *txq)
{
	if (txq->ptq_unkicked == 0)
		return;
	pvq_kick(txq->ptq_pvq);
	txq->ptq_unkicked = 0;
	txq->ptq_kicked_bytes = txq->ptq_stats.bytes;
}

/*
 * The task is neither queued nor running when this returns, if nothing queues
 * it any more.  It waits for a running one only: the task's thread may be kept
 * from the CPU for as long as others are busy.
 */
static inline void
pv_net_task_stop(struct taskqueue *tq, struct task *task)
{
	while (taskqueue_cancel(tq, task, NULL) != 0)
		taskqueue_drain(tq, task);
}

#endif /* !_DEV_PV_PV_NET_VAR_H_ */
