# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""How long the tables of the field take: estimated before, counted afterwards.

By CPU time, which a busy machine gives in more time by the clock, but no more of it: that of this
process, and of those that it has started and waited for.  Each table's guests boot, and are then
measured in rounds, of which a part grows with the scale.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
import time
from collections.abc import Sequence

from pvbench.report import Report


@dataclasses.dataclass(frozen=True)
class Cost:
    """CPU seconds of a table with all of its rows, of all systems, as they were counted."""

    boot: float
    a_round: float  # whatever the scale
    scaled: float  # of a round at scale 1, in addition
    busy: float = 1  # processors that it uses
    least: float = 0  # the scale below which a round takes no less
    own_guests: bool = False  # whether what is left out of its rows is not booted either

    def seconds(self, rounds: int, scale: float, part: float) -> float:
        """Of this part of its rows."""
        boot = self.boot * (part if self.own_guests else 1)
        return boot + rounds * part * (
            self.a_round + max(scale, self.least) * self.scaled)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A table that is going to be measured."""

    title: str
    seconds: float
    busy: float

    def minutes(self, processors: int) -> float:
        """By the clock, where nothing else works."""
        return self.seconds / min(self.busy, processors) / 60


def minutes_of(plans: Sequence[Plan], processors: int) -> float:
    """Of all of them."""
    return sum(plan.minutes(processors) for plan in plans)


def shown(plans: Sequence[Plan], processors: int) -> str:
    """What is said before."""
    tables = ", ".join(f"{plan.title} {plan.seconds:.0f} s" for plan in plans)
    return (f"about {minutes_of(plans, processors):.0f} minutes on {processors} idle"
            f" processor{'s' if processors > 1 else ''}; CPU time: {tables};"
            f" {sum(plan.seconds for plan in plans):.0f} s together")


def spent() -> float:
    """CPU seconds up to now, of this process and of those that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(
        resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Clock:
    """Says what each table took, and what is left by that measure."""

    def __init__(self, report: Report, plans: Sequence[Plan]) -> None:
        self.report = report
        self.left = list(plans)
        self.processors = os.cpu_count() or 1
        self.counted = self.planned = 0.0
        self.before, self.start = spent(), time.monotonic()
        print(f"bench field: {shown(plans, self.processors)}", file=sys.stderr, flush=True)

    def ended(self) -> None:
        """The first of those that are left has been measured."""
        plan = self.left.pop(0)
        now, clock = spent(), time.monotonic()
        took = now - self.before
        self.counted += took
        self.planned += plan.seconds
        self.report.spend(plan.title, took)
        minutes, seconds = divmod(round(clock - self.start), 60)
        left = minutes_of(self.left, self.processors) * self.counted / max(self.planned, 1)
        self.report.progress.clear()
        print(f"bench field: {plan.title}: {took:.0f} s of CPU time ({plan.seconds:.0f}"
              f" estimated), {minutes}:{seconds:02} by the clock; about {left:.0f} minutes left",
              file=sys.stderr, flush=True)
        self.before, self.start = now, clock
