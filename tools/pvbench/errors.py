# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The reason that nothing could be measured."""

from __future__ import annotations


class BenchError(Exception):
    """A line for the user; perhaps followed by what a guest has said."""
