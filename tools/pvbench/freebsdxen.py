# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""xn and xbd in GENERIC beside its own front ends: `tools/bench freebsd --xen', see freebsd.py.

Two guests in one lab, with their drivers from the beginning, on the same ram disk of dom0 and each
with two cards, behind which are Linux hosts (tests/sys/xen/xennet.py).  They work in turn, the
other one paused.  Like in freebsdrows.py each row does a little and then a lot, and a figure is the
difference.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator

from fbsd.modules import built_for
from fbsd.sets import FreebsdError, kernel_set
from fbsd.symbols import Symbols
from pvbench import build, counting, xenguests
from pvbench.figures import Figures, of_pairs_interval
from pvbench.freebsdrows import (
    BURSTS,
    CALM,
    FEW,
    GUEST,
    HOST,
    MANY,
    NOBODY,
    OTHER,
    OTHER_GUEST,
    SEGMENT,
    Functions,
    show_functions,
)
from pvbench.report import Report
from pvbench.table import Goal, Line
from pvbench.xenguests import FOREVER
from xen import trace
from xen.errors import TOP, Deadline
from xen.lab import Lab

sys.path.insert(0, str(TOP / "tests/sys/xen"))

import xennet

TITLE = "In FreeBSD under Xen, beside its own front ends"
RATES, COSTS = f"{TITLE}: rates", f"{TITLE}: instructions with Xen's"
KERNEL = "freebsd=generic"
MEMORY, LAB_MEMORY = 256, 1536  # MB
DOMTIME, NETBENCH = "/run/domtime", "/run/netbench"
NOW = "awk '/^now at/ { print $3; exit }' /proc/timer_list"  # dom0's clock: nanoseconds
GIVEN_UP, TRIES = 10, 60  # seconds


@dataclasses.dataclass(frozen=True)
class Kind:
    """A guest."""

    name: str
    letter: str  # of its bridges and hosts
    options: tuple[str, ...]
    check: str  # a command that succeeds with its drivers


OURS = Kind("ours", "o", ("--env", "xbd_load=YES", "--env", "if_xn_load=YES"),
            "kldstat -q -n xbd.ko && kldstat -q -n if_xn.ko")
STOCK = Kind("FreeBSD's", "s", (), "! kldstat -q -n xen.ko")


@dataclasses.dataclass
class Side:
    """A guest, and the hosts at its cards."""

    kind: Kind
    guest: xenguests.Side
    hosts: list[xennet.Peer]

    def say(self, line: str) -> str:
        """What a command prints in the guest."""
        return self.guest.say(line)

    def processor(self) -> int:
        """Instructions of its processor up to now, with what Xen did for it."""
        self.guest.dom0("sleep 0.2")
        return int(self.guest.dom0(f"{DOMTIME} {self.guest.domid}"))

    def passed(self) -> int:
        """Packets that its second card has sent."""
        return int(self.guest.dom0(
            f"cat /sys/class/net/vif{self.guest.domid}.1/statistics/rx_packets"))

    def host(self, number: int, words: str) -> str:
        """What a command prints in one of its hosts."""
        return self.hosts[number].run(words, FOREVER)

    def reached(self) -> None:
        """Wait until both hosts can talk to it."""
        for number, address in enumerate((GUEST, OTHER_GUEST)):
            self.host(number, f"for n in $(seq {TRIES}); do ping -c 1 -W 1 {address} >/dev/null"
                              " && exit 0; done; exit 1")


@dataclasses.dataclass(frozen=True)
class Did:
    """What was done, and in how many seconds, where that is known."""

    units: int
    seconds: float | None = None


Work = Callable[[Side, int], Did]


def seconds_of(said: str) -> float:
    """What `pvbench -t' prints last."""
    return int(said.split()[-1]) / 1e6


def transfers(words: str) -> Work:
    """Transfers of a disk; words are those of pvbench, the number being left out."""
    operation, size, depth, order = words.split()

    def work(side: Side, count: int) -> Did:
        return Did(count, seconds_of(side.say(
            f"pvbench -t {operation} /dev/xbd0 {size} {depth} {count} {order}")))
    return work


def udp_out(size: int) -> Work:
    """Datagrams sent, in bursts that the ring takes whole."""
    def work(side: Side, burst: int) -> Did:
        side.say(f"pvbench udp {NOBODY} 9 {size} {burst} {BURSTS}")
        return Did(burst * BURSTS)
    return work


def udp_in(size: int) -> Work:
    """Datagrams received by a program."""
    def work(side: Side, burst: int) -> Did:
        side.say(f"pvbench sink 5002 {burst * BURSTS} >/tmp/came & sleep 0.1")
        side.host(0, f"{NETBENCH} udp {GUEST} 5002 {size} {burst} {BURSTS}")
        return Did(int(side.say("wait $!; cat /tmp/came").split()[-1]))
    return work


def through(side: Side, burst: int) -> Did:
    """Datagrams from one host to the other."""
    before = side.passed()
    side.host(0, f"{NETBENCH} udp {OTHER} 9 64 {burst} {BURSTS}")
    return Did(side.passed() - before)


def connected(side: Side, server: str, port: int, words: str) -> float:
    """Seconds of what the guest does with a server of its first host."""
    host = side.hosts[0]
    job = host.begin(f"{NETBENCH} {server}")
    host.listening(port)
    said = side.say(f"pvbench -t {words}")
    host.end(job, FOREVER)
    return seconds_of(said)


def stream_out(side: Side, count: int) -> Did:
    """A stream, in units of 64 KB."""
    size = count * SEGMENT
    return Did(count, connected(side, f"read 5001 {size}", 5001, f"send {HOST} 5001 {size}"))


def stream_in(side: Side, count: int) -> Did:
    """A stream received, in units of 64 KB."""
    side.say(f"pvbench -t take 5001 {count * SEGMENT} >/tmp/took & sleep 0.1")
    side.host(0, f"{NETBENCH} send {GUEST} 5001 {count * SEGMENT}")
    return Did(count, seconds_of(side.say("wait $!; cat /tmp/took")))


def turns(side: Side, count: int) -> Did:
    """Round trips of a byte."""
    return Did(count, connected(side, "echo 5003", 5003, f"turns {HOST} 5003 {count}"))


def stream_through(side: Side, count: int) -> Did:
    """A stream from one host to the other, in units of 64 KB; none if it does not get through."""
    far = side.hosts[1]
    job = far.begin(f"timeout {2 * GIVEN_UP} {NETBENCH} read 5004 {count * SEGMENT} || echo lost")
    far.listening(5004)
    said = side.host(0, f"{NOW}; timeout {GIVEN_UP} {NETBENCH} send {OTHER} 5004"
                        f" {count * SEGMENT} || echo lost; {NOW}")
    if "lost" in said + far.end(job, FOREVER):
        return Did(0)
    begin, end = map(int, said.split())
    return Did(count, (end - begin) / 1e9)


def route(side: Side) -> None:
    """Forward packets."""
    side.say("sysctl net.inet.ip.forwarding=1")


def offloads(side: Side, on: bool) -> None:
    """Of the hosts, and of the guest what stands in the way of what it forwards."""
    for host in side.hosts:
        host.run(f"ethtool -K eth0 tx {'on tso on' if on else 'off'} >/dev/null")
    for card in ("xn0", "xn1"):
        side.say(f"ifconfig -n {card} {'' if on else '-'}lro")
    side.reached()


def unaided(side: Side) -> None:
    """Forward packets that have no offloads."""
    route(side)
    offloads(side, on=False)


def aided(side: Side) -> None:
    """As it was."""
    offloads(side, on=True)


@dataclasses.dataclass(frozen=True)
class Row:
    """Work that is measured, first few units of it and then many."""

    name: str
    work: Work
    few: int
    many: int
    before: Callable[[Side], None] | None = None
    after: Callable[[Side], None] | None = None


ROUTED = "routed, 64 KB of TCP"
ALL_ON, ALL_OFF = f"{ROUTED}, all offloads on", f"{ROUTED}, offloads off in hosts and router"
MADE_TO_WORK = f"{ROUTED}, all offloads on, beside off"

ROWS = [
    *(Row(f"disk, {operation} 4 KB, depth {depth}, random",
          transfers(f"{operation} 4096 {depth} random"), 250, 1250)
      for depth in (1, 32) for operation in ("read", "write")),
    *(Row(f"disk, {operation} 64 KB, depth {depth}, seq",
          transfers(f"{operation} 65536 {depth} seq"), 250, 750)
      for depth in (1, 32) for operation in ("read", "write")),
    *(Row(f"UDP, {size} bytes, sent", udp_out(size), FEW, MANY) for size in (64, 1472)),
    *(Row(f"UDP, {size} bytes, received", udp_in(size), FEW, MANY) for size in (64, 1472)),
    Row("TCP, 64 KB, sent", stream_out, 64, 320),
    Row("TCP, 64 KB, received", stream_in, 64, 320),
    Row("TCP, round trip of a byte", turns, 250, 1250),
    Row("routed, 64 bytes", through, FEW, MANY, route),
    Row(ALL_OFF, stream_through, 32, 160, unaided, aided),
    # What breaks is measured last.
    Row(ALL_ON, stream_through, 32, 160, route),
]


@dataclasses.dataclass
class Measured:
    """A row of one of the guests, in all rounds."""

    rates: list[float] = dataclasses.field(default_factory=list)
    costs: list[float] = dataclasses.field(default_factory=list)
    alone: list[float] = dataclasses.field(default_factory=list)  # its own instructions
    exits: list[float] = dataclasses.field(default_factory=list)
    hypercalls: list[float] = dataclasses.field(default_factory=list)
    functions: Functions = dataclasses.field(default_factory=collections.Counter)

    def add(self, few: tuple[Did, int], many: tuple[Did, int]) -> None:
        """What so few and so many took: the difference; nothing if nothing was done."""
        units = many[0].units - few[0].units
        if units <= 0:
            self.rates.append(0)
            return
        self.costs.append((many[1] - few[1]) / units)
        if few[0].seconds is not None and many[0].seconds is not None:
            self.rates.append(units / (many[0].seconds - few[0].seconds))


def counted(side: Side, row: Row, count: int) -> tuple[Did, int]:
    """What so many units took."""
    before = side.processor()
    did = row.work(side, count)
    return did, side.processor() - before


def traced(side: Side, row: Row, measured: Measured) -> None:
    """Its own instructions, exits and hypercalls, from Xen's trace buffer."""
    seen: list[tuple[int, trace.Trace]] = []
    for count in (row.few, row.many):
        done: list[Did] = []

        def work(count: int = count, done: list[Did] = done) -> None:
            done.append(row.work(side, count))

        one = trace.record(side.guest.lab, work, Deadline(FOREVER))
        seen.append((done[0].units, one))
    (few, less), (many, more) = seen
    if many > few:
        measured.alone.append((more.inside - less.inside) / (many - few))
        measured.exits.append((more.exits - less.exits) / (many - few))
        measured.hypercalls.append(
            (more.hypercalls.total() - less.hypercalls.total()) / (many - few))


def profiled(side: Side, row: Row, profile: pathlib.Path) -> Functions:
    """Instructions of a unit by function."""
    symbols = Symbols(kernel_set("generic"), side.say("kldstat -v"))
    names: dict[int, str] = {}
    seen: list[tuple[int, Functions]] = []
    for count in (row.few, row.many):
        before = counting.by_address(profile)
        did = row.work(side, count)
        functions: Functions = collections.Counter()
        for address, times in (counting.by_address(profile) - before).items():
            functions[names.setdefault(address, symbols.name(address))] += times
        seen.append((did.units, functions))
    (few, less), (many, more) = seen
    more.subtract(less)
    return collections.Counter({name: times // max(many - few, 1) for name, times in more.items()})


@contextlib.contextmanager
def alone(side: Side) -> Iterator[Side]:
    """One of them works, while the other one is paused."""
    side.guest.unpause()
    try:
        yield side
    finally:
        side.guest.pause()


def measure(row: Row, sides: list[Side], rounds: int, report: Report,
            profile: pathlib.Path | None = None) -> list[Measured]:
    """A row in both guests, in turn; each round begins with the other one."""
    found = [Measured() for _ in sides]
    pairs = list(zip(sides, found, strict=True))
    for one in sides:
        with alone(one) as side:
            if row.before is not None:
                row.before(side)
            row.work(side, row.few)  # to get going
    for number in range(rounds):
        report.progress.step(row.name)
        for one, measured in pairs if number % 2 == 0 else reversed(pairs):
            with alone(one) as side:
                measured.add(counted(side, row, row.few), counted(side, row, row.many))
    for one, measured in pairs:
        with alone(one) as side:
            if measured.costs:
                traced(side, row, measured)
            if profile is not None:
                measured.functions = profiled(side, row, profile)
            if row.after is not None:
                row.after(side)
    return found


def rate(name: str, ours: list[float], other: list[float]) -> Line:
    """A line of rates; what does not work at all has no ratio."""
    mine, theirs = Figures.of(ours), Figures.of(other)
    works = min(ours) > 0 and min(other) > 0
    return Line(name, "operations/s", mine, theirs,
                of_pairs_interval(mine, theirs) if works else None, Goal(1, at_least=True))


def lines_of(row: Row, ours: Measured, stock: Measured) -> Iterator[tuple[str, Line]]:
    """Each with its table's title."""
    if ours.rates:
        yield RATES, rate(row.name, ours.rates, stock.rates)
    if ours.costs and stock.costs:
        mine, theirs = Figures.of(ours.costs), Figures.of(stock.costs)
        yield COSTS, Line(
            row.name, "instructions", mine, theirs, of_pairs_interval(mine, theirs), Goal(1),
            {what: (statistics.median(getattr(ours, field)),
                    statistics.median(getattr(stock, field)))
             for what, field in (("the guest's alone", "alone"), ("exits", "exits"),
                                 ("hypercalls", "hypercalls"))
             if getattr(ours, field) and getattr(stock, field)})


def configured(number: int, address: str, host: str) -> str:
    """The command that gives a card its address; FreeBSD's own has no back end yet at first.

    Without -n, ifconfig(8) would load our driver.
    """
    return (f"until ifconfig -n xn{number} down && ifconfig -n xn{number} inet {address}/24 up"
            f" && ping -o -t 5 {host}; do sleep 0.1; done")


@contextlib.contextmanager
def booted(lab: Lab, kind: Kind) -> Iterator[Side]:
    """A guest with its hosts, paused."""
    bridges = [f"bench{kind.letter}{number}" for number in range(2)]
    with contextlib.ExitStack() as stack:
        guest = stack.enter_context(xenguests.booted(lab, kind.name, KERNEL, [
            "--mem", str(MEMORY), "--disk", "dom0:/dev/ram0", *kind.options,
            *(word for bridge in bridges for word in ("--net", f"bridge:{bridge}"))]))
        hosts = []
        for number, (bridge, address, router) in enumerate(zip(
                bridges, (HOST, OTHER), (GUEST, OTHER_GUEST), strict=True)):
            hosts.append(xennet.Peer(lab, f"{kind.letter}{number}", bridge, 1500))
            stack.callback(hosts[-1].close)
            hosts[-1].run(f"ip addr add {address}/24 dev eth0;"
                          f" ip route add default via {router}")
        side = Side(kind, guest, hosts)
        for line in (kind.check, *CALM, "sysctl vfs.aio.max_buf_aio=64",
                     "sysctl net.inet.icmp.icmplim=0",
                     configured(0, GUEST, HOST), configured(1, OTHER_GUEST, OTHER),
                     f"arp -s {NOBODY} 02:00:00:00:00:09"):
            side.say(line)
        side.reached()
        guest.pause()
        yield side


def measure_all(rows: list[Row], sides: list[Side], rounds: int, report: Report,
                profile: pathlib.Path | None = None) -> None:
    """The tables, and what one needs all offloads for beside what the other does without."""
    measured: dict[str, list[Measured]] = {}
    for row in rows:
        measured[row.name] = measure(row, sides, rounds, report, profile)
        for title, line in lines_of(row, *measured[row.name]):
            report.keep((report.table(title, STOCK.name), line))
        if profile is not None:
            report.progress.clear()
            show_functions(row.name, *(one.functions for one in measured[row.name]))
    if {ALL_ON, ALL_OFF} <= measured.keys():
        report.keep((report.table(RATES, STOCK.name), rate(
            MADE_TO_WORK, measured[ALL_ON][0].rates, measured[ALL_OFF][1].rates)))


def in_lab(lab: Lab, rows: list[Row], rounds: int, report: Report,
           profile: pathlib.Path | None) -> None:
    """Measure, and print what was kept, whatever happens."""
    lab.add_net_tools(Deadline(FOREVER))
    for program, place in ((build.domtime(), DOMTIME), (build.NETBENCH, NETBENCH)):
        lab.put(program, place, Deadline(FOREVER))
        lab.output(f"chmod +x {place}", Deadline(FOREVER))
    try:
        with booted(lab, OURS) as ours, booted(lab, STOCK) as stock:
            measure_all(rows, [ours, stock], rounds, report, profile)
    finally:
        for table in report.results.tables:
            for line in table.lines:
                report.show(table, line)


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    rows = [row for row in ROWS if report.chosen(row.name)]
    report.progress.total = args.rounds * len(rows)
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        profile = pathlib.Path(folder) / "profile" if args.profile else None
        plugin = f"{build.PLUGIN},profile={profile}" if profile else ""
        with xenguests.counting_lab(args, "bench-freebsd", LAB_MEMORY, plugin) as lab:
            in_lab(lab, rows, args.rounds, report, profile)


def unusable() -> str | None:
    """Why there is no GENERIC to measure in."""
    try:
        return (None if built_for(kernel_set("generic"))
                else "no modules for GENERIC: tools/freebsd modules --kernel generic")
    except FreebsdError as error:
        return str(error)
