# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Requests a second of a virtio disk whose device takes a known time for each, at several depths.

The device is QEMU's null-co with a latency; the clock is the host's, so that only short runs that
follow each other are compared, each first in every other pair.  A thread submits all, or as many as
there are in flight wait each for its own.  While a run lasts QEMU has real-time priority, where
that is allowed: a tenth of a second, in which the rest of this machine waits.  Beside it is QEMU's
CPU time for a request, which other work on this machine hardly changes: what batches save, but not
for how long the device is idle.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import statistics
from collections.abc import Callable, Iterator

from pvbench import counting
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_pairs_interval
from pvbench.labs import QuietLab, netlab
from pvbench.report import Report
from pvbench.table import Goal, Line

LATENCIES = (20, 50, 100, 200, 1000)  # microseconds
DEPTHS = (2, 4, 8, 12, 16, 32, 64)
LIMIT = Goal(0.97, at_least=True)
SECONDS = 0.06  # a run
PAIRS = 8  # of runs, a round
TRIED = 4  # requests for each in flight, to see how fast this machine is now
SIZE = 64 << 20
UNIT = "requests/s"


@dataclasses.dataclass(frozen=True)
class Load:
    """What is submitted to which of the disks."""

    operation: str
    latency: int
    depth: int
    threads: bool

    @property
    def name(self) -> str:
        """What the row is called."""
        return (f"{self.operation} 4 KiB, {self.latency} \u00b5s, depth {self.depth}"
                f"{', a thread each' if self.threads else ''}")

    @property
    def disk(self) -> int:
        """Its disk's number."""
        return LATENCIES.index(self.latency)

    def line(self, count: int) -> str:
        """The command."""
        return (f"diskbench {'-t ' if self.threads else ''}-o {self.operation} -r -b 4k "
                f"-d {self.depth} -n {count} /dev/vtbd{self.disk}")

    def rate(self, lab: netlab.Lab, count: int) -> float:
        """Requests a second, of so many."""
        said = lab.guest(self.line(count))
        found = re.search(r" 0 errors, .* (\d+) requests/sec", said)
        if found is None:
            raise BenchError(f"{self.name}: {said}")
        return float(found[1])


LOADS = [Load(operation, latency, depth, threads) for threads in (False, True)
         for operation in ("read", "write") for latency in LATENCIES for depth in DEPTHS]


def disks() -> list[str]:
    """Options of tools/guest: a disk for each latency."""
    words = []
    for latency in LATENCIES:
        words += ["-blockdev", f"driver=null-co,node-name=us{latency},size={SIZE},"
                  f"latency-ns={1000 * latency},read-zeroes=on",
                  "-device", f"virtio-blk-pci,drive=us{latency},disable-legacy=on,"
                  "disable-modern=off"]
    return [f"--qemu={word}" for word in words]


def lab(stack: contextlib.ExitStack, options: list[str], lines: list[str]) -> netlab.Lab:
    """A guest that has them, after these commands."""
    guest: netlab.Lab = stack.enter_context(QuietLab([], [*options, *disks()]))
    for line in lines:
        guest.guest(line)
    return guest


@contextlib.contextmanager
def undisturbed(pid: int) -> Iterator[None]:
    """Have all threads of a process run before other work, if we may."""
    def schedule(policy: int, priority: int) -> None:
        with contextlib.suppress(OSError):  # a thread may end, or it is not allowed
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
    schedule(os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        schedule(os.SCHED_OTHER, 0)


@dataclasses.dataclass
class Side:
    """A guest, and what prepares it for a load."""

    lab: netlab.Lab
    before: Callable[[Load], str] | None = None
    rates: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)  # microseconds a request

    def run(self, load: Load, count: int) -> float:
        """Do so many requests, and keep what was measured."""
        if self.before is not None:
            self.lab.guest(self.before(load))
        pid = self.lab.vm.process.pid
        spent = counting.cpu_seconds(pid)
        with undisturbed(pid):
            self.rates.append(load.rate(self.lab, count))
        self.cpu.append(1e6 * (counting.cpu_seconds(pid) - spent) / count)
        return self.rates[-1]

    def clear(self) -> None:
        """Forget what was measured."""
        self.rates, self.cpu = [], []


def measure(report: Report, rounds: int, title: tuple[str, str], sides: tuple[Side, Side]) -> None:
    """A table of this title and of this name of the other side: ours, and the other."""
    for load in (load for load in LOADS if report.chosen(load.name)):
        count = max(TRIED * load.depth,
                    int(SECONDS * max(side.run(load, TRIED * load.depth) for side in sides)))
        for side in sides:
            side.clear()
        for number in range(PAIRS * rounds):
            if number % PAIRS == 0:
                report.progress.step(load.name)
            for side in sides if number % 2 == 0 else reversed(sides):
                side.run(load, count)
        ours, other = (Figures.of(side.rates) for side in sides)
        mine, theirs = (statistics.median(side.cpu) for side in sides)
        report.add(report.table(*title), Line(
            load.name, UNIT, ours, other, of_pairs_interval(ours, other), LIMIT,
            {"\u00b5s of QEMU's CPU time": (mine, theirs)}))
