"""Ctrl-C stops a program on practice GPUs wherever it meets it."""

import contextlib
import dis
import importlib
import os
import random
import signal
import sys
import time

import pytest
import torch


def interrupted_release(allocator, monkeypatch):
    """Let Ctrl-C come while the next tensor is given back, as it does in one of fifteen tries in a training loop."""
    release = allocator.release

    def interrupted(block):
        monkeypatch.setattr(allocator, "release", release)
        signal.raise_signal(signal.SIGINT)
        release(block)

    monkeypatch.setattr(allocator, "release", interrupted)


def test_an_interrupt_while_a_tensor_is_given_back_arrives(imitated, monkeypatch):
    """Python would drop it with "Exception ignored in Place.__del__": the cell would run on, and its memory stay."""
    hook = sys.unraisablehook
    with imitated() as gpus:
        tensor = torch.ones(1000, device="cuda")
        interrupted_release(gpus.machine.allocators[0], monkeypatch)
        until = time.monotonic() + 20
        with pytest.raises(KeyboardInterrupt):
            del tensor
            while time.monotonic() < until:
                time.sleep(0.001)  # of an empty loop, CPython 3.13.0 lets it out of its try
        assert torch.cuda.memory_allocated() == 0
    assert sys.unraisablehook is hook


def test_what_others_drop_goes_where_it_went(imitated, monkeypatch):
    dropped = []

    class Broken:
        def __del__(self):
            raise self.kind

    monkeypatch.setattr(sys, "unraisablehook", lambda what: dropped.append(what.exc_type))
    with imitated():
        for Broken.kind in (ValueError, KeyboardInterrupt):
            with contextlib.suppress(AttributeError):
                Broken()
    assert dropped == [ValueError, KeyboardInterrupt]


def test_an_interrupt_waits_until_the_books_are_whole(imitated, monkeypatch):
    """Cut off in the middle, they would be wrong until the kernel restarts: memory that nobody holds, IndexError."""
    with imitated() as gpus:
        allocator = gpus.machine.allocators[0]
        tensors = [torch.ones(1000, device="cuda") for _ in range(10)]
        place, before = allocator._place, signal.getsignal(signal.SIGINT)

        def interrupted(block):
            monkeypatch.setattr(allocator, "_place", place)
            signal.raise_signal(signal.SIGINT)
            place(block)

        monkeypatch.setattr(allocator, "_place", interrupted)
        with pytest.raises(KeyboardInterrupt):
            torch.cuda.memory_allocated()
        assert torch.cuda.memory_allocated() == 10 * 4096
        del tensors
        assert torch.cuda.memory_allocated() == 0
    assert signal.getsignal(signal.SIGINT) is before


def cut_off(program, point, room="machine/"):
    """Run a program with Ctrl-C at the point ``point`` of a room, of those at which Python looks for it; how many came."""
    count = 0
    called = {}

    def tracer(frame, event, _):
        nonlocal count
        if "/practice_gpus/" + room not in frame.f_code.co_filename.replace("\\", "/"):
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            called[id(frame)] = True  # kept itself, its tensors would live on
        if event == "opcode" and frame.f_lineno is not None:  # else it unwinds an exception
            if called[id(frame)]:
                count += 1
                if count == point:
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGINT)
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            called[id(frame)] = name.startswith(("CALL", "JUMP_BACKWARD"))
        return tracer

    before = sys.gettrace()
    try:
        sys.settrace(tracer)
        program()
        sys.settrace(before)
        time.sleep(0.05 if count >= point else 0)  # one from a destructor comes later
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return count


def test_an_interrupt_at_any_point_leaves_no_memory_behind(imitated):
    """One of 160 left 512 bytes until the kernel's end: a block that was taken, and had no owner yet; or the next
    question after memory raised the error of a tensor that was too large and was never made.
    """

    def program():
        tensor = torch.ones(3, device="cuda")
        joined = torch.cat([tensor + tensor, tensor[1:].clone()])
        del tensor
        joined.sum().item()

    def too_large():
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(1 << 45, device="cuda", dtype=torch.uint8)

    with imitated(1):
        for each, step in (program, 17), (too_large, 5):
            point = 1
            while cut_off(each, point) >= point:
                assert torch.cuda.memory_allocated() == 0, point
                point += step
        assert point > step and (torch.ones(2, device="cuda") * 2).tolist() == [2, 2]


def test_an_interrupt_while_they_are_turned_on_or_off_leaves_all_of_them_or_nothing(imitated):
    """A Ctrl-C in a first import left half of the patches: each later line raised "no attribute 'practice'"."""
    late = "torch.nn.attention.bias"

    def program():
        sys.modules.pop(late, None)
        with imitated(1):
            importlib.import_module(late)
            torch.ones(2, device="cuda").sum().item()

    def state():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return torch.cuda.device_count, torch.empty, os.fork

    program()  # what is imported once only is imported
    before = state()
    draw = random.Random(1)
    for room in "session.py", "machine/interrupts.py":
        for point in draw.sample(range(1, cut_off(program, 0, room)), 12):
            assert cut_off(program, point, room) >= point - 100  # each run has a few more or less
            assert state() == before, (room, point)
        program()
