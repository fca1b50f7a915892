/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * A fuzz target: the configuration space and the BAR of a modern virtio device on PCI.
 *
 * The space is the fuzzer's, or a good device's with some of its bytes changed: any list of
 * capabilities.  What is accepted has its windows inside of the BAR, and everything that the bus does
 * with it afterwards touches no other memory, whatever the registers say.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/virtio/virtqueue.h>

#include "fuzz_input.h"
#include "host/host.h"
#include "kpi/kpi.h"
#include "model/pci_config.h"

static void
fuzz_notify(void *arg __unused, uint16_t index __unused, uint16_t next __unused)
{
}

static void
fuzz_window(const struct vtpci_region *vr, const char *name)
{

	CHECK(vr->vr_len == 0 || vr->vr_off + vr->vr_len <= BAR_SIZE, "%s: %lu bytes at %lu", name,
	    (u_long)vr->vr_len, (u_long)vr->vr_off);
}

/* The bus at work, with registers that change at any time. */
static void
fuzz_use(struct fuzz_input *in)
{
	struct virtqueue_params params = {
		.vqp_dev = pci.dev, .vqp_name = "q", .vqp_dmat = kpi_dma_tag, .vqp_size = 4,
		.vqp_features = VIRTIO_F_VERSION_1, .vqp_max_segs = 1,
		.vqp_align = VRING_USED_ALIGN, .vqp_notify = fuzz_notify,
	};
	const struct vtpci_ops *ops = pci.sc.vtp_ops;
	struct vtpci_region vr;
	struct pvq *q;
	uint16_t index, off;
	int i;

	ops->vo_config(&pci.sc, &vr);
	fuzz_window(&vr, "configuration");
	fuzz_window(&pci.sc.vtp_common, "common");
	CHECK(virtqueue_create(&params, &q) == 0, "create");
	for (i = 0; i < 8 && in->fi_left > 0; i++) {
		off = fuzz_word(in);
		if (off % 2 == 0)
			off %= VIRTIO_PCI_COMMON_SIZE;
		pci_set_bar_2(off % (BAR_SIZE - 1), fuzz_word(in));
		index = fuzz_byte(in);
		if (ops->vo_queue_size(&pci.sc, index) == 0)
			continue;
		pci.sc.vtp_bus.vb_live = false;
		pci.sc.vtp_bus.vb_features = (index & 0x80) != 0 ? VIRTIO_F_NOTIFICATION_DATA : 0;
		if (ops->vo_queue_setup(&pci.sc, index, q) != 0)
			continue;
		pci.sc.vtp_bus.vb_live = true;
		ops->vo_notify(&pci.sc, index, 1);
	}
	pvq_free(q);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint8_t way = fuzz_byte(&in);
	u_int n;

	kpi_quiet = true;
	pci_begin();
	if (way % 4 == 0) {
		pci.config[PCIR_CAP_PTR] = 0x40;
		fuzz_fill(&in, pci.config + 0x40, sizeof(pci.config) - 0x40);
	} else {
		pci_add_all_but(way % 8);
		for (n = way / 8; n > 0 && in.fi_left > 0; n--)
			pci.config[fuzz_byte(&in)] = fuzz_byte(&in);
	}
	if (vtpci_modern_attach(&pci.sc) == 0)
		fuzz_use(&in);
	pci_end();
	return (0);
}
