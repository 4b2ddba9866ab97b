"""Exercises of the lessons, one module a lesson: tasks, checks, hints, solutions and quiz questions."""

import importlib
import pkgutil

from helpers.checks.core import Exercise


def all_keys():
    """The keys of all exercises, as a dict of lesson number to a tuple, such as {"01": ("01.pick", …)}."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("lesson"):
            members = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
            found[module.name[-2:]] = tuple(m.key for m in members if isinstance(m, Exercise))
    return found
