# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Many guests at once: what all of them do together, and how evenly.

As it was published: bonnie++ in one guest and in eight, iperf with one to eight.  Here each guest
writes and reads a disk of its own (fileio, 16 KB, at random), or sends a TCP stream, all of them at
the same time.  "together" is the sum of what each does, "slowest to fastest" the ratio of two of
them.  Ours and the others' are booted in turn.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Sequence
from typing import ClassVar

from pvbench.build import NETBENCH
from pvbench.fieldguests import (
    DEBIAN,
    MODERN,
    System,
    beside,
    blank,
    booted,
    finish,
    start,
)
from pvbench.figures import Figures, of_pairs_interval
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import Goal, Line

TITLE = "many guests"
NUMBERS = (1, 2, 4, 8)
MEMORY, DISK, BLOCK = 256, 64 << 20, 16384
COUNT, STREAM = 8000, 1 << 30
GUEST, HOST = "10.1.0.254", "10.1.0.1"
KINDS = {"random write": "MB/s", "random read": "MB/s", "TCP stream": "Mbit/s"}


@dataclasses.dataclass(frozen=True)
class Load:
    """What so many guests do."""

    kind: str
    number: int
    tree: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"{self.kind}, {self.number} guest{'s' if self.number > 1 else ''}"


def rows(scale: float) -> list[Load]:
    """All of them."""
    del scale
    return [Load(kind, number) for kind in KINDS for number in NUMBERS]


def command(system: System, kind: str, scale: float) -> tuple[str, int]:
    """What a guest runs, and how many bytes that is."""
    if kind != "TCP stream":
        count = round(COUNT * scale)
        way = "rndwr" if "write" in kind else "rndrd"
        return f"fileio {way} {system.disk(0)} 0 {DISK // 128} {BLOCK} {count}", count * BLOCK
    size = round(STREAM * scale) // 65536 * 65536
    if system.is_tree:
        return f"iperf -c {HOST} -n {size}", size
    program = "netbench" if system.is_linux else "pvbench"
    return f"time -p {program} send {HOST} 5001 {size}", size


def seconds_of(said: str) -> float:
    """By the guest's clock: what iperf, time(1) or fileio has printed."""
    found = re.search(r"0\.0000-([0-9.]+) sec|^real +([0-9.]+)", said, re.M)
    seconds = float(found[1] or found[2]) if found else int(said.split()[-1]) / 1e6
    return max(seconds, 0.01)


def together(system: System, labs: list[netlab.Lab], kind: str, scale: float) -> list[float]:
    """What each guest did, in millions of bytes or bits a second of its own time."""
    words, size = command(system, kind, scale)
    bits = 8 if kind == "TCP stream" else 1
    servers = []
    for lab in labs if kind == "TCP stream" else ():
        peer = lab.cards[0][0]
        servers.append(peer.start(f"{NETBENCH} take 5001 {size}"))
        netlab.wait_for("port", lambda peer=peer: peer.run("ss -Hltn sport = 5001"))
    for lab in labs:
        start(lab, words)
    rates = [size * bits / 1e6 / seconds_of(finish(lab, words)) for lab in labs]
    for server in servers:
        if server.wait() != 0:
            raise netlab.LabFailure(f"netbench take: {server.communicate()[0]}")
    return rates


def guests_of(system: System, stack: contextlib.ExitStack) -> list[netlab.Lab]:
    """As many as there are at most, each with a disk and a cable."""
    labs = []
    for number in range(NUMBERS[-1]):
        peer = netlab.Peer(f"many{number}")
        path = blank(f"many-{system.name}-{number}", DISK)
        lab = stack.enter_context(booted(system, [
            "--mem", str(MEMORY), "--disk", f"{path},cache=unsafe{MODERN}"], [(peer, MODERN)]))
        peer.run(f"ip addr add {HOST}/24 dev tap0")
        lab.guest(system.address(0, GUEST))
        peer.run(f"ping -c 1 -W 30 {GUEST}")
        labs.append(lab)
    return labs


Rates = dict[tuple[str, int], list[list[float]]]  # by kind and number of guests, each round's


def aggregate(rates: list[float]) -> float:
    """What all did together until the slowest had ended."""
    return len(rates) * min(rates)


def lines(kind: str, ours: Rates, other: Rates, *, beside_linux: bool) -> list[Line]:
    """The lines of a kind."""
    found = []
    for number in NUMBERS:
        mine, theirs = (Figures.of([aggregate(one) for one in rates[kind, number]])
                        for rates in (ours, other))
        found.append(Line(f"{TITLE}: {kind}, {number} together", KINDS[kind], mine, theirs,
                          of_pairs_interval(mine, theirs)))
    most = NUMBERS[-1]
    for name, bound, figure in (
            (f"{most} together to one", 0.9, lambda rates, n: (
                aggregate(rates[kind, most][n]) / aggregate(rates[kind, 1][n]))),
            (f"slowest to fastest of {most}", 0.8, lambda rates, n: (
                min(rates[kind, most][n]) / max(rates[kind, most][n])))):
        mine, theirs = (Figures.of([figure(rates, n) for n in range(len(rates[kind, most]))])
                        for rates in (ours, other))
        found.append(Line(f"{TITLE}: {kind}, {name}", "ratio", mine, theirs,
                          of_pairs_interval(mine, theirs),
                          Goal(bound, "ours", at_least=True) if beside_linux else None))
    return found


def rounds_of(systems: Sequence[System], labs: dict[System, list[netlab.Lab]],
              kind: str, number: int, scale: float, turn: int) -> dict[System, list[float]]:
    """A round of so many guests, of each system in turn."""
    first = turn % len(systems)
    return {system: together(system, labs[system][:number], kind, scale)
            for system in (*systems[first:], *systems[:first])}


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure; of a kind all numbers of guests."""
    kinds = list(dict.fromkeys(load.kind for load in rows(scale)
                               if report.chosen(f"{TITLE}: {load.name}")))
    with contextlib.ExitStack() as stack:
        labs = {system: guests_of(system, stack) for system in systems}
        for kind in kinds:
            if report.has(f"{TITLE}: {kind}, 1 together"):
                continue
            rates: dict[System, Rates] = {system: {} for system in labs}
            for number in NUMBERS:
                for turn in range(rounds):
                    report.progress.step(f"{TITLE}: {kind}, {number}")
                    for system, found in rounds_of(systems, labs, kind, number, scale,
                                                   turn).items():
                        rates[system].setdefault((kind, number), []).append(found)
            ours, *others = systems
            pairs = [(beside(report, TITLE, ours, other), line) for other in others
                     for line in lines(kind, rates[ours], rates[other],
                                       beside_linux=other is DEBIAN)]
            report.keep(*pairs)
            for table, line in pairs:
                report.show(table, line)
