# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Symbols of a guest's kernel and modules, at their addresses."""

from __future__ import annotations

import contextlib

import gdb

from pvguest.debuginfo import Files, section_addresses

# Members of struct linker_file (sys/linker.h): FreeBSD's kernel has no description of its types.
NEXT, FILENAME, ADDRESS = 24, 40, 64

# The functions of the tree kernel and of FreeBSD's whose first argument is a file: one that has its
# place, none of whose code has run, and one that is about to be freed.
PLACED = ("link_elf_obj_resolve", "linker_file_register_modules")
FREED = ("link_elf_obj_free", "link_elf_unload_file")


def pointer(address: int) -> int:
    """Return the pointer at an address."""
    memory = gdb.selected_inferior().read_memory(address, 8)
    return int.from_bytes(memory.tobytes(), "little")


def text(address: int) -> str:
    """Return the string at an address."""
    return str(gdb.Value(address).cast(gdb.lookup_type("char").pointer()).string())


def address_of(symbol: str) -> int:
    """Return the address of the kernel's symbol, 0 if it has none of this name."""
    with contextlib.suppress(gdb.error):
        return int(gdb.parse_and_eval(f"(unsigned long)&{symbol}"))
    return 0


class Modules:
    """The modules whose symbols are loaded."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.places: dict[int, int] = {}  # where the code of each is, by its linker_file_t

    def add(self, file: int) -> None:
        """Load the symbols of a linker_file_t, unless it is the kernel's."""
        name, base = text(pointer(file + FILENAME)), pointer(file + ADDRESS)
        if file in self.places or not name.endswith(".ko"):
            return
        path = self.files.module(name)
        if path is None:
            gdb.write(f"pv: {name} is not below {self.files.modules}, and has no symbols\n")
            return
        sections = section_addresses(path, base)
        place = sections.pop(".text", base)
        others = " ".join(f"-s {section} {start:#x}" for section, start in sections.items())
        gdb.execute(f"add-symbol-file {path} {place:#x} {others}", to_string=True)
        self.places[file] = place
        gdb.write(f"pv: {name} is at {base:#x}\n")

    def remove(self, file: int) -> None:
        """Forget those of one that is unloaded."""
        if place := self.places.pop(file, 0):
            gdb.execute(f"remove-symbol-file -a {place:#x}", to_string=True)

    def add_all(self) -> None:
        """Load those of all that there are, if the guest's kernel has run yet."""
        with contextlib.suppress(gdb.MemoryError):
            file = pointer(address_of("linker_files"))
            while file:
                self.add(file)
                file = pointer(file + NEXT)


class Watch(gdb.Breakpoint):
    """A function of the linker: what happens to a file is noted, and the guest goes on."""

    def __init__(self, function: str, modules: Modules, *, placed: bool) -> None:
        super().__init__(function, internal=True)
        self.silent = True
        self.note = modules.add if placed else modules.remove

    def stop(self) -> bool:
        """Note it."""
        self.note(int(gdb.parse_and_eval("(unsigned long)$rdi")))
        return False


def attach(socket: str, files: Files) -> None:
    """Debug the guest whose QEMU listens at a socket."""
    # A kernel is a program of no system that gdb knows.
    for command in ("set pagination off", "set confirm off", "set breakpoint pending on",
                    "set osabi none", "set architecture i386:x86-64", f"file {files.kernel}",
                    f"target remote {socket}"):
        gdb.execute(command, to_string=True)
    modules = Modules(files)
    for function in (*PLACED, *FREED):
        if address_of(function):
            Watch(function, modules, placed=function in PLACED)
    modules.add_all()
