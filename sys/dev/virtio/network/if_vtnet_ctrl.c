/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtnet(4): the control queue (VirtIO 1.3, 5.1.6.5) and its commands: receive
 * filter, Ethernet address, VLAN tags, offloads, and the acknowledgment of an
 * announcement.
 *
 * A command is three pieces of one page of memory that the device sees: class
 * and command, data, and the byte of the device's answer.  There is one at a
 * time.  The driver waits for the answer: first in a loop, since most devices
 * answer at once, then sleeping.  A device that does not answer within three
 * seconds gets no other command before it is reset, since the page is its own
 * until then.  If it does not answer after that reset either, packets flow
 * without control commands: another reset would only interrupt them again.
 *
 * Locking.  pv_net's configuration lock is held by all callers.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/endian.h>
#include <sys/malloc.h>
#include <sys/sysctl.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/pv_log.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtqueue.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

#define	VTNET_CTRL_SPINS	1000		/* of a microsecond each */
#define	VTNET_CTRL_TIMEOUT	(3 * SBT_1S)
#define	VTNET_CTRL_PAUSE	SBT_1MS

/* No valid answer: shows whether the device has written one. */
#define	VTNET_CTRL_NO_ACK	0xff

/*
 * Addresses of each kind in the device's filter; with more, it receives all of
 * that kind.
 */
#define	VTNET_MAX_HOSTS		128
#define	VTNET_MAX_GROUPS	128

MALLOC_DEFINE(M_VTNET, "vtnet", "VirtIO network devices");

int
vtnet_ctrl_alloc(struct vtnet_softc *sc)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;
	int error;

	if (!vtnet_has(sc, VIRTIO_NET_F_CTRL_VQ))
		return (0);
	error = pv_dma_alloc(&ctrl->vtc_dma, bus_get_dma_tag(sc->vtn_dev),
	    PAGE_SIZE, PAGE_SIZE);
	ctrl->vtc_mem = ctrl->vtc_dma.pdm_mem;
	return (error);
}

void
vtnet_ctrl_free(struct vtnet_softc *sc)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;

	if (ctrl->vtc_leaked)
		return;
	pv_dma_free(&ctrl->vtc_dma);
	ctrl->vtc_mem = NULL;
}

/*
 * The device was reset: the page is ours again.  If the device did not confirm
 * that, and has a command, it may still write its answer: the page is leaked,
 * as the rings are.
 */
void
vtnet_ctrl_drain(struct vtnet_softc *sc, bool stopped)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;

	if (ctrl->vtc_pvq == NULL)
		return;
	if (stopped)
		ctrl->vtc_leaked = false;
	else if (pvq_inflight(ctrl->vtc_pvq) > 0)
		ctrl->vtc_leaked = true;
	while (pvq_drain(ctrl->vtc_pvq) != NULL)
		;
	ctrl->vtc_dead = false;
}

/* Wait for the one command that is in flight. */
static int
vtnet_ctrl_wait(struct vtnet_softc *sc)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;
	sbintime_t end = sbinuptime() + VTNET_CTRL_TIMEOUT;
	struct pvq_done done;
	int spins;

	for (spins = 0; pvq_get(ctrl->vtc_pvq, &done, 1) == 0; spins++) {
		if (pvq_broken(ctrl->vtc_pvq) || sbinuptime() > end)
			return (ETIMEDOUT);
		if (spins < VTNET_CTRL_SPINS)
			DELAY(1);
		else
			pause_sbt("vtctrl", VTNET_CTRL_PAUSE, 0, 0);
	}
	return (0);
}

/* A command was not answered. */
static void
vtnet_ctrl_silent(struct vtnet_softc *sc, uint8_t class, uint8_t command)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;

	ctrl->vtc_dead = true;
	ctrl->vtc_timeouts++;
	if (PV_LOGS(ctrl->vtc_timeouts))
		device_printf(sc->vtn_dev,
		    "the device does not answer control command %u/%u: " "%s\n",
		    class, command, ctrl->vtc_hopeless ? "going on without"
		    : "it will be reset");
	if (!ctrl->vtc_hopeless)
		pv_dev_need_reset(pv_net_dev(sc->vtn_pn), PV_DEV_ALL,
		    ETIMEDOUT);
	ctrl->vtc_hopeless = true;
}

static int
vtnet_ctrl_post(struct vtnet_softc *sc, size_t len)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;
	bus_dma_segment_t segs[VTNET_CTRL_SEGS] = {
		{ ctrl->vtc_dma.pdm_addr + VTNET_CTRL_HDR,
		    sizeof(struct virtio_net_ctrl) },
		{ ctrl->vtc_dma.pdm_addr + VTNET_CTRL_DATA, len },
		{ ctrl->vtc_dma.pdm_addr + VTNET_CTRL_ACK, 1 },
	};
	struct pvq_chain chain = {
		.pc_segs = segs, .pc_nread = 2, .pc_nwrite = 1,
		    .pc_cookie = ctrl
	};

	if (len == 0) {
		segs[1] = segs[2];
		chain.pc_nread = 1;
	}
	pv_dma_sync(&ctrl->vtc_dma, BUS_DMASYNC_PREREAD | BUS_DMASYNC_PREWRITE);
	return (pvq_submit(ctrl->vtc_pvq, &chain));
}

void
vtnet_ctrl_check(struct vtnet_softc *sc)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;

	if (ctrl->vtc_pvq == NULL ||
	    ctrl->vtc_pvq->q_max_segs >= VTNET_CTRL_SEGS)
		return;
	ctrl->vtc_short = true;
	device_printf(sc->vtn_dev,
	    "the control queue holds %u descriptors, and a command is %u: "
	    "going on without\n", ctrl->vtc_pvq->q_size, VTNET_CTRL_SEGS);
}

/* Where the data of the next command is stored, if there is a control queue. */
void *
vtnet_ctrl_data(struct vtnet_softc *sc)
{
	return (sc->vtn_ctrl.vtc_mem + VTNET_CTRL_DATA);
}

/*
 * Send the device a command, whose `len' bytes of data are in the page already.
 * Returns 0; EIO if the device refused; ETIMEDOUT if it never answered; ENXIO
 * if there is no working control queue.
 */
int
vtnet_ctrl_command(struct vtnet_softc *sc, uint8_t class, uint8_t command,
    size_t len)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;
	struct virtio_net_ctrl *hdr;
	int error;

	KASSERT(len <= VTNET_CTRL_DATA_MAX, ("%s: %zu bytes", __func__, len));
	if (ctrl->vtc_pvq == NULL || ctrl->vtc_dead || ctrl->vtc_short)
		return (ENXIO);
	ctrl->vtc_commands++;
	hdr = (struct virtio_net_ctrl *)(ctrl->vtc_mem + VTNET_CTRL_HDR);
	hdr->class = class;
	hdr->command = command;
	ctrl->vtc_mem[VTNET_CTRL_ACK] = VTNET_CTRL_NO_ACK;
	error = vtnet_ctrl_post(sc, len);
	if (error == 0)
		error = vtnet_ctrl_wait(sc);
	if (error != 0) {
		vtnet_ctrl_silent(sc, class, command);
		return (error);
	}
	ctrl->vtc_hopeless = false;
	/* The byte of the answer counts, whatever the used length. */
	ctrl->vtc_lengths = virtqueue_invalid_lengths(ctrl->vtc_pvq);
	pv_dma_sync(&ctrl->vtc_dma,
	    BUS_DMASYNC_POSTREAD | BUS_DMASYNC_POSTWRITE);
	if (ctrl->vtc_mem[VTNET_CTRL_ACK] == VIRTIO_NET_OK)
		return (0);
	ctrl->vtc_errors++;
	return (EIO);
}

static int
vtnet_ctrl_switch(struct vtnet_softc *sc, uint8_t command, bool on)
{
	sc->vtn_ctrl.vtc_mem[VTNET_CTRL_DATA] = on;
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_RX, command, 1));
}

/*
 * One of several switches, none of which depends on another: of their errors
 * the first is kept.
 */
static void
vtnet_ctrl_switch_too(struct vtnet_softc *sc, uint8_t command, bool on,
    int *error)
{
	int refused;

	/* One that does not answer is not asked again. */
	if (*error != 0 && *error != EIO)
		return;
	refused = vtnet_ctrl_switch(sc, command, on);
	if (*error == 0)
		*error = refused;
}

/*
 * Append a list of the filter's table, a 32-bit count and its addresses, at
 * `len'.
 */
static size_t
vtnet_ctrl_list(struct vtnet_softc *sc, size_t len,
    const uint8_t (*addrs)[ETHER_ADDR_LEN], u_int n)
{
	uint8_t *data = vtnet_ctrl_data(sc);
	uint32_t count = vtnet_32(sc, n);

	memcpy(data + len, &count, sizeof(count));
	if (n > 0)
		memcpy(data + len + sizeof(count), addrs, n * ETHER_ADDR_LEN);
	return (len + sizeof(count) + n * ETHER_ADDR_LEN);
}

/*
 * The filter's table is two lists: unicast addresses beside our own, and
 * multicast (5.1.6.5.2).
 */
static int
vtnet_ctrl_table(struct vtnet_softc *sc, const struct pv_net_filter *filter,
    u_int nhosts, u_int ngroups)
{
	size_t len;

	_Static_assert(2 * sizeof(uint32_t) + (VTNET_MAX_HOSTS +
	    VTNET_MAX_GROUPS) * ETHER_ADDR_LEN <= VTNET_CTRL_DATA_MAX,
	    "the filter's table does not fit");
	len = vtnet_ctrl_list(sc, 0, filter->pf_hosts, nhosts);
	len = vtnet_ctrl_list(sc, len, filter->pf_groups, ngroups);
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_MAC,
	    VIRTIO_NET_CTRL_MAC_TABLE_SET, len));
}

/*
 * Without CTRL_RX a device has no filter to set: it accepts everything, and
 * ether_input() drops what is not for us.
 */
int
vtnet_set_filter(void *softc, const struct pv_net_filter *filter)
{
	struct vtnet_softc *sc = softc;
	bool extra = vtnet_has(sc, VIRTIO_NET_F_CTRL_RX_EXTRA),
	    allmulti = filter->pf_allmulti;
	bool allhosts = filter->pf_allhosts, promisc, refused;
	u_int ngroups = filter->pf_ngroups, nhosts = filter->pf_nhosts;
	int error;

	if (!vtnet_has(sc, VIRTIO_NET_F_CTRL_VQ | VIRTIO_NET_F_CTRL_RX))
		return (0);
	if (ngroups > VTNET_MAX_GROUPS) {
		sc->vtn_ctrl.vtc_overflows++;
		allmulti = true;
		ngroups = 0;
	}
	if (nhosts > VTNET_MAX_HOSTS) {
		sc->vtn_ctrl.vtc_overflows++;
		allhosts = true;
		nhosts = 0;
	}
	/* The table first: then all-multicast can be disabled without a gap. */
	error = vtnet_ctrl_table(sc, filter, nhosts, ngroups);
	if (error == EIO) {
		allmulti = true;
		allhosts = allhosts || nhosts > 0;
		error = 0;
	}
	promisc = filter->pf_promisc || (allhosts && !extra);
	/*
	 * A device that can't receive all groups has to receive everything:
	 * that replaces it.
	 */
	vtnet_ctrl_switch_too(sc, VIRTIO_NET_CTRL_RX_ALLMULTI, allmulti,
	    &error);
	refused = error == EIO;
	if (refused) {
		promisc = promisc || allmulti;
		error = 0;
	}
	if (extra) {
		vtnet_ctrl_switch_too(sc, VIRTIO_NET_CTRL_RX_ALLUNI, allhosts,
		    &error);
		if (error == EIO) {
			refused = true;
			promisc = promisc || allhosts;
			error = 0;
		}
		vtnet_ctrl_switch_too(sc, VIRTIO_NET_CTRL_RX_NOMULTI,
		    ngroups == 0 && !allmulti, &error);
	}
	vtnet_ctrl_switch_too(sc, VIRTIO_NET_CTRL_RX_PROMISC, promisc, &error);
	if (error == EIO || refused)
		device_printf(sc->vtn_dev,
		    "the device refused to change its receive filter\n");
	return (error);
}

int
vtnet_set_lladdr(void *softc, const uint8_t *lladdr)
{
	struct vtnet_softc *sc = softc;

	if (vtnet_has(sc, VIRTIO_NET_F_CTRL_VQ | VIRTIO_NET_F_CTRL_MAC_ADDR)) {
		memcpy(vtnet_ctrl_data(sc), lladdr, ETHER_ADDR_LEN);
		return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_MAC,
		    VIRTIO_NET_CTRL_MAC_ADDR_SET, ETHER_ADDR_LEN));
	}
	/*
	 * Legacy devices have it in their configuration (5.1.4.2); others keep
	 * their own.
	 */
	if (sc->vtn_modern)
		return (EOPNOTSUPP);
	return (virtio_write_config(sc->vtn_dev,
	    offsetof(struct virtio_net_config, mac), lladdr, ETHER_ADDR_LEN));
}

/*
 * Which of the receive offloads that were negotiated the device may use from
 * now on (5.1.6.5.6).  Frames in flight are not changed.
 */
int
vtnet_set_offloads(void *softc, u_int offloads)
{
	static const struct {
		u_int		offload;
		uint64_t	feature;
	} map[] = {
		{ PV_NET_RXCSUM, VIRTIO_NET_F_GUEST_CSUM },
		{ PV_NET_LRO4, VIRTIO_NET_F_GUEST_TSO4 },
		{ PV_NET_LRO6, VIRTIO_NET_F_GUEST_TSO6 },
		{ PV_NET_LRO_ECN, VIRTIO_NET_F_GUEST_ECN },
		{ PV_NET_RX_USO,
		    VIRTIO_NET_F_GUEST_USO4 | VIRTIO_NET_F_GUEST_USO6 },
	};
	struct vtnet_softc *sc = softc;
	uint64_t features = 0;
	size_t i;

	if (!vtnet_has(sc, VIRTIO_NET_F_CTRL_GUEST_OFFLOADS))
		return (0);
	for (i = 0; i < nitems(map); i++) {
		if ((offloads & map[i].offload) != 0)
			features |= map[i].feature;
	}
	features = vtnet_64(sc, features);
	memcpy(vtnet_ctrl_data(sc), &features, sizeof(features));
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_GUEST_OFFLOADS,
	    VIRTIO_NET_CTRL_GUEST_OFFLOADS_SET, sizeof(features)));
}

int
vtnet_set_vlan(void *softc, uint16_t tag, bool on)
{
	struct vtnet_softc *sc = softc;

	tag = vtnet_16(sc, tag);
	memcpy(vtnet_ctrl_data(sc), &tag, sizeof(tag));
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_VLAN, on ?
	    VIRTIO_NET_CTRL_VLAN_ADD : VIRTIO_NET_CTRL_VLAN_DEL, sizeof(tag)));
}

/*
 * Our addresses were announced, as the device requested (5.1.6.5.4).  One that
 * was stopped since then has lost the request.
 */
void
vtnet_announced(struct vtnet_softc *sc)
{
	if (pv_dev_lock_started(pv_net_dev(sc->vtn_pn)) != 0)
		return;
	(void)vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_ANNOUNCE,
	    VIRTIO_NET_CTRL_ANNOUNCE_ACK, 0);
	pv_dev_unlock(pv_net_dev(sc->vtn_pn));
}

void
vtnet_ctrl_sysctl(struct vtnet_softc *sc)
{
	struct vtnet_ctrl *ctrl = &sc->vtn_ctrl;
	const struct {
		const char	*name;
		uint64_t	*counter;
		const char	*what;
	} counters[] = {
		{ "ctrl_commands", &ctrl->vtc_commands,
		    "Control commands sent to the device" },
		{ "ctrl_errors", &ctrl->vtc_errors,
		    "Control commands that the device refused" },
		{ "ctrl_timeouts", &ctrl->vtc_timeouts,
		    "Control commands that the device never answered" },
		{ "ctrl_lengths", &ctrl->vtc_lengths,
		    "Answers to control commands with an invalid used length" },
		{ "filter_overflows", &ctrl->vtc_overflows,
		    "Times there were more addresses than the device's filter takes"
		    },
	};
	struct sysctl_oid_list *list;
	size_t i;

	list = SYSCTL_CHILDREN(device_get_sysctl_tree(sc->vtn_dev));
	for (i = 0; i < nitems(counters); i++)
		SYSCTL_ADD_U64(&sc->vtn_sysctl, list, OID_AUTO,
		    counters[i].name, CTLFLAG_RD, counters[i].counter, 0,
		    counters[i].what);
}
