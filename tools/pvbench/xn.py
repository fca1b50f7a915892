# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure xn beside Linux's network front end: same dom0, same back end, same traffic.

Our kernel (GENERIC-NODEBUG) and Debian's Linux as a PVH guest work in turn, row by row, the other
one paused, in one lab whose clock counts instructions (as in `tools/bench xbd`: a second is 10^9 of
them, guest's, Xen's and dom0's alike).

    send frames     ours: pktgen -i, at 1000 ticks a second, as it sleeps for one while the queue is
                    full; Linux: xnbench, which makes 32 frames in a system call (its own
                    pktgen spins while the ring is full, so that dom0 does not get the only CPU)
    receive frames  tests/bench/xnbench.c in dom0, straight to the back end's interface
    TCP             64 KiB are written at a time; ours: iperf; Linux: xnbench; dom0: xnbench.
                    Linux sends with a buffer as large as it likes, or of 1 MiB, which is ours.

There is no bridge in between.  The ratio is that of the medians of frames (of 64 KiB, for TCP) a
second, with the interval that it has in 95 of 100 samples drawn from the runs (bootstrap).
Besides, for each frame (64 KiB): kicks, which are notifications of the back end, interrupts of the
front end, frames that passed the back end's interface; and hypercalls of ours.

The goal is not kept if a ratio is below 1, the interval's upper end included.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Iterator

from pvbench import build, xenguests
from pvbench.errors import BenchError
from pvbench.figures import Figures, with_interval
from pvbench.report import Command, Report
from pvbench.table import Goal, Line
from pvbench.xenguests import FOREVER
from xen.errors import Deadline
from xen.lab import Lab

PIECE = 65536
STARTED = "for i in $(seq 300); do grep -qs ready /run/xnbench.out && break; sleep 0.05; done"
ENDED = "while pidof xnbench >/dev/null; do sleep 0.05; done; cat /run/xnbench.out"
BESIDES = ("kicks", "interrupts", "frames", "hypercalls")


@dataclasses.dataclass
class Row:
    """An operation."""

    name: str
    way: str  # "send", "receive", "tcp send", "tcp receive"
    size: int
    count: int
    buffer: str = ""  # of Linux, to send from: bytes


@dataclasses.dataclass(frozen=True)
class Programs:
    """What does the work in a guest."""

    pktgen: str
    client: str
    server: str
    interrupts: tuple[str, str]  # a command, and what the numbers look like that it prints
    hypercalls: tuple[str, str] | None


OURS = Programs("pktgen -i -c {count} -s {size} xn0",
                "iperf -c {host} -n {bytes}", "iperf -s -n {bytes} &",
                ("sysctl -n dev.xen.0.evtchn.channels", r"received (\d+) .* xn0"),
                ("sysctl -n dev.xen.0.hypercalls", r"^(\d+)$"))
LINUX = Programs("xnbench frames eth0 {size} {count}",
                 "xnbench send {host} 5001 {bytes} {buffer}", "xnbench sink 5001 >/dev/null &",
                 ("awk '/eth0|vif/ { print $2 }' /proc/interrupts", r"^(\d+)$"), None)


@dataclasses.dataclass
class Side:
    """One of the two guests: dom0 is .1 in its network, the guest .2."""

    guest: xenguests.Side
    net: str
    programs: Programs

    @property
    def vif(self) -> str:
        """The back end's interface."""
        return f"vif{self.guest.domid}.0"

    def counts(self) -> list[float]:
        """BESIDES, up to now."""
        kicks, *frames = (int(word) for word in self.guest.dom0(
            f"awk '/{self.vif}/ {{ n += $2 }} END {{ print n + 0 }}' /proc/interrupts;"
            f" cat /sys/class/net/{self.vif}/statistics/?x_packets").split())

        def added(command: str, number: str) -> int:
            return sum(map(int, re.findall(number, self.guest.say(command), re.M)))

        counts = [kicks, added(*self.programs.interrupts), sum(frames)]
        return [*counts, *([added(*self.programs.hypercalls)] if self.programs.hypercalls else [])]

    def speed(self, row: Row) -> float:
        """Units a second of one run."""
        address, total = f"10.1.{self.net}", row.count * row.size
        guest = self.guest
        if row.way == "receive":
            text = guest.dom0(f"/run/xnbench frames {self.vif} {row.size} {row.count}")
        elif row.way == "tcp receive":
            guest.say(self.programs.server.format(bytes=total))
            guest.say("sleep 1")
            text = guest.dom0(f"/run/xnbench send {address}.2 5001 {total}")
            guest.say("wait")
        else:
            what = f"watch {self.vif} {row.count}" if row.way == "send" else "sink 5001"
            guest.dom0(f"rm -f /run/xnbench.out; /run/xnbench {what} >/run/xnbench.out & {STARTED}")
            if row.way == "send":
                guest.say(self.programs.pktgen.format(count=row.count, size=row.size))
            else:
                guest.say(self.programs.client.format(host=f"{address}.1", bytes=total,
                                                      buffer=row.buffer))
            text = guest.dom0(ENDED)
        found = re.search(r"^(\d+) in ([0-9.]+) secs", text, re.M)
        if found is None:
            raise BenchError(f"{guest.name}: {row.name}: {text}")
        return int(found.group(1)) / float(found.group(2)) / (
            row.size if row.way.startswith("tcp") else 1)

    def bench(self, row: Row, rounds: int) -> tuple[Figures, list[float]]:
        """Units a second of each run, and what was counted, for each unit."""
        self.guest.unpause()
        before = self.counts()
        # The first one is to get going.
        speeds = [self.speed(row) for _ in range(rounds + 1)][1:]
        after = self.counts()
        self.guest.pause()
        return Figures.of(speeds), [(b - a) / ((rounds + 1) * row.count)
                                    for a, b in zip(before, after, strict=True)]


@contextlib.contextmanager
def side(lab: Lab, name: str, kernel: str, net: str, programs: Programs,
         setup: list[str]) -> Iterator[Side]:
    """A guest that is ready, and paused."""
    bridge = f"bench{net}"
    # While a queue is full pktgen sleeps for a tick, and nothing is done meanwhile.
    ticks = ["--env", "kern.hz=1000"] if programs is OURS else []
    with xenguests.booted(lab, name, kernel, ["--net", f"bridge:{bridge}", *ticks]) as guest:
        made = Side(guest, net, programs)
        for command in setup:
            guest.say(command)
        guest.dom0(f"brctl delif {bridge} {made.vif}; ip addr add 10.1.{net}.1/24 dev {made.vif};"
                   f" ip link set {made.vif} up; ping -c 1 10.1.{net}.2")
        guest.pause()
        yield made


def rows(frames: int) -> list[Row]:
    """The whole table."""
    table = [Row(f"{way} {size} bytes", way, size, frames)
             for way in ("send", "receive") for size in (60, 1514)]
    pieces = max(frames // 20, 50)
    return [*table, Row("TCP send 64 KiB", "tcp send", PIECE, pieces),
            Row("TCP send 64 KiB, buffer of 1 MiB", "tcp send", PIECE, pieces, str(1 << 20)),
            Row("TCP receive 64 KiB", "tcp receive", PIECE, pieces)]


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [row.name for row in rows(args.frames)]


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    chosen = [row for row in rows(args.frames) if report.chosen(row.name)]
    report.progress.total = len(chosen)
    kernel, program = build.xen_linux("xnbench")
    with xenguests.counting_lab(args, "bench-xn") as lab, \
            side(lab, "Linux", kernel, "2", LINUX, [
                "ip addr add 10.1.2.2/24 dev eth0", "ip link set eth0 up"]) as theirs, \
            side(lab, "ours", args.kernel, "1", OURS, [
                "kldload if_xn", "ifconfig xn0 inet 10.1.1.2/24"]) as mine:
        lab.put(program, "/run/xnbench", Deadline(FOREVER))
        mine.guest.dom0("chmod +x /run/xnbench")
        table = report.table("xn beside Linux's front end", "Linux")
        for row in chosen:
            report.progress.step(row.name)
            (ours, counted), (linux, linux_counted) = (
                one.bench(row, args.rounds) for one in (mine, theirs))
            padded = [*linux_counted, None]
            report.add(table, Line(
                row.name, f"{'64 KiB' if row.size == PIECE else 'frames'}/s", ours, linux,
                with_interval(ours, linux), Goal(1, at_least=True),
                dict(zip(BESIDES, zip(counted, padded, strict=True), strict=True))))


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--frames", type=int, default=20000,
                        help="frames a run; a 20th of it of 64 KiB (20000)")
    xenguests.lab_options(parser)


COMMAND = Command("xn", __doc__, 3, operations, run, options, xenguests.check)
