"""Barriers in shared memory (mbarrier, under cuda::barrier): threads arrive, and others test whether a phase is over.

The 64 bits are opaque in PTX; here: 16 bits that still have to arrive, 16 bits that are expected, then the phase.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from practice_gpus.kernels.lanes import reader

MASK = 0xFFFF


def make(instruction: Any, machine: Any) -> tuple:
    """Return the step of an mbarrier instruction."""
    kind = {"try_wait": "test_wait", "arrive_drop": "arrive"}.get(
        instruction.parts[1], instruction.parts[1]
    )
    return "plain", globals()[f"_{kind}"](instruction, machine), None


def _places(instruction, machine, address):
    """Return function(machine, lanes, mask) → (the barriers' words, place of each thread's barrier, threads)."""
    generic = instruction.space == ""
    read = reader(address[1], "s64" if generic else "u32", machine.names)

    def find(machine, lanes, mask):
        shared = machine.spaces["shared"]
        addresses = lanes.spread(read(lanes)).astype(np.int64) + address[2]
        addresses = addresses & (1 << 56) - 1

        def blame(thread, kind, words):
            lanes.fail(thread, kind, words, instruction.line)

        active = lanes.active(mask)
        places = shared.places(addresses, 8, active, "mbarrier", blame)
        return shared.views[8], places // 8, np.flatnonzero(lanes.on(mask))

    return find


def _init(instruction, machine):
    address, count = instruction.operands
    find, read = _places(instruction, machine, address), reader(count, "u32", machine.names)

    def run(machine, lanes, mask):
        words, places, threads = find(machine, lanes, mask)
        counts = lanes.spread(read(lanes)).astype("u8")
        words[places[threads]] = (counts | counts << np.uint64(16))[threads]
        machine.changed = True

    return run


def _inval(instruction, machine):
    return lambda machine, lanes, mask: None


def arrived(word: int, count: int, drop: int = 0) -> int:
    """Return a barrier's word after `count` arrivals, of which `drop` won't be expected again."""
    pending, expected, phase = word & MASK, (word >> 16 & MASK) - drop, word >> 32
    pending -= count
    if pending <= 0:
        pending, phase = expected, phase + 1
    return pending | expected << 16 | phase << 32


def _arrive(instruction, machine):
    drops = "arrive_drop" in instruction.parts
    target, address, *count = instruction.operands
    find = _places(instruction, machine, address)
    read = reader(count[0] if count else "1", "u32", machine.names)

    def run(machine, lanes, mask):
        words, places, threads = find(machine, lanes, mask)
        counts = lanes.spread(read(lanes))
        state = np.zeros(lanes.count, "u8")
        for thread in threads:
            place, number = places[thread], int(counts[thread])
            state[thread] = words[place]
            words[place] = arrived(int(words[place]), number, number if drops else 0)
        machine.changed = True
        if target != "_":
            lanes.write(target, state, mask)

    return run


def _test_wait(instruction, machine):
    target, address, state, *_ = instruction.operands
    parity = "parity" in instruction.parts
    find, read = (
        _places(instruction, machine, address),
        reader(state, "u32" if parity else "u64", machine.names),
    )

    def run(machine, lanes, mask):
        words, places, threads = find(machine, lanes, mask)
        phase = words[places] >> np.uint64(32)
        given = lanes.spread(read(lanes))
        over = (
            phase & np.uint64(1) != given.astype("u8")
            if parity
            else phase != given >> np.uint64(32)
        )
        ready = over & lanes.on(mask)
        machine.order.waited(ready, lanes.step, True)
        lanes.write(target, over, mask)

    return run


def after_copies(instruction: Any, machine: Any) -> Any:
    """Return run(machine, lanes, mask) of cp.async.mbarrier.arrive: the thread's copies are done, and it arrives."""
    find = _places(instruction, machine, instruction.operands[0])
    counts = "noinc" in instruction.parts

    def run(machine, lanes, mask):
        machine.copies.wait_all(lanes.active(mask))
        words, places, threads = find(machine, lanes, mask)
        for thread in threads if counts else ():
            words[places[thread]] = arrived(int(words[places[thread]]), 1)
        machine.changed = True

    return run
