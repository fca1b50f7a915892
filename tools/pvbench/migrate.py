# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure how long a guest is away when it moves to another QEMU.

The guest sends echo requests, and the black-out is the longest time between two frames of it, as
seen by its host: from the last one before to the first one after.  GENERIC-NODEBUG and Debian's
cloud kernel have the same memory, the same processors, QEMU and card, and take turns: a guest of
each kind in a round, which moves several times.

Needs user namespaces with TAP devices (tests/taphost usable).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile

from pvbench import build
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_medians
from pvbench.report import Command, Report
from pvbench.table import Line
from xen.errors import TOP

TAPHOST = TOP / "tests/taphost"
LINUX = "bench/linux-virtio"
MODULES = ["failover", "net_failover", "virtio_net"]
MEMORY = 256
NAME = f"migration, {MEMORY} MB"

# What a guest is given to be on the network and to send.
BEGIN = {
    build.OURS: ["kldload if_vtnet", "ifconfig vtnet0 inet 10.9.0.2/24",
                 "ping -q -o 10.9.0.1", "ping -q -i 0.005 10.9.0.1 &"],
    LINUX: ["ip link set eth0 up", "ip addr add 10.9.0.2/24 dev eth0",
            "ping -q -c 1 10.9.0.1", "ping -q -i 0.005 10.9.0.1 >/dev/null &"],
}


def measure(kernel: str, times: int) -> list[float]:
    """The black-outs of one guest, in ms."""
    ask = f"host {TAPHOST} ctl gap"
    commands = [*BEGIN[kernel], "sleep 1"]
    for _ in range(times):
        commands += [f"{ask} >/dev/null", "migrate", "sleep 1", ask]
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        done = subprocess.run(
            [TAPHOST, "--stream", "net.sock", "run", TOP / "tools/guest", "--accel", "tcg",
             "--kernel", kernel, "--env", "console=ttyS0", "--env", "loglevel=1",
             "--timeout", "600", "--smp", "2", "--mem", str(MEMORY),
             "--qemu=-netdev", "--qemu=stream,id=net0,server=off,addr.type=unix,addr.path=net.sock",
             "--qemu=-device", "--qemu=virtio-net-pci,netdev=net0,id=nic0,romfile=", *commands],
            cwd=folder, capture_output=True, text=True, check=False)
    gaps = [float(gap) for gap in re.findall(r'^{"gap_ms": (\d+)}$', done.stdout, re.M)]
    if done.returncode != 0 or len(gaps) != times:
        raise BenchError(f"{kernel}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return gaps


def unusable() -> str | None:
    """Why it can't be measured here."""
    done = subprocess.run([TAPHOST, "usable"], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip() if done.returncode != 0 else None


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    build.linux("linux-virtio", MODULES, [])
    report.progress.total = 2 * args.rounds
    gaps: dict[str, list[float]] = {kernel: [] for kernel in BEGIN}
    for _ in range(args.rounds):
        for kernel in BEGIN:
            report.progress.step(f"{kernel} moves {args.times} times")
            gaps[kernel] += measure(kernel, args.times)
    ours, linux = (Figures.of(gaps[kernel]) for kernel in BEGIN)
    table = report.table("Black-out of a guest that moves to another QEMU", "Linux")
    report.add(table, Line(NAME, "ms", ours, linux, of_medians(ours, linux)))


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--times", type=int, default=3, metavar="N",
                        help="moves of each guest (3)")


COMMAND = Command("migrate", __doc__, 3, lambda args: [NAME], run, options,
                  check=lambda args: build.need_kernel(build.OURS), unusable=lambda _: unusable())
