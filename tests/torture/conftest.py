"""The torture lane: what each test has shown, as a table at the end, kept for `python3 -m helpers report`.

`python3 -m helpers test` runs a fast part of it, `python3 -m helpers test --torture` the whole.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # test_browser.py, test_data.py

import lanes  # noqa: E402


def pytest_addoption(parser):
    """Add --torture, which asks for the whole lane (see lanes.FULL)."""
    parser.addoption("--torture", action="store_true", help="the whole torture lane, not only its fast part")


@pytest.fixture
def seen(record_property):
    """Return a function that notes what the test shows: a scenario, the lesson it was shown on, and how often."""
    def note(scenario, lesson="", count=1):
        record_property("seen", [scenario, lesson, count])
    return note


def pytest_terminal_summary(terminalreporter, config):
    """Print the table of scenarios and lessons and keep it for the next `report`."""
    rows = [(*value, report.outcome) for outcome in ("passed", "failed") for report in terminalreporter.stats.get(
        outcome, ()) if report.when == "call" for name, value in report.user_properties if name == "seen"]
    if rows:
        text = lanes.table(rows)
        terminalreporter.section("torture")
        terminalreporter.write_line(text)
        if hasattr(config, "cache") and lanes.FULL and not config.option.keyword:
            config.cache.set("course/torture", text)
