"""Counts of textbook accesses, each derived by hand from 32-byte sectors and 32 banks of 4 bytes."""

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
