# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A real Xen with a real dom0, inside QEMU: the modules behind tools/xenlab and tools/guest.

  packages   Debian's packages: downloaded and unpacked below obj/xen, never installed
  image      what is made of them: Xen, Linux, dom0's and the Linux guest's memory file systems
  qmp        QEMU's machine protocol
  agent      commands in dom0, over virtio-serial
  lab        one running lab: start, stop, snapshot, disks and networks
  domain     a guest of the lab, driven by xl

Everything is below obj/xen: deb and root (packages), image, snapshot, run/NAME (a running lab).
"""
