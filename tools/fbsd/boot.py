# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The files that QEMU loads to boot a FreeBSD kernel, in place of loader(8).

The kernel with its symbols, and the stub that enters it, become one PVH executable for -kernel; the
metadata that loader(8) would pass (sys/linker.h, x86/include/metadata.h), the environment and
the root image are put behind it by -device loader.  In memory, from low to high:

	1 MB	stub, its page tables, hand-off block
	2 MB	kernel, as its program headers place it
		symbols, for ddb(4), stack(9) and the kernel's linker
		metadata and environment (INFO_SIZE)
		root image
		modules that are preloaded; their end is the kernel's kernend

As a PVH guest of Xen the kernel is entered by xl (`kernel='), and is its own PVH executable, with
its symbols.  What is above its symbols there is the first module (`ramdisk='), which Xen places
where it likes: addresses count from its beginning, and the kernel adds that (x86/xen/pv.c).
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import struct
import subprocess

from fbsd.elf import EHDR, ET_EXEC, PHDR, PT_LOAD, Elf
from fbsd.modules import built_for
from fbsd.preload import PAGE, Module, modules, up
from fbsd.sets import FREEBSD, FreebsdError, Set
from xen.errors import locked

STUB = pathlib.Path(__file__).resolve().with_name("stub.S")
STUB_AT, STUB_DATA_AT, HANDOFF_AT = 0x100000, 0x101000, 0x1FF000
INFO_SIZE = 256 << 10
KERNBASE_MASK = 0x7FFFFFFF  # of KERNBASE, -2 GB: what is left is the physical address
MAPPED = 1 << 30  # by the stub's page tables

PT_NOTE, PF_ALL = 4, 7
NOP = b"\x90"
# mov %cr4, %eax; or $0x20, %eax; mov %eax, %cr4
SET_PAE = bytes.fromhex("0f20e0" "83c820" "0f22e0")
PHYS32_ENTRY = 18  # XEN_ELFNOTE_PHYS32_ENTRY

# sys/linker.h and x86/include/metadata.h
MODINFO_NAME, MODINFO_TYPE, MODINFO_ADDR, MODINFO_SIZE = 1, 2, 3, 4
MODINFO_METADATA = 0x8000
MODINFOMD_ELFHDR, MODINFOMD_SSYM, MODINFOMD_ESYM = 2, 3, 4
MODINFOMD_ENVP, MODINFOMD_HOWTO, MODINFOMD_KERNEND, MODINFOMD_SHDR = 6, 7, 8, 9
MODINFOMD_SMAP, MODINFOMD_MODULEP = 0x1001, 0x1006

RB_SERIAL = 0x1000

# Root in memory, no waiting for the user.
ENVIRONMENT = {
    "vfs.root.mountfrom": "ufs:/dev/md0", "init_path": "/sbin/init",
    "kern.module_path": "/boot/modules;/boot/kernel",
    "kern.panic_reboot_wait_time": "0",
    # So many passes of the page daemon that free nothing until it kills a process: the host may
    # be busy.
    "vm.pageout_oom_seq": "1000",
    "kern.random.initial_seeding.bypass_before_seeding": "1",
    "hw.memtest.tests": "0", "kern.hz": "100",
    # A module sees only what another exports (EXPORT_SYMS); by default it sees everything, which
    # hides that a symbol is missing in a list.
    "debug.link_elf_obj_leak_locals": "0",
    # A guest that is given up is sent an NMI, to panic with a backtrace.
    "machdep.kdb_on_nmi": "0", "machdep.panic_on_nmi": "1",
    "debug.debugger_on_panic": "0", "debug.trace_on_panic": "1",
}

# Of a PC: its console is the first serial port.
ENVIRONMENT_PC = ENVIRONMENT | {
    "hint.uart.0.at": "isa", "hint.uart.0.port": "0x3F8", "hint.uart.0.irq": "4",
    "hint.uart.0.flags": "0x10",
    "hint.atkbdc.0.at": "isa", "hint.atkbdc.0.port": "0x060",
    "hint.atrtc.0.at": "isa", "hint.atrtc.0.port": "0x70", "hint.atrtc.0.irq": "8",
    "console": "comconsole", "boot_serial": "YES", "hw.uart.console": "io:0x3f8,br:115200",
}

# What a PVH guest copies its environment to, and what the kernel itself adds to that (acpi.rsdp).
ENVIRONMENT_PVH_SIZE, ENVIRONMENT_PVH_ADDED = 4096, 64


@dataclasses.dataclass
class Layout:
    """Where a kernel is loaded, physical addresses; kept beside the executable."""

    entry: int
    base: int
    size: int
    symbols: int
    symbols_end: int
    header: str  # the kernel's ELF header

    @property
    def info(self) -> int:
        """Where metadata and environment begin."""
        return up(self.symbols_end, PAGE)

    @property
    def root(self) -> int:
        """Where the root image begins."""
        return self.info + INFO_SIZE


def stub() -> bytes:
    """The stub as it is in memory from STUB_AT on; all kernels have the same."""
    folder = FREEBSD / "boot"
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / "stub.bin"
    with locked(FREEBSD / "stub.lock"):
        if not image.is_file() or image.stat().st_mtime_ns < STUB.stat().st_mtime_ns:
            objects = str(folder / "stub.o")
            for command in (["clang-19", "-target", "x86_64-unknown-none", "-c", "-o", objects,
                             str(STUB)],
                            ["ld.lld-19", "-m", "elf_x86_64", "--oformat", "binary",
                             f"-Ttext={STUB_AT:#x}", f"-Tdata={STUB_DATA_AT:#x}", "-o", str(image),
                             objects]):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise FreebsdError(f"{STUB.name}: {done.stderr.strip()}")
        return image.read_bytes()


def symbol_block(kernel: Elf) -> bytes:
    """Symbols and names, each behind its size."""
    block = b""
    for table in kernel.symbol_tables() or ():
        block += struct.pack("<Q", len(table)) + table.ljust(up(len(table), 8), b"\0")
    return block


def executable(parts: list[tuple[int, bytes, int]]) -> bytes:
    """A PVH executable: parts are address, bytes, and size in memory."""
    note = struct.pack("<III4sQ", 4, 8, PHYS32_ENTRY, b"Xen\0", STUB_AT)
    offset = up(EHDR.size + (len(parts) + 1) * PHDR.size, 16)
    headers = PHDR.pack(PT_NOTE, PF_ALL, offset, 0, 0, len(note), len(note), 4)
    body = [note]
    offset += len(note)
    for address, data, size in parts:
        headers += PHDR.pack(PT_LOAD, PF_ALL, offset, address, address, len(data), size, 16)
        body.append(data)
        offset += len(data)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    header = EHDR.pack(ident, ET_EXEC, 62, 1, STUB_AT, EHDR.size, 0, 0, EHDR.size, PHDR.size,
                       len(parts) + 1, 0, 0, 0)
    head = header + headers
    return head.ljust(up(len(head), 16), b"\0") + b"".join(body)


def prepare(kernel_set: Set) -> tuple[pathlib.Path, Layout]:
    """The executable of a kernel, made when it does not exist; and the addresses in it."""
    source = kernel_set.folder / "boot/kernel/kernel"
    path = FREEBSD / "boot" / f"{kernel_set.ident}.elf"
    record = path.with_suffix(".json")
    newest = max(place.stat().st_mtime_ns for place in (
        kernel_set.folder / ".pvkmod", STUB, pathlib.Path(__file__)))
    with locked(FREEBSD / f"{kernel_set.ident}.boot.lock"):
        if record.is_file() and record.stat().st_mtime_ns >= newest:
            return path, Layout(**json.loads(record.read_text()))
        kernel = Elf(source)
        parts = [(STUB_AT, code := stub(), len(code))]
        for kind, _, offset, address, _, length, size, _ in kernel.segments:
            if kind == PT_LOAD:
                parts.append((address & KERNBASE_MASK, kernel.data[offset:offset + length], size))
        base = min(address for address, _, _ in parts[1:])
        end = up(max(address + size for address, _, size in parts[1:]), PAGE)
        symbols = symbol_block(kernel)
        parts.append((end, symbols, len(symbols)))
        layout = Layout(kernel.entry, base, end - base, end, end + len(symbols),
                        kernel.header.hex())
        path.write_bytes(executable(parts))
        # For a machine whose memory comes from a snapshot: QEMU loads its files again at every
        # wake-up from S3, so that it may load only what never changes, a page of headers.
        page = [(base, parts[1][1][:PAGE], PAGE)]
        path.with_suffix(".resume").write_bytes(executable(page))
        record.write_text(json.dumps(dataclasses.asdict(layout)))
    return path, layout


class Metadata:
    """The list of records that loader(8) leaves behind; each begins at a multiple of 8."""

    def __init__(self) -> None:
        self.data = b""

    def put(self, kind: int, value: bytes) -> int:
        """Add a record; returns where its size word is."""
        at = len(self.data)
        record = struct.pack("<II", kind, len(value)) + value
        self.data += record.ljust(up(len(record), 8), b"\0")
        return at + 4

    def file(self, name: str, kind: str, address: int, size: int) -> None:
        """Begin the records of a file."""
        self.put(MODINFO_NAME, name.encode() + b"\0")
        self.put(MODINFO_TYPE, kind.encode() + b"\0")
        self.put(MODINFO_ADDR, struct.pack("<Q", address))
        self.put(MODINFO_SIZE, struct.pack("<Q", size))


def packed(environment: dict[str, str]) -> bytes:
    """The environment as the kernel reads it."""
    return b"".join(f"{key}={value}".encode() + b"\0"
                    for key, value in environment.items()) + b"\0"


def put_files(data: Metadata, place: int, root_size: int, preloaded: list[Module]) -> int:
    """Add the records of the root image and of the modules behind it; returns where they end."""
    data.file("/root.img", "mfs_root", place, root_size)
    place += up(root_size, PAGE)
    for module in preloaded:
        data.file(f"/boot/modules/{module.name}", "elf obj module", place, len(module.memory))
        data.put(MODINFO_METADATA | MODINFOMD_ELFHDR, module.header)
        data.put(MODINFO_METADATA | MODINFOMD_SHDR, module.sections)
        place += len(module.memory)
    return place


def block(data: Metadata, environment: bytes) -> bytes:
    """INFO_SIZE bytes: metadata from the beginning, the environment up to the end."""
    room = INFO_SIZE - up(len(environment), 8)
    if len(data.data) + PAGE > room:
        raise FreebsdError("--env: too much for the environment of a kernel")
    return (data.data.ljust(room, b"\0") + environment).ljust(INFO_SIZE, b"\0")


def information(layout: Layout, root_size: int, settings: dict[str, str],
                preloaded: list[Module]) -> tuple[bytes, bytes]:
    """Metadata with environment, and the hand-off block."""
    environment = packed(ENVIRONMENT_PC | settings)
    place = layout.info + INFO_SIZE - up(len(environment), 8)
    data = Metadata()
    end = put_files(data, layout.root, root_size, preloaded)
    # The kernel's records are the last: those that the stub adds end them.
    data.file("/boot/kernel/kernel", "elf kernel", layout.base, layout.size)
    for kind, value in ((MODINFOMD_SSYM, layout.symbols), (MODINFOMD_ESYM, layout.symbols_end),
                        (MODINFOMD_ENVP, place), (MODINFOMD_KERNEND, end)):
        data.put(MODINFO_METADATA | kind, struct.pack("<Q", value))
    data.put(MODINFO_METADATA | MODINFOMD_ELFHDR, bytes.fromhex(layout.header))
    data.put(MODINFO_METADATA | MODINFOMD_HOWTO, struct.pack("<I", RB_SERIAL))
    memory_map = data.put(MODINFO_METADATA | MODINFOMD_SMAP, b"")
    if end > MAPPED:
        raise FreebsdError(f"kernel and root image end at {end >> 20} MB, and 1024 MB are mapped:"
                           " leave programs out of the image (tools/fbsd/root.py)")
    handoff = struct.pack("<IIIIQ", 0, layout.info, end, layout.info + memory_map, layout.entry)
    return block(data, environment), handoff


def loader_arguments(path: pathlib.Path, address: int) -> list[str]:
    """QEMU's arguments that put a file into memory."""
    name = str(path).replace(",", ",,")
    return ["-device", f"loader,file={name},addr={address:#x},force-raw=on"]


def whole(kernel_set: Set, root: pathlib.Path, path: pathlib.Path,
          settings: dict[str, str]) -> None:
    """A self-contained executable, for GRUB: it can also be entered by Multiboot2."""
    kernel, layout = prepare(kernel_set)
    preloaded = modules(built_for(kernel_set), settings)
    info, handoff = information(layout, root.stat().st_size, settings, preloaded)
    parts = [(address, kernel_file.data[offset:offset + length], size)
             for kernel_file in [Elf(kernel)]
             for kind, _, offset, address, _, length, size, _ in kernel_file.segments
             if kind == PT_LOAD]
    image = root.read_bytes()
    image = image.ljust(up(len(image), PAGE), b"\0")
    image += b"".join(module.memory for module in preloaded)
    parts += [(HANDOFF_AT, handoff, len(handoff)), (layout.info, info, len(info)),
              (layout.root, image, len(image))]
    path.write_bytes(executable(sorted(parts)))


def entered_with_pae(kernel: Elf, ident: str) -> bytes:
    """The kernel's file, which Xen enters a few bytes earlier, where the hypercall page ends.

    QEMU 7.2 (cpu_x86_update_cr0()) does not give Xen its CR0 back when a guest is left that has set
    EFER.LME, and not yet CR4.PAE, which is the order of xen_start32: Xen goes on without paging.
    The hypercall page is NOPs until the kernel has it filled.
    """
    entry = kernel.note(".note.Xen", b"Xen", PHYS32_ENTRY)
    if not entry:
        raise FreebsdError(f"{ident} has no options XENHVM, so that its kernel needs a PC:"
                           " --type hvm")
    start = int.from_bytes(entry, "little") - len(SET_PAE)
    place = kernel.place((start & KERNBASE_MASK) | ~KERNBASE_MASK & (1 << 64) - 1)
    note = kernel.data.index(struct.pack("<III4s", 4, len(entry), PHYS32_ENTRY, b"Xen\0") + entry)
    note += 16
    data = bytearray(kernel.data)
    if data[place:place + len(SET_PAE)] != NOP * len(SET_PAE):
        raise FreebsdError(f"{ident} has something else than NOPs before xen_start32")
    data[place:place + len(SET_PAE)] = SET_PAE
    data[note:note + len(entry)] = start.to_bytes(len(entry), "little")
    return bytes(data)


def pvh(kernel_set: Set, root: pathlib.Path, files: tuple[pathlib.Path, pathlib.Path],
        settings: dict[str, str]) -> None:
    """Make the kernel and the first module of a PVH guest of Xen, two files.

    Symbols are not in the metadata: Xen passes them (XEN_ELFNOTE_BSD_SYMTAB), and the kernel's
    linker uses those of .dynsym.
    """
    kernel = Elf(kernel_set.folder / "boot/kernel/kernel")
    files[0].write_bytes(entered_with_pae(kernel, kernel_set.ident))
    preloaded = modules(built_for(kernel_set), settings)
    environment = packed(ENVIRONMENT | settings)
    if len(environment) > ENVIRONMENT_PVH_SIZE - ENVIRONMENT_PVH_ADDED:
        raise FreebsdError("--env: too much for the environment of a PVH guest")
    size = root.stat().st_size
    data = Metadata()
    put_files(data, INFO_SIZE, size, preloaded)
    # Without an address and a size, which would be moved as well: it is linked to them.
    data.put(MODINFO_NAME, b"/boot/kernel/kernel\0")
    data.put(MODINFO_TYPE, b"elf kernel\0")
    data.put(MODINFO_METADATA | MODINFOMD_MODULEP, struct.pack("<Q", 0))
    data.put(MODINFO_METADATA | MODINFOMD_ENVP,
             struct.pack("<Q", INFO_SIZE - up(len(environment), 8)))
    data.put(MODINFO_METADATA | MODINFOMD_ELFHDR, kernel.header)
    data.put(MODINFO_METADATA | MODINFOMD_HOWTO, struct.pack("<I", RB_SERIAL))
    image = root.read_bytes()
    files[1].write_bytes(block(data, environment) + image.ljust(up(size, PAGE), b"\0")
                     + b"".join(module.memory for module in preloaded))


def arguments(kernel_set: Set, root: pathlib.Path, folder: pathlib.Path,
              settings: dict[str, str]) -> list[str]:
    """QEMU's arguments that boot a kernel; folder is for files that live as long as QEMU."""
    path, layout = prepare(kernel_set)
    preloaded = modules(built_for(kernel_set), settings)
    info, handoff = information(layout, root.stat().st_size, settings, preloaded)
    (folder / "info").write_bytes(info)
    (folder / "handoff").write_bytes(handoff)
    words = ["-kernel", str(path),
             *loader_arguments(folder / "handoff", HANDOFF_AT),
             *loader_arguments(folder / "info", layout.info),
             *loader_arguments(root, layout.root)]
    if preloaded:
        (folder / "modules").write_bytes(b"".join(module.memory for module in preloaded))
        words += loader_arguments(folder / "modules", layout.root + up(root.stat().st_size, PAGE))
    return words
