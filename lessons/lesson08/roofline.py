"""The roofline of lesson 08: what this machine and published GPUs can do, and how far a loop is from it."""

import copy
from itertools import takewhile

import torch

import measurements
from helpers import plots
from helpers.timing import time_ms
from lessons.lesson11.fusion import traffic


def bytes_moved(make, network, batch):
    """Bytes an image that the operations of a step read and write, as if all came from memory and went back there.

    `make(model)` returns step(x, y), as for `Climb`; it gets a copy of the network. `batch` is (x, y).
    """
    step = make(copy.deepcopy(network))
    return sum(read + written for _, read, written in traffic(step, *batch)) / len(batch[0])


def product_rate(device, dtype):
    """Operations a second of a large matrix product."""
    n = 1024 if device.type == "cpu" else 8192
    a = torch.randn(n, n, device=device).to(dtype)
    return 2 * n**3 / time_ms(lambda: a @ a, device, seconds=0.3).median_ms * 1000


def copy_rate(device):
    """Bytes a second that a large copy reads and writes."""
    source = torch.ones(2**24 if device.type == "cpu" else 2**28, device=device)
    target = torch.empty_like(source)
    copied = time_ms(lambda: target.copy_(source), device, seconds=0.3).median_ms
    return 2 * source.nbytes / copied * 1000


NOT_EAGER = ("torch.compile", "CUDA graph")  # bytes are counted for operations one by one


def draw_roofline(flops, moved, rows, device, half):
    """The roofs of this machine and of published GPUs, below them the baseline and the best loop, as (figure, sentence).

    `flops`: operations an image; `moved`: bytes an image in float32 and in 16 bits; `rows`: of `Climb`; `half`: the 16-bit
    format that the best one uses where mixed precision was kept.
    """
    kept = [row for row in rows if row["kept"]]
    eager = list(takewhile(lambda row: row["name"] not in NOT_EAGER, kept))
    best = "our best" if eager == kept else "our best eager loop"
    in_16_bits = any(row["name"] == "mixed precision" for row in eager)
    dtype = half if in_16_bits else torch.float32
    bandwidth = copy_rate(device)
    peaks = {each: product_rate(device, each) for each in dict.fromkeys((torch.float32, dtype))}
    own = {_label(device, each): _roof(peak, bandwidth) for each, peak in peaks.items()}
    places = {}
    bytes_of = (moved[0], moved[in_16_bits])
    for name, its, row in zip(("baseline", best), bytes_of, (eager[0], eager[-1]), strict=True):
        places[name] = (flops / its, row["images_per_s"] * flops / 1e9)
    x, y = places[best]
    roof = min(peaks[dtype], bandwidth * x) / 1e9
    loop = best.removesuffix(" loop").capitalize()
    title = f"{loop} loop does {x:.0f} operations a byte, and reaches {y / roof:.0%} of its roof"
    groups = [plots.here(own), *_gpu_roofs(), _published_roofs()]
    unit = "billion operations a second"
    figure = plots.lines(groups, title, "operations a byte", unit, logx=True, logy=True)
    axes = figure.axes[0]
    for (name, place), up in zip(places.items(), (-21, -10), strict=True):
        _mark(axes, name, *place, up)
    roofs = ", ".join(f"{_label(device, each)} {peak / 1e9:,.0f}" for each, peak in peaks.items())
    loops = ", ".join(f"{name} {y:,.0f}" for name, (_, y) in places.items())
    said = f"Billion operations a second: {loops}; a product on {roofs}"
    return figure, f"{said}. A copy moves {bandwidth / 1e9:,.0f} GB/s."


def _mark(axes, name, x, y, up):
    """A cross with its name beside it, `up` points higher: two crosses may lie close together."""
    axes.plot(x, y, "X", color="black", markersize=10, zorder=5)
    place = {"textcoords": "offset points", "xytext": (9, up), "fontsize": 9}
    axes.annotate(name, (x, y), **place)


def _label(device, dtype):
    return f"this {_kind(device)}, {str(dtype).removeprefix('torch.')}"


def _kind(device):
    return "GPU" if device.type == "cuda" else device.type.upper()


def _roof(peak, bandwidth):
    """(xs, ys) of a roof: operations a byte, and billion operations a second; it bends where memory just keeps up."""
    bend = peak / bandwidth
    xs = sorted((1 / 4, bend, max(256, 2 * bend)))
    return xs, [min(peak, bandwidth * x) / 1e9 for x in xs]


def _gpu_roofs():
    """The groups of the float32 roofs of your GPU and of recorded ones: their fastest product and copy."""
    products = {"x": "size", "y": "tflop_per_s", "dtype": "float32"}
    copies = {"x": "bytes", "y": "gb_per_s", "operation": "copy"}
    pairs = [
        (plots.yours("matmul", **products), plots.yours("bandwidth", **copies)),
        (
            plots.recorded("matmul", kind="cuda", **products),
            plots.recorded("bandwidth", kind="cuda", **copies),
        ),
    ]
    for fastest, copied in pairs:
        lines = {
            f"{name}, float32": _roof(1e12 * max(rates), 1e9 * max(copied[name][1]))
            for name, (_, rates) in fastest.items()
            if name in copied
        }
        if lines:
            yield plots.Group(fastest.kind, lines, fastest.sources)


def _published_roofs():
    """The group of the float32 roofs of GPUs whose product and memory others measured."""
    products = measurements.published("matmul_best")
    memory = measurements.published("bandwidth_cards")
    lines = {}
    for name, its in (("A100 SXM4 80GB", "A100 80GB"), ("H200", "H200")):
        [best] = products.rows("best", device=name, dtype="float32")
        [triad] = memory.rows("bandwidth", device=its, where="memory", operation="triad")
        peak = 1e12 * best["tflop_per_s"]
        bandwidth = 1e9 * triad["gb_per_s"]
        lines[f"{its}, float32"] = _roof(peak, bandwidth)
    sources = [f"published: {products.source}", f"published: {memory.source}"]
    return plots.Group("published", lines, sources)
