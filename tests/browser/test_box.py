"""Notebook 91 in a browser: a message is pasted into the box, and the answer below it follows."""

import pytest
from test_browser import (  # noqa: F401
    OUTPUTS,
    PATHS,
    RUN_ALL,
    address,
    browser,
    errors,
    open_lesson,
    page,
    pytestmark,
)

CASES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "The GPU's memory is full",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    print(x.numpy())\nTypeError: can\'t '
    "convert cuda:0 device type tensor to numpy. Use Tensor.cpu()": "NumPy cannot read a GPU's memory",
    "ValueError: <b>nothing known</b>": "This message is not among the",
    "": "Paste an error message",
}


def test_the_box_answers_what_is_pasted(page, address):  # noqa: F811
    path = next((path for path in PATHS if path.name.startswith("91_")), None)
    if path is None:
        pytest.skip("no notebook 91")
    open_lesson(page, address, path)
    page.evaluate(RUN_ALL)
    assert errors(page.evaluate(OUTPUTS)) == []
    field = page.locator("textarea[placeholder^='Paste an error message']")
    field.scroll_into_view_if_needed()
    answer = page.locator(".jupyter-widgets [role=status]").first
    assert "Tensors of two devices" in answer.inner_text()
    for message, beginning in CASES.items():
        field.fill(message)
        page.wait_for_function(
            "([start]) => [...document.querySelectorAll('.jupyter-widgets [role=status]')]"
            ".some(part => part.innerText.startsWith(start))",
            arg=[beginning],
        )
    field.fill(next(iter(CASES)))
    page.wait_for_function("() => document.querySelector('.jupyter-widgets [role=status] a')")
    link = page.locator(".jupyter-widgets [role=status] a").first
    assert (
        link.evaluate("part => part.href")
        .split("?")[0]
        .endswith("/notebooks/05_manage_gpu_memory.ipynb")
    )
    page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
