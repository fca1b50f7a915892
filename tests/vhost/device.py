# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What the devices have in common: features, configuration, queues, violations, commands.

A transport (vhostuser.py, pciproxy.py) fills in the queues and calls kicked(); it gives the device
a way to notify the driver of a changed configuration.  Everything runs with the device's lock held.
"""

from __future__ import annotations

import argparse
import copy
import threading
import time
from collections.abc import Callable
from typing import Any

import memory
import quirks
import ring
import violations

RING_FEATURES = {
    "NOTIFY_ON_EMPTY": 24, "ANY_LAYOUT": 27, "INDIRECT_DESC": 28, "EVENT_IDX": 29, "VERSION_1": 32,
    "ACCESS_PLATFORM": 33, "RING_PACKED": 34, "IN_ORDER": 35, "ORDER_PLATFORM": 36,
    "NOTIFICATION_DATA": 38, "NOTIF_CONFIG_DATA": 39, "RING_RESET": 40,
}
RING_DEFAULTS = ["INDIRECT_DESC", "EVENT_IDX", "VERSION_1"]


class CommandError(Exception):
    """A command that failed, with a message of one line."""


class Device:
    """A device without a transport."""

    type_id = 0
    queues_of_type = 1
    feature_names: dict[str, int] = {}  # noqa: RUF012 (a constant of each class)
    default_features: list[str] = []  # noqa: RUF012
    # Field of the configuration: (offset, bytes).
    fields: dict[str, tuple[int, int]] = {}  # noqa: RUF012
    config_size = 64
    # Field that the driver writes: whether before DRIVER_OK (False), after it (True).
    written: dict[str, tuple[bool, ...]] = {}  # noqa: RUF012

    def __init__(self, args: argparse.Namespace) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.counters: dict[str, int] = {}
        self.teller = violations.Teller()
        self.teller.count = self.count
        self.quirk = quirks.QUIRKS[args.quirk]
        self.memory = memory.Memory()
        self.names = RING_FEATURES | self.feature_names
        self.features = 0
        for name in RING_DEFAULTS + self.default_features + args.offer:
            self.features |= self.bit(name)
        for name in args.withhold:
            self.features &= ~self.bit(name)
        self.agreed = 0
        self.config = bytearray(self.config_size)
        self.queues = [self.new_queue(i) for i in range(args.queues or self.queues_of_type)]
        self.announce_config: Callable[[], None] = lambda: None
        self.transport: Callable[[list[str]], Any] | None = None
        self.registers: Callable[[], dict[str, Any]] = dict
        self.remembered: dict[str, Any] = {}
        self.counted: dict[str, int] = {}
        self.late = 0
        self.ignored: set[int] = set()

    def new_queue(self, index: int) -> ring.Queue:
        """Make a queue with counters."""
        queue = ring.Queue(self.memory, index, self.teller)
        queue.count = self.count
        return queue

    def bit(self, name: str) -> int:
        """The mask of a feature, by name or number."""
        if name in self.names:
            return 1 << self.names[name]
        try:
            return 1 << int(name, 0)
        except ValueError:
            raise CommandError(f"no such feature: {name}") from None

    def has(self, name: str) -> bool:
        """Was this feature negotiated?"""
        return bool(self.agreed & self.bit(name))

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self.lock:
            self.counters[name] = self.counters.get(name, 0) + by
            self.changed.notify_all()

    def set_config(self, setting: str) -> None:
        """Set FIELD=VALUE in the configuration; a value of hex digits with colons is bytes."""
        name, _, value = setting.partition("=")
        if name not in self.fields:
            raise CommandError(f"no such field: {name}; there are {' '.join(self.fields)}")
        offset, size = self.fields[name]
        data = bytes.fromhex(value.replace(":", "")) if ":" in value else (
            int(value, 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        self.config[offset:offset + size] = data

    def check_written(self, at: int, live: bool) -> None:
        """Check that the driver may write this field now: ValueError if not."""
        for name, (offset, size) in self.fields.items():
            if offset <= at < offset + size and name in self.written:
                if live not in self.written[name]:
                    raise ValueError(f"the driver writes {name} {'after' if live else 'before'}"
                                     " DRIVER_OK")
                return
        raise ValueError(f"the driver writes its configuration at {at:#x}")

    def forget(self) -> None:
        """Lose what a reset takes away."""

    def settings(self) -> dict[str, Any]:
        """All that the driver has set, but the addresses of rings."""
        return {"features": [name for name in self.names if self.has(name)],
                "queues": {queue.index: queue.parts.size for queue in self.queues if queue.live},
                **self.registers()}

    def remember(self) -> dict[str, Any]:
        """Remember what the driver has set, and what was counted until now."""
        with self.lock:
            self.remembered, self.counted = copy.deepcopy(self.settings()), dict(self.counters)
            return self.remembered

    def same(self, seconds: float, counter: str) -> dict[str, Any]:
        """Wait until what the driver has set is what it was when that was remembered.

        A counter must have risen since, of starts for example, or it is "-".
        """
        end = time.monotonic() + seconds
        while True:
            with self.lock:
                now = self.settings()
                # A group may be joined meanwhile.
                wrong = [f"{name} is {now.get(name)}, not {value}"
                         for name, value in self.remembered.items() if now.get(name) != value
                         and (name != "groups" or not set(value) <= set(now[name]))]
                if counter != "-" and self.counters.get(counter) == self.counted.get(counter):
                    wrong.append(f"still {self.counters.get(counter)} {counter}")
                if not wrong:
                    self.counted = dict(self.counters)
                    return now
            if time.monotonic() > end:
                raise CommandError("; ".join(wrong))
            time.sleep(0.02)

    def agree(self, features: int) -> None:
        """The driver accepted these features."""
        self.agreed = features
        for queue in self.queues:
            queue.features = features

    def started(self, queue: ring.Queue) -> None:
        """A queue was started; a device that completes requests after a reset does so now."""
        if self.late > 0 and queue.gone:
            self.late -= 1
            self.count("late")
            for head in queue.gone:
                queue.ring.put_used(head, 0)
            queue.always_notify = True
            queue.publish()
            queue.start()
            queue.gone = []
        self.count("starts")
        self.kicked(queue)

    def stopped(self, queue: ring.Queue) -> int:
        """A queue was stopped."""
        self.count("stops")
        return queue.stop()

    def let_go(self) -> None:
        """The driver is about to see that the reset has finished."""

    def kicked(self, queue: ring.Queue) -> None:
        """The driver notified the device of a queue."""
        if queue.index in self.ignored:
            return
        self.count("kicks")
        while queue.live and self.wants(queue):
            self.process(queue)
            queue.publish()
            if not queue.ask_kicks():
                return

    def wants(self, queue: ring.Queue) -> bool:
        """Can the device use the chains in a queue now?"""
        return True

    def process(self, queue: ring.Queue) -> None:
        """Process the chains in a queue."""
        raise NotImplementedError

    def release(self) -> None:
        """Answer the chains that were held back."""
        for queue in self.queues:
            held, queue.held = queue.held, []
            queue.early.extend(queue.passed)
            queue.passed.clear()
            for chain, length in held:
                queue.give(chain, length)
            queue.always_notify = True
            queue.publish()
            queue.always_notify = False

    def interrupt_storm(self, seconds: float) -> None:
        """Send interrupts without work, as fast as possible."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self.lock:
                for queue in self.queues:
                    if queue.live:
                        queue.notify()
                self.count("storm")
            time.sleep(0)

    def config_storm(self, seconds: float, settings: list[str]) -> None:
        """Announce configuration changes continuously, with one setting after the other."""
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            with self.lock:
                self.set_config(settings[number % len(settings)])
                number += 1
                self.announce_config()
                self.count("config_storm")
            time.sleep(0.001)

    def wait(self, name: str, value: int, seconds: float) -> None:
        """Wait until a counter has a value."""
        with self.lock:
            if not self.changed.wait_for(lambda: self.counters.get(name, 0) >= value, seconds):
                raise CommandError(f"{name} is {self.counters.get(name, 0)}, not {value}: "
                                   f"{self.counters}")

    def command(self, words: list[str]) -> Any:
        """Run a command of the control socket; returns what is printed as JSON."""
        match words:
            case ["stats"]:
                return self.counters
            case ["queues"]:
                return [queue.describe() for queue in self.queues if queue.live]
            case ["violate", name, *rest]:
                if name not in violations.VIOLATIONS:
                    raise CommandError(f"no such violation: {name};"
                                       f" there are {' '.join(violations.VIOLATIONS)}")
                numbers = [int(word, 0) for word in rest]
                numbers += [1, 0, -1][len(numbers):]
                with self.lock:
                    self.teller.plan(name, *numbers)
                return {}
            case ["honest"]:
                with self.lock:
                    self.teller.honest()
                    self.late = 0
                    self.ignored.clear()
                    self.release()
                    for queue in self.queues:
                        self.kicked(queue)
                return self.counters
            case ["late", count]:
                self.late = int(count)
                return {}
            case ["ignore", *queues]:
                with self.lock:
                    before, self.ignored = self.ignored, {int(queue) for queue in queues}
                    for index in before - self.ignored:
                        self.kicked(self.queues[index])
                return {}
            case ["set", *settings]:
                with self.lock:
                    for setting in settings:
                        self.set_config(setting)
                    self.announce_config()
                return {}
            case ["storm", "interrupts", seconds]:
                self.interrupt_storm(float(seconds))
                return self.counters
            case ["storm", "config", seconds, *settings]:
                self.config_storm(float(seconds), settings)
                return self.counters
            case ["remember"]:
                return self.remember()
            case ["same", seconds, counter]:
                return self.same(float(seconds), counter)
            case ["wait", name, value, seconds]:
                self.wait(name, int(value), float(seconds))
                return self.counters
        if self.transport is not None:
            return self.transport(words)
        raise CommandError(f"no such command: {' '.join(words)}")
