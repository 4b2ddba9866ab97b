"""The report as text: one screen."""

from __future__ import annotations

import os
from typing import Any

from practice_gpus.cards import fits
from practice_gpus.reports.findings import SMALL, short, shorten, size, source

ARROWS = {"set-up": "set-up", "h2d": "CPU → GPU", "d2h": "GPU → CPU", "d2d": "GPU → GPU"}
NOTES = {
    "h2d": "for a copy to the GPU",
    "pinned": "for a copy to the GPU",
    "scaler": "in the GradScaler",
}
PINNING = {
    "h2d": "pinned memory (pin_memory=True in the DataLoader) and non_blocking=True at {}",
    "pinned": "already pinned; non_blocking=True at {}",
}
OFTEN = 5  # steps, in which a line waits for a copy
ENDINGS = {
    "done": "ran to its end",
    "enough": "ended after the steps that were asked for",
    "failed": "failed",
    "interrupted": "was interrupted",
}
WIDTH = 110
LIMITS = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "overhead": "overhead-bound, the CPU decides",
    "mixed": "no limit alone decides",
}


def show(report: Any) -> Any:
    """All of it: how it ended and what was found first, counts after."""
    facts = report.facts
    lines = [heading(report)]
    known = any(finding["kind"] == "placement" for finding in report.findings)
    for failure in [] if known else facts["failures"]:
        lines.append(f"failed    {short(*failure['place'])}  {shorten(failure['text'])}")
    lines += advice(report.findings)
    for section in (devices, refused, copies, waits):
        lines += section(facts)
    lines += pace(facts)
    if facts["visible"]:
        lines.append(
            f"note      CUDA_VISIBLE_DEVICES is {facts['visible']!r}: it hides real GPUs, and no practice GPUs"
        )
    return "\n".join(lines)


def heading(report: Any) -> Any:
    """What ran, on what, and how it ended."""
    first = report.facts["devices"][0]
    count = len({device["name"] for device in report.facts["devices"]})
    gpus = f"{count} practice GPU{'s' * (count > 1)} of {size(first['capacity'])}"
    steps = f"{report.facts['steps']} training step{'s' * (report.facts['steps'] != 1)}"
    return (
        f"── {os.path.basename(report.title)} on {gpus}: {ENDINGS[report.outcome]}, {steps} "
        + "─" * 8
    )


def devices(facts: Any) -> Any:
    """Memory by device, and the cards on which it fits."""
    lines = []
    used = [device for device in facts["devices"] if device["peak"]]
    for device in used:
        parts = ", ".join(
            f"{kind} {size(count)}" for kind, count in device["parts"].items() if count
        )
        place = f" at {short(*device['at'])}" if device["at"][0] else ""
        lines.append(f"{device['name']:9} peak {size(device['peak'])}{place}: {parts}")
        end = f"at the end {device['tensors']} tensors, {size(device['bytes'])}"
        lines.append(f"{'':9} {end}; reserved at the peak {size(device['reserved'])}")
    if not used:
        return ["memory    nothing was put on a GPU"]
    cards = fits(max(device["reserved"] for device in used))
    name, _, memory = cards[0][0].rstrip(")").partition(" (") if cards else ("", "", "")
    first = f"from {memory} ({name})" if cards else "on none of the cards known"
    lines.append(f"fits      {first}; the CUDA context and workspaces come on top")
    return lines


def rate(count: Any, facts: Any) -> Any:
    """How often something happens, in each step of each process if it happens in each."""
    steps = facts["steps"] * facts["ranks"]
    if not steps or count < steps or steps < 2:
        return f"{count:8} ×"
    return f"{count / steps:6.3g} a step"


def copies(facts: Any) -> Any:
    """Copies by direction, and the lines that copy most."""
    totals = []
    for direction, arrow in ARROWS.items():
        rows = [row for row in facts["copies"] if row[0] == direction]
        if rows:
            amount = size(sum(row[4] for row in rows))
            totals.append(f"{arrow} {sum(row[3] for row in rows)} ({amount})")
    lines = [f"copies    {', '.join(totals)}"] if totals else []
    rows = [row for row in facts["copies"] if row[0] != "set-up"]
    for direction, file, line, count, total, *_ in sorted(rows, key=lambda row: -row[4])[:5]:
        place = f"{short(file, line)}  {source(file, line, 44)}"
        lines.append(
            f"{rate(count, facts)} {size(total):>9} in all  {ARROWS[direction]}  {place}"[:WIDTH]
        )
    return lines


def waits(facts: Any) -> Any:
    """How often the CPU waited, by line."""
    rows = [row for row in facts["waits"] if row[0] != "set-up"]
    rows.sort(key=lambda row: -row[3])
    lines = [f"waits     {sum(row[3] for row in rows)} in all"] if rows else []
    for reason, file, line, count, _, _, package, *_ in rows[:5]:
        note = NOTES.get(reason, "")
        inside = ", ".join(filter(None, package)) or reason.partition(" in ")[2]
        note = f"in {inside}" if inside else note
        text = f"{rate(count, facts)} {short(file, line)}  {source(file, line, 60)}  {note}"
        lines.append(text[:WIDTH])
    return lines + pinning(facts, rows)


def pinning(facts: Any, rows: Any) -> Any:
    """What would save waits for batches: the half that is missing."""
    lines = []
    large = {tuple(row[1:3]) for row in facts["copies"] if row[4] > SMALL * row[3]}
    for reason, file, line, count, _, moments, *_ in rows:
        often = moments >= max(OFTEN, facts["steps"] / 2) and (file, line) in large
        if reason in PINNING and file and often:
            lines.append(f"{'':9} {PINNING[reason].format(short(file, line))}, saves {count} waits")
    return lines


def pace(facts: Any) -> Any:
    """How long a step would take on GPUs, and why."""
    forecast = facts["pace"]
    if forecast is None:
        return []
    times = []
    for name, ms, low, high in forecast["cards"]:
        card = name.partition(" (")[0]
        likely = f"{milliseconds(low)} to {milliseconds(high)}"
        if (
            forecast["bound"] != "overhead"
        ):  # where the CPU decides, one number would promise too much
            likely = f"about {milliseconds(ms)} ({likely})"
        times.append(f"{likely} on {card}")
    text = f"forecast  a step takes {', '.join(times)}; {LIMITS[forecast['bound']]}"
    if forecast["waits"]:
        place, share = forecast["waits"]
        text += f"; {share:.0%} of it waits at {place}"
    return [text]


def milliseconds(count: Any) -> Any:
    """``count`` milliseconds as text."""
    if count >= 1000:
        return f"{count / 1000:.3g} s"
    return f"{count:.0f} ms" if count >= 10 else f"{count:.2g} ms"


def refused(facts: Any) -> Any:
    """What practice GPUs do not imitate, and what they replaced by something else."""
    lines = []
    for feature, file, line, count, *_ in facts["refusals"]:
        word = "replaced" if feature.endswith((" instead)", "as it is)")) else "refused"
        times = f", {count} times" if count > 1 else ""
        lines.append(f"{word:9} {feature} at {short(file, line)}{times}")
    return lines


def advice(findings: Any) -> Any:
    """The findings, each with its fix."""
    if not findings:
        return ["findings  none"]
    lines = [f"findings  {len(findings)}"]
    for number, finding in enumerate(findings, 1):
        lines.append(f"{number:3}. {short(finding['file'], finding['line'])}  {finding['text']}")
        lines.append(f"     → {finding['fix']}")
    return lines
