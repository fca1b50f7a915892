# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A disk's volatile write-back cache, whose contents a power cut may lose.

A write stays in the cache until a flush.  After a power cut each sector in the cache has either
the medium's data or the last write's, at random: sectors reach a medium in any order.
"""

from __future__ import annotations

import random
from typing import Protocol

SECTOR = 512


class Medium(Protocol):
    """Persistent bytes: a bytearray, or a file's mapping."""

    def __len__(self) -> int:
        """How many."""

    def __getitem__(self, place: slice, /) -> bytes | bytearray:
        """Read some."""

    def __setitem__(self, place: slice, data: bytes, /) -> None:
        """Write as many."""


class Cache:
    """A medium behind a cache.  Places are whole sectors."""

    def __init__(self, medium: Medium, loses_flushes: bool) -> None:
        self.medium = medium
        self.loses_flushes = loses_flushes
        self.dirty: dict[int, bytes] = {}

    def __len__(self) -> int:
        """The medium's bytes."""
        return len(self.medium)

    def __getitem__(self, place: slice) -> bytes:
        """Read; sectors in the cache take precedence over the medium's."""
        data = bytearray(self.medium[place])
        for at in range(place.start, place.stop, SECTOR):
            if at in self.dirty:
                data[at - place.start:at - place.start + SECTOR] = self.dirty[at]
        return bytes(data)

    def __setitem__(self, place: slice, data: bytes) -> None:
        """Write, into the cache."""
        for at in range(place.start, place.stop, SECTOR):
            self.dirty[at] = bytes(data[at - place.start:at - place.start + SECTOR])

    def flush(self) -> None:
        """Write everything to the medium; a disk that loses flushes only reports success."""
        if self.loses_flushes:
            return
        for at, data in self.dirty.items():
            self.medium[at:at + SECTOR] = data
        self.dirty.clear()

    def cut(self, seed: int) -> dict[str, int]:
        """The power is cut: the cache is lost, except for sectors that have reached the medium."""
        draw = random.Random(seed)
        kept = {at: data for at, data in self.dirty.items() if draw.random() < 0.5}
        for at, data in kept.items():
            self.medium[at:at + SECTOR] = data
        found = {"dirty": len(self.dirty), "kept": len(kept)}
        self.dirty.clear()
        return found
