# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""FreeBSD's kernel interface as the suite uses it: names that headers declare, and sources use.

A release's headers are preprocessed once, all those that the suite includes in one file, with
macros kept (clang -E -dD); line markers give the header of each macro and declaration.  The sources
are not preprocessed: a name counts as used where it is in the text.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
from collections.abc import Iterator

from fbsd.sets import FreebsdError

CLANG = "clang-19"
DEFINES = ["-D_KERNEL", "-DKLD_MODULE", "-DSMP", "-DVIMAGE", "-DINET", "-DINET6", "-DINVARIANTS"]
# The suite's own; Xen's, which are Xen's interface and not FreeBSD's; and those of device trees,
# which only kernels with options FDT have (virtio_mmio_fdt.c).
FOREIGN = ("dev/pv/", "dev/virtio/", "dev/xen/", "xen/", "dev/ofw/")
FIRST = ("sys/param.h", "sys/systm.h", "sys/bus.h")
INTERFACES = ("bus", "clock", "device", "pci")

TOKEN = re.compile(r"[A-Za-z_]\w*|->|\.\.\.|\d[\w.]*|[^\s\w]")
NOISE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
NAME = re.compile(r"[A-Za-z_]\w*$")
# What may stand between a declaration's type and the parenthesis of its arguments.
ATTRIBUTES = {"__attribute__", "__asm__", "__asm", "asm", "__declspec", "_Static_assert",
              "__typeof", "__typeof__", "typeof", "_Alignas"}
KEYWORDS = {"int", "char", "long", "short", "unsigned", "signed", "void", "float", "double",
            "struct", "union", "enum", "const", "volatile", "static", "extern", "inline",
            "register", "restrict", "_Bool", "_Thread_local", "__inline", "__signed", "__restrict"}


@dataclasses.dataclass(frozen=True)
class Declared:
    """A name that a header declares."""

    kind: str  # macro, function, inline, variable, constant
    header: str
    with_arguments: bool = False  # of a macro


def skip_group(tokens: list[str], at: int) -> int:
    """The place behind the parenthesis that opens at a place."""
    depth = 0
    while at < len(tokens):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(tokens[at], 0)
        at += 1
        if depth == 0:
            break
    return at


def enumerators(tokens: list[str]) -> Iterator[str]:
    """The constants of an enum's braces."""
    at, fresh = 0, True
    while at < len(tokens):
        if fresh and NAME.match(tokens[at]):
            yield tokens[at]
        fresh = tokens[at] == ","
        at = skip_group(tokens, at) if tokens[at] in "([{" else at + 1


def declares(tokens: list[str], body: bool) -> Iterator[tuple[str, str]]:
    """The names that a declaration at file scope declares, with their kinds.

    tokens: all of it but the final semicolon or the function's body; body: it has one.
    """
    at = 0
    previous = ""
    typedef = tokens[0] == "typedef"
    while at < len(tokens):
        token = tokens[at]
        if token in ATTRIBUTES:
            at = skip_group(tokens, at + 1)
            continue
        if token == "{":
            end = skip_group(tokens, at)
            if "enum" in tokens[:at]:
                yield from ((name, "constant") for name in enumerators(tokens[at + 1:end - 1]))
            at = end
            previous = ""
            continue
        if token == "(" and not typedef:
            if tokens[at + 1:at + 2] == ["*"]:
                name = next((word for word in tokens[at + 2:] if NAME.match(word)), "")
                yield name, "variable"
            elif NAME.match(previous):
                yield previous, "inline" if body else "function"
            return
        if token in "=[," and NAME.match(previous) and not typedef:
            yield previous, "variable"
            previous = ""
            if token == "=":
                return
        elif NAME.match(token) and token not in KEYWORDS:
            # `struct foo' alone declares no name; a name behind it does.
            previous = "" if at > 0 and tokens[at - 1] in ("struct", "union", "enum") else token
        at = skip_group(tokens, at) if token in "[" else at + 1
    if previous and not typedef and len(tokens) > 1:
        yield previous, "variable"


def parse(text: str, header_of: dict[str, str]) -> dict[str, Declared]:
    """What preprocessed text declares; header_of names the files that count."""
    found: dict[str, Declared] = {}
    header, depth = "", 0
    statement: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            if marker := re.match(r'# \d+ "([^"]*)"', line):
                path = marker[1]
                if path not in header_of:
                    header_of[path] = ""
                header = header_of[path]
            elif header and (define := re.match(r"#define (\w+)(\(?)", line)):
                found[define[1]] = Declared("macro", header, bool(define[2]))
            continue
        for token in TOKEN.findall(line):
            if depth == 0 and not statement and token == ";":
                continue
            statement.append(token)
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token, 0)
            if depth > 0 or token not in (";", "}"):
                continue
            body = token == "}"
            # Braces of a structure or an enum: the declaration goes on behind them.
            if body and not is_function(statement):
                continue
            for name, kind in declares(statement[:-1], body):
                if header and name not in found:
                    found[name] = Declared(kind, header)
            statement = []
    return found


def is_function(statement: list[str]) -> bool:
    """Whether the braces at the end of a statement are a function's body."""
    at = 0
    while at < len(statement) and statement[at] != "{":
        if statement[at] in ATTRIBUTES:
            at = skip_group(statement, at + 1)
        elif statement[at] == "(":
            return True
        elif statement[at] == "=":
            return False
        else:
            at += 1
    return False


@dataclasses.dataclass
class Release:
    """The headers of a release."""

    number: int
    roots: list[pathlib.Path]  # searched in this order
    target: str
    # Headers that are not the release's own: their declarations are not the release's.
    stand_ins: tuple[str, ...] = ()

    def declared(self, includes: list[str]) -> dict[str, Declared]:
        """All names that these headers declare, with what they include themselves."""
        text = "".join(f"#include <{name}>\n" for name in includes)
        done = subprocess.run(
            [CLANG, "-target", self.target, "-ffreestanding", "-nostdinc", *DEFINES,
             f"-D__FreeBSD_version={self.number}", *(f"-I{root}" for root in self.roots),
             "-Wno-macro-redefined", "-E", "-dD", "-x", "c", "-"],
            input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FreebsdError(f"headers of FreeBSD {self.number // 100000}: "
                               f"{(done.stderr.splitlines() or ['clang failed'])[-1]}: "
                               + next((line for line in done.stderr.splitlines()
                                       if "error:" in line), ""))
        names: dict[str, str] = {}
        for path in set(re.findall(r'^# \d+ "([^"<]+)"', done.stdout, re.M)):
            for root in self.roots:
                if path.startswith(f"{root}/"):
                    names[path] = path.removeprefix(f"{root}/")
                    break
        return parse(done.stdout, names)


@dataclasses.dataclass
class Sources:
    """What the suite's text has."""

    includes: list[str]  # FreeBSD's headers
    # A name with how it stands there: "(" it is called, "=" it is a value, "." a member
    words: dict[str, set[str]]
    defined: set[str]  # the suite's own macros
    where: dict[str, str]  # a name's first place

    def uses(self, name: str, what: Declared) -> bool:
        """Whether the suite uses a name that a header declares."""
        marks = self.words.get(name, set())
        if what.kind == "macro":
            return "(" in marks or ".(" in marks if what.with_arguments else bool(marks)
        if what.kind in ("function", "inline"):
            return "(" in marks or "=" in marks
        return bool(marks & {"(", "=", "x"})


# A callback stands alone between these.
METHODS = ("DEVMETHOD", "KOBJMETHOD")
BEFORE, AFTER = set("(,=&?:{") | {"return"}, set("),;}:")


def read_sources(folders: list[pathlib.Path], top: pathlib.Path) -> Sources:
    """Read the suite."""
    includes, words, where = set[str](), dict[str, set[str]](), dict[str, str]()
    defined = set[str]()
    declared = set[str]()  # locals, arguments, members
    for path in sorted(path for folder in folders for path in folder.rglob("*.[ch]")):
        text = path.read_text()
        includes |= {name for name in re.findall(r"^#include <([^>]+)>", text, re.M)
                     if not name.startswith(FOREIGN)}
        text = re.sub(r"^#include.*", "", text, flags=re.M)
        text = NOISE.sub(lambda match: "\n" * match[0].count("\n") or " ", text)
        defined |= set(re.findall(r"^#define\s+(\w+)", text, re.M))
        line = 1
        tokens = [("", 0)]
        for row in text.splitlines():
            tokens += [(token, line) for token in TOKEN.findall(row)]
            line += 1
        tokens.append(("", line))
        for at in range(1, len(tokens) - 1):
            token, line = tokens[at]
            if not NAME.match(token):
                continue
            before, after = tokens[at - 1][0], tokens[at + 1][0]
            if before == "(" and tokens[at - 2][0] in METHODS:
                # A method's name stands for the description of it, NAME_if.h's.
                token, after = f"{token}_desc", ","
            if before in (".", "->"):
                mark = "." + after if after == "(" else "."
            elif after == "(":
                mark = "("
            elif before in BEFORE and after in AFTER:
                mark = "="
            else:
                mark = "x"
            kind = tokens[at - 2][0] if before == "*" else before  # of a declaration
            if (mark == "x" and after in set(";,)=[") and (kind == "*" or NAME.match(kind))
                    and kind not in ("return", "else", "goto", "case")):
                declared.add(token)
            words.setdefault(token, set()).add(mark)
            where.setdefault(token, f"{path.relative_to(top)}:{line}")
    for name in declared:
        # The name of a local variable is no use of a function.
        words[name] -= {"=", "x"}
    first = [name for name in FIRST if name in includes]
    return Sources(first + sorted(includes - set(first)), words, defined, where)
