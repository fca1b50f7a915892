# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A legacy virtio PCI function (VirtIO 1.3, 4.1.4.10), for features that only legacy devices have.

Its registers are in an I/O BAR, its MSI-X table in a memory BAR.  It can offer 32 features; rings
are split, and the address of one is set by the number of its first page.
"""

from __future__ import annotations

import struct

import layout
import pciproxy
import ring

# Offset: bytes, and the register's name in a modern function, or one of its own.
REGISTERS = {
    0: (4, "features"), 4: (4, "driver_features"), 8: (4, "queue_pfn"), 12: (2, "queue_size"),
    14: (2, "queue_select"), 16: (2, "notify"), 18: (1, "device_status"), 19: (1, "isr"),
    20: (2, "msix_config"), 22: (2, "queue_msix_vector"),
}
CONFIG, CONFIG_MSIX = 20, 24
IO_SIZE, MEMORY_SIZE = 0x80, 2 * pciproxy.PAGE
MSIX_CAP = 0x40
# By what the type of a device is.
DEVICE_IDS = {1: 0x1000, 2: 0x1001, 5: 0x1002}


class LegacyFunction(pciproxy.Function):
    """The PCI function: it differs from a modern one only in its registers."""

    io = 0

    def make_conf(self) -> bytearray:
        """The configuration space."""
        conf = bytearray(4096)
        kind = self.device.type_id
        struct.pack_into("<HHHH", conf, 0, 0x1AF4, DEVICE_IDS[kind], 0, 0x10)
        struct.pack_into("<I", conf, 8, pciproxy.PCI_CLASS[kind] << 8)
        struct.pack_into("<I", conf, 0x10, 1)
        struct.pack_into("<HH", conf, 0x2C, 0x1AF4, kind)
        conf[0x34] = MSIX_CAP
        conf[0x3D] = 1
        struct.pack_into("<BBHII", conf, MSIX_CAP, 0x11, 0, pciproxy.VECTORS - 1, 1,
                         pciproxy.PAGE | 1)
        self.msix_cap = MSIX_CAP
        return conf

    def write_conf(self, at: int, value: int, size: int) -> None:
        """Write to the configuration space."""
        if at == 0x10:
            self.io = value & ~(IO_SIZE - 1) & 0xFFFFFFFF
            struct.pack_into("<I", self.conf, at, self.io | 1)
        elif at == 0x14:
            self.bar = value & ~(MEMORY_SIZE - 1) & 0xFFFFFFFF
            struct.pack_into("<I", self.conf, at, self.bar)
        else:
            super().write_conf(at, value, size)

    def read_at(self, address: int, size: int, memory: bool) -> int:
        """Read the table, a register, or the configuration behind them."""
        if memory:
            at = address - self.bar
            return int.from_bytes(self.msix[at:at + size], "little")
        at = address - self.io
        if at >= self.config_at():
            at -= self.config_at()
            return int.from_bytes(self.device.config[at:at + size], "little")
        name = REGISTERS[at][1]
        if name == "features":
            return self.device.features & 0xFFFFFFFF
        if name == "isr":
            isr, self.isr = self.isr, 0
            return isr
        select = self.registers["queue_select"]
        if name in ("queue_pfn", "queue_size", "queue_msix_vector"):
            return self.per_queue[select].get(name, 0) if select < len(self.per_queue) else 0
        return self.registers.get(name, 0)

    def write_at(self, address: int, size: int, value: int, memory: bool) -> ring.Queue | None:
        """Write to the table, a register, or the configuration: the queue that was kicked."""
        if memory:
            at = address - self.bar
            self.msix[at:at + size] = value.to_bytes(8, "little")[:size]
            return None
        at = address - self.io
        if at >= self.config_at():
            at -= self.config_at()
            self.device.config[at:at + size] = value.to_bytes(8, "little")[:size]
            self.device.count("config_writes")
            return None
        name = REGISTERS[at][1]
        select = self.registers["queue_select"]
        if name == "notify":
            return self.device.queues[value] if value < len(self.device.queues) else None
        if name == "driver_features":
            self.device.agree(value)
        elif name == "device_status":
            self.set_status(value)
        elif name in ("queue_pfn", "queue_msix_vector"):
            if select < len(self.per_queue):
                self.per_queue[select][name] = value
                if name == "queue_pfn" and value != 0:
                    self.give_queue(select, value)
        else:
            self.registers[name] = value
        return None

    def config_at(self) -> int:
        """Where the device's configuration begins: after MSI-X's registers, if that is enabled."""
        return CONFIG_MSIX if self.msix_on else CONFIG

    def give_queue(self, number: int, pfn: int) -> None:
        """The driver set a queue's address: its parts are contiguous (2.7.2)."""
        size, desc = self.queue_max, pfn * pciproxy.PAGE
        avail = desc + 16 * size
        used = -(-(avail + 2 * size + 6) // pciproxy.PAGE) * pciproxy.PAGE
        self.device.queues[number].parts = layout.Parts(size, desc, avail, used)
        self.per_queue[number]["queue_enable"] = 1
