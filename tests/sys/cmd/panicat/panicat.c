/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * panicat: have the kernel panic at an instruction of a function, whichever CPU comes there first.
 *
 * The instruction is replaced by UD2.  Of several places the one that is reached first counts.  What is
 * done after the panic, as a dump, may need the function, so that it is made whole again before: by a
 * console device, which is what a panic calls first when the other CPUs have stopped.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/cons.h>
#include <sys/kernel.h>
#include <sys/linker.h>

#include <machine/atomic.h>

#include <kern/console_tree.h>

#define	PANICAT_UD2	0x0b0f
#define	PANICAT_MAX	64

struct panicat_function {
	const char	*pf_name;
	caddr_t		 pf_at;
};

static struct {
	volatile uint16_t *at;
	uint16_t	was;
} panicat_places[PANICAT_MAX];
static int panicat_n;

static void
panicat_restore(void)
{
	/* The last first: two places may be one. */
	for (; panicat_n > 0; panicat_n--)
		*panicat_places[panicat_n - 1].at = panicat_places[panicat_n - 1].was;
}

static void
panicat_putc(struct consdev *cn __unused, int c __unused)
{
	if (KERNEL_PANICKED())
		panicat_restore();
}

static int
panicat_getc(struct consdev *cn __unused)
{
	return (-1);
}

static void
panicat_grab(struct consdev *cn __unused)
{
}

static const struct consdev_ops panicat_ops = {
	.cn_getc = panicat_getc,
	.cn_putc = panicat_putc,
	.cn_grab = panicat_grab,
	.cn_ungrab = panicat_grab,
};
static struct consdev panicat_console = { .cn_ops = &panicat_ops };

/* Also of functions that are no symbols to the linker: static ones.  All begin at a multiple of 16. */
static int
panicat_find(linker_file_t lf, void *arg)
{
	struct panicat_function *pf = arg;
	char name[64];
	caddr_t at;
	long off;

	for (at = lf->address; at < lf->address + lf->size; at += 16) {
		if (linker_ddb_search_symbol_name(at, name, sizeof(name), &off) == 0 && off == 0 &&
		    strcmp(name, pf->pf_name) == 0) {
			pf->pf_at = at;
			return (1);
		}
	}
	return (0);
}

/* Replaces an instruction. */
static void
panicat_place(caddr_t at)
{
	panicat_places[panicat_n].at = (volatile uint16_t *)at;
	panicat_places[panicat_n].was = *(volatile uint16_t *)at;
	panicat_n++;
	atomic_store_rel_16((volatile uint16_t *)at, PANICAT_UD2);
}

static int
cmd_panicat(int argc, char **argv)
{
	struct cmd_getopt g = { .optind = 1 };
	struct panicat_function pf = {};
	uint64_t offset;
	int i;

	if (cmd_getopt(&g, argc, argv, "") != -1 || argc - g.optind < 2 ||
	    argc - g.optind > PANICAT_MAX)
		return (cmd_usage("panicat"));
	for (i = g.optind + 1; i < argc; i++)
		if (cmd_expand_number(argv[i], &offset) != 0)
			return (cmd_usage("panicat"));
	pf.pf_name = argv[g.optind];
	if (linker_file_foreach(panicat_find, &pf) == 0)
		return (cmd_err("panicat", 0, "%s: no such function", pf.pf_name));
	if (cnadd(&panicat_console) != 0)
		return (cmd_err("panicat", 0, "too many console devices"));
	for (i = g.optind + 1; i < argc; i++) {
		(void)cmd_expand_number(argv[i], &offset);
		panicat_place(pf.pf_at + offset);
	}
	while (!cmd_interrupted())
		pause("panicat", hz);
	panicat_restore();
	cnremove(&panicat_console);
	return (1);
}
CONSOLE_CMD(panicat, cmd_panicat, "panic at instructions of a function",
    "panicat function offset ...");
