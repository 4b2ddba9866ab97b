"""The report as a page: what a program's owner would hand on."""

import json
import re
import subprocess
import sys
import types
from html.parser import HTMLParser

import pytest

from practice_gpus import __main__ as command
from practice_gpus import report
from practice_gpus.reports import page

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


TAG = "</title><script>'\""


def leaves(value, path=()):
    """Yield the path of each text in lists and dictionaries."""
    if isinstance(value, str):
        yield path
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))


def with_tag(content, path):
    """Return a copy of `content` in which a tag stands at the end of the text at `path`."""
    copy = json.loads(json.dumps(content))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] += TAG
    return copy


def test_no_text_of_a_report_becomes_a_tag_of_the_page(run):
    """The JSON of somebody else's run, drawn as --before, put a script into the page."""
    content = run(WAITING, card="T4").content()
    content |= {"failures": [{"place": ["a.py", 1], "text": "x"}]}
    reports = [("now", path) for path in leaves(content)]
    reports += [("before", path) for path in leaves(content["step"], ("step",))]
    assert len(reports) > 60
    for which, path in reports:
        changed = with_tag(content, path)
        now = types.SimpleNamespace(content=lambda c=changed if which == "now" else content: c)
        try:
            text = page.page(now, changed if which == "before" else content)
        except (KeyError, TypeError):
            continue  # a word that only the recorder writes, and --before refuses
        assert "<script" not in text, (which, path)


BAD = {
    "no folder": ("--html", "nowhere/x.html"),
    "no folder for facts": ("--json", "nowhere/x.json"),
    "a folder": ("--html", "."),
    "a program": ("--json", "train.py"),
    "another's page": ("--html", "mine.html"),
    "no earlier report": ("--html", "x.html", "--before", "none.json"),
    "something else as earlier report": ("--html", "x.html", "--before", "mine.json"),
    "an odd step": ("--html", "x.html", "--before", "step.json"),
    "earlier without a page": ("--before", "mine.json"),
    "empty": ("--json", ""),
    "no steps": ("--steps", "0"),
    "fewer than no GPUs": ("-n", "-1"),
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD)
def test_what_would_fail_after_the_program_or_overwrite_is_refused_before_it(
    tmp_path, monkeypatch, capsys, options
):
    """An hour's run, and then a traceback in place of the page; once, the page took the place of the script."""
    monkeypatch.chdir(tmp_path)
    texts = {"train.py": "open('ran', 'w')", "mine.json": "{}", "mine.html": "<p>mine</p>"}
    texts["step.json"] = json.dumps({"step": {"ms": 1, "timeline": [], "bound": "x"}})
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "argv", ["practice_gpus", *options, "train.py"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2 and options[-2].strip("-") in capsys.readouterr().err + "before"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts


def test_its_own_reports_are_replaced(tmp_path):
    (tmp_path / "train.py").write_text("print(1)")
    words = ["--json", "r.json", "--html", "r.html", "--quiet", "train.py"]
    line = [sys.executable, "-m", "practice_gpus", *words]
    for _ in range(2):
        assert subprocess.run(line, cwd=tmp_path, capture_output=True).returncode == 0
