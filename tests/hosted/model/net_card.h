/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The least of a pv_net for tests of a protocol's driver: what it is told it writes down, and it moves
 * no packets by itself.  Its life is pv_dev's own.
 */

#ifndef _NET_CARD_H_
#define	_NET_CARD_H_

#include <sys/param.h>
#include <sys/systm.h>

#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/net/pv_net.h>
#include <dev/pv/queue/pvq.h>

#define	NET_CARD_PAIRS	8	/* at most */

struct pv_net {
	struct pv_dev	pn_pvdev;
	struct pv_dev_ops pn_dev_ops;
	device_t	pn_dev;
	const struct pv_net_ops *pn_ops;
	void		*pn_softc;
	struct pv_net_params pn_params;
	int		pn_most;	/* pairs that it was made for */
	/* Receiving and transmitting, of each pair. */
	struct pvq	**pn_pvqs;
	u_int		pn_intrs[2 * NET_CARD_PAIRS];
	const struct pv_net_page *pn_pages[2 * NET_CARD_PAIRS];
	int		pn_pairs, pn_links, pn_announced, pn_refilters;
	bool		pn_attached;	/* or was to be */
	bool		pn_there;	/* it can announce */
	bool		pn_link_up;	/* when it was looked at last */
	int		pn_attach_error, pn_mtu_error;
	int		pn_mtu;		/* that was set last; 0: none was */
};

/* The card, and whether there is one now. */
extern struct pv_net card;
extern struct pv_net *net;

/* A sysctl that the driver has removed when it detaches the card, if it is not NULL. */
extern const char *net_card_setting;

/* Each pair is bound to the CPU of its number; otherwise to none. */
extern bool net_card_binds;

/* What a pair has sent, and the peer has completed, is the protocol's to see. */
void	card_sent(struct pv_net *pn, int pair);

/* Take back what a queue had. */
void	card_reclaim(void *pn, u_int queue, int error);

#endif /* !_NET_CARD_H_ */
