"""The site in a browser without a network, from its files: charts move, dark is dark, a phone scrolls one way only."""

import re

import pytest
from axe import SCRIPT

from course import __main__ as door

PAGES = ("index", "00_start_here", "10b_plan_a_cluster")
FITS = """() => {
    const texts = [...document.querySelectorAll('.chart svg text')], fits = text => text.getBoundingClientRect().right <= innerWidth;
    return texts.some(text => /800 images per step/.test(text.textContent)) && texts.every(fits);
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the site."""
    target = tmp_path_factory.mktemp("site") / "new"
    assert door.main(["site", str(target)]) == 0
    return target


@pytest.fixture
def page(browser):
    """Give a fresh page without a network."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


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
    assert failed == []
    context.close()


@pytest.mark.parametrize("script", [True, False])
def test_no_page_scrolls_sideways_on_a_phone(browser, folder, script):
    size = {"width": 390, "height": 844}
    context = browser.new_context(viewport=size, java_script_enabled=script, offline=True)
    page, wide = context.new_page(), []
    for path in folder.glob("*.html"):
        page.goto(path.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(path.stem)
    assert wide == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "02_move_tensors", "91_troubleshooting"])
def test_a_page_reads_in_both_themes_and_for_a_screen_reader(browser, folder, name, scheme):
    """Comments and numbers of code had a contrast of 4.2, and `in` one of 3.4 in the dark."""
    context = browser.new_context(color_scheme=scheme, offline=True)
    page = context.new_page()
    page.goto((folder / f"{name}.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.evaluate(f"() => {{ {SCRIPT} }}")
    told = page.evaluate("axe.run(document, {exclude: [['.vega-embed']]})")["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in told] == []
    context.close()


def test_a_chart_moves_by_arrow_keys_and_by_mouse_and_search_leads_to_a_section(page, folder):
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


def test_a_chart_behind_a_guess_comes_alive_in_its_fold(page, folder):
    page.goto((folder / "00_start_here.html").as_uri())
    fold = page.locator("details:has(> .chart)")
    page.locator(f"[data-reveal={fold.get_attribute('id')}] label").first.click()
    fold.locator("svg.marks").wait_for()
    assert fold.locator("svg.marks").bounding_box()["width"] > 600


def test_a_guess_is_judged_by_mouse_and_by_keyboard_and_opens_its_answer(page, folder):
    """Choices were dead circles, and so the page's first question could not be answered."""
    page.goto((folder / "00_start_here.html").as_uri())
    forms = page.locator("form.guess")
    folds = [page.locator(f"#{form.get_attribute('data-reveal')}") for form in forms.all()]
    right = int(forms.nth(0).get_attribute("data-right"))
    assert not any(fold.evaluate("fold => fold.open") for fold in folds)
    forms.nth(0).locator("label").nth(right).click()
    forms.nth(0).get_by_text("Right!").wait_for()
    assert [fold.evaluate("fold => fold.open") for fold in folds] == [True, False, False]
    right = int(forms.nth(1).get_attribute("data-right"))
    forms.nth(1).locator("input").first.focus()
    page.keyboard.press("Space")
    for _ in range((right - 1) % forms.nth(1).locator("input").count()):
        page.keyboard.press("ArrowDown")  # on their way, choices aren't taken for guesses
    page.wait_for_timeout(1700)
    assert forms.nth(1).get_by_role("button").is_visible()
    page.keyboard.press("Enter")
    forms.nth(1).get_by_text("Not this time").wait_for()
    assert forms.nth(1).locator("input:enabled").count() == 0, "the first guess counts"
    assert forms.nth(1).locator("label.right input").get_attribute("value") == str(right)
    assert (
        page.evaluate("document.activeElement.role || document.activeElement.getAttribute('role')")
        == "status"
    )
    page.get_by_role("link", name="See why").nth(1).click()
    assert page.evaluate("scrollY") > 500


def test_a_phone_shows_a_moved_chart_whole_and_back_leads_to_the_same_place(browser, folder):
    """The bar that the slider is for grew out of the window, and Back led to the top, with what was read folded."""
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto((folder / "00_start_here.html").as_uri())
    fold = page.locator("details:has(> .chart)")
    page.locator(f"[data-reveal={fold.get_attribute('id')}] label").first.click()
    fold.locator("svg.marks").wait_for()
    fold.locator("input[type=range]").press("End")
    page.wait_for_function(FITS)
    page.wait_for_timeout(500)
    place = page.evaluate("() => scrollY")
    assert place > 800 and page.evaluate(FITS)
    page.goto((folder / "01_check_for_cuda.html").as_uri())
    page.go_back()
    page.wait_for_function(f"() => Math.abs(scrollY - {place}) < 100")
    assert fold.get_attribute("open") is not None
    context.close()


def test_a_choice_that_a_browser_brings_back_can_still_be_guessed(page, folder):
    """After Back, the choice was marked, without a verdict, and clicking it did nothing."""
    page.goto((folder / "00_start_here.html").as_uri())
    form = page.locator("form.guess").first
    assert form.get_attribute("autocomplete") == "off"
    form.locator("input").first.evaluate("input => { input.checked = true; }")
    page.evaluate("dispatchEvent(new Event('pageshow'))")
    form.locator("label").first.click()
    form.get_by_role("status").get_by_text("You predicted").wait_for()


def test_tab_stops_only_where_there_is_something_to_do(browser, folder):
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto((folder / "00_start_here.html").as_uri())
    stops = page.locator("main [tabindex='0']")
    assert stops.count() and all(
        stop.evaluate("part => part.scrollWidth > part.clientWidth") for stop in stops.all()
    )
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")
    context.close()


def test_a_number_is_guessed_with_a_slider(page, folder):
    page.goto((folder / "02b_what_a_copy_costs.html").as_uri())
    form = page.locator("form.guess:has([type=range])").first
    form.locator("[type=range]").focus()
    shown = [form.locator("output").inner_text()]
    page.keyboard.press("End")
    shown.append(form.locator("output").inner_text())
    assert shown == ["100 times", "10,000 times"]
    form.get_by_role("button").press("Enter")
    form.get_by_text("times too high").wait_for()
    assert page.locator(f"#{form.get_attribute('data-reveal')}[open]").count() == 1


def test_where_no_script_runs_a_question_is_a_list_and_its_answer_one_fold(browser, folder):
    context = browser.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "02b_what_a_copy_costs.html").as_uri())
    assert page.locator(".guess :is(input, button, output):visible").count() == 0
    assert page.get_by_text("A number from 1 to 10,000 times.").is_visible()
    fold = page.locator("details.reveal").first
    fold.locator("summary").click()
    assert fold.get_by_text("times").first.is_visible()
    unmoved = page.locator("noscript p")
    assert unmoved.count() == 0
    page.goto((folder / "00_start_here.html").as_uri())
    assert unmoved.is_visible(), "no slider to drag, and nothing said so"
    context.close()


def test_a_search_forgives_a_typo_and_says_so(page, folder):
    """Who typed "tensr paralelism" found nothing."""
    page.goto((folder / "10b_plan_a_cluster.html").as_uri())
    for asked, note in (
        ("tensr paralelism", "Showing results for: tensor parallelism"),
        (
            "RuntimeError: CUDA tried to share a GPU's 2.00 parallelism tensor",
            "No page has all of these words. These come closest:",
        ),
        ("xyzzy", "No page has “xyzzy”. Try a shorter word."),
    ):
        page.locator("#search").fill(asked)
        page.get_by_text(note).wait_for()
        assert (page.locator("#found a").count() > 0) == ("No page has “x" not in note)


def test_a_search_lists_few_hits_first_the_one_named_so_and_enter_opens_it(page, folder):
    """Twenty hits had code or the list of all pages for an excerpt."""
    page.goto((folder / "00_start_here.html").as_uri())
    box, found = page.locator("#search"), page.locator("#found a")
    box.fill("the size of a batch")
    page.wait_for_function("typeof pages !== 'undefined'")
    page.evaluate("""pages.push(
        ["index.html#far", "A", "Other", "a zebra and a stripe"],
        ["index.html#near", "A", "Other", "first a zebra stripe, then a zebra stripe"],
        ["index.html#named", "A", "Zebra stripe", "what it is"], ...Array(9).fill(["index.html#more", "B", "C", "a zebra stripe"]))""")
    box.fill("zebra stripe")
    places = [link.get_attribute("href").partition("#")[2] for link in found.all()]
    assert places == ["named", "near", "more", "more", "more", "more"]
    box.press("Enter")
    page.wait_for_url("**/index.html#named")
