"""helpers.training: the network and the loops of lessons 03 and 04."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from helpers.training import SmallCNN, evaluate, send, train_step
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu


class Spy(nn.Module):
    """A linear model with dropout that notes the mode in which it was called."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout, self.seen = nn.Linear(4, 3), nn.Dropout(0.5), []

    def forward(self, x):
        self.seen.append((self.training, torch.is_inference_mode_enabled()))
        return self.linear(self.dropout(x))


@pytest.fixture
def batches():
    """Ten vectors with labels, in batches of 4, 4 and 2."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(10, 4, generator=g), torch.randint(3, (10,), generator=g)
    return DataLoader(TensorDataset(x, y), batch_size=4)


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_the_network_has_the_parameters_counted_by_hand():
    layers = [3 * 16 * 9 + 16, 16 * 32 * 9 + 32, 32 * 32 * 9 + 32, 32 * 4 * 4 * 10 + 10]
    assert sum(p.numel() for p in SmallCNN().parameters()) == sum(layers)


def test_a_step_follows_the_gradient_worked_out_by_hand(linear):
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    # left over from before: a step must not add to it
    linear.weight.grad = torch.full((3, 4), 100.0)
    error = F.softmax(linear(x), 1).detach() - F.one_hot(y, 3)
    expected = linear.weight.detach() - 0.1 * error.T @ x / 6
    logits = linear(x).detach()
    loss = train_step(linear, x, y, torch.optim.SGD(linear.parameters(), lr=0.1))
    torch.testing.assert_close(linear.weight.detach(), expected)
    torch.testing.assert_close(loss, -(logits.log_softmax(1)[range(6), y]).mean())
    assert not loss.requires_grad


def test_evaluate_counts_what_is_right(batches):
    class Says(nn.Module):
        def forward(self, x):
            return F.one_hot(torch.tensor([1] * len(x)), 3).float()

    ones = (batches.dataset.tensors[1] == 1).sum().item()
    assert 0 < ones < 10
    assert evaluate(Says(), batches, "cpu") == ones / 10


@pytest.mark.parametrize("mode", [True, False])
def test_evaluate_works_in_eval_mode_and_gives_the_model_back_as_it_was(mode, batches):
    model = Spy().train(mode)
    evaluate(model, batches, "cpu")
    assert model.seen == [(False, True)] * 3
    assert model.training is mode
    assert model.dropout.training is mode


def waits(function):
    """How often `function` waits for the GPU, by PyTorch's own count."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        function()
        torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)


def test_a_step_never_waits_for_the_gpu_and_a_test_once(linear, batches):
    with practice_gpus(1):
        model = linear.to("cuda:0")
        optimizer = torch.optim.Adam(model.parameters())
        x, y = (each.to("cuda:0") for each in batches.dataset.tensors)
        assert waits(lambda: train_step(model, x, y, optimizer)) == 0
        assert waits(lambda: evaluate(model, batches, "cuda:0")) == 1
        assert waits(lambda: [x.to("cuda:0") for x, _ in batches]) == 3  # what `send` avoids


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cpu", "mps", "xpu", torch.device("cuda", 0)])
def test_a_copy_is_queued_towards_cuda_only(device):
    class Noting:
        def to(self, device, non_blocking):
            return non_blocking

    assert send(Noting(), device) == ("cuda" in str(device))


def test_an_empty_loader_is_refused(linear):
    with pytest.raises(ValueError, match="loader"):
        evaluate(linear, [], "cpu")
