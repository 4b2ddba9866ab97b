"""Exercises of the lessons, one module a lesson: tasks, checks, hints, solutions and quiz questions."""

import importlib
import pkgutil

from helpers.checks import core
from helpers.checks.core import Exercise


def all_keys():
    """The keys of all exercises, as a dict of lesson number to a tuple, such as {"01": ("01.pick", …)}."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("lesson"):
            members = vars(importlib.import_module(f"{__name__}.{module.name}.exercises")).values()
            found[module.name[-2:]] = tuple(m.key for m in members if isinstance(m, Exercise))
    return found


def question(key):
    """The quiz question `key` ("02.alone"); None where this version of the course does not have it."""
    try:
        lesson = importlib.import_module(f"{__name__}.lesson{key[:2]}.exercises")
    except ModuleNotFoundError:
        return None
    return next((each for each in getattr(lesson, "QUIZ", ()) if each.key == key), None)


core.find_question = question  # a quiz repeats what was answered wrongly in other lessons
