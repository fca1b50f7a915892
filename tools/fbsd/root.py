# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest's root file system, an image in its memory: programs, modules, the console's script."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from fbsd import modules
from fbsd.sets import FREEBSD, FreebsdError, Set, need
from xen.errors import locked

RC = pathlib.Path(__file__).resolve().with_name("rc")
TOP = RC.parent.parent.parent

# Programs of ours, with what they need of libc: there is no library to link with.
COMMANDS = TOP / "tests/sys/cmd"
LIBSYS = COMMANDS / "libsys.c"
# The commands of tests/sys/cmd/instruments, all of them the program instrument.c.
INSTRUMENTS = ("diskbench", "diskcheck", "memhog", "pktgen")
SYSROOT = TOP / "obj/sysroot"
COMPILE = ["clang-19", "-target", "x86_64-unknown-freebsd14.2", "-nostdinc",
           *(f"-isystem{SYSROOT / name}" for name in ("freebsd-amd64", "freebsd")),
           "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-stack-protector",
           "-static", "-nostdlib", "-fuse-ld=lld"]

# Programs that tests do not use, or use under another name; each is 0.5 MB or more.
LEFT_OUT = frozenset((
    *("camcontrol", "nvmecontrol", "iovctl", "cpucontrol", "acpidump", "conscontrol"),
    *("rtadvd", "rtsol", "rtsold", "setkey", "traceroute6", "ggatec", "ggated", "ldconfig"),
    *("mtree", "makefs", "pw", "logger", "lockf", "posixshmcontrol", "consinit"),
    *("fstat", "gcore", "lam", "limits", "setfib", "pstat", "swapinfo", "swapon"),
    *("w", "who", "uptime", "rev", "nl", "fold", "expand", "yes", "strings", "uuidgen", "nproc"),
    *("chflags", "getfacl", "clri", "mknod", "nologin", "jls", "newfs_msdos", "nice"),
    *("sha224", "sha384", "sha512t256", "skein256", "rmd160", "unlink", "link", "growfs"),
))

# Free space, and files that can be made.
FREE, FILES = "16m", "400"


def programs(base: pathlib.Path, root: pathlib.Path) -> None:
    """Link the programs of the base set into a tree: one file for all that are the same."""
    seen: dict[bytes, pathlib.Path] = {}
    for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/libexec", "libexec", "lib"):
        source = base / folder
        if not source.is_dir():
            continue
        (root / folder).mkdir(parents=True)
        for path in source.iterdir():
            if path.name in LEFT_OUT or not (path.is_file() or path.is_symlink()):
                continue
            target = root / folder / path.name
            if path.is_symlink():
                target.symlink_to(path.readlink())
            else:
                digest = hashlib.sha256(path.read_bytes()).digest()
                os.link(seen.setdefault(digest, path), target)


def commands(folder: pathlib.Path) -> None:
    """Compile our programs into a folder."""
    for source in sorted(COMMANDS.glob("*.c")):
        if source == LIBSYS:
            continue
        done = subprocess.run([*COMPILE, "-o", folder / source.stem, source, LIBSYS],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FreebsdError(f"{source.name}: {done.stderr.strip()}")
    for name in INSTRUMENTS:
        (folder / name).hardlink_to(folder / "instrument")
    # Not in every base set; pkill(1) without options is the same.
    if not (folder.parent.parent / "bin/pkill").exists():
        (folder / "pkill").hardlink_to(folder / "killall")


def build(image: pathlib.Path, base: Set, kernel: Set, built: pathlib.Path | None) -> None:
    """Make the image; the kernel's own modules are in /boot/kernel."""
    with tempfile.TemporaryDirectory(dir=FREEBSD) as name:
        root = pathlib.Path(name) / "root"
        root.mkdir()
        programs(base.folder, root)
        commands(root / "usr/bin")
        shutil.copytree(base.folder / "etc", root / "etc", symlinks=True)
        shutil.copy(RC, root / "etc/rc")
        for folder in ("dev", "tmp", "mnt", "proc", "root", "var/run/dhclient", "var/db",
                       "var/crash", "var/empty", "var/log", "var/tmp"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for place, modules_there in (("modules", built),
                                     ("kernel", kernel.folder / "boot/kernel")):
            (root / "boot" / place).mkdir(parents=True)
            for path in sorted(modules_there.glob("*.ko")) if modules_there else []:
                shutil.copy(path, root / "boot" / place)
        fresh = pathlib.Path(name) / "image"
        # UFS1: what makefs writes as UFS2 does not mount.
        done = subprocess.run(["makefs", "-t", "ffs", "-B", "little", "-o", "version=1",
                               "-b", FREE, "-f", FILES, fresh, root],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FreebsdError(f"makefs: {(done.stderr.splitlines() or ['failed'])[-1]}")
        fresh.rename(image)


def image_for(kernel: Set) -> pathlib.Path:
    """The root image with a kernel's modules: made when it is not there, or older than they."""
    base = need("base")
    built = modules.built_for(kernel)
    image = FREEBSD / f"{kernel.ident}.root"
    sources = [RC, pathlib.Path(__file__), *COMMANDS.glob("*.c"), base.folder / ".pvkmod",
               *(built.glob("*.ko") if built else []), *([built] if built else [])]
    with locked(FREEBSD / f"{kernel.ident}.root.lock"):
        newest = max(path.stat().st_mtime_ns for path in sources)
        if not image.is_file() or image.stat().st_mtime_ns < newest:
            build(image, base, kernel, built)
    return image
