/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * What the boot loader passes: of PVH struct hvm_start_info (xen/arch-x86/hvm/start_info.h), of
 * Multiboot2 its boot information (multiboot2.c).
 *
 * The structure, the command line and the lists that it points to are in memory that is about to
 * be used, so bootinfo_save() copies everything first.  Then bootinfo_kenv() makes the kernel
 * environment of the command line, and bootinfo_memory() makes phys_avail[] of the memory map:
 * whole pages of RAM above 1 MB, without the kernel and the modules.
 *
 * Gaps: a loader that passes no memory map (start_info version 0, or an old Xen) is refused.
 */
#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/reboot.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/vm_phys.h>
#include <vm/vm_dumpset.h>
#include <vm/pmap.h>

#include <machine/cpu.h>
#include <machine/cpufunc.h>
#include <machine/md_var.h>
#include <machine/vmparam.h>

#include <amd64/amd64/boot_tree.h>
#include <amd64/amd64/boot_loader_tree.h>

#define	START_INFO_MAGIC	0x336ec578

struct start_info {
	uint32_t	magic;
	uint32_t	version;
	uint32_t	flags;
	uint32_t	nr_modules;
	uint64_t	modlist_paddr;
	uint64_t	cmdline_paddr;
	uint64_t	rsdp_paddr;
	uint64_t	memmap_paddr;		/* from version 1 on */
	uint32_t	memmap_entries;
	uint32_t	reserved;
};

struct start_info_module {
	uint64_t	paddr;
	uint64_t	size;
	uint64_t	cmdline_paddr;
	uint64_t	reserved;
};

#define	LOW_MEMORY	0x100000	/* BIOS data, option ROMs, the AP trampoline: not for us */

static struct boot_loader loader;
static char kenv_buf[BOOT_MAX_CMDLINE + 2];

vm_paddr_t phys_avail[PHYS_AVAIL_COUNT];
vm_paddr_t dump_avail[PHYS_AVAIL_COUNT];
vm_paddr_t boot_rsdp;
long	Maxmem;
long	physmem;
long	realmem;

/* Where the kernel was loaded, and the first byte behind it. */
vm_paddr_t kernphys = KERNLOAD;
vm_paddr_t KERNend;

/* The loader's structures are below 4 GB, which locore.S mapped at the DMAP. */
static const void *
boot_ptr(vm_paddr_t pa)
{
	return ((const void *)PHYS_TO_DMAP(pa));
}

static void
pvh_save(const struct start_info *si, struct boot_loader *bl)
{
	const struct start_info_module *list;
	u_int i;

	bl->bl_magic = si->magic;
	if (si->magic != START_INFO_MAGIC)
		return;
	bl->bl_valid = true;
	boot_rsdp = si->rsdp_paddr;
	if (si->modlist_paddr != 0) {
		list = boot_ptr(si->modlist_paddr);
		bl->bl_nmodules = MIN(si->nr_modules, BOOT_MAX_MODULES);
		for (i = 0; i < bl->bl_nmodules; i++) {
			bl->bl_modules[i].paddr = list[i].paddr;
			bl->bl_modules[i].size = list[i].size;
		}
	}
	if (si->version >= 1 && si->memmap_paddr != 0) {
		bl->bl_nmemmap = MIN(si->memmap_entries, BOOT_MAX_MEMMAP);
		memcpy(bl->bl_memmap, boot_ptr(si->memmap_paddr),
		    bl->bl_nmemmap * sizeof(bl->bl_memmap[0]));
	}
	if (si->cmdline_paddr != 0)
		strlcpy(bl->bl_cmdline, boot_ptr(si->cmdline_paddr), sizeof(bl->bl_cmdline));
}

/*
 * Copy the loader's data.  Nothing may be printed yet; invalid data leave loader.bl_valid unset,
 * and bootinfo_memory() panics.
 */
void
bootinfo_save(vm_paddr_t loader_data, u_int loader_magic)
{
	KERNend = (vm_paddr_t)_end - KERNBASE;
	if (loader_magic == 0)
		pvh_save(boot_ptr(loader_data), &loader);
	else
		multiboot2_save(boot_ptr(loader_data), loader_magic, &loader);
}

void
boot_archive(const void **data, size_t *size)
{
	*data = NULL;
	*size = 0;
	if (loader.bl_nmodules == 0 || loader.bl_modules[0].size == 0)
		return;
	*data = (const void *)PHYS_TO_DMAP(loader.bl_modules[0].paddr);
	*size = loader.bl_modules[0].size;
}

/*
 * A word of the command line that starts with '-': the flags of boot(8) that mean something here.
 */
static void
kenv_flags(const char *word, size_t len)
{
	while (len-- > 0) {
		if (*word++ == 'v')
			boothowto |= RB_VERBOSE;
	}
}

/*
 * Copy one word of the command line to out, without its quotes.  Returns where the next begins.
 * out never needs more room than the word has.
 */
static const char *
kenv_word(const char *p, char *out, size_t *lenp)
{
	bool quoted = false;
	size_t n = 0;

	for (; *p != '\0' && (quoted || *p != ' '); p++) {
		if (*p == '"')
			quoted = !quoted;
		else
			out[n++] = *p;
	}
	*lenp = n;
	return (p);
}

/*
 * Make the static kernel environment: KEY=VALUE words, separated by spaces; a value may be quoted
 * with "".  A word without '=' sets that name to 1, one that starts with '-' is boot flags.
 */
void
bootinfo_kenv(void)
{
	const char *p = loader.bl_cmdline;
	size_t len, pos = 0;

	for (;;) {
		while (*p == ' ')
			p++;
		if (*p == '\0' || pos + 4 >= sizeof(kenv_buf))
			break;
		p = kenv_word(p, &kenv_buf[pos], &len);
		len = MIN(len, sizeof(kenv_buf) - pos - 4);
		if (len == 0 || kenv_buf[pos] == '=')
			continue;
		if (kenv_buf[pos] == '-') {
			kenv_flags(&kenv_buf[pos + 1], len - 1);
			continue;
		}
		kenv_buf[pos + len] = '\0';
		if (strchr(&kenv_buf[pos], '=') == NULL) {
			kenv_buf[pos + len++] = '=';
			kenv_buf[pos + len++] = '1';
			kenv_buf[pos + len] = '\0';
		}
		pos += len + 1;
	}
	kenv_buf[pos] = kenv_buf[pos + 1] = '\0';
	init_static_kenv(kenv_buf, 0);
	if (getenv_is_true("boot_verbose"))
		boothowto |= RB_VERBOSE;
}

/* Number of entries of phys_avail[] in use; entries come in pairs of start and end. */
static int
avail_count(void)
{
	int i;

	for (i = 0; phys_avail[i + 1] != 0; i += 2)
		;
	return (i);
}

/* Add the whole pages of [start, end) to phys_avail[], which stays sorted. */
static void
avail_add(vm_paddr_t start, vm_paddr_t end)
{
	int i, n = avail_count();

	start = round_page(start);
	end = trunc_page(end);
	if (start >= end || n + 4 > PHYS_AVAIL_COUNT)
		return;
	for (i = n; i > 0 && phys_avail[i - 2] > start; i -= 2) {
		phys_avail[i] = phys_avail[i - 2];
		phys_avail[i + 1] = phys_avail[i - 1];
	}
	phys_avail[i] = start;
	phys_avail[i + 1] = end;
}

/* Drop entry i of phys_avail[]. */
static void
avail_delete(int i)
{
	do {
		phys_avail[i] = phys_avail[i + 2];
		phys_avail[i + 1] = phys_avail[i + 3];
		i += 2;
	} while (phys_avail[i - 1] != 0);
}

/* Take [start, end) out of phys_avail[]. */
static void
avail_exclude(vm_paddr_t start, vm_paddr_t end)
{
	vm_paddr_t s, e;
	int i = 0;

	start = trunc_page(start);
	end = round_page(end);
	while (phys_avail[i + 1] != 0) {
		s = phys_avail[i];
		e = phys_avail[i + 1];
		if (e <= start || s >= end) {
			i += 2;
			continue;
		}
		avail_delete(i);
		avail_add(s, MIN(e, start));
		avail_add(MAX(s, end), e);
		i = 0;
	}
}

/* hw.physmem: pretend that there is less memory. */
static void
avail_limit(void)
{
	u_long limit;

	if (TUNABLE_ULONG_FETCH("hw.physmem", &limit) && limit >= 32 * 1024 * 1024UL)
		avail_exclude(limit, ~0UL >> 12 << 12);
}

/*
 * Fill phys_avail[], dump_avail[] (all RAM), Maxmem, realmem and physmem.
 */
void
bootinfo_memory(void)
{
	u_int i;

	if (!loader.bl_valid)
		panic("not entered by a PVH or Multiboot2 loader: its magic is %#x",
		    loader.bl_magic);
	if (loader.bl_nmemmap == 0)
		panic("the loader passed no memory map");
	for (i = 0; i < loader.bl_nmemmap; i++) {
		if (loader.bl_memmap[i].type == BOOT_MEMMAP_RAM)
			avail_add(loader.bl_memmap[i].addr,
			    loader.bl_memmap[i].addr + loader.bl_memmap[i].size);
	}
	memcpy(dump_avail, phys_avail, sizeof(dump_avail));
	for (i = 0; phys_avail[i + 1] != 0; i += 2) {
		realmem += atop(phys_avail[i + 1] - phys_avail[i]);
		Maxmem = MAX(Maxmem, (long)atop(phys_avail[i + 1]));
	}
	avail_exclude(0, LOW_MEMORY);
	avail_exclude(kernphys, KERNend);
	for (i = 0; i < loader.bl_nmodules; i++)
		avail_exclude(loader.bl_modules[i].paddr,
		    loader.bl_modules[i].paddr + loader.bl_modules[i].size);
	avail_limit();
	for (i = 0; phys_avail[i + 1] != 0; i += 2)
		physmem += atop(phys_avail[i + 1] - phys_avail[i]);
}

vm_paddr_t
bootinfo_steal(u_int n)
{
	vm_paddr_t pa;
	int i;

	for (i = 0; phys_avail[i + 1] != 0; i += 2) {
		if (phys_avail[i + 1] - phys_avail[i] < ptoa(n) ||
		    phys_avail[i] + ptoa(n) > 1UL << 32)
			continue;
		pa = phys_avail[i];
		phys_avail[i] += ptoa(n);
		if (phys_avail[i] == phys_avail[i + 1])
			avail_delete(i);
		memset((void *)PHYS_TO_DMAP(pa), 0, ptoa(n));
		return (pa);
	}
	panic("no memory for %u boot pages", n);
}
