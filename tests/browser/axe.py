"""The rules of axe-core on what a lesson draws in JupyterLab: its prose, outputs and widgets; the frame is not ours.

Nor can axe see the ground behind a text in a chart of Vega: its colors are those of `helpers.plots`, tested there.
"""

import contextlib

import pytest

SCRIPT = pytest.importorskip(
    "axe_playwright_python.base", reason="needs the package axe-playwright-python"
).AXE_SCRIPT
OURS = [".jp-Notebook .jp-RenderedMarkdown", ".jp-Notebook .jp-OutputArea-output"]
# JupyterLab's own: its colors for code inside Markdown.
FIND = """async ([ours, rules]) => {
    const excused = (rule, part) => rule.id === 'color-contrast' && part.closest('.jp-RenderedMarkdown pre');
    document.querySelector('.jp-WindowedPanel-outer')?.scrollTo(0, 0);
    const cells = [...document.querySelectorAll('.jp-Notebook .jp-Cell')];
    const options = {elementRef: true, ...(rules && {runOnly: {type: 'rule', values: rules}})};
    const {violations, passes, incomplete} = await axe.run(
        {include: ours.map(place => [place]), exclude: [['.vega-embed']]}, options);
    const seen = [...violations, ...passes].flatMap(rule => rule.id === 'color-contrast' ? rule.nodes : []);
    // the marks ✓ and ✗ are no words; a screen reader doesn't say them
    const unseen = incomplete.flatMap(rule => rule.id === 'color-contrast' ? rule.nodes : [])
        .filter(node => !node.element.closest('[aria-hidden=true]'));
    if (seen.length <= 9 * unseen.length) throw Error(`axe saw ${seen.length} texts, ${unseen.length} it did not`);
    return violations.filter(rule => ['serious', 'critical'].includes(rule.impact)).flatMap(
        rule => rule.nodes.filter(node => !excused(rule, node.element)).map(node => ({
            rule: rule.id, impact: rule.impact, cell: cells.indexOf(node.element.closest('.jp-Cell')),
            element: node.html.slice(0, 200), why: node.failureSummary.replace(/\\s+/g, ' ')})));
}"""
# JupyterLab's page has no height, cuts off what is outside and scrolls: to axe, nearly all of it would be hidden.
UNCUT = "body, .jp-LabShell {overflow: visible !important}"
HEIGHT = """() => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].reduce(
    (sum, cell) => sum + cell.getBoundingClientRect().height, 400)"""
FITS = "height => (document.querySelector('.jp-WindowedPanel') || document.documentElement).clientHeight > height - 300"
# The first choice of a theme only stops JupyterLab from following the system; the second one is taken.
THEME = """async theme => {
    for (let n = 0; n < 2; n++) await window.jupyterapp.commands.execute('apputils:change-theme', {theme});
}"""
FOLLOW = "() => window.jupyterapp.commands.execute('apputils:adaptive-theme')"

SETTLED = "() => !document.getElementById('jupyterlab-splash')"


def findings(page, rules=None):
    """Return a text for each serious or critical finding in our content; `rules` names the only ones to apply."""
    page.add_style_tag(content=UNCUT)
    page.evaluate(f"() => {{ if (!window.axe) {{ {SCRIPT} }} }}")
    page.wait_for_function(SETTLED)
    with whole(page):
        return [
            "cell {cell}: {rule} ({impact}): {element}: {why}".format_map(found)
            for found in page.evaluate(FIND, [OURS, rules])
        ]


@contextlib.contextmanager
def whole(page):
    """Make the window as high as the notebook."""
    size, height = page.viewport_size, int(page.evaluate(HEIGHT))
    page.set_viewport_size(dict(size, height=height))
    page.wait_for_function(FITS, arg=height)
    try:
        yield
    finally:
        page.set_viewport_size(size)


@contextlib.contextmanager
def in_theme(page, name, usual="JupyterLab Light"):
    """Show JupyterLab in the theme `name`, then in the usual one again, since JupyterLab stores the choice."""
    try:
        change_theme(page, name)
        yield
    finally:
        change_theme(page, usual)
        page.evaluate(FOLLOW)  # the system's theme again


def change_theme(page, name):
    """Change JupyterLab's theme and wait until it is there, and the screen that hides the change is gone."""
    page.evaluate(THEME, name)
    page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)
    page.wait_for_function(SETTLED)
