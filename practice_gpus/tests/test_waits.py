"""How often the CPU waits for a GPU: lesson 07 counts these waits, and a learner who trusts a wrong count optimises
the wrong line.

`waits.csv` holds calls and their waits on a GPU, each with the file and the function of PyTorch's source that says
so (or PyTorch's own test of them, `test_sync_warning`). Read in November 2026 for PyTorch 2.11 to 2.15; not yet
confirmed on a GPU.
"""

import csv
import pickle
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from practice_gpus.pytorch import operators
from practice_gpus.pytorch.refused import REFUSED

with (Path(__file__).parent / "waits.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


def trained():
    """Parameters on the GPU with gradients."""
    layer = torch.nn.Linear(4, 4, device="cuda")
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    return list(layer.parameters())


def scaled_step():
    """A step of a `GradScaler`, which looks for infinities first."""
    weight = torch.ones(2, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def names():
    """What the calls of the table name."""
    x = torch.rand(4, device="cuda")
    return {
        "torch": torch,
        "pickle": pickle,
        "F": F,
        "x": x,
        "y": torch.rand((), device="cuda"),
        "S": torch.eye(4).to_sparse(),
        "X": torch.rand(4, 4, device="cuda") + 4 * torch.eye(4, device="cuda"),
        "Q": torch.rand(1, 2, 4, 8, device="cuda"),
        "i": torch.arange(3, device="cuda"),
        "i4": torch.arange(4, device="cuda"),
        "c": torch.arange(3),
        "m": torch.arange(4, device="cuda") > 1,
        "mc": torch.arange(4) > 1,
        "r": torch.full((4,), 2, device="cuda"),
        "q": torch.rand(1, device="cuda"),
        "a": torch.rand(4),
        "p": torch.rand(4).pin_memory(),
        "model": torch.nn.Linear(4, 4, device="cuda"),
        "norm": torch.nn.BatchNorm1d(4, device="cuda"),
        "average_norm": torch.nn.BatchNorm1d(4, momentum=None, device="cuda"),
        "trained": trained,
        "scaled_step": scaled_step,
    }


def counted(machine, call):
    """How often the CPU waits in `call`."""
    values = names()
    before = machine.synchronizations
    exec(call, values)
    return machine.synchronizations - before


def test_every_call_of_the_table_waits_as_often_as_pytorch_s_source_says(imitated):
    with imitated(n=2) as machine:
        got = {row["call"]: counted(machine, row["call"]) for row in ROWS}
    wrong = [
        f"{row['call']}: {got[row['call']]}, by its source {row['waits']} ({row['where']})"
        for row in ROWS
        if got[row["call"]] != int(row["waits"])
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", ["x[m] = 0.0", "F.one_hot(i, 4)", "x + 1", "x[i]", "x @ x"])
def test_what_does_not_wait_passes_while_the_queue_is_busy(imitated, call):
    with imitated(asynchronous=True):
        values = names()
        done = threading.Event()
        torch.cuda.current_stream().put(done.wait)
        try:
            exec(call, values)
            assert not torch.cuda.current_stream().query()
        finally:
            done.set()


def test_printing_waits(imitated):
    with imitated() as machine:
        str(torch.ones(2, device="cuda"))
        assert machine.synchronizations >= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a real GPU")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["call"])
def test_a_real_gpu_waits_where_the_table_says_so(row):
    """PyTorch warns of each wait, but for `synchronize`; how often is shown, and may differ by release."""
    if "synchronize()" in row["call"] or "cuda:1" in row["call"]:
        pytest.skip("nothing to see on one GPU")
    values = names()
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            exec(row["call"], values)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = sum("called a synchronizing" in str(one.message) for one in seen)
    print(f"{row['call']}: {waits}, the table says {row['waits']}")
    assert (waits > 0) == (row["waits"] != "0")


def test_the_page_names_all_that_waits_and_all_that_is_refused():
    """Users would trust a list that the code no longer keeps."""
    page = (Path(__file__).parents[1] / "IMITATES.md").read_text(encoding="utf-8")
    for name in (*operators.WAITS, *operators.WAITS_IF):
        assert f"| `{name}` |" in page
    for name in " ".join(REFUSED.values()).split():
        assert f"`{name}`" in page
