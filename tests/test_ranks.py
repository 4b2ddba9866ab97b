"""course.checks.ranks: threads that send each other tensors notice what real processes only wait for."""

import pytest
import torch

from course.checks.ranks import Hang, run_ranks


def to_the_next(x, rank, ranks, send, recv):
    came = torch.empty_like(x)
    send(x, (rank + 1) % ranks)
    recv(came, (rank - 1) % ranks)
    return came


def test_each_rank_gets_what_was_sent_to_it_and_bytes_are_counted():
    """The lesson counts the bytes of a ring: they must be those that a rank sends."""
    tensors = [torch.full((5,), float(rank)) for rank in range(4)]
    results, sent = run_ranks(to_the_next, tensors)
    assert [int(result[0]) for result in results] == [3, 0, 1, 2]
    assert sent == [20, 20, 20, 20]


def test_a_message_is_a_copy_of_its_moment():
    """A rank that goes on to change its tensor must not change what another receives."""

    def work(x, rank, ranks, send, recv):
        if rank == 0:
            send(x, 1)
            x.zero_()
        else:
            recv(x, 0)
        return x

    results, _ = run_ranks(work, [torch.ones(3), torch.zeros(3)])
    assert results[1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("lazy", [0, 2])
def test_a_hang_ends_and_says_who_waits_for_whom(lazy):
    """Without it, a learner's ring with a mistake would block the notebook until its time limit."""

    def work(x, rank, *others):
        return x if rank == lazy else to_the_next(x, rank, *others)

    with pytest.raises(Hang) as told:
        run_ranks(work, [torch.ones(2) for _ in range(3)])
    waits = f"rank {(lazy + 1) % 3} waits for rank {lazy}"
    assert waits in str(told.value) and f"rank {lazy} has finished" in str(told.value)


def test_what_a_rank_raises_comes_before_the_hang_it_causes():
    """The learner's mistake must be told, not that the others wait for the rank that made it."""

    def work(x, rank, *others):
        return x[7] if rank == 1 else to_the_next(x, rank, *others)

    with pytest.raises(IndexError):
        run_ranks(work, [torch.ones(2) for _ in range(3)])


def test_a_tensor_of_another_shape_is_refused_with_both_shapes():
    """Broadcasting would hide that a rank receives a chunk into the wrong place."""

    def work(x, rank, ranks, send, recv):
        send(x, 1 - rank)
        recv(torch.empty(2), 1 - rank)

    with pytest.raises(ValueError, match=r"rank 0 has shape \(3,\), the tensor has \(2,\)|rank 1"):
        run_ranks(work, [torch.ones(3), torch.ones(3)])
