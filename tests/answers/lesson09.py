"""Wrong answers to the exercises of lesson 09."""

from answers import edit, given

JOIN_K = "k = torch.cat([old_k, k], dim=2)"


def whole(q, k, v, size=128):
    """Attention with all scores at once."""
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def divided(q, k, v, size=128):
    """Attention in tiles of which each is divided by its own sum."""
    pairs = zip(k.split(size, 2), v.split(size, 2), strict=True)
    return sum(whole(q, some_k, some_v) for some_k, some_v in pairs)


WRONG = {
    "tiles": (
        given("the whole score matrix has", whole),
        given("divided by its own sum", divided),
        edit("too large", "result * shrink", "result"),
        edit("the last tile is in it", "result * shrink +", "", "total * shrink +", ""),
        edit(
            "holds inf or nan",
            "(scores - new_top).exp()",
            "scores.exp()",
            "(top - new_top).exp()",
            "torch.ones_like(top)",
        ),
        edit("Expected size for", "weights @ some_v", "weights @ some_v.sum(-1)"),
    ),
    "kv_cache": (
        edit("the very first word", "is_causal=q.shape[2] > 1", "is_causal=True"),
        edit("words looked ahead", ", is_causal=q.shape[2] > 1", ""),
        edit("nothing under 0", "    cache[layer] = k, v\n", ""),
        edit("of no other layer", "if layer in cache", "if cache", "cache[layer]", "cache[0]"),
        edit("all of this layer, in order", "[old_k, k]", "[k, old_k]"),
        edit("Sizes of tensors", JOIN_K, JOIN_K.replace("dim=2", "dim=1")),
    ),
    "rate": (
        edit("A byte has 8 bits", "bits / 8", "bits"),
        edit("whatever they are", "bits / 8", "2"),
        edit("are read, too", " + chats * tokens * 524_288", ""),
        edit("a cache of its own", "chats * tokens", "tokens"),
        edit("once for all chats", "read = weights", "read = chats * weights"),
        edit("all chats together", "gb_per_s * 1e9", "chats * gb_per_s * 1e9"),
        edit("a billion bytes", "gb_per_s * 1e9", "gb_per_s"),
        given("your rate is of type str", lambda *offer: "2"),
    ),
}
