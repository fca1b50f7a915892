# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What the device's side of a split ring and of a packed one have in common (VirtIO 1.3, 2.6)."""

from __future__ import annotations

import abc
import dataclasses

import memory

F_NEXT, F_WRITE, F_INDIRECT = 1, 2, 4

F_INDIRECT_DESC = 1 << 28
F_EVENT_IDX = 1 << 29
F_RING_PACKED = 1 << 34
F_IN_ORDER = 1 << 35

Segments = list[tuple[int, int]]
# As (address, length, flags).
Descriptors = list[tuple[int, int, int]]


@dataclasses.dataclass
class Chain:
    """A chain of descriptors.

    head identifies it in the answer: the number of its first descriptor, in a packed ring its id.
    places is how many places of the ring it takes, and segments are (address, length).
    """

    head: int
    places: int
    readable: Segments
    writable: Segments

    def room(self) -> int:
        """Bytes that the device may write."""
        return sum(length for _, length in self.writable)


def chain_of(head: int, places: int, found: Descriptors) -> Chain:
    """A chain of these descriptors."""
    return Chain(head, places,
                 [(gpa, length) for gpa, length, flags in found if not flags & F_WRITE],
                 [(gpa, length) for gpa, length, flags in found if flags & F_WRITE])


@dataclasses.dataclass
class Parts:
    """The addresses and the size of a ring, as the driver set them."""

    size: int = 0
    desc: int = 0
    avail: int = 0
    used: int = 0


class Ring(abc.ABC):
    """The memory of a ring of one layout, and the device's position in it.

    Answers become visible to the driver with publish().
    """

    def __init__(self, mem: memory.Memory, parts: Parts, features: int) -> None:
        self.memory = mem
        self.parts = parts
        self.events = bool(features & F_EVENT_IDX)

    @abc.abstractmethod
    def base(self) -> int:
        """The position to continue at, in vhost-user's format."""

    @abc.abstractmethod
    def take(self) -> Chain | None:
        """The next chain that the driver made available."""

    @abc.abstractmethod
    def ask_kicks(self) -> bool:
        """Request a kick for chains that take() has not seen; True if there are any already."""

    @abc.abstractmethod
    def steps(self, chains: list[Chain]) -> int:
        """How far one answer for these chains takes the device."""

    @abc.abstractmethod
    def put_used(self, head: int, length: int, steps: int = 1) -> None:
        """Write an answer, and advance by so many steps."""

    @abc.abstractmethod
    def publish(self) -> bool:
        """Make the answers visible to the driver; False if there are none."""

    @abc.abstractmethod
    def wants_interrupt(self) -> bool:
        """Does the driver request an interrupt for what was published since the last one?"""

    @abc.abstractmethod
    def notified(self) -> None:
        """The driver was interrupted, or did not request it."""

    @abc.abstractmethod
    def scribble(self, value: int) -> None:
        """Write this byte over all that the driver writes and that we no longer need."""

    @abc.abstractmethod
    def describe(self) -> dict[str, int]:
        """The positions of driver and device."""
