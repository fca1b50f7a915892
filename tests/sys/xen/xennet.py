# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest of the Xen lab between Linux hosts, which are network namespaces of dom0.

         namespace a       dom0             the guest            dom0       namespace b
            eth0 --veth-- xenbr1 --vif N.0-- xn0 .... xn1 --vif N.1-- xenbr2 --veth-- eth0

Instead of xn the guest may have vtnet (CARDS): virtio's cards, which dom0's device model emulates
for an HVM guest, with a TAP device of dom0 behind each.

dom0's Linux is Debian's own, with VLANs and netem, which the kernel of the machine that runs the
tests need not have.  Its tools are those that `xenlab tools` installs; the programs that send and
receive are iperf, and httpd and wget of busybox.

A background command of a host (Peer.begin) leaves its output and status in files of dom0.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import pathlib
import shlex
import sys
import time
from types import TracebackType
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "net"))

import netlab
from netlab import LabFailure

TIMEOUT = 1800.0

# busybox's shell prefers its built-in commands to those of a folder.
TOOLS = ("for p in ip tc ethtool iperf; do eval \"$p() { /net/$p \\\"\\$@\\\"; }\"; done\n")


@dataclasses.dataclass(frozen=True)
class Card:
    """The kind of cards that the guest has, and their back ends in dom0."""

    driver: str
    # Arguments for tools/guest: for the guest, and for each card.
    guest: tuple[str, ...]
    net: str
    # The name of the other end, with the numbers of the guest and of the card.
    far: str
    # Whether tagged frames are offloaded too.
    tagged: bool
    # Error counters below dev.DRIVER.N that have to be 0.
    wrong: tuple[str, ...]
    # Whether GSO packets between hosts stay whole.  FreeBSD can't forward them: it answers that
    # they are too big.
    forwards_gso: bool = True

    @property
    def freebsd(self) -> bool:
        """Whether the guest is FreeBSD's kernel."""
        return any(word.startswith("freebsd") for word in self.guest)


# The driver is there from the beginning.
PRELOADED = "if_xn_load=YES"

BAD_OFFLOAD = ("rxq0.bad_offload", "txq0.bad_offload", "resets")

CARDS = {
    # netback has no offloads for tagged frames: Linux and the guest do everything in software.
    "xn": Card("xn", (), "", "vif{}.{}", False, (*BAD_OFFLOAD, "q0.tx_error")),
    # FreeBSD's GENERIC, on its own Xen core, as both types of guest.
    "generic": Card("xn", ("--os", "freebsd=generic", "--type", "hvm", "--env", PRELOADED),
                    "", "vif{}.{}", False, (*BAD_OFFLOAD, "q0.tx_error"), forwards_gso=False),
    "generic-pvh": Card("xn", ("--os", "freebsd=generic", "--env", PRELOADED),
                        "", "vif{}.{}", False, (*BAD_OFFLOAD, "q0.tx_error"), forwards_gso=False),
    # The front ends of the same cards and disks must not attach, so that the test can't pass by
    # using them.  GRUB reads this kind of disk faster; vtbd0 is a ram disk of dom0.
    "vtnet": Card("vtnet", ("--type", "hvm", "--xl", 'hdtype="ahci"',
                            "--xl", "device_model_args_hvm=['-global',"
                            " 'virtio-net-pci.romfile=', '-device', 'virtio-blk-pci,drive=d',"
                            " '-drive', 'file=/dev/ram0,format=raw,if=none,id=d']",
                            "--env", "hw.xen.disable_pv_nics=1",
                            "--env", "hw.xen.disable_pv_disks=1"),
                  ",model=virtio-net", "vif{}.{}-emu", True,
                  (*BAD_OFFLOAD, "watchdogs", "needs_resets", "ctrl_errors", "filter_errors",
                   "offload_errors", "vlan_errors")),
}


class Peer(netlab.Peer):
    """A Linux host: a network namespace of dom0, on a bridge."""

    def __init__(self, dom0: Any, name: str, bridge: str, mtu: int) -> None:
        self.name = name
        self.dom0 = dom0
        self.before: dict[str, int] = {}
        self.jobs = itertools.count()
        status, said = self.shell(
            # Remove the leftovers of a run that was interrupted.
            f"{{ kill -9 $(ip netns pids {name}); ip netns del {name}; ip link del {name}0; }}"
            f" 2>/dev/null; ip netns add {name} &&"
            f" ip link add {name}0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {name} &&"
            f" ip link set {name}0 master {bridge} up", 60)
        if status != 0:
            raise LabFailure(f"host {name}: {said}")
        # Unless configured, Linux sends small packets at round-trip times as long as these.
        self.run("cd /proc/sys/net && echo 0 >ipv6/conf/all/accept_dad &&"
                 " for d in default eth0; do echo 0 >ipv6/conf/$d/accept_dad &&"
                 " echo 0 >ipv6/conf/$d/accept_ra; done && echo 40 >ipv4/tcp_min_tso_segs;"
                 " ip link set lo up; ip link set eth0 up")

    def shell(self, words: str, timeout: float) -> tuple[int, str]:
        """Run a shell command in dom0 itself."""
        said: list[bytes] = []
        deadline = sys.modules["xen.errors"].Deadline(timeout)
        status: int = self.dom0.run(TOOLS + words, deadline, said.append)
        return status, b"".join(said).decode(errors="replace")

    def inside(self, words: str) -> str:
        """The command of dom0's shell that runs words in this namespace; /sys is not its own."""
        return f"nsenter --net=/run/netns/{self.name} sh -c {shlex.quote(TOOLS + words)}"

    def run(self, words: str, timeout: float = 300.0) -> str:
        """Run a shell command that has to succeed; returns what it printed."""
        status, said = self.shell(f"exec {self.inside(words)}", timeout)
        if status != 0:
            raise LabFailure(f"{self.name}: {words}: status {status}\n{said}")
        return said

    def serve(self, words: str) -> None:
        """Start a program that runs until the lab ends."""
        self.shell(f"{self.inside('exec ' + words)} >/run/{self.name}.log 2>&1 </dev/null &", 60)

    def begin(self, words: str) -> str:
        """Start a shell command in the background; returns its name."""
        job = f"/run/{self.name}.{next(self.jobs)}"
        self.shell(f"rm -f {job}.*; {{ {self.inside(words)} >{job}.out 2>&1; echo $? >{job}.part;"
                   f" mv {job}.part {job}.end; }} </dev/null >/dev/null 2>&1 &", 60)
        return job

    def busy(self, job: str) -> bool:
        """Whether a background command still runs."""
        return self.shell(f"[ -e {job}.end ]", 60)[0] != 0

    def end(self, job: str, timeout: float = 300.0) -> str:
        """Wait for a background command, which has to succeed; returns what it printed."""
        _, said = self.shell(f"until [ -e {job}.end ]; do sleep 0.2; done;"
                             f" cat {job}.end {job}.out", timeout)
        status, _, said = said.partition("\n")
        if status != "0":
            raise LabFailure(f"{self.name}: a command in the background: status {status}\n{said}")
        return said

    def listening(self, port: int) -> None:
        """Wait until something listens at a port of TCP."""
        self.run(f"until netstat -lnt | grep -q ':{port} '; do sleep 0.1; done", 60)

    def close(self) -> None:
        """End what runs in the namespace, and the namespace."""
        with contextlib.suppress(LabFailure):
            self.shell(f"kill -9 $(ip netns pids {self.name}); ip netns del {self.name}", 60)


class Lab(netlab.Lab):
    """A guest with cards on the bridges xenbr1 and so on; to be used in a with statement."""

    def __init__(self, kind: Card, cards: int, mtu: int = 9000,
                 options: list[str] | None = None) -> None:
        super().__init__([], [*kind.guest, *(options or [])])
        self.kind = kind
        self.count = cards
        self.mtu = mtu
        self.dom0: Any = None
        self.peers: list[Peer] = []
        self.number = ""

    def __enter__(self) -> Lab:
        """Boot the guest, and make a host on each of its bridges."""
        words = ["--accel", "tcg", "--log", "console.log", "--under", "xen",
                 "--timeout", str(TIMEOUT), *self.options]
        for number in range(self.count):
            words += ["--net", f"bridge:xenbr{number + 1},mtu={self.mtu}{self.kind.net}"]
        args: argparse.Namespace = self.tools.parser().parse_args(words)
        args.verbose_boot = False
        deadline = self.tools.Deadline(time.monotonic() + TIMEOUT)
        self.vm = self.stack.enter_context(self.tools.running(args, "tcg", deadline))
        self.dom0 = self.vm.session.lab
        limit = sys.modules["xen.errors"].Deadline(120)
        self.dom0.add_net_tools(limit)
        self.number = self.dom0.output(f"xl domid {self.vm.session.name}", limit)
        for number, name in enumerate("ab"[:self.count]):
            peer = Peer(self.dom0, name, f"xenbr{number + 1}", self.mtu)
            self.stack.callback(peer.close)
            self.peers.append(peer)
        if PRELOADED not in self.kind.guest:
            self.guest(f"kldload if_{self.kind.driver}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """End the guest and its peers."""
        self.stack.close()

    def shell(self, words: str) -> str:
        """Run a shell command in dom0 itself, which has to succeed."""
        status, said = self.peers[0].shell(words, 120)
        if status != 0:
            raise LabFailure(f"dom0: {words}: status {status}\n{said}")
        return said

    def fetch(self, name: str, target: str) -> None:
        """Get a file of dom0's."""
        self.dom0.get(name, pathlib.Path(target), sys.modules["xen.errors"].Deadline(120))

    def card(self, number: int) -> str:
        """The name of a card in the guest."""
        return f"{self.kind.driver}{number}"

    def vif(self, number: int) -> str:
        """The name of a card's other end in dom0."""
        return self.kind.far.format(self.number, number)

    def sent(self, number: int) -> tuple[int, int]:
        """Packets and bytes that the guest has sent by a card, as its other end counts them."""
        said = self.shell(f"cd /sys/class/net/{self.vif(number)}/statistics &&"
                          " cat rx_packets rx_bytes").split()
        return int(said[0]), int(said[1])
