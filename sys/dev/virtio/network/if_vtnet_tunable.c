/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * VirtIO network device driver: the tunables, hw.vtnet.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/sysctl.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/pv_tunable.h>
#include <dev/pv/queue/pvq.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

static char vtnet_disable_features[256];

struct pv_tunable vtnet_tunables[] = {
	PV_NET_TUNABLES,
	[VTNET_CSUM_DISABLE] = PV_TUNABLE("csum_disable", 0, 0, 1, PVT_DEVICE,
	    "Use neither checksum nor segmentation offload"),
	[VTNET_TSO_DISABLE] = PV_TUNABLE("tso_disable", 0, 0, 1, PVT_DEVICE,
	    "Do not use segmentation offload"),
	[VTNET_LRO_DISABLE] = PV_TUNABLE("lro_disable", 0, 0, 1, PVT_DEVICE,
	    "Do not receive GSO packets"),
	[VTNET_MQ_DISABLE] = PV_TUNABLE("mq_disable", 0, 0, 1, PVT_DEVICE,
	    "Use one pair of queues"),
	[VTNET_MQ_MAX_PAIRS] = PV_TUNABLE("mq_max_pairs", 0, 0,
	    VIRTIO_NET_CTRL_MQ_VQ_PAIRS_MAX, PVT_DEVICE,
	    "Pairs of queues at most; 0: as many as there are CPUs"),
	[VTNET_QUEUE_RESET] = PV_TUNABLE("queue_reset", -1, -1, 1, PVT_DEVICE,
	    "Reset a stuck queue alone; -1: not in QEMU, which aborts if its network back end is full"),
	[VTNET_DEVICE_MTU] = PV_TUNABLE("device_mtu", 1, 0, 1, PVT_DEVICE,
	    "Begin with the device's MTU where that is above 1500; 0: with 1500"),
	[VTNET_DISABLE_FEATURES] = PV_TUNABLE_TEXT("disable_features",
	    vtnet_disable_features, PVT_DEVICE,
	    "Names of features not to be used, as in the VirtIO specification, separated by commas"),
};
PV_TUNABLES(vtnet_tunables, hw, "vtnet", vtnet_tunables,
    "VirtIO network devices");

int
vtnet_tunable(const struct vtnet_softc *sc, u_int which)
{
	return (pv_tunable_get(&vtnet_tunables[which], sc->vtn_dev));
}
