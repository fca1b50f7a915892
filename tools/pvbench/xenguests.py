# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Two guests in one Xen lab, ours and another: they work in turn, the other one paused.

The lab's clock counts instructions (`-icount shift=0`): a second is 10^9 of them, guest's, Xen's
and dom0's alike, so that what else the machine has to do does not show.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator

from pvbench.build import OURS, need_kernel
from pvbench.errors import BenchError
from pvguest import arguments
from pvguest.errors import Deadline as GuestDeadline
from pvguest.guest import Guest
from pvguest.run import running
from xen.errors import Deadline
from xen.lab import Lab, Settings

FOREVER = 1e6


def lab_option(parser: argparse.ArgumentParser) -> None:
    """The option of all that measure in a lab."""
    parser.add_argument("--lab", metavar="NAME", help="a lab to use, which stays (one of its own)")


def lab_options(parser: argparse.ArgumentParser) -> None:
    """Options of those that measure our kernel there."""
    parser.add_argument("--kernel", default=OURS, help=f"ours ({OURS})")
    lab_option(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse what would fail only once the lab runs."""
    need_kernel(args.kernel)


@contextlib.contextmanager
def counting_lab(args: argparse.Namespace, name: str,
                 mem: int = Settings.mem, plugin: str = "") -> Iterator[Lab]:
    """A lab that runs, with so many MB of memory; one of its own is stopped in the end."""
    lab = Lab(args.lab or name)
    lab.start(Settings(icount=True, mem=mem), Deadline(900), plugin=plugin)
    try:
        yield lab
    finally:
        if args.lab is None:
            lab.stop(Deadline(20))


class Side:
    """One of the two guests."""

    def __init__(self, name: str, guest: Guest, lab: Lab) -> None:
        assert guest.session is not None
        self.name = name
        self.guest = guest
        self.lab = lab
        self.domain = guest.session.name
        self.domid = self.dom0(f"xl domid {self.domain}").strip()

    def say(self, command: str) -> str:
        """What a command prints in the guest; BenchError if it fails."""
        self.guest.unseen = b""
        self.guest.write(command.encode() + b"\n")
        status = self.guest.result(show=False)
        text = self.guest.unseen.replace(b"\r", b"").decode(errors="replace")
        if status != 0:
            raise BenchError(f"{self.name}: {command}: status {status}\n{text}")
        return text

    def dom0(self, script: str) -> str:
        """What a script prints in dom0."""
        return self.lab.output(script, Deadline(FOREVER))

    def pause(self) -> None:
        """Let the other one have the processor."""
        self.dom0(f"xl pause {self.domain}")

    def unpause(self) -> None:
        """Go on."""
        self.dom0(f"xl unpause {self.domain}")


@contextlib.contextmanager
def booted(lab: Lab, name: str, kernel: str, options: list[str]) -> Iterator[Side]:
    """A guest in the lab, which is switched off in the end; the kernel may be FreeBSD's."""
    boots = (["--os", kernel] if kernel.startswith("freebsd")
             else ["--kernel", kernel, "--env", "console=hvc0"])
    args = arguments.parser().parse_args(
        ["--under", "xen", "--lab", lab.name, "--timeout", str(FOREVER), *boots, *options])
    args.verbose_boot = False
    with running(args, "tcg", GuestDeadline(time.monotonic() + FOREVER)) as guest:
        side = Side(name, guest, lab)
        try:
            yield side
        finally:
            with contextlib.suppress(Exception):
                side.unpause()
                guest.power_off()
