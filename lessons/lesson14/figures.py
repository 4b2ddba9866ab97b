"""The picture at the top of lesson 14."""

import shutil
import tempfile
from pathlib import Path

from helpers import figures, plots
from lessons.lesson14 import judge
from lessons.lesson14.runs import three_steps

# What it takes to make the project run on a GPU at all: (file, text, what stands there instead)
FIRST_PORT = (
    (
        "model.py",
        "self.window = torch.hann_window(WIDTH)",
        'self.register_buffer("window", torch.hann_window(WIDTH))',
    ),
    ("model.py", "torch.arange(x.shape[1])", "torch.arange(x.shape[1], device=x.device)"),
    ("train.py", "model = Net(config)", 'model = Net(config).to("cuda")'),
    (
        "train.py",
        "= train_step(model, waves, labels",
        '= train_step(model, waves.to("cuda"), labels.to("cuda")',
    ),
)
COLORS = {
    "kernel": figures.GPU,
    "copy": figures.COPY,
    "wait": figures.WAIT,
    "issue": figures.CPU,
    "host": "#9DB7DB",
}


def first_picture():
    """Return (Figure, alternative text): a step of the first port and one of the model solution, by forecast."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "birdcalls"
        shutil.copytree(judge.PROJECT, folder)
        for file, text, instead in FIRST_PORT:
            (folder / file).write_text((folder / file).read_text().replace(text, instead))
        before = three_steps(folder).facts["step"]
    after = three_steps(judge.SOLUTION).facts["step"]
    title = f"The same training step on a T4: {before['ms']:.0f} ms, then {after['ms']:.0f} ms (forecast)"
    figure, axes = plots.new_figure(title, "milliseconds", "", (7.4, 2.8))
    for top, step in ((3.4, before), (1, after)):
        for row, y in (("CPU", top), ("copies", top - 0.9), ("kernels", top - 0.9)):
            for start, end, kind in step["timeline"][row]:
                hollow = {"facecolor": "none", "edgecolor": COLORS[kind], "linewidth": 1.2}
                look = hollow if kind == "kernel" else {"color": COLORS[kind], "linewidth": 0}
                axes.barh(y, end - start, left=start, height=0.62, **look)
    axes.set_yticks([3.4, 2.5, 1, 0.1], ["before: CPU", "GPU", "after: CPU", "GPU"])
    axes.text(
        after["ms"] * 1.05,
        0.5,
        "gray: the CPU waits\nblue: it issues kernels, or computes\ngreen: kernels · amber: copies",
        fontsize=9,
        va="center",
    )
    words = f"Timelines of a step by forecast on a T4: {before['ms']:.0f} ms with ten sins in the code, {after['ms']:.0f} ms without."
    return figure, words
