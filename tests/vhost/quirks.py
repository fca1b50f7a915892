# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Real devices that report wrong used lengths: a table of quirks by name.

cloud-hypervisor  before its pull request 8066 (2026): the status byte of a disk's request is not
                  counted, a control command is header, data and status, buffers that are only read
                  (sent frames, numbers of the balloon's pages) count as written
firecracker       before its pull request 2379 (2020): the same for disks; it has no control queue

Both wrote the status of a disk's request as 32 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import layout


def readable(chain: layout.Chain) -> int:
    """Bytes that the device only reads."""
    return sum(length for _, length in chain.readable)


def status_left_out(_: layout.Chain, length: int) -> int:
    """A disk's answer; a failed request has only its status."""
    return length - 1


def all_counts(chain: layout.Chain, _: int) -> int:
    """The bytes read and the bytes written."""
    return readable(chain) + chain.room()


Length = Callable[["layout.Chain", int], int]


@dataclasses.dataclass
class Quirk:
    """What a device reports in place of the right length, for each kind of chain."""

    lengths: dict[str, Length]
    status_size: int = 1

    def length(self, kind: str, chain: layout.Chain, length: int) -> int:
        """The used length that is reported for a chain of which `length` is right."""
        wrong = self.lengths.get(kind)
        return length if wrong is None else wrong(chain, length)


NONE = Quirk({})

QUIRKS: dict[str, Quirk] = {
    "none": NONE,
    "cloud-hypervisor": Quirk({"request": status_left_out, "control": all_counts,
                               "sent": all_counts, "pfns": all_counts}, status_size=4),
    "firecracker": Quirk({"request": status_left_out}, status_size=4),
}
