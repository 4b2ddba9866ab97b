"""The browser lane: one browser and one JupyterLab for all its tests; skipped where there is no browser."""

import os

import labpage
import pytest


@pytest.fixture(scope="session")
def browser():
    """Start the browser once."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    path = labpage.browser_path()
    if path is None:
        pytest.skip(f"needs a browser on the PATH: one of {', '.join(labpage.BROWSERS)}")
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=labpage.FLAGS)
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
    with labpage.jupyterlab(root) as found:
        yield found
