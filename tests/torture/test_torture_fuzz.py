"""Recordings, progress and submissions that nobody wrote: a clear error or a right answer, never a crash or a hang."""

import contextlib
import copy
import functools
import io
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import lanes
import pytest
from lanes import LESSONS, share, within

import measurements
from helpers import predictions, widgets
from helpers.checks import codes, progress
from helpers.checks.core import Exercise
from lessons import all_keys, lesson02
from measurements import schema
from tools import grade

pytestmark = pytest.mark.slow
hypothesis = pytest.importorskip("hypothesis", reason="needs the package hypothesis")
st = hypothesis.strategies
INPUTS = share(300, 10_000)
SECONDS = 20  # what takes longer hangs; a busy machine takes a fraction of it
fuzzed = hypothesis.settings(
    max_examples=INPUTS,
    deadline=None,
    database=None,
    derandomize=not lanes.full,
    suppress_health_check=list(hypothesis.HealthCheck),
)

ODD_NUMBERS = [0, -1, 10**400, 1e308, 5e-324, float("nan"), float("inf"), [], {}]
ODD_TEXTS = ["", "\ud800", "\x00", "=1+1", "cpu", "NaN", "9" * 5000]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(ODD_NUMBERS + ODD_TEXTS)
)
JSON = st.recursive(
    SCALARS,
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def folder():
    """Give a folder in memory where there is one, since tens of thousands of files are written."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


class Counter:
    """Counts the inputs that a test was given."""

    def __init__(self):
        self.count = 0

    @contextlib.contextmanager
    def one(self):
        """Count one input and end it when it hangs."""
        self.count += 1
        with within(SECONDS):
            yield


def places(value):
    """Return every (container, key) of parsed JSON, the whole as (None, None)."""
    found, todo = [(None, None)], [value]
    while todo:
        part = todo.pop()
        keys = []
        if isinstance(part, dict | list):
            keys = list(part) if isinstance(part, dict) else range(len(part))
        found += [(part, key) for key in keys]
        todo += [part[key] for key in keys]
    return found


@st.composite
def changed(draw, whole):
    """Parsed JSON with one to three of its parts replaced, left out, or put in another's place."""
    value = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        part, key = draw(st.sampled_from(places(value)))
        how = draw(st.sampled_from(["replace", "replace", "leave out", "move", "add"]))
        if part is None:
            value = draw(JSON) if how == "replace" else value
        elif how == "leave out":
            del part[key]
        elif how == "add" and isinstance(part, dict):
            part[draw(st.text(max_size=8))] = draw(JSON)
        else:
            other, name = draw(st.sampled_from(places(value)))
            part[key] = (
                draw(JSON) if how == "replace" or other is None else copy.deepcopy(other[name])
            )
    return value


@st.composite
def cut(draw, text):
    """The bytes `text` cut short, with a piece overwritten, or doubled."""
    start, length = draw(st.integers(0, len(text))), draw(st.integers(0, 40))
    how = draw(st.sampled_from(["cut", "overwrite", "double"]))
    middle = {
        "cut": b"",
        "double": text[start : start + length] * 2,
        "overwrite": draw(st.binary(max_size=length)),
    }[how]
    return text[:start] + middle + (b"" if how == "cut" else text[start + length :])


def files_like(whole):
    """Return a strategy for contents of a file that holds the JSON `whole`: changed, damaged, or anything at all."""
    text = json.dumps(whole, indent=1).encode()
    dumped = changed(whole).map(lambda value: json.dumps(value).encode())
    utf_16 = text.decode().encode("utf-16")
    nested = st.sampled_from([b"[" * 100_000, b"\xef\xbb\xbf" + text, utf_16, b"9" * 100_000, b""])
    return st.one_of(dumped, dumped, dumped, cut(text), st.binary(max_size=60), nested)


# Recordings


@functools.cache
def small_recording():
    """Return a real recording with at most two rows of each section, unfinished, so that it may be gone on with."""
    data = json.loads((measurements.FOLDER / "amd-epyc-2-cores.json").read_text(encoding="utf-8"))
    data["sections"] = {name: rows[:2] for name, rows in data["sections"].items()}
    return data


def look_at(recording):
    """Ask a recording everything that figures ask."""
    assert recording.label and recording.busy in (True, False)
    for section in schema.SECTIONS:
        for label, rows in recording.by_device(section).items():
            assert label and rows
        assert all("device_kind" in row for row in recording.rows(section))
    json.dumps(recording.sections, allow_nan=False).encode()
    recording.label.encode()


def test_measurements(folder):
    counter, path = Counter(), folder / "fuzzed.json"

    @fuzzed
    @hypothesis.given(files_like(small_recording()))
    def read(content):
        with counter.one():
            path.write_bytes(content)
            try:
                found = measurements.load(path)
            except ValueError as error:
                assert str(error).startswith("fuzzed.json: ") and len(str(error)) < 1000
            else:
                look_at(found)

    read()
    assert counter.count >= INPUTS


# Progress

EXERCISE = next(value for value in vars(lesson02).values() if isinstance(value, Exercise))
STORED = {
    EXERCISE.key: {"status": "not yet", "hints": 1},
    "02.batch": {"status": "correct"},
    "quiz.02.alone": {"right": False, "answer": "x"},
    "quiz.01.false": {"right": True, "answer": "y"},
    "predict.02.default": {"guess": "on the CPU", "right": True},
    "predict.02.ms": {"guess": 2.5, "factor": 2.0},
}


@pytest.fixture
def home(folder, monkeypatch):
    """Keep progress in a folder of its own; give its file."""
    monkeypatch.setenv("GPU_COURSE_HOME", str(folder / "home"))
    monkeypatch.setattr(progress, "_memory", {})
    (folder / "home").mkdir(exist_ok=True)
    return folder / "home" / "progress.json"


def use_progress():
    """Do with stored progress what lessons do: hints, predictions, quizzes, codes."""
    assert codes.decode(progress.code())[0] == progress.states()
    with contextlib.redirect_stdout(io.StringIO()):
        EXERCISE.hint()
        for key, choices, unit in (
            ("02.default", ("on the CPU", "on a GPU"), None),
            ("02.ms", None, "ms"),
        ):
            prediction = widgets.predict(key, "which?", choices, unit)
            predictions._prediction_widget(prediction)
            prediction.reveal(choices[0] if choices else 3.0)
    widgets._to_repeat([])


def test_progress_files(home):
    counter = Counter()

    @fuzzed
    @hypothesis.given(files_like(STORED))
    def use(content):
        with counter.one():
            home.write_bytes(content)
            assert isinstance(progress.load(), dict)
            use_progress()
            assert progress.record("02.batch", status="correct")
            assert json.loads(home.read_bytes())["02.batch"]["status"] == "correct"
            assert {path.name for path in home.parent.iterdir()} <= {
                "progress.json",
                "progress.damaged.json",
            }

    use()
    assert counter.count >= INPUTS


# Submissions

ANSWERS = "x|*x|**x|lambda: 1|(yield)|1e999|...|[*x]|x := 1|ex.same.reference|answer=x|".split("|")
ANSWERS += ["0x" + "f" * 5000, "(" * 300 + ")" * 300, "-" * 3000 + "1", "'\\ud800'"]
LINES = "{}|{}|{}|x = 1|x[0] = 2|%matplotlib inline|!ls|torch?|del x|lambda: {}".split("|")
LINES += ["def g():\n    {}", "async def h():\n    await {}", "match x:\n    case 1: {}"]
LINES += ["from lessons.lesson02 import exercises as ex"]
BROKEN = [" " * 30_000 + "(", "\x00", "\ufeffx = 1", "x = " + "[" * 150, "%%bash\nexit 1"]
BROKEN += ["a, " * 9000 + "=!", "x = -" + "-" * 5000 + "1", "'''", "\ud800"]


@st.composite
def sources(draw):
    """The source of one cell: lines of Python as learners write it, checks of odd answers, or broken text."""
    check = f"ex.{draw(st.sampled_from(['same', 'batch', 'rate', 'none']))}.check({draw(st.sampled_from(ANSWERS))})"
    lines = draw(st.lists(st.sampled_from(LINES), max_size=4))
    if draw(st.integers(0, 5)) == 0:
        lines.append(draw(st.one_of(st.sampled_from(BROKEN), st.text(max_size=12))))
    return "\n".join(line.replace("{}", check) for line in lines)


@functools.cache
def small_lesson():
    """Return lesson 02 as parsed JSON: its first twelve code cells, without outputs."""
    whole = json.loads(LESSONS["02"].read_text(encoding="utf-8"))
    cells = [dict(cell, outputs=[]) for cell in whole["cells"] if cell["cell_type"] == "code"]
    return dict(whole, cells=cells[:12])


@st.composite
def notebooks(draw):
    """The bytes of a notebook whose cells are `sources`."""
    cells = [
        dict(small_lesson()["cells"][0], id=f"c{i}", source=each)
        for i, each in enumerate(draw(st.lists(sources(), min_size=1, max_size=4)))
    ]
    return json.dumps(dict(small_lesson(), cells=cells)).encode()


def test_submissions_are_read(folder, monkeypatch):
    counter, path = Counter(), folder / "02_fuzzed.ipynb"
    monkeypatch.setattr(grade, "run_cells", lambda *what: ([], {}))

    @fuzzed
    @hypothesis.given(st.one_of(notebooks(), notebooks(), files_like(small_lesson())))
    def read(content):
        with counter.one():
            path.write_bytes(content)
            row = grade.grade_one(path, SimpleNamespace(folder=folder), None)
            assert row["note"] or row["lesson"] in all_keys()
            assert all(len(str(text)) <= 400 for text in row.values())

    read()
    assert counter.count >= INPUTS


@pytest.mark.parametrize(
    "text", [" " * 200_000 + "(", "a, " * 60_000 + "=!", "\t" * 100_000 + "?("]
)
def test_a_long_line_is_read_in_no_time(text):
    with within(SECONDS):
        assert grade.DOUBTFUL.findall(text) == []
