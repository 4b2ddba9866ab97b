"""Wrong answers to the exercises of lesson 09."""

from answers import edit

JOIN_K = "k = torch.cat([old_k, k], dim=2)"
JOIN_V = "v = torch.cat([old_v, v], dim=2)"
WRONG = {
    "mask": (
        edit("Which diagonal", "triu(1)", "triu(0)"),
        edit("word 0 does not", "triu(1)", "tril(0)"),
        edit("of its attention to a later word", 'float("-inf")', "0.0"),
        edit("device", ", device=scores.device", ""),
        edit("itself was changed", "masked_fill(", "masked_fill_("),
    ),
    "kv_cache": (
        edit("the very first word", "is_causal=q.shape[2] > 1", "is_causal=True"),
        edit("words looked ahead", ", is_causal=q.shape[2] > 1", ""),
        edit("nothing under 0", "    cache[layer] = k, v\n", ""),
        edit("of no other layer", "if layer in cache", "if cache", "cache[layer]", "cache[0]"),
        edit("all of this layer, in order", "[old_k, k]", "[k, old_k]"),
        edit("Sizes of tensors", JOIN_K, JOIN_K.replace("dim=2", "dim=1")),
    ),
    "sizes": (
        edit("keys, and what else", "2 * layers", "layers"),
        edit("for 2 layers", "layers * kv_heads", "kv_heads"),
        edit("a batch of 16", " * batch", ""),
        edit("8 times what", " * number", " * 8 * number"),
    ),
    "top_k": (
        edit(
            "slip out",
            "ids[values.softmax(-1).multinomial(1)]",
            "values.softmax(-1).multinomial(1)",
        ),
        edit("fell outside", "topk(k)", "topk(5)"),
        edit("Softmax of their logits", "values.softmax(-1)", "torch.ones(k)"),
        edit("100%, 0%", "ids[values.softmax(-1).multinomial(1)]", "ids[:1]"),
    ),
}
