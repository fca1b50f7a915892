# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Commands in dom0, over virtio-serial.

The lab has PORTS ports, each with a worker in dom0 behind it (dom0/worker says how the two talk)
and a pair of FIFOs in front of it that QEMU holds open, so that a port outlives its users.  One
process has a port at a time, by a lock; port CONTROL is for short commands that end what was left
running on another port by a process that died: the file portN.busy is there while a command runs.
Port CONSOLE is for the console of a guest that is alone in its lab: who starts the lab from a
snapshot goes on with the command that ran there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import re
import secrets
import select
import shlex
from collections.abc import Callable, Iterator

from xen.errors import Deadline, LabError, LabTimeoutError

PORTS = 9
CONTROL, CONSOLE = 1, PORTS
BLOCK = 512
MEGABYTE = 1 << 20

Sink = Callable[[bytes], None]


def new_nonce() -> str:
    """What the marks of one request have in them."""
    return secrets.token_hex(16)


class Port:
    """A port of a lab, locked by this process."""

    def __init__(self, folder: pathlib.Path, number: int) -> None:
        self.number = number
        self.folder = folder
        self.busy = folder / f"port{number}.busy"
        try:
            self.input = os.open(folder / f"port{number}.in", os.O_WRONLY | os.O_NONBLOCK)
            self.output = os.open(folder / f"port{number}.out", os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise LabError("the lab is not running") from error

    def close(self) -> None:
        """Give the port back."""
        os.close(self.input)
        os.close(self.output)

    def receive(self, wait: float) -> bytes:
        """What has come; empty after so many seconds without anything."""
        ready, _, _ = select.select([self.output], [], [], wait)
        if not ready:
            return b""
        data = os.read(self.output, 65536)
        if not data:
            raise LabError("the lab has ended")
        return data

    def run(self, script: str, deadline: Deadline, sink: Sink,
            source: bytes | int | None = None, nonce: str = "") -> int:
        """Run a shell script in dom0; returns its exit status.

        What it prints goes to sink as it comes.  Its input is source: bytes, or a file descriptor
        that is copied until its end; the script does not see the end of either.
        """
        nonce = nonce or new_nonce()
        text = script.encode()
        blocks = -(-len(text) // BLOCK)
        line = " ".join([nonce, "empty" if source is None else "port", str(blocks)])
        self.busy.touch()
        # The first newline ends the remains of an interrupted request.
        request = b"\n" + line.encode() + b"\n" + text.ljust(blocks * BLOCK, b"\n")
        pump = Pump(self, request, source)
        begin = b"\x1e" + nonce.encode() + b"\n"
        pump.until(re.compile(re.escape(begin)), begin, deadline, lambda _: None)
        return self.end(pump, nonce, deadline, sink)

    def end(self, pump: Pump, nonce: str, deadline: Deadline, sink: Sink) -> int:
        """Go on with a script that runs already."""
        mark = b"\x1e" + nonce.encode() + b" "
        found = pump.until(re.compile(re.escape(mark) + rb"(\d+)\n"), mark, deadline, sink)
        self.busy.unlink(missing_ok=True)
        return int(found.group(1))


class Pump:
    """Copies both ways between a port and its user."""

    def __init__(self, port: Port, request: bytes, source: bytes | int | None) -> None:
        self.port = port
        self.outgoing = request + (source if isinstance(source, bytes) else b"")
        self.source = source if isinstance(source, int) else None
        self.incoming = b""

    def step(self, deadline: Deadline) -> None:
        """Copy what can be copied now."""
        readers = [self.port.output]
        if self.source is not None and not self.outgoing:
            readers.append(self.source)
        writers = [self.port.input] if self.outgoing else []
        readable, writable, _ = select.select(readers, writers, [], min(deadline.left(), 1))
        if writable:
            try:
                count = os.write(self.port.input, self.outgoing[:65536])
            except BrokenPipeError as error:
                raise LabError("the lab has ended") from error
            self.outgoing = self.outgoing[count:]
        if self.source is not None and self.source in readable:
            self.outgoing = os.read(self.source, 4096)
            if not self.outgoing:
                self.source = None
        if self.port.output in readable:
            data = os.read(self.port.output, 65536)
            if not data:
                raise LabError("the lab has ended")
            self.incoming += data

    def until(self, pattern: re.Pattern[bytes], mark: bytes, deadline: Deadline,
              sink: Sink) -> re.Match[bytes]:
        """Copy until the pattern, which begins with mark, has come; it is used up."""
        while True:
            found = pattern.search(self.incoming)
            safe = found.start() if found else unmarked(self.incoming, mark)
            if safe:
                sink(self.incoming[:safe])
            if found:
                self.incoming = self.incoming[found.end():]
                return found
            self.incoming = self.incoming[safe:]
            self.step(deadline)


def unmarked(data: bytes, mark: bytes) -> int:
    """How many bytes of data come before what is, or may become, a mark."""
    at = data.find(b"\x1e")
    while at >= 0:
        tail = data[at:]
        if tail.startswith(mark) or mark.startswith(tail):
            return at
        at = data.find(b"\x1e", at + 1)
    return len(data)


def ready(folder: pathlib.Path) -> bool:
    """Whether QEMU has opened the ports."""
    try:
        for number in range(1, PORTS + 1):
            os.close(os.open(folder / f"port{number}.in", os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def take(folder: pathlib.Path, number: int, block: bool) -> Iterator[Port | None]:
    """Lock a port; None if another process has it and block is false."""
    flags = fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB)
    if not folder.is_dir():
        raise LabError("the lab is not running")
    with (folder / f"port{number}.lock").open("w") as file:
        try:
            fcntl.flock(file, flags)
        except BlockingIOError:
            yield None
            return
        port = Port(folder, number)
        try:
            yield port
        finally:
            port.close()


def reset(folder: pathlib.Path, port: Port, deadline: Deadline) -> None:
    """End what still runs on a port, and discard its output."""
    script = (f"read -r p </run/xenlab/p{port.number}.pid &&"
              " { kill -KILL -- -$p || kill -KILL $p; }")
    with take(folder, CONTROL, block=True) as control:
        assert control is not None
        control.run(f"{{ {script}; }} 2>/dev/null", deadline, lambda _: None)
    while port.receive(0.3):
        deadline.left()
    port.busy.unlink(missing_ok=True)


def run(folder: pathlib.Path, script: str, deadline: Deadline, sink: Sink,
        source: bytes | int | None = None) -> int:
    """Run a shell script in dom0 on a free port; see Port.run()."""
    for number in range(CONTROL + 1, CONSOLE):
        with take(folder, number, block=False) as port:
            if port is None:
                continue
            if port.busy.exists():
                reset(folder, port, deadline)
            try:
                return port.run(script, deadline, sink, source)
            except (LabTimeoutError, KeyboardInterrupt):
                with contextlib.suppress(LabError):
                    reset(folder, port, Deadline(5))
                raise
    raise LabError(f"{CONSOLE - CONTROL - 1} commands run in dom0 already: no more at a time")


def console(folder: pathlib.Path, script: str | None, nonce: str, deadline: Deadline, sink: Sink,
            source: int) -> int:
    """Run a script on port CONSOLE, or go on with the one that runs there; see Port.run()."""
    with take(folder, CONSOLE, block=True) as port:
        assert port is not None
        if script is None:
            return port.end(Pump(port, b"", source), nonce, deadline, sink)
        return port.run(script, deadline, sink, source, nonce)


def output(folder: pathlib.Path, script: str, deadline: Deadline) -> str:
    """Run a shell script in dom0 that has to end in status 0; returns what it prints."""
    said: list[bytes] = []
    status = run(folder, script, deadline, said.append)
    text = b"".join(said).decode(errors="replace").strip()
    if status != 0:
        raise LabError(f"in dom0: {text.splitlines()[-1] if text else script}")
    return text


def put(folder: pathlib.Path, source: pathlib.Path, target: str, deadline: Deadline) -> None:
    """Copy a file to dom0."""
    data = source.read_bytes()
    name, place = (shlex.quote(str(path))
                   for path in (target, pathlib.PurePosixPath(target).parent))
    blocks, rest = divmod(len(data), MEGABYTE)
    # dd with fullblock reads exactly what is requested: nothing of the next request.
    parts = [f"dd bs={size} count={count} iflag=fullblock"
             for size, count in ((MEGABYTE, blocks), (rest, 1)) if size and count]
    script = (f"[ -d {place} ] || mkdir -p {place};"
              f" {{ {' && '.join(parts) or ':'}; }} 2>/dev/null >{name}"
              f" && [ \"$(stat -c %s {name})\" = {len(data)} ]")
    said: list[bytes] = []
    if run(folder, script, deadline, said.append, data) != 0:
        raise LabError(f"put {target}: {b''.join(said).decode(errors='replace').strip()}")


def get(folder: pathlib.Path, source: str, target: pathlib.Path, deadline: Deadline) -> None:
    """Copy a file from dom0; there is no target if it fails."""
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as file:
            status = run(folder, f"exec cat {shlex.quote(source)}", deadline,
                         lambda data: (file.write(data), None)[1])
        if status != 0:
            raise LabError(f"get {part.read_text(errors='replace').strip()}")
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
