# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Where a mutant is built, and which tests it has: hosted programs of a clone, or any command."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

COVERAGE = "-fprofile-instr-generate -fcoverage-mapping"
# Of the unmutated test's duration, and seconds besides: a machine that is busy with something else.
PATIENCE, GRACE = 8, 30
QUICK = 4
# A warning that a mutant causes is none of its bugs; no debug information is none of its code.
LENIENT = "KERN_WARN=-w"


class SuiteError(Exception):
    """Why mutants can't be built or tested, and what to do."""


@dataclasses.dataclass
class Test:
    """A test case and how long it took without a mutant."""

    name: str
    seconds: float


def ended(command: list[str], seconds: float, cwd: pathlib.Path,
          env: dict[str, str] | None = None) -> int | None:
    """The exit status of a command; nothing if it had to be killed, with all that it started."""
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class CommandSuite:
    """A folder, a command that builds it, and one that tests it: what tests of this tool have."""

    def __init__(self, top: pathlib.Path, build: str, test: str, seconds: float) -> None:
        self.top, self.build_command, self.test_command = top, shlex.split(build), shlex.split(test)
        self.limit = seconds
        self.objects = {path: self.contents(path) for path in self.outputs()}
        if self.run(Test("test", seconds)) is not None:
            raise SuiteError(f"{test} fails without a mutant")

    def outputs(self) -> list[pathlib.Path]:
        """What the command built."""
        if ended(self.build_command, self.limit, self.top) != 0:
            raise SuiteError(f"{shlex.join(self.build_command)} fails without a mutant")
        return sorted(self.top.glob("*.o"))

    @staticmethod
    def contents(path: pathlib.Path) -> bytes:
        """What is compared: the file."""
        return path.read_bytes()

    def files(self) -> list[str]:
        """All sources."""
        return sorted(path.name for path in self.top.glob("*.c"))

    def read(self, file: str) -> str:
        """A source without a mutant."""
        return (self.top / file).read_text()

    def write(self, file: str, text: str) -> None:
        """Have another one in its place."""
        (self.top / file).write_text(text)

    def executed(self, _file: str, _line: int) -> list[Test]:
        """All is executed, as far as is known."""
        return [Test("test", self.limit)]

    def difference(self, _file: str) -> str | None:
        """Why a mutant need not be tested."""
        if ended(self.build_command, self.limit, self.top) != 0:
            return "not compiled"
        same = all(self.contents(path) == old for path, old in self.objects.items())
        return "same code" if same else None

    def version(self, _test: Test) -> str:
        """The command is always the same."""
        return ""

    def build(self, _test: Test, _file: str) -> bool:
        """difference() has built it."""
        return True

    def run(self, test: Test) -> str | None:
        """How a test noticed the mutant; nothing if it passed."""
        status = ended(self.test_command, test.seconds, self.top)
        return "does not end" if status is None else f"status {status}" if status else None


class HostedSuite:
    """The hosted programs of a clone of the checkout."""

    def __init__(self, top: pathlib.Path, home: pathlib.Path, show: Callable[[str], None]) -> None:
        self.source, self.top, self.show = top, home / "tree", show
        self.out = self.top / "obj/tests/hosted"
        self.head = self.git("rev-parse", "HEAD", cwd=top)
        self.coverage_file = home / "coverage.json"
        self.clone()
        self.make()
        self.depends = self.read_depends()
        self.programs = {path.stem: set(path.read_text().split())
                         for path in self.out.glob("*.objs") if path.stem.endswith("_test")}
        # What is known of a program stays true as long as its sources are the same.
        self.digests = {program: self.digest_of(objects)
                        for program, objects in self.programs.items()}
        self.flags = shlex.split(self.make_words("-C", "tests/hosted", "-V", "${HOSTED_CFLAGS}"))
        self.durations: dict[str, float] = {}
        self.lines: dict[str, dict[str, list[str]]] = {}  # cases by file and line
        for known in self.read_coverage().values():
            self.durations |= known["durations"]
            for file, lines in known["lines"].items():
                for number, names in lines.items():
                    self.lines.setdefault(file, {}).setdefault(number, []).extend(names)
        self.plain: dict[str, str] = {}
        self.built: set[str] = set()

    @staticmethod
    def git(*words: str, cwd: pathlib.Path) -> str:
        """What git prints."""
        done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SuiteError(f"git {words[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def clone(self) -> None:
        """HEAD of the checkout, in a clone of its own, with what the checkout has downloaded."""
        if not (self.top / ".git").exists():
            self.top.parent.mkdir(parents=True, exist_ok=True)
            self.git("clone", "-q", "--no-checkout", str(self.source), str(self.top),
                     cwd=self.source)
        self.git("fetch", "-q", str(self.source), "HEAD", cwd=self.top)
        self.git("checkout", "-q", "-f", "--detach", self.head, cwd=self.top)
        for folder in (self.top / "obj", self.top / "coverage"):
            folder.mkdir(exist_ok=True)
            for name in ("sysroot", "venv"):
                if not (folder / name).exists():
                    (folder / name).symlink_to(self.source / "obj" / name)

    def relative(self, path: str) -> str:
        """A path of the compiler's, from the top of the tree."""
        return os.path.relpath(os.path.realpath(self.top / "tests/hosted" / path), self.top)

    def make_words(self, *words: str) -> str:
        """What bmake prints."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        env.setdefault("CCACHE_DIR", str(self.source / "obj/ccache"))
        done = subprocess.run(["bmake", "-m", str(self.top / "share/mk"), *words], cwd=self.top,
                              env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SuiteError(f"bmake {' '.join(words)}: {(done.stdout + done.stderr)[-800:]}")
        return done.stdout

    def make(self) -> None:
        """Build all programs, without a mutant."""
        self.show("the hosted tests are built")
        self.make_words("hosted", LENIENT)

    def read_depends(self) -> dict[str, set[str]]:
        """The objects that are compiled from each source or header of the suite."""
        depends: dict[str, set[str]] = {}
        for path in self.out.glob("*.o.d"):
            target, _, words = path.read_text().replace("\\\n", " ").partition(":")
            for word in words.split():
                file = self.relative(word)
                if file.startswith("sys/dev/"):
                    depends.setdefault(file, set()).add(target.rsplit("/", 1)[-1])
        return depends

    def digest_of(self, objects: set[str]) -> str:
        """Of the sources and headers of the tree that a program is compiled from."""
        files: set[str] = set()
        for path in (self.out / f"{name}.d" for name in objects):
            if path.exists():
                words = path.read_text().replace("\\\n", " ").partition(":")[2].split()
                files |= {self.relative(word) for word in words}
        found = hashlib.sha256()
        for file in sorted(file for file in files if file.startswith(("sys/", "tests/"))):
            found.update((self.top / file).read_bytes())
        return found.hexdigest()[:12]

    def version(self, test: Test) -> str:
        """What a test is, for what is known of it."""
        return self.digests[test.name.partition(":")[0]]

    def files(self) -> list[str]:
        """Sources and headers of the suite that hosted tests are compiled from."""
        wanted = re.compile(r"sys/dev/(pv|virtio|xen)/.*\.[ch]$")
        return sorted(file for file in self.depends if wanted.match(file) and file in self.lines)

    def read(self, file: str) -> str:
        """A source without a mutant."""
        return self.git("show", f"{self.head}:{file}", cwd=self.top) + "\n"

    def write(self, file: str, text: str) -> None:
        """Have another one in its place."""
        (self.top / file).write_text(text)
        # bmake compares whole seconds.
        for name in self.depends.get(file, ()):
            (self.out / name).unlink(missing_ok=True)
        self.built.clear()

    # Coverage.

    def read_coverage(self) -> dict[str, dict[str, Any]]:
        """How long each program's cases take and which of them execute each line, as found before,
        or by running now those programs that have changed."""
        known = json.loads(self.coverage_file.read_text()) if self.coverage_file.exists() else {}
        wanted = [program for program in sorted(self.programs)
                  if known.get(program, {}).get("digest") != self.digests[program]]
        known = {program: found for program, found in known.items() if program in self.programs}
        if not wanted:
            return known
        self.show("the hosted tests are built for coverage")
        covered = self.top / "coverage"
        self.make_words("hosted", LENIENT, f"OBJTOP={covered}", f"HOSTED_MORE={COVERAGE}",
                        f"HOSTED={' '.join(wanted)}")
        for program in wanted:
            found = {"digest": self.digests[program], "durations": {}, "lines": {}}
            for case in self.cases(program):
                self.cover(covered / "tests/hosted" / program, case, found)
            known[program] = found
            self.coverage_file.write_text(json.dumps(known))
        return known

    def cases(self, program: str) -> list[str]:
        """The test cases of a program."""
        listed = subprocess.run([self.out / program, "-l"], capture_output=True, text=True,
                                check=False).stdout
        return re.findall(r"^ident: (\S+)$", listed, re.MULTILINE)

    def cover(self, program: pathlib.Path, case: str, found: dict[str, Any]) -> None:
        """Run a case, and note the lines that it executes and how long it takes without that."""
        self.show(f"what {program.name}:{case} executes")
        test = Test(f"{program.name}:{case}", 600)
        began = os.times().elapsed
        if self.run(test) is not None:
            raise SuiteError(f"{test.name} fails without a mutant")
        found["durations"][test.name] = os.times().elapsed - began
        if program.name == "pvq_race_test":
            return
        with tempfile.TemporaryDirectory() as folder:
            raw, data = pathlib.Path(folder, "raw"), pathlib.Path(folder, "data")
            env = self.environment() | {"LLVM_PROFILE_FILE": str(raw)}
            ended([str(program), "-r", "/dev/null", case], 600, pathlib.Path(folder), env)
            if not raw.exists():
                return
            subprocess.run(["llvm-profdata-19", "merge", "-o", data, raw], check=True)
            lcov = subprocess.run(
                ["llvm-cov-19", "export", "--format=lcov", f"--instr-profile={data}", program],
                capture_output=True, text=True, check=True).stdout
        file = ""
        for line in lcov.splitlines():
            key, _, value = line.partition(":")
            if key == "SF":
                file = self.relative(value)
            elif key == "DA" and file.startswith("sys/dev/") and not value.endswith(",0"):
                number = value.split(",")[0]
                found["lines"].setdefault(file, {}).setdefault(number, []).append(test.name)

    @staticmethod
    def environment() -> dict[str, str]:
        """As in `make test`."""
        return os.environ | {"PVKMOD_ROUNDS": "2"}

    def executed(self, file: str, line: int) -> list[Test]:
        """The cases that execute a line; those under ThreadSanitizer execute what the same cases
        without it do.  Quick ones come first, and of these all of the program that has most: each
        is to be built."""
        names = set(self.lines.get(file, {}).get(str(line), []))
        for name in list(names):
            program, _, case = name.partition(":")
            if program == "pvq_wake_test":
                kind = case.partition("__")[0]
                names |= {other for other in self.durations
                          if other.startswith(f"pvq_race_test:{kind}__")}
        counts = collections.Counter(name.partition(":")[0] for name in names)
        return sorted((Test(name, self.durations[name]) for name in names), key=lambda test: (
            test.seconds > QUICK, -counts[test.name.partition(":")[0]], test.seconds))

    # Building.

    def code(self, source: str) -> str | None:
        """The object code of a source, without what depends on the number of a line; nothing if the
        compiler refuses it."""
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "a.o")
            words = ["clang-19", *self.flags, "-fno-sanitize=all", "-O2", "-g0", "-w", "-c",
                     str(self.top / source), "-o", str(target)]
            if subprocess.run(words, cwd=self.top / "tests/hosted", capture_output=True,
                              check=False).returncode != 0:
                return None
            return hashlib.sha256(target.read_bytes()).hexdigest()

    def sources_of(self, file: str) -> list[str]:
        """The sources whose code a file is part of: itself, or those that include it."""
        if file.endswith(".c"):
            return [file]
        objects = self.depends[file]
        return [source for source in self.files() if source.endswith(".c")
                and self.depends[source] & objects]

    def difference(self, file: str) -> str | None:
        """Why a mutant need not be tested."""
        different = False
        for source in self.sources_of(file):
            if source not in self.plain:
                with self.unmutated(file):
                    code = self.code(source)
                if code is None:
                    raise SuiteError(f"{source} is not compiled without a mutant")
                self.plain[source] = code
            code = self.code(source)
            if code is None:
                return "not compiled"
            different |= code != self.plain[source]
        return None if different else "same code"

    @contextlib.contextmanager
    def unmutated(self, file: str) -> Iterator[None]:
        """The file as it was, for a moment."""
        path = self.top / file
        text = path.read_text()
        path.write_text(self.read(file))
        try:
            yield
        finally:
            path.write_text(text)

    def build(self, test: Test, _file: str) -> bool:
        """Build the program of a test with the mutant in it."""
        program = test.name.partition(":")[0]
        if program in self.built:
            return True
        (self.out / program).unlink(missing_ok=True)
        try:
            self.make_words("-C", "tests/hosted", LENIENT, f"{self.out}/{program}")
        except SuiteError:
            return False
        self.built.add(program)
        return True

    def run(self, test: Test) -> str | None:
        """How a test noticed the mutant; nothing if it passed."""
        program, _, case = test.name.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            status = ended([str(self.out / program), "-r", "/dev/null", case],
                           test.seconds * PATIENCE + GRACE, pathlib.Path(folder),
                           self.environment())
        return "does not end" if status is None else f"status {status}" if status else None
