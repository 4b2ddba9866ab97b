"""CUDA C++ files as their authors wrote them: host code, templates, structs, constants, printf; and what is refused."""

import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
from practice_gpus import kernels  # noqa: E402

pytestmark = pytest.mark.skipif(bool(kernels.missing("cuda")), reason="no NVRTC here")

PROGRAM = """
#include <stdio.h>
#include <cassert>
#include <vector>
#include <cuda_runtime.h>
#include "common.h"
using namespace std;
#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%d", e); exit(1); } } while (0)
__constant__ float scale;
struct Shape { int rows; double offset; float* extra; int pair[2]; };
namespace mine {
template <typename T, int N> __global__ void __launch_bounds__(256)
transpose(const T* __restrict__ x, T*y, Shape shape) {
  __shared__ T tile[N][N + 1];  // "a brace in a comment: {"
  assert(shape.rows > 0);
  int c = blockIdx.x * N + threadIdx.x, first = blockIdx.y * N;
  for (int r = threadIdx.y; r < N; r += blockDim.y) tile[r][threadIdx.x] = x[(first + r) * shape.rows + c];
  __syncthreads();
  c = blockIdx.y * N + threadIdx.x; first = blockIdx.x * N;
  for (int r = threadIdx.y; r < N; r += blockDim.y)
    y[(first + r) * shape.rows + c] = twice(tile[threadIdx.x][r]) * scale + shape.offset + (shape.extra ? *shape.extra : 0);
}
}
struct Timer { cudaEvent_t start; void Start() { cudaEventRecord(start); } };
template <class T> void run(vector<T>& host, std::function<void()> f) { mine::transpose<T, 32><<<1, dim3(32, 8)>>>(0, 0, {}); }
#ifdef NEVER
int main(int argc) {
#else
int main() {
#endif
  vector<float> h(100); Timer t; run(h, [&] { CHECK(cudaMemcpyToSymbol(scale, h.data(), 4)); });
}
"""
COMMON = """
#pragma once
#include <cublas_v2.h>
#include <random>
inline cublasHandle_t handle() { std::mt19937 g; return 0; }
__device__ inline float twice(float x) { return 2 * x; }
"""
X = torch.arange(64.0 * 64).reshape(64, 64)


def test_a_file_with_its_host_code_runs_and_gives_its_template_the_struct_the_constant_and_null(
    tmp_path,
):
    (tmp_path / "common.h").write_text(COMMON)
    (tmp_path / "my.cu").write_text(PROGRAM)
    compiled = kernels.compile(kernels.file(tmp_path / "my.cu"), "transpose<float, 32>", "A100")
    assert compiled.parameters == ("x", "y", "shape")
    y, extra = torch.zeros(64, 64), torch.tensor([100.0])
    shape = {"rows": 64, "offset": 0.5, "extra": None, "pair": (0, 0)}
    result = kernels.run(compiled, (2, 2), (32, 8), X, y, shape, symbols={"scale": 3.0})
    assert torch.equal(y, 6 * X.T + 0.5)
    assert result.bank_conflicts == 0
    load = next(each.line for each in result.of("global", "load"))
    assert PROGRAM.splitlines()[load.number - 1].strip() == load.text and "tile[r]" in load.text
    kernels.run(compiled, (2, 2), (32, 8), X, y, (64, 0.5, extra, (0, 0)), symbols={"scale": 3.0})
    assert torch.equal(y, 6 * X.T + 100.5), "a pointer in a struct"
    with pytest.raises(kernels.KernelError, match=r"scale \(line 9\) has no value"):
        kernels.run(compiled, (2, 2), (32, 8), X, y, shape)


ODD = """
#include <mma.h>
#ifdef WIDE
typedef double real;
#else
typedef float real;
#endif
static float *data;
using namespace nvcuda;
template <class T> __device__ T scaled(T x) { return x; }
template <> __device__ float scaled<float>(float x) { return 3 * x; }
__global__ void k(real *data, int n) {
  __shared__ float s[64];
  s[threadIdx.x] = scaled<float>(data[threadIdx.x]);
  __syncthreads();
  float sum = 0;
  for (int i = -n; i <= n; i++) {
    int at = threadIdx.x + i;
    if (at >= 0 && at < 64) sum += s[at];
  }
  data[threadIdx.x] = sum;
}
int main() { k<<<1, 64>>>(data, 2); }
"""


def test_names_of_the_host_types_of_an_if_and_addresses_that_wrap_do_no_harm():
    """A parameter named as a variable of main's, a window that begins before shared memory: right, or falsely accused."""
    compiled, x = kernels.compile(ODD, "k", "A100"), torch.ones(64)
    kernels.run(compiled, 1, 64, x, 2)
    assert x.tolist() == [9.0, 12.0, *[15.0] * 60, 12.0, 9.0]


SIMPLE = "__device__ int total;\n__global__ void k(float*x,int n, unsigned char flag=1) { if (n > 2) x[threadIdx.x] = n; total = n; }"


def test_what_the_kernel_cannot_take_is_refused_before_it_runs():
    """Each of these passed silently: doubles read as floats, 2.7 as 1076677888."""
    compiled = kernels.compile(SIMPLE, "k", "T4")
    x = torch.zeros(256)
    wrong = {
        "x is a tensor of float64; the kernel takes float*": (x.double(), 3, 1),
        "n is 2.7; the kernel takes int, a whole number": (x, 2.7, 1),
        "n is 4294967296; the kernel takes int, which holds -2,147,483,648 to 2,147,483,647": (
            x,
            2**32,
            1,
        ),
        "flag is 300; the kernel takes unsigned char, which holds 0 to 255": (x, 3, 300),
        "x is 5; the kernel takes float*: a tensor, or None for a null pointer": (5, 3, 1),
        "n is None; the kernel takes int, a number": (x, None, 1),
        "2 arguments; k takes 3: x, n, flag": (x, 3),
    }
    for words, arguments in wrong.items():
        with pytest.raises(TypeError) as raised:
            kernels.run(compiled, 1, 32, *arguments)
        assert str(raised.value) == words
    kernels.run(compiled, 1, 256, x, 3.0, True)
    assert torch.equal(x, torch.full((256,), 3.0))


def test_null_pointers_and_pointers_in_tensors_are_told_from_indices_that_are_too_large():
    """A grouped product reads its matrices' addresses from a tensor: refused by name, not accused."""
    compiled = kernels.compile(
        "__global__ void k(float** x, float* y) { y[0] = x[0][0]; }", "k", "A100"
    )
    y = torch.zeros(1)
    for address, error, words in (
        (2**33, kernels.Unsupported, "stored in tensors"),
        (0, kernels.OutOfBounds, "null"),
    ):
        with pytest.raises(error, match=words):
            kernels.run(compiled, 1, 1, torch.tensor([address]), y)


BOUNDED = "extern __shared__ float s[]; __global__ void __launch_bounds__(64) k(float* x) { x[0] = s[0]; }"


@pytest.mark.parametrize(
    ("grid", "block", "shared", "words"),
    [
        (1, 128, 0, "block is 128, 128 threads; __launch_bounds__ of k allows 64"),
        (1, (1, 1, 65), 0, "block is (1, 1, 65); its z is at most 64"),
        ((1, 70_000), 32, 0, "grid is (1, 70000); its y is at most 65,535"),
        (2**31, 32, 0, "grid is 2147483648; its x is at most 2,147,483,647"),
        (
            1,
            32,
            200 * 1024,
            "k takes 204,800 bytes of shared memory; a block has at most 65,536 on T4",
        ),
    ],
)
def test_limits_of_a_launch_are_the_cards(grid, block, shared, words):
    compiled = kernels.compile(BOUNDED, "k", "T4", shared=shared)
    with pytest.raises(ValueError) as raised:
        kernels.run(compiled, grid, block, torch.zeros(4))
    assert str(raised.value) == words


BAD = {
    "my.cu has no kernel; a kernel is a function that begins with __global__ void": "int main() { return 0; }",
    "my.cu line 2: this { is never closed": "int x;\n__global__ void k() { if (1) {",
    'my.cu line 3: identifier "y" is undefined': "#include <map>\n\n__global__ void k(float* x) { x[0] = y; }",
    'my.cu line 2: function "k" has already been defined': "__global__ void k() {}\n__global__ void k() {}",
    "my.cu has several kernels: name one; it has a (line 1), b<int N> (line 2)": "__global__ void a() {}\ntemplate <int N> __global__ void b() {}",
    "my.cu line 1: k is a template; give its arguments, such as 'k<float, 32>'": "template <typename T, int N> __global__ void k() {}",
    'my.cu line 2: identifier "helper" is undefined; what it includes isn\'t all here: lost.h': '#include "lost.h"\n__global__ void k() { helper(); }',
    'my.cu line 1: cannot open source file "curand_lost.h"': "#include <curand_lost.h>\n__global__ void k() {}",
}


@pytest.mark.parametrize("words", BAD)
def test_a_bad_file_gets_one_sentence_with_its_line(words, tmp_path):
    (tmp_path / "my.cu").write_text(BAD[words])
    with pytest.raises(kernels.CompileError) as raised:
        kernels.compile(kernels.file(tmp_path / "my.cu"))
    assert str(raised.value).splitlines()[0].startswith(words.partition("; what")[0])
    assert words.partition("; what")[2] in str(raised.value).splitlines()[0]


def test_a_functor_that_is_a_template_is_packed_by_its_members():
    """Thrust's manner: `map<float, Clamp<float>>` takes a functor by value; its bytes had to be given by hand."""
    text = """namespace f { template <typename T> struct Clamp { T lo, hi; bool on; __device__ T operator()(T v) const { return on ? min(max(v, lo), hi) : v; } }; }
template <typename T, typename Op> __global__ void map(T* x, Op op) { x[threadIdx.x] = op(x[threadIdx.x]); }
__global__ void plain(double* x, f::Clamp<double> op) { x[threadIdx.x] = op(x[threadIdx.x]); }"""
    for name, dtype in (("map<float, f::Clamp<float>>", torch.float32), ("plain", torch.float64)):
        x = torch.arange(32).to(dtype)
        kernels.run(kernels.compile(text, name, threads=32), 1, 32, x, (3.0, 9.0, True))
        assert x.tolist() == [min(max(each, 3), 9) for each in range(32)]


def test_a_lambda_marked_for_the_device_is_taken():
    """nvcc takes it under --extended-lambda, which NVRTC hasn't: what a kernel defines runs on the GPU anyway."""
    text = "__global__ void k(int* x) { auto f = [=] __host__ __device__ (int v) { return v + 2; }; x[0] = f(3); }"
    x = torch.zeros(1, dtype=torch.int32)
    kernels.run(kernels.compile(text, "k", threads=32), 1, 1, x)
    assert x.item() == 5


def test_two_kernels_of_one_name_are_both_named():
    text = "__global__ void k(int a) {}\n__global__ void k(float a) {}"
    with pytest.raises(
        kernels.CompileError, match=r"k is none of k \(line 1\), k \(line 2\), or not only one"
    ):
        kernels.compile(text, "k")


BOMB = """template <int N> struct S { static constexpr long v = S<N - 1>::v + S<N - 2>::v + N; };
template <> struct S<0> { static constexpr long v = 0; }; template <> struct S<1> { static constexpr long v = 1; };
template <int N, int M> struct B { __device__ static float f(float x) { return B<N - 1, 2 * M>::f(x) + B<N - 1, 2 * M + 1>::f(x * 2); } };
template <int M> struct B<0, M> { __device__ static float f(float x) { return x * M; } };
__global__ void k(float* x) { x[0] = B<20, 1>::f(x[0]); }"""


def test_a_bomb_for_the_compiler_and_an_endless_loop_end_in_time(tmp_path):
    with pytest.raises(kernels.CompileTimeout, match="k: no code after 1 seconds"):
        kernels.compile(BOMB, "k", limit=1)
    (tmp_path / "my.cu").write_text(
        "__global__ void k(volatile int* x) {\n  while (true)\n    *x += 1;\n}"
    )
    compiled = kernels.compile(kernels.file(tmp_path / "my.cu"))
    with pytest.raises(kernels.KernelError, match=r"no end .*line [23]: "):
        kernels.run(compiled, 1, 32, torch.zeros(1, dtype=torch.int32), limit=0.5)


def test_the_command_prints_counts_and_findings_or_one_sentence(tmp_path):
    (tmp_path / "common.h").write_text(COMMON)
    (tmp_path / "my.cu").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "practice_gpus",
        "kernel",
        str(tmp_path / "my.cu"),
        "transpose<float, 32>",
    ]
    command += [
        "--grid",
        "2,2",
        "--block",
        "32,8",
        "--arg",
        "float[64,64]=ones",
        "--set",
        "scale=2.0",
    ]
    more = ["--arg", "float[64,64]=zeros", "--arg", "{64,0.5,null,{0,0}}"]
    done = subprocess.run([*command, *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "4.0 sectors per request; 0 bank conflicts" in done.stdout
    assert "y: 4.5, 4.5, 4.5, 4.5, 4.5, 4.5, …" in done.stdout
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.strip().endswith(
        "1 --arg; mine::transpose<float, 32> takes float* x, float* y, Shape shape"
    )


def test_limits_that_a_host_s_compiler_knows_are_known():
    """nvcc has them of gcc or of <climits>: a public softmax with __FLT_MAX__ didn't compile."""
    names = "__FLT_MAX__ FLT_MAX __INT_MAX__ INT_MIN UINT16_MAX CHAR_BIT __DBL_EPSILON__ LONG_MIN"
    values = "\n".join(f"  out[{n}] = {name};" for n, name in enumerate(names.split()))
    text = "__global__ void k(double* out) {\n" + values + "\n}"
    out = torch.zeros(8, dtype=torch.float64)
    kernels.run(kernels.compile(text, "k", "A100", threads=1), 1, 1, out)
    f32, i32 = torch.finfo(torch.float32).max, torch.iinfo(torch.int32)
    assert out.tolist() == [f32, f32, i32.max, i32.min, 65535, 8, 2.0**-52, -(2.0**63)]
