/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * vtnet(4): interrupt coalescing by the device (VirtIO 1.3, 5.1.6.5.10): it
 * interrupts after so many packets or microseconds, whichever is first.
 *
 *	NOTF_COAL       dev.vtnet.N.coal.rx_*, tx_*: for all queues of a kind
 *	VQ_NOTF_COAL    dev.vtnet.N.coal.rxq0_* ...: for one
 *
 * After a reset the values are set again, in this order; after that of one
 * queue, its own.
 *
 * Locking.  pv_net's configuration lock.
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

#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

static int
vtnet_coal_tell(const struct vtnet_coal *coal)
{
	struct vtnet_softc *sc = coal->vtl_softc;
	struct virtio_net_ctrl_coal_vq data = {
		.vq_index = vtnet_16(sc, coal->vtl_vq),
		.coal.max_packets = vtnet_32(sc, coal->vtl_packets),
		.coal.max_usecs = vtnet_32(sc, coal->vtl_usecs),
	};

	if (coal->vtl_command == VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET) {
		memcpy(vtnet_ctrl_data(sc), &data, sizeof(data));
		return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_NOTF_COAL,
		    coal->vtl_command, sizeof(data)));
	}
	memcpy(vtnet_ctrl_data(sc), &data.coal, sizeof(data.coal));
	return (vtnet_ctrl_command(sc, VIRTIO_NET_CTRL_NOTF_COAL,
	    coal->vtl_command, sizeof(data.coal)));
}

/*
 * What a device that was reset has for a queue: the values of its kind
 * (5.1.6.5.10).
 */
static const struct vtnet_coal *
vtnet_coal_kind(const struct vtnet_coal *coal)
{
	struct vtnet_softc *sc = coal->vtl_softc;
	static const struct vtnet_coal none;
	uint8_t command = coal->vtl_vq % 2 == VIRTIO_NET_Q_TX ?
	    VIRTIO_NET_CTRL_NOTF_COAL_TX_SET : VIRTIO_NET_CTRL_NOTF_COAL_RX_SET;
	int i;

	if (coal->vtl_command != VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET)
		return (&none);
	for (i = 0; i < sc->vtn_ncoals; i++) {
		if (sc->vtn_coals[i].vtl_command == command)
			return (&sc->vtn_coals[i]);
	}
	return (&none);
}

/* Set again what is not what the device begins with. */
static void
vtnet_coal_again(const struct vtnet_coal *coal)
{
	const struct vtnet_coal *kind = vtnet_coal_kind(coal);

	if (coal->vtl_packets != kind->vtl_packets ||
	    coal->vtl_usecs != kind->vtl_usecs)
		(void)vtnet_coal_tell(coal);
}

/* The device has lost its configuration. */
void
vtnet_set_coalescing(void *softc)
{
	struct vtnet_softc *sc = softc;
	int i;

	for (i = 0; i < sc->vtn_ncoals; i++)
		vtnet_coal_again(&sc->vtn_coals[i]);
}

/* A queue was reset alone: it has the values of its kind (5.1.6.5.10). */
void
vtnet_coal_restore_queue(struct vtnet_softc *sc, uint16_t vq)
{
	int i;

	for (i = 0; i < sc->vtn_ncoals; i++) {
		if (sc->vtn_coals[i].vtl_command ==
		    VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET &&
		    sc->vtn_coals[i].vtl_vq == vq)
			vtnet_coal_again(&sc->vtn_coals[i]);
	}
}

/* A value of a kind of queue is that of each of them. */
static void
vtnet_coal_spread(const struct vtnet_coal *from)
{
	struct vtnet_softc *sc = from->vtl_softc;
	bool tx = from->vtl_command == VIRTIO_NET_CTRL_NOTF_COAL_TX_SET;
	struct vtnet_coal *coal;

	for (coal = sc->vtn_coals; coal < sc->vtn_coals + sc->vtn_ncoals;
	    coal++) {
		if (coal->vtl_command != VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET ||
		    (coal->vtl_vq % 2 == VIRTIO_NET_Q_TX) != tx)
			continue;
		coal->vtl_packets = from->vtl_packets;
		coal->vtl_usecs = from->vtl_usecs;
	}
}

static int
vtnet_coal_handle(struct vtnet_coal *coal, uint32_t *field, uint32_t value)
{
	uint32_t before = *field;
	int error;

	*field = value;
	error = vtnet_coal_tell(coal);
	if (error != 0)
		*field = before;
	else if (coal->vtl_command != VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET)
		vtnet_coal_spread(coal);
	return (error);
}

/* arg2: 1 for the packets, 0 for the time. */
static int
vtnet_coal_sysctl(SYSCTL_HANDLER_ARGS)
{
	struct vtnet_coal *coal = arg1;
	uint32_t *field = arg2 != 0 ? &coal->vtl_packets : &coal->vtl_usecs;
	u_int value = *field;
	int error;

	error = sysctl_handle_int(oidp, &value, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	error = pv_dev_lock_started(pv_net_dev(coal->vtl_softc->vtn_pn));
	if (error != 0)
		return (error);
	error = vtnet_coal_handle(coal, field, value);
	pv_dev_unlock(pv_net_dev(coal->vtl_softc->vtn_pn));
	return (error);
}

static void
vtnet_coal_add(struct vtnet_softc *sc, struct sysctl_oid_list *list,
    const char *prefix, uint8_t command, uint16_t vq)
{
	struct sysctl_ctx_list *ctx = &sc->vtn_coal_sysctl;
	struct vtnet_coal *coal = &sc->vtn_coals[sc->vtn_ncoals++];
	char name[32];

	coal->vtl_softc = sc;
	coal->vtl_command = command;
	coal->vtl_vq = vq;
	snprintf(name, sizeof(name), "%s_usecs", prefix);
	SYSCTL_ADD_PROC(ctx, list, OID_AUTO, name, CTLTYPE_UINT | CTLFLAG_RW |
	    CTLFLAG_MPSAFE, coal, 0, vtnet_coal_sysctl, "IU",
	    "Microseconds that an interrupt is delayed at most");
	snprintf(name, sizeof(name), "%s_packets", prefix);
	SYSCTL_ADD_PROC(ctx, list, OID_AUTO, name,
	    CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE, coal, 1,
	    vtnet_coal_sysctl, "IU", "Packets for one interrupt");
}

void
vtnet_coal_attach(struct vtnet_softc *sc)
{
	struct sysctl_oid_list *list;
	struct sysctl_oid *node;
	char name[16];
	int i;

	if ((sc->vtn_features & (VIRTIO_NET_F_NOTF_COAL |
	    VIRTIO_NET_F_VQ_NOTF_COAL)) == 0)
		return;
	sc->vtn_coals = malloc((2 + 2 * sc->vtn_npairs) *
	    sizeof(*sc->vtn_coals), M_VTNET, M_WAITOK | M_ZERO);
	sysctl_ctx_init(&sc->vtn_coal_sysctl);
	node = SYSCTL_ADD_NODE(&sc->vtn_coal_sysctl,
	    SYSCTL_CHILDREN(device_get_sysctl_tree(sc->vtn_dev)), OID_AUTO,
	    "coal", CTLFLAG_RD | CTLFLAG_MPSAFE, 0,
	    "Interrupt coalescing by the device");
	list = SYSCTL_CHILDREN(node);
	if (vtnet_has(sc, VIRTIO_NET_F_NOTF_COAL)) {
		vtnet_coal_add(sc, list, "rx", VIRTIO_NET_CTRL_NOTF_COAL_RX_SET,
		    0);
		vtnet_coal_add(sc, list, "tx", VIRTIO_NET_CTRL_NOTF_COAL_TX_SET,
		    0);
	}
	for (i = 0; i < 2 * sc->vtn_npairs &&
	    vtnet_has(sc, VIRTIO_NET_F_VQ_NOTF_COAL); i++) {
		snprintf(name, sizeof(name),
		    "%s%d", i % 2 == VIRTIO_NET_Q_TX ? "txq" : "rxq", i / 2);
		vtnet_coal_add(sc, list, name, VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET,
		    i);
	}
}

void
vtnet_coal_free(struct vtnet_softc *sc)
{
	if (sc->vtn_coals == NULL)
		return;
	(void)sysctl_ctx_free(&sc->vtn_coal_sysctl);
	/* A reset may be in progress, which has them restored. */
	pv_dev_lock(pv_net_dev(sc->vtn_pn));
	free(sc->vtn_coals, M_VTNET);
	sc->vtn_coals = NULL;
	sc->vtn_ncoals = 0;
	pv_dev_unlock(pv_net_dev(sc->vtn_pn));
}
