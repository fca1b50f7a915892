# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A network: five TCP streams with windows of 256 KB, each way, and beside e1000.

As it was published: `iperf -w256k -P5`, both ways, a virtio card beside e1000.  Here a stream is
sent and taken by pvbench (FreeBSD) or netbench (Linux, and this machine at the other end of the
cable), in writes and reads of 128 KB; the windows are set by sysctl(8) at both ends.
"""

from __future__ import annotations

import contextlib
import time

from pvbench.build import NETBENCH
from pvbench.fieldguests import MODERN, Row, System, booted, measure, systems
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import Goal

TITLE = "network"
STREAMS, PORT, WINDOW = 5, 5001, 256 << 10
TOTAL = 4 << 30  # bytes of all streams, at scale 1
SLOW = 20  # e1000 gets a part of it
GUEST, HOST = "10.{}.0.254", "10.{}.0.1"
LINUX_WINDOW = " ".join(f"net.ipv4.tcp_{way}mem='{WINDOW} {WINDOW} {WINDOW}'" for way in "rw")
FREEBSD_WINDOW = " ".join((f"net.inet.tcp.sendspace={WINDOW}", f"net.inet.tcp.recvspace={WINDOW}",
                           "net.inet.tcp.sendbuf_auto=0", "net.inet.tcp.recvbuf_auto=0"))


def all_of(words: str) -> str:
    """Run a command for each stream's port, and wait for all; the status is the last one's."""
    return (f"for port in {' '.join(str(PORT + n) for n in range(STREAMS))}; do {words} & done;"
            " wait")


def streams(inbound: bool, card: int, size: int) -> Row:
    """A row."""
    each = size // STREAMS // 65536 * 65536

    def once(system: System, lab: netlab.Lab) -> float:
        peer = lab.cards[card][0]
        program = "netbench" if system.is_linux else "pvbench"
        guest, host = GUEST.format(card + 1), HOST.format(card + 1)
        # A guest's program is given the bytes.
        taking = all_of(f"{{}} $port {each}")
        sending = all_of(f"{{}} send {{}} $port {each}")
        if inbound:
            words = f"{program} {'read' if system.is_linux else 'take'}"
            lab.guest(f"({taking.format(words)}) &")
            start = time.monotonic()
            peer.run(sending.format(NETBENCH, guest))
        else:
            with peer.start(f"sh -c '{taking.format(f'{NETBENCH} take')}'") as other:
                netlab.wait_for("ports", lambda: peer.run("ss -Hltn").count(":50") == STREAMS)
                start = time.monotonic()
                lab.guest(sending.format(program, host))
                if other.wait() != 0:
                    raise netlab.LabFailure(f"netbench take: {other.communicate()[0]}")
        seconds = time.monotonic() - start
        return STREAMS * each * 8 / 1e6 / seconds
    name = f"{'inbound' if inbound else 'outbound'}, {'e1000' if card else 'virtio'}"
    return Row(name, "Mbit/s", None if card else Goal(1, at_least=True), once,
               card)


def rows(scale: float) -> list[Row]:
    """All of them."""
    return [streams(inbound, card, round(TOTAL * scale) // (SLOW if card else 1))
            for card in range(2) for inbound in (False, True)]


def run(report: Report, rounds: int, scale: float) -> None:
    """Measure."""
    with contextlib.ExitStack() as stack:
        guests = []
        for system in systems():
            peers = [netlab.Peer(f"{TITLE}{system.name[:2]}{number}")
                     for number in range(len(system.cards))]
            cards = list(zip(peers, (MODERN, ",model=e1000"), strict=False))
            lab = stack.enter_context(booted(system, ["--mem", "512"], cards))
            for number, (peer, card) in enumerate(zip(peers, system.cards, strict=True), 1):
                peer.run(f"ip addr add {HOST.format(number)}/24 dev tap{number - 1};"
                         f" sysctl -qw {LINUX_WINDOW}")
                lab.guest(f"ifconfig {card} {GUEST.format(number)}/24 up" if not system.is_linux
                          else f"ip addr add {GUEST.format(number)}/24 dev {card};"
                          f" ip link set {card} up")
                peer.run(f"ping -c 1 -W 30 {GUEST.format(number)}")
            lab.guest(f"sysctl {FREEBSD_WINDOW}" if not system.is_linux
                      else f"sysctl -w {LINUX_WINDOW}")
            guests.append((system, lab))
        measure(report, TITLE, rounds, rows(scale), guests)
