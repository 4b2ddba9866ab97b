"""Installing: complete or not at all, one at a time, the build that suits the machine, nothing of others touched."""

import os
import re
import subprocess
import sys
import time

import pytest
from copies import everything, settle
from packaging.requirements import Requirement

from course.tools import ROOT, _install, needs
from course.tools._install import SetupError

posix = pytest.mark.skipif(os.name == "nt", reason="locks and signals of POSIX")


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Return a course's folder, alone on a disk of 9 GB, whose PyTorch index answers."""
    (tmp_path / "requirements.txt").write_text("# nothing\n")
    (tmp_path / "pyproject.toml").write_text("")
    settle(monkeypatch, tmp_path)
    monkeypatch.setattr(_install, "answers", lambda: True)
    monkeypatch.setattr(_install.shutil, "which", lambda name: None)
    return tmp_path


@pytest.fixture
def steps(house, monkeypatch):
    """Return the list of the steps taken, (name, words); none does anything but make a Python. `fails` names one that does."""

    class Steps(list):
        fails = None

    taken = Steps()
    python = _install.python_of(house / ".venv")

    def call(step, command, lock=()):
        taken.append((step, [str(word) for word in command]))
        if step == taken.fails:
            raise SetupError(step)
        python.parent.mkdir(exist_ok=True, parents=True)
        python.touch()

    monkeypatch.setattr(_install, "call", call)
    return taken


def test_an_environment_is_made_once_and_brought_up_to_date(house, steps):
    python = _install.ensure()
    venv, pip, uv, trial = (words for _, words in steps)
    assert venv[1:] == ["-m", "venv", str(house / ".venv")] and pip[-1] == "uv"
    assert uv[-4:] == ["--constraints", _install.VERSIONS, "--torch-backend", "auto"]
    assert "torchvision.ops.nms" in trial[-1]
    steps.clear()
    assert _install.ensure() == python and not steps, "later starts take seconds"
    (house / "requirements.txt").write_text("# something new\n")
    _install.ensure()
    assert [step for step, _ in steps][1:] == ["pip", "uv", "the first import of PyTorch"]


@pytest.mark.parametrize("step", ["pip", "uv", "the first import of PyTorch"])
def test_what_is_not_complete_is_never_trusted(house, steps, step):
    """Two versions of torch stood in one environment that was stamped complete."""
    steps.fails = step
    with pytest.raises(SetupError):
        _install.ensure()
    assert _install.stamp() == []
    steps.fails = None
    _install.ensure()
    assert _install.stamp() == _install.complete("auto", [])
    (house / "pyproject.toml").write_text("# an update that fails")
    steps.fails = step
    with pytest.raises(SetupError):
        _install.ensure()
    assert _install.stamp() == []


def test_what_tests_need_comes_on_top_once_and_stays(house, steps):
    for extras in ([], ["test"], ["test"], [], ["browser"]):
        _install.ensure(extras=extras)
    asked = [words[words.index("-e") + 1] for _, words in steps if "-e" in words]
    assert asked == [".[test]", ".[browser,test]"]


@pytest.mark.parametrize(
    ("wheels", "index", "words"),
    [
        ("cpu", False, ["--torch-backend", "cpu"]),  # asked for by name: uv says why not
        ("rocm6.4", True, ["--torch-backend", "rocm6.4"]),
        ("default", True, []),
        (None, True, ["--torch-backend", "auto"]),
        (None, False, []),
    ],
)
def test_the_build_of_pytorch_is_the_one_asked_for_or_suits(
    house, steps, monkeypatch, capsys, wheels, index, words
):
    monkeypatch.setattr(_install, "answers", lambda: index)
    _install.ensure(wheels, latest=True)
    [uv] = [each for step, each in steps if step == "uv"]
    assert uv[uv.index("requirements.txt") + 1 :] == words
    told = capsys.readouterr().out
    assert ("does not answer: the plain package index's" in told) is (wheels is None and not index)


@pytest.mark.parametrize(
    ("gpu", "index", "large"),
    [("/usr/bin/nvidia-smi", True, True), (None, False, True), (None, True, False)],
)
def test_before_gigabytes_are_fetched_a_line_says_so(
    house, steps, monkeypatch, capsys, gpu, index, large
):
    """On the room's network, a class of twenty fetched 60 GB."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(_install, "answers", lambda: index)
    monkeypatch.setattr(_install.shutil, "which", lambda name: gpu)
    _install.ensure()
    told = capsys.readouterr().out
    assert ("About 3 GB are fetched" in told and "--cpu" in told) is large


def test_another_build_is_not_put_into_the_same_environment(house, steps):
    _install.ensure("cpu")
    with pytest.raises(SetupError, match="holds the cpu build. Delete that folder"):
        _install.ensure("cu130")


@pytest.mark.parametrize("kind", ["of uv, without pip", "a file", "a link"])
def test_an_environment_that_the_course_did_not_make_stays(house, steps, tmp_path_factory, kind):
    place = house / ".venv"
    if kind == "a link":
        place.symlink_to(tmp_path_factory.mktemp("elsewhere"))
    elif kind == "a file":
        place.write_text("my-environment")
    else:
        place.mkdir()
        (place / "my notes.txt").write_text("precious")
    before = everything(house), everything(place.resolve())
    with pytest.raises(SetupError, match=r"did not make it, so it stays as it is.*--here"):
        _install.ensure()
    assert before == (everything(house), everything(place.resolve()))


@pytest.mark.parametrize("text", ["", "x\ncpu\n\nmore"])
def test_a_damaged_stamp_is_repaired(house, steps, text):
    _install.ensure()
    steps.clear()
    (house / ".venv" / _install.STAMP).write_text(text)
    _install.ensure()
    assert steps and _install.stamp() == _install.complete("auto", [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda patch: patch.setattr(sys, "version_info", (3, 9, 1)), "too old: 3.10 or later"),
        (
            lambda patch: patch.setattr(_install, "gigabytes", lambda w: 99),
            "needs 99 GB, 9.0 are",
        ),
    ],
)
def test_what_will_not_do_is_said_before_anything_is_made(house, steps, monkeypatch, change, words):
    change(monkeypatch)
    with pytest.raises(SetupError, match=words):
        _install.ensure()
    assert not steps and not (house / ".venv").exists()


def test_a_failing_step_says_what_to_do(house):
    words = "uv failed; the reason stands above.*HTTPS_PROXY.*goes on"
    with pytest.raises(SetupError, match=words):
        _install.call("uv", [sys.executable, "-c", "raise SystemExit(3)"])


HOLDER = """
import sys
from course.tools import _install
with _install.alone() as lock:
    _install.call("uv", [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(60)"], lock)
"""


@posix
def test_an_installation_outlives_its_killed_lab_and_is_not_joined_by_another():
    """After kill -9, up to three installers wrote into one environment."""
    lab = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    import psutil

    assert lab.stdout.readline() == "on\n"
    [installer] = psutil.Process(lab.pid).children()
    try:
        lab.kill()
        lab.wait()
        with pytest.raises(SetupError, match="Another installation is at work"):
            _install.alone().__enter__()
    finally:
        installer.kill()
    until = time.monotonic() + 10
    while True:
        try:
            with _install.alone():
                return
        except SetupError:
            assert time.monotonic() < until, "free as soon as the installer has ended"
            time.sleep(0.05)


def test_versions_are_pinned_inside_the_ranges_of_the_course():
    """What is installed in a year is what was tried; PyTorch follows the machine's driver."""
    lines = (ROOT / _install.VERSIONS).read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    here = {pin.name: pin.specifier for pin in pins if not pin.marker or pin.marker.evaluate()}
    free = re.compile("torch|triton|efficientnet|setuptools|filelock")
    for need in map(Requirement, [*needs(), *needs("test"), *needs("browser")]):
        if not free.match(need.name):
            [pin] = here[need.name.lower()]
            assert pin.operator == "==" and need.specifier.contains(pin.version), need
    assert not [name for name in here if name.startswith(("torch", "nvidia", "cuda"))]
