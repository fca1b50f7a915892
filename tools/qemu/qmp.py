# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""QEMU's machine protocol."""

from __future__ import annotations

import json
import pathlib
import shlex
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Deadline(Protocol):
    """The moment at which something must have come to an end."""

    def left(self) -> float:
        """Seconds left; raises an exception when there are none."""


# A flag in /proc/net/unix.
LISTENS = 0x10000


def listens(path: pathlib.Path) -> bool:
    """Whether QEMU listens at this socket: its file is there a moment before, and refuses."""
    if not path.exists():
        return False
    for line in pathlib.Path("/proc/net/unix").read_text(errors="replace").splitlines():
        words = line.split(None, 7)
        if words[-1] == str(path) and int(words[3], 16) & LISTENS:
            return True
    return False


class Qmp:
    """A connection to a running QEMU, which takes one at a time.

    failed makes the exception for what QEMU refuses.  When QEMU ends there is an EOFError or a
    ConnectionError, and when it is too busy for another connection a TimeoutError.
    """

    def __init__(self, path: pathlib.Path, deadline: Deadline,
                 failed: Callable[[str], Exception]) -> None:
        self.deadline = deadline
        self.failed = failed
        self.buffer = b""
        self.events: list[dict[str, Any]] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(deadline.left())
        self.socket.connect(str(path))
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
                raise EOFError("QEMU closed its monitor")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def execute(self, name: str, /, **arguments: Any) -> Any:
        """Run a command; returns its result, raises with QEMU's words if it fails."""
        request = {"execute": name, "arguments": arguments}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            message = self.receive()
            if "return" in message:
                return message["return"]
            if "error" in message:
                raise self.failed(f"qmp {name}: {message['error']['desc']}")
            self.events.append(message)

    def wait(self, name: str, /, **data: Any) -> dict[str, Any]:
        """Wait for an event with these data; it is used up."""
        while True:
            for number, event in enumerate(self.events):
                found = event.get("data", {})
                if event.get("event") == name and data.items() <= found.items():
                    return self.events.pop(number)
            self.events.append(self.receive())

    def monitor(self, line: str) -> None:
        """Run a command of the human monitor, which takes options as the command line does."""
        said = str(self.execute("human-monitor-command", **{"command-line": line})).strip()
        if said and said != "OK":
            raise self.failed(f"{line}: {said.splitlines()[0].removeprefix('Error: ')}")

    def enable(self, capabilities: Iterable[str]) -> None:
        """Enable capabilities of migration, which both ends have to agree about."""
        self.execute("migrate-set-capabilities", capabilities=[
            {"capability": name, "state": True} for name in capabilities])

    def incoming(self, uri: str, capabilities: Iterable[str] = ()) -> None:
        """Read the machine's state from a URI: it was started with `-incoming defer'."""
        self.enable(capabilities)
        self.execute("migrate-incoming", uri=uri)

    def migrate(self, uri: str, capabilities: Iterable[str] = (), *,
                live: bool = False) -> dict[str, Any]:
        """Stop the machine, and write its state to a URI as fast as it goes.

        The machine is stopped, as TCG sometimes misses a page that is written meanwhile.  With
        `live' it goes on nevertheless until the end.  Returns what `query-migrate' says of it.
        """
        self.enable(capabilities)
        self.execute("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        if not live:
            self.execute("stop")
        self.execute("migrate", uri=uri)
        state: dict[str, Any]
        # QEMU says that it has completed some instructions before it has counted the time.
        while ((state := self.execute("query-migrate"))["status"] != "completed"
               or (live and state["total-time"] == 0)):
            if state["status"] in ("failed", "cancelled"):
                raise self.failed(f"migrate: {state.get('error-desc', 'failed')}")
            time.sleep(min(0.002, self.deadline.left()))
        return state

    def save(self, path: pathlib.Path, capabilities: Iterable[str] = ()) -> None:
        """Stop the machine, and write its state to a file that is not there yet.

        QEMU has completed before the program that it writes to: the file is there when it is whole.
        """
        part, whole = (shlex.quote(f"{path}{end}") for end in (".part", ""))
        self.migrate(f"exec:cat >{part} && mv {part} {whole}", capabilities)
        while not path.exists():
            time.sleep(min(0.002, self.deadline.left()))

    def resume(self) -> str:
        """Continue a machine whose state has been or is being loaded; returns its status."""
        while (status := self.execute("query-status")["status"]) == "inmigrate":
            time.sleep(min(0.002, self.deadline.left()))
        self.execute("cont")
        return str(self.execute("query-status")["status"]) + f" after {status}"
