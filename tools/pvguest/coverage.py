# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What modules tell that were built for tools/coverage: files in the folder GUEST_COVERAGE.

They write it to port 0xe9 (tests/sys/coverage/coverage.c): QEMU makes a file of that, and Xen lines
of its own console.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

from qemu.options import join_options


def new_file(folder: str) -> str:
    """An empty file there."""
    descriptor, path = tempfile.mkstemp(dir=folder)
    os.close(descriptor)
    return path


def qemu_arguments() -> list[str]:
    """QEMU's arguments for the port; none if nobody wants to know."""
    folder = os.environ.get("GUEST_COVERAGE")
    if not folder:
        return []
    options = {"id": "coverage", "path": new_file(folder), "append": "on"}
    return ["-chardev", join_options(options, "file"),
            "-device", "isa-debugcon,iobase=0xe9,chardev=coverage"]


def keep(console: pathlib.Path) -> None:
    """Keep Xen's console, if somebody wants to know."""
    folder = os.environ.get("GUEST_COVERAGE")
    if folder and console.exists():
        shutil.copyfile(console, new_file(folder))
