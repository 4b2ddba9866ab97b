"""Measuring in a timeline: the strip in which one drags, and the sentences about the span."""

from course.show.vega import Texts, calculate, csv, tenths
from course.timeline.rows import Rows
from helpers import plots

LABELS = 130  # pixels for the names of rows
WIDTH = 718  # and for the time: with the padding, 880
LOW = "(isDefined(span.s) ? span.s[0] : 0)"  # where the measured span begins and ends, in ms
CLIP = "max(0, min(datum.e, datum.high) - max(datum.b, datum.low))"


def time(field: str, axis: dict | None = None) -> dict:
    """Return the encoding of `field`, times in ms, by the part of the timeline that is in view; `axis` None: none."""
    window = [{"expr": "from_ms"}, {"expr": "from_ms + width_ms"}]
    scale = {"domain": window, "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def measured(rows: int) -> dict:
    """Return the layer that marks the measured span behind the blocks."""
    return {
        "data": {"values": [{"top": 0, "bottom": rows}]},
        "transform": [{"filter": "isDefined(span.s)"}, *calculate(s="span.s[0]", e="span.s[1]")],
        "mark": {"type": "rect", "clip": True, "color": plots.WAIT, "opacity": 0.25},
        "encoding": {"x2": {"field": "e"}, "y2": {"field": "bottom"}},
    }


def strip(whole: float, measure: tuple[float, float] | None) -> dict:
    """Return the strip below the timeline in which one drags to measure."""
    span = {
        "name": "span",
        "select": {
            "type": "interval",
            "encodings": ["x"],
            "clear": "dblclick",
            "zoom": False,
            "mark": {"fill": plots.WAIT, "fillOpacity": 0.6, "stroke": plots.INK},
        },
    }
    if measure:
        span["value"] = {"x": list(measure)}
    return {
        "width": WIDTH,
        "height": 20,
        "view": {"fill": plots.RULE, "cursor": "ew-resize"},
        "data": {"values": [{"s": 0, "e": whole}]},
        "layer": [
            {
                "params": [span],
                "mark": {"type": "rect", "opacity": 0},
                "encoding": {"x": time("s"), "x2": {"field": "e"}},
            },
            {
                "mark": {"type": "text", "align": "left", "x": 8, "color": plots.FAINT},
                "encoding": {"text": {"value": "drag here to measure"}},
            },
        ],
    }


def sentences(rows: Rows, whole: float, names: bool = True) -> dict:
    """Return what is measured in the span: length, busy share, longest gap and, with `names`, what the CPU did most."""
    high = f"(isDefined(span.s) ? span.s[1] : {whole})"
    ends = calculate(low=LOW, high=high)
    who = "the GPU" if rows.ranks == 1 else "at least one GPU"
    busy = {
        **csv("b,e,w", [tuple(map(tenths, row)) for row in rows.busy]),
        "transform": [
            *calculate(b="datum.b / 1e4", e="datum.e / 1e4", w="datum.w / 1e4"),
            *ends,
            *calculate(part=f"{CLIP} * datum.w / max(1e-6, datum.e - datum.b)"),
            _sum(["low", "high"]),
            *calculate(
                words=f"format(datum.high - datum.low, ',.3~r') + ' ms measured: {who} is busy ' + "
                "format(datum.part / (datum.high - datum.low), '.0%') + ' of it'"
            ),
        ],
    }
    gap = {
        **csv("b,e", [tuple(map(tenths, row)) for row in rows.gaps]),
        "transform": [
            *calculate(b="datum.b / 1e4", e="datum.e / 1e4"),
            *ends,
            *calculate(part=CLIP),
            {"aggregate": [{"op": "max", "field": "part", "as": "part"}]},
            *calculate(words="'Longest gap: ' + format(datum.part, ',.3~r') + ' ms'"),
        ],
    }
    texts = Texts()
    table = [(tenths(b.start), tenths(b.end), texts.index(b.name[:58])) for b in rows.cpu]
    cpu = {
        **csv("b,e,n", table),
        "transform": [
            *calculate(b="datum.b / 1e4", e="datum.e / 1e4", name=f"{texts.list}[datum.n]"),
            *ends,
            *calculate(part=CLIP),
            _sum(["name"]),
            {"joinaggregate": [{"op": "max", "field": "part", "as": "most"}]},
            {"filter": "datum.part === datum.most && datum.part > 0"},
            *calculate(
                words="'The CPU spent most time in ' + datum.name + ', ' + format(datum.part, ',.3~r') + ' ms'"
            ),
        ],
    }
    parts = [busy, gap, *([cpu] if rows.cpu and names else [])]
    lines = [_text(part, 10 + 18 * place) for place, part in enumerate(parts)]
    return {"width": WIDTH, "height": 18 * len(lines), "layer": lines}


def _sum(groups):
    return {"aggregate": [{"op": "sum", "field": "part", "as": "part"}], "groupby": groups}


def _text(part, y):
    mark = {"type": "text", "align": "left", "x": 0, "y": y, "fontSize": 13, "limit": WIDTH}
    return {**part, "mark": mark, "encoding": {"text": {"field": "words"}}}
