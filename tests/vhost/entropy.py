# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A virtio entropy device (VirtIO 1.3, 5.4).  It counts the bytes that it has given."""

from __future__ import annotations

import os

import device
import ring


class Entropy(device.Device):
    """The device, which fills each buffer."""

    type_id = 4
    config_size = 0

    def process(self, queue: ring.Queue) -> None:
        """Handle all chains in a queue."""
        while (chain := queue.pop()) is not None:
            data = os.urandom(chain.room())
            given = ring.scatter(self.memory, chain.writable, data)
            self.count("given", given)
            queue.complete(chain, given)
