"""The site: every page reads well without a kernel and without a network, and its charts answer there."""

import json
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from nbformat import v4

from course import __main__ as door
from course.pages import NOTEBOOKS, blocks, number_of
from course.show.vega import KEPT, VEGALITE
from course.tools import ROOT, _guesses, _notebooks, _reading, publish, slides
from course.tools import site as site_command

PATHS = _notebooks.find()
TEXTS = ["index", "INSTRUCTORS", "CONTRIBUTING", "practice_gpus", "IMITATES", "HOW_IT_WORKS"]
FEW = ("00", "04")  # the lessons of the default lane; all pages are written in the slow lane
MARKED = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (number_of(path.stem) not in FEW))
    for path in PATHS
]
each_lesson = pytest.mark.parametrize("path", MARKED)
each_page = pytest.mark.parametrize("path", [*map(Path, TEXTS), *MARKED])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, request):
    """Return the folder of the site, written once; in the default lane, with few lessons."""
    target = tmp_path_factory.mktemp("site") / "new"
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("all"):
            few = _notebooks.find(FEW)
            patch.setattr(_notebooks, "find", lambda names=(): few)
        assert door.main(["site", str(target)]) == 0
    return target


@pytest.fixture(scope="module")
def site(folder):
    """Return {file without its ending: its parsed text}."""
    return {
        path.stem: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in folder.glob("*.html")
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


@pytest.mark.slow
@each_page
def test_links_lead_to_pages_and_headings(site, path):
    assert lost(site, path.stem) == []
    assert {"index.html"} <= {link["href"] for link in site[path.stem].select("a[href]")}


@each_page
def test_a_page_reads_without_a_network(site, folder, path):
    """Nothing is fetched: looks, scripts and pictures lie in the page or beside it."""
    page = site[path.stem]
    assert page.select("iframe, object, embed") == []
    assert [script["src"] for script in page.select("script[src]")] == ["site.js"]
    assert [link["href"] for link in page.select("link:not([rel=icon])")] == ["course.css"]
    assert page.select("link[rel=icon][href^='data:']")
    assert not re.search(r"@import|url\(.?(https?:)?//", (folder / "course.css").read_text("utf-8"))
    assert "vegaEmbed =" in (folder / "vega.js").read_text("utf-8")
    sources = {urlsplit(picture["src"]) for picture in page.select("img[src]")}
    assert {source.netloc for source in sources if source.scheme != "data"} <= {""}
    beside = [each["srcset"] for each in page.select("source[srcset]:not([srcset^='data:'])")]
    beside += [source.path for source in sources if source.scheme != "data"]
    assert all((folder / name).is_file() for name in beside)


def test_a_visitor_finds_every_page_with_its_minutes_and_both_doors(site):
    rows = {row.a["href"]: row.get_text() for row in site["index"].select(".map li")}
    assert list(rows) == [
        f"{Path(each.file).stem}.html" for block in blocks().values() for each in block
    ]
    for each in NOTEBOOKS:
        row = rows[f"{Path(each.file).stem}.html"]
        assert each.summary.replace("`", "") in row and (
            not each.minutes or f"{each.minutes} min" in row
        )
    doors = [door["href"] for door in site["index"].select(".doors a")]
    assert doors == ["00_start_here.html", "practice_gpus.html"]
    assert len(site["index"].select("a.button")) == 1


def test_the_first_page_is_light_and_keeps_the_answers_of_page_00(folder, site):
    """A fold showed page 00's film, answers included; and its foot led to itself."""
    assert (folder / "index.html").stat().st_size < 200_000
    assert not [each for each in site["index"].select("img") if ".gif" in each["src"]]
    assert site["index"].select("footer a") == [] and site["00_start_here"].select("footer a")


def test_an_unpublished_site_says_so_instead_of_naming_a_button_that_it_lacks(site):
    page = site["00_start_here"].select_one("#run")
    start = site["index"].get_text()
    if publish.known() is None:
        assert "python3 lab.py" in page.get_text() and "isn't published yet" in start
        assert "green" not in start


def shown(notebook):
    """Return the parsed page of a notebook."""
    import nbformat
    from nbconvert import HTMLExporter

    template = (ROOT / "course/tools/site.html.j2").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.ipynb")
        nbformat.write(notebook, path)
        html = site_command.page(path, HTMLExporter(raw_template=template))
    return BeautifulSoup(html, "html.parser")


@each_lesson
def test_a_page_shows_every_cell_figure_and_printed_line(site, path):
    cells, shown = _notebooks.read(path).cells, site[path.stem]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert len(shown.select(".jp-Cell")) == len(cells)
    kinds = [output.get("data", {}).keys() for output in outputs]
    kept = sum(KEPT in output.get("metadata", {}) for output in outputs)
    charts = kept + sum(VEGALITE in kind for kind in kinds)
    assert all(chart.img["alt"] for chart in shown.select(".chart")), "read where no script runs"
    pictures = sum("image/png" in kind and VEGALITE not in kind for kind in kinds)
    assert len(shown.select(".chart")) == charts
    assert len(shown.select(".jp-RenderedImage img[src^='data:image/png;base64,']")) == pictures
    text = " ".join(shown.get_text().split())
    printed = [" ".join(output.text.split()) for output in outputs if "text" in output]
    printed = [each for each in printed if _reading.OWN_CODE not in each]
    assert [each for each in printed if each not in text] == []


@each_lesson
def test_an_answer_is_folded_once_until_the_reader_has_guessed(site, path):
    folded = site[path.stem].select("details.answer")
    for part in folded:
        assert part.select(".jp-OutputArea-output") and not part.select(".reveal")
    hidden = [
        c for c in _notebooks.read(path).cells if "outputs_hidden" in c.metadata.get("jupyter", {})
    ]
    asking = [c for c in hidden if "<summary>Show anyway" in json.dumps(c.outputs)]
    assert len(folded) == len(hidden) - len(asking)


@each_lesson
def test_code_that_names_an_answer_is_folded_and_nobody_is_told_to_run_a_cell(site, path):
    """`guess.reveal("43%")` stood open below its question, and below each exercise "run it again"."""
    cells = _notebooks.read(path).cells
    for cell, part in zip(cells, site[path.stem].select(".jp-Cell"), strict=True):
        if "source_hidden" in cell.metadata.get("jupyter", {}) or ".reveal(" in cell.source[:20]:
            assert len(part.select(".highlight")) <= len(part.select("details .highlight"))
    texts = site[path.stem].main.find_all(string=True)
    told = "".join(each for each in texts if not each.find_parent(class_=["solution", "highlight"]))
    assert not re.search("run it again|[Rr]un (this|the next) cell|gray bar|Not attempted", told)
    for part in site[path.stem].select("p, summary"):
        if re.search("folder icon|the cell above|both cells", part.get_text()):
            assert part.select("a[href='#run']"), part.get_text()


def test_code_that_only_asks_and_answers_is_gone_and_what_teaches_stays():
    """Half of a page's code was `guess = predict(…)` and `guess.reveal(…)`."""
    asks = [
        'guess = predict("00.a", "?", ["a", "b"])',
        'choices = ["a"]\nguess.reveal("a", because="b")',
    ]
    teaches = ["x = torch.ones(3)\nguess.reveal(x.sum())", "%timeit x", "y = [x, x]", "x + y"]
    draws = "figures.show_cards()"
    imports = "import torch\nfrom course.lesson00 import figures"
    notebook = v4.new_notebook(
        cells=[v4.new_code_cell(each) for each in [imports, *asks, *teaches, draws]]
    )
    asked = v4.new_markdown_cell('```python\nb.to("cuda")\n```')
    again = v4.new_code_cell('b.to("cuda")\nguess.reveal("a")')
    notebook.cells += [asked, again]
    _reading.readable(notebook, "00")
    assert again.metadata["code"] == "none", "the code stands above its question"
    kinds = [cell.metadata["code"] for cell in notebook.cells[1:-2]]
    assert kinds == ["none"] * 2 + [""] * 4 + ["Code"]


@each_lesson
def test_each_exercise_has_its_solution_in_a_fold(site, path):
    """Without a kernel there was no button that shows it, and "Not attempted yet" stood in its place."""
    checks = sum(len(_reading.CHECKED.findall(cell.source)) for cell in _notebooks.read(path).cells)
    folds = site[path.stem].select("details.solution")
    assert len(folds) == checks and all(fold.select(".highlight") for fold in folds)


@each_lesson
def test_a_page_asks_for_a_slider_or_a_button_only_where_it_has_one(site, path):
    """05 said "Move the slider" above a figure that stood still."""
    page = site[path.stem]
    assert "Keep it." not in page.main.get_text().replace("Keep it, and", "")
    for told in page.main.find_all(["p", "div"]):
        if re.search("[Mm]ove the slider|drag the slider|Turn the controls", told.get_text()):
            if not told.find(["p", "div"]):
                kinds = ["guess", "chart", "course-still"]
                around = [told.find_next(class_=kinds), told.find_previous(class_=kinds[:2])]
                assert any(
                    each and (each.select("[type=range]") or '"range"' in each.get("data-spec", ""))
                    for each in around
                ), told.get_text()


@each_lesson
def test_a_page_says_where_it_is_and_asks_only_for_what_a_site_can_do(site, path):
    """A stranger's progress code, Shift+Enter, exercises without a way to run them, and set-up code came first."""
    page, name = site[path.stem], number_of(path.stem)
    text = page.get_text()
    assert page.title.get_text().startswith(f"{name} ")
    assert page.main.find(True).name == "h1", "what stood above it filled half a phone"
    place, lesson = (
        page.select_one("h1 + .place").get_text(),
        NOTEBOOKS[[n.number for n in NOTEBOOKS].index(name)],
    )
    assert place.startswith(f"Page {name}, {lesson.minutes} minutes") or not lesson.minutes
    assert [fold.summary.get_text() for fold in page.select(".place + .folds details")][:1] == [
        "All lessons"
    ]
    assert "P2-" not in text and "Shift+Enter runs" not in text and "Until you run" not in text
    tasks = [each.parent for each in page.select("em") if "difficulty" in each.get_text()]
    assert all(task.select("a[href='#run']") for task in tasks)
    code = [cell for cell in _notebooks.read(path).cells if cell.cell_type == "code"]
    setup = [fold for fold in page.select("details.code") if fold.summary.get_text() == "Set-up"]
    assert len(setup) == len(code[:1])
    assert page.select(".jp-Cell [tabindex], .jp-Cell[tabindex]") == []
    assert page.select_one("body > a").get("href") == f"#{page.main['id']}"
    assert all("deeper" not in link.get_text() for link in page.nav.select("a"))
    count = len(page.select(".sections a"))
    assert count == 0 or count == len(page.select("h2[id]"))


def test_readme_and_site_tell_one_length_of_the_path(site):
    told = site_command.hours(blocks()["The path"])
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert told in readme and told in site["index"].select_one(".doors").get_text()


@each_page
def test_every_fold_closes_around_what_it_folds(site, path):
    """Folds were empty, and what they should hide, answers among it, lay open below them."""
    for fold in site[path.stem].select("details"):
        summary = fold.find("summary").get_text()
        assert len(fold.get_text().strip()) > len(summary.strip()) or fold.select("img"), summary


def test_the_site_is_searched_without_a_network_and_pages_lead_on(folder, site):
    pages = (folder / "search.js").read_text(encoding="utf-8")
    found = json.loads(re.search("const pages = (.*);", pages)[1])
    assert not any(
        "Check for CUDA 01b" in words or "from course.lesson" in words for *_, words, _ in found
    )
    places = [address.partition("#") for address, *_ in found]
    assert {f"{name}.html" for name in site} == {file for file, _, _ in places}
    assert all(site[file.removesuffix(".html")].find(id=at) for file, _, at in places if at)
    assert any("pinned memory" in words.lower() for *_, words, _ in found)
    read = " ".join(f"{words} {code}" for *_, words, code in found)
    assert "In [" not in read and "/nav" not in read and "Answer: " not in read


def test_a_message_has_a_place_of_its_own_and_the_search_knows_it(tmp_path, monkeypatch):
    """A hit led to the head of a section with ten messages."""
    few = _notebooks.find(["91"])
    monkeypatch.setattr(_notebooks, "find", lambda names=(): few)
    assert door.main(["site", str(tmp_path)]) == 0
    page = BeautifulSoup((tmp_path / "91_troubleshooting.html").read_text("utf-8"), "html.parser")
    names = [panel["id"] for panel in page.select(".course-panel[id]")]
    assert len(names) == len(set(names)) > 15
    words = (tmp_path / "search.js").read_text("utf-8")
    assert all(f'"91_troubleshooting.html#{name}"' in words for name in names)
    assert all(
        "columns" not in pre.get("class", [])
        for pre in page.select("pre")
        if "Expected all" in pre.get_text()
    )


NEXT = {  # what a page leads on to, at its foot
    "00": ["01"],
    "01": ["00", "02", "01b"],
    "01b": ["01", "02"],
    "07": ["06", "08", "07b"],
    "07b": ["07", "08"],
    "08": ["07", "08b"],
    "92": [],
}


@pytest.mark.parametrize("number", NEXT)
def test_the_path_leads_along_the_path_and_a_deeper_page_back_to_it(number):
    """Who followed the arrow of 01 left the path for 01b, and found no way back."""
    [path] = _notebooks.find([number])
    links = BeautifulSoup(site_command.neighbors(path.stem), "html.parser").select("a")
    assert [number_of(link["href"]) for link in links] == NEXT[number]
    assert [link.get_text().startswith("deeper") for link in links] == [
        len(to) == 3 and number < "08" for to in NEXT[number]
    ]


def test_a_published_site_runs_a_page_in_one_click_and_an_unpublished_one_has_no_dead_link(
    tmp_path, monkeypatch, capsys
):
    """Links named OWNER_NAME, and "run this page" led to an installation."""
    few = _notebooks.find(["02"])
    monkeypatch.setattr(_notebooks, "find", lambda names=(): few)
    for address, count in (("someone/their-copy", 1), (None, 0)):
        monkeypatch.setattr(publish, "known", lambda address=address: address)
        assert door.main(["site", str(tmp_path / str(count))]) == 0
        assert ("OWNER/NAME" in capsys.readouterr().err) == (address is None)
        for name in ("index", few[0].stem):
            text = (tmp_path / str(count) / f"{name}.html").read_text(encoding="utf-8")
            page = BeautifulSoup(text, "html.parser")
            assert "OWNER_NAME" not in text
            assert page.select("img[src^=http]") == [], "a badge is fetched unasked"
            for place in ("colab.research", "mybinder"):
                links = page.select(f"main a[href*='{place}']")
                assert len(links) == count, "hosts are told once"
                file = "00_start_here" if name == "index" else name
                assert all("their-copy" in a["href"] and file in a["href"] for a in links)
            cloned = "git clone https://github.com/someone/their-copy" in page.get_text()
            assert cloned == bool(count) or name != "index"


@pytest.mark.parametrize(
    "remote",
    [
        "git@github.com:a-b/c.d.git",
        "https://github.com/a-b/c.d",
        "https://x@github.com/a-b/c.d.git/",
    ],
)
def test_a_clone_knows_its_address_by_its_remote(monkeypatch, remote):
    monkeypatch.setattr(publish.course, "REPOSITORY", "OWNER_NAME/x")
    for told, known in ((remote, "a-b/c.d"), ("https://example.org/a/b", None), ("", None)):
        done = SimpleNamespace(stdout=f"{told}\n")
        monkeypatch.setattr(publish.subprocess, "run", lambda *_, done=done, **__: done)
        assert publish.known() == known


@each_lesson
def test_every_stored_question_can_be_answered_and_judged_by_its_stored_answer(path):
    """Choices were dead circles; a wrong verdict would teach what is wrong."""
    stored = _notebooks.read(path)
    asked = json.dumps(stored.cells).count("<b>Predict:</b>")
    notebook = _notebooks.read(path)
    _guesses.alive(notebook)
    html = "".join(
        output.get("data", {}).get("text/html", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )
    assert "○ " not in html and "Show anyway" not in html and "What is your guess?" not in html
    page = BeautifulSoup(re.sub('data:image/[^"]*', "", html), "html.parser")
    judged = page.select("form.guess:has(input)")
    assert sum("Predict:" in form.legend.get_text() for form in judged) == asked
    for form in judged:
        answer = page.find(id=form["data-reveal"]).find("div").get_text().removeprefix("Answer: ")
        if "data-right" in form.attrs:
            assert answer.startswith(
                form.select("label")[int(form["data-right"])].get_text().strip()
            )
        else:
            assert answer.replace(",", "").startswith(form["data-actual"])


@each_lesson
def test_every_output_that_moves_has_a_picture_that_stands_still(path):
    """A chart, an explorer or a chart behind a guess left nothing where no script runs."""
    for cell in _notebooks.read(path).cells:
        before = ""
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            html = data.get("text/html", "")
            if KEPT in output.get("metadata", {}):
                assert re.search('<img alt="[^"]+"[^>]* src="data:image', before), cell.source
            elif "In a running notebook" in html:
                assert re.search('<img alt="[^"]+"[^>]* src="data:image', html), cell.source
            if VEGALITE in data or _notebooks.VIEW in data:
                assert "image/png" in data and output.metadata["image/png"]["alt"], cell.source
            before = html


@each_page
def test_no_object_of_python_stands_for_a_widget(site, path):
    shown = "\n".join(part.get_text() for part in site[path.stem].select(".jp-OutputArea-output"))
    objects = r"interactive\(|[VH]Box\(|Output\(\)|widget-view|<\w+(?:\.\w+)+ (?:object )?at 0x"
    assert re.findall(objects, shown) == []


def test_pages_of_others_stay_and_its_own_are_written_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_notebooks, "find", lambda: [])
    assert door.main(["site", str(tmp_path)]) == 0
    assert door.main(["site", str(tmp_path)]) == 0
    (tmp_path / "INSTRUCTORS.html").write_text("<h1>Mine</h1>")
    assert door.main(["site", str(tmp_path)]) == 2
    assert "name another folder" in capsys.readouterr().err
    assert (tmp_path / "INSTRUCTORS.html").read_text() == "<h1>Mine</h1>"


@pytest.mark.parametrize("name", slides.LESSONS, ids=lambda name: name[:2])
def test_a_teachers_slides_open_with_the_lessons_picture_and_show_bets_before_figures(name):
    [path] = _notebooks.find([name])
    cells = slides.deck(_notebooks.read(path)).cells
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in cells]
    assert 5 <= kinds.count("slide") <= 20
    assert "first.png" in cells[0].get("attachments", {})
    assert not any(re.search(r"\]\([\w-]+\.ipynb|<details", cell.source) for cell in cells)
    bets = [at for at, cell in enumerate(cells) if "<b>Predict:</b>" in cell.source]
    asked = any("predict(" in cell.source for cell in _notebooks.read(path).cells)
    assert bool(bets) == asked and all(
        kinds[at] == "fragment" and kinds[at - 1] == "slide" for at in bets
    )


def test_slides_are_one_file_each_that_needs_no_network(tmp_path, capsys, monkeypatch):
    package = tmp_path / "sphinx_revealjs/_static/revealjs/dist"
    package.mkdir(parents=True)
    (package.parents[2] / "__init__.py").touch()
    (package / "reveal.js").write_text("Reveal = 'here';")
    (package / "reveal.css").write_text(".reveal {}")
    monkeypatch.syspath_prepend(tmp_path)
    target = tmp_path / "slides"
    assert door.main(["slides", str(target), "07b"]) == 0
    [written] = target.iterdir()
    page = BeautifulSoup(written.read_text(encoding="utf-8"), "html.parser")
    assert written.name == "07b.slides.html" and "Recap" in page.get_text()
    assert page.select("link, script[src], img:not([src^='data:'])") == []
    scripts = " ".join(each.get_text() for each in page.select("script"))
    assert (
        "Reveal = 'here'" in scripts and "vegaEmbed =" in scripts and page.select(".chart img[alt]")
    )
    assert door.main(["slides", str(target), "07b"]) == 0, "its own are written again"
    assert door.main(["slides", str(target), "77"]) == 2
    assert "no notebook is called" in capsys.readouterr().err


def test_a_teacher_without_reveal_is_told_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(slides, "PACKAGE", "no-such-package")
    assert door.main(["slides", str(tmp_path / "new"), "00"]) == 2
    assert "pip install --no-deps sphinx-revealjs" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
