"""The torture lane: what each test has shown, as a table at the end, kept for `python3 -m helpers report`.

`python3 -m helpers test` runs a fast part of it, `python3 -m helpers test --torture` the whole.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # test_browser.py, test_data.py

import lanes  # noqa: E402

WORKERS = min(4, os.cpu_count() or 1)  # kernels at once


def pytest_addoption(parser):
    """Add --torture, which asks for the whole lane (see lanes.FULL)."""
    parser.addoption(
        "--torture", action="store_true", help="the whole torture lane, not only its fast part"
    )
    parser.addoption(
        "--python",
        action="append",
        metavar="PATH",
        help="with --torture: an interpreter that has all "
        "that a lesson needs, to run every lesson in; may be given several times",
    )


@pytest.fixture
def seen(record_property):
    """Return a function that notes what the test shows: a scenario, the lesson it was shown on, and how often."""

    def note(scenario, lesson="", count=1):
        record_property("seen", [scenario, lesson, count])

    return note


@pytest.fixture(scope="session")
def pool():
    """Give threads that start kernels."""
    with ThreadPoolExecutor(WORKERS) as made:
        yield made
        made.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def begun():
    """Give the runs that have begun: {test: what the pool promises}."""
    return {}


@pytest.fixture
def outcome(request, pool, begun, tmp_path_factory):
    """Give a function that returns what the file's function `outcome_of_…` returns for this test.

    It takes the test's parameters and a folder of its own. Those of the next tests begin meanwhile: a kernel spends
    much of its time in one thread, so several at once end sooner than one after the other.
    """
    name = request.node.originalname
    alike = [item for item in request.session.items if getattr(item, "originalname", "") == name]
    for item in alike[alike.index(request.node) :][:WORKERS]:
        if item.nodeid not in begun:
            function = getattr(item.module, name.replace("test_", "outcome_of_", 1))
            begun[item.nodeid] = pool.submit(
                function, **item.callspec.params, folder=tmp_path_factory.mktemp("run")
            )
    return begun[request.node.nodeid].result


def pytest_terminal_summary(terminalreporter, config):
    """Print the table of scenarios and lessons and keep it for the next `report`."""
    rows = [
        (*value, report.outcome)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
        for name, value in report.user_properties
        if name == "seen"
    ]
    if rows:
        text = lanes.table(rows)
        terminalreporter.section("torture")
        terminalreporter.write_line(text)
        if hasattr(config, "cache") and lanes.FULL and not config.option.keyword:
            config.cache.set("course/torture", text)
