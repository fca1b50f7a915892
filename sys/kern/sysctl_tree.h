/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Access to the sysctl tree for the command sysctl(8) (kern_sysctl.c, cmd/sysctl.c).
 *
 * Not FreeBSD's: sysctl(8) reads names and formats by sysctls there.
 */

#ifndef _KERN_SYSCTL_TREE_H_
#define	_KERN_SYSCTL_TREE_H_

#include <sys/sysctl.h>

/* An entry by name, or the next child of parent; held until sysctl_release(). */
struct sysctl_oid *sysctl_hold(const char *name);
struct sysctl_oid *sysctl_hold_next(struct sysctl_oid *parent, struct sysctl_oid *oidp);
void	sysctl_release(struct sysctl_oid *oidp);

struct sysctl_oid *sysctl_find_name(struct sysctl_oid_list *list, const char *name, size_t len);
void	sysctl_fullname(struct sysctl_oid *oidp, char *buf, size_t size);

/* Reads and writes an entry that is held. */
int	sysctl_io(struct sysctl_oid *oidp, void *old, size_t *oldlenp, const void *new,
	    size_t newlen);

/* Size and sign of each type of number; size 0: not a number. */
struct sysctl_number {
	uint8_t	size;		/* bytes */
	bool	is_signed;
};
extern const struct sysctl_number sysctl_numbers[CTLTYPE + 1];

/*
 * The number that value spells, in the entry's type, into raw (8 bytes); *len is its size.
 * EINVAL when it is none, ERANGE when it does not fit.
 */
int	sysctl_parse(struct sysctl_oid *oidp, const char *value, void *raw, size_t *len);

#endif /* !_KERN_SYSCTL_TREE_H_ */
