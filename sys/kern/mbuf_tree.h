/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The data of netstat -m: how many network buffers of each kind are allocated.
 *
 * Not FreeBSD's: netstat(1) reads the statistics of UMA there.
 */

#ifndef _KERN_MBUF_TREE_H_
#define	_KERN_MBUF_TREE_H_

#include <sys/types.h>

struct mbuf_number {
	const char	*mn_name;	/* name of the zone */
	uint64_t	 mn_current;	/* items allocated now */
	uint64_t	 mn_limit;	/* 0: no limit */
	uint32_t	 mn_size;	/* bytes of one item */
};

#define	MBUF_NUMBERS	6

/*
 * Fill in the numbers: mbufs, packets (an mbuf with its cluster, counted apart from both),
 * clusters, and clusters of a page, of 9 KB and of 16 KB.  Clusters that belong to packets,
 * cached ones included, count as clusters too.  Never sleeps.
 */
void	mbuf_get_numbers(struct mbuf_number numbers[MBUF_NUMBERS]);

#endif /* !_KERN_MBUF_TREE_H_ */
