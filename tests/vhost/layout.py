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

    head names it in the answer: the number of its first descriptor, in a packed ring its id.
    places is how many of the ring it takes, and segments are (address, length).
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
    """Where the driver said that a ring is, and how large."""

    size: int = 0
    desc: int = 0
    avail: int = 0
    used: int = 0


class Ring(abc.ABC):
    """One layout's memory, and where the device is in it.

    The driver sees nothing of what was put before publish().
    """

    def __init__(self, mem: memory.Memory, parts: Parts, features: int) -> None:
        self.memory = mem
        self.parts = parts
        self.events = bool(features & F_EVENT_IDX)

    @abc.abstractmethod
    def base(self) -> int:
        """Where to go on, as vhost-user says it."""

    @abc.abstractmethod
    def take(self) -> Chain | None:
        """The next chain that the driver made available."""

    @abc.abstractmethod
    def ask_kicks(self) -> bool:
        """Ask for a kick when there is more than take() has seen; True if there is more already."""

    @abc.abstractmethod
    def steps(self, chains: list[Chain]) -> int:
        """How far one answer for these chains takes the device."""

    @abc.abstractmethod
    def put_used(self, head: int, length: int, steps: int = 1) -> None:
        """Write an answer, and go on by so many steps."""

    @abc.abstractmethod
    def publish(self) -> bool:
        """Show the driver what was put; False if that is nothing."""

    @abc.abstractmethod
    def wants_interrupt(self) -> bool:
        """Does the driver request an interrupt for what was published since the last one?"""

    @abc.abstractmethod
    def notified(self) -> None:
        """The driver was notified, or did not request it."""

    @abc.abstractmethod
    def scribble(self, value: int) -> None:
        """Write this byte over all that the driver writes and we do not need any more."""

    @abc.abstractmethod
    def describe(self) -> dict[str, int]:
        """Where both sides are."""
