"""Figure of number formats: the best published rates of matmuls by card and format."""

import measurements
from helpers import figures, plots

CARDS = {
    "P100": "P100-PCIE-16GB",
    "V100": "V100-SXM2-16GB",
    "T4": "T4, Colab",
    "A100": "A100-PCIE-40GB",
    "L4": "L4",
    "H100": "H100 80GB HBM3",
}


def draw_formats(card):
    """A figure and its words: the best published rates of one of `CARDS` by number format."""
    name, section = ("matmul_best", "best") if card == "T4" else ("matmul_sizes", "matmul")
    data = measurements.published(name)
    rates = {}
    for row in data.rows(section, device=CARDS[card]):
        rates[row["dtype"]] = max(rates.get(row["dtype"], 0), row["tflop_per_s"])
    gain = rates["float16"] / rates["float32"]
    title = f"{card}: float16 has {gain:.2g}× the throughput of float32"
    colors = dict.fromkeys(rates, figures.GPU)
    figure = plots.bars(rates, title, "TFLOP/s at best", colors=colors)
    plots.sources(figure, data.source)
    loses = rates["bfloat16"] < rates["float32"]
    return figure, title + (", and bfloat16 is slower than both." if loses else ".")
