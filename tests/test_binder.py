"""What Binder reads, checked without building: the same needs as everywhere, pinned, for the CPU, nothing twice."""

import re
import shutil
import subprocess

import pytest
from packaging.requirements import Requirement

from course.tools import ROOT, _copies, needs
from course.tools._install import WHEELS

FOLDER = ROOT / "binder"
# By the image that repo2docker begins with.
BROUGHT = {
    *("jupyterlab", "ipywidgets", "platformdirs", "psutil", "filelock"),
    *("ipython", "nbformat", "nbconvert", "beautifulsoup4", "jsonschema"),
}
EXTRA = {"triton"}  # lesson 11 runs to its end without it, and says so; here it shall run whole
LINES = (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
NEEDS = {
    need.name: need.specifier for need in map(Requirement, filter(re.compile("[a-z]").match, LINES))
}


def ranges():
    """Return {package: its range} of what a learner needs."""
    return {need.name: need.specifier for need in map(Requirement, needs())}


def test_binder_installs_what_a_learner_needs():
    assert set(NEEDS) == set(ranges()) | EXTRA


@pytest.mark.parametrize("name", sorted(set(NEEDS) - BROUGHT - EXTRA))
def test_what_binder_adds_is_pinned_inside_the_range_of_the_course(name):
    [pin] = NEEDS[name]
    assert pin.operator == "==" and "*" not in pin.version and ranges()[name].contains(pin.version)


def test_pytorch_is_the_cpu_build_from_its_own_index():
    assert [line for line in LINES if line.startswith("-")] == [f"--extra-index-url {WHEELS}cpu"]
    assert all(str(NEEDS[name]).endswith("+cpu") for name in ("torch", "torchvision"))


def test_helpers_are_installed_last_and_bring_nothing():
    lines = (FOLDER / "postBuild").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert commands[:2] == [
        "set -e",
        "python -m pip install --no-cache-dir --no-deps -e ./practice_gpus -e .",
    ]


def test_a_page_opens_without_the_counts_of_the_author_s_run(tmp_path):
    """`[3]:` beside a cell says that it has run, and newcomers left it out."""
    name = "00_start_here.ipynb"
    (tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / name, tmp_path / "notebooks")
    line = (FOLDER / "postBuild").read_text(encoding="utf-8").splitlines()[-1]
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    assert (tmp_path / "notebooks" / name).read_bytes() == _copies.content(name)
