"""The kernels of lesson 11 as the page has them: softmax, a tiled product, attention. Lesson 12 and tests use them, too."""

from lessons.lesson93.puzzle import tl, triton


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    a = tl.load(x + places, mask=inside)
    b = tl.load(y + places, mask=inside)
    tl.store(out + places, a + b, mask=inside)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    values = tl.load(x + row * columns + places, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    shares = powers / tl.sum(powers, axis=0)
    tl.store(out + row * columns + places, shares, mask=inside)


@triton.jit
def matmul_kernel(a, b, c, n, TILE: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, n, TILE):
        k = start + tl.arange(0, TILE)
        in_a = (rows < n) & (k[None, :] < n)
        in_b = (k[:, None] < n) & (columns < n)
        left = tl.load(a + rows * n + k[None, :], mask=in_a, other=0.0)
        right = tl.load(b + k[:, None] * n + columns, mask=in_b, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(c + rows * n + columns, total, mask=(rows < n) & (columns < n))


@triton.jit
def attention_kernel(q, k, v, out, n, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    d = tl.arange(0, D)[None, :]
    mine = tl.load(q + rows * D + d, mask=rows < n, other=0.0)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    sums = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, n, BLOCK):
        others = start + tl.arange(0, BLOCK)[:, None]
        keys = tl.load(k + others * D + d, mask=others < n, other=0.0)
        values = tl.load(v + others * D + d, mask=others < n, other=0.0)
        scores = tl.where(others.T < n, tl.dot(mine, keys.T) * scale, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp(largest - new)
        powers = tl.exp(scores - new[:, None])
        total = total * shrink + tl.sum(powers, axis=1)
        sums = sums * shrink[:, None] + tl.dot(powers.to(values.dtype), values)
        largest = new
    tl.store(out + rows * D + d, sums / total[:, None], mask=rows < n)


def attend(q, k, v):
    """Return attention as separate operations of PyTorch."""
    return (q @ k.T * q.shape[1] ** -0.5).softmax(1) @ v
