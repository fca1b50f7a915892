/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A card of pv_net whose device is a test: split virtqueues with the model of a device as their peer.
 *
 * Everything of pv_net that is on the way of a packet is the driver's own, and so is its life; the
 * interface is the least that these call.  Nothing runs by itself: a test is the device, the interrupt,
 * the sender, the taskqueue (kpi_run_tasks()) and the clock (kpi_pass()).
 */

#ifndef _PV_NET_CARD_H_
#define	_PV_NET_CARD_H_

#include "pv_net_test.h"
#include "kpi/sched.h"
#include "model/peer.h"

#define	CARD_PAIRS	3
#define	CARD_SIZE	16	/* of each ring, unless the test has another */
#define	CARD_QUEUES	(2 * CARD_PAIRS)

/* Before each frame: the offload, whose po_hdr_len counts the buffers of a frame that is received. */
#define	CARD_HDR	sizeof(struct pv_net_offload)

struct card {
	device_t	 ca_dev;
	struct pv_net	*ca_pn;
	struct pv_net_ops ca_ops;
	struct pv_net_params ca_params;
	const struct impl *ca_impl;
	u_int		 ca_size;
	int		 ca_fail_after;	/* kpi_fail_after while it attaches */
	int		 ca_at_first;	/* pairs that it attaches with; 0: all */
	bool		 ca_renegotiates;	/* before it attaches */
	int		 ca_mtu;	/* that was set last; 0: none */
	u_int		 ca_mtus, ca_vlancaps, ca_caps;	/* how often the stack was told */
	struct peer	*ca_peers[CARD_QUEUES];
	bool		 ca_runs[CARD_QUEUES];	/* the device uses the queue */
	bool		 ca_started;
	bool		 ca_slow;	/* each buffer of a frame has an interrupt */
	u_int		 ca_left[CARD_PAIRS];	/* buffers of a frame that are still to come */
	/* What the device was told. */
	char		 ca_log[256];
	u_int		 ca_pairs;
	/* What it says. */
	int		 ca_stop_error, ca_restart_error, ca_lladdr_error;
	int		 ca_stop_queue_error, ca_restart_queue_error, ca_pairs_error, ca_size_error;
	bool		 ca_no_link;
	u_int		 ca_links;	/* how often its link was said to be up */
	u_int		 ca_looks;	/* how often it was looked at, without a task */
	u_int		 ca_link_tasks;	/* how often it was to be looked at */
	char		 ca_settings[16];	/* which were set, in order: a letter each */
	int		 ca_drv_flags;	/* of the interface */
	int		 ca_nsegs;	/* of the packet that was taken last */
	u_int		 ca_tags;	/* that were put into frames */
	bool		 ca_no_tags;	/* there is no memory for one */
	u_int		 ca_taps;	/* packets that a listener saw */
	u_int		 ca_tapped, ca_tap_marks;	/* the last one's length and marks */
	bool		 ca_altq;	/* altq(4) decides what is sent */
	bool		 ca_merges;	/* tcp_lro(9) takes packets */
	u_int		 ca_general;	/* buffers that did not, received */
	struct pv_net_page *ca_pages[CARD_QUEUES];	/* of one that is staged */
	void		*ca_memory[CARD_QUEUES];
	struct pv_net_offload ca_sent;	/* of the packet that was sent last */
	uint64_t	 ca_room;	/* bytes of the buffer that was written last */
	u_int		 ca_plain;	/* packets that took a fast path, either way */
	/* What came up to the stack, and what that does meanwhile. */
	void		(*ca_input)(void);
	struct mbuf	*ca_up, **ca_up_tail;
	u_int		 ca_nup;
	uint64_t	 ca_up_bytes, ca_up_mcasts;
};

extern struct card card;
/* New cards have the fast paths. */
extern bool card_has_fast;
/* New cards have the header in a segment of its own, as a legacy device requires. */
extern bool card_is_legacy;
/* New cards copy packets to pages that the device sees. */
extern bool card_is_staged;
/* Of the thread that the test is. */
extern struct thread card_thread;
/* The bytes that a listener saw last. */
extern u_char card_tapped[FRAME_MAX];

#define	CARD_RXQ(pair)	(&card.ca_pn->pn_rxqs[pair])
#define	CARD_TXQ(pair)	(&card.ca_pn->pn_txqs[pair])

/* Make a card of so many pairs that is not attached yet: the test may change ca_params and ca_ops. */
void	card_new(int pairs);
/* Allocate its queues and attach it; returns what pv_net_attach() said. */
int	card_attach(void);
/* The same, of a card that is up then. */
void	card_begin(int pairs);
/* Detach it, and nothing is left. */
void	card_end(void);

/* Forget what was written down until now. */
void	card_forget(void);

/* The device's queue, by its pair. */
struct peer *card_peer(int pair, bool tx);

/* Store the bytes of packet `number'. */
void	card_fill(u_char *to, u_int number, u_int len);
/* A packet of so many bytes, in one piece, whose bytes follow from its number. */
struct mbuf *card_packet(u_int number, u_int len);
int	card_transmit(int pair, struct mbuf *m);
/* Send one by the pair of its flow; returns what if_transmit did. */
int	card_send(int pair, u_int number, u_int len);
/* Copy what a chain has to be read, with the header; returns how much. */
u_int	card_read(const struct peer_chain *pr, u_char *to);
/* The device takes the next packet of a pair, which is that one.  Its id is for card_complete(). */
uint32_t card_takes(int pair, u_int number, u_int len);
/* Has the device nothing more to take? */
bool	card_idle(int pair);
void	card_complete(int pair, uint32_t id);
/* The same for the next n packets of a pair, whichever they are. */
void	card_sends(int pair, u_int n);

/* The device gives the bytes of packet `number' to a pair, in `parts' buffers; false: no buffers. */
bool	card_receive(int pair, u_int number, u_int len, u_int parts);
/* The same of these bytes, with an offload. */
bool	card_receive_bytes(int pair, const u_char *frame, u_int len,
	    const struct pv_net_offload *offload);
/* The interrupt of a queue. */
void	card_intr(int pair, bool tx);
/* The next packet that came up is that one. */
void	card_up(u_int number, u_int len);

/* Tasks run until there are none. */
void	card_settle(void);
/* So many seconds pass, and tasks run in each. */
void	card_seconds(u_int n);

/* Use so many pairs; returns what pv_net_use_pairs() did. */
int	card_use(u_int pairs);

/* pv_net_card_rx.c */
void	rx_frames_of_each_length(const void *arg);
void	rx_what_is_invalid_is_dropped_alone(const void *arg);
void	rx_without_memory_the_ring_is_never_empty(const void *arg);
void	rx_budget_ends_a_pass(const void *arg);
void	rx_buffers_follow_the_frames(const void *arg);
void	rx_whole_frames_in_chains(const void *arg);
void	rx_lost_interrupt(const void *arg);
void	rx_half_a_frame_is_forgotten(const void *arg);
void	rx_fast_path(const void *arg);
void	rx_fast_marks(const void *arg);
void	rx_staged(const void *arg);
void	rx_looks(const void *arg);
void	rx_notified_of_many(const void *arg);
void	rx_merged(const void *arg);
void	rx_buffers_of_several_places(const void *arg);
void	rx_memory_for_a_buffer(const void *arg);
void	rx_memory_for_a_part(const void *arg);
void	rx_layout(const void *arg);
void	rx_too_many_segments(const void *arg);
void	rx_whole_buffers_of_the_kernels_pages(const void *arg);
void	rx_gso_packets(const void *arg);

/* pv_net_card_tx.c */
void	tx_pages_without_an_address(const void *arg);
void	tx_listeners(const void *arg);
void	tx_in_software(const void *arg);
void	tx_invalid(const void *arg);
void	tx_shaped(const void *arg);
void	tx_commands(const void *arg);

/* pv_net_card_life.c */
void	life_attach_without_memory(const void *arg);
void	life_attach_with_few_buffers(const void *arg);
void	life_impossible_parameters(const void *arg);
void	life_down_at_first(const void *arg);
void	life_stopped_and_started(const void *arg);
void	life_pair_is_given_up(const void *arg);
void	life_what_waits_moves(const void *arg);
void	life_what_comes_during_a_reset_is_sent(const void *arg);
void	life_pair_that_does_not_end(const void *arg);
void	life_rings_are_resized(const void *arg);
void	life_watchdog(const void *arg);
void	life_more_pairs_are_given_up(const void *arg);
void	life_queues_settle_first(const void *arg);
void	life_left_over_notification(const void *arg);
void	life_pairs_come_later(const void *arg);
void	life_fewer_pairs_after_a_restart(const void *arg);
void	life_stopped_without_interrupts(const void *arg);
void	life_offloads_are_requested_again(const void *arg);
void	life_threads_of_pairs(const void *arg);
void	life_address_is_set_again(const void *arg);
void	life_limits_of_memory(const void *arg);
void	life_settings_in_order(const void *arg);
void	life_device_that_does_not_stop(const void *arg);
void	life_each_second(const void *arg);
void	life_more_pairs_without_memory(const void *arg);

/* pv_net_card_netmap.c */
void	netmap_detached_under_a_handler(const void *arg);
void	netmap_attaches_where_slots_fit(const void *arg);
void	netmap_sends_in_order(const void *arg);
void	netmap_receives_in_any_order(const void *arg);
void	netmap_drops_what_is_no_frame(const void *arg);
void	netmap_rings_come_and_go(const void *arg);
void	netmap_watchdog(const void *arg);
void	netmap_half_a_frame_is_forgotten(const void *arg);
void	netmap_pairs_come_later(const void *arg);

#endif /* !_PV_NET_CARD_H_ */
