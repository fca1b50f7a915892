# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What the programs that measure have in common: what they build, and how they print."""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys

from xen import image

TOP = pathlib.Path(__file__).resolve().parent.parent
BENCH = TOP / "obj/bench"
PLUGIN = BENCH / "insncount.so"
COMPILE = ["clang-19", "-O2", "-Wall", "-Wextra", "-Werror"]

# Linux would copy with "rep movsb", which counts eight times what "rep movsq" does.
PROCESSOR = "max,-erms,-fsrm"
# Linux without what guards against bugs and curious neighbours, and costs.
LINUX_BARE = ("--env", "init_on_alloc=0", "--env", "mitigations=off")
LINUX_CONSOLE = ("--env", "console=ttyS0", "--env", "tsc=reliable")
VIRTIO = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"]


def build_plugin() -> None:
    """The plugin that counts instructions."""
    BENCH.mkdir(parents=True, exist_ok=True)
    subprocess.run([*COMPILE, "-shared", "-fPIC", "-o", PLUGIN, TOP / "tools/insncount.c"],
                   check=True)


def build_linux(name: str, modules: list[str], more: list[image.Entry]) -> None:
    """A guest of Debian's cloud kernel below obj/, with virtio's and these modules and files."""
    image.build()
    folder = TOP / "obj" / name
    entries = image.busybox() + image.modules(image.kernel_version(cloud=True), VIRTIO + modules)
    entries += [("init", image.PROGRAM, (TOP / "tools/xen/linux/init").read_bytes()), *more]
    image.write(folder / "kernel", (image.LINUX / "kernel").read_bytes())
    image.write(folder / "boot.tar", image.cpio(entries))


def counting(live: pathlib.Path, profile: pathlib.Path | None = None) -> list[str]:
    """Options of tools/guest that have the plugin keep its count in a file, or each address's."""
    addresses = "" if profile is None else f",profile={profile}"
    return ["--qemu=-icount", "--qemu=shift=0", "--qemu=-cpu", f"--qemu={PROCESSOR}",
            "--qemu=-plugin", f"--qemu={PLUGIN},live={live}{addresses}"]


def executed(live: pathlib.Path) -> int:
    """How many instructions there were up to now."""
    return int.from_bytes(live.read_bytes(), sys.byteorder)


def triple(values: list[float], form: str) -> str:
    """Minimum, median and maximum."""
    return " / ".join(f"{value:{form}}"
                      for value in (min(values), statistics.median(values), max(values)))


def verdict(kept: bool) -> str:
    """How a limit is said to be kept or not."""
    return "kept" if kept else "EXCEEDED"
