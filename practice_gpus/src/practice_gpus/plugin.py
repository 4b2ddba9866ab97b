"""The pytest plugin: practice GPUs for tests. Where there are enough real GPUs, the tests run on those.

``pytest --practice-gpus 2`` turns them on for the whole run, from before the tests are collected, so that what is skipped
without a GPU runs. ``@pytest.mark.gpus(2)`` gives one test so many, with or without the option, and a test that takes the
fixture ``gpus`` gets the session itself (its counters of waits and transfers), with one GPU unless it is marked.
"""

import pytest

MEMORY = "16 GiB"
HELP = "run the tests with so many practice GPUs, where there are not so many real ones"
RUN = pytest.StashKey()


def pytest_addoption(parser):
    """Add the options."""
    group = parser.getgroup("practice GPUs")
    group.addoption("--practice-gpus", type=int, default=0, metavar="N", help=HELP)
    group.addoption(
        "--practice-memory", default=MEMORY, metavar="SIZE", help="memory of each of them"
    )


def pytest_configure(config):
    """Name the marker, and turn practice GPUs on for a run that asks for them."""
    config.addinivalue_line("markers", "gpus(n): this test gets n GPUs, real ones or practice GPUs")
    count = config.getoption("--practice-gpus")
    if count:
        config.stash[RUN] = start(count, config)


def pytest_unconfigure(config):
    """Turn them off again."""
    if config.stash.get(RUN, None) is not None:
        config.stash[RUN].stop()


def pytest_report_header(config):
    """Say which GPUs the tests run on."""
    session = config.stash.get(RUN, None)
    if session is None:
        return None
    return "real GPUs" if session.real else f"practice GPUs: {session.settings.n}"


@pytest.fixture
def gpus(request):
    """Practice GPUs for this test, as many as its marker ``gpus(n)`` says."""
    marker = request.node.get_closest_marker("gpus")
    run = request.config.stash.get(RUN, None)
    count = marker.args[0] if marker and marker.args else 1
    if run is not None and run.settings.n >= count:
        yield run
        return
    with session(count, request.config) as machine:
        yield machine


@pytest.fixture(autouse=True)
def _practice_gpus(request):
    """Give a marked test its GPUs, though it does not ask for the fixture."""
    if request.node.get_closest_marker("gpus"):
        request.getfixturevalue("gpus")


def session(count, config):
    """Practice GPUs that are not on yet."""
    from .session import practice_gpus  # PyTorch, only where it is needed

    return practice_gpus(count, config.getoption("--practice-memory"))


def start(count, config):
    """Practice GPUs for the whole run; a number or size that does not fit ends it with a sentence."""
    try:
        return session(count, config).start()
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
