/*
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * Keeps libxl-save-helper from querying Xen for page frames where there can be no page.
 *
 * Xen's special pages are below 4 GB whatever memory a domain has, and a save begins with a bitmap
 * of all frames up to them: a million, in which a domain of the lab has some ten thousand.  Each
 * one costs a lookup in Xen, eight bytes of the image, and a look at the restore.  This library is
 * preloaded, and removes the frames between the domain's memory and the device model's from the bitmap
 * as it is filled: libxenguest does so by memset(3).  libxenguest leaves out frames without a page as
 * well, but only after the query.
 *
 * A domain may have pages anywhere below the maximum that it was made with, which is in xenstore only:
 * xl mem-set changes the one that Xen knows.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <xenctrl.h>
#include <xenstore.h>

#define MAX(a, b)	((a) > (b) ? (a) : (b))
#define PAGES_OF_KB(kb)	((kb) / 4)
/* What Xen adds to a domain's memory, and more. */
#define SLACK		1024
/* Above this frame are devices, video memory and Xen's special pages. */
#define HOLE_END	0xf0000
#define BITS		8

static size_t bitmap_bytes, hole_begin, hole_end;

static void *
fill(unsigned char *to, int byte, size_t length)
{
	unsigned char *end = to;

	__asm__ __volatile__("rep stosb" : "+D" (end), "+c" (length) : "a" (byte) : "memory");
	return (to);
}

/* The most memory that a domain may have, in KB, as it was made; 0: unknown. */
static unsigned long
made_with(uint32_t domid)
{
	struct xs_handle *xs = xs_open(0);
	unsigned int length;
	char path[64], *value;
	unsigned long kb = 0;

	if (xs == NULL)
		return (0);
	snprintf(path, sizeof(path), "/local/domain/%u/memory/static-max", domid);
	value = xs_read(xs, XBT_NULL, path, &length);
	if (value != NULL)
		kb = strtoul(value, NULL, 10);
	free(value);
	xs_close(xs);
	return (kb);
}

/* libxenguest asks for the number of frames before it makes the bitmap. */
int
xc_domain_nr_gpfns(xc_interface *xch, uint32_t domid, xen_pfn_t *gpfns)
{
	int (*real)(xc_interface *, uint32_t, xen_pfn_t *) = dlsym(RTLD_NEXT, "xc_domain_nr_gpfns");
	xc_dominfo_t info;
	unsigned long kb = made_with(domid);
	int error = real(xch, domid, gpfns);

	bitmap_bytes = 0;
	if (error == 0 && kb != 0 && *gpfns > HOLE_END &&
	    xc_domain_getinfo(xch, domid, 1, &info) == 1 && info.domid == domid) {
		hole_begin = (PAGES_OF_KB(MAX(kb, info.max_memkb)) + SLACK) / BITS;
		hole_end = HOLE_END / BITS;
		if (hole_begin < hole_end)
			bitmap_bytes = (*gpfns + BITS - 1) / BITS;
	}
	return (error);
}

/* Only a bitmap of ones of that length is one of frames to be sent. */
void *
memset(void *to, int byte, size_t length)
{
	fill(to, byte, length);
	if (bitmap_bytes != 0 && (byte & 0xff) == 0xff && length >= bitmap_bytes &&
	    length < bitmap_bytes + sizeof(long))
		fill((unsigned char *)to + hole_begin, 0, hole_end - hole_begin);
	return (to);
}
