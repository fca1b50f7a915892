# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What a subcommand is, which of its rows are wanted, and where its results go."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import re
import sys
import time
from collections.abc import Callable

from pvbench.table import Line, Results, Table, to_json
from terminal import Progress


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
    unusable: Callable[[], str | None] | None = None  # why it can't measure on this machine
    profile: bool = False  # whether it has --profile


class Report:
    """Prints rows as they come, and keeps the file of results up to date."""

    def __init__(self, bench: str, only: str, path: pathlib.Path) -> None:
        self.only = only
        self.path = path
        command = " ".join(["tools/bench", *sys.argv[1:]])
        self.results = Results(bench, command, time.strftime("%Y-%m-%d"))
        self.progress = Progress()
        self.tables: list[Table] = []  # of which some may have no line yet
        self.printed: Table | None = None  # whose lines are being printed

    def chosen(self, operation: str) -> bool:
        """Whether --only has this one."""
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

    def add(self, table: Table, line: Line) -> None:
        """A line of it."""
        if not table.lines:
            self.results.tables.append(table)
        table.lines.append(line)
        self.progress.clear()
        if table is not self.printed:
            print(("\n" if self.printed else "") + table.heading())
            self.printed = table
        print(line.row(), flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(to_json(self.results))

    def kept(self) -> bool:
        """Whether no goal was missed."""
        return all(line.kept() is not False for line in self.results.lines())
