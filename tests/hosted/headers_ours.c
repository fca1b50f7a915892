/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The values of headers.def as our own headers have them.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>

#include <dev/virtio/virtio_bus.h>
#include <dev/virtio/virtio_ring.h>
#include <dev/virtio/balloon/virtio_balloon.h>
#include <dev/virtio/block/virtio_blk.h>
#include <dev/virtio/network/virtio_net.h>
#include <dev/virtio/mmio/virtio_mmio.h>
#include <dev/virtio/pci/virtio_pci.h>

#include "headers.h"

#define	BIT(name)	{ #name, name },
#define	SAME(expr)	{ #expr, expr },
#define	PAIR(o, t)	{ #o, o },

const struct header_value headers_ours[] = {
#include "headers.def"
	{ 0, 0 }
};
