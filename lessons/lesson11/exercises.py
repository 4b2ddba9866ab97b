"""Exercises and quiz of lesson 11, Write a kernel."""

import torch
from torch.nn import functional as F

from helpers.checks.core import Question
from lessons.lesson11.inductor import written_for_cuda
from lessons.lesson11.trace import trace, traffic
from lessons.lesson93.puzzle import Problem, blank, puzzle, tl, triton

# The lesson calls them, too.
__all__ = ["trace", "traffic", "written_for_cuda"]


def asked(compiled, result, problem):
    """Return the bytes that the kernel loads and stores, for each element of its first tensor."""
    return result.useful() / problem.values[0].numel()


def _vectors(make):
    """Return problems of 10 and 33 elements in blocks of 8, and of 4,096 in blocks of 1,024."""
    small = {"aligned": False}
    return [
        make(n, block, small if block == 8 else {}) for n, block in ((10, 8), (33, 8), (4096, 1024))
    ]


def tensor_cores(kernel):
    """Print the tensor-core instructions that the attention kernel, with D and BLOCK of 64, becomes on four cards."""
    from practice_gpus import kernels

    pointers = dict.fromkeys("qkv", "*fp16") | {"out": "*fp32"}
    values = pointers | {"n": "i32", "scale": "fp32", "D": 64, "BLOCK": 64}
    for card in ("T4", "A100", "H100", "B200"):
        found = kernels.compile(kernel, values, card).tensor_cores
        print(f"{card:5}", *[f"{count} {name}" for name, count in found.items()] or ["none"])


# --- a mirror -----------------------------------------------------------------------------------
@triton.jit
def mirror_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    values = tl.load(x + places, mask=inside)
    tl.store(out + n - 1 - places, values, mask=inside)


def _mirror_problem(n, block, options):
    x, out = torch.randn(n), blank(n)
    return Problem([x, out, n, block], out, x.flip(0), -(-n // block), f"n = {n}", options=options)


mirror = puzzle(
    "11.mirror",
    "a mirror",
    lambda: _vectors(_mirror_problem),
    asked,
    "bytes loaded and stored per element",
    mistakes=lambda problem: [
        (
            problem.values[0],
            "that is x as it was: which place of `out` gets the element at place p?",
        )
    ],
    hints=(
        "Begin with `add_kernel` and take out what you don't need. Where does the first number of `x` end up? And the "
        "one at place p?",
        "Each program loads its block of `x` as before. The element at place p of `x` belongs at place `n - 1 - p` of "
        "`out`. Both the load and the store need the mask.",
        "With `places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` the last line is "
        "`tl.store(out + n - 1 - places, values, mask=places < n)`.",
    ),
    reference=mirror_kernel,
    tool="mirror_kernel",
    explanation="The mask stays what it was, because it says whether a place of x exists. Only the address that is written "
    "runs backwards. Without the mask, the last program would write in front of out.",
)


# --- a fused activation -------------------------------------------------------------------------
@triton.jit
def gated_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    g = tl.load(gate + places, mask=inside)
    u = tl.load(up + places, mask=inside)
    tl.store(out + places, g * tl.sigmoid(g) * u, mask=inside)


def _gated_problem(n, block, options):
    gate, up, out = 3 * torch.randn(n), torch.randn(n), blank(n)
    values = [gate, up, out, n, block]
    return Problem(values, out, F.silu(gate) * up, -(-n // block), f"n = {n}", options=options)


def _gated_mistakes(problem):
    gate, up = problem.values[:2]
    yield torch.sigmoid(gate) * up, "that is sigmoid(gate) * up; silu(g) is g * sigmoid(g)."
    yield gate * F.silu(up), "you have swapped `gate` and `up`: silu belongs to `gate`."
    yield F.silu(gate), "that is silu(gate) alone: where is `up`?"


gated = puzzle(
    "11.gated",
    "a fused activation",
    lambda: _vectors(_gated_problem),
    asked,
    "bytes loaded and stored per element",
    mistakes=_gated_mistakes,
    hints=(
        "Again `add_kernel`, with other arithmetic between the loads and the store.",
        "Load a block of `gate` and a block of `up`, each once. `silu(g)` is `g * sigmoid(g)`, and Triton has `tl.sigmoid`.",
        "`g = tl.load(gate + places, mask=inside)`, the same for `u` and `up`, then "
        "`tl.store(out + places, g * tl.sigmoid(g) * u, mask=inside)`.",
    ),
    reference=gated_kernel,
    tool="gated_kernel",
    explanation="PyTorch's silu writes its result to memory, and the product reads it again. Here it never leaves the chip: two "
    "loads, one store.",
)


# --- row sums -----------------------------------------------------------------------------------
@triton.jit
def row_sums_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        places = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + places, mask=places < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


def _row_sums_problem(rows, columns, block):
    x, out = torch.randn(rows, columns) + 1, blank(rows)
    words, options = f"{rows} rows of {columns}", {"aligned": columns > 100}
    values = [x, out, columns, block]
    return Problem(values, out, x.sum(1), rows, words, options=options, tolerance=1e-3)


def _row_sums_mistakes(problem):
    x, _, columns, block = problem.values
    if columns > block:
        first = f"only the first block of each row was added. A row of {columns} needs several blocks of {block}: a loop."
        yield x[:, :block].sum(1), first
        last = "only the last block of each row was added: what happens to the total in the loop?"
        yield x[:, (columns - 1) // block * block :].sum(1), last


row_sums = puzzle(
    "11.row_sums",
    "row sums",
    lambda: [_row_sums_problem(*sizes) for sizes in ((5, 7, 16), (4, 40, 16), (3, 1024, 256))],
    asked,
    "bytes loaded and stored per element",
    mistakes=_row_sums_mistakes,
    hints=(
        "`softmax_kernel` shows a program for each row, `matmul_kernel` a loop that adds up.",
        "Begin with `tl.zeros((BLOCK,), dtype=tl.float32)`. In the loop, add the next `BLOCK` numbers of the row; beyond its "
        "end, add zeros. After it, `tl.sum` makes one number of the block.",
        "`for start in range(0, columns, BLOCK): places = start + tl.arange(0, BLOCK)`, then `total += tl.load(x + row * "
        "columns + places, mask=places < columns, other=0.0)`.",
    ),
    reference=row_sums_kernel,
    tool="row_sums_kernel",
    explanation="The program walks along its row, a block at a time, and keeps its total on the chip. The zeros beyond the end "
    "change no sum. At the end there is one store, of a single number.",
)


QUIZ = (
    Question(
        "11.fuse",
        "Why is a fused softmax faster than separate operations on a GPU?",
        {
            "It reads and writes less memory": "Yes: what lies between the steps never leaves the chip.",
            "It computes less": "It computes the same exponentials and sums.",
            "It uses more programs": "The number of programs says little about the time.",
        },
        right=0,
    ),
    Question(
        "11.mask",
        "1,000 numbers, blocks of 256. How many programs, and how many elements does the last one mask off?",
        {
            "3 programs, 232 elements": "Three programs reach 768 numbers only.",
            "4 programs, 24 elements": "Yes: 4 × 256 is 1,024, which is 24 too many.",
            "4 programs, 232 elements": "The last program starts at 768 and has 232 numbers to do.",
        },
        right=1,
    ),
    Question(
        "11.when",
        "You want bias, GELU and dropout in one kernel. What do you try first?",
        {
            "Write it in CUDA C++": "That is the most work, for the same memory traffic.",
            "Write it in Triton": "You can, but somebody may have done it for you.",
            "torch.compile": "Yes: pointwise operations in a row are what it fuses best. Then measure.",
        },
        right=2,
    ),
)
