# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The back end's side of the vhost-user protocol (QEMU's documentation, interop/vhost-user)."""

from __future__ import annotations

import array
import os
import selectors
import socket
import struct
from typing import Any

import device
import memory
import ring

(GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE, SET_LOG_BASE, SET_LOG_FD,
 SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL,
 SET_VRING_ERR, GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE,
 SEND_RARP, NET_SET_MTU, SET_BACKEND_REQ_FD, IOTLB_MSG, SET_VRING_ENDIAN, GET_CONFIG,
 SET_CONFIG) = range(1, 26)

BACKEND_CONFIG_CHANGE = 2

F_PROTOCOL_FEATURES = 1 << 30
PROTOCOL_MQ, PROTOCOL_REPLY_ACK, PROTOCOL_MTU, PROTOCOL_BACKEND_REQ, PROTOCOL_CONFIG = 0, 3, 4, 5, 9
PROTOCOL = sum(1 << bit for bit in (PROTOCOL_MQ, PROTOCOL_REPLY_ACK))
# QEMU warns about features that it does not use.
PROTOCOL_OF_TYPE = {1: 1 << PROTOCOL_MTU, 2: 1 << PROTOCOL_BACKEND_REQ | 1 << PROTOCOL_CONFIG}

HEADER = struct.Struct("=III")
VERSION, REPLY, NEED_REPLY = 1, 4, 8
NO_FD = 0x100
MAX_FDS = 8


class Gone(Exception):
    """The front end closed the connection."""


class Backend:
    """One connection of QEMU."""

    def __init__(self, dev: device.Device, link: socket.socket) -> None:
        self.device = dev
        self.link = link
        self.selector = selectors.DefaultSelector()
        self.kicks: dict[int, int] = {}
        self.calls: dict[int, int] = {}
        self.bases: dict[int, int] = {}
        self.requests: socket.socket | None = None
        dev.announce_config = self.announce_config
        for queue in dev.queues:
            queue.notify = self.notifier(queue.index)
        self.handlers = {
            GET_FEATURES: self.get_features, SET_FEATURES: self.set_features,
            SET_MEM_TABLE: self.set_mem_table, SET_VRING_NUM: self.set_vring_num,
            SET_VRING_ADDR: self.set_vring_addr, SET_VRING_BASE: self.set_vring_base,
            GET_VRING_BASE: self.get_vring_base, SET_VRING_KICK: self.set_vring_kick,
            SET_VRING_CALL: self.set_vring_call,
            GET_PROTOCOL_FEATURES: lambda _p, _f: struct.pack(
                "=Q", PROTOCOL | PROTOCOL_OF_TYPE[dev.type_id]),
            GET_QUEUE_NUM: lambda _p, _f: struct.pack("=Q", len(dev.queues)),
            SET_BACKEND_REQ_FD: self.set_backend_req_fd, GET_CONFIG: self.get_config,
            SET_CONFIG: self.set_config,
        }

    def notifier(self, index: int) -> Any:
        """How a queue interrupts."""
        def notify() -> None:
            fd = self.calls.get(index, -1)
            if fd >= 0:
                os.eventfd_write(fd, 1)
        return notify

    def announce_config(self) -> None:
        """Have QEMU read the configuration again."""
        if self.requests is not None:
            self.requests.sendall(HEADER.pack(BACKEND_CONFIG_CHANGE, VERSION, 0))

    def queue(self, index: int) -> ring.Queue:
        """A queue by the number in a message."""
        return self.device.queues[index & 0xFF]

    def get_features(self, _payload: bytes, _fds: list[int]) -> bytes:
        """The features that we offer."""
        return struct.pack("=Q", self.device.features | F_PROTOCOL_FEATURES)

    def set_features(self, payload: bytes, _fds: list[int]) -> None:
        """The features that the driver accepted."""
        self.device.agree(struct.unpack("=Q", payload)[0])

    def set_mem_table(self, payload: bytes, fds: list[int]) -> None:
        """Where the guest's memory is."""
        number = struct.unpack_from("=I", payload)[0]
        self.device.memory.regions = [
            memory.Region(fds[i], *struct.unpack_from("=QQQQ", payload, 8 + 32 * i))
            for i in range(number)]

    def set_vring_num(self, payload: bytes, _fds: list[int]) -> None:
        """The size of a ring."""
        index, size = struct.unpack("=II", payload)
        self.queue(index).parts.size = size

    def set_vring_addr(self, payload: bytes, _fds: list[int]) -> None:
        """Where a ring is, in QEMU's addresses."""
        index, _, desc, used, avail, _ = struct.unpack("=IIQQQQ", payload)
        parts, mem = self.queue(index).parts, self.device.memory
        parts.desc, parts.used, parts.avail = mem.gpa_of(desc), mem.gpa_of(used), mem.gpa_of(avail)

    def set_vring_base(self, payload: bytes, _fds: list[int]) -> None:
        """The index to begin with."""
        index, base = struct.unpack("=II", payload)
        self.bases[index] = base

    def get_vring_base(self, payload: bytes, _fds: list[int]) -> bytes:
        """Stop a ring."""
        index, _ = struct.unpack("=II", payload)
        fd = self.kicks.pop(index, -1)
        if fd >= 0:
            self.selector.unregister(fd)
            os.close(fd)
        return struct.pack("=II", index, self.device.stopped(self.queue(index)))

    def set_vring_kick(self, payload: bytes, fds: list[int]) -> None:
        """How a ring is kicked; it starts now."""
        word = struct.unpack("=Q", payload)[0]
        queue = self.queue(word)
        if not word & NO_FD and fds:
            fd = self.kicks[queue.index] = os.dup(fds[0])
            self.selector.register(fd, selectors.EVENT_READ, queue)
        queue.start(self.bases.get(queue.index))
        self.device.started(queue)

    def set_vring_call(self, payload: bytes, fds: list[int]) -> None:
        """How a ring interrupts."""
        word = struct.unpack("=Q", payload)[0]
        old = self.calls.pop(word & 0xFF, -1)
        if old >= 0:
            os.close(old)
        if not word & NO_FD and fds:
            self.calls[word & 0xFF] = os.dup(fds[0])

    def set_backend_req_fd(self, _payload: bytes, fds: list[int]) -> None:
        """The channel for our requests to QEMU."""
        self.requests = socket.socket(fileno=os.dup(fds[0]))

    def get_config(self, payload: bytes, _fds: list[int]) -> bytes:
        """The configuration."""
        offset, size, _ = struct.unpack_from("=III", payload)
        config = bytes(self.device.config[offset:offset + size])
        return payload[:12] + config.ljust(size, b"\0")

    def set_config(self, payload: bytes, _fds: list[int]) -> None:
        """The driver wrote to the configuration."""
        offset, size, _ = struct.unpack_from("=III", payload)
        self.device.config[offset:offset + size] = payload[12:12 + size]
        self.device.count("config_writes")

    def exactly(self, size: int) -> bytes:
        """So many bytes of the connection."""
        data = b""
        while len(data) < size:
            piece = self.link.recv(size - len(data))
            if not piece:
                raise Gone
            data += piece
        return data

    def receive(self) -> tuple[int, int, bytes, list[int]]:
        """A message: request, flags, payload, descriptors."""
        space = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
        head, ancillary, _, _ = self.link.recvmsg(HEADER.size, space)
        if not head:
            raise Gone
        fds = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
        head += self.exactly(HEADER.size - len(head))
        request, flags, size = HEADER.unpack(head)
        return request, flags, self.exactly(size), list(fds)

    def handle(self) -> None:
        """Take a message and answer it."""
        request, flags, payload, fds = self.receive()
        handler = self.handlers.get(request)
        with self.device.lock:
            answer = handler(payload, fds) if handler is not None else None
        for fd in fds:
            os.close(fd)
        if answer is None and flags & NEED_REPLY:
            answer = struct.pack("=Q", 0)
        if answer is not None:
            self.link.sendall(HEADER.pack(request, VERSION | REPLY, len(answer)) + answer)

    def run(self) -> None:
        """Serve until QEMU disconnects."""
        self.selector.register(self.link, selectors.EVENT_READ, None)
        while True:
            for key, _ in self.selector.select():
                if key.data is None:
                    try:
                        self.handle()
                    except (Gone, ConnectionError):
                        return
                elif key.fd in self.kicks.values():
                    os.eventfd_read(key.fd)
                    with self.device.lock:
                        self.device.kicked(key.data)
