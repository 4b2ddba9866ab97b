"""Grading a class: what `check` said in a notebook counts, a notebook costs only itself, nothing runs unsealed unasked."""

import csv
import json
import os
import re
import stat
import subprocess
import sys

import nbformat
import psutil
import pytest

from course.__main__ import run
from course.checks.core import CORRECT, ERROR, NOT_ATTEMPTED, NOT_YET, all_keys
from course.lesson03 import exercises as ex
from course.tools import ROOT, _graded, _notebooks, _sheets

PRELUDE = (
    "import copy\nimport torch\nfrom torch import nn\nfrom course.lesson03 import exercises as ex\n"
)
FLAT = PRELUDE + ex.left.solution_source()
RIGHT = f"ex.left.check({ex.left.reference.__name__})"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs processes of POSIX")


def grade(folder, out, *options):
    """Grade with the command; return its exit status and {submission: row}."""
    status = run("grade", [str(folder), "--out", str(out), *options])
    rows = {}
    if out.exists():
        with open(out, encoding="utf-8-sig", newline="") as file:
            rows = {row["submission"].removesuffix(".ipynb"): row for row in csv.DictReader(file)}
    return status, rows


def save(path, cells, mark=""):
    """Write a notebook of code cells; `mark` comes first, as some editors do it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    path.write_text(mark + nbformat.writes(new), encoding="utf-8")


FORGED = """from IPython.display import publish_display_data as p; from course.tools import _graded
p({_graded.MIME: {'key': '03.buffer', 'status': 'correct', 'message': '', 'own': False}})"""
WRONG = [PRELUDE + "def f(*a): return 1 / 0", "ex.left.check(f)", "ex.buffer.check(no_such)"]
LATE = [FLAT, "ex.left.check(3)", "1 / 0", RIGHT, "ex.left.check(3)", "ex.buffer.check(3)"]
ODD = [PRELUDE, "ex.left.check(ex.left.reference)", FORGED, "ex.buffer.check(None)"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return the rows of one class, graded without a container: three notebooks, and what is none."""
    place = tmp_path_factory.mktemp("grade")
    folder, secret = place / "class", place / "secret.txt"
    save(folder / "wrong.ipynb", WRONG)
    save(folder / "below/late.ipynb", LATE, mark="\ufeff")
    save(folder / "odd.ipynb", ODD)
    save(folder / "empty.ipynb", [PRELUDE, "ex.buffer.check(None)"])
    secret.write_text("the password")
    (folder / "essay.ipynb").write_text("dear teacher")
    (folder / "work.zip").write_text("")
    (folder / "linked").symlink_to(place)
    (folder / "folder.ipynb").mkdir()
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "nested.ipynb").write_text("[" * 400_000)
    status, rows = grade(folder, place / "out.csv", "--unsealed")
    assert status == 0
    assert "the password" not in (place / "out.csv").read_text(encoding="utf-8-sig")
    return rows


@pytest.fixture
def submitted(tmp_path):
    """Give a function that saves notebooks, {name: code cells}, and returns their rows, graded without a container."""

    def graded(*options, **notebooks):
        for name, cells in notebooks.items():
            save(tmp_path / "class" / f"{name}.ipynb", cells)
        _, rows = grade(tmp_path / "class", tmp_path / "out.csv", "--unsealed", *options)
        assert set(rows) == set(notebooks)
        return rows

    return graded


def test_what_check_says_is_the_mark(rows):
    late, wrong = rows["below/late"], rows["wrong"]
    assert (late["03.left"], late["03.buffer"], late["points"]) == (CORRECT, NOT_YET, "1")
    assert (wrong["03.left"], wrong["03.buffer"], wrong["points"]) == (ERROR, ERROR, "0")
    assert "no_such" in wrong["03.buffer reason"] and wrong["of"] == str(len(all_keys()["03"]))
    assert "no call of ex.left.check" in rows["empty"]["03.left reason"]
    assert rows["empty"]["03.left"] == NOT_ATTEMPTED
    assert not late["review"] and not wrong["review"]


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
    assert {row["03.left"] for row in rows.values()} == {CORRECT}
    assert "cell 3 ended its kernel" in rows["ends"]["note"]
    assert rows["ends"]["03.buffer"] == "stopped" and "cell 3" in rows["ends"]["03.buffer reason"]
    for name in ("hangs", "memory", "quits"):
        assert rows[name]["03.buffer"] == NOT_YET, rows[name]


FLOOD = """import os
for pid in (os.getpid(), os.getppid()):
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            pipe = os.open(f"/proc/{pid}/fd/{name}", os.O_WRONLY | os.O_NONBLOCK)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    os.write(pipe, b"x" * 65536)"""
HOSTILE = {
    "ignores": "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "floods": FLOOD,
    "forks": "for _ in range(5):\n    if not os.fork():\n        os.setsid()\n        os.execlp('sleep', 'sleep', '3.14159e4')",
    "bombs": "for _ in range(300):\n    if not os.fork():\n        time.sleep(3.14159e4)",
    "digs": "for _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')",
    "orphans": "subprocess.Popen('(sleep 3.14159e4 &) &', shell=True, start_new_session=True)\nos.kill(os.getppid(), 9)",
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_hostile_notebooks_cost_themselves_only_what_comes_after(submitted):
    """One wrote 4 GB into the grading process, one took back its own points, one left 40 processes behind; one filled the
    machine with its own, which must end within the limit that a container sets; one's folders lost the table of the class.
    """
    imports = "import contextlib, os, signal, subprocess, time\n"
    before = psutil.Process().memory_info().rss
    rows = submitted(
        *("--seconds", "48", "--jobs", "2"),
        **{
            name: [FLAT, RIGHT, imports + cell, "ex.buffer.check(3)"]
            for name, cell in HOSTILE.items()
        },
    )
    assert {name: row["03.left"] for name, row in rows.items()} == dict.fromkeys(HOSTILE, CORRECT)
    assert (
        rows["ignores"]["note"].startswith("cell 3 hung") and rows["forks"]["03.buffer"] == NOT_YET
    )
    assert rows["bombs"]["note"] == "ended, since it had more than 128 processes and threads"
    assert psutil.Process().memory_info().rss - before < 3e8
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if "3.14159e4" in line]


def test_the_grader_itself_and_the_map_stay_without_pytorch():
    """It took 650 MB on the teacher's machine beside the notebooks, and each start of lab seconds more."""
    code = "import sys, course.tools.grade, course.tools.progress; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_run_may_say_anything_and_only_so_much():
    said = bytearray()
    with open("/dev/zero", "rb") as pipe:
        _graded.listen(pipe, said)
    assert _graded.MOST <= len(said) < 1.1 * _graded.MOST
    with pytest.raises(ValueError, match="said more than 8 MB"):
        _graded.understood(bytes(said[: _graded.MOST]), 9)
    odd = [
        "[1]",
        "{",
        "3",
        '{"cell": "0", "message": ""}',
        '{"cell": 0.0, "message": ""}',
        "[" * 10**5,
    ]
    events, stopped = _graded.understood("\n".join([SAID, *odd]).encode(), 9)
    assert events == [_graded.Event(**EVENT)] and stopped == ""
    with pytest.raises(ValueError, match="no result in 9 s"):
        _graded.understood("\n".join(odd).encode(), 9)


def test_what_to_look_at_oneself_is_named(rows):
    review = rows["odd"]["review"]
    assert "the course's own answer to 03.left" in review
    assert "03.buffer was noted where no check of it stands" in review
    assert rows["odd"]["03.buffer"] == NOT_ATTEMPTED


def test_what_is_no_lesson_has_a_row_that_says_why(rows):
    assert "not a notebook" in rows["essay"]["note"] and len(rows) == 10
    for name in ("folder", "pipe", "nested"):
        assert "not read" in rows[name]["note"], "a line for each, and none is waited for"
    assert "no .ipynb" in rows["work.zip"]["note"] and "a link" in rows["linked"]["note"]


ENGINE = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1] == "image":
    sys.exit({missing})
if sys.argv[1] == "run":
    words = sys.argv[sys.argv.index("gpus-in-pytorch") + 2:]
    if {said!r}:
        sys.exit(print({said!r}))
    os.environ.update(PYTHONPATH={root!r}, GPU_COURSE_HOME=os.getcwd(), HOME=os.getcwd())
    os.execv({python!r}, [{python!r}, *words])
"""


def engine(place, missing=0, said=""):
    """Make a stand-in for docker at `place`, which notes its arguments and runs what would run inside; give its log.

    Instead of running it, it may say what was `said`.
    """
    log = place / "log"
    names = {"python": sys.executable, "log": str(log), "root": str(ROOT)}
    text = ENGINE.format(**names, missing=missing, said=said)
    (place / "docker").write_text(text)
    (place / "docker").chmod(stat.S_IRWXU)
    return log


@pytest.fixture
def one(tmp_path):
    """Give a folder with one right notebook."""
    save(tmp_path / "class/ann.ipynb", [FLAT + "\n" + RIGHT])
    return tmp_path / "class"


EVENT = {"cell": 0, "key": "03.left", "status": CORRECT, "message": "", "own": False}
SAID = json.dumps(EVENT) + "\n" + json.dumps("")


@pytest.mark.parametrize("said", [SAID, pytest.param("", marks=pytest.mark.slow)])
def test_a_notebook_runs_in_a_container_without_network_files_or_rights(
    one, tmp_path, monkeypatch, said
):
    """Strangers' code runs on the teacher's machine."""
    log = engine(tmp_path, said=said)
    monkeypatch.setenv("PATH", str(tmp_path))
    _, rows = grade(one, tmp_path / "out.csv", "--memory", "2")
    assert rows["ann"]["03.left"] == CORRECT
    inspected, ran, killed = map(json.loads, log.read_text().splitlines())
    assert inspected == ["image", "inspect", "gpus-in-pytorch"]
    assert {"--network=none", "--read-only", "--cap-drop=ALL", "--user=65534:65534"} <= set(ran)
    assert {"--security-opt=no-new-privileges", "--pids-limit=128", "--memory=2g"} <= set(ran)
    volumes = [word for word in ran if word.startswith("-v")]
    assert volumes == [f"-v{ROOT}:/course:ro"], "nothing else of this machine is in it"
    [name] = [word for word in ran if word.startswith("--name=")]
    assert killed == ["kill", name.removeprefix("--name=")], "none is left behind"
    assert ran[-4:] == ["gpus-in-pytorch", "python", "-m", "course.tools._graded"]


def test_without_a_container_nothing_runs(one, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert grade(one, tmp_path / "out.csv") == (2, {})
    assert "no docker or podman" in capsys.readouterr().err
    engine(tmp_path, missing=1)
    assert grade(one, tmp_path / "out.csv") == (2, {})
    build = "docker build -t gpus-in-pytorch -f course/tools/Dockerfile ."
    assert build in capsys.readouterr().err


def test_wrong_options_are_named_and_no_table_is_overwritten(one, tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("mine")
    for folder, out, words in (
        (one, "mine.csv", "--force replaces it"),
        (tmp_path / "empty", "new.csv", "it takes one with notebooks in it"),
    ):
        assert grade(folder, tmp_path / out, "--unsealed")[0] == 2
        assert words in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == "mine"
    with pytest.raises(SystemExit):
        grade(one, tmp_path / "new.csv", "--jobs", "0")
    assert "--jobs" in capsys.readouterr().err


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "＝1", "\x1b[2J", "a\nb"])
def test_a_cell_of_the_table_is_one_harmless_line(cell):
    """A spreadsheet would run it as a formula, a terminal as an order."""
    text = _sheets.harmless(cell)
    assert "\n" not in text and text.isprintable() and text[0] not in "=+-@＝"


def with_model_answers(path):
    """Return the code cells of a lesson with each model answer just above its check."""
    from importlib import import_module

    module = import_module(f"course.lesson{path.name[:2]}.exercises")
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
def test_model_answers_are_correct_when_graded_in_lessons_with_processes_too(submitted):
    """Those of the other lessons are run in test_solutions.py."""
    paths = _notebooks.find(["02", "06", "10"])
    lessons = {path.stem: list(with_model_answers(path)) for path in paths}
    for name, row in submitted("--jobs", "2", **lessons).items():
        keys = all_keys()[row["lesson"]]
        assert [row[key] for key in keys] == [CORRECT] * len(keys), (name, row)
