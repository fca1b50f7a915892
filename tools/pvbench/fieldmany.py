# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Many guests at once: what all of them do together, and how evenly.

As it was published: bonnie++ with twice as much data as memory, in one guest and in eight, and
iperf with one to eight.  Here each guest writes and reads a disk of its own at random (fileio,
16 KB), runs bonnie++, or sends a TCP stream, all of them at the same time.  bonnie++, with a file
on ext4, and iperf are Debian's in Linux.  In FreeBSD fileio writes, rewrites and reads a file on
UFS of the same size, in the same pieces, and pvbench sends.  The tree kernel, which has no files,
has the disk itself in pieces of 64 KB, about what a cache makes of smaller ones, and its own iperf.

"together" is what all did until the slowest had ended, "slowest to fastest" the ratio of two of
them by their clocks.  "least to most" is the same by QEMU's CPU time for the same work, of which a
processor that one guest had longer than another is no part.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import ClassVar

from pvbench.build import NETBENCH
from pvbench.errors import BenchError
from pvbench.fieldguests import (
    DEBIAN,
    MODERN,
    System,
    beside,
    blank,
    booted,
    cpu_seconds,
    finish,
    start,
)
from pvbench.figures import Figures, of_pairs_interval
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import Goal, Line

TITLE = "many guests"
NUMBERS = (1, 2, 4, 8)
MEMORY, TREE_MEMORY, DISK, BLOCK = 256, 128, 64 << 20, 16384
COUNT, STREAM = 8000, 1 << 30
BONNIE, LEAST, PIECE, TREE_PIECE = 4096, 256, 8192, 65536  # MB at scale 1 and at least; bytes
GUEST, HOST, PORT = "10.1.0.254", "10.1.0.1", 5001
# What is measured at once, and its figures.
LOADS = {"random write": ("random write",), "random read": ("random read",),
         "bonnie++": ("bonnie++ write", "bonnie++ rewrite", "bonnie++ read"),
         "TCP stream": ("TCP stream",)}
# Columns of what bonnie++ -q prints: KB a second of writing, of rewriting, of reading.
COLUMNS = (11, 13, 17)


@dataclasses.dataclass(frozen=True)
class Load:
    """What so many guests do."""

    kind: str
    number: int
    tree: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What the row is called, which is the first of its lines."""
        return f"{LOADS[self.kind][0]}, {self.number} together"

    @property
    def weight(self) -> int:
        """How much longer it takes than the shortest, as it was counted."""
        return 40 if self.kind == "bonnie++" else 1


def rows(scale: float) -> list[Load]:
    """All of them."""
    del scale
    return [Load(load, number) for load in LOADS for number in NUMBERS]


def unit(kind: str) -> str:
    """Of what is measured."""
    return "Mbit/s" if kind == "TCP stream" else "MB/s"


def bonnie_size(scale: float) -> int:
    """MB that bonnie++ writes; of less it does not say how fast that was."""
    return max(LEAST, round(BONNIE * scale))


def command(system: System, load: str, scale: float) -> tuple[str, int]:
    """What a guest runs, and how many bytes that is."""
    if load == "TCP stream":
        size = max(1, round(STREAM * scale) // 65536) * 65536
        if system.is_tree:
            return f"iperf -c {HOST} -n {size}", size
        if system.is_linux:
            return f"iperf -c {HOST} -p {PORT} -w 256k -n {size}", size
        return f"time -p pvbench send {HOST} {PORT} {size}", size
    if load == "bonnie++":
        megabytes = bonnie_size(scale)
        size = megabytes << 20
        if system.is_linux:
            return f"bonnie++ -d /mnt -s {megabytes}:{PIECE} -r 16 -n 0 -f -u 0:0 -q -m x", size
        if system.is_tree:
            return (f"fileio bonnie {system.disk(1)} 0 {size // 128} {TREE_PIECE}"
                    f" {size // TREE_PIECE}", size)
        return f"fileio bonnie /mnt 1 {size} {PIECE} {size // PIECE}", size
    count = max(1, round(COUNT * scale))
    way = "rndwr" if "write" in load else "rndrd"
    return f"fileio {way} {system.disk(0)} 0 {DISK // 128} {BLOCK} {count}", count * BLOCK


def bonnie_rates(said: str) -> list[float]:
    """Millions of bytes a second, as bonnie++ has them."""
    words = next((line.split(",") for line in said.splitlines() if line.count(",") > 40), [])
    try:
        return [int(words[column]) * 1024 / 1e6 for column in COLUMNS]
    except (IndexError, ValueError):
        raise BenchError(f"{TITLE}: bonnie++ does not say how fast it was, which takes at least"
                         f" half a second: --scale of more\n{said}") from None


def rates_of(system: System, load: str, size: int, said: str) -> list[float]:
    """What a guest did, in millions of bytes or bits a second by its own clock."""
    if load == "bonnie++":
        if system.is_linux:
            return bonnie_rates(said)
        return [size / max(1, int(word)) for word in said.split()[-len(LOADS[load]):]]
    found = re.search(r"0\.0000-([0-9.]+) sec|^real +([0-9.]+)", said, re.M)
    seconds = float(found[1] or found[2]) if found else int(said.split()[-1]) / 1e6
    return [size * (8 if load == "TCP stream" else 1) / 1e6 / max(seconds, 0.01)]


@dataclasses.dataclass(frozen=True)
class Did:
    """What a guest did: a rate for each figure, and QEMU's CPU time."""

    rates: list[float]
    cpu: float


def together(system: System, labs: list[netlab.Lab], load: str, scale: float) -> list[Did]:
    """What each guest did, all at once."""
    words, size = command(system, load, scale)
    servers = []
    for lab in labs if load == "TCP stream" else ():
        peer = lab.cards[0][0]
        servers.append(peer.start(f"{NETBENCH} sink {PORT} 1"))
        netlab.wait_for("port", lambda peer=peer: peer.run(f"ss -Hltn sport = {PORT}"))
    before = [cpu_seconds(lab) for lab in labs]
    for lab in labs:
        start(lab, words)
    rates = [rates_of(system, load, size, finish(lab, words)) for lab in labs]
    for server in servers:
        if server.wait() != 0:
            raise netlab.LabFailure(f"netbench sink: {server.communicate()[0]}")
    return [Did(one, cpu_seconds(lab) - spent)
            for one, lab, spent in zip(rates, labs, before, strict=True)]


def files(system: System, lab: netlab.Lab) -> None:
    """Where bonnie++, or what stands for it, has its file."""
    disk = system.disk(1)
    if system.is_linux:
        lab.guest(f"mkdir -p /mnt; mount -t ext4 {disk} /mnt")
    elif not system.is_tree:
        lab.guest(f"newfs -U {disk} >/dev/null; mount {disk} /mnt; fileio prepare /mnt 1 0")


def guests_of(system: System, memory: int, scale: float,
              stack: contextlib.ExitStack) -> list[netlab.Lab]:
    """As many as there are at most, each with two disks and a cable."""
    labs = []
    for number in range(NUMBERS[-1]):
        peer = netlab.Peer(f"many{number}")
        disks = [blank(f"many-{system.name}-{number}-{disk}", size)
                 for disk, size in enumerate((DISK, (bonnie_size(scale) << 20) * 5 // 4))]
        if system.is_linux:
            subprocess.run(["mkfs.ext4", "-q", disks[1]], check=True)
        lab = stack.enter_context(booted(system, [
            "--mem", str(memory), *(word for path in disks
                                    for word in ("--disk", f"{path},cache=unsafe{MODERN}"))],
            [(peer, MODERN)]))
        peer.run(f"ip addr add {HOST}/24 dev tap0")
        lab.guest(system.address(0, GUEST))
        peer.run(f"ping -c 1 -W 30 {GUEST}")
        files(system, lab)
        labs.append(lab)
    return labs


Done = dict[int, list[list[Did]]]  # by number of guests, each round's


def aggregate(rates: list[float]) -> float:
    """What all did together until the slowest had ended."""
    return len(rates) * min(rates)


Figure = Callable[[Done, int], float]  # of a round


def rate(column: int) -> Callable[[Did], float]:
    """One of the rates."""
    return lambda one: one.rates[column]


def together_of(column: int, number: int) -> Figure:
    """What so many did together."""
    return lambda done, turn: aggregate(list(map(rate(column), done[number][turn])))


def to_one(column: int) -> Figure:
    """What all did together, to what one did alone."""
    most, alone = together_of(column, NUMBERS[-1]), together_of(column, 1)
    return lambda done, turn: most(done, turn) / alone(done, turn)


def evenness(value: Callable[[Did], float]) -> Figure:
    """The least to the greatest of all."""
    def figure(done: Done, turn: int) -> float:
        values = [value(one) for one in done[NUMBERS[-1]][turn]]
        return min(values) / max(values)
    return figure


def figures_of(load: str) -> list[tuple[str, str, Figure, float | None]]:
    """The lines of a load: name, unit, figure and what it has to be at least."""
    most = NUMBERS[-1]
    found: list[tuple[str, str, Figure, float | None]] = []
    for column, kind in enumerate(LOADS[load]):
        found += [(f"{kind}, {number} together", unit(kind), together_of(column, number), None)
                  for number in NUMBERS]
        found += [(f"{kind}, {most} together to one", "ratio", to_one(column), 0.9),
                  (f"{kind}, slowest to fastest of {most}", "ratio",
                   evenness(rate(column)), 0.8)]
    return [*found, (f"{load}, least to most CPU time of {most}", "ratio",
                     evenness(lambda one: one.cpu), 0.8)]


def lines(load: str, ours: Done, other: Done, *, beside_linux: bool) -> list[Line]:
    """The lines of a load."""
    found = []
    for name, kind_unit, figure, bound in figures_of(load):
        mine, theirs = (Figures.of([figure(done, turn) for turn in range(len(done[1]))])
                        for done in (ours, other))
        goal = Goal(bound, "ours", at_least=True) if beside_linux and bound is not None else None
        found.append(Line(f"{TITLE}: {name}", kind_unit, mine, theirs,
                          of_pairs_interval(mine, theirs), goal))
    return found


def rounds_of(systems: Sequence[System], labs: dict[System, list[netlab.Lab]],
              load: str, number: int, scale: float, turn: int) -> dict[System, list[Did]]:
    """A round of so many guests, of each system in turn."""
    first = turn % len(systems)
    return {system: together(system, labs[system][:number], load, scale)
            for system in (*systems[first:], *systems[:first])}


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure; of a load all numbers of guests."""
    loads = list(dict.fromkeys(load.kind for load in rows(scale)
                               if report.chosen(f"{TITLE}: {load.name}")))
    memory = TREE_MEMORY if systems[0].is_tree else MEMORY
    with contextlib.ExitStack() as stack:
        labs = {system: guests_of(system, memory, scale, stack) for system in systems}
        for load in loads:
            if report.has(f"{TITLE}: {Load(load, NUMBERS[0]).name}"):
                continue
            if load != "bonnie++":
                # The first run is to get going: TCG translates what it has not executed yet.
                for system, guests in labs.items():
                    together(system, guests, load, scale / 4)
            done: dict[System, Done] = {system: {} for system in labs}
            for number in NUMBERS:
                for turn in range(rounds):
                    report.progress.step(f"{TITLE}: {load}, {number}")
                    for system, found in rounds_of(systems, labs, load, number, scale,
                                                   turn).items():
                        done[system].setdefault(number, []).append(found)
            ours, *others = systems
            pairs = [(beside(report, TITLE, ours, other), line) for other in others
                     for line in lines(load, done[ours], done[other],
                                       beside_linux=other is DEBIAN)]
            report.keep(*pairs)
            for table, line in pairs:
                report.show(table, line)
