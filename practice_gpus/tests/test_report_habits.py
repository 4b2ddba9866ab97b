"""What the report says of loops, frameworks and ranks: each fault that was planted, and nothing of a sound program."""

import subprocess
import sys

import pytest
import torch

from practice_gpus import __version__, report
from practice_gpus.reports import findings

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")
START = """
    import torch
    from torch import nn
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    def build():
        return nn.Sequential(nn.Linear(256, 64), nn.Dropout(0.1), nn.Linear(64, 4)).to(device)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.rand(640, 256)
    labels = torch.zeros(640, dtype=torch.long)
"""
TRAIN = """
    for step in range(20):
        x = data[step * 32 : step * 32 + 32].to(device)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def found(path, *kinds, **options):
    """[(kind, line)] of the findings of a program, and its report."""
    done = report(path, **options)
    assert done.outcome in ("done", "enough"), done
    return [(f["kind"], f["line"]) for f in done.findings if not kinds or f["kind"] in kinds], done


def line_of(path, text):
    """The number of the line that holds a text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


ONCE = """
    layers = [nn.Linear(8, 8).to(device) for _ in range(12)]
    kept = {str(i): layer.weight.cpu() for i, layer in enumerate(layers)}
"""
LOOP = """
    outputs = []
    for i in range(20):
        outputs.append(model(data[i * 32 : i * 32 + 32].to(device)).cpu())
"""


def test_what_is_copied_once_at_the_end_is_no_loop(write):
    """A user who saves a model would be told to keep it on the GPU."""
    assert found(write(START + TRAIN + ONCE))[0] == []
    path = write(START + TRAIN + LOOP)
    assert found(path)[0] == [("wait", line_of(path, "outputs.append"))]


LIBRARY = """
    import torch
    def fit(model, optimizer, data, device):
        for rows in data.split(1):
            x = torch.stack([row.to(device) for row in rows])
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history = loss.item()
    class Marked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})
"""
FIT = "    from trainer_x import fit\n    fit(model, optimizer, data[:20, :256], device)\n"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Install a framework that reads its loss in each step, and copies its batches."""
    folder = tmp_path / "site-packages"
    (folder / "trainer_x").mkdir(parents=True)
    code = LIBRARY.replace("\n    ", "\n").lstrip()
    (folder / "trainer_x" / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("trainer_x", None)


def test_what_a_framework_does_is_no_finding_and_stands_in_the_table(write, library):
    """A user's CI would fail for what they can't change, and their own findings would drown."""
    path = write(START + FIT)
    places, done = found(path)
    assert places == [] and done.status(strict=True) == 0, done
    assert "in trainer_x, fit" in repr(done) and done.facts["steps"] == 20
    done = report(write(START + FIT + TRAIN + "        print(loss.item())\n"))
    assert len(done.findings) == 1 and done.status(strict=True) == 2


def test_a_number_of_a_class_of_tensors_is_read_by_who_asks_for_it(write, library):
    """`loss.item()` of a MetaTensor would be the framework's wait, and no finding."""
    path = write(
        START
        + "    from trainer_x import Marked\n"
        + TRAIN
        + "        loss.as_subclass(Marked).item()\n"
    )
    assert found(path)[0] == [("wait", line_of(path, "loss.as_sub"))]


BATCHES = """
    batches = [torch.ones(4, 256) for _ in range(4)]
    for epoch in range(5):
        for batch in batches:
            model(batch.to(device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def test_the_batches_of_the_next_epoch_are_not_the_same_batch(write):
    """A user would be told to copy a data set "once, before the loop"."""
    assert found(write(START + BATCHES))[0] == []


OWN_CLASS = """
    class Descent:
        def __init__(self, parameters): self.parameters = list(parameters)
        def step(self):
            for p in self.parameters: p.data.add_(p.grad.data, alpha=-0.1)
        def zero_grad(self):
            for p in self.parameters: p.grad = None
    optimizer = Descent(model.parameters())
"""


def test_steps_of_any_optimizer_count_and_end_a_run(write, capsys):
    """A fastai user would read "0 training steps", and --steps would never end."""
    places, done = found(write(START + OWN_CLASS + TRAIN))
    assert done.facts["steps"] == 20 and done.facts["pace"] and places == []
    done = report(write(START + OWN_CLASS + TRAIN + "        print('step', step)\n"), steps=3)
    assert done.outcome == "enough" and done.facts["steps"] == 3
    assert capsys.readouterr().out.split()[-2:] == ["step", "2"]
    text = START.replace("nn.Dropout(0.1)", "nn.BatchNorm1d(64)") + TRAIN.replace("20", "4")
    assert report(write(text)).facts["steps"] == 4, "averages of batch norm are no weights"


SEVERAL = """
    keep = []
    for width in range(4):
        model = build()
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(6):
            optimizer.zero_grad()
            model(data[:32].to(device)).mean().backward()
            optimizer.step()
        keep.append((model, optimizer))
"""


def test_several_trainings_add_up_and_models_that_stay_are_no_leak(write):
    """A grid search would seem to be one short run, with a leak."""
    last = SEVERAL.replace(
        "model(data[:32].to(device))", "model.last = model(data.to(device)); model.last"
    )
    for text in (SEVERAL, last):  # a policy keeps what it gave last
        places, done = found(write(START + text), "leak")
        assert done.facts["steps"] == 24 and places == [], done
    text = START + SEVERAL.replace("keep.append((model, optimizer))", "pass")
    leak = text.replace(
        "            optimizer.step()",
        "            optimizer.step(); keep.append(model(data.to(device)))",
    )
    path = write(leak)
    assert found(path, "leak")[0] == [("leak", line_of(path, "keep.append"))]


def test_a_short_loop_without_an_optimizer_leaks_at_its_line(write):
    """A user's evaluation of thirty batches would fill the card, and the report would be silent."""
    loop = "    kept = []\n    for i in range(30):\n        out = model(data.to(device))\n        kept.append(out)\n"
    path = write(START + loop)
    assert found(path, "leak")[0] == [("leak", line_of(path, "kept.append"))]
    assert (
        found(write(START + loop.replace("append(out)", "append(out.detach())")), "leak")[0] == []
    )


RESETS = {
    "to zero": "optimizer.zero_grad(set_to_none=False)",
    "of the model": "model.zero_grad()",
    "by hand": "[setattr(p, 'grad', None) for p in model.parameters()]",
    "in place": "[p.grad.zero_() for p in model.parameters() if p.grad is not None]",
}


@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_gradients_that_are_reset_in_any_way_are_no_finding(write, reset):
    """A user would be told to write what stands there."""
    assert found(write(START + TRAIN.replace("optimizer.zero_grad()", reset)))[0] == []


def test_gradients_that_are_never_reset_are_named_at_the_step(write):
    """A user's training would diverge without an error."""
    path = write(START + TRAIN.replace("optimizer.zero_grad()", "pass"))
    places, done = found(path)
    assert places == [("kept-gradients", line_of(path, "optimizer.step"))]
    assert "optimizer.zero_grad()" in done.findings[0]["fix"]
    closure = """
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    def closure():
        optimizer.zero_grad()
        loss = model(data.to(device)).square().mean()
        loss.backward()
        return loss
    for step in range(6):
        optimizer.step(closure)
"""
    assert found(write(START + closure), "kept-gradients")[0] == []


EPOCHS = """
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
    sampler = DistributedSampler(TensorDataset(data), num_replicas=2, rank=0)
    loader = DataLoader(TensorDataset(data), batch_size=64, sampler=sampler)
    for epoch in range(3):
        pass
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.to(device)).mean().backward()
            optimizer.step()
"""


def test_a_sampler_that_never_hears_of_epochs_is_named_at_the_loop(write):
    """Each epoch would have the same order."""
    path = write(START + EPOCHS)
    assert found(path)[0] == [("same-epoch", line_of(path, "for (x,)"))]
    assert found(write(START + EPOCHS.replace("pass", "sampler.set_epoch(epoch)")))[0] == []
    once = EPOCHS.replace("range(3)", "range(1)").replace(
        "    for epoch", "    next(iter(loader))\n    for epoch"
    )
    assert found(write(START + once))[0] == []


EVALUATED = """
    for epoch in range(2):
        MODE
        for step in range(5):
            optimizer.zero_grad()
            model((data[step * 32 : step * 32 + 32] + epoch).to(device)).mean().backward()
            optimizer.step()
        model.eval()
"""


def test_a_model_that_is_left_in_eval_is_named_at_the_call(write):
    """From the second epoch on, dropout would be off."""
    path = write(START + EVALUATED.replace("MODE", "pass"))
    places, done = found(path)
    assert places == [("left-in-eval", line_of(path, "model.eval()"))]
    assert "the last 5 steps" in done.findings[0]["text"]
    assert found(write(START + EVALUATED.replace("MODE", "model.train()")))[0] == []
    frozen = EVALUATED.replace("MODE", "model.train(); model[1].eval()").replace(
        "model.eval()", "pass"
    )
    assert found(write(START + frozen))[0] == []
    other = (
        TRAIN
        + "    model.eval()\n    model = build()\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    )
    assert found(write(START + other + TRAIN))[0] == [], "the model that was evaluated is done"


PARTS = """
    loss_of = nn.CrossEntropyLoss()
    for step in range(5):
        for part in range(4):
            rows = slice(step * 128 + part * 32, step * 128 + part * 32 + 32)
            loss = loss_of(model(data[rows].to(device)), labels[rows].to(device))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_means_that_are_added_up_without_scaling_are_named_at_backward(write):
    """A user's step would be four times as large."""
    path = write(START + PARTS)
    places, done = found(path)
    assert places == [("unscaled-accumulation", line_of(path, "loss.backward"))]
    assert "4 backward passes" in done.findings[0]["text"]
    for sound in (
        PARTS.replace("loss.backward()", "(loss / 4).backward()"),
        PARTS.replace("CrossEntropyLoss()", "CrossEntropyLoss(reduction='sum')"),
        PARTS.replace("range(4)", "range(1)"),
        PARTS.replace(
            "        optimizer.step()",
            "        [p.grad.div_(4) for p in model.parameters()]\n        optimizer.step()",
        ),
    ):
        assert found(write(START + sound))[0] == []


RANKS = """
    import sys
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
    def work(rank, mode, file):
        limit = timedelta(seconds=4 if mode == "uneven" else 60)
        dist.init_process_group("nccl", f"file://{file}", limit, rank=rank, world_size=2)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu", rank)
        model = DistributedDataParallel(nn.Linear(16, 4).to(device), device_ids=[rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = TensorDataset(torch.rand(160, 16, generator=torch.Generator().manual_seed(1)))
        sampler = DistributedSampler(rows, seed=rank if mode == "seeds" else 0)
        order = {"sampler": sampler} if mode not in ("same", "uneven") else {}
        steps = 2 + (rank == 0) if mode == "uneven" else 8
        for step, (x,) in enumerate(DataLoader(rows, batch_size=10, **order)):
            if step == steps: break
            optimizer.zero_grad()
            loss = model(x.to(device)).square().mean()
            loss.backward()
            optimizer.step()
            if mode == "sound" and rank == 0: loss.item()
        dist.barrier()
        with torch.no_grad():
            for (x,) in DataLoader(rows, batch_size=10):
                model.module(x.to(device))
        dist.destroy_process_group()
    if __name__ == "__main__":
        mp.spawn(work, (sys.argv[1], sys.argv[2]), 2)
"""


@pytest.mark.parametrize(
    "mode, kind",
    [
        ("same", "same-samples"),
        pytest.param("seeds", "overlap", marks=pytest.mark.slow),
        ("sound", "wait"),
    ],
)
def test_ranks_that_train_on_the_same_samples_are_told(write, tmp_path, mode, kind):
    """A user would pay for GPUs that do each other's work; what all ranks evaluate is their own affair."""
    path = write(RANKS)
    done = report(path, mode, str(tmp_path / "meeting"), n=2)
    assert done.outcome == "done", done
    text = "loss.item" if kind == "wait" else "loss = model"
    assert [(f["kind"], f["line"]) for f in done.findings] == [(kind, line_of(path, text))], done
    assert kind != "wait" or "8 times in 8 steps" in done.findings[0]["text"], "of rank 0 alone"
    assert "samples" not in done.facts, "numbers of all samples in a file"


def test_a_hang_is_told_with_the_last_call_of_each_rank(write, tmp_path):
    """A user whose ranks take different numbers of steps would read "0 training steps"."""
    path = write(RANKS)
    done = report(path, "uneven", str(tmp_path / "meeting"), n=2)
    assert done.outcome == "failed" and done.facts["steps"] >= 2, done
    hang = done.findings[0]
    assert hang["kind"] == "hang", done
    calls = {each["rank"]: each["call"] for each in done.facts["standing"]}
    assert calls == {0: "backward", 1: "barrier"}, done
    barrier = f"rank 1 waits in barrier at program.py:{line_of(path, 'dist.barrier')}"
    assert hang["line"] == line_of(path, "loss.backward") and barrier in hang["text"]


def test_a_hang_that_a_limit_of_the_ci_ends_is_told():
    """A maintainer whose job is ended from outside would read of a signal, and not of the two lines."""
    stands = [{"rank": 0, "call": "backward", "place": ["a.py", 6]}]
    failure = {"text": "SignalException: Process 5 got signal: 15", "place": ["", 0]}
    [hang] = findings.hangs({"standing": stands, "failures": [failure]})
    assert hang["text"] == "rank 0 waits in backward at a.py:6"


def test_a_number_that_stood_in_is_named_where_it_breaks_a_shape(write):
    """Whoever runs on shapes alone would look for a mistake of their own."""
    text = """
        size = int(torch.arange(4, device=device).max()) + 1
        nn.functional.cross_entropy(model(data[:size].to(device)), labels[:5].to(device))
    """
    path = write(START + text.replace("\n        ", "\n    "))
    [told] = report(path, shapes=True).findings
    assert (
        told["kind"] == "stand-in" and f"program.py:{line_of(path, 'size = int')}" in told["text"]
    )
    assert "each number that's read is 1" in told["text"]
    assert report(path).findings == []


def command(*arguments):
    """What ``python -m practice_gpus`` returns and prints."""
    line = [sys.executable, "-m", "practice_gpus", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_wrong_options_end_before_the_program_runs(write, tmp_path):
    """A user would lose an hour's run to a folder that isn't there."""
    path = write("print('ran')")
    missing = tmp_path / "none" / "report.json"
    for options in (["--json", missing], ["--html", missing], ["--steps", "0"], ["--json", ""]):
        code, out, err = command(*options, path)
        assert (code, out) == (2, "") and "error: --" in err, err
    assert command("--version")[:2] == (0, f"practice_gpus {__version__}\n")
