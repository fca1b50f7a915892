# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest that moves to another QEMU while it is running, sends a TCP stream and is pinged.

As it is published: total time, interruption of the service, memory written meanwhile.  The guest
goes on until QEMU stops it for the last pages (down time).  What its users see is measured at the
other end of its cable (tests/taphost): the longest time without a frame, the longest pause of its
TCP stream, and echo requests, one each 10 ms, that it did not answer.  A guest of each system in a
round, which moves several times.  Under TCG a guest that is copied while it runs may lose its last
writes, and stand still afterwards; then that is said, and another one is measured.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import ClassVar

from pvbench.errors import BenchError
from pvbench.fieldguests import DEBIAN, System, beside
from pvbench.figures import Figures, of_pairs_interval
from pvbench.report import Report
from pvbench.table import Goal, Line
from pvguest.errors import STATUS_TIMEOUT
from xen.errors import TOP

TITLE = "migration"
TAPHOST = TOP / "tests/taphost"
MEMORY, TIMES = 256, 3
PATIENCE, GUESTS = 120, 3  # seconds for a guest, and how many are tried
HOST, GUEST, PORT, BYTES = "10.9.0.1", "10.9.0.2", 7001, 1 << 40


@dataclasses.dataclass(frozen=True)
class Measure:
    """A row, and where it is in what was printed."""

    name: str
    unit: str
    regex: str
    tree: ClassVar[bool] = True


MEASURES = [
    Measure("total", "ms", r"^migrated: (\d+) ms"),
    Measure("down", "ms", r"^migrated: .* down for (\d+) ms"),
    Measure("no frame from the guest", "ms", r'^{"gap_ms": (\d+)}'),
    Measure("the TCP stream's longest pause", "ms", r'^{"pause_ms": (\d+)}'),
    Measure("echo requests lost", "requests", r"^(\d+) packets transmitted, (\d+) received, "),
    Measure("written meanwhile", "KB", r"^migrated: .* (\d+) KB written meanwhile"),
]


def rows(scale: float) -> list[Measure]:
    """All of them, whatever the scale."""
    del scale
    return MEASURES


def stream(system: System) -> str:
    """A TCP stream without end."""
    if system.is_tree:
        return f"iperf -c {HOST} -p {PORT} -t 100000"
    return f"{'netbench' if system.is_linux else 'pvbench'} send {HOST} {PORT} {BYTES}"


def commands(system: System) -> list[str]:
    """What a guest does, and what is done with it."""
    quiet = "" if system.is_tree else " >/dev/null"
    lines = [*system.lines, system.address(0, GUEST), f"ping -q -c 1 {HOST}",
             f"ping -q -i 0.005 {HOST}{quiet} &", f"{stream(system)} &", "sleep 1"]
    ask = f"{TAPHOST} ctl gap; {TAPHOST} ctl pause"
    for _ in range(TIMES):
        # The ping outlives a guest that ends: it keeps nothing open that this one reads.
        lines += [f"host {{ {ask}; }} >/dev/null;"
                  f" ping -q -i 0.01 {GUEST} >ping.out 2>&1 & echo $! >pid",
                  "sleep 0.2", "migrate --live", "sleep 1", f"host {ask}",
                  "host kill -INT $(cat pid);"
                  " until grep -q transmitted ping.out; do sleep 0.01; done; cat ping.out"]
    return lines


def complete(said: str) -> bool:
    """Whether all moves were measured."""
    return all(len(re.findall(one.regex, said, re.M)) == TIMES for one in MEASURES)


def found_in(said: str) -> dict[str, list[float]]:
    """What was measured, of each move."""
    found = {one.name: [float(match[1]) - float(match[2] if match.re.groups > 1 else 0)
                        for match in re.finditer(one.regex, said, re.M)] for one in MEASURES}
    if not complete(said):
        raise BenchError(f"{TITLE}: not all was measured\n{said}")
    return found


def run_guest(system: System) -> subprocess.CompletedProcess[str]:
    """A guest that moves."""
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        return subprocess.run(
            [TAPHOST, "--stream", "net.sock", "run", TOP / "tools/guest", "--accel", "tcg",
             "--timeout", str(PATIENCE), "--mem", str(MEMORY), *system.options,
             "--qemu=-netdev", "--qemu=stream,id=net0,server=off,addr.type=unix,addr.path=net.sock",
             "--qemu=-device", "--qemu=virtio-net-pci,netdev=net0,id=nic0,romfile=,"
             "disable-legacy=on,disable-modern=off", *commands(system)],
            cwd=folder, capture_output=True, text=True, check=False)


def moved(system: System) -> dict[str, list[float]]:
    """What is measured of it; another one if it stands still, which is said."""
    for _ in range(GUESTS):
        done = run_guest(system)
        # What stands still when it is to be switched off was measured.
        if done.returncode == 0 or (done.returncode == STATUS_TIMEOUT and complete(done.stdout)):
            return found_in(done.stdout)
        if done.returncode != STATUS_TIMEOUT:
            break
        print(f"bench field: {TITLE}, {system.name}: a guest did not go on after"
              f" {done.stdout.count('migrated: ')} moves", file=sys.stderr)
    raise BenchError(f"{TITLE}, {system.name}: status {done.returncode}\n"
                     f"{done.stdout}{done.stderr}")


def line(one: Measure, ours: Figures, other: Figures, *, goal: bool) -> Line:
    """The line: at most what Linux has, of which there may be nothing."""
    name = f"{TITLE}: {one.name}"
    if other.minimum == 0:
        return Line(name, one.unit, ours, other, None,
                    Goal(other.median, "ours") if goal else None)
    return Line(name, one.unit, ours, other, of_pairs_interval(ours, other),
                Goal(1) if goal else None)


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure; all of it is measured at once."""
    found: dict[System, dict[str, list[float]]] = {system: {} for system in systems}
    for number in range(rounds):
        first = number % len(systems)
        for system in (*systems[first:], *systems[:first]):
            report.progress.show(f"{TITLE}: {system.name}")
            for name, values in moved(system).items():
                found[system].setdefault(name, []).extend(values)
    ours, *others = systems
    for other in others:
        for one in rows(scale):
            if not report.chosen(f"{TITLE}: {one.name}"):
                continue
            mine, theirs = (Figures.of(found[system][one.name]) for system in (ours, other))
            report.add(beside(report, TITLE, ours, other),
                       line(one, mine, theirs, goal=other is DEBIAN))
    report.progress.number += rounds * len(rows(scale))
