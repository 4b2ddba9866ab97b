"""A model prepared as people do who have too little memory: LoRA or QLoRA, and activations computed again. For shapes alone."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}


class Adapted(nn.Module):
    """A frozen linear layer, in ``bits`` a weight, with two narrow ones of ``rank`` beside it that are trained; 0: with none."""

    def __init__(self, layer: nn.Linear, rank: int, bits: int) -> None:
        super().__init__()
        place = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        self.shape, self.bits, self.place = layer.weight.shape, bits, place
        self.layer = layer.requires_grad_(False)
        if bits < 16:  # packed, with a scale for each 64 weights (bitsandbytes)
            layer.weight = None
            count = self.shape.numel()
            self.packed = torch.empty(count * bits // 8, dtype=torch.uint8, device=place["device"])
            self.scales = torch.empty(count // 64, device=place["device"])
        narrow = nn.Linear(layer.in_features, rank, bias=False, **place) if rank else None
        self.beside = narrow and nn.Sequential(
            narrow, nn.Linear(rank, layer.out_features, bias=False, **place)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The frozen product, whose weights are widened first, and the trained one."""
        if self.bits < 16:
            y = Widened.apply(x, self.packed, self.scales, self.shape)
        else:
            y = F.linear(x, self.layer.weight, self.layer.bias)
        return y if self.beside is None else y + self.beside(x)


class Widened(torch.autograd.Function):
    """A product with weights that are widened for it, and again for its backward pass, and kept by neither (bitsandbytes)."""

    @staticmethod
    def forward(ctx, x, packed, scales, shape):
        ctx.saved = packed, shape
        return F.linear(x, x.new_empty(shape))

    @staticmethod
    def backward(ctx, grad):
        _, shape = ctx.saved
        return grad @ grad.new_empty(shape), None, None, None


def lora(model: nn.Module, rank: int = 8, bits: int = 16, names: tuple[str, ...] = ()) -> nn.Module:
    """``model``, in place: frozen, its linear layers in ``bits`` a weight, and adapters of ``rank`` beside each of them.

    ``names``: what the layers with adapters end in, such as ("q_proj", "v_proj"). The layer ``lm_head`` stays as it is, as in
    transformers and PEFT. Raises TypeError or ValueError, which name the argument.
    """
    if bits not in (4, 8, 16):
        raise ValueError(f"bits={bits!r}: give 4, 8 or 16")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ValueError(f"rank={rank!r}: give a whole number, 1 or more")
    layers = [each for each in _modules(model) if isinstance(each[1], nn.Linear)]
    layers = [(path, layer) for path, layer in layers if not path.endswith("lm_head")]
    chosen = [path for path, _ in layers if not names or path.endswith(names)]
    if not chosen:
        ends = sorted({path.rpartition(".")[2] for path, _ in layers})
        raise ValueError(
            f"names={names!r}: no linear layer ends so; the model has {ends or 'none'}"
        )
    model.requires_grad_(False)
    for path, layer in layers:
        adapted = Adapted(layer, rank if path in chosen else 0, bits)
        if not path:
            return adapted
        if path in chosen or bits < 16:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, adapted)
    return model


def recomputed(model: nn.Module, selective: bool = False) -> nn.Module:
    """``model``, in place: each block of its lists keeps only its input, and is computed again in the backward pass.

    ``selective``: attention and every second product are kept, too, as torchtitan does by default.
    Blocks are what a ModuleList holds, of nested ones the outer. Raises TypeError or ValueError, which name the argument.
    """
    lists = [path for path, each in _modules(model) if isinstance(each, nn.ModuleList)]
    outer = [path for path in lists if not any(path.startswith(f"{each}.") for each in lists)]
    if not outer:
        raise ValueError("model: it has no ModuleList, whose blocks could be computed again")
    for path in outer:
        for block in model.get_submodule(path):
            block.forward = _checkpointed(block.forward, selective)
    return model


def _modules(model):
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r}: give a module")
    return list(model.named_modules())


def _checkpointed(forward, selective):
    more = {"context_fn": _contexts} if selective else {}
    return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, **more, **kwargs)


def _contexts():
    """What selective checkpointing does with each operator, counted anew in both passes."""
    counts: Counter = Counter()

    def policy(context, func, *args, **kwargs):
        name = func.overloadpacket.__name__
        if "scaled_dot_product" in name:
            return CheckpointPolicy.MUST_SAVE
        if name not in PRODUCTS:
            return CheckpointPolicy.PREFER_RECOMPUTE
        counts[context.is_recompute] += 1
        kept = counts[context.is_recompute] % 2
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
