# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The pictures themselves: run by draw.py, with a Python that has matplotlib.

usage: python3 -m pvbench.picture DIR FILE...
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot, ticker
from matplotlib.axes import Axes

from pvbench.figures import Figures
from pvbench.table import Line, Results, Table, read

# Text stays text, the same input gives the same bytes, and the ground is white in dark pages, too.
mpl.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "pv-kmod", "figure.facecolor": "white",
    "savefig.facecolor": "white", "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"], "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
})

OURS, OTHER, WHISKER, BAD = "#1f6fb4", "#b9bec4", "#222222", "#b3261e"
# Inches: the page; two bars and the gap to the next ones, or one; above and below a panel.
WIDTH, PAIR, SINGLE, ABOVE, BELOW = 9.0, 0.40, 0.26, 0.62, 0.50
LETTER = 0.073  # inches of a letter, rather more than less: pages show other fonts
BAR = 0.38  # of the distance of two operations


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


def bars(axes: Axes, places: list[float], figures: list[Figures], height: float, colour: str,
         label: str) -> None:
    """Medians, and lines from the minimum to the maximum, where these are known."""
    axes.barh(places, [one.median for one in figures], height, color=colour, label=label)
    spread = [(place, one) for place, one in zip(places, figures, strict=True)
              if one.minimum != one.maximum]
    axes.errorbar([one.median for _, one in spread], [place for place, _ in spread],
                  xerr=[[one.median - one.minimum for _, one in spread],
                        [one.maximum - one.median for _, one in spread]],
                  fmt="none", ecolor=WHISKER, elinewidth=1, capsize=2.5)


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


def fill(axes: Axes, panel: Panel, right: float) -> None:
    """Bars, numbers and words of a panel; right is where the axis ends."""
    lines = panel.lines
    places = [float(place) for place in range(len(lines))]
    others = [line.other for line in lines if line.other is not None]
    if panel.paired():
        bars(axes, [place - BAR / 2 for place in places], [line.ours for line in lines], BAR,
             OURS, panel.table.ours)
        bars(axes, [place + BAR / 2 for place in places], others, BAR, OTHER, panel.table.other)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False,
                    borderaxespad=0.2, fontsize=8)
    else:
        bars(axes, places, [line.ours for line in lines], 1.6 * BAR, OURS, panel.table.ours)
    for place, line in zip(places, lines, strict=True):
        axes.text(panel.end(line) + right / 100, place, number(line), va="center", fontsize=8.5,
                  color=BAD if line.kept() is False else WHISKER)
    axes.set_yticks(places, [line.operation for line in lines])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(min(0, *(line.ours.minimum for line in lines), 0), right)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.grid(axis="x", color="#e4e6e8", linewidth=0.8)
    axes.set_xlabel(panel.unit)


def draw(results: Results, path: pathlib.Path) -> None:
    """A panel for each unit of each table, one above the other, but where all is nothing."""
    panels = []
    for table in results.tables:
        for unit in dict.fromkeys(line.unit for line in table.lines):
            one = Panel(table, unit, [line for line in table.lines if line.unit == unit])
            if any(one.end(line) > 0 for line in one.lines):
                panels.append(one)
    height = sum(ABOVE + panel.height() + BELOW for panel in panels) + 0.2
    left = 0.2 + LETTER * max(len(line.operation) for line in results.lines())
    figure = pyplot.figure(figsize=(WIDTH, height))
    top = height
    for panel in panels:
        top -= ABOVE
        axes = figure.add_axes((left / WIDTH, (top - panel.height()) / height,
                                1 - (left + 0.15) / WIDTH, panel.height() / height))
        fill(axes, panel, limit(panel, WIDTH - left - 0.15))
        figure.text(0.1 / WIDTH, (top + 0.3) / height, panel.table.title, fontsize=10,
                    fontweight="bold")
        top -= panel.height() + BELOW
    figure.text(1 - 0.1 / WIDTH, 0.08 / height, results.command, ha="right", fontsize=7,
                color="#555555")
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def main() -> int:
    """Run the command."""
    folder, *files = (pathlib.Path(word) for word in sys.argv[1:])
    for file in files:
        path = folder / f"{file.stem}.svg"
        draw(read(file), path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
