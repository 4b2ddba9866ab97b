"""The pytest plugin: practice GPUs for tests. Where there are enough real GPUs, the tests run on those.

``pytest --practice-gpus 2`` turns them on for the whole run, from before the first conftest, so that what is skipped
without a GPU runs. ``@pytest.mark.practice_gpus(2)`` gives one test so many, with or without the option, and a test that
takes the fixture ``practice_gpus`` gets the session itself (its counters of waits and transfers), with one GPU unless it
is marked. ``--practice-gpus-summary FILE`` adds what came out to a file of Markdown, such as GitHub's job summary. The mark takes the arguments of `practice_gpus.practice_gpus`, such as ``memory="8 GiB"``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from practice_gpus.session import Session

NAME = "practice_gpus"  # of the mark and the fixture
MEMORY = "16 GiB"
HELP = "run the tests with so many practice GPUs, where there are not so many real ones"
SUMMARY_HELP = "add what came out to this file, as Markdown: $GITHUB_STEP_SUMMARY, for example"
REFUSED = f"{NAME} refused"  # a property of a test's report
COUNTED = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
MARK = f"{NAME}(n=1, **settings): this test gets n GPUs, real ones or practice GPUs"
RUN: pytest.StashKey[Any] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("practice GPUs")
    group.addoption("--practice-gpus", type=int, default=0, metavar="N", help=HELP)
    group.addoption(
        "--practice-gpus-memory", default=MEMORY, metavar="SIZE", help="memory of each of them"
    )
    group.addoption("--practice-gpus-summary", metavar="FILE", help=SUMMARY_HELP)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Turn practice GPUs on for a run that asks for them, before a conftest asks whether there is CUDA."""
    turn_on(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, and turn practice GPUs on where a run has not yet: a worker of pytest-xdist."""
    config.addinivalue_line("markers", MARK)
    path = config.getoption("--practice-gpus-summary")
    try:
        open(path or os.devnull, "a").close()
    except OSError as error:  # said before the tests run, not after
        raise pytest.UsageError(f"--practice-gpus-summary {path}: {error.strerror}") from None
    turn_on(config, config.option)


def turn_on(config: pytest.Config, options: argparse.Namespace) -> None:
    """Start the practice GPUs of a run, unless it runs inside of another that has as many."""
    count = getattr(options, "practice_gpus", 0)
    if not count or config.stash.get(RUN, None) is not None:
        return
    import torch  # noqa: F401  first: in a worker of pytest-xdist it turns them on

    from .session import active

    try:
        session = new_session(config, n=count, memory=options.practice_gpus_memory)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    if any(other.started and other.settings == session.settings for other in active):
        config.stash[RUN] = active[-1]
        return
    config.stash[RUN] = session.start()
    config.add_cleanup(session.stop)
    if not session.real:
        config.add_cleanup(hand_on(session))


def hand_on(session: Session) -> Callable[[], None]:
    """Give programs that tests start practice GPUs, too; returns what ends that."""
    from practice_gpus.pytorch import handed_on

    children = contextlib.ExitStack()
    children.enter_context(handed_on(session.settings))
    return children.close


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which GPUs the tests run on."""
    session = config.stash.get(RUN, None)
    if session is None:
        return None
    return "real GPUs" if session.real else f"practice GPUs: {session.settings.n}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note with a test what was refused in it."""
    path = item.config.getoption("--practice-gpus-summary")
    if not path:
        yield
        return
    from practice_gpus.machine import Observer, everywhere

    class Refusals(Observer):
        def refused(self, feature: str, ended: bool) -> None:
            if ended and (REFUSED, feature) not in item.user_properties:
                item.user_properties.append((REFUSED, feature))

    with everywhere(Refusals()):
        yield


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the summary."""
    path = config.getoption("--practice-gpus-summary")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(summary(config, terminalreporter.stats))


def summary(config: pytest.Config, stats: dict) -> str:
    """What came out of a run, as Markdown."""
    session = config.stash.get(RUN, None)
    gpus = "without practice GPUs"
    if session is not None:
        kind = "real GPUs" if session.real else "practice GPUs"
        gpus = f"on {session.settings.n} {kind}"
    counts = {name: len(stats.get(name, [])) for name in COUNTED}
    cells = [f"{count} {name}" for name, count in counts.items() if count]
    lines = [f"### Tests {gpus}: {', '.join(cells) or 'none'}", ""]
    refused: dict = {}
    for report in stats.get("failed", []) + stats.get("error", []):
        properties = getattr(
            report, "user_properties", ()
        )  # a file that can't be collected has none
        features = [value for name, value in properties if name == REFUSED]
        for feature in features:
            refused.setdefault(feature, []).append(report.nodeid)
        if not features:
            lines.append(f"- `{report.nodeid}`: {first_words(report).replace('|', ' ')[:200]}")
    if refused:
        lines += ["", "| not imitated, needs a real GPU | tests |", "|---|---|"]
        rows = sorted(refused.items(), key=lambda each: -len(each[1]))
        lines += [f"| {feature} | {len(tests)}, `{tests[0]}` |" for feature, tests in rows]
    return "\n".join(lines) + "\n"


def first_words(report: Any) -> str:
    """What a failure says first; of a file that can't be collected, its error."""
    words = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
    errors = [line[1:].strip() for line in str(report.longrepr).splitlines() if line[:1] == "E"]
    return (words.splitlines() or errors[:1] or [report.outcome])[0]


@pytest.fixture
def practice_gpus(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Practice GPUs for this test, as its marker says."""
    marker = request.node.get_closest_marker(NAME)
    settings = dict(marker.kwargs) if marker else {}
    settings.setdefault("n", marker.args[0] if marker and marker.args else 1)
    run = request.config.stash.get(RUN, None)
    if run is not None and len(settings) == 1 and run.settings.n >= settings["n"]:
        yield run
        return
    with new_session(request.config, **settings) as session:
        yield session


@pytest.fixture
def kernel_counts() -> Iterator[list]:
    """A `practice_gpus.kernels` result for each kernel that the test launches; skipped where those run on a real GPU."""
    from practice_gpus import kernels

    if kernels.missing():
        pytest.skip(f"{kernels.missing()} isn't installed")
    with kernels.launches() as found:
        if not kernels.counts_launches():
            pytest.skip("kernels run on a real GPU, and are not counted there")
        yield found


@pytest.fixture(autouse=True)
def _practice_gpus_of_mark(request: pytest.FixtureRequest) -> None:
    """Give a marked test its GPUs, though it does not ask for the fixture."""
    if request.node.get_closest_marker(NAME):
        request.getfixturevalue(NAME)


def new_session(config: pytest.Config, **settings: Any) -> Session:
    """Practice GPUs that are not on yet."""
    from practice_gpus.session import practice_gpus as make  # PyTorch, only where it is needed

    if not settings.get("card"):
        settings.setdefault("memory", config.getoption("--practice-gpus-memory"))
    return make(**settings)
