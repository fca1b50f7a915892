# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The tree kernel as a guest: its files, its kernel environment, and its console's output."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pvguest.debuginfo import Files
from pvguest.errors import STATUS_NO_BOOT, STATUS_PANIC, GuestError
from stale import newer_source
from xen.errors import OBJ as XEN_OBJ
from xen.errors import TOP

if TYPE_CHECKING:
    from xen import session

OBJ = XEN_OBJ.parent
CONFIGURATIONS = TOP / "sys/amd64/conf"

# What begins like this is read by modules, when they are loaded.
OF_MODULES = ("hw.xen.", "hw.xbd.", "hw.xn.", "hw.pv_net.", "xpend.", "debug.xtest.")

# A guest that has booted can get another one: those of all seeds share a snapshot.
SEED = "debug.preempt_seed="

# What the Makefile builds a kernel and its archive from.
SOURCES = ("sys", "share/mk", "tests/sys/cmd")

# Folders below obj/ in which tools/xen/image.py and the benches make kernels.
FOREIGN_FOLDERS = ("xen/", "bench/")


def check(args: argparse.Namespace) -> None:
    """Refuse options that no kernel could be booted with."""
    kernel_environment(args)
    known = sorted(path.name for path in CONFIGURATIONS.iterdir() if path.suffix == "")
    if not (args.kernel in known or args.kernel.startswith(FOREIGN_FOLDERS)
            or (OBJ / args.kernel).is_dir()):
        raise GuestError(STATUS_NO_BOOT,
                         f"--kernel {args.kernel}: expected {', '.join(known)} (sys/amd64/conf)")


def kernel_environment(args: argparse.Namespace) -> list[str]:
    """The words of the kernel's command line; PVKMOD_SEED, which tools/runtests sets, is in it."""
    settings = {"kern.console.status": "1"}
    if "PVKMOD_SEED" in os.environ:
        settings["debug.preempt_seed"] = os.environ["PVKMOD_SEED"]
    if args.type == "hvm":
        settings["xen_load"] = "YES"
    for setting in args.env:
        key, equals, value = setting.partition("=")
        if not equals:
            raise GuestError(STATUS_NO_BOOT, f"--env {setting}: expected KEY=VALUE")
        settings[key] = value
    return [f'{key}="{value}"' if re.search(r"\s", value) else f"{key}={value}"
            for key, value in settings.items()]


def boot_files(args: argparse.Namespace) -> tuple[pathlib.Path, pathlib.Path]:
    """Kernel and boot archive."""
    folder = OBJ / args.kernel
    kernel, archive = folder / "kernel", args.archive or folder / "boot.tar"
    for path in (kernel, archive):
        if not path.is_file():
            raise GuestError(STATUS_NO_BOOT, f"{path} is not built: make KERNCONF={args.kernel}")
    if path := newer_source(folder / ".built", SOURCES):
        raise GuestError(STATUS_NO_BOOT, f"{path} was changed since {args.kernel} was built: make"
                         f" KERNCONF={args.kernel} (GUEST_STALE=1 boots what there is)")
    return kernel, archive


class Tree:
    """The properties of the tree kernel for tools/guest; those of FreeBSD are in freebsd.py."""

    power_off = b"shutdown -p now\n"
    quiet = b"sysctl -q kern.console.status=0\n"
    suspend = ""
    snapshots: pathlib.Path | None = None
    machine = "q35"

    def __init__(self) -> None:
        self.folder = OBJ

    def check(self, args: argparse.Namespace) -> None:
        """Refuse bad options before anything is built, looked for or booted."""
        check(args)
        self.folder = OBJ / args.kernel

    def debug_files(self) -> Files:
        """What it was before it was stripped; known once it is to boot."""
        return Files(self.folder / "kernel.debug", self.folder)

    @contextlib.contextmanager
    def boot_arguments(self, args: argparse.Namespace) -> Iterator[list[str]]:
        """QEMU's arguments that boot it; files that they name live as long as the context."""
        kernel, archive = boot_files(args)
        # Through this device its panic ends QEMU with a distinct status.
        yield ["-kernel", str(kernel), "-initrd", str(archive),
               "-append", " ".join(kernel_environment(args)),
               "-device", "isa-debug-exit,iobase=0x501,iosize=4"]

    @contextlib.contextmanager
    def lab_boot(self, args: argparse.Namespace) -> Iterator[session.Boot]:
        """What it boots in a lab; the files live as long as the context."""
        words = kernel_environment(args)
        late: dict[str, str] = {}
        from xen import session
        # What is preloaded reads them, and does its work, as the kernel boots.
        if args.kernel in session.MODULAR and not any("_load=" in word for word in words):
            late = {word: f"kenv -q {word}" for word in words if word.startswith(OF_MODULES)}
            late |= {word: f"sysctl -q {word}" for word in words if word.startswith(SEED)}
        first = " ".join(word for word in words if word not in late)
        yield session.Boot(*boot_files(args), first, tuple(late.values()))

    def typed(self, command: str) -> bytes:
        """What is typed at its console to run a command."""
        return command.encode() + b"\n"

    def stuck(self, console: bytes) -> GuestError | None:
        """Whether the end of the console's output shows a guest that will not go on."""
        del console
        return None

    def ended(self, status: int, console: bytes) -> GuestError | None:
        """Why QEMU ended with this status, when that is the guest's doing."""
        del console
        return GuestError(STATUS_PANIC, "the guest panicked") if status == STATUS_PANIC else None
