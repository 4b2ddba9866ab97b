"""A block of a network as a function of one flat tensor of weights, and `fsdp_block` run on it in real processes."""

import runpy

import torch
import torch.distributed as dist
from torch.func import functional_call

from course.gpt import causal


class Collectives:
    """The two collectives of FSDP between the processes of `torch.distributed`, and their number, `ranks`."""

    def __init__(self):
        self.ranks = dist.get_world_size()

    def all_gather(self, shard):
        """Return the flat tensor whose parts, in order, are the shards of all ranks."""
        whole = shard.new_empty(self.ranks * len(shard))
        dist.all_gather_into_tensor(whole, shard)
        return whole

    def reduce_scatter(self, whole):
        """Return this rank's part of the sum of `whole` over all ranks."""
        part = whole.new_empty(len(whole) // self.ranks)
        dist.reduce_scatter_tensor(part, whole)
        return part


def as_function(block):
    """Return (`forward(weights, x)`, the flat weights) of a block of TinyGPT."""
    named = dict(block.named_parameters())
    sizes = [tensor.numel() for tensor in named.values()]

    def forward(weights, x):
        parts = zip(named, weights.split(sizes), strict=True)
        views = {name: part.view_as(named[name]) for name, part in parts}
        return functional_call(block, views, (x, 0, causal))

    flat = torch.cat([tensor.detach().flatten() for tensor in named.values()])
    return forward, flat


def run(file, model):
    """Return how far the gradients of `model`'s blocks by `fsdp_block` of `file` are from those of whole blocks.

    Each rank has its own input. The rest of the network, for a block, is `fsdp_block` of the next one; after the last
    one comes the mean of all outputs. RuntimeError where the ranks can't share a block evenly.
    """
    fsdp_block = runpy.run_path(str(file))["fsdp_block"]
    comm = Collectives()
    blocks = [as_function(block) for block in model.blocks]
    sizes = {len(flat) for _, flat in blocks}
    if any(size % comm.ranks for size in sizes):
        raise RuntimeError(
            f"blocks of {max(sizes)} numbers do not divide by {comm.ranks} ranks"
        )
    width, device = model.head.in_features, model.head.weight.device
    torch.manual_seed(100 + dist.get_rank())
    x = torch.randn(2, model.context, width, device=device)
    found = []

    def rest(output, layer):
        if layer == len(blocks):
            return torch.full_like(output, 1 / output.numel())
        forward, flat = blocks[layer]
        shard = flat.chunk(comm.ranks)[dist.get_rank()].clone()
        grad, own = fsdp_block(
            comm, forward, shard, output, lambda y: rest(y, layer + 1)
        )
        found.insert(0, own)
        return grad

    rest(x, 0)
    expected = _whole(model, x)
    own = [grad.chunk(comm.ranks)[dist.get_rank()] for grad in expected]
    off = max((a - b).abs().max() for a, b in zip(found, own, strict=True))
    dist.all_reduce(off, dist.ReduceOp.MAX)
    return {"blocks": len(blocks), "difference": off.item()}


def _whole(model, x):
    """The gradients of each block's flat weights, the mean over the ranks, by plain autograd."""
    y = x
    for layer, block in enumerate(model.blocks):
        y = block(y, layer, causal)
    model.zero_grad()
    y.mean().backward()
    flats = [
        torch.cat([p.grad.flatten() for p in block.parameters()])
        for block in model.blocks
    ]
    for flat in flats:
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
    return flats
