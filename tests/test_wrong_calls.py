"""A command that is called wrongly says which argument, what came and what fits, before it does or changes anything."""

import argparse
import importlib
import io
import shlex
import sys

import pytest
from copies import everything

from course import __main__ as door
from course.tools import _arguments

FILES = {
    "mine.txt": "precious",
    "mine.csv": "precious",
    "pages/index.html": "precious",
    "pages/03.slides.html": "precious",
    "trace.json": '{"traceEvents": 3}',
    "deep.json": "[" * 100_000,
    "number.json": '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "x", "dur": 1, "name": "k", "args": {}}]}',
    "list.json": "[1, 2]",
    "trace.small.json.gz": "precious",
}
LONG = 300 * "x"
CALLS = {  # what is typed: what the line says
    "execute 99": "no notebook is called 99; there are 00, 01,",
    "execute 01 99": "no notebook is called 99",
    "execute ../03": "no notebook is called ../03",
    "execute ''": "an argument is empty",
    "execute ' '": "an argument is empty",
    "execute 01 --timeout 0": "--timeout: takes a whole number above 0, not '0'",
    "execute 01 --timeout=": "--timeout",
    "measure 98": "no notebook is called 98",
    "measure ''": "an argument is empty",
    "measure 01 --busy -1": "--busy: takes a whole number, 0 or more, not '-1'",
    "measure 01 --busy ²": "--busy: takes a whole number",
    "site mine.txt": "takes a folder, and 'mine.txt' is none",
    "site mine.txt/below": "takes a folder, and '{here}/mine.txt' is none",
    f"site {LONG}": "takes a folder",
    f"record --out {LONG}": "--out: takes a file in a folder",
    f"reduce_trace {LONG}": "trace: takes a file",
    f"grade nowhere --out {LONG}.csv --unsealed": "takes",
    "site ''": "an argument is empty",
    "site pages": "pages/index.html is there, and no command of the course wrote it",
    "slides mine.txt": "takes a folder",
    "slides pages 03": "pages/03.slides.html is there, and no command of the course wrote it",
    "slides new ''": "an argument is empty",
    "slides new 77": "no notebook is called 77",
    "slides ''": "an argument is empty",
    "pack mine.txt": "takes a folder",
    "pack mine.txt/x": "takes a folder, and '{here}/mine.txt' is none",
    "pack ''": "an argument is empty",
    "pack new --wheels ''": "--wheels is empty",
    "pack pages": "is there already",
    "pack new --wheels mine.txt": "--wheels: takes cpu, xpu, default, or the likes of cu130",
    "lab --wheels ../x": "--wheels: takes cpu",
    "record --out mine.txt/x.json": "--out: takes a file in a folder",
    "record --out nowhere/x.json": "--out: takes a file in a folder",
    "record --out pages": "--out: takes a file, and 'pages' is none",
    "record --out ''": "--out",
    "record --out x.json --device cuda:9": "--device: is 'cuda:9'; this machine has",
    "record --out x.json --device ''": "--device",
    "record --out mine.txt --quick": "mine.txt",
    "reduce_trace none.json": "trace: takes a file, and there is none called 'none.json'",
    "reduce_trace pages": "trace: takes a file",
    "reduce_trace ''": "trace",
    "reduce_trace trace.json": "trace.small.json.gz is there already",
    "reduce_trace list.json": "list.json",
    "reduce_trace deep.json": "deep.json",
    "reduce_trace number.json": "number.json",
    "reduce_trace list.json --out mine.txt": "--out: takes a new file, and 'mine.txt' is there already",
    "reduce_trace list.json --out nowhere/x": "--out: takes a file in a folder",
    "reduce_trace list.json --window x 3": "--window",
    "grade nowhere --out new.csv --unsealed": "FOLDER is nowhere",
    "grade pages --out mine.txt": "--out is mine.txt; it takes a FILE.csv",
    "grade pages --out mine.csv": "--force replaces it",
    "grade pages --out nowhere/x.csv": "--out is nowhere/x.csv",
    "grade pages --out ''": "--out is empty",
    "grade pages --out new.csv --jobs 0": "--jobs: takes a whole number above 0",
    "grade pages --out new.csv --seconds x": "--seconds",
    "grade pages --out new.csv --memory -3": "--memory",
    "grade pages": "--out",
    "progress --file none.txt": "none.txt",
    "progress --file pages": "pages",
    "progress --file ''": "--file is empty",
    "progress --out new.csv": "--out writes the table of a class",
    "progress P2-x --out mine.csv": "--force replaces it",
    "progress P2-x --out mine.txt": "it takes a FILE.csv",
    "scoreboard nothing": "tables are",
    "scoreboard --every 0": "--every: takes a whole number above 0",
    "inventory --form z": "--form",
    "publish 'a b'": "it takes OWNER/NAME",
    "publish ../x": "it takes OWNER/NAME",  # stamped 38 files
    "publish x/..": "it takes OWNER/NAME",
    "publish größe/x": "it takes OWNER/NAME",
    "publish ''": "an argument is empty",
    "lab --here --port -1": "--port: takes a number from 1 to 65535, not '-1'",
    "lab --here --port 70000": "--port: takes a number from 1 to 65535",
    "lab --here --fresh ''": "--fresh is empty",
    "lab --cpu --here": "not allowed with",
    "lab --wheels ''": "--wheels is empty",
    "test --gpu --here --out mine.txt": "takes a new file",
    "test --gpu --here --out dangling": "takes a new file",
    "test --gpu --here --out nowhere/x.json": "takes a new file in a folder",
    "nothing": "There is no command 'nothing'",
}


@pytest.mark.parametrize("typed", CALLS)
def test_a_wrong_call_is_refused_in_a_line_before_anything_happens(
    tmp_path, monkeypatch, capsys, typed
):
    """A program's hour lost to a folder that was not there, a page of theirs overwritten, all notebooks run for ""."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "dangling").symlink_to("nowhere/x.json")
    monkeypatch.chdir(tmp_path)
    before = everything(tmp_path)
    try:
        status = door.main(shlex.split(typed))
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status in (1, 2), said
    assert CALLS[typed].format(here=tmp_path) in said
    assert "Traceback" not in said and len(said.splitlines()) <= 12 or typed == "nothing"
    assert everything(tmp_path) == before


def options():
    """Yield (command, words that lead to the option, its name) for every option of every command that takes a value."""
    for name in door.commands():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"course.tools.{name}").add_arguments(parser)
        for action in parser._actions:
            if action.nargs != 0 and action.dest != "help":
                yield name, action


@pytest.mark.parametrize("kind", [_arguments.folder, _arguments.new_file, _arguments.own_file])
def test_a_name_that_no_file_can_have_is_refused_at_the_door(kind):
    """A traceback came instead of a sentence, after a page had been executed."""
    with pytest.raises(argparse.ArgumentTypeError, match="takes a"):
        kind("x" * 240 + ".csv")  # with what is added while it is written, more than 255


@pytest.mark.parametrize("value", [None, "", "  "], ids=["missing", "empty", "blank"])
@pytest.mark.parametrize(
    ("name", "action"), [pytest.param(*p, id=f"{p[0]} {p[1].dest}") for p in options()]
)
def test_every_option_without_its_value_is_refused(
    tmp_path, monkeypatch, capsys, name, action, value
):
    """An empty text from a shell's variable meant "all", or "here"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    if value is None and not action.option_strings:
        pytest.skip("what stands alone and may be left out")
    try:
        status = door.main([name, *action.option_strings[:1], *([] if value is None else [value])])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert "Traceback" not in said and not list(tmp_path.iterdir())
    may_be_bare = value is None and action.nargs in ("*", "?")
    assert may_be_bare or (status in (1, 2) and said)
