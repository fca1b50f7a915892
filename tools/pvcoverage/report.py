# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Tables of what was executed, and what was not."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from cstyle import blank
from pvcoverage.counters import Lines


def rate(done: int, total: int) -> str:
    """A share, not rounded up to a goal that it misses."""
    return f"{done * 1000 // total / 10} %" if total else ""


def table(found: Lines) -> list[str]:
    """Lines and branches by file, of each folder, and of all."""
    rows = ["| file | lines | of | | branches | of | |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    sums: dict[str, list[int]] = {}
    for file in sorted(found.lines):
        lines, places = found.lines[file], found.branches.get(file, {})
        numbers = [sum(count > 0 for count in lines.values()), len(lines),
                   sum((a > 0) + (b > 0) for a, b in places.values()), 2 * len(places)]
        rows.append(row(file, numbers))
        for name in ("/".join(file.split("/")[:3]), "all"):
            before = sums.setdefault(name, [0, 0, 0, 0])
            sums[name] = [a + b for a, b in zip(before, numbers, strict=True)]
    totals = sorted((name, numbers) for name, numbers in sums.items() if name != "all")
    return [*rows, *(row(f"**{name}**", numbers) for name, numbers in totals),
            row("**all**", sums.get("all", [0, 0, 0, 0]))]


def row(name: str, numbers: list[int]) -> str:
    """A row of the table."""
    lines, all_lines, branches, all_branches = numbers
    return (f"| {name} | {lines} | {all_lines} | {rate(lines, all_lines)} |"
            f" {branches} | {all_branches} | {rate(branches, all_branches)} |")


def drop_blank(found: Lines, text: Callable[[str], str]) -> None:
    """Forget lines without code: of a function that a file does not use clang counts each line."""
    for file, lines in found.lines.items():
        for number, line in enumerate(blank(text(file)).splitlines(), 1):
            if not line:
                lines.pop(number, None)


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The functions of a source in style(9): name, first and last line."""
    for found in re.finditer(r"^(?:[\w \t*]+?[ *\t])?(\w+)\((?:[^;{}]*)\)\n\{\n.*?^\}$", text,
                             re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, found.start()) + 1
        yield found[1], first, first + found[0].count("\n")


def ranges(numbers: list[int]) -> str:
    """1-3, 7."""
    parts = []
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(parts)


def missing(found: Lines, text: Callable[[str], str], reasons: dict[str, str]) -> list[str]:
    """Each function with lines that were not executed, and why, if a reason is known."""
    rows = []
    for file, lines in sorted(found.lines.items()):
        absent = sorted(line for line, count in lines.items() if count == 0)
        if not absent:
            continue
        if file in reasons:
            rows.append(f"- {file}, {len(absent)} lines: {reasons[file]}")
            continue
        for name, first, last in functions(text(file)):
            numbers = [line for line in absent if first <= line <= last]
            if numbers:
                reason = reasons.get(f"{file}:{name}", "")
                rows.append(f"- {file}:{name}, {ranges(numbers)}" + (f": {reason}" if reason
                                                                     else ""))
    return rows
