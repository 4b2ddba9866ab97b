"""The picture at the top of lesson 13."""

from helpers import timeline
from helpers.timeline.rows import lay_out
from measurements import traces


def first_picture():
    """Return (Figure, alternative text) of the starved V100."""
    trace = traces.case("1a")
    rows = lay_out(trace, detail=200)
    title = "One training step on a V100. What's wrong with it?"
    words = (
        "A timeline of 174 ms with rows for Python, autograd, launches and the GPU: the GPU's row is empty "
        "from 12 to 69 ms, while Python is busy."
    )
    return timeline.draw(rows, title), words
