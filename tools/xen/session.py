# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest's place in a lab, and snapshots of labs in which a guest has booted.

A guest that is alone in its lab may continue from a snapshot of a lab in which a guest of its kind,
with the same kernel, archive, settings and devices, is at its prompt.  Its disks are other files of
the same sizes: they have not been read yet, as the drivers are modules that a test loads.

The first guest of a kind boots, makes the snapshot at its prompt and goes on; all others use it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator

from qemu.options import split_options, take
from xen import agent
from xen.domain import (
    JOINED,
    SLOTS,
    XL_DISK_OPTIONS,
    put_back,
    qemu_disk,
)
from xen.errors import TELLING, TOP, Deadline, LabError, LabTimeoutError
from xen.lab import RUN, SNAPSHOT, Lab, Settings, ram_of, there

# The name of a guest that is alone in its lab.
GUEST = "guest"

# So many snapshots of guests; they take some 115 MB each, and the least recently used goes.  `make
# test` has about 60 kinds: with fewer places each run would make them all again.
MOST_SNAPSHOTS = 72

# Kernels without drivers, which are modules.
MODULAR = ("GENERIC", "GENERIC-NODEBUG")


@dataclasses.dataclass(frozen=True)
class Boot:
    """What a guest boots."""

    kernel: pathlib.Path
    archive: pathlib.Path
    cmdline: str
    # Commands that set at the prompt what modules read, and the seed: guests that differ in nothing
    # else share a snapshot.
    settings: tuple[str, ...] = ()


def is_of_dom0(net: str) -> bool:
    """Whether QEMU has nothing to do with a network."""
    return net == "none" or net.startswith("bridge")


def files(disks: list[str]) -> list[tuple[str, dict[str, str]]]:
    """The disks that are files of this machine, by name and options."""
    return [(path, options) for path, options in (split_options(disk, LabError) for disk in disks)
            if path != "ram" and not path.startswith("dom0:")]


def kinds(disks: list[str]) -> list[str | tuple[int, dict[str, str]]]:
    """What of the disks is in a snapshot: not the names of files, but their sizes."""
    result: list[str | tuple[int, dict[str, str]]] = []
    for disk in disks:
        found = files([disk])
        result += [(pathlib.Path(path).stat().st_size, options) for path, options in found]
        result += [] if found else [disk]
    return result


def fits(args: argparse.Namespace) -> bool:
    """Whether a guest may continue from a snapshot."""
    return (args.kernel in MODULAR and not args.fresh and all(map(is_of_dom0, args.net))
            # A file behind another device of dom0's is cached there.
            and not any("via" in options for _, options in files(args.disk))
            and len(args.disk) <= SLOTS)


class Snapshot:
    """The file with a lab in which a guest of a kind has booted."""

    def __init__(self, args: argparse.Namespace, boot: Boot, lab_key: str) -> None:
        words = [lab_key, boot.cmdline, args.type, args.smp, args.mem, args.xl, args.dom0_queues,
                 args.net, kinds(args.disk)]
        self.words = json.dumps(words[1:])
        digest = hashlib.sha256(json.dumps(words).encode())
        sources = [TOP / "tools/xen" / name
                   for name in ("agent.py", "domain.py", "session.py", "lab.py")]
        for path in (boot.kernel, boot.archive, *sources):
            digest.update(path.read_bytes())
        self.state = SNAPSHOT / f"guest-{digest.hexdigest()[:24]}"
        self.stamp = self.state.with_suffix(".key")
        self.lock = self.state.with_suffix(".lock")

    def usable(self) -> bool:
        """Whether it is there; it counts as used then."""
        if not there(self.state):
            return False
        os.utime(self.state)
        return True

    @contextlib.contextmanager
    def turn_to_make(self, deadline: Deadline) -> Iterator[bool]:
        """Whether this process is to make it; if another does so, it is waited for.

        A guest that boots beside the one that is kept would take the processor's time from it.
        """
        SNAPSHOT.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a") as file:
            while not self.usable():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(min(0.1, deadline.left()))
            # It may have been made after the first look.
            if self.usable():
                yield False
                return
            # The contents record what the kinds are, for the user.
            file.truncate(0)
            file.write(self.words + "\n")
            file.flush()
            yield True

    def save(self, lab: Lab, deadline: Deadline) -> None:
        """Make it of a running lab, which goes on afterwards."""
        lab.save(self.state, deadline)
        self.stamp.write_text((lab.folder / JOINED).read_text())
        others = sorted(SNAPSHOT.glob("guest-*.key"),
                        key=lambda stamp: stamp.with_suffix("").stat().st_mtime)
        for stamp in others[:-MOST_SNAPSHOTS]:
            state = stamp.with_suffix("")
            for path in (stamp, state, ram_of(state)):
                path.unlink(missing_ok=True)


@dataclasses.dataclass
class Session:
    """A guest's place in a lab.

    It is booted if the lab comes from a snapshot of this guest; with a snapshot, but not booted, it
    has to make that.
    """

    lab: Lab
    name: str
    args: argparse.Namespace
    boot: Boot
    snapshot: Snapshot | None = None
    booted: bool = False
    # Ends when the snapshot has been made.
    turn: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    def command(self) -> list[str]:
        """The command that runs the guest."""
        # A guest that has timed out is made to print what it waited for before it ends.
        command = [sys.executable, str(TOP / "tools/xenlab"), "--instance", self.lab.name,
                   "--timeout", str(self.args.timeout + TELLING + 5), "guest", "--name", self.name,
                   "--type", self.args.type, "--kernel", str(self.boot.kernel),
                   "--ramdisk", str(self.boot.archive), f"--cmdline={self.boot.cmdline}",
                   "--smp", str(self.args.smp), "--mem", str(self.args.mem),
                   "--dom0-queues", str(self.args.dom0_queues)]
        for option in ("net", "disk", "xl"):
            command += [f"--{option}={value}" for value in getattr(self.args, option)]
        if self.booted and self.snapshot:
            command.append(f"--joined={self.snapshot.stamp.read_text()}")
        return command + (["--alone"] if self.name == GUEST else [])

    def start(self, deadline: Deadline) -> None:
        """Start the lab: from the guest's snapshot if that exists and can be loaded.

        QEMU 7.2 can't load what it saved while its processor was in a guest of Xen's (SVM): "vCPU
        set in guest-mode inconsistent".  The guest boots then, and the next one makes another.
        """
        try:
            self.start_lab(deadline)
        except LabError as error:
            if not self.booted or isinstance(error, LabTimeoutError):
                raise
            print("guest: the snapshot of the lab can't be gone on from, so the guest boots:",
                  " ".join(str(error).split())[-200:], file=sys.stderr)
            self.snapshot, self.booted = None, False
            self.start_lab(deadline)

    def start_lab(self, deadline: Deadline) -> None:
        """Start the lab as start() decides."""
        state, disks = None, []
        if self.booted and self.snapshot:
            state = self.snapshot.state
            for number, (path, options) in enumerate(files(self.args.disk)):
                xl = take(options, XL_DISK_OPTIONS)
                disks.append((f"disk{number}", *qemu_disk(f"disk{number}", path, options, xl)))
        self.lab.start(settings(self.args), deadline, session=False, state=state, disks=disks,
                       keep=self.snapshot is not None and not self.booted)

    def keep(self, deadline: Deadline) -> None:
        """Make the snapshot of a guest at its prompt, with its console."""
        assert self.snapshot is not None
        self.lab.output("sync; echo 3 >/proc/sys/vm/drop_caches", deadline)
        self.snapshot.save(self.lab, deadline)
        self.turn.close()
        self.booted = True

    def environment(self) -> dict[str, str]:
        """Environment variables that identify this guest for tools/xenlab, and for its callers."""
        return {"XENLAB": self.lab.name, "DOM": self.name}

    def dom0(self, script: str, sink: agent.Sink, deadline: Deadline) -> int:
        """Run a shell script in dom0, where DOM is the guest's name; returns its exit status."""
        return self.lab.run(f"export DOM={self.name}; {script}", deadline, sink)

    def tell_where(self, sink: agent.Sink, deadline: Deadline) -> None:
        """Show Xen's domains and event channels (keys q and e); then the guest gets an NMI."""
        with (self.lab.folder / "console.log").open("rb") as console:
            console.seek(0, os.SEEK_END)
            try:
                self.dom0('xl list; xl debug-keys qe; xl trigger "$DOM" nmi', sink, deadline)
            finally:
                sink(console.read().replace(b"\r", b""))


def settings(args: argparse.Namespace) -> Settings:
    """The lab for tools/guest's arguments."""
    # dom0 keeps the image of a guest that is saved.
    times = 1 if args.mem <= 256 else 2
    return Settings(mem=times * Settings.mem, dom0_mem=times * Settings.dom0_mem,
                    device_model=args.type == "hvm")


@contextlib.contextmanager
def free_place() -> Iterator[Lab]:
    """A lab that no other process uses, by its name.

    Its name is that of a free place, so that a lab whose user died is found, and replaced.
    """
    RUN.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        with (RUN / f"{GUEST}{number}.use").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield Lab(f"{GUEST}{number}")
            return


@contextlib.contextmanager
def own_lab(args: argparse.Namespace, boot: Boot, deadline: Deadline) -> Iterator[Session]:
    """A guest alone in a lab, which is stopped in the end."""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(free_place())
        session = Session(lab, GUEST, args, boot)
        if fits(args):
            session.snapshot = Snapshot(args, boot, lab.key(settings(args)))
            stack.enter_context(session.turn)
            session.booted = not session.turn.enter_context(session.snapshot.turn_to_make(deadline))
        lab.stop(deadline)
        try:
            session.start(deadline)
            yield session
        finally:
            lab.stop(Deadline(20))


# Guests that this process has had.
SESSIONS = itertools.count()


@contextlib.contextmanager
def session(args: argparse.Namespace, boot: Boot) -> Iterator[Session]:
    """A guest's place in the lab --lab, which stays, or in one of its own."""
    deadline = Deadline(args.timeout)
    if args.lab is None:
        with own_lab(args, boot, deadline) as alone:
            yield alone
        return
    lab = Lab(args.lab)
    lab.start(settings(args), deadline)
    name = f"guest{os.getpid()}x{next(SESSIONS)}"
    try:
        yield Session(lab, name, args, boot)
    finally:
        with contextlib.suppress(LabError):
            lab.output(f"xl destroy {name} 2>/dev/null; true", Deadline(20))
            put_back(lab, name)
