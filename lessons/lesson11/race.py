"""Lesson 11's races: the learner's function beside PyTorch's ways, each with its forecast and, on a GPU, its time."""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from lessons.kernels import attend
from lessons.trace import microseconds, total, traffic

CARDS = {"softmax": "RTX 3090", "product": "A100 80", "attention": "A100 80"}  # of the forecasts


def race(what: str, yours: Callable[..., torch.Tensor]) -> None:
    """Print bytes, FLOPs per byte and forecast of some ways to compute `what`, and on a GPU what it measures.

    `what` is "softmax", for yours(x); "product", for yours(a, b, tile); or "attention", for yours(q, k, v). Without a
    GPU nothing that large is run. Raises AssertionError where yours(…) differs from PyTorch on small inputs.
    """
    from practice_gpus.cards import find_card

    gpu = torch.cuda.is_available()
    ways, flops = {"softmax": _softmax, "product": _product, "attention": _attention}[what](
        yours, "cuda" if gpu else "cpu", "cuda" if gpu else "meta"
    )
    ratio = f"{'FLOPs/byte':>12}" if flops else ""
    print(f"{'':24}{'moves':>9}{ratio}{'forecast':>13}" + (f"{'measured':>13}" if gpu else ""))
    for name, run, moved in ways:
        ratio = f"{flops / moved:12,.0f}" if flops else ""
        forecast = microseconds(CARDS[what], moved, flops)
        row = f"{name:24}{_megabytes(moved):>9}{ratio}{forecast:10,.0f} µs"
        print(row + (_measured(run, moved, flops) if gpu else ""))
    here = f"measured: {torch.cuda.get_device_name()}" if gpu else "no GPU here to measure on"
    print(f"forecast: {find_card(CARDS[what])}; {here}")


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
        ("five kernels", lambda: softmax_apart(x), total(traffic(softmax_apart, x))),
        ("your kernel", lambda: yours(x), 2 * x.nbytes),
        ("x.softmax(1)", lambda: x.softmax(1), 2 * x.nbytes),
    ]
    return ways, 0


def _product(yours, small, large):
    a, b = torch.randn(2, 50, 50, device=small).half()
    torch.testing.assert_close(yours(a, b, 16), a.float() @ b.float(), rtol=5e-3, atol=5e-3)
    n = 4096
    a, b = torch.randn(2, n, n, dtype=torch.half, device=large)
    ways = [
        (f"yours, tiles of {tile}", lambda tile=tile: yours(a, b, tile), 4 * n**3 // tile)
        for tile in (16, 32, 64)
    ]
    return [*ways, ("a @ b", lambda: a @ b, 3 * a.nbytes)], 2 * n**3


def _attention(yours, small, large):
    q, k, v = torch.randn(3, 200, 64, device=small).half()
    near = {"rtol": 0.01, "atol": 0.01}
    torch.testing.assert_close(
        yours(q, k, v).float(), attend(q.float(), k.float(), v.float()), **near
    )
    q, k, v = torch.randn(3, 8192, 64, dtype=torch.half, device=large)
    batch = [each[None, None] for each in (q, k, v)]  # the fused kernels take texts and heads, too
    ways = [
        ("attend, four kernels", lambda: attend(q, k, v), total(traffic(attend, q, k, v))),
        ("your kernel", lambda: yours(q, k, v), 4 * q.nbytes),
        ("PyTorch's, fused", lambda: scaled_dot_product_attention(*batch), 4 * q.nbytes),
    ]
    return ways, 4 * 8192**2 * 64


def _megabytes(count):
    return f"{count / 1e6:,.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def _measured(run, moved, flops):
    """Return the median time of `run()`, and the FLOPs or bytes per second that it reached."""
    from triton.testing import do_bench  # empties the L2 cache before each run

    seconds = do_bench(run, return_mode="median") / 1000
    rate = f"{flops / seconds / 1e12:.3g} TFLOP/s" if flops else f"{moved / seconds / 1e9:.3g} GB/s"
    return f"{1e6 * seconds:10,.0f} µs, {rate}"
