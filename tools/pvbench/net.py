# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure vtnet with Linux's own stack at the other end of its cables, and beside Linux's driver.

Offloads (netspeed.py): GENERIC-NODEBUG, TCG, TAP devices with vnet_hdr in network namespaces.  A
bridge between two hosts and an end point of TCP, offloads on against off, in turn in one guest;
then two queues and two CPUs against one.  The ratio is that of pairs of runs that follow each
other.  The goal is for the throughput by the clock, so the machine should be idle; beside it stands
what goes through in a second of CPU time of QEMU, guest and devices.  A bridge is measured with the
windows that Linux chooses, and with 256 KB for each stream, which leave the bridge waiting for
hosts that share its processors: no goal there.  A second guest counts its instructions.

Instructions (netcount.py): `-icount shift=0` and a plugin that counts them; our guest and Debian's
Linux (the cloud kernel with its own virtio_net, mitigations=off and init_on_alloc=0) in turn, on
cables of the same kind.  A figure is the difference of a long and a short run, divided by the
difference of what was done: all that comes with a run, and idle time, cancels out.
  send, 64 and 1514 bytes: from the allocation of a packet to its release, pktgen on both sides, in
      bursts that the ring takes whole, each into an empty ring.  The instructions of pktgen itself
      (Linux's module, our command) count on neither side: Linux's turns in a loop until the last
      packet of a burst is released, as often as the device takes long.  What it calls does count.
  receive, 64 and 1514 bytes: frames of an unknown Ethernet type, dropped where that is found out
  send and receive 64 KB: 65536 bytes of a TCP stream, TCP and what it takes from a task included;
      what is received is not copied
  bridge 60 bytes, route 64 bytes (netforward.py): from the interrupt of one card to the release
      behind the other, in bursts that wait together while the guest stands still; kicks and
      interrupts of both cards

Without root and without user namespaces nothing is measured, and the reason is said.
"""

from __future__ import annotations

import argparse

from pvbench import build, labs, netcount, netforward, netspeed
from pvbench.report import Command, Report


def operations(args: argparse.Namespace) -> list[str]:
    """What --only chooses from."""
    del args
    return [*netspeed.operations(), *(row.name for row in netcount.ROWS),
            *netforward.ROWS]


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    if not labs.inside():
        build.plugin()
        build.netbench()
        netcount.build_linux()
        netforward.build_linux()
    labs.enter()
    report.progress.total = (netspeed.steps(args.pairs, report)
                             + netcount.steps(args.rounds, report)
                             + netforward.steps(args.rounds, report))
    with labs.scratch():
        netspeed.run(args.pairs, report)
        netcount.run(args.rounds, report)
        netforward.run(args.rounds, report)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of its own."""
    parser.add_argument("--pairs", type=int, default=7, metavar="N",
                        help="pairs of runs for a ratio of offloads (7)")


COMMAND = Command("net", __doc__, 3, operations, run, options,
                  check=lambda args: build.need_kernel(build.OURS),
                  unusable=lambda _: labs.unusable())
