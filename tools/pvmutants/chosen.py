# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Mutants that someone chose, each with the case that is to notice it: tests/mutants/chosen.txt."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from pvmutants.operators import Mutant
from pvmutants.suite import SuiteError

# Seconds of a case with guests, of which nothing is known before it runs.
UNKNOWN = 120


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A bug in words, the case that notices it, and its text in a file, before and after."""

    words: str
    file: str
    case: str
    old: str
    new: str

    def mutant(self, text: str) -> Mutant:
        """It, in the file's text."""
        if text.count(self.old) != 1:
            raise SuiteError(f"{self.file} does not have this once: {self.words}")
        start = text.index(self.old)
        return Mutant(self.file, text.count("\n", 0, start) + 1, "chosen", start,
                      start + len(self.old), self.old, self.new)


def read_chosen(path: pathlib.Path) -> list[Chosen]:
    """All of a file: stanzas of words, a line with file and case, and lines that begin with - or +.
    """
    found = []
    for stanza in path.read_text().split("\n\n"):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        try:
            words, (file, case) = lines[0], lines[1].split()
            old, new = (["\n".join(line[1:] for line in lines[2:] if line[0] == sign)
                         for sign in "-+"])
            if not old or len(lines[2:]) != len([line for line in lines[2:] if line[0] in "-+"]):
                raise ValueError
        except (IndexError, ValueError) as error:
            raise SuiteError(f"{path}: no bug: {stanza.strip()}") from error
        found.append(Chosen(words, file, case, old, new))
    return found


def check_chosen(path: pathlib.Path, read: Callable[[str], str]) -> list[str]:
    """What is wrong with them: files that do not have their text."""
    wrong = []
    for chosen in read_chosen(path):
        try:
            chosen.mutant(read(chosen.file))
        except (OSError, SuiteError) as error:
            wrong.append(f"{path.name}: {error}")
    return wrong
