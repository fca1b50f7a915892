/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The zones of per-CPU memory that counter(9), malloc statistics and others share.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/malloc.h>
#include <sys/pcpu.h>

#include <vm/uma.h>

uma_zone_t pcpu_zone_4;
uma_zone_t pcpu_zone_8;
uma_zone_t pcpu_zone_16;
uma_zone_t pcpu_zone_32;
uma_zone_t pcpu_zone_64;

static uma_zone_t
pcpu_zone(const char *name, size_t size)
{
	return (uma_zcreate(name, size, NULL, NULL, NULL, NULL, size - 1, UMA_ZONE_PCPU));
}

static void
pcpu_zones_init(void *dummy)
{
	pcpu_zone_4 = pcpu_zone("pcpu-4", 4);
	pcpu_zone_8 = pcpu_zone("pcpu-8", 8);
	pcpu_zone_16 = pcpu_zone("pcpu-16", 16);
	pcpu_zone_32 = pcpu_zone("pcpu-32", 32);
	pcpu_zone_64 = pcpu_zone("pcpu-64", 64);
}
SYSINIT(pcpu_zones, SI_SUB_COUNTER, SI_ORDER_FIRST, pcpu_zones_init, NULL);
