# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What gdb reads first: `gdb -x tools/pvgdb/start.py'.  `help pv' lists what it adds."""

from __future__ import annotations

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from pvgdb import commands  # noqa: E402 (found by the path above)

commands.add()
