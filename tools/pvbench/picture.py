# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The pictures themselves, as SVG: text as text, and one path for all bars of a colour.

The same input gives the same bytes.  The ground is white in dark pages, too.
"""

from __future__ import annotations

import dataclasses
import html
import math
import pathlib

from pvbench.figures import Figures
from pvbench.table import CPU, Line, Results, Table

STYLE = """rect{fill:#fff}text{font:9px DejaVu Sans,Verdana,sans-serif;fill:#222}
.e{text-anchor:end}.m text{text-anchor:middle}.n text{font-size:8.5px}.l{font-size:8px}
.t{font-size:10px;font-weight:bold}.c{font-size:7px;fill:#555}.x{fill:#b3261e}
path{fill:none;stroke:#222}.o{stroke:#1f6fb4}.p{stroke:#b9bec4}
.g{stroke:#e4e6e8;stroke-width:.8}.a{stroke-width:.8}"""
INCH = 72
# Inches: the page; two bars and the gap to the next ones, or one; above and below a panel.
WIDTH, PAIR, SINGLE, ABOVE, BELOW = 9.0, 0.40, 0.26, 0.62, 0.50
LETTER = 0.073  # inches of a letter, rather more than less: pages show other fonts
BAR = 0.38  # of the distance of two operations
STEPS = (1, 2, 2.5, 5, 10)  # between two ticks, times a power of ten
ROWS = 40  # of a panel; a longer one has only the CPU time of what was measured by the clock, too


@dataclasses.dataclass
class Panel:
    """One unit of one table."""

    table: Table
    unit: str
    lines: list[Line]

    def paired(self) -> bool:
        """Whether there is another beside each of ours."""
        return all(line.other is not None for line in self.lines)

    def height(self) -> float:
        """Inches of the axes."""
        return len(self.lines) * (PAIR if self.paired() else SINGLE)

    def end(self, line: Line) -> float:
        """How far the bars of a line reach, with their whiskers."""
        return max(line.ours.maximum, line.other.maximum if line.other else 0)


def number(line: Line) -> str:
    """What is written behind a bar."""
    ratio = line.ratio
    if ratio is None:
        text = f"{line.ours.median:,.{line.ours.decimals()}f}"
        text = text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
    elif ratio.of == "interval":
        text = ratio.shown()
    else:
        text = f"{ratio.value:.{2 if ratio.value < 2 else 1}f}"
    if line.kept() is False and line.goal is not None:
        text += f", goal {line.goal.bound:g}"
    return text


def limit(panel: Panel, width: float) -> float:
    """The largest value of the axes of so many inches: the numbers have their place behind bars."""
    return max(panel.end(line) / (1 - min(LETTER * len(number(line)) + 0.15, 0.7 * width) / width)
               for line in panel.lines)


def tick_step(span: float) -> float:
    """The distance of two ticks: at most six of them."""
    power = 10.0 ** math.floor(math.log10(span / 6))
    return next(power * step for step in STEPS if span / (power * step) <= 6)


def short(value: float) -> str:
    """A coordinate: to a tenth of a point."""
    return f"{value:.1f}".removesuffix(".0")


class Axes:
    """A panel in points, and where its values are."""

    def __init__(self, panel: Panel, left: float) -> None:
        self.panel = panel
        self.left, self.right = INCH * left, INCH * (WIDTH - 0.15)
        self.top, self.bottom = INCH * ABOVE, INCH * (ABOVE + panel.height())
        self.low = min(0, *(line.ours.minimum for line in panel.lines), 0)
        self.high = limit(panel, WIDTH - left - 0.15)
        self.row = (self.bottom - self.top) / len(panel.lines)
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        """Where a value is."""
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def y(self, place: float) -> float:
        """Where the middle of a row is, or what is that much below it."""
        return self.top + self.row * (place + 0.5)

    def text(self, x: float, y: float, what: str, kind: str = "") -> None:
        """Write a text."""
        kind = f' class="{kind}"' if kind else ""
        place = "".join(f' {name}="{value:.0f}"' for name, value in (("x", x), ("y", y)) if value)
        self.parts.append(f"<text{place}{kind}>"
                          f"{html.escape(what, quote=False)}</text>")

    def group(self, kind: str, x: float = 0, y: float = 0) -> None:
        """Begin a group at a place or, without a kind, end it."""
        place = f' transform="translate({x:.0f} {y:.0f})"' if x or y else ""
        self.parts.append(f'<g class="{kind}"{place}>' if kind else "</g>")

    def path(self, kind: str, pieces: list[str], width: float = 0) -> None:
        """Draw all lines of a kind, and of a width that the style does not have."""
        wide = f' stroke-width="{short(width)}"' if width else ""
        if pieces:
            self.parts.append(f'<path class="{kind}"{wide} d="{"".join(pieces)}"/>')

    def bars(self, kind: str, figures: list[Figures], shift: float, high: float) -> list[str]:
        """Draw bars to the medians; returns the lines from the minimum to the maximum."""
        pieces, spread = [], []
        zero = f"{self.x(0):.0f}"
        for place, one in enumerate(figures):
            y = self.y(place + shift)
            pieces.append(f"M{zero} {y:.0f}H{self.x(one.median):.0f}")
            if one.minimum != one.maximum:
                # At least a point wide, or nothing would be seen of it.
                left = self.x(one.minimum)
                right = max(self.x(one.maximum), left + 1.5)
                spread.append(f"M{left:.0f} {y:.0f}H{right:.0f}")
        self.path(kind, pieces, self.row * high)
        return spread

    def ticks(self) -> None:
        """Draw the grid, and write what its lines stand for."""
        step = tick_step(self.high - self.low)
        values = [step * n for n in range(math.ceil(self.low / step),
                                          math.floor(self.high / step) + 1)]
        self.path("g", [f"M{self.x(value):.0f} {self.top:.0f}V{self.bottom:.0f}"
                        for value in values])
        self.group("m", 0, self.bottom + 14)
        for value in values:
            self.text(self.x(value), 0, f"{value:,.6g}")
        self.text((self.left + self.right) / 2, 12, self.panel.unit)
        self.group("")

    def legend(self) -> None:
        """Say whose bars are which."""
        x = self.right
        for kind, name in (("p", self.panel.table.other), ("o", self.panel.table.ours)):
            x -= INCH * LETTER * len(name) + 8
            self.text(x, self.top - 6, name, "l")
            x -= 20
            self.path(kind, [f"M{short(x)} {short(self.top - 9)}h16"], 6)

    def draw(self) -> list[str]:
        """Bars, numbers and words."""
        lines = self.panel.lines
        self.ticks()
        ours = [line.ours for line in lines]
        if self.panel.paired():
            others = [line.other for line in lines if line.other is not None]
            spread = self.bars("o", ours, -BAR / 2, BAR)
            spread += self.bars("p", others, BAR / 2, BAR)
            self.legend()
        else:
            spread = self.bars("o", ours, 0, 1.6 * BAR)
        self.path("w", spread, 4)
        self.path("a", [f"M{short(self.left)} {short(self.top)}V{short(self.bottom)}"
                        f"H{short(self.right)}"])
        self.group("n")
        for place, line in enumerate(lines):
            self.text(self.x(self.panel.end(line)) + 4, self.y(place) + 3, number(line),
                      "x" if line.kept() is False else "")
        self.group("")
        self.group("e", self.left - 5)
        for place, line in enumerate(lines):
            self.text(0, self.y(place) + 3, line.operation)
        self.group("")
        self.text(7, self.top - INCH * 0.3, self.panel.table.title, "t")
        return self.parts


def drawn(table: Table, unit: str) -> list[Line]:
    """The rows of a panel."""
    lines = [line for line in table.lines if line.unit == unit]
    names = {line.operation for line in lines}
    return [line for line in lines
            if len(lines) <= ROWS or line.operation + CPU not in names]


def draw(results: Results, path: pathlib.Path) -> None:
    """A panel for each unit of each table, one above the other, but where all is nothing."""
    panels = []
    for table in results.tables:
        for unit in dict.fromkeys(line.unit for line in table.lines):
            one = Panel(table, unit, drawn(table, unit))
            if any(one.end(line) > 0 for line in one.lines):
                panels.append(one)
    left = 0.2 + LETTER * max(len(line.operation) for line in results.lines())
    top = 0.0
    parts = []
    for panel in panels:
        parts += [f'<g transform="translate(0 {short(INCH * top)})">',
                  "".join(Axes(panel, left).draw()), "</g>"]
        top += ABOVE + panel.height() + BELOW
    size = f"{short(INCH * WIDTH)} {short(INCH * (top + 0.2))}"
    width, height = size.split()
    command = html.escape(results.command, quote=False)
    path.write_text("\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" '
        f'viewBox="0 0 {size}">', f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}"/>', *parts,
        f'<text x="{short(INCH * WIDTH - 7)}" y="{short(INCH * (top + 0.2) - 6)}" '
        f'class="c e">{command}</text>', "</svg>", ""]))
