"""The torture lane; the tests marked slow are also part of `--all`, where they do less."""

import os
from concurrent.futures import ThreadPoolExecutor

import lanes
import pytest

WORKERS = min(4, os.cpu_count() or 1)  # kernels at once


def pytest_configure(config):
    """Tell the files, before they are read, how much this run does."""
    lanes.full = config.getoption("--torture")


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
