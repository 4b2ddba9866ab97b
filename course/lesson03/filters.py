"""A feature map that one can point at: which pixels of the photo, and which weights, made one of its pixels."""

import base64
import io
import json

import torch
from torch.nn import functional as F

from course import photos
from course.show import vega
from helpers import plots

FILTERS = {"edges": 15, "yellow": 18}  # of the first layer's 32
SIDE = 64  # pixels of the photo that is looked at; the map has half as many
SHOWN = 256  # pixels of each on the page
COLORS = ("red", "green", "blue")
STRONG = 0.35  # of a filter's largest weight: what is smaller is drawn pale
ROW = 3.7  # of a color's weights: three rows and its name
AT = (5, 9)  # column and row that are pointed at first


def feature_maps(network, photo):
    """(the photo [3, SIDE, SIDE] in uint8, {name: the map of a filter of the first layer, half as wide and high}, {name: its weights [3, 3, 3]})."""
    small = F.interpolate(photo[None].float(), SIDE, mode="area").round().to(torch.uint8)
    weights = network._conv_stem.weight.detach()
    with torch.inference_mode():
        maps = network._conv_stem(photos.prepare(small.to(weights.device)))[0].float().cpu()
    weights = weights.cpu()
    found = ({name: each[place] for name, place in FILTERS.items()} for each in (maps, weights))
    return small[0], *found


def chart(network, photo):
    """A Chart: a photo, a feature map to point at, and the nine pixels and 27 weights that made the pixel pointed at."""
    small, maps, weights = feature_maps(network, photo)
    value = maps["edges"][AT[1], AT[0]].item()
    words = (
        f"A photo, its feature map of edges, and the 3 × 3 pixels that made the one in column {AT[0]}, "
        f"row {AT[1]}: their 27 products add up to {value:.2f}."
    )
    return vega.Chart(
        _spec(small, maps, weights), _still(small, maps["edges"], weights["edges"]), words
    )


def _spec(small, maps, weights):
    """The photo with a frame, the nine pixels enlarged, the filter's weights, and the map to point at."""
    half = SIDE // 2
    rows = [
        (i % half, i // half, *(f"{m.flatten()[i]:.2f}" for m in maps.values()))
        for i in range(half**2)
    ]
    names = list(maps)
    table = vega.csv("u,v,p,q", rows)
    chosen = f"wanted == '{names[0]}'"
    highest, other = (f"{_highest(each):.2f}" for each in maps.values())
    table["transform"] = vega.calculate(
        value=f"{chosen} ? datum.p : datum.q",
        shade=f"{chosen} ? datum.p / {highest} : datum.q / {other}",
    )
    colors = ["#" + bytes(pixel).hex() for pixel in small.permute(1, 2, 0).reshape(-1, 3).tolist()]
    pick = {
        "name": "wanted",
        "value": names[0],
        "bind": {"input": "radio", "options": names, "name": "filter: "},
    }
    size = {"width": SHOWN, "height": SHOWN}
    left, middle = _photo(small), _patch(colors)
    return {
        "params": [pick],
        "hconcat": [
            {**size, **left},
            {"width": 96, "height": 96, **middle},
            {"width": 114, "height": SHOWN, **_weights(weights)},
            {**size, **_map(table)},
        ],
        "spacing": 24,
        "config": {"axis": {"grid": False}, "view": {"stroke": None}},
    }


def _highest(feature_map):
    """What is drawn white in a map, and its opposite black; all but a few pixels lie between."""
    return feature_map.abs().quantile(0.99).item()


def _axis(field, side, down=False):
    """A channel without an axis, from 0 to `side`."""
    scale = {"domain": [side, 0] if down else [0, side], "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": None}


def _photo(small):
    """The photo as one picture, and around the nine pixels a dark frame on a light one."""
    from PIL import Image

    picture, stored = Image.fromarray(small.permute(1, 2, 0).numpy()), io.BytesIO()
    picture.resize((4 * SIDE, 4 * SIDE), Image.Resampling.NEAREST).quantize(96).save(
        stored, "png", optimize=True
    )
    url = f"data:image/png;base64,{base64.b64encode(stored.getvalue()).decode()}"
    place = {"x": _axis("x", SIDE), "y": _axis("y", SIDE, down=True)}
    frame = vega.calculate(
        x="2 * pointed.u[0]", y="2 * pointed.v[0]", a="datum.x + 3", b="datum.y + 3"
    )
    ends = {**place, "x2": {"field": "a"}, "y2": {"field": "b"}}
    middle = {"values": [{"x": SIDE / 2, "y": SIDE / 2}]}
    return {
        "title": {"text": "the photo, 64 × 64", "fontSize": 13},
        "layer": [
            {
                "data": middle,
                "mark": {"type": "image", "url": url, "width": SHOWN, "height": SHOWN},
                "encoding": place,
            },
            *(
                {
                    "data": {"values": [{}]},
                    "transform": frame,
                    "mark": {
                        "type": "rect",
                        "filled": False,
                        "stroke": color,
                        "strokeWidth": width,
                    },
                    "encoding": ends,
                }
                for color, width in ((plots.CARD, 6), (plots.INK, 2.5))
            ),
        ],
    }


def _patch(colors):
    """The nine pixels, enlarged, in their own colors; the values that the filter takes stand in their tooltips."""
    table = "c\n" + "\n".join(colors)
    number = vega.calculate(
        x=f"(datum.i - 1) % {SIDE} - 2 * pointed.u[0]",
        y=f"floor((datum.i - 1) / {SIDE}) - 2 * pointed.v[0]",
    )
    near = {"filter": "datum.x >= 0 && datum.x < 3 && datum.y >= 0 && datum.y < 3"}
    count = {"window": [{"op": "row_number", "as": "i"}]}
    ends = vega.calculate(a="datum.x + 1", b="datum.y + 1")
    values = {each: f"(rgb(datum.c)['{each[0]}'] - 127) / 128" for each in COLORS}  # as prepare
    place = {
        "x": _axis("x", 3),
        "x2": {"field": "a"},
        "y": _axis("y", 3, down=True),
        "y2": {"field": "b"},
    }
    color = {"field": "c", "type": "nominal", "scale": None}
    told = [{"field": each, "type": "quantitative", "format": ".2f"} for each in COLORS]
    below = {"type": "text", "align": "left", "baseline": "top", "x": 0, "y": 104}
    return {
        "title": {"text": "nine pixels", "fontSize": 13},
        "data": {"values": table, "format": {"type": "csv"}},
        "transform": [count, *number, near, *ends, *vega.calculate(**values)],
        "layer": [
            {
                "mark": {"type": "rect", "stroke": plots.CARD, "strokeWidth": 1},
                "encoding": {**place, "color": color, "tooltip": told},
            },
            {
                "data": {"values": [{}]},
                "mark": {**below, "text": ["point at one", "for its values"]},
            },
        ],
    }


def _weights(weights):
    """The 27 weights of the chosen filter, nine for each color, darker the larger they are."""
    rows = [
        (
            *(f, column, channel * ROW + row + 0.7, f"{each[channel, row, column]:.2f}"),
            f"{(each[channel, row, column] / each.abs().max()).abs():.2f}",
        )
        for f, each in enumerate(weights.values())
        for channel in range(3)
        for row in range(3)
        for column in range(3)
    ]
    chosen = f"indexof({json.dumps([*weights])}, wanted)"
    place = {"x": _axis("u", 3), "y": _axis("v", 3 * ROW, down=True)}
    ends = {"x2": {"field": "a"}, "y2": {"field": "b"}}
    names = [{"u": 0, "v": ROW * i + 0.3, "name": f"× {each}"} for i, each in enumerate(COLORS)]
    shade = {"field": "size", "type": "quantitative", "legend": None}
    shade["scale"] = {"domain": [0, 1], "range": [0, 0.5]}
    text = {"type": "text", "fontSize": 11}
    pale = {"condition": {"test": f"datum.size > {STRONG}", "value": 1}, "value": 0.45}
    middle = {"x": _axis("p", 3), "y": _axis("q", 3 * ROW, down=True)}
    return {
        "title": {"text": "27 weights", "fontSize": 13},
        "layer": [
            {
                **vega.csv("f,u,v,w,size", rows),
                "transform": [
                    {"filter": f"datum.f == {chosen}"},
                    *vega.calculate(
                        a="datum.u + 0.97",
                        b="datum.v + 0.95",
                        p="datum.u + 0.5",
                        q="datum.v + 0.5",
                        told="format(datum.w, '.2f')",
                    ),
                ],
                "layer": [
                    {
                        "mark": {"type": "rect", "color": plots.WAIT},
                        "encoding": {**place, **ends, "opacity": shade},
                    },
                    {
                        "mark": text,
                        "encoding": {**middle, "text": {"field": "told"}, "opacity": pale},
                    },
                ],
            },
            {
                "data": {"values": names},
                "mark": {**text, "align": "left"},
                "encoding": {**place, "text": {"field": "name"}},
            },
        ],
    }


def _map(table):
    """The map in shades of gray; the pixel that is pointed at has a frame, and its value below."""
    half = SIDE // 2
    start = {"u": AT[0], "v": AT[1]}
    select = {"type": "point", "on": "pointerover", "clear": False, "fields": ["u", "v"]}
    pointed = {"name": "pointed", "value": [start], "select": select}
    ends = vega.calculate(a="datum.u + 1", b="datum.v + 1")
    place = {
        "x": _axis("u", half),
        "x2": {"field": "a"},
        "y": _axis("v", half, down=True),
        "y2": {"field": "b"},
    }
    shade = {
        "field": "shade",
        "type": "quantitative",
        "scale": {"domain": [-1, 0, 1], "range": ["#000", "#808080", "#FFF"], "clamp": True},
        "legend": None,
    }
    mine = [{"filter": {"param": "pointed", "empty": False}}]
    told = "['sum of 27 products: ' + format(datum.value, '.2f'), 'black: negative, gray: 0, white: positive']"
    return {
        **table,
        "transform": [*table["transform"], *ends],
        "layer": [
            {
                "params": [pointed],
                "mark": {"type": "rect", "aria": False},
                "encoding": {**place, "color": shade},
            },
            {
                "transform": mine,
                "mark": {
                    "type": "rect",
                    "filled": False,
                    "stroke": plots.INK,
                    "strokeWidth": 2.5,
                },
                "encoding": place,
            },
            {
                "transform": [*mine, *vega.calculate(told=told)],
                "mark": {
                    "type": "text",
                    "align": "left",
                    "baseline": "top",
                    "x": 0,
                    "y": SHOWN + 8,
                },
                "encoding": {"text": {"field": "told"}},
            },
        ],
        "title": {"text": "the feature map: point at it", "fontSize": 13},
    }


def _still(small, edges, weights):
    """The photo, the nine pixels, the weights and the map as a figure, for pages that draw no chart."""
    from matplotlib.patches import Rectangle

    title = "Nine pixels of the photo and 27 weights make one pixel of the feature map"
    ratios = (3, 1.6, 1.2, 3)
    figure, axes = plots.panels(title, 1, 4, (7.4, 2.9), width_ratios=ratios)
    u, v = AT
    patch = small[:, 2 * v : 2 * v + 3, 2 * u : 2 * u + 3]
    pictures = (small.permute(1, 2, 0), patch.permute(1, 2, 0), weights.reshape(9, 3).abs(), edges)
    signs = "the feature map: edges\nblack: negative, gray: 0, white: positive"
    names = ("the photo", "nine pixels", "27 weights", signs)
    top = _highest(edges)
    gray = {"cmap": "gray", "vmin": -top, "vmax": top}
    shades = ({}, {}, {"cmap": "gray", "vmin": 0, "vmax": 8}, gray)
    frame = {"fill": False, "edgecolor": plots.INK, "linewidth": 2}
    for place, picture, name, shade in zip(axes, pictures, names, shades, strict=True):
        place.imshow(picture.numpy(), interpolation="nearest", **shade)
        place.set_axis_off()
        place.text(0, -0.05, name, transform=place.transAxes, va="top", fontsize=9, color=plots.INK)
    for i, weight in enumerate(weights.flatten().tolist()):
        look = {"alpha": 1 if abs(weight) > STRONG * weights.abs().max() else 0.45, "fontsize": 7.5}
        axes[2].text(i % 3, i // 3, f"{weight:.1f}", ha="center", va="center", **look)
    axes[0].add_patch(Rectangle((2 * u - 0.5, 2 * v - 0.5), 3, 3, **frame))
    axes[3].add_patch(Rectangle((u - 0.5, v - 0.5), 1, 1, **frame))
    return figure
