# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What a forwarded packet costs a guest with two cards, ours or Linux: see net.py."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import time

from pvbench import build, counting
from pvbench.build import NETBENCH
from pvbench.counting import INTERRUPTS, KICKS, UNITS, Cost, Events, of_one
from pvbench.figures import Figures, with_interval
from pvbench.labs import LinuxLab, QuietLab, netlab
from pvbench.report import Report
from pvbench.table import Goal, Line

LINUX = "linuxforward"
BURSTS, SHORT, LONG = 10, 64, 192
SETTLE = 0.4  # seconds
HOSTS, GUESTS = ("10.1.0.1", "10.2.0.1"), ("10.1.0.254", "10.2.0.254")


def build_linux() -> None:
    """A Linux guest with a bridge."""
    build.linux(LINUX, ["failover", "net_failover", "virtio_net", "llc", "stp", "bridge"], [])


@dataclasses.dataclass(frozen=True)
class Kind:
    """A guest, and its commands."""

    kernel: str
    options: tuple[str, ...]
    lab: type[netlab.Lab]
    begin: str
    bridge: tuple[str, ...]
    unbridge: tuple[str, ...]
    route: tuple[str, ...]
    address: str


KINDS = [
    Kind(build.OURS, (), QuietLab, "kldload if_vtnet; ifconfig vtnet0 up; ifconfig vtnet1 up",
         ("ifconfig bridge0 create addm vtnet0 addm vtnet1 up",), ("ifconfig bridge0 destroy",),
         ("sysctl net.inet.ip.forwarding=1",), "ifconfig vtnet{card} inet {address}/24 up"),
    Kind(f"bench/{LINUX}", (*build.LINUX_CONSOLE, *build.LINUX_BARE, "--mem", "512"), LinuxLab,
         "echo 0 >/proc/sys/kernel/watchdog; ip link set eth0 up; ip link set eth1 up",
         ("ip link add br0 type bridge", "ip link set eth0 master br0",
          "ip link set eth1 master br0", "ip link set br0 up"),
         ("ip link set br0 down", "ip link del br0"),
         ("echo 1 >/proc/sys/net/ipv4/ip_forward",), "ip addr add {address}/24 dev eth{card}"),
]


class Side:
    """A guest between two hosts."""

    def __init__(self, stack: contextlib.ExitStack, number: int, kind: Kind) -> None:
        self.kind = kind
        self.live = pathlib.Path(f"live-forward{number}")
        self.events = Events(pathlib.Path(f"trace-forward{number}"), KICKS + INTERRUPTS)
        self.peers = [netlab.Peer(f"{end}{number}") for end in "ab"]
        self.lab = stack.enter_context(kind.lab([(peer, "") for peer in self.peers], [
            "--kernel", kind.kernel, *counting.counting(self.live), *self.events.options(),
            *kind.options]))
        self.monitor = self.lab.vm.monitor()
        self.lab.guest(kind.begin)
        for card, (peer, address) in enumerate(zip(self.peers, HOSTS, strict=True)):
            peer.run(f"ip addr add {address}/24 dev tap{card};"
                     f"ip link set tap{card} txqueuelen 1000")

    def passed(self) -> int:
        """Packets that have come to the other host."""
        return self.peers[1].received("tap1")[0]

    def spent(self) -> Cost:
        """What was counted up to now, when nothing is under way any more."""
        time.sleep(SETTLE)
        return Cost(counting.executed(self.live), self.events.total(*KICKS),
                    self.events.total(*INTERRUPTS), self.passed())

    def did(self, words: str, burst: int) -> Cost:
        """What bursts of so many take.

        The guest is stopped until all packets of a burst are queued, so that the load of this
        machine does not determine how many are batched.
        """
        before = self.spent()
        for number in range(1, BURSTS + 1):
            self.monitor.execute("stop")
            self.peers[0].run(f"{NETBENCH} {words} {burst} 1")
            self.monitor.execute("cont")
            target = before.done + number * burst
            netlab.wait_for(words, lambda target=target: self.passed() >= target)
        return self.spent().minus(before)

    def cost(self, words: str) -> Cost:
        """What one costs."""
        short = self.did(words, SHORT)
        return of_one(short, self.did(words, LONG))

    def begin(self, routed: bool) -> None:
        """Be a bridge or a router."""
        for line in self.kind.route if routed else self.kind.bridge:
            self.lab.guest(line)
        if routed:
            for card, (peer, address) in enumerate(zip(self.peers, GUESTS, strict=True)):
                self.lab.guest(self.kind.address.format(card=card, address=address))
                peer.run(f"ip route add default via {address}; ping -c 1 -W 30 {address}")

    def end(self, routed: bool) -> None:
        """Be none."""
        for line in () if routed else self.kind.unbridge:
            self.lab.guest(line)


# netbench's words, but for the bursts.
ROWS = {"bridge 60 bytes": "frames tap0 60", "route 64 bytes": f"udp {HOSTS[1]} 9 64"}


def chosen(report: Report) -> list[str]:
    """The rows that are wanted."""
    return [name for name in ROWS if report.chosen(name)]


def steps(rounds: int, report: Report) -> int:
    """How many steps there are."""
    return len(chosen(report)) * rounds


def run(rounds: int, report: Report) -> None:
    """The table."""
    names = chosen(report)
    if not names:
        return
    with contextlib.ExitStack() as stack:
        sides = [Side(stack, number, kind) for number, kind in enumerate(KINDS)]
        for name in names:
            routed = name.startswith("route")
            for side in sides:
                side.begin(routed)
                side.did(ROWS[name], SHORT)  # to get going
            costs: list[list[Cost]] = [[], []]
            for _ in range(rounds):
                report.progress.step(name)
                for cost, side in zip(costs, sides, strict=True):
                    cost.append(side.cost(ROWS[name]))
            for side in sides:
                side.end(routed)
            for unit in UNITS:
                ours, linux = (Figures.of([getattr(one, unit) for one in cost]) for cost in costs)
                report.add(report.table("A forwarded packet, beside Linux", "Linux"), Line(
                    name, unit, ours, linux, with_interval(ours, linux), Goal(1)))
        for side in sides:
            side.lab.end()
