"""CUDA C kernels: the ones of every textbook."""

import torch
from torch.nn import functional as F

from kernel_corpus import Case, case


def kernel(text):
    return 'extern "C" __global__ void k(' + text


@case
def copy_of_four():
    text = kernel("""const float4* x, float4* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i];
}""")
    x = torch.randn(1200)
    out = torch.empty(1200)
    return Case(text, [x, out, 300], out, x, (3,), (128,), tolerance=0)


@case
def transpose_naive():
    text = kernel("""const float* x, float* out, int rows, int columns) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < columns) out[c * rows + r] = x[r * columns + c];
}""")
    x, out = torch.randn(50, 70), torch.empty(70, 50)
    return Case(text, [x, out, 50, 70], out, x.T, (3, 7), (32, 8), tolerance=0)


@case
def transpose_tiled():
    text = kernel("""const float* x, float* out, int rows, int columns) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (r + i < rows && c < columns) tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * columns + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (r + i < columns && c < rows) out[(r + i) * rows + c] = tile[threadIdx.x][threadIdx.y + i];
}""")
    x, out = torch.randn(45, 70), torch.empty(70, 45)
    return Case(text, [x, out, 45, 70], out, x.T, (3, 2), (32, 8), tolerance=0)


@case
def sum_by_shuffles():
    text = kernel("""const float* x, float* out, int n) {
  __shared__ float part[32];
  float v = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
  for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x == 0) *out = v;
  }
}""")
    x, out = torch.randn(3333), torch.empty(1)
    return Case(text, [x, out, 3333], out, x.sum()[None], (1,), (256,), tolerance=1e-3)


@case
def atomic_sum():
    text = kernel("""const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}""")
    x, out = torch.randn(700), torch.zeros(1)
    return Case(text, [x, out, 700], out, x.sum()[None], (3,), (256,), tolerance=1e-3)


@case
def histogram_in_shared_memory():
    text = kernel("""const unsigned char* x, int* out, int n) {
  __shared__ int bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&bins[x[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}""")
    x, out = torch.randint(0, 256, (4001,), dtype=torch.uint8), torch.zeros(256, dtype=torch.int32)
    return Case(
        text, [x, out, 4001], out, torch.bincount(x, minlength=256).int(), (4,), (128,), tolerance=0
    )


@case
def convolution_with_constants():
    text = "__constant__ float w[5] = {1, -2, 0.5f, 3, -1};\n" + kernel("""const float* x, float* out, int n) {
  __shared__ float s[132];
  int i = blockIdx.x * 128 + threadIdx.x;
  for (int p = threadIdx.x; p < 132; p += 128) {
    int j = blockIdx.x * 128 + p - 2;
    s[p] = j >= 0 && j < n ? x[j] : 0;
  }
  __syncthreads();
  float total = 0;
  for (int t = 0; t < 5; t++) total += w[t] * s[threadIdx.x + t];
  if (i < n) out[i] = total;
}""")
    x, out = torch.randn(500), torch.empty(500)
    w = torch.tensor([1, -2, 0.5, 3, -1])
    expected = F.conv1d(x[None, None], w[None, None], padding=2).flatten()
    return Case(text, [x, out, 500], out, expected, (4,), (128,))


@case
def convolution_of_a_picture():
    text = kernel("""const float* x, const float* w, float* out, int h, int b) {
  __shared__ float s[18][18];
  for (int p = threadIdx.y * 16 + threadIdx.x; p < 324; p += 256) {
    int r = blockIdx.y * 16 + p / 18 - 1, c = blockIdx.x * 16 + p % 18 - 1;
    s[p / 18][p % 18] = r >= 0 && r < h && c >= 0 && c < b ? x[r * b + c] : 0;
  }
  __syncthreads();
  int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
  if (r >= h || c >= b) return;
  float total = 0;
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) total += w[3 * i + j] * s[threadIdx.y + i][threadIdx.x + j];
  out[r * b + c] = total;
}""")
    x, w, out = torch.randn(30, 41), torch.randn(3, 3), torch.empty(30, 41)
    expected = F.conv2d(x[None, None], w[None, None], padding=1)[0, 0]
    return Case(text, [x, w, out, 30, 41], out, expected, (3, 2), (16, 16))


@case
def softmax_of_a_block():
    text = kernel("""const float* x, float* out, int n) {
  __shared__ float part[4];
  const float* row = x + blockIdx.x * n;
  int t = threadIdx.x;
  float top = -3e38f, total = 0;
  for (int i = t; i < n; i += 128) top = fmaxf(top, row[i]);
  for (int o = 16; o; o /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
  if (t % 32 == 0) part[t / 32] = top;
  __syncthreads();
  top = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
  __syncthreads();
  for (int i = t; i < n; i += 128) total += expf(row[i] - top);
  for (int o = 16; o; o /= 2) total += __shfl_xor_sync(~0u, total, o);
  if (t % 32 == 0) part[t / 32] = total;
  __syncthreads();
  total = part[0] + part[1] + part[2] + part[3];
  for (int i = t; i < n; i += 128) out[blockIdx.x * n + i] = expf(row[i] - top) / total;
}""")
    x, out = torch.randn(5, 333), torch.empty(5, 333)
    return Case(text, [x, out, 333], out, x.softmax(1), (5,), (128,))


@case
def half_pairs():
    text = "#include <cuda_fp16.h>\n" + kernel("""const __half2* x, __half2* y, __half a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__half2half2(a), x[i], y[i]);
}""")
    x, y = torch.randn(2, 600).half()
    out = y.clone()
    expected = (2 * x.float() + y.float()).half()
    return Case(text, [x, out, 2.0, 300], out, expected, (3,), (128,), tolerance=2e-3)


@case
def bitonic_sort():
    text = kernel("""int* x) {
  __shared__ int s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int size = 2; size <= 256; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      int other = t ^ step;
      if (other > t) {
        bool up = (t & size) == 0;
        if ((s[t] > s[other]) == up) { int v = s[t]; s[t] = s[other]; s[other] = v; }
      }
      __syncthreads();
    }
  x[t] = s[t];
}""")
    x = torch.randint(-1000, 1000, (256,), dtype=torch.int32)
    return Case(text, [x], x, x.sort().values, (1,), (256,), tolerance=0)


@case
def mandelbrot():
    text = kernel("""int* out, int n) {
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  if (c >= n || r >= n) return;
  double x0 = -2.0 + 3.0 * c / n, y0 = -1.5 + 3.0 * r / n, x = 0, y = 0;
  int step = 0;
  while (step < 50 && x * x + y * y <= 4) {
    double next = x * x - y * y + x0;
    y = 2 * x * y + y0; x = next; step++;
  }
  out[r * n + c] = step;
}""")
    n = 40
    out = torch.empty(n, n, dtype=torch.int32)
    at = torch.arange(n, dtype=torch.float64)
    c = torch.complex(
        (-2 + 3 * at / n)[None].expand(n, n), (-1.5 + 3 * at / n)[:, None].expand(n, n)
    )
    z, steps = torch.zeros_like(c), torch.zeros(n, n, dtype=torch.int32)
    for _ in range(50):
        inside = z.real**2 + z.imag**2 <= 4
        z = torch.where(inside, z * z + c, z)
        steps += inside.int()
    return Case(
        text,
        [out, n],
        out,
        steps,
        (3, 3),
        (16, 16),
        options={"flags": ("-fmad=false",)},
        tolerance=0,
    )


@case
def compaction_by_ballot():
    text = kernel("""const int* x, int* out, int* count) {
  int t = threadIdx.x, v = x[t];
  unsigned keep = __ballot_sync(~0u, v > 0);
  int before = __popc(keep & ((1u << t) - 1));
  if (v > 0) out[before] = v;
  if (t == 0) *count = __popc(keep);
}""")
    x = torch.randint(-9, 9, (32,), dtype=torch.int32)
    out = torch.zeros(32, dtype=torch.int32)
    kept = x[x > 0]
    expected = torch.cat([kept, torch.zeros(32 - len(kept), dtype=torch.int32)])
    return Case(
        text, [x, out, torch.zeros(1, dtype=torch.int32)], out, expected, (1,), (32,), tolerance=0
    )


@case
def collatz():
    text = kernel("""const long long* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long v = x[i];
  int steps = 0;
  for (; v != 1; steps++) v = v % 2 ? 3 * v + 1 : v / 2;
  out[i] = steps;
}""")

    def steps(v):
        count = 0
        while v != 1:
            v, count = (3 * v + 1 if v % 2 else v // 2), count + 1
        return count

    x = torch.arange(1, 101)
    out = torch.empty(100, dtype=torch.int32)
    expected = torch.tensor([steps(v) for v in x.tolist()], dtype=torch.int32)
    return Case(text, [x, out, 100], out, expected, (1,), (128,), tolerance=0)


@case
def game_of_life():
    text = kernel("""const unsigned char* x, unsigned char* out, int n) {
  int c = blockIdx.x * 8 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  int count = 0;
  for (int i = -1; i <= 1; i++)
    for (int j = -1; j <= 1; j++) count += x[(r + i + n) % n * n + (c + j + n) % n];
  bool alive = x[r * n + c];
  out[r * n + c] = count == 3 || (alive && count == 4);
}""")
    x = torch.randint(0, 2, (24, 24), dtype=torch.uint8)
    out = torch.empty_like(x)
    count = sum(x.roll((i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1))
    expected = ((count == 3) | ((x == 1) & (count == 4))).to(torch.uint8)
    return Case(text, [x, out, 24], out, expected, (3, 3), (8, 8), tolerance=0)


@case
def functions_of_math():
    text = kernel("""const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = sinf(x[i]) + logf(fabsf(x[i]) + 1) + tanhf(x[i]) + powf(fabsf(x[i]), 1.5f)
                      + rsqrtf(1 + x[i] * x[i]) + erff(x[i]) + floorf(x[i]) + (float)(int)x[i];
}""")
    x, out = 20 * torch.randn(500), torch.empty(500)
    y = x.double()
    expected = (
        y.sin() + (y.abs() + 1).log() + y.tanh() + y.abs() ** 1.5 + (1 + y * y).rsqrt() + y.erf()
    )
    expected = (expected + x.floor() + x.trunc()).float()
    return Case(text, [x, out, 500], out, expected, (4,), (128,))
