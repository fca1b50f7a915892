# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A virtio block device (VirtIO 1.3, 5.2) on a file, or on memory."""

from __future__ import annotations

import argparse
import mmap
import struct
from typing import Any

import cache
import device
import layout
import ring

SECTOR = 512
T_IN, T_OUT, T_FLUSH, T_GET_ID, T_GET_LIFETIME = 0, 1, 4, 8, 10
T_DISCARD, T_WRITE_ZEROES, T_SECURE_ERASE = 11, 13, 14
# The feature of each command, also in the names of its limits, and the flags that it may have.
DELETES = {
    T_DISCARD: ("DISCARD", 0), T_WRITE_ZEROES: ("WRITE_ZEROES", 1),
    T_SECURE_ERASE: ("SECURE_ERASE", 0),
}
S_OK, S_IOERR, S_UNSUPP = 0, 1, 2


class Block(device.Device):
    """The disk."""

    type_id = 2
    queues_of_type = 1
    feature_names = {  # noqa: RUF012
        "SIZE_MAX": 1, "SEG_MAX": 2, "GEOMETRY": 4, "RO": 5, "BLK_SIZE": 6, "FLUSH": 9,
        "TOPOLOGY": 10, "CONFIG_WCE": 11, "MQ": 12, "DISCARD": 13, "WRITE_ZEROES": 14,
        "LIFETIME": 15, "SECURE_ERASE": 16, "ZONED": 17, "BARRIER": 0, "SCSI": 7,
    }
    default_features = ["SEG_MAX", "BLK_SIZE", "FLUSH"]  # noqa: RUF012
    fields = {  # noqa: RUF012
        "capacity": (0, 8), "size_max": (8, 4), "seg_max": (12, 4), "cylinders": (16, 2),
        "heads": (18, 1), "sectors": (19, 1), "blk_size": (20, 4), "physical_block_exp": (24, 1),
        "alignment_offset": (25, 1), "min_io_size": (26, 2), "opt_io_size": (28, 4),
        "writeback": (32, 1), "num_queues": (34, 2), "max_discard_sectors": (36, 4),
        "max_discard_seg": (40, 4), "discard_sector_alignment": (44, 4),
        "max_write_zeroes_sectors": (48, 4), "max_write_zeroes_seg": (52, 4),
        "write_zeroes_may_unmap": (56, 1), "max_secure_erase_sectors": (60, 4),
        "max_secure_erase_seg": (64, 4), "secure_erase_sector_alignment": (68, 4),
        "zone_sectors": (72, 4), "max_open_zones": (76, 4), "max_active_zones": (80, 4),
        "max_append_sectors": (84, 4), "write_granularity": (88, 4), "zone_model": (92, 1),
    }
    config_size = 96
    written = {"writeback": (False, True)}  # noqa: RUF012

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        if args.image is None:
            self.disk: bytearray | mmap.mmap | cache.Cache = bytearray(args.size)
        else:
            with open(args.image, "r+b") as image:
                self.disk = mmap.mmap(image.fileno(), 0)
        if args.volatile or args.lose_flushes:
            self.disk = cache.Cache(self.disk, args.lose_flushes)
        self.cached: set[int] = set()
        self.bad = -1
        self.at_reset = [setting for setting in args.set if setting.startswith("writeback=")]
        self.lifetime = (1, 3, 4)
        for setting in (f"capacity={len(self.disk) // SECTOR}", "seg_max=126", "blk_size=512",
                        "writeback=1", f"num_queues={len(self.queues)}",
                        *(f"max_{way}_{limit}"
                          for way in ("discard", "write_zeroes", "secure_erase")
                          for limit in (f"sectors={len(self.disk) // SECTOR}", "seg=1")),
                        "discard_sector_alignment=1", *args.set):
            self.set_config(setting)

    def forget(self) -> None:
        """The cache is written back again (5.2.6.2), or as the command line says."""
        for setting in ("writeback=1", *self.at_reset):
            self.set_config(setting)

    def settings(self) -> dict[str, Any]:
        """And the mode of the cache."""
        return super().settings() | {"writeback": self.get_config("writeback")}

    def command(self, words: list[str]) -> Any:
        """Commands for disks."""
        match words:
            case ["lifetime", *values]:
                eol, slc, mlc = (int(value, 0) for value in values)
                self.lifetime = eol, slc, mlc
                return {}
            case ["cut", seed]:
                if not isinstance(self.disk, cache.Cache):
                    raise device.CommandError("no cache: --volatile")
                with self.lock:
                    self.ignored = {queue.index for queue in self.queues}
                    return self.disk.cut(int(seed))
            case ["bad", sector]:
                self.bad = int(sector, 0)
                return {}
        return super().command(words)

    def get_config(self, name: str) -> int:
        """The value of a field of the configuration."""
        offset, size = self.fields[name]
        return int.from_bytes(self.config[offset:offset + size], "little")

    def note_written(self, sector: int, count: int) -> None:
        """Sectors were written: in write-back mode they are only cached until the next flush."""
        if self.writes_back():
            self.cached.update(range(sector, sector + count))
        self.counters["cached"] = len(self.cached)

    def delete(self, kind: int, ranges: list[tuple[int, int, int]]) -> int:
        """Delete ranges of sectors: the status."""
        name, allowed = DELETES[kind]
        if not self.has(name) or len(ranges) > self.get_config(f"max_{name.lower()}_seg"):
            return S_UNSUPP
        for sector, count, flags in ranges:
            if flags & ~allowed:
                return S_UNSUPP
            if sector <= self.bad < sector + count:
                return S_IOERR
            self.check(sector * SECTOR, count * SECTOR)
            self.count("ranges")
            self.count("discarded", count)
            self.count("unmapped", count * (flags & 1))
            self.disk[sector * SECTOR:(sector + count) * SECTOR] = bytes(count * SECTOR)
        return S_OK

    def process(self, queue: ring.Queue) -> None:
        """Answer all requests in a queue."""
        while (chain := queue.pop()) is not None:
            self.answer(queue, chain)

    def answer(self, queue: ring.Queue, chain: layout.Chain) -> None:
        """Answer one request."""
        out = ring.gather(self.memory, chain.readable)
        kind, _, sector = struct.unpack_from("<IIQ", out)
        room = chain.room() - 1
        try:
            status, data = self.run(kind, sector, out[16:], room)
        except IndexError:
            status, data = S_IOERR, b""
        if not self.writes_back():
            self.flush()
        if data and self.teller.take("data", queue.index) is not None:
            data = b""
        written = ring.scatter(self.memory, chain.writable, data)
        self.count(f"type_{kind}")
        violation = self.teller.take("status", queue.index)
        if violation is None or violation != "none":
            gpa, length = chain.writable[-1]
            status = status if violation is None else violation
            answer = bytes([status]).ljust(self.quirk.status_size, b"\0")
            self.memory.write(gpa + length - 1, answer)
        length = (room if written else 0) + 1
        queue.complete(chain, self.quirk.length("request", chain, length))

    def run(self, kind: int, sector: int, data: bytes, room: int) -> tuple[int, bytes]:
        """Execute a request: its status, and the data read."""
        at = sector * SECTOR
        if kind == T_IN:
            self.check(at, room)
            return S_OK, bytes(self.disk[at:at + room])
        if kind == T_OUT:
            self.check(at, len(data))
            self.disk[at:at + len(data)] = data
            self.note_written(sector, len(data) // SECTOR)
            return S_OK, b""
        if kind == T_FLUSH:
            # 5.2.6.1.
            if sector or data or room:
                self.count("bad_flushes")
                return S_IOERR, b""
            self.flush()
            self.cached.clear()
            self.note_written(0, 0)
            return S_OK, b""
        if kind == T_GET_LIFETIME and self.has("LIFETIME"):
            return S_OK, struct.pack("<3H", *self.lifetime)
        if kind == T_GET_ID:
            return S_OK, b"pv-kmod vhost".ljust(20, b"\0")
        if kind in DELETES:
            return self.delete(kind, list(struct.iter_unpack("<QII", data))), b""
        return S_UNSUPP, b""

    def writes_back(self) -> bool:
        """May a completed write be only in the cache (VirtIO 1.3, 5.2.6.2)?"""
        toggle = self.has("CONFIG_WCE")
        return self.has("FLUSH") and (not toggle or self.get_config("writeback") != 0)

    def flush(self) -> None:
        """Write the cache to the medium."""
        if isinstance(self.disk, cache.Cache):
            self.disk.flush()

    def check(self, at: int, length: int) -> None:
        """IndexError beyond the end of the disk."""
        if at + length > len(self.disk):
            raise IndexError
