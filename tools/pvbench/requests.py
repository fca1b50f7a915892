# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure what a request and a packet cost the guest: instructions, kicks, interrupts.

GENERIC-NODEBUG runs under TCG with `-icount shift=0` and a plugin that counts the guest's
instructions.  Requests for the disk are all in one guest (blkcount.py), others in one for each row
and round: the work is done N times and 2N times, and the difference divided by N, so that boot and
set-up cancel out; kicks and interrupts are those of the 2N.  Idle time executes nothing and does
not count.  The device answers in the host's own time, so counts vary a little with how completions
happen to be batched.

Further tables have the instructions of random requests beside sequential ones, which are to be
within 5 % of each other, and of packed rings beside split ones, which are to take no more.

Another is what batches cost a thread that waits for each of its writes while 31 others are in
flight: the median latency in the guest's time, with and without batches in turn in one guest.

The last table is what batches gain or cost where the device takes a time of its own for a request
(blkspeed.py): requests a second by the clock, without -icount, with and without batches in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable

from pvbench import blkcount, blkspeed, build, counting, labs
from pvbench.counting import UNITS, Cost, of_one
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_medians, with_interval
from pvbench.labs import netlab
from pvbench.report import Command, Report
from pvbench.table import Goal, Line
from xen.errors import TOP

PEER = TOP / "tests/netpeer"

# An Ethernet frame of the type for local experiments, to every station.
FRAME_HEAD = "ffffffffffff02000000000188b5"

BESIDE = "write 4 KiB, one at a time, beside 31"
LATENCY_LIMIT = 1.1
RANDOM_LIMIT = 1.05
DEEP_LIMITS = {"kicks": 1 / 8, "interrupts": 1 / 8}  # from a depth of 32 on
PACKED = ", packed"
TURNS = 10  # of the latencies, a round
FRAMES = 20000


@dataclasses.dataclass
class Row:
    """An operation."""

    name: str
    count: int
    commands: Callable[[int], list[str]]
    counters: tuple[str, str, str]  # sysctls: kicks, interrupts, operations done
    limits: tuple[float, float] | None = None  # kicks and interrupts an operation
    peer: bool = False
    packed: bool = False
    table: str = "A packet"
    unit: int = 1  # what the last counter counts, in an operation
    options: tuple[str, ...] = ()  # of tools/guest


def counters(node: str, interrupts: str, done: str) -> tuple[str, str, str]:
    """The names of a row's sysctls."""
    return (f"{node}.kicks", f"{node}.{interrupts}", f"{node}.{done}")


def send(size: int, packed: bool) -> Row:
    """Frames sent without a pause, as an interrupt thread does that forwards them."""
    return Row(
        f"send {size} bytes{PACKED if packed else ''}", FRAMES,
        lambda n: ["kldload if_vtnet", "ifconfig vtnet0 up",
                   f"pktgen -i -c {n} -s {size} vtnet0", "sleep 1"],
        counters("dev.vtnet.0.txq0", "intrs", "packets"), (1 / 16, 1 / 64), packed=packed)


def receive(size: int, packed: bool) -> Row:
    """Frames received, as fast as the guest takes them; dropped behind the driver."""
    frame = FRAME_HEAD + "00" * (size - 14)
    return Row(
        f"receive {size} bytes{PACKED if packed else ''}", FRAMES,
        lambda n: ["kldload if_vtnet", "ifconfig vtnet0 up",
                   f"ctl ctl send {frame} {n}", "sleep 1"],
        counters("dev.vtnet.0.rxq0", "intrs", "packets"), None, peer=True, packed=packed)


def balloon(inflate: bool) -> Row:
    """A megabyte lent to the host, or had back."""
    def to(megabytes: int) -> list[str]:
        return [f"qmp balloon value={(256 - megabytes) << 20}", "sleep 3"]
    return Row(
        "inflate 1 MB" if inflate else "deflate 1 MB", 64,
        lambda n: ["kldload virtio_balloon", *to(n if inflate else 128),
                   *([] if inflate else to(128 - n))],
        (f"dev.vtballoon.0.{'in' if inflate else 'de'}flateq.kicks",
         f"dev.vtballoon.0.{'in' if inflate else 'de'}flateq.intrs",
         f"dev.vtballoon.0.{'in' if inflate else 'de'}flated"), (0.5, 0.5),
        table="A megabyte of the balloon", unit=256,
        options=("--mem", "256", "--qemu=-device", "--qemu=virtio-balloon-pci"))


ROWS = [*(way(size, packed) for packed in (False, True) for way in (send, receive)
          for size in (64, 1514)), balloon(True), balloon(False)]


def guest(image: pathlib.Path, *words: str) -> list[str]:
    """The command line of a guest that has a disk."""
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(16 << 20)
    return [str(TOP / "tools/guest"), "--accel", "tcg", "--kernel", build.OURS,
            "--disk", str(image), *words]


def run_guest(row: Row, count: int, folder: pathlib.Path) -> Cost:
    """Boot, do the work, read the counters: totals, not yet divided."""
    result = folder / "instructions"
    command = guest(folder / "disk.img", *counting.at_end(result))
    peer = None
    packed = f"packed={'on' if row.packed else 'off'}"
    if row.peer:
        for name in ("net", "ctl"):
            (folder / name).unlink(missing_ok=True)
        peer = subprocess.Popen([PEER, "--net", "net", "--ctl", "ctl"], cwd=folder)
        netlab.wait_for("netpeer", (folder / "ctl").exists)
        command += ["--qemu=-netdev",
                    "--qemu=stream,id=net0,server=off,addr.type=unix,addr.path=net",
                    "--qemu=-device",
                    f"--qemu=virtio-net-pci,netdev=net0,id=nic0,romfile=,{packed}"]
    else:
        command += ["--net", f"user,restrict=on,{packed}"]
    command += [*row.options, *row.commands(count), f"sysctl -n {' '.join(row.counters)}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    finally:
        if peer is not None:
            peer.kill()
            peer.wait()
    if done.returncode != 0:
        raise BenchError(f"{row.name}: status {done.returncode}\n{done.stdout}{done.stderr}")
    counts = [int(word) for word in re.findall(r"^\d+$", done.stdout, re.M)[-3:]]
    return Cost(int(result.read_text()), counts[0], counts[1], counts[2] / row.unit)


def measure(row: Row, folder: pathlib.Path) -> Cost:
    """The cost of one operation, of those that the driver counted as done."""
    many, few = (run_guest(row, times * row.count, folder) for times in (2, 1))
    more = many.done - few.done
    if not 0.9 * row.count <= more <= 1.1 * row.count:
        raise BenchError(f"{row.name}: {more:.0f} operations instead of {row.count}")
    return of_one(few, many)


def latency(turns: int, folder: pathlib.Path) -> tuple[Figures, Figures]:
    """Microseconds of a write beside 31 others: with batches, and without them."""
    lines = [line for _ in range(turns) for batch in (1, 16)
             for line in (f"sysctl dev.vtblk.0.batch={batch}",
                          "diskbench -o write -r -l -b 4k -d 1 -n 500 /dev/vtbd0")]
    done = subprocess.run(
        [*guest(folder / "disk.img", "--timeout", str(60 * turns + 120), *counting.ICOUNT),
         "kldload virtio_blk", "diskbench -o write -r -b 4k -d 31 -n 1000000000 /dev/vtbd0 &",
         *lines, "pkill diskbench", "wait"],
        cwd=folder, capture_output=True, text=True, check=False)
    found = [int(word) / 1000 for word in re.findall(r"latency: median (\d+) ns", done.stdout)]
    if len(found) != 2 * turns:
        raise BenchError(f"{BESIDE}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return Figures.of(found[1::2]), Figures.of(found[::2])


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [*(request.name for request in blkcount.requests(args.all)),
            *(row.name for row in ROWS), BESIDE, *(load.name for load in blkspeed.LOADS)]


def add(report: Report, table: str, name: str, costs: list[Cost],
        limits: dict[str, float]) -> None:
    """The lines of an operation."""
    for unit in UNITS:
        goal = Goal(limits[unit], "ours") if unit in limits else None
        report.add(report.table(table), Line(
            name, unit, Figures.of([getattr(cost, unit) for cost in costs]), goal=goal))


def compare(report: Report, what: tuple[str, str], found: dict[str, list[Cost]], limit: float,
            words: tuple[str, str]) -> None:
    """Operations whose names differ in these words alone: what, one beside the other."""
    for name, costs in found.items():
        other = found.get(name.replace(*words)) if words[0] in name else None
        if other is not None:
            mine, theirs = (Figures.of([cost.instructions for cost in side])
                            for side in (costs, other))
            table = report.table(f"{what[0].capitalize()} beside {what[1]}", what[1], what[0])
            report.add(table, Line(name, "instructions", mine, theirs,
                                   with_interval(mine, theirs), Goal(limit)))


def measure_disk(args: argparse.Namespace, report: Report) -> dict[str, list[Cost]]:
    """The requests of all rounds, by name."""
    found: dict[str, list[Cost]] = {}
    wanted = [request for request in blkcount.requests(args.all) if report.chosen(request.name)]
    if wanted:
        with labs.scratch(), contextlib.ExitStack() as stack:
            side = blkcount.Ours(stack, 0)
            for request in wanted:
                found[request.name] = []
                for _ in range(args.rounds):
                    report.progress.step(request.name)
                    found[request.name].append(side.cost(request))
                add(report, "A request for a disk", request.name, found[request.name],
                    DEEP_LIMITS if request.depth >= 32 else {})
            side.lab.end()
    return found


def measure_rows(args: argparse.Namespace, report: Report) -> dict[str, list[Cost]]:
    """Packets and the balloon in all rounds, by name."""
    found: dict[str, list[Cost]] = {}
    for row in ROWS:
        if report.chosen(row.name):
            found[row.name] = []
            for _ in range(args.rounds):
                report.progress.step(row.name)
                with tempfile.TemporaryDirectory(prefix="bench") as folder:
                    found[row.name].append(measure(row, pathlib.Path(folder)))
            add(report, row.table, row.name, found[row.name],
                dict(zip(UNITS[1:], row.limits or (), strict=False)))
    return found


def measure_speed(args: argparse.Namespace, report: Report) -> None:
    """What batches gain at each latency and depth."""
    with labs.scratch(), contextlib.ExitStack() as stack:
        lab = blkspeed.lab(stack, ["--kernel", build.OURS],
                           ["kldload virtio_blk; help diskbench"])
        batch = lab.sysctl("dev.vtblk.0.batch")

        def with_batch(most: int) -> blkspeed.Side:
            return blkspeed.Side(lab, lambda load: f"sysctl dev.vtblk.{load.disk}.batch={most}")

        blkspeed.measure(report, args.rounds, (
            "Requests a second, by the device's latency and the depth", "without batches"),
            (with_batch(batch), with_batch(1)))
        lab.end()


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    build.plugin()
    chosen = [name for name in operations(args) if report.chosen(name) and name != BESIDE]
    report.progress.total = len(chosen) * args.rounds + report.chosen(BESIDE)
    found = measure_disk(args, report) | measure_rows(args, report)
    compare(report, ("random", "sequential"), found, RANDOM_LIMIT, ("random", "sequential"))
    compare(report, ("packed", "split"), found, 1, (PACKED, ""))
    if report.chosen(BESIDE):
        report.progress.step(BESIDE)
        with tempfile.TemporaryDirectory(prefix="bench") as folder:
            ours, other = latency(TURNS * args.rounds, pathlib.Path(folder))
        table = report.table("What batches cost a lone writer", "without batches")
        report.add(table, Line(BESIDE, "µs", ours, other, of_medians(ours, other),
                               Goal(LATENCY_LIMIT)))
    if any(report.chosen(load.name) for load in blkspeed.LOADS):
        measure_speed(args, report)


COMMAND = Command("requests", __doc__, 5, operations, run, blkcount.options,
                  check=lambda args: build.need_kernel(build.OURS))
