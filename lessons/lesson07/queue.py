"""What lesson 07 draws and counts: naps of known length, hidden waits, and who worked when."""

import functools
import os

import torch
from torch.overrides import TorchFunctionMode

from helpers import plots
from helpers.checks.core import is_untouched
from helpers.training import SmallCNN, train_step
from lessons.timeline import lay_out, profile_lanes

SLEEP = 1_000_000  # cycles a millisecond, where the device's clock runs at 1 GHz


def event():
    """Return a CUDA event that keeps time."""
    return torch.cuda.Event(enable_timing=True)


def nap(ms):
    """Keep the current stream busy for `ms` milliseconds without computing anything."""
    torch.cuda._sleep(int(ms * _cycles_per_ms(torch.cuda.get_device_name())))


@functools.lru_cache
def _cycles_per_ms(name):
    """Return the clock cycles in a millisecond of the GPU called `name`, measured by events on the second nap."""
    cycles = 100 * SLEEP
    return cycles / second_ms(lambda: torch.cuda._sleep(cycles))


def second_ms(work):
    """Return the milliseconds of `work()` on the GPU, the second of two: during the first a GPU at rest speeds up."""
    for _ in range(2):
        begin = event()
        end = event()
        begin.record()
        work()
        end.record()
        end.synchronize()
    return begin.elapsed_time(end)


def draw_call(returned, finished):
    """Draw a call that came back after `returned` ms and was done after `finished` ms; (Figure, sentence)."""
    lanes = [
        ("Python", "asks", 0, returned),
        ("Python", "waits", returned, finished),
        ("GPU", "works", returned, finished),
    ]
    title = f"Asking takes {plots.number(returned, 2)} ms, the work {plots.number(finished - returned)} ms"
    return plots.lanes(lanes, title), f"{title}."


def draw_v100():
    """Draw the times of a V100 that somebody published without waiting, and with; (Figure, sentence)."""
    names = {"False": "without waiting", "True": "with synchronize()"}
    times = plots.published("sort_v100", "time_ms", x="operation", by="synchronized")
    title = "Without waiting, a V100 seems to need 0.04 to 0.12 ms for anything"
    figure = plots.dots(times.renamed(names), title, "milliseconds", log=True)
    return figure, "Sort on a V100: 0.09 ms without waiting, 2.48 ms with."


def draw_profile(profile):
    """Draw the calls of a torch.profiler profile as a timeline; (Figure, sentence)."""
    spans, names = profile_lanes(profile)
    figure = plots.lanes(spans, f"One training step: the longest part is {names[0]}")
    return figure, f"The longest: {', '.join(names)}."


def training_step(device):
    """Return a function without arguments that trains the network of lesson 04 on 64 pictures once."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # keeps the profiler's log out of the page
    model = SmallCNN().to(device)
    images = torch.rand(64, 3, 32, 32, device=device)
    labels = torch.randint(10, (64,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return lambda: train_step(model, images, labels, optimizer)


def queue(python, device, wait):
    """Draw six steps: Python prepares for `python` ms, the GPU works for `device` ms; (Figure, sentence)."""
    spans, total = simulate(python, device, steps=6, wait=wait == "in every step")
    busy = 6 * device / total
    title = f"Six steps take {total:.0f} ms; the GPU is busy {busy:.0%} of the time"
    figure = plots.lanes(spans, title)
    figure.axes[0].set_xlim(0, 6 * 60)
    return figure, f"{title}."


def simulate(python, device, steps, wait):
    """Return (lanes, ms in all) of a loop; `wait` lets Python wait for the GPU in every step."""
    step = [("Python", "prepares", python), ("GPU", "works", device)]
    if wait:
        return lay_out(steps * [*step, "waits"])
    return lay_out([*(steps * step), "waits"])


def draw_stopwatch(stopwatch):
    """Time growing products with a stopwatch, and the bare call; (Figure, sentence)."""
    counts = (16, 32, 64, 128, 256)
    pictures = torch.rand(counts[-1], 256 * 256, device="cuda")
    honest = []
    calls = []
    for n in counts:
        some = pictures[:n]
        honest.append(stopwatch(lambda some=some: some @ some.T))
        calls.append(stopwatch(lambda some=some: some @ some.T, synchronize=lambda: None))
    series = {"your stopwatch": (counts, honest), "the call alone": (counts, calls)}
    title = f"{counts[-1] // counts[0]} times the pictures: the call alone doesn't notice"
    figure = plots.lines(series, title, "pictures", "milliseconds", logx=True, logy=True)
    return figure, (
        f"{counts[-1]} pictures: {plots.number(honest[-1])} ms by your stopwatch, "
        f"{plots.number(calls[-1])} ms for the call alone."
    )


def draw_overlap(copy_and_work, reference=None):
    """Draw when a copy of 32 MiB ran, and somewhat longer work beside it or in turn; (Figure, sentence)."""
    answer = reference if is_untouched(copy_and_work) else copy_and_work
    host = torch.rand(8 * 2**20).pin_memory()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        copy_ms(host)  # the memory that it gives back is there for the next copy
    spans = overlap_spans(answer, host, side, work_ms(torch.cuda.get_device_name()))
    total = max(end for *_, end in spans)
    title = f"Copy and work took {plots.number(total)} ms together"
    return plots.lanes(spans, title), f"{title}."


@functools.lru_cache
def work_ms(name):
    """Return one and a half times the milliseconds of the copy on the GPU called `name`, the same in each figure."""
    return max(1, 1.5 * copy_ms(torch.rand(8 * 2**20).pin_memory()))


def copy_ms(host):
    """Return the milliseconds of a copy of `host` to the GPU, the second of two."""
    return second_ms(lambda: host.to("cuda", non_blocking=True))


def overlap_spans(copy_and_work, host, side, ms):
    """Return the lanes of `copy_and_work(host, work, side)`, timed by events; its work takes `ms` milliseconds."""
    first = torch.cuda.current_stream()
    nap(50)  # so that the queues fill before either begins
    side.wait_stream(first)
    zero = event()
    zero.record()
    with Marking(host) as marking:
        copy_and_work(host, lambda: marking.run("work", nap, ms), side)
    torch.cuda.synchronize()
    names = {first: "first queue", side: "second queue"}
    spans = sorted(
        (names[stream], label, zero.elapsed_time(begin), zero.elapsed_time(end))
        for stream, label, begin, end in marking.marks
    )
    return [("first queue", "copy", 0, 0), *spans]  # the same colors in each figure


class Marking(TorchFunctionMode):
    """Puts events around the copies of `host`, and around what `run` runs; `marks` keeps them with their streams."""

    COPIES = ("to", "cuda", "copy_")

    def __init__(self, host):
        super().__init__()
        self.host = host
        self.marks = []

    def run(self, label, function, *args, **kwargs):
        """Return `function(*args, **kwargs)`, run between two events."""
        begin = event()
        end = event()
        begin.record()
        result = function(*args, **kwargs)
        end.record()
        self.marks.append((torch.cuda.current_stream(), label, begin, end))
        return result

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Mark a copy of the host's tensor; let everything else pass."""
        copied = any(value is self.host for value in args)
        if copied and getattr(func, "__name__", "") in self.COPIES:
            return self.run("copy", func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
