# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Where a mutant is built, and which tests it has: hosted programs of a clone, or any command."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

COVERAGE = "-fprofile-instr-generate -fcoverage-mapping"
# Of the CPU time of the case without a mutant, and seconds besides.  By the clock it has much more:
# a machine that is busy with something else is no mutant without end.
PATIENCE, SPIN, GRACE = 8, 2, 60
QUICK = 1
# A warning that a mutant causes is none of its bugs.
LENIENT = "KERN_WARN=-w"


class SuiteError(Exception):
    """Why mutants can't be built or tested, and what to do."""


@dataclasses.dataclass
class Test:
    """A test case and how long it took without a mutant: a hosted one of a CPU's time."""

    name: str
    seconds: float


def timed(command: list[str], seconds: float, cwd: pathlib.Path,
          env: dict[str, str] | None = None) -> tuple[int | None, float]:
    """The exit status of a command and the CPU time that it took; no status if it had to be killed,
    with all that it started."""
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        handle = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            in_time = bool(poll.poll(seconds * 1000))
        finally:
            os.close(handle)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode if in_time else None, usage.ru_utime + usage.ru_stime


def ended(command: list[str], seconds: float, cwd: pathlib.Path,
          env: dict[str, str] | None = None) -> int | None:
    """The exit status alone."""
    return timed(command, seconds, cwd, env)[0]


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

    def restore(self, file: str, text: str) -> None:
        """Have the first one back."""
        self.write(file, text)

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
    """The hosted programs of a clone of the checkout, in which nothing is changed, and what they
    execute.

    Programs are built without a mutant here.  With one, HostedWorker has the compiler see another
    text in the file's place, and links that object and the others' of here.
    """

    def __init__(self, top: pathlib.Path, home: pathlib.Path, show: Callable[[str], None],
                 files: list[str] | None = None, jobs: int = 2) -> None:
        self.source, self.home, self.top, self.show = top, home, home / "tree", show
        self.jobs = jobs
        self.out = self.top / "obj/tests/hosted"
        self.head = self.git("rev-parse", "HEAD", cwd=top)
        self.coverage_file = home / "coverage.json"
        self.clone(self.top)
        self.programs = self.wanted(files)
        self.make("the hosted tests are built")
        self.depends = self.read_depends()
        # What is known of a program stays true as long as its sources are the same.
        self.digests = {program: self.digest_of(objects)
                        for program, objects in self.programs.items()}
        self.flags = shlex.split(self.make_words("-C", "tests/hosted", "-V", "${HOSTED_CFLAGS}"))
        self.commands = self.read_commands()
        self.durations: dict[str, float] = {}
        self.lines: dict[str, dict[str, list[str]]] = {}  # cases by file and line
        for known in self.read_coverage().values():
            self.durations |= known["durations"]
            for file, lines in known["lines"].items():
                for number, names in lines.items():
                    self.lines.setdefault(file, {}).setdefault(number, []).extend(names)
        self.plain: dict[str, str] = {}

    @staticmethod
    def git(*words: str, cwd: pathlib.Path) -> str:
        """What git prints."""
        done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SuiteError(f"git {words[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def clone(self, to: pathlib.Path) -> None:
        """HEAD of the checkout, in a clone of its own, with what the checkout has downloaded."""
        done = subprocess.run([self.source / "tools/bootstrap"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise SuiteError((done.stdout + done.stderr).strip())
        if not (to / ".git").exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            self.git("clone", "-q", "--no-checkout", str(self.source), str(to), cwd=self.source)
        self.git("fetch", "-q", str(self.source), "HEAD", cwd=to)
        self.git("checkout", "-q", "-f", "--detach", self.head, cwd=to)
        for folder in (to / "obj", to / "coverage"):
            folder.mkdir(exist_ok=True)
            for name in ("sysroot", "venv"):
                if not (folder / name).exists():
                    (folder / name).symlink_to(self.source / "obj" / name)

    def relative(self, path: str) -> str:
        """A path of the compiler's, from the top of the tree."""
        return os.path.relpath(os.path.realpath(self.top / "tests/hosted" / path), self.top)

    def make_words(self, *words: str, cwd: pathlib.Path | None = None) -> str:
        """What bmake prints."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        cwd = cwd or self.top
        done = subprocess.run(["bmake", "-m", str(cwd / "share/mk"), *words], cwd=cwd,
                              env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SuiteError(f"bmake {' '.join(words)}: {(done.stdout + done.stderr)[-800:]}")
        return done.stdout

    def wanted(self, files: list[str] | None) -> dict[str, set[str]]:
        """The objects of each program that is compiled from one of these files; of a header that is
        not known before all of them are built."""
        lines = self.make_words("-C", "tests/hosted", "objs").splitlines()
        programs = {words[0]: set(words[1:]) for words in map(str.split, lines)
                    if words[0].endswith("_test")}
        if not files or any(file.endswith(".h") for file in files):
            return programs
        stems = {pathlib.Path(file).stem for file in files}
        # A test may have the driver in it.
        for path in (self.top / "tests/hosted").glob("*.c"):
            text = path.read_text()
            if any(f"#include <{file.removeprefix('sys/')}>" in text for file in files):
                stems |= {path.stem, f"t_{path.stem}"}
        return {program: objects for program, objects in programs.items()
                if any(name.split(".")[0] in stems for name in objects)}

    def make(self, what: str, *words: str) -> None:
        """Build the programs, without a mutant."""
        if self.programs:
            self.show(what)
            self.make_words(f"-j{self.jobs}", "hosted", f"HOSTED={' '.join(self.programs)}", *words)

    def read_depends(self) -> dict[str, set[str]]:
        """The objects that are compiled from each source or header of the suite."""
        depends: dict[str, set[str]] = {}
        for name in sorted({name for objects in self.programs.values() for name in objects}):
            path = self.out / f"{name}.d"
            words = path.read_text().replace("\\\n", " ").partition(":")[2].split() \
                if path.exists() else []
            for file in {self.relative(word) for word in words}:
                if file.startswith("sys/dev/"):
                    depends.setdefault(file, set()).add(name)
        return depends

    def read_commands(self) -> dict[str, list[list[str]]]:
        """How each object of the suite's and each program is made: what bmake would do if it were
        not there."""
        names = {name for objects in self.depends.values() for name in objects} | {*self.programs}
        paths = [self.out / name for name in sorted(names)]
        for path in paths:
            path.rename(f"{path}.away")
        try:
            text = self.make_words("-C", "tests/hosted", "-n", f"HOSTED={' '.join(self.programs)}",
                                   "all") if paths else ""
        finally:
            for path in paths:
                pathlib.Path(f"{path}.away").rename(path)
        commands: dict[str, list[list[str]]] = {}
        for line in text.splitlines():
            words = shlex.split(line)
            if "clang-19" in words:
                target = pathlib.Path(words[words.index("-o") + 1])
                words = words[words.index("clang-19"):]
            elif "llvm-objcopy-19" in words:
                target = pathlib.Path(words[-1])
                words = words[words.index("llvm-objcopy-19"):]
            else:
                continue
            commands.setdefault(target.name.removesuffix(".tmp"), []).append(words)
        return commands

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

    # Coverage.

    def read_coverage(self) -> dict[str, dict[str, Any]]:
        """How long each program's cases take and which of them execute each line, as found before,
        or by running now those programs that have changed."""
        known = json.loads(self.coverage_file.read_text()) if self.coverage_file.exists() else {}
        wanted = [program for program in sorted(self.programs)
                  if known.get(program, {}).get("digest") != self.digests[program]]
        if wanted:
            self.show("the hosted tests are built for coverage")
            covered = self.top / "coverage"
            self.make_words(f"-j{self.jobs}", "hosted", f"OBJTOP={covered}",
                            f"HOSTED_MORE={COVERAGE}", f"HOSTED={' '.join(wanted)}")
            with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
                for program in wanted:
                    path = covered / "tests/hosted" / program
                    found = list(pool.map(functools.partial(self.cover, path), self.cases(path)))
                    known[program] = self.merged(self.digests[program], found)
                    self.coverage_file.write_text(json.dumps(known))
        return {program: known[program] for program in self.programs}

    @staticmethod
    def merged(version: str, found: list[tuple[Test, set[tuple[str, str]]]]) -> dict[str, Any]:
        """What is kept of a program."""
        lines: dict[str, dict[str, list[str]]] = {}
        for test, places in found:
            for file, number in sorted(places):
                lines.setdefault(file, {}).setdefault(number, []).append(test.name)
        return {"digest": version, "lines": lines,
                "durations": {test.name: test.seconds for test, _ in found}}

    @staticmethod
    def cases(program: pathlib.Path) -> list[str]:
        """The test cases of a program."""
        listed = subprocess.run([program, "-l"], capture_output=True, text=True, check=False,
                                env=os.environ | {"LLVM_PROFILE_FILE": os.devnull}).stdout
        return re.findall(r"^ident: (\S+)$", listed, re.MULTILINE)

    def cover(self, program: pathlib.Path, case: str) -> tuple[Test, set[tuple[str, str]]]:
        """Run a case: how much of a CPU's time it takes, and the lines that it executes."""
        self.show(f"what {program.name}:{case} executes")
        name = f"{program.name}:{case}"
        with tempfile.TemporaryDirectory() as folder:
            raw, data = pathlib.Path(folder, "raw"), pathlib.Path(folder, "data")
            env = environment() | {"LLVM_PROFILE_FILE": str(raw)}
            status, seconds = timed([str(program), "-r", "/dev/null", case], 600,
                                    pathlib.Path(folder), env)
            if status != 0:
                raise SuiteError(f"{name} fails without a mutant")
            # ThreadSanitizer has no profile.
            if program.name == "pvq_race_test" or not raw.exists():
                return Test(name, seconds), set()
            subprocess.run(["llvm-profdata-19", "merge", "-o", data, raw], check=True)
            lcov = subprocess.run(
                ["llvm-cov-19", "export", "--format=lcov", f"--instr-profile={data}", program],
                capture_output=True, text=True, check=True).stdout
        file, places = "", set()
        for line in lcov.splitlines():
            key, _, value = line.partition(":")
            if key == "SF":
                file = self.relative(value)
            elif key == "DA" and file.startswith("sys/dev/") and not value.endswith(",0"):
                places.add((file, value.split(",")[0]))
        return Test(name, seconds), places

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
            test.seconds > QUICK, -counts[test.name.partition(":")[0]],
            test.name.partition(":")[0], test.seconds))


class HostedWorker:
    """A folder with what one mutant is compiled to, and the programs that are linked with it."""

    def __init__(self, suite: HostedSuite, number: int) -> None:
        self.suite, self.folder = suite, suite.home / f"work{number}"
        self.file = ""
        self.built: set[str] = set()

    def write(self, file: str, text: str) -> None:
        """Have another text in the place of a file."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.file = file
        self.built.clear()
        mutant = self.folder / pathlib.Path(file).name
        mutant.write_text(text)
        (self.folder / "overlay.json").write_text(json.dumps({
            "version": 0, "case-sensitive": "true", "roots": [{
                "type": "file", "name": os.path.realpath(self.suite.top / file),
                "external-contents": str(mutant)}]}))

    @property
    def overlay(self) -> list[str]:
        """For the compiler."""
        return ["-ivfsoverlay", str(self.folder / "overlay.json"), "-w", "-g0"]

    def code(self, source: str, more: list[str]) -> str | None:
        """The object code of a source, without what depends on the number of a line, in each way
        that programs have it preprocessed; nothing if the compiler refuses it."""
        ways = {tuple(word for word in words if word.startswith(("-D", "-U", "-I")))
                for name in self.suite.depends[source]
                for words in self.suite.commands[name] if "-c" in words}
        found = hashlib.sha256()
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "a.o")
            for way in sorted(ways):
                words = ["clang-19", *self.suite.flags, *way, "-fno-sanitize=all", "-O2", "-g0",
                         "-w", *more, "-c", str(self.suite.top / source), "-o", str(target)]
                if ended(words, 600, self.suite.top / "tests/hosted") != 0:
                    return None
                found.update(target.read_bytes())
        return found.hexdigest()

    def sources(self) -> list[str]:
        """The sources whose code the file is part of: itself, or those that include it."""
        if self.file.endswith(".c"):
            return [self.file]
        objects = self.suite.depends[self.file]
        return [source for source in self.suite.files() if source.endswith(".c")
                and self.suite.depends[source] & objects]

    def difference(self, _file: str) -> str | None:
        """Why the mutant need not be tested."""
        for source in self.sources():
            if source not in self.suite.plain:
                plain = self.code(source, [])
                if plain is None:
                    raise SuiteError(f"{source} is not compiled without a mutant")
                self.suite.plain[source] = plain
            code = self.code(source, self.overlay)
            if code is None:
                return "not compiled"
            if code != self.suite.plain[source]:
                return None
        return "same code"

    def build(self, test: Test, file: str) -> bool:
        """Build the program of a test with the mutant in it."""
        program = test.name.partition(":")[0]
        if program in self.built:
            return True
        changed = self.suite.programs[program] & self.suite.depends[file]
        moved = {str(self.suite.out / f"{name}{end}"): str(self.folder / f"{name}{end}")
                 for name in changed for end in ("", ".tmp")}
        moved[str(self.suite.out / program)] = str(self.folder / program)
        for name in [*sorted(changed), program]:
            if name in self.built:
                continue
            for words in self.suite.commands[name]:
                command = [moved.get(word, word) for word in without_depends(words)]
                if "-c" in words:
                    command += self.overlay
                elif name == program:
                    command.append("-fuse-ld=lld-19")
                if ended(command, 600, self.suite.top / "tests/hosted") != 0:
                    return False
            self.built.add(name)
        return True

    def run(self, test: Test) -> str | None:
        """How a test noticed the mutant; nothing if it passed."""
        program, _, case = test.name.partition(":")
        limit = math.ceil(test.seconds * PATIENCE) + SPIN
        words = ["/bin/sh", "-c", f'ulimit -t {limit}; exec "$@"', "sh",
                 str(self.folder / program), "-r", "/dev/null", case]
        with tempfile.TemporaryDirectory() as folder:
            status = ended(words, limit * PATIENCE + GRACE, pathlib.Path(folder), environment())
        if status is None or status in (-signal.SIGXCPU, -signal.SIGKILL):
            return "does not end"
        return f"status {status}" if status else None


def environment() -> dict[str, str]:
    """As in `make test`."""
    return os.environ | {"PVKMOD_ROUNDS": "2"}


def without_depends(words: list[str]) -> list[str]:
    """A compiler's command that does not write down what it read."""
    kept, skip = [], False
    for word in words:
        if skip or word in ("-MF", "-MT"):
            skip = not skip
        elif word != "-MD":
            kept.append(word)
    return kept
