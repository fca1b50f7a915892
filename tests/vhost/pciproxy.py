# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A whole virtio PCI function (VirtIO 1.3, 4.1) behind QEMU's x-pci-proxy-dev.

QEMU forwards each access to the configuration space and to the BAR over a socket and waits for the
answer; the guest's memory is shared.  So we implement every register, which can have values that no
device of QEMU's would have.  bin/qemu-system-x86_64 starts QEMU with it.  The proxy does not
support message interrupts; they are written to the local APIC through QEMU's qtest socket.

One BAR holds, a page each: common configuration, ISR, device configuration, notification, the
MSI-X table.
"""

from __future__ import annotations

import array
import contextlib
import selectors
import socket
import struct
from typing import Any

import device
import layout
import memory
import ring

(SYNC_SYSMEM, RET, CFG_WRITE, CFG_READ, BAR_WRITE, BAR_READ, SET_IRQFD,
 DEVICE_RESET) = range(8)

HEADER = struct.Struct("=i4xQ")
CONF = struct.Struct("=IIi")
BAR = struct.Struct("=QQIB3x")
MAX_FDS = 8

PAGE = 0x1000
BAR_SIZE = 0x8000
COMMON, ISR, DEVICE, NOTIFY, MSIX = 0, PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE
VECTORS = 8
NO_VECTOR = 0xFFFF

STATUS_DRIVER_OK, STATUS_FEATURES_OK, STATUS_NEEDS_RESET = 4, 8, 0x40
STATUS_BUSY = 0x0F

# Registers of the common configuration: offset, bytes, name.
REGISTERS = {
    0: (4, "device_feature_select"), 4: (4, "device_feature"), 8: (4, "driver_feature_select"),
    12: (4, "driver_feature"), 16: (2, "msix_config"), 18: (2, "num_queues"),
    20: (1, "device_status"), 21: (1, "config_generation"), 22: (2, "queue_select"),
    24: (2, "queue_size"), 26: (2, "queue_msix_vector"), 28: (2, "queue_enable"),
    30: (2, "queue_notify_off"), 32: (4, "queue_desc_lo"), 36: (4, "queue_desc_hi"),
    40: (4, "queue_driver_lo"), 44: (4, "queue_driver_hi"), 48: (4, "queue_device_lo"),
    52: (4, "queue_device_hi"), 58: (2, "queue_reset"),
}

READ_ONLY = {"device_feature", "num_queues", "config_generation", "queue_notify_off"}
# Not to be written while the queue is enabled.
QUEUE_SETUP = {"queue_size", "queue_msix_vector"} | {
    f"queue_{part}_{half}" for part in ("desc", "driver", "device") for half in ("lo", "hi")}

SUBSYSTEM = 0x2C  # in the configuration space

PCI_CLASS = {1: 0x020000, 2: 0x010000, 4: 0x00FF00, 5: 0x00FF00}


class Gone(Exception):
    """QEMU closed the connection."""


class Function:
    """The PCI function, for one QEMU.

    overrides has fixed values of registers of the common configuration, which are read whatever was
    written to them: {"queue_size": 0}.
    """

    def __init__(self, dev: device.Device, link: socket.socket, qtest: socket.socket,
                 queue_max: int) -> None:
        self.device = dev
        self.link = link
        self.qtest = qtest
        self.queue_max = queue_max
        self.overrides: dict[str, int] = {}
        self.conf = self.make_conf()
        self.bar = 0
        self.msix_on = False
        self.msix = bytearray(16 * VECTORS)
        self.registers: dict[str, int] = {}
        self.per_queue: list[dict[str, int]] = []
        self.isr = 0
        self.generation = 0
        self.busy_reads = 0
        dev.announce_config = self.announce_config
        dev.transport = self.command
        dev.registers = self.wanted_registers
        for queue in dev.queues:
            queue.notify = self.notifier(queue.index)
        self.reset()

    def make_conf(self) -> bytearray:
        """The configuration space."""
        conf = bytearray(4096)
        kind = self.device.type_id
        struct.pack_into("<HH", conf, 0, 0x1AF4, 0x1040 + kind)
        struct.pack_into("<HH", conf, 4, 0, 0x10)
        struct.pack_into("<I", conf, 8, PCI_CLASS[kind] << 8 | 1)
        struct.pack_into("<HH", conf, SUBSYSTEM, 0x1AF4, 0x1040 + kind)
        conf[0x34] = 0x40
        conf[0x3D] = 1
        at = 0x40
        for kind_of_cap, place in ((1, COMMON), (3, ISR), (4, DEVICE), (2, NOTIFY)):
            size = 20 if kind_of_cap == 2 else 16
            conf[at:at + size] = struct.pack(
                "<BBBBB3xII", 9, at + size, size, kind_of_cap, 0, place,
                len(self.device.config) if kind_of_cap == 4 else PAGE).ljust(size, b"\0")
            if kind_of_cap == 2:
                struct.pack_into("<I", conf, at + 16, 4)
            at += size
        struct.pack_into("<BBHII", conf, at, 0x11, 0, VECTORS - 1, MSIX, MSIX + PAGE)
        self.msix_cap = at
        return conf

    def say_qemu(self) -> None:
        """Have the subsystem that a modern device of QEMU's has."""
        struct.pack_into("<H", self.conf, SUBSYSTEM + 2, 0x1100)

    def reset(self) -> None:
        """Set the state after the driver wrote 0 to the status."""
        for queue in self.device.queues:
            if queue.live:
                self.device.stopped(queue)
        self.device.forget()
        self.registers = {name: 0 for _, name in REGISTERS.values()}
        self.registers["num_queues"] = len(self.device.queues)
        self.registers["msix_config"] = NO_VECTOR
        self.per_queue = [self.fresh_queue(number) for number in range(len(self.device.queues))]
        self.isr = 0

    def wanted_registers(self) -> dict[str, Any]:
        """What the driver has set in ours: the state, and who is told by which vector."""
        return {"status": self.registers["device_status"],
                "vectors": [self.registers["msix_config"], *(
                    queue["queue_msix_vector"] for queue in self.per_queue)]}

    def fresh_queue(self, number: int) -> dict[str, int]:
        """The registers of a queue that has just been reset."""
        return ({name: 0 for _, name in REGISTERS.values() if name.startswith("queue_")} |
                {"queue_size": self.queue_max, "queue_msix_vector": NO_VECTOR,
                 "queue_notify_off": number})

    def command(self, words: list[str]) -> Any:
        """Commands for the transport."""
        match words:
            case ["pci", *settings]:
                for setting in settings:
                    name, _, value = setting.partition("=")
                    if value == "":
                        self.overrides.pop(name, None)
                    else:
                        self.overrides[name] = int(value, 0)
                return {}
            case ["needs-reset"]:
                with self.device.lock:
                    self.registers["device_status"] |= STATUS_NEEDS_RESET
                    self.announce_config()
                return {}
        raise device.CommandError(f"no such command: {' '.join(words)}")

    def message(self, vector: int) -> None:
        """Send a message interrupt; one of a storm that does not fit the socket is dropped."""
        if not self.msix_on or vector >= VECTORS:
            return
        address, data, masked = struct.unpack_from("<QII", self.msix, 16 * vector)
        if masked & 1:
            return
        with contextlib.suppress(BlockingIOError):
            self.qtest.send(f"writel {address:#x} {data:#x}\n".encode(), socket.MSG_DONTWAIT)

    def notifier(self, index: int) -> Any:
        """How a queue interrupts."""
        def notify() -> None:
            self.isr |= 1
            self.message(self.per_queue[index]["queue_msix_vector"])
        return notify

    def announce_config(self) -> None:
        """Interrupt for the configuration."""
        self.generation = (self.generation + 1) & 0xFF
        self.isr |= 2
        self.message(self.registers["msix_config"])

    def read_register(self, offset: int) -> int:
        """A register of the common configuration."""
        if offset not in REGISTERS:
            return 0
        name = REGISTERS[offset][1]
        if name in self.overrides:
            return self.overrides[name]
        if name == "device_status" and self.busy_reads > 0:
            self.busy_reads -= 1
            if self.busy_reads == 0:
                self.device.let_go()
            return STATUS_BUSY
        if name == "device_status" and self.registers[name] and "keeps_asking" in self.overrides:
            return self.registers[name] | STATUS_NEEDS_RESET
        if name == "device_feature":
            select = self.registers["device_feature_select"]
            return self.device.features >> 32 * select & 0xFFFFFFFF if select < 2 else 0
        if name == "config_generation":
            self.generation += "generation_runs" in self.overrides
            return self.generation & 0xFF
        select = self.registers["queue_select"]
        if name.startswith("queue_") and name != "queue_select":
            return self.per_queue[select][name] if select < len(self.per_queue) else 0
        return self.registers[name]

    def check_store(self, name: str, value: int) -> None:
        """Check that the driver may write this (4.1.4.3.2, 2.1.1, 3.1.1): ValueError if not."""
        status, select = self.registers["device_status"], self.registers["queue_select"]
        enabled = select < len(self.per_queue) and self.per_queue[select]["queue_enable"]
        wrong = {
            "a register to be read": name in READ_ONLY,
            "0 to queue_enable": name == "queue_enable" and value == 0,
            "a queue before its features": name == "queue_enable" and
            not status & STATUS_FEATURES_OK,
            "a queue that is enabled": bool(enabled) and name in QUEUE_SETUP,
            "features too late": name == "driver_feature" and
            bool(status & (STATUS_FEATURES_OK | STATUS_DRIVER_OK)),
            "a status without bits that it had": name == "device_status" and
            value != 0 and bool(status & ~STATUS_NEEDS_RESET & ~value),
        }
        if name == "queue_size":
            packed = self.device.has("RING_PACKED")
            wrong["a size that no ring has"] = value == 0 or (
                not packed and value & (value - 1) != 0)
        for what, so in wrong.items():
            if so:
                raise ValueError(f"{name}: the driver writes {what}: {value:#x}")

    def write_register(self, offset: int, value: int) -> None:
        """Write a register of the common configuration."""
        if offset not in REGISTERS:
            raise ValueError(f"the driver writes at {offset:#x}, where no register is")
        name = REGISTERS[offset][1]
        self.check_store(name, value)
        select = self.registers["queue_select"]
        if name.startswith("queue_") and name != "queue_select":
            if select < len(self.per_queue):
                self.per_queue[select][name] = value
                if name == "queue_enable" and value == 1:
                    self.enable(select)
                if name == "queue_reset" and value == 1:
                    self.reset_queue(select)
        elif name == "device_status":
            self.set_status(value)
        elif name == "driver_feature":
            shift = 32 * self.registers["driver_feature_select"]
            agreed = self.device.agreed & ~(0xFFFFFFFF << shift) | value << shift
            self.device.agree(agreed)
        else:
            self.registers[name] = value

    def set_status(self, value: int) -> None:
        """The driver changed the state of the device."""
        if value == 0:
            self.device.count("resets")
            self.reset()
            self.busy_reads = self.overrides.get("slow_reset", 0)
            if self.busy_reads == 0:
                self.device.let_go()
            return
        before = self.registers["device_status"]
        if "refuse_features" in self.overrides:
            value &= ~STATUS_FEATURES_OK
        self.registers["device_status"] = value
        if value & ~before & STATUS_DRIVER_OK:
            for number, queue in enumerate(self.device.queues):
                if self.per_queue[number]["queue_enable"]:
                    queue.start()
                    self.device.started(queue)

    def reset_queue(self, number: int) -> None:
        """The driver resets one queue (2.6.1): at once, unless an override says otherwise."""
        self.device.count("queue_resets")
        if "queue_reset" in self.overrides:
            return
        if self.device.queues[number].live:
            self.device.stopped(self.device.queues[number])
        self.per_queue[number] = self.fresh_queue(number)

    def enable(self, number: int) -> None:
        """The driver enabled a queue."""
        registers, queue = self.per_queue[number], self.device.queues[number]
        queue.parts = layout.Parts(registers["queue_size"], *(
            registers[f"queue_{part}_lo"] | registers[f"queue_{part}_hi"] << 32
            for part in ("desc", "driver", "device")))
        # After a reset of the queue alone, in a device that is live.
        if self.registers["device_status"] & STATUS_DRIVER_OK:
            queue.start()
            self.device.started(queue)

    def check_width(self, page: int, at: int, size: int) -> None:
        """Check that a field is accessed by its width (4.1.3.1): ValueError if not."""
        if page == COMMON and at in REGISTERS:
            wanted = REGISTERS[at][0]
        elif page == DEVICE:
            # A field of 8 bytes is two of 4; one of 6 is bytes (the address of a card).
            fields = [field for field in self.device.fields.values()
                      if field[0] <= at < field[0] + field[1]]
            wanted = min((fields[0][1], 4)) if fields else size
            wanted = 1 if fields and fields[0][1] == 6 else wanted
        else:
            return
        if size != wanted or at % size != 0:
            raise ValueError(f"the driver accesses {size} bytes at {at:#x}, not {wanted}")

    def read_bar(self, offset: int, size: int) -> int:
        """Read of the BAR."""
        page, at = offset & ~(PAGE - 1), offset & (PAGE - 1)
        self.check_width(page, at, size)
        if page == COMMON:
            return self.read_register(at)
        if page == ISR:
            isr, self.isr = self.isr, 0
            return isr
        if page == DEVICE:
            return int.from_bytes(self.device.config[at:at + size], "little")
        if page == MSIX:
            return int.from_bytes(self.msix[at:at + size], "little")
        return 0

    def write_bar(self, offset: int, size: int, value: int) -> ring.Queue | None:
        """Write to the BAR; returns the queue that was kicked."""
        page, at = offset & ~(PAGE - 1), offset & (PAGE - 1)
        self.check_width(page, at, size)
        data = value.to_bytes(8, "little")[:size]
        if page == COMMON:
            self.write_register(at, value)
        elif page == DEVICE:
            status = self.registers["device_status"]
            if not status & STATUS_FEATURES_OK:
                raise ValueError(f"the driver writes its configuration at status {status:#x}")
            self.device.check_written(at, bool(status & STATUS_DRIVER_OK))
            if "refuse_config" not in self.overrides:
                self.device.config[at:at + size] = data
            self.device.count("config_writes")
        elif page == NOTIFY and at // 4 < len(self.device.queues):
            return self.device.queues[at // 4]
        elif page == MSIX:
            self.msix[at:at + size] = data
        return None

    def read_at(self, address: int, size: int, memory: bool) -> int:
        """Read of an address, of memory or I/O."""
        del memory
        return self.read_bar(address - self.bar, size)

    def write_at(self, address: int, size: int, value: int, memory: bool) -> ring.Queue | None:
        """Write to an address; returns the queue that was kicked."""
        del memory
        return self.write_bar(address - self.bar, size, value)

    def write_conf(self, at: int, value: int, size: int) -> None:
        """Write to the configuration space."""
        if at == 0x10:
            value &= ~(BAR_SIZE - 1) & 0xFFFFFFFF
            self.bar = value
            struct.pack_into("<I", self.conf, at, value)
        elif at in (4, 0x3C):
            self.conf[at:at + size] = value.to_bytes(4, "little")[:size]
        elif at == self.msix_cap + 2:
            self.msix_on = bool(value & 0x8000)
            struct.pack_into("<H", self.conf, at, value & 0xC000 | VECTORS - 1)

    def map_memory(self, payload: bytes, fds: list[int]) -> None:
        """Where the guest's memory is."""
        gpas, sizes, offsets = (struct.unpack_from("=8Q", payload, 64 * i) for i in range(3))
        self.device.memory.regions = [
            memory.Region(fd, gpas[i], sizes[i], 0, offsets[i]) for i, fd in enumerate(fds)]

    def exactly(self, size: int) -> bytes:
        """So many bytes of the connection."""
        data = b""
        while len(data) < size:
            piece = self.link.recv(size - len(data))
            if not piece:
                raise Gone
            data += piece
        return data

    def receive(self) -> tuple[int, bytes, list[int]]:
        """A message: command, payload, descriptors."""
        head, fds, _, _ = socket.recv_fds(self.link, HEADER.size, MAX_FDS)
        if not head:
            raise Gone
        command, size = HEADER.unpack(head + self.exactly(HEADER.size - len(head)))
        return command, self.exactly(size), list(array.array("i", fds))

    def reply(self, value: int) -> None:
        """Answer a message."""
        self.link.sendall(HEADER.pack(RET, 8) + struct.pack("=Q", value & (1 << 64) - 1))

    def handle(self) -> None:
        """Take a message, answer it, and process what it started."""
        command, payload, fds = self.receive()
        if command == CFG_READ:
            at, _, size = CONF.unpack(payload[:CONF.size])
            self.reply(int.from_bytes(self.conf[at:at + size], "little"))
        elif command == CFG_WRITE:
            self.write_conf(*CONF.unpack(payload[:CONF.size]))
            self.reply(0)
        elif command == BAR_READ:
            address, _, size, in_memory = BAR.unpack(payload[:BAR.size])
            with self.device.lock:
                value = self.read_at(address, size, bool(in_memory))
            self.reply(value)
        elif command == BAR_WRITE:
            address, value, size, in_memory = BAR.unpack(payload[:BAR.size])
            with self.device.lock:
                queue = self.write_at(address, size, value, bool(in_memory))
            self.reply(0)
            if queue is not None:
                with self.device.lock:
                    self.device.kicked(queue)
        elif command == SYNC_SYSMEM:
            self.map_memory(payload, fds)
        elif command == DEVICE_RESET:
            self.reset()
            self.reply(0)
        for fd in fds:
            socket.close(fd)

    def run(self) -> None:
        """Serve until QEMU disconnects."""
        selector = selectors.DefaultSelector()
        selector.register(self.link, selectors.EVENT_READ, self.handle)
        selector.register(self.qtest, selectors.EVENT_READ, lambda: self.qtest.recv(65536))
        with contextlib.suppress(Gone, ConnectionError):
            while True:
                for key, _ in selector.select():
                    key.data()
