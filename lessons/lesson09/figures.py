"""The figures of lesson 09: where words look, memory by length, tiles, words a second, and what fits on which card.

Each function returns (Figure, sentence).
"""

import torch

import measurements
from helpers import plots
from helpers.checks.core import chosen
from helpers.gpus import CARDS
from helpers.timing import time_ms
from lessons.lesson09.exercises import kv_cache, mask, top_k
from lessons.measure import peak_bytes
from practice_gpus.cards import get_card

MIB = 2**20


# --- where words look ---------------------------------------------------------------------------
def look(model, text, mask_answer):
    """Return a function (layer, head) that draws where each word of `text` looks, masked by the learner's answer or ours."""
    causal = chosen(mask, mask_answer)
    weights = {}

    def attend(layer, q, k, v):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights[layer] = causal(scores).softmax(-1)
        return weights[layer] @ v

    with torch.inference_mode():
        model(model.encode(text), attend)

    def draw(layer, head):
        return _draw_weights(weights[layer - 1][0, head - 1].cpu(), text.split(), layer, head)

    return draw


def _draw_weights(weights, words, layer, head):
    last = weights[-1]
    most = int(last.argmax())
    title = f"Layer {layer}, head {head}: the last word gives {last[most]:.0%} to “{words[most]}”"
    figure, axes = plots.new_figure(title, "looks at", "word", size=(6.0, 4.2))
    picture = axes.imshow(weights.numpy(), cmap="cividis", vmin=0, vmax=1)
    axes.grid(False)
    axes.set_xticks(range(len(words)), words, rotation=45, ha="right", fontsize=9)
    axes.set_yticks(range(len(words)), words, fontsize=9)
    figure.colorbar(picture, label="share of its attention")
    return figure, f"{title}. Above the diagonal, where later words are, all shares are zero."


# --- memory -------------------------------------------------------------------------------------
def peaks_mib(attend, sizes, heads=8, width=64):
    """Return the most memory in MiB that `attend(q, k, v)` takes beside its inputs, for each length in `sizes`."""
    device = torch.device("cuda")
    found = []
    for n in sizes:
        q = k = v = None  # back to the allocator
        torch.cuda.empty_cache()  # and to the device, so that sizes aren't rounded to old blocks
        q, k, v = torch.randn(3, 1, heads, n, width, device=device).unbind()
        found.append(peak_bytes(lambda q=q, k=k, v=v: attend(q, k, v), device) / MIB)
    return found


def exponent(sizes, values):
    """Return p of the power law values ~ sizes ** p, fitted by least squares of logarithms."""
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(values, dtype=torch.float64).log()
    return (((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()).item()


def memory(sizes, peaks):
    """Draw peaks in MiB over lengths: `peaks` is a dict of name to values."""
    powers = {name: exponent(sizes, values) for name, values in peaks.items()}
    series = {f"{name}: n to the {powers[name]:.1f}": (sizes, peaks[name]) for name in peaks}
    first, second = peaks
    title = f"{sizes[-1]:,} words: {peaks[first][-1]:,.0f} MiB {first}, {peaks[second][-1]:.0f} {second}"
    words = "words (n)"
    figure = plots.lines(series, title, words, "MiB beside q, k and v", logx=True, logy=True)
    figure.axes[0].set_xticks(sizes, [f"{n:,}" for n in sizes])
    said = "; ".join(
        f"{name} grows with n to the power {power:.2f}" for name, power in powers.items()
    )
    return figure, f"{title}. By the fitted lines, {said}."


# --- tiles --------------------------------------------------------------------------------------
def tiles(count=6):
    """Draw what is in memory at once: the whole table of scores, or a tile of it."""
    from matplotlib.patches import Rectangle

    title = "Fused attention holds one tile, never the table"
    figure, parts = plots.panels(title, 1, 2, size=(6.4, 3.2))
    names = ("by hand: all n × n scores", "fused: one tile, and a few numbers a row")
    for axes, name, whole in zip(parts, names, (True, False), strict=True):
        for row in range(count):
            for column in range(count):
                now = whole or (row, column) == (2, 3)
                done = not whole and (row, column) < (2, 3)
                look = {"facecolor": "white", "edgecolor": "#909090"}
                if now:
                    look |= {"facecolor": plots.COLORS[0], "hatch": "//", "edgecolor": "white"}
                elif done:
                    look["facecolor"] = "#d9d9d9"
                axes.add_patch(Rectangle((column, row), 1, 1, **look))
        axes.set(xlim=(-0.1, count + 0.1), ylim=(count + 0.1, -0.1), xticks=[], yticks=[])
        axes.set_aspect("equal")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("keys")
        axes.set_ylabel("queries")
        axes.spines[:].set_visible(False)
    return figure, f"{title}. Blue and hatched: in memory now; gray: done and forgotten."


# --- words a second, here -----------------------------------------------------------------------
@torch.inference_mode()
def steps_ms(model, cached, lengths):
    """Return the milliseconds of one new word after `lengths` words, without a cache and with one: two lists."""
    device = model.head.weight.device
    plain, quick = [], []
    for n in lengths:
        ids = torch.zeros(1, n, dtype=torch.int64, device=device)
        cache = {}

        def attend(layer, q, k, v, cache=cache):
            return cached(cache, layer, q, k, v)

        model(ids, attend)
        one = ids[:, :1]

        def step(one=one, attend=attend, cache=cache, n=n):
            before = dict(cache)
            model(one, attend, start=n)
            cache.update(before)

        plain.append(time_ms(lambda ids=ids: model(ids), device, warmup=1, seconds=0.05).median_ms)
        quick.append(time_ms(step, device, warmup=1, seconds=0.05).median_ms)
    return plain, quick


def steps(make_model, answer, lengths=(64, 128, 256, 512, 1000)):
    """Draw the time of one new word by the words before it, with the learner's cache (until it passes, ours)."""
    plain, quick = steps_ms(make_model(context=1024), chosen(kv_cache, answer), lengths)
    title = f"After {lengths[-1]:,} words, the next takes {plain[-1]:.1f} ms, with a cache {quick[-1]:.1f}"
    series = {"without a cache": (lengths, plain), "with a cache": (lengths, quick)}
    figure = plots.lines(series, title, "words so far", "ms for one more word")
    figure.axes[0].set_ylim(bottom=0)
    return figure, f"{title}."


# --- words a second, elsewhere ------------------------------------------------------------------
# Shapes: github.com/pytorch-labs/gpt-fast/blob/03e10bc23f31487a0353f22da7f506f0841ed720/model.py
LLAMAS = {  # layers, heads, kv_heads, width, inner width
    "Llama-2-7B": (32, 32, 32, 4096, 11008),
    "Mistral-7B": (32, 32, 8, 4096, 14336),
    "Llama-2-13B": (40, 40, 40, 5120, 13824),
    "Llama-2-70B": (80, 64, 8, 8192, 28672),
}
VOCABULARY = 32_000
BITS = {"bfloat16": 16, "int8": 8, "int4": 4}


def weights_of(model):
    """Return how many weights a word reads in `model` (a name in `LLAMAS`); the table of words, of which it reads one row, is not among them."""
    layers, heads, kv_heads, width, inner = LLAMAS[model]
    attention = 2 * width**2 + 2 * width * (width // heads) * kv_heads
    return layers * (attention + 3 * width * inner) + VOCABULARY * width


def bound(model, precision, bandwidth_gb_s):
    """Return the most tokens a second: bandwidth divided by the bytes of the weights."""
    return bandwidth_gb_s * 1e9 / (weights_of(model) * BITS[precision] / 8)


def rates():
    """Draw published tokens a second of an A100 beside the bound from its bandwidth."""
    source = measurements.published("llama_tokens_a100")
    rows = [
        row
        for row in source.rows("tokens")
        if row["device"].startswith("A100") and row["tokens_per_s"] and row["model"] in LLAMAS
    ]
    names = [f"{row['model']}, {row['precision']}" for row in rows]
    speed = get_card("A100 80 GB").bandwidth
    most = [bound(row["model"], row["precision"], speed) for row in rows]
    reached = [row["tokens_per_s"] for row in rows]
    title = f"{rows[0]['model']}: {reached[0]:.0f} tokens a second, of {most[0]:.0f} at most"
    series = {"at most, by the bandwidth": dict(zip(names, most, strict=True))}
    series["measured"] = dict(zip(names, reached, strict=True))
    figure = plots.dots(series, title, "tokens a second on an A100 80 GB that was limited to 330 W")
    figure.axes[0].set_xlim(left=0)
    plots.sources(
        figure, f"published: {source.source}; bandwidth: NVIDIA's data sheet, {speed:,} GB/s"
    )
    said = ", ".join(
        f"{name} {a:.0f} of {b:.0f}" for name, a, b in zip(names, reached, most, strict=True)
    )
    return figure, f"Tokens a second, measured of at most: {said}."


def fits(model, precision, words, batch):
    """Draw for each card the most tokens a second of all conversations together; cards too small are named."""
    layers, heads, kv_heads, width, _ = LLAMAS[model]
    weights = weights_of(model) * BITS[precision] / 8 / 1e9
    cache = 2 * layers * kv_heads * (width // heads) * words * batch * 2 / 1e9
    table = VOCABULARY * width * 2 / 1e9
    need = weights + table + cache
    most = {}
    for each in map(get_card, CARDS):
        fit = need < 0.9 * each.gigabytes
        name = each.short if "GB" in each.short else f"{each.short} {each.gigabytes} GB"
        most[name] = batch * each.bandwidth / (weights + cache) if fit else 0
    count = sum(rate > 0 for rate in most.values())
    title = (
        f"{plots.number(weights + table)} GB of weights and {plots.number(cache)} GB of cache "
        f"fit {count} of {len(most)} cards"
    )
    figure = plots.bars(most, title, "tokens a second at most, all conversations together")
    axes = figure.axes[0]
    for text, rate in zip(axes.texts, most.values(), strict=True):
        if not rate:
            text.set_text(" too small")
    if not count:
        axes.set_xlim(0, 1)
    plots.sources(figure, "bound from NVIDIA's data sheets; a tenth of each memory kept free")
    best = max(most, key=most.get)
    return figure, f"{title}." + (
        f" At best {most[best]:,.0f} tokens a second, on {best}." if count else ""
    )


@torch.inference_mode()
def product_ms(rows, matrix):
    """Return the milliseconds of rows @ matrix."""
    return time_ms(lambda: rows @ matrix, matrix.device, warmup=1, seconds=0.05).median_ms


@torch.inference_mode()
def write_with(model, start, answer, k, count=18):
    """Return `start` and `count` words drawn by the learner's `pick(logits, k)`; until it passes, by ours."""
    pick = chosen(top_k, answer)
    ids = model.encode(start)
    for _ in range(count):
        logits = model(ids[:, -model.context :])[0, -1]
        ids = torch.cat([ids, pick(logits, k)[None]], dim=1)
    return model.decode(ids)
