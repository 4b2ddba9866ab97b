"""The site on a phone without a network."""

import re

import pytest

from helpers import __main__ as door

# What is wider than its box and can neither be seen nor scrolled to.
HIDDEN = """() => [...document.querySelectorAll('main *')].filter(
    part => part.clientWidth > 0 && part.scrollWidth > part.clientWidth + 1
            && getComputedStyle(part).overflowX === 'hidden').map(part => part.className)"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the whole site, written once."""
    target = tmp_path_factory.mktemp("site") / "new"
    assert door.main(["site", str(target)]) == 0
    return target


@pytest.mark.parametrize("name", ["index", "INSTRUCTORS", "02_move_tensors", "90_cheat_sheet"])
def test_a_phone_without_network_shows_the_page_in_its_width(folder, name, page):
    page.set_viewport_size({"width": 360, "height": 740})
    page.route(re.compile("^https?:"), lambda route: route.abort())
    faults = []
    page.on("pageerror", lambda error: faults.append(error))
    page.goto((folder / f"{name}.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360 and faults == []
    assert page.evaluate(HIDDEN) == []
    assert page.evaluate(
        "[...document.images].every(each => each.naturalWidth || !each.src.startsWith('data:'))"
    )
