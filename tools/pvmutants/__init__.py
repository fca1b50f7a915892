# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Mutation testing, for tools/mutants: operators, the tests that a line has, the journal."""
