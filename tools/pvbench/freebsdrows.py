# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest of FreeBSD with one kind of drivers, and what it is measured at: see freebsd.py."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import pathlib
import time
from collections.abc import Callable

from fbsd.sets import need
from fbsd.symbols import Symbols
from pvbench import counting
from pvbench.build import NETBENCH
from pvbench.labs import QuietLab, netlab

BURSTS, FEW, MANY = 40, 16, 112
SEGMENT = 65536

# Where the guest and its hosts are; no host has the last address, to which packets go as well.
GUEST, HOST, OTHER_GUEST, OTHER, NOBODY = (
    "10.1.0.254", "10.1.0.1", "10.2.0.254", "10.2.0.1", "10.1.0.9")

# What a guest does as time goes by, whatever is measured, and more of it on a busy machine: pf(4)
# looks through its tables, random(4) mixes what it was given, the idle thread spins.
SMALL = ("net.pf.states_hashsize", "net.pf.source_nodes_hashsize")
CALM = ("sysctl kern.sched.idlespins=0", "sysctl kern.random.harvest.mask=0")

MODERN = ",disable-legacy=on,disable-modern=off"

# What takes a guest to its host and back.
EXITS = {"kicks": counting.KICKS, "interrupts": counting.INTERRUPTS,
         "timer interrupts": counting.TIMER_INTERRUPTS, "timer writes": counting.TIMER_WRITES}

Functions = collections.Counter[str]
SHOWN = 5  # instructions more or less


def show_functions(name: str, ours: Functions, stock: Functions) -> None:
    """Functions by how much more ours executes."""
    names = sorted(ours.keys() | stock.keys(), key=lambda one: stock[one] - ours[one])
    print(f"\n{name}: instructions of ours and of FreeBSD's, by function")
    for one in names:
        if abs(ours[one] - stock[one]) >= SHOWN:
            print(f"{ours[one] - stock[one]:+8d} {ours[one]:8d} {stock[one]:8d}  {one}")


@dataclasses.dataclass
class Spent:
    """Totals up to now, or what one operation took."""

    instructions: float
    cpu: float  # microseconds of QEMU's, the plugin's counting included
    clock: float  # microseconds
    exits: dict[str, float]  # as in EXITS
    functions: Functions  # instructions by function, with --profile

    def minus(self, other: Spent) -> Spent:
        """The difference."""
        functions = self.functions.copy()
        functions.subtract(other.functions)
        return Spent(self.instructions - other.instructions, self.cpu - other.cpu,
                     self.clock - other.clock,
                     {what: number - other.exits[what] for what, number in self.exits.items()},
                     functions)

    def each(self, count: int) -> Spent:
        """Of one operation."""
        return Spent(self.instructions / count, self.cpu / count, self.clock / count,
                     {what: number / count for what, number in self.exits.items()},
                     collections.Counter({name: total // count
                                          for name, total in self.functions.items()}))


class Side:
    """A guest with one kind of drivers."""

    def __init__(self, name: str, lines: list[str], stack: contextlib.ExitStack,
                 profile: bool) -> None:
        self.name = name
        self.live = pathlib.Path(f"live-{name}").absolute()
        self.profile = pathlib.Path(f"profile-{name}").absolute() if profile else None
        self.peers = [netlab.Peer(f"{name}{number}") for number in range(2)]
        image = pathlib.Path(f"disk-{name}").absolute()
        with image.open("wb") as file:
            file.truncate(256 << 20)
        self.events = counting.Events(pathlib.Path(f"trace-{name}").absolute(),
                                      tuple(itertools.chain(*EXITS.values())))
        self.lab = stack.enter_context(QuietLab(
            [(peer, MODERN) for peer in self.peers],
            ["--os", "freebsd", "--fresh", "--mem", "768",
             "--disk", f"{image},cache=unsafe{MODERN}",
             *(word for name in SMALL for word in ("--env", f"{name}=64")),
             *counting.counting(self.live, self.profile), *self.events.options()]))
        for line in [*lines, *CALM, "sysctl vfs.aio.max_buf_aio=64",
                     "sysctl net.inet.icmp.icmplim=0",
                     f"ifconfig vtnet0 inet {GUEST}/24 up",
                     f"ifconfig vtnet1 inet {OTHER_GUEST}/24 up",
                     f"arp -s {NOBODY} 02:00:00:00:00:09"]:
            self.lab.guest(line)
        for number, (peer, address, guest) in enumerate(
                zip(self.peers, (HOST, OTHER), (GUEST, OTHER_GUEST), strict=True)):
            peer.run(f"ip addr add {address}/24 dev tap{number};"
                     f"ip link set tap{number} txqueuelen 1000; ip route add default via {guest}")
            peer.run(f"ping -c 1 -W 30 {guest}")
        self.symbols = Symbols(need("kernel"), self.lab.guest("kldstat -v")) if profile else None
        self.names: dict[int, str] = {}  # by address, as far as they were looked up

    def spent(self, clock: float) -> Spent:
        """What was spent up to now, when nothing is under way any more; clock is the caller's."""
        time.sleep(0.4)
        instructions = counting.executed(self.live)
        cpu = counting.cpu_seconds(self.lab.vm.process.pid)
        functions: Functions = collections.Counter()
        if self.profile is not None and self.symbols is not None:
            for address, count in counting.by_address(self.profile).items():
                if address not in self.names:
                    self.names[address] = self.symbols.name(address)
                functions[self.names[address]] += count
        exits: dict[str, float] = {what: self.events.total(*names) for what, names in EXITS.items()}
        return Spent(instructions, 1e6 * cpu, 1e6 * clock, exits, functions)


Work = Callable[[Side, int], int | None]


@dataclasses.dataclass
class Row:
    """A line of the table: work does the given number of them, first few, then many.

    It may return how many units it did.
    """

    name: str
    work: Work
    few: int
    many: int
    before: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    each: int = 1  # work for one unit of these numbers

    @property
    def table(self) -> str:
        """The table that it belongs to: those of about the same size."""
        kind = self.name.split(",")[0]
        size = ", without offloads" if "no " in self.name else ""
        return TABLES["TCP stream" if "TCP, 64 KB" in self.name else kind] + size


def udp_out(size: int) -> Work:
    """Datagrams sent, in bursts that the ring takes whole."""
    def work(side: Side, burst: int) -> None:
        side.lab.guest(f"pvbench udp {NOBODY} 9 {size} {burst} {BURSTS}")
    return work


def udp_in(size: int) -> Work:
    """Datagrams received by a program."""
    def work(side: Side, burst: int) -> int:
        side.lab.guest(f"pvbench sink 5002 {burst * BURSTS} >/tmp/came & sleep 0.1")
        side.peers[0].run(f"{NETBENCH} udp {GUEST} 5002 {size} {burst} {BURSTS}")
        came = int(side.lab.guest("wait $!; cat /tmp/came").split()[-1])
        if came < 0.9 * burst * BURSTS:
            raise netlab.LabFailure(f"{came} of {burst * BURSTS} datagrams came")
        return came
    return work


def through(side: Side, burst: int) -> None:
    """Datagrams from one host to the other."""
    side.peers[0].run(f"{NETBENCH} udp {OTHER} 9 64 {burst} {BURSTS}")


def frames_through(side: Side, burst: int) -> None:
    """Frames of an unknown type, which a bridge passes on."""
    side.peers[0].run(f"{NETBENCH} frames tap0 60 {burst} {BURSTS}")


def taken(side: Side, count: int, words: str) -> None:
    """A stream that is sent by pvbench, in units of 64 KB."""
    with side.peers[0].start(f"{NETBENCH} take 5001 {count * SEGMENT}") as other:
        netlab.wait_for("port", lambda: side.peers[0].run("ss -Hltn sport = 5001"))
        side.lab.guest(f"pvbench {words}")
        if other.wait() != 0:
            raise netlab.LabFailure("netbench take failed")


def stream_out(side: Side, count: int) -> None:
    """A program's bytes."""
    taken(side, count, f"send {HOST} 5001 {count * SEGMENT}")


def file_out(side: Side, count: int) -> None:
    """A file in memory, over and over, by sendfile(2)."""
    taken(side, count, f"file {HOST} 5001 /tmp/file {count // FILE}")


def stream_in(side: Side, count: int) -> None:
    """A stream received, in units of 64 KB."""
    size = count * SEGMENT
    with side.peers[0].start(f"{NETBENCH} send {GUEST} 5001 {size}") as other:
        side.lab.guest(f"pvbench take 5001 {size}")
        if other.wait() != 0:
            raise netlab.LabFailure("netbench send failed")


def turns(side: Side, count: int) -> None:
    """Round trips of a byte."""
    with side.peers[0].start(f"{NETBENCH} echo 5003"):
        netlab.wait_for("port", lambda: side.peers[0].run("ss -Hltn sport = 5003"))
        side.lab.guest(f"pvbench turns {HOST} 5003 {count}")


def disk(words: str, name: str = "/dev/vtbd0") -> Work:
    """Transfers; words are those of pvbench, the number being left out."""
    operation, size, depth, order = words.split()

    def work(side: Side, count: int) -> None:
        side.lab.guest(f"pvbench {operation} {name} {size} {depth} {count} {order}")
    return work


TABLES = {"UDP": "packets", "TCP": "packets", "routed": "packets", "bridged": "packets",
          "TCP stream": "64 KB of a stream", "disk": "transfers of a disk",
          "UFS": "64 KB of a file"}

# Where packets are forwarded ours has no large ones made: FreeBSD would drop them.
ROUTE = ("sysctl net.inet.ip.forwarding=1",)
NO_ROUTE = ("sysctl net.inet.ip.forwarding=0",)
BRIDGE = ("ifconfig bridge0 create addm vtnet0 addm vtnet1 up",)
NO_OFFLOAD = ("ifconfig vtnet0 -tso -lro",)
OFFLOAD = ("ifconfig vtnet0 tso lro",)
# A file of so many units of 64 KB.
FILE = 16
MAKE_FILE = (f"dd if=/dev/zero of=/tmp/file bs=64k count={FILE} 2>/dev/null",)
UFS = ("newfs -U /dev/vtbd0 >/dev/null", "mount /dev/vtbd0 /mnt",
       "dd if=/dev/zero of=/mnt/file bs=64k count=1024 2>/dev/null", "sync")
COLD = ("umount /mnt", "mount /dev/vtbd0 /mnt")

ROWS = [
    *(Row(f"UDP, {size} bytes, sent", udp_out(size), FEW, MANY, each=BURSTS)
      for size in (64, 1472)),
    *(Row(f"UDP, {size} bytes, received", udp_in(size), FEW, MANY, each=BURSTS)
      for size in (64, 1472)),
    Row("TCP, 64 KB, sent", stream_out, 128, 640),
    Row("TCP, 64 KB of a file, sent", file_out, 8 * FILE, 40 * FILE, MAKE_FILE),
    Row("TCP, 64 KB, received", stream_in, 128, 640),
    Row("TCP, 64 KB, sent, no TSO", stream_out, 32, 160, NO_OFFLOAD, after=OFFLOAD),
    Row("TCP, 64 KB, received, no LRO", stream_in, 32, 160, NO_OFFLOAD, after=OFFLOAD),
    Row("TCP, round trip of a byte", turns, 500, 2500),
    Row("routed, 64 bytes", through, FEW, MANY, ROUTE, after=NO_ROUTE, each=BURSTS),
    Row("bridged, 60 bytes", frames_through, FEW, MANY, BRIDGE,
        after=("ifconfig bridge0 destroy",), each=BURSTS),
    *(Row(f"disk, {operation} {size >> 10} KB, depth {depth}, {order}",
          disk(f"{operation} {size} {depth} {order}"), 250, 1250)
      for operation in ("read", "write") for size in (4096, 65536) for depth in (1, 32)
      for order in ("random", "seq")),
    *(Row(f"UFS, {operation} 64 KB, seq", disk(f"{operation} 65536 1 seq", "/mnt/file"), 128, 896,
          UFS + COLD, COLD, ("umount /mnt",)) for operation in ("read", "write")),
]


def measured(side: Side, row: Row) -> Spent:
    """What one takes, in one attempt."""
    spent, done = [], []
    row.work(side, row.few)
    for count in (row.few, row.many):
        before = side.spent(0)
        start = time.monotonic()
        done.append(row.work(side, count) or count * row.each)
        spent.append(side.spent(time.monotonic() - start).minus(before))
        for line in row.between:
            side.lab.guest(line)
    return spent[1].minus(spent[0]).each(done[1] - done[0])


TRIES = 5  # beside other work a host may lose datagrams for want of time


def measure(side: Side, row: Row) -> Spent:
    """The same; anew when too much was lost."""
    for line in row.before:
        side.lab.guest(line)
    for left in reversed(range(TRIES)):
        try:
            figures = measured(side, row)
            break
        except netlab.LabFailure:
            if left == 0:
                raise
    for line in row.after:
        side.lab.guest(line)
    return figures
