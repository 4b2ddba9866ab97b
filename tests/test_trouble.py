"""`lab` in trouble: a full disk, many at once: nothing is lost. A page in trouble: what hides a package is named."""

import errno
import subprocess
import sys

import pytest

from course import files
from course.show import newkernel
from course.tools import ROOT, _copies, lab


def full(monkeypatch, after=0):
    """Let the disk be full after so many files."""
    write, written = files.write, []

    def written_or_not(path, content):
        if len(written) >= after:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        write(path, content)

    monkeypatch.setattr(files, "write", written_or_not)


def test_on_a_full_disk_the_learners_copies_are_opened(lessons, monkeypatch, capsys):
    """What somebody worked on yesterday must not seem gone."""
    mine = lab.copies() / lab.START
    mine.write_text("my work")
    with monkeypatch.context() as patch:
        full(patch)
        assert lab.copies() == mine.parent and "No space" not in capsys.readouterr().out
        (lessons / "03_cnn.ipynb").write_text("second text")
        assert lab.copies() == mine.parent
        assert "Your copies stay as they are" in capsys.readouterr().out
    assert mine.read_text() == "my work"
    lab.copies()
    assert (mine.parent / "03_cnn.ipynb").read_text() == "second text"


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_disk_that_fills_while_copying_is_said_and_gone_on_with(
    lessons, monkeypatch, capsys, after
):
    with monkeypatch.context() as patch:
        full(patch, after)
        folder = lab.copies()
    assert "No space left on device" in capsys.readouterr().out
    assert (folder / lab.START).read_text() == "first text"
    mine = lab.copies()
    assert {path.read_text() for path in mine.glob("[0-9]*.ipynb")} == {"first text"}
    assert len(list(mine.glob("[0-9]*.ipynb"))) == 2 and (mine / _copies.RECORD).is_file()


def test_a_file_beside_the_page_that_hides_a_package_is_named(tmp_path, capsys, monkeypatch):
    """What Python says, that 'torch' is not a package, tells a learner with a torch.py nothing."""
    for name in ("torch", "random", "mine"):
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = [file.name for file in newkernel.in_the_way(tmp_path)]
    assert found == ["helpers", "random.py", "torch.py"]

    class Shell:
        def showtraceback(self, trouble, tb_offset=None):
            print(trouble[1])

    error = ModuleNotFoundError("No module named 'torch.nn'; 'torch' is not a package")
    newkernel._explained(Shell(), type(error), error, None)
    told = capsys.readouterr().out
    assert f"{tmp_path / 'torch.py'} stands beside this page" in told and "mine.py" not in told


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("from course import photos\nphotos.sample('cofee')", 1),
        ("import torch\ntorch.ones(2).view(3, 3, 3, 3).to('gpu')", 4),
    ],
)
def test_a_misspelled_name_is_answered_in_a_sentence_and_not_with_our_code(code, lines):
    """ "dessert" for a photo was answered with 30 lines from inside the course, their last one the sentence."""
    line = [sys.executable, "-m", "IPython", "--colors=NoColor", "--no-banner"]
    line += ["--ext=course.show.newkernel", "-c", code]
    told = subprocess.run(line, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    assert "Error" in told and (len(told.splitlines()) == 1) == (lines == 1), told
