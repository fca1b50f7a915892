# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A running QEMU, or xl's console, and the output of its guest's console."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import termios
import tty
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO, Protocol

from pvguest.debuginfo import Annotator, Files
from pvguest.errors import STATUS_NO_BOOT, STATUS_TIMEOUT, Deadline, GuestError
from pvguest.qemu import QEMU

if TYPE_CHECKING:
    from xen.session import Boot

# What ends a command's output: its exit status.
MARK = re.compile(rb"\x1e(\d+)\r?\n")

# So much of the console's output is kept to find the reason of the guest's end in.
MEMORY = 16384


class System(Protocol):
    """The properties of a kernel that a console depends on: tree.Tree, freebsd.FreeBSD."""

    power_off: bytes  # typed to end the guest
    quiet: bytes  # typed to leave the console to the user
    suspend: str  # the command for COMMAND `suspend', where it has another name
    snapshots: pathlib.Path | None  # where booted guests are kept, if they are
    machine: str  # QEMU's, unless the user chooses

    def check(self, args: argparse.Namespace) -> None:
        """Refuse bad options before anything is built, looked for or booted."""

    def boot_arguments(self, args: argparse.Namespace) -> AbstractContextManager[list[str]]:
        """QEMU's arguments that boot it; files that they name live as long as the context."""

    def lab_boot(self, args: argparse.Namespace) -> AbstractContextManager[Boot]:
        """What it boots in a lab; the files live as long as the context."""

    def debug_files(self) -> Files:
        """What it was before it was stripped; known once it is to boot."""

    def typed(self, command: str) -> bytes:
        """What is typed at its console to run a command."""

    def stuck(self, console: bytes) -> GuestError | None:
        """Whether the end of the console's output shows a guest that will not go on."""

    def ended(self, status: int, console: bytes) -> GuestError | None:
        """Why QEMU ended with this status, when that is the guest's doing."""


class Console:
    """A process whose standard input and output are the console of a guest."""

    def __init__(self, command: list[str], system: System, deadline: Deadline,
                 log: BinaryIO | None) -> None:
        self.command = command
        self.system = system
        self.deadline = deadline
        self.log = log
        self.pending = b""
        self.unseen = b""
        self.recent = b""
        self.booted = False
        self.annotator = Annotator(system.debug_files())
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self.process = self.start(command)

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start QEMU, with pipes for the console."""
        try:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=self.errors)
        except FileNotFoundError as error:
            raise GuestError(STATUS_NO_BOOT,
                             f"{QEMU} is not installed: tools/bootstrap") from error

    def complaint(self) -> str:
        """The first line of QEMU's standard error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        return lines[0] if lines else ""

    def said(self) -> str:
        """The end of what was not shown: why a guest did not boot."""
        text = (self.unseen + self.pending).replace(b"\r", b"").decode(errors="replace")
        return "".join(line + "\n" for line in text.splitlines()[-25:])

    def ended(self) -> GuestError:
        """QEMU has ended, or closed its console and is about to: why?"""
        try:
            status = self.process.wait(self.deadline.left())
        except subprocess.TimeoutExpired:
            said = self.complaint() or "it said nothing"
            return GuestError(STATUS_TIMEOUT,
                              f"time-out: QEMU closed the console, and did not end: {said}")
        if reason := self.system.ended(status, self.recent):
            return reason
        if not self.booted or status != 0:
            said = self.complaint() or f"QEMU ended with status {status}"
            return GuestError(STATUS_NO_BOOT, said)
        return GuestError(0, "")

    def read(self) -> bytes:
        """Some of the console's output."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.deadline.left())
        data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
        if ready and not data:
            raise self.ended()
        data = self.annotator.annotate(data)
        self.record(data)
        if stuck := self.system.stuck(self.recent):
            self.pending += data
            raise stuck
        return data

    def record(self, data: bytes) -> None:
        """Keep the console's output: the whole of it in the log."""
        self.recent = (self.recent + data)[-MEMORY:]
        if self.log is not None:
            self.log.write(data)
            self.log.flush()

    def write(self, data: bytes) -> None:
        """Type at the console."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def result(self, show: bool) -> int:
        """Copy the console's output until the mark that ends a command; returns the status."""
        while True:
            found = MARK.search(self.pending)
            # Keep what may be the beginning of a mark.
            safe = found.start() if found else (self.pending + b"\x1e").index(b"\x1e")
            if show:
                sys.stdout.buffer.write(self.pending[:safe].replace(b"\r", b""))
                sys.stdout.buffer.flush()
            else:
                self.unseen = (self.unseen + self.pending[:safe])[-4096:]
            if found:
                self.pending = self.pending[found.end():]
                self.recent = self.pending
                self.booted = True
                return int(found.group(1))
            self.pending = self.pending[safe:]
            self.pending += self.read()

    def interact(self) -> None:
        """Join the user's terminal to the console until the guest ends or ^] is typed."""
        self.write(self.system.quiet)
        self.result(show=False)
        print("guest: at the guest's prompt; `shutdown -p now` or ^] ends it", flush=True)
        self.write(b"\n")
        assert self.process.stdout is not None
        saved = termios.tcgetattr(0)
        try:
            tty.setraw(0)
            while True:
                ready, _, _ = select.select([0, self.process.stdout], [], [])
                if self.process.stdout in ready:
                    data = os.read(self.process.stdout.fileno(), 65536)
                    if not data:
                        return
                    os.write(1, self.annotator.annotate(data))
                if 0 in ready:
                    typed = os.read(0, 1024)
                    if b"\x1d" in typed:
                        return
                    self.write(typed)
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)

    def close(self) -> None:
        """End QEMU if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.annotator.close()
        self.errors.close()
