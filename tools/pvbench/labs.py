# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Guests under QEMU: on TAP devices between network namespaces (tests/sys/net/netlab.py)."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

from pvbench.errors import BenchError
from xen.errors import TOP

os.environ.setdefault("PVKMOD_TOP", str(TOP))
sys.path.insert(0, str(TOP / "tests/sys/net"))

import netlab

__all__ = ["LinuxLab", "QuietLab", "enter", "inside", "netlab", "scratch", "tail", "unusable"]

FOREVER = 1e6
VERBOSE = "BENCH_VERBOSE"


class QuietLab(netlab.Lab):
    """A lab whose console is shown only with BENCH_VERBOSE in the environment."""

    def guest(self, line: str, status: int | None = 0) -> str:
        """As Lab's."""
        with contextlib.redirect_stdout(sys.stderr if VERBOSE in os.environ else io.StringIO()):
            return super().guest(line, status)


class LinuxLab(QuietLab):
    """The same with Linux as the guest, which is as it boots."""

    begin = ""


def tail() -> str:
    """The end of what the guest has said on its console."""
    log = pathlib.Path("console.log")
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


@contextlib.contextmanager
def scratch(patience: float = FOREVER) -> Iterator[pathlib.Path]:
    """Work in a folder of its own; what fails there ends the bench with the console's end."""
    netlab.TIMEOUT = patience
    with tempfile.TemporaryDirectory(prefix="bench") as folder, contextlib.chdir(folder):
        try:
            yield pathlib.Path(folder)
        except netlab.LabFailure as failure:
            raise BenchError(f"{failure}\n{tail()}") from failure


def enter() -> None:
    """Restart the program in namespaces of its own."""
    netlab.enter()


def inside() -> bool:
    """Whether that was done."""
    return netlab.INSIDE in os.environ


def unusable() -> str | None:
    """Why there can be no namespaces here."""
    return None if inside() else netlab.unusable()
