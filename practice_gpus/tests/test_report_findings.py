"""What the report names, and how: memory, leaks without an optimizer, fixes for the whole statement, the end of a run."""

import os
import subprocess
import sys

import pytest
import torch

from practice_gpus import report
from practice_gpus.reports import slow
from practice_gpus.reports.findings import source

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")
START = """
    import torch
    from torch import nn
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.rand(640, 256)
"""
STEP = """
    for step in range(20):
        x = data[step * 32 : step * 32 + 32].to(device)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def found(done, *kinds):
    """[(kind, line)] of the findings, of some kinds alone if any are named."""
    return [(f["kind"], f["line"]) for f in done.findings if not kinds or f["kind"] in kinds]


def line_of(path, text):
    """The number of the first line that holds a text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_sound_program_has_no_findings_and_no_unnamed_memory(write):
    """A user could not tell what fills the card."""
    done = report(write(START + STEP))
    assert done.findings == [], done
    [device] = done.facts["devices"]
    assert sum(device["parts"].values()) == device["peak"] and "other" not in device["parts"]
    weights = 4 * (256 * 256 + 256 + 256 * 4 + 4)
    assert device["parts"]["parameters"] == pytest.approx(weights, rel=0.02)
    assert device["parts"]["gradients"] == pytest.approx(weights, rel=0.02)


@pytest.mark.parametrize("own_sgd", [True, False], ids=["own SGD", "inference"])
def test_a_leak_without_an_optimizer_is_named_at_its_line(write, own_sgd):
    """A user's own loop would fill the card, and the report would be silent."""
    text = """
        import torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
        w = torch.ones(64, 64, device=device, requires_grad=OWN)
        kept = []
        def main():
            for turn in range(200):
                loss = (w * turn).square()
                total = loss.mean()
                if OWN:
                    total.backward()
                    with torch.no_grad():
                        w.sub_(w.grad)
                    w.grad = None
                kept.append(loss)
        main()
    """
    path = write(text.replace("OWN", str(own_sgd)))
    done = report(path)
    assert found(done) == [("leak", line_of(path, "kept.append"))], done
    assert "`kept` keeps" in done.findings[0]["text"]


GROWING = {
    "in place": ("total += loss", "total"),
    "anew": ("total = loss + total", "total"),
    "attribute": ("log.total += 2 * loss", "log.total"),
}


@pytest.mark.parametrize("line, name", GROWING.values(), ids=GROWING)
def test_a_sum_of_losses_with_their_graphs_is_named_at_its_line(write, line, name):
    """A user's graph would grow through the whole epoch, and the report would be silent."""
    start = START + "    from types import SimpleNamespace\n    total = 0\n"
    path = write(start + "    log = SimpleNamespace(total=0)\n" + STEP + f"        {line}\n")
    done = report(path)
    assert found(done) == [("leak", line_of(path, line))], done
    assert done.findings[0]["text"].startswith(f"`{name}` adds up tensors with their graphs")


def test_sums_within_a_step_and_detached_ones_are_no_leaks(write):
    """A user of an RNN, or of gradient accumulation, would be sent to look for a leak where there is none."""
    text = (
        START
        + """
    total = 0
    for step in range(12):
        loss = 0
        for word in range(step + 2):
            loss = loss + model(data[:8].to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
"""
    )
    assert found(report(write(text)), "leak") == []


def test_a_small_batch_is_a_batch_all_the_same(write):
    """A user with two rows of two numbers would be told to make their data on the GPU."""
    text = """
        rows = torch.utils.data.DataLoader(torch.rand(40, 256), batch_size=2)
        narrow = nn.Linear(1, 1).to(device)
        optimizer = torch.optim.SGD(narrow.parameters(), lr=0.1)
        for batch in rows:
            narrow(batch[:, :1].to(device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    assert report(write(START + text.replace("\n        ", "\n    "))).findings == []


def test_lists_that_begin_anew_and_batches_that_are_loaded_at_once_are_no_leaks(write):
    """A user would look for a leak where there is none."""
    text = """
        import torch
        device = "cuda" if torch.cuda.is_available() else "cpu"
        batches = [torch.rand(16, 16).to(device) for _ in range(150)]
        cell = torch.nn.RNNCell(16, 16).to(device)
        for batch in batches[:30]:
            hidden = []
            state = None
            for row in range(40):
                state = cell(batch, state)
                hidden.append(state)
            torch.stack(hidden).mean()
    """
    assert found(report(write(text)), "leak") == []


SEVERAL = """
        a = loss.item()
        b = loss.square().detach().item() * 2
"""
LONG = """
        print("the loss of this step, with a very long text before the number itself is read:", loss.item())
"""
CONSTANT = """
        scale = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).to(device)
"""
AGAIN = """
        weights = data[:100].to(device)
"""
CHOICE = """
        chosen = x[x > 0.5]
"""
LISTED = """
        row = x[0, :8]
        known = [int(number * 9) for number in row]
"""
CLOCK = """
        torch.cuda.synchronize(device=device)
"""
INDICES = """
        x[range(8), 0] = 1.5
"""
FORMAT = """
        text = f"{loss:.3f}"
"""
CAUSAL = """
        layer = nn.TransformerEncoderLayer(256, 2, batch_first=True).to(device)
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)(x[None], mask=x[:, :len(x)])
"""
CONDITION = """
        if loss > 100:
            break
"""
INSIDE = """
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
"""
TWICE = """
        a = loss.item()
        b = loss.item() * 2
"""
OVER = """
        rows = x[:8, 0]
        for index, row in enumerate(rows):
            known = {index: row.item()}
"""
CASES = {
    "loop": (OVER, "wait", "known =", "for … in rows.tolist()"),
    "twice": (TWICE, "wait", "a = loss", "read it once, into a variable"),
    "several": (SEVERAL, "wait", "a = loss", "stack them and read them at once"),
    "long": (LONG, "wait", "print(", "add up on the GPU"),
    "constant": (CONSTANT, "small-copy", "scale =", "make it once"),
    "again": (AGAIN, "again", "weights =", "copy it once, before the loop"),
    "mask": (CHOICE, "wait", "chosen =", "torch.where, or multiply by the mask"),
    "comprehension": (LISTED, "wait", "known =", "for … in row.tolist()"),
    "clock": (CLOCK, "wait", "torch.cuda.sync", "only a clock needs to wait"),
    "indices": (INDICES, "wait", "x[range", "make it on the GPU, device=x.device"),
    "format": (FORMAT, "wait", "text =", "print now and then"),
    "causal": (CAUSAL, "wait", "TransformerEncoder(", "is_causal=True or False"),
    "condition": (CONDITION, "wait", "if loss", "a condition needs the number"),
    "inside PyTorch": (INSIDE, "wait", "nn.utils.clip", "total_norm reads numbers of the GPU"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fix_fits_the_whole_statement(write, case):
    """A user would follow advice for something else."""
    code, kind, text, fix = case
    path = write(START + STEP + code)
    done = report(path)
    assert found(done) == [(kind, line_of(path, text))], done
    assert fix in done.findings[0]["fix"]


def test_a_line_with_semicolons_is_quoted_as_it_stands(write):
    """A user would look for a statement that doesn't wait, and be told what doesn't fit it."""
    path = write(START + STEP + "        a = loss.item(); b = 2; c = step\n")
    [advice] = report(path).findings
    assert advice["text"].startswith("`loss.item()` waits 20 times") and "add up" in advice["fix"]
    assert source(str(path), line_of(path, "b = 2")) == "a = loss.item(); b = 2; c = step"


def test_a_file_with_a_whole_module_gets_no_advice_that_would_fail(write):
    """`weights_only=True` refuses such a file."""
    text = "import torch\nmodel = torch.load('model.pt')\nmodel.eval()"
    path = write(f"if False:\n    {text.replace(chr(10), chr(10) + '    ')}")
    [advice] = report(path).findings
    assert advice["kind"] == "map_location" and "weights_only" not in advice["fix"]


def test_defaults_and_fallbacks_are_no_findings(write):
    """A user would be told to change what another line decides."""
    text = """
        import torch
        def load(path, device=torch.device("cuda")):
            return torch.load(path, device)
        try:
            scaler = torch.amp.GradScaler("cpu")
        except AttributeError:
            scaler = torch.cuda.amp.GradScaler()
        def move(x):
            return x.to("cuda")
    """
    path = write(text)
    assert found(report(path)) == [("hard-coded", line_of(path, "return x.to"))]
    meets = "torch.distributed.init_process_group(backend='nccl')"
    nccl = report(write(text.rstrip() + f"\n        def meet():\n            {meets}\n"))
    assert nccl.outcome == "done" and found(nccl) == [], "a program of NCCL's needs GPUs"


def test_steps_end_after_the_last_line_of_the_step(write, capsys):
    """The last lines of the last step, which print what the user waits for, would be missing."""
    done = report(write(START + STEP + "        print('step', step)\n"), steps=3)
    assert done.outcome == "enough" and done.facts["steps"] == 3
    assert capsys.readouterr().out.split() == ["step", "0", "step", "1", "step", "2"]


def test_steps_are_those_of_the_training_not_of_each_optimizer(write):
    """A GAN's report would count twice as many."""
    text = START + "    other = torch.optim.SGD(model.parameters(), lr=0.1)\n" + STEP
    done = report(write(text + "        other.step()\n"))
    assert done.facts["steps"] == 20 and "20 training steps" in repr(done)


PIN = """
    from torch.utils.data import DataLoader, TensorDataset
    for (x,) in DataLoader(TensorDataset(torch.rand(640, 256)), batch_size=32, pin_memory=PINNED):
        loss = model(x.to(device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_the_last_line_forecasts_a_step_and_names_what_keeps_it_waiting(write):
    """A user would not learn how long a step takes on a GPU, or would take a guess for a measurement."""
    work = "        for _ in range(20): x = torch.relu(x @ x.t()) @ x\n"
    start = START.replace("640", "16384").replace("256", "2048") + STEP.replace("20", "5")
    start = start.replace("* 32", "* 1024").replace("+ 32", "+ 1024")
    done = report(write(start + work + "        float(x.sum())\n"), shapes=True)
    times = done.facts["pace"]["cards"]
    assert [name for name, *_ in times] == ["T4 (16 GB)", "A100 (40 GB)"]
    assert all(low < ms < high for _, ms, low, high in times)
    assert times[1][1] < times[0][1] / 2
    last = repr(done).splitlines()[-1]
    assert last.startswith("forecast  a step takes about ") and " on T4, about " in last
    few = repr(report(write(START + STEP + "        loss.item()\n"))).splitlines()[-1]
    assert "about" not in few and "overhead-bound" in few, "the CPU decides: a range, no number"
    assert "forecast" not in repr(report(write("import torch\ntorch.ones(3).cuda()")))


def test_workers_that_load_data_are_forked_while_a_step_is_forecast(write):
    """A user's second loader would end the program."""
    text = """
        from torch.utils.data import DataLoader, TensorDataset
        big = TensorDataset(torch.rand(8, 300_000))
        [x.mean() for (x,) in DataLoader(big, batch_size=4, num_workers=1)]
    """
    assert report(write(START + STEP.replace("20", "2") + text)).outcome == "done"


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "pageable"])
def test_the_hint_for_pinned_memory_names_the_missing_half_for_batches_only(write, pinned):
    """A user would pin what is pinned, or look for a model's copies."""
    path = write(START + PIN.replace("PINNED", str(pinned)))
    text = repr(report(path))
    place = f"program.py:{line_of(path, 'x.to(device)')}"
    half = "already pinned; non_blocking=True at " if pinned else "pinned memory (pin_memory=True"
    assert half in text and f"non_blocking=True at {place}, saves 20 waits" in text
    assert "set-up 4 (" in text, "the model's copies in one line"


def test_shapes_alone_need_no_values_and_say_what_stood_in(write):
    """A user would wait for numbers that nobody looks at."""
    text = START.replace("256", "16384") + STEP.replace("20", "2") + "        a = loss.item()\n"
    done = report(write(text.replace("640", "64")), shapes=True)
    assert done.outcome == "done", done
    assert done.facts["devices"][0]["peak"] > 4 * 16384**2 * 4
    assert "replaced  values (1.0 instead) at program.py:" in repr(done)


def test_a_step_that_takes_long_is_told_early(write, monkeypatch, capsys):
    """A user would wait without a word."""
    monkeypatch.setattr(slow, "PERIOD", 0.01)
    monkeypatch.setattr(
        slow, "PATIENCE", 0.05
    )  # of the product's time: at least 0.1 s, and 1 s on two cores
    program = """
        import torch
        x = torch.rand(900, 900, device="cuda")
        for _ in range(60): x @ x
    """
    path = write(program)
    report(path)
    text = capsys.readouterr().err
    assert "without the first step, " in text
    assert f"% of it in program.py:{line_of(path, 'x @ x')}" in text


@pytest.mark.slow
def test_a_script_does_not_see_the_folder_from_which_it_is_started(write, tmp_path):
    """A module that lies there by chance would be imported, and the script would fail without the report."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "by_chance.py").write_text("")
    path = write("import importlib.util as u\nprint(u.find_spec('by_chance'))")
    line = [sys.executable, "-m", "practice_gpus", "--quiet", str(path)]
    done = subprocess.run(
        line, cwd=tmp_path / "elsewhere", env=dict(os.environ), capture_output=True, text=True
    )
    assert done.stdout == "None\n", done.stderr
