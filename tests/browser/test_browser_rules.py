"""The rules of accessibility see what is ours, and controls of widgets say the words beside them."""

import pytest
from axe import findings

from helpers import show

# What a page of JupyterLab looks like to the rules; the last part is the frame around the lesson.
LAB = """<html lang="en"><title>t</title><body><div class="jp-Notebook">
<div class="jp-Cell"><div class="jp-RenderedMarkdown"><h1>Fine</h1><pre style="color:#bbb">theme</pre></div></div>
<div class="jp-Cell"><div class="jp-OutputArea">{outputs}</div></div></div>
<img src="{png}"></body></html>"""
OUTPUT = (
    '<div class="jp-OutputArea-child"><div class="jp-OutputArea-output {kind}">{body}</div></div>'
)
PNG = "data:image/gif;base64,R0lGODlhAQABAAAAACw="


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ('<b style="color:#bbb">pale</b>', "color-contrast"),
        ('<i role="slider" tabindex="0" aria-valuenow="1">x</i>', "aria-input-field-name"),
    ],
)
def test_the_rules_see_our_content_and_nothing_else(body, rule, page):
    """Not the pale code of JupyterLab's theme, nor the nameless picture of the frame."""
    page.set_content(LAB.format(outputs=OUTPUT.format(kind="", body=body), png=PNG))
    [found] = findings(page)
    assert found.startswith(f"cell 1: {rule} ")


# What ipywidgets draws, versions 8 and 7: a title, radio buttons, a slider.
TITLE = '<div class="jupyter-widgets widget-html"><div>{style}<b>Predict:</b> how long?</div></div>'
RADIO = """<div class="widget-radio"><label class="widget-label" style="display:none"></label>
<div class="widget-radio-box"><label>a<input type="radio"></label></div></div>"""
ROW = """<div class="jupyter-widgets widget-slider"><label class="widget-label">your guess</label>{handle}
<div class="widget-readout">3 ms</div></div>"""
HANDLES = {
    "8": '<div class="noUi-handle" role="slider" tabindex="0" aria-valuenow="2.0" aria-valuetext="2">x</div>',
    "7": '<span class="ui-slider-handle" tabindex="0" style="left: 25%;">x</span>',
}
SAID = """() => [...document.querySelectorAll('.widget-radio-box, [tabindex]')].map(
    part => [part.role, part.ariaLabel, part.ariaValueText])"""


@pytest.mark.parametrize("handle", HANDLES.values(), ids=HANDLES)
def test_controls_say_the_words_beside_them(handle, page):
    boxes = "".join(
        f'<div class="widget-vbox">{TITLE.format(style=show.STYLE)}{control}</div>'
        for control in (RADIO, ROW.format(handle=handle))
    )
    page.set_content(LAB.format(outputs=OUTPUT.format(kind="", body=boxes), png=PNG))
    asked = "Predict: how long?"
    page.wait_for_function("() => document.querySelector('[tabindex]').ariaLabel")
    assert page.evaluate(SAID) == [
        ["radiogroup", asked, None],
        ["slider", f"{asked} your guess", "3 ms"],
    ]
    assert findings(page) == []
    page.evaluate("() => {document.querySelector('.widget-readout').textContent = '4 ms'}")
    assert page.evaluate(SAID)[1][2] == "4 ms"
