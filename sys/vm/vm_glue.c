/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 *
 * A file of the tree kernel (CONTRIBUTING.md).
 */

/*
 * Kernel stacks.
 *
 * A stack is address space with KSTACK_GUARD_PAGES unmapped pages below its lowest page, so
 * that an overflow faults instead of writing into a neighbour.  Stacks of the default size are
 * cached in a zone: a thread that starts where another ended causes no TLB shootdown.
 *
 * Locking.  None of its own.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sysctl.h>

#include <vm/vm.h>
#include <vm/vm_param.h>
#include <vm/pmap.h>
#include <vm/vm_extern.h>
#include <vm/vm_page.h>
#include <vm/uma.h>

int kstack_pages = KSTACK_PAGES;
static uma_zone_t kstack_cache;

SYSCTL_INT(_kern, OID_AUTO, kstack_pages, CTLFLAG_RD, &kstack_pages, 0,
    "Pages of a kernel stack");

static void
kstack_pages_free(vm_page_t *ma, int n)
{
	while (n-- > 0) {
		vm_page_unwire_noq(ma[n]);
		vm_page_free(ma[n]);
	}
}

/*
 * The lowest address of a new stack, or 0.
 */
static vm_offset_t
kstack_create(int pages, int flags)
{
	vm_page_t ma[KSTACK_MAX_PAGES];
	vm_offset_t kva;
	int i;

	kva = kva_alloc(ptoa(pages + KSTACK_GUARD_PAGES));
	if (kva == 0)
		return (0);
	for (i = 0; i < pages; i++) {
		ma[i] = vm_page_alloc_noobj(malloc2vm_flags(flags) | VM_ALLOC_WIRED);
		if (ma[i] == NULL) {
			kstack_pages_free(ma, i);
			kva_free(kva, ptoa(pages + KSTACK_GUARD_PAGES));
			return (0);
		}
	}
	kva += ptoa(KSTACK_GUARD_PAGES);
	pmap_qenter(kva, ma, pages);
	return (kva);
}

static void
kstack_destroy(vm_offset_t ks, int pages)
{
	vm_page_t ma[KSTACK_MAX_PAGES];
	int i;

	for (i = 0; i < pages; i++)
		ma[i] = PHYS_TO_VM_PAGE(pmap_kextract(ks + ptoa(i)));
	pmap_qremove(ks, pages);
	kstack_pages_free(ma, pages);
	kva_free(ks - ptoa(KSTACK_GUARD_PAGES), ptoa(pages + KSTACK_GUARD_PAGES));
}

static int
kstack_import(void *arg, void **store, int count, int domain, int flags)
{
	int i;

	for (i = 0; i < count; i++) {
		store[i] = (void *)kstack_create(kstack_pages, flags);
		if (store[i] == NULL)
			break;
	}
	return (i);
}

static void
kstack_release(void *arg, void **store, int count)
{
	int i;

	for (i = 0; i < count; i++)
		kstack_destroy((vm_offset_t)store[i], kstack_pages);
}

/*
 * Give td a stack of so many pages, 0 for the default.  Returns 1, or 0 without memory.
 */
int
vm_thread_new(struct thread *td, int pages)
{
	vm_offset_t ks;

	if (pages <= 1)
		pages = kstack_pages;
	pages = MIN(pages, KSTACK_MAX_PAGES);
	if (pages == kstack_pages)
		ks = (vm_offset_t)uma_zalloc(kstack_cache, M_NOWAIT);
	else
		ks = kstack_create(pages, M_NOWAIT);
	if (ks == 0)
		return (0);
	td->td_kstack = ks;
	td->td_kstack_pages = pages;
	td->td_kstack_domain = 0;
	return (1);
}

void
vm_thread_dispose(struct thread *td)
{
	vm_offset_t ks = td->td_kstack;
	int pages = td->td_kstack_pages;

	td->td_kstack = 0;
	td->td_kstack_pages = 0;
	if (pages == kstack_pages)
		uma_zfree(kstack_cache, (void *)ks);
	else
		kstack_destroy(ks, pages);
}

static void
kstack_cache_init(void *dummy)
{
	kstack_cache = uma_zcache_create("kstack_cache", ptoa(kstack_pages), NULL, NULL, NULL,
	    NULL, kstack_import, kstack_release, NULL, UMA_ZONE_FIRSTTOUCH);
}
SYSINIT(vm_kstacks, SI_SUB_KMEM, SI_ORDER_ANY, kstack_cache_init, NULL);
