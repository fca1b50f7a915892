# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""One running lab: Xen and dom0 in a QEMU that lives until it is stopped.

run/NAME has all that belongs to it: pid, the monitor's socket (qmp), the console (console.log),
the agent's ports.  A lab is booted once; its state is then kept below snapshot/, and every later
start of a lab with the same settings continues from there.  Disks and network back ends are plugged
in while it runs, so that one snapshot serves them all.

A snapshot is two files: QEMU's state of the devices, and the memory, NAME.ram, which a lab maps
privately.  So the time of a start depends only on the pages that it accesses.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from qemu.qmp import Qmp, listens
from xen import agent, image
from xen.errors import OBJ, Deadline, LabError, LabTimeoutError, locked

QEMU = "qemu-system-x86_64"
RUN = OBJ / "run"
SNAPSHOT = OBJ / "snapshot"

# Each of these flags has its reason; without it:
#   -smap     dom0 dies at its first return to user space
#   -rdtscp   a PVH Linux guest crashes in Xen's instruction decoder
#   -xsave    vector registers are corrupted silently (with eager-fpu, below)
#   -avx...   programs in PVH guests get SIGILL
#   -monitor  Xen panics in MWAIT with more than one CPU
CPU = "EPYC,-smap,-monitor,-rdtscp,-xsave,-avx,-avx2,-fma,-f16c"

# This dom0 is not attacked: without mitigations it takes a third less of TCG's time.  Accounting of
# memory by cgroup, which nothing here uses, is 4 % of a save.  With FSGSBASE a PV kernel accesses
# an MSR, which traps, at each switch of threads.
DOM0_OPTIONS = ("console=hvc0 quiet nokaslr norandmaps mitigations=off init_on_alloc=0"
                " hardened_usercopy=off audit=0 nowatchdog cgroup_disable=memory nofsgsbase")

# spec-ctrl=no alone selects lazy FPU switching, which TCG's FXSAVE does not support.  QEMU's memory
# is zero already: to write zeros to all that is free would go on in every lab.
XEN_OPTIONS = ("console=com1 noreboot watchdog=no spec-ctrl=no,eager-fpu bootscrub=no"
               " loglvl=warning guest_loglvl=all")


# Linux's sched_setattr(2), which glibc 2.36 has no function for: its number on amd64, and its
# struct: size, policy, flags, nice, priority, runtime (a slice, in nanoseconds), deadline, period,
# utilization.
SYS_SCHED_SETATTR = 314
SCHED_ATTR = struct.Struct("IIQiIQQQII")
SLICE = 10_000_000

# The memory is in a file: it is not part of what is written.
IN_FILE = ("x-ignore-shared",)


def batch() -> None:
    """Make this process, and QEMU that it starts, a batch job with a long slice.

    A lab is one CPU, and a thread for its devices.  Where there are more labs than processors, and
    a thread that wakes up preempts another at once, they take half as long again.  Before Linux
    6.12 the slice has no effect.
    """
    attr = SCHED_ATTR.pack(SCHED_ATTR.size, os.SCHED_BATCH, 0, os.nice(0), 0, SLICE, 0, 0, 0, 0)
    ctypes.CDLL(None).syscall(SYS_SCHED_SETATTR, 0, attr, 0)


def doubled(path: pathlib.Path) -> str:
    """A path in QEMU's language, in which a comma is doubled."""
    return str(path).replace(",", ",,")


def ram_of(state: pathlib.Path) -> pathlib.Path:
    """The file with the memory of a snapshot."""
    return state.with_name(f"{state.name}.ram")


def there(state: pathlib.Path) -> bool:
    """Whether a snapshot is whole: its two files, and its key, which is written last."""
    return all(path.is_file() for path in (state, ram_of(state), state.with_suffix(".key")))


def copy_sparse(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a file; what is zero takes no place."""
    try:
        subprocess.run(["cp", "--sparse=always", source, target], check=True, text=True,
                       capture_output=True)
    except subprocess.CalledProcessError as error:
        raise LabError(error.stderr.strip()) from error


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a lab is made with: memory in MB, and what HVM guests need.

    With icount an instruction takes a nanosecond, whatever else the machine has to do: for
    measurements.
    """

    mem: int = 1024
    dom0_mem: int = 512
    device_model: bool = False
    icount: bool = False

    def name(self) -> str:
        """A name for the snapshot."""
        return (f"{self.mem}-{self.dom0_mem}"
                + ("-hvm" if self.device_model else "") + ("-icount" if self.icount else ""))


class Lab:
    """A lab by its name, running or not."""

    def __init__(self, name: str) -> None:
        if not name or not all(c.isalnum() or c in "-_" for c in name):
            raise LabError(f"{name}: an instance's name is of letters, digits, - and _")
        self.name = name
        self.folder = RUN / name

    @property
    def qmp_path(self) -> pathlib.Path:
        """The socket of QEMU's monitor."""
        return self.folder / "qmp"

    def pid(self) -> int | None:
        """The process of a running lab."""
        try:
            pid = int((self.folder / "pid").read_text())
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(self.folder / "pid").encode() in words else None

    @contextlib.contextmanager
    def monitor(self, deadline: Deadline) -> Iterator[Qmp]:
        """A connection to QEMU's monitor."""
        try:
            with Qmp(self.qmp_path, deadline, LabError) as qmp:
                yield qmp
        except (EOFError, ConnectionError, FileNotFoundError, TimeoutError) as error:
            raise LabError(f"{self.name}: QEMU has ended, or does not answer") from error

    def console(self) -> str:
        """The end of Xen's and dom0's console."""
        try:
            text = (self.folder / "console.log").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.replace("\r", "").splitlines()[-15:])

    def said(self) -> list[str]:
        """What QEMU itself printed, a line each."""
        return (self.folder / "errors").read_text(errors="replace").splitlines()

    def system(self, settings: Settings) -> list[str]:
        """QEMU's words for what is booted: not for a lab that goes on from a state."""
        xen = f"{XEN_OPTIONS} dom0_mem={settings.dom0_mem}M,max:{settings.dom0_mem}M"
        vmlinux, dom0 = (doubled(image.IMAGE / name) for name in ("vmlinux", "dom0.cpio.gz"))
        return ["-kernel", str(image.IMAGE / "xen"), "-append", xen,
                "-initrd", f"{vmlinux} {DOM0_OPTIONS},{dom0}"]

    def command(self, settings: Settings) -> list[str]:
        """QEMU's command line, but for its memory, what is booted, and -incoming."""
        command = [
            QEMU, "-accel", "tcg", "-machine", "pc,memory-backend=ram", "-smp", "1",
            "-m", str(settings.mem),
            "-cpu", CPU, "-display", "none", "-vga", "none", "-nodefaults", "-no-user-config",
            "-no-reboot", "-monitor", "none",
            "-serial", f"file:{self.folder}/console.log",
            "-qmp", f"unix:{self.qmp_path},server=on,wait=off",
            "-pidfile", str(self.folder / "pid"),
            "-device", "virtio-serial-pci,id=agent",
        ]
        if settings.icount:
            command += ["-icount", "shift=0"]
        for number in range(1, agent.PORTS + 1):
            command += ["-chardev", f"pipe,id=port{number},path={self.folder}/port{number}",
                        "-device",
                        f"virtserialport,bus=agent.0,nr={number},chardev=port{number}"]
        return command

    def memory(self, settings: Settings, state: pathlib.Path | None, keep: bool) -> list[str]:
        """QEMU's words for the memory: a snapshot's, which stays as it is; or a file for save()."""
        path = self.folder / "ram" if keep or state is None else ram_of(state)
        if keep and state is not None:
            copy_sparse(ram_of(state), path)
        return ["-object", f"memory-backend-file,id=ram,size={settings.mem}M,"
                f"mem-path={doubled(path)},share={'on' if path.parent == self.folder else 'off'}"]

    def launch(self, settings: Settings, extra: list[str], deadline: Deadline, session: bool,
               state: pathlib.Path | None = None, keep: bool = False) -> None:
        """Start QEMU, in a session of its own or in ours, and wait until dom0 answers.

        It goes on from a state; with keep, or without a state, save() can make one of it.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        command = self.command(settings) + extra + self.memory(settings, state, keep)
        command += self.system(settings) if state is None else ["-incoming", "defer"]
        for number in range(1, agent.PORTS + 1):
            for way in ("in", "out"):
                os.mkfifo(self.folder / f"port{number}.{way}")
        batch()
        with (self.folder / "errors").open("wb") as errors:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors,
                                           stderr=errors, start_new_session=session)
            except FileNotFoundError as error:
                raise LabError(f"{QEMU} is not installed: tools/bootstrap") from error
        try:
            self.wait_for_dom0(process, deadline, state)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def wait_for_dom0(self, process: subprocess.Popen[bytes], deadline: Deadline,
                      state: pathlib.Path | None) -> None:
        """Wait until dom0 answers; raises LabError with the last output of what failed."""
        while not (listens(self.qmp_path) and self.pid() and agent.ready(self.folder)):
            if process.poll() is not None:
                raise LabError((self.said() or ["QEMU ended"])[0])
            time.sleep(min(0.01, deadline.left()))
        status = "started"
        try:
            if state is not None:
                with self.monitor(deadline) as qmp:
                    qmp.incoming(f"exec:cat {shlex.quote(str(state))}", IN_FILE)
                    status = qmp.resume()
            # xl takes its time, and in a snapshot it has answered.
            agent.output(self.folder, "" if state else "xl info >/dev/null", deadline)
        except LabError as error:
            kind = LabTimeoutError if isinstance(error, LabTimeoutError) else LabError
            ended = process.poll()
            words = [f"QEMU's status is {ended}"] if ended is not None else []
            words = [f"dom0 did not come up ({status}): {error}", *words, *self.said()]
            raise kind("; ".join(words) + "; its console:\n" + self.console()) from error

    def start(self, settings: Settings, deadline: Deadline, fresh: bool = False,
              session: bool = True, state: pathlib.Path | None = None,
              disks: list[tuple[str, str, str]] | None = None, keep: bool = False,
              plugin: str = "") -> str:
        """Start the lab if it does not run; returns what was done.

        fresh makes a new snapshot; state is another one, of save(), with these disks of
        add_disk(); keep is for one that is to be saved; plugin is one of TCG's.  With session the
        lab outlives this process's terminal and group of processes; without, who ends that group
        ends the lab.
        """
        image.build()
        with locked(RUN / f"{self.name}.lock"):
            if self.pid() is not None:
                return "runs already"
            state = state or self.snapshot(settings, deadline, fresh)
            words = ["-plugin", plugin] if plugin else []
            for node, drive, device in disks or []:
                words += ["-drive", f"if=none,id={node},{drive}",
                          "-device", f"virtio-blk-pci,id={node}dev,drive={node}{device}"]
            try:
                self.launch(settings, words, deadline, session, state, keep)
                # The next one to be plugged in has the next name.
                (self.folder / "disk.count").write_text("x" * len(disks or []))
            except LabError:
                # The next start boots, instead of loading the same state again.
                state.with_suffix(".key").unlink(missing_ok=True)
                raise
        return "started"

    def snapshot(self, settings: Settings, deadline: Deadline, fresh: bool) -> pathlib.Path:
        """The file with the state of a lab that has just come up; made if need be."""
        SNAPSHOT.mkdir(parents=True, exist_ok=True)
        state = SNAPSHOT / settings.name()
        with locked(SNAPSHOT / f"{settings.name()}.lock"):
            key = self.key(settings)
            stamp = SNAPSHOT / f"{settings.name()}.key"
            if not fresh and there(state) and stamp.read_text() == key:
                return state
            stamp.unlink(missing_ok=True)
            self.launch(settings, [], deadline, session=False)
            try:
                if settings.device_model:
                    self.add_device_model(deadline)
                agent.output(self.folder, "sync; echo 3 >/proc/sys/vm/drop_caches", deadline)
                self.save(state, deadline)
                stamp.write_text(key)
            finally:
                self.end(Deadline(10))
        return state

    def save(self, state: pathlib.Path, deadline: Deadline) -> None:
        """Write the state of a lab that was started for this to files; it goes on afterwards."""
        part = state.with_suffix(f".{self.name}")
        with self.monitor(deadline) as qmp:
            part.unlink(missing_ok=True)
            qmp.save(part, IN_FILE)
            copy_sparse(self.folder / "ram", ram_of(part))
            qmp.resume()
        ram_of(part).rename(ram_of(state))
        part.rename(state)

    def key(self, settings: Settings) -> str:
        """A hash of all that a snapshot depends on."""
        qemu = shutil.which(QEMU)
        if qemu is None:
            raise LabError(f"{QEMU} is not installed: tools/bootstrap")
        # Its file: to have it print its version takes 33 ms of CPU time at each start of a lab.
        status = os.stat(qemu)
        command = self.command(settings) + self.system(settings)
        words = [f"{status.st_size} {status.st_mtime_ns}", image.recipe()]
        words += [word.replace(str(self.folder), "") for word in command]
        return hashlib.sha256("\0".join(words).encode()).hexdigest()

    def end(self, deadline: Deadline) -> None:
        """End QEMU."""
        pid = self.pid()
        with contextlib.suppress(LabError), self.monitor(Deadline(3)) as qmp:
            qmp.execute("quit")
        soft = Deadline(5)
        while pid is not None and self.pid() == pid:
            try:
                time.sleep(min(0.01, soft.left()))
            except LabTimeoutError:
                os.kill(pid, signal.SIGKILL)
                time.sleep(min(0.1, deadline.left()))
        if pid is not None:
            # If it was our child.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def stop(self, deadline: Deadline) -> bool:
        """End the lab and remove its folder; returns whether it ran."""
        with locked(RUN / f"{self.name}.lock"):
            ran = self.pid() is not None
            if ran:
                self.end(deadline)
            shutil.rmtree(self.folder, ignore_errors=True)
        return ran

    def run(self, script: str, deadline: Deadline, sink: agent.Sink,
            source: bytes | int | None = None) -> int:
        """Run a shell script in dom0; see agent.Port.run()."""
        return agent.run(self.folder, script, deadline, sink, source)

    def output(self, script: str, deadline: Deadline) -> str:
        """What a shell script in dom0 prints; raises LabError if it fails."""
        return agent.output(self.folder, script, deadline)

    def put(self, source: pathlib.Path, target: str, deadline: Deadline) -> None:
        """Copy a file to dom0."""
        agent.put(self.folder, source, target, deadline)

    def get(self, source: str, target: pathlib.Path, deadline: Deadline) -> None:
        """Copy a file from dom0."""
        agent.get(self.folder, source, target, deadline)

    def plug(self, what: str, commands: list[str | dict[str, Any]], listing: str,
             deadline: Deadline) -> str:
        """Give commands to QEMU, then wait for a new name in a folder of dom0.

        A command is a line for the human monitor, or the arguments of a netdev_add.
        """
        with locked(self.folder / "plug.lock"):
            before = set(self.output(f"ls {listing}", deadline).split())
            with self.monitor(deadline) as qmp:
                for command in commands:
                    if isinstance(command, str):
                        qmp.monitor(command)
                    else:
                        qmp.execute("netdev_add", **command)
            while True:
                new = set(self.output(f"ls {listing}", deadline).split()) - before
                if new:
                    return sorted(new)[0]
                try:
                    time.sleep(min(0.02, deadline.left()))
                except LabTimeoutError as error:
                    raise LabTimeoutError(f"dom0 does not see the {what}") from error

    def add_disk(self, node: str, drive: str, device: str, deadline: Deadline) -> str:
        """Plug in a virtio disk; returns its device in dom0 (/dev/vda).

        drive and device are options as of QEMU's -drive and -device virtio-blk-pci.
        """
        return "/dev/" + self.plug("disk", [
            f"drive_add 0 if=none,id={node},{drive}",
            f"device_add virtio-blk-pci,id={node}dev,drive={node}{device}",
        ], "/sys/block", deadline)

    def add_network(self, node: str, netdev: str | dict[str, Any], deadline: Deadline) -> str:
        """Plug in a network card; returns a bridge of dom0 that it is on.

        netdev is the back end: as of QEMU's -netdev, or the arguments of QMP's netdev_add.
        """
        kind, _, options = netdev.partition(",") if isinstance(netdev, str) else ("", "", "")
        card = self.plug("network card", [
            f"netdev_add {kind},id={node},{options}".rstrip(",")
            if isinstance(netdev, str) else netdev | {"id": node},
            f"device_add virtio-net-pci,id={node}dev,netdev={node},romfile=",
        ], "/sys/class/net", deadline)
        self.output(f"brctl addbr br-{card} && brctl addif br-{card} {card} &&"
                    f" ip link set {card} up && ip link set br-{card} up", deadline)
        return f"br-{card}"

    def unplug(self, node: str, deadline: Deadline) -> None:
        """Undo add_disk() or add_network()."""
        with locked(self.folder / "plug.lock"), self.monitor(deadline) as qmp:
            # dom0 releases it asynchronously.
            qmp.monitor(f"device_del {node}dev")
            qmp.wait("DEVICE_DELETED", device=f"{node}dev")
            if node.startswith("net"):
                qmp.monitor(f"netdev_del {node}")
                self.output("for b in /sys/class/net/br-*; do [ -e /sys/class/net/${b##*br-} ] ||"
                            " { ip link set ${b##*/} down; brctl delbr ${b##*/}; }; done", deadline)

    def supplement(self, name: str, then: str, deadline: Deadline) -> None:
        """Have the files of image/NAME.cpio in dom0; the first time, run a script there."""
        with locked(self.folder / f"{name}.lock"):
            if self.run(f"[ -e /run/xenlab/{name} ]", deadline, lambda _: None) == 0:
                return
            file = doubled(image.IMAGE / f"{name}.cpio")
            device = self.add_disk(name, f"file={file},format=raw,readonly=on", "", deadline)
            self.output(f"cd / && cpio -idu <{device} 2>&1 && {then} && >/run/xenlab/{name}",
                        deadline)
            self.unplug(name, deadline)

    def add_device_model(self, deadline: Deadline) -> None:
        """Have the files in dom0 that HVM guests need."""
        self.supplement("dm", "true", deadline)

    def add_net_tools(self, deadline: Deadline) -> None:
        """Have Linux's network tools in dom0, in /net, and modules (image.NET_MODULES)."""
        self.supplement("tools", "for m in $(cat /net/modules/order); do"
                        " insmod /net/modules/$m.ko || exit; done", deadline)


def running() -> list[Lab]:
    """All labs that run."""
    labs = [Lab(path.name) for path in sorted(RUN.glob("*")) if path.is_dir()]
    return [lab for lab in labs if lab.pid() is not None]
