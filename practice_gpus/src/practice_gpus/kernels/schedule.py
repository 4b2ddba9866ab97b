"""Runs the threads of some blocks: those at the lowest instruction go first, so branches meet again where they can.

Threads at one instruction run together. A barrier holds those that reach it until all of their block have; where some
can't, that is an error, as compute-sanitizer's synccheck reports it.
"""

from __future__ import annotations

import time

import numpy as np

from practice_gpus.kernels.errors import BarrierError, KernelError
from practice_gpus.kernels.lanes import WARP

LIMIT = 500_000  # instructions of one batch of blocks
TURN = (
    5000  # instructions after which the threads farthest ahead get a turn: others may wait for them
)


class Scheduler:
    """Runs `program`, [(what it is, run)], for the threads of `lanes`."""

    def __init__(self, machine, program, lanes):
        self.machine = machine
        self.program = program
        self.lanes = lanes
        self.instructions = machine.module.instructions
        self.targets = [self._target(each) for each in self.instructions]
        self.groups = {0: lanes.exists.copy()}  # place → threads that stand there
        self.turn = False
        self.waiting = {}  # place of a barrier → threads that wait there

    def _target(self, instruction):
        if instruction.name != "bra":
            return None
        return self.machine.module.labels[instruction.operands[-1]]

    def run(self) -> None:
        """Run until every thread has returned."""
        while self.groups:
            place = max(self.groups) if self.turn else min(self.groups)
            self.turn = False
            mask = self.groups.pop(place)
            others = min((each for each in self.groups if each > place), default=len(self.program))
            self._together(place, mask, others)
            if not self.groups and self.waiting:
                self._stuck()

    def _together(self, place, mask, others):
        """Run the threads of `mask` from `place` on until they part, wait, return, or come to where others are."""
        lanes, machine = self.lanes, self.machine
        whole = None if np.array_equal(mask, lanes.alive) else mask
        rows = mask.reshape(-1, WARP)
        warps = int(rows.any(axis=1).sum())
        end = len(self.program)
        last = machine.step + TURN
        while place < end and place < others:
            if machine.step > last and self.groups:
                self.turn = True
                break
            instruction = self.instructions[place]
            what, run = self.program[place]
            machine.executed[place] += warps
            machine.threads[place] += (
                int(mask.sum()) if whole is not None else int(lanes.alive.sum())
            )
            lanes.step = machine.step = machine.step + 1
            if lanes.step > machine.limit:
                raise KernelError(
                    f"{machine.limit:,} instructions and no end: a loop that waits? At {instruction.line}"
                )
            if lanes.step % 256 == 0 and time.monotonic() > machine.deadline[1]:
                words = f"no end after {machine.deadline[0]:g} seconds, {lanes.step:,} instructions"
                raise KernelError(f"{words}; at {instruction.line}")
            on = whole
            if instruction.guard:
                on = self._guarded(instruction, mask, whole)
                if on is False:
                    place += 1
                    continue
            if what == "plain":
                run(machine, lanes, on)
                place += 1
            elif what == "branch":
                if on is whole:
                    place = self.targets[place]
                    continue
                self._part(place, mask, on)
                return
            elif what == "barrier":
                self._barrier(place, mask if on is whole else on)
                if on is not whole:
                    self._join(place + 1, mask & ~on)
                return
            elif what == "return":
                lanes.returned(mask if on is whole else on)
                if on is not whole:
                    self._join(place + 1, mask & ~on)
                return
            else:
                thread = int((mask if on is None else on).argmax())
                lanes.fail(
                    thread,
                    KernelError,
                    "the kernel stopped itself (trap or a failed assert)",
                    instruction.line,
                )
        if place < end:
            self._join(place, mask)

    def _guarded(self, instruction, mask, whole):
        """Return the threads whose predicate holds: `whole` where all, False where none."""
        name, negated = instruction.guard
        predicate = self.lanes.read(name)
        values = predicate if predicate.dtype == bool else predicate != 0
        values = ~values if negated else values
        if values.size == 1:
            return whole if values[0] else False
        on = values & mask
        if not on.any():
            return False
        return whole if np.array_equal(on, mask) else on

    def _part(self, place, mask, taken):
        """A branch that some threads take: both sides go on by themselves."""
        stay = mask & ~taken
        apart = taken.reshape(-1, WARP).any(axis=1) & stay.reshape(-1, WARP).any(axis=1)
        if apart.any():
            line = self.instructions[place].line
            self.machine.divergent[line] = self.machine.divergent.get(line, 0) + int(apart.sum())
        self._join(self.targets[place], taken)
        self._join(place + 1, stay)

    def _join(self, place, mask):
        found = self.groups.get(place)
        self.groups[place] = mask if found is None else found | mask

    def _barrier(self, place, mask):
        """Let threads wait at the barrier, and let those blocks go on that are complete."""
        lanes = self.lanes
        found = self.waiting.get(place)
        waiting = mask if found is None else found | mask
        here = waiting.reshape(lanes.blocks, -1)
        complete = (here == lanes.exists.reshape(lanes.blocks, -1)).all(axis=1)
        free = waiting & np.repeat(complete, lanes.padded)
        if free.any():
            shared = self.machine.spaces["shared"]
            shared.block_barrier[free] = lanes.step
            shared.warp_barrier[free] = lanes.step
            self._join(place + 1, free)
        self.waiting[place] = waiting & ~free
        if not self.waiting[place].any():
            del self.waiting[place]

    def _stuck(self):
        """Raise: the threads that wait can't be joined by the rest of their block."""
        lanes = self.lanes
        place = min(self.waiting)
        thread = int(self.waiting[place].argmax())
        block = lanes.block_number == lanes.block_number[thread]
        gone = block & lanes.exists & ~lanes.alive
        line = self.instructions[place].line
        if gone.any():
            why = f"thread {lanes.name(int(lanes.thread[int(gone.argmax())]))} has returned without reaching it"
        else:
            other = max(self.waiting)
            why = f"other threads wait at another one, in {self.instructions[other].line}"
        count = int((self.waiting[place] & block).sum())
        words = f"barrier not reached by all: {count} of {lanes.threads} threads of the block wait, and {why}"
        lanes.fail(thread, BarrierError, words, line)
