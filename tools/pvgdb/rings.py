# SPDX-License-Identifier: BSD-2-Clause
#
# Copyright (c) 2026 The pv-kmod developers
"""Rings in words: indices, events, and what is in flight; of struct pvq's three implementations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gdb

# Flags of descriptors (virtio_ring.h).
NEXT, WRITE, INDIRECT = 1, 2, 4
AVAIL, USED = 1 << 7, 1 << 15
POSTED = 1  # vsh_state, gs_state: in flight
# Of an indirect table, of a ring's places, and of what is in flight, so many are shown.
SHOWN = 32


class RingError(Exception):
    """Why there is nothing to show."""


def number(value: Any) -> int:
    """Return an integer or a pointer."""
    return int(value.cast(gdb.lookup_type("unsigned long")))


def to(value: Any, name: str) -> Any:
    """Return the struct NAME at the address of a pointer."""
    return value.cast(gdb.lookup_type(f"struct {name}").pointer()).dereference()


def descriptor(desc: Any, prefix: str) -> str:
    """Return what a descriptor has, split or packed."""
    flags = number(desc[f"{prefix}_flags"])
    kind = "a table" if flags & INDIRECT else "written" if flags & WRITE else "read"
    return f"{number(desc[f'{prefix}_addr']):#x}, {number(desc[f'{prefix}_len'])} bytes, {kind}"


def table(desc: Any, first: Any, prefix: str) -> Iterator[str]:
    """Yield the descriptors of a chain's indirect table."""
    count = number(desc[f"{prefix}_len"]) // first.dereference().type.sizeof
    for at in range(min(count, SHOWN)):
        yield f"        {at}: {descriptor(first[at], prefix)}"


def oldest(shadows: Any, ids: list[int], member: str) -> list[int]:
    """Return the ids of chains in flight that are shown, in the order in which they were put."""
    return sorted(ids, key=lambda one: number(shadows[one][member]))[:SHOWN]


def rest(count: int) -> Iterator[str]:
    """Yield how many there are that are not shown."""
    if count > SHOWN:
        yield f"  ... and {count - SHOWN} more"


def common(q: Any) -> Iterator[str]:
    """Yield what all rings have."""
    committed, completed = number(q["q_committed"]), number(q["q_completed"])
    flight = committed - completed & 0xFFFFFFFF
    taken, given = number(q["q_taken"]), number(q["q_given"])
    stats = q["q_stats"]
    yield (f"{q['q_name'].string()}: {q['q_ops']['qo_name'].string()},"
           f" {number(q['q_size'])} places, {given - taken & 0xFFFFFFFF} free"
           + (f", BROKEN (fault {number(q['q_fault'])})" if number(q["q_fault"]) else ""))
    yield f"  chains: {committed} committed, {completed} completed, {flight} in flight"
    yield (f"  kicks: {number(stats['qs_kicks'])} sent, {number(stats['qs_nokicks'])} not asked"
           f" for; {number(stats['qs_intrs'])} interrupts")


def split(q: Any) -> Iterator[str]:
    """Yield a split ring."""
    ring = to(q.address, "vqsplit")
    avail, used = ring["vq_avail"].dereference(), ring["vq_used"].dereference()
    yield (f"  avail: idx {number(avail['va_idx'])}, {number(ring['vq_staged'])} staged,"
           f" flags {number(avail['va_flags'])}; avail_event"
           f" {number(ring['vq_avail_event'].dereference())}")
    yield (f"  used: idx {number(used['vu_idx'])}, next {number(ring['vq_used_idx'])}, flags"
           f" {number(used['vu_flags'])}; used_event {number(ring['vq_used_event'].dereference())}")
    shadows = ring["vq_shadow"]
    heads = [head for head in range(number(q["q_size"]))
             if number(shadows[head]["vsh_state"]) == POSTED]
    for head in oldest(shadows, heads, "vsh_seq"):
        shadow = shadows[head]
        yield f"  in flight: id {head}, cookie {number(shadow['vsh_cookie']):#x}"
        at = head
        for _ in range(number(shadow["vsh_ndesc"])):
            desc = ring["vq_desc"][at]
            yield f"    {at}: {descriptor(desc, 'vd')}"
            if number(desc["vd_flags"]) & INDIRECT:
                yield from table(desc, shadow["vsh_table"], "vd")
            at = number(shadows[at]["vsh_next"])
    yield from rest(len(heads))


def event(one: Any) -> str:
    """Return what an event suppression structure of a packed ring asks for."""
    word, flags = number(one["vpe_off_wrap"]), number(one["vpe_flags"]) & 3
    place = f"at {word & 0x7fff}, wrap {word >> 15}"
    return ("all", "none", place, "an invalid value")[flags]


def packed(q: Any) -> Iterator[str]:
    """Yield a packed ring."""
    ring = to(q.address, "vqpacked")
    size, places = number(ring["vp_size"]), ring["vp_desc"]
    following = ring["vp_next"]
    end = (number(following["vpp_desc"]) - number(places)) // 16
    yield (f"  driver: next {end}, wrap {int(bool(number(following['vpp_avail']) & AVAIL))},"
           f" {number(ring['vp_staged'])} staged; the device asks for"
           f" {event(ring['vp_device_event'].dereference())}")
    at, turn = number(ring["vp_used"]), number(ring["vp_turn"])
    yield (f"  device: next used {at}, wrap {int(bool(turn & USED))}; the driver asks for"
           f" {event(ring['vp_driver_event'].dereference())}")
    shadows = ring["vp_shadow"]
    ids = [one for one in range(size) if number(shadows[one]["vps_slots"])]
    for one in oldest(shadows, ids, "vps_seq"):
        shadow = shadows[one]
        yield (f"  in flight: id {one}, {number(shadow['vps_slots'])} places, cookie"
               f" {number(shadow['vps_cookie']):#x}")
    yield from rest(len(ids))
    # What the driver has taken, from the oldest place that the device has not returned.
    for _ in range(min((end - at) % size or (size if ids else 0), SHOWN)):
        desc = places[at]
        flags = number(desc["vpd_flags"])
        whose = "used" if flags & (AVAIL | USED) == turn else "available"
        yield f"    {at}: id {number(desc['vpd_id'])}, {whose}: {descriptor(desc, 'vpd')}"
        if whose == "available" and flags & INDIRECT and number(desc["vpd_id"]) < size:
            yield from table(desc, shadows[number(desc["vpd_id"])]["vps_table"], "vpd")
        at = (at + 1) % size


def grant(q: Any) -> Iterator[str]:
    """Yield a ring of Xen's."""
    ring = to(q.address, "grant_ring")
    header = ring["gr_header"].dereference()
    made, read = number(header["gh_req_prod"]), number(ring["gr_rsp_cons"])
    yield (f"  requests: req_prod {made}, {number(ring['gr_staged'])} staged; req_event"
           f" {number(header['gh_req_event'])}")
    yield (f"  responses: rsp_prod {number(header['gh_rsp_prod'])}, read {read}; rsp_event"
           f" {number(header['gh_rsp_event'])}")
    shadows = ring["gr_shadow"]
    ids = [one for one in range(number(q["q_size"]))
           if (number(shadows[one]["gs_state"]), number(shadows[one]["gs_first"])) == (POSTED, one)]
    for one in oldest(shadows, ids, "gs_seq"):
        shadow = shadows[one]
        yield (f"  in flight: id {one}, {number(shadow['gs_missing'])} of"
               f" {number(shadow['gs_nids'])} answers missing, cookie"
               f" {number(shadow['gs_cookie']):#x}")
    yield from rest(len(ids))
    size, mask = number(ring["gr_slot_size"]), number(ring["gr_mask"])
    for index in range(read, read + min(made - read & 0xFFFFFFFF, SHOWN)):
        start = number(ring["gr_slots"]) + (index & mask) * size
        memory = gdb.selected_inferior().read_memory(start, size).tobytes()
        done = number(header["gh_rsp_prod"]) - read & 0xFFFFFFFF
        answered = "response" if index - read < done else "request"
        yield f"    {index & mask}: {answered} {memory.hex(' ', 4)}"


KINDS = {"split": split, "packed": packed, "grant": grant}


def lines(q: Any) -> Iterator[str]:
    """Yield the lines about a struct pvq."""
    yield from common(q)
    kind = q["q_ops"]["qo_name"].string()
    if kind not in KINDS:
        raise RingError(f"a ring of an unknown kind: {kind}")
    yield from KINDS[kind](q)


def queue(value: Any) -> Any:
    """Return the struct pvq that a pointer is to, or to the beginning of whose holder it is."""
    if value.type.strip_typedefs().code != gdb.TYPE_CODE_PTR:
        value = value.address
    if value is None or number(value) == 0:
        raise RingError("there is no queue")
    return to(value, "pvq")


def devices() -> Iterator[Any]:
    """Yield the devices of the tree kernel."""
    head = gdb.lookup_global_symbol("bus_data_devices")
    if head is None:
        raise RingError("only the tree kernel's devices are found by name")
    device = head.value()["tqh_first"]
    while number(device):
        yield device.dereference()
        device = device["all"]["tqe_next"]


def queues_of(device: Any) -> Iterator[tuple[int, Any]]:
    """Yield the queues that a virtio device has, by their numbers."""
    parent = device["parent"]
    if not number(parent) or not number(parent["softc"]) or not number(parent["driver"]) or \
            parent["driver"]["name"].string() not in ("vtpci", "vtmmio"):
        return
    bus = to(parent["softc"], "virtio_bus")
    for index in range(number(bus["vb_nslots"])):
        if number(bus["vb_slots"][index]["vs_pvq"]):
            yield index, bus["vb_slots"][index]["vs_pvq"].dereference()


def named() -> Iterator[tuple[str, int, Any]]:
    """Yield device, number and queue of all virtio devices."""
    for device in devices():
        if number(device["nameunit"]):
            for index, q in queues_of(device):
                yield device["nameunit"].string(), index, q
