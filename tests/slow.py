"""Tests that take minutes and mostly repeat others: they run when asked for."""

import os

import pytest

SLOW = pytest.mark.skipif(
    "COURSE_SLOW_TESTS" not in os.environ, reason="takes minutes: set COURSE_SLOW_TESTS=1"
)


def lessons(paths, slow):
    """Return the parameters of a test for each lesson; those whose numbers are in `slow` run when asked for."""
    return [
        pytest.param(path, id=path.stem, marks=[SLOW] * (path.name[:2] in slow)) for path in paths
    ]
