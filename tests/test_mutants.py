"""The checks notice wrong code: model answers with one small change are not called correct."""

import dataclasses

import pytest
from mutants import mutants
from test_exercises import EXERCISES, KEYS

from helpers.checks import core
from helpers.checks.core import CORRECT

pytestmark = pytest.mark.slow
SECONDS = 1.5  # mutants that never end wait for this
MOST = {"07.streams": 9}  # checks that take long: this many, evenly chosen
SHARE = 0.95

# Mutants that are right answers too: exercise, change (line of the answer: before → after), reason.
RIGHT_TOO = (
    (
        "04.checkpoint",
        "2: torch.load(path, map_location='cpu', weights_only=True) → "
        "torch.load(path, map_location='cpu')",
        "weights_only=True is the default since PyTorch 2.6",
    ),
    ("06.weigh", "2: zip(means, sizes) → zip(sizes, means)", "a product has no order"),
    ("06.choose", "3: n > 1 → n >= 1", "the factor n - 1 is 0 for one GPU"),
    ("06.choose", "3: 1 → 0", "the factor n - 1 is 0 for one GPU"),
    ("08.speedup", "4: 64 → 65", "another size of batch does as well"),
    ("08.speedup", "4: 64 → 63", "another size of batch does as well"),
    ("07.stopwatch", "2: 3 → 4", "more calls that do not count are fine"),
    ("07.stopwatch", "2: 3 → 2", "the median is not moved by one slow call among seven"),
    ("07.stopwatch", "5: 7 → 8", "more samples are fine"),
    ("07.stopwatch", "5: 7 → 6", "five samples are enough"),
    ("07.stopwatch", "10: 1000 → 1001", "the task allows an error of 3%"),
    ("07.stopwatch", "10: 1000 → 999", "the task allows an error of 3%"),
)


def chosen(exercise):
    """Return the mutants to run: all, or `MOST` of them at equal distances."""
    found = mutants(exercise)
    step = -(-len(found) // MOST.get(exercise.key, len(found)))
    return found[::step]


def survivors(exercise):
    """Return (number of mutants, changes of those that the check calls correct)."""
    quick = dataclasses.replace(exercise, seconds=20 if exercise.key == "06.script" else 0)
    found = chosen(quick)
    return len(found), [
        mutant.change for mutant in found if quick.outcome(mutant.answer).status == CORRECT
    ]


@pytest.mark.parametrize("exercise", EXERCISES, ids=KEYS)
def test_changed_answers_are_noticed(exercise, monkeypatch):
    monkeypatch.setattr(core, "SECONDS", SECONDS)
    total, alive = survivors(exercise)
    right = [change for key, change, _ in RIGHT_TOO if key == exercise.key]
    missed = [change for change in alive if change not in right]
    assert len(missed) <= (1 - SHARE) * max(1, total - len(right)) + 1, missed
