"""Lesson 11's races: the learner's function beside PyTorch's ways, each with its forecast and, on a GPU, its time."""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons.kernels import attend
from lessons.trace import microseconds, total, traffic

CARDS = {"softmax": "RTX 3090", "product": "A100 80", "attention": "A100 80"}  # of the forecasts


def race(what: str, yours: Callable[..., torch.Tensor]) -> None:
    """Print two counts of the bytes of some ways to compute `what`, each with its forecast, and on a GPU what it measures.

    Loaded and stored: by all programs, every time (none for PyTorch's kernels, which aren't ours to count). From memory at
    least: each number once a kernel. `what` is "softmax", for yours(x); "product", for yours(a, b, tile); or "attention",
    for yours(q, k, v, tile). Without a GPU nothing that large is run. Raises AssertionError where yours(…) differs from
    PyTorch on small inputs.
    """
    from practice_gpus.cards import find_card

    gpu = torch.cuda.is_available()
    ways, flops = {"softmax": _softmax, "product": _product, "attention": _attention}[what](
        yours, "cuda" if gpu else "cpu", "cuda" if gpu else "meta"
    )
    columns = f"{'loaded and stored':>24}{'from memory at least':>24}"
    print(f"{'':20}{columns}" + (f"{'measured':>13}" if gpu else ""))
    for name, run, loaded, least in ways:
        counts = [_bytes_and_time(CARDS[what], moved, flops) for moved in (loaded, least)]
        print(f"{name:20}{''.join(counts)}" + (_measured(run, least, flops) if gpu else ""))
    here = f"measured: {torch.cuda.get_device_name()}" if gpu else "no GPU here to measure on"
    print(f"forecasts: {find_card(CARDS[what])}; {here}")


def softmax_apart(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row in five operations, as the lesson writes it."""
    x = x - x.amax(1, keepdim=True)
    powers = x.exp()
    return powers / powers.sum(1, keepdim=True)


def _softmax(yours, small, large):
    x = torch.randn(7, 100, device=small)
    torch.testing.assert_close(yours(x), x.softmax(1))
    x = torch.randn(2048, 4096, device=large)
    ways = [
        ("five kernels", lambda: softmax_apart(x), None, total(traffic(softmax_apart, x))),
        ("your kernel", lambda: yours(x), 2 * x.nbytes, 2 * x.nbytes),
        ("x.softmax(1)", lambda: x.softmax(1), None, 2 * x.nbytes),
    ]
    return ways, 0


def _product(yours, small, large):
    a, b = torch.randn(2, 50, 50, device=small).half()
    torch.testing.assert_close(yours(a, b, 16), a.float() @ b.float(), rtol=5e-3, atol=5e-3)
    n = 4096
    a, b = torch.randn(2, n, n, dtype=torch.half, device=large)
    inputs, stored = 2 * a.nbytes, 4 * n * n  # bytes; yours stores float32
    ways = [
        (
            _tiles(tile),
            lambda tile=tile: yours(a, b, tile),
            n // tile * inputs + stored,
            inputs + stored,
        )
        for tile in (16, 32, 64)
    ]
    return [*ways, ("a @ b", lambda: a @ b, None, 3 * a.nbytes)], 2 * n**3


def _attention(yours, small, large):
    q, k, v = torch.randn(3, 200, 64, device=small).half()
    near = {"rtol": 0.01, "atol": 0.01}
    torch.testing.assert_close(
        yours(q, k, v, 64).float(), attend(q.float(), k.float(), v.float()), **near
    )
    n = 8192
    q, k, v = torch.randn(3, n, 64, dtype=torch.half, device=large)
    batch = [each[None, None] for each in (q, k, v)]  # the fused kernels take texts and heads, too
    moved = 2 * q.nbytes  # k and v by each program; q and the result once
    ways = [
        ("attend, 4 kernels", lambda: attend(q, k, v), None, total(traffic(attend, q, k, v))),
        *(
            (
                _tiles(tile),
                lambda tile=tile: yours(q, k, v, tile),
                (n // tile + 1) * moved,
                2 * moved,
            )
            for tile in (16, 32, 64)
        ),
        ("PyTorch's, fused", lambda: scaled_dot_product_attention(*batch), None, 2 * moved),
    ]
    return ways, 4 * n**2 * 64


def _tiles(tile):
    return f"yours, tiles of {tile}"


def _bytes_and_time(card, moved, flops):
    """Return 24 characters for a count of bytes and its forecast; blank without a count."""
    return (
        f"{_megabytes(moved):>12}{microseconds(card, moved, flops):9,.0f} µs" if moved else 24 * " "
    )


def _megabytes(count):
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def _measured(run, moved, flops):
    """Return the median time of `run()`, and the FLOPs or bytes per second that it reached."""
    from triton.testing import do_bench  # empties the L2 cache before each run

    seconds = do_bench(run, return_mode="median") / 1000
    rate = f"{flops / seconds / 1e12:.3g} TFLOP/s" if flops else f"{moved / seconds / 1e9:.3g} GB/s"
    return f"{1e6 * seconds:10,.0f} µs, {rate}"
