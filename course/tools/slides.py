"""Write each lesson as slides, from its text and stored figures, with nbconvert and Reveal: nothing is executed."""

import argparse
import importlib.util
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course import files
from course.pages import NOTEBOOKS, number_of
from course.show.vega import VEGALITE
from course.tools import WrongCall, _charts, _notebooks, site
from course.tools._arguments import folder

HELP = "write lessons as slides: a section, its question and its figure on each"
FIGURE = re.compile(r'<div class="chart.*?</div>|<img [^>]*>|<svg .*?</svg>', re.DOTALL)
BET = re.compile(
    r"<div><b>Predict:</b>.*?(?=<div><i>|</div></div>)", re.DOTALL
)  # without how to choose
FOLD = re.compile("</?details>|<summary>.*?</summary>")
LINK = re.compile(r"\[([^]]+)\]\([\w-]+\.ipynb[^)]*\)")  # leads nowhere from a slide
NAVIGATION = re.compile(r"<!-- nav -->.*?<!-- /nav -->", re.DOTALL)
LESSONS = [lesson.file for lesson in NOTEBOOKS if lesson.number < "90"]
LEFT_OUT = ("## In practice",)
PACKAGE = "sphinx-revealjs"  # it carries Reveal in its wheel; nothing else of it is used
MISSING = f"Reveal is missing; once: {sys.executable} -m pip install --no-deps {PACKAGE}"


@dataclass
class Section:
    """A part of a lesson: its text, the pages of its outputs, and the pictures that its text shows."""

    text: str = ""
    pages: list[str] = field(default_factory=list)
    attachments: dict = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `slides`."""
    parser.add_argument("folder", type=folder, help="where the slides go, NN.slides.html for each")
    parser.add_argument("lessons", nargs="*", help="numbers (03) or file names; none: all lessons")


def run(args: argparse.Namespace) -> int:
    """Write the slides; WrongCall, before the first, when a lesson is not known or a file of others is in the way."""
    from nbconvert import SlidesExporter

    targets = {
        args.folder / f"{number_of(path.name)}.slides.html": path
        for path in _notebooks.find(args.lessons or LESSONS)
    }
    _notebooks.refuse_others(targets)
    script, look = reveal()
    args.folder.mkdir(parents=True, exist_ok=True)
    template = Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8")
    exporter = SlidesExporter(raw_template=template, embed_images=True, exclude_input_prompt=True)
    for target, path in targets.items():
        slides = deck(_notebooks.read(path))
        title = slides.cells[0].source.partition("\n")[0].removeprefix("# ")
        alive = any('class="chart' in cell.source for cell in slides.cells)
        parts = {"vega": _charts.vega() or "" if alive else "", "script": script, "look": look}
        html, _ = exporter.from_notebook_node(slides, {"title": title, **parts})
        files.write(target, html)
        print(target)
    return 0


def reveal() -> tuple[str, str]:
    """Return Reveal's script and its style from the package that carries them; WrongCall where it is missing."""
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (found and found.submodule_search_locations) or ():
        folder = Path(place, "_static/revealjs/dist")
        if (folder / "reveal.js").exists():
            script, look = (folder / f"reveal.{kind}" for kind in ("js", "css"))
            return script.read_text(encoding="utf-8"), look.read_text(encoding="utf-8")
    raise WrongCall(MISSING)


def deck(notebook: Any) -> Any:
    """Return a notebook of slides: the title with its picture, then a slide for each section but the fine print."""
    from nbformat import v4

    kept = [each for each in sections(notebook.cells) if not each.text.startswith(LEFT_OUT)]
    return v4.new_notebook(cells=[cell for section in kept for cell in slide(v4, section)])


def sections(cells: list) -> list[Section]:
    """Split a lesson at its headings of second order; the first section is the title with what stands below it."""
    found = [Section()]
    for cell in cells:
        if cell.cell_type == "markdown":
            first, *others = re.split(r"(?m)^(?=## )", NAVIGATION.sub("", cell.source))
            found[-1].text += f"{first}\n\n"
            found += [Section(f"{text}\n\n") for text in others]
            found[0].attachments.update(cell.get("attachments", {}))
        found[-1].pages += [page(output) for output in cell.get("outputs", [])]
    return found


def page(output: Any) -> str:
    """Return an output as HTML."""
    data = output.get("data", {})
    if VEGALITE in data:
        return site.chart(output)
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"]}">'
    return data.get("text/html", "")


def slide(v4: Any, section: Section) -> list:
    """Return the cells of one slide: heading and first paragraph, then at a key the bet and the first figure."""
    heading, _, rest = section.text.partition("\n\n")
    title, recap = heading.startswith("# "), heading == "## Recap"
    rest = FOLD.sub("", rest).lstrip() if recap else rest  # by then, all guesses are made
    end = "attachment:first.png)" if title else "\n\n"
    words, _, more = rest.partition(end)
    words += end + (more.partition(end)[0] + end if words.startswith("### ") else "")
    first = v4.new_markdown_cell(LINK.sub(r"\1", f"{heading}\n\n{words}"))
    first.metadata["slideshow"] = {"slide_type": "slide"}
    first.update({"attachments": section.attachments} if title else {})
    found = [next(filter(None, map(kind.search, section.pages)), None) for kind in (BET, FIGURE)]
    later = [v4.new_markdown_cell(match[0]) for match in found if match and not recap]
    for cell in later:
        cell.metadata["slideshow"] = {"slide_type": "fragment"}
    return [first, *later]
