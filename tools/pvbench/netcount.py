# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""vtnet's instructions beside Linux's driver: see net.py."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import statistics
import time
from collections.abc import Callable

from pvbench import build, counting
from pvbench.build import NETBENCH
from pvbench.counting import KICKS, UNITS, Cost, Events, of_one
from pvbench.errors import BenchError
from pvbench.figures import Figures, with_interval
from pvbench.labs import LinuxLab, QuietLab, netlab
from pvbench.report import Report
from pvbench.table import Goal, Line
from xen import image

LINUX = "linuxnet"
BURSTS, SHORT, LONG = 40, 64, 192
FEW, MANY = 2000, 6000
SEGMENT = 65536


def build_linux() -> None:
    """A Linux guest with netbench."""
    build.linux(LINUX, ["failover", "net_failover", "virtio_net", "pktgen"],
                [("bin/netbench", image.PROGRAM, NETBENCH.read_bytes())])


class Side:
    """A guest whose instructions are counted."""

    name = ""
    kernel = ""
    options: tuple[str, ...] = ()
    lab_type: type[netlab.Lab] = QuietLab

    def __init__(self, stack: contextlib.ExitStack, number: int) -> None:
        self.live = pathlib.Path(f"live{number}")
        self.events = Events(pathlib.Path(f"trace{number}"), KICKS)
        self.profile = pathlib.Path(f"profile{number}")
        self.peer = netlab.Peer(f"peer{number}")
        self.lab = stack.enter_context(self.lab_type([(self.peer, "")], [
            "--kernel", self.kernel, *counting.counting(self.live, self.profile),
            *self.events.options(), *self.options]))
        self.peer.run("ip addr add 10.1.0.1/24 dev tap0; ip link set tap0 txqueuelen 1000")
        self.setup()
        self.generator = self.find_generator()
        self.peer.run("ping -c 1 -W 30 10.1.0.254")

    def find_generator(self) -> range:
        """Where the instructions of the guest's pktgen are."""
        raise NotImplementedError

    def setup(self) -> None:
        """Give the guest its address."""

    def bursts(self, size: int, count: int) -> None:
        """Send so many packets, BURSTS times, the ring being empty before each."""
        raise NotImplementedError

    def stream_out(self, size: int) -> None:
        """Send so many bytes by TCP."""
        raise NotImplementedError

    def stream_in(self, size: int) -> None:
        """Take so many bytes by TCP."""
        raise NotImplementedError

    def interrupts(self) -> int:
        """How many there were of the card."""
        raise NotImplementedError

    def packets(self) -> tuple[int, int]:
        """Received and sent."""
        raise NotImplementedError

    def generated(self) -> int:
        """How many instructions of pktgen were executed."""
        return sum(count for address, count in counting.by_address(self.profile).items()
                   if address in self.generator)

    def quiet(self) -> Cost:
        """What was counted up to now, when nothing is under way any more."""
        time.sleep(0.4)
        instructions = counting.executed(self.live) - self.generated()
        return Cost(instructions, self.events.total(*KICKS), 0, 0)

    def counted(self, work: Callable[[], float | None]) -> Cost:
        """What it took; work may return how much it did, otherwise packets received are it."""
        interrupts, packets = self.interrupts(), self.packets()[0]
        before = self.quiet()
        done = work()
        result = self.quiet().minus(before)
        result.interrupts = self.interrupts() - interrupts
        result.done = self.packets()[0] - packets if done is None else done
        return result


class Ours(Side):
    """Our kernel."""

    name = "ours"
    kernel = build.OURS

    def setup(self) -> None:
        """As Side's."""
        self.lab.guest("kldload if_vtnet; ifconfig vtnet0 inet 10.1.0.254/24 up")
        # This loads them, before anything is counted.
        self.lab.guest("help pktgen; help iperf")

    def find_generator(self) -> range:
        """As Side's."""
        found = re.search(r"0x(\w+) +(\w+) pktgen\.ko", self.lab.guest("kldstat -n pktgen"))
        if found is None:
            raise BenchError("the guest has no pktgen.ko, whose instructions are left out")
        start, size = (int(word, 16) for word in found.groups())
        return range(start, start + size)

    def bursts(self, size: int, count: int) -> None:
        """As Side's."""
        self.lab.guest(f"repeat {BURSTS} 'pktgen -c {count} -s {size} vtnet0; sleep 0.05'")

    def stream_out(self, size: int) -> None:
        """As Side's."""
        self.lab.guest(f"iperf -c 10.1.0.1 -n {size}")

    def stream_in(self, size: int) -> None:
        """As Side's."""
        self.lab.guest(f"iperf -s -n {size}")

    def interrupts(self) -> int:
        """As Side's."""
        return self.lab.sysctl("dev.vtnet.0.rxq0.intrs") + \
            self.lab.sysctl("dev.vtnet.0.txq0.intrs")

    def packets(self) -> tuple[int, int]:
        """As Side's."""
        return (self.lab.sysctl("dev.vtnet.0.rxq0.packets"),
                self.lab.sysctl("dev.vtnet.0.txq0.packets"))


class Linux(Side):
    """Debian's."""

    name = "Linux"
    kernel = f"bench/{LINUX}"
    options = (*build.LINUX_CONSOLE, *build.LINUX_BARE, "--mem", "512")
    lab_type = LinuxLab

    def setup(self) -> None:
        """As Side's."""
        self.lab.guest("ip addr add 10.1.0.254/24 dev eth0; ip link set eth0 up;"
                       "echo 0 >/proc/sys/kernel/watchdog; echo add_device eth0 "
                       ">/proc/net/pktgen/kpktgend_0")
        for setting in ("clone_skb 0", "delay 0", "dst 10.1.0.1", "dst_mac ff:ff:ff:ff:ff:ff",
                        "src_min 10.1.0.254"):
            self.lab.guest(f"echo '{setting}' >/proc/net/pktgen/eth0")

    def find_generator(self) -> range:
        """As Side's."""
        words = self.lab.guest("grep '^pktgen ' /proc/modules").split()
        return range(int(words[5], 16), int(words[5], 16) + int(words[1]))

    def bursts(self, size: int, count: int) -> None:
        """As Side's: pktgen ends when its last packet is released.  Nothing is forked for it."""
        self.lab.guest(f"echo count {count} >/proc/net/pktgen/eth0;"
                       f"echo pkt_size {size} >/proc/net/pktgen/eth0;"
                       f"i=0; while [ $i -lt {BURSTS} ]; do "
                       "echo start >/proc/net/pktgen/pgctrl; i=$((i + 1)); done")

    def stream_out(self, size: int) -> None:
        """As Side's."""
        self.lab.guest(f"netbench send 10.1.0.1 5001 {size}")

    def stream_in(self, size: int) -> None:
        """As Side's."""
        self.lab.guest(f"netbench take 5001 {size}")

    def interrupts(self) -> int:
        """As Side's."""
        text = self.lab.guest("cat /proc/interrupts")
        return sum(int(count) for count in re.findall(r"^ *\d+: +(\d+).* virtio", text, re.M))

    def packets(self) -> tuple[int, int]:
        """As Side's."""
        words = self.lab.guest("cat /sys/class/net/eth0/statistics/rx_packets "
                               "/sys/class/net/eth0/statistics/tx_packets").split()
        return int(words[0]), int(words[1])


def send_packets(side: Side, size: int) -> Cost:
    """The cost of a packet sent."""
    def work(count: int) -> float:
        sent = side.packets()[1]
        side.bursts(size, count)
        sent = side.packets()[1] - sent
        if not BURSTS * count <= sent <= BURSTS * count + 10:
            raise BenchError(f"{side.name}: {sent} packets, not {BURSTS * count}")
        return BURSTS * count
    short = side.counted(lambda: work(SHORT))
    return side.counted(lambda: work(LONG)).minus(short).each()


def receive_packets(side: Side, size: int) -> Cost:
    """The cost of a packet received."""
    def work(count: int) -> None:
        side.peer.run(f"{NETBENCH} frames tap0 {size} {count}")
    work(FEW)
    short = side.counted(lambda: work(FEW))
    return side.counted(lambda: work(MANY)).minus(short).each()


def stream(side: Side, guest_sends: bool) -> Cost:
    """The cost of 64 KB."""
    def work(count: int) -> float:
        size = count * SEGMENT
        if guest_sends:
            with side.peer.start(f"{NETBENCH} take 5001 {size}") as other:
                netlab.wait_for("port", lambda: side.peer.run("ss -Hltn sport = 5001"))
                side.stream_out(size)
                good = other.wait() == 0
        else:
            with side.peer.start(f"{NETBENCH} send 10.1.0.254 5001 {size}") as other:
                side.stream_in(size)
                good = other.wait() == 0
        if not good:
            raise BenchError("netbench failed on the host")
        return count
    work(64)
    short = side.counted(lambda: work(128))
    return of_one(short, side.counted(lambda: work(640)))


@dataclasses.dataclass
class Row:
    """An operation."""

    name: str
    measure: Callable[[Side], Cost]
    units: tuple[str, ...] = ("instructions",)  # that have a line; others stand beside the first


ROWS = [Row("send 64 bytes", lambda side: send_packets(side, 60)),
        Row("send 1514 bytes", lambda side: send_packets(side, 1514)),
        Row("send 64 KB", lambda side: stream(side, True), UNITS),
        Row("receive 64 bytes", lambda side: receive_packets(side, 60)),
        Row("receive 1514 bytes", lambda side: receive_packets(side, 1514)),
        Row("receive 64 KB", lambda side: stream(side, False), UNITS)]


def chosen(report: Report) -> list[Row]:
    """The rows that are wanted."""
    return [row for row in ROWS if report.chosen(row.name)]


def steps(rounds: int, report: Report) -> int:
    """How many steps there are."""
    return len(chosen(report)) * rounds


def run(rounds: int, report: Report) -> None:
    """The table of instructions."""
    rows = chosen(report)
    if not rows:
        return
    table = report.table("vtnet's instructions beside Linux's driver", "Linux")
    with contextlib.ExitStack() as stack:
        sides = [Ours(stack, 0), Linux(stack, 1)]
        for row in rows:
            costs: list[list[Cost]] = [[], []]
            for number in range(rounds):
                report.progress.step(f"{row.name}, round {number + 1}")
                for cost, side in zip(costs, sides, strict=True):
                    cost.append(row.measure(side))
            besides: dict[str, tuple[float, float | None]] = {
                what: (statistics.median(getattr(one, what) for one in costs[0]),
                       statistics.median(getattr(one, what) for one in costs[1]))
                for what in UNITS if what not in row.units}
            for unit in row.units:
                ours, linux = (Figures.of([getattr(one, unit) for one in cost]) for cost in costs)
                report.add(table, Line(row.name, unit, ours, linux, with_interval(ours, linux),
                                       Goal(1), besides))
        for side in sides:
            side.lab.end()
