# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure suspension and the balloon under Xen beside Linux: same dom0, same memory, one run.

Our kernel (GENERIC-NODEBUG) and Debian's Linux as a PVH guest are in one lab, whose clock counts
instructions (`-icount shift=0`): a second is 10^9 of them, guest's, Xen's and dom0's alike.

Black-out: dom0 pings the guest twenty times a second, and moves it: the longest time without an
answer, of each round.  The other guest is paused.

Balloon: the toolstack takes a quarter of the memory, and gives it back.  Printed for a megabyte are
the instructions of the guest with what Xen did for it, by Xen's account of the time that its
processor ran (tests/bench/domtime.c); and, from Xen's trace buffer, the guest's own instructions
alone and its hypercalls, all of them and those about memory.  Xen begins a long hypercall anew
after each interrupt, which counts.

The goal is a ratio of at most 1.5, of black-outs and of the instructions with Xen.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from pvbench import build, xenguests
from pvbench.figures import Figures, of_medians
from pvbench.report import Command, Report
from pvbench.table import Goal, Line
from pvbench.xenguests import FOREVER
from xen import image, trace
from xen.errors import Deadline
from xen.lab import Lab

GOAL = Goal(1.5)
MEMORY_OP = 12  # __HYPERVISOR_memory_op
DOMTIME = "/run/domtime"
IMAGE = "/run/moved"
MOVES = {
    "save and restore": f"xl -f save NAME {IMAGE} && xl restore {IMAGE} && rm {IMAGE}",
    "migrate to the same host": "xl migrate -s '' NAME 'exec xl migrate-receive'",
    "save -c": f"xl -f save -c NAME {IMAGE} && rm {IMAGE}",
}
WAYS = ("inflate", "deflate")
MILLIONS = "million instructions"
WITH_XEN = "guest with Xen"
# What is measured of the balloon, with its unit.
QUANTITIES = {WITH_XEN: MILLIONS, "guest alone": MILLIONS, "all hypercalls": "hypercalls",
              "hypercalls about memory": "hypercalls"}

Costs = dict[str, float]
Result = TypeVar("Result")


class Side:
    """One of the two guests."""

    def __init__(self, guest: xenguests.Side, address: str, megabytes: int) -> None:
        self.guest = guest
        self.address = address
        self.megabytes = megabytes

    def dom0(self, script: str) -> str:
        """What a script prints in dom0."""
        return self.guest.dom0(script.replace("NAME", self.guest.domain))

    def blackout(self, move: str) -> float:
        """Seconds without an answer."""
        return float(self.dom0(f"""
            (ping -i 0.05 {self.address} | while read -r line; do
                read -r t _ </proc/uptime; echo $t $line; done >/run/ping.log) \
                >/dev/null 2>&1 </dev/null &
            sleep 2
            {{ {move}; }} >/run/move.log 2>&1 </dev/null || {{ cat /run/move.log; exit 1; }}
            sleep 3; killall ping; sleep 1
            awk '/ seq=/ {{ if (last) print $1 - last; last = $1 }}' /run/ping.log | sort -n |
                tail -n 1"""))

    def processor(self) -> float:
        """Million instructions of its processor."""
        return int(self.dom0(f"{DOMTIME} $(xl domid NAME)")) / 1e6

    def resize(self, megabytes: int) -> None:
        """Have so much memory."""
        self.dom0(f"""xl mem-set NAME {megabytes}; i=0
            while [ "$(xl list NAME | awk 'NR == 2 {{ print $3 }}')" != {megabytes} ]; do
                i=$((i + 1)); [ $i -lt 1000 ] || exit 1; sleep 0.02; done""")

    def cost(self, megabytes: int, moved: int) -> Costs:
        """What it takes to have so much memory, so much more or less than now, for a megabyte."""
        before = self.processor()
        self.resize(megabytes)
        return {WITH_XEN: (self.processor() - before) / moved}

    def traced_cost(self, megabytes: int, moved: int) -> Costs:
        """The same, from the trace buffer."""
        seen = trace.record(self.guest.lab, lambda: self.resize(megabytes), Deadline(FOREVER))
        return {"guest alone": seen.inside / 1e6 / moved,
                "all hypercalls": seen.hypercalls.total() / moved,
                "hypercalls about memory": seen.hypercalls[MEMORY_OP] / moved}


@contextlib.contextmanager
def side(lab: Lab, name: str, kernel: list[str], address: str, args: argparse.Namespace,
         setup: list[str]) -> Iterator[Side]:
    """A guest that is ready, and paused."""
    with xenguests.booted(lab, name, kernel[0], [
            *kernel[1:], "--mem", str(args.mem), "--net", "bridge:xenbr0"]) as guest:
        made = Side(guest, address, args.mem)
        for command in setup:
            guest.say(command)
        guest.pause()
        try:
            yield made
        finally:
            # Its console is no longer the one that it was booted with.
            with contextlib.suppress(Exception):
                made.dom0("xl destroy NAME")


def turns(sides: list[Side], work: Callable[[Side], Result]) -> list[Result]:
    """What the work returns for each, the other one paused."""
    results = []
    for one in sides:
        one.guest.unpause()
        results.append(work(one))
        one.guest.pause()
    return results


def bench_blackout(sides: list[Side], rounds: int, report: Report) -> None:
    """The table of black-outs."""
    table = report.table(f"Black-out, {sides[0].megabytes} MB of memory", "Linux")
    for name, move in MOVES.items():
        if not report.chosen(name):
            continue

        def work(one: Side, how: str = move, what: str = name) -> Figures:
            report.progress.step(f"{one.guest.name}: {what}")
            return Figures.of([one.blackout(how) for _ in range(rounds)])

        ours, theirs = turns(sides, work)
        report.add(table, Line(name, "s", ours, theirs, of_medians(ours, theirs), GOAL))


def bench_balloon(sides: list[Side], cycles: int, report: Report) -> None:
    """The table of the balloon."""
    moved = sides[0].megabytes // 4

    def work(one: Side) -> list[list[Costs]]:
        report.progress.step(f"{one.guest.name}: balloon")
        return [[cost(to, moved) for to in (one.megabytes - moved, one.megabytes)]
                for cost in (one.cost, one.traced_cost) for _ in range(cycles)]

    results = turns(sides, work)
    table = report.table(f"A megabyte of the balloon, {moved} MB down and up", "Linux")
    for index, way in enumerate(WAYS):
        for what, unit in QUANTITIES.items() if report.chosen(way) else ():
            ours, theirs = (Figures.of([cycle[index][what] for cycle in result
                                        if what in cycle[index]]) for result in results)
            report.add(table, Line(f"{way}: {what}", unit, ours, theirs, of_medians(ours, theirs),
                                   GOAL if what == WITH_XEN else None))


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    image.build()
    ours = [args.kernel, *(word for env in args.env for word in ("--env", env))]
    balloon = any(map(report.chosen, WAYS))
    report.progress.total = 2 * (balloon + sum(map(report.chosen, MOVES)))
    with xenguests.counting_lab(args, "bench-suspend") as lab:
        lab.put(build.domtime(), DOMTIME, Deadline(FOREVER))
        lab.output(f"chmod +x {DOMTIME}", Deadline(FOREVER))
        with side(lab, "ours", ours, "10.0.0.2", args, [
                "kldload if_xn xen_balloon", "ifconfig xn0 inet 10.0.0.2/24"]) as mine, \
                side(lab, "Linux", ["xen/linux"], "10.0.0.3", args, [
                    "ip addr add 10.0.0.3/24 dev eth0", "ip link set eth0 up"]) as linux:
            if balloon:
                bench_balloon([mine, linux], args.rounds, report)
            bench_blackout([mine, linux], args.rounds, report)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--mem", type=int, default=128, help="MB of each guest (128)")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE",
                        help="of our kernel's environment; kern.hz=250 is what Linux has")
    xenguests.lab_options(parser)


COMMAND = Command("suspend", __doc__, 5, lambda args: [*WAYS, *MOVES], run, options,
                  xenguests.check)
