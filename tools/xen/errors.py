# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Errors, paths, and locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import time
from collections.abc import Iterator

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
OBJ = pathlib.Path(os.environ.get("OBJTOP", TOP / "obj")) / "xen"

# Seconds in which a guest whose time is over is to say what it waits for.
TELLING = 30


class LabError(Exception):
    """The lab can't do what was requested; a line for the user."""

    status = 1


class ImageError(LabError):
    """The packages are there, but are not what the lab is made of: a fault of this program."""

    status = 2


class LabTimeoutError(LabError):
    """It took too long."""


class Deadline:
    """The moment at which something must have come to an end."""

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left; raises LabTimeoutError when there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise LabTimeoutError("time-out")
        return seconds


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Hold the lock file: one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
