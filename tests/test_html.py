"""What a learner, a file or an error says stays words wherever it is shown: it never becomes a tag of the page."""

from types import SimpleNamespace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from course import show, troubleshooting
from course.checks import panel, predictions
from course.lesson14 import exercises as last
from course.show import figures, widgets

TAG = "a</title></div><script>alert('1')</script>\" onload=\"x"


def figure():
    """Return a figure whose source has the tag in its name."""
    drawn = Figure(figsize=(1, 1))
    FigureCanvasAgg(drawn)
    drawn.sources = [TAG]
    return drawn


def verdict(**fields):
    """Return the HTML of a panel with a scale."""
    scale = panel.Scale(2.0, 3.0, 1.0, 10.0, TAG)
    return panel.as_html(panel.Content("right", TAG, TAG, TAG, scale))


DOORS = {
    "code in words": lambda: show.code_in(TAG) + show.code_in(f"`{TAG}`"),
    "a question": lambda: show.listed(TAG, TAG, [TAG], TAG)[0],
    "a panel": verdict,
    "a status": lambda: panel.status(TAG),
    "a prediction": lambda: predictions._asked(
        predictions.Prediction("t.x", TAG, (TAG, "b"), None, (1, 2))
    )[0],
    "a figure": lambda: figures.page(figure(), TAG, TAG),
    "an explorer": lambda: widgets._explorer_still("", TAG, {"x": SimpleNamespace(label=TAG)})[0],
    "an error message": lambda: troubleshooting._as_html(
        f"RuntimeError: CUDA out of memory. {TAG}"
    ),
    "a line of a project's checks": lambda: last._row("wrong", TAG, TAG),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_words_become_a_tag(door):
    """An error message with a tag in it ran as a script in the notebook of whoever opened it."""
    page = DOORS[door]()
    assert "<script" not in page and 'x" onload="' not in page.replace(TAG, "")
    assert "&lt;script" in page or door == "an error message", "which says what is known of it"
