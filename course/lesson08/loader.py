"""A loader that starves its GPU: one step of published traces, with and without workers."""

from matplotlib.figure import Figure

from course.measurements import traces
from helpers import plots
from practice_gpus.traces import merged

LOADERS = {  # the trace of one step for each
    "1a": "num_workers=0: the main process loads each batch itself",
    "1b": "num_workers=4: four more processes load ahead",
}
FED = "The long wait is gone. DataLoader(…, num_workers=4) is all it takes."


def step_ms(case: str) -> int:
    """Return how many ms the step of a case of `LOADERS` takes."""
    return round(traces.case(case).length / 1e3)


def draw_starving() -> tuple[Figure, str]:
    """Return (Figure, sentence): one training step on a V100, its photos late and in time, from published traces."""
    steps = {case: traces.case(case) for case in LOADERS}
    late, fed = (step.length / 1e3 for step in steps.values())
    title = f"With its images in time, the V100 does in {fed:.0f} ms what took {late:.0f}"
    figure, both = plots.panels(title, 2, 1, (7.2, 3.3), sharex=True)
    for axes, (case, step) in zip(both, steps.items(), strict=True):
        loads = [span for span in step.cpu if "DataLoader" in span.name]
        plots.tidy(axes)
        axes.set_title(LOADERS[case], fontsize=9, color=plots.INK, loc="left")
        rows = (0, "#B4CAE8", loads, plots.CPU), (-1, plots.WAIT + "4D", step.gpu, plots.GPU)
        for place, behind, events, color in rows:
            axes.barh(place, step.length / 1e3, height=0.7, color=behind)
            pieces = [(a / 1e3, (b - a) / 1e3) for a, b in merged(events, step.length)]
            axes.broken_barh(pieces, (place - 0.35, 0.7), facecolors=color)
        axes.set_yticks([0, -1], ["CPU", "GPU"])
        axes.tick_params(axis="y", labelcolor=plots.INK)
        axes.grid(False, axis="y")
    look = {"fontsize": 9, "va": "center", "ha": "center"}
    both[0].text(34, 0, "loads the next images", color="white", **look)
    both[0].text(40, -1, "waits 57 ms", color=plots.INK, **look)
    for axes, x in zip(both, (121, 63), strict=True):
        axes.text(x, 0, "launches kernels", color=plots.INK, **look)
    both[1].set_xlabel("ms since the step began")
    both[1].set_xlim(0, 176)
    plots.sources(figure, steps["1a"].source)
    told = f"loading takes the CPU 69 ms of {late:.0f}, and the GPU waits 57; with four workers, the step takes {fed:.0f}"
    return figure, f"Who works when in one step: {told}."
