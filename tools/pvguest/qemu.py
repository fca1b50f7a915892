# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""QEMU's command line: the machine and its devices, whatever boots in it."""

from __future__ import annotations

import argparse
import pathlib
import re

from pvguest.errors import STATUS_NO_BOOT, GuestError

QEMU = "qemu-system-x86_64"

# Options of --net and --disk that belong to the back end; the others are the device's.
NETDEV_OPTIONS = {
    "user": {"hostfwd", "guestfwd", "net", "host", "dhcpstart", "dns", "hostname", "restrict",
             "ipv4", "ipv6", "ipv6-net", "ipv6-host", "tftp", "bootfile", "domainname", "smb"},
    "tap": {"vhost", "vnet_hdr", "queues", "sndbuf", "script", "downscript"},
    "bridge": {"helper"},
}
DRIVE_OPTIONS = {"format", "cache", "aio", "readonly", "discard", "detect-zeroes", "werror",
                 "rerror", "snapshot", "throttling.iops-total"}


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split 'first,key=value,...'; a doubled comma is a comma."""
    words = [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")]
    options = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            raise GuestError(STATUS_NO_BOOT, f"{text}: expected key=value, not '{word}'")
        options[key] = value
    return words[0], options


def join_options(first: str, options: dict[str, str]) -> str:
    """The reverse of split_options()."""
    return ",".join([first] + [f"{key}={value.replace(',', ',,')}"
                               for key, value in options.items()])


def split_by_owner(options: dict[str, str],
                   owned: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Divide options in those that are owned and the others."""
    mine = {key: value for key, value in options.items() if key in owned}
    return mine, {key: value for key, value in options.items() if key not in owned}


def net_arguments(number: int, text: str, bus: str) -> list[str]:
    """QEMU's arguments for one --net."""
    kind, options = split_options(text)
    kind, _, name = kind.partition(":")
    if kind == "none":
        return []
    if kind not in NETDEV_OPTIONS or bool(name) != (kind != "user"):
        raise GuestError(STATUS_NO_BOOT,
                         f"--net {text}: expected user, tap:NAME, bridge:NAME or none")
    backend, device = split_by_owner(options, NETDEV_OPTIONS[kind])
    if kind == "tap":
        backend = {"ifname": name, "script": "no", "downscript": "no"} | backend
    elif kind == "bridge":
        backend = {"br": name} | backend
    # A ROM for booting from the network is of no use here and slow to load.
    defaults = {"romfile": ""} if bus == "pci" else {}
    netdev = {"id": f"net{number}"} | backend
    nic = {"id": f"nic{number}", "netdev": f"net{number}"} | defaults | device
    return ["-netdev", join_options(kind, netdev),
            "-device", join_options(f"virtio-net-{bus}", nic)]


def disk_arguments(number: int, text: str, bus: str) -> list[str]:
    """QEMU's arguments for one --disk."""
    path, options = split_options(text)
    is_protocol = re.match(r"[a-z-]+:", path) is not None
    if not is_protocol and not pathlib.Path(path).exists():
        raise GuestError(STATUS_NO_BOOT, f"--disk {path}: no such file")
    backend, device = split_by_owner(options, DRIVE_OPTIONS)
    drive = {"file": path, "if": "none", "id": f"disk{number}", "format": "raw"} | backend
    blk = {"id": f"blk{number}", "drive": f"disk{number}"} | device
    return ["-drive", join_options("", drive)[1:],
            "-device", join_options(f"virtio-blk-{bus}", blk)]


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
    extra = []
    if machine == "microvm":
        machine += ",isa-serial=on,pit=on,pic=on,rtc=on"
    elif machine == "q35":
        # Hot-plug by the slot's own registers (PCI Express), not by ACPI.
        extra = ["-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]
    return [
        QEMU, "-accel", accel, "-machine", machine,
        "-cpu", "host" if accel == "kvm" else "max",
        "-smp", str(args.smp), "-m", str(args.mem),
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        *boot,
        "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
        "-qmp", f"unix:{qmp},server=on,wait=off",
        *extra,
        *args.qemu,  # before the devices, which may sit on a bus that is made here
        *device_arguments(args),
    ]
