"""Exercises and quiz of lesson 12, Look inside a kernel; and its kernels in CUDA C."""

import re

import torch

from course.checks.puzzle import Problem, blank, puzzle
from course.checks.words import quiz

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


def _transpose_score(compiled, result, problem):
    """Sectors loaded and stored, plus bank conflicts, for 32 elements."""
    return (result.moved() / 32 + result.bank_conflicts) / (len(problem.out.flatten()) / 32)


transpose = puzzle(
    "12.transpose",
    TRANSPOSE,
    _transpose_problems,
    _transpose_score,
    tool="transpose",
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


def loads_per_ffma(result, multiply_adds):
    """Return the load instructions of warps, from global and shared memory, for each of so many multiply-adds of warps."""
    return sum(each.requests for each in result.accesses if each.kind == "load") / multiply_adds


def _matmul_score(compiled, result, problem):
    """Sectors of global memory that loads touch, for each multiply-add of a warp."""
    return result.moved("load") / 32 / (problem.values[-1] ** 3 / 32)


matmul = puzzle(
    "12.matmul",
    MATMUL,
    _matmul_problems,
    _matmul_score,
    tool="matmul",
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


QUIZ = quiz("12")
