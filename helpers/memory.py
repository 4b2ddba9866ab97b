"""Sizes in bytes, and a forecast of what training needs. Lesson 05 teaches both."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, overrides

from practice_gpus import casting

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, foreach=True),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda weights: torch.optim.Adam(weights, foreach=True),
    "adamw": lambda weights: torch.optim.AdamW(weights, foreach=True),
}  # foreach is the default on a GPU, see torch.optim's page
AUTOCAST = {None: None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of the elements of `tensor`: `element_size() * nelement()`.

    A view counts its own elements, whoever owns the memory; an allocator rounds up. TypeError for anything else.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor is a {type(tensor).__name__}; it takes a torch.Tensor")
    return tensor.element_size() * tensor.nelement()


def format_bytes(n: float) -> str:
    """`n` bytes as text in powers of 1024: "512 B", "1.5 KiB", "37.5 MiB", "141 GiB".

    Three significant digits, none after the point where they would be zeros; whole bytes below 1 KiB. Negative
    differences keep their sign. TypeError where `n` is not a number, ValueError where it is not finite.
    """
    if isinstance(n, bool) or not isinstance(n, (int, float)):
        raise TypeError(f"n is {n!r}; it takes a number of bytes")
    if not math.isfinite(n):
        raise ValueError(f"n is {n!r}; it takes a finite number of bytes")
    sign = "-" if round(n) < 0 else ""
    value: float = abs(round(n))
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while len(units) > 1 and _three_digits(value) >= 1024:
        value = value / 1024
        units = units[1:]
    return f"{sign}{_three_digits(value):.10g} {units[0]}"


def _three_digits(value: float) -> float:
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

    def __str__(self) -> str:
        parts = ("parameters", "gradients", "optimizer", "activations", "other")
        sizes = ", ".join(f"{part} {format_bytes(getattr(self, part))}" for part in parts)
        return f"{format_bytes(self.peak)} ({sizes})"


def forecast(
    model: nn.Module,
    input_shape: Sequence[int],
    batch: int,
    optimizer: str = "adam",
    autocast: str | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    input_dtype: torch.dtype = torch.float32,
) -> Forecast:
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
        opt = _with_state(OPTIMIZERS[optimizer], list(twin.parameters()))
        tracker = tracker_class()
        tracker.track_external(twin, opt, x, y)
        with tracker:
            _step(twin, x, opt, AUTOCAST[autocast], loss or (lambda out: _usual_loss(out, y)))
        return _forecast(tracker, frozen)


def _checked(
    model: object, input_shape: Any, batch: object, optimizer: object, autocast: object
) -> tuple[int, ...]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it takes a torch.nn.Module")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("model has no parameter that requires a gradient; a step needs one")
    choices = (("optimizer", optimizer, OPTIMIZERS), ("autocast", autocast, AUTOCAST))
    for name, value, allowed in choices:
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; it takes {', '.join(map(repr, allowed))}")
    if isinstance(input_shape, str) or not hasattr(input_shape, "__iter__"):
        words = "it takes the shape of one input, such as (3, 32, 32)"
        raise TypeError(f"input_shape is {input_shape!r}; {words}")
    shape = (batch, *input_shape)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape):
        words = "both take whole numbers above 0"
        raise ValueError(f"batch is {batch!r} and input_shape {input_shape!r}; {words}")
    return shape  # type: ignore[return-value]


def _tools() -> tuple[Any, Any, Any]:
    """PyTorch's memory tracker, fake mode, and a way past other modes; none is a stable interface."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools.mem_tracker import MemTracker
        from torch.utils._python_dispatch import _disable_current_modes
    except ImportError as error:
        words = f"lacks the memory tracker that forecast needs ({error})"
        has = "2.11 to 2.15 have it in their builds with torch.distributed"
        raise RuntimeError(f"PyTorch {torch.__version__} {words}; {has}") from error
    return MemTracker, FakeTensorMode, _disable_current_modes


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Take PyTorch's function modes away, such as those of practice GPUs or of a default device, and put them back."""
    modes = [overrides._pop_mode() for _ in range(overrides._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            overrides._push_mode(mode)


def _fake_copy(model: nn.Module) -> nn.Module:
    """A copy of `model` whose parameters and buffers are fake tensors on the CPU; takes no memory for them."""

    def twin(t: Tensor) -> Tensor:
        return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="cpu")

    memo: dict[int, Any] = {id(b): twin(b) for b in model.buffers()}
    for p in model.parameters():
        memo[id(p)] = nn.Parameter(twin(p), requires_grad=p.requires_grad)
    return copy.deepcopy(model, memo).train()


def _park_frozen(twin: nn.Module) -> int:
    """Make frozen parameters buffers, since the tracker hooks the gradient of every parameter. Returns their bytes."""
    frozen: dict[Tensor, Tensor] = {}
    for module in twin.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if not p.requires_grad:
                delattr(module, name)
                module.register_buffer(name, frozen.setdefault(p, p.detach()))
    return sum(map(tensor_bytes, frozen))


def _with_state(
    make: Callable[..., torch.optim.Optimizer], weights: list[nn.Parameter]
) -> torch.optim.Optimizer:
    """The optimizer after a first step, with its state."""
    optimizer = make(weights)
    for p in weights:
        p.grad = torch.empty_like(p)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def _step(
    model: nn.Module,
    x: Tensor,
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype | None,
    loss: Callable[[Any], Tensor],
) -> None:
    with casting.Autocast(dtype):  # the lists of CUDA operators, whatever this machine has
        value = loss(model(x))
    value.backward()
    optimizer.step()
    optimizer.zero_grad()


def _usual_loss(out: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(out, y) if out.ndim == 2 else out.mean()


def _forecast(tracker: Any, frozen: int) -> Forecast:
    def snapshot(moment: str) -> dict[str, int]:
        sizes = tracker.get_tracker_snapshot(moment)[torch.device("cpu")]
        return {getattr(kind, "value", kind): size for kind, size in sizes.items()}

    peak = snapshot("peak")
    parameters = peak["Parameter"] + frozen
    parts = (parameters, peak["Gradient"], peak["Optstate"], peak["Activation"])
    total = peak["Total"]
    return Forecast(*parts, other=total - sum(parts), peak=total, held=snapshot("current")["Total"])
