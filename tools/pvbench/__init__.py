# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure what the drivers cost, beside other drivers of the same devices.

  requests   instructions, kicks and interrupts of a request, a packet, a megabyte of the balloon
  disk       virtio's disk beside Linux's driver
  net        vtnet: offloads on against off, and its instructions beside Linux's driver
  balloon    virtio's balloon beside Linux's driver
  migrate    how long a guest is away when it moves to another QEMU, beside Linux
  times      a boot, a card's way down and out, and a queue's reset beside the device's
  xbd        Xen's block front end beside Linux's
  xn         Xen's network front end beside Linux's
  suspend    suspension and the balloon under Xen beside Linux
  freebsd    vtnet and vtbd, or xn and xbd, in FreeBSD beside FreeBSD's own drivers
  field      what papers and users quote, beside FreeBSD's own drivers and Linux
  all        all of these, each with its own defaults
  draw       pictures (SVG) of results
  baseline   tables of results in BASELINE.md

All of them print tables of one form: an operation and its unit; minimum / median / maximum of ours
and of the other driver; the ratio, ours to the other's: of the medians, with its 95 % interval
where it has one, or minimum / median / maximum of pairs of runs; the goal; whether it is kept; and
what was counted besides, ours and the other's.  The same figures, with each round's, go to a file
of JSON, from which `draw` makes a picture and `baseline` a table of the page.

Most figures are instructions of the guest (QEMU's TCG with -icount and a plugin, insncount.c), so
that the speed of this machine and other work on it hardly matter.

Exit status: 0; 1 if a goal is not kept; 2 if nothing could be measured, with a line that says why.
tests/bench/BASELINE.md has the figures of this tree.
"""
