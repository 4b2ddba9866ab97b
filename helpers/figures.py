"""What every figure of the lessons shares: paper, ticks, numbers, sources, and how it is shown.

Each function returns a `matplotlib.figure.Figure`; nothing here touches pyplot's state or rcParams.
"""

import io
import textwrap

from helpers.show import inside_notebook, show_picture

SMALL = 8  # points, the smallest text


def new_figure(title, xlabel="", ylabel="", size=(6.4, 3.6)):
    """A figure with one pair of axes, in the style of the lessons.

    `title` states the finding; `xlabel` and `ylabel` name quantity and unit; `size` in inches. Returns (Figure, Axes).
    """
    figure = blank_figure(size)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left", wrap=True)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    tidy(axes)
    axes.set_axisbelow(True)
    return figure, axes


def panels(title, rows, columns, size, **shared):
    """A figure of `rows` × `columns` axes under one `title`: (Figure, array of Axes); `shared` as for `subplots`."""
    figure = blank_figure(size)
    figure.suptitle(title, x=0.02, ha="left", fontsize=11)
    return figure, figure.subplots(rows, columns, **shared)


def tidy(axes):
    """Leave the frame away above and at the right, and draw a pale grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def blank_figure(size):
    """A figure without axes, `size` in inches, for what you draw yourself."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain_ticks(axis):
    """Label a logarithmic `axis` with plain numbers, closer together the fewer powers of ten it spans."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if low < 1e-4 or high >= 1e6:
        return  # powers of ten are shorter
    parts = range(1, 10) if high < 8 * low else (1, 2, 5) if high < 500 * low else (1,)
    axis.set_major_locator(LogLocator(subs=parts))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,g}")


def number(value, digits=3):
    """`value` with so many significant digits; from a thousand on with commas, without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    if not 1000 <= abs(rounded) < float("inf"):
        return f"{rounded:.{max(digits, 3)}g}"
    text = f"{rounded:,.{max(0, digits - len(str(int(abs(rounded)))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def sources(figure, *lines_of):
    """Write `lines_of` text, one or more sources, as the last lines of `figure`; returns the figure.

    A figure of groups has them already; a figure that you draw yourself takes `measurements.published(name).source`.
    """
    if lines_of:
        text = textwrap.fill(" · ".join(lines_of), int(15.5 * figure.get_figwidth()))
        figure.supxlabel(text, fontsize=SMALL, x=0.01, ha="left", color="#404040")
    return figure


def pictures(images, titles=None, title="", columns=8):
    """A grid of pictures: `images` is a tensor [n, 3, h, w] or [n, 1, h, w] with values in 0..1, on any device."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"images has shape {tuple(images.shape)}; it takes [n, 3, h, w] or [n, 1, h, w]"
        )
    images = images.detach().float().clamp(0, 1).cpu()
    rows = -(-len(images) // columns)
    figure = blank_figure((columns * 0.8, rows * (1.0 if titles else 0.8) + 0.35))
    figure.suptitle(title, fontsize=11, wrap=True)
    for i, image in enumerate(images):
        axes = figure.add_subplot(rows, columns, i + 1)
        axes.imshow(
            image.permute(1, 2, 0).squeeze(-1).numpy(),
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        axes.set_axis_off()
        if titles:
            axes.set_title(titles[i], fontsize=SMALL)
    return figure


def png(figure, dpi=90):
    """The figure as PNG bytes, in 256 colors so that notebooks stay small."""
    import numpy
    from PIL import Image

    figure.set_dpi(dpi)
    figure.canvas.draw()
    buffer = io.BytesIO()
    picture = Image.fromarray(numpy.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    picture.quantize(256, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def show(figure, sentence):
    """Display `figure` and print `sentence`, which says in words what the figure shows and is its alternative text."""
    if inside_notebook():
        below = figure._supxlabel
        show_picture(png(figure), f"{sentence} ({below.get_text()})" if below else sentence)
    print(sentence)
