# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure what papers and users quote of guests, beside FreeBSD's own drivers and Linux.

Each test is scaled to this machine: --scale 1 has the sizes that were published, and the command in
the results says the scale.  Guests with our drivers, FreeBSD's own and Linux are all booted
at first, and measured in turn; each round begins with another one.  The ratio is that of runs that
follow each other, and where it is in 95 of 100 samples of these pairs.  The figures are by the
clock, so the machine has to be idle; QEMU's CPU time is beside them.  Under Xen the clock counts
instructions.

How long it takes is said before and after each table, by CPU time; as it comes, an hour at most on
two idle processors.

Without FreeBSD's sets ours is the tree kernel: transfers to the disk itself, TCP streams of its
iperf, and many guests of these.

The file of results has each row when it was measured, so that an interrupted run can go on.
"""

from __future__ import annotations

import argparse
import re
import sys
import types
from collections.abc import Sequence

from pvbench import (
    build,
    fieldcost,
    fieldcrypt,
    fieldfile,
    fieldguests,
    fieldmany,
    fieldmix,
    fieldmove,
    fieldnet,
    fieldsysbench,
    fieldxen,
    labs,
)
from pvbench.report import Command, Report

TABLES = (fieldfile, fieldnet, fieldcrypt, fieldmany, fieldmix, fieldmove, fieldsysbench,
          fieldxen)
SCALE, QUICK, FEW = 0.0625, 0.02, 1
SLOW = r"^Xen: .*(, [24] CPUs|, in FreeBSD)$"  # --quick has none: their guests take long to boot
# CPU seconds beside FreeBSD's own drivers and Linux, as `spent' of the results has them.
COSTS = {
    fieldfile: fieldcost.Cost(10, 1.5, 82),
    fieldnet: fieldcost.Cost(10, 3, 138),
    fieldcrypt: fieldcost.Cost(9, 18, 1200),
    # bonnie++ has a least size.
    fieldmany: fieldcost.Cost(85, 10, 5500, 1.8, fieldmany.LEAST / fieldmany.BONNIE),
    fieldmix: fieldcost.Cost(45, 16, 330),
    fieldmove: fieldcost.Cost(0, 49, 0),
    fieldsysbench: fieldcost.Cost(3, 1.5, 60),
    fieldxen: fieldcost.Cost(230, 20, 750, own_guests=True),
}


def scaled(args: argparse.Namespace) -> float:
    """The scale that was asked for."""
    scale: float = args.scale or (QUICK if args.quick else SCALE)
    return scale


def rounds(args: argparse.Namespace) -> int:
    """How often each is measured."""
    return FEW if args.quick else int(args.rounds)


def systems(args: argparse.Namespace) -> list[fieldguests.System]:
    """In which it is measured."""
    return fieldguests.systems(args.os, args.kernel)


def names(table: types.ModuleType, args: argparse.Namespace) -> list[str]:
    """The names of its rows, as far as these systems can do them and there is time."""
    found = [row.name for row in fieldguests.rows_of(table.rows(scaled(args)), systems(args))]
    return [name for name in found
            if not (args.quick and re.search(SLOW, f"{table.TITLE}: {name}"))]


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [f"{table.TITLE}: {name}" for table in TABLES for name in names(table, args)]


def check(args: argparse.Namespace) -> None:
    """Whether there are kernels; says so if it is not FreeBSD's."""
    if systems(args)[0].is_tree:
        build.need_kernel(args.kernel)
        if args.os is None and not labs.inside():
            missing = [table.TITLE for table in TABLES if not names(table, args)]
            print(f"bench field: {fieldguests.no_freebsd()}: ours is the tree kernel's, without"
                  f" files, e1000 and {', '.join(missing)}", file=sys.stderr)


def weight(rows: Sequence[object]) -> float:
    """What rows take, in terms of the shortest of their table."""
    return sum(getattr(row, "weight", 1) for row in rows)


def plans(wanted: dict[types.ModuleType, list[str]],
          args: argparse.Namespace) -> list[fieldcost.Plan]:
    """What is going to be measured, and how long that takes."""
    part = 1.0 if not systems(args)[0].is_tree else 2 / 3
    every = {table: fieldguests.rows_of(table.rows(scaled(args)), systems(args))
             for table in wanted}
    return [fieldcost.Plan(table.TITLE, part * COSTS[table].seconds(
                rounds(args), scaled(args),
                weight([row for row in every[table] if row.name in some]) / weight(every[table])),
                COSTS[table].busy) for table, some in wanted.items() if some]


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    if args.resume:
        report.resume()
    if args.quick:
        report.left_out = SLOW
    wanted = {table: [name for name in names(table, args)
                      if report.chosen(f"{table.TITLE}: {name}")
                      and not report.has(f"{table.TITLE}: {name}")] for table in TABLES}
    if not labs.inside():
        # Under Xen ours is the tree kernel: not to be found out after half an hour.
        if wanted[fieldxen]:
            build.need_kernel(build.OURS)
        fieldguests.build_linux(
            [program for table, program in ((fieldcrypt, fieldguests.CRYPTSETUP),
                                            (fieldmany, fieldguests.BONNIE)) if wanted[table]])
        if wanted[fieldsysbench]:
            fieldsysbench.build_linux()
        if wanted[fieldxen]:
            fieldxen.build_linux()
    labs.enter()
    report.progress.total = rounds(args) * sum(map(len, wanted.values()))
    clock = fieldcost.Clock(report, plans(wanted, args))
    with labs.scratch(1800):
        for table in (table for table, names in wanted.items() if names):
            table.run(report, rounds(args), scaled(args), systems(args))
            clock.ended()


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--scale", type=float, metavar="X",
                        help=f"sizes, as a part of those that were published ({SCALE:g})")
    parser.add_argument("--quick", action="store_true",
                        help=f"--scale {QUICK:g}, and one round: no more than a look, in"
                        " 10 minutes of two idle processors")
    parser.add_argument("--os", choices=["tree", "freebsd"],
                        help="where ours are (FreeBSD, if its sets and our modules are there)")
    parser.add_argument("--kernel", default=build.OURS, metavar="KERNEL",
                        help=f"the tree kernel's configuration ({build.OURS})")
    parser.add_argument("--resume", action="store_true",
                        help="leave out what an interrupted run of the same command has measured")


COMMAND = Command("field", __doc__, 5, operations, run, options, check=check,
                  unusable=lambda _: labs.unusable())
