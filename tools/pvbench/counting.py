# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Instructions of a guest, by a plugin of QEMU's (tools/insncount.c)."""

from __future__ import annotations

import array
import collections
import ctypes
import dataclasses
import itertools
import pathlib
import sys
import time

from pvbench.build import PLUGIN
from pvbench.errors import BenchError

# Linux would copy with "rep movsb", which counts eight times what "rep movsq" does.
PROCESSOR = "max,-erms,-fsrm"
UNITS = ("instructions", "kicks", "interrupts")
# What QEMU traces of them.
KICKS, INTERRUPTS = ("virtio_queue_notify",), ("virtio_notify", "virtio_notify_irqfd")
# The local APIC's timer: its interrupts, and how often it is set.
TIMER_INTERRUPTS, TIMER_WRITES = ("apic_local_deliver vector 0",), ("apic_mem_writel 0x380",)
ICOUNT = ("--qemu=-icount", "--qemu=shift=0")


def at_end(result: pathlib.Path) -> list[str]:
    """Options of tools/guest that have the plugin write its count when QEMU ends."""
    return [*ICOUNT, "--qemu=-plugin", f"--qemu={PLUGIN},out={result}"]


def plain(live: pathlib.Path) -> list[str]:
    """Options that have it keep its count in a file, with QEMU's own choice of a processor."""
    return [*ICOUNT, "--qemu=-plugin", f"--qemu={PLUGIN},live={live}"]


def counting(live: pathlib.Path, profile: pathlib.Path | None = None) -> list[str]:
    """The same with a processor that is fair to Linux; and each address's count in a file."""
    addresses = "" if profile is None else f",profile={profile}"
    return [*ICOUNT, "--qemu=-cpu", f"--qemu={PROCESSOR}",
            "--qemu=-plugin", f"--qemu={PLUGIN},live={live}{addresses}"]


def executed(live: pathlib.Path) -> int:
    """How many instructions there were up to now."""
    return int.from_bytes(live.read_bytes(), sys.byteorder)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has had, all of its threads."""
    clock = ctypes.c_int()
    error = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if error != 0:
        raise BenchError(f"no CPU time of process {pid}: error {error}")
    return time.clock_gettime(clock.value)


def by_address(profile: pathlib.Path) -> collections.Counter[int]:
    """How often the instruction at each address was executed up to now."""
    words = array.array("Q", profile.read_bytes())
    addresses, counts = words[::2], words[1::2]
    # Most of a million places are empty.
    used = itertools.compress(zip(addresses, counts, strict=True), counts)
    return collections.Counter(dict(used))


class Events:
    """Counts events that QEMU traces to a file, also by the first of what is traced with them."""

    def __init__(self, path: pathlib.Path, names: tuple[str, ...]) -> None:
        self.path = path
        self.counts = dict.fromkeys(names, 0)
        self.read = 0  # bytes of the file, whole lines

    def options(self) -> list[str]:
        """Options of tools/guest that trace them."""
        events = {name.split()[0] for name in self.counts}
        traced = [f"--qemu={word}" for name in events for word in ("-trace", f"enable={name}")]
        return [*traced, "--qemu=-D", f"--qemu={self.path}"]

    def total(self, *names: str) -> int:
        """How many there were of these up to now."""
        begins = {name: f"{name} ".encode() for name in self.counts}
        with self.path.open("rb") as file:
            file.seek(self.read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.read += len(line)
                for name, begin in begins.items():
                    self.counts[name] += line.startswith(begin)
        return sum(self.counts[name] for name in names)


@dataclasses.dataclass
class Cost:
    """What was counted: totals, the difference of two, or of one operation."""

    instructions: float
    kicks: float
    interrupts: float
    done: float  # operations

    def minus(self, other: Cost) -> Cost:
        """The difference."""
        return Cost(*(getattr(self, field.name) - getattr(other, field.name)
                      for field in dataclasses.fields(self)))

    def each(self) -> Cost:
        """Of one operation."""
        return Cost(self.instructions / self.done, self.kicks / self.done,
                    self.interrupts / self.done, 1)


def of_one(few: Cost, many: Cost) -> Cost:
    """What one takes, of two runs.

    Instructions are the difference, so that the constant cost of a run cancels out.  The numbers of
    kicks and interrupts depend on how operations are batched, which differs in each run: as a
    difference would have the variance of both runs, they are those of the long run.
    """
    one = many.minus(few).each()
    return dataclasses.replace(many.each(), instructions=one.instructions)
