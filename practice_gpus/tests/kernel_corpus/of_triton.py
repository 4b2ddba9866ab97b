"""Triton kernels: elementwise, reductions, scans, products, attention."""

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from kernel_corpus import Case, case


def cdiv(n, d):
    return -(-n // d)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@case
def add_bfloat16():
    x, y = torch.randn(2, 4096).bfloat16()
    out = torch.empty_like(x)
    return Case(add, [x, y, out, 4096], out, x + y, (4,), constants={"BLOCK": 1024}, tolerance=0)


@case
def add_int64():
    x, y = torch.randint(-(2**62), 2**62, (2, 777))
    out = torch.empty_like(x)
    return Case(add, [x, y, out, 777], out, x + y, (7,), constants={"BLOCK": 128}, tolerance=0)


@triton.jit
def gated(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < n).to(tl.float32)
    u = tl.load(up + at, mask=at < n).to(tl.float32)
    tl.store(out + at, g * tl.sigmoid(g) * u, mask=at < n)


@case
def gated_half():
    g, u = torch.randn(2, 3000).half()
    out = torch.empty_like(g)
    expected = (F.silu(g.float()) * u.float()).half()
    return Case(
        gated, [g, u, out, 3000], out, expected, (6,), constants={"BLOCK": 512}, tolerance=2e-3
    )


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)), mask=at < n)


@case
def gelu_with_erf():
    x, out = 3 * torch.randn(1500), torch.empty(1500)
    return Case(gelu, [x, out, 1500], out, F.gelu(x), (3,), constants={"BLOCK": 512})


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


def _softmax(rows, columns, **options):
    x, out = torch.randn(rows, columns), torch.empty(rows, columns)
    block = {"BLOCK": 1 << (columns - 1).bit_length()}
    expected = x.softmax(1)
    return Case(
        softmax, [x, out, columns], out, expected, (rows,), constants=block, options=options
    )


@case
def softmax_of_781():
    return _softmax(5, 781)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(v, axis=0) / columns
    centered = tl.where(inside, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centered * centered, axis=0) / columns + eps)
    w = tl.load(weight + at, mask=inside)
    b = tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, centered * scale * w + b, mask=inside)


@case
def layer_norm_of_300():
    x, out = torch.randn(6, 300), torch.empty(6, 300)
    w, b = torch.randn(2, 300)
    expected = F.layer_norm(x, (300,), w, b, 1e-5)
    return Case(
        layer_norm, [x, w, b, out, 300, 1e-5], out, expected, (6,), constants={"BLOCK": 512}
    )


@triton.jit
def running_sum(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, tl.cumsum(v, axis=0), mask=at < n)


@case
def scan():
    x, out = torch.randn(1000), torch.empty(1000)
    return Case(running_sum, [x, out, 1000], out, x.cumsum(0), (1,), constants={"BLOCK": 1024})


@triton.jit
def counts(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(out + v, 1, mask=at < n)


@case
def histogram_by_atomics():
    x, out = torch.randint(0, 16, (3000,), dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    expected = torch.bincount(x, minlength=16).int()
    return Case(counts, [x, out, 3000], out, expected, (6,), constants={"BLOCK": 512}, tolerance=0)


@triton.jit
def counts_of_block(x, out, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(out + tl.arange(0, BINS), tl.histogram(v, BINS, mask=at < n))


@case
def histogram_of_blocks():
    x, out = torch.randint(0, 32, (2048,), dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    constants = {"BLOCK": 512, "BINS": 32}
    expected = torch.bincount(x, minlength=32).int()
    return Case(
        counts_of_block, [x, out, 2048], out, expected, (4,), constants=constants, tolerance=0
    )


@triton.jit
def matmul(a, b, c, m, n, k, TILE: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), dtype=c.dtype.element_ty)
    for start in range(0, k, TILE):
        at = start + tl.arange(0, TILE)
        left = tl.load(a + rows * k + at[None, :], mask=(rows < m) & (at[None, :] < k), other=0)
        right = tl.load(
            b + at[:, None] * n + columns, mask=(at[:, None] < k) & (columns < n), other=0
        )
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
    tl.store(c + rows * n + columns, total, mask=(rows < m) & (columns < n))


def _matmul(m, n, k, dtype, tile=32, precision="ieee", tolerance=1e-3, **options):
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    out = torch.empty(m, n)
    expected = a.float() @ b.float()
    constants = {"TILE": tile, "PRECISION": precision}
    grid = (cdiv(m, tile), cdiv(n, tile))
    return Case(
        matmul, [a, b, out, m, n, k], out, expected, grid, None, constants, options, tolerance
    )


@case
def product_half():
    return _matmul(64, 64, 64, torch.float16)


@case
def product_half_odd():
    return _matmul(50, 70, 33, torch.float16)


@case
def product_bfloat16():
    return _matmul(64, 96, 80, torch.bfloat16, num_warps=8)


@case
def product_float32():
    return _matmul(32, 32, 32, torch.float32)


@case
def product_three_tf32():
    return _matmul(64, 64, 64, torch.float32, precision="tf32x3")


@case
def product_int8():
    a, b = (torch.randint(-9, 9, (64, 64), dtype=torch.int8) for _ in range(2))
    out = torch.empty(64, 64, dtype=torch.int32)
    constants = {"TILE": 32, "PRECISION": "ieee"}
    expected = a.int() @ b.int()
    return Case(matmul, [a, b, out, 64, 64, 64], out, expected, (2, 2), None, constants, None, 0)


@triton.jit
def attention(q, k, v, out, n, scale, D: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, D)
    head = tl.program_id(1) * n * D
    mine = tl.load(q + head + rows[:, None] * D + d[None, :], mask=rows[:, None] < n, other=0.0)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, n, STEP):
        at = start + tl.arange(0, STEP)
        keys = tl.load(k + head + at[None, :] * D + d[:, None], mask=at[None, :] < n, other=0.0)
        scores = tl.dot(mine, keys) * scale
        scores = tl.where((at[None, :] < n) & (at[None, :] <= rows[:, None]), scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.exp(top - new)
        p = tl.exp(scores - new[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        values = tl.load(v + head + at[:, None] * D + d[None, :], mask=at[:, None] < n, other=0.0)
        sums = tl.dot(p.to(values.dtype), values, sums * shrink[:, None])
        top = new
    where = out + head + rows[:, None] * D + d[None, :]
    tl.store(where, sums / total[:, None], mask=rows[:, None] < n)


@case
def flash_attention():
    q, k, v = torch.randn(3, 2, 100, 32).half()
    out = torch.empty(2, 100, 32)
    expected = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    constants = {"D": 32, "ROWS": 32, "STEP": 32}
    arguments = [q, k, v, out, 100, 32**-0.5]
    return Case(attention, arguments, out, expected, (4, 2), constants=constants, tolerance=2e-3)


@triton.jit
def quantized(x, weight, scale, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    w = tl.load(weight + row * columns + at, mask=at < columns, other=0).to(tl.float32)
    v = tl.load(x + at, mask=at < columns, other=0.0)
    tl.store(out + row, tl.sum(w * v, axis=0) * tl.load(scale + row))


@case
def quantized_matrix_times_vector():
    w, x, s = (
        torch.randint(-128, 127, (40, 500), dtype=torch.int8),
        torch.randn(500),
        torch.rand(40),
    )
    out = torch.empty(40)
    expected = (w.float() * s[:, None]) @ x
    return Case(
        quantized,
        [x, w, s, out, 500],
        out,
        expected,
        (40,),
        constants={"BLOCK": 512},
        tolerance=1e-2,
    )


@triton.jit
def in_order(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@case
def sort():
    x, out = torch.randn(256), torch.empty(256)
    return Case(
        in_order, [x, out], out, x.sort().values, (1,), constants={"BLOCK": 256}, tolerance=0
    )
