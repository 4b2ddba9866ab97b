"""Exercises and quiz of lesson 11, Write a kernel."""

import math

import torch

from course.checks.core import Question
from course.checks.puzzle import Problem, blank, puzzle
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
    "fused softmax",
    lambda: [
        _softmax_problem(*sizes) for sizes in ((4, 10, 16, 0), (3, 7, 8, 100), (4, 1024, 1024, 0))
    ],
    asked,
    "bytes loaded and stored per element",
    mistakes=_softmax_mistakes,
    hints=(
        "A program loads its row once. Where does row `row` begin, and what does `tl.load` put where the mask is false?",
        "`x + row * columns + offsets` are the addresses. Minus infinity is never the maximum, and its exponential is 0: "
        '`other=-float("inf")`.',
        "`numerator = tl.exp(values - tl.max(values, axis=0))`; divide it by `tl.sum(numerator, axis=0)`, and store it at "
        "`out + row * columns + offsets` with the same mask.",
    ),
    reference=softmax_kernel,
    tool="softmax_kernel",
    explanation="One load and one store: 8 bytes per element, the least there is. Between them the row stays on the chip.",
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
    "tiled product",
    lambda: [_product_problem(50, 16), _product_problem(64, 16)],
    asked,
    "bytes loaded and stored per element",
    mistakes=_product_mistakes,
    hints=(
        "Element (k, c) of `b` has the address `b + k * n + c`. Which of the two is a column, and which a row?",
        "`right` is a square of `b + k[:, None] * n + columns`. Where does it end, if 16 doesn't divide n? Beyond the end, a "
        "0 changes no sum.",
        "`right = tl.load(b + k[:, None] * n + columns, mask=(k[:, None] < n) & (columns < n), other=0.0)`, then "
        "`acc = tl.dot(left, right, acc)`.",
    ),
    reference=matmul_kernel,
    tool="matmul_kernel",
    explanation="Each step brings in two tiles of 16 × 16 and uses every number in them 16 times. `acc` never leaves the chip "
    "until the walk is over.",
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
    "flash attention",
    lambda: [_attention_problem(50), _attention_problem(128)],
    _executed,
    "PTX instructions per score",
    mistakes=_attention_mistakes,
    hints=(
        "The lines of the loop above, for BLOCK rows at once: a maximum along axis 1, a factor, a sum. `[:, None]` "
        "makes a column of them, beside a tile. A key past the end needs a score of minus infinity.",
        '`scores = tl.where(others.T < n, scores, -float("inf"))`, then '
        "`new_max = tl.maximum(row_max, tl.max(scores, axis=1))`, `alpha = tl.exp(row_max - new_max)`, and "
        "`weights = tl.exp(scores - new_max[:, None])`. `row_sum` and `acc` are multiplied by `alpha` before they grow.",
        "`row_sum = row_sum * alpha + tl.sum(weights, axis=1)`, `acc = acc * alpha[:, None] + "
        "tl.dot(weights.to(values.dtype), values)`, `row_max = new_max`.",
    ),
    reference=attention_kernel,
    tool="attention_kernel",
    explanation="Every step leaves behind what the softmax of the keys so far would give, up to the division by `row_sum`, "
    "which waits until the end. No score is ever stored. Under par: with `scale * 1.4427` in place of `scale` and `tl.exp2` "
    "in place of `tl.exp`, a multiplication per score is gone.",
    unlocked="You've written the heart of FlashAttention.",
    seconds=20,
)


QUIZ = (
    Question(
        "11.bytes",
        "Your fused softmax takes 44 µs for 67 MB of float32, on a card of 2,039 GB/s. What could halve that?",
        {
            "Inputs and outputs in bfloat16": "Yes: it reaches 1,520 GB/s, 75% of the bandwidth. Only fewer bytes help.",
            "A faster exp": "It waits for memory, so arithmetic is free.",
            "More programs": "2,048 programs keep every SM busy. They share one memory.",
        },
        right=0,
    ),
    Question(
        "11.mask",
        "1,000 numbers, blocks of 256. How many programs, and how many elements does the last one mask out?",
        {
            "3 programs, 232 elements": "Three programs reach 768 numbers only.",
            "4 programs, 24 elements": "Yes: 4 × 256 is 1,024, which is 24 too many.",
            "4 programs, 232 elements": "The last program starts at 768 and has 232 numbers to do.",
        },
        right=1,
    ),
    Question(
        "11.alpha",
        "A flash kernel forgets to rescale acc and row_sum. Which rows still come out right?",
        {
            "None": "Where no maximum grows after the first tile, `alpha` is 1 from then on.",
            "Those whose scores are all positive": "What counts is whether the maximum grows, not its sign.",
            "Those whose largest score is in the first tile": "Yes: `alpha` is 1 from then on. So test with several tiles.",
        },
        right=2,
    ),
)
