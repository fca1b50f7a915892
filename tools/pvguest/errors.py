# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The early end of a run, and its time limit."""

from __future__ import annotations

import time

STATUS_TIMEOUT = 124
STATUS_PANIC = 125
STATUS_NO_BOOT = 126


class GuestError(Exception):
    """The end of the run: an exit status, and a line for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Deadline:
    """The moment at which the run has to have finished, as time.monotonic() has it.

    No dataclass: to import those would be a tenth of a guest's start.
    """

    def __init__(self, at: float) -> None:
        self.at = at

    def left(self) -> float:
        """Seconds left; raises GuestError when there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise GuestError(STATUS_TIMEOUT, "time-out")
        return seconds
