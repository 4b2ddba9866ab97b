"""Lesson 11's tracer tells the truth about kernels, harms nothing, and the lesson gets by without Triton."""

import json
import os
import subprocess
import sys

import pytest
import torch
from strict import run_strict

from helpers import plots
from lessons.lesson11 import figures, fusion, missing
from lessons.lesson11.tracer import is_there, tl, trace, triton
from tools import ROOT, _notebooks

needs_triton = pytest.mark.skipif(not is_there(), reason="Triton is not installed")
LESSON = _notebooks.find(["11"])[0]


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    a = tl.load(x + places, mask=inside)
    b = tl.load(y + places, mask=inside)
    tl.store(out + places, a + b, mask=inside)


@triton.jit
def shifted_kernel(x, out, far, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(out + places - 2, tl.load(x + far + places))


@triton.jit
def total_kernel(x, out, BLOCK: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(out, tl.sum(values, axis=0))


@needs_triton
def test_each_address_is_noted_with_its_program():
    """The pictures and the bytes of the lesson come from here."""
    x, out = torch.arange(10.0), torch.zeros(10)
    seen = trace(add_kernel, (3,), x, x, out, 10, BLOCK=4)
    written = [(a.program[0], a.places) for a in seen.accesses if a.kind == "write"]
    assert written == [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [8, 9])]
    assert (seen.bytes("read"), seen.bytes("read", "x"), seen.bytes("write")) == (80, 40, 40)
    assert seen.outside() == [] and len(seen.programs()) == 3
    assert [a.masked for a in seen.accesses if a.kind == "write"] == [[], [], [10, 11]]
    assert torch.equal(seen.tensors["out"], 2 * x)
    assert torch.equal(out, torch.zeros(10)), "a trace works on copies"


@needs_triton
def test_what_lies_beside_a_tensor_is_noted_and_not_harmed():
    around = torch.zeros(12)
    out = around[4:8]
    seen = trace(shifted_kernel, (1,), torch.ones(4), out, 0, BLOCK=4)
    assert [(a.kind, a.name, a.outside) for a in seen.outside()] == [("write", "out", [-2, -1])]
    assert torch.equal(around, torch.zeros(12))


@needs_triton
def test_an_address_far_away_ends_no_process():
    """A learner who multiplies too often would lose the kernel of the notebook."""
    seen = trace(shifted_kernel, (1,), torch.ones(4), torch.zeros(4), 10**9, BLOCK=4)
    assert any("far away" in access.outside for access in seen.outside())


@needs_triton
def test_atomic_additions_are_noted_too():
    seen = trace(total_kernel, (2,), torch.ones(8), torch.zeros(1), BLOCK=4)
    assert seen.tensors["out"].item() == 8
    assert (seen.bytes("read", "out"), seen.bytes("write", "out")) == (8, 8)


@needs_triton
def test_strides_stay():
    x = torch.arange(12.0).view(3, 4).T
    seen = trace(shifted_kernel, (1,), x, torch.zeros(6), 1, BLOCK=4)
    assert seen.tensors["x"].stride() == x.stride() and torch.equal(seen.tensors["x"], x)


PROBE = """
import torch, triton, triton.language as tl
from lessons.lesson11.exercises import gated, mirror, row_sums
print([each.outcome(each.reference).status for each in (mirror, gated, row_sums)])
"""


@needs_triton
@pytest.mark.parametrize("interpret", ["0", "1"], ids=["imported to compile", "to interpret"])
def test_checks_work_in_both_modes_of_triton(interpret):
    """On a GPU the lesson's kernels are compiled, and the checks still look at their addresses."""
    child = {**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=child, cwd=ROOT, text=True, capture_output=True
    )
    assert done.stdout == "['correct', 'correct', 'correct']\n", done.stderr


@needs_triton
def test_a_changed_interpreter_is_named(monkeypatch):
    from triton.runtime import interpreter

    monkeypatch.delattr(interpreter.InterpreterBuilder, "create_masked_load")
    with pytest.raises(NotImplementedError, match="another interpreter"):
        trace(add_kernel, (1,), *torch.ones(3, 4), 4, BLOCK=4)


def test_traffic_counts_what_operations_read_and_write():
    rows = fusion.traffic(lambda x: (x + 1).view(-1).sum(), torch.ones(2, 3))
    assert rows == [("add", 24, 24), ("sum", 24, 4)]


def test_where_nothing_compiles_the_result_is_there_with_a_reason(monkeypatch):
    def refuse(*args, **kwargs):
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(torch, "compile", refuse)
    names, result = fusion.compiled_kernels(torch.exp, torch.zeros(2))
    assert names == ["(nothing compiled here: No working C++ compiler found)"]
    assert result.tolist() == [1, 1]


@needs_triton
def test_figures_can_be_read_from_afar():
    from matplotlib.text import Text

    seen = trace(shifted_kernel, (1,), torch.ones(4), torch.zeros(4), 0, BLOCK=4)
    figure, sentence = figures.touched_figure(seen, "t")
    plots.png(figure)
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert min(sizes) >= 8 and "writes beside out: -2, -1" in sentence


# --- without Triton


def test_cells_that_need_triton_are_replaced_and_others_are_not():
    transform = missing.WithoutTriton()
    cells = {
        "import triton\nx = triton.cdiv(3, 2)": False,
        "print(x)": False,
        "x = 1\nprint(x)": True,
        "x = triton.cdiv(3, 2) + 1": False,
        "y = 3": True,
        "x = y": True,
        "print(x)  # known again": True,
        "half a cell (": True,
    }
    assert {source: transform([source]) == [source] for source in cells} == cells


def test_a_replaced_cell_shows_what_is_stored(monkeypatch, tmp_path, capsys):
    cell = {"source": ["a = 1\n", "b"], "outputs": [{"output_type": "stream", "text": ["one\n"]}]}
    (tmp_path / "11_write_a_kernel.ipynb").write_text(json.dumps({"cells": [cell]}))
    monkeypatch.chdir(tmp_path)
    missing.show_stored("a = 1\nb\n")
    assert capsys.readouterr().out == "one\n"
    missing.show_stored("a = 2\nb\n")
    assert capsys.readouterr().out == f"{missing.CHANGED}\n"


@pytest.mark.slow
def test_the_lesson_runs_to_its_end_without_triton_and_says_so_in_one_line(tmp_path, monkeypatch):
    """What a learner on macOS or Windows meets: the outputs of the page, each figure drawn or stored."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['triton'] = None\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status, text, _ = run_strict(LESSON)
    assert status == 0, text
    said = [sys.executable, "-c", "from lessons.lesson11.missing import *; look_for_triton()"]
    done = subprocess.run(said, cwd=ROOT, text=True, capture_output=True)
    assert done.stdout == f"{missing.MISSING}\n", done.stderr
