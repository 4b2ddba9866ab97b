"""What a kernel of the course's JupyterLab has from its start (`labconfig/kernels`), an extension of IPython.

Where a name is missing that an earlier cell of the page makes, it says how to go on: after a restart and on the second day,
a kernel knows nothing of what stands above. Where an import fails because of a file beside the page, it names the file.
Where the course refuses what a cell gives it, such as a misspelled name, only its sentence is shown.
"""

import ast
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

ROOMS = "course", "helpers", "practice_gpus"
WAY = "Run › Run All Above Selected Cell"


def load_ipython_extension(shell: Any) -> None:
    """Have `shell` help where a name is missing, an import fails, or the course refuses what it's given."""
    shell.set_custom_exc((NameError, ImportError, ValueError, TypeError, OSError), _explained)


def _explained(shell, kind, error, trace, tb_offset=None):
    """Show the traceback as always, and below it the way on where there is one."""
    name = getattr(error, "name", None)
    missing = kind is NameError and name in set(made(cells()))
    short = missing or isinstance(error, ValueError | TypeError | OSError) and refused(trace)
    with _in_a_line(shell) if short else contextlib.nullcontext():
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    if missing:
        from course import show
        from course.checks import panel

        told = f"This kernel has not run the cell that makes `{name}`: it is new, or the cell was left out."
        then = f"In the menu: {WAY}. Then run this cell again."
        content = panel.Content("open", f"{name} is made further up", told, then)
        show.page(panel.as_html(content), panel.as_text(content))
    for file in in_the_way(Path.cwd()) if isinstance(error, ImportError) else ():
        print(f"{file} stands beside this page, so Python takes it for another {file.stem!r}.")
        print("Rename it, restart the kernel, and run all cells.")


@contextlib.contextmanager
def _in_a_line(shell):
    """Show an error without the code around it: a folded cell's names the answer to the question above."""
    shown = shell.InteractiveTB
    before = shown.mode
    shown.set_mode("Minimal")
    try:
        yield
    finally:
        shown.set_mode(before)


def refused(trace: Any) -> bool:
    """Whether a cell's own line called the course, which raised: its sentence says all, and its code is not the reader's."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(trace)]
    first = next((n for n, name in enumerate(names) if name.partition(".")[0] in ROOMS), None)
    raised = first is not None and names[-1].partition(".")[0] in ROOMS
    return raised and "__main__" not in names[first:]


def in_the_way(folder: Path) -> list[Path]:
    """The files and folders of `folder` that were imported, or would be, in place of a package or module of that name."""
    own = {"", str(folder)}
    path = [entry for entry in sys.path if entry not in own]
    found = [*folder.glob("*.py"), *(file.parent for file in folder.glob("*/__init__.py"))]
    return [file for file in sorted(found) if PathFinder.find_spec(file.stem, path)]


def page() -> Path | None:
    """The notebook that this kernel belongs to, as Jupyter names it; None where it doesn't."""
    name = os.environ.get("JPY_SESSION_NAME", "")
    found = Path(name)
    return found if name.endswith(".ipynb") and found.is_file() else None


def cells() -> list[dict]:
    """The cells of this kernel's notebook as they were saved last."""
    path = page()
    try:
        return list(json.loads(path.read_text(encoding="utf-8"))["cells"]) if path else []
    except (OSError, ValueError, KeyError):
        return []


def made(cells: list[dict]) -> Iterator[str]:
    """The names that the code in `cells` makes outside of its functions."""
    for cell in cells:
        lines = "".join(cell.get("source", "")).splitlines()
        code = "\n".join("pass" if line[:1] in "%!" else line for line in lines if line)
        with contextlib.suppress(SyntaxError):
            parts: list = [*ast.parse(code).body] if cell.get("cell_type") == "code" else []
            while parts:
                part = parts.pop()
                if isinstance(part, ast.FunctionDef | ast.ClassDef):
                    yield part.name
                    continue
                if isinstance(part, ast.alias):
                    yield part.asname or part.name.partition(".")[0]
                elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    yield part.id
                parts += ast.iter_child_nodes(part)
