"""Notebook 91 in a browser: a message is pasted into the box, and the answer below it follows."""

from labpage import END, open_lesson, run_all

from tools import _notebooks

CASES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "The GPU's memory is full",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    print(x.numpy())\nTypeError: can\'t '
    "convert cuda:0 device type tensor to numpy. Use Tensor.cpu()": "NumPy cannot read a GPU's memory",
    "ValueError: <b>nothing known</b>": "This message is not among the",
    "": "Paste an error message",
}


def test_the_box_answers_what_is_pasted(page, address):
    [path] = _notebooks.find(["91"])
    open_lesson(page, address, path)
    run_all(page)
    field = page.locator("textarea[placeholder^='Paste an error message']")
    field.scroll_into_view_if_needed()
    answer = page.locator(".jupyter-widgets [role=status]").first
    assert answer.inner_text()
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
    page.evaluate(END)
