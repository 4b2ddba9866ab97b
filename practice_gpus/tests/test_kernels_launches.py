"""Triton programs as they are: `kernel[grid](…)` on practice GPUs or the CPU, with what Triton itself does at a launch."""

import subprocess
import sys
import time

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
import triton.language as tl  # noqa: E402
from triton.language.extra import libdevice  # noqa: E402

from practice_gpus import kernels, practice_gpus  # noqa: E402

FACTOR = tl.constexpr(2.0)


@triton.jit
def twice(x):
    return x * FACTOR


@triton.autotune([triton.Config({"BLOCK": b}) for b in (256, 512)], key=["n"])
@triton.heuristics({"EVEN": lambda values: values["n"] % values["BLOCK"] == 0})
@triton.jit
def add(x, both, out, bias, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, scale=3.0):
    y, z = both
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = (
        twice(tl.load(x + places, mask=places < n)) + tl.load(y + places, mask=places < n) * scale
    )
    value += libdevice.trunc(tl.load(z + places, mask=places < n))
    if bias is not None:
        value += tl.load(bias)
    tl.store(out + places, value, mask=places < n)


@triton.jit
def convert(x, out, counts, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    value = tl.load(x + places, mask=places < n, other=0.0)
    tl.store(out + places, value.to(out.dtype.element_ty), mask=places < n)
    tl.store(counts + places, tl.load(counts + places, mask=places < n) + 1, mask=places < n)


def run_add(device):
    x, y, z, out = (torch.randn(1000, device=device) for _ in range(4))
    grid = lambda values: (triton.cdiv(1000, values["BLOCK"]),)  # noqa: E731
    add[grid](x, (y, z), out, None, 1000)
    torch.testing.assert_close(out, 2 * x + 3 * y + z.trunc())
    add[grid](x, (y, z), out, torch.ones(1, device=device), 1000, scale=2.0)
    torch.testing.assert_close(out, 2 * x + 2 * y + z.trunc() + 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_launch_on_a_practice_gpu_is_tritons_with_tuning_heuristics_defaults_none_and_tuples(
    asynchronous,
):
    with practice_gpus(1, asynchronous=asynchronous, real="hide"), kernels.launches() as seen:
        run_add(triton.runtime.driver.active.get_active_torch_device())
        assert add.best_config.kwargs == {"BLOCK": 2**18} or add.best_config.kwargs == {
            "BLOCK": 256
        }
        assert [each.compiled.name for each in seen] == ["add", "add"], "tuning runs nothing"
        line = seen[0].of("global", "load")[0].line
        assert line.text == __import__("linecache").getline(__file__, line.number).strip()
        with pytest.raises(
            ValueError, match=r"Pointer argument \(at 1\) cannot be accessed from Triton"
        ):
            x = torch.zeros(4, device="cuda")
            convert[(1,)](x, torch.zeros(4), x, 4, BLOCK=4)


def test_float8_and_unsigned_tensors_and_those_of_the_cpu_are_taken():
    x = torch.randn(64)
    out, counts = torch.empty(64, dtype=torch.float8_e5m2), torch.arange(64).to(torch.uint32)
    with kernels.launches():
        run_add("cpu")
        convert[(1,)](x, out, counts, 64, BLOCK=64)
    assert torch.equal(out.float(), x.to(torch.float8_e5m2).float())
    assert torch.equal(counts.long(), torch.arange(64) + 1)


def test_where_nothing_could_run_the_refusal_names_the_way():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with kernels.launches():
        pass  # from here on Triton asks us
    with pytest.raises(
        RuntimeError, match=r"0 active drivers.*practice_gpus\(\).*practice_gpus\.kernels\.launches"
    ):
        run_add("cpu")


def test_times_are_refused_and_a_benchmark_is_left_out():
    """A tutorial ends with its benchmark; invented times would be worse than none."""
    chart = triton.testing.Benchmark(["n"], [2**27], "p", ["a"], ["a"], "chart", {})
    with practice_gpus(1, real="hide"):
        with pytest.raises(NotImplementedError, match="do_bench needs a real GPU"):
            triton.testing.do_bench(lambda: None)
        with pytest.warns(RuntimeWarning, match="perf_report.* left out"):
            triton.testing.perf_report(chart)(lambda n, p: 1 / 0).run(print_data=True)


def test_products_by_triton_s_cublas_are_pytorch_s():
    """The ninth tutorial ended at its first lines: could not find libcublas.so."""
    from triton._C.libtriton import nvidia

    with practice_gpus(1, real="hide"):
        a, b, c = torch.randn(8, 4).cuda(), torch.randn(6, 4).cuda(), torch.empty(8, 6).cuda()
        blas = nvidia.cublas.CublasLt(torch.empty(16, device="cuda"))
        blas.matmul(a, b, c)
        torch.testing.assert_close(c, a @ b.T)
        blas.gemm(a, b, c, c, 2.0, -1.0)
        torch.testing.assert_close(c, a @ b.T)


@triton.jit
def bomb(x, out, KIND: tl.constexpr):
    total = 0.0
    if KIND == "unrolled":
        for step in tl.static_range(10_000_000):
            total += step
        tl.store(out, total)
    else:
        places = tl.arange(0, 1024)
        tile = places[:, None] * 1024 + places
        tl.store(out + tile, tl.sort(tl.trans(tl.load(x + tile))))


@pytest.mark.parametrize("kind", ["unrolled", "large"])
def test_a_launch_that_would_compile_for_minutes_ends_in_time(kind):
    """A tile of 1024 x 1024 took Triton ten minutes, in which nothing could be done."""
    x = torch.zeros(1024, 1024)
    with kernels.launches(compile_limit=2) as seen:
        before = time.monotonic()
        with pytest.raises(kernels.CompileTimeout, match="bomb: no code after 2 seconds"):
            bomb[(1,)](x, x, kind)
        assert time.monotonic() - before < 10 and not seen
    with kernels.launches() as seen:
        convert[(1,)](x, x, torch.zeros(4, dtype=torch.int32), 4, BLOCK=4)
    assert seen, "what comes next compiles again"


def test_an_author_can_say_what_a_kernel_must_not_cost(kernel_counts):
    x = torch.randn(64)
    convert[(1,)](x, torch.empty(64), torch.zeros(64, dtype=torch.int32), 64, BLOCK=64)
    [counts] = kernel_counts
    assert counts.bank_conflicts == 0 and counts.sectors_per_request("load") <= 4


PROGRAM = """
import torch, triton, triton.language as tl
DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + places, 1.0, mask=places < n)

x = torch.zeros(1000, device=DEVICE)
fill[(4,)](x, 1000, BLOCK=256)
print(x.sum())
"""


@pytest.mark.parametrize("command", [[], ["kernel"]], ids=["the report", "the command"])
def test_an_unchanged_program_runs(command, tmp_path):
    """The official tutorials failed at their first line: 0 active drivers."""
    (tmp_path / "fill.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "practice_gpus", *command, str(tmp_path / "fill.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tensor(1000., device='cuda:0')" in done.stdout
    if "kernel" in command:
        assert "fill on A100" in done.stdout and "store of global memory" in done.stdout
