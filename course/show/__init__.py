"""How the course shows things in a notebook: widgets that leave an ordinary output, HTML, Markdown, plain text elsewhere.

A widget lives only as long as its kernel. So each is followed by an ordinary output that says the same. It is hidden
while the widget is alive, and it is what a saved notebook, a web page or a printout shows.
"""

import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
ROW = "course-row"  # the class of radio buttons that stand side by side
LIVE = "course-live"  # the class of a widget of the course: where it is drawn, it hides the output after it
STILL = "course-still"  # the class of that output
CARD = "course-card"  # the class of a question: show.css gives its widget the look of CARD_LOOK
CHOSEN = "course-chosen"  # the class of one that has an answer: JupyterLab's toolbar counts them
GOES_ON = (
    "course-goes-on"  # the class of a widget after whose answer Shift+Enter runs the next cell
)

CARD_LOOK = (  # of the properties that JupyterLab leaves in pages it doesn't trust yet
    "border-left:6px solid #6B7280;border-radius:6px;padding:10px 14px;margin:6px 0;max-width:720px;"
    "background-color:rgba(128,140,160,0.12);line-height:1.6;font-size:14px"
)

# JupyterLab, VS Code, the classic notebook and Colab call the place of one output by different names.
PLACES = ".jp-OutputArea-child", ".output_container", ".output_area", ".output_subarea"
GONE = "jupyter-widgets-disconnected"  # the class of a widget whose kernel was restarted
HIDING = "".join(
    f"{place}:has(.{LIVE}:not(.{GONE}))+{place},{place}:has(.{LIVE}.{GONE}){{display:none}}"
    for place in PLACES
)

# What JupyterLab says in place of a widget whose kernel is gone: hidden, since the still output is there.
STILL_STYLE = (
    f"<style>.jp-OutputArea-child:has(>.jp-OutputArea-output.jupyter-widgets):not(:has(.{LIVE}))"
    f":has(+*>*>.{STILL}){{display:none}}</style>"
)


def _style():
    """The style of widgets as HTML. When a browser has read it, it runs show.js on the widget that it stands in.

    A <style> is the one element that may run a script in every front end that draws widgets, by its `onload`.
    """
    folder = Path(__file__).parent
    css = (folder / "show.css").read_text(encoding="utf-8")
    script = (folder / "show.js").read_text(encoding="utf-8")
    return f'<style onload="{html.escape(script)}">{HIDING}{css}</style>'


STYLE = _style()  # stands in one part of each widget


def kernel() -> Any:
    """The Jupyter kernel that runs this; None where there is none."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return getattr(get_ipython(), "kernel", None)


def inside_notebook() -> bool:
    """True in a Jupyter kernel."""
    return kernel() is not None


class Still:
    """The ordinary output that stands in for a widget: `update(page, text)` changes it while the widget is used."""

    def __init__(self, page, text):
        from IPython.display import display

        self.output = display(_still_bundle(page, text), raw=True, display_id=True)

    def update(self, page: str, text: str) -> None:
        """Show HTML `page`, or `text` in plain words."""
        self.output.update(_still_bundle(page, text), raw=True)


def _still_bundle(page, text):
    still = f'{CLOSED}<div class="{STILL}">{page}</div>{STILL_STYLE}'
    return {"text/html": still, "text/plain": text}


def widget(box: Any, page: str, text: str) -> Still:
    """Display the widget `box` and, hidden by it, HTML `page` (plain: `text`), which stands in for it: a `Still`."""
    from IPython.display import display

    box.add_class(LIVE)
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    display({VIEW: view}, raw=True)
    return Still(page, text)


CLOSED = " \n"  # JupyterLab shows the first line of an output that is folded: a blank one, or it would tell the answer


def page(words: str, text: str, metadata: dict | None = None) -> Any:
    """Show HTML `words` in a notebook and `text` elsewhere; returns a handle whose `update` changes it, or None."""
    return _display("text/html", CLOSED + words, text, metadata)


def markdown(words: str, text: str) -> None:
    """Show Markdown `words` in a notebook and `text` elsewhere."""
    _display("text/markdown", words, text)


def listed(
    label: str,
    question: str,
    choices: Iterable[str],
    note: str,
    chosen: str | None = None,
    hint: str = "",
) -> tuple[str, str]:
    """(HTML, text) of a question with its choices, of which one may be `chosen`, and, where there is one, a note.

    Without a note, the HTML ends with `hint`.
    """
    lines = [f"{label} {question}", *(f"  - {choice}" for choice in choices), note]
    items = "".join(
        f"<div><b>● {code_in(choice)}</b></div>"
        if choice == chosen
        else f"<div>• {code_in(choice)}</div>"
        for choice in choices
    )
    page = f"<div><b>{html.escape(label)}</b> {code_in(question)}</div>{items}"
    page += f"<div><i>{html.escape(note or hint)}</i></div>" if note or hint else ""
    kind = CARD if chosen is None else f"{CARD} {CHOSEN}"
    return f'<div class="{kind}" style="{CARD_LOOK}">{page}</div>', "\n".join(filter(None, lines))


def code_in(words: str) -> str:
    """`words` as HTML, with what stands in backticks as code."""
    return re.sub("`([^`\n]+)`", r"<code>\1</code>", html.escape(words))


def _display(kind, words, text, metadata=None):
    if not inside_notebook():
        print(text)
        return None
    from IPython.display import display

    data = {kind: words, "text/plain": text}
    return display(data, metadata=metadata, raw=True, display_id=True)
