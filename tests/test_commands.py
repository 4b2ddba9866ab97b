"""The commands: lab, test, execute, publish, and what they share."""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from copies import PACKAGES, copy_of_course
from nbclient.exceptions import CellExecutionError
from strict import run_strict

from course import __main__ as door
from course import pages as course
from course.checks import progress
from course.tools import ROOT, _copies, _install, _notebooks, execute, lab, publish
from course.tools.progress import EXERCISES

PLAIN = [sys.executable, "-S", "-m", "course"]  # -S: no installed packages


def call(*arguments, **options):
    """Run a command line in the course's folder and return the finished process."""
    return subprocess.run(
        arguments, text=True, capture_output=True, timeout=120, **{"cwd": ROOT, **options}
    )


# the door


def test_help_names_each_command_in_its_group_and_needs_only_the_standard_library():
    done = call(*PLAIN, "--help")
    assert done.returncode == 0
    for path in (ROOT / "course/tools").glob("[a-z]*.py"):
        assert re.search(rf"^  {path.stem} +\S+ \S+", done.stdout, flags=re.M), path.stem
    learn, teach, maintain = re.split(r"\nto (?:teach|maintain):\n", done.stdout)
    assert "lab" in learn and "doctor" in learn and "grade" in teach and "execute" in maintain
    done = call(sys.executable, "-S", "lab.py", "--help")
    assert done.returncode == 0 and "usage: python3 lab.py" in done.stdout


def test_an_unknown_command_is_guessed_and_those_there_are_listed(capsys):
    assert door.main(["doctr"]) == 2
    told = capsys.readouterr().err
    assert "'doctr'. Did you mean: python3 -m course doctor?" in told and "execute" in told


def test_a_missing_package_is_named_with_what_to_do(house_copy):
    (house_copy / "course/tools/broken.py").write_text("import not_there\nHELP = 'x'\n")
    done = call(sys.executable, "-m", "course", "broken", cwd=house_copy)
    assert done.returncode == 1 and "not_there" in done.stderr and "lab.py" in done.stderr


def test_other_commands_are_handed_to_the_environment(monkeypatch):
    seen = []
    monkeypatch.setattr(door.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(_install, "stamp", lambda: ["x", "cpu", ""])
    monkeypatch.setattr(door.subprocess, "call", lambda line, env: seen.append(line) or 7)
    assert door.main(["execute", "01"]) == 7
    python = str(_install.python_of(_install.VENV))
    assert seen == [[python, "-m", "course", "execute", "01"]]


# the learner's copies


def test_a_new_copy_does_not_look_as_if_it_had_run(lessons):
    draft = notebook("print('\"execution_count\": 3')", "1 + 1")
    draft.cells[1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2"})]
    original = _copies.ORIGINALS / "03_cnn.ipynb"
    nbformat.write(_notebooks.clean(draft), original)
    _copies.prepare()
    copy = nbformat.read(_copies.FOLDER / "03_cnn.ipynb", 4)
    assert [cell.get("execution_count") for cell in copy.cells] == [None] * 3
    assert [cell.source for cell in copy.cells] == [cell.source for cell in draft.cells]
    nbformat.validate(copy)
    original.write_bytes(original.read_bytes() + b"\n")
    assert "Brought up to date" in _copies.prepare()[0], "nobody had changed the copy"


def test_copies_are_made_once_and_the_learners_stay(lessons):
    mine = _copies.FOLDER
    assert _copies.prepare() == ["Your copies of the lessons are in my_notebooks/ (3 new)."]
    (mine / "03_cnn.ipynb").write_text("my work")
    assert _copies.prepare() == []
    (lessons / "03_cnn.ipynb").write_text("second text")
    (lessons / "00_start_here.ipynb").write_text("second text")
    followed, newer = _copies.prepare()
    assert followed.endswith("had not changed them: 00") and "lab.py --fresh 03" in newer
    assert (mine / "03_cnn.ipynb").read_text() == "my work"
    assert (mine / "00_start_here.ipynb").read_text() == "second text"
    assert _copies.prepare() == [newer], "offered again, never forced"


def test_a_fresh_copy_stands_beside_the_learners(lessons):
    mine = _copies.FOLDER
    _copies.prepare()
    for number, name in enumerate(("03_cnn_mine.ipynb", "03_cnn_mine2.ipynb")):
        (mine / "03_cnn.ipynb").write_text(f"work {number}")
        [line] = _copies.prepare("03")
        assert line == f"my_notebooks/03_cnn.ipynb is new. Your own is now {name}."
        assert (mine / name).read_text() == f"work {number}"
        assert (mine / "03_cnn.ipynb").read_text() == "first text"
    assert _copies.prepare("train.py")[0].startswith("my_notebooks/scripts/train.py is new.")
    with pytest.raises(ValueError, match="--fresh is '77'; it takes one of 00, 03, train.py"):
        _copies.prepare("77")


@pytest.mark.parametrize("record", [None, "[]", '{"03_cnn.ipynb": 3}', "[" * 100_000])
def test_copies_deleted_renamed_or_without_a_record_lose_nothing(lessons, record):
    mine = _copies.FOLDER
    _copies.prepare()
    (mine / "00_start_here.ipynb").unlink()
    (mine / "scripts/train.py").rename(mine / "scripts/my_train.py")
    (mine / "03_cnn.ipynb").write_text("my work")
    (mine / _copies.RECORD).unlink()
    if record is not None:
        (mine / _copies.RECORD).write_text(record)
    (lessons / "03_cnn.ipynb").write_text("second text")
    new, unknown = _copies.prepare()
    assert "(2 new)" in new and "Perhaps newer than your copies" in unknown
    assert unknown.endswith("--fresh 03") and _copies.prepare() == [unknown]
    assert (mine / "03_cnn.ipynb").read_text() == "my work"
    assert (mine / "scripts/my_train.py").read_text() == "first text"


def test_a_lesson_that_got_another_name_is_named(lessons):
    """The old copy stayed beside the new one without a word: two lessons 03."""
    _copies.prepare()
    (lessons / "03_cnn.ipynb").rename(lessons / "03_convolutions.ipynb")
    (lessons / "scripts/train.py").unlink()
    lines = _copies.prepare()
    assert "(1 new)" in lines[0]
    assert "03_cnn.ipynb is 03_convolutions.ipynb now; your copy of it stays as it is." in lines
    assert any("train.py is no longer part of the course" in line for line in lines)
    assert (_copies.FOLDER / "03_cnn.ipynb").exists() and _copies.prepare() == []


def test_copies_that_only_ran_are_no_question(lessons):
    """Without the record, each lesson that was run would be called perhaps older."""
    nbformat.write(notebook("1 + 1"), _copies.ORIGINALS / "03_cnn.ipynb")
    _copies.prepare()
    draft = notebook("1 + 1")
    draft.cells[1].outputs = [nbformat.v4.new_output("stream", text="2")]
    nbformat.write(draft, _copies.FOLDER / "03_cnn.ipynb")
    (_copies.FOLDER / _copies.RECORD).unlink()
    assert _copies.prepare() == []


def test_copies_follow_no_link_and_leave_what_is_no_folder(lessons, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "my_notebooks").symlink_to(elsewhere)
    assert lab.copies() == lessons and "is a link" in capsys.readouterr().out
    (tmp_path / "my_notebooks").unlink()
    (tmp_path / "my_notebooks").write_text("a file of mine")
    assert lab.copies() == lessons and "lessons open as they are" in capsys.readouterr().out
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "my_notebooks").read_text() == "a file of mine"


def test_a_link_among_the_copies_is_not_written_through(lessons, tmp_path):
    _copies.prepare()
    copy = _copies.FOLDER / "03_cnn.ipynb"
    outside = copy.rename(tmp_path / "outside.ipynb")
    copy.symlink_to(outside)
    (lessons / "03_cnn.ipynb").write_text("second text")
    assert "--fresh 03" in _copies.prepare()[0]
    assert outside.read_text() == "first text"


def git(folder, *words):
    """Run git in a folder; return what it prints."""
    person = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(
        ["git", *person, *words], cwd=folder, text=True, capture_output=True, check=True
    ).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_second_day_of_a_clone(house_copy, tmp_path_factory):
    """Working leaves `git status` clean; `git pull` of a changed lesson works and keeps the learner's text."""
    lab_line = [sys.executable, "lab.py", "--here", "--prepare"]
    shutil.copy(ROOT / ".gitignore", house_copy)
    git(house_copy, "init", "-q")
    git(house_copy, "add", "-A")
    git(house_copy, "commit", "-qm", "first")
    clone = tmp_path_factory.mktemp("clone")
    git(clone, "clone", "-q", str(house_copy), ".")
    assert call(*lab_line, cwd=clone).returncode == 0
    mine, original = clone / "my_notebooks" / lab.START, house_copy / "notebooks" / lab.START
    mine.write_text("my work")
    (mine.parent / "checkpoint.pt").write_bytes(b"made by a lesson")
    assert git(clone, "status", "--porcelain") == ""
    original.write_text("a newer lesson")
    git(house_copy, "commit", "-qam", "second")
    git(clone, "pull", "-q")
    assert (clone / "notebooks" / lab.START).read_text() == "a newer lesson"
    done = call(*lab_line, cwd=clone)
    assert "Newer than your copies: 00. Yours stay" in done.stdout
    assert mine.read_text() == "my work" and git(clone, "status", "--porcelain") == ""
    fresh = call(*lab_line, "--fresh", "00", cwd=clone)
    assert fresh.returncode == 0 and "is new. Your own is now" in fresh.stdout
    assert "Newer than" not in fresh.stdout, "offers what was just asked for"
    assert mine.read_text() == "a newer lesson"
    assert mine.with_stem(f"{mine.stem}_mine").read_text() == "my work"


# lab and test


def free_port():
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status(address, seconds=20):
    """Return the HTTP status of an address, as soon as somebody listens there."""
    for _ in range(seconds * 5):
        try:
            return urllib.request.urlopen(address, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            time.sleep(0.2)
    return None


@pytest.mark.skipif(find_spec("jupyter_client") is None, reason="needs the package jupyter_client")
def test_a_kernel_prints_no_line_in_the_learners_terminal(tmp_path, capfd):
    """Jupyter's newest kernels warn at each start, unless they speak encrypted as `lab` asks them to."""
    from jupyter_client import KernelManager

    line = lab.command("python", argparse.Namespace(port=1, no_browser=True), "x")
    asked = [word.split("=")[1] for word in line if "transport_encryption" in word]
    known = "transport_encryption" in KernelManager.class_trait_names()
    manager = KernelManager(**{"transport_encryption": asked[0]} if asked and known else {})
    manager.start_kernel()
    try:
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
    assert "encryption" not in capfd.readouterr().err


@pytest.mark.skipif(find_spec("jupyterlab") is None, reason="needs the package jupyterlab")
@pytest.mark.skipif(os.name == "nt", reason="ends JupyterLab with a signal")
def test_lab_opens_where_the_learner_was_on_localhost_with_a_token(house_copy, home):
    progress.record("02.batch", status="correct")
    port = free_port()
    line = [sys.executable, "lab.py", "--here", "--no-browser", "--port", str(port)]
    process = subprocess.Popen(
        line, cwd=house_copy, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        text = ""
        while "http://127.0.0.1" not in text and process.poll() is None:
            text += process.stdout.readline()
        address = re.search(
            r"http://localhost:\d+/lab/tree/my_notebooks/02_move_tensors.ipynb\?token=\w{20,}", text
        )
        assert address, text
        token = address[0].split("token=")[1]
        assert status(f"http://localhost:{port}/api/contents") == 403
        assert status(f"http://localhost:{port}/api/contents?token={token}") == 200
        assert f"1 of {len(EXERCISES)} solved: go on with 02, Move tensors." in text
        style = urllib.request.urlopen(f"http://localhost:{port}/custom/custom.css?token={token}")
        assert style.read() == lab.LOOK.read_bytes(), "lines as long as one reads well"
        assert len(text.splitlines()) <= 12 and (house_copy / "my_notebooks" / lab.START).exists()
        process.terminate()  # ends JupyterLab, which is the same process
        assert process.wait(timeout=30) is not None and status(address[0], seconds=1) is None
    finally:
        process.kill()


@pytest.fixture
def house_copy(tmp_path):
    """Return a copy of the course with two lessons."""
    folder = copy_of_course(tmp_path / "course", folders=PACKAGES)
    (folder / "notebooks").mkdir()
    for lesson in (course.LESSONS[0], course.LESSONS[2]):
        shutil.copy(ROOT / "notebooks" / lesson.file, folder / "notebooks")
    return folder


def test_fresh_opens_the_lesson_that_is_new(lessons, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(lab, "become", lambda line, variables: opened.append(line) or 0)
    _copies.prepare()
    assert door.run("lab", ["--here", "--fresh", "03"]) == 0
    assert "--LabApp.default_url=/lab/tree/my_notebooks/03_cnn.ipynb" in opened[0]
    assert "is new. Your own is now 03_cnn_mine.ipynb" in capsys.readouterr().out
    assert door.run("lab", ["--here", "--fresh", ""]) == 2
    assert "lab: --fresh is empty" in capsys.readouterr().err and len(opened) == 1


def test_jupyterlab_saves_often_and_its_look_is_only_here(lessons, monkeypatch):
    """A learner's work of ten minutes was lost with a closed lid; other JupyterLabs stay as they are."""
    _copies.prepare()
    folder = Path(lab.environment()["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0], "labconfig")
    settings = json.loads((folder / "default_setting_overrides.json").read_text(encoding="utf-8"))
    assert settings["@jupyterlab/docmanager-extension:plugin"]["autosaveInterval"] == 15
    assert settings["@jupyterlab/notebook-extension:tracker"]["codeCellConfig"]["lineWrap"] is True
    assert settings["@jupyterlab/apputils-extension:themes"]["adaptive-theme"] is True
    own = Path(lab.environment()["JUPYTER_CONFIG_DIR"])
    assert own.parent == _copies.FOLDER and (own / "custom" / "custom.css").is_file()


def test_arrow_keys_move_a_slider_and_not_the_page():
    """A chart's slider was out of the keyboard's reach: JupyterLab took its arrow keys. Elsewhere they are JupyterLab's."""
    from jupyterlab.commands import get_app_dir

    folder = Path(lab.__file__).with_name("labconfig")
    settings = json.loads((folder / "default_setting_overrides.json").read_text(encoding="utf-8"))
    ours = settings["@jupyterlab/shortcuts-extension:shortcuts"]["shortcuts"]
    schema = Path(get_app_dir(), "schemas/@jupyterlab/notebook-extension/tracker.json")
    theirs = json.loads(schema.read_text(encoding="utf-8"))["jupyter.lab.shortcuts"]
    arrows = {each["command"]: each for each in theirs if each["keys"] in WAYS}
    off = {each["command"]: each for each in ours if "disabled" in each}
    on = {each["command"]: each for each in ours if "disabled" not in each}
    selector = ":not(input):not(select)"
    assert off == {name: each | {"disabled": True} for name, each in arrows.items()}
    assert on == {n: e | {"selector": e["selector"] + selector} for n, e in arrows.items()}


WAYS = (["ArrowDown"], ["ArrowUp"], ["ArrowLeft"], ["ArrowRight"])


def test_codespaces_prepares_with_this_command_and_opens_the_first_lesson():
    settings = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    python, script, *options = settings["postCreateCommand"].split()
    parser = argparse.ArgumentParser()
    lab.add_arguments(parser)
    parsed = parser.parse_args(options)
    assert (python, script) == ("python3", "lab.py") and parsed.wheels == "cpu" and parsed.prepare
    options = settings["customizations"]
    first = f"notebooks/{lab.START}"
    assert options["codespaces"]["openFiles"] == [first] and (ROOT / first).exists()
    found = options["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert found == "${containerWorkspaceFolder}/.venv/bin/python"


def test_gpu_lane_runs_every_step_and_fails_when_one_fails(monkeypatch, tmp_path, capsys):
    lines, out = [], tmp_path / "r.json"
    monkeypatch.setattr(subprocess, "call", lambda line, cwd, env: lines.append(line) or 0)
    assert door.run("test", ["--here", "--gpu", "--out", str(out), "--", "-k", "some"]) == 0
    assert [line[2] for line in lines] == ["pytest", "pytest", "course"]
    assert lines[0][3:] == ["--gpu", "-k", "some"] and lines[2][-2:] == ["--out", str(out)]
    monkeypatch.setattr(subprocess, "call", lambda line, cwd, env: int("record" not in line))
    assert door.run("test", ["--here", "--gpu", "--out", str(out)]) == 1
    out.touch()
    assert door.run("test", ["--here", "--gpu", "--out", str(out)]) == 2
    assert "takes a new file in a folder that exists" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "side_by_side"), [([], True), (["--browser"], False)])
def test_test_starts_pytest_with_lane_and_arguments_and_returns_its_status(
    flags, side_by_side, monkeypatch
):
    lines = []
    monkeypatch.setattr(subprocess, "call", lambda line, cwd, env: lines.append(line) or 5)
    assert door.run("test", ["--here", *flags, "--", "-x"]) == 5
    [line] = lines
    assert line[: 3 + len(flags)] == [sys.executable, "-m", "pytest", *flags] and line[-1] == "-x"
    assert ("--numprocesses" in line) is side_by_side


# execute


def notebook(*sources, tags=()):
    """Return a new notebook with a title and code cells; `tags` go to the last one."""
    result = nbformat.v4.new_notebook()
    result.cells = [
        nbformat.v4.new_markdown_cell("# Try it"),
        *map(nbformat.v4.new_code_cell, sources),
    ]
    result.cells[-1].metadata.update(
        {"tags": list(tags), "reason": "differs from run to run"} if tags else {}
    )
    return result


def saved(folder, *sources, **options):
    """Return the path of such a notebook in `folder`."""
    path = folder / "01_try_it.ipynb"
    nbformat.write(notebook(*sources, **options), path)
    return path


def texts(notebook):
    """Return the outputs of all cells but the last, without pictures."""
    outputs = [output for cell in notebook.cells[1:-1] for output in cell.outputs]
    return [output.get("text", output.get("data", {}).get("text/plain")) for output in outputs]


def test_measure_names_seconds_and_the_failing_lesson_and_stores_nothing(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(_notebooks, "FOLDER", tmp_path)
    path = saved(tmp_path, "import time; time.sleep(0.5)", "1 / 0")
    text = path.read_text()
    assert door.run("measure", ["01", "--busy", "1"]) == 1
    told = capsys.readouterr().out
    assert path.stem in told and "cell 1" in told and "ZeroDivisionError" in told
    assert float(told.split("together")[1]) >= 0.5
    assert path.read_text() == text


def test_execute_stores_the_same_twice_and_passes_strict_nbval(tmp_path):
    path = saved(
        tmp_path,
        "import os, sys\nprint('a', flush=True)\nprint('b')",
        "os.environ['X'] = 'x'",
        "import ipywidgets\nipywidgets.VBox([ipywidgets.IntSlider()])",
        "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])",
        "import time\ntime.time()",
        tags=["nbval-ignore-output"],
    )
    execute.refresh(path)
    first = _notebooks.read(path)
    execute.refresh(path)
    assert texts(first) == texts(_notebooks.read(path))
    assert first.cells[1].outputs == [{"output_type": "stream", "name": "stdout", "text": "a\nb\n"}]
    assert first.cells[3].outputs[0].data == {"text/plain": "VBox(children=(IntSlider(value=0),))"}
    assert set(first.cells[4].outputs[0].data) == {"image/png", "text/plain"}

    status, text, memory = run_strict(path)
    assert status == 0, text
    assert "5 passed" in text and (memory is None or memory > 2**25)


def test_stored_cells_keep_folded_outputs_and_count_as_run_all_does():
    draft = notebook("1 + 1", "", "2")
    draft.cells[1].metadata = {"jupyter": {"outputs_hidden": True, "source_hidden": True}, "x": 1}
    draft.cells[1].execution_count = 7
    draft.cells[1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2"})]
    draft.cells[1].outputs[0].execution_count = 7
    draft.cells[3].outputs = [nbformat.v4.new_output("display_data", {_notebooks.VIEW: {}})]
    cell = _notebooks.clean(draft).cells[1]
    assert cell.metadata == {"jupyter": {"outputs_hidden": True, "source_hidden": True}}
    assert cell.execution_count == cell.outputs[0].execution_count == 1
    assert [each.execution_count for each in draft.cells[2:]] == [None, 2]
    assert draft.cells[3].outputs == [], "a widget without its kernel"
    nbformat.validate(draft)


def test_a_failing_notebook_stays_as_it_was(tmp_path):
    path = saved(tmp_path, "print('fine')", "1 / 0")
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute.refresh(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_kernels_see_no_gpu_no_stored_progress_no_colab_and_their_own_folder(tmp_path, monkeypatch):
    hosts = ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"]
    for name in hosts:
        monkeypatch.setenv(name, "yes")
    monkeypatch.setenv("GPU_COURSE_HOME", str(ROOT))
    which = execute.shutil.which  # as on a machine with a GPU
    monkeypatch.setattr(execute.shutil, "which", lambda name: name == "nvidia-smi" or which(name))
    path = saved(
        tmp_path,
        "import os\n"
        "print([os.environ['CUDA_VISIBLE_DEVICES'], os.listdir(os.environ['GPU_COURSE_HOME'])])\n"
        f"print([name for name in {hosts} if name in os.environ])\n"
        f"print(os.path.samefile(os.getcwd(), {str(tmp_path)!r}))",
    )
    execute.refresh(path)
    assert _notebooks.read(path).cells[1].outputs[0].text == "['', []]\n[]\nTrue\n"


# publish


def stamped(repository):
    """Return a stamped notebook of lesson 01."""
    draft = notebook("from helpers.devices import pick_device")
    return publish.stamp_notebook(draft, repository, course.LESSONS[1].file)


def test_publish_stamps_badges_links_and_setup_line():
    first, setup = stamped("someone/their-copy").cells
    assert first.source.startswith("# Try it\n\n<!-- nav -->\n<details>")
    tag, file = publish.release(), "notebooks/01_check_for_cuda.ipynb"
    for address in (
        f"colab.research.google.com/github/someone/their-copy/blob/{tag}/{file})",
        f"welcome?src=https://raw.githubusercontent.com/someone/their-copy/{tag}/{file})",
        f"mybinder.org/v2/gh/someone/their-copy/{tag}?urlpath=lab%2Ftree%2Fnotebooks%2F01_check",
    ):
        assert address in first.source
    assert (
        "**01&nbsp;Check&nbsp;for&nbsp;CUDA**" in first.source
        and "](00_start_here.ipynb)" in first.source
    )
    lines = setup.source.splitlines()
    assert lines[:2] == ["try:", "    import helpers"] and len(lines) <= 9
    assert lines[-1] == "from helpers.devices import pick_device"


@pytest.mark.parametrize("before", ["OWNER_NAME/x", "another/copy", "a/b"])
def test_a_stamped_notebook_gets_another_address_and_changes_nowhere_else(before):
    moved = publish.stamp_notebook(stamped(before), "a/b", course.LESSONS[1].file)
    assert [cell.source for cell in moved.cells] == [cell.source for cell in stamped("a/b").cells]


def test_publish_refuses_what_is_no_address(capsys):
    assert door.run("publish", ["some one/x"]) == 2
    assert "OWNER/NAME" in capsys.readouterr().err


def test_set_up_brings_helpers_where_they_are_missing_and_never_torch(monkeypatch):
    lines = publish.setup_lines("a/b").replace("%pip", "pip = ").replace("-q --no-deps ", "")
    address = f"https://github.com/a/b/archive/refs/tags/{publish.release()}.zip"
    both = f'{address} "{address}#subdirectory=practice_gpus"'
    magic = f"    %pip install -q --no-deps {both}"
    assert publish.setup_lines("a/b").splitlines()[3] == magic
    code = lines.replace(f"install {both}", "'asked for'")
    known = {}
    exec(code, known)
    assert "pip" not in known, "helpers are here: nothing is fetched"
    monkeypatch.setitem(sys.modules, "helpers", None)
    exec(code, known)
    assert known["pip"] == "asked for"


def test_publish_changes_a_copy_of_the_course_everywhere(tmp_path):
    copy_of_course(tmp_path, folders=PACKAGES)
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook("1"), tmp_path / "notebooks" / course.LESSONS[1].file)
    for argument, status in (("--check", 1), ("someone/their-copy", 0), ("--check", 0)):
        done = call(sys.executable, "-m", "course", "publish", argument, cwd=tmp_path)
        assert done.returncode == status, done.stderr
    for name in ("README.md", "course/pages.py"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "OWNER_NAME/gpus" not in text and "someone/their-copy" in text


# what is installed


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="builds in an environment")
def test_wheels_of_course_and_practice_gpus_hold_every_module(tmp_path):
    """Colab installs these two: a module that is left out stops a lesson."""
    if find_spec("setuptools") is None or int(version("setuptools").split(".")[0]) < 77:
        pytest.skip("builds without a network: setuptools 77 or later has to be here")
    copy_of_course(tmp_path)
    line = "-m pip wheel -q --no-deps --no-build-isolation -w out . ./practice_gpus"
    done = call(sys.executable, *line.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    inside = set()
    for wheel in (tmp_path / "out").glob("*.whl"):
        inside |= set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "practice_gpus/src"
    wanted = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    for folder in ("helpers", "course"):
        for kind in ("*.py", "*.json", "*.txt"):
            wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(kind)}
    scripts = (ROOT / "notebooks/scripts").glob("*.py")
    wanted |= {f"course/lesson_scripts/{path.name}" for path in scripts}
    assert wanted - inside == set()
