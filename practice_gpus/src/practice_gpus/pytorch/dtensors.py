"""What DTensor is told of the CPU's kernels: its random numbers want a GPU's generator, its attention a GPU's kernels."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import torch

BRIEF = 16  # bytes of a CUDA generator's state: a seed and an offset


def brief(state: torch.Tensor) -> torch.Tensor:
    """The seed and the offset that stand for a state of the CPU's generator; a state of CUDA's is one already."""
    return state if state.numel() == BRIEF else packed(hashed(state))


def packed(seed: int, offset: int = 0) -> torch.Tensor:
    """A state as CUDA's generators have it, 16 bytes."""
    return torch.tensor([seed, offset]).view(torch.uint8)


def hashed(state: torch.Tensor) -> int:
    """A seed made of all bytes of a state."""
    return int.from_bytes(hashlib.blake2b(bytes(state.tolist()), digest_size=7).digest(), "little")


def seed_of(state: torch.Tensor) -> int:
    """The seed that stands for 16 bytes of CUDA's: another one for each offset."""
    seed, offset = state.clone().view(torch.int64).tolist()
    return hashed(state) if offset else seed


def meshed(original: Callable) -> Callable:
    """``DeviceMesh.__init__``; DTensor is told when the first mesh is made, since its import takes seconds."""

    def make(mesh, *args, **kwargs):
        tell()
        original(mesh, *args, **kwargs)

    return make


@functools.cache
def tell() -> None:
    """Tell DTensor once; nothing of it disturbs a real GPU, whose states are brief and whose kernels are others."""
    from torch.distributed.tensor import _random
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor._ops.single_dim_strategy import register_single_dim_strategy

    tracker, state = _random.OffsetBasedRNGTracker, _random._PhiloxState
    begin = state.__init__

    def get(self):
        return brief(self._device_handle.get_rng_state()).to(self._device)

    tracker._get_device_state = get  # type: ignore[method-assign]
    state.__init__ = lambda self, given: begin(self, brief(given))  # type: ignore[method-assign]
    aten = torch.ops.aten
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    for operator, count in ((forward, 5), (backward, 9)):
        split = functools.partial(by_batch_or_head, count)
        register_single_dim_strategy(operator, schema_info=RuntimeSchemaInfo(3))(split)


def by_batch_or_head(count: int, op: Any, args: tuple, kwargs: dict) -> list[list]:
    """Attention's tensors are all split by samples, or all by heads, unless a mask has as many of its own."""
    from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder
    from torch.distributed.tensor.placement_types import Replicate

    mask = kwargs.get("attn_mask")
    whole = [] if mask is None else [Replicate()]
    shared = [mask is None or len(mask.shape) < 4 or mask.shape[dim] == 1 for dim in (0, 1)]
    return [[_ShardingPlaceholder(dim)] * count + whole for dim in (0, 1) if shared[dim]]
