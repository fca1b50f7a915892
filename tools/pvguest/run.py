# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""From the command line to the exit status: check, boot, run the commands, power off.

What only FreeBSD or a guest under Xen needs is imported where it is used: thousands of guests of a
`make test` have neither, and it was a quarter of their start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator

import pvgdb
from pvguest import coverage, snapshot, tree
from pvguest.console import System
from pvguest.debuginfo import Files
from pvguest.errors import STATUS_NO_BOOT, STATUS_TIMEOUT, Deadline, GuestError
from pvguest.guest import Guest
from pvguest.qemu import QEMU, device_arguments, qemu_arguments
from qemu.qmp import listens
from xen.errors import LabError


def system_of(args: argparse.Namespace) -> System:
    """The kernel's side of the guest: --os, else the environment's GUEST_OS."""
    name, _, which = str(args.os).partition("=")
    if name not in ("tree", "freebsd") or (which and name == "tree"):
        raise GuestError(STATUS_NO_BOOT, f"--os {args.os}: expected tree, or freebsd[=KERNEL]")
    if name == "tree":
        return tree.Tree()
    from pvguest import freebsd
    return freebsd.FreeBSD(which)


def check(args: argparse.Namespace) -> System:
    """Refuse bad options before anything is looked for or booted; returns the kernel's side."""
    system = system_of(args)
    # The PCI Express ports belong to q35, whichever machine the kernel prefers.
    has_ports = any("pcie-root-port" in word for word in args.qemu)
    args.machine = args.machine or ("q35" if has_ports else system.machine)
    # A snapshot would go on by itself.
    args.fresh |= args.gdb
    system.check(args)
    if args.gdb and args.under == "xen":
        raise GuestError(STATUS_NO_BOOT, "--gdb is QEMU's, which runs the lab and not the guest:"
                         " debug the front ends in the hosted programs (CONTRIBUTING.md)")
    if args.under == "xen":
        from xen import domain
        domain.check(args)
    else:
        device_arguments(args)
    return system


def wait_for_gdb(guest: Guest, socket: pathlib.Path, files: Files) -> None:
    """Print the shell's command that debugs a guest, which waits for it."""
    while not listens(socket):
        if guest.process.poll() is not None:
            raise guest.ended()
        time.sleep(0.01)
    start = pathlib.Path(pvgdb.__file__).with_name("start.py")
    attach = f"pv attach {socket} {files.kernel} {files.modules}"
    print(shlex.join(["gdb", "-q", "-x", str(start), "-ex", attach]), file=sys.stderr, flush=True)


@contextlib.contextmanager
def running(args: argparse.Namespace, accel: str, deadline: Deadline) -> Iterator[Guest]:
    """A guest that has come to its prompt."""
    system = check(args)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pvguest")))
        log = stack.enter_context(open(args.log, "wb")) if args.log else None
        session = None
        if args.under == "xen":
            from xen import session as xen_session
            lab_boot = stack.enter_context(system.lab_boot(args))
            session = stack.enter_context(xen_session.session(args, lab_boot))
            command = session.command()
            qmp = session.lab.qmp_path
        else:
            qmp = folder / "qmp"
            boot = stack.enter_context(system.boot_arguments(args))
            command = qemu_arguments(args, accel, qmp, boot)
            if args.gdb:
                command += ["-S", "-gdb", f"unix:{folder}/gdb,server=on,wait=off"]
        if os.environ.get("GUEST_VERBOSE"):
            print(shlex.join(command), file=sys.stderr)
        plan = (snapshot.LabPlan(session) if session else
                snapshot.Plan(command, None if args.fresh else system.snapshots))
        guest = Guest(plan.command, system, qmp, deadline, log, session)
        try:
            if args.gdb:
                wait_for_gdb(guest, folder / "gdb", system.debug_files())
            plan.bring_up(guest, args.verbose_boot)
            yield guest
        except GuestError as error:
            if error.status == STATUS_TIMEOUT:
                with contextlib.suppress(GuestError, LabError, OSError, EOFError):
                    guest.tell_where()
            # The guest's last output, if that was not shown as it arrived.
            if not guest.booted and not args.verbose_boot:
                sys.stderr.write(guest.said())
            raise
        finally:
            guest.close()
            if session:
                coverage.keep(session.lab.folder / "console.log")


def choose_accel(args: argparse.Namespace) -> str:
    """tcg, or kvm where a guest was found to run under it.

    The result of the probe is kept for this boot of the machine, below obj/.
    """
    if args.under == "xen":
        return "tcg"
    if args.accel != "auto":
        return str(args.accel)
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    seen = tree.OBJ / "accel"
    if seen.is_file() and seen.read_text().split()[:1] == [boot]:
        return seen.read_text().split()[1]
    if not isinstance(system_of(args), tree.Tree):
        return "tcg"  # FreeBSD was never tried under KVM here
    probe = argparse.Namespace(**vars(args) | {
        "net": [], "disk": [], "qemu": [], "env": [], "smp": 2, "log": None, "verbose_boot": False})
    accel = "kvm"
    try:
        with running(probe, "kvm", Deadline(time.monotonic() + 10)) as guest:
            for command in ("sysctl -a", "vmstat -z", "sleep 1", "devinfo"):
                guest.write(command.encode() + b"\n")
                guest.result(show=False)
            guest.power_off()
    except GuestError:
        accel = "tcg"
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.write_text(f"{boot} {accel}\n")
    return accel


def run(args: argparse.Namespace) -> int:
    """Boot, run the commands, power off."""
    if shutil.which(QEMU) is None:
        raise GuestError(STATUS_NO_BOOT, f"{QEMU} is not installed: tools/bootstrap")
    check(args)
    accel = choose_accel(args)
    deadline = Deadline(time.monotonic() + args.timeout)
    status = 0
    with running(args, accel, deadline) as guest:
        for command in args.command:
            result = guest.run(command)
            status = status or result
        if args.interactive:
            guest.interact()
        else:
            guest.power_off()
    return status
