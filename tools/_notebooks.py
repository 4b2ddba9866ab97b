"""Notebook files: which there are, how they are cleaned and written."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers import files
from measurements.reader import schema_checker
from tools import ROOT

FOLDER = ROOT / "notebooks"
VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {
    "name": "python",
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "pygments_lexer": "ipython3",
}
KEPT = ("accelerator", "colab", "kaggle")
MAX_KB = 700
MAX_PNG_KB = 90
SHOWN = ("alt", "width", "height", "embed_options")  # how a picture or a chart is shown


def find(names: Iterable[str] = ()) -> list[Path]:
    """Return the notebooks that `names` mean (numbers like "01", file names or paths; none: all), sorted."""
    everything = sorted(FOLDER.glob("*.ipynb"))
    if not names:
        return everything
    return [path for name in names for path in matching(name, everything)]


def matching(name: str, everything: list[Path]) -> list[Path]:
    """Return the paths that one name means; ValueError lists what there is."""
    if Path(name).is_file():
        return [Path(name).resolve()]
    matches = [
        path
        for path in everything
        if path.name.startswith(f"{name}_") or name in (path.name, path.stem)
    ]
    if not matches:
        file_names = [path.name for path in everything]
        raise ValueError(f"no notebook is called {name!r}; there are {file_names}")
    return matches


def read(path: Path) -> Any:
    """Return the notebook at `path` in the current format."""
    schema_checker()  # nbformat imports it, and would wait for its grammar
    import nbformat

    text = path.read_text(encoding="utf-8-sig")  # some editors mark it
    return nbformat.reads(text, as_version=4)


def write(notebook: Any, path: Path) -> None:
    """Write the notebook whole or not at all, in one fixed form."""
    import nbformat

    files.write(path, nbformat.writes(notebook, version=4).rstrip("\n") + "\n")


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
    """Return a cell's tags, their reason, and whether its outputs are folded away until a click."""
    from nbformat import NotebookNode

    cleaned = NotebookNode({key: metadata[key] for key in ("tags", "reason") if key in metadata})
    if metadata.get("jupyter", {}).get("outputs_hidden"):
        cleaned.jupyter = NotebookNode(outputs_hidden=True)
    return cleaned


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
    return output if output.data and not is_progress(output) else None


BAR = re.compile(r"\d+%\|.*\|.*(it/s|s/it|\?|B/s)")
NOISE = re.compile(BAR.pattern + "|No CUDA runtime is found")  # of an author with nvcc and no GPU


def is_progress(output: Any) -> bool:
    """Tell whether this output shows a progress bar as tqdm draws it, on stderr or as a widget's plain text."""
    if output.get("name") == "stderr":
        return BAR.search(output.text) is not None
    return BAR.search(output.get("data", {}).get("text/plain", "")) is not None


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


def heavy(notebook: Any) -> list[str]:
    """Return a text for each stored picture of more than MAX_PNG_KB."""
    return [
        f"cell {i}: picture of {len(png) * 3 / 4096:.0f} KB, at most {MAX_PNG_KB}"
        for i, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", [])
        for png in [output.get("data", {}).get("image/png", "")]
        if len(png) * 3 / 4 > MAX_PNG_KB * 1024
    ]
