"""Run programs that were written for two GPUs, unedited, on two practice GPUs (or on real ones where there are two)."""

import runpy
from pathlib import Path

import pytest
import torch

from practice_gpus import practice_gpus

FOLDER = Path(__file__).resolve().parent / "two_gpu_code"

# What each program must print, line by line where order is certain.
PRINTED = {
    "split_model": [
        "encoder.0.weight   (32, 10)  cuda:0",
        "head.1.bias        (5,)      cuda:1",
        "loss on cuda:1 fell: True",
        "gradients on cuda:0 and cuda:1",
        "momentum on cuda:0 cuda:0 cuda:1 cuda:1",
        "learned: True",
        "labels on the wrong GPU: Expected all tensors to be on the same device",
    ],
    "data_parallel": [
        "using 2 GPUs",
        "last epoch better than first: True",
        "output (7, 2) on cuda:0",
        "first key: module.layers.0.weight",
        "loaded on cpu same weights: True",
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
