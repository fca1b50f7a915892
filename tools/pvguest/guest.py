# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A running guest: the COMMANDs of tools/guest."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from pvguest import control
from pvguest.console import MARK, Console, System
from pvguest.errors import STATUS_NO_BOOT, STATUS_TIMEOUT, Deadline, GuestError
from qemu.qmp import Qmp
from xen.errors import TELLING, LabError, LabTimeoutError
from xen.errors import Deadline as LabDeadline

if TYPE_CHECKING:
    from xen.session import Session

# Seconds between two tries of `until': a command takes CPU time from what is waited for.
FIRST_PAUSE, LAST_PAUSE = 0.05, 0.5
ACCEPTS = "00010000"  # in the flags of /proc/net/unix
# A driver's message about its device, unlike ifconfig(8)'s output for a card.
SAID = r"[a-z_]+[0-9]+: (?!flags=).*\n"
MESSAGE = re.compile(rf"^{SAID}", re.MULTILINE)
# One that came between a number that a command printed, perhaps with a name, and the line's end.
WITHIN = re.compile(rf"^((?:[\w.%]+: )?\d+)({SAID})", re.MULTILINE)


def split_pattern(text: str) -> tuple[re.Pattern[str] | None, str]:
    """Of `/REGEX/ COMMAND' the two parts; a command alone has no pattern."""
    found = re.fullmatch(r"/((?:[^/\\]|\\.)*)/ (.*)", text, re.DOTALL)
    if found is None:
        return None, text
    try:
        return re.compile(found[1], re.MULTILINE), found[2]
    except re.error as error:
        raise GuestError(STATUS_NO_BOOT, f"until /{found[1]}/: {error}") from error


@contextlib.contextmanager
def stdout_to(file: BinaryIO) -> Iterator[None]:
    """Send standard output, that of other processes too, to a file."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def contents(file: BinaryIO) -> str:
    """All of a file that was written by its descriptor."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def show(data: bytes) -> None:
    """Print what came, as it is."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Split `NAME [key=value ...]'; values are JSON where they parse as JSON, else text."""
    name, *settings = shlex.split(text)
    arguments: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            arguments[key] = json.loads(value)
        except json.JSONDecodeError:
            arguments[key] = value
    return name, arguments


def listening(path: str) -> bool:
    """Whether a program listens at a unix socket: the file is there a moment earlier."""
    lines = pathlib.Path("/proc/net/unix").read_text(errors="replace").splitlines()
    return any(line.endswith(f" {path}") and line.split()[3] == ACCEPTS for line in lines)


def of_state(state: dict[str, Any]) -> str:
    """What QEMU says of a migration; of the pages that were sent, all but the first of each were
    written to meanwhile.
    """
    ram = state["ram"]
    again = (ram["normal"] + ram["duplicate"]) * ram["page-size"] - ram["total"]
    return (f"{state['total-time']} ms, down for {state['downtime']} ms,"
            f" {ram['transferred'] >> 10} KB sent, {max(again, 0) >> 10} KB written meanwhile")


class Guest(Console):
    """A running QEMU, its console and its monitor; or a guest of the lab, with dom0 beside it."""

    def __init__(self, command: list[str], system: System, qmp_path: pathlib.Path,
                 deadline: Deadline, log: BinaryIO | None,
                 session: Session | None) -> None:
        self.qmp_path = qmp_path
        self.session = session
        self.environment = session.environment() if session else {}
        self.qmp: Qmp | None = None
        super().__init__(command, system, deadline, log)

    def monitor(self) -> Qmp:
        """The connection to QEMU's monitor, made when it is first needed."""
        if self.qmp is None:
            self.qmp = Qmp(self.qmp_path, self.deadline, lambda text: GuestError(1, text))
        return self.qmp

    def run(self, command: str) -> int:
        """Run one COMMAND; returns its exit status."""
        word, _, rest = command.partition(" ")
        if word == "host":
            sys.stdout.flush()
            return subprocess.run(rest, shell=True, check=False, timeout=self.deadline.left(),
                                  env=os.environ | self.environment |
                                  {"QEMU_PID": str(self.process.pid)}).returncode
        if word == "migrate" and self.session is None:
            return self.migrate(shlex.split(rest))
        if word == "suspend" and self.session is None:
            return self.suspend(word, rest)
        if word == "until":
            return self.until(rest)
        if word in ("qmp", "event"):
            return self.run_qmp(word, rest)
        if word == "ctl":
            return self.control(shlex.split(rest))
        if word == "dom0" and self.session is not None:
            return self.dom0(self.session, rest)
        self.write(self.system.typed(command))
        return self.result(show=True)

    def dom0(self, session: Session, script: str) -> int:
        """Run a shell script in dom0; a process for each would take longer than most of them."""
        sys.stdout.flush()
        try:
            return session.dom0(script, show, LabDeadline(self.deadline.left()))
        except LabTimeoutError as error:
            raise GuestError(STATUS_TIMEOUT, "time-out: dom0 has not answered") from error
        except LabError as error:
            print(f"xenlab: {error}", file=sys.stderr)
            return error.status

    def control(self, words: list[str]) -> int:
        """Run a COMMAND that is for a device of the guest's."""
        if len(words) < 2:
            print("ctl: expected SOCKET COMMAND", flush=True)
            return 1
        try:
            print(json.dumps(control.ask(words[0], words[1:], self.deadline.left())), flush=True)
        except TimeoutError as error:
            raise GuestError(STATUS_TIMEOUT, f"time-out: ctl {shlex.join(words)}") from error
        except OSError as error:
            print(f"ctl: {error}", flush=True)
            return 1
        return 0

    def run_qmp(self, word: str, rest: str) -> int:
        """Run a COMMAND that is for the monitor."""
        name, arguments = parse_call(rest)
        try:
            if word == "event":
                found = self.monitor().wait(name, **arguments).get("data", {})
            else:
                found = self.monitor().execute(name, **arguments)
            print(json.dumps(found), flush=True)
        except GuestError as error:
            if error.status != 1:
                raise
            print(error, flush=True)
            return 1
        except (EOFError, ConnectionError):
            # QEMU ended, and the console has the reason.
            return self.result(show=True)
        return 0

    def until(self, rest: str) -> int:
        """Run a command until it ends in 0, or prints what is waited for; shows its last output.

        A driver's message may come at any time.  Those of earlier runs are shown, too, and they do
        not match what is waited for, unless the command is `sleep', which prints nothing itself.
        """
        pattern, command = split_pattern(rest)
        unwanted = None if command.split()[:1] == ["sleep"] else MESSAGE
        pause = FIRST_PAUSE
        messages: list[str] = []
        while True:
            with tempfile.TemporaryFile() as output:
                try:
                    with stdout_to(output):
                        status = self.run(command)
                    wait = min(pause, self.deadline.left())
                except GuestError:
                    sys.stdout.write(contents(output))
                    raise
                seen = WITHIN.sub(r"\2\1", contents(output))
            rows = unwanted.sub("", seen) if unwanted else seen
            if pattern.search(rows) if pattern else status == 0:
                sys.stdout.write("".join(messages) + seen)
                return 0
            messages += MESSAGE.findall(seen)
            time.sleep(wait)
            pause = min(pause * 1.2, LAST_PAUSE)

    def suspend(self, command: str, meanwhile: str) -> int:
        """Type `suspend'; once the guest sleeps, run what is to be done meanwhile, and wake it."""
        monitor = self.monitor()
        self.write(self.system.typed(self.system.suspend or command))
        assert self.process.stdout is not None
        streams = [monitor.socket, self.process.stdout]
        # It may also report that it can't.
        while not MARK.search(self.pending):
            if any(event.get("event") == "SUSPEND" for event in monitor.events):
                monitor.wait("SUSPEND")
                if meanwhile:
                    self.run(meanwhile)
                monitor.execute("system_wakeup")
                break
            if monitor.socket in select.select(streams, [], [], self.deadline.left())[0]:
                monitor.events.append(monitor.receive())
            else:
                self.pending += self.read()
        return self.result(show=True)

    def migrate(self, changes: list[str]) -> int:
        """Migrate the guest to a new QEMU, and continue there.  Prints how long it was stopped.

        It is stopped throughout: if it keeps running under TCG, the other QEMU sometimes (2 of 440
        times, memory compared) lacks the guest's last writes.  Before QEMU 9.0 ("physmem: Fix
        migration dirty bitmap coherency with TCG memory access") a CPU whose TLB has a page writes
        there unnoticed once the migration has looked at it: the guest may panic, or stand still,
        whatever drivers it has.  With --live it does run, and what QEMU measured is printed.
        """
        live = "--live" in changes
        old, monitor = self.process, self.monitor()
        path = self.qmp_path.with_name(self.qmp_path.name + "+")
        channel = f"unix:{path}.channel"
        command = [word.replace(str(self.qmp_path), str(path)) for word in self.command]
        for change in (change for change in changes if change != "--live"):
            before, _, after = change.partition("=")
            command = [word.replace(before, after) for word in command]
        self.process = self.start([*command, "-incoming", channel])
        try:
            while not listening(f"{path}.channel"):
                if self.process.poll() is not None:
                    raise self.ended()
                time.sleep(min(0.01, self.deadline.left()))
            stopped = time.monotonic()
            state = monitor.migrate(channel, live=live)
        except GuestError as error:
            self.process.kill()
            self.process.wait()
            self.process = old
            if error.status == STATUS_TIMEOUT:
                raise
            monitor.execute("cont")
            print(error, flush=True)
            return 1
        self.qmp, self.qmp_path, self.command = None, path, command
        self.monitor().resume()
        stood = round((time.monotonic() - stopped) * 1000)
        with contextlib.suppress(EOFError, ConnectionError):
            monitor.execute("quit")
        assert old.stdout is not None
        rest = old.stdout.read()
        self.record(rest)
        self.pending += rest
        old.wait()
        print(f"migrated: {of_state(state)}" if live else f"migrated: stood still for {stood} ms",
              flush=True)
        return 0

    def power_off(self) -> None:
        """Ask the guest to power off, and wait until QEMU has ended."""
        self.write(self.system.power_off)
        try:
            while True:
                self.read()
        except GuestError as error:
            if error.status != 0:
                raise

    def tell_where(self) -> None:
        """Have a guest that hangs print what each of its threads waits for: an NMI panics it."""
        self.deadline.at = time.monotonic() + TELLING
        if self.session:
            self.session.tell_where(show, LabDeadline(TELLING))
        else:
            self.monitor().execute("inject-nmi")
        with contextlib.suppress(GuestError):
            self.result(show=True)
