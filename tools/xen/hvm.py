# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Disks that a PC boots the kernel from: GRUB, which loads it by Multiboot2.

    sector 0	GRUB's first stage, and the table of partitions
    1 ...	GRUB's core with the modules that it needs, made by grub-mkimage
    2048 ...	the only partition, a tar archive, which GRUB reads as a file system:
		grub.cfg, kernel, archive; the last two by xz(1), as reading takes longest where
		a device model emulates the disk
"""

from __future__ import annotations

import io
import lzma
import pathlib
import re
import struct
import subprocess
import tarfile

from xen.errors import OBJ, LabError
from xen.packages import ROOT

CORE = OBJ / "image" / "grub"

MODULES = ["biosdisk", "part_msdos", "tar", "xzio", "normal", "multiboot2", "boot"]

# A large dictionary finds what programs with the same library have in common.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 8 << 20}]

SECTOR = 512
PARTITION = 2048
TABLE = 446
LINUX_TYPE = 0x83
ACTIVE = 0x80


def core() -> bytes:
    """GRUB: the first stage and the core, as they are at the beginning of a disk."""
    grub = ROOT / "usr/lib/grub/i386-pc"
    libraries = ":".join(str(ROOT / folder / "x86_64-linux-gnu")
                         for folder in ("lib", "usr/lib"))
    # With the libraries that came with it, as nothing is installed.
    out = CORE.with_name("grub.core")
    command = [str(ROOT / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), "--library-path",
               libraries, str(ROOT / "usr/bin/grub-mkimage"), "-O", "i386-pc", "-d", str(grub),
               "-p", "(hd0,msdos1)/", "-o", str(out), *MODULES]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    if done.returncode != 0:
        raise LabError(f"grub-mkimage: {done.stderr.strip()}")
    first, rest = (grub / "boot.img").read_bytes(), out.read_bytes()
    out.unlink()
    if len(first) != SECTOR or len(rest) > (PARTITION - 1) * SECTOR:
        raise LabError("GRUB is not of the size that it should be")
    return first + rest


def quote(word: str) -> str:
    """A word of GRUB's script."""
    return "'" + word.replace("'", "'\\''") + "'"


def config(cmdline: str) -> bytes:
    """GRUB's configuration, with each word of the command line quoted as GRUB does it."""
    words = " ".join(quote(word.replace('"', ""))
                     for word in re.findall(r'(?:[^ "]|"[^"]*")+', cmdline))
    return f"multiboot2 /kernel {words}\nmodule2 /archive\nboot\n".encode()


def compress(data: bytes) -> bytes:
    """A file as GRUB reads it: xz(1)."""
    return lzma.compress(data, check=lzma.CHECK_NONE, filters=FILTERS)


def boot_disk(kernel: pathlib.Path, archive: pathlib.Path, cmdline: str) -> bytes:
    """A disk that boots the kernel with an archive and a command line."""
    files = {"grub.cfg": config(cmdline), "kernel": compress(kernel.read_bytes()),
             "archive": compress(archive.read_bytes())}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    partition = data.getvalue()
    disk = bytearray(CORE.read_bytes().ljust(PARTITION * SECTOR, b"\0"))
    # The position by cylinder, head and sector is no longer used.
    entry = struct.pack("<B3sB3sII", ACTIVE, b"\0\2\0", LINUX_TYPE, b"\xfe\xff\xff", PARTITION,
                        len(partition) // SECTOR)
    disk[TABLE:TABLE + 64] = entry.ljust(64, b"\0")
    disk[510:512] = b"\x55\xaa"
    return bytes(disk) + partition
