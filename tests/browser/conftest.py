"""The browser lane: one browser and one JupyterLab for all its tests; skipped where there is no browser."""

import argparse
import json
import os
import shutil
import sys

import labpage
import pytest

from course.tools import _notebooks, lab
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


@pytest.fixture(scope="session")
def browser():
    """Start the browser once."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser on the PATH: one of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """Give a fresh page."""
    context = labpage.new_context(browser)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Give the folder from which JupyterLab is started."""
    return tmp_path_factory.mktemp("course")


@pytest.fixture(scope="session")
def address(browser, root):
    """Start JupyterLab as `python3 lab.py` does, over a copy of the lessons; give (base, token)."""
    if os.name == "nt":
        pytest.skip("ends JupyterLab with a signal")
    ignored = shutil.ignore_patterns(".ipynb_checkpoints")
    shutil.copytree(_notebooks.FOLDER, root / "notebooks", ignore=ignored)
    for name, values in SETTINGS.items():
        file = root / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    (root / "config" / "custom").mkdir(parents=True)
    shutil.copy(lab.LOOK, root / "config" / "custom")
    options = argparse.Namespace(port=labpage.free_port(), no_browser=True)
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
    with labpage.serving(line, root, variables, root / "log") as found:
        yield found
