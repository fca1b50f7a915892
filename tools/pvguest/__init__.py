# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Boot a guest under QEMU or Xen, run commands at its console, power it off.

Each COMMAND is a line for the guest's console, but for those that begin with one of these words:

  qmp NAME [key=value ...]    a QMP command to QEMU; prints what it returns (qmp set_link name=nic0
                              up=false; values are JSON where they parse as JSON, else text)
  event NAME [key=value ...]  wait for a QMP event with these data
  host COMMAND                a shell command on this machine; $QEMU_PID is QEMU's process
  ctl SOCKET COMMAND          a command for a program that is the guest's device, or the host at its
                              cable, as tests/ctl sends it; prints the answer
  migrate [--live] [OLD=NEW ...]
                              migrate the running guest to another QEMU with the same arguments, but
                              for the words that are to change (migrate tap0=tap1).  It is stopped
                              meanwhile; with --live it is not, for measurements: under TCG some of
                              its last writes may get lost
  suspend [COMMAND]           run the guest's command, and then wake the guest up, after a COMMAND
                              that is for QEMU or this machine
  until COMMAND               repeat any of these until it ends with status 0; its last output is
                              shown, after drivers' messages that came meanwhile, and all of it is
                              in the log
  until /REGEX/ COMMAND       the same, until its output matches; drivers' messages do not count as
                              output unless COMMAND is `sleep'
  dom0 COMMAND                under Xen, a shell command in dom0; $DOM is the guest's name

Network card N is the device nicN on the back end netN, virtio's, or another of QEMU's with
model=e1000; disk N is the device blkN on the drive diskN.

Under Xen (--under xen; see tools/xenlab) those options of --net and --disk that belong to QEMU's
back end mean the same; all others are xl's (mac=, mtu=; vdev=, access=), or a disk's of the lab
(logical_block_size=).  There are also --net bridge:NAME, a bridge in dom0; --net stream:SOCKET,
QEMU's `-netdev stream`; --disk FILE,via=loop, by a loop device in dom0; --disk ram, a ram disk of
dom0; and --disk dom0:DEVICE.  Debian's Linux as a guest to compare with is --kernel xen/linux.
`host tools/xenlab ...` is about the guest's lab.
--type hvm is a whole PC, which GRUB boots from the first disk, so that those of --disk begin with
xvdb; --net and --disk are emulated as well (a card is virtio's with model=virtio-net), until the
module xen, which is loaded with the kernel (unless --env xen_load=NO), has them unplugged.

With --os freebsd[=KERNEL], or GUEST_OS=freebsd[=KERNEL] in the environment, the guest is FreeBSD's
own kernel (tools/freebsd), and each COMMAND a line for its sh.  It continues from a snapshot of a
booted guest, into which the devices are plugged; --fresh boots it.  --env NAME_load=YES preloads
the module NAME, and those that it depends on, as loader.conf(5) would.  Under Xen a
kernel without options XENHVM needs --type hvm, and emulated devices stay unless xen is preloaded.

With --gdb the guest stands still until gdb(1) has it go on, which the printed line starts with the
symbols of the kernel, and of each module as it is loaded, and with commands that show rings (`help
pv' in gdb; CONTRIBUTING.md).

Exit status: 0 when every command ended in 0, else that of the first that did not; 124 on time-out
(the guest is made to panic, to print what each of its threads waits for); 125 when the guest
panicked, or its kernel waits at a prompt; 126 when it could not be booted.
"""
