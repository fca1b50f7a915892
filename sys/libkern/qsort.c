/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * qsort(3), qsort_r(3) and bsearch(3).
 *
 * The sort is a heap sort: in place, without recursion, never worse than n log n, which matters
 * more on a kernel stack than the last bit of speed.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/libkern.h>

static void
swap_bytes(char *a, char *b, size_t size)
{
	char c;

	for (; size > 0; size--, a++, b++) {
		c = *a;
		*a = *b;
		*b = c;
	}
}

/* Lets the element at root sink until the heap of n elements is in order again. */
static void
heap_sink(char *base, size_t root, size_t n, size_t size,
    int (*compar)(const void *, const void *, void *), void *thunk)
{
	size_t child;

	while ((child = 2 * root + 1) < n) {
		if (child + 1 < n &&
		    compar(base + child * size, base + (child + 1) * size, thunk) < 0)
			child++;
		if (compar(base + root * size, base + child * size, thunk) >= 0)
			return;
		swap_bytes(base + root * size, base + child * size, size);
		root = child;
	}
}

void
qsort_r(void *vbase, size_t n, size_t size, int (*compar)(const void *, const void *, void *),
    void *thunk)
{
	char *base = vbase;
	size_t i;

	for (i = n / 2; i > 0; i--)
		heap_sink(base, i - 1, n, size, compar, thunk);
	for (i = n; i > 1; i--) {
		swap_bytes(base, base + (i - 1) * size, size);
		heap_sink(base, 0, i - 1, size, compar, thunk);
	}
}

struct plain_compare {
	int	(*pc_compar)(const void *, const void *);
};

static int
compare_plain(const void *a, const void *b, void *thunk)
{
	return (((struct plain_compare *)thunk)->pc_compar(a, b));
}

void
qsort(void *base, size_t n, size_t size, int (*compar)(const void *, const void *))
{
	struct plain_compare pc = { compar };

	qsort_r(base, n, size, compare_plain, &pc);
}

void *
bsearch(const void *key, const void *base, size_t n, size_t size,
    int (*compar)(const void *, const void *))
{
	const char *low = base, *mid;
	int c;

	while (n > 0) {
		mid = low + n / 2 * size;
		c = compar(key, mid);
		if (c == 0)
			return (__DECONST(char *, mid));
		if (c > 0) {
			low = mid + size;
			n = (n - 1) / 2;
		} else
			n /= 2;
	}
	return (NULL);
}
