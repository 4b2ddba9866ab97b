"""Write the lessons as web pages from their stored outputs, with nbconvert: nothing is executed."""

import argparse
import base64
import json
import mimetypes
import os
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Comment, NavigableString
from nbconvert import HTMLExporter
from nbformat import v4

from course import files
from course.pages import BLOCKS, NOTEBOOKS, REPOSITORY, Lesson, blocks, number_of
from course.show.vega import KEPT, VEGALITE
from course.tools import ROOT, _charts, _guesses, _notebooks, _reading, publish
from course.tools._arguments import folder

HELP = "write the lessons as web pages, to read without running them"
CODE = re.compile(r'href="((?:[\w-]+/)+[\w-]+\.(?:py|json)|LICENSE)"')
LESSONS = re.compile("<!-- lessons -->.*<!-- /lessons -->", re.DOTALL)
START = re.compile("<!-- start -->.*<!-- /start -->", re.DOTALL)
MOVING = re.compile("<picture>.*?</picture>", re.DOTALL)
UNSEARCHED = (
    ".reveal, .solution, .place, .folds, .code, td > div > a, span.run, button, "
    ".anchor-link, .jp-InputPrompt, .jp-OutputPrompt, style, script"
)
LINES = ["p", "li", "td", "th", "pre", "div", "summary", "legend", "label"]  # a search shows one
STOPS = re.compile(r'(<div class="jp-[^>]*) tabindex="0"')
SECTION = re.compile(r'<h2 id="([^"]+)">(.*?)<a class="anchor-link"', re.DOTALL)
BADGE = re.compile(r"\[!\[([^\]]+)\]\([^)]+\)\]")
NOWHERE = re.compile(r'<a [^>]*href="[^"]*OWNER_NAME[^"]*"[^>]*>(.*?)</a>', re.DOTALL)
OPENS = re.compile(
    rf"<p>(?:Open this lesson without installing anything:.*?|{re.escape(publish.LATER)})</p>"
)
TITLE = re.compile("<h1 id=.*?</h1>", re.DOTALL)
ALL = re.compile("<details>(?=<summary>All lessons).*?</details>", re.DOTALL)
MESSAGE = re.compile(r'(<div class="course-panel")([^>]*><div [^>]*><span [^>]*>!</span>)([^<]*)')
COLUMNS = re.compile(r"<pre>(?![^<]*out of memory)(?=[^<]*\S {2,}\S)")  # lined up with spaces
ASKS = f"<summary>{_guesses.LOOK}</summary>"
FIRST = "attachment:first.png"
PICTURED = re.compile(rf"!\[[^\]]*\]\({FIRST}\)")
TICKS = re.compile("`([^`]+)`")
DARK = re.compile(r"body\[data-jp-theme-light=\"false\"\]([^{]*{[^}]*})")
OWN = '<a href="index.html#start">your own machine</a>'
TYPED = f"on {OWN}, type <code>python3 lab.py</code> in the course's folder."
UNMOVED = (
    '<noscript><p class="place">Without JavaScript, the charts on this page are pictures: '
    "skip what asks you to move them.</p></noscript>"
)
UNPUBLISHED = (
    "This copy of the course isn't published yet, so there's no address to download it from. Ask for its folder "
    "where you got this site. In the folder, type:"
)
DOORS = """<p class="doors"><a class="button" href="00_start_here.html">Start page 00</a>
<span>{pages} pages in {hours}, on any machine</span>
<a href="practice_gpus.html">Test your code without a GPU</a></p>"""
PICTURE = re.compile(r'(<(?:img [^>]*src|source [^>]*srcset)=")(?!data:|https?:)([^"]+)')
LINK = re.compile(r'(<a [^>]*href=")(?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md)(?=["#])')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `site`."""
    parser.add_argument("folder", type=folder, help="where the pages go; begin at index.html")


def run(args: argparse.Namespace) -> int:
    """Write the pages; WrongCall, before the first, when the folder holds other files of these names."""
    template = Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8")
    exporter = HTMLExporter(raw_template=template)
    documents = [*_notebooks.FOLDER.glob("*.md"), *(ROOT / "practice_gpus").glob("[HI]*.md")]
    pages = {path.stem: path for path in [*documents, *_notebooks.find()]}
    places = {"index": "README", "CONTRIBUTING": "CONTRIBUTING"}
    places["practice_gpus"] = "practice_gpus/README"
    pages |= {name: ROOT / f"{place}.md" for name, place in places.items()}
    address = publish.known()
    if address is None:
        print(publish.UNSET, "The site leaves them out.", file=sys.stderr)
    args.folder.mkdir(parents=True, exist_ok=True)
    targets = {args.folder / f"{name}.html": path for name, path in pages.items()}
    shared = [args.folder / name for name in ("course.css", "site.js", "search.js", "vega.js")]
    _notebooks.refuse_others([*targets, *shared])
    written = {target: page(path, exporter) for target, path in targets.items()}
    for target, html in written.items():
        html = html.replace("<!-- next -->", short(neighbors(target.stem)))
        html = html.replace("<!-- neighbors -->", neighbors(target.stem))
        html = html.replace("<!-- opens -->", opens(target.stem, address))
        written[target] = addressed(html, address)
        files.write(target, written[target])
    words = f"const pages = {words_of(written)};"
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    texts = (style(exporter), script, words, _charts.vega() or "")
    for path, text in zip(shared, texts, strict=True):
        files.write(path, f"/* {_notebooks.MARK} */\n{text}")
    charts = "" if _charts.vega() else "; charts are pictures, since JupyterLab isn't installed"
    print(f"{len(pages)} pages, first {args.folder / 'index.html'}{charts}")
    return 0


def style(exporter: HTMLExporter) -> str:
    """Return the look of all pages: JupyterLab's, in both themes, and what the course makes of it."""
    places = exporter.environment
    sheets = (f"static/{name}.css" for name in ("index", "theme-light", "theme-dark"))
    lab, light, dark = (places.loader.get_source(places, name)[0] for name in sheets)
    own = (ROOT / "course/tools/labconfig/custom.css").read_text(encoding="utf-8")
    dark += "\n".join(f"body{rule}" for rule in DARK.findall(own))
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
    page = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return "\n".join((lab, light, DARK.sub("", own), dark, page))


def front(readme: str) -> str:
    """Return README as the first page: the two doors, then all pages with minutes and what one does in each."""
    path = blocks()["The path"]
    doors = DOORS.format(pages=len(path), hours=hours(path))
    picture = f"[{PICTURED.findall(pictured().source)[0]}]({NOTEBOOKS[0].file})"
    begin = BADGE.sub(r"[\1]", publish.start(publish.known() or REPOSITORY))
    begin = begin.replace(publish.HERE, UNPUBLISHED)
    readme = START.sub(lambda _: begin, readme)
    text = MOVING.sub("", readme)
    text = text.replace("## Start\n", f"{doors}\n\n{picture}\n\n## Start\n", 1)
    map_ = "\n".join(block(name, pages) for name, pages in blocks().items() if pages)
    return LESSONS.sub(lambda _: map_, text).replace("## The path\n", "## The map\n", 1)


def hours(pages: list[Lesson]) -> str:
    """Return how long `pages` take, in half hours."""
    return f"about {round(sum(each.minutes for each in pages) / 30) / 2:g} hours"


def pictured() -> Any:
    """Return the first lesson's cell that holds its picture."""
    cells = _notebooks.read(_notebooks.FOLDER / NOTEBOOKS[0].file).cells
    return next(cell for cell in cells if FIRST in cell.source)


def block(name: str, pages: list[Lesson]) -> str:
    """Return one block of the map as HTML."""
    timed = any(each.minutes for each in pages)
    told = f"{BLOCKS[name]} · {hours(pages)}" if timed else BLOCKS[name]
    rows = "\n".join(map(row, pages))
    return f'<h3>{name} <small>{told}</small></h3>\n<ol class="map">\n{rows}\n</ol>'


def row(lesson: Lesson) -> str:
    """Return one page's line of the map."""
    does = TICKS.sub(r"<code>\1</code>", escape(lesson.summary, quote=False))
    link = f'<a href="{Path(lesson.file).stem}.html">{lesson.number} {escape(lesson.title)}</a>'
    time = f"{lesson.minutes} min" if lesson.minutes else ""
    return f"<li>{link}<span>{does}</span><span>{time}</span></li>"


def neighbors(name: str) -> str:
    """Return links to the pages before and behind the page `name`; a page of the path leads along the path, and down."""
    pages = {each.file.removesuffix(".ipynb"): each for each in NOTEBOOKS}
    if name not in pages:
        return ""
    page, (path, deeper, beyond, _) = pages[name], blocks().values()
    road, links = [*path, *beyond], []
    if page in deeper:
        [above] = [each for each in path if each.number == page.number[:2]]
        links, page = [to(above, "↑ back to ")], above
    elif page not in road:
        return ""
    at = road.index(page)
    links += [to(road[at - 1], "← ")] if at and not links else []
    links += [to(road[at + 1], "→ ")] if at + 1 < len(road) else []
    below = [each for each in deeper if pages[name] in path and each.number[:2] == page.number]
    return "".join(f" · {link}" for link in [*links, *(to(each, "deeper: ") for each in below)])


def short(links: str) -> str:
    """Return `links` as the head of a page has them: without the deeper pages."""
    return re.sub(r" · <a [^>]*>deeper: [^<]*</a>", "", links)


def to(lesson: Lesson, before: str) -> str:
    """Return a link to a page of the site."""
    return f'<a href="{Path(lesson.file).stem}.html">{before}{lesson.number} {escape(lesson.title)}</a>'


def opens(name: str, address: str | None) -> str:
    """Return links that run the page `name` elsewhere; "" for what is no page."""
    files = {each.file.removesuffix(".ipynb"): each.file for each in NOTEBOOKS}
    if name not in files:
        return ""
    if not address:
        return TYPED
    found = publish.launches(address, files[name])
    links = [f'<a href="{found[place]}">{place}</a>' for place in ("Colab", "Binder")]
    return " · ".join([*links, OWN])


def addressed(html: str, address: str | None) -> str:
    """Return a page whose links name this copy's address; where nobody knows it, without these links."""
    if address is None:
        html = NOWHERE.sub(r"\1", html).replace(f"https://github.com/{REPOSITORY}", "ADDRESS")
    return html.replace(REPOSITORY, address or "OWNER/NAME")


def words_of(written: dict[Path, str]) -> str:
    """Return [address, page, section, words, code] of every section and message as a literal of JavaScript, for the search."""
    rows: list[list[str]] = []
    for target, html in written.items():
        text: Any = BeautifulSoup(html, "html.parser")
        for part in text.select(UNSEARCHED):
            part.decompose()  # no search shows an answer
        for comment in text.find_all(string=lambda each: isinstance(each, Comment)):
            comment.extract()
        page = text.title.get_text() if text.title else target.stem
        for panel in text.select(".course-panel[id]"):
            title, *told = panel.find_all("div", recursive=False)
            words = " ".join(each.get_text() for each in told)
            rows.append([f"{target.name}#{panel['id']}", page, title.get_text()[1:], words, ""])
            panel.decompose()
        rows.append([target.name, page, "", "", ""])
        block: Any = None
        for node in text.main.descendants if text.main else ():
            if node.name in ("h1", "h2", "h3") and node.get("id"):
                rows.append([f"{target.name}#{node['id']}", page, node.get_text(), "", ""])
            elif isinstance(node, NavigableString) and node.find_parent(["h1", "h2", "h3"]) is None:
                before, block = block, node.find_parent(LINES)
                words = re.sub(r"\s*\n\s*", "\n" if node.find_parent("pre") else " ", node)
                new = "" if block is before else "\n"
                rows[-1][4 if node.find_parent("pre") else 3] += new + words
    rows = [
        [
            "\n".join(" ".join(line.split()) for line in words.splitlines() if line.strip())
            for words in row
        ]
        for row in rows
    ]
    return json.dumps([row for row in rows if row[3] or row[4]], ensure_ascii=False)


def page(path: Path, exporter: HTMLExporter) -> str:
    """Return a notebook or Markdown file as HTML, its charts alive, its links to other files leading to pages."""
    if path.suffix == ".ipynb":
        notebook = _notebooks.read(path)
        _reading.readable(notebook, number_of(path.stem))
    else:
        text = path.read_text(encoding="utf-8")
        text = front(text) if path == ROOT / "README.md" else text
        notebook = v4.new_notebook(cells=[v4.new_markdown_cell(text)])
        if FIRST in text:
            notebook.cells[0]["attachments"] = pictured().attachments
    _guesses.alive(notebook)
    for cell in notebook.cells:
        shown = cell.get("outputs", [])
        for before, output in zip([None, *shown], shown, strict=False):
            if VEGALITE in output.get("data", {}):
                output.data = {"text/html": chart(output)}
            if KEPT in output.get("metadata", {}):
                before.data["text/html"] = guessed(before.data["text/html"], output.metadata[KEPT])
        if any(ASKS in output.get("data", {}).get("text/html", "") for output in shown):
            folded = cell.metadata.get("jupyter", {})
            folded.pop("outputs_hidden", None)  # it folds its answer itself
    title = escape(notebook.cells[0].source.partition("\n")[0].removeprefix("# "))
    lesson = next((each for each in NOTEBOOKS if each.file == path.name), None)
    place = lesson.number if lesson else ""
    names = {
        "metadata": {"name": f"{place} {title}".strip(), "path": str(path.parent)},
        "place": f"Page {place}, {lesson.minutes} minutes. " if lesson and lesson.minutes else "",
        "foot": path != ROOT / "README.md",
        "notebook": path.suffix == ".ipynb",
    }
    html, _ = exporter.from_notebook_node(notebook, names)
    html = STOPS.sub(r"\1", OPENS.sub("", html))
    html = anchored(COLUMNS.sub('<pre class="columns">', html))
    html = PICTURE.sub(lambda part: part[1] + embedded(path.parent / part[2]), html)
    html = re.sub(r'(<h\d id="|href="[^":]*#)([^"]+)', lambda part: part[1] + part[2].lower(), html)
    html = html.replace("<!-- sections -->", sections(html))
    html = html.replace("<!-- unmoved -->", UNMOVED * ('class="chart ' in html))
    html = lifted(lifted(html, TITLE, "<!-- title -->"), ALL, "<!-- lessons -->")
    there = f"https://github.com/{REPOSITORY}/blob/main/{os.path.relpath(path.parent, ROOT)}"
    html = CODE.sub(rf'href="{there}/\1"', html)
    html = html.replace('"practice_gpus/README.md', '"practice_gpus.md')
    return LINK.sub(r"\1\2.html", html).replace('"README.html', '"index.html')


def lifted(html: str, part: re.Pattern, mark: str) -> str:
    """Return the page `html` with its `part` at `mark`, where it has both."""
    found = part.search(html) if mark in html else None
    return html.replace(found[0], "", 1).replace(mark, found[0], 1) if found else html


def anchored(html: str) -> str:
    """Return the page `html` with an anchor at the first panel of each message that is explained in it."""
    known: set[str] = set()

    def named(found: re.Match) -> str:
        name = "error-" + re.sub(r"\W+", "-", found[3].lower()).strip("-")
        fresh = name not in known
        known.add(name)
        return found[1] + f' id="{name}"' * fresh + found[2] + found[3]

    return MESSAGE.sub(named, html)


def sections(html: str) -> str:
    """Return a fold that lists the sections of the page `html`; nothing where it has fewer than three."""
    items = [f'<li><a href="#{at}">{name}</a></li>' for at, name in SECTION.findall(html)]
    fold = f'<details class="sections"><summary>On this page</summary><ul>{"".join(items)}</ul></details>'
    return fold if len(items) > 2 else ""


def chart(output: Any) -> str:
    """Return a chart as HTML: its picture, until a script puts the living one in its place."""
    alt = escape(output.metadata.get("image/png", {}).get("alt", ""))
    options = output.metadata.get(VEGALITE, {}).get("embed_options", {})
    still = f'<img alt="{alt}" src="data:image/png;base64,{output.data["image/png"]}">'
    return f"{opened(output.data[VEGALITE], options)}{still}</div>"


def opened(spec: dict, embed_options: dict) -> str:
    """Return the tag that a script looks for to draw the chart `spec` in it."""
    texts = (escape(json.dumps(each)) for each in (spec, embed_options))
    return '<div class="chart course-figure" data-spec="{}" data-options="{}">'.format(*texts)


def guessed(html: str, kept: dict) -> str:
    """Return a reveal without a guess as HTML whose last figure comes alive where its fold is opened."""
    before, tag, after = html.rpartition('<div class="course-figure')
    return before + opened(**kept) + after.partition(">")[2]


def embedded(picture: Path) -> str:
    """Return a picture as a data: address. nbconvert's own embedding moves what is folded out of its fold."""
    kind = mimetypes.guess_type(picture.name)[0]
    return f"data:{kind};base64,{base64.b64encode(picture.read_bytes()).decode('ascii')}"
