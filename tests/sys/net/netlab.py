# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest between network namespaces, with Linux's own stack at the ends of its cables.

enter() runs the program again in user, network, mount and process namespaces of its own.  All that
it makes there, TAP devices and further namespaces, ends with it whatever happens, and no name can
clash with anything outside.

A Lab boots a guest with one TAP (vnet_hdr) per network card and moves each TAP into the namespace
of a Peer, which is a Linux host: run() and start() run programs there.  The guest is driven while
it runs, by its console: Lab.guest(LINE) returns what it printed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from types import ModuleType, TracebackType
from typing import Any, ClassVar

TOP = pathlib.Path(os.environ["PVKMOD_TOP"])
INSIDE = "PVKMOD_NETLAB"
TIMEOUT = 120.0
NAMESPACES = ["unshare", "-Urnmpf", "--mount-proc", "--kill-child"]

# Counters of Linux that say that a packet was damaged.
BAD_SUMS = ("TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors", "Icmp6InCsumErrors",
            "IcmpInCsumErrors", "IpInHdrErrors", "Ip6InHdrErrors")


# A program that takes one connection and writes what comes to a file.
ACCEPT_FILE = (
    "import socket, sys; l = socket.socket();"
    "l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);"
    "l.bind((\"\", 5302)); l.listen(); s, a = l.accept();"
    "f = open(sys.argv[1], \"wb\"); [f.write(d) for d in iter(lambda: s.recv(1 << 16), b\"\")]")


# A developer waits for the tests (runtests); a soak has time.
HURRIED = "PVKMOD_ROUNDS" in os.environ


def amount(size: int) -> int:
    """So much data to send: a quarter in `make test', all in a soak."""
    return size // 4 if HURRIED else size


# A program that takes so many connections at a port, and prints how many bytes came by each.
# Debian's iperf -s (2.1.8) frees something twice when streams end at the same time.
COUNT_STREAMS = """
import os, socket, sys, threading
def count(s):
    size = sum(len(d) for d in iter(lambda: s.recv(1 << 16), b""))
    os.write(1, b"%d\\n" % size)
l = socket.create_server(("", int(sys.argv[1])), family=int(sys.argv[2]))
threads = [threading.Thread(target=count, args=l.accept()[:1]) for _ in range(int(sys.argv[3]))]
[t.start() for t in threads]
"""


class LabFailure(Exception):
    """An expectation that was not met."""


def unusable() -> str | None:
    """Why no lab can be made on this machine, or None."""
    for program in ("ip", "unshare", "nsenter", "ping", "iperf3", "iperf", "tshark", "ethtool",
                    "tc"):
        if shutil.which(program) is None:
            return f"{program} is not installed: tools/bootstrap"
    probe = [*NAMESPACES, "ip", "tuntap", "add", "dev", "t0", "mode", "tap", "vnet_hdr"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"no TAP in a user namespace: {done.stderr.strip()}"
    return None


def enter() -> None:
    """Run this program again, in namespaces of its own."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp(NAMESPACES[0], [*NAMESPACES, sys.executable, *sys.argv])


def load_program(path: str) -> ModuleType:
    """A program of the tree as a module (tools/guest)."""
    name = path.rpartition("/")[2]
    sys.path.insert(0, str(TOP / "tools"))
    loader = importlib.machinery.SourceFileLoader(name, str(TOP / path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def wait_for(what: str, condition: Any, seconds: float = 30.0, pause: float = 0.05) -> Any:
    """Wait until condition() is true and return what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise LabFailure(f"{what}: not within {seconds:.0f} seconds")
        time.sleep(pause)


NO_DAD = "sysctl net.inet6.ip6.dad_count=0"

# What prints Linux's protocol counters.
COUNTERS = "(cd /proc/net && cat snmp netstat snmp6)"


def counters(text: str) -> dict[str, int]:
    """What COUNTERS has printed, by nstat's names."""
    # A line of names and one of values; for IPv6, a name and a value.
    heads: dict[str, list[str]] = {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        first, *words = line.split()
        if not first.endswith(":"):
            found[first] = int(words[0])
        elif first in heads:
            found |= zip((first[:-1] + name for name in heads[first]), map(int, words), strict=True)
        else:
            heads[first] = words
    return found


class Program(subprocess.Popen[str]):
    """A program of a host's, which is not waited for when a test has failed: it may never end."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Wait for its end."""
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)


class Peer:
    """A Linux host: a network namespace, which lives as long as its first process."""

    living: ClassVar[list[Peer]] = []

    def __init__(self, name: str) -> None:
        self.name = name
        self.living.append(self)
        self.before: dict[str, int] = {}
        self.init = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        ours = os.readlink("/proc/self/ns/net")
        link = f"/proc/{self.init.pid}/ns/net"
        wait_for("namespace", lambda: os.path.exists(link) and os.readlink(link) != ours)
        # No waiting for duplicates of addresses, no chatter of a host that looks for routers; and
        # large packets also at the round-trip times of a busy machine.
        self.run("sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0"
                 " net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.default.router_solicitations=0"
                 " net.ipv4.ping_group_range='0 0' net.ipv4.tcp_min_tso_segs=40")
        self.run("ip link set lo up")

    def command(self, words: str) -> list[str]:
        """The command line that runs words in this namespace."""
        return ["nsenter", "-t", str(self.init.pid), "-n", "sh", "-c", words]

    def run(self, words: str, timeout: float = 120.0) -> str:
        """Run a shell command that has to succeed; returns what it printed."""
        with Program(self.command(words), text=True, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, start_new_session=True) as process:
            try:
                out, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired as late:
                for peer in self.living:
                    peer.show("ss -ntmoi")
                # Those that it has started have its pipes.
                os.killpg(process.pid, signal.SIGKILL)
                said = "".join(process.communicate())
                raise LabFailure(f"{self.name}: {words}: not within {timeout:.0f} seconds\n"
                                 f"{said}") from late
        if process.returncode != 0:
            raise LabFailure(f"{self.name}: {words}: status {process.returncode}\n{out}{errors}")
        return out

    def start(self, words: str, **options: Any) -> Program:
        """Start a shell command; its output is a pipe unless options say something else."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | options
        return Program(self.command(f"exec {words}"), text=True, **options)

    def counters(self) -> dict[str, int]:
        """Linux's protocol counters."""
        return counters(self.run(COUNTERS))

    def mark(self) -> None:
        """Counters are counted from here on."""
        self.before = self.counters()

    def counted(self, name: str) -> int:
        """How far a counter has come since mark()."""
        return self.counters().get(name, 0) - self.before.get(name, 0)

    def check_sums(self) -> None:
        """No packet may have come with a bad checksum."""
        now = self.counters()
        bad = {name: now.get(name, 0) - self.before.get(name, 0) for name in BAD_SUMS}
        bad = {name: count for name, count in bad.items() if count != 0}
        if bad:
            raise LabFailure(f"{self.name} got damaged packets: {bad}")

    def received(self, device: str) -> tuple[int, int]:
        """Packets and bytes that the guest has sent by the other end of a TAP device."""
        link = json.loads(self.run(f"ip -s -j link show dev {device}"))[0]
        return link["stats64"]["rx"]["packets"], link["stats64"]["rx"]["bytes"]

    def show(self, words: str) -> None:
        """Print what a shell command prints, whatever comes of it."""
        said = subprocess.run(self.command(words), capture_output=True, text=True, check=False)
        print(f"{self.name}# {words}\n{said.stdout}{said.stderr}", flush=True)

    def refuses(self, words: str, text: str) -> None:
        """Run a shell command that has to fail and to say text."""
        done = subprocess.run(self.command(words), capture_output=True, text=True, check=False,
                              timeout=TIMEOUT)
        if done.returncode == 0 or text not in done.stdout + done.stderr:
            raise LabFailure(f"{self.name}: {words}: status {done.returncode}, no \"{text}\" in\n"
                             f"{done.stdout}{done.stderr}")

    def close(self) -> None:
        """End the namespace."""
        self.living.remove(self)
        self.init.kill()
        self.init.wait()


class Lab:
    """A guest and its peers; to be used in a with statement."""

    # As the peers do: a neighbour that asks for an address which is probed for gets no answer.
    begin: ClassVar[str] = NO_DAD

    def __init__(self, cards: list[tuple[Peer, str]], options: list[str] | None = None) -> None:
        self.cards = cards
        self.tools = load_program("tools/guest")
        self.stack = contextlib.ExitStack()
        self.options = options or []
        self.vm: Any = None

    def __enter__(self) -> Lab:
        """Boot the guest and lay the cables."""
        arguments = ["--accel", "tcg", "--log", "console.log", *self.options]
        for number, (_, extra) in enumerate(self.cards):
            arguments += ["--net", f"tap:tap{number}{extra}"]
        args: argparse.Namespace = self.tools.parser().parse_args(arguments)
        args.verbose_boot = False
        args.timeout = TIMEOUT
        deadline = self.tools.Deadline(time.monotonic() + TIMEOUT)
        self.vm = self.stack.enter_context(self.tools.running(args, "tcg", deadline))
        for number, (peer, _) in enumerate(self.cards):
            subprocess.run(["ip", "link", "set", f"tap{number}", "netns", str(peer.init.pid)],
                           check=True)
            peer.run(f"ip link set tap{number} up")
        if self.begin:
            self.guest(self.begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """End the guest and its peers; of a test that has failed, show first how they are."""
        if isinstance(error, LabFailure):
            self.show()
        self.stack.close()
        for peer in self.hosts():
            peer.close()

    def hosts(self) -> list[Peer]:
        """The peers, each once."""
        return list(dict.fromkeys(peer for peer, _ in self.cards))

    def show(self) -> None:
        """Print what the guest and its peers have counted."""
        for peer in self.hosts():
            peer.show(f"ip -s -d link; {COUNTERS} | grep -Ev '\\s0$'")
        with contextlib.suppress(Exception):
            self.guest("sysctl dev.vtnet", None)

    def guest(self, line: str, status: int | None = 0) -> str:
        """Run a line at the guest's console; returns what it printed."""
        shown, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), errors="replace")
        try:
            result = self.vm.run(line)
            sys.stdout.flush()
            text: str = sys.stdout.buffer.getvalue().decode(errors="replace")
        finally:
            sys.stdout = shown
        print(f"guest# {line}\n{text}", end="", flush=True)
        if status is not None and result != status:
            raise LabFailure(f"guest: {line}: status {result}, expected {status}")
        return text

    def sysctl(self, name: str) -> int:
        """The value of a sysctl of the guest."""
        return int(self.guest(f"sysctl -n {name}").split()[-1])

    def end(self) -> None:
        """Switch the guest off: it has to end in good order."""
        self.vm.power_off()


def iperf3(client: Peer, server: Peer, host: str, words: str) -> dict[str, Any]:
    """Transfer data by iperf3; returns what its report says of the end."""
    with server.start("iperf3 -s -1") as listener:
        wait_for("iperf3 -s", lambda: server.run("ss -Hltn sport = 5201"))
        try:
            text = client.run(f"iperf3 -c {shlex.quote(host)} -J {words}", TIMEOUT)
            listener.communicate(timeout=60)
        finally:
            listener.kill()
    report: dict[str, Any] = json.loads(text)
    if "error" in report:
        raise LabFailure(f"iperf3: {report['error']}")
    end: dict[str, Any] = report["end"]
    return end


def blob(number: int, size: int) -> bytes:
    """Reproducible random bytes."""
    return random.Random(number).randbytes(size)


def listen_hash(server: Peer, host: str, pause: float = 0) -> Program:
    """Take one connection and print the hash of what comes; pause makes it a slow reader."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    accept = f"import hashlib, socket, time; l = socket.socket({int(family)});" \
             "l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);" \
             "l.bind((\"\", 5301)); l.listen(); s, a = l.accept();" \
             "h = hashlib.sha256();" \
             "more = iter(lambda: s.recv(1 << 16), b\"\");" \
             f"[(h.update(d), time.sleep({pause})) for d in more];" \
             "print(h.hexdigest())"
    listener = server.start(f"{sys.executable} -c '{accept}'")
    wait_for("listener", lambda: server.run("ss -Hltn sport = 5301"))
    return listener


def transfer_starts(client: Peer, server: Peer, host: str,
                    size: int) -> list[Program]:
    """Start to send random bytes over TCP; transfer_ends() compares what came."""
    connect = f"import random, socket; s = socket.create_connection((\"{host}\", 5301));" \
              f"s.sendall(random.Random({size}).randbytes({size}))"
    listener = listen_hash(server, host)
    sender = client.start(f"{sys.executable} -c '{connect}'")
    return [sender, listener]


def transfer_ends(pair: list[Program], size: int) -> None:
    """Wait for a transfer and compare the hash."""
    said, _ = pair[0].communicate(timeout=TIMEOUT)
    if pair[0].returncode != 0:
        raise LabFailure(f"sender: {said}")
    got, _ = pair[1].communicate(timeout=60)
    if got.strip() != hashlib.sha256(blob(size, size)).hexdigest():
        raise LabFailure(f"{size} bytes were sent, and others came: {got}")


def transfer(client: Peer, server: Peer, host: str, size: int) -> None:
    """Send random bytes over TCP and compare the hash."""
    transfer_ends(transfer_starts(client, server, host, size), size)
