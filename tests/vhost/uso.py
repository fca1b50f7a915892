# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Judge the datagrams of the guest's `pktgen -t`, alone or in trains, and make such trains.

A train is a packet with gso_type UDP_L4 (VirtIO 1.3, 5.1.6.2).  What a card does with it is done
here, with nothing of the driver's: headers for each datagram, checksums over all of it.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any

NEEDS_CSUM = 1
GSO_UDP_L4 = 5
UDP = 17
PORT = 9
MAC = bytes.fromhex("020000000001")
SENDERS = [bytes([198, 18, 0, 1]), bytes([0x20, 1, 0, 2]) + bytes(11) + b"\1"]


class BadTrainError(Exception):
    """What is wrong with it."""


def require(fact: bool, what: str) -> None:
    """Complain unless it is so."""
    if not fact:
        raise BadTrainError(what)


def add(data: bytes) -> int:
    """The ones' complement sum, folded."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@dataclasses.dataclass
class Packet:
    """Where things are in a frame."""

    frame: bytes
    version: int
    l3: int
    l4: int

    @property
    def payload(self) -> bytes:
        """What the datagram carries."""
        return self.frame[self.l4 + 8:]

    def pseudo(self) -> int:
        """The sum of the pseudo header, by what UDP's header says of its length."""
        at = self.l3 + (12 if self.version == 4 else 8)
        size = 8 if self.version == 4 else 32
        return add(self.frame[at:at + size] + struct.pack(">HH", UDP, len(self.frame) - self.l4))


def parse(frame: bytes) -> Packet | None:
    """A frame of pktgen's datagrams; None if it is something else."""
    at = 12
    while frame[at:at + 2] in (b"\x81\0", b"\x88\xa8"):
        at += 4
    kind, l3 = frame[at:at + 2], at + 2
    if kind == b"\x08\0" and frame[l3 + 12:l3 + 16] == SENDERS[0]:
        packet = Packet(frame, 4, l3, l3 + 20)
    elif kind == b"\x86\xdd" and frame[l3 + 8:l3 + 24] == SENDERS[1]:
        packet = Packet(frame, 6, l3, l3 + 40)
    else:
        return None
    return packet


def check(packet: Packet, mtu: int) -> None:
    """A datagram as it would be on a wire."""
    frame, l3, l4 = packet.frame, packet.l3, packet.l4
    length = struct.unpack_from(">H", frame, l3 + (2 if packet.version == 4 else 4))[0]
    protocol = frame[l3 + (9 if packet.version == 4 else 6)]
    require(length == len(frame) - (l3 if packet.version == 4 else l4), "IP's length")
    require(protocol == UDP, "protocol")
    require(packet.version == 6 or add(frame[l3:l4]) == 0xFFFF, "IP's checksum")
    require(len(frame) - l3 <= mtu, "longer than the MTU")
    sport, dport, ulen, total = struct.unpack_from(">HHHH", frame, l4)
    require((sport, dport) == (PORT, PORT), "ports")
    require(ulen == len(frame) - l4, "UDP's length")
    require(total != 0 and add(struct.pack(">H", packet.pseudo()) + frame[l4:]) == 0xFFFF,
            "UDP's checksum")
    data = packet.payload
    require(len(data) >= 8, "too short to say what it is")
    _, start = struct.unpack_from(">II", data)
    right = bytes((7 * i + (i >> 8)) & 0xFF for i in range(start + 8, start + len(data)))
    require(data[8:] == right, "data")


def make(version: int, to: bytes, tag: int, number: int, size: int,
         segment: int) -> tuple[bytes, int]:
    """A train as pktgen sends it, from us, with a VLAN tag or 0; and where UDP's header is."""
    data = bytearray((7 * i + (i >> 8)) & 0xFF for i in range(size))
    for at in range(0, size, segment):
        struct.pack_into(">II", data, at, number, at)
    length = 8 + size
    sender = SENDERS[version == 6]
    receiver = sender[:-1] + b"\2"
    if version == 4:
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + length, 1, 0x4000, 64, UDP, 0, sender,
                         receiver)
        ip = ip[:10] + struct.pack(">H", ~add(ip) & 0xFFFF) + ip[12:]
    else:
        ip = struct.pack(">IHBB16s16s", 6 << 28, length, UDP, 64, sender, receiver)
    partial = add(sender + receiver + struct.pack(">HH", UDP, length))
    head = to + MAC + (struct.pack(">HH", 0x8100, tag) if tag else b"") + (
        b"\x08\0" if version == 4 else b"\x86\xdd") + ip
    return head + struct.pack(">HHHH", PORT, PORT, length, partial) + data, len(head)


def finish(packet: Packet, fields: dict[str, int]) -> Packet:
    """Store the checksum that the header says is missing."""
    require(fields["csum_start"] == packet.l4 and fields["csum_offset"] == 6, "place of the sum")
    partial = struct.unpack_from(">H", packet.frame, packet.l4 + 6)[0]
    require(partial == packet.pseudo(), "sum of the pseudo header")
    total = ~add(packet.frame[packet.l4:]) & 0xFFFF or 0xFFFF
    frame = packet.frame[:packet.l4 + 6] + struct.pack(">H", total) + packet.frame[packet.l4 + 8:]
    return dataclasses.replace(packet, frame=frame)


def split(packet: Packet, fields: dict[str, int]) -> Iterator[Packet]:
    """The datagrams of a train, each with its sums."""
    frame, l3, l4 = packet.frame, packet.l3, packet.l4
    size = fields["gso_size"]
    require(fields["flags"] == NEEDS_CSUM, "flags of a train")
    require(fields["hdr_len"] == l4 + 8, "hdr_len")
    require(0 < size < len(packet.payload), "gso_size")
    require((fields["csum_start"], fields["csum_offset"]) == (l4, 6), "place of the sum")
    require(struct.unpack_from(">H", frame, l4 + 6)[0] == packet.pseudo(), "pseudo header")
    require(struct.unpack_from(">H", frame, l4 + 4)[0] == len(frame) - l4, "UDP's whole length")
    for number, at in enumerate(range(0, len(packet.payload), size)):
        data = packet.payload[at:at + size]
        ip = bytearray(frame[l3:l4])
        if packet.version == 4:
            require(add(bytes(ip)) == 0xFFFF, "IP's checksum of the whole")
            struct.pack_into(">H", ip, 2, 28 + len(data))
            struct.pack_into(">H", ip, 4, struct.unpack_from(">H", ip, 4)[0] + number & 0xFFFF)
            struct.pack_into(">H", ip, 10, 0)
            struct.pack_into(">H", ip, 10, ~add(bytes(ip)) & 0xFFFF)
        else:
            struct.pack_into(">H", ip, 4, 8 + len(data))
        head = struct.pack(">HHHH", PORT, PORT, 8 + len(data), 0)
        one = Packet(frame[:l3] + bytes(ip) + head + data, packet.version, l3, l4)
        part = struct.pack(">H", one.pseudo())
        one.frame = one.frame[:l4 + 6] + part + one.frame[l4 + 8:]
        yield finish(one, fields)


class Judge:
    """What came of pktgen's datagrams, in the device's counters."""

    def __init__(self, card: Any) -> None:
        self.card = card
        self.next: dict[int, int] = {}
        self.last_id = -1

    def follow(self, packet: Packet) -> None:
        """Datagrams come in order, and none is missing; of IPv4, each has an identification."""
        train, at = struct.unpack_from(">II", packet.payload)
        require(self.next.get(train, 0) == at, f"order: {at} after {self.next.get(train, 0)}")
        self.next = {train: at + len(packet.payload)}
        if packet.version == 4:
            number = struct.unpack_from(">H", packet.frame, packet.l3 + 4)[0]
            require(at == 0 or number == self.last_id + 1 & 0xFFFF, "identification")
            self.last_id = number

    def frame(self, fields: dict[str, int], frame: bytes) -> None:
        """Take a frame from the guest."""
        packet = parse(frame)
        if packet is None:
            return
        count, name = self.card.count, f"udp{packet.version}"
        try:
            if fields["gso_type"] == 0:
                flags = fields["flags"]
                require(fields["gso_size"] == 0 and fields["hdr_len"] == 0, "gso_size of none")
                parts = [finish(packet, fields) if flags == NEEDS_CSUM else packet]
                count(f"{name}_alone{'_partial' if flags == NEEDS_CSUM else ''}")
            else:
                require(fields["gso_type"] == GSO_UDP_L4 and self.card.has("HOST_USO") and
                        self.card.has("CSUM"), "a kind that was not agreed on")
                parts = list(split(packet, fields))
                count(f"{name}_trains")
            for part in parts:
                check(part, 1500)
                self.follow(part)
                count(f"{name}_datagrams")
        except (BadTrainError, struct.error) as error:
            count("bad_trains")
            count(f"bad_trains: {error}")
