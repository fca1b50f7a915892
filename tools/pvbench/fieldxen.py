# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Under Xen: xbd(4) and xn(4) beside FreeBSD's and Linux's, HVM beside PVH, on 1, 2 and 4 CPUs.

As it was published: one domain of 1 to N CPUs, and drivers in a fully virtualised guest that have
to be equal to those in a paravirtualised one.  The tree kernel as a PVH guest and as an HVM guest,
and Linux as a PVH guest, work in turn in one lab, the others paused, with a ram disk of dom0's and
dom0's bridge.  The lab's clock counts instructions, as in `tools/bench xbd': a second is 10^9 of
them, guest's, Xen's and dom0's, so that what else this machine has to do does not show.

Where there is FreeBSD's GENERIC, with our modules (tools/freebsd modules --kernel generic), two PVH
guests of it, one with ours and one with its own front ends, do the same on one CPU, beside Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from pvbench import build, freebsdxen, xenguests
from pvbench.errors import BenchError
from pvbench.fieldfile import OPERATIONS, SIZE
from pvbench.fieldguests import FILEIO, System, pair, wanted, with_libraries
from pvbench.fieldnet import FREEBSD_WINDOW, LINUX_WINDOW, PORTS, STREAMS, all_of
from pvbench.freebsdrows import CALM
from pvbench.freebsdxen import NOW
from pvbench.report import Report
from pvbench.table import Goal, Line
from pvbench.xenguests import FOREVER
from xen import image, packages
from xen.errors import Deadline
from xen.lab import Lab

TITLE = "Xen"
CPUS = (1, 2, 4)
MEMORY, DISK = 128, 128 << 20  # of a guest in MB, of a ram disk of dom0's
COUNT, TOTAL = 10000, 1 << 30  # transfers, and bytes of all streams, at scale 1
HOST, PORT, LINUX = "10.0.0.1", 5001, "linuxfield"
NO_PROGRAM = "while pidof netbench >/dev/null; do sleep 0.05; done"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A guest of the lab."""

    name: str
    options: tuple[str, ...]
    lines: tuple[str, ...]  # that make it ready
    disk: str
    address: str
    is_linux: bool = False
    is_freebsd: bool = False
    mem: int = MEMORY


def ours(name: str, options: tuple[str, ...], disk: str, address: str) -> Kind:
    """The tree kernel."""
    return Kind(name, options, ("kldload xbd", "kldload if_xn", f"ifconfig xn0 inet {address}/24"),
                disk, address)


PVH = ours("PVH", (), "/dev/xbd0", "10.0.0.11")
# The first disk is the one that it boots from.
HVM = ours("HVM", ("--type", "hvm", "--xl", 'hdtype="ahci"'), "/dev/xbd1", "10.0.0.12")
DEBIAN = Kind("Linux", build.LINUX_BARE, (
    "ip addr add 10.0.0.13/24 dev eth0", "ip link set eth0 up", f"sysctl -w {LINUX_WINDOW}"),
    "/dev/xvda", "10.0.0.13", is_linux=True)
KINDS = (PVH, HVM, DEBIAN)


def freebsd(kind: freebsdxen.Kind, address: str) -> Kind:
    """GENERIC."""
    return Kind(kind.name, kind.options, (
        kind.check, *CALM, freebsdxen.configured(0, address, HOST), f"sysctl {FREEBSD_WINDOW}"),
        "/dev/xbd0", address, is_freebsd=True, mem=freebsdxen.MEMORY)


OURS = freebsd(freebsdxen.OURS, "10.0.0.14")
STOCK = freebsd(freebsdxen.STOCK, "10.0.0.15")
FREEBSD_KINDS = (OURS, STOCK, DEBIAN)
Guests = dict[Kind, xenguests.Side]


def seconds_of(said: str) -> float:
    """What iperf says of all its streams together."""
    found = re.search(r"^\[SUM\] +0\.0000-([0-9.]+) sec", said, re.M)
    if found is None:
        raise BenchError(f"{TITLE}: no time in\n{said}")
    return max(float(found[1]), 0.0001)


def transfers(operation: str, kind: Kind, guest: xenguests.Side, scale: float) -> float:
    """MB a second of fileio's transfers to and from the disk."""
    count = max(1, round(COUNT * scale))
    said = guest.say(f"fileio {operation} {kind.disk} 0 {DISK // 128} {SIZE} {count}")
    return count * SIZE / max(1, int(said.split()[-1]))


def each_stream(scale: float) -> int:
    """Bytes of a stream."""
    return max(1, round(TOTAL * scale) // STREAMS // 65536) * 65536


def outbound(kind: Kind, guest: xenguests.Side, scale: float) -> float:
    """Mbit a second of streams to dom0."""
    each = each_stream(scale)
    guest.dom0(f"/run/netbench sink {PORT} {STREAMS} >/dev/null 2>&1 &"
               f" until netstat -lnt | grep -q ':{PORT} '; do sleep 0.05; done")
    window = " -w 256k" if kind.is_linux else ""
    if kind.is_freebsd:
        said = guest.say(all_of(f"pvbench -t send {HOST} $port {each}", str(PORT)))
        seconds = max(map(int, re.findall(r"^\d+$", said, re.M))) / 1e6
    else:
        seconds = seconds_of(guest.say(
            f"iperf -c {HOST} -p {PORT}{window} -P {STREAMS} -n {each}"))
    guest.dom0(NO_PROGRAM)
    return STREAMS * each * 8 / 1e6 / seconds


def inbound(kind: Kind, guest: xenguests.Side, scale: float) -> float:
    """Mbit a second of streams from dom0."""
    each = each_stream(scale)
    guest.say(f"netbench sink {PORT} {STREAMS} &" if kind.is_linux
              else f"({all_of(f'pvbench take $port {each}', PORTS)}) &" if kind.is_freebsd
              else f"iperf -s -p {PORT} -n {STREAMS * each} &")
    guest.say("sleep 1")
    send = all_of(f"/run/netbench send {kind.address} $port {each}",
                  PORTS if kind.is_freebsd else str(PORT))
    begin, end = map(int, guest.dom0(f"{NOW}; {send}; {NOW}").split())
    guest.say("wait")
    return STREAMS * each * 8e3 / max(1, end - begin)


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of both tables."""

    work: str
    unit: str
    cpus: int
    once: Callable[[Kind, xenguests.Side, float], float]
    tree: bool = True  # whether it is in the tree kernel, else in FreeBSD

    @property
    def name(self) -> str:
        """What it is called."""
        return (f"{self.work}, {self.cpus} CPU{'s' if self.cpus > 1 else ''}"
                f"{'' if self.tree else ', in FreeBSD'}")


def rows_on(cpus: int, tree: bool = True) -> list[Row]:
    """Those of guests of so many CPUs."""
    def on_disk(operation: str) -> Callable[[Kind, xenguests.Side, float], float]:
        return lambda kind, guest, scale: transfers(operation, kind, guest, scale)
    return [*(Row(name, "MB/s", cpus, on_disk(operation), tree)
              for operation, name in OPERATIONS.items()),
            Row("outbound", "Mbit/s", cpus, outbound, tree),
            Row("inbound", "Mbit/s", cpus, inbound, tree)]


def groups() -> list[tuple[tuple[Kind, ...], list[Row]]]:
    """The guests that run together, and their rows."""
    in_freebsd = [] if freebsdxen.unusable() else [(FREEBSD_KINDS, rows_on(1, tree=False))]
    return [*((KINDS, rows_on(cpus)) for cpus in CPUS), *in_freebsd]


def rows(scale: float) -> list[Row]:
    """All of them."""
    del scale
    return [row for _, some in groups() for row in some]


def build_linux() -> None:
    """The lab's Linux guest with fileio, netbench and iperf."""
    build.xen_linux_with(LINUX, [
        *((f"bin/{program.name}", image.PROGRAM, program.read_bytes())
          for program in (FILEIO, build.NETBENCH)),
        *with_libraries(packages.LAB, "usr/bin/iperf")])


@contextlib.contextmanager
def booted(lab: Lab, kinds: Sequence[Kind], kernel: str, cpus: int) -> Iterator[Guests]:
    """These guests, paused; kernel is the tree's."""
    with contextlib.ExitStack() as stack:
        guests: Guests = {}
        for kind in kinds:
            boots = (f"bench/linux/{LINUX}" if kind.is_linux
                     else freebsdxen.KERNEL if kind.is_freebsd else kernel)
            guest = stack.enter_context(xenguests.booted(
                lab, kind.name, boots,
                ["--smp", str(cpus), "--mem", str(kind.mem), "--disk", "dom0:/dev/ram0",
                 "--net", "bridge:xenbr0", *kind.options]))
            for line in kind.lines:
                guest.say(line)
            guest.dom0(f"until ping -c 1 {kind.address}; do :; done")
            guest.pause()
            guests[kind] = guest
        yield guests


def once(row: Row, kind: Kind, guest: xenguests.Side, scale: float) -> float:
    """A run, which has the processor to itself."""
    guest.unpause()
    try:
        return row.once(kind, guest, scale)
    finally:
        guest.pause()


def lines_of(row: Row, found: dict[Kind, list[float]]) -> list[tuple[str, str, str, Line]]:
    """A table's title, its columns and the line, for both."""
    name = f"{TITLE}: {row.name}"
    level = Goal(1, at_least=True)
    if not row.tree:
        return [(f"{TITLE}, in FreeBSD, beside {other.name}", "ours", other.name,
                 pair(name, row.unit, found[OURS], found[other], level))
                for other in (STOCK, DEBIAN)]
    return [(f"{TITLE}, tree kernel, beside Linux", "ours", "Linux", pair(
                name, row.unit, found[PVH], found[DEBIAN], level)),
            (f"{TITLE}, tree kernel, HVM beside PVH", "HVM", "PVH", pair(
                name, row.unit, found[HVM], found[PVH], Goal(0.95, at_least=True)))]


def measure(row: Row, guests: Guests, report: Report, rounds: int, scale: float) -> None:
    """A row in all guests, each round beginning with another."""
    found: dict[Kind, list[float]] = {kind: [] for kind in guests}
    kinds = list(guests)
    for number in range(rounds):
        report.progress.step(f"{TITLE}: {row.name}")
        turn = number % len(kinds)
        for kind in (*kinds[turn:], *kinds[:turn]):
            found[kind].append(once(row, kind, guests[kind], scale))
    lines = [(report.table(title, other, mine), line)
             for title, mine, other, line in lines_of(row, found)]
    report.keep(*lines)
    for table, line in lines:
        report.show(table, line)


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure, in the tree kernel."""
    kernel = systems[0].options[1] if systems[0].is_tree else build.OURS
    some = [(kinds, wanted(report, TITLE, [row for row in rows
                                           if row.tree or not systems[0].is_tree]))
            for kinds, rows in groups()]
    with xenguests.counting_lab(argparse.Namespace(lab=None), "bench-field",
                                freebsdxen.LAB_MEMORY) as lab:
        lab.put(build.NETBENCH, "/run/netbench", Deadline(FOREVER))
        lab.output(f"chmod +x /run/netbench; sysctl -w {LINUX_WINDOW}", Deadline(FOREVER))
        for kinds, rows in some:
            if not rows:
                continue
            with booted(lab, kinds, kernel, rows[0].cpus) as guests:
                for row in rows:
                    measure(row, guests, report, rounds, scale)
