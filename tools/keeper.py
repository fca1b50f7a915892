# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A program that leaves no process behind, whatever ends it.

The program is two processes: the keeper, which the user started, and below it the one that works.
Both are subreapers (prctl(2)): a process whose parent has ended becomes their child, also one with
a session of its own, as a lab's QEMU has.  When the worker has ended, by itself or by any signal,
the keeper ends all that is below it; when the keeper was killed, the worker is sent SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How long, in seconds, processes have to end by themselves.
ENDING = 30


def prctl(option: int, value: int) -> None:
    """Call prctl(2)."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """The direct children of this process."""
    # Of the only thread: /proc has them by thread.
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(word) for word in file.read().split()]


def end_children(seconds: float = ENDING) -> None:
    """End all descendants: SIGTERM, and later SIGKILL, to the children until there are none."""
    until = time.monotonic() + seconds
    told: set[int] = set()
    while pids := children():
        patient = time.monotonic() < until
        for pid in pids:
            if patient and pid in told:
                continue
            # What it leaves is ours next.  One that stands still in a soak has to go on.
            os.kill(pid, signal.SIGTERM if patient else signal.SIGKILL)
            os.kill(pid, signal.SIGCONT)
            told.add(pid)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                told.discard(ended)
        time.sleep(0.01)


def kept(work: Callable[[], int]) -> int:
    """Run work() in a process of its own; returns its status as a shell's when no other is left."""
    keeper = os.getpid()
    sys.stdout.flush()
    become_subreaper()
    # A signal that comes before there is somebody to tell waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    worker = os.fork()
    if worker == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:
            os._exit(128 + signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return work()

    def tell(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGTERM)

    for number in SIGNALS:
        signal.signal(number, tell)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    while True:
        # Also what becomes a child of ours meanwhile.
        pid, status = os.wait()
        if pid == worker:
            break
    end_children()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
