"""Exercises of lesson 09, Write attention by hand."""

import torch
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import NotYet, call, chosen
from course.checks.words import exercise
from course.lesson07.exercises import time_ms
from course.measurements import published
from practice_gpus import practice_gpus

# The lesson calls them, too.
__all__ = ["chosen", "time_ms"]


# --- attention in tiles -------------------------------------------------------------------------
def tiled_attention(q, k, v, size=128):
    top = torch.full_like(q[..., :1], float("-inf"))
    total = torch.zeros_like(top)
    result = torch.zeros_like(q)
    for some_k, some_v in zip(k.split(size, dim=2), v.split(size, dim=2)):
        scores = q @ some_k.mT / q.shape[-1] ** 0.5
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights = (scores - new_top).exp()
        shrink = (top - new_top).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        result = result * shrink + weights @ some_v
        top = new_top
    return result / total


def _check_tiles(answer):
    for words, size, scale in ((12, 4, 1), (10, 4, 1), (3, 8, 1), (12, 4, 100)):
        _judge_tiles(answer, words, size, scale)
    _judge_bytes(answer)
    return "your attention is exact, and no score matrix was ever whole."


def _judge_tiles(answer, words, size, scale):
    """Compare the answer with PyTorch's attention; query 0 has only negative scores, query 1 only positive ones."""
    q, k, v = torch.randn(3, 2, 2, words, 8).unbind()
    q, k = scale * q, k.abs()
    q[:, :, 0] = -q[:, :, 0].abs()
    q[:, :, 1] = q[:, :, 1].abs()
    what = f"the result for {words} keys in tiles of {size}" + scale // 100 * " and large scores"
    result = expect.tensor(call(answer, q, k, v, size), q.shape, what=what)
    if not torch.allclose(result, F.scaled_dot_product_attention(q, k, v), atol=1e-4):
        raise NotYet(f"{what} is wrong. {tiles.word(result, q, k, v, size)}")


def _judge_bytes(answer, words=1024):
    with practice_gpus(1):
        q, k, v = torch.randn(3, 1, 1, words, 16, device="cuda").unbind()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call(answer, q, k, v, 64)
        peak = torch.cuda.max_memory_allocated() - before
    whole = 4 * words**2  # bytes of the score matrix
    if peak > whole / 2:
        found = (
            f"{peak / 2**20:.1f} MiB at the peak; the whole score matrix has {whole / 2**20:.0f}"
        )
        raise NotYet(f"the values are right, but {words:,} words take {found}. One tile at a time!")


tiles = exercise("09.tiles", _check_tiles, tiled_attention, tool="tiled_attention")


# --- a KV cache ---------------------------------------------------------------------------------
def cached_attention(cache, layer, q, k, v):
    if layer in cache:
        old_k, old_v = cache[layer]
        k = torch.cat([old_k, k], dim=2)
        v = torch.cat([old_v, v], dim=2)
    cache[layer] = k, v
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)


def _check_cache(answer):
    for prompt in (5, 1):
        cache = {}
        lines = [torch.randn(3, 3, 2, prompt + 3, 8) for _ in range(2)]  # q, k, v of two layers
        steps = [(0, prompt), *((place, place + 1) for place in range(prompt, prompt + 3))]
        for start, end in steps:
            words = f"word {start}, after a prompt of {prompt}" if start else "the prompt"
            for layer, qkv in enumerate(lines):
                _judge_step(answer, cache, layer, qkv, start, end, words)
    return "prompt and single words get what they'd get without a cache, in both layers."


def _judge_step(answer, cache, layer, qkv, start, end, words):
    """Give the words from `start` to `end` of one layer to the answer; compare with attention over all words."""
    q, k, v = (part[:, :, start:end] for part in qkv)
    result = call(answer, cache, layer, q, k, v)
    expect.tensor(result, shape=q.shape, what=f"the result for {words}")
    full_q, full_k, full_v = (part[:, :, :end] for part in qkv)
    expected = F.scaled_dot_product_attention(full_q, full_k, full_v, is_causal=True)[:, :, start:]
    if not torch.allclose(result, expected, atol=1e-5):
        why = kv_cache.word(result, q=q, k=full_k, v=full_v)
        raise NotYet(f"in layer {layer}, the result for {words} is wrong. {why}")
    if layer not in cache:
        raise NotYet(f"after {words}, `cache` has nothing under {layer}: keys and values are lost.")


kv_cache = exercise("09.kv_cache", _check_cache, cached_attention, tool="cached_attention")


# --- tokens per second --------------------------------------------------------------------------
PER_TOKEN = 524_288  # bytes of keys and values of a token of Llama-2-7B


def tokens_per_second(weights, bits, chats, tokens, gb_per_s):
    read = weights * bits / 8 + chats * tokens * 524_288
    return gb_per_s * 1e9 / read


OFFERS = {  # what `tokens_per_second` takes
    "one chat in 16 bits": (6.6e9, 16, 1, 300, 2039),
    "one chat in 4 bits": (6.6e9, 4, 1, 300, 2039),
    "60 chats": (6.6e9, 16, 60, 300, 2039),
    "a small model with a long chat": (1.1e9, 8, 1, 4096, 3350),
}
RUNS = {"Llama-2-7B": ("bfloat16", 6.6e9, 16), "Llama-2-70B": ("int8", 69e9, 8)}  # gpt-fast


def _check_rate(answer):
    for name, offer in OFFERS.items():
        found = expect.number(call(answer, *offer), "your rate")
        if not abs(found - tokens_per_second(*offer)) <= 1e-6 * abs(found):
            raise NotYet(f"for {name}, {offer}, you get {found:.4g}. {rate.word(found, *offer)}")
    told = []
    for model, (precision, weights, bits) in RUNS.items():
        [row] = published("llama_tokens_a100").rows(
            "tokens", model=model, precision=precision, device="A100 80 GB, 330 W"
        )
        most = answer(weights, bits, 1, 0, 2039)
        told.append(f"{row['tokens_per_s']:.0f} of your {most:.0f} with {model} in {precision}")
    return f"gpt-fast's published runs stay below it: {', '.join(told)}."


rate = exercise("09.rate", _check_rate, tokens_per_second)
