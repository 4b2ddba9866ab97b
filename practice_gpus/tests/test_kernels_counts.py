"""Counts of textbook accesses, each derived by hand from 32-byte sectors and 32 banks of 4 bytes."""

import math
from collections import Counter

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
from kernel_corpus import CASES, of_cuda, of_triton  # noqa: E402, F401
from test_kernels_values import run_case  # noqa: E402

from practice_gpus import kernels  # noqa: E402

HEAD = 'extern "C" __global__ void k(float* x, float* out) {\n__shared__ float s[4096]; int t = threadIdx.x;\n'


def run(body, threads=64, size=4096):
    """Run a body of CUDA C with `x` and `out` of so many floats in one block."""
    compiled = kernels.compile(f"{HEAD}{body}\n}}", "k", "A100", threads=threads)
    return kernels.run(compiled, 1, threads, torch.zeros(size), torch.zeros(size))


# A warp's 32 threads read: the sectors that they touch, counted by hand.
SECTORS = {
    "neighbors": ("out[t] = x[t];", 4),  # 128 bytes
    "backwards": ("out[t] = x[63 - t];", 4),  # the same 128 bytes
    "every second": ("out[t] = x[2 * t];", 8),  # 256 bytes
    "every eighth": ("out[t] = x[8 * t];", 32),  # a sector for each thread
    "a column of 33": ("out[t] = x[33 * t];", 32),
    "shifted by one": ("out[t] = x[t + 1];", 5),  # 4 bytes of a fifth sector
    "one for all": ("out[t] = x[7];", 1),
    "four neighbors share one": ("out[t] = x[t / 4];", 1),  # 8 floats: 32 bytes
    "four floats each": ("((float4*)out)[t] = ((float4*)x)[t];", 16),  # 512 bytes
    "two floats each": ("((float2*)out)[t] = ((float2*)x)[t];", 8),
    "halves": ("out[t] = ((unsigned short*)x)[t];", 2),
    "bytes": ("out[t] = ((unsigned char*)x)[t];", 1),
    "half of the warp": ("if (t % 32 < 16) out[t] = x[t];", 2),
}


def most_are_slow(names, fast):
    """The parameters of a test: all, those not in `fast` in the slow lane."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize(
    "name", most_are_slow(SECTORS, ("every second", "shifted by one", "four floats each"))
)
def test_sectors_of_a_request(name):
    body, expected = SECTORS[name]
    result = run(body)
    assert result.sectors_per_request("load") == expected
    [load] = result.of("global", "load")
    assert load.requests == 2, "two warps, a request each"


# Wavefronts of a warp's request of shared memory; the first number is what it needs without conflicts.
BANKS = {
    "neighbors": ("s[t] = x[t];", 1, 1),
    "every second": ("s[2 * t] = x[t];", 1, 2),
    "a column of 32": ("s[32 * t] = x[t];", 1, 32),
    "a column of 33": ("s[33 * t] = x[t];", 1, 1),
    "pairs": ("((float2*)s)[t] = ((float2*)x)[t];", 2, 2),  # half a warp at a time
    "fours": ("((float4*)s)[t] = ((float4*)x)[t];", 4, 4),  # a quarter of a warp at a time
    "fours, every second": ("((float4*)s)[2 * t] = ((float4*)x)[t];", 4, 8),
}


@pytest.mark.parametrize("name", most_are_slow(BANKS, ("a column of 32", "fours, every second")))
def test_wavefronts_of_shared_memory(name):
    body, ideal, expected = BANKS[name]
    result = run(f"{body}\n__syncthreads(); if (t == 0) out[0] = s[0];", threads=32)
    [store] = result.of("shared", "store")
    assert (store.requests, store.ideal, store.wavefronts) == (1, ideal, expected)
    assert result.bank_conflicts == expected - ideal


def test_a_word_for_all_is_no_conflict():
    result = run("s[t] = x[t]; __syncthreads(); out[t] = s[0];")
    assert result.bank_conflicts == 0 and result.worst_conflict == 1


def test_branches_within_a_warp_diverge_and_branches_between_warps_do_not():
    inside = run(
        "if (t % 2) for (int i = 0; i < x[t]; i++) out[t] += s[i]; else out[t] = x[t + 1];"
    )
    between = run(
        "if (t < 32) for (int i = 0; i < x[0]; i++) out[t] += s[i]; else out[t] = x[t + 1];"
    )
    assert inside.divergent_branches >= 2 and between.divergent_branches == 0


def test_transposes_move_what_the_book_says():
    """Lesson 12 rests on it: 32 sectors for each store of a column, 4 through a padded tile."""
    torch.manual_seed(0)
    _, naive = run_case(CASES["transpose_naive"]())
    _, tiled = run_case(CASES["transpose_tiled"]())
    assert naive.sectors_per_request("store") == (32 + 32 + 6) / 3  # a row of 70 takes three warps
    assert tiled.sectors_per_request("store") < 6 and tiled.bank_conflicts == 0


def test_operations_of_a_product():
    """2 n³: 64³ on tensor cores, 32³ without."""
    torch.manual_seed(0)
    _, cores = run_case(CASES["product_half"]())
    _, plain = run_case(CASES["product_float32"]())
    assert cores.tensor_flops == 2 * 64**3 and plain.tensor_flops == 0
    assert 2 * 32**3 <= plain.flops < 2.1 * 32**3


def test_what_memory_moves_at_least_counts_each_sector_once():
    result = run("out[t] = x[7] + x[t / 32];")
    assert result.moved("load") == 4 * 32 and result.once("load") == 32
    assert result.moved("store") == result.once("store") == 256
    assert result.useful("load") == 16 and result.efficiency == (16 + 256) / (128 + 256)


def test_a_forecast_follows_from_bytes_and_bandwidth():
    """The clock's rule, by hand: 2 × 4 MiB at 75 % of an H100's 3,350 GB/s are 3.3 µs; a small copy takes 3 µs."""
    text = f"{HEAD}int i = blockIdx.x * 256 + t; ((float4*)out)[i] = ((float4*)x)[i];\n}}"
    compiled = kernels.compile(text, "k", "H100", threads=256)
    count = 1 << 20
    result = kernels.run(compiled, count // 1024, 256, torch.zeros(count), torch.zeros(count))
    found = result.forecast()
    assert found.low == found.high == pytest.approx(2 * 4 * count / (0.75 * 3350e9))
    assert found.bound == "memory" and str(found).startswith(
        "forecast: 3.34 to 3.34 µs on H100 SXM"
    )
    small = kernels.run(compiled, 1, 256, torch.zeros(1024), torch.zeros(1024)).forecast("T4")
    assert (small.low, small.bound) == (3e-6, "launch")


MACHINE_CODE = {  # name → (CUDA C whose machine code has no loops, kernel, block, type, numbers, {line: warps, where not all})
    "tiled product": (r"""template <int K> __global__ void k(const float* A, const float* B, float* C) {
  __shared__ float a[16][16], b[16][16]; int x = threadIdx.x, y = threadIdx.y; float s = 0;
#pragma unroll
  for (int k0 = 0; k0 < K; k0 += 16) {
    a[y][x] = A[y * K + k0 + x];
    b[y][x] = B[(k0 + y) * 16 + x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; k++)
      s += a[y][k] * b[k][x];
    __syncthreads();
  }
  C[y * 16 + x] = s;
}""",
     "k<32>", (16, 16), "float", [512, 512, 256], {}),
    "product, 4 x 4 for each thread": (r"""template <int K> __global__ void k(const float* A, const float* B, float* C) {
  __shared__ __align__(16) float a[8][64], b[8][64]; int t = threadIdx.x, tx = t % 16 * 4, ty = t / 16 * 4; float acc[4][4] = {}, r[4], q[4];
#pragma unroll
  for (int k0 = 0; k0 < K; k0 += 8) {
    float4 v = t < 128 ? *(const float4*)&A[(t / 2) * K + k0 + t % 2 * 4] : *(const float4*)&B[(k0 + (t - 128) / 16) * 64 + t % 16 * 4];
    if (t < 128) { a[t % 2 * 4][t / 2] = v.x; a[t % 2 * 4 + 1][t / 2] = v.y; a[t % 2 * 4 + 2][t / 2] = v.z; a[t % 2 * 4 + 3][t / 2] = v.w; }
    else *(float4*)&b[(t - 128) / 16][t % 16 * 4] = v;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; k++) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        r[i] = a[k][ty + i];
#pragma unroll
      for (int i = 0; i < 4; i++)
        q[i] = b[k][tx + i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] += r[i] * q[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
    *(float4*)&C[(ty + i) * 64 + tx] = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}""",
     "k<16>", (256,), "float", [1024, 1024, 4096], {5: 4, 6: 4, 7: 4}),
    "transpose, padded": (r"""__global__ void k(const float* x, float* y) { __shared__ float s[32][33]; int a = threadIdx.x, b = threadIdx.y;
#pragma unroll
  for (int i = 0; i < 32; i += 8)
    s[b + i][a] = x[(b + i) * 32 + a];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 32; i += 8)
    y[(b + i) * 32 + a] = s[a][b + i];
}""",
     "k", (32, 8), "float", [1024, 1024], {}),
    "stencil of 7": (r"""__global__ void k(const float* x, float* y) { __shared__ float s[128 + 6]; int t = threadIdx.x;
  s[t + 3] = x[t + 3];
  if (t < 32)
    s[t < 3 ? t : 128 + min(t, 5)] = x[t < 3 ? t : 128 + min(t, 5)];
  __syncthreads();
  float v = 0;
#pragma unroll
  for (int i = 0; i < 7; i++)
    v += s[t + i] * (i + 1);
  y[t] = v;
}""",
     "k", (128,), "float", [134, 128], {4: 1}),
    "sum by warps": (r"""__global__ void k(const float4* x, float* y) { __shared__ float s[8]; int t = threadIdx.x;
  float4 v = x[t];
  float a = v.x + v.y + v.z + v.w;
#pragma unroll
  for (int o = 16; o; o /= 2) a += __shfl_xor_sync(~0u, a, o);
  s[t / 32] = a;
  __syncthreads();
  float b = 0;
#pragma unroll
  for (int i = 0; i < 8; i++)
    b += s[i];
  y[t] = b;
}""",
     "k", (256,), "float", [1024, 256], {}),
    "rows by float2": (r"""__global__ void k(const float2* x, float2* y) { __shared__ float2 s[128]; int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  float2 a = s[(t + 1) % 128];
  float2 b = s[t ^ 5];
  y[t] = make_float2(a.x + b.y, a.y - b.x);
}""",
     "k", (128,), "float", [256, 256], {}),
    "halves": (r"""#include <cuda_fp16.h>
__global__ void k(const half* x, half* y) { __shared__ half s[256]; int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  half v = s[255 - t];
  half w = s[(t * 2) % 256];
  y[t] = __hadd(v, w);
}""",
     "k", (256,), "half", [256, 256], {}),
    "copies of 16 bytes": (r"""__global__ void k(const float4* x, float4* y) { __shared__ __align__(16) float4 s[2][64]; int t = threadIdx.x;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    unsigned a = (unsigned)__cvta_generic_to_shared(&s[i][t]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(a), "l"(x + i * 64 + t));
  }
  asm volatile("cp.async.wait_all;");
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; i++)
    y[i * 64 + t] = s[i][63 - t];
}""",
     "k", (64,), "float", [512, 512], {}),
    "bitonic, 64": (r"""__global__ void k(const int* x, int* y) { __shared__ int s[64]; int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
#pragma unroll
  for (int size = 2; size <= 64; size *= 2)
#pragma unroll
    for (int d = size / 2; d; d /= 2) {
      int a = s[t];
      int b = s[t ^ d];
      __syncthreads();
      s[t] = ((t & size) == 0) == ((t & d) == 0) ? min(a, b) : max(a, b);
      __syncthreads();
    }
  y[t] = s[t];
}""",
     "k", (64,), "int", [64, 64], {}),
    "convolution 5 x 5": (r"""__constant__ float w[25];
__global__ void k(const float* x, float* y) { __shared__ float s[12][20]; int a = threadIdx.x, b = threadIdx.y;
#pragma unroll
  for (int i = 0; i < 2; i++)
    s[(b * 16 + a + i * 128) % 240 / 20][(b * 16 + a + i * 128) % 240 % 20] = x[(b * 16 + a + i * 128) % 240];
  __syncthreads();
  float v = 0;
#pragma unroll
  for (int i = 0; i < 5; i++)
#pragma unroll
    for (int j = 0; j < 5; j++)
      v += w[i * 5 + j] * s[b + i][a + j];
  y[b * 16 + a] = v;
}""",
     "k", (16, 8), "float", [240, 128], {}),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", most_are_slow(MACHINE_CODE, ("tiled product", "copies of 16 bytes"))
)
def test_requests_of_each_line_and_width_are_those_of_the_machine_code(name):
    """Counted from PTX, a kernel had four times the requests of its LDS.128, and conflicts that no card has."""
    text, entry, block, kind, numbers, some = MACHINE_CODE[name]
    threads = math.prod(block)
    for card in ("A100", "H100"):
        compiled = kernels.compile(text, entry, card, threads=threads)
        dtype = {"half": torch.half, "int": torch.int32, "float": torch.float32}[kind]
        tensors = [torch.ones(count, dtype=dtype) for count in numbers]
        symbols = {"w": torch.ones(25)} if "__constant__" in text else {}
        result = kernels.run(compiled, 1, block, *tensors, symbols=symbols)
        counted, issued = Counter(), Counter()
        for each in result.accesses:
            counted[each.line.number, each.kind, each.space, each.bytes] += each.requests
        for (line, access, space), widths in compiled.widths.items():
            for width, count in widths.items():
                warps = some.get(line.number, threads // 32)
                issued[line.number, access, space, width] += count * warps
        assert counted == issued
