# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""FreeBSD as a guest: a kernel that tools/freebsd imported, with the modules that it built."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import re
import tempfile
from collections.abc import Iterator

from fbsd import boot, modules, root, sets
from pvguest.debuginfo import Files
from pvguest.errors import STATUS_NO_BOOT, STATUS_PANIC, GuestError
from xen import session

# A panic as the kernel prints it, perhaps behind what a command was about to print; what a command
# shows of an earlier one ends in a status, and is forgotten by then.
PANIC = re.compile(rb"panic: [^\n]*\n(?:[^\n]*\n){0,4}?cpuid = |^Fatal trap \d+: ", re.M)

# Prompts at which the guest waits for the user, and what they mean.
MOUNTROOT = b"\nmountroot> "
PROMPTS = {
    b"\ndb> ": (STATUS_PANIC, "the guest is in its kernel debugger (db>)"),
    MOUNTROOT: (STATUS_PANIC, "the kernel found no root file system (mountroot>)"),
    b"Enter full pathname of shell or RETURN for /bin/sh: ": (
        STATUS_NO_BOOT, "init(8) could not run /etc/rc: tools/freebsd import DIR"),
}

# Why there is no root file system: the last of such lines.
NOT_MOUNTED = re.compile(rb"Mounting from \S+ failed with error \d+[^\r\n]*")

# What kernel, root image and a test need, in MB.
MEMORY = {"kasan": 2048, "kcsan": 1024}
MEMORY_OTHERS = 768
# In a lab, where there is less of it: GRUB has the kernel and the root image twice.
MEMORY_LAB = {"hvm": 320, "pvh": 256}


class FreeBSD:
    """The properties of FreeBSD for tools/guest; those of the tree kernel are in tree.py."""

    power_off = b"exec halt -pq\n"
    quiet = b"stty echo onlcr; printf '\\036%d\\n' 0; exec sh -i\n"
    snapshots: pathlib.Path | None = sets.FREEBSD / "snapshots"
    suspend = "acpiconf -s 3"
    machine = "pc"  # FreeBSD has no MSI for what is on the root bus of q35

    def __init__(self, which: str) -> None:
        self.which = which
        self.kernel: sets.Set | None = None

    def settings(self, args: argparse.Namespace) -> dict[str, str]:
        """The environment that the user adds."""
        values = {}
        for setting in args.env:
            key, equals, value = setting.partition("=")
            if not equals:
                raise GuestError(STATUS_NO_BOOT, f"--env {setting}: expected KEY=VALUE")
            values[key] = value
        return values

    def check(self, args: argparse.Namespace) -> None:
        """Refuse bad options before anything is built, looked for or booted."""
        # A driver that is preloaded has to find its devices, and may have read a disk by then.
        args.fresh |= any(key.endswith("_load") for key in self.settings(args))
        # Nothing can be plugged into a guest of this machine that goes on from a snapshot.
        args.fresh |= args.machine == "microvm"
        if self.which not in sets.KERNELS:
            raise GuestError(STATUS_NO_BOOT, f"--os freebsd={self.which}: expected"
                             f" {', '.join(filter(None, sets.KERNELS))}")
        if args.kernel != "GENERIC":
            raise GuestError(STATUS_NO_BOOT, f"--kernel {args.kernel} is the tree's: FreeBSD's are"
                             " --os freebsd=debug ...")

    @contextlib.contextmanager
    def files(self) -> Iterator[tuple[sets.Set, pathlib.Path, pathlib.Path]]:
        """The kernel, the root image, and a folder that lives as long as the context."""
        try:
            kernel = self.kernel = sets.kernel_set(self.which)
            image = root.image_for(kernel)
            with tempfile.TemporaryDirectory(prefix="pvguest") as folder:
                yield kernel, image, pathlib.Path(folder)
        except sets.FreebsdError as error:
            raise GuestError(STATUS_NO_BOOT, str(error)) from error

    @contextlib.contextmanager
    def boot_arguments(self, args: argparse.Namespace) -> Iterator[list[str]]:
        """QEMU's arguments that boot it; files that they name live as long as the context."""
        args.mem = max(args.mem, MEMORY.get(self.which, MEMORY_OTHERS))
        with self.files() as (kernel, image, folder):
            yield boot.arguments(kernel, image, folder, self.settings(args))

    @contextlib.contextmanager
    def lab_boot(self, args: argparse.Namespace) -> Iterator[session.Boot]:
        """What it boots in a lab; the files live as long as the context."""
        args.mem = max(args.mem, MEMORY_LAB[args.type])
        with self.files() as (kernel, image, folder):
            path, archive = folder / "kernel", folder / "archive"
            if args.type == "pvh":
                boot.pvh(kernel, image, (path, archive), self.settings(args))
            else:
                # GRUB reads by DMA there: the device model sees a few accesses for 64 KB, not each
                # word.
                args.xl = ['hdtype="ahci"', 'serial="pty"', *args.xl]
                boot.whole(kernel, image, path, self.settings(args))
                archive.touch()
            yield session.Boot(path, archive, "")

    def debug_files(self) -> Files:
        """What it was before it was stripped; known once it is to boot."""
        assert self.kernel is not None
        return Files(self.kernel.folder / "boot/kernel/kernel", modules.objects_for(self.kernel))

    def typed(self, command: str) -> bytes:
        """What is typed at its console to run a command."""
        return command.encode() + b"\n"

    def stuck(self, console: bytes) -> GuestError | None:
        """Whether the end of the console's output shows a guest that will not go on."""
        for prompt, (status, words) in PROMPTS.items():
            if console.endswith(prompt):
                reasons = NOT_MOUNTED.findall(console) if prompt == MOUNTROOT else []
                return GuestError(status, ": ".join([words, *map(bytes.decode, reasons[-1:])]))
        return None

    def ended(self, status: int, console: bytes) -> GuestError | None:
        """Why QEMU ended with this status, when that is the guest's doing."""
        if status == 0 and PANIC.search(console.replace(b"\r", b"")):
            return GuestError(STATUS_PANIC, "the guest panicked")
        return None
