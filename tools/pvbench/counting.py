# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Instructions of a guest, by a plugin of QEMU's (tools/insncount.c)."""

from __future__ import annotations

import array
import collections
import dataclasses
import pathlib
import sys

from pvbench.build import PLUGIN

# Linux would copy with "rep movsb", which counts eight times what "rep movsq" does.
PROCESSOR = "max,-erms,-fsrm"
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


def by_address(profile: pathlib.Path) -> collections.Counter[int]:
    """How often the instruction at each address was executed up to now."""
    words = array.array("Q", profile.read_bytes())
    found: collections.Counter[int] = collections.Counter()
    for address, count in zip(words[::2], words[1::2], strict=True):
        if count != 0:
            found[address] += count
    return found


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
