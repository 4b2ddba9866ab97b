"""A timeline in a reopened notebook, of which nothing has been run: it measures, zooms and names."""

import re

import pytest
from labpage import END, open_lesson


@pytest.fixture
def chart(address, page, root):
    """Open lesson 13 as it is stored and give its first chart."""
    open_lesson(page, address, root / "notebooks" / "13_recorded_patients.ipynb")
    page.locator(".vega-embed", has_text="174 ms measured").first.wait_for(state="attached")
    found = page.locator(".vega-embed").nth(page.evaluate(PATIENT_1))
    found.locator("svg text").first.wait_for(state="attached")
    found.scroll_into_view_if_needed()
    yield found
    page.evaluate(END)


PATIENT_1 = """() => [...document.querySelectorAll('.vega-embed')]
    .findIndex(chart => chart.textContent.includes('174 ms measured'))"""


def says(chart, words):
    """Wait until a text of `chart` contains `words`."""
    chart.locator("svg text", has_text=words).first.wait_for(state="attached", timeout=10_000)


def drag(page, begin, end):
    """Drag the mouse from one place of the page to another."""
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move((begin[0] + end[0]) / 2, begin[1], steps=4)
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def test_one_cannot_drag_past_the_data_and_an_empty_line_is_not_told(chart, page):
    """Whoever dragged too far saw an empty chart, and a call of the CPU had a “start:” with nothing behind it."""
    box, row = (
        chart.locator(place, has_text=words).first.bounding_box()
        for place, words in (("svg.marks", ""), ("svg text", "Python"))
    )
    y = row["y"] + row["height"] / 2
    page.mouse.move(box["x"] + 400, y)
    page.keyboard.down("Control")
    for _ in range(6):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    zoom, move = (chart.locator(f"input[name={name}]") for name in ("zoom", "move"))
    assert zoom.input_value() == "3" and float(move.input_value()) > 0
    for begin, end, least in ((200, 700, "0"), (700, 200, "14")):  # 16 halves, two of them in view
        for _ in range(12):
            drag(page, (box["x"] + begin, y), (box["x"] + end, y))
        assert move.input_value() == least
    page.mouse.dblclick(box["x"] + 400, y)
    page.wait_for_function("field => field.value === '0'", arg=zoom.element_handle())
    page.mouse.move(box["x"] + 240, y + 1)
    page.mouse.move(box["x"] + 244, y + 2)
    told = page.locator("#vg-tooltip-element.visible")
    told.wait_for()
    assert "length" in told.inner_text() and "start" not in told.inner_text()


def test_one_can_measure_zoom_and_point_without_a_kernel(chart, page):
    says(chart, "174 ms measured: the GPU is busy 57% of it")
    box = chart.locator("svg.marks").bounding_box()
    strip = chart.locator("svg text", has_text="drag here to measure").bounding_box()
    y = strip["y"] + strip["height"] / 2
    drag(page, (box["x"] + 215, y), (box["x"] + 400, y))
    says(chart, "the GPU is busy 0% of it")
    says(chart, "_SingleProcessDataLoaderIter.__next__")
    row = chart.locator("svg text", has_text="Python").bounding_box()
    page.mouse.move(box["x"] + 200, row["y"] + 6)
    page.mouse.move(box["x"] + 204, row["y"] + 7)
    page.locator("#vg-tooltip-element.visible").wait_for(timeout=10_000)
    chart.locator("input[name=zoom]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    says(chart, re.compile("^13$"))  # a label of the axis, where an eighth of 174 ms is left
