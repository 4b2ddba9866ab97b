"""The puzzles of page 93, from easy to hard: each with a specification, problems, a score and a model answer."""

import functools
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from course.checks import puzzle as base
from course.checks.core import Exercise, NotYet
from course.checks.puzzle import Problem, blank, requested, tl, triton
from course.checks.words import exercise
from course.lesson11.kernels import matmul_kernel
from course.lesson93.touched import touched

puzzle = functools.partial(base.puzzle, draw=touched)


def asked(compiled, result, problem):
    """Return the bytes that the kernel loads and stores per element of the result."""
    return result.useful() / problem.out.numel()


# --- three of one line ---------------------------------------------------------------------------
@triton.jit
def add_ten_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + 10)


def _add_ten_problem(n):
    x, out = torch.randn(n), blank(n)
    return Problem([x, out, n], out, x + 10, 1, f"{n} numbers")


add_ten = puzzle(
    "93.add_ten", add_ten_kernel, lambda: [_add_ten_problem(8), _add_ten_problem(512)], asked
)


@triton.jit
def add_two_kernel(x, y, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


def _add_two_problem(n, block):
    x, y, out = torch.randn(n), torch.randn(n), blank(n)
    return Problem([x, y, out, block], out, x + y, n // block, f"{n // block} programs of {block}")


add_two = puzzle(
    "93.add_two",
    add_two_kernel,
    lambda: [_add_two_problem(12, 4), _add_two_problem(512, 128)],
    asked,
)


@triton.jit
def guard_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + 10, mask=inside)


def _guard_problem(n, block):
    x, out = torch.randn(n), blank(n)
    return Problem([x, out, n, block], out, x + 10, -(-n // block), f"{n} numbers")


guard = puzzle(
    "93.guard", guard_kernel, lambda: [_guard_problem(10, 8), _guard_problem(1000, 128)], asked
)


# --- broadcast ----------------------------------------------------------------------------------
@triton.jit
def outer_kernel(x, y, out, n, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    a = tl.load(x + rows, mask=rows < n)
    b = tl.load(y + columns, mask=columns < n)
    mask = (rows[:, None] < n) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], a[:, None] + b[None, :], mask=mask)


def _outer_problem(n, tile):
    x, y, out = torch.randn(n), torch.randn(n), blank(n, n)
    side = -(-n // tile)
    return Problem([x, y, out, n, tile], out, x[:, None] + y[None], (side, side), f"n = {n}")


outer = puzzle(
    "93.outer", outer_kernel, lambda: [_outer_problem(10, 8), _outer_problem(128, 32)], asked
)


# --- row sums -----------------------------------------------------------------------------------
@triton.jit
def row_sums_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


def _row_sums_problem(rows, columns, block):
    x, out = torch.randn(rows, columns) + 1, blank(rows)
    words, options = f"{rows} rows of {columns}", {"aligned": columns > 100}
    values = [x, out, columns, block]
    return Problem(values, out, x.sum(1), rows, words, options=options, tolerance=1e-3)


row_sums = puzzle(
    "93.row_sums",
    row_sums_kernel,
    lambda: [_row_sums_problem(*sizes) for sizes in ((4, 40, 16), (5, 7, 16), (3, 1024, 256))],
    lambda compiled, result, problem: result.useful() / problem.values[0].numel(),
)


# --- vector loads -------------------------------------------------------------------------------
@triton.jit
def double_kernel(x, out, columns, BLOCK: tl.constexpr):
    eighths = columns // 8
    offsets = tl.arange(0, BLOCK)
    mask = offsets < eighths * 8
    start = tl.program_id(0) * eighths * 8
    values = tl.load(x + start + offsets, mask=mask)
    tl.store(out + start + offsets, 2 * values, mask=mask)


def _double_problem(columns, block):
    x, out = torch.randn(4, columns), blank(4, columns)
    return Problem([x, out, columns, block], out, 2 * x, 4, f"4 rows of {columns}")


def _requests_per_row(compiled, result, problem):
    """Return the memory instructions that warps execute for each row."""
    return sum(each.requests for each in result.of("global")) / len(problem.out)


double = puzzle(
    "93.double",
    double_kernel,
    lambda: [_double_problem(40, 64), _double_problem(1000, 1024)],
    _requests_per_row,
)


# --- histogram ----------------------------------------------------------------------------------
@triton.jit
def histogram_kernel(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=0)
    counts = tl.histogram(values, BINS, mask=offsets < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


def _histogram_problem(n, block, bins):
    x = torch.randint(0, bins, (n,), dtype=torch.int32)
    out = torch.zeros(bins, dtype=torch.int32)
    expected = torch.bincount(x, minlength=bins).int()
    values = [x, out, n, block, bins]
    return Problem(values, out, expected, -(-n // block), f"n = {n}", tolerance=0)


def _updates(compiled, result, problem):
    """Return the atomic updates of global memory for 1,000 elements."""
    return 1000 * sum(each.useful for each in result.of("global", "atomic")) / 4 / problem.values[2]


histogram = puzzle(
    "93.histogram",
    histogram_kernel,
    lambda: [_histogram_problem(300, 256, 8), _histogram_problem(8192, 2048, 64)],
    _updates,
)

# --- convolution --------------------------------------------------------------------------------
CONVOLVE = """
extern "C" __global__ void convolve(const float* x, const float* w, float* out, int n) {
  __shared__ float tile[132];
  __shared__ float taps[5];
  int t = threadIdx.x, first = blockIdx.x * 128 - 2;
  for (int p = t; p < 132; p += 128)
    tile[p] = first + p >= 0 && first + p < n ? x[first + p] : 0;
  if (t < 5) taps[t] = w[t];
  __syncthreads();
  float total = 0;
  for (int k = 0; k < 5; k++) total += taps[k] * tile[t + k];
  if (blockIdx.x * 128 + t < n) out[blockIdx.x * 128 + t] = total;
}
"""


def _convolved(x, w):
    return F.conv1d(x[None, None], w[None, None], padding=2).flatten()


def _convolve_problem(n):
    x, w, out = torch.randn(n), torch.randn(5), blank(n)
    return Problem([x, w, out, n], out, _convolved(x, w), -(-n // 128), f"n = {n}", 128)


convolve = puzzle(
    "93.convolve",
    CONVOLVE,
    lambda: [_convolve_problem(100), _convolve_problem(1024)],
    lambda compiled, result, problem: requested(result, problem),
)


# --- online softmax -----------------------------------------------------------------------------
@triton.jit
def online_kernel(x, out, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0) * columns
    largest = -float("inf")
    total = 0.0
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        v = tl.load(x + start + offsets, mask=offsets < columns, other=-float("inf"))
        new = tl.maximum(largest, tl.max(v, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(v - new), axis=0)
        largest = new
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        v = tl.load(x + start + offsets, mask=offsets < columns)
        tl.store(out + start + offsets, tl.exp(v - largest) / total, mask=offsets < columns)


def _online_problem(columns, block):
    x, out = 3 * torch.randn(3, columns), blank(3, columns)
    return Problem([x, out, columns, block], out, x.softmax(1), 3, f"rows of {columns}")


online = puzzle(
    "93.online",
    online_kernel,
    lambda: [_online_problem(50, 16), _online_problem(4096, 1024)],
    asked,
)

# --- a tiled product ----------------------------------------------------------------------------
TILES = {"TILE": 64, "num_warps": 4}


def _product_problem(tile, num_warps):
    a, b = torch.randn(2, 256, 256).half()
    out = blank(256, 256)
    values, grid = [a, b, out, 256, tile], (256 // tile, 256 // tile)
    options = {"num_warps": num_warps}
    return Problem(values, out, a.float() @ b.float(), grid, "", options=options, tolerance=0.05)


def _product_score(tiles):
    """Return (bytes requested per 1,000 floating-point operations, bytes of stack) of `matmul_kernel` with `tiles`."""
    problem = _product_problem(tiles["TILE"], tiles["num_warps"])
    compiled, result = base.run(matmul_kernel, problem)
    base.compare(problem)
    return 1000 * result.moved("load") / (2 * 256**3), compiled.stack


def _check_tiles(answer):
    if not isinstance(answer, dict) or set(answer) != set(TILES):
        raise NotYet('expected a dict: {"TILE": …, "num_warps": …}.')
    tile, num_warps = answer["TILE"], answer["num_warps"]
    known = type(tile) is type(num_warps) is int
    if not known or tile not in (16, 32, 64, 128) or num_warps not in (1, 2, 4, 8):
        came = f"TILE is {str(tile)[:20]}, num_warps {str(num_warps)[:20]}"
        raise NotYet(f"{came}; they take 16, 32, 64 or 128, and 1, 2, 4 or 8.")
    if tile == 128 and num_warps < 4:
        sums = 128 * 128 // 32 // num_warps
        raise NotYet(
            f"{num_warps} warps would hold {sums} sums in each thread: more than its 255 registers."
        )
    mine, stack = _product_score(answer)
    if stack:
        said = f"{mine:.3g} bytes per 1,000 operations, but {stack:,} bytes of stack"
        raise NotYet(f"{said}: the tile spills.")
    return base.verdict(product.title, mine, product.par(), product.unit)


@dataclass(frozen=True)
class Tiles(Exercise):
    """The exercise of the tiled product, whose answer is numbers and not a kernel."""

    unit: str = ""
    kernel = staticmethod(matmul_kernel)

    def par(self):
        """Return the model answer's score, counted now."""
        return _product_score(TILES)[0]

    def problems(self):
        """Return the model answer's problem, for its picture."""
        return [_product_problem(**{name.lower(): value for name, value in TILES.items()})]


product = exercise("93.product", _check_tiles, TILES, seconds=40, kind=Tiles)


# --- quantized matrix times vector --------------------------------------------------------------
@triton.jit
def quantized_kernel(x, weight, scale, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        v = tl.load(x + offsets, mask=offsets < columns, other=0.0)
        mask = (row[:, None] < rows) & (offsets[None, :] < columns)
        w = tl.load(weight + row[:, None] * columns + offsets[None, :], mask=mask, other=0)
        total += tl.sum(w.to(tl.float32) * v[None, :], axis=1)
    tl.store(out + row, total * tl.load(scale + row, mask=row < rows), mask=row < rows)


def _quantized_problem(rows, columns, block):
    weight = torch.randint(-127, 128, (rows, columns), dtype=torch.int8)
    x, scale, out = torch.randn(columns), torch.rand(rows), blank(rows)
    values = [x, weight, scale, out, rows, columns, 16, block]
    words = f"{rows} rows of {columns}"
    expected = (weight.float() @ x) * scale
    return Problem(values, out, expected, -(-rows // 16), words, tolerance=1e-2)


quantized = puzzle(
    "93.quantized",
    quantized_kernel,
    lambda: [_quantized_problem(10, 70, 32), _quantized_problem(64, 512, 256)],
    lambda compiled, result, problem: result.useful() / problem.values[1].numel(),
)


# --- causal attention ---------------------------------------------------------------------------
@triton.jit
def attention_kernel(q, k, v, out, n, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    d = tl.arange(0, D)[None, :]
    queries = tl.load(q + rows * D + d, mask=rows < n, other=0.0)
    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BLOCK, BLOCK):
        others = start + tl.arange(0, BLOCK)[:, None]
        keys = tl.load(k + others * D + d, mask=others < n, other=0.0)
        values = tl.load(v + others * D + d, mask=others < n, other=0.0)
        scores = tl.dot(queries, keys.T) * scale
        scores = tl.where(others.T <= rows, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        alpha = tl.exp(row_max - new_max)
        weights = tl.exp(scores - new_max[:, None])
        row_sum = row_sum * alpha + tl.sum(weights, axis=1)
        acc = acc * alpha[:, None] + tl.dot(weights.to(values.dtype), values)
        row_max = new_max
    tl.store(out + rows * D + d, acc / row_sum[:, None], mask=rows < n)


def _attention_problem(n):
    q, k, v = (torch.randn(n, 32).half() for _ in "qkv")  # each with memory of its own
    out = blank(n, 32)
    values = [q, k, v, out, n, 32**-0.5, 32, 32]
    expected = F.scaled_dot_product_attention(
        *(each.float()[None] for each in (q, k, v)), is_causal=True
    )
    return Problem(values, out, expected[0], -(-n // 32), f"{n} words", tolerance=5e-3)


attention = puzzle(
    "93.attention",
    attention_kernel,
    lambda: [_attention_problem(50), _attention_problem(128)],
    asked,
    seconds=20,
)

PUZZLES = (
    add_ten,
    add_two,
    guard,
    outer,
    row_sums,
    double,
    histogram,
    convolve,
    online,
    product,
    quantized,
    attention,
)  # in the page's order


def scorecard():
    """Print the scores of this page's puzzles, and a line to share."""
    base.scorecard(PUZZLES)
