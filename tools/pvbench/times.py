# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Measure how long a boot takes, a card's way down and out, and a queue's reset.

Boot: GENERIC on QEMU's microvm under TCG, from the start of QEMU until a card and a disk are
attached, by the clock of this machine, which other work on it changes.

The rest is in the guest's time: one CPU, `-icount shift=0`, whose second is 10^9 instructions or
idle.
  a card alone and beside a thread that never gives up the CPU (dd from /dev/zero to /dev/null):
      each command's time by date(1) before and behind it
  a queue's reset beside the device's: a device of tests/vhost breaks the queue for sending at the
      frame that pktgen sends, and the queue is reset alone where the device has RING_RESET, and
      with the whole device where not; the figure is the longest time between two received frames,
      of those around that frame in a capture of the guest's; beside it are the same around frames
      that break nothing, and how many frames were lost.  The device sends one each millisecond or
      so of this machine's time, and a thread keeps the guest from being idle, so that a pause of
      this machine is a short one of the guest's.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import pathlib
import re
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Iterator

from pvbench import build, counting
from pvbench.errors import BenchError
from pvbench.figures import Figures, of_medians
from pvbench.labs import QuietLab, netlab, scratch
from pvbench.report import Command, Report
from pvbench.table import Line
from pvguest import control
from xen.errors import TOP

VDEV = TOP / "tests/vhost"
BOOTED = "GENERIC"
BOOT = "microvm with a card and a disk"
HOG = "dd if=/dev/zero of=/dev/null bs=4k count=1000000000000 &"
STEPS = {  # in this order
    "kldload if_vtnet": "kldload if_vtnet", "ifconfig up": "ifconfig vtnet0 inet 10.9.0.2/24 up",
    "devctl suspend and resume": "devctl suspend vtnet0; devctl resume vtnet0",
    "ifconfig down": "ifconfig vtnet0 down", "kldunload if_vtnet": "kldunload if_vtnet"}
RESET = "received frames while sending is reset"
UNIT = "ms of the guest's time"
PATIENCE = 600.0  # seconds for a guest
PAUSE = 0.001  # seconds from frame to frame
BREAKS = 5  # of the queue, in each boot
AROUND = 60  # frames from one to the next
NEAR = 30  # of these are looked at behind each
# pktgen's frames, as the device's address is the guest's; the device's have another one.
SENT = bytes.fromhex("02000000000288b5")
CAPTURE = 4 << 20  # bytes
GLOBAL, RECORD = 24, struct.Struct("<IIII")  # of a capture: its header, and a packet's


def boot(folder: pathlib.Path) -> float:
    """Seconds until both are attached."""
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(16 << 20)
    start = time.monotonic()
    with QuietLab([], ["--kernel", BOOTED, "--machine", "microvm", "--net", "user,restrict=on",
                       "--disk", str(disk)]) as lab:
        lab.guest("kldload vtmmio if_vtnet virtio_blk")
        seconds = time.monotonic() - start
        said = lab.guest("devinfo")
        if "vtnet0" not in said or "vtblk0" not in said:
            raise BenchError(f"{BOOT}: not attached\n{said}")
        lab.end()
    return seconds


def steps(hog: bool, wanted: list[str]) -> dict[str, float]:
    """Milliseconds of the guest's time for each step."""
    found = {}
    with QuietLab([], ["--kernel", build.OURS, "--net", "user,restrict=on",
                       *counting.ICOUNT]) as lab:
        if hog:
            lab.guest(HOG)
        for name, line in STEPS.items():
            said = lab.guest(f"date +%s.%N; {line}; date +%s.%N")
            begin, end = re.findall(r"^(\d+\.\d{9})", said, re.M)
            if name in wanted:
                found[name] = 1e3 * (float(end) - float(begin))
        if hog:
            lab.guest("pkill dd; wait", None)
        lab.end()
    return found


class Device:
    """A card whose transmit queue the device breaks, while frames are sent."""

    def __init__(self, process: subprocess.Popen[bytes], ctl: pathlib.Path) -> None:
        self.process = process
        self.ctl = ctl
        self.stop = threading.Event()
        self.sender = threading.Thread(target=self.send)

    def command(self, *words: str) -> dict[str, int]:
        """As tests/ctl; returns what that prints."""
        try:
            result: dict[str, int] = control.ask(self.ctl, words)
        except control.RefusedError as error:
            raise BenchError(f"vdev: {' '.join(words)}: {error}") from error
        return result

    def send(self) -> None:
        """A frame after the other."""
        while not self.stop.wait(PAUSE):
            self.command("frame", "64")


@contextlib.contextmanager
def device(offers: list[str]) -> Iterator[Device]:
    """The device, for the next QEMU."""
    link, ctl = (pathlib.Path(name).absolute() for name in ("vdev.sock", "ctl.sock"))
    words = [str(VDEV / "vdev"), "net", "--pci", "--socket", str(link), "--ctl", str(ctl),
             *(f"--offer={name}" for name in offers)]
    before = os.environ["PATH"]
    with subprocess.Popen(words) as process:
        try:
            netlab.wait_for("vdev", ctl.exists)
            os.environ |= {"PATH": f"{VDEV / 'bin'}{os.pathsep}{before}", "VDEV_SOCKET": str(link)}
            yield Device(process, ctl)
        finally:
            os.environ["PATH"] = before
            process.kill()
            process.wait()
            for path in (link, ctl, pathlib.Path(f"{link}.qtest")):
                path.unlink(missing_ok=True)


def gaps_of(capture: bytes) -> list[float]:
    """Milliseconds between two received frames, the most there are behind each one sent."""
    received: list[float] = []
    sent: list[int] = []  # how many were received before
    at = GLOBAL
    while at + RECORD.size <= len(capture):
        seconds, micros, length, _ = RECORD.unpack_from(capture, at)
        if length == 0:
            break
        at += RECORD.size
        if capture[at:at + length].startswith(SENT, 6):
            sent.append(len(received))
        else:
            received.append(1e3 * seconds + micros / 1e3)
        at += length
    if not sent or sent[0] == 0 or len(received) < sent[-1] + NEAR:
        raise BenchError(f"{RESET}: {len(received)} frames in the capture, {len(sent)} sent")
    return [max(after - before for before, after in itertools.pairwise(
        received[first - 1:first + NEAR])) for first in sent]


def value(lab: netlab.Lab, name: str) -> int:
    """A sysctl of the card's; -1 if a driver's message has come between its digits."""
    found = re.findall(r"^(\d+)\r?$", lab.guest(f"sysctl -n dev.vtnet.0.{name}"), re.M)
    return int(found[-1]) if found else -1


def break_queue(lab: netlab.Lab, card: Device, counter: str) -> None:
    """Send frames that break nothing, then as many that do, between frames that are received."""
    def came(least: int) -> int:
        frames = value(lab, "rxq0.packets")
        return frames if frames >= least else 0

    for broken in range(-BREAKS, BREAKS + 1):
        frames: int = netlab.wait_for("frames", lambda: came(1), netlab.TIMEOUT)
        netlab.wait_for("frames", lambda least=frames + AROUND: came(least), netlab.TIMEOUT)
        if 0 <= broken < BREAKS:
            card.command("violate", "id_idle", "1", "0", "1")
        if broken < BREAKS:
            lab.guest("pktgen -c 1 vtnet0")
        if 0 <= broken < BREAKS:
            netlab.wait_for(counter, lambda broken=broken: value(lab, counter) == broken + 1,
                            netlab.TIMEOUT)


def reset(alone: bool) -> tuple[list[float], int]:
    """Milliseconds of the guest's time without a frame, a queue alone or the device being reset.

    First come as many without a reset; then how many frames were lost.
    """
    disk = pathlib.Path("capture").absolute()
    disk.write_bytes(bytes(CAPTURE))
    memory = ["--qemu=-object", "--qemu=memory-backend-memfd,id=mem,size=128M,share=on",
              "--qemu=-machine", "--qemu=memory-backend=mem"]
    with device(["RING_RESET"] if alone else []) as card, QuietLab([], [
            "--kernel", build.OURS, "--disk", str(disk), *memory, *counting.ICOUNT]) as lab:
        lab.guest("kldload if_vtnet virtio_blk; ifconfig vtnet0 inet 10.9.0.2/24 up")
        lab.guest("tcpdump -i vtnet0 -w /capture &")
        lab.guest(HOG)
        card.sender.start()
        try:
            break_queue(lab, card, "queue_resets" if alone else "resets")
        finally:
            card.stop.set()
            card.sender.join()
        lab.guest("pkill dd; tcpdump -k; wait", None)
        lost = card.command("stats")["rx_frames"] - value(lab, "rxq0.packets")
        lab.guest("dd if=/capture of=/dev/vtbd0 bs=64k conv=sync")
        lab.end()
    return gaps_of(disk.read_bytes()), lost


def run_boot(rounds: int, folder: pathlib.Path, report: Report) -> None:
    """The table of boots."""
    seconds = []
    for _ in range(rounds):
        report.progress.step(BOOT)
        seconds.append(boot(folder))
    report.add(report.table("From QEMU's start until both devices are attached"),
               Line(BOOT, "s by the clock", Figures.of(seconds)))


def run_steps(rounds: int, wanted: list[str], report: Report) -> None:
    """The table of a card's steps."""
    beside, alone = [], []
    for _ in range(rounds):
        report.progress.step("a card")
        beside.append(steps(True, wanted))
        alone.append(steps(False, wanted))
    for name in wanted:
        ours, other = (Figures.of([one[name] for one in side]) for side in (beside, alone))
        report.add(report.table("A card beside a CPU-bound thread", "alone", "beside one"),
                   Line(name, UNIT, ours, other, of_medians(ours, other)))


def run_reset(rounds: int, report: Report) -> None:
    """The table of resets."""
    gaps: tuple[list[float], list[float]] = ([], [])
    without: tuple[list[float], list[float]] = ([], [])
    lost = [0, 0]
    for _ in range(rounds):
        report.progress.step("reset")
        for side, alone in enumerate((True, False)):
            found, missing = reset(alone)
            without[side].extend(found[:BREAKS])
            gaps[side].extend(found[BREAKS:])
            lost[side] += missing
    ours, other = map(Figures.of, gaps)
    report.add(report.table("A queue's reset beside the device's", "the device", "the queue alone"),
               Line(RESET, UNIT, ours, other, of_medians(ours, other), besides={
                   "median without a reset": (statistics.median(without[0]),
                                              statistics.median(without[1])),
                   "frames lost, of all": (lost[0], lost[1])}))


def run(args: argparse.Namespace, report: Report) -> None:
    """Measure."""
    wanted = [name for name in STEPS if report.chosen(name)]
    report.progress.total = args.rounds * sum(
        (report.chosen(BOOT), bool(wanted), report.chosen(RESET)))
    with scratch(PATIENCE) as folder:
        if report.chosen(BOOT):
            run_boot(args.rounds, folder, report)
        if wanted:
            run_steps(args.rounds, wanted, report)
        if report.chosen(RESET):
            run_reset(args.rounds, report)


def check(args: argparse.Namespace) -> None:
    """Both kernels have to be there."""
    del args
    for kernel in (build.OURS, BOOTED):
        build.need_kernel(kernel)


COMMAND = Command("times", __doc__, 5, lambda args: [BOOT, *STEPS, RESET], run, check=check)
