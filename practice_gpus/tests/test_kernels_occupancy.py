"""Occupancy is NVIDIA's: their own header, compiled with gcc, is asked the same 3,000 questions."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from practice_gpus.kernels.cards import MULTIPROCESSORS, Multiprocessor, multiprocessor
from practice_gpus.kernels.occupancy import occupancy

PROGRAM = r"""
#include <stdio.h>
#include "cuda_occupancy.h"
int main(void) {
  int capability, threads_sm, shared_sm, shared_block, reserved, threads, registers, shared;
  while (scanf("%d %d %d %d %d %d %d %d", &capability, &threads_sm, &shared_sm, &shared_block, &reserved, &threads,
               &registers, &shared) == 8) {
    struct cudaOccDeviceProp p = {0};
    p.computeMajor = capability / 10; p.computeMinor = capability % 10;
    p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = threads_sm;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32;
    p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = shared_sm; p.numSms = 100;
    p.sharedMemPerBlockOptin = shared_block; p.reservedSharedMemPerBlock = reserved;
    struct cudaOccFuncAttributes a = {0};
    a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    a.maxDynamicSharedSizeBytes = shared_block; a.numBlockBarriers = 1;
    struct cudaOccDeviceState s = {0};
    s.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
    struct cudaOccResult r = {0};
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared);
    printf("%d\n", error ? -error : r.activeBlocksPerMultiprocessor);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """Give a function: lines of numbers → blocks on an SM, by NVIDIA's header."""
    triton = pytest.importorskip("triton", exc_type=ImportError)
    found = Path(triton.__file__).parent / "backends/nvidia/include/cuda_occupancy.h"
    if not (shutil.which("gcc") and found.exists()):
        pytest.skip("no gcc, or no cuda_occupancy.h in this Triton")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "ask.c").write_text(PROGRAM)
    command = ["gcc", "-w", "-I", str(found.parent), "ask.c", "-o", "ask", "-lm"]
    subprocess.run(command, cwd=folder, check=True)

    def ask(lines):
        text = "\n".join(" ".join(map(str, line)) for line in lines)
        done = subprocess.run(
            [folder / "ask"], input=text, text=True, capture_output=True, check=True
        )
        return [int(line) for line in done.stdout.split()]

    return ask


def test_3000_combinations_on_five_architectures(header):
    """A wrong occupancy teaches a wrong reason for a slow kernel."""
    chance = random.Random(0)
    ours, lines = [], []
    for capability in (75, 80, 89, 90, 100):
        sm = Multiprocessor("", capability, *MULTIPROCESSORS[capability])
        for _ in range(600):
            threads = chance.choice([chance.randint(1, 1024), 32 * chance.randint(1, 32)])
            registers = chance.randint(1, 255)
            shared = chance.choice(
                [0, chance.randint(0, 49152), chance.randint(0, sm.shared_of_block)]
            )
            limits = (sm.threads, sm.shared, sm.shared_of_block, sm.shared_reserved)
            lines.append((capability, *limits, threads, registers, shared))
            ours.append(occupancy(sm, threads, registers, shared).blocks)
    theirs = header(lines)
    assert len(theirs) == 3000 and min(theirs) >= 0
    assert [each for each in zip(lines, ours, theirs, strict=True) if each[1] != each[2]] == []


def test_what_runs_out_first_is_named():
    sm = multiprocessor("H100")
    assert str(occupancy(sm, 256, 32, 0)) == "100% (8 blocks, 64 warps; limited by warps)"
    assert occupancy(sm, 32, 32, 0).limiter == "blocks"
    assert occupancy(sm, 128, 128, 0).limiter == "registers"
    assert occupancy(sm, 128, 64, 49152).limiter == "shared memory"
    with pytest.raises(ValueError, match="card is 'H1000'; known here: T4, A100"):
        multiprocessor("H1000")
