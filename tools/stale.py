# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Whether what was built is older than its sources, as after a make that failed."""

from __future__ import annotations

import os
import pathlib

from xen.errors import TOP

# Makefiles and lists of files have none.
SUFFIXES = {".c", ".h", ".S", ".m", ".mk", ".amd64", ".inc", ""}


def newer_source(stamp: pathlib.Path, folders: tuple[str, ...]) -> pathlib.Path | None:
    """Return a file below these folders that was changed after a build began.

    The stamp has the time at which the last one began that succeeded.  None also without a stamp;
    for tests, which build what they need and run for long, while somebody edits (PVKMOD_TOP); and
    if the user says so (GUEST_STALE).
    """
    if {"PVKMOD_TOP", "GUEST_STALE"} & os.environ.keys():
        return None
    try:
        built = stamp.stat().st_mtime
    except FileNotFoundError:
        return None
    for folder in folders:
        for where, below, files in os.walk(TOP / folder):
            below.sort()
            for name in sorted(files):
                path = pathlib.Path(where, name)
                if path.suffix in SUFFIXES and path.lstat().st_mtime > built:
                    return path.relative_to(TOP)
    return None
