# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Modules that are in memory when the kernel starts, as loader(8) leaves them for link_elf_obj.c.

NAME_load=YES in the environment requests one, and those that it depends on.  Each starts at a page
boundary: sections that take memory, then symbols, names and relocations, at the addresses in its
section headers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

from fbsd.elf import (
    SHF_ALLOC,
    SHT_REL,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    Elf,
)
from fbsd.sets import FreebsdError

PAGE = 4096
YES = ("YES", "yes", "true", "1")


def up(value: int, unit: int) -> int:
    """Round up to a multiple."""
    return -(-value // unit) * unit


@dataclasses.dataclass
class Module:
    """A module as it is in memory."""

    name: str
    header: bytes
    sections: bytes
    memory: bytes


def relocatable(path: pathlib.Path) -> Module:
    """Lay out a module; addresses count from 1 page, as 0 is `not there' to the kernel."""
    elf = Elf(path)
    tables = {index for index, section in enumerate(elf.sections) if section.kind == SHT_SYMTAB}
    wanted = [section for section in elf.sections
              if section.flags & SHF_ALLOC and section.size > 0]
    loaded = {id(section) for section in wanted}
    for index, section in enumerate(elf.sections):
        linked = any(elf.sections[table].link == index for table in tables)
        if ((section.kind in (SHT_REL, SHT_RELA) and id(elf.sections[section.info]) in loaded)
                or section.kind == SHT_SYMTAB
                or (section.kind == SHT_STRTAB and (linked or index == elf.names))):
            wanted.append(section)
    for section in elf.sections:
        section.address = 0
    memory = b""
    for section in wanted:
        memory = memory.ljust(up(len(memory), max(section.align, 1)), b"\0")
        section.address = PAGE + len(memory)
        memory += elf.content(section).ljust(section.size, b"\0")
    return Module(path.name, elf.header, b"".join(section.packed() for section in elf.sections),
                  memory.ljust(up(len(memory), PAGE), b"\0"))


def depends(path: pathlib.Path) -> list[str]:
    """The modules that MODULE_DEPEND(9) names."""
    tables = Elf(path).symbol_tables()
    names = tables[1] if tables else b""
    return [name.decode() for name in re.findall(rb"_mod_metadata_md_\w+?_on_(\w+)", names)]


def modules(folder: pathlib.Path | None, settings: dict[str, str]) -> list[Module]:
    """The modules that the environment requests, from a folder."""
    wanted = [key.removesuffix("_load") for key, value in settings.items()
              if key.endswith("_load") and value in YES]
    found: dict[str, pathlib.Path] = {}
    while wanted:
        name = wanted.pop(0)
        path = folder / f"{name}.ko" if folder else None
        if name in found:
            continue
        if path is None or not path.is_file():
            raise FreebsdError(f"{name}_load: there is no module {name}: tools/freebsd status")
        found[name] = path
        # Names without a file are the kernel's.
        wanted += [other for other in depends(path) if (path.parent / f"{other}.ko").is_file()]
    return [relocatable(path) for path in found.values()]
