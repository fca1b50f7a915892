# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A booted guest, kept in a file from which the next one continues.

The snapshot has the machine without its virtio devices, at its prompt.  The devices are plugged in
afterwards, through the monitor, so that one snapshot serves every test that requires the same
number of CPUs, the same memory and the same kernel environment.  The guest's clock continues from
the moment at which the snapshot was taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pathlib
import re
import shlex
import time
from typing import TYPE_CHECKING

from pvguest.errors import STATUS_NO_BOOT, GuestError
from pvguest.guest import Guest
from qemu.qmp import listens
from xen.errors import Deadline

if TYPE_CHECKING:
    from xen.session import Session

# They take some 200 MB each; the least recently used are removed.
KEPT = 6

# Words of QEMU's whose value is of this machine, and does not reach the guest's memory.
HOST_WORDS = ("-netdev", "-drive", "-blockdev", "-qmp", "-chardev", "-D", "-accel", "-d")
# A guest that is measured, or whose memory is another process's, is always booted.
UNFIT = re.compile(r"-icount|-plugin|-incoming|-loadvm|memory-backend|vhost-user")

# How many devices have no driver, which is on the console as well.
SEARCHED = "dmesg | grep -c '(no driver attached)'"


def is_q35(command: list[str]) -> bool:
    """Whether a command line has that machine."""
    return any(word == "-machine" and value.startswith("q35")
               for word, value in itertools.pairwise(command))


def split(command: list[str]) -> tuple[list[str], list[str]] | None:
    """Divide QEMU's command line: what is fixed, and the devices to plug in; None: unfit."""
    fixed: list[str] = []
    plugged: list[str] = []
    words = iter(command)
    for word in words:
        if UNFIT.match(word):
            return None
        if word == "-device":
            value = next(words)
            # What does not sit on the root bus sits on a bridge, which may have to come first.
            if value.startswith("virtio-") and ",bus=" not in value:
                plugged.append(value)
            else:
                fixed += [word, value]
        else:
            fixed.append(word)
    # Nothing can be plugged into the root bus of q35.
    if any(UNFIT.search(word) for word in fixed) or (plugged and is_q35(fixed)):
        return None
    return fixed, plugged


def key(fixed: list[str]) -> str:
    """A name for what boots: other files or another machine make another."""
    digest = hashlib.sha256()
    words = iter(fixed)
    for word in words:
        if word in HOST_WORDS:
            # Of the back ends, QEMU's own network is part of what it saves.
            if next(words, "").split(",")[0] == "user":
                digest.update(b"user\0")
            continue
        found = re.match(r"loader,file=([^,]*),", word)
        path = pathlib.Path(found[1] if found else word)
        if word.startswith("/") or found:
            status = path.stat()
            if status.st_size < 1 << 20:
                digest.update(path.read_bytes())
            else:
                digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}".encode())
            word = word.split(",addr=")[-1] if found else path.name  # noqa: PLW2901
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()[:24]


def resumable(fixed: list[str]) -> list[str]:
    """The command line without what is loaded into memory: that is in the snapshot."""
    result: list[str] = []
    words = iter(fixed)
    for word in words:
        if word == "-kernel":
            result += [word, str(pathlib.Path(next(words)).with_suffix(".resume"))]
        elif word == "-device":
            value = next(words)
            result += [] if value.startswith("loader,") else [word, value]
        else:
            result.append(word)
    return result


def save(guest: Guest, path: pathlib.Path) -> None:
    """Save a guest that is at its prompt, and continue it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{guest.process.pid}")
    monitor = guest.monitor()
    try:
        # Without space there is no snapshot, and the guest continues nevertheless.
        with contextlib.suppress(GuestError):
            monitor.save(fresh)
            fresh.rename(path)
        monitor.execute("cont")
    finally:
        fresh.unlink(missing_ok=True)
    others = sorted(path.parent.glob("*.state"), key=lambda one: one.stat().st_mtime)
    for old in others[:-KEPT]:
        old.unlink(missing_ok=True)


def resume(guest: Guest) -> None:
    """Continue a guest that was started from a snapshot."""
    while not listens(guest.qmp_path):
        if guest.process.poll() is not None:
            raise guest.ended()
        time.sleep(min(0.01, guest.deadline.left()))
    try:
        guest.monitor().resume()
    except (EOFError, ConnectionError) as error:
        raise guest.ended() from error
    guest.booted = True


def plug(guest: Guest, devices: list[str]) -> None:
    """Plug the devices in, one when the bus has been searched for the one before.

    Two of ACPI's notices at a time are two searches of the bus at a time, which may both find and
    add the same device: FreeBSD's debug kernel panics.  That a device has no driver is printed
    after the search.
    """
    monitor = guest.monitor()
    for device in devices:
        ask(guest, f"plugged=$({SEARCHED})")
        try:
            monitor.monitor(f"device_add {device}")
        except GuestError as error:
            raise GuestError(STATUS_NO_BOOT, str(error)) from error
        ask(guest, f"until [ $({SEARCHED}) -gt $plugged ]; do sleep 0.05; done")


def ask(guest: Guest, command: str) -> None:
    """Run a command whose output is not shown."""
    guest.write(guest.system.typed(command))
    guest.result(show=False)


class Plan:
    """How a guest comes to its prompt: from a snapshot, or by booting, which makes one."""

    def __init__(self, command: list[str], folder: pathlib.Path | None) -> None:
        self.whole = self.command = command
        self.devices: list[str] = []
        self.resuming: list[str] = []
        self.state: pathlib.Path | None = None
        self.is_kept = False
        parts = split(command) if folder else None
        if folder is None or parts is None:
            return
        self.command, self.devices = parts
        self.state = folder / f"{key(self.command)}.state"
        self.resuming = [*resumable(self.command), "-incoming",
                         f"exec:cat {shlex.quote(str(self.state))}"]
        self.is_kept = self.state.is_file()
        if self.is_kept:
            os.utime(self.state)
            self.command = self.resuming

    def bring_up(self, guest: Guest, show: bool) -> None:
        """Wait for the prompt."""
        if self.is_kept:
            resume(guest)
        else:
            guest.result(show=show)
            if self.state:
                save(guest, self.state)
            if self.state and self.state.is_file():
                # The first one continues in the same way as all others will.
                guest.process.kill()
                guest.process.wait()
                guest.qmp = None
                guest.qmp_path.unlink(missing_ok=True)
                guest.process = guest.start(self.resuming)
                resume(guest)
        if self.state:
            plug(guest, self.devices)
            guest.command = self.whole


class LabPlan:
    """The same for a guest of the lab, whose snapshot is the lab's (xen.session)."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.command = session.command()

    def bring_up(self, guest: Guest, show: bool) -> None:
        """Wait for the prompt."""
        if not self.session.booted:
            guest.result(show=show)
            if self.session.snapshot is not None:
                guest.qmp = None
                self.session.keep(Deadline(guest.deadline.left()))
        guest.booted = True
        for setting in self.session.boot.settings:
            ask(guest, setting)
