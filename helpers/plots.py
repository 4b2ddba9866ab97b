"""Figures for the lessons: one style, readable without color, and a printed sentence that says what each one shows.

Each function returns a `matplotlib.figure.Figure`; nothing here touches pyplot's state or rcParams.
Palette: Okabe and Ito (https://jfly.uni-koeln.de/color/), with brown and violet in place of their two light colors, so
that each has a contrast of 3 to 1 or more against white. A marker, a line style or a hatch stands beside each color.
"""

import io

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#604A20", "#7F20DF", "#000000")
MARKERS = "osD^vPX"
STYLES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")


def new_figure(title, xlabel="", ylabel="", size=(6.4, 3.6)):
    """A figure with one pair of axes, in the style of the lessons.

    `title` states the finding; `xlabel` and `ylabel` name quantity and unit; `size` in inches. Returns (Figure, Axes).
    """
    figure = _blank(size)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=11, loc="left", wrap=True)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    return figure, axes


def _blank(size):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def lines(series, title, xlabel, ylabel, logx=False, logy=False, step=False, markers=True):
    """Lines of `series`: a dict of label to (xs, ys), two sequences of equal length.

    `step=True` draws values that hold until the next point, such as bytes allocated. Raises ValueError where the
    lengths differ or `series` is empty.
    """
    if not series:
        raise ValueError("series is empty; it takes a dict of label to (xs, ys)")
    figure, axes = new_figure(title, xlabel, ylabel)
    for i, (label, (xs, ys)) in enumerate(series.items()):
        if len(xs) != len(ys):
            raise ValueError(
                f"series[{label!r}] has {len(xs)} xs and {len(ys)} ys; both take the same length"
            )
        axes.plot(
            xs,
            ys,
            color=COLORS[i % 7],
            marker=MARKERS[i % 7] if markers else None,
            linestyle=STYLES[_other(i)],
            markersize=5,
            label=label,
            drawstyle="steps-post" if step else "default",
        )
    if logx:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    if logy:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8)
    return figure


def _plain_ticks(axis):
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


def _other(i):
    """The place of the style or hatch of series `i`: no pair of color and style returns with more than seven."""
    return (i + i // 7) % 7


def rungs(series, order, title, ylabel):
    """Lines over named steps, such as the rungs of a ladder: `series` is a dict of label to (names, values).

    `order` lists the names from left to right. Values that differ by a factor of 20 or more stand on a logarithmic
    axis. Raises ValueError for a name that is not in `order`.
    """
    places = {name: place for place, name in enumerate(order)}
    for label, (names, _) in series.items():
        if unknown := [name for name in names if name not in places]:
            raise ValueError(f"series[{label!r}] names {unknown[0]!r}; order has {list(order)}")
    placed = {
        label: tuple(
            zip(
                *sorted((places[name], value) for name, value in zip(names, values, strict=True)),
                strict=True,
            )
        )
        for label, (names, values) in series.items()
    }
    values = [value for _, ys in placed.values() for value in ys]
    figure = lines(placed, title, "", ylabel, logy=max(values) > 20 * min(values))
    axes = figure.axes[0]
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(order)), order, rotation=30, ha="right", fontsize=8)
    return figure


def bars(values, title, unit, log=False, digits=3):
    """Horizontal bars, one a label: `values` is a dict of label to number, `unit` names what is measured."""
    return stacked(
        {label: {unit: value} for label, value in values.items()}, title, unit, log, digits
    )


def stacked(rows, title, unit, log=False, digits=3):
    """Horizontal bars made of parts: `rows` is a dict of label to {part: number}; the total stands at the end."""
    if not rows:
        raise ValueError("rows is empty; it takes a dict of label to {part: number}")
    figure, axes = new_figure(title, unit, size=(6.4, 1.2 + 0.42 * len(rows)))
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    labels = list(rows)[::-1]
    left = [0.0] * len(labels)
    for i, part in enumerate(parts):
        sizes = [float(rows[label].get(part, 0)) for label in labels]
        axes.barh(
            labels,
            sizes,
            left=left,
            color=COLORS[i % 7],
            hatch=HATCHES[_other(i)],
            edgecolor="white",
            label=part,
        )
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for y, total in enumerate(left):
        axes.annotate(f" {number(total, digits)}", (total, y), va="center", fontsize=9)
    axes.margins(x=0.12)
    if log:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    if len(parts) > 1:
        figure.legend(
            *axes.get_legend_handles_labels(),
            frameon=False,
            fontsize=8,
            loc="outside lower center",
            ncols=min(4, len(parts)),
        )
    return figure


def pictures(images, titles=None, title="", columns=8):
    """A grid of pictures: `images` is a tensor [n, 3, h, w] or [n, 1, h, w] with values in 0..1, on any device."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"images has shape {tuple(images.shape)}; it takes [n, 3, h, w] or [n, 1, h, w]"
        )
    images = images.detach().float().clamp(0, 1).cpu()
    rows = -(-len(images) // columns)
    figure = _blank((columns * 0.8, rows * (1.0 if titles else 0.8) + 0.35))
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
            axes.set_title(titles[i], fontsize=8)
    return figure


def matrix(counts, names, title, xlabel="predicted", ylabel="true"):
    """A table of counts as a picture with its numbers: `counts` is a tensor [n, n], `names` its n labels."""
    counts = counts.cpu()
    figure, axes = new_figure(title, xlabel, ylabel, size=(5.6, 4.6))
    axes.grid(False)
    picture = axes.imshow(counts.numpy(), cmap="Blues")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for row in range(len(names)):
        for column in range(len(names)):
            value = counts[row, column].item()
            axes.text(
                column,
                row,
                f"{value:g}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if _luminance(picture.to_rgba(value)) < 0.179 else "black",
            )
    return figure


def _luminance(color):
    """Relative luminance, 0 to 1, of (red, green, blue, ...) in 0..1; below 0.179 white text is the clearer one.

    Source: https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
    """
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def lanes(events, title, xlabel="milliseconds"):
    """Who works when: `events` is a list of (lane, label, start, end); the first lane is at the top."""
    names = list(dict.fromkeys(lane for lane, *_ in events))
    labels = list(dict.fromkeys(label for _, label, *_ in events))
    figure, axes = new_figure(title, xlabel, size=(6.4, 1.3 + 0.5 * len(names)))
    for lane, label, start, end in events:
        i = labels.index(label)
        axes.barh(
            lane,
            end - start,
            left=start,
            height=0.6,
            color=COLORS[i % 7],
            hatch=HATCHES[_other(i)],
            edgecolor="white",
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    for i, label in enumerate(labels):
        axes.barh(
            names[0],
            0,
            color=COLORS[i % 7],
            hatch=HATCHES[_other(i)],
            edgecolor="white",
            label=label,
        )
    figure.legend(
        *axes.get_legend_handles_labels(),
        frameon=False,
        fontsize=8,
        loc="outside lower center",
        ncols=min(4, len(labels)),
    )
    return figure


def recorded(section, x, y, kind=None, **where):
    """Series of recorded machines for `lines`: a dict of label (device and date) to (xs, ys).

    `section`, `x` and `y` name a recording's section and fields (`helpers.measurements`); `where` keeps only rows with
    these values; `kind` ("cuda", "cpu") keeps only such devices. Empty where nothing was recorded. A section or field
    that recordings do not have raises ValueError, which lists those they have.
    """
    from helpers import measurements
    from helpers.measurements.schema import SECTIONS

    if section not in SECTIONS:
        raise ValueError(f"section is {section!r}; it takes one of {list(SECTIONS)}")
    for name in (x, y, *where):
        if name not in SECTIONS[section]:
            raise ValueError(
                f"field {name!r} is not in section {section!r}, which has {list(SECTIONS[section])}"
            )
    series = {}
    for recording in measurements.all():
        for label, rows in recording.by_device(section).items():
            rows = [
                r
                for r in rows
                if all(r.get(k) == v for k, v in where.items())
                and (kind is None or r.get("device_kind", kind) == kind)
            ]
            if rows:
                rows.sort(key=lambda row: row[x])
                series[label] = ([row[x] for row in rows], [row[y] for row in rows])
    return series


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
    try:
        from IPython import get_ipython
        from IPython.display import display

        inside = get_ipython() is not None
    except ImportError:
        inside = False
    if inside:
        import base64

        picture = base64.b64encode(png(figure)).decode("ascii")
        display(
            {"image/png": picture, "text/plain": "figure"},
            metadata={"image/png": {"alt": sentence}},
            raw=True,
        )
    print(sentence)
