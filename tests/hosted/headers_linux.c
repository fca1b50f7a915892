/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The values of headers.def as Linux's headers have them.
 */

#include <stddef.h>

#include <linux/virtio_balloon.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>

#include "headers.h"

#define	BIT(name)	{ "1 << " #name, 1ULL << name },
#define	SAME(expr)	{ #expr, expr },
#define	PAIR(o, t)	{ #t, t },

const struct header_value headers_linux[] = {
#include "headers.def"
	{ 0, 0 }
};
