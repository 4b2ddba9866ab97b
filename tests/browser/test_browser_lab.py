"""A browser that moves widgets faster than a person while cells run, and what JupyterLab sends, asks and writes."""

import os
import re
import shutil
import sys

import labpage
import psutil
import pytest
from copies import copy_of_course
from labpage import CELLS, END, IDLE, REPLY, RUN_ALL, VIEWS, errors, open_lesson, run_all

from tools import _notebooks

MOVES = 100
# Moves `count` random controls of all widgets that are there, one each 25 ms, by keys and clicks; says how many, and
# how many of them while a cell was running or waiting, as the star beside it says.
RANDOM_MOVES = """async ([count, seed]) => {
    let state = seed, moved = 0, during = 0;
    const random = below => (state = (state * 1103515245 + 12345) % 2147483648) % below;
    const keys = ['ArrowRight', 'ArrowLeft', 'PageUp', 'PageDown', 'Home', 'End'];
    for (let i = 0; i < 40 * count && moved < count; i++) {
        await new Promise(done => setTimeout(done, 25));
        const parts = [...document.querySelectorAll('.jp-OutputArea-output .jupyter-widgets')].flatMap(
            view => [...view.querySelectorAll('.noUi-handle, input[type=radio], button.jupyter-button')]);
        if (!parts.length) continue;
        const part = parts[random(parts.length)];
        if (part.className.includes('noUi-handle')) {
            const key = keys[random(keys.length)];
            part.focus();
            part.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        } else part.click();
        moved++;
        during += [...document.querySelectorAll('.jp-InputPrompt')].some(prompt => prompt.innerText.includes('*'));
    }
    return [moved, during];
}"""
START = RUN_ALL.replace("await app.commands", "app.commands")  # goes on at once
assert START != RUN_ALL


@pytest.mark.parametrize("lesson", ["02", "05", "08"])
def test_widgets_moved_at_random_while_cells_run(lesson, page, address):
    open_lesson(page, address, *_notebooks.find([lesson]))
    run_all(page)
    page.wait_for_timeout(500)
    page.evaluate(START)
    moved, during = page.evaluate(RANDOM_MOVES, [MOVES, int(lesson) + 1])
    assert moved == MOVES and during >= MOVES // 10
    page.wait_for_function(IDLE, timeout=600_000)
    page.wait_for_timeout(1000)
    page.evaluate(REPLY)
    assert errors(page.evaluate(CELLS)) == []
    widgets = [view.inner_text() for view in page.locator(VIEWS).all()]
    assert widgets
    assert not [
        text for text in widgets if "Traceback" in text or "Error displaying widget" in text
    ]
    page.evaluate(END)


# JupyterLab as `python3 lab.py` starts it

SEALED = """
mount --bind '{0}' '{0}'
mount --bind /dev/shm /dev/shm
mount -o remount,bind,ro /
cd '{0}/course'
exec "$@"
"""


@pytest.fixture
def lab(tmp_path):
    """Start `lab` over a copy of the course, HOME beside it, where possible all else read-only; give (base, token)."""
    root = copy_of_course(tmp_path / "course")
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    port = labpage.free_port()
    line = [sys.executable, "-m", "tools", "lab", "--here", "--no-browser", "--port", str(port)]
    if os.geteuid() == 0 and sys.platform == "linux" and shutil.which("unshare"):
        line = ["unshare", "-m", "sh", "-ec", SEALED.format(tmp_path), "sh", *line]
    hidden = ("JUPYTER", "XDG", "IPYTHON")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    variables |= {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(root),
    }
    variables.pop("GPU_COURSE_HOME", None)
    with labpage.serving(line, root, variables, tmp_path / "log") as found:
        yield found


def listening(port):
    """Return the addresses at which somebody listens at `port`."""
    every = psutil.net_connections(kind="tcp")
    return {each.laddr.ip for each in every if each.laddr.port == port and each.status == "LISTEN"}


def test_lab_keeps_to_itself(lab, browser, tmp_path):
    base, token = lab
    found = listening(int(base.rpartition(":")[2]))
    assert found and found <= {"127.0.0.1", "::1"}
    requests, context = [], browser.new_context(viewport={"width": 1400, "height": 4000})
    context.on("request", lambda request: requests.append(request.url))
    context.set_default_timeout(60_000)
    tab = context.new_page()
    tab.on("websocket", lambda opened: requests.append(opened.url))
    tab.goto(f"{base}/lab/tree/notebooks/00_start_here.ipynb?token={token}")
    tab.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
    tab.add_locator_handler(
        tab.get_by_role("button", name="Select", exact=True), lambda found: found.click()
    )
    tab.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(timeout=90_000)
    tab.get_by_role("menuitem", name="Run", exact=True).click()
    tab.get_by_text("Run All Cells", exact=True).first.click()
    tab.locator(".jp-OutputArea-output .jupyter-widgets").first.wait_for(timeout=60_000)
    tab.wait_for_timeout(5000)
    context.close()
    host = base.removeprefix("http://")
    outside = [
        url for url in requests if not url.startswith((base, f"ws://{host}", "data:", "blob:"))
    ]
    pictures = set(
        re.findall(
            r"!\[[^]]*\]\((https:[^)]+)\)",
            _notebooks.read(*_notebooks.find(["00"])).cells[0].source,
        )
    )
    assert len(requests) > 20 and set(outside) <= pictures, (
        "only the launch badges may be drawn by their makers' sites"
    )
    assert "Read-only file system" not in (tmp_path / "log").read_text()
    # Jupyter's (which asks npm), IPython's, …
    own = {".local", ".jupyter", ".ipython", ".cache", ".config", ".npm"}
    assert {path.name for path in (tmp_path / "home").iterdir()} <= own
