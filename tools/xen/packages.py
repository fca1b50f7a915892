# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Debian's packages, downloaded and unpacked below obj/xen; nothing is installed.

apt's own lists of packages are used if they serve.  Where they don't (never fetched, or too old,
so that a file has gone from the mirror), lists of our own are fetched below obj/xen/apt, which
needs no privileges.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

from xen.errors import OBJ, LabError

DEB = OBJ / "deb"
ROOT = OBJ / "root"
APT = OBJ / "apt"

PACKAGES = [
    "xen-hypervisor-4.17-amd64", "xen-utils-4.17", "xen-utils-common", "xenstore-utils",
    "libxencall1", "libxenevtchn1", "libxenforeignmemory1", "libxengnttab1", "libxenmisc4.17",
    "libxenstore4", "libxentoollog1", "libxentoolcore1", "libxendevicemodel1", "libxenhypfs1",
    "libyajl2", "libext2fs2", "liblzma5", "libuuid1", "libzstd1", "zlib1g", "libncurses6",
    "libtinfo6", "libc6", "libcom-err2", "libgcc-s1", "busybox-static",
    # For HVM guests: the device model, with what it reads and its libraries; GRUB.
    "qemu-system-xen", "qemu-system-data", "seabios", "libfdt1", "libglib2.0-0",
    "libjpeg62-turbo", "libpixman-1-0", "libspice-server1", "libusb-1.0-0", "libdw1", "libelf1",
    "libffi8", "libgstreamer1.0-0", "libgstreamer-plugins-base1.0-0", "liblz4-1", "libopus0",
    "liborc-0.4-0", "libpcre2-8-0", "libsasl2-2", "libssl3", "libstdc++6", "libudev1", "libunwind8",
    "libbz2-1.0", "grub-pc-bin", "grub-common", "libdevmapper1.02.1", "libselinux1",
    # For tests of the network: Linux's tools, and iperf, with their libraries.
    "iproute2", "ethtool", "iperf", "libbpf1", "libmnl0", "libbsd0", "libmd0", "libcap2",
    "libxtables12",
]

# A package that depends on the kernel of the day, and what that one's file is called.  dom0 must
# be the generic kernel: the cloud kernel has no XEN_DOM0.
KERNELS = {
    "linux-image-amd64": r"linux-image-[0-9.]+-[0-9]+-amd64_.*\.deb",
    "linux-image-cloud-amd64": r"linux-image-[0-9.]+-[0-9]+-cloud-amd64_.*\.deb",
}


def matching(pattern: str) -> list[pathlib.Path]:
    """The downloaded packages with a name that matches."""
    return [path for path in DEB.glob("*.deb") if re.fullmatch(pattern, path.name)]


def missing() -> tuple[list[str], list[str]]:
    """Packages, and kernels by the name of the package that depends on them, still to fetch."""
    return ([name for name in PACKAGES if not matching(re.escape(name) + r"_.*\.deb")],
            [name for name, pattern in KERNELS.items() if not matching(pattern)])


def apt(program: str, arguments: list[str], own_lists: bool) -> str:
    """Run a program of apt; returns its output, raises LabError with apt's words."""
    options = ["-q", "-o", "APT::Sandbox::User="]
    if own_lists:
        options += ["-o", f"Dir::State::lists={APT}/lists/", "-o", f"Dir::Cache={APT}/cache/"]
    try:
        done = subprocess.run([program, *options, *arguments], cwd=DEB, check=False, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError as error:
        raise LabError(f"{program} is not on this machine: the Xen lab needs Debian 12's"
                       " packages") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E: ")]
        said = lines[0].removeprefix("E: ") if lines else "failed"
        raise LabError(f"Debian's packages are not to be had: {program} {arguments[0]}: {said}")
    return done.stdout


def download(own_lists: bool) -> None:
    """Fetch what is missing."""
    if own_lists:
        for folder in ("lists/partial", "cache/archives/partial"):
            (APT / folder).mkdir(parents=True, exist_ok=True)
        apt("apt-get", ["update", "--error-on=any"], own_lists)
    packages, kernels = missing()
    for name in kernels:
        depends = apt("apt-cache", ["depends", "--important", name], own_lists)
        found = re.search(r"Depends: (linux-image-\S+)", depends)
        if found is None:
            raise LabError(f"apt knows no kernel for {name}")
        packages.append(found.group(1))
    if packages:
        apt("apt-get", ["download", *packages], own_lists)
    packages, kernels = missing()
    if packages or kernels:
        raise LabError(f"apt did not deliver {' '.join(packages + kernels)}")


def fetch() -> None:
    """Download what is missing."""
    DEB.mkdir(parents=True, exist_ok=True)
    if missing() == ([], []):
        return
    try:
        download(own_lists=False)
    except LabError:
        if shutil.which("apt-get") is None:
            raise
        download(own_lists=True)


def unpack() -> None:
    """Unpack all packages into a fresh ROOT."""
    if shutil.which("dpkg") is None:
        raise LabError("dpkg is not on this machine: the Xen lab needs Debian 12's packages")
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    for path in sorted(DEB.glob("*.deb")):
        done = subprocess.run(["dpkg", "-x", str(path), str(ROOT)], check=False, text=True,
                              capture_output=True)
        if done.returncode != 0:
            path.unlink()
            raise LabError(f"{path.name} is damaged and was removed: build again"
                           f" ({done.stderr.strip()})")
