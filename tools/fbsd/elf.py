# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""ELF files of amd64, as far as a kernel, a module and a program have to be understood here."""

from __future__ import annotations

import dataclasses
import pathlib
import struct

ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
EM_X86_64 = 62
MACHINES = {3: "i386", 40: "arm", 62: "amd64", 183: "aarch64", 243: "riscv", 20: "powerpc",
            21: "powerpc64"}
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 1, 2, 3, 4, 8, 9
SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_UNWIND = 14, 15, 0x70000001
SHF_ALLOC = 2

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR = struct.Struct("<IIQQQQQQ")
SHDR = struct.Struct("<IIQQQQIIQQ")
SYM = struct.Struct("<IBBHQQ")
DYN = struct.Struct("<QQ")
DT_NEEDED, DT_STRTAB, DT_RPATH, DT_RUNPATH = 1, 5, 15, 29

# Of a name that is read, the longest.
PATH_MAX = 1024

# An entry of a note section: sizes of name and contents, type.  Both are padded to words.
NOTE = struct.Struct("<III")


class ElfError(Exception):
    """What the file is instead; a part of a sentence."""


@dataclasses.dataclass
class Section:
    """One entry of the section header table."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    def packed(self) -> bytes:
        """The entry as it is in the file."""
        return SHDR.pack(*dataclasses.astuple(self))


class Elf:
    """A file that was read."""

    def __init__(self, path: pathlib.Path) -> None:
        self.data = path.read_bytes()
        if self.data[:4] != b"\x7fELF":
            raise ElfError("not an ELF file")
        machine = int.from_bytes(self.data[18:20], "little")
        if self.data[4] != 2 or machine != EM_X86_64:
            raise ElfError(f"for {MACHINES.get(machine, f'machine {machine}')}, not amd64")
        (_, self.type, _, _, self.entry, phoff, shoff, _, _, _, phnum, _, shnum,
         self.names) = EHDR.unpack_from(self.data)
        if shoff + shnum * SHDR.size > len(self.data):
            raise ElfError("cut off before its end")
        self.header = self.data[:EHDR.size]
        self.segments = [PHDR.unpack_from(self.data, phoff + n * PHDR.size) for n in range(phnum)]
        self.sections = [Section(*SHDR.unpack_from(self.data, shoff + n * SHDR.size))
                         for n in range(shnum)]

    def content(self, section: Section) -> bytes:
        """A section's bytes; none for .bss."""
        if section.kind == SHT_NOBITS:
            return b""
        return self.data[section.offset:section.offset + section.size]

    def section_name(self, section: Section) -> str:
        """A section's name."""
        names = self.content(self.sections[self.names])
        return names[section.name:names.index(b"\0", section.name)].decode()

    def placed(self, base: int) -> list[int]:
        """Where the kernel's linker has put each section of a module, 0 if nowhere.

        So do FreeBSD's link_elf_obj.c and the tree kernel's: in their order, .bss among them.
        """
        starts = [0] * len(self.sections)
        for number, section in enumerate(self.sections):
            if self.type == ET_REL and section.flags & SHF_ALLOC and section.size > 0:
                unit = max(section.align, 1)
                starts[number] = base = -(-base // unit) * unit
                base += section.size
        return starts

    def symbol_tables(self) -> tuple[bytes, bytes] | None:
        """The symbols and their names."""
        for section in self.sections:
            if section.kind == SHT_SYMTAB:
                return self.content(section), self.content(self.sections[section.link])
        return None

    def symbol(self, name: str) -> tuple[int, int] | None:
        """Address and size of a symbol."""
        tables = self.symbol_tables()
        if tables is None:
            return None
        symbols, names = tables
        wanted = name.encode() + b"\0"
        for offset, *_, value, size in SYM.iter_unpack(symbols):
            if names.startswith(wanted, offset):
                return int(value), int(size)
        return None

    def place(self, address: int) -> int:
        """Where in the file a virtual address is; its end if it is nowhere."""
        for kind, _, offset, start, _, length, _, _ in self.segments:
            if kind == PT_LOAD and start <= address < start + length:
                return int(offset + address - start)
        return len(self.data)

    def at(self, address: int, size: int) -> bytes:
        """Bytes at a virtual address; fewer where the file ends."""
        place = self.place(address)
        return self.data[place:place + size]

    def interpreter(self) -> str:
        """The program that links a dynamic one (ld-elf.so.1); empty for a static one."""
        for kind, _, offset, _, _, length, _, _ in self.segments:
            if kind == PT_INTERP:
                return self.data[offset:offset + length].split(b"\0")[0].decode()
        return ""

    def dynamic(self, *tags: int) -> list[str]:
        """The strings of the dynamic section that have one of these tags (DT_NEEDED ...)."""
        entries: list[tuple[int, int]] = []
        for kind, _, offset, _, _, length, _, _ in self.segments:
            if kind == PT_DYNAMIC:
                table = self.data[offset:offset + length]
                entries = list(DYN.iter_unpack(table[:len(table) // DYN.size * DYN.size]))
        names = next((value for tag, value in entries if tag == DT_STRTAB), 0)
        return [self.at(names + value, PATH_MAX).split(b"\0")[0].decode()
                for tag, value in entries if tag in tags]

    def text(self, name: str) -> str:
        """A string of the kernel's."""
        found = self.symbol(name)
        return self.at(found[0], 256).split(b"\0")[0].decode() if found else ""

    def number(self, name: str) -> int:
        """An int of the kernel's."""
        found = self.symbol(name)
        return int.from_bytes(self.at(found[0], 4), "little") if found else 0

    def note(self, section: str, owner: bytes, kind: int) -> bytes:
        """The contents of a note, by its section, owner and type; empty if there is none."""
        names = self.content(self.sections[self.names]) if self.sections else b""
        for one in self.sections:
            if names[one.name:names.find(b"\0", one.name)] != section.encode():
                continue
            data = self.content(one)
            while len(data) >= NOTE.size:
                name_size, size, found = NOTE.unpack_from(data)
                start = NOTE.size + (name_size + 3 & ~3)
                if found == kind and data[NOTE.size:NOTE.size + name_size] == owner + b"\0":
                    return data[start:start + size]
                data = data[start + (size + 3 & ~3):]
        return b""
