# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The activity of HVM and PVH guests, from Xen's trace buffer, without any part in the guest.

Xen makes a record of each entry to a guest, of each exit from it, and of each hypercall
(xen/include/public/trace.h; the form of the file is in xentrace(8)).  xentrace in dom0 writes them
to a file, which is read here.  Entries and exits are stamped with the time stamp counter; where the
lab's clock counts instructions, that does so too.
"""

from __future__ import annotations

import collections
import pathlib
import struct
import tempfile
from collections.abc import Callable

from xen.errors import Deadline, LabError
from xen.lab import Lab
from xen.packages import ROOT

XENTRACE = "usr/lib/xen-4.17/bin/xentrace"
PLACE = "/run/xentrace"
FILE = "/run/trace"
HVM_ENTRY_EXIT, HVM_HANDLER = 0x81000, 0x82000
LOST, ENTRY, EXITS, HYPERCALL = 0x1F001, 0x81001, (0x81002, 0x81102), 0x82012


class Trace:
    """What was counted."""

    def __init__(self, data: bytes) -> None:
        self.hypercalls: collections.Counter[int] = collections.Counter()
        self.exits = 0
        self.inside = 0  # ticks of the time stamp counter in the guest
        entered = None
        offset = 0
        while offset + 4 <= len(data):
            (header,) = struct.unpack_from("<I", data, offset)
            event, extra, stamped = header & 0xFFFFFFF, header >> 28 & 7, header >> 31
            words = struct.unpack_from(f"<{2 * stamped + extra}I", data, offset + 4)
            offset += 4 + 4 * len(words)
            now = words[0] | words[1] << 32 if stamped else 0
            if event == LOST:
                raise LabError("Xen's trace buffer was too small")
            if event == ENTRY:
                entered = now
            elif event in EXITS:
                self.exits += 1
                if entered is not None:
                    self.inside += now - entered
                entered = None
            elif event == HYPERCALL:
                self.hypercalls[words[2 * stamped]] += 1


def record(lab: Lab, work: Callable[[], None], deadline: Deadline) -> Trace:
    """Trace what all guests do during some work; they have one vCPU in all."""
    lab.put(ROOT / XENTRACE, PLACE, deadline)
    mask = HVM_ENTRY_EXIT | HVM_HANDLER
    # It has begun when the file is not empty.
    lab.output(f"""chmod +x {PLACE} && rm -f {FILE} && echo >{FILE}.log &&
        ({PLACE} -D -e {mask:#x} -S 256 -s 20 {FILE} >{FILE}.log 2>&1 </dev/null &
         echo $! >{FILE}.pid)
        i=0; until [ -s {FILE} ]; do
            i=$((i + 1)); [ $i -lt 500 ] || {{ cat {FILE}.log; exit 1; }}; sleep 0.01; done""",
               deadline)
    work()
    lab.output(f"""pid=$(cat {FILE}.pid); kill $pid
        i=0; while kill -0 $pid 2>/dev/null; do
            i=$((i + 1)); [ $i -lt 500 ] || exit 1; sleep 0.01; done""", deadline)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace"
        lab.get(FILE, path, deadline)
        return Trace(path.read_bytes())
