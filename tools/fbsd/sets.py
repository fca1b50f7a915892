# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A release's distribution sets below obj/freebsd: imported, checked, described."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable

from fbsd.elf import ET_EXEC, Elf, ElfError
from xen.errors import OBJ

FREEBSD = OBJ.parent / "freebsd"

# Of a release's sets, of which there may be 3 GB: what neither a guest nor a module's build needs.
OMITTED = {
    "base": ("usr/share", "usr/include", "usr/tests", "usr/lib32", "usr/lib/debug", "usr/lib/clang",
             "usr/lib/*.a", "rescue", "boot"),
    "src": [f"usr/src/{name}" for name in (
        *("bin", "cddl", "contrib", "crypto", "gnu", "kerberos5", "lib", "libexec", "release"),
        *("rescue", "sbin", "secure", "stand", "tests", "usr.bin", "usr.sbin"))],
}

# Each kernel that may be imported: its name in `--os freebsd=' and `--kernel', and its set.
KERNELS = {"": "kernel", "debug": "kernel-debug", "generic": "kernel-generic",
           "altq": "kernel-altq", "kasan": "kernel-kasan", "kcsan": "kernel-kcsan"}
SETS = {
    "src": "usr/src/share/mk and usr/src/sys, which modules are built with",
    "base": "programs for the guest",
    "kernel": "a kernel",
} | {name: f"a kernel (--os freebsd={key})" for key, name in KERNELS.items() if key}

NT_FREEBSD_ABI_TAG = 1  # sys/elf_common.h: __FreeBSD_version

# The supported releases; the headers of 15 are the newest that the suite was built with.
RELEASES = (14, 15)


class FreebsdError(Exception):
    """A line for the user: what is wrong, and what to do."""


@dataclasses.dataclass
class Set:
    """The properties of an imported set."""

    name: str
    release: int = 0  # __FreeBSD_version, where the set has it
    ident: str = ""  # a kernel's configuration
    stamp: str = ""  # changes when the set is imported again

    @property
    def folder(self) -> pathlib.Path:
        """Where it was unpacked."""
        return FREEBSD / self.name


def check_release(name: str, release: int) -> None:
    """Refuse releases that the suite does not support."""
    if release // 100000 not in RELEASES:
        raise FreebsdError(f"{name}.txz is FreeBSD {release // 100000} ({release}); the suite is"
                           f" for {' and '.join(map(str, RELEASES))}: import a set of those")


def inspect_kernel(name: str, folder: pathlib.Path) -> Set:
    """Check a kernel's set."""
    path = folder / "boot/kernel/kernel"
    if not path.is_file():
        raise FreebsdError(f"{name}.txz has no boot/kernel/kernel: it is no kernel's set")
    try:
        kernel = Elf(path)
    except ElfError as error:
        raise FreebsdError(f"{name}.txz: the kernel is {error}: import a set for amd64") from error
    if kernel.type != ET_EXEC:
        raise FreebsdError(f"{name}.txz: boot/kernel/kernel is not an executable")
    if kernel.symbol_tables() is None:
        raise FreebsdError(f"{name}.txz: the kernel has no symbols (stripped): its panics could not"
                           " be read; import the release's own")
    # A configuration that includes another may have no ident of its own: its build folder has it.
    options = list(folder.glob("usr/obj/usr/src/amd64.amd64/sys/*/opt_global.h"))
    ident = options[0].parent.name if options else kernel.text("kern_ident")
    found = Set(name, kernel.number("osreldate"), ident)
    check_release(name, found.release)
    return found


def inspect_src(name: str, folder: pathlib.Path) -> Set:
    """Check the headers and makefiles."""
    source = folder / "usr/src"
    for part in ("sys/conf/kmod.mk", "sys/sys/param.h", "share/mk/bsd.own.mk"):
        if not (source / part).is_file():
            raise FreebsdError(f"{name}.txz has no usr/src/{part}: it is no (or half a) source set")
    text = (source / "sys/sys/param.h").read_text()
    release = re.search(r"^#define\s+__FreeBSD_version\s+(\d+)", text, re.M)
    found = Set(name, int(release[1]) if release else 0)
    check_release(name, found.release)
    return found


def inspect_base(name: str, folder: pathlib.Path) -> Set:
    """Check the programs; crt1.o marks each with the release that it was linked for."""
    found = Set(name)
    for part in ("bin/sh", "sbin/init", "sbin/kldload"):
        path = folder / part
        if not path.is_file():
            raise FreebsdError(f"{name}.txz has no {part}: it is no (or half a) base set")
        try:
            mark = Elf(path).note(".note.tag", b"FreeBSD", NT_FREEBSD_ABI_TAG)
        except ElfError as error:
            raise FreebsdError(f"{name}.txz: {part} is {error}: import a set for amd64") from error
        found.release = found.release or int.from_bytes(mark[:4], "little")
    if found.release == 0:
        raise FreebsdError(f"{name}.txz: bin/sh does not say of which release it is (.note.tag):"
                           " import the base set of a FreeBSD release")
    check_release(name, found.release)
    return found


def inspect(name: str, folder: pathlib.Path) -> Set:
    """Check an unpacked set."""
    if name == "src":
        return inspect_src(name, folder)
    return inspect_base(name, folder) if name == "base" else inspect_kernel(name, folder)


def unpack(archive: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpack one set; a truncated or damaged one is refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    omitted = [f"--exclude={name}" for name in OMITTED.get(archive.stem, ())]
    done = subprocess.run(["tar", "-xf", archive, "-C", folder, "--no-same-owner", *omitted],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.splitlines() or ["tar failed"])[0]
        raise FreebsdError(f"{archive.name} is damaged or was copied by half ({said}):"
                           " copy it again")


def imported() -> dict[str, Set]:
    """The imported sets."""
    found = {}
    for name in SETS:
        record = FREEBSD / name / ".pvkmod"
        if record.is_file():
            found[name] = Set(**json.loads(record.read_text()))
    return found


def check_together(sets: dict[str, Set]) -> None:
    """Refuse sets of different releases."""
    known = [one for one in sets.values() if one.release]
    first = sets.get("src") or (known[0] if known else None)
    for one in known:
        if first and one.release != first.release:
            raise FreebsdError(f"{one.name}.txz is FreeBSD {one.release}, {first.name}.txz"
                               f" {first.release}: import sets of one release, or remove the"
                               f" older one's folder in {FREEBSD}")


def place() -> pathlib.Path:
    """Where a release's sets are looked for: in FREEBSD, else in a folder of the user's cache."""
    named = os.environ.get("FREEBSD")
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(named or pathlib.Path(cache) / "pv-kmod/freebsd")


def archives(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The sets of a folder; there has to be one."""
    found = {name: folder / f"{name}.txz" for name in SETS if (folder / f"{name}.txz").is_file()}
    if not found:
        raise FreebsdError(f"{folder}: no src.txz, base.txz or kernel.txz there: name the folder"
                           " with the distribution sets of a FreeBSD release for amd64")
    return found


def check_manifest(archive: pathlib.Path) -> None:
    """Compare a set with what the release's MANIFEST, if it is beside it, says: name, SHA256 ..."""
    manifest = archive.with_name("MANIFEST")
    for line in manifest.read_text().splitlines() if manifest.is_file() else ():
        words = line.split("\t")
        if len(words) < 2 or words[0] != archive.name:
            continue
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != words[1].lower():
                raise FreebsdError(f"{archive.name} is not the one that MANIFEST names, or is"
                                   " damaged: download both again")


def import_sets(folder: pathlib.Path, begun: Callable[[str], None]) -> list[str]:
    """Import the sets of a folder; returns the names of those that were new or have changed.

    begun is called with the name of each.
    """
    offered = archives(folder)
    FREEBSD.mkdir(parents=True, exist_ok=True)
    there = imported()
    together = {name: one for name, one in there.items() if name not in offered}
    changed: list[str] = []
    for name, archive in offered.items():
        begun(name)
        status = archive.stat()
        stamp = f"{status.st_size} {status.st_mtime_ns}"
        # A set that was imported before its release was recorded is read again.
        if name in there and there[name].stamp == stamp and there[name].release:
            together[name] = there[name]
            check_together(together)
            continue
        fresh = FREEBSD / f"{name}.new"
        try:
            check_manifest(archive)
            unpack(archive, fresh)
            one = together[name] = inspect(name, fresh)
            check_together(together)
        except FreebsdError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        one.stamp = stamp
        (fresh / ".pvkmod").write_text(json.dumps(dataclasses.asdict(one)) + "\n")
        shutil.rmtree(FREEBSD / name, ignore_errors=True)
        fresh.rename(FREEBSD / name)
        changed.append(name)
    return changed


def kernel_set(which: str) -> Set:
    """A kernel's set by its key or its configuration (debug, PVDEBUG).

    A release's own kernel.txz is GENERIC, so that it serves for generic as well.
    """
    sets = imported()
    for key, name in KERNELS.items():
        if name in sets and which in (key, sets[name].ident):
            return sets[name]
    if which == "generic" and "kernel" in sets and sets["kernel"].ident == "GENERIC":
        return sets["kernel"]
    if which in KERNELS:
        raise FreebsdError(f"{KERNELS[which]}.txz is not imported: tools/freebsd import DIR")
    raise FreebsdError(f"no kernel {which}: expected {', '.join(filter(None, KERNELS))}"
                       " or the configuration of an imported one (tools/freebsd status)")


def need(name: str) -> Set:
    """A set that has to be there."""
    if name not in (sets := imported()):
        raise FreebsdError(f"{name}.txz is not imported ({SETS[name]}): tools/freebsd import DIR")
    return sets[name]
