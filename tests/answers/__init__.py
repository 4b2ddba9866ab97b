"""Wrong answers that learners plausibly give: one module a lesson, each with a dict WRONG of exercise to answers."""

import importlib
import importlib.util


def wrong_answers(exercise):
    """Return the `Wrong` answers to an exercise: WRONG["sums"] of answers/lesson07.py for "07.sums"."""
    name = f"answers.lesson{exercise.key[:2]}"
    if importlib.util.find_spec(name) is None:
        return exercise.wrong
    return importlib.import_module(name).WRONG[exercise.name]
