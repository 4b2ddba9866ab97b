"""How a check's outcome looks: a small panel with buttons in JupyterLab, plain text everywhere else."""
import html

SIGNS = {"correct": "✓", "not yet": "✗", "not attempted": "○", "error in your code": "!"}
COLORS = {"correct": "#00664d", "not yet": "#9c3d00", "not attempted": "#444444", "error in your code": "#9c3d00"}


ROW = "course-row"  # the class of radio buttons that stand side by side
# Where the keyboard is can be seen, since ipywidgets hides it on sliders.
STYLE = ("<style>.jupyter-widgets :is(.noUi-handle,input,button):focus{outline:3px solid #0072b2!important;"
         f"outline-offset:2px}}.{ROW} .widget-radio-box{{display:flex;flex-flow:row wrap;column-gap:1.5em;"
         "padding-left:5px}</style>")


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


def display_widget(widget, text, **bundle):
    """Display `widget` with `text` for places that show no widgets; `bundle` adds MIME types such as a PNG."""
    from IPython.display import display
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"text/plain": text, **bundle, "application/vnd.jupyter.widget-view+json": view}, raw=True)


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
    return (f'<div role="status" style="border-left:4px solid {color};padding:2px 10px;line-height:1.4">'
            f'<b style="color:{color}">{SIGNS[result.status]} {result.status.capitalize()}</b>'
            f'<div style="white-space:pre-wrap">{html.escape(result.message)}</div></div>')


def _fill(place, print_it):
    from contextlib import redirect_stdout
    from io import StringIO
    text = StringIO()
    with redirect_stdout(text):
        print_it()
    style = "white-space:pre-wrap;line-height:1.4"
    place.value = f'<pre role="status" style="{style}">{html.escape(text.getvalue())}</pre>'
