"""Instructions beyond those of every day, each from the call that brings it: a kernel that uses one must run, and rightly."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from practice_gpus import kernels  # noqa: E402

HEAD = 'extern "C" __global__ void k(float* x, float* out) {\n  int t = threadIdx.x; int* o = (int*)out;\n'
FP16 = "#include <cuda_fp16.h>\n"


def run(body, x, size=64, threads=32, include="", card="A100"):
    compiled = kernels.compile(f"{include}{HEAD}  {body}\n}}", "k", card, threads=threads)
    out = torch.zeros(size)
    kernels.run(compiled, 1, threads, x.clone(), out)
    return out


T = torch.arange(64.0)
# name → (include, body, threads, what out begins with, as float or int)
SMALL = {
    "atomicAdd of half2": (FP16, "atomicAdd((__half2*)out, __floats2half2_rn(1, 2)); __half2 old = atomicAdd((__half2*)x, __floats2half2_rn(2, 4));\n"
                           "  out[t + 1] = __low2float(old);", 32, None, None),
    "barrier that counts": ("", "int n = __syncthreads_count(t % 3 == 0), a = __syncthreads_and(t < 64), b = __syncthreads_or(t == 70);\n"
                            "  if (t < 64) o[t] = n * 100 + (a != 0) * 10 + (b != 0);", 64, [2210] * 4, int),
    "named barrier": ("", "__shared__ float s[64]; s[t] = x[t];\n  if (t < 32) asm volatile(\"bar.arrive 3, 64;\");\n"
                      "  else { asm volatile(\"bar.sync 3, 64;\"); out[t - 32] = s[t - 32] + 1; }", 64, [1.0, 2.0, 3.0], float),
    "match.all": ("", "int p; unsigned m = __match_all_sync(~0u, t / 32, &p); o[t] = m == ~0u && p;\n"
                  "  m = __match_all_sync(~0u, t, &p); o[t] += 2 * (m == 0 && !p);", 32, [3, 3], int),
    "votes of half a warp": ("", "unsigned m = t < 16 ? 0xffff : 0xffff0000; o[t] = __any_sync(m, t == 20) + 2 * __all_sync(m, t < 16);",
                             32, [2] * 16 + [1] * 16, int),
    "vabsdiff4": ("", "o[t] = __vabsdiffu4(0x01ff0305, 0x03000306); o[t] += __vsadu4(0x01ff0305, 0x03000306);", 32, [0x02FF0001 + 2 + 255 + 1], int),
    "a carry": ("", "unsigned a, b, c; asm(\"add.cc.u32 %0, %3, %4; addc.cc.u32 %1, %3, 0; madc.hi.u32 %2, %3, %4, 0;\"\n"
                " : \"=r\"(a), \"=r\"(b), \"=r\"(c) : \"r\"(-1), \"r\"(t + 1)); o[t] = a + 10 * b + 100 * c;", 32, [100 * 1, 1 + 100 * 2, 2 + 100 * 3], int),
    "a switch": ("", "int v = 0; switch ((int)x[t] % 6) { case 0: v = 5; break; case 1: v = t; break; case 2: v = 7 * t; break;\n"
                 "  case 3: v = -t; break; case 4: v = t * t; break; default: v = 99; }\n  o[t] = v;", 32, [5, 1, 14, -3, 16, 99, 5, 7], int),
    "double functions": ("", "out[t] = pow((double)x[t], 1.5) + sin((double)x[t] * 1e15);", 32, None, None),
    "stmatrix": ("", "__shared__ __align__(16) unsigned short s[64]; unsigned p = __cvta_generic_to_shared(s + 8 * (t % 8)), r = t * 65537 * 2 + 65536;\n"
                 "  asm volatile(\"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};\" :: \"r\"(p), \"r\"(r)); __syncwarp();\n"
                 "  o[t] = s[t]; o[t + 32] = s[t + 32];", 32, list(range(64)), int),
    "a pointer to a table": ("__device__ int table[4] = {7, 8, 9, 10};\n__device__ int* there = table;\n", "o[t] = there[t % 4];", 32, [7, 8, 9, 10], int),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_what_a_call_brings_is_executed(name):
    include, body, threads, expected, kind = SMALL[name]
    out = run(
        body, T, threads=threads, include=include, card="H100" if name == "stmatrix" else "A100"
    )
    if name == "atomicAdd of half2":
        assert out[:1].view(torch.float16).tolist() == [32, 64] and out[1:33].tolist() == list(
            range(0, 64, 2)
        )
    elif name == "double functions":
        x = T[:32].double()
        torch.testing.assert_close(out[:32], (x**1.5 + (x * 1e15).sin()).float())
    else:
        found = out if kind is float else out.view(torch.int32)
        assert found[: len(expected)].tolist() == expected


def listed(first, count):
    return "{" + ",".join(f"%{first + n}" for n in range(count)) + "}"


def test_products_of_wmma_are_pytorchs():
    """What nvcuda::wmma becomes: fragments are loaded, multiplied, stored."""
    load = 'asm("wmma.load.{0}.sync.aligned.{1}.m16n16k16.f16 {2}, [%8], 16;" : {3} : "l"((unsigned short*)x + {4}));'
    registers = {name: ", ".join(f'"=r"({name}[{n}])' for n in range(8)) for name in "ab"}
    floats = ", ".join(f'"+f"(c[{n}])' for n in range(8))
    given = ", ".join(f'"r"({name}[{n}])' for name in "ab" for n in range(8))
    body = f"""unsigned a[8], b[8]; float c[8] = {{1, 1, 1, 1, 1, 1, 1, 1}};
  {load.format("a", "row", listed(0, 8), registers["a"], 0)}
  {load.format("b", "col", listed(0, 8), registers["b"], 256)}
  asm("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {listed(0, 8)}, {listed(8, 8)}, {listed(16, 8)}, {listed(0, 8)};" : {floats} : {given});
  for (int i = 0; i < 8; i++) c[i] *= 2;
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.f32 [%0], {listed(1, 8)}, 16;" :: "l"(out), {floats.replace("+", "")} : "memory");"""
    torch.manual_seed(0)
    a, b = torch.randn(2, 16, 16).half()
    out = run(body, torch.stack([a, b]).view(torch.float32), 256)
    torch.testing.assert_close(out.view(16, 16), 2 * (a.float() @ b.float().T + 1))


def test_products_of_doubles_run_on_tensor_cores():
    body = """double* d = (double*)out; double a = ((double*)x)[t], b = ((double*)x)[32 + t], c0 = 0, c1 = 0;
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+d"(c0), "+d"(c1) : "d"(a), "d"(b));
  d[2 * t] = c0; d[2 * t + 1] = c1;"""
    torch.manual_seed(0)
    a, b = torch.randn(8, 4).double(), torch.randn(8, 4).double()
    out = run(body, torch.cat([a.flatten(), b.flatten()]).view(torch.float32), 128)
    torch.testing.assert_close(out.view(torch.float64).view(8, 8), a @ b.T)


def test_a_barrier_in_shared_memory_orders_its_threads():
    """cuda::barrier, and the copies that it waits for."""
    include = "#include <cuda/barrier>\n"
    body = """__shared__ cuda::barrier<cuda::thread_scope_block> ready; __shared__ float s[64];
  if (t == 0) init(&ready, blockDim.x);
  __syncthreads();
  for (int p = 0; p < 3; p++) {
    s[t] = x[t] + p; ready.arrive_and_wait();
    out[t] += s[63 - t]; ready.arrive_and_wait();
  }"""
    out = run(body, T, threads=64, include=include)
    assert out.tolist() == (3 * T.flip(0) + 3).tolist()


@triton.jit
def waves(x, out, seed, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, tl.sin(v) + tl.cos(v))
    tl.store(out + BLOCK + at, tl.randn(seed, at))


def test_triton_sines_of_large_numbers_and_random_numbers():
    x, out = torch.linspace(-1e6, 1e6, 1024), torch.zeros(2048)
    compiled = kernels.compile(waves, {"x": x, "out": out, "seed": 7, "BLOCK": 1024}, "A100")
    kernels.run(
        compiled, 1, None, *[{"x": x, "out": out, "seed": 7}[n] for n in compiled.parameters]
    )
    torch.testing.assert_close(out[:1024], (x.double().sin() + x.double().cos()).float())
    assert (
        abs(out[1024:].mean()) < 0.15
        and 0.9 < out[1024:].std() < 1.1
        and out[1024:].unique().numel() > 1000
    )


@triton.jit
def product(a, b, c, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    left = tl.load(a + at[:, None] * TILE + at[None, :])
    right = tl.load(b + at[:, None] * TILE + at[None, :])
    tl.store(c + at[:, None] * TILE + at[None, :], tl.dot(left, right))


def test_triton_products_of_eight_bit_floats():
    torch.manual_seed(0)
    a, b = torch.randn(2, 32, 32).to(torch.float8_e4m3fn)
    c = torch.zeros(32, 32)
    compiled = kernels.compile(
        product, {"a": "*fp8e4nv", "b": "*fp8e4nv", "c": "*fp32", "TILE": 32}, "L40"
    )
    kernels.run(compiled, 1, None, a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float())


COPIES = """  __shared__ __align__(16) int s[160]; for (int i = 0; i < 5; i++) s[32 * i + t] = -1; __syncwarp();
  unsigned p = __cvta_generic_to_shared(s + t * {words}); int n = {length};
  asm volatile("{copy}" :: "r"(p), "l"(((int*)x) + t * {words}), {value} : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory"); for (int i = 0; i < {words}; i++) o[t * {words} + i] = s[t * {words} + i];"""


@pytest.mark.parametrize("way, size", [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_asynchronous_copies_fill_with_zeros_what_they_do_not_read(way, size):
    """PTX ISA, cp.async: bytes behind src-size are zeros. A kernel's edge tiles depend on it."""
    words = size // 4
    copy = f"cp.async.{way}.shared.global [%0], [%1], {size}, %2;"
    x = torch.arange(0x01010101, 0x01010101 + 32 * words, dtype=torch.int32)
    body = COPIES.format(words=words, length=f"t % {size + 1}", copy=copy, value='"r"(n)')
    bits = x.view(torch.uint8).view(32, size)
    wanted = torch.where(torch.arange(size) < (torch.arange(32) % (size + 1))[:, None], bits, 0)
    out = run(body, x.view(torch.float32), 32 * words)
    assert torch.equal(out.view(torch.uint8).view(32, size), wanted)
    last = {"words": words, "length": "t == 31 ? 2 : 4", "copy": copy, "value": '"r"(n)'}
    cut = x[: 31 * words + 1].view(torch.float32)  # what isn't read may lie outside
    run(COPIES.format(**last), cut, 32 * words)
    last["length"] = f"{size} + t / 31"
    with pytest.raises(kernels.KernelError, match="told to read more"):
        run(COPIES.format(**last), x.view(torch.float32), 32 * words)


def test_asynchronous_copies_know_a_predicate_and_a_hint_from_a_size():
    """ignore-src copies zeros; a cache policy is no size: taken for one, all was zero."""
    x = torch.arange(1, 33, dtype=torch.int32)
    ignore = "{ .reg .pred q; setp.gt.s32 q, %2, 20; cp.async.ca.shared.global [%0], [%1], 4, q; }"
    body = COPIES.format(words=1, length="t", copy=ignore, value='"r"(n)')
    out = run(body, x.view(torch.float32), 32).view(torch.int32)
    assert torch.equal(out, torch.where(torch.arange(32) > 20, 0, x))
    hint = "{ .reg .b64 q; createpolicy.fractional.L2::evict_first.b64 q, 1.0; cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4%s, q; }"
    for size, wanted in (("", x), (", %2", x & 0xFF)):
        body = COPIES.format(words=1, length="1", copy=hint.replace("%s", size), value='"r"(n)')
        assert torch.equal(run(body, x.view(torch.float32), 32).view(torch.int32), wanted)
