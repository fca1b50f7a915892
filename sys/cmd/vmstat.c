/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * vmstat: -z zones, -m malloc types, -i interrupts, -s sums.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/bus.h>
#include <sys/interrupt.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/time.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>
#include <vm/uma.h>
#include <vm/uma_tree.h>

#include <kern/console_tree.h>
#include <kern/malloc_stat_tree.h>

static bool
vmstat_zone(const struct uma_zone_stat *zs, void *arg)
{
	char name[40];

	snprintf(name, sizeof(name), "%s:", zs->zs_name);
	printf("%-20s %6u, %6ju,%8ju,%8ju,%8ju,%4ju,%4ju,%4u\n", name, zs->zs_size,
	    (uintmax_t)zs->zs_limit, (uintmax_t)zs->zs_used, (uintmax_t)zs->zs_free,
	    (uintmax_t)zs->zs_allocs, (uintmax_t)zs->zs_fails, (uintmax_t)zs->zs_sleeps, 0);
	return (!cmd_interrupted());
}

static int
vmstat_z(void)
{
	printf("%-20s %6s  %6s %8s %8s %8s %4s %4s %4s\n", "ITEM", "SIZE", "LIMIT", "USED",
	    "FREE", "REQ", "FAIL", "SLEEP", "XDOMAIN");
	uma_stat_foreach(vmstat_zone, NULL);
	return (0);
}

/*
 * One malloc type: those that never had an allocation are left out.
 */
static void
vmstat_type(struct malloc_type *type, void *arg)
{
	struct malloc_type_stats sum;
	const char *comma;
	uint64_t bytes;
	int bit;

	if (cmd_interrupted())
		return;
	malloc_type_sum(type, &sum);
	if (sum.mts_numallocs == 0)
		return;
	bytes = sum.mts_memalloced - sum.mts_memfreed;
	printf("%16s %5ju %6juK %8ju  ", type->ks_shortdesc,
	    (uintmax_t)(sum.mts_numallocs - sum.mts_numfrees), (uintmax_t)howmany(bytes, 1024),
	    (uintmax_t)sum.mts_numallocs);
	comma = "";
	for (bit = 0; bit < 64; bit++) {
		if ((sum.mts_size & 1UL << bit) != 0) {
			printf("%s%lu", comma, 16UL << bit);
			comma = ",";
		}
	}
	printf("\n");
}

static int
vmstat_m(void)
{
	printf("%16s %5s %7s %8s  %s\n", "Type", "InUse", "MemUse", "Requests", "Size(s)");
	malloc_type_list(vmstat_type, NULL);
	return (0);
}

/*
 * Interrupt counts: intrnames has a name of fixed length, filled up with blanks, for each.
 */
static int
vmstat_i(void)
{
	const char *name;
	size_t i, len, n, width;
	u_long total;
	time_t up = MAX(time_uptime, 1);

	printf("%-26s %20s %10s\n", "interrupt", "total", "rate");
	total = 0;
	n = sintrcnt / sizeof(*intrcnt);
	width = n == 0 ? 0 : sintrnames / n;
	for (i = 0; i < n; i++) {
		if (intrcnt[i] == 0)
			continue;
		name = intrnames + i * width;
		for (len = strnlen(name, width); len > 0 && name[len - 1] == ' '; len--)
			continue;
		printf("%-26.*s %20lu %10lu\n", (int)len, name, intrcnt[i], intrcnt[i] / up);
		total += intrcnt[i];
	}
	printf("%-26s %20lu %10lu\n", "Total", total, total / up);
	return (0);
}

static int
vmstat_s(void)
{
	printf("%9ju cpu context switches\n", (uintmax_t)VM_CNT_FETCH(v_swtch));
	printf("%9ju device interrupts\n", (uintmax_t)VM_CNT_FETCH(v_intr));
	printf("%9ju software interrupts\n", (uintmax_t)VM_CNT_FETCH(v_soft));
	printf("%9ju kernel threads created\n", (uintmax_t)VM_CNT_FETCH(v_kthreads));
	printf("%9u pages wired down\n", vm_wire_count());
	printf("%9u pages free\n", vm_free_count());
	printf("%9u bytes per page\n", vm_cnt.v_page_size);
	return (0);
}

static int
cmd_vmstat(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	int ch, error, what;

	what = 0;
	while ((ch = cmd_getopt(&g, argc, argv, "imsz")) != -1) {
		if (ch == '?' || (what != 0 && what != ch))
			return (cmd_usage(argv[0]));
		what = ch;
	}
	if (g.optind != argc)
		return (cmd_usage(argv[0]));
	switch (what) {
	case 'i':
		error = vmstat_i();
		break;
	case 'm':
		error = vmstat_m();
		break;
	case 'z':
		error = vmstat_z();
		break;
	case 's':
		error = vmstat_s();
		break;
	default:
		return (cmd_usage(argv[0]));
	}
	return (error);
}
CONSOLE_CMD(vmstat, cmd_vmstat, "show memory, allocations, interrupts",
    "vmstat -i | -m | -s | -z");
