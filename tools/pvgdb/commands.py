# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The commands: `pv' and what stands behind it."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import gdb

from pvgdb import rings, symbols
from pvguest.debuginfo import Files

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


def attach(argument: str) -> None:
    """Debug the guest of `tools/guest --gdb': pv attach SOCKET KERNEL MODULES.

    The symbols of KERNEL are loaded, and those of a module, out of the folder MODULES, when the
    guest has it in memory and none of its code has run: a breakpoint in it can be set long before.
    """
    words = gdb.string_to_argv(argument)
    if len(words) != 3:
        raise gdb.GdbError("expected SOCKET KERNEL MODULES")
    symbols.attach(words[0], Files(pathlib.Path(words[1]), pathlib.Path(words[2])))


def ring(argument: str) -> None:
    """Show a ring, indices, events and what is in flight: pv ring QUEUE.

    QUEUE is an expression: a struct pvq, what begins with one (struct virtqueue, grant_ring), or a
    pointer to it.  Or it is a virtio device of the tree kernel, vtnet0, or one queue, vtnet0 1.
    """
    found = re.fullmatch(r"([a-z_]+\d+)(?: (\d+))?", argument.strip())
    shown = [q for name, index, q in rings.named()
             if name == found[1] and found[2] in (None, str(index))] if found else []
    for q in shown or [rings.queue(gdb.parse_and_eval(argument))]:
        gdb.write("".join(line + "\n" for line in rings.lines(q)))


def all_rings(_: str) -> None:
    """List the queues of the tree kernel's virtio devices."""
    for name, index, q in rings.named():
        gdb.write(f"{name} {index}: {next(rings.lines(q))}\n")


class Command(gdb.Command):
    """A command that is a function, whose description is the function's."""

    def __init__(self, name: str, function: Callable[[str], None], kind: int) -> None:
        self.__doc__ = function.__doc__
        super().__init__(f"pv {name}", kind)
        self.function = function

    def invoke(self, argument: str, _from_tty: bool) -> None:
        """Run it."""
        try:
            self.function(argument)
        except rings.RingError as error:
            raise gdb.GdbError(f"pv: {error}") from error


class Prefix(gdb.Command):
    """A guest of pv-kmod: its modules' symbols, its rings."""

    def __init__(self) -> None:
        super().__init__("pv", gdb.COMMAND_USER, prefix=True)


def add() -> None:
    """Add the commands to gdb, and tell it where sources are: some names begin with ../.."""
    gdb.execute(f"directory {TOP}/tests/hosted:{TOP}", to_string=True)
    Prefix()
    Command("attach", attach, gdb.COMMAND_FILES)
    Command("ring", ring, gdb.COMMAND_DATA)
    Command("rings", all_rings, gdb.COMMAND_DATA)
