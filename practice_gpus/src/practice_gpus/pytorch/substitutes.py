"""Operators that have kernels on CUDA alone, made of others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor as T


def channels(x: T) -> tuple:
    """(the dimensions but that of the channels, what broadcasts a number of each channel)."""
    return [d for d in range(x.dim()) if d != 1], (1, -1, *[1] * (x.dim() - 2))


def batch_norm_stats(x: T, eps: float) -> tuple:
    """(mean, 1 ÷ standard deviation) of each channel."""
    dims, _ = channels(x)
    variance, mean = torch.var_mean(x.float(), dims, correction=0)
    return mean, (variance + eps).rsqrt()


def batch_norm_gather_stats(*args: Any) -> tuple:
    """The same of all ranks together, each of which has as many elements."""
    counts = torch.full((len(args[1]),), float(args[7]))
    x, mean, invstd, running_mean, running_var, momentum, eps = args[:7]
    return batch_norm_gather_stats_with_counts(
        x, mean, invstd, running_mean, running_var, momentum, eps, counts
    )


def batch_norm_gather_stats_with_counts(
    x: T,
    mean: T,
    invstd: T,
    running_mean: Any,
    running_var: Any,
    momentum: Any,
    eps: float,
    counts: T,
) -> tuple:
    """The same of all ranks together; running statistics go on with them."""
    share = (counts / counts.sum())[:, None].to(mean.dtype)
    total = (share * mean).sum(0)
    variance = (share * (invstd**-2 - eps + (mean - total) ** 2)).sum(0)
    if running_mean is not None:
        running_mean.lerp_(total.to(running_mean.dtype), momentum)
        unbiased = variance * (counts.sum() / (counts.sum() - 1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return total, (variance + eps).rsqrt()


def batch_norm_elemt(x: T, weight: Any, bias: Any, mean: T, invstd: T, eps: float) -> T:
    """The normalized input."""
    _, shape = channels(x)
    out = (x.float() - mean.view(shape)) * invstd.view(shape)
    out = out if weight is None else out * weight.view(shape)
    return (out if bias is None else out + bias.view(shape)).to(x.dtype)


def batch_norm_backward_reduce(
    grad: T, x: T, mean: T, invstd: T, weight: Any, of_input: bool, of_weight: bool, of_bias: bool
) -> tuple:
    """Sums over each channel, and the gradients of weight and bias."""
    dims, shape = channels(x)
    total = grad.float().sum(dims)
    centered = (grad.float() * (x.float() - mean.view(shape))).sum(dims)
    like = mean if weight is None else weight
    of = (centered * invstd).to(like.dtype), total.to(like.dtype)
    return total, centered, of[0] if of_weight else None, of[1] if of_bias else None


def batch_norm_backward_elemt(
    grad: T, x: T, mean: T, invstd: T, weight: Any, total: T, centered: T, counts: T
) -> T:
    """The gradient of the input."""
    _, shape = channels(x)
    count = counts.sum()
    scale = invstd if weight is None else invstd * weight
    slope = (centered / count * invstd**2).view(shape)
    rest = grad.float() - (total / count).view(shape) - (x.float() - mean.view(shape)) * slope
    return (rest * scale.view(shape)).to(x.dtype)


def nansum(x: T, dim: Any = None, keepdim: bool = False, **options: Any) -> T:
    """A sum of complex numbers without those that are none."""
    filled = x.masked_fill(x.isnan(), 0)
    if x.dtype != torch.complex32:
        return filled.sum(dim, keepdim, **options)
    return filled.to(torch.complex64).sum(dim, keepdim).to(options.get("dtype") or x.dtype)


SUBSTITUTES = {
    each.__name__: each
    for each in (
        *(batch_norm_stats, batch_norm_gather_stats, batch_norm_gather_stats_with_counts),
        *(batch_norm_elemt, batch_norm_backward_reduce, batch_norm_backward_elemt, nansum),
    )
}
