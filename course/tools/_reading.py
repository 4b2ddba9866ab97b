"""A stored page for a reader who can't run it: no plumbing, no order to run a cell, a solution below each exercise."""

import ast
import json
import re
from typing import Any

from nbformat import from_dict, v4

from course.checks import NOT_ATTEMPTED, core
from course.tools import publish

OWN_CODE = "Your progress code:"  # what a page prints for its reader alone
PLUMBING = re.compile(
    rf"(from|import) |(\w+ = )?(predict|quiz|lesson_map)\(|\w+\.reveal\(|print\('{OWN_CODE}"
)
OF_COURSE = re.compile(r"from course\.(?:lesson\d+|show)\S* import (.+)")
EXERCISE = re.compile(r"\*[^*\n]*difficulty \d of 3\.\*|\([^()\n]*difficulty \d of 3\)\.")
SOLVE = r'\g<0> <span class="run"><a href="#run">Run this page</a> to solve it.</span>'
CHECKED = re.compile(r"\bex\.(\w+)\.check\(")
DONE = r"(?<!to )\b[Rr]un (?:it\b|these\b|th(?:is|at) one|that cell|both cells|the picture)|Change both cells|folder icon|the cell above"
CONTROLS = re.compile(r"\*\*(?:Move the sliders?|Turn the controls)\.(?:\*\* (\w)| )")
STILL = "In a running notebook, the figure"
# A sentence that a colon ends leads to what is shown.
LIVE = re.compile(rf"((?:{DONE})[^\n]*?[.?])(?=\s|$)")
RUN = r'\1 <span class="run"><a href="#run">Run this page</a> to do this.</span>'
REWORDED = [
    (re.compile(pattern, re.MULTILINE | re.DOTALL), words)
    for pattern, words in (
        (r"^# (?:Guessed\? Then run|Run) this cell(?:, then guess)?\. ?\n?", ""),
        (r" Guess, then run the next cell\.", ""),
        (r"\n*Run this cell again to [^.]*\.", ""),
        (r"\n*Now add [^.]* run the cell again\.[^?]*\?", ""),
        (r" ?(?:Once it's correct, p|Once it passes, p|Correct\? P)ress \*Keep it\*.*?[.:](?=\s|$)", ""),
        (r" Shift\+Enter runs a cell\.", ""),
        (r"Until you run a cell, what stands below it", "What stands below a cell"),
        (STILL, '<a href="#run">Run this page</a>, and the figure'),
        (r", so click a gray bar to open it", ""),
        (r"Run the next cell: a box.*?, too\.", "Paste its last line into *Search* at the top, or look for its words below."),
    )
]  # fmt: skip


def readable(notebook: Any, number: str) -> None:
    """Change the cells of the page `number` in place to what its reader can do."""
    ours: set[str] = set()
    told = ""
    still = [STILL in str(cell.get("outputs", "")) for cell in notebook.cells]
    for at, cell in enumerate(notebook.cells):
        cell.source = reworded(cell.source)
        if any(still[max(0, at - 1) : at + 2]):
            cell.source = CONTROLS.sub(lambda part: part[1] or "**", cell.source)
        if cell.cell_type == "markdown":
            solved = EXERCISE.sub(SOLVE, cell.source)
            cell.source = LIVE.sub(RUN, solved) if solved == cell.source else solved
        if cell.cell_type != "code":
            told = cell.source.replace('"', "'")
            continue
        for names in OF_COURSE.findall(cell.source):
            ours |= set(names.split(", "))
        cell.metadata["code"] = _kind(cell, ours, told)
        cell.outputs = [each for each in map(_output, cell.outputs) if each]
        for name in CHECKED.findall(cell.source):
            cell.outputs.append(solution(number, name))


def reworded(text: str) -> str:
    """Return `text` without what only a running page can do."""
    for pattern, words in REWORDED:
        text = pattern.sub(words, text)
    return text


def _kind(cell: Any, ours: set[str], told: str) -> str:
    """Return the name of the fold that a cell's code gets: "none" for what only asks and answers, or is `told` above it, "" for no fold."""
    if publish.SETUP.match(cell.source):
        return "Set-up"
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError:  # a magic
        statements = [ast.Pass()]
    if all(_asks(each) or ast.unparse(each) in told for each in statements):
        return "none"
    hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
    drawn = all(_asks(each) or _called(each) in ours for each in statements)
    return "Code" if hidden or (drawn and len(statements) < 3) else ""


def _asks(statement: ast.stmt) -> bool:
    """Whether `statement` imports, names constants, asks for a guess or compares it."""
    if isinstance(statement, ast.Assign | ast.AugAssign):
        try:
            ast.literal_eval(statement.value)
            return True
        except ValueError:
            pass
    return bool(PLUMBING.match(ast.unparse(statement)))


def _called(statement: ast.stmt) -> str:
    """Return the first name of what `statement` calls; "" where it's no call."""
    value = getattr(statement, "value", None)
    return ast.unparse(value.func).partition(".")[0] if isinstance(value, ast.Call) else ""


def _output(output: Any) -> Any:
    """Return `output` as it concerns any reader; None for what concerns another, or asks for a run."""
    html = output.get("data", {}).get("text/html", "")
    if OWN_CODE in output.get("text", "") or f"{core.LOOKS[NOT_ATTEMPTED][1]}</div>" in html:
        return None
    if html:
        output.data["text/html"] = reworded(html)
    return from_dict(json.loads(json.dumps(output).replace("your CPU", "our CPU")))


def solution(number: str, name: str) -> Any:
    """Return an output with the model answer of the exercise `name` of a page, in a fold."""
    [found] = [each for each in core.exercises(number[:2]) if each.name == name]
    fold = f'<details class="solution"><summary>Our solution</summary>\n\n{found.model_answer()[0]}\n\n</details>'
    return v4.new_output("display_data", {"text/markdown": fold})
