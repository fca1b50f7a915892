# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure what a request and a packet cost the guest: instructions, kicks, interrupts.

Each row boots GENERIC-NODEBUG under TCG with `-icount shift=0` and a plugin that counts the guest's
instructions, does the work N times and 2N times, and divides the difference by N: boot and set-up
cancel out.  Idle time executes nothing and does not count.  The device answers in the host's own
time, so counts vary a little with how completions happen to be batched.

The last table is what batches cost a thread that waits for each of its writes while 31 others are
in flight: the median latency in the guest's time, with and without batches in turn in one guest.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable

from pvbench import build, counting
from pvbench.counting import Cost
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_medians
from pvbench.labs import netlab
from pvbench.report import Command, Report
from pvbench.table import Goal, Line
from xen.errors import TOP

PEER = TOP / "tests/netpeer"

# An Ethernet frame of the type for local experiments, to every station.
FRAME_HEAD = "ffffffffffff02000000000188b5"

BESIDE = "write 4 KiB, one at a time, beside 31"
LATENCY_LIMIT = 1.1
TURNS = 10  # of the latencies, a round


@dataclasses.dataclass
class Row:
    """An operation."""

    name: str
    count: int
    commands: Callable[[int], list[str]]
    counters: tuple[str, str, str]  # sysctls: kicks, interrupts, operations done
    limits: tuple[float, float] | None = None  # kicks and interrupts an operation
    peer: bool = False
    table: str = "A request or a packet"
    unit: int = 1  # what the last counter counts, in an operation
    options: tuple[str, ...] = ()  # of tools/guest


def counters(node: str, interrupts: str, done: str) -> tuple[str, str, str]:
    """The names of a row's sysctls."""
    return (f"{node}.kicks", f"{node}.{interrupts}", f"{node}.{done}")


def disk(operation: str, depth: int) -> Row:
    """4 KiB requests at a queue depth."""
    deep = depth > 1
    return Row(
        f"{operation} 4 KiB, depth {depth}", 4000 if deep else 1000,
        lambda n: ["kldload virtio_blk",
                   f"diskbench -o {operation} -r -b 4k -d {depth} -n {n} /dev/vtbd0"],
        counters("dev.vtblk.0", "interrupts", "requests"), (1 / 8, 1 / 8) if deep else None)


def send(size: int) -> Row:
    """Frames sent without a pause, as an interrupt thread does that forwards them."""
    return Row(
        f"send {size} bytes", 4000,
        lambda n: ["kldload if_vtnet", "ifconfig vtnet0 up",
                   f"pktgen -i -c {n} -s {size} vtnet0", "sleep 1"],
        counters("dev.vtnet.0.txq0", "intrs", "packets"), (1 / 16, 1 / 64))


def receive(size: int) -> Row:
    """Frames received, as fast as the guest takes them; dropped behind the driver."""
    frame = FRAME_HEAD + "00" * (size - 14)
    return Row(
        f"receive {size} bytes", 4000,
        lambda n: ["kldload if_vtnet", "ifconfig vtnet0 up",
                   f"host {PEER} ctl ctl send {frame} {n} >/dev/null", "sleep 1"],
        counters("dev.vtnet.0.rxq0", "intrs", "packets"), None, peer=True)


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


ROWS = [disk("read", 1), disk("write", 1), disk("read", 32), disk("write", 32),
        send(64), send(1514), receive(64), receive(1514),
        balloon(True), balloon(False)]


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
    if row.peer:
        for name in ("net", "ctl"):
            (folder / name).unlink(missing_ok=True)
        peer = subprocess.Popen([PEER, "serve", "--net", "net", "--ctl", "ctl"], cwd=folder)
        netlab.wait_for("netpeer", (folder / "ctl").exists)
        command += ["--qemu=-netdev",
                    "--qemu=stream,id=net0,server=off,addr.type=unix,addr.path=net",
                    "--qemu=-device", "--qemu=virtio-net-pci,netdev=net0,id=nic0,romfile="]
    else:
        command += ["--net", "user,restrict=on"]
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
    more = run_guest(row, 2 * row.count, folder).minus(run_guest(row, row.count, folder))
    if not 0.9 * row.count <= more.done <= 1.1 * row.count:
        raise BenchError(f"{row.name}: {more.done:.0f} operations instead of {row.count}")
    return more.each()


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
    del args
    return [*(row.name for row in ROWS), BESIDE]


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    build.plugin()
    rows = [row for row in ROWS if report.chosen(row.name)]
    report.progress.total = len(rows) * args.rounds + report.chosen(BESIDE)
    for row in rows:
        costs = []
        for _ in range(args.rounds):
            report.progress.step(row.name)
            with tempfile.TemporaryDirectory(prefix="bench") as folder:
                costs.append(measure(row, pathlib.Path(folder)))
        limits = dict(zip(("kicks", "interrupts"), row.limits or (), strict=False))
        for unit in ("instructions", "kicks", "interrupts"):
            goal = Goal(limits[unit], "ours") if unit in limits else None
            report.add(report.table(row.table), Line(
                row.name, unit, Figures.of([getattr(cost, unit) for cost in costs]), goal=goal))
    if report.chosen(BESIDE):
        report.progress.step(BESIDE)
        with tempfile.TemporaryDirectory(prefix="bench") as folder:
            ours, other = latency(TURNS * args.rounds, pathlib.Path(folder))
        table = report.table("What batches cost a lone writer", "without batches")
        report.add(table, Line(BESIDE, "µs", ours, other, of_medians(ours, other),
                               Goal(LATENCY_LIMIT)))


COMMAND = Command("requests", __doc__, 3, operations, run,
                  check=lambda args: build.need_kernel(build.OURS))
