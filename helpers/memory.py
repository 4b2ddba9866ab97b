"""Sizes in bytes, and a forecast of what training needs. Lesson 05 teaches both."""

import copy
import math
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import overrides

from practice_gpus import casting

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
AUTOCAST = {None: None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def tensor_bytes(tensor):
    """Bytes of the elements of `tensor`: `element_size() * nelement()`.

    A view counts its own elements, whoever owns the memory; an allocator rounds up. TypeError for anything else.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor is a {type(tensor).__name__}; it takes a torch.Tensor")
    return tensor.element_size() * tensor.nelement()


def format_bytes(n):
    """`n` bytes as text in powers of 1024: "512 B", "1.5 KiB", "37.5 MiB", "141 GiB".

    Three significant digits, none after the point where they would be zeros; whole bytes below 1 KiB. Negative
    differences keep their sign. TypeError where `n` is not a number, ValueError where it is not finite.
    """
    if isinstance(n, bool) or not isinstance(n, (int, float)):
        raise TypeError(f"n is {n!r}; it takes a number of bytes")
    if not math.isfinite(n):
        raise ValueError(f"n is {n!r}; it takes a finite number of bytes")
    sign = "-" if round(n) < 0 else ""
    value = abs(round(n))
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while len(units) > 1 and _three_digits(value) >= 1024:
        value = value / 1024
        units = units[1:]
    return f"{sign}{_three_digits(value):.10g} {units[0]}"


def _three_digits(value):
    """`value` rounded to three significant digits, and to whole numbers from 100 on."""
    return round(value, 2 if value < 10 else 1 if value < 100 else 0)


@dataclass(frozen=True)
class Forecast:
    """Bytes at the moment of the highest use in a training step. The five parts add up to `peak`.

    `gradients` are those that exist at that moment (backward makes them one by one); `optimizer` includes what its step
    needs for a moment; `other` is the batch, buffers and temporary tensors of backward; `held` stays between two steps.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    other: int
    peak: int
    held: int

    def __str__(self):
        parts = ("parameters", "gradients", "optimizer", "activations", "other")
        return (
            f"{format_bytes(self.peak)} ("
            + ", ".join(f"{p} {format_bytes(getattr(self, p))}" for p in parts)
            + ")"
        )


def forecast(
    model, input_shape, batch, optimizer="adam", autocast=None, loss=None, input_dtype=torch.float32
):
    """What a training step of `model` would hold on a GPU, found without one and without the memory.

    Runs one step, the optimizer's state in place, on fake tensors: they have shapes and no values
    (https://docs.pytorch.org/docs/stable/torch.compiler_fake_tensor.html). PyTorch's own tracker counts them. `model`
    itself is neither run nor changed, and may live on any device, "meta" too.

    model: nn.Module; input_shape: shape of one input without the batch, such as (3, 32, 32); batch: inputs a step;
    optimizer: "sgd", "momentum", "adam" or "adamw"; autocast: None, "bfloat16" or "float16"; loss: function of the
    output that gives a scalar (by default cross-entropy for an output [batch, classes], else the mean).
    The allocator's rounding, library workspaces and the CUDA context come on top. Returns Forecast.
    Raises TypeError or ValueError for arguments that do not fit, RuntimeError where this PyTorch has no tracker.
    """
    shape = _checked(model, input_shape, batch, optimizer, autocast)
    tracker_class, fake_mode, no_modes = _tools()
    # practice GPUs and default devices do not matter
    with without_function_modes(), no_modes(), fake_mode():
        twin = _fake_copy(model)
        frozen = _park_frozen(twin)
        x = torch.zeros(shape, dtype=input_dtype, device="cpu")
        y = torch.zeros(batch, dtype=torch.int64, device="cpu")
        opt = _optimizer(optimizer, list(twin.parameters()))
        tracker = tracker_class()
        tracker.track_external(twin, opt, x, y)
        with tracker:
            _step(twin, x, y, opt, AUTOCAST[autocast], loss)
        return _forecast(tracker, frozen)


def _checked(model, input_shape, batch, optimizer, autocast):
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it takes a torch.nn.Module")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            "model has no parameter that requires a gradient; a training step needs one"
        )
    for name, value, allowed in (
        ("optimizer", optimizer, OPTIMIZERS),
        ("autocast", autocast, tuple(AUTOCAST)),
    ):
        if value not in allowed:
            raise ValueError(
                f"{name} is {value!r}; it takes one of {', '.join(map(repr, allowed))}"
            )
    if isinstance(input_shape, str) or not hasattr(input_shape, "__iter__"):
        raise TypeError(
            f"input_shape is {input_shape!r}; it takes the shape of one input, such as (3, 32, 32)"
        )
    shape = (batch, *input_shape)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape):
        raise ValueError(
            f"batch is {batch!r} and input_shape {input_shape!r}; both take whole numbers above 0"
        )
    return shape


def _tools():
    """PyTorch's memory tracker, fake mode, and a way past other modes; none is a stable interface."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools.mem_tracker import MemTracker
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError as error:
        raise RuntimeError(
            f"PyTorch {torch.__version__} lacks the memory tracker that forecast needs ({error}); "
            "2.11 to 2.15 have it in their builds with torch.distributed"
        ) from error
    return MemTracker, FakeTensorMode, _disable_current_modes


@contextmanager
def without_function_modes():
    """Take PyTorch's function modes away, such as those of practice GPUs or of a default device, and put them back."""
    modes = [overrides._pop_mode() for _ in range(overrides._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            overrides._push_mode(mode)


def _fake_copy(model):
    """A copy of `model` whose parameters and buffers are fake tensors on the CPU; takes no memory for them."""

    def twin(t):
        return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="cpu")

    memo = {
        id(p): torch.nn.Parameter(twin(p), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    memo.update({id(b): twin(b) for b in model.buffers()})
    return copy.deepcopy(model, memo).train()


def _park_frozen(twin):
    """Make frozen parameters buffers, since the tracker hooks the gradient of every parameter. Returns their bytes."""
    frozen = {}
    for module in twin.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if not p.requires_grad:
                delattr(module, name)
                module.register_buffer(name, frozen.setdefault(p, p.detach()))
    return sum(map(tensor_bytes, frozen))


def _optimizer(name, parameters):
    """The optimizer after a first step, with its state. `foreach` is the default on a GPU (see torch.optim's page)."""
    options = (
        {"lr": 0.1, "momentum": 0.9 if name == "momentum" else 0.0}
        if name in ("sgd", "momentum")
        else {}
    )
    optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(name, torch.optim.SGD)(
        parameters, foreach=True, **options
    )
    for p in parameters:
        p.grad = torch.empty_like(p)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def _step(model, x, y, optimizer, dtype, loss):
    with casting.Autocast(dtype):  # the lists of CUDA operators, whatever this machine has
        value = loss(model(x)) if loss else _usual_loss(model(x), y)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()


def _usual_loss(out, y):
    return torch.nn.functional.cross_entropy(out, y) if out.ndim == 2 else out.mean()


def _forecast(tracker, frozen):
    def snapshot(kind):
        return {
            getattr(k, "value", k): v
            for k, v in tracker.get_tracker_snapshot(kind)[torch.device("cpu")].items()
        }

    peak = snapshot("peak")
    main = [peak[name] for name in ("Parameter", "Gradient", "Optstate", "Activation")]
    main[0] += frozen
    return Forecast(*main, peak["Total"] - sum(main), peak["Total"], snapshot("current")["Total"])
