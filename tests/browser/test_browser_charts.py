"""Charts in JupyterLab with the keyboard: arrow keys move a chart's controls, not the page and its folds."""

import nbformat
import pytest
from labpage import ACTIVE, END, open_lesson

from course.show import vega
from helpers import plots

CONTROLS = {  # kind: its binding, what it is first, the keys that change it
    "range": ({"min": 0, "max": 10, "step": 1}, 5, ("ArrowRight", "ArrowLeft")),
    "number": ({}, 5, ("ArrowUp", "ArrowDown")),
    "select": ({"options": ["a", "b", "c"]}, "b", ("ArrowDown", "ArrowUp")),
    "radio": ({"options": ["a", "b", "c"]}, "b", ("ArrowDown", "ArrowUp")),
}
STATE = """() => {
    const part = document.activeElement, group = part.closest('.vega-bind') || part;
    const chosen = group.querySelector('input[type=radio]:checked') || part;
    return [chosen.value, document.querySelectorAll('.jp-Notebook .jp-Cell:not(.jp-mod-noOutputs)').length];
}"""
FOLDED = "() => document.querySelectorAll('.jp-collapseHeadingButton.jp-mod-collapsed, .jp-MarkdownHeadingCollapsed').length"


@pytest.fixture
def charts(address, page, root):
    """Open a stored notebook with a chart for each kind of control, between headings that could fold; give its page."""
    cells = []
    for kind, (bind, value, _) in CONTROLS.items():
        spec = {
            "params": [
                {"name": "p", "value": value, "bind": {"input": kind, "name": kind, **bind}}
            ],
            **vega.csv("t", [(1,)]),
            "mark": "bar",
            "encoding": {"x": {"field": "t", "type": "quantitative"}},
        }
        chart = vega.Chart(spec, plots.bars({"t": 1}, "t", "s"), f"One bar with a control: {kind}.")
        data, metadata = chart.bundle()
        output = nbformat.v4.new_output("display_data", data, metadata=metadata)
        cells += [
            nbformat.v4.new_markdown_cell(f"## {kind}"),
            nbformat.v4.new_code_cell("1", outputs=[output]),
        ]
    path = root / "notebooks" / "charts.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    open_lesson(page, address, path)
    page.locator(".vega-bind").nth(len(CONTROLS) - 1).wait_for(state="attached")
    yield page
    page.evaluate(END)


@pytest.mark.parametrize("way", ["mouse", "Tab"])
def test_arrow_keys_move_a_charts_control_and_not_the_page(charts, way):
    """← on a slider folded the section above it, ↓ in a list went to the next cell."""
    page = charts
    for place, (kind, (_, _, keys)) in enumerate(CONTROLS.items()):
        control = page.locator(".vega-bind").nth(place).locator("input, select").first
        if kind == "radio":
            control = page.locator(".vega-bind").nth(place).locator("input").nth(1)
        control.scroll_into_view_if_needed()
        if way == "mouse" and kind in (
            "range",
            "radio",
        ):  # a click opens a list; fields appear with Tab
            control.click()
        else:
            control.focus()
        cell, before = page.evaluate(ACTIVE), page.evaluate(STATE)
        page.keyboard.press(keys[0])
        moved = page.evaluate(STATE)
        assert moved[0] != before[0], f"{kind}: {keys[0]} changes it"
        page.keyboard.press(keys[1])
        assert page.evaluate(STATE) == before, f"{kind}: {keys[1]} brings it back"
        assert page.evaluate(ACTIVE) == cell and page.evaluate(FOLDED) == 0, kind
