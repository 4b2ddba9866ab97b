"""The charts of all pages in JupyterLab: mouse, Tab and arrow keys move their controls, not the page and its folds."""

import json

import nbformat
import pytest
from labpage import ACTIVE, END, open_lesson

from course.show import vega
from course.tools import _notebooks

BOX = ".jp-Notebook .vega-bind"
KEYS = {  # of each kind of control
    "range": ("ArrowRight", "ArrowLeft"),
    "number": ("ArrowUp", "ArrowDown"),
    "select-one": ("ArrowDown", "ArrowUp"),
    "radio": ("ArrowDown", "ArrowUp"),
}
VALUE = """box => (box.querySelector('input[type=radio]:checked') || box.querySelector('input, select')).value"""
FOCUSED = "box => box.contains(document.activeElement)"
FOLDED = "() => document.querySelectorAll('.jp-collapseHeadingButton.jp-mod-collapsed, .jp-MarkdownHeadingCollapsed').length"


def charts_with_controls():
    """Return {page and cell: the stored output}, one for each chart of all pages that one can move."""
    found = {}
    for path in _notebooks.find([]):
        for number, cell in enumerate(nbformat.read(path, 4).cells):
            for output in map(drawn, cell.get("outputs", [])):
                spec = json.dumps(output.get("data", {}).get(vega.VEGALITE, ""))
                if '"input"' in spec and spec not in found:
                    found[spec] = f"{path.name[:3].strip('_')}, cell {number}", output
    return dict(found.values())


def drawn(output):
    """Return what a guess draws in place of `output`; the output itself where none does."""
    kept = output.get("metadata", {}).get(vega.KEPT)
    if not kept:
        return output
    look = {vega.VEGALITE: {"embed_options": kept["embed_options"]}}
    return nbformat.v4.new_output("display_data", {vega.VEGALITE: kept["spec"]}, metadata=look)


@pytest.fixture
def charts(address, page, root):
    """Open a notebook with the charts of all pages, each below a heading that could fold; give its page."""
    cells = []
    for name, output in charts_with_controls().items():
        cells += [
            nbformat.v4.new_markdown_cell(f"## {name}"),
            nbformat.v4.new_code_cell("1", outputs=[output]),
        ]
    path = root / "notebooks" / "charts.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    open_lesson(page, address, path)
    made = "n => document.querySelectorAll('.jp-Cell .vega-embed:has(.vega-bind)').length === n"
    page.wait_for_function(made, arg=len(cells) // 2)
    yield page
    page.evaluate(END)


def with_mouse(page, box, control, kind):
    """Move a slider, choose a radio button; a list opens a window of its own, and number fields appear with Tab."""
    if kind == "range":
        seen = set()
        for share in (0.2, 0.8):
            control.click(position={"x": share * control.bounding_box()["width"], "y": 8})
            seen.add(box.evaluate(VALUE))
        assert len(seen) == 2, "a click moves it"
    elif kind == "radio":
        box.locator("input").nth(1).click()
    else:
        control.focus()


def with_tab(page, box, control, kind):
    """Leave the control and come back with Tab."""
    control.focus()
    page.keyboard.press("Shift+Tab")
    for _ in range(12):
        page.keyboard.press("Tab")
        if box.evaluate(FOCUSED):
            return
    raise AssertionError("Tab doesn't reach it")


@pytest.mark.parametrize("way", [with_mouse, with_tab])
def test_mouse_tab_and_arrow_keys_move_every_control_of_every_chart_and_not_the_page(charts, way):
    """← on a slider folded the section above it, ↓ in a list went to the next cell."""
    page, address, moved = charts, charts.url, set()
    for place in range(page.locator(BOX).count()):
        box = page.locator(BOX).nth(place)
        control = box.locator("input, select").first
        kind = control.evaluate("control => control.type")
        name = f"{box.inner_text()[:40]!r}, {kind}"
        control.scroll_into_view_if_needed()
        way(page, box, control, kind)
        cell, values = page.evaluate(ACTIVE), [box.evaluate(VALUE)]
        for key in KEYS[kind]:
            page.keyboard.press(key)
            values.append(box.evaluate(VALUE))
        assert len(set(values)) > 1, f"{name}: arrow keys move it"
        assert page.evaluate(ACTIVE) == cell and page.evaluate(FOLDED) == 0, f"{name}: not the page"
        moved.add(kind)
    assert moved == {*KEYS} and page.url == address, "each kind of control is in some chart"
