# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The guest's memory, mapped here by the descriptors that QEMU hands out."""

from __future__ import annotations

import mmap
import threading


class Region:
    """A piece of guest-physical memory.

    Numbers that the guest reads at the same time are stored through a memoryview of their width,
    which is one store; struct.pack_into() would store byte by byte.
    """

    def __init__(self, fd: int, gpa: int, size: int, uva: int, offset: int) -> None:
        self.gpa = gpa
        self.size = size
        self.uva = uva
        whole = mmap.mmap(fd, size + offset)
        self.bytes = memoryview(whole)[offset:]
        self.u16 = self.bytes.cast("H")
        self.u32 = self.bytes.cast("I")


class Memory:
    """All of the guest's memory."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.lock = threading.Lock()

    def fence(self) -> None:
        """A full memory barrier: taking a lock is an atomic operation."""
        with self.lock:
            pass

    def find(self, gpa: int, length: int) -> tuple[Region, int]:
        """The region that holds a range, and where; LookupError if none does."""
        for region in self.regions:
            at = gpa - region.gpa
            if at >= 0 and at + length <= region.size:
                return region, at
        raise LookupError(f"no memory at {gpa:#x}, {length} bytes")

    def gpa_of(self, uva: int) -> int:
        """The guest-physical address of an address in QEMU's space."""
        for region in self.regions:
            if region.uva <= uva < region.uva + region.size:
                return region.gpa + uva - region.uva
        raise LookupError(f"no memory at {uva:#x} of QEMU")

    def read(self, gpa: int, length: int) -> bytes:
        """Bytes of the guest."""
        region, at = self.find(gpa, length)
        return bytes(region.bytes[at:at + length])

    def write(self, gpa: int, data: bytes) -> None:
        """Write bytes to the guest."""
        region, at = self.find(gpa, len(data))
        region.bytes[at:at + len(data)] = data

    def get16(self, gpa: int) -> int:
        """A 16-bit number in one load."""
        region, at = self.find(gpa, 2)
        return region.u16[at >> 1]

    def set16(self, gpa: int, value: int) -> None:
        """A 16-bit number in one store."""
        region, at = self.find(gpa, 2)
        region.u16[at >> 1] = value & 0xFFFF

    def set32(self, gpa: int, value: int) -> None:
        """A 32-bit number in one store."""
        region, at = self.find(gpa, 4)
        region.u32[at >> 2] = value & 0xFFFFFFFF
