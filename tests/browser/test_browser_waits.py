"""A cell that takes long says so, in JupyterLab alone: whoever saw nothing for sixteen seconds ran the cell again."""

import nbformat
import pytest
from labpage import CELLS, END, REPLY, RUN_ALL, open_lesson

SLOW = ["1", "import time; time.sleep(11.5)", "time.sleep(1.6)"]
RUN = "() => {window.ran = (" + RUN_ALL + ")()}"


@pytest.fixture
def slow(address, page, root):
    """Open a notebook with cells that take no time, long, and a little; give its page."""
    path = root / "notebooks" / "slow.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(source) for source in SLOW]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    open_lesson(page, address, path)
    yield page
    page.evaluate(END)


def test_a_cell_says_after_a_second_that_it_runs_and_after_ten_shows_a_bar(slow):
    page, sign = slow, slow.locator(".jp-Cell:nth-child(2) .course-wait")
    page.evaluate(RUN)
    sign.wait_for(timeout=10_000)
    said = sign.inner_text()
    assert said in ("Running for 1 s", "Running for 2 s") and not sign.locator("progress").count()
    sign.locator("progress").wait_for(timeout=12_000)
    assert "The square in the toolbar stops it." in sign.inner_text()
    page.locator(".jp-Cell:nth-child(3) .course-wait").wait_for(timeout=5_000)
    assert page.locator(".course-wait").count() == 1, "only the cell that runs now has one"
    page.evaluate("() => window.ran")
    page.evaluate(REPLY)
    page.locator(".course-wait").wait_for(state="detached", timeout=2_000)
    assert not any(cell["outputs"] for cell in page.evaluate(CELLS)[1:]), "no output, nothing saved"
    page.evaluate(RUN)
    page.locator(".course-wait", has_text="last time 1").wait_for(timeout=4_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.locator(".course-wait").wait_for(state="detached", timeout=4_000)
