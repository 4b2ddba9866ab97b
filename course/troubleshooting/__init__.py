"""What an error message means: paste it, get the cause, the fix and the lesson. The table is doctor_and_errors.txt."""

import html
import re
import textwrap
from dataclasses import dataclass

from course import show
from course.checks import panel
from course.doctor.known_errors import Known, known_errors
from course.pages import NOTEBOOKS

EMPTY = "Paste an error message: the last lines of the red text, or all of it."
UNKNOWN = """This message isn't one of the errors that this page knows. What helps most of the time:
1. Read the last line first, then the deepest line of the traceback that is your own code.
2. Print .device, .dtype and .shape of each tensor in that line.
3. Run the same step on the CPU: its messages name the line and the number.
Ask for help with all of this, as text and not as a picture:
- the whole traceback, and the shortest code that raises it;
- the report of this command, which names machine, driver and versions: python3 -m course doctor
  (outside the course: python -m torch.utils.collect_env);
- what you expected instead. A good place to ask: https://discuss.pytorch.org"""
CODE = re.compile(  # what is code in the sentences of doctor_and_errors.txt
    r"(?:\w+ = )?[\w.]*\w\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?:\.\w+(?:\(\))?)*"  # x = f(y).z()
    r"|\b(?:torch|triton|sys|tl|model|x)(?:\.\w+)+|\b[A-Z]+(?:_[A-Z]+)+(?:=[\w:]+)?|--[a-z-]+(?:=\w+)?"
    r"|\b[a-z_]+=(?:\w+|\[.+?\])|\bpy(?:thon3?)? (?:-m \w+ \w+(?: -r [\w.]+)?|lab\.py)|\b[a-z]\w*_\w+"
)
LATE = "CUDA errors often arrive late: set CUDA_LAUNCH_BLOCKING=1 before CUDA starts to see the right line."


@dataclass(frozen=True)
class Match:
    """A `Known` error in a text: the `words` by which it was recognized, and the `releases` of PyTorch that use them."""

    known: Known
    words: str
    releases: str


def find(message: str) -> list[Match]:
    """The known errors in `message` (text, also a whole traceback), the last one raised first."""
    if not isinstance(message, str):
        words = "it takes the text of an error, for example str(error)"
        raise TypeError(f"message is {message!r}; {words}")
    text = _plain(message)
    last: dict[str, tuple[int, Match]] = {}  # where the last words of each error end
    for known in known_errors():
        for pattern, releases in known.wordings:
            for match in re.finditer(pattern, text, flags=re.IGNORECASE):
                if match.end() > last.get(known.key, (-1,))[0]:
                    last[known.key] = match.end(), Match(known, match[0], releases)
    return [match for _, match in sorted(last.values(), key=lambda each: -each[0])]


def _plain(text: str) -> str:
    """`text` with colors of a terminal, frames, typographic quotes and line ends taken out; one blank between words."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    text = text.translate(str.maketrans("‘’“”", "''\"\""))
    return re.sub(r"[\s\u2502|]+", " ", text)


def explanation(message: str) -> str:
    """What `message` means, as text: cause, fix and lesson of the error that was raised last; advice where unknown."""
    lines = []
    for label, text in _parts(message):
        first, later = (f"{label:<10}", " " * 10) if label else ("", "   ")
        fill = textwrap.TextWrapper(88, first, later, break_on_hyphens=False).fill
        lines.append(fill(text))
    return "\n".join(lines)


def _parts(message: str) -> list[tuple[str, str]]:
    """The lines of an explanation as pairs (label, text); a line without a label has ""."""
    matches = find(message)
    if not message.strip():
        return [("", EMPTY)]
    if not matches:
        title, *advice = UNKNOWN.splitlines()
        late = [LATE] if "CUDA error" in message else []
        return [("", line) for line in [title, *late, *advice]]
    last_raised, *earlier = matches
    error = last_raised.known
    parts = [("", error.title), ("Matched", last_raised.words[:200])]
    parts += [("Fix", error.fix), ("Cause", error.cause)]
    for notebook in NOTEBOOKS:
        if notebook.number == error.lesson:
            parts.append(("Read on", f"{notebook.number} {notebook.title}, {notebook.file}"))
    if last_raised.releases != "any":
        parts.append(("Seen in", f"PyTorch {last_raised.releases}"))
    return parts + [("Also here", match.known.title) for match in earlier]


def explain(message: str) -> None:
    """Show what an error `message` means: its cause, its fix and the lesson on it.

    Takes the message or a whole traceback, in the words of old and new releases of PyTorch. TypeError if it is no text.
    """
    show.page(_as_html(message), explanation(message))


def explain_box(message: str = "") -> None:
    """Show a box into which an error message can be pasted; without widgets, print what `message` means."""
    if not show.inside_notebook():
        explain(message)
        return
    import ipywidgets

    field = ipywidgets.Textarea(
        value=message, placeholder=EMPTY, layout={"width": "98%", "height": "8em"}
    )
    answer = ipywidgets.HTML(show.STYLE + _as_html(message))
    box = ipywidgets.VBox([ipywidgets.HTML("<b>Your error message:</b>"), field, answer])
    still = show.widget(box, *_still(message))

    def update(_: object) -> None:
        answer.value = show.STYLE + _as_html(field.value)
        still.update(*_still(field.value))

    field.observe(update, names="value")


def _still(message: str) -> tuple[str, str]:
    """(HTML, text) of a box that nothing can be pasted into."""
    return _as_html(message), explanation(message)


def _as_html(message: str) -> str:
    """The explanation of `message` as a panel, with a link to the notebook that it names."""
    (_, title), *others = _parts(message)
    known = any(label for label, _ in others)
    return panel.framed("error" if known else "open", title, [_line(*part) for part in others])


def _line(label: str, text: str) -> str:
    """One line of a panel: what was seen as code, names of code in sentences, a notebook as a link."""
    words = html.escape(text, quote=False)
    if label == "Matched":
        return f'<div style="margin-top:6px"><code>{words}</code></div>'
    words = CODE.sub(r"<code>\g<0></code>", words)
    link = r'<a href="\2" target="_blank">\1</a>'
    if label == "Read on":
        words = re.sub(r"(\d\d [^,<]+), (\d\d_\w+\.ipynb)", link, html.escape(text))
    head = f"<b>{label}:</b> " if label else ""
    return f'<div style="margin-top:6px">{head}{words}</div>'
