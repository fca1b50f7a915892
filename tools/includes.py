# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#
"""Which headers the suite's files include in vain, and which they use without including them.

A header is included in vain if the file has no name that it or those that it includes declare, and
no other header of the file has one.  One of the suite's is missing where a source has a name of its
and it is not included, other than by a header of the source's own folder or by one that this
includes; a pointer to a structure needs none.  (Headers, as FreeBSD's, do not include what they
need.)
"""

from __future__ import annotations

import functools
import pathlib
import re

import cstyle

TOP = pathlib.Path(__file__).resolve().parent.parent
PLACES = ("sys", "obj/sysroot/freebsd-amd64", "obj/sysroot/freebsd", "obj/GENERIC",
          "obj/sysroot/xen", "obj/sysroot/ck")
# What FreeBSD's other headers or macros take for granted in some release.
ALWAYS = {"sys/param.h", "sys/systm.h", "sys/types.h", "sys/kernel.h", "sys/module.h", "sys/lock.h",
          "machine/bus.h"}
INCLUDE = re.compile(r"^\s*#\s*include\s+[<\"]([^>\"]+)[>\"]", re.M)
# What declares a name: in any header, and in one that is written by style(9).
ANY = [re.compile(pattern, re.M) for pattern in (
    r"^\s*#\s*define\s+(\w+)", r"\b(?:struct|union|enum)\s+(\w+)\s*\{", r"\}\s*(\w+)\s*;",
    r"\btypedef\b[^;{]*?(\w+)\s*(?:\[[^]]*\])?\s*;", r"\btypedef\b[^;(]*?\b(\w+)\s*\(",
    r"\btypedef\b[^;]*\(\s*\*?\s*(\w+)\s*\)\s*\(", r"\b(\w+)\s*\([^;{}]*\)[^;{}=]*[;{]",
    r"\bextern\b[^;]*?\b(\w+)\s*(?:\[[^]]*\])*\s*;")]
OURS = [re.compile(pattern, re.M) for pattern in (
    r"^#\s*define\s+(\w+)", r"^(?:struct|union|enum) (\w+) \{", r"^(\w+)\(",
    r"^[a-z][\w \t*]*[ \t*](\w+)\(", r"^extern [^;]*?\b(\w+)(?:\[\w*\])*;")]
KEYWORDS = {"return", "if", "while", "for", "switch", "sizeof", "defined", "void", "int", "do"}
ENUM = re.compile(r"\benum\s+\w*\s*\{([^}]*)\}")
TAG = re.compile(r"^struct (\w+) \{", re.M)


@functools.cache
def find(name: str) -> pathlib.Path | None:
    """Return the header of a name, if it is there."""
    paths = (TOP / place / name for place in PLACES)
    return next((path for path in paths if path.is_file()), None)


@functools.cache
def code(path: pathlib.Path) -> str:
    """Return a file's text without comments, strings and includes."""
    return INCLUDE.sub("", cstyle.blank(path.read_text(errors="replace")))


@functools.cache
def included(path: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the headers of a file that are there."""
    names = INCLUDE.findall(path.read_text(errors="replace"))
    return {name: found for name in names if (found := find(name))}


@functools.cache
def words(path: pathlib.Path) -> frozenset[str]:
    """Return the words of a file."""
    return frozenset(re.findall(r"\b[A-Za-z_]\w+", code(path)))


@functools.cache
def declared(path: pathlib.Path) -> frozenset[str]:
    """Return the names that a header declares."""
    ours = str(path.relative_to(TOP)).startswith(cstyle.SUITE)
    found = {name for pattern in (OURS if ours else ANY) for name in pattern.findall(code(path))}
    for body in ENUM.findall(code(path)):
        found |= set(re.findall(r"\b[A-Z]\w+", body))
    return frozenset(found - KEYWORDS)


@functools.cache
def brought(path: pathlib.Path, depth: int = 3) -> frozenset[str]:
    """Return the names of a header and of those that it includes."""
    more = [brought(other, depth - 1) for other in included(path).values()] if depth else []
    return declared(path).union(*more)


def in_vain(path: pathlib.Path, users: list[pathlib.Path]) -> list[str]:
    """Return the headers that a file, or for its users a header, includes in vain."""
    headers, found = included(path), []
    has = frozenset().union(words(path), *map(words, users))
    for name, header in headers.items():
        if name in ALWAYS or re.match(r"opt_|.*_if\.h", name):
            continue
        others = [other for other in headers.values() if other != header]
        own = brought(header) - (frozenset().union(*map(declared, others)) - declared(header))
        if own & has or any(brought(header) & words(other) - declared(other)
                                    for other in others):
            continue
        found.append(name)
    return found


@functools.cache
def near(path: pathlib.Path) -> frozenset[pathlib.Path]:
    """Return a file's headers, those of its folder's headers, and what these include in turn."""
    seen, left = set[pathlib.Path](), [path]
    while left:
        for header in included(left.pop()).values():
            if header not in seen:
                seen.add(header)
                left += [header] if header.parent == path.parent else []
    folder = [header for header in seen if header.parent == path.parent]
    more = [included(header).values() for own in folder for header in included(own).values()]
    return frozenset(seen.union(*more))


def missing(path: pathlib.Path, headers: list[pathlib.Path]) -> list[str]:
    """Return the suite's headers that a file uses and does not include, with a name of each."""
    here, found = near(path) | {path}, []
    known = frozenset().union(*map(declared, here))
    for header in headers:
        names = declared(header) - set(TAG.findall(code(header)))
        if header not in here and (used := names & words(path) - known):
            found.append(f"{header.relative_to(TOP / 'sys')} for {min(used)}")
    return found


def check() -> list[str]:
    """Return what is wrong in the suite's files."""
    files = [path for folder in cstyle.SUITE for path in sorted((TOP / folder).rglob("*.[ch]"))]
    headers = [path for path in files if path.suffix == ".h"]
    wrong = []
    for path in files:
        place = path.relative_to(TOP)
        users = [other for other in files if path.suffix == ".h" and path in near(other)]
        wrong += [f"{place}: <{name}> is included in vain" for name in in_vain(path, users)]
        if path.suffix == ".c":
            wrong += [f"{place}: lacks {what}" for what in missing(path, headers)]
    return wrong
