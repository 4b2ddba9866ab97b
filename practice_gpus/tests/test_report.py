"""The report finds what is wrong in a person's program, at the right line, and nothing where nothing is wrong."""

import re
from pathlib import Path

import pytest
import torch

from practice_gpus import report

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")
SCRIPTS = sorted((Path(__file__).parent / "report_scripts").glob("*.py"))
KINDS = {
    "left": "placement",
    "wait": "wait",
    "small": "small-copy",
    "leak": "leak",
    "hard": "hard-coded",
}


def planted(script, fault, folder):
    """Write a copy of a script with one fault; return its path and the last line of the fault."""
    lines = script.read_text(encoding="utf-8").split("\n")
    wanted = 0
    for number, text in enumerate(lines, 1):
        if f"# @{fault} " in text:
            lines[number - 1] = text.replace(f"# @{fault} ", "", 1)
            wanted = wanted if fault == "wait" and wanted else number
    path = folder / script.name
    path.write_text("\n".join(lines), encoding="utf-8")
    assert wanted
    return path, wanted


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_program_without_faults_has_no_findings(script):
    """A user who is warned about good code stops reading the report."""
    done = report(script, n=2)
    assert done.outcome == "done" and done.status(strict=True) == 0, done
    assert done.findings == [] and "findings  none" in repr(done), done


def planting():
    """Every fault in every script; all but one of each script, two of each fault, are in the slow lane."""
    for i, script in enumerate(SCRIPTS):
        for j, fault in enumerate(KINDS):
            marks = [] if i % len(KINDS) == j else [pytest.mark.slow]
            yield pytest.param(script, fault, marks=marks, id=f"{script.stem}-{fault}")


@pytest.mark.parametrize("script, fault", planting())
def test_a_planted_fault_is_found_at_its_line(script, fault, tmp_path):
    """A user would look for the fault in the wrong place, or not at all."""
    path, line = planted(script, fault, tmp_path)
    done = report(path, n=2)
    assert done.outcome == ("failed" if fault == "left" else "done")
    places = [(each["kind"], each["line"]) for each in done.findings]
    assert places == [(KINDS[fault], line)], done
    assert done.status(strict=True) == (1 if fault == "left" else 2)
    assert re.search(rf"{path.stem}\.py:{line}  .*\n     → \w+", repr(done))


def test_printing_and_saving_now_and_then_are_no_waits_in_a_loop(write, monkeypatch):
    """A user would be told to stop printing a matrix, or saving a checkpoint, wherever the call is not on that line."""
    text = """
        import pprint
        import torch
        device = torch.accelerator.current_accelerator() or torch.device("cpu")
        model = torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(8)]).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(4, 20, device=device)
        keep = torch.save
        for step in range(20):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            if step == 10:
                pprint.pprint(model[0].weight)
                keep(model.state_dict(), "weights.pt")
    """
    path = write(text)
    monkeypatch.chdir(path.parent)
    done = report(path)
    assert done.outcome == "done" and done.findings == [], done
    assert {row[0] for row in done.facts["waits"]} >= {"print", "save"}
