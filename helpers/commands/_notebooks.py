"""Notebook files: which there are, how they are cleaned and written, and the measures of their rhythm."""

import re
import statistics
from pathlib import Path

from helpers import files
from helpers.commands._environment import ROOT

FOLDER = ROOT / "notebooks"
FREE = {"nbval-ignore-output", "raises-exception"}
VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {
    "name": "python",
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "pygments_lexer": "ipython3",
}
KEPT = ("accelerator", "colab", "kaggle")
MAX_KB, MAX_PNG_KB = 600, 60


def find(names=(), folder=FOLDER):
    """Return the notebooks that `names` mean (numbers like "01", file names or paths; none: all), sorted."""
    everything = sorted(folder.glob("*.ipynb"))
    found = [path for name in names for path in matching(name, everything)]
    return found if names else everything


def matching(name, everything):
    """Return the paths that one name means; ValueError lists what there is."""
    if Path(name).is_file():
        return [Path(name).resolve()]
    found = [
        path
        for path in everything
        if path.name.startswith(f"{name}_") or name in (path.name, path.stem)
    ]
    if not found:
        raise ValueError(
            f"no notebook is called {name!r}; there are {[path.name for path in everything]}"
        )
    return found


def read(path):
    """Return the notebook at `path` in the current format."""
    import nbformat

    return nbformat.read(path, as_version=4)


def write(notebook, path):
    """Write the notebook whole or not at all, in one fixed form."""
    import nbformat

    files.write(path, nbformat.writes(notebook, version=4).rstrip("\n") + "\n")


def tags(cell):
    """Return the set of a cell's tags."""
    return set(cell.get("metadata", {}).get("tags", []))


def clean(notebook):
    """Remove what differs from run to run: timings, widget state and views, progress bars, pieces of streams."""
    notebook.metadata = {key: notebook.metadata[key] for key in KEPT if key in notebook.metadata}
    notebook.metadata.update(kernelspec=dict(KERNEL), language_info=dict(LANGUAGE))
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for index, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{index:02d}")
        cell.metadata = {
            key: value for key, value in cell.metadata.items() if key in ("tags", "reason", "jupyter")
        }
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(clean_output, merged(cell.outputs)) if output]
    return notebook


def clean_output(output):
    """Return an output without widget view, progress bar, noise and metadata but alternative text; None for nothing."""
    if output.output_type == "stream" and output.name == "stderr":
        lines = [
            line
            for line in re.split(r"[\r\n]+", output.text)
            if line.strip() and not NOISE.search(line)
        ]
        output.text = "".join(f"{line}\n" for line in lines)
        return output if lines else None
    if "data" in output:
        output.data.pop(VIEW, None)
        output.metadata = {
            kind: {"alt": more["alt"]} for kind, more in output.metadata.items() if "alt" in more
        }
    return None if is_progress(output) else output if output.get("data", True) else None


BAR = re.compile(r"\d+%\|.*\|.*(it/s|s/it|\?|B/s)")
NOISE = re.compile(
    BAR.pattern + "|No CUDA runtime is found"
)  # the author's machine has nvcc and no GPU


def is_progress(output):
    """Tell whether this output shows a progress bar as tqdm draws it, on stderr or as a widget's plain text."""
    text = (
        output.get("data", {}).get("text/plain", "")
        if output.get("name") != "stderr"
        else output.text
    )
    return BAR.search(text) is not None


def merged(outputs):
    """Return the outputs with neighboring pieces of the same stream joined."""
    result = []
    for output in outputs:
        if (
            result
            and output.output_type == "stream" == result[-1].output_type
            and result[-1].name == output.name
        ):
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def compared(notebook):
    """Return {cell index: plain outputs} for the code cells whose stored outputs must come out the same again."""
    return {
        i: [plain(o) for o in cell.outputs]
        for i, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and not tags(cell) & {"nbval-ignore-output", "nbval-skip"}
    }


def plain(output):
    """Return what is compared of one output: its text, without pictures and counters."""
    if output.output_type == "stream":
        return output.name, output.text
    if output.output_type == "error":
        return "error", output.ename, output.evalue
    return tuple(
        sorted(
            (kind, str(value))
            for kind, value in output.data.items()
            if not kind.startswith("image/")
        )
    )


def word_count(markdown):
    """Return the number of words a reader reads: no fenced code, pictures, HTML tags or formulas."""
    for pattern in (
        r"```.*?```",
        r"!\[.*?\]\(.*?\)",
        r"<!-- nav -->.*?<!-- /nav -->",
        r"<[^>]+>",
        r"\$.*?\$",
    ):
        markdown = re.sub(pattern, " ", markdown, flags=re.S)
    return len(re.findall(r"[A-Za-z][\w'-]*", markdown))


def reading_minutes(notebook):
    """Return the minutes to read and run a notebook: 200 words of prose or 15 lines of code a minute."""
    words, lines = words_and_lines(notebook)
    return sum(words) / 200 + sum(lines) / 15


def words_and_lines(notebook):
    """Return the words of each Markdown cell and the lines, not counting blank ones, of each code cell."""
    words = [word_count(cell.source) for cell in notebook.cells if cell.cell_type == "markdown"]
    lines = [
        sum(bool(line.strip()) for line in cell.source.splitlines())
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return words or [0], lines or [0]


def longest_code_run(notebook):
    """Return the largest number of code cells in a row."""
    kinds = "".join("c" if cell.cell_type == "code" else " " for cell in notebook.cells)
    return max(map(len, kinds.split()), default=0)


def rhythm(notebook):
    """Return the measures of a notebook's rhythm: shares in percent, words, lines and the longest run of code cells."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose, lines = words_and_lines(notebook)
    shown = [cell for cell in code if cell.outputs]
    return {
        "cells": len(notebook.cells),
        "prose %": round(100 * (len(notebook.cells) - len(code)) / max(1, len(notebook.cells))),
        "words": statistics.median(prose),
        "lines": statistics.median(lines),
        "lines max": max(lines),
        "short %": round(100 * sum(count <= 10 for count in lines) / len(lines)),
        "code run": longest_code_run(notebook),
        "compared": sum("nbval-ignore-output" not in tags(cell) for cell in shown),
        "with output": len(shown),
    }


BANDS = {
    "prose %": (45, 65),
    "words": (20, 70),
    "lines": (0, 4),
    "lines max": (0, 20),
    "short %": (90, 100),
    "code run": (0, 2),
}


WITHOUT_BAND = {
    "92": {"words"}
}  # a glossary is looked up, not read: a cell holds all terms of one letter


def outside_bands(measures, number=""):
    """Return a text for each measure that leaves its band; the notebook's `number` tells which bands are not for it."""
    return [
        f"{name} is {measures[name]:g}, band {low} to {high}"
        for name, (low, high) in BANDS.items()
        if name not in WITHOUT_BAND.get(number, ()) and not low <= measures[name] <= high
    ]


def heavy(notebook):
    """Return a text for each stored picture of more than 60 KB."""
    return [
        f"cell {i}: picture of {len(png) * 3 / 4096:.0f} KB, at most {MAX_PNG_KB}"
        for i, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        for png in [output.get("data", {}).get("image/png", "")]
        if len(png) * 3 / 4 > MAX_PNG_KB * 1024
    ]
