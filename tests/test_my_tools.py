"""my_gpu_tools.py: what a learner keeps is theirs, whole, and never lost or changed unasked."""

import dataclasses
import linecache
import multiprocessing
import os
import subprocess
import sys
import textwrap

import pytest

from course import files
from course.checks import core, my_tools
from course.checks.core import Exercise


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder, as a notebook does in its own; give the path of the learner's module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(core, "_correct", {})
    yield tmp_path / my_tools.FILE
    sys.modules.pop("my_gpu_tools", None)


def written(source, name):
    """Return what `source`, run as a notebook's cell, calls `name`."""
    source = textwrap.dedent(source).lstrip()
    file = f"<cell {len(linecache.cache)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    space = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), space)  # noqa: S102 - a cell of a test
    return space[name]


PICK = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from helpers.timing import time_ms as clock

    TRIES = 3

    def usable(device):
        return F.relu(torch.ones(1, device=device)).item() == 1

    class Net(nn.Module):
        def forward(self, x):
            return F.relu(x)

    # my own thoughts
    def pick_device(tries=TRIES, net: Net = None):
        '''The best device here.'''
        found = [d for d in ["cpu"] * tries if usable(d)]
        return found[0], clock
    """


def test_what_is_kept_works_in_a_program_of_its_own(folder):
    """With its imports, its constants and the notebook's functions that it calls."""
    told = my_tools.keep(written(PICK, "pick_device"), "pick_device")
    assert told.startswith("Kept: pick_device is in my_gpu_tools.py now.")
    code = "from my_gpu_tools import pick_device; print(pick_device()[0])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder.parent, capture_output=True, text=True
    )
    assert done.stdout == "cpu\n", done.stderr
    text = folder.read_text()
    assert "'''The best device here.'''" in text and text.count("import torch\n") == 1


def test_the_next_function_joins_the_first_and_all_else_stays(folder):
    my_tools.keep(written(PICK, "pick_device"), "pick_device")
    folder.write_text(folder.read_text() + "\n\nMINE = 7  # my own\n")
    before = folder.read_text()
    my_tools.keep(
        written("import math\nimport torch\ndef third(x):\n    return math.sin(x)\n", "third"),
        "third",
    )
    after = folder.read_text()
    assert set(before.splitlines()) <= set(after.splitlines())
    assert after.count("import torch\n") == 1 and "import math" in after
    assert my_tools.mine("third", None)(0) == 0 and my_tools._load().MINE == 7


def test_another_function_of_that_name_is_replaced_only_when_asked(folder):
    one, two = (written(f"def f():\n    return {n}\n", "f") for n in (1, 2))
    my_tools.keep(one, "f")
    assert "already, just as it is here" in my_tools.keep(one, "f")
    before = folder.read_text()
    with pytest.raises(my_tools.NotKept, match="another f already, and nothing was changed"):
        my_tools.keep(two, "f")
    assert folder.read_text() == before
    my_tools.keep(two, "f", replace=True)
    assert my_tools.mine("f", None)() == 2 and folder.read_text().count("def f") == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("model = object()\ndef f():\n    return model\n", "uses model of this notebook"),
        ("f = eval('lambda: 1')\n", "source isn't to be found"),
    ],
)
def test_what_works_only_in_the_notebook_is_not_kept(folder, source, words):
    with pytest.raises(my_tools.NotKept, match=words):
        my_tools.keep(written(source, "f"), "f")
    assert not folder.exists()


def test_a_broken_file_is_named_left_alone_and_ours_stands_in(folder, capsys):
    folder.write_text("def f(:\n")
    with pytest.raises(my_tools.NotKept, match="mistake in line 1: .*Mend it"):
        my_tools.keep(written("def g():\n    return 1\n", "g"), "g")
    assert folder.read_text() == "def f(:\n"
    assert my_tools.mine("f", len) is len
    assert "my_gpu_tools.py doesn't load: SyntaxError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f: the course's own stands in until you keep yours\n"),
        ("f = 3\n", "f: the course's own stands in until you keep yours\n"),
        (
            "\n1 / 0\n",
            "doesn't load: ZeroDivisionError: division by zero in line 2. f: the course's",
        ),
        ("import sys\nsys.exit(1)\n", "doesn't load: SystemExit: 1 in line 2."),
    ],
)
def test_without_the_learners_own_the_courses_stands_in_and_one_line_says_so(
    folder, text, told, capsys
):
    if text:
        folder.write_text(text)
    assert my_tools.mine("f", len) is len
    out = capsys.readouterr().out
    assert told in out and out.count("\n") == 1


def test_a_change_of_the_file_counts_at_once(folder, capsys):
    folder.write_text("def f():\n    return 1\n")
    assert my_tools.mine("f", None)() == 1
    folder.write_text("def f():\n    return 2\n")
    assert my_tools.mine("f", None)() == 2
    assert capsys.readouterr().out == 2 * "f: yours, from my_gpu_tools.py\n"


def test_what_a_learner_kept_can_be_carried_to_other_processes(folder):
    """Lesson 10 hands their to_ddp to four processes, which run in another folder."""
    folder.write_text("import math\n\nTWO = 2\n\n\ndef f():\n    return math.sqrt(8 * TWO)\n")
    text = my_tools.source(my_tools.mine("f", None))
    folder.unlink()
    space = {}
    exec(text, space)  # noqa: S102 - as those processes do
    assert space["f"]() == 4.0


def test_an_exercise_keeps_only_what_it_found_correct(folder, home, capsys):
    right, wrong = (written(f"def solve():\n    return {n}\n", "solve") for n in (4, 5))

    def check(answer):
        if core.call(answer) != 4:
            raise core.NotYet("four is meant.")

    plain = Exercise("01.t", "t", check, ("a", "b", "c"), right, "because")
    exercise = dataclasses.replace(plain, tool="four")
    exercise.check(wrong)
    assert "keep()" not in capsys.readouterr().out
    exercise.keep()
    assert "run ex.t.check(…) first" in capsys.readouterr().out and not folder.exists()
    exercise.check(right)
    assert "ex.t.keep() puts it into my_gpu_tools.py" in capsys.readouterr().out
    exercise.keep()
    assert my_tools.mine("four", None)() == 4
    capsys.readouterr()
    folder.write_text(folder.read_text().replace("return 4", "return 2 + 2"))
    exercise.keep()
    assert "ex.t.keep(replace=True) replaces it" in capsys.readouterr().out
    exercise.keep(replace=True)
    assert "return 4" in folder.read_text() and "2 + 2" not in folder.read_text()
    plain.keep()
    assert "nothing to keep" in capsys.readouterr().out


KERNEL = """
    import triton
    import triton.language as tl

    @triton.jit
    def half(x):
        return x / 2

    @triton.jit
    def halve_kernel(x, out, n, BLOCK: tl.constexpr):
        places = tl.arange(0, BLOCK)
        tl.store(out + places, half(tl.load(x + places, mask=places < n)), mask=places < n)
    """


@pytest.mark.parametrize("interpret", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_a_kernel_is_kept_with_its_decorator_and_triton(folder, interpret, monkeypatch):
    """Or the learner's file doesn't load, or holds a function that can't be launched."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    my_tools.keep(written(KERNEL, "halve_kernel"), "halve_kernel")
    program = (
        "import torch; from my_gpu_tools import halve_kernel; out = torch.zeros(3); "
        "halve_kernel[(1,)](torch.tensor([2.0, 4.0, 6.0]), out, 3, BLOCK=4); print(out.tolist())"
    )
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder.parent, capture_output=True, text=True
    )
    assert done.stdout == "[1.0, 2.0, 3.0]\n", done.stderr
    assert my_tools.keep(written(KERNEL, "halve_kernel"), "halve_kernel").endswith("as it is here.")


@pytest.mark.parametrize("text", ["\nvoid f() {\n}\n", 'puts("\\n");', 'say("""'])
def test_cuda_c_is_kept_as_it_was_written(folder, text):
    """A kernel's text must come back letter by letter, or it no longer compiles."""
    my_tools.keep(text, "saxpy")
    assert vars(my_tools._load())["saxpy"] == text
    assert text.count("\\") or '"""' in text or text in folder.read_text(), "readable, not escaped"


F = "def f(x):\n    return 0\n"
ODD = {  # the learner's file: what keep(replace=True) of another f says
    "form feed": ('"""Mine."""\n\f\ndef precious():\n    return 42\n' + F, "Kept"),
    "two form feeds": ("\f\n\f\ndef precious():\n    return 42\n\n" + F, "Kept"),
    "line separator in a comment": (
        "# one\u2028two\x85three\x1cfour\n" + F + "precious = 42\n",
        "Kept",
    ),
    "line separator in a text": ("precious = 'one\u2028two'\n" + F, "Kept"),
    "one line with others": ("f = None; precious = 42\n", "change it by hand"),
    "others before it": ("precious = 42; f = None\n", "change it by hand"),
    "two names for one": ("f = precious = len\n", "change it by hand"),
    "unpacked": ("f, precious = len, 42\n", "change it by hand"),
    "in a branch": (
        "try:\n    import cupy\nexcept ImportError:\n    f = None\n",
        "change it by hand",
    ),
    "imported": ("from math import sin as f\nprecious = f(0)\n", "change it by hand"),
    "twice": (F + "\n\nprecious = f(1)\n\n\n" + F.replace("0", "2"), "change it by hand"),
    "wrapped afterwards": (F + "f = print(f) or f\n", "change it by hand"),
    "used below": (F + "\nprecious = f(1)\n", "Kept"),
    "decorated": (
        "import functools\n\n\n@functools.cache\n@functools.cache\n" + F + "# end\n",
        "Kept",
    ),
    "a comment behind": ("# before\n" + F + "    # inside\n# after\n\n\nprecious = 42", "Kept"),
    "no line end": ("import os\nprecious = os.sep\nf = None", "Kept"),
    "Windows": ("import os\r\n\r\n\r\ndef f(x):\r\n    return 0\r\nprecious = 42\r\n", "Kept"),
    "old Macintosh": ("precious = 42\rdef f(x):\r    return 0\r", "Kept"),
    "annotated": ("f: object = None  # mine\nprecious = 42\n", "Kept"),
    "math is theirs": ("math = 42\n" + F, "math is something else"),
    "math is there": ("import math, os\nprecious = os.sep\n" + F, "Kept"),
    "math comes too late": ("precious = 1\n" + F + "import os\n", "Kept"),
    "a constant that others use": ("TWO = 3\nprecious = TWO\n", "uses another TWO elsewhere"),
    "a constant of the old one": ("precious = 42\nTWO = 3\n", "Kept"),
    "future": ("from __future__ import annotations\nprecious = 42\n" + F, "Kept"),
    "first lines": (
        "#!/usr/bin/env python3\n# -*- coding: latin-1 -*-\nprecious = 42\n" + F,
        "Kept",
    ),
    "only a comment": ("# nothing yet", "Kept"),
    "empty": ("", "Kept"),
    "deep": ("x = " + "-" * 3000 + "1\n" + F, "Nothing was changed|nothing was changed"),
    "zero bytes": ("x = 1\0\n", "nothing was changed"),
    "broken": ("def f(:\n", "mistake in line 1"),
}


def outcome(answer, replace=True):
    """What a learner is told of keeping `answer` as f."""
    try:
        return my_tools.keep(answer, "f", replace)
    except my_tools.NotKept as reason:
        return str(reason)


@pytest.mark.parametrize("name", ODD)
def test_replacing_a_function_changes_no_other_line_of_the_learners_file(folder, name):
    """A form feed in the file, and the function above it lost its body: it returned 0 from then on."""
    text, told = ODD[name]
    folder.write_bytes(text.encode())
    new = written(
        "import math\nTWO = 2\ndef f(x, by=TWO):\n    return math.floor(x) + by + 40\n", "f"
    )
    words = outcome(new)
    assert any(part in words for part in told.split("|")), words
    if told != "Kept":
        assert folder.read_bytes() == text.encode()
        return
    after, own = folder.read_bytes().decode(), {"f = None", "f: object = None  # mine", "TWO = 3"}
    own |= {"def f(x):", "    return 0", "@functools.cache", "    # inside"}
    ends = "\r\n" if "\r\n" in text else "\r" if "\r" in text else "\n"
    others = [line for line in text.split(ends) if line not in own]
    left = iter(after.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    assert all(line in left for line in others), "each stays, in its place"
    assert "\r\n" not in text or "\n" not in after.replace("\r\n", "")
    assert my_tools.mine("f", None)(0.5) == 42
    assert outcome(new).endswith("as it is here.") and folder.read_bytes().decode() == after


@pytest.mark.parametrize("cookie", ["rot13", "idna", "hex", "klingon"])
def test_a_file_that_names_an_odd_encoding_is_refused_in_words(folder, cookie):
    """A LookupError, and a traceback in the learner's notebook."""
    folder.write_text(before := f"# coding: {cookie}\nx = 1\n")
    told = outcome(written(f"def f():\n    return '{'1' * 80}'\n", "f"))
    assert "Save it as UTF-8" in told or "Nothing was changed" in told
    assert folder.read_text() == before


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_a_file_of_another_editor_is_kept_as_it_is_or_refused_in_words(folder, encoding):
    """Windows' editors write a mark first: "invalid non-printable character U+FEFF", or a traceback."""
    folder.write_bytes("# Größe\nprecious = 42\n".encode(encoding))
    before = folder.read_bytes()
    told = outcome(written("def f():\n    return 1\n", "f"))
    if encoding == "utf-8-sig":
        assert told.startswith("Kept") and folder.read_bytes().startswith(before.rstrip())
    else:
        assert "Save it as UTF-8" in told and folder.read_bytes() == before


def test_a_link_stays_a_link_and_a_folder_is_no_module(folder, tmp_path):
    """Their module lay in a repository of their own, and a copy took its place: no commit saw it."""
    real = tmp_path / "repository.py"
    real.write_text("precious = 42\n")
    folder.symlink_to(real)
    assert outcome(written("def f():\n    return 1\n", "f")).startswith("Kept")
    assert folder.is_symlink() and "precious" in real.read_text() and "def f" in real.read_text()
    folder.unlink()
    folder.mkdir()
    assert "is no file" in outcome(written("def f():\n    return 1\n", "f"))


def keep_ten(start):
    """In a process of its own: keep ten functions."""
    for number in range(start, start + 10):
        name = f"f{number}"
        my_tools.keep(written(f"def {name}():\n    return {number}\n", name), name)


@pytest.mark.skipif(os.name == "nt", reason="forks")
def test_notebooks_that_keep_at_the_same_time_lose_nothing(folder):
    """Of 40 functions that four notebooks kept, 21 were in the file."""
    context = multiprocessing.get_context("fork")
    notebooks = [context.Process(target=keep_ten, args=(10 * n,)) for n in range(4)]
    for notebook in notebooks:
        notebook.start()
    for notebook in notebooks:
        notebook.join(60)
    space = vars(my_tools._load())
    assert [space[f"f{n}"]() for n in range(40)] == list(range(40))


@pytest.mark.slow
def test_a_notebook_waits_for_its_turn(folder):
    """Of four that kept ten each, one was told to keep again: the lock isn't given in turn."""
    with files.locked(folder.parent):
        context = multiprocessing.get_context("spawn")
        notebook = context.Process(target=keep_ten, args=(0,))
        notebook.start()
        notebook.join(files.PATIENCE + 6)
        assert notebook.is_alive()
    notebook.join(60)
    assert "def f9" in folder.read_text()
