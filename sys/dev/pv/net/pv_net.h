/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net: the personality of a paravirtual network card.
 *
 * It owns everything that faces FreeBSD: the interface, its queue pairs, mbufs
 * and their DMA, offload metadata, media, counters, watchdog, up and down.  A
 * protocol owns what faces the device or back end: negotiation, the wire format
 * of a packet's header, filters, the life of the device.
 *
 * A packet's way.  Files below are called, those above get a result or a list.
 *
 *	sent                                received
 *	----                                --------
 *	if_transmit                         if_input
 *	    |                                   ^
 *	    |                               pv_net_offload.c: merged by
 *	    |                                   ^    tcp_lro(9), or not
 *	    v                                   |
 *	pv_net_tx.c: queue, add,            pv_net_rx.c: buffers, budget,
 *	    |   |    commit, reclaim            ^   |    whole frames
 *	    |   +- pv_net_offload.c             |   +- pv_net_offload.c
 *	    |   |  marks -> offload             |   |  offload -> marks
 *	    |   +- pno_encap                    |   +- pno_decap
 *	    v      header                       |      header
 *	pvq(9) ... device ...               pvq(9) ... device, interrupt
 *	completion --> freed
 *
 * and to find, to finish or to split what is in a packet, both call
 * pv_net_packet.c.  Where the back end sees whole pages, packets are copied on
 * this way: pv_net_stage.c.  Where the ring itself carries what describes a
 * packet, and commands travel among the packets: struct pv_net_message_ops.
 *
 * Beside them, pv_net_netmap.c has the port of netmap(4) and its queues, which
 * move no mbufs.
 *
 * Above that, each file calls those before it only:
 *
 *	pv_net_filter.c   the receive filter: addresses, multicast groups, VLAN
 *			  tags
 *	pv_net_run.c      pairs of queues, and what pv_dev(9) calls to stop,
 *			  start and reset them
 *	pv_net_sysctl.c   counters and settings
 *	pv_net_debugnet.c packets after a panic, by polling
 *	pv_net_if.c       ioctls, capabilities, media, announcements
 *	pv_net.c          attach, thaw, detach
 *
 * The life of a device, between a protocol and pv_net:
 *
 *	protocol                                pv_net
 *	--------                                ------
 *	negotiates, reads the configuration
 *	pv_net_alloc(params)             ->     queue pairs, no hardware yet
 *	pv_net_queue() for each          <-     what to pass when the queues
 *	                                        are allocated
 *	allocates the queues, starts the device
 *	pv_net_attach()                  ->     DMA, interface visible
 *	                                 <-     ops, from here on
 *	pv_net_link_change()             ->
 *	pv_net_detach()                  ->     interface removed, device
 *	                                        stopped, queues drained
 *	frees the queues
 *	pv_net_free()                    ->
 *
 * Between attach and detach the device is live even while the interface is
 * down: it has no buffers to receive into, but its link and its control queue
 * work.
 */

/*
 * Offloads.  What is still to be done about a packet, or was done, has one form
 * for all protocols, struct pv_net_offload, and one function for each direction
 * between it and the marks of an mbuf.
 *
 *	received                 mbuf                           sent
 *	--------                 ----                           ----
 *	NEEDS_CSUM, csum_start,  CSUM_IP_TCP ... , csum_data    NEEDS_CSUM, ...
 *	  offset
 *	  and GSO, gso_size      + CSUM_IP_TSO ... , tso_segsz    and GSO, ...
 *	DATA_VALID               CSUM_DATA_VALID |              -
 *	                           CSUM_PSEUDO_HDR
 *
 * A received packet whose checksum is partial never was on a wire.  It gets the
 * marks that its sender's stack gave it: csum_data is the place of the sum in
 * the transport header, where the sum of the pseudo header is.  FreeBSD 15's
 * protocols take such a packet as verified, and an interface that it leaves by
 * finishes it or has it finished, as with any packet of our own.  So nothing
 * has to be known about where a packet goes.  FreeBSD 14 has no such mark on
 * input: there pv_net finishes sums itself.
 *
 * A GSO packet (several segments in one) is marked for segmentation in the same
 * way, unless it is for our own TCP, for which lro_nsegs has the number of its
 * segments.  Where neither would do, it is split by pv_net: LRO is disabled, or
 * the kernel forwards packets and lro_forward, which states that it can forward
 * big ones, is not set.  What is sent and requests more than the device can do
 * is finished or split by pv_net.
 *
 * Several datagrams of UDP in one (USO) are always split, as the kernel has no
 * mark for them.
 *
 * Segments to our own address that arrive as separate packets are merged by
 * tcp_lro(9), unless this kernel forwards packets.
 *
 * Listeners of bpf(4) see finished sums, both ways.
 */

#ifndef _DEV_PV_PV_NET_H_
#define	_DEV_PV_PV_NET_H_

#include <sys/types.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/pv_tunable.h>

struct mbuf;
struct pv_dev;
struct pv_net;
struct pv_net_message_ops;
struct pvq;
struct pvq_chain;
struct pvq_done;
struct pvq_spec;

/*
 * What is to be done, or was done, about a packet's checksum and size.  Offsets
 * count from the first byte of the Ethernet header.
 */
struct pv_net_offload {
	uint16_t	po_flags;
#define	PV_NET_NEEDS_CSUM	0x0001	/* the sum from csum_start
					 * is still to be stored */
#define	PV_NET_DATA_VALID	0x0002	/* transport checksum verified */
#define	PV_NET_GSO_ECN		0x0004	/* CWR is for the first segment only */
#define	PV_NET_FIND_CSUM	0x0008	/* NEEDS_CSUM, at a place that pv_net
					 * finds in the headers */
#define	PV_NET_FINISH_CSUM	0x0010	/* pv_net stores the sum itself */
#define	PV_NET_SPLIT		0x0020	/* pv_net segments the packet itself */
#define	PV_NET_UNFINISH		0x0040	/* pv_net makes a finished
					 * sum partial, before */
#define	PV_NET_SOFT	(PV_NET_FINISH_CSUM | PV_NET_SPLIT | PV_NET_UNFINISH)
	uint16_t	po_gso_type;
#define	PV_NET_GSO_NONE		0
#define	PV_NET_GSO_TCP4		1
#define	PV_NET_GSO_TCP6		2
#define	PV_NET_GSO_UDP		3	/* datagrams, each with a header:
					 * received only */
#define	PV_NET_GSO_FRAGMENTS	4	/* one datagram, to be sent in
					 * fragments: received only */
#define	PV_NET_GSO_OTHER	5	/* a kind that there is not:
					 * a protocol violation */
	uint16_t	po_gso_size;	/* payload of a segment */
	uint16_t	po_hdr_len;	/* headers of each segment;
					 * not used when received */
	uint16_t	po_csum_start;
	uint16_t	po_csum_offset;	/* of the field, from po_csum_start */
};

#define	PV_NET_BATCH	32	/* packets handled at a time */

/* A packet to be sent: the protocol writes its header from what is here. */
struct pv_net_txhdr {
	void			*pth_hdr;	/* pnp_hdrlen bytes,
						 * not cleared */
	struct pvq_chain	*pth_chain;
	struct pv_net_offload	 pth_offload;
};

/* A completed buffer: the protocol reports what is in it. */
struct pv_net_rxhdr {
	const void		*prh_hdr;	/* start of the buffer,
						 * ours again */
	uint32_t		 prh_room;	/* bytes in the buffer */
	uint32_t		 prh_skip;	/* out: bytes before
						 * the frame's data */
	uint32_t		 prh_len;	/* out: bytes of the frame
						 * in this buffer */
	bool			 prh_more;	/* out: the frame goes
						 * on in the next buffer */
	enum pv_net_rxerr {
		PV_NET_RX_OK,
		PV_NET_RX_SHORT,	/* less than a header */
		PV_NET_RX_BADHDR,	/* an invalid header */
	}			 prh_error;	/* out: not OK,
						 * and it is dropped */
	/* Out, of the whole frame, in its last buffer: */
	struct pv_net_offload	 prh_offload;
	uint32_t		 prh_hash;	/* of its flow */
	uint8_t			 prh_hash_type;	/* M_HASHTYPE_RSS_TCP_IPV4 ...;
						 * 0: none */
};

/* A frame without GSO that is in one buffer, as its header has it. */
struct pv_net_plain {
	uint16_t	ppl_len;	/* bytes of the frame;
					 * 0: it is something else */
	uint16_t	ppl_flags;	/* PV_NET_NEEDS_CSUM,
					 * PV_NET_DATA_VALID */
	uint16_t	ppl_csum_start;
	uint16_t	ppl_csum_offset;
};

/* What the interface receives in addition to its own address and broadcasts. */
struct pv_net_filter {
	bool		 pf_promisc;
	bool		 pf_allhosts;	/* all unicast */
	u_int		 pf_nhosts;	/* other unicast addresses
					 * than the interface's */
	const uint8_t	(*pf_hosts)[ETHER_ADDR_LEN];
	bool		 pf_allmulti;
	u_int		 pf_ngroups;
	const uint8_t	(*pf_groups)[ETHER_ADDR_LEN];
};

/*
 * What a protocol does for pv_net.  `softc' is what it gave to pv_net_alloc().
 * Of a pair of queues the number is given.  Those that may be NULL are marked
 * so.  Operations that may sleep are called one at a time, with pv_dev_lock()
 * held.
 */
struct pv_net_ops {
	/*
	 * Write the headers of a batch of n packets, or their messages.  Called
	 * with the queue's lock held; can't fail.
	 */
	void	(*pno_encap)(void *softc, int pair, struct pv_net_txhdr *hdrs,
	    int n);
	/*
	 * Validate n buffers, in the order they completed.  An invalid one is
	 * reported in prh_error.  A buffer without data may stand among those
	 * of a frame.  Called with the queue's lock held.
	 */
	void	(*pno_decap)(void *softc, int pair, const struct pvq_done *done,
		    struct pv_net_rxhdr *hdrs, int n);
	/*
	 * The fast paths of both, of one packet each; or NULL.  A header before
	 * a frame without GSO, whose checksum is partial if start is not 0; and
	 * a buffer that begins with hdr, of which nothing has changed if it is
	 * something else.
	 */
	void	(*pno_encap_plain)(void *softc, void *hdr, u_int start,
	    u_int offset);
	struct pv_net_plain (*pno_decap_plain)(void *softc, int pair,
	    const struct pvq_done *done,
		    const void *hdr);
	/*
	 * Stop the device: it releases all memory.  0, or an error if it never
	 * confirmed, after which nothing that it had is touched again.  May
	 * sleep.  Or NULL, this and pno_restart: with pno_reset, where queues
	 * have nothing that has to be taken from it.
	 */
	int	(*pno_stop)(void *softc);
	/* Start a stopped device again, with empty queues.  May sleep. */
	int	(*pno_restart)(void *softc);
	/*
	 * The same for one queue of a pair while the others run, and while the
	 * pair has nothing in flight to be sent (pnp_queue_reset).  An error of
	 * either means that the device has to be reset.  Or NULL: it can't.
	 * May sleep.
	 */
	int	(*pno_stop_queue)(void *softc, int pair, bool tx);
	int	(*pno_restart_queue)(void *softc, int pair, bool tx);
	/*
	 * The ring of a queue is to have so many places from its next restart
	 * on, alone or with the device.  0; EINVAL: it can't have; EOPNOTSUPP:
	 * the device alone decides.  Or NULL, with staged queues always.
	 */
	int	(*pno_set_size)(void *softc, int pair, bool tx, u_int size);
	/*
	 * The device can't be trusted any more: arrange that pv_dev_freeze()
	 * and pv_net_thaw() are called around a new connection, and return at
	 * once.  Or NULL: pno_stop and pno_restart are enough.
	 */
	void	(*pno_reset)(void *softc);
	/*
	 * The device is used with fewer pairs than it could be, for want of
	 * something (pv_dev_set_short()): may there be enough for another one
	 * now?  Called once a second.  Or NULL.
	 */
	bool	(*pno_has_more)(void *softc);
	/* Set what is received.  May sleep. */
	int	(*pno_set_filter)(void *softc,
	    const struct pv_net_filter *filter);
	/*
	 * Set the Ethernet address; EOPNOTSUPP if the device can't.  May sleep.
	 */
	int	(*pno_set_lladdr)(void *softc, const uint8_t *lladdr);
	/*
	 * What is received may be offloaded in these ways only from now on:
	 * some of pnp_offloads, all of which are in force after a restart.  Or
	 * NULL; it is advice: others that still arrive are handled.  May sleep.
	 */
	int	(*pno_set_offloads)(void *softc, u_int offloads);
	/*
	 * Use so many of the pairs from now on, the first ones; after a restart
	 * it is one.  Nothing is in flight in the transmit queues of the
	 * others.  Or NULL: all are used always.  May sleep.
	 */
	int	(*pno_set_pairs)(void *softc, int n);
	/*
	 * Set what the protocol has itself for coalescing.  Or NULL.
	 * May sleep.
	 */
	void	(*pno_set_coalescing)(void *softc);
	/*
	 * Receive frames with this VLAN tag, or don't; after a restart none is.
	 * May sleep.
	 */
	int	(*pno_set_vlan)(void *softc, uint16_t tag, bool on);
	/* Is there a link? */
	bool	(*pno_link_up)(void *softc);
	/*
	 * The link's speed in Mbit/s, 0 if it is not known, and duplex.
	 * Or NULL.
	 */
	uint32_t (*pno_link_speed)(void *softc, bool *full);
	/*
	 * Messages in the ring (struct pv_net_message_ops).
	 * NULL: there are none.
	 */
	const struct pv_net_message_ops *pno_message;
};

/* The properties of a device, after negotiation. */
struct pv_net_params {
	uint8_t		pnp_lladdr[ETHER_ADDR_LEN];
	int		pnp_npairs;	/* queue pairs, at least 1 */
	u_int		pnp_hdrlen;	/* bytes before the frame;
					 * 0: not in the buffers */
	bool		pnp_hdr_apart;	/* the header requires
					 * a segment of its own */
	bool		pnp_merge;	/* a received frame may span buffers */
	u_int		pnp_mtu;	/* to start with */
	u_int		pnp_max_mtu;
	u_int		pnp_max_frame;	/* bytes of a frame to be sent; 0: no
					 * limit of its own */
	u_int		pnp_tx_segs;	/* segments of a packet at most,
					 * header included */
	bus_size_t	pnp_boundary;	/* that no segment may cross; 0: none */
	bus_size_t	pnp_seg_max;	/* bytes in a segment */
	bool		pnp_phys;	/* segments are pvq_phys_add()'s; none
					 * is limited otherwise */
	u_int		pnp_offloads;	/* negotiated */
#define	PV_NET_TXCSUM	0x01
#define	PV_NET_RXCSUM	0x02
#define	PV_NET_TSO4	0x04
#define	PV_NET_TSO6	0x08
#define	PV_NET_TSO_ECN	0x10
#define	PV_NET_TXCSUM6	0x20	/* TXCSUM is of IPv4, this of IPv6 */
#define	PV_NET_LRO4	0x40	/* what is received may be several
				 * TCP segments in one */
#define	PV_NET_LRO6	0x80
#define	PV_NET_UNTAGGED	0x100	/* of the above,
				 * nothing is for frames with a VLAN tag */
#define	PV_NET_LRO_ECN	0x200	/* with LRO4 and LRO6:
				 * with congestion marks, too */
#define	PV_NET_RX_USO	0x400	/* what is received may be several
				 * UDP datagrams in one */
#define	PV_NET_RX_GSO	(PV_NET_LRO4 | PV_NET_LRO6 | PV_NET_LRO_ECN |	\
			 PV_NET_RX_USO)
#define	PV_NET_RX_OFFLOADS	(PV_NET_RXCSUM | PV_NET_RX_GSO)
	bool		pnp_soft_lro;	/* what is received
					 * may be merged here, too */
	bool		pnp_vlan_filter; /* frames with a VLAN tag are accepted
					  * by pno_set_vlan only */
	bool		pnp_promisc;	/* there is a promiscuous mode, which
					 * accepts all of them */
	bool		pnp_link_reports; /* the link's state is known,
					   * and may change */
	bool		pnp_may_rest;	/* no watchdog:
					 * completions may take any time */
	bool		pnp_queue_reset; /* of a pair, too, that has frames in
					  * flight to be sent */
	bool		pnp_freebsd_names; /* counters also have the names of
					    * FreeBSD's own driver */
	const struct pv_tunable *pnp_tunables; /* the driver's,
					        * PV_NET_TUNABLES first */
};

/*
 * The tunables that a card's driver begins its table with; each card has its
 * own value as a sysctl.
 */
enum {
	PV_NET_RX_PROCESS_LIMIT,
	PV_NET_TX_KICK,
	PV_NET_NTUNABLES
};
#define	PV_NET_TUNABLES							\
	[PV_NET_RX_PROCESS_LIMIT] = PV_TUNABLE("rx_process_limit", 512, 1, \
	    65536, 0,							\
	    "Receive buffers handled before other threads get the CPU"), \
	[PV_NET_TX_KICK] = PV_TUNABLE("tx_kick", 32, 1, 65536, 0,	\
	    "Packets of an interrupt thread's pass for one notification")

/*
 * A receive buffer for GSO packets that may not span buffers: as many clusters
 * of a page as hold the longest packet, and the segments that it has at least,
 * the header's own included.  A ring that takes PV_NET_RX_WHOLE_SEGS has room
 * for one in any case.
 */
#define	PV_NET_RX_WHOLE_MBUFS	howmany(65536 + 64, MJUMPAGESIZE)
#define	PV_NET_RX_WHOLE_MIN	(PV_NET_RX_WHOLE_MBUFS + 1)
#define	PV_NET_RX_WHOLE_SEGS	(2 * PV_NET_RX_WHOLE_MBUFS + 1)

/*
 * Allocate the personality of a device.
 *
 * dev     the driver's device: names, sysctls, DMA tag
 * ops     the protocol's half
 * softc   given back to ops
 * params  copied
 *
 * Returns 0, with *pnp; ENXIO if params make no sense (logged), or ENOMEM, with
 * NULL.  May sleep.
 */
int	pv_net_alloc(device_t dev, const struct pv_net_ops *ops, void *softc,
	    const struct pv_net_params *params, struct pv_net **pnp);

/*
 * Ask for one queue of a pair: the receiving one, or with tx the transmitting
 * one.
 */
void	pv_net_queue(struct pv_net *pn, int pair, bool tx,
    struct pvq_spec *out);

/*
 * Another back end offers something else: take pnp_offloads, pnp_max_frame,
 * pnp_max_mtu and pnp_npairs from params.  There can be fewer pairs than were
 * given to pv_net_alloc(), not more.  Before attach, or between freeze and
 * thaw.  May sleep.
 */
void	pv_net_renegotiate(struct pv_net *pn,
    const struct pv_net_params *params);

/*
 * The device has queues for n pairs now, of those given to pv_net_alloc(), and
 * they are to be used.  In pno_restart, with pv_dev_lock() held.  May sleep.
 *
 * Returns 0, or ENOMEM or the error of bus_dma(9): there are as many as before.
 */
int	pv_net_set_pairs(struct pv_net *pn, int n);

/*
 * Make the interface visible.  The queues are allocated and the device is live.
 *
 * Returns 0, or ENOMEM or the error of bus_dma(9); pv_net_detach() is to be
 * called in either case.  May sleep.
 */
int	pv_net_attach(struct pv_net *pn);

/*
 * Take the interface away, stop the device and give back every mbuf.  When this
 * returns no handler and no task of pv_net runs.  May sleep.
 */
void	pv_net_detach(struct pv_net *pn);

/*
 * Free what pv_net_alloc() allocated; the queues have been freed.  NULL is
 * fine.
 */
void	pv_net_free(struct pv_net *pn);

/*
 * The receive filter of the device is out of date: have pno_set_filter called.
 * Any context.
 */
void	pv_net_refilter(struct pv_net *pn);

/*
 * Set the interface's MTU to that of the back end, as ifconfig(8) would.
 * Between attach and detach.  May sleep.  EINVAL: it is out of range.
 */
int	pv_net_set_mtu(struct pv_net *pn, int mtu);

/* The link may have changed: look at pno_link_up.  May sleep. */
void	pv_net_link_change(struct pv_net *pn);

/*
 * Announce the interface's addresses to the network, if it is up: by gratuitous
 * ARP (RFC 5227, 3) and unsolicited neighbour advertisements (RFC 4861, 7.2.6).
 * False if there is no interface now.  May sleep.
 */
bool	pv_net_announce(struct pv_net *pn);

/*
 * The device's life: for needs of a reset, and for a protocol that does on its
 * own, with pv_dev_lock(), what its operations do.
 */
struct pv_dev *pv_net_dev(struct pv_net *pn);

/*
 * After pv_dev_freeze(), which stopped the device before the machine was
 * suspended: it is restored as it was.  0 or an errno value.  May sleep.
 */
int	pv_net_thaw(struct pv_net *pn);

/*
 * Messages in the ring, a capability for protocols whose transport carries them
 * (pc_arg).
 *
 * What describes a packet to be sent is then in messages beside its segments,
 * not in a header before the frame.  A command is a chain of the transmit queue
 * that is no packet, and has messages but no segments: the way for a protocol
 * that has no queue of its own for commands.
 */

/*
 * pno_message of struct pv_net_ops; called with the transmit queue's lock held.
 */
struct pv_net_message_ops {
	/*
	 * Packet n of a batch (n is less than PV_NET_BATCH) has its segments,
	 * and its offload is known: set its chain's pc_arg to room for its
	 * messages, which pno_encap fills in.  It is valid until the chains of
	 * this batch were put.  Can't fail.
	 */
	void	(*pmo_prepare)(void *softc, int pair, u_int n,
	    struct pv_net_txhdr *hdr);
	/* n packets, or commands, have completed. */
	void	(*pmo_sent)(void *softc, int pair, const struct pvq_done *done,
	    int n);
};

/*
 * Put a command into the transmit queue of a pair, and notify the back end.
 *
 * arg  its pc_arg; read during the call only
 *
 * Returns 0; ENOSPC if there is no room now; EINVAL if the ring has no form for
 * it.  The completion goes to pmo_sent.
 */
int	pv_net_command(struct pv_net *pn, int pair, void *arg);

/* Is it a command that completed?  In pmo_sent. */
bool	pv_net_is_command(const struct pvq_done *done);

/*
 * Staging, a capability for protocols that share memory by the page.
 *
 * Where the back end sees whole pages, an mbuf can't be shared: its page holds
 * other mbufs, and bytes of whatever had it before.  So each slot of a queue
 * has a page of its own, shared as long as the queue exists, and packets are
 * copied to and from these pages, which the back end sees all the time.  That
 * costs a copy, but no change of what is shared for each packet, and the back
 * end sees at any time only what it was sent, or wrote itself.  A page that it
 * keeps, or writes to when it should not, is harmless: a received frame is
 * validated and used in the copy.
 *
 * A staged queue runs on while the interface is down: it has no memory that is
 * needed elsewhere.
 */

struct pv_net_page {
	void		*npg_mem;	/* PAGE_SIZE bytes */
	bus_addr_t	 npg_addr;	/* as segments have it */
	void		*npg_arg;	/* to receive into it: pc_arg of the
					 * chain that posts it */
};

/*
 * Have a queue's packets staged: the receiving one of a pair, or with tx the
 * transmitting one.  For all queues of a device, once they are allocated, and
 * before each pv_net_attach() and pv_net_thaw().  The device has pnp_hdrlen 0
 * and pnp_seg_max PAGE_SIZE.  May sleep.
 *
 * pages  as many as the queue has slots; the caller's, and in use until
 *        pv_net_detach() or pv_dev_freeze()
 */
void	pv_net_stage_queue(struct pv_net *pn, int pair, bool tx,
    const struct pv_net_page *pages);

#endif /* !_DEV_PV_PV_NET_H_ */
