"""Notebook files: which there are, how they are cleaned and written."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from course.measurements.reader import schema_checker
from course.pages import number_of
from course.tools import ROOT, WrongCall

FOLDER = ROOT / "notebooks"
MARK = 'content="gpus-in-pytorch"'  # on every page that a command writes
VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {
    "name": "python",
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "pygments_lexer": "ipython3",
}
KEPT = ("accelerator", "colab", "kaggle")
SHOWN = ("spec", "alt", "width", "height", "embed_options")  # how a picture or a chart is shown


def find(names: Sequence[str] = ()) -> list[Path]:
    """Return the course's notebooks called `names` ("01", or a file; none: all), sorted; WrongCall where one is not there."""
    everything = sorted(FOLDER.glob("*.ipynb"))
    called = {
        name: path for path in everything for name in (path.name, path.stem, number_of(path.name))
    }
    unknown = [name for name in names if name not in called]
    if unknown:
        known = ", ".join(number_of(path.name) for path in everything)
        raise WrongCall(f"no notebook is called {', '.join(unknown)}; there are {known}")
    return sorted({called[name] for name in names}) if names else everything


def refuse_others(targets: Iterable[Path]) -> None:
    """Raise WrongCall, before any page is written, where a file of that name is there that no command of the course wrote."""
    for path in targets:
        if not os.path.lexists(path):
            continue
        head = path.read_bytes()[: 2**20] if path.is_file() else b""
        if MARK.encode() not in head:
            raise WrongCall(
                f"{path} is there, and no command of the course wrote it: name another folder"
            )


def read(path: Path) -> Any:
    """Return the notebook at `path` in the current format."""
    schema_checker()  # nbformat imports it, and would wait for its grammar
    import nbformat

    text = path.read_text(encoding="utf-8-sig")  # some editors mark it
    return nbformat.reads(text, as_version=4)


def text(notebook: Any) -> str:
    """Return the notebook as the text of its file, in one fixed form."""
    import nbformat

    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def tags(cell: Any) -> set[str]:
    """Return the set of a cell's tags."""
    return set(cell.get("metadata", {}).get("tags", []))


def clean(notebook: Any) -> Any:
    """Remove what differs from run to run: timings, widget state and views, progress bars, pieces of streams.

    Counters become those of Run All in a new kernel; nbval takes an output without one for an error.
    """
    notebook.metadata = {key: notebook.metadata[key] for key in KEPT if key in notebook.metadata}
    notebook.metadata.update(kernelspec=dict(KERNEL), language_info=dict(LANGUAGE))
    notebook.nbformat = 4
    notebook.nbformat_minor = 5
    for index, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{index:02d}")
        cell.metadata = clean_metadata(cell.metadata)
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(clean_output, merged(cell.outputs)) if output]
    number_cells(notebook)
    return notebook


def number_cells(notebook: Any) -> None:
    """Count the code cells that run, from 1; their results carry the same number."""
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            count += bool(cell.source.strip())
            cell.execution_count = count if cell.source.strip() else None
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count


def clean_metadata(metadata: Any) -> Any:
    """Return a cell's tags, their reason, and whether its code or its outputs are folded away until a click."""
    from nbformat import NotebookNode

    cleaned = NotebookNode({key: metadata[key] for key in ("tags", "reason") if key in metadata})
    folded = ("source_hidden", "outputs_hidden")
    jupyter = {key: True for key in folded if metadata.get("jupyter", {}).get(key)}
    return NotebookNode(cleaned, jupyter=NotebookNode(jupyter)) if jupyter else cleaned


def clean_output(output: Any) -> Any:
    """Return an output without widget view, progress bar, noise and metadata but alternative text; None for nothing."""
    if output.output_type == "stream" and output.name == "stderr":
        lines = re.split(r"[\r\n]+", output.text)
        lines = [line for line in lines if line.strip() and not NOISE.search(line)]
        output.text = "".join(f"{line}\n" for line in lines)
        return output if lines else None
    if "data" not in output:
        return output
    output.data.pop(VIEW, None)
    output.metadata = {
        kind: {name: fields[name] for name in SHOWN if name in fields}
        for kind, fields in output.metadata.items()
        if isinstance(fields, dict) and fields.keys() & set(SHOWN)
    }
    bar = BAR.search(output.data.get("text/plain", ""))
    return output if output.data and not bar else None


BAR = re.compile(r"\d+%\|.*\|.*(it/s|s/it|\?|B/s)")  # of progress, as tqdm draws it
NOISE = re.compile(BAR.pattern + "|No CUDA runtime is found")  # of an author with nvcc and no GPU


def merged(outputs: Iterable) -> list:
    """Return the outputs with neighboring pieces of the same stream joined."""
    result: list[Any] = []
    for output in outputs:
        last: Any = result[-1] if result else {}
        if output.output_type == "stream" and output.name == last.get("name"):
            last.text += output.text
        else:
            result.append(output)
    return result
