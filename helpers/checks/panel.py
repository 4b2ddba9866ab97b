"""How a check's outcome looks: a small panel with buttons in JupyterLab, plain text everywhere else."""

import html

from helpers import show

SIGNS = {"correct": "✓", "not yet": "✗", "not attempted": "○", "error in your code": "!"}
# Of the line beside a message: a contrast of 3 to 1 against white and against the dark of JupyterLab's dark theme.
COLORS = {
    "correct": "#009e73",
    "not yet": "#d55e00",
    "not attempted": "#808080",
    "error in your code": "#d55e00",
}


def show_result(exercise, result):
    """Show `result` of `exercise`: as text and, where widgets run, as a panel with the buttons Hint and Solution."""
    text = f"{SIGNS[result.status]} {result}"
    if show.inside_notebook():
        show.widget(_panel(exercise, result), _message(result), text)
    else:
        print(text)


def _panel(exercise, result):
    import ipywidgets

    head = ipywidgets.HTML(show.STYLE + _message(result))
    words = ipywidgets.Output()
    hint = ipywidgets.Button(description="Hint", icon="question-circle")
    solution = ipywidgets.Button(description="Solution", icon="eye")
    hint.on_click(lambda _: _fill(words, *exercise.next_hint()))
    solution.on_click(lambda _: _fill(words, *exercise.model_answer()))
    buttons = [solution] if result.status == "correct" else [hint, solution]
    return ipywidgets.VBox([head, ipywidgets.HBox(buttons), words])


def _message(result):
    color = COLORS[result.status]
    return (
        f'<div role="status" style="border-left:4px solid {color};padding:2px 10px;line-height:1.4">'
        f"<b>{SIGNS[result.status]} {result.status.capitalize()}</b>"
        f'<div style="white-space:pre-wrap">{html.escape(result.message)}</div></div>'
    )


def _fill(output, markdown, text):
    """Show `markdown` in an Output widget as JupyterLab renders it: with code in color."""
    data = {"text/markdown": markdown, "text/plain": text}
    output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
