"""Run programs that were written for two GPUs, unedited, on two practice GPUs (or on real ones where there are two)."""

import runpy
from pathlib import Path

import pytest
import torch

from practice_gpus import practice_gpus

FOLDER = Path(__file__).resolve().parent / "two_gpu_code"

# What each program must print, line by line where order is certain.
PRINTED = {
    "moving_tensors": [
        "GPUs: 2",
        "x_cpu cpu x_0 cuda:0 x_1 cuda:1",
        "still on the CPU: True",
        "        [3., 4., 5.]], device='cuda:1')",
        "z_0 is on cuda:0 sum 36.0",
        "product on cuda:1 [3.0, 3.0, 3.0, 3.0]",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cuda:1!",
        "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
        "to host memory first.",
        "gathered (4, 3) cuda:0",
        "copied True",
        "same object: True other object: False",
        "0-dimensional CPU tensors mix: cuda:1",
        "rows picked by a CPU index: [[3.0, 4.0, 5.0]] cuda:0",
        "back as NumPy: 12.0",
    ],
    "split_model": [
        "encoder.0.weight   (32, 10)  cuda:0",
        "head.1.bias        (5,)      cuda:1",
        "loss on cuda:1 fell: True",
        "gradients on cuda:0 and cuda:1",
        "momentum on cuda:0 cuda:0 cuda:1 cuda:1",
        "learned: True",
        "labels on the wrong GPU: Expected all tensors to be on the same device",
    ],
    "pipeline": [
        "pieces give the same result: True",
        "time measured: True",
        "loss fell: True",
        "stages on: cuda:0 cuda:1",
        "batches seen by BatchNorm: 80",
    ],
    "data_parallel": [
        "using 2 GPUs",
        "last epoch better than first: True",
        "output (7, 2) on cuda:0",
        "first key: module.layers.0.weight",
        "loaded on cpu same weights: True",
    ],
    "device_contexts": [
        "current device: 0 True",
        "inside: 1",
        "a cuda:0",
        "b cuda:1",
        "c cuda:1",
        "d cuda:1",
        "e cuda:1",
        "f cuda:0",
        "device of e: 1",
        "new tensors: cuda:1 explicit: cuda:0",
        "made under torch.device: cuda:1 cuda:1",
        "default: cuda:1 cuda:1",
        "default again: cpu",
        "same random numbers on both: True",
        "in the stream: 1 True",
        "total: 18.0 after: 0",
        "drawn on: cuda:1 repeatable: True",
    ],
    "memory_report": [
        "start                      0.00 /   0.00 |    0.00 /   0.00",
        "model on cuda:1            0.00 /   0.00 |    8.00 /  20.00",
        "batch of 8                 0.00 /   0.00 |   40.00 /  52.00",
        "forward                    0.00 /   0.00 |   72.00 / 116.00",
        "backward                   0.00 /   0.00 |   80.00 / 150.00",
        "first step of Adam         0.00 /   0.00 |   96.00 / 150.00",
        "batch deleted              0.00 /   0.00 |   32.00 / 150.00",
        "cache emptied              0.00 /   0.00 |   32.00 /  52.00",
        "peak on cuda:1 above 144 MiB, on cuda:0 0",
        "free is less than total: True",
        "live blocks on cuda:1: 8",
        "CUDA out of memory: True",
        "gradients dropped          0.00 /   0.00 |   24.00 /  52.00",
        "end                        0.00 /   0.00 |    0.00 /   0.00",
    ],
    "mixed_precision": [
        "output torch.float16 loss torch.float32 weights torch.float32",
        "norm on cuda:0 scale 1024.0",
        "loss fell: True",
        "product torch.bfloat16 inside disabled torch.float32 softmax torch.float32",
        "saved scale: 1024.0",
        "step with inf skipped: True scale 512.0",
    ],
}

# What replicas print from their threads, in whatever order.
FROM_REPLICAS = {"data_parallel": ["input (4, 8) on cuda:0", "input (3, 8) on cuda:1"]}


@pytest.fixture
def two_gpus():
    """Give two GPUs, and leave the default device and the seed as they were."""
    state = torch.get_rng_state()
    with practice_gpus(n=2):
        yield
        torch.set_default_device(None)
    torch.set_rng_state(state)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_program_runs_unedited(name, two_gpus, capsys):
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    rest = capsys.readouterr().out
    for line in FROM_REPLICAS.get(name, []):
        assert line in rest
    for line in PRINTED[name]:
        assert line in rest, f"{line!r} is missing or out of order in\n{rest}"
        rest = rest.split(line, 1)[1]


def test_every_program_is_run_and_none_knows_of_practice():
    programs = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    assert set(programs) == set(PRINTED)
    assert not [name for name, code in programs.items() if "practice" in code or "helpers" in code]
