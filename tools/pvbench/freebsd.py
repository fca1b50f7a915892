# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure our drivers in FreeBSD beside FreeBSD's own, of virtio's devices or Xen's.

FreeBSD's kernel without debugging (tools/freebsd import DIR; tools/freebsd modules --kernel
PVKMOD), TCG, `-icount shift=0` and a plugin that counts the guest's instructions: modern devices,
one CPU, whose idle thread does not spin.  In each round both kinds of modules are loaded into a
fresh guest, which then does every row (freebsdrows.py): first a little, then a lot; a figure is the
difference, divided by the difference of what was done, so that all that comes with a run, and idle
time, cancels out.  The programs are pvbench (tests/sys/cmd) in the guest, and netbench on the host,
whose TAP has vnet_hdr.  A busy machine changes rows of packets received and forwarded, which come
less together then, and those at depth 1 and of round trips: where QEMU is stopped behind a
notification, the answer finds the thread that notified with its locks held.

The ratio is that of the medians.  Beside it are QEMU's CPU time, which other work on this machine
hardly changes, and the time by the clock, which it does; both are differences of the same runs.
Another table has what takes the guest to its host: notifications, interrupts, and those of the
local APIC's timer, which is set by a write; each as QEMU saw it.

With --profile further tables have the instructions of the drivers' own functions (with sglist(9),
which FreeBSD's have for themselves), and what the ratio of all instructions would be without any of
ours; and the functions with the largest differences are printed, of the last round.

A table is of loading the modules, and of what devices take beside that until they are attached and
disks have been tasted: instructions, and memory that is wired.

The last table is of requests a second by the clock, of disks whose device takes a time of its own
for each (blkspeed.py), without counting: a guest with our modules and one with FreeBSD's, in turn.

--em measures something else: a stream of 64 KB writes by vtnet and by em(4), QEMU's e1000, both in
one guest with our modules, in turn, without counting; the ratio is that of runs that follow each
other, which both have what other work leaves of this machine.  The processor has no fast string
instructions (-erms,-fsrm), as TCG copies byte by byte with them.

--xen measures xn and xbd in GENERIC, which has drivers of its own for them (tools/freebsd modules
--kernel generic): two guests in one lab, whose clock counts instructions (as in `tools/bench xbd':
a second is 10^9 of them, guest's, Xen's and dom0's alike), ours with our modules from the beginning
and the other with what it comes with.  They work in turn, with a ram disk of dom0's and two cards
on bridges of dom0's.  One table is of operations a second; one of the guest's instructions for each
with what Xen did for it, by Xen's account of its processor (tests/bench/domtime.c).  Beside those
are its own alone, its exits and its hypercalls, from Xen's trace buffer.  Ratios are of runs that
followed each other.  A TCP stream is routed with all offloads on, and with those off, in hosts and
router, without which it does not come through FreeBSD's own front ends; a last row has ours with
them on beside the other's with them off.  --profile prints functions there as well, by virtual
addresses, of which dom0's Linux has some of the same: it adds to either side what it takes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import re
import statistics
from collections.abc import Callable

from fbsd.modules import built_for
from fbsd.sets import FreebsdError, need
from pvbench import blkspeed, build, counting, freebsdem, freebsdxen, labs, xenguests
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_medians
from pvbench.freebsdrows import CALM, EXITS, MODERN, ROWS, Row, Side, Spent, measure, show_functions
from pvbench.labs import QuietLab, netlab
from pvbench.report import Command, Report
from pvbench.table import Goal, Line

GOAL = Goal(0.95, aim=0.83)
EXITS_GOAL = ATTACHED_GOAL = Goal(1)

KINDS = {"ours": ["kldload virtio_blk", "kldload if_vtnet"],
         "FreeBSD's": ["sysctl kern.module_path=/boot/kernel",
                       "kldload virtio_pci virtio_blk if_vtnet"]}


@dataclasses.dataclass
class Measured:
    """A row in all rounds, one after the other, by kind of drivers."""

    spent: dict[str, list[Spent]] = dataclasses.field(
        default_factory=lambda: {kind: [] for kind in KINDS})
    own: dict[str, list[float]] = dataclasses.field(  # instructions of the drivers' functions
        default_factory=lambda: {kind: [] for kind in KINDS})

    def besides(self, figure: Callable[[Spent], float]) -> tuple[float, float | None]:
        """Medians of one of the figures, of ours and of FreeBSD's."""
        ours, stock = (statistics.median(map(figure, self.spent[kind])) for kind in KINDS)
        return ours, stock

    def without(self) -> float:
        """What the ratio of instructions would be if our drivers took none."""
        ours, own, stock = (
            statistics.median(one.instructions for one in self.spent["ours"]),
            statistics.median(self.own["ours"]),
            statistics.median(one.instructions for one in self.spent["FreeBSD's"]))
        return (ours - own) / stock


def one_round(rows: list[Row], results: dict[str, Measured], report: Report,
              profile: bool) -> None:
    """Each kind of drivers in a fresh guest."""
    for kind, lines in KINDS.items():
        with contextlib.ExitStack() as stack:
            report.progress.step(f"{kind}: boot")
            side = Side("ours" if kind == "ours" else "stock", lines, stack, profile)
            drivers = side.symbols.modules if side.symbols is not None else set()
            for row in rows:
                report.progress.step(f"{kind}: {row.name}")
                spent = measure(side, row)
                results[row.name].spent[kind].append(spent)
                results[row.name].own[kind].append(sum(
                    count for name, count in spent.functions.items()
                    if name in drivers or name.startswith("sglist_")))
            side.lab.end()


# Devices that are there when the drivers are loaded: an option for each, and how many.
MODULES = "modules are loaded"
DEVICES = {MODULES: ("--disk", 0), "1 disk is attached": ("--disk", 1),
           "24 disks are attached": ("--disk", 24), "8 cards are attached": ("--net", 8)}


@dataclasses.dataclass
class Held:
    """What a guest's devices have taken."""

    instructions: float
    memory: float  # KB that are wired

    @classmethod
    def by(cls, lab: netlab.Lab, live: pathlib.Path) -> Held:
        """Up to now."""
        pages = int(lab.guest("sysctl -n vm.stats.vm.v_wire_count").split()[-1])
        return cls(counting.executed(live), pages * 4)

    def minus(self, other: Held) -> Held:
        """The difference."""
        return Held(self.instructions - other.instructions, self.memory - other.memory)


@labs.scratch()
def attached(name: str, lines: list[str]) -> Held:
    """What modules and devices take, until disks have been tasted."""
    option, count = DEVICES[name]
    live, words = pathlib.Path("live").absolute(), []
    for number in range(count):
        disk = pathlib.Path(f"disk{number}").absolute()
        with disk.open("wb") as file:
            file.truncate(16 << 20)
        words += [option, f"{disk if option == '--disk' else 'user,restrict=on'}{MODERN}"]
    with QuietLab([], ["--os", "freebsd", "--fresh", "--mem", "768", *words,
                       *counting.counting(live)]) as lab:
        for line in CALM:
            lab.guest(line)
        before = Held.by(lab, live)
        for line in lines:
            lab.guest(line)
        lab.guest("sleep 2")
        after = Held.by(lab, live)
        found = re.findall(r"\bvtbd\d+\b|\bvtnet\d+\b", lab.guest("ls /dev; ifconfig -l"))
        if len(found) != count:
            raise BenchError(f"{name}: there are {found}")
        lab.end()
    return after.minus(before)


def measure_attached(names: list[str], rounds: int, report: Report) -> None:
    """Of both kinds of drivers, each in a fresh guest; of devices without what the modules took."""
    held: dict[str, dict[str, list[Held]]] = {
        name: {kind: [] for kind in KINDS} for name in names}
    for _ in range(rounds if names else 0):
        for kind, lines in KINDS.items():
            report.progress.step(f"{kind}: {MODULES}")
            modules = attached(MODULES, lines)
            for name in names:
                if name == MODULES:
                    held[name][kind].append(modules)
                    continue
                report.progress.step(f"{kind}: {name}")
                held[name][kind].append(attached(name, lines).minus(modules))
    for name in names:
        ours, stock = (Figures.of([one.instructions for one in held[name][kind]]) for kind in KINDS)
        memory, other = (statistics.median(one.memory for one in held[name][kind])
                         for kind in KINDS)
        report.add(report.table("In FreeBSD: until devices are attached", "FreeBSD's"), Line(
            name, "instructions", ours, stock, of_medians(ours, stock), ATTACHED_GOAL,
            {"KB of memory": (memory, other)}))


def report_row(row: Row, measured: Measured, report: Report) -> None:
    """What all of it took."""
    ours, stock = (Figures.of([one.instructions for one in measured.spent[kind]])
                   for kind in KINDS)
    report.add(report.table(f"In FreeBSD, beside its own drivers: {row.table}", "FreeBSD's"), Line(
        row.name, "instructions", ours, stock, of_medians(ours, stock), GOAL,
        {"µs of QEMU's CPU time": measured.besides(lambda one: one.cpu),
         "µs by the clock": measured.besides(lambda one: one.clock)}))


def number_of(what: str) -> Callable[[Spent], float]:
    """How many exits of a kind there were."""
    return lambda spent: spent.exits[what]


def report_exits(row: Row, measured: Measured, report: Report) -> None:
    """How often it went to the host."""
    ours, stock = (Figures.of([sum(one.exits.values()) for one in measured.spent[kind]])
                   for kind in KINDS)
    report.add(report.table(f"Exits to the host: {row.table}", "FreeBSD's"), Line(
        row.name, "exits", ours, stock, of_medians(ours, stock), EXITS_GOAL,
        {what: measured.besides(number_of(what)) for what in EXITS}))


def report_own(row: Row, measured: Measured, report: Report) -> None:
    """What the drivers' own functions took."""
    ours, stock = (Figures.of(measured.own[kind]) for kind in KINDS)
    report.add(report.table(f"Of these the drivers' own: {row.table}", "FreeBSD's"), Line(
        row.name, "instructions", ours, stock, of_medians(ours, stock),
        besides={"ratio of all without any of ours": (measured.without(), None)}))


def measure_speed(args: argparse.Namespace, report: Report) -> None:
    """Requests a second, of both kinds of drivers."""
    with labs.scratch(), contextlib.ExitStack() as stack:
        ours, stock = (blkspeed.lab(stack, ["--os", "freebsd", "--fresh", "--mem", "768"],
                                    ["kldload instruments", *lines, *CALM])
                       for lines in KINDS.values())
        blkspeed.measure(report, args.rounds, (
            "In FreeBSD: requests a second, by the device's latency and the depth", "FreeBSD's"),
            (blkspeed.Side(ours), blkspeed.Side(stock)))
        for guest in (ours, stock):
            guest.end()


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    if not labs.inside():
        build.plugin()
        build.netbench()
    if args.xen:
        freebsdxen.run(args, report)
        return
    labs.enter()
    if args.em:
        with labs.scratch():
            freebsdem.run(args.rounds, KINDS["ours"], report)
        return
    rows = [row for row in ROWS if report.chosen(row.name)]
    loads = [load for load in blkspeed.LOADS if report.chosen(load.name)]
    devices = [name for name in DEVICES if report.chosen(name)]
    report.progress.total = args.rounds * (
        len(KINDS) * (len(rows) + bool(rows) + len({MODULES, *devices}) * bool(devices)) +
        len(loads))
    results = {row.name: Measured() for row in rows}
    for _ in range(args.rounds if rows else 0):
        with labs.scratch():
            one_round(rows, results, report, args.profile)
    report.progress.clear()
    # Rows of a table come one after the other.
    order = list(dict.fromkeys(row.table for row in rows))
    rows.sort(key=lambda row: order.index(row.table))
    for row in rows:
        report_row(row, results[row.name], report)
    for row in rows:
        report_exits(row, results[row.name], report)
    for row in rows if args.profile else ():
        report_own(row, results[row.name], report)
    for row in rows if args.profile else ():
        show_functions(row.name, *(results[row.name].spent[kind][-1].functions for kind in KINDS))
    measure_attached(devices, args.rounds, report)
    if loads:
        measure_speed(args, report)


def unusable(args: argparse.Namespace) -> str | None:
    """Why there is no FreeBSD to measure in."""
    if args.xen:
        return freebsdxen.unusable()
    if labs.inside():
        return None
    try:
        return netlab.unusable() or (None if built_for(need("kernel")) else "no modules")
    except FreebsdError as error:
        return str(error)


def check(args: argparse.Namespace) -> None:
    """Refuse what is not measured together."""
    if args.em and args.xen:
        raise BenchError("--em and --xen are two benches")
    if args.lab and (args.profile or not args.xen):
        raise BenchError("--lab is for --xen, whose --profile needs a lab of its own")


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--em", action="store_true",
                        help="measure vtnet beside em(4) instead, QEMU's e1000")
    parser.add_argument("--xen", action="store_true",
                        help="measure xn and xbd in GENERIC under Xen instead")
    xenguests.lab_option(parser)


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    if args.em or args.xen:
        return [row.name for row in (freebsdem if args.em else freebsdxen).ROWS]
    return [*(row.name for row in ROWS), *DEVICES, *(load.name for load in blkspeed.LOADS)]


COMMAND = Command("freebsd", __doc__, 5, operations, run, options, check, unusable, profile=True)
