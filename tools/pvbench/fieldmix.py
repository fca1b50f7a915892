# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A mix of computing and files, on a disk beside the same in memory; and on several CPUs.

As it was published: a build of NetBSD, and of how much faster it is on more CPUs.  There is no
compiler in these guests, so that the mix is made of programs that each has: text is written,
sorted, searched, hashed and removed, file by file.  What the disk costs is the ratio to the time
that it takes on a disk in memory, md(4) or brd.  The job for several CPUs is the same, one a CPU.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Sequence

from pvbench.fieldguests import MODERN, Row, System, blank, booted, cpu_seconds, measure
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import Goal

TITLE = "mix"
MEMORY, DISK, PLACES = 512, 128 << 20, ("/mnt", "/mem")
LINES, FILES = 20000, 160
CPUS = (1, 2, 4)


def job(system: System, place: str, number: int, files: int) -> str:
    """The mix as a shell command."""
    digest = "sha256sum" if system.is_linux else "sha256"
    at = f"{place}/{number}"
    return (f"(mkdir {at}; for n in $(seq {files}); do seq {LINES} >{at}/in.$n;"
            f" sort -r {at}/in.$n >{at}/out.$n; grep -c 77 {at}/out.$n >{at}/count.$n;"
            f" {digest} {at}/out.$n >{at}/sum.$n; done; sync; rm -r {at}; sync)")


def seconds(system: System, lab: netlab.Lab, place: str, jobs: int,
            files: int) -> tuple[float, float]:
    """What so many take, by this machine's clock and of QEMU's CPU time."""
    words = " & ".join(job(system, place, number, files) for number in range(jobs))
    start, before = time.monotonic(), cpu_seconds(lab)
    lab.guest(f"{words} & wait")
    return time.monotonic() - start, cpu_seconds(lab) - before


def beside_memory(files: int) -> Row:
    """Per cent of the time in memory."""
    def once(system: System, lab: netlab.Lab) -> tuple[float, float]:
        on_disk, in_memory = (seconds(system, lab, place, 1, files) for place in PLACES)
        return 100 * on_disk[0] / in_memory[0], 100 * on_disk[1] / in_memory[1]
    return Row("disk, to the same in memory", "%", Goal(102, "ours"), once, cpu_unit="%")


def on_cpus(number: int, files: int) -> Row:
    """Seconds of as many jobs as CPUs, a job."""
    def once(system: System, lab: netlab.Lab) -> tuple[float, float]:
        by_clock, by_cpu = seconds(system, lab, PLACES[0], number, max(1, files // CPUS[-1]))
        return by_clock / number, by_cpu / number
    return Row(f"a job a CPU, {number} CPU{'s' if number > 1 else ''}", "s a job", Goal(1), once,
               cpu_unit="s a job")


def rows_on(number: int, scale: float) -> list[Row]:
    """Those of a guest of so many CPUs."""
    files = max(len(CPUS), round(FILES * scale))
    return [on_cpus(number, files), *([beside_memory(files)] if number == 1 else [])]


def rows(scale: float) -> list[Row]:
    """All of them."""
    return [row for number in CPUS for row in rows_on(number, scale)]


def mounted(system: System, lab: netlab.Lab) -> None:
    """Both file systems."""
    if system.is_linux:
        lab.guest(f"rmmod brd; insmod /modules/brd.ko rd_nr=1 rd_size={DISK >> 10}")
        lab.guest("cat /dev/vda >/dev/ram0; mkdir -p /mnt /mem; mount -t ext4 /dev/vda /mnt;"
                  " mount -t ext4 /dev/ram0 /mem")
    else:
        lab.guest("newfs -U /dev/vtbd0 >/dev/null; mount /dev/vtbd0 /mnt;"
                  f" mdconfig -a -t malloc -s {DISK >> 20}m -u 9; newfs -U /dev/md9 >/dev/null;"
                  " mkdir -p /mem; mount /dev/md9 /mem")


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure."""
    for number in CPUS:
        with contextlib.ExitStack() as stack:
            guests = []
            for system in systems:
                path = blank(f"mix-{system.name}", DISK)
                if system.is_linux:
                    subprocess.run(["mkfs.ext4", "-q", path], check=True)
                lab = stack.enter_context(booted(system, [
                    "--mem", str(MEMORY), "--smp", str(number),
                    "--disk", f"{path},cache=unsafe{MODERN}"]))
                mounted(system, lab)
                guests.append((system, lab))
            measure(report, TITLE, rounds, rows_on(number, scale), guests)
