"""The folder for a day without a network: ready means installed from it alone, without a network, and imported."""

import json
import sys

import pytest
from copies import settle

from course.__main__ import run
from course.tools import _install, pack

PROJECT = """[build-system]
requires = ["tool>=3"]
[project]
dependencies = ["torch>=1", "torchvision>=1", "pictures>=2"]
"""
FILES = {*pack.FILES, *(f"{room}/x.py" for room in pack.ROOMS), "course/tools/versions.txt"}
OTHERS = ("notebooks/mine.ipynb", "notebooks/.env", "tests/x.py", "helpers/__pycache__/x.pyc")


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return the folder of a small course, not a clone."""
    house = tmp_path / "course"
    for name in (*FILES, *OTHERS):
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_text("")
    (house / "pyproject.toml").write_text(PROJECT)
    settle(monkeypatch, house, free=90e9)
    monkeypatch.setattr(sys, "platform", "linux")
    return house


@pytest.fixture
def index(course, monkeypatch):
    """Give {package: version} of what pip downloads, and the lists of its calls and of those that install on trial."""

    class Index(dict):
        downloads, trials, fails = [], [], 0

    there = Index(torch="2.15.0+cpu", torchvision="0.30.0+cpu")
    Index.downloads, Index.trials = [], []

    def download(step, command, lock=()):
        words = [str(word) for word in command]
        there.downloads.append(words)
        store = words[words.index("--dest") + 1]
        for name, version in there.items():
            with open(f"{store}/{name}-{version}-py3-none-any.whl", "a") as file:
                file.write("x")

    def trial(line, cwd, env):
        (cwd / ".venv").mkdir()
        there.trials.append((line, cwd, env))
        return there.fails

    monkeypatch.setattr(_install, "call", download)
    monkeypatch.setattr(pack.subprocess, "call", trial)
    return there


def test_a_pack_is_ready_once_it_was_installed_from_itself(course, index, tmp_path, capsys):
    """A teacher handed out a folder that could not be installed, and its last line had said: is ready."""
    out = tmp_path / "out"
    assert run("pack", [str(out)]) == 0
    [(line, place, variables)] = index.trials
    assert line == [sys.executable, "-c", pack.TRIAL] and place == tmp_path / "out.half"
    assert variables["PIP_NO_INDEX"] == "1" and variables["UV_OFFLINE"] == "1"
    assert f"{out} is ready" in capsys.readouterr().out
    assert not (out / ".venv").exists() and not place.exists()
    assert "python3 lab.py" in (out / "START_HERE.txt").read_text()
    index.fails = 1
    assert run("pack", [str(tmp_path / "bad")]) == 1
    told = capsys.readouterr()
    assert (
        "is ready" not in told.out and "not ready" in told.err and not (tmp_path / "bad").exists()
    )


@pytest.mark.parametrize(
    "versions", [("2.13.0+cpu", "0.28.0"), ("2.13.0", "0.28.0"), ("2.13.0", "0.28.0+cpu")]
)
def test_torch_and_torchvision_have_to_be_of_the_build_asked_for(index, tmp_path, capsys, versions):
    """torch 2.13.0+cpu lay beside a torchvision without +cpu, and no lesson started."""
    index["torch"], index["torchvision"] = versions
    assert run("pack", [str(tmp_path / "out"), "--wheels", "cpu"]) == 1
    told = capsys.readouterr().err
    assert all(version in told for version in versions) and not (tmp_path / "out").exists()


def test_pytorch_comes_from_one_index_and_the_rest_from_the_usual_one(index, tmp_path):
    assert run("pack", [str(tmp_path / "out")]) == 0
    torch, rest = index.downloads
    assert torch[-5:] == [
        "--no-deps",
        "torch>=1",
        "torchvision>=1",
        "--index-url",
        f"{_install.WHEELS}cpu",
    ]
    assert {"torch==2.15.0+cpu", "torchvision==0.30.0+cpu", "uv", "tool>=3", "pictures>=2"} <= set(
        rest
    )
    index.update(torch="2.15.0", torchvision="0.30.0")
    assert run("pack", [str(tmp_path / "other"), "--wheels", "default"]) == 0
    assert "--index-url" not in index.downloads[2]


def test_an_interrupted_run_is_gone_on_with(index, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(pack, "try_out", lambda half: sys.exit(1))
        with pytest.raises(SystemExit):
            run("pack", [str(tmp_path / "out")])
    first = tmp_path / "out.half/wheels/torch-2.15.0+cpu-py3-none-any.whl"
    before = first.read_text()
    assert run("pack", [str(tmp_path / "out")]) == 0
    assert len((tmp_path / "out/wheels" / first.name).read_text()) > len(before), "the same file"


def test_a_pack_holds_the_course_and_nothing_of_its_owner(course, index, tmp_path):
    """Handed to a class, a file with solutions or passwords would be in everybody's hands."""
    out = tmp_path / "out"
    assert run("pack", [str(out)]) == 0
    packed = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    wanted = {*FILES, "pack.json", "START_HERE.txt"}
    assert {name for name in packed if not name.startswith("wheels/")} == wanted


def test_what_is_in_the_way_or_too_small_is_named_and_stays(
    course, index, tmp_path, monkeypatch, capsys
):
    (tmp_path / "out").mkdir()
    (tmp_path / "other.half").mkdir()
    for place, words in (
        (tmp_path / "out", "out is there already"),
        (tmp_path / "other", "other.half is there"),
        (course / "course/out", "lies inside what is packed"),  # it would hold itself
    ):
        assert run("pack", [str(place)]) == 1 and words in capsys.readouterr().err
    settle(monkeypatch, course, free=2e9)
    assert run("pack", [str(tmp_path / "new")]) == 1
    assert "need about 3.0 GB, and 2.0 GB are free" in capsys.readouterr().err
    assert not index.downloads


def test_a_folder_for_another_machine_says_which(course):
    manifest = {"for": "Python 3.4 on Linux x86_64", "wheels": "cpu"}
    (course / _install.PACK).write_text(json.dumps(manifest))
    words = rf"packed for Python 3\.4 on Linux.*this is {_install.machine()}"
    with pytest.raises(_install.SetupError, match=words):
        _install.ensure()
