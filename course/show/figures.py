"""How the course shows a figure: a sharp picture in few colors, its sentence as alternative text, caption and sources below."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

from course import show as outputs
from course.show import contrast
from helpers.plots import CARD, FAINT, GPU, INK, PIXELS, TROUBLE, WAIT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARP = 2  # stored pixels for a displayed one
NARROW = 6  # inches; wider figures all get the same width
ON_DARK = {  # the words of a figure of photos, which stands on a dark ground: at least 7 to 1
    FAINT: "#C9CED6",
    WAIT: "#C9CED6",
    GPU: "#6FD3A0",
    TROUBLE: "#FF9AA5",
}
WIDEST = 880  # pixels as displayed; the column of a notebook has 913 on a screen of 1366


def png(figure: Figure, colors: int | None = None, sharp: float = SHARP) -> bytes:
    """The figure as PNG bytes, sharp on a good screen, in few colors so that notebooks stay small.

    `colors`: at most 255; 127 unless told, and 255, chosen with more care, for a figure given to `colorful`. Photos stand
    on a dark ground of their own: a dark theme inverts the lightness of other figures, and would turn these into negatives.
    """
    import numpy
    from PIL import Image

    if figure.get_figwidth() > NARROW:
        figure.set_figwidth(WIDEST / PIXELS)
    if _photos(figure):
        _on_dark(figure)
    figure.set_dpi(sharp * PIXELS)
    canvas: Any = figure.canvas
    canvas.draw()
    if not _photos(figure) and contrast.mend(figure, numpy.asarray(canvas.buffer_rgba())[..., :3]):
        canvas.draw()
    seen = Image.fromarray(numpy.asarray(canvas.buffer_rgba())[..., :3])
    many = colors is None and getattr(figure, "colorful", False)
    buffer = io.BytesIO()
    few = seen.quantize(colors or (255 if many else 127), kmeans=int(many))
    few.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def wide(figure: Figure) -> int:
    """How wide `figure` is displayed, in pixels: WIDEST, unless it is a narrow one."""
    inches = figure.get_figwidth()
    return WIDEST if inches > NARROW else round(PIXELS * inches)


def _on_dark(figure):
    """Put a `figure` of photos on a ground that is dark in both themes, with words that read on it."""
    from matplotlib.text import Text

    figure.set_facecolor(INK)
    for text in figure.findobj(Text):
        color = text.get_color()
        if color not in (CARD, *ON_DARK.values()):  # drawn before
            text.set_color(ON_DARK.get(color, CARD))


def colorful(figure: Figure) -> Figure:
    """Have `figure` stored in 255 colors, a sixth larger: with 127, photos turn blotchy and pink to peach; returns it."""
    figure.colorful = True  # type: ignore[attr-defined]  # an attribute of ours
    return figure


def page(figure: Figure, alt: str, caption: str = "") -> str:
    """The figure as HTML: the picture with `alt` as its alternative text, and small below it caption and sources."""
    data = base64.b64encode(png(figure)).decode("ascii")
    look = "max-width:100%;height:auto;border-radius:10px"
    width = wide(figure)
    image = (
        f'<img alt="{html.escape(alt)}" width="{width}" style="{look}" '
        f'src="data:image/png;base64,{data}">'
    )
    kind = "course-figure course-photos" if _photos(figure) else "course-figure"
    return f'<div class="{kind}">{image}{below(figure, caption)}</div>'


def _photos(figure):
    """Whether pictures stand in `figure`, whose colors a dark theme must leave as they are."""
    return any(image.get_array().ndim == 3 for axes in figure.axes for image in axes.images)


def below(figure: Figure, caption: str = "") -> str:
    """HTML of the caption and the sources of `figure`; empty where it has neither."""
    parts = [html.escape(caption)] if caption else []
    named = dict.fromkeys(getattr(figure, "sources", ()))
    if named:
        parts.append("Source: " + " · ".join(map(_source_link, named)))
    small = "font-size:12px;line-height:1.4;margin:4px 0 0;max-width:720px"
    return "".join(f'<p style="{small}">{part}</p>' for part in parts)


def _source_link(line):
    """The line as HTML, a link to the page with the numbers where they are published ones."""
    from course.measurements import published, published_names

    known = (published(name) for name in published_names())
    address = next((each.url for each in known if each.source in line), "")
    text = html.escape(line.removeprefix("published: "))
    return f'<a href="{html.escape(address)}">{text}</a>' if address else text


def words(figure: Figure, alt: str, caption: str = "") -> str:
    """The figure in words: `alt`, the caption and the sources."""
    named = dict.fromkeys(getattr(figure, "sources", ()))
    source = [f"Source: {' · '.join(named)}"] if named else []
    return "\n".join(filter(None, [alt, caption, *source]))


def show(figure: Figure, sentence: str, caption: str = "") -> None:
    """Display `figure`. `sentence` says in words what it shows: its alternative text, printed outside a notebook.

    `caption` stands below it, where there is something to add that the title does not say.
    """
    outputs.page(page(figure, sentence, caption), words(figure, sentence, caption))
