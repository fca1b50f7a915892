# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Guests that the tables of the field are measured in: see field.py."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from debian import Packages, PackagesError
from fbsd.elf import DT_NEEDED, Elf
from fbsd.modules import built_for
from fbsd.sets import FreebsdError, need
from pvbench import build, counting
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_pairs_interval
from pvbench.freebsdrows import CALM, SMALL
from pvbench.labs import LinuxLab, QuietLab, netlab
from pvbench.report import Report
from pvbench.table import CPU, Goal, Line, Table
from xen import image
from xen.errors import TOP
from xen.packages import LAB, ROOT

LINUX = "linuxfield"
FILEIO = build.BENCH / "fileio"
MODULES = ["virtio_blk", "failover", "net_failover", "virtio_net", "cryptd", "crypto_simd",
           "aesni-intel", "xts", "camellia_generic", "dm-mod", "dm-crypt", "brd"]
# cryptsetup, and its libraries that the lab's packages do not have.
PACKAGES = Packages("tools/bench field", build.BENCH / "packages", [
    "cryptsetup-bin", "libcryptsetup12", "libpopt0", "libjson-c5", "libargon2-1", "libblkid1",
    "libdevmapper1.02.1", "libselinux1", "libpcre2-8-0", "libudev1", "libuuid1", "libssl3",
    "libcap2"])
CRYPTSETUP = PACKAGES, "sbin/cryptsetup"
BONNIE = Packages("tools/bench field", build.BENCH / "packages-bonnie",
                  ["bonnie++"]), "usr/sbin/bonnie++"
OPTIONAL = (CRYPTSETUP, BONNIE)
MODERN = ",disable-legacy=on,disable-modern=off"


def libraries(program: pathlib.Path, packages: Packages) -> list[image.Entry]:
    """What a program of Debian's needs, from these packages or those of the lab."""
    found: dict[str, pathlib.Path] = {}
    left = [program]
    while left:
        for name in Elf(left.pop()).dynamic(DT_NEEDED):
            places = [root / folder / name for root in (packages.root, ROOT)
                      for folder in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")]
            path = next((place for place in places if place.is_file()), None)
            if path is None:
                raise BenchError(f"the packages have no {name}, which {program.name} needs")
            if name not in found:
                found[name] = path
                left.append(path)
    return [(f"lib/x86_64-linux-gnu/{name}", image.PROGRAM, path.read_bytes())
            for name, path in found.items()]


def unpacked(packages: Packages, program: str) -> None:
    """See that there is a program of these packages."""
    try:
        packages.fetch()
        if not (packages.root / program).is_file():
            packages.unpack()
    except PackagesError as error:
        raise BenchError(str(error)) from error


def with_libraries(packages: Packages, program: str) -> list[image.Entry]:
    """A program that was unpacked, and all that it needs."""
    path = packages.root / program
    return [(f"bin/{path.name}", image.PROGRAM, path.read_bytes()), *libraries(path, packages),
            ("lib64/ld-linux-x86-64.so.2", image.PROGRAM,
             image.packaged("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"))]


def build_linux(wanted: Sequence[tuple[Packages, str]]) -> None:
    """A Linux guest with fileio, netbench and iperf, and what is wanted of more packages.

    What was unpacked before is left to it, so that a bench that runs beside another one leaves that
    its programs.
    """
    image.build()
    build.netbench()
    build.compile_c(TOP / "tests/sys/cmd/fileio.c", FILEIO, "-static")
    programs: list[image.Entry] = [
        (f"bin/{program.name}", image.PROGRAM, program.read_bytes())
        for program in (FILEIO, build.NETBENCH)]
    programs += with_libraries(LAB, "usr/bin/iperf")
    for packages, program in OPTIONAL:
        if (packages, program) in wanted:
            unpacked(packages, program)
        if (packages.root / program).is_file():
            programs += with_libraries(packages, program)
    build.linux(LINUX, MODULES, programs)


@dataclasses.dataclass(frozen=True)
class System:
    """An operating system with one kind of drivers."""

    name: str  # of the column
    options: tuple[str, ...]
    lines: tuple[str, ...]  # that load the drivers
    lab: type[netlab.Lab]
    disks: str  # a disk's name, with its number to follow
    cards: tuple[str, ...]  # virtio's, and e1000's, which Debian's cloud kernel has no driver for
    is_tree: bool = False

    @property
    def is_linux(self) -> bool:
        """Whether it is Linux, whose commands are busybox's."""
        return self.lab is LinuxLab

    def address(self, card: int, address: str) -> str:
        """The command that gives a card its address."""
        name = self.cards[card]
        return (f"ip addr add {address}/24 dev {name}; ip link set {name} up" if self.is_linux
                else f"ifconfig {name} inet {address}/24 up")

    def disk(self, number: int) -> str:
        """The special file of a disk."""
        return f"{self.disks}{chr(ord('a') + number) if self.is_linux else number}"


FREEBSD = ("--os", "freebsd", "--fresh",
           *(word for name in SMALL for word in ("--env", f"{name}=64")))
LOADED = ("kldload virtio_blk", "kldload if_vtnet")
OURS = System("ours", FREEBSD, (*LOADED, *CALM), QuietLab, "/dev/vtbd", ("vtnet0", "em0"))
STOCK = System("FreeBSD's", FREEBSD,
               ("sysctl kern.module_path=/boot/kernel", "kldload virtio_pci virtio_blk if_vtnet",
                *CALM),
               QuietLab, "/dev/vtbd", ("vtnet0", "em0"))
DEBIAN = System("Linux", ("--kernel", f"bench/{LINUX}", *build.LINUX_CONSOLE, *build.LINUX_BARE),
                (), LinuxLab, "/dev/vd", ("eth0",))


def tree(kernel: str) -> System:
    """Our drivers in the tree kernel, which has no e1000."""
    return System("tree kernel", ("--kernel", kernel), LOADED, QuietLab, "/dev/vtbd", ("vtnet0",),
                  is_tree=True)


def no_freebsd() -> str | None:
    """Why there is no FreeBSD with our modules here."""
    try:
        return None if built_for(need("kernel")) else "no modules of ours for FreeBSD's kernel"
    except FreebsdError as error:
        return str(error)


def systems(name: str | None, kernel: str) -> list[System]:
    """Ours first, in FreeBSD or the tree kernel, as asked for or there is; FreeBSD's; Linux."""
    reason = no_freebsd() if name != "tree" else None
    if name == "freebsd" and reason is not None:
        raise BenchError(reason)
    if name == "tree" or reason is not None:
        return [tree(kernel), DEBIAN]
    stock = (need("kernel").folder / "boot/kernel/virtio_blk.ko").is_file()
    return [OURS, *([STOCK] if stock else []), DEBIAN]


@contextlib.contextmanager
def booted(system: System, options: Sequence[str],
           cards: Sequence[tuple[netlab.Peer, str]] = ()) -> Iterator[netlab.Lab]:
    """A guest with its drivers loaded."""
    with system.lab(list(cards), [*system.options, *options]) as lab:
        for line in system.lines:
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
    # By the clock, and QEMU's CPU time if that is not just what it took meanwhile.
    once: Callable[[System, netlab.Lab], float | tuple[float, float]]
    card: int = 0  # that a system has to have
    tree: bool = False  # whether the tree kernel has what it takes
    cpu_unit: str = "s"


def rows_of(rows: Sequence[Row], systems: Sequence[System]) -> list[Row]:
    """Those that these systems can do."""
    return [row for row in rows if row.tree or not systems[0].is_tree]


def start(lab: netlab.Lab, line: str) -> None:
    """Have a guest begin with a line at its console, while others do the same."""
    lab.vm.write(lab.vm.system.typed(line))


def finish(lab: netlab.Lab, line: str) -> str:
    """Wait until it has done that; returns what it printed."""
    shown = io.TextIOWrapper(io.BytesIO(), errors="replace")
    with contextlib.redirect_stdout(shown):
        status = lab.vm.result(show=True)
        shown.flush()
    said = shown.buffer.getvalue().decode(errors="replace")
    if status != 0:
        raise netlab.LabFailure(f"guest: {line}: status {status}\n{said}")
    return str(said)


class Named(Protocol):
    """A row of whatever is measured."""

    @property
    def name(self) -> str:
        """What --only chooses by, behind the table's title."""


Kind = TypeVar("Kind", bound=Named)


def wanted(report: Report, title: str, rows: Sequence[Kind]) -> list[Kind]:
    """Those that --only has, and an interrupted run has not measured."""
    return [row for row in rows if report.chosen(f"{title}: {row.name}")
            and not report.has(f"{title}: {row.name}")]


def beside(report: Report, title: str, ours: System, other: System) -> Table:
    """The table of ours beside another; its title says where ours is not in FreeBSD."""
    where = "" if ours is OURS else f", {ours.name}"
    return report.table(f"{title}{where}, beside {other.name}", other.name)


def cpu_seconds(lab: netlab.Lab) -> float:
    """What a guest's QEMU has taken of this machine's processors."""
    return counting.cpu_seconds(lab.vm.process.pid)


def pair(name: str, unit: str, ours: list[float], other: list[float], goal: Goal | None) -> Line:
    """A line of runs that followed each other."""
    mine, theirs = Figures.of(ours), Figures.of(other)
    return Line(name, unit, mine, theirs, of_pairs_interval(mine, theirs), goal)


def lines_of(row: Row, report: Report, title: str, rounds: int,
             guests: Sequence[tuple[System, netlab.Lab]]) -> list[tuple[System, Line]]:
    """Measure a row in all guests that can; the lines beside each of the others.

    The second line is by QEMU's CPU time, of which a busy machine gives both as much as they take.
    """
    able = [guest for guest in guests if row.card < len(guest[0].cards)]
    found: dict[System, list[float]] = {system: [] for system, _ in able}
    spent: dict[System, list[float]] = {system: [] for system, _ in able}
    for number in range(rounds):
        report.progress.step(f"{title}: {row.name}")
        turn = number % len(able)
        for system, lab in (*able[turn:], *able[:turn]):
            before = cpu_seconds(lab)
            figure = row.once(system, lab)
            by_clock, by_cpu = (figure if isinstance(figure, tuple)
                                else (figure, cpu_seconds(lab) - before))
            found[system].append(by_clock)
            spent[system].append(by_cpu)
    mine, *others = found
    lines = []
    for system in others:
        goal = row.goal if system is DEBIAN else None
        name = f"{title}: {row.name}"
        lines.append((system, pair(name, row.unit, found[mine], found[system], goal)))
        lines.append((system, pair(f"{name}{CPU}", row.cpu_unit, spent[mine], spent[system],
                                   goal if row.cpu_unit == row.unit or goal is None else Goal(1))))
    return lines


def measure(report: Report, title: str, rounds: int, rows: Sequence[Row],
            guests: Sequence[tuple[System, netlab.Lab]]) -> None:
    """Each row in all guests, one after the other; a table beside each of the others.

    Each round begins with another guest.  A row is kept when it was measured, and printed at the
    end, or the interruption, with those of its table.
    """
    kept: dict[System, list[tuple[Table, Line]]] = {system: [] for system, _ in guests[1:]}
    try:
        for row in wanted(report, title, rows):
            lines = [(system, beside(report, title, guests[0][0], system), line)
                     for system, line in lines_of(row, report, title, rounds, guests)]
            report.keep(*((table, line) for _, table, line in lines))
            for system, table, line in lines:
                kept[system].append((table, line))
    finally:
        for table, line in (pair for pairs in kept.values() for pair in pairs):
            report.show(table, line)
