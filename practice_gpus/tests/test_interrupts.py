"""Ctrl-C stops a program on practice GPUs wherever it meets it."""

import contextlib
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
