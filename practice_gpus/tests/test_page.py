"""The report as a page: what a program's owner would hand on."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from practice_gpus import report

TRAIN = """
import torch
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(512, 256).cuda()).sum()
    loss.backward()
    optimizer.step()
"""
WAITING = TRAIN + "    print(loss.item())\n"


class Balanced(HTMLParser):
    """Notes tags that aren't closed in order, and all text."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def run(tmp_path):
    def run(text, name="train.py", **settings):
        path = tmp_path / name
        path.write_text(text)
        return report(path, real="hide", **settings)

    return run


def read(path):
    parser = Balanced()
    parser.feed(path.read_text(encoding="utf-8"))
    assert not parser.wrong and not parser.open
    return " ".join(" ".join(parser.text).split())


def test_a_page_has_the_step_the_memory_the_waits_and_the_cards(run, tmp_path):
    done = run(WAITING, card="T4")
    text = read(done.page(tmp_path / "report.html"))
    assert "The GPU report of train.py" in text
    assert done.step.bound == "overhead" and f"{done.step.ms:.3g} ms" not in text  # a range alone
    assert f"{done.step.low_ms:.3g} to {done.step.high_ms:.3g} ms per step" in text
    assert "train.py:10" in text and "loss.item()" in text
    assert "H100 SXM (80 GB)" in text and "parameters 257 KiB" in text


def test_before_and_now_stand_side_by_side(run, tmp_path):
    run(WAITING, card="T4").save(tmp_path / "before.json")
    done = run(TRAIN, card="T4")
    text = read(done.page(tmp_path / "report.html", tmp_path / "before.json"))
    assert "→" in text and "the speed of before, forecast" in text
    assert (
        "never waits for the GPU in the training loop" not in text
    )  # the batch is copied, unpinned


def test_a_program_without_a_card_or_a_gpu_still_has_its_page(run, tmp_path):
    text = read(run("print('<b>')", name="odd & name.py").page(tmp_path / "report.html"))
    assert "odd & name.py" in text and "No step can be drawn" in text
    assert "Nothing was put on a GPU" in text


def test_a_program_that_fails_says_so_on_its_page(run, tmp_path):
    done = run("import torch\nx = torch.ones(3).cuda() + torch.ones(3)\n", card="T4")
    assert "failed" in read(done.page(tmp_path / "report.html"))


def test_the_step_is_the_one_between_two_optimizer_steps(run):
    step = run(TRAIN, card="T4").step
    names = [kernel.name for kernel in step.kernels]
    assert len([name for name in names if "mm" in name]) == 2  # forward and the weight's gradient
    assert run(TRAIN).step is None and run("", card="T4").step is None


def test_the_page_needs_nothing_from_elsewhere_and_can_be_printed(run, tmp_path):
    page = run(TRAIN, card="T4").page(tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=|@import|url\(", page) and "@media print" in page


@pytest.mark.slow
def test_the_command_line_writes_the_page_and_compares(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    line = [sys.executable, "-m", "practice_gpus", "--quiet", "--card", "T4"]
    first = [*line, "--json", "before.json", "train.py"]
    subprocess.run(first, cwd=tmp_path, check=True, capture_output=True)
    assert json.loads((tmp_path / "before.json").read_text())["step"]["ms"] > 0
    second = [*line, "--html", "report.html", "--before", "before.json", "train.py"]
    subprocess.run(second, cwd=tmp_path, check=True, capture_output=True)
    assert "→" in (tmp_path / "report.html").read_text(encoding="utf-8")
