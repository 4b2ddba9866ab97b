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


def _softmax_mistakes(problem):
    x, _, columns, block = problem.values
    yield (
        torch.full_like(x, math.nan),
        "that is nan: `exp` overflows unless the maximum is subtracted first.",
    )
    first = "each program took row 0: row r begins at `x + r * columns`."
    yield x[:1].softmax(1).expand_as(x), first
    padded = torch.nn.functional.pad(x, (0, block - columns)).softmax(1)
    beyond = (
        "the sum counts the elements that are masked out: which `other` has an exponential of 0?"
    )
    yield padded[:, :columns], beyond
    yield x.exp(), "where is the division? The numbers of a row have to add up to 1."


softmax = puzzle(
    "11.softmax",
    softmax_kernel,
    lambda: [
        _softmax_problem(*sizes) for sizes in ((4, 10, 16, 0), (3, 7, 8, 100), (4, 1024, 1024, 0))
    ],
    asked,
    mistakes=_softmax_mistakes,
    tool="softmax_kernel",
)


# --- a tiled product ----------------------------------------------------------------------------
def _product_problem(n, tile):
    a, b, c = torch.randn(n, n).half(), torch.randn(n, n).half(), blank(n, n)
    side, options = -(-n // tile), {"aligned": n % 16 == 0}
    expected = a.float() @ b.float()
    values = [a, b, c, n, tile]
    return Problem(values, c, expected, (side, side), f"n = {n}", options=options, tolerance=5e-3)


def _product_mistakes(problem):
    a, b, _, n, tile = problem.values
    a, b, last = a.float(), b.float(), (n - 1) // tile * tile
    yield torch.zeros(n, n), "every result is 0: nothing was added to `acc`."
    only = "only the {} tiles count: each step has to add its product to `acc`."
    yield a[:, :tile] @ b[:tile], only.format("first")
    yield a[:, last:] @ b[last:], only.format("last")
    yield (
        a @ b.T,
        "that is a @ b.T: in the addresses of `b`, `k` is a column and `columns` a row.",
    )


product = puzzle(
    "11.product",
    matmul_kernel,
    lambda: [_product_problem(50, 16), _product_problem(64, 16)],
    asked,
    mistakes=_product_mistakes,
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


def _attention_mistakes(problem):
    q, k, v, _, n, scale, _, block = problem.values
    scores, v = q.float() @ k.float().T * scale, v.float()
    beyond = torch.nn.functional.pad(scores, (0, -n % block)).softmax(1)[:, :n]
    yield beyond @ v, "keys past the end have a weight: which score has an exponential of 0?"
    last = slice((n - 1) // block * block, n)
    why = "only the last tile of keys counts: what is `row_max` in the next step?"
    yield scores[:, last].softmax(1) @ v[last], why
    maxima = torch.stack([each.amax(1) for each in scores.split(block, 1)]).cummax(0).values
    powers = [
        (each - top[:, None]).exp()
        for each, top in zip(scores.split(block, 1), maxima, strict=True)
    ]
    whole = (scores - maxima[-1][:, None]).exp()
    stale_sum = sum(each.sum(1) for each in powers)[:, None]
    stale_acc = sum(each @ part for each, part in zip(powers, v.split(block), strict=True))
    both = "when the maximum grows, `row_sum` and `acc` both have to shrink by the same factor."
    yield stale_acc / stale_sum, both
    yield (
        stale_acc / whole.sum(1)[:, None],
        "`acc` has to shrink by the factor that `row_sum` shrinks by.",
    )
    yield whole @ v / stale_sum, "`row_sum` has to shrink by the factor that `acc` shrinks by."


attention = puzzle(
    "11.attention",
    attention_kernel,
    lambda: [_attention_problem(50), _attention_problem(128)],
    _executed,
    mistakes=_attention_mistakes,
    tool="attention_kernel",
    seconds=20,
)


QUIZ = quiz("11")
