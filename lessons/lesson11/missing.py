"""Where a compiler is missing: cells that need it show their stored outputs instead, and the others run."""

import ast
import json
from pathlib import Path

HERE = "The compilers are here: every cell of this lesson runs."
MISSING = (
    "This machine has no {what}, so cells that need it show the outputs they had where it is. Open the lesson in Binder "
    "or Colab (links at the top) to run them; on Linux, pip install {package} brings it."
)
CHANGED = "This cell needs a compiler that isn't here, and the page has no output for it as it stands now."
VIEW = "application/vnd.jupyter.widget-view+json"
CALL = (
    "__import__('lessons.lesson11.missing', fromlist=['']).show_stored({source!r}, {notebook!r})\n"
)
PACKAGES = {"Triton": "triton", "NVRTC": "triton nvidia-cuda-nvrtc cuda-bindings"}
NAMES = {
    "triton",
    "kernels",
    "draw",
    "check",
    "draw_mirror",
    "trace",
    "product_row",
}  # what can't be used without


class WithoutCompiler:
    """Transforms the input of IPython: a cell that uses what only a compiler could have made is replaced."""

    def __init__(self, notebook):
        self.notebook = notebook
        self.missing = set(NAMES)

    def __call__(self, lines):
        source = "".join(lines)
        try:
            tree = ast.parse(source)
        except SyntaxError:
            return lines
        if self._is_lacking(tree):
            self.missing |= _bound(tree.body)
            return [CALL.format(source=source, notebook=self.notebook)]
        self.missing -= _bound(tree.body)
        return lines

    def _is_lacking(self, tree):
        """True where a statement reads a name that is missing, and that none before it in the cell has made."""
        made = set()
        for statement in tree.body:
            if _used(statement) & (self.missing - made):
                return True
            made |= _bound([statement])
        return False


def _used(tree):
    """Return the names that a statement reads, those of attributes too, and the packages that it imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
    return names


def _bound(statements):
    """Return the names that statements of a cell give a value."""
    names = set()
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.add((node.asname or node.name).split(".")[0])
    return names


def look_for_compilers(notebook, language="triton"):
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
    shell = get_ipython()
    if shell is not None and hasattr(shell, "input_transformers_post"):
        old = [each for each in shell.input_transformers_post if _is_ours(each)]
        for each in old:
            shell.input_transformers_post.remove(each)
        shell.input_transformers_post.append(WithoutCompiler(notebook))


def _is_ours(transformer):
    return type(transformer).__name__ == WithoutCompiler.__name__


def show_stored(source, notebook):
    """Show the outputs that the file of the notebook holds for the cell with this `source`, and nothing else.

    The first cell has said where they come from; so a run without compilers has the outputs of the page. A cell that the
    learner has changed has none: that is said.
    """
    from IPython.display import display

    outputs = _stored(source.strip(), Path(notebook))
    if outputs is None:
        print(CHANGED)
    for output in outputs or []:
        if output["output_type"] == "stream":
            print(output["text"], end="")
        elif VIEW not in output.get("data", {}):
            display(output["data"], metadata=output.get("metadata", {}), raw=True)


def _stored(source, notebook):
    """Return the outputs of a cell in the notebook's file, texts in one piece; None where there is no such cell."""
    if not notebook.exists():
        return None
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "".join(cell["source"]).strip() == source:
            outputs = [each for each in cell.get("outputs", []) if each["output_type"] != "error"]
            return [_joined(output) for output in outputs]
    return None


def _joined(output):
    if "text" in output:
        return {**output, "text": "".join(output["text"])}
    data = {
        kind: "".join(value) if isinstance(value, list) else value
        for kind, value in output["data"].items()
    }
    return {**output, "data": data}
