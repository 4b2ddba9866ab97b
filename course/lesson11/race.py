"""Lesson 11's races: the learner's kernel beside PyTorch's ways: the bytes it loads, a forecast and, on a GPU, its time."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from course.lesson11 import figures, kernels
from course.lesson11.kernels import attend
from course.lesson11.traffic import microseconds, total, trace, traffic

CARDS = {"softmax": "RTX 3090", "product": "A100 80", "attention": "A100 80"}  # of the forecasts
TILES = (16, 32, 64)
# Bytes per second that the L2 cache delivers at its peak: 5,120 per clock (NVIDIA, A100 Tensor Core GPU Architecture,
# whitepaper, page 35) × the boost clock. NVIDIA names none for a 3090.
L2 = {"A100 80": 5120 * 1.41e9}
SMS = 108  # of an A100, by its data sheet (the table of cards has no SMs); a program runs on one
MANY = 10**6  # programs, over which an SM more or less doesn't count
SMALL = 64  # rows or tokens of the inputs on which loads and stores are counted


def race(what: str, kernel: Any) -> None:
    """Show the bytes of some ways to compute `what`, each with its forecast, and on a GPU what it measures.

    `kernel` is the learner's: `what` is "softmax", "product" or "attention". Without a GPU nothing large is run. Raises
    AssertionError where its results differ from PyTorch's on small inputs.
    """
    from practice_gpus.cards import find_card

    if what not in COUNTS:
        raise ValueError(f"what is {what!r}; it takes one of {', '.join(COUNTS)}")
    gpu = torch.cuda.is_available()
    ways, flops, title = {"softmax": _softmax, "product": _product, "attention": _attention}[what](
        LAUNCHES[what](kernel),
        lambda *tile: COUNTS[what](kernel, *tile),
        "cuda" if gpu else "cpu",
        "cuda" if gpu else "meta",
    )
    rows = []
    whose = "model answer" if _stands_in(kernel) else "yours"
    for name, run, counts, least, programs in ways:
        work = flops * _uneven(programs) if programs else 0
        times = _forecast(CARDS[what], counts, least, work) if programs else []
        measured = _measured(run, least, flops) if gpu else ""
        rows.append((name.replace(WHOSE, whose), sum(counts), least, times, measured))
    here = f"measured: {torch.cuda.get_device_name()}" if gpu else "no GPU here to measure on"
    figures.race(rows, title, f"forecasts: {find_card(CARDS[what])}; {here}")


def _forecast(card, counts, least, work):
    """Return the µs of a kernel: at least and, where its bytes (loaded, stored) are counted, at most.

    At least: the longest of the bytes that memory must deliver, all loads from the L2 cache, and the busiest SM's
    arithmetic. At most: all loads and stores reach memory.
    """
    low = microseconds(card, least, work)
    if not counts:
        return [low]
    if card in L2:
        low = max(low, 1e6 * counts[0] / L2[card])
    return [low, max(low, microseconds(card, sum(counts), work))]


def _uneven(programs):
    """How many times as long the busiest SM computes as if the work were spread evenly over all of them."""
    return math.ceil(programs / SMS) * SMS / programs


# --- what a kernel loads and stores: counted on small inputs, and scaled ------------------------
def _scaled(seen, ratio, powers):
    """Return (bytes loaded, stored) of a `Trace` if each tensor's grow with a power of the size; `powers` in their order."""
    growth = [ratio**power for power in powers]
    return tuple(
        sum(seen.bytes(kind, name) * each for name, each in zip(seen.tensors, growth, strict=True))
        for kind in ("load", "store")
    )


def _count_softmax(kernel):
    x = torch.randn(2, SMALL)
    seen = trace(kernel, 2, x, torch.empty_like(x), SMALL, BLOCK=SMALL)
    return _scaled(seen, 2048 * 4096 // x.numel(), (1, 1))


def _count_product(kernel, tile):
    a, b = torch.randn(2, SMALL, SMALL).half()
    arguments = a, b, torch.empty(SMALL, SMALL), SMALL
    seen = trace(kernel, (SMALL // tile,) * 2, *arguments, num_warps=4, TILE=tile)
    return _scaled(seen, 4096 // SMALL, (3, 3, 2))


def _count_attention(kernel, tile):
    q, k, v = torch.randn(3, SMALL, 64).half()
    arguments = q, k, v, torch.empty_like(q), SMALL, 0.125
    seen = trace(kernel, SMALL // tile, *arguments, num_warps=4, D=64, BLOCK=tile)
    return _scaled(seen, 8192 // SMALL, (1, 2, 2, 1))


COUNTS: dict[str, Callable[..., tuple[int, int]]] = {
    "softmax": _count_softmax,
    "product": _count_product,
    "attention": _count_attention,
}


# --- how a kernel is launched -------------------------------------------------------------------
def _launch_softmax(kernel):
    def launch(x):
        out = torch.empty_like(x)
        columns = x.shape[1]
        kernel[(len(x),)](x, out, columns, BLOCK=2 ** math.ceil(math.log2(columns)))
        return out

    return launch


def _launch_product(kernel):
    def launch(a, b, tile):
        n = len(a)
        c = torch.empty(n, n, device=a.device)
        kernel[(-(-n // tile),) * 2](a, b, c, n, TILE=tile)
        return c

    return launch


def _launch_attention(kernel):
    def launch(q, k, v, tile):
        out = torch.empty_like(q)
        n, d = q.shape
        kernel[(-(-n // tile),)](q, k, v, out, n, d**-0.5, D=d, BLOCK=tile)
        return out

    return launch


LAUNCHES = {"softmax": _launch_softmax, "product": _launch_product, "attention": _launch_attention}


# --- the ways: (name, how to run it, bytes (loaded, stored) or (), bytes from memory at least, programs) ---
# Where PyTorch chooses the programs, they count as many; 0: its kernel's forecast would be a guess.
def softmax_apart(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row in five operations, as the lesson writes it."""
    x = x - x.amax(1, keepdim=True)
    powers = x.exp()
    return powers / powers.sum(1, keepdim=True)


def _softmax(yours, count, small, large):
    x = torch.randn(7, 100, device=small)
    torch.testing.assert_close(yours(x), x.softmax(1))
    x = torch.randn(2048, 4096, device=large)
    apart = total(traffic(softmax_apart, x))
    ways = [
        ("five kernels", lambda: softmax_apart(x), (), apart, MANY),
        (WHOSE, lambda: yours(x), count(), 2 * x.nbytes, len(x)),
        ("x.softmax(1)", lambda: x.softmax(1), (), 2 * x.nbytes, MANY),
    ]
    title = f"One kernel needs to move {figures.megabytes(2 * x.nbytes)} where five move {figures.megabytes(apart)}"
    return ways, 0, title


def _product(yours, count, small, large):
    a, b = torch.randn(2, 50, 50, device=small).half()
    torch.testing.assert_close(yours(a, b, 16), a.float() @ b.float(), rtol=5e-3, atol=5e-3)
    n = 4096
    a, b = torch.randn(2, n, n, dtype=torch.half, device=large)
    least = 2 * a.nbytes + 4 * n * n  # yours stores float32
    ways = [
        (_tiles(tile), lambda tile=tile: yours(a, b, tile), count(tile), least, (n // tile) ** 2)
        for tile in TILES
    ]
    title = "The larger the tile, the less the kernel loads"
    return [*ways, ("a @ b", lambda: a @ b, (), 3 * a.nbytes, MANY)], 2 * n**3, title


def _attention(yours, count, small, large):
    q, k, v = torch.randn(3, 200, 64, device=small).half()
    near = {"rtol": 0.01, "atol": 0.01}
    torch.testing.assert_close(
        yours(q, k, v, 64).float(), attend(q.float(), k.float(), v.float()), **near
    )
    n = 8192
    q, k, v = torch.randn(3, n, 64, dtype=torch.half, device=large)
    batch = [each[None, None] for each in (q, k, v)]  # the fused kernels take texts and heads, too
    apart, least = total(traffic(attend, q, k, v)), 4 * q.nbytes
    ways = [
        ("four operations", lambda: attend(q, k, v), (), apart, MANY),
        *(
            (_tiles(tile), lambda tile=tile: yours(q, k, v, tile), count(tile), least, n // tile)
            for tile in TILES
        ),
        ("PyTorch's, fused", lambda: scaled_dot_product_attention(*batch), (), least, 0),
    ]
    title = f"One kernel needs {figures.megabytes(least)} from memory where four need {figures.megabytes(apart)}"
    return ways, 4 * n**2 * 64, title


WHOSE = "{kernel}"  # in a way's name: "yours", or "model answer" while that stands in


def _stands_in(kernel):
    """Return whether this is the course's own kernel."""
    code = getattr(getattr(kernel, "fn", None), "__code__", None)
    return code is not None and Path(code.co_filename).name == Path(kernels.__file__).name


def _tiles(tile):
    return f"{WHOSE}, tiles of {tile}"


def _measured(run, moved, flops):
    """Return the median time of `run()`, and the FLOPs or bytes per second that it reached."""
    from triton.testing import do_bench  # empties the L2 cache before each run

    seconds = do_bench(run, return_mode="median") / 1000
    rate = f"{flops / seconds / 1e12:.3g} TFLOP/s" if flops else f"{moved / seconds / 1e9:.3g} GB/s"
    return f"{1e6 * seconds:,.0f} µs, {rate}"
