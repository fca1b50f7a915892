# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Statistics: what is said of several measurements of one thing, and of two things."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence
from typing import Literal

SAMPLES = 2000


def places(largest: float) -> int:
    """How many decimals of figures are worth printing."""
    return 0 if largest >= 100 else 1 if largest >= 10 else 3


def decimal(value: float) -> str:
    """A figure alone."""
    return f"{value:.{places(abs(value))}f}"


@dataclasses.dataclass(frozen=True)
class Figures:
    """Minimum, median and maximum, and the measurements themselves where they are known."""

    minimum: float
    median: float
    maximum: float
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> Figures:
        """Of these measurements."""
        return cls(min(values), statistics.median(values), max(values), tuple(values))

    def decimals(self) -> int:
        """How many are worth printing."""
        return places(max(abs(self.minimum), abs(self.maximum)))

    def shown(self, decimals: int | None = None) -> str:
        """Minimum / median / maximum."""
        digits = self.decimals() if decimals is None else decimals
        return " / ".join(f"{value:.{digits}f}"
                          for value in (self.minimum, self.median, self.maximum))


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Ours to the other's."""

    value: float
    low: float | None = None
    high: float | None = None
    of: Literal["medians", "interval", "pairs"] = "medians"

    def shown(self) -> str:
        """As the table has it."""
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        if self.of == "pairs":
            return f"{self.low:.1f} / {self.value:.1f} / {self.high:.1f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def of_medians(ours: Figures, other: Figures) -> Ratio | None:
    """The ratio of the medians; None if the other's is nothing."""
    return Ratio(ours.median / other.median) if other.median != 0 else None


def with_interval(ours: Figures, other: Figures) -> Ratio | None:
    """The ratio of the medians, and where it is in 95 of 100 samples of the runs (bootstrap).

    None if the other's is nothing in any of them.
    """
    if other.minimum <= 0:
        return None
    rng = random.Random(1)
    ratios = sorted(
        statistics.median(rng.choices(ours.values, k=len(ours.values))) /
        statistics.median(rng.choices(other.values, k=len(other.values))) for _ in range(SAMPLES))
    return Ratio(ours.median / other.median, ratios[SAMPLES // 40],
                 ratios[SAMPLES - SAMPLES // 40 - 1], "interval")


def of_pairs_interval(ours: Figures, other: Figures) -> Ratio:
    """The median ratio of pairs of runs that followed each other, and where it is in 95 of 100
    samples of the pairs (bootstrap).
    """
    rng = random.Random(1)
    ratios = [a / b for a, b in zip(ours.values, other.values, strict=True)]
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    return Ratio(statistics.median(ratios), medians[SAMPLES // 40],
                 medians[SAMPLES - SAMPLES // 40 - 1], "interval")


def of_pairs(ours: Figures, other: Figures) -> Ratio:
    """The ratio in each pair of runs that followed each other."""
    ratios = [a / b for a, b in zip(ours.values, other.values, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), "pairs")
