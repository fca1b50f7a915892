/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * Sources of random(4) that are asked for bytes.
 */

#ifndef _DEV_RANDOM_RANDOMDEV_H_
#define	_DEV_RANDOM_RANDOMDEV_H_

#include <sys/random.h>

/*
 * Store up to len bytes in buf, at once: called some times a second, in an
 * epoch section, in which no thread may sleep.  Returns how many bytes there
 * were.
 */
typedef u_int random_source_read_t(void *buf, u_int len);

struct random_source {
	const char	*rs_ident;
	enum random_entropy_source rs_source;
	random_source_read_t *rs_read;
};

/* Read a source from now on.  May sleep. */
void	random_source_register(struct random_source *rs);

/* Read it no more; it is not being read when this returns.  May sleep. */
void	random_source_deregister(struct random_source *rs);

#endif /* !_DEV_RANDOM_RANDOMDEV_H_ */
