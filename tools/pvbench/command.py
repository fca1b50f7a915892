# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The command line of tools/bench."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys

import pvbench
from pvbench import (
    balloon,
    baseline,
    compare,
    disk,
    draw,
    field,
    freebsd,
    migrate,
    net,
    requests,
    suspend,
    times,
    xbd,
    xn,
)
from pvbench.build import BENCH
from pvbench.errors import BenchError
from pvbench.labs import VERBOSE
from pvbench.report import Command, Report
from pvguest.errors import GuestError
from xen.errors import TOP, LabError

COMMANDS = [module.COMMAND for module in (
    requests, disk, net, balloon, migrate, times, xbd, xn, suspend, freebsd, field)]
STATUS_BROKEN, STATUS_UNMEASURED = 1, 2


def positive(text: str) -> int:
    """A number that is at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 1 on")
    return int(text)


def regex(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error
    return text


def run_one(command: Command, args: argparse.Namespace) -> int:
    """Check, measure, print; returns the exit status."""
    operations = command.operations(args)
    if not any(re.search(args.only, operation) for operation in operations):
        raise BenchError(f"--only {args.only}: matches none of these:\n  "
                         + "\n  ".join(operations))
    if command.check is not None:
        command.check(args)
    reason = command.unusable(args) if command.unusable is not None else None
    if reason is not None:
        print(f"bench {command.name}: nothing is measured: {reason}")
        return 0
    if args.verbose:
        os.environ[VERBOSE] = "1"
    # Before a bench changes to its own namespaces and folders.
    report = Report(command.name, args.only,
                    (args.json or BENCH / "results" / f"{command.name}.json").absolute())
    try:
        command.run(args, report)
    finally:
        report.progress.clear()
    print(f"bench {command.name}: results of {report.results.commit or 'this tree'}"
          f" in {report.path}", file=sys.stderr)
    return 0 if report.kept() else STATUS_BROKEN


def run_all(args: argparse.Namespace) -> int:
    """Run each in a process of its own, as some enter namespaces; returns the worst status."""
    worst = 0
    for number, command in enumerate(COMMANDS, 1):
        print(f"bench: {number} of {len(COMMANDS)}: {command.name}", file=sys.stderr)
        words = [sys.executable, str(TOP / "tools/bench"), command.name,
                 *(["--rounds", str(args.rounds)] if args.rounds else []),
                 *(["--verbose"] if args.verbose else [])]
        worst = max(worst, subprocess.run(words, check=False).returncode)
    return worst


def split_doc(doc: str) -> tuple[str, str]:
    """The first sentence, and the rest."""
    summary, _, rest = doc.partition("\n\n")
    return summary, rest


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser],
                command: Command) -> None:
    """A subcommand's options: those in common, then its own."""
    summary, rest = split_doc(command.doc)
    sub = commands.add_parser(command.name, description=summary, epilog=rest, help=summary,
                              formatter_class=argparse.RawDescriptionHelpFormatter)
    sub.add_argument("--rounds", type=positive, default=command.rounds, metavar="N",
                     help=f"times each is measured ({command.rounds})")
    sub.add_argument("--only", type=regex, default="", metavar="REGEX",
                     help="operations whose name matches; one that none does lists them")
    sub.add_argument("--json", type=pathlib.Path, metavar="FILE",
                     help=f"where the results go (obj/bench/results/{command.name}.json)")
    sub.add_argument("--verbose", action="store_true",
                     help="show on standard error what guests on TAP devices print")
    if command.profile:
        sub.add_argument("--profile", action="store_true", help="show functions")
    if command.options is not None:
        command.options(sub)
    sub.set_defaults(run=lambda args: run_one(command, args))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    summary, rest = split_doc(pvbench.__doc__ or "")
    p = argparse.ArgumentParser(prog="tools/bench", description=summary, epilog=rest,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        add_command(commands, command)
    sub = commands.add_parser("all", help="Run all of these.", description="Run all benches.")
    sub.add_argument("--rounds", type=positive, metavar="N",
                     help="times each is measured (what each bench has)")
    sub.add_argument("--verbose", action="store_true", help="as of each bench")
    sub.set_defaults(run=run_all)
    for name, module in (("draw", draw), ("baseline", baseline), ("compare", compare)):
        summary, rest = split_doc(module.__doc__ or "")
        sub = commands.add_parser(name, description=summary, epilog=rest, help=summary,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        module.options(sub)
        sub.set_defaults(run=module.run)
    return p


def main() -> int:
    """Run the command."""
    args = parser().parse_args()
    try:
        return int(args.run(args))
    except (BenchError, LabError, GuestError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return STATUS_UNMEASURED
