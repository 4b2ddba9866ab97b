"""PyTorch's CUDA build, over a stand-in for CUDA's libraries, says what practice GPUs must say: thousands of cases.

The stand-in computes nothing, so values are not compared; placement, dtypes, shapes, exceptions and their words are.
`python practice_gpus/tests/oracle/compare.py` shows the figures and what is not in the list of known differences.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("oracle")))

import build  # noqa: E402
import compare  # noqa: E402

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing() or "can run")
SAMPLE = 45  # one operator and one line of snippets of so many


def test_a_sample_of_calls_ends_as_on_cuda():
    """A call that CUDA refuses passes, or the reverse, or a tensor is elsewhere: a program breaks on the first GPU."""
    comparison = compare.run(SAMPLE)
    assert comparison.cases > 300
    assert comparison.unlisted == []


@pytest.mark.slow
def test_every_call_ends_as_on_cuda_or_is_a_known_difference():
    """The same for all operators; a difference that is mended leaves the list, so that it cannot come back."""
    comparison = compare.run()
    assert comparison.cases > 20_000 and not comparison.stale(), comparison.stale()
    assert comparison.unlisted == []
