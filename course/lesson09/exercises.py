"""Exercises of lessons 09, Write attention by hand, and 09b, How fast can it write?"""

import torch
from torch.nn import functional as F

from course.checks import expect
from course.checks.core import NotYet, call, chosen
from course.checks.words import exercise
from course.lesson07.exercises import time_ms
from course.measurements import published

# The lesson calls them, too.
__all__ = ["chosen", "time_ms"]


# --- attention of your own ----------------------------------------------------------------------
def attention(q, k, v):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    shares = scores.masked_fill(later, float("-inf")).softmax(-1)
    return shares @ v


def _check_attention(answer):
    for texts, heads, words, size in ((2, 4, 6, 8), (1, 2, 9, 16), (3, 1, 1, 4)):
        q, k, v = torch.randn(3, texts, heads, words, size).unbind()
        given = [part.clone() for part in (q, k, v)]
        result = call(answer, *given)
        what = f"the result for {words} words × {size}"
        expect.tensor(result, shape=q.shape, what=what)
        right = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if not torch.allclose(result, right, atol=1e-5):
            raise NotYet(f"{what} is wrong. {own.word(result, q=q, k=k, v=v)}")
        if not all(map(torch.equal, given, (q, k, v))):
            raise NotYet("the values are right, but q, k or v changed on the way.")
    return "PyTorch's call returns the same for each head of each text, and no word looks ahead."


own = exercise("09.own", _check_attention, attention, tool="attention")


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


kv_cache = exercise(
    "09.kv_cache", _check_cache, cached_attention, tool="cached_attention", letter="b"
)


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


rate = exercise("09.rate", _check_rate, tokens_per_second, letter="b")
