"""What all tests share: lanes, one thread each, stored progress left alone, practice GPUs for a test."""

import itertools
import os
import signal
from pathlib import Path

import pytest

from course import threads
from course.measurements.reader import schema_checker

schema_checker()  # before nbformat, which would wait 1.5 s for its grammar
# Several tests run at once, so each of them, and each kernel it starts, computes in one thread. A person's choice wins.
os.environ.setdefault(threads.THREADS, "1")
os.environ["PRACTICE_GPUS_CPU"] = "typical"  # forecasts don't depend on who has calibrated theirs
os.environ.update(threads.variables())

TESTS = Path(__file__).resolve().parent
LANES = {
    "all": "the default lane and the tests marked slow",
    "browser": "only the tests that drive JupyterLab in a browser",
    "gpu": "only the tests to which a GPU makes a difference",
}
FOLDERS = {"browser": {"browser"}}  # folder: flags that need it


def pytest_addoption(parser):
    """Add one flag for each lane."""
    group = parser.getgroup("lanes of the course")
    for name, text in LANES.items():
        group.addoption(f"--{name}", action="store_true", help=text)


def pytest_configure():
    """Let Ctrl-C arrive, which some tests send: what a shell runs in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def flags(config):
    """Return the names of the lanes that this run asks for; none means the default lane."""
    return {name for name in LANES if config.getoption(name)}


def pytest_report_header(config):
    """Say which lane runs and how to ask for the others."""
    others = " ".join(f"--{name}" for name in LANES)
    return f"lane: {', '.join(flags(config)) or 'default'} (others: {others})"


def pytest_ignore_collect(collection_path, config):
    """Leave a lane's folder alone until it is asked for, since it imports more; and all others where it is alone."""
    asked = flags(config)
    for folder, needed_by in FOLDERS.items():
        if inside(folder, collection_path) and not needed_by & asked:
            return True
    if asked == {"browser"} and collection_path.suffix == ".py":
        return not inside("browser", collection_path) or None
    return None


def inside(folder, path):
    """Tell whether `path` is a folder of tests, or lies in it."""
    return (TESTS / folder) in (path, *path.parents)


def lanes_of(item):
    """Return the lanes that a test belongs to."""
    marks = {mark.name for mark in item.iter_markers()} & {"slow", "browser", "gpu"}
    return marks if marks - {"gpu"} else {*marks, "default"}


def pytest_collection_modifyitems(config, items):
    """Keep the tests of the lanes asked for."""
    for item in items:
        for name in set(item.path.parts) & set(FOLDERS):
            item.add_marker(name)
        if "practice_gpus" in item.path.parts:
            item.add_marker("gpu")
    asked = flags(config) or {"default"}
    if "all" in asked:
        asked |= {"default", "slow"}
    chosen = [item for item in items if lanes_of(item) & asked]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = dealt(chosen, getattr(config, "workerinput", {}).get("workercount", 1))


LONGEST = (  # a whole notebook each
    "test_runs_offline_with_the_outputs_that_are_stored_and_little_memory",
    "test_a_learner_may_run_every_cell_twice",
    "test_a_lesson_alone_brings_its_helpers_and_nothing_else",
    "test_every_solution_is_correct_in_its_lesson",
)


def dealt(items, workers):
    """Return the tests so that each worker, which begins with an equal slice, has long ones first.

    The short ones at the end then go to whoever is done (xdist's worksteal), and all workers end together.
    """
    long = [item for item in items if getattr(item, "originalname", "") in LONGEST]
    short = iter([item for item in items if item not in set(long)])
    order = []
    for worker in range(workers):
        mine = long[worker::workers]
        rest = max(0, (len(items) + worker) // workers - len(mine))
        order += [*mine, *itertools.islice(short, rest)]
    return [*order, *short]


@pytest.fixture(autouse=True, scope="session")
def no_stored_progress(tmp_path_factory):
    """Keep progress of exercises in a fresh folder for the whole run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_COURSE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def lessons(tmp_path, monkeypatch):
    """Return a folder of two lessons and a script, whose copies go beside it."""
    from course.tools import _copies

    originals = tmp_path / "notebooks"
    (originals / "scripts").mkdir(parents=True)
    for name in ("00_start_here.ipynb", "03_cnn.ipynb", "scripts/train.py"):
        (originals / name).write_text("first text")
    monkeypatch.setattr(_copies, "ROOT", tmp_path)
    monkeypatch.setattr(_copies, "ORIGINALS", originals)
    monkeypatch.setattr(_copies, "FOLDER", tmp_path / "my_notebooks")
    return originals


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Keep progress and the GPU code of one test in a folder of its own; give it."""
    from course.checks import progress
    from course.measurements import gpu_code

    monkeypatch.setenv("GPU_COURSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(progress, "_memory", {})
    monkeypatch.setattr(gpu_code, "_memory", {})
    return tmp_path / "home"
