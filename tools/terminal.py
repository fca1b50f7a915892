# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The end of a tool, and its progress line: functions that all programs of tools share."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TextIO

INTERRUPTED = 128 + signal.SIGINT
NO_READER = 128 + signal.SIGPIPE


def status_of(main: Callable[[], int]) -> int:
    """Run a program's main(); returns its exit status.

    When its output is closed (`tools/X | head -1`), that is 141, as of a program that
    the signal ends, and nothing is printed: main() is left by the exception, so that it cleans up.
    """
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER


class Progress:
    """One line that is written over, on a terminal; nothing where the output goes to a log.

    It says what is being done, the how manieth of how many that is, and the time since the start.
    """

    def __init__(self, total: int = 0, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.total = total  # 0 if it is not known
        self.number = 0
        self.start = time.monotonic()
        self.shown = False
        self.terminal = self.stream.isatty()

    def step(self, what: str) -> None:
        """Begin the next of `total` things."""
        self.number += 1
        self.show(what)

    def show(self, what: str) -> None:
        """Write the line anew."""
        if not self.terminal:
            return
        minutes, seconds = divmod(int(time.monotonic() - self.start), 60)
        total = f" of {self.total}" if self.total >= self.number else ""
        text = f"{self.number}{total}, {minutes}:{seconds:02}: {what}"
        columns = os.get_terminal_size(self.stream.fileno()).columns or 80
        self.stream.write(f"\r\033[K{text[:columns - 1]}")
        self.stream.flush()
        self.shown = True

    def clear(self) -> None:
        """Remove the line: something else is printed, or the work has finished."""
        if self.shown:
            self.stream.write("\r\033[K")
            self.stream.flush()
            self.shown = False
