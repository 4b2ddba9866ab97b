"""Exercises and quiz of lesson 12, Look inside a kernel; and its kernels in CUDA C."""

import re

import torch

from helpers.checks.core import Exercise, NotYet, Question
from lessons.kernels import matmul_kernel
from lessons.puzzle import UNTOUCHED, Problem, blank, puzzle

# --- a scaled sum -------------------------------------------------------------------------------
SAXPY = """
extern "C" __global__ void saxpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i >= n) return;
  float4 u = reinterpret_cast<const float4*>(x)[i];
  float4 v = reinterpret_cast<const float4*>(y)[i];
  v.x += a * u.x;
  v.y += a * u.y;
  v.z += a * u.z;
  v.w += a * u.w;
  reinterpret_cast<float4*>(out)[i] = v;
}
"""


def _saxpy_problems():
    found = []
    for n in (64, 1000):
        x, y, out = torch.randn(n), torch.randn(n), blank(n)
        values = [x, y, out, 2.5, n]
        found.append(Problem(values, out, 2.5 * x + y, -(-n // 512), f"n = {n}", 128))
    return found


def _saxpy_mistakes(problem):
    x, y, out, a, n = problem.values
    expected, place = a * x + y, torch.arange(n)
    first = "only the first block's elements were written: where does blockIdx.x come in?"
    yield torch.where(place < 512, expected, UNTOUCHED), first
    single = (
        "a thread wrote one number, and there are 512 for the 128 threads of a block: four each."
    )
    yield torch.where(place < 128 * problem.grid, expected, UNTOUCHED), single
    yield a * (x + y), "that is a * (x + y): only x is multiplied."


def _saxpy_score(compiled, result, problem):
    """Memory instructions that warps execute for 1,000 elements."""
    return 1000 * sum(each.requests for each in result.of("global")) / len(problem.out)


saxpy = puzzle(
    "12.saxpy",
    "a scaled sum",
    _saxpy_problems,
    _saxpy_score,
    "memory instructions of a warp per 1,000 elements",
    mistakes=_saxpy_mistakes,
    hints=(
        "Thread i handles elements 4 i to 4 i + 3, and `u` holds those of `x`. Which four of `y` does it need?",
        "Load a `float4 v` from `y` as `u` was loaded from `x`. Then add `a` times each part of `u` to the same part of `v`.",
        "`float4 v = reinterpret_cast<const float4*>(y)[i];`, then `v.x += a * u.x;`, and the same for `y`, `z` and `w`.",
    ),
    reference=SAXPY,
    tool="saxpy",
    source=f'saxpy = """{SAXPY}"""',
    explanation="A warp's request is now 512 bytes in 16 sectors, all of them used: as many bytes as before, with a quarter of the "
    "instructions. The addresses have to be multiples of 16.",
)

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


# --- load once, use four times ------------------------------------------------------------------
MATMUL = """
extern "C" __global__ void matmul(const float* a, const float* b, float* out, int n) {
  int column = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 32 + threadIdx.y * 4;
  float sums[4] = {};
  for (int k = 0; k < n; k++) {
    float once = b[k * n + column];
    for (int i = 0; i < 4; i++)
      sums[i] += a[(row + i) * n + k] * once;
  }
  for (int i = 0; i < 4; i++)
    out[(row + i) * n + column] = sums[i];
}
"""


def _matmul_problems():
    found = []
    for n in (32, 64):
        a, b, out = torch.randn(n, n), torch.randn(n, n), blank(n, n)
        grid = (n // 32, n // 32)
        found.append(Problem([a, b, out, n], out, a @ b, grid, f"n = {n}", (32, 8)))
    return found


def _matmul_mistakes(problem):
    a, b, out, n = problem.values
    rows = torch.arange(n)[:, None]
    yield torch.where(rows % 4 == 0, a @ b, UNTOUCHED), "only one of every four rows was written."
    overlap = torch.where(rows % 32 < 11, a @ b, UNTOUCHED)
    yield (
        overlap,
        "threads share rows: thread y's four rows begin at row 4 * threadIdx.y of the tile.",
    )
    yield (
        torch.where(rows % 32 < 8, a @ b, UNTOUCHED),
        "8 of 32 rows: each thread has four results.",
    )


def loads_per_ffma(result, multiply_adds):
    """Return the load instructions of warps, from global and shared memory, for each of so many multiply-adds of warps."""
    return sum(each.requests for each in result.accesses if each.kind == "load") / multiply_adds


def _matmul_score(compiled, result, problem):
    return loads_per_ffma(result, problem.values[-1] ** 3 / 32)


matmul = puzzle(
    "12.matmul",
    "load once, use four times",
    _matmul_problems,
    _matmul_score,
    "load instructions per FFMA",
    mistakes=_matmul_mistakes,
    hints=(
        "Which of the two loads is the same for four results in one column? It can stay in a register.",
        "For each `k`, load `b[k * n + column]` into a variable, then loop over four rows.",
        "After the load, in the loop over `k`: "
        "`for (int i = 0; i < 4; i++) sums[i] += a[(row + i) * n + k] * once;`",
    ),
    reference=MATMUL,
    tool="matmul",
    source=f'matmul = """{MATMUL}"""',
    explanation="Four multiply-adds take one load of `b` and four of `a`: 1.25 loads each, where one result per thread takes 2. "
    "The four sums are registers, because each index is known once the loops are unrolled. A `float4` of `a` covers four "
    "steps of `k` in one load: 0.5 loads each.",
)


def product(rows, columns):
    """Return a product in CUDA C whose threads compute `rows` × `columns` results each."""
    return f"""#define R {rows}
#define C {columns}
extern "C" __global__ void product(
    const float* a, const float* b, float* out, int n, int depth) {{
  int row = (blockIdx.y * 8 + threadIdx.y) * R;
  int column = blockIdx.x * 32 * C + threadIdx.x;
  float sums[R][C] = {{}};
  for (int k = 0; k < depth; k++)
    for (int i = 0; i < R; i++)
      for (int j = 0; j < C; j++)
        sums[i][j] += a[(row + i) * depth + k] * b[k * n + column + 32 * j];
  for (int i = 0; i < R; i++)
    for (int j = 0; j < C; j++)
      out[(row + i) * n + column + 32 * j] = sums[i][j];
}}
"""


def counted(compiled):
    """Return [loads of global memory, loads and stores of the stack, multiply-adds] in the SASS of a product's loop."""
    loops = [compiled.machine_code[first:end] for first, end in compiled.loops]
    texts = [" ".join(text for _, text in loop) for loop in loops]
    most = max(texts, key=lambda text: text.count("FFMA"), default="")
    return [len(re.findall(rf"\b(?:{names})\b", most)) for names in ("LDG", "LDL|STL", "FFMA")]


# --- find the best tile -------------------------------------------------------------------------
ENOUGH = 0.15  # memory instructions per FFMA


def per_ffma(tile):
    """Return a product's registers, and how many loads, `LDL` and `STL`, and both its loop has per FFMA on an H100."""
    from practice_gpus import kernels

    compiled = kernels.compile(product(*tile), "product", "H100", threads=256)
    loads, spills, multiply_adds = counted(compiled)
    return compiled.registers, *(n / multiply_adds for n in (loads, spills, loads + spills))


def _check_best(tile):
    if not isinstance(tile, (tuple, list)) or [type(side) for side in tile] != [int, int]:
        raise NotYet("expected two whole numbers: rows and columns, such as (8, 8).")
    rows, columns = tile
    if min(tile) < 1 or rows * columns > 256:
        raise NotYet(f"expected 1 to 256 results per thread, got {rows * columns}.")
    registers, loads, spills, both = per_ffma(tile)
    words = f"{rows} × {columns}, {registers} registers: {loads:.3f} loads + {spills:.3f} LDL and STL = {both:.3f} per FFMA."
    if both >= ENOUGH:
        what = (
            "the tile is too large"
            if spills
            else "nothing spills, so there's room for more results"
        )
        raise NotYet(f"{words} That's not below {ENOUGH}: {what}.")
    return f"{words} Par is {per_ffma(best.reference)[-1]:.3f}."


best = Exercise(
    "12.best",
    "find the best tile",
    _check_best,
    hints=(
        "A thread has at most 255 registers. Each result takes one, and the loaded numbers and their addresses need some, too.",
        "For a given number of results, which shape has the fewest rows plus columns?",
        "Try squares between 8 × 8, which fits, and 16 × 16, which spills.",
    ),
    reference=(15, 15),
    source="tile = (15, 15)  # rows and columns per thread",
    explanation="15 × 15 results take 30 loads, and the compiler just manages with the registers there are. With one column more, "
    "each step of the loop has 32 `LDL` and `STL`: more memory instructions than an 8 × 8 tile has. Fewest isn't fastest, "
    "though: with 12.5% occupancy, only a timing on a GPU can tell.",
    seconds=60,
)


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
            "Yes: more warps hide more latency": "They can, but each thread now executes extra loads and stores, too.",
            "Time it: it hides more latency, and it spills": "Yes: the counters name both effects, not their sum.",
            "No: a spill always costs more": "Usually, but a small stack that stays in L1 can cost little.",
        },
        right=1,
    ),
)
