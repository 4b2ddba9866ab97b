"""The words of a lesson, as its `words.toml` has them: titles, hints, known mistakes, explanations, and the quiz."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import course
from course.checks.core import Exercise, Question
from course.checks.slips import Slip

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # JupyterLab brings it


@functools.cache
def of(lesson: str) -> dict:
    """The words of `lesson` ("02") as a dict of names to tables; "quiz" holds the questions."""
    path = Path(course.__file__).parent / f"lesson{lesson}" / "words.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def exercise(
    key: str, check_answer: Callable, reference: Any, kind: type = Exercise, **rest: Any
) -> Any:
    """Return the `kind` of Exercise with `key` ("02.batch") and its words."""
    lesson, name = key.split(".", 1)
    facts = {**of(lesson)[name]}
    slips = tuple(_slip(**each) for each in facts.pop("slips", ()))
    hints = tuple(facts.pop("hints"))
    return kind(
        key,
        check_answer=check_answer,
        reference=reference,
        hints=hints,
        slips=slips,
        **facts,
        **rest,
    )


def _slip(ways, says="", has="", when="", **more):
    return Slip(says or has, ways, when, own=bool(has), more=more)


def quiz(lesson: str) -> tuple[Question, ...]:
    """The questions of a lesson's quiz."""
    return tuple(Question(**each) for each in of(lesson).get("quiz", ()))
