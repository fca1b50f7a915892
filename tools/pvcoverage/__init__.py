# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Which lines and branches of the suite tests execute, in hosted programs and in guests."""
