"""Grading a class: right rows for right, wrong and hostile notebooks, and nothing of them left behind."""

import argparse
import ast
import csv
import functools
import hashlib
import os
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest

from exercises import all_keys
from helpers.commands import _grade_box, _grade_cells, _grade_judge, _notebooks, grade
from helpers.commands._environment import ROOT

PRELUDE = """import argparse, math, os, statistics, sys, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data.distributed import DistributedSampler
"""
LESSONS = {path.name[:2]: path for path in _notebooks.find()}
TARGET = ROOT / "exercises/lesson01.py"
RIGHT, WRONG = "2 * n**3 / (ms / 1000) / 1e12", "1.0"


@functools.cache
def exercises(lesson):
    return _grade_judge.exercises_of(lesson)


def answered(lesson, answers):
    """Return the lesson's notebook with the starters of the named exercises replaced by the given sources."""
    notebook = _notebooks.read(LESSONS[lesson])
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found, _ = _grade_cells.statements([cell.source for cell in cells])
    for name, (index, answer) in reversed(_grade_cells.checks(found, {"ex"}).items()):
        if name in answers:
            each = [s for s in found[:index] if answer in s.stores][-1]
            lines = cells[each.cell - 1].source.splitlines()
            lines[each.node.lineno - 1 : each.node.end_lineno] = [PRELUDE + answers[name]]
            cells[each.cell - 1].source = "\n".join(lines)
    return notebook


def solved(lesson, **answers):
    """Return the lesson's notebook with the model answers, but those given."""
    return answered(
        lesson, {name: each.solution_source() for name, each in exercises(lesson).items()} | answers
    )


def save(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, bytes):
        content = nbformat.writes(content).replace("@FOLDER@", str(folder)).encode()
    path.write_bytes(content)


def run(folder, out, *options, code=("-m", "helpers", "grade"), seconds=240):
    """Grade with the real command; return its finished process and {submission: row}."""
    line = [sys.executable, *code, str(folder), "--out", str(out), "--jobs", "2", *options]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True, timeout=seconds)
    rows = {}
    if out.exists():
        with open(out, encoding="utf-8-sig", newline="") as file:
            rows = {row["submission"].removesuffix(".ipynb"): row for row in csv.DictReader(file)}
    return done, rows


def rate(body, answer=WRONG, before=""):
    """Return lesson 01 solved, but its function `tflops` runs `body` and returns `answer`."""
    lines = [
        "def tflops(n, ms):",
        *(f"    {line}" for line in body.splitlines()),
        f"    return {answer}",
    ]
    return solved("01", rate="\n".join([before, *lines]))


WALLS = ("overwrites", "other_answers", "kills_parent", "network")  # these need a sealed process
# name: (notebook, outcomes of 01.rate that are right, words in the reason). The other three exercises stay correct.
HOSTILE = {
    "exit": (lambda: rate("os._exit(0)"), "stopped", "without a result"),
    "sys_exit": (lambda: rate("sys.exit()"), "stopped or error in your code", "SystemExit"),
    "exit_at_top": (
        lambda: rate("", before="X = 1 if os._exit(0) else 2", answer="X"),
        "stopped",
        "without a result",
    ),
    "hang": (lambda: rate("time.sleep(1000)"), "stopped or error in your code", ""),
    "hang_at_top": (
        lambda: rate("", before="X = max(iter(int, 1))", answer="X"),
        "stopped",
        "out of time",
    ),
    "segfault": (lambda: rate("import ctypes; ctypes.string_at(0)"), "stopped", "without a result"),
    "forks": (
        lambda: rate("for _ in range(150):\n    if os.fork() == 0: time.sleep(900)"),
        "stopped",
        "",
    ),
    "memory": (lambda: rate("x = bytearray(8 * 10**9)"), "error in your code", "MemoryError"),
    "memory_of_many": (
        lambda: rate(
            "for _ in range(6):\n    if os.fork() == 0: x = b'x' * 5 * 10**8; time.sleep(900)\n"
            "time.sleep(900)"
        ),
        "stopped",
        "",
    ),
    "output": (lambda: rate("for _ in range(500): print('x' * 10**6)", RIGHT), "correct", ""),
    "big_file": (
        lambda: rate(
            "with open('x', 'wb') as f:\n    for _ in range(3000): f.write(b'x' * 10**6)", RIGHT
        ),
        "error in your code",
        "OSError",
    ),
    "forged_line": (
        lambda: rate("print('correct\\nwell done', flush=True)"),
        "not yet",
        "times the right value",
    ),
    "forged_result": (
        lambda: rate(
            "for fd in range(256):\n    try: os.write(fd, b'correct\\n')\n    except OSError: pass"
        ),
        "tampered",
        "something else was written",
    ),
    "patched_check": (
        lambda: rate(
            "import helpers.checks.core as core, exercises.lesson01 as own\n"
            "core.Exercise.outcome = lambda *_: core.Result('correct', '')\n"
            "core.Exercise.outcome.__code__ = (lambda *_: core.Result('correct', '')).__code__\n"
            "object.__setattr__(own.rate, 'check_answer', lambda answer: 'well done')\n"
            "sys.modules['helpers.checks.core'] = own"
        ),
        "not yet",
        "times the right value",
    ),
    "patched_abs": (
        lambda: rate("import builtins; builtins.abs = lambda x: 0"),
        "tampered",
        "builtins.abs",
    ),
    "patched_modules": (lambda: rate("sys.modules['torch'] = os", RIGHT), "tampered", "torch"),
    "model_answer": (
        lambda: solved("01", rate="tflops = ex.rate.reference"),
        "tampered",
        "own function",
    ),
    "overwrites": (
        lambda: rate(f"open({str(TARGET)!r}, 'a')", RIGHT),
        "error in your code",
        "Error",
    ),
    "other_answers": (
        lambda: rate("open('@FOLDER@/other_answers.ipynb')", RIGHT),
        "error in your code",
        "No such file",
    ),
    "left_behind": (
        lambda: rate(
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(900)\n"
            "    os._exit(0)\nimport threading\nthreading.Thread(target=time.sleep, args=(900,))"
            ".start()",
            RIGHT,
        ),
        "correct",
        "",
    ),
    "kills_parent": (
        lambda: rate("os.kill(os.getppid(), 9)", RIGHT),
        "error in your code or correct",
        "",
    ),
    "network": (
        lambda: rate("import socket; socket.create_connection(('192.0.2.1', 80), 5)", RIGHT),
        "error in your code",
        "unreachable",
    ),
    "frames": (
        lambda: rate("f = sys._getframe(2).f_locals", "2 * f['n']**3 / f['ms'] / 1e9"),
        "correct",
        "",
    ),
}


def notebook(*sources, **metadata):
    """Return a notebook with these code cells."""
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources], **metadata
    )


def code(lesson, *sources):
    return notebook(f"import torch\nfrom helpers.checks import lesson{lesson} as ex", *sources)


SAME = exercises("02")["same"].reference
DOUBLE = "def double(x):\n    return x + x\n"
# name: (notebook, points, words in the row)
READ = {
    "magics": (
        code(
            "00",
            "%matplotlib inline\n!echo hello\nx = !ls\ntorch?",
            "%%bash\nexit 1",
            "%%time\n" + DOUBLE,
            "ex.warm_up.check(double)",
        ),
        1,
        "",
    ),
    "renamed": (code("00", DOUBLE, "ex.warm_up.check(double)"), 1, ""),
    "another_name": (
        notebook("import exercises.lesson00 as my", DOUBLE, "my.warm_up.check(answer=double)"),
        1,
        "",
    ),
    "no_python": (code("00", "def (", DOUBLE, "ex.warm_up.check(double)"), 1, "not Python: cell 2"),
    "brackets": (
        code("00", "(" * 20000, "-" * 9999 + "1", DOUBLE, "ex.warm_up.check(double)"),
        1,
        "not Python: cell 2",
    ),
    "last_check_counts": (
        code("00", "ex.warm_up.check(None)", DOUBLE, "ex.warm_up.check(double)"),
        1,
        "",
    ),
    "filled_later": (
        code(
            "02",
            "same = {}",
            f"for key in {list(SAME)!r}:\n    same[key] = None",
            f"same.update({SAME!r})",
            "ex.same.check(same)",
        ),
        1,
        "",
    ),
    "by_hidden_state": (
        code(
            "00",
            "globals()['two'] = 2",
            "1 / 0",
            "def double(x): return two * x",
            "ex.warm_up.check(double)",
        ),
        1,
        "",
    ),
    "missing_name": (
        code("00", "def double(x): return three * x", "ex.warm_up.check(double)"),
        0,
        "NameError",
    ),
    "own_module": (
        code("00", "from magics import double", "ex.warm_up.check(double)"),
        0,
        "No module named",
    ),
    "shadowed": (code("00", DOUBLE, "ex.warm_up.check(double)"), 1, ""),
    "no_check": (code("00", DOUBLE), 0, "no call of ex.warm_up.check"),
    "other_lesson": (notebook("print(1)"), "", "no lesson's notebook"),
    "old_format": (
        b'{"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": [{"cell_type": '
        b'"code", "language": "python", "outputs": [], "input": "from helpers.checks import lesson00 as '
        b'ex\\ndef f(x): return 2*x\\nex.warm_up.check(f)"}]}]}',
        1,
        "",
    ),
    "wrong_format": (
        b'{"nbformat": 99, "nbformat_minor": 0, "metadata": {}, "cells": []}',
        "",
        "not a notebook",
    ),
    "no_json": (b"\xff\xfehello", "", "not a notebook"),
    "empty": (b"", "", "not a notebook"),
    "a_list": (b"[1, 2]", "", "not a notebook"),
    "deep": (b"[" * 10**6, "", "not a notebook"),
    "truncated": (nbformat.writes(solved("00"))[:3000].encode(), "", "not a notebook"),
    "odd_cells": (
        b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}, 3]}',
        "",
        "not a notebook",
    ),
    "huge": (b"[" + b" " * 21 * 10**6, "", "larger than 20 MB"),
    "=cmd|' name": (
        code(
            "00",
            "raise ValueError('=1+1')\ndef double(x): raise ValueError('\\x1b[31m=1+1')",
            "ex.warm_up.check(double)",
        ),
        0,
        "ValueError",
    ),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade all hostile and odd notebooks once; return (finished process, rows, folder)."""
    folder, away = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("away")
    for name, (make, *_) in HOSTILE.items():
        save(folder, f"{name}.ipynb", make())
    for name, (content, *_) in READ.items():
        save(folder, f"{name}.ipynb", content)
    for name in ("torch", "helpers", "nbformat", "psutil", "os"):
        save(folder, f"{name}.py", b"raise SystemExit")
    save(away, "01_linked.ipynb", solved("01"))
    (folder / "linked.ipynb").symlink_to(away / "01_linked.ipynb")
    (folder / "again").symlink_to(folder)
    os.mkfifo(folder / "pipe.ipynb")
    before = state(folder)
    done, rows = run(folder, away / "grades.csv", "--seconds", "10", "--memory", "1.5")
    assert done.returncode == 0, done.stderr
    assert set(rows) == {*HOSTILE, *READ, "linked", "pipe"} - {"=cmd|' name"} | {"'=cmd|' name"}
    assert state(folder) == before
    return done, rows, "sealed off" in done.stdout


def state(folder):
    """Return what must not change: the submissions, and the file of helpers that one of them opens for writing."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".ipynb") and path.is_file()
    ]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in [*files, TARGET]}


def of_grading():
    """Return the processes that a run of the command has started, or left behind."""
    found = []
    for process in psutil.process_iter():
        try:
            line, user = process.cmdline(), process.uids().real if hasattr(process, "uids") else 0
        except psutil.Error:
            continue
        if "grade" in line and "helpers" in line or user >= _grade_box.FIRST_USER:
            found.append((process.pid, line))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="limits and fork as on Linux")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_costs_only_itself(name, graded):
    _, rows, sealed = graded
    if name in WALLS and not sealed:
        pytest.skip("this system lets no process be sealed off")
    row, (_, outcome, words) = rows[name], HOSTILE[name]
    assert [row[f"01.{each}"] for each in ("pick", "flags", "machines")] == ["correct"] * 3
    assert row["01.rate"] in outcome.split(" or ") and words in row["01.rate reason"], row
    assert row["points"] == str(3 + (row["01.rate"] == "correct"))


@pytest.mark.parametrize("name", READ)
def test_a_notebook_that_is_odd_or_no_notebook(name, graded):
    row, (_, points, words) = graded[1]["'" * (name[0] == "=") + name], READ[name]
    assert row["points"] == str(points or 0) and words in str(row), row
    assert row["of"] == "" if points == "" else row["of"]


def test_too_many_processes_and_too_much_memory_are_noticed(monkeypatch):
    program = "x = b'x' * 10**8; print(1, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() and _grade_box.excess(10**12) == ""
        assert _grade_box.excess(5 * 10**7) == "more than 0.05 GB of memory"
        monkeypatch.setattr(_grade_box, "PROCESSES", 0)
        assert _grade_box.excess(10**12) == "more than 0 processes"
        _grade_box.end_below()
        assert child.wait(5) in (-9, 0)  # 0: somebody else's wait was faster


def test_links_and_pipes_are_not_read(graded):
    assert (
        "symbolic link" in graded[1]["linked"]["note"]
        and "regular file" in graded[1]["pipe"]["note"]
    )


def test_doubtful_names_are_listed_for_review(graded):
    assert graded[1]["frames"]["review"] == "rate: _getframe, f_locals"
    assert graded[1]["renamed"]["review"] == ""


def test_nothing_is_left_behind(graded):
    assert of_grading() == []


def test_no_cell_is_a_formula(graded):
    cells = [text for row in graded[1].values() for text in row.values()]
    assert [text for text in cells if text[:1] in tuple("=+-@\t\r") or not text.isprintable()] == []
    assert grade.cell("\t =1+1\n2") == "'=1+1 2" and grade.cell("-1") == "'-1"
    assert grade.cell("a\x1b[31m\udce9") == "a [31m" and len(grade.cell("x" * 9999)) == grade.LENGTH


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["nowhere", "--out", "g.csv"], "FOLDER is 'nowhere'"),
        (["empty", "--out", "g.csv"], "ends in .ipynb"),
        (["full/a.ipynb", "--out", "g.csv"], "FOLDER is 'full/a.ipynb'"),
        (["full", "--out", "none/g.csv"], "--out is 'none/g.csv'"),
        (["full", "--out", "empty"], "--out is 'empty'"),
        (["full", "--out", "g.csv", "--jobs", "0"], "--jobs is 0"),
        (["full", "--out", "g.csv", "--seconds", "-1"], "--seconds is -1.0"),
        (["full", "--out", "g.csv", "--seconds", "nan"], "--seconds is nan"),
        (["full", "--out", "g.csv", "--memory", "0"], "--memory is 0.0"),
        (["full", "--out", "g.csv", "--lesson", "77"], "--lesson is '77'; it takes one of 00, 01"),
    ],
)
def test_wrong_calls_name_the_argument(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save(tmp_path, "full/a.ipynb", b"")
    (tmp_path / "empty").mkdir()
    parser = argparse.ArgumentParser()
    grade.add_arguments(parser)
    assert grade.run(parser.parse_args(line)) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "g.csv").exists()


def needed(*cells, answer):
    found, _ = _grade_cells.statements(list(cells))
    return [ast.unparse(found[index].node) for index in _grade_cells.needed(found, answer)]


def test_an_answer_needs_what_it_names_and_nothing_else():
    cells = [
        "import math, json\nlong_training()",
        "def helper(x): return math.pi * x",
        "x = 5\nprint(x)",
        "def answer(x): return helper(x)",
        "answer(3)\nmath.pi = 3",
    ]
    assert [text.split("(")[0] for text in needed(*cells, answer="answer")] == [
        "import math, json",
        "def helper",
        "def answer",
    ]


def test_an_answer_needs_what_may_change_its_value():
    cells = ["d = {}", "d['a'] = 1", "d.update(b=2)", "fill(d)", "for k in d:\n    d[k] = 0"]
    assert needed(*cells, "e = d", "other = 1", "d.a.check(d)", answer="d") == cells
    assert needed("class C:\n    pass", "x = 1", "C.f = x", answer="C")[-1] == "C.f = x"


def test_a_stopped_run_leaves_the_old_table_and_no_process(tmp_path):
    save(tmp_path, "class/a.ipynb", rate("time.sleep(900)"))
    (tmp_path / "g.csv").write_text("old")
    line = [
        sys.executable,
        "-m",
        "helpers",
        "grade",
        str(tmp_path / "class"),
        "--out",
        str(tmp_path / "g.csv"),
    ]
    with subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not psutil.Process(process.pid).children() and process.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["class", "g.csv"]
    assert (tmp_path / "g.csv").read_text() == "old"
    assert of_grading() == []


UNSEALED = """
import sys
from helpers.__main__ import main
from helpers.commands import _grade_box
_grade_box.possible = lambda folder: (False, False)
sys.exit(main(["grade", *sys.argv[1:]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and fork as on Linux")
def test_without_walls_limits_still_hold(tmp_path):
    names = [
        "exit",
        "hang_at_top",
        "forks",
        "memory",
        "big_file",
        "forged_result",
        "patched_check",
        "left_behind",
    ]
    for name in names:
        save(tmp_path, f"class/{name}.ipynb", HOSTILE[name][0]())
    done, rows = run(
        tmp_path / "class", tmp_path / "g.csv", "--seconds", "10", code=["-c", UNSEALED]
    )
    assert "does not let processes be sealed off" in done.stdout, done.stderr
    for name in names:
        test_a_hostile_answer_costs_only_itself(name, (done, rows, False))
    assert of_grading() == []


def class_of(size):
    """Return {name: (notebook, {key: outcomes that are right})}: every fifth hostile, the others from all lessons."""
    made, kinds, taught = (
        {},
        sorted(set(HOSTILE) - set(WALLS)),
        [number for number in all_keys() if number in LESSONS],
    )
    for number in range(size):
        if number % 5 == 4:
            kind = kinds[number // 5 % len(kinds)]
            rows = {f"01.{name}": "correct" for name in ("pick", "flags", "machines")} | {
                "01.rate": HOSTILE[kind][1]
            }
            made[f"{number:03}_{kind}"] = HOSTILE[kind][0](), rows
        else:
            lesson, answers, rows = taught[(number - number // 5) % len(taught)], {}, {}
            for place, (name, each) in enumerate(exercises(lesson).items()):
                way = (number // 5 + place) % 3 if size > 10 or name != "script" else 2
                target = getattr(each.reference, "__name__", each.source.split(" =")[0])
                nonsense = (
                    f"{target} = {{}}"
                    if type(each.reference) is dict
                    else f"def {target}(*a, **k): return 'no'"
                )
                answers |= {name: (each.solution_source(), nonsense)[way]} if way < 2 else {}
                rows[each.key] = ("correct", "not yet or error in your code", "not attempted")[way]
            made[f"{number:03}_lesson{lesson}"] = answered(lesson, answers), rows
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="limits and fork as on Linux")
@pytest.mark.parametrize("size", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_class(size, tmp_path):
    made = class_of(size)
    for name, (content, _) in made.items():
        save(tmp_path / "class", f"{name}.ipynb", content)
    before, start = state(tmp_path / "class"), time.monotonic()
    done, rows = run(tmp_path / "class", tmp_path / "grades.csv", "--memory", "1.5", seconds=900)
    print(f"{size} notebooks: {time.monotonic() - start:.0f} s\n{done.stdout}")
    assert sorted(rows) == sorted(made) and done.returncode == 0, done.stderr
    wrong = {
        (name, key): rows[name]
        for name, (_, right) in made.items()
        for key, outcome in right.items()
        if rows[name][key] not in outcome.split(" or ")
    }
    assert wrong == {}
    assert all(
        int(row["points"]) == sum(value == "correct" for value in row.values())
        for row in rows.values()
    )
    assert state(tmp_path / "class") == before and of_grading() == []
