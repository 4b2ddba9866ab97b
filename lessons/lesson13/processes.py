"""The two patients with several processes: a hang, and DDP that differs from one process."""

from helpers.checks import expect
from helpers.checks.core import Exercise, NotAttempted, NotYet
from helpers.scripts import run, script_path

# --- the hang ------------------------------------------------------------------------------------


def flight_records():
    """Run three processes, of which one doesn't come to a collective; return the lines of their flight recorders."""
    text = run("hang.py", processes=3, timeout=90, quiet=True, forked=True).text
    return sorted(line for line in text.splitlines() if line.startswith("rank"))


def _skipped_line():
    """The line of hang.py whose condition lets a rank skip its all-reduce."""
    lines = script_path("hang.py").read_text(encoding="utf-8").splitlines()
    return 1 + next(i for i, line in enumerate(lines) if line.strip() == "if samples > 0:")


def _check_hang(answer):
    if not isinstance(answer, dict) or set(answer) != {"rank", "line"}:
        raise NotYet('expected a dict with "rank" and "line", as in the cell above.')
    if answer["rank"] is ... and answer["line"] is ...:
        raise NotAttempted
    if expect.number(answer["rank"], "the rank") != 2:
        raise NotYet(
            "that rank waits in an all-reduce, as it should. Which rank's third entry is something else?"
        )
    line, truth = expect.number(answer["line"], "the line"), _skipped_line()
    if line == truth + 1:
        raise NotYet("that's the call the others wait in. Which line let rank 2 go past it?")
    if line != truth:
        raise NotYet(
            f"line {line:g} doesn't decide that. Open hang.py: what stands around the all_reduce?"
        )
    return (
        "rank 2's third batch is empty, so it skips the all-reduce and goes on to the broadcast. Every rank must make the same "
        "collectives in the same order: take part with a gradient of zeros, or drop the uneven batch on all ranks."
    )


hang = Exercise(
    key="13.hang",
    title="three processes that hang",
    check_answer=_check_hang,
    hints=(
        "Compare the third entry of each rank.",
        "Two ranks wait in an all-reduce; the other one went on to a broadcast. So which one skipped something?",
        "Open `notebooks/scripts/hang.py`: the function `step` calls `all_reduce` only under a condition.",
    ),
    reference={"rank": 2, "line": _skipped_line()},
    source=f'skipped = {{"rank": 2, "line": {_skipped_line()}}}',
    explanation="Ranks 0 and 1 wait in their third all-reduce. Rank 2's third entry is the broadcast: it came past the all-reduce, "
    "because its batch was empty.",
)


# --- DDP that isn't one GPU ----------------------------------------------------------------------
CURE = {"sampler": "distributed", "batch": "divided", "lr": "same", "norm": "layer", "last": "drop"}
_STILL = {
    "sampler": "every rank trains on the same samples in the same order, so four ranks do what one does four times.",
    "batch": "each rank takes 24 samples, so four ranks average 96 where one rank takes 24.",
    "lr": "the learning rate grows with the ranks, which pays only where the batch grows, too.",
    "norm": "batch norm takes mean and variance over a rank's own samples: 6 of the 24.",
    "last": "90 samples don't divide into batches of 24: the last one is padded or uneven, and the ranks' means weigh alike.",
}


def losses(settings):
    """Return what agree.py prints with `settings` for 1, 2 and 4 ranks: the lines with the losses."""
    arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
    text = run("agree.py", *arguments, processes=4, timeout=90, quiet=True, forked=True).text
    return [line for line in text.splitlines() if "loss" in line]


def _check_agree(answer):
    if not isinstance(answer, dict) or set(answer) != set(CURE):
        raise NotYet(f"expected a dict with the keys {', '.join(CURE)}.")
    if not all(isinstance(value, str) for value in answer.values()):
        raise NotYet("the settings are words in quotes, as listed above.")
    if answer == SICK:
        raise NotAttempted
    for name, value in CURE.items():
        if answer[name] != value:
            raise NotYet(f"{name}={answer[name]!r}: {_STILL[name]}")
    found = losses(answer)
    numbers = [float(line.split()[-1]) for line in found]
    if len(numbers) != 3 or max(numbers) - min(numbers) > 2e-6:
        raise NotYet(f"the losses still differ: {'; '.join(found)}.")
    return f"{'; '.join(found)}. They agree to rounding."


SICK = {"sampler": "none", "batch": "each", "lr": "scaled", "norm": "batch", "last": "keep"}
agree = Exercise(
    key="13.agree",
    title="DDP that isn't one GPU",
    check_answer=_check_agree,
    hints=(
        "For each setting, ask: does the average of four gradients become the gradient of the one batch of 24?",
        "Same samples, each once; same batch; same step; same statistics; no remainder.",
        "All five have to change.",
    ),
    reference=CURE,
    source=f"settings = {CURE!r}",
    explanation="Four ranks do what one does when together they take the same samples, once each, in batches of the same size, with the "
    "same learning rate, and nothing in the model looks across a batch.",
    seconds=120,
)
