"""Operators whose CUDA kernels are not deterministic: they raise, or warn, under ``torch.use_deterministic_algorithms``.

The names are what the kernels in ATen/native/cuda give to ``alertNotDeterministic``; PyTorch's CUDA library holds them.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

ALERT = (
    "{} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True{})'. {} at "
    "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation."
)
RAISED = (
    "You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's "
    "acceptable for your application. You can also file an issue"
)
WARNED = "You can file an issue"

# Operator → the name that its CUDA kernel gives.
ALERTS = {
    "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d_backward_cuda",
    "_adaptive_avg_pool3d_backward": "adaptive_avg_pool3d_backward_cuda",
    "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward_cuda",
    "avg_pool3d_backward": "avg_pool3d_backward_cuda",
    "_ctc_loss_backward": "ctc_loss_backward_gpu",
    "fractional_max_pool2d_backward": "fractional_max_pool2d_backward_cuda",
    "fractional_max_pool3d_backward": "fractional_max_pool3d_backward_cuda",
    "grid_sampler_2d_backward": "grid_sampler_2d_backward_cuda",
    "grid_sampler_3d_backward": "grid_sampler_3d_backward_cuda",
    "histc": "_histc_cuda with floating point input",
    "bincount": "_bincount_cuda",
    "index_reduce": "index_reduce_cuda",
    "index_reduce_": "index_reduce_cuda",
    "max_pool3d_with_indices_backward": "max_pool3d_with_indices_backward_cuda",
    "max_unpool2d": "max_unpooling2d_forward_out",
    "max_unpool3d": "max_unpooling3d_forward_out",
    "median": "median CUDA with indices output",
    "nll_loss2d_forward": "nll_loss2d_forward_out_cuda_template",
    "put_": "put_",
    "reflection_pad1d_backward": "reflection_pad1d_backward_out_cuda",
    "reflection_pad3d_backward": "reflection_pad3d_backward_out_cuda",
    "replication_pad1d_backward": "replication_pad1d_backward_cuda",
    "replication_pad2d_backward": "replication_pad2d_backward_cuda",
    "replication_pad3d_backward": "replication_pad3d_backward_cuda",
    "upsample_linear1d_backward": "upsample_linear1d_backward_out_cuda",
    "upsample_bilinear2d_backward": "upsample_bilinear2d_backward_out_cuda",
    "upsample_bicubic2d_backward": "upsample_bicubic2d_backward_out_cuda",
    "upsample_trilinear3d_backward": "upsample_trilinear3d_backward_out_cuda",
}
# The same, only where the arguments say so.
ONLY_IF = {
    "histc": lambda call: call.inputs[0].is_floating_point(),
    "bincount": lambda call: len(call.inputs) > 1,  # with weights
    "median": lambda call: len(call.args) > 1,  # along a dimension, with indices
    "nll_loss2d_forward": lambda call: call.args[3] != 0,  # reduced
}


def alert(call: Any) -> None:
    """Raise or warn for a `Call` that is not deterministic on CUDA, where deterministic algorithms are asked for."""
    if torch.are_deterministic_algorithms_enabled():
        name = call.fact.name
        if name not in ONLY_IF or ONLY_IF[name](call):
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise RuntimeError(ALERT.format(ALERTS[name], "", RAISED))
            warnings.warn(ALERT.format(ALERTS[name], ", warn_only=True", WARNED), stacklevel=2)
