"""Stamp what follows from helpers/course.py: badges, links, the set-up cell, README's table."""

import copy
import functools
import re
import sys
from urllib.parse import quote

from helpers import course, files
from tools import ROOT, _notebooks

HELP = "for authors: stamp address, badges, links and README's table; --check says what is stale"
PICTURES = {
    "Colab": "https://colab.research.google.com/assets/colab-badge.svg",
    "Kaggle": "https://kaggle.com/static/images/open-in-kaggle.svg",
    "Binder": "https://mybinder.org/badge_logo.svg",
}
OPEN = "<!-- nav -->"
CLOSE = "<!-- /nav -->"
ALONE = "# No module named helpers? Open the course with: python3 lab.py\n"
BRING = """\
try:
    import helpers
except ImportError:  # on Colab and Kaggle; the whole course: https://github.com/{repository}
    %pip install -q --no-deps {address} "{address}#subdirectory=practice_gpus"

"""
SETUP = re.compile(  # what a set-up cell may begin with: one of these two, and calls of earlier versions
    r"(?:# No module .*\n|try:\n    import helpers\nexcept ImportError:.*\n    %pip .*\n+)"
    r"(?:from helpers\.threads import calm.*\n+calm\(\)  # .*\n+)?"
)
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "provenance": []},
    "kaggle": {
        "accelerator": "nvidiaTeslaT4",
        "dataSources": [],
        "isGpuEnabled": True,
        "isInternetEnabled": True,
        "language": "python",
        "sourceType": "notebook",
    },
}


def add_arguments(parser):
    """Add the options of `publish`."""
    parser.description = HELP + (
        ". Badges and set-up lines lead to the tag v<version>, with the version of "
        "pyproject.toml. A release: raise it, publish, commit, then tag and push both."
    )
    parser.add_argument(
        "repository",
        nargs="?",
        help="OWNER/NAME of the public copy on GitHub; none: keep the address",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say what is stale")


def release():
    """Return the tag that notebooks are opened at and bring helpers of: a lesson and its helpers are of one version."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return "v" + re.search(r'^version = "(.+)"$', text, flags=re.M)[1]


def setup_lines(repository):
    """Return the first lines of every lesson's first code cell: they bring helpers where they are missing, never torch."""
    if repository.startswith("OWNER_NAME/"):
        return ALONE
    address = f"https://github.com/{repository}/archive/refs/tags/{release()}.zip"
    return BRING.format(repository=repository, address=address)


def launches(repository, file):
    """Return the addresses that open one notebook elsewhere: {"Colab": address, …}."""
    path = f"notebooks/{file}"
    tag = release()
    source = f"https://raw.githubusercontent.com/{repository}/{tag}/{path}"
    page = quote("lab/tree/" + path, safe="")
    return {
        "Colab": f"https://colab.research.google.com/github/{repository}/blob/{tag}/{path}",
        "Kaggle": f"https://kaggle.com/kernels/welcome?src={source}",
        "Binder": f"https://mybinder.org/v2/gh/{repository}/{tag}?urlpath={page}",
    }


def badges(repository, file):
    """Return the launch badges of one notebook as a line of Markdown."""
    addresses = launches(repository, file).items()
    return " ".join(f"[![Open in {name}]({PICTURES[name]})]({to})" for name, to in addresses)


def links(file):
    """Return the line of links to all lessons, the one in `file` in bold."""
    parts = []
    for lesson in course.NOTEBOOKS:
        name = f"{lesson.number} {lesson.title}"
        parts.append(f"**{name}**" if lesson.file == file else f"[{name}]({lesson.file})")
    return " · ".join(parts)


def stamp_first_cell(text, repository, file):
    """Return a lesson's first cell with a fresh block of links after its title, folded, without pictures to fetch."""
    addresses = launches(repository, file).items()
    elsewhere = " · ".join(f"[{name}]({address})" for name, address in addresses)
    words = f"{links(file)}\n\nOpen this one without an installation: {elsewhere}"
    folded = f"<details><summary>All lessons</summary>\n\n{words}\n\n</details>"
    block = "\n".join([OPEN, folded, CLOSE])
    if OPEN in text and CLOSE in text:
        return re.sub(f"{OPEN}.*?{CLOSE}", lambda _: block, text, flags=re.S)
    title, _, body = text.partition("\n")
    return "\n\n".join([title, block, body.strip()]).rstrip()


def stamp_setup(code, repository):
    """Return the first code cell with fresh set-up lines at its top; the lesson's own imports stay."""
    old_lines = SETUP.match(code)
    if old_lines:
        code = code[old_lines.end() :]
    return (setup_lines(repository) + code).rstrip("\n")


def stamp_notebook(notebook, repository, file):
    """Return the notebook with its derived parts fresh; outputs and everything else stay."""
    first = next(iter(notebook.cells), None)
    if not first or first.cell_type != "markdown" or not first.source.startswith("# "):
        takes = "the first cell has to be Markdown and to begin with '# ' and the title"
        raise ValueError(f"{file}: {takes}")
    first.source = stamp_first_cell(first.source, repository, file)
    code = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if code is not None:
        code.source = stamp_setup(code.source, repository)
    notebook.metadata.update(METADATA)
    return notebook


def table(repository):
    """Return README's table of lessons."""
    rows = ["| | lesson | what it is about | minutes | open |", "|---|---|---|---|---|"]
    for lesson in course.NOTEBOOKS:
        about = lesson.summary + (" · *practice GPUs*" if lesson.practice else "")
        link = f"[{lesson.title}](notebooks/{lesson.file})"
        opens = badges(repository, lesson.file)
        cells = [lesson.number, link, about, lesson.minutes or "–", opens]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def stamp_readme(text, old, new):
    """Return README with the address `new` for `old` and a fresh table of lessons."""
    lessons = f"<!-- lessons -->\n{table(new)}\n<!-- /lessons -->"
    place = re.compile("<!-- lessons -->.*<!-- /lessons -->", flags=re.S)
    return place.sub(lambda _: lessons, text.replace(old, new))


def stale(repository, root=ROOT):
    """Return {path: function that makes it fresh} for every file whose derived parts are not fresh."""
    writers = {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        try:
            before = _notebooks.read(path)
        except Exception as error:  # nbformat raises many kinds
            raise ValueError(f"{path.name}: not a notebook ({error})") from None
        after = _notebooks.clean(stamp_notebook(copy.deepcopy(before), repository, path.name))
        if before != after:
            writers[path] = functools.partial(_notebooks.write, after, path)
    texts = {
        root / "README.md": lambda text: stamp_readme(text, course.REPOSITORY, repository),
        root / "practice_gpus/README.md": lambda text: text.replace(course.REPOSITORY, repository),
        root / "helpers/course.py": lambda text: text.replace(
            f'"{course.REPOSITORY}"', f'"{repository}"'
        ),
    }
    for path, change in texts.items():
        before = path.read_text(encoding="utf-8")
        if change(before) != before:
            writers[path] = functools.partial(files.write, path, change(before))
    return writers


def run(args):
    """Stamp everything, or with --check list what is stale and return 1."""
    repository = args.repository or course.REPOSITORY
    if not re.fullmatch(r"(OWNER_NAME|[A-Za-z0-9][A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]+", repository):
        print(
            f"repository is {repository!r}; it takes OWNER/NAME as in the address on GitHub",
            file=sys.stderr,
        )
        return 2
    try:
        writers = stale(repository)
    except ValueError as error:
        print(f"nothing written: {error}", file=sys.stderr)
        return 1
    for path, freshen in writers.items():
        print(f"{'stale' if args.check else 'stamped'}: {path.relative_to(ROOT)}")
        if not args.check:
            freshen()
    print(f"{len(writers)} files, address {repository}, tag {release()}")
    return int(args.check and bool(writers))
