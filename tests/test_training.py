"""helpers.training: the network and the loops of lessons 03 and 04."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from helpers import data
from helpers.training import SmallCNN, evaluate, send, train_epoch, train_step
from practice_gpus import practice_gpus


class Reads(TorchDispatchMode):
    """Counts how often a value is read from a tensor; on a GPU each such read waits for the device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class Spy(nn.Module):
    """A linear model with dropout that notes the mode in which it was called."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout, self.seen = nn.Linear(4, 3), nn.Dropout(0.5), []

    def forward(self, x):
        self.seen.append((self.training, torch.is_inference_mode_enabled()))
        return self.linear(self.dropout(x))


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small networks on a busy machine: one thread is faster than threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.mark.parametrize(("classes", "width", "channels"), [(10, 16, 3), (7, 4, 1), (2, 32, 2)])
def test_the_network_gives_one_number_for_each_class(classes, width, channels):
    model = SmallCNN(classes, width=width, in_channels=channels)
    assert model(torch.rand(5, channels, 32, 32)).shape == (5, classes)
    assert model.conv1.out_channels == width


def test_the_network_is_these_formulas():
    torch.manual_seed(0)
    model, x = SmallCNN(width=4), torch.rand(2, 3, 32, 32)
    hidden = (x - 0.5) * 4
    for layer in (model.conv1, model.conv2, model.conv3):
        hidden = F.conv2d(hidden, layer.weight, layer.bias, padding=1).clamp(min=0)
        hidden = (
            hidden.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
        )  # the largest of each 2×2 pixels
    expected = hidden.reshape(2, -1) @ model.classify.weight.T + model.classify.bias
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


def test_another_picture_size_is_refused():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        SmallCNN()(torch.rand(1, 3, 28, 28))


def test_a_step_follows_the_gradient_worked_out_by_hand(linear):
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    linear.weight.grad = torch.full(
        (3, 4), 100.0
    )  # left over from before: a step must not add to it
    error = F.softmax(linear(x), 1).detach() - F.one_hot(y, 3)
    expected = linear.weight.detach() - 0.1 * error.T @ x / 6
    logits = linear(x).detach()
    loss = train_step(linear, x, y, torch.optim.SGD(linear.parameters(), lr=0.1))
    torch.testing.assert_close(linear.weight.detach(), expected)
    torch.testing.assert_close(loss, -(logits.log_softmax(1)[range(6), y]).mean())
    assert not loss.requires_grad


def test_an_epoch_gives_the_mean_over_images_though_the_last_batch_is_short(linear, batches):
    x, y = batches.dataset.tensors
    loss = train_epoch(linear, batches, torch.optim.SGD(linear.parameters(), lr=0.0), "cpu")
    assert loss == pytest.approx(F.cross_entropy(linear(x), y).item(), rel=1e-5)


def test_an_epoch_takes_one_step_a_batch(linear, batches):
    by_hand = copy.deepcopy(linear)
    train_epoch(linear, batches, torch.optim.SGD(linear.parameters(), lr=0.5), "cpu")
    for x, y in batches:
        gradient = F.softmax(by_hand(x), 1).detach() - F.one_hot(y, 3)
        by_hand.weight.data -= 0.5 * gradient.T @ x / len(x)
        by_hand.bias.data -= 0.5 * gradient.mean(0)
    torch.testing.assert_close(linear.weight, by_hand.weight)


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


def test_an_epoch_trains_in_training_mode(batches):
    model = Spy().eval()
    train_epoch(model, batches, torch.optim.SGD(model.parameters(), lr=0.1), "cpu")
    assert model.seen == [(True, False)] * 3


def test_each_loop_reads_one_value_from_the_device(linear, batches):
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    batches = list(batches)  # a DataLoader reads a random number when it starts
    with Reads() as reads:
        train_step(linear, *batches[0], optimizer)
        before = reads.count
        train_epoch(linear, batches, optimizer, "cpu")
        trained = reads.count
        evaluate(linear, batches, "cpu")
    assert (before, trained, reads.count) == (0, 1, 2)


def waits(function):
    """How often `function` waits for the GPU, by PyTorch's own count."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        function()
        torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)


def test_each_loop_waits_for_the_gpu_once(linear, batches):
    with practice_gpus(1):
        model = linear.to("cuda:0")
        optimizer = torch.optim.Adam(model.parameters())
        assert waits(lambda: train_epoch(model, batches, optimizer, "cuda:0")) == 1
        assert waits(lambda: evaluate(model, batches, "cuda:0")) == 1
        assert waits(lambda: [x.to("cuda:0") for x, _ in batches]) == 3  # what `send` avoids


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "cpu", "mps", "xpu", torch.device("cuda", 0)])
def test_a_copy_is_queued_towards_cuda_only(device):
    class Noting:
        def to(self, device, non_blocking):
            return non_blocking

    assert send(Noting(), device) == ("cuda" in str(device))


def test_a_tensor_on_the_cpu_is_sent_to_the_cpu_without_a_copy():
    x = torch.rand(3)
    assert send(x, "cpu") is x


@pytest.mark.parametrize(
    "loop",
    [
        lambda m: evaluate(m, [], "cpu"),
        lambda m: train_epoch(m, [], torch.optim.SGD(m.parameters(), lr=0.1), "cpu"),
    ],
)
def test_an_empty_loader_is_refused(loop, linear):
    with pytest.raises(ValueError, match="loader"):
        loop(linear)


def test_the_network_learns_a_few_shapes_by_heart():
    torch.manual_seed(0)
    x, y = data.shapes(40)
    model = SmallCNN()
    loader = [(x, y)] * 60
    train_epoch(model, loader, torch.optim.Adam(model.parameters(), lr=3e-3), "cpu")
    assert evaluate(model, [(x, y)], "cpu") > 0.9
