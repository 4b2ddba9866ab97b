"""What a cell shows that was run by hand is in view, from its top, and Shift+Enter stops where a guess or a name is missing."""

import nbformat
import pytest
from labpage import END, RUN_ALL, open_lesson

ASK = "from course.checks.predictions import predict\np = predict('view', 'Which?', [f'choice {n}' for n in range(14)])"
LONG = "\n".join(f"a line {n}\n" for n in range(9))
TOP = """() => {
    const card = document.querySelector('.jp-Cell:nth-child(2) .course-live'), view = document.querySelector('.jp-WindowedPanel-outer');
    return card && card.getBoundingClientRect().top - view.getBoundingClientRect().top;
}"""
TO_THE_END = """() => {
    const code = document.querySelector('.jp-Cell:nth-child(2) .jp-InputArea'), view = document.querySelector('.jp-WindowedPanel-outer');
    view.scrollTop += code.getBoundingClientRect().bottom - view.getBoundingClientRect().bottom;
}"""
REVEALS = (
    "from helpers import plots\n"
    + ASK
    + """
p.choose('choice 1')
p.reveal('choice 1', figure=(plots.bars({'a': 1}, 'One', 's', size=(7.4, 2.6)), 'One bar.'))"""
)
CHART = """
from course.show import vega
from helpers import plots
text = {"type": "text", "text": {"expr": "'n is ' + n"}}
spec = {"data": {"values": [{}]}, "params": [vega.slider("n", 9, 1)], "mark": text}
vega.show(spec, plots.bars({"a": 1}, "One", "s"), "A number that a slider sets.")"""
VERDICT = """() => {
    const all = document.querySelectorAll('.jp-Cell:nth-child(2) .course-panel'), panel = all[all.length - 1];
    const view = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
    return panel && [panel.getBoundingClientRect().top - view.top, view.bottom - panel.getBoundingClientRect().bottom];
}"""
FILL = "words => { window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.source = words }"
SCROLL = "y => { document.querySelector('.jp-WindowedPanel-outer').scrollTop = y }"


TO_REVEAL = """async () => {
    const {commands, shell} = window.jupyterapp, notebook = shell.currentWidget.content;
    notebook.activeCellIndex = 2;
    await commands.execute('notebook:change-cell-to-code');
    notebook.widgets[2].model.sharedModel.source = "p.reveal('choice 1')";
}"""
TRAINED = "() => window.jupyterapp.shell.currentWidget.content.widgets[2].model.toJSON().outputs.length > 0"
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"


@pytest.fixture
def asking(address, page, root):
    """Open a notebook whose second cell asks, between long cells; give its page."""
    for kept in root.rglob("progress.json"):
        kept.unlink()
    path = root / "notebooks" / "view.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    new = nbformat.v4
    cells = [
        new.new_markdown_cell(LONG * 4),
        new.new_code_cell(ASK),
        new.new_markdown_cell(LONG * 4),
    ]
    nbformat.write(new.new_notebook(cells=cells, metadata=kernel), path)
    open_lesson(page, address, path)
    yield page
    page.evaluate(END)


def run_by_hand(page):
    """Press Shift+Enter in the second cell, whose code ends where the view does: the next cell is out of view."""
    page.locator(".jp-Cell:nth-child(2) .jp-InputPrompt").click()
    page.evaluate(TO_THE_END)
    page.keyboard.press("Shift+Enter")


def test_a_question_is_in_view_from_its_top_after_its_cell_was_run_by_hand(asking):
    page = asking
    run_by_hand(page)
    page.wait_for_function(TOP)
    page.wait_for_timeout(2500)
    assert 0 <= page.evaluate(TOP) < 700


def test_neither_run_all_nor_a_person_who_scrolls_is_fought(asking):
    page = asking
    page.evaluate(RUN_ALL)
    page.wait_for_function(TOP)
    page.evaluate(SCROLL, 3000)
    page.wait_for_timeout(1500)
    assert page.evaluate(TOP) < 0, "after Run All the page stays where it is"
    page.evaluate(SCROLL, 0)
    run_by_hand(page)
    page.mouse.move(600, 500)
    page.mouse.wheel(0, 1500)
    page.wait_for_timeout(2500)
    assert page.evaluate(TOP) < 0, "one has scrolled on"


@pytest.mark.parametrize("keys", ["Shift+Enter", "Control+Enter"])
def test_a_verdict_is_in_view_after_its_cell_was_run_by_hand(asking, keys):
    """It came below the fold, and newcomers thought that nothing had happened."""
    page = asking
    page.evaluate(FILL, REVEALS.replace("range(14)", "range(3)"))
    page.evaluate(TO_THE_END)
    page.locator(".jp-Cell:nth-child(2) .jp-InputPrompt").click()
    page.evaluate(TO_THE_END)
    page.keyboard.press(keys)
    page.wait_for_function(VERDICT)
    page.wait_for_timeout(2500)
    above, below = page.evaluate(VERDICT)
    assert above >= 0 and below >= 0


def test_a_guess_is_asked_for_before_its_cell_runs_and_a_verdict_outlives_its_session(asking):
    """A training ran for half a minute before the question was seen; on the second day, an error took a verdict's place."""
    page, held = asking, asking.locator(".course-hold")
    page.evaluate(TO_REVEAL)
    run_by_hand(page)
    page.locator(".course-goes-on").wait_for()
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")  # held down by mistake
    held.wait_for()
    assert "Choose an answer above first" in held.inner_text() and not page.evaluate(TRAINED)
    page.locator(".course-goes-on input[type=radio]").nth(1).click()
    held.wait_for(state="detached")
    page.keyboard.press("Shift+Enter")
    page.locator(".course-panel:visible:has-text('Right!')").wait_for()
    page.evaluate(RESTART)
    page.locator(".course-still:visible:has-text('Your guess')").wait_for()
    page.locator(".jp-Cell:nth-child(3) .jp-InputPrompt").click()
    page.keyboard.press("Shift+Enter")
    held.wait_for()
    assert page.locator(".course-panel:visible:has-text('Right!')").count() == 1
    held.locator("button").click()
    held.get_by_text("Running 1 of 1").wait_for()
    held.wait_for(state="detached")
    page.locator(".course-goes-on input:checked:disabled").wait_for()
    page.locator(".course-panel:visible:has-text('Right!')").wait_for()


def test_pressed_twice_without_a_guess_the_answer_is_open(asking):
    """It took a third act, a click on a fold that nothing had spoken of."""
    page, held = asking, asking.locator(".course-hold")
    page.evaluate(TO_REVEAL)
    run_by_hand(page)
    page.locator(".course-goes-on").wait_for()
    page.keyboard.press("Shift+Enter")
    held.get_by_text("To see the answer without a guess, press Shift+Enter again.").wait_for()
    page.wait_for_timeout(1100)
    page.keyboard.press("Shift+Enter")
    page.get_by_text("Answer: choice 1").wait_for()


@pytest.mark.parametrize("when", ["while it is locked", "afterwards"])
def test_shift_enter_goes_on_after_a_click_on_a_guess_that_is_locked(asking, when):
    """Clicking another choice was refused, the keyboard fell to nowhere, and Shift+Enter did nothing any more."""
    page, radios = asking, asking.locator(".course-goes-on input[type=radio]")
    page.evaluate(TO_REVEAL)
    page.evaluate(RUN_ALL)
    radios.nth(1).click()
    page.locator(".course-goes-on input:checked:disabled").wait_for()
    if when == "afterwards":
        radios.first.click(force=True)
    assert radios.nth(1).is_checked()
    counts = "() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.executionCount)"
    before = page.evaluate(counts)
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        f"before => JSON.stringify(({counts})()) !== JSON.stringify(before)", arg=before
    )


def test_a_dark_system_has_a_dark_page(browser, address, root):
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    open_lesson(page, address, root / "notebooks" / "00_start_here.ipynb")
    page.wait_for_function("() => document.body.dataset.jpThemeName === 'JupyterLab Dark'")
    page.evaluate(END)
    context.close()


def test_a_chart_that_is_drawn_anew_has_its_slider_where_one_left_it(asking):
    """Whoever ran a cell again to compare began at the slider's first value."""
    page, slider = asking, asking.locator(".vega-bind input")
    page.evaluate(FILL, CHART)
    run_by_hand(page)
    slider.press("End")
    run_by_hand(page)
    page.locator(".jp-Cell:nth-child(2) .jp-InputPrompt", has_text="[2]").wait_for()
    page.wait_for_timeout(2500)
    assert slider.input_value() == "9" and page.locator("svg text", has_text="n is 9").count()
