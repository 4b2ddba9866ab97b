"""Exercises and quiz of lesson 11, Write a kernel."""

import torch
from torch.nn import functional as F

from helpers.checks.core import (
    Exercise,
    NotAttempted,
    NotYet,
    Question,
    call,
    chosen,
    is_untouched,
)
from lessons.lesson11 import figures
from lessons.lesson11.fusion import compiled_kernels, race, traffic
from lessons.lesson11.missing import look_for_triton
from lessons.lesson11.tracer import tl, trace, triton

# The lesson calls them, too.
__all__ = ["compiled_kernels", "look_for_triton", "race", "trace", "traffic"]
NO_KERNEL = "expected a kernel: the name of a function under @triton.jit, without parentheses."


def _traced(answer, grid, *args, **options):
    """Return the `Trace` of the learner's kernel; raises `NotYet` where it touches something beside its tensors."""
    function = getattr(answer, "fn", answer)
    if not hasattr(function, "__code__"):
        raise NotYet(NO_KERNEL)
    if is_untouched(function):
        raise NotAttempted
    run = call(trace, answer, grid, *args, **options)
    for access in run.outside():
        verb = {"read": "reads", "write": "writes"}[access.kind]
        size = " × ".join(map(str, run.tensors[access.name].shape))
        raise NotYet(
            f"program {access.program[0]} {verb} beside `{access.name}`, which has {size} elements, at place "
            f"{access.outside[0]}. Is the mask of this {'load' if verb == 'reads' else 'store'} missing, or its address off?"
        )
    return run


def _judge_values(result, expected, n):
    """Raise `NotYet` where a kernel's result differs from PyTorch's, naming the first element that does."""
    wrong = (~torch.isclose(result, expected, rtol=1e-4, atol=1e-5)).nonzero()
    if len(wrong) == 0:
        return
    place = tuple(wrong[0].tolist())
    name = f"out[{', '.join(map(str, place))}]"
    value = result[place].item()
    finding = "was never written" if value == UNTOUCHED else f"is {value:.4g}"
    raise NotYet(f"with {n}, {name} {finding}, expected {expected[place].item():.4g}.")


def _judge_bytes(run, reads, writes):
    """Raise `NotYet` where a kernel read or wrote more bytes than `reads` and `writes`."""
    for kind, limit in (("read", reads), ("write", writes)):
        count = run.bytes(kind)
        if count > limit:
            raise NotYet(
                f"the result is right, but the kernel {kind}s {count} bytes where {limit} are enough. "
                "What does it touch twice?"
            )


UNTOUCHED = -77.0  # what the results hold before a kernel runs


def _blank(*shape):
    return torch.full(shape, UNTOUCHED)


# --- a mirror -----------------------------------------------------------------------------------
@triton.jit
def mirror_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    values = tl.load(x + places, mask=inside)
    tl.store(out + n - 1 - places, values, mask=inside)


def _check_mirror(answer):
    for n in (8, 10, 1, 33):
        x = torch.randn(n)
        run = _traced(answer, (-(-n // 8),), x, _blank(n), n, BLOCK=8)
        _judge_values(_result(run, 1), x.flip(0), f"n = {n}")
        _judge_bytes(run, 4 * n, 4 * n)
    return "right for 8, 10, 1 and 33 numbers, each read once and written once."


def _result(run, place):
    """Return the tensor that a kernel got as argument `place`."""
    return list(run.tensors.values())[place]


mirror = Exercise(
    key="11.mirror",
    title="a mirror",
    check_answer=_check_mirror,
    hints=(
        "Begin with `add_kernel` and take out what you don't need. Where does the first number of `x` end up? And the "
        "one at place p?",
        "Each program loads its block of `x` as before. The element at place p of `x` belongs at place `n - 1 - p` of "
        "`out`. Both the load and the store need the mask.",
        "With `places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` the last line is "
        "`tl.store(out + n - 1 - places, values, mask=places < n)`.",
    ),
    reference=mirror_kernel,
    explanation="The mask stays what it was, since it asks whether a place of x exists. Only the address that is written runs "
    "backwards. Without the mask, the last program would write in front of out.",
)


def draw_mirror(kernel):
    """Show which program of the learner's mirror touches what (until it passes, of the model answer's)."""
    x = torch.arange(10.0)
    run = trace(chosen(mirror, kernel), (3,), x, torch.empty(10), 10, BLOCK=4)
    figures.touched(run, "Reads from the left, writes from the right")


# --- a fused activation -------------------------------------------------------------------------
@triton.jit
def gated_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    g = tl.load(gate + places, mask=inside)
    u = tl.load(up + places, mask=inside)
    tl.store(out + places, g * tl.sigmoid(g) * u, mask=inside)


def _check_gated(answer):
    for n in (16, 21, 1, 100):
        gate = 3 * torch.randn(n)
        up = torch.randn(n)
        run = _traced(answer, (-(-n // 16),), gate, up, _blank(n), n, BLOCK=16)
        _judge_gated(_result(run, 2), gate, up, n)
        _judge_bytes(run, 8 * n, 4 * n)
    return "equal to PyTorch, and every number crosses the memory bus once: 12 bytes an element instead of 20."


def _judge_gated(result, gate, up, n):
    for mistaken, reason in (
        (torch.sigmoid(gate) * up, "That is sigmoid(gate) * up; silu(g) is g * sigmoid(g)."),
        (gate * F.silu(up), "You have swapped `gate` and `up`: silu belongs to `gate`."),
        (F.silu(gate), "That is silu(gate) alone: where is `up`?"),
    ):
        if torch.allclose(result, mistaken, rtol=1e-4, atol=1e-5):
            raise NotYet(reason)
    _judge_values(result, F.silu(gate) * up, f"n = {n}")


gated = Exercise(
    key="11.gated",
    title="a fused activation",
    check_answer=_check_gated,
    hints=(
        "Again `add_kernel`, with other arithmetic between the loads and the store.",
        "Load a block of `gate` and a block of `up`, each once. `silu(g)` is `g * sigmoid(g)`, and Triton has `tl.sigmoid`.",
        "`g = tl.load(gate + places, mask=inside)`, the same for `u` and `up`, then "
        "`tl.store(out + places, g * tl.sigmoid(g) * u, mask=inside)`.",
    ),
    reference=gated_kernel,
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


def _check_row_sums(answer):
    for rows, columns in ((3, 16), (4, 40), (5, 7), (1, 1)):
        x = torch.randn(rows, columns) + 1
        run = _traced(answer, (rows,), x, _blank(rows), columns, BLOCK=16)
        result = _result(run, 1)
        _judge_sums(result, x, rows, columns)
        _judge_bytes(run, 4 * rows * columns, 4 * rows)
    return "right for rows of 1, 7, 16 and 40 numbers with blocks of 16, each number read once."


def _judge_sums(result, x, rows, columns):
    if columns > 16 and torch.allclose(result, x[:, :16].sum(1), atol=1e-4):
        raise NotYet(
            f"only the first block of each row was added. A row of {columns} needs several blocks of 16: a loop."
        )
    if columns > 16 and torch.allclose(result, x[:, columns // 16 * 16 :].sum(1), atol=1e-4):
        raise NotYet(
            "only the last block of each row was added: what happens to the total in the loop?"
        )
    _judge_values(result, x.sum(1), f"{rows} rows of {columns}")


row_sums = Exercise(
    key="11.row_sums",
    title="row sums",
    check_answer=_check_row_sums,
    hints=(
        "`softmax_kernel` shows a program for each row, `matmul_kernel` a loop that adds up.",
        "Begin with `tl.zeros((BLOCK,), dtype=tl.float32)`. In the loop, add the next `BLOCK` numbers of the row; beyond its "
        "end, add zeros. After it, `tl.sum` makes one number of the block.",
        "`for start in range(0, columns, BLOCK): places = start + tl.arange(0, BLOCK)`, then `total += tl.load(x + row * "
        "columns + places, mask=places < columns, other=0.0)`.",
    ),
    reference=row_sums_kernel,
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
        "1,000 numbers, blocks of 256. How many programs, and how many lanes does the last one mask off?",
        {
            "3 programs, 232 lanes": "Three programs reach 768 numbers only.",
            "4 programs, 24 lanes": "Yes: 4 × 256 is 1,024, which is 24 too many.",
            "4 programs, 232 lanes": "The last program starts at 768 and has 232 numbers to do.",
        },
        right=1,
    ),
    Question(
        "11.when",
        "You want bias, GELU and dropout in one kernel. What do you try first?",
        {
            "Write it in Triton": "You can, but somebody may have done it for you.",
            "Write it in CUDA C++": "That is more work still, for memory traffic that is the same.",
            "torch.compile": "Yes: point-wise operations in a row are what it fuses best. Then measure.",
        },
        right=2,
    ),
)
