"""Lessons under other builds: the oldest PyTorch, its CPU build, ipywidgets 7 with IPython 7, other Pythons.

Each is an environment beside this one, which lends it all that is the same; pip fetches the rest (the oldest PyTorch is
some gigabytes, gone afterwards). An interpreter that has all that a lesson needs, for example of a newer Python, is
added by `python3 -m helpers test --torture -- --python PATH`, which may be given several times.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from lesson_runs import run_lesson

from helpers.commands._environment import ROOT, WHEELS, python_of, torch_lines

COLAB = ["ipywidgets==7.7.1", "ipython==7.34.0"]  # what Colab has
LESSONS = {
    "oldest PyTorch": "02 03 05 06 08",
    "ipywidgets 7.7, IPython 7.34": "00 02 04 90",
    "CPU build": "01 03 04 07",
}
PIP = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir"]
INSTALLED = "from importlib.metadata import version as v; print('torch', v('torch'), 'torchvision', v('torchvision'))"
UNREACHABLE = "onnection|timed out|name resolution|No space left"


def wanted(name):
    """Return what pip is told to install for the build `name`."""
    if name.startswith("ipywidgets"):
        return COLAB
    if name == "CPU build":
        return [
            "torch",
            "torchvision",
            "--force-reinstall",
            "--no-deps",
            "--index-url",
            WHEELS + "cpu",
        ]
    return [line.replace(">=", "==") + ".*" for line in torch_lines()]


@pytest.fixture(scope="module", params=LESSONS)
def build(request):
    """Give (name, python) of an environment with another build; skip where pip cannot fetch it."""
    folder = Path(tempfile.mkdtemp())
    try:
        if shutil.disk_usage(folder).free < 2**34:
            pytest.skip("needs 16 GiB of disk")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = python_of(folder)
        packages = told(python, "import sysconfig; print(sysconfig.get_path('purelib'))")
        Path(packages, "lent.pth").write_text(
            f"{sysconfig.get_path('purelib')}\n{ROOT}\n", encoding="utf-8"
        )
        try:
            done = subprocess.run(
                [python, *PIP, *wanted(request.param)], text=True, capture_output=True, timeout=900
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{request.param}: pip took more than 900 s")
        if done.returncode and re.search(UNREACHABLE, done.stderr):
            pytest.skip(f"{request.param}: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        if request.param == "CPU build" and told(python, INSTALLED).count("+cpu") < 2:
            pytest.skip(f"the index has no CPU build of both: {told(python, INSTALLED)}")
        yield request.param, python
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def versions(python):
    """Return what the interpreter `python` has, in words."""
    code = (
        "import sys, torch, ipywidgets, IPython; print('Python', sys.version.split()[0], 'torch', "
        "torch.__version__, 'ipywidgets', ipywidgets.__version__, 'IPython', IPython.__version__)"
    )
    return told(python, code)


def told(python, code):
    """Return what the program `code` prints in the interpreter `python`."""
    return subprocess.run(
        [python, "-c", code], text=True, check=True, capture_output=True
    ).stdout.strip()


def check(lessons, python, pool):
    """Assert that all `lessons` pass in kernels of `python`."""
    here = {"PYTHONPATH": str(ROOT)}  # these helpers, whatever else is installed
    outcomes = list(pool.map(lambda each: run_lesson(each, python=python, variables=here), lessons))
    assert {lesson: found for lesson, found in zip(lessons, outcomes, strict=True) if found} == {}


def test_lessons_under_another_build(build, pool):
    name, python = build
    if versions(python) == versions(sys.executable):
        pytest.skip("this environment is that build")
    check(LESSONS[name].split(), python, pool)


def pytest_generate_tests(metafunc):
    """Make a test for each --python."""
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", metafunc.config.getoption("python", None) or [])


def test_lessons_under_a_given_python(python, pool):
    from lanes import LESSONS as every

    check(list(every), python, pool)
