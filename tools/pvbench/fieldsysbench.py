# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""sysbench itself beside fileio, which stands for it in the table of files; both in Linux.

Debian's sysbench with its files on one disk, fileio with its own on another one of the same size,
in one guest and in turn.  If both take the same time, fileio does what sysbench does.  Files that
are there are written (sysbench's seqrewr), and sysbench counts each fsync(2) as one of its events.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Sequence

from debian import Packages
from pvbench import build
from pvbench.errors import BenchError
from pvbench.fieldfile import FILES, OPERATIONS, SIZE, sizes
from pvbench.fieldguests import (
    DEBIAN,
    FILEIO,
    MODERN,
    Row,
    System,
    blank,
    booted,
    pair,
    unpacked,
    with_libraries,
)
from pvbench.labs import LinuxLab, netlab
from pvbench.report import Report
from xen import image

TITLE = "sysbench"
LINUX, FREQUENCY = "linuxsysbench", 100  # transfers to fsync(2) of all files
PACKAGES = Packages("tools/bench field", build.BENCH / "packages-sysbench", [
    "sysbench", "libaio1", "libcom-err2", "libffi8", "libgcc-s1", "libgmp10", "libgnutls30",
    "libgssapi-krb5-2", "libhogweed6", "libidn2-0", "libk5crypto3", "libkeyutils1", "libkrb5-3",
    "libkrb5support0", "libldap-2.5-0", "libluajit-5.1-2", "libmariadb3", "libnettle8",
    "libp11-kit0", "libpq5", "libsasl2-2", "libssl3", "libtasn1-6", "libunistring2", "zlib1g"])
PROGRAM = "usr/bin/sysbench"
SYSBENCH = System("sysbench", ("--kernel", f"bench/{LINUX}", *DEBIAN.options[2:]), (), LinuxLab,
                  "/dev/vd", ())


def build_linux() -> None:
    """A Linux guest with both programs."""
    unpacked(PACKAGES, PROGRAM)
    build.linux(LINUX, ["virtio_blk"], [
        (f"bin/{FILEIO.name}", image.PROGRAM, FILEIO.read_bytes()),
        *with_libraries(PACKAGES, PROGRAM)])


def seconds_of(said: str) -> float:
    """What sysbench says of its time."""
    found = re.search(r"^ +total time: +([0-9.]+)s$", said, re.M)
    if found is None:
        raise BenchError(f"{TITLE}: {said}")
    return float(found[1])


def words(each: int) -> str:
    """sysbench with its files."""
    return (f"cd /sysbench && sysbench fileio --file-num={FILES}"
            f" --file-total-size={FILES * each} --file-block-size={SIZE}"
            f" --file-fsync-freq={FREQUENCY}")


def remount(lab: netlab.Lab) -> None:
    """Forget what is in memory of both disks."""
    for place, disk in (("/mnt", 0), ("/sysbench", 1)):
        lab.guest(f"cd /; umount {place}; mount -t ext4 {SYSBENCH.disk(disk)} {place}")


def in_turn(operation: str, each: int, count: int, lab: netlab.Lab, *,
            sysbench_first: bool) -> tuple[float, float]:
    """Seconds of fileio and of sysbench."""
    def fileio() -> float:
        said = lab.guest(f"fileio {operation} /mnt {FILES} {each} {SIZE} {count}")
        return int(said.split()[-1]) / 1e6

    mode = operation.replace("seqwr", "seqrewr")
    events = count + (FILES * (count // FREQUENCY) if operation.endswith("wr") else 0)

    def sysbench() -> float:
        return seconds_of(lab.guest(f"{words(each)} --file-test-mode={mode}"
                                    f" --events={events} --time=0 run"))
    remount(lab)
    if sysbench_first:
        other = sysbench()
        return fileio(), other
    return fileio(), sysbench()


def rows(scale: float) -> list[Row]:
    """All of them; they are measured by run()."""
    del scale
    return [Row(name, "s", None, lambda system, lab: 0, tree=True) for name in OPERATIONS.values()]


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure; systems have nothing to do with it."""
    del systems
    memory, each, count = sizes(scale)
    with contextlib.ExitStack() as stack:
        disks = [blank(f"{TITLE}-{number}", 2 * FILES * each) for number in range(2)]
        for path in disks:
            subprocess.run(["mkfs.ext4", "-q", path], check=True)
        lab = stack.enter_context(booted(SYSBENCH, [
            "--mem", str(memory),
            *(word for path in disks for word in ("--disk", f"{path},cache=unsafe{MODERN}"))]))
        lab.guest("mkdir -p /mnt /sysbench")
        lab.guest("mount -t ext4 /dev/vda /mnt; mount -t ext4 /dev/vdb /sysbench")
        lab.guest(f"fileio prepare /mnt {FILES} {each}")
        lab.guest(f"{words(each)} prepare")
        table = report.table("sysbench itself beside fileio, both in Linux", TITLE, "fileio")
        for operation, name in OPERATIONS.items():
            full = f"{TITLE}: {name}"
            if not report.chosen(full) or report.has(full):
                continue
            times = []
            for number in range(rounds):
                report.progress.step(full)
                times.append(in_turn(operation, each, count, lab,
                                     sysbench_first=number % 2 == 1))
            ours, other = zip(*times, strict=True)
            report.add(table, pair(full, "s", list(ours), list(other), None))
