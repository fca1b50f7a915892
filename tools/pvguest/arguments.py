# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The command line of tools/guest."""

from __future__ import annotations

import argparse
import os
import pathlib

import pvguest


def parser() -> argparse.ArgumentParser:
    """The command line."""
    summary, _, rest = (pvguest.__doc__ or "").partition("\n\n")
    p = argparse.ArgumentParser(prog="tools/guest", description=summary, epilog=rest,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--os", default=os.environ.get("GUEST_OS", "tree"),
                   metavar="tree|freebsd[=debug|generic|altq|kasan|kcsan]",
                   help="the tree kernel, or FreeBSD's (GUEST_OS, or tree)")
    p.add_argument("--kernel", default="GENERIC", help="kernel configuration (GENERIC)")
    p.add_argument("--archive", type=pathlib.Path, metavar="FILE",
                   help="boot archive (the kernel's own; tools/mkarchive)")
    p.add_argument("--under", choices=["qemu", "xen"], default="qemu", help="hypervisor (qemu)")
    p.add_argument("--type", choices=["pvh", "hvm"], default="pvh",
                   help="under Xen, the type of guest (pvh)")
    p.add_argument("--machine", choices=["q35", "pc", "microvm"],
                   help="QEMU's machine (q35; pc for FreeBSD)")
    p.add_argument("--smp", type=int, default=1, metavar="N", help="CPUs (1)")
    p.add_argument("--mem", type=int, default=128, metavar="MB", help="memory (128)")
    p.add_argument("--net", action="append", default=[],
                   metavar="user|tap:NAME|bridge:NAME|none[,opt=val...]",
                   help="a virtio network card; options of the device or its back end reach QEMU")
    p.add_argument("--disk", action="append", default=[], metavar="FILE[,opt=val...]",
                   help="a virtio disk; options of the device or its drive reach QEMU")
    p.add_argument("--xl", action="append", default=[], metavar="KEY=VALUE",
                   help="under Xen, one more line for xl's configuration (--xl maxmem=256)")
    p.add_argument("--lab", default=os.environ.get("XENLAB"), metavar="NAME",
                   help="under Xen, the lab that the guest runs in, which stays: xenlab --instance"
                   " (XENLAB, or one of its own)")
    p.add_argument("--dom0-queues", type=int, default=1, metavar="N",
                   help="under Xen, queues that dom0's back ends offer (1)")
    p.add_argument("--qemu", action="append", default=[], metavar="ARG",
                   help="one more argument for QEMU (--qemu=-cpu --qemu=qemu64)")
    p.add_argument("--env", action="append", default=[], metavar="KEY=VALUE",
                   help="a variable of the kernel environment")
    p.add_argument("--accel", choices=["auto", "tcg", "kvm"], default="auto",
                   help="auto: KVM if a guest was found to run under it, else TCG")
    p.add_argument("--fresh", action="store_true",
                   help="boot FreeBSD, instead of continuing from a snapshot of a booted guest")
    p.add_argument("--timeout", type=float, default=120, metavar="S",
                   help="seconds until the guest is given up (120)")
    p.add_argument("--log", metavar="FILE", help="copy the whole console output, boot included")
    p.add_argument("--interactive", action="store_true",
                   help="after the commands leave the user at the guest's prompt")
    p.add_argument("--gdb", action="store_true",
                   help="start the guest stopped, and print the line that debugs it; no time-out")
    p.add_argument("command", nargs="*", metavar="COMMAND", help="see below")
    return p
