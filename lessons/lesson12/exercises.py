"""Exercises and quiz of lesson 12, Look inside a kernel; and its kernels in CUDA C."""

import torch

from helpers.checks.core import Exercise, NotYet, Question
from lessons.lesson11.kernels import matmul_kernel, softmax_kernel
from lessons.lesson93.puzzle import UNTOUCHED, Problem, blank, puzzle, requested

# --- a scaled sum -------------------------------------------------------------------------------
SAXPY = """
extern "C" __global__ void saxpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""


def _saxpy_problems():
    found = []
    for n in (64, 1000):
        x, y, out = torch.randn(n), torch.randn(n), blank(n)
        values = [x, y, out, 2.5, n]
        found.append(Problem(values, out, 2.5 * x + y, -(-n // 128), f"n = {n}", 128))
    return found


def _saxpy_mistakes(problem):
    x, y, out, a, n = problem.values
    first = blank(n)
    first[:128] = (a * x + y)[:128]
    yield first, "only the first block's elements were written: where does blockIdx.x come in?"
    yield a * (x + y), "that is a * (x + y): only x is multiplied."


saxpy = puzzle(
    "12.saxpy",
    "a scaled sum",
    _saxpy_problems,
    lambda compiled, result, problem: requested(result, problem),
    "bytes requested per element",
    mistakes=_saxpy_mistakes,
    hints=(
        "Begin with `add`. Which line says where a thread works, and which one what it does there?",
        "`int i = blockIdx.x * blockDim.x + threadIdx.x;` is the element. The last block has threads too many.",
        "`if (i < n) out[i] = a * x[i] + y[i];`",
    ),
    reference=SAXPY,
    tool="saxpy",
    source=f'saxpy = """{SAXPY}"""',
    explanation="Neighboring threads take neighboring elements, so each request of a warp is 4 whole sectors: 12 bytes per "
    "element, and nothing wasted.",
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
    """Sectors of a request, and wavefronts of shared memory beyond the first, each in the mean."""
    shared = result.of("shared")
    extra = result.bank_conflicts / max(1, sum(each.ideal for each in shared))
    return result.sectors_per_request() + extra


transpose = puzzle(
    "12.transpose",
    "transpose",
    _transpose_problems,
    _transpose_score,
    "sectors and bank conflicts per request",
    mistakes=_transpose_mistakes,
    hints=(
        "Read a tile as the square version does, with a test for both `rows` and `columns`. Where in `out` does the tile of "
        "block (x, y) belong?",
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


# --- warps that hold a row ----------------------------------------------------------------------
def _check_warps(answer):
    from practice_gpus import kernels

    if type(answer) is not int or answer not in (1, 2, 4, 8, 16, 32):
        raise NotYet(f"num_warps is {str(answer)[:40]}; it takes 1, 2, 4, 8, 16 or 32.")
    if answer < 4:
        raise NotYet(
            f"{answer} warps would have to hold {32768 // 32 // answer:,} elements in each thread, and a thread has 255 "
            "registers at most."
        )
    compiled = kernels.compile(softmax_kernel, {**WIDE, "BLOCK": 32768}, "H100", num_warps=answer)
    if compiled.stack:
        raise NotYet(
            f"{compiled.stack:,} bytes of stack in each thread: the row doesn't fit into the registers of {answer} warps."
        )
    if answer != 32:
        raise NotYet(
            f"nothing spills, but the occupancy is {compiled.occupancy.share:.0%}. Can it be higher without a spill?"
        )
    return f"{compiled.registers} registers, no stack, occupancy {compiled.occupancy.share:.0%}: the most without a spill."


WIDE = {"x": "*fp32", "out": "*fp32", "columns": "i32"}

warps = Exercise(
    key="12.warps",
    title="warps that hold a row",
    check_answer=_check_warps,
    hints=(
        "A row of 32,768 elements lies in the registers of one block. More warps, fewer elements in each thread.",
        "4 warps are 128 threads: 256 elements each, and there are 255 registers at most. Double the warps until nothing "
        "spills, then go on while the occupancy rises.",
        "The largest number of warps that a block may have is 32.",
    ),
    reference=32,
    source="num_warps = 32",
    explanation="With 32 warps a thread holds 32 elements, and nothing spills. 100 % occupancy with 4 warps was higher and far "
    "worse: each thread kept 2,408 bytes in memory.",
)


def product_row(card, numbers, precision):
    """Return a row of a table: how a product of 64 × 64 tiles is computed on `card`."""
    from practice_gpus import kernels

    pointers = dict.fromkeys("abc", f"*{numbers}") | {"c": "*fp32", "n": "i32"}
    values = pointers | {"TILE": 64, "PRECISION": precision}
    compiled = kernels.compile(matmul_kernel, values, card)
    plain = sum(text.count("FFMA") + text.count("FFMA2") for _, text in compiled.machine_code)
    cores = ", ".join(f"{count} {name}" for name, count in compiled.tensor_cores.items())
    return card, numbers, precision, f"{plain:,}", cores or "none", f"{compiled.stack:,}"


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
        "float tile[32][32]: thread t reads tile[t][0]. What happens?",
        {
            "A 32-way bank conflict": "Yes: the words lie 32 apart, all in bank 0.",
            "One wavefront": "That takes 32 different banks, or one word for all.",
            "32 sectors move": "Sectors belong to global memory; this is shared memory.",
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
