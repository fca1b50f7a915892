# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""QEMU's machine protocol, with a guest's deadline and errors."""

from __future__ import annotations

import json
import pathlib
import shlex
import socket
from typing import Any

from pvguest.errors import Deadline, GuestError


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Split `NAME [key=value ...]'; values are JSON where they parse as JSON, else text."""
    name, *settings = shlex.split(text)
    arguments: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            arguments[key] = json.loads(value)
        except json.JSONDecodeError:
            arguments[key] = value
    return name, arguments


class Qmp:
    """QEMU's machine protocol on a unix socket."""

    def __init__(self, path: pathlib.Path, deadline: Deadline) -> None:
        self.deadline = deadline
        self.events: list[dict[str, Any]] = []
        self.buffer = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.receive()
        self.execute("qmp_capabilities", {})

    def receive(self) -> dict[str, Any]:
        """The next message."""
        while b"\n" not in self.buffer:
            self.socket.settimeout(self.deadline.left())
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                continue
            if not data:
                raise EOFError("QEMU closed its monitor")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def execute(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a command; returns its result, raises GuestError with QEMU's words."""
        request = {"execute": name, "arguments": arguments}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            message = self.receive()
            if "return" in message:
                return message["return"]
            if "error" in message:
                raise GuestError(1, f"qmp {name}: {message['error']['desc']}")
            self.events.append(message)

    def wait(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Wait for an event; it is used up."""
        while True:
            for number, event in enumerate(self.events):
                found = event.get("data", {})
                if event.get("event") == name and all(
                        found.get(key) == value for key, value in data.items()):
                    return self.events.pop(number)
            message = self.receive()
            if "event" in message:
                self.events.append(message)
