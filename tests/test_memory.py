"""helpers.memory against NumPy, sums worked out by hand, and what PyTorch's profiler sees the CPU allocate."""

import functools
import json
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import memory
from helpers.memory import forecast, format_bytes, tensor_bytes
from helpers.training import SmallCNN
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu


def mlp(width=200):
    return nn.Sequential(nn.Linear(100, width), nn.ReLU(), nn.Linear(width, 10))


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_tensor_bytes_are_numpys(dtype, shape):
    tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
    assert tensor_bytes(tensor) == np.zeros(shape, dtype).nbytes


@pytest.mark.parametrize(
    "n, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (10**6, "977 KiB"),
        (2**20 - 1, "1 MiB"),
        (2**30 * 5 + 2**30 // 2, "5.5 GiB"),
        (5000 * 2**40, "5000 TiB"),
        (-1536, "-1.5 KiB"),
        (1234567, "1.18 MiB"),
        (-0.2, "0 B"),
    ],
)
def test_format_bytes(n, text):
    assert format_bytes(n) == text


def with_batch_norm():
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 15 * 15, 10))


PARAMETERS = 4 * (100 * 200 + 200 + 200 * 10 + 10)


def test_forecast_of_an_mlp_worked_out_by_hand():
    """The most is held when backward passes ReLU: its output, and the gradients of its output and of its input."""
    found = forecast(mlp(), (100,), 64, optimizer="momentum")
    hidden, batch, last = 4 * 64 * 200, 4 * 64 * 100 + 8 * 64, 4 * (200 * 10 + 10)
    assert (found.parameters, found.optimizer, found.gradients) == (PARAMETERS, PARAMETERS, last)
    assert found.held == 2 * PARAMETERS + batch
    assert found.activations + found.other == pytest.approx(3 * hidden + batch, abs=64)


OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "momentum": functools.partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def allocated_peak(model, shape, batch, name, dtype, folder):
    """Bytes at the peak of a real training step on the CPU, as PyTorch's profiler saw them allocated and freed."""
    x, y = torch.rand(batch, *shape), torch.zeros(batch, dtype=torch.int64)
    optimizer = OPTIMIZERS[name](model.parameters(), foreach=True)  # as on a GPU
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    state = [
        value
        for values in optimizer.state.values()
        for value in values.values()
        if torch.is_tensor(value)
    ]
    held = sum(map(tensor_bytes, [*model.parameters(), *model.buffers(), *state, x, y]))
    with warnings.catch_warnings(), torch.backends.mkldnn.flags(enabled=False):
        warnings.simplefilter("ignore")
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            with torch.autocast("cpu", dtype=dtype) if dtype else nullcontext():
                loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    profile.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    steps = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    return held + max(np.cumsum([size for _, size in steps]))


@pytest.mark.parametrize(
    "build, shape, batch, optimizer, autocast",
    [
        (mlp, (100,), 256, "adamw", "bfloat16"),
        (lambda: mlp(1000), (100,), 4, "momentum", "float16"),
        (SmallCNN, (3, 32, 32), 32, "sgd", None),
        (with_batch_norm, (3, 32, 32), 32, "adam", None),
    ],
)
def test_forecast_is_what_a_real_step_allocates(build, shape, batch, optimizer, autocast, tmp_path):
    model = build()
    seen = allocated_peak(model, shape, batch, optimizer, memory.AUTOCAST[autocast], tmp_path)
    assert forecast(model, shape, batch, optimizer, autocast).peak == pytest.approx(seen, rel=0.01)


class Checkpointed(nn.Sequential):
    def forward(self, x):
        for block in self:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def test_forecast_sees_checkpointing_inside_the_model():
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(16)]
    blocks = [nn.Sequential(*layers[i : i + 4]) for i in range(0, 16, 4)]
    plain = forecast(nn.Sequential(*blocks), (64,), 4096).peak
    assert forecast(Checkpointed(*blocks), (64,), 4096).peak < 0.6 * plain


def test_forecast_needs_no_memory_and_leaves_the_model_alone():
    with torch.device("meta"):
        # 149 GiB of parameters
        huge = nn.Sequential(nn.Linear(200_000, 200_000), nn.Linear(200_000, 10))
    assert forecast(huge, (200_000,), 8, "sgd").parameters > 149 * 2**30
    model = mlp().eval()
    before = [p.clone() for p in model.parameters()]
    forecast(model, (100,), 8)
    assert not model.training and all(p.grad is None for p in model.parameters())
    assert all(
        torch.equal(a, b) and type(b) is nn.Parameter
        for a, b in zip(before, model.parameters(), strict=True)
    )


def test_forecast_takes_frozen_parameters_other_losses_and_index_inputs():
    model = mlp()
    model[0].requires_grad_(False)
    found = forecast(model, (100,), 4096)
    assert found.optimizer == pytest.approx(2 * 4 * 2010, abs=16) and found.parameters == PARAMETERS
    assert not model[0].weight.requires_grad and found.peak == sum(list(vars(found).values())[:5])
    embed = nn.Sequential(nn.Embedding(1000, 16), nn.Linear(16, 4))
    found = forecast(embed, (12,), 8, input_dtype=torch.int64, loss=lambda out: out.square().mean())
    assert found.parameters == 4 * (1000 * 16 + 16 * 4 + 4)


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"model": "resnet"}, TypeError, "model is a str"),
        ({"model": nn.ReLU()}, ValueError, "model has no parameter"),
        ({"optimizer": "lion"}, ValueError, "optimizer is 'lion'"),
        ({"autocast": "float64"}, ValueError, "autocast is 'float64'"),
        ({"batch": 0}, ValueError, "batch is 0"),
        ({"batch": 2.5}, ValueError, "batch is 2.5"),
        ({"input_shape": 100}, TypeError, "input_shape is 100"),
        ({"input_shape": (3, -1)}, ValueError, r"input_shape \(3, -1\)"),
    ],
)
def test_forecast_names_wrong_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        forecast(**{"model": mlp(), "input_shape": (100,), "batch": 8, **arguments})


def test_forecast_says_when_pytorch_lacks_the_tracker(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.distributed._tools.mem_tracker", None)
    with pytest.raises(RuntimeError, match="lacks the memory tracker"):
        forecast(mlp(), (100,), 8)


def test_forecast_is_the_same_while_practice_gpus_are_on():
    model = SmallCNN()
    outside = forecast(model, (3, 32, 32), 64)
    with practice_gpus(n=1, memory="1 GiB"):
        before = torch.cuda.memory_allocated()
        assert forecast(model, (3, 32, 32), 64) == outside
        assert forecast(SmallCNN().to("cuda"), (3, 32, 32), 64) == outside
        assert torch.cuda.memory_allocated() == before


class Attention(nn.Module):
    """Layers whose types differ between the CPU's autocast and CUDA's, and a dropout."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.keys = nn.Linear(64, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = self.norm(x)
        keys = self.keys(x)
        weights = torch.softmax(keys @ keys.transpose(1, 2), -1)
        return self.out(nn.functional.dropout(weights @ keys, 0.1).mean(1))


@pytest.mark.parametrize("autocast", [None, "bfloat16", "float16"])
def test_forecast_is_what_a_gpu_takes_under_autocast(autocast):
    """A learner who plans with the forecast runs out of memory on a GPU if it counts with the CPU's lists."""
    wanted = forecast(Attention(), (64, 64), 32, "sgd", autocast).peak
    dtype = memory.AUTOCAST[autocast]
    with practice_gpus():
        model = Attention().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            x = torch.zeros(32, 64, 64, device="cuda")
            y = torch.zeros(32, dtype=torch.int64, device="cuda")
            torch.cuda.reset_peak_memory_stats()
            with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
                loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del x, y, loss
        assert wanted == pytest.approx(torch.cuda.max_memory_allocated(), rel=0.03)
