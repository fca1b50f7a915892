/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * main() of a hosted test program: makes an ATF test case of each test that the program lists.
 */

#include <atf-c.h>
#include <string.h>

#include "host.h"

extern const char *__asan_default_options(void);

/* ATF's library has leaks of its own; tests count what they must not leak (kpi.h). */
const char *
__asan_default_options(void)
{

	return ("detect_leaks=0");
}

void
host_give_up(const char *message)
{

	atf_tc_fail("%s", message);
}

static const struct hosted_test *
host_find(const char *name)
{
	const struct hosted_test *ht;

	for (ht = hosted_tests(); ht->ht_name != NULL; ht++) {
		if (strcmp(ht->ht_name, name) == 0)
			return (ht);
	}
	return (NULL);
}

static void
host_head(atf_tc_t *tc)
{

	(void)atf_tc_set_md_var(tc, "descr", "%s", host_find(atf_tc_get_ident(tc))->ht_descr);
}

static void
host_body(const atf_tc_t *tc)
{
	const struct hosted_test *ht = host_find(atf_tc_get_ident(tc));

	ht->ht_body(ht->ht_arg);
}

/* A test case for each; ATF keeps the pointers for the life of the program. */
ATF_TP_ADD_TCS(tp)
{
	static atf_tc_t cases[1200];
	static struct atf_tc_pack packs[1200];
	const struct hosted_test *ht;
	char **config = atf_tp_get_config(tp);
	atf_error_t error = atf_no_error();
	unsigned int i = 0;

	for (ht = hosted_tests(); ht->ht_name != NULL && !atf_is_error(error); ht++, i++) {
		if (i == sizeof(cases) / sizeof(cases[0]))
			host_fail(__FILE__, __LINE__, "i < 1200", "too many tests");
		packs[i] = (struct atf_tc_pack){ ht->ht_name, NULL, host_head, host_body, NULL };
		error = atf_tc_init_pack(&cases[i], &packs[i], (const char *const *)config);
		if (!atf_is_error(error))
			error = atf_tp_add_tc(tp, &cases[i]);
	}
	atf_utils_free_charpp(config);
	return (error);
}
