# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure what papers and users quote of guests, beside FreeBSD's own drivers and Linux.

Each test is scaled to this machine: --scale 1 has the sizes that were published, and the command in
the results says the scale.  Guests with our drivers, FreeBSD's own and Linux are all booted
at first, and measured in turn; each round begins with another one.  The ratio is that of runs that
follow each other.  The figures are by the guest's clock, so the machine has to be idle.
"""

from __future__ import annotations

import argparse
import types

from pvbench import fieldcrypt, fieldfile, fieldguests, fieldmany, fieldmix, fieldnet, labs
from pvbench.report import Command, Report

TABLES = (fieldfile, fieldnet, fieldcrypt, fieldmany, fieldmix)
SCALE, QUICK = 0.25, 0.0625


def scaled(args: argparse.Namespace) -> float:
    """The scale that was asked for."""
    scale: float = args.scale or (QUICK if args.quick else SCALE)
    return scale


def names(table: types.ModuleType, args: argparse.Namespace) -> list[str]:
    """The names of its rows."""
    return [row.name for row in table.rows(scaled(args))]


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [f"{table.TITLE}: {name}" for table in TABLES for name in names(table, args)]


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    if not labs.inside():
        fieldguests.build_linux()
    labs.enter()
    wanted = {table: [name for name in names(table, args)
                      if report.chosen(f"{table.TITLE}: {name}")] for table in TABLES}
    report.progress.total = args.rounds * sum(map(len, wanted.values()))
    with labs.scratch(1800):
        for table in (table for table, names in wanted.items() if names):
            table.run(report, args.rounds, scaled(args))


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--scale", type=float, metavar="X",
                        help=f"sizes, as a part of those that were published ({SCALE:g})")
    parser.add_argument("--quick", action="store_true", help=f"the same as --scale {QUICK:g}")


COMMAND = Command("field", __doc__, 3, operations, run, options, unusable=labs.unusable)
