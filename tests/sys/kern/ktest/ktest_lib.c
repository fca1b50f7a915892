/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * printf(9), sbuf(9), sysctl(9), EVENTHANDLER(9), buf_ring(9), environment and string functions.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/buf_ring.h>
#include <sys/eventhandler.h>
#include <sys/kernel.h>
#include <sys/libkern.h>
#include <sys/lock.h>
#include <sys/mutex.h>
#include <sys/proc.h>
#include <sys/sbuf.h>
#include <sys/sched.h>
#include <sys/sysctl.h>

#include <machine/cpu.h>

#include "ktest.h"

static void
printf_formats(void)
{
	char b[128];

#define	FMT(want, ...) do {						\
	KT_EQ(snprintf(b, sizeof(b), __VA_ARGS__), strlen(want));	\
	KT_STREQ(b, want);						\
} while (0)
	FMT("0 1 -1 123456789", "%d %d %d %d", 0, 1, -1, 123456789);
	FMT("-2147483648 4294967295", "%d %u", INT32_MIN, UINT32_MAX);
	FMT("-9223372036854775808", "%jd", (intmax_t)INT64_MIN);
	FMT("18446744073709551615", "%ju", UINTMAX_MAX);
	FMT("ff FF 0xff 0 777 0777", "%x %X %#x %#x %o %#o", 255, 255, 255, 0, 511, 511);
	FMT("  12|12  |0012|+12| 12", "%4d|%-4d|%04d|%+d|% d", 12, 12, 12, 12, 12);
	FMT("00012|  00012", "%.5d|%7.5d", 12, 12);
	FMT("abc|  abc|abc  |ab", "%s|%5s|%-5s|%.2s", "abc", "abc", "abc", "abc");
	FMT("(null)", "%s", (char *)NULL);
	FMT("   7|7   |ab", "%*d|%-*d|%.*s", 4, 7, 4, 7, 2, "abcdef");
	FMT("x|%|a", "%c|%%|%c", 'x', 'a');
	FMT("0x1234", "%p", (void *)0x1234);
	FMT("-1 255 -1 65535", "%hhd %hhu %hd %hu", (signed char)-1, (u_char)255, (short)-1,
	    (u_short)65535);
	FMT("-5 5 7 8", "%ld %lu %zu %zd", -5l, 5ul, (size_t)7, (ssize_t)8);
	FMT("3<BIT1,BIT2>", "%b", 3, "\20\1BIT1\2BIT2\3BIT3");
	FMT("0", "%b", 0, "\20\1BIT1");
	FMT("00:1b:2c", "%3D", "\0\x1b\x2c", ":");
	FMT("0xdeadbeefcafef00d", "%#jx", (uintmax_t)0xdeadbeefcafef00d);
#undef FMT
	/* What does not fit is cut, the length is that of all of it. */
	memset(b, 'z', sizeof(b));
	KT_EQ(snprintf(b, 4, "%s", "abcdef"), 6);
	KT_STREQ(b, "abc");
	KT_EQ(b[4], 'z');
	KT_EQ(snprintf(NULL, 0, "%d", 12345), 5);
}

static int
drain_to(void *arg, const char *data, int len)
{
	char *to = arg;

	len = MIN(len, 3);
	strncat(to, data, len);
	return (len);
}

static void
sbuf_works(void)
{
	struct sbuf *sb, fixed;
	char room[8], drained[64] = "";
	int i;

	sb = sbuf_new_auto();
	for (i = 0; i < 1000; i++)
		sbuf_printf(sb, "%d,", i);
	KT_EQ(sbuf_finish(sb), 0);
	KT_EQ(sbuf_len(sb), 10 * 2 + 90 * 3 + 900 * 4);
	KT_EQ(strlen(sbuf_data(sb)), sbuf_len(sb));
	KT_EQ(strncmp(sbuf_data(sb), "0,1,2,", 6), 0);
	KT_STREQ(sbuf_data(sb) + sbuf_len(sb) - 4, "999,");
	sbuf_delete(sb);
	sbuf_new(&fixed, room, sizeof(room), SBUF_FIXEDLEN);
	sbuf_cat(&fixed, "abc");
	sbuf_putc(&fixed, ' ');
	sbuf_bcat(&fixed, "d ", 2);
	sbuf_trim(&fixed);
	KT_EQ(sbuf_len(&fixed), 5);
	KT_EQ(sbuf_finish(&fixed), 0);
	KT_STREQ(sbuf_data(&fixed), "abc d");
	sbuf_clear(&fixed);
	KT_EQ(sbuf_cat(&fixed, "12345678"), -1);
	KT_EQ(sbuf_error(&fixed), ENOMEM);
	KT_EQ(sbuf_finish(&fixed), ENOMEM);
	sbuf_delete(&fixed);
	sbuf_new(&fixed, room, sizeof(room), SBUF_FIXEDLEN);
	sbuf_set_drain(&fixed, drain_to, drained);
	for (i = 0; i < 5; i++)
		sbuf_printf(&fixed, "<%d>", i);
	KT_EQ(sbuf_finish(&fixed), 0);
	KT_STREQ(drained, "<0><1><2><3><4>");
	sbuf_delete(&fixed);
}

static int knob_int = 5;
static char knob_string[16] = "first";
static uint64_t knob_u64 = 1ull << 40;
static volatile int knob_calls;

/* Only even numbers, and not while it is being read from within. */
static int
knob_handler(SYSCTL_HANDLER_ARGS)
{
	int error, value = knob_int;
	size_t len = sizeof(value);

	knob_calls++;
	KT_TRUE(arg1 == &knob_int && arg2 == 77);
	/* A handler may use the tree. */
	KT_EQ(kernel_sysctlbyname(curthread, "debug.ktest.rounds", &value, &len, NULL, 0, NULL, 0),
	    0);
	value = knob_int;
	error = sysctl_handle_int(oidp, &value, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (value % 2 != 0)
		return (EDOM);
	knob_int = value;
	return (0);
}

static int
knob_get(const char *name, void *old, size_t *len)
{
	char full[64];

	snprintf(full, sizeof(full), "debug.ktest.knobs.%s", name);
	return (kernel_sysctlbyname(curthread, full, old, len, NULL, 0, NULL, 0));
}

static int
knob_set(const char *name, const void *new, size_t len)
{
	char full[64];

	snprintf(full, sizeof(full), "debug.ktest.knobs.%s", name);
	return (kernel_sysctlbyname(curthread, full, NULL, NULL, __DECONST(void *, new), len, NULL,
	    0));
}

SYSCTL_DECL(_debug_ktest);

static void
sysctl_works(void)
{
	struct sysctl_ctx_list ctx;
	struct sysctl_oid *node;
	char s[32];
	uint64_t u;
	size_t len;
	int v;

	knob_int = 5;
	strlcpy(knob_string, "first", sizeof(knob_string));
	sysctl_ctx_init(&ctx);
	node = SYSCTL_ADD_NODE(&ctx, SYSCTL_STATIC_CHILDREN(_debug_ktest), OID_AUTO, "knobs",
	    CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, "test");
	SYSCTL_ADD_INT(&ctx, SYSCTL_CHILDREN(node), OID_AUTO, "ro", CTLFLAG_RD, &knob_int, 0, "t");
	SYSCTL_ADD_INT(&ctx, SYSCTL_CHILDREN(node), OID_AUTO, "const", CTLFLAG_RD,
	    SYSCTL_NULL_INT_PTR, 42, "test");
	SYSCTL_ADD_U64(&ctx, SYSCTL_CHILDREN(node), OID_AUTO, "u64", CTLFLAG_RW, &knob_u64, 0, "t");
	SYSCTL_ADD_STRING(&ctx, SYSCTL_CHILDREN(node), OID_AUTO, "string", CTLFLAG_RW, knob_string,
	    sizeof(knob_string), "test");
	SYSCTL_ADD_PROC(&ctx, SYSCTL_CHILDREN(node), OID_AUTO, "proc",
	    CTLTYPE_INT | CTLFLAG_RW | CTLFLAG_MPSAFE, &knob_int, 77, knob_handler, "I", "test");
	len = sizeof(v);
	KT_EQ(knob_get("ro", &v, &len), 0);
	KT_EQ(v, 5);
	KT_EQ(len, sizeof(v));
	v = 6;
	KT_EQ(knob_set("ro", &v, sizeof(v)), EPERM);
	KT_EQ(knob_get("const", &v, &len), 0);
	KT_EQ(v, 42);
	len = sizeof(u);
	KT_EQ(knob_get("u64", &u, &len), 0);
	KT_EQ(u, 1ull << 40);
	len = 2;
	KT_EQ(knob_get("u64", &u, &len), ENOMEM);
	u = 99;
	KT_EQ(knob_set("u64", &u, sizeof(u)), 0);
	KT_EQ(knob_u64, 99);
	KT_EQ(knob_set("u64", &u, 3), EINVAL);
	len = sizeof(s);
	KT_EQ(knob_get("string", s, &len), 0);
	KT_STREQ(s, "first");
	KT_EQ(len, 6);
	KT_EQ(knob_set("string", "second", 6), 0);
	KT_STREQ(knob_string, "second");
	KT_EQ(knob_set("string", "much too long for it", 20), EINVAL);
	KT_STREQ(knob_string, "second");
	v = 8;
	KT_EQ(knob_set("proc", &v, sizeof(v)), 0);
	KT_EQ(knob_int, 8);
	v = 9;
	KT_EQ(knob_set("proc", &v, sizeof(v)), EDOM);
	KT_EQ(knob_int, 8);
	KT_EQ(knob_get("nosuch", &v, &len), ENOENT);
	KT_EQ(sysctl_ctx_free(&ctx), 0);
	KT_EQ(knob_get("ro", &v, &len), ENOENT);
}

typedef void (*ktest_event_fn)(void *, int);
EVENTHANDLER_DECLARE(ktest_event, ktest_event_fn);

struct listener {
	eventhandler_tag tag;
	volatile u_int	calls;
	volatile int	order;
	volatile bool	running;
	volatile bool	gone;
	volatile bool	hold;
	volatile bool	stop;
};

static volatile u_int listener_order;

static void
listen(void *arg, int value)
{
	struct listener *l = arg;

	KT_TRUE(!l->gone);
	KT_EQ(value, 1234);
	l->running = true;
	KT_WAIT(!l->hold);
	l->order = atomic_fetchadd_int(&listener_order, 1);
	atomic_add_int(&l->calls, 1);
	l->running = false;
}

static void
event_loop(void *arg, int me)
{
	struct listener *l = arg;

	while (!l->stop) {
		EVENTHANDLER_INVOKE(ktest_event, 1234);
		kern_yield(PRI_UNCHANGED);
	}
}

static void
event_once(void *arg, int me)
{
	EVENTHANDLER_INVOKE(ktest_event, 1234);
}

static void
event_releaser(void *arg, int me)
{
	struct listener *l = arg;

	pause("ktest", hz / 20);
	l->hold = false;
}

static void
eventhandler_order(void)
{
	struct listener l[3];
	int i;

	memset(l, 0, sizeof(l));
	EVENTHANDLER_INVOKE(ktest_event, 1234);
	l[0].tag = EVENTHANDLER_REGISTER(ktest_event, listen, &l[0], EVENTHANDLER_PRI_LAST);
	l[1].tag = EVENTHANDLER_REGISTER(ktest_event, listen, &l[1], EVENTHANDLER_PRI_FIRST);
	l[2].tag = EVENTHANDLER_REGISTER(ktest_event, listen, &l[2], EVENTHANDLER_PRI_ANY);
	EVENTHANDLER_INVOKE(ktest_event, 1234);
	for (i = 0; i < 3; i++)
		KT_EQ(l[i].calls, 1);
	KT_TRUE(l[1].order < l[2].order && l[2].order < l[0].order);
	EVENTHANDLER_DEREGISTER(ktest_event, l[2].tag);
	EVENTHANDLER_INVOKE(ktest_event, 1234);
	KT_EQ(l[2].calls, 1);
	KT_EQ(l[0].calls, 2);
	EVENTHANDLER_DEREGISTER(ktest_event, l[0].tag);
	EVENTHANDLER_DEREGISTER(ktest_event, l[1].tag);
}

/* Deregistered: not called any more, and not running either. */
static void
eventhandler_deregister_while_running(void)
{
	struct ktest_thread *kt[3];
	struct listener l, other;
	u_int i;

	memset(&l, 0, sizeof(l));
	memset(&other, 0, sizeof(other));
	l.tag = EVENTHANDLER_REGISTER(ktest_event, listen, &l, EVENTHANDLER_PRI_ANY);
	l.hold = true;
	kt[0] = ktest_spawn(event_once, &l, 0, KT_ANYCPU, 0);
	KT_WAIT(l.running);
	kt[1] = ktest_spawn(event_releaser, &l, 0, KT_ANYCPU, 0);
	EVENTHANDLER_DEREGISTER(ktest_event, l.tag);
	KT_TRUE(!l.running);
	l.gone = true;
	ktest_join(kt[0]);
	ktest_join(kt[1]);
	KT_EQ(l.calls, 1);
	/* The same while two threads invoke it all the time, and another handler stays. */
	memset(&l, 0, sizeof(l));
	other.tag = EVENTHANDLER_REGISTER(ktest_event, listen, &other, EVENTHANDLER_PRI_ANY);
	for (i = 0; i < 3; i++)
		kt[i] = ktest_spawn(event_loop, &other, i, KT_ANYCPU, 0);
	for (i = 0; i < 100u * ktest_rounds; i++) {
		l.gone = false;
		l.tag = EVENTHANDLER_REGISTER(ktest_event, listen, &l, EVENTHANDLER_PRI_FIRST);
		if (i % 4 == 0)
			pause_sbt("ktest", 100 * SBT_1US, 0, 0);
		EVENTHANDLER_DEREGISTER(ktest_event, l.tag);
		l.gone = true;
	}
	other.stop = true;
	for (i = 0; i < 3; i++)
		ktest_join(kt[i]);
	KT_TRUE(other.calls > 0);
	EVENTHANDLER_DEREGISTER(ktest_event, other.tag);
}

#define	PRODUCERS	3
#define	ITEMS		4000u

struct line {
	struct buf_ring	*br;
	volatile u_int	done;
};

/* Items are their producer's number and their own. */
static void
ring_producer(void *arg, int me)
{
	struct line *ln = arg;
	uintptr_t i;

	for (i = 0; i < ITEMS; i++)
		while (buf_ring_enqueue(ln->br, (void *)((uintptr_t)(me + 1) << 32 | i)) != 0)
			kern_yield(PRI_UNCHANGED);
	atomic_add_int(&ln->done, 1);
}

static void
buf_ring_keeps_order(void)
{
	struct ktest_thread *kt[PRODUCERS];
	u_int next[PRODUCERS] = { 0 };
	struct line ln = { .done = 0 };
	uintptr_t item;
	u_int from, total = 0;
	int i;

	ln.br = buf_ring_alloc(64, M_KTEST, M_WAITOK, NULL);
	KT_TRUE(buf_ring_empty(ln.br) && buf_ring_count(ln.br) == 0);
	for (i = 0; buf_ring_enqueue(ln.br, (void *)(uintptr_t)(i + 1)) == 0; i++)
		;
	KT_EQ(i, 63);
	KT_TRUE(buf_ring_full(ln.br));
	KT_TRUE(buf_ring_peek(ln.br) == (void *)1);
	for (i = 0; i < 63; i++)
		KT_EQ((uintptr_t)buf_ring_dequeue_sc(ln.br), i + 1);
	KT_TRUE(buf_ring_dequeue_sc(ln.br) == NULL);
	for (i = 0; i < PRODUCERS; i++)
		kt[i] = ktest_spawn(ring_producer, &ln, i, KT_ANYCPU, 0);
	while (total < PRODUCERS * ITEMS) {
		item = (uintptr_t)buf_ring_dequeue_sc(ln.br);
		if (item == 0) {
			if (ln.done == PRODUCERS && buf_ring_empty(ln.br))
				break;
			kern_yield(PRI_UNCHANGED);
			continue;
		}
		from = (item >> 32) - 1;
		if (!KT_TRUE(from < PRODUCERS) || !KT_EQ(item & UINT32_MAX, next[from]))
			break;
		next[from]++;
		total++;
	}
	KT_EQ(total, PRODUCERS * ITEMS);
	for (i = 0; i < PRODUCERS; i++)
		ktest_join(kt[i]);
	buf_ring_free(ln.br, M_KTEST);
}

static void
env_set_and_get(void)
{
	char buf[32], *s;
	int v = 0;
	u_long u = 0;

	KT_EQ(kern_setenv("ktest.number", "0x20"), 0);
	KT_EQ(getenv_int("ktest.number", &v), 1);
	KT_EQ(v, 0x20);
	kern_setenv("ktest.number", "3k");
	KT_EQ(getenv_ulong("ktest.number", &u), 1);
	KT_EQ(u, 3072);
	kern_setenv("ktest.number", "word");
	KT_EQ(getenv_int("ktest.number", &v), 0);
	KT_EQ(getenv_string("ktest.number", buf, sizeof(buf)), 1);
	KT_STREQ(buf, "word");
	s = kern_getenv("ktest.number");
	if (KT_TRUE(s != NULL))
		KT_STREQ(s, "word");
	freeenv(s);
	KT_EQ(testenv("ktest.number"), 1);
	KT_EQ(kern_unsetenv("ktest.number"), 0);
	KT_EQ(testenv("ktest.number"), 0);
	KT_EQ(kern_unsetenv("ktest.number"), -1);
	KT_EQ(kern_setenv("", "x"), -1);
}

static void
string_functions(void)
{
	char b[16], *s, *end;

	KT_EQ(strlcpy(b, "abcdefghijklmnopqrst", sizeof(b)), 20);
	KT_STREQ(b, "abcdefghijklmno");
	strlcpy(b, "ab", sizeof(b));
	KT_EQ(strlcat(b, "cd", sizeof(b)), 4);
	KT_STREQ(b, "abcd");
	KT_TRUE(strstr("hello world", "o w") != NULL && strstr("hello", "x") == NULL);
	KT_TRUE(strcmp("a", "b") < 0 && strcmp("b", "a") > 0 && strncmp("abc", "abd", 2) == 0);
	KT_TRUE(strcasecmp("VtNet", "vTnEt") == 0);
	KT_EQ(strnlen("abcdef", 3), 3);
	KT_EQ(strtol("-0x10z", &end, 0), -16);
	KT_STREQ(end, "z");
	KT_EQ(strtoul("0777", NULL, 0), 511);
	KT_EQ(strtoq("9223372036854775807", NULL, 10), INT64_MAX);
	strlcpy(b, "a:b::c", sizeof(b));
	s = b;
	KT_STREQ(strsep(&s, ":"), "a");
	KT_STREQ(strsep(&s, ":"), "b");
	KT_STREQ(strsep(&s, ":"), "");
	KT_STREQ(strsep(&s, ":"), "c");
	KT_TRUE(strsep(&s, ":") == NULL);
	memcpy(b, "0123456789", 11);
	memmove(b + 2, b, 8);
	KT_STREQ(b, "0101234567");
	memmove(b, b + 2, 8);
	KT_STREQ(b, "0123456767");
	KT_EQ(memcmp("abc", "abd", 3) < 0, 1);
	KT_TRUE(memchr("abc", 'c', 3) != NULL && memchr("abc", 'd', 3) == NULL);
}

static int
qsort_compare(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x < y ? -1 : x > y);
}

static void
qsort_sorts(void)
{
	uint32_t seed = 55;
	int i, n, round, *v;
	int64_t sum;

	v = malloc(sizeof(*v) * 1000, M_KTEST, M_WAITOK);
	for (round = 0; round < 60; round++) {
		n = round < 20 ? round : ktest_random(&seed) % 1000;
		for (i = 0, sum = 0; i < n; i++) {
			v[i] = round % 3 == 0 ? i : round % 3 == 1 ? n - i : ktest_random(&seed) % 50;
			sum += v[i];
		}
		qsort(v, n, sizeof(*v), qsort_compare);
		for (i = 0; i < n; i++) {
			sum -= v[i];
			if (i > 0)
				KT_TRUE(v[i - 1] <= v[i]);
		}
		KT_EQ(sum, 0);
	}
	free(v, M_KTEST);
}

const struct ktest_case ktest_lib_cases[] = {
	{ "lib.printf_formats", printf_formats },
	{ "lib.sbuf", sbuf_works },
	{ "lib.sysctl", sysctl_works },
	{ "lib.env_set_and_get", env_set_and_get },
	{ "lib.string_functions", string_functions },
	{ "lib.qsort_sorts", qsort_sorts },
	{ "eventhandler.order", eventhandler_order },
	{ "eventhandler.deregister_while_running", eventhandler_deregister_while_running },
	{ "buf_ring.keeps_order", buf_ring_keeps_order },
	{ NULL, NULL }
};
