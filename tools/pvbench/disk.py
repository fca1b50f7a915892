# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure what a request costs virtio's disk beside Linux's driver.

Instructions, kicks and interrupts of a request of 4 KiB at several depths, random and sequential,
with split and packed rings (blkcount.py): GENERIC-NODEBUG and Debian's cloud kernel with its own
virtio_blk (mitigations=off, init_on_alloc=0), both under the same QEMU (TCG, `-icount shift=0`), in
turn.  Ours is given its requests by diskbench in the kernel; Linux by tests/bench/linuxbench.c,
io_uring with O_DIRECT and with buffers and file registered, a program's way with its system calls;
nomerges is 2, so that the device gets the same requests from both.  One system call of linuxbench
answers all requests that have ended, which diskbench has no way to do; in rows "each alone"
each request is a system call of its own, so that both drivers get them one by one.

The device answers in the host's own time: how many requests one kick or interrupt is for varies.
"""

from __future__ import annotations

import argparse
import contextlib

from pvbench import blkcount, build
from pvbench.counting import UNITS, Cost
from pvbench.figures import Figures, with_interval
from pvbench.labs import scratch
from pvbench.report import Command, Report
from pvbench.table import Goal, Line

PATIENCE = 7200.0  # seconds for a guest


def requests(args: argparse.Namespace) -> list[blkcount.Request]:
    """Those that are measured."""
    return blkcount.requests(args.all) + blkcount.alone()


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    build.plugin()
    blkcount.build_linux()
    wanted = [request for request in requests(args) if report.chosen(request.name)]
    report.progress.total = len(wanted) * args.rounds
    with scratch(PATIENCE), contextlib.ExitStack() as stack:
        sides = [blkcount.Ours(stack, 0), blkcount.Linux(stack, 1)]
        for request in wanted:
            costs: list[list[Cost]] = [[], []]
            for _ in range(args.rounds):
                report.progress.step(request.name)
                for cost, side in zip(costs, sides, strict=True):
                    cost.append(side.cost(request))
            for unit in UNITS:
                ours, linux = (Figures.of([getattr(one, unit) for one in cost]) for cost in costs)
                report.add(report.table("A request for a disk, beside Linux's virtio_blk", "Linux"),
                           Line(request.name, unit, ours, linux, with_interval(ours, linux),
                                Goal(1)))
        for side in sides:
            side.lab.end()


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    return [request.name for request in requests(args)]


COMMAND = Command("disk", __doc__, 5, operations, run, blkcount.options,
                  check=lambda args: build.need_kernel(build.OURS))
