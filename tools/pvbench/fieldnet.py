# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A network: five TCP streams with windows of 256 KB, each way, and beside e1000.

As it was published: `iperf -w256k -P5`, both ways, a virtio card beside e1000.  Here a stream is
sent by iperf (Linux, and the tree kernel's own) or pvbench (FreeBSD) and taken by the same or by
netbench (Linux, and this machine at the other end of the cable), in writes and reads of 128 KB; the
windows are set by sysctl(8) at both ends as well, but for the tree kernel's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from pvbench.build import NETBENCH
from pvbench.fieldguests import MODERN, Row, System, booted, measure, rows_of
from pvbench.figures import Figures, of_pairs_interval
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import CPU, Goal, Line

TITLE = "network"
STREAMS, PORT, PORTS, WINDOW = 5, "5001", "500$((n + 1))", 256 << 10
TOTAL = 4 << 30  # bytes of all streams, at scale 1
SLOW = 20  # e1000 gets a part of it
GUEST, HOST = "10.{}.0.254", "10.{}.0.1"
LINUX_WINDOW = " ".join(f"net.ipv4.tcp_{way}mem='{WINDOW} {WINDOW} {WINDOW}'" for way in "rw")
FREEBSD_WINDOW = " ".join((f"net.inet.tcp.sendspace={WINDOW}", f"net.inet.tcp.recvspace={WINDOW}",
                           "net.inet.tcp.sendbuf_auto=0", "net.inet.tcp.recvbuf_auto=0"))


def all_of(words: str, port: str) -> str:
    """Run a command for each stream, on its port, and wait; the status is the last one's."""
    return (f"for n in {' '.join(map(str, range(STREAMS)))}; do port={port}; {words} & done; wait")


def inbound(system: System, lab: netlab.Lab, peer: netlab.Peer, guest: str, each: int) -> float:
    """Seconds of streams to the guest."""
    if system.is_tree:
        lab.guest(f"iperf -s -n {STREAMS * each} &")
    else:
        program = "netbench read" if system.is_linux else "pvbench take"
        lab.guest(f"({all_of(f'{program} $port {each}', PORTS)}) &")
    begin = time.monotonic()
    peer.run(all_of(f"{NETBENCH} send {guest} $port {each}", PORT if system.is_tree else PORTS))
    return time.monotonic() - begin


def outbound(system: System, lab: netlab.Lab, peer: netlab.Peer, host: str, each: int) -> float:
    """Seconds of streams from the guest."""
    if system.is_tree or system.is_linux:
        window = f" -w {WINDOW >> 10}k" if system.is_linux else ""
        words = f"iperf -c {host}{window} -P {STREAMS} -n {each}"
    else:
        words = all_of(f"pvbench send {host} $port {each}", PORT)
    with peer.start(f"{NETBENCH} sink {PORT} {STREAMS}") as other:
        netlab.wait_for("port", lambda: peer.run(f"ss -Hltn sport = {PORT}"))
        begin = time.monotonic()
        lab.guest(words)
        if other.wait() != 0:
            raise netlab.LabFailure(f"netbench sink: {other.communicate()[0]}")
    return time.monotonic() - begin


def streams(name: str, card: int, size: int) -> Row:
    """A row."""
    each = size // STREAMS // 65536 * 65536

    def once(system: System, lab: netlab.Lab) -> float:
        way, far = (inbound, GUEST) if name == "inbound" else (outbound, HOST)
        seconds = way(system, lab, lab.cards[card][0], far.format(card + 1), each)
        return STREAMS * each * 8 / 1e6 / seconds
    return Row(f"{name}, {'e1000' if card else 'virtio'}", "Mbit/s",
               None if card else Goal(1, at_least=True), once, card, tree=card == 0)


def rows(scale: float) -> list[Row]:
    """All of them."""
    return [streams(name, card, round(TOTAL * scale) // (SLOW if card else 1))
            for card in range(2) for name in ("outbound", "inbound")]


def symmetry(outbound: Line, inbound: Line) -> Line:
    """Inbound to outbound, of the same rounds: 1 if both are alike, below if inbound is behind."""
    def figures(way_out: Figures | None, way_in: Figures | None) -> Figures:
        assert way_out is not None
        assert way_in is not None
        pairs = zip(way_out.values, way_in.values, strict=True)
        # Of time the one that takes longer is behind.
        return Figures.of([b / a if inbound.unit == "Mbit/s" else a / b for a, b in pairs])
    mine = figures(outbound.ours, inbound.ours)
    theirs = figures(outbound.other, inbound.other)
    name = inbound.operation.replace("inbound, virtio", "inbound to outbound, virtio")
    return Line(name, "ratio", mine, theirs, of_pairs_interval(mine, theirs),
                Goal(0.9, "ours", at_least=True) if inbound.goal is not None else None)


def compare_ways(report: Report) -> None:
    """Whether both ways are alike, where both were measured: within 10 %."""
    for table in (table for table in report.tables if table.title.startswith(TITLE)):
        lines = {line.operation: line for line in table.lines}
        for cpu in ("", CPU):
            way_out, way_in = (lines.get(f"{TITLE}: {way}bound, virtio{cpu}")
                               for way in ("out", "in"))
            if way_out is None or way_in is None:
                continue
            found = symmetry(way_out, way_in)
            if found.operation not in lines:
                report.add(table, found)


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure."""
    with contextlib.ExitStack() as stack:
        guests = []
        for system in systems:
            peers = [netlab.Peer(f"{TITLE}{system.name[:2]}{number}")
                     for number in range(len(system.cards))]
            cards = list(zip(peers, (MODERN, ",model=e1000"), strict=False))
            lab = stack.enter_context(booted(system, ["--mem", "512"], cards))
            for number, peer in enumerate(peers):
                peer.run(f"ip addr add {HOST.format(number + 1)}/24 dev tap{number};"
                         f" sysctl -qw {LINUX_WINDOW}")
                guest = GUEST.format(number + 1)
                lab.guest(system.address(number, guest))
                peer.run(f"ping -c 1 -W 30 {guest}")
            if not system.is_tree:
                lab.guest(f"sysctl -w {LINUX_WINDOW}" if system.is_linux
                          else f"sysctl {FREEBSD_WINDOW}")
            guests.append((system, lab))
        measure(report, TITLE, rounds, rows_of(rows(scale), systems), guests)
    compare_ways(report)
