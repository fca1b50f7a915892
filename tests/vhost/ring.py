# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The device's side of a virtqueue, for either layout (VirtIO 1.3, 2.6).

Queue handles chains in flight, answers that are held back, the order of answers, and violations;
its ring reads descriptors and writes answers (split.py, packed.py).

The driver's data are not checked: its violations are not tested, and raise an exception.
Queue.complete() writes all that the device writes, and violations.py may change it there.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

import layout
import memory
import violations
from packed import PackedRing
from split import SplitRing


def gather(mem: memory.Memory, segments: layout.Segments) -> bytes:
    """The bytes of segments."""
    return b"".join(mem.read(gpa, length) for gpa, length in segments)


def scatter(mem: memory.Memory, segments: layout.Segments, data: bytes) -> int:
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
    """One queue.  notify() interrupts the guest.

    With IN_ORDER chains are answered in the order in which they came.  One answer covers all that
    are published together, provided that each but the last was written completely (2.7.9, 2.8.8).
    """

    def __init__(self, mem: memory.Memory, index: int, teller: violations.Teller) -> None:
        self.memory = mem
        self.index = index
        self.teller = teller
        self.notify: Callable[[], None] = lambda: None
        self.count: Callable[[str], None] = lambda _: None
        self.parts = layout.Parts()
        self.features = 0
        self.ring: layout.Ring = SplitRing(mem, self.parts, 0)
        self.always_notify = False
        self.live = False
        self.inflight: dict[int, layout.Chain] = {}
        self.held: list[tuple[layout.Chain, int]] = []
        self.passed: list[layout.Chain] = []
        self.batch: list[layout.Chain] = []
        self.batch_length = 0
        self.gone: list[int] = []
        self.early: collections.deque[layout.Chain] = collections.deque()

    def start(self, base: int | None = None) -> None:
        """Use the ring at parts, from the beginning or from the position that stop() returned."""
        ring = PackedRing if self.features & layout.F_RING_PACKED else SplitRing
        self.ring = ring(self.memory, self.parts, self.features, base)
        self.always_notify = False
        self.inflight.clear()
        self.held.clear()
        self.passed.clear()
        self.batch.clear()
        self.early.clear()
        self.live = True

    def stop(self) -> int:
        """The guest reset the device; returns the position to continue at."""
        self.live = False
        self.gone = list(self.inflight)
        self.inflight.clear()
        self.held.clear()
        self.passed.clear()
        self.batch.clear()
        return self.ring.base()

    def describe(self) -> dict[str, int]:
        """The positions of driver and device."""
        return {"queue": self.index, "size": self.parts.size} | self.ring.describe()

    def pop(self) -> layout.Chain | None:
        """The next chain that the driver made available."""
        if not self.live:
            return None
        if self.early:
            return self.early.popleft()
        while (chain := self.ring.take()) is not None:
            self.inflight[chain.head] = chain
            self.count("chains")
            if self.teller.take("order", self.index) is None:
                break
            self.passed.append(chain)
        return chain

    def pop_all(self) -> None:
        """Take all available chains, for pop() to return later."""
        taken = list(iter(self.pop, None))
        self.early.extend(taken)

    def ask_kicks(self) -> bool:
        """Request a kick for chains that pop() has not seen; True if there are any already."""
        return self.live and self.ring.ask_kicks()

    def in_order(self) -> bool:
        """Are chains used in the order in which they were made available?"""
        return bool(self.features & layout.F_IN_ORDER)

    def complete(self, chain: layout.Chain, length: int) -> None:
        """Return a chain to the driver, or commit a violation with it."""
        violation = self.teller.take("ring", self.index)
        if violation is not None:
            self.flush_batch()
            violation(self, chain, length)
            return
        self.give(chain, length)

    def give(self, chain: layout.Chain, length: int) -> None:
        """Return a chain to the driver; in order, that is not before those that are held back."""
        if self.in_order() and self.held:
            self.held.append((chain, length))
            return
        self.inflight.pop(chain.head, None)
        self.batch.append(chain)
        self.batch_length = length
        if not self.in_order() or length != chain.room():
            self.flush_batch()

    def flush_batch(self) -> None:
        """Write one answer for the chains that were returned together."""
        if not self.batch:
            return
        if len(self.batch) > 1:
            self.count("batches")
        self.ring.put_used(self.batch[-1].head, self.batch_length, self.ring.steps(self.batch))
        self.batch.clear()

    def publish(self) -> None:
        """Make the answers visible to the driver, and interrupt it if it requested that."""
        if not self.live:
            return
        self.flush_batch()
        if not self.ring.publish():
            return
        self.memory.fence()
        if self.always_notify or self.ring.wants_interrupt():
            self.count("interrupts")
            self.notify()
        self.ring.notified()
