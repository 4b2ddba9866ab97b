"""Wrong answers that learners plausibly give: one module a lesson, each with a dict WRONG of exercise to answers.

Most are the model answer with a few words changed, so that one sees what the learner did.
"""

import importlib
import inspect
import linecache
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A wrong answer, made from the model answer by `make`, and words that the message about it contains."""

    says: str
    make: object


def edit(says, *texts):
    """Return the model answer with parts of its source changed: what stands there, what instead, and so on."""
    return Wrong(says, lambda reference: edited(reference, texts))


def instead(says, **answers):
    """Return the model answer, a dict, with other answers to some questions."""
    return Wrong(says, lambda reference: {**reference, **answers})


def given(says, answer):
    """Return this answer, whatever the model answer is."""
    return Wrong(says, lambda reference: answer)


def edited(reference, texts):
    """Return `reference`, a function or class, with parts of its source changed."""
    source = textwrap.dedent(inspect.getsource(reference))
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert old in source, f"{old!r} is not in the model answer"
        source = source.replace(old, new)
    names = dict(vars(inspect.getmodule(reference)))
    file = f"<answer {hash(source)}>"
    linecache.cache[file] = (
        len(source),
        None,
        source.splitlines(True),
        file,
    )  # a compiler asks for it
    exec(compile(source, file, "exec"), names)  # noqa: S102 - our own source, changed
    return names[reference.__name__]


def wrong_answers(exercise):
    """Return the `Wrong` answers to an exercise: WRONG["sums"] of answers/lesson07.py for "07.sums"."""
    return importlib.import_module(f"answers.lesson{exercise.key[:2]}").WRONG[exercise.name]
