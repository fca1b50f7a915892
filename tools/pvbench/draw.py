# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Draw pictures of results: bars of ours beside the other's.

A bar is the median, the line across its end reaches from the minimum to the maximum, and the
number is the ratio, ours to the other's (without another, the median).  FILE is what --json has
written; FILE.svg goes to the folder of --out.

The same results give the same picture, to the byte.
"""

from __future__ import annotations

import argparse
import pathlib

from pvbench import picture, table
from pvbench.errors import BenchError
from xen.errors import TOP

RESULTS = TOP / "tests/bench/results"


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `draw'."""
    parser.add_argument("--out", type=pathlib.Path, default=TOP / "tests/bench", metavar="DIR",
                        help="where the pictures go (tests/bench)")
    parser.add_argument("file", nargs="*", type=pathlib.Path, metavar="FILE",
                        help="results (all in tests/bench/results)")


def run(args: argparse.Namespace) -> int:
    """Check the files, and draw."""
    files = args.file or sorted(RESULTS.glob("*.json"))
    if not files:
        raise BenchError(f"no results in {RESULTS}")
    for path in files:
        table.read(path)
    if not args.out.is_dir():
        raise BenchError(f"--out {args.out}: no such folder")
    for path in files:
        drawn = args.out / f"{path.stem}.svg"
        picture.draw(table.read(path), drawn)
        print(drawn)
    return 0
