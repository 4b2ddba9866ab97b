"""Record README's moving picture, page 00 at work in JupyterLab, light and dark: `python3 tests/browser/film.py`.

It needs a browser, playwright and Pillow, as the browser tests do, and takes two minutes.
"""

import io
import tempfile
from pathlib import Path

import labpage
from axe import SETTLED, change_theme
from labpage import REPLY
from PIL import Image
from playwright.sync_api import sync_playwright

from course.tools import ROOT, _notebooks

FILMS = {"Light": ".github/lesson.gif", "Dark": ".github/lesson_dark.gif"}
WINDOW = {
    "width": 660,
    "height": 620,
}  # so narrow that a phone, which shows 360 of its pixels, can be read
WIDTH, HEIGHT = 570, 420  # of what is seen, in pixels of the page
STORED = 1140  # pixels of the film's width, for a good screen
COLORS = 96
CALM = """.jp-cell-toolbar, .jp-Collapser, .jp-InputPrompt {visibility: hidden}
.jp-Notebook .jp-Cell {border-color: transparent !important; box-shadow: none !important; outline: none !important}
.jp-WindowedPanel-outer {scrollbar-width: none}
.course-wait {display: none}"""
CELL = """words => window.jupyterapp.shell.currentWidget.content.widgets.findIndex(
    cell => cell.model.type === 'code' && cell.model.sharedModel.source.includes(words))"""
SHOW = """([place, above]) => {
    const cell = window.jupyterapp.shell.currentWidget.content.widgets[place].node;
    const outer = document.querySelector('.jp-WindowedPanel-outer');
    outer.scrollTop += cell.getBoundingClientRect().top - outer.getBoundingClientRect().top - above;
}"""
RUN = """place => {
    const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
    notebook.activeCellIndex = place;
    window.ran = app.commands.execute('notebook:run-cell');
    window.dispatchEvent(new WheelEvent('wheel'));  // the page stays where the film has it
}"""
FIGURE = """place => {
    const cell = document.querySelectorAll('.jp-Cell')[place];
    return cell.querySelector('.course-figure img:not(details *)');
}"""
CHANGED = f"([place, before]) => {{ const image = ({FIGURE})(place); return image?.complete && image.src !== before; }}"
SHOW_FIGURE = f"""([place, height]) => {{  // a figure that is lower than the film stands at its top, without its code
    const image = ({FIGURE})(place), outer = document.querySelector('.jp-WindowedPanel-outer');
    const seen = image.getBoundingClientRect(), bottom = Math.min(height, seen.height + 8);
    outer.scrollTop += seen.bottom - outer.getBoundingClientRect().top - bottom;
    return image.src;
}}"""
JOIN = """place => {
    const source = window.jupyterapp.shell.currentWidget.content.widgets[place].model.sharedModel;
    source.setSource(source.source.replace('right]', 'right.to("cuda:0")]'));
}"""
SCENES = ("import torch", "00.score", "figures.Board", "def join")  # words of cells


class Film:
    """What the page looks like from moment to moment: `shoot(seconds)` adds a picture that stays so long."""

    def __init__(self, page):
        self.page, self.pictures, self.times = page, [], []
        edge = page.locator(".jp-Notebook .jp-RenderedMarkdown").first.bounding_box()["x"]
        top = page.locator(".jp-WindowedPanel-outer").bounding_box()["y"]
        self.clip = {"x": edge - 14, "y": top, "width": WIDTH, "height": HEIGHT}

    def shoot(self, seconds):
        """Add what is seen now."""
        shot = Image.open(io.BytesIO(self.page.screenshot(clip=self.clip))).convert("RGB")
        size = STORED, round(STORED * HEIGHT / WIDTH)
        self.pictures.append(shot.resize(size, Image.Resampling.LANCZOS))
        self.times.append(round(1000 * seconds))

    def save(self, path):
        """Store it as a GIF, all pictures in one palette, so that what stays costs nothing."""
        width, height = (side // 4 for side in self.pictures[0].size)  # of each, for its colors
        sample = Image.new("RGB", (width, height * len(self.pictures)))
        for place, each in enumerate(self.pictures):
            small = each.resize((width, height), Image.Resampling.NEAREST)
            sample.paste(small, (0, height * place))
        palette = sample.quantize(COLORS, kmeans=1, dither=Image.Dither.NONE)
        first, *rest = (
            each.quantize(palette=palette, dither=Image.Dither.NONE) for each in self.pictures
        )
        first.save(
            path, save_all=True, append_images=rest, duration=self.times, loop=0, optimize=False
        )
        print(f"{path.name}: {sum(self.times) / 1000:.1f} s, {path.stat().st_size / 1e6:.2f} MB")


def run(page, place):
    """Run a cell and wait until what it shows is there."""
    page.evaluate(RUN, place)
    page.evaluate("() => window.ran")
    page.evaluate(REPLY)
    page.wait_for_timeout(300)


def shoot_figure(film, place, before, seconds):
    """Wait until the figure of a cell is another one than `before`, shoot it; return what it is now."""
    film.page.wait_for_function(CHANGED, arg=[place, before])
    now = film.page.evaluate(SHOW_FIGURE, [place, HEIGHT - 8])
    film.shoot(seconds)
    return now


def record(page):
    """Play page 00 and return the film: a question, a choice, the training's beginning, the cat; no answer is seen."""
    places = [page.evaluate(CELL, words) for words in SCENES]
    assert -1 not in places, f"page 00 has changed: {dict(zip(SCENES, places, strict=True))}"
    setup, guess, train, cat = places
    film = Film(page)
    run(page, setup)
    run(page, guess)
    page.evaluate(SHOW, [guess, 120])
    film.shoot(1.6)
    assert page.locator(".course-goes-on input:checked").count() == 0, "guessed before it began"
    page.locator(".course-goes-on").first.locator("input[type=radio]").nth(1).check()
    page.wait_for_timeout(100)
    film.shoot(1.2)
    page.evaluate(RUN, train)
    seen = ""
    for _ in range(2):  # before the training and after an epoch: more would answer the question
        seen = shoot_figure(film, train, seen, 1.6)
    page.evaluate("() => window.ran")
    run(page, cat)
    halves = shoot_figure(film, cat, "", 2)
    page.evaluate(JOIN, cat)
    run(page, cat)
    shoot_figure(film, cat, halves, 2.6)
    return film


def main():
    """Record both films."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=labpage.browser_path(), args=labpage.FLAGS)
        for theme, file in FILMS.items():
            page = browser.new_context(viewport=WINDOW, device_scale_factor=2).new_page()
            page.set_default_timeout(180_000)
            with (
                tempfile.TemporaryDirectory() as folder,
                labpage.jupyterlab(Path(folder)) as address,
            ):
                labpage.open_lesson(page, address, *_notebooks.find(["00"]))
                page.wait_for_function(SETTLED)
                change_theme(page, f"JupyterLab {theme}")
                page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
                page.add_style_tag(content=CALM)
                page.wait_for_timeout(1000)
                record(page).save(ROOT / file)
                page.evaluate(labpage.END)


if __name__ == "__main__":
    main()
