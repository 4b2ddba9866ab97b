"""Exercises and quiz of lesson 12, Look inside a kernel; and its kernels in CUDA C."""

import torch

from helpers.checks.core import Question
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
        "Thread i does the numbers 4 i to 4 i + 3, and `u` holds those of `x`. Which four of `y` does it need?",
        "Load a `float4 v` from `y` as `u` was loaded from `x`. Then each of its parts grows by `a` times the same part of `u`.",
        "`float4 v = reinterpret_cast<const float4*>(y)[i];`, then `v.x += a * u.x;` and so on, and store it: "
        "`reinterpret_cast<float4*>(out)[i] = v;`",
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
    """Sectors for 128 bytes that threads use, and wavefronts of shared memory beyond each one needed, in the mean."""
    shared = result.of("shared")
    extra = result.bank_conflicts / max(1, sum(each.ideal for each in shared))
    return 4 / result.efficiency + extra


transpose = puzzle(
    "12.transpose",
    "transpose",
    _transpose_problems,
    _transpose_score,
    "sectors per 128 bytes, plus bank conflicts per wavefront",
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


def _matmul_score(compiled, result, problem):
    """Sectors of global memory and wavefronts of shared memory for one multiply-add of a warp's 32 lanes, in the mean."""
    n = problem.values[-1]
    wavefronts = sum(each.wavefronts for each in result.of("shared"))
    return (result.moved("load") / 32 + wavefronts) / (n**3 / 32)


matmul = puzzle(
    "12.matmul",
    "load once, use four times",
    _matmul_problems,
    _matmul_score,
    "sectors and wavefronts per multiply-add of a warp",
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
    explanation="For four multiply-adds a warp loads 4 sectors of `b` and 4 times 1 sector of `a`: 2 for each, where one result "
    "per thread takes 5. The four sums are registers, because each index is known once the loops are unrolled.",
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
        "A change raises a kernel's occupancy from 50% to 100%, and its stack from 0 to 2,000 bytes. Is it faster?",
        {
            "Yes, twice": "Occupancy counts warps, not work.",
            "Probably slower": "Yes: every thread now reads and writes memory for what fit into registers.",
            "It depends only on the tensor cores": "They wait for their operands, too.",
        },
        right=1,
    ),
)
