"""The report as text: one screen."""

import os

from .cards import fits
from .findings import short, size, source

ARROWS = {"h2d": "CPU → GPU", "d2h": "GPU → CPU", "d2d": "GPU → GPU"}
ENDINGS = {
    "done": "ran to its end",
    "enough": "ended after the steps that were asked for",
    "failed": "failed",
    "interrupted": "was interrupted",
}
WIDTH = 110


def show(report):
    """All of it."""
    facts = report.facts
    sections = (devices, copies, waits, refused)
    lines = [heading(report)]
    for section in sections:
        lines += section(facts)
    lines += advice(report.findings)
    if facts["visible"]:
        lines.append(
            f"note      CUDA_VISIBLE_DEVICES is {facts['visible']!r}: it hides real GPUs, and no practice GPUs"
        )
    return "\n".join(lines)


def heading(report):
    """What ran, on what, and how it ended."""
    first = report.facts["devices"][0]
    count = len({device["name"] for device in report.facts["devices"]})
    gpus = f"{count} practice GPU{'s' * (count > 1)} of {size(first['capacity'])}"
    steps = f"{report.facts['steps']} optimizer steps"
    return (
        f"── {os.path.basename(report.title)} on {gpus}: {ENDINGS[report.outcome]}, {steps} "
        + "─" * 8
    )


def devices(facts):
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
    shares = ", ".join(f"{name} {share:.1%}" for name, share in cards) or "none of the cards known"
    lines.append(f"fits      {shares}")
    lines.append(
        f"{'':9} a share of the card's memory; the CUDA context and workspaces come on top"
    )
    return lines


def copies(facts):
    """Copies by direction, and the lines that copy most."""
    totals = []
    for direction, arrow in ARROWS.items():
        rows = [row for row in facts["copies"] if row[0] == direction]
        amount = size(sum(row[4] for row in rows))
        totals.append(f"{arrow} {sum(row[3] for row in rows)} ({amount})")
    lines = [f"copies    {', '.join(totals)}"]
    for direction, file, line, count, total, _ in sorted(facts["copies"], key=lambda r: -r[4])[:10]:
        place = f"{short(file, line)}  {source(file, line, 44)}"
        lines.append(f"{count:8} × {size(total):>9} in all  {ARROWS[direction]}  {place}"[:WIDTH])
    return lines


def waits(facts):
    """How often the CPU waited, by line."""
    rows = sorted(facts["waits"], key=lambda row: -row[3])
    lines = [f"waits     {sum(row[3] for row in rows)} in all"]
    for reason, file, line, count, *_ in rows[:8]:
        note = {"h2d": "for a copy to the GPU", "scaler": "in the GradScaler"}.get(reason, "")
        lines.append(f"{count:8} × {short(file, line)}  {source(file, line, 60)}  {note}"[:WIDTH])
    blocking = sum(row[3] for row in rows if row[0] == "h2d")
    if blocking >= 10:
        lines.append(
            f"{'':9} pin_memory=True in the DataLoader and non_blocking=True in .to() save the {blocking} for copies"
        )
    return lines


def refused(facts):
    """What practice GPUs do not imitate."""
    rows = facts["refused"]
    return [
        f"refused   {feature} at {short(file, line)}, {count} times"
        for feature, file, line, count, *_ in rows
    ]


def advice(findings):
    """The findings, each with its fix."""
    if not findings:
        return ["findings  none"]
    lines = [f"findings  {len(findings)}"]
    for number, finding in enumerate(findings, 1):
        lines.append(f"{number:3}. {short(finding['file'], finding['line'])}  {finding['text']}")
        lines.append(f"     → {finding['fix']}")
    return lines
