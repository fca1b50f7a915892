# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What vtnet's offloads and queues bring, with Linux at the other end of its cables: see net.py."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import time
from collections.abc import Callable, Iterator

from pvbench import build, counting
from pvbench.figures import Figures, of_medians, of_pairs
from pvbench.labs import QuietLab, netlab
from pvbench.report import Report
from pvbench.table import Goal, Line, Table

ALL = ("rxcsum", "txcsum", "rxcsum6", "txcsum6", "tso", "lro")
WINDOWS = "windows of 256 KB"
STREAMS = 5

# Throughput of one run: Mbit/s, and bytes.
Run = Callable[[], tuple[float, int]]


@dataclasses.dataclass
class Speeds:
    """Runs of one kind: Mbit/s and Mbit a second of QEMU's, or million instructions a MB."""

    mbits: list[float] = dataclasses.field(default_factory=list)
    a_cpu: list[float] = dataclasses.field(default_factory=list)
    instructions: list[float] = dataclasses.field(default_factory=list)

    def add(self, run: Run, lab: netlab.Lab, live: pathlib.Path | None) -> None:
        """Measure once more."""
        def executed() -> int:
            return counting.executed(live) if live else 0

        pid = lab.vm.process.pid
        instructions, seconds = executed(), counting.cpu_seconds(pid)
        mbits, size = run()
        if live:
            self.instructions.append((executed() - instructions) / size)
        else:
            self.mbits.append(mbits)
            self.a_cpu.append(size * 8 / 1e6 / (counting.cpu_seconds(pid) - seconds))


def iperf3(client: netlab.Peer, server: netlab.Peer, words: str) -> tuple[float, int]:
    """Five streams by iperf3 between two hosts; Mbit/s and bytes."""
    end = netlab.iperf3(client, server, "10.1.0.2", f"-P {STREAMS} {words}")["sum_received"]
    return end["bits_per_second"] / 1e6, end["bytes"]


def summed(said: str) -> float:
    """What iperf says of all streams."""
    return float(re.findall(r"\[SUM\].* ([0-9.]+) Mbits", said)[0])


def iperf_out(lab: netlab.Lab, peer: netlab.Peer, size: int) -> tuple[float, int]:
    """Five streams by our iperf."""
    with peer.start(f"{build.NETBENCH} sink 5001 {STREAMS}") as server:
        netlab.wait_for("port", lambda: peer.run("ss -Hltn sport = 5001"))
        said = lab.guest(f"iperf -c 10.1.0.1 -P {STREAMS} -n {size // STREAMS}")
        if server.wait() != 0:
            raise netlab.LabFailure(f"netbench sink: {server.communicate()[0]}")
    return summed(said), size


def iperf_in(lab: netlab.Lab, peer: netlab.Peer, size: int) -> tuple[float, int]:
    """Five streams by Debian's iperf to ours."""
    words = f"exec iperf -c 10.1.0.254 -P {STREAMS} -n {size // STREAMS} -f m"
    with peer.start(f"sh -c 'sleep 0.5; {words}'") as client:
        lab.guest(f"iperf -s -n {size}")
        said, _ = client.communicate()
    return summed(said), size


@contextlib.contextmanager
def booted(cards: int, extra: str,
           options: list[str]) -> Iterator[tuple[netlab.Lab, list[netlab.Peer]]]:
    """A guest of ours between hosts: a bridge if there are two, else an end point."""
    peers = [netlab.Peer(name) for name in "ab"[:cards]]
    with QuietLab([(peer, extra) for peer in peers],
                  ["--kernel", build.OURS, *options]) as lab:
        lab.guest("kldload if_vtnet")
        for number, peer in enumerate(peers):
            peer.run(f"ip addr add 10.1.0.{number + 1}/24 dev tap{number}")
            lab.guest(f"ifconfig vtnet{number} up")
        if cards == 2:
            lab.guest("ifconfig bridge0 create addm vtnet0 addm vtnet1 up")
            peers[0].run("ping -c 1 -W 30 10.1.0.2")
        else:
            lab.guest("ifconfig vtnet0 inet 10.1.0.254/24")
            peers[0].run("ping -c 1 -W 30 10.1.0.254")
        yield lab, peers
        for peer in peers:
            peer.check_sums()
        lab.end()


def switch(lab: netlab.Lab, cards: int, flags: tuple[str, ...], on: bool) -> None:
    """Switch offloads of all cards, and let it settle."""
    words = " ".join(("" if on else "-") + flag for flag in flags)
    for number in range(cards):
        lab.guest(f"ifconfig vtnet{number} {words}")
    time.sleep(0.3)


def ways(lab: netlab.Lab, peers: list[netlab.Peer], on: bool) -> dict[str, Run]:
    """What is to be measured in a guest; less of it where it is slow."""
    if len(peers) == 2:
        # A second and more: streams take their time to get going.
        client, server = peers
        words = f"-n {2500 if on else 250}M"
        return {"bridge": lambda: iperf3(client, server, words),
                f"bridge, {WINDOWS}": lambda: iperf3(client, server, f"{words} -w 256k")}
    size = (200 if on else 40) << 20
    return {"end point, sending": lambda: iperf_out(lab, peers[0], size),
            "end point, receiving": lambda: iperf_in(lab, peers[0], size)}


@dataclasses.dataclass(frozen=True)
class Job:
    """Offloads on against off in one kind of guest."""

    name: str  # what --only knows it by, and the rows begin with
    cards: int
    flags: tuple[str, ...]
    bound: float
    cpus: int = 1


JOBS = [Job("bridge", 2, ALL, 8), Job("bridge, two CPUs", 2, ALL, 8, 2),
        Job("end point", 1, ("tso", "lro"), 4)]
QUEUES = "two queues and CPUs"


def measure(job: Job, pairs: int, report: Report) -> dict[str, tuple[Speeds, Speeds]]:
    """Runs with offloads on and off, in turn; then, with one CPU, their instructions."""
    speeds: dict[str, tuple[Speeds, Speeds]] = {}
    live = pathlib.Path("live").absolute()
    for options in ([], counting.plain(live))[:2 if job.cpus == 1 else 1]:
        with booted(job.cards, "", ["--smp", str(job.cpus), *options]) as (lab, peers):
            for _ in range((1 if options else pairs) + 1):
                report.progress.step(job.name + (", instructions" if options else ""))
                for which, on in enumerate((True, False)):
                    switch(lab, job.cards, job.flags, on)
                    for name, run in ways(lab, peers, on).items():
                        pair = speeds.setdefault(name, (Speeds(), Speeds()))
                        pair[which].add(run, lab, live if options else None)
    return speeds


def offloads(job: Job, pairs: int, report: Report, table: Table) -> None:
    """The lines of a job."""
    for name, (on, off) in measure(job, pairs, report).items():
        full = f"{name}, two CPUs" if job.cpus == 2 else name
        goal = None if WINDOWS in name else Goal(job.bound, at_least=True)
        # The first one is to get going.
        for unit, mine, theirs, kept in (
                ("Mbit/s", on.mbits, off.mbits, goal),
                ("Mbit a second of QEMU's CPU time", on.a_cpu, off.a_cpu, None)):
            ours, other = Figures.of(mine[1:]), Figures.of(theirs[1:])
            report.add(table, Line(full, unit, ours, other, of_pairs(ours, other), kept))
        if on.instructions:
            ours, other = (Figures.of(one.instructions[1:]) for one in (on, off))
            report.add(table, Line(full, "million instructions a MB", ours, other,
                                   of_medians(ours, other)))


def queues(pairs: int, report: Report) -> None:
    """Two queues and CPUs against one of each."""
    table = report.table("Two queues and CPUs against one of each", "one", "two")
    speeds: dict[str, tuple[Speeds, Speeds]] = {}
    with booted(1, ",queues=2", ["--smp", "2"]) as two, booted(1, "", []) as one:
        for _ in range(pairs + 1):
            report.progress.step(QUEUES)
            for which, (lab, peers) in enumerate((two, one)):
                for name, run in ways(lab, peers, True).items():
                    speeds.setdefault(name, (Speeds(), Speeds()))[which].add(run, lab, None)
    for name, (many, few) in speeds.items():
        ours, other = Figures.of(many.mbits[1:]), Figures.of(few.mbits[1:])
        report.add(table, Line(f"{name}, {QUEUES}", "Mbit/s", ours, other, of_pairs(ours, other)))


def operations() -> list[str]:
    """What --only chooses from."""
    return [*(job.name for job in JOBS), QUEUES]


def chosen(report: Report) -> list[Job]:
    """The jobs that are wanted."""
    return [job for job in JOBS if report.chosen(job.name)]


def steps(pairs: int, report: Report) -> int:
    """How many steps there are."""
    return (sum(pairs + (3 if job.cpus == 1 else 1) for job in chosen(report))
            + report.chosen(QUEUES) * (pairs + 1))


def run(pairs: int, report: Report) -> None:
    """The tables of throughput."""
    jobs = chosen(report)
    if jobs:
        table = report.table("vtnet, offloads on against off", "off", "on")
        for job in jobs:
            offloads(job, pairs, report, table)
    if report.chosen(QUEUES):
        queues(pairs, report)
