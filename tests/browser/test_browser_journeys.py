"""Three journeys of a learner in JupyterLab: a first lesson, the second day without a kernel, the keyboard alone."""

import io
import random

import nbformat
import pytest
from axe import SETTLED, findings, in_theme, whole
from labpage import ACTIVE, CELLS, END, KERNEL, REPLY, SAVE, TEXT, open_lesson, run_all

from course.tools import _notebooks

# Everything of the course that can be clicked or moved, small: each kind of question, a figure of each kind.
SCRATCH = """
from helpers import plots
from course.show import vega, widgets
from course.checks.core import Exercise, NotYet, Question, call
guess = widgets.predict("90.a", "After x.to(device), x is on …", ["the GPU", "the CPU"])
---
guess.reveal("the CPU", because="It returns a copy.")
---
times = widgets.predict("90.b", "How many times as long?", unit="times", low=1, high=1000)
---
times.reveal(50.0)
---
def check(answer):
    if call(answer) != 4:
        raise NotYet("expected 4, got something else.")
    return "that is 4."
def four():
    return 4
ex = Exercise("90.four", "Four", check, ("a", "b", "c"), four, "because", unlocked="You can count.", tool="four")
ex.check(lambda: 5)
---
ex.check(four)
---
widgets.quiz([Question("90.q", "Which waits?", {"y.item()": "It needs the number.", "y + 1": "It is queued."}, 0)])
---
draw = lambda n: (plots.bars({"this CPU": n}, f"{n} seconds", "s"), f"One bar of {n} seconds.")
widgets.explore(draw, n=widgets.slider("seconds", (1, 2, 3), 1))
---
spec = {"data": {"values": [{"t": 1}]}, "mark": "bar", "encoding": {"x": {"field": "t", "type": "quantitative"}}}
vega.show(spec, plots.bars({"t": 1}, "t", "s"), "One bar as long as one second.")
"""
# The pictures in the outputs whose words a screen reader would not say, or whose pixels are too few for a good screen.
POOR = """() => [...document.querySelectorAll('.jp-OutputArea-output img')].filter(image => image.clientWidth &&
    (image.alt.split(' ').length < 4 || image.naturalWidth < 1.9 * image.clientWidth)).map(image => image.alt)"""
FOCUS = """() => {
    const part = document.activeElement, style = getComputedStyle(part);
    return {in: !!part.closest('.course-live'), kind: part.type || part.className, name: part.name || '',
            ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
            text: part.closest('.course-live')?.innerText || ''};
}"""


@pytest.fixture
def scratch(address, page, root):
    """Open a notebook with one of each kind of question and figure, none answered before; give its page."""
    for kept in root.rglob("progress.json"):
        kept.unlink()
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in SCRATCH.split("---")]
    path = root / "notebooks" / "scratch.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    open_lesson(page, address, path)
    run_all(page)
    page.locator(".course-live").nth(4).wait_for()
    yield page
    page.evaluate(END)


def panel(page, words):
    """Return the panel that says `words`, once it is to be seen."""
    found = page.locator(f".course-panel:visible:has-text('{words}')").first
    found.wait_for()
    return found


def test_the_first_lesson_runs_answers_and_passes_the_rules_of_accessibility(page, address):
    [path] = _notebooks.find(["00"])
    open_lesson(page, address, path)
    run_all(page)
    choice = page.locator(".course-goes-on input[type=radio]").nth(1)
    choice.click()
    page.wait_for_function("() => document.querySelector('.course-panel:not(.course-still *)')")
    page.evaluate(REPLY)
    assert page.locator(".jupyter-widgets:has-text('Error displaying widget')").count() == 0
    assert page.evaluate(POOR) == []
    found = findings(page)
    with in_theme(page, "JupyterLab Dark"):
        found += [f"dark, {each}" for each in findings(page, ["color-contrast"])]
    assert not found, "\n".join(found)
    page.evaluate(END)


def test_the_second_day_shows_what_was_answered_without_a_kernel(scratch, address, root):
    page = scratch
    page.locator(".course-goes-on input[type=radio]").nth(1).click()
    panel(page, "Right!")
    page.locator(".course-live:has-text('Which waits') input[type=radio]").nth(1).click()
    panel(page, "Not quite")
    page.locator("button:has-text('Keep it')").click()
    page.wait_for_function(
        "() => document.body.innerText.includes('Kept: four is in my_gpu_tools.py')"
    )
    assert "def four" in (root / "notebooks" / "my_gpu_tools.py").read_text()
    page.wait_for_timeout(1000)  # what was chosen reaches the saved words
    page.evaluate(SAVE)
    page.evaluate(END)
    open_lesson(page, address, root / "notebooks" / "scratch.ipynb")
    page.wait_for_function(KERNEL)
    page.wait_for_timeout(3000)  # JupyterLab looks for the widgets in the new kernel
    text = page.evaluate(TEXT)
    for words in (
        "Your guess: the CPU",
        "You answered “y + 1”",
        "Correct!",
        "You can count",
        "Not yet",
    ):
        assert words in text
    assert "Error displaying widget" not in text and page.evaluate(POOR) == []
    done = page.locator(".course-done")
    count = "1 of 2 guessed, 1 of 2 solved"
    assert done.inner_text() == f"New session: run all above {count}"
    assert done.evaluate("part => part.scrollWidth <= part.clientWidth"), "nothing is cut off"
    page.evaluate(RUN_ONE, 5)  # an exercise, made in the cell above, which this kernel has not run
    page.evaluate(REPLY)
    page.wait_for_timeout(1000)
    assert done.inner_text() == f"{count}. Ctrl+Enter runs a cell and stays in it", (
        "what is guessed stays, and the way on is gone"
    )
    chart = page.locator("[role=graphics-document][aria-label='One bar as long as one second.']")
    assert chart.count() == 1, "the chart is alive and says what it shows"


def test_after_a_restart_what_was_said_stays_without_broken_controls(scratch):
    """Broken chains stood on each button, and the guess was pushed aside."""
    page = scratch
    page.locator(".course-goes-on input[type=radio]").nth(1).click()
    panel(page, "Right!")
    restart = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    page.evaluate(restart)
    page.locator(".course-still:visible:has-text('Your guess: the CPU')").wait_for()
    assert page.locator(".course-live:visible").count() == 0


def test_everything_is_reached_and_used_with_the_keyboard_alone(scratch):
    page = scratch
    page.locator(".course-goes-on input[type=radio]").nth(1).click()
    cell = page.evaluate(ACTIVE)
    page.keyboard.press("ArrowUp")
    assert page.evaluate(ACTIVE) == cell, "after a click, too, the keyboard stays in the question"
    page.locator(".course-goes-on input[type=radio]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    chosen = "() => [...document.querySelectorAll('.course-goes-on input[type=radio]')].map(r => r.checked)"
    assert page.evaluate(chosen) == [False, True], "arrows go round inside the question"
    assert page.evaluate(ACTIVE) == cell, "the notebook's selection stays"
    page.locator(".course-goes-on input:checked:disabled").wait_for()  # no stop any more
    page.locator(".course-live:has-text('Which waits') input[type=radio]").first.focus()
    stops, said = [], ""
    for _ in range(60):
        now = page.evaluate(FOCUS)
        if now["in"] and now["name"] and (now["kind"], now["name"]) in stops:
            break  # once round
        if now["in"]:
            assert now["ring"], now
            stops.append((now["kind"], now["name"]))
            key = {"submit": "Enter", "radio": "Space"}.get(now["kind"], "ArrowRight")
            page.keyboard.press(key)
            page.evaluate(REPLY)
            page.wait_for_timeout(300)
            said += page.evaluate(TEXT)
        page.keyboard.press("Tab")
    kinds = [kind for kind, _ in stops]
    assert kinds.count("radio") == 1, "one stop for the quiz, none for a guess that is locked"
    assert kinds.count("submit") == 4 and len([k for k in kinds if "noUi" in k]) == 2, stops
    for words in (
        "Hint 1 of 3",
        "four is in my_gpu_tools.py",
        "You answered “y.item()”",
        "One bar of 2",
        "too low",
    ):
        assert words in said, words
    found = findings(page)
    with in_theme(page, "JupyterLab Dark"):
        found += [f"dark, {each}" for each in findings(page, ["color-contrast"])]
    assert not found, "\n".join(found)


EDGES = """() => {
    const boxes = (parts, inset) => [...document.querySelectorAll(parts)].map(part => part.getBoundingClientRect())
        .filter(box => box.width > 5 && box.height > 5).map(box => [box.left + inset, box.width].map(Math.round));
    return [...boxes('.jp-Notebook :is(.jp-InputArea-editor, .course-panel, .course-live.course-card)', 0),
            ...boxes('.jp-Notebook :is(.course-figure img, .vega-embed svg.marks)', 16)];
}"""


def test_there_is_one_left_edge_two_widths_and_no_white_card_in_the_dark(scratch):
    """Text, panels, charts and figures began at three places, in seven widths; a dark page dazzled with white cards."""
    image = pytest.importorskip("PIL.Image")
    page = scratch
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.wait_for_timeout(500)
    boxes = page.evaluate(EDGES)
    assert len({left for left, _ in boxes}) == 1 and {wide for _, wide in boxes} == {720, 880}, (
        boxes
    )
    with in_theme(page, "JupyterLab Dark"), whole(page):
        page.wait_for_timeout(1000)
        shot = image.open(io.BytesIO(page.locator(".jp-Notebook").screenshot())).convert("L")
    blocks = shot.reduce(24).getextrema()
    assert blocks[1] < 160, "a place of 24 × 24 pixels that is nearly white"


@pytest.fixture
def second_day(address, page):
    """Open page 02 with a kernel that has run nothing; give its page."""
    open_lesson(page, address, _notebooks.find(["02"])[0])
    page.wait_for_function(SETTLED)
    yield page
    page.evaluate(END)


def test_a_kernel_that_is_gone_says_how_to_go_on_from_any_cell(second_day):
    """On the second day each cell raised a bare NameError, with the first cell far above."""
    page = second_day
    cells = page.evaluate(CELLS)
    code = [i for i, cell in enumerate(cells) if cell["cell_type"] == "code"]
    missing = 0
    for place in random.Random(0).sample(code[2:], 5):
        page.evaluate(RUN_ONE, place)
        page.evaluate(REPLY)
        outputs = page.evaluate(CELLS)[place]["outputs"]
        if any(output.get("ename") == "NameError" for output in outputs):
            missing += 1
            told = outputs[-1].get("data", {}).get("text/plain", "")
            assert "Run › Run All Above Selected Cell" in told, cells[place]["source"]
            trace = next(o["traceback"] for o in outputs if o.get("ename"))
            assert "reveal" not in "".join(trace), "a folded cell's code names the answer"
    assert missing >= 2


@pytest.mark.parametrize("known", [True, False], ids=["the same browser", "another one"])
def test_a_page_opens_at_the_cell_where_one_was(second_day, address, known):
    """Whoever came back had to find their place again, from the top."""
    page = second_day
    place = len(page.evaluate(CELLS)) // 2
    page.evaluate("i => {window.jupyterapp.shell.currentWidget.content.activeCellIndex = i}", place)
    if not known:
        place = [i for i, cell in enumerate(page.evaluate(CELLS)) if cell["cell_type"] == "code"][3]
        page.evaluate(RUN_ONE, place)
        page.evaluate(SAVE)
        page.evaluate("() => localStorage.clear()")
    open_lesson(page, address, _notebooks.find(["02"])[0])
    page.wait_for_function(f"({ACTIVE})() === {place}")
    assert page.locator(".jp-Cell.jp-mod-active").bounding_box()["y"] < 768


RUN_ONE = """async place => {
    const app = window.jupyterapp, panel = app.shell.currentWidget;
    await panel.sessionContext.ready;
    panel.content.activeCellIndex = place;
    await app.commands.execute('notebook:run-cell');
}"""
