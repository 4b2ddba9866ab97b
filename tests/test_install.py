"""Installing: complete or not at all, one at a time, the build that suits the machine, nothing of others touched."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types

import psutil
import pytest
from copies import everything, settle
from packaging.requirements import Requirement

from course.tools import ROOT, _install, _venv, lab, needs
from course.tools._install import SetupError

posix = pytest.mark.skipif(os.name == "nt", reason="locks and signals of POSIX")


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Return a course's folder, alone on a disk of 9 GB, whose PyTorch index answers."""
    (tmp_path / "requirements.txt").write_text("# nothing\n")
    (tmp_path / "pyproject.toml").write_text("")
    settle(monkeypatch, tmp_path)
    for name in _venv.ASTRAY:
        monkeypatch.delenv(name, raising=False)
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

    monkeypatch.setattr(_venv, "version", lambda venv: "3.12" if python.exists() else "")

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
    assert venv[1:] == ["-I", "-m", "venv", str(house / ".venv")] and pip[-1] == "uv"
    assert uv[-4:] == ["--constraints", _install.VERSIONS, "--torch-backend", "auto"]
    assert "torchvision.ops.nms" in trial[-1]
    steps.clear()
    assert _install.ensure() == python and not steps, "later starts take seconds"
    (house / "requirements.txt").write_text("# something new\n")
    _install.ensure()
    assert [step for step, _ in steps] == ["pip", "uv", "the first import of PyTorch"]


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
    ("gpu", "index", "large", "smaller"),
    [
        ("/usr/bin/nvidia-smi", True, True, True),
        (None, False, True, False),
        (None, True, False, False),
    ],
)
def test_before_gigabytes_are_fetched_a_line_says_so(
    house, steps, monkeypatch, capsys, gpu, index, large, smaller
):
    """On the room's network, a class of twenty fetched 60 GB."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(_install, "answers", lambda: index)
    monkeypatch.setattr(_install.shutil, "which", lambda name: gpu)
    _install.ensure()
    told = capsys.readouterr().out
    assert (f"About 3 GB are fetched; they take 6 GB in {house / '.venv'}" in told) is large
    assert ("--cpu" in told) is smaller, "advised where it can be had"


@pytest.mark.parametrize(
    ("typed", "backend"),
    [("\n", "auto"), ("c\n", "cpu"), ("q\n", None), ("what\n", None), ("", None)],
)
def test_whoever_sits_at_a_terminal_chooses_before_gigabytes_are_fetched(
    house, steps, monkeypatch, typed, backend
):
    """A metered connection paid for a GPU's libraries on a machine that was meant for the CPU build."""
    terminal = io.StringIO(typed)
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(_install.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    if backend is None:
        with pytest.raises(SetupError, match="nothing was fetched"):
            _install.ensure()
        assert not steps and not (house / ".venv").exists()
        return
    _install.ensure()
    [uv] = [words for step, words in steps if step == "uv"]
    assert uv[-1] == backend and _install.stamp()[1] == backend


@pytest.mark.parametrize(("platform", "works"), [("linux", False), ("darwin", True)])
def test_where_pytorchs_index_does_not_answer_the_advice_works(
    house, steps, monkeypatch, platform, works
):
    """ "--cpu" was advised, and then failed at the same index; the disk was asked for 1.5 GB and got 5.8."""
    monkeypatch.setattr(_install, "answers", lambda: False)
    monkeypatch.setattr(sys, "platform", platform)
    if works:  # there, the plain index's build is the CPU build
        _install.ensure("cpu")
        assert "--torch-backend" not in dict(steps)["uv"]
        return
    with pytest.raises(SetupError, match="needs 8 GB of disk here: --wheels default"):
        _install.ensure("cpu")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=5e9))
    with pytest.raises(SetupError, match=r"needs 8 GB, 5.0 are free\.$"):
        _install.ensure()
    assert not steps


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
            "needs 99 GB, 9.0 are free; --cpu takes",
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


def fake_package(venv, name, files=("a.py", "b/c.py")):
    """Put a package into an environment, with a RECORD of its files; return the folder that says what it is."""
    site = venv / "lib/python3.12/site-packages"
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    rows = [f"{name}/{file},sha256=x,2" for file in files]
    for file in files:
        (site / name / file).parent.mkdir(parents=True, exist_ok=True)
        (site / name / file).write_text("ab")
    (info / "RECORD").write_text("\n".join([*rows, f"{name}/__pycache__/a.pyc,,", "RECORD,,", ""]))
    return info


DAMAGE = {
    "a file is missing": lambda info: (info.parent / "torch/b/c.py").unlink(),
    "a file is cut": lambda info: (info.parent / "torch/a.py").write_text("a"),
    "no RECORD": lambda info: (info / "RECORD").unlink(),
    "an empty RECORD": lambda info: (info / "RECORD").write_text(""),
    "half removed by pip": lambda info: info.rename(info.with_name("~orch-1.0.dist-info")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_package_that_was_torn_by_a_stop_is_installed_again(house, steps, damage, capsys):
    """Ctrl-C while files were linked: no repeat of the command ever mended it, and it said to repeat it."""
    _install.ensure()
    whole = fake_package(house / ".venv", "numpy")
    torn = fake_package(house / ".venv", "torch")
    DAMAGE[damage](torn)
    (house / ".venv" / _install.STAMP).write_text("")
    _install.ensure()
    assert whole.exists() and not list(torn.parent.glob("*orch-1.0.dist-info"))
    assert "orch." in capsys.readouterr().out and "uv" in dict(steps)


def test_an_environment_that_does_not_import_is_made_anew_once(house, steps, monkeypatch, capsys):
    """Whatever was wrong in it: the same command mends it, or says why not."""
    _install.ensure()
    fake_package(house / ".venv", "torch")
    (house / "pyproject.toml").write_text("# new")
    (house / ".venv/own.txt").touch()
    mended = _install.call

    def call(step, command, lock=()):
        mended(step, command, lock)
        if step == _install.TRIED and (house / ".venv/own.txt").exists():
            raise SetupError(step)

    monkeypatch.setattr(_install, "call", call)
    steps.clear()
    _install.ensure()
    once = ["pip", "uv", _install.TRIED]
    assert [step for step, _ in steps][:3] == once and [step for step, _ in steps][4:] == once
    assert "made anew" in capsys.readouterr().out and _install.stamp()
    steps.fails = _install.TRIED
    (house / "pyproject.toml").write_text("# newer")
    with pytest.raises(SetupError):
        _install.ensure()


def test_an_environment_whose_python_has_gone_is_made_anew(house, steps):
    """After an upgrade of Python: "[Errno 2] No such file or directory", at each start."""
    python = _install.ensure()
    python.unlink()
    python.symlink_to("/nonexistent/python3.11")
    (house / ".venv/old.txt").touch()
    _install.ensure()
    assert _install.stamp() and not (house / ".venv/old.txt").exists()
    assert sorted(path.name for path in house.iterdir()) == [
        ".venv",
        "pyproject.toml",
        "requirements.txt",
    ]


def test_what_a_stop_left_of_making_or_removing_is_never_taken_for_others(house, steps):
    (house / ".venv").mkdir()  # stopped before its first file
    (house / f".venv/.{_install.STAMP}.0123.part").touch()
    (house / ".venv.discarded/lib").mkdir(parents=True)
    _install.ensure()
    assert _install.stamp() and not (house / ".venv.discarded").exists()


@pytest.mark.parametrize("name", ["PIP_TARGET", "PIP_USER", "PYTHONPATH", "PYTHONHOME"])
def test_variables_that_lead_astray_are_named_and_left_out(house, steps, monkeypatch, capsys, name):
    """A torch.py in PYTHONPATH, and the message asked whether the network answers."""
    monkeypatch.setenv(name, str(house))
    _install.ensure()
    assert f"not used for the course's environment: {name}" in capsys.readouterr().out
    assert name not in _venv.variables() and str(house) not in lab.environment().get(name, "")
    (house / "torch.py").write_text("raise SystemExit(5)")
    monkeypatch.setenv("PYTHONPATH", str(house))
    line = [sys.executable, "-I", "-c", "import os; assert 'PYTHONPATH' not in os.environ"]
    assert _venv.run("x", line, house) == 0


ASKED = """
import os, sys
from pathlib import Path
from course.tools import _venv
sys.stdin = open(sys.argv[1])
sys.stdin.isatty = lambda: bool(int(sys.argv[2]))
line = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
_venv.run("uv", line, Path("."))
"""


@posix
@pytest.mark.parametrize("person", [0, 1])
def test_ctrl_c_asks_a_person_once_and_the_second_stops_what_runs(person):
    """One slip of the hand cut an installation in the middle; a traceback, and one pip went on."""
    words = [sys.executable, "-c", ASKED, os.devnull, str(person)]
    lab = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    child = int(lab.stdout.readline())
    lab.send_signal(signal.SIGINT)
    if person:
        assert lab.stdout.readline() == "\n"
        assert lab.stdout.readline().startswith("Still at work: uv. Ctrl-C once more stops it")
        assert psutil.pid_exists(child) and lab.poll() is None
        lab.send_signal(signal.SIGINT)
    assert lab.wait(20) != 0
    assert not psutil.pid_exists(child)


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
