"""The judge of the final project: runs a port on the CPU, on practice GPUs and by the clock, and says what isn't met."""

from dataclasses import dataclass
from pathlib import Path

from lessons.lesson14 import causes
from lessons.lesson14.runs import in_full, on_cpu, on_gpu, on_two, three_steps

HERE = Path(__file__).parent
PROJECT = HERE / "project" / "birdcalls"
SOLUTION = HERE / "solution" / "birdcalls"
SLACK = 1.1  # of par
CLOSE = 0.05  # of a loss: 16 bits round
NOWHERE = "can't be judged yet: nothing ran on a GPU"


@dataclass(frozen=True)
class Mark:
    """Whether a criterion is met, and a sentence that says why, beginning with file:line where it isn't."""

    met: bool
    text: str


def marks(folder) -> dict:
    """{criterion: Mark} of the port in `folder`, all six."""
    return {name: criterion(folder) for name, criterion in CRITERIA.items()}


def device(folder) -> Mark:
    """It runs on the CPU, and on a GPU where there is one."""
    told = on_cpu(folder)
    if told["error"]:
        return Mark(False, f"{causes.short(told['line'])} without a GPU: {told['error']}")
    done, spy = on_gpu(folder)
    if done.error is not None:
        return Mark(False, causes.failure(done))
    if not spy.device.startswith("cuda"):
        made = causes.line_with(folder, "Net(")
        return Mark(False, f"{made} leaves the model on the CPU of a machine that has a GPU")
    return Mark(True, "runs on the CPU, and on a GPU where there is one")


def loss(folder) -> Mark:
    """The losses are those of the untouched project."""
    truth = on_cpu(PROJECT)
    done, spy = on_gpu(folder)
    told = on_cpu(folder)
    if done.error is not None:
        return Mark(False, f"{causes.failure(done)}; no losses yet")
    losses = (done.names or {}).get("losses")
    if not isinstance(losses, list) or not all(isinstance(x, float) for x in losses):
        return Mark(False, "train.py:1 has no list of numbers named `losses` at its end")
    pairs = list(zip(losses, truth["losses"]))
    off = [n for n, (a, b) in enumerate(pairs) if not abs(a - b) <= CLOSE + CLOSE * b]
    if not off and len(losses) == len(truth["losses"]):
        return Mark(True, f"{len(losses)} losses as before, the last one {losses[-1]:.2f}")
    return Mark(False, causes.other_losses(losses, truth, off, told, spy))


def nothing_ran(folder) -> bool:
    """Whether the port fails on a GPU, or leaves its model on the CPU."""
    done, spy = on_gpu(folder)
    return done.error is not None or not spy.device.startswith("cuda")


def waits(folder) -> Mark:
    """The CPU doesn't wait for the GPU in the training loop."""
    if nothing_ran(folder):
        return Mark(False, NOWHERE)
    done, _ = on_gpu(folder)
    found = causes.waits(done)
    return Mark(not found, "; ".join(found) or f"no wait in the training loop{causes.copies(done)}")


def memory(folder) -> Mark:
    """Training and test fit 8 GB, and nothing grows."""
    if nothing_ran(folder):
        return Mark(False, NOWHERE)
    leaks = [each for each in on_gpu(folder)[0].findings if each["kind"] == "leak"]
    if leaks:
        return Mark(False, f"{causes.short(causes.at(leaks[0]))} {leaks[0]['text']}")
    large = in_full(folder)
    if large.error is not None:
        return Mark(False, causes.too_large(large, folder))
    peak = max(device["peak"] for device in large.facts["devices"])
    return Mark(True, f"the peak is {peak / 2**30:.2f} of 8 GiB")


def speed(folder) -> Mark:
    """A step on a T4 takes no longer than par, by forecast."""
    if nothing_ran(folder):
        return Mark(False, NOWHERE)
    step, par = three_steps(folder).step, three_steps(SOLUTION).step
    if step is None:
        return Mark(False, f"{causes.failure(three_steps(folder))}; no step to time")
    words = f"{step.ms:.0f} ms per step by forecast, par is {par.ms:.0f}"
    if step.ms <= SLACK * par.ms:
        return Mark(True, words + (", beaten" if step.ms < 0.99 * par.ms else ""))
    return Mark(False, f"{causes.slow(step, on_gpu(folder)[1])}; {words}")


def two(folder) -> Mark:
    """Two processes share each step's clips, have a GPU each, and keep equal weights."""
    if nothing_ran(folder):
        return Mark(False, NOWHERE)
    fault = causes.apart(on_two(folder), on_cpu(PROJECT)["clips"])
    return Mark(not fault, fault or "two processes share each step, and their weights stay equal")


CRITERIA = {
    "device": device,
    "loss": loss,
    "waits": waits,
    "memory": memory,
    "speed": speed,
    "two": two,
}
