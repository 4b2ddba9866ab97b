"""Grading a class: what `check` said in a notebook counts, a notebook costs only itself, nothing runs unsealed unasked."""

import csv
import json
import os
import re
import stat
import subprocess
import sys

import nbformat
import pytest

from helpers.checks.core import CORRECT, ERROR, NOT_ATTEMPTED, NOT_YET
from lessons import all_keys
from lessons.lesson03 import exercises as ex
from tools import ROOT, _notebooks, _sheets

PRELUDE = "import copy\nimport torch\nfrom torch import nn\nfrom lessons.lesson03 import exercises as ex\n"
FLAT = PRELUDE + ex.flat.solution_source()
RIGHT = f"ex.flat.check({ex.flat.reference.__name__})"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs processes of POSIX")


def grade(folder, out, *options, **variables):
    """Grade with the real command; return the finished process and {submission: row}."""
    line = [sys.executable, "-m", "tools", "grade", folder, "--out", out, *options]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        line, cwd=ROOT, text=True, capture_output=True, env=environment, timeout=600
    )
    rows = {}
    if out.exists():
        with open(out, encoding="utf-8-sig", newline="") as file:
            rows = {row["submission"].removesuffix(".ipynb"): row for row in csv.DictReader(file)}
    return done, rows


@pytest.fixture
def submitted(tmp_path):
    """Give a function that saves notebooks, {name: code cells}, and returns their rows, graded without a container."""

    def graded(*options, **notebooks):
        folder = tmp_path / "class"
        folder.mkdir()
        for name, cells in notebooks.items():
            new = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
            nbformat.write(new, folder / f"{name}.ipynb")
        done, rows = grade(folder, tmp_path / "out.csv", "--unsealed", *options)
        assert set(rows) == set(notebooks), done.stderr
        return rows

    return graded


def test_what_check_says_is_the_mark(submitted):
    rows = submitted(
        wrong=[PRELUDE + "def f(*a): return 1 / 0", "ex.flat.check(f)", "ex.buffer.check(no_such)"],
        late=[FLAT, "ex.flat.check(3)", "1 / 0", RIGHT, "ex.flat.check(3)", "ex.buffer.check(3)"],
    )
    late, wrong = rows["late"], rows["wrong"]
    assert (late["03.flat"], late["03.buffer"], late["points"]) == (CORRECT, NOT_YET, "1")
    assert (wrong["03.flat"], wrong["03.buffer"], wrong["points"]) == (ERROR, ERROR, "0")
    assert "no_such" in wrong["03.buffer reason"] and wrong["of"] == str(len(all_keys()["03"]))
    assert "no call of ex.left.check" in late["03.left reason"]
    assert late["03.left"] == NOT_ATTEMPTED
    assert not any(row["review"] for row in rows.values())


@pytest.mark.slow
def test_a_notebook_that_ends_hangs_or_eats_memory_costs_only_what_comes_after(submitted):
    """A right answer before the cell keeps its point, and the note says what happened."""
    below = "ex.buffer.check(3)"
    rows = submitted(
        *("--seconds", "120", "--memory", "3"),
        ends=[FLAT, RIGHT, "import os; os._exit(0)", below],
        hangs=[FLAT, RIGHT, "import time; time.sleep(1000)", below],
        memory=[FLAT, RIGHT, "x = bytearray(20 * 10**9)", below],
        quits=[FLAT, RIGHT, "quit()", below],
    )
    assert {row["03.flat"] for row in rows.values()} == {CORRECT}
    assert "cell 3 ended its kernel" in rows["ends"]["note"]
    assert rows["ends"]["03.buffer"] == "stopped" and "cell 3" in rows["ends"]["03.buffer reason"]
    for name in ("hangs", "memory", "quits"):
        assert rows[name]["03.buffer"] == NOT_YET, rows[name]


def test_what_to_look_at_oneself_is_named(submitted):
    forged = (
        "from IPython.display import publish_display_data as p; from tools import grade\n"
        "p({grade.MIME: {'key': '03.flat', 'status': 'correct', 'message': '', 'own': False}})"
    )
    rows = submitted(
        own=[PRELUDE, "ex.flat.check(ex.flat.reference)"],
        forged=[PRELUDE, forged, "ex.flat.check(None)"],
    )
    assert "the course's own answer to 03.flat" in rows["own"]["review"]
    assert "03.flat was noted where no check of it stands" in rows["forged"]["review"]
    assert rows["forged"]["03.flat"] == NOT_ATTEMPTED


def test_what_is_no_lesson_has_a_row_that_says_why(tmp_path):
    folder, secret = tmp_path / "class", tmp_path / "secret.txt"
    (folder / "below").mkdir(parents=True)
    secret.write_text("the password")
    (folder / "essay.ipynb").write_text("dear teacher")
    (folder / "work.zip").write_text("")
    (folder / "linked").symlink_to(tmp_path)
    new = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FLAT + "\n" + RIGHT)])
    text = "\ufeff" + nbformat.writes(new)  # as some editors save
    (folder / "below/marked.ipynb").write_text(text, encoding="utf-8")
    done, rows = grade(folder, tmp_path / "out.csv", "--unsealed")
    notes = {name: row["note"] for name, row in rows.items()}
    assert "not a notebook" in notes["essay"], done.stderr
    assert "no .ipynb" in notes["work.zip"] and "a link" in notes["linked"]
    assert rows["below/marked"]["03.flat"] == CORRECT and len(rows) == 4
    assert "the password" not in (tmp_path / "out.csv").read_text(encoding="utf-8-sig")


ENGINE = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1] == "image":
    sys.exit({missing})
if sys.argv[1] == "run":
    words = sys.argv[sys.argv.index("gpus-in-pytorch") + 2:]
    os.environ.update(PYTHONPATH={root!r}, GPU_COURSE_HOME=os.getcwd(), HOME=os.getcwd())
    os.execv({python!r}, [{python!r}, *words])
"""


def engine(place, missing=0):
    """Make a stand-in for docker at `place`, which notes its arguments and runs what would run inside; give its log."""
    log = place / "log"
    text = ENGINE.format(python=sys.executable, log=str(log), root=str(ROOT), missing=missing)
    (place / "docker").write_text(text)
    (place / "docker").chmod(stat.S_IRWXU)
    return log


@pytest.fixture
def one(tmp_path):
    """Give a folder with one right notebook."""
    folder = tmp_path / "class"
    folder.mkdir()
    new = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FLAT + "\n" + RIGHT)])
    nbformat.write(new, folder / "ann.ipynb")
    return folder


def test_a_notebook_runs_in_a_container_without_network_files_or_rights(one, tmp_path):
    """Strangers' code runs on the teacher's machine."""
    log = engine(tmp_path)
    done, rows = grade(one, tmp_path / "out.csv", "--memory", "2", PATH=str(tmp_path))
    assert rows["ann"]["03.flat"] == CORRECT, done.stderr
    inspected, ran, killed = map(json.loads, log.read_text().splitlines())
    assert inspected == ["image", "inspect", "gpus-in-pytorch"]
    assert {"--network=none", "--read-only", "--cap-drop=ALL", "--user=65534:65534"} <= set(ran)
    assert {"--security-opt=no-new-privileges", "--pids-limit=128", "--memory=2g"} <= set(ran)
    volumes = [word for word in ran if word.startswith("-v")]
    assert volumes == [f"-v{ROOT}:/course:ro"], "nothing else of this machine is in it"
    [name] = [word for word in ran if word.startswith("--name=")]
    assert killed == ["kill", name.removeprefix("--name=")], "none is left behind"
    assert ran[-4:] == ["gpus-in-pytorch", "python", "-m", "tools.grade"]


def test_without_a_container_nothing_runs(one, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done, rows = grade(one, tmp_path / "out.csv", PATH=str(empty))
    assert done.returncode == 2 and not rows and "no docker or podman" in done.stderr
    engine(tmp_path, missing=1)
    done, rows = grade(one, tmp_path / "out.csv", PATH=str(tmp_path))
    assert done.returncode == 2 and not rows
    assert "docker build -t gpus-in-pytorch -f tools/Dockerfile ." in done.stderr


def test_wrong_options_are_named_and_no_table_is_overwritten(one, tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    done, _ = grade(one, tmp_path / "out.csv", "--unsealed")
    assert done.returncode == 2 and "--force replaces it" in done.stderr
    assert (tmp_path / "out.csv").read_text() == "mine"
    done, _ = grade(tmp_path / "empty", tmp_path / "new.csv", "--unsealed")
    assert done.returncode == 2 and "it takes one with notebooks in it" in done.stderr
    done, _ = grade(one, tmp_path / "new.csv", "--unsealed", "--jobs", "0")
    assert done.returncode == 2 and "--jobs" in done.stderr


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "＝1", "\x1b[2J", "a\nb"])
def test_a_cell_of_the_table_is_one_harmless_line(cell):
    """A spreadsheet would run it as a formula, a terminal as an order."""
    text = _sheets.harmless(cell)
    assert "\n" not in text and text.isprintable() and text[0] not in "=+-@＝"


def with_model_answers(path):
    """Return the code cells of a lesson with each model answer just above its check."""
    from importlib import import_module

    module = import_module(f"lessons.lesson{path.name[:2]}.exercises")
    prelude = "import math, os, statistics, sys, time, torch\nfrom torch import nn\n"
    prelude += "from torch.nn import functional as F\n"
    for cell in _notebooks.read(path).cells:
        if cell.cell_type == "code":
            for name in re.findall(r"^ex\.(\w+)\.check\(", cell.source, flags=re.M):
                answer = prelude + getattr(module, name).solution_source()
                before, line, after = cell.source.partition(f"ex.{name}.check(")
                cell.source = f"{before}{answer}\n{line}{after}"
            yield cell.source


@pytest.mark.slow
def test_the_model_answers_of_every_lesson_are_correct(submitted):
    lessons = {path.stem: list(with_model_answers(path)) for path in _notebooks.find(all_keys())}
    for name, row in submitted("--jobs", "2", **lessons).items():
        keys = all_keys()[row["lesson"]]
        assert [row[key] for key in keys] == [CORRECT] * len(keys), (name, row)
