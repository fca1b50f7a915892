/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * xn(4): what its files share.
 */

#ifndef _DEV_XEN_NETFRONT_NETFRONT_VAR_H_
#define	_DEV_XEN_NETFRONT_NETFRONT_VAR_H_

#include <sys/sysctl.h>

#include <dev/xen/grant_ring.h>
#include <dev/xen/xen_var.h>
#include <dev/xen/xenstore.h>
#include <xen/io/netif.h>

struct pvq;
struct xen_evtchn;
struct xn_softc;

/*
 * Slots of a packet at most, extra info included: what every back end takes
 * (xen/io/netif.h, XEN_NETIF_NR_SLOTS_MIN).
 */
#define	XN_TX_SLOTS		XEN_NETIF_NR_SLOTS_MIN

/*
 * Pages of data in the longest packet: 65535 bytes, for its size is a 16-bit
 * number.
 */
#define	XN_TX_SEGS		howmany(XEN_NETIF_MAX_TX_SIZE, PAGE_SIZE)

/*
 * Buffers of a received packet at most; a back end that begins each anywhere
 * needs one more.
 */
#define	XN_RX_BUFS		(XEN_NETIF_NR_SLOTS_MIN + 1)

/* Multicast groups in a back end's list at most: as many as Linux's takes. */
#define	XN_MAX_GROUPS		64

/*
 * Grant references of a pair of queues: two rings of 256 slots, and a page for
 * each slot.
 */
#define	XN_PAIR_REFS		(2 * (1 + 256))

/* More pairs of queues only hold memory, 2 MB each. */
#define	XN_MAX_PAIRS		8

/*
 * Protocol violations and refusals of back ends.  Each is a sysctl of that name
 * below dev.xn.N.qI, written under the queue's lock.
 */
struct xn_stats {
	uint64_t	rx_status, rx_range, rx_bufs, rx_prefix, rx_extra;
	uint64_t	tx_error, tx_dropped, tx_status;
	uint64_t	groups_refused;
};

/* The request that posts a page to receive into. */
struct xn_post {
	struct grant_msgs	 xp_msgs;
	struct netif_rx_request	 xp_req;
};

/* The requests of a packet to be sent. */
struct xn_packet {
	struct grant_msgs	 xnp_msgs;
	struct netif_tx_request	 xnp_reqs[XN_TX_SLOTS];
};

/* A ring and its pages. */
struct xn_ring {
	struct pvq_spec		 xr_spec;	/* pv_net's */
	struct xen_evtchn	*xr_channel;	/* NULL: the other ring's is
						 * this one's too */
	u_int			 xr_npages;
	struct pv_net_page	*xr_pages;
	struct xen_gnttab_pages	**xr_grants;	/* theirs */
	struct xn_post		*xr_posts;	/* receiving:
						 * one for each page */
};

/* A frame that is being received. */
struct xn_frame {
	enum xn_frame_next {
		XN_FRAME_FIRST,	/* a new frame's first buffer comes next */
		XN_FRAME_EXTRA,		/* extra info */
		XN_FRAME_MORE,		/* another buffer */
	}			 xf_next;
	bool			 xf_more;	/* buffers follow after
						 * the extra info */
	bool			 xf_bad;	/* it is not to be used */
	u_int			 xf_bufs;
	u_int			 xf_extras;
	struct pv_net_offload	 xf_offload;
};

struct xn_queue {
	struct xn_softc		*xq_softc;
	int			 xq_id;
	struct xn_ring		 xq_tx;
	struct xn_ring		 xq_rx;
	struct xn_frame		 xq_frame;
	struct xn_packet	*xq_packets;	/* of a batch:
						 * PV_NET_BATCH of them */
	struct xn_stats		 xq_stats;
};

struct xn_softc {
	device_t		 xn_dev;
	struct sysctl_ctx_list	 xn_sysctl;
	struct pv_net		*xn_pn;
	bool			 xn_attached;	/* there is an interface */
	bool			 xn_connected;	/* to a back end */
	bool			 xn_carrier;	/* which reports a link */
	bool			 xn_split;	/* an event channel
						 * for each ring */
	u_int			 xn_offloads;	/* PV_NET_*, as negotiated */
	u_int			 xn_max_mtu;
	u_int			 xn_mtu;	/* the toolstack's last one */
	struct xenstore_watch	 xn_mtu_watch;
	uint64_t		 xn_connects;
	/* Multicast groups: netfront_filter.c. */
	bool			 xn_mcast_control; /* the back end can start
						    * and stop filtering */
	bool			 xn_mcast_on;	/* and does */
	bool			 xn_mcast_unknown; /* or not */
	volatile bool		 xn_mcast_refused; /* it refused one */
	u_int			 xn_ngroups;
	uint8_t			 xn_groups[XN_MAX_GROUPS][ETHER_ADDR_LEN];
	int			 xn_npairs;	/* with this back end */
	int			 xn_max_pairs;	/* with any,
						 * once there is an interface */
	struct xn_queue		 xn_queues[XN_MAX_PAIRS];
};

/* netfront_ring.c */
int	xn_rings_create(struct xn_softc *sc);
void	xn_rings_free(struct xn_softc *sc);
bool	xn_has_more(void *softc);

/* netfront_filter.c */
void	xn_filter_setup(struct xn_softc *sc);
int	xn_set_filter(void *softc, const struct pv_net_filter *filter);

/* netfront_packet.c: operations of pv_net */
void	xn_prepare(void *softc, int pair, u_int n, struct pv_net_txhdr *hdr);
void	xn_encap(void *softc, int pair, struct pv_net_txhdr *hdrs, int n);
void	xn_sent(void *softc, int pair, const struct pvq_done *done, int n);
void	xn_decap(void *softc, int pair, const struct pvq_done *done,
    struct pv_net_rxhdr *hdrs,
	    int n);

#endif /* !_DEV_XEN_NETFRONT_NETFRONT_VAR_H_ */
