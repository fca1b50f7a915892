/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A network back end, written by xen/io/netif.h alone: it connects to what a front end has published
 * if everything is as the protocol has it, and to nothing else.  It sees packets by the grants that it
 * has, and does what a test tells it.
 */

#ifndef _NETBACK_H_
#define	_NETBACK_H_

#include <sys/param.h>
#include <sys/systm.h>
#include <net/ethernet.h>

#include <dev/xen/xen_var.h>
#include <xen/io/netif.h>

#include "model/event_channels.h"

#define	NODE		"device/vif/0"
#define	BACK		"/local/domain/7/backend/vif/1/0"
#define	BACK_DOMID	7

#define	NETBACK_QUEUES	16	/* more than any front end has */
#define	NETBACK_GROUPS	64	/* in its list of them, as in that of Linux's */

struct back_queue {
	grant_ref_t tx_ref, rx_ref;
	/* The same one, or one for each direction. */
	struct xen_evtchn *tx_channel, *rx_channel;
	netif_tx_back_ring_t tx;
	netif_rx_back_ring_t rx;
};

struct back {
	struct back_queue queues[NETBACK_QUEUES];
	u_int	n;
	bool	connected;
	/* Its multicast groups, and the commands about them. */
	uint8_t	groups[NETBACK_GROUPS + 1][ETHER_ADDR_LEN];
	u_int	ngroups, commands;
	int	refuses;	/* the status of one that it refuses; 0: none */
	bool	silent;
};

/* A packet, or a command, as it finds it in the ring. */
struct taken {
	struct netif_tx_request reqs[XEN_NETIF_NR_SLOTS_MIN];
	struct netif_extra_info extra;	/* type 0: none */
	u_int	n;			/* requests */
	u_int	len;
	u_char	bytes[XEN_NETIF_NR_SLOTS_MIN * PAGE_SIZE];
};

extern struct back back;
extern struct taken taken;	/* the last one */

/* What the back end offers, and what the toolstack sets. */
void	offer(const char *name, const char *value);
void	tool(const char *name, const char *value);

/* Does the back end offer a feature? */
bool	offers(const char *name);

/* Has the front end published this, in a folder ("queue-0/") or in none (""), and which number? */
bool	published(const char *where, const char *name);
u_int	number(const char *dir, const char *where, const char *name);

/* Begin anew with what the front end has published; let go of it. */
void	back_connect(void);
void	back_disconnect(void);

/* Take the next packet, or command, of a queue.  False: there is none. */
bool	back_takes(u_int queue);
/* Answer what was taken last. */
void	back_answers(u_int queue, int status);
/* So many bytes of `fill', or an error, into the next buffer that was posted; flags are NETRXF_*. */
void	back_gives(u_int queue, u_int flags, u_int offset, int status, u_char fill);
/* Extra info in its place. */
void	back_gives_extra(u_int queue, const struct netif_extra_info *extra);
/* Serve the commands that wait in the first queue. */
void	back_serves(void);

#endif /* !_NETBACK_H_ */
