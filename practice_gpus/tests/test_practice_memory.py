"""The memory of practice GPUs: PyTorch's rules for blocks, real lifetimes, and what happens when it is full."""

import gc
import itertools
import random
from collections import deque

import pytest
import torch
from torch import nn

from practice_gpus import practice_gpus, settings
from practice_gpus.machine import memory, snapshot

MIB = 1 << 20


@pytest.fixture(autouse=True)
def gpus(imitated):
    with imitated(n=2, memory="64 MiB") as machine:
        yield machine


def take(mib, device="cuda"):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=device)


def now():
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def test_sizes_are_read():
    sizes = [settings.parse_size(size) for size in ("2 MiB", "1.5GiB", "1 gib", "2 GB")]
    assert sizes == [2 * MIB, 3 << 29, 1 << 30, 2 * 10**9]
    with pytest.raises(ValueError, match="at least 2 MiB"):
        settings.parse_size(123)


@pytest.mark.parametrize("bad", ["much", "1 XB", "", "-1 GiB"])
def test_unreadable_size_is_refused(bad):
    with pytest.raises(ValueError, match="memory="):
        practice_gpus(memory=bad)


def test_blocks_are_split_reused_and_joined():
    a, b = take(4), take(4)
    assert now() == (8 * MIB, 20 * MIB)
    del a
    c = take(2)  # goes where a was
    assert now() == (6 * MIB, 20 * MIB)
    e = take(1.5)  # the rest of it; half a MiB is not worth a block of its own
    assert now() == (8 * MIB, 20 * MIB)
    torch.cuda.empty_cache()  # the segment is in use
    assert now()[1] == 20 * MIB
    del b, c, e
    d = take(9.5)  # needs the free parts joined
    assert now() == (9.5 * MIB, 20 * MIB)
    del d


def assert_the_books_agree(allocator, held):
    """Count anew from the blocks what is taken, reserved, and left over in split segments."""
    segments = [one["blocks"] for one in snapshot.segments(allocator)]
    blocks = [block for segment in segments for block in segment]
    free = [block for block in blocks if block["state"] == "inactive"]
    used = [block["size"] for block in blocks if block["state"] != "inactive"]
    split = [block for segment in segments if len(segment) > 1 for block in segment]
    rest = [block["size"] for block in split if block["state"] == "inactive"]
    whole = [sum(block["size"] for block in segment) for segment in segments]
    assert sorted(used) == sorted(block.size for block in held)
    assert len(free) == sum(map(len, allocator.shelves.values()))
    assert all(shelf == sorted(shelf) for shelf in allocator.shelves.values())
    stats = allocator.stats()
    for name, sizes in (("allocation", used), ("segment", whole), ("inactive_split", rest)):
        size = stats[memory.BYTES[name]]["all"]
        assert stats[name]["all"]["current"] == len(sizes) and size["current"] == sum(sizes)
        assert size["peak"] >= size["current"] == size["allocated"] - size["freed"]
    for segment in segments:  # in order, without gaps, and two free neighbors are one
        for left, right in itertools.pairwise(segment):
            assert left["address"] + left["size"] == right["address"]
            assert (left["state"], right["state"]) != ("inactive", "inactive")


def test_the_books_agree_with_the_blocks_after_thousands_of_steps():
    dice = random.Random(0)
    allocator = memory.Allocator(0, 256 * MIB, [])
    held = []
    for step in range(3000):
        if held and dice.random() < 0.5:
            allocator.release(held.pop(dice.randrange(len(held))))
        else:
            size = dice.choice([1, 700, 5000, MIB, 3 * MIB, 9 * MIB, 12 * MIB])
            try:
                held.append(allocator.take(dice.randrange(size) + 1, dice.randrange(2)))
            except torch.OutOfMemoryError:
                allocator.release(held.pop())
        if step % 500 == 400:
            allocator.release_cached()
        if step % 10 == 0:
            assert_the_books_agree(allocator, held)


def test_saved_activations_inside_composite_functions_count():
    x = torch.ones(256, 1024, device="cuda", requires_grad=True)  # 1 MiB
    loss = nn.functional.cross_entropy(x, torch.zeros(256, dtype=torch.long, device="cuda"))
    with_graph = now()[0]
    loss = loss.detach()
    assert with_graph - now()[0] >= MIB  # log_softmax's result, which no name in Python ever held


def test_each_device_has_its_own_books():
    x = take(4, "cuda:1")
    assert torch.cuda.memory_allocated(0) == 0 and torch.cuda.memory_allocated(1) == x.nbytes
    assert torch.cuda.mem_get_info(1) == (44 * MIB, 64 * MIB)
    assert torch.accelerator.memory_reserved(1) == 20 * MIB
    assert "20480 KiB" in torch.cuda.memory_summary(1)


def test_out_of_memory_comes_before_the_work_and_passes():
    held = take(40)
    with pytest.raises(torch.OutOfMemoryError) as error:
        take(30)
    words = str(error.value)
    assert words.startswith("CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a total ")
    assert "total capacity of 64.00 MiB of which 24.00 MiB is free." in words
    assert "memory 40.00 MiB is allocated by PyTorch, and 0 bytes is reserved" in words
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    del held, error
    gc.collect()
    assert take(60).numel() == 60 * MIB  # the cached 40 MiB segment went back to the device
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 372.53 GiB"):
        torch.ones(100_000, 1, device="cuda") * torch.ones(1, 1_000_000, device="cuda")


def test_fraction_limits_what_is_reserved():
    torch.cuda.set_per_process_memory_fraction(0.5)
    with pytest.raises(torch.OutOfMemoryError, match="32.00 MiB allowed"):
        take(33)
    assert take(20).numel() == 20 * MIB


def test_what_was_taken_before_a_lower_limit_stays():
    x = take(30)
    torch.cuda.set_per_process_memory_fraction(0.25)
    assert now() == (30 * MIB, 30 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match="16.00 MiB allowed"):
        take(1)
    assert now() == (30 * MIB, 30 * MIB)
    del x
    y = take(12)  # from what is cached
    assert now() == (y.nbytes, 30 * MIB)


class Interrupted(deque):
    """A log to which somebody adds just after it was found empty."""

    def __bool__(self):
        there = len(self) > 0
        if not there and self.waiting:
            self.waiting.pop()()
        return there


def test_what_another_thread_takes_while_the_books_are_brought_up_to_date_counts():
    books = memory.Allocator(0, 64 * MIB, [])
    books.log = Interrupted()
    books.log.waiting = [lambda: books.take(16 * MIB)]
    books.settle()
    assert not books.has_room(60 * MIB)
    books.take(40 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        books.take(20 * MIB)
    assert books.now("allocated_bytes") == 56 * MIB


def test_timeline_tells_the_story(gpus):
    x = take(4)
    del x
    story = [row[1:4] for row in gpus.timeline]
    assert story == [(0, 4 * MIB, 20 * MIB), (0, 0, 20 * MIB)] and gpus.timeline[0][4] == "empty"


def test_training_frees_what_it_takes():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    seen = []
    for _ in range(6):
        loss = model(torch.randn(128, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        del loss
        seen.append(now()[0])
    assert len(set(seen[1:])) == 1
    weights = sum(-(-p.nbytes // 512) * 512 for p in model.parameters())
    assert seen[-1] == 4 * weights  # parameters, gradients, Adam's two averages
