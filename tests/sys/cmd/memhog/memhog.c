/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * memhog: take memory, hold it, and check that nothing else wrote to it.
 *
 * Each page is stamped with its address in its first and last words.  With -n allocations may not
 * wait: one that is refused is counted and tried again a little later.  With -r nothing is taken, but
 * a word of each page of memory is read, whoever has it: one that is not there panics.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/queue.h>
#include <sys/vmmeter.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_page.h>
#include <vm/vm_phys.h>

#include <machine/vmparam.h>

#include <kern/console_tree.h>

#define	STAMP_WORDS	(PAGE_SIZE / sizeof(uint64_t))

TAILQ_HEAD(memhog_list, vm_page);

static uint64_t *
memhog_words(vm_page_t m)
{
	return ((uint64_t *)PHYS_TO_DMAP(VM_PAGE_TO_PHYS(m)));
}

/* Take pages until there are n; returns how often the system said no. */
static u_long
memhog_take(struct memhog_list *list, u_long n, bool wait, u_long *got)
{
	u_long refused = 0;
	vm_page_t m;
	uint64_t *w;

	for (*got = 0; *got < n && !cmd_interrupted();) {
		m = vm_page_alloc_noobj(VM_ALLOC_NORMAL | VM_ALLOC_WIRED |
		    (wait ? VM_ALLOC_WAITOK : VM_ALLOC_NOWAIT));
		if (m == NULL) {
			refused++;
			pause("memhog", MAX(hz / 100, 1));
			continue;
		}
		w = memhog_words(m);
		w[0] = w[STAMP_WORDS - 1] = VM_PAGE_TO_PHYS(m);
		TAILQ_INSERT_TAIL(list, m, plinks.q);
		(*got)++;
	}
	return (refused);
}

/* Free all; returns how many pages were not as we left them. */
static u_long
memhog_free(struct memhog_list *list)
{
	u_long wrong = 0;
	vm_page_t m;
	uint64_t *w;

	while ((m = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, m, plinks.q);
		w = memhog_words(m);
		if (w[0] != VM_PAGE_TO_PHYS(m) || w[STAMP_WORDS - 1] != VM_PAGE_TO_PHYS(m))
			wrong++;
		vm_page_unwire_noq(m);
		vm_page_free(m);
	}
	return (wrong);
}

static int
memhog_read(void)
{
	vm_paddr_t pa;
	u_long n = 0;
	int i;

	for (i = 0; i < vm_phys_nsegs && !cmd_interrupted(); i++) {
		for (pa = vm_phys_segs[i].start; pa < vm_phys_segs[i].end; pa += PAGE_SIZE, n++)
			(void)*(volatile uint64_t *)PHYS_TO_DMAP(pa);
	}
	printf("memhog: %lu pages read\n", n);
	return (cmd_interrupted() ? 1 : 0);
}

static int
cmd_memhog(int argc, char **argv)
{
	struct memhog_list list = TAILQ_HEAD_INITIALIZER(list);
	struct cmd_getopt g = { .optind = 1 };
	uint64_t seconds = 0, size;
	u_long got, refused, wrong;
	bool wait = true;
	int c;

	while ((c = cmd_getopt(&g, argc, argv, "nrt:")) != -1) {
		if (c == 'n')
			wait = false;
		else if (c == 'r')
			return (memhog_read());
		else if (c == '?' || cmd_expand_number(g.optarg, &seconds) != 0)
			return (cmd_usage("memhog"));
	}
	if (g.optind != argc - 1 || cmd_expand_number(argv[g.optind], &size) != 0)
		return (cmd_usage("memhog"));
	refused = memhog_take(&list, howmany(size, PAGE_SIZE), wait, &got);
	printf("memhog: %lu pages, refused %lu times, %u free\n", got, refused, vm_free_count());
	for (; seconds > 0 && !cmd_interrupted(); seconds--)
		pause("memhog", hz);
	wrong = memhog_free(&list);
	if (wrong != 0)
		return (cmd_err("memhog", 0, "%lu pages were written to by somebody else", wrong));
	return (cmd_interrupted() ? 1 : 0);
}
CONSOLE_CMD(memhog, cmd_memhog, "take memory and hold it",
    "memhog -r | [-n] [-t seconds] size");
