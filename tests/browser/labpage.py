"""JupyterLab for tests: started over a copy of the lessons, and what is asked of a page that shows one."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from course.tools import _copies, _notebooks, lab
from course.tools.execute import environment

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
}

RUN_ALL = """async () => {
    const app = window.jupyterapp, panel = app.shell.currentWidget;
    await panel.sessionContext.ready;
    await app.commands.execute('notebook:run-all-cells');
}"""
CELLS = "() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON().cells"
KERNEL = "() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"
# Resolves when the kernel has dealt with all that was sent before, and its messages are here.
REPLY = """async () => {
    await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo();
}"""
END = "() => window.jupyterapp.serviceManager.sessions.shutdownAll()"
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"
TEXT = "() => document.querySelector('.jp-Notebook').innerText"
ACTIVE = "() => window.jupyterapp.shell.currentWidget.content.activeCellIndex"


def browser_path():
    """Return the path of a browser; None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextlib.contextmanager
def jupyterlab(root):
    """Start JupyterLab in `root` as `python3 lab.py` does, over a copy of the lessons; give (base, token)."""
    ignored = shutil.ignore_patterns(".ipynb_checkpoints")
    shutil.copytree(_notebooks.FOLDER, root / "notebooks", ignore=ignored)
    for path in (root / "notebooks").glob("*.ipynb"):
        path.write_bytes(_copies.content(path.name))
    for name, values in SETTINGS.items():
        file = root / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    (root / "config" / "custom").mkdir(parents=True)
    shutil.copy(lab.LOOK, root / "config" / "custom")
    options = argparse.Namespace(port=free_port(), no_browser=True)
    line = [
        *lab.command(sys.executable, options, root / "notebooks"),
        "--LabApp.expose_app_in_browser=True",
    ]
    variables = environment(
        root / "home",
        **{name: lab.environment()[name] for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH")},
        JUPYTER_CONFIG_DIR=str(root / "config"),
        JUPYTERLAB_SETTINGS_DIR=str(root / "settings"),
        JUPYTERLAB_WORKSPACES_DIR=str(root / "workspaces"),
    )
    with serving(line, root, variables, root / "log") as found:
        yield found


def free_port():
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(line, folder, variables, log):
    """Run a command that starts JupyterLab in `folder`; give (base address, token) as its log names them."""
    with open(log, "w") as file:
        server = subprocess.Popen(
            line, cwd=folder, env=variables, stdout=file, stderr=file, start_new_session=True
        )
    try:
        yield wait_for_address(server, log)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended; the log says why
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def wait_for_address(server, log, seconds=180):
    """Return (base address, token) as soon as JupyterLab has written them to its log."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        found = re.search(r"(http://localhost:\d+)/lab/tree/\S+\?token=(\w+)", log.read_text())
        if found:
            return found.groups()
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")


def new_context(browser):
    """Return a fresh context, its pages large enough that nothing is hidden."""
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    context.set_default_timeout(60_000)
    return context


def open_lesson(page, address, path):
    """Open one lesson and wait until its kernel is there."""
    base, token = address
    page.goto(f"{base}/lab/tree/notebooks/{path.name}?token={token}&reset")
    page.wait_for_function(KERNEL)


def run_all(page):
    """Run every cell of the open lesson; an error that is not meant fails the test."""
    page.evaluate(RUN_ALL)
    failed = errors(page.evaluate(CELLS))
    assert not failed, failed


def errors(cells):
    """Return the errors in the outputs of cells that are not meant to raise."""
    return [
        f"cell {i}: {output['ename']}: {output['evalue']}"
        for i, cell in enumerate(cells)
        if "raises-exception" not in cell["metadata"].get("tags", [])
        for output in cell.get("outputs", [])
        if output["output_type"] == "error"
    ]
