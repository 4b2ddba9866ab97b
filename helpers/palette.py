"""The one palette of the course, what each color means, its typeface, and how numbers are written.

For figures, widgets and drawings alike. Checked against the card for contrast: lines and areas 3 to 1, text 4.5 to 1.
"""

import re

# One meaning a color, in the whole course
CPU = "#3B6FB6"
GPU = "#1B8A5A"
COPY = "#C77700"
WAIT = "#8A9099"
COMM = "#7A52A1"
TROUBLE = "#C2344A"
GREENS = ("#0B4F33", "#1B8A5A", "#4FAE83", "#8CCBAE", "#BFE0D0")  # five steps of the GPU's green
MEMORY = dict(
    zip(("parameters", "gradients", "optimizer", "activations", "batch"), GREENS, strict=True)
)
KERNELS = dict(
    zip(("matmul", "attention", "normalization", "elementwise", "other"), GREENS, strict=True)
)
INK = "#1F2530"  # text, and lines that mean none of these
FAINT = "#59616E"  # notes, ticks; 5.9 to 1 on the card
RULE = "#D5DAE1"  # the grid
CARD = "#F7F8FA"  # the paper: a light card on a light page and on a dark one
RIGHT = "#3F7D12"  # a verdict only; TROUBLE is its opposite
FONT = "DejaVu Sans"  # matplotlib brings it; Verdana is its sister in a browser

MEANINGS = {
    r"\bCPUs?\b|Xeon|EPYC|Ryzen|\bhost\b|\bloader\b": CPU,
    r"\bcop(y|ies|ying)\b|\bbus\b|PCIe|\bpinned\b|\bpageable\b": COPY,
    r"\bwait|\bidle\b": WAIT,
    r"all-reduce|all-gather|reduce-scatter|\bcommunication\b|NVLink|\bring\b": COMM,
    r"\bGPUs?\b|\bcuda|\bkernels?\b|Tesla|GeForce|RTX|GTX|\b[ABHLPTV]\d{1,4}S?\b": GPU,
    **{rf"^{part}$": color for part, color in (MEMORY | KERNELS).items()},
}


def meaning(label: object) -> str | None:
    """The color that the words of `label` mean; None where they mean none."""
    return next((c for pattern, c in MEANINGS.items() if re.search(pattern, str(label))), None)


def number(value: float, digits: int = 3) -> str:
    """`value` with so many significant digits; from a thousand on with commas, without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    if not 1000 <= abs(rounded) < float("inf"):
        return f"{rounded:.{max(digits, 3)}g}"
    text = f"{rounded:,.{max(0, digits - len(str(int(abs(rounded)))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """`seconds` in the unit that reads best, three digits: "340 µs", "2.5 s", "45 minutes", "3.5 hours" above 120."""
    for size, unit, below in ((1e-6, "µs", 1e-3), (1e-3, "ms", 1), (1, "s", 120)):
        if seconds < below:
            return f"{number(seconds / size)} {unit}"
    minutes = seconds / 60
    return f"{number(minutes)} minutes" if minutes <= 120 else f"{number(minutes / 60)} hours"


def vega_config() -> dict:
    """The look of the course as a config of Vega-Lite 5."""
    text = {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    color = {"labelColor": FAINT, "titleColor": FAINT}
    return {
        "background": CARD,
        "padding": 16,
        "font": f"{FONT}, Verdana, sans-serif",
        "view": {"stroke": None},
        "title": {"anchor": "start", "fontSize": 17, "color": INK, "offset": 12, "frame": "bounds"},
        "axis": {**text, **color, "gridColor": RULE, "domainColor": FAINT, "ticks": False},
        "axisY": {"domain": False},
        "legend": {**text, **color, "orient": "top"},
        "header": {**text, **color},
        "text": {"fontSize": 12, "color": INK},
        "mark": {"color": GPU},
        "range": {"category": [GPU, CPU, COPY, COMM, WAIT, TROUBLE], "ramp": list(GREENS[::-1])},
    }
