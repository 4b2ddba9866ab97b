"""Exercises and quiz of lesson 12, Look inside a kernel; and its kernels in CUDA C."""

import re

import torch

from course.checks.core import Question
from course.checks.puzzle import UNTOUCHED, Problem, blank, puzzle
from course.lesson11.kernels import matmul_kernel

# --- transpose ----------------------------------------------------------------------------------
TRANSPOSE = """
extern "C" __global__ void transpose(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x;
  int r = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (r + i < rows && c < columns)
      tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * columns + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x;
  r = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (r + i < columns && c < rows)
      out[(r + i) * rows + c] = tile[threadIdx.x][threadIdx.y + i];
}
"""


def _transpose_problems():
    found = []
    for rows, columns in ((45, 70), (64, 96)):
        x, out = torch.randn(rows, columns), blank(columns, rows)
        grid = (-(-columns // 32), -(-rows // 32))
        words = f"{rows} rows of {columns}"
        found.append(Problem([x, out, rows, columns], out, x.T, grid, words, (32, 8)))
    return found


def _transpose_mistakes(problem):
    x, out, rows, columns = problem.values
    yield x.reshape(columns, rows), "that is x, unchanged: a row of `out` has `rows` elements."
    left = (torch.arange(columns) % 32 < 8)[:, None]
    above = (torch.arange(rows) % 32 < 8)[None]
    once = torch.where(left, torch.where(above, x.T, 0.0), UNTOUCHED)
    yield once, "only 8 of every 32 rows were moved: 32 × 8 threads take four steps for a tile."


def _transpose_score(compiled, result, problem):
    """Sectors loaded and stored, plus bank conflicts, for 32 elements."""
    return (result.moved() / 32 + result.bank_conflicts) / (len(problem.out.flatten()) / 32)


transpose = puzzle(
    "12.transpose",
    "transpose",
    _transpose_problems,
    _transpose_score,
    "sectors plus bank conflicts, per 32 elements",
    mistakes=_transpose_mistakes,
    hints=(
        "A barrier, then new `c` and `r`, as in the square version. Where in `out` does the tile of block (x, y) belong?",
        "In block (x, y), the tile's top left element in `out` is row `blockIdx.x * 32`, column `blockIdx.y * 32`. A row of "
        "`out` has `rows` elements. And one column too many in the tile moves each row one bank on.",
        "After `__syncthreads()`: `c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;`, then "
        "`out[(r + i) * rows + c] = tile[threadIdx.x][threadIdx.y + i]` where `r + i < columns && c < rows`.",
    ),
    reference=TRANSPOSE,
    tool="transpose",
    source=f'transpose = """{TRANSPOSE}"""',
    explanation="Both global accesses run along rows, so each request is 4 sectors; the turn happens in shared memory, where a "
    "column of 33-element rows lies in 32 different banks.",
)


# --- share a tile -------------------------------------------------------------------------------
MATMUL = """
extern "C" __global__ void matmul(const float* a, const float* b, float* out, int n) {
  __shared__ float left[32][32], right[32][32];
  int column = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0;
  for (int start = 0; start < n; start += 32) {
    left[threadIdx.y][threadIdx.x] = a[row * n + start + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < 32; k++)
      sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  out[row * n + column] = sum;
}
"""


def _matmul_problems():
    found = []
    for n in (32, 64):
        a, b, out = torch.randn(n, n), torch.randn(n, n), blank(n, n)
        grid = (n // 32, n // 32)
        found.append(Problem([a, b, out, n], out, a @ b, grid, f"n = {n}", (32, 32)))
    return found


def _matmul_mistakes(problem):
    a, b, _, n = problem.values
    turned = a.view(n // 32, 32, n // 32, 32).transpose(1, 3).reshape(n, n)
    yield (
        turned @ b,
        "`left` is read by columns: this thread's row of `a` is `left[threadIdx.y][k]`.",
    )
    yield a[:, -32:] @ b[-32:], "only the last pair of tiles counts: `sum` has to keep growing."
    down = b.view(n // 32, 32, n)[:, :1].expand(-1, 32, -1).reshape(n, n)
    yield (
        a @ down,
        "each row of `right` holds the same numbers: its row in `b` is `start + threadIdx.y`.",
    )
    yield torch.zeros(n, n), "every result is 0: nothing was added to `sum`."


def loads_per_ffma(result, multiply_adds):
    """Return the load instructions of warps, from global and shared memory, for each of so many multiply-adds of warps."""
    return sum(each.requests for each in result.accesses if each.kind == "load") / multiply_adds


def _matmul_score(compiled, result, problem):
    """Sectors of global memory that loads touch, for each multiply-add of a warp."""
    return result.moved("load") / 32 / (problem.values[-1] ** 3 / 32)


matmul = puzzle(
    "12.matmul",
    "a product through shared memory",
    _matmul_problems,
    _matmul_score,
    "sectors loaded from global memory per FFMA",
    mistakes=_matmul_mistakes,
    hints=(
        "A thread brings one number into each tile. In `right`, too, a warp should fill a row with 32 neighbors.",
        "`right[threadIdx.y][threadIdx.x]` takes row `start + threadIdx.y` of `b`, in this thread's column. Who may use the "
        "tiles before they're complete, and who may still need them when the next ones come?",
        "After the loads, `__syncthreads();`, then `for (int k = 0; k < 32; k++) sum += left[threadIdx.y][k] * "
        "right[k][threadIdx.x];`, then `__syncthreads();` once more.",
    ),
    reference=MATMUL,
    tool="matmul",
    source=f'matmul = """{MATMUL}"""',
    explanation="For each pair of tiles, a warp loads 8 sectors and does 32 multiply-adds: 0.25 sectors each. No bank "
    "conflicts: in `left`, all lanes read the same word; in `right`, 32 neighbors.",
    seconds=20,
)


def with_results(source, size):
    """Return a product in CUDA C in whose line `#define R …` stands `size`: each of its threads computes R × R results."""
    text, found = re.subn(r"(?m)^#define R \d+$", f"#define R {size}", source)
    if not found:
        raise ValueError(
            "keep a line like `#define R 4` at the kernel's top: it's set to each size"
        )
    return text


def counted(compiled):
    """Return [loads of global memory, loads and stores of the stack, multiply-adds] in the SASS of a product's loop."""
    loops = [compiled.machine_code[first:end] for first, end in compiled.loops]
    texts = [" ".join(text for _, text in loop) for loop in loops]
    most = max(texts, key=lambda text: text.count("FFMA"), default="")
    return [len(re.findall(rf"\b(?:{names})\b", most)) for names in ("LDG", "LDL|STL", "FFMA")]


def per_ffma(source, size):
    """Return how many loads, and how many `LDL` and `STL`, a product's loop has per FFMA on an H100, and what it `Compiled` to.

    Each thread of a block of 256 computes `size` × `size` results.
    """
    from practice_gpus import kernels

    compiled = kernels.compile(with_results(source, size), "product", "H100", threads=256)
    loads, spills, multiply_adds = counted(compiled)
    return loads / multiply_adds, spills / multiply_adds, compiled


PRODUCT_COLUMNS = ("card", "numbers", "precision", "FFMA", "tensor cores", "registers", "stack")


def product_row(card, numbers, precision="–"):
    """Return a row of a table: how a product of 64 × 64 tiles is computed on `card`; `precision` for float32."""
    from practice_gpus import kernels

    values = dict.fromkeys("ab", f"*{numbers}") | {"c": "*fp32", "n": "i32", "TILE": 64}
    options = {"allowed_dot_input_precisions": (precision,)} if numbers == "fp32" else {}
    compiled = kernels.compile(matmul_kernel, values, card, **options)
    plain = sum(text.count("FFMA") + text.count("FFMA2") for _, text in compiled.machine_code)
    cores = ", ".join(f"{count} {name}" for name, count in compiled.tensor_cores.items())
    stack = f"{compiled.stack:,} bytes"
    return card, numbers, precision, f"{plain:,}", cores or "none", compiled.registers, stack


QUIZ = (
    Question(
        "12.sectors",
        "A warp's 32 threads read 32 floats that lie 64 bytes apart. How many sectors of 32 bytes does the request touch?",
        {
            "4": "That takes neighbors: 32 floats in 128 bytes.",
            "16": "No two of these floats share a sector: they lie 64 bytes apart.",
            "32": "Yes: one sector for each float, and 28 of its 32 bytes are wasted.",
        },
        right=2,
    ),
    Question(
        "12.banks",
        "float tile[32][40]: thread t reads tile[t][0]. What happens?",
        {
            "An 8-way bank conflict": "Yes: rows lie 40 words apart, so every fourth one begins in the same bank.",
            "A 32-way bank conflict": "That takes rows of 32 words, or a multiple of it.",
            "One wavefront": "That takes 32 different banks, or one word for all.",
        },
        right=0,
    ),
    Question(
        "12.occupancy",
        "A change raises a kernel's occupancy from 50% to 100%, and its stack from 0 to 200 bytes. Is it faster?",
        {
            "Yes: more warps hide more latency": "They can, but each thread may now execute extra loads and stores, too.",
            "Time it: it can hide more latency, but it may spill": "Yes: the counters name both, not what they add up to.",
            "No: a spill always costs more": "Usually, but a small stack that stays in L1 can cost little.",
        },
        right=1,
    ),
)
