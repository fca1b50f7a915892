# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#
"""Set each tunable and sysctl of the drivers to values in, at and out of its range.

walk.py TOP commands prints what a guest has to run; walk.py TOP check reads its output, and says
what is not so.  What there is, and the ranges, are the drivers' tables (tools/sysctls).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import NamedTuple

MODULES = ["if_vtnet", "virtio_blk", "virtio_balloon"]
XEN_MODULES = ["if_xn", "xbd", "xen_balloon"]
KINDS = ("below", "lowest", "highest", "above", "text", "empty")
# Sysctls of a device that no tunable gives the range: handlers check them.
SETTINGS = {
    "dev.vtblk.0.batch": (1, 64),
    "dev.vtblk.0.histogram": (0, 1),
    "dev.vtblk.0.reset": (0, 1),
    "dev.vtnet.0.queue_pairs": (1, 1),
}
# Those that a tunable gives the range.
OF_TUNABLES = {
    "dev.vtblk.0.timeout": "hw.vtblk.timeout",
    "dev.vtblk.0.timeout_reset": "hw.vtblk.timeout_reset",
    "dev.vtnet.0.rx_budget": "hw.vtnet.rx_process_limit",
    "dev.vtnet.0.tx_kick": "hw.vtnet.tx_kick",
}


class Tunable(NamedTuple):
    """A line of `tools/sysctls tunables'."""

    name: str
    default: str
    low: int
    high: int
    flags: str


def value(kind: str, low: int, high: int) -> str:
    """Return a value of this kind."""
    numbers = {"below": low - 1, "lowest": low, "highest": high, "above": high + 1}
    return str(numbers[kind]) if kind in numbers else {"text": "7up", "empty": ""}[kind]


def tunables(top: str, in_freebsd: bool) -> list[Tunable]:
    """Return those that are numbers, of the modules that are loaded."""
    out = subprocess.run([f"{top}/tools/sysctls", "tunables"], check=True, stdout=subprocess.PIPE)
    found = []
    for line in out.stdout.decode().splitlines():
        name, default, low, high, flags = line.split()
        if default != '""' and not (in_freebsd and re.match(r"hw\.x", name)):
            found.append(Tunable(name, default, int(low), int(high), flags))
    return found


def of_device(t: Tunable) -> str | None:
    """Return the tunable's name for the guest's device, if it has one."""
    top, _, last = t.name.rpartition(".")
    return f"{top}.0.{last}" if "PVT_DEVICE" in t.flags and not top.startswith("hw.x") else None


def settings(found: list[Tunable]) -> dict[str, tuple[int, int]]:
    """Return the sysctls that can be written, with their ranges."""
    ranges = {t.name: (t.low, t.high) for t in found}
    writable = {t.name: ranges[t.name] for t in found if "PVT_RW" in t.flags}
    return SETTINGS | writable | {name: ranges[of] for name, of in OF_TUNABLES.items()}


def commands(found: list[Tunable], modules: list[str]) -> list[str]:
    """Return the guest's commands: a round for each kind of value, and at last the sysctls."""
    lines = []
    for kind in KINDS:
        for t in found:
            for name in filter(None, (t.name, of_device(t))):
                lines.append(f"kenv {name}={value(kind, t.low, t.high)}")
        lines += [f"echo round {kind}", *(f"kldload {module}" for module in modules)]
        # Nodes are printed with all that is below them, and hw.virtio.pci is below another one.
        lines += ["sysctl " + " ".join(sorted({".".join(t.name.split(".")[:2]) for t in found}))]
        if kind != KINDS[-1]:
            lines += ["kldunload " + " ".join(modules)]
    for kind in KINDS:
        for name, (low, high) in settings(found).items():
            lines += [f"echo setting {name} {kind}", f"sysctl {name}={value(kind, low, high)}"]
            lines += [f"sysctl {name}"]
    return lines


def sections(lines: list[str], word: str) -> dict[str, list[str]]:
    """Return the lines after each `word ...', up to the next of any word."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if re.match(r"(?:round|setting) ", line):
            current = []
            if line.startswith(word):
                found[line.removeprefix(word).strip()] = current
        else:
            current.append(line)
    return found


def check_round(found: list[Tunable], kind: str, lines: list[str]) -> list[str]:
    """Return what is wrong with the tunables of a round."""
    wrong = []
    valid = kind in {"lowest", "highest"}
    for t in found:
        text = value(kind, t.low, t.high)
        shown = [line.removeprefix(f"{t.name}: ") for line in lines if f"{t.name}: " in line]
        expected = [text] if valid else t.default.split("|")
        if len(shown) != 1 or shown[0] not in expected:
            wrong.append(f"{kind}: {t.name}: {shown}, not {expected}")
        for name in filter(None, (t.name, of_device(t))):
            said = [line for line in lines if line.startswith(f'{name}="{text}" is not')]
            words = f'{name}="{text}" is not from {t.low} to {t.high}: '
            if valid and said:
                wrong.append(f"{kind}: {said}")
            elif not valid and said not in [[f"{words}{number} is used"] for number in expected]:
                wrong.append(f"{kind}: {name}: {said}, not `{words}...'")
    return wrong


def check_settings(found: list[Tunable], lines: list[str]) -> list[str]:
    """Return what is wrong with the sysctls, which only values of the range may change."""
    wrong = []
    parts = sections(lines, "setting")
    for name, (low, high) in settings(found).items():
        before = None
        for kind in KINDS:
            part = parts[f"{name} {kind}"]
            text = value(kind, low, high)
            shown = rf"{re.escape(name)}: (-?\d+)"
            now = [m[1] for m in map(re.compile(shown).fullmatch, part) if m]
            refused = any(f"{name}={text}: Invalid argument" in line for line in part)
            if kind in {"below", "above"} and not refused and abs(int(text)) < 2**31:
                wrong.append(f"{name}={text}: not EINVAL: {part}")
            valid = kind in {"lowest", "highest"}
            # Reset stays 0.
            expected = text if valid and name != "dev.vtblk.0.reset" else before
            # FreeBSD's sysctl(8) prints the old value before the error as well.
            if not now or (expected is not None and now[-1] != expected):
                wrong.append(f"{name}={text}: {now}, not {expected}: {part}")
            before = now[-1] if now else None
    return wrong


def main() -> int:
    """Run the command line."""
    in_freebsd = os.environ.get("GUEST_OS", "tree").startswith("freebsd")
    found = tunables(sys.argv[1], in_freebsd)
    if sys.argv[2] == "commands":
        print("\n".join(commands(found, MODULES + ([] if in_freebsd else XEN_MODULES))))
        return 0
    lines = [line.rstrip() for line in sys.stdin]
    rounds = sections(lines, "round")
    wrong = [problem for kind in KINDS for problem in check_round(found, kind, rounds[kind])]
    wrong += check_settings(found, lines)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
