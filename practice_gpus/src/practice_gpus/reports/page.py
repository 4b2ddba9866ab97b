"""The report as one HTML page to keep, to send, or to print: ``python -m practice_gpus --card T4 --html FILE train.py``."""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from practice_gpus.cards import fits
from practice_gpus.clock import PROMISE
from practice_gpus.reports.findings import short, size, source
from practice_gpus.reports.screen import ENDINGS, PINNING
from practice_gpus.settings import half

if TYPE_CHECKING:
    from practice_gpus.reports.program import Report

WIDTH = 720  # units of a drawing
LEFT = 74  # of them, for the names of rows
RIGHT = 70  # and for what is written behind
WIDE = 120  # where that is a range
SMALL = 0.02  # of a GPU's memory
MOST = 5  # waits, and findings, that are listed
GREENS = ("#0B4F33", "#1B8A5A", "#4FAE83", "#8CCBAE", "#BFE0D0")
PARTS = {
    "parameters": ("parameters", "buckets", "replicas"),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "activations": ("activations", "backward"),
    "batch": ("data",),
}
LIMITS = {
    "compute": "limited by arithmetic",
    "memory": "limited by the GPU's memory bandwidth",
    "overhead": "limited by overhead: the CPU issues too slowly",
    "mixed": "limited by two things at once",
}
NEVER = "None: the CPU never waits for the GPU in the training loop."
BESIDE = "None but the <code>GradScaler</code>'s: in each step it asks the GPU whether a gradient overflowed, and waits for the answer."
MARK = '<meta name="generator" content="practice_gpus">'
LEGEND = "<tspan class='soft'>CPU: blue issues work, pale blue computes, gray waits. GPU: amber copies, green outlines are kernels.</tspan>"


def page(report: Report, before: dict | None = None) -> str:
    """The HTML of a `Report`; ``before``: what an earlier one saved as JSON, as a dict, drawn beside it."""
    content = report.content()
    step, earlier = content.get("step"), (before or {}).get("step")
    parts = [
        heading(content),
        numbers(content, step, earlier),
        timelines(step, earlier),
        memory(content),
        waits(content, step),
        findings(content),
        cards(content, step),
        f"<footer>{escaped(PROMISE)} The program ran on practice GPUs, which compute on the CPU; no GPU was used.</footer>",
    ]
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    title = escaped(f"The GPU report of {name(content)}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{MARK}<title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head><body><main>\n'
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def escaped(words: Any) -> str:
    """The one door of values into the page: a text or number as HTML, inside quotes too."""
    return html.escape(f"{words}", quote=True)


def name(content: dict) -> str:
    """What a program is called: its module, or its file."""
    return os.path.basename(content["program"])


def heading(content: dict) -> str:
    """What ran, on what, and how it ended."""
    first = content["devices"][0]
    count = len({device["name"] for device in content["devices"]})
    ran = f"{count} practice GPU{'s' * (count > 1)} of {size(first['capacity'])}"
    end = f"The program {ENDINGS[content['outcome']]}, with {content['steps']} training steps"
    return (
        f"<h1>The GPU report of {escaped(name(content))}</h1><p class='soft'>{end}, on {ran}.</p>"
    )


def numbers(content: dict, step: dict | None, earlier: dict | None) -> str:
    """The figures to remember."""
    cells = []
    if step:
        was = f"{likely(earlier)} → " if earlier else ""
        spread = f" ({between(step)})" if step["bound"] != "overhead" else ""
        words = f"ms per step on a {escaped(step['card'])}, <i>forecast</i>{spread}"
        cells.append((f"{was}{likely(step)}", words))
        if earlier:
            cells.append(
                (f"{earlier['ms'] / step['ms']:.3g} ×", "the speed of before, <i>forecast</i>")
            )
    peak = max(device["peak"] for device in content["devices"])
    cells.append((size(peak), "at the peak of its memory"))
    beside = ", beside the GradScaler's" if scaled(content) else ""
    count = sum(row[3] for row in loop_waits(content))
    cells.append((f"{count}", f"waits in the training loop{beside}"))
    shown = "".join(f"<div><b>{number}</b><span>{words}</span></div>" for number, words in cells)
    return f"<div class='numbers'>{shown}</div>"


def between(step: dict) -> str:
    """The range of a forecast."""
    return f"{ms(step['low_ms'])} to {ms(step['high_ms'])}"


def likely(step: dict) -> str:
    """A forecast in ms: one number, or where the CPU decides the range alone, as the clock promises no more."""
    return between(step) if step["bound"] == "overhead" else ms(step["ms"])


def ms(value: float) -> str:
    """Milliseconds with three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def rectangle(kind: str, x: float, y: int, width: float, height: int, label: str = "") -> str:
    """One rectangle of a drawing, of a class, with a title to point at."""
    inside = f"<title>{escaped(label)}</title>" if label else ""
    box = f"x='{x:.1f}' y='{y}' width='{max(width, 0.6):.1f}' height='{height}'"
    return f"<rect class='{escaped(kind)}' {box}>{inside}</rect>"


def text(x: float, y: int, words: str, kind: str = "") -> str:
    """Words in a drawing."""
    return f"<text x='{x:.1f}' y='{y}' class='{kind}'>{escaped(words)}</text>"


def drawing(height: int, parts: list, words: str) -> str:
    """A figure: a drawing and what it shows, for those who don't see it."""
    label = escaped(words)
    inside = "".join(parts)
    return f"<figure><svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{label}'>{inside}</svg></figure>"


def timelines(step: dict | None, earlier: dict | None) -> str:
    """What the CPU and the GPU do in one step, before and now, on one scale."""
    if not step:
        return (
            "<h2>A step</h2><p>No step can be drawn: the program made fewer than two optimizer steps, "
            "used no GPU in them, or no card was named (<code>--card T4</code>).</p>"
        )
    both = [("before", earlier), ("now", step)] if earlier else [("", step)]
    longest = max(each["ms"] for _, each in both)
    right = WIDE if any(each["bound"] == "overhead" for _, each in both) else RIGHT
    scale = (WIDTH - LEFT - right) / longest
    parts, y = [], 0
    for when, each in both:
        parts.append(text(0, y + 14, when, "soft"))
        parts.append(text(LEFT + each["ms"] * scale + 6, y + 30, f"{likely(each)} ms"))
        for row, height in (("CPU", 16), ("copies", 8), ("kernels", 16)):
            spans = each["timeline"][row]
            if row != "copies" and not when:
                parts.append(text(0, y + 14, "CPU" if row == "CPU" else "GPU", "soft"))
            elif row != "copies":
                parts.append(text(46, y + 13, "CPU" if row == "CPU" else "GPU", "soft"))
            parts += [
                rectangle(
                    kind,
                    LEFT + start * scale,
                    y,
                    (end - start) * scale,
                    height,
                    f"{kind}, {ms(end - start)} ms",
                )
                for start, end, kind in spans
            ]
            y += height + 4
        y += 14
    parts.append(f"<text x='{LEFT}' y='{y + 6}'>{LEGEND}</text>")
    words = "; ".join(
        f"{when} {ms(each['ms'])} ms, the GPU idle for {each['idle']:.0%}" for when, each in both
    )
    head = (
        f"One training step on a {escaped(step['card'])}, <i>forecast</i>: {LIMITS[step['bound']]}"
    )
    return f"<h2>{head}</h2>{drawing(y + 12, parts, f'Timelines of a step by forecast: {words}.')}"


def memory(content: dict) -> str:
    """The peak of the fullest device by parts, against what the GPU has."""
    device = max(content["devices"], key=lambda device: device["peak"])
    if not device["peak"]:
        return "<h2>Memory</h2><p>Nothing was put on a GPU.</p>"
    amounts = {
        part: sum(device["parts"].get(kind, 0) for kind in kinds) for part, kinds in PARTS.items()
    }
    small = device["peak"] < SMALL * device["capacity"]  # then the bar is the peak alone
    scale = (WIDTH - RIGHT) / (device["peak"] if small else device["capacity"])
    parts, x, keys = [], 0.0, []
    for color, (part, amount) in zip(GREENS, amounts.items(), strict=True):
        label = f"{part} {size(amount)}"
        box = f"x='{x:.1f}' y='4' width='{amount * scale:.1f}' height='20' fill='{color}'"
        parts.append(f"<rect {box}><title>{label}</title></rect>")
        keys.append(f"<tspan fill='{color}'>■</tspan> {label} ")
        x += amount * scale
    edge = device["capacity"] * scale
    if not small:
        parts.append(f"<line class='limit' x1='{edge:.1f}' x2='{edge:.1f}' y1='0' y2='28'/>")
        parts.append(text(edge + 5, 18, size(device["capacity"])))
    parts.append(f"<text x='0' y='44'>{' '.join(keys)}</text>")
    place = f" at <code>{escaped(short(*device['at']))}</code>" if device["at"][0] else ""
    known = fits(device["reserved"])
    least = (
        f"It fits {article(known[0][0])} {escaped(known[0][0])}"
        if known
        else "No card in the list holds it"
    )
    if any("OutOfMemoryError" in failure["text"] for failure in content["failures"]):
        least = "That wasn't enough: the program needs more"
    share = f", {device['peak'] / device['capacity']:.1%} of {size(device['capacity'])}"
    note = f"<p>Peak {size(device['peak'])}{place}{share}. {least}; the CUDA context and workspaces come on top.</p>"
    words = ", ".join(f"{part} {size(amount)}" for part, amount in amounts.items())
    return f"<h2>Memory of {escaped(device['name'])}</h2>{drawing(50, parts, f'Memory at the peak: {words}.')}{note}"


def scaled(content: dict) -> bool:
    """Whether a GradScaler waits in each step."""
    return any(row[0] == "scaler" and row[5] > 1 for row in content["waits"])


def article(card: str) -> str:
    """a T4, an RTX 4060."""
    return "an" if card[0] in "AFHLMNRSX" else "a"


def loop_waits(content: dict) -> list:
    """Rows of waits that come back from step to step, one for each line: (reason, file, line, count)."""
    found: dict = {}
    for reason, file, line, count, _, steps, *_ in content["waits"]:
        if reason not in ("set-up", "scaler") and steps > 1:
            first, before = found.get((file, line), (reason, 0))
            found[file, line] = first, before + count
    return [(reason, *place, count) for place, (reason, count) in found.items()]


def waits(content: dict, step: dict | None) -> str:
    """Where the CPU waits in the loop, and what a step would gain without."""
    rows = sorted(loop_waits(content), key=lambda row: -row[3])[:MOST]
    if not rows:
        return f"<h2>Waits</h2><p>{BESIDE if scaled(content) else NEVER}</p>"
    gains = {stop["line"]: stop["gain_ms"] for stop in step["waits"]} if step else {}
    lines = []
    for reason, file, line, count in rows:
        place = short(file, line)
        gain = f"{ms(gains[place])} ms" if gains.get(place, 0) >= 0.01 else "–"
        fix = (
            f"<br><span class='soft'>{escaped(PINNING[reason].format(place))}</span>"
            if reason in PINNING
            else ""
        )
        code = f"<code>{escaped(source(file, line))}</code>{fix}"
        lines.append(
            f"<tr><td>{escaped(place)}</td><td>{code}</td><td class='n'>{count}</td><td class='n'>{gain}</td></tr>"
        )
    head = "<tr><th>line</th><th></th><th class='n'>waits</th><th class='n'>a step gains without, forecast</th></tr>"
    return f"<h2>Waits</h2><table>{head}{''.join(lines)}</table>"


def marked(words: str) -> str:
    """Words of a finding, with `code` in them as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escaped(words))


def findings(content: dict) -> str:
    """What to change, each with its line."""
    entries = [
        f"<li><b>{escaped(short(each['file'], each['line']))}</b> {marked(each['text'])}"
        f"<br><span class='soft'>→ {marked(each['fix'])}</span></li>"
        for each in content["findings"][:MOST]
    ]
    entries += [
        f"<li><b>{escaped(short(*each['place']))}</b> {escaped(each['text'][:300])}</li>"
        for each in content["failures"]
        if not any(finding["kind"] == "placement" for finding in content["findings"])
    ]
    more = len(content["findings"]) - MOST
    rest = f"<p class='soft'>and {more} more</p>" if more > 0 else ""
    if not entries:
        return "<h2>To change</h2><p>Nothing was found.</p>"
    return f"<h2>To change</h2><ol>{''.join(entries)}</ol>{rest}"


def cards(content: dict, step: dict | None) -> str:
    """The same step on other cards: hollow bars with the range of the forecast."""
    if not step:
        return ""
    rows = step["cards"]
    left, right = 150, 196
    scale = (WIDTH - left - right) / max(row["high_ms"] for row in rows)
    parts = []
    for number, row in enumerate(rows):
        y = 20 * number
        low, high = left + row["low_ms"] * scale, left + row["high_ms"] * scale
        decided = row["bound"] == "overhead"
        spread = f"{between(row)} ms" if decided else f"{ms(row['ms'])} ms ({between(row)})"
        note = "" if row["fits"] else ", doesn't fit"
        parts.append(text(0, y + 12, row["card"]))
        width = 0 if decided else row["ms"] * scale
        parts += [rectangle("hollow", left, y + 2, width, 12, f"{spread}, {row['bound']}")] * bool(
            width
        )
        parts.append(
            f"<line class='range' x1='{low:.1f}' x2='{high:.1f}' y1='{y + 8}' y2='{y + 8}'/>"
        )
        parts.append(text(high + 6, y + 12, f"{spread}{note}", "soft"))
    words = ", ".join(f"{row['card']} {likely(row)} ms" for row in rows)
    return f"<h2>The same step on other cards, <i>forecast</i> with its range</h2>{drawing(20 * len(rows), parts, f'Forecast by card: {words}.')}"


def earlier(path: Any) -> dict:
    """What an earlier report saved as JSON at ``path``; ValueError where it is none, or cannot be drawn."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["step"]:
            timelines(content["step"], content["step"])
            likely(content["step"]), ms(float(content["step"]["ms"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ZeroDivisionError):
        raise ValueError(f"{path} is no report that --json wrote") from None
    return content


def write(report: Report, path: Any, before: dict | None = None) -> Path:
    """Write the page to ``path``, whole or not at all, and return it."""
    path = Path(path)
    part = half(path)
    part.write_text(page(report, before), encoding="utf-8")
    part.replace(path)
    return path
