#
# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#
"""The drivers' tables of tunables (PV_TUNABLES in sys/dev), compared with the manual pages.

Each entry of a table has to be an .It of a page in share/man/man4, for all devices and, with
PVT_DEVICE, for one, whose text has its range and default: `1 to 3600; the default is 10' or `0 or
1; the default is 0'.  Each .It of the pages that has such a text, or is in a section LOADER
TUNABLES, has to be an entry of a table.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
ENTRY = re.compile(r'PV_TUNABLE\(("\w+"|\w+),([^,]+),([^,]+),([^,]+),([^,]+),\s*"')
TEXT = re.compile(r'PV_TUNABLE_TEXT\(("\w+"),\s*\w+,([^,]+),\s*"')
SHARED = re.compile(r"#define\s+(PV_\w+_TUNABLES)\b((?:.*\\\n)*.*\n)")
SET = re.compile(r'PV_TUNABLES\(\w+, (\w+), "([\w.]+)", (\w+),')
ARRAY = re.compile(r"struct pv_tunable (\w+)\[\] = \{\n(.*?)\n\};", re.S)
RANGE = re.compile(r"(-?\d+) (?:to|or) (-?\d+); the default is (-?\d+)")
# Which no table has: lists of devices, which are parsed when a device is looked for.
LISTS = {"hw.pv.disable"}


class Tunable(NamedTuple):
    """An entry of a table; a text has the range 0 to 0."""

    name: str
    default: set[int]
    low: int
    high: int
    flags: str

    @property
    def is_text(self) -> bool:
        """Is it a text?"""
        return not self.default

    @property
    def defaults(self) -> str:
        """Return the default, or those of kernels with and without INVARIANTS."""
        return "|".join(map(str, sorted(self.default)))

    def lacks(self, text: str) -> str | None:
        """Return what a page's text has to have, if it does not."""
        m = RANGE.search(text)
        if self.is_text or (
            m and (int(m[1]), int(m[2])) == (self.low, self.high) and int(m[3]) in self.default
        ):
            return None
        word = "or" if self.high - self.low == 1 else "to"
        return f"{self.low} {word} {self.high}; the default is {self.defaults}"

    def names(self) -> list[str]:
        """Return its names in the pages."""
        top, _, last = self.name.rpartition(".")
        return [self.name] + ([f"{top}.N.{last}"] if "PVT_DEVICE" in self.flags else [])


def constants(sources: dict[pathlib.Path, str]) -> dict[str, set[int]]:
    """Return the values of macros that are numbers."""
    define = re.compile(r"^#define\s+(\w+)\s+(\d+|0x[0-9a-f]+)\b(?!.*\\)", re.M)
    found = {"INT_MAX": {2**31 - 1}}
    for text in sources.values():
        for name, value in define.findall(text):
            found.setdefault(name, set()).add(int(value, 0))
    return found


def entries(text: str, prefix: str, known: dict[str, set[int]]) -> list[Tunable]:
    """Return the entries of a table's text."""

    def number(word: str) -> set[int]:
        word = word.strip()
        return {int(word, 0)} if re.fullmatch(r"-?\d\w*", word) else known[word]

    found = [
        Tunable(prefix + m[1].strip('"'), number(m[2]), min(number(m[3])), max(number(m[4])), m[5])
        for m in ENTRY.finditer(text)
    ]
    found += [Tunable(prefix + m[1].strip('"'), set(), 0, 0, m[2]) for m in TEXT.finditer(text)]
    return found


def tables() -> list[Tunable]:
    """Return the entries of all tables."""
    paths = sorted((TOP / "sys/dev").rglob("*.[ch]"))
    sources = {path: path.read_text() for path in paths if path.name != "pv_tunable.h"}
    known = constants(sources)
    shared, arrays = dict[str, str](), dict[str, str]()
    for text in sources.values():
        shared |= {m[1]: m[2].replace("\\\n", "\n") for m in SHARED.finditer(text)}
        arrays |= {m[1]: m[2] for m in ARRAY.finditer(text)}
    found = []
    for text in sources.values():
        for m in SET.finditer(text):
            body = arrays[m[3]]
            for name, macro in shared.items():
                body = body.replace(name, macro)
            entry = entries(body, f"{m[1]}.{m[2]}.", known)
            if (n := len(re.findall(r"\bPV_TUNABLE(?:_TEXT)?\(", body))) != len(entry):
                raise ValueError(f"{m[3]}: {len(entry)} of {n} entries can be read")
            found += entry
    return found


class Item(NamedTuple):
    """An .It of a page, or several for one text."""

    place: str
    names: list[str]
    text: str
    loader: bool


def items(page: pathlib.Path) -> list[Item]:
    """Return the items of a page that name variables of hw or vm."""
    found: list[Item] = []
    section, names, text, place = "", list[str](), list[str](), ""

    def finish() -> None:
        if names:
            found.append(Item(place, names.copy(), " ".join(text), section == "LOADER TUNABLES"))
        names.clear()
        text.clear()

    for number, line in enumerate([*page.read_text().splitlines(), ".El"], 1):
        if line.startswith(".It Va ") and "Ta" not in line.split():
            if text:
                finish()
            name = re.sub(r" Ns (?:Ar|Va) ", "", line.removeprefix(".It Va "))
            if re.match(r"(?:hw|vm)\.", name):
                place = f"{page.relative_to(TOP)}:{number}"
                names.append(name)
        elif line.startswith((".It", ".El", ".Sh", ".Ss")):
            finish()
            section = line[4:] if line.startswith(".Sh") else section
        else:
            text.append(line.replace("\\-", "-"))
    return found


def check(found: list[Tunable]) -> list[str]:
    """Return what differs between the tables and the pages."""
    wrong = []
    pages = [item for page in sorted((TOP / "share/man/man4").glob("*.4")) for item in items(page)]
    named = {name: item for item in reversed(pages) for name in item.names}
    known = {name: t for t in found for name in t.names()}
    wrong += [f"{name}: in a table, but no .It of a page" for name in known if name not in named]
    for item in pages:
        for name in item.names:
            t = known.get(name)
            if t is None:
                if (item.loader or RANGE.search(item.text)) and name not in LISTS:
                    wrong.append(f"{item.place}: {name}: in no table")
            elif lacks := t.lacks(item.text):
                wrong.append(f"{item.place}: {name}: lacks `{lacks}'")
    return wrong
