"""Ctrl-C, kill and kill -9 at any moment: what stood before still stands, and the same command goes on or begins anew."""

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import lesson_runs
import nbformat
import psutil
import pytest
from copies import copy_of_course
from nbformat.v4 import new_code_cell, new_notebook
from test_grade import CHECK, IMPORT, MODEL, needs_sandbox, notebook, save
from test_pack import PROJECT, wheel

from helpers.checks.core import CORRECT
from tools import _environment
from tools._environment import ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")
SIGNALS = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", 9)]
each_signal = pytest.mark.parametrize("sent", SIGNALS, ids=lambda sent: sent.name)
STAND_INS = ["jupyterlab", "ipywidgets", "matplotlib", "pictures", "judge"]
HELD = ("00_start_here.ipynb", "92_glossary.ipynb")


@pytest.fixture
def course(tmp_path):
    """Return a copy of the course with two lessons, whose packages are stand-ins in a folder beside it."""
    place, index = copy_of_course(tmp_path / "course"), tmp_path / "index"
    for path in (place / "notebooks").glob("*.ipynb"):
        if path.name not in HELD:
            path.unlink()
    index.mkdir()
    wheel(index, "tool", "3.0")
    wheel(index, "torch", "1.0", "tool")
    wheel(index, "torchvision", "1.0", "torch")
    for name in STAND_INS:
        wheel(index, name, "2.0")
    (place / "pyproject.toml").write_text(PROJECT)
    (place / "requirements.txt").write_text("\n".join(["torch", "torchvision", *STAND_INS]))
    return place


def variables(course):
    """Return the environment of a command in the copy: pip looks into the folder beside it alone."""
    own = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHONUNBUFFERED": "1"}
    own |= {"PIP_FIND_LINKS": str(course.parent / "index"), "TMPDIR": str(course.parent)}
    return {name: v for name, v in os.environ.items() if name != "PYTHONPATH"} | own


def command(course, *words, **options):
    """Start a command of the copy as a terminal does: in a group of its own."""
    line = [sys.executable, "-m", "tools", *map(str, words)]
    options |= {"cwd": course, "env": variables(course), "text": True, "start_new_session": True}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(line, **output, **options)


def finished(course, *words):
    """Run a command of the copy to its end, which must be a good one; return what it said."""
    with command(course, *words) as process:
        said = process.communicate(timeout=240)[0]
    assert process.returncode == 0, said
    return said


def stop(process, sent):
    """Send a signal as it comes: Ctrl-C to the whole group, the others to the command alone; return what was said."""
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    said = process.communicate(timeout=60)[0]
    assert process.returncode in (130, 143, -sent), said
    return said


def stopped_at(course, text, sent, *words):
    """Start a command, stop it shortly after it has said `text`; return what it said after that."""
    with command(course, *words) as process:
        for line in process.stdout:
            if text in line:
                break
        else:
            pytest.fail(f"never said {text}")
        time.sleep(0 if text == "[4/4]" else 0.3)  # the last step is short
        return stop(process, sent)


def working(course):
    """Return the command lines of the processes that work at the copy."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), process.environ().get("TMPDIR", "")]
            if any(str(course.parent) in word for word in words):
                found.append(words)
    return found


def assert_nothing_works(course):
    until = time.monotonic() + 20
    while working(course) and time.monotonic() < until:
        time.sleep(0.1)
    assert working(course) == []


LAB = ("lab", "--cpu", "--prepare")


@each_signal
@pytest.mark.parametrize("step", ["[2/4]", "[3/4] PyTorch", "[3/4] packages", "[4/4]"])
def test_an_installation_goes_on(step, sent, course):
    said = stopped_at(course, step, sent, *LAB)
    if sent == signal.SIGINT:
        assert "Run the same command again" in said
    stamp = course / ".venv" / _environment.STAMP
    done = "fingerprint" in json.loads(stamp.read_text())
    assert not done or step == "[4/4]"  # there the stand-ins may have been imported already
    finished(course, *LAB)
    assert "fingerprint" in json.loads(stamp.read_text())
    assert sorted(path.name for path in course.glob("my_notebooks/*.ipynb")) == list(HELD)
    assert_nothing_works(course)


@each_signal
@pytest.mark.parametrize("step", ["[3/4] PyTorch", "[4/4]"])
def test_a_pack_is_whole_or_goes_on(step, sent, course):
    out = course.parent / "out"
    stopped_at(course, step, sent, "pack", out)
    assert not out.exists()
    finished(course, "pack", out)
    assert len(list(out.glob("wheels/*.whl"))) >= 4 and not out.with_name("out.half").exists()
    assert_nothing_works(course)


@each_signal
def test_a_page_of_the_site_is_whole_or_not_there(sent, course):
    shutil.copytree(ROOT / ".github", course / ".github")  # the picture of the first page
    out = course.parent / "site"
    with command(course, "site", out) as process:
        while not list(out.glob("*.html")) and process.poll() is None:
            time.sleep(0.01)
        stop(process, sent)
    pages = list(out.glob("*.html"))
    assert all(page.read_text().rstrip().endswith("</html>") for page in pages)
    finished(course, "site", out)
    assert len(list(out.glob("*.html"))) > len(pages)


SLEEPS = (
    "import os, time\nif not os.path.exists('began'):\n    open('began', 'w')\n    time.sleep(600)"
)


@each_signal
def test_a_notebook_that_is_executed_stays_as_it_was(sent, course):
    path = course / "notebooks" / HELD[0]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=[new_code_cell(SLEEPS)], metadata=kernel), path)
    before = path.read_bytes()
    with command(course, "execute", "00") as process:
        while not (course / "notebooks/began").exists() and process.poll() is None:
            time.sleep(0.05)
        stop(process, sent)
    assert path.read_bytes() == before
    assert_nothing_works(course)
    finished(course, "execute", "00")
    assert nbformat.read(path, 4).cells[0].execution_count


@needs_sandbox
@each_signal
def test_a_class_is_graded_again(sent, course):
    folder, table = course.parent / "class", course.parent / "g.csv"
    folder.mkdir()
    save(folder, a=notebook(IMPORT, MODEL, "time.sleep(900)", f"{CHECK}(model)"))
    table.write_text("old")
    words = ("grade", folder, "--out", table, "--force", "--jobs", "1")
    with command(course, *words) as process:
        while not any("_grade_run" in "".join(line) for line in working(course)):
            time.sleep(0.05)
        time.sleep(2)
        stop(process, sent)
    assert table.read_text() == "old"
    assert_nothing_works(course)
    save(folder, a=notebook(IMPORT, MODEL, f"{CHECK}(model)"))
    finished(course, *words)
    assert CORRECT in table.read_text(encoding="utf-8-sig").splitlines()[1]


FIRST = """import os, pathlib, signal, threading, time
def interrupt():
    pathlib.Path(@MARK@).write_text("sent")
    os.kill(os.getpid(), signal.SIGINT)
timer, start = threading.Timer(@SECONDS@, interrupt), time.monotonic()
timer.start()
try:
    @CHECK@
finally:
    timer.cancel()
if not os.path.exists(@MARK@):
    pathlib.Path(@MARK@).write_text(str(time.monotonic() - start))"""


def interrupted_check(lesson, name, seconds, mark):
    """Interrupt the first check of a kernel so many seconds after it began; return the failures of its cells.

    The file `mark` then holds "sent", or the seconds that the check took where it was over before.
    """
    exercise = getattr(importlib.import_module(f"lessons.lesson{lesson}.exercises"), name)
    answer = f"import torch\nfrom torch import nn\n{exercise.solution_source()}"
    check = f"ex.{name}.check({exercise.reference.__name__})"
    first = FIRST.replace("@CHECK@", check).replace("@SECONDS@", str(seconds))
    first = first.replace("@MARK@", repr(str(mark)))
    again = f"{check}\nassert {check.replace('check', 'outcome')}.status == 'correct'"
    cells = [*lesson_runs.code(lesson)[:1], *map(new_code_cell, [answer, first, again])]
    mark.unlink(missing_ok=True)
    return lesson_runs.run_cells(cells)


@pytest.fixture(scope="module")
def duration(tmp_path_factory):
    """Return the seconds of the first check of a kernel, without an interrupt."""
    mark = tmp_path_factory.mktemp("first") / "mark"
    for _ in range(2):  # once from a cold disk
        assert interrupted_check("03", "flat", 600, mark) == []
    return float(mark.read_text())


@pytest.mark.parametrize("lesson, name", [("03", "flat"), ("08", "clip")])
@pytest.mark.parametrize("part", [0.02, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
def test_the_first_check_of_a_kernel(lesson, name, part, duration, tmp_path):
    """It imports much of PyTorch: half of that left behind would make right answers fail until a restart."""
    for _ in range(3):
        found = interrupted_check(lesson, name, part * duration, tmp_path / "mark")
        if (tmp_path / "mark").read_text() == "sent":
            break
        part *= 0.7  # this time the check was over before
    else:
        pytest.fail("no interrupt came while the check ran")
    assert [(each.cell, each.kind) for each in found] in ([], [(2, "KeyboardInterrupt")])
    print("stopped there" if found else "the check went on to its end")
