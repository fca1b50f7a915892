# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What a subcommand is, which of its rows are wanted, and where its results go."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable

from pvbench.errors import BenchError
from pvbench.table import Line, Results, Table, read, to_json
from terminal import Progress
from xen.errors import TOP


@dataclasses.dataclass(frozen=True)
class Command:
    """A subcommand that measures."""

    name: str
    doc: str
    rounds: int  # unless --rounds says something else
    operations: Callable[[argparse.Namespace], list[str]]  # what --only chooses from
    run: Callable[[argparse.Namespace, Report], None]
    options: Callable[[argparse.ArgumentParser], None] | None = None
    check: Callable[[argparse.Namespace], None] | None = None  # raises BenchError before any work
    # Why it can't measure on this machine.
    unusable: Callable[[argparse.Namespace], str | None] | None = None
    profile: bool = False  # whether it has --profile


def commit() -> str:
    """What is measured, with a + if files are not as that commit has them; "" without git."""
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", TOP, *words], capture_output=True, text=True,
                              check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    try:
        name = git("rev-parse", "--short=12", "HEAD")
        return name + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except FileNotFoundError:
        return ""


class Report:
    """Prints rows as they come, and keeps the file of results up to date."""

    def __init__(self, bench: str, only: str, path: pathlib.Path) -> None:
        self.only = only
        self.left_out = ""  # a regular expression of operations that are never chosen
        self.path = path
        command = " ".join(["tools/bench", *sys.argv[1:]])
        self.results = Results(bench, command, time.strftime("%Y-%m-%d"), commit=commit())
        self.progress = Progress()
        self.tables: list[Table] = []  # of which some may have no line yet
        self.printed: Table | None = None  # whose lines are being printed

    def chosen(self, operation: str) -> bool:
        """Whether --only has this one, and it is not left out."""
        if self.left_out and re.search(self.left_out, operation):
            return False
        return re.search(self.only, operation) is not None

    def table(self, title: str, other: str = "", ours: str = "ours") -> Table:
        """The table of this title: a new one, or the one that was had before.

        It is printed, and in the file, from its first line on.
        """
        for table in self.tables:
            if table.title == title:
                return table
        self.tables.append(Table(title, ours, other))
        return self.tables[-1]

    def resume(self) -> None:
        """Go on with the file of results, if there is one: of the same commit and command."""
        self.results.command = self.results.command.replace(" --resume", "")
        if not self.path.exists():
            return
        before = read(self.path)
        was, now = (f"`{one.command}' at {one.commit or 'no commit'}"
                    for one in (before, self.results))
        if was != now:
            raise BenchError(f"{self.path}: results of {was}, and this is {now}")
        self.results.tables = before.tables
        self.results.spent, self.results.load = before.spent, before.load
        self.tables = list(before.tables)

    def has(self, operation: str) -> bool:
        """Whether it was measured before the run that is resumed was interrupted."""
        return any(line.operation == operation for line in self.results.lines())

    def keep(self, *lines: tuple[Table, Line]) -> None:
        """Keep lines of tables, all or none of them; they are printed later."""
        for table, line in lines:
            if not table.lines:
                self.results.tables.append(table)
            table.lines.append(line)
        self.write()

    def spend(self, title: str, seconds: float) -> None:
        """Keep what a table took of CPU time, in the run that was resumed as well."""
        self.results.spent[title] = round(self.results.spent.get(title, 0) + seconds, 1)
        self.write()

    def write(self) -> None:
        """Write the file of results, with the machine's load up to now."""
        loads = [*self.results.load, round(os.getloadavg()[0], 1)]
        self.results.load = [min(loads), max(loads)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # An interruption leaves the file as it was, or as it is to be.
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(to_json(self.results))
        part.replace(self.path)

    def add(self, table: Table, line: Line) -> None:
        """Keep a line, and print it."""
        self.keep((table, line))
        self.show(table, line)

    def show(self, table: Table, line: Line) -> None:
        """Print a line that is kept."""
        self.progress.clear()
        if table is not self.printed:
            print(("\n" if self.printed else "") + table.heading())
            self.printed = table
        print(line.row(), flush=True)

    def kept(self) -> bool:
        """Whether no goal was missed."""
        return all(line.kept() is not False for line in self.results.lines())
