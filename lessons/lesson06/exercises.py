"""Exercises, quiz and figures of lesson 06, Use several GPUs."""

import multiprocessing
import os
import random
import re
import runpy
import socket
import sys
import tempfile
import time
from numbers import Integral
from pathlib import Path

import torch

import measurements
from helpers import plots
from helpers.checks.core import Exercise, NotYet, Question, call

# --- figures --------------------------------------------------------------------------------------


def draw_gradients(shards, mean, single):
    """A figure and a sentence: one gradient of each shard (1-D tensors), their mean, and that of one device."""
    title = "The shards disagree; their mean is the gradient of one device"
    figure, axes = plots.new_figure(title, "number of the bias", "gradient")
    places = range(len(single))
    for shard, marker, color in zip(shards, "^v", plots.COLORS, strict=False):
        label = f"shard on {shard.device}"
        axes.plot(places, shard.cpu(), marker, color=color, markersize=5, label=label)
    axes.plot(places, mean.cpu(), "x", color=plots.COLORS[2], markersize=8, label="their mean")
    ring = {"color": "black", "markersize": 12, "fillstyle": "none"}
    axes.plot(places, single.cpu(), "o", **ring, label="one device")
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    largest = max((shard.cpu() - single.cpu()).abs().max() for shard in shards)
    sentence = (
        f"A shard is off by up to {largest:.3f}; the mean lies on the gradient of one device."
    )
    return figure, sentence


def draw_all_reduce(before, after):
    """A figure and a sentence: the numbers of each rank (lists of equal length) before and after an all-reduce."""
    title = "All-reduce: everybody sends, and everybody ends with the mean"
    figure = plots.blank_figure((7.2, 1.9))
    figure.suptitle(title, fontsize=11)
    largest = max(abs(value) for row in before for value in row)
    parts = {"before": before, "after": after}
    for axes, (name, rows) in zip(figure.subplots(1, 2), parts.items(), strict=True):
        axes.imshow(rows, cmap="PuOr", vmin=-largest, vmax=largest, aspect="auto")
        for rank, row in enumerate(rows):
            for place, value in enumerate(row):
                dark = abs(value) > 0.6 * largest
                color = "white" if dark else "black"
                look = {"ha": "center", "va": "center", "fontsize": 9, "color": color}
                axes.text(place, rank, f"{value:g}", **look)
        axes.set_title(name, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks(range(len(rows)), [f"rank {rank}" for rank in range(len(rows))])
    ends = ", ".join(f"{value:g}" for value in after[0])
    return figure, f"{title}: {ends}."


def draw_data_parallel():
    """A figure and a sentence: published images per second of DataParallel on 1 to 4 GPUs, beside the ideal."""
    where = {"network": "ResNet-18", "precision": "float32"}
    rates = plots.published("dataparallel_2080ti", "images_per_s", x="gpus", **where)
    numbers, speeds = next(iter(rates.values()))
    title = f"DataParallel: {speeds[0]:g} images per second with one GPU, {speeds[1]:g} with two"
    ideal = {"ideal": (numbers, [speeds[0] * n for n in numbers])}
    figure = plots.lines([rates, ideal], title, "GPUs", "images per second")
    figure.axes[0].set_xticks(numbers, numbers)
    figure.axes[0].set_ylim(bottom=0)
    return figure, f"{title}, {speeds[3]:g} with four."


def draw_ddp():
    """A figure and a sentence: published speed-ups of ResNet-50 with DDP, beside the ideal."""
    v100 = measurements.published("ddp_v100")
    a100 = measurements.published("resnet50_lambda")
    [single] = v100.rows(network="ResNet-50", mode="no DDP")
    speedups = {"V100, batch 32 each": {1: 1.0}, "A100 SXM4, mixed precision": {}}
    for row in v100.rows(network="ResNet-50", mode="DDP"):
        if row["gpus"] > 1:
            together = row["gpus"] * row["images_per_s"]
            speedups["V100, batch 32 each"][row["gpus"]] = together / single["images_per_s"]
    rows = a100.rows("training", device="A100 80GB SXM4", precision="AMP")
    first = min(rows, key=lambda row: row["gpus"])
    for row in rows:
        speedup = row["images_per_s"] / first["images_per_s"]
        speedups["A100 SXM4, mixed precision"][row["gpus"]] = speedup
    lines = {name: ([*by_gpus], [*by_gpus.values()]) for name, by_gpus in speedups.items()}
    sources = [f"published: {v100.source}", f"published: {a100.source}"]
    sixteen = speedups["V100, batch 32 each"][16]
    eight = speedups["A100 SXM4, mixed precision"][8]
    title = f"Sixteen V100s are {sixteen:.1f} times as fast as one, eight A100s {eight:.1f} times"
    groups = [plots.Group("published", lines, sources), {"ideal": ([1, 16], [1, 16])}]
    figure = plots.lines(groups, title, "GPUs", "times as fast as one", logx=True, logy=True)
    figure.axes[0].set_xticks([1, 2, 4, 8, 16], [1, 2, 4, 8, 16])
    return figure, f"{title}."


def links():
    """Measured rates by what connects the devices: {name: (GB/s, source)}; an all-reduce's, and a plain copy's."""
    bus = measurements.published("copies_a100")
    [row] = bus.rows("copies", bytes=100_000_000, direction="h2d")
    rates = {"PCIe 4 (a copy to an A100)": (row["gb_per_s"], bus.source)}
    all_reduce = measurements.published("all_reduce_nodes")
    for device in ("8 × A100", "8 × H200", "32 × B200, four machines"):
        [row] = all_reduce.rows(device=device, bytes=1_073_741_824)
        rates[device] = (row["gb_per_s"], all_reduce.source)
    return rates


def draw_scaling(step_ms, megabytes, link, compute):
    """A figure and a sentence: the lesson's `step_ms(n, compute, megabytes, rate)` from 1 to 64 GPUs over one of `links`."""
    rate, source = links()[link]
    numbers = [1, 2, 4, 8, 16, 32, 64]
    times = [step_ms(n, compute, megabytes, rate) for n in numbers]
    speed = [times[0] / time for time in times]
    title = f"8 GPUs: {speed[3]:.2g} times as fast, so {speed[3] / 8:.0%} of each is used"
    series = {"the formula": (numbers, speed), "ideal": (numbers, numbers)}
    figure = plots.lines(series, title, "GPUs", "times as fast as one", logx=True, logy=True)
    figure.axes[0].set_ylim(0.5, 70)
    plots.sources(figure, f"published: {source}, the rate of the link")
    return figure, f"{link}, {rate:g} GB/s: {title}."


# --- weigh uneven shards ---------------------------------------------------------------------------------------------
def mean_of_shards(means, sizes):
    total = sum(mean * size for mean, size in zip(means, sizes))
    return total / sum(sizes)


def _check_weigh(answer):
    some = [random.randint(1, 9) for _ in range(4)]
    for sizes in ([4, 4], [3, 1], [5], [1, 2, 6], [7, 0, 2], some):
        samples = torch.randn(sum(sizes), 3, dtype=torch.float64)
        sums = torch.stack([part.sum(0) for part in samples.split(sizes)])
        table = sums / torch.tensor(sizes).clamp_min(1)[:, None]  # the mean of nobody is zero
        means = [*table.clone()]
        _compare_means(call(answer, list(means), list(sizes)), samples.mean(0), sizes, "gradients")
        if not all(torch.equal(mean, row) for mean, row in zip(means, table)):
            raise NotYet(
                f"for sizes {sizes} the tensors that came in changed. Does an operator such as *= write into them?"
            )
        numbers = table[:, 0].tolist()
        _compare_means(call(answer, numbers, list(sizes)), samples[:, 0].mean(), sizes, "numbers")
    return "equal to the mean over all samples, for tensors and numbers, even and uneven shards."


def _compare_means(result, expected, sizes, kind):
    if not isinstance(result, (float, torch.Tensor)):
        raise NotYet(
            f"for sizes {sizes} it returned {type(result).__name__}; expected the mean, as a float or tensor."
        )
    result = torch.as_tensor(result, dtype=torch.float64)
    if result.shape != expected.shape:
        raise NotYet(
            f"for {kind} of shape {tuple(expected.shape)} the result has shape {tuple(result.shape)}. "
            "Add the means to each other, not the elements within one."
        )
    if not torch.allclose(result, expected, rtol=1e-4, atol=1e-6):
        reason = "A shard of three samples counts three times one of one."
        if len(set(sizes)) == 1:
            reason = "Divide by the number of samples."
        raise NotYet(
            f"for shards of sizes {sizes} the result is not the mean over all samples. {reason}"
        )


weigh = Exercise(
    key="06.weigh",
    title="weigh uneven shards",
    check_answer=_check_weigh,
    hints=(
        "Ten samples in shards of 3, 3, 3 and 1: whose mean should count more?",
        "Turn each mean back into a sum, add the sums, and divide by the number of all samples.",
        "`sum(mean * size for mean, size in zip(means, sizes)) / sum(sizes)`",
    ),
    reference=mean_of_shards,
    explanation="Each mean times its size gives back the shard's sum; the sums add up to the sum over all samples, which the "
    "total number of samples turns into the mean.",
)


# --- finish a DDP script ---------------------------------------------------------------------------------------------
DDP_SCRIPT = """import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

rank = int(os.environ["RANK"])
# TODO 1: join the group of processes, through gloo
torch.manual_seed(rank)  # so each process begins with other weights
x = torch.arange(8.0).unsqueeze(1) / 8
dataset = TensorDataset(x, 2 * x)
model = nn.Linear(1, 1)
# TODO 2: wrap the model
sampler = None
# TODO 3: give each process its own samples
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []
for x, y in DataLoader(dataset, batch_size=2, sampler=sampler):
    seen += (8 * x).flatten().tolist()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print("RESULT", rank, [p.item() for p in model.parameters()], sorted(seen), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
_TODOS = re.findall("# TODO .*", DDP_SCRIPT)


def finished_script():
    from lessons.lesson06.exercises import DDP_SCRIPT

    text = DDP_SCRIPT.replace(
        "# TODO 1: join the group of processes, through gloo", 'dist.init_process_group("gloo")'
    )
    text = text.replace("# TODO 2: wrap the model", "model = DistributedDataParallel(model)")
    return text.replace(
        "# TODO 3: give each process its own samples", "sampler = DistributedSampler(dataset)"
    )


def _check_script(answer):
    text = call(answer) if callable(answer) else answer
    if not isinstance(text, str):
        raise NotYet(f"expected the script as text, got {type(text).__name__}. Return the string.")
    todos = [todo for todo in _TODOS if todo in text]
    if text.split() == DDP_SCRIPT.split():
        raise NotYet(
            f"the line {todos[0]!r} is still there. Does replace name it exactly, and do you keep its result?"
        )
    try:
        _judge_script(*_run_two(text))
    except NotYet as reason:
        too = f" The line {todos[0]!r} is still there." if todos else ""
        raise NotYet(f"{reason}{too}") from None
    return "two processes, different samples, equal weights."


def _judge_script(results, complaint):
    if len(results) != 2:
        raise NotYet(f"the two processes did not reach the end: {complaint}")
    (first, seen_first), (second, seen_second) = results
    twice = set(seen_first) & set(seen_second)
    if twice:
        raise NotYet(
            f"both processes learned from sample {min(twice):.0f}. "
            "Which object deals the samples out, and does the loader use it?"
        )
    if first != second:
        raise NotYet(
            f"after training the weights differ: {first} on rank 0, {second} on rank 1. Who averages the gradients?"
        )
    learned = len(set(seen_first) | set(seen_second))
    if learned < 8:
        raise NotYet(
            f"both processes together learned from {learned} of the 8 samples. Deal out all of them."
        )


# A server process imports these once; each check forks its two processes from it, so that only the first one takes long.
_NEEDED = ["torch.nn.parallel", "torch.utils.data.distributed", "torch._dynamo"]


def _run_two(text):
    """Run `text` as two processes, as torchrun would; returns [(weights, samples) by rank] and the last complaint."""
    way = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(way)
    if way == "forkserver":
        context.set_forkserver_preload(_NEEDED)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "answer.py"
        file.write_text(text, encoding="utf-8")
        children = [
            context.Process(target=_one_of_two, args=(str(file), port, rank)) for rank in ("0", "1")
        ]
        try:
            for child in children:
                child.start()
            late = _wait(children)
        finally:
            for child in children:
                if child.pid:
                    child.kill()
                    child.join()
        return _read(file, late)


def _one_of_two(file, port, rank):
    """Run in a process of its own: the script, with the variables that torchrun sets, its output in files."""
    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{file}.{rank}.{kind}", os.O_CREAT | os.O_WRONLY), number)
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    os.environ.update(group, RANK=rank, LOCAL_RANK=rank, CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    runpy.run_path(file, run_name="__main__")
    sys.stdout.flush()
    os._exit(0)  # Python's own end takes seconds where torch is loaded, and nothing here needs it


def _wait(children, seconds=100, grace=2):
    """Wait for both; where one has failed, the other, which may wait for it, gets `grace` seconds. True: too long."""
    end = time.monotonic() + seconds
    while any(child.is_alive() for child in children) and time.monotonic() < end:
        if any(child.exitcode for child in children):
            end = min(end, time.monotonic() + grace)
            grace = seconds  # it counts from the first time
        time.sleep(0.02)
    return any(child.is_alive() for child in children)


def _read(file, late):
    if not Path(f"{file}.0.out").exists():
        start = "they did not start. In a program, call check below the line: if __name__ == '__main__':"
        return [], start
    complaint = "no message"
    if late:
        complaint = "no end within 100 seconds: does one process wait for the other?"
    results = []
    for rank in ("0", "1"):
        out = _text(Path(f"{file}.{rank}.out"))
        for weights, samples in re.findall(r"^RESULT \d \[(.*)\] \[([\d., ]*)\]$", out, flags=re.M):
            numbers = re.findall(r"\d+\.?\d*", samples)
            results.append((weights, [float(number) for number in numbers]))
        for line in _text(Path(f"{file}.{rank}.err")).splitlines():
            if "Error" in line:
                complaint = f"rank {rank}: {line}"
    return results, complaint


def _text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


script = Exercise(
    key="06.script",
    title="finish a DDP script",
    check_answer=_check_script,
    seconds=210,
    hints=(
        "The section One process for each GPU shows four lines that make a script distributed; three of them are yours.",
        "One line each: `dist.init_process_group`, `DistributedDataParallel`, `DistributedSampler`.",
        '`dist.init_process_group("gloo")`; `model = DistributedDataParallel(model)`; `sampler = DistributedSampler(dataset)`.',
    ),
    reference=finished_script,
    explanation="The group lets the processes talk; DDP copies the weights of rank 0 at the start and averages gradients during "
    "backward, so the weights stay equal; the sampler gives each rank other samples.",
)


# --- choose the number of GPUs ---------------------------------------------------------------------------------------
def most_gpus(compute_ms, megabytes, gb_per_s, efficiency, limit):
    def step_ms(n):
        return compute_ms / n + (2 * (n - 1) / n * megabytes / gb_per_s if n > 1 else 0)

    return max(n for n in range(1, limit + 1) if step_ms(1) / (n * step_ms(n)) >= efficiency)


def _efficiency(n, compute_ms, megabytes, gb_per_s):
    return compute_ms / (compute_ms + 2 * (n - 1) * megabytes / gb_per_s)


def _check_choose(answer):
    cases = [
        (100, 400, 10, 0.5, 64),
        (12, 2, 1, 0.5, 64),
        (100, 1, 450, 0.9, 16),
        (10, 4000, 1.25, 0.9, 8),
        (50, 100, 32, 0.5, 1),
        (1, 10, 10, 0.5, 64),  # a short step, in which a millisecond too much for one GPU shows
    ]
    for _ in range(3):
        step = random.uniform(20, 500)
        cases.append((step, random.uniform(1, 800), random.uniform(1, 400), 0.7, 128))
    for *setup, efficiency, limit in cases:
        answered = call(answer, *setup, efficiency, limit)
        enough = [n for n in range(2, limit + 1) if _efficiency(n, *setup) >= efficiency]
        is_whole = isinstance(answered, Integral) and not isinstance(answered, bool)
        if not is_whole or answered != max(enough, default=1):
            numbers = ", ".join(f"{number:.4g}" for number in setup)
            reason = f"{answered!r} is no number of GPUs; return a whole number from 1 to limit."
            if is_whole and 0 < answered < 10**9:
                reason = _why_choose(answered, _efficiency(answered, *setup), efficiency, limit)
            raise NotYet(f"most_gpus({numbers}, {efficiency}, {limit}): {reason}")
    return "nine set-ups, each with the most GPUs that still pay."


def _why_choose(answered, reached, efficiency, limit):
    over = " and the limit is passed" if answered > limit else ""
    if reached < efficiency:
        question = f"that is below {efficiency}. Is the time on n GPUs multiplied by n?"
    else:
        question = (
            "more GPUs would still reach it. Does the search go up to limit, limit included, and is exactly "
            "that efficiency enough?"
        )
    return f"{answered} GPUs reach {reached:.3f}{over}; {question}"


choose = Exercise(
    key="06.choose",
    title="choose the number of GPUs",
    check_answer=_check_choose,
    hints=(
        "`step_ms`, in Does it pay?, gives the time on n GPUs.",
        "n GPUs for `step_ms(n)` cost `n * step_ms(n)`. The efficiency is the cost on one GPU divided by that.",
        "`max(n for n in range(1, limit + 1) if step_ms(1, …) / (n * step_ms(n, …)) >= efficiency)`",
    ),
    reference=most_gpus,
    explanation="With n GPUs the work costs n times the time of a step in GPU-milliseconds; the efficiency is the cost on one "
    "GPU divided by that. It falls with n, so the largest n that passes is the answer.",
)


QUIZ = (
    Question(
        "06.rank",
        "Why may rank 0 alone save the model under DDP?",
        {
            "It has the best weights": "No rank is better: they are equal.",
            "All ranks have equal weights": "Yes: same start, same averaged gradients.",
            "Other ranks cannot write files": "They can, and then they destroy each other's file.",
        },
        right=1,
    ),
    Question(
        "06.epoch",
        "You forget sampler.set_epoch(epoch). What happens?",
        {
            "Every epoch has the same order": "Yes: the shuffle is seeded by the epoch number.",
            "An error in the second epoch": "Nothing fails, which is the trap.",
            "Ranks see the same images": "Shards still differ between ranks.",
        },
        right=0,
    ),
    Question(
        "06.scaling",
        "Eight GPUs, same total batch: the all-reduce takes as long as the compute on one GPU. What helps?",
        {
            "More GPUs": "Compute shrinks further; communication stays.",
            "DataParallel": "It copies the model at every step, too.",
            "A larger batch per GPU": "Yes: more compute per all-reduce.",
        },
        right=2,
    ),
)
