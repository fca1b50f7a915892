/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * pv_net's queues as rings of netmap(4), which is this file: a pair has an interrupt while it is
 * stopped.
 *
 * netmap(4) frees its rings, and the interface, when the queues are stopped.  An interrupt handler that
 * found a queue active calls netmap(4) without that queue's lock, and may be preempted just before, for
 * as long as a whole detachment takes.  So it does both in one section of the network epoch, and who
 * stops the queues waits for such sections: from the moment when no queue is active any more.
 */

#include "pv_net_card.h"

#include <sys/epoch.h>
#include <net/netmap.h>
#include <dev/netmap/netmap_kern.h>

static char buffers[2][2048];	/* 0 is no buffer */
static struct netmap_adapter adapter;
static struct netmap_kring krings[CARD_QUEUES];
static bool native;		/* netmap has the queues, and its rings are there */
static u_int irqs;		/* calls of netmap */
static u_int depth;		/* sections of the network epoch */
static bool blocked;		/* a thread waits for their ends */
static void (*preempted)(void);	/* runs in place of a handler that is about to call netmap */

struct netmap_adapter *
card_netmap_adapter(if_t ifp)
{

	adapter.ifp = ifp;
	return (&adapter);
}

void *
card_netmap_buf(struct netmap_slot *slot __unused, uint64_t *paddr)
{

	if (paddr != NULL)
		*paddr = (uintptr_t)buffers[1];
	return (buffers[1]);
}

void *
card_netmap_no_buf(void)
{

	return (buffers[0]);
}

struct netmap_kring *
netmap_kring_on(struct netmap_adapter *na __unused, u_int q, enum txrx t)
{

	return (native ? &krings[pv_net_number(q, t == NR_TX)] : NULL);
}

bool
nm_native_on(struct netmap_adapter *na)
{

	CHECK(na == &adapter, "another port");
	return (native);
}

void
netmap_krings_mode_commit(struct netmap_adapter *na, int on)
{

	CHECK(na == &adapter, "another port");
	native = on != 0;
}

int
netmap_attach(struct netmap_adapter *na)
{

	CHECK(na->num_rx_rings == 2 && na->num_tx_rings == 2, "%u and %u rings of two pairs",
	    na->num_rx_rings, na->num_tx_rings);
	adapter = *na;
	return (0);
}

void
netmap_detach(if_t ifp)
{

	CHECK(ifp == adapter.ifp && !native, "a port with rings is gone");
}

int
netmap_ring_reinit(struct netmap_kring *kring __unused)
{

	CHECK(false, "the driver found an invalid slot");
	return (1);
}

int
netmap_rx_irq(if_t ifp, u_int q, u_int *work)
{

	CHECK(kpi_mutexes == 0, "a lock is held");
	/* The thread that starts the queues is the one that would stop them. */
	if (preempted != NULL) {
		CHECK(depth == 1, "netmap is called outside of the network epoch");
		preempted();
	}
	CHECK(native && q < CARD_PAIRS && ifp == card.ca_pn->pn_ifp, "netmap's rings are freed");
	irqs++;
	if (work != NULL)
		*work = 0;
	return (0);
}

void
_epoch_enter_preempt(epoch_t epoch __unused, epoch_tracker_t et __unused EPOCH_FILE_LINE)
{

	depth++;
}

void
_epoch_exit_preempt(epoch_t epoch __unused, epoch_tracker_t et __unused EPOCH_FILE_LINE)
{

	CHECK(depth > 0, "no section");
	depth--;
}

static void
interrupts(void)
{
	u_int i;

	for (i = 0; i < CARD_QUEUES && card.ca_peers[i] != NULL; i++)
		card_intr(pv_net_pair(i), pv_net_is_tx(i));
}

/* Who waits here with a handler in a section does so until that has left it. */
static void
waits_for_sections(void)
{
	u_int before = irqs;

	blocked |= depth > 0;
	interrupts();
	CHECK(irqs == before, "a queue is active while the wait for its handlers begins");
}

static void
card_up_or_down(bool up)
{
	struct pv_dev *pvd = pv_net_dev(card.ca_pn);

	pv_dev_lock(pvd);
	if (up)
		(void)pv_dev_up(pvd);
	else
		pv_dev_down(pvd);
	pv_dev_unlock(pvd);
}

/* Another thread detaches the card: netmap's rings are there for as long as it waits. */
static void
detaches(void)
{

	preempted = NULL;
	card_up_or_down(false);
	native = blocked;
}

/* netmap gets the queues of a card with two pairs. */
static void
netmap_begin(void)
{
	static union {
		struct netmap_ring ring;
		char		 memory[sizeof(struct netmap_ring) +
				    CARD_SIZE * sizeof(struct netmap_slot)];
	} rings[CARD_QUEUES];
	u_int i;

	card_begin(2);
	pv_net_netmap_attach(card.ca_pn);
	CHECK(adapter.ifp == card.ca_pn->pn_ifp, "no port");
	memset(krings, 0, sizeof(krings));
	memset(rings, 0, sizeof(rings));
	for (i = 0; i < CARD_QUEUES; i++) {
		krings[i] = (struct netmap_kring){ .na = &adapter, .ring = &rings[i].ring,
		    .ring_id = pv_net_pair(i) };
	}
	irqs = 0;
	blocked = false;
	kpi_epoch_waits = waits_for_sections;
	CHECK(adapter.nm_register(&adapter, 1) == 0 && native, "a program gets no rings");
}

static void
netmap_end(void)
{

	native = false;
	kpi_epoch_waits = NULL;
	pv_net_netmap_detach(card.ca_pn);
	card_end();
}

void
netmap_detached_under_a_handler(const void *arg __unused)
{
	u_int i, before;

	for (i = 0; i < 4; i++) {
		netmap_begin();
		before = irqs;
		preempted = detaches;
		card_intr(pv_net_pair(i), pv_net_is_tx(i));
		CHECK(irqs == before + 1 && preempted == NULL, "netmap was not called");
		CHECK(depth == 0, "the handler is still in its section");
		/* The other thread goes on, and netmap frees its rings. */
		native = false;
		interrupts();
		CHECK(irqs == before + 1, "netmap was called later");
		netmap_end();
	}
}
