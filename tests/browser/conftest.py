"""A browser for the tests that need one; they are skipped where there is none."""

import shutil

import pytest

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "msedge",
)
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    """Start the browser once for the tests of a file."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    if BROWSER is None:
        pytest.skip(f"needs a browser on the PATH: one of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """Give a fresh page, large enough that nothing is hidden."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()
