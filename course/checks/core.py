"""The core of the exercises: four verbs (`check`, `hint`, `solution`, `keep`) and four outcomes.

A lesson's module defines `Exercise` objects. Each has a check function that takes the learner's answer and raises
`NotYet` with what it found; it calls the learner's code only through `call`, so that an exception there is told apart
from a wrong answer. Checks look at behavior (values, devices, copies, bytes); the text of an answer says only whether it is
still the starter.
"""

import ast
import difflib
import dis
import importlib
import inspect
import linecache
import os
import pkgutil
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import course
from course import show
from course.checks import CORRECT, ERROR, NOT_ATTEMPTED, NOT_YET, my_file, my_tools, panel, progress
from course.checks.limit import TooLong, limit
from course.checks.slips import Slip

SECONDS = 10
LOOKS = {  # of an outcome: state of its panel, title
    CORRECT: ("right", "Correct!"),
    NOT_YET: ("wrong", "Not yet"),
    NOT_ATTEMPTED: ("open", "Not attempted yet"),
    ERROR: ("error", "Error in your code"),
}
COURSE = Path(__file__).resolve().parents[2]
STOPPED = (
    "still running after {seconds} seconds, so it was stopped. Does a loop never end, or does it wait "
    "for something that never comes?"
)


class NotYet(Exception):
    """The answer is not right yet; the message names what was found and the likely misconception."""


class NotAttempted(Exception):
    """The starter is untouched; the message says what to do, if it isn't to fill in a cell, under a `title` of its own."""

    def __init__(self, message="", title=""):
        super().__init__(message)
        self.title = title


class LearnerError(Exception):
    """The learner's code raised; `cause` is what it raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True)
class Result:
    """The outcome of a check: `status` is one of the four, `message` what was found, `title` one that isn't the status's."""

    status: str
    message: str
    title: str = ""

    def __str__(self):
        return f"{self.status.capitalize()}: {self.message}"


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    `key` ("02.nested_batch") names it in the progress file and in the lesson (`ex.nested_batch`).
    `check_answer(answer)` raises `NotYet`, or returns a sentence of praise that names what was shown. `reference` is
    the model answer: a function with the name the lesson's starter uses, or a value with `source` as its text.
    `seconds` is a time limit for answers that must take long (0: the usual one). `unlocked` says what a learner can do
    now; `tool` names the function of my_gpu_tools.py as which a correct answer can be kept ("": none), or `keeps` in its
    place. `slips` are the known mistakes, in the order in which they are looked for. `letter` is that of the page that
    asks it ("b" of 02b); its key stays when it moves.
    """

    key: str
    title: str
    check_answer: Callable[..., str | None]
    hints: tuple
    reference: Any
    explanation: str
    source: str = ""
    seconds: float = 0
    unlocked: str = ""
    tool: str = ""
    keeps: Callable | None = None
    slips: Sequence[Slip] = ()
    letter: str = ""

    @property
    def page(self) -> str:
        """The number of the page that asks it, such as "02" or "02b"."""
        return self.key[:2] + self.letter

    @property
    def name(self) -> str:
        """The exercise's name in its module, such as "nested_batch"."""
        return self.key.split(".", 1)[1]

    def outcome(self, answer: object = None) -> Result:
        """Check `answer` and return the `Result`; displays nothing, stores nothing."""
        if is_untouched(answer):
            return self._not_attempted()
        seconds = self.seconds or SECONDS
        try:
            with limit(seconds, _in_learners_code):
                praise = self.check_answer(answer)
            return Result(CORRECT, praise or "well done.")
        except NotAttempted as reason:
            return self._not_attempted(str(reason), reason.title)
        except NotYet as reason:
            return Result(NOT_YET, str(reason))
        except LearnerError as error:
            return Result(ERROR, describe_error(error.cause))
        except TooLong:
            return Result(ERROR, STOPPED.format(seconds=seconds))
        except SystemExit as error:
            end = "It ends the program. Return a value instead."
            return Result(ERROR, f"{describe_error(error)}\n  {end}")

    def word(self, found: object, *case: Any, **names: Any) -> str:
        """What to say of the wrong result `found` of `case`: the words of the first slip that it fits, or "".

        The reference's parameters and `names` are what the slips' conditions ask about, and what stands in fields.
        """
        if inspect.isfunction(self.reference):
            names = inspect.signature(self.reference).bind_partial(*case).arguments | names
        for slip in self.slips:
            if slip.fits(self.reference, self.room, found, case, names):
                return slip.says.format(**names)
        return ""

    @property
    def room(self) -> dict:
        """The names of the lesson's exercises, which a slip may use."""
        return vars(importlib.import_module(LESSONS[self.key[:2]]))

    def wrong_answers(self) -> Iterator[tuple[Slip, Any]]:
        """(slip, a wrong answer that it makes), for each way of each of its slips."""
        for slip in self.slips:
            for answer in slip.answers(self.reference, self.room):
                yield slip, answer

    def _not_attempted(self, why="", title=""):
        return Result(NOT_ATTEMPTED, why or "fill in the cell above, then run it again.", title)

    def check(self, answer: object = None) -> None:
        """Check `answer`, show the outcome and keep it in the learner's progress."""
        result = self.outcome(answer)
        solved = progress.load().get(self.key, {}).get("status") == CORRECT
        if result.status != NOT_ATTEMPTED and not solved:
            progress.record(self.key, status=result.status)
        if result.status == CORRECT:
            _correct[self.key] = answer
        panel.show_verdict(self.verdict(result), self._buttons(result))

    def verdict(self, result: Result) -> panel.Content:
        """The panel of `result`."""
        state, title = LOOKS[result.status]
        then = self.unlocked if result.status == CORRECT else ""
        if result.status == CORRECT and self.tool:
            then += f"\nKeep it for later: ex.{self.name}.keep() puts it into {my_tools.FILE}."
        return panel.Content(state, result.title or title, result.message, then.strip())

    def _buttons(self, result):
        if result.status != CORRECT:
            return [("Hint", self.next_hint), ("Solution", self.model_answer)]
        keep = [("Keep it", self._kept)] if self.tool else []
        return [*keep, ("Compare with ours", self.model_answer)]

    def keep(self, replace: bool = False) -> None:
        """Add your correct answer to my_gpu_tools.py; `replace` takes the place of another of that name there."""
        show.markdown(*self._kept(replace))

    def _kept(self, replace=False):
        """What became of keeping the answer, as (Markdown, plain text)."""
        if not self.tool:
            told = "This exercise has nothing to keep."
        elif self.key not in _correct:
            told = f"Only a correct answer can be kept: run ex.{self.name}.check(…) first."
        else:
            try:
                told = my_tools.keep(self.keeps or _correct[self.key], self.tool, replace)
            except my_file.NotKept as reason:
                told = f"Not kept: {reason}"
                if isinstance(reason, my_file.Another):
                    told += f" ex.{self.name}.keep(replace=True) replaces it."
            except OSError as error:
                told = f"Not kept: {my_tools.path()} can't be written ({error.strerror})."
        return told, told

    def hint(self) -> None:
        """Show the next hint with those before it; after the last one, all of them again."""
        show.markdown(*self.next_hint())

    def next_hint(self) -> tuple[str, str]:
        """The hints up to the next one, as (Markdown, plain text)."""
        before = progress.load().get(self.key, {}).get("hints", 0)
        count = min(before + 1, len(self.hints))
        progress.record(self.key, hints=count)
        names = [f"Hint {number} of {len(self.hints)}" for number in range(1, count + 1)]
        hints = list(zip(names, self.hints, strict=False))
        return (
            "\n\n".join(f"**{name}:** {text}" for name, text in hints),
            "\n".join(f"{name}: {text}" for name, text in hints),
        )

    def solution(self) -> None:
        """Show the model answer and why it works."""
        show.markdown(*self.model_answer())

    def model_answer(self) -> tuple[str, str]:
        """The model answer and why it works, as (Markdown, plain text)."""
        source = self.solution_source()
        return (
            f"```python\n{source}\n```\n\n{self.explanation}",
            f"{source}\n\n{textwrap.fill(self.explanation, 100)}",
        )

    def solution_source(self) -> str:
        """The model answer as source text, ready to stand in the lesson's starter cell."""
        if isinstance(self.reference, str) and not self.source:
            return f'{self.name} = """{self.reference}"""'
        return self.source.strip() or textwrap.dedent(inspect.getsource(self.reference)).strip()


@dataclass(frozen=True)
class Question:
    """A quiz question: `answers` are {choice: the feedback it gets}, `right` is the place of the right one."""

    key: str
    text: str
    answers: dict
    right: int

    def __post_init__(self):
        if self.right not in range(len(self.answers)):
            raise ValueError(f"question {self.key!r}: right is {self.right}, no place of an answer")

    @property
    def choices(self) -> tuple[str, ...]:
        """The choices in their order."""
        return tuple(self.answers)

    @property
    def feedback(self) -> tuple[str, ...]:
        """What each choice is told, in their order."""
        return tuple(self.answers.values())


_correct: dict = {}  # key: the answer that was correct in this kernel
LESSONS = {  # number of a lesson: the module with its exercises
    module.name.removeprefix("lesson"): f"course.{module.name}.exercises"
    for module in pkgutil.iter_modules(course.__path__)
    if module.name.startswith("lesson")
}


def exercises(number: str) -> list:
    """The exercises of the lesson `number` ("01"), in their order."""
    members = vars(importlib.import_module(LESSONS[number])).values()
    return [each for each in members if isinstance(each, Exercise)]


def all_keys() -> dict:
    """The keys of all exercises, as a dict of page to a tuple, such as {"01": ("01.pick", …), "01b": …}."""
    pages: dict = {number: () for number in LESSONS}
    for each in (exercise for number in LESSONS for exercise in exercises(number)):
        pages[each.page] = (*pages.get(each.page, ()), each.key)
    return pages


def find_question(key: str) -> Question | None:
    """The quiz question `key` ("02.alone"); None where this version of the course does not have it."""
    if key[:2] not in LESSONS:
        return None
    lesson = importlib.import_module(LESSONS[key[:2]])
    return next((each for each in getattr(lesson, "QUIZ", ()) if each.key == key), None)


def call(function: Any, *args: object, **kwargs: object) -> Any:
    """Call the learner's `function`; what it raises comes back as `LearnerError`."""
    if not callable(function):
        raise NotYet(
            f"expected a function, got {type(function).__name__}. Pass the name without parentheses."
        )
    try:
        return function(*args, **kwargs)
    except (NotYet, LearnerError):
        raise
    except Exception as cause:
        raise LearnerError(cause) from cause


def chosen(exercise: Exercise, answer: Any) -> Any:
    """`answer` once it passes the check of `exercise`, else the model answer."""
    return answer if exercise.outcome(answer).status == CORRECT else exercise.reference


def is_untouched(answer: object) -> bool:
    """True for None, `...` and a function whose body is only a docstring, `...`, `pass` or `return None`."""
    if answer is None or answer is ...:
        return True
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, (tuple, list)):
        return len(answer) > 0 and all(is_untouched(part) for part in answer)
    return inspect.isfunction(answer) and _returns_nothing(answer)


def same_code(answer: object, starter: Callable) -> bool:
    """Whether decorators and body of the function `answer` read as those of `starter`: its cell is as the learner found it."""
    return bool(_body(answer)) and _body(answer) == _body(starter)


def _body(function):
    """The decorators and statements of `function` as text, whatever its spaces and comments; [] where its source can't be read."""
    try:
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    parts = [*getattr(tree, "decorator_list", []), *getattr(tree, "body", [])]
    return [ast.dump(each) for each in parts]


def _returns_nothing(function):
    plain = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "POP_TOP"}
    for step in dis.get_instructions(function):
        if step.opname not in plain:
            return False
        if step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval not in (None, ...):
            return False
    return True


def describe_error(error: BaseException) -> str:
    """One line on `error`: its type, its message and the learner's own line where it happened."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_learners(f.filename)]
    text = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
    if isinstance(error, NameError) and error.name:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        near = difflib.get_close_matches(error.name, {*frame.f_globals, *frame.f_locals}, n=1)
        text += "".join(f". Did you mean {name!r}?" for name in near)
    if frames:
        line = frames[-1].line or linecache.getline(frames[-1].filename, frames[-1].lineno or 0)
        text += f"\n  in line {frames[-1].lineno} of your cell: {line.strip()}"
    return text


def _is_learners(filename):
    if filename.startswith("<frozen") or "site-packages" in filename or "/torch/" in filename:
        return False
    rooms = [str(COURSE / room) + os.sep for room in ("helpers", "course", "practice_gpus")]
    return not filename.startswith(tuple(rooms))


def _in_learners_code(frame):
    while frame and frame.f_code is not call.__code__:
        frame = frame.f_back
    return frame is not None
