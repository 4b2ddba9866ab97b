"""The site: every page reads well without a kernel, without a network and without a script."""

import re
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from helpers import __main__ as door
from tools import _notebooks
from tools import site as site_command

PATHS = _notebooks.find()
PAGES = [
    "index",
    "INSTRUCTORS",
    "practice_gpus",
    "IMITATES",
    "HOW_IT_WORKS",
    *(path.stem for path in PATHS),
]
BADGES = {"colab.research.google.com", "mybinder.org", "kaggle.com", "www.kaggle.com"}
each_page = pytest.mark.parametrize("name", PAGES)
each_lesson = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the whole site, written once."""
    target = tmp_path_factory.mktemp("site") / "new"
    assert door.main(["site", str(target)]) == 0
    return target


@pytest.fixture(scope="module")
def site(folder):
    """Return {file without its ending: its parsed text}."""
    return {
        path.stem: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in folder.iterdir()
    }


def lost(site, name):
    """Return the links of one page that lead to no page of the site, or to no heading of it or to several."""
    wrong = []
    for link in site[name].select("a[href]"):
        file, _, anchor = unquote(link["href"]).partition("#")
        target = site.get(file.removesuffix(".html") if file else name)
        inside = not urlsplit(link["href"]).scheme
        if inside and (target is None or (anchor and len(target.find_all(id=anchor)) != 1)):
            wrong.append(link["href"])
    return wrong


@each_page
def test_links_lead_to_pages_and_headings(site, name):
    assert lost(site, name) == []
    assert {"index.html"} <= {link["href"] for link in site[name].select("a[href]")}


@each_page
def test_nothing_from_elsewhere_is_needed(folder, site, name):
    assert site[name].select("script, link, iframe, object, embed") == []
    sources = {urlsplit(picture["src"]) for picture in site[name].select("[src]")}
    assert {source.netloc for source in sources if source.scheme != "data"} <= BADGES
    html = (folder / f"{name}.html").read_text(encoding="utf-8")
    assert not re.search(r"@import|url\(['\"]?(?!data:|#)\w+:", html)


@each_lesson
def test_a_page_shows_every_cell_figure_and_printed_line(site, path):
    cells, shown = _notebooks.read(path).cells, site[path.stem]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert len(shown.select(".jp-Cell")) == len(cells)
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(shown.select(".jp-RenderedImage img[src^='data:image/png;base64,']")) == len(figures)
    text = " ".join(shown.get_text().split())
    printed = [" ".join(output.text.split()) for output in outputs if "text" in output]
    assert [each for each in printed if each not in text] == []


@each_lesson
def test_an_answer_is_folded_until_the_reader_has_guessed(site, path):
    folded = site[path.stem].select("details.answer")
    jupyter = [cell.metadata.get("jupyter", {}) for cell in _notebooks.read(path).cells]
    assert len(folded) == len([each for each in jupyter if each.get("outputs_hidden")])
    assert all(part.select(".jp-OutputArea-output") for part in folded)


def test_sentences_wrap_on_a_phone_and_tables_do_not():
    assert not site_command.is_table("Asking takes 2 ms, the work 189 ms.\nCause     it is long")
    assert site_command.is_table("Name        Self CPU      Calls\nconv2d      3 ms          10")
    assert site_command.is_table("import torch\nprint(torch.ones(2))"), "a program stays lines"


def test_a_phone_drops_the_line_breaks_of_a_wide_page():
    broken = "Cause     it is\n          long\nFix       none\n          \n"
    fold = '<span class="fold">\n          </span>'
    marked = f"Cause     it is {fold}long\nFix       none\n          \n"
    assert site_command.with_folds(broken) == marked


@each_page
def test_no_object_of_python_stands_for_a_widget(site, name):
    shown = "\n".join(part.get_text() for part in site[name].select(".jp-OutputArea-output"))
    objects = r"interactive\(|[VH]Box\(|Output\(\)|widget-view|<\w+(?:\.\w+)+ (?:object )?at 0x"
    assert re.findall(objects, shown) == []


def test_pages_of_others_stay_and_its_own_are_written_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_notebooks, "find", lambda: [])
    assert door.main(["site", str(tmp_path)]) == 0
    assert door.main(["site", str(tmp_path)]) == 0
    (tmp_path / "INSTRUCTORS.html").write_text("<h1>Mine</h1>")
    (tmp_path / "LICENSE").write_text("my license")
    (tmp_path / "index.html").unlink()
    assert door.main(["site", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "LICENSE, INSTRUCTORS.html" in told and "Name another folder" in told
    assert not (tmp_path / "index.html").exists(), "written beside what is in the way"
    assert (tmp_path / "INSTRUCTORS.html").read_text() == "<h1>Mine</h1>"


def test_what_runs_or_loads_is_taken_out_of_a_page():
    text = (
        "<h1 onclick='x()'>A &lt;b&gt;</h1><script>x()</script><iframe src='x'></iframe>"
        "<a href=' JavaScript:x()'>go</a><a href='https://pytorch.org'>on</a><img src='data:image/png;base64,A'>"
    )
    assert site_command.without_scripts(text) == (
        "<h1>A &lt;b&gt;</h1><a>go</a>"
        '<a href="https://pytorch.org">on</a><img src="data:image/png;base64,A"/>'
    )
