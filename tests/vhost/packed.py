# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The device's side of a packed ring (VirtIO 1.3, 2.8): indirect tables, event suppression.

Places are counted on from turn to turn: the ring's place is the remainder by its size, and the wrap
counter is 1 in even turns.
"""

from __future__ import annotations

import struct

import layout
import memory

F_AVAIL, F_USED = 1 << 7, 1 << 15
EVENT_ENABLE, EVENT_DISABLE, EVENT_DESC = 0, 1, 2
DESCRIPTOR = struct.Struct("<QIHH")


class PackedRing(layout.Ring):
    """A packed ring.  An answer advances it by the length of its chains (2.8.6, 2.8.8)."""

    def __init__(self, mem: memory.Memory, parts: layout.Parts, features: int,
                 base: int | None = None) -> None:
        super().__init__(mem, parts, features)
        self.taken = self.used = 0
        if base is not None:
            self.taken, self.used = self.place(base & 0xFFFF), self.place(base >> 16)
        self.notified_at = self.used
        # For violations of the wrap counter: turns to add, and the turn that does not end.
        self.used_turns = 0
        self.kept_turn: int | None = None
        # The first answer since publish(): its place and flags, which are written last.
        self.first: tuple[int, int] | None = None

    def wrap(self, place: int) -> int:
        """The wrap counter at a place."""
        return 1 - place // self.parts.size % 2

    def off_wrap(self, place: int) -> int:
        """A place in the ring's format (2.8.10)."""
        return place % self.parts.size | self.wrap(place) << 15

    def place(self, off_wrap: int) -> int:
        """The first place with this value in the ring's format."""
        return (off_wrap & 0x7FFF) + (0 if off_wrap & 0x8000 else self.parts.size)

    def base(self) -> int:
        """The places of driver and device."""
        return self.off_wrap(self.taken) | self.off_wrap(self.used) << 16

    def address(self, place: int) -> int:
        """The address of the descriptor of a place."""
        return self.parts.desc + 16 * (place % self.parts.size)

    def available(self) -> bool:
        """Has the driver made the next descriptor available (2.8.1)?"""
        flags = self.memory.get16(self.address(self.taken) + 14)
        wrap = self.wrap(self.taken)
        return bool(flags & F_AVAIL) == bool(wrap) and bool(flags & F_USED) != bool(wrap)

    def take(self) -> layout.Chain | None:
        """The next chain."""
        if not self.available():
            return None
        self.memory.fence()
        found: layout.Descriptors = []
        while True:
            gpa, length, ident, flags = DESCRIPTOR.unpack(
                self.memory.read(self.address(self.taken + len(found)), 16))
            found.append((gpa, length, flags))
            if not flags & layout.F_NEXT:
                break
        places = len(found)
        self.taken += places
        if flags & layout.F_INDIRECT:
            found = [(gpa, length, flags) for gpa, length, _, flags in DESCRIPTOR.iter_unpack(
                self.memory.read(gpa, length))]
        return layout.chain_of(ident, places, found)

    def ask_kicks(self) -> bool:
        """From the next descriptor on, or of any."""
        word = EVENT_DESC << 16 | self.off_wrap(self.taken) if self.events else EVENT_ENABLE << 16
        self.memory.set32(self.parts.used, word)
        self.memory.fence()
        return self.available()

    def steps(self, chains: list[layout.Chain]) -> int:
        """Of places."""
        return sum(chain.places for chain in chains)

    def used_wrap(self) -> int:
        """The device's wrap counter."""
        place = self.used if self.kept_turn is None else self.kept_turn
        return self.wrap(place + self.used_turns * self.parts.size)

    def keep_turn(self) -> None:
        """Violate the protocol at the end of the ring."""
        self.kept_turn = self.used

    def put_used(self, head: int, length: int, steps: int = 1) -> None:
        """One used descriptor."""
        at = self.address(self.used)
        flags = (F_AVAIL | F_USED) * self.used_wrap() | (layout.F_WRITE if length else 0)
        self.memory.set32(at + 8, length)
        self.memory.set16(at + 12, head)
        if self.first is None:
            self.first = at + 14, flags
        else:
            self.memory.set16(at + 14, flags)
        self.used += steps

    def publish(self) -> bool:
        """Write the first answer's flags: until then the driver reads no further."""
        if self.first is None:
            return False
        self.memory.fence()
        self.memory.set16(*self.first)
        self.first = None
        return True

    def wants_interrupt(self) -> bool:
        """By the driver's event suppression (2.8.10)."""
        off_wrap, flags = struct.unpack("<HH", self.memory.read(self.parts.avail, 4))
        if flags & 3 != EVENT_DESC or not self.events:
            return bool(flags & 3 != EVENT_DISABLE)
        ahead = (self.place(off_wrap) - self.notified_at) % (2 * self.parts.size)
        return ahead < self.used - self.notified_at

    def notified(self) -> None:
        """Remember the place."""
        self.notified_at = self.used

    def scribble(self, value: int) -> None:
        """The whole ring, and the driver's event suppression."""
        self.memory.write(self.parts.desc, bytes([value]) * (16 * self.parts.size))
        self.memory.write(self.parts.avail, bytes([value]) * 4)

    def describe(self) -> dict[str, int]:
        """Places, and the event suppressions."""
        return {"taken": self.taken, "used": self.used, "available": int(self.available()),
                "driver_event": int.from_bytes(self.memory.read(self.parts.avail, 4), "little"),
                "device_event": int.from_bytes(self.memory.read(self.parts.used, 4), "little")}
