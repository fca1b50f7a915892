# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A clone of HEAD that is built for coverage, and the tests that run in it."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

from pvcoverage.counters import CoverageError, Lines, exported, lines_of, modules_in
from pvcoverage.record import Run, run_of

HOSTED = "-fprofile-instr-generate -fcoverage-mapping"
# Its code is executed by pvq_wake_test as well, and ThreadSanitizer has no profile.
NO_PROFILE = "pvq_race_test"


def git(*words: str, cwd: pathlib.Path) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CoverageError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


class Tree:
    """The clone."""

    def __init__(self, source: pathlib.Path, top: pathlib.Path) -> None:
        self.source, self.top = source, top
        if not (top / ".git").exists():
            top.parent.mkdir(parents=True, exist_ok=True)
            git("clone", "-q", "--no-checkout", str(source), str(top), cwd=source)
        self.head = git("rev-parse", "HEAD", cwd=top)
        # At which commit the modules were built.
        self.built = top / "obj/coverage.commit"

    def update(self) -> None:
        """Have the checkout's HEAD, with what the checkout has downloaded."""
        self.head = git("rev-parse", "HEAD", cwd=self.source)
        git("fetch", "-q", str(self.source), "HEAD", cwd=self.top)
        git("checkout", "-q", "-f", "--detach", self.head, cwd=self.top)
        (self.top / "obj").mkdir(exist_ok=True)
        for name in ("sysroot", "venv"):
            if not (self.top / "obj" / name).exists():
                (self.top / "obj" / name).symlink_to(self.source / "obj" / name)

    def environment(self) -> dict[str, str]:
        """Of all that runs there."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        return env | {"PVKMOD_ROUNDS": "2", "GUEST_STALE": "1"}

    def make(self, *words: str) -> None:
        """Run bmake."""
        done = subprocess.run(["bmake", "-m", str(self.top / "share/mk"), *words], cwd=self.top,
                              env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CoverageError(f"bmake {' '.join(words)}: {(done.stdout + done.stderr)[-800:]}")

    def build_hosted(self) -> None:
        """All hosted programs, in a folder of their own."""
        (self.top / "coverage").mkdir(exist_ok=True)
        for name in ("sysroot", "venv"):
            if not (self.top / "coverage" / name).exists():
                (self.top / "coverage" / name).symlink_to(self.source / "obj" / name)
        self.make(f"-j{os.cpu_count() or 1}", "hosted", f"OBJTOP={self.top}/coverage",
                  f"HOSTED_MORE={HOSTED}")

    # Hosted programs.

    def hosted(self, skip: Callable[[str], bool], show: Callable[[str], None]) -> Iterator[Run]:
        """Run each program, all of its cases at once."""
        folder = self.top / "coverage/tests/hosted"
        for path in sorted(folder.glob("*_test.objs")):
            program = path.with_suffix("")
            name = f"hosted/{program.name}"
            if program.name == NO_PROFILE or skip(name):
                continue
            show(name)
            yield self.one_hosted(name, program)

    def one_hosted(self, name: str, program: pathlib.Path) -> Run:
        """Run all cases of a program."""
        listed = subprocess.run([program, "-l"], capture_output=True, text=True, check=False,
                                env=self.environment() | {"LLVM_PROFILE_FILE": os.devnull}).stdout
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder, "data")
            env = self.environment() | {"LLVM_PROFILE_FILE": f"{folder}/%p.raw"}
            for case in re.findall(r"^ident: (\S+)$", listed, re.MULTILINE):
                done = subprocess.run([str(program), "-r", "/dev/null", case], cwd=folder, env=env,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      check=False)
                if done.returncode != 0:
                    raise CoverageError(f"{name}:{case} fails")
            raw = sorted(pathlib.Path(folder).glob("*.raw"))
            subprocess.run(["llvm-profdata-19", "merge", "-o", data, *raw], check=True)
            return run_of(name, self.head, time.monotonic() - began, exported(data, [program]))

    # Guests.

    def cases(self, tests: list[str]) -> list[str]:
        """Build what these tests need, the suite's modules with counters; returns their cases."""
        done = subprocess.run(["tools/runtests", "--list", *tests], cwd=self.top,
                              env=self.environment() | {"COVERAGE": "yes"}, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise CoverageError((done.stdout + done.stderr)[-800:])
        self.built.write_text(self.head)
        return re.findall(r"^[\w/]+:\w+$", done.stdout, re.MULTILINE)

    def runtests(self, *words: str, env: dict[str, str] | None = None) -> int:
        """Run the tree's own tools/runtests."""
        return subprocess.run(["tools/runtests", "--no-build", "--jobs", "1", *words], cwd=self.top,
                              env=env or self.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False).returncode

    def guest(self, case: str) -> tuple[Run, bool]:
        """Run a case whose guests tell their counters; also whether it passed."""
        modules = modules_in(self.top / "obj/GENERIC/modules")
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            status = self.runtests(case, env=self.environment() | {"GUEST_COVERAGE": folder})
            seconds = time.monotonic() - began
            told = [path.read_bytes() for path in pathlib.Path(folder).iterdir()]
        found = lines_of(b"\n".join(told), modules) if told else Lines()
        return run_of(case, self.head, seconds, found), status == 0

    def everything(self) -> tuple[str, Lines]:
        """All lines and branches that modules have, executed or not, and at which commit."""
        if not self.built.exists():
            raise CoverageError("no modules were built for coverage: make coverage")
        return self.built.read_text(), lines_of(b"", modules_in(self.top / "obj/GENERIC/modules"))
