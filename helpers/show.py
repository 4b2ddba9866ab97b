"""How the course shows things in a notebook: widgets that leave an ordinary output, Markdown, plain text elsewhere.

A widget lives only as long as its kernel. So each is followed by ordinary outputs (a picture, words) that say the same.
They are hidden while the widget is alive, and they are what a saved notebook, a web page or a printout shows.
"""

import base64
import html

VIEW = "application/vnd.jupyter.widget-view+json"
ROW = "course-row"  # the class of radio buttons that stand side by side
LIVE = "course-live"  # the class of a widget of the course: where it is drawn, it hides the words after it,
PICTURED = "course-pictured"  # and with this class the picture before the words, too
STILL = "course-still"  # the class of the words; after a picture they have another

# JupyterLab, VS Code, the classic notebook and Colab call the place of one output by different names.
PLACES = ".jp-OutputArea-child", ".output_container", ".output_area", ".output_subarea"

# What JupyterLab says in place of a widget whose kernel is gone: hidden, since the words are there.
_GONE = f".jp-OutputArea-child:has(>.jp-OutputArea-output.jupyter-widgets):not(:has(.{LIVE}))"
STILL_STYLE = (
    f"<style>{_GONE}:has(+*>*>.{STILL}),{_GONE}:has(+*+*>*>.{STILL}-of-picture)"
    "{display:none}</style>"
)

# ipywidgets gives sliders and groups of radio buttons no name that a screen reader could say, and a slider the number
# of its option for a value. This takes the words beside them, now and whenever something in their box changes. To
# version 7 a slider (.ui-slider-handle) is no slider at all: there, the place of the handle is its value, 0 to 100.
# What buttons show is said, too. A choice made with the mouse then makes the next cell the active one, so that Shift+Enter goes on.
_SCRIPT = """
const box = this.closest('.course-live') || this.closest('.widget-vbox');
const words = part => part ? part.innerText.trim() : '';
const name = () => box.querySelectorAll('.widget-radio-box, .noUi-handle, .ui-slider-handle').forEach(part => {
    const row = part.closest('.widget-radio, .widget-slider'), title = row.previousElementSibling;
    const above = title && title.classList.contains('widget-html') ? words(title) : '';
    part.setAttribute('aria-label', `${above} ${words(row.querySelector('.widget-label'))}`.trim());
    const readout = row.querySelector('.widget-readout');
    part.setAttribute('role', readout ? 'slider' : 'radiogroup');
    if (readout) part.setAttribute('aria-valuetext', words(readout));
    if (part.matches('.ui-slider-handle')) part.setAttribute('aria-valuenow', parseFloat(part.style.left) || 0);
});
box && box.querySelectorAll('.widget-output, .jp-OutputArea').forEach(part => part.setAttribute('role', 'status'));
const goOn = event => {
    const cell = box.closest('.jp-Cell'), next = cell && cell.nextElementSibling;
    const place = next && next.querySelector('.jp-InputPrompt, .jp-Cell-inputWrapper');
    if (!event.detail || !event.target.matches('input[type=radio]') || !place) return;
    place.dispatchEvent(new MouseEvent('mousedown', {bubbles: true, button: 0}));
};
if (box && !box.named) {
    box.named = new MutationObserver(name);
    box.named.observe(box, {childList: true, subtree: true});
    if (box.matches('.course-goes-on')) box.addEventListener('click', event => setTimeout(goOn, 0, event));
    name();
}
"""
GOES_ON = "course-goes-on"


def _hiding():
    """The rules by which a widget that is alive hides the outputs that stand in for it."""
    rules = []
    for place in PLACES:
        rules.append(f"{place}:has(.{LIVE})+{place}")
        rules.append(f"{place}:has(.{PICTURED})+{place}+{place}")
    return "".join(f"{rule}{{display:none}}" for rule in rules)


# Where the keyboard is can be seen, since ipywidgets hides it on sliders; links can be told without color, in the whole
# notebook, since JupyterLab does not underline them; words break only between words.
STYLE = (
    f'<style onload="{html.escape(_SCRIPT)}">{_hiding()}'
    ".jupyter-widgets :is(.noUi-handle,.ui-slider-handle,input,button):focus{outline:3px solid #0072b2!important;"
    f"outline-offset:2px}}.{ROW} .widget-radio-box{{display:flex;flex-flow:row wrap;column-gap:1.5em;"
    f"padding-left:5px}}.{ROW}{{flex-wrap:wrap;height:auto}}.{ROW}>.widget-label{{flex:0 0 100%;"
    f"white-space:normal;text-align:left}}.{LIVE} .widget-html-content{{word-break:normal;overflow-wrap:break-word;height:auto}}"
    f".{LIVE} .widget-html{{height:auto}}"
    ".jp-Notebook .jp-OutputArea-output pre{word-break:normal;overflow-wrap:break-word}"
    ".jp-Notebook :is(.jp-RenderedHTMLCommon,.jp-RenderedText) a[href]{"
    "text-decoration:underline!important}</style>"
)


def inside_notebook():
    """True in a Jupyter kernel."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


def show_picture(png, alt):
    """Display PNG bytes in a notebook; `alt` says in words what they show."""
    from IPython.display import display

    data, metadata = _picture(png, alt)
    display({**data, "text/plain": "figure"}, metadata=metadata, raw=True)


class Still:
    """The ordinary outputs that stand in for a widget: `update` changes them while the widget is used."""

    def __init__(self, page, text, picture=None, alt=""):
        from IPython.display import display

        self.picture = None
        if picture is not None:
            data, metadata = _picture(picture, alt)
            self.picture = display(data, metadata=metadata, raw=True, display_id=True)
        self.words = display(self._bundle(page, text), raw=True, display_id=True)

    def update(self, page, text, picture=None, alt=""):
        """Replace the words, and the picture where there is a new one."""
        if picture is not None:
            data, metadata = _picture(picture, alt)
            self.picture.update(data, metadata=metadata, raw=True)
        self.words.update(self._bundle(page, text), raw=True)

    def _bundle(self, page, text):
        kind = STILL if self.picture is None else f"{STILL}-of-picture"
        words = f'<div class="{kind}">{page}</div>{STILL_STYLE}'
        return {"text/html": words, "text/plain": text}


def widget(box, page, text, picture=None, alt=""):
    """Display the widget `box` and the outputs that stand in for it; returns these, a `Still`.

    `page` is their HTML, `text` the same in plain words, `picture` PNG bytes (or None) with the words `alt`.
    """
    from IPython.display import display

    box.add_class(LIVE)
    if picture is not None:
        box.add_class(PICTURED)
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    display({VIEW: view}, raw=True)
    return Still(page, text, picture, alt)


def page(words, text):
    """Show HTML `words` in a notebook and `text` elsewhere; returns a handle whose `update` changes it, or None."""
    return _display("text/html", words, text)


def markdown(words, text):
    """Show Markdown `words` in a notebook and `text` elsewhere."""
    _display("text/markdown", words, text)


def listed(label, question, choices, note):
    """(HTML, text) of a question with its choices and a note."""
    lines = [f"{label} {question}", *(f"  - {choice}" for choice in choices), note]
    items = "".join(f"<li>{html.escape(choice)}</li>" for choice in choices)
    page = (
        f"<p><b>{html.escape(label)}</b> {html.escape(question)}</p><ul>{items}</ul>"
        f"<p><i>{html.escape(note)}</i></p>"
    )
    return page, "\n".join(lines)


def _display(kind, words, text):
    if not inside_notebook():
        print(text)
        return None
    from IPython.display import display

    return display({kind: words, "text/plain": text}, raw=True, display_id=True)


def _picture(png, alt):
    data = {"image/png": base64.b64encode(png).decode("ascii"), "text/plain": alt}
    return data, {"image/png": {"alt": alt}}
