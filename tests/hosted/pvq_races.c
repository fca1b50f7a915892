/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * The tests of pvq(9) whose sides are threads: the lists of pvq_wake_test and, under
 * ThreadSanitizer, of pvq_race_test.
 */

#include "pvq_fixture.h"

const struct pvq_list pvq_lists[] = {
	{ "split", split_impls, pvq_race_tests },
	{ "packed", packed_impls, pvq_race_tests },
	{ "grant", grant_impls, pvq_race_tests },
	{ .kind = NULL }
};
