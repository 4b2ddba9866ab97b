"""Write the lessons as web pages, from their stored outputs: nothing is executed or fetched, no script is needed."""

import re
import sys
from pathlib import Path

from helpers import files
from helpers.commands import _notebooks
from helpers.commands._environment import ROOT

HELP = "write the lessons as web pages, to read without running them"


def add_arguments(parser):
    """Add the options of `site`."""
    parser.add_argument(
        "folder", type=Path, help="where the pages go, all side by side; begin at index.html"
    )


def page(path, exporter):
    """Return a notebook or Markdown file as HTML: links between files lead to pages, anchors are in small letters."""
    from nbformat import v4

    notebook = (
        _notebooks.read(path)
        if path.suffix == ".ipynb"
        else v4.new_notebook(cells=[v4.new_markdown_cell(path.read_text(encoding="utf-8"))])
    )
    title = notebook.cells[0].source.partition("\n")[0].removeprefix("# ")
    html, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    html = re.sub(
        r'(<a [^>]*href=")(?:\.\./|notebooks/)?([\w-]+)\.(?:ipynb|md)(?=["#])', r"\1\2.html", html
    )
    html = re.sub(r'(<h\d id="|href="[^":]*#)([^"]+)', lambda part: part[1] + part[2].lower(), html)
    return html.replace('"README.html', '"index.html')


def run(args):
    """Write the pages; return 2 when the folder cannot be written."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        raw_template=Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8")
    )
    pages = {path.stem: path for path in [*(ROOT / "notebooks").glob("*.md"), *_notebooks.find()]}
    try:
        args.folder.mkdir(parents=True, exist_ok=True)
        (args.folder / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
        for name, path in {"index": ROOT / "README.md", **pages}.items():
            files.write(args.folder / f"{name}.html", page(path, exporter))
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(pages) + 1} pages, first {args.folder / 'index.html'}")
