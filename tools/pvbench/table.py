# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The one form of table, and the same figures as JSON."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, Literal

from pvbench.errors import BenchError
from pvbench.figures import Figures, Ratio, decimal

FORMAT = 1
COLUMNS = 8
CPU = ", CPU time"  # behind the name of a row's second line


@dataclasses.dataclass(frozen=True)
class Goal:
    """What a line has to keep: a bound of the ratio, or of the median of ours."""

    bound: float
    of: Literal["ratio", "ours"] = "ratio"
    at_least: bool = False
    aim: float | None = None  # what is wanted in the end, without being a failure yet

    def reached(self, value: float, bound: float) -> bool:
        """Whether a value is on the right side of a bound."""
        return value >= bound if self.at_least else value <= bound

    def shown(self) -> str:
        """As the table has it."""
        way = "at least" if self.at_least else "at most"
        return f"{way} {self.bound:g}" + (f", aim {self.aim:g}" if self.aim is not None else "")


@dataclasses.dataclass(frozen=True)
class Line:
    """What an operation takes, ours and perhaps the other's."""

    operation: str
    unit: str
    ours: Figures
    other: Figures | None = None
    ratio: Ratio | None = None
    goal: Goal | None = None
    besides: dict[str, tuple[float, float | None]] = dataclasses.field(default_factory=dict)

    def more_is_better(self) -> bool:
        """Whether it is a rate, or a part of one that is left."""
        if self.goal is not None:
            return self.goal.at_least
        return "/s" in self.unit or " a second" in self.unit or self.unit == "% of none"

    def kept(self) -> bool | None:
        """Whether the goal is kept; of an interval the better end counts.  None without a goal."""
        if self.goal is None:
            return None
        value = self.ours.median
        if self.goal.of == "ratio":
            if self.ratio is None:
                return None
            better = self.ratio.high if self.goal.at_least else self.ratio.low
            value = (better if self.ratio.of == "interval" and better is not None
                     else self.ratio.value)
        return self.goal.reached(value, self.goal.bound)

    def verdict(self) -> str:
        """The same in words."""
        kept = self.kept()
        if kept is None or self.goal is None:
            return "-"
        words = "kept" if kept else "NOT KEPT"
        if self.goal.aim is not None and self.ratio is not None:
            far = "reached" if self.goal.reached(self.ratio.value, self.goal.aim) else "not reached"
            words += f", aim {far}"
        return words

    def row(self) -> str:
        """A row of Markdown."""
        besides = "; ".join(
            f"{what} {decimal(ours)}" + (f", {decimal(other)}" if other is not None else "")
            for what, (ours, other) in self.besides.items())
        cells = [self.operation, self.unit, self.ours.shown(),
                 self.other.shown() if self.other else "-",
                 self.ratio.shown() if self.ratio else "-",
                 self.goal.shown() if self.goal else "-", self.verdict(), besides or "-"]
        return f"| {' | '.join(cells)} |"


@dataclasses.dataclass
class Table:
    """Lines that belong together."""

    title: str
    ours: str  # whose figures are in the column
    other: str
    lines: list[Line] = dataclasses.field(default_factory=list)

    def heading(self) -> str:
        """What stands above the first row."""
        cells = ["operation", "unit", self.ours, self.other or "-", "ratio", "goal", "verdict",
                 f"besides: {self.ours}, {self.other}" if self.other else "besides"]
        return f"{self.title}\n\n| {' | '.join(cells)} |\n{'| --- ' * COLUMNS}|"


@dataclasses.dataclass
class Results:
    """What a subcommand has measured."""

    bench: str
    command: str
    date: str
    tables: list[Table] = dataclasses.field(default_factory=list)
    # Results of old have none of these.
    commit: str = ""  # what was measured
    spent: dict[str, float] = dataclasses.field(default_factory=dict)  # CPU seconds, by table
    load: list[float] = dataclasses.field(default_factory=list)  # of the machine: least and most

    def lines(self) -> list[Line]:
        """The lines of all tables."""
        return [line for table in self.tables for line in table.lines]


def to_json(results: Results) -> str:
    """Figures, verdicts and all."""
    data = {"format": FORMAT} | dataclasses.asdict(results)
    for table, plain in zip(results.tables, data["tables"], strict=True):
        for line, fields in zip(table.lines, plain["lines"], strict=True):
            fields["verdict"] = line.verdict()
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def figures_from(data: dict[str, Any] | None) -> Figures | None:
    """The reverse of what asdict() makes of it."""
    return None if data is None else Figures(**data | {"values": tuple(data["values"])})


def line_from(data: dict[str, Any]) -> Line:
    """The same for a line."""
    ours = figures_from(data["ours"])
    assert ours is not None
    return Line(data["operation"], data["unit"], ours, figures_from(data["other"]),
                Ratio(**data["ratio"]) if data["ratio"] else None,
                Goal(**data["goal"]) if data["goal"] else None,
                {what: (ours, other) for what, (ours, other) in data["besides"].items()})


def read(path: pathlib.Path) -> Results:
    """Read results; BenchError if that is something else."""
    try:
        data = json.loads(path.read_text())
        if data["format"] != FORMAT:
            raise BenchError(f"{path}: results of format {data['format']}, expected {FORMAT}")
        return Results(data["bench"], data["command"], data["date"], [
            Table(table["title"], table["ours"], table["other"],
                  [line_from(line) for line in table["lines"]]) for table in data["tables"]],
            data.get("commit", ""), data.get("spent", {}), data.get("load", []))
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise BenchError(f"{path}: no results of tools/bench") from error
