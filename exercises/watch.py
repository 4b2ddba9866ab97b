"""What checks look at while a learner's loop runs: reads from the device, graphs kept alive, modes of the model."""

import copy
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from helpers.checks.core import NotYet, call

GPU = "cuda:0"


class Waits(TorchFunctionMode):
    """Counts calls that read values of a GPU tensor; copies to the GPU, which may wait as well, do not count."""

    READS = {
        "item",
        "tolist",
        "cpu",
        "numpy",
        "__float__",
        "__int__",
        "__bool__",
        "__index__",
        "__array__",
        "equal",
        "allclose",
        "nonzero",
    }
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], torch.Tensor) and args[0].is_cuda:
            self.count += name in self.READS
            self.count += name == "to" and not result.is_cuda
        return result


class Token:
    """Something to hold weakly: it lives as long as the graph that holds it."""


class Hold(torch.autograd.Function):
    """The identity, whose node in the graph holds a token."""

    @staticmethod
    def forward(ctx, x, token):
        ctx.token = token
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Watched(nn.Module):
    """A small classifier that notes, at each call, its mode, whether a graph is made, and the earlier graphs alive."""

    def __init__(self, noisy=False):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(12), nn.Dropout(0.5 if noisy else 0.0)
        self.linear = nn.Linear(12, 5)
        self.tokens, self.training_at, self.graph_at, self.alive_at = weakref.WeakSet(), [], [], []

    def forward(self, x):
        self.training_at.append(self.training)
        self.graph_at.append(torch.is_grad_enabled() and not torch.is_inference_mode_enabled())
        self.alive_at.append(len(self.tokens))
        out = self.linear(self.drop(self.norm(x.flatten(1))))
        token = Token()
        if self.graph_at[-1]:
            self.tokens.add(token)
            out = Hold.apply(out, token)
        return out


def batches(*sizes):
    """Batches of random images [n, 3, 2, 2] and labels 0 to 4, on the CPU, one for each n in `sizes`."""
    return [(torch.randn(n, 3, 2, 2), torch.randint(5, (n,))) for n in sizes]


def far(a, b, tolerance=1e-4):
    """True where two tensors, on any devices, differ by more than rounding."""
    return not torch.allclose(
        a.detach().cpu().float(), b.detach().cpu().float(), rtol=tolerance, atol=tolerance
    )


def epoch_by_hand(model, loader, rate):
    """Train a copy of `model` on the CPU with SGD at `rate`, from torch.autograd.grad; returns it and the losses."""
    twin = copy.deepcopy(model).cpu().train()
    losses = []
    for x, y in loader:
        loss = F.cross_entropy(twin(x), y)
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
                parameter -= rate * gradient
        losses.append(loss.item())
    return twin, losses


def run_loop(answer, sizes, rate=0.1):
    """Run a learner's training loop on the GPU, after a test, on batches of `sizes` images.

    Returns what it returned, its model, a model and losses as they should be, and the reads. NotYet where the model
    was not put back into training mode.
    """
    model, loader = (
        Watched().to(GPU).eval(),
        batches(*sizes),
    )  # a test before left it in evaluation mode
    twin, losses = epoch_by_hand(model, loader, rate)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    with Waits() as waits:
        found = call(answer, model, loader, optimizer, GPU)
    if not model.training_at or not all(model.training_at):
        raise NotYet(
            "the model came from a test, in evaluation mode, and nothing put it back into training mode."
        )
    return found, model, twin, losses, waits.count


def check_weights(model, twin):
    """NotYet where the weights of `model` are not those of `twin`."""
    if far(model.linear.weight, twin.linear.weight):
        raise NotYet(
            "after the pass the weights are not those that each batch's own gradients lead to. What is in "
            ".grad when backward begins, and when the optimizer takes its step?"
        )


def check_graphs(model):
    """NotYet where `model` saw graphs of earlier batches alive."""
    most = max(model.alive_at)
    if most > 1:  # the latest loss may still have its name
        raise NotYet(
            f"{most} graphs of earlier batches were alive at once. Something that grows still holds them."
        )
