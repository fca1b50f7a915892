# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure xbd beside Linux's block front end: same dom0, same back end, same requests.

Our kernel (GENERIC-NODEBUG, `diskbench`) and Debian's Linux as a PVH guest
(tests/bench/linuxbench.c: io_uring, O_DIRECT, all registered) have the same disk of dom0.  They
work in turn, row by row, the other one paused, in one lab.  The lab's clock counts instructions
(`-icount shift=0`): a second is 10^9 of them, guest's, Xen's and dom0's alike, and what else the
machine has to do does not show.

The ratio is that of the medians of requests a second, with the interval that it has in 95 of 100
samples drawn from the runs (bootstrap).  Besides, what dom0 saw of each request: kicks, which are
notifications of the back end, interrupts of the front end, requests in the ring.

The goal is not kept if a ratio is below 1, the interval's upper end included.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import re
import tempfile
from collections.abc import Iterator

from pvbench import build, xenguests
from pvbench.errors import BenchError
from pvbench.figures import Figures, with_interval
from pvbench.report import Command, Report
from pvbench.table import Goal, Line
from pvbench.xenguests import FOREVER
from xen import domain
from xen.errors import Deadline
from xen.lab import Lab

BACK_ENDS = {"ram": "A ram disk of dom0", "loop": "A loop device of dom0",
             "virtio": "A virtio disk of the lab"}
SIZES = (4, 16, 64, 256)
BESIDES = ("kicks", "interrupts", "in the ring")


@dataclasses.dataclass(frozen=True)
class Programs:
    """What does the work in a guest."""

    tool: str
    disk: str
    interrupts: str  # a command that prints a number


OURS = Programs("diskbench", "/dev/xbd0", "sysctl -n dev.xbd.0.ring0.intrs")
LINUX = Programs("linuxbench", "/dev/xvda", "awk '/blkif/ { print $2 }' /proc/interrupts")


@dataclasses.dataclass
class Side:
    """One of the two guests."""

    guest: xenguests.Side
    programs: Programs

    def counts(self) -> list[int]:
        """Events of the back end, interrupts of the front end, requests in the ring."""
        # The other guest is paused: all events that come are this one's.
        words = self.guest.dom0(
            "awk '/blkif-backend/ { n += $2 } END { print n }' /proc/interrupts &&"
            f" cd /sys/bus/xen-backend/devices/vbd-{self.guest.domid}-* &&"
            " cat statistics/rd_req statistics/wr_req").split()
        found = re.search(r"^\d+$", self.guest.say(self.programs.interrupts), re.M)
        assert found is not None
        return [int(words[0]), int(found.group()), int(words[1]) + int(words[2])]

    def run(self, options: str) -> float:
        """Requests a second of one run."""
        text = self.guest.say(f"{self.programs.tool} {options} {self.programs.disk}")
        found = re.search(r": (\d+) requests, \d+ bytes, 0 errors, 0 mismatches, ([0-9.]+) secs",
                          text)
        if found is None:
            raise BenchError(f"{self.guest.name}: {options}: {text}")
        return int(found.group(1)) / float(found.group(2))

    def bench(self, options: str, count: int, rounds: int) -> tuple[Figures, list[float]]:
        """Requests a second of each run, and what was counted, for each request."""
        self.guest.unpause()
        before = self.counts()
        # The first one is to get going.
        speeds = [self.run(options) for _ in range(rounds + 1)][1:]
        after = self.counts()
        self.guest.pause()
        return Figures.of(speeds), [(b - a) / ((rounds + 1) * count)
                                    for a, b in zip(before, after, strict=True)]


@dataclasses.dataclass
class Row:
    """An operation."""

    operation: str
    how: str
    size: int
    depth: int
    count: int

    @property
    def name(self) -> str:
        """How the table calls it; the cases of the talk of 2012 by name."""
        talk = {("write", "random"): "talk: random write", ("read", "sequential"):
                "talk: sequential read"}.get((self.operation, self.how))
        said = f" ({talk})" if self.size == 16 and talk else ""
        return f"{self.how} {self.operation} {self.size} KiB, depth {self.depth}{said}"

    @property
    def options(self) -> str:
        """As diskbench and linuxbench take them."""
        way = "-r " if self.how == "random" else ""
        return f"{way}-o {self.operation} -b {self.size}k -d {self.depth} -n {self.count}"


def rows(size: int, requests: int) -> list[Row]:
    """A table: requests of one size."""
    return [Row(operation, how, size, depth,
                max(requests * 4 // (3 + size), requests // 10, 4 * depth))
            for depth in (1, 8, 32) for how in ("sequential", "random")
            for operation in ("read", "write")]


@contextlib.contextmanager
def side(lab: Lab, name: str, kernel: str, device: str, programs: Programs,
         setup: list[str]) -> Iterator[Side]:
    """A guest that is ready, and paused."""
    with xenguests.booted(lab, name, kernel, ["--disk", f"dom0:{device}"]) as guest:
        for command in setup:
            guest.say(command)
        guest.pause()
        yield Side(guest, programs)


@contextlib.contextmanager
def both(lab: Lab, device: str, args: argparse.Namespace) -> Iterator[list[Side]]:
    """Our guest and Linux."""
    kernel, _ = build.xen_linux("linuxbench")
    with side(lab, "ours", args.kernel, device, OURS, ["kldload xbd"]) as mine, side(
            lab, "Linux", kernel, device, LINUX, [
                f"echo {args.scheduler} >/sys/block/xvda/queue/scheduler",
                f"echo {args.nomerges} >/sys/block/xvda/queue/nomerges"]) as theirs:
        yield [mine, theirs]


def device_of(lab: Lab, what: str, folder: str) -> str:
    """The disk in dom0 that both guests get."""
    if what == "ram":
        return "/dev/ram0"
    path = pathlib.Path(folder) / f"{what}.img"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    via = ",via=loop" if what == "loop" else ""
    return domain.plug_disk(lab, f"{path},cache=unsafe{via}", Deadline(FOREVER))[0]


def bench_disk(lab: Lab, what: str, args: argparse.Namespace, report: Report) -> None:
    """The tables of one back end."""
    with tempfile.TemporaryDirectory(prefix="bench") as folder, \
            both(lab, device_of(lab, what, folder), args) as sides:
        # The first requests make Linux's back end map what stays mapped.
        for one in sides:
            one.bench("-o write -b 64k -d 32 -n 200", 200, 1)
        for size in SIZES:
            table = report.table(f"{BACK_ENDS[what]}, requests of {size} KiB", "Linux")
            for row in rows(size, args.requests):
                if not report.chosen(row.name):
                    continue
                report.progress.step(f"{what}: {row.name}")
                (ours, mine), (theirs, linux) = (
                    one.bench(row.options, row.count, args.rounds) for one in sides)
                report.add(table, Line(
                    row.name, "requests/s", ours, theirs, with_interval(ours, theirs),
                    Goal(1, at_least=True),
                    dict(zip(BESIDES, zip(mine, linux, strict=True), strict=True))))


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [row.name for size in SIZES for row in rows(size, args.requests)]


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    disks = args.disks.split(",")
    report.progress.total = len(disks) * sum(map(report.chosen, operations(args)))
    with xenguests.counting_lab(args, "bench-xbd") as lab:
        for what in disks:
            bench_disk(lab, what, args, report)


def check(args: argparse.Namespace) -> None:
    """Refuse what would fail only once the lab runs."""
    for what in args.disks.split(","):
        if what not in BACK_ENDS:
            raise BenchError(f"--disks {what}: expected {', '.join(BACK_ENDS)}")
    xenguests.check(args)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--disks", default="ram,loop,virtio",
                        help="back ends: ram, loop, virtio (all)")
    parser.add_argument("--requests", type=int, default=1500,
                        help="requests of 4 KiB a run; of larger ones fewer (1500)")
    parser.add_argument("--scheduler", default="mq-deadline",
                        help="Linux's I/O scheduler (mq-deadline, as it comes up)")
    parser.add_argument("--nomerges", type=int, default=2,
                        help="0: Linux may merge requests (2: not, so that they are the same)")
    xenguests.lab_options(parser)


COMMAND = Command("xbd", __doc__, 3, operations, run, options, check)
