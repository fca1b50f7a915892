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
import tempfile
from collections.abc import Callable, Iterable
from typing import IO

from pvcoverage.record import Translation, read_runs
from pvmutants.operators import Mutant
from pvmutants.suite import LENIENT, HostedSuite, HostedWorker, SuiteError, Test

# Of the unmutated case's duration, and seconds besides; its guests have time-outs of their own.
PATIENCE, GRACE = 4, 60
# How long tools/runtests has to end what it started.
ENDING = 45
OURS = re.compile(r"sys/dev/(pv|virtio|xen)/.*\.[ch]$")


class GuestSuite:
    """Which cases with guests execute a line."""

    def __init__(self, hosted: HostedSuite, cases: pathlib.Path, limit: int) -> None:
        self.hosted, self.limit = hosted, limit
        self.programs: set[str] = set()
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

    @functools.cache  # noqa: B019 - there is one
    def digest_of(self, program: str) -> str:
        """Of a program and the drivers."""
        words = self.hosted.git("rev-parse", f"{self.hosted.head}:sys/dev",
                                f"{self.hosted.head}:tests/{program}", cwd=self.hosted.source)
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    def version(self, test: Test) -> str:
        """What a test is, for what is known of it."""
        return self.digest_of(test.name.partition(":")[0])

    def plan(self, mutants: Iterable[Mutant]) -> None:
        """What is to be built: the programs of these mutants' cases."""
        self.programs = {test.name.partition(":")[0] for mutant in mutants
                         for test in self.executed(mutant.file, mutant.line)}


class GuestWorker:
    """A clone whose modules have one mutant at a time."""

    def __init__(self, suite: GuestSuite, number: int, show: Callable[[str], None]) -> None:
        self.suite, self.hosted, self.show = suite, suite.hosted, show
        self.top = self.hosted.home / f"guests{number}"
        self.modules = self.top / "obj/GENERIC/modules"
        self.is_made = self.is_built = False
        self.text: tuple[str, str] = ("", "")
        self.plain: dict[str, str] = {}
        self.depends: dict[str, set[pathlib.Path]] = {}

    def prepare(self) -> None:
        """Build everything without a mutant."""
        if self.is_made:
            return
        self.show("the guests' kernel and modules are built")
        self.hosted.clone(self.top)
        done = subprocess.run(["tools/runtests", "--list", *sorted(self.suite.programs)],
                              cwd=self.top, env=self.environment(), capture_output=True, text=True,
                              check=False)
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

    def write(self, file: str, text: str) -> None:
        """What is to be in a file's place when a guest is to run."""
        self.text = (file, text)
        self.is_built = False

    def put(self, file: str, text: str) -> None:
        """Have it there; bmake compares whole seconds."""
        (self.top / file).write_text(text)
        for path in self.depends.get(file, ()):
            path.unlink(missing_ok=True)

    def restore(self, file: str, text: str) -> None:
        """Have the first one back, if it was another one."""
        if self.is_made and (self.top / file).read_text() != text:
            self.put(file, text)
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
        self.prepare()
        # What the mutant before has left there as well, if it was of another file.
        names = self.stale | {path.parent.name for path in self.depends.get(file, ())}
        self.put(*self.text)
        try:
            for name in sorted(names):
                self.hosted.make_words("-C", f"sys/modules/{name}", LENIENT,
                                       f"MAKEOBJDIR={self.modules / name}", "all", cwd=self.top)
        except SuiteError:
            return False
        kernel = self.modules.parent
        subprocess.run(["tools/mkarchive", "--instruments", kernel / "instruments",
                        kernel / "boot.tar", self.modules], cwd=self.top, check=True)
        self.is_built = True
        return True

    @property
    def stale(self) -> set[str]:
        """Modules that are not there, or lack an object."""
        return {path.parent.name for paths in self.depends.values() for path in paths
                if not path.exists()}

    @staticmethod
    def environment() -> dict[str, str]:
        """Of what runs in the clone, which is built by this program alone."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        return env | {"PVKMOD_ROUNDS": "2", "GUEST_STALE": "1"}

    def run(self, test: Test) -> str | None:
        """How a case noticed the mutant; nothing if it passed."""
        with tempfile.TemporaryFile("w+") as output:
            status = self.status(test, output)
            output.seek(0)
            said = output.read()
        if status is None:
            return "does not end"
        skipped = re.search(r" -> +skipped: .*", said)
        if status not in (0, 1) or skipped:
            raise SuiteError(f"tools/runtests {test.name}: "
                             f"{skipped[0].strip() if skipped else f'status {status}'}")
        return "fails" if status == 1 else None

    def status(self, test: Test, output: IO[str]) -> int | None:
        """That of tools/runtests; nothing if it had to be ended."""
        with subprocess.Popen(["tools/runtests", "--no-build", "--jobs", "1", test.name],
                              cwd=self.top, env=self.environment(), stdin=subprocess.DEVNULL,
                              stdout=output, stderr=subprocess.DEVNULL,
                              start_new_session=True) as process:
            try:
                return process.wait(test.seconds * PATIENCE + GRACE)
            except subprocess.TimeoutExpired:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(ENDING)
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


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

    def executed(self, file: str, line: int) -> list[Test]:
        """The cases that execute a line, those with guests last."""
        return self.hosted.executed(file, line) + self.guests.executed(file, line)

    def version(self, test: Test) -> str:
        """What a test is, for what is known of it."""
        return self.guests.version(test) if is_guest(test) else self.hosted.version(test)


class Worker:
    """Where one mutant at a time is built and tested."""

    def __init__(self, suites: Suites, number: int, show: Callable[[str], None]) -> None:
        self.suites = suites
        self.hosted = HostedWorker(suites.hosted, number)
        self.guests = GuestWorker(suites.guests, number, show)

    def write(self, file: str, text: str) -> None:
        """Have another text in the place of a file's."""
        self.hosted.write(file, text)
        self.guests.write(file, text)

    def restore(self, file: str, text: str) -> None:
        """Have the first one back."""
        self.guests.restore(file, text)

    def difference(self, file: str) -> str | None:
        """Why a mutant need not be tested."""
        if file in self.suites.hosted.depends:
            return self.hosted.difference(file)
        return self.guests.difference(file)

    def build(self, test: Test, file: str) -> bool:
        """Build what a test needs, with the mutant in a file."""
        return self.guests.build(file) if is_guest(test) else self.hosted.build(test, file)

    def run(self, test: Test) -> str | None:
        """How a test noticed the mutant; nothing if it passed."""
        return self.guests.run(test) if is_guest(test) else self.hosted.run(test)


def is_guest(test: Test) -> bool:
    """Whether a case is one of tools/runtests."""
    return "/" in test.name
