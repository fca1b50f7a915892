# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Commands for gdb(1), which start.py adds to it: symbols of a guest's modules, and rings."""
