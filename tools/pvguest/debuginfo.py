# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What a build knows beyond what is loaded into a guest: files and lines.

A kernel and its modules are stripped after they were linked; what they were before is beside them:
obj/GENERIC/kernel.debug, and NAME.ko.full of each module.  What reads those files is imported when
it is needed, as few guests panic.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
from typing import NamedTuple

SYMBOLIZER = "llvm-symbolizer-19"
KERNBASE = 0xFFFFFFFF80000000
STT_FUNC = 2
# A line of a backtrace, as the tree kernel and FreeBSD print it.
FRAME = re.compile(rb"(?<![^\n])(?:#\d+ 0x([0-9a-f]+) at |\w+\(\) at )([\w.]+)\+0x([0-9a-f]+)"
                   rb"(?:/frame 0x[0-9a-f]+)?(?=\r?\n)")
# What is below it was interrupted: its address is the instruction's, and no return address.
TRAPS = (b"alltraps", b"calltrap")
# Names of sources begin where the compiler stood; FreeBSD's makefiles reach the suite by a link.
SOURCE = re.compile(r"(?:^|/)((?:sys|tests)/.*)$")
SUITE = re.compile(r"(?:^|.*/)suite/dev/")


class Files(NamedTuple):
    """A kernel, and the folder below which its modules are, before they were stripped."""

    kernel: pathlib.Path
    modules: pathlib.Path

    def module(self, name: str) -> pathlib.Path | None:
        """Return the module that has this name in a guest (pv.ko)."""
        return next(iter(sorted(self.modules.rglob(f"{name}.full"))), None)


def section_addresses(module: pathlib.Path, base: int) -> dict[str, int]:
    """Return where the sections of a module are that the kernel's linker has put there."""
    from fbsd.elf import Elf
    elf = Elf(module)
    return {elf.section_name(section): start
            for section, start in zip(elf.sections, elf.placed(base), strict=True) if start}


class Lines:
    """Files and lines of a backtrace's functions.  close() ends the program that looks them up."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.functions: dict[str, list[tuple[pathlib.Path, int]]] | None = None
        self.process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """End the program that looks them up."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def of_modules(self, name: str) -> list[tuple[pathlib.Path, int]]:
        """Return the modules that have a function, and its address in each."""
        if self.functions is None:
            from fbsd.elf import SYM, Elf
            self.functions = {}
            for path in self.files.modules.rglob("*.ko.full"):
                symbols, names = Elf(path).symbol_tables() or (b"", b"")
                for offset, kind, _, _, value, _ in SYM.iter_unpack(symbols):
                    if kind & 15 == STT_FUNC:
                        known = names[offset:names.index(b"\0", offset)].decode()
                        self.functions.setdefault(known, []).append((path, value))
        return self.functions.get(name, [])

    def look_up(self, path: pathlib.Path, address: int) -> str:
        """Return FILE:LINE of an address of a file, or nothing."""
        if self.process is None:
            self.process = subprocess.Popen(
                [SYMBOLIZER, "--functions=none", "--no-inlines"], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f'"{path}" {address:#x}\n')
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        while self.process.stdout.readline().strip():
            pass
        place = answer.rpartition(":")[0]  # without the column
        found = SOURCE.search(SUITE.sub("sys/dev/", os.path.normpath(place)))
        return found[1] if found else ""

    def line(self, name: str, offset: int, address: int, *, exact: bool) -> str:
        """Return FILE:LINE of a function's instruction, or nothing.

        name, offset   the function, and how far from its beginning
        address        of the instruction; 0 if only the other two are known
        exact          it is that instruction; else the call that returns to it
        """
        back = 0 if exact else 1
        if address >= KERNBASE and self.files.kernel.is_file() and \
                (place := self.look_up(self.files.kernel, address - back)):
            return place
        found = self.of_modules(name)
        if len(found) != 1:
            return ""
        path, start = found[0]
        return self.look_up(path, start + offset - back)


class Annotator:
    """Appends ` (FILE:LINE)` to the lines of backtraces in a console's output, as it comes."""

    def __init__(self, files: Files) -> None:
        self.lines = Lines(files)
        self.begun = b""  # of the last line, which has not ended yet
        self.held = b""  # the first half of a line's end
        self.above = b""  # the function of the line before

    def close(self) -> None:
        """End what it has started."""
        self.lines.close()

    def annotate(self, data: bytes) -> bytes:
        """Return some of the output, with what there is to say of its lines."""
        data = self.held + data
        self.held = b"\r" if data.endswith(b"\r") else b""
        data = data.removesuffix(b"\r")
        whole = self.begun + data
        if b"\n" not in data:
            self.begun = whole[-256:]
            return data
        self.begun, seen = whole[whole.rindex(b"\n") + 1:], len(self.begun)
        if b"+0x" not in whole:
            return data
        result, at = b"", seen
        for found in FRAME.finditer(whole):
            if found.end() < seen:
                continue
            try:
                place = self.lines.line(
                    found[2].decode(), int(found[3], 16), int(found[1] or b"0", 16),
                    exact=self.above in TRAPS)
            except (OSError, ValueError):
                place = ""
            self.above = found[2]
            if place:
                result += whole[at:found.end()] + f" ({place})".encode()
                at = found.end()
        return result + whole[at:]

