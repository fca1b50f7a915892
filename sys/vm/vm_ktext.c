/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Memory for the text and data of modules.
 *
 * Code that is compiled with -mcmodel=kernel reaches its symbols, its own and the kernel's, by
 * 32-bit signed addresses, so it must lie in the top 2 GB of the address space, behind the
 * kernel itself.  The machine sets a range aside there; an arena divides it.
 *
 * Gaps.  Everything is writable and executable; no protection by segment.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/vmem.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/vm_tree.h>

#include <amd64/amd64/boot_tree.h>

/* int3: what a stale pointer to a function ends in. */
#define	KTEXT_TRAP	0xcc

static vmem_t *ktext_arena;

static void
ktext_release(vm_offset_t addr, vm_size_t size)
{
	vm_page_t m;
	vm_offset_t va;

	for (va = addr; va < addr + size; va += PAGE_SIZE) {
		m = PHYS_TO_VM_PAGE(pmap_kextract(va));
		pmap_qremove(va, 1);
		vm_page_unwire_noq(m);
		vm_page_free(m);
	}
}

void *
kmem_text_alloc(vm_size_t size)
{
	vmem_addr_t addr;
	vm_size_t done;
	vm_page_t m;

	size = round_page(size);
	if (vmem_alloc(ktext_arena, size, M_BESTFIT | M_NOWAIT, &addr) != 0)
		return (NULL);
	for (done = 0; done < size; done += PAGE_SIZE) {
		m = vm_page_alloc_noobj(VM_ALLOC_NORMAL | VM_ALLOC_WIRED | VM_ALLOC_ZERO);
		if (m == NULL) {
			ktext_release(addr, done);
			vmem_free(ktext_arena, addr, size);
			return (NULL);
		}
		pmap_qenter(addr + done, &m, 1);
	}
	if (pmap_change_prot(addr, size, VM_PROT_ALL) != 0)
		panic("%s: module text at %#lx can't be made executable", __func__, addr);
	return ((void *)addr);
}

void
kmem_text_free(void *mem, vm_size_t size)
{
	vm_offset_t addr = (vm_offset_t)mem;

	size = round_page(size);
	/*
	 * QEMU's TCG compares each store to a page with what it has translated of it, until that has
	 * been overwritten: a stack in such a page makes its thread some hundred times slower.
	 */
	memset(mem, KTEXT_TRAP, size);
	ktext_release(addr, size);
	vmem_free(ktext_arena, addr, size);
}

static void
ktext_init(void *dummy)
{
	ktext_arena = vmem_create("kernel text", ktext_avail, ktext_end - ktext_avail, PAGE_SIZE,
	    0, M_WAITOK);
}
SYSINIT(ktext, SI_SUB_KMEM, SI_ORDER_ANY, ktext_init, NULL);
