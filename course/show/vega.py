"""Charts of Vega-Lite, alive without a kernel: how one is shown, and pieces of specs: small tables, columns, sliders."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course import show as outputs
from course.show import figures
from helpers import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VEGALITE = "application/vnd.vegalite.v5+json"  # what JupyterLab 4 draws without a network
KEPT = "course_chart"  # where an output's metadata keep the spec of a chart that a guess will draw
STAND_IN = 1.5  # stored pixels for a displayed one of the picture beside a chart, seen where no chart is drawn


def slider(
    name: str,
    high: float,
    step: float | None = None,
    start: float = 0,
    label: str | None = None,
    low: float = 0,
) -> dict:
    """Return the parameter `name`, a slider from `low` to `high`; no number stands beside one that is named "nth"."""
    bind = {"input": "range", "min": low, "max": high, "step": step or high / 100}
    return {"name": name, "value": start, "bind": {**bind, "name": f"{label or name} "}}


def number(name: str, label: str) -> dict:
    """Return the parameter `name`, a field with a whole number: its arrow keys work in any JupyterLab, those of a slider if lab.py started it."""
    return {"name": name, "value": 0, "bind": {"input": "number", "name": f"{label} "}}


def csv(header: str, table: Iterable[Iterable]) -> dict:
    """Return the data of a chart: columns of numbers, named in `header` ("a,b"); a quarter of the size of records."""
    lines = [header, *(",".join(map(str, row)) for row in table)]
    numbers = dict.fromkeys(header.split(","), "number")
    return {"data": {"values": "\n".join(lines), "format": {"type": "csv", "parse": numbers}}}


def calculate(**expressions: str) -> list[dict]:
    """Return transforms that compute columns by Vega's expressions, in their order."""
    return [{"calculate": code, "as": name} for name, code in expressions.items()]


def tenths(microseconds: float) -> int:
    """Return `microseconds` as a whole number of 0.1 µs: short in a table."""
    return round(10 * microseconds)


class Texts:
    """Texts stored once; `list` is them as an expression of Vega."""

    def __init__(self):
        self.places = {}

    def index(self, text: str) -> int:
        """Return the place of `text`."""
        return self.places.setdefault(text, len(self.places))

    @property
    def list(self) -> str:
        """The texts as a literal that both JSON and Vega's expressions read."""
        return json.dumps(list(self.places), ensure_ascii=False)


def config_of_course() -> dict:
    """The look of the course as a config of Vega-Lite 5."""
    text = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    color = {"labelColor": plots.FAINT, "titleColor": plots.FAINT}
    return {
        "background": plots.CARD,
        "padding": 16,
        "font": f"{plots.FONT}, Verdana, sans-serif",
        "view": {"stroke": None},
        "title": {
            "anchor": "start",
            "fontSize": 17,
            "color": plots.INK,
            "offset": 12,
            "frame": "bounds",
            "subtitleColor": plots.INK,
            "subtitleFontSize": 13,
            "subtitlePadding": 8,
        },
        "axis": {
            **text,
            **color,
            "gridColor": plots.RULE,
            "domainColor": plots.FAINT,
            "ticks": False,
        },
        "axisY": {"domain": False},
        "legend": {**text, **color, "orient": "top"},
        "header": {**text, **color},
        "text": {"fontSize": 12, "color": plots.INK},
        "mark": {"color": plots.GPU},
        "range": {
            "category": [plots.GPU, plots.CPU, plots.COPY, plots.COMM, plots.WAIT, plots.TROUBLE],
            "ramp": list(plots.GREENS[::-1]),
        },
    }


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart that stays alive in a reopened notebook, without a network.

    `spec` is a dict of Vega-Lite 5 (Altair 5.5: `chart.to_dict()`); the look of the course is merged into its config,
    and where it has no width it takes the column's. `figure` is the matplotlib Figure that stands in for it on pages
    that draw no Vega-Lite. `alt` says in words what it shows. Give each mark its color by meaning (`plots.GPU`).
    """

    spec: dict
    figure: Figure
    alt: str
    caption: str = ""
    colors: int = 128

    def __post_init__(self):
        if not isinstance(self.spec, dict) or "Figure" not in type(self.figure).__name__:
            kinds = f"{type(self.spec).__name__} and {type(self.figure).__name__}"
            raise TypeError(f"a chart takes a dict and a matplotlib Figure, got {kinds}")

    @property
    def words(self) -> str:
        """The chart in words."""
        return figures.words(self.figure, self.alt, self.caption)

    @property
    def below(self) -> str:
        """HTML of its caption and sources."""
        return figures.below(self.figure, self.caption)

    def stored(self) -> dict:
        """Return what the metadata of an output keep of a chart that isn't drawn yet."""
        return {KEPT: {"spec": styled(self.spec, self.alt), "embed_options": _EMBED}}

    def bundle(self) -> tuple[dict, dict]:
        """Return (MIME bundle, metadata): the chart, and beside it the picture that stands in for it."""
        few = figures.png(self.figure, self.colors, STAND_IN)
        data = {
            VEGALITE: styled(self.spec, self.alt),
            "image/png": base64.b64encode(few).decode("ascii"),
            "text/plain": outputs.CLOSED + self.words,
        }
        metadata = {VEGALITE: {"embed_options": _EMBED}}
        return data, metadata | {"image/png": {"alt": self.alt, "width": figures.wide(self.figure)}}

    def show(self) -> None:
        """Display it, with its caption and sources below."""
        if not outputs.inside_notebook():
            print(self.words)
            return
        from IPython.display import display

        data, metadata = self.bundle()
        display(data, metadata=metadata, raw=True)
        if self.below:
            outputs.page(self.below, "")


def show(spec: dict, figure: Figure, alt: str, caption: str = "", colors: int = 128) -> None:
    """Display a `Chart` of these."""
    Chart(spec, figure, alt, caption, colors).show()


def styled(spec: dict, alt: str) -> dict:
    """A copy of the Vega-Lite `spec` in the look of the course, with `alt` as its description."""
    spec = json.loads(json.dumps(spec))  # raises TypeError for what a notebook cannot hold
    if not {"hconcat", "vconcat", "concat", "facet", "repeat"} & set(spec):
        spec.setdefault("width", "container")
        spec.setdefault("autosize", {"type": "fit-x", "contains": "padding"})
    config = config_of_course()
    for key, value in spec.get("config", {}).items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
    return {**spec, "description": alt, "config": config}


# How JupyterLab embeds a chart: sharp at any size, without a menu, as wide as its place, with rounded corners
_EMBED = {
    "actions": False,
    "renderer": "svg",
    "defaultStyle": (
        ".vega-embed{display:block!important;width:100%;max-width:880px}"
        ".vega-embed>svg,.vega-embed>.chart-wrapper{border-radius:10px}"
        ".vega-embed .vega-bindings,.vega-embed .vega-bind label{display:flex;width:100%;gap:12px}"
        ".vega-embed .vega-bind{flex:1}.vega-bind input[type=range]{flex:1}"
        ".vega-bind input[name=nth]~:last-child{display:none}"
        ".jp-OutputArea-output .vega-embed svg{border-radius:10px;max-width:100%}"
        "#vg-tooltip-element{font:12px Verdana,sans-serif;padding:8px;border-radius:6px;"
        "position:fixed;z-index:1000;visibility:hidden;background:#fff;color:#1f2530;"
        "border:1px solid #d5dae1}#vg-tooltip-element.visible{visibility:visible}"
        "#vg-tooltip-element td.key{color:#59616e;padding-right:8px}"
    ),
}
