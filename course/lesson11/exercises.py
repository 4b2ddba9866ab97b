"""Exercises and quiz of lesson 11, Write a kernel."""

import math

import torch

from course.checks.puzzle import Problem, blank, puzzle
from course.checks.words import quiz
from course.lesson11.inductor import written_for_cuda
from course.lesson11.kernels import attend, attention_kernel, matmul_kernel, softmax_kernel
from course.lesson11.race import race
from course.lesson11.traffic import total, trace, traffic

# The lesson calls them, too.
__all__ = ["race", "total", "trace", "traffic", "written_for_cuda"]


def asked(compiled, result, problem):
    """Return the bytes that the kernel loads and stores, for each element of the result."""
    return result.useful() / problem.out.numel()


# --- a fused softmax ----------------------------------------------------------------------------
def _softmax_problem(rows, columns, block, shift):
    x, out = torch.randn(rows, columns) + shift, blank(rows, columns)
    words = f"{rows} rows of {columns}"
    values = [x, out, columns, block]
    return Problem(values, out, x.softmax(1), rows, words, options={"aligned": columns > 100})


softmax = puzzle(
    "11.softmax",
    softmax_kernel,
    lambda: [
        _softmax_problem(*sizes) for sizes in ((4, 10, 16, 0), (3, 7, 8, 100), (4, 1024, 1024, 0))
    ],
    asked,
    tool="softmax_kernel",
)


# --- a tiled product ----------------------------------------------------------------------------
def _product_problem(n, tile):
    a, b, c = torch.randn(n, n).half(), torch.randn(n, n).half(), blank(n, n)
    side, options = -(-n // tile), {"aligned": n % 16 == 0}
    expected = a.float() @ b.float()
    values = [a, b, c, n, tile]
    return Problem(values, c, expected, (side, side), f"n = {n}", options=options, tolerance=5e-3)


product = puzzle(
    "11.product",
    matmul_kernel,
    lambda: [_product_problem(50, 16), _product_problem(64, 16)],
    asked,
    tool="matmul_kernel",
    seconds=20,
)


# --- flash attention ----------------------------------------------------------------------------
def _attention_problem(n):
    q, k, v = (torch.randn(n, 32).half() for _ in "qkv")  # each with memory of its own
    out = blank(n, 32, dtype=torch.half)
    values = [q, k, v, out, n, 32**-0.5, 32, 32]
    expected = attend(q.float(), k.float(), v.float())
    return Problem(values, out, expected, -(-n // 32), f"{n} tokens", tolerance=5e-3)


def _executed(compiled, result, problem):
    """Return the PTX instructions that threads execute, for each score of the n × n."""
    return 32 * sum(result.instructions.values()) / problem.values[4] ** 2


def _flash(q, k, v, scale, block, shrinks):
    """Flash attention in tiles; of "sum" and "acc", only what is in `shrinks` shrinks when the maximum grows."""
    top, total, acc = torch.full((len(q), 1), -math.inf), 0, 0
    for keys, values in zip(k.float().split(block), v.float().split(block)):
        scores = q.float() @ keys.T * scale
        new_top = torch.maximum(top, scores.amax(1, keepdim=True))
        alpha, weights = (top - new_top).exp(), (scores - new_top).exp()
        total = total * (alpha if "sum" in shrinks else 1) + weights.sum(1, keepdim=True)
        acc = acc * (alpha if "acc" in shrinks else 1) + weights @ values
        top = new_top
    return acc / total


attention = puzzle(
    "11.attention",
    attention_kernel,
    lambda: [_attention_problem(50), _attention_problem(128)],
    _executed,
    tool="attention_kernel",
    seconds=20,
)


QUIZ = quiz("11")
