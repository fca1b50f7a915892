# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest whose network cables end in this program, which plays the other hosts by hand.

Machine boots a guest; its frames come here by QEMU's `-netdev stream` (Cable).  With Host, which
has one, we answer ARP and neighbour
solicitations by ourselves; each TCP segment is what a test sends and waits for (Conn), over IPv4 or
IPv6, which differ in Net alone.  Nothing needs privileges, and nothing depends on time but for how
long a test waits before it gives up.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import pathlib
import queue
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "net"))

import netlab
from netlab import LabFailure

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
WAIT = 60.0
TIMEOUT = 200.0
OPT_MSS = bytes((2, 4, 5, 180))
OPT_SACK = bytes((1, 1, 4, 2))
OPT_SCALE = bytes((1, 3, 3, 0))
PORTS = iter(range(20000, 30000))

peer = netlab.load_program("tests/netpeer")


def less(a: int, b: int) -> bool:
    """Is one sequence number before another?"""
    return (a - b) & 0xFFFFFFFF > 0x7FFFFFFF


def pattern(start: int, end: int) -> bytes:
    """The data that `nc -d` sends, and expects."""
    return (bytes(range(256)) * ((end - start) // 256 + 2))[start % 256:][:end - start]


def timestamps(value: int, echo: int) -> bytes:
    """The option."""
    return struct.pack(">BBBBII", 1, 1, 8, 10, value, echo)


def sack(*blocks: tuple[int, int]) -> bytes:
    """The option that reports what has arrived."""
    body = b"".join(struct.pack(">I", edge & 0xFFFFFFFF) for block in blocks for edge in block)
    return bytes((1, 1, 5, 2 + len(body))) + body


@dataclass
class Segment:
    """A TCP segment from the guest."""

    sport: int
    dport: int
    seq: int
    ack: int
    flags: int
    window: int
    options: bytes
    data: bytes
    blocks: list[tuple[int, int]] = field(default_factory=list)
    stamp: int | None = None
    told: dict[int, bytes] = field(default_factory=dict)  # options: what they say

    def parse_options(self) -> None:
        """Find SACK blocks, the timestamp, and what else there is."""
        rest = self.options
        while rest and rest[0] != 0:
            if rest[0] == 1:
                rest = rest[1:]
                continue
            kind, length = rest[0], rest[1]
            self.told[kind] = rest[2:length]
            if kind == 5:
                self.blocks = list(struct.iter_unpack(">II", rest[2:length]))
            elif kind == 8:
                self.stamp = struct.unpack(">I", rest[2:6])[0]
            rest = rest[length:]


class Net:
    """What IPv4 and IPv6 do differently."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.host, self.guest = ("10.9.0.1", "10.9.0.2") if version == 4 else ("fd09::1", "fd09::2")
        self.ours = ipaddress.ip_address(self.host).packed
        self.theirs = ipaddress.ip_address(self.guest).packed
        self.kind = b"\x08\0" if version == 4 else b"\x86\xdd"
        self.headers = 40 if version == 4 else 60  # of IP and TCP
        self.mss = 1500 - self.headers
        self.least_mtu = 576 if version == 4 else 1280

    def packet(self, protocol: int, payload: bytes) -> bytes:
        """A packet to the guest."""
        if self.version == 4:
            return bytes(peer.ipv4(self.theirs, protocol, payload))
        return bytes(peer.ipv6(self.theirs, protocol, payload, self.ours))

    def checked(self, protocol: int, message: bytes, at: int) -> bytes:
        """A message to the guest with its checksum at the offset."""
        before = peer.pseudo(self.ours, self.theirs, protocol, len(message))
        return bytes(peer.with_checksum(message, at, before))

    def tcp(self, kind: bytes, packet: bytes) -> bytes | None:
        """The segment of a packet that is for us, if it has one."""
        if kind != self.kind:
            return None
        if self.version == 4:
            mine, protocol, start = packet[16:20], packet[9], (packet[0] & 15) * 4
            end = int.from_bytes(packet[2:4], "big")
        else:
            mine, protocol, start = packet[24:40], packet[6], 40
            end = start + int.from_bytes(packet[4:6], "big")
        if mine != self.ours or protocol != peer.IPPROTO_TCP:
            return None
        tcp = packet[start:end]
        if peer.checksum(peer.pseudo(self.theirs, mine, 6, len(tcp)) + tcp) != 0:
            raise LabFailure("a segment of the guest has a wrong checksum")
        return tcp

    def answer(self, kind: bytes, packet: bytes) -> bytes | None:
        """Our answer, if the packet asks who has our address."""
        if kind == b"\x08\x06" and packet[7] == 1 and packet[24:28] == self.ours:
            return bytes(packet[:6] + b"\0\2" + peer.MAC + self.ours + packet[8:18])
        if kind != b"\x86\xdd" or packet[6] != peer.IPPROTO_ICMPV6 or packet[40] != 135 or (
                packet[48:64] != self.ours or packet[8:24] == bytes(16)):
            return None
        told = struct.pack(">BBHI16sBB6s", 136, 0, 0, 0x60000000, self.ours, 2, 1, peer.MAC)
        before = peer.pseudo(self.ours, packet[8:24], peer.IPPROTO_ICMPV6, len(told))
        return bytes(peer.ipv6(packet[8:24], peer.IPPROTO_ICMPV6,
                               peer.with_checksum(told, 2, before), self.ours))

    def error(self, mtu: int, segment: bytes) -> bytes:
        """The ICMP error on a segment of the guest, which was too big for mtu or (0) unwanted."""
        if self.version == 4:
            inner = struct.pack(">BBHHHBBH", 0x45, 0, 1500, 1, 0x4000, 63, 6, 0)
            inner += self.theirs + self.ours + segment
            return self.packet(1, peer.with_checksum(
                struct.pack(">BBHHH", 3, 4 if mtu else 3, 0, 0, mtu) + inner, 2))
        inner = struct.pack(">IHBB", 6 << 28, 1460, 6, 63) + self.theirs + self.ours + segment
        head = struct.pack(">BBHI", 2 if mtu else 1, 0 if mtu else 4, 0, mtu)
        return self.packet(peer.IPPROTO_ICMPV6, self.checked(58, head + inner, 2))


class Cable:
    """The other end of one of the guest's cables."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.frames: queue.Queue[bytes] = queue.Queue()
        self.answer: Callable[[bytes], bytes | None] = lambda _: None
        self.taking = threading.Event()
        self.taking.set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        # It comes with QEMU's connection, which this process may see late.
        self.link: Future[socket.socket] = Future()
        threading.Thread(target=self.receive_all, daemon=True).start()

    def receive_all(self) -> None:
        """Take frames until the guest ends."""
        link, _ = self.listener.accept()
        self.link.set_result(link)
        with contextlib.suppress(OSError), link.makefile("rb") as stream:
            while head := stream.read(4):
                self.taking.wait()
                self.receive(stream.read(int.from_bytes(head, "big")))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Take nothing meanwhile, so that the guest can't send."""
        self.taking.clear()
        try:
            yield
        finally:
            self.taking.set()

    def receive(self, frame: bytes) -> None:
        """Take one frame: answer it, or leave it to the test."""
        answer = self.answer(frame)
        if answer is not None:
            self.send(answer)
        else:
            self.frames.put(frame)

    def send(self, *frames: bytes) -> None:
        """Send frames to the guest, all at once."""
        frames = tuple(frame.ljust(60, b"\0") for frame in frames)
        self.link.result(WAIT).sendall(
            b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))

    def until(self, good: Callable[[bytes], bool], what: str = "a frame") -> list[bytes]:
        """What comes, up to a frame that is good."""
        end = time.monotonic() + WAIT
        came: list[bytes] = []
        while not came or not good(came[-1]):
            try:
                came.append(self.frames.get(timeout=max(end - time.monotonic(), 0)))
            except queue.Empty:
                raise LabFailure(f"{what} did not come, but {[f.hex() for f in came]}") from None
        return came

    def wait(self, what: str, good: Callable[[bytes], bool]) -> bytes:
        """Wait for a frame; others that come before it are dropped."""
        return self.until(good, what)[-1]

    def rest(self) -> list[bytes]:
        """Received segments that were not examined."""
        came = []
        with contextlib.suppress(queue.Empty):
            while True:
                came.append(self.frames.get_nowait())
        return came


class Wire(Cable):
    """The cable that Host's end is at: what comes is segments."""

    def __init__(self, path: str, net: Net) -> None:
        self.net = net
        self.segments: queue.Queue[Segment] = queue.Queue()
        self.mac = peer.BROADCAST
        super().__init__(path)

    def receive(self, frame: bytes) -> None:
        """Take one frame."""
        kind, packet = frame[12:14], frame[14:]
        self.mac = frame[6:12]
        answer = self.net.answer(kind, packet)
        if answer is not None:
            self.send_packets(kind, answer)
        tcp = self.net.tcp(kind, packet)
        if tcp is None:
            return
        sport, dport, seq, ack, offset, flags, window = struct.unpack(">HHIIBBH", tcp[:16])
        offset = (offset >> 4) * 4
        segment = Segment(sport, dport, seq, ack, flags, window, tcp[20:offset], tcp[offset:])
        segment.parse_options()
        self.segments.put(segment)

    def send_packets(self, kind: bytes, *packets: bytes) -> None:
        """Send packets to the guest, all at once."""
        self.send(*(self.mac + peer.MAC + kind + packet for packet in packets))

    def send_ip(self, *packets: bytes) -> None:
        """Send IP packets to the guest, all at once."""
        self.send_packets(self.net.kind, *packets)

    def wait_segment(self, what: str, good: Callable[[Segment], bool]) -> Segment:
        """Wait for a segment; others that come before it are dropped."""
        end = time.monotonic() + WAIT
        while True:
            try:
                segment = self.segments.get(timeout=max(end - time.monotonic(), 0))
            except queue.Empty:
                raise LabFailure(f"the guest did not send {what}") from None
            if good(segment):
                return segment


class Conn:
    """Our end of a connection."""

    def __init__(self, wire: Wire, port: int, guest_port: int) -> None:
        self.wire, self.port, self.guest_port = wire, port, guest_port
        self.iss = random.Random(port).getrandbits(32)
        self.seq = self.iss  # what we send next
        self.ack = 0  # what we want next
        self.irs = 0
        self.window = 65535
        self.stamp: int | None = None  # our timestamps' value: in use
        self.echo = 0
        self.shift = 0  # of the guest's windows
        self.edge = 0  # of the window that the guest told last, from iss on
        self.silly: list[int] = []  # windows that were opened, and are no segment
        self.syn: Segment | None = None  # the guest's answer to our SYN

    def note_window(self, segment: Segment) -> None:
        """Check a window that the guest advertised.

        It may not be opened by less than a segment, and not be taken back, but for what is lost
        when it is scaled.
        """
        if segment.flags & (ACK | RST) != ACK:
            return
        window = segment.window << (0 if segment.flags & SYN else self.shift)
        edge = (segment.ack + window - self.iss) & 0xFFFFFFFF
        if edge > self.edge and 0 < window <= self.wire.net.mss - (1 << self.shift):
            self.silly.append(window)
        if edge <= self.edge - (1 << self.shift):
            raise LabFailure(f"a window was taken back: {self.edge - edge} bytes of it")
        self.edge = max(self.edge, edge)

    def mine(self, segment: Segment) -> bool:
        """Is a segment of this connection?"""
        mine = segment.dport == self.port and self.guest_port in (0, segment.sport)
        if mine:
            self.note_window(segment)
        return mine

    def wait(self, what: str, good: Callable[[Segment], bool] = lambda _: True) -> Segment:
        """Wait for a segment of this connection."""
        segment = self.wire.wait_segment(what, lambda s: self.mine(s) and good(s))
        if segment.stamp is not None:
            self.echo = segment.stamp
        return segment

    def wait_ack(self, ack: int) -> Segment:
        """Wait until all up to a byte of ours is acknowledged."""
        return self.wait(f"an ACK of {ack - self.iss - 1}",
                         lambda s: bool(s.flags & ACK) and not less(s.ack, ack & 0xFFFFFFFF))

    def segment(self, flags: int = ACK, data: bytes = b"", seq: int | None = None,
                options: bytes = b"", ack: int | None = None) -> bytes:
        """A segment without its checksum; seq and ack are what they should be unless given."""
        if self.stamp is not None and not flags & RST:
            options += timestamps(self.stamp, self.echo)
        options += bytes(-len(options) % 4)
        seq = (self.seq if seq is None else seq) & 0xFFFFFFFF
        ack = (self.ack if ack is None else ack) & 0xFFFFFFFF if flags & ACK else 0
        head = struct.pack(">HHIIBBHHH", self.port, self.guest_port, seq, ack,
                           (20 + len(options)) // 4 << 4, flags, self.window, 0, 0)
        return head + options + data

    def send(self, flags: int = ACK, data: bytes = b"", **fields: Any) -> None:
        """Send a segment: see segment()."""
        self.send_raw(self.segment(flags, data, **fields))

    def send_raw(self, *segments: bytes) -> None:
        """Send segments, which get their checksums, all at once."""
        net = self.wire.net
        self.wire.send_ip(*(net.packet(6, net.checked(6, segment, 16)) for segment in segments))

    def icmp(self, mtu: int, seq: int) -> None:
        """Send the ICMP error on a segment of the guest that began at seq (see Net.error)."""
        quoted = struct.pack(">HHI", self.guest_port, self.port, seq & 0xFFFFFFFF)
        self.wire.send_ip(self.wire.net.error(mtu, quoted))

    def take_syn(self) -> Segment:
        """Wait for the guest's SYN."""
        syn = self.wait("a SYN", lambda s: s.flags == SYN)
        self.guest_port, self.irs = syn.sport, syn.seq
        self.ack = syn.seq + 1
        return syn

    def accept(self, options: bytes = OPT_MSS) -> None:
        """The guest connects, and gets its answer."""
        self.take_syn()
        self.send(SYN | ACK, options=options)
        self.seq += 1
        self.wait("the ACK of our SYN", lambda s: s.flags & ACK != 0 and not less(s.ack, self.seq))

    def connect(self, options: bytes = OPT_MSS) -> None:
        """Connect to the guest, when it has come to listen."""
        while True:
            self.send(SYN, options=options)
            answer = self.wait("an answer to our SYN", lambda s: s.flags & (SYN | RST) != 0)
            if not answer.flags & RST:
                break
            time.sleep(0.1)
        self.irs, self.ack, self.seq = answer.seq, answer.seq + 1, self.seq + 1
        self.syn, self.shift = answer, answer.told.get(3, b"\0")[0]
        self.send()

    def sent(self, least: int = 0) -> int:
        """How much the guest has sent that we did not acknowledge, when it is at least so much.

        It answers what lies before its window with an ACK that has the number of its next byte.
        """
        end = time.monotonic() + WAIT
        while True:
            self.send(seq=self.seq - 1)
            answer = self.wait("an ACK", lambda s: s.flags == ACK and not s.data)
            sent = (answer.seq - self.ack) & 0xFFFFFFFF
            if sent >= least:
                return sent
            if time.monotonic() > end:
                raise LabFailure(f"{sent} bytes were sent, not {least}")

    def put(self, segment: Segment) -> bytes:
        """What is next in a segment, which is to be acknowledged."""
        new = segment.data[(self.ack - segment.seq) & 0xFFFFFFFF:]
        self.ack += len(new)
        return new

    def take(self, size: int) -> bytes:
        """Take data from the guest in order, and acknowledge it; a FIN as well."""
        got = b""
        while len(got) < size:
            got += self.put(self.wait(f"byte {len(got)}", lambda s: len(s.data) > 0))
            self.send()
        return got

    def close_after_guest(self, last: Segment | None = None) -> None:
        """The guest's FIN, and ours."""
        if last is None or not last.flags & FIN:
            last = self.wait("a FIN", lambda s: s.flags & FIN != 0 and
                             (s.seq + len(s.data) - self.ack) & 0xFFFFFFFF == 0)
        self.ack += 1
        self.send(FIN | ACK)
        self.seq += 1
        self.wait_ack(self.seq)


class Machine:
    """A guest whose cables end here; to be used in a with statement."""

    def __init__(self, cables: Sequence[Cable], *options: str) -> None:
        self.cables = list(cables)
        self.options = list(options)
        self.tools = netlab.load_program("tools/guest")
        self.stack = contextlib.ExitStack()
        self.thread = ThreadPoolExecutor(1)
        self.vm: Any = None

    def __enter__(self) -> Self:
        """Boot the guest."""
        words = ["--accel", "tcg", "--log", "console.log", *self.options]
        for number, cable in enumerate(self.cables):
            words += ["--qemu=-netdev", f"--qemu=stream,id=net{number},server=off,addr.type=unix,"
                      f"addr.path={cable.path}", "--qemu=-device",
                      f"--qemu=virtio-net-pci,netdev=net{number},id=nic{number},romfile=,"
                      f"mac=52:54:00:12:34:{0x56 + number:02x}"]
        args: argparse.Namespace = self.tools.parser().parse_args(words)
        args.verbose_boot = False
        deadline = self.tools.Deadline(time.monotonic() + TIMEOUT)
        self.vm = self.stack.enter_context(self.tools.running(args, "tcg", deadline))
        self.line(netlab.NO_DAD)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """End the guest."""
        if kind is None:
            self.vm.power_off()
        self.stack.close()

    def run(self, line: str) -> tuple[int, str]:
        """Run a line at the console: its status and what it printed."""
        self.vm.unseen = b""
        self.vm.write(line.encode() + b"\n")
        status = self.vm.result(show=False)
        text = self.vm.unseen.decode(errors="replace")
        print(f"guest# {line}\n{text}status {status}", flush=True)
        return status, text

    def line(self, line: str, status: int = 0) -> str:
        """Run a line that has to end in a status."""
        got, text = self.run(line)
        if got != status:
            raise LabFailure(f"guest: {line}: status {got}, expected {status}\n{text}")
        return text

    def begin(self, line: str) -> Future[tuple[int, str]]:
        """Start a line, which ends while we play the other host."""
        return self.thread.submit(self.run, line)


class Host(Machine):
    """A guest with one cable, and the host at its other end."""

    def __init__(self, version: int, *options: str) -> None:
        self.net = Net(version)
        self.wire = Wire("net.sock", self.net)
        super().__init__([self.wire], *options)

    def __enter__(self) -> Self:
        """Boot the guest, which gets an address."""
        super().__enter__()
        family, bits = ("inet", 24) if self.net.version == 4 else ("inet6", 64)
        self.line(f"kldload if_vtnet; ifconfig vtnet0 {family} {self.net.guest}/{bits} up")
        return self

    def conn(self, port: int, guest_port: int = 0) -> Conn:
        """Our end of a connection to be, and nothing that came before it."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.wire.segments.get_nowait()
        return Conn(self.wire, port, guest_port)

    def to_listener(self, line: str = "nc -l -d 0 5001",
                    options: bytes = OPT_MSS) -> tuple[Conn, Future[tuple[int, str]]]:
        """Connect to a line of the guest that listens on port 5001."""
        conn = self.conn(next(PORTS), 5001)
        running = self.begin(line)
        conn.connect(options)
        return conn, running


def ended(running: Future[tuple[int, str]], status: int, text: str) -> None:
    """A line has to end in a status and to have said something."""
    got, said = running.result(timeout=WAIT + 30)
    if got != status or text not in said:
        raise LabFailure(f"status {got}, expected {status} and \"{text}\" in:\n{said}")
