# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Debian's packages, downloaded and unpacked below a folder of obj/; nothing is installed.

apt's own lists of packages are used if possible.  Otherwise (they were never fetched, or are so old
that a file was removed from the mirror), lists are fetched below the folder, which needs no
privileges.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess


class PackagesError(Exception):
    """The packages are not available; a line for the user."""


class Packages:
    """Packages by name, below a folder: deb (as downloaded), root (unpacked), apt (own lists).

    `kernels` has packages that depend on the current kernel, and the name of its file.
    `what` is the user of the packages, as the subject of a sentence.
    """

    def __init__(self, what: str, folder: pathlib.Path, names: list[str],
                 kernels: dict[str, str] | None = None) -> None:
        self.what = what
        self.names = names
        self.kernels = kernels or {}
        self.deb = folder / "deb"
        self.root = folder / "root"
        self.lists = folder / "apt"

    def matching(self, pattern: str) -> list[pathlib.Path]:
        """The downloaded packages with a name that matches."""
        return [path for path in self.deb.glob("*.deb") if re.fullmatch(pattern, path.name)]

    def missing(self) -> tuple[list[str], list[str]]:
        """Packages, and kernels by the name of the package that depends on them, to be fetched."""
        return ([name for name in self.names if not self.matching(re.escape(name) + r"_.*\.deb")],
                [name for name, pattern in self.kernels.items() if not self.matching(pattern)])

    def apt(self, program: str, arguments: list[str], own_lists: bool) -> str:
        """Run a program of apt; returns its output, raises PackagesError with apt's words."""
        options = ["-q", "-o", "APT::Sandbox::User="]
        if own_lists:
            options += ["-o", f"Dir::State::lists={self.lists}/lists/",
                        "-o", f"Dir::Cache={self.lists}/cache/"]
        try:
            done = subprocess.run([program, *options, *arguments], cwd=self.deb, check=False,
                                  text=True, stdin=subprocess.DEVNULL, capture_output=True)
        except FileNotFoundError as error:
            raise PackagesError(f"{program} is not on this machine: {self.what} needs Debian 12's"
                                " packages") from error
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
            said = lines[0].removeprefix("E: ") if lines else "failed"
            raise PackagesError("Debian's packages are not to be had:"
                                f" {program} {arguments[0]}: {said}")
        return done.stdout

    def download(self, own_lists: bool) -> None:
        """Fetch what is missing."""
        if own_lists:
            for folder in ("lists/partial", "cache/archives/partial"):
                (self.lists / folder).mkdir(parents=True, exist_ok=True)
            self.apt("apt-get", ["update", "--error-on=any"], own_lists)
        packages, kernels = self.missing()
        for name in kernels:
            depends = self.apt("apt-cache", ["depends", "--important", name], own_lists)
            found = re.search(r"Depends: (linux-image-\S+)", depends)
            if found is None:
                raise PackagesError(f"apt knows no kernel for {name}")
            packages.append(found.group(1))
        if packages:
            self.apt("apt-get", ["download", *packages], own_lists)
        packages, kernels = self.missing()
        if packages or kernels:
            raise PackagesError(f"apt did not deliver {' '.join(packages + kernels)}")

    def fetch(self) -> None:
        """Download what is missing."""
        self.deb.mkdir(parents=True, exist_ok=True)
        if self.missing() == ([], []):
            return
        try:
            self.download(own_lists=False)
        except PackagesError:
            if shutil.which("apt-get") is None:
                raise
            self.download(own_lists=True)

    def unpack(self) -> None:
        """Unpack all packages into a fresh root."""
        if shutil.which("dpkg") is None:
            raise PackagesError(f"dpkg is not on this machine: {self.what} needs Debian 12's"
                                " packages")
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        for path in sorted(self.deb.glob("*.deb")):
            done = subprocess.run(["dpkg", "-x", str(path), str(self.root)], check=False, text=True,
                                  capture_output=True)
            if done.returncode != 0:
                path.unlink()
                raise PackagesError(f"{path.name} is damaged and was removed: build again"
                                    f" ({done.stderr.strip()})")
