"""Planted faults are named with their line, as compute-sanitizer and a profiler would name them."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from test_kernels_counts import most_are_slow  # noqa: E402

from practice_gpus import kernels  # noqa: E402

HEAD = 'extern "C" __global__ void k(float* x, float* out, int n) {\n  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n'
# name → (body of CUDA C, threads, what is found, words of the line that is at fault)
CUDA = {
    "no test of the index": ("out[i] = x[i] + 1;", 256, kernels.OutOfBounds, "out[i] = x[i] + 1;"),
    "one too many": ("if (i <= n) out[i] = 1;", 256, kernels.OutOfBounds, "i <= n"),
    "in front": ("if (i < n) out[i] = x[i - 1];", 256, kernels.OutOfBounds, "x[i - 1]"),
    "behind shared memory": ("__shared__ float s[32];\n  s[t] = x[t % 9];\n  __syncthreads();\n  out[t] = s[t ^ 1];",
                             64, kernels.OutOfBounds, "s[t] ="),
    "no barrier, reversal": ("__shared__ float s[64];\n  s[t] = x[t];\n  out[t] = s[63 - t];", 64, kernels.Race, "63 - t"),
    "no barrier, one warp": ("__shared__ float s[32];\n  s[t] = x[t];\n  out[t] = s[31 - t];", 32, kernels.Race, "31 - t"),
    "no barrier, sum": ("__shared__ float s[64];\n  s[t] = x[t] + 1;\n  __syncthreads();\n"
                        "  for (int h = 32; h > 0; h /= 2)\n    if (t < h) s[t] += s[t + h];\n  out[t] = s[t];",
                        64, kernels.Race, "s[t + h]"),
    "no barrier, zeros": ("__shared__ int s[64];\n  s[t] = 1;\n  atomicAdd(&s[(t * 7) % 64], 1);\n  __syncthreads();\n"
                          "  out[t] = s[t];", 64, kernels.Race, "atomicAdd"),
    "no second barrier": ("__shared__ float s[64];\n  float v = 0;\n  for (int p = 0; p < 4; p++) {\n"
                          "    s[t] = x[t] + p * t;\n    __syncthreads();\n    v += s[63 - t];\n  }\n  out[t] = v;",
                          64, kernels.Race, "s[t] = x[t] + p * t"),
    "no barrier, one lane counts": ("__shared__ float s[64];\n  s[t] = x[t];\n  __syncwarp();\n"
                                    "  float v = s[(t + 16) % 64];\n  out[t] = t % 32 == 30 ? v : 0;", 64, kernels.Race, "s[(t + 16)"),
    "a shuffle from a lane that left": ("float v = x[t];\n  if (t < 20) out[t] = __shfl_down_sync(0xfffff, v, 8);", 32,
                                        kernels.BarrierError, "__shfl_down_sync"),
    "all write one place": ("__shared__ float s[1];\n  s[0] = t;\n  __syncthreads();\n  out[t] = s[0];",
                            64, kernels.Race, "s[0] = t"),
    "no second barrier, ones": ("__shared__ float s[64];\n  float v = 0;\n  for (int p = 0; p < 4; p++) {\n"
                                "    s[t] = x[t];\n    __syncthreads();\n    v += s[63 - t];\n  }\n  out[t] = v;",
                                64, kernels.Race, "s[t] = x[t]"),
    "bins not cleared": ("__shared__ int s[64];\n  atomicAdd(&s[t % 7], 1);\n  __syncthreads();\n  out[t] = s[t];",
                         64, kernels.Uninitialized, "atomicAdd"),
    "one row too few": ("__shared__ float s[64];\n  if (t < 63) s[t] = x[t];\n  __syncthreads();\n  out[t] = s[t] + 1;",
                        64, kernels.Uninitialized, "s[t] + 1"),
    "sum without an atomic": ("out[(int)x[t] + t % 3] += 1;", 64, kernels.Race, "+= 1"),
    "sum without an atomic, among blocks": ("if (t == 0) out[0] += 1;", 32, kernels.Race, "+= 1"),
    "blocks write one place": ("if (t == 0) out[0] = blockIdx.x;", 64, kernels.Race, "blockIdx.x"),
    "neighbors in place": ("if (i < 99) x[i] = x[i + 1] + 1;", 32, kernels.Race, "x[i + 1]"),
    "an array of its own, behind": ("float v[8];\n  for (int j = 0; j < 8; j++) v[j] = j;\n  out[t] = v[(int)x[t] + 100 + t];",
                                    32, kernels.OutOfBounds, "v[(int)x[t]"),
    "a mask without the caller": ("out[t] = __shfl_sync(0xffff, (float)t, 3);", 32, kernels.BarrierError, "__shfl_sync"),
    "barrier for some": ("__shared__ float s[64];\n  s[t] = 1;\n  if (x[t] == 0 && t < 40)\n    __syncthreads();\n  out[t] = s[t];",
                         64, kernels.BarrierError, "__syncthreads"),
    "shuffle in a branch": ("float v = t;\n  if (x[t] == 0 && t < 16)\n    v += __shfl_xor_sync(0xffffffff, v, 16);\n  out[t] = v;",
                            32, kernels.BarrierError, "__shfl_xor_sync"),
    "four floats from one on": ("if (t < 8) ((float4*)out)[t] = *(float4*)(x + 4 * t + 1);", 32, kernels.Misaligned, "x + 4 * t + 1"),
    "two floats at an odd place": ("if (t < 8) *(float2*)(out + 3 * t) = make_float2(1, 2);", 32, kernels.Misaligned, "3 * t"),
}  # fmt: skip


FAST = ("one too many", "no barrier, reversal", "barrier for some", "shuffle in a branch")


@pytest.mark.parametrize("name", most_are_slow(CUDA, FAST))
def test_faults_of_cuda_are_named_with_their_line(name):
    body, threads, kind, words = CUDA[name]
    compiled = kernels.compile(f"{HEAD}  {body}\n}}", "k", "A100", threads=threads)
    with pytest.raises(kind) as error:
        kernels.run(
            compiled, 4 if "blocks" in name else 1, threads, torch.zeros(100), torch.zeros(100), 100
        )
    assert words in str(error.value).partition(", in line ")[2]


@triton.jit
def unmasked(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, v, mask=at < n)


@triton.jit
def rows_too_wide(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out + row * columns + at, v * 2)


@triton.jit
def column(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at * n)
    tl.store(out + at, v)


@triton.jit
def large_product(a, b, c, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    left = tl.load(a + at[:, None] * TILE + at[None, :])
    right = tl.load(b + at[:, None] * TILE + at[None, :])
    tl.store(c + at[:, None] * TILE + at[None, :], tl.dot(left, right, input_precision="ieee"))


def run_triton(kernel, *arguments, card="A100", **constants):
    signature = dict(zip(kernel.arg_names, arguments, strict=False)) | constants
    compiled = kernels.compile(kernel, signature, card)
    return kernels.run(compiled, 3, None, *[signature[name] for name in compiled.parameters])


def test_a_load_without_a_mask_is_named():
    with pytest.raises(
        kernels.OutOfBounds,
        match=r"x\[100\], 1 element past the end of x .*line 3: v = tl.load\(x \+ at\)",
    ):
        run_triton(unmasked, torch.zeros(100), torch.zeros(100), 100, BLOCK=64)


def test_a_store_without_a_mask_is_named():
    with pytest.raises(kernels.OutOfBounds, match=r"write|store of .* out\[30\].*line 5: tl.store"):
        run_triton(rows_too_wide, torch.zeros(3, 10), torch.zeros(3, 10), 10, BLOCK=16)


def test_a_view_that_is_not_aligned_is_named():
    """The compiler was promised addresses divisible by 16; a view that begins one element later breaks the promise."""
    x, out = torch.zeros(400), torch.zeros(384)
    compiled = kernels.compile(
        unmasked, {"x": x, "out": out, "n": 384, "BLOCK": 128}, "A100", num_warps=1
    )
    with pytest.raises(kernels.Misaligned, match="line 3: v = tl.load"):
        kernels.run(compiled, 3, None, x[1:385], out, 384)


def test_integers_that_break_the_promise_are_refused():
    x, out = torch.zeros(112), torch.zeros(112)
    compiled = kernels.compile(unmasked, {"x": x, "out": out, "n": 112, "BLOCK": 16}, "A100")
    with pytest.raises(ValueError, match="n is 100; this code was compiled for multiples of 16"):
        kernels.run(compiled, 7, None, x, out, 100)


def named(result, what):
    return [(line.text, words) for kind, line, words in result.findings() if kind == what]


def test_a_column_is_found_as_uncoalesced():
    result = run_triton(column, torch.zeros(64, 64), torch.zeros(64), 64, BLOCK=64)
    [(line, words)] = named(result, "uncoalesced")
    assert line == "v = tl.load(x + at * n)" and words.startswith("32 sectors per request where 4")


STRIDED = {
    "every fourth": ("out[i] = x[4 * (i % 25)];", "x[4 * (i % 25)]"),
    "a structure's first field": (
        "float4* p = (float4*)x;\n  if (t < 25) out[t] = p[t].x;",
        "p[t].x",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRIDED)
def test_strides_are_found(name):
    body, line = STRIDED[name]
    compiled = kernels.compile(f"{HEAD}  {body}\n}}", "k", "A100", threads=64)
    result = kernels.run(compiled, 1, 64, torch.zeros(100), torch.zeros(100), 100)
    assert any(line in text for text, _ in named(result, "uncoalesced"))


CONFLICTS = {
    "a column of 32": (
        "__shared__ float s[32][32];\n  s[t][t / 40] = t;",
        "s[t][t / 40]",
        "32-way",
    ),
    "every eighth": ("__shared__ float s[512];\n  s[8 * t] = t;", "s[8 * t]", "8-way"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFLICTS)
def test_bank_conflicts_are_found(name):
    body, line, way = CONFLICTS[name]
    text = f"{HEAD}  {body}\n  __syncthreads();\n  if (t == 0) out[0] = ((float*)s)[0];\n}}"
    compiled = kernels.compile(text, "k", "A100", threads=32)
    result = kernels.run(compiled, 1, 32, torch.zeros(100), torch.zeros(100), 100)
    [(found, words)] = named(result, "bank conflict")
    assert line in found and way in words


def test_arithmetic_in_fewer_bits_than_the_tensors_have_is_found():
    """A kernel that is fast because it computes in half precision must not pass for one of float32."""
    half = (
        "#include <cuda_fp16.h>\n"
        + HEAD
        + "  out[t] = __half2float(__hmul(__float2half(x[t]), __float2half(3)));\n}"
    )
    cut = half.replace("__hmul(__float2half(x[t]), __float2half(3))", "__float2half(3 * x[t])")
    for text, count in ((half, 1), (cut, 1), (HEAD + "  out[t] = 3 * x[t];\n}", 0)):
        compiled = kernels.compile(text, "k", "A100", threads=32)
        result = kernels.run(compiled, 1, 32, torch.zeros(100), torch.zeros(100), 100)
        assert len(named(result, "fewer bits")) == count
    for precision, count in (("tf32", 1), ("tf32x3", 0), ("ieee", 0)):
        a, b, c = torch.randn(3, 32, 32)
        result = run_triton(product_in, a, b, c, PRECISION=precision)
        assert len(named(result, "fewer bits")) == count


@triton.jit
def product_in(a, b, c, PRECISION: tl.constexpr):
    at = tl.arange(0, 32)
    left = tl.load(a + at[:, None] * 32 + at[None, :])
    right = tl.load(b + at[:, None] * 32 + at[None, :])
    tl.store(c + at[:, None] * 32 + at[None, :], tl.dot(left, right, input_precision=PRECISION))


def test_spills_are_found_with_their_line():
    compiled = kernels.compile(
        large_product, {"a": "*fp32", "b": "*fp32", "c": "*fp32", "TILE": 64}, "A100"
    )
    assert compiled.stack > 0 and compiled.spills
    assert "tl.dot" in next(iter(compiled.spills)).text


def test_spills_of_cuda_are_found():
    text = """extern "C" __global__ void k(float* x, float* out) {
  float v[96];
  for (int j = 0; j < 96; j++) v[j] = x[threadIdx.x + 32 * j];
  for (int s = 0; s < 9; s++)
    for (int j = 0; j < 96; j++) v[j] = v[j] * v[(j + 7) % 96] + s;
  for (int j = 0; j < 96; j++) out[threadIdx.x + 32 * j] = v[j];
}"""
    tight = kernels.compile(text, "k", "A100", threads=32, flags=("--maxrregcount=32",))
    loose = kernels.compile(text, "k", "A100", threads=32)
    assert (tight.registers, loose.stack, loose.spills) == (32, 0, {}) and tight.stack > 0
    assert all(1 <= line.number <= 7 for line in tight.spills)


def test_what_is_not_executed_is_refused_by_name():
    compiled = kernels.compile(
        large_product, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "TILE": 64}, "H100"
    )
    assert "HGMMA" in compiled.tensor_cores
    with pytest.raises(
        kernels.Unsupported, match=r'(wgmma|mbarrier|fence)\S* isn.t executed here.*card="A100"'
    ):
        kernels.run(compiled, 1, None, *torch.zeros(2, 64, 64).half(), torch.zeros(64, 64))


def run_cuda(body, threads=32, grid=1, arguments=None, **options):
    compiled = kernels.compile(f"{HEAD}  {body}\n}}", "k", "A100", threads=threads)
    x, out = arguments or (torch.zeros(100), torch.zeros(100))
    kernels.run(compiled, grid, threads, x, out, 100, **options)
    return out


def test_a_loop_in_which_nothing_changes_ends_at_once():
    with pytest.raises(kernels.Endless, match="waits for ever.*line 3"):
        run_cuda("while (((volatile float*)x)[0] == 0);")


def test_a_loop_without_end_ends_after_its_time():
    """A learner's kernel that hangs must not hang the notebook."""
    with pytest.raises(kernels.Endless, match="no end after 0.5 seconds, 0 of 1 blocks.*line 3"):
        run_cuda("for (unsigned v = t; v != 7; v = 3 * v + 6) if (v == 5) out[0] = v;", limit=0.5)


def test_threads_that_have_returned_are_not_waited_for():
    """CUDA C++ Programming Guide, Independent Thread Scheduling: a barrier counts all threads that haven't exited."""
    out = run_cuda(
        "__shared__ float s[64];\n  s[t] = t;\n  if (t > 50) return;\n  __syncthreads();\n  out[t] = s[50 - t];",
        64,
    )
    assert out[:51].tolist() == list(range(50, -1, -1)) and not out[51:].any()


ALLOWED = {  # name → (body, threads, blocks): correct, though two threads touch one place
    "the same flag": ("if (x[t] == 0) out[7] = 1;", 64, 3),
    "the last block sums": ("__shared__ bool last;\n  if (t == 0) { out[1 + blockIdx.x] = i; __threadfence();\n"
                            "    last = atomicAdd((int*)out, 1) == gridDim.x - 1; }\n  __syncthreads();\n"
                            "  if (last && t == 0) { float v = 0; for (int b = 0; b < 4; b++) v += ((volatile float*)out)[1 + b]; out[9] = v; }",
                            64, 4),
    "a flag in shared memory": ("__shared__ volatile int ready; __shared__ float s;\n  if (t == 0) ready = 0;\n"
                                "  __syncthreads();\n  if (t == 0) { s = 3; __threadfence_block(); ready = 1; }\n"
                                "  else while (!ready);\n  out[t] = s;", 64, 1),
    "what is read before and never counts": ("__shared__ float s[64];\n  if (t < 32) s[t] = x[t];\n  __syncthreads();\n"
                                             "  float v = s[t];\n  out[t] = t < 32 ? v : 1;", 64, 1),
    "a neighbor that is read and not used": ("float v[2];\n  for (int j = 0; j < 2; j++) v[j] = x[min(99, i + 64 * j)];\n"
                                             "  for (int j = 0; j < 2; j++) if (i + 64 * j < 100) x[i + 64 * j] = v[j] + 1;", 64, 1),
    "lanes that left, not used": ("if (t % 32 < 20)\n    for (int o = 16; o; o /= 2) {\n"
                                  "      float w = __shfl_down_sync(0xfffff, x[t], o); if (t % 32 + o < 20) out[t] += w; }", 64, 1),
    "another warp's sums, not used": ("__shared__ volatile float s[80];\n  s[t] = x[t];\n  __syncwarp();\n"
                                      "  for (int o = 16; o; o /= 2) { float w = s[t + o]; __syncwarp(); s[t] += w; __syncwarp(); }\n"
                                      "  if (t % 32 == 0) out[t] = s[t];", 64, 1),
    "barriers with a number": ("__shared__ float s[128];\n  s[t] = t;\n"
                               "  asm volatile(\"bar.sync %0, 64;\" :: \"r\"(1 + t / 64));\n  out[t % 64] = 1; x[t % 100] = s[t ^ 32] * 0;", 128, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_correct_kernels_are_not_accused(name):
    body, threads, blocks = ALLOWED[name]
    run_cuda(body, threads, blocks)


def test_an_output_is_written_whole_and_an_input_is_not():
    """Cheats of generated kernels: they change their input, or leave the output as it was."""
    texts = {
        "if (i < 90) out[i] = x[i];": "10 of 100 elements of out are never written, the first out\\[90\\]",
        "if (i < 100) { out[i] = 1; x[i] = 0; }": "x\\[0\\] is written, and it isn't among the outputs",
    }
    for body, words in texts.items():
        with pytest.raises(kernels.Contract, match=words):
            run_cuda(body, 128, outputs=("out",))
    with pytest.raises(kernels.Uninitialized, match="line 3"):
        run_cuda("if (i < 100) out[i] += x[i];", 128, outputs=("out",))
    run_cuda("if (i < 100) { out[i] = x[i]; x[i] = 0; }", 128, outputs=("out",), inplace=("x",))


def test_blocks_meet_at_a_barrier_of_the_grid():
    """A cooperative launch: what all blocks wrote before it is there behind it, and no race is seen between them."""
    text = (
        "#include <cooperative_groups.h>\n"
        + HEAD
        + """  auto grid = cooperative_groups::this_grid();
  for (int step = 0; step < 3; step++) {
    out[i] = x[(i + 40) % 128] + 1;
    grid.sync();
    x[i] = out[i];
    grid.sync();
  }
}"""
    )
    x, out = torch.arange(128.0), torch.zeros(128)
    compiled = kernels.compile(text, "k", "A100", threads=32)
    kernels.run(compiled, 4, 32, x, out, 128)
    assert torch.equal(x, torch.arange(128.0).roll(-120) + 3)
    with pytest.raises(kernels.Unsupported, match="2,000 blocks .* 1,024 blocks run at once"):
        kernels.run(compiled, 2000, 32, x, out, 128)


LOCK = "while (atomicCAS((int*)x, 0, 1));\n  __threadfence();\n  out[0] += 1;\n  __threadfence();\n  atomicExch((int*)x, 0);"


def test_a_lock_is_handed_over_between_blocks():
    """A correct kernel with a lock must not be called endless."""
    assert run_cuda(f"if (t == 0) {{ {LOCK} }}", 64, grid=6)[0] == 6


def test_a_lock_is_handed_over_within_a_warp():
    assert run_cuda(LOCK, 32)[0] == 32


@triton.jit
def locked_sum(x, out, lock, BLOCK: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = out + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + v)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_lock_is_handed_over_between_triton_programs():
    """The backward pass of Triton's own layer norm waits like this."""
    x, out, lock = torch.randn(3, 64), torch.zeros(64), torch.zeros(1, dtype=torch.int32)
    run_triton(locked_sum, x, out, lock, BLOCK=64)
    torch.testing.assert_close(out, x.sum(0))


def test_rounding_towards_zero_is_executed_or_refused_never_ignored():
    """A conversion that rounds otherwise than it says is a wrong result without an error."""
    text = "#include <cuda_fp16.h>\n" + HEAD + "  out[t] = __half2float(__float2half_rz(x[t]));\n}"
    x, out = torch.tensor([1.0009, -1.0009, 3.0, 0.1] * 8), torch.zeros(32)
    kernels.run(kernels.compile(text, "k", "A100", threads=32), 1, 32, x, out, 32)
    assert out[:3].tolist() == [1.0, -1.0, 3.0] and 0 < 0.1 - out[3].item() < 1e-4
    third = torch.full((32,), 1 / 3)
    text = f"{HEAD}  out[t] = __fmul_rd(x[t], x[t]);\n}}"
    kernels.run(kernels.compile(text, "k", "A100", threads=32), 1, 32, third, out, 32)
    exact = third[0].double() ** 2
    assert out[0].double() <= exact < torch.nextafter(out[0], torch.tensor(1.0)).double()
    text = f"{HEAD}  ((double*)out)[t % 8] = __dadd_rd(((double*)x)[t % 8], 0.1);\n}}"
    compiled = kernels.compile(text, "k", "A100", threads=32)
    with pytest.raises(kernels.Unsupported, match="add.rm.f64"):
        kernels.run(compiled, 1, 32, x, out, 32)
