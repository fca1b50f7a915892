# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The packages of Debian that the lab is made of, below obj/xen."""

from __future__ import annotations

from debian import Packages, PackagesError
from xen.errors import OBJ, LabError

DEB = OBJ / "deb"
ROOT = OBJ / "root"

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

# A package that depends on the current kernel, and the name of the kernel's file.  dom0 must
# be the generic kernel: the cloud kernel has no XEN_DOM0.
KERNELS = {
    "linux-image-amd64": r"linux-image-[0-9.]+-[0-9]+-amd64_.*\.deb",
    "linux-image-cloud-amd64": r"linux-image-[0-9.]+-[0-9]+-cloud-amd64_.*\.deb",
}

LAB = Packages("the Xen lab", OBJ, PACKAGES, KERNELS)


def fetch() -> None:
    """Download what is missing."""
    try:
        LAB.fetch()
    except PackagesError as error:
        raise LabError(str(error)) from error


def unpack() -> None:
    """Unpack all packages into a fresh ROOT."""
    try:
        LAB.unpack()
    except PackagesError as error:
        raise LabError(str(error)) from error
