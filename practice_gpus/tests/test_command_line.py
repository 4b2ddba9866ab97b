"""A wrong call of `python -m practice_gpus` says which option, what came and what fits, and changes no file."""

import shlex
import sys

import pytest

from practice_gpus import __main__ as door

KERNEL = "__global__ void f(float* o) { o[threadIdx.x] = 1; }\n"
LONG = 300 * "x"
CALLS = {  # what is typed: what the line says
    "": "required: program",
    "--json mine.txt/x a.py": "--json is mine.txt/x; it takes a file in a folder",
    "--json new --html new a.py": "--json and --html are both new: name two files",
    "--json link a.py": "--json is link, which is there and no report",
    "--html new --before none.json a.py": "--before is none.json, and there is no such file",
    "--html new --before folder a.py": "--before is folder, and there is no such file",
    f"--json {LONG} a.py": "--json is xxx",
    f"--html {LONG[:250]} a.py": "--html is xxx",
    f"--html new --before {LONG} a.py": "--before is xxx",
    "trace ''": "a name of a file is empty",
    f"trace {LONG}": "is not there",
    f"kernel {LONG}": "and there is no such file",
    f"kernel k.cu f --save {LONG}": "--save: takes a new file",
    "verify x": "verify: it takes no arguments",
    "calibrate ''": "calibrate: it takes no arguments",
    "kernel none.cu": "file: is 'none.cu', and there is no such file",
    "kernel ''": "file: is ''",
    "kernel k.cu ''": "name: is empty",
    "kernel k.cu f --grid x": "--grid: takes one to three numbers above 0",
    "kernel k.cu f --grid 1,2,3,4": "--grid: takes one to three numbers above 0",
    "kernel k.cu f --grid=-1": "--grid: takes one to three numbers above 0",
    "kernel k.cu f --block 0": "--block: takes one to three numbers above 0",
    "kernel k.cu f --block 64,32": "--block: takes at most 1024 threads, not '64,32'",
    "kernel k.cu f --limit nan": "--limit: takes seconds above 0, not 'nan'",
    "kernel k.cu f --limit=-1": "--limit: takes seconds above 0",
    "kernel k.cu f --shared=-4": "--shared: takes a number of bytes",
    "kernel k.cu f --save mine.txt": "--save: takes a new file",
    "kernel k.cu f --save nowhere/x": "--save: takes a new file in a folder",
    "kernel k.cu f --save link": "--save: takes a new file",
}


@pytest.mark.parametrize("typed", CALLS)
def test_a_wrong_call_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys, typed):
    """A kernel's arguments went over a file of theirs; a traceback came when the program's hour was over."""
    files = {"mine.txt": "precious", "a.py": "print('ran')", "k.cu": KERNEL}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["practice_gpus", *shlex.split(typed)])
    try:
        status = door.main()
    except SystemExit as ended:
        status = ended.code
    told = capsys.readouterr()
    assert status == 2 and CALLS[typed] in told.err and "ran" not in told.out
    assert {path.name for path in tmp_path.iterdir()} == {*files, "folder", "link"}
    assert {name: (tmp_path / name).read_text() for name in files} == files
