"""The explorer of lesson 01: how long a job takes at best on each card, and how long others took."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision import models

import measurements
from helpers import plots
from helpers.figures import number
from lessons.lesson01 import figures
from lessons.lesson11.fusion import traffic
from measurements import atlas
from tools import ROOT


def test_a_job_takes_the_longer_of_arithmetic_and_memory():
    t4 = atlas.cards("float16")["T4"]
    assert (t4.tflop_per_s, t4.gb_per_s) == (41.93, 240)
    assert t4.seconds(4193, 240) == pytest.approx(100) and t4.limit(4193, 240) == "arithmetic"
    assert t4.seconds(1, 2400) == pytest.approx(10) and t4.limit(1, 2400) == "memory"


def test_what_nobody_measured_and_what_does_not_fit_stays_out():
    """An invented time or price would be worse than none; a price without its day misleads."""
    cards = atlas.cards("tf32")
    assert "RTX 4090" in cards and "T4" not in cards  # a T4 has no TF32
    assert atlas.cards("float16")["H200"].usd_per_h is None  # no such hour is in the list
    a100 = atlas.cards("float16")["A100 40 GB"]
    assert (a100.usd_per_h, a100.listed) == (1.10, "Lambda, Aug 2022")


def test_the_explorer_says_why_and_asks_for_memory(monkeypatch):
    """A learner who needs 30 GB must not be sent to a T4."""
    shown = []
    monkeypatch.setattr(plots, "show_vega", lambda *args: shown.append(args))
    figures.show_cards(memory_gb=30)
    spec, figure, alt, caption = shown[0]
    assert "T4 " not in alt and "A100 40 GB 104 minutes" in alt
    assert {"filter": "datum.memory_gb >= memory"} in spec["transform"]
    assert any("the-full-stack" in source for source in figure.sources)
    assert caption == atlas.BOUND


# --- the atlas's times against those that people measured ----------------------------------------


def counted(step):
    """10¹² operations, and 10⁹ bytes read and written, of `step()` on the meta device, which computes nothing."""
    with torch.device("meta"), FlopCounterMode(display=False) as flops:
        moved = sum(read + written for _, read, written in traffic(step))
    return flops.get_total_flops() / 1e12, moved / 1e9


def image_step(build, shape, dtype=torch.float32, train=True):
    """Forward, and backward if it trains, of the network that `build()` makes, on a batch of `shape`."""
    with torch.device("meta"):
        model = build().to(dtype)
        x = torch.empty(shape, dtype=dtype)

    def step():
        with torch.set_grad_enabled(train):
            loss = model(x).sum()
        if train:
            loss.backward()

    return step


def mlp():
    sizes = [784, 256, 128, 64]
    layers = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=False), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


@dataclass(frozen=True)
class Answer:
    """Seconds at best, and what limits them."""

    seconds: float
    limit: str


@dataclass(frozen=True)
class Work:
    """A job that somebody measured: `parts` are (step, how often); `measured`: its seconds."""

    words: str
    card: str
    dtype: str
    parts: tuple
    measured: float

    @property
    def forecast(self):
        costs = [(counted(step), times) for step, times in self.parts]
        tflop = sum(cost[0] * times for cost, times in costs)
        gigabytes = sum(cost[1] * times for cost, times in costs)
        card = atlas.cards(self.dtype)[self.card]
        return Answer(card.seconds(tflop, gigabytes), card.limit(tflop, gigabytes))


def small_works():
    """Source 7a, an RTX 3090, and 7c, a T4: epochs of networks that people train while they learn."""
    minutes = measurements.published("vgg_and_lenet")
    for words, build, shape, images in (
        ("MLP, MNIST", mlp, (128, 1, 28, 28), 54_000),
        ("VGG-16, CIFAR-10", lambda: models.vgg16_bn(num_classes=10), (32, 3, 224, 224), 45_000),
    ):
        [row] = minutes.rows("epochs", device="RTX 3090", network=words)
        parts = ((image_step(build, shape), images / shape[0]),)
        yield Work(f"{words}, an epoch", "RTX 3090", "float32", parts, 60 * row["epoch_minutes"])
    [row] = measurements.published("resnet18_epoch").rows("epochs", device="Tesla T4")
    shape = (64, 3, 224, 224)
    parts = (
        (image_step(models.resnet18, shape), 50_000 / 64),
        (image_step(models.resnet18, shape, train=False), 10_000 / 64),
    )
    yield Work(f"{row['network']}, an epoch", "T4", "float32", parts, row["epoch_s"])


def resnet50_works():
    """Source 10: NVIDIA's own ResNet-50, a thousand images."""
    source = measurements.published("resnet50_nvidia")
    formats = {"FP32": "float32", "AMP": "float16"}
    for section, device, card in (
        ("training", "V100 16GB, DGX-1", "V100"),
        ("training", "A100 80GB, DGX", "A100 80 GB"),
        ("inference", "T4", "T4"),
        ("inference", "V100 16GB, DGX-1", "V100"),
    ):
        where = {"gpus": 1} if section == "training" else {"batch": 256}
        for row in source.rows(section, device=device, **where):
            if row["precision"] not in formats:
                continue  # nobody published the products of this A100 in TF32
            dtype = formats[row["precision"]]
            train = section == "training"
            step = image_step(models.resnet50, (64, 3, 224, 224), getattr(torch, dtype), train)
            words = f"ResNet-50, {section}, 1,000 images"
            yield Work(words, card, dtype, ((step, 1000 / 64),), 1000 / row["images_per_s"])


@pytest.fixture(scope="module")
def works():
    """Pairs of a work and its answer."""
    return [(work, work.forecast) for work in (*small_works(), *resnet50_works())]


def test_instructors_see_how_far_the_times_are_off(works):
    """Somebody in the room will ask whether "at best" means anything; the page answers with these numbers."""
    text = (ROOT / "notebooks/INSTRUCTORS.md").read_text(encoding="utf-8")
    section = text.split("## What *at best* means\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    shown = "\n".join(line_of(work, answer) for work, answer in works)
    assert len(lines) == len(works), f"the table should be:\n{shown}"
    for line, (work, answer) in zip(lines, works, strict=True):
        *words, seconds, limit, measured, times = [cell.strip() for cell in line.split("|")[1:-1]]
        assert [*words, limit] == [work.words, work.card, work.dtype, answer.limit], shown
        numbers = [float(cell.replace(",", "")) for cell in (seconds, measured, times)]
        expected = [answer.seconds, work.measured, work.measured / answer.seconds]
        assert numbers == pytest.approx(expected, rel=0.05), f"the table should be:\n{shown}"


def line_of(work, answer):
    """The line of the table; PyTorch's counts differ a little from version to version."""
    times = [answer.seconds, work.measured, work.measured / answer.seconds]
    seconds, measured, ratio = (number(value, 3) for value in times)
    cells = [work.words, work.card, work.dtype, seconds, answer.limit, measured, ratio]
    return f"| {' | '.join(cells)} |"


def test_a_figure_of_times_at_best_says_how_much_longer_they_took(works):
    """Without that line a learner would plan an afternoon for what takes two."""
    times = {"large": [], "small": []}
    for work, answer in works:
        size = "small" if "MNIST" in work.words else "large"
        times[size].append(work.measured / answer.seconds)
    least, most = f"{min(times['large']):.1f}", f"{max(times['large']):.1f}"
    assert f"{least} to {most} times as long" in atlas.BOUND
    assert "small networks much longer" in atlas.BOUND
    assert min(times["small"]) > 2 > max(times["large"])
