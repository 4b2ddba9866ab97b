"""JupyterLab in a browser: Run All on each lesson, move every widget, see what it shows change, apply axe's rules."""

import pytest
from axe import findings, in_theme
from labpage import CELLS, END, REPLY, VIEWS, errors, new_context, open_lesson, run_all

from tools import _notebooks

PATHS = _notebooks.find()
LESSONS = [path for path in PATHS if path.name < "90"]
# What a widget shows: its pictures, its texts and the outputs that it draws; not the readouts beside its controls.
SHOWN = """view => {
    const text = [...view.querySelectorAll('.widget-html-content, .jp-OutputArea')].map(part => part.innerText);
    const pictures = [...view.querySelectorAll('img, svg, canvas')].map(
        part => part.src || (part.toDataURL ? part.toDataURL() : part.outerHTML));
    const chosen = [...view.querySelectorAll('input[type=radio], input[type=checkbox]')].map(part => part.checked);
    return {text: text.join('|'), pictures: pictures.join('|'), chosen: chosen.join()};
}"""
# What a person at the keyboard meets: where the focus is, and whether it can be seen.
FOCUSED = """() => {
    const part = document.activeElement, style = getComputedStyle(part), view = part.closest('.jp-OutputArea-output');
    const group = part.closest('.widget-radio') || part;
    const slider = part.className.includes('noUi-handle');
    const kind = slider ? 'slider' : part.type === 'submit' ? 'button' : part.checked ? '' : part.type || '';
    const first = !group.dataset.met && view && part.closest('.jupyter-widgets') && kind !== '';
    if (first) group.dataset.met = 'yes';
    return {cell: !!part.closest('.jp-Notebook .jp-Cell'), kind: first ? kind : '',
            seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
            html: part.outerHTML.slice(0, 160)};
}"""
ANSWER = """() => {
    const view = document.activeElement.closest('.jp-OutputArea-output');
    return [...view.querySelectorAll('[role=status]')].map(part => part.innerText).join('|')
        + [...view.querySelectorAll('.widget-readout')].map(part => part.innerText).join('|');
}"""
UNMET = """() => [...document.querySelectorAll('.jp-OutputArea-output .jupyter-widgets')].flatMap(
    view => [...view.querySelectorAll('.noUi-handle, .widget-radio, button.jupyter-button')]).filter(
    part => !part.dataset.met).map(part => part.outerHTML.slice(0, 160))"""
UNSEEN = """controls => controls.filter(part => {
    part.focus({focusVisible: true});
    const style = getComputedStyle(part);
    return document.activeElement !== part || part.tabIndex < 0 || style.outlineStyle === 'none';
}).map(part => part.outerHTML.slice(0, 160))"""
# What a screen reader says of a control: the words that stand beside it.
UNNAMED = """() => [...document.querySelectorAll('.jupyter-widgets :is(.noUi-handle, .widget-radio-box)')].filter(
    part => {
        const readout = part.closest('.widget-radio, .widget-slider').querySelector('.widget-readout');
        const fits = readout ? part.ariaValueText === readout.innerText.trim() : part.role === 'radiogroup';
        return !part.ariaLabel || !fits;
    }).map(part => part.outerHTML.slice(0, 160))"""
KEYS = {"slider": "ArrowRight", "radio": "Space", "checkbox": "Space", "button": "Enter"}
CONTROLS = ".noUi-handle, input[type=radio], input[type=checkbox], button.jupyter-button"


def move(control):
    """Move one control as a person would, with mouse or keyboard."""
    control.scroll_into_view_if_needed()
    kind = control.evaluate("part => part.type || part.className")
    if "noUi-handle" in kind:
        at_end = control.evaluate(
            "part => +part.getAttribute('aria-valuenow') >= +part.getAttribute('aria-valuemax')"
        )
        control.press("ArrowLeft" if at_end else "ArrowRight")
    else:
        control.click()


def moved(page, view, control):
    """Move a control; return (before, after) of what its widget shows, as soon as it shows something else."""
    before = view.evaluate(SHOWN)
    move(control)
    for _ in range(100):
        after = view.evaluate(SHOWN)
        if before["pictures"] and after["pictures"] != before["pictures"]:
            break
        if not before["pictures"] and after != before:  # perhaps only the choice, before its answer
            page.evaluate(REPLY)
            after = view.evaluate(SHOWN)
            break
        page.wait_for_timeout(50)
    return before, after


@pytest.fixture(scope="module")
def lesson(request, browser, address):
    """Give a page on which all cells of a lesson have run; the tests of one lesson share it."""
    context = new_context(browser)
    page = context.new_page()
    open_lesson(page, address, request.param)
    run_all(page)
    page.wait_for_timeout(500)  # the last views are drawn
    yield page
    page.evaluate(END)
    context.close()


def of_each(paths):
    """Run a test on the page of each lesson in `paths`."""
    return pytest.mark.parametrize(
        "lesson", paths, ids=[path.stem for path in paths], indirect=True
    )


@of_each(LESSONS)
def test_everything_is_reached_and_used_with_the_keyboard_alone(lesson):
    met, problems, inside = [], [], False
    for _ in range(600):
        lesson.keyboard.press("Tab")
        now = lesson.evaluate(FOCUSED)
        if inside and not now["cell"] and met:
            break
        inside = now["cell"]
        if now["kind"]:
            met.append(now["kind"])
            problems += use(lesson, now)
    assert lesson.evaluate(UNMET) == [], f"the focus left the notebook after {met}"
    assert met
    assert problems == []


@of_each(PATHS)
def test_run_all_then_move_every_widget(lesson):
    assert lesson.locator(VIEWS).locator(CONTROLS).evaluate_all(UNSEEN) == [], (
        "the keyboard does not reach or show these"
    )
    still = [
        problem
        for view in lesson.locator(VIEWS).all()
        if view.locator(CONTROLS).count()
        for problem in move_all(lesson, view)
    ]
    assert not still, "\n".join(still)
    assert errors(lesson.evaluate(CELLS)) == []
    assert lesson.evaluate(UNNAMED) == []
    found = findings(lesson)
    with in_theme(lesson, "JupyterLab Dark"):
        found += [
            f"dark, {finding}"
            for finding in findings(lesson, ["color-contrast", "link-in-text-block"])
        ]
    assert not found, "\n".join(found)


def use(page, control):
    """Use the control that has the focus; return what is wrong: focus not seen, or no answer in words."""
    before = settled(page)
    page.keyboard.press(KEYS[control["kind"]])
    for _ in range(100):
        if page.evaluate(ANSWER) != before:
            break
        page.wait_for_timeout(50)
    else:
        return [f"no answer in words: {control['html']}"]
    page.evaluate(REPLY)  # by now, a prediction's answer in the next cell has been drawn anew
    return [] if control["seen"] else [f"focus not to be seen: {control['html']}"]


def settled(page):
    """Return the answer of the focused control's widget, once those to earlier keys have come: no change in 0.5 s."""
    found, same = page.evaluate(ANSWER), 0
    for _ in range(100):
        page.wait_for_timeout(100)
        now = page.evaluate(ANSWER)
        found, same = now, same + 1 if now == found else 0
        if same == 5:
            break
    return found


def move_all(page, view):
    """Move each control of one widget; return a text for each that changed nothing or showed a traceback."""
    problems, answered = [], False
    for number in range(view.locator(CONTROLS).count()):
        control = view.locator(CONTROLS).nth(number)
        if control.evaluate("part => part.checked"):
            continue  # nothing to choose
        name = control.evaluate("part => part.outerHTML")[:160]
        before, after = moved(page, view, control)
        if before == after or (before["pictures"] and before["pictures"] == after["pictures"]):
            problems.append(f"nothing changed: {name}")
        if "Traceback" in after["text"]:
            problems.append(f"traceback: {name}")
        # The last move may lead back to an answer of an earlier day.
        answered = answered or any(before[part] != after[part] for part in ("text", "pictures"))
    return problems if answered else [*problems, "no answer to anything"]
