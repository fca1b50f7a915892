# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""sys/modules, built for a FreeBSD kernel by the release's own makefiles.

bmake reads share/mk and sys/conf/kmod.mk of the src set; they call programs by names and with
options of FreeBSD's, so that a folder of wrappers comes first in PATH.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator

from fbsd.elf import ET_REL, Elf, ElfError
from fbsd.sets import FREEBSD, FreebsdError, Set, need
from stale import newer_source
from xen.errors import TOP, locked

MODULES = TOP / "sys/modules"
# What only tests load: the instruments, as one module, a disk of pv_blk whose device is a test, and
# a driver that refuses its devices.
TEST_MODULES = [TOP / "tests/sys" / path for path in (
    "cmd/instruments", "dev/pv/qdisk", "dev/virtio/refuse")]
CLANG = "/usr/bin/clang-19"
CLANG_VERSION = "190107"
FEATURES = "build-id ifunc ifunc-noplt filter retpoline"

# FreeBSD's name of a program, and what stands in for it.  genassym.sh reads GNU nm's output.
PROGRAMS = {"nm": "nm", "awk": "gawk", "make": "bmake", "yacc": "byacc", "lex": "flex",
            "ld": "ld.lld-19", "ld.lld": "ld.lld-19"} | {
    name: f"llvm-{name}-19" for name in ("ar", "objcopy", "objdump", "ranlib", "readelf", "size",
                                         "strings", "strip")}

# Programs whose options differ.
SCRIPTS = {
    "cc": """#!/bin/sh
exec {clang} -target {target} -Wno-unused-command-line-argument "$@"
""",
    "cpp": """#!/bin/sh
exec {clang} -target {target} -E "$@"
""",
    # `sed -i "" ...', GNU's is `sed -i ...'
    "sed": """#!/usr/bin/python3
import os
import sys

words = sys.argv[1:]
for at in range(len(words) - 1, 0, -1):
    if words[at] == "" and words[at - 1] == "-i":
        del words[at]
os.execv("/usr/bin/sed", ["sed", *words])
""",
    # `xargs -J % ...': all words in place of %
    "xargs": """#!/usr/bin/python3
import os
import sys

words = sys.argv[1:]
if not words or not words[0].startswith("-J"):
    os.execv("/usr/bin/xargs", ["xargs", *words])
mark = words[0][2:]
if mark:
    words = words[1:]
else:
    mark, words = words[1], words[2:]
place = words.index(mark)
words[place:place + 1] = sys.stdin.read().split()
os.execvp(words[0], words)
""",
    # Only below DESTDIR_GUARD is anything installed; owners and packages are left out.
    "install": """#!/usr/bin/python3
import os
import sys

words, guard = sys.argv[1:], os.environ.get("DESTDIR_GUARD")
if not guard or not os.path.realpath(words[-1]).startswith(os.path.realpath(guard) + "/"):
    sys.exit("install: nothing is installed outside of DESTDIR_GUARD: " + words[-1])
for option in ("-o", "-g", "-T"):
    while option in words:
        del words[words.index(option):words.index(option) + 2]
os.execv("/usr/bin/install", ["install", *words])
""",
}


def write_wrappers(release: int) -> pathlib.Path:
    """The folder of wrappers."""
    folder = FREEBSD / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in PROGRAMS.items():
        path = shutil.which(program)
        if path is None:
            raise FreebsdError(f"{program} is not installed: tools/bootstrap")
        link = folder / name
        if not link.is_symlink() or str(link.readlink()) != path:
            link.unlink(missing_ok=True)
            link.symlink_to(path)
    target = f"x86_64-unknown-freebsd{release // 100000}.{release // 1000 % 100}"
    for name, pattern in SCRIPTS.items():
        script = folder / name
        text = pattern.replace("{clang}", CLANG).replace("{target}", target)
        if not script.is_file() or script.read_text() != text:
            script.write_text(text)
            script.chmod(0o755)
    return folder


def kernel_build_folder(source: Set, kernel: Set) -> pathlib.Path | None:
    """The opt_*.h of a kernel; a release has none, and kmod.mk makes GENERIC's."""
    for one in (kernel, source):
        folder = one.folder / "usr/obj/usr/src/amd64.amd64/sys" / kernel.ident
        if (folder / "opt_global.h").is_file():
            return folder
    if kernel.ident != "GENERIC":
        raise FreebsdError(f"the options that {kernel.ident} was built with (usr/obj/.../sys/"
                           f"{kernel.ident}/opt_*.h) are neither in src.txz nor in"
                           f" {kernel.name}.txz: import the set that has them")
    return None


def variables(source: Set, kernel: Set | None) -> list[str]:
    """Variables that FreeBSD's make would set; without a kernel, its options are GENERIC's."""
    values = dict.fromkeys(("MACHINE", "MACHINE_ARCH", "MACHINE_CPUARCH", "TARGET", "TARGET_ARCH"),
                           "amd64")
    values |= {name.upper(): name for name in ("cc", "cpp", "ld", "nm", "objcopy", "ar", "ranlib",
                                               "size", "strip", "awk")}
    for prefix in ("", "X_"):
        values |= {
            f"{prefix}COMPILER_TYPE": "clang", f"{prefix}COMPILER_VERSION": CLANG_VERSION,
            f"{prefix}COMPILER_FREEBSD_VERSION": "1900000",
            f"{prefix}COMPILER_FEATURES": "c++11 c++14 c++17 c++20 retpoline init-all",
            f"{prefix}LINKER_TYPE": "lld", f"{prefix}LINKER_VERSION": CLANG_VERSION,
            f"{prefix}LINKER_FREEBSD_VERSION": "0", f"{prefix}LINKER_FEATURES": FEATURES,
        }
    # Files and lines, in NAME.ko.full; what is loaded has none.
    values |= {"DEBUG_FLAGS": "-g",
               "MK_CTF": "no", "WITHOUT_CTF": "yes", "MK_MAN": "no", "MK_AUTO_OBJ": "no",
               "WITHOUT_META_MODE": "yes", "MK_WERROR": "no", "WERROR": "",
               "SYSDIR": str(source.folder / "usr/src/sys")}
    folder = kernel_build_folder(source, kernel) if kernel else None
    if kernel and is_generic(kernel):
        values["PV_BESIDE_STOCK"] = "yes"
    if folder:
        values["KERNBUILDDIR"] = str(folder)
        if (folder / "san_cflags").is_file():
            values["SAN_CFLAGS"] = (folder / "san_cflags").read_text().strip()
    return [f"{name}={value}" for name, value in values.items()]


def environment(source: Set) -> dict[str, str]:
    """The environment of make, with nothing from this machine's."""
    wrappers = write_wrappers(source.release)
    return {"PATH": f"{wrappers}:/usr/bin:/bin", "HOME": str(FREEBSD), "LC_ALL": "C",
            "MAKESYSPATH": str(source.folder / "usr/src/share/mk"), "SRCCONF": "/dev/null",
            "SRC_ENV_CONF": "/dev/null", "__MAKE_CONF": "/dev/null"}


def run_make(arguments: list[str]) -> int:
    """Run the release's make for anything of its, a port for example; returns its exit status.

    It may install below DESTDIR_GUARD of the environment.
    """
    source = need("src")
    env = environment(source)
    if guard := os.environ.get("DESTDIR_GUARD"):
        env["DESTDIR_GUARD"] = guard
    return subprocess.run(["bmake", *variables(source, None), *arguments], env=env,
                          check=False).returncode


# What the modules are built from.
SOURCES = ("sys/dev/pv", "sys/dev/virtio", "sys/dev/xen", "sys/modules")


def folder_for(kernel: Set) -> pathlib.Path:
    """Where the modules of a kernel are."""
    return FREEBSD / "modules" / kernel.ident


def objects_for(kernel: Set) -> pathlib.Path:
    """Where the modules of a kernel are built: NAME.ko.full is one that knows files and lines."""
    return FREEBSD / "build" / kernel.ident


def built_for(kernel: Set) -> pathlib.Path | None:
    """The folder of modules that were built for the imported kernel; none for GENERIC."""
    folder = folder_for(kernel)
    how = f"tools/freebsd modules --kernel {kernel.ident}"
    record = folder / ".pvkmod"
    if not record.is_file():
        if is_generic(kernel):
            return None
        raise FreebsdError(f"there are no modules for {kernel.ident}: {how}")
    release, ident, stamp = json.loads(record.read_text())
    if [release, ident, stamp] != [kernel.release, kernel.ident, kernel.stamp]:
        raise FreebsdError(f"the modules were built for another {ident} (FreeBSD {release}) than"
                           f" the imported one ({kernel.release}): {how}")
    if path := newer_source(record, SOURCES):
        raise FreebsdError(f"{path} was changed since the modules for {ident} were built: {how}"
                           " (GUEST_STALE=1 takes what there is)")
    return folder


def check_module(path: pathlib.Path) -> None:
    """Refuse a file that is not a module for amd64."""
    try:
        if Elf(path).type != ET_REL:
            raise FreebsdError(f"{path}: not a module (ELF relocatable)")
    except ElfError as error:
        raise FreebsdError(f"{path} is {error}: not a module for this kernel") from error


def warnings(log: str) -> list[str]:
    """The compiler's and make's warnings and errors."""
    return [line for line in log.splitlines()
            if " warning: " in line or " error: " in line or line.startswith(("make: ", "bmake: "))]


def build_one(name: str, kernel: Set, arguments: list[str], env: dict[str, str]) -> list[str]:
    """Build a module; returns warnings.  Raises FreebsdError with the first error."""
    objects = objects_for(kernel) / name
    objects.mkdir(parents=True, exist_ok=True)
    log = objects.parent / f"{name}.log"
    done = subprocess.run(["bmake", "-j2", *arguments], cwd=known(kernel)[name],
                          env=env | {"MAKEOBJDIR": str(objects)}, check=False, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    log.write_text(done.stdout)
    found = warnings(done.stdout)
    if done.returncode != 0:
        error = next((line for line in found if "error: " in line or "know how" in line),
                     (found or done.stdout.splitlines() or ["make failed"])[-1])
        raise FreebsdError(f"{name} for {kernel.ident}: {error} (all of it: {log})")
    file = objects / f"{file_name(name, kernel)}.ko"
    check_module(file)
    target = folder_for(kernel) / file.name
    if not target.is_file() or target.read_bytes() != file.read_bytes():
        shutil.copy(file, target)
    return found


def file_name(name: str, kernel: Set) -> str:
    """The name of a module's file: GENERIC has drivers of its own (sys/modules/Makefile.inc)."""
    if is_generic(kernel) and (name == "if_vtnet" or name.startswith("virtio_")):
        return "pv_" + name.removeprefix("if_")
    return "xen" if name == "xen_core" else name


def is_generic(kernel: Set) -> bool:
    """Whether a kernel has FreeBSD's own virtio drivers built in."""
    return "GENERIC" in kernel.ident


def known(kernel: Set | None = None) -> dict[str, pathlib.Path]:
    """The folders of the suite's modules for a kernel, and of the tests', by name.

    Xen's are for a kernel with Xen support of its own or for one without it (sys/modules/Makefile).
    """
    others = ("xen", "xen_balloon") if kernel and is_generic(kernel) else ("xen_core",)
    folders = [path.parent for path in sorted(MODULES.glob("*/Makefile"))
               if path.parent.name not in others]
    return {folder.name: folder for folder in (*folders, *TEST_MODULES)}


def build(kernel: Set, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Build modules, or all of them; yields each name with its warnings."""
    source = need("src")
    for name in names:
        if name not in known(kernel):
            raise FreebsdError(f"there is no module {name}: expected"
                               f" {', '.join(known(kernel))}")
    arguments, env = variables(source, kernel), environment(source)
    record = json.dumps([kernel.release, kernel.ident, kernel.stamp])
    folder = folder_for(kernel)
    with locked(FREEBSD / f"{kernel.ident}.modules.lock"):
        stamp, objects = folder / ".pvkmod", objects_for(kernel)
        place = objects / ".checkout"
        began = time.time()
        if not stamp.is_file() or stamp.read_text() != record:
            # For another kernel: none of its files may be left.
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(objects, ignore_errors=True)
        made_by = "\n".join([str(TOP), *arguments])
        if not place.is_file() or place.read_text() != made_by:
            # Dependencies have absolute paths, which are wrong in a checkout that was moved, and no
            # object depends on make's variables.
            shutil.rmtree(objects, ignore_errors=True)
            objects.mkdir(parents=True)
            place.write_text(made_by)
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{file_name(name, kernel)}.ko" for name in known(kernel)}
        for path in folder.glob("*.ko"):
            # Files of a module that had another name before.
            if path.name not in files:
                path.unlink()
        # bmake compares whole seconds.
        subprocess.run([TOP / "tools/begin", objects], stdout=subprocess.DEVNULL, check=True)
        for name in names or known(kernel):
            yield name, build_one(name, kernel, arguments, env)
        (objects / ".ended").touch()
        if not names or stamp.is_file() or files <= {path.name for path in folder.glob("*.ko")}:
            stamp.write_text(record)
            os.utime(stamp, (began, began))
