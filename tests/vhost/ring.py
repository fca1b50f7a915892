# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The device's side of a split virtqueue (VirtIO 1.3, 2.7), with indirect tables and event indices.

What a driver wrote is taken as it is: one that breaks the rules is not what is tested, and gets
an exception.  Queue.complete() writes what this side writes, and violations.py may change it there.
"""

from __future__ import annotations

import collections
import dataclasses
import struct
from collections.abc import Callable

import memory
import violations

F_NEXT, F_WRITE, F_INDIRECT = 1, 2, 4

F_INDIRECT_DESC = 1 << 28
F_EVENT_IDX = 1 << 29

Segments = list[tuple[int, int]]


@dataclasses.dataclass
class Chain:
    """A chain of descriptors: its head, and segments as (address, length)."""

    head: int
    readable: Segments
    writable: Segments

    def room(self) -> int:
        """Bytes that the device may write."""
        return sum(length for _, length in self.writable)


def gather(mem: memory.Memory, segments: Segments) -> bytes:
    """The bytes of segments."""
    return b"".join(mem.read(gpa, length) for gpa, length in segments)


def scatter(mem: memory.Memory, segments: Segments, data: bytes) -> int:
    """Write bytes over segments, as many as fit; returns how many."""
    done = 0
    for gpa, length in segments:
        piece = data[done:done + length]
        if not piece:
            break
        mem.write(gpa, piece)
        done += len(piece)
    return done


class Queue:
    """One queue.  notify() interrupts the guest."""

    def __init__(self, mem: memory.Memory, index: int, teller: violations.Teller) -> None:
        self.memory = mem
        self.index = index
        self.teller = teller
        self.notify: Callable[[], None] = lambda: None
        self.count: Callable[[str], None] = lambda _: None
        self.size = 0
        self.desc = self.avail = self.used = 0
        self.features = 0
        self.last_avail = 0
        self.seen_avail = 0
        self.used_idx = 0
        self.told_idx = 0
        self.always_notify = False
        self.live = False
        self.inflight: dict[int, Chain] = {}
        self.held: list[tuple[Chain, int]] = []
        self.gone: list[int] = []
        self.early: collections.deque[Chain] = collections.deque()

    def start(self, base: int) -> None:
        """The ring is where it is, and new."""
        self.last_avail = self.seen_avail = self.used_idx = self.told_idx = base
        self.always_notify = False
        self.inflight.clear()
        self.held.clear()
        self.early.clear()
        self.live = True

    def stop(self) -> int:
        """The guest reset the device; returns the index to go on from."""
        self.live = False
        self.gone = list(self.inflight)
        self.inflight.clear()
        self.held.clear()
        return self.last_avail

    def describe(self) -> dict[str, int]:
        """Where both sides are."""
        return {"queue": self.index, "taken": self.last_avail, "used": self.used_idx,
                "avail": self.memory.get16(self.avail + 2),
                "avail_event": self.memory.get16(self.used + 4 + 8 * self.size),
                "used_event": self.memory.get16(self.avail + 4 + 2 * self.size)}

    def descriptors(self, table: int, index: int) -> list[tuple[int, int, int]]:
        """A list of linked descriptors as (address, length, flags)."""
        found = []
        while True:
            gpa, length, flags, following = struct.unpack(
                "<QIHH", self.memory.read(table + 16 * index, 16))
            found.append((gpa, length, flags))
            if not flags & F_NEXT:
                return found
            index = following

    def pop(self) -> Chain | None:
        """The next chain that the driver made available."""
        if not self.live:
            return None
        if self.early:
            return self.early.popleft()
        self.seen_avail = self.memory.get16(self.avail + 2)
        if self.seen_avail == self.last_avail:
            return None
        self.memory.fence()
        head = self.memory.get16(self.avail + 4 + 2 * (self.last_avail % self.size))
        self.last_avail = (self.last_avail + 1) & 0xFFFF
        found = self.descriptors(self.desc, head)
        if found[0][2] & F_INDIRECT:
            found = self.descriptors(found[0][0], 0)
        chain = Chain(head, [(gpa, length) for gpa, length, flags in found if not flags & F_WRITE],
                      [(gpa, length) for gpa, length, flags in found if flags & F_WRITE])
        self.inflight[head] = chain
        self.count("chains")
        return chain

    def pop_all(self) -> None:
        """Take all that is there, for pop() to return later."""
        taken = list(iter(self.pop, None))
        self.early.extend(taken)

    def ask_kicks(self) -> bool:
        """Ask to be told of more than pop() has seen; True if there is more already."""
        if self.features & F_EVENT_IDX:
            self.memory.set16(self.used + 4 + 8 * self.size, self.seen_avail)
        self.memory.fence()
        return self.live and self.memory.get16(self.avail + 2) != self.seen_avail

    def put_used(self, head: int, length: int) -> None:
        """One element of the used ring, not published."""
        at = self.used + 4 + 8 * (self.used_idx % self.size)
        self.memory.set32(at, head)
        self.memory.set32(at + 4, length)
        self.used_idx = (self.used_idx + 1) & 0xFFFF

    def complete(self, chain: Chain, length: int) -> None:
        """Give a chain back, or break a rule about it."""
        violation = self.teller.take("ring", self.index)
        if violation is not None:
            violation(self, chain, length)
            return
        self.give(chain, length)

    def give(self, chain: Chain, length: int) -> None:
        """Give a chain back."""
        self.inflight.pop(chain.head, None)
        self.put_used(chain.head, length)

    def wants_interrupt(self) -> bool:
        """Does the driver want to be told of what was published since it was told last?"""
        if self.always_notify:
            return True
        if not self.features & F_EVENT_IDX:
            return not self.memory.get16(self.avail) & 1
        event = self.memory.get16(self.avail + 4 + 2 * self.size)
        new = self.used_idx
        return (new - event - 1) & 0xFFFF < (new - self.told_idx) & 0xFFFF

    def publish(self) -> None:
        """Show the driver what was put, and interrupt it if it asked for that."""
        if not self.live or self.used_idx == self.told_idx:
            return
        self.memory.set16(self.used + 2, self.used_idx)
        self.memory.fence()
        if self.wants_interrupt():
            self.count("interrupts")
            self.notify()
        self.told_idx = self.used_idx
