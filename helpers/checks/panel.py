"""How a check's outcome looks: a small panel with buttons in JupyterLab, plain text everywhere else."""

import html

SIGNS = {"correct": "✓", "not yet": "✗", "not attempted": "○", "error in your code": "!"}
# Of the line beside a message: a contrast of 3 to 1 against white and against the dark of JupyterLab's dark theme.
COLORS = {
    "correct": "#009e73",
    "not yet": "#d55e00",
    "not attempted": "#808080",
    "error in your code": "#d55e00",
}

ROW = "course-row"  # the class of radio buttons that stand side by side
# ipywidgets gives sliders and groups of radio buttons no name that a screen reader could say, and a slider the number
# of its option for a value. This takes the words beside them, now and whenever something in their box changes. To
# version 7 a slider (.ui-slider-handle) is no slider at all: there, the place of the handle is its value, 0 to 100.
NAMES = """
const box = this.closest('.widget-vbox'), words = part => part ? part.innerText.trim() : '';
const name = () => box.querySelectorAll('.widget-radio-box, .noUi-handle, .ui-slider-handle').forEach(part => {
    const row = part.closest('.widget-radio, .widget-slider'), title = row.previousElementSibling;
    const above = title && title.classList.contains('widget-html') ? words(title) : '';
    part.setAttribute('aria-label', `${above} ${words(row.querySelector('.widget-label'))}`.trim());
    const readout = row.querySelector('.widget-readout');
    part.setAttribute('role', readout ? 'slider' : 'radiogroup');
    if (readout) part.setAttribute('aria-valuetext', words(readout));
    if (part.matches('.ui-slider-handle')) part.setAttribute('aria-valuenow', parseFloat(part.style.left) || 0);
});
if (box && !box.named) {
    box.named = new MutationObserver(name);
    box.named.observe(box, {childList: true, subtree: true});
    name();
}
"""
# Where the keyboard is can be seen, since ipywidgets hides it on sliders; links can be told without color, in the whole
# notebook, since JupyterLab does not underline them.
STYLE = (
    f'<style onload="{html.escape(NAMES)}">'
    ".jupyter-widgets :is(.noUi-handle,.ui-slider-handle,input,button):focus{outline:3px solid #0072b2!important;"
    f"outline-offset:2px}}.{ROW} .widget-radio-box{{display:flex;flex-flow:row wrap;column-gap:1.5em;"
    "padding-left:5px}.jp-Notebook :is(.jp-RenderedHTMLCommon,.jp-RenderedText) a[href]{"
    "text-decoration:underline!important}</style>"
)


def show(exercise, result):
    """Show `result` of `exercise`: as text and, where widgets run, as a panel with the buttons Hint and Solution."""
    text = f"{SIGNS[result.status]} {result}"
    if not inside_notebook():
        print(text)
        return
    display_widget(_panel(exercise, result), text)


def inside_notebook():
    """True in a Jupyter kernel."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


def display_widget(widget, text, alt="", **bundle):
    """Display `widget` with `text` for places that show no widgets.

    `bundle` adds MIME types such as "image/png"; `alt` says in words what that picture shows.
    """
    from IPython.display import display

    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display(
        {"text/plain": text, **bundle, "application/vnd.jupyter.widget-view+json": view},
        raw=True,
        metadata={kind: {"alt": alt} for kind in bundle if alt},
    )


def _panel(exercise, result):
    import ipywidgets

    head = ipywidgets.HTML(STYLE + _message(result))
    more = ipywidgets.HTML("")
    hint = ipywidgets.Button(description="Hint", icon="question-circle")
    solution = ipywidgets.Button(description="Solution", icon="eye")
    hint.on_click(lambda _: _fill(more, exercise.hint))
    solution.on_click(lambda _: _fill(more, exercise.solution))
    buttons = [] if result.status == "correct" else [hint]
    return ipywidgets.VBox([head, ipywidgets.HBox([*buttons, solution]), more])


def _message(result):
    color = COLORS[result.status]
    return (
        f'<div role="status" style="border-left:4px solid {color};padding:2px 10px;line-height:1.4">'
        f"<b>{SIGNS[result.status]} {result.status.capitalize()}</b>"
        f'<div style="white-space:pre-wrap">{html.escape(result.message)}</div></div>'
    )


def _fill(place, print_it):
    from contextlib import redirect_stdout
    from io import StringIO

    text = StringIO()
    with redirect_stdout(text):
        print_it()
    style = "white-space:pre-wrap;line-height:1.4"
    place.value = f'<pre role="status" style="{style}">{html.escape(text.getvalue())}</pre>'
