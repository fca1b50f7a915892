# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Files: the pattern of sysbench's test, in a guest whose memory holds half of them.

As it was published: 128 files of 2 GB together, transfers of 16 KB, all files written to the disk
after each 100 of them; a guest of 800 MB, one CPU.  Here the program is fileio (tests/sys/cmd), the
same in each system, on UFS with soft updates or ext4, and on the disk itself, without a cache.
UFS does not flush the disk's own cache at fsync(2); ext4 does, of a file with nothing new as well:
in 600 writes 902 of its 943 requests are flushes.  The image is one for which QEMU has nothing to
do then (cache=unsafe), but each is a round trip, one after the other, that waits for QEMU's turn on
this machine: with a load of 40 they took 8.5 of 8.6 seconds, which are gone with write-cache=off.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence

from pvbench.fieldguests import MODERN, Row, System, blank, booted, measure, rows_of
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import Goal

TITLE = "file I/O"
FILES, TOTAL, MEMORY, SIZE, COUNT = 128, 2 << 30, 800, 16384, 10000
LEAST = 256  # MB, in which FreeBSD with its root in memory works
OPERATIONS = {"seqwr": "sequential write", "seqrd": "sequential read",
              "rndwr": "random write", "rndrd": "random read"}


def sizes(scale: float) -> tuple[int, int, int]:
    """The guest's MB, bytes of a file, and transfers."""
    memory = max(LEAST, round(MEMORY * scale))
    each = max(1, round(TOTAL * scale / FILES / SIZE)) * SIZE
    return memory, each, round(COUNT * scale)


def remount(system: System, lab: netlab.Lab) -> None:
    """Forget what is in memory."""
    lab.guest(f"umount /mnt; mount {'-t ext4 ' if system.is_linux else ''}{system.disk(0)} /mnt")


def in_files(operation: str, each: int, count: int) -> Row:
    """A row of files."""
    def once(system: System, lab: netlab.Lab) -> float:
        remount(system, lab)
        said = lab.guest(f"fileio {operation} /mnt {FILES} {each} {SIZE} {count}")
        return int(said.split()[-1]) / 1e6
    return Row(f"{OPERATIONS[operation]}, files", "s", Goal(1), once)


def on_disk(operation: str, each: int, count: int) -> Row:
    """A row of the disk itself."""
    def once(system: System, lab: netlab.Lab) -> float:
        said = lab.guest(f"fileio {operation} {system.disk(1)} 0 {each} {SIZE} {count}")
        return int(said.split()[-1]) / 1e6
    return Row(f"{OPERATIONS[operation]}, disk", "s", Goal(1), once, tree=True)


def rows(scale: float) -> list[Row]:
    """All of them."""
    _, each, count = sizes(scale)
    return [make(operation, each, count) for make in (in_files, on_disk)
            for operation in OPERATIONS]


def with_files(system: System, lab: netlab.Lab, each: int) -> None:
    """The first disk with its files."""
    if system.is_linux:
        lab.guest("mkdir -p /mnt; mount -t ext4 /dev/vda /mnt")
    else:
        lab.guest("newfs -U /dev/vtbd0 >/dev/null; mount /dev/vtbd0 /mnt")
    lab.guest(f"fileio prepare /mnt {FILES} {each}")


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure."""
    memory, each, _ = sizes(scale)
    with contextlib.ExitStack() as stack:
        guests = []
        for system in systems:
            images = [blank(f"{TITLE.replace('/', '')}-{system.name}-{number}", 2 * FILES * each)
                      for number in range(2)]
            if system.is_linux:
                subprocess.run(["mkfs.ext4", "-q", images[0]], check=True)
            lab = stack.enter_context(booted(system, [
                "--mem", str(memory),
                *(word for path in images
                  for word in ("--disk", f"{path},cache=unsafe{MODERN}"))]))
            if not systems[0].is_tree:
                with_files(system, lab, each)
            guests.append((system, lab))
        measure(report, TITLE, rounds, rows_of(rows(scale), systems), guests)
