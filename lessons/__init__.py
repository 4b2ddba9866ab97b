"""The lessons, a folder each: exercises (tasks, checks, hints, solutions, quiz questions) and figures."""

import importlib
import pkgutil

from helpers.checks import core

core.LESSONS.update(
    {
        module.name[-2:]: f"{__name__}.{module.name}.exercises"
        for module in pkgutil.iter_modules(__path__)
        if module.name.startswith("lesson")
    }
)


def all_keys() -> dict:
    """The keys of all exercises, as a dict of lesson number to a tuple, such as {"01": ("01.pick", …)}."""
    return {number: tuple(each.key for each in exercises(number)) for number in core.LESSONS}


def exercises(number: str) -> list:
    """The exercises of the lesson `number` ("01"), in their order."""
    members = vars(importlib.import_module(core.LESSONS[number])).values()
    return [each for each in members if isinstance(each, core.Exercise)]
