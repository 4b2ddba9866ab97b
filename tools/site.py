"""Write the lessons as web pages, from their stored outputs: nothing is executed or fetched, no script is needed."""

import base64
import os
import re
import sys
from html import escape
from pathlib import Path

from helpers import files
from tools import _notebooks
from tools._environment import ROOT

MARK = b'content="gpus-in-pytorch"'  # on every page, by the template
HELP = "write the lessons as web pages, to read without running them"


def add_arguments(parser):
    """Add the options of `site`."""
    parser.add_argument(
        "folder", type=Path, help="where the pages go, all side by side; begin at index.html"
    )


def page(path, exporter):
    """Return a notebook or Markdown file as HTML: links between files lead to pages, anchors are in small letters."""
    from nbformat import v4

    if path.suffix == ".ipynb":
        notebook = _notebooks.read(path)
    else:
        text = path.read_text(encoding="utf-8")
        notebook = v4.new_notebook(cells=[v4.new_markdown_cell(text)])
    title = escape(notebook.cells[0].source.partition("\n")[0].removeprefix("# "))
    html, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    html = re.sub(
        r'(<a [^>]*href=")(?:\.\./|notebooks/)?([\w-]+)\.(?:ipynb|md)(?=["#])', r"\1\2.html", html
    )
    html = html.replace('"practice_gpus/README.md"', '"practice_gpus.html"')
    html = with_pictures(without_scripts(html), path.parent)
    html = re.sub(r'(<h\d id="|href="[^":]*#)([^"]+)', lambda part: part[1] + part[2].lower(), html)
    return html.replace('"README.html', '"index.html')


def with_pictures(html, folder):
    """Return a page that holds its own PNG pictures, which lie in `folder`."""

    def embedded(match):
        content = base64.b64encode((folder / match[1]).read_bytes()).decode("ascii")
        return f'src="data:image/png;base64,{content}"'

    return re.sub(r'src="([\w./-]+\.png)"', embedded, html)


def without_scripts(html):
    """Return a page without anything that runs or loads: scripts, frames, handlers of events, links to scripts."""
    from bs4 import BeautifulSoup  # comes with nbconvert

    page = BeautifulSoup(html, "html.parser")
    for part in page.find_all(["script", "iframe", "object", "embed", "form", "base", "link"]):
        part.decompose()
    for part in page.find_all(True):
        for name, value in list(part.attrs.items()):
            runs = re.match(r"\s*(javascript|vbscript|data:text)", str(value), flags=re.I)
            if name.lower().startswith("on") or runs:
                del part[name]
    return str(page)


def is_table(text):
    """Tell whether a printed text has three columns or more, draws with lines or is a program: it must not wrap."""
    return bool(re.search(r"\S {2,}\S.* {2,}\S|\+-{3}|-{9}|(?m:^import )", text))


def with_folds(html):
    """Return printed sentences with their indented line breaks marked: a phone, too narrow for them, hides them."""
    return re.sub(r"\n {10}(?=\S)", r' <span class="fold">\g<0></span>', html)


def in_the_way(folder, names):
    """Return those of `names` in `folder` that this command did not write."""
    existing = [folder / name for name in names if os.path.lexists(folder / name)]
    return [path.name for path in existing if path.is_symlink() or not ours(path)]


def ours(path):
    """Tell whether a file is one that this command wrote."""
    if not path.is_file():
        return False
    text = path.read_bytes()
    return MARK in text or text == (ROOT / "LICENSE").read_bytes()


def run(args):
    """Write the pages; return 2 when the folder cannot be written or holds other files of these names."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        raw_template=Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8"),
        filters={"is_table": is_table, "with_folds": with_folds},
    )
    pages = {path.stem: path for path in [*(ROOT / "notebooks").glob("*.md"), *_notebooks.find()]}
    package = ROOT / "practice_gpus"
    pages |= {"practice_gpus": package / "README.md"}
    pages |= {name: package / f"{name}.md" for name in ("IMITATES", "HOW_IT_WORKS")}
    pages = {"index": ROOT / "README.md", **pages}
    try:
        args.folder.mkdir(parents=True, exist_ok=True)
        foreign = in_the_way(args.folder, ["LICENSE", *(f"{name}.html" for name in pages)])
        if foreign:
            raise FileExistsError(
                f"{args.folder} holds files that this command did not write: {', '.join(foreign)}. Name another folder."
            )
        files.write(args.folder / "LICENSE", (ROOT / "LICENSE").read_bytes())
        for name, path in pages.items():
            files.write(args.folder / f"{name}.html", page(path, exporter))
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(pages)} pages, first {args.folder / 'index.html'}")
