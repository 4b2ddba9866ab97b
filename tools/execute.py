"""Execute the lessons again on the CPU and store their outputs in the one form that tests compare."""

import argparse
import base64
import importlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from helpers import threads
from tools import _notebooks

HELP = "for authors: execute notebooks on the CPU and store their cleaned outputs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `execute`."""
    parser.add_argument("lessons", nargs="*", help="numbers (01), file names or paths; none: all")
    parser.add_argument(
        "--timeout", type=positive, default=120, help="seconds for one cell (default 120)"
    )


def positive(text: str) -> int:
    """Return the whole number that the value of an option means; ArgumentTypeError where it is not above 0."""
    if not text.isdecimal() or not int(text) > 0:
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, not {text!r}")
    return int(text)


def environment(home: str | Path, **extra: str) -> dict[str, str]:
    """Return the variables for kernels: fresh stored progress in `home`, nothing of the caller's plotting, `extra`."""
    hidden = ("MPLBACKEND", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
    inherited = {key: value for key, value in os.environ.items() if key not in hidden}
    fixed = {"GPU_COURSE_HOME": str(home), "JUPYTER_PREFER_ENV_PATH": "1"}
    return {**inherited, **threads.variables(inherited), **fixed, **extra}


def execute(notebook: Any, folder: str | Path, timeout: int = 120) -> Any:
    """Return the notebook executed in `folder` from a fresh kernel, not yet cleaned; raises CellExecutionError."""
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            return client.execute(env=environment(home, CUDA_VISIBLE_DEVICES=""), cwd=str(folder))
        except AssertionError:
            if client.km is None:  # after Ctrl-C or kill, nbclient ends its kernel twice
                raise KeyboardInterrupt from None
            raise


def untagged_bars(notebook: Any) -> list[str]:
    """Return a text for each progress bar in a cell whose output is compared: it cannot be stored."""
    return [
        f"cell {i}: progress bar; tag the cell nbval-ignore-output, with a reason"
        for i, cell in enumerate(notebook.cells)
        if "nbval-ignore-output" not in _notebooks.tags(cell)
        and any(map(_notebooks.is_progress, cell.get("outputs", [])))
    ]


FIRST = re.compile(r"!\[[^]]*\]\(attachment:first\.png\)")


def put_first_picture(notebook: Any, number: str) -> None:
    """Draw the picture at the top of lesson `number` anew, by `first_picture()` of its figures, which returns (Figure, alt).

    It is an attachment of the cell whose text has ![…](attachment:first.png): seen before any code, on every page.
    """
    from helpers.figures import png

    for cell in notebook.cells:
        if cell.cell_type == "markdown" and FIRST.search(cell.source):
            figures = importlib.import_module(f"lessons.lesson{number}.figures")
            figure, alt = figures.first_picture()
            cell.source = FIRST.sub(f"![{alt}](attachment:first.png)", cell.source)
            picture = base64.b64encode(png(figure)).decode("ascii")
            cell.attachments = {"first.png": {"image/png": picture}}


def refresh(path: Path, timeout: int = 120) -> list[str]:
    """Execute one notebook file; return a list of what is wrong with it. A failing notebook stays as it was."""
    import nbformat
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        notebook = _notebooks.read(path)
        nbformat.validate(notebook)
    except Exception as error:  # noqa: BLE001 - nbformat raises many kinds
        return [f"not a notebook, left as it was: {error}"]
    try:
        new = execute(notebook, path.parent, timeout)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return [f"stopped, file left as it was\n{error}"]
    bars = untagged_bars(new)
    put_first_picture(new, path.name[:2])
    _notebooks.clean(new)
    _notebooks.write(new, path)
    return bars + _notebooks.heavy(new)


def run(args: argparse.Namespace) -> int:
    """Execute the named notebooks one after the other; return 1 when anything is wrong with one."""
    try:
        paths = _notebooks.find(args.lessons)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    foreign = [str(path) for path in paths if path.parent != _notebooks.FOLDER]
    if foreign:
        stay = f"not one of the course's notebooks, so it stays as it is: {', '.join(foreign)}"
        print(stay, file=sys.stderr)
        return 2
    wrong = 0
    for path in paths:
        print(f"{path.name} …", flush=True)
        notes = refresh(path, args.timeout)
        wrong += len(notes)
        for note in notes or ["fine"]:
            print(f"  {note}")
    return int(wrong > 0)
