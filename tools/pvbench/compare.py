# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Compare two results of a bench: what became slower or faster, by more than runs differ.

OLD and NEW are what --json has written, of the same bench.  A line that has a ratio of pairs of
runs, or one with an interval, is compared by that ratio: the other side was measured by the same
machine at the same time, so that a busier machine does not count.  Else the figures themselves are
compared.  It differs if the ranges, minimum to maximum or the interval, have nothing in common.

Exit status: 0, or 1 if something became slower.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib

from pvbench import table
from pvbench.errors import BenchError
from pvbench.figures import decimal
from pvbench.table import Line, Results

STATUS_SLOWER = 1
Key = tuple[str, str, str]  # table, operation, unit


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `compare'."""
    parser.add_argument("old", type=pathlib.Path, metavar="OLD", help="results of before")
    parser.add_argument("new", type=pathlib.Path, metavar="NEW", help="results of the same bench")


@dataclasses.dataclass(frozen=True)
class Range:
    """Where the runs were."""

    low: float
    middle: float
    high: float

    def shown(self) -> str:
        """As the table has it."""
        return f"{decimal(self.middle)} ({decimal(self.low)} to {decimal(self.high)})"


def has_ratio(line: Line) -> bool:
    """Whether its ratio is of runs beside each other, with a range."""
    return line.ratio is not None and line.ratio.low is not None


def range_of(line: Line, ratio: bool) -> Range:
    """The range of its ratio, or of our figures."""
    if ratio and line.ratio is not None:
        assert line.ratio.low is not None
        assert line.ratio.high is not None
        return Range(line.ratio.low, line.ratio.value, line.ratio.high)
    return Range(line.ours.minimum, line.ours.median, line.ours.maximum)


def verdict(old: Range, new: Range, more_is_better: bool) -> str:
    """Slower, faster, or nothing."""
    if new.low > old.high:
        return "faster" if more_is_better else "slower"
    if new.high < old.low:
        return "slower" if more_is_better else "faster"
    return ""


def by_key(results: Results) -> dict[Key, Line]:
    """Its lines."""
    return {(one.title, line.operation, line.unit): line
            for one in results.tables for line in one.lines}


def rows(old: dict[Key, Line], new: dict[Key, Line]) -> list[tuple[str, str]]:
    """The verdict, and the row that says it, of each line that both have."""
    found = []
    for key in (key for key in new if key in old):
        ratio = has_ratio(old[key]) and has_ratio(new[key])
        before, after = (range_of(lines[key], ratio) for lines in (old, new))
        said = verdict(before, after, new[key].more_is_better())
        title, operation, unit = key
        change = f"{after.middle / before.middle:.2f}" if before.middle else "-"
        found.append((said, f"| {title}: {operation} | {unit + (': ratio' if ratio else '')} |"
                      f" {before.shown()} | {after.shown()} | {change} | {said} |"))
    return found


def named(results: Results) -> str:
    """The run, as a column is called."""
    return f"{results.commit or 'no commit'}, {results.date}"


def run(args: argparse.Namespace) -> int:
    """Compare."""
    old, new = table.read(args.old), table.read(args.new)
    if old.bench != new.bench:
        raise BenchError(f"{args.old} is of {old.bench}, {args.new} of {new.bench}")
    lines = by_key(old), by_key(new)
    found = rows(*lines)
    if not found:
        raise BenchError(f"{args.old} and {args.new} have no operation in common")
    counts = {said: sum(said == one for one, _ in found) for said in ("slower", "faster")}
    if any(counts.values()):
        print(f"| operation | unit | {named(old)} | {named(new)} | new / old | beyond the spread |")
        print("| --- " * 6 + "|")
        for said in counts:
            print("".join(f"{row}\n" for one, row in found if one == said), end="")
        print()
    alone = [sum(key not in other for key in mine)
             for mine, other in (lines, reversed(lines))]
    print(f"{len(found)} compared: {counts['slower']} slower, {counts['faster']} faster beyond the"
          f" runs' spread; {alone[0]} only in {args.old}, {alone[1]} only in {args.new}")
    return STATUS_SLOWER if counts["slower"] else 0
