# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Options as QEMU writes them: first,key=value,..."""

from __future__ import annotations

from collections.abc import Callable

# Options of --net and --disk that belong to the back end; the others are the device's.
NETDEV_OPTIONS = {
    "user": {"hostfwd", "guestfwd", "net", "host", "dhcpstart", "dns", "hostname", "restrict",
             "ipv4", "ipv6", "ipv6-net", "ipv6-host", "tftp", "bootfile", "domainname", "smb"},
    "tap": {"vhost", "vnet_hdr", "queues", "sndbuf", "script", "downscript"},
    "bridge": {"helper"},
    "stream": {"server"},
}
DRIVE_OPTIONS = {"format", "cache", "aio", "readonly", "discard", "detect-zeroes", "werror",
                 "rerror", "snapshot", "throttling.iops-total",
                 "throttling.iops-write"}


def split_options(text: str, refused: Callable[[str], Exception]) -> tuple[str, dict[str, str]]:
    """Split 'first,key=value,...'; a doubled comma is a comma.

    refused makes the exception for a word that is no key=value.
    """
    words = [word.replace("\0", ",") for word in text.replace(",,", "\0").split(",")]
    options = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals:
            raise refused(f"{text}: expected key=value, not '{word}'")
        options[key] = value
    return words[0], options


def join_options(options: dict[str, str], *first: str) -> str:
    """The reverse of split_options(), with or without a first word."""
    return ",".join([*first] + [f"{key}={value.replace(',', ',,')}"
                                for key, value in options.items()])


def take(options: dict[str, str], owned: set[str]) -> dict[str, str]:
    """Remove the options that are owned, and return them."""
    return {key: options.pop(key) for key in list(options) if key in owned}
