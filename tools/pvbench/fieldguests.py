# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Guests that the tables of the field are measured in: see field.py."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import statistics
from collections.abc import Callable, Iterator, Sequence

from debian import Packages, PackagesError
from fbsd.elf import DT_NEEDED, Elf
from fbsd.modules import built_for
from fbsd.sets import FreebsdError, need
from pvbench import build, counting
from pvbench.errors import BenchError
from pvbench.figures import Figures, Ratio, of_pairs
from pvbench.freebsdrows import CALM, SMALL
from pvbench.labs import LinuxLab, QuietLab, netlab
from pvbench.report import Report
from pvbench.table import Goal, Line
from xen import image
from xen.errors import TOP
from xen.packages import ROOT

LINUX = "linuxfield"
FILEIO = build.BENCH / "fileio"
MODULES = ["virtio_blk", "failover", "net_failover", "virtio_net", "cryptd", "crypto_simd",
           "aesni-intel", "xts", "camellia_generic", "dm-mod", "dm-crypt", "brd"]
# cryptsetup, and its libraries that the lab's packages do not have.
PACKAGES = Packages("tools/bench field", build.BENCH / "packages", [
    "cryptsetup-bin", "libcryptsetup12", "libpopt0", "libjson-c5", "libargon2-1", "libblkid1",
    "libdevmapper1.02.1", "libselinux1", "libpcre2-8-0", "libudev1", "libuuid1", "libssl3",
    "libcap2"])
CRYPTSETUP = "sbin/cryptsetup"
MODERN = ",disable-legacy=on,disable-modern=off"


def libraries(program: pathlib.Path) -> list[image.Entry]:
    """What a program of Debian's needs, from these packages or those of the lab."""
    found: dict[str, pathlib.Path] = {}
    left = [program]
    while left:
        for name in Elf(left.pop()).dynamic(DT_NEEDED):
            places = [root / folder / name for root in (PACKAGES.root, ROOT)
                      for folder in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")]
            path = next((place for place in places if place.is_file()), None)
            if path is None:
                raise BenchError(f"the packages have no {name}, which {program.name} needs")
            if name not in found:
                found[name] = path
                left.append(path)
    return [(f"lib/x86_64-linux-gnu/{name}", image.PROGRAM, path.read_bytes())
            for name, path in found.items()]


def build_linux() -> None:
    """A Linux guest with the programs."""
    image.build()
    build.netbench()
    build.compile_c(TOP / "tests/sys/cmd/fileio.c", FILEIO, "-static")
    try:
        PACKAGES.fetch()
        if not (PACKAGES.root / CRYPTSETUP).is_file():
            PACKAGES.unpack()
    except PackagesError as error:
        raise BenchError(str(error)) from error
    loader = "lib64/ld-linux-x86-64.so.2"
    build.linux(LINUX, MODULES, [
        *((f"bin/{program.name}", image.PROGRAM, program.read_bytes())
          for program in (FILEIO, build.NETBENCH, PACKAGES.root / CRYPTSETUP)),
        *libraries(PACKAGES.root / CRYPTSETUP),
        (loader, image.PROGRAM, image.packaged("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"))])


@dataclasses.dataclass(frozen=True)
class System:
    """An operating system with one kind of drivers."""

    name: str  # of the column
    options: tuple[str, ...]
    lines: tuple[str, ...]  # that load the drivers
    lab: type[netlab.Lab]
    disks: str  # a disk's name, with its number to follow
    cards: tuple[str, ...]  # virtio's, and e1000's, which Debian's cloud kernel has no driver for

    @property
    def is_linux(self) -> bool:
        """Whether it is Linux, whose commands are busybox's."""
        return self.lab is LinuxLab

    def disk(self, number: int) -> str:
        """The special file of a disk."""
        return f"{self.disks}{chr(ord('a') + number) if self.is_linux else number}"


FREEBSD = ("--os", "freebsd", "--fresh",
           *(word for name in SMALL for word in ("--env", f"{name}=64")))
OURS = System("ours", FREEBSD, ("kldload virtio_blk", "kldload if_vtnet"), QuietLab, "/dev/vtbd",
              ("vtnet0", "em0"))
STOCK = System("FreeBSD's", FREEBSD,
               ("sysctl kern.module_path=/boot/kernel", "kldload virtio_pci virtio_blk if_vtnet"),
               QuietLab, "/dev/vtbd", ("vtnet0", "em0"))
DEBIAN = System("Linux", ("--kernel", f"bench/{LINUX}", *build.LINUX_CONSOLE, *build.LINUX_BARE),
                (), LinuxLab, "/dev/vd", ("eth0",))


def systems() -> list[System]:
    """Those that this machine has, ours first."""
    try:
        stock = (need("kernel").folder / "boot/kernel/virtio_blk.ko").is_file()
        if built_for(need("kernel")) is None:
            raise FreebsdError("no modules of ours")
    except FreebsdError as error:
        raise BenchError(f"{error}: tools/freebsd import, then tools/freebsd modules --kernel"
                         " PVKMOD") from error
    return [OURS, *([STOCK] if stock else []), DEBIAN]


@contextlib.contextmanager
def booted(system: System, options: Sequence[str],
           cards: Sequence[tuple[netlab.Peer, str]] = ()) -> Iterator[netlab.Lab]:
    """A guest with its drivers loaded."""
    with system.lab(list(cards), [*system.options, *options]) as lab:
        for line in system.lines if system.is_linux else (*system.lines, *CALM):
            lab.guest(line)
        yield lab
        lab.end()


def blank(name: str, size: int) -> pathlib.Path:
    """A disk's image, of so many bytes."""
    path = pathlib.Path(name).absolute()
    with path.open("wb") as file:
        file.truncate(size)
    return path


@dataclasses.dataclass(frozen=True)
class Row:
    """What is measured: once() does it, and returns the figure."""

    name: str
    unit: str
    goal: Goal | None  # beside Linux
    once: Callable[[System, netlab.Lab], float]
    card: int = 0  # that a system has to have


def measure(report: Report, title: str, rounds: int, rows: Sequence[Row],
            guests: Sequence[tuple[System, netlab.Lab]]) -> None:
    """Each row in all guests, one after the other; a table beside each of the others.

    Each round begins with another guest.
    """
    lines: list[tuple[System, Line]] = []
    for row in (row for row in rows if report.chosen(f"{title}: {row.name}")):
        able = [guest for guest in guests if row.card < len(guest[0].cards)]
        found: dict[str, list[float]] = {system.name: [] for system, _ in able}
        spent: dict[str, list[float]] = {system.name: [] for system, _ in able}
        for number in range(rounds):
            report.progress.step(f"{title}: {row.name}")
            turn = number % len(able)
            for system, lab in (*able[turn:], *able[:turn]):
                pid = lab.vm.process.pid
                before = counting.cpu_seconds(pid)
                found[system.name].append(row.once(system, lab))
                spent[system.name].append(counting.cpu_seconds(pid) - before)
        ours = Figures.of(found[OURS.name])
        for system, _ in able[1:]:
            other = Figures.of(found[system.name])
            ratio: Ratio = of_pairs(ours, other)
            lines.append((system, Line(f"{title}: {row.name}", row.unit, ours, other, ratio,
                                       row.goal if system is DEBIAN else None,
                                       {"s of QEMU's CPU time": (
                                           statistics.median(spent[OURS.name]),
                                           statistics.median(spent[system.name]))})))
    for system, _ in guests[1:]:
        for _, line in (pair for pair in lines if pair[0] is system):
            report.add(report.table(f"{title}, beside {system.name}", system.name), line)
