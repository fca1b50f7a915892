# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""FreeBSD below obj/freebsd: a release's sets, modules for its kernels, and how they are booted.

  sets.py     the imported sets, and their checks
  kpi.py      the names that headers of a release declare, and the suite uses (tools/kpi)
  modules.py  sys/modules built by the release's own kmod.mk
  root.py     the root image: programs of base.txz, the modules, and the console's script
  boot.py     kernel, symbols and metadata as one file that QEMU's -kernel takes
  stub.S      32-bit entry, the memory map, and the way to the kernel in long mode
  rc          the console: a line read is a command, its exit status is printed behind it
"""
