# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What a request for a virtio disk costs a guest, ours or Linux: instructions, kicks, interrupts.

A guest has two disks of the same kind, one with a split and one with a packed ring, and does
requests of 4 KiB, first a few, then many.  Instructions are the guest's, all of them; kicks and
interrupts are those that QEMU saw.  Of each it is the difference, divided by the difference of
the requests, so that what comes with a run, and idle time, cancel out.  Many are some hundred
times what is batched at most, as how much that is varies.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import time

from pvbench import build, counting
from pvbench.counting import INTERRUPTS, KICKS, Cost, Events
from pvbench.errors import BenchError
from pvbench.labs import LinuxLab, QuietLab, netlab
from xen import image

LINUX = "linuxblk"
FEW, MANY, MANY_BATCHED = 500, 2500, 20000
SIZE = 64 << 20
SETTLE = 0.2  # seconds
DEPTHS = (1, 4, 32, 128)


def build_linux() -> None:
    """A Linux guest with linuxbench."""
    program = build.BENCH / "linuxbench"
    build.compile_c(build.SOURCES / "linuxbench.c", program, "-static")
    build.linux(LINUX, ["virtio_blk"], [("bin/linuxbench", image.PROGRAM, program.read_bytes())])


@dataclasses.dataclass(frozen=True)
class Request:
    """A kind of requests."""

    operation: str  # read or write
    depth: int
    random: bool = True
    packed: bool = False
    alone: bool = False  # linuxbench, too, submits one by one

    @property
    def name(self) -> str:
        """What the row is called."""
        return (f"{self.operation} 4 KiB, depth {self.depth}, "
                f"{'random' if self.random else 'sequential'}{', packed' if self.packed else ''}"
                f"{', each alone' if self.alone else ''}")

    def words(self, count: int) -> str:
        """Options of diskbench, and of linuxbench."""
        return (f"-o {self.operation} {'-r ' if self.random else ''}-b 4k -d {self.depth} "
                f"-n {count}")


def requests(everything: bool) -> list[Request]:
    """Those that are measured."""
    kinds = [(random, packed) for packed in (False, True) for random in (True, False)]
    return [Request(operation, depth, random, packed) for random, packed in kinds
            for operation in ("read", "write") for depth in DEPTHS
            if everything or not packed or (random and depth in (1, 32))]


def alone() -> list[Request]:
    """Those that are the same way for both: diskbench never submits more than one at a time."""
    return [Request(operation, depth, alone=True) for operation in ("read", "write")
            for depth in DEPTHS if depth > 1]


def options(parser: argparse.ArgumentParser) -> None:
    """Options of a bench that does requests."""
    parser.add_argument("--all", action="store_true",
                        help="with packed rings, too, each depth and sequential requests")


class Side:
    """A guest whose requests are counted."""

    kernel = ""
    options: tuple[str, ...] = ()
    lab_type: type[netlab.Lab] = QuietLab
    begin = ""
    bench = ""  # the program
    one_by_one = ""  # its option for requests that are submitted alone
    disks = ("", "")

    def __init__(self, stack: contextlib.ExitStack, number: int) -> None:
        self.live = pathlib.Path(f"live{number}").absolute()
        self.events = Events(pathlib.Path(f"trace{number}").absolute(), KICKS + INTERRUPTS)
        disks = []
        for ring in ("off", "on"):
            disk = pathlib.Path(f"disk{number}-{ring}").absolute()
            with disk.open("wb") as file:
                file.truncate(SIZE)
            disks += ["--disk", f"{disk},packed={ring},disable-legacy=on,disable-modern=off"]
        self.lab = stack.enter_context(self.lab_type([], [
            "--kernel", self.kernel, *disks, *counting.counting(self.live),
            *self.events.options(), *self.options]))
        self.lab.guest(self.begin)

    def spent(self) -> Cost:
        """What was counted up to now."""
        time.sleep(SETTLE)
        return Cost(counting.executed(self.live), self.events.total(*KICKS),
                    self.events.total(*INTERRUPTS), 0)

    def did(self, request: Request, count: int) -> Cost:
        """What so many take, and what comes with them."""
        before = self.spent()
        way = self.one_by_one if request.alone else ""
        said = self.lab.guest(f"{self.bench} {way} {request.words(count)} "
                              f"{self.disks[request.packed]}")
        if f" {count} requests, " not in said or " 0 errors, " not in said:
            raise BenchError(f"{request.name}: {said}")
        cost = self.spent().minus(before)
        cost.done = count
        return cost

    def cost(self, request: Request) -> Cost:
        """What one costs."""
        few = self.did(request, FEW)
        many = MANY if request.depth == 1 else MANY_BATCHED
        return self.did(request, many).minus(few).each()


class Ours(Side):
    """Our kernel."""

    kernel = build.OURS
    begin = "kldload virtio_blk; help diskbench"  # which loads it
    bench = "diskbench"
    disks = ("/dev/vtbd0", "/dev/vtbd1")


class Linux(Side):
    """Debian's, which gets each request to the device as it is asked for."""

    kernel = f"bench/{LINUX}"
    options = (*build.LINUX_CONSOLE, *build.LINUX_BARE, "--mem", "512")
    lab_type = LinuxLab
    begin = ("echo 0 >/proc/sys/kernel/watchdog; for disk in vda vdb; do "
             "echo 2 >/sys/block/$disk/queue/nomerges; done")
    bench = "linuxbench"
    one_by_one = "-1"
    disks = ("/dev/vda", "/dev/vdb")
