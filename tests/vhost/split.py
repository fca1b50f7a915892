# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The device's side of a split ring (VirtIO 1.3, 2.7), with indirect tables and event indices."""

from __future__ import annotations

import struct

import layout
import memory


class SplitRing(layout.Ring):
    """A split ring.  An answer to several chains counts as many in the used index (2.7.9)."""

    def __init__(self, mem: memory.Memory, parts: layout.Parts, features: int,
                 base: int | None = None) -> None:
        super().__init__(mem, parts, features)
        self.last_avail = self.seen_avail = self.used_idx = self.notified_idx = base or 0

    def base(self) -> int:
        """The index in the available ring."""
        return self.last_avail

    def descriptors(self, table: int, index: int) -> layout.Descriptors:
        """A list of linked descriptors."""
        found = []
        while True:
            gpa, length, flags, following = struct.unpack(
                "<QIHH", self.memory.read(table + 16 * index, 16))
            found.append((gpa, length, flags))
            if not flags & layout.F_NEXT:
                return found
            index = following

    def take(self) -> layout.Chain | None:
        """The next chain."""
        avail, size = self.parts.avail, self.parts.size
        self.seen_avail = self.memory.get16(avail + 2)
        if self.seen_avail == self.last_avail:
            return None
        self.memory.fence()
        head = self.memory.get16(avail + 4 + 2 * (self.last_avail % size))
        self.last_avail = (self.last_avail + 1) & 0xFFFF
        found = self.descriptors(self.parts.desc, head)
        places = len(found)
        if found[0][2] & layout.F_INDIRECT:
            found = self.descriptors(found[0][0], 0)
        return layout.chain_of(head, places, found)

    def ask_kicks(self) -> bool:
        """By the index that take() has read."""
        if self.events:
            self.memory.set16(self.parts.used + 4 + 8 * self.parts.size, self.seen_avail)
        self.memory.fence()
        return self.memory.get16(self.parts.avail + 2) != self.seen_avail

    def steps(self, chains: list[layout.Chain]) -> int:
        """Of the used index."""
        return len(chains)

    def put_used(self, head: int, length: int, steps: int = 1) -> None:
        """One element of the used ring."""
        at = self.parts.used + 4 + 8 * (self.used_idx % self.parts.size)
        self.memory.set32(at, head)
        self.memory.set32(at + 4, length)
        self.used_idx = (self.used_idx + steps) & 0xFFFF

    def publish(self) -> bool:
        """Store the used index."""
        if self.used_idx == self.notified_idx:
            return False
        self.memory.set16(self.parts.used + 2, self.used_idx)
        return True

    def wants_interrupt(self) -> bool:
        """By the used event, or the flag (2.7.7)."""
        if not self.events:
            return not self.memory.get16(self.parts.avail) & 1
        event = self.memory.get16(self.parts.avail + 4 + 2 * self.parts.size)
        new = self.used_idx
        return (new - event - 1) & 0xFFFF < (new - self.notified_idx) & 0xFFFF

    def notified(self) -> None:
        """Remember the index."""
        self.notified_idx = self.used_idx

    def scribble(self, value: int) -> None:
        """All but the index of the available ring, which we would use ourselves."""
        self.memory.write(self.parts.desc, bytes([value]) * (16 * self.parts.size))
        self.memory.set16(self.parts.avail, 0x101 * value)
        self.memory.write(self.parts.avail + 4, bytes([value]) * (2 * self.parts.size + 2))

    def describe(self) -> dict[str, int]:
        """Indices."""
        avail, used, size = self.parts.avail, self.parts.used, self.parts.size
        return {"taken": self.last_avail, "used": self.used_idx,
                "avail": self.memory.get16(avail + 2),
                "avail_event": self.memory.get16(used + 4 + 8 * size),
                "used_event": self.memory.get16(avail + 4 + 2 * size)}
