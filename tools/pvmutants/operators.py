# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Bugs of one line: what a file of C becomes by each operator.

The sources are style(9), which says where a function's body is, and where a statement begins;
comments, strings, the preprocessor's lines, assertions and messages are left alone.  Every mutant
is a replacement of one stretch of the text.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import re
from collections.abc import Iterator

# No bug of the program, or not one that a test should insist on.
LEFT_ALONE = re.compile(r"\b(?:KASSERT|CTASSERT|MPASS|\w+_ASSERT|\w+_assert|device_printf|printf|"
                        r"log)\s*\(")
COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
               "==": ("!=",), "!=": ("==",)}
KEYWORDS = ("if", "for", "while", "switch", "case", "default", "else", "do", "return", "goto",
            "break", "continue")
ASSIGNMENT = re.compile(r"[\w>\-.\[\]*&() +]*?[\w\])]\s*(?:[-+|&^]|<<|>>)?=(?!=)")
TYPED = re.compile(r"(?:(?:const|static|struct|enum|volatile|unsigned|union)\s|\w+\s+\**\w)")
CALL = re.compile(r"(?:\(void\))?[\w.>\-]+\s*\(")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One bug: the text of a file from start to end becomes another."""

    file: str
    line: int
    operator: str
    start: int
    end: int
    old: str
    new: str
    place: str = ""

    @property
    def name(self) -> str:
        """The same as long as its line is, and as many like it are before it in the file."""
        words = f"{self.file}:{self.place}:{self.operator}:{self.old}:{self.new}"
        return hashlib.sha256(words.encode()).hexdigest()[:8]

    def applied(self, text: str) -> str:
        """The file with the bug."""
        assert text[self.start:self.end] == self.old
        return text[:self.start] + self.new + text[self.end:]


def blank(text: str) -> str:
    """The text with spaces in place of all that is no code."""
    pattern = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|'
                         r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.DOTALL | re.MULTILINE)
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def closing(code: str, at: int) -> int:
    """Behind the parenthesis that closes the one at a place."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] == "(":
            depth += 1
        elif code[i] == ")":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(code)


def bodies(code: str) -> Iterator[tuple[int, int]]:
    """Where the bodies of functions begin and end."""
    for found in re.finditer(r"^\{\n(.*?)^\}$", code, re.DOTALL | re.MULTILINE):
        if code[:found.start()].rstrip().endswith(")"):
            yield found.start(1), found.end(1)


def code_of(text: str) -> str:
    """The bodies of functions, at their places; spaces in place of everything else."""
    code = blank(text)
    kept = [" " if c != "\n" else c for c in code]
    for start, end in bodies(code):
        kept[start:end] = code[start:end]
    result = "".join(kept)
    at = 0
    while (found := LEFT_ALONE.search(result, at)) is not None:
        at = found.end()
        end = closing(result, found.end() - 1)
        result = result[:found.start()] + re.sub(r"[^\n]", " ", result[found.start():end]) \
            + result[end:]
    return result


def statements(code: str) -> Iterator[tuple[int, int]]:
    """Where each statement of an expression begins and ends, its semicolon included."""
    for found in re.finditer(r"^\t+(?=[\w(*+\-])", code, re.MULTILINE):
        start, depth, end = found.end(), 0, found.end()
        if re.match(rf"(?:{'|'.join(KEYWORDS)})\b|\w+:", code[start:]):
            continue
        while end < len(code) and (code[end] != ";" or depth > 0):
            if code[end] in "{}":
                break
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        if end < len(code) and code[end] == ";":
            yield start, end + 1


def kind_of(statement: str) -> str | None:
    """What is removed by removing it; nothing if it declares something."""
    if re.match(r"[^=]*(?:\+\+|--);$", statement) or statement.startswith(("++", "--")):
        return "increment dropped"
    if "atomic_thread_fence" in statement:
        return "fence removed"
    if CALL.match(statement):
        return "call removed"
    if ASSIGNMENT.match(statement) and not TYPED.match(statement):
        return "assignment removed"
    return None


def may_depend(first: str, second: str) -> bool:
    """Whether the order of two statements, of which one at least is a call, may matter.

    It does not where the same function is called for two things, and where what is assigned is no
    part of what the call is given.
    """
    names = [re.match(r"(?:\(void\))?([\w.>\-]+)\s*\(", each) for each in (first, second)]
    if "SYSCTL_ADD_" in first + second:
        return False
    if names[0] and names[1]:
        # Lists and locks are independent before they are used.
        return names[0][1] != names[1][1] and not all(
            re.fullmatch(r"[A-Z]+_INIT|\w+_init", name[1]) for name in names if name)
    call, assigned = (first, second) if names[0] else (second, first)
    words = re.match(r"[^=]*", assigned)
    assert words is not None
    base, member = (re.findall(r"\w+", words[0]) or [""])[0], re.findall(r"\w+", words[0])[-1:]
    whole = re.search(rf"(?<![\w>.]){base}(?!\w|->|\.|\[)", call)
    return bool(whole) or any(re.search(rf"\b{word}\b", call) for word in member)


def of_statements(code: str, text: str) -> Iterator[tuple[str, int, int, str]]:
    """Statements removed, and two that follow each other swapped."""
    before: tuple[int, int, bool] | None = None
    for start, end in statements(code):
        kind = kind_of(code[start:end])
        if kind is None:
            before = None
            continue
        yield kind, start, end, ";"
        # Of two assignments the order seldom matters, and not to who runs one thread.
        calls = kind in ("call removed", "fence removed")
        if before is not None and (calls or before[2]) and not code[before[1]:start].strip() \
                and "\n}" not in text[before[1]:start] \
                and may_depend(code[before[0]:before[1]], code[start:end]):
            yield ("order swapped", before[0], end,
                   text[start:end] + text[before[1]:start] + text[before[0]:before[1]])
        before = (start, end, calls)


def of_conditions(code: str, text: str) -> Iterator[tuple[str, int, int, str]]:
    """Conditions that are always true, or never."""
    for found in re.finditer(r"\bif \(", code):
        start = found.end() - 1
        end = closing(code, start)
        condition = text[start:end]
        kind = "error path" if re.search(r"\berror\b|NULL|E[A-Z]{4,}|broken", condition) else \
            "condition fixed"
        for value in ("true", "false"):
            yield kind, start, end, f"({condition}, {value})"


def of_tokens(code: str, text: str) -> Iterator[tuple[str, int, int, str]]:
    """One operator, constant or word of the code."""
    for found in re.finditer(r"(?<![<>=!\-+|&^*/])(<=|>=|==|!=|<|>)(?![<>=])", code):
        for i, new in enumerate(COMPARISONS[found[1]]):
            inverted = i > 0 or found[1] in ("==", "!=")
            yield ("comparison inverted" if inverted else "off by one", *found.span(1), new)
    for found in re.finditer(r"(?<![\w.])(0x[0-9a-fA-F]+|0|[1-9]\d*)(?![\w.])", code):
        value = int(found[1], 0)
        yield "constant", *found.span(1), str(value + 1)
        if value > 1:
            yield "constant", *found.span(1), str(value - 1)
    for pattern, kind, new in (
            (r"\btrue\b", "constant", "false"), (r"\bfalse\b", "constant", "true"),
            (r"\bMIN(?=\()", "bound", "MAX"), (r"\bMAX(?=\()", "bound", "MIN"),
            (r"(?<=[\w)\]]) \+ (?=[\w(])", "arithmetic", " - "),
            (r"(?<=[\w)\]]) - (?=[\w(])", "arithmetic", " + "),
            (r"&&", "logic", "||"), (r"\|\|", "logic", "&&"),
            (r"(?<=[ (])!(?=[\w(])", "logic", ""),
            (r"(?<=[\w)\]]) & (?=[\w(~])", "bits", " | "),
            (r"(?<=[\w)\]]) \| (?=[\w(])", "bits", " & "),
            (r"(?<=& )~(?=[\w(])", "bits", ""),
            (r"\batomic_load_acq_", "acquire removed", "atomic_load_"),
            (r"\batomic_store_rel_", "release removed", "atomic_store_"),
            (r"(?<=return \()E[A-Z0-9]{3,}(?=\);)", "error lost", "0"),
            (r"(?<=return \()error(?=\);)", "error lost", "0")):
        for found in re.finditer(pattern, code):
            yield kind, *found.span(), new


def of_flags(code: str, text: str) -> Iterator[tuple[str, int, int, str]]:
    """A flag in the place of another one of its kind, which the file has as well."""
    flags = sorted(set(re.findall(r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)*_F_[A-Z0-9_]+\b", code)))
    for found in re.finditer(r"\b([A-Z][A-Z0-9_]*_F_)([A-Z0-9_]+)\b", code):
        others = [flag for flag in flags if flag.startswith(found[1]) and flag != found[0]]
        if others:
            yield "flag swapped", *found.span(), others[sum(found[0].encode()) % len(others)]


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All bugs of a file, in the order of its lines."""
    code, lines = code_of(text), text.splitlines()
    found: dict[tuple[int, int, str], Mutant] = {}
    for each in (of_statements, of_conditions, of_tokens, of_flags):
        for operator, start, end, new in each(code, text):
            if text[start:end] != new:
                mutant = Mutant(file, text.count("\n", 0, start) + 1, operator, start, end,
                                text[start:end], new)
                found.setdefault((start, end, new), mutant)
    placed, alike = [], collections.Counter[tuple[str, str, str, str]]()
    for mutant in sorted(found.values(), key=lambda m: (m.start, m.end, m.new)):
        line = lines[mutant.line - 1].strip()
        which = (line, mutant.operator, mutant.old, mutant.new)
        placed.append(dataclasses.replace(mutant, place=f"{line}:{alike[which]}"))
        alike[which] += 1
    return placed
