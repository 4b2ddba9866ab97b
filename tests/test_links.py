"""Every link leads somewhere: files and headings that exist, described links, https, and launch links that agree."""

import html
import re
from urllib.parse import unquote, urlsplit

import mistune
import pytest

from helpers import course
from helpers.commands import _notebooks, publish
from helpers.commands._environment import ROOT

TEXTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("notebooks/*.md"))]
PATHS = [*TEXTS, *_notebooks.find()]
CODE = sorted(
    path
    for folder in ("exercises", "helpers", "practice_gpus", "notebooks/scripts")
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
    shown = [
        output.data["text/html"]
        for cell in cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown"), "\n".join(
        shown
    )


def links(markdown, shown=""):
    """Return [(words, address)] of every link in Markdown, in HTML inside it and in stored HTML outputs."""
    tokens = list(walk(parse(markdown)))
    found = [
        (words(token), token["attrs"]["url"])
        for token in tokens
        if token["type"] in ("link", "image")
    ]
    raw = "\n".join(
        token["raw"] for token in tokens if token["type"] in ("inline_html", "block_html")
    )
    tags = re.findall(r'<a [^>]*?href="([^"]*)"[^>]*>(.*?)</a>', raw + shown, flags=re.S)
    return found + [
        (re.sub("<[^>]+>", "", text) or "?", html.unescape(address)) for address, text in tags
    ]


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
    known = anchors(read(target)[0], target.suffix) if anchor else [anchor]
    return (
        None
        if known.count(anchor) == 1
        else f"{known.count(anchor)} headings for the anchor: {address}"
    )


def outside(address):
    """Return what is wrong with an address of another place, or None."""
    parts = urlsplit(address)
    if parts.scheme != "https":
        return f"not https: {address}"
    if re.search(r"[\s<>\"`{}|\\^]|[.,;:]$", address):
        return f"malformed: {address}"
    return None


def problems(markdown, shown, path):
    """Return a text for everything that is wrong with the links of one file."""
    wrong = [
        inside(address, path) if not urlsplit(address).scheme else outside(address)
        for _, address in links(markdown, shown)
    ]
    wrong += [f"no words: {to}" for text, to in links(markdown, shown) if not text.strip()]
    return list(filter(None, wrong))


@pytest.mark.parametrize("path", PATHS, ids=[path.name for path in PATHS])
def test_every_link_leads_somewhere(path):
    markdown, shown = read(path)
    assert links(markdown, shown) or path.suffix == ".md"
    assert problems(markdown, shown, path) == []


def test_addresses_in_code_are_https():
    found = {
        address.rstrip(".,:;")
        for path in CODE
        for address in re.findall(r"https?://[^\s\"'<>)`]+", path.read_text(encoding="utf-8"))
    }
    assert found
    assert [wrong for address in found if (wrong := outside(re.sub(r"\{.*", "", address)))] == []


def test_notebooks_named_in_code_are_there():
    named = {
        name
        for path in CODE
        for name in re.findall(r"\b\d\d_\w+\.ipynb", path.read_text(encoding="utf-8"))
    }
    assert named and named - {path.name for path in PATHS} == set()


# launch links


def launch_links(markdown):
    """Return {name: target} of the launch badges and links in Markdown."""
    badge = re.findall(r"\[!\[Open in (\w+)\]\([^)]+\)\]\(([^)]+)\)", markdown)
    return dict(badge or re.findall(r"\[(Colab|Kaggle|Binder)\]\(([^)]+)\)", markdown))


def launched(target):
    """Return (repository, tag, file) that a launch link opens, read from the address alone."""
    return re.search(
        r"([\w-]+/[\w.-]+)(?:/blob)?/([^/?]+)(?:\?urlpath=lab/tree)?/(notebooks/[^/]+)$",
        unquote(target),
    ).groups()


@pytest.mark.parametrize("file", [each.file for each in course.NOTEBOOKS])
def test_a_lesson_links_to_itself_elsewhere_as_the_readmes_badges_do(file):
    first = _notebooks.read(_notebooks.FOLDER / file).cells[0].source
    own = launch_links(first)
    assert own == publish.launches(course.REPOSITORY, file)
    assert {launched(target) for target in own.values()} == {
        (course.REPOSITORY, publish.release(), f"notebooks/{file}")
    }
    assert first.index("<details>") < first.index("Colab"), "not folded away"
    assert "![" not in first.partition(publish.CLOSE)[0], "a picture that is broken without network"
    [row] = [
        line
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if f"/{file})" in line
    ]
    assert launch_links(row) == own


def test_one_address_everywhere():
    owner, name = course.REPOSITORY.split("/")
    texts = "\n".join(
        [*(read(path)[0] for path in PATHS), *(path.read_text(encoding="utf-8") for path in CODE)]
    )
    assert set(re.findall(rf"(?:github(?:\.com)?|gh)/([\w.-]+)/{re.escape(name)}\b", texts)) == {
        owner
    }
