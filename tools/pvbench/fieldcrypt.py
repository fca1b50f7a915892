# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Encrypted disks: what is left of a disk's throughput, in per cent.

As it was published: none, AES-CBC 128 / 192 / 256, 3DES and Blowfish, blocks of 32, 16 and 8 KB,
write and read.  Here it is what FreeBSD's geli(8) has today and Linux's dm-crypt (cryptsetup) has
as well; a block a time, in sequence, first without encryption and then with it.  The requests to
GEOM_ELI are made by tests/sys/cmd/geli.c.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pvbench.fieldguests import MODERN, Row, System, blank, booted, cpu_seconds, measure
from pvbench.labs import netlab
from pvbench.report import Report
from pvbench.table import Goal

TITLE = "encrypted disk"
SECTOR = 4096
# Names of geli's and of dm-crypt's, and the bits of a key: XTS has two of them.
CIPHERS = [(f"AES-XTS {bits}", "AES-XTS", "aes-xts-plain64", bits, 2 * bits) for bits in (128, 256)]
CIPHERS += [(f"AES-CBC {bits}", "AES-CBC", "aes-cbc-plain64", bits, bits)
            for bits in (128, 192, 256)]
CIPHERS += [("Camellia-CBC 128", "Camellia-CBC", "camellia-cbc-plain64", 128, 128)]
BLOCKS, TOTAL, DISK = (32, 16, 8), 256 << 20, 64 << 20


def attach(system: System, lab: netlab.Lab, cipher: tuple[str, str, str, int, int]) -> str:
    """Encrypt the second disk; returns the special file."""
    _, geli, crypt, bits, key = cipher
    if not system.is_linux:
        lab.guest(f"geli onetime -e {geli} -l {bits} -s {SECTOR} vtbd1")
        return "/dev/vtbd1.eli"
    lab.guest(f"cryptsetup open --type plain -c {crypt} -s {key} --sector-size {SECTOR}"
              " --key-file /dev/urandom /dev/vdb secret")
    return "/dev/mapper/secret"


def took(lab: netlab.Lab, operation: str, device: str, block: int,
         count: int) -> tuple[float, float]:
    """Microseconds by the guest's clock, and of QEMU's CPU time."""
    words = f"fileio {operation} {device} 0 {DISK // 128} {block << 10} {count}"
    before = cpu_seconds(lab)
    return int(lab.guest(words).split()[-1]), 1e6 * (cpu_seconds(lab) - before)


def row(cipher: tuple[str, str, str, int, int], operation: str, block: int, count: int) -> Row:
    """A row."""
    def once(system: System, lab: netlab.Lab) -> tuple[float, float]:
        none = took(lab, operation, system.disk(0), block, count)
        encrypted = took(lab, operation, attach(system, lab, cipher), block, count)
        lab.guest("cryptsetup close secret" if system.is_linux else "geli detach vtbd1.eli")
        return 100 * none[0] / encrypted[0], 100 * none[1] / encrypted[1]
    way = "write" if operation == "seqwr" else "read"
    return Row(f"{cipher[0]}, {way} {block} KB", "% of none", Goal(1, at_least=True), once,
               cpu_unit="% of none")


def rows(scale: float) -> list[Row]:
    """All of them."""
    return [row(cipher, operation, block, max(64, round(TOTAL * scale) // (block << 10)))
            for cipher in CIPHERS for operation in ("seqwr", "seqrd") for block in BLOCKS]


def run(report: Report, rounds: int, scale: float, systems: Sequence[System]) -> None:
    """Measure."""
    with contextlib.ExitStack() as stack:
        guests: list[tuple[System, netlab.Lab]] = []
        for system in systems:
            words = []
            for number in range(2):
                path = blank(f"crypt-{system.name}-{number}", DISK + (8 << 20))
                words += ["--disk", f"{path},cache=unsafe{MODERN}"]
            guests.append((system, stack.enter_context(
                booted(system, ["--mem", "256", *words]))))
        measure(report, TITLE, rounds, rows(scale), guests)
