/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Names to addresses, for commands and instruments (resolver.c).
 */

#ifndef _CMD_RESOLVER_H_
#define	_CMD_RESOLVER_H_

/*
 * The address of a name, or of an address as text; family AF_UNSPEC prefers IPv4.  *scope gets
 * the interface index of an "addr%interface", else 0.  May sleep.  ENOENT, ETIMEDOUT, EINTR,
 * EAFNOSUPPORT.
 */
int	inet_resolve(const char *name, int family, struct in6_addr *a, u_int *scope);

#endif /* !_CMD_RESOLVER_H_ */
