/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What the files of sys/vm share with each other and with the module linker, and FreeBSD's own
 * headers don't declare.
 *
 * Not FreeBSD's: its page allocator is divided in another way, and gets no memory after boot.
 */

#ifndef _VM_TREE_H_
#define	_VM_TREE_H_

#include <sys/_lock.h>
#include <sys/_mutex.h>

#include <vm/vm.h>

/* The lock of the page allocator: free lists, free counts, vm_page fields of free pages. */
extern struct mtx_padalign vm_page_free_mtx;

/* Pages on the free lists; written under vm_page_free_mtx, read without. */
extern u_int vm_page_free_count;

/*
 * Give the memory [start, end) to the page allocator.  Its vm_page array is carved from its own
 * beginning.  Ranges come in ascending order and don't overlap.  Returns the number of pages
 * that became usable (0 if the range is too small to be of use).
 */
u_long	vm_phys_populate(vm_paddr_t start, vm_paddr_t end);

/*
 * Make [start, end) a segment, its vm_page structures in array.  Nothing of it is free yet.  False if
 * there are too many segments.
 */
bool	vm_phys_seg_add(vm_paddr_t start, vm_paddr_t end, vm_page_t array);

/* Wake the page daemon: free memory fell below the mark at which caches are given back. */
void	vm_pageout_wakeup(void);

/* The allocator calls it, with its lock held, when pages were freed while threads wait for some. */
void	vm_pageout_pages_freed(void);

/* True while a thread sleeps in vm_wait().  Written under vm_page_free_mtx. */
extern bool vm_pages_needed;

/*
 * Memory for a module's text and data within the top 2 GB, where -mcmodel=kernel code must
 * live: zeroed, wired, page granular, readable, writable and executable.  Does not sleep.
 * NULL when address space or memory is short.  Free it with the same size.
 */
void	*kmem_text_alloc(vm_size_t size);
void	kmem_text_free(void *addr, vm_size_t size);

void	kmem_arena_init(void);

/* UMA comes up in two steps: before and after kernel address space can be allocated. */
void	uma_startup(void);

#endif /* _VM_TREE_H_ */
