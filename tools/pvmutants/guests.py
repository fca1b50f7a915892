# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The test cases with guests that execute a mutant, as tools/coverage has found them."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Callable

from pvcoverage.record import Translation, read_runs
from pvmutants.suite import LENIENT, HostedSuite, SuiteError, Test

# Of the unmutated case's duration, and seconds besides; its guests have time-outs of their own.
PATIENCE, GRACE = 4, 60
# How long tools/runtests has to end what it started.
ENDING = 45
OURS = re.compile(r"sys/dev/(pv|virtio|xen)/.*\.[ch]$")


class GuestSuite:
    """The modules of the clone that the hosted programs are in as well."""

    def __init__(self, hosted: HostedSuite, cases: pathlib.Path, limit: int,
                 show: Callable[[str], None]) -> None:
        self.hosted, self.top, self.limit, self.show = hosted, hosted.top, limit, show
        self.modules = self.top / "obj/GENERIC/modules"
        self.is_made = self.is_built = False
        self.plain: dict[str, str] = {}
        self.depends: dict[str, set[pathlib.Path]] = {}
        self.lines: dict[str, dict[int, list[Test]]] = {}
        if limit > 0:
            self.read_cases(cases)

    def read_cases(self, cases: pathlib.Path) -> None:
        """Which of them execute each line that there still is."""
        translation = Translation(self.hosted.source, self.hosted.head)
        for run in read_runs(cases):
            if run.name.startswith("hosted/"):
                continue
            test = Test(run.name, run.seconds)
            for file, numbers in run.lines.items():
                lines = self.lines.setdefault(file, {})
                for number in numbers:
                    line = translation.line(run.commit, file, number)
                    if line is not None:
                        lines.setdefault(line, []).append(test)

    def files(self) -> list[str]:
        """Those that guests execute."""
        return sorted(file for file in self.lines if OURS.match(file))

    @functools.cache  # noqa: B019 - there is one
    def executed(self, file: str, line: int) -> list[Test]:
        """The quickest case of each program that executes a line, then the second of each ..."""
        programs: dict[str, list[Test]] = collections.defaultdict(list)
        for test in sorted(self.lines.get(file, {}).get(line, []), key=lambda test: test.seconds):
            programs[test.name.partition(":")[0]].append(test)
        near = sorted(programs.values(), key=lambda tests: (
            -len(os.path.commonpath([tests[0].name, file])), tests[0].seconds))
        turns = itertools.zip_longest(*near)
        return [test for each in turns for test in each if test is not None][:self.limit]

    def version(self, test: Test) -> str:
        """What a test is, for what is known of it: its program, and the drivers."""
        program = f"tests/{test.name.partition(':')[0]}"
        words = self.hosted.git("rev-parse", f"{self.hosted.head}:sys/dev",
                                f"{self.hosted.head}:{program}", cwd=self.hosted.source)
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    def prepare(self) -> None:
        """Build everything without a mutant."""
        if self.is_made:
            return
        self.show("the guests' kernel and modules are built")
        done = subprocess.run(["tools/runtests", "--list", "sys/dev"], cwd=self.top,
                              env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SuiteError((done.stdout + done.stderr)[-800:])
        for path in self.modules.glob("*/*.o.d"):
            _, _, words = path.read_text().replace("\\\n", " ").partition(":")
            for word in words.split():
                file = os.path.relpath(os.path.realpath(path.parent / word), self.top)
                if OURS.match(file):
                    self.depends.setdefault(file, set()).add(path.with_suffix(""))
        self.plain = {str(path): self.digest(path) for path in self.modules.glob("*/*.ko")}
        self.is_made = True

    @staticmethod
    def digest(path: pathlib.Path) -> str:
        """Of a file's contents."""
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def written(self, file: str) -> None:
        """A source has become another one: bmake compares whole seconds."""
        for path in self.depends.get(file, ()):
            path.unlink(missing_ok=True)
        self.is_built = False

    def difference(self, file: str) -> str | None:
        """Why a mutant need not be tested."""
        if not self.build(file):
            return "not compiled"
        same = all(self.digest(pathlib.Path(path)) == old for path, old in self.plain.items())
        return "same code" if same else None

    def build(self, file: str) -> bool:
        """Build modules and archive with the mutant in a file."""
        if self.is_built:
            return True
        if not self.is_made:
            # Without the mutant, which is put back then.
            with self.hosted.unmutated(file):
                self.prepare()
            self.written(file)
        try:
            for name in sorted({path.parent.name for path in self.depends.get(file, ())}):
                self.hosted.make_words("-C", f"sys/modules/{name}", LENIENT,
                                       f"MAKEOBJDIR={self.modules / name}", "all")
        except SuiteError:
            return False
        kernel = self.modules.parent
        subprocess.run(["tools/mkarchive", "--instruments", kernel / "instruments",
                        kernel / "boot.tar", self.modules], cwd=self.top, check=True)
        self.is_built = True
        return True

    def environment(self) -> dict[str, str]:
        """Of what runs in the clone, which is built by this program alone."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        env.setdefault("CCACHE_DIR", str(self.hosted.source / "obj/ccache"))
        return env | {"PVKMOD_ROUNDS": "2", "GUEST_STALE": "1"}

    def run(self, test: Test) -> str | None:
        """How a case noticed the mutant; nothing if it passed."""
        with subprocess.Popen(["tools/runtests", "--no-build", "--jobs", "1", test.name],
                              cwd=self.top, env=self.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) as process:
            try:
                status = process.wait(test.seconds * PATIENCE + GRACE)
            except subprocess.TimeoutExpired:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(ENDING)
                return "does not end"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if status not in (0, 1):
            raise SuiteError(f"tools/runtests {test.name}: status {status}")
        return "fails" if status == 1 else None


class Suites:
    """Hosted programs, and guests for what these do not notice."""

    def __init__(self, hosted: HostedSuite, guests: GuestSuite) -> None:
        self.hosted, self.guests = hosted, guests

    def files(self) -> list[str]:
        """All that some test executes."""
        return sorted({*self.hosted.files(), *self.guests.files()})

    def read(self, file: str) -> str:
        """A source without a mutant."""
        return self.hosted.read(file)

    def write(self, file: str, text: str) -> None:
        """Have another one in its place."""
        self.hosted.write(file, text)
        self.guests.written(file)

    def executed(self, file: str, line: int) -> list[Test]:
        """The cases that execute a line, those with guests last."""
        return self.hosted.executed(file, line) + self.guests.executed(file, line)

    def difference(self, file: str) -> str | None:
        """Why a mutant need not be tested."""
        suite = self.hosted if file in self.hosted.depends else self.guests
        return suite.difference(file)

    def version(self, test: Test) -> str:
        """What a test is, for what is known of it."""
        return self.guests.version(test) if is_guest(test) else self.hosted.version(test)

    def build(self, test: Test, file: str) -> bool:
        """Build what a test needs, with the mutant in a file."""
        return self.guests.build(file) if is_guest(test) else self.hosted.build(test, file)

    def run(self, test: Test) -> str | None:
        """How a test noticed the mutant; nothing if it passed."""
        return self.guests.run(test) if is_guest(test) else self.hosted.run(test)


def is_guest(test: Test) -> bool:
    """Whether a case is one of tools/runtests."""
    return "/" in test.name
