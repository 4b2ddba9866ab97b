"""Write the lessons as web pages from their stored outputs, with nbconvert: nothing is executed."""

import argparse
import base64
import json
import mimetypes
import os
import re
from html import escape
from pathlib import Path

from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from nbformat import v4

from course import files
from course.pages import NOTEBOOKS, REPOSITORY
from course.show.vega import VEGALITE
from course.tools import ROOT, _notebooks
from course.tools._arguments import folder

HELP = "write the lessons as web pages, to read without running them"
CODE = re.compile(r'href="((?:[\w-]+/)+[\w-]+\.(?:py|json)|LICENSE)"')
SEARCH = """<p><label>Search all pages: <input type="search" id="search"></label></p><ul id="found"></ul>
<script>
const pages = PAGES;
document.getElementById('search').addEventListener('input', event => {
    const asked = event.target.value.trim().toLowerCase();
    const rows = asked.length < 2 ? [] : pages.filter(([, , words]) => words.toLowerCase().includes(asked));
    document.getElementById('found').replaceChildren(...rows.map(([file, title, words]) => {
        const item = document.createElement('li'), link = document.createElement('a');
        const at = words.toLowerCase().indexOf(asked);
        link.href = file;
        link.textContent = title;
        item.append(link, ` … ${words.slice(Math.max(0, at - 60), at + 80)} …`);
        return item;
    }));
});
</script>"""
PICTURE = re.compile(r'(<img [^>]*src=")(?!data:|https?:)([^"]+)')
LINK = re.compile(r'(<a [^>]*href=")(?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md)(?=["#])')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `site`."""
    parser.add_argument("folder", type=folder, help="where the pages go; begin at index.html")


def run(args: argparse.Namespace) -> int:
    """Write the pages; WrongCall, before the first, when the folder holds other files of these names."""
    template = Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8")
    exporter = HTMLExporter(raw_template=template)
    texts = [*_notebooks.FOLDER.glob("*.md"), *(ROOT / "practice_gpus").glob("[HI]*.md")]
    pages = {path.stem: path for path in [*texts, *_notebooks.find()]}
    places = {"index": "README", "CONTRIBUTING": "CONTRIBUTING"}
    places["practice_gpus"] = "practice_gpus/README"
    pages |= {name: ROOT / f"{place}.md" for name, place in places.items()}
    args.folder.mkdir(parents=True, exist_ok=True)
    targets = {args.folder / f"{name}.html": path for name, path in pages.items()}
    _notebooks.refuse_others(targets)
    written = {target: page(path, exporter) for target, path in targets.items()}
    for target, html in written.items():
        html = html.replace("<!-- neighbors -->", neighbors(target.stem), 1)
        if target.stem == "index":
            html = html.replace("<!-- search -->", SEARCH.replace("PAGES", words_of(written)), 1)
        files.write(target, html)
    print(f"{len(pages)} pages, first {args.folder / 'index.html'}")
    return 0


def neighbors(name: str) -> str:
    """Return links to the pages before and behind the lesson `name`; empty for other pages."""
    names = [each.file.removesuffix(".ipynb") for each in NOTEBOOKS]
    if name not in names:
        return ""
    at = names.index(name)
    places = (("← ", at - 1), ("→ ", at + 1))
    return "".join(
        f' · <a href="{names[i]}.html">{arrow}{escape(NOTEBOOKS[i].title)}</a>'
        for arrow, i in places
        if 0 <= i < len(names)
    )


def words_of(written: dict[Path, str]) -> str:
    """Return the pages' [file, title, words] as a literal of JavaScript, for the search in index.html."""
    rows = []
    for target, html in written.items():
        main = BeautifulSoup(html, "html.parser").find("main")
        words = " ".join(main.get_text(" ").split()) if main else ""
        rows.append([target.name, words.partition("¶")[0].strip()[:60], words])
    return json.dumps(rows, ensure_ascii=False).replace("<", "\\u003c")


def page(path: Path, exporter: HTMLExporter) -> str:
    """Return a notebook or Markdown file as HTML, its charts alive, its links to other files leading to pages."""
    if path.suffix == ".ipynb":
        notebook = _notebooks.read(path)
    else:
        notebook = v4.new_notebook(cells=[v4.new_markdown_cell(path.read_text(encoding="utf-8"))])
    for output in (o for cell in notebook.cells for o in cell.get("outputs", [])):
        if VEGALITE in output.get("data", {}):
            spec = escape(json.dumps(output.data[VEGALITE]))
            output.data["text/html"] = f'<div class="chart" data-spec="{spec}"></div>'
    title = escape(notebook.cells[0].source.partition("\n")[0].removeprefix("# "))
    names = {"metadata": {"name": title, "path": str(path.parent)}}
    html, _ = exporter.from_notebook_node(notebook, names)
    html = PICTURE.sub(lambda part: part[1] + embedded(path.parent / part[2]), html)
    html = re.sub(r'(<h\d id="|href="[^":]*#)([^"]+)', lambda part: part[1] + part[2].lower(), html)
    there = f"https://github.com/{REPOSITORY}/blob/main/{os.path.relpath(path.parent, ROOT)}"
    html = CODE.sub(rf'href="{there}/\1"', html)
    html = html.replace('"practice_gpus/README.md', '"practice_gpus.md')
    return LINK.sub(r"\1\2.html", html).replace('"README.html', '"index.html')


def embedded(picture: Path) -> str:
    """Return a picture as a data: address. nbconvert's own embedding moves what is folded out of its fold."""
    kind = mimetypes.guess_type(picture.name)[0]
    return f"data:{kind};base64,{base64.b64encode(picture.read_bytes()).decode('ascii')}"
