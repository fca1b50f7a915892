# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What each test case executed, in a file each, and where its lines are in a later commit."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import pathlib
import re
import subprocess

from pvcoverage.counters import Lines


@dataclasses.dataclass
class Run:
    """A case that was run: at which commit, how long it took, and what it executed.

    Of a branch the first bit is set if its condition was true once, the second if it was false.
    """

    name: str
    commit: str
    seconds: float
    lines: dict[str, list[int]]
    branches: dict[str, dict[str, int]]


def run_of(name: str, commit: str, seconds: float, found: Lines) -> Run:
    """What is kept of it."""
    lines = {file: sorted(line for line, count in counts.items() if count)
             for file, counts in found.lines.items()}
    branches = {file: {place: (counts[0] > 0) + 2 * (counts[1] > 0)
                       for place, counts in places.items() if any(counts)}
                for file, places in found.branches.items()}
    return Run(name, commit, seconds, {file: each for file, each in lines.items() if each},
               {file: each for file, each in branches.items() if each})


def path_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The file of a case."""
    return folder / f"{name.replace('/', '+')}.json"


def write_run(folder: pathlib.Path, run: Run) -> None:
    """Keep it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, run.name)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(dataclasses.asdict(run)))
    new.replace(path)


def read_runs(folder: pathlib.Path) -> list[Run]:
    """All that are known."""
    return [Run(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


class Translation:
    """Lines of one commit's files, in those of another one."""

    def __init__(self, top: pathlib.Path, to: str) -> None:
        self.top, self.to = top, to
        self.text = functools.cache(self._text)
        self.lines = functools.cache(self._lines)

    def _text(self, commit: str, file: str) -> str:
        done = subprocess.run(["git", "show", f"{commit}:{file}"], cwd=self.top,
                              capture_output=True, text=True, check=False)
        return done.stdout

    def _lines(self, commit: str, file: str) -> dict[int, int] | None:
        """The number that each line has now; nothing if all are the same."""
        if commit == self.to:
            return None
        old, new = (self.text(each, file) for each in (commit, self.to))
        if old == new:
            return None
        matcher = difflib.SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
        return {a + i + 1: b + i + 1 for a, b, size in matcher.get_matching_blocks()
                for i in range(size)}

    def line(self, commit: str, file: str, line: int) -> int | None:
        """A line's number; nothing if it is no longer there."""
        lines = self.lines(commit, file)
        return line if lines is None else lines.get(line)

    def place(self, commit: str, file: str, place: str) -> str | None:
        """The same of a branch."""
        if self.lines(commit, file) is None:
            return place
        first, column, last, to_column = map(int, re.findall(r"\d+", place))
        begins, ends = self.line(commit, file, first), self.line(commit, file, last)
        if begins is None or ends is None:
            return None
        return f"{begins}.{column}-{ends}.{to_column}"
