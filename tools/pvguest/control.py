# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The control socket of a program that is a device, or a host (tests/vhost/vdev, tests/netpeer).

A command is a line: its words, as JSON.  So is the answer: {"ok": VALUE}, or {"error": REASON}.
This imports few modules, as each guest of a test has such a device.
"""

from __future__ import annotations

import json
import pathlib
import socket
from collections.abc import Sequence
from typing import Any


class RefusedError(OSError):
    """The program's reason for not doing what it was told."""


def ask(path: str | pathlib.Path, words: Sequence[str], seconds: float | None = None) -> Any:
    """Send a command; returns the answer's value.

    Raises RefusedError; another OSError if no answer comes, TimeoutError if none does in time.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(str(path))
        connection.sendall(json.dumps(words).encode() + b"\n")
        line = connection.makefile().readline()
    if not line:
        raise OSError(f"{path}: no answer")
    answer = json.loads(line)
    if "error" in answer:
        raise RefusedError(answer["error"])
    return answer["ok"]
