# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest of the lab: tools/guest's options as xl's configuration, and its console.

A PVH guest (--type pvh) is given the kernel by xl.  An HVM guest (--type hvm) boots it as a PC
does, by GRUB from its first disk, hda, which is made for that; its other disks follow as xvdb and
so on.

`xenlab guest` replaces QEMU as the process of a guest under Xen: the guest's console is its
standard input and output, and it ends when the guest does, with status 125 if the guest crashed.

A disk is plugged into the lab as a virtio disk and handed to the guest by dom0's block back end;
a network back end likewise, with a bridge of dom0 between it and the guest's card.  The name of an
option decides which of them it belongs to.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pathlib
import re
import shlex
import zlib
from collections.abc import Callable

from qemu.options import DRIVE_OPTIONS, NETDEV_OPTIONS, join_options, split_options, take
from xen import agent, hvm
from xen.errors import Deadline, LabError, LabTimeoutError
from xen.lab import Lab

STATUS_CRASHED = 125

# Xen's reasons for a shutdown (xen/sched.h).
REASON_SUSPEND, REASON_CRASH, REASON_WATCHDOG = 2, 3, 4

# Where the first disks of a lab are plugged in.
FIRST_SLOT, SLOTS = 16, 8
XL_DISK_OPTIONS = {"vdev", "access", "devtype", "backend", "backendtype", "script",
                   "direct-io-safe", "no-discard"}


def new_node(lab: Lab, what: str) -> str:
    """A device name that is new in this lab; the device is removed with the guest DOM."""
    counter = lab.folder / f"{what}.count"
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = len(file.read())
        file.write("x")
    if guest := os.environ.get("DOM"):
        with (lab.folder / f"{guest}.nodes").open("a") as file:
            file.write(f"{what}{number}\n")
    return f"{what}{number}"


def nodes_of(lab: Lab, guest: str) -> list[str]:
    """The devices that were plugged in for a guest."""
    file = lab.folder / f"{guest}.nodes"
    nodes = file.read_text().split() if file.is_file() else []
    file.unlink(missing_ok=True)
    return nodes


def put_back(lab: Lab, name: str) -> None:
    """Give back what a guest had of a lab that stays."""
    lab.output(f"rm -rf /run/guests/{name}; cd /run/lock; [ -e {name} ] || exit 0;"
               f" sh {name}; rm {name}", Deadline(20))
    for node in nodes_of(lab, name):
        lab.unplug(node, Deadline(20))


def free_ram_disk(lab: Lab, deadline: Deadline) -> str:
    """One of dom0's ram disks that no guest has."""
    release = f">>/run/lock/{os.environ.get('DOM', 'lab')}"
    script = ("for d in /dev/ram?; do l=/run/lock/${d##*/}; [ -e $l ] && continue;"
              f" >$l; echo rm $l {release}; echo $d; exit; done; echo no more ram disks; exit 1")
    return lab.output(script, deadline)


def qemu_disk(node: str, path: str, options: dict[str, str],
              xl: dict[str, str]) -> tuple[str, str]:
    """Options of QEMU's -drive and of its -device, without their names, for a disk of a lab.

    A snapshot has to find the first few where they were.
    """
    options = dict(options)
    drive = {"file": str(pathlib.Path(path).resolve()), "format": "raw"} | take(
        options, DRIVE_OPTIONS)
    if drive.get("readonly") == "on":
        xl.setdefault("access", "ro")
    number = int(node.removeprefix("disk"))
    place = {"addr": hex(FIRST_SLOT + number)} if number < SLOTS else {}
    return join_options(drive), "".join(f",{join_options({key: value})}"
                                        for key, value in (place | options).items())


def plug_disk(lab: Lab, text: str, deadline: Deadline) -> tuple[str, dict[str, str]]:
    """Make the disk that an option speaks of; returns its device in dom0, and xl's options."""
    path, options = split_options(text, LabError)
    xl = take(options, XL_DISK_OPTIONS)
    if path == "ram":
        return free_ram_disk(lab, deadline), xl
    if path.startswith("dom0:"):
        return path.removeprefix("dom0:"), xl
    if not pathlib.Path(path).exists():
        raise LabError(f"--disk {path}: no such file")
    via = options.pop("via", "virtio")
    if via not in ("virtio", "loop"):
        raise LabError(f"--disk {text}: via is virtio or loop")
    node = new_node(lab, "disk")
    device = lab.add_disk(node, *qemu_disk(node, path, options, xl), deadline)
    if via == "loop":
        device = loop_device(lab, device, deadline)
    return device, xl


def check_network(text: str, kind: str, name: str) -> None:
    """Refuse an unsupported kind of network back end."""
    if kind not in NETDEV_OPTIONS or bool(name) != (kind != "user"):
        raise LabError(f"--net {text}: expected user, tap:NAME, stream:SOCKET, bridge:NAME"
                       " or none")


def check(args: argparse.Namespace) -> None:
    """Refuse options that are invalid in any lab; raises LabError."""
    if args.qemu:
        raise LabError("--qemu has no effect under Xen: --xl KEY=VALUE reaches xl")
    for text in args.net:
        first, _ = split_options(text, LabError)
        kind, _, name = first.partition(":")
        if kind not in ("none", "bridge"):
            check_network(text, kind, name)
    for text in args.disk:
        path, _ = split_options(text, LabError)
        if path != "ram" and not path.startswith("dom0:") and not pathlib.Path(path).exists():
            raise LabError(f"--disk {path}: no such file")
    for line in args.xl:
        if "=" not in line:
            raise LabError(f"--xl {line}: expected KEY=VALUE")


def plug_network(lab: Lab, text: str, deadline: Deadline) -> str:
    """Make a network back end of QEMU; returns dom0's bridge on it."""
    first, options = split_options(text, LabError)
    kind, _, name = first.partition(":")
    check_network(text, kind, name)
    node = new_node(lab, "net")
    if kind == "stream":
        address = {"type": "unix", "path": str(pathlib.Path(name).resolve())}
        server = options.get("server") == "on"
        return lab.add_network(node, {"type": "stream", "server": server, "addr": address},
                               deadline)
    defaults = {"ifname": name, "script": "no", "downscript": "no"} if kind == "tap" else {}
    return lab.add_network(node, ",".join(filter(None, [kind, join_options(defaults | options)])),
                           deadline)


def vif(lab: Lab, text: str, deadline: Deadline) -> str | None:
    """xl's configuration of a network card for one --net."""
    first, options = split_options(text, LabError)
    kind, _, name = first.partition(":")
    if kind == "none":
        return None
    if kind == "bridge":
        bridge = name or "xenbr0"
        # An address that is not one of its ports', which come and go (dom0/init has xenbr0's).
        address = ":".join(f"{byte:02x}" for byte in zlib.crc32(bridge.encode()).to_bytes(4, "big"))
        lab.output(f"[ -d /sys/class/net/{bridge} ] || {{ brctl addbr {bridge} &&"
                   f" ip link set {bridge} address 02:16:{address} && ip link set {bridge} up; }}",
                   deadline)
    else:
        netdev = take(options, NETDEV_OPTIONS.get(kind, set()))
        bridge = plug_network(lab, ",".join(filter(None, [first, join_options(netdev)])),
                              deadline)
    return ",".join([f"bridge={bridge}"] + [f"{key}={value}" for key, value in options.items()])


def vbd(lab: Lab, number: int, text: str, deadline: Deadline) -> str:
    """xl's configuration of a disk for one --disk."""
    device, options = plug_disk(lab, text, deadline)
    words = {"vdev": f"xvd{chr(ord('a') + number)}", "access": "rw", "format": "raw"} | options
    # A flag has no value in xl's language.
    return ",".join([key if value == "on" else f"{key}={value}" for key, value in words.items()]
                    + [f"target={device}"])


def quote(text: str) -> str:
    """A string of xl's configuration."""
    safe = re.sub(r"[^A-Za-z0-9 _=./,:;+@%-]",
                  lambda found: "".join(f"\\x{byte:02x}" for byte in found.group().encode()),
                  text)
    return f'"{safe}"'


def boot_by_xl(lab: Lab, args: argparse.Namespace, folder: str,
               deadline: Deadline) -> dict[str, str]:
    """xl's configuration of how a PVH guest boots; the files are put there."""
    for source, target in ((args.kernel, "kernel"), (args.ramdisk, "ramdisk")):
        lab.put(source, f"{folder}/{target}", deadline)
    return {"kernel": quote(f"{folder}/kernel"), "ramdisk": quote(f"{folder}/ramdisk"),
            "cmdline": quote(args.cmdline)}


def boot_by_grub(lab: Lab, deadline: Deadline) -> dict[str, str]:
    """xl's configuration of the machine that an HVM guest is."""
    lab.add_device_model(deadline)
    return {
        "boot": quote("c"), "vga": quote("none"), "vnc": "0", "usb": "0", "audio": "0",
        # A ROM for booting from the network is of no use here, and slow to run.
        "device_model_args_hvm": str([word for card in ("rtl8139", "e1000", "virtio-net-pci")
                                      for word in ("-global", f"{card}.romfile=")]),
    }


def loop_device(lab: Lab, path: str, deadline: Deadline) -> str:
    """A loop device of dom0 on a file or a disk of dom0's; it is removed with the guest DOM."""
    release = f">>/run/lock/{os.environ.get('DOM', 'lab')}"
    return lab.output(f"l=$(losetup -f) && losetup $l {path} && echo losetup -d $l {release} &&"
                      " echo $l", deadline)


def boot_vbd(lab: Lab, args: argparse.Namespace, folder: str, deadline: Deadline) -> str:
    """xl's configuration of the disk that an HVM guest boots from, a file of dom0's."""
    path = lab.folder / f"{args.name}.disk"
    path.write_bytes(hvm.boot_disk(args.kernel, args.ramdisk, args.cmdline))
    lab.put(path, f"{folder}/disk", deadline)
    path.unlink()
    return f"vdev=hda,access=rw,format=raw,target={loop_device(lab, f'{folder}/disk', deadline)}"


def configuration(lab: Lab, args: argparse.Namespace, folder: str, deadline: Deadline) -> str:
    """xl's configuration of the guest; its disks and networks are made."""
    is_hvm = args.type == "hvm"
    lines = {
        "name": quote(args.name), "type": quote(args.type),
        "memory": str(args.mem), "vcpus": str(args.smp),
        # Without it a PVH Linux guest takes half as long again to boot.
        "tsc_mode": quote("native"),
        "on_poweroff": quote("destroy"), "on_reboot": quote("destroy"),
        "on_crash": quote("destroy"),
    }
    vbds = []
    if is_hvm:
        lines |= boot_by_grub(lab, deadline)
        vbds.append(boot_vbd(lab, args, folder, deadline))
    else:
        lines |= boot_by_xl(lab, args, folder, deadline)
    vifs = [words for words in (vif(lab, net, deadline) for net in args.net) if words]
    vbds += [vbd(lab, number, disk, deadline)
             for number, disk in enumerate(args.disk, len(vbds))]
    lines["vif"] = f"[{', '.join(quote(words) for words in vifs)}]"
    lines["disk"] = f"[{', '.join(quote(words) for words in vbds)}]"
    for line in args.xl:
        key, equals, value = line.partition("=")
        if not equals:
            raise LabError(f"--xl {line}: expected KEY=VALUE")
        lines[key.strip()] = value.strip()
    return "".join(f"{key} = {value}\n" for key, value in lines.items())


# For dom0: the number of a guest.  The log of its xl begins with `Waiting for domain NAME (domid
# NUMBER) to die'.
NUMBER = "read -r _ _ _ _ _ id _ </var/log/xen/xl-{name}.log; echo $id"


# For dom0, whose back ends have as many queues as CPUs unless told otherwise.
QUEUES = ("for m in blkback netback; do"
          " echo {count} >/sys/module/xen_$m/parameters/max_queues; done;")


def create(lab: Lab, args: argparse.Namespace, folder: str, deadline: Deadline) -> str:
    """Create the guest, paused; returns its number, or nothing if that is not known yet."""
    text = configuration(lab, args, folder, deadline)
    said: list[bytes] = []
    script = (f"{QUEUES.format(count=args.dom0_queues)}"
              f" mkdir -p {folder}; printf %s {shlex.quote(text)} >{folder}/xl.cfg &&"
              f" xl create -pq {folder}/xl.cfg; s=$?; rm -f {folder}/kernel {folder}/ramdisk;"
              f" {NUMBER.format(name=args.name)}; exit $s")
    if lab.run(script, deadline, said.append) != 0:
        lines = b"".join(said).decode(errors="replace").splitlines()
        raise LabError(next((line for line in lines if "error" in line), "xl create failed"))
    number = (b"".join(said).decode(errors="replace").split() or [""])[-1].rstrip(")")
    return number if number.isdigit() else ""


# The guest's console, until the guest ends: dom0/console.c ends it, and its status has the reason
# of a guest that is alone in its lab.  Nothing waits for xl to remove that, as the lab ends.  What
# the shell says of jobs that were killed is not of the console.
CONSOLE = """
exec 2>/dev/null
trap : TERM
{first}
console ended {id} {name} {alone} {paused} >/dev/null </dev/null &
ended=$!
xenconsole --interactive --type {kind} --num 0 {id}
trap '' TERM
kill -TERM $ended
wait $ended
"""

# Waits until the guest of that name has a console, and prints `here ID`; or prints `gone REASON`:
# the last reason for a shutdown in the log that its xl keeps, or the one that received it when it
# was migrated (none: it was destroyed).  A guest that was saved is waited for.
STATE = """
while :; do
	logs=$(ls -t /var/log/xen/xl-{name}.log /var/log/xen/xl-{name}--incoming.log 2>/dev/null)
	log=${{logs%%.log*}}.log
	reason=$(sed -n 's/.*has shut down, reason code \\([0-9]*\\).*/\\1/p' "$log" 2>&- | tail -n 1)
	case $reason in
	'') wait=once ;;
	{suspend}) wait=wait ;;
	*) echo gone $reason; exit ;;
	esac
	id=$(console find {name} {tty} $wait)
	case $? in
	0) echo here $id; exit ;;
	{none}) echo gone; exit ;;
	{again}) ;;
	*) exit 1 ;;
	esac
done
"""

# A file of a lab: the nonce of the console of the guest that is alone in it.
JOINED = "joined"

# Exit statuses of dom0/console.c; to REASONS a reason for a shutdown is added.
NONE, LOOK_AGAIN, REASONS = 3, 4, 64


def attach(lab: Lab, args: argparse.Namespace, script: str | None, nonce: str,
           sink: Callable[[bytes], None], deadline: Deadline) -> int:
    """Run CONSOLE, or go on with the one that has that nonce."""
    if not args.alone:
        assert script is not None
        return lab.run(script, deadline, sink, 0)
    (lab.folder / JOINED).write_text(nonce)
    return agent.console(lab.folder, script, nonce, deadline, sink, 0)


def console(lab: Lab, args: argparse.Namespace, number: str, sink: Callable[[bytes], None],
            deadline: Deadline) -> int | None:
    """Copy between the guest's console and standard input and output until the guest has ended.

    number is the guest's, if it is known.  One that has just been created is paused.  A guest that
    was saved may be restored: its console is then joined again.  What is typed meanwhile waits: a
    script that can't join a console would take it along to its end.  The console of a PC with a
    serial port (--xl 'serial="pty"') is that port.
    Returns the reason for the guest's shutdown, None if it was destroyed.
    """
    name = args.name
    serial = any(line.partition("=")[0].strip() == "serial" for line in args.xl)
    kind, tty = ("serial", "serial/0/tty") if serial else ("pv", "console/tty")
    # xl has to tell an HVM guest's device model.
    first = f"xl unpause {name} >/dev/null &" if args.type == "hvm" else ""
    paused = "running" if first else "paused"
    joined = args.joined
    while True:
        if joined is not None:
            status = attach(lab, args, None, joined, sink, deadline)
        else:
            # xenconsole waits for a console that is still coming.
            words = ["here", number] if number else lab.output(
                STATE.format(name=name, tty=tty, suspend=REASON_SUSPEND, none=NONE,
                             again=LOOK_AGAIN), deadline).split()
            if words[0] == "gone":
                return int(words[1]) if words[1:] else None
            script = CONSOLE.format(name=name, id=words[1], first=first, kind=kind, paused=paused,
                                    alone="alone" if args.alone else "shared")
            status = attach(lab, args, script, agent.new_nonce(), sink, deadline)
        if REASONS <= status < 2 * REASONS:
            return status - REASONS
        joined, number, first, paused = None, "", "", "running"


def write_console(data: bytes) -> None:
    """Copy the console's output to standard output."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]


def run(lab: Lab, args: argparse.Namespace, deadline: Deadline) -> int:
    """Run a guest to its end; returns the exit status."""
    os.environ["DOM"] = args.name
    number = ""
    if args.joined is None:
        number = create(lab, args, f"/run/guests/{args.name}", deadline)
    try:
        reason = console(lab, args, number, write_console, deadline)
    except LabTimeoutError:
        raise
    except LabError as error:
        raise LabError(f"{error}; its console:\n{lab.console()}") from error
    return STATUS_CRASHED if reason in (REASON_CRASH, REASON_WATCHDOG) else 0


def add_arguments(p: argparse.ArgumentParser, command: Callable[..., int]) -> None:
    """The command line of `xenlab guest`, which Session.command() writes."""
    p.add_argument("--name", required=True, help="the guest's name")
    p.add_argument("--type", choices=["pvh", "hvm"], default="pvh")
    p.add_argument("--kernel", type=pathlib.Path, required=True)
    p.add_argument("--ramdisk", type=pathlib.Path, required=True)
    p.add_argument("--cmdline", default="")
    p.add_argument("--smp", type=int, default=1)
    p.add_argument("--mem", type=int, default=128)
    p.add_argument("--dom0-queues", type=int, default=1)
    p.add_argument("--net", action="append", default=[])
    p.add_argument("--disk", action="append", default=[])
    p.add_argument("--xl", action="append", default=[], metavar="KEY=VALUE",
                   help="a line of xl's configuration")
    p.add_argument("--joined", metavar="NONCE",
                   help="the guest runs already, and its console: the contents of JOINED")
    p.add_argument("--alone", action="store_true", help="the lab ends with the guest")
    p.set_defaults(run=command)
