# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""The frames of tests/hosted/corpus on their way through a guest.

  corpus.py PCAP PLACE ...    wait until all are in PCAP, as the guest sent them

PLACE is what the guest was, one after the other: bridge, vlan (a bridge of a VLAN), router.
FreeBSD (GUEST_OS) makes the first tag one of a VLAN if it was 802.1ad's.
"""

from __future__ import annotations

import collections
import os
import pathlib
import struct
import sys
import time
from collections.abc import Iterator

FRAMES = pathlib.Path(__file__).resolve().parent.parent / "hosted/corpus/frames.pcap"
FROM = bytes.fromhex("020000000077")
# Hosts that no outer header is addressed to.
ROUTED = bytes([198, 51, 100, 2]), bytes.fromhex("20010db8000100000000000000000002")
STEP = 5  # a sample of so many
SECONDS = 60


def records(path: pathlib.Path) -> Iterator[tuple[int, int, bytes]]:
    """The time stamps and frames of a file of pcap(3), as far as it is written."""
    data, at = path.read_bytes(), 24
    while at + 16 <= len(data):
        seconds, micros, length, _ = struct.unpack_from("<IIII", data, at)
        if at + 16 + length > len(data):
            return
        yield seconds, micros, data[at + 16:at + 16 + length]
        at += 16 + length


def checksum(data: bytes) -> int:
    """The Internet checksum of a header."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def hop(packet: bytes) -> bytes:
    """A packet that was routed."""
    if packet[0] >> 4 == 6:
        return packet[:7] + bytes([packet[7] - 1]) + packet[8:]
    head = packet[:8] + bytes([packet[8] - 1, packet[9], 0, 0]) + packet[12:20]
    return head[:10] + struct.pack(">H", checksum(head)) + packet[12:]


def goes(place: str, frame: bytes) -> bytes | None:
    """What becomes of a frame in the guest, without addresses; None: it does not go through."""
    kind = frame[12:14]
    if place == "bridge":
        return frame[12:]
    if place == "vlan":
        return frame[16:] if kind == b"\x81\x00" else None
    if kind == b"\x08\x00" and frame[30:34] == ROUTED[0]:
        return kind + hop(frame[14:])
    if kind == b"\x86\xdd" and frame[38:54] == ROUTED[1]:
        return kind + hop(frame[14:])
    return None


def sample(place: str) -> Iterator[tuple[bytes, dict[str, int], bytes]]:
    """Frames as the device sends them, with their headers' values, and as they leave the guest."""
    for start, micros, frame in list(records(FRAMES))[::1 if place == "router" else STEP]:
        after = goes(place, frame)
        if after is None:
            continue
        if not start:
            yield frame, {}, after
            continue
        field = start + (micros >> 16)
        yield (frame[:field] + struct.pack(">H", micros & 0xFFFF) + frame[field + 2:],
               {"flags": 1, "csum_start": start, "csum_offset": micros >> 16}, after)


def known(frame: bytes) -> bytes:
    """A frame without what FreeBSD changes."""
    changed = os.environ.get("GUEST_OS", "").startswith("freebsd") and frame[:2] == b"\x88\xa8"
    return b"\x81\x00" + frame[2:] if changed else frame


def main() -> int:
    """Run the command."""
    path, *places = sys.argv[1:]
    want = collections.Counter(known(after) for place in places for _, _, after in sample(place))
    end = time.monotonic() + SECONDS
    while True:
        got = collections.Counter(known(frame[12:]) for _, _, frame in records(pathlib.Path(path))
                                  if "router" in places or frame[6:12] == FROM)
        missing = want - got
        if not missing or time.monotonic() > end:
            break
        time.sleep(0.2)
    wrong = got - want if "router" not in places else collections.Counter[bytes]()
    print(f"{' '.join(places)}: {want.total()} frames, {missing.total()} missing, "
          f"{wrong.total()} others")
    for name, frames in (("missing", missing), ("not scapy's", wrong)):
        for frame in list(frames)[:3]:
            print(f"{name}: {frame.hex()}")
    return 1 if missing or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
