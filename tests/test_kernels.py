"""Lessons 11, 12 and page 93: their pictures and scores are true to the compiled code, and they get by without compilers."""

import inspect
import json
import os
import re
import subprocess
import sys

import matplotlib.colors
import pytest
import torch
from strict import run_strict

from course.checks import compilers as missing
from course.checks import core, puzzle
from course.checks.core import NOT_ATTEMPTED
from course.checks.slips import edited
from course.lesson11 import exercises as eleven
from course.lesson11 import figures, inductor, race
from course.lesson11.kernels import (
    add_kernel,
    attend,
    attention_kernel,
    matmul_kernel,
    softmax_kernel,
)
from course.lesson11.traffic import Trace, microseconds, trace, traffic
from course.lesson12 import exercises as twelve
from course.lesson12 import figures as inside
from course.lesson93 import exercises as puzzles
from course.lesson93 import figures as pictures
from course.lesson93 import touched
from course.tools import ROOT, _notebooks
from practice_gpus import kernels
from practice_gpus.kernels.errors import Line
from practice_gpus.kernels.touches import Touch

needs_compilers = pytest.mark.skipif(bool(kernels.missing("cuda")), reason="no compilers here")


@needs_compilers
def test_each_address_is_noted_with_its_program():
    """The pictures and the bytes of the lesson come from here."""
    x, out = torch.arange(10.0), torch.zeros(10)
    seen = trace(add_kernel, 3, x, x.clone(), out, 10, BLOCK=4)
    written = [(each.block[0], each.places) for each in seen.accesses if each.kind == "store"]
    assert written == [(0, [0, 1, 2, 3]), (1, [4, 5, 6, 7]), (2, [8, 9])]
    assert (seen.bytes("load"), seen.bytes("load", "x"), seen.bytes("store")) == (80, 40, 40)
    assert [each.off for each in seen.accesses if each.kind == "store"] == [[], [], [10, 11]]
    assert torch.equal(seen.tensors["out"], 2 * x) and len(seen.programs()) == 3
    assert torch.equal(out, torch.zeros(10)), "a trace works on copies"


@needs_compilers
def test_the_kernels_of_lesson_11_are_right_for_odd_sizes():
    """The page shows them as examples to learn from."""
    torch.manual_seed(0)
    x, a, b = torch.randn(3, 10), torch.randn(50, 50), torch.randn(50, 50)
    q, k, v = (torch.randn(50, 32).half() for _ in range(3))
    shares = trace(softmax_kernel, 3, x, torch.empty(3, 10), 10, BLOCK=16)
    torch.testing.assert_close(shares.tensors["out"], x.softmax(1))
    left, right = a.half(), b.half()
    product = trace(matmul_kernel, (4, 4), left, right, torch.empty(50, 50), 50, TILE=16)
    torch.testing.assert_close(product.tensors["c"], left.float() @ right.float())
    arguments = (q, k, v, torch.empty(50, 32), 50, 32**-0.5)
    attended = trace(attention_kernel, 2, *arguments, num_warps=4, D=32, BLOCK=32)
    whole = (each.float()[None] for each in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(*whole)[0]
    torch.testing.assert_close(attended.tensors["out"], expected, rtol=5e-3, atol=5e-3)


PROBE = """
import torch, triton, triton.language as tl
from course.lesson11.exercises import attention, softmax
print([each.outcome(each.reference).status for each in (softmax, attention)])
"""


@needs_compilers
def test_a_compilation_broken_off_leaves_no_answer_for_the_next_kernel(monkeypatch):
    """Else one interrupt, or a check's time limit, would make every later kernel of the session another one's code."""
    with monkeypatch.context() as patch:
        patch.setattr("select.select", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fresh = f"{twelve.TRANSPOSE}\n// no other test has compiled this one"
            kernels.compile(fresh, "transpose", "A100", threads=128)
    assert puzzles.outer.outcome(puzzles.outer.reference).status == core.CORRECT


@needs_compilers
@pytest.mark.slow
@pytest.mark.parametrize("interpret", ["0", "1"], ids=["imported to compile", "to interpret"])
def test_checks_work_in_both_modes_of_triton(interpret):
    """On a GPU the lesson's kernels are compiled, elsewhere interpreted; the checks run their code either way."""
    child = {**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=child, cwd=ROOT, text=True, capture_output=True
    )
    assert done.stdout == "['correct', 'correct']\n", done.stderr


@needs_compilers
def test_par_is_what_the_book_says():
    """Par is counted when it is asked for; these follow from the problem alone."""
    assert twelve.transpose.par() == 8.0, "4 sectors in and 4 out, no conflict"
    assert twelve.matmul.par() == 0.25, "8 sectors for 32 multiply-adds of a warp"
    assert puzzles.online.par() == 12.0, "in twice, out once"


@needs_compilers
def test_spills_of_the_large_tile_cost_more_than_its_reuse_saves():
    """Lesson 12 shows a table of tiles in which the largest one loses, by instructions that its loop really has."""
    page = json.loads(_notebooks.find(["12b"])[0].read_text(encoding="utf-8"))
    cells = ("".join(cell["source"]) for cell in page["cells"])
    source = next(text for text in cells if text.startswith("register_tiled")).split('"""')[1]
    small, large = (twelve.per_ffma(source, size)[:2] for size in (8, 16))
    assert small == (16 / 64, 0) and large[0] == 32 / 256
    assert sum(large) > sum(small)


@needs_compilers
def test_under_par_is_celebrated_and_over_par_is_not():
    at_par = puzzles.convolve.outcome(puzzles.CONVOLVE).message
    assert "at par" in at_par and "To share: ⛳ convolution," in at_par
    assert "UNDER PAR" in puzzle.verdict("x", 3.0, 4.0, "bytes") and "at par" in puzzle.verdict(
        "x", 4, 4.0, "b"
    )
    assert "UNDER" not in puzzle.verdict("x", 5.0, 4.0, "bytes")


TILED = """
extern "C" __global__ void tiled(const float* x, float* out, int n) {
  __shared__ float tile[32][32];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = x[r * n + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  out[r * n + c] = tile[threadIdx.x][threadIdx.y];
}
"""


@needs_compilers
def test_padding_by_one_word_removes_the_conflict():
    """The explorer of lesson 12 says which padding helps; it runs the code for each."""
    draw = inside.padding(TILED)
    assert [draw(words)[1].split("counted ")[1] for words in (0, 1, 2)] == [
        "a 32-way bank conflict.",
        "no conflict.",
        "a 2-way bank conflict.",
    ]


def test_traffic_counts_what_operations_read_and_write():
    rows = traffic(lambda x: (x + 1).view(-1).sum(), torch.ones(2, 3))
    assert rows == [("add", 24, 24), ("sum", 24, 4)]


def test_a_kernel_takes_the_longer_of_its_bytes_and_its_flops():
    """The forecasts of lesson 11: 75 % of 2,039 GB/s, 80 % of 312 TFLOP/s."""
    assert microseconds("A100 80", 1_529_250_000) == pytest.approx(1000)
    assert microseconds("A100 80", 1_529_250_000, flops=int(249.6e9)) == pytest.approx(1000)
    assert microseconds("A100 80", 1000, flops=int(499.2e9)) == pytest.approx(2000)


ATTENTION = (attend, *3 * [(200, 64)])


@needs_compilers
@pytest.mark.slow
def test_torch_compile_writes_one_kernel_between_the_products_of_attention():
    """The page asks for a guess, and reveals this."""
    names, sources = inductor.written_for_cuda(ATTENTION)["attend"]
    product, softmax, other = names
    assert product == other == "extern_kernels.mm" and [softmax] == list(sources)
    assert "tl.load" in sources[softmax] and "tl.store" in sources[softmax]


def test_where_inductor_cannot_be_asked_a_recorded_kernel_stands_in_and_says_so(
    monkeypatch, capsys
):
    def refuse(*args, **kwargs):
        raise subprocess.CalledProcessError(1, "python")

    monkeypatch.setattr(inductor.subprocess, "run", refuse)
    names, sources = inductor.written_for_cuda(ATTENTION)["attend"]
    assert len(names) == 3 and "tl.store" in sources[names[1]]
    assert "this is what PyTorch 2.15 wrote" in capsys.readouterr().out


# --- races

LAUNCHES = {
    "softmax": lambda x: x.softmax(1),
    "product": lambda a, b, tile: a.float() @ b.float(),
    "attention": lambda q, k, v, tile: attend(q, k, v),
}
RACERS = {"softmax": softmax_kernel, "product": matmul_kernel, "attention": attention_kernel}


@pytest.fixture
def raced(monkeypatch):
    """Races whose kernels are stand-ins of PyTorch; returns [(rows, title, caption)] of those that were drawn."""
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(race.figures, "race", lambda *shown: seen.append(shown))
    monkeypatch.setattr(race, "LAUNCHES", {what: lambda launch: launch for what in LAUNCHES})
    monkeypatch.setattr(race, "COUNTS", dict.fromkeys(LAUNCHES, _count))
    return seen


def _count(kernel, tile=16):
    """Return bytes (loaded, stored): together 1 GB with tiles of 16, half of it with each doubling."""
    return 14_400_000_000 // tile, 1_600_000_000 // tile


@pytest.mark.parametrize("what", list(LAUNCHES))
def test_without_a_gpu_a_race_forecasts_and_runs_nothing_large(what, raced):
    sizes = []

    def yours(*inputs):
        sizes.append(inputs[0].numel())
        return LAUNCHES[what](*inputs)

    eleven.race(what, yours)
    [(rows, _, caption)] = raced
    assert max(sizes) < 20_000 and "forecasts: " in caption and "no GPU here" in caption
    assert {row[-1] for row in rows} == {""}


@needs_compilers
def test_races_count_what_the_learners_kernel_loads_on_a_small_input():
    """With tiles of 64: 64 times all of a and b, and c once; 128 times all of k and v, q and the result once."""
    product = race.COUNTS["product"](RACERS["product"], 64)
    assert product == (64 * 2 * 4096**2 * 2, 4 * 4096**2)
    one = 8192 * 64 * 2  # bytes of q, of k, of v or of the result
    attention = race.COUNTS["attention"](RACERS["attention"], 64)
    assert attention == (128 * 2 * one + one, one)
    twice = edited(softmax_kernel, ("numerator = ", TWICE))
    assert race.COUNTS["softmax"](softmax_kernel) == (4 * 2048 * 4096,) * 2
    assert race.COUNTS["softmax"](twice) == (2 * 4 * 2048 * 4096, 4 * 2048 * 4096)


TWICE = "values += 0 * tl.load(x + row * columns + offsets, mask=mask, other=0.0, volatile=True)\n    numerator = "


def test_the_picture_of_a_race_says_both_counts_and_the_range_between(raced, monkeypatch):
    eleven.race("attention", LAUNCHES["attention"])
    monkeypatch.undo()
    said = []
    monkeypatch.setattr(figures.figures, "show", lambda figure, alt, caption: said.append(alt))
    figures.race(*raced[0])
    # tiles of 16: the loads, 900 MB, at the L2 cache's 7.2 TB/s, longer than arithmetic (73 µs)
    assert "1,000 MB loaded and stored, 4.2 MB from memory at least, forecast 125 to 654" in said[0]
    # tiles of 64: 128 programs on 108 SMs, so some run two, as long as 216 would take: 225 MB take L2 31 µs
    assert (
        "tiles of 64: 250 MB loaded and stored, 4.2 MB from memory at least, forecast 116 to 163"
        in (said[0])
    )
    assert said[0].endswith("fused: 4.2 MB from memory at least.")  # no forecast of unknown code


def test_a_forecast_is_at_least_what_memory_the_l2_cache_and_arithmetic_take():
    """On an A100: 75% of 2,039 GB/s, 5,120 bytes per clock of 1.41 GHz, 80% of 312 TFLOP/s. Stores don't read the cache."""
    low, high = race._forecast("A100 80", (7_219_200_000, 10**9), 10**6, 10**9)
    assert (low, high) == (pytest.approx(1000), pytest.approx(8219.2 / 2.039 / 0.75))
    assert race._forecast("A100 80", (10**6, 0), 2_039_000_000, 0)[0] == pytest.approx(4000 / 3)
    assert race._forecast("A100 80", (10**6, 0), 10**6, 249.6e9)[0] == pytest.approx(1000)
    assert race._forecast("A100 80", (), 10**6, 249.6e9) == [pytest.approx(1000)]
    assert len(set(race._forecast("RTX 3090", (10**9, 0), 10**9, 0))) == 1  # no L2 speed is known


def test_on_a_gpu_a_race_measures_all_ways_and_says_which_card(monkeypatch, raced):
    """2 ms for 67 MB are 33.6 GB/s; for 137 GFLOP, 68.7 TFLOP/s."""
    pytest.importorskip("triton.testing")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA X1")
    monkeypatch.setattr("triton.testing.do_bench", lambda run, return_mode: 2.0)
    for what, rows in (("softmax", race._softmax), ("product", race._product)):
        monkeypatch.setattr(
            race, rows.__name__, lambda *given, rows=rows: rows(*given[:2], "cpu", "meta")
        )
        eleven.race(what, LAUNCHES[what])
    said = [row[-1] for rows, *_ in raced for row in rows]
    assert all(each.startswith("2,000 µs, ") for each in said) and len(said) == 7
    assert all("measured: NVIDIA X1" in caption for *_, caption in raced)
    assert sum("33.6 GB/s" in each for each in said) == 2
    assert sum("68.7 TFLOP/s" in each for each in said) == 4


def test_a_race_is_called_off_where_the_values_differ(raced):
    with pytest.raises(AssertionError):
        eleven.race("softmax", torch.exp)
    assert not raced


# --- pictures


def touch(block, places, off):
    return Touch((block, 0, 0), "load", "x", places, off, Line())


def test_places_that_are_masked_off_stand_beside_their_programs_row():
    """Places 2 and 3 of row 0 have the addresses of row 1; drawn there, or not at all, softmax's mask can't be seen."""
    accesses = [touch(0, [0, 1], [2, 3]), touch(1, [2, 3], [4, 5])]
    figure, _ = figures.touched_figure(Trace({"x": torch.zeros(2, 2)}, accesses), "t")
    cells = [(*text.get_position(), text.get_text()) for text in figure.axes[0].texts]
    dashes = [(x, y) for x, y, text in cells if text == "–"]
    assert dashes == [(2.5, 0.5), (3.5, 0.5), (2.5, 1.5), (3.5, 1.5)]


def test_the_picture_of_online_softmax_ends_at_the_softmax_of_the_whole_row():
    scores, values = [1, 3, 2, 5, 4, 0], [4, 2, 6, 1, 3, 5]
    figure, said = figures.online(scores, values)(2)
    weights = (torch.tensor(scores) - 5.0).exp()
    total = (weights * torch.tensor(values)).sum()
    assert said.endswith(f"= {weights.sum():.3f}; acc: 1.643 × 1.000 + 1.137 = {total:.3f}.")
    _, said = figures.online(scores, values)(1)
    assert "5 is larger than 3" in said and "row_sum: 1.135 × 0.135 + 1.050 = 1.203" in said


@needs_compilers
def test_one_kernel_touches_what_the_first_picture_counts():
    """q, k, v and the result in float16, each byte once: nothing else is read or written."""
    q, k, v, out = torch.randn(4, 100, 32).half()
    arguments = (q, k, v, out, 100, 32**-0.5)
    seen = trace(attention_kernel, 4, *arguments, num_warps=4, D=32, BLOCK=32)
    assert seen.result.once() == 4 * 2 * 100 * 32


@needs_compilers
def test_a_kernel_that_still_has_its_dots_is_not_attempted():
    @puzzle.triton.jit
    def softmax_kernel(x, out, columns, BLOCK: puzzle.tl.constexpr):
        print(x + columns)
        ...

    in_c = 'extern "C" __global__ void matmul(int n) {\n  int i = threadIdx.x;\n  ...\n}'
    for exercise, answer in ((eleven.softmax, softmax_kernel), (twelve.matmul, in_c)):
        outcome = exercise.outcome(answer)
        assert outcome.status == NOT_ATTEMPTED and "three dots" in outcome.message


@needs_compilers
def test_the_model_answer_stands_in_until_the_learners_kernel_passes(capsys, monkeypatch):
    """The rest of the lesson traces it, and launches it."""
    monkeypatch.setattr(core, "_correct", {})
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert eleven.softmax.yours().fn.__name__ == "softmax_kernel"
    assert "stands in until yours passes" in capsys.readouterr().out
    assert "__global__" in twelve.transpose.yours() and "transpose: the" in capsys.readouterr().out
    core._correct["11.softmax"] = "mine"
    assert eleven.softmax.yours() == "mine" and not capsys.readouterr().out


# --- first kernels: what page 93 calls the obvious way

WHOLE_TILE = (
    "rows[:, None] + 0 * columns[None, :], mask=(rows[:, None] < n) & (columns[None, :] < n)"
)
MAXIMUM_FIRST = """largest = tl.maximum(largest, tl.max(v, axis=0))
    for first in range(0, columns, BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        v = tl.load(x + start + offsets, mask=offsets < columns, other=-float("inf"))
        total += tl.sum(tl.exp(v - largest), axis=0)
"""
FIRST = {
    "outer": (
        ("x + rows, mask=rows < n", f"x + {WHOLE_TILE}"),
        ("y + columns, mask=columns < n", f"y + 0 * {WHOLE_TILE.replace('+ 0 *', '+')}"),
        ("a[:, None] + b[None, :]", "a + b"),
    ),
    "double": (("eighths * 8", "columns"),),
    "histogram": (
        ("counts = tl.histogram(values, BINS, mask=offsets < n)\n", "\n"),
        ("out + tl.arange(0, BINS), counts", "out + values, 1, mask=offsets < n"),
    ),
    "quantized": (
        (
            "x + offsets, mask=offsets < columns",
            "x + offsets[None, :] + 0 * row[:, None], mask=offsets[None, :] < columns",
        ),
        ("v[None, :]", "v"),
    ),
    "attention": (
        ("range(0, (tl.program_id(0) + 1) * BLOCK, BLOCK)", "range(0, n, BLOCK)"),
        ("others.T <= rows", "(others.T < n) & (others.T <= rows)"),
    ),
}


def first_score(name):
    """Return the score of a kernel that works and takes the obvious way."""
    if name == "product":
        return puzzles._product_score({"TILE": 16, "num_warps": 4})[0]
    each = getattr(puzzles, name)
    if name == "convolve":
        return each.scored(pictures.OBVIOUS)
    if name == "online":
        source = inspect.getsource(each.reference)
        start, end = (
            source.index("new = tl.maximum"),
            source.index("    for first", source.index("largest = new")),
        )
        return each.scored(edited(each.reference, (source[start:end], MAXIMUM_FIRST)))
    return each.scored(edited(each.reference, [text for pair in FIRST[name] for text in pair]))


@needs_compilers
@pytest.mark.slow
@pytest.mark.parametrize("name", [*FIRST, "convolve", "online", "product"])
def test_a_puzzle_names_the_score_of_the_obvious_way_and_par(name):
    """They pass the check, too, so that a learner's first kernel may be one of them."""
    cells = _notebooks.read(ROOT / "notebooks/93_kernel_puzzles.ipynb").cells
    told = [cell.source for cell in cells]
    check = next(place for place, text in enumerate(told) if f"ex.{name}.check(" in text)
    said = re.search(r"obvious way scores ([\d.]+), par is ([\d.]+)\.", told[check - 1])
    found = first_score(name), getattr(puzzles, name).par()
    assert found == pytest.approx(tuple(map(float, said.groups())), rel=0.02)


def test_the_scorecard_adds_up_what_passed(capsys, monkeypatch):
    monkeypatch.setattr(puzzle, "SCORES", {})
    puzzles.scorecard()
    assert "No kernel has passed yet" in capsys.readouterr().out
    for title, mine in (("histogram", 15.0), ("histogram", 20.0), ("convolution", 9.69)):
        puzzle.verdict(title, mine, 9.69 if title == "convolution" else 30.0, "u")
    puzzles.scorecard()
    told = capsys.readouterr().out
    assert "50% under par" in told
    assert "2 of 12 passed: 1 under par, 1 at par, 0 over par" in told


@pytest.mark.parametrize("name", ["guard", "convolve", "attention"])
def test_the_picture_of_ones_own_kernel_shows_each_element_that_it_touched(name, monkeypatch):
    """Wide loads of half numbers too: else a right kernel seems to skip most of its input."""
    told = []
    monkeypatch.setattr(touched.figures, "show", lambda figure, alt: told.append(alt))
    each = getattr(puzzles, name)
    answer = each.reference
    touched.touched(each, answer if isinstance(answer, str) else puzzle.as_kernel(answer))
    assert "out stored once" in told[0] and "never" not in told[0]


def test_the_picture_says_what_was_left_unwritten(monkeypatch):
    told = []
    monkeypatch.setattr(touched.figures, "show", lambda figure, alt: told.append(alt))
    half = puzzles.convolve.reference.replace("128 + t < n) out", "128 + t < n / 2) out")
    assert half != puzzles.convolve.reference
    touched.touched(puzzles.convolve, half)
    assert "out 50 never stored" in told[0]


def test_each_puzzles_picture_marks_what_a_result_needs(monkeypatch):
    """A picture that marks other cells sends the learner the wrong way."""
    marks = []
    monkeypatch.setattr(pictures, "_draw", lambda axes, left, cells, color: marks.append(cells))
    monkeypatch.setattr(pictures, "show_figure", lambda figure, alt: None)
    pictures.task(puzzles.convolve)
    x, w, out = (cells.nonzero()[:, 1].tolist() for cells in marks)
    assert (x, w, out) == ([3, 4, 5, 6, 7], [0, 1, 2, 3, 4], [5])


PRODUCT = """
extern "C" __global__ void product(const float* a, const float* b, float* out, int n) {
  int FIRST = blockIdx.x * 32 + threadIdx.x, SECOND = blockIdx.y * 32 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
  out[row * n + column] = sum;
}
"""


@needs_compilers
def test_the_picture_of_who_loads_what_has_as_many_sectors_as_its_kernels_touch():
    """33 and 5 sectors stand in a drawing; counted from code, they must be the same."""
    counted = {}
    for way, (first, second) in zip(
        inside.WAYS, (("row", "column"), ("column", "row")), strict=True
    ):
        counted[way] = inside.multiplied(PRODUCT.replace("FIRST", first).replace("SECOND", second))
    numbers = [inside.sectors_per_ffma(*each) for each in counted.values()]
    figure, told = inside.who_loads(counted)
    amber = matplotlib.colors.to_rgba(inside.MOVED)
    drawn = [cell.get_x() < 77 for cell in figure.axes[0].patches if cell.get_facecolor() == amber]
    assert [drawn.count(True), drawn.count(False)] == numbers == [33, 5]
    assert "33 sectors, 32 of a, 1 of b" in told and "5 sectors, 1 of a, 4 of b" in told


# --- without compilers


def test_cells_of_the_page_and_cells_that_compile_are_replaced_and_others_run(tmp_path):
    file = tmp_path / "x.ipynb"
    file.write_text(json.dumps({"cells": [{"source": ["print(a)\n", "a"]}]}))
    runs = {
        "print(a)\na": False,
        "print(a + 1)": True,
        "import triton": False,
        "ex.matmul.check(y)": False,
        "ex.matmul.hint()": True,
        "quiz(ex.QUIZ)": True,
        "half a cell (": True,
    }
    transform = missing.WithoutCompiler(str(file))
    assert {source: transform([source]) == [source] for source in runs} == runs


def test_a_replaced_cell_shows_what_is_stored(tmp_path, capsys):
    cell = {"source": ["a = 1\n", "b"], "outputs": [{"output_type": "stream", "text": ["one\n"]}]}
    file = tmp_path / "11_write_a_kernel.ipynb"
    file.write_text(json.dumps({"cells": [cell]}))
    missing.show_stored("a = 1\nb\n", str(file))
    assert capsys.readouterr().out == "one\n"
    missing.show_stored("a = 2\nb\n", str(file))
    assert capsys.readouterr().out == f"{missing.CHANGED}\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", ["11", "12", "93"])
def test_a_lesson_runs_to_its_end_without_compilers(number, tmp_path, monkeypatch):
    """What a learner on macOS or Windows meets: the outputs of the page, each figure drawn or stored."""
    hide = "import importlib.util as u\nold = u.find_spec\n"
    hide += "u.find_spec = lambda name, *a: None if name == 'triton' else old(name, *a)\n"
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules['triton'] = None\n{hide}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status, text, _ = run_strict(_notebooks.find([number])[0])
    assert status == 0, text
    code = "from course.checks.compilers import *; look_for_compilers('x.ipynb', 'cuda')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    said = missing.MISSING.format(what="Triton", package="triton")
    assert done.stdout == f"{said}\n", done.stderr
