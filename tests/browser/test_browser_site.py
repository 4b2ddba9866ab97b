"""The site in a browser without a network, from its files: charts move, dark is dark, a phone scrolls one way only."""

import re

import pytest

from course import __main__ as door
from course.tools import _notebooks

PAGES = ("index", "00_start_here", "10b_plan_a_cluster")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the site of two lessons."""
    target = tmp_path_factory.mktemp("site") / "new"
    few = _notebooks.find(["00", "10b"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_notebooks, "find", lambda names=(): few)
        assert door.main(["site", str(target)]) == 0
    return target


@pytest.mark.parametrize("width", [1366, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_is_dark_in_the_dark(browser, folder, name, width):
    size = {"width": width, "height": 844}
    context = browser.new_context(viewport=size, color_scheme="dark", offline=True)
    page = context.new_page()
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto((folder / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", paper)[:3])) < 40
    assert [url for url in failed if "badge" not in url] == []
    context.close()


def test_a_chart_moves_by_arrow_keys_and_by_mouse_and_search_leads_to_a_section(browser, folder):
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((folder / "10b_plan_a_cluster.html").as_uri())
    chart = page.locator(".chart:has(input[type=range])").first
    seen = [chart.locator("svg.marks").inner_html()]
    slider = chart.locator("input[type=range]").first
    slider.focus()
    for move in (
        lambda: page.keyboard.press("ArrowRight"),
        lambda: slider.click(position={"x": 5, "y": 5}),
    ):
        move()
        page.wait_for_timeout(300)
        seen.append(chart.locator("svg.marks").inner_html())
    assert len(set(seen)) == 3
    page.locator("#search").fill("tensor parallelism")
    page.locator("#found a[href*='#']").first.click()
    assert "#" in page.url
    context.close()


def test_a_chart_behind_a_guess_comes_alive_in_its_fold(browser, folder):
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((folder / "00_start_here.html").as_uri())
    fold = page.locator("details:has(> .chart)")
    fold.locator("summary").click()
    fold.locator("svg.marks").wait_for()
    assert fold.locator("svg.marks").bounding_box()["width"] > 600
    context.close()
