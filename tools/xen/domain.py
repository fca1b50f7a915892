# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""A guest of the lab: tools/guest's options as xl's configuration, and its console.

A PVH guest (--type pvh) is given the kernel by xl.  An HVM guest (--type hvm) boots it as a PC
does, by GRUB from its first disk, hda, which is made for that; its other disks follow as xvdb and
so on.

`xenlab guest` stands where QEMU stands when a guest runs without Xen: the guest's console is its
standard input and output, and it ends when the guest does, with status 125 if the guest crashed.

A disk is plugged into the lab as a virtio disk and handed to the guest by dom0's block back end;
a network back end likewise, with a bridge of dom0 between it and the guest's card.  What of an
option belongs to whom is told by its name.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import itertools
import os
import pathlib
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator

from xen import hvm
from xen.errors import TOP, Deadline, LabError, LabTimeoutError
from xen.lab import RUN, Lab, Settings

STATUS_CRASHED = 125

# Xen's reasons for a shutdown (xen/sched.h).
REASON_SUSPEND, REASON_CRASH, REASON_WATCHDOG = 2, 3, 4

NETDEV_OPTIONS = {
    "user": {"hostfwd", "guestfwd", "net", "host", "dhcpstart", "dns", "hostname", "restrict",
             "ipv4", "ipv6", "ipv6-net", "ipv6-host", "tftp", "bootfile", "domainname", "smb"},
    "tap": {"vhost", "vnet_hdr", "queues", "sndbuf", "script", "downscript"},
    "stream": {"server"},
}
DRIVE_OPTIONS = {"format", "cache", "aio", "readonly", "discard", "detect-zeroes", "werror",
                 "rerror", "snapshot", "throttling.iops-total"}
XL_DISK_OPTIONS = {"vdev", "access", "devtype", "backend", "backendtype", "script",
                   "direct-io-safe", "no-discard"}


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split 'first,key=value,...'; a doubled comma is a comma."""
    words = [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")]
    options = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            raise LabError(f"{text}: expected key=value, not '{word}'")
        options[key] = value
    return words[0], options


def qemu_options(options: dict[str, str]) -> str:
    """Options as QEMU takes them."""
    return ",".join(f"{key}={value.replace(',', ',,')}" for key, value in options.items())


def take(options: dict[str, str], owned: set[str]) -> dict[str, str]:
    """Remove the options that are owned, and return them."""
    return {key: options.pop(key) for key in list(options) if key in owned}


def new_node(lab: Lab, what: str) -> str:
    """A name for a device that this lab has not had yet; it goes when the guest DOM does."""
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


def free_ram_disk(lab: Lab, deadline: Deadline) -> str:
    """One of dom0's ram disks that no guest has."""
    release = f">>/run/lock/{os.environ.get('DOM', 'lab')}"
    script = ("for d in /dev/ram?; do l=/run/lock/${d##*/}; [ -e $l ] && continue;"
              f" >$l; echo rm $l {release}; echo $d; exit; done; echo no more ram disks; exit 1")
    return lab.output(script, deadline)


def plug_disk(lab: Lab, text: str, deadline: Deadline) -> tuple[str, dict[str, str]]:
    """Make the disk that an option speaks of; returns its device in dom0, and xl's options."""
    path, options = split_options(text)
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
    drive = {"file": str(pathlib.Path(path).resolve()), "format": "raw"} | take(
        options, DRIVE_OPTIONS)
    if drive.get("readonly") == "on":
        xl.setdefault("access", "ro")
    device = lab.add_disk(new_node(lab, "disk"), qemu_options(drive),
                          "".join(f",{qemu_options({key: value})}"
                                  for key, value in options.items()), deadline)
    if via == "loop":
        release = f">>/run/lock/{os.environ.get('DOM', 'lab')}"
        device = lab.output(f"l=$(losetup -f) && losetup $l {device} &&"
                            f" echo losetup -d $l {release} && echo $l", deadline)
    return device, xl


def plug_network(lab: Lab, text: str, deadline: Deadline) -> str:
    """Make a network back end of QEMU; returns dom0's bridge on it."""
    first, options = split_options(text)
    kind, _, name = first.partition(":")
    if kind not in NETDEV_OPTIONS or bool(name) != (kind != "user"):
        raise LabError(f"--net {text}: expected user, tap:NAME, stream:SOCKET, bridge:NAME"
                       " or none")
    node = new_node(lab, "net")
    if kind == "stream":
        address = {"type": "unix", "path": str(pathlib.Path(name).resolve())}
        server = options.get("server") == "on"
        return lab.add_network(node, {"type": "stream", "server": server, "addr": address},
                               deadline)
    defaults = {"ifname": name, "script": "no", "downscript": "no"} if kind == "tap" else {}
    return lab.add_network(node, ",".join(filter(None, [kind, qemu_options(defaults | options)])),
                           deadline)


def vif(lab: Lab, text: str, deadline: Deadline) -> str | None:
    """xl's configuration of a network card for one --net."""
    first, options = split_options(text)
    kind, _, name = first.partition(":")
    if kind == "none":
        return None
    if kind == "bridge":
        bridge = name or "xenbr0"
        lab.output(f"[ -d /sys/class/net/{bridge} ] || {{ brctl addbr {bridge} &&"
                   f" ip link set {bridge} up; }}", deadline)
    else:
        netdev = take(options, NETDEV_OPTIONS.get(kind, set()))
        bridge = plug_network(lab, ",".join(filter(None, [first, qemu_options(netdev)])),
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
    lab.output(f"mkdir -p {folder}", deadline)
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


def boot_vbd(lab: Lab, args: argparse.Namespace, deadline: Deadline) -> str:
    """xl's configuration of the disk that an HVM guest boots from."""
    path = lab.folder / f"{args.name}.disk"
    path.write_bytes(hvm.boot_disk(args.kernel, args.ramdisk, args.cmdline))
    device, _ = plug_disk(lab, f"{str(path).replace(',', ',,')},snapshot=on", deadline)
    path.unlink()
    return f"vdev=hda,access=rw,format=raw,target={device}"


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
        vbds.append(boot_vbd(lab, args, deadline))
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


def create(lab: Lab, args: argparse.Namespace, folder: str, deadline: Deadline) -> None:
    """Create the guest, paused."""
    text = configuration(lab, args, folder, deadline)
    lab.output(f"mkdir -p {folder}", deadline)
    said: list[bytes] = []
    script = (f"printf %s {shlex.quote(text)} >{folder}/xl.cfg && xl create -pq {folder}/xl.cfg;"
              f" s=$?; rm -f {folder}/kernel {folder}/ramdisk; exit $s")
    if lab.run(script, deadline, said.append) != 0:
        lines = b"".join(said).decode(errors="replace").splitlines()
        raise LabError(next((line for line in lines if "error" in line), "xl create failed"))


# The guest's console.  xl, which would end a guest that has shut down, stops looking after it once
# it was saved (`save -c`, or a save that failed), so that is done here as well: Xen tells of every
# shutdown by @releaseDomain.
CONSOLE = """
{{ xenstore-watch @releaseDomain | while read -r _; do
    sleep 1
    reason=$(xl list -v {name} 2>/dev/null | awk 'NR == 2 && $5 ~ /[sc]/ {{ print $8 }}')
    case $reason in ''|-|{suspend}) continue ;; esac
    echo "has shut down, reason code $reason" >>/var/log/xen/xl-{name}.log
    # The console ends by it, and is not to take it along.
    trap '' TERM
    xl destroy {name}
done; }} >/dev/null 2>&1 </dev/null &
{first}
xenconsole --interactive --type pv --num 0 {id} 2>/dev/null
trap '' TERM
kill -TERM 0
"""

# Prints `here ID` when the guest of that name has a console, `coming` when it has none yet, or
# `gone REASON`: the last reason for a shutdown in the log that its xl keeps, or the one that
# received it when it was migrated (none: it was destroyed).
STATE = """
if id=$(xl domid {name} 2>/dev/null); then
    if xenstore-exists /local/domain/$id/console/tty; then echo here $id; else echo coming; fi
    exit
fi
log=$(ls -t /var/log/xen/xl-{name}.log /var/log/xen/xl-{name}--incoming.log 2>/dev/null |
    head -n 1)
reason=$(sed -n 's/.*has shut down, reason code \\([0-9]*\\).*/\\1/p' "$log" | tail -n 1)
echo gone $reason
"""


def console(lab: Lab, name: str, sink: Callable[[bytes], None], deadline: Deadline) -> int | None:
    """Copy between the guest's console and standard input and output until the guest has gone.

    A guest that was saved may be restored: its console is then joined again.  What is typed
    meanwhile waits: a script that can't join a console would take it along to its end.  Returns
    the reason for the guest's shutdown, None if it was destroyed.
    """
    first = f"xl unpause {name} >/dev/null 2>&1 &"
    while True:
        words = lab.output(STATE.format(name=name), deadline).split()
        if words[0] == "here":
            lab.run(CONSOLE.format(name=name, id=words[1], first=first, suspend=REASON_SUSPEND),
                    deadline, sink, 0)
            first = ""
        elif words[0] == "gone" and words[1:] != [str(REASON_SUSPEND)]:
            return int(words[1]) if words[1:] else None
        else:
            time.sleep(min(0.1, deadline.left()))


def write_console(data: bytes) -> None:
    """Copy the console's output to standard output."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]


def run(lab: Lab, args: argparse.Namespace, deadline: Deadline) -> int:
    """Run a guest to its end; returns the exit status."""
    os.environ["DOM"] = args.name
    create(lab, args, f"/run/guests/{args.name}", deadline)
    try:
        reason = console(lab, args.name, write_console, deadline)
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
    p.add_argument("--net", action="append", default=[])
    p.add_argument("--disk", action="append", default=[])
    p.add_argument("--xl", action="append", default=[], metavar="KEY=VALUE",
                   help="a line of xl's configuration")
    p.set_defaults(run=command)


@dataclasses.dataclass
class Session:
    """A guest's place in a lab."""

    lab: Lab
    name: str

    def command(self, args: argparse.Namespace, kernel: pathlib.Path, ramdisk: pathlib.Path,
                cmdline: str) -> list[str]:
        """The command that runs the guest of tools/guest's arguments."""
        if args.qemu:
            raise LabError("--qemu has no effect under Xen: --xl KEY=VALUE reaches xl")
        # A guest that is given up is asked what it waited for before it ends.
        command = [sys.executable, "-B", str(TOP / "tools/xenlab"), "--instance", self.lab.name,
                   "--timeout", str(args.timeout + 15), "guest", "--name", self.name,
                   "--type", args.type,
                   "--kernel", str(kernel), "--ramdisk", str(ramdisk), f"--cmdline={cmdline}",
                   "--smp", str(args.smp), "--mem", str(args.mem)]
        for option in ("net", "disk", "xl"):
            command += [f"--{option}={value}" for value in getattr(args, option)]
        return command

    def environment(self) -> dict[str, str]:
        """What tells tools/xenlab, and whoever runs it, of this guest."""
        return {"XENLAB": self.lab.name, "DOM": self.name}

    def dom0(self, script: str) -> list[str]:
        """The command that runs a shell script in dom0, where DOM is the guest's name."""
        return [sys.executable, "-B", str(TOP / "tools/xenlab"), "--instance", self.lab.name,
                "exec", f"export DOM={self.name}; {script}"]


@contextlib.contextmanager
def own_lab(settings: Settings, deadline: Deadline) -> Iterator[Lab]:
    """A lab for this process alone, started, and stopped in the end.

    Its name is that of a free place, so that a lab whose user died is found, and replaced.
    """
    RUN.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        number += 1
        with (RUN / f"guest{number}.use").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            lab = Lab(f"guest{number}")
            lab.stop(deadline)
            try:
                lab.start(settings, deadline, session=False)
                yield lab
            finally:
                lab.stop(Deadline(20))
            return


# Guests that this process has had.
SESSIONS = itertools.count()


@contextlib.contextmanager
def session(args: argparse.Namespace) -> Iterator[Session]:
    """A guest's place in the lab --lab, which stays, or in one of its own, which does not."""
    deadline = Deadline(args.timeout)
    settings = Settings(dom0_vcpus=args.dom0_vcpus)
    if args.lab is None:
        with own_lab(settings, deadline) as lab:
            yield Session(lab, "guest")
        return
    lab = Lab(args.lab)
    lab.start(settings, deadline)
    name = f"guest{os.getpid()}x{next(SESSIONS)}"
    try:
        yield Session(lab, name)
    finally:
        with contextlib.suppress(LabError):
            lab.output(f"xl destroy {name} 2>/dev/null; rm -rf /run/guests/{name};"
                       f" cd /run/lock; [ -e {name} ] || exit 0; sh {name}; rm {name}",
                       Deadline(20))
            for node in nodes_of(lab, name):
                lab.unplug(node, Deadline(20))
