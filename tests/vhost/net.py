# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A virtio network card (VirtIO 1.3, 5.1) with netpeer's host at the other end of its cable."""

from __future__ import annotations

import argparse
import collections
import importlib.machinery
import importlib.util
import ipaddress
import pathlib
import struct
from typing import TYPE_CHECKING, Any

import corpus
import device
import layout
import ring

if TYPE_CHECKING:
    from types import ModuleType

HEADER = struct.Struct("<BBHHHHH")
HASH = struct.Struct("<IHxx")
HEADER_FIELDS = ["flags", "gso_type", "hdr_len", "gso_size", "csum_start", "csum_offset",
                 "num_buffers"]
WAITING_MAX = 1000

NEEDS_CSUM = 1
# Kinds of GSO packets: feature, gso_type, IP version, protocol.
KINDS = {
    "tcp4": ("GUEST_TSO4", 1, 4, 6), "tcp6": ("GUEST_TSO6", 4, 6, 6),
    "udp4": ("GUEST_USO4", 5, 4, 17), "udp6": ("GUEST_USO6", 5, 6, 17),
    "ecn4": ("GUEST_ECN", 0x81, 4, 6),
}
MODES = ["promisc", "allmulti", "alluni", "nomulti", "nouni", "nobcast"]
OFFLOADS = ["GUEST_CSUM", "GUEST_TSO4", "GUEST_TSO6", "GUEST_ECN", "GUEST_USO4", "GUEST_USO6"]


def load_netpeer() -> ModuleType:
    """tests/netpeer, which is a program without a suffix."""
    path = str(pathlib.Path(__file__).resolve().parent.parent / "netpeer")
    loader = importlib.machinery.SourceFileLoader("netpeer", path)
    spec = importlib.util.spec_from_loader("netpeer", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


netpeer = load_netpeer()


def transport(to: bytes, version: int, protocol: int, data: bytes, sequence: int,
              finished: bool, flags: int = 0x10) -> tuple[bytes, int]:
    """A frame of TCP or UDP to port 7777 of a host's usual address, and where its header is.

    The checksum is complete if finished is set, else that of the pseudo header.
    """
    if protocol == netpeer.IPPROTO_TCP:
        segment, at = struct.pack(">HHIIBBHHH", 9000, 7777, 1 + sequence, 1, 0x50, flags,
                                  0x1000, 0, 0), 16
    else:
        segment, at = struct.pack(">HHHH", 9000, 7777, 8 + len(data), 0), 6
    segment += data
    if version == 4:
        there = bytes([10, 9, 0, 2])
        pseudo = netpeer.pseudo(netpeer.IP, there, protocol, len(segment))
    else:
        there = bytes.fromhex("fe80" + 12 * "0") + bytes(
            [to[0] ^ 2, to[1], to[2], 0xFF, 0xFE, to[3], to[4], to[5]])
        pseudo = netpeer.pseudo(netpeer.IP6, there, protocol, len(segment))
    if finished:
        segment = netpeer.with_checksum(segment, at, pseudo)
    else:
        total = ~netpeer.checksum(pseudo) & 0xFFFF
        segment = segment[:at] + struct.pack(">H", total) + segment[at + 2:]
    packet = netpeer.ipv4(there, protocol, segment) if version == 4 else netpeer.ipv6(
        there, protocol, segment)
    frame = bytes(to) + netpeer.MAC + (b"\x08\0" if version == 4 else b"\x86\xdd") + packet
    return frame, len(frame) - len(segment)


class Peer(netpeer.Peer):  # type: ignore[name-defined,misc]
    """netpeer's host, whose cable is our queues."""

    def __init__(self, card: Net) -> None:
        super().__init__(None)
        self.card = card

    def send(self, frame: bytes) -> None:
        """Send a frame to the guest."""
        self.card.send(frame)


class Net(device.Device):
    """The card: queue 0 receives, queue 1 sends, as the guest sees it."""

    type_id = 1
    queues_of_type = 2
    feature_names = {  # noqa: RUF012
        "CSUM": 0, "GUEST_CSUM": 1, "CTRL_GUEST_OFFLOADS": 2, "MTU": 3, "MAC": 5, "GUEST_TSO4": 7,
        "GUEST_TSO6": 8, "GUEST_ECN": 9, "GUEST_UFO": 10, "HOST_TSO4": 11, "HOST_TSO6": 12,
        "HOST_ECN": 13, "HOST_UFO": 14, "MRG_RXBUF": 15, "STATUS": 16, "CTRL_VQ": 17,
        "CTRL_RX": 18, "CTRL_VLAN": 19, "CTRL_RX_EXTRA": 20, "GUEST_ANNOUNCE": 21, "MQ": 22,
        "CTRL_MAC_ADDR": 23, "VQ_NOTF_COAL": 52, "NOTF_COAL": 53, "GUEST_USO4": 54,
        "GUEST_USO6": 55, "HOST_USO": 56, "HASH_REPORT": 57,
        "GUEST_HDRLEN": 59, "RSS": 60, "RSC_EXT": 61, "STANDBY": 62, "SPEED_DUPLEX": 63,
    }
    default_features = ["MAC", "MRG_RXBUF", "STATUS", "GUEST_CSUM"]  # noqa: RUF012
    fields = {  # noqa: RUF012
        "mac": (0, 6), "status": (6, 2), "max_virtqueue_pairs": (8, 2), "mtu": (10, 2),
        "speed": (12, 4), "duplex": (16, 1), "rss_max_key_size": (17, 1),
        "rss_max_indirection_table_length": (18, 2), "supported_hash_types": (20, 4),
    }
    config_size = 24

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        for setting in ("mac=02:00:00:00:00:02", "status=1", "max_virtqueue_pairs=1", "mtu=1500",
                        *args.set):
            self.set_config(setting)
        self.peer = Peer(self)
        self.waiting: collections.deque[tuple[bytes, dict[str, int]]] = collections.deque()
        self.ack = 0
        self.refused: list[tuple[int, ...]] = []
        self.hash = (0, 0)
        self.asks_at_start: dict[int, tuple[str, int]] = {}
        self.forget()

    def forget(self) -> None:
        """Set the state after a reset."""
        self.offloads = -1
        self.pairs = 1
        self.target = 0
        self.vlans: set[int] = set()
        self.modes: dict[str, int] = {}
        self.table: list[list[str]] = [[], []]
        self.coalescing: dict[str, tuple[int, int]] = {}
        self.steering: dict[str, Any] = {}
        self.mac = ""

    def agree(self, features: int) -> None:
        """The driver accepted features; all offloads are on until it sets others (5.1.6.5.6)."""
        super().agree(features)
        self.forget()

    def started(self, queue: ring.Queue) -> None:
        """Ask the guest before it knows that the queue is enabled."""
        super().started(queue)
        if queue.index in self.asks_at_start:
            self.flood(*self.asks_at_start.pop(queue.index))

    def flood(self, address: str, count: int) -> None:
        """Send echo requests, and wait for no answer."""
        to = ipaddress.ip_address(address).packed
        for number in range(count):
            body = struct.pack(">BBHHH", 8, 0, 0, 1, number) + netpeer.echo_data(number, 100)
            self.peer.send_packet(netpeer.ETHERTYPE_IP, netpeer.ipv4(
                to, netpeer.IPPROTO_ICMP, netpeer.with_checksum(body, 2)))

    def stopped(self, queue: ring.Queue) -> int:
        """A queue's own coalescing parameters are lost with it (5.1.6.5.10)."""
        self.coalescing.pop(f"q{queue.index}", None)
        return super().stopped(queue)

    def may(self, name: str) -> bool:
        """Is this offload on?"""
        return self.has(name) and bool(self.offloads & self.bit(name))

    def wants(self, queue: ring.Queue) -> bool:
        """Receive buffers are needed only while frames are queued for them."""
        return queue.index % 2 == 1 or queue.index == self.control_index() or bool(self.waiting)

    def process(self, queue: ring.Queue) -> None:
        """Take frames that the guest sends, or its buffers for queued frames."""
        if queue.index == self.control_index():
            self.process_control(queue)
        elif queue.index % 2 == 0:
            while self.waiting and self.place(queue, *self.waiting[0]):
                self.waiting.popleft()
        else:
            while (chain := queue.pop()) is not None:
                data = ring.gather(self.memory, chain.readable)
                # After an answer in the wrong place of a packed ring it may be what we wrote there.
                if len(data) < self.header_size():
                    self.count("without_header")
                    queue.complete(chain, 0)
                    continue
                self.note_header(data[:min(self.header_size(), HEADER.size)])
                self.count(f"tx_queue_{queue.index // 2}")
                queue.complete(chain, self.quirk.length("sent", chain, 0))
                self.peer.receive(data[self.header_size():])

    def note_header(self, data: bytes) -> None:
        """Count the offloads that the guest requested in a header."""
        flags, gso_type = data[:2]
        # A legacy header without MRG_RXBUF ends before it.
        num_buffers = data[HEADER.size - 2:]
        if any(num_buffers):
            raise ValueError(f"num_buffers is {num_buffers.hex()}, not 0 (5.1.6.2.1)")
        self.count(f"tx_flags_{flags}_gso_{gso_type}")

    def control_index(self) -> int:
        """The control queue is the last one."""
        return len(self.queues) - 1 if self.has("CTRL_VQ") else -1

    def process_control(self, queue: ring.Queue) -> None:
        """Answer control commands; those of refused classes all get the same answer."""
        while (chain := queue.pop()) is not None:
            command = ring.gather(self.memory, chain.readable)
            self.count(f"control_{command[0]}_{command[1]}")
            ack = self.ack
            if tuple(command[:1]) in self.refused or tuple(command[:2]) in self.refused:
                ack = 1
            if ack == 0:
                self.obey(command[0], command[1], command[2:])
            ring.scatter(self.memory, chain.writable, bytes([ack]))
            queue.complete(chain, self.quirk.length("control", chain, 1))

    def obey(self, kind: int, command: int, data: bytes) -> None:
        """Execute a control command."""
        value = int.from_bytes(data, "little")
        match kind, command:
            case 0, _:
                self.modes[MODES[command]] = value
            case 1, 0:
                self.configure_table(data)
            case 1, 1:
                self.mac = data.hex(":")
            case 2, 0:
                self.vlans.add(value)
            case 2, 1:
                self.vlans.discard(value)
            case 3, 0:
                self.config[6] &= ~2
            case 4, 0:
                self.pairs = value
            case 4, 1:
                self.configure_rss(data)
            case 4, 2:
                types, length = struct.unpack_from("<I8xB", data)
                self.steering = {"types": types, "key": data[13:].hex(), "length": length}
            case 5, 0:
                self.offloads = value
            case 6, 0 | 1:
                # For each queue of the kind, whatever it had (5.1.6.5.10).
                for queue in range((command + 1) % 2, len(self.queues) - 1, 2):
                    self.coalescing.pop(f"q{queue}", None)
                self.coalescing["tr"[command] + "x"] = struct.unpack("<II", data)
            case 6, 2:
                queue, packets, usecs = struct.unpack("<HxxII", data)
                self.coalescing[f"q{queue}"] = (packets, usecs)

    def configure_table(self, data: bytes) -> None:
        """Set the unicast and multicast addresses to receive for (5.1.6.5.2)."""
        for kind in range(2):
            count = int.from_bytes(data[:4], "little")
            if len(data) < 4 + 6 * count:
                self.count("bad_table")
                return
            self.table[kind] = [data[4 + 6 * n:10 + 6 * n].hex(":") for n in range(count)]
            data = data[4 + 6 * count:]
        if data:
            self.count("bad_table")

    def configure_rss(self, data: bytes) -> None:
        """Set the hashes, and the queues that they select."""
        types, mask, other = struct.unpack_from("<IHH", data)
        table = struct.unpack_from(f"<{mask + 1}H", data, 8)
        pairs, length = struct.unpack_from("<HB", data, 10 + 2 * mask)
        key = data[13 + 2 * mask:]
        self.pairs = pairs
        self.steering = {"types": types, "table": len(table), "queues": sorted(set(table)),
                         "other": other, "length": length, "key": key.hex()}
        if len(key) != length or max(table) >= pairs:
            self.count("bad_rss")

    def settings(self) -> dict[str, Any]:
        """The state, with each address and each tag, of the queues in use."""
        wanted = super().settings()
        unused = range(2 * self.pairs, len(self.queues) - 1)
        wanted["queues"] = {index: size for index, size in wanted["queues"].items()
                            if index not in unused}
        wanted["vectors"] = [vector for number, vector in enumerate(wanted.get("vectors", []))
                             if number - 1 not in unused]
        wanted |= self.state()
        wanted["coalescing"] = {which: values for which, values in self.coalescing.items()
                                if which not in [f"q{index}" for index in unused]}
        return wanted | {
            "vlans": sorted(self.vlans), "hosts": sorted(self.table[0]),
            "groups": sorted(self.table[1]), "mac": self.mac}

    def state(self) -> dict[str, Any]:
        """The state that the driver has set."""
        return {"features": [name for name in self.names if self.has(name)],
                "offloads": [name for name in OFFLOADS if self.may(name)], "pairs": self.pairs,
                "vlans": len(self.vlans), "modes": self.modes, "hosts": self.table[0],
                "groups": len(self.table[1]), "coalescing": self.coalescing,
                "steering": self.steering}

    def big(self, kind: str, size: int, segment: int) -> None:
        """Send so many bytes over TCP or UDP: in one frame if the driver accepts GSO packets."""
        feature, gso_type, version, protocol = KINDS[kind]
        whole = self.may(feature) and size > segment
        for at in range(0, size, size if whole else segment):
            length = size if whole else min(segment, size - at)
            frame, start = transport(bytes(self.config[:6]), version, protocol,
                                     netpeer.echo_data(at, length), at,
                                     not self.may("GUEST_CSUM"))
            offset = 16 if protocol == netpeer.IPPROTO_TCP else 6
            header = {}
            if self.may("GUEST_CSUM"):
                header = {"flags": NEEDS_CSUM, "csum_start": start, "csum_offset": offset}
            if whole:
                header |= {"gso_type": gso_type, "gso_size": segment,
                           "hdr_len": len(frame) - length}
            self.count(f"big_{kind}" if whole else f"small_{kind}")
            self.send(frame, header)

    def bridged(self, kind: str, size: int, segment: int, to: bytes, tag: int) -> None:
        """Send so many bytes over TCP in one frame of a VLAN to another host."""
        feature, gso_type, version, protocol = KINDS[kind]
        if not self.may(feature) or protocol != netpeer.IPPROTO_TCP:
            raise device.CommandError(f"the driver takes no {kind}")
        congested = gso_type & 0x80
        frame, start = transport(to, version, protocol, netpeer.echo_data(0, size), 0, False,
                                 0x10 | congested)
        frame = frame[:12] + struct.pack(">HH", 0x8100, tag) + frame[12:]
        self.send(frame, {"flags": NEEDS_CSUM, "csum_start": start + 4, "csum_offset": 16,
                          "gso_type": gso_type, "gso_size": segment, "hdr_len": start + 24})

    def send(self, frame: bytes, header: dict[str, int] | None = None) -> None:
        """Send a frame to the guest."""
        with self.lock:
            if len(self.waiting) >= WAITING_MAX:
                self.count("overflows")
                return
            self.waiting.append((frame, header or {}))
            queue = self.queues[2 * self.target]
            if queue.live:
                self.kicked(queue)

    def header_size(self) -> int:
        """Bytes before a frame."""
        if not self.has("VERSION_1") and not self.has("MRG_RXBUF"):
            return HEADER.size - 2
        return HEADER.size + (HASH.size if self.has("HASH_REPORT") else 0)

    def header(self, buffers: int, fields: dict[str, int]) -> bytes:
        """A packet's header, with an invalid value if a violation is due."""
        values = dict.fromkeys(HEADER_FIELDS, 0) | fields | {"num_buffers": buffers}
        values |= self.teller.take("header", 0) or {}
        data = HEADER.pack(*values.values())
        data = data + HASH.pack(*self.hash) if self.has("HASH_REPORT") else data
        return data[:self.header_size()]

    def place(self, queue: ring.Queue, frame: bytes, header: dict[str, int]) -> bool:
        """Put a frame into as many buffers as it takes; False if there are too few."""
        chains: list[layout.Chain] = []
        need = self.header_size() + len(frame)
        while sum(chain.room() for chain in chains) < need:
            chain = queue.pop()
            if chain is None:
                queue.early.extendleft(reversed(chains))
                return False
            chains.append(chain)
        data = self.header(len(chains), header) + frame
        for chain in chains:
            done = ring.scatter(self.memory, chain.writable, data)
            data = data[done:]
            queue.complete(chain, done)
        self.count("rx_frames")
        self.count(f"rx_frames_in_{len(chains)}")
        return True

    def command(self, words: list[str]) -> Any:
        """The card's commands, then netpeer's."""
        match words:
            case ["ack", value]:
                self.ack = int(value, 0)
                return {}
            case ["refuse", *classes]:
                self.refused = [tuple(int(n) for n in kind.split("/")) for kind in classes]
                return {}
            case ["frame", size, *count]:
                frame = self.config[:6] + netpeer.MAC + b"\x88\xb5" + bytes(max(int(size) - 14, 0))
                for _ in range(int(count[0]) if count else 1):
                    self.send(bytes(frame[:int(size)]))
                return {}
            case ["big", kind, size, segment, *count]:
                for _ in range(int(count[0]) if count else 1):
                    self.big(kind, int(size), int(segment))
                return {}
            case ["bridged", kind, size, segment, to, tag]:
                self.bridged(kind, int(size), int(segment),
                             bytes.fromhex(to.replace(":", "")), int(tag))
                return {}
            case ["corpus", place]:
                for sent, header, _ in corpus.sample(place):
                    mac = bytes(self.config[:6]) if place == "router" else sent[:6]
                    self.send(mac + sent[6:], header)
                return {}
            case ["state"]:
                return self.state()
            case ["target", pair]:
                self.target = int(pair)
                return {}
            case ["hash", value, kind]:
                self.hash = (int(value, 0), int(kind))
                return {}
            case ["flood", address, count]:
                self.flood(address, int(count))
                return {}
            case ["at-start", queue, address, count]:
                self.asks_at_start[int(queue)] = (address, int(count))
                return {}
            case ["waiting"]:
                return {"waiting": len(self.waiting)}
            case ["ping" | "ping6" | "udp" | "send" | "reset", *_]:
                return self.peer.command(words)
            case ["peer", *rest]:
                return self.peer.command(rest)
        return super().command(words)
