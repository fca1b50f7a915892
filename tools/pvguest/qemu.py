# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""QEMU's command line: the machine and its devices, whatever boots in it."""

from __future__ import annotations

import argparse
import pathlib
import re

from pvguest import coverage
from pvguest.errors import STATUS_NO_BOOT, GuestError
from qemu.options import DRIVE_OPTIONS, NETDEV_OPTIONS, join_options, split_options, take

QEMU = "qemu-system-x86_64"


def refused(text: str) -> GuestError:
    """The error for an invalid option."""
    return GuestError(STATUS_NO_BOOT, text)


def net_arguments(number: int, text: str, bus: str) -> list[str]:
    """QEMU's arguments for one --net."""
    kind, device = split_options(text, refused)
    kind, _, name = kind.partition(":")
    if kind == "none":
        return []
    if kind not in ("user", "tap", "bridge") or bool(name) != (kind != "user"):
        raise refused(f"--net {text}: expected user, tap:NAME, bridge:NAME or none")
    backend = take(device, NETDEV_OPTIONS[kind])
    if kind == "tap":
        backend = {"ifname": name, "script": "no", "downscript": "no"} | backend
    elif kind == "bridge":
        backend = {"br": name} | backend
    # A ROM for booting from the network is of no use here and slow to load.
    defaults = {"romfile": ""} if bus == "pci" else {}
    netdev = {"id": f"net{number}"} | backend
    model = device.pop("model", f"virtio-net-{bus}")
    nic = {"id": f"nic{number}", "netdev": f"net{number}"} | defaults | device
    return ["-netdev", join_options(netdev, kind), "-device", join_options(nic, model)]


def disk_arguments(number: int, text: str, bus: str) -> list[str]:
    """QEMU's arguments for one --disk."""
    path, device = split_options(text, refused)
    is_protocol = re.match(r"[a-z-]+:", path) is not None
    if not is_protocol and not pathlib.Path(path).exists():
        raise refused(f"--disk {path}: no such file")
    drive = {"file": path, "if": "none", "id": f"disk{number}", "format": "raw"}
    drive |= take(device, DRIVE_OPTIONS)
    blk = {"id": f"blk{number}", "drive": f"disk{number}"} | device
    return ["-drive", join_options(drive),
            "-device", join_options(blk, f"virtio-blk-{bus}")]


def device_arguments(args: argparse.Namespace) -> list[str]:
    """QEMU's arguments for the network cards and disks; raises GuestError for bad options."""
    bus = "device" if args.machine == "microvm" else "pci"
    command = []
    for number, net in enumerate(args.net):
        command += net_arguments(number, net, bus)
    for number, disk in enumerate(args.disk):
        command += disk_arguments(number, disk, bus)
    return command


def qemu_arguments(args: argparse.Namespace, accel: str, qmp: pathlib.Path,
                   boot: list[str]) -> list[str]:
    """The whole command line of QEMU; boot is what the guest's kernel adds."""
    machine = str(args.machine)
    # If there can only be one CPU, QEMU 7.2 leaves the guest's memory barriers out of the code that
    # it translates, and a device that another of its threads serves loses notifications.
    cpus = f"{args.smp},maxcpus={max(args.smp, 2)}" if accel == "tcg" else str(args.smp)
    extra = []
    if machine == "microvm":
        machine += ",isa-serial=on,pit=on,pic=on,rtc=on"
        # Without ACPI, which the tree kernel can't interpret, the devices are on the kernel's
        # command line, and the rest in an MP table.
        if args.os == "tree":
            machine += ",acpi=off"
    elif machine == "q35":
        # Hot-plug by the slot's own registers (PCI Express), not by ACPI.  The machine's
        # own controllers have nothing connected, and cost the firmware a sixth of the whole boot to
        # find that out.
        machine += ",sata=off,smbus=off"
        extra = ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
    return [
        QEMU, "-accel", accel, "-machine", machine,
        "-cpu", "host" if accel == "kvm" else "max",
        "-smp", cpus, "-m", str(args.mem),
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        *boot,
        "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
        "-qmp", f"unix:{qmp},server=on,wait=off",
        *coverage.qemu_arguments(),
        *extra,
        *args.qemu,  # before the devices, which may sit on a bus that is made here
        *device_arguments(args),
    ]
