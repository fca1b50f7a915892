/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

#ifndef _BADMOD_H_
#define	_BADMOD_H_

typedef void bad_func_t(void);

struct bad_case {
	const char	*bc_name;
	bad_func_t	*bc_func;
};

/* Ended by a case without a name. */
extern const struct bad_case bad_lock_cases[];
extern const struct bad_case bad_mem_cases[];
extern const struct bad_case bad_net_cases[];
extern const struct bad_case bad_sleep_cases[];

MALLOC_DECLARE(M_BADMOD);

/* Each calls func in a context of its own, and returns when that has finished. */
void	bad_in_thread(bad_func_t *func);
void	bad_in_callout(bad_func_t *func);
void	bad_in_filter(bad_func_t *func);
void	bad_in_ithread(bad_func_t *func);
void	bad_in_rendezvous(bad_func_t *func);
void	bad_in_task(bad_func_t *func);

#endif /* !_BADMOD_H_ */
