"""Every link leads somewhere: files and headings that exist, described links, https, and launch links that agree."""

import html
import re
from urllib.parse import unquote, urlsplit

import mistune
import pytest

from course import pages as course
from course.tools import ROOT, _notebooks, publish

TEXTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("notebooks/*.md"))]
PATHS = [*TEXTS, *_notebooks.find()]
CODE_TEXT = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("helpers", "course", "practice_gpus/src", "notebooks/scripts")
    for kind in ("*.py", "*.txt")
    for path in (ROOT / folder).rglob(kind)
)
parse = mistune.create_markdown(renderer=None, plugins=["table", "strikethrough"])


def walk(tokens):
    """Yield every token of a Markdown tree."""
    for token in tokens:
        yield token
        yield from walk(token.get("children", ()))


def words(token):
    """Return the text that a reader sees of a token; of a picture, its alternative text."""
    return token.get("raw", "") + "".join(map(words, token.get("children", ())))


def read(path):
    """Return (Markdown, stored HTML outputs) of a notebook or a Markdown file, each one text."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8"), ""
    cells = _notebooks.read(path).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown = "\n".join(output.get("data", {}).get("text/html", "") for output in outputs)
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown"), shown


def links(markdown, shown=""):
    """Return [(words, address)] of every link in Markdown, in HTML inside it and in stored HTML outputs."""
    found, raw = [], ""
    for token in walk(parse(markdown)):
        if token["type"] in ("link", "image"):
            found.append((words(token), token["attrs"]["url"]))
        elif token["type"] in ("inline_html", "block_html"):
            raw += token["raw"] + "\n"
    tags = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', raw + shown, flags=re.S)
    for address, text in tags:
        found.append((re.sub("<[^>]+>", "", text) or "?", html.unescape(address)))
    return found


def anchors(markdown, suffix):
    """Return the anchors of all headings: of notebooks as JupyterLab makes them, of Markdown files as GitHub does."""
    headings = [words(token) for token in walk(parse(markdown)) if token["type"] == "heading"]
    if suffix == ".ipynb":
        return [heading.replace(" ", "-") for heading in headings]
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def inside(address, path):
    """Return what is wrong with an address inside the course, as seen from the file at `path`, or None."""
    file, _, anchor = unquote(address).partition("#")
    target = (path.parent / file).resolve() if file else path
    if ROOT not in target.parents or not target.exists():
        return f"no such file: {address}"
    count = anchors(read(target)[0], target.suffix).count(anchor) if anchor else 1
    return None if count == 1 else f"{count} headings for the anchor: {address}"


def outside(address):
    """Return what is wrong with an address of another place, or None."""
    parts = urlsplit(address)
    if parts.scheme == "attachment":  # a picture inside the notebook
        return None
    if parts.scheme != "https":
        return f"not https: {address}"
    if re.search(r"[\s<>\"`{}|\\^]|[.,;:]$", address):
        return f"malformed: {address}"
    return None


def problems(markdown, shown, path):
    """Return a text for everything that is wrong with the links of one file."""
    wrong = []
    for text, address in links(markdown, shown):
        if address.startswith("attachment:"):
            continue  # a picture that the notebook's file holds
        wrong.append(outside(address) if urlsplit(address).scheme else inside(address, path))
        if not text.strip():
            wrong.append(f"no words: {address}")
    return list(filter(None, wrong))


@pytest.mark.parametrize("path", PATHS, ids=[path.name for path in PATHS])
def test_every_link_leads_somewhere(path):
    markdown, shown = read(path)
    assert links(markdown, shown) or path.suffix == ".md"
    assert problems(markdown, shown, path) == []


def test_notebooks_named_in_code_are_there():
    named = set(re.findall(r"\b\d\d_\w+\.ipynb", CODE_TEXT))
    assert named and named - {path.name for path in PATHS} == set()


# launch links


def launch_links(markdown):
    """Return {name: target} of the launch badges and links in Markdown."""
    badge = re.findall(r"\[!\[Open in (\w+)\]\([^)]+\)\]\(([^)]+)\)", markdown)
    return dict(badge or re.findall(r"\[(Colab|Kaggle|Binder)\]\(([^)]+)\)", markdown))


def launched(target):
    """Return (repository, tag, file) that a launch link opens, read from the address alone."""
    parts = r"([\w-]+/[\w.-]+)(?:/blob)?/([^/?]+)(?:\?urlpath=lab/tree)?/(notebooks/[^/]+)$"
    return re.search(parts, unquote(target)).groups()


@pytest.mark.parametrize("file", [each.file for each in course.NOTEBOOKS])
def test_a_lesson_links_to_itself_elsewhere(file):
    page = _notebooks.read(_notebooks.FOLDER / file)
    assert "OWNER_NAME" not in page.cells[0].source, "a link that leads nowhere"
    first = publish.stamp_notebook(page, "someone/their-copy", file).cells[0].source
    own = launch_links(first)
    assert own == publish.launches("someone/their-copy", file)
    place = ("someone/their-copy", publish.release(), f"notebooks/{file}")
    assert {launched(target) for target in own.values()} == {place}
    assert first.index("<details>") < first.index("Colab"), "not folded away"
    assert "![" not in first.partition(publish.CLOSE)[0], "a picture that is broken without network"


def test_readme_names_every_page_and_has_one_badge():
    """Who reads it in sixty seconds sees a path and one thing to press; no page is out of reach."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in course.NOTEBOOKS:
        assert text.count(f"](notebooks/{page.file})") == 1, page.file
    assert "OWNER_NAME" not in text, "a link that leads nowhere"
    start = publish.start("someone/their-copy")
    to = publish.launches("someone/their-copy", course.NOTEBOOKS[0].file)["Colab"]
    assert launch_links(start) == {"Colab": to}
    published = text.replace(publish.start(course.REPOSITORY), start)
    assert launch_links(published) == {"Colab": to} and len(published.split()) <= 700
