"""Execute the lessons again on the CPU and store their outputs in the one form that tests compare."""

import argparse
import base64
import importlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from course import files, threads
from course.pages import number_of
from course.tools import _notebooks
from course.tools._arguments import positive

HELP = "for authors: execute notebooks on the CPU and store their cleaned outputs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `execute`."""
    parser.add_argument("lessons", nargs="*", help="numbers, such as 01; none: all")
    parser.add_argument(
        "--timeout", type=positive, default=120, help="seconds for one cell (default 120)"
    )


def environment(home: str | Path, **extra: str) -> dict[str, str]:
    """Return the variables for kernels: fresh stored progress in `home`, nothing of the caller's plotting, `extra`."""
    hidden = ("MPLBACKEND", "COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE")
    inherited = {key: value for key, value in os.environ.items() if key not in hidden}
    fixed = {"GPU_COURSE_HOME": str(home), "JUPYTER_PREFER_ENV_PATH": "1"}
    fixed["PRACTICE_GPUS_CPU"] = "typical"  # forecasts don't depend on who has calibrated theirs
    return {**inherited, **threads.variables(inherited), **fixed, **extra}


def execute(notebook: Any, folder: str | Path, timeout: int = 120, **hooks: Any) -> Any:
    """Return the notebook executed in `folder` from a fresh kernel, not yet cleaned; raises CellExecutionError.

    `hooks` are nbclient's, called around each cell: on_cell_execute, on_cell_executed.
    """
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name="python3",
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(folder)}},
            **hooks,
        )
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if shutil.which("nvidia-smi") else {}
        try:
            return client.execute(env=environment(home, **hidden), cwd=str(folder))
        except AssertionError:
            if client.km is None:  # after Ctrl-C or kill, nbclient ends its kernel twice
                raise KeyboardInterrupt from None
            raise


FIRST = re.compile(r"!\[[^]]*\]\(attachment:first\.png\)")


def put_first_picture(notebook: Any, number: str) -> None:
    """Draw the picture at the top of page `number` anew: `first_picture()` of its lesson's figures, `first_picture_b()` for 02b.

    It returns (Figure, alt).

    It is an attachment of the cell whose text has ![…](attachment:first.png): seen before any code, on every page.
    """
    from course.show.figures import png

    for cell in notebook.cells:
        if cell.cell_type == "markdown" and FIRST.search(cell.source):
            figures = importlib.import_module(f"course.lesson{number[:2]}.figures")
            draw = getattr(figures, "_".join(["first_picture", *number[2:]]))
            figure, alt = draw()
            cell.source = FIRST.sub(f"![{alt}](attachment:first.png)", cell.source)
            picture = base64.b64encode(png(figure)).decode("ascii")
            cell.attachments = {"first.png": {"image/png": picture}}


def refresh(path: Path, timeout: int = 120) -> None:
    """Execute one notebook file and store it. Raises what nbclient does; a failing notebook stays as it was."""
    notebook = execute(_notebooks.read(path), path.parent, timeout)
    put_first_picture(notebook, number_of(path.name))
    files.write(path, _notebooks.text(_notebooks.clean(notebook)))


def run(args: argparse.Namespace) -> int:
    """Execute the named notebooks one after the other; return 1 when one of them stopped."""
    from nbclient.exceptions import CellControlSignal, DeadKernelError

    wrong = 0
    for path in _notebooks.find(args.lessons):
        print(f"{path.name} …", flush=True)
        try:
            refresh(path, args.timeout)
        except (CellControlSignal, DeadKernelError) as error:
            print(f"  stopped, file left as it was\n{error}")
            wrong = 1
    return wrong
