"""The second day: a lesson whose kernel is gone shows what was chosen, and never that a widget is missing."""

from labpage import END, KERNEL, open_lesson, run_all

from tools import _notebooks

SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
TEXT = "() => document.querySelector('.jp-Notebook').innerText"
ACTIVE = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"
NEXT = """part => [...document.querySelectorAll('.jp-Notebook .jp-Cell')].indexOf(part.closest('.jp-Cell')) + 1"""


def test_a_reopened_lesson_shows_every_widget_in_words_and_pictures(page, address):
    [path] = _notebooks.find(["00"])
    open_lesson(page, address, path)
    run_all(page)
    choice = page.locator(".course-goes-on input[type=radio]").nth(1)
    following = choice.evaluate(NEXT)
    choice.click()
    page.wait_for_function(f"() => ({ACTIVE})() === {following}")
    page.wait_for_timeout(1000)  # what was chosen reaches the saved words
    page.evaluate(SAVE)
    page.evaluate(END)
    open_lesson(page, address, path)
    page.wait_for_function("() => document.querySelector('.course-still')")
    page.wait_for_function(KERNEL)
    page.wait_for_timeout(3000)  # JupyterLab looks for the widgets in the new kernel
    text = page.evaluate(TEXT)
    assert "Error displaying widget" not in text
    assert "You chose:" in text
    page.evaluate(END)
