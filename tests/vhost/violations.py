# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Protocol violations of a hostile device: a table by name, each of a kind.

A violation of the kind "ring" replaces the return of a chain; the other kinds are committed by the
devices, which look them up by their kind and use their value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import packed
import split

if TYPE_CHECKING:
    import layout
    import ring

RingViolation = Callable[["ring.Queue", "layout.Chain", int], None]


def split_of(queue: ring.Queue) -> split.SplitRing:
    """Check that a ring is split."""
    if not isinstance(queue.ring, split.SplitRing):
        raise TypeError("a violation of a split ring")
    return queue.ring


def packed_of(queue: ring.Queue) -> packed.PackedRing:
    """Check that a ring is packed."""
    if not isinstance(queue.ring, packed.PackedRing):
        raise TypeError("a violation of a packed ring")
    return queue.ring


def id_out_of_range(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """A descriptor beyond the end of the table."""
    queue.ring.put_used(queue.ring.parts.size, length)


def id_huge(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The largest number that fits in an answer."""
    queue.ring.put_used(0xFFFFFFFF, length)


def id_idle(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """A descriptor that was not given to us."""
    numbers = range(queue.ring.parts.size - 1, -1, -1)
    queue.ring.put_used(next(i for i in numbers if i not in queue.inflight), length)


def id_twice(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The same chain twice."""
    queue.give(chain, length)
    queue.flush_batch()
    queue.ring.put_used(chain.head, length)


def middle(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """A chain of several places is answered as if it began with the second one.

    In a packed ring the device goes on in the middle of the chain, a place behind its answer.
    """
    queue.inflight.pop(chain.head, None)
    head = chain.head
    if isinstance(queue.ring, split.SplitRing):
        head = queue.memory.get16(queue.ring.parts.desc + 16 * head + 14)
    queue.ring.put_used(head, length)


def idx_ahead(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The index advances by more than there is."""
    queue.give(chain, length)
    queue.flush_batch()
    split_of(queue).used_idx = (split_of(queue).used_idx + len(queue.inflight) + 1) & 0xFFFF


def idx_half(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The index advances as far as possible."""
    queue.give(chain, length)
    queue.flush_batch()
    split_of(queue).used_idx = (split_of(queue).used_idx + 0x8000) & 0xFFFF


def idx_back(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The index goes back, by more than the chains returned with it."""
    split_of(queue).used_idx = (split_of(queue).used_idx - queue.ring.parts.size) & 0xFFFF


def place_skipped(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The answer is one place beyond the one where the driver expects it."""
    packed_of(queue).used += 1
    queue.give(chain, length)


def wrap_early(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The wrap counter changes before the end of the ring."""
    packed_of(queue).used_turns += 1
    queue.give(chain, length)


def wrap_never(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """The wrap counter no longer changes, not even at the end of the ring."""
    packed_of(queue).keep_turn()
    queue.give(chain, length)


def len_max(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """More bytes written than exist."""
    queue.give(chain, 0xFFFFFFFF)


def len_over(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """One byte more than the buffers hold."""
    queue.give(chain, chain.room() + 1)


def len_zero(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """Nothing written."""
    queue.give(chain, 0)


def len_one(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """One byte written."""
    queue.give(chain, 1)


def len_less(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """One byte less than required."""
    queue.give(chain, max(length - 1, 0))


def unheard(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """An answer without an interrupt."""
    queue.give(chain, length)
    queue.flush_batch()
    queue.ring.publish()
    queue.ring.notified()


def never(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """No answer, until `release`."""
    queue.held.append((chain, length))


def scribble(queue: ring.Queue, chain: layout.Chain, length: int) -> None:
    """Write over all of the driver's areas, then answer as usual.

    In a packed ring these areas also hold the used descriptors.
    """
    queue.pop_all()
    queue.ring.scribble(0xA5)
    queue.always_notify = True
    queue.give(chain, length)


@dataclasses.dataclass
class Violation:
    """The kind of a violation, and its function or value."""

    kind: str
    value: Any


RING_VIOLATIONS: list[RingViolation] = [
    id_out_of_range, id_huge, id_idle, id_twice, middle, idx_ahead, idx_half, idx_back,
    place_skipped, wrap_early, wrap_never, len_max, len_over, len_zero, len_one, len_less, unheard,
    never, scribble,
]

VIOLATIONS: dict[str, Violation] = {f.__name__: Violation("ring", f) for f in RING_VIOLATIONS} | {
    # Chains that are skipped, and not answered until `honest`.
    "passed_over": Violation("order", True),
    # The status byte of a block request: None is not to write it.
    "status_unset": Violation("status", None),
    "status_undefined": Violation("status", 0x7F),
    "status_three": Violation("status", 3),
    "status_ioerr": Violation("status", 1),
    "status_unsupp": Violation("status", 2),
    # An answer to a block request whose data were not written.
    "data_unwritten": Violation("data", True),
    # Fields of the header of a received packet.
    "buffers_zero": Violation("header", {"num_buffers": 0}),
    "buffers_max": Violation("header", {"num_buffers": 65535}),
    "buffers_ring": Violation("header", {"num_buffers": 129}),  # one more than the usual ring
    "buffers_more": Violation("header", {"num_buffers": 3}),
    "gso_undefined": Violation("header", {"gso_type": 0x7F, "gso_size": 1}),
    "gso_tcp4": Violation("header", {"gso_type": 1, "gso_size": 0, "hdr_len": 65535}),
    "flags_all": Violation("header", {"flags": 0xFF, "csum_start": 34, "csum_offset": 2}),
    "csum_beyond": Violation("header", {"flags": 1, "csum_start": 65535, "csum_offset": 65535}),
    "csum_edge": Violation("header", {"flags": 1, "csum_start": 59, "csum_offset": 0}),
    "csum_ether": Violation("header", {"flags": 1, "csum_start": 0, "csum_offset": 0}),
}


class Teller:
    """The violations that are due, in this order."""

    def __init__(self) -> None:
        self.plans: list[list[Any]] = []
        self.count: Callable[[str], None] = lambda _: None

    def plan(self, name: str, count: int, skip: int, queue: int) -> None:
        """Commit a violation `count` times, after `skip` correct answers; queue -1 is any."""
        self.plans.append([VIOLATIONS[name], count, skip, queue])

    def honest(self) -> None:
        """End all violations."""
        self.plans.clear()

    def take(self, kind: str, queue: int) -> Any:
        """The value of a violation of this kind that is due now, else None.

        A violation whose value is None is returned as the string "none".
        """
        for plan in self.plans:
            violation, _, skip, wanted = plan
            if violation.kind != kind or wanted not in (-1, queue):
                continue
            if skip > 0:
                plan[2] -= 1
                continue
            plan[1] -= 1
            if plan[1] <= 0:
                self.plans.remove(plan)
            self.count("violations")
            return "none" if violation.value is None else violation.value
        return None
