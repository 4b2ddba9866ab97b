"""Streams of the backward pass, and streams that are busy though nothing runs beside the program."""

import time

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from practice_gpus import practice_gpus


class Noted(torch.autograd.Function):
    """Doubles its input, and notes the streams of both passes."""

    seen: list = []

    @staticmethod
    def forward(ctx, x):
        ctx.stream = torch.cuda.current_stream()
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        Noted.seen.append((ctx.stream, torch.cuda.current_stream()))
        return gradient * 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_backward_runs_on_the_stream_of_the_forward_operator(imitated, asynchronous):
    """A user's overlap of two branches would look right forward, and be lost, or race, backward."""
    Noted.seen.clear()
    with imitated(asynchronous=asynchronous):
        ours, side, other = (torch.cuda.Stream() for _ in range(3))
        x = torch.ones(3, device="cuda", requires_grad=True)
        x.register_hook(lambda _: leaf.append(torch.cuda.current_stream()))
        for around in (ours, torch.cuda.default_stream()):
            leaf = []
            with torch.cuda.stream(side):
                first = Noted.apply(x)
            with torch.cuda.stream(other):
                other.wait_stream(side)
                both = Noted.apply(first) + Noted.apply(x)
            with torch.cuda.stream(around):
                around.wait_stream(other)
                Noted.apply(both).sum().backward()
                assert torch.cuda.current_stream() == around
            assert leaf == [side]  # where the leaf was used first
        assert x.grad.tolist() == [24, 24, 24]
    assert len(Noted.seen) == 8 and all(mine == wanted for wanted, mine in Noted.seen)
    assert {wanted for wanted, _ in Noted.seen} > {side, other}


def test_a_stream_chosen_inside_a_backward_function_holds_there(gpus):
    """A user's own kernel wrapper would lose the stream that it has just chosen."""
    side = torch.cuda.Stream()
    seen = []

    class Chooses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            with torch.cuda.stream(side):
                seen.append(torch.cuda.current_stream())
            seen.append(torch.cuda.current_stream())
            return gradient

    Chooses.apply(torch.ones(2, device="cuda", requires_grad=True)).sum().backward()
    assert seen == [side, torch.cuda.default_stream()] == [seen[0], torch.cuda.current_stream()]


def test_a_busy_stream_is_busy_until_somebody_waits(gpus):
    """A user's code that asks an event whether the work is done would never see it undone."""
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began = time.perf_counter()
    start.record()
    torch.cuda._sleep(200_000_000)
    end.record()
    assert not end.query() and not torch.cuda.current_stream().query() and side.query()
    side.wait_event(end)
    assert not side.query() and time.perf_counter() - began < 0.15
    with pytest.raises(RuntimeError, match="Both events must be completed"):
        start.elapsed_time(end)
    side.synchronize()
    assert end.query() and 0.199 < time.perf_counter() - began
    assert 199 < start.elapsed_time(end) < 300
    torch.cuda._sleep(50_000_000)
    began = time.perf_counter()
    torch.ones(1, device="cuda").item()
    assert time.perf_counter() - began > 0.04


def test_checkpointing_works_inside_another_session(imitated):
    """A user in a notebook that has practice GPUs on could not measure a checkpointed model on shapes alone."""
    with imitated(), practice_gpus(1, memory="8 GiB", values=False):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).cuda()
        x = torch.ones(2, 4, device="cuda", requires_grad=True)
        checkpoint(model, x, use_reentrant=False).sum().backward()
        assert x.grad.is_cuda


def test_parts_of_a_sparse_tensor_go_where_it_is_asked_for(gpus):
    """A user's graph whose edge weights come from the CPU would be refused."""
    places = torch.tensor([[0, 1], [1, 0]], device="cuda:1")
    weights = torch.tensor([2.0, 3.0], requires_grad=True)
    matrix = torch.sparse_coo_tensor(places, weights, (2, 2), device="cuda:0")
    assert matrix.device == torch.device("cuda:0")
    matrix.to_dense().sum().backward()
    assert weights.grad.tolist() == [1, 1] and not weights.grad.is_cuda
    with pytest.raises(RuntimeError, match="values is on cpu"):  # as on CUDA: no device is given
        torch.sparse_coo_tensor(places, weights)
