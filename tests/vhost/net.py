# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A virtio network card (VirtIO 1.3, 5.1) with netpeer's host at the other end of its cable."""

from __future__ import annotations

import argparse
import collections
import importlib.machinery
import importlib.util
import pathlib
import struct
from typing import TYPE_CHECKING, Any

import device
import ring

if TYPE_CHECKING:
    from types import ModuleType

HEADER = struct.Struct("<BBHHHHH")
HEADER_FIELDS = ["flags", "gso_type", "hdr_len", "gso_size", "csum_start", "csum_offset",
                 "num_buffers"]
WAITING_MAX = 1000


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
        "CTRL_RX": 18, "CTRL_VLAN": 19, "GUEST_ANNOUNCE": 21, "MQ": 22, "CTRL_MAC_ADDR": 23,
        "NOTF_COAL": 53, "GUEST_USO4": 54, "GUEST_USO6": 55, "HOST_USO": 56, "HASH_REPORT": 57,
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
        self.waiting: collections.deque[bytes] = collections.deque()
        self.sent_headers: collections.Counter[str] = collections.Counter()
        self.ack = 0

    def wants(self, queue: ring.Queue) -> bool:
        """Buffers for receiving are of use only for frames that wait."""
        return queue.index % 2 == 1 or queue.index == self.control_index() or bool(self.waiting)

    def process(self, queue: ring.Queue) -> None:
        """Take frames that the guest sends, or its buffers for frames that wait."""
        if queue.index == self.control_index():
            self.process_control(queue)
        elif queue.index % 2 == 0:
            while self.waiting and self.place(queue, self.waiting[0]):
                self.waiting.popleft()
        else:
            while (chain := queue.pop()) is not None:
                data = ring.gather(self.memory, chain.readable)
                self.note_header(data[:HEADER.size])
                queue.complete(chain, 0)
                self.peer.receive(data[HEADER.size:])

    def note_header(self, data: bytes) -> None:
        """Count what the guest asked for in a header."""
        flags, gso_type, *_ = HEADER.unpack(data)
        self.count(f"tx_flags_{flags}_gso_{gso_type}")

    def control_index(self) -> int:
        """The control queue comes last."""
        return len(self.queues) - 1 if self.has("CTRL_VQ") else -1

    def process_control(self, queue: ring.Queue) -> None:
        """Answer control commands, all in the same way."""
        while (chain := queue.pop()) is not None:
            command = ring.gather(self.memory, chain.readable)
            self.count(f"control_{command[0]}_{command[1]}")
            ring.scatter(self.memory, chain.writable, bytes([self.ack]))
            queue.complete(chain, 1)

    def send(self, frame: bytes) -> None:
        """Send a frame to the guest."""
        with self.lock:
            if len(self.waiting) >= WAITING_MAX:
                self.count("overflows")
                return
            self.waiting.append(frame)
            queue = self.queues[0]
            if queue.live:
                self.process(queue)
                queue.publish()
                queue.ask_kicks()

    def header(self, buffers: int) -> bytes:
        """A packet's header, with a lie in it if one is due."""
        values = dict.fromkeys(HEADER_FIELDS, 0) | {"num_buffers": buffers}
        values |= self.teller.take("header", 0) or {}
        return HEADER.pack(*values.values())

    def place(self, queue: ring.Queue, frame: bytes) -> bool:
        """Put a frame into as many buffers as it takes; False if there are too few."""
        chains: list[ring.Chain] = []
        need = HEADER.size + len(frame)
        while sum(chain.room() for chain in chains) < need:
            chain = queue.pop()
            if chain is None:
                queue.early.extendleft(reversed(chains))
                return False
            chains.append(chain)
        data = self.header(len(chains)) + frame
        for chain in chains:
            done = ring.scatter(self.memory, chain.writable, data)
            data = data[done:]
            queue.complete(chain, done)
        self.count("rx_frames")
        return True

    def command(self, words: list[str]) -> Any:
        """Commands of ours, then netpeer's."""
        match words:
            case ["ack", value]:
                self.ack = int(value, 0)
                return {}
            case ["frame", size, *count]:
                frame = self.config[:6] + netpeer.MAC + b"\x88\xb5" + bytes(max(int(size) - 14, 0))
                for _ in range(int(count[0]) if count else 1):
                    self.send(bytes(frame[:int(size)]))
                return {}
            case ["waiting"]:
                return {"waiting": len(self.waiting)}
            case ["ping" | "ping6" | "udp" | "send" | "reset", *_]:
                return self.peer.command(words)
            case ["peer", *rest]:
                return self.peer.command(rest)
        return super().command(words)
