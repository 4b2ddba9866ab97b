"""Runs the threads of some blocks: those at the lowest instruction go first, so branches meet again where they can.

Threads at one instruction run together. A warp's instruction waits for the threads that its mask names, a barrier for all
threads of the block that haven't exited (NVIDIA, CUDA C++ Programming Guide, "Compute Capability 7.x, Independent Thread
Scheduling"); where they can't come, that is an error, as compute-sanitizer's synccheck reports it. Threads that may wait
for others in a loop, at a lock or a flag, take turns with the rest.
"""

from __future__ import annotations

import time

import numpy as np

from practice_gpus.kernels.calls import hand_over
from practice_gpus.kernels.errors import BarrierError, Endless, KernelError
from practice_gpus.kernels.lanes import WARP

TURN = 1000  # instructions after which threads that may be waiting let the others go on
LOOK = 4096  # instructions between two looks at whether anything changes
MEMORY = ("ld", "st", "atom", "red")


class Scheduler:
    """Runs `program`, [(what it is, run, more)], for the threads of `lanes`, at most until `deadline`."""

    def __init__(self, machine, program, lanes):
        self.machine = machine
        self.program = program
        self.lanes = lanes
        self.instructions = machine.module.instructions
        self.groups = {
            machine.module.start: lanes.exists.copy()
        }  # place → threads that stand there
        self.meeting = {}  # place of a warp's instruction → threads that wait there for their warp
        self.waiting = {}  # a barrier: (number, place) → {place: threads that wait there}
        self.arrived = {}  # a barrier → how often warps of each block have arrived without waiting
        self.back = {}  # start of a function → where each thread goes on after it
        self.passed = np.full(
            lanes.count, -1
        )  # the last place at which a thread used memory while others waited
        self.fair = any(_may_wait(each) for each in self.instructions)
        self.later = np.zeros(lanes.count, bool)  # threads that had their turn
        self.had = np.zeros(lanes.count, bool)  # those that are having it
        self.turn_ends = machine.step + TURN
        self.seen, self.look = None, machine.step + LOOK

    def run(self) -> None:
        """Run until every thread has returned."""
        while True:
            while self.groups:
                self._together(*self._next())
            if not self._wake():
                break
        if self.waiting:
            self._stuck()

    def _next(self):
        """Return the place to go on at, its threads, and the next place at which others are."""
        if not self.later.any():
            place = min(self.groups)
            mask = self.groups.pop(place)
        else:
            free = [place for place, mask in self.groups.items() if (mask & ~self.later).any()]
            if not free:
                self.later[:] = False
                return self._next()
            place = min(free)
            whole = self.groups.pop(place)
            mask = whole & ~self.later
            if (whole & self.later).any():
                self.groups[place] = whole & self.later
        return place, mask, min((p for p in self.groups if p > place), default=len(self.program))

    def _together(self, place, mask, others):
        """Run the threads of `mask` from `place` on until they part, wait, return, or come to where others are."""
        lanes, machine = self.lanes, self.machine
        if place in self.meeting:
            mask = mask | self.meeting.pop(place)
        whole = None if np.array_equal(mask, lanes.alive) else mask
        warps = int(mask.reshape(-1, WARP).any(axis=1).sum())
        count = int(mask.sum())
        self._check_time(place)
        if self.fair:
            self.had |= mask
        while place < others:
            if self.fair and machine.step > self.turn_ends:
                self._end_turn()
                break
            instruction = self.instructions[place]
            what, run, more = self.program[place]
            machine.executed[place] += warps
            machine.threads[place] += count
            lanes.step = machine.step = machine.step + 1
            on = whole
            if instruction.guard:
                on = self._guarded(instruction, mask, whole)
                if on is False:
                    place += 1
                    continue
            if what == "plain":
                if self.waiting and instruction.name in MEMORY:
                    self.passed[mask if on is None else on] = place
                run(machine, lanes, on)
                place += 1
            elif what == "branch":
                if on is whole:
                    if more <= place and machine.step > self.look:
                        self._look(place, mask)
                    place = more
                    if place >= others:
                        break
                    continue
                self._part(place, more, mask, on)
                return
            elif what == "warp":
                if on is not None or more:
                    here = self._met(place, mask if on is None else on, more)
                    if on is not whole:
                        self._join(place + 1, mask & ~on)
                    if here is None:
                        return
                    if here is not on:
                        mask = on = here
                        whole = None if np.array_equal(mask, lanes.alive) else mask
                run(machine, lanes, on)
                place += 1
            else:
                self._leave(what, place, more, mask if on is None else on)
                if on is not whole:
                    self._join(place + 1, mask & ~on)
                return
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

    def _part(self, place, target, mask, taken):
        """A branch that some threads take: both sides go on by themselves."""
        stay = mask & ~taken
        apart = taken.reshape(-1, WARP).any(axis=1) & stay.reshape(-1, WARP).any(axis=1)
        if apart.any():
            line = self.instructions[place].line
            self.machine.divergent[line] = self.machine.divergent.get(line, 0) + int(apart.sum())
        self._join(target, taken)
        self._join(place + 1, stay)

    def _join(self, place, mask):
        found = self.groups.get(place)
        self.groups[place] = mask if found is None else found | mask

    def _leave(self, what, place, more, mask):
        """Do what ends a stretch of instructions: a barrier, a call, the way back from it, the end."""
        if what == "barrier":
            self._barrier(place, more, mask)
        elif what == "call":
            function, _, takes = more
            hand_over(self.lanes, takes, function.takes, mask)
            back = self.back.setdefault(function.start, np.zeros(self.lanes.count, np.int64))
            back[mask] = place + 1
            self._join(function.start, mask)
        elif what == "return" and place < self.machine.module.start:
            self._go_back(place, mask)
        elif what == "trap":
            words = "the kernel stopped itself (trap)"
            self.lanes.fail(int(mask.argmax()), KernelError, words, self.instructions[place].line)
        else:
            self.lanes.returned(mask)
            for key in list(self.waiting):
                self._release(key)

    def _go_back(self, place, mask):
        functions = self.machine.module.functions.values()
        function = next(each for each in functions if each.start <= place < each.end)
        to = self.back[function.start]
        for after in np.unique(to[mask]):
            here = mask & (to == after)
            hand_over(self.lanes, function.returns, self.program[after - 1][2][1], here)
            self._join(int(after), here)

    def _met(self, place, on, wanted):
        """Return the threads whose warps are complete (None: no such); the others wait."""
        lanes = self.lanes
        line = self.instructions[place].line
        absent = lanes.absent(on, wanted(lanes) if wanted else None, line)
        if not absent.any():
            return on
        rows = absent.reshape(-1, WARP).any(axis=1)
        stay = on & np.repeat(rows, WARP)
        self.meeting[place] = self.meeting.get(place, False) | stay
        here = on & ~stay
        return here if here.any() else None

    def _wake(self):
        """Let go on those that waited for threads of their warp that have exited since; True where there are any."""
        for place, mask in list(self.meeting.items()):
            wanted = self.program[place][2]
            line = self.instructions[place].line
            absent = self.lanes.absent(mask, wanted(self.lanes) if wanted else None, line)
            free = mask & ~np.repeat(absent.reshape(-1, WARP).any(axis=1), WARP)
            if not free.any():
                continue
            self.meeting[place] = mask & ~free
            if not self.meeting[place].any():
                del self.meeting[place]
            self.groups[place] = free
            return True
        if self.meeting:
            name = self.instructions[place].name
            name = "__syncwarp()" if name == "bar" else f"{name}.sync"
            words = f"{name} waits for a thread of its warp that took another branch"
            self.lanes.fail(int(absent.argmax()), BarrierError, words, line)
        return False

    def _barrier(self, place, barrier, mask):
        """Let threads wait at the barrier (or only arrive), and let those go on for whom it is complete."""
        lanes = self.lanes
        numbers = lanes.spread(barrier.number(lanes))
        for number in np.unique(numbers[mask]):
            here = mask & (numbers == number)
            key = (int(number), None if barrier.count else place)
            if barrier.arrive:
                self.arrived[key] = self.arrived.get(key, 0) + self._warps(here)
                self._join(place + 1, here)
            else:
                entry = self.waiting.setdefault(key, {})
                entry[place] = entry.get(place, False) | here
            self._release(key)

    def _warps(self, mask):
        """Return how many warps of each block have threads in `mask`."""
        return mask.reshape(self.lanes.blocks, -1, WARP).any(axis=2).sum(axis=1)

    def _release(self, key):
        """Let the blocks go on that have all come to a barrier."""
        lanes, entry = self.lanes, self.waiting.get(key)
        if not entry:
            return
        place = min(entry)
        barrier = self.program[place][2]
        total = np.logical_or.reduce(list(entry.values()))
        if barrier.count:
            count = int(lanes.spread(barrier.count(lanes))[total.argmax()])
            complete = (self._warps(total) + self.arrived.get(key, 0)) * WARP >= count
        else:
            here = total.reshape(lanes.blocks, -1)
            complete = (here == lanes.alive.reshape(lanes.blocks, -1)).all(axis=1) & here.any(
                axis=1
            )
        free = total & np.repeat(complete, lanes.padded)
        if not free.any():
            return
        if not lanes.all_alive and not barrier.count:
            self._check_passed(place, np.repeat(complete, lanes.padded), total)
        if key in self.arrived:
            self.arrived[key] = np.where(complete, 0, self.arrived[key])
        self.machine.meet(lanes, free, block=True)
        for at, mask in list(entry.items()):
            self._gather(at, mask & free, free)
            if (mask & free).any():
                self._join(at + 1, mask & free)
            entry[at] = mask & ~free
        if not any(mask.any() for mask in entry.values()):
            del self.waiting[key]

    def _gather(self, place, mask, free):
        """Give the threads of `mask` the result of bar.red over the threads of their blocks that came."""
        gather = self.program[place][2].gather
        if not gather or not mask.any():
            return
        target, mode, read = gather
        lanes = self.lanes
        values = lanes.spread(read(lanes)).reshape(lanes.blocks, -1)
        came = free.reshape(lanes.blocks, -1)
        found = {
            "popc": (values & came).sum(axis=1).astype("u4"),
            "and": (values | ~came).all(axis=1),
            "or": (values & came).any(axis=1),
        }[mode]
        lanes.write(target, np.repeat(found, lanes.padded), mask)

    def _check_passed(self, place, blocks, total):
        """Raise where a thread that has exited took a way around the barrier: it worked on where the others go after it."""
        lanes = self.lanes
        gone = blocks & lanes.exists & ~lanes.alive & (self.passed > place)
        beyond = self._beyond(place) if gone.any() else set()
        for thread in np.flatnonzero(gone):
            if int(self.passed[thread]) in beyond:
                count = int((total & (lanes.block_number == lanes.block_number[thread])).sum())
                self._fail_barrier(
                    place,
                    count,
                    total.argmax(),
                    f"thread {lanes.name(int(lanes.thread[thread]))} went past it",
                )

    def _beyond(self, place):
        """Return the places that can be reached from a barrier without going back."""
        found, todo = set(), [place + 1]
        while todo:
            at = todo.pop()
            if at in found or at <= place or at >= len(self.program):
                continue
            found.add(at)
            what, _, more = self.program[at]
            if what == "branch":
                todo.append(more)
            if what not in ("branch", "return", "exit", "trap") or self.instructions[at].guard:
                todo.append(at + 1)
        return found

    def _fail_barrier(self, place, count, thread, why):
        lanes, line = self.lanes, self.instructions[place].line
        words = f"barrier not reached by all: {count} of {lanes.threads} threads of the block wait, and {why}"
        lanes.fail(int(thread), BarrierError, words, line)

    def _stuck(self):
        """Raise: the threads that wait can't be joined by the rest of their block."""
        lanes = self.lanes
        (place, mask), *others = sorted(
            (item for entry in self.waiting.values() for item in entry.items()),
            key=lambda item: item[0],
        )
        thread = mask.argmax()
        count = int((mask & (lanes.block_number == lanes.block_number[thread])).sum())
        why = "it counts more than ever come"
        if others:
            why = f"other threads wait at another one, in {self.instructions[others[-1][0]].line}"
        self._fail_barrier(place, count, thread, why)

    def _end_turn(self):
        self.later |= self.had
        self.had[:] = False
        self.turn_ends = self.machine.step + TURN

    def _check_time(self, place):
        machine = self.machine
        if time.monotonic() < machine.deadline:
            return
        done = f"{machine.done:,} of {int(np.prod(machine.grid)):,} blocks are done"
        words = f"no end after {machine.seconds:g} seconds, {done}: a grid too large to execute here, or a loop without end"
        raise Endless(f"{words}. At {self.instructions[place].line}")

    def _look(self, place, mask):
        """At a jump back, now and then: raise where nothing has changed since the last time here, so that nothing ever will."""
        self._check_time(place)
        machine, registers = self.machine, self.lanes.registers
        if self.groups:
            self.seen, self.look = None, machine.step + LOOK
        elif self.seen is None or machine.step > self.look + LOOK:
            self.seen, self.look = (place, mask, dict(registers)), machine.step
            machine.changed = False
        elif self.seen[0] == place:
            _, then, old = self.seen
            same = np.array_equal(then, mask) and not machine.changed
            if same and all(np.array_equal(old.get(name), now) for name, now in registers.items()):
                thread, line = int(mask.argmax()), self.instructions[place].line
                words = "the kernel waits for ever: nothing changes any more in its loop"
                self.lanes.fail(thread, Endless, words, line)
            self.seen, self.look = None, machine.step + LOOK


def _may_wait(instruction):
    """True for what a loop that waits for other threads reads: an atomic, a volatile load, an mbarrier."""
    if instruction.name == "ld":
        return bool({"volatile", "acquire", "relaxed", "cv", "cg"} & set(instruction.parts))
    return instruction.name in ("atom", "mbarrier")
