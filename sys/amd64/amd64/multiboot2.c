/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * The boot information of a Multiboot2 loader (Multiboot2 Specification 2.0, 3.6): its size, then tags
 * on 8-byte boundaries until the one that ends it.
 *
 *	1	command line, without the kernel's name
 *	3	a module: where it begins and ends
 *	6	memory map
 *	14, 15	a copy of ACPI's RSDP of version 1, or 2
 *
 * Copied early, before anything can be printed, as bootinfo.c says.
 */
#include <sys/param.h>
#include <sys/systm.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>

#include <machine/vmparam.h>

#include <amd64/amd64/boot_tree.h>
#include <amd64/amd64/boot_loader_tree.h>

#define	LOADER_MAGIC	0x36d76289
#define	TAG_ALIGN	8

enum {
	TAG_END = 0,
	TAG_CMDLINE = 1,
	TAG_MODULE = 3,
	TAG_MEMMAP = 6,
	TAG_RSDP_OLD = 14,
	TAG_RSDP_NEW = 15,
};

struct tag {
	uint32_t	type;
	uint32_t	size;		/* with this head, without what aligns the next */
};

struct tag_module {
	struct tag	tag;
	uint32_t	start;
	uint32_t	end;
};

struct tag_memmap {
	struct tag	tag;
	uint32_t	entry_size;
	uint32_t	entry_version;
};

#define	RSDP_SIZE	36		/* of version 2 */

static char rsdp[RSDP_SIZE] __aligned(16);

static void
save_cmdline(const struct tag *tag, struct boot_loader *bl)
{
	size_t size = MIN(tag->size - sizeof(*tag) + 1, sizeof(bl->bl_cmdline));

	strlcpy(bl->bl_cmdline, (const char *)(tag + 1), size);
}

static void
save_module(const struct tag *tag, struct boot_loader *bl)
{
	const struct tag_module *tm = (const struct tag_module *)tag;
	struct boot_module *bm;

	if (tag->size < sizeof(*tm) || tm->end < tm->start || bl->bl_nmodules == BOOT_MAX_MODULES)
		return;
	bm = &bl->bl_modules[bl->bl_nmodules++];
	bm->paddr = tm->start;
	bm->size = tm->end - tm->start;
}

static void
save_memmap(const struct tag *tag, struct boot_loader *bl)
{
	const struct tag_memmap *tm = (const struct tag_memmap *)tag;
	const char *entry = (const char *)(tm + 1);
	size_t left;

	if (tag->size < sizeof(*tm) || tm->entry_size < sizeof(struct boot_memmap))
		return;
	for (left = tag->size - sizeof(*tm); left >= tm->entry_size &&
	    bl->bl_nmemmap < BOOT_MAX_MEMMAP; left -= tm->entry_size) {
		memcpy(&bl->bl_memmap[bl->bl_nmemmap++], entry, sizeof(struct boot_memmap));
		entry += tm->entry_size;
	}
}

/* The new one, if there are both. */
static void
save_rsdp(const struct tag *tag)
{
	if (boot_rsdp != 0 && tag->type == TAG_RSDP_OLD)
		return;
	memcpy(rsdp, tag + 1, MIN(tag->size - sizeof(*tag), sizeof(rsdp)));
	boot_rsdp = (vm_paddr_t)rsdp - KERNBASE;
}

static void
save_tag(const struct tag *tag, struct boot_loader *bl)
{
	switch (tag->type) {
	case TAG_CMDLINE:
		save_cmdline(tag, bl);
		break;
	case TAG_MODULE:
		save_module(tag, bl);
		break;
	case TAG_MEMMAP:
		save_memmap(tag, bl);
		break;
	case TAG_RSDP_OLD:
	case TAG_RSDP_NEW:
		save_rsdp(tag);
		break;
	}
}

void
multiboot2_save(const void *info, uint32_t magic, struct boot_loader *bl)
{
	const uint32_t total = *(const uint32_t *)info;
	const struct tag *tag;
	uint32_t at;

	bl->bl_magic = magic;
	if (magic != LOADER_MAGIC)
		return;
	bl->bl_valid = true;
	for (at = 8; at + sizeof(*tag) <= total; at += roundup2(tag->size, TAG_ALIGN)) {
		tag = (const struct tag *)((const char *)info + at);
		if (tag->type == TAG_END || tag->size < sizeof(*tag) || tag->size > total - at)
			break;
		save_tag(tag, bl);
	}
}
