# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""vtnet beside em(4) in FreeBSD: `tools/bench freebsd --em', see freebsd.py."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from pvbench import counting
from pvbench.build import NETBENCH
from pvbench.figures import Figures, of_pairs
from pvbench.labs import QuietLab, netlab
from pvbench.netspeed import Speeds
from pvbench.report import Report
from pvbench.table import Goal, Line


@dataclasses.dataclass(frozen=True)
class Card:
    """An interface of the guest, the host at its other end, and how much is worth a measurement."""

    name: str
    peer: netlab.Peer
    guest: str
    host: str
    bytes: int


def sent(lab: netlab.Lab, card: Card) -> None:
    """A stream from the guest."""
    with card.peer.start(f"{NETBENCH} take 5001 {card.bytes}") as other:
        netlab.wait_for("port", lambda: card.peer.run("ss -Hltn sport = 5001"))
        lab.guest(f"pvbench send {card.host} 5001 {card.bytes}")
        if other.wait() != 0:
            raise netlab.LabFailure("netbench take failed")


def received(lab: netlab.Lab, card: Card) -> None:
    """A stream to the guest."""
    with card.peer.start(f"{NETBENCH} send {card.guest} 5001 {card.bytes}") as other:
        lab.guest(f"pvbench take 5001 {card.bytes}")
        if other.wait() != 0:
            raise netlab.LabFailure("netbench send failed")


@dataclasses.dataclass(frozen=True)
class Row:
    """A direction, and how many times as fast it is to be."""

    name: str
    work: Callable[[netlab.Lab, Card], None]
    bound: float


ROWS = [Row("TCP stream, sent", sent, 5), Row("TCP stream, received", received, 3)]


def timed(row: Row, lab: netlab.Lab, card: Card) -> tuple[float, int]:
    """Mbit/s, and bytes."""
    start = time.monotonic()
    row.work(lab, card)
    return card.bytes * 8 / 1e6 / (time.monotonic() - start), card.bytes


def measure(rows: list[Row], rounds: int, lines: list[str],
            report: Report) -> dict[str, tuple[Speeds, Speeds]]:
    """One guest with both cards, in turn; a first round is to get going."""
    peers = [netlab.Peer("vtnet"), netlab.Peer("em")]
    cards = [Card("vtnet0", peers[0], "10.1.0.254", "10.1.0.1", 1 << 30),
             Card("em0", peers[1], "10.2.0.254", "10.2.0.1", 40 << 20)]
    speeds = {row.name: (Speeds(), Speeds()) for row in rows}
    with QuietLab([(peers[0], ""), (peers[1], ",model=e1000")],
                  ["--os", "freebsd", "--fresh", "--mem", "768",
                   "--qemu=-cpu", f"--qemu={counting.PROCESSOR}"]) as lab:
        for line in lines:
            lab.guest(line)
        for number, card in enumerate(cards):
            lab.guest(f"ifconfig {card.name} inet {card.guest}/24 up")
            card.peer.run(f"ip addr add {card.host}/24 dev tap{number}")
            card.peer.run(f"ping -c 1 -W 60 {card.guest}")
        for _ in range(rounds + 1):
            for row in rows:
                report.progress.step(row.name)
                for card, side in zip(cards, speeds[row.name], strict=True):
                    def once(row: Row = row, card: Card = card) -> tuple[float, int]:
                        return timed(row, lab, card)
                    side.add(once, lab, None)
        lab.end()
    return speeds


def run(rounds: int, lines: list[str], report: Report) -> None:
    """The table; lines load the drivers."""
    rows = [row for row in ROWS if report.chosen(row.name)]
    report.progress.total = (rounds + 1) * len(rows)
    table = report.table("In FreeBSD, vtnet beside em(4), QEMU's e1000", "em")
    for name, (vtnet, em) in measure(rows, rounds, lines, report).items():
        bound = next(row.bound for row in rows if row.name == name)
        # Other work on the machine takes from the clock, and not from the CPU time.
        for unit, mine, theirs, goal in (
                ("Mbit a second of QEMU's CPU time", vtnet.a_cpu, em.a_cpu,
                 Goal(bound, at_least=True)),
                ("Mbit/s", vtnet.mbits, em.mbits, None)):
            ours, other = Figures.of(mine[1:]), Figures.of(theirs[1:])
            report.add(table, Line(name, unit, ours, other, of_pairs(ours, other), goal))
