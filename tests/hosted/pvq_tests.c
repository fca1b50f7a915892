/*-
 * SPDX-License-Identifier: BSD-2-Clause
 *
 * Copyright (c) 2026 The pv-kmod developers
 */

/*
 * All tests of pvq(9): the lists of pvq_test.
 */

#include "pvq_fixture.h"

const struct pvq_list pvq_lists[] = {
	{ "split", split_impls, pvq_basic_tests },
	{ "split", split_impls, pvq_event_tests },
	{ "split", split_impls, pvq_hostile_tests },
	{ "split", split_impls, pvq_random_tests },
	{ "split", split_impls, pvq_stop_tests },
	{ "split", split_impls, pvq_in_order_tests },
	{ "packed", packed_impls, pvq_in_order_tests },
	{ "packed", packed_impls, pvq_basic_tests },
	{ "packed", packed_impls, pvq_event_tests },
	{ "packed", packed_impls, pvq_hostile_tests },
	{ "packed", packed_impls, pvq_random_tests },
	{ "packed", packed_impls, pvq_stop_tests },
	{ "packed", packed_impls, packed_tests },
	{ "grant", grant_impls, pvq_basic_tests },
	{ "grant", grant_impls, pvq_event_tests },
	{ "grant", grant_impls, pvq_hostile_tests },
	{ "grant", grant_impls, pvq_random_tests },
	{ "grant", grant_impls, pvq_stop_tests },
	{ "grant", grant_impls, grant_tests },
	/* Their memory is the device's only where it was synced. */
	{ "split_bounced", split_impls, pvq_basic_tests, true },
	{ "split_bounced", split_impls, pvq_event_tests, true },
	{ "split_bounced", split_impls, pvq_hostile_tests, true },
	{ "split_bounced", split_impls, pvq_random_tests, true },
	{ "packed_bounced", packed_impls, pvq_basic_tests, true },
	{ "packed_bounced", packed_impls, pvq_event_tests, true },
	{ "packed_bounced", packed_impls, pvq_hostile_tests, true },
	{ "packed_bounced", packed_impls, pvq_random_tests, true },
	{ "packed_bounced", packed_impls, packed_tests, true },
	{ .kind = NULL }
};
