/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Xen's shared rings as a pvq(9), the twin of virtqueue.h.
 *
 * A driver makes a ring in its `setup' method (xenfront_if.m), writes the
 * references of its pages to xenstore (grant_ring_refs()), and from then on
 * sees a struct pvq.
 *
 *	struct grant_ring_params params = {
 *		.grp_dev = dev,
 *		.grp_name = "ring0",
 *		.grp_otherend = xenbus_get_otherend_id(dev),
 *		.grp_order = 0,
 *		.grp_req_size = sizeof(struct blkif_request),
 *		.grp_rsp_size = sizeof(struct blkif_response),
 *		.grp_id_size = 8, .grp_req_id = 8, .grp_rsp_id = 0,
 *		.grp_max_segs = 11,
 *		.grp_notify = xen_evtchn_notify,
 *		.grp_notify_arg = channel,
 *	};
 *
 * How a chain travels:
 *
 *	pvq_prepare()	slots = gm_n of the struct grant_msgs in pc_arg
 *	pvq_put()	copies the messages to the slots, and writes the ids
 *			there (the messages are not changed)
 *	pvq_get()	a chain is done when each of its messages was answered;
 *			grant_ring_response() is a copy of the last answer
 *
 * What is granted, and for how long, is the driver's business: it has pages
 * that stay granted, and writes their references into its messages.
 */

#ifndef _DEV_XEN_GRANT_RING_H_
#define	_DEV_XEN_GRANT_RING_H_

#include <dev/pv/queue/pvq.h>
#include <dev/xen/xen_var.h>
#include <xen/grant_table.h>

struct xen_evtchn;

/*
 * The requests of a chain, which travel in the ring: what pc_arg of struct
 * pvq_chain points to.  It and they are read until pvq_put() returns.
 */
struct grant_msgs {
	void		*gm_msgs;	/* gm_n of them, grp_req_size bytes
					 * apart; ids are filled in */
	uint16_t	 gm_n;		/* at least 1 */
	uint32_t	 gm_noid;	/* bit i: message i has no id */
};

#define	GRANT_RING_MAX_ORDER	4	/* 16 pages;
					 * back ends are free to allow less */

/*
 * What a ring is made from.
 */
struct grant_ring_params {
	device_t	 grp_dev;	/* for messages */
	const char	*grp_name;	/* "txq0" */
	domid_t		 grp_otherend;	/* the domain that the ring and segments
					 * are granted to */
	uint16_t	 grp_order;	/* log2 of the ring's pages:
					 * 0 to GRANT_RING_MAX_ORDER */
	uint16_t	 grp_max_segs;	/* segments in the longest chain */
	uint16_t	 grp_max_msgs;	/* messages in the longest chain;
					 * 0: 1 */
	uint32_t	 grp_flags;	/* GRANT_RING_F_* */
#define	GRANT_RING_F_INORDER	0x10000	/* answer i is for request i,
					 * whatever it holds */
	/*
	 * A slot holds a request or a response, whichever is larger
	 * (xen/io/ring.h).  Offsets of the id in both, and its bytes: 2, 4 or
	 * 8, in the CPU's order.  With GRANT_RING_F_INORDER ids are written
	 * into requests (grp_id_size 0: not even that) and not looked for in
	 * responses: these may be of another kind, such as netif's extra info.
	 */
	uint16_t	 grp_req_size;
	uint16_t	 grp_rsp_size;
	uint16_t	 grp_id_size;
	uint16_t	 grp_req_id;
	uint16_t	 grp_rsp_id;
	/*
	 * Messages without an id (gm_noid) are answered by a response in which
	 * the 16 bits at this offset have this value, and nothing else means
	 * anything: netif's NETIF_RSP_NULL.  With grp_null false there are no
	 * such responses.
	 */
	bool		 grp_null;
	uint16_t	 grp_null_off;
	uint16_t	 grp_null_value;
	/* Notify the back end; any context. */
	void		(*grp_notify)(struct xen_evtchn *);
	/* Responses have come, with its events; or NULL. */
	void		(*grp_worked)(struct xen_evtchn *);
	struct xen_evtchn *grp_notify_arg;
};

/*
 * A copy of the last response to a chain's messages, which the back end can't
 * change.
 */
static inline const void *
grant_ring_response(const struct pvq_done *done)
{

	return ((const void *)done->pd_result);
}

/*
 * Create a ring: its pages are allocated, initialised and granted.  May sleep.
 *
 * params  read during the call only
 * qp      set to the queue; its q_size is what the pages hold, rounded down to
 *         a power of two
 *
 * Returns 0; EINVAL if the sizes do not fit together or the order is too high;
 * ENOMEM; ENOSPC if there are no grant references left.
 */
int	grant_ring_create(const struct grant_ring_params *params,
    struct pvq **qp);

/*
 * The references of the ring's pages, in order: what is written to "ring-ref",
 * or to "ring-ref0" and so on.  They stay the same until pvq_free(), which ends
 * them: a page that the back end still has mapped then is freed when it is
 * unmapped.
 *
 * refs  room for 1 << grp_order
 *
 * Returns how many there are.
 */
int	grant_ring_refs(const struct pvq *q, grant_ref_t *refs);

/* The slots of a ring of 1 << order pages with slots of so many bytes. */
uint16_t grant_ring_size(u_int order, size_t slot);

#endif /* !_DEV_XEN_GRANT_RING_H_ */
