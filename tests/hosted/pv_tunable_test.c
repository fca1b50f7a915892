/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What is taken for the value of a tunable, and what is reported; what a sysctl refuses.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/limits.h>
#include <sys/sysctl.h>

#include <dev/pv/pv_tunable.h>

#include "host/host.h"
#include "kpi/kpi.h"

/* Each device is foo3 (kpi/misc.c). */
static int
get(struct pv_tunable *pt, const char *name, const char *text)
{
	int value;

	kpi_tunable = name;
	kpi_tunable_value = text;
	kpi_line[0] = '\0';
	kpi_quiet = true;
	value = pv_tunable_get(pt, kpi_device());
	kpi_quiet = false;
	kpi_tunable = NULL;
	CHECK(kpi_mallocs == 0, "the text is not freed");
	return (value);
}

static void
value_is_of_the_device(const void *arg __unused)
{
	struct pv_tunable pt = PV_TUNABLE("bar", 5, 0, 9, PVT_DEVICE, "");

	CHECK(get(&pt, "hw.foo.2.bar", "7") == 5, "another device's");
	CHECK(get(&pt, "hw.foo.3.ba", "7") == 5, "another name's");
	CHECK(get(&pt, "hw.foo.3.bar", "7") == 7, "not its own");
	pt.pt_value = 6;
	CHECK(get(&pt, "hw.foo.2.bar", "7") == 6, "not that of all devices");
}

static const struct {
	const char	*text;
	int64_t		 min, max;
	int		 value;		/* 5: it is refused */
} texts[] = {
	{ "0", 0, 9, 0 }, { "9", 0, 9, 9 }, { "-1", 0, 9, 5 }, { "10", 0, 9, 5 },
	{ "-1", -1, 1, -1 }, { "-2", -1, 1, 5 },
	{ "0x9", 0, 9, 9 }, { "0xa", 0, 9, 5 }, { "+7", 0, 9, 7 },
	{ "", 0, 9, 5 }, { " ", 0, 9, 5 }, { "-", 0, 9, 5 }, { "0x", 0, 9, 5 },
	{ "yes", 0, 9, 5 }, { "7x", 0, 9, 5 }, { "7 ", 0, 9, 5 }, { "7,8", 0, 9, 5 },
	{ "1k", 0, 9999, 5 }, { "4294967297", 0, 9, 5 },
	{ "18446744073709551617", 0, 9, 5 }, { "-18446744073709551615", 0, 9, 5 },
	{ "2147483647", 0, INT_MAX, INT_MAX }, { "2147483648", 0, INT_MAX, 5 },
	{ "4294967295", 0, UINT_MAX, -1 }, { "4294967296", 0, UINT_MAX, 5 },
};

static void
only_numbers_of_the_range_are_values(const void *arg __unused)
{
	size_t i;

	for (i = 0; i < nitems(texts); i++) {
		struct pv_tunable pt = PV_TUNABLE("bar", 5, texts[i].min, texts[i].max,
		    PVT_DEVICE, "");
		int value = get(&pt, "hw.foo.3.bar", texts[i].text);

		CHECK(value == texts[i].value, "'%s': %d", texts[i].text, value);
		CHECK((kpi_line[0] != '\0') == (value == 5), "'%s': '%s'", texts[i].text,
		    kpi_line);
	}
}

static void
invalid_values_are_reported_once(const void *arg __unused)
{
	struct pv_tunable pt = PV_TUNABLE("bar", 5, -1, 9, PVT_DEVICE, "");

	CHECK(get(&pt, "hw.foo.3.bar", "10") == 5, "taken");
	CHECK(strcmp(kpi_line, "hw.foo.3.bar=\"10\" is not from -1 to 9: 5 is used\n") == 0,
	    "'%s'", kpi_line);
	CHECK(get(&pt, "hw.foo.3.bar", "10") == 5 && kpi_line[0] == '\0', "again '%s'", kpi_line);
}

/* Of 64 devices each; those beyond say it again. */
static void
invalid_values_of_many_devices(const void *arg __unused)
{
	static const struct {
		int	unit;
		const char *path;
		bool	again;
	} table[] = {
		{ 0, "hw.foo.0.bar", false }, { 63, "hw.foo.63.bar", false },
		{ 64, "hw.foo.64.bar", true }, { 65, "hw.foo.65.bar", true },
		{ 1, "hw.foo.1.bar", false },
	};
	struct pv_tunable pt = PV_TUNABLE("bar", 5, 0, 9, PVT_DEVICE, "");
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		kpi_unit = table[i].unit;
		CHECK(get(&pt, table[i].path, "10") == 5 && kpi_line[0] != '\0', "unit %d",
		    kpi_unit);
		CHECK(get(&pt, table[i].path, "10") == 5 && (kpi_line[0] != '\0') == table[i].again,
		    "unit %d: again '%s'", kpi_unit, kpi_line);
	}
}

static void
unsigned_values_are_printed_as_such(const void *arg __unused)
{
	struct pv_tunable pt = PV_TUNABLE("bar", UINT_MAX, 0, UINT_MAX, PVT_DEVICE, "");

	CHECK(get(&pt, "hw.foo.3.bar", "-1") == -1, "taken");
	CHECK(strcmp(kpi_line, "hw.foo.3.bar=\"-1\" is not from 0 to 4294967295: "
	    "4294967295 is used\n") == 0, "'%s'", kpi_line);
	/* No others are. */
	pt = (struct pv_tunable)PV_TUNABLE("bar", -1, -1, INT_MAX, PVT_DEVICE, "");
	CHECK(get(&pt, "hw.foo.3.bar", "-2") == -1, "taken");
	CHECK(strcmp(kpi_line, "hw.foo.3.bar=\"-2\" is not from -1 to 2147483647: "
	    "-1 is used\n") == 0, "'%s'", kpi_line);
}

static void
sysctl_refuses_what_is_out_of_range(const void *arg __unused)
{
	static const int refused[] = { -1, 0, 10, INT_MIN, INT_MAX };
	struct sysctl_req req = { .newlen = sizeof(int) };
	int new, value = 5;
	size_t i;

	CHECK(pv_sysctl_int(NULL, &req, &value, 1, 9) == 0 && value == 5, "read: %d", value);
	req.newptr = &new;
	for (i = 0; i < nitems(refused); i++) {
		new = refused[i];
		CHECK(pv_sysctl_int(NULL, &req, &value, 1, 9) == EINVAL && value == 5,
		    "%d: %d", new, value);
	}
	for (new = 1; new <= 9; new += 8)
		CHECK(pv_sysctl_int(NULL, &req, &value, 1, 9) == 0 && value == new,
		    "%d: %d", new, value);
	req.newlen = 1;
	CHECK(pv_sysctl_int(NULL, &req, &value, 1, 9) != 0 && value == 9, "%d", value);
}

/* Words between blanks and commas, of which each counts as a whole. */
static void
words_of_a_list(const void *arg __unused)
{
	static const struct {
		const char *list, *word;
		bool	has;
	} table[] = {
		{ "a", "a", true }, { "a", "b", false }, { "", "a", false }, { "ab", "a", false },
		{ "a", "ab", false }, { "a,b", "b", true }, { "a b", "a", true },
		{ " ,a,, b ", "b", true },
		{ "a,b c", "a", true }, { "a,b c", "c", true }, { "a,b c", "a,b", false },
		{ "ba ab", "a", false },
	};
	size_t i;

	for (i = 0; i < nitems(table); i++) {
		kpi_tunable = "hw.foo.list";
		kpi_tunable_value = table[i].list;
		CHECK(pv_is_listed("hw.foo.list", table[i].word) == table[i].has, "'%s' in '%s'",
		    table[i].word, table[i].list);
		CHECK(!pv_is_listed("hw.foo.lis", table[i].word), "in another variable");
		kpi_tunable = NULL;
		CHECK(!pv_is_listed("hw.foo.list", table[i].word), "in none");
		CHECK(kpi_mallocs == 0, "the list is not freed");
	}
}

/* A device's own value: what is written has the range of the tunable. */
static void
sysctl_of_a_device(const void *arg __unused)
{
	struct pv_tunable pt = PV_TUNABLE("bar", 5, 1, UINT_MAX, PVT_DEVICE, "A number");
	struct sysctl_ctx_list ctx;
	int one = 2, two = 3;

	sysctl_ctx_init(&ctx);
	pv_tunable_add(&ctx, SYSCTL_STATIC_CHILDREN(_hw), NULL, &pt, &one);
	pv_tunable_add(&ctx, SYSCTL_STATIC_CHILDREN(_hw), "other", &pt, &two);
	CHECK(kpi_sysctl_value("bar") == 2 && kpi_sysctl_value("other") == 3, "names");
	CHECK(kpi_sysctl_set("bar", INT_MAX) == 0 && one == INT_MAX && two == 3 && pt.pt_value == 5,
	    "not written");
	CHECK(kpi_sysctl_set("bar", 0) == EINVAL && kpi_sysctl_set("bar", -1) == EINVAL &&
	    kpi_sysctl_set("other", 1) == 0 && two == 1 && one == INT_MAX, "the range");
	sysctl_ctx_free(&ctx);
}

/* A node for each word of the path; the value is what the loader has for all of it. */
static void
set_is_at_its_path(const void *arg __unused)
{
	static struct pv_tunable table[] = {
		PV_TUNABLE("foo", 4, 0, 9, PVT_RW, "Another number"),
		PV_TUNABLE("bar", 5, 0, 9, PVT_RW, "A number"),
	};
	static struct pv_tunables set = { SYSCTL_STATIC_CHILDREN(_hw), "hw", "group.sub", "A group",
	    table, nitems(table), { NULL, NULL } };
	const int before = kpi_sysctls;

	kpi_tunable = "hw.group.sub.bar";
	kpi_tunable_value = "7";
	pv_tunables_load(&set);
	CHECK(kpi_sysctls - before == 4, "%d sysctls", kpi_sysctls - before);
	CHECK(kpi_sysctl_value("group.sub.bar") == 7, "not the loader's");
	CHECK(kpi_sysctl_value("group.sub.foo") == 4, "another's");
	pv_tunables_unload(&set);
	CHECK(kpi_sysctls == before, "%d sysctls are left", kpi_sysctls - before);
	/* A node that the kernel has is not removed with them, and what it reads is what is used. */
	kpi_static_node = "group";
	kpi_sysctl_of_others = "hw.group.sub.bar";
	kpi_tunable_value = "8";
	pv_tunables_load(&set);
	CHECK(kpi_sysctls - before == 3 && kpi_sysctl_set("group.sub.bar", 1) == ENOENT &&
	    kpi_sysctl_set("group.sub.foo", 1) == 0, "%d sysctls", kpi_sysctls - before);
	CHECK(table[0].pt_value == 1 && table[1].pt_value == 8, "%d, %d", table[0].pt_value,
	    table[1].pt_value);
	pv_tunables_unload(&set);
	CHECK(kpi_sysctls == before + 1, "%d sysctls are left", kpi_sysctls - before);
	kpi_static_node = kpi_sysctl_of_others = kpi_tunable = NULL;
}

/* Those that can be written, have the range; texts and unsigned ones can't; what is invalid is said. */
static void
set_of_each_kind(const void *arg __unused)
{
	static char text[8] = "old";
	static struct pv_tunable table[] = {
		PV_TUNABLE("rw", 5, -1, 9, PVT_RW, "A number"),
		PV_TUNABLE("rd", 6, 0, INT_MAX, 0, "A number"),
		PV_TUNABLE("wide", UINT_MAX, 0, UINT_MAX, 0, "A number"),
		PV_TUNABLE_TEXT("text", text, 0, "A text"),
	};
	static struct pv_tunables set = { SYSCTL_STATIC_CHILDREN(_hw), "hw", "foo", "A group",
	    table, nitems(table), { NULL, NULL } };
	char seen[sizeof(text)];
	size_t len = sizeof(seen);

	kpi_quiet = true;
	kpi_tunable = "hw.foo.rw";
	kpi_tunable_value = "10";
	pv_tunables_load(&set);
	CHECK(strcmp(kpi_line, "hw.foo.rw=\"10\" is not from -1 to 9: 5 is used\n") == 0, "'%s'",
	    kpi_line);
	CHECK(kpi_sysctl_set("foo.rw", -2) == EINVAL && kpi_sysctl_set("foo.rw", 10) == EINVAL &&
	    kpi_sysctl_set("foo.rw", -1) == 0 && table[0].pt_value == -1 &&
	    kpi_sysctl_set("foo.rw", 9) == 0 && table[0].pt_value == 9, "%d", table[0].pt_value);
	CHECK(kpi_sysctl_set("foo.rd", 5) == EPERM && kpi_sysctl_value("foo.rd") == 6, "read-only");
	CHECK(kpi_sysctl_set("foo.wide", 5) == EPERM && kpi_sysctl_value("foo.wide") == UINT_MAX,
	    "unsigned");
	CHECK(kpi_sysctl("foo.text", seen, &len, NULL, 0) == 0 && strcmp(seen, "old") == 0, "%s", seen);
	pv_tunables_unload(&set);
	kpi_tunable = "hw.foo.text";
	kpi_tunable_value = "a longer one";
	pv_tunables_load(&set);
	CHECK(strcmp(text, "a longe") == 0, "%s", text);
	pv_tunables_unload(&set);
	kpi_tunable = NULL;
	CHECK(kpi_mallocs == 0, "a text is not freed");
}

static const struct hosted_test tests[] = {
	{ "value_is_of_the_device", "hw.DRIVER.N.name", value_is_of_the_device, NULL },
	{ "only_numbers_of_the_range_are_values", "Below, at and above, text, and empty",
	    only_numbers_of_the_range_are_values, NULL },
	{ "invalid_values_are_reported_once", "With the value that is used",
	    invalid_values_are_reported_once, NULL },
	{ "invalid_values_of_many_devices", "With one bit each", invalid_values_of_many_devices,
	    NULL },
	{ "unsigned_values_are_printed_as_such", "Above INT_MAX",
	    unsigned_values_are_printed_as_such, NULL },
	{ "words_of_a_list", "As a whole", words_of_a_list, NULL },
	{ "sysctl_of_a_device", "Has the tunable's range", sysctl_of_a_device, NULL },
	{ "set_of_each_kind", "Numbers and texts", set_of_each_kind, NULL },
	{ "set_is_at_its_path", "hw.group.sub.bar", set_is_at_its_path, NULL },
	{ "sysctl_refuses_what_is_out_of_range", "EINVAL, and the old value stays",
	    sysctl_refuses_what_is_out_of_range, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
