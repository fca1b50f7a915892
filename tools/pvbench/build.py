# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The programs that measure, built below obj/bench: the plugin, programs of tests/bench, Linux."""

from __future__ import annotations

import pathlib
import shlex
import subprocess

from pvbench.errors import BenchError
from xen import image
from xen.errors import OBJ, TOP

BENCH = OBJ.parent / "bench"
PLUGIN = BENCH / "insncount.so"
SOURCES = TOP / "tests/bench"
COMPILE = ["clang-19", "-O2", "-Wall", "-Wextra", "-Werror"]
NETBENCH = BENCH / "netbench"
OURS = "GENERIC-NODEBUG"

# Linux without its mitigations and hardening, which cost time.
LINUX_BARE = ("--env", "init_on_alloc=0", "--env", "mitigations=off")
LINUX_CONSOLE = ("--env", "console=ttyS0", "--env", "tsc=reliable")
VIRTIO = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"]


def compile_c(source: pathlib.Path, target: pathlib.Path, *options: str) -> None:
    """Compile a file, unless that was done before."""
    if target.exists() and target.stat().st_mtime > source.stat().st_mtime:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*COMPILE, *options, "-o", str(target), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BenchError(f"{COMPILE[0]} is not installed: tools/bootstrap") from error
    if done.returncode != 0:
        raise BenchError(f"{shlex.join(command)}\n{done.stderr}")


def plugin() -> None:
    """The plugin that counts instructions."""
    compile_c(TOP / "tools/insncount.c", PLUGIN, "-shared", "-fPIC")


def netbench() -> None:
    """The program for Linux at both ends of a cable."""
    compile_c(SOURCES / "netbench.c", NETBENCH, "-static")


def domtime() -> pathlib.Path:
    """The program that prints in dom0 how long a domain has run."""
    compile_c(SOURCES / "domtime.c", BENCH / "domtime", "-static", "-isystem",
              str(TOP / "obj/sysroot/xen"))
    return BENCH / "domtime"


def linux(name: str, modules: list[str], more: list[image.Entry]) -> str:
    """A guest of Debian's cloud kernel, with virtio's and these modules and files.

    Returns tools/guest's name for it.
    """
    image.build()
    folder = BENCH / name
    entries = image.busybox() + image.modules(image.kernel_version(cloud=True), VIRTIO + modules)
    entries += [("init", image.PROGRAM, (TOP / "tools/xen/linux/init").read_bytes()), *more]
    image.write(folder / "kernel", (image.LINUX / "kernel").read_bytes())
    image.write(folder / "boot.tar", image.cpio(entries))
    return f"bench/{name}"


def xen_linux_with(name: str, entries: list[image.Entry]) -> str:
    """The lab's Linux guest with more files; returns tools/guest's name for it."""
    image.build()
    folder = BENCH / "linux" / name
    image.write(folder / "kernel", (image.LINUX / "kernel").read_bytes())
    # Linux unpacks as many archives as there are, each from a multiple of four bytes on.
    first = (image.LINUX / "boot.tar").read_bytes()
    image.write(folder / "boot.tar", first + bytes(-len(first) % 4) + image.cpio(entries))
    return f"bench/linux/{name}"


def xen_linux(program: str) -> tuple[str, pathlib.Path]:
    """The lab's Linux guest with a program of tests/bench.

    Returns tools/guest's name for it, and the program.
    """
    binary = BENCH / "linux" / program / program
    compile_c(SOURCES / f"{program}.c", binary, "-static")
    return xen_linux_with(program, [
        (f"bin/{program}", image.PROGRAM, binary.read_bytes())]), binary


def need_kernel(name: str) -> None:
    """Refuse to begin without a kernel that was built."""
    for file in ("kernel", "boot.tar"):
        if not (BENCH.parent / name / file).is_file():
            raise BenchError(f"{name} is not built: make KERNCONF={name}")
