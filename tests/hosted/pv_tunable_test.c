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

/* A node for each word of the path; the value is what the loader has for all of it. */
static void
set_is_at_its_path(const void *arg __unused)
{
	static struct pv_tunable table[] = { PV_TUNABLE("bar", 5, 0, 9, PVT_RW, "A number") };
	static struct pv_tunables set = { SYSCTL_STATIC_CHILDREN(_hw), "hw", "group.sub", "A group",
	    table, nitems(table), { NULL, NULL } };
	const int before = kpi_sysctls;

	kpi_tunable = "hw.group.sub.bar";
	kpi_tunable_value = "7";
	pv_tunables_load(&set);
	kpi_tunable = NULL;
	CHECK(kpi_sysctls - before == 3, "%d sysctls", kpi_sysctls - before);
	CHECK(kpi_sysctl_value("group.sub.bar") == 7, "not the loader's");
	pv_tunables_unload(&set);
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
