"""The one panel of predictions, quizzes and exercises: a mark, a bar of color, what you said beside the truth.

A `Content` says what is in it; `as_html` writes it as HTML, which a live widget and a saved page share, and `as_text` in plain
words. The HTML carries its own style, of the few properties that JupyterLab leaves in pages it doesn't trust yet.
"""

import html
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from course import show
from helpers.plots import RIGHT, TROUBLE, number

Buttons = Iterable[tuple[str, Callable[[], tuple[str, str]]]]  # (label, what it shows)
SIGNS = {"right": "✓", "wrong": "✗", "error": "!", "open": "…"}
COLORS = {"right": RIGHT, "wrong": TROUBLE, "error": TROUBLE, "open": "#6B7280"}
ORDINARY = re.compile(  # beginnings of sentences, unlike names in code
    "((a|all|an|after|at|both|but|each|every|expected|fill|for|in|it|no|none|not|of|on|one|only|some|still|that|the|then|"
    "there|these|this|two|three|five|six|eight|well|when|where|while|with|without|you|your)('s|'re|'t)?|gradients of|"
    "masks and|keys past|mean and|prompt and|tensor parallelism|batch norm|bytes per|half the|by forecast) "
)


@dataclass(frozen=True)
class Scale:
    """A guess and the truth, numbers above 0, on a logarithmic scale from `low` to `high` in `unit`."""

    guess: float
    actual: float
    low: float
    high: float
    unit: str

    def place(self, value: float) -> float:
        """Where `value` lies, in percent."""
        low = min(self.low, self.guess, self.actual)
        high = max(self.high, self.guess, self.actual)
        return round(100 * math.log(value / low) / math.log(high / low), 1)


@dataclass(frozen=True)
class Content:
    """What a panel says: `state` is a key of SIGNS, `then` what one can do now; `scale` may be None."""

    state: str
    title: str
    message: str = ""
    then: str = ""
    scale: Scale | None = None


def sentence(words: str) -> str:
    """`words` with a capital, where they begin with an ordinary word and not with code."""
    return words[:1].upper() + words[1:] if ORDINARY.match(words) else words


def as_html(content: Content) -> str:
    """The panel as HTML."""
    parts = []
    if content.message:
        style = "white-space:pre-wrap;margin-top:4px"
        parts.append(f'<div style="{style}">{show.code_in(sentence(content.message))}</div>')
    if content.scale:
        parts.append(_scale_page(content.scale, COLORS[content.state]))
    if content.then:
        style = "margin-top:6px;white-space:pre-wrap"
        parts.append(f'<div style="{style}">{show.code_in(content.then)}</div>')
    return framed(content.state, content.title, parts)


def framed(state: str, title: str, parts: Iterable[str]) -> str:
    """A panel as HTML: the mark and the color of `state`, a title, and below it `parts`, which are HTML."""
    color = COLORS[state]
    mark = (
        f'<span aria-hidden="true" style="display:inline-block;width:24px;border-radius:12px;margin-right:8px;'
        f'background-color:{color};color:#ffffff;text-align:center;font-weight:bold">{SIGNS[state]}</span>'
    )
    head = f'<div style="font-size:16px;font-weight:bold">{mark}{html.escape(title)}</div>'
    look = show.CARD_LOOK.replace(COLORS["open"], color)
    kind = "course-panel course-right" if state == "right" else "course-panel"
    return f'<div role="status" class="{kind}" style="{look}">{head}{"".join(parts)}</div>'


def _scale_page(scale, color):
    """Above a line the guess, below it the truth; what lies between them is drawn in `color`."""
    guess, actual = scale.place(scale.guess), scale.place(scale.actual)
    left, right = min(guess, actual), max(guess, actual)
    widths = (left, "transparent"), (max(right - left, 1), color), (100 - right, "transparent")
    parts = "".join(
        f'<div style="display:inline-block;height:8px;width:{w}%;background-color:{c}"></div>'
        for w, c in widths
        if w
    )
    line = (
        '<div style="background-color:rgba(128,140,160,0.35);border-radius:4px;line-height:0;'
        f'white-space:nowrap;overflow:hidden">{parts}</div>'
    )
    above = _beside(guess, f"your guess: {number(scale.guess)} {scale.unit}", "▼")
    below = _beside(actual, f"it is {number(scale.actual)} {scale.unit}", "▲")
    return f'<div style="margin:10px 0 4px">{above}{line}{below}</div>'


def _beside(place, words, arrow):
    """`words` beside an arrow at `place` percent, on the side with more room."""
    words = html.escape(words)
    if place > 55:
        return f'<div style="width:{place}%;text-align:right">{words} {arrow}</div>'
    return f'<div style="margin-left:{place}%">{arrow} {words}</div>'


def as_text(content: Content) -> str:
    """The panel in plain words."""
    between = ": " if content.message and content.title[-1] not in "!?." else " "
    head = f"{SIGNS[content.state]} {content.title}{between}{sentence(content.message)}".strip()
    scale = _scale_text(content.scale) if content.scale else ""
    return "\n".join(filter(None, [head, scale, content.then]))


def _scale_text(scale, width=41):
    line = ["·"] * width
    for sign, value in (("?", scale.guess), ("!", scale.actual)):
        line[round((width - 1) * scale.place(value) / 100)] = sign
    low, high = (
        min(scale.low, scale.guess, scale.actual),
        max(scale.high, scale.guess, scale.actual),
    )
    return f"{number(low)} {''.join(line)} {number(high)}  ? your guess, ! what it is"


def show_verdict(content: Content, buttons: Buttons = ()) -> None:
    """Show `content` and below it `buttons`: pairs of a label and a function that returns (Markdown, plain text)."""
    if show.inside_notebook():
        show.widget(widget(content, buttons), as_html(content), as_text(content))
    else:
        print(as_text(content))


def widget(content: Content, buttons: Buttons = ()) -> Any:
    """The panel as a widget; what a button's function returns stands below the buttons, with code in color."""
    import ipywidgets

    words = ipywidgets.Output()
    row = []
    for label, answer in buttons:
        button = ipywidgets.Button(description=label)
        button.on_click(lambda _, answer=answer: _fill(words, *answer()))
        row.append(button)
    return ipywidgets.VBox(
        [ipywidgets.HTML(show.STYLE + as_html(content)), ipywidgets.HBox(row), words]
    )


def status(words: str) -> str:
    """`words` as HTML that a screen reader says when they change; "" for none."""
    return f'<div role="status">{html.escape(words)}</div>' if words else ""


def question(title: str, control: Any, note: str = "") -> Any:
    """A question as a widget: HTML `title`, a `control`, and below them HTML `note`, which is the third child."""
    import ipywidgets

    box = ipywidgets.VBox([ipywidgets.HTML(show.STYLE + title), control, ipywidgets.HTML(note)])
    box.add_class(show.CARD)
    return box


def _fill(output, markdown, text):
    data = {"text/markdown": markdown, "text/plain": text}
    output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
