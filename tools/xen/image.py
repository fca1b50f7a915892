# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""What the lab boots, made of Debian's packages: Xen, Linux, and memory file systems.

  image/xen          the hypervisor, a multiboot ELF
  image/vmlinux      dom0's kernel, the ELF out of the bzImage (much faster to load)
  image/dom0.cpio.gz dom0's memory file system
  image/dm.cpio      what is unpacked over it for HVM guests: their device model and firmware
  image/tools.cpio     and for tests of the network: /net has Linux's tools, iperf, and modules
  image/grub         the beginning of a disk that they boot from (hvm.py)
  linux/kernel       a Linux guest to compare with (the cloud kernel), and its memory file system,
  linux/boot.tar     under the names that `tools/guest --kernel xen/linux` looks for
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import pathlib
import struct
import subprocess
from collections.abc import Callable

from terminal import Progress
from xen import hvm, packages
from xen.errors import OBJ, ImageError, LabError, locked
from xen.packages import ROOT

IMAGE = OBJ / "image"
LINUX = OBJ / "linux"
HERE = pathlib.Path(__file__).resolve().parent

XEN_BIN = "usr/lib/xen-4.17/bin"
PROGRAMS = ["xl", "xenstored", "xenconsoled", "xenconsole", "libxl-save-helper", "xen-init-dom0",
            "lsevtchn", "xen-diag", "xenctx", "readnotes"]
SAVE_HELPER = "libxl-save-helper"
XENSTORE = ["xenstore-chmod", "xenstore-exists", "xenstore-list", "xenstore-ls", "xenstore-read",
            "xenstore-rm", "xenstore-watch", "xenstore-write"]
# libgcc_s.so.1 is opened by glibc by name: without it `xl create` aborts.
LIBRARIES = [
    "libc.so.6", "libgcc_s.so.1", "liblzma.so.5", "libuuid.so.1", "libz.so.1", "libzstd.so.1",
    "libyajl.so.2", "libxencall.so.1", "libxenctrl.so.4.17", "libxendevicemodel.so.1",
    "libxenevtchn.so.1", "libxenforeignmemory.so.1", "libxengnttab.so.1",
    "libxenguest.so.4.17", "libxenhypfs.so.1", "libxenlight.so.4.17", "libxenstore.so.4",
    "libxentoolcore.so.1", "libxentoollog.so.1", "libxlutil.so.4.17",
]
# In the order in which they can be loaded.
DOM0_MODULES = [
    "xen-privcmd", "xenfs", "xen-evtchn", "xen-gntdev", "xen-gntalloc", "xen-blkback",
    "xen-netback", "loop", "brd", "llc", "stp", "bridge", "virtio_ring", "virtio",
    "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk",
    "virtio_console", "failover", "net_failover", "virtio_net", "tun",
]
DEVICE_MODEL = "usr/libexec/xen-qemu-system-i386"
# The device model reads a keymap, although there is no keyboard.
FIRMWARE = ["usr/lib/xen-4.17/boot/hvmloader", "usr/share/seabios/bios-256k.bin",
            "usr/share/qemu/keymaps/en-us"]
DM_LIBRARIES = [
    "libbz2.so.1.0", "libcrypto.so.3", "libdw.so.1", "libelf.so.1", "libfdt.so.1", "libffi.so.8",
    "libglib-2.0.so.0", "libgmodule-2.0.so.0", "libgobject-2.0.so.0", "libgstapp-1.0.so.0",
    "libgstbase-1.0.so.0", "libgstreamer-1.0.so.0", "libjpeg.so.62", "liblz4.so.1", "libm.so.6",
    "libopus.so.0", "liborc-0.4.so.0", "libpcre2-8.so.0", "libpixman-1.so.0", "libpthread.so.0",
    "libsasl2.so.2", "libspice-server.so.1", "libssl.so.3", "libstdc++.so.6", "libudev.so.1",
    "libunwind.so.8", "libusb-1.0.so.0",
]
NET_PROGRAMS = ["bin/ip", "sbin/tc", "sbin/ethtool", "usr/bin/iperf"]
NET_LIBRARIES = ["libbpf.so.1", "libbsd.so.0", "libcap.so.2", "libelf.so.1", "libm.so.6",
                 "libmd.so.0", "libmnl.so.0", "libstdc++.so.6", "libxtables.so.12"]
NET_MODULES = ["veth", "garp", "mrp", "8021q", "sch_netem", "sch_tbf"]
GUEST_MODULES = ["xen-netfront", "xen-blkfront"]

Entry = tuple[str, int, bytes]

DIRECTORY, FILE, PROGRAM, LINK = 0o040755, 0o100644, 0o100755, 0o120777


def cpio(entries: list[Entry]) -> bytes:
    """An initramfs for Linux (the 'newc' format); folders are made as needed."""
    out = bytearray()
    made: set[str] = set()

    def add(name: str, mode: int, data: bytes) -> None:
        made.add(name)
        path = name.encode() + b"\0"
        fields = [len(made), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0]
        out.extend(b"070701" + b"".join(b"%08x" % field for field in fields) + path)
        out.extend(bytes(-len(out) % 4) + data)
        out.extend(bytes(-len(out) % 4))

    for name, mode, data in entries:
        for parent in reversed(pathlib.PurePosixPath(name).parents[:-1]):
            if str(parent) not in made:
                add(str(parent), DIRECTORY, b"")
        if name not in made:
            add(name, mode, data)
    add("TRAILER!!!", 0, b"")
    return bytes(out)


def initramfs(entries: list[Entry]) -> bytes:
    """The same, compressed."""
    return gzip.compress(cpio(entries), 6, mtime=0)


def kernel_version(cloud: bool) -> str:
    """The version of the generic or of the cloud kernel."""
    names = [path.name for path in (ROOT / "lib/modules").iterdir()
             if ("-cloud-" in path.name) == cloud]
    if len(names) != 1:
        raise ImageError(f"obj/xen/root has not one kernel but {len(names)}: remove obj/xen/deb")
    return names[0]


def vmlinux(path: pathlib.Path) -> bytes:
    """The ELF file out of a bzImage (Linux's boot protocol, payload_offset and _length)."""
    image = path.read_bytes()
    (offset, length) = struct.unpack_from("<II", image, 0x248)
    start = ((image[0x1F1] or 4) + 1) * 512 + offset
    payload = image[start:start + length]
    if not payload.startswith(b"\xfd7zXZ"):
        raise ImageError(f"{path.name}: not compressed with XZ")
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)


def packaged(name: str) -> bytes:
    """What a file of the packages has in it."""
    try:
        return (ROOT / name).read_bytes()
    except FileNotFoundError:
        raise ImageError(f"the packages have no {name}") from None


def modules(version: str, names: list[str], folder: str = "modules") -> list[Entry]:
    """Modules, and the list of them in the order of loading."""
    found = {path.name: path for path in (ROOT / "lib/modules" / version).rglob("*.ko")}
    entries = [(f"{folder}/order", FILE, "\n".join(names).encode() + b"\n")]
    for name in names:
        if name + ".ko" not in found:
            raise ImageError(f"Linux {version} has no module {name}")
        entries.append((f"{folder}/{name}.ko", FILE, found[name + ".ko"].read_bytes()))
    return entries


def busybox() -> list[Entry]:
    """The shell and its commands; the links to it are made by init."""
    place = "bin/busybox"
    data = packaged(place if (ROOT / place).is_file() else f"usr/{place}")
    return [("bin/busybox", PROGRAM, data), ("bin/sh", LINK, b"busybox")]


def library(name: str) -> Entry:
    """A shared library under the name by which it is looked for."""
    for folder in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"):
        path = ROOT / folder / name
        if path.is_file():
            return (f"lib/x86_64-linux-gnu/{name}", PROGRAM, path.read_bytes())
    raise ImageError(f"the packages have no {name}")


def compiled(name: str, options: list[str]) -> bytes:
    """A program or a shared library for dom0, which has the C library of this machine's Debian."""
    target = IMAGE / f"{name}.out"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["clang-19", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target),
               str(HERE / "dom0" / name), *options]
    try:
        done = subprocess.run(command, check=False, text=True, capture_output=True)
    except FileNotFoundError as error:
        raise LabError("clang-19 is not installed: tools/bootstrap") from error
    if done.returncode != 0:
        raise ImageError(f"{name}: {done.stderr.strip()}")
    data = target.read_bytes()
    target.unlink()
    return data


def dom0() -> bytes:
    """dom0's memory file system."""
    loader = packaged("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    entries = busybox()
    entries += [(f"{XEN_BIN}/{name}{'.xen' if name == SAVE_HELPER else ''}", PROGRAM,
                 packaged(f"{XEN_BIN}/{name}")) for name in PROGRAMS]
    entries.append(("lib/holes.so", PROGRAM,
                    compiled("holes.c", ["-fPIC", "-fno-builtin", "-shared", "-nostdlib"])))
    entries.append(("bin/console", PROGRAM, compiled("console.c", ["-lxenctrl", "-lxenstore"])))
    entries += [(f"usr/bin/{name}", LINK, f"/{XEN_BIN}/{name}".encode()) for name in PROGRAMS]
    entries += [(f"usr/bin/{name}", PROGRAM, packaged(f"usr/bin/{name}"))
                for name in XENSTORE]
    entries += [library(name) for name in LIBRARIES]
    entries.append(("lib64/ld-linux-x86-64.so.2", PROGRAM, loader))
    entries += modules(kernel_version(cloud=False), DOM0_MODULES)
    places = {"init": "init", "worker": "bin/worker",
              "vif-bridge": "etc/xen/scripts/vif-bridge",
              "block": "etc/xen/scripts/block", "xl.conf": "etc/xen/xl.conf",
              "save-helper": f"{XEN_BIN}/{SAVE_HELPER}"}
    entries += [(place, PROGRAM, (HERE / "dom0" / name).read_bytes())
                for name, place in places.items()]
    return initramfs(entries)


def supplement(entries: list[Entry], libraries: list[str]) -> bytes:
    """What dom0 is given besides, on a disk, which is of whole sectors."""
    data = cpio(entries + [library(name) for name in libraries])
    return data + bytes(-len(data) % 512)


def device_model() -> bytes:
    """What dom0 needs for HVM guests."""
    entries = [(name, PROGRAM, packaged(name)) for name in [DEVICE_MODEL, *FIRMWARE]]
    return supplement(entries, DM_LIBRARIES)


def net_tools() -> bytes:
    """What dom0 needs to be several hosts of a network."""
    entries = [(f"net/{pathlib.PurePath(name).name}", PROGRAM, packaged(name))
               for name in NET_PROGRAMS]
    entries += modules(kernel_version(cloud=False), NET_MODULES, "net/modules")
    return supplement(entries, NET_LIBRARIES)


def linux_guest() -> bytes:
    """The memory file system of the Linux guest."""
    entries = busybox() + modules(kernel_version(cloud=True), GUEST_MODULES)
    entries.append(("init", PROGRAM, (HERE / "linux" / "init").read_bytes()))
    return initramfs(entries)


def recipe() -> str:
    """A hash of all that the images are made of, but for the packages."""
    parts = [path.read_bytes() for path in sorted(HERE.rglob("*"))
             if path.is_file() and path.suffix != ".pyc"
             and (path.parent != HERE or path.stem in ("hvm", "image", "packages"))]
    parts += [path.name.encode() for path in sorted(packages.DEB.glob("*.deb"))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def write(path: pathlib.Path, data: bytes) -> None:
    """Write a file atomically, also beside others that do the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.rename(path)


# What make() does, one after the other.
STEPS = 10


def make(progress: Progress) -> None:
    """Download, unpack, make each part."""
    progress.step("download Debian's packages")
    packages.fetch()
    progress.step("unpack them")
    packages.unpack()
    generic, cloud = kernel_version(cloud=False), kernel_version(cloud=True)
    # The Linux guest is compressed with LZ4, which xl undoes quickly.
    parts: list[tuple[pathlib.Path, Callable[[], bytes]]] = [
        (IMAGE / "xen", lambda: gzip.decompress(packaged("boot/xen-4.17-amd64.gz"))),
        (IMAGE / "vmlinux", lambda: vmlinux(ROOT / f"boot/vmlinuz-{generic}")),
        (IMAGE / "dom0.cpio.gz", dom0),
        (IMAGE / "dm.cpio", device_model),
        (IMAGE / "tools.cpio", net_tools),
        (IMAGE / "grub", hvm.core),
        (LINUX / "kernel", lambda: packaged(f"boot/vmlinuz-{cloud}")),
        (LINUX / "boot.tar", linux_guest)]
    for path, contents in parts:
        progress.step(f"make {path.parent.name}/{path.name}")
        write(path, contents())


def build() -> bool:
    """Make everything that the lab boots; returns whether there was something to do."""
    stamp = IMAGE / "stamp"
    if stamp.is_file() and stamp.read_text() == recipe():
        return False
    with locked(OBJ / "build.lock"):
        if stamp.is_file() and stamp.read_text() == recipe():
            return False
        progress = Progress(STEPS)
        try:
            make(progress)
        finally:
            progress.clear()
        write(stamp, recipe().encode())
    return True
