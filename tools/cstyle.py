# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
#
"""Rules for C that the compiler has not: style(9), and those of CONTRIBUTING.md.

check() returns what is wrong with one file, a line each.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

# In sys/dev as in FreeBSD; a message, which is grepped for, stays whole there (style(9)).
COLUMNS = 104
SUITE_COLUMNS = 80
LINES = 1500
SUITE = ("sys/dev/pv/", "sys/dev/virtio/", "sys/dev/xen/")
STRING = r'"(?:[^"\\\n]|\\.)*"'
MESSAGE = re.compile(rf"\s+{STRING}[^\w]*$")
KEYWORD = re.compile(r"\b(?:if|for|while|switch|return)\(")
# A function's name is at the start of a line, below its type, and its brace on the next one; unless
# all of it is on one line.
TYPE_BEFORE_NAME = re.compile(
    r"^(?!(?:typedef|return|else|extern)\b)(?:[a-z_]\w* +\**)+(\w+)\([^;{}=]*\)\s*\{(?!.*\}$)",
    re.M)
BRACE_BESIDE = re.compile(r"^\w+\([^;{}=]*\) *\{", re.M)
OLD_PARAMETERS = re.compile(r"^\w+\([\w, ]+\)\n(?:\t[^;{}\n]*;\n)+\{", re.M)
NO_PARAMETERS = re.compile(r"^(?:[a-z_][\w *]*[ *])?(\w+)\(\)(?=;|\n\{| \{)", re.M)
FORWARD = re.compile(r"^static [^;{}=#()]*?\b(\w+)\([^;{}]*\)[^;{}=]*;", re.M)
FUNCTION = re.compile(r"^(\w+)\([^;{}=]*\)\n\{\n(.*?)^\}", re.M | re.S)
# MIN() and MAX() evaluate an argument twice, and what a function returns may have changed: min(),
# ulmin() and the like of libkern(9) are there for it.  Macros that compute alone may be called.
TWICE = re.compile(r"\b(?:MIN|MAX)\(")
PURE = re.compile(
    r"[(, *!-](?!(?:MIN|MAX|sizeof|nitems|howmany|roundup2?|rounddown2?|atop|ptoa|flsl|offsetof)\b)"
    r"[a-z_][a-z0-9_]*\(")
CONTROL = re.compile(
    r"(?:\} )?(?:else if|if|for|while|switch|FOREACH_\w+|[A-Z_]+_FOREACH\w*) ?\(")
# Of FreeBSD, in folders where the tree has nothing of its own.
KNOWN_HEADERS = {
    "sys/crypto/sha2/sha256.h", "sys/dev/pci/pci_private.h", "sys/dev/pci/pcib_private.h",
    "sys/dev/pci/pcivar.h", "sys/dev/random/randomdev.h", "sys/xen/evtchn/evtchnvar.h",
    "sys/xen/gnttab.h", "sys/xen/hypervisor.h", "sys/xen/xen-os.h", "sys/xen/xen_intr.h",
    "sys/xen/xenbus/xenbusvar.h", "sys/xen/xenstore/xenstore_internal.h",
    "sys/xen/xenstore/xenstorevar.h",
}
# In the head of each source of the tree kernel, whose files have FreeBSD's names.
TREE_KERNEL = " * A file of the tree kernel (CONTRIBUTING.md)."


def blank(text: str) -> str:
    """Return a source with comments and strings made empty, on the same lines."""
    text = re.sub(rf"({STRING}|'(?:[^'\\\n]|\\.)+')|/\*.*?\*/",
                  lambda m: '""' if m[1] else "\n" * m[0].count("\n"), text, flags=re.S)
    return re.sub(r"[ \t]+$", "", text, flags=re.M)


def line_of(text: str, at: int) -> int:
    """Return the number of the line at a place."""
    return text.count("\n", 0, at) + 1


def shape(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Files and lines of a length to be read, and nothing at the ends of lines."""
    lines = text.splitlines()
    columns = SUITE_COLUMNS if path.startswith("sys/dev/") else COLUMNS
    for number, line in enumerate(lines, 1):
        most = COLUMNS if MESSAGE.match(line) else columns
        if (width := len(line.expandtabs(8))) > most:
            yield number, f"{width} columns"
        if line.endswith((" ", "\t")):
            yield number, "blank at the end of the line"
        if re.search(r"\b(?:XXX|TODO|FIXME)\b", line):
            yield number, "a doubt: decide it"
    if len(lines) > LINES:
        yield 0, f"{len(lines)} lines"


def balanced(text: str, start: int) -> str:
    """Return what is between the parenthesis before start and its other one."""
    depth = 1
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return text[start:at]
    return text[start:]


def evaluated_once(code: str) -> Iterator[tuple[int, str]]:
    """Arguments of MIN() and MAX()."""
    for m in TWICE.finditer(code):
        if PURE.search("(" + balanced(code, m.end())):
            yield line_of(code, m.start()), f"{m[0]} calls a function twice: min(), ulmin() ..."


def layout(code: str) -> Iterator[tuple[int, str]]:
    """Blanks and braces."""
    for m in KEYWORD.finditer(code):
        yield line_of(code, m.start()), f"no blank in `{m[0]}'"
    for m in TYPE_BEFORE_NAME.finditer(code):
        yield line_of(code, m.start(1)), f"the name of {m[1]}() begins a line, below its type"
    for m in BRACE_BESIDE.finditer(code):
        yield line_of(code, m.end()), "the brace of a function is on a line of its own"
    for m in OLD_PARAMETERS.finditer(code):
        yield line_of(code, m.start()), "types of parameters are in the parentheses"
    for m in NO_PARAMETERS.finditer(code):
        yield line_of(code, m.start(1)), f"{m[1]}() without parameters has (void)"


def indents(code: str) -> Iterator[tuple[int, str]]:
    """Statements are as far to the right as their block; what continues one, four blanks more."""
    block, depth, tabs = [0], 0, 0  # block: tabs of its statements, tabs: those of this statement
    begins, below, macro = True, False, False  # below: the one statement of an if without braces
    control = False
    for number, line in enumerate(code.splitlines(), 1):
        inside = line.strip()
        macro, in_macro = line.endswith("\\") and (macro or line.startswith("#")), macro
        if not inside or in_macro or line.startswith("#"):
            continue
        has = len(line) - len(line.lstrip("\t"))
        if (blanks := len(line[has:]) - len(line[has:].lstrip(" "))) not in (0, 4):
            yield number, f"{blanks} blanks: tabs, and four blanks to continue"
        if begins and not depth:
            want = tabs + 1 if below else block[-1]
            label = re.match(r"(case\b.*|default):", inside)
            want = max(want - bool(label or inside.startswith("}")), 0)
            free = inside.startswith("else") or (re.fullmatch(r"\w+:", inside) and not label)
            if not free and has != want and not blanks:
                yield number, f"{has} tabs, and not {want}"
        if begins or re.match(r"\{|(?:\} )?else$", inside):
            tabs, control = has, bool(CONTROL.match(inside))
        for sign in inside:
            if sign in "([":
                depth += 1
            elif sign in ")]":
                depth -= 1
            elif sign == "{":
                block.append(tabs + 1)
            elif sign == "}" and len(block) > 1:
                block.pop()
        below = depth == 0 and ((control and inside.endswith(")")) or
                                re.fullmatch(r"(?:\} )?else|do", inside) is not None)
        begins = depth == 0 and (below or inside.endswith((";", "{", "}", ":")))


def forward(code: str) -> Iterator[tuple[int, str]]:
    """Declarations of functions that are defined below, but where two call each other."""
    bodies = {m[1]: (m.start(), m[2]) for m in FUNCTION.finditer(code)}
    calls = {name: set(re.findall(r"\w+", body)) & bodies.keys()
             for name, (_, body) in bodies.items()}
    for m in FORWARD.finditer(code):
        if m[1] not in bodies:
            continue
        reached, more = set[str](), {m[1]}
        while more:
            reached |= more
            more = set().union(*(calls[name] for name in more)) - reached
        if not any(m[1] in calls[name] and place < bodies[m[1]][0]
                   for name, (place, _) in bodies.items() if name in reached):
            yield line_of(code, m.start()), f"{m[1]}() can be defined here: no forward declaration"


def includes(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Each header once, by its name below sys/; the suite has none of the tree kernel's own."""
    seen = set[str]()
    for m in re.finditer(r'^#\s*include\s+([<"])([^>"]+)[>"]', text, re.M):
        number, name = line_of(text, m.start()), m[2]
        if name in seen:
            yield number, f"{name} is included twice"
        seen.add(name)
        if path.startswith("sys/") and name.startswith("."):
            yield number, f"{name}: by its name below sys/"
        if path.startswith(SUITE):
            if m[1] == '"' and not re.fullmatch(r"\w+_if\.h|opt_\w+\.h", name):
                yield number, f'"{name}": <dev/...>'
            if name.endswith("_tree.h"):
                yield number, f"{name} is not FreeBSD's"
    if {"sys/param.h", "sys/types.h"} <= seen:
        yield 0, "<sys/param.h> has <sys/types.h>"


def header(path: str, text: str) -> Iterator[tuple[int, str]]:
    """A header of the tree kernel has FreeBSD's name, or is called *_tree.h and says why."""
    if path.endswith("_tree.h"):
        if not re.search(r"^ \* Not FreeBSD's[:,]", text, re.M):
            yield 0, "no line `Not FreeBSD's: ...'"
    elif not path.startswith(("sys/cmd/", *SUITE)) and path not in KNOWN_HEADERS:
        yield 0, "not known as a header of FreeBSD's: *_tree.h?"


def owner(path: str, text: str) -> Iterator[tuple[int, str]]:
    """A source of the tree kernel says in its head that it is one, and no other does."""
    ours = path.startswith("sys/") and not path.startswith(SUITE)
    if (TREE_KERNEL in text[:300]) != ours:
        yield 0, f"{'lacks' if ours else 'has'} the line `{TREE_KERNEL.strip(' *')}'"


def check(path: str) -> list[str]:
    """Return what is wrong with a file, whose path is that below the top."""
    text = pathlib.Path(path).read_text()
    code = blank(text)
    found = list(shape(path, text))
    if "SPDX-License-Identifier: BSD-2-Clause" not in text:
        found.append((0, "no licence line"))
    if path.endswith((".c", ".h")):
        found += [*layout(code), *indents(code), *includes(path, text)]
        if path.startswith("sys/dev/"):
            found += evaluated_once(code)
    if path.endswith(".c"):
        found += [*forward(code), *owner(path, text)]
    if path.endswith(".h") and path.startswith("sys/"):
        found += header(path, text)
    return [f"{path}:{number}: {what}" if number else f"{path}: {what}"
            for number, what in sorted(found)]
