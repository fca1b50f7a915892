/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: vtnet(4)'s control queue, whose device answers what the fuzzer says.
 *
 * The used ring and the byte of the answer are the device's; a command ends with an answer, a refusal,
 * or none in time, after which no other is posted until the device is reset.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <net/ethernet.h>
#include <machine/bus.h>

#include <dev/pv/queue/pvq.h>
#include <dev/pv/dev/pv_dev.h>
#include <dev/pv/net/pv_net.h>
#include <dev/virtio/virtio.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/virtqueue.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/network/if_vtnetvar.h>

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"

#define	FUZZ_SIZE	4
#define	FUZZ_HOSTS	3

static struct vtnet_softc sc;
static struct fuzz_input in;
static struct virtqueue_addrs addrs;
static uint16_t used;
static sbintime_t now;
static u_int resets, posted;

void
binuptime(struct bintime *bt)
{

	now += SBT_1S / 4;
	bt->sec = now >> 32;
	bt->frac = (uint64_t)now << 32;
}

struct pv_dev *
pv_net_dev(struct pv_net *pn __unused)
{

	return (NULL);
}

void
pv_dev_need_reset(struct pv_dev *pvd __unused, u_int queue __unused, int error __unused)
{

	resets++;
}

/* The device at work: it answers well, or writes to what it shares. */
static void
fuzz_notify(void *arg __unused, uint16_t index __unused, uint16_t next __unused)
{
	uint8_t *ring = (uint8_t *)(uintptr_t)addrs.vqa_desc;
	uint8_t *elem = (uint8_t *)(uintptr_t)addrs.vqa_device + 4 + 8 * (used % FUZZ_SIZE);
	uint8_t what = fuzz_byte(&in);
	uint32_t id, len = 1;
	uint16_t off, v;

	posted++;
	sc.vtn_ctrl.vtc_mem[VTNET_CTRL_ACK] = what % 8 < 6 ? 0 : what;
	for (; what >= 0xc0; what -= 0x20) {
		off = fuzz_word(&in);
		v = fuzz_word(&in);
		memcpy(ring + off % (vring_size(FUZZ_SIZE, VRING_USED_ALIGN) - 1), &v, sizeof(v));
	}
	if (what % 16 == 15)
		return;
	id = *(uint16_t *)((uint8_t *)(uintptr_t)addrs.vqa_driver + 4 + 2 * (used % FUZZ_SIZE));
	if (what % 16 == 14)
		id = fuzz_word(&in);
	if (what % 16 == 13)
		len = fuzz_word(&in);
	memcpy(elem, &id, 4);
	memcpy(elem + 4, &len, 4);
	used++;
	memcpy((uint8_t *)(uintptr_t)addrs.vqa_device + 2, &used, 2);
}

static void
fuzz_reset(void)
{

	vtnet_ctrl_drain(&sc, true);
	CHECK(pvq_reinit(sc.vtn_ctrl.vtc_pvq) == 0, "reinit");
	used = 0;
}

static void
fuzz_command(void)
{
	static uint8_t hosts[FUZZ_HOSTS][ETHER_ADDR_LEN];
	struct pv_net_filter filter = { .pf_hosts = hosts, .pf_groups = hosts };
	uint8_t what = fuzz_byte(&in);
	bool dead = sc.vtn_ctrl.vtc_dead;
	u_int before = posted;
	int error;

	filter.pf_promisc = (what & 2) != 0;
	filter.pf_allmulti = (what & 4) != 0;
	filter.pf_allhosts = (what & 8) != 0;
	filter.pf_nhosts = (what >> 4) % (FUZZ_HOSTS + 1);
	filter.pf_ngroups = (what >> 6) % (FUZZ_HOSTS + 1);
	error = (what & 1) != 0 ? vtnet_set_filter(&sc, &filter) : vtnet_set_lladdr(&sc, hosts[0]);
	CHECK(!dead || (error == ENXIO && posted == before), "error %d, %u posted", error,
	    posted - before);
	CHECK(!sc.vtn_ctrl.vtc_dead || error != 0, "no answer, and no error");
	CHECK(pvq_inflight(sc.vtn_ctrl.vtc_pvq) == 0 || sc.vtn_ctrl.vtc_dead, "in flight");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct virtqueue_params params = {
		.vqp_dev = kpi_device(), .vqp_name = "ctrl", .vqp_dmat = kpi_dma_tag,
		.vqp_features = VIRTIO_F_VERSION_1, .vqp_size = FUZZ_SIZE,
		.vqp_max_segs = VTNET_CTRL_SEGS, .vqp_align = VRING_USED_ALIGN,
		.vqp_notify = fuzz_notify,
	};

	in = (struct fuzz_input){ data, size };
	kpi_quiet = true;
	memset(&sc, 0, sizeof(sc));
	now = 0;
	used = 0;
	resets = posted = 0;
	sc.vtn_dev = kpi_device();
	sc.vtn_modern = true;
	sc.vtn_features = VIRTIO_F_VERSION_1 | VIRTIO_NET_F_CTRL_VQ | VIRTIO_NET_F_CTRL_RX |
	    VIRTIO_NET_F_CTRL_MAC_ADDR | ((fuzz_byte(&in) & 1) != 0 ? VIRTIO_NET_F_CTRL_RX_EXTRA : 0);
	CHECK(vtnet_ctrl_alloc(&sc) == 0, "no page");
	CHECK(virtqueue_create(&params, &sc.vtn_ctrl.vtc_pvq) == 0, "no queue");
	virtqueue_addrs(sc.vtn_ctrl.vtc_pvq, &addrs);
	while (in.fi_left > 0) {
		fuzz_command();
		if (sc.vtn_ctrl.vtc_dead && fuzz_byte(&in) % 4 != 0)
			fuzz_reset();
	}
	CHECK(resets <= sc.vtn_ctrl.vtc_timeouts, "%u resets", resets);
	fuzz_reset();
	pvq_free(sc.vtn_ctrl.vtc_pvq);
	vtnet_ctrl_free(&sc);
	CHECK(kpi_mallocs == 0 && kpi_dma_maps == 0 && kpi_dma_tags == 0, "leak");
	return (0);
}
