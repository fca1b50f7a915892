# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What tools/guest and tools/xenlab share of QEMU: its options and its machine protocol."""
