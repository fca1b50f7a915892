# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""QEMU's machine protocol, as far as the lab needs it."""

from __future__ import annotations

import json
import pathlib
import socket
import time
from typing import Any

from xen.errors import Deadline, LabError


class Qmp:
    """A connection to a running QEMU; QEMU takes one at a time."""

    def __init__(self, path: pathlib.Path, deadline: Deadline) -> None:
        self.deadline = deadline
        self.buffer = b""
        self.events: list[dict[str, Any]] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(deadline.left())
        try:
            self.socket.connect(str(path))
        except OSError as error:
            raise LabError(f"{path}: {error.strerror}: QEMU does not answer") from error
        self.receive()
        self.execute("qmp_capabilities")

    def __enter__(self) -> Qmp:
        """The connection, until the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.socket.close()

    def receive(self) -> dict[str, Any]:
        """The next message."""
        while b"\n" not in self.buffer:
            self.socket.settimeout(self.deadline.left())
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                continue
            if not data:
                raise LabError("QEMU closed its monitor")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def execute(self, name: str, **arguments: Any) -> Any:
        """Run a command; returns its result, raises LabError with QEMU's words."""
        request = {"execute": name, "arguments": arguments}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            message = self.receive()
            if "return" in message:
                return message["return"]
            if "error" in message:
                raise LabError(f"QEMU: {message['error']['desc']}")
            self.events.append(message)

    def wait(self, name: str, **data: Any) -> None:
        """Wait for an event with these data."""
        while True:
            for event in self.events:
                found = event.get("data", {})
                if event.get("event") == name and data.items() <= found.items():
                    return
            self.events = [self.receive()]

    def monitor(self, line: str) -> None:
        """Run a command of the human monitor, which takes options as the command line does."""
        said = str(self.execute("human-monitor-command", **{"command-line": line})).strip()
        if said and said != "OK":
            raise LabError(f"QEMU: {said.splitlines()[0].removeprefix('Error: ')}")

    def migrate(self, uri: str) -> None:
        """Write the state of the machine to a URI, as fast as it goes."""
        self.execute("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.execute("migrate", uri=uri)
        while (status := self.execute("query-migrate")["status"]) != "completed":
            if status in ("failed", "cancelled"):
                raise LabError("QEMU could not save the state of the lab")
            time.sleep(min(0.02, self.deadline.left()))

    def resume(self) -> str:
        """Let a machine go on whose state was saved while it stood still; returns its status."""
        while (status := self.execute("query-status")["status"]) == "inmigrate":
            time.sleep(min(0.01, self.deadline.left()))
        self.execute("cont")
        return str(self.execute("query-status")["status"]) + f" after {status}"
