"""The folder for a day without a network: packed from a small index made here, then installed from it alone."""

import json
import os
import shutil
import subprocess
import sys
import types
import zipfile

import pytest
from copies import settle

from tools import _environment, pack
from tools._environment import SetupError

PROJECT = """[build-system]
requires = ["tool>=3"]
build-backend = "tool"

[project]
name = "course"
version = "1.0"
dependencies = [
    "torch>=1",  # every lesson
    "torchvision>=1",  # lesson 04
    "pictures>=2",  # every lesson: figures
]

[project.optional-dependencies]
test = ["judge>=1"]
"""
REQUIREMENTS = "torch>=1\ntorchvision>=1\npictures>=2\n"  # what stands for "-e .": nothing to build


def wheel(folder, name, version, *needs):
    """Write an installable wheel of one module into `folder`."""
    info = f"{name}-{version}.dist-info"
    texts = {
        f"{name}.py": f"version = __version__ = {version!r}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: here\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
        f"Version: {version}\n" + "".join(f"Requires-Dist: {need}\n" for need in needs),
    }
    texts[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*texts, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        for path, text in texts.items():
            file.writestr(path, text)


CONTENTS = {"requirements.txt": REQUIREMENTS, "pyproject.toml": PROJECT}
PACKED = {
    *CONTENTS,
    "README.md",
    ".github/training.png",
    "LICENSE",
    "exercises/__init__.py",
    "practice_gpus/__init__.py",
    "helpers/__init__.py",
    "notebooks/00_start_here.ipynb",
    "notebooks/scripts/train.py",
}
FILES = PACKED | {
    "helpers/__pycache__/x.pyc",
    "notebooks/my_solutions.ipynb",
    "notebooks/.env",
    "notebooks/data/numbers.json",
    "tests/test_x.py",
}


@pytest.fixture
def course(tmp_path, monkeypatch):
    """Return a small course folder, with an index of wheels beside it as the only one that pip may ask."""
    house, index = tmp_path / "course", tmp_path / "index"
    index.mkdir()
    for name in FILES:
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / name).write_text(CONTENTS.get(name, ""))
    for name, version, *needs in (
        ("torch", "1.0", "tool"),
        ("torchvision", "1.0", "torch"),
        ("pictures", "2.1"),
        ("pictures", "1.0"),
        ("tool", "3.0"),
        ("judge", "1.0"),
    ):
        wheel(index, name, version, *needs)
    settle(monkeypatch, house)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return house


def run(folder, wheels="default"):
    return pack.run(types.SimpleNamespace(folder=str(folder), wheels=wheels))


def test_a_packed_folder_installs_from_its_own_wheels_alone(course, tmp_path, monkeypatch, capfd):
    folder = tmp_path / "new" / "out"
    assert not run(folder), capfd.readouterr().err
    assert "is ready" in capfd.readouterr().out and not (tmp_path / "new" / "out.half").exists()
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {name for name in files if name.startswith("wheels/")} == {
        f"wheels/{name}-py3-none-any.whl"
        for name in ("torch-1.0", "torchvision-1.0", "pictures-2.1", "tool-3.0")
    }
    others = {name for name in files if not name.startswith("wheels/")}
    assert others == {"START_HERE.txt", "pack.json", *PACKED}
    start = (folder / "START_HERE.txt").read_text()
    assert f"is for {_environment.machine()}.\n" in start and "{" not in start
    assert f"{_environment.gigabytes('default'):.0f} GB free" in start

    settle(monkeypatch, folder)
    monkeypatch.setattr(_environment, "verify", lambda: None)
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    shutil.rmtree(tmp_path / "index")
    python = _environment.ensure()
    done = subprocess.run(
        [python, "-c", "import torch, torchvision, pictures; print(pictures.version)"],
        text=True,
        capture_output=True,
    )
    assert done.stdout == "2.1\n", done.stderr
    assert "no network" in capfd.readouterr().out
    assert _environment.stamp()["wheels"] == "default"


@pytest.mark.parametrize("git", [True, False])
def test_a_packed_folder_can_write_the_site(git, tmp_path, monkeypatch):
    """README.md is its first page, whose picture lies outside the other folders."""
    if not git:
        monkeypatch.setenv("PATH", str(tmp_path))
    pack.copy(tmp_path / "out")
    for path in (tmp_path / "out/notebooks").glob("*.ipynb"):
        if path.name[:2] != "92":
            path.unlink()
    line = [sys.executable, "-m", "tools", "site", str(tmp_path / "pages")]
    done = subprocess.run(line, cwd=tmp_path / "out", text=True, capture_output=True, env=bare())
    assert done.returncode == 0, done.stderr
    assert "data:image/png;base64," in (tmp_path / "pages/index.html").read_text(encoding="utf-8")


def bare():
    """Return this environment without another course on the path of Python."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_an_interrupted_run_is_gone_on_with_in_the_room_that_is_left(
    course, tmp_path, monkeypatch, capfd
):
    """A disk with room for one pack would else take none: the interrupted one fills a part of it."""
    real, calls = pack.pip, []

    def interrupted(half, *what, **more):
        calls.append(what)
        if len(calls) == 2:
            (half / "wheels/half of pictures").write_bytes(bytes(1_000_000))
            raise KeyboardInterrupt
        real(half, *what, **more)

    monkeypatch.setattr(_environment, "gigabytes", lambda wheels: 0.002)
    monkeypatch.setattr(pack, "pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out")
    first = tmp_path / "out.half/wheels/torch-1.0-py3-none-any.whl"
    written = first.stat().st_mtime_ns
    assert not (tmp_path / "out").exists()
    settle(monkeypatch, course, free=1_500_000)
    assert run(tmp_path / "another") == 1 and "about 0.002 GB" in capfd.readouterr().err
    assert not run(tmp_path / "out") and not (tmp_path / "out.half").exists()
    assert (tmp_path / "out/wheels" / first.name).stat().st_mtime_ns == written


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_clone_packs_what_git_tracks_and_nothing_of_its_owner(tmp_path, monkeypatch):
    """Handed to a class, a file with solutions or passwords would be in everybody's hands."""
    monkeypatch.setattr(pack, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    for name in ("pyproject.toml", "notebooks/00_start_here.ipynb"):
        (tmp_path / name).write_text("")
    for line in ("init -q", "add ."):
        subprocess.run(["git", "-C", str(tmp_path), *line.split()], check=True)
    for name in (".env", "notebooks/my_solutions.ipynb", "notebooks/notes.py"):
        (tmp_path / name).write_text("mine")
    assert sorted(pack.course_files()) == ["notebooks/00_start_here.ipynb", "pyproject.toml"]


def test_no_pack_holds_itself(course, capfd):
    """Inside the folders that are packed it would be copied into itself, 156 levels deep."""
    before = sorted(course.rglob("*"))
    for name in ("notebooks/out", "helpers/new/out"):
        assert run(course / name) == 1
        said = capfd.readouterr().err
        assert f"{course / name} lies inside what is packed" in said
        assert str(course / "gpu-course") in said
    assert sorted(course.rglob("*")) == before
    for name in ("gpu-course", "gpu-course2"):  # beside those folders it is as good as anywhere
        assert not run(course / name), capfd.readouterr().err
    assert not list((course / "gpu-course2").rglob("gpu-course*"))


def test_what_is_in_the_way_is_named_and_stays(course, tmp_path, monkeypatch, capfd):
    (tmp_path / "out").mkdir()
    (tmp_path / "other.half").mkdir()
    assert run(tmp_path / "out") == 1 and "out is there already" in capfd.readouterr().err
    assert run(tmp_path / "other") == 1 and "other.half is there already" in capfd.readouterr().err
    (tmp_path / "other.half" / _environment.PACK).write_text('{"for": "Python 3.4 on a toaster"}')
    assert run(tmp_path / "other") == 1 and "other.half is there already" in capfd.readouterr().err
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file" / "out") == 1 and "file" in capfd.readouterr().err


def test_what_is_missing_is_named(course, tmp_path, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        settle(patch, course, free=1e9)
        assert run(tmp_path / "out", "cpu") == 1
        assert "about 1.5 GB, and 1.0 GB are free" in capfd.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(pack.importlib.util, "find_spec", lambda name: None)
        assert run(tmp_path / "out") == 1
        assert "no pip. Type: python3 -m ensurepip" in capfd.readouterr().err
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert run(tmp_path / "out") == 1 and "HTTPS_PROXY" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wheels", ["cpu", "default"])
def test_pytorch_comes_from_one_index_and_the_rest_from_the_usual_one(
    wheels, course, tmp_path, monkeypatch
):
    lines = []

    def pip(line, text, step, action, *where):
        lines.append((action, line))

    monkeypatch.setattr(_environment, "pip", pip)
    assert not run(tmp_path / "out", wheels)
    (first, torch), (second, others), (third, trial) = lines
    assert [first, second, third] == ["download", "download", "install"]
    index = ["--index-url", "https://download.pytorch.org/whl/cpu"] * (wheels == "cpu")
    assert torch[4:] == ["torch>=1", "torchvision>=1", *index]
    assert others[4:] == ["pictures>=2", "tool>=3"] and {"--no-index", "--dry-run"} <= set(trial)


def test_a_folder_for_another_machine_says_which(course, monkeypatch):
    manifest = {"for": "Python 3.4 on Linux x86_64", "wheels": "cpu"}
    (course / _environment.PACK).write_text(json.dumps(manifest))
    words = rf"packed for Python 3\.4 on Linux.*this is {_environment.machine()}"
    with pytest.raises(SetupError, match=words):
        _environment.ensure()


def test_a_damaged_wheel_is_told_from_a_missing_network(course, monkeypatch, capfd):
    manifest = {"for": _environment.machine(), "wheels": "cpu"}
    (course / _environment.PACK).write_text(json.dumps(manifest))
    (course / "wheels").mkdir()
    (course / ".venv").mkdir()
    monkeypatch.setattr(_environment, "python_of", lambda venv: sys.executable)
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(SetupError, match="wheels/ is missing or damaged"):
        _environment.install("cpu")
