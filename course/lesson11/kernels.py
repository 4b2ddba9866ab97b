"""The Triton kernels of lesson 11: softmax, a tiled product, attention. Lesson 12, the puzzles and tests use them, too."""

from course.checks.puzzle import tl, triton


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask)
    b = tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, a + b, mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out + row * columns + offsets, result, mask=mask)


@triton.jit
def matmul_kernel(a, b, c, n, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    acc = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, n, TILE):
        k = start + tl.arange(0, TILE)
        mask = (rows < n) & (k[None, :] < n)
        left = tl.load(a + rows * n + k[None, :], mask=mask, other=0.0)
        mask_b = (k[:, None] < n) & (columns < n)
        right = tl.load(b + k[:, None] * n + columns, mask=mask_b, other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + rows * n + columns, acc, mask=(rows < n) & (columns < n))


@triton.jit
def attention_kernel(q, k, v, out, n, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    d = tl.arange(0, D)[None, :]
    queries = tl.load(q + rows * D + d, mask=rows < n, other=0.0)
    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, n, BLOCK):
        others = start + tl.arange(0, BLOCK)[:, None]
        keys = tl.load(k + others * D + d, mask=others < n, other=0.0)
        values = tl.load(v + others * D + d, mask=others < n, other=0.0)
        scores = tl.dot(queries, keys.T) * scale
        scores = tl.where(others.T < n, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        alpha = tl.exp(row_max - new_max)
        weights = tl.exp(scores - new_max[:, None])
        row_sum = row_sum * alpha + tl.sum(weights, axis=1)
        acc = acc * alpha[:, None] + tl.dot(weights.to(values.dtype), values)
        row_max = new_max
    tl.store(out + rows * D + d, acc / row_sum[:, None], mask=rows < n)


def attend(q, k, v):
    """Return attention as separate operations of PyTorch."""
    return (q @ k.T * q.shape[1] ** -0.5).softmax(1) @ v
