"""A timeline as a Vega-Lite 5 spec: it zooms, measures and names things without a kernel."""

from course.show.vega import Texts, calculate, csv, number, tenths
from course.timeline.measure import LABELS, WIDTH, measured, sentences, strip, time
from course.timeline.rows import COLORS, Rows
from helpers import plots

USE = "drag to move · Ctrl or Alt + scroll to zoom · double-click: everything"
ROW = 28  # pixels
INSIDE = "group().mark.name === 'concat_0_group'"  # of the three parts, the timeline
ZOOM = {  # plain scrolling scrolls the page
    "type": "wheel",
    "consume": True,
    "filter": [INSIDE, "event.ctrlKey || event.altKey || event.metaKey"],
}


def spec(
    rows: Rows,
    title: str,
    measure: tuple[float, float] | None = None,
    forecast: bool = False,
    names: bool = True,
) -> dict:
    """Return the `rows` of a trace as a spec, a dict of plain values; `measure` (begin, end) in ms, None: everything.

    `names` is whether a line says what the CPU did most.
    """
    whole = rows.length / 1000
    return {
        "title": {"text": title},
        "spacing": 6,
        "params": _window(whole),
        "vconcat": [
            _timeline(rows, forecast),
            strip(whole, measure),
            sentences(rows, whole, names),
        ],
        "resolve": {"scale": {"x": "shared"}},
    }


def _window(whole):
    """Return the parameters that say which part is in view: never more than the data, `whole` ms.

    `zoom` doublings of the scale, and `move` halves of what is then in view: so two number fields do it, too. Vega-Lite hands
    `on`, the events of a signal, to Vega as it is; its own panning would leave the data.
    """
    grab = {"type": "mousedown", "filter": INSIDE}  # Vega-Lite's own listens to pointers
    drag = {"type": "mousemove", "source": "window", "consume": True}
    drag["between"] = [grab, {"type": "mouseup", "source": "window"}]
    back = {"events": {"type": "dblclick", "filter": INSIDE}, "update": "0"}
    most = "2 * (pow(2, zoom) - 1)"
    step = "(event.deltaY < 0 ? 0.5 : -0.5)"
    place = f"x(group()) / {WIDTH}"
    scale = f"(zoom > 0 && zoom < 12 ? pow(2, {step}) : 1)"  # what is under the pointer stays there
    zoomed = f"{scale} * move + 2 * {place} * ({scale} - 1)"
    dragged = f"grab.move - 2 * (x() - grab.x) / {WIDTH}"
    return [
        {"name": "grab", "on": [{"events": grab, "update": "{x: x(), move: move}"}]},
        {
            **number("zoom", "By keyboard: zoom"),
            "on": [{"events": ZOOM, "update": f"clamp(zoom + {step}, 0, 12)"}, back],
        },
        {
            **number("move", "move"),
            "on": [
                {"events": drag, "update": f"clamp({dragged}, 0, {most})"},
                {"events": ZOOM, "update": f"clamp({zoomed}, 0, {most})"},
                back,
            ],
        },
        {"name": "width_ms", "expr": f"{whole} / pow(2, clamp(zoom, 0, 12))"},
        {"name": "from_ms", "expr": f"clamp(move * width_ms / 2, 0, {whole} - width_ms)"},
    ]


def _timeline(rows, forecast):
    places = {
        "values": [place + 0.5 for place in range(len(rows.labels))],
        "labelExpr": f"{rows.labels}[floor(datum.value)]",
        "title": None,
        "grid": False,
        "labelLimit": LABELS - 4,
        "minExtent": LABELS,
        "maxExtent": LABELS,
    }
    down = {"domain": [len(rows.labels), 0], "nice": False, "zero": False}
    apart = {"labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 6}
    layers = [_blocks(rows, forecast), *_lines_to_kernels(rows), *_memory(rows)]
    return {
        "width": WIDTH,
        "height": ROW * len(rows.labels),
        **_block_data(rows),
        "encoding": {
            "x": time("s", {"title": ["time (ms)", USE], "titleAnchor": "start", **apart}),
            "y": {"field": "top", "type": "quantitative", "scale": down, "axis": places},
        },
        "layer": [measured(len(rows.labels)), *layers],
    }


def _block_data(rows):
    """Return the blocks as a table of integers in 0.1 µs, and how to read it: a quarter of the size of plain records."""
    names, lines = Texts(), Texts()
    table = [
        (
            block.row,
            tenths(block.start),
            tenths(block.end - block.start),
            rows.kinds.index(block.kind),
            names.index(block.name),
            lines.index(block.line),
            block.events,
            round(10 * block.density),
            "" if block.launch is None else tenths(block.launch),
        )
        for block in rows.blocks
    ]
    return {
        **csv("r,b,d,k,n,l,c,w,q", table),
        "transform": calculate(
            s="datum.b / 1e4",
            e="(datum.b + datum.d) / 1e4",
            top="datum.r + 0.12",
            bottom="datum.r + 0.88",
            shade="0.25 + 0.075 * datum.w",
            kind=f"{rows.kinds}[datum.k]",
            name=f"{names.list}[datum.n] + (datum.c > 1 ? ' and ' + (datum.c - 1) + ' more' : '')",
            line=f"{lines.list}[datum.l] || 'not recorded'",
            length="format(datum.d / 1e4, '.3~r') + ' ms'",
            launch="isValid(datum.q) ? datum.q / 1e4 : null",
            after="isValid(datum.q) ? format((datum.b - datum.q) / 1e4, '.3~r') + ' ms after its launch' : ''",
        ),
    }


def _blocks(rows, forecast):
    """Return the layer of blocks, which can be pointed at."""
    told = "{what: datum.name, length: datum.length, Python: datum.line"
    after = f"{told}, start: datum.after}}"
    tooltip = {"expr": f"isValid(datum.q) ? {after} : {told}}}"}
    point = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    hollow = {"fillOpacity": 0.35, "strokeWidth": 1} if forecast else {}
    shade = (
        {}
        if forecast
        else {"fillOpacity": {"field": "shade", "type": "quantitative", "scale": None}}
    )
    colors = {"domain": rows.kinds, "range": [COLORS[kind] for kind in rows.kinds]}
    color = {"field": "kind", "type": "nominal", "scale": colors}
    legend = {"title": None, "symbolType": "square", "columns": 5}
    return {
        "mark": {"type": "rect", "clip": True, "aria": False, "tooltip": tooltip, **hollow},
        "params": [{"name": "pointed", "select": point}],
        "encoding": {
            "x2": {"field": "e"},
            "y2": {"field": "bottom"},
            "fill": {**color, "legend": legend},
            **({"stroke": color} if forecast else shade),
        },
    }


def _lines_to_kernels(rows):
    """Return lines from launches to their kernels: some always, and the one of the block that is pointed at."""
    if rows.launch_row is None:
        return []
    begin = rows.launch_row + 0.5
    table = [(tenths(launch), tenths(start), row) for launch, start, row in rows.arrows()]
    ends = {"y": {"field": "t", "type": "quantitative"}, "y2": {"field": "u"}, "x2": {"field": "s"}}
    rule = {"type": "rule", "clip": True, "aria": False, "color": plots.CPU}
    places = calculate(t=f"{begin}", u="datum.r + 0.12")
    some = {
        **csv("q,b,r", table),
        "transform": [*calculate(s="datum.b / 1e4", launch="datum.q / 1e4"), *places],
        "mark": {**rule, "opacity": 0.3, "strokeWidth": 0.7},
        "encoding": {"x": {"field": "launch", "type": "quantitative"}, **ends},
    }
    mine = {
        "transform": [
            {"filter": {"param": "pointed", "empty": False}},
            {"filter": "isValid(datum.launch)"},
            *places,
        ],
        "mark": {**rule, "color": plots.INK, "strokeWidth": 2},
        "encoding": {"x": {"field": "launch", "type": "quantitative"}, **ends},
    }
    return [some, mine]


def _memory(rows):
    """Return the layer of allocated memory in the last row; empty where none was recorded."""
    if rows.memory_row is None:
        return []
    peak = max(size for _, size in rows.memory)
    table = [(tenths(time), round(size / 1e4)) for time, size in rows.memory]
    base = rows.memory_row + 0.95
    area = calculate(
        s="datum.b / 1e4", top=f"{base} - 0.85 * datum.m / {peak / 1e4}", gb="datum.m / 1e5"
    )
    return [
        {
            **csv("b,m", table),
            "transform": [*area, *calculate(floor=f"{base}")],
            "mark": {
                "type": "area",
                "interpolate": "step-after",
                "clip": True,
                "color": plots.GPU,
                "opacity": 0.5,
            },
            "encoding": {
                "y2": {"field": "floor"},
                "tooltip": [{"field": "gb", "title": "GB allocated", "format": ".3~r"}],
            },
        }
    ]
