"""Where a compiler is missing: the cells of the page show their stored outputs, and what the learner adds runs."""

import json
import re
from pathlib import Path

HERE = "The compilers are here: every cell of this lesson runs."
MISSING = (
    "This machine has no {what}, so cells that need it show the outputs they had where it is. Open the lesson in Binder "
    "or Colab (links at the top) to run them; on Linux, pip install {package} brings it."
)
CHANGED = "This cell needs a compiler that isn't here, and the page has no output for it as it stands now."
VIEW = "application/vnd.jupyter.widget-view+json"
CALL = "__import__('course.checks.compilers', fromlist=['']).show_stored({source!r}, {notebook!r})"
PACKAGES = {"Triton": "triton", "NVRTC": "triton nvidia-cuda-nvrtc cuda-bindings"}
ALWAYS = re.compile(
    r"\b(look_for_compilers|predict|quiz|hint|solution|faults\.check)\("
)  # these run anywhere
COMPILES = re.compile(r"\b(triton|kernels|trace|check)\b")


class WithoutCompiler:
    """Transforms the input of IPython: a cell of the page, or one that compiles, shows what is stored."""

    def __init__(self, notebook: str):
        self.notebook = notebook

    def __call__(self, lines: list[str]) -> list[str]:
        source = "".join(lines)
        if ALWAYS.search(source):
            return lines
        if COMPILES.search(source) or _stored(source, self.notebook) is not None:
            return [CALL.format(source=source, notebook=self.notebook) + "\n"]
        return lines


def look_for_compilers(notebook: str, language: str = "triton") -> None:
    """Print whether Triton ("cuda": NVRTC, too) is here; where not, let the notebook, a file's name, go on without it."""
    from practice_gpus import kernels

    what = kernels.missing(language)
    if not what:
        kernels.start()
        print(HERE)
        return
    print(MISSING.format(what=what, package=PACKAGES[what]))
    try:
        from IPython import get_ipython
    except ImportError:
        return
    transformers = getattr(get_ipython(), "input_transformers_post", [])
    transformers[:] = [each for each in transformers if not _is_ours(each)]
    transformers.append(WithoutCompiler(notebook))


def _is_ours(transformer):
    return type(transformer).__name__ == WithoutCompiler.__name__


def show_stored(source: str, notebook: str) -> None:
    """Show the outputs that the file of the notebook holds for the cell with this `source`, and nothing else."""
    from IPython.display import display

    outputs = _stored(source, notebook)
    if outputs is None:
        print(CHANGED)
    for output in outputs or []:
        if output["output_type"] == "stream":
            print("".join(output["text"]), end="")
        elif VIEW not in output.get("data", {}):
            data = {kind: _joined(value) for kind, value in output["data"].items()}
            display(data, metadata=output.get("metadata", {}), raw=True)


def _stored(source, notebook):
    """Return the outputs of the cell with this source in the notebook's file; None where there is no such cell."""
    path = Path(notebook)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    for cell in cells:
        if "".join(cell["source"]).strip() == source.strip():
            return [each for each in cell.get("outputs", []) if each["output_type"] != "error"]
    return None


def _joined(value):
    return "".join(value) if isinstance(value, list) else value
