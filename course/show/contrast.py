"""Words that read in both themes: 4.5 to 1 at least with what lies behind them, in the light theme and in the dark one.

A dark theme inverts the lightness of figures (`custom.css`); a pair of colors that reads well before may not afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENOUGH = 4.5  # WCAG 2.2, contrast (minimum)
BRIGHTER, INVERTED = 1.04, 0.9333  # of custom.css; hues are turned by 180 degrees
WEIGHTS = 0.2126, 0.7152, 0.0722
STEPS = 25


def shown(color: Any, dark: bool) -> tuple:
    """Return `color` of a figure as a theme shows it, (red, green, blue) in 0..1.

    Source: https://www.w3.org/TR/filter-effects-1/, brightness, invert, hue-rotate(180deg)
    """
    from matplotlib.colors import to_rgb

    seen = [min(1.0, BRIGHTER * part) for part in to_rgb(color)]
    if not dark:
        return tuple(seen)
    seen = [INVERTED + (1 - 2 * INVERTED) * part for part in seen]
    gray = 2 * sum(w * part for w, part in zip((0.213, 0.715, 0.072), seen, strict=True))
    return tuple(min(1.0, max(0.0, gray - part)) for part in seen)


def luminance(rgb: tuple) -> float:
    """Relative luminance of (red, green, blue) in 0..1. Source: WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return sum(weight * part for weight, part in zip(WEIGHTS, linear, strict=True))


def ratio(one: tuple, other: tuple) -> float:
    """Contrast of two colors, (red, green, blue) in 0..1, as they are: 1 to 21. Source: WCAG 2.2."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def contrast(one: Any, other: Any) -> float:
    """The smaller of the contrasts that two colors of a figure have in the two themes, 1 to 21."""
    return min(ratio(shown(one, dark), shown(other, dark)) for dark in (False, True))


def moved(color: Any, end: str, fixed: Any) -> tuple | None:
    """The first color on the way from `color` to `end` that reads with `fixed`; None where none does."""
    from matplotlib.colors import to_rgb

    pair = list(zip(to_rgb(color), to_rgb(end), strict=True))
    way = (tuple(a + (b - a) * n / STEPS for a, b in pair) for n in range(STEPS + 1))
    return next((each for each in way if contrast(each, fixed) >= ENOUGH), None)


def mend(figure: Figure, seen: Any) -> bool:
    """Have the words of `figure`, drawn as `seen` [height, width, 3], read; return whether something has changed.

    Words on paper get darker; words in a box keep their color, and the box gets darker or lighter.
    """
    from matplotlib.text import Text

    changed = False
    for text in figure.findobj(Text):
        ground = _behind(text, seen) if text.get_visible() and text.get_text().strip() else None
        if ground is None or contrast(text.get_color(), ground) >= ENOUGH:
            continue
        changed = _mend(figure, text, ground) or changed
    return changed


def _mend(figure, text, ground):
    """Move the color of `text`, or else that of the box behind it; whether one could be moved."""
    color = text.get_color()
    light = luminance(shown(color, False)) > luminance(shown(ground, False))
    better = None if light else moved(color, "black", ground)
    if better:
        text.set_color(better)
        return True
    box = _box(figure, text, ground)
    better = box and moved(ground, "black" if light else "white", color)
    if better:
        box.set_facecolor(better)
    return bool(better)


def _behind(text, seen):
    """The most frequent color where `text` stands; None outside of the figure."""
    import numpy

    place, high = text.get_window_extent(), len(seen)
    rows = slice(max(0, int(high - place.y1)), max(0, int(high - place.y0) + 1))
    part = seen[rows, max(0, int(place.x0)) : max(0, int(place.x1) + 1)].reshape(-1, 3)
    if not len(part):
        return None
    colors, counts = numpy.unique(part, axis=0, return_counts=True)
    return tuple(colors[counts.argmax()] / 255)


def _box(figure, text, ground):
    """The smallest patch of the color `ground` that the middle of `text` stands in; None where there is none."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    place = text.get_window_extent()
    middle = (place.x0 + place.x1) / 2, (place.y0 + place.y1) / 2
    found = [
        (patch.get_window_extent().width, n, patch)
        for n, patch in enumerate(figure.findobj(Patch))
        if patch.get_window_extent().contains(*middle)
        and max(abs(a - b) for a, b in zip(to_rgb(patch.get_facecolor()), ground, strict=True))
        < 0.02
    ]
    return min(found)[2] if found else None
