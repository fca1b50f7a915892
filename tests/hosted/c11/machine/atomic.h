/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * atomic(9) by the compiler's C11 atomics, in place of the machine's, for the build with
 * ThreadSanitizer: it does not see what an instruction in assembler orders, and x86's inlines order
 * more than their names say, so that a missing acquire or release shows on another machine only.
 *
 * Fences.  ThreadSanitizer does not know atomic_thread_fence(): each fence is made what C11 says of
 * it by host/race.c.  A release fence makes the next store of the thread a release: the nearest one in
 * the code, which is the one that a fence is written for.  An acquire fence acquires what the loads
 * since the last acquire fence have read, the latest four of them: an index is often compared with
 * another.  What reads and writes in one is both.  A sequentially consistent fence is taken for an
 * acquire only, so that the store of an index behind it has to be a release itself.  The order of a
 * store and a later load, which is all that atomic_thread_fence_seq_cst() adds, is no matter of data
 * races; the same tests without a sanitizer show that.
 *
 * Volatile.  A volatile access is taken for a relaxed atomic one (-tsan-distinguish-volatile), as in a
 * kernel; host/race.c has the compiler's calls for them.
 */

#ifndef _MACHINE_ATOMIC_H_
#define	_MACHINE_ATOMIC_H_

#include <sys/types.h>

#define	mb()	__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define	wmb()	__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define	rmb()	__atomic_thread_fence(__ATOMIC_SEQ_CST)

void	host_race_load(const volatile void *);
_Bool	host_race_armed(void);
void	host_race_acquire(void);
void	host_race_release(void);

#define	atomic_thread_fence_acq()	host_race_acquire()
#define	atomic_thread_fence_rel()	host_race_release()
#define	atomic_thread_fence_acq_rel()	(host_race_acquire(), host_race_release())
#define	atomic_thread_fence_seq_cst()	host_race_acquire()
#define	atomic_interrupt_fence()	__atomic_signal_fence(__ATOMIC_SEQ_CST)

/* Any type: what has no order of its own, and what FreeBSD has as a macro. */
#define	C11_LOAD(p) __extension__ ({					\
	__typeof__(*(p)) _v = __atomic_load_n((p), __ATOMIC_RELAXED);	\
									\
	host_race_load(p);						\
	_v;								\
})
#define	C11_STORE(p, v) do {						\
	if (host_race_armed())						\
		__atomic_store_n((p), (v), __ATOMIC_RELEASE);		\
	else								\
		__atomic_store_n((p), (v), __ATOMIC_RELAXED);		\
} while (0)

#define	atomic_load_bool(p)		C11_LOAD(p)
#define	atomic_load_char(p)		C11_LOAD(p)
#define	atomic_load_short(p)		C11_LOAD(p)
#define	atomic_load_int(p)		C11_LOAD(p)
#define	atomic_load_long(p)		C11_LOAD(p)
#define	atomic_load_8(p)		C11_LOAD(p)
#define	atomic_load_16(p)		C11_LOAD(p)
#define	atomic_load_32(p)		C11_LOAD(p)
#define	atomic_load_64(p)		C11_LOAD(p)
#define	atomic_load_ptr(p)		C11_LOAD(p)
#define	atomic_load_consume_ptr(p)	__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define	atomic_store_bool(p, v)		C11_STORE(p, v)
#define	atomic_store_char(p, v)		C11_STORE(p, v)
#define	atomic_store_short(p, v)	C11_STORE(p, v)
#define	atomic_store_int(p, v)		C11_STORE(p, v)
#define	atomic_store_long(p, v)		C11_STORE(p, v)
#define	atomic_store_8(p, v)		C11_STORE(p, v)
#define	atomic_store_16(p, v)		C11_STORE(p, v)
#define	atomic_store_32(p, v)		C11_STORE(p, v)
#define	atomic_store_64(p, v)		C11_STORE(p, v)
#define	atomic_store_ptr(p, v)		C11_STORE(p, v)

/* What reads and writes in one, without an order of its own. */
#define	C11_EXCHANGED(p, v, op) __extension__ ({			\
	__typeof__(v) _was = host_race_armed() ?			\
	    __atomic_##op((p), (v), __ATOMIC_RELEASE) :			\
	    __atomic_##op((p), (v), __ATOMIC_RELAXED);			\
									\
	host_race_load(p);						\
	_was;								\
})

/* The order of a suffix. */
#define	C11_		__ATOMIC_RELAXED
#define	C11_acq_	__ATOMIC_ACQUIRE
#define	C11_rel_	__ATOMIC_RELEASE

#define	C11_OP(name, type, t, order, op, v)				\
static inline void							\
atomic_##name##_##order##type(volatile t *p, t x)			\
{									\
									\
	(void)__atomic_##op(p, v, C11_##order);				\
}

#define	C11_CMPSET(type, t, order)					\
static inline int							\
atomic_fcmpset_##order##type(volatile t *p, t *old, t x)		\
{									\
									\
	return (__atomic_compare_exchange_n(p, old, x, 0, C11_##order,	\
	    __ATOMIC_RELAXED));						\
}									\
static inline int							\
atomic_cmpset_##order##type(volatile t *p, t old, t x)			\
{									\
									\
	return (atomic_fcmpset_##order##type(p, &old, x));		\
}

#define	C11_ORDERED(type, t, order)					\
C11_OP(set, type, t, order, fetch_or, x)				\
C11_OP(clear, type, t, order, fetch_and, ~x)				\
C11_OP(add, type, t, order, fetch_add, x)				\
C11_OP(subtract, type, t, order, fetch_sub, x)				\
C11_CMPSET(type, t, order)

#define	C11_TYPE(type, t)						\
static inline t								\
atomic_load_acq_##type(const volatile t *p)				\
{									\
									\
	return (__atomic_load_n(p, __ATOMIC_ACQUIRE));			\
}									\
static inline void							\
atomic_store_rel_##type(volatile t *p, t v)				\
{									\
									\
	__atomic_store_n(p, v, __ATOMIC_RELEASE);			\
}									\
static inline t								\
atomic_fetchadd_##type(volatile t *p, t v)				\
{									\
									\
	return (C11_EXCHANGED(p, v, fetch_add));			\
}									\
static inline t								\
atomic_swap_##type(volatile t *p, t v)					\
{									\
									\
	return (C11_EXCHANGED(p, v, exchange_n));			\
}									\
static inline t								\
atomic_readandclear_##type(volatile t *p)				\
{									\
									\
	return (atomic_swap_##type(p, 0));				\
}									\
static inline int							\
atomic_testandset_##type(volatile t *p, u_int bit)			\
{									\
	const t mask = (t)1 << (bit & (sizeof(t) * 8 - 1));		\
									\
	return ((__atomic_fetch_or(p, mask, __ATOMIC_RELAXED) & mask) != 0); \
}									\
static inline int							\
atomic_testandclear_##type(volatile t *p, u_int bit)			\
{									\
	const t mask = (t)1 << (bit & (sizeof(t) * 8 - 1));		\
									\
	return ((__atomic_fetch_and(p, (t)~mask, __ATOMIC_RELAXED) & mask) != 0); \
}									\
C11_ORDERED(type, t, )							\
C11_ORDERED(type, t, acq_)						\
C11_ORDERED(type, t, rel_)

C11_TYPE(char, u_char)
C11_TYPE(short, u_short)
C11_TYPE(int, u_int)
C11_TYPE(long, u_long)
C11_TYPE(8, uint8_t)
C11_TYPE(16, uint16_t)
C11_TYPE(32, uint32_t)
C11_TYPE(64, uint64_t)
C11_TYPE(ptr, uintptr_t)

#endif /* !_MACHINE_ATOMIC_H_ */
