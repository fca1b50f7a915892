# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Draw pictures of results: bars of ours beside the other's.

A bar is the median, the line across its end reaches from the minimum to the maximum, and the
number is the ratio, ours to the other's (without another, the median).  FILE is what --json has
written; FILE.svg goes to the folder of --out.

What draws is matplotlib (tools/requirements.txt), which the first call installs below obj/draw.
The same results give the same picture, to the byte.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess

from pvbench import table
from pvbench.errors import BenchError
from xen.errors import TOP

RESULTS = TOP / "tests/bench/results"
PYTHON = TOP / "obj/draw/bin/python3"


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `draw'."""
    parser.add_argument("--out", type=pathlib.Path, default=TOP / "tests/bench", metavar="DIR",
                        help="where the pictures go (tests/bench)")
    parser.add_argument("file", nargs="*", type=pathlib.Path, metavar="FILE",
                        help="results (all in tests/bench/results)")


def run(args: argparse.Namespace) -> int:
    """Check the files, have matplotlib, draw."""
    files = args.file or sorted(RESULTS.glob("*.json"))
    if not files:
        raise BenchError(f"no results in {RESULTS}")
    for path in files:
        table.read(path)
    if not args.out.is_dir():
        raise BenchError(f"--out {args.out}: no such folder")
    if subprocess.run([TOP / "tools/bootstrap", "--draw"], check=False).returncode != 0:
        raise BenchError("matplotlib could not be installed")
    words = [PYTHON, "-B", "-m", "pvbench.picture", args.out.absolute(),
             *(path.absolute() for path in files)]
    return subprocess.run(words, cwd=TOP / "tools", check=False).returncode
