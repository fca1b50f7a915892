# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure vtnet and vtbd in FreeBSD beside FreeBSD's own virtio drivers.

FreeBSD's kernel without debugging (tools/freebsd import DIR; tools/freebsd modules --kernel
PVKMOD), TCG, `-icount shift=0` and a plugin that counts the guest's instructions: modern devices,
one CPU, whose idle thread does not spin.  In each round both kinds of modules are loaded into a
fresh guest, which then does every row (freebsdrows.py): first a little, then a lot; a figure is the
difference, divided by the difference of what was done, so that all that comes with a run, and idle
time, cancels out.  The programs are pvbench (tests/sys/cmd) in the guest, and netbench on the host,
whose TAP has vnet_hdr.

The ratio is that of the medians.  --profile prints, for each row that is measured, the functions
with the largest difference, and how much of all instructions the drivers' own are (with sglist(9),
which FreeBSD's have for themselves).

--em measures something else: a stream of 64 KB writes by vtnet and by em(4), QEMU's e1000, both in
one guest with our modules, in turn, without counting; the ratio is that of runs that follow each
other, which both have what other work leaves of this machine.  The processor has no fast string
instructions (-erms,-fsrm), as TCG copies byte by byte with them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib

from fbsd.modules import built_for
from fbsd.sets import FreebsdError, need
from pvbench import build, freebsdem, labs
from pvbench.figures import Figures, of_medians
from pvbench.freebsdrows import ROWS, Functions, Row, Side, measure
from pvbench.labs import netlab
from pvbench.report import Command, Report
from pvbench.table import Goal, Line

GOAL = Goal(0.95, aim=0.83)
SHOWN = 5  # instructions more or less

KINDS = {"ours": ["kldload virtio_blk", "kldload if_vtnet"],
         "FreeBSD's": ["sysctl kern.module_path=/boot/kernel",
                       "kldload virtio_pci virtio_blk if_vtnet"]}


def show_profile(row: Row, drivers: set[str], ours: Functions, stock: Functions) -> None:
    """Functions by how much more ours executes, and what the drivers' own are of the whole."""
    names = sorted(ours.keys() | stock.keys(), key=lambda name: stock[name] - ours[name])
    print(f"\n{row.name}: instructions of ours and of FreeBSD's, by function")
    for name in names:
        if abs(ours[name] - stock[name]) >= SHOWN:
            print(f"{ours[name] - stock[name]:+8d} {ours[name]:8d} {stock[name]:8d}  {name}")
    own, theirs = (sum(count for name, count in side.items()
                       if name in drivers or name.startswith("sglist_")) for side in (ours, stock))
    print(f"the drivers: ours {own} of {ours.total()}, FreeBSD's {theirs} of {stock.total()}; "
          f"the ratio without any: {1 - theirs / stock.total():.2f}\n")


def one_round(rows: list[Row], costs: dict[str, dict[str, list[float]]], report: Report,
              profile: bool) -> None:
    """Each kind of drivers in a fresh guest."""
    profiles: dict[str, list[Functions]] = collections.defaultdict(list)
    drivers: set[str] = set()
    for kind, lines in KINDS.items():
        with contextlib.ExitStack() as stack:
            report.progress.step(f"{kind}: boot")
            side = Side("ours" if kind == "ours" else "stock", lines, stack, profile)
            if side.symbols is not None:
                drivers |= side.symbols.modules
            for row in rows:
                report.progress.step(f"{kind}: {row.name}")
                cost, functions = measure(side, row)
                costs[row.name][kind].append(cost)
                profiles[row.name].append(functions)
            side.lab.end()
    report.progress.clear()
    if profile:
        for row in rows:
            show_profile(row, drivers, *profiles[row.name])


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    if not labs.inside():
        build.plugin()
        build.netbench()
    labs.enter()
    if args.em:
        with labs.scratch():
            freebsdem.run(args.rounds, KINDS["ours"], report)
        return
    rows = [row for row in ROWS if report.chosen(row.name)]
    report.progress.total = len(KINDS) * args.rounds * (len(rows) + 1)
    costs: dict[str, dict[str, list[float]]] = {
        row.name: {kind: [] for kind in KINDS} for row in rows}
    for _ in range(args.rounds):
        with labs.scratch():
            one_round(rows, costs, report, args.profile)
    # Rows of a table come one after the other.
    order = list(dict.fromkeys(row.table for row in rows))
    for row in sorted(rows, key=lambda row: order.index(row.table)):
        ours, stock = (Figures.of(costs[row.name][kind]) for kind in KINDS)
        table = report.table(f"In FreeBSD, beside its own drivers: {row.table}", "FreeBSD's")
        report.add(table, Line(
            row.name, "instructions", ours, stock, of_medians(ours, stock), GOAL))


def unusable() -> str | None:
    """Why there is no FreeBSD to measure in."""
    if labs.inside():
        return None
    try:
        return netlab.unusable() or (None if built_for(need("kernel")) else "no modules")
    except FreebsdError as error:
        return str(error)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--em", action="store_true",
                        help="measure vtnet beside em(4) instead, QEMU's e1000")


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [row.name for row in (freebsdem.ROWS if args.em else ROWS)]


COMMAND = Command("freebsd", __doc__, 5, operations, run, options, unusable=unusable,
                  profile=True)
