# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest's root file system, an image in its memory: programs, modules, the console's script.

The base set may have programs that need no library, or be a release's own: of that, with its
libraries and compilers, the image has the smaller programs, and the libraries that they need.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from fbsd import modules
from fbsd.elf import DT_NEEDED, DT_RPATH, DT_RUNPATH, Elf, ElfError
from fbsd.preload import depends
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

# Of programs that need libraries, which are small without them: larger ones, in bytes, are
# compilers, debuggers and servers; so are those that need a library of this size.
LARGEST, LARGEST_LIBRARY = 1 << 20, 16 << 20
LARGE = frozenset(("tcpdump",))
# What the guest does not come up without.
ESSENTIAL = ("bin/sh", "sbin/init", "sbin/kldload")
# Where ld-elf.so.1 looks for libraries by itself.
LIBRARIES = ("lib/casper", "lib", "usr/lib")

# Of the kernel's own modules, which are hundreds in a release: what the tests load, by themselves
# or by ifconfig(8), what tools/bench measures ours beside, and what all that depends on.
KERNEL_MODULES = ("if_bridge", "if_epair", "if_lagg", "if_tuntap", "if_vlan", "if_vtnet",
                  "if_vxlan", "ipfw", "netmap", "nullfs", "pf", "tmpfs", "virtio_balloon",
                  "virtio_blk", "virtio_pci")

# Free space, and files that can be made.
FREE, FILES = "16m", "400"


def inside(base: pathlib.Path, path: str) -> pathlib.Path | None:
    """The file that a path names in a base set: links to absolute paths stay in it."""
    found = base / path.lstrip("/")
    for _ in range(16):
        if not found.is_symlink():
            return found if found.is_file() else None
        target = found.readlink()
        found = base / str(target).lstrip("/") if target.is_absolute() else found.parent / target
    return None


@functools.cache
def linking(path: pathlib.Path) -> tuple[list[str], list[str], str]:
    """The libraries that a file names, where it has them looked for, and who links it.

    There are none of these in scripts and data.
    """
    try:
        elf = Elf(path)
    except ElfError:
        return [], [], ""
    folders = [folder for words in elf.dynamic(DT_RUNPATH, DT_RPATH) for folder in words.split(":")]
    return elf.dynamic(DT_NEEDED), folders, elf.interpreter()


def library(base: pathlib.Path, name: str, user: pathlib.Path, folders: list[str]) -> str | None:
    """The path below base of a library that a file needs, as ld-elf.so.1 finds it."""
    if "/" in name:
        return name.lstrip("/") if inside(base, name) else None
    own = str(user.parent.relative_to(base))
    named = [folder.replace("$ORIGIN", own).replace("${ORIGIN}", own).strip("/")
             for folder in folders]
    for folder in (*named, *LIBRARIES):
        path = os.path.normpath(f"{folder}/{name}")
        if inside(base, path):
            return path
    return None


def needed(base: pathlib.Path, path: pathlib.Path) -> dict[str, pathlib.Path]:
    """What a file needs, by its path below base: ld-elf.so.1, libraries, and what those need.

    Raises FreebsdError where something is not in the set.
    """
    found: dict[str, pathlib.Path] = {}
    left = [path]
    while left:
        user = left.pop()
        names, folders, linker = linking(user)
        wanted = {name: library(base, name, user, folders) for name in names}
        if linker:
            wanted[linker] = linker.lstrip("/")
        for name, place in wanted.items():
            there = inside(base, place) if place else None
            if place is None or there is None:
                raise FreebsdError(f"base.txz: {path.relative_to(base)} needs {name}, which it"
                                   " does not have: import a whole base set")
            if place not in found:
                found[place] = there
                left.append(there)
    return found


def chosen(base: pathlib.Path, path: pathlib.Path) -> dict[str, pathlib.Path] | None:
    """The libraries of a program that is for the image; None if it is not."""
    essential = str(path.relative_to(base)) in ESSENTIAL
    try:
        libraries = needed(base, path)
    except FreebsdError:
        if essential:
            raise
        return None
    sizes = [there.stat().st_size for there in libraries.values()]
    large = path.stat().st_size > LARGEST and path.name not in LARGE
    if libraries and not essential and (large or max(sizes) > LARGEST_LIBRARY):
        return None
    return libraries


def programs(base: pathlib.Path, root: pathlib.Path) -> None:
    """Link the programs of the base set into a tree: one file for all that are the same.

    Libraries that they need come with them, under the names by which they are looked for.
    """
    seen: dict[bytes, pathlib.Path] = {}
    libraries: dict[str, pathlib.Path] = {}

    def put(path: pathlib.Path, target: pathlib.Path) -> None:
        digest = hashlib.sha256(path.read_bytes()).digest()
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(seen.setdefault(digest, path), target)

    for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/libexec", "libexec", "lib"):
        source = base / folder
        if not source.is_dir():
            continue
        (root / folder).mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            if path.name in LEFT_OUT or not (path.is_file() or path.is_symlink()):
                continue
            # Libraries come with who needs them.
            if folder == "lib" and ".so" in path.name:
                continue
            target = root / folder / path.name
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif (wanted := chosen(base, path)) is not None:
                libraries |= wanted
                put(path, target)
    for name, path in libraries.items():
        target = root / name
        if target.is_symlink():
            target.unlink()
        if not target.exists():
            put(path, target)


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


def kernel_modules(folder: pathlib.Path) -> list[pathlib.Path]:
    """Those of the kernel's own modules that tests load, and what they depend on."""
    found: dict[str, pathlib.Path] = {}
    wanted = list(KERNEL_MODULES)
    while wanted:
        path = folder / f"{wanted.pop()}.ko"
        # What is not there is part of the kernel.
        if path.name not in found and path.is_file():
            found[path.name] = path
            wanted += depends(path)
    return [found[name] for name in sorted(found)]


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
        for place, files in (("modules", sorted(built.glob("*.ko")) if built else []),
                             ("kernel", kernel_modules(kernel.folder / "boot/kernel"))):
            (root / "boot" / place).mkdir(parents=True)
            for path in files:
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
