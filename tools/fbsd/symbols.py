# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The names of functions in a running FreeBSD guest, by their addresses."""

from __future__ import annotations

import bisect
import pathlib
import re

from fbsd.elf import SHT_NOBITS, SYM, Elf
from fbsd.modules import built_for
from fbsd.sets import Set

STT_FUNC, STT_NOTYPE, SHN_UNDEF, SHN_LORESERVE = 2, 0, 0, 0xFF00
TEXT_END = 0xFFFFFFFF80000000  # KERNBASE: below it are programs


class Symbols:
    """Of a kernel and the modules that `kldstat -v` lists."""

    def __init__(self, kernel: Set, kldstat: str) -> None:
        places = {"/boot/modules": built_for(kernel), "/boot/kernel": kernel.folder / "boot/kernel"}
        found: dict[int, str] = {}
        # Of modules alone.
        self.modules: set[str] = set()
        for base, path in re.findall(r"^ *\d+ +\d+ +0x(\w+) +\w+ \S+ \((\S+)\)", kldstat, re.M):
            folder, _, name = path.rpartition("/")
            if (place := places.get(folder)) is not None:
                functions: dict[int, str] = {}
                self.add(Elf(pathlib.Path(place) / name), int(base, 16), functions)
                found |= functions
                if name.endswith(".ko"):
                    self.modules |= set(functions.values())
        self.addresses = sorted(found)
        self.names = [found[address] for address in self.addresses]

    @staticmethod
    def add(elf: Elf, base: int, found: dict[int, str]) -> None:
        """Put the functions of a file where the kernel's linker has put them."""
        starts = elf.placed(base)
        symbols, names = elf.symbol_tables() or (b"", b"")
        for offset, kind, _, section_number, value, _ in SYM.iter_unpack(symbols):
            if (kind & 15 not in (STT_FUNC, STT_NOTYPE) or section_number == SHN_UNDEF
                    or section_number >= SHN_LORESERVE
                    or elf.sections[section_number].kind == SHT_NOBITS):
                continue
            name = names[offset:names.index(b"\0", offset)].decode()
            if name and not name.startswith("."):
                found[starts[section_number] + value] = name

    def name(self, address: int) -> str:
        """The function at an address."""
        if address < TEXT_END:
            return "(programs)"
        number = bisect.bisect(self.addresses, address)
        return self.names[number - 1] if number > 0 else f"{address:#x}"
