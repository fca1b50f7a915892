/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * FreeBSD's own Xen core: the grant table.  References are in lists that begin with a variable of the
 * caller's, and end with GNTTAB_LIST_END.
 */

#ifndef __ASM_GNTTAB_H__
#define	__ASM_GNTTAB_H__

#include <xen/xen-os.h>
#include <xen/hypervisor.h>

#define	GNTTAB_LIST_END	GRANT_REF_INVALID

/* A list of count references.  Returns 0, ENOSPC or ENOMEM. */
int	gnttab_alloc_grant_references(uint16_t count, grant_ref_t *pprivate_head);
void	gnttab_free_grant_references(grant_ref_t head);

/* Take one from a list, and put it there. */
int	gnttab_claim_grant_reference(grant_ref_t *pprivate_head);
void	gnttab_release_grant_reference(grant_ref_t *private_head, grant_ref_t release);

/* frame is a page's number; flags is not 0: for reading only. */
void	gnttab_grant_foreign_access_ref(grant_ref_t ref, domid_t domid, unsigned long frame,
	    int flags);

/* Has the peer mapped it? */
int	gnttab_query_foreign_access(grant_ref_t ref);

/* Returns 0, with a message, if the peer has it mapped; else 1. */
int	gnttab_end_foreign_access_ref(grant_ref_t ref);

#endif /* !__ASM_GNTTAB_H__ */
