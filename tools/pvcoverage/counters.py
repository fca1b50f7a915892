# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""From what a guest's modules tell of their counters to lines and branches.

A module is compiled as clang compiles a program for llvm-cov, and tests/sys/coverage/coverage.c in
it writes the counters to a port.  What belongs to which function is in the module itself; as a
profile in text, which llvm-profdata reads, that is the same as what a program leaves behind.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator

from fbsd.elf import Elf, Section

# Of __llvm_prf_data: hashes of the name and of the structure, three addresses and a list, the
# number of counters ...
RECORD = struct.Struct("<QQQQQQIHHII")
COUNTERS_AT = 16  # where in it the address of the counters is
RELA = struct.Struct("<QQq")
LINE = re.compile(rb"pvcov (\w+) ([0-9a-f]+)((?: [0-9a-f]+:[0-9a-f]+)+)\r?$", re.MULTILINE)


class CoverageError(Exception):
    """Why there is no coverage, and what to do."""


@dataclasses.dataclass(frozen=True)
class Function:
    """Where in a module the counters of a function are."""

    name: str
    structure: int
    offset: int
    counters: int


@dataclasses.dataclass
class Lines:
    """How often lines and branches were executed, by file; a branch is where its condition is."""

    lines: dict[str, dict[int, int]] = dataclasses.field(default_factory=dict)
    branches: dict[str, dict[str, list[int]]] = dataclasses.field(default_factory=dict)

    def add(self, other: Lines) -> None:
        """Merge with those of another run."""
        for file, lines in other.lines.items():
            mine = self.lines.setdefault(file, {})
            for line, count in lines.items():
                mine[line] = mine.get(line, 0) + count
        for file, branches in other.branches.items():
            these = self.branches.setdefault(file, {})
            for place, counts in branches.items():
                before = these.get(place, [0, 0])
                these[place] = [a + b for a, b in zip(before, counts, strict=True)]


def names_of(data: bytes) -> Iterator[str]:
    """The names in __llvm_prf_names: parts of two lengths (LEB128) and perhaps compressed text."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        if data[at] == 0:  # padding between two objects' parts
            at += 1
            continue
        plain, compressed = number(), number()
        size = compressed or plain
        part = data[at:at + size]
        yield from (zlib.decompress(part) if compressed else part).decode().split("\x01")
        at += size


class Module:
    """A module with counters: NAME.ko.full of its folder."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        elf = Elf(path)
        sections: dict[str, Section] = {}
        names = elf.content(elf.sections[elf.names])
        for section in elf.sections:
            name = names[section.name:names.index(b"\0", section.name)].decode()
            sections[name] = section
        if "__llvm_prf_data" not in sections:
            raise CoverageError(f"{path} has no counters")
        self.size = sections["__llvm_prf_cnts"].size
        known = {int.from_bytes(hashlib.md5(name.encode()).digest()[:8], "little"): name
                 for name in names_of(elf.content(sections["__llvm_prf_names"]))}
        places = {offset: addend - COUNTERS_AT for offset, _, addend in
                  RELA.iter_unpack(elf.content(sections[".rela__llvm_prf_data"]))}
        self.functions = []
        for i, record in enumerate(RECORD.iter_unpack(elf.content(sections["__llvm_prf_data"]))):
            self.functions.append(Function(known[record[0]], record[1],
                                           places[i * RECORD.size + COUNTERS_AT], record[6]))

    def profile(self, counts: dict[int, int]) -> Iterator[str]:
        """The profile of a run, from the counts by the offset of the counter."""
        for function in self.functions:
            values = [counts.get(function.offset + 8 * i, 0) for i in range(function.counters)]
            if any(values):
                yield "\n".join([function.name, str(function.structure), str(len(values)),
                                 *map(str, values), ""])


def modules_in(folder: pathlib.Path) -> dict[str, Module]:
    """Those that were built for coverage, by name."""
    paths = sorted(folder.glob("*/*.ko.full"))
    return {path.name.removesuffix(".ko.full"): Module(path) for path in paths}


def told(text: bytes, modules: dict[str, Module]) -> dict[str, collections.Counter[int]]:
    """What guests told, by module and offset; a line that was cut off counts for nothing."""
    counts: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for found in LINE.finditer(text):
        name = found[1].decode()
        # The last counter is a bound, behind which there is nothing.
        if name not in modules or int(found[2], 16) + 8 != modules[name].size:
            continue
        for pair in found[3].split():
            offset, _, count = pair.partition(b":")
            counts[name][int(offset, 16)] += int(count, 16)
    return counts


def suite_file(path: str) -> str:
    """A file of the suite's from the top of the tree, or nothing; a folder may precede it."""
    found = re.search(r"(?:^|/)(sys/dev/(?:pv|virtio|xen)/[^.].*)", os.path.normpath(path))
    return found[1] if found else ""


def exported(profile: pathlib.Path, objects: Iterable[pathlib.Path]) -> Lines:
    """What llvm-cov says of the suite's files."""
    first, *others = objects
    words = [str(first), *(f"--object={path}" for path in others), f"--instr-profile={profile}"]
    found = Lines()
    text = subprocess.run(["llvm-cov-19", "export", "--format=lcov", *words],
                          capture_output=True, text=True, check=True).stdout
    lines: dict[int, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == "SF":
            lines = found.lines.setdefault(suite_file(value), {})
        elif key == "DA":
            number, count = map(int, value.split(",")[:2])
            lines[number] = max(lines.get(number, 0), count)
    text = subprocess.run(["llvm-cov-19", "export", "--format=text", "--skip-functions", *words],
                          capture_output=True, text=True, check=True).stdout
    for each in json.loads(text)["data"][0]["files"]:
        branches = found.branches.setdefault(suite_file(each["filename"]), {})
        for line, column, to_line, to_column, true, false, *_ in each["branches"]:
            place = f"{line}.{column}-{to_line}.{to_column}"
            before = branches.get(place, [0, 0])
            branches[place] = [before[0] + true, before[1] + false]
    found.lines.pop("", None)
    found.branches.pop("", None)
    return found


def lines_of(text: bytes, modules: dict[str, Module]) -> Lines:
    """Lines and branches of what guests told."""
    counts = told(text, modules)
    with tempfile.TemporaryDirectory() as folder:
        plain, data = pathlib.Path(folder, "text"), pathlib.Path(folder, "data")
        parts = [part for name, count in counts.items() for part in modules[name].profile(count)]
        # Without any count there still is what could have been executed.
        plain.write_text(":fe\n" + "\n".join(parts))
        subprocess.run(["llvm-profdata-19", "merge", "-o", data, plain], check=True,
                       capture_output=True)
        return exported(data, [modules[name].path for name in counts] or
                        [module.path for module in modules.values()])
