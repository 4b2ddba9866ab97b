"""The figures of lessons 09 and 09b, each as (Figure, sentence): what a GPT writes, where words look, memory, time and rates."""

import functools
import itertools
import textwrap

import torch

from course import gpt, measurements
from helpers import plots
from practice_gpus.cards import get_card


def first_picture():
    """Return (Figure, alternative text): what a TinyGPT writes before and after it has read the course."""
    torch.manual_seed(0)
    models = {"before": gpt.TinyGPT(gpt.course_words()), "after": gpt.trained()}
    texts = {name: gpt.write(model, "a GPU", 29) for name, model in models.items()}
    title = "The same GPT, before and after reading"
    figure, axes = plots.new_figure(title, size=(7.4, 2.1))
    for row, text in enumerate(texts.values()):
        lines = textwrap.wrap(text, 74)[:3]
        look = {"color": (plots.FAINT, plots.INK)[row], "va": "top", "linespacing": 1.5}
        axes.text(0, -row, [*texts][row] + "\n" * (len(lines) - 1), **look, fontweight="bold")
        axes.text(0.1, -row, "\n".join(lines), **look, fontsize=10.5)
    axes.set(xlim=(0, 1), ylim=(-1.5, 0.1))
    axes.set_axis_off()
    return figure, f"Before: word salad. After: “{texts['after']}”"


@torch.inference_mode()
def inside(model, text):
    """Return q, k and v of all words of `text`, as a list by layer, each [3, heads, words, numbers]."""
    found = []

    def attend(layer, q, k, v):
        found.append(torch.cat([q, k, v]).cpu())
        return gpt.causal(layer, q, k, v)

    model(model.encode(text), attend)
    return found


def four_steps(text, scores, scaled, shares, values, mixed):
    """Draw what the last word of `text` computes with each word: score, scaled, share, first numbers of `values`, mix."""
    words = text.split()
    most = int(shares.argmax())
    title = f"The last “{words[-1]}” gives {shares[most]:.0%} of its attention to “{words[most]}”"
    figure, axes = plots.new_figure(title, size=(7.4, 3.3))
    axes.set(xlim=(-1.9, len(words) + 1.2), ylim=(8.3, -0.7))
    axes.set_axis_off()
    write = functools.partial(axes.text, ha="center", va="center", color=plots.INK)
    steps = (
        "1  query · key",
        "2  divided by √32",
        "3  softmax",
        "4  mix of values",
    )
    for row, step in enumerate(steps, 1):
        axes.text(-1.9, row, step, va="center", color=plots.INK)
    for x, word in enumerate(words):
        write(x + 0.2, 0, word, fontweight="bold")
        write(x + 0.2, 1, f"{scores[x]:.1f}".replace("-", "−"))
        write(x + 0.2, 2, f"{scaled[x]:.2f}".replace("-", "−"))
        share = shares[x].item()
        axes.bar(x + 0.2, 0.8, 0.84, 2.6, color=plots.GPU, alpha=share)
        write(x + 0.2, 3, f"{share:.1%}", color="white" if share > 0.85 else plots.INK)
        for row, number in enumerate(values[x, :4].tolist()):
            write(
                x + 0.2,
                4 + row,
                f"{number:.2f}".replace("-", "−"),
                alpha=1 if row == 0 else 0.65 + 0.35 * share,
            )
        write(x + 0.2, 8, "⋮")
    write(len(words) + 0.6, 0, "new row", fontweight="bold")
    for row, number in enumerate(mixed[:4].tolist()):
        write(len(words) + 0.6, 4 + row, f"= {number:.2f}".replace("-", "−"), fontweight="bold")
    write(len(words) + 0.6, 8, "⋮")
    told = ", ".join(f"{share:.0%} to “{w}”" for w, share in zip(words, shares, strict=True))
    return (
        figure,
        f"Scores, scaled scores, shares and values of each word. The last word gives {told}.",
    )


def _causal(scores):
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))


def look(model, text, mask=_causal):
    """Return a function (layer, head) that draws where each word of `text` looks, after `mask(scores)`."""
    layers, words = inside(model, text), text.split()

    def draw(layer, head):
        q, k, _ = layers[layer - 1][:, head - 1]
        shares = mask(q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        most = int(shares[-1].argmax())
        title = f"Layer {layer}, head {head}: “{words[-1]}” gives {shares[-1, most]:.0%} to “{words[most]}”"
        figure, axes = plots.new_figure(title, "looks at", "word", (6.4, 2.7))
        seen = shares.where(shares > 0, torch.nan)  # no color where no word can look
        axes.imshow(seen.numpy(), cmap="Greens", vmin=0, vmax=1, aspect="auto")
        axes.grid(False)
        axes.set_xticks(range(len(words)), words)
        axes.set_yticks(range(len(words)), words)
        for row, column in itertools.product(range(len(words)), repeat=2):
            share = shares[row, column].item()
            color = "white" if share > 0.65 else plots.INK
            told = f"{share:.0%}" if column <= row else ""
            axes.text(column, row, told, ha="center", va="center", fontsize=9, color=color)
        return figure, f"{title}. Above the diagonal, where later words are, all shares are zero."

    return draw


def peaks_mib(attend, sizes):
    """Return the most MiB that `attend(q, k, v)` takes on top of its inputs (8 heads of 64), for each length."""
    peaks = []
    for n in sizes:
        torch.cuda.empty_cache()  # so that sizes aren't rounded to old blocks
        q, k, v = torch.randn(3, 1, 8, n, 64, device="cuda").unbind()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        attend(q, k, v)
        peaks.append((torch.cuda.max_memory_allocated() - before) / 2**20)
        del q, k, v
    return peaks


CALL = "16 of them hold the result. None holds a score."


def memory(sizes, by_hand, fused):
    """Draw the MiB of attention by hand and fused over the length of the text."""
    title = f"{sizes[-1]:,} words: {by_hand[-1]:,.0f} MiB by hand, {fused[-1]:,.0f} fused"
    series = {"by hand": by_hand, "PyTorch's call": fused}
    colors = dict(zip(series, (plots.TROUBLE, plots.GPU), strict=True))
    lines = {name: (sizes, peaks) for name, peaks in series.items()}
    axes = ("words in the text (log scale)", "MiB on top of q, k, v (log scale)")
    figure = plots.lines(lines, title, *axes, logx=True, logy=True, colors=colors)
    figure.axes[0].set_xticks(sizes, [f"{n:,}" for n in sizes])
    return figure, f"{title}."


@torch.inference_mode()
def next_word(model, cached_attention, time_ms, lengths=(64, 500, 1000)):
    """Draw the milliseconds of one more word by the words before it, without a cache and with `cached_attention`."""
    device = model.head.weight.device
    plain, cached = [], []
    for n in lengths:
        ids = torch.zeros(1, n, dtype=torch.int64, device=device)
        cache = {}
        model(ids, functools.partial(cached_attention, cache))

        def step(one=ids[:, :1], cache=cache, n=n):
            model(one, functools.partial(cached_attention, dict(cache)), start=n)

        plain.append(time_ms(functools.partial(model, ids)))
        cached.append(time_ms(step))
    ends = [plots.number(times[-1], 2) for times in (cached, plain)]
    title = f"With a KV cache, word {lengths[-1] + 1:,} takes {ends[0]} ms instead of {ends[1]}"
    series = {"every word again": (lengths, plain), "the new word only": (lengths, cached)}
    here = plots.CPU if device.type == "cpu" else plots.GPU
    colors = dict(zip(series, (plots.TROUBLE, here), strict=True))
    figure = plots.lines(series, title, "words so far", "ms for the next word", colors=colors)
    figure.axes[0].set_ylim(bottom=0)
    return figure, f"{title}."


TRIPS = {  # of the scores, by the four long kernels
    "query · key": ("write",),
    "scaling": ("read", "write"),
    "softmax": ("read", "write"),
    "shares · values": ("read",),
}


LONGEST = "softmax", "It reads and writes all of the scores, and it does that slowly."


def layer(case):
    """Draw a layer's attention from the trace `case`: its kernels over time and, below, each trip of the scores from or to HBM."""
    title = "One layer's attention, by hand: six trips of 1.89 GB of scores"
    figure, axes = plots.new_figure(title, "ms", size=(7.4, 3.1))
    for event in case.gpu:
        color = plots.KERNELS.get(event.kind, plots.WAIT)
        axes.barh(2, event.length / 1000, 0.9, event.start / 1000, color=color)
    axes.barh(0, case.length / 1000, 0.7, color=plots.WAIT)
    write = functools.partial(axes.text, va="center", fontsize=9, color=plots.INK)
    write(case.length / 2000, 0, "HBM: 8 × 12 × 3,137 × 3,137 scores", ha="center")
    kernels = [event for event in case.gpu if event.length > 1000]
    for event, (name, ways) in zip(kernels, TRIPS.items(), strict=True):
        middle, ms = (event.start + event.length / 2) / 1000, event.length / 1000
        write(middle, 2.95, f"{name}\n{plots.number(ms, 2)} ms", ha="center")
        for way in ways:
            up = way == "read"
            x = middle + (-0.12 if up else 0.12)
            write(x + (-0.1 if up else 0.1), 0.95, way, ha="right" if up else "left")
            arrow = {"arrowstyle": "-|>" if up else "<|-", "color": plots.INK}
            axes.annotate("", (x, 1.5), (x, 0.4), arrowprops=arrow | {"linewidth": 1.6})
    axes.set(xlim=(0, case.length / 1000), ylim=(-0.4, 3.3), yticks=[0, 2], yticklabels=["", "GPU"])
    axes.grid(False)
    plots.sources(figure, case.source)
    told = "; ".join(f"{name}: {' and '.join(ways)}" for name, ways in TRIPS.items())
    return figure, f"{title}. {told}."


SEEN = "Taken for word 1, it sees only key 1."


def most_tokens(weights):
    """Return the most tokens per second that an A100 writes with so many 16-bit weights, and why."""
    because = f"Each token reads all the weights once: 2,039 GB/s over {2e-9 * weights:.1f} GB."
    return 2039e9 / (2 * weights), because


# Bits per weight. gpt-fast's int4 has a scale and a zero point of 16 bits each for every 32 weights (quantize.py).
BITS = {"bfloat16": 16, "int8": 8, "int4": 4 + (16 + 16) / 32}


def rates(limit, weights):
    """Draw gpt-fast's tokens per second of Llama-2-7B beside `limit(weights, bits, chats, tokens, gb_per_s)`."""
    source = measurements.published("llama_tokens_a100")
    most_gb_s = get_card("A100 80").bandwidth
    rows = source.rows("tokens", model="Llama-2-7B", device="A100 80 GB, 330 W")
    measured = {row["precision"]: row["tokens_per_s"] for row in rows}
    most = {name: limit(weights, BITS[name], 1, 5, most_gb_s) for name in measured}
    shares = [f"{measured[name] / most[name]:.0%}" for name in ("bfloat16", "int4")]
    title = f"Decode on an A100 reaches {shares[0]} of its limit in bfloat16, {shares[1]} in int4"
    series = {"measured": measured, "limit: bandwidth ÷ bytes per token": most}
    colors = dict(zip(series, (plots.GPU, plots.WAIT), strict=True))
    unit = "tokens per second of Llama-2-7B, one conversation, A100 limited to 330 W of 400"
    figure = plots.dots(series, title, unit, colors=colors)
    figure.axes[0].set_xlim(left=0)
    plots.sources(figure, f"published: {source.source}", f"data sheet: {most_gb_s:,} GB/s")
    told = ", ".join(f"{name} {measured[name]:.0f} of {most[name]:.0f}" for name in measured)
    return figure, f"{title}. Tokens per second: {told}."


def a_step(limit, weights, tokens=300):
    """Return a function (chats, card) that draws how long a decode step reads by `limit(weights, bits, chats, …)`."""

    def draw(chats, card):
        stored = "int4" if "int4" in card else "bfloat16"
        gb_s = get_card("H100 SXM" if "H100" in card else "A100 80").bandwidth
        rate, alone = (limit(weights, BITS[stored], chats, n, gb_s) for n in (tokens, 0))
        weights_ms, caches_ms = 1000 / alone, 1000 / rate - 1000 / alone
        many = f" each, {chats * rate:,.0f} in all" * (chats > 1)
        title = f"{chats} chat{'s' * (chats > 1)}: at most {rate:.0f} tokens per second{many}"
        unit = f"ms of one step, {card}, {gb_s:,} GB/s"
        read = {
            "weights": {"parameters": weights_ms},
            "caches": {"": weights_ms, "activations": caches_ms},
        }
        told = {
            name: f"{plots.number(ms, 2)} ms" for name, ms in zip(read, (weights_ms, caches_ms))
        }
        figure = plots.bars(read, title, unit, colors={"": plots.CARD}, words=told, size=(7.4, 1.9))
        figure.axes[0].set(xlim=(0, 20), xticks=range(0, 21, 5))
        reading = f"{weights_ms:.1f} ms for the weights, {caches_ms:.1f} for the caches"
        return figure, f"{title}. A step on {card} reads {reading}."

    return draw


def first_picture_b():
    """Return (Figure, alternative text): gpt-fast's tokens per second of two sizes of Llama on one A100."""
    source = measurements.published("llama_tokens_a100")
    rows = source.rows("tokens", device="A100 80 GB, 330 W")
    rows = [row for row in rows if "Llama-2" in row["model"] and row["tokens_per_s"]]
    rates = {f"{row['model'][8:]}, {row['precision']}": row["tokens_per_s"] for row in rows}
    share = rates["7B, int8"] / rates["70B, int8"]
    title = f"Ten times the weights, 1/{share:.0f} of the speed: Llama-2 on one A100"
    unit = "tokens per second, one conversation"
    figure = plots.bars(rates, title, unit, colors=plots.GPU, size=(7.4, 2.7))
    plots.sources(figure, f"published: {source.source}")
    told = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    return figure, f"Tokens per second of Llama-2 on one A100: {told}."
