/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * What a front end takes for a value of xenstore: one that is there and valid, none, and no answer.
 *
 * xenstore is a function of the test: it has one node, or an error.
 */

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/kernel.h>
#include <sys/bus.h>
#include <sys/lock.h>
#include <sys/mutex.h>

#include <dev/xen/xenbus.h>
#include <dev/xen/xenbus_var.h>

#include "host/host.h"
#include "kpi/kpi.h"

#define	OTHERWISE	1500

volatile int ticks;
int hz = 100;

static struct xenbus_child child = { .xb_node = __DECONST(char *, "device/vif/0"),
    .xb_path = "/local/domain/0/backend/vif/1/0" };

/* The node's value, or why it is not read. */
static const char *node;
static int failure;
static u_int reads;
static const char *read_from;
/* The value of the node "backend", if it is not NULL. */
static const char *back_end;

void *
device_get_ivars(device_t dev __unused)
{

	return (&child);
}

void
__mtx_lock_flags(volatile uintptr_t *m __unused, int opts __unused, const char *file __unused,
    int line __unused)
{
}

void
__mtx_unlock_flags(volatile uintptr_t *m __unused, int opts __unused, const char *file __unused,
    int line __unused)
{
}

int
xenstore_read(struct xenstore_tx *tx __unused, const char *dir, const char *name,
    char **value, size_t *len)
{

	read_from = dir;
	reads++;
	if (failure != 0)
		return (failure);
	*value = __DECONST(char *, back_end != NULL && strcmp(name, "backend") == 0 ? back_end : node);
	*len = strlen(*value);
	return (0);
}

void
xenstore_free(void *memory)
{

	CHECK(memory == node || memory == back_end, "another's value is freed");
}

/* What is written is not looked at here. */
int
xenstore_write(struct xenstore_tx *tx __unused, const char *dir __unused, const char *name __unused,
    const char *value __unused)
{

	return (0);
}

int
xenstore_printf(struct xenstore_tx *tx __unused, const char *dir __unused, const char *name __unused,
    const char *fmt __unused, ...)
{

	return (0);
}

int
xenstore_remove(struct xenstore_tx *tx __unused, const char *dir __unused, const char *name __unused)
{

	return (0);
}

int
xenstore_transaction(int (*fn)(struct xenstore_tx *tx, void *arg) __unused, void *arg __unused)
{

	return (0);
}

/* xenstore is to answer like that from now on. */
static void
answers(const char *text, int error)
{

	node = text;
	failure = error;
	child.xb_unread = false;
	child.xb_dev = kpi_device();
	kpi_line[0] = '\0';
	kpi_quiet = true;
}

/* A setting of 68 to 65535, whose default is OTHERWISE; *value is what it was before. */
static int
setting(uint64_t *value)
{

	return (xenbus_read_setting(child.xb_dev, XENBUS_FRONT, "mtu", 68, 65535, OTHERWISE,
	    value));
}

/* Each side has its own directory. */
static void
sides(const void *arg __unused)
{
	uint64_t value = 0;

	answers("100", 0);
	CHECK(setting(&value) == 0 && value == 100 && read_from == child.xb_node, "read from %s",
	    read_from);
}

/* What does not fit is none, and why is said. */
static void
strings_that_are_too_long(const void *arg __unused)
{
	char buf[4];

	answers("abc", 0);
	CHECK(xenbus_read_string(child.xb_dev, XENBUS_FRONT, "mac", buf, sizeof(buf)) == 0 &&
	    strcmp(buf, "abc") == 0 && kpi_line[0] == '\0', "%s", buf);
	answers("abcd", 0);
	CHECK(xenbus_read_string(child.xb_dev, XENBUS_FRONT, "mac", buf, sizeof(buf)) == EMSGSIZE &&
	    buf[0] == '\0', "%s", buf);
	CHECK(strstr(kpi_line, "front end's \"mac\" is \"abcd\", too long") != NULL, "%s", kpi_line);
	answers(NULL, ENOENT);
	buf[0] = 'x';
	CHECK(xenbus_read_string(child.xb_dev, XENBUS_FRONT, "mac", buf, sizeof(buf)) == ENOENT &&
	    buf[0] == '\0', "%s", buf);
}

static const int unanswered[] = { ETIMEDOUT, ENOMEM, EAGAIN, EBUSY, ENXIO, EIO, ENOSPC };

static void
no_answer_is_no_default(const void *arg __unused)
{
	uint64_t value;
	size_t i;

	for (i = 0; i < nitems(unanswered); i++) {
		answers(NULL, unanswered[i]);
		value = 9000;
		CHECK(setting(&value) == unanswered[i], "error %d is lost", unanswered[i]);
		CHECK(value == 9000, "error %d: %ju", unanswered[i], (uintmax_t)value);
		CHECK(child.xb_unread, "error %d: not asked for again", unanswered[i]);
	}
}

static void
missing_and_invalid_settings_are_the_default(const void *arg __unused)
{
	static const struct {
		const char	*text;
		int		 error;
	} cases[] = {
		{ NULL, ENOENT }, { NULL, EACCES }, { "", 0 }, { "x", 0 }, { "1500x", 0 },
		{ "-1", 0 }, { " 1400", 0 }, { "67", 0 }, { "65536", 0 },
		{ "18446744073709551616", 0 }, { "99999999999999999999", 0 },
	};
	uint64_t value;
	size_t i;

	for (i = 0; i < nitems(cases); i++) {
		answers(cases[i].text, cases[i].error);
		value = 9000;
		CHECK(setting(&value) == 0 && value == OTHERWISE, "%zu: %ju", i, (uintmax_t)value);
		CHECK(!child.xb_unread, "%zu: asked for again", i);
		CHECK((kpi_line[0] != '\0') == (cases[i].error == 0), "%zu: '%s'", i, kpi_line);
	}
}

static void
settings_are_numbers_in_bounds(const void *arg __unused)
{
	static const char *const texts[] = { "68", "1400", "65535", "0001400" };
	uint64_t value;
	size_t i;

	for (i = 0; i < nitems(texts); i++) {
		answers(texts[i], 0);
		value = 9000;
		reads = 0;
		CHECK(setting(&value) == 0 && value == strtoul(texts[i], NULL, 10), "'%s': %ju",
		    texts[i], (uintmax_t)value);
		CHECK(reads == 1, "'%s' is read %u times", texts[i], reads);
		CHECK(!child.xb_unread && kpi_line[0] == '\0', "'%s': '%s'", texts[i], kpi_line);
	}
}

/* What can be set only at set-up may be the default for now: set-up is repeated (xenbus_state.c). */
static void
unread_options_are_noted(const void *arg __unused)
{
	size_t i;

	for (i = 0; i < nitems(unanswered); i++) {
		answers(NULL, unanswered[i]);
		CHECK(!xenbus_feature(child.xb_dev, "feature-sg") && child.xb_unread, "error %d",
		    unanswered[i]);
	}
	answers(NULL, ENOENT);
	CHECK(!xenbus_feature(child.xb_dev, "feature-sg") && !child.xb_unread, "none");
	answers("1", 0);
	CHECK(xenbus_feature(child.xb_dev, "feature-sg") && !child.xb_unread, "one");
	answers("9", 0);
	CHECK(xenbus_read_option(child.xb_dev, XENBUS_BACK, "queues", 4, 1) == 4, "too many");
	CHECK(read_from == child.xb_path, "read from %s", read_from);
}

/* Peeking says nothing of invalid values, and keeps the old one. */
static void
peeking_keeps_the_value(const void *arg __unused)
{
	uint64_t value = 7;

	answers(NULL, ETIMEDOUT);
	CHECK(xenbus_peek("dir", "online", 9, &value) == ETIMEDOUT && value == 7, "no answer");
	answers(NULL, ENOENT);
	CHECK(xenbus_peek("dir", "online", 9, &value) == 0 && value == 7, "none");
	answers("10", 0);
	CHECK(xenbus_peek("dir", "online", 9, &value) == 0 && value == 7, "too large");
	answers("x", 0);
	CHECK(xenbus_peek("dir", "online", 9, &value) == 0 && value == 7, "no number");
	answers("9", 0);
	CHECK(xenbus_peek("dir", "online", 9, &value) == 0 && value == 9, "%ju", (uintmax_t)value);
	CHECK(kpi_line[0] == '\0', "'%s'", kpi_line);
}

/* What would be said n times is said so often. */
static void
said(u_int n, u_int expected)
{
	int lines = kpi_lines;
	u_int i;

	for (i = 0; i < n; i++)
		xenbus_say(&child, "message %u", i);
	CHECK(kpi_lines - lines == (int)expected, "%d lines of %u messages", kpi_lines - lines, n);
}

/* A burst of 32 messages, then one every ten seconds; those left out are counted, and it is said. */
static void
messages_are_limited(const void *arg __unused)
{

	answers(NULL, 0);
	ticks = 5 * hz;
	said(32, 32);
	CHECK(strcmp(kpi_line, "message 31\n") == 0 && xenbus_unsaid == 0, "%s", kpi_line);
	said(7, 0);
	ticks += 10 * hz - 1;
	said(1, 0);
	CHECK(xenbus_unsaid == 8, "%ju are counted", (uintmax_t)xenbus_unsaid);
	ticks++;
	said(1, 2);
	CHECK(strcmp(kpi_line_before, "8 messages were left out\n") == 0 &&
	    strcmp(kpi_line, "message 0\n") == 0, "%s%s", kpi_line_before, kpi_line);
	said(1, 0);
	/* Two are earned in twenty seconds; what is left of the time counts for the next. */
	ticks += 29 * hz;
	said(1, 2);
	CHECK(strcmp(kpi_line_before, "1 messages were left out\n") == 0, "%s", kpi_line_before);
	said(3, 1);
	ticks += hz;
	said(1, 2);
	CHECK(strcmp(kpi_line_before, "2 messages were left out\n") == 0, "%s", kpi_line_before);
	/* After a long time it is a burst again, and no more. */
	ticks += 40 * 10 * hz;
	said(40, 32);
	ticks += 32 * 10 * hz;
	said(32, 33);
	CHECK(strcmp(kpi_line, "message 31\n") == 0, "%s", kpi_line);
}

/* An error that may pass is said of the first try alone. */
static void
what_is_tried_again_is_said_once(const void *arg __unused)
{

	answers(NULL, 0);
	xenbus_warn(child.xb_dev, ENOMEM, "no memory for %s", "it");
	CHECK(strcmp(kpi_line, "no memory for it\n") == 0, "%s", kpi_line);
	child.xb_tries = 1;
	kpi_line[0] = '\0';
	xenbus_warn(child.xb_dev, ENOMEM, "once more");
	CHECK(kpi_line[0] == '\0', "%s", kpi_line);
	xenbus_warn(child.xb_dev, EINVAL, "it is invalid");
	CHECK(strcmp(kpi_line, "it is invalid\n") == 0, "%s", kpi_line);
}

/* Of an invalid value 40 bytes are shown, as far as they are printable, and whose it is. */
static void
invalid_values_are_shown(const void *arg __unused)
{
	uint64_t value, before = xenbus_invalid;
	char text[42];

	memset(text, 'x', sizeof(text));
	text[1] = '\n';
	text[2] = '\xe9';
	text[40] = text[41] = '\0';
	answers(text, 0);
	(void)setting(&value);
	CHECK(strstr(kpi_line, "front end's \"mtu\" is \"x??xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""
	    ", ") == kpi_line, "%s", kpi_line);
	text[40] = 'y';
	answers(text, 0);
	(void)xenbus_read_setting(child.xb_dev, XENBUS_BACK, "mtu", 68, 65535, OTHERWISE, &value);
	CHECK(strstr(kpi_line, "back end's \"mtu\" is \"x??") == kpi_line &&
	    strstr(kpi_line, "x\"..., ") != NULL && strchr(kpi_line, 'y') == NULL, "%s", kpi_line);
	CHECK(xenbus_invalid == before + 2, "counted");
}

/* Each front end has one, and some have more. */
static void
queues_are_shared(const void *arg __unused)
{
	struct xenbus_child others[9];
	u_int i, n, total = 0;

	answers(NULL, 0);
	memset(others, 0, sizeof(others));
	for (i = 0; i < nitems(others); i++) {
		child.xb_more_queues = 0;
		n = xenbus_queues(child.xb_dev, 8);
		CHECK(n == (i < 8 ? 8u : 5u), "front end %u has %u", i, n);
		others[i].xb_more_queues = child.xb_more_queues;
		total += n - 1;
	}
	child.xb_more_queues = 0;
	CHECK(total == 60 && xenbus_queues(child.xb_dev, 8) == 1, "%u further ones", total);
	CHECK(xenbus_queues(child.xb_dev, 1) == 1, "none");
	xenbus_return_queues(&others[0]);
	CHECK(xenbus_queues(child.xb_dev, 4) == 4, "those of one that is gone");
	/* Set up once more. */
	CHECK(xenbus_queues(child.xb_dev, 16) == 8, "its own, and what is left");
	for (i = 0; i < nitems(others); i++)
		xenbus_return_queues(&others[i]);
	xenbus_return_queues(&child);
	CHECK(xenbus_queues(child.xb_dev, 64) == 61, "all");
	xenbus_return_queues(&child);
}

/* It is a domain's, and in that domain's directory. */
static void
back_ends_are_of_a_domain(const void *arg __unused)
{
	static const struct {
		const char	*id, *path;
		int		 error;
	} table[] = {
		{ "0", "/local/domain/0/backend/vif/1/0", 0 }, { "7", "/local/domain/7/backend/x", 0 },
		{ "32751", "/local/domain/32751/backend/", 0 },
		{ "32752", "/local/domain/32752/backend/vif/1/0", EINVAL },
		{ "32753", "/local/domain/32753/backend/vif/1/0", EINVAL },
		{ "-1", "/local/domain/-1/backend/vif/1/0", EINVAL },
		{ "", "/local/domain//backend/", EINVAL },
		{ "0", "/local/domain/1/backend/vif/1/0", EINVAL },
		{ "0", "/local/domain/0/device", EINVAL },
		{ "1", "/local/domain/12/backend/vif/1/0", EINVAL }, { "0", "", EINVAL },
		{ "0", "/local/domain/0/backend/a-path-that-is-too-long", EMSGSIZE },
	};
	char path[40];
	u_int i;

	for (i = 0; i < nitems(table); i++) {
		ticks += 3600 * hz;
		answers(table[i].id, 0);
		back_end = table[i].path;
		child.xb_otherend = 99;
		CHECK(xenbus_find_otherend(&child, path, sizeof(path)) == table[i].error, "%s, %s",
		    table[i].id, table[i].path);
		CHECK(child.xb_otherend == (table[i].error == 0 ? strtoul(table[i].id, NULL, 10) : 99),
		    "domain %u", child.xb_otherend);
		if (table[i].error == 0)
			CHECK(strcmp(path, table[i].path) == 0 && kpi_line[0] == '\0', "%s", path);
		else
			CHECK(kpi_line[0] != '\0', "nothing is said of %s", table[i].path);
	}
	back_end = NULL;
}

static const struct hosted_test tests[] = {
	{ "strings_that_are_too_long", "For who reads them", strings_that_are_too_long, NULL },
	{ "sides", "Each has its directory", sides, NULL },
	{ "no_answer_is_no_default", "The old value stays, and is asked for again",
	    no_answer_is_no_default, NULL },
	{ "missing_and_invalid_settings_are_the_default", "With a line for the invalid ones",
	    missing_and_invalid_settings_are_the_default, NULL },
	{ "settings_are_numbers_in_bounds", "Read once", settings_are_numbers_in_bounds, NULL },
	{ "unread_options_are_noted", "As those that are missing are not",
	    unread_options_are_noted, NULL },
	{ "peeking_keeps_the_value", "Whatever is wrong with the new one",
	    peeking_keeps_the_value, NULL },
	{ "messages_are_limited", "And counted", messages_are_limited, NULL },
	{ "what_is_tried_again_is_said_once", "If it may pass", what_is_tried_again_is_said_once,
	    NULL },
	{ "invalid_values_are_shown", "As far as they can be", invalid_values_are_shown, NULL },
	{ "back_ends_are_of_a_domain", "And in its directory", back_ends_are_of_a_domain, NULL },
	{ "queues_are_shared", "So that no front end is without", queues_are_shared, NULL },
	{ NULL, NULL, NULL, NULL }
};

const struct hosted_test *
hosted_tests(void)
{

	return (tests);
}
