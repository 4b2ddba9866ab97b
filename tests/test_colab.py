"""Each lesson alone in an empty folder, as Colab opens it: no helpers, no repository, Colab's marker set.

The stand-in is an environment that sees the packages of this one, but not `helpers`. The set-up cell installs it, from
a local archive in the place of GitHub's; torch, numpy and ipywidgets must stay what and where they were.
"""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile

import nbformat
import pytest
from copies import FILES, PACKAGES
from nbclient import NotebookClient

from course.pages import number_of
from course.tools import ROOT, _notebooks, publish

pytestmark = pytest.mark.slow
LESSONS = [path for path in _notebooks.find() if not path.name.startswith("92")]  # it has no code
WHOLE = (
    "00",
    "06",
    "11",
)  # of the others, the set-up and every import: the rest runs in the default lane
NAMES = "torch, numpy, ipywidgets"
WHERE = f"import {NAMES}; print([(m.__version__, m.__file__) for m in ({NAMES})])"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Return a zip of the files that GitHub's archive of the repository would hold."""
    path = tmp_path_factory.mktemp("archive") / "course.zip"
    tops = [*PACKAGES, "notebooks", *FILES]
    with zipfile.ZipFile(path, "w") as file:
        for top in (ROOT / name for name in tops):
            for each in [top] if top.is_file() else sorted(top.rglob("*")):
                if each.is_file() and "__pycache__" not in each.parts:
                    file.write(each, f"course-{publish.release()[1:]}/{each.relative_to(ROOT)}")
    return path


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """Return the Python of a new environment with the packages of this one, but without helpers."""
    pytest.importorskip("setuptools", minversion="77", reason="pip builds without a network")
    folder = tmp_path_factory.mktemp("runtime")
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    uninstall(python, "setuptools", folder)  # older than needed
    site = outside(python, "import sysconfig; print(sysconfig.get_path('purelib'))", folder)
    with open(os.path.join(site.strip(), "packages.pth"), "w") as file:
        file.write("\n".join(path for path in sys.path if "site-packages" in path))
    kernel = folder / "share" / "jupyter" / "kernels" / "colab"
    kernel.mkdir(parents=True)
    line = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": line, "display_name": "Colab", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    return python


def uninstall(python, name, folder):
    """Remove a package, if it is there, from the environment of `python`."""
    line = [python, "-m", "pip", "uninstall", "-q", "-y", name]
    subprocess.run(line, check=True, cwd=folder, capture_output=True)


def outside(python, code, folder):
    """Return what `code` prints in `python`, run in `folder`; None when it fails."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    line = [python, "-c", code]
    done = subprocess.run(line, cwd=folder, env=variables, text=True, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def imports(notebook):
    """Return every line of a lesson that imports something of the course."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    rooms = r"^(?:from|import) (?:helpers|lessons|measurements|practice_gpus)[^\n(]*(?:\([^)]*\))?"
    return "\n".join(re.findall(rooms, "\n".join(sources), flags=re.M))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_alone_brings_its_helpers_and_nothing_else(
    path, archive, runtime, tmp_path, monkeypatch
):
    for name in ("gpus-in-pytorch", "practice-gpus"):
        uninstall(runtime, name, tmp_path)
    before = outside(runtime, WHERE, tmp_path)
    assert before and outside(runtime, "import helpers", tmp_path) is None
    notebook = publish.stamp_notebook(_notebooks.read(path), "someone/their-copy", path.name)
    setup = next(cell for cell in notebook.cells if cell.cell_type == "code")
    address = r"https://github\.com/someone[^\s\"#]+?\.zip"
    setup.source, count = re.subn(address, archive.as_uri(), setup.source)
    assert count == 2, "the course and practice-gpus"
    if number_of(path.name) not in WHOLE:
        notebook.cells = [setup, nbformat.v4.new_code_cell(imports(notebook))]
    monkeypatch.setenv("JUPYTER_PATH", str(runtime.parent.parent / "share" / "jupyter"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    variables = {
        **os.environ,
        "COLAB_RELEASE_TAG": "release-colab",
        "GPU_COURSE_HOME": str(tmp_path / "home"),
        "PIP_NO_BUILD_ISOLATION": "0",  # turns isolation off: pip reads the word "no"
        "PIP_NO_INDEX": "1",
    }
    options = {"timeout": 600, "kernel_name": "colab", "extra_arguments": ["--log-level=ERROR"]}
    client = NotebookClient(nbformat.from_dict(notebook), **options)
    client.execute(env=variables, cwd=str(tmp_path))
    assert outside(runtime, WHERE, tmp_path) == before
    assert "runtime" in outside(runtime, "import helpers; print(helpers.__file__)", tmp_path)
