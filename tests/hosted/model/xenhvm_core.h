/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A model of FreeBSD's own Xen core, as the module xen_core uses it: messages to xenstore with watches,
 * references of the grant table, event channels.  Behind it are a small xenstored, the other ends of
 * channels, and the peers that map pages.  What is not the core's to bear fails the test.
 */

#ifndef _XENHVM_CORE_H_
#define	_XENHVM_CORE_H_

#include <sys/param.h>
#include <sys/systm.h>

#include <xen/xen-os.h>

/* xenstore. */

/* While it is set nothing is answered; requests that have come, and what they were: "R W " ... */
extern bool hc_silent;
extern u_int hc_asked;
extern int hc_asked_at;		/* when the last one came */
extern char hc_log[512];

/* The core fails each request with this error, or answers with this type; 0: it does not. */
extern int hc_failure;
extern uint32_t hc_type;

/* xenstore refuses the nth request from now (1: the next), with the error of this name. */
extern int hc_refuse_nth;
extern const char *hc_refuse;

/* So many commits conflict; transactions that were begun, and not ended. */
extern int hc_conflicts;
extern int hc_transactions;

/* A directory that does not fit has names of 1,000 bytes without an end. */
extern bool hc_endless;

/* So many bytes are missing at the end of each answer. */
extern size_t hc_cut;

/* What the next transaction's id reads, instead of a number; NULL: a number. */
extern const char *hc_id;

/* Bytes of names that fit into a directory, and into a part of one; its generation. */
extern size_t hc_room, hc_part;
extern const char *hc_generation;
extern void (*hc_parted)(void);

/* Events have no path. */
extern bool hc_pathless;

/* Each new watch has this error; 0: none.  Watches that there are. */
extern int hc_no_watch;
extern u_int hc_watches;

/* Begin without a node; with a thread for events. */
void	hc_begin(void);
/* Set a node, or remove it (NULL), as another domain does: watches fire. */
void	hc_set(const char *path, const char *value);
const char *hc_get(const char *path);
/* So many events of a path at once, of which the core drops some. */
void	hc_burst(const char *path, u_int n);

/* The grant table. */
#define	HC_REFS		1024

struct hc_ref {
	bool	hr_out;		/* of the core's list */
	bool	hr_granted, hr_readonly, hr_mapped;
	domid_t	hr_domid;
	u_long	hr_frame;
};
extern struct hc_ref hc_refs[HC_REFS];
/* References that the core has left, its requests for some, and what Xen says of the table's size. */
extern u_int hc_refs_left, hc_refs_asked;
extern int hc_query_error, hc_query_status;
extern u_int hc_query_frames;

/* Event channels. */
struct hc_channel {
	device_t	 ch_dev;
	u_int		 ch_remote;
	driver_filter_t	*ch_filter;
	driver_intr_t	*ch_handler;
	void		*ch_arg;
	enum intr_type	 ch_type;
	evtchn_port_t	 ch_port;	/* 0: the core has forgotten it */
	char		 ch_name[32];
	u_int		 ch_signals;
};
extern struct hc_channel *hc_last;	/* the one that was bound last */
extern int hc_channels;			/* that are bound */
extern int hc_bind_error;
extern u_int hc_early;			/* so many events come before it is known that it is bound */
extern u_int hc_unmasked;		/* hypercalls that unmask */

/* An event: returns whether its handler ran, which a masked port has not. */
bool	hc_event(struct hc_channel *ch);

#endif /* !_XENHVM_CORE_H_ */
