"""Exercises and quiz of lesson 09, Write attention by hand."""

import torch
from torch.nn import functional as F

from helpers.checks import expect
from helpers.checks.core import Exercise, NotYet, Question, call
from lessons.lesson09.gpt import TinyGPT, batches, course_words, write
from practice_gpus import practice_gpus

__all__ = ["TinyGPT", "batches", "course_words", "write"]  # the lesson calls them, too
GPU = "cuda:0"


# --- a causal mask ------------------------------------------------------------------------------
def causal(scores):
    n = scores.shape[-1]
    later = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, float("-inf"))


def _check_mask(answer):
    with practice_gpus(1):
        for shape in ((5, 5), (2, 3, 4, 4), (1, 1)):
            scores = torch.randn(shape).to(GPU)
            before = scores.cpu()
            masked = call(answer, scores)
            expect.tensor(masked, shape=shape, device=GPU, what="the result")
            if not torch.equal(scores.cpu(), before):
                raise NotYet("`scores` itself was changed; whoever called you may still need it.")
            _judge_weights(masked.cpu(), before)
    return "each word sees itself and what came before, whatever the shape."


def _judge_weights(masked, scores):
    """Compare the weights after softmax with those of a loop over the words."""
    weights = masked.softmax(-1)
    n = scores.shape[-1]
    for i in range(n):
        row = weights[..., i, :]
        if row.isnan().any() or (row[..., i] == 0).any():
            raise NotYet(f"word {i} does not see itself. Which diagonal does the mask begin at?")
        if (row[..., i + 1 :] > 0).any():
            ahead = row[..., i + 1 :].max().item()
            raise NotYet(
                f"after softmax, word {i} still gives up to {ahead:.0%} of its attention to a later word. "
                "What must a score be, so that its exponential is zero?"
            )
        if not torch.allclose(row[..., : i + 1], scores[..., i, : i + 1].softmax(-1), atol=1e-5):
            raise NotYet(f"the weights that word {i} gives to earlier words are wrong.")


mask = Exercise(
    key="09.mask",
    title="a causal mask",
    check_answer=_check_mask,
    hints=(
        "In `attention`, the scores go through `softmax`, that is: through an exponential. Look at what comes out "
        "for a very small score.",
        "Make a table of True and False, n × n, that is True where the column is a later word than the row; "
        "`triu` cuts one out. Then fill these places with minus infinity.",
        '`later = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu(1)`, then `scores.masked_fill(later, float("-inf"))`.',
    ),
    reference=causal,
    explanation="triu(1) keeps what is above the diagonal: the later words. The exponential of minus infinity is "
    "zero, so softmax gives them nothing, and what is left still adds up to one.",
)


# --- a KV cache ---------------------------------------------------------------------------------
def cached(cache, layer, q, k, v):
    if layer in cache:
        old_k, old_v = cache[layer]
        k = torch.cat([old_k, k], dim=2)
        v = torch.cat([old_v, v], dim=2)
    cache[layer] = k, v
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)


def _check_cache(answer):
    for prompt in (5, 1):
        cache = {}
        lines = [torch.randn(3, 2, 4, prompt + 3, 8) for _ in range(2)]  # q, k, v of two layers
        for layer, (q, k, v) in enumerate(lines):
            _judge_step(answer, cache, layer, (q, k, v), 0, prompt, "the prompt")
        for place in range(prompt, prompt + 3):
            for layer, (q, k, v) in enumerate(lines):
                words = f"word {place}, after a prompt of {prompt}"
                _judge_step(answer, cache, layer, (q, k, v), place, place + 1, words)
    return "prompt and single words get what they'd get without a cache, in both layers."


def _judge_step(answer, cache, layer, qkv, start, end, words):
    """Give the words from `start` to `end` of one layer to the answer; compare with attention over all words."""
    q, k, v = (part[:, :, start:end] for part in qkv)
    result = call(answer, cache, layer, q, k, v)
    expect.tensor(result, shape=q.shape, what=f"the result for {words}")
    full_q, full_k, full_v = (part[:, :, :end] for part in qkv)
    expected = F.scaled_dot_product_attention(full_q, full_k, full_v, is_causal=True)[:, :, start:]
    if not torch.allclose(result, expected, atol=1e-5):
        raise NotYet(
            f"in layer {layer}, the result for {words} is wrong. {_why_wrong(result, q, full_k, full_v)}"
        )
    if layer not in cache:
        raise NotYet(
            f"after {words}, cache has nothing under {layer}: keys and values are forgotten."
        )


def _why_wrong(result, q, k, v):
    """Name what a wrong result equals."""
    if torch.allclose(result, F.scaled_dot_product_attention(q, k, v), atol=1e-5):
        return "In the prompt, words looked ahead: there it has to be causal."
    if torch.allclose(result, v[:, :, :1].expand_as(result), atol=1e-5):
        return "It saw the very first word and nothing else. What does is_causal do with one query?"
    if torch.allclose(result, v[:, :, -1:].expand_as(result), atol=1e-5):
        return "It saw itself and no earlier word. Where are their keys and values?"
    return "Which keys and values did it see: all of this layer, in order, and of no other layer?"


kv_cache = Exercise(
    key="09.kv_cache",
    title="a KV cache",
    check_answer=_check_cache,
    hints=(
        "Look at *Remember the keys*: it glues old and new along dimension 2. Yours does the same, for each layer, and "
        "remembers the result.",
        "If the layer has an entry, glue old keys and new ones along the words (dimension 2), the values likewise. "
        "Store both. With several queries, the prompt, be causal; with one, don't.",
        "`k = torch.cat([cache[layer][0], k], dim=2)`, `v` likewise; `cache[layer] = k, v`; and last "
        "`F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)`.",
    ),
    reference=cached,
    explanation="Old keys and values don't change: no earlier word sees the new one. The prompt comes as several "
    "queries and needs the causal mask. A single new word may see everything, so it needs no mask.",
)


# --- bytes of a cache ---------------------------------------------------------------------------
def cache_bytes(layers, kv_heads, head_dim, words, batch=1, number=2):
    return 2 * layers * kv_heads * head_dim * words * batch * number


def _check_bytes(answer):
    cases = ((2, 4, 32, 64, 1, 4), (32, 32, 128, 4096, 1, 2), (80, 8, 128, 8192, 16, 2))
    for case in cases:
        layers, kv_heads, head_dim, words, batch, number = case
        result = expect.number(call(answer, *case))
        expected = _counted(*case)
        if result != expected:
            raise NotYet(
                f"for {layers} layers, {kv_heads} heads of {head_dim}, {words:,} words, a batch of {batch} and "
                f"{number} bytes a number it says {result:,.0f} bytes. {_why_bytes(result, expected)}"
            )
    if call(answer, 32, 32, 128, 4096) != 2**31:
        raise NotYet(
            "batch is 1 and a number takes 2 bytes unless one says otherwise: keep the defaults."
        )
    return "a 7B model with 4,096 words needs 2 GiB beside its weights."


def _counted(layers, kv_heads, head_dim, words, batch, number):
    """Return the bytes of such keys and values, counted by PyTorch without taking memory."""
    kind = {2: torch.bfloat16, 4: torch.float32}[number]
    shape = (batch, kv_heads, words, head_dim)
    tensor_bytes = torch.empty(shape, dtype=kind, device="meta").nbytes
    return sum(tensor_bytes + tensor_bytes for _ in range(layers))


def _why_bytes(result, expected):
    if 2 * result == expected:
        return "That's half: a layer keeps keys, and what else?"
    return f"That's {result / expected:.3g} times what it takes: is each of the six factors in it once?"


sizes = Exercise(
    key="09.sizes",
    title="bytes of a cache",
    check_answer=_check_bytes,
    hints=(
        "Look at one entry of the cache in *Remember the keys*: how many tensors, and of which shape?",
        "A tensor of keys has batch × heads × words × `head_dim` numbers. Each layer keeps two such tensors.",
        "`return 2 * layers * …` with all six arguments as factors.",
    ),
    reference=cache_bytes,
    explanation="Keys and values make the 2; each is a tensor [batch, kv_heads, words, head_dim], once a layer.",
)


# --- the k best ---------------------------------------------------------------------------------
def pick(logits, k):
    values, ids = logits.topk(k)
    return ids[values.softmax(-1).multinomial(1)]


def _check_pick(answer):
    logits = torch.tensor([0.0, 3.0, -1.0, 0.5, 1.0, -4.0])
    draws = 600
    for k in (1, 3):
        words = [call(answer, logits.clone(), k) for _ in range(draws)]
        expect.tensor(words[0], shape=(1,), dtype=torch.int64, what="the result")
        counts = torch.cat(words).bincount(minlength=6) / draws
        best = logits.topk(k).indices
        outside = counts.sum() - counts[best].sum()
        if outside > 0:
            raise NotYet(
                f"with k = {k}, {outside:.0%} of {draws} draws fell outside the {k} largest logits. "
                "Did a place among the best slip out instead of a word's own number?"
            )
        expected = logits[best].softmax(-1)
        if (counts[best] - expected).abs().max() > 0.1:
            shares = ", ".join(f"{share:.0%}" for share in counts[best])
            raise NotYet(
                f"with k = {k}, the best words came in {shares} of the draws. Softmax of their logits says otherwise."
            )
    return "only the k best, each as often as its logit says."


top_k = Exercise(
    key="09.top_k",
    title="only the best words",
    check_answer=_check_pick,
    hints=(
        "`logits.topk(k)` gives two tensors: the `k` largest logits, and where they stood.",
        "Turn the `k` logits into chances with `softmax`, draw one place among them with `multinomial`, and look up whose it is.",
        "`values, ids = logits.topk(k)`; then `ids[values.softmax(-1).multinomial(1)]`.",
    ),
    reference=pick,
    explanation="multinomial draws a place among the k; ids says which word stood there. The long tail of "
    "unlikely words, each rare but many together, never gets its turn.",
)


QUIZ = (
    Question(
        "09.fused",
        "Why does the fused attention need so little memory?",
        {
            "It computes in 16 bits": "It does the same in float32.",
            "It never holds the whole n × n table, only a tile at a time": "Yes: it keeps a running maximum and a running sum instead.",
            "It leaves out small scores": "It's exact: you compared them.",
        },
        right=1,
    ),
    Question(
        "09.decode",
        "A chat with a 7B model is slow on your card, one word after the other. Which number of the card decides?",
        {
            "TFLOP/s": "Reading the prompt is limited by it; writing hardly uses it.",
            "Its number of cores": "They mostly wait for the weights.",
            "GB/s of its memory": "Yes: each word reads all weights once.",
        },
        right=2,
    ),
    Question(
        "09.cached",
        "What does a KV cache keep for each word?",
        {
            "Its key and its value, in each layer": "Yes: later words ask for both.",
            "Its query": "An old query has been answered; nobody asks it again.",
            "Its row of attention weights": "They belong to one query, and are used once.",
        },
        right=0,
    ),
)
