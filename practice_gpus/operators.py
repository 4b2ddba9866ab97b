"""What practice GPUs know about PyTorch's operators before they run."""

import functools
import math
from types import SimpleNamespace

import torch
from torch.utils._pytree import tree_map_only

T, has_kernel = torch.Tensor, torch._C._dispatch_has_kernel_for_dispatch_key
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "unique_consecutive",
    "unique_dim",
    "bincount",
    "is_nonzero",
    "repeat_interleave",
}
SMALL = (
    "backward",
    "_foreach_",
    "pool",
    "norm",
    "softmax",
    "loss",
)  # results no larger than the inputs together
GROWS = ("repeat", "pad", "im2col", "upsample")  # results larger than their only input


@functools.cache
def facts(func):
    """What `Kernels` needs to know about an operator, read once from its schema."""
    schema, name = func._schema, func._schema.name.removeprefix("aten::")
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    out = [r.alias_info for r in schema.returns]
    return SimpleNamespace(
        name=name,
        written=written,
        mutates=any(written),
        inplace=all(a and a.is_write for a in out),
        composite=func.namespace == "aten"
        and func._can_decompose()
        and not has_kernel(func.name(), "CPU"),
        view=name in ("detach", "set_") or bool(out) and all(a and not a.is_write for a in out),
        copies=name in ("copy_", "_to_copy", "_foreach_copy_"),
        waits=name in WAITS,
        indexes=name in INDEXING,
        random=torch.Tag.nondeterministic_seeded in func.tags,
        pointwise=torch.Tag.pointwise in func.tags,
        targeted=name == "_to_copy" or "new_" in name or "_like" in name,
        small=any(part in name for part in SMALL),
        grows=any(part in name for part in GROWS),
        device=any(a.name == "device" for a in schema.arguments),
    )


def tensors(values):
    """The tensors among ``values`` (a tensor, or a list of tensors, of lists of tensors and of other things)."""
    for value in (
        (values,) if isinstance(values, T) else values if type(values) in (list, tuple) else ()
    ):
        if isinstance(value, T):
            yield value
        elif type(value) in (list, tuple):
            yield from (item for item in value if isinstance(item, T))


def blocking(args, kwargs):
    """Whether the CPU waits for a copy with these arguments."""
    return not (kwargs.get("non_blocking") or len(args) > 2 and args[2])


def meta(x):
    """A tensor like ``x`` without data."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")


def shapes(func, fact, args, kwargs):
    """The result of an operator as tensors without data, or None where PyTorch cannot tell it beforehand."""
    options = {
        key: value
        for key, value in kwargs.items()
        if key not in ("generator", "device", "pin_memory")
    }
    args, options = tree_map_only(
        T, meta, (args, options | ({"device": "meta"} if fact.device else {}))
    )
    try:
        return func(*args, **options)
    except (NotImplementedError, RuntimeError):
        return None


def most_elements(fact, inputs):
    """How many elements the result of an operator has at most, as its inputs tell; infinity where they do not."""
    sizes = sorted(t.numel() for t in inputs)
    alike = len({t.shape for t in inputs} if fact.pointwise else inputs) == 1
    if inputs and (fact.small or alike and not fact.grows):
        return sum(sizes)
    return sizes[-1] * sizes[-2] if len(sizes) > 1 else math.inf
