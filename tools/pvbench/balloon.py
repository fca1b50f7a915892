# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure virtio's balloon beside Linux's driver: what a megabyte costs the guest, each way.

GENERIC-NODEBUG and Debian's cloud kernel with its own virtio_balloon, one after the other, have the
same QEMU (TCG, `-icount shift=0`), memory and balloon; QMP's `balloon` sets the target.
Instructions are the guest's, all of them, by a plugin; kicks and interrupts are those of the
device's queues that QEMU saw.  A figure is the difference of a large and a small change of the
target within one boot, for a megabyte: the constant cost of a change, and idle time, cancel out.
Counting begins with the new target, and ends half a second after the device has all pages.  A first
round is a warm-up, and does not count.

The goal is for the ratio to Linux with mitigations=off and init_on_alloc=0: its lowest cost, and,
as ours, without zeroing pages that it gives to the host.  Linux with Debian's defaults
(mitigations, init_on_alloc=1) is shown as well.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import pathlib
import time

from pvbench import build, counting
from pvbench.counting import UNITS, Events
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_medians
from pvbench.labs import LinuxLab, QuietLab, netlab, scratch, tail
from pvbench.report import Command, Report
from pvbench.table import Goal, Line
from pvguest.errors import GuestError

LINUX = "linuxballoon"
PATIENCE = 3600.0  # seconds for a guest
MEMORY, SMALL, LARGE = 1024, 64, 576  # MB
SETTLE = 0.5  # seconds
EVENTS = ("virtio_queue_notify", "virtio_notify")
WAYS = ("inflate", "deflate")
NO_WATCHDOG = "echo 0 >/proc/sys/kernel/watchdog"


@dataclasses.dataclass
class Side:
    """A guest to be measured."""

    name: str
    kernel: str
    options: tuple[str, ...]
    begin: str  # a line for its console
    lab: type[netlab.Lab] = LinuxLab
    goal: Goal | None = None


SIDES = [
    Side("ours", build.OURS, (), "kldload virtio_balloon", QuietLab),
    Side("Linux, mitigations=off init_on_alloc=0", f"bench/{LINUX}",
         build.LINUX_CONSOLE + build.LINUX_BARE, NO_WATCHDOG, goal=Goal(1)),
    Side("Linux, Debian's defaults", f"bench/{LINUX}", build.LINUX_CONSOLE, NO_WATCHDOG),
]


class Balloon:
    """The balloon of a guest that runs."""

    def __init__(self, lab: netlab.Lab, live: pathlib.Path, events: Events) -> None:
        self.monitor = lab.vm.monitor()
        self.live = live
        self.events = events

    def count(self) -> list[int]:
        """Instructions, kicks and interrupts up to now."""
        return [counting.executed(self.live), *map(self.events.total, EVENTS)]

    def change(self, megabytes: int) -> list[int]:
        """Let the host have so much in all; what that took."""
        target = (MEMORY - megabytes) << 20
        before = self.count()
        self.monitor.execute("balloon", value=target)
        while self.monitor.execute("query-balloon")["actual"] != target:
            self.monitor.deadline.left()  # raises when there is no time left
            time.sleep(0.05)
        time.sleep(SETTLE)
        return [after - count for after, count in zip(self.count(), before, strict=True)]


Costs = dict[tuple[str, str], list[float]]  # by way and unit, a megabyte in each round


def rounds(balloon: Balloon, count: int, report: Report, name: str) -> Costs:
    """Inflate and deflate, a little and much."""
    costs: Costs = collections.defaultdict(list)
    for number in range(count + 1):
        report.progress.step(name)
        took = {size: (balloon.change(size), balloon.change(0)) for size in (SMALL, LARGE)}
        for index, way in enumerate(WAYS if number > 0 else ()):
            for unit, few, many in zip(UNITS, took[SMALL][index], took[LARGE][index], strict=True):
                costs[way, unit].append((many - few) / (LARGE - SMALL))
    return costs


def measure(side: Side, args: argparse.Namespace, report: Report) -> Costs:
    """Boot it; the costs of both ways."""
    live, events = pathlib.Path("live").absolute(), Events(pathlib.Path("trace").absolute(), EVENTS)
    lab = side.lab([], [
        "--kernel", side.kernel, "--mem", str(MEMORY), *counting.counting(live),
        *events.options(), "--qemu=-device", "--qemu=virtio-balloon-pci",
        *side.options])
    try:
        with lab:
            lab.guest(side.begin)
            costs = rounds(Balloon(lab, live, events), args.rounds, report, side.name)
            lab.end()
    except GuestError as error:
        raise BenchError(f"{side.name}: {error}\n{tail()}") from error
    return costs


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    build.plugin()
    build.linux(LINUX, ["virtio_balloon"], [])
    report.progress.total = len(SIDES) * (args.rounds + 1)
    with scratch(PATIENCE):
        ours, *others = [measure(side, args, report) for side in SIDES]
    for side, costs in zip(SIDES[1:], others, strict=True):
        table = report.table(f"A megabyte of the balloon, beside {side.name}", "Linux")
        for (way, unit), values in costs.items():
            if report.chosen(way):
                mine, theirs = Figures.of(ours[way, unit]), Figures.of(values)
                report.add(table, Line(way, unit, mine, theirs, of_medians(mine, theirs),
                                       side.goal if unit != "interrupts" else None))


COMMAND = Command("balloon", __doc__, 5, lambda args: list(WAYS), run,
                  check=lambda args: build.need_kernel(build.OURS))
