"""Stamp what follows from course/pages.py: links, the set-up cell, README's table with its badge."""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from course import files
from course import pages as course
from course.tools import ROOT, _notebooks

HELP = "stamp address, badges, links and README's table; --check says what is stale"
PICTURES = {"Colab": "https://colab.research.google.com/assets/colab-badge.svg"}
UNKNOWN = "OWNER_NAME/"  # what an address begins with that nobody has set yet
REMOTE = re.compile(r"github\.com[:/]([\w-]+/[\w.-]+?)(?:\.git)?/?$")
UNSET = (
    "Nobody has said where this copy is published, so links to Colab, Binder and GitHub lead nowhere yet: "
    "python3 -m course publish OWNER/NAME, or give the clone a git remote called origin on GitHub."
)
LATER = "Links that open this lesson in Colab, Kaggle and Binder stand here once this copy is published."
OPEN, CLOSE = "<!-- nav -->", "<!-- /nav -->"
WITHOUT = (
    "opens page 00 and needs a Google account. {binder} needs no account and "
    "takes minutes to start. On your own machine:"
)
HERE = "Get this folder with `git clone`, or as a ZIP from the green *Code* button. Then, in it:"
ALONE = "# ModuleNotFoundError? Open the course with: python3 lab.py\n"
BRING = """\
try:
    import helpers
except ImportError:  # on Colab and Kaggle; the whole course: https://github.com/{repository}
    %pip install -q --no-deps {address} "{address}#subdirectory=practice_gpus"

"""
# What a set-up cell may begin with: one of these two
SETUP = re.compile(
    r"\A# ModuleNotFoundError.*\n|\Atry:\n    import helpers\nexcept ImportError:.*\n    %pip .*\n+"
)
TEXTS = (
    *("README.md", "CITATION.cff", "notebooks/INSTRUCTORS.md", "course/pages.py"),
    *("practice_gpus/README.md", "practice_gpus/pyproject.toml"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `publish`."""
    address = (
        "OWNER/NAME of the public copy on GitHub; none: keep the address, or take your git remote's"
    )
    parser.add_argument("repository", nargs="?", help=address)
    parser.add_argument("--check", action="store_true", help="write nothing; say what is stale")


def release() -> str:
    """Return the tag that notebooks are opened at and bring helpers of: both are of one version."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [version] = re.findall(r'^version = "(.+)"$', text, flags=re.M)
    return f"v{version}"


def known() -> str | None:
    """Return OWNER/NAME of this copy: as stamped, else that of its git remote on GitHub; None where neither says it."""
    if not course.REPOSITORY.startswith(UNKNOWN):
        return course.REPOSITORY
    line = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        told = subprocess.run(line, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = REMOTE.search(told.strip())
    return found[1] if found else None


def setup_lines(repository: str) -> str:
    """Return the first lines of a lesson's first code cell: they bring helpers where they are missing, never torch."""
    if repository.startswith(UNKNOWN):
        return ALONE
    address = f"https://github.com/{repository}/archive/refs/tags/{release()}.zip"
    return BRING.format(repository=repository, address=address)


def launches(repository: str, file: str) -> dict:
    """Return the addresses that open one notebook elsewhere: {"Colab": address, …}."""
    path, tag = f"notebooks/{file}", release()
    source = f"https://raw.githubusercontent.com/{repository}/{tag}/{path}"
    page = quote("lab/tree/" + path, safe="")
    return {
        "Colab": f"https://colab.research.google.com/github/{repository}/blob/{tag}/{path}",
        "Kaggle": f"https://kaggle.com/kernels/welcome?src={source}",
        "Binder": f"https://mybinder.org/v2/gh/{repository}/{tag}?urlpath={page}",
    }


def stamp_notebook(notebook: Any, repository: str, file: str) -> Any:
    """Return the notebook with its derived parts fresh: links and set-up lines; everything else stays."""
    first = notebook.cells[0]
    links = "\n\n".join(
        f"**{name}:** {links_to(pages, file)}" for name, pages in course.blocks().items()
    )
    opens = [f"[{name}]({to})" for name, to in launches(repository, file).items()]
    way = f"Open this lesson without installing anything: {' · '.join(opens)}"
    words = f"{links}\n\n{LATER if repository.startswith(UNKNOWN) else way}"
    folded = f"<details><summary>All lessons</summary>\n\n{words}\n\n</details>"
    block = f"{OPEN}\n{folded}\n{CLOSE}"
    if OPEN not in first.source:  # a new notebook: below its title
        title, _, body = first.source.partition("\n")
        first.source = f"{title}\n\n{block}\n\n{body.strip()}".rstrip()
    first.source = re.sub(f"{OPEN}.*?{CLOSE}", lambda _: block, first.source, flags=re.S)
    for code in [cell for cell in notebook.cells if cell.cell_type == "code"][:1]:
        code.source = (setup_lines(repository) + SETUP.sub("", code.source, count=1)).rstrip("\n")
    return notebook


def links_to(pages: Iterable[course.Lesson], file: str) -> str:
    """Return links to `pages`, each whole on one line; the page in `file` itself is no link."""
    titles = {page.file: f"{page.number} {page.title}".replace(" ", "&nbsp;") for page in pages}
    return "&nbsp;· ".join(
        f"**{title}**" if to == file else f"[{title}]({to})" for to, title in titles.items()
    )


def start(repository: str) -> str:
    """Return README's ways to begin; nothing that leads to an address which nobody has set yet."""
    if repository.startswith(UNKNOWN):
        return f"{HERE}\n\n```\npython3 lab.py\n```"
    to = launches(repository, course.NOTEBOOKS[0].file)
    badge = f"[![Open in Colab]({PICTURES['Colab']})]({to['Colab']})"
    told = WITHOUT.format(binder=f"[Binder]({to['Binder']})")
    clone = f"git clone https://github.com/{repository} gpus-in-pytorch && cd gpus-in-pytorch"
    return f"{badge} {told}\n\n```\n{clone}\npython3 lab.py\n```"


def table() -> str:
    """Return the path as a table, and the other blocks of pages folded."""
    path, *more = course.blocks().values()
    rows = [
        f"| {page.number} | {linked(page)} | {page.summary} | {page.minutes} |" for page in path
    ]
    lines = ["| | page | what you do | minutes |", "|---|---|---|---|", *rows, ""]
    folds = []
    for name, block in zip(list(course.BLOCKS)[1:], more, strict=True):
        named = " · ".join(linked(page, f"{page.number} ").replace(" ", "&nbsp;") for page in block)
        folds += [f"**{name}:** {named}", ""] if block else []
    count = sum(map(len, more))
    opened = f"<details><summary>{count} more pages, deeper and beyond</summary>"
    return "\n".join([*lines, opened, "", *folds, "</details>"])


def linked(page: course.Lesson, number: str = "") -> str:
    """Return the page's title as a link from README, after its `number` where it is told."""
    return f"[{number}{page.title}](notebooks/{page.file})"


def minutes() -> str:
    """Return INSTRUCTORS' table of minutes."""
    rows = [f"| {page.number} | {page.minutes} |" for page in course.LESSONS]
    return "\n".join(["| lesson | minutes |", "|---|---|", *rows])


def plans() -> str:
    """Return INSTRUCTORS' plans: for each its pages, and their minutes together."""
    by_number = {page.number: page for page in course.NOTEBOOKS}
    rows = []
    for plan, numbers in course.PLANS.items():
        named = " · ".join(f"[{number}]({by_number[number].file})" for number in numbers)
        alone = sum(by_number[number].minutes for number in numbers)
        rows.append(f"| {plan} | {named} | {alone} | {round(course.IN_A_GROUP * alone)} |")
    return "\n".join(["| plan | pages | minutes | in a group |", "|---|---|---|---|", *rows])


def stale(repository: str) -> dict[Path, Any]:
    """Return {path: fresh text, or a fresh notebook} for every file whose derived parts are not fresh."""
    fresh: dict[Path, Any] = {}
    for path in _notebooks.find():
        before, draft = _notebooks.read(path), _notebooks.read(path)
        after = _notebooks.clean(stamp_notebook(draft, repository, path.name))
        fresh |= {path: after} if before != after else {}
    lessons = f"<!-- lessons -->\n{table()}\n<!-- /lessons -->"
    begin = f"<!-- start -->\n{start(repository)}\n<!-- /start -->"
    classes = f"<!-- plans -->\n{plans()}\n<!-- /plans -->"
    times = f"<!-- minutes -->\n{minutes()}\n<!-- /minutes -->"
    for path in filter(Path.exists, (ROOT / name for name in TEXTS)):  # a pack has fewer
        before = path.read_text(encoding="utf-8")
        after = before.replace(course.REPOSITORY, repository)
        after = re.sub("<!-- start -->.*<!-- /start -->", lambda _: begin, after, flags=re.S)
        after = re.sub("<!-- lessons -->.*<!-- /lessons -->", lambda _: lessons, after, flags=re.S)
        after = re.sub("<!-- minutes -->.*<!-- /minutes -->", lambda _: times, after, flags=re.S)
        after = re.sub("<!-- plans -->.*<!-- /plans -->", lambda _: classes, after, flags=re.S)
        fresh |= {path: after} if before != after else {}
    return fresh


def run(args: argparse.Namespace) -> int:
    """Stamp everything, or with --check list what is stale and return 1."""
    repository = (
        args.repository or (course.REPOSITORY if args.check else known()) or course.REPOSITORY
    )
    if not re.fullmatch(r"\w[\w-]*/(?!\.+$)[\w.-]+", repository, re.ASCII):
        print(f"repository is {repository!r}; it takes OWNER/NAME as on GitHub", file=sys.stderr)
        return 2
    fresh = stale(repository)
    for path, content in fresh.items():
        print(f"{'stale' if args.check else 'stamped'}: {path.relative_to(ROOT)}")
        if not args.check:
            text = _notebooks.text(content) if path.suffix == ".ipynb" else content
            files.write(path, text)
    print(f"{len(fresh)} files, address {repository}, tag {release()}")
    if repository.startswith(UNKNOWN):
        print(UNSET, file=sys.stderr)
    return int(args.check and bool(fresh))
