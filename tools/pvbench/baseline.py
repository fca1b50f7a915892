# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Write tables of results to a page, BASELINE.md.

Where the page has a line

  <!-- FILE.json, REGEX -->

the table behind it is written anew, from the lines of FILE.json below tests/bench/results whose
table and operation, as "TABLE: OPERATION", match REGEX: a row for each operation.  Where there are
several units the figures are medians.  Columns that would be empty are left out.  Columns whose
headings are in italics, *so*, are the page's own: their words stay with the operation.

--check writes nothing, and ends in 1 if something would change.
"""

from __future__ import annotations

import argparse
import pathlib
import re

from pvbench import table
from pvbench.errors import BenchError
from pvbench.figures import decimal
from pvbench.table import Line
from xen.errors import TOP

PAGE = TOP / "tests/bench/BASELINE.md"
MARK = re.compile(r"<!-- (\S+\.json), (.+) -->")

Cells = list[str]


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `baseline'."""
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("page", nargs="?", type=pathlib.Path, default=PAGE, metavar="PAGE",
                        help="the page (tests/bench/BASELINE.md)")


def goals(lines: list[Line]) -> list[Cells]:
    """A column of verdicts: what has to be kept is in its heading, if it is one for all."""
    shown = [line.goal.shown() if line.goal else "-" for line in lines]
    if len(set(shown) - {"-"}) > 1:
        return [["goal", *(f"{goal}: {line.verdict()}" if line.goal else "-"
                           for goal, line in zip(shown, lines, strict=True))]]
    return [[max(shown), *(line.verdict() for line in lines)]]


def full(one: table.Table, unit: str, lines: list[Line]) -> list[Cells]:
    """Columns of a unit: minimum / median / maximum of both, ratio, verdict."""
    return [[f"{one.ours}: {unit}", *(line.ours.shown() for line in lines)],
            [one.other, *(line.other.shown() if line.other else "-" for line in lines)],
            ["ratio", *(line.ratio.shown() if line.ratio else "-" for line in lines)],
            *goals(lines)]


def compact(one: table.Table, unit: str, lines: list[Line]) -> list[Cells]:
    """Two columns: medians of both and their ratio; the verdict."""
    cells = [f"{unit}: {one.ours}, {one.other}: ratio" if one.other else unit]
    for line in lines:
        medians = [side.median for side in (line.ours, line.other) if side is not None]
        ratio = f": {line.ratio.value:.2f}" if line.ratio else ""
        cells.append(", ".join(map(decimal, medians)) + ratio)
    return [cells, *goals(lines)]


def besides(one: table.Table, what: str, lines: list[Line]) -> Cells:
    """A column of what was counted besides, ours and the other's."""
    values = [[value for value in line.besides.get(what, ()) if value is not None]
              for line in lines]
    whose = f": {one.ours}, {one.other}" if any(len(pair) > 1 for pair in values) else ""
    return [what + whose, *(", ".join(map(decimal, pair)) or "-" for pair in values)]


def columns(found: list[tuple[table.Table, Line]]) -> list[Cells]:
    """A heading and a cell for each operation; all columns that the lines have."""
    one = found[0][0]
    lines = [line for _, line in found]
    operations = list(dict.fromkeys(line.operation for line in lines))
    units = list(dict.fromkeys(line.unit for line in lines))
    result = [["operation", *operations]]
    for unit in units:
        some = [line for line in lines if line.unit == unit]
        if [line.operation for line in some] != operations:
            raise BenchError(f"{one.title}: not each operation has one line of {unit}")
        result += (full if len(units) == 1 else compact)(one, unit, some)
    some = [line for line in lines if line.unit == units[0]]
    extra = dict.fromkeys(what for line in some for what in line.besides)
    return result + [besides(one, what, some) for what in extra]


def chosen(path: pathlib.Path, regex: str) -> list[Cells]:
    """The rows of the lines that match, with the columns that have something."""
    found = [(one, line) for one in table.read(path).tables for line in one.lines
             if re.search(regex, f"{one.title}: {line.operation}")]
    if not found:
        raise BenchError(f"{path}: nothing matches {regex}")
    wanted = [column for column in columns(found) if any(cell != "-" for cell in column[1:])]
    return [list(row) for row in zip(*wanted, strict=True)]


def split(line: str) -> Cells:
    """The cells of a row of the page."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def renewed(old: list[str], new: list[Cells]) -> list[str]:
    """The table's lines; old ones give the columns that are the page's own."""
    heading = split(old[0]) if old else []
    own = [column for column, name in enumerate(heading) if name.startswith("*")]
    words = {split(line)[0]: [split(line)[column] for column in own] for line in old[2:]}
    cells = [new[0] + [heading[column] for column in own],
             *(row + words.get(row[0], ["-"] * len(own)) for row in new[1:])]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], "| --- " * len(cells[0]) + "|", *lines[1:]]


def renew(text: str, results: pathlib.Path) -> str:
    """The page with all its tables renewed."""
    lines, done = text.split("\n"), []
    while lines:
        done.append(lines.pop(0))
        mark = MARK.fullmatch(done[-1])
        if mark is not None:
            end = next((i for i, line in enumerate(lines[1:], 1) if not line.startswith("|")),
                       len(lines))
            done += ["", *renewed(lines[1:end], chosen(results / mark[1], mark[2]))]
            del lines[:end]
    return "\n".join(done)


def run(args: argparse.Namespace) -> int:
    """Renew the page."""
    page: pathlib.Path = args.page
    try:
        old = page.read_text()
    except OSError as error:
        raise BenchError(f"{page}: {error.strerror}") from error
    new = renew(old, page.parent / "results")
    if args.check:
        return 0 if new == old else 1
    page.write_text(new)
    return 0
