# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A virtio memory balloon (VirtIO 1.3, 5.5) that records each page it was given.

The device fills a page with a pattern, which has to be unchanged when the page is taken back: this
detects a guest that uses the host's memory.  The counter reused detects one that uses pages of an
unanswered request before it has reset the device; held_at_reset counts the resets at which there
was such memory.  Commands:

  pages           how many pages we have, and what the driver says (actual)
  reach N SECONDS wait until both are N
  ask             requests fresh statistics; prints the last, by tag
"""

from __future__ import annotations

import argparse
import struct
import time
from typing import Any

import device
import layout
import ring

PAGE = 4096
INFLATE, DEFLATE, STATS, _, REPORT = range(5)
PATTERN = b"\xb5\x0a" * (PAGE // 2)


class Balloon(device.Device):
    """The balloon."""

    type_id = 5
    queues_of_type = 3
    feature_names = {  # noqa: RUF012
        "MUST_TELL_HOST": 0, "STATS_VQ": 1, "DEFLATE_ON_OOM": 2, "FREE_PAGE_HINT": 3,
        "PAGE_POISON": 4, "REPORTING": 5,
    }
    default_features = ["STATS_VQ"]  # noqa: RUF012
    fields = {  # noqa: RUF012
        "num_pages": (0, 4), "actual": (4, 4), "free_page_hint_cmd_id": (8, 4),
        "poison_val": (12, 4),
    }
    config_size = 16
    # 5.5.6.6.1.
    written = {"actual": (False, True), "poison_val": (False,)}  # noqa: RUF012

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.pages: set[int] = set()
        self.stats: dict[int, int] = {}
        self.waiting: layout.Chain | None = None
        # The pages of each unanswered chain, by queue and head.
        self.owned: dict[tuple[int, int], layout.Segments] = {}
        self.last: layout.Segments = []
        for setting in args.set:
            self.set_config(setting)

    def forget(self) -> None:
        """The pages stay; what is in a page that was reported is not known any more."""
        self.set_config("poison_val=0")

    def settings(self) -> dict[str, Any]:
        """And the pages, the value of free ones, and whether there is a buffer for statistics."""
        actual, _, poison = struct.unpack_from("<III", self.config, 4)
        return super().settings() | {"pages": len(self.pages), "actual": actual,
                                     "poison_val": poison,
                                     "statistics": self.waiting is not None}

    def stopped(self, queue: ring.Queue) -> int:
        """A queue was stopped, with our buffer for statistics."""
        if queue.index == STATS:
            self.waiting = None
        for index, head in [key for key in self.owned if key[0] == queue.index]:
            segments = self.owned.pop((index, head))
            if head in queue.inflight:
                self.last.extend(segments)
        return super().stopped(queue)

    def let_go(self) -> None:
        """The reset is done: check that the pages were not used before."""
        if self.last:
            if any(self.memory.read(gpa, length) != PATTERN * (length // PAGE)
                   for gpa, length in self.last):
                self.count("reused")
            self.count("held_at_reset")
        self.last.clear()

    def own(self, queue: ring.Queue, chain: layout.Chain, segments: layout.Segments) -> None:
        """If a chain was not answered, its memory is ours."""
        if chain.head not in queue.inflight:
            return
        for gpa, length in segments:
            self.memory.write(gpa, PATTERN * (length // PAGE))
        self.owned[queue.index, chain.head] = segments

    def process(self, queue: ring.Queue) -> None:
        """Handle all chains in a queue."""
        while (chain := queue.pop()) is not None:
            data = ring.gather(self.memory, chain.readable)
            if queue.index == STATS:
                # 5.5.6.3.1.
                tags = [tag for tag, _ in struct.iter_unpack("<HQ", data)]
                if self.waiting is not None or (self.stats and set(tags) != set(self.stats)):
                    raise ValueError(f"two buffers of statistics, or other ones: {tags}")
                self.stats = {tag: value for tag, value in struct.iter_unpack(
                    "<HQ", data)}
                self.count("statistics")
                self.waiting = chain
                continue
            segments = chain.writable if queue.index == REPORT else []
            if queue.index in (INFLATE, DEFLATE):
                pfns = [pfn for pfn, in struct.iter_unpack("<I", data)]
                self.count(("given", "taken")[queue.index], len(pfns))
                for pfn in pfns:
                    (self.give if queue.index == INFLATE else self.take)(pfn)
                if queue.index == INFLATE:
                    segments = [(pfn * PAGE, PAGE) for pfn in pfns]
            queue.complete(chain, self.quirk.length("pfns", chain, 0))
            self.own(queue, chain, segments)

    def give(self, pfn: int) -> None:
        """The driver gives a page."""
        if pfn in self.pages:
            self.count("given_twice")
        self.pages.add(pfn)
        self.memory.write(pfn * PAGE, PATTERN)

    def take(self, pfn: int) -> None:
        """The driver takes a page back."""
        if pfn not in self.pages:
            self.count("never_given")
            return
        self.pages.remove(pfn)
        if bytes(self.memory.read(pfn * PAGE, PAGE)) != PATTERN:
            self.count("touched")

    def command(self, words: list[str]) -> Any:
        """Run a command of the control socket."""
        match words:
            case ["pages"]:
                with self.lock:
                    actual, = struct.unpack_from("<I", self.config, 4)
                    return {"pages": len(self.pages), "actual": actual}
            case ["reach", pages, seconds]:
                end = time.monotonic() + float(seconds)
                while (state := self.command(["pages"])) != dict.fromkeys(state, int(pages)):
                    if time.monotonic() > end:
                        raise device.CommandError(f"{state}, not {pages}: {self.counters}")
                    time.sleep(0.02)
                return state
            case ["ask"]:
                with self.lock:
                    if self.waiting is not None:
                        chain, self.waiting = self.waiting, None
                        self.queues[STATS].complete(chain, 0)
                        self.queues[STATS].publish()
                    return self.stats
        return super().command(words)
