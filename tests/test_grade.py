"""Grading a class: what `check` accepts in a notebook counts, hostile notebooks cost only themselves, nothing is lost."""

import argparse
import csv
import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import nbformat
import psutil
import pytest

from helpers.checks import core, expect
from lessons import all_keys
from tools import ROOT, _grade_run, _notebooks, _sheets, grade

SEALED = sys.platform == "linux" and not _grade_run.problem()
needs_sandbox = pytest.mark.skipif(not SEALED, reason="needs bubblewrap")
GRADE = [sys.executable, "-m", "tools", "grade"]
PRELUDE = """import argparse, math, os, statistics, subprocess, sys, time
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data.distributed import DistributedSampler
"""


def exercises_of(lesson, kind):
    """Return the lesson's exercises whose model answers are of a kind."""
    module = importlib.import_module(f"lessons.lesson{lesson}.exercises")
    every = [getattr(module, key[3:]) for key in all_keys()[lesson]]
    return [each for each in every if isinstance(each.reference, kind)]


def kinds_of(lesson):
    """Return for a lesson whether it has an answer that is a dict, and one whose values are booleans."""
    dicts = [each.reference for each in exercises_of(lesson, dict)]
    functions = exercises_of(lesson, types.FunctionType)
    return bool(dicts and functions), any(True in each.values() for each in dicts)


LESSON = max(all_keys(), key=kinds_of)
CODED = exercises_of(LESSON, types.FunctionType)[0]
CHOSEN = exercises_of(LESSON, dict)[0]
IMPORT = f"from lessons import lesson{LESSON} as ex\n" + PRELUDE
MODEL = re.sub(rf"\b{CODED.reference.__name__}\b", "model", CODED.solution_source())
CHECK = f"ex.{CODED.name}.check"
TABLE = repr(CHOSEN.reference)


def notebook(*sources):
    """Return a notebook with these code cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])


def save(folder, **notebooks):
    for name, content in notebooks.items():
        nbformat.write(content, folder / f"{name}.ipynb")


def run(folder, out, *options):
    """Grade with the real command; return its finished process and {submission: row}."""
    line = [*GRADE, folder, "--out", out, *options]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True, env=at(out), timeout=1500)
    rows = {}
    if out.exists():
        with open(out, encoding="utf-8-sig", newline="") as file:
            rows = {row["submission"].removesuffix(".ipynb"): row for row in csv.DictReader(file)}
    return done, rows


def at(out):
    """Return an environment in which temporary files lie beside the table: so processes can be told."""
    return {**os.environ, "TMPDIR": str(out.parent)}


WRAPPED = "@wraps(model)\ndef f(*a, **k): return model(*a, **k)"
REDEFINED = "old = model\ndef model(*a): return old(*a)"
# Ways to write one right answer: cells, and what is handed to check. MODEL defines `model`.
CODE = {
    "plain": ([MODEL], "model"),
    "lambda": ([MODEL], "lambda *a, **k: model(*a, **k)"),
    "keyword": ([MODEL], "answer=model"),
    "partial": ([MODEL, "from functools import partial"], "partial(model)"),
    "decorated": ([MODEL, "from functools import wraps", WRAPPED], "f"),
    "object": ([MODEL, "class Answer:\n    def __call__(self, *a): return model(*a)"], "Answer()"),
    "method": ([MODEL, "class Answer:\n    def get(self, *a): return model(*a)"], "Answer().get"),
    "closure": ([MODEL, "def make():\n    f = model\n    return lambda *a: f(*a)"], "make()"),
    "appended": ([MODEL, "all_of_them = []\nall_of_them.append(model)"], "all_of_them[-1]"),
    "global": ([MODEL, "def fill():\n    global f\n    f = model\nfill()"], "f"),
    "module": ([f"%%writefile mine.py\n{PRELUDE}{MODEL}", "from mine import *"], "model"),
    "magic": ([f"%%time\n{MODEL}", "%matplotlib inline\n!echo hello"], "model"),
    "failing": ([MODEL, "1 / 0", "def ("], "model"),
    "printing": ([MODEL, "print('x' * 10**6)"], "model"),
    "processes": ([MODEL, "for _ in range(80): subprocess.run(['true'])"], "model"),
    "threads": ([MODEL, "import threading\nthreading.Thread(target=print).start()"], "model"),
    "redefined": ([MODEL, "torch.manual_seed(7)", REDEFINED], "model"),
    "exec": ([f"exec({MODEL!r})"], "model"),
    "guarded": ([MODEL, "if __name__ == '__main__':\n    f = model"], "f"),
    "late": ([MODEL, "import atexit\natexit.register(print)"], "model"),
}
FILL = f"d = {{}}\nsource = {TABLE}\n"
DATA = {
    "literal": f"d = {TABLE}",
    "update": FILL + "d.update(source)",
    "loop": FILL + "for key in source:\n    d[key] = None\n    d[key] = source[key]",
    "or": FILL + "d |= source",
    "function": FILL + "def fill(k, v): d[k] = v\nfor k, v in source.items(): fill(k, v)",
    "ordered": FILL + "from collections import OrderedDict\nd = OrderedDict(source)",
    "default": FILL + "from collections import defaultdict\nd = defaultdict(str, source)",
    "numpy": FILL + "import numpy\nd = {k: numpy.array([v])[0] for k, v in source.items()}",
    "zip": FILL + "d = dict(zip(source, source.values()))",
    "pairs": FILL + "pairs = []\nfor p in source.items(): pairs.append(p)\nd = dict(pairs)",
    "json": FILL + "import json\nd = json.loads(json.dumps(source))",
    "setdefault": FILL + "for k, v in source.items(): d.setdefault(k, v)",
    "reversed": FILL + "d = dict(reversed(source.items()))",
    "copy": FILL + "import copy\nd = copy.deepcopy(source)",
    "own class": FILL + "class Mine(dict): pass\nd = Mine(source)",
    "list": FILL + "d = list(source.items())",
    "extra": FILL + "d = {**source, 'more': 1}",
    "missing": FILL + "d.update(list(source.items())[1:])",
    "untouched": FILL + "d = dict.fromkeys(source)",
    "ellipsis": FILL + "d = dict.fromkeys(source, ...)",
}


def honest(code, data):
    """Return a notebook with one way of writing the one answer, and one of the other."""
    cells, answer = CODE[code]
    return notebook(IMPORT, *cells, f"{CHECK}({answer})", DATA[data], f"ex.{CHOSEN.name}.check(d)")


def said(data):
    """Return what check says to a way of writing the dict, here, in this process."""
    names = {}
    exec(DATA[data], names)
    return CHOSEN.outcome(names["d"]).status


def assert_honest(pairs, folder):
    (folder / "class").mkdir()
    for code, data in pairs:
        save(folder / "class", **{f"{code}-{data}": honest(code, data)})
    done, rows = run(folder / "class", folder / "g.csv")
    assert len(rows) == len(pairs), done.stderr
    for code, data in pairs:
        row = rows[f"{code}-{data}"]
        assert (row[CODED.key], row[CHOSEN.key]) == (core.CORRECT, said(data)), row
        assert row["review"] == "", row


PAIRS = list(zip(CODE, DATA, strict=True))


@needs_sandbox
def test_what_check_accepts_counts(tmp_path):
    assert_honest([("global", "update")], tmp_path)


@needs_sandbox
@pytest.mark.slow
def test_forty_ways_to_write_an_answer(tmp_path):
    assert_honest(PAIRS, tmp_path)


def with_model_answers(path):
    """Return a lesson with each model answer just above its check."""
    module = importlib.import_module(f"lessons.lesson{path.name[:2]}.exercises")
    lesson = _notebooks.read(path)
    for cell in lesson.cells:
        for name in re.findall(r"^ex\.(\w+)\.check\(", cell.source, flags=re.M):
            answer = PRELUDE + getattr(module, name).solution_source()
            before, line, after = cell.source.partition(f"ex.{name}.check(")
            cell.source = f"{before}{answer}\n{line}{after}"
    return lesson


@needs_sandbox
@pytest.mark.slow
def test_the_model_answers_of_every_lesson_are_correct(tmp_path):
    (tmp_path / "class").mkdir()
    for path in _notebooks.find(all_keys()):
        save(tmp_path / "class", **{path.stem: with_model_answers(path)})
    done, rows = run(tmp_path / "class", tmp_path / "g.csv", "--seconds", "1200")
    assert done.returncode == 0 and len(rows) == len(all_keys()) > 0, done.stderr
    for row in rows.values():
        keys = all_keys()[row["lesson"]]
        assert [row[key] for key in keys] == [core.CORRECT] * len(keys), row


RUNS_ON = f"{CHECK}(model)"
# What a hostile cell holds. The check above it stays correct, and so does the one below it.
HOSTILE = {
    "exit": "os._exit(0)",
    "sys_exit": "sys.exit()",
    "quit": "quit()",
    "hang": "time.sleep(10**6)",
    "loop": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "deaf": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [2, 15])\ntime.sleep(10**6)",
    "segfault": "import ctypes\nctypes.string_at(0)",
    "abort": "os.abort()",
    "stop": "os.kill(os.getpid(), 19)",
    "forks": "while True:\n    os.fork()",
    "sleepers": "for _ in range(200):\n    if os.fork() == 0: time.sleep(900)",
    "threads": "import threading\nfor _ in range(5000):\n"
    "    threading.Thread(target=time.sleep, args=(900,)).start()",
    "memory": "x = b'x' * (12 * 10**9)",
    "memory_of_many": "for _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * 10**9\n"
    "        time.sleep(900)\ntime.sleep(900)",
    "memory_slowly": "x = []\nwhile True: x.append(b'x' * 10**7)",
    "recursion": "sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "output": "for _ in range(300): print('x' * 10**6)",
    "errors": "raise ValueError('x' * 10**7)",
    "big_file": "with open('x', 'wb') as f:\n    while True: f.write(b'x' * 10**6)",
    "many_files": "for i in range(10**5): open(f'{i}', 'w').close()",
    "memory_of_files": "for _ in range(60):\n    f = os.memfd_create('x')\n"
    "    for _ in range(50): os.write(f, b'x' * 10**6)\ntime.sleep(900)",
    "memory_of_segments": """import ctypes
c = ctypes.CDLL(None, use_errno=True)
c.shmat.restype, c.shmdt.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for _ in range(30):
    key = c.shmget(0, 10**8, 0o1600)
    if key < 0: raise OSError(ctypes.get_errno(), "shmget")
    place = c.shmat(key, None, 0)
    ctypes.memset(place, 1, 10**8)
    c.shmdt(place)
time.sleep(900)""",
    "shared_memory": "with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(b'x' * 10**6)",
    "events": "from tools import _grade_run as g\nfor _ in range(10**5): g.note(a=1)",
    "garbage": "open(os.environ['GRADE_EVENTS'], 'ab').write(b'[' * 10**6 + b'\\n\\xff\\n{\"key\": []}')",
    "kills_all": "os.kill(-1, 9)",
    "kills_parent": "os.kill(os.getppid(), 9)",
    "stops_parent": "os.kill(os.getppid(), 19)",
    "daemon": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(900)\n    os._exit(0)",
    "patched": "from helpers.checks import core\ncore.Exercise.outcome = lambda *a: 1 / 0",
    "builtins": "import builtins\nbuiltins.len = lambda x: 1 / 0",
    "modules": "sys.modules.clear()",
    "stdout": "sys.stdout = sys.stderr = None\nos.closerange(0, 3)",
    "descriptors": "os.closerange(3, 1000)",
    "deleted": "import shutil\nshutil.rmtree('/', ignore_errors=True)",
    "overwrites": "for p in ('@TARGET@', '@FOLDER@/overwrites.ipynb'):\n"
    "    try: open(p, 'w').write('gone')\n    except OSError: pass",
    "secret": "raise ValueError(open('@SECRET@').read())",
    "passwords": "raise ValueError(open('/etc/shadow').read())",
    "neighbors": "raise ValueError(os.listdir('@FOLDER@'))",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', @PORT@), 3)",
    "other_processes": "raise ValueError(os.listdir('/proc/1/root/home'))",
    "root": "os.setuid(0)\nopen('@SECRET@')",
}
# After these not even the rest of the notebook can be told; nothing else suffers. After "stdout", Jupyter hangs.
FATAL = {"garbage", "events", "patched", "builtins", "modules", "stdout"}


def hostile(name, places):
    text = HOSTILE[name]
    for word, value in places.items():
        text = text.replace(f"@{word}@", str(value))
    below = [DATA["literal"], f"ex.{CHOSEN.name}.check(d)"]
    return notebook(IMPORT, MODEL, f"{CHECK}(model)", text, *below)


def graded_hostile(names, tmp_path):
    """Grade hostile notebooks; assert that nothing outside was read, changed, reached or left. Return the rows."""
    folder, secret = tmp_path / "class", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("the password")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        target = ROOT / "lessons" / "__init__.py"
        places = {"FOLDER": folder, "SECRET": secret, "TARGET": target, "PORT": port}
        for name in names:
            save(folder, **{name: hostile(name, places)})
        watched = [*folder.iterdir(), secret, target]
        before = [path.read_bytes() for path in watched]
        done, rows = run(folder, tmp_path / "g.csv", "--seconds", "400", "--memory", "2")
        assert done.returncode == 0 and set(rows) == set(names), done.stderr
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert [path.read_bytes() for path in watched] == before
    shown = (tmp_path / "g.csv").read_text(encoding="utf-8-sig")
    assert "the password" not in shown and "root:" not in shown and ".ipynb'" not in shown
    assert left_behind(tmp_path) == []
    return rows


def running(folder):
    """Tell whether a sandbox runs a submission of the command whose table lies in a folder."""
    return any("_grade_run" in word for words in left_behind(folder) for word in words)


def left_behind(folder):
    """Return the command lines of the processes whose command or environment names a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.environ().get("GRADE_EVENTS", "")]
        except psutil.Error:
            continue
        if any(str(folder) in word for word in words):
            found.append(words)
    return found


def assert_costs_only_itself(rows):
    for name, row in rows.items():
        assert row[CODED.key] == core.CORRECT or name in FATAL, (name, row)
        assert row[CHOSEN.key] == core.CORRECT or name in FATAL, (name, row)


@needs_sandbox
def test_a_hostile_notebook_costs_only_itself(tmp_path):
    assert_costs_only_itself(graded_hostile(["exit", "overwrites"], tmp_path))


@needs_sandbox
def test_memory_that_no_process_owns_is_refused(tmp_path):
    """Such memory is in no sum of processes: a run could take all of the machine, and its neighbors would be ended."""
    names, most = ["memory_of_files", "memory_of_segments"], [0]
    start, done = psutil.virtual_memory().shared, threading.Event()

    def look():
        while not done.wait(0.1):
            most.append(psutil.virtual_memory().shared - start)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        assert_costs_only_itself(graded_hostile(names, tmp_path))
    finally:
        done.set()
        watching.join()
    assert max(most) < 1e9


@needs_sandbox
@pytest.mark.slow
def test_the_cell_that_leaves_too_many_processes_is_to_blame(tmp_path):
    """They are counted twice a second: cells that begin meanwhile, a right answer in one, would be left out for it."""
    rows = graded_hostile(["sleepers"], tmp_path)
    assert_costs_only_itself(rows)
    assert rows["sleepers"]["note"] == "cell 4 stopped: more than 128 processes and threads"


def test_a_cell_begins_once_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(_grade_run, "EVENTS", str(tmp_path / "events"))
    waits, reasons = [], ["more than 128 processes and threads", ""]
    monkeypatch.setattr(_grade_run.time, "sleep", waits.append)
    monkeypatch.setattr(_grade_run, "excess", lambda pid, memory: reasons.pop(0))
    _grade_run.begin(5, 2)
    assert _grade_run.events(tmp_path / "events") == [{"begin": 5}] and len(waits) == 1


@needs_sandbox
@pytest.mark.slow
def test_forty_hostile_notebooks(tmp_path):
    assert_costs_only_itself(graded_hostile(list(HOSTILE), tmp_path))


COPIES = """import os, time
x = b"x" * 4 * 10**8
[os.fork() for _ in range(2)]
time.sleep(60)"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's counts")
def test_memory_that_processes_share_counts():
    with subprocess.Popen([sys.executable, "-c", COPIES], start_new_session=True) as process:
        try:
            until = time.monotonic() + 20
            why = _grade_run.watch(process, 0.2, until, threading.Event())
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert why == "more than 0.2 GB of memory"


def test_a_run_ends_before_the_machine_is_out_of_memory(monkeypatch):
    """What sockets hold belongs to no process, so no sum of processes has it."""
    full = types.SimpleNamespace(percent=96)
    monkeypatch.setattr(_grade_run.psutil, "virtual_memory", lambda: full)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            why = _grade_run.watch(process, 9, time.monotonic() + 20, threading.Event())
        finally:
            process.kill()
    assert why == "the machine's memory ran short"


LAZY = f"class Same(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\nd = {TABLE}"
CREDIT = {
    "reference": (["ex.{0}.check(ex.{0}.reference)"], "reference"),
    "imported": (
        [f"from lessons.lesson{LESSON}.exercises import *", CHECK + "(CODED)"],
        "lessons.",
    ),
    "printed": (["ex.{0}.solution()", MODEL, RUNS_ON], "solution"),
    "patched": (
        ["object.__setattr__(ex.{0}, 'check_answer', lambda a: 'fine')", CHECK + "(len)"],
        "check_answer",
    ),
    "frames": (
        ["def f(*a): return sys._getframe(1).f_locals", CHECK + "(f)"],
        "_getframe; uses f_locals",
    ),
    "equal": ([LAZY], "__eq__"),
    "replaced": (["import helpers.checks.expect as e\ne.choices = len"], "replaced choices"),
    "own": (["ex.call = lambda *a: None", CHECK + "(len)"], "replaced call"),
}


def test_what_a_cell_replaced_in_the_checks_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(_grade_run, "EVENTS", str(tmp_path / "events"))
    monkeypatch.setattr(_grade_run, "unchanged", _grade_run.judges())
    module = importlib.import_module(f"lessons.lesson{LESSON}.exercises")
    (tmp_path / "events").touch()
    _grade_run.recheck([])
    assert _grade_run.events(tmp_path / "events") == []
    monkeypatch.setattr(expect, "choices", len)
    monkeypatch.setattr(module, "call", lambda *a: None)
    check = CODED.check_answer
    object.__setattr__(CODED, "check_answer", lambda answer: "fine")
    try:
        _grade_run.recheck([])
    finally:
        object.__setattr__(CODED, "check_answer", check)
    found = {event["review"] for event in _grade_run.events(tmp_path / "events")}
    assert found == {"replaced choices", "replaced call", f"replaced {CODED.name}"}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("import gc\ngc.get_objects()", ["get_objects"]),
        ("import gc\ngc.collect()", []),
        ("currentframe().f_back.f_globals", ["currentframe", "f_back", "f_globals"]),
        ("sys.settrace(f)", ["settrace"]),
    ],
)
def test_doubtful_words(cell, words):
    assert grade.DOUBTFUL.findall(cell) == words


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        (
            "x = 1\nex.a.check(x)\nex . b . check( x )",
            [("ex.a.check(x)", "a"), ("ex.b.check(x)", "b")],
        ),
        ("ex.a.check(\n    lambda x:\n    x\n)", [("ex.a.check(lambda x: x)", "a")]),
        ("if False:\n    ex.a.check(x)", []),
        ("%time\nex.a.check(x)", []),
        ("\n" * 10**6 + "ex.a.check(x)", [("ex.a.check(x)", "a")]),
        ("-" * 10**5 + "1", []),
    ],
    ids=["plain", "lines", "block", "magic", "blank", "deep"],
)
def test_checks_that_are_called_again(cell, found):
    start = time.process_time()
    assert _grade_run.checks(cell) == found
    assert time.process_time() - start < 10


def test_a_note_says_where_it_stopped(tmp_path, monkeypatch):
    save(tmp_path, a=notebook(IMPORT, RUNS_ON))
    args = argparse.Namespace(folder=tmp_path)
    stopped = {0: "why", 2: "why", 3: "why"}
    monkeypatch.setattr(grade, "run_cells", lambda *a: ([], stopped))
    words = ("it did not start", "cell 2 stopped", "the checks called again stopped")
    note = "; ".join(f"{each}: why" for each in words)
    assert grade.grade_one(tmp_path / "a.ipynb", args, None)["note"] == note


def test_a_table_that_cannot_be_written_is_shown(tmp_path, monkeypatch, capsys):
    def write(path, content):
        raise OSError(28, "No space left on device")

    save(tmp_path, a=notebook(IMPORT))
    monkeypatch.setattr(_sheets.files, "write", write)
    monkeypatch.setattr(grade, "grade_all", lambda paths, args: [{"submission": "a", "note": "=1"}])
    monkeypatch.setattr(_grade_run, "problem", str)
    assert status([str(tmp_path), "--out", str(tmp_path / "g.csv")]) == 2
    said = capsys.readouterr()
    assert list(csv.reader(said.out.splitlines()))[:2] == [["submission", "note"], ["a", "'=1"]]
    assert "No space left on device; the table" in said.err


def test_the_old_table_is_no_submission(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_grade_run, "problem", str)
    save(tmp_path, a=notebook(IMPORT))
    (tmp_path / "g.csv").write_text("old")
    parser = argparse.ArgumentParser()
    grade.add_arguments(parser)
    for out in ("g.csv", "./g.csv", str(tmp_path / "g.csv"), f"../{tmp_path.name}/g.csv"):
        args = parser.parse_args([".", "--out", out, "--force"])
        assert [path.name for path in grade.checked(args)] == ["a.ipynb"]


@needs_sandbox
def test_a_sandbox_that_refuses_no_memory_is_none(tmp_path, monkeypatch, capsys):
    """Without libseccomp nothing runs, rather than with fewer limits than promised; what to install is said."""
    real, library = _grade_run.sealed, next(Path("/usr").glob("lib*/**/libseccomp.so.2"))
    places = [library.resolve(), Path("/", library.resolve().relative_to("/usr"))]  # /lib, too
    hidden = [word for each in places for word in ("--ro-bind", os.devnull, str(each))]
    monkeypatch.setattr(_grade_run, "sealed", lambda *words: [*real(*words), *hidden])
    save(tmp_path, a=notebook(IMPORT, RUNS_ON))
    assert status([str(tmp_path), "--out", str(tmp_path / "g.csv")]) == 2
    said = capsys.readouterr().err
    assert "nothing ran: install libseccomp2 (Debian, Ubuntu) or libseccomp (Fedora, Arch)" in said
    assert "--unsealed" in said and not (tmp_path / "g.csv").exists()


@needs_sandbox
@pytest.mark.slow
def test_review_names_what_is_cheap_to_see(tmp_path):
    (tmp_path / "class").mkdir()
    for name, (cells, _) in CREDIT.items():
        cells = [cell.replace("{0}", CODED.name) for cell in cells]
        cells = [cell.replace("CODED", CODED.reference.__name__) for cell in cells]
        save(tmp_path / "class", **{name: notebook(IMPORT, *cells, f"{CHECK}(None)")})
    _, rows = run(tmp_path / "class", tmp_path / "g.csv")
    assert [n for n, (_, words) in CREDIT.items() if words not in rows[n]["review"]] == [], rows


@needs_sandbox
def test_each_file_has_a_line_that_says_what_it_is(tmp_path):
    folder = tmp_path / "class"
    (folder / "deep").mkdir(parents=True)
    below = notebook(IMPORT, f"{CHECK}(model)", MODEL)
    other = next(number for number in all_keys() if number != LESSON)
    first = f"from lessons import lesson{other} as first"
    mixed = notebook(first, *[cell.source for cell in below.cells])
    failing = notebook(IMPORT, f"{CHECK}(model)")
    save(folder, below=below, mixed=mixed, failing=failing, empty=notebook("print(1)"))
    (folder / "below.ipynb").rename(folder / "deep" / "below.IPYNB")
    contents = {"a.zip": b"PK", "b.ipynb.txt": b"{}", "c.ipynb": b"", "d.ipynb": b"[" * 10**6}
    contents |= {"e.ipynb": b'{"cells": [3]}', "=f.ipynb": b"\xff", ".hidden.ipynb": b""}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "g.ipynb").symlink_to(folder / "mixed.ipynb")
    _, rows = run(folder, folder / "grades.csv")
    assert rows["deep/below.IPYNB"][CODED.key] == core.CORRECT
    assert (rows["mixed"]["lesson"], rows["mixed"][CODED.key]) == (LESSON, core.CORRECT)
    assert rows["failing"][CODED.key] == core.ERROR
    assert "NameError" in rows["failing"][f"{CODED.key} reason"]
    assert "no lesson's notebook" in rows["empty"]["note"]
    assert "unpack or rename" in rows["a.zip"]["note"] and "rename" in rows["b.ipynb.txt"]["note"]
    assert all("not a notebook" in rows[name]["note"] for name in ("c", "d", "e", "'=f"))
    assert "a link" in rows["g"]["note"] and len(rows) == 11


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nowhere --out g.csv", "FOLDER is nowhere"),
        ("empty --out g.csv", "FOLDER is empty; it takes a folder with notebooks"),
        ("full --out none/g.csv", "--out is none/g.csv; there is no folder"),
        ("full --out full/a.ipynb --force", "it takes a FILE.csv"),
        ("full --out old.csv", "--out is old.csv, which is there already; --force"),
        ("full --out g.csv --jobs 0", "--jobs: takes a whole number above 0, not '0'"),
        ("full --out g.csv --seconds -1", "--seconds: takes a whole number above 0, not '-1'"),
        ("full --out g.csv --memory nan", "--memory: takes a whole number above 0, not 'nan'"),
    ],
)
def test_wrong_calls_name_the_argument_and_change_nothing(
    line, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/a.ipynb").write_text("mine")
    (tmp_path / "old.csv").write_text("edited by hand")
    assert status(line.split()) == 2 and words in capsys.readouterr().err
    assert (tmp_path / "full/a.ipynb").read_text() == "mine"
    assert (tmp_path / "old.csv").read_text() == "edited by hand"
    assert not (tmp_path / "g.csv").exists()


def status(line):
    """Return the exit status of `grade` called with these words."""
    parser = argparse.ArgumentParser()
    grade.add_arguments(parser)
    try:
        return grade.run(parser.parse_args(line))
    except SystemExit as end:
        return end.code


def test_without_a_sandbox_nothing_runs(tmp_path, monkeypatch, capsys):
    save(tmp_path, a=notebook(IMPORT, f"open({str(tmp_path / 'ran')!r}, 'w')", RUNS_ON))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert status([str(tmp_path), "--out", str(tmp_path / "g.csv")]) == 2
    said = capsys.readouterr().err
    assert "--unsealed" in said and "apt install bubblewrap" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ipynb"]


@pytest.mark.slow
def test_unsealed_says_so_first_and_keeps_limits(tmp_path):
    (tmp_path / "class").mkdir()
    names = ["exit", "sleepers", "daemon", "big_file", "memory_slowly"]
    for name in names:
        save(tmp_path / "class", **{name: hostile(name, {})})
    done, rows = run(tmp_path / "class", tmp_path / "g.csv", "--unsealed", "--memory", "2")
    assert done.stdout.startswith("Not sealed") and len(rows) == len(names)
    assert_costs_only_itself(rows)
    assert left_behind(tmp_path) == []


@needs_sandbox
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (9, -9)])
def test_a_stopped_run_leaves_the_old_table_and_no_process(sent, status, tmp_path):
    folder, out = tmp_path / "class", tmp_path / "g.csv"
    folder.mkdir()
    save(folder, a=notebook(IMPORT, "time.sleep(900)", RUNS_ON))
    out.write_text("old")
    line = [*GRADE, folder, "--out", out, "--force"]
    with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL, env=at(out)) as process:
        while not running(tmp_path) and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(sent)
        assert process.wait(60) == status
    until = time.monotonic() + 10  # the kernel ends what a killed process leaves, a moment later
    while left_behind(tmp_path) and time.monotonic() < until:
        time.sleep(0.1)
    assert out.read_text() == "old" and left_behind(tmp_path) == []


def test_no_cell_is_a_formula():
    texts = ("\t=1+1\n2", "-1", "\n=1", "a\x1b[31m\udce9")
    cells = ["\\t=1+1 2", "'-1", "'=1", "a\\x1b[31m\\udce9"]
    assert [_sheets.harmless(text) for text in texts] == cells
